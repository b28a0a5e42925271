"""Imported populations as layers of the training graph: the graph's meaning against the neutral record, and back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import nir_models as nm
import numpy as np
import pytest
from test_nir import CHAINS, network

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.graph import Sgd, SpikingNetwork, interpret
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.network_graphs import forward_graph
from mimdsim.graph.neuron_models import MODELS, neuron_of
from mimdsim.graph.spikes import Selection
from mimdsim.workload.interchange.layers import layers_of, linear_neuron, network_of_layers
from mimdsim.workload.interchange.model_file import RESETS, ImportedNetwork, arrays_of, read_model, write_model
from mimdsim.workload.interchange.weights_file import read_notes, read_safetensors, write_safetensors

TIMESTEPS, BATCH = 50, 3
WEIGHTS_LAST = ("weights last", "parallel", "sends and listens")
SPIKING = [name for name in CHAINS if "read-out" not in name and name not in (*WEIGHTS_LAST, "composed")]
READ_OUTS = ("read-out", "current read-out", *WEIGHTS_LAST)


def described(made: ImportedNetwork, spikes: str = "dense") -> SpikingNetwork:
    """The network of layers, with room for all spikes."""
    widths = tuple(each.neurons for each in made.populations)
    seconds = [*([0.5] * (len(widths) - 1)), -100.0]
    selections = [
        Selection(threshold=1.0, second_threshold=second, capacity=width, slope=10.0)
        for width, second in zip(widths, seconds, strict=True)
    ]
    layers, delay = layers_of("model", made, selections, ["mask"] * len(widths))
    return SpikingNetwork(
        layers=layers,
        timesteps=TIMESTEPS,
        batch=BATCH,
        input_capacity=made.inputs,
        spikes=spikes,
        logit_scale=1.0,
        optimiser=Sgd(learning_rate=0.1),
        delay=delay,
    )


def shaped(given: SpikingNetwork, arrays: dict[str, Any]) -> dict[str, Any]:
    """Weights in the shapes of the graph, float64."""
    return {name: np.asarray(arrays[name], np.float64).reshape(shape) for name, shape in given.shapes.items()}


def graph_spikes(given: SpikingNetwork, weights: dict[str, Any], source: Any) -> list[Any]:
    """What every layer emits [timesteps, batch, neurons], by the interpreter."""
    seen: dict[str, list[Any]] = {}

    def observe(name: str, _timestep: int, value: Any) -> None:
        seen.setdefault(name, []).append(value)

    interpret(forward_graph(given), {"input": source, "labels": np.zeros(given.batch, np.int32), **weights}, observe)
    return [np.stack(seen[f"spikes.{layer.name}"]) for layer in given.layers]


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("name", SPIKING)
def test_graph_emits_the_spikes_of_the_record(name: str, reset: Any) -> None:
    made = network(CHAINS[name], reset=reset)
    given = described(made)
    source = np.stack([nm.spike_trains(TIMESTEPS, made.inputs, seed) for seed in range(BATCH)], axis=1)
    emitted = graph_spikes(given, shaped(given, arrays_of(made)), source)
    assert sum(spikes.sum() for spikes in emitted) > 0
    for sample in range(BATCH):
        for spikes, expected in zip(emitted, nm.run(made, source[:, sample]), strict=True):
            np.testing.assert_array_equal(spikes[:, sample], expected)


@pytest.mark.parametrize("name", READ_OUTS)
def test_graph_reads_the_potentials_of_the_record(name: str) -> None:
    made = network(CHAINS[name])
    given = described(made)
    source = np.stack([nm.spike_trains(TIMESTEPS, made.inputs, seed) for seed in range(BATCH)], axis=1)
    seen: list[Any] = []

    def observe(value_name: str, _timestep: int, value: Any) -> None:
        if value_name == "u.output":
            seen.append(value)

    weights = shaped(given, arrays_of(made))
    interpret(forward_graph(given), {"input": source, "labels": np.zeros(BATCH, np.int32), **weights}, observe)
    for sample in range(BATCH):
        expected = nm.run(made, source[:, sample])[-1]
        assert np.ptp(expected) > 0.1
        np.testing.assert_allclose(np.stack(seen)[:, sample], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("name", SPIKING)
def test_layers_become_the_same_populations_again(name: str, reset: Any) -> None:
    made = network(CHAINS[name], reset=reset)
    given = described(made)
    again, names = network_of_layers(given, shaped(given, arrays_of(made)), made.dt_seconds)
    assert names[-1] == "output"
    source = nm.spike_trains(TIMESTEPS, made.inputs)
    for first, second in zip(nm.run(made, source), nm.run(again, source), strict=True):
        np.testing.assert_array_equal(first, second)


def test_model_file_keeps_everything_in_float32(tmp_path: Path) -> None:
    for name, file in CHAINS.items():
        made = network(file, dt_seconds=nm.DT)
        write_model(tmp_path / "m.safetensors", made)
        again = read_model(tmp_path / "m.safetensors")
        assert (again.dt_seconds, again.sources) == (made.dt_seconds, made.sources)
        skips = any(len(each) > 1 for each in made.sources)
        assert read_notes(tmp_path / "m.safetensors")["form"] == f"mimdsim model {1 + skips}", name
        for one, other in zip(made.populations, again.populations, strict=True):
            assert (one.kind, one.recurrence, one.sources, one.dynamics.reset) == (
                other.kind,
                other.recurrence,
                other.sources,
                other.dynamics.reset,
            ), name
            for (_, first), (_, second) in zip(one.reads, other.reads, strict=True):
                np.testing.assert_allclose(first, second, rtol=1e-6)
            for field in dataclasses.fields(one.dynamics):
                first, second = getattr(one.dynamics, field.name), getattr(other.dynamics, field.name)
                if isinstance(first, np.ndarray):
                    np.testing.assert_allclose(first, second, rtol=1e-6)


def broken(
    folder: Path, arrays: dict[str, Any] | None = None, without: str = "", of: str = "nested one to one", **notes: str
) -> Path:
    """A model file with arrays or notes replaced."""
    path = folder / "m.safetensors"
    write_model(path, network(CHAINS[of]))
    found = {**read_safetensors(path), **(arrays or {})}
    found.pop(without, None)
    write_safetensors(
        path, found, {**read_notes(path), **{key.replace("__", "."): value for key, value in notes.items()}}
    )
    return path


def test_broken_model_files_are_refused(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"form": "other"}, "is not a model made by 'mimdsim import'"),
        ({"without": "decay.output"}, "has no 'decay.output'"),
        ({"without": "w.output"}, "has weights for layers hidden0"),
        ({"without": "synapse_gain.hidden0"}, "has half of a synapse"),
        ({"arrays": {"decay.output": np.ones(2)}}, r"'decay.output' has the shape \[2\] for 3 neurons"),
        ({"arrays": {"gain.output": np.full(3, np.nan)}}, "'gain.output' holds values that are not finite"),
        ({"output__reset": "odd"}, "says reset 'odd'"),
        ({"output__delay": "1e9"}, "says that 'output' reads 'hidden0@t-1e9'"),
        ({"dt_seconds": "soon"}, "says a timestep is 'soon' seconds long"),
    ]
    skips = "skips and ages"
    cases += [
        ({"hidden7__sources": "input@t"}, "says sources of 'hidden7'; its layers are hidden0, output"),
        ({"hidden0__sources": "hidden0@t-1"}, "says that 'hidden0' reads 'hidden0@t-1'; needed are 'input', which the"),
        ({"hidden0__sources": ""}, "says that 'hidden0' reads ''"),
        ({"hidden0__sources": "input@t input@t"}, "reads 'input@t input@t'"),
        ({"hidden0__sources": "input@t output@t"}, "one after it from 1 on"),
        ({"output__sources": "hidden0 input@t"}, "reads 'hidden0 input@t'"),
        ({"output__sources": "hidden0@t-10001"}, "each at an age of at most 10000"),
        ({"output__sources": "hidden0@t input@t"}, "says that 'output' reads 'input' also; 'w.output.from.input' is"),
        ({"output__sources": "input@t"}, "w.output takes 5 inputs, 'input' has 6 neurons"),
        ({"of": skips, "without": "w.output.from.hidden0@t"}, "'w.output.from.hidden0@t' is missing"),
        ({"of": skips, "output__sources": "hidden0@t hidden1@t"}, "belong to no layer|w.output takes"),
        (
            {"of": skips, "arrays": {"w.output.from.hidden0@t": np.ones((5, 4))}},
            "has columns for 4 neurons, 'output' has",
        ),
        (
            {"of": skips, "arrays": {"w.output.from.hidden0@t": np.ones(5)}},
            "w.output.from.hidden0@t has 1 dimensions, not",
        ),
        (
            {"of": skips, "arrays": {"w.output.from.hidden9": np.ones((5, 3))}},
            "w.output.from.hidden9 belong to no layer",
        ),
    ]
    for how, words in cases:
        with pytest.raises(DataFileError, match=words):
            read_model(broken(tmp_path, **how))
    with pytest.raises(DataFileError, match="no such file; make it with  mimdsim import"):
        read_model(tmp_path / "none.safetensors")


@pytest.mark.parametrize("delays", [(0, 2), (1, 0), (3, 1), (2, 5)])
def test_populations_may_wait_for_any_time(delays: tuple[int, int]) -> None:
    each = zip(network(CHAINS["two layers"]).populations, delays, strict=True)
    populations = []
    for one, late in each:
        ((source, weights),) = one.reads
        populations.append(dataclasses.replace(one, reads=((dataclasses.replace(source, lag=late), weights),)))
    made = ImportedNetwork(populations=tuple(populations), dt_seconds=1.0)
    given = described(made)
    arrays = shaped(given, arrays_of(made))
    trains = np.stack([nm.spike_trains(TIMESTEPS, made.inputs, seed) for seed in range(BATCH)], axis=1)
    emitted = graph_spikes(given, arrays, trains)
    assert emitted[-1].any()
    again, _ = network_of_layers(given, arrays, made.dt_seconds)
    for sample in range(BATCH):
        for spikes, *expected in zip(
            emitted, nm.run(made, trains[:, sample]), nm.run(again, trains[:, sample]), strict=True
        ):
            for one in expected:
                np.testing.assert_array_equal(spikes[:, sample], one)


def test_what_layers_cannot_do_is_refused() -> None:
    first, second = network(CHAINS["two layers"]).populations
    silent = dataclasses.replace(first, dynamics=dataclasses.replace(first.dynamics, threshold=None))
    with pytest.raises(DescriptionError, match="layer 'hidden0' does not spike"):
        described(ImportedNetwork(populations=(silent, second), dt_seconds=1.0))


def test_neurons_of_the_table_of_models_go_to_nir_or_are_refused() -> None:
    made = network(CHAINS["lif"])
    given = described(made)
    source = np.stack([nm.spike_trains(TIMESTEPS, made.inputs, seed) for seed in range(BATCH)], axis=1) * 1.0
    (layer,) = given.layers
    gone, refused = [], []
    for name, model in MODELS.items():
        for reset in model.resets:
            if not model.spiking:
                continue
            neuron = neuron_of(name, reset=reset)
            changed = dataclasses.replace(
                given,
                layers=(
                    dataclasses.replace(
                        layer, neuron=neuron, selection=dataclasses.replace(layer.selection, threshold=neuron.threshold)
                    ),
                ),
            )
            weights = {key: 4 * value for key, value in shaped(given, arrays_of(made)).items()}
            try:
                again, _ = network_of_layers(changed, weights, 1e-3)
            except DescriptionError:
                refused.append(name)
                continue
            gone.append(f"{name} {reset}")
            (spikes,) = graph_spikes(changed, weights, source)
            np.testing.assert_array_equal(spikes[:, 0], nm.run(again, source[:, 0])[0], err_msg=f"{name} {reset}")
    assert {"alpha", "adaptive", "norse_lsnn"} <= set(refused)
    assert {"leaky subtract", "leaky zero", "synaptic zero", "norse_lif zero", "cuba_lif subtract"} <= set(gone)
    print(gone, refused)


def test_the_published_neuron_goes_to_nir() -> None:
    made = network(CHAINS["lif"])
    given = described(made)
    (layer,) = given.layers
    lif = dataclasses.replace(layer, neuron=neuron_of("lif", {"decay": 0.9}))
    weights = shaped(given, arrays_of(made))
    again, _ = network_of_layers(dataclasses.replace(given, layers=(lif,)), weights, 1e-3)
    source = np.stack([nm.spike_trains(TIMESTEPS, made.inputs, seed) for seed in range(BATCH)], axis=1)
    (spikes,) = graph_spikes(dataclasses.replace(given, layers=(lif,)), weights, source)
    assert 0 < spikes.mean() < 1
    np.testing.assert_array_equal(spikes[:, 1], nm.run(again, source[:, 1])[0])


def test_uniform_constants_are_one_number() -> None:
    (each,) = network(CHAINS["lif"]).populations
    neuron = linear_neuron(each.dynamics, "LIF")
    assert isinstance(neuron, LinearNeuron)
    assert neuron.neurons == 1
