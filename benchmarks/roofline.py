"""Where a training step on whole tensors spends its time, beside kernels written by hand in C (`limit_kernels.c`).

Every kernel of every layer runs on the lists of a real training step, ours and C's in turn; C's is compiled here with
the system's compiler for this processor and checked against ours. Prints, per kernel, ms of a training step, billions
of multiply-adds (of additions, for sums of rows) a second, bytes that pass between registers and caches a second (a
row of weights counts every time it is read), and how much longer ours takes; then whole training steps over the sum
of all C kernels. Without a C compiler, ours alone. One thread, process time, least of all.
Usage: python benchmarks/roofline.py [--network 1472-1472-1472-1472] [--activity 0.01] [--rounds 5]
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import training_speed as speed

FLAGS = ("-O3", "-march=native", "-mprefer-vector-width=512", "-ffp-contract=fast", "-fPIC", "-shared")
SOURCE = Path(__file__).with_name("limit_kernels.c")
ROW = 256  # bytes of a row of a block
Work = Callable[[], object]


@dataclass(frozen=True)
class Kernel:
    """One kernel of one layer: ours, C's, multiply-adds, bytes, and whether both have made the same."""

    name: str
    ours: Work
    limit: Work
    operations: float
    bytes: float
    agrees: Callable[[], bool]


def compiled_limit(folder: Path) -> ctypes.CDLL | None:
    """The C kernels for this processor; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    target = folder / "limit.so"
    done = subprocess.run([compiler, *FLAGS, "-o", target, SOURCE], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{compiler} does not compile {SOURCE.name} here: {done.stderr.strip().splitlines()[-1]}")
        return None
    library = ctypes.CDLL(str(target))
    library.forward_block.restype = ctypes.c_int64
    return library


def passed(*given: Any) -> list[Any]:
    """Arrays as pointers, whole numbers as int64, others as float."""
    return [
        one.ctypes.data_as(ctypes.c_void_p)
        if isinstance(one, np.ndarray)
        else ctypes.c_int64(one)
        if isinstance(one, int)
        else ctypes.c_float(one)
        for one in given
    ]


def kernels_of(engine: Any, number: int, c: Any) -> list[Kernel]:
    """The kernels of a layer of the published neuron after a training step of `engine`."""
    from mimdsim.execution.execute import aligned
    from mimdsim.graph.linear_neurons import constants_of
    from mimdsim.numerics.fused import whole_tensors
    from mimdsim.numerics.fused.vectors import WIDTH
    from mimdsim.numerics.optimisers import sgd

    layer = engine._layers[number]
    source = engine._layers[number - 1].spikes if number else engine._input
    w, gradient, entries = layer.w, layer.tensors["weights"].gradient, layer._entries
    chosen, neuron, made = layer.layer.selection, constants_of(layer.layer.neuron), layer.spikes
    threshold, second = np.float32(chosen.threshold), np.float32(chosen.second_threshold)
    constants = neuron.decay, neuron.scale, threshold, second
    blocks, inputs, _ = w.shape
    columns, rows = layer._by_id(layer.lag, source)
    g = np.random.default_rng(0).normal(size=int(made.starts[-1])).astype(np.float32)
    places, batch, lag = layer.places, layer.batch, layer.lag
    q, other_q = (aligned((layer.timesteps + 1, batch * WIDTH)) for _ in range(2))
    other_w, other_gradient = aligned(w.shape), aligned(w.shape)
    v, numbers = aligned((batch * WIDTH,)), np.array(constants, np.float32)
    own = [np.empty(places * WIDTH, each.dtype) for each in entries[:3]]
    ends, again = entries[4], tuple(np.empty_like(each) for each in entries)
    reading = np.arange(places) >= lag
    spikes = float(source.trues[: places - lag].sum()) if lag else float(source.trues.sum())
    listed = float(source.starts[places - lag])
    wanted, other_wanted = (np.zeros(int(source.starts[-1]), np.float32) for _ in range(2))

    def limit_forward() -> None:
        for block in range(blocks):
            real = min(WIDTH, layer.layer.neurons - block * WIDTH)
            lists = source.starts, source.trues, source.ids
            c.forward_block(*passed(places, batch, lag, w[block], real, *lists, numbers, v, *own))

    def over_blocks(work: Callable[[int], object]) -> Work:
        return lambda: [work(block) for block in range(blocks)]

    def back(block: int) -> None:
        whole_tensors.adjoint(block, batch, True, neuron.decay, neuron.scale, entries, g, q)

    def limit_back(block: int) -> None:
        known = [each[block] for each in entries]
        given = layer.timesteps, batch, float(neuron.decay), float(neuron.scale), *known, g, other_q
        c.adjoint_block(*passed(*given))

    flat = q[:-1].reshape(-1)
    every = np.array([0]), np.array([inputs * WIDTH])
    held = w.reshape(blocks, -1), gradient.reshape(blocks, -1)
    given = w[:1], source.ids, source.starts, q[None]
    found = [
        Kernel(
            "sums of rows, neurons, lists",
            lambda: whole_tensors.forward_blocks(
                0, blocks, batch, lag, w, layer.layer.neurons, source.arrays, constants, again
            ),
            limit_forward,
            spikes * blocks * WIDTH,
            spikes * blocks * ROW + 2.0 * reading.size * blocks * ROW,
            lambda: np.array_equal(own[0][: ends[-1, -1]], again[0][-1][: ends[-1, -1]]),
        ),
        Kernel(
            "adjoints of a block",
            over_blocks(back),
            over_blocks(limit_back),
            float(places * blocks * WIDTH),
            2.0 * places * blocks * ROW,
            lambda: np.allclose(q, other_q, rtol=1e-4, atol=1e-6),
        ),
        Kernel(
            "sums of adjoints (weight gradient)",
            over_blocks(
                lambda block: whole_tensors.weight_gradient_block(columns, rows, flat, gradient[block].reshape(-1))
            ),
            over_blocks(lambda block: c.weight_gradient(*passed(inputs, columns, rows, q, other_gradient[block]))),
            spikes * blocks * WIDTH,
            spikes * blocks * ROW + inputs * blocks * ROW,
            lambda: np.allclose(gradient, other_gradient, rtol=1e-4, atol=1e-4),
        ),
        Kernel(
            "update",
            lambda: sgd(*held, *every, np.float32(0)),
            lambda: c.update(*passed(w.size, 0.0, gradient, other_w)),
            float(w.size),
            3.0 * w.nbytes,
            lambda: True,
        ),
    ]
    if number:
        input_gradient = Kernel(
            "sampled products (input gradient)",
            over_blocks(
                lambda block: whole_tensors.input_gradient_places(
                    0, places, lag, 0, w[block : block + 1], *given[1:], wanted
                )
            ),
            over_blocks(
                lambda block: c.input_gradient(
                    *passed(places, lag, w[block], source.ids, source.starts, q, other_wanted)
                )
            ),
            listed * blocks * WIDTH,
            listed * blocks * ROW,
            lambda: np.allclose(wanted, other_wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max()),
        )
        found.insert(3, input_gradient)
    return found


def least(work: Work) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", choices=speed.NETWORKS, default="1472-1472-1472-1472")
    parser.add_argument("--activity", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    from mimdsim.execution import WholeTensors

    widths, timesteps, batch = speed.NETWORKS[given.network]
    problem = speed.made_problem(widths, timesteps, batch, given.activity, "sgd")
    network = speed.network_of(problem)
    steps = {way: speed.ours(problem, way, 1) for way in speed.OURS}
    engine = WholeTensors(network)
    values = {f"w.{layer.name}": problem[f"w{index}"] for index, layer in enumerate(network.layers)}
    engine.write({**values, **{name: problem[key] for name, key in speed.GIVEN.items()}})
    engine.run()
    with tempfile.TemporaryDirectory() as folder:
        c = compiled_limit(Path(folder))
        layers = range(len(network.layers))
        kernels = [kernel for number in layers for kernel in kernels_of(engine, number, c)]
        seconds: dict[tuple[int, bool], float] = defaultdict(lambda: np.inf)
        taken: dict[str, float] = defaultdict(lambda: np.inf)
        for _ in range(given.rounds):
            for index, kernel in enumerate(kernels):
                seconds[index, True] = min(seconds[index, True], least(kernel.ours))
                if c is not None:
                    seconds[index, False] = min(seconds[index, False], least(kernel.limit))
            for way, step in steps.items():
                taken[way] = min(taken[way], least(step), least(step))
        wrong = {kernel.name for kernel in kernels if c is not None and not kernel.agrees()}
    print(f"{speed.processor()}\n{given.network}, {given.activity:.0%}, one thread, process time")
    if c is None:
        print("no C compiler: no limit to compare with")
    print(f"{'kernel':38s}{'ms':>8s}{'G op/s':>8s}{'GB/s':>8s}{'C, ms':>8s}{'G op/s':>8s}{'GB/s':>8s}{'ours / C':>10s}")
    total: Counter[str] = Counter()
    for name in dict.fromkeys(kernel.name for kernel in kernels):
        same = [index for index, kernel in enumerate(kernels) if kernel.name == name]
        work, moved = (sum(getattr(kernels[index], what) for index in same) / 1e9 for what in ("operations", "bytes"))
        own, limit = (sum(seconds[index, ours] for index in same) for ours in (True, False))
        total["ours"] += own
        total["limit"] += limit
        row = "".join(f"{each * 1e3:8.1f}{work / each:8.1f}{moved / each:8.1f}" for each in (own, limit))
        print(f"{name:38s}{row}{own / limit:10.2f}" + ("  DIFFERS" if name in wrong else ""))
    own, limit = total["ours"], total["limit"]
    print(f"{'all':38s}{own * 1e3:8.1f}{'':16s}{limit * 1e3:8.1f}{'':16s}{own / limit:10.2f}")
    for way, each in taken.items():
        print(f"{'a training step, ' + way:38s}{each * 1e3:8.1f}{'':40s}{each / total['limit']:10.2f}")


if __name__ == "__main__":
    main()
