"""How many points a second one compiled program is timed on: machines that differ in numbers of one class.

A point is a changed machine, the program that it gets (compiled anew only where the compiler would make another one),
its profile, and the figures of a row of results. Values of a class are drawn at random, so no two points are alike.
Usage: python benchmarks/retiming.py [WORKLOAD ...] [--machine bow] [--points 200] [--processes 2] [--turns 3]
"""

from __future__ import annotations

import argparse
import platform
import random
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mimdsim.base.processes import process_pool
from mimdsim.machine import MimdMachine, changed_machine, tiled_machine
from mimdsim.pipeline import Programs, retime
from mimdsim.profile import TiledProfile, seconds_by_source
from mimdsim.program import RecordedActivity
from mimdsim.workload import Workload, filled_activity, load_workload

Draw = Callable[[random.Random], Any]
BATCH = 20  # points of one task of a process


def between(low: float, high: float) -> Draw:
    return lambda rng: rng.uniform(low, high)


def whole(low: int, high: int) -> Draw:
    return lambda rng: rng.randint(low, high)


CLASSES: dict[str, dict[str, Draw]] = {
    "clock": {"chip.clock_hz": between(0.5e9, 3e9)},
    "exchange": {
        "exchange.bytes_per_cycle": between(1, 32),
        "exchange.fixed_cycles": whole(10, 1000),
        "exchange.send_fragment_cycles": between(0.5, 8),
        "exchange.receive_fragment_cycles": between(0.5, 8),
        "exchange.hop_cycles": between(0.1, 2),
    },
    "sync": {
        "sync.internal_cycles": whole(10, 1000),
        "sync.exchange_share": between(0, 0.5),
        "sync.loop_cycles": whole(0, 200),
    },
    "links": {"links.bytes_per_second": between(1e9, 1e11), "links.fixed_seconds": between(1e-7, 1e-5)},
    "energy, area, power": {
        "energy.bundle_joules": between(5e-12, 5e-11),
        "area.sram_um2_per_bit": between(0.02, 0.1),
        "power.static_watts_per_mm2": between(0.02, 0.1),
    },
    "tile": {
        "tile.issue_cycles": whole(6, 12),
        "tile.copy_bytes_per_cycle": between(2, 32),
        "tile.compiled_dual_issue": between(0, 1),
        "exchange.arrange_fragment_bundles": between(2, 50),
    },
    "tile memory": {"tile.sram_bytes": whole(300_000, 2_000_000), "tile.code_bytes": whole(1_000, 50_000)},
    "vector width": {"tile.vector_bytes": lambda rng: rng.choice([4, 8, 16, 32])},
    "another program": {"tile.worker_contexts": whole(1, 6), "tile.issue_cycles": whole(6, 12)},
}
SENSITIVITY = [  # 20 numbers of all classes, none of which needs another program
    *(key for name in ("clock", "exchange", "sync", "links", "energy, area, power", "tile") for key in CLASSES[name]),
    "tile.sram_bytes", "tile.vector_bytes",
]  # fmt: skip


class Bench(NamedTuple):
    """What the points of a workload share, in every process."""

    workload: Workload
    machine: MimdMachine
    programs: Programs
    activity: RecordedActivity

    @classmethod
    def of(cls, workload: str, machine: str) -> Bench:
        described, on, programs = load_workload(workload), tiled_machine(machine, ""), Programs()
        network = programs.compiled(described, on).network
        return cls(described, on, programs, filled_activity(network, 0.5))

    def row(self, changes: dict[str, Any]) -> tuple[Any, ...]:
        machine = changed_machine(self.machine, changes)
        return figures(retime(self.programs.compiled(self.workload, machine), machine, self.activity))


def figures(profile: TiledProfile) -> tuple[Any, ...]:
    """What a row of results holds of a profile."""
    energy = profile.energy
    return (
        profile.seconds_per_training_step, profile.seconds_low, profile.seconds_high, profile.compute_cycles,
        profile.exchange_cycles, profile.sync_cycles, profile.tile_balance, profile.memory.peak_bytes,
        energy and (energy.joules, energy.joules_low, energy.joules_high), profile.area_mm2, profile.static_watts,
        profile.dynamic_watts, [(part.source, part.seconds, part.half_width) for part in seconds_by_source(profile)],
    )  # fmt: skip


_BENCH: list[Bench] = []  # of this process; forked ones have it already


def _begin(workload: str, machine: str) -> None:
    if not _BENCH:
        _BENCH.append(Bench.of(workload, machine))


def _rows(points: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [_BENCH[0].row(changes) for changes in points]


def drawn(draws: dict[str, Draw], points: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [{key: draw(rng) for key, draw in draws.items()} for _ in range(points)]


def batches(points: Sequence[dict[str, Any]]) -> Iterable[Sequence[dict[str, Any]]]:
    return (points[first : first + BATCH] for first in range(0, len(points), BATCH))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=["nmnist-2-random", "shd-3"])
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="time 10,000 points and print the peak memory")
    given = parser.parse_args()
    print(f"Processor: {processor()}. The best of {given.turns} turns.")
    for name in given.workloads:
        _BENCH.clear()
        begun = time.perf_counter()
        _begin(name, given.machine)
        print(f"\n{name} on {given.machine}, compiled in {time.perf_counter() - begun:.1f} s\n")
        _print_speeds(name, given)
        if given.memory:
            every = {key: draw for draws in list(CLASSES.values())[:-1] for key, draw in draws.items()}
            kept = _rows(drawn(every, 10_000, 0))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"\n{len(kept):,} points of all classes but the last, all rows kept: peak memory {peak:.2f} GB")


def _print_speeds(name: str, given: argparse.Namespace) -> None:
    print(f"| numbers drawn | processor ms a point | points/s, 1 process | {given.processes} processes |")
    print("|---|---|---|---|")
    every = {key: draw for draws in CLASSES.values() for key, draw in draws.items()}
    rows = [(kind, draws, given.points) for kind, draws in CLASSES.items()]
    rows.append((f"{len(SENSITIVITY)} numbers, 420 points", {key: every[key] for key in SENSITIVITY}, 420))
    for kind, draws, points in rows:
        busy, alone, shared = [], [], []
        for turn in range(given.turns):
            each = drawn(draws, points, turn)
            begun, worked = time.perf_counter(), time.process_time()
            _rows(each)
            alone.append(time.perf_counter() - begun)
            busy.append(time.process_time() - worked)
            with process_pool(given.processes, _begin, (name, given.machine)) as pool:
                begun = time.perf_counter()
                list(pool.map(_rows, batches(each)))
                shared.append(time.perf_counter() - begun)
        rates = f"{points / min(alone):.0f} | {points / min(shared):.0f}"
        print(f"| {kind} | {1e3 * min(busy) / points:.1f} | {rates} |", flush=True)


def processor() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
