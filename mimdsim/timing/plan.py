"""The part of a program's loads that does not depend on spikes: computed once per machine, used for every activity.

Supersteps between two syncs of a chip are a segment; tiles that agree in all of them form one class. A segment without
dependence on spikes is costed completely here. The part independent of the machine too is in `mimdsim.timing.dealing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.machine import MimdMachine
from mimdsim.program import Codelet, Exchange, Program, Superstep, TileFormula
from mimdsim.timing.classes import Dealt, classes_of
from mimdsim.timing.dealing import SuperstepDeal, dealt_program
from mimdsim.timing.extents import Charge


@dataclass(frozen=True, kw_only=True)
class Barrel:
    """The properties of a machine's tiles that compute cycles depend on."""

    contexts: int
    issue_cycles: int
    vector_bytes: int
    arrange_fragment_bundles: float
    copy_bytes_per_cycle: float = 8.0
    compiled_dual_issue: float = 0.0

    @classmethod
    def of(cls, machine: MimdMachine) -> Barrel:
        return cls(
            contexts=machine.tile.worker_contexts,
            issue_cycles=machine.tile.issue_cycles,
            vector_bytes=machine.tile.vector_bytes,
            arrange_fragment_bundles=machine.exchange.arrange_fragment_bundles,
            copy_bytes_per_cycle=machine.tile.copy_bytes_per_cycle,
            compiled_dual_issue=machine.tile.compiled_dual_issue,
        )

    @property
    def working(self) -> int:
        """Contexts that share work spread over them: more than the issue interval would add no throughput."""
        return min(self.contexts, self.issue_cycles)


@dataclass(frozen=True, kw_only=True, eq=False)
class SuperstepPlan:
    """One superstep on a machine: the cycles of its tiles per execution, and its parts.

    fixed float64[tiles]: cycles of library vertices and of arranging rows, and those of workers unless they depend on
    spikes, when `deal.counting` has them. weights: cycles and bundles independent of spikes, per execution, by (what,
    kind of source), counted by `counted_weights`; order: parts in the order in which the tables have them.
    """

    deal: SuperstepDeal
    fixed: np.ndarray
    weights: dict[tuple[str, str], float]
    counted_weights: tuple[tuple[tuple[str, str], Charge], ...]
    order: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A superstep of a segment, by class: the row of its counting, and fixed cycles."""

    index: int
    row: np.ndarray
    fixed: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Moving:
    """Supersteps of one chip without a sync in between, some counting spikes. class_of int64[tiles of the chip]."""

    chip: int
    members: tuple[Member, ...]
    class_of: np.ndarray
    classes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Settled:
    """Such supersteps, but independent of spikes. reached float64[indices]: the longest sum of a tile after each."""

    chip: int
    indices: tuple[int, ...]
    reached: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Stretch:
    """Consecutive supersteps, all in one repeat or in none: their plans, and the segments of every chip."""

    supersteps: tuple[Superstep, ...]
    times: int
    plans: tuple[SuperstepPlan, ...]
    segments: tuple[Moving | Settled, ...]

    def settled(self) -> list[int]:
        """The supersteps that are in no segment that depends on spikes, and that count no spikes otherwise."""
        moving = {one.index for segment in self.segments if isinstance(segment, Moving) for one in segment.members}
        counted = {index for index, plan in enumerate(self.plans) if plan.counted_weights or plan.deal.counted_flops}
        return [index for index in range(len(self.plans)) if index not in moving | counted]


@lru_cache(maxsize=8)
def program_plan(program: Program, barrel: Barrel) -> tuple[Stretch, ...]:
    """The stretches in program order."""
    return tuple(_stretch(program, stretch.body, stretch.times, barrel) for stretch in program.stretches())


def _stretch(program: Program, supersteps: Sequence[Superstep], times: int, barrel: Barrel) -> Stretch:
    deals = dealt_program(program)
    plans = tuple(_plan(superstep, deals[superstep], barrel) for superstep in supersteps)
    segments = []
    for chip in range(program.chips):
        begins = [index for index, plan in enumerate(plans) if plan.deal.synchronised[chip]]
        for first, last in pairwise(sorted({0, *begins, len(plans)})):
            segments.append(_segment(plans, first, last, chip, program.tiles_per_chip))
    return Stretch(supersteps=tuple(supersteps), times=times, plans=plans, segments=tuple(segments))


def _segment(plans: Sequence[SuperstepPlan], first: int, last: int, chip: int, per_chip: int) -> Moving | Settled:
    """The segment of those supersteps first..last-1 that use tiles of the chip."""
    used = [(index, *plans[index].deal.on_chip(chip, per_chip)) for index in range(first, last)]
    used = [(index, own, here) for index, own, here in used if own.start < own.stop]
    if all(plans[index].deal.counting is None for index, _, _ in used):
        total, reached = np.zeros(per_chip), []
        for index, own, here in used:
            total[here] += plans[index].fixed[own]
            reached.append(total.max())
        return Settled(chip=chip, indices=tuple(index for index, _, _ in used), reached=np.array(reached))
    rows, fixed = np.empty((len(used), per_chip), np.int64), np.zeros((len(used), per_chip))
    for row, cycles, (index, own, here) in zip(rows, fixed, used, strict=True):
        counting = plans[index].deal.counting
        row[:] = 0 if counting is None else counting.rows
        if counting is not None:
            row[here] = counting.row_of[own]
        cycles[here] = plans[index].fixed[own]
    class_of, chosen = classes_of(np.vstack([rows, fixed.view(np.int64)]))
    return Moving(
        chip=chip,
        members=tuple(
            Member(index=index, row=row[chosen], fixed=cycles[chosen])
            for (index, _, _), row, cycles in zip(used, rows, fixed, strict=True)
        ),
        class_of=class_of,
        classes=len(chosen),
    )


def _plan(superstep: Superstep, deal: SuperstepDeal, barrel: Barrel) -> SuperstepPlan:
    fixed = np.zeros(deal.tiles)
    weights: dict[tuple[str, str], float] = {}
    counted_weights: list[tuple[tuple[str, str], Charge]] = []
    order: list[tuple[str, str]] = []
    for table, one, own in zip(superstep.tables, deal.dealt, deal.extents, strict=True):
        codelet = table.codelet
        part = (f"codelet {codelet.name}", codelet.cost.kind)
        order.append(part)
        if isinstance(codelet.cost, TileFormula):
            extents = {name: column for name, column in own.items() if isinstance(column, np.ndarray)}
            cost = library_cycles(codelet, extents, barrel)
            np.add.at(fixed, table.tiles - deal.first, cost)
            weights[part] = weights.get(part, 0.0) + float(cost.sum() if cost.ndim else cost * table.vertices)
        elif one is not None:
            weights[part] = weights.get(part, 0.0) + one.total(barrel.compiled_dual_issue)
            counted_weights += [(part, charge) for charge in one.charges]
    if superstep.exchange is not None and superstep.exchange.column("fragments_arranged").any():
        pieces, volume = arranging_parts(superstep.exchange, barrel)
        arranging = (pieces + volume) * barrel.issue_cycles / barrel.working
        np.add.at(fixed, superstep.exchange.tiles[arranging > 0] - deal.first, arranging[arranging > 0])
        part = ("arranging rows", "derived")
        weights[part] = float(arranging.sum())
        order.append(part)
    if deal.counting is None:
        fixed += _constant_cycles([one for one in deal.dealt if one is not None], deal.tiles, barrel)
    return SuperstepPlan(
        deal=deal,
        fixed=fixed,
        weights=weights,
        counted_weights=tuple(counted_weights),
        order=tuple(dict.fromkeys(order)),
    )


def _constant_cycles(dealt: list[Dealt], tiles: int, barrel: Barrel) -> np.ndarray | float:
    """float64[tiles]: cycles of workers whose bundles do not depend on spikes."""
    if not dealt:
        return 0.0
    bundles = np.zeros((tiles, barrel.contexts))
    for one in dealt:
        cell = one.tile * barrel.contexts + one.place % barrel.contexts
        constant = one.constant(barrel.compiled_dual_issue)
        bundles += np.bincount(cell, weights=constant, minlength=bundles.size).reshape(bundles.shape)
    cycles: np.ndarray = np.maximum(barrel.issue_cycles * bundles.max(axis=1), bundles.cumsum(axis=1)[:, -1])
    return cycles


def arranging_parts(exchange: Exchange, barrel: Barrel) -> tuple[np.ndarray, np.ndarray]:
    """float64[taking part], twice: cycles of a tile that issues whenever it can, for the pieces gathered into rows and
    for their bytes."""
    pieces: np.ndarray = exchange.column("fragments_arranged") * barrel.arrange_fragment_bundles
    volume: np.ndarray = exchange.column("bytes_arranged") / barrel.copy_bytes_per_cycle
    return pieces, volume


def library_cycles(codelet: Codelet, extents: dict[str, np.ndarray], barrel: Barrel) -> np.ndarray:
    """float64[vertices]: tile cycles of library vertices, which spread their work over the contexts themselves.

    The vendor's formulas multiply the longest worker by its six contexts; six is also the issue interval there.
    Fewer contexts leave issue slots empty; more than the interval add no throughput, and a library would not start
    them (derived). Raises MappingError if a formula returns something that is not a number, or is negative.
    """
    assert isinstance(codelet.cost, TileFormula)
    cycles = np.asarray(codelet.cost.cycles(extents, barrel.working, barrel.vector_bytes), np.float64)
    if cycles.size and not (np.isfinite(cycles).all() and cycles.min() >= 0):
        wrong = cycles.ravel()[np.argmin(np.where(np.isfinite(cycles), cycles, -np.inf))]
        raise MappingError(f"codelet '{codelet.name}': its cost formula gives {wrong} cycles; correct the formula")
    return cycles * barrel.issue_cycles / barrel.working
