"""Arithmetic in study files: "900 MB / chip.tiles", read by a small parser of its own; nothing is evaluated by Python.

Numbers may carry a unit (`base/units.py`; here also kB, MB, GB and TB, powers of 1000), names are fields by dotted key,
and there are + - * / // ** ( ) and the functions of `FUNCTIONS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mimdsim.base.errors import shortened
from mimdsim.base.units import UNITS

MOST_CHARACTERS = 400
MOST_DEPTH = 20  # brackets and signs within each other
FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "log2": math.log2,
}
FACTORS = {unit: factor for units in UNITS.values() for unit, factor in units.items() if "/" not in unit}
FACTORS |= {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)(?:\s*(?P<unit>[A-Za-z]\w*))?"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[\w-]+)*)|(?P<sign>\*\*|//|[-+*/(),]))"
)


@dataclass(frozen=True)
class _Token:
    kind: str  # number, name, sign or end
    text: str
    number: float = 0.0


def evaluate(text: str, names: Mapping[str, float] | Callable[[str], float]) -> float:
    """The value of an expression; raises ValueError that says what is wrong with it, also for a division by zero."""
    known = names if callable(names) else names.__getitem__
    try:
        value = _Parser(text, known).whole()
        if isinstance(value, complex) or not math.isfinite(value):
            raise ValueError("is not a finite number")
    except OverflowError:
        raise ValueError(f"'{shortened(text)}': grows beyond all numbers") from None
    except (ZeroDivisionError, ValueError) as problem:
        raise ValueError(f"'{shortened(text)}': {problem}") from None
    return float(value)


def names_in(text: str) -> tuple[str, ...]:
    """The fields that an expression is of, each once; raises ValueError for what cannot be read."""
    found = (token.text for token in _tokens(text) if token.kind == "name" and token.text not in FUNCTIONS)
    return tuple(dict.fromkeys(found))


def _tokens(text: str) -> Iterator[_Token]:
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"is over {MOST_CHARACTERS} characters")
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"cannot be read from '{shortened(text[at:].strip())}' on")
        at = match.end()
        if match["number"]:
            unit = match["unit"] or ""
            if unit and unit not in FACTORS:
                raise ValueError(f"'{unit}' is no unit; known: {', '.join(FACTORS)}")
            yield _Token("number", match["number"], float(match["number"]) * FACTORS.get(unit, 1.0))
        else:
            yield _Token("name" if match["name"] else "sign", match["name"] or match["sign"])
    yield _Token("end", "its end")


class _Parser:
    """Recursive descent over the tokens; `**` binds tightest and to the right, as in Python."""

    def __init__(self, text: str, known: Callable[[str], float]):
        self.tokens, self.known, self.depth = list(_tokens(text)), known, 0

    def whole(self) -> float:
        value = self._sum()
        self._take("end", "")
        return value

    def _sum(self) -> float:
        value = self._product()
        while (sign := self._sign("+", "-")) is not None:
            other = self._product()
            value = value + other if sign == "+" else value - other
        return value

    def _product(self) -> float:
        value = self._signed()
        while (sign := self._sign("*", "//", "/")) is not None:
            other = self._signed()
            value = value * other if sign == "*" else value / other if sign == "/" else value // other
        return value

    def _signed(self) -> float:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise ValueError(f"is nested over {MOST_DEPTH} deep")
        value = -self._signed() if self._sign("-") else self._power()
        self.depth -= 1
        return value

    def _power(self) -> float:
        value = self._atom()
        return float(value) ** self._signed() if self._sign("**") else value  # of floats: overflows, never grows

    def _atom(self) -> float:
        token = self.tokens.pop(0)
        if token.kind == "number":
            return token.number
        if token.kind == "name" and token.text in FUNCTIONS:
            return self._called(FUNCTIONS[token.text])
        if token.kind == "name":
            return self.known(token.text)
        if token.text == "(":
            value = self._sum()
            self._take("sign", ")")
            return value
        raise ValueError(f"a number, a field or a bracket is missing before '{token.text}'")

    def _called(self, function: Callable[..., float]) -> float:
        self._take("sign", "(")
        given = [self._sum()]
        while self._sign(","):
            given.append(self._sum())
        self._take("sign", ")")
        if function in (min, max):
            return function(given)
        if len(given) > 1:
            raise ValueError("only min and max have more than one argument")
        return function(*given)

    def _sign(self, *wanted: str) -> str | None:
        token = self.tokens[0]
        if token.kind == "sign" and token.text in wanted:
            return self.tokens.pop(0).text
        return None

    def _take(self, kind: str, text: str) -> None:
        token = self.tokens[0]
        if token.kind != kind or (text and token.text != text):
            raise ValueError(f"'{text or 'an operator'}' is missing before '{token.text}'")
        if kind != "end":
            self.tokens.pop(0)
