"""Layers that send their currents, and layers without weights that read them: the residual streams of MS-ResNets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from networks import central_difference, relative_error
from test_batch_norm import drawn, on_tiles
from test_gpu_execution import assert_same_training_step

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.execution.whole_tensors import refusals
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.network_graphs import inference_graph, inference_network
from mimdsim.graph.norms import folded
from mimdsim.workload import MappingOptions, network_of
from mimdsim.workload.description.workload import build_workload
from mimdsim.workload.interchange.importing import random_table
from mimdsim.workload.interchange.layers import network_of_layers

CONV = {"channels": 2, "kernel": (3, 3), "padding": (1, 1)}
DENSE: dict[str, Any] = {  # fc2(lif2(fc1(lif1(x)))) + x
    "hidden": [8, 8, 8, 8, 8],
    "neuron": ["current", "leaky", "leaky", "current", "leaky", "leaky"],
    "unweighted": ["hidden1", "hidden4"],
    "sources": {"hidden4": ["hidden0 + hidden3"]},
}
PLANES: dict[str, Any] = {  # two blocks, the second of which halves the planes
    "hidden": [32, 32, 32, 32, 32, 12, 12, 12],
    "neuron": ["current", "leaky", "leaky", "current", "leaky", "current", "current", "leaky", "leaky"],
    "unweighted": ["hidden1", "hidden4", "hidden7"],
    "sources": {
        "hidden4": ["hidden0 + hidden3"],
        "hidden6": ["hidden0 + hidden3"],
        "hidden7": ["hidden5 + hidden6"],
        "output": ["hidden7"],
    },
    "convolutions": {
        "hidden0": CONV | {"planes": (2, 4, 4)},
        "hidden2": CONV,
        "hidden3": CONV,
        "hidden5": CONV | {"channels": 3, "stride": (2, 2)},
        "hidden6": {"channels": 3, "kernel": (1, 1), "stride": (2, 2)},
    },
}
POOLED: dict[str, Any] = (
    PLANES
    | {  # the stream, before neurons and before weights
        "hidden": [*PLANES["hidden"][:-1], 8],
        "sources": PLANES["sources"]
        | {
            "hidden7": ["average_pool(hidden0 + hidden3, 2)"],
            "output": ["hidden7", "average_pool(hidden5 + hidden6, 2)"],
        },
    }
)


def network(keys: dict[str, Any], norms: str = "none", **more: Any) -> SpikingNetwork:
    table = random_table(32 if "convolutions" in keys else 9, 4)
    table |= {"name": "currents", "title": "currents"}
    table["data"] |= {"timesteps": 3, "activity": 0.4}
    table["training"]["batch"] = 3
    plain = {"output", *keys["unweighted"]}
    names = [*(f"hidden{at}" for at in range(len(keys["hidden"]))), "output"]
    normed = ["none" if name in plain else norms for name in names]
    table["network"] = (
        {"spikes": "dense", "delay": 0, "surrogate_slope": 1.0, "batch_norm": normed, "bias": True} | keys | more
    )
    return network_of(build_workload(table, {}, "currents"))


IN_A_ROW: dict[str, Any] = {  # neurons that read the spikes of others as they are
    "hidden": [8, 8, 8],
    "neuron": "leaky",
    "neuron_parameters": [{}, {"threshold": 0.5}, {"threshold": 0.5}, {}],
    "unweighted": ["hidden1", "hidden2"],
    "reset_gradient": "full",
}
NETWORKS = {"dense": DENSE, "planes": PLANES, "in a row": IN_A_ROW}
NORMS = ["none", "timestep", "sequence", "sample"]


def outputs(of: SpikingNetwork, values: Any) -> dict[str, Any]:
    return interpret(training_graph(of), values.for_graph(of))


@pytest.mark.first(2)
@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("keys", NETWORKS.values(), ids=NETWORKS)
def test_currents_run_on_tiles_as_they_are_meant(keys: dict[str, Any], norms: str) -> None:
    of = network(keys, norms)
    values = drawn(of, 3)
    expected = outputs(of, values)
    assert min(np.abs(expected[f"gradient.{name}"]).max() for name in of.trained) > 1e-6
    for form in ("calls", "traced", "fused"):
        found = on_tiles(of, values, strict=form == "calls", options=MappingOptions(dense_neurons=form))
        assert {f"gradient.{name}" for name in of.trained} <= found.keys()
        for name in found.keys() & expected.keys() - {"loss"}:
            assert relative_error(found[name], np.asarray(expected[name])) < 1e-6, name


@pytest.mark.parametrize("norms", ["none", "sequence"])
@pytest.mark.parametrize("keys", [DENSE, PLANES, POOLED], ids=["dense", "planes", "pooled"])
def test_gradients_through_currents_are_those_of_finite_differences(keys: dict[str, Any], norms: str) -> None:
    of = network(keys, norms)
    smooth = (replace(each, selection=replace(each.selection, smooth=True, surrogate="sigmoid")) for each in of.layers)
    of = replace(of, layers=tuple(smooth))
    values, graph = drawn(of, 3), training_graph(of)
    given, found = values.for_graph(of), outputs(of, values)
    for name, parameter in of.trained.items():
        place = (0, parameter.shape[1] - 1)
        expected = central_difference(graph, given, name, place)
        assert found[f"gradient.{name}"][place] == pytest.approx(expected, rel=1e-4, abs=1e-9), name


@pytest.mark.parametrize("strategy", ["as_published", "hoisted", "persistent"])
@pytest.mark.parametrize("keys", NETWORKS.values(), ids=NETWORKS)
def test_gpu_kernels_send_currents(keys: dict[str, Any], strategy: str) -> None:
    if strategy != "hoisted":
        assert_same_training_step(network(keys), strategy, 3)


def test_norms_of_what_has_no_weights_are_kept_where_nothing_is_learned() -> None:
    """Also a layer that reads the input without weights, and one that reads another as it is."""
    keys = DENSE | {"hidden": [9, 9, 9], "neuron": ["leaky", "leaky", "current", "leaky"], "sources": {}}
    of = network(keys | {"unweighted": ["hidden0", "hidden2"]}, batch_norm=["none", "timestep", "timestep", "none"])
    assert [each.public for each in of.layers[2].parameters][:2] == ["hidden2.bias", "hidden2.gain"]
    values = drawn(of, 3)
    expected, found = outputs(of, values), on_tiles(of, values, strict=True)
    for name in found.keys() & expected.keys() - {"loss"}:
        assert relative_error(found[name], np.asarray(expected[name])) < 1e-6, name
    tests, given = inference_network(of, of.batch), values.for_graph(of)
    assert [bool(each.norm) for each in tests.layers] == [False, False, True, False]
    kept = folded(of.layers, given)
    assert kept.keys() >= {"gain.hidden2", "mean.hidden2"}
    assert "gain.hidden1" not in kept
    moved = kept | {"mean.hidden2": kept["mean.hidden2"] + 9.0}
    counts = [interpret(inference_graph(tests), each)["counts"] for each in (kept, moved)]
    assert np.abs(counts[0] - counts[1]).max() > 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"hidden": [8, 7, 8, 8, 8]}, "'hidden1', in network.unweighted, has 7 neurons, and reads 8: as many"),
        ({"sources": {"hidden4": ["hidden0", "hidden3"]}}, "reads 2 sources: write one, as in .hidden0 . hidden1."),
        ({"neuron": ["current", "gru", "leaky", "leaky", "leaky", "leaky"]}, "has a convolution, delays or gates"),
        (
            {"spikes": "sparse", "neuron": "leaky", "sources": {}, "capacity": [8] * 6},
            "lists of spikes are no currents",
        ),
        ({"unweighted": ["hiden1"]}, "network.unweighted.hiden1: no such layer; did you mean 'hidden1'"),
    ],
)
def test_layers_that_need_weights_are_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises((MappingError, DescriptionError), match=said):
        network(DENSE, **more)


def test_what_does_not_run_without_weights_says_so() -> None:
    of = network(DENSE)
    planes = network(PLANES)
    assert "layer 'hidden4': a layer without weights does not run as whole tensors" in "".join(refusals(of))
    of = network(DENSE, neuron="leaky")
    with pytest.raises(DescriptionError, match="a layer without weights is not written to files"):
        network_of_layers(of, drawn(of, 3).arrays, 0.001)
    other = replace(planes.layers[4], planes=None)
    with pytest.raises(MappingError, match="its planes are none, and those that it reads are 2 x 4 x 4"):
        replace(planes, layers=(*planes.layers[:4], other, *planes.layers[5:]))
