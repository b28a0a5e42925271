"""Networks whose layers read several sources, written as NIR and read again: the same layers, weights and spikes."""

from __future__ import annotations

import tempfile
from dataclasses import fields, replace
from pathlib import Path

import nir_models as nm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import SEEDS, SMALL, given_values
from test_nir_network import graph_spikes, shaped
from test_sources import GRAPHS, any_ages, any_graph, network_reading

from mimdsim.graph import SpikingNetwork
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.workload.data.hdf5 import shared_process
from mimdsim.workload.interchange.layers import layers_of, network_of_layers
from mimdsim.workload.interchange.model_file import Population, arrays_of, read_model, write_model
from mimdsim.workload.interchange.nir_reading import read_nir
from mimdsim.workload.interchange.nir_walk import network_of_nir
from mimdsim.workload.interchange.nir_writing import nir_of_network


def assert_comes_back(network: SpikingNetwork, seed: int, folder: Path) -> int:
    """By a NIR file and the model file made of it; returns how many spikes there were."""
    # sums of weights never reach this threshold exactly; gains are folded into weights without rounding
    lif = neuron_of("lif", {"decay": 0.75, "current_gain": 16.0, "threshold": 1.03}, reset_gradient="mask")
    layers = tuple(
        replace(each, neuron=lif, selection=replace(each.selection, threshold=1.03, capacity=each.neurons))
        for each in network.layers
    )
    network = replace(network, layers=layers, spikes="dense", input_capacity=network.inputs)
    values = given_values(network, seed)
    weights = {name: values.arrays[name].astype(np.float64) for name in network.parameters}
    made, names = network_of_layers(network, weights, nm.DT)
    back = network_of_nir(folder / "m.nir", read_nir(nm.written(folder, nir_of_network(made, names), "m.nir")))
    write_model(folder / "m.safetensors", back)
    expected = graph_spikes(network, weights, values.dense.astype(np.float64))
    for found in (back, read_model(folder / "m.safetensors")):
        assert found.sources == made.sources
        for one, other in zip(made.populations, found.populations, strict=True):
            for first, second in zip(_all_weights(one), _all_weights(other), strict=True):
                np.testing.assert_allclose(first * one.dynamics.gain, second * other.dynamics.gain, rtol=1e-6)
            for field in fields(one.dynamics):
                first, second = getattr(one.dynamics, field.name), getattr(other.dynamics, field.name)
                if isinstance(first, np.ndarray) and field.name != "gain":
                    np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-9)
        read, delay = layers_of("file", found, [each.selection for each in layers], ["mask"] * len(layers))
        again = replace(network, layers=read, delay=delay)
        assert [again.sources(each) for each in read] == [network.sources(each) for each in layers]
    for one, other in zip(
        expected, graph_spikes(again, shaped(again, arrays_of(back)), values.dense * 1.0), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    return int(sum(each.sum() for each in expected))


def _all_weights(each: Population) -> list[np.ndarray]:
    return [weights for _, weights in each.reads]


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_every_graph_of_layers_comes_back(sources: dict[str, tuple[str, ...]], delay: int, tmp_path: Path) -> None:
    assert assert_comes_back(network_reading(sources, delay=delay, bias=True, timesteps=20), 3, tmp_path) > 100


@pytest.mark.slow
def test_whatever_layers_read_comes_back() -> None:
    @settings(SMALL, max_examples=60)
    @given(network=st.one_of(any_graph(), any_ages()), seed=SEEDS)
    def holds(network: SpikingNetwork, seed: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            assert_comes_back(network, seed, Path(folder))

    with shared_process():
        holds()
