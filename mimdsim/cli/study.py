"""`mimdsim study`: many points, and what they answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mimdsim.base.console import explain_interrupt
from mimdsim.base.errors import AS_CHANGED, DescriptionError, MimdsimError
from mimdsim.base.units import counted
from mimdsim.cli.options import DASK, PROCESSES, STUDY_FOLDER, VERBOSE, Output, output

if TYPE_CHECKING:
    from mimdsim.studies import StudyResult


@click.command("study", short_help="Answer the question of a study.")
@click.argument("study")
@STUDY_FOLDER
@PROCESSES
@DASK
@click.option("--as-is", is_flag=True, help="Answer from finished points only; omit it to run the rest.")
@output
def study_command(study: str, out: Path | None, shown: Output, **how: Any) -> None:
    """Compute the points of STUDY, a name that `mimdsim list` shows or a TOML file, and answer its question from them.

    Points are kept as they are done: the same command continues where it stopped.
    """
    from mimdsim import api
    from mimdsim.studies import read_study
    from mimdsim.studies.answer_text import answer_lines, short_answer
    from mimdsim.studies.page_data import write_report

    given = read_study(study)
    folder = out or Path("reports") / f"{Path(study).stem}-study"
    with _in_file(study):
        studied = compute_points(folder, partial(api.study, given, folder, **how), shown)
    files = [*studied.files, *(write_report(studied, folder) if studied.files else ())]
    show_points(studied, folder, files, shown, short=short_answer, everything=answer_lines)


def compute_points(folder: Path, compute: Callable[..., StudyResult], shown: Output) -> StudyResult:
    from mimdsim.base.files import folders_to_write

    with explain_interrupt(lambda: _kept_points(folder)), folders_to_write(folder), shown.bars() as bars:
        return compute(progress=bars.show)


@contextlib.contextmanager
def _in_file(study: str) -> Iterator[None]:
    """What is wrong with a study is said of its file, which sets no fields by --set."""
    try:
        yield
    except DescriptionError as problem:
        where = study if problem.where == "study" else f"{study}: {problem.where.removeprefix('--set ')}"
        said = [line.replace(AS_CHANGED, " (by the study)") for line in problem.problems]
        raise DescriptionError(where, said, more=problem.more) from None


def _kept_points(folder: Path) -> str:
    from mimdsim.studies.store import count_rows

    saved = counted(count_rows(folder), "point is", "points are")
    return f"{saved} saved in {folder}; the same command continues from there"


def show_points(
    studied: StudyResult,
    folder: Path,
    files: Sequence[Path],
    shown: Output,
    *,
    short: Callable[[StudyResult], Iterable[str]],
    everything: Callable[[StudyResult], Iterable[str]],
) -> None:
    """Print what the points answer. Raises MimdsimError where points have no result."""
    from mimdsim.studies.answer_text import answer_record

    warned = [f"! {line}" for line in studied.warnings]
    page = [path for path in files if path.suffix == ".html"] or list(files)
    shown.show(
        folder,
        short=lambda: [*short(studied), *warned, *(f"Report: {path}" for path in page[:1]), VERBOSE],
        everything=lambda: [*everything(studied), *warned, *["Written: " + ", ".join(map(str, files))] * bool(files)],
        record=lambda: answer_record(studied),
    )
    if studied.failed:
        of = f"{studied.failed:,} of {counted(len(studied.rows), 'point')}"
        raise MimdsimError(f"{of} {'has' if studied.failed == 1 else 'have'} no result; the notes above say why")
