"""Codelets on boxes of matrices, element by element, each a sequence of calls of the element-wise library.

Each call starts separately and passes over the box: nothing is fused, as in a framework where every operation is a
separate call. Boxes are contiguous on their tile, so all worker contexts share a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from mimdsim.codelets.dense import BOX, copy_formula, copying
from mimdsim.codelets.neurons import by_neuron, scale_cycles
from mimdsim.codelets.products import partial_sum_cycles
from mimdsim.codelets.vertex_costs import by_item_bytes, by_vectors, on_elements
from mimdsim.costs.library import elementwise as library
from mimdsim.costs.library.network import bernoulli_cycles
from mimdsim.costs.library.sparse import transpose_cycles
from mimdsim.numerics.dense import elementwise as numerics
from mimdsim.numerics.dense.dense import OnRows, keep_boxes
from mimdsim.program import Codelet, Length, Size, TileFormula, fields_of, terms_of
from mimdsim.program.loops import Mix

CALL_BYTES = 320  # code of one library codelet (assumed, as for slices and updates)
SOURCE = "PopLibs popops cycle estimators (commit 7eac0f2), one call each"
LAUNCH_CYCLES = 11  # per vertex that all contexts share: PopLibs' supervisor part


def _by_worker(n: Any, *, worker_contexts: int, cycles: Callable[..., Any]) -> Any:
    """where(mask, a, b), or of scalars: one vertex per worker context."""
    return LAUNCH_CYCLES + worker_contexts * cycles([-(-n // worker_contexts)])


_scalar, _unary, _binary = library.broadcast_scalar_1d_cycles, library.unary_1d_cycles, library.binary_1d_cycles
CALLS: dict[str, Callable[..., Any]] = {
    "above scalar": partial(_scalar, op="GREATER_THAN"),
    "plus scalar": partial(_scalar, op="ADD"),
    "times scalar": partial(_scalar, op="MULTIPLY"),
    "times scalar in place": partial(_scalar, op="MULTIPLY", in_place=True),
    "absolute": partial(_unary, op="ABSOLUTE"),
    "square": partial(_unary, op="SQUARE"),
    "inverse": partial(_unary, op="INVERSE"),
    "inverse root": partial(_unary, op="RSQRT"),
    "root": partial(_unary, op="SQRT"),
    "exponent": partial(_unary, op="EXPONENT"),
    "logarithm": partial(_unary, op="LOGARITHM"),
    "sigmoid": partial(_unary, op="SIGMOID"),
    "tanh": partial(_unary, op="TANH"),
    "relu": partial(_unary, op="RELU"),
    "over": partial(_binary, op="DIVIDE"),
    "at least scalar": partial(_scalar, op="MAXIMUM"),
    "times": partial(_binary, op="MULTIPLY"),
    "minus": partial(_binary, op="SUBTRACT"),
    "plus": partial(_binary, op="ADD"),
    "plus in place": partial(_binary, op="ADD", in_place=True),
    "select": partial(_by_worker, cycles=library.select_cycles),
    "one or zero": partial(_by_worker, cycles=library.broadcast_select_cycles),
}

CLASS_OF = {  # the instruction that an element takes, on any core
    **dict.fromkeys(("plus scalar", "absolute", "minus", "plus", "plus in place"), "add"),
    **dict.fromkeys(("times scalar", "times scalar in place", "square", "times"), "multiply"),
    **dict.fromkeys(("above scalar", "relu", "at least scalar", "select", "one or zero"), "compare"),
    **dict.fromkeys(("inverse", "over"), "divide"),
    **dict.fromkeys(("inverse root", "root", "exponent", "logarithm", "sigmoid", "tanh"), "function"),
}


@lru_cache(maxsize=64)
def calls_formula(*calls: str) -> TileFormula:
    """Cycles of consecutive library calls, each over all elements of the box (extent 'elements')."""

    def cycles(extents: dict[str, Any], worker_contexts: int, _vector_bytes: int) -> Any:
        n = np.asarray(extents["elements"])
        return sum(CALLS[call](n, worker_contexts=worker_contexts) for call in calls)

    mix = Mix(**Counter(CLASS_OF[call] for call in calls))
    return TileFormula(cycles=cycles, kind="published", source=f"{SOURCE}: {', '.join(calls)}", mix=mix)


def _on_boxes(name: str, fields: str, compute: Any, calls: tuple[str, ...], *constants: str) -> Codelet:
    """fields: access and name of each."""
    names = fields.split("; ")
    return on_elements(
        name,
        "; ".join(f"{field}[{BOX}]" for field in names),
        compute,
        calls_formula(*calls),
        names[0].partition(" ")[2],
        flops=sum(call not in ("select", "one or zero") for call in calls),
        constants=constants,
        code_bytes=CALL_BYTES * len(set(calls)),
    )


LIF_BOXES = _on_boxes(
    "LifBoxes",
    "update v; read current",
    numerics.lif_boxes,
    ("above scalar", "times scalar in place", "select", "times scalar", "plus in place"),
    *("decay", "scale", "threshold"),
)
SPIKE_BOXES = _on_boxes(
    "SpikeBoxes", "read v; write spikes", numerics.spike_boxes, ("above scalar", "one or zero"), "threshold"
)
BELL = ("square", "times scalar", "exponent", "times scalar")
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
    "gaussian": ("plus scalar", *BELL),
    "multi_gaussian": (
        "plus scalar", *BELL, "plus scalar", *BELL, "plus scalar", *BELL, "plus in place", "plus in place"
    ),
    "double_gaussian": ("plus scalar", *BELL, *BELL, "plus in place"),
    "exponential": ("plus scalar", "absolute", "times scalar", "exponent", "times scalar"),
}  # fmt: skip


@lru_cache(maxsize=16)
def surrogate_boxes(name: str, added: bool) -> Codelet:
    """target = g * surrogate, for every neuron; or added to dv."""
    into, compute = ("update dv", numerics.add_surrogate) if added else ("write target", numerics.surrogate_boxes)
    return _on_boxes(
        f"{'Add' * added}Surrogate({name})",
        f"{into}; read g; read v",
        compute,
        (*SURROGATE_CALLS[name], "times", *("plus in place",) * added),
        *("threshold", "slope", "kind"),
    )


SCALE_BOXES = _on_boxes("ScaleBoxes", "read source; write target", numerics.scale_boxes, ("times scalar",), "factor")
DECAY_BOXES = _on_boxes("DecayBoxes", "update dv", numerics.decay_boxes, ("times scalar in place",), "factor")
MASKED_DECAY_BOXES = _on_boxes(
    "MaskedDecayBoxes",
    "update dv; read v_previous",
    numerics.masked_decay_boxes,
    ("above scalar", "times scalar in place", "select"),
    *("factor", "threshold"),
)
ADD_BOXES = _on_boxes("AddBoxes", "update target; read more", numerics.add_boxes, ("plus in place",))
SUM_BOXES = _on_boxes("SumBoxes", "read one; read other; write target", numerics.sum_boxes, ("plus",))

ADD_EVEN_BOXES = on_elements(
    "AddEvenBoxes",
    f"read g[{BOX}]; read even[:]; write total[{BOX}]",
    numerics.add_even_boxes,
    calls_formula("plus scalar"),
    "total",
    code_bytes=CALL_BYTES,
)
TIMES_BOXES = _on_boxes("TimesBoxes", "read values; read mask; write target", numerics.multiply_boxes, ("times",))


@lru_cache(maxsize=4)
def dropout_masks(by_timestep: bool, planes: bool = False) -> Codelet:
    """1 / keep where a spike, or all of a plane, is kept, else 0; a tile draws with its own generator."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        how: dict[str, Any] = {"worker_contexts": worker_contexts, "vector_bytes": vector_bytes}
        drawn = bernoulli_cycles(np.asarray(extents["elements"]), **how)
        return drawn + calls_formula("times scalar in place").cycles(extents, worker_contexts, vector_bytes)

    source = "PopLibs poprand Bernoulli cycle estimator (commit 7eac0f2), then one call that scales"
    return on_elements(
        f"Dropout{'Planes' * planes}Mask{'s' * by_timestep}",
        f"read states[first:last]; read keep[:]; write masks[{':, ' if by_timestep else ''}{BOX}]",
        numerics.dropout_masks,
        TileFormula(cycles=cycles, kind="published", source=source),
        "masks",
        constants=("positions", "source", *("pixels",) * planes),
        code_bytes=256 + CALL_BYTES,
    )


COUNT_BOXES = on_elements(
    "CountBoxes",
    f"read spikes[:, {BOX}]; write counts[part]",
    numerics.count_boxes,
    by_vectors(lambda _: 2, "load and add per 64 bits, as for sums over the timesteps")(4),
    "spikes",
    code_bytes=256,
)

ARRANGE_BOXES = copying("ArrangeBoxes", f"read source[{BOX}]; write target[{BOX}]", keep_boxes)

TRANSPOSED_ROWS, TRANSPOSED_COLUMNS = 16, 8  # a group of outputs by a group of inputs of the matrix unit in float32


def transpose_of(codelet: Codelet, name: str, dtype: str, channels: int, target: str) -> Codelet:
    """A copy that transposes what it moves into field `target`, a matrix for every group of the matrix unit."""

    source = f"PopLibs popsparse Transpose cycle estimator (7eac0f2), a matrix of {TRANSPOSED_ROWS} x {channels} for "

    @by_item_bytes("derived", f"{source}every group of the matrix unit")
    def formula(extents: dict[str, Any], item_bytes: int, worker_contexts: int, _vector_bytes: int) -> Any:
        counts, which = np.unique(extents["groups_of_outputs"] * extents["groups_of_inputs"], return_inverse=True)
        shared: dict[str, Any] = {"dtype": "f32" if item_bytes == 4 else "f16", "worker_contexts": worker_contexts}
        each = [transpose_cycles(count, TRANSPOSED_ROWS, channels, **shared) for count in counts.tolist()]
        return np.array(each, np.int64)[which.reshape(-1)]

    groups = {
        "groups_of_outputs": Length(target, 0, per=TRANSPOSED_ROWS),
        "groups_of_inputs": Length(target, 1, per=channels),
    }
    return replace(codelet, name=name, cost=formula(4 if dtype == "f32" else 2), code_bytes=512, extents=groups)


TRANSPOSE_BOXES = transpose_of(ARRANGE_BOXES, "TransposeBoxes", "f32", TRANSPOSED_COLUMNS, "target")


# ---- between matrices and rows with one number per neuron: a bias, a synapse onto itself


def _with_row(name: str, compute: Any) -> Codelet:
    formula = TileFormula(
        cycles=lambda extents, *machine: scale_cycles(extents, 4, *machine),
        kind="published",
        source="PopLibs popops BroadcastVectorInner1D cycle estimator (commit 7eac0f2): one number per neuron, "
        "samples as blocks; a multiply loops like an add",
    )
    signature = f"read source[{BOX}]; read row[:, start:stop]; write target[{BOX}]"
    return on_elements(name, signature, compute, formula, "target", extents=by_neuron("target"), code_bytes=CALL_BYTES)


ADD_ROW = _with_row("AddRow", numerics.add_row)
MULTIPLY_ROW = _with_row("MultiplyRow", numerics.multiply_row)
REDUCE_SOURCE = "PopLibs poplin ReduceAdd (commit 7eac0f2)"


def reduce_formula(outputs: str, partials: str, source: str, *calls: str) -> TileFormula:
    """Sums of `partials` for each of so many `outputs`, both extents, and library calls beside it."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        how: dict[str, Any] = {"dtype": "f32", "out_dtype": "f32", "vector_bytes": vector_bytes}
        added = partial_sum_cycles(extents[outputs], extents[partials], worker_contexts=worker_contexts, **how)
        return added + calls_formula(*calls).cycles(extents, worker_contexts, vector_bytes) if calls else added

    return TileFormula(cycles=cycles, kind="published", source=source)


SUM_SAMPLES = on_elements(
    "SumSamples",
    f"read source[{BOX}]; write pieces[piece, start:stop]",
    numerics.sum_rows,
    reduce_formula("neurons", "samples", REDUCE_SOURCE),
    "source",
    extents=by_neuron("source"),
    code_bytes=512,
)
SUM_PRODUCTS = on_elements(
    "SumProducts",
    f"read one[{BOX}]; read other[{BOX}]; write pieces[piece, start:stop]",
    numerics.sum_products,
    reduce_formula("neurons", "samples", f"element-wise product and {REDUCE_SOURCE}, a call each", "times"),
    "one",
    flops=2,
    extents=by_neuron("one"),
    code_bytes=512 + CALL_BYTES,
)
ADD_PIECES = Codelet(
    name="AddPieces",
    fields=fields_of("update total[:, start:stop]; read pieces[:, start:stop]"),
    compute=numerics.add_pieces,
    cost=reduce_formula(
        "elements", "pieces", f"{REDUCE_SOURCE} and an addition in place, a call each", "plus in place"
    ),
    flops=terms_of({"elements pieces": 1}),
    code_bytes=512 + CALL_BYTES,
    extents={"elements": Size("total"), "pieces": Length("pieces", 0)},
)

# ---- batch norm: as PopLibs' popnn, rows of statistics, and passes over what is normalised


@lru_cache(maxsize=8)
def _norm_formula(in_time: bool, sums: int, passes: int, *of_row: str, each: bool) -> TileFormula:
    """So many sums over the samples of a box, so many passes over it that take a row each, and calls on rows."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        how: dict[str, Any] = {"dtype": "f32", "out_dtype": "f32", "vector_bytes": vector_bytes}
        samples, neurons = np.asarray(extents["samples"]), np.asarray(extents["neurons"])
        if in_time:
            samples, neurons = (
                at * (1 if own is each else extents["timesteps"]) for at, own in ((samples, True), (neurons, False))
            )
        added = sums * partial_sum_cycles(neurons, samples, worker_contexts=worker_contexts, **how) if sums else 0
        passed = passes * scale_cycles({"samples": samples, "neurons": neurons}, 4, worker_contexts, vector_bytes)
        return added + passed + sum(CALLS[call](neurons, worker_contexts=worker_contexts) for call in of_row)

    calls = ", ".join(
        filter(None, (f"{sums} of ReduceAdd" * bool(sums), f"{passes} of BroadcastVectorInner1D", *of_row))
    )
    return TileFormula(
        cycles=cycles,
        kind="derived",
        source=f"PopLibs cycle estimators (commit 7eac0f2) of the calls that the stable algorithm takes: {calls}",
    )


_INVERSE = ("plus scalar", "inverse root")
# of each its fields, kernel, sums, passes and calls on rows, flops of an element, and constants
OF_NORM: dict[str, tuple[str, Any, tuple[Any, ...], int, tuple[str, ...]]] = {
    "SumRows": (
        "read source[BOX]; write pieces[piece, start:stop]", numerics.sum_rows, (1, 0), 1, ()
    ),
    "SquaresApart": (
        "read source[BOX]; read mean[ROW]; write pieces[piece, start:stop]",
        numerics.sum_squares_apart, (1, 1), 3, (),
    ),
    "Normalise": (
        "read source[BOX]; read mean[ROW]; read variance[ROW]; read gain[ROW]; read bias[ROW]; write target[BOX]",
        numerics.normalise_boxes, (0, 3, *_INVERSE, "times"), 3, ("epsilon",),
    ),
    "SumNormalised": (
        "read q[BOX]; read x[BOX]; read mean[ROW]; read variance[ROW]; write gains[piece, start:stop]; "
        "write biases[piece, start:stop]",
        numerics.sum_normalised, (2, 2, *_INVERSE, "times"), 4, ("epsilon",),
    ),
    "NormGradient": (
        "read q[BOX]; read x[BOX]; read mean[ROW]; read variance[ROW]; read gain[ROW]; read d_gain[ROW]; "
        "read d_bias[ROW]; write target[BOX]",
        numerics.norm_gradient,
        (0, 5, *_INVERSE, "times", "times", "times scalar", "times scalar"), 5, ("epsilon", "values"),
    ),
}  # fmt: skip


def _without(compute: Any, at: int) -> Any:
    """`compute` without two arguments from `at` on, the ends of a box in a row, which follow from its columns."""
    return lambda *given: compute(*given[:at], *given[at + 2 :])


@lru_cache(maxsize=16)
def of_norm(name: str, in_time: bool, each: bool = False) -> Codelet:
    """A codelet of batch norm on boxes of a matrix, or of a sequence of it: `samples` are those of all timesteps, or of
    each by itself, whose statistics are then as many `neurons` more, from `begin` to `end` in a row."""
    signature, compute, formula, flops, constants = OF_NORM[name]
    box = f":, {BOX}" if in_time else BOX
    signature = signature.replace("[BOX]", f"[{box}]").replace("[ROW]", "[:, start:stop]")
    fields = fields_of(signature)
    columns = *BOX.replace(":", ", ").split(", "), *("piece",) * ("[piece" in signature)
    if each:
        compute, columns = _without(compute, len(fields) + len(columns)), (*columns, "begin", "end")
        fields = tuple(
            replace(item, box=(*item.box[:-1], "begin:end")) if len(item.box) < 3 else item for item in fields
        )
    sized = fields[0].name
    extents: dict[str, Any] = {"samples": Length(sized, 0), "neurons": Length(sized, 1), "elements": Size(sized)}
    if in_time:
        extents |= {"samples": Length(sized, 1), "neurons": Length(sized, 2), "timesteps": Length(sized, 0)}
    return Codelet(
        name=f"{name}{'Each' if each else 'InTime' if in_time else ''}",
        fields=fields,
        columns=columns,
        compute=compute,
        cost=_norm_formula(in_time, *formula, each=each),
        flops=terms_of({"elements": flops}),
        constants=constants,
        code_bytes=512 + 3 * CALL_BYTES,
        extents=extents,
    )


AVERAGE_PIECES = replace(
    ADD_PIECES,
    name="AveragePieces",
    fields=fields_of("write average[:, start:stop]; read pieces[:, start:stop]"),
    compute=numerics.average_pieces,
    cost=reduce_formula("elements", "pieces", f"{REDUCE_SOURCE} and a multiplication, a call each", "times scalar"),
    constants=("values",),
    extents={"elements": Size("average"), "pieces": Length("pieces", 0)},
)


def _turned(name: str, signature: str, compute: Any) -> Codelet:
    """Between rows of each timestep and one row of column after column, which lie on the same tiles."""
    columns = "start", "stop", "begin", "end"
    made = on_elements(name, signature, compute, copy_formula(4), "rows", flops=0, columns=columns)
    return transpose_of(made, name, "f32", TRANSPOSED_COLUMNS, "rows")


TURN_ROWS = _turned("TurnRows", "read rows[:, start:stop]; write row[:, begin:end]", numerics.turn_rows)
TURN_ROW = _turned("TurnRow", "read row[:, begin:end]; write rows[:, start:stop]", numerics.turn_row)
RUNNING_AVERAGE = _on_boxes(
    "RunningAverage",
    "update held; read now",
    numerics.average_boxes,
    ("times scalar in place", "times scalar", "plus in place"),
    *("kept", "share"),
)

# ---- other codelets on boxes

AREA, WHOLE = tuple(BOX.split(", ")), (":", "start:stop")


@lru_cache(maxsize=32)
def on_boxes(codelet: Codelet) -> Codelet:
    """A codelet for whole columns (":", "start:stop") of matrices, changed to work on boxes of them."""

    def compute(*given: Any) -> None:
        views, constants = given[: len(codelet.fields)], given[len(codelet.fields) :]
        ends = {"stop": views[0].shape[1]}  # of the box itself; any other index selects a part of one element
        columns = (np.array([ends.get(name, 0)]) for name in codelet.columns)
        codelet.compute(*views, *columns, *constants)

    fields = tuple(replace(item, box=AREA) if item.box == WHOLE else item for item in codelet.fields)
    return replace(
        codelet, name=f"{codelet.name}Boxes", fields=fields, columns=(), compute=compute, form="vertex", joinable=False
    )


@lru_cache(maxsize=128)
def on_rows(codelet: Codelet, whole: tuple[str, ...] = ()) -> Codelet:
    """The codelet with `BOX` for every box that ends in whole columns (":", "start:stop"), and two columns more.

    whole: fields that stay as they are. Costs follow from the boxes; values are those of the codelet itself.
    """
    cut = tuple(item.box[-2:] == WHOLE and item.name not in whole for item in codelet.fields)
    fields = (
        replace(item, box=(*item.box[:-2], *AREA)) if part else item
        for item, part in zip(codelet.fields, cut, strict=True)
    )
    return replace(
        codelet,
        name=f"{codelet.name}Rows",
        fields=tuple(fields),
        columns=("row_start", "row_stop", *codelet.columns),
        compute=OnRows(codelet.compute, cut, len(codelet.columns)),
    )
