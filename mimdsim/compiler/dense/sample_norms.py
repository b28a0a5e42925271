"""Layer, group and instance norm on tiles: boxes of currents cut so that each is of one sample and one group, sums of
these where they lie, statistics over all tiles, and what is made of both where the currents lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.codelets import sample_norms as codelets
from mimdsim.compiler.context import Rules
from mimdsim.compiler.dense.context import ArrayLowering
from mimdsim.compiler.layout import entries_on
from mimdsim.compiler.place.products import Blocks
from mimdsim.graph import Operation
from mimdsim.graph.norms import SampleNorm

Columns = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """Boxes of one sample and one group each, in order of these: tiles and columns of vertices, 'part' the number;
    ends: of the parts of every sample and group."""

    tiles: np.ndarray
    columns: Columns
    ends: np.ndarray

    @property
    def where(self) -> Columns:
        """Columns of vertices that need statistics and no pieces."""
        return {name: each for name, each in self.columns.items() if name != "part"}

    @property
    def pieces(self) -> Columns:
        """Columns of vertices that make pieces and need no statistics."""
        return {name: each for name, each in self.columns.items() if name not in ("sample", "group")}


def _shares(blocks: Blocks, norm: SampleNorm, columns: int) -> Shares:
    each, cut = columns // norm.groups, []
    boxes = np.stack([blocks.tiles, *blocks.columns.values()], axis=1).tolist()
    for tile, top, bottom, left, right in boxes:
        for sample in range(top // norm.positions, -(-bottom // norm.positions)):
            rows = max(top, sample * norm.positions), min(bottom, (sample + 1) * norm.positions)
            for group in range(left // each, -(-right // each)):
                cut.append((sample, group, tile, *rows, max(left, group * each), min(right, (group + 1) * each)))
    sample, group, tiles, *bounds = np.array(sorted(cut), np.int64).T
    names = ("row_start", "row_stop", "start", "stop")
    places = {"sample": sample, "group": group, "part": np.arange(len(tiles))}
    ends = np.cumsum(np.bincount(sample * norm.groups + group))
    return Shares(tiles=tiles, columns=dict(zip(names, bounds, strict=True)) | places, ends=ends)


def _average(low: ArrayLowering, op: Operation, norm: SampleNorm, shares: Shares, pieces: str, average: str) -> None:
    """Of the pieces of every sample and group, on the tile that has this entry of the average."""
    blocks, columns_of_all = low.blocks[average], low.values[op.inputs[0]].shape[1]
    held = []
    for tile, top, bottom, left, right in np.stack([blocks.tiles, *blocks.columns.values()], axis=1).tolist():
        held += [(tile, sample, group) for sample in range(top, bottom) for group in range(left, right)]
    tiles, sample, group = np.array(held, np.int64).T
    number = sample * norm.groups + group
    first = np.concatenate([[0], shares.ends])[number]
    columns = {"sample": sample, "group": group, "first": first, "last": shares.ends[number]}
    operands, values = {"average": average, "pieces": pieces}, {"values": np.float32(norm.values(columns_of_all))}
    low.compute(
        "average pieces", op, codelets.AVERAGE_PARTS, tiles, columns, operands, constants=values, mergeable=False
    )


def _pieces(low: ArrayLowering, op: Operation, shares: Shares, of: str) -> str:
    mapping = entries_on(shares.tiles)
    return low.variable(f"pieces.{op.name}.{of}", (len(shares.tiles),), "float32", mapping, "exchange buffers")


def _statistic(low: ArrayLowering, op: Operation, norm: SampleNorm, of: str) -> str:
    """A number for every sample and group, over all tiles."""
    shape = low.values[op.inputs[0]].shape[0] // norm.positions, norm.groups
    return low.matrix(f"{of}.{op.name}", shape, low.arrays.spread(*shape), "exchange buffers")


def lower_standardise(low: ArrayLowering, op: Operation) -> None:
    """standardise: the mean of every sample and group, then the variance about it, then what is made of both; of the
    root mean square the squares alone."""
    norm: SampleNorm = op.attributes
    x = low.storage[op.inputs[0]][0]
    shares = _shares(low.blocks[x], norm, low.variables[x].shape[1])
    squares, mean = _pieces(low, op, shares, "variance"), {}
    if norm.centred:
        sums = _pieces(low, op, shares, "mean")
        operands = {"source": x, "pieces": sums}
        low.compute("sum shares", op, codelets.SUM_BOX, shares.tiles, shares.pieces, operands, mergeable=False)
        mean = {"mean": _statistic(low, op, norm, "mean")}
        _average(low, op, norm, shares, sums, mean["mean"])
        operands, columns = {"source": x, **mean, "pieces": squares}, shares.columns
    else:
        operands, columns = {"q": x, "made": x, "products": squares}, shares.pieces
    squared = codelets.SUM_BOX_APART if norm.centred else codelets.SUM_BOX_PRODUCT
    low.compute("sum squares", op, squared, shares.tiles, columns, operands, mergeable=False)
    variance = low.result(op, low.arrays.spread(*low.values[op.outputs[1]].shape), "neuron states", 1)
    _average(low, op, norm, shares, squares, variance)
    operands = {"source": x, **mean, "variance": variance, "target": low.result(op, low.blocks[x])}
    constants = {"epsilon": np.float32(norm.epsilon)}
    codelet = codelets.STANDARDISE if norm.centred else codelets.SCALE
    low.compute("standardise", op, codelet, shares.tiles, shares.where, operands, constants=constants)


def lower_standardise_gradient(low: ArrayLowering, op: Operation) -> None:
    """standardise_gradient: where the gradient of what was made lies."""
    norm: SampleNorm = op.attributes
    q, made, variance = (low.storage[name][0] for name in op.inputs)
    shares = _shares(low.blocks[q], norm, low.variables[q].shape[1])
    of = {"sums": "mean", "products": "slope"} if norm.centred else {"products": "slope"}
    pieces = {name: _pieces(low, op, shares, each) for name, each in of.items()}
    operands = {"q": q, "made": made, **pieces}
    codelet = codelets.SUM_BOX_PRODUCTS if norm.centred else codelets.SUM_BOX_PRODUCT
    low.compute("sum shares", op, codelet, shares.tiles, shares.pieces, operands, mergeable=False)
    statistics = {each: _statistic(low, op, norm, each) for each in of.values()}
    for held, average in zip(pieces.values(), statistics.values(), strict=True):
        _average(low, op, norm, shares, held, average)
    operands = {"q": q, "made": made, "variance": variance, **statistics, "target": low.result(op, low.blocks[q])}
    constants = {"epsilon": np.float32(norm.epsilon)}
    codelet = codelets.STANDARDISE_GRADIENT if norm.centred else codelets.SCALE_GRADIENT
    low.compute("standardise gradient", op, codelet, shares.tiles, shares.where, operands, constants=constants)


RULES: Rules = {
    ("standardise",): lower_standardise,
    ("standardise_gradient",): lower_standardise_gradient,
}
