"""How objects print: on one screen in a console, as a table in a notebook. A class inherits `Shown`, and says in
`_sheet` what a user wants first where that is not simply its fields."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

from mimdsim.base.units import counted, show_quantity

LINES, COLUMNS = 25, 100
WIDEST = 44  # of every column but the last
MOST_FOLDED = 3  # lines of a title, or of a cell in the last column
FEW = 8  # values that are listed
LEFT = 'style="text-align:left"'
T = TypeVar("T")
SCALAR = (bool, int, float, str, PurePath, type(None))


class Sheet(NamedTuple):
    """A title in a line, and a table below it; cells are texts, `head` names its columns. Rows are read only when they
    are shown, and no more than are shown, but for counting them."""

    title: str
    rows: Iterable[Sequence[str]] = ()
    head: tuple[str, ...] = ()


class Shown:
    """Prints at most LINES lines of COLUMNS characters; notebooks show the same as a table."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = Shown.__repr__  # type: ignore[method-assign]  # before `dataclass` would write its own

    def _sheet(self) -> Sheet:
        """By default all fields that are not empty."""
        names = [one.name for one in dataclasses.fields(self)] if dataclasses.is_dataclass(self) else vars(self)
        fields = ((name, getattr(self, name)) for name in names if not name.startswith("_"))
        name = getattr(self, "name", "")
        rows = ((key, brief(value, key)) for key, value in fields if not _is_empty(value))
        return Sheet(f"{type(self).__name__} '{name}'" if name else type(self).__name__, rows)

    def __repr__(self) -> str:
        sheet = self._sheet()
        title, rows, left = _cut(sheet)
        widths = [min(max(map(len, column)), WIDEST) for column in zip(*rows, strict=True)][:-1]
        lines = textwrap.wrap(title, COLUMNS, max_lines=MOST_FOLDED, placeholder="..", subsequent_indent="    ")
        for at, row in enumerate(rows):
            start = "".join(f"  {_clipped(cell, width):{width}}" for cell, width in zip(row[:-1], widths, strict=True))
            most = 1 if sheet.head else MOST_FOLDED
            room = max(COLUMNS - len(start) - 2, FEW)
            folded = textwrap.wrap(row[-1], room, max_lines=most, placeholder="..") or [""]
            more = [f"{'':{len(start)}}  {line}" for line in folded[1:]]
            if len(lines) + len(folded) >= LINES:
                left += len(rows) - at
                break
            lines += [_clipped(f"{start}  {folded[0]}".rstrip(), COLUMNS), *more]
        return "\n".join([*lines, *([f"  ... and {left:,} more"] if left else ())])

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        sheet = self._sheet()
        title, rows, left = _cut(sheet)
        body = ""
        for at, row in enumerate(rows):
            tag = "th" if at == 0 and sheet.head else "td"
            body += f"<tr>{''.join(f'<{tag} {LEFT}>{escape(cell)}</{tag}>' for cell in row)}</tr>"
        more = f"<p>... and {left:,} more</p>" if left else ""
        return f"<table><caption {LEFT}><b>{escape(title)}</b></caption>{body}</table>{more}"


class Listed(Shown, list[T]):
    """A list that prints as a table; sheet: which it is."""

    def __init__(self, records: Iterable[T], sheet: Callable[[Sequence[T]], Sheet]):
        super().__init__(records)
        self._as_sheet = sheet

    def _sheet(self) -> Sheet:
        return self._as_sheet(self)

    def __reduce__(self) -> tuple[type, tuple[list[T]]]:  # a copy, or what another process gets, is a plain list
        return list, (list(self),)


def _cut(sheet: Sheet) -> tuple[str, list[list[str]], int]:
    """Title, as many rows as may be shown with the head first, all of as many cells, and how many are left out."""
    rows: Iterator[Sequence[str]] = iter(sheet.rows)
    found = [[*map(one_line, row)] for row in (*([sheet.head] if sheet.head else ()), *islice(rows, LINES - 2))]
    width = max(map(len, found), default=0)
    return one_line(sheet.title), [row + [""] * (width - len(row)) for row in found], sum(1 for _ in rows)


def one_line(text: str) -> str:
    """`text` on one line, without characters that a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 2] + ".."


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, tuple, list, set, frozenset, Mapping)) and not value)


def brief(value: Any, field: str = "") -> str:
    """A value in a few words: a number in the unit that the name of its `field` ends in, of many things how many."""
    field = field.removesuffix("_low").removesuffix("_high")
    if isinstance(value, Shown):
        return value._sheet().title
    if isinstance(value, (bool, type(None))):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}" if not field.endswith("bytes") else show_quantity(value, field)
    if isinstance(value, float):
        return show_quantity(value, field)
    if isinstance(value, Mapping):
        named = ", ".join(map(str, islice(value, FEW)))
        return f"{len(value):,}: {named}{', ...' if len(value) > FEW else ''}" if value else "none"
    if isinstance(value, (tuple, list, set, frozenset)):
        if len(value) <= FEW and all(isinstance(each, SCALAR) for each in value):
            return ", ".join(brief(each, field) for each in value)
        kinds = {type(each).__name__ for each in value}
        kind = kinds.pop() if len(kinds) == 1 else "value"
        return counted(len(value), kind, kind if kind.endswith("ss") else "")
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    said = value if isinstance(value, str) else str(value) if isinstance(value, PurePath) else type(value).__name__
    return _clipped(one_line(said), COLUMNS)


# ---- phases: those of a training step in order, and the order of the names that other programs give their parts


PHASES = ("input", "forward", "loss", "backward", "update")
LONGEST_NAME = 40


def in_order(names: Iterable[str], known: tuple[str, ...] = PHASES) -> tuple[str, ...]:
    """The different `names`: in the order of `known` where it has them all, else as they first appear."""
    found = tuple(dict.fromkeys(names))
    return tuple(name for name in known if name in found) if set(found) <= set(known) else found


def refused_name(name: str) -> str:
    """Why `name` cannot be the name of a phase or category, '' where it can."""
    if 0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip():
        return ""
    return f"must be a name of 1 to {LONGEST_NAME} printable characters"
