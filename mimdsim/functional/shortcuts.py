"""Shortcuts that a program brings, as calls in place of its tables; one that does not apply is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from mimdsim.functional.calls import Call, Turn
from mimdsim.functional.lists import Padded
from mimdsim.functional.neurons import Chosen, Neurons
from mimdsim.functional.shares import Shares
from mimdsim.functional.stages import Heavy
from mimdsim.functional.uses import Use, Uses
from mimdsim.numerics.arrays.rows import plain
from mimdsim.program import Shortcut


class Memory(Protocol):
    """What a shortcut needs of an executor."""

    arrays: dict[str, np.ndarray]
    share: Shares


class Follower(Protocol):
    """What takes gradients of the currents of all turns of a repeat, strip by strip of WIDTH neighbouring neurons.

    lists: the names of the ids and counts whose rows or columns it works on; span: strips that it reads at once.
    """

    lists: tuple[str, str]
    span: int

    def begin(self, lists: Padded, strips: np.ndarray) -> None:
        """Their lists of all turns, and where strips will be: [some, turns * batch, WIDTH], those after the last one
        from the first on again."""

    def take(self, first: int, last: int) -> None:
        """Strips first..last-1 are made; `span - 1` before are still there."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Adjoint:
    """An adjoint in one pass: its tables; the variables q, dv, v, g, ids, counts, gain, decay and the potentials of the
    timestep before; threshold and slope of the surrogate, and the threshold above which potentials mask it."""

    known: list[Use]
    names: tuple[str, ...]
    constants: tuple[np.float32, np.float32, np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Substitute:
    """A call in place of a table, the variables that it reads and writes, and those that it writes wholly; heavy: what
    makes it for many turns at once; adjoint: what it is, if it is one."""

    call: Call
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    fills: frozenset[str] = frozenset()
    heavy: Heavy | None = None
    adjoint: Adjoint | None = None


@dataclass(kw_only=True, eq=False)
class Instead:
    """What stands in for tables, by the table's id (None: nothing), and calls before a repeat, by the repeat's id.

    By the id of a table too. followers: what can take gradients of the currents, which it reads, strip by strip;
    chosen: what is listed of the potentials that it makes, and the id of the table that lists them.

    kept: by the sequence of their potentials, neurons that keep what an adjoint needs of them; unread: those from which
    one takes it, after which only an observer reads potentials.
    """

    tables: dict[int, Substitute | None] = field(default_factory=dict)
    before: dict[int, list[Turn]] = field(default_factory=dict)
    followers: dict[int, Follower] = field(default_factory=dict)
    chosen: dict[int, tuple[int, Chosen]] = field(default_factory=dict)
    kept: dict[str, Neurons] = field(default_factory=dict)
    unread: list[Neurons] = field(default_factory=list)


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
