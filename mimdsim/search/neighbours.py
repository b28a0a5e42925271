"""Steps from one mapping to its neighbours: some are drawn, and of what all layers share there is every one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

import numpy as np

from mimdsim.costs.fabric import fabric_of
from mimdsim.graph import Layer
from mimdsim.search.objective import Case
from mimdsim.workload.description.mapping import MappingOptions, Rule, Split

REPLICAS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
STATE_WORK = 12.0  # assumed: bundles of a neuron's state in a timestep, in those of an input spike; only where to begin


def copies_worth_trying(case: Case) -> tuple[int, ...]:
    """Numbers of copies, each with fewer samples on the busiest copy than the one before."""
    batch = case.network.batch
    most = [-(-batch // copies) for copies in range(1, batch + 1)]
    return tuple(copies + 1 for copies, each in enumerate(most) if copies == 0 or each < most[copies - 1])


def _replicas(case: Case) -> tuple[int, ...]:
    return tuple(each for each in REPLICAS if each <= max(6, case.machine.tile.working_contexts))


def clip_split(case: Case, split: dict[str, Split]) -> dict[str, Split]:
    """Within what there is to cut, and on no more tiles than there are: parts of neurons shrink alike."""
    within, room = {}, case.room
    for layer in case.network.layers:
        one = split[layer.name]
        most = {"batch": case.network.batch, "inputs": layer.inputs, "neurons": layer.neurons}
        kept = {key: max(1, min(getattr(one, key), of)) for key, of in most.items()}
        within[layer.name] = one.model_copy(update=kept | {"neurons": even_parts(layer.neurons, kept["neurons"])})
    while (taken := sum(map(tiles_of, within.values()))) > room:
        shrinks = {name: one for name, one in within.items() if one.neurons > 1}
        if not shrinks:
            name = max(within, key=lambda each: (tiles_of(within[each]), each))
            within[name] = within[name].model_copy(update={"batch": max(1, within[name].batch - 1), "inputs": 1})
            if tiles_of(within[name]) == 1 and len(within) > room:
                return within  # no split fits: placing it says so
            continue
        share = room / taken
        for layer, one in zip(case.network.layers, within.values(), strict=True):
            fewer = max(1, min(int(one.neurons * share), one.neurons - 1))
            within[layer.name] = one.model_copy(update={"neurons": even_parts(layer.neurons, fewer)})
    return within


def tiles_of(split: Split) -> int:
    return split.batch * split.inputs * split.neurons


def even_parts(neurons: int, parts: int) -> int:
    """The fewest parts of which the largest is no larger than with `parts`."""
    return -(-neurons // -(-neurons // parts))


def seeds(case: Case) -> Iterator[MappingOptions]:
    """Mappings to begin with: by numbers of copies, tiles shared among layers by their neurons or by their work, and
    fewer tiles than there are."""
    works = _work_shares(case)
    for share in (1.0, 0.5, 0.25):
        for replicas in (1, 2, 6):
            for copies in copies_worth_trying(case):
                if copies > 1 and replicas > -(-case.network.batch // copies):
                    continue
                for work in works:
                    yield _seed_mapping(case, copies, replicas, work, share)


def replicate_layers(case: Case, about: int) -> MappingOptions | None:
    """The first of `seeds` with the number of copies of every layer nearest to `about`; None: only one copy can be, or
    there are too few tiles for so many."""
    copies = min(copies_worth_trying(case), key=lambda one: abs(one - about))
    if copies == 1:
        return None
    found = (one for one in seeds(case) if next(iter(one.split.values())).batch == copies)
    return next(found, None)


def _seed_mapping(case: Case, copies: int, replicas: int, work: np.ndarray, share: float) -> MappingOptions:
    tiles = max(len(work), int(share * case.room) // copies)
    parts = np.maximum(1, (tiles * work / work.sum()).astype(np.int64))
    split = {
        layer.name: Split(batch=copies, neurons=int(each), replicas=replicas)
        for layer, each in zip(case.network.layers, parts, strict=True)
    }
    split = clip_split(case, split)
    group = max(1, round(max(one.inputs * one.neurons for one in split.values()) ** 0.5))  # as many sums in two steps
    return case.options.model_copy(update={"split": split, "program": "best", "reduce_group": group})


def _work_shares(case: Case) -> list[np.ndarray]:
    """Of every layer, how many tiles it should have of all: as it has neurons, or also by the spikes that reach it."""
    neurons = np.array([layer.neurons for layer in case.network.layers], np.float64)
    counts = case.activity.counts
    mean = {name: float(each[..., 1].mean()) for name, each in counts.items()}
    sources = [case.network.terms(layer) for layer in case.network.layers]
    spikes = np.array([sum(mean.get(each.name, 1.0) for each in read) for read in sources])
    return [neurons, neurons * (STATE_WORK + spikes)]


FACTORS = (0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)
LADDERS: dict[str, tuple[float, ...]] = {
    "states_per_worker": (16, 24, 32, 48, 64, 96, 128, 192, 256, 512),
    "reduce_exponent": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "reduce_group": (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96),
}
SPARE = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0)  # tiles, in those that the layers take
STRIPS = (0, 2, 4, 8, 16, 32)  # columns of a strip of tiles, where distance counts
SHARED = ("program", *LADDERS, "tiles", "strip_columns")  # by all layers
MOVES = ("neurons", "tile", "batch", "trade", "inputs", "replicas", "like", *LADDERS, "program")
OFTEN = (5, 4, 3, 3, 2, 3, 1, 2, 1, 2, 1)  # how often each is tried


def random_step(options: MappingOptions, case: Case, draw: np.random.Generator) -> MappingOptions:
    """A neighbour of a mapping whose layers are all split: one thing changed, of one layer or of all of them."""
    kind = MOVES[int(draw.choice(len(MOVES), p=np.array(OFTEN) / sum(OFTEN)))]
    if kind in LADDERS:
        return options.model_copy(update={kind: _draw_near(LADDERS[kind], getattr(options, kind), draw)})
    if kind == "program":
        return _toggle_rule(options, get_args(Rule)[int(draw.integers(len(get_args(Rule))))])
    split = dict(options.split)
    names = [layer.name for layer in case.network.layers]
    every = bool(draw.random() < 0.35)
    chosen = names if every else [names[int(draw.integers(len(names)))]]
    if kind == "like":
        model = split[names[int(draw.integers(len(names)))]]
        split = {
            name: one.model_copy(update={"batch": model.batch, "replicas": model.replicas})
            for name, one in split.items()
        }
    else:
        seed = int(draw.integers(1 << 30))  # every layer makes the same step
        for layer in case.network.layers:
            if layer.name in chosen:
                draws = np.random.default_rng(seed)
                split[layer.name] = _change_split(kind, split[layer.name], layer.neurons, case, draws)
    return options.model_copy(update={"split": clip_split(case, split)})


def _change_split(kind: str, split: Split, neurons: int, case: Case, draw: np.random.Generator) -> Split:
    if kind == "batch":
        return split.model_copy(update={"batch": _draw_near(copies_worth_trying(case), split.batch, draw)})
    if kind == "replicas":
        return split.model_copy(update={"replicas": _draw_near(_replicas(case), split.replicas, draw)})
    if kind == "tile":  # one neuron more or less on a tile
        each = max(1, -(-neurons // split.neurons) + int(draw.choice((-2, -1, 1, 2))))
        return split.model_copy(update={"neurons": -(-neurons // each)})
    if kind == "neurons":
        return split.model_copy(update={"neurons": max(1, round(split.neurons * float(draw.choice(FACTORS))))})
    other = {"trade": "batch", "inputs": "inputs"}[kind]  # parts of one kind for parts of the other
    before = getattr(split, other)
    after = (
        _draw_near(copies_worth_trying(case), before, draw)
        if other == "batch"
        else max(1, before + int(draw.choice((-1, 1, 2))))
    )
    return split.model_copy(update={other: after, "neurons": max(1, round(split.neurons * before / after))})


def _draw_near(values: Sequence[float], now: float, draw: np.random.Generator) -> float:
    """One of the values next to `now`, or the one after it."""
    others = _nearest_values(values, now, 2)
    return others[int(draw.integers(len(others)))] if others else now


def _nearest_values(values: Sequence[float], now: float, count: int) -> list[float]:
    """So many of the values below `now`, and so many above it."""
    return [*[value for value in values if value < now][-count:], *[value for value in values if value > now][:count]]


def _toggle_rule(options: MappingOptions, toggled: str) -> MappingOptions:
    """A mapping whose program has one rule more or less."""
    every = get_args(Rule)
    rules = tuple(rule for rule in every if (rule in options.rules) != (rule == toggled))
    return options.model_copy(update={"program": "best" if len(rules) == len(every) else rules})


def every_step(layer: Layer, options: MappingOptions, case: Case) -> list[MappingOptions]:
    """The neighbours of a mapping by the split of one of its layers; of a layer without one there are none."""
    now = options.split.get(layer.name)
    if now is None:
        return []
    each = -(-layer.neurons // now.neurons)
    changes: list[dict[str, int]] = [{"neurons": -(-layer.neurons // max(1, each + more))} for more in (-2, -1, 1, 2)]
    changes += [{"replicas": int(count)} for count in _nearest_values(_replicas(case), now.replicas, 1)]
    for batch in map(int, _nearest_values(copies_worth_trying(case), now.batch, 1)):
        changes += [{"batch": batch}, {"batch": batch, "neurons": max(1, round(now.neurons * now.batch / batch))}]
    splits = [{**options.split, layer.name: now.model_copy(update=change)} for change in changes]
    return [options.model_copy(update={"split": clip_split(case, split)}) for split in splits]


def every_value(setting: str, options: MappingOptions, case: Case) -> list[MappingOptions]:
    """The neighbours of a mapping by one of `SHARED`, what all its layers share."""
    if setting == "program":
        return [_toggle_rule(options, rule) for rule in get_args(Rule)]
    if setting == "strip_columns":
        near = fabric_of(case.machine).knows_distance
        values: list[float] = [one for one in STRIPS if near and one != options.strip_columns]
    elif setting != "tiles":
        values = _nearest_values(LADDERS[setting], getattr(options, setting), 3)
    elif case.machine.links.chips > 1:
        return []
    else:
        taken = sum(map(tiles_of, options.split.values()))
        values = sorted({options.reserved_tiles + min(case.room, int(taken * share)) for share in SPARE})
    return [options.model_copy(update={setting: value}) for value in values]
