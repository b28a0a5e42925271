"""Questions about a timed program: columns by tile, superstep, variable and message, and the path that sets its time.

Tables are pandas frames where pandas is installed (extra `frames`), else dicts of numpy columns of the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mimdsim.base.errors import MappingError, suggest
from mimdsim.base.shown import Sheet, Shown
from mimdsim.profile.detail import Detail
from mimdsim.profile.operations import longest_superstep
from mimdsim.profile.records import RunProfile, TiledProfile

if TYPE_CHECKING:
    import pandas

    Frame: TypeAlias = pandas.DataFrame | dict[str, np.ndarray]


class RunQueries(Shown):
    """What is asked of `profile` and `detail`: of a run in memory, or of one that was saved."""

    profile: RunProfile

    def _sheet(self) -> Sheet:
        return self.profile._sheet()

    @property
    def detail(self) -> Detail:
        """Every tile in every superstep, and in some timesteps."""
        raise NotImplementedError

    @property
    def tiled(self) -> TiledProfile:
        """The profile of the machine that was trained on."""
        assert self.profile.tiled is not None
        return self.profile.tiled

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with inputs, spikes or training, most important first; the report begins with it."""
        return self.profile.all_warnings

    @property
    def tiles(self) -> Frame:
        """A row per tile: chip, layer, busy and idle cycles of a training step, bytes sent and received, peak bytes."""
        tiled, detail = self.tiled, self.detail
        columns, number = tiled.tile_columns, np.arange(tiled.tiles)
        busy = detail.busy.sum(axis=0)
        return frame(
            {
                "tile": number,
                "chip": number // (tiled.tiles // tiled.chips),
                "layer": np.array(columns.layer, np.str_),
                "busy_cycles": busy,
                "idle_cycles": tiled.cycles - busy,
                "bytes_sent": detail.sent.sum(axis=0),
                "bytes_received": detail.received.sum(axis=0),
                "peak_bytes": detail.memory.max(axis=0),
                "peak_superstep": detail.memory.argmax(axis=0),
            }
        )

    @property
    def supersteps(self) -> Frame:
        """A row per superstep, in program order: cycles by part over its executions, the slowest tile and its codelets,
        cycles if its work were shared evenly by all tiles that are used, issued bundles for each busy cycle."""
        tiled, detail = self.tiled, self.detail
        spans = tiled.spans[: len(detail.supersteps)]
        names = ("times", "cycles", "compute_cycles", "exchange_cycles", "sync_cycles", "slowest_tile", "exchange_tile")
        busy = detail.busy.sum(axis=1)
        return frame(
            {
                "superstep": np.arange(len(spans)),
                "name": detail.supersteps,
                "phase": np.array([span.phase for span in spans], np.str_),
                **{name: np.array([getattr(span, name) for span in spans], np.int64) for name in names},
                "codelets": detail.codelets,
                "balanced_cycles": busy / max(1, tiled.tiles_used),
                "tiles_busy": (detail.busy > 0).sum(axis=1),
                "bundles_per_busy_cycle": detail.bundles / np.maximum(busy, 1),
                "flops": detail.flops,
                "bytes_accessed": detail.accessed,
                "bytes_received": detail.received.sum(axis=1),
            }
        )

    @property
    def memory(self) -> Frame:
        """A row per variable: category, first and last superstep in memory, bytes on all tiles, the tile with most."""
        detail = self.detail
        held = [detail.held(number) for number in range(len(detail.variables))]
        return frame(
            {
                "variable": detail.variables,
                "category": detail.categories,
                "first": detail.live[:, 0],
                "last": detail.live[:, 1],
                "bytes": np.array([size.sum() for _, size in held], np.int64),
                "tiles": np.array([len(tiles) for tiles, _ in held], np.int64),
                "fullest_tile": np.array([tiles[size.argmax()] if len(size) else -1 for tiles, size in held], np.int64),
                "most_bytes": np.array([size.max(initial=0) for _, size in held], np.int64),
            }
        )

    @property
    def traffic(self) -> Frame:
        """A row per superstep and pair of groups of neighbouring tiles (`detail.group_of`): bytes on the chip."""
        names = ("superstep", "from_group", "to_group", "bytes")
        return frame(dict(zip(names, self.detail.traffic.T, strict=True)))

    def critical_path(self) -> Frame:
        """A row per part of a superstep that takes time: compute, exchange, sync; in order. Its cycles sum to those of
        a training step.

        tile: the one that the part waits for, of computing the one with most work since the last sync; ahead: by how
        many cycles it is ahead of the next tile, there and over all executions: more than these cannot be saved on it
        alone. partner: the tile that sends most to it, of an exchange.

            >>> int(sum(made.critical_path()["cycles"])) == made.cycles
            True
        """
        rows: list[tuple[int, str, str, int, int, int, str, int]] = []
        per_chip = self.detail.tiles // self.tiled.chips
        for numbers in self._between_syncs():
            busy = self.detail.busy[numbers].sum(axis=0)
            for number in numbers:
                rows += self._waiting_parts(number)
                span, codelets = self.tiled.spans[number], str(self.detail.codelets[number])
                if span.compute_cycles:
                    first = span.slowest_tile // per_chip * per_chip  # chips go on without each other
                    tile, ahead = _leader(busy[first : first + per_chip])
                    rows.append((number, span.name, "compute", first + tile, span.compute_cycles, ahead, codelets, -1))
        for number in range(len(self.detail.supersteps), len(self.tiled.spans)):  # loop control
            rows += self._waiting_parts(number)
        names = ("superstep", "name", "part", "tile", "cycles", "ahead", "codelets", "partner")
        return frame({name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})

    def _between_syncs(self) -> list[list[int]]:
        """Numbers of supersteps from one that waits for others to the one before the next; each turn of a loop begins
        with a wait."""
        found: list[list[int]] = []
        times = 0
        for number, span in enumerate(self.tiled.spans[: len(self.detail.supersteps)]):
            if not found or span.synchronises or span.times != times:
                found.append([])
            found[-1].append(number)
            times = span.times
        return found

    def _waiting_parts(self, number: int) -> list[tuple[int, str, str, int, int, int, str, int]]:
        """Sync and exchange of a superstep, in which all wait."""
        span, rows = self.tiled.spans[number], []
        if span.sync_cycles:
            rows.append((number, span.name, "sync", -1, span.sync_cycles, 0, "", -1))
        if span.exchange_cycles:
            _, ahead = _leader(self.detail.exchange[number])
            partner = int(self.detail.senders[span.exchange_tile, 0]) if span.exchange_tile >= 0 else -1
            rows.append((number, span.name, "exchange", span.exchange_tile, span.exchange_cycles, ahead, "", partner))
        return rows

    def on_tile(self, tile: int, superstep: str | int | None = None) -> Frame:
        """What lies in the memory of a tile, largest first: variable ('' for code, vertices and exchange buffers),
        category, bytes.

        tile: its number. superstep: when, by name or number (default: where this tile is fullest).

            >>> int(sum(made.on_tile(3)["bytes"])) == int(made.detail.memory[:, 3].max())
            True
        """
        self._require(tile)
        at = int(self.detail.memory[:, tile].argmax()) if superstep is None else self.number_of(superstep)
        found = self.detail.on_tile(tile, at)
        names = ("variable", "category", "bytes")
        return frame({name: np.array([one[at] for one in found]) for at, name in enumerate(names)})

    def work_of(self, tile: int) -> Frame:
        """What a tile does in every superstep, most cycles first: busy cycles, those of the slowest tile, bytes, worker
        contexts with work.

        tile: its number.

            >>> int(sum(made.work_of(3)["busy_cycles"])) == made.tiled.tile_columns.busy_cycles[3]
            True
        """
        self._require(tile)
        detail = self.detail
        order = np.argsort(-detail.busy[:, tile], kind="stable")
        return frame(
            {
                "superstep": order,
                "name": detail.supersteps[order],
                "busy_cycles": detail.busy[order, tile],
                "slowest_cycles": detail.busy[order].max(axis=1),
                "contexts": detail.contexts[order, tile],
                "bytes_sent": detail.sent[order, tile],
                "bytes_received": detail.received[order, tile],
            }
        )

    def partners(self, tile: int) -> Frame:
        """The tiles that send most to a tile and receive most from it, most first, with the bytes of a training step;
        a message to several tiles counts for each of them.

        tile: its number.

            >>> list(made.partners(3))  # bytes of a training step
            ['sender', 'bytes_from', 'receiver', 'bytes_to']
        """
        self._require(tile)
        detail = self.detail
        return frame(
            {
                "sender": detail.senders[tile],
                "bytes_from": detail.sender_bytes[tile],
                "receiver": detail.receivers[tile],
                "bytes_to": detail.receiver_bytes[tile],
            }
        )

    def _require(self, tile: int) -> None:
        if not 0 <= tile < self.detail.tiles:
            raise MappingError(f"no tile {tile} in the profile, which has {self.detail.tiles}, counted from 0")

    def number_of(self, superstep: str | int) -> int:
        """The number of a superstep, counted from 0 in program order; raises MappingError if there is none.

        superstep: its name or number.

            >>> made.number_of("zero states")
            0
        """
        names = self.detail.supersteps.tolist()
        if isinstance(superstep, str):
            if superstep not in names:
                raise MappingError(f"no superstep '{superstep}' in the profile{suggest(superstep, names)}")
            return int(names.index(superstep))
        if not 0 <= superstep < len(names):
            raise MappingError(f"no superstep {superstep} in the profile, which has {len(names)}, counted from 0")
        return superstep


class SavedRun(RunQueries):
    """A saved run."""

    def __init__(self, profile: RunProfile, detail: Detail):
        self.profile, self._detail = profile, detail

    @property
    def detail(self) -> Detail:
        """Every tile in every superstep, and in some timesteps."""
        return self._detail

    def explain(self, superstep: str | int) -> str:
        """Why a superstep takes its cycles, seen from its slowest tile, as sums that add up; made when it was saved.

        superstep: its name or number; where several are meant, the longest. Raises MappingError for none.

            >>> print(mimdsim.open_report("mine").explain("zero states"))  # doctest: +SKIP
        """
        number = longest_superstep(self.tiled.spans, str(superstep))
        if number >= len(self.detail.explained):
            told = f"use  mimdsim explain FOLDER {number}"
            raise MappingError(f"superstep {number} is not explained in the saved run; {told}")
        return str(self.detail.explained[number])


def _leader(cycles: np.ndarray) -> tuple[int, int]:
    """(the tile with most of int64[tiles], by how much more than the next)."""
    tile = int(cycles.argmax())
    return tile, int(cycles[tile] - np.delete(cycles, tile).max(initial=0))


class Columns(Shown, dict[str, np.ndarray]):
    """Columns by name, which print as a table."""

    def _sheet(self) -> Sheet:
        rows = (tuple(map(str, row)) for row in zip(*self.values(), strict=True))
        return Sheet(f"{len(next(iter(self.values()), ())):,} rows", rows, tuple(self))


def frame(columns: dict[str, Any]) -> Frame:
    """Columns as a pandas frame, or as they are without pandas."""
    try:
        import pandas
    except ImportError:
        return Columns(columns)
    return pandas.DataFrame(columns)
