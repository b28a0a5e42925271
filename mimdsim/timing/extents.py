"""Extents that depend on recorded spikes, added up per worker context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Counted:
    """A cost term that counts spikes: its weight per vertex and what finds the spikes that count.

    columns: the table's, contiguous. samples: how many samples they name. owner int64[batch, neurons] for hits: the
    vertex whose sample and range hold a neuron, -1 where none does. summed: the weights of vertices that count alike,
    by sample; for `Within` those of all slots below, [samples, slots + 1].
    """

    weight: np.ndarray
    extent: Recorded
    columns: dict[str, np.ndarray]
    samples: int
    owner: np.ndarray | None
    summed: np.ndarray


def counted(table: VertexTable, weight: np.ndarray, extent: Recorded) -> Counted:
    """The part of `add_recorded` that no activity changes."""
    wanted = ("sample", "sample_start", "sample_stop", "slot", "start", "stop")
    columns = {name: np.ascontiguousarray(table.columns[name], np.int64) for name in wanted if name in table.columns}
    samples = 1 + max(
        int(columns[name].max(initial=0)) - (name == "sample_stop")
        for name in ("sample", "sample_stop")
        if name in columns
    )
    owner = _owner(columns, int(columns["stop"].max(initial=0)), samples) if isinstance(extent, Hits) else None
    if isinstance(extent, Within):
        weight = weight * extent.times
    summed = _summed(weight, extent, columns, samples)
    return Counted(weight=weight, extent=extent, columns=columns, samples=samples, owner=owner, summed=summed)


def _summed(weight: np.ndarray, extent: Recorded, columns: dict[str, np.ndarray], samples: int) -> np.ndarray:
    if isinstance(extent, Hits):
        return np.zeros(0)
    if isinstance(extent, SpikesOver):
        edges = np.bincount(columns["sample_start"], weights=weight, minlength=samples + 1)
        edges = edges - np.bincount(columns["sample_stop"], weights=weight, minlength=samples + 1)
        over: np.ndarray = edges.cumsum()[:samples]
        return over
    if isinstance(extent, Within):
        slots = int(columns["slot"].max(initial=-1)) + 1
        place = columns["sample"] * (slots + 1) + columns["slot"] + 1
        each = np.bincount(place, weights=weight, minlength=samples * (slots + 1)).reshape(samples, slots + 1)
        below: np.ndarray = each.cumsum(axis=1)
        return below
    return np.bincount(columns["sample"], weights=weight, minlength=samples)


class Recording:
    """A recorded activity as the loads want it; what several tables ask for is made once."""

    def __init__(self, activity: RecordedActivity, times: int):
        self.activity, self.times = activity, times
        self._made: dict[tuple[str, int, str], np.ndarray] = {}
        self._neurons: dict[str, int] = {}

    def counts(self, extent: Recorded, samples: int) -> np.ndarray:
        """int[times, batch, 2] at t + shift; raises MappingError where the recording does not fit the program."""
        layer = extent.layer
        if layer not in self.activity.counts:
            raise MappingError(
                f"recorded activity has no layer '{layer}' (it has {sorted(self.activity.counts)}): "
                "record it with a run of the same network"
            )
        found = self._once(layer, extent.shift, "counts", lambda: self.activity.counts[layer])
        if samples > found.shape[1]:
            raise MappingError(
                f"recorded activity has a batch of {found.shape[1]}, the program has {samples} samples: "
                "record it with a run of the same batch"
            )
        return found

    def ids(self, extent: Recorded) -> np.ndarray:
        """int[times, batch, capacity] at t + shift."""
        return self._once(extent.layer, extent.shift, "ids", lambda: self.activity.ids[extent.layer])

    def neurons(self, extent: Recorded) -> int:
        """One more than the highest id, stale ones included."""
        if extent.layer not in self._neurons:
            self._neurons[extent.layer] = int(self.activity.ids[extent.layer].max(initial=0)) + 1
        return self._neurons[extent.layer]

    def _once(self, layer: str, shift: int, which: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        key = (layer, shift, which)
        if key not in self._made:
            self._made[key] = np.ascontiguousarray(_shifted(make(), shift, self.times))
        return self._made[key]


def add_recorded(load: np.ndarray, cell: np.ndarray, term: Counted, recording: Recording) -> float:
    """load[cell, t] += weight * extent at t, for every vertex; returns all that was added."""
    extent, columns, weight = term.extent, term.columns, term.weight
    counts = recording.counts(extent, term.samples)
    spikes, listed = counts[..., 0], counts[..., 1]
    if isinstance(extent, SpikesOver):
        running = np.zeros((spikes.shape[1] + 1, recording.times))
        np.cumsum(spikes.T, axis=0, out=running[1:])
        numerics.add_by_count_over(load, cell, weight, columns["sample_start"], columns["sample_stop"], running)
    elif isinstance(extent, Within):
        by_sample = np.ascontiguousarray(listed.T)
        numerics.add_if_within(load, cell, weight, columns["sample"], columns["slot"], by_sample)
    elif isinstance(extent, Hits):
        ids = recording.ids(extent)
        first, last = _bounds(extent, counts)
        numerics.add_by_hit(load, cell, weight, _owner_of(term, ids, recording), ids, first, last)
    else:
        chosen = spikes if isinstance(extent, Spikes) else listed
        numerics.add_by_count(load, cell, weight, columns["sample"], np.ascontiguousarray(chosen.T, np.float64))
    return total_recorded(term, recording)


def total_recorded(term: Counted, recording: Recording) -> float:
    """Sum of weight * extent over vertices and timesteps."""
    extent = term.extent
    counts = recording.counts(extent, term.samples)[:, : term.samples]
    spikes, listed = counts[..., 0], counts[..., 1]
    if isinstance(extent, Within):
        slots = np.minimum(listed, term.summed.shape[1] - 1)
        return float(term.summed[np.arange(term.samples), slots].sum())
    if isinstance(extent, Hits):
        ids = recording.ids(extent)
        first, last = _bounds(extent, recording.counts(extent, term.samples))
        return float(numerics.total_by_hit(term.weight, _owner_of(term, ids, recording), ids, first, last))
    chosen = listed if isinstance(extent, Listed) else spikes
    return float(chosen.sum(axis=0, dtype=np.float64) @ term.summed)


def _bounds(extent: Hits, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last + 1 of the listed ids that count."""
    spikes, listed = np.ascontiguousarray(counts[..., 0]), np.ascontiguousarray(counts[..., 1])
    first = spikes if extent.which == "gradient" else np.zeros_like(spikes)
    return first, spikes if extent.which == "spikes" else listed


def _owner_of(term: Counted, ids: np.ndarray, recording: Recording) -> np.ndarray:
    """The owner of every id that may be listed, of every sample of the recording."""
    assert term.owner is not None
    samples, neurons = ids.shape[1], recording.neurons(term.extent)
    if term.owner.shape[0] >= samples and term.owner.shape[1] >= neurons:
        return term.owner
    return _owner(term.columns, max(neurons, term.owner.shape[1]), max(samples, term.owner.shape[0]))


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
