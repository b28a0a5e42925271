"""What half precision does to loss, accuracy, memory and time: a workload in float32, in half, with float32 moments.

Values are rounded to half whenever a vertex writes them; sums inside a vertex stay in float32 (execution/execute.py).
Usage: python benchmarks/half_precision.py [WORKLOAD] [--machine bow] [--seeds N] [--set key=value ...]
"""

from __future__ import annotations

import argparse

import numpy as np

from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import simulate
from mimdsim.pipeline.overrides import parse_value
from mimdsim.workload import load_workload

FORMATS = {
    "float32": {},
    "half, moments half": {"mapping.value_bytes": 2},
    "half, moments float32": {"mapping.value_bytes": 2, "mapping.moment_bytes": 4},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="?", default="digits")
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], dest="changes")
    given = parser.parse_args()
    changes = {key: parse_value(value) for key, _, value in (item.partition("=") for item in given.changes)}
    machine = load_machine(given.machine)
    assert isinstance(machine, MimdMachine)
    print("| format | loss of the last epoch | test accuracy | cycles | ms | fullest tile, KiB |")
    print("|---|---|---|---|---|---|")
    for name, formats in FORMATS.items():
        losses, accuracies = [], []
        for seed in range(1, given.seeds + 1):
            workload = load_workload(given.workload, {**changes, **formats, "seed": seed})
            profile = simulate(workload, machine).profile
            assert profile.tiled is not None
            assert profile.training is not None
            per_epoch = len(profile.training.loss) // max(1, len(profile.training.test_accuracy_by_epoch))
            losses.append(float(np.mean(profile.training.loss[-per_epoch:])))
            accuracies.append(100 * (profile.training.test_accuracy or 0.0))
        tiled = profile.tiled
        cells = (
            name,
            f"{np.mean(losses):.3f}",
            f"{np.mean(accuracies):.1f} % ({min(accuracies):.1f} to {max(accuracies):.1f})",
            f"{tiled.cycles:,}",
            f"{1e3 * tiled.seconds_per_training_step:.3f}",
            f"{tiled.memory.peak_bytes / 1024:.1f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
