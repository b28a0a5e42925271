"""`mimdsim study`: many points, and what they answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mimdsim.base.console import Bars, explain_interrupt, say
from mimdsim.base.errors import DescriptionError, MimdsimError
from mimdsim.base.units import counted
from mimdsim.cli.options import DASK, PROCESSES, STUDY_FOLDER

if TYPE_CHECKING:
    from mimdsim.studies import StudyResult


@click.command("study", short_help="Answer the question of a study.")
@click.argument("study")
@STUDY_FOLDER
@PROCESSES
@DASK
@click.option("--as-is", is_flag=True, help="Answer from finished points only; omit it to run the rest.")
def study_command(study: str, out: Path | None, **how: Any) -> None:
    """Compute the points of STUDY, a name that `mimdsim list` shows or a TOML file, and answer its question from them.

    Points are kept as they are done: the same command continues where it stopped.
    """
    from mimdsim import api
    from mimdsim.studies import read_study
    from mimdsim.studies.answer_text import answer_lines
    from mimdsim.studies.page_data import write_report

    given = read_study(study)
    folder = out or Path("reports") / f"{Path(study).stem}-study"
    with _in_file(study):
        studied = compute_points(folder, partial(api.study, given, folder, **how))
    for line in answer_lines(studied):
        say(line, bad=line.startswith("!"))
    say_written(studied, write_report(studied, folder) if studied.files else ())


def compute_points(folder: Path, compute: Callable[..., StudyResult]) -> StudyResult:
    from mimdsim.base.files import folders_to_write

    with explain_interrupt(lambda: _kept_points(folder)), folders_to_write(folder), Bars() as bars:
        return compute(progress=bars.show)


@contextlib.contextmanager
def _in_file(study: str) -> Iterator[None]:
    """What is wrong with a study is said of its file, which sets no fields by --set."""
    try:
        yield
    except DescriptionError as problem:
        where = study if problem.where == "study" else f"{study}: {problem.where.removeprefix('--set ')}"
        said = [line.replace(" (by --set)", " (by the study)") for line in problem.problems]
        raise DescriptionError(where, said, more=problem.more) from None


def _kept_points(folder: Path) -> str:
    from mimdsim.studies.store import count_rows

    saved = counted(count_rows(folder), "point is", "points are")
    return f"{saved} saved in {folder}; the same command continues from there"


def say_written(studied: StudyResult, more: Sequence[Path] = ()) -> None:
    for line in studied.warnings:
        say(f"! {line}")
    if written := [str(path) for path in (*studied.files, *more)]:
        say("Written: " + ", ".join(written))
    if studied.failed:
        of = f"{studied.failed:,} of {counted(len(studied.rows), 'point')}"
        raise MimdsimError(f"{of} {'has' if studied.failed == 1 else 'have'} no result; the notes above say why")
