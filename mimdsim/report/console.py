"""The console summary: in the page's order, aligned columns, no colours, at most WIDTH characters per line; and the
short form of it, which a terminal shows at once."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mimdsim.base.units import counted
from mimdsim.profile import MAPPING_FILE, RunProfile, TiledProfile
from mimdsim.report.formatting import changed_fields, clipped, plain, significant, thousands
from mimdsim.report.headline import MOST_ADVICE, Verdict, verdicts
from mimdsim.report.sections import sections
from mimdsim.report.tables import Table
from mimdsim.report.tables_difference import difference_tables
from mimdsim.report.tables_machines import energy_table

WIDTH = 110
SHORT_WIDTH, SHORT_LINES = 80, 25  # of the short form
FIRST_CLAUSE = re.compile(r"(?<=[\w)%])[.;] .*", re.DOTALL)  # what follows it
ONE_BY_ONE = ("machine", "GPU")  # subjects of which the short form tells all, not the first
LONGEST = 5
SHORTEST_NAME = 12
# the tables that are printed; between them a line on the tiles
OF_TIME = ("phases", "supersteps", "doubts")
OF_THE_REST = ("categories", "liveness", "activity", "sparsity", "comparison", "energy", "silicon", "inference")
FOLDED = "! warning     "  # later lines of a verdict are indented by as much
PLAIN_SIGNS = str.maketrans({"–": "-", "−": "-", "×": "x", "★": "*", "·": "|"})  # a console may only support ASCII


def summary_lines(profile: RunProfile) -> list[str]:
    """The summary of a run, line by line without newlines; verdicts first, then tables in the page's order."""
    lines = [line.rstrip() for line in _lines(profile)]
    return [line.translate(PLAIN_SIGNS) if len(line) <= WIDTH else clipped(line, WIDTH) for line in lines]


def short_lines(profile: RunProfile, page: Path | None = None) -> list[str]:
    """What was run and its verdicts, the first of every subject, in SHORT_LINES lines of SHORT_WIDTH characters; page:
    the report, where the rest is (the line that names it is as long as its path)."""
    fields = ", ".join(f"{key} = {value}" for key, value in changed_fields(profile))
    heads = _heads(profile)
    heads += [f"changed: {fields}"] * bool(fields)
    said, left = _first_of_each(profile)
    more = clipped(", ".join(["All of it on the console", *left]), SHORT_WIDTH - len(": --verbose"))
    last = [f"Report: {page}"] * (page is not None) + [f"{more}: --verbose"]
    blocks = [_said_shortly(one) for one in said]
    room = SHORT_LINES - len(heads) - len(last)
    for at in reversed(range(len(said))):  # the least important ones become their first clause
        if sum(map(len, blocks)) > room and said[at].subject != "machine":  # whose clauses end with the name
            blocks[at] = _said_shortly(said[at]._replace(text=FIRST_CLAUSE.sub(".", said[at].text)))
    lines = [line for block in blocks for line in block]
    if len(lines) > room:
        lines = [*lines[: room - 1], "  and more, which --verbose tells"]
    shown = [*(clipped(line, SHORT_WIDTH) for line in heads), *lines]
    return [line.rstrip().translate(PLAIN_SIGNS) for line in (*shown, *last)]


def folded_lines(lines: Iterable[str]) -> list[str]:
    """Prose in lines of SHORT_WIDTH characters; what does not fit into SHORT_LINES, with two for where the rest is, is
    left out, and said to be."""
    folded = [
        part
        for line in lines
        for part in textwrap.wrap(line, SHORT_WIDTH, subsequent_indent=" " * (len(FOLDED) if line[:1] == "!" else 2))
    ]
    most = SHORT_LINES - 2
    return folded if len(folded) <= most else [*folded[: most - 1], "  and more, which --verbose tells"]


def _first_of_each(profile: RunProfile) -> tuple[list[Verdict], list[str]]:
    """Verdicts without further ones of a subject, and warnings; and how many are left out."""
    every: dict[str, list[Verdict]] = {}
    for one in verdicts(profile):
        every.setdefault(one.subject, []).append(one)
    if profile.warnings:
        every["warning"] = [Verdict("warning", "bad", text) for text in profile.warnings]
    said, left = [], []
    for subject, those in every.items():
        kept = those if subject in ONE_BY_ONE else those[:1]
        said += kept
        if len(those) > len(kept) and subject != "advice":
            left.append(f"{len(those) - len(kept)} more of '{subject}'")
    return said, left


def _said_shortly(verdict: Verdict) -> list[str]:
    return _said(verdict, plain(verdict.text).translate(PLAIN_SIGNS), SHORT_WIDTH)


def _said(verdict: Verdict, text: str, width: int = WIDTH) -> list[str]:
    return _wrap(f"{'!' if verdict.mood == 'bad' else ' '} {verdict.subject:<11} ", text, width)


def marked_as_bad(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Every line of a summary, and whether it says what is wrong: those that begin with "!", and what they fold to."""
    bad = False
    for line in lines:
        bad = line.startswith("!") or (bad and line.startswith(" " * len(FOLDED)))
        yield line, bad


def difference_lines(profile: RunProfile, other: RunProfile, *, every: bool = False) -> list[str]:
    """What differs between two runs, A and B, line by line; of operations those that differ most, as many as fit into
    SHORT_LINES of SHORT_WIDTH, unless every one is asked for. Raises MimdsimError if one has no tiled machine."""
    totals, operations = difference_tables(profile, other)
    differ = operations.headers.index("B − A")
    rows = tuple(row for row in operations.rows if row[differ].value)
    title = "Operations whose cycles change most" if rows else ""
    width = WIDTH if every else SHORT_WIDTH
    lines = [*_wrap("", plain(totals.note), width), *_table_lines(replace(totals, title=totals.caption), width)]
    left = len(rows) if every else max(SHORT_LINES - 2 - len(lines) - 3, 0)  # a line between, title and headers
    hidden = operations.headers[differ + 2 :] if every else operations.headers[differ + 1 :]
    lines += _table_lines(replace(operations, title=title if left else "", rows=rows[:left], page_only=hidden), width)
    return [line.rstrip().translate(PLAIN_SIGNS) for line in lines]


def difference_record(profile: RunProfile, other: RunProfile) -> dict[str, Any]:
    """The tables of differences, for scripts: rows by header, numbers where a cell has one."""
    totals, operations = (
        [
            {
                name: plain(cell.text) if cell.value is None else cell.value
                for name, cell in zip(one.headers, row, strict=True)
            }
            for row in one.rows
        ]
        for one in difference_tables(profile, other)
    )
    return {"version": 1, "totals": totals, "operations": operations}


def _heads(profile: RunProfile) -> list[str]:
    """What was run."""
    size = f"{counted(profile.timesteps, 'timestep')}, batch {thousands(profile.batch)}, seed {profile.seed}"
    network = [f"network {plain(profile.network)}, {size}"] if profile.network else []
    return [f"{plain(profile.workload_title)} ({plain(profile.workload)})", *network]


def _lines(profile: RunProfile) -> Iterator[str]:
    yield from _heads(profile)
    fields = dict(changed_fields(profile))
    if file := fields.pop(MAPPING_FILE, ""):
        yield from _wrap("mapping from: ", file)
    if fields:
        yield from _wrap("changed by --set: ", ", ".join(f"{key} = {value}" for key, value in fields.items()))
    yield ""
    yield "Verdict"
    for verdict in verdicts(profile):
        yield from _said(verdict, plain(verdict.text))
    for warning in profile.warnings:
        yield from _wrap(FOLDED, plain(warning))
    commands = [one for one in profile.advice[:MOST_ADVICE] if one.command]
    if commands:
        yield from ["", "How to take this advice"]
        for one in commands:
            yield from _wrap("  ", f"{plain(one.what)}:")
            yield from _command(plain(one.command))
    tables = {table.name: table for section in sections(profile, rows=LONGEST) for table in section.tables}
    if profile.network and (energy := energy_table(profile)) is not None:
        tables["energy"] = energy  # also of a machine that is compared with none
    for name in OF_TIME:
        yield from _table_lines(tables.get(name))
    if profile.tiled is not None:
        yield from ["", _of_tiles(profile.tiled)]
    for name in OF_THE_REST:
        yield from _table_lines(tables.get(name))
    yield ""
    yield f"What is modelled: {tables['assumptions'].note}"


def _of_tiles(tiled: TiledProfile) -> str:
    return (
        f"Tiles: {thousands(tiled.tiles_used)} of {thousands(tiled.tiles)} used, "
        f"tile balance {tiled.tile_balance:.2f}, time utilisation {100 * tiled.time_utilisation:.1f} %, "
        f"{significant(tiled.clock_hz / 1e9, 4)} GHz"
    )


def _table_lines(table: Table | None, width: int = WIDTH) -> Iterator[str]:
    """A table that has a title: texts left-aligned and numbers right-aligned."""
    if table is None or not table.title:
        return
    yield ""
    yield clipped(table.title, width)
    columns = [at for at, header in enumerate(table.headers) if header not in table.page_only]
    right = table.numeric
    rows = [[plain(row[at].text) for at in columns] for row in table.rows]
    rows.insert(0, [table.headers[at] for at in columns])
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    texts = [at for at, column in enumerate(columns) if not right[column]]
    names = texts[:-1]  # the last words of a row are its verdict
    while sum(widths) + 2 * len(widths) > width:  # numbers are never cut, the longest names are
        roomy = [at for at in names if widths[at] > SHORTEST_NAME]
        widest = max(roomy or texts, key=lambda at: widths[at])
        widths[widest] -= 1
    for row in rows:
        cells = (clipped(cell, wide) for cell, wide in zip(row, widths, strict=True))
        padded = (
            cell.rjust(wide) if right[column] else cell.ljust(wide)
            for cell, wide, column in zip(cells, widths, columns, strict=True)
        )
        yield "  " + "  ".join(padded)
    if any(table.said):
        yield from _wrap(f"  {table.said[0]}", plain(table.said[1]), width)


def _command(command: str) -> Iterator[str]:
    """A command in lines that a shell reads as one."""
    first, *settings = command.split(" --set ")
    line = f"    {first}"
    for setting in settings:
        if len(line) + len(setting) + len(" --set  \\") > WIDTH:
            yield f"{line} \\"
            line = "     "
        line += f" --set {setting}"
    yield line


def _wrap(start: str, content: str, width: int = WIDTH) -> list[str]:
    """`content` after `start`, folded to `width` with the later lines indented."""
    return textwrap.wrap(content, width, initial_indent=start, subsequent_indent=" " * len(start)) or [start]
