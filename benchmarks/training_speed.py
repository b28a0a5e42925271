"""How fast training steps are executed, compared with PyTorch: one run, every implementation in its own process.

A training step is forward, cross-entropy of spike counts, backward and update in all of them, with data in memory.
`whole` is what mimdsim trains with: the network as whole tensors. PyTorch's dense implementations are in
`training_speed_torch.py`, those on lists of spikes in `training_speed_sparse.py`. Weights are scaled until every layer
spikes at the given share; PyTorch gets the same weights and inputs.

Prints the processor and, per network and activity, the minimum process time (one thread) or wall time (several) of
each, the ratios of the best dense and the best sparse PyTorch time to it, peak memory of the processes, how far weight
gradients are from those of `whole`, of their largest, and the ratio to the first way turn by turn: median and range.
Does not pass or fail by seconds.
Usage: python benchmarks/training_speed.py [--threads 2] [--torch-python OTHER/bin/python] [--scaling]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

NETWORKS: dict[str, tuple[tuple[int, ...], int, int]] = {  # widths, timesteps, batch
    "2312-1024-1024-10": ((2312, 1024, 1024, 10), 50, 48),
    "1472-1472-1472-1472": ((1472, 1472, 1472, 1472), 100, 48),
    "700-1462-1460-20": ((700, 1462, 1460, 20), 100, 48),  # the workload shd-2
}
PLANES = ("nmnist-conv", "dvs-gesture-conv")  # workloads, run on random input
GIVEN = {"input.ids": "ids", "input.counts": "counts", "labels": "labels"}  # arrays of a problem by graph input
OURS = ("whole",)
DENSE = ("by_hand", "multi_step", "layer_wise", "step_wise")
SPARSE = tuple("_".join(parts) for parts in product(("csr", "bag"), ("eager", "compiled"), ("uncut", "cut")))
LINEAR_WAYS = ("linear_dense", "linear_bag")
PLANES_WAYS = ("conv_first", "conv_last")
PAIR_WAYS = tuple("_".join(("pair", *parts)) for parts in product(("dense", "bag"), ("eager", "compiled")))
THEIRS = (*DENSE, *SPARSE, *LINEAR_WAYS, *PLANES_WAYS, *PAIR_WAYS)
# synaptic: layers onto themselves; adaptive: potentials are read; planes: convolutions with dense spikes; populations:
# excitatory and inhibitory neurons that drive each other
FAMILIES = ("lif", "leaky", "synaptic", "adaptive", "planes", "populations")
FACTORS = (1, 2, 3, 4)  # of what scales
STEPS_IN_TURN = 3  # training steps of a turn; the first finds the caches full of another way's data and is not counted
SETTLING_SECONDS = 0.3  # before a turn: threads of the way before spin on for a while after their last work
CAPACITY_SHARE = 0.15  # ids listed at most, of a layer's neurons
INHIBITION, SWEEPS = 0.002, 3  # deviation of inhibitory weights; how often populations are scaled again
CONSTANTS: dict[str, Any] = {
    "decay": 0.95,
    "gain": 10.0,
    "slope": 10.0,
    "second_threshold": 0.9,
    "logit_scale": 1.0,
    "optimiser": "sgd",
    **{"alpha": 0.8, "beta": 0.9, "rho": 0.97, "kappa": 0.07},
}
MISSING = (
    "PyTorch is not installed: pip install 'mimdsim[torch]' snntorch spikingjelly, or name an interpreter that has "
    "them with --torch-python"
)


def network_of(problem: Any) -> Any:
    """The problem as a network of mimdsim."""
    from mimdsim.graph import Adam, Layer, Sgd, SpikingNetwork
    from mimdsim.graph.layer import Source
    from mimdsim.graph.neuron_models import neuron_of
    from mimdsim.graph.spikes import Selection

    widths = [int(width) for width in problem["widths"]]
    family, layers = str(problem["family"]), []
    if family == "planes":
        return planes_of(str(problem["workload"]), float(problem["slope"]))
    if family == "lif":
        constants = {"decay": float(problem["decay"]), "current_gain": float(problem["gain"])}
        neuron = neuron_of("lif", constants, reset_gradient="mask")
    else:
        model = "leaky" if family == "populations" else family
        used = {"leaky": ("beta",), "synaptic": ("alpha", "beta"), "adaptive": ("beta", "rho", "kappa")}[model]
        constants = {name: float(problem[name]) for name in used}
        neuron = neuron_of(model, constants, reset="subtract", reset_gradient="pass")
    for index, (inputs, neurons) in enumerate(pairwise(widths)):
        selection = Selection(
            threshold=1.0,
            second_threshold=float(problem["second_threshold"]),
            capacity=max(min(neurons, 10), int(neurons * CAPACITY_SHARE)),
            slope=float(problem["slope"]),
        )
        name = "output" if index == len(widths) - 2 else f"hidden{index}"
        spiking = name != "output" or family != "adaptive"
        own = "all_to_all" if family == "synaptic" and name != "output" else "none"
        each = neuron if spiking else neuron_of("leaky", {"beta": float(problem["beta"])}, reset="none")
        layers.append(
            Layer(
                name=name,
                inputs=inputs,
                neurons=neurons,
                neuron=each,
                selection=selection,
                spiking=spiking,
                recurrence=own,
            )
        )
    if family == "populations":
        excitatory, inhibitory, output = layers
        back = Source(name="hidden1", neurons=inhibitory.neurons)
        both = (Source(name="input", neurons=excitatory.inputs), back)
        reads = (Source(name="hidden0", neurons=excitatory.neurons),)
        output = replace(output, inputs=excitatory.neurons, sources=reads)
        layers = [replace(excitatory, sources=both), inhibitory, output]
    adam = str(problem["optimiser"]) == "adam"
    return SpikingNetwork(
        layers=tuple(layers),
        timesteps=problem["ids"].shape[0],
        batch=problem["ids"].shape[1],
        input_capacity=problem["ids"].shape[2],
        spikes="sparse",
        logit_scale=float(problem["logit_scale"]),
        optimiser=Adam(learning_rate=0.0) if adam else Sgd(learning_rate=0.0),
    )


def planes_of(workload: str, slope: float) -> Any:
    """The network of a workload with convolutions, by plain gradient descent."""
    from mimdsim.graph import Sgd
    from mimdsim.workload import load_workload, network_of

    network = network_of(load_workload(workload))
    layers = (replace(each, selection=replace(each.selection, slope=slope)) for each in network.layers)
    return replace(network, layers=tuple(layers), optimiser=Sgd(learning_rate=0.0), logit_scale=1.0)


def made_problem(
    widths: tuple[int, ...],
    timesteps: int,
    batch: int,
    activity: float,
    optimiser: str,
    family: str = "lif",
    workload: str = "",
) -> dict[str, Any]:
    """Random input ids, labels and weights, the weights scaled layer by layer until their spikes reach `activity`."""
    from mimdsim.execution import WholeTensors

    draw = np.random.default_rng(0)
    capacity = int(widths[0] * CAPACITY_SHARE)
    fired = draw.random((timesteps, batch, widths[0])) < activity
    counts = np.minimum(fired.sum(axis=2), capacity)
    ids = np.zeros((timesteps, batch, capacity), np.int32)
    fired &= fired.cumsum(axis=2) <= capacity
    ids[np.arange(capacity) < counts[..., None]] = np.nonzero(fired)[2]
    problem: dict[str, Any] = {
        **CONSTANTS,
        "optimiser": optimiser,
        "family": family,
        "workload": workload,
        "decay": 0.9 if workload else CONSTANTS["decay"],
        "widths": np.array(widths),
        "ids": ids,
        "counts": np.stack([counts, counts], axis=-1).astype(np.int32),
        "labels": draw.integers(0, widths[-1], batch).astype(np.int32),
    }
    network = network_of(problem)
    engine = WholeTensors(network)
    engine.write({"input.ids": ids, "input.counts": problem["counts"], "labels": problem["labels"]})
    normals = {}
    for index, layer in enumerate(network.layers):
        normals[index] = draw.normal(0, 1, layer.parameters[0].shape).astype(np.float32)
        for other in others_of(layer):  # weak enough to leave the share of spikes to what is read first
            of_pair = family == "populations"
            weak = draw.normal(0, INHIBITION if of_pair else 0.01, other.shape).astype(np.float32)
            problem[f"r{index}"] = -abs(weak) if of_pair else weak
            engine.write({other.name: problem[f"r{index}"]})
        problem[f"w{index}"] = scaled(engine, layer, normals[index], activity)
    for _ in range(SWEEPS if family == "populations" else 0):  # a layer changes those before it
        for index, layer in enumerate(network.layers):
            problem[f"w{index}"] = scaled(engine, layer, normals[index], activity)
    counted = engine.activity().counts
    shares = [counted[each.name].mean(axis=(0, 1)) / each.neurons for each in network.layers if each.spiking]
    problem["measured"] = np.array(shares)
    problem["dropped"] = sum(engine.activity().dropped.values())
    engine.run()
    problem |= {f"gradient{index}": each for index, each in enumerate(gradients_of(engine, network))}
    return problem


def others_of(layer: Any) -> list[Any]:
    """Weights of what it reads beside the first, or of itself; no layer here has more than one of them."""
    return [each for each in layer.parameters[1:] if each.role != "bias"]


def scaled(engine: Any, layer: Any, normal: np.ndarray, activity: float) -> np.ndarray:
    """Weights with which the layer spikes at `activity`, written to the engine."""
    if not layer.spiking:
        engine.write({f"w.{layer.name}": normal * np.float32(0.1)})
        return normal * np.float32(0.1)
    low, high = 1e-3, 10.0
    for _ in range(12):
        scale = (low * high) ** 0.5
        engine.write({f"w.{layer.name}": normal * np.float32(scale)})
        engine.run(phases=("forward",))
        share = engine.activity().counts[layer.name][..., 0].mean() / layer.neurons
        low, high = (low, scale) if share > activity else (scale, high)
    return normal * np.float32(scale)


def ours(problem: Any, way: str, threads: int) -> Callable[[], float]:
    """One training step by mimdsim; returns its loss."""
    from mimdsim.execution import WholeTensors

    assert way == "whole"
    network = network_of(problem)
    values = {f"w.{layer.name}": problem[f"w{index}"] for index, layer in enumerate(network.layers)}
    every = enumerate(network.layers)
    values |= {other.name: problem[f"r{index}"] for index, layer in every for other in others_of(layer)}
    engine = WholeTensors(network, threads)
    engine.write(values | {name: problem[key] for name, key in GIVEN.items()})

    def step() -> float:
        engine.run()
        return float(engine.read("loss").mean())

    return with_gradients(step, lambda: gradients_of(engine, network))


def gradients_of(engine: Any, network: Any) -> list[np.ndarray]:
    """Weight gradients [inputs, neurons] of the last training step."""
    from mimdsim.graph.names import gradient_of

    return [engine.read(gradient_of(f"w.{layer.name}")) for layer in network.layers]


def with_gradients(step: Callable[[], float], gradients: Callable[[], list[np.ndarray]]) -> Callable[[], float]:
    step.gradients = gradients  # type: ignore[attr-defined]
    return step


def processor() -> str:
    """Its name and the widest vectors it has."""
    try:
        about = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    entries = dict(line.split(":", 1) for line in about.partition("\n\n")[0].splitlines() if ":" in line)
    told = {name.strip(): value.strip() for name, value in entries.items()}
    flags = told.get("flags", "").split()
    widest = next((name for name in ("avx512f", "avx2", "avx", "sse2") if name in flags), "vectors unknown")
    model = ", ".join(f"{name} {told[name]}" for name in ("cpu family", "model") if name in told)
    return f"{told.get('model name', platform.machine())} ({model}), {widest}"


def child(path: str, way: str, threads: int) -> None:
    """Answers 'run' with the seconds of one training step, and an empty line with its peak memory."""
    with np.load(path) as stored:
        problem = {name: stored[name] for name in stored if not name.startswith("gradient")}
    if way in OURS:
        step = ours(problem, way, threads)
    else:
        kind = "torch" if way in DENSE else "linear" if way in LINEAR_WAYS else "sparse"
        kind = "planes" if way in PLANES_WAYS else "populations" if way in PAIR_WAYS else kind
        module = importlib.import_module(f"training_speed_{kind}")
        step = module.training_step(problem, way, threads)
    del problem  # every way has taken what it needs
    for line in sys.stdin:
        if not line.strip():
            break
        begun, processed = time.perf_counter(), time.process_time()
        loss = step()
        seconds = {"process": time.process_time() - processed, "wall": time.perf_counter() - begun, "loss": loss}
        print(json.dumps(seconds), flush=True)
    peak = peak_megabytes()
    with np.load(path) as stored:  # not before: it is no part of the peak
        right = [stored[name] for name in sorted(stored) if name.startswith("gradient")]
    made = getattr(step, "gradients", list)()
    pairs = zip(made, right[: len(made)], strict=True)
    off = max((float(abs(one - other).max() / abs(other).max()) for one, other in pairs), default=np.nan)
    print(json.dumps({"peak_mb": peak, "off": off}), flush=True)


def peak_megabytes() -> float:
    """Of this process alone: what getrusage says is at least what the process that started it had then."""
    try:
        about = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return next(int(line.split()[1]) / 1000 for line in about.splitlines() if line.startswith("VmHWM"))


class Contender:
    """A way in a process of its own."""

    def __init__(self, way: str, path: Path, threads: int, python: str):
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        command = [python, __file__, "--child", way, "--problem", str(path), "--threads", str(threads)]
        self.way = way
        self.seconds: list[dict[str, float]] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def _ask(self, line: str) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"'{self.way}' ended with code {self._process.wait()}: its message stands above")
        found: dict[str, float] = json.loads(answer)
        return found

    def take_turn(self) -> None:
        """Training steps one after another, as in training; the first is not kept."""
        time.sleep(SETTLING_SECONDS)
        self.seconds += [self._ask("run") for _ in range(STEPS_IN_TURN)][1:]

    def least(self, which: str) -> float:
        return min(one[which] for one in self.seconds)

    def by_turn(self, which: str) -> np.ndarray:
        """The least of every turn."""
        seconds = np.array([one[which] for one in self.seconds])
        return np.array(seconds.reshape(-1, STEPS_IN_TURN - 1).min(axis=1))

    def close(self) -> dict[str, float]:
        about = self._ask("")
        self._process.wait()
        return about


def compare(path: Path, ways: tuple[str, ...], threads: int, rounds: int, python: str) -> list[Contender]:
    """Every way `rounds` turns; before the first, one in which everything is allocated and compiled."""
    contenders = [Contender(way, path, threads, python if way in THEIRS else sys.executable) for way in ways]
    for turn in range(rounds + 1):
        for contender in contenders:
            contender.take_turn()
            if turn == 0:
                contender.seconds.clear()
    return contenders


def print_table(title: str, problem: dict[str, Any], contenders: list[Contender], threads: int) -> None:
    which = "process" if threads == 1 else "wall"
    shares = ", ".join(f"{spikes:.2%} ({listed:.2%} listed)" for spikes, listed in problem["measured"])
    best = [
        min((one.least(which) for one in contenders if one.way in kind), default=np.nan)
        for kind in ((*DENSE, LINEAR_WAYS[0], *PLANES_WAYS, *PAIR_WAYS[:2]), (*SPARSE, LINEAR_WAYS[1], *PAIR_WAYS[2:]))
    ]
    print(f"\n{title}, {threads} thread(s), {which} time; spikes by layer {shares}; {problem['dropped']} dropped")
    print(f"{'way':18s}{'ms':>9s}{'dense / way':>13s}{'sparse / way':>14s}{'peak MB':>10s}", end="")
    print(f"{'loss':>12s}{'off':>10s}  way / {contenders[0].way}")
    turns = contenders[0].by_turn(which)
    for one in contenders:
        taken, about = one.least(which), one.close()
        ratios = f"{best[0] / taken:13.2f}{best[1] / taken:14.2f}"
        rest = f"{about['peak_mb']:10.0f}{one.seconds[-1]['loss']:12.6f}{about['off']:10.1e}"
        paired = one.by_turn(which) / turns  # neighbours in time, which other processes slow down alike
        spread = f"{np.median(paired):8.2f} ({paired.min():.2f} to {paired.max():.2f})"
        print(f"{one.way:18s}{taken * 1e3:9.1f}{ratios}{rest}{spread}", flush=True)


def print_scaling(folder: Path, rounds: int) -> None:
    """Least process times of both of our ways against activity, layers, timesteps and batch, one thing at a time.

    line: the share of the first time that is fixed, in a straight line through the points, and how far off the line
    the farthest point is; exponent: the slope between logarithms, 1 where nothing is fixed, below 1 where something is.
    """
    plain: dict[str, float] = {"width": 768, "layers": 2, "timesteps": 30, "batch": 16, "activity": 0.01}
    print(f"\nfrom 1024 inputs and {plain}")
    print(f"{'way':10s}{'times':>12s}" + "".join(f"{f'x {factor}, ms':>11s}" for factor in FACTORS), end="")
    print(f"{'exponent':>10s}{'fixed':>8s}{'off line':>10s}")
    first = scaling_case(folder, plain, rounds)
    for name in ("activity", "layers", "timesteps", "batch"):
        cases = [first] + [scaling_case(folder, {**plain, name: plain[name] * more}, rounds) for more in FACTORS[1:]]
        for way in OURS:
            seconds = np.array([case[way] for case in cases])
            amounts = np.array([case["activity"] for case in cases]) if name == "activity" else np.array(FACTORS)
            slope, fixed = np.polyfit(amounts, seconds, 1)
            off = np.abs((fixed + slope * amounts) / seconds - 1).max()
            exponent = np.polyfit(np.log(amounts), np.log(seconds), 1)[0]
            row = "".join(f"{each * 1e3:11.2f}" for each in seconds)
            print(f"{way:10s}{name:>12s}{row}{exponent:10.2f}{fixed / seconds[0]:8.0%}{off:10.1%}", flush=True)


def scaling_case(folder: Path, case: dict[str, float], rounds: int) -> dict[str, float]:
    """Seconds by way, and the spikes per neuron and timestep that the network really has."""
    widths = (1024,) + (int(case["width"]),) * int(case["layers"])
    problem = made_problem(widths, int(case["timesteps"]), int(case["batch"]), case["activity"], "sgd")
    path = folder / "scaling.npz"
    np.savez(path, **problem)
    found = compare(path, OURS, 1, rounds, sys.executable)
    least = {one.way: one.least("process") for one in found}
    for one in found:
        one.close()
    return {**least, "activity": float(problem["measured"][:, 0].mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--problem", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--activity", type=float, nargs="+", default=[0.01, 0.02, 0.05])
    parser.add_argument("--network", nargs="+", choices=(*NETWORKS, *PLANES))
    parser.add_argument("--ways", nargs="+", choices=(*OURS, *THEIRS))
    parser.add_argument("--family", choices=FAMILIES, default="lif")
    parser.add_argument("--optimiser", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--scaling", action="store_true", help="instead: time against activity, layers and the like")
    given = parser.parse_args()
    if given.child:
        child(given.problem, given.child, given.threads)
        return
    with tempfile.TemporaryDirectory() as folder:
        if given.scaling:
            print_scaling(Path(folder), given.rounds)
            return
        print(processor())
        packages = "import torch, snntorch, spikingjelly"
        if subprocess.run([given.torch_python, "-c", packages], capture_output=True, check=False).returncode:
            raise SystemExit(MISSING)
        theirs = {"lif": (*DENSE, *SPARSE), "planes": PLANES_WAYS, "populations": PAIR_WAYS}.get(
            given.family, LINEAR_WAYS
        )
        ways = tuple(given.ways or (*OURS, *theirs))
        if not (shutil.which("g++") or shutil.which("clang++")):
            print("no C++ compiler: torch.compile's ways are left out")
            ways = tuple(way for way in ways if "compiled" not in way)
        of_planes = given.family == "planes"
        for name in given.network or (PLANES if of_planes else NETWORKS):
            for activity in given.activity:
                if of_planes:
                    network = planes_of(name, CONSTANTS["slope"])
                    widths, timesteps, batch = (network.inputs, network.classes), network.timesteps, network.batch
                else:
                    widths, timesteps, batch = NETWORKS[name]
                kind = given.family, name if of_planes else ""
                problem = made_problem(widths, timesteps, batch, activity, given.optimiser, *kind)
                path = Path(folder) / "problem.npz"
                np.savez(path, **problem)
                contenders = compare(path, ways, given.threads, given.rounds, given.torch_python)
                print_table(f"{name}, {given.family}, {activity:.0%}", problem, contenders, given.threads)


if __name__ == "__main__":
    main()
