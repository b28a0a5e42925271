"""What of a program's loads does not depend on spikes: worked out once, used for every recorded activity.

A vertex table becomes cells (tile * contexts + context), the bundles that never change summed by cell, and one weight
per vertex for every cost term that counts spikes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np

from mimdsim.program import Exchange, Program, Superstep, TileFormula, VertexTable, WorkerBundles
from mimdsim.timing.extents import Counted, counted, split_extents

_SYNCHRONISED: WeakKeyDictionary[Exchange, dict[tuple[int, int], np.ndarray]] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class Barrel:
    """What compute cycles depend on in a tile."""

    contexts: int
    issue_cycles: int
    vector_bytes: int
    arrange_fragment_bundles: float
    copy_bytes_per_cycle: float = 8.0
    compiled_dual_issue: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class TablePlan:
    """Bundles of one table on cells first..last-1 of its superstep: constant [cells], then terms that count spikes."""

    first: int
    last: int
    cell: np.ndarray
    constant: np.ndarray
    terms: tuple[Counted, ...]
    part: tuple[str, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class SuperstepPlan:
    """One superstep: its tiles, library cycles [tiles] and bundles by table, flops, and who waits before it.

    weights: cycles of library vertices and of arranging rows, per execution, by (what, kind of source). flops: per
    execution, and what depends on spikes. order: parts in the order in which the tables have them.
    """

    first: int
    tiles: int
    library: np.ndarray
    tables: tuple[TablePlan, ...]
    weights: dict[tuple[str, str], float]
    order: tuple[tuple[str, str], ...]
    flops: float
    counted_flops: tuple[Counted, ...]
    synchronised: np.ndarray


@lru_cache(maxsize=8)
def program_plan(program: Program, barrel: Barrel) -> dict[int, SuperstepPlan]:
    """id of a superstep -> its plan."""
    return {id(superstep): _plan(program, superstep, barrel) for superstep, _, _ in program.supersteps()}


def synchronised_chips(program: Program, superstep: Superstep) -> np.ndarray:
    """bool[chips]: the chips that wait for all their tiles before this superstep; read-only."""
    if superstep.exchange is None:
        return np.zeros(program.chips, bool)
    known = _SYNCHRONISED.setdefault(superstep.exchange, {})
    key = (program.chips, program.tiles_per_chip)
    if key not in known:
        known[key] = _synchronised(superstep.exchange, *key)
        known[key].flags.writeable = False
    return known[key]


def _synchronised(exchange: Exchange, chips: int, tiles_per_chip: int) -> np.ndarray:
    synced = np.zeros(chips, bool)
    if exchange.moves:
        moves = (exchange.column("bytes_sent") > 0) | (exchange.column("bytes_received") > 0)
        synced[exchange.tiles[moves] // tiles_per_chip] = True  # what only arranges rows waits for nobody
        synced |= exchange.link_bytes is not None
    return synced


def _tile_range(superstep: Superstep) -> tuple[int, int]:
    """First tile and one past the last that compute or arrange in a superstep; (0, 0) when none does."""
    tiles = [table.tiles for table in superstep.tables if table.vertices]
    if superstep.exchange is not None:
        tiles.append(superstep.exchange.tiles[superstep.exchange.column("fragments_arranged") > 0])
    bounds = [(int(column.min()), int(column.max()) + 1) for column in tiles if len(column)]
    return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else (0, 0)


def _plan(program: Program, superstep: Superstep, barrel: Barrel) -> SuperstepPlan:
    first, last = _tile_range(superstep)
    tiles = last - first
    library = np.zeros(tiles)
    tables: list[TablePlan] = []
    weights: dict[tuple[str, str], float] = {}
    order: list[tuple[str, str]] = []
    flops, counted_flops = 0.0, []
    dealt = np.zeros(tiles, np.int64)  # vertices dealt to the contexts of each tile so far, by earlier tables
    for table in superstep.tables:
        codelet = table.codelet
        on = table.tiles - first
        part = (f"codelet {codelet.name}", codelet.cost.kind)
        order.append(part)
        if isinstance(codelet.cost, TileFormula):
            extents = {name: column for name, column in table.extents.items() if isinstance(column, np.ndarray)}
            cost = library_cycles(codelet.cost, extents, barrel)
            np.add.at(library, on, np.broadcast_to(cost, on.shape))
            weights[part] = weights.get(part, 0.0) + float(np.sum(cost))
        elif table.vertices:
            tables.append(_table_plan(table, codelet.cost, barrel, on, dealt, part))
        for term in codelet.flops:
            static, recorded = split_extents(table, term, term.bundles)
            if recorded is None:
                flops += float(static.sum())
            else:
                counted_flops.append(counted(table, static, recorded))
    if superstep.exchange is not None and superstep.exchange.column("fragments_arranged").any():
        arranging = _arranging_cycles(superstep.exchange, barrel)
        np.add.at(library, superstep.exchange.tiles[arranging > 0] - first, arranging[arranging > 0])
        part = ("arranging rows", "derived")
        weights[part] = float(arranging.sum())
        order.append(part)
    return SuperstepPlan(
        first=first,
        tiles=tiles,
        library=library,
        tables=tuple(tables),
        weights=weights,
        order=tuple(dict.fromkeys(order)),
        flops=flops,
        counted_flops=tuple(counted_flops),
        synchronised=synchronised_chips(program, superstep),
    )


def _table_plan(
    table: VertexTable, cost: WorkerBundles, barrel: Barrel, on: np.ndarray, dealt: np.ndarray, part: tuple[str, str]
) -> TablePlan:
    """`on` counts tiles from the first of the superstep; `dealt` goes on by the table's vertices."""
    contexts, first, last = barrel.contexts, int(on.min()), int(on.max()) + 1
    cell = _cells(on - first, contexts, dealt[first:last])
    dealt[first:last] += np.bincount(on - first, minlength=last - first)
    constant = np.full(table.vertices, float(cost.fixed))
    terms = []
    for term in cost.terms:
        static, recorded = split_extents(table, term, term.bundles - barrel.compiled_dual_issue * term.pairable)
        if recorded is None:
            constant += static
        else:
            terms.append(counted(table, static, recorded))
    return TablePlan(
        first=first * contexts,
        last=last * contexts,
        cell=cell,
        constant=np.bincount(cell, weights=constant, minlength=(last - first) * contexts),
        terms=tuple(terms),
        part=part,
    )


def _arranging_cycles(exchange: Exchange, barrel: Barrel) -> np.ndarray:
    """float64[taking part]: cycles to copy gathered pieces into rows, pieces and bytes."""
    pieces = exchange.column("fragments_arranged") * barrel.arrange_fragment_bundles
    volume = exchange.column("bytes_arranged") / barrel.copy_bytes_per_cycle
    cycles: np.ndarray = (pieces + volume) * barrel.issue_cycles / min(barrel.contexts, barrel.issue_cycles)
    return cycles


def library_cycles(cost: TileFormula, extents: dict[str, np.ndarray], barrel: Barrel) -> np.ndarray:
    """float64[vertices]: tile cycles of library vertices, which spread their work over the contexts themselves.

    The vendor's formulas multiply the longest worker by its six contexts, which there is also the issue interval.
    Fewer contexts leave issue slots empty; more than the interval add no throughput, and a library would not start
    them (derived).
    """
    working = min(barrel.contexts, barrel.issue_cycles)
    cycles = np.asarray(cost.cycles(extents, working, barrel.vector_bytes), np.float64)
    return cycles * barrel.issue_cycles / working


def _cells(on: np.ndarray, contexts: int, dealt: np.ndarray) -> np.ndarray:
    """int64[vertices]: tile * contexts + context; the vertices of a tile are dealt out in turn."""
    order = np.argsort(on, kind="stable")
    ordered = on[order]
    turn = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, side="left")
    cell = np.empty(len(ordered), np.int64)
    cell[order] = ordered * contexts + (dealt[ordered] + turn) % contexts
    return cell
