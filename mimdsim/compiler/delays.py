"""Delays that are learned, on tiles: weights at every age and their gradients are worked out where the weights lie."""

from __future__ import annotations

from mimdsim.codelets import delays as codelets
from mimdsim.compiler.context import Lowering, Rules
from mimdsim.graph import Operation


def lower_delayed_weights(low: Lowering, op: Operation) -> None:
    """delayed_weights: of several copies of the layer each makes its share, which goes to all."""
    shape = low.values[op.outputs[0]].shape
    made = {f"at{age}": _like_weights(low, name, op.layer, "weights") for age, name in enumerate(op.outputs)}
    given = {field: low.storage[name][0] for field, name in zip(codelets.GIVEN, op.inputs, strict=True)}
    codelet = codelets.delayed_weights(op.attributes.ages, op.attributes.epsilon)
    where = low.over_matrix(codelet, made["at0"], op.layer)
    low.compute("delayed weights", op, *where, made | given)
    for name in op.outputs:
        low.storage[name] = (low.on_every_copy(name, (shape[0], shape[1]), "weights", op.layer),)


def lower_gradient(low: Lowering, op: Operation) -> None:
    """delayed_weights_gradient: from the sums over the timesteps."""
    names = (*codelets.GIVEN, *(f"at{age}" for age in range(op.attributes.ages)))
    given = {field: low.storage[name][0] for field, name in zip(names, op.inputs, strict=True)}
    made = dict(zip(("dw", "ddelay"), op.outputs, strict=True))
    for name in made.values():
        low.outputs[name] = _like_weights(low, name, op.layer, "weight gradients")
    codelet = codelets.delayed_weights_gradient(op.attributes.ages, op.attributes.epsilon)
    where = low.over_matrix(codelet, made["dw"], op.layer)
    low.compute("delay gradients", op, *where, made | given)


def _like_weights(low: Lowering, name: str, layer: str, category: str) -> str:
    rows, neurons = low.values[name].shape
    low.storage[name] = (low.numbers(name, (rows, neurons), category, layer),)
    return name


RULES: Rules = {("delayed_weights",): lower_delayed_weights, ("delayed_weights_gradient",): lower_gradient}
