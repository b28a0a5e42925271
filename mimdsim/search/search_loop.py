"""The search: seeds, then steps from the best mappings found so far, then from the best one every value of what layers
share and every step of a layer, all estimated; the best few timed in full. And what each change to
the best one saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import numpy as np

from mimdsim.base.console import Progress, silent
from mimdsim.base.errors import DoesNotFit
from mimdsim.base.shown import Sheet, Shown
from mimdsim.base.units import show_bytes
from mimdsim.search.combined import (
    LayerTable,
    MultiChipMapping,
    batch_share,
    numbers_of_groups,
    spread_over_chips,
    time_in_order,
)
from mimdsim.search.evaluate import Candidate, Evaluator, evaluator
from mimdsim.search.neighbours import SHARED, every_step, every_value, random_step, seeds
from mimdsim.search.objective import BEYOND, Aims, Case, Objective, TimedMapping
from mimdsim.workload.description.mapping import MappingOptions, Split

ROUND = 16  # mappings estimated before the next parents are chosen; the same for any number of processes
SEED_SHARE = 0.35  # of the candidates
PARENTS = 20
FINALISTS, ON_FRONT = 6, 6  # timed in full, at most
PER_FINALIST = 10  # candidates for each of them
# what is walked towards in turn, whatever is best in the end: a search for one objective starts its last steps from all
# that those for others know
WALKED: tuple[Objective, ...] = ("time", "product", "memory")
BATCH_SHARE = 0.25  # of the candidates, for each share of the batch over several chips
LAST_SHARE = 0.25  # of the candidates: for single steps from the best one, the last thing tried
# what a search changes, and the tiles that it was for: those that a larger chip has more stay idle
SEARCHED = ("split", "program", "states_per_worker", "reduce_exponent", "reduce_group", "tiles", "strip_columns")
Mapping = TypeVar("Mapping", Candidate, TimedMapping)


@dataclass(frozen=True, kw_only=True)
class SearchResult(Shown):
    """What a search found. published: the published mapping (None: too few tiles for it); front: timed mappings none of
    which is both faster and smaller than another, fastest first; savings: from the published mapping to the best one;
    candidates: mappings lowered; combined: how many different ones more were made of their layers; by_chips: the best
    timed mapping of each number of chips in use; doubted: why the times do not hold for a network that works."""

    best: TimedMapping
    published: TimedMapping | None
    front: tuple[TimedMapping, ...]
    savings: tuple[Saving, ...]
    candidates: int
    combined: int
    by_chips: tuple[TimedMapping, ...]
    doubted: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before its times are read."""
        if not self.best.waits_for_host:
            return self.doubted
        timed = [one for one in (self.published, self.best, *self.front) if one is not None]
        which = "every mapping timed" if all(one.waits_for_host for one in timed) else "the best mapping"
        stream, chip = 1e3 * self.best.figures.host_seconds, 1e3 * (self.best.seconds - self.best.exposed_seconds)
        host = f"The host sets the time of a training step with {which}: it streams a batch in {stream:.4g} ms, and the"
        gain = f"chip takes {chip:.4g} ms with the best one. Fewer cycles of the chip save no time; a faster host does"
        return (f"{host} {gain} (host.bytes_per_second, host.request_seconds)", *self.doubted)

    def _sheet(self) -> Sheet:
        from mimdsim.search.render import result_lines  # which takes results

        lines = [(line,) for line in result_lines(self) if line]
        return Sheet(f"the best of {self.candidates + self.combined:,} mappings", lines)


def search(
    case: Case,
    aims: Aims,
    *,
    candidates: int,
    processes: int = 2,
    explained: bool = True,
    progress: Progress = silent,
) -> SearchResult:
    """The best mapping of so many candidates, the same for any number of processes.

    Of dense spikes, whose products are mapped as planned, only the form of the program is chosen. Raises DoesNotFit if
    none keeps to the limits, with the one that comes closest.
    """
    if case.network.spikes == "dense":
        with evaluator(aims.limited(case), 1, joules=aims.needs_energy) as evaluate:
            published, *others = _timed_forms(evaluate)
        return _search_result(published, others, aims, len(others), 0)
    if case.machine.links.chips > 1:
        return _search_chips(case, aims, candidates=candidates, processes=processes, progress=progress)
    with evaluator(aims.limited(case), processes, joules=aims.needs_energy) as evaluate:
        tried, more = estimate_candidates(evaluate, aims, candidates, progress)
        mappings = [case.published, *(one.options for one in _finalists(tried, aims))]
        progress("timing the best", 0, len(mappings))
        published, *others = evaluate.timings(mappings)
        progress("timing the best", len(mappings), len(mappings))
        found = _search_result(published, others, aims, len(tried), more)
        saved = savings(evaluate, published, found.best) if explained and published is not None else ()
    return replace(found, savings=saved)


def _search_result(
    published: TimedMapping | None, others: Sequence[TimedMapping | None], aims: Aims, candidates: int, combined: int
) -> SearchResult:
    """Raises DoesNotFit if none keeps to the limits."""
    finished = [one for one in (published, *others) if one is not None]
    kept = sorted(_within_limits(finished, aims), key=lambda one: (*aims.rank(one.figures), one.figures.peak_bytes))
    if not kept:
        raise DoesNotFit(_why(finished, aims, candidates))
    by_chips = {one.chips: one for one in reversed(kept)}
    return SearchResult(
        best=kept[0],
        published=published,
        front=pareto_front(kept),
        savings=(),
        candidates=candidates,
        combined=combined,
        by_chips=tuple(by_chips[chips] for chips in sorted(by_chips)),
    )


def _search_chips(case: Case, aims: Aims, *, candidates: int, processes: int, progress: Progress) -> SearchResult:
    """The best mapping of several chips, or of fewer of them: of those found for one chip and shares of the batch,
    widened, and of those that give layers chips of their own. One chip gets as many candidates as if it were alone,
    and a share of the batch as many however many chips there are, so that more chips find nothing worse."""
    several = numbers_of_groups(case)
    wide: list[MultiChipMapping] = []
    alone: list[MappingOptions] = []
    lowered = more = 0
    for groups in several:
        with evaluator(aims.limited(batch_share(case, groups)), processes, joules=aims.needs_energy) as evaluate:
            try:
                share = candidates if groups == 1 else max(ROUND, int(BATCH_SHARE * candidates))
                known, combined = estimate_candidates(evaluate, aims, share, progress)
            except DoesNotFit:
                continue
            if groups == 1:
                finished = evaluate.timings([each.options for each in _finalists(known, aims)])
                kept = sorted(_within_limits(finished, aims), key=lambda one: aims.rank(one.figures))
                alone = [one.options.model_copy(update={"tiles": 0}) for one in kept[:1]]
        lowered, more = lowered + len(known), more + combined
        wide += spread_over_chips(case, groups, known)
    timings: list[TimedMapping] = []
    with evaluator(case, 1) as evaluate:

        def seconds_of(options: MappingOptions) -> float:
            (made,) = evaluate.timings([options])
            progress("timing the best", len(timings), len(wide))
            if made is None:
                return BEYOND
            timings.append(made)
            return made.seconds if _within_limits([made], aims) else BEYOND

        published, *layers = evaluate.timings(
            [case.published, case.published.model_copy(update={"program": "best"}), case.options, *alone]
        )
        time_in_order(wide, seconds_of)
    progress("timing the best", len(wide), len(wide))
    return _search_result(published, [*layers, *timings], aims, lowered, more)


def _timed_forms(evaluate: Evaluator) -> list[TimedMapping | None]:
    """The published mapping, and with all rules of the program: what dense spikes leave to choose."""
    published = evaluate.case.published
    return evaluate.timings([published, published.model_copy(update={"program": "best"})])


def best_of(case: Case, aims: Aims, mappings: Sequence[MappingOptions]) -> TimedMapping | None:
    """The best of mappings found for other machines, with what a search does not change as in the case. None: none
    keeps to the limits.

    One found for more tiles than there are is not tried: on a chip of more tiles the rest is idle, so that what can be
    tried there is what could be tried on fewer, and as fast. All are estimated; as no estimate is above what full
    timing finds, they are timed in order of their estimates until the next one is no better than the best timed.
    """
    best: TimedMapping | None = None
    with evaluator(case, 1) as evaluate:
        if case.network.spikes == "dense":
            forms = _within_limits(_timed_forms(evaluate), aims)
            return min(forms, key=lambda each: aims.rank(each.figures), default=None)
        several = {"tiles": 0} if case.machine.links.chips > 1 else {}  # which is for one chip
        adapted = [_adapt(case.options, other).model_copy(update=several) for other in mappings]
        found = estimate_mappings(evaluate, adapted)
        for one in sorted(found, key=lambda one: aims.rank(one.figures)):
            if best is not None and aims.rank(one.figures) >= aims.rank(best.figures):
                break
            kept = _within_limits(evaluate.timings([one.options]), aims)
            best = min([*kept, *([best] if best else [])], key=lambda each: aims.rank(each.figures), default=None)
    return best


def _within_limits(timed: Iterable[TimedMapping | None], aims: Aims) -> list[TimedMapping]:
    """Those that keep to the limits; None: too few tiles for it."""
    return [one for one in timed if one is not None and one.fits and aims.rank(one.figures)[0] == 0]


def _adapt(options: MappingOptions, other: MappingOptions) -> MappingOptions:
    """A mapping with what a search changed in another one."""
    return options.model_copy(update={name: getattr(other, name) for name in SEARCHED})


def estimate_mappings(evaluate: Evaluator, mappings: Sequence[MappingOptions]) -> list[Candidate]:
    """Those of different mappings that can be placed, with their estimates."""
    different = list({_key(mapping): mapping for mapping in mappings}.values())
    return [one for one in evaluate.estimates(different) if one is not None]


def estimate_candidates(
    evaluate: Evaluator, aims: Aims, candidates: int, progress: Progress
) -> tuple[list[Candidate], int]:
    """All candidates that can be placed, best first, and how many more were made of their layers."""
    case = evaluate.case
    layers = {layer.name for layer in case.network.layers}
    draw = np.random.default_rng(case.network.batch)
    seen: set[str] = set()
    known: list[Candidate] = []
    looked_at: set[tuple[int, ...]] = set()

    def tried(mappings: Iterable[MappingOptions]) -> None:
        new = {key: mapping for mapping in mappings if (key := _key(mapping)) not in seen}
        seen.update(new)
        for begin in range(0, len(new), ROUND):
            known.extend(estimate_mappings(evaluate, list(new.values())[begin : begin + ROUND]))
            left = max(0, len(new) - begin - ROUND)
            progress("mappings", min(len(seen) - left, candidates), candidates)
        known.sort(key=lambda one: aims.rank(one.figures))

    first = [case.published, case.published.model_copy(update={"program": "best"}), case.options]
    tried([*first, *_thin_out(list(seeds(case)), max(1, int(SEED_SHARE * candidates)))])
    enough, before = (1 - LAST_SHARE) * candidates, -1
    while before < len(seen) < enough:
        before = len(seen)
        for objective in WALKED:
            walked = replace(aims, objective=objective)
            known.sort(key=lambda one: walked.rank(one.figures))
            parents = [one for one in known if set(one.options.split) == layers]
            if not parents or len(seen) >= enough:
                break
            room = min(ROUND, candidates - len(seen))
            made = _combine_layers(parents, walked, case.room, seen, looked_at)[: room // 2]
            keys = seen | {_key(mapping) for mapping in made}
            children = _children([one.options for one in parents[:PARENTS]], case, draw, keys)
            tried([*made, *islice(children, room - len(made))])
    known.sort(key=lambda one: aims.rank(one.figures))
    best = None
    while known and known[0].options.split and known[0] is not best:
        best = known[0]
        for setting in SHARED:
            tried(every_value(setting, known[0].options, case)[: max(0, candidates - len(seen))])
        for layer in case.network.layers:
            tried(every_step(layer, known[0].options, case)[: max(0, candidates - len(seen))])
    progress("mappings", candidates, candidates)
    return known, len(looked_at)


def _combine_layers(
    parents: list[Candidate], aims: Aims, room: int, seen: set[str], looked_at: set[tuple[int, ...]]
) -> list[MappingOptions]:
    """Mappings not seen yet that are made of layers of all parents, best first; adds to `looked_at` those of which they
    are the best."""
    made: dict[str, Candidate] = {}
    first = {id(one) for one in parents[:PARENTS]}
    for rules in dict.fromkeys(one.options.rules for one in parents[:PARENTS]):
        alike = [one for one in parents if one.options.rules == rules]
        table = LayerTable(alike)
        for row in (row for row, one in enumerate(alike) if id(one) in first):
            made.update((_key(one.options), one) for one in table.improved(row, aims, room))
        looked_at |= table.looked_at
    unseen = [one for key, one in made.items() if key not in seen]
    return [one.options for one in sorted(unseen, key=lambda one: aims.rank(one.figures))]


def _children(
    parents: list[MappingOptions], case: Case, draw: np.random.Generator, seen: set[str]
) -> Iterable[MappingOptions]:
    """Neighbours not yet seen, more of better parents; some are several steps away."""
    proposed: set[str] = set()
    for _ in range(20 * ROUND):
        child = parents[min(int(draw.exponential(PARENTS / 4)), len(parents) - 1)]
        for _ in range(int(draw.geometric(0.6))):
            child = random_step(child, case, draw)
        key = _key(child)
        if key not in seen and key not in proposed:
            proposed.add(key)
            yield child


def _thin_out(mappings: list[MappingOptions], count: int) -> list[MappingOptions]:
    """So many of all, the first ones densest."""
    if len(mappings) <= count:
        return mappings
    half = mappings[: count // 2]
    rest = mappings[count // 2 :]
    return half + [rest[int(at)] for at in np.linspace(0, len(rest) - 1, count - len(half))]


def _key(mapping: MappingOptions) -> str:
    return mapping.model_dump_json()


def _finalists(known: list[Candidate], aims: Aims) -> list[Candidate]:
    """The best few, and some along the front of time and memory."""
    on_front = pareto_front([one for one in known if one.figures.peak_bytes <= aims.sram_bytes])
    share = max(1, -(-len(known) // PER_FINALIST))
    count = min(ON_FRONT, share, len(on_front))
    apart = [on_front[int(at)] for at in np.linspace(0, len(on_front) - 1, count)]
    chosen = {_key(one.options): one for one in [*known[: min(FINALISTS, share)], *apart]}
    return list(chosen.values())


def pareto_front(mappings: list[Mapping]) -> tuple[Mapping, ...]:
    """Those of which none is both faster and smaller than another, fastest first."""
    found: list[Mapping] = []
    for one in sorted(mappings, key=lambda one: (one.figures.cycles, one.figures.peak_bytes)):
        if not found or one.figures.peak_bytes < found[-1].figures.peak_bytes:
            found.append(one)
    return tuple(found)


def _why(finished: list[TimedMapping], aims: Aims, candidates: int) -> str:
    """That no mapping keeps to the limits."""
    limits = "".join(f", max {of} {most:g}" for of, most in aims.within)
    said = f"none of {candidates} mappings fits {show_bytes(aims.sram_bytes)} of tile memory{limits}"
    if not finished:
        more = "raise the limit of tiles" if "tiles" in dict(aims.within) else "take a machine with more (chip.tiles)"
        return f"{said}: the layers need more tiles than there are; {more}"
    near = min(finished, key=lambda one: aims.rank(one.figures))
    said += near.code_alone and f": {near.code_alone}"
    if not near.fits and near.figures.peak_bytes <= aims.sram_bytes:
        return (
            f"{said}: code and vertex state of the closest, which needs {near.figures.peak_bytes:,} bytes in all, are "
            "more than tile.executable_bytes; raise that, or lower tile.code_bytes"
        )
    return (
        f"{said}; the closest needs {near.figures.peak_bytes:,} bytes on {near.figures.tiles:,} tiles: raise a limit, "
        "try more --candidates, or lower training.batch or data.timesteps"
    )


# ---- what each change from one mapping to another saved, made one after the other, and where


Spans = Iterable[tuple[str, int]]


@dataclass(frozen=True, kw_only=True)
class Saving:
    """A change, the cycles that it saved after those before it (negative: it cost some), the bytes that it saved on the
    fullest tile, and the superstep that got shorter by most (its cycles before and after; 0: no longer there)."""

    change: str
    cycles: int
    bytes: int
    superstep: str
    before: int
    after: int


def savings(evaluate: Evaluator, first: TimedMapping, last: TimedMapping) -> tuple[Saving, ...]:
    """One for each change that makes a difference; changes that cannot be placed on their own go with the next."""
    steps = list(changes(first.options, last.options, [name for name, *_ in last.shares]))
    timed = evaluate.timings([options for _, options in steps[:-1]])
    found, before, named = [], first, list[str]()
    for (change, _), after in zip(steps, [*timed, last] if steps else [], strict=True):
        named.append(change)
        if after is None:
            continue
        superstep, one, two = most_shortened(before.spans, after.spans)
        saved = before.figures.cycles - after.figures.cycles
        less = before.figures.peak_bytes - after.figures.peak_bytes
        if saved or less:
            found.append(
                Saving(change=", ".join(named), cycles=saved, bytes=less, superstep=superstep, before=one, after=two)
            )
        before, named = after, []
    return tuple(found)


def changes(first: MappingOptions, last: MappingOptions, layers: list[str]) -> Iterator[tuple[str, MappingOptions]]:
    """(what is changed, the options after it and those before it): rules of the program, then options, then splits."""
    now = first
    for rule in sorted(last.rules - first.rules):
        now = now.model_copy(update={"program": tuple(sorted((*now.rules, rule)))})
        yield f'program rule "{rule}"', now
    now = now.model_copy(update={"program": last.program})
    for key in type(first).model_fields:
        if key not in ("split", "program") and getattr(first, key) != getattr(last, key):
            yield f"{key} = {getattr(last, key)}", (now := now.model_copy(update={key: getattr(last, key)}))
    for field in Split.model_fields:  # in the order in which a grid is cut
        split = {name: now.split.get(name, Split()) for name in layers}
        wanted = {name: getattr(last.split.get(name, Split()), field) for name in layers}
        if any(getattr(split[name], field) != wanted[name] for name in layers):
            split = {name: one.model_copy(update={field: wanted[name]}) for name, one in split.items()}
            now = now.model_copy(update={"split": split})
            yield f"{field} {', '.join(f'{name} {each}' for name, each in wanted.items())}", now


def most_shortened(before: Spans, after: Spans) -> tuple[str, int, int]:
    """The superstep that got shorter by most, with its cycles before and after (0: it is gone); those of one name are
    added up."""
    one, two = Counter[str](), Counter[str]()
    for spans, found in ((before, one), (after, two)):
        for name, cycles in spans:
            found[name] += cycles
    name = max(one, key=lambda each: one[each] - two[each], default="")
    return name, one[name], two[name]
