"""A program as text, one line per superstep: what `--dump` writes and golden tests compare."""

from __future__ import annotations

from mimdsim.program.records import Program, Superstep
from mimdsim.program.repeats import Repeat


def listing(program: Program) -> str:
    """Supersteps with vertices, tiles and bytes exchanged; then variables with shape, category and placement."""
    lines = [f"program on {program.tiles} tiles"]
    for item in program.body:
        lines += _repeat(item) if isinstance(item, Repeat) else _superstep(item)
    lines.append("variables")
    for name, variable in sorted(program.variables.items()):
        mapping = variable.mapping
        where = "replicated" if mapping.is_replicated else f"axis {mapping.axis}"
        shape = "x".join(str(extent) for extent in variable.shape)
        stored = f" in {variable.stored_bytes} bytes" if variable.stored_bytes else ""
        lines.append(
            f"  {name}: {variable.dtype}[{shape}]{stored} {variable.category}, {where} over "
            f"{len(set(mapping.tiles.tolist()))} tiles"
        )
    return "\n".join(lines) + "\n"


def _repeat(repeat: Repeat) -> list[str]:
    direction = "backwards" if repeat.reverse else "forwards"
    what = "timesteps" if repeat.segment == 1 else f"segments of {repeat.segment} timesteps"
    lines = [f"repeat {repeat.times} {what} {direction}"]
    for item in repeat.body:
        lines += ["  " + line for line in (_repeat(item) if isinstance(item, Repeat) else _superstep(item))]
    return lines


def _superstep(superstep: Superstep) -> list[str]:
    moved = ""
    if superstep.exchange is not None:
        moved = f", {int(superstep.exchange.bytes_received.sum())} bytes received"
    lines = [f"{superstep.phase}: {superstep.name}{moved}"]
    for copy in superstep.copies:
        lines.append(f"  copy {copy.source} -> {copy.target}")
    for table in superstep.tables:
        tiles = len(set(table.tiles.tolist()))
        lines.append(f"  {table.codelet.name} ({table.layer}) {table.vertices} vertices on {tiles} tiles")
    return lines
