"""An exchange phase scheduled message by message; the endpoint model only gives the bound set by the busiest end.

On the machine every tile listens to one other at a time, and the compiler fixes which: a message occupies its sender
and all its readers at once. Messages are tried in an arbitrary order and begin as soon as all their ends are free (list
scheduling). No schedule is shorter than the endpoint bound; where tiles talk to a few neighbours in both directions, a
carelessly chosen order takes up to half as long again. That order matters so much is published (two orders of one phase
on a C600: 484,530 and 741,414 cycles, osmarks/ipu-stack); the order that the vendor's compiler uses is unknown, so this
one is assumed: a fixed random permutation. Other permutations change the halo exchange of
`references/stencil_phases.csv` by 1 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.machine.mimd import Fabric
from mimdsim.numerics.columns.schedules import arrivals
from mimdsim.program import Exchange, Program
from mimdsim.program.messages import Messages, messages_of

# sum over ends of (messages of the end)**2: about the cost of scheduling. A phase beyond it has nearly all tiles
# sending to all others, where some end has no gap and the endpoint bound is the schedule; it is not listed either.
MOST_WORK = 30_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ends:
    """Messages in the order in which they are tried; ends are numbered, senders first, then ports. chip: by message."""

    sender: np.ndarray
    size_bytes: np.ndarray
    chip: np.ndarray
    first: np.ndarray
    port: np.ndarray
    of_end_first: np.ndarray
    of_end: np.ndarray
    senders: int


_ENDS: PerObject[_Ends | None] = PerObject()


def scheduled_cycles(program: Program, exchange: Exchange, fabric: Fabric) -> np.ndarray | None:
    """int64[chips]: cycles until the last message has arrived, without the fixed part; None for too many messages."""
    key = (fabric.tiles_per_bus, program.tiles_per_chip)
    ends = _ENDS.get(exchange, key, lambda: _ends(program, exchange, fabric.tiles_per_bus))
    if ends is None:
        return None
    duration = np.ceil(ends.size_bytes / fabric.bytes_per_cycle).astype(np.int64)
    places = np.full(len(ends.of_end_first) - 1, fabric.tiles_per_bus, np.int64)
    places[: ends.senders] = 1
    cycles = np.zeros(program.chips, np.int64)
    arrived = arrivals(ends.sender, duration, ends.first, ends.port, ends.of_end_first, ends.of_end, places)
    np.maximum.at(cycles, ends.chip, arrived)
    return cycles


def _ends(program: Program, exchange: Exchange, tiles_per_bus: int) -> _Ends | None:
    messages = messages_of(program, exchange)
    if messages is None:
        return None
    count = len(messages.sender)
    order = np.random.default_rng(0).permutation(count)
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    senders, sender = np.unique(messages.sender[order], return_inverse=True)
    at, bus = _buses(messages, rank, program.tiles_per_chip, tiles_per_bus)
    buses, port = np.unique(bus, return_inverse=True)
    end = np.concatenate([sender.ravel(), len(senders) + port.ravel()])
    each = np.bincount(end, minlength=len(senders) + len(buses))
    if int((each.astype(np.int64) ** 2).sum()) > MOST_WORK:
        return None
    message = np.concatenate([np.arange(count), at])
    by_end = np.lexsort((message, end))
    return _Ends(
        sender=sender.ravel(),
        size_bytes=messages.size_bytes[order],
        chip=messages.sender[order] // program.tiles_per_chip,
        first=np.searchsorted(at, np.arange(count + 1)),
        port=len(senders) + port.ravel(),
        of_end_first=np.concatenate([[0], np.cumsum(each)]).astype(np.int64),
        of_end=message[by_end],
        senders=len(senders),
    )


def _buses(messages: Messages, rank: np.ndarray, per_chip: int, tiles_per_bus: int) -> tuple[np.ndarray, np.ndarray]:
    """(message by rank, bus) of all buses that messages occupy, ascending; neighbours hear a message on one of two."""
    per_bus = -(-per_chip // tiles_per_bus)
    bus = messages.reader // per_chip * per_bus + messages.reader % per_chip // tiles_per_bus
    at = np.repeat(rank, np.diff(messages.first))
    extent = int(bus.max(initial=0)) + 1
    key = np.unique(at * extent + bus)
    return key // extent, key % extent
