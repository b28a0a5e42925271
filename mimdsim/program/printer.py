"""A program as text: what every superstep moves, computes and costs; `--dump` writes it, tests compare it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mimdsim.program.codelet import Field, WorkerBundles, now_shift
from mimdsim.program.loops import Hits, Listed, Recorded, Spikes, SpikesOver, Turns, Within
from mimdsim.program.mapping import BANDED, FLAT, PER_TIMESTEP
from mimdsim.program.program import Program, Repeat, extents_of
from mimdsim.program.records import Exchange, Superstep, Variable, VertexTable
from mimdsim.program.vertex_boxes import describe_box

LEGEND = (
    "Supersteps in program order, each after the phase it belongs to: exchange, then vertices. v[a:b] is what a vertex",
    "touches of variable v, by columns a and b of its table, followed by the range of the first vertex .. the last.",
    "@t is the timestep. A cost is in bundles that the vertex's worker context issues, or in cycles of the whole tile.",
)
HITS = {"listed": "listed ids", "spikes": "spikes", "gradient": "gradient entries"}
WORDS: dict[type[Recorded], str] = {
    Spikes: "spikes of {layer}{at}",
    Listed: "listed ids of {layer}{at}",
    SpikesOver: "spikes of {layer} over its samples{at}",
    Hits: "{which} of {layer} in its range{at}",
    Within: "1 where its slot of {layer} is listed{at}",
    Turns: "counted as it runs",
}
ACCESS = {"read": "reads  ", "write": "writes ", "update": "updates"}


def listing(program: Program, cycles: Sequence[int] | None = None) -> str:
    """Supersteps with exchange, vertices, boxes and cost, then variables with shape, category and place.

    cycles: by superstep in program order, summed over all executions, if known.
    """
    told = iter(cycles) if cycles is not None else None
    lines = [*LEGEND, "", f"program on {_many(program.tiles, 'tile')}"]
    for item in program.body:
        lines += _repeat(program, item, told) if isinstance(item, Repeat) else _superstep(program, item, told)
    lines.append("variables")
    lines += [f"  {name}: {_variable(variable)}" for name, variable in sorted(program.variables.items())]
    for title, names in (("inputs", program.inputs), ("outputs", program.outputs)):
        lines += [title, *(f"  {name}: {variable}" for name, variable in names.items())] if names else []
    return "\n".join(lines) + "\n"


def _variable(variable: Variable) -> str:
    mapping = variable.mapping
    flat = {FLAT: "element by element", PER_TIMESTEP: "element by element of every timestep"}
    where = "replicated" if mapping.is_replicated else flat.get(mapping.axis, f"axis {mapping.axis}")
    if mapping.axis == BANDED:
        many, ranges = len(mapping.bands), len(list(mapping.ranges()))
        where = f"{ranges} bands of axis {mapping.bands[0].axis}" if ranges > 1 else f"{many} copies"
    shape = "x".join(str(extent) for extent in variable.shape)
    stored = f" in {variable.stored_bytes} bytes" if variable.stored_bytes else ""
    stored = f" as {variable.number_format}" if variable.number_format else stored
    kept = ", kept from run to run" if variable.persistent else ""
    loaded = ", loaded with the program" if variable.values is not None else ""
    tiles = _many(len(set(mapping.tiles.tolist())), "tile")
    return f"{variable.dtype}[{shape}]{stored} {variable.category}, {where} over {tiles}{kept}{loaded}"


def _repeat(program: Program, repeat: Repeat, cycles: Iterator[int] | None) -> list[str]:
    direction = "backwards" if repeat.reverse else "forwards"
    what = "timesteps" if repeat.segment == 1 else f"segments of {repeat.segment} timesteps"
    lines = [f"repeat {repeat.times} {what} {direction}"]
    for item in repeat.body:
        inner = _repeat(program, item, cycles) if isinstance(item, Repeat) else _superstep(program, item, cycles)
        lines += ["  " + line for line in inner]
    return lines


def _superstep(program: Program, superstep: Superstep, cycles: Iterator[int] | None) -> list[str]:
    moved = "" if superstep.exchange is None else f", {int(superstep.exchange.bytes_received.sum())} bytes received"
    taken = "" if cycles is None else f", {next(cycles):,} cycles"
    lines = [f"{superstep.phase}: {superstep.name}{moved}{taken}"]
    if superstep.exchange is not None and superstep.exchange.moves:
        lines += _exchange(superstep.exchange)
    for copy in superstep.copies:
        line = f"  copy {_taken(copy.source, copy.source_shift)} -> {_taken(copy.target, copy.target_shift)}"
        if copy.relay is not None:
            line += f", passed on from chip to chip in {max(map(max, copy.relay.step))} rounds"
        lines.append(line)
    for table in superstep.tables:
        lines += _table(program, table)
    return lines


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def _taken(name: str, shift: int | None) -> str:
    return name if shift is None else f"{name}[@t{shift:+d}]" if shift else f"{name}[@t]"


def _exchange(exchange: Exchange) -> Iterator[str]:
    received = exchange.column("bytes_received")
    most = int(received.argmax())
    yield (
        f"  exchange to {_many(int(np.count_nonzero(received)), 'tile')}, most to tile {int(exchange.tiles[most])}: "
        f"{int(received[most])} bytes"
    )
    for delivery in exchange.deliveries:
        parts = len(delivery.tiles)
        if parts:
            first, last = (
                f"{describe_box(delivery.variable, delivery.boxes[at])} to tile {int(delivery.tiles[at])}"
                for at in (0, -1)
            )
            yield f"    {_many(parts, 'part')}: {first}" + (f" .. {last}" if parts > 1 else "")


def _table(program: Program, table: VertexTable) -> Iterator[str]:
    tiles = np.unique(table.tiles)
    where = f", {tiles[0]} to {tiles[-1]}" if len(tiles) > 1 else f", {tiles[0]}" if len(tiles) else ""
    yield f"  {table.title} {_many(table.vertices, 'vertex', 'vertices')} on {_many(len(tiles), 'tile')}{where}"
    for field in table.codelet.fields:
        name = table.operands[field.name]
        row = ", as one row" if field.one_row else ""
        said = f"    {ACCESS[field.access]} {field.name} = {name}[{', '.join(field.box)}]"
        yield f"{said}{_first_and_last(table, field)}{row}"
    yield f"    costs   {_cost(program, table)}"


def _first_and_last(table: VertexTable, field: Field) -> str:
    """The boxes of the first and last vertex; empty if all vertices have the same box."""
    if not table.vertices or all(entry == ":" or now_shift(entry) is not None for entry in field.box):
        return ""
    ends = [f"[{', '.join(_entry(table, entry, vertex) for entry in field.box)}]" for vertex in (0, -1)]
    return f": {ends[0]}" + (f" .. {ends[1]}" if table.vertices > 1 else "")


def _entry(table: VertexTable, entry: str, vertex: int) -> str:
    if entry == ":" or now_shift(entry) is not None:
        return entry
    return ":".join(
        str(int(table.columns[name][vertex])) if name in table.columns else "?" for name in entry.split(":")
    )


def _cost(program: Program, table: VertexTable) -> str:
    cost = table.codelet.cost
    extents = "; ".join(f"{name}: {_extent(extent)}" for name, extent in extents_of(program, table).items())
    said = f"; {extents}" if extents else ""
    if not isinstance(cost, WorkerBundles):
        return f"cycles by a formula ({cost.kind}){said}"
    terms = [f" + {term.bundles:g} for each of {' x '.join(term.extents)}" for term in cost.terms]
    return f"{cost.fixed:g} bundles{''.join(terms)} ({cost.kind}){said}"


def _extent(extent: np.ndarray | Recorded) -> str:
    """How often the loop runs, in words."""
    if isinstance(extent, np.ndarray):
        if not len(extent):
            return "none"
        low, high = int(extent.min()), int(extent.max())
        return str(low) if low == high else f"{low} to {high}"
    at = f" at @t{extent.shift:+d}" if extent.shift else ""
    return WORDS[type(extent)].format(layer=extent.layer, at=at, which=HITS[getattr(extent, "which", "listed")])
