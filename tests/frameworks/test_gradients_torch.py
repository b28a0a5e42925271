"""The published neuron in every wiring: loss and gradients against PyTorch autograd of its maps."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from linear_networks import by_autograd
from networks import compiled, executed, given_values, interpreted, relative_error, small_network

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

FLOAT64_TOLERANCE = 1e-8
FLOAT32_TOLERANCE = 1e-5


CASES = [
    ((12, 4), "pass"), ((12, 10, 4), "pass"), ((12, 10, 4), "mask"), ((15, 12, 11, 9, 5), "pass"),
    ((15, 12, 11, 9, 5), "mask"),
]  # fmt: skip


@pytest.mark.parametrize(("widths", "reset_gradient"), CASES)
def test_interpreter_is_autograd_in_float64(widths: tuple[int, ...], reset_gradient: str) -> None:
    network = small_network(widths, timesteps=12, batch=5, reset_gradient=reset_gradient)
    given = given_values(network, 4, dyadic=False, dtype=np.float64)
    loss, gradients, counts, _ = by_autograd(network, given)
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
    loss, gradients, counts, _ = by_autograd(network, given)
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
    loss, gradients, counts, _ = by_autograd(network, given)
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
    loss, gradients, counts, _ = by_autograd(network, given)
    outcome = executed(compiled(network), given)
    np.testing.assert_array_equal(outcome.counts, counts)
    assert outcome.loss == pytest.approx(loss, rel=FLOAT32_TOLERANCE)
    assert outcome.gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        error = relative_error(outcome.gradients[name], gradient)
        print(f"float32 lowered {recurrence} delay {delay} bias {bias} {name}: {error:.1e}")
        assert error < FLOAT32_TOLERANCE
