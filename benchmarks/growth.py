"""How compiling and timing grow with chips, batch and tiles: processor time and peak memory, each point in a process of
its own, after a small one has loaded the kernels.

Chips: random-4 with 12 samples on each, its layers in copies on every chip. Batch: the same on one chip. Tiles: two
layers of as many neurons as there are tiles, a batch of one. Nothing is executed: lists are half full. Timed once for
each answer to `sync.scope` where there are several chips. Ratios are to the line before.
Usage: python benchmarks/growth.py [--chips 16 32 64] [--batches 12 48 192 768] [--tiles 10000 100000 1000000]
"""

from __future__ import annotations

import argparse
import resource
from typing import Any

from place_speed import processor
from scaling_over_chips import FILL, SCOPES, spread
from weak_scaling import fresh_processes

from mimdsim.machine import MimdMachine, changed_machine, load_machine
from mimdsim.pipeline import compile_workload, retime
from mimdsim.workload import filled_activity, load_workload
from mimdsim.workload.description.mapping import MappingOptions, Split

SAMPLES = 12  # of a chip
PARTS = {"hidden0": 256, "hidden1": 256, "hidden2": 128, "hidden3": 32, "output": 4}  # of the neurons of random-4
COPIES = 2  # of every layer on a chip
SMALL = {"chips": 4, "batch": 12, "tiles": 200}
Point = tuple[str, int]  # what grows, and how far


def over_chips(chips: int, samples: int) -> tuple[str, dict[str, Any], dict[str, Any], MappingOptions]:
    """Workload, changes of it and of the machine, mapping: `samples` of random-4 on so many chips."""
    split = {layer: Split(batch=COPIES, neurons=parts, replicas=2) for layer, parts in PARTS.items()}
    stored = max(samples, load_workload("random-4", {}).data.train_samples)
    changes = {"training.batch": samples, "data.train_samples": stored}
    return "random-4", changes, {"links.chips": chips}, spread(MappingOptions(split=split), chips)


def over_tiles(tiles: int) -> tuple[str, dict[str, Any], dict[str, Any], None]:
    """The same for two layers that take all tiles with two neurons each, but for the output and one reserved tile."""
    neurons = tiles - 12
    changes = {"network.hidden": [neurons, neurons], "network.activity": 0.0, "network.capacity": [32, 32, 10]}
    return "nmnist-2-random", changes | {"training.batch": 1}, {"chip.tiles": tiles, "chip.grid_columns": 100}, None


def timed(point: Point) -> int:
    """A point compiled and timed; its cycles by the first answer."""
    what, size = point
    name, changes, of_machine, mapping = (
        over_tiles(size) if what == "tiles" else over_chips(*((size, SAMPLES * size) if what == "chips" else (1, size)))
    )
    workload = load_workload(name, changes)
    machine = load_machine("bow", of_machine)
    assert isinstance(machine, MimdMachine)
    if mapping is not None:
        workload = workload.model_copy(update={"mapping": mapping})
    compiled = compile_workload(workload, machine, must_fit=False)
    activity = filled_activity(compiled.network, FILL)
    scopes = SCOPES if machine.links.chips > 1 else SCOPES[:1]
    first, *_ = [retime(compiled, changed_machine(machine, {"sync.scope": one}), activity).cycles for one in scopes]
    return first


def measured(point: Point) -> dict[str, Any]:
    """A point timed in this process after a small one of its kind, and what that took."""
    timed((point[0], SMALL[point[0]]))
    before = resource.getrusage(resource.RUSAGE_SELF)
    cycles = timed(point)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "what": point[0],
        "size": point[1],
        "cycles": cycles,
        "user": after.ru_utime - before.ru_utime,
        "system": after.ru_stime - before.ru_stime,
        "bytes": 1024 * after.ru_maxrss,
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    """One line per point, with its ratio to the point before."""
    print("           size       cycles     user   system  peak memory   ratio: size  time  memory")
    for before, row in zip([None, *rows], rows, strict=False):
        line = f"{row['what']:<7}{row['size']:9,}{row['cycles']:13,}{row['user']:8.1f}s{row['system']:8.1f}s"
        line += f"{row['bytes'] / 2**30:9.2f} GiB"
        if before is not None and before["what"] == row["what"]:
            took = [one["user"] + one["system"] for one in (before, row)]
            line += f"{row['size'] / before['size']:15.2f}{took[1] / took[0]:6.2f}{row['bytes'] / before['bytes']:8.2f}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chips", type=int, nargs="*", default=(16, 32, 64))
    parser.add_argument("--batches", type=int, nargs="*", default=(12, 48, 192, 768))
    parser.add_argument("--tiles", type=int, nargs="*", default=(10_000, 100_000, 1_000_000))
    given = parser.parse_args()
    sizes = {"chips": given.chips, "batch": given.batches, "tiles": given.tiles}
    points = [(what, size) for what, each in sizes.items() for size in sorted(each)]
    with fresh_processes(1) as pool:
        rows = pool.map(measured, points, chunksize=1)
    print(f"lists {FILL:.0%} full; processor: {processor()}")
    print_table(rows)


if __name__ == "__main__":
    main()
