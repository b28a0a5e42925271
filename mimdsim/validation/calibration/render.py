"""What measurements did to a machine, as lines for a console and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from mimdsim.base.files import dump_json
from mimdsim.base.units import counted
from mimdsim.machine.calibrated import Interval, Number
from mimdsim.report.formatting import plain
from mimdsim.validation.calibration.result import Measured, Narrowed

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
    yield from _stays(found.stay)
    yield ""
    yield from _rows(found.rows)
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
    listed = ", ".join(map(plain, names[:MOST_NAMED]))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    if len(names) == 1:
        yield f"Contradicts the machine: {listed}: no values within the intervals meet it within two spreads."
    else:
        yield f"Contradict each other: {listed}{more}: no values within the intervals meet all within two spreads."
    yield "  Left out of the above; correct what was measured, give a wider spread, or doubt a source of the machine."


def _stays(names: tuple[str, ...]) -> Iterator[str]:
    if names:
        listed = ", ".join(map(plain, names[:MOST_NAMED]))
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        yield f"  as it was, as no row bears on it: {listed}{more}"


def _width(interval: Interval) -> float:
    return interval[2] - interval[0]


def _shown(interval: Interval) -> str:
    low, value, high = interval
    return f"{value:.5g} ({low:.4g} to {high:.4g})"


def narrowed_json(found: Narrowed) -> str:
    """Everything of `narrowed_lines`, unrounded."""
    numbers: list[dict[str, Any]] = [_as_json(number) for number in found.content.number]
    rows = [
        {
            "name": row.name,
            "what": row.what,
            "unit": row.unit,
            "measured": row.measured,
            "spread": row.spread,
            "before": row.before,
            "after": row.after,
            "from_others": row.from_others,
            "left_out": bool(row.contradicts),
        }
        for row in found.rows
    ]
    return dump_json(
        {
            "machine": found.sourced.name,
            "numbers": numbers,
            "rows": rows,
            "contradictions": found.contradictions,
            "as_it_was": found.stay,
            "formulas": found.formulas,
            "not_used": found.other,
        }
    )


def _as_json(number: Number) -> dict[str, Any]:
    return number.model_dump(mode="json")
