"""Splits of the layers of a network that fit a machine's tiles, and the first ones that a search tries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mimdsim.search.problem import Case
from mimdsim.workload.description.mapping import MappingOptions, Split

REPLICAS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
STATE_WORK = 12.0  # assumed: bundles of a neuron's state in a timestep, in those of an input spike; only where to begin


@dataclass(frozen=True, kw_only=True)
class Space:
    """What splits are of: layers as (name, inputs, neurons), the batch, tiles for all of them, chips,
    contexts of a tile."""

    layers: tuple[tuple[str, int, int], ...]
    batch: int
    room: int
    chips: int
    contexts: int

    @classmethod
    def of(cls, case: Case) -> Space:
        machine = case.machine
        return cls(
            layers=tuple((layer.name, layer.inputs, layer.neurons) for layer in case.network.layers),
            batch=case.network.batch,
            room=case.room,
            chips=machine.links.chips,
            contexts=machine.tile.working_contexts,
        )

    @property
    def ladder(self) -> tuple[int, ...]:
        """Numbers of copies worth trying: each with fewer samples on the busiest copy than the one before."""
        most = [-(-self.batch // copies) for copies in range(1, self.batch + 1)]
        return tuple(copies + 1 for copies, each in enumerate(most) if copies == 0 or each < most[copies - 1])

    @property
    def replicas(self) -> tuple[int, ...]:
        return tuple(each for each in REPLICAS if each <= max(6, self.contexts))

    def bounded(self, split: dict[str, Split]) -> dict[str, Split]:
        """Within what there is to cut, and on no more tiles than there are: parts of neurons shrink alike."""
        within = {}
        for name, inputs, neurons in self.layers:
            one = split[name]
            most = {"batch": self.batch, "inputs": inputs, "neurons": neurons}
            kept = {key: max(1, min(getattr(one, key), of)) for key, of in most.items()}
            within[name] = one.model_copy(update=kept | {"neurons": even_parts(neurons, kept["neurons"])})
        while (taken := sum(map(tiles_of, within.values()))) > self.room:
            shrinks = {name: one for name, one in within.items() if one.neurons > 1}
            if not shrinks:
                name = max(within, key=lambda each: (tiles_of(within[each]), each))
                within[name] = within[name].model_copy(update={"batch": max(1, within[name].batch - 1), "inputs": 1})
                if tiles_of(within[name]) == 1 and len(within) > self.room:
                    return within  # no split fits: placing it says so
                continue
            share = self.room / taken
            for (name, _, neurons), one in zip(self.layers, within.values(), strict=True):
                fewer = max(1, min(int(one.neurons * share), one.neurons - 1))
                within[name] = one.model_copy(update={"neurons": even_parts(neurons, fewer)})
        return within


def tiles_of(split: Split) -> int:
    return split.batch * split.inputs * split.neurons


def even_parts(neurons: int, parts: int) -> int:
    """The fewest parts of which the largest is no larger than with `parts`."""
    return -(-neurons // -(-neurons // parts))


def seeds(case: Case, space: Space) -> Iterator[MappingOptions]:
    """Mappings to begin with: by numbers of copies, tiles shared among layers by their neurons or by their work, and
    fewer tiles than there are."""
    works = _works(case)
    for share in (1.0, 0.5, 0.25):
        for replicas in (1, 2, 6):
            for copies in space.ladder:
                if copies > 1 and replicas > -(-space.batch // copies):
                    continue
                for work in works:
                    yield _seed(case, space, copies, replicas, work, share)


def copied(case: Case, about: int) -> MappingOptions | None:
    """The first of `seeds` with the number of copies of every layer nearest to `about`; None: only one copy can be, or
    there are too few tiles for so many."""
    space = Space.of(case)
    copies = min(space.ladder, key=lambda one: abs(one - about))
    if copies == 1:
        return None
    found = (one for one in seeds(case, space) if next(iter(one.split.values())).batch == copies)
    return next(found, None)


def _seed(case: Case, space: Space, copies: int, replicas: int, work: np.ndarray, share: float) -> MappingOptions:
    tiles = max(len(work), int(share * space.room) // copies)
    parts = np.maximum(1, (tiles * work / work.sum()).astype(np.int64))
    split = {
        name: Split(batch=copies, neurons=int(each), replicas=replicas)
        for (name, _, _), each in zip(space.layers, parts, strict=True)
    }
    bounded = space.bounded(split)
    group = max(1, round(max(one.inputs * one.neurons for one in bounded.values()) ** 0.5))  # as many sums in two steps
    return case.options.model_copy(update={"split": bounded, "program": "best", "reduce_group": group})


def _works(case: Case) -> list[np.ndarray]:
    """Of every layer, how many tiles it should have of all: as it has neurons, or also by the spikes that reach it."""
    neurons = np.array([layer.neurons for layer in case.network.layers], np.float64)
    sources = ["input", *(layer.name for layer in case.network.layers[:-1])]
    counts = case.activity.counts
    spikes = np.array([counts[name][..., 1].mean() if name in counts else 1.0 for name in sources])
    return [neurons, neurons * (STATE_WORK + spikes)]
