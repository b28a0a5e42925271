"""The smallest tile memory that a network fits: searches for least memory, and every other option that takes another
amount of memory for the same values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from mimdsim.base.console import Progress, silent
from mimdsim.base.errors import DescriptionError, DoesNotFit
from mimdsim.machine import changed_machine
from mimdsim.search.evaluate import evaluator
from mimdsim.search.objective import Aims, Case, TimedMapping
from mimdsim.search.search_loop import SearchResult, pareto_front, savings, search
from mimdsim.workload.description.mapping import MappingOptions

AMPLE = 1 << 30  # bytes of a tile, to search with: more than any mapping takes
# options of a mapping that a search leaves as they are, change memory, and never a value
ALSO_TRIED = ("stash", "id_bytes", "spike_exchange", "state_gradient", "selection_tiles", "reduce_rule")
LEFT = {
    "the values": ("mapping.value_bytes", "mapping.moment_bytes"),
    "the training": ("training.batch", "data.timesteps", "network.capacity", "data.input_capacity"),
    "what is in the memory behind the tiles": ("mapping.behind_tiles",),
}
SHORT_IDS = 1 << 16  # what 2 bytes tell apart


def smallest_sram(
    case: Case, aims: Aims, *, candidates: int, processes: int = 1, progress: Progress = silent
) -> SearchResult:
    """The mapping that fits the least tile memory of those tried; it and the published one are timed with this memory.

    A search for least memory, then each of `ALSO_TRIED` in turn; where one takes less, a search with it, until nothing
    does. Raises DescriptionError for a limit of energy, which depends on the memory, and DoesNotFit as `search`.
    """
    if "energy" in dict(aims.within):
        problem = "energy depends on the memory that is looked for (static power); leave out  max energy"
        raise DescriptionError("place", [f"--smallest-sram: {problem}"])
    aims = replace(aims, objective="memory", sram_bytes=AMPLE)
    ample = with_sram(case, AMPLE)
    found, best = None, None
    lowered = combined = rounds = 0

    def of_round(what: str, done: int, total: int) -> None:
        progress(f"round {rounds}: {what}", done, total)

    while True:
        rounds += 1
        given = ample if best is None else replace(ample, options=best.options)
        one = search(given, aims, candidates=candidates, processes=processes, explained=False, progress=of_round)
        lowered, combined = lowered + one.candidates, combined + one.combined
        if best is None or found is None or one.best.figures.peak_bytes < best.figures.peak_bytes:
            found, best = one, one.best
        before = best
        best = _with_others(ample, aims, best, processes, of_round)
        if best.options == before.options:
            break
    progress("timing the best with this memory", 0, 1)
    small = with_sram(case, best.figures.peak_bytes)
    with evaluator(small, processes) as evaluate:
        published, best = evaluate.timings([small.published, best.options])
        assert best is not None
        if not best.fits:
            raise DoesNotFit("the code of the smallest mapping found does not fit; see tile.executable_bytes")
        saved = savings(evaluate, published, best) if published is not None else ()
    front = pareto_front([best, *(each for each in found.front if each.options != best.options)])
    by_chips = {each.chips: each for each in found.by_chips} | {best.chips: best}
    return replace(
        found,
        candidates=lowered,
        combined=combined,
        best=best,
        published=published,
        front=front,
        savings=saved,
        by_chips=tuple(by_chips[chips] for chips in sorted(by_chips)),
    )


def with_sram(case: Case, sram_bytes: int) -> Case:
    """The case on tiles with so much memory."""
    return replace(case, machine=changed_machine(case.machine, {"tile.sram_bytes": sram_bytes}))


def _with_others(case: Case, aims: Aims, best: TimedMapping, processes: int, progress: Progress) -> TimedMapping:
    """The mapping with the value of each of `ALSO_TRIED` that takes least memory, one after the other."""
    with evaluator(case, processes, joules=aims.needs_energy) as evaluate:
        for place, key in enumerate(ALSO_TRIED):
            progress("other options", place, len(ALSO_TRIED))
            others = [best.options.model_copy(update={key: value}) for value in _values(key, case, best.options)]
            ranked = sorted(filter(None, evaluate.estimates(others)), key=lambda one: aims.rank(one.figures))
            timed = evaluate.timings([one.options for one in ranked[:2]])  # bytes are estimated to 0.3 %
            best = min([best, *filter(None, timed)], key=lambda one: aims.rank(one.figures))
    return best


def _values(key: str, case: Case, now: MappingOptions) -> Iterator[str | int]:
    """Other values of an option."""
    if key == "stash":
        timesteps = case.network.timesteps
        every = ("everything", "carry", *(f"every:{k}" for k in range(2, timesteps) if timesteps % k == 0))
    elif key == "id_bytes" and max(max(one.inputs, one.neurons) for one in case.network.layers) >= SHORT_IDS:
        return
    else:
        every = get_args(MappingOptions.model_fields[key].annotation)
    yield from (value for value in every if value != getattr(now, key))
