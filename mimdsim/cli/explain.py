"""`mimdsim explain`: where the cycles of a superstep come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mimdsim.base.console import FILE_TO_WRITE, say
from mimdsim.base.errors import DescriptionError
from mimdsim.base.units import counted
from mimdsim.cli.options import BATCH, MACHINE, SET, TIMESTEPS, WORKLOAD

if TYPE_CHECKING:
    from mimdsim.machine import MimdMachine
    from mimdsim.profile import TiledProfile
    from mimdsim.program import Program, RecordedActivity


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
    timesteps: int,
    batch: int,
    changes: tuple[str, ...],
) -> None:
    """Explain the cycles of SUPERSTEP of WORKLOAD, or of a kernel (.py), on MACHINE.

    SUPERSTEP is a name or a number; without it, all are listed with their cycles, slowest first.
    """
    from mimdsim.api import no_workload_changes
    from mimdsim.base.files import write_atomically
    from mimdsim.pipeline.overrides import load_tiled, parse_changes
    from mimdsim.program.printer import listing
    from mimdsim.timing import explain

    for_workload, for_machine = parse_changes(changes)
    chosen = load_tiled(machine, for_machine)
    if workload.endswith(".py"):
        no_workload_changes(for_workload)
        program, activity, tiled = _timed_kernel(Path(workload), chosen)
    else:
        program, activity, tiled = _timed_workload(workload, for_workload, chosen, timesteps, batch)
    if dump is not None:
        write_atomically(dump, listing(program, [span.cycles for span in tiled.spans]))
    if superstep:
        say(str(explain(program, chosen, superstep, tile, activity, timestep)))
        return
    for line in _slowest_first(tiled):
        say(line)


def _timed_kernel(path: Path, machine: MimdMachine) -> tuple[Program, RecordedActivity, TiledProfile]:
    from mimdsim.checking.kernel_file import load_kernel

    result = load_kernel(path).check(machine, strict=False)
    if result.program is None or result.activity is None or result.tiled is None:
        raise DescriptionError(str(path), [f"cannot be timed:\n{result}"])
    return result.program, result.activity, result.tiled


def _timed_workload(
    name: str, changes: dict[str, Any], machine: MimdMachine, timesteps: int, batch: int
) -> tuple[Program, RecordedActivity, TiledProfile]:
    """On the spikes of one run with random inputs, as `check` draws them."""
    from mimdsim.checking.program import shrunk
    from mimdsim.checking.test_inputs import DRAWS, drawn_inputs
    from mimdsim.execution import Executor
    from mimdsim.pipeline import compile_workload, retime
    from mimdsim.workload import load_workload

    small = shrunk(load_workload(name, changes), timesteps, batch, machine)
    compiled = compile_workload(small, machine, must_fit=False)
    executor = Executor(compiled.program)
    given = drawn_inputs(compiled.network, DRAWS[0])
    executor.write({key: value for key, value in given.items() if key in compiled.program.inputs})
    executor.run()
    activity = executor.activity()
    say(f"at {counted(small.data.timesteps, 'timestep')} and batch {small.training.batch}, for random spikes")
    return compiled.program, activity, retime(compiled, machine, activity)


def _slowest_first(tiled: TiledProfile) -> list[str]:
    """All supersteps with number, cycles and share."""
    order = sorted(range(len(tiled.spans)), key=lambda at: (-tiled.spans[at].cycles, at))
    widest = max((len(span.name) for span in tiled.spans), default=0)
    lines = [
        f"{tiled.cycles:,} cycles a {tiled.run_name} on {tiled.machine}",
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
