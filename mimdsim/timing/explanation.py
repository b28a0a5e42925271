"""The explanation of a superstep, as records and as the text of a table."""

from __future__ import annotations

import math
import operator
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from mimdsim.base.shown import Sheet, Shown
from mimdsim.base.units import counted
from mimdsim.costs.fabric import Row
from mimdsim.program import Codelet, TileFormula
from mimdsim.timing.tile_cycles import TileIssue, library_cycles

WIDTH = 110
MOST = 12  # contexts, or kinds of vertices, that the text lists


@dataclass(frozen=True, kw_only=True)
class Context:
    """A worker context in one execution: the vertices it runs, by round, and their bundles."""

    number: int
    vertices: tuple[str, ...]
    bundles: float


@dataclass(frozen=True, kw_only=True)
class Work:
    """Vertices of a tile with equal cost in one execution."""

    codelet: str
    vertices: tuple[int, ...]
    how: str


@dataclass(frozen=True, kw_only=True)
class Explanation(Shown):
    """Cycles of a superstep as one tile sees them, over all its executions (`times`).

    compute sums to the busy cycles of the tile; with waiting, to compute_cycles of the superstep's span; exchange and
    sync to those of the span. contexts and work: execution `timestep`.
    """

    superstep: str
    phase: str
    machine: str
    tile: int
    slowest: bool
    times: int
    alike: bool  # whether the tile works the same in all executions
    timestep: int
    issue_cycles: int
    contexts: tuple[Context, ...]
    work: tuple[Work, ...]
    compute: tuple[Row, ...]
    waiting: tuple[Row, ...]
    exchange: tuple[Row, ...]
    sync: tuple[Row, ...]
    fullest_link: str = ""  # of its exchange, where the machine has links between routers

    @property
    def busy_cycles(self) -> int:
        """Busy cycles of the tile."""
        return round(sum(row.cycles for row in self.compute))

    @property
    def compute_cycles(self) -> int:
        """Compute cycles of the superstep."""
        return round(sum(row.cycles for row in (*self.compute, *self.waiting)))

    @property
    def exchange_cycles(self) -> int:
        """Exchange cycles of the superstep."""
        return round(sum(row.cycles for row in self.exchange))

    @property
    def sync_cycles(self) -> int:
        """Sync cycles of the superstep."""
        return round(sum(row.cycles for row in self.sync))

    @property
    def cycles(self) -> int:
        """All cycles of the superstep."""
        return self.compute_cycles + self.exchange_cycles + self.sync_cycles

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _sheet(self) -> Sheet:
        parts = (("compute", self.compute), ("", self.waiting), ("exchange", self.exchange), ("sync", self.sync))
        rows = [(part, row.what, cycles_text(row.cycles), row.how) for part, each in parts for row in each]
        return Sheet(self._title, rows, ("part", "what", "cycles", "how"))

    @property
    def _title(self) -> str:
        often = f"{self.times:,} executions" if self.times != 1 else "one execution"
        return (
            f"superstep '{self.superstep}' ({self.phase}) takes {self.cycles:,} cycles on {self.machine}: {often}, "
            f"seen from tile {self.tile}{', the slowest' if self.slowest else ''}"
        )

    def _lines(self) -> Iterator[str]:
        yield self._title
        yield ""
        body = [
            *self._part("compute", self.compute, f"busy cycles of tile {self.tile}", self.busy_cycles),
            *self._part("", self.waiting, "compute cycles", self.compute_cycles),
            *self._part("exchange", self.exchange, "exchange cycles", self.exchange_cycles),
            *([("  fullest link", self.fullest_link, "")] if self.fullest_link else []),
            *self._part("sync", self.sync, "sync cycles", self.sync_cycles),
            ("all", "", f"{self.cycles:,}"),
        ]
        widths = [max(len(row[0]) for row in body), max(len(row[2]) for row in body)]
        room = max(30, WIDTH - sum(widths) - 4)
        for what, how, cycles in body:
            first, *rest = textwrap.wrap(how, room) or [""]
            yield f"{what:<{widths[0]}}  {first:<{room}}  {cycles:>{widths[1]}}".rstrip()
            yield from (f"{'':<{widths[0]}}  {more}" for more in rest)
        if self.contexts:
            yield from self._one_execution()

    def _one_execution(self) -> Iterator[str]:
        rounds = max(len(one.vertices) for one in self.contexts)
        at = "" if self.times == 1 else ", in every execution" if self.alike else f", in timestep {self.timestep}"
        yield ""
        yield f"tile {self.tile}{at}: {counted(len(self.contexts), 'context')} at work, {counted(rounds, 'round')}"
        for one in self.contexts[:MOST]:
            names = ", then ".join(_named_vertices(one.vertices))
            yield from _wrap(f"  context {one.number}: ", f"{names}: {one.bundles:,g} bundles")
        yield from _left_out(len(self.contexts), "contexts")
        for each in self.work[:MOST]:
            yield from _wrap("  ", f"{_numbered(each.vertices)} of {each.codelet}: {each.how}")
        yield from _left_out(len(self.work), "kinds of vertices")
        longest, together = max(one.bundles for one in self.contexts), sum(one.bundles for one in self.contexts)
        first = f"longest context {longest:,g} bundles x {self.issue_cycles} issue cycles = "
        decides = "the longest context" if longest * self.issue_cycles >= together else "the issue of all bundles"
        yield from _wrap(
            "  ", f"{first}{cycles_text(longest * self.issue_cycles)}; all bundles {together:,g}: {decides} decides"
        )

    @staticmethod
    def _part(name: str, rows: tuple[Row, ...], total: str, cycles: int) -> Iterator[tuple[str, str, str]]:
        if name and rows:
            yield name, "", ""
        for row in rows:
            yield f"  {row.what}", row.how + (f"; {row.note}" if row.note else ""), cycles_text(row.cycles)
        if rows:
            yield f"  = {total}", "", f"{cycles:,}"


def cycles_text(cycles: float) -> str:
    """A whole number, or one with a decimal if it is fractional."""
    return f"{cycles:,.0f}" if cycles == round(cycles) else f"{cycles:,.1f}"


def _numbered(vertices: Sequence[int]) -> str:
    """'vertices 0-311, 313'; of many that do not lie side by side the first."""
    runs: list[list[int]] = []
    for number in vertices:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    said = ["-".join(map(str, run)) if len(run) < 2 or run[1] - run[0] > 1 else f"{run[0]}, {run[1]}" for run in runs]
    more = f" and {len(vertices) - sum(run[-1] - run[0] + 1 for run in runs[:MOST]):,} more" if len(runs) > MOST else ""
    return f"vert{'ices' if len(vertices) > 1 else 'ex'} {', '.join(said[:MOST])}{more}"


def _named_vertices(names: Sequence[str]) -> Iterator[str]:
    """'vertices 11, 779 of StateGradient' for those of one codelet that follow each other."""
    for codelet, those in groupby((name.partition(" of ") for name in names), key=lambda parts: parts[2]):
        yield f"{_numbered([int(number) for number, *_ in those])} of {codelet}"


def _left_out(many: int, of: str) -> Iterator[str]:
    if many > MOST:
        yield f"  and {many - MOST:,} more {of}"


def _wrap(start: str, content: str) -> list[str]:
    return textwrap.wrap(content, WIDTH, initial_indent=start, subsequent_indent=" " * (len(start) + 2))


# ---- the formula of a library vertex as text with its numbers
#
# Found by computing it with numbers that note how they came about: no formula is written down a second time.


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
