"""How long simulating takes: compile, execute and time one training step of 2312-1466-1466-10 on 1,472 tiles.

Prints seconds, peak memory, and the ratio of executing the compiled program to the dense matrix products of the same
training step in numpy on this machine. Usage: python benchmarks/nmnist_training_step.py [WORKLOAD]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np

from mimdsim.execution import Executor, initial_weights
from mimdsim.execution.trainer import load_batch
from mimdsim.graph import SpikingNetwork
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, retime
from mimdsim.program import RecordedActivity
from mimdsim.workload import load_workload, open_dataset


def best(work: Callable[[], object], rounds: int) -> float:
    """Shortest of several runs, in seconds: the machine is noisy upwards only."""
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def dense_products(network: SpikingNetwork) -> Callable[[], None]:
    """The matrix products a dense training step needs, all timesteps at once (the fastest way on a processor)."""
    rows = network.timesteps * network.batch
    pairs = []
    for layer in network.layers:
        spikes = (np.random.default_rng(0).random((rows, layer.inputs)) < 0.02).astype(np.float32)
        pairs.append((spikes, np.ones((layer.inputs, layer.neurons), np.float32)))

    def run() -> None:
        for index, (spikes, weights) in enumerate(pairs):
            current = spikes @ weights
            spikes.T @ current
            if index:
                current @ weights.T

    return run


def synaptic_events(network: SpikingNetwork, activity: RecordedActivity) -> int:
    """Weights touched by listed ids: true spikes forward and in weight gradients, all listed ids in input gradients."""
    total, source = 0, "input"
    for layer in network.layers:
        counts = activity.counts[source].sum(axis=(0, 1), dtype=np.int64)
        total += layer.neurons * int(2 * counts[0] + (counts[1] if source != "input" else 0))
        source = layer.name
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="?", default="nmnist-2-random")
    workload = load_workload(parser.parse_args().workload)
    bow, mk2 = load_machine("bow"), load_machine("mk2")
    assert isinstance(bow, MimdMachine)
    assert isinstance(mk2, MimdMachine)
    compiled = compile_workload(workload, bow)
    network = compiled.network
    compile_seconds = best(lambda: compile_workload(workload, bow), 3)
    data, _ = open_dataset(workload.data, workload.seed)
    executor = Executor(compiled.program)
    executor.write(initial_weights(network, workload.seed, 4.0, 0.001))
    executor.write({"training_step": np.array([1])})
    load_batch(executor, data, np.arange(network.batch))
    executor.run()  # compiles the numerics when their cache is cold
    execute_seconds = best(executor.run, 3)
    activity = executor.activity()
    begun = time.perf_counter()
    profile = retime(compiled, bow, activity)
    first_seconds = time.perf_counter() - begun
    again_seconds = best(lambda: retime(compiled, mk2, activity), 5)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    dense_seconds = best(dense_products(network), 2)
    events = synaptic_events(network, activity)
    ratio = dense_seconds / execute_seconds
    simulated = 1e3 * profile.seconds_per_training_step
    print(f"{workload.name}: {network.title}, batch {network.batch}, {network.timesteps} timesteps")
    print(f"compile                     {compile_seconds:8.3f} s")
    rate = events / execute_seconds / 1e6
    print(f"execute one training step   {execute_seconds:8.3f} s   {rate:.0f} M synaptic events/s")
    print(f"time it, first              {first_seconds:8.3f} s")
    print(f"time it on another machine  {1e3 * again_seconds:8.2f} ms")
    print(f"peak memory                 {peak:8.2f} GiB")
    print(f"dense products in numpy     {dense_seconds:8.3f} s   ratio dense/compiled {ratio:.2f}")
    print(f"simulated                   {simulated:8.3f} ms per training step on {bow.title}")


if __name__ == "__main__":
    main()
