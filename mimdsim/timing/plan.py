"""What of a program's loads does not depend on spikes: worked out once, used for every recorded activity.

Supersteps between two syncs of a chip are a segment; tiles that agree in all of them are one class. A segment that no
spike changes is costed here, whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np

from mimdsim.program import Exchange, Program, Superstep, TileFormula, VertexTable, WorkerBundles
from mimdsim.timing.classes import Counting, Dealt, classes_of, counting
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
class SuperstepPlan:
    """One superstep: the tiles it uses, what they take per execution, flops, and who waits before it.

    fixed float64[tiles]: cycles of library vertices and of arranging rows, and those of workers where no spike changes
    them; else `counting` has these. weights: cycles and bundles that no spike changes, per execution, by (what, kind of
    source), counted by `counted_weights`; order: parts in the order in which the tables have them. flops: per
    execution, and what depends on spikes.
    """

    first: int
    fixed: np.ndarray
    counting: Counting | None
    weights: dict[tuple[str, str], float]
    counted_weights: tuple[tuple[tuple[str, str], Counted], ...]
    order: tuple[tuple[str, str], ...]
    flops: float
    counted_flops: tuple[Counted, ...]
    synchronised: np.ndarray

    @property
    def tiles(self) -> int:
        return len(self.fixed)


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A superstep of a segment, by class: the row of its counting, and fixed cycles."""

    index: int
    row: np.ndarray
    fixed: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Segment:
    """Supersteps of one chip without a sync in between. class_of int64[tiles of the chip].

    reached float64[members]: the longest sum after each where no spike changes any of them, else None.
    """

    chip: int
    members: tuple[Member, ...]
    class_of: np.ndarray
    classes: int
    reached: np.ndarray | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Stretch:
    """Consecutive supersteps, all in one repeat or in none: their plans, and the segments of every chip."""

    supersteps: tuple[Superstep, ...]
    times: int
    plans: tuple[SuperstepPlan, ...]
    segments: tuple[Segment, ...]

    def settled(self) -> list[int]:
        """The supersteps that lie in no segment that spikes change, and count none in any other way."""
        moving = {member.index for segment in self.segments if segment.reached is None for member in segment.members}
        counted = {index for index, plan in enumerate(self.plans) if plan.counted_weights or plan.counted_flops}
        return [index for index in range(len(self.plans)) if index not in moving | counted]


class _Kept:
    """What another number of contexts does not change: re-timing a program for one takes half as long with it."""

    def __init__(self) -> None:
        self.places: dict[Superstep, tuple[np.ndarray, ...]] = {}
        self.bundles: dict[tuple[VertexTable, float], tuple[np.ndarray, tuple[Counted, ...]]] = {}
        self.flops: dict[VertexTable, tuple[float, tuple[Counted, ...]]] = {}


@lru_cache(maxsize=8)  # of as many programs as have plans
def _kept(_program: Program) -> _Kept:
    return _Kept()


@lru_cache(maxsize=8)
def program_plan(program: Program, barrel: Barrel) -> tuple[Stretch, ...]:
    """In program order."""
    return tuple(_stretch(program, stretch.body, stretch.times, barrel) for stretch in program.stretches())


def _stretch(program: Program, supersteps: Sequence[Superstep], times: int, barrel: Barrel) -> Stretch:
    plans = tuple(_plan(program, superstep, barrel) for superstep in supersteps)
    segments = []
    for chip in range(program.chips):
        begins = [index for index, plan in enumerate(plans) if plan.synchronised[chip]]
        for first, last in pairwise(sorted({0, *begins, len(plans)})):
            segments.append(_segment(plans, first, last, chip, program.tiles_per_chip))
    return Stretch(supersteps=tuple(supersteps), times=times, plans=plans, segments=tuple(segments))


def _segment(plans: Sequence[SuperstepPlan], first: int, last: int, chip: int, per_chip: int) -> Segment:
    """Of supersteps first..last-1, those that use tiles of the chip."""
    rows, fixed, indices = [], [], []
    for index in range(first, last):
        plan = plans[index]
        low, high = max(plan.first, chip * per_chip), min(plan.first + plan.tiles, (chip + 1) * per_chip)
        if low >= high:
            continue
        nowhere = 0 if plan.counting is None else plan.counting.rows
        row, cycles = np.full(per_chip, nowhere, np.int64), np.zeros(per_chip)
        here, own = slice(low - chip * per_chip, high - chip * per_chip), slice(low - plan.first, high - plan.first)
        cycles[here] = plan.fixed[own]
        if plan.counting is not None:
            row[here] = plan.counting.row_of[own]
        rows.append(row)
        fixed.append(cycles)
        indices.append(index)
    if not indices:
        return Segment(chip=chip, members=(), class_of=np.zeros(per_chip, np.int64), classes=1, reached=np.zeros(0))
    settled = all(plans[index].counting is None for index in indices)
    class_of, chosen = classes_of(np.vstack([np.array(rows, np.float64), np.array(fixed)]))
    return Segment(
        chip=chip,
        members=tuple(
            Member(index=index, row=row[chosen], fixed=cycles[chosen])
            for index, row, cycles in zip(indices, rows, fixed, strict=True)
        ),
        class_of=class_of,
        classes=len(chosen),
        reached=np.cumsum(np.array(fixed)[:, chosen], axis=0).max(axis=1) if settled else None,
    )


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
    fixed = np.zeros(tiles)
    dealt: list[Dealt] = []
    weights: dict[tuple[str, str], float] = {}
    counted_weights: list[tuple[tuple[str, str], Counted]] = []
    order: list[tuple[str, str]] = []
    flops = 0.0
    counted_flops: list[Counted] = []
    kept = _kept(program)
    for table, places in zip(superstep.tables, _places(kept, superstep, first, tiles), strict=True):
        codelet = table.codelet
        on = table.tiles - first
        part = (f"codelet {codelet.name}", codelet.cost.kind)
        order.append(part)
        if isinstance(codelet.cost, TileFormula):
            extents = {name: column for name, column in table.extents.items() if isinstance(column, np.ndarray)}
            cost = library_cycles(codelet.cost, extents, barrel)
            np.add.at(fixed, on, np.broadcast_to(cost, on.shape))
            weights[part] = weights.get(part, 0.0) + float(np.sum(cost))
        elif table.vertices:
            constant, terms = _bundles(kept, table, codelet.cost, barrel.compiled_dual_issue)
            one = Dealt(tile=on, context=places % barrel.contexts, constant=constant, terms=terms)
            dealt.append(one)
            weights[part] = weights.get(part, 0.0) + float(one.constant.sum())
            counted_weights += [(part, term) for term in one.terms]
        always, by_spikes = _flops(kept, table)
        flops += always
        counted_flops += by_spikes
    if superstep.exchange is not None and superstep.exchange.column("fragments_arranged").any():
        arranging = _arranging_cycles(superstep.exchange, barrel)
        np.add.at(fixed, superstep.exchange.tiles[arranging > 0] - first, arranging[arranging > 0])
        part = ("arranging rows", "derived")
        weights[part] = float(arranging.sum())
        order.append(part)
    if dealt and not counted_weights:
        fixed = fixed + _constant_cycles(dealt, tiles, barrel)
    return SuperstepPlan(
        first=first,
        fixed=fixed,
        counting=counting(dealt, tiles, barrel.contexts) if counted_weights else None,
        weights=weights,
        counted_weights=tuple(counted_weights),
        order=tuple(dict.fromkeys(order)),
        flops=flops,
        counted_flops=tuple(counted_flops),
        synchronised=synchronised_chips(program, superstep),
    )


def _places(kept: _Kept, superstep: Superstep, first: int, tiles: int) -> tuple[np.ndarray, ...]:
    """int64[vertices] of every table: the place of each worker among those of its tile, in which contexts take them."""
    if superstep not in kept.places:
        found = []
        turns = np.zeros(tiles, np.int64)  # workers of each tile so far, by earlier tables
        for table in superstep.tables:
            if isinstance(table.codelet.cost, TileFormula) or not table.vertices:
                found.append(np.zeros(0, np.int64))
                continue
            on = table.tiles - first
            order = np.argsort(on, kind="stable")
            ordered = on[order]
            place = np.empty(len(ordered), np.int64)
            before = np.searchsorted(ordered, ordered, side="left")
            place[order] = turns[ordered] + np.arange(len(ordered)) - before
            turns += np.bincount(on, minlength=len(turns))
            found.append(place)
        kept.places[superstep] = tuple(found)
    return kept.places[superstep]


def _bundles(
    kept: _Kept, table: VertexTable, cost: WorkerBundles, dual_issue: float
) -> tuple[np.ndarray, tuple[Counted, ...]]:
    """(float64[vertices] of bundles that no spike changes, terms that spikes do)."""
    if (table, dual_issue) not in kept.bundles:
        constant = np.full(table.vertices, float(cost.fixed))
        terms = []
        for term in cost.terms:
            static, recorded = split_extents(table, term, term.bundles - dual_issue * term.pairable)
            if recorded is None:
                constant += static
            else:
                terms.append(counted(table, static, recorded))
        kept.bundles[table, dual_issue] = constant, tuple(terms)
    return kept.bundles[table, dual_issue]


def _flops(kept: _Kept, table: VertexTable) -> tuple[float, tuple[Counted, ...]]:
    """(operations that no spike changes, terms that spikes do)."""
    if table not in kept.flops:
        always = 0.0
        by_spikes: list[Counted] = []
        for term in table.codelet.flops:
            static, recorded = split_extents(table, term, term.bundles)
            if recorded is None:
                always += float(static.sum())
            else:
                by_spikes.append(counted(table, static, recorded))
        kept.flops[table] = always, tuple(by_spikes)
    return kept.flops[table]


def _constant_cycles(dealt: list[Dealt], tiles: int, barrel: Barrel) -> np.ndarray:
    """float64[tiles]: of workers whose bundles no spike changes."""
    bundles = np.zeros((tiles, barrel.contexts))
    for one in dealt:
        cell = one.tile * barrel.contexts + one.context
        bundles += np.bincount(cell, weights=one.constant, minlength=bundles.size).reshape(bundles.shape)
    cycles: np.ndarray = np.maximum(barrel.issue_cycles * bundles.max(axis=1), bundles.cumsum(axis=1)[:, -1])
    return cycles


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
