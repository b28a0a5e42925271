"""What measurements make of a machine and of their own predictions, and how it is shown: console lines and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import fmean

from mimdsim.base.files import dump_json
from mimdsim.base.shown import Sheet, Shown
from mimdsim.base.units import counted
from mimdsim.machine import MimdMachine
from mimdsim.machine.calibrated import CalibrationFile, Interval
from mimdsim.report.formatting import plain


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
    (low, value, high) in shares of that doubt, -1 to 1; the machine does not hold these. other: rows not used, by why.
    """

    sourced: MimdMachine
    machine: MimdMachine
    content: CalibrationFile
    rows: tuple[Measured, ...]
    stay: tuple[str, ...]
    formulas: dict[str, Interval]
    other: dict[str, int]

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
    for one in found.contradictions:
        yield ""
        yield from _contradiction(one)
    if found.other:
        yield ""
        yield "Rows not used: " + "; ".join(f"{count} {plain(why)}" for why, count in found.other.items())


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


def _contradiction(names: tuple[str, ...]) -> Iterator[str]:
    if len(names) == 1:
        yield f"Contradicts the machine: {_some(names)}: no values within the intervals meet it within two spreads."
    else:
        yield f"Contradict each other: {_some(names)}: no values within the intervals meet all within two spreads."
    yield "  Left out of the above; correct what was measured, give a wider spread, or doubt a source of the machine."


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
    rows = [asdict(row) | {"left_out": bool(row.contradicts)} for row in found.rows]
    for row in rows:
        del row["contradicts"]
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
