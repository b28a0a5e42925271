"""Rows of published figures as lines for a console of 160 columns and as JSON, with summaries by kind and by size."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

from mimdsim.base.files import dump_json
from mimdsim.report.formatting import plain
from mimdsim.validation.reference_table import Row, grouped

COLUMNS = 160
NAME_COLUMNS = 66
SIZES = (
    (1e9, "below 1 GFLOP"),
    (1e10, "1 to 10 GFLOP"),
    (1e11, "10 to 100 GFLOP"),
    (math.inf, "100 GFLOP and more"),
)  # what a product's operations are below, and the name of that range


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Rows of one kind: how many are compared and within tolerance, and their relative errors (None: none has one).

    Upper bounds are compared, but have no error.
    """

    kind: str
    rows: int
    computed: int
    compared: int
    within: int
    mean_error: float | None
    median_error: float | None
    worst: Row | None


def summarised(rows: list[Row], kind: str = "") -> Summary:
    """The summary of `rows`."""
    compared = [row for row in rows if row.within is not None]
    measured = [row for row in compared if not row.upper_bound]
    errors = [row.error for row in measured]
    return Summary(
        kind=kind,
        rows=len(rows),
        computed=sum(row.predicted is not None for row in rows),
        compared=len(compared),
        within=sum(row.within is True for row in rows),
        mean_error=fmean(errors) if errors else None,
        median_error=median(errors) if errors else None,
        worst=max(measured, key=lambda row: row.error) if measured else None,
    )


def range_of(row: Row) -> str:
    """The range of sizes that a row belongs to; '' for rows that are not summed up by size."""
    return "" if row.size is None else next(name for bound, name in SIZES if row.size < bound)


def ranges_of(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of every range of sizes, small ones first; ranges without a row are left out."""
    found = [(name, [row for row in rows if range_of(row) == name]) for _, name in SIZES]
    return [(name, chosen) for name, chosen in found if chosen]


def rows_as_json(rows: list[Row]) -> str:
    """All rows with ratio, verdict and range, and the mean errors of their table, of their kind and of their range."""
    listed: list[dict[str, Any]] = []
    for _, of_file in grouped(rows, "file"):
        table_error = summarised(of_file).mean_error
        kinds = {kind: summarised(chosen).mean_error for kind, chosen in grouped(of_file, "kind")}
        ranges = {
            (kind, name): summarised(chosen).mean_error
            for kind, of_kind in grouped(of_file, "kind")
            for name, chosen in ranges_of(of_kind)
        }
        for row in of_file:
            more = {
                "ratio": row.ratio,
                "second_ratio": row.second_ratio,
                "within": row.within,
                "range": range_of(row),
                "table_mean_error": table_error,
                "kind_mean_error": kinds[row.kind],
                "range_mean_error": ranges.get((row.kind, range_of(row))),
            }
            listed.append(asdict(replace(row, bearing=None)) | more)
            del listed[-1]["bearing"]
    return dump_json(listed)


def table(rows: list[Row]) -> list[str]:
    """Aligned lines per file, none longer than COLUMNS; followed by sources, notes and a summary."""
    lines: list[str] = []
    for file, chosen in grouped(rows, "file"):
        for line in _lines_of(file, chosen):
            lines += textwrap.wrap(line, COLUMNS, subsequent_indent=" " * 8, break_on_hyphens=False)
        lines.append("")
    return lines


def _lines_of(file: str, rows: list[Row]) -> Iterator[str]:
    sources = list(dict.fromkeys(plain(row.source) for row in rows))
    width = min(max(len(plain(row.name)) for row in rows), NAME_COLUMNS)
    yield plain(file)
    heads = f"{'predicted':>10} {'published':>10} {'ratio':>6} {'tol.':>5}"
    yield f"  {'name':<{width}} {heads}      [interval] unit, source"
    for row in rows:
        mark = f" ({sources.index(plain(row.source)) + 1})" if len(sources) > 1 and row.predicted is not None else ""
        yield _line_of(row, width) + mark
    for number, source in enumerate(sources, start=1):
        yield f"  source{f' ({number})' if len(sources) > 1 else ''}: {source}"
    for note in dict.fromkeys(row.note for row in rows if row.note and row.ratio is not None):
        yield f"  note: {plain(note)}"
    kinds = grouped(rows, "kind")
    for kind, of_kind in kinds:
        if len(kinds) > 1 and any(row.ratio is not None for row in of_kind):
            yield f"  {plain(kind)}: {verdict(summarised(of_kind))}"
            yield from _by_size(of_kind)
    yield f"  {verdict(summarised(rows))}; {sum(row.predicted is None for row in rows)} not computed"
    yield from _by_size(rows)


def _by_size(rows: list[Row]) -> Iterator[str]:
    for name, chosen in ranges_of(rows):
        yield f"    {name}: {verdict(summarised(chosen))}"


def _line_of(row: Row, width: int) -> str:
    name = plain(row.name)
    name = name if len(name) <= width else name[: width - 3] + "..."
    published = "-" if row.published is None else f"{row.published:.6g}"
    if row.predicted is None:
        return f"  {name:<{width}} {'-':>10} {published:>10} {'-':>6} {'-':>5}  not computed: {plain(row.note)}"
    ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
    tolerance = "-" if row.ratio is None else "bound" if row.upper_bound else f"{row.tolerance:.0%}"
    out = "OUT" if row.within is False else ""
    interval = "" if row.low is None or row.low == row.high else f"[{row.low:.4g}, {row.high:.4g}] "
    noise = "" if row.noise is None else f", runs \u00b1{row.noise:.2g}"
    second = "" if row.second_ratio is None else f", {row.second_name} {row.second:.4g}: {row.second_ratio:.3f}"
    note = f"; {plain(row.note)}" if row.published is None else ""
    numbers = f"{row.predicted:>10.6g} {published:>10} {ratio:>6} {tolerance:>5} {out:<3}"
    return f"  {name:<{width}} {numbers}  {interval}{plain(row.unit)}{noise}{second}{note}"


def verdict(summary: Summary) -> str:
    """'16 of 18 within tolerance, mean error 7.1%, median 5.6%, worst 1.216: NAME'."""
    if summary.worst is None:
        return f"{summary.within} of {summary.compared} at most the bound" if summary.compared else "no row is compared"
    return (
        f"{summary.within} of {summary.compared} within tolerance, mean error {summary.mean_error:.1%}, "
        f"median {summary.median_error:.1%}"
        + (f", worst {summary.worst.ratio:.3f}: {plain(summary.worst.name)}" if summary.worst.ratio != 1 else "")
    )
