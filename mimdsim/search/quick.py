"""Whether a mapping leaves much to be gained: a few others estimated beside it."""

from __future__ import annotations

from itertools import islice

from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.compiler import Compiled
from mimdsim.graph import SpikingNetwork
from mimdsim.machine import MimdMachine
from mimdsim.program import RecordedActivity
from mimdsim.search.case import Case
from mimdsim.search.sampled import estimate
from mimdsim.search.splits import Space, seeds
from mimdsim.workload.mapping import MappingOptions

TRIED = 3  # other mappings; they and the one asked for take less than half a second
MUCH = 1.1  # times the cycles of the best of them


def gain_of_others(
    compiled: Compiled, machine: MimdMachine, activity: RecordedActivity, options: MappingOptions
) -> float:
    """Cycles of a compiled mapping, as estimated, in those of the best of a few others that fit; 1 if none is better or
    if the mapping is not the published one."""
    network: SpikingNetwork = compiled.network
    if network.spikes == "dense" or options.split or options.program != "published":
        return 1.0
    case = Case(network=network, graph=compiled.graph, machine=machine, activity=activity, options=options)
    own = estimate(case, options).figures.cycles
    best = own
    copies = (options.model_copy(update={"program": "best"}), *islice(_apart(case), TRIED - 1))
    for other in copies:
        try:
            found = estimate(case, other).figures
        except (DoesNotFit, MappingError):
            continue
        if found.peak_bytes <= machine.tile.sram_bytes:
            best = min(best, found.cycles)
    return own / best


def _apart(case: Case) -> tuple[MappingOptions, ...]:
    """Seeds with several copies: about 4 and 8."""
    space = Space.of(case)
    wanted = {min(space.ladder, key=lambda copies: abs(copies - about)) for about in (4, 8)} - {1}
    first: dict[int, MappingOptions] = {}
    for one in islice(seeds(case, space), 4 * len(space.ladder)):
        copies = next(iter(one.split.values())).batch
        first.setdefault(copies, one)
    return tuple(first[copies] for copies in sorted(wanted) if copies in first)
