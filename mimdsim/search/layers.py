"""Mappings made of layers of others: what they cost follows from what the layers cost there, without lowering them.

Layers lie on tiles of their own, so from one sync to the next the slowest of them counts. What a layer costs depends on
its own split; that its neighbours are cut in another way changes only what comes in how many pieces: left aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mimdsim.search.evaluate import Candidate
from mimdsim.search.objective import Aims, Figures
from mimdsim.workload.description.mapping import MappingOptions

SWEEPS = 2  # over all layers, each exchanged for the best one known
KEPT = 4  # mappings of each exchange


class LayerTable:
    """What the layers of some lowered mappings cost, all with the same rules of the program and every layer split."""

    def __init__(self, known: Sequence[Candidate]):
        self.known = [(one, one.layers) for one in known if one.layers is not None]
        self.names = list(known[0].options.split) if known else []
        column: dict[tuple[str, int], int] = {}
        for _, costs in self.known:
            for step in costs.steps:
                column.setdefault(step, len(column))
        shape = len(self.known), len(self.names) + 1, len(column)
        self._compute, self._exchange = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, (_, costs) in enumerate(self.known):
            columns = [column[step] for step in costs.steps]
            self._compute[row][:, columns] = costs.cycles.compute.T
            self._exchange[row][:, columns] = costs.cycles.exchange.T
        self._always = np.array([costs.cycles.waiting for _, costs in self.known], np.int64)
        self._peaks = np.array([costs.peak_bytes for _, costs in self.known])
        self._tiles = np.array([costs.tiles for _, costs in self.known])
        self._alike = np.array([self._numbers(one.options) for one, _ in self.known], np.int64)
        self.looked_at: set[tuple[int, ...]] = set()  # different mappings, by numbers of their parts

    def _numbers(self, options: MappingOptions) -> list[int]:
        """One for everything but the layers, and one for each of these: equal if they are."""
        others = options.model_copy(update={"split": {}})
        return [hash(others.model_dump_json()), *(hash(options.split[name]) for name in self.names)]

    def combined(self, picks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(cycles, bytes on the fullest tile, tiles) of mappings int64[mappings, 1 + layers]: which mapping everything
        but its layers is of, and which one each layer is of."""
        rows, layers = picks[:, [*range(1, picks.shape[1]), 0]], np.arange(picks.shape[1])
        slowest = [part[rows, layers].max(axis=1).sum(axis=1) for part in (self._compute, self._exchange)]
        tiles = self._tiles[rows, layers].sum(axis=1)
        return sum(slowest) + self._always[picks[:, 0]], self._peaks[rows, layers].max(axis=1), tiles

    def of_layers(self, picks: np.ndarray) -> np.ndarray:
        """int64[mappings]: tiles that the layers of mappings lie on."""
        tiles: np.ndarray = self._tiles[picks[:, 1:], np.arange(picks.shape[1] - 1)].sum(axis=1)
        return tiles

    def mapping(self, pick: np.ndarray) -> MappingOptions:
        """The mapping of a row of `combined`."""
        of, *layers = pick.tolist()
        split = {name: self.known[row][0].options.split[name] for name, row in zip(self.names, layers, strict=True)}
        result: MappingOptions = self.known[of][0].options.model_copy(update={"split": split})
        return result

    def improved(self, row: int, aims: Aims, room: int) -> Iterator[Candidate]:
        """Mappings with other layers than mapping `row`, on at most `room` tiles, a few of each exchange of a layer;
        every layer is exchanged for each one known."""
        pick = np.full(1 + len(self.names), row)
        for _ in range(SWEEPS):
            before = pick
            for layer in range(len(self.names)):
                picks = np.repeat(pick[None], len(self.known), axis=0)
                picks[:, 1 + layer] = np.arange(len(picks))
                cycles, peaks, tiles = self.combined(picks)
                tiles = np.minimum(tiles, room + self.known[row][0].options.reserved_tiles)  # what lies on any tile
                order = aims.order(cycles, peaks, tiles)
                order = order[self.of_layers(picks)[order] <= room]
                self.looked_at |= set(map(tuple, self._alike[picks, np.arange(picks.shape[1])][order].tolist()))
                for best in order[:KEPT].tolist():
                    figures = Figures(cycles=int(cycles[best]), peak_bytes=int(peaks[best]), tiles=int(tiles[best]))
                    yield Candidate(options=self.mapping(picks[best]), figures=figures)
                pick = picks[order[0]] if len(order) else pick
            if (pick == before).all():
                return
