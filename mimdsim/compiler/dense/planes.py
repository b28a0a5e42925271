"""Layers of planes on tiles: patches as products want them, what comes back from them, and pools.

A vertex makes a box of rows (places, or pixels) and columns. What it gets of the planes is its receptive field: for
its channels, the run from the first pixel to the last that its places cover, a halo around its own pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from mimdsim.codelets import planes as codelets
from mimdsim.compiler.dense.context import ArrayLowering
from mimdsim.compiler.place.products import Blocks
from mimdsim.graph import Operation
from mimdsim.graph.convolution import NOWHERE, Patches, Pooling, pixels_of
from mimdsim.graph.names import before, spikes_of
from mimdsim.program import Codelet

Operations = tuple[Operation, ...]
Columns = dict[str, np.ndarray]
Bounds = tuple[np.ndarray, np.ndarray]  # by place or pixel: the first of the others that it may need, and one past


@cache
def pixel_bounds(patches: Patches) -> Bounds:
    """Of every place: the pixels that it and all places after it begin with, and end with all before it."""
    pixels = pixels_of(patches)
    first = np.where(pixels == NOWHERE, patches.planes.positions, pixels).min(axis=1)
    return np.minimum.accumulate(first[::-1])[::-1], np.maximum.accumulate(pixels.max(axis=1) + 1)


@cache
def place_bounds(patches: Patches) -> Bounds:
    """Of every pixel: the places that cover it and those after it, and it and those before it."""
    pixels, count = pixels_of(patches), patches.planes.positions
    first, last = np.full(count, len(pixels)), np.zeros(count, np.int64)
    place, tap = np.nonzero(pixels != NOWHERE)
    np.minimum.at(first, pixels[place, tap], place)
    np.maximum.at(last, pixels[place, tap], place + 1)
    return np.minimum.accumulate(first[::-1])[::-1], np.maximum.accumulate(last)


def _run(begin: np.ndarray, end: np.ndarray, here: int, bounds: Bounds, there: int) -> Bounds:
    """What rows begin..end of matrices with `here` rows a sample need of one with `there`; empty where nothing."""
    last = end - 1
    first = begin // here * there + bounds[0][begin % here]
    stop = last // here * there + bounds[1][last % here]
    return np.minimum(first, stop), stop


def _of_samples_and_channels(boxes: Columns, places: int, taps: int) -> Columns:
    """Boxes of patches cut so that each is of one sample and one channel."""
    cut: dict[str, list[int]] = {name: [] for name in ("box", "row_start", "row_stop", "start", "stop")}
    ends = zip(*(boxes[name].tolist() for name in ("row_start", "row_stop", "start", "stop")), strict=True)
    for box, (top, bottom, left, right) in enumerate(ends):
        samples = range(top // places, (bottom - 1) // places + 1)
        channels = range(left // taps, (right - 1) // taps + 1)
        for sample, channel in product(samples, channels):
            cut["box"].append(box)
            cut["row_start"].append(max(top, sample * places))
            cut["row_stop"].append(min(bottom, (sample + 1) * places))
            cut["start"].append(max(left, channel * taps))
            cut["stop"].append(min(right, (channel + 1) * taps))
    return {name: np.array(column, np.int64) for name, column in cut.items()}


def _gather(
    low: ArrayLowering,
    op: Operation,
    codelet: Codelet,
    made: str,
    taps: int,
    constants: dict[str, object] | None = None,
) -> None:
    """Vertices that make places from pixels; a column of the target is of one of `taps` for a channel."""
    patches: Patches = op.attributes
    blocks, places, pixels = low.blocks[made], patches.made.positions, patches.planes.positions
    tiles, columns, bounds = blocks.tiles, blocks.columns, pixel_bounds(patches)
    if patches.by_channel:
        columns = _of_samples_and_channels(columns, places, taps)
        tiles = tiles[columns.pop("box")]
        sample, channel = columns["row_start"] // places, columns["start"] // taps
        first, stop = _run(
            columns["row_start"] % places, (columns["row_stop"] - 1) % places + 1, places, bounds, pixels
        )
        run = {
            "from_row": sample,
            "to_row": sample + 1,
            "begin": channel * pixels + first,
            "end": channel * pixels + stop,
        }
    else:
        first, stop = _run(columns["row_start"], columns["row_stop"], places, bounds, pixels)
        run = {"from_row": first, "to_row": stop, "begin": columns["start"] // taps, "end": -(-columns["stop"] // taps)}
    operands = {"source": low.storage[op.inputs[0]][0], "target": made}
    _vertices(low, op, codelet, tiles, {**columns, **run}, operands, constants)


def _spread(
    low: ArrayLowering,
    op: Operation,
    codelet: Codelet,
    made: str,
    taps: int,
    constants: dict[str, object] | None = None,
) -> None:
    """Vertices that make pixels from places, which have `taps` columns for every channel."""
    patches: Patches = op.attributes
    assert not patches.by_channel  # of the network's input, which gets no gradient
    blocks, places, pixels = low.blocks[made], patches.made.positions, patches.planes.positions
    columns = blocks.columns
    first, stop = _run(columns["row_start"], columns["row_stop"], pixels, place_bounds(patches), places)
    run = {"from_row": first, "to_row": stop, "begin": columns["start"] * taps, "end": columns["stop"] * taps}
    names = [low.storage[name][0] for name in op.inputs]
    operands = {"source": names[0], "target": made}
    if len(names) > 1:
        value_first, value_stop = _run(first, np.maximum(stop, first + 1), places, pixel_bounds(patches), pixels)
        some = stop > first
        run |= {"value_from": np.where(some, value_first, 0), "value_to": np.where(some, value_stop, 0)}
        operands["values"] = names[1]
    _vertices(low, op, codelet, blocks.tiles, {**columns, **run}, operands, constants)


def _vertices(
    low: ArrayLowering,
    op: Operation,
    codelet: Codelet,
    tiles: np.ndarray,
    columns: Columns,
    operands: dict[str, str],
    constants: dict[str, object] | None,
) -> None:
    known: dict[str, Any] = {"geometry": codelets.geometry_of(op.attributes), **(constants or {})}
    stage, defines = op.kind.replace("_", " "), ((operands["target"], op.outputs[0]),)
    low.compute(stage, op, codelet, tiles, columns, operands, constants=known, defines=defines, mergeable=False)


def _wanted(low: ArrayLowering, op: Operation) -> Blocks:
    """How the product that reads patches wants them."""
    assert low.scan_body is not None
    (made,) = op.outputs
    reader = next(step for step in low.scan_body.operations if made in step.inputs)
    rows, width = low.values[made].shape
    if reader.kind == "matmul":
        return low.arrays.forward(rows, *low.values[reader.inputs[1]].shape).left
    return low.arrays.weight_gradient(rows, width, low.values[reader.inputs[0]].shape[1]).left.transposed


def lower_unfold(low: ArrayLowering, ops: Operations) -> None:
    """unfold: patches where a product wants them."""
    (op,) = ops
    window = op.attributes.window
    made = low.result(op, _wanted(low, op), "exchange buffers")
    _gather(low, op, codelets.unfold(window), made, window.taps)


def lower_fold(low: ArrayLowering, ops: Operations) -> None:
    """fold: gradients of patches added up where the planes lie."""
    (op,) = ops
    window = op.attributes.window
    made = low.result(op, _where_planes_lie(low, op), "gradients")
    _spread(low, op, codelets.fold(window), made, window.taps)


def lower_pool(low: ArrayLowering, ops: Operations) -> None:
    """pool: spread over all tiles."""
    (op,) = ops
    pooling: Pooling = op.attributes
    made = low.result(op, low.arrays.spread(*low.values[op.outputs[0]].shape), "neuron states")
    _gather(low, op, codelets.pool(pooling.kind, pooling.window), made, 1, _factor(pooling))


def lower_pool_gradient(low: ArrayLowering, ops: Operations) -> None:
    """pool_gradient, where what was pooled lies."""
    (op,) = ops
    pooling: Pooling = op.attributes
    made = low.result(op, _where_planes_lie(low, op), "gradients")
    constants = {} if pooling.kind == "max" else _factor(pooling)
    _spread(low, op, codelets.pool_gradient(pooling.kind, pooling.window), made, 1, constants)


def _factor(pooling: Pooling) -> dict[str, object]:
    return {"factor": np.float32(1 / pooling.window.taps if pooling.kind == "average" else 1)}


def _where_planes_lie(low: ArrayLowering, op: Operation) -> Blocks:
    """Of a gradient: as the neurons of the layer whose spikes it is of, else spread over all tiles."""
    (made,) = op.outputs
    shape = low.values[made].shape
    spikes = {spikes_of(layer.name): layer.name for layer in low.network.layers}
    of = {**spikes, **{before(name): layer for name, layer in spikes.items()}}.get(low.values[made].of)
    return low.states(of) if of else low.arrays.spread(*shape)


RULES: dict[tuple[str, ...], Callable[[ArrayLowering, Operations], None]] = {
    ("unfold",): lower_unfold,
    ("fold",): lower_fold,
    ("pool",): lower_pool,
    ("pool_gradient",): lower_pool_gradient,
}
