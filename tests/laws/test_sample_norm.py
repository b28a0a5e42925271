"""Layer, group and instance norm: as PyTorch means them, on tiles and GPUs as the interpreter does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_execution import execute
from networks import compiled, machine, relative_error, small_network
from test_batch_norm import constants, drawn, mutated, on_tiles, operands, outputs
from test_convolutions import CHAINS, network_of_planes

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.checking.program import check_values
from mimdsim.execution import WholeTensors
from mimdsim.graph import SpikingNetwork, inference_network, training_graph
from mimdsim.graph.norms import BatchNorm, SampleNorm, of_sample
from mimdsim.graph.operations import OPERATIONS
from mimdsim.workload import MappingOptions, load_workload, network_of
from mimdsim.workload.interchange.layers import network_of_layers

EPSILON = 2.0**-10  # exact in float32


def normed(network: SpikingNetwork, *groups: int, others: str = "sample", per: str = "sample") -> SpikingNetwork:
    """Norms of samples in so many groups, layer by layer; per: theirs, others: of further layers."""
    norms = [BatchNorm(per=per, epsilon=EPSILON, groups=each) for each in groups]
    norms += [BatchNorm(per=others, epsilon=EPSILON)] * (len(network.layers) - len(groups))
    layers = zip(network.layers, norms, strict=True)
    return replace(network, layers=tuple(replace(layer, norm=norm) for layer, norm in layers))


def networks() -> dict[str, SpikingNetwork]:
    dense: dict[str, Any] = {"spikes": "dense", "gain": 20.0, "batch": 6, "delay": 0}
    return {
        "layer norm": normed(small_network((9, 8, 6, 4), **dense)),
        "a delay": normed(small_network((9, 8, 6, 4), **dense | {"delay": 1}), 4, 1),
        "biased": normed(small_network((9, 8, 4), bias=True, **dense), 2),
        "recurrent": normed(small_network((9, 8, 4), recurrence="all_to_all", reset_gradient="mask", **dense), 2),
        "planes": normed(network_of_planes(*CHAINS["two"], gain=10.0, delay=0), 3, 2),
        "pooled after": normed(network_of_planes(*CHAINS["max after"], gain=10.0, delay=0), 1),
        "root mean square": normed(
            small_network((9, 8, 6, 4), bias=True, **dense), 2, others="root_mean_square", per="root_mean_square"
        ),
        "root mean square of planes": normed(
            network_of_planes(*CHAINS["two"], gain=10.0, delay=0), 3, 2, per="root_mean_square"
        ),
        "positions of planes": normed(network_of_planes(*CHAINS["two"], gain=10.0, delay=0), 1, 2, per="position"),
        "beside batch norm": normed(small_network((9, 8, 6, 4), **dense), 2, others="sequence"),
    }


NETWORKS = networks()


@pytest.mark.torch
@pytest.mark.parametrize(("positions", "groups"), [(1, 1), (4, 1), (4, 3), (4, 6)])
def test_the_operation_and_its_gradient_are_those_of_pytorch(positions: int, groups: int) -> None:
    torch = pytest.importorskip("torch")
    draw, norm = np.random.default_rng(1), SampleNorm(positions=positions, groups=groups, epsilon=EPSILON)
    x, q = draw.normal(1.0, 2.0, (5 * positions, 6)), draw.normal(size=(5 * positions, 6))
    made, variance = OPERATIONS["standardise"].evaluate(norm, x)
    (d_x,) = OPERATIONS["standardise_gradient"].evaluate(norm, q, made, variance)
    planes = torch.tensor(x.reshape(5, positions, 6).transpose(0, 2, 1).copy(), requires_grad=True)
    wanted = torch.nn.functional.group_norm(planes, groups, eps=EPSILON)
    wanted.backward(torch.tensor(q.reshape(5, positions, 6).transpose(0, 2, 1).copy()))
    for ours, theirs in ((made, wanted.detach()), (d_x, planes.grad)):
        assert relative_error(ours, theirs.numpy().transpose(0, 2, 1).reshape(ours.shape)) < 1e-12


@pytest.mark.torch
def test_a_norm_of_positions_is_the_layer_norm_of_channels_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    draw, norm = np.random.default_rng(1), of_sample(BatchNorm(per="position", epsilon=EPSILON), 4)
    x, q = draw.normal(1.0, 2.0, (5 * 4, 6)), draw.normal(size=(5 * 4, 6))
    made, variance = OPERATIONS["standardise"].evaluate(norm, x)
    (d_x,) = OPERATIONS["standardise_gradient"].evaluate(norm, q, made, variance)
    tokens = torch.tensor(x.reshape(5, 4, 6), requires_grad=True)
    wanted = torch.nn.functional.layer_norm(tokens, (6,), eps=EPSILON)
    wanted.backward(torch.tensor(q.reshape(5, 4, 6)))
    for ours, theirs in ((made, wanted.detach()), (d_x, tokens.grad)):
        assert relative_error(ours, theirs.numpy().reshape(ours.shape)) < 1e-12


@pytest.mark.torch
@pytest.mark.parametrize(("positions", "groups"), [(1, 1), (4, 1), (1, 3)])
def test_the_root_mean_square_is_that_of_pytorch(positions: int, groups: int) -> None:
    torch = pytest.importorskip("torch")
    draw, norm = np.random.default_rng(1), BatchNorm(per="root_mean_square", epsilon=EPSILON, groups=groups)
    about = of_sample(norm, positions)
    x, q = draw.normal(1.0, 2.0, (5 * positions, 6)), draw.normal(size=(5 * positions, 6))
    made, squares = OPERATIONS["standardise"].evaluate(about, x)
    (d_x,) = OPERATIONS["standardise_gradient"].evaluate(about, q, made, squares)
    shares = torch.tensor(x.reshape(5 * groups, -1), requires_grad=True)
    wanted = torch.nn.functional.rms_norm(shares, shares.shape[1:], eps=EPSILON)
    wanted.backward(torch.tensor(q.reshape(5 * groups, -1)))
    for ours, theirs in ((made, wanted.detach()), (d_x, shares.grad)):
        assert relative_error(ours, theirs.numpy().reshape(ours.shape)) < 1e-12


@pytest.mark.first(2)
@pytest.mark.parametrize("form", ["calls", "traced", "fused"])
@pytest.mark.parametrize("name", NETWORKS)
def test_tiles_compute_what_the_interpreter_does(name: str, form: str) -> None:
    network = NETWORKS[name]
    values = drawn(network, 3)
    expected = outputs(network, values)
    assert min(np.abs(expected[f"gradient.{each}"]).max() for each in network.trained) > 1e-6
    found = on_tiles(network, values, strict=form == "calls", options=MappingOptions(dense_neurons=form))
    assert found.keys() >= {f"gradient.{each}" for each in network.trained}
    for value in found.keys() & expected.keys() - {"loss"}:
        assert relative_error(found[value], np.asarray(expected[value])) < 1e-6, value


@pytest.mark.parametrize("name", NETWORKS)
def test_kernels_compute_what_the_interpreter_does(name: str) -> None:
    network = NETWORKS[name]
    values = drawn(network, 3)
    graph, inputs, meant = training_graph(network), values.for_graph(network), outputs(network, values)
    for strategy in ("as_published", "persistent" if name == "recurrent" else "hoisted"):
        found = execute(graph, inputs, strategy=strategy)
        for value in graph.outputs:
            assert relative_error(np.asarray(found[value]), np.asarray(meant[value])) < 1e-12, value


MUTANTS: dict[str, tuple[str, Any]] = {
    "statistics of too many values": ("AverageParts", lambda table: constants(table, values=np.float32(7))),
    "another epsilon": ("Standardise", lambda table: constants(table, epsilon=np.float32(0.01))),
    "variance for mean": ("Standardise", lambda table: operands(table, mean=table.operands["variance"])),
    "the mean for the slope": ("StandardiseGradient", lambda table: operands(table, slope=table.operands["mean"])),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_check_finds_mutants(name: str) -> None:
    made = compiled(NETWORKS["layer norm"])
    wrong = mutated(made.program, *MUTANTS[name])
    assert wrong != made.program
    assert all(each.passed for each in check_values(made.program, made, machine()))
    assert not all(each.passed for each in check_values(wrong, made, machine()))


def test_evaluations_normalise_as_training_does() -> None:
    found = inference_network(NETWORKS["beside batch norm"], 3)
    assert [layer.norm and layer.norm.per for layer in found.layers] == ["sample", None, None]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"network.batch_norm_groups": 3}, "groups = 3 do not divide its 512 columns evenly"),
        ({"network.batch_norm_groups": 512}, "a norm of one value has no variance: lower network.batch_norm_groups"),
        (
            {"network.batch_norm": "timestep", "network.batch_norm_groups": 2},
            'only a batch_norm of a "sample" or "root',
        ),
        ({"network.spikes": "sparse", "network.capacity": [9, 9]}, "batch norm is of all currents: set network.spikes"),
    ],
)
def test_keys_are_checked(changes: dict[str, Any], said: str) -> None:
    keys = {"network.hidden": [512], "network.capacity": [], "network.spikes": "dense", "network.batch_norm": "sample"}
    with pytest.raises((MappingError, DescriptionError), match=said):
        network_of(load_workload("digits", keys | changes))


def test_what_does_not_know_norms_of_samples_says_so() -> None:
    network = NETWORKS["layer norm"]
    with pytest.raises(MappingError, match="layer 'hidden0': a norm of samples does not run as whole tensors; use the"):
        WholeTensors(network)
    with pytest.raises(DescriptionError, match="norms of samples have no counterpart in NIR; nearest: a state dict"):
        network_of_layers(network, drawn(network, 3).arrays, 1e-3)
