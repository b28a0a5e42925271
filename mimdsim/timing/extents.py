"""Extents that depend on recorded spikes, added up per worker context."""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.numerics import loads as numerics
from mimdsim.program import Hits, Listed, RecordedActivity, Spikes, SpikesOver, Term, VertexTable, Within
from mimdsim.program.codelet import Recorded

RECORDED = (Spikes, Listed, SpikesOver, Hits, Within)


def split_extents(table: VertexTable, term: Term, each: float) -> tuple[np.ndarray, Recorded | None]:
    """(`each` times the static extents per vertex, the recorded extent if there is one)."""
    static = np.full(table.vertices, float(each))
    recorded: Recorded | None = None
    for name in term.extents:
        if name not in table.extents:
            raise MappingError(
                f"codelet '{table.codelet.name}' ({table.layer}): its cost needs the extent '{name}', "
                f"the table gives {sorted(table.extents)}"
            )
        extent = table.extents[name]
        if isinstance(extent, RECORDED):
            if recorded is not None:
                raise MappingError(f"codelet '{table.codelet.name}': a cost term has two extents that depend on spikes")
            recorded = extent
        else:
            static = static * np.asarray(extent)
    return static, recorded


def add_recorded(
    load: np.ndarray,
    cell: np.ndarray,
    weight: np.ndarray,
    table: VertexTable,
    extent: Recorded,
    activity: RecordedActivity,
) -> None:
    """load[cell, t] += weight * extent at t, for every vertex."""
    if extent.layer not in activity.counts:
        raise MappingError(
            f"recorded activity has no layer '{extent.layer}' (it has {sorted(activity.counts)}): "
            "record it with a run of the same network"
        )
    times = load.shape[1]
    counts = _shifted(activity.counts[extent.layer], extent.shift, times)
    samples = 1 + max(
        int(table.columns[name].max(initial=0)) - (name == "sample_stop")
        for name in ("sample", "sample_stop")
        if name in table.columns
    )
    if samples > counts.shape[1]:
        raise MappingError(
            f"recorded activity has a batch of {counts.shape[1]}, the program has {samples} samples: "
            "record it with a run of the same batch"
        )
    spikes, listed = np.ascontiguousarray(counts[..., 0]), np.ascontiguousarray(counts[..., 1])
    columns = {name: np.ascontiguousarray(column, np.int64) for name, column in table.columns.items()}
    if isinstance(extent, SpikesOver):
        running = np.zeros((spikes.shape[1] + 1, times))
        np.cumsum(spikes.T, axis=0, out=running[1:])
        numerics.add_by_count_over(load, cell, weight, columns["sample_start"], columns["sample_stop"], running)
    elif isinstance(extent, Within):
        scaled = weight * extent.times
        numerics.add_if_within(load, cell, scaled, columns["sample"], columns["slot"], np.ascontiguousarray(listed.T))
    elif isinstance(extent, Hits):
        ids = _shifted(activity.ids[extent.layer], extent.shift, times)
        first = spikes if extent.which == "gradient" else np.zeros_like(spikes)
        last = spikes if extent.which == "spikes" else listed
        owner = _owner(columns, int(max(ids.max(initial=0) + 1, columns["stop"].max(initial=0))), ids.shape[1])
        numerics.add_by_hit(load, cell, weight, owner, np.ascontiguousarray(ids), first, last)
    else:
        chosen = spikes if isinstance(extent, Spikes) else listed
        by_sample = np.ascontiguousarray(chosen.T, np.float64)
        numerics.add_by_count(load, cell, weight, columns["sample"], by_sample)


def _shifted(sequence: np.ndarray, shift: int, times: int) -> np.ndarray:
    """The sequence at t + shift, zero before the first timestep."""
    if len(sequence) != times:
        raise MappingError(f"recorded activity has {len(sequence)} timesteps, the program repeats {times}")
    if shift == 0:
        return sequence
    moved = np.zeros_like(sequence)
    source = np.arange(times) + shift
    inside = (source >= 0) & (source < times)
    moved[inside] = sequence[source[inside]]
    return moved


def _owner(columns: dict[str, np.ndarray], neurons: int, batch: int) -> np.ndarray:
    """int64[batch, neurons]: the vertex whose sample, or samples, and range hold a neuron, -1 where none does."""
    owner = np.full((batch, neurons), -1, np.int64)
    start, stop = columns["start"], columns["stop"]
    lengths = stop - start
    vertex = np.repeat(np.arange(len(start)), lengths)
    neuron = np.arange(len(vertex)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + start[vertex]
    first = columns["sample"] if "sample" in columns else columns["sample_start"]
    last = columns["sample"] + 1 if "sample" in columns else columns["sample_stop"]
    for offset in range(int((last - first).max(initial=0))):
        inside = first[vertex] + offset < last[vertex]
        owner[first[vertex[inside]] + offset, neuron[inside]] = vertex[inside]
    return owner
