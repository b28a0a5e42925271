"""`mimdsim sweep`: a workload for every combination of values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mimdsim.base.console import FILE_TO_WRITE
from mimdsim.base.errors import DescriptionError
from mimdsim.base.units import counted
from mimdsim.cli.options import (
    BEST_MAPPING,
    CANDIDATES,
    DASK,
    MACHINE,
    MAPPING,
    PROCESSES,
    STUDY_FOLDER,
    WORKLOAD,
    Output,
    output,
)
from mimdsim.cli.study import compute_points, show_points

if TYPE_CHECKING:
    from mimdsim.studies import Study, StudyResult


@click.command("sweep", short_help="Time every combination of field values.")
@WORKLOAD
@MACHINE
@click.option(
    "--set",
    "axes",
    multiple=True,
    required=True,
    metavar="KEY=V1,V2,...",
    help="A field of workload or machine and its values; repeat for a grid.",
)
@STUDY_FOLDER
@PROCESSES
@DASK
@click.option(
    "--training-steps",
    default=20,
    show_default=True,
    type=click.IntRange(min=0),
    help="Training steps before spikes are recorded; 0: the workload's whole training.",
)
@click.option("--gpu", "gpus", multiple=True, help="Time every point on this GPU too; repeat for more.")
@click.option(
    "--fill",
    type=click.FloatRange(0, 1),
    help="Fill every list of spikes to this share of its capacity instead of training (1: saturated).",
)
@BEST_MAPPING
@CANDIDATES
@click.option("--save", type=FILE_TO_WRITE, metavar="FILE", help="Write the sweep as a study file too.")
@MAPPING
@output
def sweep_command(
    workload: str,
    machine: str,
    axes: tuple[str, ...],
    out: Path | None,
    processes: int | None,
    dask: str | None,
    best_mapping: bool,
    save: Path | None,
    mapping: Path | None,
    shown: Output,
    **more: Any,
) -> None:
    """Time WORKLOAD for every combination of values, e.g. --set tile.worker_contexts=3,6,12.

    A sweep is a study of one workload whose points are a grid; --save writes it as a file for `mimdsim study`.
    """
    from mimdsim import api
    from mimdsim.studies import make_study, parse_axes, write_figures, write_study
    from mimdsim.studies.page_data import write_report

    if best_mapping and mapping is not None:
        raise DescriptionError(
            "sweep", [f"--best-mapping finds a mapping for every point: leave out --mapping {mapping}"]
        )
    given = make_study(
        "sweep",
        workloads=[workload],
        machine=machine,
        axes=parse_axes(axes),
        mapping="best" if best_mapping else "published" if mapping is None else str(mapping),
        **more,
    )
    folder = out or Path("reports") / f"{Path(workload).stem}-{Path(machine).stem}-sweep{_mark(given)}"
    if save is not None:
        write_study(given, save, command=f"mimdsim study {save}")
    studied = compute_points(folder, partial(api.study, given, folder, processes=processes, dask=dask), shown)
    rows, beside = list(studied.rows), tuple(Path(gpu).stem for gpu in given.gpus)
    files = [*studied.files, *write_figures(rows, list(given.axes), folder, beside), *write_report(studied, folder)]
    show_points(
        studied, folder, files, shown, short=partial(_lines, narrow=True), everything=partial(_lines, narrow=False)
    )


def _lines(studied: StudyResult, *, narrow: bool) -> Iterator[str]:
    """The points as a table, with what is to be known of them. narrow: as a terminal shows it, in few columns."""
    from mimdsim.report.console import SHORT_LINES, folded_lines
    from mimdsim.studies import note_lines, table_lines
    from mimdsim.studies.answer_text import firing_warnings

    given, rows, names = studied.study, list(studied.rows), list(studied.study.axes)
    beside = tuple(Path(gpu).stem for gpu in given.gpus)
    warnings = [f"! {line}" for line in firing_warnings(studied)]
    notes = note_lines(rows, names, trained=given.fill is None)
    if narrow:
        first, prose = folded_lines(warnings), folded_lines(notes)
        table, most = table_lines(rows, names, beside, narrow=True), SHORT_LINES - 4 - len(first)
        room = max(most // 2, most - len(prose))
        more = [f"  and {counted(len(table) - room, 'more point')}"] * (len(table) > room)
        yield from [*first, *table[:room], *more, *prose[: most - min(room, len(table))]]
        return
    yield from (*warnings, *table_lines(rows, names, beside), *notes)
    if given.fill is None:
        length = f"{given.training_steps} training steps" if given.training_steps else "the whole training"
        spikes = f"Spikes recorded after {length} (--training-steps)"
    else:
        spikes = f"Lists filled to {given.fill:.0%} (--fill)"
    yield from ("", f"{spikes}. The same command continues where this one stopped.")


def _mark(sweep: Study) -> str:
    """A suffix for a folder's name, so that a sweep over other fields, or otherwise, never takes one's place."""
    from mimdsim.base.files import changes_mark

    table = sweep.model_dump(mode="json", exclude={"workloads", "machine"})
    return changes_mark(table | {"axes": list(sweep.axes)})
