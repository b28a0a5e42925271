"""A profile as a trace in Chrome's format, which chrome://tracing and ui.perfetto.dev open.

A chip is a process, a tile a thread. Times are cycles of the machine's clock as microseconds, rounded to nanoseconds,
which is as exact as trace viewers are; cycles are among the arguments of every event.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.base.files import write_atomically
from mimdsim.base.units import counted
from mimdsim.profile import RunProfile, Span, TiledProfile
from mimdsim.profile.detail import DETAIL_FILE, Detail


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A span on the critical path: cycles at which it begins, its exchange and its compute begin, and it ends.

    number: of the span; superstep: the same, None for loop control. barrier: whether no tile begins it before all are
    there. slowest: the tile that its compute takes as long as. timestep: of one execution, its place among those that
    the detail keeps one by one.
    """

    span: Span
    number: int
    superstep: int | None
    begin: int
    exchange: int
    compute: int
    end: int
    barrier: bool
    slowest: int
    timestep: int | None = None


def critical_path(tiled: TiledProfile, supersteps: int) -> Iterator[Placed]:
    """The spans of a profile, of which the first `supersteps` are supersteps, one after the other.

    The control of a phase's loops follows the last superstep of the phase.
    """
    spans = tiled.spans
    last = {span.phase: number for number, span in enumerate(spans[:supersteps])}
    after = [*range(supersteps), *(last.get(span.phase, supersteps) for span in spans[supersteps:])]
    end = 0
    for number in sorted(range(len(spans)), key=lambda number: after[number]):
        span, begin = spans[number], end
        exchange = begin + span.sync_cycles
        compute = exchange + span.exchange_cycles
        end = compute + span.compute_cycles
        unlike = number == 0 or spans[number - 1].times != span.times  # another loop begins with a barrier
        yield Placed(
            span=span,
            number=number,
            superstep=number if number < supersteps else None,
            begin=begin,
            exchange=exchange,
            compute=compute,
            end=end,
            barrier=unlike or span.synchronises,
            slowest=span.slowest_tile,
        )


def path_by_timestep(tiled: TiledProfile, detail: Detail) -> list[Placed]:
    """The timesteps that the detail keeps one by one, in the order in which they run, and between them what runs once;
    their exchanges and syncs are the mean of all executions. Nothing if none is kept."""
    if not detail.window.size:
        return []
    rows, found, end = _window_rows(detail), list[Placed](), 0
    executions = list(_executions(list(critical_path(tiled, len(detail.supersteps))), detail))
    begins = [at for at, (placed, _) in enumerate(executions) if placed.barrier or not at]
    for first, after in pairwise([*begins, len(executions)]):
        busy = np.zeros(detail.tiles, np.int64)
        for placed, at in executions[first:after]:
            if at is not None and placed.superstep is not None:
                busy += detail.window[rows[placed.superstep], at]
        slowest = int(busy.argmax())
        for placed, at in executions[first:after]:
            span, times = placed.span, 1 if at is None else placed.span.times
            begin, exchange = end, end + round(span.sync_cycles / times)
            compute = exchange + round(span.exchange_cycles / times)
            end, decides = compute + round(span.compute_cycles / times), placed.slowest
            if at is not None and placed.superstep is not None:
                end, decides = compute + int(detail.window[rows[placed.superstep], at, slowest]), slowest
            one = replace(placed, begin=begin, exchange=exchange, compute=compute, end=end)
            found.append(replace(one, slowest=decides, timestep=at))
    return found


def _window_rows(detail: Detail) -> dict[int, int]:
    """Rows of the window by superstep."""
    return {number: row for row, number in enumerate(detail.window_supersteps.tolist())}


def _executions(path: Sequence[Placed], detail: Detail) -> Iterator[tuple[Placed, int | None]]:
    """Each span of a path, and the place of its timestep: loops, with their control, timestep by timestep."""
    rows, order = _window_rows(detail), np.argsort(detail.window_timesteps).tolist()
    loops = {placed.span.phase for placed in path if placed.superstep in rows}
    control = [placed for placed in path if placed.superstep is None and placed.span.phase in loops]
    others = (placed for placed in path if placed not in control)
    for (phase, inside), group in groupby(others, lambda placed: (placed.span.phase, placed.superstep in rows)):
        if not inside:
            yield from ((placed, None) for placed in group)
            continue
        body = [*group, *(placed for placed in control if placed.span.phase == phase and phase in loops)]
        loops.discard(phase)
        for at in order[::-1] if phase == "backward" else order:
            yield from ((placed, at) for placed in body)


def tile_slices(path: Sequence[Placed], detail: Detail, tile: int) -> Iterator[tuple[Placed, str, int, int]]:
    """What a tile does, in order, without overlap: where on the path, 'exchange' or 'compute', from cycle to cycle. A
    chip that is not the slowest between two barriers may have work in supersteps that add nothing to the path."""
    rows, exchanges, busy = _window_rows(detail), detail.exchange[:, tile].tolist(), detail.busy[:, tile].tolist()
    free = 0  # the cycle at which the tile is done with what came before
    for placed in path:
        number, at = placed.superstep, placed.timestep
        if number is None:
            continue
        parts = exchanges[number], busy[number]
        if at is not None:
            parts = round(parts[0] / placed.span.times), int(detail.window[rows[number], at, tile])
        for what, earliest, cycles in zip(
            ("exchange", "compute"), (placed.exchange, placed.compute), parts, strict=True
        ):
            if placed.barrier:
                free = max(free, earliest)
            if cycles:
                yield placed, what, free, free + cycles
                free += cycles


BUSIEST = 16  # tiles drawn unless told otherwise, and as many that the chip waits for longest
MOST_EVENTS = 200_000
FOR_A_SUPERSTEP = 6  # events at most, those of tiles aside: itself, sync, exchange, compute, two counters
NAMED = 12  # tiles listed in the message

Event = dict[str, Any]


@dataclass(kw_only=True)
class _Trace:
    """Events so far, and the tracks they lie on; numbers of processes and threads are all different, which viewers that
    confuse the two need."""

    clock_hz: float
    most: int
    events: list[Event] = field(default_factory=list)
    tracks: list[Event] = field(default_factory=list)

    def process(self, name: str) -> int:
        return self._named("process", name, None)

    def thread(self, process: int, name: str) -> tuple[int, int]:
        return process, self._named("thread", name, process)

    def _named(self, kind: str, name: str, process: int | None) -> int:
        number = len(self.tracks) // 2 + 1  # each has two events
        on = {"ph": "M", "ts": 0, "pid": number if process is None else process, "tid": number}
        self.tracks.append({**on, "name": f"{kind}_name", "args": {"name": name}})
        self.tracks.append({**on, "name": f"{kind}_sort_index", "args": {"sort_index": number}})
        return number

    @property
    def room(self) -> int:
        return self.most - len(self.events) - len(self.tracks)

    def microseconds(self, cycles: int) -> float:
        return round(cycles / self.clock_hz * 1e9) / 1e3

    def add_slice(self, track: tuple[int, int], name: str, kind: str, begin: int, end: int, **about: Any) -> Event:
        """An event with a duration, the difference of its rounded ends: neighbours touch and never overlap."""
        ts = self.microseconds(begin)
        on = {"pid": track[0], "tid": track[1], "ts": ts, "dur": round(self.microseconds(end) - ts, 3)}
        event = {"ph": "X", "name": name, "cat": kind, **on, "args": {"cycles": end - begin, **about}}
        self.events.append(event)
        return event

    def add_counter(self, process: int, name: str, at: int, size: int) -> None:
        on = {"pid": process, "tid": process, "ts": self.microseconds(at)}
        self.events.append({"ph": "C", "name": name, **on, "args": {"bytes": size}})


def write_trace(
    path: Path,
    profile: RunProfile,
    detail: Detail | None,
    *,
    tiles: Sequence[int] = (),
    busiest: int = BUSIEST,
    timesteps: bool = False,
    most_events: int = MOST_EVENTS,
) -> str:
    """Write a profile and the detail beside it as a Chrome trace, compressed where `path` ends in .gz.

    Drawn are `tiles`, then the `busiest` tiles with most busy cycles and as many that others wait for longest.
    timesteps: also the timesteps that the detail keeps one by one. At most `most_events` events are written. Returns a
    sentence on what was written and left out; raises MimdsimError where there is no detail, or no such tile.
    """
    tiled = profile.tiled
    if tiled is None or detail is None:
        raise MimdsimError(
            f"a trace needs {DETAIL_FILE} beside profile.json, every tile in every superstep; older versions did not "
            "write it, and runs of very many tiles have none: make both again with  mimdsim run WORKLOAD MACHINE --out "
            "DIR  (a kernel: mimdsim check --out)"
        )
    chosen = _choose_tiles(detail, tiled, tiles, busiest)
    trace = _Trace(clock_hz=tiled.clock_hz, most=max(0, most_events))
    supersteps = min(len(detail.supersteps), trace.most // (2 * FOR_A_SUPERSTEP))
    along = list(critical_path(tiled, len(detail.supersteps)))
    left_out = []
    if supersteps < len(detail.supersteps):
        along = [each for each in along if each.superstep is not None and each.superstep < supersteps]
        left_out.append(counted(len(detail.supersteps) - supersteps, "superstep"))
    _add_path(trace, along, detail)
    drawn = _add_tiles(trace, along, detail, tiled, chosen)
    if len(drawn) < len(chosen):
        left_out.append(f"{len(chosen) - len(drawn):,} of {len(chosen):,} chosen tiles")
    if missing := _add_flows(trace, along, drawn):
        left_out.append(f"{counted(missing, 'arrow')}, of tiles that are not drawn")
    if timesteps:
        left_out += _add_timesteps(trace, tiled, detail, list(drawn))
    about = {
        "workload": profile.workload,
        "machine": tiled.machine,
        "clock_hz": tiled.clock_hz,
        "cycles": tiled.cycles,
        "config_sha256": profile.config_sha256,
        "left_out": "; ".join(left_out),
    }
    # by time; events before the arrows and the events inside them, the longest first
    inside = sorted(trace.events, key=lambda each: (each["ts"], "CXsf".index(each["ph"]), -each.get("dur", 0.0)))
    events = [*trace.tracks, *inside]
    whole = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}
    content = json.dumps(whole, separators=(",", ":"), allow_nan=False).encode()
    write_atomically(path, gzip.compress(content, mtime=0) if path.name.endswith(".gz") else content)
    shown = ", ".join(str(tile) for tile in list(drawn)[:NAMED]) + (", ..." if len(drawn) > NAMED else "")
    tiles_of = f"{len(drawn):,} of {counted(detail.tiles, 'tile')}"
    said = f"{path}: {counted(len(events), 'event')}, {tiles_of} ({shown})"
    return f"{said}; left out: {', '.join(left_out)}" if left_out else said


def _choose_tiles(detail: Detail, tiled: TiledProfile, tiles: Sequence[int], busiest: int) -> list[int]:
    """The tiles to draw, most wanted first; raises MimdsimError for numbers that no tile has."""
    if wrong := [tile for tile in tiles if not 0 <= tile < detail.tiles]:
        listed = ", ".join(str(tile) for tile in wrong[:NAMED])
        raise MimdsimError(f"tiles of a trace: {listed}: {tiled.machine} has tiles 0 to {detail.tiles - 1}")
    if busiest < 0:
        raise MimdsimError(f"tiles of a trace: {busiest} busiest tiles cannot be drawn; give 0 or more")
    waited_for: dict[int, int] = {}
    for span in tiled.spans[: len(detail.supersteps)]:
        waited_for[span.slowest_tile] = waited_for.get(span.slowest_tile, 0) + span.compute_cycles
        if span.exchange_tile >= 0:
            waited_for[span.exchange_tile] = waited_for.get(span.exchange_tile, 0) + span.exchange_cycles
    total = detail.busy.sum(axis=0)
    by_work = np.argsort(-total, kind="stable")[: min(busiest, int((total > 0).sum()))].tolist()
    by_wait = [tile for tile in sorted(waited_for, key=lambda tile: (-waited_for[tile], tile)) if waited_for[tile]]
    return list(dict.fromkeys([*tiles, *by_work, *by_wait[:busiest]]))


def _add_path(trace: _Trace, path: Iterable[Placed], detail: Detail) -> None:
    """The critical path with its phases of each superstep inside, and what is counted along it."""
    process = trace.process("critical path")
    track = trace.thread(process, "supersteps")
    fullest, moved = detail.memory.max(axis=1).tolist(), detail.received.sum(axis=1).tolist()
    end = 0
    for placed in path:
        span, number, end = placed.span, placed.superstep, placed.end
        about: dict[str, Any] = {"executions": span.times, "phase": span.phase, "op": span.op}
        if number is not None:
            about |= {"superstep": number, "codelets": str(detail.codelets[number])}
            trace.add_counter(process, "memory of the fullest tile (bytes)", placed.begin, fullest[number])
            trace.add_counter(process, "bytes moved", placed.begin, moved[number])
        if span.cycles:
            trace.add_slice(track, span.name, span.phase, placed.begin, placed.end, **about)
        if span.sync_cycles:
            trace.add_slice(track, "sync", "sync", placed.begin, placed.exchange)
        if span.exchange_cycles:
            said = {"waits for tile": span.exchange_tile, "bytes": span.bytes_received}
            trace.add_slice(track, "exchange", "exchange", placed.exchange, placed.compute, **said)
        if span.compute_cycles:
            said = {"slowest tile": span.slowest_tile}
            trace.add_slice(track, "compute", "compute", placed.compute, placed.end, **said)
    trace.add_counter(process, "bytes moved", end, 0)


def _add_tiles(
    trace: _Trace, path: Sequence[Placed], detail: Detail, tiled: TiledProfile, tiles: Iterable[int]
) -> dict[int, dict[tuple[int, str], Event]]:
    """One thread per tile, as many as there is room for: their events by superstep and what the tile does."""
    per_chip = max(1, detail.tiles // tiled.chips)
    chips: dict[int, int] = {}
    drawn: dict[int, dict[tuple[int, str], Event]] = {}
    for tile in tiles:
        slices = list(tile_slices(path, detail, tile))
        if len(slices) + 4 > trace.room:
            continue
        chip = tile // per_chip
        if chip not in chips:
            chips[chip] = trace.process(f"chip {chip}")
        track = trace.thread(chips[chip], f"tile {tile}")
        drawn[tile] = {}
        for placed, what, begin, end in slices:
            number = placed.number
            name = str(detail.supersteps[number])
            about = {"superstep": number, "contexts": int(detail.contexts[number, tile])}
            if what == "exchange":
                name = f"exchange: {name}"
                sent, received = detail.sent[number, tile], detail.received[number, tile]
                about = {"superstep": number, "bytes sent": int(sent), "bytes received": int(received)}
            drawn[tile][number, what] = trace.add_slice(track, name, what, begin, end, **about)
    return drawn


def _add_flows(trace: _Trace, path: Sequence[Placed], drawn: dict[int, dict[tuple[int, str], Event]]) -> int:
    """Arrows along the critical path: from the slowest tile of a superstep to the tile that the next exchange waits for
    and on to the slowest tile of that superstep. Returns how many are missing, of tiles that are not drawn."""
    stations: list[tuple[int, int, str]] = []
    for placed in path:
        span, number = placed.span, placed.superstep
        if number is not None and span.exchange_cycles and span.exchange_tile >= 0:
            stations.append((span.exchange_tile, number, "exchange"))
        if number is not None and span.compute_cycles:
            stations.append((span.slowest_tile, number, "compute"))
    missing = 0
    for arrow, (one, other) in enumerate(pairwise(stations), 1):
        begin, end = (drawn.get(tile, {}).get((number, what)) for tile, number, what in (one, other))
        if begin is None or end is None or trace.room < 2:
            missing += 1
        elif begin["ts"] <= end["ts"]:  # tiles that run on may be ahead
            leaves = max(begin["ts"], min(round(begin["ts"] + begin["dur"] - 0.001, 3), end["ts"]))
            about = {"name": "critical path", "cat": "critical path", "id": arrow}
            trace.events.append({"ph": "s", **about, "pid": begin["pid"], "tid": begin["tid"], "ts": leaves})
            trace.events.append({"ph": "f", **about, "pid": end["pid"], "tid": end["tid"], "ts": end["ts"], "bp": "e"})
    return missing


def _add_timesteps(trace: _Trace, tiled: TiledProfile, detail: Detail, tiles: Sequence[int]) -> list[str]:
    """The timesteps that a profile keeps one by one, as they run, on a time axis of their own that begins at 0; returns
    what there was no room for."""
    path = path_by_timestep(tiled, detail)
    if not path:
        return ["timesteps: no superstep runs once in each"]
    inside = ((placed.span.phase, placed.timestep, placed) for placed in path if placed.timestep is not None)
    every = [(key, [each for *_, each in group]) for key, group in groupby(inside, lambda each: each[:2])]
    if 2 * (len(tiles) + 2) > trace.room:
        return ["all timesteps"]
    process = trace.process("timestep by timestep (from 0 again)")
    whole = trace.thread(process, "timesteps")
    threads = {tile: trace.thread(process, f"tile {tile}") for tile in tiles}
    work: dict[tuple[int, int | None], list[tuple[int, int, int]]] = {}  # of tiles, by superstep and timestep
    for tile in tiles:
        for placed, what, begin, end in tile_slices(path, detail, tile):
            if what == "compute" and placed.timestep is not None:
                work.setdefault((placed.number, placed.timestep), []).append((tile, begin, end))
    for done, ((phase, at), steps) in enumerate(every):
        of_tiles = [(placed, one) for placed in steps for one in work.get((placed.number, at), ())]
        if 1 + len(steps) + len(of_tiles) > trace.room:
            return [f"{len(every) - done:,} of {len(every):,} timesteps"]
        timestep = int(detail.window_timesteps[at])
        trace.add_slice(whole, f"{phase} {timestep}", phase, steps[0].begin, steps[-1].end)
        for placed in steps:
            if placed.end > placed.begin:
                trace.add_slice(whole, placed.span.name, phase, placed.begin, placed.end)
        for placed, (tile, begin, end) in of_tiles:
            trace.add_slice(threads[tile], placed.span.name, "compute", begin, end, timestep=timestep)
    return []
