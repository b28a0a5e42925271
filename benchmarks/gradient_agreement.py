"""How well do sparse gradients agree with dense ones? The cosine between them, by layer and capacity.

One batch through the compiled program, at first and after some epochs of sparse training: lists of 1 to 10 % of the
neurons with two thresholds against lists of all neurons, which give the gradient of dense spikes. Spikes of the later
layers differ as well where earlier ones drop some. Usage: python benchmarks/gradient_agreement.py [WORKLOAD]
[--epochs N] [--set key=value ...]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from mimdsim.compiler import compile_graph
from mimdsim.execution import Executor, initial_weights
from mimdsim.execution.trainer import load_batch
from mimdsim.graph import Adam, training_graph
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, train_workload
from mimdsim.pipeline.overrides import parse_value
from mimdsim.workload import SpikeDataset, Workload, load_workload, network_of, open_dataset

SHARES = (0.01, 0.02, 0.05, 0.1)
DENSE = {"network.capacity": (), "network.activity": 1.0, "network.second_threshold": -100.0}


def gradients(workload: Workload, weights: dict[str, np.ndarray], data: SpikeDataset) -> dict[str, np.ndarray]:
    """Gradient of every layer's weights for the first batch, flat."""
    network = network_of(workload)
    machine = load_machine("bow")
    assert isinstance(machine, MimdMachine)
    program = compile_graph(training_graph(network), network, machine, workload.mapping, must_fit=False).program
    executor = Executor(program)
    executor.write(weights)
    load_batch(executor, data, np.arange(network.batch))
    if isinstance(network.optimiser, Adam):
        executor.write({"training_step": np.array([1])})
    executor.run(phases=("forward", "loss", "backward"))
    return {layer.name: executor.arrays[f"gradient.{layer.name}"].ravel().astype(float) for layer in network.layers}


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """0 where one of them is nothing."""
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / lengths) if lengths else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="?", default="digits")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], dest="changes")
    given = parser.parse_args()
    changes: dict[str, Any] = {key: parse_value(value) for key, _, value in (c.partition("=") for c in given.changes)}
    changes |= {"training.schedule": "constant", "training.epochs": given.epochs}
    workload = load_workload(given.workload, changes)
    data = open_dataset(workload.data, workload.seed)
    recipe, machine = workload.training, load_machine("bow")
    assert isinstance(machine, MimdMachine)
    first = initial_weights(network_of(workload), workload.seed, recipe.weight_scale, recipe.weight_offset)
    learnt = train_workload(workload, compile_workload(workload, machine, must_fit=False), data).weights
    names = list(gradients(workload, first, data[0]))
    print(f"| weights | capacity | {' | '.join(names)} |")
    print("|---" * (2 + len(names)) + "|")
    for when, weights in (("at first", first), (f"after {given.epochs} epochs", learnt)):
        dense = gradients(load_workload(given.workload, changes | DENSE), weights, data[0])
        for share in SHARES:
            small = {
                "network.capacity": (),
                "network.activity": share,
                "network.output_capacity": dense_classes(workload),
            }
            sparse = gradients(load_workload(given.workload, changes | small), weights, data[0])
            agreement = " | ".join(f"{cosine(sparse[name], dense[name]):.3f}" for name in names)
            print(f"| {when} | {share:.0%} | {agreement} |", flush=True)


def dense_classes(workload: Workload) -> int:
    """All neurons of the output layer, which a share of the classes would not hold."""
    return network_of(workload).classes


if __name__ == "__main__":
    main()
