"""Loss and gradients against PyTorch autograd of the same equations, written out anew."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from networks import (
    Given,
    compiled,
    executed,
    given_values,
    interpreted,
    parameter_keys,
    relative_error,
    small_network,
)

from mimdsim.graph import SpikingNetwork

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

FLOAT64_TOLERANCE = 1e-8
FLOAT32_TOLERANCE = 1e-5


def superspike(selection: Any) -> Any:
    """Spike with gradient 1 / (slope*|v - threshold| + 1)^2 where v is above the second threshold, 0 below."""

    class Spike(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(context: Any, v: Any) -> Any:
            context.save_for_backward(v)
            return (v > selection.threshold).to(v.dtype)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            (v,) = context.saved_tensors
            surrogate = (selection.slope * (v - selection.threshold).abs() + 1) ** -2
            return gradient * surrogate * (v > selection.second_threshold)

    return Spike.apply


def by_autograd(network: SpikingNetwork, given: Given) -> tuple[float, dict[str, np.ndarray], np.ndarray]:
    """Loss, gradient by layer or parameter, spike counts."""
    given_as = {
        key: torch.tensor(given.arrays[name], requires_grad=True) for key, name in parameter_keys(network).items()
    }
    layers = network.layers
    source = torch.tensor(given.dense, dtype=given_as[layers[0].name].dtype)
    potentials = [source.new_zeros(network.batch, layer.neurons) for layer in layers]
    emitted = [source.new_zeros(network.batch, layer.neurons) for layer in layers]
    counts = 0
    for t in range(network.timesteps):
        earlier = list(emitted)
        for index, layer in enumerate(layers):
            # a layer reads what the one before it emitted a timestep earlier or, without a delay, just now
            before = source[t] if index == 0 else (earlier if network.delay else emitted)[index - 1]
            v, neuron = potentials[index], layer.neuron
            fired = (v > neuron.threshold).to(v.dtype)
            kept = neuron.quiet.matrix.item() * v
            kept = kept - (kept * fired if neuron.reset_gradient == "mask" else (kept * fired).detach())
            current = before @ given_as[layer.name]
            if layer.recurrence == "all_to_all":
                current = current + earlier[index] @ given_as[f"r.{layer.name}"]
            if layer.recurrence == "one_to_one":
                current = current + earlier[index] * given_as[f"r.{layer.name}"]
            if layer.bias:
                current = current + given_as[f"b.{layer.name}"]
            potentials[index] = kept + neuron.quiet.drive.item() * current
            emitted[index] = superspike(layer.selection)(potentials[index])
        counts = counts + emitted[-1]
    labels = torch.tensor(given.labels, dtype=torch.long)
    loss = torch.nn.functional.cross_entropy(network.logit_scale * counts, labels)
    loss.backward()
    gradients = {key: parameter.grad.numpy() for key, parameter in given_as.items()}
    return float(loss.detach()), gradients, counts.detach().numpy()  # type: ignore[attr-defined]


CASES = [
    ((12, 4), "pass"), ((12, 10, 4), "pass"), ((12, 10, 4), "mask"), ((15, 12, 11, 9, 5), "pass"),
    ((15, 12, 11, 9, 5), "mask"),
]  # fmt: skip


@pytest.mark.parametrize(("widths", "reset_gradient"), CASES)
def test_interpreter_is_autograd_in_float64(widths: tuple[int, ...], reset_gradient: str) -> None:
    network = small_network(widths, timesteps=12, batch=5, reset_gradient=reset_gradient)
    given = given_values(network, 4, dyadic=False, dtype=np.float64)
    loss, gradients, counts = by_autograd(network, given)
    outcome = interpreted(network, given)
    assert counts.sum() > 0
    np.testing.assert_array_equal(outcome.counts, counts)
    assert outcome.loss == pytest.approx(loss, rel=FLOAT64_TOLERANCE)
    for name, gradient in gradients.items():
        assert np.abs(gradient).max() > 0
        error = relative_error(outcome.gradients[name], gradient)
        print(f"float64 interpreter {widths} {reset_gradient} {name}: {error:.1e}")
        assert error < FLOAT64_TOLERANCE


@pytest.mark.parametrize(("widths", "reset_gradient"), CASES)
def test_lowered_program_is_autograd_in_float32(widths: tuple[int, ...], reset_gradient: str) -> None:
    network = small_network(widths, timesteps=12, batch=5, reset_gradient=reset_gradient)
    given = given_values(network, 4)
    loss, gradients, counts = by_autograd(network, given)
    outcome = executed(compiled(network), given)
    np.testing.assert_array_equal(outcome.counts, counts)
    assert outcome.loss == pytest.approx(loss, rel=FLOAT32_TOLERANCE)
    for name, gradient in gradients.items():
        assert np.abs(gradient).max() > 0
        error = relative_error(outcome.gradients[name], gradient)
        print(f"float32 lowered {widths} {reset_gradient} {name}: {error:.1e}")
        assert error < FLOAT32_TOLERANCE


WIRINGS = list(product(("none", "one_to_one", "all_to_all"), (0, 1), (False, True)))


@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@pytest.mark.parametrize(("recurrence", "delay", "bias"), WIRINGS)
def test_every_wiring_is_autograd_in_float64(recurrence: str, delay: int, bias: bool, spikes: str) -> None:
    second = 0.5 if spikes == "sparse" else -100.0  # dense spikes have no second threshold
    network = small_network(
        (12, 10, 7, 4), timesteps=9, batch=4, reset_gradient="mask", recurrence=recurrence, delay=delay, bias=bias,
        spikes=spikes, second_threshold=second, gain=20.0,
    )  # fmt: skip
    given = given_values(network, 4, dyadic=False, dtype=np.float64)
    loss, gradients, counts = by_autograd(network, given)
    outcome = interpreted(network, given)
    assert counts.sum() > 0
    np.testing.assert_array_equal(outcome.counts, counts)
    assert outcome.loss == pytest.approx(loss, rel=FLOAT64_TOLERANCE)
    assert outcome.gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert np.abs(gradient).max() > 0
        error = relative_error(outcome.gradients[name], gradient)
        print(f"float64 interpreter {recurrence} delay {delay} bias {bias} {spikes} {name}: {error:.1e}")
        assert error < FLOAT64_TOLERANCE


@pytest.mark.parametrize(("recurrence", "delay", "bias"), WIRINGS)
def test_every_wiring_on_tiles_is_autograd_in_float32(recurrence: str, delay: int, bias: bool) -> None:
    network = small_network(
        (12, 10, 7, 4), timesteps=9, batch=4, reset_gradient="mask", recurrence=recurrence, delay=delay, bias=bias,
        gain=20.0,
    )  # fmt: skip
    given = given_values(network, 4)
    loss, gradients, counts = by_autograd(network, given)
    outcome = executed(compiled(network), given)
    np.testing.assert_array_equal(outcome.counts, counts)
    assert outcome.loss == pytest.approx(loss, rel=FLOAT32_TOLERANCE)
    assert outcome.gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        error = relative_error(outcome.gradients[name], gradient)
        print(f"float32 lowered {recurrence} delay {delay} bias {bias} {name}: {error:.1e}")
        assert error < FLOAT32_TOLERANCE
