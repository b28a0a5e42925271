"""How weights and sums of gradients cross the links: along trees over chips, of the kind that takes the least time.

Every chip (or group of chips with a copy of a layer) keeps a share of the weights. Its share goes to all others along a
tree of its own, in steps: an all-gather. Partial sums of gradients come back along the same trees, last step first, and
are added on the way: a reduce-scatter. The kinds differ in how far a step reaches:

    direct      one step, each to each
    groups of r each to each in groups of r neighbours, of r such groups, ..., far ones first: few steps; recursive
                halving and doubling for r = 2
    neighbours  an edge takes one share in each direction in a step, to a chip that lacks it: most steps, fewest bytes
                (on a ring that of neighbours in both directions; the matching of shares and edges is greedy, as in
                W. Won et al., "TACOS", arXiv 2304.05301)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby

import numpy as np

from mimdsim.costs.chip_links import link_phase_seconds
from mimdsim.machine import MimdMachine
from mimdsim.machine.topology import topology_graph
from mimdsim.program import Relay

GROUPS = (2, 4, 8)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trees:
    """One tree for every member as its root. parent int64[members, members]: from whom member `column` gets the share
    of the root `row`; step: in which step, from 1 on (the root: itself, 0)."""

    kind: str
    parent: np.ndarray
    step: np.ndarray

    @property
    def members(self) -> int:
        return len(self.parent)

    @cached_property
    def steps(self) -> int:
        return int(self.step.max(initial=0))

    @cached_property
    def order(self) -> np.ndarray:
        """int64[members, members]: members in the order in which they get the share of the root `row`, so that those
        that get it from the same one in a step are side by side."""
        order: np.ndarray = np.lexsort((self.parent, self.step), axis=1)
        return order

    @cached_property
    def passed_on(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """(root, member, first, last) by step: who passes on the share of which root, and to whom in `order`."""
        found: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        for root, order in enumerate(self.order):
            by = list(zip(self.step[root, order].tolist(), self.parent[root, order].tolist(), strict=True))
            for (step, giver), alike in groupby(range(self.members), by.__getitem__):
                first, *others = alike
                found[step].append((root, giver, first, first + 1 + len(others)))
        return found

    def seconds(self, groups: np.ndarray, nbytes: int, machine: MimdMachine) -> float:
        """Of all shares of so many bytes together, by the closed form of links and a barrier for each step; groups
        int64[members, chips of each]."""
        barrier = machine.barrier_cycles(all_chips=True) / machine.chip.clock_hz
        found = 0.0
        for step in range(1, self.steps + 1):
            root, member = np.nonzero(self.step == step)
            traffic = np.zeros((machine.links.chips,) * 2, np.int64)
            each = -(-nbytes // groups.size)
            for giver, taker in zip(groups[self.parent[root, member]].T, groups[member].T, strict=True):
                np.add.at(traffic, (giver, taker), each)
            found += barrier + link_phase_seconds(traffic, machine.links)
        return found

    def relay(self, groups: np.ndarray, chips: int) -> Relay:
        """How a copy to all members travels, over so many chips of a program."""
        parent, step = np.full((chips, chips), -1), np.zeros((chips, chips), np.int64)
        for along in groups.T:
            parent[np.ix_(along, along)] = along[self.parent]
            step[np.ix_(along, along)] = self.step
        return Relay(parent=_rows(parent), step=_rows(step))


def _rows(matrix: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, matrix.tolist()))


def best_trees(groups: np.ndarray, nbytes: int, machine: MimdMachine) -> Trees:
    """Those by which shares of so many bytes together reach all members soonest; the first of several.

    groups int64[members, chips of each].
    """
    members = len(groups)
    kinds = [direct(members)]
    if members == 1:  # no machine makes another choice, so none is asked
        return kinds[0]
    graph = topology_graph(machine.links)
    for size in GROUPS:
        power = size
        while power < members:
            power *= size
        if size < members == power:
            kinds.append(in_groups(members, size))
    place = {chip: number for number, chip in enumerate(groups[:, 0].tolist())}
    near = tuple(tuple(sorted(place[other] for other in graph[chip] if other in place)) for chip in place)
    if (made := by_neighbours(near)) is not None:
        kinds.append(made)
    return min(kinds, key=lambda kind: kind.seconds(groups, nbytes, machine))


@lru_cache(maxsize=64)
def direct(members: int) -> Trees:
    """Each to each, in one step."""
    root = np.arange(members)[:, None]
    return Trees(
        kind="direct",
        parent=np.broadcast_to(root, (members, members)).copy(),
        step=(root != root.T).astype(np.int64),
    )


@lru_cache(maxsize=64)
def in_groups(members: int, size: int) -> Trees:
    """`members` must be a power of `size`; neighbours have numbers that follow each other."""
    number = np.arange(members)
    parent, step = np.tile(number[:, None], (1, members)), np.zeros((members, members), np.int64)
    span, now = members, 0
    while span > 1:
        span, now = span // size, now + 1
        # whose last digits, those below `span`, are still the root's gets its share from the one with the root's digit
        at_root, here = number[:, None] // span, number[None, :] // span
        reached = number[:, None] % span == number[None, :] % span
        giver = (here // size * size + at_root % size) * span + number[None, :] % span
        new = reached & (step == 0) & (number[:, None] != number[None, :])
        parent, step = np.where(new, giver, parent), np.where(new, now, step)
    return Trees(kind=f"groups of {size}", parent=parent, step=step)


@lru_cache(maxsize=64)
def by_neighbours(near: tuple[tuple[int, ...], ...]) -> Trees | None:
    """Over edges from each member to its neighbours; None: there are too few to reach all."""
    edges = [(giver, taker) for giver, others in enumerate(near) for taker in others]
    members = len(near)
    has = np.eye(members, dtype=bool)  # member, root
    parent, step = np.tile(np.arange(members)[:, None], (1, members)), np.zeros((members, members), np.int64)
    now = 0
    while not has.all():
        now += 1
        after, holders = has.copy(), has.sum(axis=0)
        # takers with few edges first, then those that have least
        for giver, taker in sorted(edges, key=lambda edge: (len(near[edge[1]]), has[edge[1]].sum(), edge)):
            lacking = np.flatnonzero(has[giver] & ~after[taker])
            if len(lacking):
                others = has[list(near[taker])][:, lacking].sum(axis=0)
                root = lacking[np.lexsort(((lacking - taker) % members, holders[lacking], others))[0]]
                after[taker, root], parent[root, taker], step[root, taker] = True, giver, now
                holders[root] += 1
        if (after == has).all():
            return None
        has = after
    return Trees(kind="neighbours", parent=parent, step=step)
