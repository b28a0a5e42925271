"""How fast mappings are looked at, and how well estimates rank them beside full timing: of mappings lowered and counted
on some tiles, and of mappings made of layers of such ones. Then whether a search finds what is best.

    python benchmarks/place_speed.py [--candidates 100] [--processes 2] [--searched 240] [WORKLOAD ...]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from mappings import aims_of, case_of, combined_mappings, layer_table, random_mappings, rank_correlation

from mimdsim.machine import load_machine
from mimdsim.search import Figures, TimedMapping, search
from mimdsim.search.evaluate import evaluator


def processor() -> str:
    """Its name as Linux gives it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def said(what: str, rate: float, estimates: list[Figures | None], full: list[TimedMapping | None]) -> None:
    """A line about estimates of mappings beside their full timing."""
    both = [(one, two.figures) for one, two in zip(estimates, full, strict=True) if one is not None and two is not None]
    cycles = np.array([(one.cycles, two.cycles) for one, two in both]).T
    peaks = np.array([(one.peak_bytes, two.peak_bytes) for one, two in both]).T
    best = np.argsort(cycles[1], kind="stable")[: max(10, len(both) // 10)]
    ratio = cycles[0] / cycles[1]
    print(
        f"  {what:<16} {rate:>9,.0f}  {rank_correlation(*cycles):>12.4f}  {rank_correlation(*cycles[:, best]):>13.3f}  "
        f"{rank_correlation(*peaks):>9.4f}  {ratio.min():.3f} .. {np.median(ratio):.3f} .. {ratio.max():.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["digits", "nmnist-2-random"])
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--searched", type=int, default=240)
    given = parser.parse_args()
    print(f"processor: {processor()}, {given.processes} processes")
    for name in given.workloads:
        case = case_of(name, load_machine(given.machine))
        mappings = random_mappings(case, given.candidates)
        known = [one for one in mappings if one.split and one.program == "best"][:40]
        print(f"{name}\n  mappings         a second  correlation  in best tenth  of memory  estimate / full")
        with evaluator(case, given.processes) as evaluate:
            evaluate.estimates(mappings[: 2 * given.processes])  # kernels are loaded
            begun = time.perf_counter()
            lowered = evaluate.estimates(mappings)
            rate = len(mappings) / (time.perf_counter() - begun)
            full = evaluate.timings(mappings)
            said("lowered", rate, [None if one is None else one.figures for one in lowered], full)
            table, aims = layer_table(case, known), aims_of(case)
            begun = time.perf_counter()
            for row in range(len(known)):
                list(table.improved(row, aims, case.room))
            rate = len(table.looked_at) / (time.perf_counter() - begun)
            made, columns = combined_mappings(case, table, given.candidates)
            of_layers = evaluate.timings(made)
            estimates = [Figures(cycles=int(one), peak_bytes=int(two), tiles=0) for one, two in columns.T]
            said("made of layers", rate, list(estimates), of_layers)
        best = min(one.figures.cycles for one in (*full, *of_layers) if one is not None and one.fits)
        begun = time.perf_counter()
        found = search(case, aims, candidates=given.searched, processes=given.processes, explained=False)
        took = time.perf_counter() - begun
        looked_at = found.candidates + found.combined
        print(
            f"  a search: {found.candidates:,} lowered, {found.combined:,} made of layers, {looked_at / took:,.0f} a "
            f"second; its best takes {found.best.figures.cycles / best:.3f} times the best of the "
            f"{len(full) + len(of_layers)} above"
        )


if __name__ == "__main__":
    main()
