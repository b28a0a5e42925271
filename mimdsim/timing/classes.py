"""Classes of tiles: tiles with the same vertices on the same contexts take the same cycles, and are costed once.

Of one superstep, tiles are of one *kind* when what no spike changes of them agrees, and the samples and slots whose
spikes they count. Tiles that count hits have a *row* of their own, the others of a kind share one. Between two syncs
of a chip, tiles that agree in every superstep are one class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.numerics import loads as numerics
from mimdsim.numerics.alike import number_alike
from mimdsim.program import Hits, Within
from mimdsim.timing.extents import Counted
from mimdsim.timing.recording import WHICH, Recording


@dataclass(frozen=True, kw_only=True, eq=False)
class Dealt:
    """Vertices of one table on their tiles (from the superstep's first) and contexts, and what each costs in bundles:
    `constant`, and by the terms that count spikes."""

    tile: np.ndarray
    context: np.ndarray
    constant: np.ndarray
    terms: tuple[Counted, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Counting:
    """The bundles of a superstep that depend on spikes.

    row_of int64[tiles]: the row of a tile, `rows` where it has no vertices; runs int64[kinds + 1]: first row of a kind.
    constant float64[contexts * kinds]; by_sample: (cells of kinds, weights and samples of their vertices) by term; the
    rest are the arguments of `numerics.add_by_id`, in `packed` a row per term of `by_id` without where its lists are.
    """

    contexts: int
    row_of: np.ndarray
    rows: int
    runs: np.ndarray
    constant: np.ndarray
    by_sample: tuple[tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...], Counted], ...]
    by_id: tuple[Counted, ...]
    packed: np.ndarray
    cells: np.ndarray
    weights: np.ndarray
    begins: np.ndarray


def classes_of(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(class int64[entries], first entry of each class) of equal columns; classes in order of their first entry."""
    lines = np.ascontiguousarray(columns.T)
    begins = np.arange(len(lines) + 1) * lines.shape[1]
    numbered: tuple[np.ndarray, np.ndarray] = number_alike(
        np.zeros(len(lines), np.int64), begins, lines.reshape(-1).view(np.int64)
    )
    return numbered


def counting(dealt: list[Dealt], tiles: int, contexts: int) -> Counting:
    """How the bundles of a superstep are counted; some term of `dealt` counts spikes."""
    constant = np.zeros((contexts, tiles))
    alike = np.zeros(tiles, np.int64)
    own = np.full(tiles, -1, np.int64)
    used = np.zeros(tiles, bool)
    for one in dealt:
        used[one.tile] = True
        constant += np.bincount(
            one.context * tiles + one.tile, weights=one.constant, minlength=contexts * tiles
        ).reshape(contexts, tiles)
        for term in one.terms:
            if isinstance(term.extent, Hits):
                own[one.tile] = one.tile
            else:
                _tell_apart(alike, one, term)
    where = np.flatnonzero(used)
    kind, first = classes_of(np.vstack([alike.astype(np.float64), constant])[:, where])
    row_first, row_tile, row = np.unique(np.stack([kind, own[where]]), axis=1, return_index=True, return_inverse=True)
    rows, kinds = row_first.shape[1], len(first)
    row_of = np.full(tiles, rows, np.int64)
    row_of[where] = row.reshape(-1)
    chosen = np.full(tiles, -1, np.int64)  # tiles that stand for their kind
    chosen[where[first]] = np.arange(kinds)
    standing = np.full(tiles, -1, np.int64)  # tiles that stand for their row
    standing[where[row_tile]] = np.arange(rows)
    by_sample = tuple(_of_kinds(one, term, chosen, kinds) for one in dealt for term in one.terms if not term.by_id)
    return Counting(
        contexts=contexts,
        row_of=row_of,
        rows=rows,
        runs=np.searchsorted(row_first[0], np.arange(kinds + 1)),
        constant=np.ascontiguousarray(constant[:, where[first]]).reshape(-1),
        by_sample=by_sample,
        **_packed([(one, term) for one in dealt for term in one.terms if term.by_id], standing, rows),
    )


def _sample_columns(term: Counted) -> tuple[np.ndarray, ...]:
    """What says which spikes a vertex counts, but for `Hits`."""
    names = ("sample",) if "sample" in term.columns else ("sample_start", "sample_stop")
    slot = (term.columns["slot"],) if isinstance(term.extent, Within) else ()
    return *(term.columns[name] for name in names), *slot


def _tell_apart(alike: np.ndarray, one: Dealt, term: Counted) -> None:
    """New numbers in `alike` int64[tiles] for the tiles on which one term finds vertices: equal where they were equal
    and the vertices are. Tiles without keep theirs: on many chips a term has vertices on few tiles."""
    order = np.argsort(one.tile, kind="stable")
    columns = (one.context.astype(np.float64), term.weight, *_sample_columns(term))
    lines = np.column_stack(columns)[order]
    tiles, begins = np.unique(one.tile[order], return_index=True)
    edges = np.append(begins, len(order)) * lines.shape[1]
    number, _ = number_alike(alike[tiles], edges, lines.reshape(-1).view(np.int64))
    alike[tiles] = int(alike.max(initial=0)) + 1 + number


def _of_kinds(
    one: Dealt, term: Counted, chosen: np.ndarray, kinds: int
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...], Counted]:
    kept = np.flatnonzero(chosen[one.tile] >= 0)
    cell = one.context[kept] * kinds + chosen[one.tile[kept]]
    return cell, term.weight[kept], tuple(column[kept] for column in _sample_columns(term)), term


class _Joined:
    """Columns put one after another."""

    def __init__(self, first: np.ndarray):
        self.parts, self.length = [first], len(first)

    def place(self, more: np.ndarray) -> int:
        """Where the column begins that is put behind the others."""
        at = self.length
        self.parts.append(more)
        self.length += len(more)
        return at


def _packed(terms: list[tuple[Dealt, Counted]], standing: np.ndarray, rows: int) -> dict[str, Any]:
    packed = np.zeros((len(terms), 12), np.int64)
    cells, weights, begins = (_Joined(np.zeros(1, kind)) for kind in (np.int32, np.float64, np.int64))
    for entry, (one, term) in zip(packed, terms, strict=True):
        cell = (one.context * rows + standing[one.tile]).astype(np.int32)
        weight = term.weight
        entry[numerics.SHIFT], entry[numerics.SAMPLES] = term.extent.shift, term.samples
        if isinstance(term.extent, Hits):
            assert term.owner is not None
            owner = term.owner.reshape(-1)
            entry[numerics.KIND], entry[numerics.EXTENT] = numerics.HITS, term.owner.shape[1]
            entry[numerics.FROM], entry[numerics.TO] = WHICH[term.extent.which]
            cell, weight = np.where(owner >= 0, cell[owner], np.int32(-1)), weight[owner]
        else:
            sample, slot, slots = term.columns["sample"], term.columns["slot"], term.summed.shape[1] - 1
            order = np.lexsort((slot, sample))
            order = order[standing[one.tile[order]] >= 0]
            entry[numerics.KIND], entry[numerics.EXTENT] = numerics.WITHIN, slots
            bounds = np.arange(term.samples * (slots + 1))
            entry[numerics.BEGINS] = begins.place(np.searchsorted(sample[order] * (slots + 1) + slot[order], bounds))
            cell, weight = cell[order], weight[order]
        entry[numerics.CELLS], entry[numerics.SEVERAL] = cells.place(cell), term.single is None
        entry[numerics.WEIGHTS] = weights.place(weight if term.single is None else np.array([term.single]))
    return {
        "by_id": tuple(term for _, term in terms),
        "packed": packed,
        "cells": np.concatenate(cells.parts),
        "weights": np.concatenate(weights.parts),
        "begins": np.concatenate(begins.parts),
    }


def counted_cycles(plan: Counting, times: int, recording: Recording, issue_cycles: int) -> np.ndarray:
    """float64[times, rows + 1]: cycles of the vertices of every row; the last one is of tiles without."""
    kinds = len(plan.runs) - 1
    base = np.zeros((plan.contexts * kinds if plan.by_sample else 0, times))
    for cell, weight, samples, term in plan.by_sample:
        counts = recording.by_sample(term, times)
        if len(samples) == 2:
            running = np.zeros((counts.shape[0] + 1, times))
            np.cumsum(counts, axis=0, out=running[1:])
            numerics.add_by_count_over(base, cell, weight, samples[0], samples[1], running)
        else:
            numerics.add_by_count(base, cell, weight, samples[0], counts)
    terms = plan.packed.copy()
    for entry, term in zip(terms, plan.by_id, strict=True):
        entry[numerics.BATCH] = recording.counts(term.extent, term.samples, times).shape[1]
        entry[numerics.LISTS] = recording.first_list(term.extent.layer)
    cycles, found = np.zeros((times, plan.rows + 1)), np.zeros(len(terms), np.int64)
    given: tuple[Any, ...] = terms, plan.cells, plan.weights, plan.begins, recording.lists, recording.flat
    count: Any = numerics.count_cycles
    count(cycles, base, plan.constant, plan.runs, plan.contexts, issue_cycles, *given, found)
    for term, hits in zip(plan.by_id, found.tolist(), strict=True):
        if isinstance(term.extent, Hits):
            recording.found[id(term.table), term.extent] = hits
    return cycles
