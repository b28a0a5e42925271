"""Tables and copies ready to run: which variables they work on, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

At = Callable[[int], np.ndarray]  # an entry of a sequence, given the timestep
Turn = Callable[[int], None]  # what is done in a timestep


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """`run(t, *arrays)`, given the arrays of these variables; entries: places of arguments that are entries of
    sequences instead."""

    run: Callable[..., None]
    names: tuple[str, ...] = ()
    entries: Mapping[int, At] = field(default_factory=dict)

    def then(self, other: Call) -> Call:
        """Both, one after the other."""
        count = len(self.names)
        entries = {**self.entries, **{count + place: at for place, at in other.entries.items()}}

        def run(t: int, *arrays: np.ndarray) -> None:
            self.run(t, *arrays[:count])
            other.run(t, *arrays[count:])

        return Call(run=run, names=(*self.names, *other.names), entries=entries)

    def on(self, arrays: Mapping[str, np.ndarray]) -> Turn:
        """The call on arrays that stay where they are, given the timestep."""
        given, entries, run = [arrays[name] for name in self.names], tuple(self.entries.items()), self.run

        def turn(t: int) -> None:
            for place, at in entries:
                given[place] = at(t)
            run(t, *given)

        return turn
