"""Codelets of dense products on the matrix unit: partial product, sum of partial products."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.costs.library.dense import amp_1x1_cycles
from mimdsim.costs.library.reductions import reduce_add_cycles
from mimdsim.program import Codelet, Column, Length, TileFormula, fields_of, terms_of

POPLIN = "PopLibs lib/poplin/PerformanceEstimation.hpp (7eac0f2)"


def partial_product_cycles(
    positions: Any, out_groups: Any, in_groups: Any, *, shared: tuple[str, str, int, int, int], worker_contexts: int
) -> Any:
    """Tile cycles of ConvPartial1x1Out for arrays of loop counts; `shared` as the arguments of `product_codelet`.

    The vendor's formula is bilinear in the two numbers of groups, so four of its values for every number of positions
    determine it exactly everywhere.
    """
    dtype, partials_dtype, units, channels, load_bytes = shared
    positions, outs, ins = np.broadcast_arrays(positions, out_groups, in_groups)
    counts, which = np.unique(positions, return_inverse=True)
    corners = np.array(
        [
            [
                amp_1x1_cycles(
                    int(count),
                    in_groups=i,
                    out_groups=o,
                    out_channels_per_group=units,
                    in_channels_per_group=channels,
                    dtype=dtype,
                    partials_dtype=partials_dtype,
                    conv_units=units,
                    load_bytes_per_cycle=load_bytes,
                    worker_contexts=worker_contexts,
                )
                for o, i in ((1, 1), (2, 1), (1, 2), (2, 2))
            ]
            for count in counts
        ],
        np.int64,
    ).reshape(-1, 4)
    base, more_out, more_in, both = corners[which.reshape(positions.shape)].transpose(-1, *range(positions.ndim))
    o, i = outs - 1, ins - 1
    return base + o * (more_out - base) + i * (more_in - base) + o * i * (both - more_out - more_in + base)


@lru_cache(maxsize=64)
def product_formula(dtype: str, partials_dtype: str, units: int, channels: int, load_bytes: int) -> TileFormula:
    """A partial product on the matrix unit, by extents 'positions', 'out_groups', 'in_groups'."""
    shared = dtype, partials_dtype, units, channels, load_bytes

    def cycles(extents: dict[str, Any], worker_contexts: int, _vector_bytes: int) -> Any:
        counts = (extents[name] for name in ("positions", "out_groups", "in_groups"))
        return partial_product_cycles(*counts, shared=shared, worker_contexts=worker_contexts)

    return TileFormula(cycles=cycles, kind="published", source=f"ConvPartial1x1Out, {POPLIN}")


def partial_sum_cycles(
    outputs: Any, partials: Any, *, dtype: str, out_dtype: str, worker_contexts: int, vector_bytes: int
) -> Any:
    """Tile cycles of ReduceAdd for arrays of counts; the partial sums lie apart, arriving from several tiles."""
    pairs = np.stack(np.broadcast_arrays(outputs, partials), axis=-1)
    rows, which = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    each = [
        reduce_add_cycles(
            int(n),
            int(p),
            dtype=dtype,
            out_dtype=out_dtype,
            worker_contexts=worker_contexts,
            vector_bytes=vector_bytes,
        )
        for n, p in rows
    ]
    return np.array(each, np.int64)[which.reshape(-1)].reshape(pairs.shape[:-1])


@lru_cache(maxsize=16)
def sum_formula(outputs: str, dtype: str, partials_dtype: str) -> TileFormula:
    """A sum of 'partials' for each of so many `outputs`, an extent."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        how = {"dtype": partials_dtype, "out_dtype": dtype}
        counts = extents[outputs], extents["partials"]
        return partial_sum_cycles(*counts, **how, worker_contexts=worker_contexts, vector_bytes=vector_bytes)

    return TileFormula(cycles=cycles, kind="published", source=f"ReduceAdd, {POPLIN}")


def _multiply(left: np.ndarray, right: np.ndarray, partial: np.ndarray, rows: int, inner: int, columns: int) -> None:
    """left [pieces, n] holds rows x inner, right inner x columns, partial [1, n] rows x columns, all in C order."""
    a = left.reshape(-1)[: rows * inner].reshape(rows, inner).astype(np.float32)
    b = right.reshape(-1)[: inner * columns].reshape(inner, columns).astype(np.float32)
    flat = partial.reshape(-1)
    flat[: rows * columns] = (a @ b).reshape(-1)
    flat[rows * columns :] = 0


@lru_cache(maxsize=64)
def product_codelet(dtype: str, partials_dtype: str, units: int, channels: int, load_bytes: int) -> Codelet:
    """Partial product of one tile on the matrix unit; the sums start at zero. Boxes: pieces of the operands."""
    return Codelet(
        name=f"PartialProduct<{dtype},{partials_dtype}>",
        fields=fields_of(
            "read left[left_start:left_stop, :]; read right[right_start:right_stop, :]; write partial[sums, :]"
        ),
        columns=("rows", "inner", "positions"),
        compute=_multiply,
        form="vertex",
        cost=product_formula(dtype, partials_dtype, units, channels, load_bytes),
        flops=terms_of({"products": 2}),
        code_bytes=1024,
        extents={
            "positions": Column("positions"),
            "out_groups": Column("rows", per=units),
            "in_groups": Column("inner", per=channels),
        },
    )


def _add(partials: np.ndarray, total: np.ndarray) -> None:
    total.reshape(-1)[:] = partials.astype(np.float32).sum(axis=0)


@lru_cache(maxsize=16)
def sum_codelet(dtype: str, partials_dtype: str) -> Codelet:
    """Sum of one share of the partial products of several tiles, cast to `dtype` as it is stored."""
    return Codelet(
        name=f"ReduceAdd<{partials_dtype},{dtype}>",
        fields=fields_of("read partials[sums_start:sums_stop, share_start:share_stop]; write total[place, :]"),
        compute=_add,
        form="vertex",
        cost=sum_formula("outputs", dtype, partials_dtype),
        flops=terms_of({"outputs partials": 1}),
        code_bytes=512,
        extents={"outputs": Length("partials", 1), "partials": Length("partials", 0)},
    )
