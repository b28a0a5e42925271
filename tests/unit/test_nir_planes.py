"""Convolutions and pools in NIR files: read, written, and refused."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import nir_models as nm
import numpy as np
import pytest
from test_convolutions import INPUT, PLAIN, after, network_of_planes, pooled

import mimdsim
from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.execution import initial_weights
from mimdsim.graph import SpikingNetwork
from mimdsim.graph.convolution import Convolution, Patches, Planes, Pool, Window
from mimdsim.graph.operations import OPERATIONS
from mimdsim.workload import load_workload, network_of
from mimdsim.workload.interchange.importing import import_nir
from mimdsim.workload.interchange.layers import network_of_layers
from mimdsim.workload.interchange.model_file import read_model, write_model
from mimdsim.workload.interchange.nir_neurons import Discretisation
from mimdsim.workload.interchange.nir_nodes import NirGraph, NirNode
from mimdsim.workload.interchange.nir_reading import read_nir
from mimdsim.workload.interchange.nir_walk import network_of_nir
from mimdsim.workload.interchange.nir_writing import nir_of_network, write_nir
from mimdsim.workload.interchange.weights_file import read_notes, read_safetensors, write_safetensors

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "nir"
STRIDED = replace(PLAIN, window=Window(kernel=(3, 2), stride=(2, 1), padding=(1, 1), dilation=(1, 2)))
AVERAGED = replace(PLAIN, after=pooled("average"))
CHAINS: dict[str, tuple[Convolution, ...]] = {
    "plain": (PLAIN,),
    "two": (PLAIN, after(PLAIN, 2, 4)),
    "strided": (STRIDED,),
    "pools": (AVERAGED, after(AVERAGED, 1, 2, before=pooled("sum", 2))),
    "of the input": (replace(PLAIN, before=pooled("sum"), window=Window(kernel=(2, 2))),),
    "groups": (replace(PLAIN, channels=4, groups=2), after(replace(PLAIN, channels=4), 2, 8, groups=4)),
    "groups of all places": (PLAIN, after(PLAIN, 2, 6, groups=3, before=pooled("sum"))),
    "weights after a pool": (PLAIN, after(PLAIN, 2, 5, before=pooled("sum"))),
}


def described(chain: tuple[Convolution, ...]) -> tuple[SpikingNetwork, dict[str, np.ndarray], NirGraph]:
    """A network, its weights, and the graph that says both."""
    network = network_of_planes(*chain, bias=True, delay=0)
    weights = initial_weights(network, 3, 1.0, 0.1)
    weights |= {name: values + np.float32(0.25) for name, values in weights.items() if name.startswith("b.")}
    populations, names = network_of_layers(network, weights, 1e-3)
    return network, weights, nir_of_network(populations, names)


def written(chain: tuple[Convolution, ...], path: Path) -> tuple[SpikingNetwork, dict[str, np.ndarray]]:
    network, weights, graph_of_it = described(chain)
    write_nir(path, graph_of_it)
    return network, weights


def written_model(chain: tuple[Convolution, ...], path: Path) -> None:
    write_model(path, network_of_nir(path, described(chain)[2]))


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_what_is_written_is_read_again(chain: tuple[Convolution, ...], tmp_path: Path) -> None:
    network, weights = written(chain, tmp_path / "net.nir")
    found = network_of_nir(tmp_path / "net.nir", read_nir(tmp_path / "net.nir"))
    write_model(tmp_path / "net.safetensors", found)
    for each in (found, read_model(tmp_path / "net.safetensors")):
        for layer, (name, population) in zip(network.layers, each.layers, strict=True):
            assert (population.inputs, population.neurons) == (layer.inputs, layer.neurons)
            assert population.convolution == layer.convolution
            gain = population.dynamics.gain
            np.testing.assert_allclose(population.weights * gain, weights[f"w.{name}"] * 0.3, rtol=1e-5, atol=1e-7)
            assert population.bias is not None
            np.testing.assert_allclose(population.bias * gain, weights[f"b.{name}"][0] * 0.3, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(population.dynamics.decay, 0.95, rtol=1e-6)


@pytest.mark.slow
def test_an_imported_network_of_planes_runs(tmp_path: Path) -> None:
    network, _ = written(CHAINS["pools"], tmp_path / "net.nir")
    path, lines = import_nir(tmp_path / "net.nir", tmp_path / "made", Discretisation())
    assert lines[0].startswith("72-12-2-3")
    assert "12 LIF (3 x 2 x 2), decay 0.95" in lines[1]
    changes = {"training.max_training_steps": 2, "data.timesteps": 6, "training.batch": 4, "training.evaluate": "never"}
    workload = load_workload(path, changes)
    assert workload.network.spikes == "dense"
    assert [each.convolution for each in network_of(workload).layers] == [each.convolution for each in network.layers]
    run = mimdsim.run(workload, "tiny", gpus=())
    assert run.gradients["hidden0"].shape == (18, 3)


def node(kind: str, words: dict[str, str] | None = None, **arrays: Any) -> NirNode:
    made = {name: np.asarray(each, np.float64) for name, each in arrays.items()}
    return NirNode(kind=kind, arrays=made, words=words or {})


def convolution(**changes: Any) -> NirNode:
    given = {
        "weight": np.ones((3, 2, 3, 3)),
        "bias": np.zeros(3),
        "stride": 1,
        "padding": 0,
        "dilation": 1,
        "groups": 1,
    }
    words = changes.pop("words", None)
    return node("Conv2d", words, **{name: each for name, each in (given | changes).items() if each is not None})


def neurons(*shape: int, **changes: Any) -> NirNode:
    wide = np.ones(shape)
    return node("IF", **({"r": wide, "v_threshold": wide, "v_reset": 0 * wide} | changes))


def graph(
    *middle: NirNode, shape: tuple[int, ...] = (2, 6, 6), out: int = 5, edges: Any = (), more: Any = None
) -> NirGraph:
    """The nodes in a row, and weights for `out` neurons."""
    names = ["input", *(str(number) for number in range(len(middle))), "w", "n", "output"]
    last = [node("Linear", weight=np.ones((out, 48))), neurons(out), node("Output", shape=[out])]
    every = [node("Input", shape=shape), *middle, *last]
    pairs = [*itertools.pairwise(names), *edges]
    return NirGraph(nodes={**dict(zip(names, every, strict=True)), **(more or {})}, edges=tuple(pairs))


def test_a_convolution_of_one_dimension_and_paddings_in_words() -> None:
    line = node("Conv1d", weight=np.ones((4, 2, 3)), bias=np.zeros(4), stride=[1], padding=[0], dilation=[2], groups=1)
    found = network_of_nir(Path("x"), graph(line, neurons(4, 12), shape=(2, 16)))
    assert found.populations[0].convolution == Convolution(
        planes=Planes(channels=2, height=1, width=16), window=Window(kernel=(1, 3), dilation=(1, 2)), channels=4
    )
    for word, padding, side in (("same", (1, 1), 6), ("valid", (0, 0), 4)):
        given = graph(
            convolution(padding=None, words={"padding": word}), neurons(3, side, side), node("Flatten"), out=5
        )
        linear = node("Linear", weight=np.ones((5, 3 * side * side)))
        given = NirGraph(nodes={**given.nodes, "w": linear}, edges=given.edges)
        made = network_of_nir(Path("x"), given).populations[0].convolution
        assert made is not None
        assert made.window.padding == padding


SPIKES = neurons(3, 4, 4)
REFUSED: dict[str, tuple[NirGraph, str]] = {
    "half a group": (graph(convolution(groups=1.5), SPIKES), "has .1.5. groups; one whole number of at least 1"),
    "groups of other weights": (graph(convolution(groups=2), SPIKES), "weights for 36 inputs of a window that covers"),
    "groups of other channels": (
        graph(convolution(groups=2, weight=np.ones((3, 1, 3, 3))), SPIKES),
        "groups = 2 do not divide the 3 channels that a convolution makes",
    ),
    "two convolutions": (
        graph(convolution(), convolution(weight=np.ones((3, 3, 1, 1))), SPIKES),
        "follows a convolution without neurons between both",
    ),
    "weights after a convolution": (graph(convolution()), "follows a convolution without neurons between both"),
    "three pools": (
        graph(*[node("SumPool2d", kernel_size=[1, 1], stride=[1, 1], padding=[0, 0])] * 2, convolution(), SPIKES),
        "follows another pool",
    ),
    "no planes": (graph(convolution(), SPIKES, shape=(72,)), "does not say its planes"),
    "scaled planes": (graph(node("Scale", scale=[2.0]), convolution(), SPIKES), "nothing but pools between both"),
    "scaled currents": (graph(convolution(), node("Scale", scale=[2.0]), SPIKES), "follows a convolution"),
    "another sum": (
        graph(convolution(), SPIKES, edges=[("input", "1")]),
        "joined with pools or convolutions of planes",
    ),
    "onto itself": (graph(convolution(), SPIKES, edges=[("1", "0")]), "adds up several sources of planes"),
    "neurons that differ": (
        graph(convolution(), neurons(3, 4, 4, v_threshold=np.arange(1, 49).reshape(3, 4, 4))),
        "'v_threshold' differs within a channel",
    ),
    "other channels": (graph(convolution(weight=np.ones((3, 1, 3, 3))), SPIKES), "a window that covers 18"),
    "too large": (graph(convolution(weight=np.ones((3, 2, 9, 9))), SPIKES), "is larger than planes of 6 x 6"),
    "huge padding": (graph(convolution(padding=1e7), SPIKES), "over 33554432 neurons"),
    "negative": (graph(convolution(padding=-1), SPIKES), "at least 0 is needed"),
    "no stride": (graph(convolution(stride=0), SPIKES), "at least 1 is needed"),
    "halves": (graph(convolution(stride=1.5), SPIKES), "'stride' is .1.5.; one or two whole numbers are needed"),
    "flat weights": (graph(convolution(weight=np.ones((3, 18))), SPIKES), "'weight' has the shape .3, 18."),
    "a word": (graph(convolution(padding=None, words={"padding": "full"}), SPIKES), "its padding is 'full'"),
    "uneven": (
        graph(convolution(weight=np.ones((3, 2, 2, 3)), padding=None, words={"padding": "same"}), SPIKES),
        "not the same on both sides",
    ),
    "bias": (graph(convolution(bias=np.zeros(2)), SPIKES), "'bias' has 2 values for 3 channels"),
    "matrix of three extents": (
        graph(
            node("SumPool2d", kernel_size=[2, 2], stride=[2, 2], padding=[0, 0]),
            node("Linear", weight=np.ones((5, 2, 9))),
        ),
        "'weight' has the shape .5, 2, 9.; 2 extents are needed",
    ),
    "bias of a matrix": (
        graph(
            node("SumPool2d", kernel_size=[2, 2], stride=[2, 2], padding=[0, 0]),
            node("Affine", weight=np.ones((5, 18)), bias=np.ones(4)),
        ),
        "'bias' has 4 values for 5",
    ),
    "other sides": (
        graph(convolution(input_shape=[6, 5]), SPIKES),
        "reads planes of 2 x 6 x 6; its convolution is for a side of 5, not 6",
    ),
    "no sides": (graph(convolution(input_shape=[-6, -6]), SPIKES, shape=(72,)), "'input_shape' is .-6, -6."),
    "sides of another input": (graph(convolution(input_shape=[6, 6]), SPIKES, shape=(71,)), "'input' gives 71"),
    "one dimension of two": (
        graph(
            node("Conv1d", weight=np.ones((3, 2, 3)), bias=np.zeros(3), stride=1, padding=0, dilation=1, groups=1),
            SPIKES,
        ),
        "its convolution is for a side of 1, not 6",
    ),
    "neurons without a convolution": (
        graph(neurons(2, 6, 6), convolution(), SPIKES),
        "'1' .IF.: reads planes of '0', which does not say its planes|'2' .IF.: reads planes of '0', which does not",
    ),
    "synapses onto itself": (
        graph(convolution(), SPIKES, edges=[("1", "1")]),
        "'1' .IF.: reads planes and itself; neurons of planes have no synapses",
    ),
    "planes onto itself": (
        graph(
            neurons(72),
            edges=[("0", "p"), ("p", "0")],
            more={"p": node("SumPool2d", kernel_size=1, stride=1, padding=0)},
        ),
        "'0' .IF.: reads itself over a convolution or a pool",
    ),
    "long windows": (
        graph(
            node(
                "Conv2d",
                weight=np.ones((1, 1, 1, 4097)),
                bias=np.zeros(1),
                stride=1,
                padding=[0, 8192],
                dilation=1,
                groups=1,
            ),
            neurons(1),
            shape=(1, 1, 4096),
        ),
        "take over 33554432 neurons, or windows over them",
    ),
    "only a pool": (
        graph(node("SumPool2d", kernel_size=[2, 2], stride=[2, 2], padding=[0, 0]), neurons(2, 3, 3)),
        "gets pools of planes without weights",
    ),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_what_no_layer_of_planes_does_is_refused_by_name(given: NirGraph, message: str) -> None:
    with pytest.raises(DescriptionError, match=message) as refused:
        network_of_nir(Path("x"), given)
    assert "'" in str(refused.value)


@pytest.mark.slow
def test_metadata_are_no_padding(tmp_path: Path) -> None:
    given = replace(convolution(), metadata={"padding": "same"})
    write_nir(tmp_path / "net.nir", graph(given, SPIKES))
    found = network_of_nir(tmp_path / "net.nir", read_nir(tmp_path / "net.nir")).populations[0].convolution
    assert found is not None
    assert found.window.padding == (0, 0)


def test_a_word_is_written_and_read(tmp_path: Path) -> None:
    write_nir(tmp_path / "net.nir", graph(convolution(padding=None, words={"padding": "same"}), neurons(3, 6, 6)))
    given = read_nir(tmp_path / "net.nir").nodes["0"]
    assert isinstance(given, NirNode)
    assert (given.words, given.metadata) == ({"padding": "same"}, {})


@pytest.mark.parametrize("threshold", [2.0, [1.0, 2.0, 3.0], np.full((3, 1, 1), 2.0)])
def test_constants_of_planes_may_be_one_or_one_by_channel(threshold: Any) -> None:
    for constants in ({}, {"r": np.ones(3), "v_reset": np.zeros(3)}, {"r": 1.0, "v_reset": 0.0}):
        given = graph(
            convolution(),
            neurons(3, 4, 4, v_threshold=threshold, **constants),
            convolution(weight=np.ones((12, 3, 3, 3)), bias=np.ones(12)),
            neurons(12),
        )  # its planes are those of the convolution before
        first, second, _ = network_of_nir(Path("x"), given).populations
        np.testing.assert_array_equal(first.dynamics.threshold, np.broadcast_to(np.ravel(threshold), 3))
        assert second.convolution is not None
        assert second.convolution.planes == PLAIN.result
        assert second.bias is not None


def test_a_convolution_may_say_the_planes_of_a_flat_input() -> None:
    given = graph(convolution(input_shape=[6, 6]), SPIKES, shape=(72,))
    assert network_of_nir(Path("x"), given).populations[0].convolution == PLAIN


def test_biases_of_zeros_are_none_as_those_of_matrices() -> None:
    first, second = network_of_nir(Path("x"), graph(convolution(), SPIKES)).populations
    assert first.bias is None
    assert second.bias is None


def test_what_is_late_and_what_sends_a_pool_are_written_as_they_are(tmp_path: Path) -> None:
    network = network_of_planes(PLAIN, after(PLAIN, 4, 2), bias=True, delay=1)
    populations, names = network_of_layers(network, initial_weights(network, 3, 1.0, 0.1), 1e-3)
    first, second, _ = populations.populations
    summed = replace(PLAIN, after=Pool(kind="sum", window=Window(kernel=(4, 4))))
    last = replace(first, kind="Linear", node="last", convolution=summed)
    graph_of = nir_of_network(populations, names)
    late = graph_of.nodes["hidden1_delay"]
    assert isinstance(late, NirNode)
    assert late.arrays["delay"].shape == (3, 4, 4)
    made = nir_of_network(replace(populations, populations=(last,)), ("last",))
    assert made.edges[-1] == ("last_pool", "output")
    assert ("last_weights", "last_pool") in made.edges
    output = made.nodes["output"]
    assert isinstance(output, NirNode)
    assert output.arrays["shape"].tolist() == [3, 1, 1]
    again = network_of_nir(Path("x"), made)
    assert again.populations[0].convolution == summed
    assert again.populations[0].dynamics.decay.shape == (3,)
    assert second.convolution is not None


def test_max_pools_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="layer 'hidden0' has a max pool, for which NIR has no node"):
        written((replace(PLAIN, after=pooled("max")),), tmp_path / "net.nir")


@pytest.mark.parametrize("note", ["", "{", "[1]", '{"planes": {"channels": 1e9, "height": 1, "width": 1}}', "1"])
def test_a_damaged_note_of_a_convolution_is_refused(note: str, tmp_path: Path) -> None:
    written_model(CHAINS["plain"], tmp_path / "net.safetensors")
    held = (tmp_path / "net.safetensors").read_bytes()
    start = held.index(b'"hidden0.convolution":"') + 23
    text = held[start : held.index(b'","', start)]
    changed = note.replace('"', '\\"').encode().ljust(len(text))[: len(text)]
    (tmp_path / "net.safetensors").write_bytes(held.replace(text, changed))
    with pytest.raises(DataFileError, match=r"says '|has the shape"):
        read_model(tmp_path / "net.safetensors")


CHANGES: dict[str, tuple[Any, str]] = {
    "negative": (lambda note: note["planes"].update(channels=-2, height=-6), "at least 1|larger than planes"),
    "none": (lambda note: note.update(channels=0), "has the shape|at least 1 of each"),
    "text": (lambda note: note.update(channels="3"), "channels Input should be a valid integer"),
    "another key": (lambda note: note["window"].update(groups=2), "keys that no convolution has"),
    "huge": (lambda note: note["window"].update(padding=[9**9, 9**9]), "take over 33554432 neurons"),
    "endless": (lambda note: note["window"].update(padding=[10**30, 10**30]), "take over|valid"),
    "other channels": (lambda note: note.update(channels=4), "w.hidden1 takes 48 inputs"),
    "pool": (lambda note: note.update(after={"kind": "least", "window": note["window"]}), "is not a valid choice"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_a_note_that_no_convolution_has_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    written_model(CHAINS["two"], path)
    notes = read_notes(path)
    note = json.loads(notes["hidden0.convolution"])
    change(note)
    write_safetensors(path, read_safetensors(path), {**notes, "hidden0.convolution": json.dumps(note)})
    with pytest.raises(DataFileError, match=message):
        read_model(path)
    write_safetensors(path, read_safetensors(path), {**notes, "hidden7.convolution": notes["hidden0.convolution"]})
    with pytest.raises(DataFileError, match="says a convolution of 'hidden7'; its layers are hidden0"):
        read_model(path)


@pytest.mark.slow
def test_a_network_of_sinabs_spikes_as_its_equations_say() -> None:
    """34x34x2, four convolutions and weights with pools between them, evaluated here pixel by pixel."""
    path = SHARED / "cnn_sinabs.nir"
    if not path.exists():
        pytest.skip("no ../shared")
    found = network_of_nir(path, read_nir(path), Discretisation(reset="subtract"))
    assert found.title == "2312-4096-4096-512-256-10"
    kinds = [each.convolution for each in found.populations]
    assert kinds[0] == Convolution(
        planes=Planes(channels=2, height=34, width=34),
        window=Window(kernel=(5, 5), stride=(2, 2), padding=(1, 1)),
        channels=16,
    )
    halved = Pool(kind="sum", window=Window(kernel=(2, 2), stride=(2, 2)))
    assert kinds[2] is not None
    assert kinds[2].before == halved
    assert kinds[3] is not None
    assert (kinds[3].before, kinds[3].window) == (halved, Window(kernel=(4, 4)))
    assert kinds[4] is None
    first = found.populations[0]
    spikes = (np.random.default_rng(1).random((2, 34, 34)) < 0.2).astype(float)
    padded = np.pad(spikes, ((0, 0), (1, 1), (1, 1)))
    weights = first.weights.T.reshape(16, 2, 5, 5)
    assert first.bias is None  # the file's are zeros
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(1, 2))[:, ::2, ::2]
    expected = np.einsum("cyxij,ocij->oyx", windows, weights)
    patches = Patches(planes=kinds[0].planes, window=kinds[0].window, by_channel=True)
    (rows,) = OPERATIONS["unfold"].evaluate(patches, spikes.reshape(1, -1))
    np.testing.assert_allclose((rows @ first.weights).T.reshape(16, 16, 16), expected, atol=1e-12)
    source = nm.spike_trains(6, 2312, activity=0.3)
    given = nm.NodeByNode(read_nir(path), 1e-3, subtract=True).run(source)
    sent = nm.run(found, source)
    assert all(0.005 < each.mean() < 1 for each in sent[:-1])
    assert given.any()
    assert np.mean(given != sent[-1]) < 0.02  # weights are no multiples: a potential at the threshold may go either way


def test_the_input_has_planes_of_its_shape() -> None:
    assert INPUT.shape == (2, 6, 6)
    found = network_of_nir(Path("x"), graph(convolution(), SPIKES, node("Flatten")))
    assert found.populations[0].convolution == replace(PLAIN, planes=INPUT)
    assert found.populations[1].convolution is None
    assert found.populations[1].inputs == 48
