"""Codelets between matrices [batch, neurons] and rows with one number per neuron: a bias, a synapse onto itself."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from mimdsim.codelets.dense import BOX
from mimdsim.codelets.elementwise import CALL_BYTES, calls_formula
from mimdsim.codelets.neurons import by_neuron, scale_cycles
from mimdsim.codelets.products import partial_sum_cycles
from mimdsim.numerics.dense import elementwise as numerics
from mimdsim.numerics.dense.rows import OnRows
from mimdsim.program import Codelet, Length, Size, TileFormula, fields_of, terms_of

ROW = (":", "start:stop")


def _with_row(name: str, compute: Any) -> Codelet:
    return Codelet(
        name=name,
        fields=fields_of(f"read source[{BOX}]; read row[:, start:stop]; write target[{BOX}]"),
        compute=compute,
        cost=TileFormula(
            cycles=lambda extents, *machine: scale_cycles(extents, 4, *machine),
            kind="published",
            source="PopLibs popops BroadcastVectorInner1D cycle estimator (commit 7eac0f2): one number per neuron, "
            "samples as blocks; a multiply loops like an add",
        ),
        flops=terms_of({"elements": 1}),
        code_bytes=CALL_BYTES,
        extents={"elements": Size("target"), **by_neuron("target")},
    )


ADD_ROW = _with_row("AddRow", numerics.add_row)
MULTIPLY_ROW = _with_row("MultiplyRow", numerics.multiply_row)


def _reduce_cycles(outputs: Any, partials: Any, worker_contexts: int, vector_bytes: int) -> Any:
    how = {"worker_contexts": worker_contexts, "vector_bytes": vector_bytes}
    return partial_sum_cycles(outputs, partials, dtype="f32", out_dtype="f32", **how)


def _sum_samples_cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
    return _reduce_cycles(extents["neurons"], extents["samples"], worker_contexts, vector_bytes)


def _sum_products_cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
    product = calls_formula("times").cycles(extents, worker_contexts, vector_bytes)
    return product + _sum_samples_cycles(extents, worker_contexts, vector_bytes)


REDUCE_SOURCE = "PopLibs poplin ReduceAdd (commit 7eac0f2)"

SUM_SAMPLES = Codelet(
    name="SumSamples",
    fields=fields_of(f"read source[{BOX}]; write pieces[piece, start:stop]"),
    compute=numerics.sum_samples,
    cost=TileFormula(cycles=_sum_samples_cycles, kind="published", source=REDUCE_SOURCE),
    flops=terms_of({"elements": 1}),
    code_bytes=512,
    extents={"elements": Size("source"), **by_neuron("source")},
)

SUM_PRODUCTS = Codelet(
    name="SumProducts",
    fields=fields_of(f"read one[{BOX}]; read other[{BOX}]; write pieces[piece, start:stop]"),
    compute=numerics.sum_products,
    cost=TileFormula(
        cycles=_sum_products_cycles, kind="published", source=f"element-wise product and {REDUCE_SOURCE}, a call each"
    ),
    flops=terms_of({"elements": 2}),
    code_bytes=512 + CALL_BYTES,
    extents={"elements": Size("one"), **by_neuron("one")},
)

ADD_PIECES = Codelet(
    name="AddPieces",
    fields=fields_of("update total[:, start:stop]; read pieces[:, start:stop]"),
    compute=numerics.add_pieces,
    cost=TileFormula(
        cycles=lambda extents, contexts, vector: (
            _reduce_cycles(extents["elements"], extents["pieces"], contexts, vector)
            + calls_formula("plus in place").cycles(extents, contexts, vector)
        ),
        kind="published",
        source=f"{REDUCE_SOURCE} and an addition in place, a call each",
    ),
    flops=terms_of({"elements pieces": 1}),
    code_bytes=512 + CALL_BYTES,
    extents={"elements": Size("total"), "pieces": Length("pieces", 0)},
)


ROWS = ("row_start", "row_stop")
WHOLE = (":", "start:stop")


@lru_cache(maxsize=128)
def on_rows(codelet: Codelet, whole: tuple[str, ...] = ()) -> Codelet:
    """The codelet with `BOX` for every box that ends in whole columns (":", "start:stop"), and two columns more.

    whole: fields that stay as they are.

    Costs follow from the boxes; values are those of the codelet itself.
    """
    cut = tuple(item.box[-2:] == WHOLE and item.name not in whole for item in codelet.fields)
    fields = (
        replace(item, box=(*item.box[:-2], *BOX.split(", "))) if part else item
        for item, part in zip(codelet.fields, cut, strict=True)
    )
    return replace(
        codelet,
        name=f"{codelet.name}Rows",
        fields=tuple(fields),
        columns=(*ROWS, *codelet.columns),
        compute=OnRows(codelet.compute, cut, len(codelet.columns)),
    )
