"""When things of a training step happen, in cycles from its beginning: the time axis of a trace.

Each superstep appears once, with the sum of its executions: sync, exchange, compute, as it runs. Between two syncs
tiles run on, so that a tile may begin a superstep while others are still busy with an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mimdsim.profile import Span, TiledProfile
from mimdsim.profile.detail import Detail


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A span on the critical path: cycles at which it begins, its exchange and its compute begin, and it ends.

    superstep: its number, None for loop control. barrier: whether no tile begins it before all are there.
    """

    span: Span
    superstep: int | None
    begin: int
    exchange: int
    compute: int
    end: int
    barrier: bool


@dataclass(frozen=True, kw_only=True)
class Slice:
    """What one tile does in a superstep: 'exchange' or 'compute', from cycle to cycle."""

    superstep: int
    what: str
    begin: int
    end: int


def along_the_path(tiled: TiledProfile, supersteps: int) -> tuple[Placed, ...]:
    """The spans of a profile, of which the first `supersteps` are supersteps, one after the other.

    The control of a phase's loops follows the last superstep of the phase.
    """
    spans, loops = tiled.spans[:supersteps], list(tiled.spans[supersteps:])
    last = {span.phase: number for number, span in enumerate(spans)}
    placed: list[Placed] = []
    for number, span in enumerate(spans):
        unlike = number == 0 or spans[number - 1].times != span.times  # another loop begins with a barrier
        placed.append(_after(placed, span, number, bool(unlike or span.exchange_cycles + span.sync_cycles)))
        if last[span.phase] == number:
            placed += _loops(placed, [loop for loop in loops if loop.phase == span.phase])
    return (*placed, *_loops(placed, [loop for loop in loops if loop.phase not in last]))


def _loops(placed: Sequence[Placed], loops: Sequence[Span]) -> list[Placed]:
    found: list[Placed] = []
    for loop in loops:
        found.append(_after([*placed[-1:], *found], loop, None, True))
    return found


def _after(placed: Sequence[Placed], span: Span, superstep: int | None, barrier: bool) -> Placed:
    begin = placed[-1].end if placed else 0
    exchange = begin + span.sync_cycles
    compute = exchange + span.exchange_cycles
    return Placed(
        span=span,
        superstep=superstep,
        begin=begin,
        exchange=exchange,
        compute=compute,
        end=compute + span.compute_cycles,
        barrier=barrier,
    )


def on_tile(path: Sequence[Placed], detail: Detail, tile: int) -> Iterator[Slice]:
    """What a tile does, in order, without overlap. A chip that is not the slowest between two barriers may have work
    in supersteps that add nothing to the critical path."""
    exchanges, busy = detail.exchange[:, tile].tolist(), detail.busy[:, tile].tolist()
    free = 0  # the cycle at which the tile is done with what came before
    for placed in path:
        number = placed.superstep
        if number is None:
            continue
        for what, earliest, cycles in (
            ("exchange", placed.exchange, exchanges[number]),
            ("compute", placed.compute, busy[number]),
        ):
            if placed.barrier:
                free = max(free, earliest)
            if cycles:
                yield Slice(superstep=number, what=what, begin=free, end=free + cycles)
                free += cycles


@dataclass(frozen=True, kw_only=True)
class Timestep:
    """A timestep of a phase as it runs, with the supersteps in it: (number, begin, compute begins, end) in cycles, and
    the row and column of `Detail.window`."""

    phase: str
    timestep: int
    begin: int
    end: int
    supersteps: tuple[tuple[int, int, int, int], ...]
    rows: tuple[int, ...]
    column: int


def timestep_by_timestep(tiled: TiledProfile, detail: Detail) -> Iterator[Timestep]:
    """The timesteps that a profile keeps one by one, as they run: backwards in the backward phase.

    The compute of a superstep ends with its slowest tile; exchange and sync are the mean over all timesteps.
    """
    rows_of: dict[str, list[int]] = {}
    for row, number in enumerate(detail.window_supersteps.tolist()):
        rows_of.setdefault(tiled.spans[number].phase, []).append(row)
    columns = np.argsort(detail.window_timesteps)
    begin = 0
    for phase, rows in rows_of.items():
        for column in (columns[::-1] if phase == "backward" else columns).tolist():
            supersteps, end = [], begin
            for row in rows:
                number = int(detail.window_supersteps[row])
                span = tiled.spans[number]
                compute = end + round((span.sync_cycles + span.exchange_cycles) / max(1, span.times))
                finish = compute + int(detail.window[row, column].max(initial=0))
                supersteps.append((number, end, compute, finish))
                end = finish
            yield Timestep(
                phase=phase,
                timestep=int(detail.window_timesteps[column]),
                begin=begin,
                end=end,
                supersteps=tuple(supersteps),
                rows=tuple(rows),
                column=column,
            )
            begin = end
