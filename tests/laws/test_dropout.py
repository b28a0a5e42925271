"""Dropout of dense spikes: on tiles as the interpreter means it, with the same masks anywhere, and none in tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_execution import execute
from networks import (
    Given,
    central_difference,
    compiled,
    executed,
    given_values,
    interpreted,
    relative_error,
    small_network,
)
from test_array_lowering import assert_agree
from test_convolutions import AS_WHOLE_TENSORS, CHAINS, network_of_planes
from test_sources import reading
from test_whole_tensors import TOLERANCE, assert_alike, outcome, run_whole

import mimdsim
from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.compiler import compile_graph
from mimdsim.execution import Executor, WholeTensors, initial_weights, scheduled_values
from mimdsim.execution.trainer import evaluate
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.dropout import Masks
from mimdsim.graph.names import random_name
from mimdsim.graph.operations import OPERATIONS
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload
from mimdsim.workload import MappingOptions, load_workload, network_of, open_dataset


def dropping(network: SpikingNetwork, share: float, per: str, of: str = "neuron") -> SpikingNetwork:
    layers = tuple(replace(layer, dropout=share, dropout_per=per, dropout_of=of) for layer in network.layers)
    return replace(network, layers=layers)


def drawn(network: SpikingNetwork, seed: int, **how: Any) -> Given:
    """Values, and a state of every sample."""
    values, draw = given_values(network, seed, **how), np.random.default_rng(seed)
    for layer in network.layers:
        if layer.dropout:
            values.arrays[random_name(layer.name)] = draw.integers(0, 1 << 32, network.batch)
    return values


NETWORKS = {
    "chain": small_network((9, 8, 6, 4), spikes="dense", gain=20.0, bias=True),
    "no delay": small_network((9, 8, 6, 4), spikes="dense", gain=20.0, delay=0),
    "planes": network_of_planes(*CHAINS["two"], gain=10.0),
    "pooled planes": network_of_planes(*CHAINS["sum before"], gain=10.0),
}


@pytest.mark.parametrize("form", ["calls", "traced", "fused"])
@pytest.mark.parametrize("per", ["timestep", "sequence"])
@pytest.mark.parametrize("name", NETWORKS)
def test_dropout_runs_on_tiles_as_it_is_meant(name: str, per: str, form: str) -> None:
    network = dropping(NETWORKS[name], 0.5, per)
    values = drawn(network, 3)
    expected, plain = interpreted(network, values), interpreted(NETWORKS[name], values)
    assert relative_error(expected.gradients["hidden0"], plain.gradients["hidden0"]) > 1e-3
    made = compiled(network, options=MappingOptions(dense_neurons=form))
    assert_agree(executed(made, values), expected)
    if form == "calls":
        assert_agree(executed(made, values, strict=True), expected)


CYCLE = {"hidden0": ("input", "hidden1"), "hidden1": ("hidden0", "input"), "output": ("hidden0", "hidden1")}
OF_PLANES = {
    **{name: NETWORKS[name] for name in ("planes", "pooled planes")},
    **{f"{name} planes": network_of_planes(*CHAINS[name], gain=10.0, bias=True) for name in CHAINS},
}
WHOLE = {
    **NETWORKS,
    **{name: OF_PLANES[name] for name in (f"{chain} planes" for chain in AS_WHOLE_TENSORS)},
    "several": reading(small_network((9, 70, 6, 4), spikes="dense", gain=20.0, delay=0), CYCLE),
}


@pytest.mark.first(3)
@pytest.mark.parametrize("per", ["timestep", "sequence"])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_tensors_leave_the_same_out(name: str, per: str) -> None:
    network = dropping(WHOLE[name], 0.5, per)
    # with draw 3 sums of "groups, pool before planes" cancel: 3.7e-6 off; 1e-7 to 5e-7 with seven others
    seed = 4 if name == "groups, pool before planes" else 3
    values = drawn(network, seed)
    one, other = (outcome(run_whole(network, values, threads), network) for threads in (1, 3))
    assert_alike(replace(one, ids={}, listed={}), interpreted(network, values), network)
    for key, gradient in one.gradients.items():
        assert gradient.tobytes() == other.gradients[key].tobytes()
    engine = WholeTensors(network)
    assert set(engine.generators) == {random_name(layer.name) for layer in network.layers}
    assert set(engine.inputs) - {"input.ids", "input.counts"} == set(Executor(compiled(network).program).inputs)
    plain = outcome(run_whole(WHOLE[name], given_values(WHOLE[name], seed)), WHOLE[name])
    assert relative_error(one.gradients["output"], plain.gradients["output"]) > 1e-3
    engine.write(values.for_program(network) | {name: np.ones(1, np.float32) for name in network.kept_shares})
    engine.run()
    kept = outcome(engine, network)
    for key, gradient in plain.gradients.items():
        assert relative_error(kept.gradients[key], gradient) <= TOLERANCE, key


@pytest.mark.slow
@pytest.mark.parametrize("per", ["timestep", "sequence"])
@pytest.mark.parametrize("name", OF_PLANES)
def test_whole_planes_are_left_out(name: str, per: str) -> None:
    network = dropping(OF_PLANES[name], 0.5, per, "plane")
    values = drawn(network, 12)  # with most others all planes that some layer reads are left out, or sums cancel
    expected, plain = interpreted(network, values), interpreted(OF_PLANES[name], values)
    others = interpreted(dropping(OF_PLANES[name], 0.5, per), values)
    assert relative_error(expected.gradients["output"], plain.gradients["output"]) > 1e-3
    assert relative_error(expected.gradients["output"], others.gradients["output"]) > 1e-3
    made = compiled(network)
    assert_agree(executed(made, values), expected)
    assert_agree(executed(made, values, strict=True), expected)
    if name in WHOLE:
        assert_alike(replace(outcome(run_whole(network, values), network), ids={}, listed={}), expected, network)


@pytest.mark.parametrize(("rows", "columns", "positions", "pixels"), [(40, 500, 4, 1), (10, 2000, 1, 4)])
def test_all_of_a_plane_is_kept_or_not(rows: int, columns: int, positions: int, pixels: int) -> None:
    """Of layers, with a row for every position, and of the input, channels outermost: the same masks."""
    kept = masks_of(0.5, rows=rows, columns=columns, positions=positions, pixels=pixels) > 0
    planes = kept.reshape(20, 10, positions, 500, pixels)
    assert (planes == planes[:, :, :1, :, :1]).all()
    assert kept.mean() == pytest.approx(0.5, abs=5 * 0.5 / planes[:, :, 0, :, 0].size ** 0.5)
    layer = masks_of(0.5, rows=40, positions=4, pixels=1).reshape(20, 10, 4, 500)[:, :, 0]
    np.testing.assert_array_equal(planes[:, :, 0, :, 0], layer > 0)


def masks_of(keep: float, **shape: int) -> np.ndarray:
    about = Masks(**{"rows": 40, "columns": 500, "timesteps": 20} | shape)
    states = np.random.default_rng(1).integers(0, 1 << 32, about.rows // about.positions)
    (made,) = OPERATIONS["dropout_masks"].evaluate(about, states, np.float64(keep))
    assert isinstance(made, np.ndarray)
    return made


@pytest.mark.parametrize("keep", [0.9, 0.5, 0.1])
def test_the_share_that_is_kept_is_as_asked_and_masks_are_independent(keep: float) -> None:
    made = masks_of(keep)
    assert set(np.unique(made)) == {0.0, 1 / keep}
    kept = made > 0
    assert kept.mean() == pytest.approx(keep, abs=5 * (keep * (1 - keep) / made.size) ** 0.5)
    spread = (keep * (1 - keep)) ** 0.5
    other = masks_of(keep, source=1) > 0
    for one, two in ((kept[0], kept[1]), (kept[:, 0], kept[:, 1]), (kept[..., 0], kept[..., 1]), (kept[0], other[0])):
        correlation = ((one - keep) * (two - keep)).mean() / spread**2
        assert abs(correlation) < 5 / one.size**0.5
    assert (masks_of(1.0) == 1).all()


def test_rows_of_a_sample_are_positions_of_it() -> None:
    """Samples with the same state leave out the same of their planes."""
    about = Masks(rows=6, columns=4, positions=3)
    (made,) = OPERATIONS["dropout_masks"].evaluate(about, np.array([7, 7]), np.float64(0.5))
    np.testing.assert_array_equal(made[:3], made[3:])
    assert 0 < (made > 0).sum() < made.size


@pytest.mark.parametrize("per", ["timestep", "sequence"])
def test_gradients_with_dropout_are_those_of_finite_differences(per: str) -> None:
    network = dropping(small_network((6, 5, 4), spikes="dense", smooth=True, gain=0.3, delay=0), 0.3, per)
    values = drawn(network, 5, dyadic=False, dtype=np.float64)
    graph, given = training_graph(network), values.for_graph(network)
    found = interpret(graph, given)
    for place in ((0, 0), (3, 2), (5, 4)):
        expected = central_difference(graph, given, "w.hidden0", place)
        assert found["gradient.w.hidden0"][place] == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_a_test_leaves_nothing_out() -> None:
    """A training step draws masks, an evaluation and inference have none."""
    changes = {"network.spikes": "dense", "network.dropout": [0.2, 0.5, 0.5], "training.max_training_steps": 3}
    workload = load_workload("digits", changes | {"network.hidden": [24, 16], "network.capacity": []})
    network = network_of(workload)
    assert [layer.dropout for layer in network.layers] == [0.2, 0.5, 0.5]
    tiny = load_machine("tiny", {"chip.tiles": 64})
    assert isinstance(tiny, MimdMachine)
    made = compile_workload(workload, tiny)
    executor, data = Executor(made.program), open_dataset(workload.data, 1)[1]
    executor.write(initial_weights(network, 1, 1.0, 0.001))
    evaluate(executor, network, data, np.arange(network.batch))
    assert all(executor.arrays[name][0] == 1 for name in network.kept_shares)
    without = replace(network, layers=tuple(replace(layer, dropout=0.0) for layer in network.layers))
    plain = Executor(compile_graph(training_graph(without), without, tiny, workload.mapping).program)
    plain.write(initial_weights(network, 1, 1.0, 0.001))
    evaluate(plain, without, data, np.arange(network.batch))
    np.testing.assert_array_equal(executor.read("counts"), plain.read("counts"))
    assert scheduled_values(network, None, 0, 1)["keep.hidden1"] == pytest.approx(0.5)


def test_a_run_with_dropout_is_timed_on_gpus_and_resumed(tmp_path: Path) -> None:
    changes = {"network.spikes": "dense", "network.dropout": 0.3, "training.max_training_steps": 1}
    changes |= {"network.hidden": [12, 8], "network.capacity": [], "data.timesteps": 4, "training.evaluate": "never"}
    workload = load_workload("digits", changes)
    first = mimdsim.run(workload, "tiny", gpus=("a100",), checkpoint=tmp_path / "training.npz")
    assert {"graph_replay", "hoisted"} <= {each.strategy for each in first.profile.gpus}
    again = mimdsim.run(workload, "tiny", gpus=(), checkpoint=tmp_path / "training.npz", resume=True)
    assert again.cycles == first.cycles


def test_dropout_of_lists_and_of_everything_is_refused() -> None:
    with pytest.raises(MappingError, match="dropout is of dense spikes"):
        dropping(small_network(), 0.5, "timestep")
    with pytest.raises(MappingError, match="a share of at least 0 and below 1"):
        dropping(small_network(spikes="dense"), 1.0, "timestep")
    with pytest.raises(
        MappingError, match=r"layer 'hidden0': dropout of planes reads what has none: set network\.dropout"
    ):
        dropping(small_network(spikes="dense"), 0.5, "timestep", "plane")
    with pytest.raises(
        MappingError, match=r"network\.dropout_of = 'planes' is not a valid choice; did you mean 'plane'"
    ):
        dropping(small_network(spikes="dense"), 0.5, "timestep", "planes")
    with pytest.raises(MimdsimError, match=r"network\.dropout"):
        load_workload("snntorch-mnist", {"network.dropout": [0.5, 1.5]})
    with pytest.raises(MimdsimError, match="3 values given for 2 layers"):
        load_workload("snntorch-mnist", {"network.dropout": [0.5, 0.5, 0.5]})


@pytest.mark.slow
def test_a_share_that_is_no_power_of_two_is_timed_on_gpus_and_checked() -> None:
    changes = {"network.spikes": "dense", "network.hidden": [64], "network.neuron": "leaky", "network.capacity": []}
    changes |= {"network.dropout": 0.3, "data.timesteps": 10, "training.max_training_steps": 2}
    assert mimdsim.run("digits", "bow", changes=changes).cycles > 0
    assert mimdsim.check("digits", "bow", changes=changes).passed
    silent = mimdsim.run("digits", "bow", gpus=(), changes=changes | {"network.neuron_parameters": {"threshold": 99.0}})
    assert "never fire in the training step that is timed. 4 other batches show the same" in str(silent.warnings)


@pytest.mark.parametrize("strategy", ["as_published", "graph_replay", "hoisted"])
def test_every_gpu_strategy_leaves_the_same_out(strategy: str) -> None:
    network = dropping(NETWORKS["planes"], 0.5, "timestep")
    graph, inputs = training_graph(network), drawn(network, 4, dtype=np.float64).for_graph(network)
    meant, made = interpret(graph, inputs), execute(graph, inputs, strategy=strategy)
    for value in graph.outputs:
        assert relative_error(np.asarray(made[value]), np.asarray(meant[value])) < 1e-12, value
