"""Plain work of the scan on tiles: zeros, counters of timesteps, and slices and updates of sequences at them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.codelets import dense as codelets
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.layout import entries_on
from mimdsim.graph import Scan
from mimdsim.graph.names import before, spikes_of
from mimdsim.graph.records import Carry, Slice
from mimdsim.program import Codelet, Program, Superstep
from mimdsim.program.program import map_runs

# what counts the entries of a sequence, by what these are
COUNTERS = {"timesteps": "timestep", "segments": "segment", "segment": "place"}


def fill(low: Lowering, variable: str, stage: str, layer: str = "") -> None:
    """Zero a variable where it lies."""
    along, tiles, columns = low.pieces(variable)
    low.compute(stage, "zeros", codelets.FILLS[along], tiles, columns, {"target": variable}, layer=layer)


def set_counters(low: Lowering, phase: str, first: int, counter: str = "timestep") -> None:
    """The timestep as a variable that every tile has for itself, set to `first`; slices read it as their offset.

    The published program declares one on one tile. Of the offset of a slice the library says that the compiler
    replicates it over tiles (PopLibs lib/popops/DynamicSlice.cpp, generateVertices, 2018 to 2023: "small graph
    replication optimisation"): every tile counts, and nothing is sent.
    """
    tiles = np.arange(low.tiles)
    mapping = entries_on(tiles)
    for name in (counter, before(counter)):
        low.variable(name, (len(tiles),), "int32", mapping, "neuron states")
    columns, constants = {"start": tiles, "stop": tiles + 1}, {"value": first}
    stage = f"set {counter} {phase}"
    low.compute(stage, "zeros", codelets.FILL_VECTOR, tiles, columns, {"target": counter}, constants=constants)


def count_timestep(low: Lowering, by: int, slices: Iterable[Slice] = ()) -> None:
    """One scalar addition per tile, and one more for each of the earlier timesteps that `slices` take; backward always
    for the timestep before."""
    count(low, {"timestep": by})
    shifts = {item.shift for item in slices if item.shift} | ({-1} if by < 0 else set())
    count_earlier(low, [("timestep", shift) for shift in sorted(shifts, reverse=True)])


def count(low: Lowering, counters: dict[str, int]) -> None:
    """One scalar addition per counter and tile."""
    with low.superstep("count timestep", "count", mergeable=False):
        for name, by in counters.items():
            _count(low, codelets.COUNT_TIMESTEP, {"timestep": name}, by)


def count_earlier(low: Lowering, counters: Collection[tuple[str, int]]) -> None:
    """The entries at a shift from that of each counter, for slices of what was timesteps before."""
    if not counters:
        return
    with low.superstep("previous timestep", "count", mergeable=False):
        for name, shift in counters:
            earlier = before(name, -shift)
            if earlier not in low.variables:
                held = low.variables[name]
                low.variable(earlier, held.shape, held.dtype, held.mapping, held.category)
            _count(low, codelets.OFFSET_FROM, {"previous": earlier, "timestep": name}, shift)


def _count(low: Lowering, codelet: Codelet, operands: dict[str, str], by: int) -> None:
    tiles = np.arange(low.tiles)
    low.compute("count", "count", codelet, tiles, {"tile": tiles}, operands, constants={"by": by})


def count_where_read(program: Program) -> Program:
    """The program with its counters set and advanced only on tiles whose slices and updates read one."""
    ages = range(program.timesteps + 1)
    own = {before(counter, age) for counter in COUNTERS.values() for age in ages} & set(program.variables)
    counting = ("count", "zeros")
    reads = np.zeros(program.tiles, bool)
    for superstep, _, _ in program.supersteps():
        for table in superstep.tables:
            if superstep.op not in counting and own & set(table.operands.values()):
                reads[table.tiles] = True

    def counted(superstep: Superstep) -> Superstep:
        if superstep.op not in counting or not any(own & set(table.operands.values()) for table in superstep.tables):
            return superstep
        return replace(superstep, tables=tuple(table.on_some(reads) for table in superstep.tables))

    return replace(program, body=map_runs(program.body, lambda stretch: [counted(superstep) for superstep in stretch]))


def offset_of(low: Lowering, sequence: str, shift: int) -> str:
    """The counter that says which entry of a sequence is meant."""
    counter = COUNTERS[low.variables[sequence].entries]
    return before(counter, -shift)


def by_age(scan: Scan) -> list[Carry]:
    """The carries of spikes, or of their adjoints, in an order in which each can take the place of the one after it:
    forward the oldest first, backward those that wait longest last."""
    values = scan.body.values
    named = {name: before(spikes_of(value.layer), -value.shift) for name, value in values.items()}
    found = [each for each in scan.carries if named[each.enters] in (each.enters, values[each.enters].of)]
    return sorted(found, key=lambda carry: values[carry.enters].shift * (-1 if scan.reverse else 1))


def waiting(scan: Scan) -> set[str]:
    """Spikes as they enter the body, or their adjoints, of layers that somebody reads later than a timestep after."""
    values = [scan.body.value(carry.enters) for carry in by_age(scan)]
    layers = {value.layer for value in values if value.shift < (0 if scan.reverse else -1)}
    return {value.name for value in values if value.layer in layers}


def slice_timestep(low: Lowering, sequence: str, now: str, shift: int, layer: str = "") -> None:
    """now <- sequence[t + shift] where `now` lies."""
    along, tiles, columns = low.pieces(now)
    codelet, columns = codelets.slice_codelet(along, shift), {**columns, "tile": tiles}
    operands = {"sequence": sequence, "now": now, "timestep": offset_of(low, sequence, shift)}
    how: dict[str, Any] = {"layer": layer, "named": False, "mergeable": False}
    low.compute(f"slice {now}", "slice", codelet, tiles, columns, operands, **how)


def update_timestep(low: Lowering, now: str, sequence: str, layer: str = "", name: str = "", shift: int = 0) -> None:
    """sequence[t + shift] <- now, named by the latter or `name`. The entry is the one the counter says at `shift` 0;
    what a segment begins with is stored when the counter stands there, before its first timestep."""
    along, tiles, columns = low.pieces(now, sequence)
    codelet, columns = codelets.update_codelet(along, shift), {**columns, "tile": tiles}
    operands = {"sequence": sequence, "now": now, "timestep": offset_of(low, sequence, 0)}
    how: dict[str, Any] = {"layer": layer, "named": False, "mergeable": False}
    low.compute(f"stash {name or now}", "stash", codelet, tiles, columns, operands, **how)
