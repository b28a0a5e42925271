"""Loss and gradients against PyTorch autograd of the same equations, written out anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from networks import Given, compiled, executed, given_values, interpreted, relative_error, small_network

from mimdsim.graph import SpikingNetwork

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
    """Loss, gradient by layer, spike counts."""
    weights = [torch.tensor(given.arrays[f"w.{layer.name}"], requires_grad=True) for layer in network.layers]
    source = torch.tensor(given.dense, dtype=weights[0].dtype)
    potentials = [source.new_zeros(network.batch, layer.neurons) for layer in network.layers]
    emitted = [source.new_zeros(network.batch, layer.neurons) for layer in network.layers]
    counts = 0
    for t in range(network.timesteps):
        before = [source[t], *emitted[:-1]]  # every layer reads what the one before it emitted a timestep earlier
        for index, layer in enumerate(network.layers):
            v, lif = potentials[index], layer.lif
            fired = (v > lif.threshold).to(v.dtype)
            kept = lif.decay * v
            kept = kept - (kept * fired if lif.reset_gradient == "mask" else (kept * fired).detach())
            potentials[index] = kept + (1 - lif.decay) * lif.gain * (before[index] @ weights[index])
            emitted[index] = superspike(layer.selection)(potentials[index])
        counts = counts + emitted[-1]
    labels = torch.tensor(given.labels, dtype=torch.long)
    loss = torch.nn.functional.cross_entropy(network.logit_scale * counts, labels)
    loss.backward()
    gradients = {layer.name: weight.grad.numpy() for layer, weight in zip(network.layers, weights, strict=True)}
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
