"""Codelets of layer, group, instance and RMS norm: library calls on boxes of one sample and one group of columns, in
which the statistics are scalars; what is summed over tiles goes through pieces, one number each."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.codelets.dense import BOX
from mimdsim.codelets.elementwise import CALL_BYTES, LAUNCH_CYCLES, calls_formula
from mimdsim.codelets.vertex_costs import on_elements
from mimdsim.costs.library.reductions import reduce_to_scalar_cycles
from mimdsim.numerics.dense import dense as numerics
from mimdsim.program import Codelet, Length, Size, TileFormula, fields_of, terms_of

STATISTIC = "[sample, group]"


def _sum_cycles(numbers: Any, worker_contexts: int, vector_bytes: int) -> Any:
    """Of so many to one: every context sums a share, and one the sums of all."""
    shares = -(-numbers // worker_contexts), np.full_like(numbers, worker_contexts)
    each = sum(reduce_to_scalar_cycles(share, vector_bytes=vector_bytes) for share in shares)
    return LAUNCH_CYCLES + worker_contexts * each


def _average_cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
    scaled = calls_formula("times scalar").cycles(extents, worker_contexts, vector_bytes)
    return scaled + _sum_cycles(np.asarray(extents["pieces"]), worker_contexts, vector_bytes)


def _of_box(
    name: str, fields: str, compute: Any, sums: int, calls: tuple[str, ...], flops: int, *constants: str
) -> Codelet:
    """So many sums of a box to one number, and calls on it."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        added = sums * _sum_cycles(np.asarray(extents["elements"]), worker_contexts, vector_bytes)
        return added + calls_formula(*calls).cycles(extents, worker_contexts, vector_bytes)

    called = ", ".join((*(f"{sums} of ReduceAdd to a scalar, by all contexts, then of theirs",) * bool(sums), *calls))
    source = (
        f"PopLibs cycle estimators (commit 7eac0f2) of the stable algorithm's calls on a share of a sample: {called}"
    )
    return on_elements(
        name,
        fields.replace("[BOX]", f"[{BOX}]"),
        compute,
        TileFormula(cycles=cycles, kind="derived", source=source),
        fields.split("[")[0].split(" ")[1],
        flops=flops,
        constants=constants,
        code_bytes=512 * bool(sums) + CALL_BYTES * len(set(calls)),
    )


SUM_BOX = _of_box("SumBox", "read source[BOX]; write pieces[part]", numerics.sum_box, 1, (), 1)
SUM_BOX_APART = _of_box(
    "SumBoxApart", f"read source[BOX]; read mean{STATISTIC}; write pieces[part]", numerics.sum_box_apart,
    1, ("plus scalar", "square"), 3,
)  # fmt: skip
SUM_BOX_PRODUCTS = _of_box(
    "SumBoxProducts", "read q[BOX]; read made[BOX]; write sums[part]; write products[part]", numerics.sum_box_products,
    2, ("times",), 3,
)  # fmt: skip
STANDARDISE = _of_box(
    "Standardise", f"read source[BOX]; read mean{STATISTIC}; read variance{STATISTIC}; write target[BOX]",
    numerics.standardise_boxes, 0, ("plus scalar", "times scalar"), 2, "epsilon",
)  # fmt: skip
STANDARDISE_GRADIENT = _of_box(
    "StandardiseGradient",
    f"read q[BOX]; read made[BOX]; read variance{STATISTIC}; read mean{STATISTIC}; read slope{STATISTIC}; "
    "write target[BOX]",
    numerics.standardise_gradient, 0, ("times scalar", "minus", "plus scalar", "times scalar"), 4, "epsilon",
)  # fmt: skip
# of the root mean square alone
SUM_BOX_PRODUCT = _of_box(
    "SumBoxProduct", "read q[BOX]; read made[BOX]; write products[part]", numerics.sum_box_product, 1, ("times",), 2
)
SCALE = _of_box(
    "ScaleByRoot", f"read source[BOX]; read variance{STATISTIC}; write target[BOX]", numerics.scale_boxes,
    0, ("times scalar",), 1, "epsilon",
)  # fmt: skip
SCALE_GRADIENT = _of_box(
    "ScaleByRootGradient",
    f"read q[BOX]; read made[BOX]; read variance{STATISTIC}; read slope{STATISTIC}; write target[BOX]",
    numerics.scale_gradient, 0, ("times scalar", "minus", "times scalar"), 3, "epsilon",
)  # fmt: skip
AVERAGE_PARTS = Codelet(
    name="AverageParts",
    fields=fields_of(f"write average{STATISTIC}; read pieces[first:last]"),
    compute=numerics.average_parts,
    cost=TileFormula(
        cycles=_average_cycles,
        kind="derived",
        source="PopLibs cycle estimators (commit 7eac0f2): ReduceAdd to a scalar, by all contexts, times scalar",
    ),
    flops=terms_of({"elements pieces": 1}),
    constants=("values",),
    code_bytes=512 + CALL_BYTES,
    extents={"elements": Size("average"), "pieces": Length("pieces", 0)},
)
