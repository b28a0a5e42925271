"""Batch norm as it is trained: as PyTorch means it, on tiles as the interpreter does, its averages kept and folded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float64_programs import in_float64
from gpu_execution import execute
from linear_networks import by_layer_in_torch
from networks import ADAM, Given, central_difference, compiled, given_values, machine, relative_error, small_network
from test_convolutions import CHAINS, network_of_planes

import mimdsim
from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.checking.program import check_values, shrunk
from mimdsim.compiler.memory_report import remedies
from mimdsim.execution import Checkpoints, Executor, WholeTensors, evaluate, execute_strictly
from mimdsim.gpu import STRATEGIES
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.graph import SpikingNetwork, inference_graph, inference_network, interpret, training_graph
from mimdsim.graph.layer import Source
from mimdsim.graph.losses import Loss
from mimdsim.graph.names import random_name
from mimdsim.graph.norms import BatchNorm, folded
from mimdsim.graph.operations import OPERATIONS
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload
from mimdsim.pipeline.pipeline import train_workload
from mimdsim.program import Program, Superstep, VertexTable
from mimdsim.workload import MappingOptions, load_workload, network_of, open_dataset
from mimdsim.workload.interchange.nir_nodes import NirNode
from mimdsim.workload.interchange.nir_reading import read_nir
from mimdsim.workload.interchange.nir_writing import export_nir
from mimdsim.workload.interchange.weights_file import write_safetensors

EPSILON = 2.0**-10  # exact in float32


def normed(network: SpikingNetwork, per: str, **changes: Any) -> SpikingNetwork:
    rows = network.timesteps if per == "each_timestep" else 1
    norm = BatchNorm(**{"per": per, "rows": rows, "epsilon": EPSILON, "momentum": 0.25} | changes)
    return replace(network, layers=tuple(replace(layer, norm=norm) for layer in network.layers))


def drawn(network: SpikingNetwork, seed: int) -> Given:
    """Values in float64 with gains around 1 and variances above 0, so that about half of the neurons fire."""
    values, draw = given_values(network, seed, dyadic=False, dtype=np.float64), np.random.default_rng(seed)
    for name, parameter in network.parameters.items():
        if parameter.role in ("gain", "variance"):
            values.arrays[name] = draw.uniform(0.5, 1.5, parameter.shape).astype(np.float32).astype(np.float64)
        else:
            values.arrays[name] = values.arrays[name].astype(np.float32).astype(np.float64)
    return values


def networks(per: str) -> dict[str, SpikingNetwork]:
    dense: dict[str, Any] = {"spikes": "dense", "gain": 20.0, "batch": 6, "delay": 0}
    found = {
        "no delay": small_network((9, 8, 6, 4), **dense),
        "recurrent": small_network((9, 8, 6, 4), recurrence="all_to_all", reset_gradient="mask", **dense),
        "one to one": small_network((9, 8, 4), recurrence="one_to_one", optimiser=ADAM, **dense),
        "planes": network_of_planes(*CHAINS["two"], gain=10.0, delay=0),
        "pooled after": network_of_planes(*CHAINS["max after"], gain=10.0, delay=0),
        "pooled before": network_of_planes(*CHAINS["sum before"], gain=10.0, delay=0),
    }
    if per == "timestep":
        found["a delay"] = small_network((9, 8, 6, 4), **dense | {"delay": 1})
    return {name: normed(network, per) for name, network in found.items()}


PER = ("timestep", "sequence")
EVERY = (*PER, "each_timestep")
CASES = [(per, name) for per in EVERY for name in networks(per)]


def outputs(network: SpikingNetwork, values: Given) -> dict[str, Any]:
    graph = training_graph(network)
    made = interpret(graph, values.for_graph(network))
    return {name: made[name] for name in graph.outputs}


@pytest.mark.torch
@pytest.mark.parametrize(("per", "name"), [case for case in CASES if case[1][0] != "p"])
def test_values_gradients_and_averages_are_those_of_pytorch(per: str, name: str) -> None:
    pytest.importorskip("torch")
    network = networks(per)[name]
    values = drawn(network, 3)
    loss, gradients, averages = by_layer_in_torch(network, values)
    made = outputs(network, values)
    assert float(made["loss"]) == pytest.approx(loss, rel=1e-9)
    for parameter, gradient in gradients.items():
        assert np.abs(gradient).max() > 1e-6, parameter
        assert relative_error(made[f"gradient.{parameter}"], gradient) < 1e-9, parameter
    assert averages.keys() == network.averages.keys()
    for parameter, left in averages.items():
        assert relative_error(made[f"next.{parameter}"], left) < 1e-12, parameter


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(7, 3), (5, 7, 3)])
def test_the_operation_and_its_gradient_are_those_of_pytorch(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(1)
    norm = BatchNorm(epsilon=EPSILON)
    x, q = draw.normal(1.0, 2.0, shape), draw.normal(size=shape)
    gain, bias = draw.uniform(0.5, 1.5, (1, 3)), draw.normal(size=(1, 3))
    made, mean, variance = OPERATIONS["batch_norm"].evaluate(norm, x, gain, bias)
    d_gain, d_bias = OPERATIONS["batch_norm_sums"].evaluate(norm, q, x, mean, variance)
    (d_x,) = OPERATIONS["batch_norm_input_gradient"].evaluate(norm, q, x, mean, variance, gain, d_gain, d_bias)
    given = [torch.tensor(each, requires_grad=True) for each in (x, gain, bias)]
    wanted = torch.nn.functional.batch_norm(
        given[0].reshape(-1, 3), None, None, given[1][0], given[2][0], training=True, eps=EPSILON
    ).reshape(shape)
    wanted.backward(torch.tensor(q))
    pairs = zip((made, d_x, d_gain, d_bias), (wanted.detach(), *(each.grad for each in given)), strict=True)
    for ours, theirs in pairs:
        assert relative_error(ours, theirs.numpy()) < 1e-13


def on_tiles(network: SpikingNetwork, values: Given, *, strict: bool = False, **how: Any) -> dict[str, np.ndarray]:
    """The outputs of a program on numbers of float64."""
    made = compiled(network, **how)
    executor = Executor(in_float64(made.program))
    executor.write(values.for_program(network))
    (execute_strictly if strict else Executor.run)(executor)
    return {name: executor.read(name) for name in made.program.outputs}


@pytest.mark.parametrize("form", ["calls", "traced", "fused"])
@pytest.mark.parametrize(("per", "name"), CASES)
def test_tiles_compute_what_the_interpreter_does(per: str, name: str, form: str) -> None:
    network = networks(per)[name]
    values = drawn(network, 3)
    expected = outputs(network, values)
    found = on_tiles(network, values, options=MappingOptions(dense_neurons=form))
    assert found.keys() >= {name for name in expected if name.startswith(("gradient.", "next.mean", "next.variance"))}
    for value in found.keys() & expected.keys() - {"loss"}:
        assert relative_error(found[value], expected[value]) < 1e-6, value
    assert found["loss"].mean() == pytest.approx(float(expected["loss"]), rel=1e-6)


@pytest.mark.first(2)
@pytest.mark.parametrize(("per", "name"), CASES)
def test_every_vertex_alone_on_its_tile_computes_the_same(per: str, name: str) -> None:
    network = networks(per)[name]
    values = drawn(network, 3)
    plain, alone = on_tiles(network, values), on_tiles(network, values, strict=True)
    for value, found in plain.items():
        np.testing.assert_array_equal(found, alone[value], err_msg=value)


@pytest.mark.first(2)
@pytest.mark.parametrize("strategy", ["as_published", "graph_replay", "hoisted", "persistent"])
@pytest.mark.parametrize("name", ["planes", "one to one", "recurrent"])
@pytest.mark.parametrize("per", EVERY)
def test_every_gpu_strategy_computes_the_same(per: str, name: str, strategy: str) -> None:
    network = networks(per)[name]
    recurs = name == "recurrent"
    if recurs != (strategy == "persistent") and strategy in ("hoisted", "persistent"):
        return
    graph, inputs = training_graph(network), drawn(network, 4).for_graph(network)
    meant, made = interpret(graph, inputs), execute(graph, inputs, strategy=strategy)
    for value in graph.outputs:
        assert relative_error(np.asarray(made[value]), np.asarray(meant[value])) < 1e-12, value


@pytest.mark.first(2)
@pytest.mark.parametrize("per", EVERY)
def test_gradients_are_those_of_finite_differences(per: str) -> None:
    network = normed(small_network((6, 5, 4), spikes="dense", smooth=True, gain=0.3, delay=0, batch=5), per)
    values = drawn(network, 5)
    graph, given = training_graph(network), values.for_graph(network)
    found = interpret(graph, given)
    places = {
        "w.hidden0": (3, 2),
        "gain.hidden0": (0, 1),
        "b.hidden0": (0, 4),
        "w.output": (2, 1),
        "gain.output": (0, 0),
    }
    for name, place in places.items():
        expected = central_difference(graph, given, name, place)
        assert found[f"gradient.{name}"][place] == pytest.approx(expected, rel=1e-4, abs=1e-9)


@pytest.mark.first(2)
@pytest.mark.parametrize("per", PER)
def test_folded_weights_make_of_samples_what_the_averages_do(per: str) -> None:
    """Scores of the folded network are those of one whose statistics of the batch are the averages."""
    network = networks(per)["planes"]
    values = drawn(network, 3)
    forward = inference_network(network, network.batch)
    assert not forward.averages
    weights = folded(network.layers, values.arrays)
    assert weights.keys() >= set(forward.parameters)
    found = interpret(inference_graph(forward), {"input": values.dense, **weights})["counts"]
    one = replace(network, layers=tuple(replace(each, norm=None, bias=True) for each in network.layers))
    plain = interpret(inference_graph(one), {"input": values.dense, **values.arrays})["counts"]
    assert (found != plain).any()
    for layer in network.layers:
        mean, variance, gain, bias = (
            values.arrays[f"{role}.{layer.name}"] for role in ("mean", "variance", "gain", "b")
        )
        current = np.random.default_rng(1).normal(size=(4, layer.columns))
        scale = gain / np.sqrt(variance + EPSILON)
        by_hand = (current - mean) * scale + bias
        assert relative_error(current * scale + weights[f"b.{layer.name}"], by_hand) < 1e-12
        assert relative_error(weights[f"w.{layer.name}"], values.arrays[f"w.{layer.name}"] * scale) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("per", EVERY)
def test_a_training_is_evaluated_by_averages_and_goes_on_from_a_checkpoint(per: str, tmp_path: Path) -> None:
    changes = {
        "network.spikes": "dense",
        "network.batch_norm": per,
        "network.delay": 0,
        "training.max_training_steps": 8,
    }
    changes |= {"network.hidden": [16], "network.capacity": [], "network.batch_norm_momentum": 0.5}
    settings = changes | {"training.batch": 16}
    workload = load_workload("digits", settings)
    tiny = load_machine("tiny", {"chip.tiles": 64})
    assert isinstance(tiny, MimdMachine)
    whole = mimdsim.run(workload, tiny)
    assert whole.log.engine == "whole_tensors"
    assert np.abs(whole.weights["hidden0.mean"]).min() > 0
    data, made = open_dataset(workload.data, workload.seed), whole.compiled
    file = Checkpoints(path=tmp_path / "checkpoint.npz")
    parts = [load_workload("digits", settings | {"training.max_training_steps": steps}) for steps in (4, 8)]
    train_workload(parts[0], made, data, checkpoints=file)
    resumed = train_workload(parts[1], made, data, checkpoints=replace(file, resume=True))
    for name, value in whole.log.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], value, err_msg=name)
    executor, network = Executor(made.program), made.network
    executor.write(whole.log.weights)
    first, tensors = evaluate(executor, network, data[1], np.arange(40)), WholeTensors(network)
    tensors.write(whole.log.weights)
    assert evaluate(tensors, network, data[1], np.arange(40)) == first
    executor.write({"mean.hidden0": whole.log.weights["mean.hidden0"] - 1})
    assert evaluate(executor, network, data[1], np.arange(40)) != first


def test_what_has_no_statistics_or_no_order_is_refused() -> None:
    with pytest.raises(MappingError, match=r'batch norm is of all currents: set network\.spikes = "dense"'):
        normed(small_network(), "timestep")
    with pytest.raises(MappingError, match=r"batch norm of one value has no variance: raise training\.batch"):
        normed(small_network(spikes="dense", batch=1), "timestep")
    with pytest.raises(MappingError, match="'sequenze' is not a valid choice; did you mean 'sequence'"):
        BatchNorm(per="sequenze")
    network = small_network((9, 8, 6, 4), spikes="dense", delay=0)
    skip = (Source(name="hidden1", neurons=6), Source(name="hidden0", neurons=8, lag=1))
    layers = (*network.layers[:2], replace(network.layers[2], sources=skip))
    normed(replace(network, layers=layers), "timestep")
    with pytest.raises(MappingError, match="'output' reads 'hidden0@t-1' across a batch norm of the whole sequence"):
        normed(replace(network, layers=layers), "sequence")
    feedback = normed(small_network((9, 8, 6, 4), spikes="dense"), "timestep")
    loop = (Source(name="input", neurons=9), Source(name="hidden1", neurons=6))
    recurrent = replace(feedback, layers=(replace(feedback.layers[0], sources=loop), *feedback.layers[1:]))
    with pytest.raises(MappingError, match="a batch norm of scan 'time' depends on itself through the timesteps"):
        lower_to_kernels(training_graph(recurrent), STRATEGIES["persistent"], precision="fp32")


def mutated(program: Program, name: str, change: Any) -> Program:
    """The program with the tables of one codelet changed."""

    def changed(superstep: Superstep) -> Superstep:
        tables = (change(each) if each.codelet.name == name else each for each in superstep.tables)
        return replace(superstep, tables=tuple(tables))

    return program.map_supersteps(changed)


MUTANTS = {
    "statistics of too many values": ("AveragePieces", lambda table: constants(table, values=np.float32(7))),
    "another epsilon": ("Normalise", lambda table: constants(table, epsilon=np.float32(0.01))),
    "another momentum": ("RunningAverage", lambda table: constants(table, share=np.float32(0.3))),
    "variance for mean": ("Normalise", lambda table: operands(table, mean=table.operands["variance"])),
    "the gradient of the bias for that of the gain": (
        "NormGradient", lambda table: operands(table, d_gain=table.operands["d_bias"])
    ),
}  # fmt: skip


def constants(table: VertexTable, **changes: Any) -> VertexTable:
    return replace(table, constants={**table.constants, **changes})


def operands(table: VertexTable, **changes: str) -> VertexTable:
    return replace(table, operands={**table.operands, **changes})


@pytest.mark.parametrize("per", EVERY)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_check_finds_mutants(name: str, per: str) -> None:
    made = compiled(networks(per)["no delay"])
    codelet, change = MUTANTS[name]
    ending = {"sequence": "InTime", "each_timestep": "Each"}.get(per, "")
    ending *= codelet in ("Normalise", "NormGradient")
    wrong = mutated(made.program, f"{codelet}{ending}", change)
    assert wrong != made.program
    assert all(each.passed for each in check_values(made.program, made, machine()))
    assert not all(each.passed for each in check_values(wrong, made, machine()))


@pytest.mark.parametrize("per", PER)
def test_a_file_for_other_programs_has_the_averages_in_its_weights(per: str, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    changes = {"network.spikes": "dense", "network.batch_norm": per, "network.delay": 0, "network.hidden": [16]}
    workload = load_workload("digits", changes | {"network.capacity": []})
    network, values = network_of(workload), np.random.default_rng(1)
    arrays = {
        name: values.uniform(0.5, 1.5, each.shape).astype(np.float32) for name, each in network.parameters.items()
    }
    write_safetensors(tmp_path / "weights.safetensors", arrays)
    lines = export_nir(workload, tmp_path / "weights.safetensors", tmp_path / "made.nir", 1e-3)
    assert "note: batch norm of hidden0, output is folded into weights, with the running averages fixed" in lines
    made, meant = read_nir(tmp_path / "made.nir"), folded(network.layers, arrays)
    gain = network.layers[0].neuron.quiet.arrays[1][0]
    node = made.nodes["hidden0_weights"]
    assert isinstance(node, NirNode)
    assert relative_error(node.arrays["weight"], meant["w.hidden0"].T * gain) < 1e-6
    assert relative_error(node.arrays["bias"], meant["b.hidden0"][0] * gain) < 1e-6


def test_norms_of_each_timestep_are_evaluated_by_averages_of_each(tmp_path: Path) -> None:
    network = networks("each_timestep")["planes"]
    values, norm = drawn(network, 3), BatchNorm(per="each_timestep", rows=network.timesteps, epsilon=EPSILON)
    layer, x = (
        network.layers[0],
        np.random.default_rng(1).normal(size=(network.timesteps, 4, network.layers[0].columns)),
    )
    given = [values.arrays[f"{role}.{layer.name}"] for role in ("gain", "b", "mean", "variance")]
    (made,) = OPERATIONS["batch_norm_fixed"].evaluate(norm, x, *given)
    gain, bias, mean, variance = (each[:, None] for each in given)
    assert relative_error(made, (x - mean) / np.sqrt(variance + EPSILON) * gain + bias) < 1e-12
    forward = inference_network(network, network.batch)
    assert folded(network.layers, values.arrays).keys() == set(forward.parameters)
    assert [op.kind for op in inference_graph(forward).operations].count("batch_norm_fixed") == len(network.layers)
    changes = {"network.spikes": "dense", "network.batch_norm": "each_timestep", "network.delay": 0}
    workload = load_workload("digits", changes | {"network.hidden": [16], "network.capacity": []})
    write_safetensors(
        tmp_path / "weights.safetensors", {name: np.ones(s) for name, s in network_of(workload).shapes.items()}
    )
    with pytest.raises(DescriptionError, match="norms of each timestep have no counterpart in NIR"):
        export_nir(workload, tmp_path / "weights.safetensors", tmp_path / "made.nir", 1e-3)


def test_statistics_of_each_timestep_travel_as_those_of_a_sequence_do() -> None:
    """On Bow 768 tiles hold two of 32 currents of one of 48 samples, and one all columns of gains and averages: of each
    row the others get two columns of all 30 timesteps at once, in one fragment."""
    changes: dict[str, Any] = {"network.spikes": "dense", "network.delay": 0, "network.hidden": [32]}
    changes |= {"network.capacity": [], "network.batch_norm": "each_timestep", "data.timesteps": 30}
    made = compile_workload(load_workload("digits", changes | {"training.batch": 48}), load_machine("bow"))
    rows = {"sum squares hidden0": 1, "normalise hidden0": 4, "sum samples hidden0": 2, "norm gradient hidden0": 5}
    seen = set()
    for superstep, *_ in made.program.supersteps():
        found = superstep.exchange
        if found is None or not superstep.op.startswith("batch_norm"):
            continue
        if superstep.name in rows:
            seen.add(superstep.name)
            assert found.bytes_received.sum() == rows[superstep.name] * 767 * 2 * 30 * 4
            assert found.fragments_received.sum() == rows[superstep.name] * 767
        elif superstep.name == "average pieces hidden0":  # 32 of 960 on each of 30 tiles, a piece of each sample
            assert found.bytes_received.max() == 48 * 32 * 4
            assert found.fragments_received.max() <= 48 * 2  # where a run of 60 ends within the 32
        elif superstep.name == "turn hidden0":
            assert (found.bytes_received.sum(), found.fragments_received.sum()) == (29 * 32 * 4, 29)
    assert seen == rows.keys()


@pytest.mark.parametrize("per", EVERY)
def test_gains_are_scaled_until_layers_fire_as_often_as_asked_for(per: str) -> None:
    changes = {"network.spikes": "dense", "network.batch_norm": [per, "none"], "network.delay": 0}
    changes |= {"network.hidden": [16], "network.capacity": [], "network.dropout": 0.2}
    workload = load_workload("digits", changes | {"training.initial_activity": 0.2, "training.max_training_steps": 1})
    tiny = load_machine("tiny", {"chip.tiles": 64})
    assert isinstance(tiny, MimdMachine)
    log = train_workload(workload, compile_workload(workload, tiny), open_dataset(workload.data, workload.seed))
    gains = log.weights["gain.hidden0"]
    assert np.abs(gains - 1).min() > 0.01
    assert np.ptp(gains) < 0.05
    fired = log.activity.counts["hidden0"][..., 0].mean() / 16
    assert fired == pytest.approx(0.2, rel=0.5)


def test_what_sequences_take_is_advised_against_where_memory_lacks() -> None:
    found = [advice for advice, *_ in remedies(networks("sequence")["no delay"], MappingOptions())]
    assert any('network.batch_norm = "timestep" instead of "sequence"' in advice for advice in found)
    assert not any(
        "batch_norm" in advice for advice, *_ in remedies(networks("timestep")["no delay"], MappingOptions())
    )
    made = {per: compiled(networks(per)["no delay"]).program for per in PER}
    assert "current.hidden0.normalised" in made["sequence"].variables
    assert made["sequence"].variables["current.hidden0.normalised"].shape == (5, 6, 8)


def mixed(name: str) -> SpikingNetwork:
    """Layers with and without a norm of whole sequences, in other wirings."""
    dense: dict[str, Any] = {"spikes": "dense", "gain": 20.0, "batch": 6, "delay": 0}
    network = small_network((9, 8, 6, 4), **dense | ({"encoding": "image"} if name == "steady" else {}))
    first, second, last = normed(network, "sequence").layers
    plain = replace(first, norm=None), second, replace(last, norm=None)
    skip = Source(name="hidden1", neurons=6), Source(name="hidden0", neurons=8)
    layers = {
        "in the middle": plain,
        "dropout": tuple(replace(each, dropout=0.4, dropout_per="timestep") for each in plain),
        "dropout of sequences": tuple(replace(each, dropout=0.4, dropout_per="sequence") for each in plain),
        "of both kinds": (normed(network, "timestep").layers[0], second, plain[2]),
        "the input again": (
            *plain[:2], replace(last, sources=(Source(name="hidden1", neurons=6), Source(name="input", neurons=9)))
        ),
        **dict.fromkeys(("a skip", "a penalised skip"), (first, second, replace(last, sources=skip))),
        "membrane": (first, second, replace(last, spiking=False)),
        "steady": (first, second, last),
        "frozen": (first, second, last),
    }[name]  # fmt: skip
    frozen = ("w.hidden0", "gain.hidden0", "b.hidden1") if name == "frozen" else ()
    penalised = Loss(firing_strength=0.5, firing_target=0.3)
    loss = {"membrane": Loss(reading="max"), "a penalised skip": penalised}.get(name, network.loss)
    return replace(network, layers=layers, loss=loss, frozen=frozen)


MIXED = (
    *("in the middle", "dropout", "dropout of sequences", "of both kinds", "the input again", "membrane", "steady"),
    *("frozen", "a skip", "a penalised skip"),
)


@pytest.mark.parametrize("name", MIXED)
def test_stretches_of_any_layers_run_on_tiles_as_they_are_meant(name: str) -> None:
    network = mixed(name)
    assert len(network.stretches) > 1
    values = drawn(network, 3)
    for layer in network.layers:
        if layer.dropout:
            state = np.random.default_rng(3).integers(0, 1 << 32, network.batch)
            values = replace(values, arrays=values.arrays | {random_name(layer.name): state})
    if name == "steady":
        values = replace(values, dense=values.dense[0])
    expected = outputs(network, values)
    for form in ("calls", "traced"):
        found = on_tiles(network, values, options=MappingOptions(dense_neurons=form))
        for value in found.keys() & expected.keys() - {"loss"}:
            assert relative_error(found[value], expected[value]) < 1e-6, value
        assert {f"gradient.{name}" for name in network.trained} <= found.keys()
    graph, inputs = training_graph(network), values.for_graph(network)
    made = execute(graph, inputs, strategy="hoisted")
    for value in graph.outputs:
        assert relative_error(np.asarray(made[value]), np.asarray(expected[value])) < 1e-12, value


@pytest.mark.parametrize(("per", "samples"), [("timestep", 4), ("each_timestep", 4), ("sequence", 2), ("sample", 2)])
def test_a_check_normalises_more_than_two_samples(per: str, samples: int) -> None:
    """Of two, a norm makes 1 and -1 whatever they are: gradients through it are 0 but for rounding."""
    keys = {"network.spikes": "dense", "network.capacity": (256, 128, 10), "network.batch_norm": per}
    small = shrunk(load_workload("digits", keys), 6, 2, load_machine("bow"))
    assert small.training.batch == samples
