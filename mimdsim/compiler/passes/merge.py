"""Merge supersteps of different layers that do not wait for each other, so that they share one sync and exchange.

Order of execution comes from the variables: a superstep waits for those that write what it reads or writes, and for
those that read what it writes. Library calls stay supersteps of their own, as in the published program.

Leave out what a program need not run: slices and updates that vertices do themselves, and what nothing reads.
A stash stays where it is made: vertices read and write its timesteps themselves. A slice whose result only vertices on
the same tile read goes, and they read the sequence; an update of what one vertex per element has just left goes, and
these vertices store it too. A slice that other tiles read stays: an exchange sends from fixed addresses.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from mimdsim.codelets.in_place_time_slices import KEPT, can_store, read_in_place, store_in_place
from mimdsim.program import Copy, Field, Program, Superstep, Variable, VertexTable
from mimdsim.program.program import map_runs
from mimdsim.program.vertex_boxes import boxes_of, is_local


def merge_supersteps(program: Program) -> Program:
    """The program with mergeable supersteps of equal stage and depth joined, in every stretch between repeats."""
    return replace(program, body=map_runs(program.body, _merge_stretch))


def merge_levels(program: Program) -> Program:
    """The program with all supersteps joined that do not wait for each other, in every stretch between repeats: as few
    as the longest chain of waits has."""
    return replace(program, body=map_runs(program.body, _merge_by_level))


def _merge_by_level(stretch: list[Superstep]) -> list[Superstep]:
    """As few supersteps as the longest chain of waits; within these, supersteps of one stage together if they can wait
    for the last of them. Phases stay apart."""
    made = []
    for _, run in groupby(stretch, key=lambda superstep: superstep.phase):
        steps = list(run)
        waits = _waits(steps)
        earliest = _levels(waits, [0] * len(steps))
        latest = _latest(waits, max(earliest))
        together: dict[str, int] = {}
        for step, level in zip(steps, earliest, strict=True):
            together[step.stage] = max(together.get(step.stage, 0), level)
        least = [
            together[step.stage] if together[step.stage] <= last else first
            for step, first, last in zip(steps, earliest, latest, strict=True)
        ]
        levels = _levels(waits, least)
        for level in range(max(levels) + 1):
            made.append(_join([step for step, own in zip(steps, levels, strict=True) if own == level]))
    return made


def _levels(waits: list[set[int]], least: list[int]) -> list[int]:
    """Of every superstep: after all that it waits for, and not before `least`."""
    levels: list[int] = []
    for before, bound in zip(waits, least, strict=True):
        levels.append(max((levels[earlier] + 1 for earlier in before), default=0))
        levels[-1] = max(levels[-1], bound)
    return levels


def _latest(waits: list[set[int]], last: int) -> list[int]:
    """Of every superstep: the last level that delays none beyond `last`."""
    levels = [last] * len(waits)
    for node in range(len(waits) - 1, -1, -1):
        for earlier in waits[node]:
            levels[earlier] = min(levels[earlier], levels[node] - 1)
    return levels


def touched(superstep: Superstep) -> tuple[set[str], set[str]]:
    """Variables a superstep reads and writes."""
    reads = {copy.source for copy in superstep.copies}
    writes = {copy.target for copy in superstep.copies}
    for table in superstep.tables:
        for item in table.codelet.fields:
            name = table.operands[item.name]
            if item.reads:
                reads.add(name)
            if item.writes:
                writes.add(name)
    return reads, writes


def _waits(stretch: list[Superstep]) -> list[set[int]]:
    """For every superstep the earlier ones it waits for: writers of what it touches, readers of what it writes."""
    written: dict[str, int] = {}
    read_since: dict[str, list[int]] = {}
    waits: list[set[int]] = []
    for node, superstep in enumerate(stretch):
        reads, writes = touched(superstep)
        before = {written[name] for name in reads | writes if name in written}
        before |= {reader for name in writes for reader in read_since.get(name, ())}
        waits.append(before - {node})
        for name in reads - writes:
            read_since.setdefault(name, []).append(node)
        for name in writes:
            written[name] = node
            read_since[name] = []
    return waits


def _merge_stretch(stretch: list[Superstep]) -> list[Superstep]:
    """Supersteps of one stage that do not wait for each other become one.

    They are scheduled greedily: a group runs when all of it is ready, in the order of its first superstep; when none
    is ready as a whole, the first that is ready in part goes on without the rest.
    """
    waits = _waits(stretch)
    rank: list[tuple[str, int]] = []  # the stage, and how many of the same stage lie on the way to it
    ways: list[dict[str, int]] = []
    for node, superstep in enumerate(stretch):
        way: dict[str, int] = {}
        for earlier in waits[node]:
            for stage, count in ways[earlier].items():
                way[stage] = max(way.get(stage, 0), count)
        stage = superstep.stage if superstep.mergeable else f"{superstep.stage}#{node}"
        rank.append((stage, way.get(stage, 0)))
        way[stage] = way.get(stage, 0) + 1
        ways.append(way)
    groups: dict[tuple[str, int], list[int]] = {}
    for node, key in enumerate(rank):
        groups.setdefault(key, []).append(node)
    missing = [len(before) for before in waits]
    followers: list[list[int]] = [[] for _ in stretch]
    for node, before in enumerate(waits):
        for earlier in before:
            followers[earlier].append(node)
    ready_of = {key: sum(missing[node] == 0 for node in nodes) for key, nodes in groups.items()}
    first = {key: nodes[0] for key, nodes in groups.items()}
    whole = [(first[key], key) for key, nodes in groups.items() if ready_of[key] == len(nodes)]
    heapq.heapify(whole)
    made = []
    while groups:
        if whole:
            _, key = heapq.heappop(whole)
        else:
            key = min((key for key in groups if ready_of[key]), key=lambda key: first[key])
        nodes = [node for node in groups[key] if missing[node] == 0]
        left = [node for node in groups[key] if missing[node] > 0]
        made.append(_join([stretch[node] for node in nodes]))
        if left:
            groups[key], ready_of[key], first[key] = left, 0, left[0]
        else:
            del groups[key]
        for node in nodes:
            for later in followers[node]:
                missing[later] -= 1
                if missing[later] == 0:
                    ready_of[rank[later]] += 1
                    if ready_of[rank[later]] == len(groups[rank[later]]):
                        heapq.heappush(whole, (first[rank[later]], rank[later]))
    return made


def _join(parts: list[Superstep]) -> Superstep:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    stages = list(dict.fromkeys(part.stage for part in parts))
    more = f" and {len(stages) - 1} more" if len(stages) > 1 else ""
    tables = (table.of_stage(part.stage) if more else table for part in parts for table in part.tables)
    return replace(
        first,
        name=f"{stages[0]}{more}",
        tables=tuple(tables),
        copies=tuple(copy for part in parts for copy in part.copies),
        defines=tuple(pair for part in parts for pair in part.defines),
    )


def drop_dead_code(program: Program) -> Program:
    """The program without vertices and copies whose results are neither read nor outputs, recorded or kept, and
    without the variables that nothing uses then."""
    parts = -1
    while parts != (parts := sum(len(step.tables) + len(step.copies) for step, _, _ in program.supersteps())):
        program = _without_unread(program)
    return program


def _without_unread(program: Program) -> Program:
    read = _observed(program).union(*(touched(superstep)[0] for superstep, _, _ in program.supersteps()))

    def if_read(table: VertexTable) -> VertexTable | None:
        written = (table.operands[item.name] for item in table.codelet.fields if item.writes)
        return None if read.isdisjoint(written) else table

    return _rewritten(program, if_read, lambda copy: copy.target in read)


def _observed(program: Program) -> set[str]:
    """Variables that the host or the next run may read."""
    spikes = (*program.recorded.values(), *program.observables.passing.values())
    recorded = {name for names in spikes for name in names}
    persistent = {name for name, variable in program.variables.items() if variable.persistent}
    return {*program.inputs.values(), *program.outputs.values(), *recorded, *persistent}


def _rewritten(
    program: Program,
    table: Callable[[VertexTable], VertexTable | None],
    copy: Callable[[Copy], bool] = lambda _: True,
) -> Program:
    """The program with tables changed (None: left out) and some copies, without the supersteps that are empty then and
    the variables that nothing uses then."""

    def run(stretch: list[Superstep]) -> list[Superstep]:
        changed = []
        for step in stretch:
            tables = tuple(new for old in step.tables if (new := table(old)) is not None)
            copies = tuple(filter(copy, step.copies))
            if tables or copies:
                same = (tables, copies) == (step.tables, step.copies)
                changed.append(step if same else replace(step, tables=tables, copies=copies))
        return changed

    program = replace(program, body=map_runs(program.body, run))
    used = _observed(program).union(*(names for step, _, _ in program.supersteps() for names in touched(step)))
    return replace(program, variables={name: each for name, each in program.variables.items() if name in used})


# ---- stash in place


@dataclass(frozen=True, kw_only=True, eq=False)
class _Use:
    """A field of a table that touches a variable."""

    table: VertexTable
    field: Field


def stash_in_place(program: Program) -> Program:
    """The program without slices and updates that vertices can do themselves; the same values."""
    program = _Rewriting(program).without_slices()
    return _Rewriting(program).without_updates()


class _Rewriting:
    def __init__(self, program: Program):
        self.program = program
        self.uses: dict[str, list[_Use]] = defaultdict(list)
        self.at: dict[int, tuple[int, int]] = {}  # by id of a table: its stretch, and its superstep there
        self.outside = _observed(program)
        for number, stretch in enumerate(program.stretches()):
            for place, superstep in enumerate(stretch.body):
                self.outside |= {name for copy in superstep.copies for name in (copy.source, copy.target)}
                for table in superstep.tables:
                    self.at[id(table)] = number, place
                    for field in table.codelet.fields:
                        self.uses[table.operands[field.name]].append(_Use(table=table, field=field))
        self.changed: dict[int, VertexTable | None] = {}

    def without_slices(self) -> Program:
        for source, target, slicing in self._moves("sequence", "now"):
            readers = [use for use in self.uses[target] if use.table is not slicing]
            stretch = self.at[id(slicing)][0]
            if (
                target not in self.outside
                and readers
                and all(use.field.access == "read" and self._follows(slicing, use.table) for use in readers)
                and not any(use.field.writes and self.at[id(use.table)][0] == stretch for use in self.uses[source])
                and all(self._is_local(use, self.program.variables[target]) for use in readers)
            ):
                shift = slicing.codelet.field("sequence").shift or 0
                for use in readers:
                    self._change(use.table, source, use.field.name, shift)
                self.changed[id(slicing)] = None
        return self._result()

    def without_updates(self) -> Program:
        for source, target, update in self._moves("now", "sequence"):
            before = [use for use in self.uses[source] if use.field.writes and self._follows(use.table, update)]
            last = max(before, key=lambda use: self.at[id(use.table)], default=None)
            if last is None or update.codelet.field("sequence").shift != 0 or id(last.table) in self.changed:
                continue
            stretch, _ = at = self.at[id(last.table)]
            alone = [use for use in before if self.at[id(use.table)] == at] == [last]
            others = (use.table for use in self.uses[target] if use.table is not update)
            between = any(self.at[id(table)][0] == stretch for table in others)
            storing = alone and not between and can_store(last.table.codelet, last.field.name)
            if storing and self._is_whole(last, source):
                codelet = store_in_place(last.table.codelet, last.field.name)
                operands = {**last.table.operands, KEPT: target}
                self.changed[id(last.table)] = replace(last.table, codelet=codelet, operands=operands)
                self.changed[id(update)] = None
        return self._result()

    def _moves(self, source: str, target: str) -> Iterator[tuple[str, str, VertexTable]]:
        """(variable read, variable written, table) of all tables that only move a timestep between these fields."""
        for superstep, _, _ in self.program.supersteps():
            for table in superstep.tables:
                names = [item.name for item in table.codelet.fields]
                if names == [source, target, "timestep"]:
                    yield table.operands[source], table.operands[target], table

    def _follows(self, first: VertexTable, later: VertexTable) -> bool:
        """Whether both are in one stretch, `later` in a later superstep."""
        (stretch, place), (other, after) = self.at[id(first)], self.at[id(later)]
        return stretch == other and place < after

    def _is_local(self, use: _Use, variable: Variable) -> bool:
        if use.field.shift is not None or use.field.one_row:
            return False
        boxes = boxes_of(use.table, use.field, variable)
        return bool(is_local(variable.mapping, use.table.tiles, boxes, variable.shape).all())

    def _is_whole(self, use: _Use, name: str) -> bool:
        """Whether the vertices together write every element, each where the sequence has it."""
        variable = self.program.variables[name]
        boxes = boxes_of(use.table, use.field, variable)
        size = int(np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1, dtype=np.int64).sum())
        return size == int(np.prod(variable.shape, dtype=np.int64)) and use.field.access in ("write", "update")

    def _change(self, table: VertexTable, source: str, field: str, shift: int) -> None:
        now = self.changed.get(id(table)) or table
        codelet, operands = read_in_place(now.codelet, field, shift), {**now.operands, field: source}
        self.changed[id(table)] = replace(now, codelet=codelet, operands=operands)

    def _result(self) -> Program:
        return _rewritten(self.program, lambda table: self.changed.get(id(table), table))
