"""Layers of planes on tiles: patches as products want them, what comes back from them, pools, and products by head.

A vertex makes a box of rows (places, or pixels) and columns, on one worker context. What it gets of the planes is its
receptive field: for its channels, the run from the first pixel to the last that its places cover, a halo around its own
pixels. Where rows or columns that lie apart would make a long run of it, a vertex is of one sample and one channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np

from mimdsim.codelets import planes as codelets
from mimdsim.codelets.products import TRANSPOSED, block_product
from mimdsim.compiler.context import Rules
from mimdsim.compiler.dense.context import ArrayLowering
from mimdsim.compiler.place.products import Blocks
from mimdsim.graph import Operation
from mimdsim.graph.convolution import NOWHERE, Patches, Pooling, pixels_of
from mimdsim.graph.names import before, spikes_of
from mimdsim.graph.synapses import BySample
from mimdsim.program import Codelet

OF_HEADS = {"matmul_nn": "forward", "matmul_nt": "input gradient", "matmul_tn": "weight gradient"}  # of groups, alike
Columns = dict[str, np.ndarray]
Bounds = tuple[np.ndarray, np.ndarray]


def _bounds(first: np.ndarray, stop: np.ndarray) -> Bounds:
    """Of a range begin..end: where what belongs to it begins, at `begin`, and stops, at `end` - 1."""
    return np.minimum.accumulate(first[::-1])[::-1], np.maximum.accumulate(stop)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reach:
    """What places of a window cover of planes: `pixels` by place, `places` and `taps` by pixel; and the distance of
    pixels from the first of a place: `corners` by place, `offsets` by tap."""

    pixels: Bounds
    places: Bounds
    taps: Bounds
    corners: Bounds
    offsets: Bounds


@cache
def reach_of(patches: Patches) -> Reach:
    """Of the places of a window."""
    pixels, planes, window = pixels_of(patches), patches.planes, patches.window
    count = planes.positions
    place, tap = np.nonzero(pixels != NOWHERE)
    by_pixel = []
    for of, most in ((place, len(pixels)), (tap, window.taps)):
        first, stop = np.full(count, most), np.zeros(count, np.int64)
        np.minimum.at(first, pixels[place, tap], of)
        np.maximum.at(stop, pixels[place, tap], of + 1)
        by_pixel.append(_bounds(first, stop))
    down, across = (column.ravel() for column in np.indices(window.places(planes)))
    corner = (
        (down * window.stride[0] - window.padding[0]) * planes.width + across * window.stride[1] - window.padding[1]
    )
    down, across = (column.ravel() for column in np.indices(window.kernel))
    offset = down * window.dilation[0] * planes.width + across * window.dilation[1]
    covered = np.where(pixels == NOWHERE, count, pixels).min(axis=1), pixels.max(axis=1) + 1
    return Reach(
        pixels=_bounds(*covered),
        places=by_pixel[0],
        taps=by_pixel[1],
        corners=_bounds(corner, corner),
        offsets=_bounds(offset, offset),
    )


def _run(begin: np.ndarray, end: np.ndarray, here: int, bounds: Bounds, there: int) -> Bounds:
    """What rows begin..end of matrices with `here` rows a sample need of one with `there`; empty where nothing."""
    last = end - 1
    first = begin // here * there + bounds[0][begin % here]
    stop = last // here * there + bounds[1][last % here]
    return np.minimum(first, stop), stop


def _cut(low: ArrayLowering, blocks: Blocks, sample: int, channel: int) -> tuple[np.ndarray, Columns]:
    """Tiles, and boxes cut so that each is of one sample and one channel, which have so many rows and columns (0: of
    any), and so that every worker context of a tile has rows."""
    names, kept = ("row_start", "row_stop", "start", "stop"), []
    boxes = zip(*(blocks.columns[name].tolist() for name in names), strict=True)
    for tile, (top, bottom, left, right) in zip(blocks.tiles.tolist(), boxes, strict=True):
        rows = _edges(top, bottom, sample) if sample else [top, bottom]
        columns = _edges(left, right, channel) if channel else [left, right]
        parts = list(product(pairwise(rows), pairwise(columns)))
        shares = -(-low.placement.worker_contexts // len(parts))
        for (begin, end), place in parts:
            count = min(shares, end - begin)
            edges = [begin + share * (end - begin) // count for share in range(count + 1)]
            kept += [(tile, *ends, *place) for ends in pairwise(edges)]
    tiles, *ends = np.array(kept, np.int64).T
    return tiles, dict(zip(names, ends, strict=True))


def _edges(begin: int, end: int, each: int) -> list[int]:
    """The range cut at multiples of a number."""
    return [begin, *range((begin // each + 1) * each, end, each), end]


def _gather(low: ArrayLowering, op: Operation, codelet: Codelet, made: str, taps: int) -> None:
    """Vertices that make places from pixels; a column of the target is of one of `taps` for a channel."""
    patches: Patches = op.attributes
    places, pixels, reach = patches.made.positions, patches.planes.positions, reach_of(patches)
    apart = patches.by_channel or places == 1
    tiles, columns = _cut(low, low.blocks[made], *((places, taps) if apart else (0, 0)))
    begin, end, left, right = columns.values()
    channel, sample = left // taps, begin // places
    first, stop = _run(begin, end, places, reach.pixels, pixels)
    if apart and taps > 1:  # no pixels but those of its taps
        base, top, bottom = sample * pixels, begin % places, (end - 1) % places
        earliest = first
        first = np.maximum(first, base + reach.corners[0][top] + reach.offsets[0][left % taps])
        stop = np.minimum(stop, base + reach.corners[1][bottom] + reach.offsets[1][(right - 1) % taps] + 1)
        stop = np.maximum(stop, earliest)  # else a tap of padding alone ends before the sample begins
        first = np.minimum(first, stop)
    run = {"from_row": first, "to_row": stop, "begin": channel, "end": -(-right // taps)}
    if patches.by_channel:
        moved = (channel - sample) * pixels  # from the row of the sample to the columns of the channel
        run = {"from_row": sample, "to_row": sample + 1, "begin": first + moved, "end": stop + moved}
    operands = {"source": low.storage[op.inputs[0]][0], "target": made}
    _vertices(low, op, codelet, tiles, {**columns, **run}, operands)


def _spread(low: ArrayLowering, op: Operation, codelet: Codelet, made: str, taps: int) -> None:
    """Vertices that make pixels from places, which have `taps` columns for every channel."""
    patches: Patches = op.attributes
    assert not patches.by_channel  # of the network's input, which gets no gradient
    places, pixels, reach = patches.made.positions, patches.planes.positions, reach_of(patches)
    apart = places == 1 and taps > 1
    tiles, columns = _cut(low, low.blocks[made], *((pixels, 1) if apart else (0, 0)))
    begin, end, left, right = columns.values()
    first, stop = _run(begin, end, pixels, reach.places, places)
    run = {"from_row": first, "to_row": stop, "begin": left * taps, "end": right * taps}
    if apart:
        within = _run(begin % pixels, (end - 1) % pixels + 1, pixels, reach.taps, 0)
        run |= {name: left * taps + bound for name, bound in zip(("begin", "end"), within, strict=True)}
    names = [low.storage[name][0] for name in op.inputs]
    operands = {"source": names[0], "target": made}
    if len(names) > 1:
        value_first, value_stop = _run(first, np.maximum(stop, first + 1), places, reach.pixels, pixels)
        some = stop > first
        run |= {"value_from": np.where(some, value_first, 0), "value_to": np.where(some, value_stop, 0)}
        operands["values"] = names[1]
    _vertices(low, op, codelet, tiles, {**columns, **run}, operands)


def _vertices(
    low: ArrayLowering,
    op: Operation,
    codelet: Codelet,
    tiles: np.ndarray,
    columns: Columns,
    operands: dict[str, str],
) -> None:
    about, stage = op.attributes, op.kind.replace("_", " ")
    constants: dict[str, Any] = {"geometry": codelets.geometry_of(about), "factor": np.float32(1)}
    if isinstance(about, Pooling) and about.kind == "average":
        constants["factor"] = np.float32(1 / about.window.taps)
    low.compute(stage, op, codelet, tiles, columns, operands, constants=constants, mergeable=False)


def lower_unfold(low: ArrayLowering, op: Operation) -> None:
    """unfold: patches where a product wants them."""
    assert low.scan_body is not None
    made = low.result(op, low.blocks_for_reader(low.scan_body, op.outputs[0]), "exchange buffers")
    _gather(low, op, codelets.unfold(op.attributes), made, op.attributes.window.taps)


def lower_pool(low: ArrayLowering, op: Operation) -> None:
    """pool: spread over all tiles."""
    made = low.result(op, low.arrays.spread(*low.values[op.outputs[0]].shape), "neuron states")
    _gather(low, op, codelets.pool(op.attributes), made, 1)


def lower_gradient(low: ArrayLowering, op: Operation) -> None:
    """fold and pool_gradient: added up where the planes lie, as the neurons of the layer whose spikes they are of, else
    spread over all tiles."""
    value, about = low.values[op.outputs[0]], op.attributes
    of = {
        before(spikes_of(layer.name), age): layer.name
        for index, layer in enumerate(low.network.layers)
        for age in range(low.network.oldest(index) + 1)
    }.get(value.of)
    made = low.result(op, low.states(of) if of else low.arrays.spread(*value.shape), "gradients")
    codelet, taps = (codelets.fold, about.window.taps) if op.kind == "fold" else (codelets.pool_gradient, 1)
    _spread(low, op, codelet(about), made, taps)


def lower_head_product(low: ArrayLowering, op: Operation) -> None:
    """head_product: every head of every sample on tiles of its own, as far as there are enough; a block of it gets the
    rows and columns that it needs of both."""
    about: BySample = op.attributes
    rows, columns, inner = about.sizes(*(low.values[name] for name in op.inputs))
    made = low.result(op, low.arrays.by_head(about.samples, about.heads, rows, columns, inner))
    blocks, unit, kind = low.blocks[made], low.arrays.machine.product_unit, OF_HEADS[about.kind]
    assert unit is not None
    left, right = TRANSPOSED[kind]
    sample, head = blocks.row_start // rows, blocks.start // columns
    where: Columns = {"part": np.zeros_like(head)}
    for end, last in (("start", 0), ("stop", 1)):
        row, column, of_sample, of_head = blocks.columns[f"row_{end}"], blocks.columns[end], sample + last, head + last
        where |= {f"row_{end}": row, end: column, f"inner_{end}": (of_sample if left else of_head) * inner}
        if left:  # rows of what is made are columns of the first
            where |= {f"row_{end}": row + (head - sample) * rows, f"weight_{end}": row}
        else:  # columns of what is made are rows of the second, or these are what is summed over
            where[f"weight_{end}"] = column + (sample - head) * columns if right else of_sample * inner
    units = unit.units("f32", "f32"), unit.channels("f32"), unit.coefficient_load_bytes_per_cycle
    codelet, stage = block_product(kind, True, *units, grouped=True), f"multiply {op.outputs[0]}"
    operands = dict(zip(("left", "right"), (low.storage[name][0] for name in op.inputs), strict=True))
    low.compute(stage, op, codelet, blocks.tiles, where, {**operands, "partial": made}, named=False, mergeable=False)


RULES: Rules = {
    ("head_product",): lower_head_product,
    ("unfold",): lower_unfold,
    ("fold",): lower_gradient,
    ("pool",): lower_pool,
    ("pool_gradient",): lower_gradient,
}
