"""A recorded activity in the form the loads need: checked against the program, values shared by terms computed once."""

from __future__ import annotations

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.base.errors import MappingError
from mimdsim.numerics.columns import worker_load as numerics
from mimdsim.program import Hits, Listed, Recorded, RecordedActivity, Within
from mimdsim.timing.extents import DataDependentTerm

BEGIN, SPIKES_END, LISTED_END = range(3)  # where in `Recording.flat` a list begins, its spikes end, it ends
WHICH = {"spikes": (BEGIN, SPIKES_END), "listed": (BEGIN, LISTED_END), "gradient": (SPIKES_END, LISTED_END)}


class Recording:
    """The lists of all layers, one after another, and counts by layer and shift.

    flat int32: the listed ids; lists int64[lists, 3]: where; a layer's lists are [timestep, sample] from its first.
    """

    def __init__(self, activity: RecordedActivity):
        self.activity = activity
        self.found: dict[tuple[int, Recorded], int] = {}  # (table, hits) -> how many, if counted already
        self._first_list: dict[str, int] = {}
        lists, listed_ids, end = [np.zeros((0, 3), np.int64)], [np.zeros(1, np.int32)], 1  # there is always an id
        for name, counts in activity.counts.items():
            if counts.size and (counts.min() < 0 or (counts[..., 0] > counts[..., 1]).any()):
                raise MappingError(
                    f"recorded activity of layer '{name}' has a negative count, or counts more spikes than listed ids: "
                    "record it with a run"
                )
            ids = activity.ids.get(name)
            if ids is None or counts.shape[:2] != ids.shape[:2]:
                continue
            capacity = ids.shape[2]
            spikes, listed = np.minimum(counts, capacity, dtype=np.int64).reshape(-1, 2).T
            own = ids[np.arange(capacity) < listed.reshape(*ids.shape[:2], 1)]
            if len(own) and own.min() < 0:  # would be used as an index
                raise MappingError(f"recorded activity of layer '{name}' lists a negative id: record it with a run")
            begins = end + np.cumsum(listed) - listed
            self._first_list[name] = sum(map(len, lists))
            lists.append(np.stack([begins, begins + spikes, begins + listed], axis=1))
            listed_ids.append(own.astype(np.int32))
            end += len(own)
        self.lists, self.flat = np.concatenate(lists), np.concatenate(listed_ids)

    def first_list(self, layer: str) -> int:
        """Where the lists of a layer begin; raises MappingError if its ids and counts are inconsistent."""
        if layer not in self._first_list:
            ids = self.activity.ids[layer].shape[:2] if layer in self.activity.ids else "none"
            raise MappingError(
                f"recorded activity of layer '{layer}' has {self.activity.counts[layer].shape[:2]} counts and {ids} "
                "lists of ids (timesteps, samples): record it with a run of the same network"
            )
        return self._first_list[layer]

    def counts(self, extent: Recorded, samples: int, times: int) -> np.ndarray:
        """int[times, batch, 2] at t + shift; raises MappingError if the recording does not fit the program."""
        layer = extent.layer
        if layer not in self.activity.counts:
            raise MappingError(
                f"recorded activity has no layer '{layer}' (it has {sorted(self.activity.counts)}): "
                "record it with a run of the same network"
            )
        found = _shift_timesteps(self.activity.counts[layer], extent.shift, times)
        if samples > found.shape[1]:
            raise MappingError(
                f"recorded activity has a batch of {found.shape[1]}, the program has {samples} samples: "
                "record it with a run of the same batch"
            )
        return found

    def by_sample(self, term: DataDependentTerm, times: int) -> np.ndarray:
        """float64[batch, times]: the term's counts of whole samples."""
        counts = self.counts(term.extent, term.samples, times)
        return np.ascontiguousarray(counts[..., int(isinstance(term.extent, Listed))].T, np.float64)

    def by_vertex(self, term: DataDependentTerm, rows: np.ndarray, times: int) -> np.ndarray:
        """float64[times, rows]: turns of the loop nest of some vertices, weight * extent, in every timestep."""
        extent, columns = term.extent, {name: wide(column[rows]) for name, column in term.columns.items()}
        counts = self.counts(extent, term.samples, times).astype(np.int64)
        first = columns["sample"] if "sample" in columns else columns["sample_start"]
        last = columns["sample"] + 1 if "sample" in columns else columns["sample_stop"]
        if isinstance(extent, Within):
            found = columns["slot"] < counts[:, first, 1]
        elif isinstance(extent, Hits):
            found = self._hits(extent, counts, np.stack([first, last, columns["start"], columns["stop"]], axis=1))
        else:
            running = np.zeros((times, counts.shape[1] + 1), np.int64)
            np.cumsum(counts[..., int(isinstance(extent, Listed))], axis=1, out=running[:, 1:])
            found = running[:, last] - running[:, first]
        turns: np.ndarray = term.weight[rows] * found
        return turns

    def _hits(self, extent: Hits, counts: np.ndarray, vertices: np.ndarray) -> np.ndarray:
        """int64[times, vertices]: listed ids in start..stop-1 of samples first..last-1, a row of `vertices` each."""
        ids = _shift_timesteps(np.asarray(self.activity.ids[extent.layer]), extent.shift, len(counts))
        begin, end = WHICH[extent.which]
        edges = np.concatenate([np.zeros_like(counts[..., :1]), counts], axis=-1)[..., None]
        place = np.arange(ids.shape[-1])
        listed = (edges[:, :, begin] <= place) & (place < edges[:, :, end])
        return np.stack(
            [
                (listed & (start <= ids) & (ids < stop))[:, first:last].sum(axis=(1, 2))
                for first, last, start, stop in vertices.tolist()
            ],
            axis=1,
        )

    def total(self, term: DataDependentTerm, times: int) -> float:
        """Sum of weight * extent over vertices and timesteps."""
        extent = term.extent
        if isinstance(extent, Hits):
            return self._total_hits(term, extent, times)
        if isinstance(extent, Within):
            listed = self.counts(extent, term.samples, times)[:, : term.samples, 1]
            slots = np.minimum(listed, term.summed.shape[1] - 1)
            return float(term.summed[np.arange(term.samples), slots].sum())
        return float(self.by_sample(term, times).sum(axis=1)[: term.samples] @ term.summed)

    def _total_hits(self, term: DataDependentTerm, extent: Hits, times: int) -> float:
        known = self.found.get((id(term.table), extent))
        if term.single is not None and known is not None:
            return term.single * known
        batch = self.counts(extent, term.samples, times).shape[1]
        at = extent.shift, times, self.first_list(extent.layer), batch
        which = np.array(WHICH[extent.which])
        assert term.owner is not None
        weights, owner = np.ascontiguousarray(term.summed, np.float64), wide(term.owner)
        return float(numerics.total_by_hit(weights, owner, *at, which, self.lists, self.flat))


def _shift_timesteps(sequence: np.ndarray, shift: int, times: int) -> np.ndarray:
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
