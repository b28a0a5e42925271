"""Whether everything that is read was written before, element by element, in the order in which a program runs.

Tile memory is undefined at first: what the host gives (`Program.inputs`), what is loaded (`Variable.values`) and what a
superstep has written is defined, anything else is not. The program is followed turn by turn; the elements written so
far are kept for every variable, and separately for every entry of a sequence that "@t" takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mimdsim.numerics.columns import exchange_fragments
from mimdsim.program.checks.scope import Access
from mimdsim.program.program import Program
from mimdsim.program.records import Copy, Problem, Superstep, Variable, problem_in
from mimdsim.program.vertex_boxes import bounds_of, boxes_of, by_rows, describe_element


@dataclass(kw_only=True, eq=False)
class DefinedElements:
    """What has been written of a variable: complete entries, and a mask of the elements of partial ones.

    timed: the first axis counts entries that some vertex takes one at a time. loaded: it is loaded with values once, so
    elements that are changed must not be read before that (`read_as_loaded`), as a second run would find them changed.
    """

    variable: Variable
    timed: bool
    whole: np.ndarray
    masks: dict[int, np.ndarray] = field(default_factory=dict)
    reported: bool = False
    loaded: bool = False
    writers: tuple[str, ...] = ()  # supersteps, in program order
    source: str = ""  # the variable from which a copy brought unwritten elements here
    read_as_loaded: dict[int, np.ndarray] = field(default_factory=dict)

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

    def stop_following(self) -> None:
        """Treat everything as written from now on."""
        self.whole[:], self.reported = True, True

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

    def note_loaded_read(self, entry: int, lacking: np.ndarray) -> None:
        """Note that elements are read with their loaded values."""
        self.read_as_loaded[entry] = self.read_as_loaded[entry] | lacking if entry in self.read_as_loaded else lacking

    def was_read_as_loaded(self, entry: int, touched: np.ndarray | None) -> bool:
        """Whether any touched element (None: all) has been read with its loaded value."""
        read = self.read_as_loaded.get(entry)
        return read is not None and bool((read if touched is None else read & touched).any())

    def describe(self, entry: int, element: int) -> str:
        """`dw[3, 7]`, with the entry where there is one."""
        where = [int(index) for index in np.unravel_index(element, self.shape)]
        return describe_element(self.variable.name, [entry, *where] if self.timed else where)


def _tracked_variables(program: Program) -> dict[str, DefinedElements]:
    """One for every variable that is not defined from the start, or not for every run."""
    lasting = (name for name, one in program.variables.items() if one.values is not None and one.persistent)
    given = {*program.inputs.values(), *lasting}
    timed: set[str] = set()
    writers: dict[str, dict[str, None]] = {}
    for superstep, _, _ in program.supersteps():
        for name in superstep.variables_written:
            writers.setdefault(name, {})[superstep.name] = None
        timed |= superstep.sequences
    return {
        name: DefinedElements(
            variable=variable,
            timed=name in timed,  # an empty variable lacks no elements
            whole=np.full(variable.shape[0] if name in timed else 1, 0 in variable.shape),
            loaded=variable.values is not None,
            writers=tuple(writers.get(name, ())),
        )
        for name, variable in program.variables.items()
        if name not in given
    }


READ_RULE = "what is read was written"
OUTPUT_RULE = "outputs are written whole"
STALE_RULE = "loaded values stay"
WRITER_RULE = "what is read is written by something"


def check_written(program: Program, _tiles: int) -> list[Problem]:
    """The first read of every variable with elements that were never written, and outputs that are not fully written.

    Expects a program that keeps the other rules.
    """
    held = _tracked_variables(program)
    left = {id(step): _followed_accesses(program, step, held) for step, _, _ in program.supersteps()}
    problems: list[Problem] = []
    for superstep, t in program.turns():
        for copy in superstep.copies:
            problems += _follow_copy(superstep, copy, held, t)
        reads, writes = left[id(superstep)]
        if not reads and not writes:
            continue
        for read in reads:
            problem = read.check(superstep, t)
            if problem is not None:
                problems.append(problem)
                read.held.stop_following()  # once is enough
        for write in writes:
            problem = write.note(superstep, t)
            if problem is not None:
                problems.append(problem)
                write.held.stop_following()
        left[id(superstep)] = [one for one in reads if one.may_matter], [one for one in writes if one.may_matter]
    return problems + _unwritten_outputs(program, held)


@dataclass(kw_only=True, eq=False)
class _FollowedAccess:
    """An access of a variable that is followed.

    seen: the entries it has touched; as written elements stay written, each is checked once.
    """

    held: DefinedElements
    access: Access
    seen: set[int] = field(default_factory=set)

    @property
    def may_matter(self) -> bool:
        """Whether later turns may reveal anything new."""
        return (self.access.shift is not None or not self.seen) and not self.held.whole.all()

    def check(self, superstep: Superstep, t: int) -> Problem | None:
        """Report an element that it reads but that was never written."""
        for entry in self._fresh(t):
            touched, lacking = self._touched(entry), ~self.held.written(entry)
            lacking = lacking if touched is None else lacking & touched
            if self.held.loaded:
                self.held.note_loaded_read(entry, lacking)
            elif lacking.any():
                return self._problem(superstep, t, entry, lacking)
        return None

    def note(self, superstep: Superstep, t: int) -> Problem | None:
        """Note what it writes; report a change to a loaded value that has been read."""
        for entry in self._fresh(t):
            touched = self._touched(entry)
            if self.held.was_read_as_loaded(entry, touched):
                return problem_in(superstep, STALE_RULE, _stale_value_text(self.held.variable.name), self.access.table)
            self.held.add(entry, touched)
        return None

    def _fresh(self, t: int) -> Iterator[int]:
        for entry in self.held.entries(self.access.shift, t):
            if not self.held.whole[entry] and entry not in self.seen:
                self.seen.add(entry)
                yield entry

    def _of_entry(self, entry: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(rows, boxes) that touch part of an entry, a part of the vertices after another."""
        for part, rows in by_rows(self.access.table):
            boxes = boxes_of(part, self.access.field, self.access.variable)
            if self.held.timed and self.access.shift is None:
                here = (boxes[:, 0, 0] <= entry) & (entry < boxes[:, 0, 1])
                rows, boxes = rows[here], boxes[here, 1:]
            some = (boxes[:, :, 1] > boxes[:, :, 0]).all(axis=1)
            yield (rows, boxes) if some.all() else (rows[some], boxes[some])

    def _touched(self, entry: int) -> np.ndarray | None:
        """bool[elements]: the elements of an entry that it touches; None: all."""
        return self._alike if self.access.shift is not None else self._marked(entry)

    @cached_property
    def _alike(self) -> np.ndarray | None:
        """The same for every entry that "@t" takes."""
        return self._marked(0)

    def _marked(self, entry: int) -> np.ndarray | None:
        size = self.held.size
        if self.access.field.writes:
            volumes = (
                np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1, dtype=np.int64) for _, boxes in self._of_entry(entry)
            )
            if sum(int(each.sum()) for each in volumes) == size:
                return None  # as writes in a superstep do not overlap
        edges, shape = np.zeros(size + 1, np.int64), np.array(self.held.shape, np.int64)
        for _, boxes in self._of_entry(entry):
            _, start, stop = exchange_fragments.element_runs(bounds_of(boxes), shape)
            np.add.at(edges, start, 1)
            np.subtract.at(edges, stop, 1)
        marked = np.cumsum(edges, out=edges)[:-1] > 0
        return None if marked.all() else marked

    def _problem(self, superstep: Superstep, t: int, entry: int, lacking: np.ndarray) -> Problem:
        """The problem of the first vertex that reads a lacking element."""
        parts = list(self._of_entry(entry))
        rows, boxes = (np.concatenate(each) for each in zip(*parts, strict=True))
        of, start, stop = exchange_fragments.element_runs(bounds_of(boxes), np.array(self.held.shape, np.int64))
        before = np.concatenate([[0], np.cumsum(lacking)])
        run = int(np.flatnonzero(before[stop] > before[start])[0])
        element = int(start[run]) + int(np.argmax(lacking[start[run] : stop[run]]))
        text = (
            f"reads {self.held.describe(entry, element)} in timestep {t}, which nothing has written before"
            f"{self.held.advice(superstep.name)}"
        )
        return problem_in(superstep, READ_RULE, text, self.access.table, int(rows[of[run]]))


def check_writers(program: Program, _tiles: int) -> list[Problem]:
    """Copies and partial reads (`Field.in_part`) of variables that nothing ever writes; other reads are followed."""
    problems = []
    held = _tracked_variables(program)
    for superstep, _, _ in program.supersteps():
        for copy in superstep.copies:
            if _is_never_written(held.get(copy.source)):
                held[copy.source].reported = True
                text = f"copies '{copy.source}' to '{copy.target}', which no superstep writes"
                problems.append(problem_in(superstep, WRITER_RULE, text))
        for table in superstep.tables:
            for item in table.codelet.fields:
                one = held.get(table.operands[item.name])
                if item.reads and item.in_part and table.vertices and one is not None and _is_never_written(one):
                    one.reported = True
                    text = f"reads '{one.variable.name}', which no superstep writes"
                    problems.append(problem_in(superstep, WRITER_RULE, text, table))
    return problems


def _is_never_written(one: DefinedElements | None) -> bool:
    return one is not None and not (one.writers or one.loaded or one.reported or one.whole.all())


def _followed_accesses(
    program: Program, superstep: Superstep, held: dict[str, DefinedElements]
) -> tuple[list[_FollowedAccess], list[_FollowedAccess]]:
    """What the vertices of a superstep read, and what they write, of variables that are not defined from the start.

    A field that reads and writes is checked only as a read: once all of it has been written, writing adds nothing.
    """
    reads: list[_FollowedAccess] = []
    writes: list[_FollowedAccess] = []
    for table in superstep.tables:
        for item in table.codelet.fields if table.vertices else ():
            name = table.operands[item.name]
            if name in held:
                access = _FollowedAccess(
                    held=held[name], access=Access(table=table, field=item, variable=held[name].variable)
                )
                if item.reads and (held[name].loaded or not item.in_part):
                    reads.append(access)
                    access = replace(access, seen=set())
                if item.writes and (held[name].loaded or not item.reads or item.in_part):
                    writes.append(access)
    return reads, writes


def _follow_copy(superstep: Superstep, copy: Copy, held: dict[str, DefinedElements], t: int) -> list[Problem]:
    """A copy moves its source, written or not: the target is written where the source is, and stays so."""
    target, source = held.get(copy.target), held.get(copy.source)
    there = range(0) if target is None else target.entries(copy.target_shift, t)
    here = range(0) if source is None else source.entries(copy.source_shift, t)
    if source is not None and source.loaded:
        for entry in here:
            source.note_loaded_read(entry, ~source.written(entry))
    if target is not None and any(target.was_read_as_loaded(entry, None) for entry in there) and not target.reported:
        target.stop_following()
        return [problem_in(superstep, STALE_RULE, _stale_value_text(copy.target))]
    # before the first timestep everything is zero
    if source is None or source.loaded or not len(here) or source.whole[here.start : here.stop].all():
        if target is not None:
            target.whole[there.start : there.stop] = True
        return []
    written = np.concatenate([source.written(entry) for entry in here])
    spoilt = ~written  # elements that were defined before
    if target is not None and not target.loaded:
        spoilt = spoilt & np.concatenate([target.written(entry) for entry in there])
    if spoilt.any():
        entry, element = divmod(int(np.argmax(spoilt)), source.size)
        what = source.describe(here.start + entry, element)
        text = f"copies {what} over '{copy.target}' in timestep {t}, which nothing has written before"
        text += source.advice(superstep.name)
        source.stop_following()
        return [problem_in(superstep, READ_RULE, text)]
    if target is not None:
        target.source = source.source or copy.source
        for entry, mask in zip(there, np.split(written, len(there)), strict=True):
            target.add(entry, mask)
    return []


def _stale_value_text(name: str) -> str:
    return (
        f"changes '{name}', which is loaded with values once and has been read: a second run would begin with what the "
        "first one left; write its first values in a superstep, or make it persistent if it is to be kept"
    )


def _unwritten_outputs(program: Program, held: dict[str, DefinedElements]) -> list[Problem]:
    """Outputs with elements that were never written."""
    problems = []
    for value, name in program.outputs.items():
        if name not in held or held[name].reported or held[name].loaded or held[name].whole.all():
            continue
        one = held[name]
        lacking = np.flatnonzero(~one.whole)
        masks = [one.masks.get(int(entry)) for entry in lacking]
        missing = sum(one.size if mask is None else int((~mask).sum()) for mask in masks)
        total = int(np.prod(one.variable.shape, dtype=np.int64))
        first = 0 if masks[0] is None else int(np.flatnonzero(~masks[0])[0])
        text = (
            f"output '{value}': {missing} of {total} elements of '{name}' are never "
            f"written, the first is {one.describe(int(lacking[0]), first)}"
            + (f"; superstep '{one.writers[-1]}' writes the others" if one.writers and missing < total else "")
            + (f"; a copy brings it from '{one.source}', where nothing wrote it" if one.source else "")
            + f"; let a vertex write them, or make '{name}' an input of the program too"
        )
        problems.append(Problem(rule=OUTPUT_RULE, message=text))
    return problems
