"""Accuracy on held-out digits: sparse with two thresholds on simulated tiles against the same network trained dense.

Prints one line per seed and the means. Dense: 0/1 spikes and the surrogate everywhere, run by the plain interpreter.
Usage: python benchmarks/digits_accuracy.py [WORKLOAD] [--seeds N] [--set key=value ...]
"""

from __future__ import annotations

import argparse

import numpy as np

from mimdsim.base.rng import stream
from mimdsim.compiler import compile_graph
from mimdsim.execution import TrainingPlan, initial_weights, train
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline.overrides import parse_value
from mimdsim.workload import MappingOptions, SpikeDataset, Workload, load_workload, network_of, open_dataset


def dense_batch(data: SpikeDataset, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32[timesteps, batch, inputs] of 0 and 1, and labels."""
    ids, counts, labels = data.batch(indices)
    spikes = np.zeros((*counts.shape, data.inputs), np.float32)
    listed = np.arange(ids.shape[2]) < counts[..., None]
    t, b, _ = np.nonzero(listed)
    spikes[t, b, ids[listed]] = 1
    return spikes, labels


def train_dense(
    network: SpikingNetwork, workload: Workload, train_data: SpikeDataset, test_data: SpikeDataset
) -> float:
    """Held-out accuracy of the dense network, trained by interpreting its training graph."""
    graph = training_graph(network)
    recipe = workload.training
    weights = initial_weights(network, workload.seed, recipe.weight_scale, recipe.weight_offset)
    values: dict[str, np.ndarray] = dict(weights)
    for name, w in weights.items():
        for moment in ("moment1", "moment2"):
            values[name.replace("w.", f"{moment}.")] = np.zeros_like(w)
    samples, batch, number = len(train_data.labels), network.batch, 0
    for epoch in range(recipe.epochs):
        order = stream(workload.seed, "order", epoch).permutation(samples)
        for first in range(0, samples - batch + 1, batch):
            number += 1
            spikes, labels = dense_batch(train_data, order[first : first + batch])
            given = {"input": spikes, "labels": labels, "training_step": number, **values}
            made = interpret(graph, {name: given[name] for name in graph.inputs})
            for name in weights:
                values[name] = made[f"next.{name}"]
                values[name.replace("w.", "moment1.")] = made.get(f"next.{name}.m", values[name])
                values[name.replace("w.", "moment2.")] = made.get(f"next.{name}.v", values[name])
    right = 0
    for first in range(0, len(test_data.labels), batch):
        indices = np.arange(first, min(first + batch, len(test_data.labels)))
        spikes, labels = dense_batch(test_data, np.resize(indices, batch))
        given = {"input": spikes, "labels": labels, "training_step": 1, **values}
        guess = interpret(graph, {name: given[name] for name in graph.inputs})["counts"].argmax(axis=1)
        right += int((guess == labels)[: len(indices)].sum())
    return right / len(test_data.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", nargs="?", default="digits")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], dest="changes")
    given = parser.parse_args()
    changes = {key: parse_value(value) for key, _, value in (item.partition("=") for item in given.changes)}
    machine = load_machine("bow")
    assert isinstance(machine, MimdMachine)
    results = []
    for seed in range(1, given.seeds + 1):
        workload = load_workload(given.workload, {**changes, "seed": seed})
        network = network_of(workload)
        train_data, test_data = open_dataset(workload.data, workload.seed)
        program = compile_graph(training_graph(network), network, machine, MappingOptions()).program
        recipe = workload.training
        log = train(
            program,
            network,
            train_data,
            test_data,
            TrainingPlan(epochs=recipe.epochs, seed=workload.seed),
            weights=initial_weights(network, workload.seed, recipe.weight_scale, recipe.weight_offset),
        )
        dense = network_of(load_workload(given.workload, {**changes, "seed": seed, "network.spikes": "dense"}))
        results.append((log.test_accuracy_by_epoch[-1], train_dense(dense, workload, train_data, test_data)))
        print(f"seed {seed}: sparse {results[-1][0]:.4f}  dense {results[-1][1]:.4f}", flush=True)
    sparse, full = np.mean(results, axis=0)
    gap = 100 * (full - sparse)
    print(f"mean over {len(results)}: sparse {sparse:.4f}  dense {full:.4f}  difference {gap:+.2f} points")


if __name__ == "__main__":
    main()
