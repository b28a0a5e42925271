"""A search's result as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mimdsim.base.units import counted, show_bytes
from mimdsim.profile.records import UNKNOWN_TIMES
from mimdsim.search.objective import TimedMapping
from mimdsim.search.search_loop import Saving, SearchResult
from mimdsim.search.smallest import ALSO_TRIED, LEFT


def compared_lines(found: SearchResult) -> Iterator[str]:
    """The published mapping and the best one beside each other, and how many times as fast that is."""
    yield from (f"! {line}." for line in found.warnings)
    first, best = found.published, found.best
    both = [one for one in (first, best) if one is not None]
    names = ["published"] * (first is not None) + ["best"]
    rows = [["", *names]]
    rows.append(["cycles", *(f"{one.figures.cycles:,}" for one in both)])
    rows.append(["ms per training step", *(f"{1e3 * one.seconds:.4g}" for one in both)])
    rows.append(["peak bytes of a tile", *(f"{one.figures.peak_bytes:,}" + ("" if one.fits else " !") for one in both)])
    rows.append(["tiles", *(f"{one.figures.tiles:,}" for one in both)])
    if len(found.by_chips) > 1 or best.chips > 1:
        rows.append(["chips in use", *(f"{one.chips:,}" for one in both)])
    if all(one.figures.joules is not None for one in both):
        rows.append(["mJ per training step", *(f"{1e3 * (one.figures.joules or 0):.4g}" for one in both)])
    for place, (name, *_) in enumerate(best.shares):
        rows.append([name, *(_parts(one, place) for one in both)])
    rows.append(["program", *(_program(one) for one in both)])
    for key in (name for name in type(best.options).model_fields if name not in ("split", "program", "tiles")):
        if len({getattr(one.options, key) for one in both}) > 1:
            rows.append([key, *(f"{getattr(one.options, key)}" for one in both)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for label, *cells in rows:
        shown = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join([label.ljust(widths[0]), *shown]).rstrip()
    if best.unknown:
        yield UNKNOWN_TIMES.format(best.unknown)
    if first is None:
        yield "The published mapping needs more tiles than there are."
    elif not first.fits:
        yield "! The published mapping does not fit the tile memory."
    elif not best.unknown:
        ratio = first.figures.cycles / best.figures.cycles
        time = f", and {first.seconds / best.seconds:.3g} times its time" if best.exposed_seconds else ""
        yield f"The published mapping takes {ratio:.3g} times the cycles of the best{time}."


def result_lines(found: SearchResult) -> Iterator[str]:
    """Both mappings, the front, and what each change saved."""
    yield from compared_lines(found)
    best = found.best
    if len(found.by_chips) > 1 and not best.unknown:
        yield ""
        yield "Best by number of chips in use (ms per training step, times as fast as on the fewest, efficiency):"
        least = found.by_chips[0]
        for one in found.by_chips:
            faster = least.seconds / one.seconds
            share = faster * least.chips / one.chips
            yield f"  {one.chips:>5}  {1e3 * one.seconds:>9.4g}  {faster:>6.2f}  {share:>5.0%}"
    yield ""
    looked_at = f"{counted(found.candidates, 'mapping')} lowered and {found.combined:,} made of their layers"
    yield f"Front of time and memory, of {looked_at} (cycles, peak bytes, tiles):"
    for one in found.front:
        yield f"  {one.figures.cycles:>12,}  {one.figures.peak_bytes:>9,}  {one.figures.tiles:>7,}"
    if found.savings:
        yield ""
        yield "What each change saved, one after the other:"
        for saving in found.savings:
            yield f"  {_saving(saving)}"


def result_record(found: SearchResult) -> dict[str, Any]:
    """Both mappings and the front, for scripts: `--json`, documented in docs/using.md."""
    return {
        "version": 1,
        "best": _record(found.best),
        "published": None if found.published is None else _record(found.published),
        "front": [_record(one) for one in found.front],
        "mappings_lowered": found.candidates,
        "warnings": list(found.warnings),
    }


def _record(one: TimedMapping) -> dict[str, Any]:
    figures = one.figures
    values = {
        "time": (one.seconds, "s"),
        "cycles": (figures.cycles, "cycles"),
        "peak_memory": (figures.peak_bytes, "B"),
    }
    if figures.joules is not None:
        values["energy"] = (figures.joules, "J")
    sized = {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()}
    about = {"fits": one.fits, "unknown": one.unknown, "tiles": figures.tiles, "chips": one.chips}
    return {**sized, **about, "mapping": one.options.model_dump(mode="json", exclude_defaults=True)}


def smallest_lines(found: SearchResult) -> Iterator[str]:
    """The least tile memory that a mapping was found for, and what was not tried."""
    least = found.best.figures.peak_bytes
    yield ""
    yield (
        f"The smallest tile.sram_bytes that fits is {least} ({show_bytes(least)}), of all mappings tried; times and "
        "energy above are those of a machine with so much memory."
    )
    tried = ", ".join(f"mapping.{key}" for key in ALSO_TRIED)
    yield f"Tried besides how layers are cut and the rules of the program: {tried}."
    for changed, keys in LEFT.items():
        yield f"Left as given, because it changes {changed}: {', '.join(keys)}."


def _parts(one: TimedMapping, place: int) -> str:
    _, batch, inputs, neurons, replicas = one.shares[place]
    cut = f"{batch} x {inputs} x {neurons}"
    return f"{cut}, replicas {replicas}"


def _program(one: TimedMapping) -> str:
    program = one.options.program
    return program if isinstance(program, str) else " + ".join(program) or "published"


def _saving(saving: Saving) -> str:
    said = f"{saving.cycles:>11,} cycles"
    if saving.bytes:
        said += f", {saving.bytes:,} bytes"
    after = f"{saving.after:,}" if saving.after else "0, or done by others"
    shorter = f" ('{saving.superstep}' {saving.before:,} -> {after})" if saving.before > saving.after else ""
    return f"{said}  {saving.change}{shorter}"
