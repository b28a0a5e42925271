"""Codelets of dense products whose operands and results keep the shape of the graph's values.

Cycles are those of the planned product (`codelets/products.py`); blocks are boxes of the values. Either operand may be
stored transposed: the weights of the gradient of the inputs, the inputs of the gradient of the weights.
"""

from __future__ import annotations

from functools import lru_cache

from mimdsim.codelets.products import product_formula, sum_formula
from mimdsim.codelets.vertex_costs import compiled
from mimdsim.numerics.dense import elementwise as numerics
from mimdsim.program import Codelet, Length, Size, fields_of, terms_of

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
        fields=fields_of(
            f"read left[{f'{INNER}, {ROWS}' if left_transposed else f'{ROWS}, {INNER}'}]; "
            f"read right[{f'{COLUMNS}, {INNER}' if right_transposed else f'{INNER}, {COLUMNS}'}]; "
            f"write partial[{'' if direct else 'part, '}{ROWS}, {COLUMNS}]"
        ),
        columns=("row_start", "row_stop", "inner_start", "inner_stop", "start", "stop", "part"),
        compute=numerics.multiply_blocks(left_transposed, right_transposed),
        cost=product_formula("f32", "f32", units, channels, load_bytes),
        flops=terms_of({"rows inner positions": 2}),
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
    fields=fields_of(f"read partial[:, {ROWS}, {COLUMNS}]; write total[{ROWS}, {COLUMNS}]"),
    compute=numerics.sum_parts,
    cost=sum_formula("elements", "f32", "f32"),
    flops=terms_of({"elements partials": 1}),
    code_bytes=512,
    extents={"elements": Size("total"), "partials": Length("partial", 0)},
)

COUNT_ARRAY = Codelet(
    name="CountArray",
    fields=fields_of("read spikes[:, sample, :]; write totals[sample, :]"),
    compute=numerics.count_rows,
    cost=compiled({"timesteps classes": 3}, "3 bundles per number: load, add, loop", unpacked=(1, 2), kind="assumed"),
    flops=terms_of({"timesteps classes": 1}),
    code_bytes=256,
    extents={"timesteps": Length("spikes", 0), "classes": Length("totals", 1)},
)
