"""The formula of a library vertex as text with its numbers, found by computing it with numbers that note how they came
about: no formula is written down a second time."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from mimdsim.program import Codelet, TileFormula
from mimdsim.timing.tile_cycles import TileIssue, library_cycles

LONGEST = 400  # characters of a formula that is still read
PRECEDENCE = {"+": 1, "-": 1, "x": 2, "/": 2, "//": 2, "%": 2}
SIMPLE = 3  # numbers and functions


class Noted:
    """A number with the text of how it came about; plain: it is one that the formula or the machine just has. Of a
    negative number, negated: the one it is the negative of; of a quotient rounded down, divided: both its parts."""

    negated: Noted | None = None
    divided: tuple[Noted, Noted] | None = None

    def __init__(self, value: Any, text: str = "", level: int = SIMPLE):
        self.value, self.plain, self.level = value, not text, level
        self.text = text or f"{value:,g}"

    def inside(self, level: int) -> str:
        return self.text if self.level >= level else f"({self.text})"

    def __neg__(self) -> Noted:
        if self.divided is not None and self.divided[0].negated is not None:  # how integers are rounded up
            above, below = self.divided
            return Noted(-self.value, f"ceil({above.negated.inside(2)} / {below.inside(3)})")  # type: ignore[union-attr]
        made = Noted(-self.value, "" if self.plain else f"-{self.inside(SIMPLE)}")
        made.negated = self
        return made

    def __ceil__(self) -> Noted:
        return Noted(math.ceil(self.value), f"ceil({self.text})")

    def __floor__(self) -> Noted:
        return Noted(math.floor(self.value), f"floor({self.text})")

    ceil, floor = __ceil__, __floor__  # as numpy asks for them

    def astype(self, _kind: Any) -> Noted:
        return self

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.value)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **more: Any) -> Any:
        if method != "__call__" or more:
            return NotImplemented
        values = [each.value if isinstance(each, Noted) else each for each in given]
        if ufunc in UFUNCS:
            return UFUNCS[ufunc](*given)
        names = ", ".join(_noted(each).text for each in given)
        return Noted(ufunc(*values), f"{NAMES.get(ufunc.__name__, ufunc.__name__)}({names})")


NAMES = {"maximum": "max", "minimum": "min"}


def _noted(value: Any) -> Noted:
    if isinstance(value, Noted):
        return value
    if isinstance(value, np.ndarray) and not value.shape:
        return _noted(value.item())
    return Noted(value)


def _binary(sign: str, compute: Callable[[Any, Any], Any]) -> tuple[Callable[..., Noted], Callable[..., Noted]]:
    level, neutral = PRECEDENCE[sign], 0 if sign in "+-" else 1

    def joined(one: Any, other: Any) -> Noted:
        left, right = _noted(one), _noted(other)
        value = compute(left.value, right.value)
        if left.plain and right.plain:
            return Noted(value)
        if right.plain and right.value == neutral and sign != "%":
            return left
        if left.plain and left.value == neutral and sign in "+x":
            return right
        if sign == "//":
            made = Noted(value, f"floor({left.inside(level)} / {right.inside(level + 1)})")
            made.divided = left, right
            return made
        return Noted(value, f"{left.inside(level)} {sign} {right.inside(level + (sign not in '+x'))}", level)

    return joined, lambda self, other: joined(other, self)


UFUNCS: dict[Any, Callable[..., Noted]] = {}
for _name, _sign, _compute, _ufunc in (
    ("add", "+", operator.add, np.add),
    ("sub", "-", operator.sub, np.subtract),
    ("mul", "x", operator.mul, np.multiply),
    ("truediv", "/", operator.truediv, np.divide),
    ("floordiv", "//", operator.floordiv, np.floor_divide),
    ("mod", "%", operator.mod, np.remainder),
):
    _forward, _backward = _binary(_sign, _compute)
    setattr(Noted, f"__{_name}__", _forward)
    setattr(Noted, f"__r{_name}__", _backward)
    UFUNCS[_ufunc] = _forward
UFUNCS |= {np.ceil: math.ceil, np.floor: math.floor, np.negative: operator.neg}
for _name, _comparison in (
    ("lt", np.less),
    ("le", np.less_equal),
    ("gt", np.greater),
    ("ge", np.greater_equal),
    ("eq", np.equal),
    ("ne", np.not_equal),
):
    _compare = getattr(operator, _name)
    setattr(Noted, f"__{_name}__", lambda self, other, by=_compare: by(self.value, _noted(other).value))
    UFUNCS[_comparison] = getattr(Noted, f"__{_name}__")


def formula_text(codelet: Codelet, extents: dict[str, int], issue: TileIssue) -> str:
    """The cost formula of a library vertex with its numbers: '11 + 6 contexts x (29 + ceil(64 elements / 24))'; where
    it cannot be followed, by name with its extents."""
    cost = codelet.cost
    assert isinstance(cost, TileFormula)
    named = ", ".join(f"{name} {value:,}" for name, value in extents.items())
    plain = f"its formula on {issue.working} contexts" + (f" for {named}" if named else "")
    noted = {name: Noted(value, f"{value:,} {name}") for name, value in extents.items()}
    contexts, vector = Noted(issue.working, f"{issue.working} contexts"), Noted(issue.vector_bytes)
    try:
        made = _noted(cost.cycles(noted, contexts, vector))  # type: ignore[arg-type]
    except Exception:  # a formula may compute in any way
        return plain
    factor = issue.issue_cycles / issue.working
    known = library_cycles(codelet, {name: np.array([value]) for name, value in extents.items()}, issue, 1)
    if not math.isclose(float(made.value) * factor, float(known.reshape(-1)[0])) or len(made.text) > LONGEST:
        return plain
    if factor == 1:
        return made.text
    scale = Noted(factor, f"{issue.issue_cycles} / {issue.working}", PRECEDENCE["/"])
    return UFUNCS[np.multiply](made, scale).text
