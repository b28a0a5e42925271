"""Cells on tiles: arithmetic element by element where the cells lie, and gates cut out of what a product leaves.

A layer with several gates lies in even shares over all tiles, whatever its products want: what these leave lies by
columns, of which those of a neuron are far apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mimdsim.codelets import cells as codelets
from mimdsim.compiler.context import Rules, lower_in_place
from mimdsim.compiler.dense.context import ArrayLowering
from mimdsim.compiler.place.products import Blocks
from mimdsim.graph import Operation
from mimdsim.graph.elementwise import Line
from mimdsim.numerics.dense.elementwise import KINDS
from mimdsim.program import Codelet


def _blocks(low: ArrayLowering, value: str) -> Blocks:
    """Where the cells lie, else over all tiles."""
    rows, columns = low.values[value].shape
    layer = low.values[value].layer
    if layer and (rows, columns) == low.shape_of(layer):
        return low.states(layer)
    return low.arrays.spread(rows, columns)


def _make(low: ArrayLowering, op: Operation, made: Callable[[int | None], Codelet], **constants: object) -> None:
    """The result of an operation on matrices of its shape; made: its codelet, in place of an operand or of none."""
    operands = [low.storage[name][0] for name in op.inputs]
    blocks = _blocks(low, op.outputs[0])
    target = low.result(op, blocks)
    place = operands.index(target) if target in operands else None
    if place is not None:
        operands.insert(0, operands.pop(place))
    low.element_wise(op.kind.replace("_", " "), op, made(place), *operands, blocks=blocks, constants=constants)


def lower_function(low: ArrayLowering, op: Operation) -> None:
    """function and function_gradient."""
    name = op.attributes
    of = codelets.function if op.kind == "function" else codelets.function_gradient
    _make(low, op, lambda place: of(name, place), kind=KINDS[name])


def lower_binary(low: ArrayLowering, op: Operation) -> None:
    """subtract and times; sums, which operations of several kinds are."""
    kind = op.kind if op.kind in codelets.BINARY else "add"
    _make(low, op, lambda place: codelets.binary(kind, place))


def lower_affine(low: ArrayLowering, op: Operation) -> None:
    """affine"""
    line: Line = op.attributes
    known = {"scale": np.float32(line.scale), "shift": np.float32(line.shift)}
    _make(low, op, lambda place: codelets.affine(line.scale != 1, line.shift != 0, place), **known)


def _move_columns(low: ArrayLowering, op: Operation, source: str, target: str, begin: int, blocks: Blocks) -> None:
    """`blocks` of the target from the columns of the source that lie `begin` further on."""
    columns = {"source_start": blocks.start + begin, "source_stop": blocks.stop + begin}
    operands, stage = {"source": source, "target": target}, op.kind.replace("_", " ")
    low.on_boxes(stage, op, codelets.SHIFT_COLUMNS, blocks, operands, columns)


def lower_split(low: ArrayLowering, op: Operation) -> None:
    """split_columns: every part where the cells lie, or where the body leaves it."""
    source, begin = low.storage[op.inputs[0]][0], 0
    targets = [low.result(op, _blocks(low, part), output=number) for number, part in enumerate(op.outputs)]
    with low.superstep("split columns", op.kind, layer=op.layer):
        for part, target in zip(op.outputs, targets, strict=True):
            _move_columns(low, op, source, target, begin, low.blocks[target])
            begin += low.values[part].shape[1]


def lower_join(low: ArrayLowering, op: Operation) -> None:
    """join_columns: the parts, one after the other, over all tiles."""
    whole = low.result(op, low.arrays.spread(*low.values[op.outputs[0]].shape))
    begin = 0
    with low.superstep("join columns", op.kind, layer=op.layer):
        for name in op.inputs:
            end = begin + low.values[name].shape[1]
            every = low.blocks[whole]
            part = replace(every, start=np.maximum(every.start, begin), stop=np.minimum(every.stop, end))
            _move_columns(low, op, low.storage[name][0], whole, -begin, part.some(part.stop > part.start))
            begin = end


def lower_repeat(low: ArrayLowering, op: Operation) -> None:
    """repeat_row: where the cells lie."""
    low.element_wise("repeat row", op, codelets.REPEAT_ROW, blocks=_blocks(low, op.outputs[0]))


RULES: Rules = {
    ("function",): lower_function,
    ("function_gradient",): lower_function,
    ("times",): lower_binary,
    ("subtract",): lower_binary,
    ("affine",): lower_affine,
    ("rescale_gradient",): lower_in_place,
    ("split_columns",): lower_split,
    ("join_columns",): lower_join,
    ("repeat_row",): lower_repeat,
}
