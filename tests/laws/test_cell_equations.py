"""Equations as text: cells that do what the records with functions do, and linear neurons where they are affine."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from networks import compiled, executed, interpreted, relative_error
from test_cells import drawn, network

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.execution.whole_tensors import refusals
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.cell_equations import cell_from_equations
from mimdsim.graph.cells import Cell
from mimdsim.graph.linear_equations import linear_neuron_of
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.losses import Loss
from mimdsim.workload import load_workload, network_of

SYNAPSE = (
    "syn = alpha * syn[t-1] + I",
    "mem = (0.9 * mem[t-1] + syn) * (1 - detach(output[t-1]))",
    "output = spike(mem - 1)",
)
# name: (equations, states of the linear neuron, its reset gradient)
LINEAR: dict[str, tuple[tuple[str, ...], int, str]] = {
    "a synapse, reset to zero": (SYNAPSE, 2, "mask"),
    "subtract": (("mem = 0.9 * mem[t-1] + I - 1.5 * output[t-1]", "output = spike(mem - 1.5)"), 1, "full"),
    "subtract, within the timestep": (
        ("mem = 0.9 * left[t-1] + I", "output = spike(mem - 1.5)", "left = mem - 1.5 * detach(output)"), 1, "mask",
    ),
    "zero, within the timestep": (
        ("mem = 0.9 * left[t-1] + I / 5", "output = spike(mem - 0.5)", "left = mem * (1 - output)"), 1, "full",
    ),
    "a threshold that rises": (
        (
            "a = 0.95 * a[t-1] + detach(output[t-1])", "mem = 0.9 * mem[t-1] + I - detach(output[t-1])",
            "output = spike(mem - (0.6 + 0.3 * a))",
        ), 2, "mask",
    ),
    "the current of the timestep before": (
        ("mem = 0.9 * mem[t-1] + syn[t-1]", "syn = -(-0.8 * syn[t-1]) + I", "output = spike(mem - 1)"), 2, "mask",
    ),
    "adaptation that drives itself": (
        (
            "w = 0.9 * w[t-1] + 0.5 * u[t-1] + 0.7 * output[t-1]", "u = 0.8 * (u[t-1] - output[t-1]) + 0.2 * (I - w)",
            "output = spike(u - 0.2)",
        ), 2, "full",
    ),
    "a potential that is read": (("output = 0.9 * output[t-1] + 0.1 * I",), 1, "mask"),
}  # fmt: skip


def law(equations: tuple[str, ...], **learned: float) -> Any:
    parameters = {"alpha": 0.8} if any("alpha" in each for each in equations) and not learned else {}
    return cell_from_equations("own", equations, parameters, learned)


def both(equations: tuple[str, ...]) -> tuple[SpikingNetwork, SpikingNetwork]:
    """A network of the cell, and of the linear neurons that are found in its place."""
    model = law(equations)
    of = network(model, timesteps=9) if model.spiking else network(last=model, timesteps=9)
    linear = linear_neuron_of(model, {each.name: each.default for each in model.parameters})
    assert isinstance(linear, LinearNeuron)
    layers, others = [], []
    for layer in of.layers:
        own = layer.neuron.model == "own"
        threshold = linear.threshold if own and model.spiking else 0.0
        selection = replace(layer.selection, surrogate="superspike", slope=2.0)
        layers.append(replace(layer, selection=selection if own else layer.selection))
        below = replace(selection, threshold=threshold, second_threshold=-100.0)
        others.append(replace(layer, neuron=linear, selection=below) if own else layer)
    return replace(of, layers=tuple(layers)), replace(of, layers=tuple(others))


@pytest.mark.parametrize("name", LINEAR)
def test_affine_equations_are_linear_neurons(name: str) -> None:
    """Loss and gradients in float64 are those of the equations, through the reset too."""
    equations, states, gradient = LINEAR[name]
    cells, linear = both(equations)
    own = next(layer.linear for layer in linear.layers if layer.neuron.model == "own")
    assert (len(own.states), own.reset_gradient) == (states, gradient)
    given = drawn(cells, dtype=np.float64)
    for key in given.arrays:
        given.arrays[key] = given.arrays[key] * 4
    found, wanted = (interpret(training_graph(of), given.for_graph(of)) for of in (linear, cells))
    assert float(found["loss"]) == pytest.approx(float(wanted["loss"]), rel=1e-13)
    gradients = [key for key in wanted if key.startswith("gradient.")]
    assert np.abs(wanted["gradient.w.hidden0" if len(cells.layers) > 1 else "gradient.w.output"]).max() > 0
    for key in gradients:
        assert relative_error(found[key], wanted[key]) < 1e-12, key


@pytest.mark.parametrize(
    "equations",
    [
        ("u = u[t-1] * u[t-1] + I", "output = spike(u - 1)"),
        ("u = 0.9 * detach(u[t-1]) + I", "output = spike(u - 1)"),
        ("u = 0.9 * u[t-1] + tanh(I)", "output = spike(u - 1)"),
        ("u = 0.9 * u[t-1] + I", "v = spike(u - 2)", "output = spike(u - v)"),
        ("u = 0.9 * u[t-1] + I - detach(output[t-1])", "w = 0.5 * w[t-1] + output[t-1]", "output = spike(u - 1 - w)"),
        ("u = 0.9 * u[t-1] + I", "output = spike(u)"),  # fires at rest
        ("u = 0.9 * u[t-1] + I + 0.1", "output = spike(u - 1)", "v = u", "w = v"),  # moves before there is a timestep
        ("u = 0.9 * u[t-1] * (1 - output[t-1]) * (1 - output[t-1]) + I", "output = spike(u - 1)"),  # 2 f, not f
        ("u = 0.9 * v[t-1] * (1 - output[t-1]) + I", "output = spike(u - 1)", "v = u - output"),  # f times f
        ("u = 0.9 * u[t-1] + I", "output = damp(spike(u - 1), 0.3)"),
        ("u = 0.9 * u[t-1] + I", "output = u * spike(u - 1)"),
    ],
)
def test_what_no_linear_neuron_learns_stays_equations(equations: tuple[str, ...]) -> None:
    assert linear_neuron_of(law(equations), {}) is None


def test_learned_parameters_stay_equations() -> None:
    assert linear_neuron_of(law(SYNAPSE, alpha=0.8), {"alpha": 0.8}) is None


GRU = ("r = sigmoid(I1 + R1)", "z = sigmoid(I2 + R2)", "n = tanh(I3 + r * R3)", "output = n + z * (output[t-1] - n)")


def test_a_gru_as_text_is_that_of_the_table() -> None:
    one, other = network("gru"), network(cell_from_equations("mine", GRU, {}, {}))
    given = drawn(one, dtype=np.float64)
    found, wanted = (interpret(training_graph(of), given.for_graph(of)) for of in (other, one))
    assert all((found[key] == wanted[key]).all() for key in wanted if key.startswith("gradient."))


@pytest.mark.parametrize(
    "model",
    [
        law(SYNAPSE),
        law(
            ("mem = clamp(beta, 0.1, 0.95) * mem[t-1] + I - output[t-1]", "output = damp(spike(mem - 0.3), 0.5)"),
            beta=0.9,
        ),
        law(("output = relu(I) * exp(-output[t-1])",)),
        law(("output = I * sqrt(1.5 + output[t-1] * output[t-1])",)),
        law(("output = 0.5 * softplus(40 * I) + log(1.5 + output[t-1] * output[t-1])",)),
        cell_from_equations(
            "own",
            ("output = 0.8 * output[t-1] + I + R - 0.4 * detach(own_spikes[t-1])", "own_spikes = spike(output - 0.2)"),
            {}, {}, recurrent_of="own_spikes",
        ),
    ],
)  # fmt: skip
def test_cells_from_text_run_on_tiles_as_they_are_meant(model: Any) -> None:
    of = network(model)
    values = drawn(of)
    expected, found = interpreted(of, values), executed(compiled(of), values, strict=True)
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    for key, gradient in expected.gradients.items():
        assert relative_error(found.gradients[key], gradient) < 1e-5, key


NAMED: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "a state called db": (("db = 0.5 * db[t-1] + I", "output = spike(db - 0.2)"), {}),
    "a state called dr": (("dr = 0.5 * dr[t-1] + I + R", "output = spike(dr - 0.2)"), {}),
    "a state called dtau": (("dtau = tau * dtau[t-1] + I", "output = spike(dtau - 0.2)"), {"tau": 0.7}),
    "a row called db": (("u = db * u[t-1] + I", "output = spike(u - 0.2)"), {"db": 0.7}),
    "rows called x and dx": (("u = x * u[t-1] + dx * I", "output = spike(u - 0.2)"), {"x": 0.7, "dx": 1.2}),
}


@pytest.mark.parametrize("name", NAMED)
def test_names_like_those_of_gradients_are_apart_from_them(name: str) -> None:
    """On tiles the sum of the gradients of b was called db, too."""
    equations, learned = NAMED[name]
    of = network(cell_from_equations("own", equations, {}, learned))
    of = replace(of, layers=tuple(replace(layer, bias=True) for layer in of.layers))
    values = drawn(of)
    expected, found = interpreted(of, values), executed(compiled(of), values, strict=True)
    for key, gradient in expected.gradients.items():
        assert relative_error(found.gradients[key], gradient) < 1e-5, key


LATE = (
    ("output = a[t-1] + 1", "a = tanh(I)"),
    ("output = a[t-1] + I", "a = tanh(I)"),
    ("output = a[t-1] + b[t-1]", "a = tanh(I)", "b = 0.5 * b[t-1] + I"),
)


@pytest.mark.first(5)
@pytest.mark.parametrize("reading", ["sum", "mean", "last", "max", "every"])
@pytest.mark.parametrize("equations", LATE)
def test_a_state_may_get_the_gradient_of_the_loss_as_it_is(equations: tuple[str, ...], reading: str) -> None:
    """Which on tiles lies where the loss left it: what is carried needs a place of its own."""
    of = network("gru", last=law(equations))
    of = replace(of, loss=Loss(reading=reading))
    values = drawn(of)
    expected, found = interpreted(of, values), executed(compiled(of), values, strict=True)
    for key, gradient in expected.gradients.items():
        assert np.abs(gradient).max() > 0
        assert relative_error(found.gradients[key], gradient) < 1e-5, key


WRONG = {
    "'syn = alpha ** 2 + I': only + - * / stand between values": ("syn = alpha ** 2 + I",),
    "no function '__import__('os').system'": ("syn = __import__('os').system('rm')",),
    "no function 'sigmoud'; did you mean 'sigmoid'? ; there are": ("syn = sigmoud(I)",),
    "clamp takes 3 values, given 1": ("syn = clamp(I)",),
    "'syn = I.real': 'I.real' is not expected": ("syn = I.real",),
    "'syn[t - 2]' is not expected": ("syn = alpha * syn[t-2] + I",),
    "'I if I else 0' is not expected": ("syn = I if I else 0",),
    "what is right of '=' is no expression": ("syn = ((I",),
    "is not 'name = expression'": ("I + 3",),
    "nested more than 40 deep": ("syn = " + "-" * 60 + "I",),
    "1e+300 is too large": ("syn = 1e300 * I",),
    "equation 'syn' reads 'beta' that nothing has": ("syn = beta * I",),
    "equation 'syn' reads 'late' before that is made": ("syn = late + I", "late = 3 * I"),
    "equation 'syn' reads sin[t-1], of which there is no equation": ("syn = alpha * sin[t-1] + I",),
    "no equation is of 'output'": ("out = alpha * I",),
    "two equations are of 'syn'": ("syn = alpha * I", "syn = I"),
    "an equation is of 'I', which has a meaning": ("I = 3",),
    "no equation reads I, a sum of what the layer reads": ("output = alpha * output[t-1]",),
    "no equation reads I1": ("output = alpha * I2",),
    "parameter 'alpha' is read by no equation": ("output = I",),
    "parameter 'alpha' is the name of an equation": ("alpha = I", "output = alpha"),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_no_equation_is_refused(said: str) -> None:
    texts = WRONG[said]
    more = () if any(each.startswith(("output", "out ")) for each in texts) else ("output = spike(alpha * I - 1)",)
    with pytest.raises(MappingError, match=re.escape(said).replace(r"\ ;", ";")):
        cell_from_equations("own", (*texts, *more), {"alpha": 0.5}, {})


def test_functions_of_numbers_are_numbers() -> None:
    """Of which there is no gradient; a spike of one is refused."""
    texts = (
        "u = clamp(2, 0, 0.5) * u[t-1] + exp(0) * sqrt(1) * I - detach(3) * relu(0)",
        "output = spike(u - sigmoid(0))",
    )
    plain = "u = 0.5 * u[t-1] + I", "output = spike(u - 0.5)"
    made, wanted = (linear_neuron_of(cell_from_equations("own", each, {}, {}), {}) for each in (texts, plain))
    assert made == wanted
    cell = cell_from_equations("own", ("u = tanh(u[t-1]) + I", "output = spike(u) * damp(2, 0.5)"), {}, {})
    assert cell.equations is not None
    with pytest.raises(MappingError, match=re.escape("'spike(0.5)' is the spike of a number")):
        linear_neuron_of(cell_from_equations("own", ("u = spike(0.5)", "output = spike(I - u)"), {}, {}), {})


def test_any_text_is_read_or_refused() -> None:
    """Nothing else is raised by text that is drawn from the letters of equations, and nothing is run."""
    draw = random.Random(3)
    parts = ["I", "output", "u", "[t-1]", "spike", "exp", "1", "0", "1e9", "lambda", *"()+-*/,=:.'é "]
    read = 0
    for _ in range(3000):
        text = "output = I" + "".join(draw.choices(parts, k=draw.randint(1, 12)))
        try:
            model = cell_from_equations("own", (text,), {}, {})
            read += linear_neuron_of(model, {}) is None or True
        except MappingError:
            continue
    assert read > 20


KEYS = {"cells": {"mine": {"equations": list(SYNAPSE), "parameters": {"alpha": 0.8}}}, "neuron": "mine"}


def changed(**keys: Any) -> dict[str, Any]:
    return {f"network.{key}": value for key, value in (KEYS | keys).items()}


def test_a_workload_has_neurons_of_its_own() -> None:
    """Linear ones run from lists of spikes and train as whole tensors, with other parameters as others."""
    plain = network_of(load_workload("digits", changed()))
    assert [layer.linear.model for layer in plain.layers] == ["mine"] * 3
    assert plain.spikes == "sparse"
    assert not refusals(plain)
    other = network_of(load_workload("digits", changed(neuron_parameters={"alpha": 0.5})))
    assert other.layers[0].linear != plain.layers[0].linear
    square = {"mine": {"equations": ["u = 0.9 * u[t-1] + I * I", "output = spike(u - 1)"]}}
    dense = network_of(load_workload("digits", changed(cells=square, spikes="dense")))
    assert isinstance(dense.layers[0].neuron, Cell)
    with pytest.raises(DescriptionError, match="cells send no lists: set"):
        load_workload("digits", changed(cells=square))


def test_equations_without_a_spike_send_their_value() -> None:
    """In a hidden layer they are cells, although they are affine; where they are read last, a linear neuron."""
    mean = {"mean": {"equations": ["output = 0.9 * output[t-1] + I"]}}
    keys = {"cells": mean, "neuron": "mean", "neuron_parameters": {}, "output": "membrane"}
    network = network_of(load_workload("digits", changed(spikes="dense", **keys)))
    assert [layer.cell is not None for layer in network.layers] == [True, True, False]
    with pytest.raises(DescriptionError, match="cells send no lists: set"):
        load_workload("digits", changed(**keys))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"cells": {"leaky": {"equations": ["output = I"]}}}, "network.cells.leaky: there is such a model already"),
        ({"cells": {"mine": {"equations": ["output = J"]}}}, "network.cells.mine: equation 'output' reads 'J'"),
        ({"cells": {"mine": {"equations": []}}}, "network.cells.mine.equations"),
        (
            {"cells": {"mine": {"equations": ["u = I + R", "output = spike(u)"], "recurrent_of": "v"}}},
            "recurrent_of names 'v', of which there is no equation",
        ),
        (
            {"cells": {"mine": {"equations": ["u = I", "output = spike(u)"], "recurrent_of": "u"}}},
            "recurrent_of = 'u', and no equation reads R, a sum over it: leave it out",
        ),
        ({"neuron": "mime"}, "did you mean 'mine'"),
        ({"neuron_parameters": {"beta": 1.0}}, "cell 'mine' has no such parameter; known: alpha"),
        ({"reset": "zero"}, "the equations of \"mine\" say what a spike resets"),
        ({"learned": {"hidden0": ["alpha"]}}, "learn what their equations say"),
        ({"output": "membrane"}, "of the output layer sends spikes"),
        ({"second_threshold": 1.5}, "must be below the threshold of 'mine', which lies 1 above"),
    ],
)  # fmt: skip
def test_keys_that_do_not_fit_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError, match=re.escape(said)):
        load_workload("digits", changed(**keys))
