"""Strong and weak scaling of a workload over 1 to 64 chips, at mappings that a search finds.

Strong: the batch stays; for every number of chips the fastest mapping that `mimdsim place` times on so many. Weak: the
samples of a chip stay; the fastest mapping of one chip, with its copies on every chip. Nothing is executed: lists are
half full. Both answers to what is not known of several chips (`sync.scope`) stand beside each other, each with its
interval. The table of weak scaling also says what compiling and timing take: processor time of one process, user and
system, and its peak memory. Ways: one number of chips used in different ways, the fastest mapping that is found of
each: the batch shared, the neurons of every layer shared, both, layers on chips of their own (a pipeline over
timesteps), and that with the batch in two halves one after the other, whose chips are no less busy.
Usage: python benchmarks/scaling_over_chips.py [--workload random-4] [--ways 4] [--figure docs/scaling-over-chips.png]
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

from benchmark_figures import draw_over_chips
from place_speed import processor
from weak_scaling import fresh_processes

from mimdsim import api
from mimdsim.base.files import write_atomically
from mimdsim.graph import training_graph
from mimdsim.machine import MimdMachine, changed_machine, load_machine
from mimdsim.pipeline import compile_workload, retime
from mimdsim.profile import TiledProfile
from mimdsim.report.style import picture
from mimdsim.search import Aims
from mimdsim.search.combined import batch_share, numbers_of_groups, spread_over_chips
from mimdsim.search.evaluate import evaluator
from mimdsim.search.objective import Case
from mimdsim.search.search_loop import estimate_candidates
from mimdsim.workload import filled_activity, load_workload, network_of
from mimdsim.workload.description.mapping import MappingOptions

SCOPES = ("chip", "all")  # an exchange stops its own chip; or all of them
FILL = 0.5  # of every list
CHIPS = (1, 2, 4, 8, 16, 32, 64)
WARM = 4  # chips at most of what is compiled first, so that kernels are loaded
Point = tuple[str, str, int, int, MappingOptions]  # workload, machine, chips, samples of the batch, mapping
Row = dict[str, Any]


def spread(mapping: MappingOptions, chips: int) -> MappingOptions:
    """A mapping of one chip with its copies on every chip."""
    split = {
        layer: one.model_copy(update={"batch": one.batch * chips, "chips": chips})
        for layer, one in mapping.split.items()
    }
    return mapping.model_copy(update={"split": split})


def timed(point: Point) -> list[TiledProfile]:
    """A point compiled, and timed with both answers."""
    name, on, chips, batch, mapping = point
    samples = max(batch, load_workload(name, {}).data.train_samples)
    workload = load_workload(name, {"training.batch": batch, "data.train_samples": samples})
    machine = load_machine(on, {"links.chips": chips})
    assert isinstance(machine, MimdMachine)
    compiled = compile_workload(workload.model_copy(update={"mapping": mapping}), machine)
    activity = filled_activity(compiled.network, FILL)
    return [retime(compiled, changed_machine(machine, {"sync.scope": scope}), activity) for scope in SCOPES]


def measured(points: tuple[Point, ...]) -> Row:
    """The last of some points, timed in this process after the others, and what that took."""
    *first, point = points
    for other in first:
        timed(other)
    before = resource.getrusage(resource.RUSAGE_SELF)
    profiles = timed(point)
    after = resource.getrusage(resource.RUSAGE_SELF)
    row: Row = {"chips": point[2], "batch": point[3], "title": load_machine(point[1]).title}
    row["host_ms"] = 1e3 * profiles[0].host_seconds
    for scope, profile in zip(SCOPES, profiles, strict=True):
        seconds = profile.seconds_per_training_step, profile.seconds_low, profile.seconds_high
        row |= {scope: tuple(1e3 * each for each in seconds)}
    took = {"user": after.ru_utime - before.ru_utime, "system": after.ru_stime - before.ru_stime}
    return row | took | {"resident_bytes": 1024 * after.ru_maxrss}


def ways(name: str, on: str, chips: int, batch: int, candidates: int, processes: int) -> dict[str, list[TiledProfile]]:
    """The fastest mapping of every way to use so many chips, timed with both answers."""
    several = load_machine(on, {"links.chips": chips})
    assert isinstance(several, MimdMachine)
    workload = load_workload(name, {"training.batch": batch})
    network = network_of(workload)
    activity = filled_activity(network, FILL)
    graph = training_graph(network)
    case = Case(network=network, graph=graph, machine=several, activity=activity, options=workload.mapping)
    aims = Aims.of(several)
    mappings: dict[str, list[MappingOptions]] = {}
    for groups in numbers_of_groups(case):
        with evaluator(batch_share(case, groups), processes) as evaluate:
            known, _ = estimate_candidates(evaluate, aims, candidates, lambda *_: None)
        for one in spread_over_chips(case, groups, known):
            parts = {"the batch": groups, "neurons of every layer": one.each, "layers, a pipeline": one.stages}
            way = ", ".join(f"{what} in {count}" for what, count in parts.items() if count > 1)
            mappings.setdefault(way, []).extend([one.options] if one.chips == chips else [])
    published = case.published.model_copy(update={"program": "best"})
    mappings["layers by the published rule"] = [published]
    found = {}
    for way, options in mappings.items():
        timings = [timed((name, on, chips, batch, one)) for one in options]
        if timings:
            found[way] = min(timings, key=lambda one: one[0].cycles)
    return found | {"the same with half of the batch": timed((name, on, chips, batch // 2, published))}


def print_table(what: str, rows: list[Row], weak: bool) -> None:
    """One line per number of chips; efficiency by the first answer."""
    print(f"\n{what}\nchips  batch   ms/training step (interval)   all stopped (interval)  efficiency", end="")
    print("   user  system  peak memory" if weak else "")
    for row in rows:
        middles = [f"{row[scope][0]:8.3f} ({row[scope][1]:.2f}-{row[scope][2]:.2f})" for scope in SCOPES]
        efficiency = rows[0]["chip"][0] / row["chip"][0] / (1 if weak else row["chips"] / rows[0]["chips"])
        line = f"{row['chips']:5}  {row['batch']:5}   {middles[0]:<28}{middles[1]:<24}{efficiency:10.1%}"
        took = f"{row['user']:6.1f}s{row['system']:7.1f}s{row['resident_bytes'] / 2**30:8.2f} GiB"
        print(line + (f" {took}" if weak else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", default="random-4")
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--chips", type=int, nargs="+", default=CHIPS)
    parser.add_argument("--samples", type=int, default=0, help="of a chip (default: the batch of the workload)")
    parser.add_argument("--ways", type=int, default=0, help="only the ways to use so many chips")
    parser.add_argument("--candidates", type=int, default=600, help="mappings that a search lowers")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--figure", type=Path, help="write a PNG here")
    given = parser.parse_args()
    begun = time.perf_counter()
    name, on = given.workload, given.machine
    samples = given.samples or load_workload(name, {}).training.batch
    if given.ways:
        found = ways(name, on, given.ways, samples, given.candidates, given.processes)
        print(f"{name}, batch {samples}, {given.ways} chips: ms (interval); if an exchange stops all chips")
        for way, profiles in found.items():
            numbers = [(one.seconds_per_training_step, one.seconds_low, one.seconds_high) for one in profiles]
            shown = ["{:.2f} ({:.2f}-{:.2f})".format(*(1e3 * each for each in three)) for three in numbers]
            print(f"  {way:<56}{shown[0]:<22}{shown[1]}")
        return
    searched = {"fill": FILL, "candidates": given.candidates, "processes": given.processes}
    found = api.place(name, on, changes={"training.batch": samples, "links.chips": max(given.chips)}, **searched)
    strong = [(name, on, one.chips, samples, one.options) for one in found.by_chips if one.chips in given.chips]
    alone = next((one.options for one in found.by_chips if one.chips == 1 and one.options.split), None)
    if alone is None:
        raise SystemExit(f"no split of {name} fits one chip of {on} at {samples} samples: give fewer --samples")
    weak = {chips: (name, on, chips, samples * chips, spread(alone, chips)) for chips in sorted({WARM, *given.chips})}
    work = [(one,) for one in strong] + [(weak[WARM], weak[chips]) for chips in sorted(given.chips, reverse=True)]
    with fresh_processes(given.processes) as pool:
        rows = pool.map(measured, work, chunksize=1)
    rows, growing = rows[: len(strong)], sorted(rows[len(strong) :], key=lambda row: row["chips"])
    print(f"{name} on {rows[0]['title']}, lists {FILL:.0%} full; processor: {processor()}")
    print_table(f"Strong scaling: a batch of {samples}", rows, weak=False)
    print_table(f"Weak scaling: {samples} samples a chip; processor time of compiling and timing", growing, weak=True)
    print(f"\nin all: {time.perf_counter() - begun:.0f} s")
    if given.figure is not None:
        title = f"{name} on chips of {rows[0]['title']}, lists {FILL:.0%} full"
        write_atomically(given.figure, picture(draw_over_chips(rows, growing, samples=samples, title=title)))
        print(f"figure: {given.figure}")


if __name__ == "__main__":
    main()
