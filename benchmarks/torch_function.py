"""Accuracy of a workload trained by `mimdsim.run` and by `mimdsim.torch_function` with PyTorch's Adam, seed by seed.

Both start from the same weights and see the same number of batches, in orders of their own.
Usage: python benchmarks/torch_function.py [--workload digits] [--machine bow] [--seeds 5]   (needs PyTorch)
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
import torch

import mimdsim
from mimdsim.base.rng import stream
from mimdsim.frameworks import torch_function
from mimdsim.workload import Workload, open_dataset


def trained_by_torch(workload: Workload, machine: str) -> float:
    """Share of the test samples that are right after the workload's epochs."""
    train, test = open_dataset(workload.data, workload.seed, lambda *_: None)
    program = torch_function(workload, machine)
    scale, batch = program.network.logit_scale, program.network.batch
    optimiser = torch.optim.Adam(program.parameters(), lr=workload.training.learning_rate)
    for epoch in range(workload.training.epochs):
        order = stream(workload.seed, "order", epoch).permutation(len(train.labels))
        for first in range(0, len(order) - batch + 1, batch):
            spikes, labels = batch_of(program, train, order[first : first + batch])
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(scale * program(spikes), labels).backward()
            optimiser.step()
    right = 0
    with torch.no_grad():
        for first in range(0, len(test.labels), batch):
            spikes, labels = batch_of(program, test, np.arange(first, min(first + batch, len(test.labels))))
            right += int((program(spikes).argmax(1) == labels).sum())
    return right / len(test.labels)


def batch_of(program: torch.nn.Module, data: object, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Spikes [timesteps, samples, inputs] and labels."""
    ids, counts, labels = data.batch(indices)  # type: ignore[attr-defined]
    spikes = torch.zeros((*counts.shape, program.network.inputs))
    t, sample, slot = np.nonzero(np.arange(ids.shape[2]) < counts[..., None])
    spikes[t, sample, ids[t, sample, slot]] = 1.0
    return spikes, torch.from_numpy(labels.astype(np.int64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="digits")
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    found: dict[str, list[float]] = {"run": [], "torch_function": []}
    for seed in range(1, options.seeds + 1):
        workload = mimdsim.load_workload(options.workload, {"seed": seed})
        found["run"].append(mimdsim.run(workload, options.machine).profile.training.test_accuracy)
        found["torch_function"].append(trained_by_torch(workload, options.machine))
        print(f"seed {seed}: " + ", ".join(f"{name} {values[-1]:.1%}" for name, values in found.items()), flush=True)
    for name, values in found.items():
        print(f"{name}: mean {statistics.mean(values):.2%}, {min(values):.2%} to {max(values):.2%}")


if __name__ == "__main__":
    main()
