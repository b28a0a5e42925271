"""The tables that console and page share: headers with units, cells with the text shown and the value sorted by."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from mimdsim.profile import TiledProfile
from mimdsim.report.formatting import aligned_milliseconds, in_unit, milliseconds, plain, share, thousands


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is shown, the number it is sorted by (None: sorted as text), and a tag that colours it."""

    text: str
    value: float | None = None
    tag: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with a title; note is shown below it. The console prints some of the columns, the page all."""

    name: str
    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    last_is_total: bool = False  # sorting leaves the last row in place

    @cached_property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers and are right-aligned."""
        return tuple(any(row[column].value is not None for row in self.rows) for column in range(len(self.headers)))


def text(content: str, tag: str = "") -> Cell:
    return Cell(text=content, tag=tag)


def count(number: float) -> Cell:
    """A whole number with thousands separators."""
    return Cell(text=thousands(number), value=number)


def shown(content: str, number: float) -> Cell:
    """A number with its own text."""
    return Cell(text=content, value=number)


def ms(seconds: float) -> Cell:
    """Seconds as a cell of a column headed ms."""
    return Cell(text=milliseconds(seconds), value=seconds)


def aligned_ms(seconds: float, whole: float) -> Cell:
    """Seconds as a cell of a column headed ms whose cells share the decimals that suit `whole`."""
    return Cell(text=aligned_milliseconds(seconds, whole), value=seconds)


def spent(tiled: TiledProfile, seconds: float) -> Cell:
    """Seconds as a cell of a column headed by `unit_of` the machine's profile."""
    if not tiled.trains:
        return count(in_unit(tiled, seconds))
    return aligned_ms(seconds, tiled.seconds_per_training_step)


def percent(part: float, whole: float) -> Cell:
    return Cell(text=share(part, whole), value=part / whole if whole else 0.0)


def table(
    name: str,
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    note: str = "",
    *,
    total: Sequence[Cell] = (),
) -> Table:
    """A Table of `rows`, with `total` in bold below them."""
    body = [tuple(row) for row in rows]
    if total:
        body.append(tuple(dataclasses.replace(cell, tag="strong") for cell in total))
    return Table(
        name=name, caption=caption, headers=tuple(headers), rows=tuple(body), note=note, last_is_total=bool(total)
    )


CSV_FILES = {
    "tiles.csv": "every tile: place, layer, cycles, traffic, memory by category",
    "supersteps.csv": "every superstep in program order: cycles, bytes, flops, slowest tile, what exchanges wait for",
    "liveness.csv": "memory in use at every superstep in program order",
}


def csv_files(tiled: TiledProfile) -> dict[str, str]:
    """Contents of the files of CSV_FILES, by name."""
    return {"tiles.csv": _tiles(tiled), "supersteps.csv": _supersteps(tiled), "liveness.csv": _liveness(tiled)}


def _tiles(tiled: TiledProfile) -> str:
    columns, memory = tiled.tile_columns, tiled.memory
    categories = ["_".join(f"{plain(category)} bytes".split()) for category in memory.categories]
    rows = (
        (
            tile,
            tile % columns.grid_columns,
            tile // columns.grid_columns,
            columns.layer[tile],
            columns.busy_cycles[tile],
            tiled.cycles,
            tiled.clock_hz,
            columns.bytes_sent[tile],
            columns.bytes_received[tile],
            columns.peak_bytes[tile],
            columns.always_live_bytes[tile],
            *(by_tile[tile] for by_tile in memory.bytes_by_category_and_tile),
        )
        for tile in range(len(columns.busy_cycles))
    )
    cycles = f"{'_'.join(tiled.run_name.split())}_cycles"
    header = (
        "tile", "grid_column", "grid_row", "layer", "busy_cycles", cycles, "clock_hz", "bytes_sent",
        "bytes_received", "peak_bytes", "always_live_bytes", *categories,
    )  # fmt: skip
    return csv_text(header, rows)


def _supersteps(tiled: TiledProfile) -> str:
    rows = (
        (
            number, span.name, span.op, span.phase, span.times, span.compute_cycles, span.exchange_cycles,
            span.sync_cycles, span.cycles, tiled.seconds(span.cycles), tiled.clock_hz, span.busy_cycles,
            span.bytes_received, span.flops, span.slowest_tile, span.exchange_tile, span.exchange_tile_bytes,
            span.exchange_tile_control_cycles,
        )
        for number, span in enumerate(tiled.spans)
    )  # fmt: skip
    header = (
        "number", "superstep", "operation", "phase", "times", "compute_cycles", "exchange_cycles", "sync_cycles",
        "total_cycles", "total_seconds", "clock_hz", "busy_cycles", "bytes_received", "flops", "slowest_tile",
        "exchange_tile", "exchange_tile_bytes", "exchange_tile_control_cycles",
    )  # fmt: skip
    return csv_text(header, rows)


def _liveness(tiled: TiledProfile) -> str:
    rows = (
        (
            number, point.superstep, point.phase, point.fullest_tile, point.fullest_tile_bytes, point.total_bytes,
            tiled.memory.limit_bytes,
        )
        for number, point in enumerate(tiled.memory.liveness)
    )  # fmt: skip
    header = (
        "number", "superstep", "phase", "fullest_tile", "fullest_tile_bytes", "total_bytes", "tile_limit_bytes",
    )  # fmt: skip
    return csv_text(header, rows)


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
