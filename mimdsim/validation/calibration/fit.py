"""From measured rows to calibrated numbers: values, intervals, and the rows that contradict each other."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from mimdsim.base.console import Progress, silent
from mimdsim.base.errors import DataFileError, DescriptionError, shortened
from mimdsim.base.files import dump_json, read_whole
from mimdsim.base.residuals import FEWEST_ROWS, WIDER, quantile
from mimdsim.base.search_path import Named, is_path, several
from mimdsim.base.shown import Sheet, Shown
from mimdsim.base.units import counted
from mimdsim.machine import MimdMachine, sourced_machine, with_values
from mimdsim.machine.calibrated import (
    DIGITS,
    KIND,
    CalibrationFile,
    Interval,
    Number,
    Residual,
    Table,
    UncertainNumber,
    calibrated_values,
    machine_digest,
    write_calibration,
)
from mimdsim.report.formatting import plain
from mimdsim.validation.calibration.sensitivities import Dependence, again, closest, contradictions, dependence
from mimdsim.validation.reference_table import NOT_COMPUTED, SPREAD, Row
from mimdsim.validation.tables import check_files, find_table

# ---- what measurements make of a machine and of their own predictions, and how it is shown: console lines and JSON


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A row of a table: its figure, spread (one standard deviation) and predictions, in its unit.

    before: by the machine as described. after: by the narrowed one. from_others: by the machine that all other rows
    narrow; None where there are too many rows to try. contradicts: the rows, itself among them, that cannot be met
    together, and were left out.
    """

    name: str
    what: str
    unit: str
    measured: float
    spread: float
    before: float
    after: float
    from_others: float | None
    contradicts: tuple[str, ...] = ()

    def error(self, predicted: float | None) -> float:
        """Distance from the measured figure, as a share of it; NaN for None."""
        return float("nan") if predicted is None else abs(predicted / self.measured - 1)


@dataclass(frozen=True, kw_only=True)
class Narrowed(Shown):
    """What measurements make of a machine: `machine`, and `content` for a file of its own.

    stay: doubted numbers on which no row bears. formulas: what else the predictions of a kind of rows are doubted for,
    (low, value, high) in shares of that doubt, -1 to 1; the machine does not hold these. other: the rows not
    used, by why.
    """

    sourced: MimdMachine
    machine: MimdMachine
    content: CalibrationFile
    rows: tuple[Measured, ...]
    stay: tuple[str, ...]
    formulas: dict[str, Interval]
    other: dict[str, tuple[str, ...]]

    @property
    def contradictions(self) -> tuple[tuple[str, ...], ...]:
        """Rows that cannot be met together within their spreads and the intervals, by set."""
        return tuple(dict.fromkeys(row.contradicts for row in self.rows if row.contradicts))

    def __str__(self) -> str:
        return "\n".join(narrowed_lines(self))

    def _sheet(self) -> Sheet:
        title, *lines = str(self).splitlines()
        return Sheet(title, [(line,) for line in lines if line])


MOST_NAMED = 12


def narrowed_lines(found: Narrowed) -> Iterator[str]:
    """Numbers, rows, contradictions and what stays as it was."""
    yield f"{found.sourced.name}, narrowed by {counted(len(found.rows), 'row')}; spread: {found.content.spread}"
    yield ""
    numbers = sorted(found.content.number, key=lambda number: _width(number.narrowed) / _width(number.sourced))
    widest = max((len(number.name) for number in numbers), default=6)
    yield f"  {'number':<{widest}}  {'sourced':>32}  {'narrowed':>32}  {'width':>6}  {'rows':>5}"
    for number in numbers:
        left = _width(number.narrowed) / _width(number.sourced)
        yield (
            f"  {number.name:<{widest}}  {_shown(number.sourced):>32}  {_shown(number.narrowed):>32}  {left:>6.0%}  "
            f"{len(number.rows):>5}"
        )
    if not numbers:
        yield "  no row bears on a number of the machine"
    for name, (low, value, high) in found.formulas.items():
        yield f"  {plain(name)}: {value:+.0%} of its doubt ({low:+.0%} to {high:+.0%}); not the machine's, not kept"
    if found.stay:
        yield f"  as it was, as no row bears on it: {_some(found.stay)}"
    yield ""
    yield from _rows(found.rows)
    for each in found.content.residual:
        by = counted(each.rows, "row")
        yield f"  intervals of a {each.figures}: +-{each.half_width:.1%}, by {by}, each predicted from the others"
    for names in found.contradictions:
        yield ""
        what, meet = ("Contradicts the machine", "it") if len(names) == 1 else ("Contradict each other", "all")
        yield f"{what}: {_some(names)}: no values within the intervals meet {meet} within two spreads."
        advice = "correct what was measured, give a wider spread, or doubt a source of the machine"
        yield f"  Left out of the above; {advice}."
    if found.other:
        yield ""
        yield f"Rows not used: {sum(map(len, found.other.values()))}"
        yield from (f"  {_some(names)} ({plain(why)})" for why, names in found.other.items())


def _rows(rows: tuple[Measured, ...]) -> Iterator[str]:
    widest = min(max(len(row.what) for row in rows), 60)
    yield (
        f"  {'row':<{widest}}  {'measured':>10}  {'spread':>8}  {'before':>10}  {'error':>7}  {'after':>10}  "
        f"{'error':>7}  from the others"
    )
    for row in rows:
        mark = ", left out" if row.contradicts else ""
        others = "-" if row.from_others is None else f"{row.from_others:.5g} ({row.error(row.from_others):.1%})"
        yield (
            f"  {plain(row.what)[:widest]:<{widest}}  {row.measured:>10.5g}  {row.spread:>8.2g}  {row.before:>10.5g}  "
            f"{row.error(row.before):>7.1%}  {row.after:>10.5g}  {row.error(row.after):>7.1%}  {others}{mark}"
        )
    kept = [row for row in rows if not row.contradicts]
    if not kept:
        return
    before, after = (fmean(row.error(getattr(row, when)) for row in kept) for when in ("before", "after"))
    said = f"  mean error of {counted(len(kept), 'row')}: {before:.1%} before, {after:.1%} after"
    if all(row.from_others is not None for row in kept):
        said += f", {fmean(row.error(row.from_others) for row in kept):.1%} predicted from the others"
    yield said


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(map(plain, names[:MOST_NAMED]))}{more}"


def _width(interval: Interval) -> float:
    return interval[2] - interval[0]


def _shown(interval: Interval) -> str:
    low, value, high = interval
    return f"{value:.5g} ({low:.4g} to {high:.4g})"


def narrowed_json(found: Narrowed) -> str:
    """Everything of `narrowed_lines`, unrounded."""
    rows = [asdict(row) for row in found.rows]
    for row in rows:
        row["left_out"] = bool(row.pop("contradicts"))
    return dump_json(
        {
            "machine": found.sourced.name,
            "numbers": [number.model_dump(mode="json") for number in found.content.number],
            "rows": rows,
            "contradictions": found.contradictions,
            "as_it_was": found.stay,
            "formulas": found.formulas,
            "not_used": found.other,
        }
    )


LEAST, MOST = 1e-6, 1.0  # shares of a figure


def spreads(rows: Sequence[Row], tables: Sequence[Path], share: float) -> np.ndarray:
    """float64[rows]: one standard deviation of each, in its unit: its cell of the column `spread`, "0.2" in that unit
    or "3 %" of the figure, else the standard error of its mean, else `share` of it. Raises DataFileError for a cell
    that is none."""
    if not LEAST <= share <= MOST:
        raise DescriptionError("--spread", [f"{share:g} of a figure: give {LEAST:g} to {MOST:g}, e.g. 0.02 for 2 %"])
    path_of = {path.name: path for path in tables}
    return np.array([_spread(row, path_of[row.file], share) for row in rows])


def _spread(row: Row, path: Path, share: float) -> float:
    assert row.bearing is not None
    text, measured = row.bearing.spread, row.bearing.measured
    if not text:
        return max(row.noise if row.noise is not None else share * measured, LEAST * measured)
    relative = text.endswith("%")
    try:
        found = float(text.removesuffix("%")) * (measured / 100 if relative else 1.0)
    except ValueError:
        found = math.nan
    if not LEAST * measured <= found <= MOST * measured:
        raise DataFileError(
            path,
            f"line {row.bearing.line}, column '{SPREAD}': '{shortened(text)}' is no spread of {measured:g}: write one "
            f"standard deviation, in the figure's unit or as '3 %', from {LEAST:g} of it to all of it",
        )
    return found


MOST_ROWS = 1000
MOST_LEFT_OUT = 200  # rows up to which each is predicted from the others
BEARS = 0.5  # spreads by which half an interval must move rows, all told (root of squares), that they bear on a number
NAMED = 0.01  # spreads by which it moves each of those that are named
STEPS, SETTLED = 5, 1e-3  # predictions are not quite linear: times of predicting again, and change at which to stop


def narrowed_by(
    machine: MimdMachine,
    rows: Sequence[Row],
    off: np.ndarray,
    *,
    named: str,
    spread: str,
    tables: tuple[Table, ...],
    other: dict[str, tuple[str, ...]] | None = None,
    progress: Progress = silent,
) -> Narrowed:
    """The numbers of a machine narrowed by rows that were measured on it, of these tables; off float64[rows]: their
    spreads, and in words; other: rows of the tables that are not used."""
    on = dependence(machine, rows, progress)
    moves = np.abs(on.effects) / off[:, None]
    bears = np.sqrt((moves**2).sum(axis=0)) >= BEARS
    chosen = np.flatnonzero(bears)
    fit = _Fit(machine, rows, off, on.keeping(chosen))
    sets = fit.contradictions()
    kept = ~np.isin(np.arange(len(rows)), [row for one in sets for row in one])
    values, after = fit.solved(kept)
    names = [f"{row.file} line {row.bearing.line}" for row in rows if row.bearing is not None]
    numbers, formulas, correlation = fit.narrowed(values, kept, moves[:, chosen] >= NAMED, names)
    content = CalibrationFile(
        kind=KIND,
        machine=named,
        machine_sha256=machine_digest(machine),
        spread=spread,
        table=tables,
        number=numbers,
        correlation=correlation,
        left_out=tuple(tuple(names[row] for row in one) for one in sets),
    )
    made = with_values(machine, calibrated_values(machine, content, "calibrate"), f"{machine.title}, narrowed")
    measured = []
    for at, (row, name) in enumerate(zip(rows, names, strict=True)):
        progress("rows predicted from the others", at + 1, len(rows))
        assert row.bearing is not None
        one = Measured(
            name=name,
            what=row.name,
            unit=row.unit,
            measured=row.bearing.measured,
            spread=float(off[at]),
            before=float(on.predicted[at]),
            after=float(after[at]),
            from_others=fit.without(at, kept, values, after) if len(rows) <= MOST_LEFT_OUT else None,
            contradicts=next((together for together in content.left_out if name in together), ()),
        )
        measured.append(one)
    content = content.model_copy(update={"residual": tuple(_residuals(rows, measured))})
    return Narrowed(
        sourced=machine,
        machine=made.with_correlation(content.together),
        content=content,
        rows=tuple(measured),
        stay=tuple(on.numbers[at].name for at in np.flatnonzero(~bears) if not on.of_formulas[at]),
        formulas=formulas,
        other=other or {},
    )


def _residuals(rows: Sequence[Row], measured: Sequence[Measured]) -> Iterator[Residual]:
    """Of training steps, and of all programs, where there are enough rows to tell."""
    kept = [(row, one) for row, one in zip(rows, measured, strict=True) if not one.contradicts and one.from_others]
    for figures in ("training step", "program on tiles"):
        off = [
            abs(math.log(one.measured / one.from_others))
            for row, one in kept
            if one.from_others and row.figures and figures in (row.figures, WIDER[row.figures])
        ]
        if len(off) >= FEWEST_ROWS:
            yield Residual(figures=figures, half_width=max(quantile(off), LEAST), rows=len(off))


def _why_not(row: Row) -> str:
    """Why a row tells nothing of any machine."""
    if row.predicted is None:
        return f"not {'read' if row.kind == NOT_COMPUTED else 'predicted'}: {row.note}"
    if row.upper_bound:
        return "a bound, not a measured figure"
    if row.derived:
        return "made of figures that have rows of their own"
    return "not predicted from the numbers of a described machine"


def _of_machine(rows: Sequence[Row], machine: MimdMachine) -> tuple[list[Row], dict[str, tuple[str, ...]]]:
    """The rows that were measured on the machine, and the names of the others, by reason."""
    used, other = [], dict[str, tuple[str, ...]]()
    for row in rows:
        if row.bearing is None:
            why = _why_not(row)
        elif row.bearing.machine != machine.name:
            why = f"of machine '{row.bearing.machine}'"
        elif not row.bearing.measured > 0:
            why = "not above 0"
        else:
            used.append(row)
            continue
        other[why] = (*other.get(why, ()), f"{row.file} {row.name}")
    if not used:
        listed = "; ".join(f"{_some(names)}: {why}" for why, names in other.items())
        raise DescriptionError("calibrate", [f"no row was measured on '{machine.name}': {listed}"])
    if len(used) > MOST_ROWS:
        problem = f"{len(used):,} rows on '{machine.name}'; at most {MOST_ROWS:,} are used: give means of those alike"
        raise DescriptionError("calibrate", [problem])
    return used, other


class _Fit:
    """Numbers z in standard deviations of the sourced intervals, 2 at their ends, and rows in their spreads."""

    def __init__(self, machine: MimdMachine, rows: Sequence[Row], off: np.ndarray, on: Dependence):
        self._machine, self._rows, self._off, self._on = machine, rows, off, on
        numbers = on.numbers
        self._sourced = np.array([one.value for one in numbers])
        self._deviation = np.array([one.half_width / 2 for one in numbers])
        self._low = (np.array([one.low for one in numbers]) - self._sourced) / self._deviation
        self._high = (np.array([one.high for one in numbers]) - self._sourced) / self._deviation
        self._effects = on.effects / 2 / off[:, None]
        self._measured = np.array([row.bearing.measured for row in rows if row.bearing is not None])

    def contradictions(self) -> list[tuple[int, ...]]:
        distances = (self._measured - self._on.predicted) / self._off
        return contradictions(self._effects, distances, self._low, self._high)

    def solved(self, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(z float64[numbers], what the machine of these values predicts float64[rows]), from the rows kept."""
        z = np.zeros(len(self._low))
        predicted = self._on.predicted
        for _ in range(STEPS):
            before, z = z, self._closest(z, predicted, kept)
            predicted = again(self._rows, self._at(z))
            if np.abs(z - before).max(initial=0.0) < SETTLED:
                break
        return z, predicted

    def without(self, row: int, kept: np.ndarray, z: np.ndarray, predicted: np.ndarray) -> float:
        """The prediction of a row by the machine that all other rows make; z, predicted: of all of them together."""
        if not kept[row]:
            return float(predicted[row])
        others = kept.copy()
        others[row] = False
        return float(again([self._rows[row]], self._at(self._closest(z, predicted, others)))[0])

    def _closest(self, z: np.ndarray, predicted: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """z from predictions at another; those do not have what formulas are doubted for."""
        machine_only = np.where(self._on.of_formulas, 0.0, z)
        distances = (self._measured - predicted) / self._off + self._effects @ machine_only
        return closest(self._effects[kept], distances[kept], self._low, self._high)

    def _at(self, z: np.ndarray) -> MimdMachine:
        return with_values(self._machine, self._on.of_machine(self._sourced + self._deviation * z))

    def narrowed(
        self, z: np.ndarray, kept: np.ndarray, bears: np.ndarray, names: Sequence[str]
    ) -> tuple[tuple[Number, ...], dict[str, Interval], tuple[tuple[float, ...], ...]]:
        """The numbers of the machine, those of formulas, and the correlations of the former; intervals are two standard
        deviations of what is left."""
        of_kept = self._effects[kept]
        covariance = np.linalg.inv(np.eye(len(z)) + of_kept.T @ of_kept)
        left = np.sqrt(np.diag(covariance))
        correlation = np.round(covariance / np.outer(left, left), DIGITS)
        numbers, formulas, places = [], {}, list[int]()
        for at, (one, formula) in enumerate(zip(self._on.numbers, self._on.of_formulas, strict=True)):
            interval = _around(one, float(z[at]), float(left[at]))
            if formula:
                formulas[one.name] = interval
                continue
            rows = tuple(name for name, some, used in zip(names, bears[:, at], kept, strict=True) if some and used)
            if rows:
                numbers.append(Number(name=one.name, sourced=one.interval, narrowed=interval, rows=rows))
                places.append(at)
        rows_of = (tuple(correlation[at, places[: end + 1]].tolist()) for end, at in enumerate(places))
        return tuple(numbers), formulas, tuple(rows_of)


def _around(one: UncertainNumber, z: float, left: float) -> Interval:
    """The interval of two standard deviations that are `left` of the sourced ones, within the sourced interval."""
    value = min(max(one.value + z * one.half_width / 2, one.low), one.high)
    value = float(min(max(round(value), math.ceil(one.low)), math.floor(one.high))) if one.whole else value
    reach = left * one.half_width
    return max(one.low, value - reach), value, min(one.high, value + reach)


def calibrate(
    machine: Named,
    tables: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    spread: float = 0.02,
    data: str | Path | None = None,
    progress: Progress = silent,
) -> Narrowed:
    """Calibrate the uncertain parameters of a machine against tables of measurements, with columns as in references/.

    machine: by name or path. progress: as in `run`. tables: by path or name. out: a file to write, which can be given
    wherever a machine can. spread: standard deviation of a figure, as a share of it, where its row has no `spread`.
    data: recordings for rows of training steps. Raises DataFileError for tables that cannot be read, DescriptionError
    where no row bears on the machine or too many do.

        >>> narrowed = mimdsim.calibrate("c600", "multislice.csv", spread=0.01, out="c600-mine.toml")  # doctest: +SKIP
    """
    machine = os.fspath(machine)
    sourced = sourced_machine(machine)
    paths = tuple(find_table(str(table)) for table in several(tables))
    twice = sorted({path.name for path in paths if sum(other.name == path.name for other in paths) > 1})
    if twice:
        raise DataFileError(twice[0], "is given twice; give each table once, under names of their own")
    rows = check_files(paths, None if data is None else Path(data), progress, sourced, MOST_ROWS)
    used, other = _of_machine(rows, sourced)
    folder = Path.cwd() if out is None else Path(out).parent
    found = narrowed_by(
        sourced,
        used,
        spreads(used, paths, spread),
        named=os.path.relpath(machine, folder) if is_path(machine) else machine,
        spread=f"{100 * spread:.3g} % of the figure where a row gives none",
        tables=tuple(Table(file=path.name, sha256=hashlib.sha256(read_whole(path)).hexdigest()) for path in paths),
        other=other,
        progress=progress,
    )
    if out is not None:
        write_calibration(Path(out), found.content, [f"mimdsim run digits {Path(out).name}"])
    return found
