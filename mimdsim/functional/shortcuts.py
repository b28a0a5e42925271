"""Shortcuts that a program brings, as calls in place of its tables; one that does not apply is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from mimdsim.functional.calls import Call, Turn
from mimdsim.functional.stages import Heavy, Lying
from mimdsim.functional.strips import Strips
from mimdsim.functional.uses import Use, Uses
from mimdsim.numerics.arrays.rows import plain
from mimdsim.program import Shortcut


class Memory(Protocol):
    """What a shortcut needs of an executor."""

    arrays: dict[str, np.ndarray]

    def share(self, count: int, work: Callable[[int, int], None]) -> None:
        """`work(first, last)` on shares of 0..count-1."""


@dataclass(kw_only=True, eq=False)
class Instead:
    """Calls in place of tables, by the table's id (None: nothing), with the variables they read and write, those
    that they write wholly, and what makes them for many turns at once; calls before a repeat, by the repeat's id.

    strips: variables that are kept turn by turn; from_strips: what lets the call in place of a table read them there;
    lying: variables that are in strips alone.
    """

    calls: dict[int, Call | None] = field(default_factory=dict)
    uses: dict[int, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    fills: dict[int, frozenset[str]] = field(default_factory=dict)
    heavy: dict[int, Heavy] = field(default_factory=dict)
    strips: dict[str, Strips] = field(default_factory=dict)
    from_strips: dict[int, Callable[[Strips], None]] = field(default_factory=dict)
    lying: dict[str, Lying] = field(default_factory=dict)
    before: dict[int, list[Turn]] = field(default_factory=dict)


def uses_of(uses: Uses, shortcut: Shortcut, computes: tuple[Callable[..., None], ...]) -> list[Use] | None:
    """The uses that are the shortcut's tables, in order; None where the shortcut must not be taken.

    Every table must be in the program once, computed by one of `computes`, all in one phase; only these tables may use
    the variables left unwritten.
    """
    found = [[use for use in uses.all if use.item is table] for table in shortcut.tables]
    if any(len(each) != 1 for each in found):
        return None
    known = [each[0] for each in found]
    ours = {id(use) for use in known}
    if any(plain(table.codelet.compute) not in computes for table in shortcut.tables):
        return None
    if len({use.superstep.phase for use in known}) != 1:
        return None
    if any(name in uses.outside or {id(use) for use in uses.of[name]} - ours for name in shortcut.unwritten):
        return None
    return known


def undisturbed(uses: Uses, known: list[Use]) -> bool:
    """Whether nothing else writes what these uses touch, from the first to the last of them, all in one repeat."""
    first, last = known[0], known[-1]
    ours = {id(use) for use in known}
    if first.repeat is None or any(use.repeat is not first.repeat for use in known):
        return False
    return not any(
        first.place <= use.place <= last.place and id(use) not in ours
        for name in set().union(*(use.reads | use.writes for use in known))
        for use in uses.written_in(name, first.repeat)
    )
