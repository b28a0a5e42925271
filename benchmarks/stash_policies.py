"""Memory of the fullest tile and cycles of a training step under stash policies: the tables of docs/stash.md.

One training step is executed with everything kept; all policies are timed with its spikes, which are the same.
N-MNIST's network reads random ids of the benchmark's activity here, so that no download is needed.
"""

from __future__ import annotations

from typing import Any

from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, retime
from mimdsim.pipeline.pipeline import open_data, train_workload
from mimdsim.program import RecordedActivity
from mimdsim.workload import load_workload

ONE_STEP = {"data.timesteps": 100, "training.max_training_steps": 1, "training.evaluate": "never"}
RANDOM = {
    "data.source": "random", "data.path": "", "data.inputs": 2312, "data.classes": 10, "data.activity": 0.005,
    "data.train_samples": 96, "data.test_samples": 10,
}  # fmt: skip
SYNAPTIC = {"network.neuron": "synaptic", "network.reset": "zero", "network.reset_by": "emission"}
SYNAPTIC |= {"network.reset_gradient": "full"}
TABLES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("digits", "digits", {}),
    ("nmnist-2", "nmnist-2", RANDOM),
    ("digits with synaptic neurons, full reset gradient, by emission", "digits", SYNAPTIC),
)
POLICIES = ("everything", "carry", "every:5", "every:10", "every:20")


def main() -> None:
    """Print one table per network."""
    machine = load_machine("mk2")
    assert isinstance(machine, MimdMachine)
    for title, name, changes in TABLES:
        print(f"\n{title}\n\n| policy | peak bytes | states and potentials | code and vertices | cycles |")
        print("|---|---|---|---|---|")
        activity: RecordedActivity | None = None
        whole = 0
        for policy in POLICIES:
            workload = load_workload(name, {**ONE_STEP, **changes, "mapping.stash": policy})
            made = compile_workload(workload, machine, must_fit=False)
            if activity is None:
                activity = train_workload(workload, made, open_data(workload)).activity
            held = dict(
                zip(made.memory.categories, made.memory.by_category[:, made.memory.peak_tile].tolist(), strict=True)
            )
            cycles = retime(made, machine, activity).cycles
            whole = whole or cycles
            print(
                f'| "{policy}" | {made.memory.peak_bytes:,} | {held["neuron states"]:,} | '
                f"{held['code'] + held['vertices']:,} | {cycles:,} ({cycles / whole - 1:+.1%}) |",
                flush=True,
            )


if __name__ == "__main__":
    main()
