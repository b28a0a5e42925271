"""How many tiles and worker contexts a kernel keeps at work, and what more vertices would save at most."""

from __future__ import annotations

import numpy as np

from mimdsim.base.units import counted
from mimdsim.machine import MimdMachine
from mimdsim.profile import TiledProfile, WhatIf
from mimdsim.program import Program, Superstep, TileFormula


def more_vertices(program: Program, machine: MimdMachine, tiled: TiledProfile) -> WhatIf | None:
    """What it would save to cut the work of every superstep into vertices for all tiles and contexts; None where all
    work. At most: what a vertex costs whatever its size, and exchanges, stay as they are."""
    supersteps = [step for step, _, _ in program.supersteps()]
    tiles = machine.chip.tiles * machine.links.chips
    longest = max(range(len(supersteps)), key=lambda at: tiled.spans[at].compute_cycles)
    shares = [_share(step, tiles, machine.tile.worker_contexts) for step in supersteps]
    used, contexts, _ = shares[longest]
    after = [span.compute_cycles * share for span, (_, _, share) in zip(tiled.spans, shares, strict=True)]
    saved = int(tiled.compute_cycles - sum(after))
    if not tiled.cycles or saved <= 0:
        return None
    span = tiled.spans[longest]
    at_most = saved / tiled.cycles
    of_contexts = f" and {contexts:.3g} of {machine.tile.worker_contexts} contexts" if contexts else ""
    return WhatIf(
        what=f"more vertices ('{span.name}' uses {used:,} of {counted(tiles, 'tile')}{of_contexts}), at most",
        kind="mapping",
        command="",
        cycles=tiled.cycles - saved,
        gain=at_most,
        gain_low=0.0,
        gain_high=at_most,
        more_bytes=0,
        superstep=span.name,
        before=span.cycles,
        after=span.cycles - span.compute_cycles + int(after[longest]),
    )


def _share(superstep: Superstep, tiles: int, contexts: int) -> tuple[int, float, float]:
    """(tiles with vertices, contexts at work on these in the mean, 0 of library vertices, share of all that work)."""
    workers, library = np.zeros(tiles, np.int64), np.zeros(tiles, bool)
    for table in superstep.tables:
        if isinstance(table.codelet.cost, TileFormula):
            library[table.tiles] = True
        else:
            workers += np.bincount(table.tiles, minlength=tiles)
    busy = np.where(library, contexts, np.minimum(workers, contexts))
    used = int(np.count_nonzero(busy))
    mean = float(busy.sum() / used) if used and not library.any() else 0.0
    return used, mean, float(busy.sum() / (tiles * contexts)) if used else 1.0
