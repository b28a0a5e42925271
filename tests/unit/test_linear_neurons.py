"""The linear neuron family on the graph: finite differences, emission at little capacity, per-neuron constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from linear_networks import CASES, SPIKING, advanced, linear_network, parameters_of, start
from networks import given_values, interpreted, relative_error
from test_graph import central_differences

from mimdsim.base.errors import MappingError
from mimdsim.graph import OPERATIONS, training_graph
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.network_graphs import forward_graph
from mimdsim.graph.neuron_models import MODELS, checked_parameters, neuron_of
from mimdsim.graph.surrogates import SURROGATES


def smooth(network: Any) -> Any:
    layers = [replace(layer, selection=replace(layer.selection, smooth=True)) for layer in network.layers]
    return replace(network, layers=tuple(layers))


@pytest.mark.parametrize(("model", "reset"), CASES)
def test_maps_are_the_equations_of_the_model(model: str, reset: str) -> None:
    """As its source writes them, from rest on, whoever fires."""
    given, draw = parameters_of(model, reset), np.random.default_rng(3)
    neuron, parameters = neuron_of(model, given, reset=reset), checked_parameters(MODELS[model], given)
    x = np.zeros((len(neuron.states), 1, 50))
    states = start(model, parameters, x[0])
    for _ in range(20):
        current, fired = draw.normal(size=x[0].shape), draw.random(x[0].shape) < 0.3
        states, above = advanced(model, reset, parameters, states, current, fired * 1.0)
        x, u = OPERATIONS["neuron"].evaluate(neuron, x, current, fired)
        np.testing.assert_allclose(u - neuron.threshold, above, rtol=1e-12, atol=1e-12)


@pytest.mark.first(12)
@pytest.mark.parametrize(("model", "reset"), CASES)
def test_gradients_are_finite_differences_of_smooth_spikes(model: str, reset: str) -> None:
    """Everything is differentiable when resets are as smooth as spikes."""
    network = smooth(
        linear_network(
            model, reset, reset_gradient="full", slope=1.0, spikes="dense", widths=(3, 4, 2), timesteps=5, batch=2
        )
    )
    given = given_values(network, 1, dyadic=False, dtype=np.float64)
    outcome, graph, inputs = interpreted(network, given), forward_graph(network), given.for_graph(network)
    for layer in network.layers:
        expected = central_differences(graph, inputs, f"w.{layer.name}")
        assert np.abs(expected).max() > 1e-4
        assert relative_error(outcome.gradients[layer.name], expected) < 1e-6


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_surrogates_are_derivatives_of_their_smooth_spikes(surrogate: str) -> None:
    record = SURROGATES[surrogate]
    x = np.linspace(-1.9, 1.95, 78)
    for slope in (0.5, 1.0, 3.0):
        away = x[np.abs(np.abs(x) - 0.5 / slope) > 1e-3]  # where a boxcar jumps
        differences = (record.smooth(away + 1e-6, slope) - record.smooth(away - 1e-6, slope)) / 2e-6
        np.testing.assert_allclose(record.derivative(away, slope), differences, atol=1e-5)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_surrogates_keep_the_dtype_and_are_finite_far_away(surrogate: str) -> None:
    for kind in (np.float32, np.float64):
        made = SURROGATES[surrogate].derivative(np.array([-1e4, 0.0, 1e4], kind), kind(25))
        assert made.dtype == kind
        assert np.isfinite(made).all()


def test_a_dropped_spike_resets_by_state_and_not_by_emission() -> None:
    """Two neurons fire, one fits the list: the other goes on from where it was only when emission resets."""
    found = {}
    for reset_by in ("state", "emission"):
        network = linear_network(
            "leaky",
            "zero",
            reset_by=reset_by,
            parameters={"beta": 0.5},
            widths=(1, 2),
            timesteps=2,
            batch=1,
            capacities=(1,),
        )
        given = given_values(network, 1)
        given.arrays["w.output"][:] = 2.0
        given.spikes.counts[:] = 1
        found[reset_by] = interpreted(network, given).potentials["output"][1, 0]
    np.testing.assert_array_equal(found["state"], [2.0, 2.0])
    np.testing.assert_array_equal(found["emission"], [2.0, 3.0])


def test_constants_of_every_neuron_its_own() -> None:
    """One layer of different neurons is as many layers of one neuron; thresholds differ too."""
    betas, thresholds = np.array([0.5, 0.75, 0.9]), np.array([1.0, 0.75, 1.5])
    values: dict[str, Any] = {"widths": (6, 3), "timesteps": 8, "batch": 4, "slope": 3.0}
    together = linear_network("leaky", "subtract", parameters={"beta": betas, "threshold": thresholds}, **values)
    given = given_values(together, 2, dtype=np.float64, dyadic=False)
    outcome = interpreted(together, given)
    assert together.layers[0].selection.threshold == 1.5
    for index, (beta, threshold) in enumerate(zip(betas, thresholds, strict=True)):
        alone = linear_network("leaky", "subtract", parameters={"beta": beta, "threshold": threshold}, **values)
        one = interpreted(alone, given)
        above = one.potentials["output"][..., index] - threshold
        np.testing.assert_allclose(outcome.potentials["output"][..., index] - 1.5, above, atol=1e-12)
        assert (above > 0).any()


def test_a_reset_gradient_of_its_own_each() -> None:
    """Same spikes, three gradients."""
    found = {}
    for reset_gradient in ("pass", "mask", "full"):
        network = linear_network("leaky", "zero", reset_gradient=reset_gradient)
        found[reset_gradient] = interpreted(network, given_values(network, 4))
    one, *others = found.values()
    for other in others:
        np.testing.assert_array_equal(one.counts, other.counts)
        assert relative_error(one.gradients["hidden0"], other.gradients["hidden0"]) > 0.05
    assert relative_error(*(found[name].gradients["hidden0"] for name in ("mask", "full"))) > 0.05


def test_what_is_stashed() -> None:
    """u alone, and what the full gradient of a reset reads; who fired is found anew and never stashed."""
    stashed = {}
    for gradient in ("pass", "mask", "full"):
        graph = training_graph(linear_network("rleaky", "zero", reset_gradient=gradient))
        names = graph.scan("forward").attributes.stacked
        stashed[gradient] = {name for name in names if not name.startswith("spikes")}
    potentials = {"u.hidden0", "u.output"}
    assert stashed["pass"] == stashed["mask"] == potentials
    assert stashed["full"] == potentials | {"x.hidden0", "x.output", "current.hidden0", "current.output"}


@pytest.mark.parametrize("model", SPIKING)
def test_models_describe_themselves(model: str) -> None:
    record = MODELS[model]
    neuron = neuron_of(model)
    assert isinstance(neuron, LinearNeuron)
    assert neuron.states == record.states
    assert record.source
    assert record.equation
    assert neuron_of(model, reset=record.resets[0]).fired is not None


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": "leeky"}, r"network\.neuron = 'leeky' is not known; did you mean 'leaky'\?.*write one of lif, "),
    ({"name": "leaky", "parameters": {"bta": 0.5}}, r"neuron_parameters\.bta: model 'leaky' .*it has beta, thresh"),
    ({"name": "leaky", "parameters": {"beta": 1.5}}, r"neuron_parameters\.beta = 1\.5 must be 0 to 1 \(per timestep"),
    ({"name": "leaky", "parameters": {"beta": float("nan")}}, r"neuron_parameters\.beta = nan must be 0 to 1"),
    ({"name": "leaky", "parameters": {"beta": [[0.5]]}}, r"neuron_parameters\.beta must be a number or one number per"),
    ({"name": "norse_lif", "reset": "subtract"}, r"network\.reset = 'subtract': model 'norse_lif' offers zero, none"),
    ({"name": "leaky", "reset_by": "stat"}, r"network\.reset_by = 'stat' is not a valid choice; did you mean 'state'"),
    ({"name": "leaky", "reset_gradient": "masked"}, r"network\.reset_gradient = 'masked' is not a valid choice; did"),
    ({"name": "alpha", "parameters": {"alpha": 0.5}}, r"model 'alpha' needs 0 < beta < alpha < 1"),
    ({"name": "nir_lif", "parameters": {"v_leak": 2.0}}, r"threshold lies -1 above the resting potential.*raise the"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_refusals_say_what_to_type(given: dict[str, Any], message: str) -> None:
    with pytest.raises(MappingError, match=message):
        neuron_of(**given)


def test_constants_for_another_number_of_neurons_are_refused() -> None:
    network = linear_network("leaky", "zero", parameters={"beta": [0.5, 0.6]}, widths=(4, 3))
    with pytest.raises(
        MappingError, match="layer 'output': constants of neuron 'leaky' are for 2 neurons, the layer has 3"
    ):
        forward_graph(network)


def test_an_unknown_surrogate_is_refused() -> None:
    with pytest.raises(
        MappingError, match=r"network\.surrogate = 'atan' is not known.*write one of superspike, arctan"
    ):
        linear_network("leaky", "zero", surrogate="atan")
