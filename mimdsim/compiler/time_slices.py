"""Plain work of the scan on tiles: zeros, counters of timesteps, and slices and updates of sequences at them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimdsim.codelets import dense as codelets
from mimdsim.compiler.context import WORD_BYTES, Chips, Lowering
from mimdsim.graph.names import before
from mimdsim.program import Program, Superstep, TileMapping, VertexTable
from mimdsim.program.program import map_runs

# what counts the entries of a sequence, by what these are
COUNTERS = {"timesteps": "timestep", "segments": "segment", "segment": "place"}


def fill_neurons(low: Lowering, variable: str, layer: str, stage: str) -> None:
    """Zero a [batch, neurons] or [states, batch, neurons] variable on the tiles of its neurons."""
    several = len(low.variables[variable].shape) == 3
    codelet = codelets.FILL_REPLICAS if several else codelets.FILL_COLUMNS
    _, tiles, columns = low.over_neurons(codelet, layer)
    if low.placed(layer).copies > 1:
        codelet = codelets.FILL_STATES if several else codelets.FILL_BOXES
    table = VertexTable(
        codelet=codelet,
        layer=layer,
        tiles=tiles,
        operands={"target": variable},
        columns=columns,
    )
    low.emit(stage, "zeros", tables=(table,), layer=layer)


def fill_rows(low: Lowering, variable: str, tiles: np.ndarray, stage: str) -> None:
    rows = low.variables[variable].shape[0]
    index = np.arange(rows)
    table = VertexTable(
        codelet=codelets.FILL_ROWS,
        layer="",
        tiles=tiles,
        operands={"target": variable},
        columns={"start": index, "stop": index + 1},
    )
    low.emit(stage, "zeros", tables=(table,))


def fill_slots(low: Lowering, variable: str, chips: Chips, stage: str, least_bytes: int = WORD_BYTES) -> None:
    tiles, columns = low.slots_of(variable, chips, least_bytes)
    table = VertexTable(
        codelet=codelets.FILL_SLOTS,
        layer="",
        tiles=tiles,
        operands={"target": variable},
        columns=columns,
    )
    low.emit(stage, "zeros", tables=(table,))


def set_counters(low: Lowering, phase: str, first: int, counter: str = "timestep") -> None:
    """The timestep as a variable that every tile has for itself, set to `first`; slices read it as their offset.

    The published program declares one on one tile. Of the offset of a slice the library says that the compiler
    replicates it over tiles (PopLibs lib/popops/DynamicSlice.cpp, generateVertices, 2018 to 2023: "small graph
    replication optimisation"): every tile counts, and nothing is sent.
    """
    tiles = np.arange(low.placement.tiles)
    mapping = TileMapping.split(0, tiles, tiles, tiles + 1)
    for name in (counter, before(counter)):
        low.variable(name, (len(tiles),), "int32", mapping, "neuron states")
    table = VertexTable(
        codelet=codelets.FILL_VECTOR,
        layer="",
        tiles=tiles,
        operands={"target": counter},
        columns={"start": tiles, "stop": tiles + 1},
        constants={"value": first},
    )
    low.emit(f"set {counter} {phase}", "zeros", tables=(table,))


def count_timestep(low: Lowering, by: int) -> None:
    """One scalar addition per tile, and a second one backward for the timestep before."""
    count(low, {"timestep": by})
    if by < 0:
        count_previous(low, ("timestep",))


def count(low: Lowering, counters: dict[str, int]) -> None:
    """One scalar addition per counter and tile."""
    tiles = np.arange(low.placement.tiles)
    tables = tuple(
        VertexTable(
            codelet=codelets.COUNT_TIMESTEP,
            layer="",
            tiles=tiles,
            operands={"timestep": name},
            columns=low.counter_column(tiles),
            constants={"by": by},
        )
        for name, by in counters.items()
    )
    low.emit("count timestep", "count", tables=tables, mergeable=False)


def count_previous(low: Lowering, counters: tuple[str, ...]) -> None:
    """The entry before that of each counter, for slices of what was a timestep before."""
    tiles = np.arange(low.placement.tiles)
    tables = tuple(
        VertexTable(
            codelet=codelets.OFFSET_FROM,
            layer="",
            tiles=tiles,
            operands={"previous": before(name), "timestep": name},
            columns=low.counter_column(tiles),
            constants={"by": -1},
        )
        for name in counters
    )
    low.emit("previous timestep", "count", tables=tables, mergeable=False)


def count_where_read(program: Program) -> Program:
    """The program with its counters set and advanced only on tiles whose slices and updates read one."""
    own = {name for counter in COUNTERS.values() for name in (counter, before(counter))} & set(program.variables)
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
    return before(counter) if shift else counter


def slice_slots(low: Lowering, sequence: str, now: str, shift: int, chips: Chips) -> None:
    """now <- sequence[t + shift] on the tiles that hold both."""
    tiles, columns = low.slots_of(now, chips)
    table = VertexTable(
        codelet=codelets.slice_codelet("slots", shift),
        layer="",
        tiles=tiles,
        operands={"sequence": sequence, "now": now, "timestep": offset_of(low, sequence, shift)},
        columns={**columns, **low.counter_column(tiles)},
    )
    low.emit(f"slice {now}", "slice", tables=(table,), mergeable=False)


def slice_rows(low: Lowering, sequence: str, now: str, shift: int, tiles: np.ndarray) -> None:
    """now <- sequence[t + shift], one vertex per sample."""
    rows = low.variables[now].shape[0]
    index = np.arange(rows)
    table = VertexTable(
        codelet=codelets.slice_codelet("rows", shift),
        layer="",
        tiles=tiles,
        operands={"sequence": sequence, "now": now, "timestep": offset_of(low, sequence, shift)},
        columns={"start": index, "stop": index + 1, **low.counter_column(tiles)},
    )
    low.emit(f"slice {now}", "slice", tables=(table,), mergeable=False)


def _moving(low: Lowering, variable: str, layer: str) -> tuple[str, np.ndarray, dict[str, np.ndarray]]:
    """How a variable that is split by neurons is moved, [batch, neurons] or [states, batch, neurons], with tiles and
    columns of its vertices."""
    several, placed = len(low.variables[variable].shape) == 3, low.placed(layer)
    tiles = placed.homes.ravel()
    counter = low.counter_column(tiles)
    if placed.copies > 1:
        return "boxes of states" if several else "boxes", tiles, {**placed.rows(placed.batch_edges), **counter}
    columns = {"start": placed.starts, "stop": placed.stops, **counter}
    return "states" if several else "columns", tiles, columns


def slice_neurons(low: Lowering, sequence: str, now: str, shift: int, layer: str) -> None:
    """now <- sequence[t + shift], one vertex per tile of the layer."""
    along, tiles, columns = _moving(low, now, layer)
    table = VertexTable(
        codelet=codelets.slice_codelet(along, shift),
        layer=layer,
        tiles=tiles,
        operands={"sequence": sequence, "now": now, "timestep": offset_of(low, sequence, shift)},
        columns=columns,
    )
    low.emit(f"slice {now}", "slice", tables=(table,), mergeable=False)


def update_neurons(low: Lowering, now: str, sequence: str, layer: str, name: str, shift: int = 0) -> None:
    """sequence[t + shift] <- now, one vertex per tile of the layer. The entry is the one the counter says at `shift` 0;
    what a segment begins with is stored when the counter stands there, before its first timestep."""
    along, tiles, columns = _moving(low, now, layer)
    table = VertexTable(
        codelet=codelets.update_codelet(along, shift),
        layer=layer,
        tiles=tiles,
        operands={"now": now, "sequence": sequence, "timestep": offset_of(low, sequence, 0)},
        columns=columns,
    )
    low.emit(f"stash {name}", "stash", tables=(table,), mergeable=False)
