"""Codelets of selection with random truncation: a sample's scan runs once round from a neuron drawn for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mimdsim.codelets.dense import RANDOM_OFFSETS
from mimdsim.codelets.spikes import COMBINE_TILES, COMBINE_WORKERS, SCAN_FLAGS
from mimdsim.numerics.sparse import spikes as numerics
from mimdsim.program import Codelet, Field, Size, Term, WorkerBundles

DRAW_STARTS = Codelet(
    name="DrawStarts",
    fields=(
        Field(name="random", access="update", box=("sample",)),
        Field(name="starts", access="write", box=("sample",)),
    ),
    constants=("neurons",),
    compute=numerics.draw_starts,
    cost=RANDOM_OFFSETS.cost,
    code_bytes=256,
    extents={"elements": Size("random")},
)


def _from_a_start(plain: Codelet, compute: Any, columns: tuple[str, ...], bundles: WorkerBundles) -> Codelet:
    reads = tuple(item for item in plain.fields if not item.writes)
    writes = tuple(item for item in plain.fields if item.writes)
    starts = Field(name="starts", access="read", box=("sample",))
    return replace(
        plain,
        name=f"{plain.name}From",
        fields=(*reads, starts, *writes),
        columns=columns,
        compute=compute,
        cost=bundles,
    )


def _with_a_second_lap(plain: Codelet, lists: str, ids: str) -> WorkerBundles:
    """Every list is read twice: 6 more to start again, 3 more to skip an id that belongs to the other lap."""
    cost = plain.cost
    assert isinstance(cost, WorkerBundles)
    more = (Term(bundles=6, extents=(lists,)), Term(bundles=3, extents=(ids,)))
    source = f"{cost.source}; once more for the lap below the start, 6 per list and 3 per id"
    return replace(cost, fixed=cost.fixed + 2, terms=(*cost.terms, *more), source=source)


def _with_a_start(plain: Codelet) -> WorkerBundles:
    cost = plain.cost
    assert isinstance(cost, WorkerBundles)
    source = f"{cost.source}; 10 to load the start, clamp it and set up the lap below it"
    return replace(cost, fixed=cost.fixed + 10, source=source)


SCAN_FLAGS_FROM = _from_a_start(SCAN_FLAGS, numerics.scan_flags_from, SCAN_FLAGS.columns, _with_a_start(SCAN_FLAGS))
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

CODELETS = (DRAW_STARTS, SCAN_FLAGS_FROM, COMBINE_WORKERS_FROM, COMBINE_TILES_FROM)
