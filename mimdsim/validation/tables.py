"""Predictions next to published figures: one row each, with ratio, tolerance, interval and source.

A file is recognised by its columns. Nothing is fitted to any row; rows that cannot be computed say why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from mimdsim.base.csv_table import parse_table
from mimdsim.base.errors import DataFileError, MimdsimError, shortened, suggest
from mimdsim.base.files import parse_json, read_bounded_text
from mimdsim.base.search_path import files_of, looked_in, own_folder, several
from mimdsim.machine import MimdMachine
from mimdsim.validation.chips import CHIPS
from mimdsim.validation.framework_steps import FRAMEWORK_STEPS
from mimdsim.validation.gpus.event_rows import EVENT_DRIVEN
from mimdsim.validation.gpus.networks import predict_snn_row
from mimdsim.validation.gpus.products import predict_gemm_row, product_flops
from mimdsim.validation.gpus.training_steps import GPU_STEPS
from mimdsim.validation.products.rows import (
    NEEDED,
    predict_tiled_gemm_row,
    predict_tiled_product,
    tiled_gemm_bearing,
    tiled_product_bearing,
)
from mimdsim.validation.reference_table import Asked, Cells, Fields, Progress, ReferenceTable, Row, around, silent
from mimdsim.validation.silicon.gather import GATHERS
from mimdsim.validation.silicon.loops import LOOPS
from mimdsim.validation.silicon.vertices import TILE_VERTICES
from mimdsim.validation.sparse.rows import SPARSE_PRODUCTS
from mimdsim.validation.stencil.rows import STENCIL_PHASES
from mimdsim.validation.stencil.solver_rows import SOLVER_STEPS
from mimdsim.validation.training_runs import TRAINING_STEPS, golden_rows
from mimdsim.validation.vendor.registry import vendor_cycles

MAX_REFERENCE_BYTES = 32 << 20
MOST_TOLERANCE = 1.0
UNITS = {"tflops": "TFLOP/s"}  # of metrics of products; of all others cycles
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
    """Rows of tables of published figures, by path or name, next to their predictions (default: the tables that come
    with mimdsim). data: recordings for rows of training steps. Raises DataFileError for tables that cannot be read."""
    files = tuple(find_table(str(table)) for table in several(tables))
    return check_files(files or default_files(), None if data is None else Path(data), progress)


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


def cells_of(path: Path, column: str) -> dict[int, str]:
    """The cells of a column of a CSV table that are not empty, by line; empty if it has no such column."""
    if path.suffix == ".json":
        return {}
    table = parse_table(path, read_bounded_text(path, MAX_REFERENCE_BYTES)).spelt({column})
    return {row.number: row[column] for row in table.rows if row.get(column)}


def _vendor_row(row: Cells, _asked: Asked) -> Fields:
    fields = {
        "name": f"{row['codelet']} {row['dtype']} {row['params']}",
        "unit": f"{row['scope']} cycles",
        "published": row.number("cycles"),
        "tolerance": 0.01,
        "source": row.get("vendor_source", ""),
        "kind": f"{row['scope']} cycles",
    }
    try:
        parameters = dict(part.split("=", 1) for part in row["params"].split(";") if part)
        cycles = vendor_cycles(row["codelet"], row["dtype"], parameters)
    except MimdsimError as refusal:
        return fields | {"note": str(refusal)}
    except ValueError:
        return fields | {"note": f"params '{row['params']}' are not key=value;..."}
    except ArithmeticError as failure:  # a count of units or bytes that is 0
        return fields | {"note": f"the formula has no result for params '{row['params']}' ({failure})"}
    if cycles is None:
        return fields | {"note": "no formula for this codelet"}
    return fields | around(float(cycles), 0.0)


def _gemm_row(row: Cells, _asked: Asked) -> Fields:
    published = row.number("time_us")
    tiled = row["gpu"].startswith("IPU")
    seconds, note = (predict_tiled_gemm_row if tiled else predict_gemm_row)(row)
    batched = ", batched" if row["batch"] not in ("", "1") else ""
    shape = f"{row['M']}x{row['N']}x{row['K']}" + (f" batch {row['batch']}" if row["batch"] != "1" else "")
    return {
        **around(None if seconds is None else 1e6 * seconds, 0.2),
        "name": f"{row['gpu']} {row['dtype']} {shape}",
        "unit": "us",
        "published": published,
        "tolerance": 0.30,
        "source": row["source"],
        "note": "" if seconds is not None else note,
        "kind": f"{row['gpu']} {row['dtype']}{batched}",
        "size": product_flops(row),
        "bearing": tiled_gemm_bearing(row, row.line, published) if tiled and seconds is not None else None,
    }


def _tiled_product_row(row: Cells, _asked: Asked) -> Fields:
    predicted, low, high, note = predict_tiled_product(row)
    published = row.number("value")
    if predicted is not None and row["unit"] != (unit := UNITS.get(row["metric"], "cycles")):
        predicted, note = None, f"{row['metric']} is in {unit}, not in '{shortened(row['unit'])}'"
    return {
        "name": f"{row['operation']} {row['machine']} {row['dtype']} {row['m']}x{row['k']}x{row['n']} "
        f"{row['variant']} {row['metric']}",
        "unit": row["unit"],
        "predicted": predicted,
        "published": published,
        "tolerance": row.number("tolerance", default=0.15),
        "low": low,
        "high": high,
        "source": row.get("source", ""),
        "note": note,
        "kind": f"{row['operation']} {row['metric']}",
        "bearing": None if predicted is None else tiled_product_bearing(row, row.line, published),
    }


def _gpu_snn_row(row: Cells, _asked: Asked) -> Fields:
    told = predict_snn_row(row)
    seconds, (low, high) = told.seconds, told.spread
    marks = [f" {mark}={row[name]}" for mark, name in (("B", "batch_B"), ("T", "steps_T")) if row.get(name)]
    return {
        "unit": "s",
        "name": f"{row['gpu']} {row['framework']} {row['metric']} N={row['neurons_or_layers']}{''.join(marks)}",
        "predicted": seconds,
        "published": row.number("value_s"),
        "tolerance": told.tolerance,
        "low": None if seconds is None else low * seconds,
        "high": None if seconds is None else high * seconds,
        "source": row["source"],
        "note": "" if seconds is not None else told.note,
        "kind": f"{row['framework']} {row['metric']}",
    }


FORMATS: tuple[ReferenceTable, ...] = (
    ReferenceTable(
        needed={"codelet", "scope", "dtype", "params", "cycles"},
        also={"vendor_source"},
        predict_row=_vendor_row,
        on="",
    ),
    ReferenceTable(
        needed={"gpu", "dtype", "batch", "M", "N", "K", "time_us", "source"},
        also={"includes_host_overhead_us", "kernel"},
        predict_row=_gemm_row,
        on="",
    ),
    ReferenceTable(needed=NEEDED, also={"clock_hz", "partials", "tolerance", "source"}, predict_row=_tiled_product_row),
    ReferenceTable(
        needed={"gpu", "framework", "metric", "neurons_or_layers", "value_s", "source"},
        also={"batch_B", "steps_T", "task", "dtype", "exec_style", "timing_valid"},
        ignored={"gpu_basis", "peak_mem_bytes"},
        predict_row=_gpu_snn_row,
        on="",
    ),
    TRAINING_STEPS,
    FRAMEWORK_STEPS,
    STENCIL_PHASES,
    *SOLVER_STEPS,
    SPARSE_PRODUCTS,
    TILE_VERTICES,
    LOOPS,
    GATHERS,
    CHIPS,
    EVENT_DRIVEN,
    GPU_STEPS,
)
