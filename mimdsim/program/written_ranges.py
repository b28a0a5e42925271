"""Which entries and elements of a variable have been written so far as a program is followed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mimdsim.program.codelet import now_shift
from mimdsim.program.program import Program
from mimdsim.program.records import Superstep, Variable
from mimdsim.program.vertex_boxes import describe_box


@dataclass(kw_only=True, eq=False)
class Held:
    """What has been written of a variable: complete entries, and a mask of the elements of partial ones.

    timed: the first axis counts entries that some vertex takes one at a time. loaded: it is loaded with values once, so
    elements that are changed must not be read before that (`leant` on), as a second run would find them changed.
    """

    variable: Variable
    timed: bool
    whole: np.ndarray
    masks: dict[int, np.ndarray] = field(default_factory=dict)
    told: bool = False
    loaded: bool = False
    writers: tuple[str, ...] = ()  # supersteps, in program order
    source: str = ""  # the variable from which a copy brought unwritten elements here
    leant: dict[int, np.ndarray] = field(default_factory=dict)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return self.variable.shape[1:] if self.timed else self.variable.shape

    @cached_property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def entries(self, shift: int | None, t: int) -> range:
        """The entries that "@t" and a shift name in a timestep (None: all), without those before the first."""
        if not self.timed or shift is None:
            return range(len(self.whole))
        entry = self.variable.entry(t, shift)
        return range(entry, entry + 1) if entry >= 0 else range(0)

    def forget(self) -> None:
        """Treat everything as written from now on."""
        self.whole[:], self.told = True, True

    def written(self, entry: int) -> np.ndarray:
        """bool[elements]"""
        return np.ones(self.size, bool) if self.whole[entry] else self.masks.get(entry, np.zeros(self.size, bool))

    def add(self, entry: int, mask: np.ndarray | None) -> None:
        """Mark elements as written; None: all."""
        mask = None if mask is None or self.whole[entry] else mask | self.written(entry)
        if mask is None or mask.all():
            self.whole[entry] = True
            self.masks.pop(entry, None)
        else:
            self.masks[entry] = mask

    def advice(self, reader: str) -> str:
        """Which other supersteps write it, and what to do."""
        writers = [name for name in self.writers if name != reader]
        known = ""
        if self.source:
            known = f"; a copy brings it from '{self.source}', where nothing wrote it"
        elif writers:
            known = f"; superstep '{writers[0]}' writes {'others of it' if self.masks else 'it later'}"
        return f"{known}; write it in an earlier superstep, let the host give it (inputs) or load it (values)"

    def lean(self, entry: int, lacking: np.ndarray) -> None:
        """Note that elements are read with their loaded values."""
        self.leant[entry] = self.leant[entry] | lacking if entry in self.leant else lacking

    def is_leant(self, entry: int, touched: np.ndarray | None) -> bool:
        """Whether any touched element (None: all) has been read with its loaded value."""
        leant = self.leant.get(entry)
        return leant is not None and bool((leant if touched is None else leant & touched).any())

    def describe(self, entry: int, element: int) -> str:
        """`dw[3, 7]`, with the entry where there is one."""
        where = [int(index) for index in np.unravel_index(element, self.shape)]
        where = [entry, *where] if self.timed else where
        return describe_box(self.variable.name, np.array([[index, index + 1] for index in where]))


def held_variables(program: Program) -> dict[str, Held]:
    """One for every variable that is not defined from the start, or not for every run."""
    lasting = (name for name, one in program.variables.items() if one.values is not None and one.persistent)
    given = {*program.inputs.values(), *lasting}
    timed: set[str] = set()
    writers: dict[str, dict[str, None]] = {}
    for superstep, _, _ in program.supersteps():
        for name in written_by(superstep):
            writers.setdefault(name, {})[superstep.name] = None
        for table in superstep.tables:
            timed |= {table.operands[item.name] for item in table.codelet.fields if now_shift(item.box[0]) is not None}
        for copy in superstep.copies:
            timed |= {copy.source} if copy.source_shift is not None else set()
            timed |= {copy.target} if copy.target_shift is not None else set()
    return {
        name: Held(
            variable=variable,
            timed=name in timed,  # an empty variable lacks no elements
            whole=np.full(variable.shape[0] if name in timed else 1, 0 in variable.shape),
            loaded=variable.values is not None,
            writers=tuple(writers.get(name, ())),
        )
        for name, variable in program.variables.items()
        if name not in given
    }


def written_by(superstep: Superstep) -> list[str]:
    """Variables that a superstep writes."""
    names = [copy.target for copy in superstep.copies]
    for table in superstep.tables:
        names += [table.operands[item.name] for item in table.codelet.fields if item.writes and table.vertices]
    return list(dict.fromkeys(names))
