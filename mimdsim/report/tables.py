"""The tables that console and page share: headers with units, cells with the text shown and the value sorted by."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mimdsim.base.units import show_bytes
from mimdsim.profile import MemoryProfile, TiledProfile
from mimdsim.report.formatting import aligned_milliseconds, in_unit, plain, share, significant, thousands


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is shown, the number it is sorted by (None: sorted as text), a tag that colours it, and what it leads to."""

    text: str
    value: float | None = None
    tag: str = ""
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with a caption; note is shown below it. The page shows all columns; the console prints those with a
    `title`, without the `page_only` columns, and `said` below them, folded to stand below its second part."""

    name: str
    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    last_is_total: bool = False  # sorting leaves the last row in place
    title: str = ""
    page_only: tuple[str, ...] = ()
    said: tuple[str, str] = ("", "")

    @cached_property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers and are right-aligned."""
        return tuple(any(row[column].value is not None for row in self.rows) for column in range(len(self.headers)))


Value = Cell | str | float  # of a row: a text, a whole number, or a cell that is shown otherwise


def text(content: str, tag: str = "") -> Cell:
    return Cell(text=content, tag=tag)


def shown(content: str, number: float) -> Cell:
    """A number with its own text."""
    return Cell(text=content, value=number)


def three_digits(number: float) -> Cell:
    return Cell(text=significant(number), value=number)


def size(count: float) -> Cell:
    """Bytes in the unit that suits them."""
    return Cell(text=show_bytes(count), value=count)


def aligned_ms(seconds: float, whole: float) -> Cell:
    """Seconds as a cell of a column headed ms whose cells share the decimals that suit `whole`."""
    return Cell(text=aligned_milliseconds(seconds, whole), value=seconds)


def time_cell(tiled: TiledProfile, seconds: float) -> Cell:
    """Seconds as a cell of a column headed by `unit_of` the machine's profile."""
    if not tiled.trains:
        return _cell(in_unit(tiled, seconds))
    return aligned_ms(seconds, tiled.seconds_per_training_step)


def percent(part: float, whole: float = 1.0) -> Cell:
    return Cell(text=share(part, whole), value=part / whole if whole else 0.0)


def table(
    name: str,
    caption: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[Value]],
    note: str = "",
    *,
    total: Sequence[Value] = (),
    without: Collection[str] = (),
    **console: Any,
) -> Table:
    """A Table of `rows`, with `total` in bold below them; without: headers of columns that are left out; console: what
    is printed of it."""
    kept = [at for at, header in enumerate(headers) if header not in without]
    body = [tuple(_cell(row[at]) for at in kept) for row in rows]
    if total:
        body.append(tuple(dataclasses.replace(_cell(total[at]), tag="strong") for at in kept))
    names = tuple(headers[at] for at in kept)
    more = {"note": note, "last_is_total": bool(total), **console}
    return Table(name=name, caption=caption, headers=names, rows=tuple(body), **more)


def _cell(value: Value) -> Cell:
    if isinstance(value, Cell):
        return value
    return text(value) if isinstance(value, str) else Cell(text=thousands(value), value=value)


CSV_FILES = {
    "tiles.csv": "every tile: place, layer, cycles, traffic, memory by category",
    "supersteps.csv": "every superstep in program order: cycles, bytes, flops, slowest tile, what exchanges wait for",
    "liveness.csv": "memory in use at every superstep in program order",
}
Columns = list[tuple[str, Sequence[object]]]


def csv_files(tiled: TiledProfile) -> dict[str, str]:
    """Contents of the files of CSV_FILES, by name."""
    tables = zip(CSV_FILES, (_tiles(tiled), _supersteps(tiled), _liveness(tiled.memory)), strict=True)
    return {
        file: csv_text([name for name, _ in columns], zip(*(values for _, values in columns), strict=True))
        for file, columns in tables
    }


def _tiles(tiled: TiledProfile) -> Columns:
    columns, memory = tiled.tile_columns, tiled.memory
    tiles, across = range(len(columns.busy_cycles)), columns.grid_columns
    return [
        ("tile", tiles),
        ("grid_column", [tile % across for tile in tiles]),
        ("grid_row", [tile // across for tile in tiles]),
        ("layer", columns.layer),
        ("busy_cycles", columns.busy_cycles),
        (f"{'_'.join(tiled.run_name.split())}_cycles", [tiled.cycles] * len(tiles)),
        ("clock_hz", [tiled.clock_hz] * len(tiles)),
        ("bytes_sent", columns.bytes_sent),
        ("bytes_received", columns.bytes_received),
        ("peak_bytes", columns.peak_bytes),
        ("always_live_bytes", columns.always_live_bytes),
        *(
            ("_".join(f"{plain(category)} bytes".split()), by_tile)
            for category, by_tile in zip(memory.categories, memory.bytes_by_category_and_tile, strict=True)
        ),
    ]


def _supersteps(tiled: TiledProfile) -> Columns:
    spans = tiled.spans
    return [
        ("number", range(len(spans))),
        ("superstep", [span.name for span in spans]),
        ("operation", [span.op for span in spans]),
        *_attributes(spans, "phase", "times", "compute_cycles", "exchange_cycles", "sync_cycles"),
        ("total_cycles", [span.cycles for span in spans]),
        ("total_seconds", [tiled.seconds(span.cycles) for span in spans]),
        ("clock_hz", [tiled.clock_hz] * len(spans)),
        *_attributes(spans, "busy_cycles", "bytes_received", "flops", "slowest_tile", "exchange_tile"),
        *_attributes(spans, "exchange_tile_bytes", "exchange_tile_control_cycles"),
    ]


def _liveness(memory: MemoryProfile) -> Columns:
    points = memory.liveness
    return [
        ("number", range(len(points))),
        *_attributes(points, "superstep", "phase", "fullest_tile", "fullest_tile_bytes", "total_bytes"),
        ("tile_limit_bytes", [memory.limit_bytes] * len(points)),
    ]


def _attributes(records: Sequence[object], *names: str) -> Columns:
    return [(name, [getattr(record, name) for record in records]) for name in names]


def csv_text(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table for spreadsheets: names that could be mistaken for a formula are quoted, also in the header."""
    memory = io.StringIO()
    writer = csv.writer(memory, lineterminator="\n")
    writer.writerows([_harmless(cell) for cell in row] for row in (header, *rows))
    return memory.getvalue()


def _harmless(cell: object) -> object:
    """A name that a spreadsheet could mistake for a formula, quoted; everything else unchanged."""
    if not isinstance(cell, str):
        return cell
    name = plain(cell)
    return f"'{name}" if name[:1] in ("=", "+", "-", "@") else name
