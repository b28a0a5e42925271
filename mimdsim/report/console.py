"""The console summary: in the page's order, aligned columns, no colours, at most WIDTH characters per line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mimdsim.base.units import counted
from mimdsim.profile import MAPPING_FILE, RunProfile, TiledProfile
from mimdsim.report.formatting import changed_fields, clipped, plain, significant, thousands, unit_of
from mimdsim.report.headline import MOST_ADVICE, verdicts
from mimdsim.report.tables import Table
from mimdsim.report.tables_comparison import assumptions_table, comparison_table
from mimdsim.report.tables_cost import doubts_table, phases_table, supersteps_table
from mimdsim.report.tables_difference import difference_tables
from mimdsim.report.tables_energy import energy_table, silicon_table
from mimdsim.report.tables_learning import activity_table, sparsity_table
from mimdsim.report.tables_memory import categories_table, liveness_table

WIDTH = 110
LONGEST = 5
SHORTEST_NAME = 12
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
    several = replace(supersteps, rows=tuple(row for row in supersteps.rows if row[differ].value)[: 2 * LONGEST])
    lines = [
        *_wrapped("", plain(totals.note)),
        *_section(totals.caption, totals, *totals.headers),
        *(_section("Supersteps whose cycles change most", several, *several.headers[:6]) if several.rows else ()),
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
        yield from _wrapped("mapping from: ", file)
    if fields:
        yield from _wrapped("changed by --set: ", ", ".join(f"{key} = {value}" for key, value in fields.items()))
    yield ""
    yield "Verdict"
    for verdict in verdicts(profile):
        mark = "!" if verdict.mood == "bad" else " "
        yield from _wrapped(f"{mark} {verdict.subject:<11} ", plain(verdict.text))
    for warning in profile.warnings:
        yield from _wrapped(FOLDED, plain(warning))
    commands = [one for one in profile.advice[:MOST_ADVICE] if one.command]
    if commands:
        yield from ["", "How to take this advice"]
        for one in commands:
            yield from _wrapped("  ", f"{plain(one.what)}:")
            yield from _command(plain(one.command))
    if profile.tiled is not None:
        yield from _of_tiled(profile.tiled)
    if profile.activity:
        headers = ("layer", "neurons", "spikes", "firing share", "listed", "capacity", "full lists", "dropped")
        yield from _section("Spikes per timestep and sample", activity_table(profile.activity), *headers)
        sparsity = sparsity_table(profile.activity)
        if sparsity is not None:
            yield from _section("Sparsity of the passes (share of zeros)", sparsity, *sparsity.headers)
    if profile.gpus or profile.tiled_beside:
        columns = ("machine", "strategy", "precision", "ms", "interval ms", "who is faster (interval)")
        yield from _section("Comparison, ms per training step", comparison_table(profile), *columns)
        yield "  * the fastest strategy of its GPU that fits"
    spent = energy_table(profile)
    if spent is not None and profile.network:
        spends = ("machine", "strategy", "precision", "mJ", "interval mJ", "mean W", "static")
        yield from _section("Energy of one training step, boards only", spent, *spends)
    made_of = silicon_table(profile)
    if made_of is not None:
        sizes = ("machine", "volts", "mm2", "interval mm2", "static W", "interval W", "dynamic W", "its interval W")
        yield from _section("Area and power, all chips", made_of, *sizes)
        if " Unknown: " in made_of.note:
            yield from _wrapped("  unknown: ", made_of.note.partition(" Unknown: ")[2])
    yield ""
    yield f"What is modelled: {assumptions_table(profile).note}"


def _of_tiled(tiled: TiledProfile) -> Iterator[str]:
    unit = unit_of(tiled)
    by_phase = phases_table(tiled)
    yield from _section(
        "Where the time goes", by_phase, *by_phase.headers[:-1],
    )  # fmt: skip
    yield from _section(
        f"The {counted(min(LONGEST, len(tiled.spans)), 'longest superstep')}", supersteps_table(tiled, LONGEST),
        "superstep", "phase", "times", "compute cycles", "exchange cycles", "sync cycles", "share", "slowest tile",
    )  # fmt: skip
    if tiled.doubts:
        doubts = doubts_table(tiled, LONGEST)
        columns = ("part", "kind of source", "of all cycles", f"plus or minus {unit}", "of the width")
        yield from _section("What widens the interval most", doubts, *columns)
        yield from _wrapped("  ", plain(doubts.note))
    yield ""
    yield (
        f"Tiles: {thousands(tiled.tiles_used)} of {thousands(tiled.tiles)} used, "
        f"tile balance {tiled.tile_balance:.2f}, time utilisation {100 * tiled.time_utilisation:.1f} %, "
        f"{significant(tiled.clock_hz / 1e9, 4)} GHz"
    )
    memory = tiled.memory
    yield from _section(
        f"Memory on the fullest tile, {thousands(memory.peak_tile)}", categories_table(memory),
        "category", "fullest tile", "of limit", "mean tile", "largest", "on tile",
    )  # fmt: skip
    if memory.liveness:
        yield from _section(
            "Liveness, fullest moment of every phase", liveness_table(memory),
            "phase", "fullest tile", "of limit", "tile", "in superstep",
        )  # fmt: skip


def _section(title: str, content: Table, *headers: str) -> Iterator[str]:
    """A title and the named columns of a table, texts left-aligned and numbers right-aligned."""
    yield ""
    yield clipped(title, WIDTH)
    columns = [content.headers.index(header) for header in headers]
    right = content.numeric
    rows = [list(headers)] + [[plain(row[column].text) for column in columns] for row in content.rows]
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


def _wrapped(start: str, content: str) -> list[str]:
    """`content` after `start`, folded to WIDTH with the later lines indented."""
    return textwrap.wrap(content, WIDTH, initial_indent=start, subsequent_indent=" " * len(start)) or [start]
