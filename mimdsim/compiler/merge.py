"""Merge supersteps of different layers that do not wait for each other, so that they share one sync and exchange.

Order of execution comes from the variables: a superstep waits for those that write what it reads or writes, and for
those that read what it writes. Library calls stay supersteps of their own, as in the published program.
"""

from __future__ import annotations

from dataclasses import replace

import networkx as nx

from mimdsim.program import Program, Repeat, Superstep


def merge_supersteps(program: Program) -> Program:
    """The program with mergeable supersteps of equal stage and depth joined, in every stretch between repeats."""
    body: list[Superstep | Repeat] = []
    stretch: list[Superstep] = []
    for item in program.body:
        if isinstance(item, Repeat):
            body += _merge_stretch(stretch)
            stretch = []
            body.append(replace(item, body=tuple(_merge_stretch(list(item.body)))))
        else:
            stretch.append(item)
    body += _merge_stretch(stretch)
    return replace(program, body=tuple(body))


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


def _merge_stretch(stretch: list[Superstep]) -> list[Superstep]:
    waits = nx.DiGraph()
    waits.add_nodes_from(range(len(stretch)))
    sets = [touched(superstep) for superstep in stretch]
    for later, (reads, writes) in enumerate(sets):
        for earlier in range(later):
            read_before, written_before = sets[earlier]
            if (written_before & (reads | writes)) or (read_before & writes):
                waits.add_edge(earlier, later)
    depth: dict[int, int] = {}
    for node in nx.topological_sort(waits):
        depth[node] = 1 + max((depth[before] for before in waits.predecessors(node)), default=-1)
    groups: dict[tuple[int, str], list[int]] = {}
    for node, superstep in enumerate(stretch):
        key = (depth[node], superstep.stage if superstep.mergeable else f"{superstep.stage}#{node}")
        groups.setdefault(key, []).append(node)
    ordered = sorted(groups.items(), key=lambda entry: (entry[0][0], entry[1][0]))
    return [_join([stretch[node] for node in nodes]) for _, nodes in ordered]


def _join(parts: list[Superstep]) -> Superstep:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return replace(
        first,
        name=first.stage,
        tables=tuple(table for part in parts for table in part.tables),
        copies=tuple(copy for part in parts for copy in part.copies),
        defines=tuple(pair for part in parts for pair in part.defines),
    )
