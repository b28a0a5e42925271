"""Cost terms with an extent that depends on recorded spikes: what is the same for every recording; a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.base.compressed_columns import compact, single, uniform, wide
from mimdsim.base.errors import MappingError
from mimdsim.numerics.columns import worker_load as numerics
from mimdsim.program import Hits, Listed, Recorded, RecordedActivity, SpikesOver, Term, VertexTable, Within
from mimdsim.program.loops import RECORDED, Turns

Extents = Mapping[str, np.ndarray | Recorded]


def split_extents(table: VertexTable, extents: Extents, term: Term) -> tuple[np.ndarray, Recorded | None]:
    """(product of the static extents per vertex, the recorded extent if any); extents: `extents_of` the table."""
    static: Any = 1.0
    recorded: Recorded | None = None
    for name in term.extents:
        if name not in extents:
            raise MappingError(
                f"codelet '{table.codelet.name}' ({table.layer}): its cost needs the extent '{name}', "
                f"codelet and table give {sorted(extents)}"
            )
        extent = extents[name]
        if isinstance(extent, RECORDED):
            if recorded is not None:
                raise MappingError(f"codelet '{table.codelet.name}': a cost term has two extents that depend on spikes")
            recorded = extent
        else:
            static = static * single(np.asarray(extent))
    return np.broadcast_to(np.asarray(static, np.float64), table.vertices), recorded


@dataclass(frozen=True, kw_only=True, eq=False)
class DataDependentTerm:
    """A cost term whose loop nest counts spikes: its turns per spike, and which spikes count.

    term: what a turn costs, as bundles or flops. weight float64[vertices]: product of the other extents. columns: the
    table's, as they are there. samples: how many samples they name. single: the common weight of all vertices, else
    None. owner int[batch, neurons], `compact`, for hits: the group of vertices whose sample and range include a neuron,
    -1 if none does. members, begins: the vertices of group g are members[begins[g]:begins[g + 1]]. summed: the weights
    of vertices that count the same, by group for hits, else by sample; for `Within` those of all slots below, [samples,
    slots + 1].
    """

    term: Term
    table: VertexTable
    weight: np.ndarray
    single: float | None
    extent: Recorded
    columns: dict[str, np.ndarray]
    samples: int
    owner: np.ndarray | None
    members: np.ndarray
    begins: np.ndarray
    summed: np.ndarray

    @property
    def by_id(self) -> bool:
        """Whether it counts individual listed ids rather than whole samples."""
        return isinstance(self.extent, Hits | Within)

    def bundles(self, dual_issue: float) -> float:
        """Per turn, if a compiler pairs the share `dual_issue` of the pairable ones."""
        return self.term.bundles - dual_issue * self.term.pairable


def data_dependent_term(table: VertexTable, term: Term, weight: np.ndarray, extent: Recorded) -> DataDependentTerm:
    """The part of a term that does not depend on activity.

    Raises MappingError if the table lacks the columns that determine which spikes count, or if two vertices count the
    same spike.
    """
    if isinstance(extent, Turns):
        columns = {"sample": np.arange(table.vertices)}
    else:
        columns = {name: table.columns[name] for name in _columns_of(table, extent)}
    weight = uniform(weight)
    last = columns.get("sample_stop")
    samples = int(columns["sample"].max(initial=0)) + 1 if last is None else int(last.max(initial=1))
    owner, members, begins = None, np.zeros(0, np.int64), np.zeros(1, np.int64)
    if isinstance(extent, Hits):
        members, begins = _groups(columns)
        owner = _owner(table, columns, samples, members[begins[:-1]])
    return DataDependentTerm(
        term=term,
        table=table,
        weight=weight,
        single=float(weight[0]) if len(weight) and (single(weight) == weight[0]).all() else None,
        extent=extent,
        columns=columns,
        samples=samples,
        owner=owner,
        members=members,
        begins=begins,
        summed=_weight_sums(weight, extent, columns, samples)
        if owner is None
        else _group_sums(weight, members, begins),
    )


def _columns_of(table: VertexTable, extent: Recorded) -> tuple[str, ...]:
    """The columns that say which spikes a vertex counts."""
    one_sample = not isinstance(extent, SpikesOver) and ("sample" in table.columns or not isinstance(extent, Hits))
    wanted: tuple[str, ...] = ("sample",) if one_sample else ("sample_start", "sample_stop")
    wanted += {Within: ("slot",), Hits: ("start", "stop")}.get(type(extent), ())
    absent = [name for name in wanted if name not in table.columns]
    if absent:
        raise MappingError(
            f"codelet '{table.codelet.name}' ({table.layer}): its cost counts {type(extent).__name__}, which needs the "
            f"column(s) {absent}; the table has {sorted(table.columns)}"
        )
    return wanted


def _weight_sums(weight: np.ndarray, extent: Recorded, columns: dict[str, np.ndarray], samples: int) -> np.ndarray:
    if isinstance(extent, SpikesOver):
        edges = np.bincount(columns["sample_start"], weights=weight, minlength=samples + 1)
        edges = edges - np.bincount(columns["sample_stop"], weights=weight, minlength=samples + 1)
        over: np.ndarray = edges.cumsum()[:samples]
        return over
    if isinstance(extent, Within):
        slot = columns["slot"]
        slots = int(slot.max()) + 1 if len(slot) else 0
        place = wide(columns["sample"]) * (slots + 1)
        np.add(place, slot, out=place, casting="unsafe")  # uint64 is none that int64 takes in
        place += 1
        each = np.bincount(place, weights=weight, minlength=samples * (slots + 1)).reshape(samples, slots + 1)
        below: np.ndarray = each.cumsum(axis=1)
        return below
    return np.bincount(columns["sample"], weights=weight, minlength=samples)


def _group_sums(weight: np.ndarray, members: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """float64[groups]: the weights of each group's vertices."""
    if len(begins) == len(members) + 1:
        return compact(weight[members])
    running = np.concatenate([[0.0], np.cumsum(weight[members])])
    total: np.ndarray = np.diff(running[begins])
    return total


def _groups(columns: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(vertices in order of their groups, int64[groups + 1]: where each begins): vertices with equal columns."""
    rows = np.stack(list(columns.values()))
    order = np.lexsort(rows[::-1])
    sorted_rows = rows[:, order]
    begins = np.ones(len(order) + 1, bool)
    begins[1:-1] = (sorted_rows[:, 1:] != sorted_rows[:, :-1]).any(axis=0)
    return order, np.flatnonzero(begins)


def _owner(table: VertexTable, columns: dict[str, np.ndarray], batch: int, heads: np.ndarray) -> np.ndarray:
    """int[batch, neurons]: the group whose sample, or samples, and range include a neuron, -1 if none does; heads: a
    vertex of each group."""
    of = {name: wide(column[heads]) for name, column in columns.items()}
    first = of["sample" if "sample" in of else "sample_start"]
    last = of["sample"] + 1 if "sample" in of else of["sample_stop"]
    start, stop = of["start"], of["stop"]
    owner = np.full((batch, int(stop.max(initial=0))), -1, np.int64)
    numerics.fill_owners(owner, first, last, start, stop)
    claimed = np.maximum(last - first, 0) @ np.maximum(stop - start, 0)
    if claimed != np.count_nonzero(owner >= 0):
        raise MappingError(
            f"codelet '{table.codelet.name}' ({table.layer}): the ranges in which two vertices count hits overlap; the "
            "columns sample(s), start and stop must be the same or separate them"
        )
    return compact(owner)


# ---- a recorded activity in the form the loads need: checked against the program, values shared by terms computed once


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
