"""The event path: host and chips as simpy processes, over a queue of prefetched batches and over links.

One process per chip, never one per tile. Without contention it agrees with the closed form of the fast path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

import numpy as np
import simpy

from mimdsim.base.errors import MappingError
from mimdsim.costs.chip_links import edge_bytes_per_second, link_start_seconds, moving_bytes
from mimdsim.machine.mimd import Links
from mimdsim.machine.topology import next_chips, route_lengths

Process = Generator[Any, Any, None]
# by rank the lowest goes first, no two of an exchange have the same; its route, one bit for each edge; seconds
Message = tuple[tuple[int, ...], int, float]
Pending = tuple[tuple[int, ...], int, float, simpy.Event]


def stream_training_steps(
    training_steps: int, device_seconds: float, stream_seconds: float, prefetch_depth: int
) -> tuple[float, ...]:
    """When each training step ends, in seconds, with the host streaming up to `prefetch_depth` batches ahead.

    prefetch_depth 0: the host sends a batch only when the chip asks for it.
    """
    env = simpy.Environment()
    ends: list[float] = []
    ready = simpy.Store(env, capacity=max(1, prefetch_depth))
    requests = simpy.Store(env)

    def host() -> Process:
        for number in range(training_steps):
            if prefetch_depth == 0:
                yield requests.get()
            yield env.timeout(stream_seconds)
            yield ready.put(number)

    def chip() -> Process:
        for number in range(training_steps):
            if prefetch_depth == 0:
                yield requests.put(number)
            yield ready.get()
            yield env.timeout(device_seconds)
            ends.append(env.now)

    env.process(host())
    env.process(chip())
    env.run()
    return tuple(ends)


@dataclass(frozen=True, kw_only=True)
class ChipRun:
    """The time of a run on several chips. For every chip: compute + waiting + sync + exchange = end."""

    end_seconds: float
    waiting_seconds: tuple[float, ...]  # of each chip, waiting for the slowest before the global exchanges
    sync_seconds: float
    exchange_seconds: float  # of all global exchanges, the same for all chips


def global_exchange_seconds(traffic: np.ndarray, links: Links) -> float:
    """Seconds of one global exchange, message by message; 0 when nothing moves.

    traffic: int64[chips, chips], bytes from chip `row` to chip `column`; errors as
    `costs.chip_links.edge_bytes`. All messages wait for the fixed part and the hops of the longest route. Then
    every chip asks for all its messages at once (assumed: one DMA for every link out of a chip). A message starts when
    every directed edge of its route is free and holds them all for its bytes over the bandwidth of the slowest of them
    (cut through); none holds an edge while it waits for another, so deadlock is impossible. Of those that could start,
    the one with the most bytes goes first, then the one with the longest route, then by distance in chip numbers
    (assumed: an order a compiler could choose; that of real machines is not public). Equal to `link_phase_seconds` if
    no edge is used twice, otherwise never less.
    """
    idle, segments = np.zeros((1, links.chips)), np.asarray(traffic)[None]
    return run_chips(compute_seconds=idle, traffic=segments, links=links, external_sync_seconds=0.0).end_seconds


def run_chips(
    *, compute_seconds: np.ndarray, traffic: np.ndarray, links: Links, external_sync_seconds: float
) -> ChipRun:
    """Chips that compute, sync and exchange, segment after segment; all continue when the exchange is over.

    compute_seconds: float[segments, chips], each chip's own time for a segment, including internal exchanges and syncs.
    traffic: int64[segments, chips, chips], bytes of the global exchange that ends each segment, as in
    `global_exchange_seconds`. Every segment pays the external sync, even if nothing moves after it. Without
    contention the end is the sum over segments of slowest chip + sync + `link_phase_seconds`.
    Raises MappingError if shapes do not match the machine's chips or a number is negative or not finite.
    """
    compute = np.asarray(compute_seconds, float)
    _check_segments(compute, np.asarray(traffic), links, external_sync_seconds)
    outgoing = [_messages(matrix, links) for matrix in traffic]
    starts = [link_start_seconds(matrix, links) for matrix in traffic]
    env = simpy.Environment()
    edges = _Edges(env)
    everybody = _Barrier(env, links.chips)
    waiting = [0.0] * links.chips
    exchanging = [0.0] * links.chips

    def chip(number: int) -> Process:
        for own, messages, start_seconds in zip(compute[:, number].tolist(), outgoing, starts, strict=True):
            yield env.timeout(own)
            arrived = env.now
            yield everybody.arrive()
            waiting[number] += env.now - arrived
            yield env.timeout(external_sync_seconds)
            synced = env.now
            yield env.timeout(start_seconds)
            yield edges.send(messages[number])
            yield everybody.arrive()
            exchanging[number] += env.now - synced

    for number in range(links.chips):
        env.process(chip(number))
    env.run()
    return ChipRun(
        end_seconds=float(env.now),
        waiting_seconds=tuple(waiting),
        sync_seconds=len(compute) * external_sync_seconds,
        exchange_seconds=exchanging[0],
    )


class _Barrier:
    """A reusable barrier: no chip continues before all have arrived."""

    def __init__(self, env: simpy.Environment, parties: int):
        self._env = env
        self._parties = parties
        self._arrived = 0
        self._open = env.event()

    def arrive(self) -> simpy.Event:
        """An event that occurs when the last one arrives."""
        self._arrived += 1
        opened = self._open
        if self._arrived == self._parties:
            self._arrived, self._open = 0, self._env.event()
            opened.succeed()
        return opened


class _Edges:
    """Gives messages all the directed edges of their routes at once, in order of rank among those that can start."""

    def __init__(self, env: simpy.Environment):
        self._env = env
        self._busy = 0
        self._requests: list[Pending] = []  # to be decided at the end of this instant, as is who gets what was freed
        self._freed = 0
        self._parked: defaultdict[int, list[Pending]] = defaultdict(list)  # by edge: heaps, lowest rank first
        self._left: dict[simpy.Event, int] = {}  # messages until it occurs

    def send(self, messages: list[Message]) -> simpy.Event:
        """An event that occurs when every message has had its route for its seconds."""
        sent = self._env.event()
        if not messages:
            return sent.succeed()
        self._look_again()
        self._requests += [(*message, sent) for message in messages]
        self._left[sent] = len(messages)
        return sent

    def _release(self, ended: list[Pending], _event: simpy.Event) -> None:
        self._look_again()
        for _, edges, _, sent in ended:
            self._busy &= ~edges
            self._freed |= edges
            self._left[sent] -= 1
            if not self._left[sent]:
                sent.succeed()

    def _look_again(self) -> None:
        # one decision for all requests and releases of an instant, otherwise the chip simulated first would win
        if not self._requests and not self._freed:
            self._env.timeout(0).callbacks.append(self._decide)

    def _decide(self, _: simpy.Event) -> None:
        heapify(self._requests)
        waiting = [(0, self._requests), *self._parked.items()]
        first = [(queue[0][0], edge, queue) for edge, queue in waiting if queue and (not edge or edge & self._freed)]
        self._requests, self._freed = [], 0
        started: defaultdict[float, list[Pending]] = defaultdict(list)
        heapify(first)
        while first:
            edge, queue = first[0][1:]
            if edge & self._busy:  # taken in this instant by one that went before: the queue waits on
                heappop(first)
                continue
            request = heappop(queue)
            blocked = request[1] & self._busy
            if not blocked:
                self._busy |= request[1]
                started[request[2]].append(request)
            else:  # nothing can change for it until this edge is free
                heappush(self._parked[blocked & -blocked], request)
            if queue:
                heapreplace(first, (queue[0][0], edge, queue))
            else:
                heappop(first)
        for seconds, together in started.items():  # no process for a message, and one event for those that end together
            self._env.timeout(seconds).callbacks.append(partial(self._release, together))


def _messages(traffic: np.ndarray, links: Links) -> list[list[Message]]:
    """The messages of every chip."""
    moving, following, bandwidth = moving_bytes(traffic, links), next_chips(links), edge_bytes_per_second(links)
    source, target = np.nonzero(moving)
    going, here = np.arange(len(source)), source
    edges, slowest = np.zeros(len(source), object), np.full(len(source), np.inf)
    bit = np.zeros(bandwidth.shape, object)
    used = np.unique(np.arange(len(following))[:, None] * len(bit) + following)
    bit.reshape(-1)[used] = [1 << number for number in range(len(used))]
    while len(going):  # all advance one edge at a time
        after = following[here, target[going]]
        edges[going] |= bit[here, after]
        slowest[going] = np.minimum(slowest[going], bandwidth[here, after])
        onward = after != target[going]
        going, here = going[onward], after[onward]
    nbytes, length = moving[source, target], route_lengths(links)[source, target]
    ranks = (-nbytes, -length, (target - source) % links.chips, source)
    found: list[list[Message]] = [[] for _ in range(links.chips)]
    for *rank, route, seconds in zip(*(each.tolist() for each in (*ranks, edges, nbytes / slowest)), strict=True):
        found[rank[-1]].append((tuple(rank), route, seconds))
    return found


def _check_segments(compute: np.ndarray, traffic: np.ndarray, links: Links, external_sync_seconds: float) -> None:
    """Raises MappingError; traffic values are checked where they are read."""
    if compute.ndim != 2 or compute.shape[1] != links.chips:
        raise MappingError(
            f"run of chips: compute_seconds has the shape {compute.shape}, the machine has {links.chips} chips; "
            f"give seconds of each segment and chip, shape (segments, {links.chips})"
        )
    if traffic.ndim != 3 or len(traffic) != len(compute):
        raise MappingError(
            f"run of chips: traffic has the shape {traffic.shape} for {len(compute)} segments; "
            "give bytes of each segment from each chip to each chip, "
            f"shape ({len(compute)}, {links.chips}, {links.chips})"
        )
    if not (np.isfinite(compute) & (compute >= 0)).all():
        segment, chip = np.argwhere(~(np.isfinite(compute) & (compute >= 0)))[0]
        raise MappingError(
            f"run of chips: chip {chip} computes for {compute[segment, chip]} seconds in segment {segment}; "
            "give 0 or more"
        )
    if not (np.isfinite(external_sync_seconds) and external_sync_seconds >= 0):
        raise MappingError(f"run of chips: an external sync of {external_sync_seconds} seconds; give 0 or more")
