"""Plain work of the scan on tiles: zeros, counters of timesteps, and slices and updates of sequences at them."""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import dense as codelets
from mimdsim.compiler.context import WORD_BYTES, Chips, Lowering
from mimdsim.graph.names import before
from mimdsim.program import TileMapping, VertexTable

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


def _counting(low: Lowering) -> tuple[np.ndarray, np.ndarray]:
    """Chips, and the first tile of each, where its counters lie."""
    chips = np.arange(low.placement.chips)
    return chips, chips * low.placement.tiles_per_chip


def set_counters(low: Lowering, phase: str, first: int, counter: str = "timestep") -> None:
    """The timestep as a variable, one per chip on its first tile, set to `first`; slices read it as their offset."""
    chips, tiles = _counting(low)
    mapping = TileMapping.split(0, tiles, chips, chips + 1)
    for name in (counter, before(counter)):
        low.variable(name, (len(chips),), "int32", mapping, "neuron states")
    table = VertexTable(
        codelet=codelets.FILL_VECTOR,
        layer="",
        tiles=tiles,
        operands={"target": counter},
        columns={"start": chips, "stop": chips + 1},
        constants={"value": first},
    )
    low.emit(f"set {counter} {phase}", "zeros", tables=(table,))


def count_timestep(low: Lowering, by: int) -> None:
    """One scalar addition per chip on one tile, and a second one backward for the timestep before."""
    count(low, {"timestep": by})
    if by < 0:
        count_previous(low, ("timestep",))


def count(low: Lowering, counters: dict[str, int]) -> None:
    """One scalar addition per counter and chip."""
    chips, tiles = _counting(low)
    tables = tuple(
        VertexTable(
            codelet=codelets.COUNT_TIMESTEP,
            layer="",
            tiles=tiles,
            operands={"timestep": name},
            columns={"chip": chips},
            constants={"by": by},
        )
        for name, by in counters.items()
    )
    low.emit("count timestep", "count", tables=tables, mergeable=False)


def count_previous(low: Lowering, counters: tuple[str, ...]) -> None:
    """The entry before that of each counter, for slices of what was a timestep before."""
    chips, tiles = _counting(low)
    tables = tuple(
        VertexTable(
            codelet=codelets.OFFSET_FROM,
            layer="",
            tiles=tiles,
            operands={"previous": before(name), "timestep": name},
            columns={"chip": chips},
            constants={"by": -1},
        )
        for name in counters
    )
    low.emit("previous timestep", "count", tables=tables, mergeable=False)


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
        columns={**columns, **low.chip_column(tiles)},
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
        columns={"start": index, "stop": index + 1, **low.chip_column(tiles)},
    )
    low.emit(f"slice {now}", "slice", tables=(table,), mergeable=False)


def _moving(low: Lowering, variable: str, layer: str) -> tuple[str, np.ndarray, dict[str, np.ndarray]]:
    """How a variable that is split by neurons is moved, [batch, neurons] or [states, batch, neurons], with tiles and
    columns of its vertices."""
    several, placed = len(low.variables[variable].shape) == 3, low.placed(layer)
    tiles = placed.homes.ravel()
    chip = low.chip_column(tiles)
    if placed.copies > 1:
        return "boxes of states" if several else "boxes", tiles, {**placed.rows(placed.batch_edges), **chip}
    columns = {"start": placed.starts, "stop": placed.stops, **chip}
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
