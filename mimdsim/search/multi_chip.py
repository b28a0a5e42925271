"""Mappings over several chips, made of mappings of one: groups of chips share the batch, the chips of a group share the
neurons of every layer, and layers follow each other over stages of as many chips, which work at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from mimdsim.machine import changed_machine
from mimdsim.program import RecordedActivity
from mimdsim.search.evaluate import Candidate
from mimdsim.search.neighbours import even_parts
from mimdsim.search.objective import Case
from mimdsim.workload.description.mapping import MappingOptions, Split

KEPT = 2  # of the mappings found for a share of the batch
SHRUNK = 0.9  # parts of what was tried before, where layers need more stages than there are


@dataclass(frozen=True, kw_only=True)
class MultiChipMapping:
    """A mapping on groups x each x stages chips, and the least cycles that it can take: of those of a share of the
    batch on one chip, what is no waiting over the chips that share it."""

    options: MappingOptions
    groups: int
    each: int
    stages: int
    least_cycles: float

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
    for each, stages in product(numbers_of_groups(case), numbers):
        if groups * each * stages > chips or stages > len(layers):
            continue
        for one in fitting[:KEPT]:
            waiting = one.layers.cycles.waiting if one.layers is not None else 0
            least = waiting + (one.figures.cycles - waiting) / (each * stages)
            split = _split_chips(case, one.options.split, groups, each, stages)
            options = one.options.model_copy(update={"split": split, "tiles": 0})
            yield MultiChipMapping(options=options, groups=groups, each=each, stages=stages, least_cycles=least)


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


def time_in_order(found: list[MultiChipMapping], cycles_of: Callable[[MappingOptions], float]) -> None:
    """Call `cycles_of` with the most promising mapping of every number of chips, then with the others until none can be
    faster than the best one."""
    found = sorted(found, key=lambda one: one.least_cycles)
    firsts = list({one.chips: one for one in reversed(found)}.values())
    best = min((cycles_of(one.options) for one in firsts), default=float("inf"))
    for one in found:
        if one.least_cycles >= best:
            return
        if one not in firsts:
            best = min(best, cycles_of(one.options))
