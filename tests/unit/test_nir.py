"""NIR graphs read, written and made discrete: the neutral record's spikes against the equations node by node."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nir_models as nm
import numpy as np
import pytest

from mimdsim.base.errors import DescriptionError
from mimdsim.workload.data.hdf5 import shared_process
from mimdsim.workload.interchange.model_file import ImportedNetwork
from mimdsim.workload.interchange.nir_neurons import Discretisation
from mimdsim.workload.interchange.nir_nodes import NirGraph
from mimdsim.workload.interchange.nir_reading import read_nir
from mimdsim.workload.interchange.nir_walk import network_of_nir
from mimdsim.workload.interchange.nir_writing import nir_of_network

pytest.importorskip("h5py")
TIMESTEPS = 60
NIR_FILES = Path(__file__).resolve().parents[3] / "shared/data/nir"
LINEAR = nm.node("Linear", weight=nm.weights(3, 6))
AFFINE = {"weight": nm.weights(5, 6), "bias": nm.weights(1, 5, 9)[0] / 4}


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    with shared_process():
        yield


def network(file: NirGraph, **how: Any) -> ImportedNetwork:
    return network_of_nir(Path("model.nir"), file, Discretisation(**how))


def sent(made: ImportedNetwork, source: Any) -> Any:
    return nm.run(made, source)[-1]


CHAINS: dict[str, NirGraph] = {
    "lif": nm.graph({"w": nm.node("Linear", weight=nm.weights(3, 6)), "n": nm.leaky(3)}),
    "two layers": nm.graph(
        {
            "w": nm.node("Affine", **AFFINE),
            "a": nm.leaky(5, np.linspace(0.5, 0.95, 5), v_leak=np.linspace(-0.2, 0.2, 5)),
            "w2": nm.node("Linear", weight=nm.weights(3, 5, 2)),
            "b": nm.leaky(3, reset=-0.25, v_threshold=[0.5, 1.0, 1.5]),
        }
    ),
    "two layers plain": nm.graph(
        {
            "w": nm.node("Affine", **AFFINE),
            "a": nm.leaky(5, 0.75),
            "w2": nm.node("Linear", weight=nm.weights(3, 5, 2)),
            "b": nm.leaky(3, 0.5),
        }
    ),
    "cuba": nm.graph({"w": nm.node("Linear", weight=nm.weights(3, 6, 3, 0.4)), "n": nm.synaptic(3, [0.3, 0.6, 0.9])}),
    "adds up": nm.graph(
        {
            "w": nm.node("Linear", weight=nm.weights(3, 6)),
            "n": nm.node("IF", r=np.ones(3), v_threshold=[1, 2, 3], v_reset=[0, 0, 0.5]),
        }
    ),
    "read-out": nm.graph(
        {
            "w": nm.node("Affine", **AFFINE),
            "a": nm.leaky(5),
            "w2": nm.node("Linear", weight=nm.weights(3, 5, 2)),
            "b": nm.node("LI", tau=[nm.DT / 0.1] * 3, r=[10.0] * 3, v_leak=[0.0, 0.1, 0.2]),
        }
    ),
    "current read-out": nm.graph(
        {
            "w": nm.node("Linear", weight=nm.weights(3, 6)),
            "b": nm.node("CubaLI", tau_syn=[2e-4] * 3, tau_mem=[1e-3] * 3, r=[10.0] * 3, v_leak=[0.0] * 3),
        }
    ),
    "weights last": nm.graph(
        {"w": nm.node("Affine", **AFFINE), "a": nm.leaky(5), "w2": nm.node("Linear", weight=nm.weights(3, 5, 2))}
    ),
    "composed": nm.graph(
        {
            "flat": nm.node("Flatten"),
            "late": nm.node("Delay", delay=[2 * nm.DT] * 6),
            "scale": nm.node("Scale", scale=np.linspace(0.5, 1.5, 6)),
            "w": nm.node("Affine", **AFFINE),
            "rows": nm.node("Scale", scale=[1.0, 2.0, 0.5, 1.0, 1.5]),
            "w2": nm.node("Affine", weight=nm.weights(3, 5, 2) / 2, bias=[0.1, 0.0, -0.1]),
            "n": nm.leaky(3),
        },
        inputs=(2, 3),
    ),
    "skips and ages": nm.graph(
        {
            "w": nm.node("Affine", **AFFINE),
            "a": nm.leaky(5, 0.75),
            "a2": nm.node("Linear", weight=nm.weights(4, 5, 2, 0.5)),
            "in2": nm.node("Affine", weight=nm.weights(4, 6, 3, 0.5), bias=[0.1, 0.2, -0.1, 0.0]),
            "b": nm.synaptic(4, 0.5),
            "late": nm.node("Delay", delay=[3 * nm.DT] * 5),
            "late w": nm.node("Linear", weight=nm.weights(3, 5, 4)),
            "a3": nm.node("Linear", weight=nm.weights(3, 5, 5) - 0.25),
            "b3": nm.node("Linear", weight=nm.weights(3, 4, 6)),
            "o": nm.leaky(3, 0.5),
        },
        [
            *(("input", "w"), ("w", "a"), ("a", "a2"), ("a2", "b"), ("input", "in2"), ("in2", "b"), ("a", "late")),
            *(("late", "late w"), ("late w", "o"), ("a", "a3"), ("a3", "o"), ("b", "b3"), ("b3", "o"), ("o", "output")),
        ],
    ),
    "feedback": nm.graph(
        {
            "w": nm.node("Affine", **AFFINE),
            "z": nm.leaky(5, 0.75),
            "w2": nm.node("Linear", weight=nm.weights(3, 5, 2)),
            "y": nm.leaky(3, 0.5),
            "back": nm.node("Linear", weight=nm.weights(5, 3, 3) - 0.5),
            "w3": nm.node("Linear", weight=nm.weights(3, 3, 4) + 0.5),
            "x": nm.leaky(3, 0.5),
            "late": nm.node("Delay", delay=[nm.DT] * 3),
            "back2": nm.node("Linear", weight=nm.weights(3, 3, 5) - 0.5),
        },
        [
            *(("input", "w"), ("w", "z"), ("z", "w2"), ("w2", "y"), ("y", "back"), ("back", "z"), ("y", "w3")),
            *(("w3", "x"), ("x", "late"), ("late", "back2"), ("back2", "y"), ("x", "output")),
        ],
    ),
    "parallel": nm.graph(
        {
            "w": nm.node("Affine", **AFFINE),
            "a": nm.leaky(5, 0.75),
            "w2": nm.node("Linear", weight=nm.weights(4, 6, 2)),
            "b": nm.leaky(4, 0.5),
            "a3": nm.node("Linear", weight=nm.weights(3, 5, 5) - 0.25),
            "b3": nm.node("Affine", weight=nm.weights(3, 4, 6), bias=[0.5, 0.0, -0.5]),
            "own": nm.node("Linear", weight=nm.weights(5, 5, 7, 0.3)),
        },
        [
            *(("input", "w"), ("w", "a"), ("input", "w2"), ("w2", "b"), ("a", "own"), ("own", "a")),
            *(("a", "a3"), ("b", "b3"), ("a3", "output"), ("b3", "output")),
        ],
    ),
    "sends and listens": nm.graph(
        {
            "w": LINEAR,
            "e": nm.leaky(3, 0.5),
            "i": nm.leaky(3, 0.75),
            "inhibits": nm.node("Scale", scale=[-0.5]),
            "late": nm.node("Delay", delay=[nm.DT] * 3),
        },
        [
            ("input", "w"),
            ("w", "e"),
            ("e", "i"),
            ("i", "inhibits"),
            ("inhibits", "late"),
            ("late", "e"),
            ("e", "output"),
        ],
    ),
    "straight on": nm.graph({"a": nm.leaky(6), "b": nm.leaky(6, v_threshold=np.full(6, 0.5))}, outputs=6),
    "threshold": nm.graph(
        {"w": nm.node("Linear", weight=nm.weights(3, 6)), "t": nm.node("Threshold", threshold=[0.5, 1.0, 1.5])}
    ),
    "nested all to all": nm.graph(
        {
            "w": nm.node("Affine", **AFFINE),
            "r": nm.nested(
                nm.node("Affine", weight=nm.weights(5, 5, 4, 0.3), bias=nm.weights(1, 5, 5)[0] / 8), nm.leaky(5), 5
            ),
            "w2": nm.node("Linear", weight=nm.weights(3, 5, 2)),
            "b": nm.synaptic(3),
        }
    ),
    "nested one to one": nm.graph(
        {
            "w": nm.node("Linear", weight=nm.weights(5, 6)),
            "r": nm.nested(nm.node("Linear", weight=np.diag([0.5, -0.5, 0.25, 1.0, -1.0])), nm.synaptic(5), 5),
            "w2": nm.node("Linear", weight=nm.weights(3, 5, 2)),
            "b": nm.leaky(3),
        }
    ),
    "flat circle": nm.graph(
        {
            "w": nm.node("Linear", weight=nm.weights(3, 6)),
            "l.lif": nm.synaptic(3),
            "l.w_rec": nm.node("Linear", weight=nm.weights(3, 3, 7, 0.3)),
        },
        [("input", "w"), ("w", "l.lif"), ("l.lif", "l.w_rec"), ("l.w_rec", "l.lif"), ("l.lif", "output")],
    ),
    "onto itself": nm.graph(
        {"w": nm.node("Linear", weight=nm.weights(3, 6)), "n": nm.leaky(3), "s": nm.node("Scale", scale=[0.5])},
        [("input", "w"), ("w", "n"), ("n", "s"), ("s", "n"), ("n", "output")],
    ),
    "two ways": nm.graph(
        {
            "w": nm.node("Linear", weight=nm.weights(3, 6)),
            "v": nm.node("Affine", weight=nm.weights(3, 6, 8), bias=[0.1] * 3),
            "n": nm.leaky(3),
        },
        [("input", "w"), ("input", "v"), ("w", "n"), ("v", "n"), ("n", "output")],
    ),
}

FLAT = nm.node("Flatten", start_dim=0, end_dim=-1, input_type=[2, 2, 2])
PLANES: dict[str, NirGraph] = {
    "convolution": nm.graph(
        {
            "c": nm.conv(3, 2, (3, 3), scale=0.25, mean=0.0),
            "a": nm.over((3, 4, 5), [0.5, 0.75, 0.9]),
            "flat": nm.node("Flatten", start_dim=0, end_dim=-1, input_type=[3, 4, 5]),
            "w": nm.node("Affine", weight=nm.weights(4, 60, 2, 0.3) - 0.1875, bias=nm.weights(1, 4, 3)[0] / 8),
            "b": nm.leaky(4),
        },
        inputs=(2, 6, 7),
        outputs=4,
    ),
    "strides and pools": nm.graph(
        {
            "c": nm.conv(3, 2, (3, 2), scale=0.5, stride=[2, 1], padding=[1, 0], dilation=[1, 2], input_shape=[6, 6]),
            "a": nm.over((3, 3, 4)),
            "p": nm.pool("Sum"),
            "c2": nm.conv(2, 3, (1, 2), 4, 0.7, padding="valid"),
            "q": nm.pool("Avg", [1, 1], [1, 1]),
            "b": nm.over((2,), [0.5, 0.75]),
            "flat": nm.node("Flatten"),
            "w": nm.node("Linear", weight=nm.weights(3, 2, 5)),
            "o": nm.leaky(3),
        },
        inputs=(2, 6, 6),
    ),
    "pool of the input and weights after a pool": nm.graph(
        {
            "p": nm.pool("Avg", [2, 2], [2, 2], [1, 1]),
            "c": nm.conv(2, 1, (3, 3), 6, padding="same"),
            "q": nm.pool("Avg", [2, 2], [1, 1]),
            "a": nm.node("IF", r=1.0, v_threshold=np.ones((2, 3, 3)), v_reset=[0.0, 0.25]),
            "s": nm.pool("Sum", 2, 1),
            "flat": FLAT,
            "w": nm.node("Affine", weight=nm.weights(3, 8, 7, 0.25) - 0.125, bias=[0.25, -0.5, 0.5]),
            "o": nm.leaky(3, 0.5),
        },
        inputs=(1, 6, 6),
    ),
    "late": nm.graph(
        {
            "c": nm.conv(2, 2, (2, 2), scale=0.5),
            "a": nm.over((2, 2, 2)),
            "d": nm.node("Delay", delay=np.full((2, 2, 2), nm.DT)),
            "c2": nm.conv(3, 2, (2, 2), 3),
            "o": nm.over((3, 1, 1)),
        },
        inputs=(2, 3, 3),
        outputs=(3, 1, 1),
    ),
    "read-out of a pool": nm.graph(
        {
            "c": nm.conv(2, 1, (2, 2), scale=0.5),
            "a": nm.over((2, 3, 3)),
            "p": nm.pool("Sum", 2, 1),
            "flat": FLAT,
            "w": nm.node("Linear", weight=nm.weights(3, 8, 7, 0.5)),
        },
        inputs=(1, 4, 4),
    ),
    "one dimension": nm.graph(
        {
            "c": nm.conv(3, 2, (3,), scale=0.5, stride=2, padding=1, input_shape=8),
            "a": nm.over((3, 4)),
            "c2": nm.conv(2, 3, (2,), 5, 0.5, padding="valid"),
            "b": nm.over((2, 3), 0.5),
            "flat": nm.node("Flatten"),
            "w": nm.node("Linear", weight=nm.weights(3, 6, 5)),
            "o": nm.leaky(3),
        },
        inputs=(2, 8),
    ),
}


@pytest.mark.first(3)
@pytest.mark.parametrize("name", list(PLANES))
@pytest.mark.parametrize("subtract", [False, True])
def test_record_of_planes_runs_as_the_graph_does(tmp_path: Path, name: str, subtract: bool) -> None:
    file = read_nir(nm.written(tmp_path, PLANES[name]))
    made = network(file, reset="subtract" if subtract else "file", dt_seconds=nm.DT)
    assert any(each.convolution for each in made.populations)
    source = nm.spike_trains(TIMESTEPS, made.inputs, seed=len(name))
    expected = nm.NodeByNode(file, nm.DT, subtract).run(source)
    got = sent(made, source)
    assert expected.std(axis=0).max() > 0.1  # neither silent nor always firing, or the test could not fail
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", list(PLANES))
def test_planes_that_are_written_and_read_are_the_same(tmp_path: Path, name: str) -> None:
    made = network(PLANES[name], dt_seconds=nm.DT)
    names = tuple(f"layer{index}" for index in range(len(made.populations)))
    file = read_nir(nm.written(tmp_path, nir_of_network(made, names)))
    again = network_of_nir(Path("x"), file)
    for one, other in zip(made.populations, again.populations, strict=True):
        assert (one.convolution, one.sources) == (other.convolution, other.sources)
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.bias if one.bias is not None else 0, 0 if other.bias is None else other.bias)
    source = nm.spike_trains(TIMESTEPS, made.inputs)
    expected = nm.NodeByNode(file, nm.DT).run(source)
    np.testing.assert_allclose(sent(made, source), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", list(CHAINS))
@pytest.mark.parametrize("subtract", [False, True])
def test_record_runs_as_the_graph_does(tmp_path: Path, name: str, subtract: bool) -> None:
    file = read_nir(nm.written(tmp_path, CHAINS[name]))
    made = network(file, reset="subtract" if subtract else "file", dt_seconds=0.0 if "adds" not in name else nm.DT)
    source = nm.spike_trains(TIMESTEPS, made.inputs, seed=len(name))
    expected = nm.NodeByNode(file, nm.DT, subtract).run(source)
    got = sent(made, source)
    if made.populations[-1].spiking:
        assert 0 < expected.mean() < 1  # neither silent nor always firing, or the test could not fail
        np.testing.assert_array_equal(got, expected)
    else:
        assert np.ptp(expected) > 0.1
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in CHAINS if name not in ("threshold",)])
def test_writing_a_network_and_reading_it_gives_it_back(tmp_path: Path, name: str) -> None:
    made = network(CHAINS[name], dt_seconds=nm.DT)
    names = tuple(f"layer{index}" for index in range(len(made.populations)))
    again = network_of_nir(Path("x"), read_nir(nm.written(tmp_path, nir_of_network(made, names))))
    assert again.title == made.title
    source = nm.spike_trains(TIMESTEPS, made.inputs)
    for first, second in zip(nm.run(made, source), nm.run(again, source), strict=True):
        np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-5)
    bytes_once = (tmp_path / "model.nir").read_bytes()
    assert nm.written(tmp_path, nir_of_network(made, names)).read_bytes() == bytes_once


def test_resets_that_nir_cannot_say_are_noted_and_read_back(tmp_path: Path) -> None:
    for reset in ("subtract", "subtract_decayed", "zero_after", "none"):
        made = network(CHAINS["two layers"], reset=reset)
        file = nir_of_network(made, ("a", "b"))
        again = network(read_nir(nm.written(tmp_path, file)))
        assert [each.dynamics.reset for each in again.populations] == [reset, reset]


def test_record_says_what_the_file_said() -> None:
    made = network(CHAINS["nested one to one"])
    assert made.title == "6-5-3"
    assert made.dt_seconds == pytest.approx(nm.DT)
    first, second = made.populations
    assert (first.node, first.kind, first.recurrence, first.spiking) == ("r/lif", "CubaLIF", "one_to_one", True)
    assert first.recurrent is not None
    np.testing.assert_allclose(first.recurrent, [0.5, -0.5, 0.25, 1.0, -1.0])
    np.testing.assert_allclose(second.dynamics.decay, 0.9)
    assert set(second.dynamics.gain) == {1.0}
    assert made.populations[0].bias is None


def test_exponential_leak_and_given_timestep() -> None:
    file = nm.graph(
        {
            "w": nm.node("Linear", weight=nm.weights(3, 6)),
            "n": nm.node(
                "LIF", tau=[2e-3] * 3, r=[1.0] * 3, v_leak=[0.5] * 3, v_threshold=[1.0] * 3, v_reset=[0.0] * 3
            ),
        }
    )
    with pytest.raises(DescriptionError, match="r is 1"):
        network(file)
    (euler,) = network(file, dt_seconds=1e-3).populations
    np.testing.assert_allclose(
        [euler.dynamics.decay, euler.dynamics.gain, euler.dynamics.rest], [[0.5] * 3, [0.5] * 3, [0.5] * 3]
    )
    (exp,) = network(file, dt_seconds=1e-3, leak="exp").populations
    decay = np.exp(-0.5)
    np.testing.assert_allclose(
        [exp.dynamics.decay, exp.dynamics.gain, exp.dynamics.rest], [[decay] * 3, [0.5] * 3, [0.5] * 3]
    )


def without_reset() -> NirGraph:
    return nm.graph({"w": LINEAR, "n": nm.leaky(3, reset=None)})


def diamonds(count: int) -> NirGraph:
    """Delays of 1, 2, 4, ... timesteps, each of which may be gone around."""
    nodes: dict[str, Any] = {}
    edges, ends = [], ["input"]
    for number in range(count):
        nodes[f"s{number}"] = nm.node("Scale", scale=[1.0])
        nodes[f"d{number}"] = nm.node("Delay", delay=[2**number * nm.DT] * 6)
        edges += [(end, f"s{number}") for end in ends] + [(f"s{number}", f"d{number}")]
        ends = [f"s{number}", f"d{number}"]
    edges += [*((end, "w") for end in ends), ("w", "n"), ("n", "output")]
    return nm.graph({**nodes, "w": LINEAR, "n": nm.leaky(3)}, edges)


REFUSED: list[tuple[NirGraph, str]] = [
    (
        nm.graph({"c": nm.conv(3, 2, (1, 3)), "n": nm.leaky(3)}),
        r"'n' \(LIF\): reads planes of 'input', which does not say its planes: an input's shape",
    ),
    (
        nm.graph({"c": nm.pool("Sum"), "w": nm.node("Linear", weight=np.ones((3, 1))), "n": nm.leaky(3)}),
        r"'n' \(LIF\): reads planes of 'input', which does not say",
    ),
    (nm.graph({"c": nm.node("I", r=np.ones(3)), "n": nm.leaky(3)}), r"I \('c'\) needs a neuron that adds up"),
    (nm.graph({"c": nm.node("Wobble"), "n": nm.leaky(3)}), r"Wobble \('c'\) is not known; known are Input"),
    (without_reset(), "'n' .LIF.: has no 'v_reset'.*give --reset zero or --reset subtract"),
    (nm.graph({"w": LINEAR, "n": nm.leaky(4)}), r"'tau' has 4 values for 3 neurons"),
    (nm.graph({"w": LINEAR, "n": nm.leaky(3)}, inputs=7), "takes 6 values, 'input' gives 7"),
    (nm.graph({"w": LINEAR, "n": nm.leaky(3)}, inputs=0), "'input' has the shape .0.0.; whole numbers"),
    (
        nm.graph({"w": LINEAR, "x": LINEAR, "n": nm.leaky(3)}),
        "at 'x' .Linear.: one part gives 3 values, the next takes 6",
    ),
    (
        nm.graph({"w": LINEAR, "n": nm.leaky(3, v_threshold=[1.0, np.nan, 1.0])}),
        "'v_threshold' holds values that are not",
    ),
    (
        nm.graph({"w": nm.node("Linear", weight=np.full((3, 6), np.inf)), "n": nm.leaky(3)}),
        "weights that lead to 'n' hold",
    ),
    (nm.graph({"w": LINEAR, "n": nm.leaky(3, tau=[0.0] * 3)}), "'tau' is 0 s; a time constant is positive"),
    (nm.graph({"w": nm.node("Linear", weight=np.ones(3)), "n": nm.leaky(3)}), r"'weight' has the shape \[3\]"),
    (
        nm.graph({"w": nm.node("Affine", weight=np.ones((3, 6)), bias=np.ones(4)), "n": nm.leaky(3)}),
        "'bias' has 4 values",
    ),
    (nm.graph({"w": LINEAR, "n": nm.leaky(3, metadata={"reset": "odd"})}), "metadata say reset 'odd'"),
    (
        nm.graph({"w": LINEAR, "a": nm.leaky(3), "b": nm.leaky(3, dt=2 * nm.DT)}),
        "different timesteps: tau/r is 0.0001 s in 'a' and 0.0002 s in 'b'; give one, --dt 0.0001",
    ),
    (
        nm.graph({"w": LINEAR, "d": nm.node("Delay", delay=[1.5e-4] * 3), "n": nm.leaky(3)}),
        "a delay of 0.00015 s is 1.5 timesteps",
    ),
    (
        nm.graph({"w": LINEAR, "d": nm.node("Delay", delay=[1e-4, 2e-4, 1e-4]), "n": nm.leaky(3)}),
        "a delay per neuron is not supported",
    ),
    (
        nm.graph(
            {"w": LINEAR, "a": nm.leaky(3), "b": nm.leaky(3)}, [("input", "w"), ("w", "a"), ("w", "b"), ("a", "output")]
        ),
        "'b': no edges lead from it to the output, so what it sends means nothing; take it out of the graph",
    ),
    (
        nm.graph({"w": LINEAR, "a": nm.leaky(3), "b": nm.leaky(3)}, [("input", "w"), ("w", "a"), ("a", "output")]),
        "'b': reads neither the input nor other neurons; lead an edge to it, or take it out of the graph",
    ),
    (
        nm.graph(
            {"w": LINEAR, "a": nm.leaky(3), "l": nm.node("Delay", delay=[nm.DT] * 3), "b": nm.leaky(3)},
            [("input", "w"), ("w", "b"), ("a", "b"), ("b", "l"), ("l", "a"), ("b", "output")],
        ),
        "'a': comes first, as others read it without a delay, but does not read the input",
    ),
    (
        nm.graph(
            {"w": LINEAR, "a": nm.leaky(3), "w2": nm.node("Linear", weight=nm.weights(4, 6)), "b": nm.leaky(3)},
            [("input", "w"), ("w", "a"), ("a", "b"), ("input", "w2"), ("w2", "b"), ("b", "output")],
        ),
        r"'b' \(LIF\): 'tau' has 3 values for 4 neurons|gets 3 values of 'a' for 4 neurons",
    ),
    (
        nm.graph(
            {
                "c": nm.conv(3, 1, (2, 2)),
                "a": nm.over((3, 2, 2)),
                "w": nm.node("Linear", weight=nm.weights(3, 12)),
                "b": nm.leaky(3),
                "w2": nm.node("Linear", weight=nm.weights(12, 3)),
            },
            [("input", "c"), ("c", "a"), ("a", "w"), ("w", "b"), ("b", "w2"), ("w2", "a"), ("b", "output")],
            inputs=(1, 3, 3),
        ),
        r"'a' \(LIF\): reads 'input' and 'b', one of them over planes; a convolution or a pool reads one source",
    ),
    (
        nm.graph(
            {**{f"d{n}": nm.node("Delay", delay=[9000 * nm.DT] * 6) for n in range(2)}, "w": LINEAR, "n": nm.leaky(3)}
        ),
        "delays add up to over 10000 timesteps",
    ),
    (diamonds(9), r"at 'w' \(Linear\): adds up over 256 sources, or ages of them"),
    (
        nm.graph({f"n{n}": nm.leaky(1) for n in range(256)}, inputs=1, outputs=1),
        "has 256 populations of neurons; fewer than 256 can run",
    ),
    (
        nm.graph(
            {
                "w": nm.node("Linear", weight=np.ones((5000, 6))),
                "a": nm.leaky(5000),
                "b": nm.leaky(5000),
                "c": nm.leaky(5000),
            },
            outputs=5000,
        ),
        "5000 x 5000 weights, written out, are over 33554432 with those before them",
    ),
    (
        nm.graph(
            {"a": nm.node("Scale", scale=[2.0]), "b": nm.node("Scale", scale=[2.0])},
            [("input", "a"), ("a", "b"), ("b", "a"), ("b", "output")],
        ),
        "cycle without a neuron",
    ),
    (
        nm.graph({"w": LINEAR, "n": nm.leaky(3)}, [("input", "w"), ("w", "m")]),
        "an edge joins 'w' and 'm', but there is no 'm'",
    ),
    (nm.graph({"w": LINEAR, "i": nm.node("Input", shape=[2]), "n": nm.leaky(3)}), "has 2 nodes Input; one is needed"),
    (nm.graph({"g": NirGraph(nodes={"n": nm.leaky(3)}, edges=())}), "the graph 'g' has 0 nodes Input"),
    (nm.graph({"a": nm.leaky(8000)}, inputs=8000, outputs=8000), "8000 x 8000 weights, written out, are over"),
    (
        nm.graph(
            {"w": LINEAR, "n": nm.leaky(3), "d": nm.node("Delay", delay=[2e-4] * 3)},
            [("input", "w"), ("w", "n"), ("n", "d"), ("d", "n"), ("n", "output")],
        ),
        "reads itself after 2 timesteps",
    ),
]


@pytest.mark.parametrize(("file", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_run_is_refused_by_name(file: NirGraph, words: str) -> None:
    with pytest.raises(DescriptionError, match=words):
        network(file)


def test_all_problems_of_neurons_are_told_at_once() -> None:
    file = nm.graph({"w": LINEAR, "a": nm.leaky(3, reset=None), "b": nm.leaky(3, v_leak=[np.inf] * 3)})
    with pytest.raises(DescriptionError) as caught:
        network(file)
    assert len(caught.value.problems) == 2


def test_too_long_a_timestep_is_refused_with_one_that_works() -> None:
    with pytest.raises(DescriptionError, match=r"longer than 'tau', 0\.001 s.*--leak exp.*--dt 0\.0001 "):
        network(CHAINS["lif"], dt_seconds=2e-3)


def test_suggested_timesteps_leave_something_of_the_state() -> None:
    for tau, wanted in ((1e-3, "--dt 0.0001 (snnTorch"), (1e-4, "--dt 1e-06"), (1e-6, "--dt 1e-07")):
        plain = nm.leaky(3, r=np.ones(3), tau=np.full(3, tau))
        file = nm.graph({"w": LINEAR, "n": plain})
        with pytest.raises(DescriptionError, match="does not determine the timestep") as caught:
            network(file)
        found = re.findall("--dt ([0-9.e-]+)", str(caught.value))
        assert wanted in str(caught.value)
        assert found
        for dt in found:
            assert np.all(network(file, dt_seconds=float(dt)).populations[0].dynamics.decay >= 0.5)


def test_a_decay_of_zero_and_a_reset_that_may_be_another_are_noted() -> None:
    file = nm.graph({"w": LINEAR, "n": nm.leaky(3, r=np.ones(3), tau=np.full(3, 1e-3))})
    said = " ".join(network(file, dt_seconds=1e-3).notes)
    assert "'n': decay 0, as --dt 0.001 is the time constant itself" in said
    assert "'n': a spike resets to zero, as the file says; snnTorch also writes this" in said
    assert not any("decay 0" in note for note in network(file, dt_seconds=1e-4).notes)
    assert network(file, dt_seconds=1e-4, reset="zero").notes == ()


def test_a_cycle_without_a_delay_is_noted_and_read_a_timestep_later() -> None:
    made = network(CHAINS["feedback"])
    assert [each.node for each in made.populations] == ["z", "y", "x"]
    assert [[(one.name, one.lag) for one in each] for each in made.sources] == [
        [("input", 0), ("hidden1", 1)],
        [("hidden0", 0), ("output", 1)],
        [("hidden1", 0)],
    ]
    assert made.notes[0] == "'z' reads 'y' a timestep later, as both are in a cycle without a delay"
    assert not any("cycle" in note for note in network(CHAINS["sends and listens"]).notes)


def test_a_population_that_reads_the_input_comes_first() -> None:
    late = nm.node("Delay", delay=[nm.DT] * 3)
    edges = [("input", "w"), ("w", "e"), ("e", "i"), ("i", "e"), ("i", "d"), ("d", "c")]
    edges += [("c", "d2"), ("d2", "e"), ("e", "output")]
    file = nm.graph({"w": LINEAR, "d": late, "d2": late, **{name: nm.leaky(3) for name in "cei"}}, edges)
    made = network(file)
    assert [each.node for each in made.populations] == ["e", "i", "c", "output"]
    assert [[(one.name, one.lag) for one in each] for each in made.sources] == [
        [("input", 0), ("hidden1", 1), ("hidden2", 1)],
        [("hidden0", 0)],
        [("hidden1", 1)],
        [("hidden0", 0)],
    ]


def test_a_clique_is_read_in_time() -> None:
    names = [f"n{number}" for number in range(200)]
    edges = [("input", "hub"), *((name, "hub") for name in names), *(("hub", name) for name in names)]
    nodes: dict[str, Any] = {"hub": nm.node("Scale", scale=[1.0]), **{name: nm.leaky(1) for name in names}}
    made = network(nm.graph(nodes, [*edges, ("n7", "output")], inputs=1, outputs=1))
    assert made.populations[-1].node == "n7"
    assert made.notes[0].startswith("'n0' reads 'n1', 'n0' reads 'n2', ")
    assert "(19900 in all) a timestep later" in made.notes[0]


def test_the_order_of_edges_does_not_matter() -> None:
    for name in ("skips and ages", "feedback", "parallel", "sends and listens"):
        file = CHAINS[name]
        made, other = network(file), network(NirGraph(nodes=file.nodes, edges=file.edges[::-1]))
        assert [each.node for each in made.populations] == [each.node for each in other.populations]
        assert [set(each) for each in made.sources] == [set(each) for each in other.sources]
        source = nm.spike_trains(TIMESTEPS, made.inputs)
        np.testing.assert_allclose(sent(made, source), sent(other, source), rtol=1e-9)


def test_output_of_another_shape_is_noted() -> None:
    made = network(nm.graph({"w": LINEAR, "n": nm.leaky(3)}, outputs=(1, 5)))
    assert made.notes[-1] == "'output' says 5 values, there are 3"


def test_a_constant_that_is_delayed_is_noted() -> None:
    late = nm.node("Delay", delay=[nm.DT] * 5)
    made = network(nm.graph({"w": nm.node("Affine", **AFFINE), "d": late, "n": nm.leaky(5)}))
    assert made.populations[0].sources[0].lag == 1
    assert made.notes[0] == "the constant that 'd' delays acts from the first timestep on, not 1 later"


def test_nir_needs_a_timestep_and_a_node_to_write() -> None:
    made = network(CHAINS["adds up"])
    with pytest.raises(DescriptionError, match="give the length of a timestep, --dt"):
        nir_of_network(made, ("a",))
    (leaky,) = network(CHAINS["lif"]).populations
    mixed = dataclasses.replace(leaky.dynamics, decay=np.array([0.0, 0.5, 1.0]))
    made = ImportedNetwork(populations=(dataclasses.replace(leaky, dynamics=mixed),), dt_seconds=1.0)
    with pytest.raises(DescriptionError, match="layer 'a' has a decay of 0 to 1; only one from 0 to below 1 has a tau"):
        nir_of_network(made, ("a",))
