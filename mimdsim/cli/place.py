"""The command that searches for mappings: `mimdsim place`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mimdsim.base.console import FILE_TO_WRITE, say
from mimdsim.base.errors import DescriptionError, shortened
from mimdsim.cli.options import MACHINE, PROCESSES, SET, VERBOSE, WORKLOAD, Output, output

if TYPE_CHECKING:
    from mimdsim.search import SearchResult

OBJECTIVES = ("time", "memory", "energy", "product")


@click.command("place", short_help="Search for the best mapping of a workload on a machine.")
@WORKLOAD
@MACHINE
@click.option(
    "--objective", type=click.Choice(OBJECTIVES), default="time", show_default=True, help="Quantity to minimise."
)
@click.option(
    "--within", default="", metavar="LIMITS", help='Limits, e.g. "max memory 400 KiB, max tiles 1000, max time 2 ms".'
)
@click.option(
    "--fill",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Fill every list of spikes to this share of its capacity.",
)
@click.option(
    "--training-steps", type=click.IntRange(min=1), help="Record spikes after so many training steps instead."
)
@click.option("--candidates", type=click.IntRange(min=1), default=240, show_default=True, help="Mappings to evaluate.")
@PROCESSES
@click.option("--out", type=FILE_TO_WRITE, metavar="FILE", help="Write the best mapping here (TOML).")
@click.option("--smallest-sram", is_flag=True, help="Find the smallest SRAM (tile.sram_bytes) with a feasible mapping.")
@click.option("--batch", "batches", default="", metavar="B1,B2,...", help="Find the batch with the highest throughput.")
@SET
@output
def place_command(
    workload: str,
    machine: str,
    objective: str,
    training_steps: int | None,
    out: Path | None,
    smallest_sram: bool,
    batches: str,
    changes: tuple[str, ...],
    shown: Output,
    **more: Any,
) -> None:
    """Search for the best mapping of WORKLOAD on MACHINE: how every layer is cut, and the form of the program."""
    from mimdsim.pipeline.overrides import parse_changes

    if smallest_sram and objective not in ("time", "memory"):
        raise DescriptionError("place", [f"--smallest-sram is the objective memory; leave out --objective {objective}"])
    if smallest_sram and batches:
        problem = "--smallest-sram is of one batch; leave out --batch, and give each with --set training.batch=B"
        raise DescriptionError("place", [problem])
    for_workload, for_machine = parse_changes(changes)
    given = more | {"objective": "memory" if smallest_sram else objective, "training_steps": training_steps or 0}
    changed = for_workload | for_machine
    sizes = _sizes(batches)
    if sizes:
        _place_batches(workload, machine, sizes, changed, given, out, shown)
        return
    from mimdsim import api
    from mimdsim.search.render import compared_lines, result_lines, result_record, smallest_lines

    with shown.bars() as bars:
        found = api.place(
            workload, machine, changes=changed, out=out, smallest=smallest_sram, progress=bars.show, **given
        )
    written = _written(out, workload, machine)
    least = smallest_lines(found) if smallest_sram else ()
    if not training_steps:
        full = f"{100 * more['fill']:g} % full"
        written.insert(0, f"All lists of spikes are {full}; with those of a training: --training-steps N")
    shown.show(
        out,
        short=lambda: [*compared_lines(found), *list(least)[1:2], *written, VERBOSE],
        everything=lambda: [*result_lines(found), *least, *written],
        record=lambda: result_record(found),
    )


def _sizes(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    wrong = [part for part in parts if not part.isdigit() or int(part) == 0]
    if wrong:
        raise DescriptionError("--batch", [f"{shortened(wrong[0])!r} is no batch; write e.g.  --batch 8,16,32"])
    sizes = [int(part) for part in parts]
    if twice := sorted({size for size in sizes if sizes.count(size) > 1}):
        raise DescriptionError("--batch", [f"{twice[0]} is given twice"])
    return sizes


def _place_batches(
    workload: str,
    machine: str,
    sizes: list[int],
    changes: dict[str, Any],
    given: dict[str, Any],
    out: Path | None,
    shown: Output,
) -> None:
    """The best mapping of every batch, and the batch with most samples a second."""
    from mimdsim import api
    from mimdsim.base.errors import DoesNotFit
    from mimdsim.search.render import result_record

    found: dict[int, SearchResult] = {}
    told = shown.form in ("short", "verbose")
    if told:
        say("batch  samples/s  ms per training step  peak bytes  published samples/s")
    for size in sizes:
        try:
            with shown.bars() as bars:
                one = api.place(
                    *(workload, machine), changes=changes | {"training.batch": size}, progress=bars.show, **given
                )
        except DoesNotFit as refusal:
            say(f"{size:>5}  {refusal}", err=not told)
            continue
        found[size] = one
        for line in _batch_lines(size, one) if told else ():
            say(line, bad=line.startswith("!"))
    if not found:
        raise DoesNotFit("no batch fits; give smaller ones, or a machine with more memory (tile.sram_bytes)")
    most = max(found, key=lambda size: size / found[size].best.seconds)
    if out is not None:
        api.write_found(out, found[most], workload, machine, changes | {"training.batch": most})
    best = f"Batch {most} gives most samples per second: {most / found[most].best.seconds:,.0f}."
    lines = ["", best, *_written(out, workload, machine)]
    shown.show(
        out,
        short=lambda: lines,
        everything=lambda: lines,
        record=lambda: {"best_batch": most, "batches": {str(size): result_record(one) for size, one in found.items()}},
    )


def _batch_lines(size: int, one: SearchResult) -> Iterator[str]:
    first = one.published
    published = f"{size / first.seconds:,.0f}" if first is not None and first.fits else "does not fit"
    yield (
        f"{size:>5}  {size / one.best.seconds:>9,.0f}  {1e3 * one.best.seconds:>20.4g}  "
        f"{one.best.figures.peak_bytes:>10,}  {published:>19}"
    )
    yield from (f"! batch {size}: {line}." for line in one.warnings)


def _written(out: Path | None, workload: str, machine: str) -> list[str]:
    return [] if out is None else ["", f"Written: {out}; use it with  mimdsim run {workload} {machine} --mapping {out}"]
