"""Classes of tiles: tiles with the same vertices in the same places take the same cycles and are costed once.

Within a superstep, tiles are of one *kind* if they agree in everything that does not depend on spikes, and in the
samples and slots whose spikes they count. Each tile that counts hits has its own *row*; the others of a kind share one.
Between two syncs of a chip, tiles that agree in every superstep form one class.

A vertex has a *place* among the workers of its tile; context `place % contexts` runs it. So kinds and rows belong to
the program and work for any number of contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mimdsim.base.compressed_columns import compact, wide
from mimdsim.numerics.columns import worker_load as numerics
from mimdsim.numerics.columns.worker_load import number_alike, order_by
from mimdsim.program import Hits, Within
from mimdsim.timing.recording import WHICH, DataDependentTerm, Recording
from mimdsim.timing.tile_cycles import TileIssue


@dataclass(frozen=True, kw_only=True, eq=False)
class PlacedTable:
    """Vertices of one table on their tiles, counted from `first`, and in their places, and the cost of each: `bundles`,
    of which `pairable` could go into others, and the terms that count spikes. tiles and place are `compact`."""

    tiles: np.ndarray
    first: int
    place: np.ndarray
    bundles: np.ndarray
    pairable: np.ndarray
    terms: tuple[DataDependentTerm, ...]

    @property
    def tile(self) -> np.ndarray:
        """int64[vertices]: the tile of each from the superstep's first on."""
        result: np.ndarray = np.subtract(self.tiles, self.first, dtype=np.int64)
        return result

    def constant(self, dual_issue: float) -> np.ndarray:
        """float64[vertices]: bundles independent of spikes, with a share of the pairable ones issued together with
        others."""
        return self.bundles - dual_issue * self.pairable if dual_issue else self.bundles

    def total(self, dual_issue: float) -> float:
        """Constant bundles of all vertices together."""
        return float(self.bundles.sum()) - dual_issue * float(self.pairable.sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class BySample:
    """Vertices that count spikes of whole samples, on one tile of each kind, and the samples that they count."""

    place: np.ndarray
    kind: np.ndarray
    weight: np.ndarray
    samples: tuple[np.ndarray, ...]
    term: DataDependentTerm


@dataclass(frozen=True, kw_only=True, eq=False)
class CountingPlan:
    """The bundles of a superstep that depend on spikes.

    row_of int64[tiles]: the row of a tile, `rows` if it has no vertices; runs int64[kinds + 1]: first row of a kind.
    standing: by table, all vertices of one tile of each kind, with their kinds. The rest are the arguments of
    `numerics.add_by_id`: in `packed`, a row per term of `by_id`, without the positions of its lists; and instead of
    `cells` the place (-1 for none) and row of each.
    """

    row_of: np.ndarray
    rows: int
    runs: np.ndarray
    standing: tuple[tuple[np.ndarray, PlacedTable], ...]
    by_sample: tuple[BySample, ...]
    by_id: tuple[DataDependentTerm, ...]
    packed: np.ndarray
    cell_place: np.ndarray
    cell_row: np.ndarray
    weights: np.ndarray
    begins: np.ndarray
    _arguments: dict[tuple[int, float], tuple[np.ndarray, ...]] = field(default_factory=dict)

    def arguments(self, issue: TileIssue) -> tuple[np.ndarray, ...]:
        """constant, weights and cells of `numerics.count_cycles` for tiles that issue so; the last ones are kept."""
        key = issue.contexts, issue.compiled_dual_issue
        if key not in self._arguments:
            self._arguments.clear()
            self._arguments[key] = self._prepare(*key)
        return self._arguments[key]

    def _prepare(self, contexts: int, dual_issue: float) -> tuple[np.ndarray, ...]:
        kinds = len(self.runs) - 1
        constant = np.zeros(contexts * kinds)
        for kind, one in self.standing:
            cell = one.place % contexts * kinds + kind
            constant += np.bincount(cell, weights=one.constant(dual_issue), minlength=len(constant))
        weights = self.weights.copy()
        ends = [*self.packed[1:, numerics.WEIGHTS].tolist(), len(weights)][: len(self.packed)]
        for entry, end, term in zip(self.packed, ends, self.by_id, strict=True):
            weights[entry[numerics.WEIGHTS] : end] *= term.bundles(dual_issue)
        place = self.cell_place.astype(np.int32)
        return constant, weights, numerics.cells_on(place, self.cell_row, self.rows, contexts)


def classes_of(columns: Sequence[np.ndarray], entries: int) -> tuple[np.ndarray, np.ndarray]:
    """(class int64[entries], first entry of each class) of entries equal in all columns; classes in order of their
    first entry."""
    lines = np.empty((entries, len(columns)), np.int64)
    for at, column in enumerate(columns):
        lines[:, at] = column
    begins = np.arange(len(lines) + 1) * lines.shape[1]
    numbered: tuple[np.ndarray, np.ndarray] = number_alike(np.zeros(len(lines), np.int64), begins, lines.reshape(-1))
    return numbered


def plan_counting(placed: list[PlacedTable], tiles: int) -> CountingPlan:
    """How the bundles of a superstep are counted; at least one of `placed` counts spikes."""
    alike = np.zeros(tiles, np.int64)
    own = np.full(tiles, -1, np.int64)
    used = np.zeros(tiles, bool)
    for one in placed:
        tile = one.tile
        used[tile] = True
        if any(isinstance(term.extent, Hits) for term in one.terms):
            own[tile] = tile
        _refine_classes(alike, one)
    where = np.flatnonzero(used)
    by_kind, begins = order_by(alike[where], int(alike.max(initial=-1)) + 1)
    where = where[by_kind]  # tiles of a kind, ascending; either all or none of them have rows of their own
    starts = begins[:-1][begins[1:] > begins[:-1]]
    opens = own[where] >= 0
    opens[starts] = True
    heads = np.flatnonzero(opens)
    rows, kinds = len(heads), len(starts)
    row_of = np.full(tiles, rows, np.int64)
    row_of[where] = np.cumsum(opens) - 1
    kind_of = np.full(tiles, -1, np.int64)  # for tiles that represent their kind
    kind_of[where[starts]] = np.arange(kinds)
    standing_for = np.full(tiles, -1, np.int64)  # rows of tiles that represent them
    standing_for[where[heads]] = np.arange(rows)
    return CountingPlan(
        row_of=compact(row_of),
        rows=rows,
        runs=np.searchsorted(heads, np.append(starts, len(where))),
        standing=tuple(_representative_rows(one, kind_of) for one in placed),
        by_sample=tuple(_by_sample(one, term, kind_of) for one in placed for term in one.terms if not term.by_id),
        **_pack_terms([(one, each) for one in placed for each in one.terms if each.by_id], standing_for, rows),
    )


def _sample_columns(term: DataDependentTerm) -> tuple[np.ndarray, ...]:
    """The columns that determine which spikes a vertex counts, except for `Hits`."""
    names = [name for name in ("sample", "sample_start", "sample_stop") if name in term.columns]
    slot = (term.columns["slot"],) if isinstance(term.extent, Within) else ()
    return *(term.columns[name] for name in names), *slot


def _refine_classes(alike: np.ndarray, one: PlacedTable) -> None:
    """Renumber in `alike` int64[tiles] the tiles on which a table has vertices: equal where the old numbers and the
    vertices are equal. Tiles without vertices keep theirs: on many chips a table has vertices on few tiles."""
    order, begins = _by_tile(one.tile, len(alike))
    columns = [one.place, one.bundles, one.pairable]
    for term in one.terms:
        if not isinstance(term.extent, Hits):
            columns += [term.weight, *_sample_columns(term)]
    columns[1:] = [column for column in columns[1:] if any(column.strides)]  # the others are the same everywhere
    tiles = np.flatnonzero(np.diff(begins))
    words = _words([column[order] for column in columns])
    edges = begins[np.append(tiles, len(alike))] * (words.size // max(1, len(one.place)))
    number, _ = number_alike(alike[tiles], edges, words)
    alike[tiles] = int(alike.max(initial=0)) + 1 + number


def _by_tile(tile: np.ndarray, tiles: int) -> tuple[Any, np.ndarray]:
    """(vertices in order of their tiles, where each tile begins and the end)."""
    if (tile[1:] >= tile[:-1]).all():
        return slice(None), np.append(0, np.bincount(tile, minlength=tiles).cumsum())
    ordered: tuple[np.ndarray, np.ndarray] = order_by(tile, tiles)
    return ordered


def _words(columns: list[np.ndarray]) -> np.ndarray:
    """int64: the bits of columns, row after row, each filled up to whole words."""
    kinds, names = [column.dtype for column in columns], [str(at) for at in range(len(columns))]
    ends = np.cumsum([kind.itemsize for kind in kinds]).tolist()
    line = np.dtype({"names": names, "formats": kinds, "offsets": [0, *ends[:-1]], "itemsize": -(-ends[-1] // 8) * 8})
    rows = np.zeros(len(columns[0]), line)
    for name, column in zip(names, columns, strict=True):
        rows[name] = column
    return rows.view(np.int64)


def _representative_rows(one: PlacedTable, kind_of: np.ndarray) -> tuple[np.ndarray, PlacedTable]:
    kind = kind_of[one.tile]
    kept = np.flatnonzero(kind >= 0)
    return kind[kept], PlacedTable(
        tiles=one.tiles[kept],
        first=one.first,
        place=wide(one.place[kept]),
        bundles=one.bundles[kept],
        pairable=one.pairable[kept],
        terms=(),
    )


def _by_sample(one: PlacedTable, term: DataDependentTerm, kind_of: np.ndarray) -> BySample:
    kind = kind_of[one.tile]
    kept = np.flatnonzero(kind >= 0)
    return BySample(
        place=wide(one.place[kept]),
        kind=kind[kept],
        weight=term.weight[kept],
        samples=tuple(wide(column[kept]) for column in _sample_columns(term)),
        term=term,
    )


def _append(columns: list[np.ndarray], more: np.ndarray) -> int:
    """Append a column to those that will be one; returns where it begins there."""
    columns.append(more)
    return sum(map(len, columns[:-1]))


def _pack_terms(
    terms: list[tuple[PlacedTable, DataDependentTerm]], standing_for: np.ndarray, rows: int
) -> dict[str, Any]:
    packed = np.zeros((len(terms), 12), np.int64)
    kinds = np.int32, np.int32, np.float64, np.int64
    places, on_rows, weights, begins = ([np.zeros(1, kind)] for kind in kinds)
    for entry, (one, term) in zip(packed, terms, strict=True):
        place, row = one.place, standing_for[one.tile].astype(np.int32)
        weight = term.weight
        entry[numerics.SHIFT], entry[numerics.SAMPLES] = term.extent.shift, term.samples
        if isinstance(term.extent, Hits):
            assert term.owner is not None
            entry[numerics.EXTENT] = term.owner.shape[1]
            entry[numerics.FROM], entry[numerics.TO] = WHICH[term.extent.which]
            if len(term.begins) == term.table.vertices + 1:  # one vertex for every id
                entry[numerics.KIND] = numerics.HITS
                if term.single is None:
                    weight = weight[term.members[term.owner.reshape(-1)]]  # any weight where there is no owner
                place, row = numerics.of_owners(wide(term.owner), term.members, place.astype(np.int32), row)
            else:
                entry[numerics.KIND] = numerics.SHARED_HITS
                order, bounds = _group_members(term, row)
                entry[numerics.BEGINS] = _append(begins, term.owner.reshape(-1))
                begins.append(bounds)
                place, row, weight = place[order], row[order], weight[order]
        else:
            kept, slots = np.flatnonzero(row >= 0), term.summed.shape[1] - 1
            order = kept[np.lexsort([term.columns[name][kept] for name in ("slot", "sample")])]
            sample, slot = (wide(term.columns[name][order]) for name in ("sample", "slot"))
            entry[numerics.KIND], entry[numerics.EXTENT] = numerics.WITHIN, slots
            bounds = np.arange(term.samples * (slots + 1))
            entry[numerics.BEGINS] = _append(begins, np.searchsorted(sample * (slots + 1) + slot, bounds))
            place, row, weight = place[order], row[order], weight[order]
        entry[numerics.CELLS], entry[numerics.SEVERAL] = _append(places, place), term.single is None
        on_rows.append(row)
        entry[numerics.WEIGHTS] = _append(weights, weight if term.single is None else np.array([term.single]))
    return {
        "by_id": tuple(term for _, term in terms),
        "packed": packed,
        "cell_place": compact(np.concatenate(places)),
        "cell_row": np.concatenate(on_rows),
        "weights": np.concatenate(weights),
        "begins": np.concatenate(begins),
    }


def _group_members(term: DataDependentTerm, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(vertices of tiles that represent their row, in order of groups, where each group begins)."""
    kept = row[term.members] >= 0
    bounds = np.concatenate([[0], np.cumsum(kept)])[term.begins]
    return term.members[kept], bounds


def counter_of(plan: CountingPlan, times: int, recording: Recording, issue: TileIssue) -> Callable[[range], np.ndarray]:
    """What gives, for some of the turns, float64[turns, rows + 1]: cycles of the vertices of every row; the last is for
    tiles without vertices. All turns of a machine of many tiles at once would take more memory than its program."""
    kinds = len(plan.runs) - 1
    constant, weights, cells = plan.arguments(issue)
    base = _counted_samples(plan.by_sample, kinds, times, recording, issue)
    terms = plan.packed.copy()
    for entry, term in zip(terms, plan.by_id, strict=True):
        entry[numerics.BATCH] = recording.counts(term.extent, term.samples, times).shape[1]
        entry[numerics.LISTS] = recording.first_list(term.extent.layer)
    found = np.zeros(len(terms), np.int64)
    by_id: tuple[Any, ...] = terms, cells, weights, plan.begins, recording.lists, recording.flat
    count: Any = numerics.count_cycles

    def cycles_in(turns: range) -> np.ndarray:
        cycles = np.empty((len(turns), plan.rows + 1))
        cycles[:, -1] = 0.0
        count(cycles, turns.start, times, base, constant, plan.runs, issue.contexts, issue.issue_cycles, by_id, found)
        for term, hits in zip(plan.by_id, found.tolist() if turns.stop == times else (), strict=False):
            shared = len(term.begins) <= term.table.vertices
            if isinstance(term.extent, Hits) and not shared:
                recording.found[id(term.table), term.extent] = hits
        return cycles

    return cycles_in


def _counted_samples(
    by_sample: tuple[BySample, ...], kinds: int, times: int, recording: Recording, issue: TileIssue
) -> np.ndarray:
    """float64[contexts * kinds, times]: bundles for spikes of whole samples; no rows if none are counted."""
    base = np.zeros((issue.contexts * kinds if by_sample else 0, times))
    for each in by_sample:
        cell = each.place % issue.contexts * kinds + each.kind
        counts = recording.by_sample(each.term, times)
        weight = each.term.bundles(issue.compiled_dual_issue) * each.weight
        if len(each.samples) == 2:
            running = np.zeros((counts.shape[0] + 1, times))
            np.cumsum(counts, axis=0, out=running[1:])
            numerics.add_by_count_over(base, cell, weight, each.samples[0], each.samples[1], running)
        else:
            numerics.add_by_count(base, cell, weight, each.samples[0], counts)
    return base
