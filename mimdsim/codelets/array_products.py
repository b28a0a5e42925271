"""Codelets of dense products whose operands and results keep the shape of the graph's values.

Cycles are those of the planned product (`codelets/products.py`); blocks are boxes of the values. Either operand may be
stored transposed: the weights of the gradient of the inputs, the inputs of the gradient of the weights.
"""

from __future__ import annotations

from functools import lru_cache

from mimdsim.codelets.products import product_formula, sum_formula
from mimdsim.codelets.vertex_overhead import overhead_bundles
from mimdsim.numerics.dense import elementwise as numerics
from mimdsim.program import Codelet, Field, Length, Size, Term, WorkerBundles

ROWS, INNER, COLUMNS = "row_start:row_stop", "inner_start:inner_stop", "start:stop"
# per operand: whether it is stored transposed
TRANSPOSED = {"forward": (False, False), "input gradient": (False, True), "weight gradient": (True, False)}


@lru_cache(maxsize=64)
def block_product(kind: str, direct: bool, units: int, channels: int, load_bytes: int) -> Codelet:
    """Partial product of a block on the matrix unit in float32; `direct`: complete, and stored in the result."""
    left_transposed, right_transposed = TRANSPOSED[kind]
    rows, inner, columns = (int(left_transposed), 1 - int(left_transposed), 1 - int(right_transposed))
    return Codelet(
        name=f"BlockProduct<{kind}>",
        fields=(
            Field(name="left", access="read", box=(INNER, ROWS) if left_transposed else (ROWS, INNER)),
            Field(name="right", access="read", box=(COLUMNS, INNER) if right_transposed else (INNER, COLUMNS)),
            Field(name="partial", access="write", box=(ROWS, COLUMNS) if direct else ("part", ROWS, COLUMNS)),
        ),
        columns=("row_start", "row_stop", "inner_start", "inner_stop", "start", "stop", "part"),
        compute=numerics.multiply_blocks(left_transposed, right_transposed),
        cost=product_formula("f32", "f32", units, channels, load_bytes),
        flops=(Term(bundles=2, extents=("rows", "inner", "positions")),),
        code_bytes=1024,
        extents={
            "rows": Length("left", rows),
            "inner": Length("left", inner),
            "positions": Length("right", columns),
            "out_groups": Length("left", rows, per=units),
            "in_groups": Length("left", inner, per=channels),
        },
    )


SUM_PARTS = Codelet(
    name="SumParts",
    fields=(
        Field(name="partial", access="read", box=(":", ROWS, COLUMNS)),
        Field(name="total", access="write", box=(ROWS, COLUMNS)),
    ),
    compute=numerics.sum_parts,
    cost=sum_formula("elements", "f32", "f32"),
    flops=(Term(bundles=1, extents=("elements", "partials")),),
    code_bytes=512,
    extents={"elements": Size("total"), "partials": Length("partial", 0)},
)

COUNT_ARRAY = Codelet(
    name="CountArray",
    fields=(
        Field(name="spikes", access="read", box=(":", "sample", ":")),
        Field(name="totals", access="write", box=("sample", ":")),
    ),
    compute=numerics.count_rows,
    cost=WorkerBundles(
        fixed=overhead_bundles(scalars=1, vectors=2),
        terms=(Term(bundles=3, extents=("timesteps", "classes")),),
        kind="assumed",
        source="3 bundles per number: load, add, loop",
    ),
    flops=(Term(bundles=1, extents=("timesteps", "classes")),),
    code_bytes=256,
    extents={"timesteps": Length("spikes", 0), "classes": Length("totals", 1)},
)

CODELETS = (SUM_PARTS, COUNT_ARRAY)
