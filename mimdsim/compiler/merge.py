"""Merge supersteps of different layers that do not wait for each other, so that they share one sync and exchange.

Order of execution comes from the variables: a superstep waits for those that write what it reads or writes, and for
those that read what it writes. Library calls stay supersteps of their own, as in the published program.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import groupby

from mimdsim.program import Program, Superstep
from mimdsim.program.program import map_runs


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
    kinds = dict.fromkeys(kind for part in parts for kind in part.op.split("+"))
    return replace(
        first,
        name=f"{stages[0]}{more}",
        op="+".join(kinds),
        tables=tuple(tables),
        copies=tuple(copy for part in parts for copy in part.copies),
        defines=tuple(pair for part in parts for pair in part.defines),
    )
