"""The commands that say whether a program is right and where its cycles go: `mimdsim check` and `mimdsim explain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mimdsim.base.console import say
from mimdsim.base.errors import DescriptionError
from mimdsim.base.paths import FILE_TO_WRITE, PATH
from mimdsim.base.progress import Bars
from mimdsim.base.units import counted

if TYPE_CHECKING:
    from mimdsim.machine import MimdMachine
    from mimdsim.profile import TiledProfile
    from mimdsim.program import Program, RecordedActivity

OUT_OF_TOLERANCE = 3
WORKLOAD = click.argument("workload", default="digits")
SET = click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a field, e.g. --set training.epochs=2."
)
TIMESTEPS = click.option(
    "--timesteps",
    default=6,
    show_default=True,
    type=click.IntRange(min=0),
    help="Shorten sequences to this many timesteps; 0 keeps them.",
)
BATCH = click.option(
    "--batch", default=8, show_default=True, type=click.IntRange(min=0), help="Reduce the batch to this; 0 keeps it."
)


@click.command("check", short_help="Check a mapping or a kernel: rules, memory and values.")
@WORKLOAD
@click.argument("machine", default="bow")
@click.option("--program", type=PATH, help="Python file with build(subject) -> Program.")
@click.option(
    "--reference", default="reference", metavar="NAME", help="A kernel's reference function (default: reference)."
)
@click.option("--out", type=PATH, help="Folder for the report of a kernel.")
@click.option("--strict", is_flag=True, help="Also run vertex by vertex on poisoned memory (slow).")
@TIMESTEPS
@BATCH
@click.option("--references", "references", is_flag=True, help="Compare predictions with published figures instead.")
@click.option("--data", type=PATH, help="N-MNIST folder for the references' activity.")
@click.option("--page", type=FILE_TO_WRITE, metavar="FILE.md", help="Also write the references as a page.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("files", nargs=-1, type=PATH)
@SET
@click.pass_context
def check_command(
    context: click.Context,
    workload: str,
    machine: str,
    program: Path | None,
    reference: str,
    out: Path | None,
    strict: bool,
    timesteps: int,
    batch: int,
    references: bool,
    data: Path | None,
    page: Path | None,
    as_json: bool,
    files: tuple[Path, ...],
    changes: tuple[str, ...],
) -> None:
    """Check a mapping: rules, memory, and every value against an interpreter of the graph.

    A WORKLOAD that ends in .py is a kernel: a file with build(machine) and a numpy reference for its values.
    With --references, arguments are tables of published figures, by path or by name (default: those that come with
    mimdsim).
    """
    if references:
        code = _check_references(_reference_files(workload, machine, files), data, page, as_json)
        context.exit(code)
    if page:
        raise DescriptionError("check", [f"--page {page} is for --references; add it"])
    if files:
        raise DescriptionError("check", [f"unexpected arguments {[str(name) for name in files]} without --references"])
    from mimdsim import api
    from mimdsim.base.files import folders_to_write
    from mimdsim.run.changes import parse_changes

    for_workload, for_machine = parse_changes(changes)
    with folders_to_write(*((out,) if out else ())), Bars() as bars:
        found = api.check(
            *(workload, machine),
            program=program,
            changes=for_workload | for_machine,
            strict=strict,
            timesteps=timesteps,
            batch=batch,
            reference=reference,
            report=out,
            progress=bars.show,
        )
    if as_json:
        import dataclasses

        from mimdsim.base.files import dump_json

        say(dump_json([dataclasses.asdict(finding) for finding in found.findings]), nl=False)
    else:
        say(str(found))
        if out is not None:
            say(f"\nReport: {out / 'report.html'}")
    context.exit(0 if found.passed else 1)


def _reference_files(workload: str, machine: str, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """The positional arguments of `check --references` are tables; the two defaults mean none was given."""
    from mimdsim.check.published.references import find_table

    named = [text for text, default in ((workload, "digits"), (machine, "bow")) if text != default]
    return tuple(map(find_table, (*named, *map(str, files))))


def _check_references(files: tuple[Path, ...], data: Path | None, page: Path | None, as_json: bool) -> int:
    from mimdsim.base.files import folders_to_write
    from mimdsim.check.published.page import write_page
    from mimdsim.check.published.reference_table import rows_as_json, table
    from mimdsim.check.published.references import check_files, default_files

    with folders_to_write(*((page.parent,) if page else ())), Bars() as bars:
        rows = check_files(files or default_files(), data, bars.show)
    if page:
        write_page(page, rows, with_data=data is not None, files=tuple(path.name for path in files))
    if as_json:
        say(rows_as_json(rows), nl=False)
    else:
        for line in table(rows):
            say(line)
    return OUT_OF_TOLERANCE if any(row.within is False for row in rows) else 0


@click.command("explain", short_help="Explain the cycles of a superstep, down to its vertices.")
@WORKLOAD
@click.argument("machine", default="bow")
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
    from mimdsim.run.changes import load_tiled, parse_changes
    from mimdsim.timing import explain

    for_workload, for_machine = parse_changes(changes)
    chosen = load_tiled(machine, for_machine)
    if workload.endswith(".py"):
        no_workload_changes(for_workload)
        program, activity, tiled = _timed_kernel(Path(workload), chosen)
    else:
        program, activity, tiled = _timed_workload(workload, for_workload, chosen, timesteps, batch)
    if dump is not None:
        _write_listing(dump, program, tiled)
    if superstep:
        say(str(explain(program, chosen, superstep, tile, activity, timestep)))
        return
    for line in _slowest_first(tiled):
        say(line)


def _write_listing(path: Path, program: Program, tiled: TiledProfile) -> None:
    from mimdsim.base.files import write_atomically
    from mimdsim.program.listing import listing

    write_atomically(path, listing(program, [span.cycles for span in tiled.spans]))


def _timed_kernel(path: Path, machine: MimdMachine) -> tuple[Program, RecordedActivity, TiledProfile]:
    from mimdsim.check.kernel_file import load_kernel

    result = load_kernel(path).check(machine, strict=False)
    if result.program is None or result.activity is None or result.tiled is None:
        raise DescriptionError(str(path), [f"cannot be timed:\n{result}"])
    return result.program, result.activity, result.tiled


def _timed_workload(
    name: str, changes: dict[str, Any], machine: MimdMachine, timesteps: int, batch: int
) -> tuple[Program, RecordedActivity, TiledProfile]:
    """On the spikes of one run with random inputs, as `check` draws them."""
    from mimdsim.check.draws import DRAWS, drawn_inputs
    from mimdsim.check.program import shrunk
    from mimdsim.functional import Executor
    from mimdsim.run import compile_workload, retime

    small = shrunk(name, changes, timesteps, batch)
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
