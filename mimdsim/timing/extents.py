"""Cost terms with an extent that depends on recorded spikes: the part that is the same for every recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.base.compressed_columns import compact, single, uniform, wide
from mimdsim.base.errors import MappingError
from mimdsim.numerics.columns import worker_load as numerics
from mimdsim.program import Hits, Recorded, SpikesOver, Term, VertexTable, Within
from mimdsim.program.loop_extents import RECORDED, Turns

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
