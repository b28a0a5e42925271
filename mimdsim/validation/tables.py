"""Predictions next to published figures: one row each, with ratio, tolerance, interval and source.

A file is recognised by its columns. Nothing is fitted to any row; rows that cannot be computed say why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from mimdsim.base.console import Progress, silent
from mimdsim.base.csv_table import parse_table
from mimdsim.base.errors import DataFileError, shortened, suggest
from mimdsim.base.files import parse_json, read_bounded_text
from mimdsim.base.search_path import files_of, looked_in, own_folder, several
from mimdsim.base.shown import Listed, Sheet, brief
from mimdsim.base.units import counted
from mimdsim.machine import MimdMachine
from mimdsim.validation.chips import CHIPS
from mimdsim.validation.framework_steps import FRAMEWORK_STEPS
from mimdsim.validation.gpus.event_driven import EVENT_DRIVEN
from mimdsim.validation.gpus.networks import NETWORKS
from mimdsim.validation.gpus.products import CONVOLUTIONS, PRODUCTS
from mimdsim.validation.gpus.training_steps import GPU_STEPS
from mimdsim.validation.products import TILED_PRODUCTS
from mimdsim.validation.reference_table import Asked, ReferenceTable, Row
from mimdsim.validation.silicon.gather import GATHERS
from mimdsim.validation.silicon.transfers import EXCHANGE_AND_HOST, LOOPS, MEMORY, TRANSFERS
from mimdsim.validation.silicon.vertices import TILE_VERTICES
from mimdsim.validation.silicon.wafer import WAFERS
from mimdsim.validation.sparse.plan import SPARSE_PRODUCTS
from mimdsim.validation.stencil.blur import BLUR_SCALING, STENCIL_PHASES
from mimdsim.validation.stencil.solver_steps import SOLVER_STEPS
from mimdsim.validation.training_runs import TRAINING_STEPS, golden_rows
from mimdsim.validation.vendor import VENDOR_CODELETS

MAX_REFERENCE_BYTES = 32 << 20
MOST_TOLERANCE = 1.0
TABLES = (".csv", ".json")


def default_files() -> tuple[Path, ...]:
    """The tables that come with the package, or in their place those of the same name of the user."""
    own = (path.name for path in own_folder("references").iterdir() if path.suffix in TABLES)
    found = files_of("references", "")
    return tuple(found[name] for name in sorted(own))


def find_table(name: str) -> Path:
    """A table given by path, or by the name of its file where it lies among references (`base/search_path.py`).

    Raises DataFileError that names all places where it was looked for.
    """
    if "/" in name or os.path.exists(name):
        return Path(name)
    known = files_of("references", "")
    if name not in known:
        tables = (file for file in known if file.endswith(TABLES))
        raise DataFileError(name, f"no such file here nor in {looked_in('references')}{suggest(name, tables)}")
    return known[name]


def validate(
    tables: str | Path | Sequence[str | Path] = (), *, data: str | Path | None = None, progress: Progress = silent
) -> list[Row]:
    """Rows of tables of published figures next to their predictions.

    tables: by path or name (default: those that come with mimdsim). data: recordings for rows of training steps.
    progress: as in `run`. Raises DataFileError for tables that cannot be read.

        >>> all(row.within for row in mimdsim.validate("tile_mapping_golden.json"))
        True
    """
    files = tuple(find_table(str(table)) for table in several(tables))
    return Listed(check_files(files or default_files(), None if data is None else Path(data), progress), _compared)


def _compared(rows: Sequence[Row]) -> Sheet:
    """What is far off first."""
    named = {True: "yes", False: "no", None: "-"}
    cells = [
        (row.name, brief(row.published), brief(row.predicted), row.unit, brief(row.ratio), named[row.within], row.note)
        for row in sorted(rows, key=lambda row: -row.error)
    ]
    within = sum(bool(row.within) for row in rows)
    title = f"{counted(len(rows), 'published figure')}, {within:,} within tolerance; the farthest off first"
    return Sheet(title, cells, ("figure", "published", "predicted", "unit", "ratio", "within", "note"))


def check_files(
    files: tuple[Path, ...],
    data: Path | None,
    progress: Progress,
    machine: MimdMachine | None = None,
    most: int | None = None,
) -> list[Row]:
    """Rows of all files; machine: of rows that name none, instead of that of the published figures; most: rows of one
    file. Raises DataFileError for a file that is missing, too large or of unknown columns."""
    asked = Asked(data=data, progress=progress, machine=machine)
    recognised = [_recognised(path, most) for path in files]  # all of them before minutes of predicting the first
    return [_comparable(row) for predict in recognised for row in predict(asked)]


def _comparable(row: Row) -> Row:
    """The row, or why it cannot be compared: a figure that no measurement gives, or a tolerance of everything."""
    if row.predicted is None:
        return row
    wrong = ""
    if row.published is not None and row.published <= 0:
        wrong = f"a measured {row.published:g} {row.unit} is not above 0"
    elif not 0 <= row.tolerance <= MOST_TOLERANCE:
        wrong = f"a tolerance of {row.tolerance:g} is not from 0 to {MOST_TOLERANCE:g}"
    return replace(row, predicted=None, low=None, high=None, bearing=None, note=wrong, tolerance=0) if wrong else row


def _recognised(path: Path, most: int | None) -> Callable[[Asked], list[Row]]:
    """What predicts the rows of a file."""
    try:
        text = read_bounded_text(path, MAX_REFERENCE_BYTES)
    except FileNotFoundError:
        raise DataFileError(path, "no such file; validate takes tables as in references/README.md") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise DataFileError(path, f"cannot be read as text: {problem}") from None
    except ValueError:
        raise DataFileError(path, f"is over {MAX_REFERENCE_BYTES} bytes, not a table of figures") from None
    if path.suffix == ".json":
        try:
            cases = parse_json(text)
        except (ValueError, RecursionError) as problem:
            raise DataFileError(path, f"is not JSON: {shortened(str(problem), 300)}") from None
        return lambda _asked: [Row(file=path.name, **row) for row in golden_rows(path, cases)]
    table = parse_table(path, text)
    for form in FORMATS:
        spelt = table.spelt(form.read | form.unread)
        if form.needed <= set(spelt.columns):
            spelt.check_misspelt(form.read, form.unread)
            if not spelt.rows:
                raise DataFileError(path, "has a header but no rows; there is nothing to compare")
            if most is not None and len(spelt.rows) > most:  # before hours of predicting them
                advice = "leave out those of other machines, and give means of those alike"
                raise DataFileError(path, f"has {len(spelt.rows):,} rows; at most {most:,} are used: {advice}")
            return partial(form.rows, spelt)
    nearest = max(FORMATS, key=lambda form: len(form.needed & set(table.spelt(form.needed).columns)))
    if 2 * len(nearest.needed & set(table.spelt(nearest.needed).columns)) > len(nearest.needed):
        table.spelt(nearest.needed).check_misspelt(nearest.read, nearest.unread)
    known = "; ".join(", ".join(sorted(form.needed)) for form in FORMATS)
    raise DataFileError(
        path, f"has the columns {shortened(str(sorted(table.columns)), 300)}; known tables have at least: {known}"
    )


FORMATS: tuple[ReferenceTable, ...] = (
    VENDOR_CODELETS,
    PRODUCTS,
    CONVOLUTIONS,
    TILED_PRODUCTS,
    NETWORKS,
    TRAINING_STEPS,
    FRAMEWORK_STEPS,
    STENCIL_PHASES,
    BLUR_SCALING,
    *SOLVER_STEPS,
    SPARSE_PRODUCTS,
    TILE_VERTICES,
    LOOPS,
    GATHERS,
    EXCHANGE_AND_HOST,
    TRANSFERS,
    MEMORY,
    WAFERS,
    CHIPS,
    EVENT_DRIVEN,
    GPU_STEPS,
)
