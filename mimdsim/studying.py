"""The commands that time many points: `mimdsim study` and `mimdsim sweep`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mimdsim.base.console import say, says_how_to_go_on
from mimdsim.base.errors import DescriptionError, MimdsimError
from mimdsim.base.paths import FILE_TO_WRITE, PATH
from mimdsim.base.progress import Bars
from mimdsim.base.units import counted
from mimdsim.checking import WORKLOAD
from mimdsim.placing import MAPPING

if TYPE_CHECKING:
    from mimdsim.study import Studied, Study

PROCESSES = click.option("--processes", type=click.IntRange(min=1), help="Local processes (default: all processors).")
DASK = click.option(
    "--dask",
    metavar="ADDRESS",
    help=(
        "Work on the cluster of this Dask scheduler (tcp://HOST:PORT). Dask unpickles what it receives: use one that "
        "only you can reach, or tls:// with certificates."
    ),
)
OUT = click.option("--out", type=PATH, help="Folder to write to and to resume from.")


@click.command("study", short_help="Answer the question of a study.")
@click.argument("study")
@OUT
@PROCESSES
@DASK
@click.option("--as-is", is_flag=True, help="Compute nothing: answer from the points that are done.")
def study_command(study: str, out: Path | None, processes: int | None, dask: str | None, as_is: bool) -> None:
    """Compute the points of STUDY, a name that `mimdsim list` shows or a TOML file, and answer its question from them.

    Points are kept as they are done: the same command continues where it stopped.
    """
    from mimdsim import api
    from mimdsim.study import read_study
    from mimdsim.study.files import write_report
    from mimdsim.study.told import answer_lines

    given = read_study(study)
    folder = out or Path("reports") / f"{Path(study).stem}-study"
    with _in_file(study):
        studied = _studied(folder, partial(api.study, given, folder, processes=processes, dask=dask, as_is=as_is))
    for line in answer_lines(studied):
        say(line, bad=line.startswith("!"))
    _said_written(studied, write_report(studied, folder) if studied.files else ())


@click.command("sweep", short_help="Time every combination of field values.")
@WORKLOAD
@click.argument("machine", default="bow")
@click.option(
    "--set",
    "axes",
    multiple=True,
    required=True,
    metavar="KEY=V1,V2,...",
    help="A field of workload or machine and its values; repeat for a grid.",
)
@OUT
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
@click.option("--best-mapping", is_flag=True, help="Time every point with the best mapping that a search finds.")
@click.option("--candidates", type=click.IntRange(min=1), default=120, show_default=True, help="Of each such search.")
@click.option("--save", type=FILE_TO_WRITE, metavar="FILE", help="Write the sweep as a study file too.")
@MAPPING
def sweep_command(
    workload: str,
    machine: str,
    axes: tuple[str, ...],
    out: Path | None,
    processes: int | None,
    dask: str | None,
    training_steps: int,
    gpus: tuple[str, ...],
    fill: float | None,
    best_mapping: bool,
    candidates: int,
    save: Path | None,
    mapping: Path | None,
) -> None:
    """Time WORKLOAD for every combination of values, e.g. --set tile.worker_contexts=3,6,12.

    A sweep is a study of one workload whose points are a grid; --save writes it as a file for `mimdsim study`.
    """
    from mimdsim import api
    from mimdsim.study import make_study, note_lines, parse_axes, table_lines, write_figures, write_study
    from mimdsim.study.files import write_report
    from mimdsim.study.told import firing_words

    if best_mapping and mapping is not None:
        raise DescriptionError(
            "sweep", [f"--best-mapping finds a mapping for every point: leave out --mapping {mapping}"]
        )
    given = make_study(
        "sweep",
        workloads=[workload],
        machine=machine,
        axes=parse_axes(axes),
        training_steps=training_steps,
        gpus=gpus,
        fill=fill,
        mapping="best" if best_mapping else "published" if mapping is None else str(mapping),
        candidates=candidates,
    )
    folder = out or Path("reports") / f"{Path(workload).stem}-{Path(machine).stem}-sweep{_mark(given)}"
    if save is not None:
        write_study(given, save, command=f"mimdsim study {save}")
    studied = _studied(folder, partial(api.study, given, folder, processes=processes, dask=dask))
    rows, names, beside = list(studied.rows), list(given.axes), tuple(Path(gpu).stem for gpu in gpus)
    files = [*write_figures(rows, names, folder, beside), *write_report(studied, folder)]
    doubted = [f"! {line}" for line in firing_words(studied)]
    for line in (*doubted, *table_lines(rows, names, beside), *note_lines(rows, names, trained=fill is None)):
        say(line, bad=line.startswith("!"))
    length = f"after {training_steps} training steps" if training_steps else "after the whole training"
    spikes = f"Spikes recorded {length} (--training-steps)" if fill is None else f"Lists filled to {fill:.0%} (--fill)"
    say(f"\n{spikes}. The same command continues where this one stopped.")
    _said_written(studied, files)


def _mark(sweep: Study) -> str:
    """A suffix for a folder's name, so that a sweep over other fields, or otherwise, never takes one's place."""
    from mimdsim.base.files import changes_mark

    table = sweep.model_dump(mode="json", exclude={"workloads", "machine"})
    return changes_mark(table | {"axes": list(sweep.axes)})


def _studied(folder: Path, compute: Callable[..., Studied]) -> Studied:
    from mimdsim.base.files import folders_to_write

    with says_how_to_go_on(lambda: _kept_points(folder)), folders_to_write(folder), Bars() as bars:
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
    from mimdsim.study.store import count_rows

    saved = counted(count_rows(folder), "point is", "points are")
    return f"{saved} saved in {folder}; the same command continues from there"


def _said_written(studied: Studied, more: Sequence[Path] = ()) -> None:
    for line in studied.warnings:
        say(f"! {line}")
    if written := [str(path) for path in (*studied.files, *more)]:
        say("Written: " + ", ".join(written))
    if studied.failed:
        of = f"{studied.failed:,} of {counted(len(studied.rows), 'point')}"
        raise MimdsimError(f"{of} {'has' if studied.failed == 1 else 'have'} no result; the notes above say why")
