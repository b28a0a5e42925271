"""Input gradients, their sums over the tiles of a group and over groups, in one pass with the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.functional.shares import aligned
from mimdsim.functional.shortcuts import Instead, Memory, undisturbed, uses_of
from mimdsim.functional.uses import Uses
from mimdsim.numerics.fused import gradients as kernels
from mimdsim.numerics.fused.vectors import GROUPS
from mimdsim.numerics.lists import spikes
from mimdsim.program import Shortcut

MOST_PADDING = 3.0  # lanes of a spread row per neuron; beyond, tiles one after another are as fast
COMPUTES = (spikes.input_gradient, spikes.reduce_parts, spikes.reduce_groups)


@dataclass(frozen=True, kw_only=True, eq=False)
class Grouping:
    """Neurons as [bands, parts of a group, numbers of a part, GROUPS], a lane per group; where[n]: a neuron's place."""

    where: np.ndarray
    parts: int
    numbers: int
    lanes: int
    groups: int

    @classmethod
    def of(cls, starts: np.ndarray, stops: np.ndarray, group: np.ndarray) -> Grouping:
        """Of parts of neurons, in groups."""
        of_group = np.bincount(group)
        first = np.concatenate([[0], np.cumsum(of_group)[:-1]])  # part of each group
        parts, numbers, groups = int(of_group.max()), int((stops - starts).max()), len(of_group)
        owner = np.repeat(np.arange(len(starts)), stops - starts)
        within, number = owner - first[group[owner]], np.arange(int(stops[-1])) - starts[owner]
        band = group[owner] // GROUPS * parts + within
        return cls(
            where=(band * numbers + number) * GROUPS + group[owner] % GROUPS,
            parts=parts,
            numbers=numbers,
            lanes=-(-groups // GROUPS) * GROUPS,
            groups=groups,
        )

    @property
    def width(self) -> int:
        return self.parts * self.numbers * self.lanes


def take_input_gradient(uses: Uses, memory: Memory, shortcut: Shortcut, instead: Instead) -> None:
    """Weights spread by groups before the repeat; then, in every turn, everything at the place of the last table."""
    known = uses_of(uses, shortcut, COMPUTES)
    first, *sums, last = shortcut.tables
    if known is None or not undisturbed(uses, known) or uses.written_in(first.operands["w"], known[0].repeat):
        return
    grouping = Grouping.of(*(shortcut.numbers[name] for name in ("starts", "stops", "group")))
    w, q, ids, counts = (first.operands[name] for name in ("w", "q", "ids", "counts"))
    inputs, neurons = uses.program.variables[w].shape
    if grouping.width > MOST_PADDING * neurons:
        return
    batch = uses.program.variables[q].shape[0]
    weights, adjoints = aligned((inputs, grouping.width)), aligned((batch, grouping.width))
    most = batch * uses.program.variables[ids].shape[1]
    columns = np.zeros(inputs + 1, np.int64)
    sample, slot = np.zeros(most, np.int64), np.zeros(most, np.int64)
    g, arrays = last.operands["g"], memory.arrays

    def before(_t: int) -> None:
        kernels.spread_groups(arrays[w], grouping.where, weights)

    def call(_t: int) -> None:
        kernels.spread_groups(arrays[q], grouping.where, adjoints)
        listed = kernels.order_by_id(arrays[ids], arrays[counts], columns, sample, slot)
        given: tuple[Any, ...] = (arrays[g], weights, adjoints, arrays[ids], sample, slot)
        form = (grouping.parts, grouping.numbers, grouping.groups)
        compute: Any = kernels.input_gradient
        memory.share(listed, lambda begin, end: compute(*given, form, begin, end))

    instead.calls |= {id(table): None for table in (first, *sums)} | {id(last): call}
    instead.before.setdefault(id(known[0].repeat), []).append(before)
