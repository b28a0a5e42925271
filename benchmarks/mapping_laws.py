"""More of a machine is never slower at the best mapping: sweeps over tiles, tile memory, contexts and bandwidth.

python benchmarks/mapping_laws.py [WORKLOAD] [--candidates 60] [--processes 2] [--points 200]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

import mimdsim

# of Bow, from where few mappings fit to some more than it has; sync.internal_cycles does not grow with tiles
RANGES = {
    "chip.tiles": (300, 2944, 1472),
    "tile.sram_bytes": (100_000, 700_000, 638_976),
    "exchange.bytes_per_cycle": (1.0, 12.0, 4.0),
    "tile.worker_contexts": (1, 12, 6),
}
CONTEXTS = 12


def values(key: str, count: int) -> tuple[float, ...]:
    """About so many, evenly on a scale of ratios; for tiles, those beside what Bow has too."""
    low, high, bow = RANGES[key]
    if key == "tile.worker_contexts":
        return tuple(range(int(low), CONTEXTS + 1))
    spread = np.geomspace(low, high, count)
    if key == "exchange.bytes_per_cycle":
        return tuple(float(each) for each in np.unique(np.round(spread, 2)))
    beside = {bow - 1, bow, bow + 1} if key == "chip.tiles" else {bow}
    return tuple(sorted({round(each) for each in spread} | beside))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", nargs="?", default="digits")
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--points", type=int, default=200)
    given = parser.parse_args()
    each = (given.points - CONTEXTS) // 3
    begun = time.perf_counter()
    print(f"{given.workload} on Bow, lists half full, {given.candidates} mappings lowered for each point")
    print(f"{'':<26} points  fit  ms from .. to        most that a next one is slower   steps above 1 %")
    for key in RANGES:
        with tempfile.TemporaryDirectory() as folder:
            rows = mimdsim.sweep(
                *(given.workload, "bow", {key: values(key, each)}),
                fill=0.5,
                processes=given.processes,
                best_mapping=given.candidates,
                folder=Path(folder),
            )
        fit = [(row[key], row["ms_per_training_step"]) for row in rows if row["fits"]]
        slower = [(more / less - 1, at) for (_, less), (at, more) in pairwise(fit)]
        most, where = max(slower)
        above = sum(share > 0.01 for share, _ in slower)
        print(
            f"{key:<26} {len(rows):>6}  {len(fit):>3}  {fit[0][1]:.4f} .. {fit[-1][1]:.4f}   "
            f"{100 * max(0.0, most):>6.2f} % at {where}   {above}",
            flush=True,
        )
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
