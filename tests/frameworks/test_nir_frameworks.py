"""NIR files against the programs that write and read them: spikes of snnTorch and Norse, and the package `nir`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nir_models as nm
import numpy as np
import pytest
from test_nir import CHAINS, NIR_FILES, PLANES
from test_nir_planes import CHAINS as CONVOLUTIONS
from test_nir_planes import written

from mimdsim.workload.interchange.model_file import ImportedNetwork
from mimdsim.workload.interchange.nir_neurons import Discretisation
from mimdsim.workload.interchange.nir_reading import read_nir
from mimdsim.workload.interchange.nir_walk import network_of_nir
from mimdsim.workload.interchange.nir_writing import nir_of_network

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
nir = pytest.importorskip("nir")
TIMESTEPS, INPUTS, HIDDEN, CLASSES = 80, 20, 16, 5


def imported(path: Path, **how: Any) -> ImportedNetwork:
    return network_of_nir(path, read_nir(path), Discretisation(**how))


def settled(module: Any, seed: int = 0) -> Any:
    """Multiples of 2^-10 for all weights, so that sums are exact in any order and spikes can be compared."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if "weight" in name or "bias" in name or name.endswith(".V"):
            wide = torch.randn(parameter.shape, generator=generator) * (0.25 if "recurrent" in name else 0.5) + 0.1
            parameter.data = torch.round(wide * 1024) / 1024
    return module


def layer(kind: str, reset: str, neurons: int, last: bool = False) -> Any:
    """A layer of snnTorch."""
    import snntorch

    common = {"reset_mechanism": reset, "init_hidden": True, "output": last}
    beta = torch.linspace(0.6, 0.95, neurons)
    recurrent: dict[str, Any] = {"all_to_all": True, "linear_features": neurons}
    one_to_one: dict[str, Any] = {"all_to_all": False, "V": torch.ones(neurons)}
    makers = {
        "leaky": lambda: snntorch.Leaky(beta=beta, threshold=torch.ones(neurons), **common),
        "synaptic": lambda: snntorch.Synaptic(alpha=beta - 0.3, beta=beta, threshold=torch.ones(neurons), **common),
        "rleaky": lambda: snntorch.RLeaky(beta=0.9, **recurrent, **common),
        "rleaky one to one": lambda: snntorch.RLeaky(beta=0.9, **one_to_one, **common),
        "rsynaptic": lambda: snntorch.RSynaptic(alpha=0.5, beta=0.9, **recurrent, **common),
    }
    return makers[kind]()


CASES = [
    ("leaky", "subtract", "subtract"),
    ("leaky", "zero", "file"),
    ("synaptic", "subtract", "subtract"),
    ("synaptic", "zero", "zero_after"),
    ("rleaky", "subtract", "subtract"),
    ("rleaky", "zero", "zero_after"),
    ("rleaky one to one", "subtract", "subtract"),
    ("rsynaptic", "subtract", "subtract"),
    ("rsynaptic", "zero", "zero_after"),
]


@pytest.mark.parametrize(("kind", "reset", "ours"), CASES)
def test_spikes_of_snntorch(tmp_path: Path, kind: str, reset: str, ours: str) -> None:
    pytest.importorskip("snntorch")
    from snntorch.export_nir import export_to_nir

    net = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN),
        layer(kind, reset, HIDDEN),
        torch.nn.Linear(HIDDEN, CLASSES, bias=False),
        layer("leaky" if ours != "zero_after" else kind, reset, CLASSES, last=True),
    )
    settled(net)
    nir.write(tmp_path / "model.nir", export_to_nir(net, torch.randn(1, INPUTS), ignore_dims=[0]))
    made = imported(tmp_path / "model.nir", reset=ours)
    assert made.title == f"{INPUTS}-{HIDDEN}-{CLASSES}"
    source = nm.spike_trains(TIMESTEPS, INPUTS)
    hidden: list[Any] = []
    net[1].register_forward_hook(lambda module, given, out: hidden.append(out))
    for each in net:
        if hasattr(each, "reset_mem"):
            each.reset_mem()
    with torch.no_grad():
        expected = [net(torch.tensor(row, dtype=torch.float32)[None])[0].numpy().reshape(-1) for row in source]
    first, last = nm.run(made, source)
    told = np.stack([(out[0] if isinstance(out, tuple) else out).numpy().reshape(-1) for out in hidden])
    assert 0.02 < told.mean() < 0.98
    print(
        kind, reset, "mismatches", int((first != told).sum()), int((last != np.stack(expected)).sum()), "of", told.size
    )
    np.testing.assert_array_equal(first, told)
    np.testing.assert_array_equal(last, np.stack(expected))


def test_spikes_of_norse() -> None:
    norse = pytest.importorskip("norse.torch")
    path = NIR_FILES / "lif_norse.nir"
    if not path.is_file():
        pytest.skip("no example files here")
    made = imported(path, dt_seconds=1e-3, reset="zero")
    cell = norse.LIFBoxCell(norse.LIFBoxParameters(tau_mem_inv=torch.tensor(400.0), v_th=torch.tensor(0.1)), dt=1e-3)
    source = np.where(nm.spike_trains(TIMESTEPS, 1, seed=3) > 0, 0.2, 0.0)
    state, expected = None, []
    for row in source:
        spikes, state = cell(torch.tensor(row, dtype=torch.float32), state)
        expected.append(spikes.detach().numpy())
    (got,) = nm.run(made, source)
    assert 0.05 < np.mean(expected) < 0.95
    np.testing.assert_array_equal(got, np.stack(expected))


@pytest.mark.parametrize("name", ["braille_noDelay_bias_zero", "braille_noDelay_noBias_subtract"])
def test_spikes_of_the_braille_networks_in_snntorch(name: str) -> None:
    snntorch = pytest.importorskip("snntorch")
    path = NIR_FILES / f"{name}.nir"
    if not path.is_file():
        pytest.skip("no example files here")
    reset = name.rsplit("_", 1)[1]
    made = imported(path, reset="subtract" if reset == "subtract" else "zero_after")
    given = nir.read(path, type_check=False).nodes
    neurons = [given["lif1.lif"], given["lif2"]]
    alpha, beta = ([float(1 - 1e-4 / getattr(node, tau)[0]) for node in neurons] for tau in ("tau_syn", "tau_mem"))
    count = neurons[0].r.size
    first = snntorch.RSynaptic(alpha=alpha[0], beta=beta[0], linear_features=count, reset_mechanism=reset)
    second = snntorch.Synaptic(alpha=alpha[1], beta=beta[1], reset_mechanism=reset)

    def product(node: Any, rows: Any) -> Any:
        weight, bias = torch.tensor(node.weight), torch.tensor(getattr(node, "bias", np.zeros(1, np.float32)))
        return rows @ weight.T + bias

    recurrent = given["lif1.w_rec"]
    first.recurrent.weight.data = torch.tensor(recurrent.weight)
    first.recurrent.bias.data = torch.tensor(getattr(recurrent, "bias", np.zeros(count, np.float32)))
    source = nm.spike_trains(256, 12, activity=0.5)
    source[:, 4:] = 0  # random spikes on all taxels silence these networks
    spikes, synapse, potential = first.init_rsynaptic()
    synapse2, potential2 = second.init_synaptic()
    hidden, output = [], []
    with torch.no_grad():
        for row in torch.tensor(source, dtype=torch.float32):
            spikes, synapse, potential = first(product(given["fc1"], row[None]), spikes, synapse, potential)
            out, synapse2, potential2 = second(product(given["fc2"], spikes), synapse2, potential2)
            hidden.append(spikes.numpy()[0])
            output.append(out.numpy()[0])
    ours = nm.run(made, source)
    for got, expected in zip(ours, (hidden, output), strict=True):
        print(name, "mismatches", int((got != np.stack(expected)).sum()), "of", got.size, "activity", got.mean())
        assert 0.01 < np.mean(expected) < 0.99
        np.testing.assert_array_equal(got, np.stack(expected))


@pytest.mark.parametrize("name", [name for name in CHAINS if name != "threshold"])
def test_nir_reads_what_is_written(tmp_path: Path, name: str) -> None:
    made = network_of_nir(Path("x"), CHAINS[name], Discretisation(dt_seconds=nm.DT))
    names = tuple(f"layer{index}" for index in range(len(made.populations)))
    graph = nir.read(nm.written(tmp_path, nir_of_network(made, names)))  # checks types too
    assert len(graph.nodes) >= len(names) + 2
    nir.write(tmp_path / "again.nir", graph)
    again = imported(tmp_path / "again.nir")
    source = nm.spike_trains(TIMESTEPS, made.inputs)
    for first, second in zip(nm.run(made, source), nm.run(again, source), strict=True):
        np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-5)


def test_snntorch_reads_what_is_written(tmp_path: Path) -> None:
    pytest.importorskip("snntorch")
    from snntorch.import_nir import import_from_nir

    made = network_of_nir(Path("x"), CHAINS["two layers plain"], Discretisation())
    net = import_from_nir(nir.read(nm.written(tmp_path, nir_of_network(made, ("a", "b")))))
    source = nm.spike_trains(TIMESTEPS, made.inputs)
    state, expected = None, []
    with torch.no_grad():
        for row in source:
            out, state = net(torch.tensor(row, dtype=torch.float32)[None], state)
            expected.append(out.numpy().reshape(-1))
    (_, got) = nm.run(made, source)
    assert 0.02 < np.mean(expected) < 0.98
    np.testing.assert_array_equal(got, np.stack(expected))


GRAPHS = {
    "skip": [("fc0", "l0"), ("l0", "fc1"), ("fc1", "l1"), ("l0", "skip"), ("skip", "l2"), ("l1", "fc2"), ("fc2", "l2")],
    "branches": [("fc0", "l0"), ("in1", "l1"), ("l0", "skip"), ("skip", "l2"), ("l1", "fc2"), ("fc2", "l2")],
    "feedback": [
        *(("fc0", "l0"), ("l0", "fc1"), ("fc1", "l1"), ("l1", "back"), ("back", "l0"), ("l1", "fc2"), ("fc2", "l2")),
        *(("input", "in2"), ("in2", "l2")),
    ],
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_read_as_nirtorch_runs_them_with_snntorch(tmp_path: Path, name: str) -> None:
    pytest.importorskip("snntorch")
    from snntorch.import_nir import import_from_nir

    sizes = {"input": INPUTS, "l0": HIDDEN, "l1": 12, "l2": CLASSES}
    edges = [("input", "fc0"), *GRAPHS[name], ("l2", "output")]
    edges += [("input", "in1")] if name == "branches" else []
    ends = {
        "skip": ("l0", "l2"),
        "back": ("l1", "l0"),
        "fc0": ("input", "l0"),
        "fc1": ("l0", "l1"),
        "fc2": ("l1", "l2"),
    }
    ends |= {"in1": ("input", "l1"), "in2": ("input", "l2")}
    nodes: dict[str, Any] = {"input": nir.Input(np.array([INPUTS])), "output": nir.Output(np.array([CLASSES]))}
    for seed, (product, (start, end)) in enumerate(ends.items()):
        if any(product in edge for edge in edges):
            weight = nm.weights(sizes[end], sizes[start], seed, 0.5) - 0.1875
            nodes[product] = nir.Linear(weight=weight.astype(np.float32))
    for beta, neurons in ((0.5, "l0"), (0.75, "l1"), (0.875, "l2")):
        wide = np.ones(sizes[neurons])
        tau = 1e-4 / (1 - beta) * wide
        nodes[neurons] = nir.LIF(tau=tau, r=tau / 1e-4, v_leak=0 * wide, v_threshold=wide, v_reset=0 * wide)
    nir.write(tmp_path / "model.nir", nir.NIRGraph(nodes=nodes, edges=edges, type_check=False))
    made = imported(tmp_path / "model.nir")
    assert [each.node for each in made.populations] == ["l0", "l1", "l2"]
    net, state, expected = import_from_nir(nir.read(tmp_path / "model.nir", type_check=False)), None, []
    source = nm.spike_trains(TIMESTEPS, INPUTS)
    with torch.no_grad():
        for row in source:
            out, state = net(torch.tensor(row, dtype=torch.float32)[None], state)
            expected.append(out.numpy().reshape(-1))
    got = nm.run(made, source)
    assert all(0.02 < each.mean() < 0.98 for each in got)
    np.testing.assert_array_equal(got[-1], np.stack(expected))


# nir 1.0.8 infers types by the kernel's height alone, and takes the channels that a group reads for all
@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if name != "strided"])
def test_what_is_written_of_planes_is_read_by_the_package(name: str, tmp_path: Path) -> None:
    network, weights = written(CONVOLUTIONS[name], tmp_path / "net.nir")
    graph = nir.read(tmp_path / "net.nir", type_check="groups" not in name)
    first = network.layers[0].convolution
    assert first is not None
    found = next(node for node in graph.nodes.values() if isinstance(node, nir.Conv2d))
    assert found.weight.shape == (first.channels, first.read.channels // first.groups, *first.window.kernel)
    for key in ("stride", "padding", "dilation"):
        assert tuple(np.broadcast_to(getattr(found, key), 2)) == getattr(first.window, key)
    assert found.groups == first.groups
    module = torch.nn.Conv2d(first.read.channels, first.channels, first.window.kernel, groups=first.groups)
    expected = weights["w.hidden0"].T.reshape(module.weight.shape) * 0.3
    np.testing.assert_allclose(found.weight, expected, rtol=1e-5, atol=1e-7)
    neurons = next(node for node in graph.nodes.values() if isinstance(node, nir.LIF))
    assert neurons.tau.shape == (first.result.shape if first.result.positions > 1 else (first.channels,))


# snnTorch 1.0.0 has no delays, and does not pass on the spikes of an IF to a pool
@pytest.mark.parametrize("name", ["convolution", "strides and pools", "read-out of a pool", "one dimension"])
def test_snntorch_runs_planes_that_are_written(tmp_path: Path, name: str) -> None:
    pytest.importorskip("snntorch")
    from snntorch.import_nir import import_from_nir

    made = network_of_nir(Path("x"), PLANES[name], Discretisation(dt_seconds=nm.DT))
    names = tuple(f"layer{index}" for index in range(len(made.populations)))
    # types are not checked: nir 1.0.8 infers them by the kernel's height alone
    graph = nir.read(nm.written(tmp_path, nir_of_network(made, names)), type_check=False)
    net, state, expected = import_from_nir(graph), None, []
    planes = made.populations[0].convolution
    assert planes is not None
    source = nm.spike_trains(TIMESTEPS, made.inputs)
    with torch.no_grad():
        for row in source:
            out, state = net(torch.tensor(row, dtype=torch.float32).reshape(1, *planes.planes.shape), state)
            expected.append(out.numpy().reshape(-1))
    got = nm.run(made, source)[-1]
    assert got.std(axis=0).max() > 0.1
    np.testing.assert_allclose(got, np.stack(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("padding", "groups"), [("same", 1), ("valid", 1), (1, 1), ((1, 2), 1), (1, 2)])
def test_convolutions_of_the_package_are_those_of_pytorch(tmp_path: Path, padding: Any, groups: int) -> None:
    module = settled(torch.nn.Conv2d(2, 3 * groups, (3, 5), padding=padding, groups=groups))
    weight, bias = module.weight.detach().numpy(), module.bias.detach().numpy()
    source = nm.spike_trains(1, 2 * 6 * 7).reshape(2, 6, 7)
    expected = module(torch.tensor(source, dtype=torch.float32)).detach().numpy()
    threshold = np.zeros(expected.shape)
    sides = {"stride": 1, "padding": padding, "dilation": 1, "groups": groups}
    nodes = {
        "input": nir.Input(np.array([2, 6, 7])),
        "c": nir.Conv2d(input_shape=(6, 7), weight=weight, bias=bias, **sides),
        "n": nir.IF(r=np.ones(expected.shape), v_threshold=threshold, v_reset=threshold),
        "output": nir.Output(np.array(expected.shape)),
    }
    edges = [("input", "c"), ("c", "n"), ("n", "output")]
    nir.write(tmp_path / "model.nir", nir.NIRGraph(nodes=nodes, edges=edges, type_check=False))
    made = imported(tmp_path / "model.nir")
    currents, _ = nm.of_planes(made.populations[0], source.reshape(-1))
    np.testing.assert_array_equal(currents.reshape(expected.shape), expected)
