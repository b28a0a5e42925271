"""Codelets of selection with random truncation: a sample's scan runs once round from a neuron drawn for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mimdsim.codelets.dense import UNIFORM_FORMULA
from mimdsim.codelets.spikes import COMBINE_TILES, COMBINE_WORKERS, SCAN_FLAGS
from mimdsim.codelets.vertex_costs import A_ROW, add_bundles, on_elements
from mimdsim.numerics.sparse import spikes as numerics
from mimdsim.program import Codelet, WorkerBundles, fields_of
from mimdsim.program.instruction_mix import Mix

DRAW_STARTS = on_elements(
    "DrawStarts",
    "update random[sample]; write starts[sample]",
    numerics.draw_starts,
    UNIFORM_FORMULA,
    "random",
    flops=0,
    constants=("neurons",),
    code_bytes=256,
)


def _from_a_start(plain: Codelet, compute: Any, columns: tuple[str, ...], bundles: WorkerBundles) -> Codelet:
    reads = tuple(item for item in plain.fields if not item.writes)
    writes = tuple(item for item in plain.fields if item.writes)
    return replace(
        plain,
        name=f"{plain.name}From",
        fields=(*reads, *fields_of("read starts[sample]"), *writes),
        columns=columns,
        compute=compute,
        cost=bundles,
    )


def _with_a_second_lap(plain: Codelet, lists: str, ids: str) -> WorkerBundles:
    """Every list is read twice: 6 more to start again, 3 more to skip an id that belongs to the other lap."""
    return add_bundles(
        plain.cost,
        "once more for the lap below the start, 6 per list and 3 per id",
        2,
        {lists: A_ROW, ids: Mix(load=1, integer=1, branch=1)},
    )


SCAN_FLAGS_FROM = _from_a_start(
    SCAN_FLAGS,
    numerics.scan_flags_from,
    SCAN_FLAGS.columns,
    add_bundles(SCAN_FLAGS.cost, "10 to load the start, clamp it and set up the lap below it", 10, {}),
)
COMBINE_WORKERS_FROM = _from_a_start(
    COMBINE_WORKERS,
    numerics.combine_workers_from,
    ("sample", *COMBINE_WORKERS.columns),
    _with_a_second_lap(COMBINE_WORKERS, "workers", "hits"),
)
COMBINE_TILES_FROM = _from_a_start(
    COMBINE_TILES,
    numerics.combine_tiles_from,
    COMBINE_TILES.columns,
    _with_a_second_lap(COMBINE_TILES, "lists", "listed"),
)
