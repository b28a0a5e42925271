"""Updates on tiles, where the weights lie; the norm of all gradients comes together on one tile."""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import training as codelets
from mimdsim.compiler.context import Lowering, Rules
from mimdsim.graph import Operation
from mimdsim.graph.training import NORM_FLOOR
from mimdsim.numerics.optimisers import FORMS, LEARNING_RATE, Optimiser
from mimdsim.program import TileMapping


def lower_update(low: Lowering, op: Operation) -> None:
    """An optimiser's update in place on the tiles that hold the weights.

    The published codelets where nothing more is wanted, else those with weight decay.
    """
    optimiser: Optimiser = op.attributes
    codelet = codelets.update_codelet(op.kind, scheduled=optimiser.scheduled, decaying=bool(optimiser.weight_decay))
    number, field_of = optimiser.form.number, {name: field for field, name in optimiser.form.constants.items()}
    constants: dict[str, object] = {
        name: number(getattr(optimiser, field_of.get(name, LEARNING_RATE))) for name in codelet.constants
    }
    names = [low.kept.get(low.storage[name][0], low.storage[name][0]) for name in op.inputs]
    operands = dict(zip((item.name for item in codelet.fields), names, strict=True))
    made = [operands[item.name] for item in codelet.fields if item.writes]
    for value, variable in zip(op.outputs, made, strict=True):
        low.storage[value] = (variable,)
        low.outputs[value] = variable
    where, defines = low.over_matrix(codelet, names[0], op.layer), ((made[0], op.outputs[0]),)
    low.compute("update weights", op, *where, operands, constants=constants, defines=defines)


def lower_sum_squares(low: Lowering, op: Operation) -> None:
    """sum_squares: a number per tile, then these added up on the first tile of the layer."""
    gradient = low.storage[op.inputs[0]][0]
    operands = {"gradient": gradient}
    partial, tiles = low.by_tile("square gradients", op, codelets.SUM_SQUARES, gradient, operands, "weight gradients")
    home = TileMapping.on(int(tiles[0]), 0, 1)
    total = low.variable(op.name, (1,), "float32", home, "weight gradients")
    low.storage[op.outputs[0]] = (total,)
    columns, operands = {"which": np.zeros(1, np.int64)}, {"partial": partial, "totals": total}
    low.compute("add squares", op, codelets.ADD_PARTS, tiles[:1], columns, operands)


def lower_clip_factor(low: Lowering, op: Operation) -> None:
    """clip_factor: the sums of all weights brought to one tile, which works out the factor."""
    tile = int(low.placement.sample_tiles[0])
    count = len(op.inputs)
    totals = low.variable("squares", (count,), "float32", TileMapping.on(tile, 0, count), "weight gradients")
    factor = low.variable("clip_factor", (1,), "float32", TileMapping.on(tile, 0, 1), "weight gradients")
    low.storage[op.outputs[0]] = (factor,)
    home = np.array([tile])
    with low.superstep("gather squares", op.kind):
        for index, name in enumerate(op.inputs):
            operands, columns = {"partial": low.storage[name][0], "totals": totals}, {"which": np.array([index])}
            low.compute("gather squares", op, codelets.ADD_PARTS, home, columns, operands, layer="")
    low.compute(
        "clip factor",
        op,
        codelets.CLIP_FACTOR,
        home,
        {"place": np.zeros(1, np.int64)},
        {"totals": totals, "factor": factor},
        layer="",
        constants={"largest_norm": np.float32(op.attributes), "floor": np.float32(NORM_FLOOR)},
    )


def lower_change(low: Lowering, op: Operation) -> None:
    """scale and prune_gradient: gradients in place, with one factor that goes to all tiles, or with the weights that
    lie there."""
    gradient, other = (low.storage[name][0] for name in op.inputs)
    stage, codelet, by = "clip gradients", codelets.SCALE_ALL, {"factor": other}
    if op.kind == "prune_gradient":
        stage, codelet, by = "prune gradients", codelets.PRUNE_GRADIENT, {"w": low.kept.get(other, other)}
    low.storage[op.outputs[0]] = (gradient,)
    low.outputs.pop(op.inputs[0], None)  # overwritten
    low.outputs[op.outputs[0]] = gradient
    where, operands = low.over_matrix(codelet, gradient, op.layer), {"gradient": gradient, **by}
    low.compute(stage, op, *where, operands)


RULES: Rules = {
    ("sum_squares",): lower_sum_squares,
    ("clip_factor",): lower_clip_factor,
    ("scale",): lower_change,
    ("prune_gradient",): lower_change,
    **{(kind,): lower_update for kind in FORMS},
}
