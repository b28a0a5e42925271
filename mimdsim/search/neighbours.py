"""Steps from one mapping to its neighbours: some are drawn, and of what all layers share there is every one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np

from mimdsim.search.splits import Space, tiles_of
from mimdsim.workload.description.mapping import MappingOptions, Rule, Split

FACTORS = (0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)
LADDERS: dict[str, tuple[float, ...]] = {
    "states_per_worker": (16, 24, 32, 48, 64, 96, 128, 192, 256, 512),
    "reduce_exponent": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "reduce_group": (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96),
}
SPARE = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0)  # tiles, in those that the layers take
SHARED = ("program", *LADDERS, "tiles")  # by all layers
MOVES = ("neurons", "tile", "batch", "trade", "inputs", "replicas", "like", *LADDERS, "program")
OFTEN = (5, 4, 3, 3, 2, 3, 1, 2, 1, 2, 1)  # how often each is tried


def moved(options: MappingOptions, space: Space, draw: np.random.Generator) -> MappingOptions:
    """A neighbour of a mapping whose layers are all split: one thing changed, of one layer or of all of them."""
    kind = MOVES[int(draw.choice(len(MOVES), p=np.array(OFTEN) / sum(OFTEN)))]
    if kind in LADDERS:
        return options.model_copy(update={kind: _near(LADDERS[kind], getattr(options, kind), draw)})
    if kind == "program":
        return _toggled(options, get_args(Rule)[int(draw.integers(len(get_args(Rule))))])
    split = dict(options.split)
    names = [name for name, _, _ in space.layers]
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
        for name, _, neurons in space.layers:
            if name in chosen:
                split[name] = _changed(kind, split[name], neurons, space, np.random.default_rng(seed))
    return options.model_copy(update={"split": space.bounded(split)})


def _changed(kind: str, split: Split, neurons: int, space: Space, draw: np.random.Generator) -> Split:
    if kind == "batch":
        return split.model_copy(update={"batch": _near(space.ladder, split.batch, draw)})
    if kind == "replicas":
        return split.model_copy(update={"replicas": _near(space.replicas, split.replicas, draw)})
    if kind == "tile":  # one neuron more or less on a tile
        each = max(1, -(-neurons // split.neurons) + int(draw.choice((-2, -1, 1, 2))))
        return split.model_copy(update={"neurons": -(-neurons // each)})
    if kind == "neurons":
        return split.model_copy(update={"neurons": max(1, round(split.neurons * float(draw.choice(FACTORS))))})
    other = {"trade": "batch", "inputs": "inputs"}[kind]  # parts of one kind for parts of the other
    before = getattr(split, other)
    after = _near(space.ladder, before, draw) if other == "batch" else max(1, before + int(draw.choice((-1, 1, 2))))
    return split.model_copy(update={other: after, "neurons": max(1, round(split.neurons * before / after))})


def _near(values: Sequence[float], now: float, draw: np.random.Generator) -> float:
    """One of the values next to `now`, or the one after it."""
    others = _beside(values, now, 2)
    return others[int(draw.integers(len(others)))] if others else now


def _beside(values: Sequence[float], now: float, count: int) -> list[float]:
    """So many of the values below `now`, and so many above it."""
    return [*[value for value in values if value < now][-count:], *[value for value in values if value > now][:count]]


def _toggled(options: MappingOptions, toggled: str) -> MappingOptions:
    """A mapping whose program has one rule more or less."""
    every = get_args(Rule)
    rules = tuple(rule for rule in every if (rule in options.rules) != (rule == toggled))
    return options.model_copy(update={"program": "best" if len(rules) == len(every) else rules})


def every_step(layer: str, options: MappingOptions, space: Space) -> list[MappingOptions]:
    """The neighbours of a mapping by the split of one of its layers; of a layer without one there are none."""
    (neurons,) = (count for name, _, count in space.layers if name == layer)
    now = options.split.get(layer)
    if now is None:
        return []
    each = -(-neurons // now.neurons)
    changes: list[dict[str, int]] = [{"neurons": -(-neurons // max(1, each + more))} for more in (-2, -1, 1, 2)]
    changes += [{"replicas": int(count)} for count in _beside(space.replicas, now.replicas, 1)]
    for batch in map(int, _beside(space.ladder, now.batch, 1)):
        changes += [{"batch": batch}, {"batch": batch, "neurons": max(1, round(now.neurons * now.batch / batch))}]
    made = [{**options.split, layer: now.model_copy(update=change)} for change in changes]
    return [options.model_copy(update={"split": space.bounded(split)}) for split in made]


def every_value(setting: str, options: MappingOptions, space: Space) -> list[MappingOptions]:
    """The neighbours of a mapping by one of `SHARED`, what all its layers share."""
    if setting == "program":
        return [_toggled(options, rule) for rule in get_args(Rule)]
    if setting != "tiles":
        values = _beside(LADDERS[setting], getattr(options, setting), 3)
    elif space.chips > 1:
        return []
    else:
        taken = sum(map(tiles_of, options.split.values()))
        values = sorted({options.reserved_tiles + min(space.room, int(taken * share)) for share in SPARE})
    return [options.model_copy(update={setting: value}) for value in values]
