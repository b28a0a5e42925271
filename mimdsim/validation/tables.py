"""Predictions next to published figures: one row each, with ratio, tolerance, interval and source.

A file is recognised by its columns. Nothing is fitted to any row; rows that cannot be computed say why.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mimdsim.base.csv_table import Table, numbered, parse_table
from mimdsim.base.errors import DataFileError, MimdsimError, shortened, suggest
from mimdsim.base.files import parse_json, read_bounded_text
from mimdsim.base.search_path import files_of, looked_in, own_folder, several
from mimdsim.machine import MimdMachine, list_machines, tiled_machine
from mimdsim.validation.chips import COLUMNS as CHIP_COLUMNS
from mimdsim.validation.chips import chip_rows
from mimdsim.validation.framework_steps import COLUMNS as FRAMEWORK_COLUMNS
from mimdsim.validation.framework_steps import framework_step_rows
from mimdsim.validation.gpus.event_rows import COLUMNS as EVENT_COLUMNS
from mimdsim.validation.gpus.event_rows import event_rows
from mimdsim.validation.gpus.networks import predict_snn_row
from mimdsim.validation.gpus.products import predict_gemm_row, product_flops
from mimdsim.validation.products.rows import (
    NEEDED,
    predict_tiled_gemm_row,
    predict_tiled_product,
    tiled_gemm_bearing,
    tiled_product_bearing,
)
from mimdsim.validation.sensitivity import Bearing
from mimdsim.validation.silicon.gather import COLUMNS as GATHER_COLUMNS
from mimdsim.validation.silicon.gather import gather_rows
from mimdsim.validation.silicon.loops import COLUMNS as LOOP_COLUMNS
from mimdsim.validation.silicon.loops import loop_rows
from mimdsim.validation.silicon.vertices import COLUMNS as VERTEX_COLUMNS
from mimdsim.validation.silicon.vertices import vertex_rows
from mimdsim.validation.sparse.rows import COLUMNS as SPARSE_COLUMNS
from mimdsim.validation.sparse.rows import sparse_product_rows
from mimdsim.validation.stencil.rows import stencil_rows
from mimdsim.validation.stencil.solver_rows import (
    CHIPS_COLUMNS,
    ORDER_COLUMNS,
    SOLVER_ALSO,
    SOLVER_IGNORED,
    solver_rows,
)
from mimdsim.validation.training_runs import golden_rows, training_step_rows
from mimdsim.validation.vendor.registry import vendor_cycles

MAX_REFERENCE_BYTES = 32 << 20
MOST_TOLERANCE = 1.0
UNITS = {"tflops": "TFLOP/s"}  # of metrics of products; of all others cycles
TABLES = (".csv", ".json")
Progress = Callable[[str, int, int], None]
Given = dict[str, str]


def silent(_what: str, _done: int, _of: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published figure. predicted None: cannot be computed, `note` says why. tolerance: relative.

    published None: no published figure to compare with, `note` says what the prediction is for.
    kind: which rows of a file are summed up together. size: operations of a product, by which its rows are summed up
    too; None: not. noise: standard error of `published` in `unit`, where several
    runs tell it. second: the same figure as published by another clock, named second_name; never decides `within`.
    upper_bound: `published` is a bound that the figure stayed below, so any prediction up to it is within.
    bearing: how the prediction depends on the machine; None where none is described, or the figure is not measured.
    """

    file: str
    name: str
    unit: str
    predicted: float | None
    published: float | None
    tolerance: float
    low: float | None
    high: float | None
    source: str
    note: str = ""
    kind: str = ""
    size: float | None = None
    noise: float | None = None
    second: float | None = None
    second_name: str = ""
    upper_bound: bool = False
    bearing: Bearing | None = None

    @property
    def ratio(self) -> float | None:
        if self.predicted is None or not self.published:
            return None
        return self.predicted / self.published

    @property
    def second_ratio(self) -> float | None:
        if self.predicted is None or not self.second:
            return None
        return self.predicted / self.second

    @property
    def within(self) -> bool | None:
        """Whether the prediction is within the tolerance, or at most the bound; None when there is none."""
        return None if self.ratio is None else self.error <= self.tolerance

    @property
    def error(self) -> float:
        """Distance of the ratio from 1; of an upper bound only what exceeds it. 0 without ratio."""
        if self.ratio is None:
            return 0.0
        return max(self.ratio - 1, 0.0) if self.upper_bound else abs(self.ratio - 1)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a table is predicted with: recordings (see training_runs.py), and the machine of the rows that name none
    (None: that of the published figures)."""

    data: Path | None = None
    progress: Progress = silent
    machine: MimdMachine | None = None


Predict = Callable[[Path, list[Given], Asked], list[Row]]
MACHINE, SPREAD = "machine", "spread"  # columns that may be added to any table


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of table: the columns that it is recognised by, others that are read where there are any, and columns of
    the published tables that are not read.

    on: the machine that rows are predicted for, whatever is asked ("": for no described one); None: any.
    """

    needed: set[str]
    also: set[str] = field(default_factory=set)
    ignored: set[str] = field(default_factory=set)
    predict: Predict
    on: str | None = None

    @property
    def read(self) -> set[str]:
        return self.needed | self.also | {MACHINE, SPREAD}

    @property
    def unread(self) -> set[str]:
        return self.ignored | ABOUT

    def machine_of(self, name: str, asked: Asked) -> MimdMachine | None:
        """What a row that names a machine is predicted for; raises MimdsimError where it cannot be."""
        if not name or (asked.machine is not None and asked.machine.name == name):
            return asked.machine
        if self.on is None:
            return tiled_machine(name, "these rows are of tiled machines")
        if name != self.on and name in list_machines():  # other texts only describe what was measured
            known = f"for '{self.on}' only" if self.on else "for no described machine"
            raise MimdsimError(
                f"'{name}': rows with these columns are predicted {known}; leave out the column 'machine'"
            )
        return asked.machine


def default_files() -> tuple[Path, ...]:
    """The tables that come with the package, or in their place those of the same name of the user."""
    own = (path.name for path in own_folder("references").iterdir() if path.suffix in TABLES)
    found = files_of("references", "")
    return tuple(found[name] for name in sorted(own))


def find_table(name: str) -> Path:
    """A table given by path, or by the name of its file where it lies in a folder of references (`base/places.py`).

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
            return partial(_predicted, form, spelt)
    nearest = max(FORMATS, key=lambda form: len(form.needed & set(table.spelt(form.needed).columns)))
    if 2 * len(nearest.needed & set(table.spelt(nearest.needed).columns)) > len(nearest.needed):
        table.spelt(nearest.needed).check_misspelt(nearest.read, nearest.unread)
    known = "; ".join(", ".join(sorted(form.needed)) for form in FORMATS)
    raise DataFileError(
        path, f"has the columns {shortened(str(sorted(table.columns)), 300)}; known tables have at least: {known}"
    )


def _predicted(form: Format, table: Table, asked: Asked) -> list[Row]:
    """The rows of a table, those of one machine together in the order in which machines are first named."""
    if MACHINE not in table.columns or MACHINE in form.needed:
        return form.predict(table.path, list(table.rows), asked)
    by_machine: dict[str, list[Given]] = {}
    for row in table.rows:
        by_machine.setdefault(row[MACHINE], []).append(row)
    found: list[Row] = []
    for name, given in by_machine.items():
        try:
            on = form.machine_of(name, asked)
        except MimdsimError as problem:
            found += [_not_computed(table.path, line, problem) for line, _ in numbered(given)]
        else:
            found += form.predict(table.path, given, replace(asked, machine=on))
    return found


def _not_computed(path: Path, line: int, problem: MimdsimError) -> Row:
    note = " ".join(str(problem).split())
    return Row(
        file=path.name, name=f"line {line}", unit="", predicted=None, published=None, tolerance=0.0,
        low=None, high=None, source="", note=note, kind="not computed",
    )  # fmt: skip


def cells_of(path: Path, column: str) -> dict[int, str]:
    """The cells of a column of a CSV table that are not empty, by line; empty if it has no such column."""
    if path.suffix == ".json":
        return {}
    table = parse_table(path, read_bounded_text(path, MAX_REFERENCE_BYTES)).spelt({column})
    return {row.number: row[column] for row in table.rows if row.get(column)}


def _number(path: Path, line: int, row: Given, column: str) -> float:
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(row[column])):
            return number
    raise DataFileError(path, f"line {line}, column '{column}': '{shortened(row[column])}' is not a number")


def _vendor_rows(path: Path, given: list[Given], _asked: Asked) -> list[Row]:
    rows = []
    for line, row in numbered(given):
        cycles: float | None = None
        note = "no formula for this codelet"
        try:
            parameters = dict(part.split("=", 1) for part in row["params"].split(";") if part)
            found = vendor_cycles(row["codelet"], row["dtype"], parameters)
            cycles = None if found is None else float(found)
        except MimdsimError as refusal:
            note = str(refusal)
        except ValueError:
            note = f"params '{row['params']}' are not key=value;..."
        except ArithmeticError as failure:  # a count of units or bytes that is 0
            note = f"the formula has no result for params '{row['params']}' ({failure})"
        rows.append(
            Row(
                file=path.name,
                name=f"{row['codelet']} {row['dtype']} {row['params']}",
                unit=f"{row['scope']} cycles",
                predicted=cycles,
                published=_number(path, line, row, "cycles"),
                tolerance=0.01,
                low=cycles,
                high=cycles,
                source=row.get("vendor_source", ""),
                note="" if cycles is not None else note,
                kind=f"{row['scope']} cycles",
            )
        )
    return rows


def _gemm_rows(path: Path, given: list[Given], _asked: Asked) -> list[Row]:
    rows = []
    for line, row in numbered(given):
        published = _number(path, line, row, "time_us")
        tiled = row["gpu"].startswith("IPU")
        seconds, note = (predict_tiled_gemm_row if tiled else predict_gemm_row)(row)
        batched = ", batched" if row["batch"] not in ("", "1") else ""
        microseconds = None if seconds is None else 1e6 * seconds
        shape = f"{row['M']}x{row['N']}x{row['K']}" + (f" batch {row['batch']}" if row["batch"] != "1" else "")
        rows.append(
            Row(
                file=path.name,
                name=f"{row['gpu']} {row['dtype']} {shape}",
                unit="us",
                predicted=microseconds,
                published=published,
                tolerance=0.30,
                low=None if microseconds is None else 0.8 * microseconds,
                high=None if microseconds is None else 1.2 * microseconds,
                source=row["source"],
                note="" if microseconds is not None else note,
                kind=f"{row['gpu']} {row['dtype']}{batched}",
                size=product_flops(row),
                bearing=tiled_gemm_bearing(row, line, published) if tiled and seconds is not None else None,
            )
        )
    return rows


def _tiled_product_rows(path: Path, given: list[Given], _asked: Asked) -> list[Row]:
    rows = []
    for line, row in numbered(given):
        predicted, low, high, note = predict_tiled_product(row)
        published = _number(path, line, row, "value")
        if predicted is not None and row["unit"] != (unit := UNITS.get(row["metric"], "cycles")):
            predicted, note = None, f"{row['metric']} is in {unit}, not in '{shortened(row['unit'])}'"
        rows.append(
            Row(
                file=path.name,
                name=f"{row['operation']} {row['machine']} {row['dtype']} {row['m']}x{row['k']}x{row['n']} "
                f"{row['variant']} {row['metric']}",
                unit=row["unit"],
                predicted=predicted,
                published=published,
                tolerance=_number(path, line, row, "tolerance") if row.get("tolerance") else 0.15,
                low=None if predicted is None else low,
                high=None if predicted is None else high,
                source=row.get("source", ""),
                note=note,
                kind=f"{row['operation']} {row['metric']}",
                bearing=None if predicted is None else tiled_product_bearing(row, line, published),
            )
        )
    return rows


def _gpu_snn_rows(path: Path, given: list[Given], _asked: Asked) -> list[Row]:
    rows = []
    for line, row in numbered(given):
        told = predict_snn_row(row)
        seconds, (low, high) = told.seconds, told.spread
        rows.append(
            Row(
                file=path.name,
                unit="s",
                name=f"{row['gpu']} {row['framework']} {row['metric']} N={row['neurons_or_layers']}"
                + "".join(
                    f" {mark}={row[name]}" for mark, name in (("B", "batch_B"), ("T", "steps_T")) if row.get(name)
                ),
                predicted=seconds,
                published=_number(path, line, row, "value_s"),
                tolerance=told.tolerance,
                low=None if seconds is None else low * seconds,
                high=None if seconds is None else high * seconds,
                source=row["source"],
                note="" if seconds is not None else told.note,
                kind=f"{row['framework']} {row['metric']}",
            )
        )
    return rows


def _training_rows(path: Path, given: list[Given], asked: Asked) -> list[Row]:
    rows = training_step_rows(path, given, asked.data, asked.progress, asked.machine)
    return [Row(file=path.name, **row) for row in rows]


def _alone(rows_of: Callable[[Path, list[Given]], list[dict[str, Any]]]) -> Predict:
    """A format whose rows need nothing but the table."""
    return lambda path, given, _asked: [Row(file=path.name, **row) for row in rows_of(path, given)]


def _on(rows_of: Callable[[Path, list[Given], MimdMachine | None], list[dict[str, Any]]]) -> Predict:
    """A format whose rows name no machine."""
    return lambda path, given, asked: [Row(file=path.name, **row) for row in rows_of(path, given, asked.machine)]


def _solver_rows(path: Path, given: list[Given], asked: Asked) -> list[Row]:
    return [Row(file=path.name, **row) for row in solver_rows(path, given, asked.progress, asked.machine)]


def _sparse_rows(path: Path, given: list[Given], asked: Asked) -> list[Row]:
    return [Row(file=path.name, **row) for row in sparse_product_rows(path, given, asked.progress)]


ABOUT = {"note", "notes", "certainty", "what", "how", "clock_GHz"}
FORMATS: tuple[Format, ...] = (
    Format(
        needed={"codelet", "scope", "dtype", "params", "cycles"}, also={"vendor_source"}, predict=_vendor_rows, on=""
    ),
    Format(
        needed={"gpu", "dtype", "batch", "M", "N", "K", "time_us", "source"},
        also={"includes_host_overhead_us", "kernel"},
        predict=_gemm_rows,
        on="",
    ),
    Format(needed=NEEDED, also={"clock_hz", "partials", "tolerance", "source"}, predict=_tiled_product_rows),
    Format(
        needed={"gpu", "framework", "metric", "neurons_or_layers", "value_s", "source"},
        also={"batch_B", "steps_T", "task", "dtype", "exec_style", "timing_valid"},
        ignored={"gpu_basis", "peak_mem_bytes"},
        predict=_gpu_snn_rows,
        on="",
    ),
    Format(
        needed={"hidden", "dense", "sparse", "batch", "T", "second_threshold", "ms_total"},
        also={"ms_keras", "max_activity"},
        ignored={"ms_median", "final_loss"},
        predict=_training_rows,
    ),
    Format(needed=FRAMEWORK_COLUMNS, also={"source"}, predict=_alone(framework_step_rows)),
    Format(needed={"chips", "type", "phase", "cycles", "tolerance", "source"}, predict=_on(stencil_rows)),
    *(
        Format(needed=needed, also=SOLVER_ALSO, ignored=SOLVER_IGNORED, predict=_solver_rows)
        for needed in (CHIPS_COLUMNS, ORDER_COLUMNS)
    ),
    Format(needed=SPARSE_COLUMNS, also={"tolerance", "source"}, predict=_sparse_rows),
    Format(
        needed=VERTEX_COLUMNS,
        also={"in_channels", "out_channels", "source_path"},
        ignored={"tiles", "source_value"},
        predict=_alone(vertex_rows),
        on="bow",
    ),
    Format(
        needed=LOOP_COLUMNS,
        also={"source_path"},
        ignored={"tiles", "tile_cycles_per_iteration", "issue_slots_per_iteration", "time_s"},
        predict=_alone(loop_rows),
        on="bow",
    ),
    Format(
        needed=GATHER_COLUMNS,
        also={"source_path"},
        ignored={"row_bytes", "repeats_amortised", "bytes_gathered"},
        predict=_on(gather_rows),
    ),
    Format(needed=CHIP_COLUMNS, also={"source"}, predict=_alone(chip_rows)),
    Format(
        needed=EVENT_COLUMNS,
        also={"source_path"},
        ignored={"augmentation", "dt_ms", "optimiser", "examples", "us_per_timestep_of_a_batch"},
        predict=_alone(event_rows),
        on="",
    ),
)
