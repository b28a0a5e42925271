"""Every neuron, reset, reset gradient and surrogate against PyTorch autograd of its maps.

The interpreter in float64, the compiled program in float32 on dyadic weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from linear_networks import CASES, GRADIENTS, by_autograd, linear_network
from networks import compiled, executed, given_values, interpreted, relative_error

from mimdsim.graph import SpikingNetwork
from mimdsim.graph.surrogates import SURROGATES

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
TOLERANCE = 1e-8
FLOAT32_TOLERANCE = 1e-4


def held_against_autograd(network: SpikingNetwork, seed: int = 4) -> float:
    """Largest relative error of a layer's gradient; spikes must be the same."""
    given = given_values(network, seed, dyadic=False, dtype=np.float64)
    loss, gradients, counts, closest = by_autograd(network, given)
    outcome = interpreted(network, given)
    assert closest > 1e-9
    assert 0 < counts.sum() < network.timesteps * counts.size
    np.testing.assert_array_equal(outcome.counts, counts)
    assert outcome.loss == pytest.approx(loss, rel=TOLERANCE)
    errors = []
    for name, gradient in gradients.items():
        assert np.abs(gradient).max() > 0
        errors.append(relative_error(outcome.gradients[name], gradient))
    return max(errors)


@pytest.mark.parametrize("reset_gradient", GRADIENTS)
@pytest.mark.parametrize(("model", "reset"), CASES)
def test_interpreter_is_autograd_of_the_maps(model: str, reset: str, reset_gradient: str) -> None:
    network = linear_network(model, reset, reset_gradient=reset_gradient)
    assert held_against_autograd(network) < TOLERANCE


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_every_surrogate(surrogate: str, form: str) -> None:
    slope = {"triangular": 1.0, "boxcar": 1.0, "arctan": 2.0}.get(surrogate, 5.0)
    network = linear_network("leaky", "zero", reset_gradient="full", surrogate=surrogate, slope=slope, spikes=form)
    assert held_against_autograd(network) < TOLERANCE


@pytest.mark.parametrize("reset_gradient", GRADIENTS)
@pytest.mark.parametrize(("model", "reset"), [("leaky", "subtract"), ("synaptic", "zero"), ("alpha", "subtract")])
@pytest.mark.parametrize("second_threshold", [-100.0, 0.5])
def test_reset_by_emission(model: str, reset: str, reset_gradient: str, second_threshold: float) -> None:
    network = linear_network(
        model, reset, reset_by="emission", reset_gradient=reset_gradient, second_threshold=second_threshold
    )
    assert held_against_autograd(network) < TOLERANCE


@pytest.mark.parametrize("options", [{"delay": 0}, {"spikes": "dense"}, {"delay": 0, "spikes": "dense"}])
@pytest.mark.parametrize("reset_by", ["state", "emission"])
def test_without_a_delay_between_layers_and_with_dense_spikes(options: dict[str, Any], reset_by: str) -> None:
    network = linear_network("synaptic", "zero", reset_by=reset_by, reset_gradient="full", **options)
    assert held_against_autograd(network) < TOLERANCE


PAIRS = [  # any two of a neuron with its reset, a surrogate and a gradient of the reset meet
    (model, reset, GRADIENTS[(row + column) % len(GRADIENTS)], surrogate)
    for row, (model, reset) in enumerate(CASES)
    for column, surrogate in enumerate(SURROGATES)
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "reset", "reset_gradient", "surrogate"), PAIRS)
def test_compiled_program_is_autograd_of_the_maps(model: str, reset: str, reset_gradient: str, surrogate: str) -> None:
    slope = {"triangular": 1.0, "boxcar": 1.0, "arctan": 2.0}.get(surrogate, 5.0)
    network = linear_network(model, reset, reset_gradient=reset_gradient, surrogate=surrogate, slope=slope)
    given = given_values(network, 4)
    loss, gradients, counts, closest = by_autograd(network, given)
    outcome = executed(compiled(network), given)
    assert closest > 1e-6  # no potential so near the threshold that rounding could decide
    np.testing.assert_array_equal(outcome.counts, counts)
    assert outcome.loss == pytest.approx(loss, rel=FLOAT32_TOLERANCE)
    for name, gradient in gradients.items():
        assert relative_error(outcome.gradients[name], gradient) < FLOAT32_TOLERANCE
