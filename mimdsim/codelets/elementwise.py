"""Codelets on boxes of matrices, element by element, each a sequence of calls of the element-wise library.

Each call starts separately and passes over the box: nothing is fused, as in a framework where every operation is a
separate call. Boxes are contiguous on their tile, so all worker contexts share a call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.dense import BOX, copy_formula
from mimdsim.costs.library import elementwise as library
from mimdsim.costs.library.sparse import transpose_cycles
from mimdsim.numerics.dense import elementwise as numerics
from mimdsim.program import Codelet, Field, Length, Size, Term, TileFormula, fields_of

CALL_BYTES = 320  # code of one library codelet (assumed, as for slices and updates)
SOURCE = "PopLibs popops cycle estimators (commit 7eac0f2), one call each"
LAUNCH_CYCLES = 11  # per vertex that all contexts share: PopLibs' supervisor part


def _select(n: Any, contexts: int) -> Any:
    """where(mask, a, b): one vertex per worker context, five cycles per element."""
    return LAUNCH_CYCLES + contexts * library.select_cycles([-(-n // contexts)])


def _choose(n: Any, contexts: int) -> Any:
    """where(mask, scalar, scalar)."""
    return LAUNCH_CYCLES + contexts * library.broadcast_select_cycles([-(-n // contexts)])


def _scalar(op: str, in_place: bool = False) -> Callable[[Any, int], Any]:
    return lambda n, contexts: library.broadcast_scalar_1d_cycles(n, op=op, in_place=in_place, worker_contexts=contexts)


def _unary(op: str) -> Callable[[Any, int], Any]:
    return lambda n, contexts: library.unary_1d_cycles(n, op=op, worker_contexts=contexts)


def _binary(op: str, in_place: bool = False) -> Callable[[Any, int], Any]:
    return lambda n, contexts: library.binary_1d_cycles(n, op=op, in_place=in_place, worker_contexts=contexts)


CALLS: dict[str, Callable[[Any, int], Any]] = {
    "above scalar": _scalar("GREATER_THAN"),
    "plus scalar": _scalar("ADD"),
    "times scalar": _scalar("MULTIPLY"),
    "times scalar in place": _scalar("MULTIPLY", in_place=True),
    "absolute": _unary("ABSOLUTE"),
    "square": _unary("SQUARE"),
    "inverse": _unary("INVERSE"),
    "exponent": _unary("EXPONENT"),
    "over": _binary("DIVIDE"),
    "at least scalar": _scalar("MAXIMUM"),
    "times": _binary("MULTIPLY"),
    "plus": _binary("ADD"),
    "plus in place": _binary("ADD", in_place=True),
    "select": _select,
    "one or zero": _choose,
}


@lru_cache(maxsize=64)
def calls_formula(*calls: str) -> TileFormula:
    """Cycles of consecutive library calls, each over all elements of the box (extent 'elements')."""

    def cycles(extents: dict[str, Any], worker_contexts: int, _vector_bytes: int) -> Any:
        n = np.asarray(extents["elements"])
        return sum(CALLS[call](n, worker_contexts) for call in calls)

    return TileFormula(cycles=cycles, kind="published", source=f"{SOURCE}: {', '.join(calls)}")


def _on_boxes(
    name: str, fields: tuple[tuple[str, str], ...], compute: Any, calls: tuple[str, ...], constants: tuple[str, ...]
) -> Codelet:
    return Codelet(
        name=name,
        fields=tuple(Field(name=field, access=access, box=BOX) for field, access in fields),
        constants=constants,
        compute=compute,
        cost=calls_formula(*calls),
        flops=(Term(bundles=sum(call not in ("select", "one or zero") for call in calls), extents=("elements",)),),
        code_bytes=CALL_BYTES * len(set(calls)),
        extents={"elements": Size(fields[0][0])},
    )


LIF_BOXES = _on_boxes(
    "LifBoxes",
    (("v", "update"), ("current", "read")),
    numerics.lif_boxes,
    ("above scalar", "times scalar in place", "select", "times scalar", "plus in place"),
    ("decay", "scale", "threshold"),
)
SPIKE_BOXES = _on_boxes(
    "SpikeBoxes",
    (("v", "read"), ("spikes", "write")),
    numerics.spike_boxes,
    ("above scalar", "one or zero"),
    ("threshold",),
)
# calls of a surrogate at x = v - threshold, without the product with the gradient
SURROGATE_CALLS: dict[str, tuple[str, ...]] = {
    "superspike": ("plus scalar", "absolute", "times scalar", "plus scalar", "square", "inverse"),
    "arctan": ("plus scalar", "times scalar", "square", "plus scalar", "inverse", "times scalar"),
    "sigmoid": (
        "plus scalar", "absolute", "times scalar", "exponent", "plus scalar", "square", "over", "times scalar"
    ),
    "triangular": ("plus scalar", "absolute", "times scalar", "plus scalar", "at least scalar"),
    "boxcar": ("plus scalar", "absolute", "above scalar", "one or zero"),
    "straight_through": (),
}  # fmt: skip


@lru_cache(maxsize=16)
def add_surrogate(name: str) -> Codelet:
    """dv += g * surrogate, for every neuron."""
    return _on_boxes(
        f"AddSurrogate({name})",
        (("dv", "update"), ("g", "read"), ("v", "read")),
        numerics.add_surrogate,
        (*SURROGATE_CALLS[name], "times", "plus in place"),
        ("threshold", "slope", "kind"),
    )


@lru_cache(maxsize=16)
def surrogate_boxes(name: str) -> Codelet:
    """target = g * surrogate, for every neuron."""
    return _on_boxes(
        f"Surrogate({name})",
        (("target", "write"), ("g", "read"), ("v", "read")),
        numerics.surrogate_boxes,
        (*SURROGATE_CALLS[name], "times"),
        ("threshold", "slope", "kind"),
    )


SCALE_BOXES = _on_boxes(
    "ScaleBoxes", (("source", "read"), ("target", "write")), numerics.scale_boxes, ("times scalar",), ("factor",)
)
DECAY_BOXES = _on_boxes(
    "DecayBoxes", (("dv", "update"),), numerics.decay_boxes, ("times scalar in place",), ("factor",)
)
MASKED_DECAY_BOXES = _on_boxes(
    "MaskedDecayBoxes",
    (("dv", "update"), ("v_previous", "read")),
    numerics.masked_decay_boxes,
    ("above scalar", "times scalar in place", "select"),
    ("factor", "threshold"),
)
ADD_BOXES = _on_boxes("AddBoxes", (("target", "update"), ("more", "read")), numerics.add_boxes, ("plus in place",), ())
SUM_BOXES = _on_boxes(
    "SumBoxes", (("one", "read"), ("other", "read"), ("target", "write")), numerics.sum_boxes, ("plus",), ()
)

ARRANGE_BOXES = Codelet(
    name="ArrangeBoxes",
    fields=fields_of("read source[row_start:row_stop, start:stop]; write target[row_start:row_stop, start:stop]"),
    compute=numerics.copy_boxes,
    cost=copy_formula(4),
    code_bytes=192,
    extents={"elements": Size("target")},
)

TRANSPOSED_ROWS, TRANSPOSED_COLUMNS = 16, 8  # a group of outputs by a group of inputs of the matrix unit in float32


def _transpose_cycles(extents: dict[str, Any], worker_contexts: int, _vector_bytes: int) -> Any:
    counts, which = np.unique(extents["groups_of_outputs"] * extents["groups_of_inputs"], return_inverse=True)
    each = [
        transpose_cycles(int(count), TRANSPOSED_ROWS, TRANSPOSED_COLUMNS, dtype="f32", worker_contexts=worker_contexts)
        for count in counts
    ]
    return np.array(each, np.int64)[which.ravel()]


TRANSPOSE_BOXES = replace(
    ARRANGE_BOXES,
    name="TransposeBoxes",
    cost=TileFormula(
        cycles=_transpose_cycles,
        kind="derived",
        source="PopLibs popsparse Transpose cycle estimator (7eac0f2), a matrix of 16 x 8 for every group of the "
        "matrix unit",
    ),
    code_bytes=512,
    extents={
        "groups_of_outputs": Length("target", 0, per=TRANSPOSED_ROWS),
        "groups_of_inputs": Length("target", 1, per=TRANSPOSED_COLUMNS),
    },
)


@lru_cache(maxsize=32)
def on_boxes(codelet: Codelet) -> Codelet:
    """A codelet for whole columns (":", "start:stop") of matrices, changed to work on boxes of them."""

    def compute(*given: Any) -> None:
        views, constants = given[: len(codelet.fields)], given[len(codelet.fields) :]
        ends = {"stop": views[0].shape[1]}  # of the box itself; any other index selects a part of one element
        columns = (np.array([ends.get(name, 0)]) for name in codelet.columns)
        codelet.compute(*views, *columns, *constants)

    fields = tuple(replace(item, box=BOX) if item.box == (":", "start:stop") else item for item in codelet.fields)
    return replace(
        codelet, name=f"{codelet.name}Boxes", fields=fields, columns=(), compute=compute, form="vertex", joinable=False
    )
