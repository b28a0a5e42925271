"""Reductions over tiles, in stages as the library does them: on every tile, between tiles, at the result.

When another stage between tiles pays off, and how many partial results it combines: PopLibs
lib/popops/reduction/ReductionPlan.cpp and ReductionStages.cpp (graphcore/poplibs 7eac0f2). Differences: stages begin at
the first tile and not at a pseudo-random one, and of several chips each reduces what it holds before anything crosses a
link.

Rows of a table by index: gather and scatter-add, on the tiles of the table.

Every part of the table scans all indices and takes those of its own rows (the library's multi-slice and
multi-update), at the vendor's worst case, in which one context finds all of them. If a table's rows are spread over
tiles, the parts' results are added; a row that a part does not have counts as zeros there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, suggest
from mimdsim.costs.library.arithmetic import vector_elements
from mimdsim.costs.library.reductions import (
    multi_slice_cycles,
    reduce_contiguous_cycles,
    reduce_strided_cycles,
    reduce_to_scalar_cycles,
    scatter_add_cycles,
)
from mimdsim.kernels.builder import Builder, Operand, at_users_line
from mimdsim.kernels.elementwise import CALL_BYTES, broadcast, copy
from mimdsim.kernels.parts import Parts, box_of, format_of, parts_of, published, same_parts
from mimdsim.program import Codelet, Field, Length, Size, TileFormula, TileMapping, Variable, fields_of, terms_of
from mimdsim.program.loops import Extent

MORE_STAGES = 64  # reductionFactorThresholdToAddMoreStages: elements a result, or a piece of a stage, is worth
TAKEN = "start_in", "stop_in"  # columns of what is reduced
OPERATIONS: dict[str, np.ufunc] = {"add": np.add, "max": np.maximum, "min": np.minimum}
SOURCE = (
    "PopLibs popops reduction vertices (lib/popops/reduction/CycleEstimationFunctions.cpp, 7eac0f2); results dealt to "
    "the contexts, and where these are fewer partial results too, which one context takes together: our own reading"
)


@at_users_line()
def reduce(k: Builder, x: Operand, axis: int | None = None, *, out: Operand, op: str = "add") -> None:
    """out <- x reduced along `axis` (None: to one number, of shape (1,)) by "add", "max" or "min", in stages."""
    x, out = k.resolve(x), k.resolve(out)
    axis, rest = _check_axis(x, axis, out, op)
    k.require_between_supersteps("a reduction over tiles")
    parts, ends = parts_of(x), parts_of(out)
    stages = _Stages(k, x.name, op, format_of(x))
    kept = _boxes_without_axis(parts, axis)
    pieces = _number_pieces(parts, kept, axis)
    if pieces is None:  # parts that do not match: everything goes to the tiles of the result
        stages.reduce(x, axis, out, ends, _source_boxes(ends, axis, x.shape))
        return
    number = int(pieces.max()) + 1
    if number == 1 and same_parts(Parts(tiles=parts.tiles, bounds=kept), ends):
        stages.reduce(x, axis, out, Parts(tiles=parts.tiles, bounds=kept), parts.bounds)
        return
    partial, held = x, parts
    if not _is_partial(parts, pieces, axis):
        boxes = np.concatenate([np.stack([pieces, pieces + 1], axis=1)[:, None], kept], axis=1)
        held = Parts(tiles=parts.tiles, bounds=boxes)
        partial = stages.partials((number, *rest), held, x)
        stages.reduce(x, axis, partial, held, parts.bounds)
    chip_of = _chips_of(k, parts.tiles, pieces)
    while (groups := _groups(k, chip_of, len(np.unique(held.tiles)), rest, op, format_of(x))) is not None:
        first, last, cuts = groups
        chip_of = chip_of[first]
        held, which = _spread(chip_of, rest, cuts, k.machine.chip.tiles)
        more = stages.partials((len(chip_of), *rest), held, x)
        reach = np.stack([first[which], last[which]], axis=1)
        stages.gather(partial, more, held, reach, held.bounds[:, 1:])
        partial = more
    stages.gather(partial, out, ends, np.tile([0, partial.shape[0]], (len(ends.tiles), 1)), ends.bounds)


@at_users_line()
def all_reduce(k: Builder, x: Operand, *, out: Operand, op: str = "add") -> None:
    """x reduced along its first axis, as `reduce`, and a copy of the result on every tile of `out`: summed in shares by
    all tiles, chip by chip first, then sent to all."""
    target = k.resolve(out)
    longest = max(range(len(target.shape)), key=lambda axis: target.shape[axis])
    name = k.unused_name(f"{k.resolve(x).name} reduced")
    shares = k.variable(name, target.shape, target.dtype, spread=longest)
    reduce(k, x, 0, out=shares, op=op)
    broadcast(k, shares, to=target)


class _Stages:
    """The supersteps of one reduction."""

    def __init__(self, k: Builder, name: str, op: str, dtype: str):
        self._k, self._name, self._op, self._dtype = k, name, op, dtype

    def partials(self, shape: tuple[int, ...], parts: Parts, like: Variable) -> Variable:
        """A variable for results of a stage, part by part on its tiles."""
        mapping = TileMapping.of_boxes(parts.tiles, parts.bounds, shape)
        return self._k.variable(self._k.unused_name(f"{self._name} partial"), shape, like.dtype, mapping=mapping)

    def gather(self, source: Variable, target: Variable, parts: Parts, reach: np.ndarray, results: np.ndarray) -> None:
        """Partial results `reach` int64[parts, 2] of `source`, the boxes `results` of each, into the parts of
        `target`."""
        boxes = np.concatenate([reach[:, None], results[:, : len(source.shape) - 1]], axis=1)
        axis = 0 if len(source.shape) > 1 else None  # a row of numbers is its own partial results
        self.reduce(source, axis, target, parts, boxes)

    def reduce(self, source: Variable, axis: int | None, target: Variable, parts: Parts, boxes: np.ndarray) -> None:
        """Boxes of `source` reduced along an axis (None: all) into the parts of `target`."""
        columns = parts.columns() | Parts(tiles=parts.tiles, bounds=boxes).columns(TAKEN)
        codelet = _reduction(self._op, self._dtype, axis, len(source.shape), len(target.shape))
        self._k.place(f"reduce {self._name}", codelet, parts.tiles, {"out": target, "source": source}, columns)


def _check_axis(x: Variable, axis: int | None, out: Variable, op: str) -> tuple[int | None, tuple[int, ...]]:
    """(the axis, None for all; shape of the result), as `out` must have it."""
    if op not in OPERATIONS:
        raise MappingError(f"reduce: no operation '{op}'{suggest(op, OPERATIONS)}")
    if axis is not None and not -len(x.shape) <= axis < len(x.shape):
        raise MappingError(f"reduce: '{x.name}' of shape {list(x.shape)} has no axis {axis}")
    axis = None if axis is None or len(x.shape) == 1 else axis % len(x.shape)
    rest = (1,) if axis is None else (*x.shape[:axis], *x.shape[axis + 1 :])
    if out.shape != rest or out.dtype != x.dtype:
        raise MappingError(
            f"reduce: '{x.name}' {x.dtype}{list(x.shape)} gives {x.dtype}{list(rest)}; '{out.name}' is "
            f"{out.dtype}{list(out.shape)}"
        )
    return axis, rest


def _boxes_without_axis(parts: Parts, axis: int | None) -> np.ndarray:
    """The boxes without the axis; for a full reduction, that of the single result."""
    if axis is None:
        return np.broadcast_to(np.array([[[0, 1]]]), (len(parts.tiles), 1, 2)).copy()
    return np.delete(parts.bounds, axis, axis=1)


def _number_pieces(parts: Parts, kept: np.ndarray, axis: int | None) -> np.ndarray | None:
    """int64[parts]: which partial result each part makes, in order of tiles; None if results differ in this."""
    if axis is None:
        return np.argsort(np.argsort(parts.tiles, kind="stable"), kind="stable")
    spans, which = np.unique(parts.bounds[:, axis], axis=0, return_inverse=True)
    _, place, counts = np.unique(kept.reshape(len(kept), -1), axis=0, return_inverse=True, return_counts=True)
    which, place = which.reshape(-1), place.reshape(-1)
    if (counts != len(spans)).any() or len(np.unique(which * len(counts) + place)) != len(which):
        return None
    first = np.full(len(spans), np.iinfo(np.int64).max)
    np.minimum.at(first, which, parts.tiles)
    order = np.empty(len(spans), np.int64)
    order[np.argsort(first, kind="stable")] = np.arange(len(spans))
    return order[which]


def _source_boxes(ends: Parts, axis: int | None, shape: tuple[int, ...]) -> np.ndarray:
    """Boxes of the source for parts of the result."""
    assert axis is not None
    whole = np.broadcast_to(np.array([[[0, shape[axis]]]]), (len(ends.tiles), 1, 2))
    return np.concatenate([ends.bounds[:, :axis], whole, ends.bounds[:, axis:]], axis=1)


def _is_partial(parts: Parts, pieces: np.ndarray, axis: int | None) -> bool:
    """Whether no tile has two elements to reduce, and x is what the first stage would leave."""
    if axis not in (None, 0) or (axis is None and parts.bounds.shape[1] > 1):
        return False
    return bool((parts.bounds[:, 0, 0] == pieces).all() and (parts.lengths[:, 0] == 1).all())


def _chips_of(k: Builder, tiles: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """int64[pieces]: the chip on which each partial result lies, or its first part."""
    chip = np.full(int(pieces.max()) + 1, k.chips, np.int64)
    np.minimum.at(chip, pieces, tiles // k.machine.chip.tiles)
    return chip


def _groups(
    k: Builder, chip_of: np.ndarray, holders: int, rest: tuple[int, ...], op: str, dtype: str
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """What another stage combines of the partial results on chips `chip_of`, int64[groups] of the first and one past
    the last, and into how many pieces each group's results are cut; None if the result comes next."""
    per_chip, outputs = k.machine.chip.tiles, int(np.prod(rest, dtype=np.int64))
    counts = np.bincount(chip_of, minlength=k.chips)
    most = int(counts.max())
    over_links = most > 1 and int((counts > 0).sum()) > 1
    few_and_spread = most < 2 * np.sqrt(per_chip) and holders > per_chip * 3 / 4
    if not over_links and (few_and_spread or most <= MORE_STAGES):
        return None
    grain = vector_elements(dtype, k.machine.tile.vector_bytes) * (2 if op == "add" else 1)
    width = min(outputs, max(grain, -(-outputs // per_chip)))
    splits = max(1, most * width // max(most * outputs // per_chip, MORE_STAGES))
    factor = most if most <= MORE_STAGES else max(2, -(-most // splits))
    edges = np.concatenate([[0], np.cumsum(counts)])
    first = np.concatenate([np.arange(low, high, factor) for low, high in pairwise(edges.tolist())])
    last = np.minimum(first + factor, edges[np.searchsorted(edges, first, side="right")])
    return first, last, -(-outputs // width)


def _spread(chips: np.ndarray, rest: tuple[int, ...], cuts: int, per_chip: int) -> tuple[Parts, np.ndarray]:
    """Groups of partial results on `chips`, each cut along its longest axis, over the tiles of their chips in turn; and
    the group of every part."""
    axis = int(np.argmax(rest))
    cuts = min(cuts, rest[axis])
    edges = np.arange(cuts + 1) * rest[axis] // cuts
    group, cut = (column.ravel() for column in np.indices((len(chips), cuts)))
    place = (group - np.searchsorted(chips, chips[group])) * cuts + cut  # on its chip
    boxes = np.repeat(np.array([[0, extent] for extent in rest], np.int64)[None], len(group), axis=0)
    boxes[:, axis] = np.stack([edges[cut], edges[cut + 1]], axis=1)
    rows = np.stack([group, group + 1], axis=1)[:, None]
    tiles = chips[group] * per_chip + place % per_chip
    return Parts(tiles=tiles, bounds=np.concatenate([rows, boxes], axis=1)), group


@lru_cache(maxsize=128)
def _reduction(op: str, dtype: str, axis: int | None, axes: int, out_axes: int) -> Codelet:
    """Reduces a box; extents 'behind ...': the axes after the reduced one, whose product is its stride."""
    ufunc = OPERATIONS[op]
    behind = {} if axis is None else {f"behind {i}": Length("source", i) for i in range(axis + 1, axes)}

    def worker(outputs: int, partials: int, stride: int, vector_bytes: int) -> int:
        formats: dict[str, Any] = {"dtype": dtype, "vector_bytes": vector_bytes}
        if outputs == 1:
            return int(reduce_to_scalar_cycles(partials, op=op.upper(), out_dtype=dtype, **formats))
        if stride == 1 and op == "add":
            return int(reduce_contiguous_cycles(outputs, partials, **formats))
        return int(reduce_strided_cycles(outputs, partials, stride=stride, op=op.upper(), out_dtype=dtype, **formats))

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        outputs, stride = extents["outputs"], np.ones_like(extents["outputs"])
        for name in behind:
            stride = stride * extents[name]
        loops = np.stack([outputs, extents["elements"] // outputs, stride], axis=-1)
        rows, which = np.unique(loops, axis=0, return_inverse=True)
        each = []
        for results, partials, apart in rows.tolist():
            share, helpers = -(-results // worker_contexts), max(1, min(worker_contexts // results, partials))
            total = worker(share, -(-partials // helpers), apart, vector_bytes)
            total += worker(share, helpers, apart, vector_bytes) if helpers > 1 else 0
            each.append(worker_contexts * total)
        return np.array(each, np.int64)[which.reshape(-1)]

    def compute(out: np.ndarray, source: np.ndarray) -> None:
        wide = source.astype(np.float32) if source.dtype == np.float16 else source  # accumulators are floats
        out[...] = ufunc.reduce(wide, axis=axis).reshape(out.shape)

    return Codelet(
        name=f"Reduce<{op.upper()},{dtype}>",
        fields=(
            Field(name="out", access="write", box=box_of(out_axes)),
            Field(name="source", access="read", box=box_of(axes, TAKEN)),
        ),
        compute=compute,
        form="vertex",
        cost=TileFormula(cycles=cycles, kind="derived", source=SOURCE),
        flops=terms_of({"elements": 1}) if dtype in ("f32", "f16") else (),
        code_bytes=512,
        extents={"outputs": Size("out"), "elements": Size("source"), **behind},
    )


@at_users_line()
def gather(k: Builder, table: Operand, indices: Operand, *, out: Operand) -> None:
    """out[i] <- table[indices[i]] of a table [rows, width]; an index outside the table gives zeros."""
    table, indices, out = k.resolve(table), k.resolve(indices), k.resolve(out)
    _check("gather", table, indices, out)
    k.require_between_supersteps("gather")
    parts, rows = parts_of(table), indices.shape[0]
    spans, piece = np.unique(parts.bounds[:, 0], axis=0, return_inverse=True)
    piece = piece.reshape(-1)
    whole = np.broadcast_to(np.array([[0, rows]]), (len(piece), 2))
    found = Parts(tiles=parts.tiles, bounds=np.stack([whole, parts.bounds[:, 1]], axis=1))
    if len(spans) == 1 and same_parts(found, parts_of(out)):
        _over_table(k, f"gather {out.name}", _gather(format_of(table), 2), parts, {"out": out, "table": table}, indices)
        return
    if len(np.unique(np.column_stack([piece, parts.bounds[:, 1]]), axis=0)) != len(piece) or len(piece) % len(spans):
        raise MappingError(f"gather: parts of '{table.name}' do not form a grid; spread it along one axis")
    boxes = np.concatenate([np.stack([piece, piece + 1], axis=1)[:, None], found.bounds], axis=1)
    shape = (len(spans), rows, table.shape[1])
    mapping = TileMapping.of_boxes(parts.tiles, boxes, shape)
    if len(spans) == 1:
        shape, mapping = shape[1:], TileMapping.of_boxes(parts.tiles, found.bounds, shape[1:])  # type: ignore[assignment]
    held = k.variable(k.unused_name(f"{table.name} found"), shape, table.dtype, mapping=mapping)
    codelet = _gather(format_of(table), len(shape))
    _over_table(k, f"gather {out.name}", codelet, parts, {"out": held, "table": table}, indices, piece)
    if len(spans) == 1:
        copy(k, held, to=out)
    else:
        reduce(k, held, 0, out=out)


@at_users_line()
def scatter_add(k: Builder, table: Operand, indices: Operand, rows: Operand) -> None:
    """table[indices[i]] += rows[i] for every i, on the tiles of the table [rows, width]; an index outside the table
    adds nothing."""
    table, indices, rows = k.resolve(table), k.resolve(indices), k.resolve(rows)
    _check("scatter_add", table, indices, rows)
    codelet = _scatter(format_of(table))
    _over_table(k, f"scatter_add {table.name}", codelet, parts_of(table), {"table": table, "rows": rows}, indices)


def _check(what: str, table: Variable, indices: Variable, rows: Variable) -> None:
    if len(table.shape) != 2 or len(indices.shape) != 1:
        raise MappingError(
            f"{what}: a table [rows, width] and numbers [n] are needed; '{table.name}' is {list(table.shape)}, "
            f"'{indices.name}' {list(indices.shape)}"
        )
    if np.dtype(indices.dtype).kind not in "iu":
        raise MappingError(f"{what}: '{indices.name}' must hold whole numbers, it is {indices.dtype}")
    wanted = (indices.shape[0], table.shape[1])
    if rows.shape != wanted or rows.dtype != table.dtype:
        raise MappingError(
            f"{what}: '{rows.name}' must be {table.dtype}{list(wanted)}, it is {rows.dtype}{list(rows.shape)}"
        )


def _over_table(
    k: Builder,
    step: str,
    codelet: Codelet,
    parts: Parts,
    operands: dict[str, Variable],
    indices: Variable,
    piece: np.ndarray | int = 0,
) -> None:
    """One vertex for every part of the table."""
    k.place(step, codelet, parts.tiles, {**operands, "indices": indices}, {**parts.columns(), "piece": piece})


TABLE = ", ".join(box_of(2))
LOOPS: dict[str, Extent] = {"elements": Length("table", 1), "offsets": Length("indices", 0)}


def _over_indices(name: str, dtype: str, fields: str, compute: Callable[..., None], cost: TileFormula) -> Codelet:
    """A vertex that looks at all indices for rows of its part of the table; computes with the first row's number."""
    return Codelet(
        name=f"{name}<{dtype}>",
        fields=fields_of(fields),
        columns=("start0",),
        compute=compute,
        form="vertex",
        cost=cost,
        flops=terms_of({"elements offsets": 1}) if "update" in fields and dtype in ("f32", "f16") else (),
        code_bytes=CALL_BYTES,
        extents=LOOPS,
    )


@lru_cache(maxsize=16)
def _gather(dtype: str, axes: int) -> Codelet:
    """axes: 3 if the results of the table's parts are stored separately."""

    def compute(out: np.ndarray, table: np.ndarray, indices: np.ndarray, first: int) -> None:
        inside = (indices >= first) & (indices < first + len(table))
        out[...] = 0
        out[inside] = table[indices[inside] - first]

    cost = published(multi_slice_cycles, "MultiSlice, worst case", tuple(LOOPS), dtype=dtype)
    fields = f"write out[{'piece, ' if axes == 3 else ''}:, start1:stop1]; read table[{TABLE}]; read indices[:]"
    return _over_indices("MultiSlice", dtype, fields, compute, cost)


@lru_cache(maxsize=16)
def _scatter(dtype: str) -> Codelet:
    def compute(table: np.ndarray, rows: np.ndarray, indices: np.ndarray, first: int) -> None:
        inside = (indices >= first) & (indices < first + len(table))
        np.add.at(table, indices[inside] - first, rows[inside])

    def price(elements: Any, offsets: Any, *, worker_contexts: int, vector_bytes: int) -> Any:  # rows go word by word
        return scatter_add_cycles(elements, offsets, dtype=dtype, worker_contexts=worker_contexts)

    fields = f"update table[{TABLE}]; read rows[:, start1:stop1]; read indices[:]"
    cost = published(price, "MultiUpdateOp ADD, worst case", tuple(LOOPS))
    return _over_indices("MultiUpdateAdd", dtype, fields, compute, cost)
