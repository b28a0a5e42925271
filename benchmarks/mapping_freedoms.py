"""What each freedom of a mapping brings alone, on Bow: cycles of a training step against the published mapping.

Every mapping is compiled and timed in full with lists filled to half of their capacity. A freedom that has a number
(parts of the batch, of the fan-in, of the neurons, replicas) is tried at a few values for all layers alike; the best
one that fits is printed, so each figure is a lower bound of what the freedom can do.
Usage: python benchmarks/mapping_freedoms.py [--workload digits ...] [--machine bow] [--fill 0.5]
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from mimdsim.base.errors import DoesNotFit
from mimdsim.graph import SpikingNetwork
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, memory_profile
from mimdsim.timing import time_program
from mimdsim.workload import Workload, filled_activity, load_workload
from mimdsim.workload.description.mapping import Rule, Split

WORKLOADS = ("digits", "nmnist-2-random", "shd-3")
COPIES = (2, 3, 4, 6, 8, 12, 16, 24)
POWERS = (0.0, 0.5, 1.0)  # of the fan-in, in what a neuron weighs where tiles are shared among layers


def parts_of(network: SpikingNetwork, tiles: int, power: float) -> list[int]:
    """Parts of the neurons of each layer, in proportion to neurons and a power of their inputs."""
    weights = np.array([layer.neurons * layer.inputs**power for layer in network.layers])
    shares = np.maximum(1, (tiles * weights / weights.sum()).astype(int))
    return [min(int(share), layer.neurons) for share, layer in zip(shares, network.layers, strict=True)]


def splits(network: SpikingNetwork, tiles: int, power: float, **parts: int) -> dict[str, Split]:
    """The same parts of everything but neurons for all layers, on so many tiles in all."""
    grid = parts.get("batch", 1) * parts.get("inputs", 1)
    neurons = parts_of(network, max(len(network.layers), tiles // grid), power)
    limits = {"inputs": lambda layer: layer.inputs}
    return {
        layer.name: Split(
            neurons=each,
            **{key: min(value, limits[key](layer)) if key in limits else value for key, value in parts.items()},
        )
        for layer, each in zip(network.layers, neurons, strict=True)
    }


def freedoms(network: SpikingNetwork, tiles: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(name, mappings to try)."""
    published = {layer.name: Split() for layer in network.layers}
    yield "uneven neurons", [{"split": splits(network, tiles, power)} for power in POWERS]
    yield (
        "batch parts",
        [{"split": splits(network, tiles, power, batch=copies)} for copies in COPIES for power in POWERS],
    )
    yield "fan-in parts", [{"split": splits(network, tiles, 0.0, inputs=parts)} for parts in (2, 3, 4)]
    alike = [
        {name: one.model_copy(update={"replicas": count}) for name, one in published.items()} for count in (1, 2, 3)
    ]
    yield "replicas", [{"split": each} for each in alike]
    for rule in get_args(Rule):
        yield rule, [{"program": (rule,)}]
    yield "all rules", [{"program": "best"}]
    for rule in get_args(Rule):
        yield f"all rules but {rule}", [{"program": tuple(each for each in get_args(Rule) if each != rule)}]
    yield (
        "batch parts and replicas",
        [{"split": splits(network, tiles, power, batch=copies, replicas=1)} for copies in COPIES for power in POWERS],
    )
    yield (
        "everything",
        [
            {"split": splits(network, tiles, power, batch=copies, replicas=count), "program": "best"}
            for copies in COPIES
            for power in POWERS
            for count in (1, 2)
        ],
    )


def cycles_of(workload: Workload, machine: MimdMachine, fill: float, changes: dict[str, Any]) -> int | None:
    """Cycles of a training step; None if it does not fit."""
    mapping = workload.mapping.model_copy(update=changes)
    try:
        made = compile_workload(workload.model_copy(update={"mapping": mapping}), machine)
    except DoesNotFit:
        return None
    activity = filled_activity(made.network, fill)
    memory = memory_profile(made.program, made.memory, machine)
    return time_program(made.program, machine, activity, memory).cycles


def described(changes: dict[str, Any]) -> str:
    """Which mapping of those tried."""
    split = changes.get("split", {})
    return ", ".join(
        f"{name} {one.batch}x{one.inputs}x{one.neurons}" + (f" r{one.replicas}" if one.replicas else "")
        for name, one in split.items()
        if one != Split()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--fill", type=float, default=0.5)
    given = parser.parse_args()
    machine = load_machine(given.machine)
    assert isinstance(machine, MimdMachine)
    print(f"{machine.name}, lists filled to {given.fill:.0%}; {platform.processor() or platform.machine()}")
    for name in given.workload:
        workload = load_workload(name)
        published = cycles_of(workload, machine, given.fill, {})
        assert published is not None
        network = compile_workload(workload, machine).network
        print(
            f"\n{name}: published {published:,} cycles\n{'freedom':26s}{'cycles':>12s}{'times':>8s}  parts", flush=True
        )
        for freedom, mappings in freedoms(network, machine.chip.tiles - workload.mapping.reserved_tiles):
            timed = [(cycles_of(workload, machine, given.fill, changes), changes) for changes in mappings]
            fitting = [(cycles, changes) for cycles, changes in timed if cycles is not None]
            if not fitting:
                print(f"{freedom:26s}{'does not fit':>12s}")
                continue
            cycles, changes = min(fitting, key=lambda pair: pair[0])
            print(f"{freedom:26s}{cycles:12,}{published / cycles:8.2f}  {described(changes)}", flush=True)


if __name__ == "__main__":
    main()
