"""Compiled programs of the models against the classes of snnTorch, norse and SpikingJelly themselves, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from linear_networks import linear_network, spike_function
from networks import Given, compiled, executed, given_values, relative_error

from mimdsim.graph import SpikingNetwork

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
TOLERANCE = 1e-4  # float32, and constants rounded in another order; dyadic weights
SLOPE = 5.0
# a layer is a function of the current of a timestep that keeps its own state
Layer = Callable[[Any], Any]


def trained_by(network: SpikingNetwork, given: Given, layers: list[Layer]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Gradients and spike counts of a network with a timestep between layers, as the framework's classes give them."""
    weights = [torch.tensor(given.arrays[f"w.{layer.name}"], requires_grad=True) for layer in network.layers]
    source = torch.tensor(given.dense, dtype=torch.float32)
    emitted = [source.new_zeros(network.batch, layer.neurons) for layer in network.layers]
    counts = torch.zeros(())
    for t in range(network.timesteps):
        before = [source[t], *emitted[:-1]]
        emitted = [layer(b @ w) for layer, b, w in zip(layers, before, weights, strict=True)]
        counts = counts + emitted[-1]
    labels = torch.tensor(given.labels, dtype=torch.long)
    torch.nn.functional.cross_entropy(network.logit_scale * counts, labels).backward()  # type: ignore[no-untyped-call]
    gradients = {layer.name: weight.grad.numpy() for layer, weight in zip(network.layers, weights, strict=True)}
    return gradients, counts.detach().numpy()


def assert_reproduced(network: SpikingNetwork, make: Callable[[], Layer], seed: int = 4) -> None:
    given = given_values(network, seed)
    gradients, counts = trained_by(network, given, [make() for _ in network.layers])
    outcome = executed(compiled(network), given)
    assert 0 < counts.sum() < network.timesteps * counts.size
    np.testing.assert_array_equal(outcome.counts, counts)
    for name, gradient in gradients.items():
        assert np.abs(gradient).max() > 0
        assert relative_error(outcome.gradients[name], gradient) < TOLERANCE


def remembering(cell: Any) -> Layer:
    """A cell of norse that is called with its state."""
    state = None

    def layer(current: Any) -> Any:
        nonlocal state
        spikes, state = cell(current, state)
        return spikes

    return layer


def snntorch_layer(model: str, reset: str) -> Layer:
    snn = pytest.importorskip("snntorch")
    given: dict[str, Any] = {"spike_grad": spike_function("superspike", SLOPE), "reset_mechanism": reset}
    if model == "leaky":
        return snn.Leaky(beta=0.9, init_hidden=True, **given)
    if model == "rleaky":
        cell = snn.RLeaky(beta=0.9, V=0.0, all_to_all=False, learn_recurrent=False, init_hidden=True, **given)
        return cell
    if model == "lapicque":
        return snn.Lapicque(R=4.0, C=2.0, init_hidden=True, **given)
    if model == "synaptic":
        return snn.Synaptic(alpha=0.9, beta=0.8, init_hidden=True, **given)
    return snn.Alpha(alpha=0.875, beta=0.75, init_hidden=True, **given)


@pytest.mark.parametrize("reset", ["subtract", "zero", "none"])
@pytest.mark.parametrize("model", ["leaky", "rleaky", "lapicque", "synaptic", "alpha"])
def test_snntorch(model: str, reset: str) -> None:
    network = linear_network(model, reset, slope=SLOPE)
    assert_reproduced(network, lambda: snntorch_layer(model, reset))


SURROGATES = [
    ("superspike", 25.0, "fast_sigmoid"), ("arctan", 2.0, "atan"), ("sigmoid", 25.0, "sigmoid"),
    ("straight_through", 1.0, "straight_through_estimator"),
]  # fmt: skip


@pytest.mark.parametrize(("surrogate", "slope", "name"), SURROGATES)
def test_snntorch_surrogates(surrogate: str, slope: float, name: str) -> None:
    snn = pytest.importorskip("snntorch")
    function = getattr(pytest.importorskip("snntorch.surrogate"), name)
    spike = function() if surrogate == "straight_through" else function(slope)
    network = linear_network("leaky", "subtract", surrogate=surrogate, slope=slope)
    assert_reproduced(network, lambda: snn.Leaky(beta=0.9, spike_grad=spike, init_hidden=True))


NORSE = {"v_leak": 0.125, "v_reset": -0.25, "tau_mem_inv": 300.0}


@pytest.mark.parametrize("model", ["norse_lif", "norse_lif_box", "norse_lsnn"])
def test_norse(model: str) -> None:
    """Its surrogate has slope 1 in every release up to 1.1.0, whatever alpha; alpha 1 is the same after it."""
    functional = pytest.importorskip("norse.torch.functional")
    modules = pytest.importorskip("norse.torch")
    tensors = {name: torch.tensor(value) for name, value in NORSE.items()}
    given = dict(NORSE)
    if model == "norse_lif":
        parameters = functional.lif.LIFParameters(**tensors, alpha=torch.tensor(1.0))
        make = lambda: remembering(modules.LIFCell(parameters))  # noqa: E731
    elif model == "norse_lif_box":
        parameters = functional.lif_box.LIFBoxParameters(**tensors, alpha=torch.tensor(1.0))
        make = lambda: remembering(modules.LIFBoxCell(parameters))  # noqa: E731
    else:
        adapting = {"tau_adapt_inv": 50.0, "beta": 0.3}
        given |= adapting
        tensors |= {name: torch.tensor(value) for name, value in adapting.items()}
        parameters = functional.lsnn.LSNNParameters(**tensors, alpha=1.0)
        make = lambda: remembering(modules.LSNNCell(parameters))  # noqa: E731
    network = linear_network(model, "zero", reset_gradient="full", slope=1.0, parameters=given)
    assert_reproduced(network, make)


def test_norse_subtracts_and_detaches() -> None:
    box = pytest.importorskip("norse.torch.functional.lif_box")
    reset = pytest.importorskip("norse.torch.functional.reset")
    cell = pytest.importorskip("norse.torch").LIFBoxCell
    parameters = box.LIFBoxParameters(
        tau_mem_inv=torch.tensor(300.0), alpha=torch.tensor(1.0), reset_method=reset.reset_subtract
    )
    network = linear_network(
        "norse_lif_box", "subtract", reset_gradient="full", slope=1.0, parameters={"tau_mem_inv": 300.0}
    )
    assert_reproduced(network, lambda: remembering(cell(parameters)))


@pytest.mark.parametrize("decay_input", [True, False])
@pytest.mark.parametrize(("reset", "v_reset"), [("zero", -0.125), ("subtract", None)])
@pytest.mark.parametrize("detached", [True, False])
def test_spikingjelly(decay_input: bool, reset: str, v_reset: float | None, detached: bool) -> None:
    neuron = pytest.importorskip("spikingjelly.activation_based.neuron")
    given = {"tau": 4.0, "decay_input": float(decay_input), "v_reset": v_reset or 0.0}
    network = linear_network(
        "spikingjelly_lif", reset, reset_gradient="mask" if detached else "full", slope=SLOPE, parameters=given
    )

    def make() -> Layer:
        cell = neuron.LIFNode(
            tau=4.0, decay_input=decay_input, v_reset=v_reset, detach_reset=detached,
            surrogate_function=spike_function("superspike", SLOPE),
        )  # fmt: skip
        return cell

    assert_reproduced(network, make)


SPIKINGJELLY = [
    ("triangular", 1.0, "PiecewiseQuadratic"),
    ("boxcar", 1.0, "Rect"),
    ("arctan", 2.0, "ATan"),
    ("sigmoid", 4.0, "Sigmoid"),
    ("gaussian", 2.0, "Erf"),
    ("exponential", 1.0, "PiecewiseExp"),
]


@pytest.mark.parametrize(("surrogate", "slope", "name"), SPIKINGJELLY)
def test_spikingjelly_surrogates(surrogate: str, slope: float, name: str) -> None:
    neuron = pytest.importorskip("spikingjelly.activation_based.neuron")
    spike = getattr(pytest.importorskip("spikingjelly.activation_based.surrogate"), name)(slope)
    network = linear_network("if", "zero", reset_gradient="full", surrogate=surrogate, slope=slope, parameters={})
    assert_reproduced(network, lambda: neuron.IFNode(surrogate_function=spike))
