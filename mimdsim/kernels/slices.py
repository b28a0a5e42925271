"""Rows of a table by index: gather and scatter-add, on the tiles of the table.

Every part of the table scans all indices and takes those of its own rows (the library's multi-slice and
multi-update), at the vendor's worst case, in which one context finds all of them. If a table's rows are spread over
tiles, the parts' results are added; a row that a part does not have counts as zeros there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.costs.library.reductions import multi_slice_cycles, scatter_add_cycles
from mimdsim.kernels.builder import Builder, Operand, at_users_line
from mimdsim.kernels.elementwise import CALL_BYTES, copy
from mimdsim.kernels.parts import Parts, box_of, format_of, parts_of, published, same_parts
from mimdsim.kernels.reductions import reduce
from mimdsim.program import Codelet, Length, TileFormula, TileMapping, Variable, fields_of, terms_of
from mimdsim.program.loop_extents import Extent


@at_users_line()
def gather(k: Builder, table: Operand, indices: Operand, *, out: Operand) -> None:
    """out[i] <- table[indices[i]] of a table [rows, width]; an index outside the table gives zeros."""
    table, indices, out = k.resolve(table), k.resolve(indices), k.resolve(out)
    _check("gather", table, indices, out)
    k.require_between_supersteps("gather")
    parts, rows = parts_of(table), indices.shape[0]
    spans, piece = np.unique(parts.boxes[:, 0], axis=0, return_inverse=True)
    piece = piece.reshape(-1)
    whole = np.broadcast_to(np.array([[0, rows]]), (len(piece), 2))
    found = Parts(tiles=parts.tiles, boxes=np.stack([whole, parts.boxes[:, 1]], axis=1))
    if len(spans) == 1 and same_parts(found, parts_of(out)):
        _over_table(k, f"gather {out.name}", _gather(format_of(table), 2), parts, {"out": out, "table": table}, indices)
        return
    if len(np.unique(np.column_stack([piece, parts.boxes[:, 1]]), axis=0)) != len(piece) or len(piece) % len(spans):
        raise MappingError(f"gather: parts of '{table.name}' do not form a grid; spread it along one axis")
    boxes = np.concatenate([np.stack([piece, piece + 1], axis=1)[:, None], found.boxes], axis=1)
    shape = (len(spans), rows, table.shape[1])
    mapping = TileMapping.of_boxes(parts.tiles, boxes, shape)
    if len(spans) == 1:
        shape, mapping = shape[1:], TileMapping.of_boxes(parts.tiles, found.boxes, shape[1:])  # type: ignore[assignment]
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
    k.place(step, codelet, parts.tiles, {**operands, "indices": indices}, {**parts.columns, "piece": piece})


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
    fields = f"write out[{'piece, ' if axes == 3 else ''}:, start1:stop1]; read table[{box_of(2)}]; read indices[:]"
    return _over_indices("MultiSlice", dtype, fields, compute, cost)


@lru_cache(maxsize=16)
def _scatter(dtype: str) -> Codelet:
    def compute(table: np.ndarray, rows: np.ndarray, indices: np.ndarray, first: int) -> None:
        inside = (indices >= first) & (indices < first + len(table))
        np.add.at(table, indices[inside] - first, rows[inside])

    def price(elements: Any, offsets: Any, *, worker_contexts: int, vector_bytes: int) -> Any:  # rows go word by word
        return scatter_add_cycles(elements, offsets, dtype=dtype, worker_contexts=worker_contexts)

    fields = f"update table[{box_of(2)}]; read rows[:, start1:stop1]; read indices[:]"
    cost = published(price, "MultiUpdateOp ADD, worst case", tuple(LOOPS))
    return _over_indices("MultiUpdateAdd", dtype, fields, compute, cost)
