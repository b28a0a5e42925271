"""A table of published figures: the columns that it is recognised by, and how one row is read and predicted.

`read_row` gets the cells of one row and yields the fields of `Row` that it publishes, then those of its prediction.
What it cannot read it raises as MimdsimError, and that row is given as refused, with its line, beside the others; why
there is no prediction it raises, too, and that becomes the row's note. What a row tells `mimdsim calibrate` of the
machine that it was measured on is its `Bearing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from mimdsim.base.console import Progress, silent
from mimdsim.base.csv_table import Line, Table
from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.base.residuals import combined, interval, residuals_of
from mimdsim.machine import MimdMachine, list_machines, tiled_machine
from mimdsim.machine.calibrated import CODELET
from mimdsim.profile import Doubt


@dataclass(frozen=True, kw_only=True)
class Bearing:
    """Of a figure that was measured, not derived from others of its table.

    line: of the table; machine: whose description predicts it; measured: in the row's unit, at least as exact as
    published. again: the same prediction for another description of that machine, of the same program where there is
    one; raises MimdsimError if it has none. parts: (codelet as "codelet NAME", kind of source, its part of the
    prediction, in the row's unit) for every codelet whose cost the prediction has in proportion. formula: rows of a
    table with the same are off alike, beyond what they have from the machine and those codelets ("": those of a kind).
    spread: the row's cell of the column of that name.
    """

    line: int
    machine: str
    measured: float
    again: Callable[[MimdMachine], float]
    parts: tuple[tuple[str, str, float], ...] = ()
    formula: str = ""
    spread: str = ""


def codelet_parts(doubts: Iterable[Doubt], of_a_cycle: float) -> tuple[tuple[str, str, float], ...]:
    """The codelets among what a profile's interval is made of; of_a_cycle: a cycle in the row's unit."""
    return tuple(
        (doubt.name, doubt.kind, of_a_cycle * doubt.cycles) for doubt in doubts if doubt.name.startswith(CODELET)
    )


MACHINE, SPREAD = "machine", "spread"  # columns that may be added to any table
SOURCE = ("source", "source_path", "vendor_source")  # the column of a table that says where its rows are from
NOT_COMPUTED = "not computed"  # kind of a row that is refused
LEAST, MOST = 1e-100, 1e100  # of figures that are not 0, either side of it
MOST_WHOLE = 2.0**53  # from which on floats leave numbers out
ABOUT = {"note", "notes", "certainty", "what", "how", "clock_GHz"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published figure. predicted None: cannot be computed, `note` says why. tolerance: relative.

    published None: no published figure to compare with, `note` says what the prediction is for.
    kind: which rows of a file are summed up together. size: operations of a product, by which its rows are summed up
    too; None: not. noise: standard error of `published` in `unit`, where several
    runs tell it. second: the same figure as published by another clock, named second_name; never decides `within`.
    upper_bound: `published` is a bound that the figure stayed below, so any prediction up to it is within.
    bearing: how the prediction depends on the machine; None where none is described, or the figure is not measured.
    low, high: its interval; figures: the class that it is of (`base/residuals.py`), "" where nothing widens the
    interval of its format. origin: whose measurement it is. derived: made of figures that have rows of their own, so
    that it takes the factor of its class and gives none.
    """

    file: str
    name: str
    unit: str = ""
    predicted: float | None = None
    published: float | None = None
    tolerance: float = 0.0
    low: float | None = None
    high: float | None = None
    source: str = ""
    note: str = ""
    kind: str = ""
    size: float | None = None
    noise: float | None = None
    second: float | None = None
    second_name: str = ""
    upper_bound: bool = False
    bearing: Bearing | None = None
    figures: str = ""
    origin: str = ""
    derived: bool = False

    @property
    def score(self) -> float | None:
        """How far off the prediction was, over the half width that its sources propagate to that side; infinity where
        they propagate none. None of rows that tell nothing of their class."""
        if not self.figures or self.derived or self.upper_bound or not self.ratio or not self.low or not self.high:
            return None
        assert self.predicted is not None
        off = -math.log(self.ratio)
        reach = math.log((self.high if off > 0 else self.predicted) / (self.predicted if off > 0 else self.low))
        half_width = reach / residuals_of(self.figures).factor
        return abs(off) / half_width if half_width else math.inf if off else 0.0

    @property
    def propagated(self) -> float:
        """Half width that its sources leave open, in its unit, without the factor of its class."""
        if not self.predicted or not self.low or not self.high:
            return 0.0 if self.low is None or self.high is None else (self.high - self.low) / 2
        factor = residuals_of(self.figures).factor if self.figures else 1.0
        low, high = (self.predicted * math.pow(end / self.predicted, 1 / factor) for end in (self.low, self.high))
        return (high - low) / 2

    @property
    def inside(self) -> bool | None:
        """Whether the published figure lies in the interval; None where one is missing."""
        if self.published is None or self.low is None or self.high is None:
            return None
        return self.low <= self.published <= self.high

    @property
    def ratio(self) -> float | None:
        return self._over(self.published)

    @property
    def second_ratio(self) -> float | None:
        return self._over(self.second)

    def _over(self, published: float | None) -> float | None:
        return self.predicted / published if self.predicted is not None and published else None

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


Item = TypeVar("Item")


def grouped(items: Iterable[Item], name: str) -> list[tuple[Any, list[Item]]]:
    """The items by an attribute, whose values stand in the order in which they are first met."""
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(getattr(item, name), []).append(item)
    return list(groups.items())


Fields = dict[str, Any]  # of a Row, but its file


class Cells(Line):
    """The cells of a row by column, read as numbers."""

    @property
    def place(self) -> str:
        return f"line {self.line}"

    def number(self, column: str, *, above: float | None = None, default: float | None = None) -> float:
        """A comparable number, `default` where the cell is empty or not there; raises MimdsimError with the column."""
        text = self.get(column, "")
        if not text and default is not None:
            return default
        number = _float(text)
        if not comparable(number) or (above is not None and number <= above):
            what = "a number" if above is None else f"a number above {above:g}"
            if math.isfinite(number) and not comparable(number):
                what += f" from {LEAST:g} to {MOST:g}"
            raise MimdsimError(f"column '{column}': '{shortened(text)}' is not {what}")
        return number

    def whole(self, column: str) -> int:
        """A whole number from 1; raises MimdsimError, naming the column."""
        text = self.get(column, "")
        number = _float(text)
        if not (1 <= number < MOST_WHOLE and number == int(number)):
            raise MimdsimError(f"column '{column}': '{shortened(text)}' is not a whole number of at least 1")
        return int(number)

    def check_unit(self, what: str, unit: str) -> None:
        """Raises MimdsimError unless the row is in the unit in which `what` is predicted."""
        if self["unit"] != unit:
            raise MimdsimError(f"{what} is in {unit}, not in '{shortened(self['unit'])}'")

    @staticmethod
    def figure(name: str, unit: str, published: float | None, tolerance: float, kind: str = "", **more: Any) -> Fields:
        """What is published of a figure; more: other fields of `Row`."""
        return {"name": name, "unit": unit, "published": published, "tolerance": tolerance, "kind": kind, **more}

    def bearing(self, machine: str, measured: float, again: Callable[[MimdMachine], float], **more: Any) -> Bearing:
        """What the row tells of a machine; more: other fields of it."""
        spread = self.get(SPREAD, "")
        return Bearing(line=self.line, machine=machine, measured=measured, again=again, spread=spread, **more)

    def predicted(
        self, machine: MimdMachine, measured: float, again: Callable[[MimdMachine], float], *shares: float, **more: Any
    ) -> Fields:
        """What `again` gives for a machine, whose sources may be off by these shares, and what the row tells of it."""
        return around(again(machine), *shares) | {"bearing": self.bearing(machine.name, measured, again, **more)}


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def comparable(number: float) -> bool:
    """Whether ratios and times of a number are in the range of numbers, too."""
    return number == 0 or LEAST <= abs(number) <= MOST


def whole_numbers(row: Mapping[str, str], *columns: str, default: int | None = None) -> list[int]:
    """The whole numbers of cells, `default` where one is empty or not there; raises MimdsimError that names them."""
    missing = [column for column in columns if default is None and column not in row]
    if missing:
        raise MimdsimError(f"no column '{missing[0]}': add it, with a whole number in every row")
    try:
        return [int(row[column] if default is None else row.get(column) or default) for column in columns]
    except ValueError:
        given = ", ".join(f"{column} '{shortened(row.get(column, ''))}'" for column in columns)
        raise MimdsimError(f"{given}: must be whole numbers") from None


def around(predicted: float, *shares: float) -> Fields:
    """A prediction whose sources may be off by these shares, independently."""
    return within_bounds(predicted, *interval(predicted, combined(shares)))


def within_bounds(predicted: float, low: float, high: float) -> Fields:
    """A prediction and the ends that its sources give it, which `Row` narrows or widens by its class."""
    return {"predicted": predicted, "low": low, "high": high}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a table is predicted with: recordings (see training_runs.py), and the machine of the rows that name none
    (None: that of the published figures)."""

    data: Path | None = None
    progress: Progress = silent
    machine: MimdMachine | None = None

    def machine_or(self, name: str) -> MimdMachine:
        """The machine asked for, else that of the published figures."""
        return self.machine or self.machine_of(name)

    def machine_of(self, name: str) -> MimdMachine:
        """The machine of a row, or that which is asked for under its name."""
        asked = self.machine if self.machine is not None and self.machine.name == name else None
        return asked or tiled_machine(name, "these rows are of tiled machines")


Reader = Callable[[Cells, Asked], Iterator[Fields]]


@dataclass(frozen=True, kw_only=True)
class ReferenceTable:
    """A kind of table: the columns that it is recognised by, others that are read where there are any, and columns of
    the published tables that are not read.

    read_row: the fields of what a row publishes and then those of its prediction, of one figure or several in turn.
    read_all, in its place: of all rows of one machine, where figures are made of several of them. doing: what progress
    says of tables that take long. figures: the class of its rows, unless they say another (`Row.figures`).
    on: the machine that rows are predicted for, whatever is asked ("": for no described one); None: any.
    """

    needed: set[str]
    also: set[str] = field(default_factory=set)
    ignored: set[str] = field(default_factory=set)
    read_row: Reader | None = None
    read_all: Callable[[list[Cells], Asked], Iterable[Fields]] | None = None
    doing: str = ""
    figures: str = ""
    on: str | None = None

    @property
    def read(self) -> set[str]:
        return self.needed | self.also | {MACHINE, SPREAD}

    @property
    def unread(self) -> set[str]:
        return self.ignored | ABOUT

    def rows(self, table: Table, asked: Asked) -> list[Row]:
        """The rows of a table, those of one machine together in the order in which machines are first named."""
        lines = [Cells(row, row.line) for row in table.rows]
        if MACHINE not in table.columns or MACHINE in self.needed:
            return self._predicted(table.path, lines, asked)
        by_machine: dict[str, list[Cells]] = {}
        for cells in lines:
            by_machine.setdefault(cells[MACHINE], []).append(cells)
        found: list[Row] = []
        for name, cells_of in by_machine.items():
            try:
                on = self._machine_of(name, asked)
            except MimdsimError as problem:
                found += [self._row(table.path, refused(cells.place, problem)) for cells in cells_of]
            else:
                found += self._predicted(table.path, cells_of, replace(asked, machine=on))
        return found

    def _predicted(self, path: Path, lines: list[Cells], asked: Asked) -> list[Row]:
        if self.read_all is not None:
            return [self._row(path, fields) for fields in self.read_all(lines, asked)]
        assert self.read_row is not None
        return [self._row(path, fields) for fields in each_row(lines, asked, self.read_row, self.doing)]

    def _row(self, path: Path, fields: Fields) -> Row:
        """Without a prediction there is no interval, and nothing that bears on a machine."""
        if fields.get("predicted") is None:
            fields = {
                name: each for name, each in fields.items() if name not in ("predicted", "low", "high", "bearing")
            }
        given: Fields = {"file": path.name, "origin": path.name, "figures": self.figures}
        row = Row(**(given | fields))
        if not (row.figures and row.predicted and row.low and row.high):
            return row
        factor = residuals_of(row.figures).factor
        ends = (row.predicted * (end / row.predicted) ** factor for end in (row.low, row.high))
        return replace(row, **dict(zip(("low", "high"), ends, strict=True)))

    def _machine_of(self, name: str, asked: Asked) -> MimdMachine | None:
        """What a row that names a machine is predicted for; raises MimdsimError where it cannot be."""
        if not name or (asked.machine is not None and asked.machine.name == name):
            return asked.machine
        if self.on is None:
            return asked.machine_of(name)
        if name != self.on and name in list_machines():  # other texts only describe what was measured
            known = f"for '{self.on}' only" if self.on else "for no described machine"
            raise MimdsimError(
                f"'{name}': rows with these columns are predicted {known}; leave out the column 'machine'"
            )
        return asked.machine


def each_row(lines: Sequence[Cells], asked: Asked, read_row: Reader, doing: str = "") -> Iterator[Fields]:
    """What `read_row` makes of every row; of one that cannot be read or predicted, why."""
    for number, cells in enumerate(lines, start=1):
        source = {"source": next((cells[column] for column in SOURCE if column in cells), "")}
        figures: list[Fields] = []
        try:
            for fields in read_row(cells, asked):
                if "name" in fields:
                    figures.append(source | fields)
                else:
                    figures[-1] |= fields
        except MimdsimError as problem:
            figures = (
                [*figures[:-1], figures[-1] | {"note": str(problem)}] if figures else [refused(cells.place, problem)]
            )
        yield from figures
        if doing:
            asked.progress(doing, number, len(lines))


def refused(place: str, problem: MimdsimError) -> Fields:
    """A row that is not computed: its place in the file, and why."""
    return {"name": place, "note": " ".join(str(problem).split()), "kind": NOT_COMPUTED}
