"""All codelets by the file of their family: its records, and those that its functions make for training steps."""

from __future__ import annotations

from itertools import product
from typing import Any

from mimdsim.codelets import (
    cells,
    dense,
    derived,
    elementwise,
    losses,
    neurons,
    planes,
    products,
    recurrence_and_bias,
    sample_norms,
    spikes,
    training,
)
from mimdsim.graph.convolution import POOLS, Patches, Planes, Pooling, Window
from mimdsim.graph.derived import FUNCTIONS as OF_WEIGHTS
from mimdsim.graph.derived import WeightFunction
from mimdsim.graph.elementwise import FUNCTIONS
from mimdsim.graph.learned_constants import Coefficients, ConstantGradient
from mimdsim.graph.linear_neurons import RowGradient
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.numerics.optimisers import FORMS
from mimdsim.program import Codelet

MODULES = (
    *(neurons, spikes, recurrence_and_bias),
    *(dense, losses, training, elementwise, products, planes, cells, derived),
    sample_norms,
)
BOXES = ("boxes", "boxes of states")
OVER: dict[str, Any] = {"planes": Planes(channels=3, height=12, width=12)}
POOL = Window(kernel=(2, 2), stride=(2, 2))
LEARNED = tuple(
    Coefficients(neuron=neuron_of(model, {}, learned=(name,)), neurons=8)
    for model, name in (("leaky", "beta"), ("spikingjelly_plif", "share"))
)
MADE = {
    dense: (
        *(dense.slice_codelet(along, shift) for along, shift in (("rows", 0), ("slots", 0), ("slots", -1))),
        *(dense.slice_codelet("columns", 0), dense.update_codelet("slots"), dense.update_codelet("columns")),
        *(dense.slice_codelet(along, shift) for shift in (0, -1) for along in BOXES),
        *(dense.update_codelet(along) for along in BOXES),
        *(dense.copy_codelet(along, *shifts) for along in BOXES for shifts in ((), (0,), (-1,), (None, 0))),
    ),
    losses: tuple(losses.pool_codelet(what, by_timestep) for what in losses.POOLS for by_timestep in (False, True)),
    training: tuple(training.update_codelet(kind, scheduled=rate) for kind, rate in product(FORMS, (False, True))),
    elementwise: tuple(
        elementwise.surrogate_boxes(name, added) for added in (True, False) for name in elementwise.SURROGATE_CALLS
    )
    + tuple(elementwise.dropout_masks(*how) for how in product((False, True), (False, True)))
    + tuple(elementwise.of_norm(*how) for how in product(elementwise.OF_NORM, (False, True)))
    + tuple(elementwise.of_norm(name, True, True) for name in elementwise.OF_NORM),
    cells: (
        *(make(name) for make in (cells.function, cells.function_gradient) for name in FUNCTIONS),
        *(cells.binary(kind, place) for kind in cells.BINARY for place in (None, 0, 1)),
        *(cells.affine(scales, shifts) for scales in (False, True) for shifts in (False, True)),
        *(cells.affine(True, False, 0), cells.function("tanh", 0)),
    ),
    recurrence_and_bias: (recurrence_and_bias.bias_sum(2), recurrence_and_bias.bias_sum_gradient(2)),
    derived: (
        *(
            make(WeightFunction(function=name, signs=(12, -4)))
            for make in (derived.weight_function, derived.weight_function_gradient)
            for name in OF_WEIGHTS
        ),
        *(derived.delayed_weights(2), derived.delayed_weights_gradient(2)),
        *(derived.coefficients(each) for each in LEARNED),
        *(
            make(ConstantGradient(coefficients=LEARNED[0], constant=0))
            for make in (
                *(derived.constant_gradient, derived.shared_constant_part),
                derived.shared_constant_gradient,
            )
        ),
        derived.coefficient_gradient(RowGradient(neuron=LEARNED[0].neuron, row=0, told=True)),
        derived.coefficient_pieces(RowGradient(neuron=LEARNED[0].neuron, row=0, told=True)),
    ),
    planes: (
        *(make(Patches(**OVER, window=Window(kernel=(5, 5)))) for make in (planes.unfold, planes.fold)),
        *(
            make(Pooling(**OVER, window=POOL, kind=kind))
            for make in (planes.pool, planes.pool_gradient)
            for kind in POOLS[: 2 if make is planes.pool_gradient else None]
        ),
    ),
}


def _records() -> dict[str, dict[str, Codelet]]:
    """By module and name, where they are defined: others import them from there, and come later."""
    seen: set[str] = set()
    found = {}
    for module in (neurons, dense, *MODULES):
        own = {record.name: record for record in vars(module).values() if isinstance(record, Codelet)}
        found.setdefault(module.__name__, {name: record for name, record in own.items() if name not in seen})
        seen |= set(own)
    return found


FAMILIES = {
    module.__name__.rpartition(".")[2]: [*_records()[module.__name__].values(), *MADE.get(module, ())]
    for module in MODULES
}
CODELETS = {record.name: record for family in FAMILIES.values() for record in family}
