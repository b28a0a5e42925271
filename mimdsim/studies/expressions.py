"""Arithmetic in study files: "900 MB / chip.tiles", read by a small parser of its own; nothing is evaluated by Python.

Numbers may carry a unit (`base/units.py`; here also kB, MB, GB and TB, powers of 1000), names are fields by dotted key,
and there are + - * / // ** ( ) and the functions of `FUNCTIONS`. Units are followed through all of them: bytes and
seconds are not added up, and what a field gets has its unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mimdsim.base.errors import shortened
from mimdsim.base.units import UNITS, Powers, dimension, multiply_units, powers_of, show_powers

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
_KNOWN = UNITS | {"bytes": UNITS["bytes"] | {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}}
FACTORS = {unit: (factor, powers_of(name)) for name, units in _KNOWN.items() for unit, factor in units.items()}
_UNIT = "|".join(map(re.escape, sorted(FACTORS, key=len, reverse=True)))
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)(?:\s*(?P<unit>(?:{_UNIT})(?![\w.])|[A-Za-z]\w*))?"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[\w-]+)*)|(?P<sign>\*\*|//|[-+*/(),]))"
)


class _Quantity(NamedTuple):
    """A number and the powers of the units that it is in."""

    value: float
    powers: Powers = {}  # noqa: RUF012 - never written


ZERO = _Quantity(0.0)


@dataclass(frozen=True)
class _Token:
    kind: str  # number, name, sign or end
    text: str
    number: _Quantity = ZERO


def evaluate(text: str, names: Mapping[str, float] | Callable[[str], float], field: str = "") -> float:
    """The value of an expression; raises ValueError that says what is wrong with it, also for a division by zero.

    field: what gets the value, whose unit it must have; '': units are not checked.
    """
    known = names if callable(names) else names.__getitem__
    try:
        value, powers = _Parser(text, known, checked=bool(field)).whole()
        wanted = powers_of(field.rsplit(".", 1)[-1])
        if field and value and powers != wanted:
            if not powers:
                units = ", ".join(UNITS[dimension(field) or ""])
                raise ValueError(f"is a plain number, and {field} is in {show_powers(wanted)}; write units: {units}")
            cycles = "; multiply by chip.clock_hz" if powers == powers_of("seconds") and not wanted else ""
            raise ValueError(f"is in {show_powers(powers)}, and {field} is {_in(wanted)}{cycles}")
        if isinstance(value, complex) or not math.isfinite(value):
            raise ValueError("is not a finite number")
    except OverflowError:
        raise ValueError(f"'{shortened(text)}': grows beyond all numbers") from None
    except (ZeroDivisionError, ValueError) as problem:
        raise ValueError(f"'{shortened(text)}': {problem}") from None
    return float(value)


def _in(powers: Powers) -> str:
    return f"in {show_powers(powers)}" if powers else "a plain number"


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
            factor, powers = FACTORS.get(unit, (1.0, {}))
            yield _Token("number", match["number"], _Quantity(float(match["number"]) * factor, powers))
        else:
            yield _Token("name" if match["name"] else "sign", match["name"] or match["sign"])
    yield _Token("end", "its end")


class _Parser:
    """Recursive descent over the tokens; `**` binds tightest and to the right, as in Python."""

    def __init__(self, text: str, known: Callable[[str], float], *, checked: bool):
        self.tokens, self.known, self.checked, self.depth = list(_tokens(text)), known, checked, 0

    def whole(self) -> _Quantity:
        value = self._sum()
        self._take("end", "")
        return value

    def _sum(self) -> _Quantity:
        value = self._product()
        while (sign := self._sign("+", "-")) is not None:
            other = self._product()
            powers = self._alike(f"'{sign}'", value, other)
            value = _Quantity(value.value + other.value if sign == "+" else value.value - other.value, powers)
        return value

    def _product(self) -> _Quantity:
        value = self._signed()
        while (sign := self._sign("*", "//", "/")) is not None:
            one, other = value.value, self._signed()
            number = one * other.value if sign == "*" else one / other.value if sign == "/" else one // other.value
            value = _Quantity(number, multiply_units(value.powers, other.powers, 1 if sign == "*" else -1))
        return value

    def _signed(self) -> _Quantity:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise ValueError(f"is nested over {MOST_DEPTH} deep")
        if self._sign("-"):
            value = self._signed()
            value = _Quantity(-value.value, value.powers)
        else:
            value = self._power()
        self.depth -= 1
        return value

    def _power(self) -> _Quantity:
        value = self._atom()
        if not self._sign("**"):
            return value
        times = self._signed()
        self._plain("an exponent", times)
        # of floats: overflows, never grows
        return _Quantity(float(value.value) ** times.value, multiply_units({}, value.powers, times.value))

    def _atom(self) -> _Quantity:
        token = self.tokens.pop(0)
        if token.kind == "number":
            return token.number
        if token.kind == "name" and token.text in FUNCTIONS:
            return self._called(token.text)
        if token.kind == "name":
            return _Quantity(self.known(token.text), powers_of(token.text.rsplit(".", 1)[-1]))
        if token.text == "(":
            value = self._sum()
            self._take("sign", ")")
            return value
        raise ValueError(f"a number, a field or a bracket is missing before '{token.text}'")

    def _called(self, name: str) -> _Quantity:
        self._take("sign", "(")
        given = [self._sum()]
        while self._sign(","):
            given.append(self._sum())
        self._take("sign", ")")
        numbers = [each.value for each in given]
        if name in ("min", "max"):
            return _Quantity(FUNCTIONS[name](numbers), self._alike(name, *given))
        if len(given) > 1:
            raise ValueError("only min and max have more than one argument")
        if name == "log2":
            self._plain("what log2 is taken of", *given)
        powers = multiply_units({}, given[0].powers, 0.5 if name == "sqrt" else 1)
        return _Quantity(FUNCTIONS[name](*numbers), powers)

    def _alike(self, what: str, *given: _Quantity) -> Powers:
        """The unit that all have; 0 has every unit."""
        units = [each.powers for each in given if each.value]
        other = next((powers for powers in units if powers != units[0]), None)
        if self.checked and other is not None:
            raise ValueError(f"{what} of what is {_in(units[0])} and what is {_in(other)}: both need the same unit")
        return units[0] if units else given[0].powers

    def _plain(self, what: str, given: _Quantity) -> None:
        if self.checked and given.powers:
            raise ValueError(f"{what} must be a plain number, and is in {show_powers(given.powers)}")

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
