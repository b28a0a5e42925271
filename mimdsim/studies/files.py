"""The files of a study's results: `results.csv`, `results.parquet` where pyarrow is installed, the page `report.html`
with the study as `study.toml`, and figures of a grid.

Each is replaced as a whole while the study goes on. Every row says what it is of: workload, every varied field, seed,
version of mimdsim and digest of its resolved descriptions. Parquet also has the seconds that share a source.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mimdsim.base.atomic_folder import STUDY, refuse_other, replace_files
from mimdsim.base.errors import DescriptionError, MimdsimError, shortened
from mimdsim.base.files import write_atomically
from mimdsim.base.units import counted
from mimdsim.machine import MimdMachine
from mimdsim.report.tables import csv_text
from mimdsim.studies.description import Axis, Study, read_study, write_study
from mimdsim.studies.metrics import Row
from mimdsim.studies.results import DESCRIBED, INFERENCE_RESULTS, RESULTS, gpu_columns

TABLES = ("results.csv", "results.parquet")
STUDY_FILE = "study.toml"
SAID_ONLY = (
    "question",
    "question_kind",
    "practical_difference",
    "metrics",
    "constraints",
    "reference",
)  # keys of a study that add and drop no row
FIGURES = ("sweep.png", "crossover.png")


def other_study(study: Study, folder: Path) -> tuple[str, list[str]]:
    """Why the tables and the page in a folder are not to be replaced by those of a study: they are of another one, some
    of whose rows it lacks; '' where they may be. And a warning where it cannot be told what they are of.

    Raises MimdsimError for a folder of a run.
    """
    refuse_other(folder, STUDY)
    path, table = folder / STUDY_FILE, folder / TABLES[0]
    if not path.exists():
        unknown = f"which study {table} was of is unknown, as no {path.name} is beside it; it is replaced"
        return "", [unknown] if table.exists() else []
    try:
        before = read_study(path)
    except DescriptionError as problem:
        return "", [f"which study {folder} was of is unknown, as {path.name} cannot be read: {problem.problems[0]}"]
    why = [
        f"{key} = {_named(getattr(before, key))}, here {_named(getattr(study, key))}"
        for key in Study.model_fields
        if key not in (*SAID_ONLY, "workloads", "axes", "sampling") and getattr(before, key) != getattr(study, key)
    ]
    why += [f"workload {name}" for name in before.workloads if name not in study.workloads]
    if list(before.axes) != list(study.axes):
        why.append(f"over {', '.join(before.axes) or 'nothing'}, here over {', '.join(study.axes) or 'nothing'}")
    else:
        why += [f"other values of {key}" for key in study.axes if not _holds(study.axes[key], before.axes[key])]
    if before.sampling.model_copy(update={"points": 0}) != study.sampling.model_copy(update={"points": 0}):
        why.append("other sampling")
    if before.sampling.points > study.sampling.points:
        why.append(f"{counted(before.sampling.points, 'point')}, here {study.sampling.points:,}")
    if not why:
        return "", []
    return (
        f"{folder}: holds another study or sweep ({shortened('; '.join(why), 300)}); choose another folder with --out, "
        f"or delete {path} to have its tables and page replaced"
    ), []


def _named(value: Any) -> str:
    return value.name if isinstance(value, MimdMachine) else repr(value)


def _holds(axis: Axis, before: Axis) -> bool:
    """Whether an axis has all values that it had before."""
    if axis.values and before.values:
        return all(value in axis.values for value in before.values)
    return axis == before


def write_tables(rows: Sequence[Row], study: Study, folder: Path) -> list[Path]:
    """The rows as CSV, and as Parquet if pyarrow is installed, each point once, however often a plan asks for it, and
    the study that they are of; returns the paths of the tables."""
    rows = list({repr([row[name] for name in ("workload", *study.varied)]): row for row in rows}.values())
    beside = [column for name in study.gpus for column in gpu_columns(Path(name).stem)]
    beside += INFERENCE_RESULTS if study.infers else ()
    columns = [
        "workload",
        *study.varied,
        *RESULTS,
        *beside,
        "note",
        *(name for name in DESCRIBED if name not in study.varied),
    ]
    contents: dict[str, str | bytes] = {
        "results.csv": csv_text(columns, ([row.get(column, "") for column in columns] for row in rows))
    }
    table = _parquet(rows, [*columns, "seconds_by_source"])
    if table is not None:
        contents["results.parquet"] = table
    with contextlib.suppress(MimdsimError):  # given from Python, it may hold values that no file can
        write_study(study, folder / STUDY_FILE)
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


def _parquet(rows: Sequence[Row], columns: list[str]) -> bytes | None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return None
    arrays = {name: _column(pyarrow, name, [row.get(name) for row in rows]) for name in columns}
    memory = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays), memory)
    return memory.getvalue()


def _column(pyarrow: Any, name: str, values: list[Any]) -> Any:
    """Values of one kind as they are; of several kinds (names and numbers of an axis) as text."""
    if name == "seconds_by_source":
        part = pyarrow.struct(
            [("source", pyarrow.string()), ("seconds", pyarrow.float64()), ("half_width", pyarrow.float64())]
        )
        parts = [[(name, float(seconds), float(reach)) for name, seconds, reach in value or ()] for value in values]
        return pyarrow.array(parts, pyarrow.list_(part))
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        values = [None if value is None else float(value) for value in values]
    elif len(kinds) > 1:
        values = [None if value is None else str(value) for value in values]
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):  # a kind that Arrow does not have
        return pyarrow.array([None if value is None else ascii(value) for value in values])


def write_figures(rows: list[Row], axes: list[str], folder: Path, gpus: tuple[str, ...] = ()) -> list[Path]:
    """sweep.png: the first axis goes along x, the others make the lines. With GPUs also crossover.png: the training
    step of each GPU as a multiple of the tiled machine's."""
    from mimdsim.report.figures_sweep import draw_crossover, draw_sweep
    from mimdsim.report.style import picture

    figures = {"sweep.png": draw_sweep(rows, axes), "crossover.png": draw_crossover(rows, axes, gpus)}
    drawn = {name: picture(figure) for name, figure in figures.items() if figure is not None}
    with replace_files(folder, FIGURES) as draft:
        for name, content in drawn.items():
            write_atomically(draft / name, content)
    return [folder / name for name in drawn]
