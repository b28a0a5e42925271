"""Whether everything that is read was written before, element by element, in the order in which a program runs.

Tile memory holds nothing of use at first: what the host gives (`Program.inputs`), what is loaded (`Variable.values`)
and what a superstep has written is defined, anything else is not. The program is walked turn by turn; of every variable
the elements written so far are kept, apart for every entry of a sequence that "@t" takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mimdsim.numerics import pieces
from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.problems import Problem, at_large, of_vertex
from mimdsim.program.records import Copy, Program, Superstep, Variable, VertexTable
from mimdsim.program.rows import bounds_of, boxes_of, describe_box

READ_RULE = "what is read was written"
OUTPUT_RULE = "outputs are written whole"
STALE_RULE = "loaded values stay"


def check_written(program: Program) -> list[Problem]:
    """The first read of every variable that finds elements nobody wrote, and outputs that are not written whole.

    Expects a program that keeps the other rules.
    """
    held = _held(program)
    left = {id(step): _accesses(program, step, held) for step, _, _ in program.supersteps()}
    problems: list[Problem] = []
    for superstep, t in program.turns():
        for copy in superstep.copies:
            _hand_on(copy, held, t)
        reads, writes = left[id(superstep)]
        if not reads and not writes:
            continue
        for read in reads:
            problem = read.check(superstep, t)
            if problem is not None:
                problems.append(problem)
                read.held.forget()  # once is enough
        for write in writes:
            problem = write.note(superstep, t)
            if problem is not None:
                problems.append(problem)
                write.held.forget()
        left[id(superstep)] = [one for one in reads if one.may_matter], [one for one in writes if one.may_matter]
    return problems + _outputs(program, held)


@dataclass(kw_only=True, eq=False)
class _Held:
    """What is written of a variable: entries that are whole, and a mask of the elements of those that are in part.

    timed: the first axis counts entries, of which some vertex takes one at a time. loaded: it is loaded with values
    once, and what of it is changed must not be read before (`leant` on), as a second run would find it changed.
    """

    variable: Variable
    timed: bool
    whole: np.ndarray
    masks: dict[int, np.ndarray] = field(default_factory=dict)
    told: bool = False
    loaded: bool = False
    leant: dict[int, np.ndarray] = field(default_factory=dict)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return self.variable.shape[1:] if self.timed else self.variable.shape

    @cached_property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def forget(self) -> None:
        """Take everything for written from now on."""
        self.whole[:], self.told = True, True

    def written(self, entry: int) -> np.ndarray:
        """bool[elements]"""
        return np.ones(self.size, bool) if self.whole[entry] else self.masks.get(entry, np.zeros(self.size, bool))

    def add(self, entry: int, mask: np.ndarray | None) -> None:
        """Elements that are written too; None: all."""
        mask = None if mask is None or self.whole[entry] else mask | self.written(entry)
        if mask is None or mask.all():
            self.whole[entry] = True
            self.masks.pop(entry, None)
        else:
            self.masks[entry] = mask

    def describe(self, entry: int, element: int) -> str:
        """`dw[3, 7]`, with the entry where there is one."""
        where = [int(index) for index in np.unravel_index(element, self.shape)]
        where = [entry, *where] if self.timed else where
        return describe_box(self.variable.name, np.array([[index, index + 1] for index in where]))


@dataclass(kw_only=True, eq=False)
class _Access:
    """What a field of a table touches of a variable; shift None: all entries.

    seen: the entries it has touched; as nothing is ever unwritten, each is looked at once.
    """

    held: _Held
    shift: int | None
    item: Field
    table: VertexTable
    seen: set[int] = field(default_factory=set)

    @property
    def may_matter(self) -> bool:
        """Whether later turns may show anything new."""
        return (self.shift is not None or not self.seen) and not self.held.whole.all()

    def check(self, superstep: Superstep, t: int) -> Problem | None:
        """What it reads that nobody wrote."""
        for entry in self._fresh(t):
            touched, lacking = self._touched(entry), ~self.held.written(entry)
            lacking = lacking if touched is None else lacking & touched
            if self.held.loaded:
                self.held.leant[entry] = self.held.leant.get(entry, False) | lacking
            elif lacking.any():
                return self._problem(superstep, t, entry, lacking)
        return None

    def note(self, superstep: Superstep, t: int) -> Problem | None:
        """That it is written; what is wrong where a loaded value that was read is changed."""
        for entry in self._fresh(t):
            touched, leant = self._touched(entry), self.held.leant.get(entry)
            if leant is not None and (leant if touched is None else leant & touched).any():
                name = self.held.variable.name
                text = (
                    f"changes '{name}', which is loaded with values once and has been read: a second run would begin "
                    "with what the first one left; write its first values in a superstep, or make it persistent if it "
                    "is to be kept"
                )
                return of_vertex(STALE_RULE, superstep, self.table, 0, text)
            self.held.add(entry, touched)
        return None

    def _fresh(self, t: int) -> Iterator[int]:
        for entry in _entries(self.held, self.shift, t):
            if not self.held.whole[entry] and entry not in self.seen:
                self.seen.add(entry)
                yield entry

    @cached_property
    def _boxes(self) -> np.ndarray:
        return boxes_of(self.table, self.item, self.held.variable)

    def _of_entry(self, entry: int) -> tuple[np.ndarray, np.ndarray]:
        """(rows, boxes) that touch some of an entry."""
        boxes, rows = self._boxes, np.arange(len(self._boxes))
        if self.held.timed and self.shift is None:
            rows = np.flatnonzero((boxes[:, 0, 0] <= entry) & (entry < boxes[:, 0, 1]))
            boxes = boxes[rows, 1:]
        some = (boxes[:, :, 1] > boxes[:, :, 0]).all(axis=1)
        return rows[some], boxes[some]

    def _touched(self, entry: int) -> np.ndarray | None:
        """bool[elements]: which of an entry it touches; None: all."""
        return self._alike if self.shift is not None else self._marked(self._of_entry(entry)[1])

    @cached_property
    def _alike(self) -> np.ndarray | None:
        """Of every entry that "@t" takes."""
        return self._marked(self._of_entry(0)[1])

    def _marked(self, boxes: np.ndarray) -> np.ndarray | None:
        size = self.held.size
        if self.item.writes and np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1, dtype=np.int64).sum() == size:
            return None  # as what is written in a superstep does not meet
        _, start, stop = pieces.element_runs(bounds_of(boxes), np.array(self.held.shape, np.int64))
        edges = np.bincount(start, minlength=size + 1) - np.bincount(stop, minlength=size + 1)
        marked = edges.cumsum()[:-1] > 0
        return None if marked.all() else marked

    def _problem(self, superstep: Superstep, t: int, entry: int, lacking: np.ndarray) -> Problem:
        """Of the first vertex that reads some of what is lacking."""
        rows, boxes = self._of_entry(entry)
        of, start, stop = pieces.element_runs(bounds_of(boxes), np.array(self.held.shape, np.int64))
        before = np.concatenate([[0], np.cumsum(lacking)])
        run = int(np.flatnonzero(before[stop] > before[start])[0])
        element = int(start[run]) + int(np.argmax(lacking[start[run] : stop[run]]))
        text = (
            f"reads {self.held.describe(entry, element)} in timestep {t}, which nothing has written before; "
            "write it in an earlier superstep, let the host give it (inputs) or load it (values)"
        )
        return of_vertex(READ_RULE, superstep, self.table, int(rows[of[run]]), text)


def _entries(held: _Held, shift: int | None, t: int) -> range:
    """The entries that "@t" and a shift name in a timestep (None: all); what lies before the first is never written."""
    if not held.timed or shift is None:
        return range(len(held.whole))
    entry = held.variable.entry(t, shift)
    return range(entry, entry + 1) if entry >= 0 else range(0)


def _held(program: Program) -> dict[str, _Held]:
    """Of every variable that is not defined from the start, or not for every run."""
    lasting = (name for name, one in program.variables.items() if one.values is not None and one.persistent)
    given = {*program.inputs.values(), *lasting}
    timed: set[str] = set()
    for superstep, _, _ in program.supersteps():
        for table in superstep.tables:
            timed |= {table.operands[item.name] for item in table.codelet.fields if now_shift(item.box[0]) is not None}
        for copy in superstep.copies:
            timed |= {copy.source} if copy.source_shift is not None else set()
            timed |= {copy.target} if copy.target_shift is not None else set()
    return {
        name: _Held(
            variable=variable,
            timed=name in timed,  # what has no elements lacks none
            whole=np.full(variable.shape[0] if name in timed else 1, 0 in variable.shape),
            loaded=variable.values is not None,
        )
        for name, variable in program.variables.items()
        if name not in given
    }


def _accesses(program: Program, superstep: Superstep, held: dict[str, _Held]) -> tuple[list[_Access], list[_Access]]:
    """What the vertices of a superstep read, and what they write, of variables that are not defined from the start.

    What is read and written is asked about once: when it is told that it was written before, writing adds nothing.
    """
    reads: list[_Access] = []
    writes: list[_Access] = []
    for table in superstep.tables:
        for item in table.codelet.fields if table.vertices else ():
            name = table.operands[item.name]
            if name in held:
                access = _Access(held=held[name], shift=now_shift(item.box[0]), item=item, table=table)
                if item.reads and not item.in_part:
                    reads.append(access)
                    access = replace(access, seen=set())
                if item.writes and (held[name].loaded or not item.reads or item.in_part):
                    writes.append(access)
    return reads, writes


def _hand_on(copy: Copy, held: dict[str, _Held], t: int) -> None:
    """A copy moves what is there, written or not: its target is written where its source is."""
    target, source = held.get(copy.target), held.get(copy.source)
    there = range(0) if target is None else _entries(target, copy.target_shift, t)
    if target is None or target.whole[there.start : there.stop].all():
        return
    if source is None or source.loaded:
        target.whole[there.start : there.stop] = True
        return
    here = _entries(source, copy.source_shift, t)
    if copy.source_shift is not None and not len(here):
        target.whole[there.start : there.stop] = True  # before the first timestep everything is zero
        return
    if source.whole[here.start : here.stop].all():
        target.whole[there.start : there.stop] = True
        return
    written = np.concatenate([source.written(entry) for entry in here])
    for entry, mask in zip(there, np.split(written, max(len(there), 1)), strict=False):
        target.add(entry, mask)


def _outputs(program: Program, held: dict[str, _Held]) -> list[Problem]:
    """Outputs of which some elements were never written."""
    problems = []
    for value, name in program.outputs.items():
        if name not in held or held[name].told or held[name].loaded or held[name].whole.all():
            continue
        one = held[name]
        lacking = np.flatnonzero(~one.whole)
        masks = [one.masks.get(int(entry)) for entry in lacking]
        missing = sum(one.size if mask is None else int((~mask).sum()) for mask in masks)
        first = 0 if masks[0] is None else int(np.flatnonzero(~masks[0])[0])
        text = (
            f"output '{value}': {missing} of {int(np.prod(one.variable.shape))} elements of '{name}' are written by "
            f"nothing, the first is {one.describe(int(lacking[0]), first)}; let a vertex write them, or make '{name}' "
            "an input of the program too"
        )
        problems.append(at_large(OUTPUT_RULE, text))
    return problems
