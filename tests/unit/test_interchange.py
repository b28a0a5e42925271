"""Models in and out by the command line: NIR and state dicts become workloads that run, trained weights become NIR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nir_models as nm
import numpy as np
import pytest
from click.testing import CliRunner
from test_nir import CHAINS

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.cli import main
from mimdsim.cli.import_model import RESETS
from mimdsim.execution import initial_weights
from mimdsim.machine import MimdMachine
from mimdsim.pipeline import simulate
from mimdsim.workload import given_weights, load_workload, network_of
from mimdsim.workload.interchange import nir_nodes
from mimdsim.workload.interchange.layers import neuron_differences, write_trained
from mimdsim.workload.interchange.model_file import read_model
from mimdsim.workload.interchange.nir_reading import read_nir
from mimdsim.workload.interchange.nir_walk import network_of_nir
from mimdsim.workload.interchange.weights_file import MAX_TENSORS, read_safetensors, write_safetensors

pytest.importorskip("h5py")
WORKLOAD = """
title = "small"
seed = 3
[data]
source = "random"
inputs = 6
classes = 3
timesteps = 12
activity = 0.3
input_capacity = 6
train_samples = 8
test_samples = 4
[network]
hidden = [5]
capacity = [5, 3]
decay = 0.9
threshold = 2.0
second_threshold = 1.0
surrogate_slope = 7.0
[training]
batch = 4
learning_rate = 0.01
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(WORKLOAD)
    return path


def typed(*words: Any, code: int = 0) -> str:
    """What the command line prints."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.slow
def test_a_nir_graph_becomes_a_workload_of_random_spikes(tmp_path: Path) -> None:
    path = nm.written(tmp_path, CHAINS["nested all to all"], "my net.nir")
    said = typed("import", path, "--out", tmp_path / "made")
    assert "6-5-3, a timestep of 0.0001 s" in said
    assert "hidden0 (r/lif): 5 LIF, decay 0.9, threshold 1, reset zero, bias, recurrence all_to_all" in said
    assert f"Run it: mimdsim run {tmp_path / 'made/my-net.toml'}" in said
    workload = load_workload(str(tmp_path / "made/my-net.toml"))
    network = network_of(workload)
    assert (network.title, network.delay, network.layers[0].recurrence) == ("6-5-3", 0, "all_to_all")
    # gradients of all neurons, as in the program that wrote the file
    assert all(layer.selection.second_threshold <= -100 * layer.selection.threshold for layer in network.layers)
    weights = given_weights(workload, network)
    assert weights is not None
    assert {name: array.shape for name, array in weights.items()} == network.shapes
    (made, _) = network_of_nir(path, read_nir(path)).populations
    np.testing.assert_allclose(weights["r.hidden0"], made.recurrent)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["skips and ages", "feedback", "sends and listens"])
def test_what_populations_read_is_said_kept_and_exported(tmp_path: Path, name: str) -> None:
    path = nm.written(tmp_path, CHAINS[name])
    said = typed("import", path, "--out", tmp_path / "made")
    if name == "skips and ages":
        assert "hidden1 (b): 4 CubaLIF" in said
        assert "reads hidden0@t and input@t" in said
        assert "reads hidden0@t-3 and hidden0@t and hidden1@t" in said
    first = network_of(load_workload(str(tmp_path / "made/model.toml")))
    made = network_of_nir(path, read_nir(path))
    assert tuple(first.sources(layer) for layer in first.layers) == made.sources
    typed("export", tmp_path / "made/model.toml", "--dt", nm.DT, "--out", tmp_path / "again.nir")
    again = network_of_nir(tmp_path / "again.nir", read_nir(tmp_path / "again.nir"))
    assert again.sources == made.sources
    source = nm.spike_trains(30, made.inputs)
    np.testing.assert_allclose(nm.run(again, source)[-1], nm.run(made, source)[-1], rtol=1e-5)


@pytest.mark.slow
def test_an_imported_workload_takes_data_and_learning_from_another(tmp_path: Path, small: Path) -> None:
    path = nm.written(tmp_path, CHAINS["two layers"])
    typed("import", path, "--out", tmp_path / "made", "--workload", small)
    workload = load_workload(str(tmp_path / "made/model.toml"))
    assert (workload.seed, workload.data.timesteps, workload.network.surrogate_slope) == (3, 12, 7.0)
    assert workload.network.second_threshold == 0.5  # a share of the threshold now
    hidden, output = network_of(workload).layers
    assert hidden.selection.second_threshold == pytest.approx(0.5 * hidden.selection.threshold)
    assert output.selection.threshold == pytest.approx(1.5)
    decided = load_workload(str(tmp_path / "made/model.toml"), {"training.batch": 2})
    assert decided.training.batch == 2
    dropping = {"network.spikes": "dense", "network.dropout": [0.0, 0.5], "network.dropout_per": "sequence"}
    layers = network_of(load_workload(str(tmp_path / "made/model.toml"), dropping)).layers
    assert [(layer.dropout, layer.dropout_per) for layer in layers] == [(0.0, "sequence"), (0.5, "sequence")]
    with pytest.raises(
        DescriptionError, match=r"network\.decay: is determined by the model in network\.imported; leave it out"
    ):
        load_workload(str(tmp_path / "made/model.toml"), {"network.decay": 0.5})
    with pytest.raises(DescriptionError, match=r"network\.learned: is determined by the model"):
        load_workload(str(tmp_path / "made/model.toml"), {"network.learned": {"hidden0": ["decay"]}})
    other = load_workload(str(tmp_path / "made/model.toml"), {"network.hidden": [4], "network.capacity": [4, 3]})
    with pytest.raises(
        DescriptionError, match=r"is 6-5-3, data and network.hidden are 6-4-3; give data with 6 inputs and 3"
    ):
        network_of(other)


@pytest.mark.slow
def test_a_read_out_is_the_membrane_potential(tmp_path: Path) -> None:
    path = nm.written(tmp_path, CHAINS["read-out"])
    said = typed("import", path, "--out", tmp_path / "made")
    assert "output (b): 3 LI, decay 0.9" in said
    workload = load_workload(str(tmp_path / "made/model.toml"))
    assert workload.network.output == "membrane"
    assert not network_of(workload).layers[-1].spiking
    with pytest.raises(DescriptionError, match=r'the last layer of .* is of kind LI; write "membrane"'):
        network_of(load_workload(str(tmp_path / "made/model.toml"), {"network.output": "spikes"}))


@pytest.mark.slow
def test_options_say_what_a_file_leaves_open(tmp_path: Path) -> None:
    plain = nm.leaky(3, reset=None, r=np.ones(3), tau=np.full(3, 2e-3))
    path = nm.written(tmp_path, nm.graph({"w": nm.node("Linear", weight=nm.weights(3, 6)), "n": plain}))
    refused = typed("import", path, "--out", tmp_path / "made", code=2)
    assert "say nothing" not in refused
    assert "in seconds, e.g. --dt 0.001 (Norse)" in refused
    said = typed(
        "import", path, "--out", tmp_path / "made", "--dt", "1e-3", "--leak", "exp", "--reset", "subtract_decayed"
    )
    assert "decay 0.6065, threshold 1, reset subtract_decayed" in said
    (each,) = read_model(tmp_path / "made/model.safetensors").populations
    np.testing.assert_allclose(each.dynamics.gain, 0.5)
    assert "is for state dicts" in typed("import", path, "--map", "a=w.output", code=2)


def linear(small: Path, **arrays: Any) -> Path:
    """A state dict beside the workload."""
    path = small.with_name("net.safetensors")
    write_safetensors(path, {name.replace("__", "."): np.asarray(values) for name, values in arrays.items()})
    return path


def test_a_state_dict_becomes_first_weights(tmp_path: Path, small: Path) -> None:
    layers = {"fc1__weight": nm.weights(4, 6), "fc2__weight": nm.weights(3, 4)}
    said = typed("import", linear(small, **layers), "--out", tmp_path / "made", "--workload", small)
    assert "fc1.weight -> w.hidden0 [6, 4]" in said
    workload = load_workload(str(tmp_path / "made/net.toml"))
    network = network_of(workload)
    assert network.title == "6-4-3"
    weights = given_weights(workload, network)
    assert weights is not None
    np.testing.assert_allclose(weights["w.output"], nm.weights(3, 4).T)
    path = linear(small, **layers, lif__beta=np.array(0.9))
    refused = typed("import", path, "--out", tmp_path / "b", "--workload", small, code=2)
    assert "also holds 'lif.beta' [], which no layer of weights has" in refused
    mapped = ("--map", "fc1.weight=w.hidden0", "--map", "fc2.weight=w.output")
    assert "not used: lif.beta" in typed("import", path, "--out", tmp_path / "b", "--workload", small, *mapped)
    assert (tmp_path / "b/net-weights.safetensors").read_bytes() == (
        tmp_path / "made/net-weights.safetensors"
    ).read_bytes()


def test_state_dicts_that_do_not_do(tmp_path: Path, small: Path) -> None:
    path = linear(small, fc1__weight=nm.weights(4, 6), fc2__weight=nm.weights(3, 4))
    assert "name a workload for them with  --workload NAME" in typed("import", path, code=2)
    assert "--dt, --leak and --reset are for NIR graphs" in typed("import", path, "--dt", "1", code=2)
    (tmp_path / "net.pth").write_bytes(b"PK")
    assert "is a pickle, which runs code" in typed("import", tmp_path / "net.pth", code=2)
    assert "no such file" in typed("import", tmp_path / "none.npz", code=2)
    recurrent = linear(small, a=nm.weights(3, 6), b=nm.weights(3, 3))
    said = typed("import", recurrent, "--workload", small, "--map", "a=w.output", "--map", "b=r.output", code=2)
    assert "has recurrent weights on its last layer" in said
    planes = linear(small, c=np.ones((3, 2, 3, 3)), w=nm.weights(3, 6))
    for more in ((), ("--map", "c=w.hidden0")):
        assert "mimdsim import net.py:build  (docs/pytorch.md)" in typed(
            "import", planes, "--workload", small, *more, code=2
        )


@pytest.mark.slow
def test_trained_weights_go_to_nir_and_come_back(tmp_path: Path, small: Path) -> None:
    workload = load_workload(str(small))
    network = network_of(workload)
    weights = initial_weights(network, 1, 2.0, 0.1)
    write_safetensors(tmp_path / "weights.safetensors", weights)
    said = typed("export", small, "--weights", tmp_path / "weights.safetensors", "--out", tmp_path / "out/small.nir")
    assert "6-5-3, a timestep of 0.001 s = tau / r" in said
    assert "note: layers read each other some timesteps later" in said
    again = network_of_nir(Path("x"), read_nir(tmp_path / "out/small.nir"))
    assert again.dt_seconds == pytest.approx(1e-3)
    assert [each.sources[0].lag for each in again.populations] == [0, 1]
    np.testing.assert_allclose(again.populations[0].weights, weights["w.hidden0"], rtol=1e-5)  # (1 - 0.9) * 10 = 1
    np.testing.assert_allclose(again.populations[1].dynamics.threshold, 2.0)
    typed("import", tmp_path / "out/small.nir", "--out", tmp_path / "in")
    assert network_of(load_workload(str(tmp_path / "in/small.toml"))).delay == 1
    said = typed("export", tmp_path / "in/small.toml", "--dt", "1e-4", "--out", tmp_path / "out/again.nir")
    assert "a timestep of 0.0001 s" in said
    assert "names no weights; give trained ones" in typed("export", small, "--out", tmp_path / "x.nir", code=2)


@pytest.mark.slow
def test_what_nir_cannot_say_is_noted(tmp_path: Path) -> None:
    path = nm.written(tmp_path, CHAINS["two layers"])
    typed("import", path, "--out", tmp_path / "in", "--reset", "subtract")
    said = typed("export", tmp_path / "in/model.toml", "--out", tmp_path / "out.nir")
    assert "note: NIR resets to a value; 'subtract' is recorded in the metadata" in said


@pytest.mark.slow
def test_training_starts_from_given_weights(tmp_path: Path, small: Path, tiny: MimdMachine) -> None:
    first = simulate(load_workload(str(small)), tiny).log
    write_safetensors(tmp_path / "trained.safetensors", first.weights)
    np.savez(tmp_path / "trained.npz", **first.weights)
    for name in ("trained.safetensors", "trained.npz"):
        changed = load_workload(
            str(small), {"training.initial_weights": str(tmp_path / name), "training.learning_rate": 1e-30}
        )
        log = simulate(changed, tiny).log
        for key, values in first.weights.items():
            np.testing.assert_array_equal(log.weights[key], values)
    wrong = load_workload(
        str(small), {"training.initial_weights": str(tmp_path / "trained.npz"), "network.hidden": [4]}
    )
    with pytest.raises(DataFileError, match=r"'w.hidden0' has the shape \[6, 5\], the network's is \[6, 4\]"):
        simulate(wrong, tiny)


@pytest.fixture
def tiny() -> MimdMachine:
    from networks import machine

    return machine(tiles=24)


@pytest.mark.slow
def test_run_leaves_weights(tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # drawing takes ten seconds
    monkeypatch.setattr("mimdsim.report.write_report", lambda *_, **__: None)
    typed("run", small, "mk2", "--gpu", "none", "--out", tmp_path / "report", "--set", "chip.tiles=24")
    found = read_safetensors(tmp_path / "report/weights.safetensors")
    assert {name: array.shape for name, array in found.items()} == {"w.hidden0": (6, 5), "w.output": (5, 3)}
    changed = load_workload(str(small), {"network.delay": 0})
    assert neuron_differences(tmp_path / "report/weights.safetensors", changed) == ["delay 1, here 0"]


def test_weights_of_other_neurons_are_told_at_export(tmp_path: Path, small: Path) -> None:
    here = load_workload(str(small))
    there = load_workload(str(small), {"network.threshold": 3.0, "network.surrogate_slope": 2.0})
    weights = initial_weights(network_of(here), 1, 2.0, 0.1)
    for workload, told in ((here, False), (there, True)):
        write_trained(tmp_path / "weights.safetensors", weights, workload)
        found = read_safetensors(tmp_path / "weights.safetensors")
        np.testing.assert_array_equal(found["w.output"], weights["w.output"])
        said = typed("export", small, "--weights", tmp_path / "weights.safetensors", "--out", tmp_path / "small.nir")
        assert ("was trained with other neurons (network.threshold 3.0, here 2.0);" in said) == told
        assert "surrogate" not in said
    for strange in ("[1]", "{", "[" * 100_000):
        write_safetensors(tmp_path / "odd.safetensors", weights, {"mimdsim.network": strange})
        assert neuron_differences(tmp_path / "odd.safetensors", here) == []


@pytest.mark.slow
def test_written_descriptions_are_toml_whatever_the_names(tmp_path: Path, small: Path) -> None:
    path = nm.written(tmp_path, CHAINS["lif"], 'a "b" \\ c.nir')
    typed("import", path, "--out", tmp_path / "made")
    (made,) = (tmp_path / "made").glob("*.toml")
    assert load_workload(str(made)).title == 'a "b" \\ c.nir: 6-3'


def test_the_page_names_every_node_reset_and_limit() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/nir.md").read_text()
    for name in (*nir_nodes.NODE_TYPES, *nir_nodes.WANTING, nir_nodes.GRAPH):
        assert name in page, name
    for reset in RESETS:
        assert f"| `{reset}` |" in page
    for limit in (nir_nodes.MAX_NODES, nir_nodes.MAX_EDGES, MAX_TENSORS):
        assert f"{limit:,}" in page
    assert nir_nodes.MAX_VALUES == 1 << 25
    assert f"{nir_nodes.MAX_DEPTH} deep, names {nir_nodes.MAX_NAME} bytes" in page
