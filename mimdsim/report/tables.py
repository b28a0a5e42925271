"""The tables that console and page share: headers with units, cells with the text shown and the value sorted by."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from mimdsim.profile import TiledProfile
from mimdsim.report.formatting import aligned_milliseconds, in_unit, milliseconds, share, thousands


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
