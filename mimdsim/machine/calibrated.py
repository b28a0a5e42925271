"""Numbers of a machine that measurements have calibrated, in a file of their own (`mimdsim calibrate` writes it).

kind = "narrowed"
machine = "bow"             # whose numbers; its description stays as it is
machine_sha256 = "5f0e..."  # of that description, so that a file for another one is noticed
[[table]]
file = "mine.csv"
sha256 = "90ab..."
[[number]]
name = "sync.internal_cycles"  # or "codelet LifUpdate": the factor of its cost, sourced 1
sourced = [88, 126, 164]       # as described: lowest, value, highest
narrowed = [131, 137, 143]
rows = ["mine.csv line 2", "mine.csv line 7"]

and `correlation`, of what is left unknown of the numbers: a row for each, with those before it and itself. A class of
figures with enough rows has an entry:
[[residual]]
figures = "training step"
half_width = 0.021  # nine in ten of its rows were off by less, predicted from the others
rows = 12

The file can be given wherever a machine can, and a machine of the same numbers can name it: narrowed = "FILE".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from mimdsim.base.errors import DescriptionError, suggest
from mimdsim.base.files import digest_of, write_atomically
from mimdsim.base.residuals import FEWEST_ROWS
from mimdsim.base.schema import Section, SourcedSection, build, read_toml, toml_value
from mimdsim.base.search_path import PathText
from mimdsim.base.units import UNCERTAINTY, dimension, kind_of, uncertainty, within
from mimdsim.machine.mimd import Correlation, MimdMachine

KIND = "narrowed"
"""A file of `mimdsim calibrate`, beside this one, whose measurements narrow the numbers of this machine."""
CODELET = "codelet "  # before the name of a codelet whose costs are scaled
HELD = ("hz", "volts", "bytes")  # clocks, voltages and sizes are set, not estimated
HELD_NUMBERS = ("tile.issue_cycles",)
MOST_NUMBERS, MOST_ROWS = 300, 100_000
DIGITS, ROUNDED = 4, 0.05  # of a correlation as written, and the negative variance that rounding them may leave
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Interval = tuple[float, float, float]  # lowest, value, highest


@dataclass(frozen=True, kw_only=True)
class UncertainNumber:
    """A number that may be off: its name, interval, source as described; whole: takes whole numbers only."""

    name: str
    low: float
    value: float
    high: float
    source: str
    whole: bool = False

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def interval(self) -> Interval:
        return self.low, self.value, self.high


def uncertain_numbers(machine: MimdMachine) -> dict[str, UncertainNumber]:
    """Every sourced number that measurements can narrow, by its dotted name, in the order of the description.

    Left out: what is counted, clocks, voltages, sizes, and numbers that are 0, which have no interval.
    """
    found = {}
    for section in type(machine).model_fields:
        values = getattr(machine, section)
        for key, source in values.sources.items() if isinstance(values, SourcedSection) else ():
            one = _uncertain_number(values, section, key, source)
            if one is not None:
                found[one.name] = one
    return found


def _uncertain_number(values: SourcedSection, section: str, key: str, source: str) -> UncertainNumber | None:
    value, name, unit = getattr(values, key), f"{section}.{key}", dimension(key)
    field, whole = type(values).model_fields[key], isinstance(value, int)
    if not isinstance(value, int | float) or not value or unit in HELD or name in HELD_NUMBERS:
        return None
    if whole and unit != "cycles":
        return None
    off = uncertainty(kind_of(source)) * value
    low, high = value - off, value + off
    for bound in field.metadata:  # what the field allows at all
        low, high = max(low, getattr(bound, "ge", low)), min(high, getattr(bound, "le", high))
    return UncertainNumber(name=name, low=low, value=value, high=high, source=source, whole=whole)


class Table(Section):
    """A table whose rows narrowed the numbers."""

    file: str = Field(max_length=300)
    sha256: Sha256


class Number(Section):
    """One number: lowest, value and highest as described and as narrowed, and the rows that bear on it."""

    name: str = Field(max_length=120)
    sourced: Interval
    narrowed: Interval
    rows: tuple[Annotated[str, Field(max_length=400)], ...] = Field(default=(), max_length=MOST_ROWS)

    @model_validator(mode="after")
    def _in_order(self) -> Number:
        (least, _, most), (low, value, high) = self.sourced, self.narrowed
        if not self.sourced[0] <= self.sourced[1] <= self.sourced[2]:
            raise ValueError("sourced must be [lowest, value, highest]")
        if not (0 <= least <= low <= value <= high <= most):
            raise ValueError(
                f"narrowed = [{low:g}, {value:g}, {high:g}] must be [lowest, value, highest], none of them outside the "
                f"sourced interval {least:g} to {most:g}"
            )
        return self


class Residual(Section):
    """How far off rows of a class of figures were, predicted from the others: a share, by how many rows."""

    figures: Literal["training step", "program on tiles"]
    half_width: float = Field(gt=0, le=10)
    rows: int = Field(ge=FEWEST_ROWS, le=MOST_ROWS)


class CalibrationFile(Section):
    """What a file holds."""

    kind: Literal["narrowed"]
    machine: PathText
    machine_sha256: Sha256
    spread: str = Field(default="", max_length=300)  # of the measurements, in words
    table: tuple[Table, ...] = Field(min_length=1, max_length=100)
    number: tuple[Number, ...] = Field(default=(), max_length=MOST_NUMBERS)
    residual: tuple[Residual, ...] = Field(default=(), max_length=2)
    left_out: tuple[tuple[str, ...], ...] = Field(default=(), max_length=MOST_ROWS)  # rows that contradict each other
    correlation: tuple[tuple[float, ...], ...] = Field(default=(), max_length=MOST_NUMBERS)

    @model_validator(mode="after")
    def _once_each(self) -> CalibrationFile:
        names = [number.name for number in self.number]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"number '{twice[0]}' is given twice")
        if self.correlation:
            self._check_correlation()
        return self

    def _check_correlation(self) -> None:
        if [len(row) for row in self.correlation] != [at + 1 for at in range(len(self.number))]:
            raise ValueError(f"correlation has not one row each, of 1, 2, .. values, for {len(self.number)} numbers")
        whole = self._whole_correlation()
        if not (np.abs(whole) <= 1).all() or (np.diag(whole) != 1).any() or np.linalg.eigvalsh(whole).min() < -ROUNDED:
            raise ValueError("correlation is none: 1 for a number and itself, -1 to 1 for others, no negative variance")

    def _whole_correlation(self) -> np.ndarray:
        low = np.zeros((len(self.number), len(self.number)))
        for at, row in enumerate(self.correlation):
            low[at, : at + 1] = row
        return low + np.tril(low, -1).T

    @property
    def together(self) -> Correlation | None:
        """What its numbers are known to together."""
        if not self.correlation:
            return None
        names = tuple(number.name for number in self.number)
        return Correlation(
            names=names,
            correlation=tuple(map(tuple, self._whole_correlation().tolist())),
            residuals=tuple((each.figures, each.half_width, each.rows) for each in self.residual),
        )


def machine_digest(machine: MimdMachine) -> str:
    """sha256 of the numbers and sources of a description, whatever its name and title."""
    table = machine.model_dump(mode="json", exclude_unset=True, exclude={"name", "title"})
    return digest_of(table)


def read_calibration(path: Path) -> CalibrationFile:
    """The content of a file; raises DescriptionError with every problem."""
    table, text = read_toml(path)
    if table.get("kind") != KIND:
        raise DescriptionError(str(path), ["is not what  mimdsim calibrate MACHINE TABLE --out FILE  writes"])
    return build(CalibrationFile, table, where=str(path), text=text)


def calibrated_values(machine: MimdMachine, found: CalibrationFile, where: str) -> dict[str, tuple[float, str]]:
    """(value, source) by dotted key of the machine; raises DescriptionError for a file of another description, and for
    numbers that it does not have."""
    digest = machine_digest(machine)
    if digest != found.machine_sha256:
        tables = " ".join(table.file for table in found.table)
        problem = (
            f"was made for another description of '{found.machine}' (machine_sha256 {found.machine_sha256[:12]}.., "
            f"that of '{machine.name}' is {digest[:12]}..): make it again with  "
            f"mimdsim calibrate {machine.name} {tables}"
        )
        raise DescriptionError(where, [problem])
    known, tables = uncertain_numbers(machine), ", ".join(table.file for table in found.table)
    widest = max(UNCERTAINTY.values())
    changes: dict[str, tuple[float, str]] = {}
    problems = []
    for number in found.number:
        low, value, high = number.narrowed
        kind = within("measured", max(high - value, value - low) / value if value else 1.0)
        origin, one = f"{number.sourced[1]:g}", known.get(number.name)
        if number.name.startswith(CODELET):
            least, factor, most = number.sourced
            if factor != 1 or least < 1 - widest or most > 1 + widest:
                wanted = f"[lowest, 1, highest] within {1 - widest:g} to {1 + widest:g}"
                problems.append(f"'{number.name}': sourced must be {wanted}")
        elif one is None or number.sourced != one.interval:
            problems.append(f"number '{number.name}' of {list(number.sourced)} is none of '{machine.name}'")
            problems[-1] += suggest(number.name, known) if one is None else f": that is {list(one.interval)}"
        else:
            origin += f", {one.source}"
        changes[number.name] = value, f"{kind}: narrowed by {tables} from {origin}"
    if problems:
        raise DescriptionError(where, problems)
    return changes


def write_calibration(path: Path, found: CalibrationFile, remarks: Iterable[str]) -> None:
    """Write a file, as a whole or not at all; remarks: lines said at its head."""
    lines = [f"# {remark}" for remark in remarks]
    lines += [f"{key} = {toml_value(getattr(found, key))}" for key in ("kind", "machine", "machine_sha256", "spread")]
    lines.append(f"left_out = {toml_value(found.left_out)}")
    lines += ["correlation = [", *(f"  {toml_value(row)}," for row in found.correlation), "]"]
    for name, entries in (("table", found.table), ("number", found.number), ("residual", found.residual)):
        for entry in entries:
            lines += ["", f"[[{name}]]", *(f"{key} = {toml_value(value)}" for key, value in entry)]
    write_atomically(path, "\n".join(lines) + "\n")
