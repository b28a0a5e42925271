"""Whether everything that is read was written before, element by element, in the order in which a program runs.

Tile memory holds nothing of use at first: what the host gives (`Program.inputs`), what is loaded (`Variable.values`)
and what a superstep has written is defined, anything else is not. The program is walked turn by turn; of every variable
the elements written so far are kept, apart for every entry of a sequence that "@t" takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from mimdsim.numerics import pieces
from mimdsim.program.codelet import now_shift
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
    accesses = {id(step): _accesses(program, step, held) for step, _, _ in program.supersteps()}
    problems: list[Problem] = []
    for superstep, t in program.turns():
        for copy in superstep.copies:
            _hand_on(copy, held, t)
        reads, writes = accesses[id(superstep)]
        for read in reads:
            problem = read.check(superstep, t)
            if problem is not None:
                problems.append(problem)
                read.held.forget()  # once is enough
        for write in writes:
            write.note(t)
    return problems + _outputs(program, held) + _stale(program)


@dataclass(kw_only=True, eq=False)
class _Held:
    """What is written of a variable: entries that are whole, and a mask of the elements of those that are in part.

    timed: the first axis counts entries, of which some vertex takes one at a time.
    """

    variable: Variable
    timed: bool
    whole: np.ndarray
    masks: dict[int, np.ndarray] = field(default_factory=dict)
    told: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.variable.shape[1:] if self.timed else self.variable.shape

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def forget(self) -> None:
        """Take everything for written from now on."""
        self.whole[:], self.told = True, True

    def missing(self, entry: int, boxes: np.ndarray) -> tuple[int, int] | None:
        """(row, element) of the first element of some boxes that nobody wrote."""
        of, start, stop = pieces.element_runs(bounds_of(boxes), np.array(self.shape, np.int64))
        written = np.concatenate([[0], np.cumsum(self.written(entry))])
        lacking = np.flatnonzero(written[stop] - written[start] < stop - start)
        if not len(lacking):
            return None
        run = int(lacking[0])
        found = int(np.flatnonzero(np.diff(written[start[run] : stop[run] + 1]) == 0)[0])
        return int(of[run]), int(start[run]) + found

    def mark(self, entry: int, boxes: np.ndarray) -> None:
        _, start, stop = pieces.element_runs(bounds_of(boxes), np.array(self.shape, np.int64))
        edges = np.bincount(start, minlength=self.size + 1) - np.bincount(stop, minlength=self.size + 1)
        self.add(entry, edges.cumsum()[:-1] > 0)

    def written(self, entry: int) -> np.ndarray:
        """bool[elements]"""
        return np.ones(self.size, bool) if self.whole[entry] else self.masks.get(entry, np.zeros(self.size, bool))

    def add(self, entry: int, mask: np.ndarray) -> None:
        """Elements that are written too."""
        if self.whole[entry] or not mask.any():
            return
        mask = mask | self.written(entry)
        self.whole[entry] = mask.all()
        if self.whole[entry]:
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
    """What a field of a table touches of a variable; shift None: all entries."""

    held: _Held
    shift: int | None
    boxes: np.ndarray
    table: VertexTable
    done: set[int] = field(default_factory=set)

    def entries(self, t: int) -> range:
        """Those it touches in a timestep."""
        return _entries(self.held, self.shift, t)

    def of_entry(self, entry: int) -> tuple[np.ndarray, np.ndarray]:
        """(rows, boxes) that touch some of an entry."""
        boxes, rows = self.boxes, np.arange(len(self.boxes))
        if self.held.timed and self.shift is None:
            rows = np.flatnonzero((boxes[:, 0, 0] <= entry) & (entry < boxes[:, 0, 1]))
            boxes = boxes[rows, 1:]
        some = (boxes[:, :, 1] > boxes[:, :, 0]).all(axis=1)
        return (rows, boxes) if some.all() else (rows[some], boxes[some])

    def check(self, superstep: Superstep, t: int) -> Problem | None:
        """What is read that nobody wrote; nothing where it was found written before, as nothing is ever unwritten."""
        for entry in self.entries(t):
            if self.held.whole[entry] or entry in self.done:
                continue
            rows, boxes = self.of_entry(entry)
            found = self.held.missing(entry, boxes) if len(rows) else None
            if found is not None:
                return self._problem(superstep, t, entry, int(rows[found[0]]), found[1])
            self.done.add(entry)
        return None

    def _problem(self, superstep: Superstep, t: int, entry: int, row: int, element: int) -> Problem:
        text = (
            f"reads {self.held.describe(entry, element)} in timestep {t}, which nothing has written before; write it "
            "in an earlier superstep, let the host give it (inputs) or load it (values)"
        )
        return of_vertex(READ_RULE, superstep, self.table, row, text)


@dataclass(kw_only=True, eq=False)
class _Writes:
    """All that a superstep writes of a variable at one shift; boxes of one superstep do not meet."""

    accesses: list[_Access]
    done: set[int] = field(default_factory=set)

    def note(self, t: int) -> None:
        held = self.accesses[0].held
        for entry in self.accesses[0].entries(t):
            if held.whole[entry] or entry in self.done:
                continue
            self.done.add(entry)
            parts = [access.of_entry(entry)[1] for access in self.accesses]
            boxes = np.concatenate(parts) if len(parts) > 1 else parts[0]
            if int(np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1, dtype=np.int64).sum()) >= held.size:
                held.whole[entry] = True
                held.masks.pop(entry, None)
            elif len(boxes):
                held.mark(entry, boxes)


def _entries(held: _Held, shift: int | None, t: int) -> range:
    """The entries that "@t" and a shift name in a timestep (None: all); what lies before the first is never written."""
    if not held.timed or shift is None:
        return range(len(held.whole))
    entry = held.variable.entry(t, shift)
    return range(entry, entry + 1) if entry >= 0 else range(0)


def _held(program: Program) -> dict[str, _Held]:
    """Of every variable that is not defined from the start."""
    given = {*program.inputs.values(), *(name for name, one in program.variables.items() if one.values is not None)}
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
        )
        for name, variable in program.variables.items()
        if name not in given
    }


def _accesses(program: Program, superstep: Superstep, held: dict[str, _Held]) -> tuple[list[_Access], list[_Writes]]:
    """What the vertices of a superstep read and write of variables that are not defined from the start."""
    reads: list[_Access] = []
    writes: dict[tuple[str, int | None], list[_Access]] = {}

    def add(access: _Access, *, read: bool, write: bool) -> None:
        if read:
            reads.append(access)
        if write:
            writes.setdefault((access.held.variable.name, access.shift), []).append(access)

    for table in superstep.tables:
        for item in table.codelet.fields if table.vertices else ():
            name = table.operands[item.name]
            if name in held:
                boxes = boxes_of(table, item, program.variables[name])
                access = _Access(held=held[name], shift=now_shift(item.box[0]), boxes=boxes, table=table)
                add(access, read=item.reads and not item.in_part, write=item.writes)
    return reads, [_Writes(accesses=group) for group in writes.values()]


def _hand_on(copy: Copy, held: dict[str, _Held], t: int) -> None:
    """A copy moves what is there, written or not: its target is written where its source is."""
    target, source = held.get(copy.target), held.get(copy.source)
    if target is None:
        return
    there = _entries(target, copy.target_shift, t)
    if source is None:
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
        if name not in held or held[name].told or held[name].whole.all():
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


def _stale(program: Program) -> list[Problem]:
    """Variables that are loaded once and then changed, so that a second run begins with what the first one left."""
    problems = []
    given = set(program.inputs.values())
    for superstep, _, _ in program.supersteps():
        written = chain(
            ((None, copy.target) for copy in superstep.copies),
            (
                (table, table.operands[item.name])
                for table in superstep.tables
                for item in table.codelet.fields
                if item.writes and table.vertices
            ),
        )
        for table, name in written:
            variable = program.variables[name]
            if variable.values is None or variable.persistent or name in given:
                continue
            given.add(name)
            text = (
                f"changes '{name}', which is loaded with values once: a second run would begin with what the first one "
                "left; write its first values in a superstep, or make it persistent if it is to be kept"
            )
            problems.append(
                at_large(STALE_RULE, f"superstep '{superstep.name}': {text}", superstep.name)
                if table is None
                else of_vertex(STALE_RULE, superstep, table, 0, text)
            )
    return problems
