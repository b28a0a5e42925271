"""Imported networks compiled to tiles: every layer's spikes and potentials against the neutral record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nir_models as nm
import numpy as np
import pytest
from networks import machine
from test_nir import CHAINS, NIR_FILES, PLANES, network

import mimdsim
from mimdsim.compiler import compile_graph
from mimdsim.execution import Executor
from mimdsim.graph import Layer, training_graph
from mimdsim.workload import MappingOptions, given_weights, load_workload, network_of
from mimdsim.workload.interchange.importing import import_nir
from mimdsim.workload.interchange.model_file import read_model
from mimdsim.workload.interchange.nir_neurons import Discretisation

pytest.importorskip("h5py")
BATCH = 2
TIMESTEPS = 16


def listed(source: Any) -> tuple[Any, Any]:
    """0/1 [timesteps, batch, inputs] as ids and two counts."""
    ids = np.zeros(source.shape, np.int32)
    counts = np.zeros((*source.shape[:2], 2), np.int32)
    for place in np.ndindex(*source.shape[:2]):
        found = np.flatnonzero(source[place])
        ids[place][: found.size] = found
        counts[place] = found.size
    return ids, counts


def on_tiles(folder: Path, path: Path, source: Any, spikes: str, how: Discretisation) -> tuple[list[Any], list[Any]]:
    """(u of every layer by the compiled program, what every layer sends by the record), [timesteps, batch, neurons]."""
    written, _ = import_nir(path, folder, how)
    changes = {"training.batch": BATCH, "data.timesteps": len(source), "network.spikes": spikes}
    workload = load_workload(str(written), changes)
    given = network_of(workload)
    program = compile_graph(training_graph(given), given, machine(48), MappingOptions()).program
    executor = Executor(program)
    weights = given_weights(workload, given)
    assert weights is not None
    executor.write({**weights, "labels": np.zeros(BATCH, np.int32)})
    if spikes == "sparse":
        ids, counts = listed(source)
        executor.write({"input.ids": ids, "input.counts": counts})
    else:
        executor.write({"input": source.astype(np.float32)})
    executor.run(phases=("forward",))
    model = read_model(Path(workload.network.imported))
    runs = [nm.run(model, source[:, sample]) for sample in range(BATCH)]
    record = [np.stack(sent, axis=1) for sent in zip(*runs, strict=True)]
    return [by_neuron(layer, executor.arrays[f"u.{layer.name}.sequence"]) for layer in given.layers], record


def by_neuron(layer: Layer, values: Any) -> Any:
    """[timesteps, batch, neurons] of values by positions and channels."""
    by_position = values.reshape(len(values), BATCH, layer.positions, layer.columns)
    return by_position.transpose(0, 1, 3, 2).reshape(len(values), BATCH, layer.neurons)


def hold(folder: Path, path: Path, source: Any, spikes: str, how: Discretisation) -> None:
    potentials, record = on_tiles(folder, path, source, spikes, how)
    layers = network_of(load_workload(str(next(folder.glob("*.toml"))))).layers
    for layer, u, sent in zip(layers, potentials, record, strict=True):
        if layer.spiking:
            fired = u > np.float32(layer.selection.threshold)
            assert 0 < sent.mean() < 1
            print(layer.name, spikes, "mismatches", int((fired != sent).sum()), "of", sent.size)
            np.testing.assert_array_equal(fired, sent)
        else:
            np.testing.assert_allclose(u, sent, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "spikes"),
    [
        ("two layers", "sparse"),
        ("nested all to all", "sparse"),
        ("nested one to one", "sparse"),
        ("read-out", "sparse"),
        ("current read-out", "sparse"),
        ("skips and ages", "sparse"),
        ("feedback", "sparse"),
        ("parallel", "sparse"),
        ("two layers plain", "dense"),
        ("skips and ages", "dense"),
        ("feedback", "dense"),
        ("nested all to all", "dense"),
    ],
)
def test_tiles_send_what_the_record_sends(tmp_path: Path, name: str, spikes: str) -> None:
    path = nm.written(tmp_path, CHAINS[name])
    inputs = network(CHAINS[name]).inputs
    source = np.stack([nm.spike_trains(TIMESTEPS, inputs, seed) for seed in range(BATCH)], axis=1)
    hold(tmp_path / "made", path, source, spikes, Discretisation())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convolution", "strides and pools", "one dimension"])
def test_planes_on_tiles(tmp_path: Path, name: str) -> None:
    path = nm.written(tmp_path, PLANES[name])
    inputs = network(PLANES[name]).inputs
    source = np.stack([nm.spike_trains(TIMESTEPS, inputs, seed) for seed in range(BATCH)], axis=1)
    hold(tmp_path / "made", path, source, "dense", Discretisation())


@pytest.mark.slow
def test_a_network_of_sinabs_trains_on_tiles(tmp_path: Path) -> None:
    path = NIR_FILES / "cnn_sinabs.nir"
    if not path.is_file():
        pytest.skip("no example files here")
    made, _ = import_nir(path, tmp_path, Discretisation(reset="subtract"))
    changes = {"training.max_training_steps": 1, "training.batch": 2, "training.evaluate": "never"}
    run = mimdsim.run(load_workload(str(made), {**changes, "data.timesteps": 4}), "mk2", gpus=())
    shapes = [(50, 16), (144, 16), (144, 8), (128, 256), (256, 10)]
    assert [each.shape for each in run.gradients.values()] == shapes
    assert all(np.abs(each).max() > 0 for each in run.gradients.values())


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["zero_after", "subtract", "subtract_decayed", "none"])
def test_every_reset_on_tiles(tmp_path: Path, reset: Any) -> None:
    path = nm.written(tmp_path, CHAINS["nested one to one"])
    source = np.stack([nm.spike_trains(TIMESTEPS, 6, seed) for seed in range(BATCH)], axis=1)
    hold(tmp_path / "made", path, source, "sparse", Discretisation(reset=reset))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reset"), [("braille_noDelay_bias_zero", "zero_after"), ("braille_noDelay_noBias_subtract", "subtract")]
)
def test_the_braille_networks_on_tiles(tmp_path: Path, name: str, reset: Any) -> None:
    path = NIR_FILES / f"{name}.nir"
    if not path.is_file():
        pytest.skip("no example files here")
    source = np.stack([nm.spike_trains(100, 12, seed, activity=0.5) for seed in range(BATCH)], axis=1)
    source[..., 4:] = 0
    hold(tmp_path / "made", path, source, "sparse", Discretisation(reset=reset))
