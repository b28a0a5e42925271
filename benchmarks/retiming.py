"""How long a compiled program takes to time: on its first machine, on others, and on the same one again.

What no machine changes is worked out the first time (mimdsim/timing/dealing.py). Every other machine here is met for
the first time in every turn: the program is compiled anew. Least and median of all turns, in milliseconds.
Usage: python benchmarks/retiming.py [WORKLOAD] [--machine bow] [--turns 9]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from mimdsim.machine import MimdMachine, load_machine
from mimdsim.run import compile_workload, retime
from mimdsim.workload import filled_activity, load_workload

OTHERS: dict[str, dict[str, Any]] = {
    "clock": {"chip.clock_hz": 1.0e9},
    "sync": {"sync.internal_cycles": 300},
    "exchange width": {"exchange.bytes_per_cycle": 16},
    "worker contexts": {"tile.worker_contexts": 4},
    "issue cycles": {"tile.issue_cycles": 4},
    "contexts and issue cycles": {"tile.worker_contexts": 8, "tile.issue_cycles": 8},
    "load width": {"tile.vector_bytes": 16},
    "dual issue": {"tile.compiled_dual_issue": 0.5},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="?", default="nmnist-2")
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--turns", type=int, default=9)
    given = parser.parse_args()
    machines = {name: load_machine(given.machine, changes) for name, changes in ({"first": {}} | OTHERS).items()}
    taken: dict[str, list[float]] = {name: [] for name in (*machines, "the last one again")}
    for turn in range(given.turns + 1):
        workload = load_workload(given.workload)
        compiled = compile_workload(workload, machines["first"])
        activity = filled_activity(compiled.network, 0.5)
        for name, machine in (*machines.items(), ("the last one again", machines["dual issue"])):
            assert isinstance(machine, MimdMachine)
            began = time.perf_counter()
            retime(compiled, machine, activity)
            if turn:  # the first turn loads kernels
                taken[name].append(1e3 * (time.perf_counter() - began))
    first = statistics.median(taken["first"])
    print("| machine | least, ms | median, ms | median of the first time |")
    print("|---|---|---|---|")
    for name, each in taken.items():
        print(f"| {name} | {min(each):.1f} | {statistics.median(each):.1f} | {statistics.median(each) / first:.2f} |")


if __name__ == "__main__":
    main()
