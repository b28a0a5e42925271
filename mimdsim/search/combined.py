"""Mappings made of others: of layers of several, and over several chips of those of one.

What the first cost follows from what the layers cost where they come from, without lowering them.

Layers lie on tiles of their own, so from one sync to the next the slowest of them counts. What a layer costs depends on
its own split; that its neighbours are cut in another way changes only what comes in how many pieces: left aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from mimdsim.machine import changed_machine
from mimdsim.program import RecordedActivity
from mimdsim.search.evaluate import Candidate
from mimdsim.search.neighbours import even_parts
from mimdsim.search.objective import Aims, Case, Figures
from mimdsim.workload.description.mapping import MappingOptions, Split

SWEEPS = 2  # over all layers, each exchanged for the best one known
KEPT_OF_EXCHANGES = 4  # mappings of each exchange


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
                order = aims.order(cycles, peaks, tiles, host := self.known[row][0].figures.host_seconds)
                order = order[self.of_layers(picks)[order] <= room]
                self.looked_at |= set(map(tuple, self._alike[picks, np.arange(picks.shape[1])][order].tolist()))
                for best in order[:KEPT_OF_EXCHANGES].tolist():
                    costs = {"cycles": int(cycles[best]), "peak_bytes": int(peaks[best]), "tiles": int(tiles[best])}
                    figures = Figures(**costs, host_seconds=host)
                    yield Candidate(options=self.mapping(picks[best]), figures=figures)
                pick = picks[order[0]] if len(order) else pick
            if (pick == before).all():
                return


# ---- mappings over several chips, made of mappings of one: groups of chips share the batch, the chips of a group
# share the neurons of every layer, and layers follow each other over stages of as many chips, which work at the
# same time.


KEPT_OF_SHARES = 2  # of the mappings found for a share of the batch
SHRUNK = 0.9  # parts of what was tried before, where layers need more stages than there are


@dataclass(frozen=True, kw_only=True)
class MultiChipMapping:
    """A mapping on groups x each x stages chips, and the least cycles that it can take: of those of a share of the
    batch on one chip, what is no waiting over the chips that share it; the least seconds, where the batch comes over
    all links to the host alike."""

    options: MappingOptions
    groups: int
    each: int
    stages: int
    least_cycles: float
    least_seconds: float

    @property
    def chips(self) -> int:
        return self.groups * self.each * self.stages


def batch_share(case: Case, groups: int) -> Case:
    """The case of one of so many equal parts of the batch, on one chip."""
    batch = case.network.batch // groups
    network = replace(case.network, batch=batch)
    activity = RecordedActivity(
        ids={name: ids[:, :batch] for name, ids in case.activity.ids.items()},
        counts={name: counts[:, :batch] for name, counts in case.activity.counts.items()},
        dropped=case.activity.dropped,
    )
    machine = changed_machine(case.machine, {"links.chips": 1})
    options = case.options.model_copy(update={"split": {}})
    return Case.of(network, machine, activity, options)


def numbers_of_groups(case: Case) -> list[int]:
    """Powers of two up to the number of chips, and this number, that divide the batch."""
    chips = case.machine.links.chips
    numbers = {chips, *(1 << power for power in range(chips.bit_length()) if 1 << power <= chips)}
    return [number for number in sorted(numbers) if case.network.batch % number == 0]


def spread_over_chips(case: Case, groups: int, known: list[Candidate]) -> Iterator[MultiChipMapping]:
    """The best mappings of a share of the batch on as many groups of chips, each of one chip or of several that share
    the neurons of every layer; all layers on the same chips, or some after others."""
    chips, layers = case.machine.links.chips, case.network.layers
    fitting = [one for one in known if one.options.split and one.figures.peak_bytes <= case.machine.tile.sram_bytes]
    numbers = [1 << power for power in range(chips.bit_length())]
    aims, request = Aims.of(case.machine), case.machine.host.request_seconds
    for each, stages in product(numbers_of_groups(case), numbers):
        if groups * each * stages > chips or stages > len(layers):
            continue
        for one in fitting[:KEPT_OF_SHARES]:
            waiting = one.layers.cycles.waiting if one.layers is not None else 0
            least = waiting + (one.figures.cycles - waiting) / (each * stages)
            links = -(-groups * each * stages // (case.machine.host.chips or chips))
            stream = one.figures.host_seconds and request + (one.figures.host_seconds - request) * groups / links
            split = _split_chips(case, one.options.split, groups, each, stages)
            options = one.options.model_copy(update={"split": split, "tiles": 0})
            seconds = float(aims.seconds(least, stream))
            yield MultiChipMapping(
                options=options, groups=groups, each=each, stages=stages, least_cycles=least, least_seconds=seconds
            )


def _split_chips(case: Case, alone: dict[str, Split], groups: int, each: int, stages: int) -> dict[str, Split]:
    """All layers over the chips of their stage: with as many more parts of neurons as there are chips, or fewer, until
    layers that follow each other need no further stage."""
    room = each * (case.machine.chip.tiles - case.options.reserved_tiles)  # of a stage, in tiles for a group's samples
    share = float(each * stages)
    while True:
        split, needed, taken = {}, 1, 0
        for layer in case.network.layers:
            one = alone[layer.name]
            most = min(layer.neurons, int(one.neurons * share), room // (one.batch * one.inputs))
            parts = even_parts(layer.neurons, max(1, most))
            update = {"batch": one.batch * groups, "neurons": parts, "chips": groups * each}
            split[layer.name] = one.model_copy(update=update)
            tiles = one.batch * one.inputs * parts
            needed, taken = (needed, taken + tiles) if taken + tiles <= room else (needed + 1, tiles)
        if needed <= stages or share <= each:
            return split
        share *= SHRUNK


def time_in_order(found: list[MultiChipMapping], seconds_of: Callable[[MappingOptions], float]) -> None:
    """Call `seconds_of` with the most promising mapping of every number of chips, then with the others until none can
    be faster than the best one."""
    found = sorted(found, key=lambda one: (one.least_seconds, one.least_cycles))
    firsts = list({one.chips: one for one in reversed(found)}.values())
    best = min((seconds_of(one.options) for one in firsts), default=float("inf"))
    for one in found:
        if one.least_seconds >= (1 - 1e-9) * best:
            return
        if one not in firsts:
            best = min(best, seconds_of(one.options))
