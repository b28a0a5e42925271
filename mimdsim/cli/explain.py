"""`mimdsim explain`: where the cycles of a superstep come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mimdsim.base.console import FILE_TO_WRITE, Bars, say
from mimdsim.base.errors import DescriptionError
from mimdsim.base.units import counted
from mimdsim.cli.options import BATCH, DEFAULT_MACHINE, MACHINE, SET, TIMESTEPS, WORKLOAD

if TYPE_CHECKING:
    from mimdsim.machine import MimdMachine
    from mimdsim.profile import TiledProfile
    from mimdsim.profile.detail import Detail
    from mimdsim.program import Program, RecordedActivity
    from mimdsim.workload import Workload

PROFILE = "profile.json"


@click.command("explain", short_help="Explain the cycles of a superstep, down to its vertices.")
@WORKLOAD
@MACHINE
@click.argument("superstep", default="")
@click.option("--tile", type=int, help="Seen from this tile (default: the one with most work in the superstep).")
@click.option("--timestep", type=int, help="Show the vertices in this timestep (default: the longest).")
@click.option("--dump", type=FILE_TO_WRITE, metavar="FILE", help="Also write the program here, as text.")
@TIMESTEPS
@BATCH
@SET
def explain_command(
    workload: str,
    machine: str,
    superstep: str,
    tile: int | None,
    timestep: int | None,
    dump: Path | None,
    **how: Any,
) -> None:
    """Explain the cycles of SUPERSTEP of WORKLOAD, or of a kernel (.py), on MACHINE; or of a run that was made, by its
    folder:  mimdsim explain reports/digits-bow "state gradient"

    SUPERSTEP is a name in any spelling, a layer, a phase or a number; where several are meant they are listed, and the
    longest is explained. Without it, all are listed with their cycles, slowest first. A run is explained with its own
    spikes and machine; otherwise spikes are random, sequences short and batches small (--timesteps, --batch).
    """
    from mimdsim.base.files import write_atomically
    from mimdsim.costs.isa_costs import with_machine_costs
    from mimdsim.profile.operations import find_supersteps
    from mimdsim.profile.records import UNKNOWN_TIMES
    from mimdsim.program.printer import listing
    from mimdsim.timing import explain

    with Bars() as bars:
        # whether this names the folder or the profile of a run that was made
        if os.path.isfile(os.path.join(workload, PROFILE)) or os.path.basename(workload) == PROFILE:
            source, superstep = _saved_run(workload, machine, superstep, how["changes"])
        else:
            source = _timed(workload, machine, **how)
        if not superstep and (tile, timestep) != (None, None):
            raise DescriptionError("explain", ["--tile and --timestep are of a superstep: name one behind the machine"])
        chosen = find_supersteps(source.tiled.spans, superstep) if superstep else range(len(source.tiled.spans))
        longest = max(chosen, key=lambda at: source.tiled.spans[at].cycles, default=0)
        if dump is not None:
            program = with_machine_costs(*source.made()[:2])
            write_atomically(dump, listing(program, [span.cycles for span in source.tiled.spans]))
        text = ""
        if superstep and tile is None and timestep is None:
            text = source.explained(longest)
        if superstep and not text:
            bars.show("compiling", 0, 1)
            program, described, activity = source.made()
            found = explain(program, described, longest, tile, activity, timestep)
            text = str(found)
            if found.cycles != (was := source.tiled.spans[longest].cycles):
                say(f"! the run was made by other sources of mimdsim, which counted {was:,} cycles here", bad=True)
    if source.tiled.unknown:
        say(UNKNOWN_TIMES.format(source.tiled.unknown))
    if not superstep or len(chosen) > 1:
        for line in _slowest_first(source.tiled, chosen):
            say(line)
    if superstep:
        say(("\n" if len(chosen) > 1 else "") + text)


class Timed(NamedTuple):
    """What is explained: a profile, and how its program, machine and spikes are had; detail: of a saved run."""

    tiled: TiledProfile
    made: Callable[[], tuple[Program, MimdMachine, RecordedActivity]]
    detail: Detail | None = None

    def explained(self, number: int) -> str:
        """What a saved run says of a superstep on its slowest tile; '' if it does not."""
        kept = () if self.detail is None else self.detail.explained
        return str(kept[number]) if number < len(kept) else ""


def _saved_run(given: str, first: str, second: str, changes: tuple[str, ...]) -> tuple[Timed, str]:
    """A run that was made, and the superstep that is asked for: the first argument after its folder."""
    from mimdsim.pipeline.recorded_run import compile_again
    from mimdsim.profile import load_profile
    from mimdsim.profile.detail import load_beside

    if second or changes:
        what = f"{first!r}" if second else "--set"
        raise DescriptionError("explain", [f"{given} is a run that was made, with its machine: leave out {what}"])
    path = Path(given) if os.path.basename(given) == PROFILE else Path(given) / PROFILE
    profile = load_profile(path)
    if profile.tiled is None:
        raise DescriptionError("explain", [f"{path} has no tiled machine, so there are no supersteps"])
    timed = Timed(profile.tiled, partial(compile_again, path.parent, profile), load_beside(path, profile))
    return timed, "" if first == DEFAULT_MACHINE else first


def _timed(workload: str, machine: str, timesteps: int, batch: int, changes: tuple[str, ...]) -> Timed:
    from mimdsim.api import no_workload_changes
    from mimdsim.pipeline.overrides import load_tiled, parse_changes
    from mimdsim.workload import load_workload

    for_workload, for_machine = parse_changes(changes)
    if workload.endswith(".py"):
        no_workload_changes(for_workload)
        chosen = load_tiled(machine, for_machine)
        program, activity, tiled = _timed_kernel(Path(workload), chosen)
    else:
        whole = load_workload(workload, for_workload)  # first: of a folder without a run, the machine is a superstep
        chosen = load_tiled(machine, for_machine)
        program, activity, tiled = _timed_workload(whole, chosen, timesteps, batch)
    return Timed(tiled, lambda: (program, chosen, activity))


def _timed_kernel(path: Path, machine: MimdMachine) -> tuple[Program, RecordedActivity, TiledProfile]:
    from mimdsim.checking.kernel import load_kernel

    result = load_kernel(path).check(machine, strict=False)
    if result.program is None or result.activity is None or result.tiled is None:
        raise DescriptionError(str(path), [f"cannot be timed:\n{result}"])
    return result.program, result.activity, result.tiled


def _timed_workload(
    whole: Workload, machine: MimdMachine, timesteps: int, batch: int
) -> tuple[Program, RecordedActivity, TiledProfile]:
    """On the spikes of one run with random inputs, as `check` draws them."""
    from mimdsim.checking.program import shrunk
    from mimdsim.checking.test_inputs import DRAWS, drawn_inputs
    from mimdsim.execution import Executor
    from mimdsim.pipeline import compile_workload, retime

    small = shrunk(whole, timesteps, batch, machine)
    compiled = compile_workload(small, machine, must_fit=False)
    executor = Executor(compiled.program)
    given = drawn_inputs(compiled.network, DRAWS[0])
    executor.write({key: value for key, value in given.items() if key in compiled.program.inputs})
    executor.run()
    activity = executor.activity()
    say(f"at {counted(small.data.timesteps, 'timestep')} and batch {small.training.batch}, for random spikes")
    return compiled.program, activity, retime(compiled, machine, activity)


def _slowest_first(tiled: TiledProfile, chosen: Sequence[int]) -> list[str]:
    """Supersteps with number, cycles and share, and what they take together."""
    order = sorted(chosen, key=lambda at: (-tiled.spans[at].cycles, at))
    widest = max((len(tiled.spans[at].name) for at in order), default=0)
    together = sum(tiled.spans[at].cycles for at in order)
    of = f"{len(order)} of them, which take {together:,}" if len(order) < len(tiled.spans) else ""
    lines = [
        f"{tiled.cycles:,} cycles a {tiled.run_name} on {tiled.machine}" + (f"; {of}" if of else ""),
        f"{'number':>6}  {'superstep':<{widest}}  {'phase':<12}  {'times':>6}  {'compute':>10}  {'exchange':>10}  "
        f"{'sync':>9}  {'cycles':>11}  {'share':>6}",
    ]
    for at in order:
        span = tiled.spans[at]
        lines.append(
            f"{at:>6}  {span.name:<{widest}}  {span.phase:<12}  {span.times:>6,}  {span.compute_cycles:>10,}  "
            f"{span.exchange_cycles:>10,}  {span.sync_cycles:>9,}  {span.cycles:>11,}  "
            f"{span.cycles / max(tiled.cycles, 1):>6.1%}"
        )
    return lines
