"""Dense products on the matrix unit, as the library plans them: cycles of partial products and of their sums, and
codelets whose operands and results keep the shape of the graph's values.

Blocks are boxes of the values. Either operand may be stored transposed: the weights of the gradient of the inputs, the
inputs of the gradient of the weights.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.vertex_costs import on_loops
from mimdsim.costs.library.dense import amp_1x1_cycles
from mimdsim.costs.library.reductions import reduce_add_cycles
from mimdsim.numerics.dense import elementwise as numerics
from mimdsim.program import Codelet, Length, Size, TileFormula, fields_of, terms_of
from mimdsim.program.loops import Mix

# of a multiplication on a core without a unit for products, in blocks of 2 x 2 sums that stay in registers
PRODUCT = Mix(load=1, multiply=1, add=1, loop=0.25)
POPLIN = "PopLibs lib/poplin/PerformanceEstimation.hpp (7eac0f2)"


def partial_product_cycles(
    positions: Any,
    out_groups: Any,
    in_groups: Any,
    *,
    shared: tuple[str, str, int, int, int],
    worker_contexts: int,
    assembler: bool = True,
) -> Any:
    """Tile cycles of ConvPartial1x1Out for arrays of loop counts; `shared` as the arguments of `product_formula`,
    `assembler` as of `amp_1x1_cycles`.

    Both counts are bilinear in the two numbers of groups, so four of its values for every number of positions
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
                    assembler=assembler,
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

    source = f"ConvPartial1x1Out, {POPLIN}; its loop as it is written (asm/conv_partial_1x1_*.S), where it was counted"
    return TileFormula(cycles=cycles, kind="published", source=source, mix=PRODUCT, product=True)


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


ROWS, INNER, COLUMNS = "row_start:row_stop", "inner_start:inner_stop", "start:stop"
OF_WEIGHTS = "weight_start:weight_stop"  # of groups, along the axis that they share in the weights
# per operand: whether it is stored transposed
TRANSPOSED = {"forward": (False, False), "input gradient": (False, True), "weight gradient": (True, False)}


@lru_cache(maxsize=64)
def block_product(
    kind: str, direct: bool, units: int, channels: int, load_bytes: int, grouped: bool = False, turned: bool = False
) -> Codelet:
    """Partial product of a block on the matrix unit in float32; `direct`: complete, and stored in the result; grouped:
    of a group; turned: the unit holds the right operand, and rows of the left stream past it."""
    left_transposed, right_transposed = TRANSPOSED[kind]
    across = COLUMNS if not grouped or not right_transposed else OF_WEIGHTS
    along = INNER if not grouped or left_transposed or right_transposed else OF_WEIGHTS
    down = ROWS if not grouped or not left_transposed else OF_WEIGHTS
    rows, inner, columns = (int(left_transposed), 1 - int(left_transposed), 1 - int(right_transposed))
    held = Length("right", columns) if turned else Length("left", rows)
    return Codelet(
        name=f"BlockProduct<{kind}{', group' if grouped else ''}{', turned' if turned else ''}>",
        fields=fields_of(
            f"read left[{f'{INNER}, {ROWS}' if left_transposed else f'{ROWS}, {INNER}'}]; "
            f"read right[{f'{across}, {along}' if right_transposed else f'{along}, {across}'}]; "
            f"write partial[{'' if direct else 'part, '}{down}, {COLUMNS}]"
        ),
        columns=(
            *("row_start", "row_stop", "inner_start", "inner_stop", "start", "stop", "part"),
            *(("weight_start", "weight_stop") if grouped else ()),
        ),
        compute=numerics.multiply_blocks(left_transposed, right_transposed),
        cost=product_formula("f32", "f32", units, channels, load_bytes),
        flops=terms_of({"rows inner positions": 2}),
        code_bytes=1024,
        extents={
            "rows": held,
            "inner": Length("left", inner),
            "positions": Length("left", rows) if turned else Length("right", columns),
            "out_groups": replace(held, per=units),
            "in_groups": Length("left", inner, per=channels),
        },
    )


SUM_PARTS = Codelet(
    name="SumParts",
    fields=fields_of(f"read partial[:, {ROWS}, {COLUMNS}]; write total[{ROWS}, {COLUMNS}]"),
    compute=numerics.sum_parts,
    cost=sum_formula("elements", "f32", "f32"),
    flops=terms_of({"elements partials": 1}),
    code_bytes=512,
    extents={"elements": Size("total"), "partials": Length("partial", 0)},
)

COUNT_ARRAY = on_loops(
    "CountArray",
    "read spikes[:, sample, :]; write totals[sample, :]",
    numerics.count_rows,
    {"timesteps classes": Mix(load=1, add=1, loop=1)},
    "3 bundles per number: load, add, loop",
    scalars=1,
    kind="assumed",
    flops={"timesteps classes": 1},
    code_bytes=256,
    extents={"timesteps": Length("spikes", 0), "classes": Length("totals", 1)},
)
COUNT_LAST_ARRAY = replace(
    COUNT_ARRAY,
    name="CountLastArray",
    constants=("first",),
    extents={**COUNT_ARRAY.extents, "timesteps": Length("spikes", 0, after="first")},
)
