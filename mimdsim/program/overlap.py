"""Where tiles wait for each other, and what of an exchange may be sent while the supersteps before it compute.

From one barrier of a chip to the next, its tiles compute without waiting. A part of the next exchange may be sent
meanwhile if nothing of it is written by these supersteps; what a copy writes, if they do not touch its target either.
A vertex reads what it was sent from a buffer of its superstep, so early parts need room of their own until then.
Exchanges over links between chips, and of what lies behind the tiles, wait for the barrier; so does the first exchange
of every turn of a repeat, as the turn begins with a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.numerics.columns.exchange_fragments import element_runs
from mimdsim.program.checks.scope import Access, Scope
from mimdsim.program.exchange_traffic import ExchangeCounter
from mimdsim.program.program import Program
from mimdsim.program.records import Delivery, Exchange, Superstep
from mimdsim.program.vertex_boxes import bounds_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Overlap:
    """What of a superstep's exchange may be sent early.

    since int64[chips]: the superstep that begins with the last barrier before this one; first: of all chips that take
    part. dependent: the part that waits for what is computed since then; None: nothing does. early_bytes int64[tiles of
    the exchange]: received of the rest. targets: of copies that are made early.
    """

    since: np.ndarray
    first: int
    dependent: Exchange | None
    early_bytes: np.ndarray
    targets: frozenset[str]


_OVERLAPS: PerObject[tuple[Overlap | None, ...]] = PerObject()
_Writes = dict[str, list[tuple[int | None, Access | None]]]  # by variable: shift, and boxes (None: all of the entry)


def synchronised_chips(program: Program, superstep: Superstep) -> np.ndarray:
    """bool[chips]: the chips that wait for all their tiles before this superstep."""
    exchange, synced = superstep.exchange, np.zeros(program.chips, bool)
    if exchange is not None and exchange.moves:
        moves = (exchange.column("bytes_sent") > 0) | (exchange.column("bytes_received") > 0)
        synced[exchange.tiles[moves] // program.tiles_per_chip] = True  # supersteps that only arrange rows do not wait
        synced |= exchange.link_bytes is not None
    return synced


def overlaps_of(program: Program) -> tuple[Overlap | None, ...]:
    """Of every superstep in program order, None where nothing can be sent early; the same on every machine."""
    return _OVERLAPS.get(program, None, lambda: tuple(_overlaps(program)))


def _overlaps(program: Program) -> list[Overlap | None]:
    found: list[Overlap | None] = []
    for stretch in program.stretches():
        first, since = len(found), np.full(program.chips, len(found))
        for at, superstep in enumerate(stretch.body, first):
            synced = synchronised_chips(program, superstep)
            begins = int(since[synced].min(initial=at))
            found.append(None)
            if superstep.exchange is not None and superstep.exchange.link_bytes is None and begins < at:
                before = stretch.body[begins - first : at - first]
                found[at] = _overlap(program, superstep.exchange, before, since, begins)
            since = np.where(synced, at, since)
    return found


def _overlap(
    program: Program, exchange: Exchange, before: Sequence[Superstep], since: np.ndarray, first: int
) -> Overlap | None:
    """before: the supersteps since the barrier; copies of the first are made when its compute begins."""
    writes: _Writes = {}
    touched: set[str] = set()
    for place, superstep in enumerate(before):
        for copy in superstep.copies if place else ():
            writes.setdefault(copy.target, []).append((copy.target_shift, None))
            touched |= {copy.source, copy.target}
        for access in Scope(program=program, superstep=superstep, tiles=program.tiles).accesses:
            touched.add(access.variable.name)
            if access.field.writes and access.table.vertices:
                writes.setdefault(access.variable.name, []).append((access.shift, access))
    dependent = [
        np.ones(len(one.tiles), bool) if one.target in touched else _are_written(program, one, writes)
        for one in exchange.deliveries
    ]
    if all(rows.all() for rows in dependent):
        return None
    late, received = None, np.zeros(program.tiles, np.int64)
    if any(rows.any() for rows in dependent):
        late = _part_of(program, exchange.deliveries, dependent)
        received[late.tiles] = late.column("bytes_received")
    early = exchange.column("bytes_received") - received[exchange.tiles]
    rows_by_target = zip(exchange.deliveries, dependent, strict=True)
    targets = frozenset(one.target for one, rows in rows_by_target if one.target and not rows.all())
    return Overlap(since=since, first=first, dependent=late, early_bytes=np.maximum(early, 0), targets=targets)


def _are_written(program: Program, delivery: Delivery, writes: _Writes) -> np.ndarray:
    """bool[parts]: which parts of a delivery share an element with what is written."""
    variable, parts = program.variables[delivery.variable], len(delivery.tiles)
    found = np.full(parts, delivery.variable in program.behind_tiles)
    for shift, access in writes.get(delivery.variable, ()):
        if shift != delivery.shift and None not in (shift, delivery.shift):
            continue  # in every timestep these are two different entries
        if shift != delivery.shift or access is None:
            return np.ones(parts, bool)
        found |= _share_elements(delivery.boxes, access.boxes, variable.shape[shift is not None :])
    return found


def _share_elements(boxes: np.ndarray, others: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """bool[boxes]: whether a box shares an element with any of the others."""
    extents = np.array(shape, np.int64)
    _, start, stop = element_runs(bounds_of(others), extents)
    steps = np.zeros(int(extents.prod()) + 1, np.int64)
    np.add.at(steps, start, 1)
    np.add.at(steps, stop, -1)
    taken = np.concatenate([[0], np.cumsum(np.cumsum(steps) > 0)])  # elements before each
    box, start, stop = element_runs(bounds_of(boxes), extents)
    found = np.zeros(len(boxes), bool)
    found[box[taken[stop] > taken[start]]] = True
    return found


def _part_of(program: Program, deliveries: Sequence[Delivery], rows: Sequence[np.ndarray]) -> Exchange:
    """An exchange of chosen parts alone; rows bool[parts] of every delivery."""
    tally, chosen = ExchangeCounter(program.tiles, program.chips), []
    for delivery, some in zip(deliveries, rows, strict=True):
        if some.any():
            part = replace(delivery, tiles=delivery.tiles[some], boxes=delivery.boxes[some])
            tally.count(program.variables[part.variable], part.shift is not None, part.tiles, part.boxes)
            chosen.append(part)
    return tally.exchange(tuple(chosen))
