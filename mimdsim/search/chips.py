"""Mappings over several chips, made of mappings of one: groups of chips share the batch, the chips of a group share the
neurons of every layer, and layers follow each other on chips of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from mimdsim.graph import training_graph
from mimdsim.machine import changed_machine
from mimdsim.program import RecordedActivity
from mimdsim.search.case import Case
from mimdsim.search.layers import Candidate
from mimdsim.search.splits import even_parts
from mimdsim.workload.mapping import MappingOptions, Split

KEPT = 2  # of the mappings found for a share of the batch


@dataclass(frozen=True, kw_only=True)
class Widened:
    """A mapping on `chips` chips, and the least cycles that it can take: those of a share of the batch on one chip,
    over the chips that share its neurons."""

    options: MappingOptions
    chips: int
    least_cycles: float


def share_of(case: Case, groups: int) -> Case:
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
    return Case(network=network, graph=training_graph(network), machine=machine, activity=activity, options=options)


def numbers_of_groups(case: Case) -> list[int]:
    """Powers of two up to the number of chips, and this number, that divide the batch."""
    chips = case.machine.links.chips
    numbers = {chips, *(1 << power for power in range(chips.bit_length()) if 1 << power <= chips)}
    return [number for number in sorted(numbers) if case.network.batch % number == 0]


def widened(case: Case, groups: int, known: list[Candidate]) -> Iterator[Widened]:
    """The best mappings of a share of the batch on as many groups of chips, each of one chip or of several that share
    the neurons of every layer."""
    chips = case.machine.links.chips
    fitting = [one for one in known if one.options.split and one.figures.peak_bytes <= case.machine.tile.sram_bytes]
    for each in [each for each in numbers_of_groups(case) if groups * each <= chips]:
        for one in fitting[:KEPT]:
            split = {
                layer.name: _over(one.options.split[layer.name], layer.neurons, groups, each)
                for layer in case.network.layers
            }
            options = one.options.model_copy(update={"split": split, "tiles": 0})
            yield Widened(options=options, chips=groups * each, least_cycles=one.figures.cycles / each)


def _over(split: Split, neurons: int, groups: int, each: int) -> Split:
    parts = even_parts(neurons, min(neurons, split.neurons * each))
    return split.model_copy(update={"batch": split.batch * groups, "neurons": parts, "chips": groups * each})


def in_order(found: list[Widened], cycles_of: Callable[[MappingOptions], float]) -> None:
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
