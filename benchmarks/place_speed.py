"""How fast mappings are estimated, and how well the estimates rank them: candidates a second, and rank correlations
with full timing.

    python benchmarks/place_speed.py [--candidates 100] [--processes 2] [WORKLOAD ...]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from mappings import case_of, random_mappings, rank_correlation

from mimdsim.machine import load_machine
from mimdsim.search.evaluate import evaluator


def processor() -> str:
    """Its name as Linux gives it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["digits", "nmnist-2-random"])
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    print(f"processor: {processor()}, {given.processes} processes")
    print(
        "workload          estimated/s  timed/s  rank correlation  in the best tenth  of memory  least / median ratio"
    )
    for name in given.workloads:
        case = case_of(name, load_machine(given.machine))
        mappings = random_mappings(case, given.candidates)
        with evaluator(case, given.processes) as evaluate:
            evaluate.estimates(mappings[: 2 * given.processes])  # kernels are loaded
            begun = time.perf_counter()
            fast = evaluate.estimates(mappings)
            between = time.perf_counter()
            full = evaluate.timings(mappings)
            ended = time.perf_counter()
        both = [(one, two.figures) for one, two in zip(fast, full, strict=True) if one is not None and two is not None]
        cycles = np.array([(one.cycles, two.cycles) for one, two in both]).T
        peaks = np.array([(one.peak_bytes, two.peak_bytes) for one, two in both]).T
        best = np.argsort(cycles[1], kind="stable")[: max(10, len(both) // 10)]
        ratio = cycles[0] / cycles[1]
        print(
            f"{name:<17} {len(mappings) / (between - begun):>11.1f}  {len(mappings) / (ended - between):>7.1f}  "
            f"{rank_correlation(*cycles):>16.4f}  {rank_correlation(*cycles[:, best]):>17.3f}  "
            f"{rank_correlation(*peaks):>9.4f}  {ratio.min():.3f} / {np.median(ratio):.3f}"
        )


if __name__ == "__main__":
    main()
