"""What the instructions of a loop are, so that every core can price them: `Mix`.

Costs of codelets are counted in bundles of "colossus", where a division or an exponential takes three and everything
else one: a mix gives these bundles, and what another core takes for the same turn follows from its table
(`machine/codelet_costs.py`).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

NATIVE_SLOTS = {"divide": 3, "function": 3}  # bundles of an instruction of "colossus"; one of all other classes


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Instructions of a turn by class, as compiled: vectors in loops over vectors, else one element each.

    add: additions, differences, absolute values, conversions; compare: comparisons, selects, maxima; function:
    exponentials and the like; integer: addresses, counters and ids; branch: of a decision; loop: what closes a turn
    (one instruction that counts and branches), which hardware loops do not need.
    """

    load: float = 0
    store: float = 0
    add: float = 0
    multiply: float = 0
    compare: float = 0
    divide: float = 0
    function: float = 0
    integer: float = 0
    branch: float = 0
    loop: float = 0

    def items(self) -> tuple[tuple[str, float], ...]:
        return tuple(zip(CLASSES, astuple(self), strict=True))

    @property
    def bundles(self) -> float:
        """On "colossus", each instruction alone."""
        return sum(number * NATIVE_SLOTS.get(name, 1) for name, number in self.items())

    def __add__(self, other: Mix) -> Mix:
        return Mix(**{name: number + getattr(other, name) for name, number in self.items()})

    def __mul__(self, times: float) -> Mix:
        return Mix(**{name: number * times for name, number in self.items()})


CLASSES = tuple(one.name for one in fields(Mix))
