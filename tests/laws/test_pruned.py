"""Pruned weights: zeros stay zero, and the rest is trained as it would be with a mask."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from networks import ADAM, Given, compiled, executed, given_values, interpreted, relative_error, small_network
from test_convolutions import CHAINS, network_of_planes
from test_sources import SKIP, network_reading
from test_whole_tensors import run_whole

import mimdsim
from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.graph import SpikingNetwork
from mimdsim.graph.names import gradient_of
from mimdsim.workload import MappingOptions, load_workload, network_of

PRUNED = ("w.hidden0", "w.output")
CASES = {
    "lists": small_network((9, 8, 6, 4), gain=20.0, optimiser=ADAM),
    "clipped": small_network((9, 8, 6, 4), gain=20.0, largest_gradient_norm=1e-3),
    "dense": small_network((9, 8, 6, 4), gain=20.0, spikes="dense", optimiser=ADAM),
    "several sources": network_reading(SKIP),
    "planes": network_of_planes(*CHAINS["two"]),
}


def with_zeros(network: SpikingNetwork) -> tuple[SpikingNetwork, Given]:
    """Two of three weights of the pruned parameters are zero, and what an optimiser keeps of them."""
    values = given_values(network, 3)
    for name in PRUNED:
        zero = np.arange(values.arrays[name].size).reshape(values.arrays[name].shape) % 3 > 0
        kept = [network.parameters[name].kept(slot) for slot in network.optimiser.state]
        for each in (name, *kept):
            values.arrays[each][zero] = 0
    return replace(network, pruned=PRUNED), values


@pytest.mark.first(3)
@pytest.mark.parametrize("network", CASES.values(), ids=CASES)
def test_zeros_stay_and_the_rest_has_the_gradients_of_all(network: SpikingNetwork) -> None:
    some, values = with_zeros(network)
    whole, expected = interpreted(network, values), interpreted(some, values)
    outcomes = [expected, executed(compiled(some), values)]
    if network is CASES["lists"]:
        split = {layer.name: {"batch": 3, "neurons": 2} for layer in network.layers}
        outcomes.append(executed(compiled(some, options=MappingOptions(split=split)), values))
    for found in outcomes:
        for name, parameter in some.parameters.items():
            zero = (values.arrays[name] == 0) & (name in PRUNED)
            gradient = found.gradients[parameter.short]
            assert not gradient[zero].any()
            assert not found.updated[parameter.short][zero].any()
            assert np.abs(gradient[~zero]).max() > 0
            assert relative_error(gradient, expected.gradients[parameter.short]) < 1e-5
            if not network.largest_gradient_norm:
                np.testing.assert_allclose(
                    expected.gradients[parameter.short][~zero], whole.gradients[parameter.short][~zero]
                )


def test_only_gradients_of_what_is_left_count_in_the_norm() -> None:
    some, values = with_zeros(CASES["clipped"])
    found = interpreted(some, values).gradients
    assert sum((gradient**2).sum() for gradient in found.values()) ** 0.5 == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("name", ["lists", "clipped", "several sources"])
def test_whole_tensors_keep_zeros(name: str) -> None:
    some, values = with_zeros(CASES[name])
    whole, meant = run_whole(some, values), interpreted(some, values)
    for parameter in some.parameters.values():
        assert relative_error(whole.read(gradient_of(parameter.name)), meant.gradients[parameter.short]) < 1e-5
        if parameter.name in PRUNED:
            assert not whole.read(parameter.name)[values.arrays[parameter.name] == 0].any()


def test_a_workload_says_what_is_pruned() -> None:
    changes = {"training.max_training_steps": 4, "training.evaluate": "never"}
    workload = load_workload("digits", changes | {"training.pruned": {"hidden0": 0.9, "output": 0.25}})
    assert network_of(workload).pruned == ("w.hidden0", "w.output")
    run = mimdsim.run(workload, "bow", gpus=())
    shares = {name: float((run.weights[name] == 0).mean()) for name in ("hidden0", "hidden1", "output")}
    assert shares["hidden0"] == pytest.approx(0.9, abs=1e-4)
    assert shares["hidden1"] < 0.01
    assert shares["output"] == pytest.approx(0.25, abs=1e-3)
    with pytest.raises(MappingError, match=r"training\.pruned: no parameter 'hiden0'; did you mean 'hidden0'"):
        network_of(load_workload("digits", {"training.pruned": {"hiden0": 0.5}}))
    with pytest.raises(DescriptionError, match=r"training\.pruned"):
        load_workload("digits", {"training.pruned": {"hidden0": 1.0}})
