"""Weak scaling: networks that grow with the chips, 1 to 16 of them, compiled and timed with half-full lists.

The sizes are those of the published sweep: jrfinkbeiner/graphcore_snn, benchmarking_script.py and runfile_multi_ipu.sh
(commit 0d81a25): every tile holds 2, 4 or 8 neurons, a layer never straddles chips, the batch stays. No times of that
sweep were published. Nothing is executed: no spikes are known at these sizes, so every list is taken as half full.
Usage: python benchmarks/weak_scaling.py [--data nmnist] [--figure weak_scaling.png]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

from mimdsim.base.files import write_atomically
from mimdsim.base.schema import build
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, retime
from mimdsim.workload import Workload, filled_activity
from mimdsim.workload.description.workload import capacity_by_activity

TILES_FILLED = 1471  # of every chip; the first one keeps a tile for loop counters
BASE = 3  # hidden layers per chip: this times half the neurons of a tile
# inputs, input capacity and classes: N-MNIST reduced to 24 x 24 x 2 pixels, SHD with its 700 channels
DATA = {"nmnist": (1152, 32, 10), "shd": (700, 48, 20)}
TITLES = {"nmnist": "N-MNIST", "shd": "SHD"}
ACTIVITY, BATCH, TIMESTEPS = 0.05, 24, 10
CHIPS = (1, 2, 4, 8, 16)
NEURONS_PER_TILE = (2, 4, 8)


def hidden_widths(chips: int, neurons_per_tile: int, classes: int) -> list[int]:
    """Widths of all hidden layers: the neurons of a chip in multiples of those of a tile, the first layers wider.

    The last chip also holds the output layer.
    """
    layers = neurons_per_tile // 2 * BASE
    widths: list[int] = []
    for chip in range(chips):
        tiles = TILES_FILLED - (-(-classes // neurons_per_tile) if chip == chips - 1 else 0)
        widths += [(tiles // layers + (index < tiles % layers)) * neurons_per_tile for index in range(layers)]
    return widths


def published_workload(chips: int, neurons_per_tile: int, data: str) -> Workload:
    """One point of the sweep. Its input is random; only its size matters here."""
    inputs, input_capacity, classes = DATA[data]
    hidden = hidden_widths(chips, neurons_per_tile, classes)
    table = {
        "name": f"weak-scaling-{data}-{chips}-{neurons_per_tile}",
        "title": f"{chips} chip(s), {neurons_per_tile} neurons per tile, {data} sizes",
        "data": {
            "source": "random",
            "inputs": inputs,
            "classes": classes,
            "activity": 0.5 * input_capacity / inputs,
            "timesteps": TIMESTEPS,
            "input_capacity": input_capacity,
            "train_samples": BATCH,
            "test_samples": 1,
        },
        "network": {
            "hidden": hidden,
            "capacity": [capacity_by_activity(ACTIVITY, width) for width in (*hidden, classes)],
        },
        "training": {"batch": BATCH, "learning_rate": 3e-5, "optimiser": "sgd", "max_training_steps": 1},
        "mapping": {"neurons_per_tile": neurons_per_tile},
    }
    return build(Workload, table, where="weak scaling")


def measure(point: tuple[int, int, str, str, float]) -> dict[str, Any]:
    """A row of the table, compiled and timed in this process."""
    chips, neurons_per_tile, data, name, share = point
    machine = load_machine(name, {"links.chips": chips})
    assert isinstance(machine, MimdMachine)
    begun = time.perf_counter()
    compiled = compile_workload(published_workload(chips, neurons_per_tile, data), machine, must_fit=False)
    compiled_at = time.perf_counter()
    profile = retime(compiled, machine, filled_activity(compiled.network, share))
    done = time.perf_counter()
    layers = compiled.network.layers
    link_cycles = sum(span.link_cycles for span in profile.spans)
    return {
        "machine": profile.title,
        "chips": chips,
        "neurons_per_tile": neurons_per_tile,
        "layers": len(layers),
        "neurons": sum(layer.neurons for layer in layers),
        "weights": sum(layer.neurons * layer.inputs for layer in layers),
        "ms": 1e3 * profile.seconds_per_training_step,
        "ms_low": 1e3 * profile.seconds_low,
        "ms_high": 1e3 * profile.seconds_high,
        "compute": profile.compute_cycles / profile.cycles,
        "exchange": (profile.exchange_cycles - link_cycles) / profile.cycles,
        "sync": profile.sync_cycles / profile.cycles,
        "links": link_cycles / profile.cycles,
        "peak_bytes": profile.memory.peak_bytes,
        "fits": profile.memory.peak_bytes <= profile.memory.limit_bytes,
        "compile_seconds": compiled_at - begun,
        "timing_seconds": done - compiled_at,
        "resident_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def fresh_processes(count: int) -> Any:
    """A pool whose processes take one point each, so that each has a peak memory of its own."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["mimdsim.pipeline"])  # imported once, not by every process
    return context.Pool(count, maxtasksperchild=1)


def print_table(rows: list[dict[str, Any]]) -> None:
    """One line per point; '!' where the fullest tile has not the memory."""
    print(
        "chips  n/tile  layers  neurons   weights   ms/training step (interval)   "
        "compute exchange   sync  links   fullest tile   compile   time it   memory"
    )
    for row in rows:
        interval = f"({row['ms_low']:.2f}-{row['ms_high']:.2f})"
        shares = "".join(f"{row[part]:9.1%}" for part in ("compute", "exchange", "sync", "links"))
        print(
            f"{row['chips']:5}  {row['neurons_per_tile']:6}  {row['layers']:6}  {row['neurons']:7,}  "
            f"{row['weights'] / 1e6:6.2f} M   {row['ms']:9.3f} {interval:18}{shares}  "
            f"{row['peak_bytes'] / 1024:6.0f} KiB {' ' if row['fits'] else '!'} {row['compile_seconds']:7.1f} s "
            f"{row['timing_seconds']:7.1f} s {row['resident_bytes'] / 2**30:5.2f} GiB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", choices=sorted(DATA), nargs="+", default=["nmnist"], help="whose sizes to take")
    parser.add_argument("--chips", type=int, nargs="+", default=CHIPS)
    parser.add_argument("--neurons-per-tile", type=int, nargs="+", choices=NEURONS_PER_TILE, default=NEURONS_PER_TILE)
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--share", type=float, default=0.5, help="of every list's capacity that is filled, 0 to 1")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--figure", type=Path, help="write a PNG here")
    given = parser.parse_args()
    for data in given.data:
        begun = time.perf_counter()
        points = [(c, n, data, given.machine, given.share) for n in given.neurons_per_tile for c in given.chips]
        # the largest first, so that no process ends alone with it
        largest = sorted(points, key=lambda point: -point[0] * point[1])
        with fresh_processes(given.processes) as pool:
            rows = list(pool.imap_unordered(measure, largest, chunksize=1))
        rows.sort(key=lambda row: (row["neurons_per_tile"], row["chips"]))
        print(f"{data}: batch {BATCH}, {TIMESTEPS} timesteps, lists {given.share:.0%} full, {given.machine}")
        print_table(rows)
        print(f"all points: {time.perf_counter() - begun:.0f} s")
        if given.figure is not None:
            from benchmark_figures import draw_scaling

            from mimdsim.report.style import picture

            figure = draw_scaling(
                rows, title=f"{TITLES[data]} sizes, lists {given.share:.0%} full, {rows[0]['machine']}"
            )
            path = given.figure if len(given.data) == 1 else given.figure.with_stem(f"{given.figure.stem}_{data}")
            write_atomically(path, picture(figure))
            print(f"figure: {path}")


if __name__ == "__main__":
    main()
