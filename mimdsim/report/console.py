"""The console summary: in the page's order, aligned columns, no colours, at most WIDTH characters per line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mimdsim.base.units import counted
from mimdsim.profile import MAPPING_FILE, RunProfile, TiledProfile
from mimdsim.report.formatting import changed_fields, clipped, plain, significant, thousands
from mimdsim.report.headline import MOST_ADVICE, verdicts
from mimdsim.report.sections import sections
from mimdsim.report.tables import Table
from mimdsim.report.tables_difference import difference_tables
from mimdsim.report.tables_machines import energy_table

WIDTH = 110
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


def marked_as_bad(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Every line of a summary, and whether it says what is wrong: those that begin with "!", and what they fold to."""
    bad = False
    for line in lines:
        bad = line.startswith("!") or (bad and line.startswith(" " * len(FOLDED)))
        yield line, bad


def difference_lines(profile: RunProfile, other: RunProfile) -> list[str]:
    """What differs between two runs, A and B, line by line. Raises MimdsimError if one has no tiled machine."""
    totals, supersteps = difference_tables(profile, other)
    differ = supersteps.headers.index("B − A")
    rows = tuple(row for row in supersteps.rows if row[differ].value)[: 2 * LONGEST]
    title = "Supersteps whose cycles change most" if rows else ""
    several = replace(supersteps, title=title, rows=rows, page_only=supersteps.headers[6:])
    lines = [
        *_wrap("", plain(totals.note)),
        *_table_lines(replace(totals, title=totals.caption)),
        *_table_lines(several),
    ]
    return [line.rstrip().translate(PLAIN_SIGNS) for line in lines]


def _lines(profile: RunProfile) -> Iterator[str]:
    yield f"{plain(profile.workload_title)} ({plain(profile.workload)})"
    if profile.network:
        yield (
            f"network {plain(profile.network)}, {counted(profile.timesteps, 'timestep')}, "
            f"batch {thousands(profile.batch)}, seed {profile.seed}"
        )
    fields = dict(changed_fields(profile))
    if file := fields.pop(MAPPING_FILE, ""):
        yield from _wrap("mapping from: ", file)
    if fields:
        yield from _wrap("changed by --set: ", ", ".join(f"{key} = {value}" for key, value in fields.items()))
    yield ""
    yield "Verdict"
    for verdict in verdicts(profile):
        mark = "!" if verdict.mood == "bad" else " "
        yield from _wrap(f"{mark} {verdict.subject:<11} ", plain(verdict.text))
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


def _table_lines(table: Table | None) -> Iterator[str]:
    """A table that has a title: texts left-aligned and numbers right-aligned."""
    if table is None or not table.title:
        return
    yield ""
    yield clipped(table.title, WIDTH)
    columns = [at for at, header in enumerate(table.headers) if header not in table.page_only]
    right = table.numeric
    rows = [[plain(row[at].text) for at in columns] for row in table.rows]
    rows.insert(0, [table.headers[at] for at in columns])
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    texts = [at for at, column in enumerate(columns) if not right[column]]
    names = texts[:-1]  # the last words of a row are its verdict
    while sum(widths) + 2 * len(widths) > WIDTH:  # numbers are never cut, the longest names are
        roomy = [at for at in names if widths[at] > SHORTEST_NAME]
        widest = max(roomy or texts, key=lambda at: widths[at])
        widths[widest] -= 1
    for row in rows:
        cells = (clipped(cell, width) for cell, width in zip(row, widths, strict=True))
        padded = (
            cell.rjust(width) if right[column] else cell.ljust(width)
            for cell, width, column in zip(cells, widths, columns, strict=True)
        )
        yield "  " + "  ".join(padded)
    if any(table.said):
        yield from _wrap(f"  {table.said[0]}", plain(table.said[1]))


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


def _wrap(start: str, content: str) -> list[str]:
    """`content` after `start`, folded to WIDTH with the later lines indented."""
    return textwrap.wrap(content, WIDTH, initial_indent=start, subsequent_indent=" " * len(start)) or [start]
