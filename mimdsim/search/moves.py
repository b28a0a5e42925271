"""Steps from one mapping to its neighbours."""

from __future__ import annotations

from typing import get_args

import numpy as np

from mimdsim.search.splits import Space
from mimdsim.workload.mapping import MappingOptions, Rule, Split

FACTORS = (0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)
STATES = (16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
EXPONENTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
GROUPS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
MOVES = ("neurons", "tile", "batch", "trade", "inputs", "replicas", "like", "states", "reduce", "group", "program")
OFTEN = (5, 4, 3, 3, 2, 3, 1, 2, 1, 2, 1)  # how often each is tried


def moved(options: MappingOptions, space: Space, draw: np.random.Generator) -> MappingOptions:
    """A neighbour of a mapping whose layers are all split: one thing changed, of one layer or of all of them."""
    kind = MOVES[int(draw.choice(len(MOVES), p=np.array(OFTEN) / sum(OFTEN)))]
    if kind == "states":
        return options.model_copy(update={"states_per_worker": _near(STATES, options.states_per_worker, draw)})
    if kind == "reduce":
        return options.model_copy(update={"reduce_exponent": _near(EXPONENTS, options.reduce_exponent, draw)})
    if kind == "group":
        return options.model_copy(update={"reduce_group": _near(GROUPS, options.reduce_group, draw)})
    if kind == "program":
        return options.model_copy(update={"program": _rules(options, draw)})
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


def _near(values: tuple[int, ...] | tuple[float, ...], now: float, draw: np.random.Generator) -> int | float:
    """One of the values next to `now`, or the one after it."""
    below = [value for value in values if value < now][-2:]
    above = [value for value in values if value > now][:2]
    others = [*below, *above]
    return others[int(draw.integers(len(others)))] if others else now


def _rules(options: MappingOptions, draw: np.random.Generator) -> tuple[str, ...] | str:
    """The rules of a program with one more or one less."""
    every = get_args(Rule)
    toggled = every[int(draw.integers(len(every)))]
    rules = tuple(rule for rule in every if (rule in options.rules) != (rule == toggled))
    return "best" if len(rules) == len(every) else rules
