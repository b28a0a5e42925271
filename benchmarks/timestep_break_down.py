"""Where a timestep of the sparse layer goes: a fixed part and a part that grows with the spike capacity.

    python benchmarks/timestep_break_down.py [--data N-MNIST] [--page docs/timestep-break-down.md]

Compiles, runs (for natural activity) and times the published two- and four-layer networks at their smallest and largest
capacity, with both state gradients; prints cycles per timestep, forward and backward together.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mimdsim.base.files import write_atomically
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, open_data, retime, train_workload
from mimdsim.profile import Span, TiledProfile
from mimdsim.workload import load_workload

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("LIF update: ids to every neuron tile, currents", ("LIF update",)),
    ("spike selection: flags, scans, combines", ("flag spikes", "random offsets", "scan flags", "combine")),
    ("hand spikes on to the next layer", ("hand on",)),
    ("slices and updates of sequences, forward and backward", ("slice", "stash")),
    ("counting timesteps, loop control", ("count timestep", "previous timestep", "loop control")),
    ("state gradient, gather and scatter", ("state gradient", "scatter state gradient")),
    ("adjoint: copy, times gain, times decay", ("copy adjoint", "scale gradient", "decay gradient")),
    ("replicate ids to every neuron tile", ("replicate",)),
    ("weight gradient", ("weight gradient",)),
    ("input gradient on the neuron tiles", ("input gradient",)),
    ("input gradient summed over tiles", ("reduce",)),
)
NETWORKS = {"nmnist-2": (14, 146), "nmnist-4": (6, 72)}  # workload: smallest and largest published capacity
ONCE = "once per training step"


def group_of(span: Span) -> str:
    """The group of a superstep by the beginning of its name."""
    for group, starts in GROUPS:
        if span.name.startswith(starts) and span.times > 1:
            return group
    return ONCE


def profile_of(name: str, capacity: int, state_gradient: str, data: str) -> TiledProfile:
    """One training step at a hidden capacity, timed with the spikes it made."""
    machine = load_machine("bow")
    assert isinstance(machine, MimdMachine)
    layers = len(load_workload(name).network.hidden)
    changes: dict[str, Any] = {
        "network.capacity": [capacity] * layers + [2],
        "training.weight_scale": 4.0,
        "training.max_training_steps": 1,
        "mapping.state_gradient": state_gradient,
    }
    source: dict[str, Any] = {"data.source": "nmnist", "data.path": data}
    if not data:  # as many ids per timestep as the recordings have
        source = {"data.source": "random", "data.path": "", "data.inputs": 2312, "data.classes": 10}
        source["data.activity"] = 12.7 / 2312
    workload = load_workload(name, {**changes, **source, "data.train_samples": 48, "data.test_samples": 1})
    compiled = compile_workload(workload, machine, must_fit=False)
    log = train_workload(workload, compiled, open_data(workload))
    return retime(compiled, machine, log.activity)


def lines_of(name: str, state_gradient: str, data: str) -> list[str]:
    """A Markdown table of one network: per group its cycles per timestep and their growth with the capacity."""
    small, large = NETWORKS[name]
    few, many = (profile_of(name, capacity, state_gradient, data) for capacity in (small, large))
    timesteps = max(span.times for span in few.spans)
    rows = []
    for group in [*(group for group, _ in GROUPS), ONCE]:
        cells = [group]
        totals = []
        for profile in (few, many):
            spans = [span for span in profile.spans if group_of(span) == group]
            parts = [
                sum(getattr(span, part) for span in spans) / timesteps
                for part in ("compute_cycles", "exchange_cycles", "sync_cycles")
            ]
            totals.append(sum(parts))
            cells.append(f"{sum(parts):,.0f} ({parts[0]:,.0f} / {parts[1]:,.0f} / {parts[2]:,.0f})")
        cells.append(f"{(totals[1] - totals[0]) / (large - small):,.1f}")
        rows.append("| " + " | ".join(cells) + " |")
    whole = [sum(span.cycles for span in profile.spans) / timesteps for profile in (few, many)]
    milliseconds = [1e3 * profile.seconds_per_training_step for profile in (few, many)]
    rows.append(
        f"| **all** ({milliseconds[0]:.2f} and {milliseconds[1]:.2f} ms per training step) | {whole[0]:,.0f} | "
        f"{whole[1]:,.0f} | {(whole[1] - whole[0]) / (large - small):,.1f} |"
    )
    return [
        f"## {name}, {state_gradient.replace('_', '-')} state gradient",
        "",
        f"| cycles per timestep (compute / exchange / sync) | capacity {small} | capacity {large} | per listed slot |",
        "|---|---|---|---|",
        *rows,
        "",
    ]


HEAD = """# Where the cycles of a timestep go

Made by `python benchmarks/timestep_break_down.py --data N-MNIST --page docs/timestep-break-down.md`: the published
networks on Bow with natural activity, at their smallest and largest hidden capacity. All numbers are tile cycles of one
timestep, forward and backward together; the last column is the average cost of one more slot of capacity between the
smallest and the largest.

How to read it: at small capacity the timestep is dominated by fixed costs. These are some 35 small library programs for
three layers (slices, updates, scalings), of which the scalings exchange and wait, and above all the per-batch state
gradient, whose rows are gathered from all tiles of a layer in pieces of eight bytes. Three things grow with the
capacity: the weight and input gradients (seven bundles per id and pair of neurons on the neuron tiles), the sums of
input gradients over tiles, and two broadcasts of ids to every neuron tile. At small capacity the broadcasts are limited
by the number of pieces that arrive (two control cycles each: 1,736 cycles on nmnist-2 at 14 slots, where the bytes
would take 817), so another slot costs nothing at first; later the limit is the wire's 4 bytes a cycle, and a slot costs
more than the average. Neighbouring tiles share a bus and could receive the same list twice as fast, but the pair that
straddles two layers receives two lists and determines the length of the exchange.

The tile-wise state gradient (the default here, and the authors' final version) scans every listed id on every tile
instead: no rows are gathered, so the fixed part falls, and the scan adds to the slope. No published time for it is
available for comparison.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="", help="folder of N-MNIST recordings; without it random input")
    parser.add_argument("--page", type=Path, help="write the tables as a Markdown page")
    given = parser.parse_args()
    lines = [
        line
        for name in NETWORKS
        for state_gradient in ("per_batch", "tilewise")
        for line in lines_of(name, state_gradient, given.data)
    ]
    print("\n".join(lines))
    if given.page:
        write_atomically(given.page, "\n".join([HEAD, *lines]))


if __name__ == "__main__":
    main()
