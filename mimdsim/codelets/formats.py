"""Codelets on numbers of two bytes: half values, and ids and counts as uint16.

The records of codelets assume four bytes per number. This file says how two bytes change their cost; they still
compute in float32 (`Variable.stored_bytes`), and what they write is rounded (`execution/execute.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets import dense, fan_in, losses, neurons, recurrence_and_bias, spikes, training, truncation
from mimdsim.codelets.vertex_overhead import SUBWORD_STORE_BUNDLES, SUBWORD_STORE_SOURCE
from mimdsim.numerics.optimisers import FORMS
from mimdsim.program import Codelet, Length, Term, TileFormula, WorkerBundles
from mimdsim.program.loop_extents import Extent

# A surrogate in half: threshold, state, incoming gradient and adjoint are converted to float, the sum back to half;
# division is a float operation (PopLibs operation tables).
SURROGATE_CONVERSIONS = 5


@dataclass(frozen=True, kw_only=True)
class Change:
    """The cost that two bytes add to a C++ vertex: bundles per vertex, terms, and why. times: factor of its loops."""

    why: str
    fixed: float = 0.0
    more: tuple[Term, ...] = ()
    times: float = 1.0


_SURROGATE = f"half: {SURROGATE_CONVERSIONS} conversions per surrogate, {SUBWORD_STORE_SOURCE}"
_AN_ID = f"ids of two bytes: for every id {SUBWORD_STORE_SOURCE}"

# 64-bit loads and adds take four halves instead of two floats: `pairs` become `quads`. The end of the LIF update
# keeps its bundles per neuron (two halves make the word it stores).
HALF = {
    neurons.LIF_UPDATE.name: Change(why="half: a quad where a pair was"),
    neurons.LIF_UPDATE_DENSE.name: Change(why="half: a quad where a pair was"),
    recurrence_and_bias.SYNAPSE_CURRENT.name: Change(why="half: a quad where a pair was"),
    recurrence_and_bias.SYNAPSE_CURRENT_DENSE.name: Change(why="half: a quad where a pair was"),
    recurrence_and_bias.SELF_SYNAPSE.name: Change(
        more=(Term(bundles=SUBWORD_STORE_BUNDLES, extents=("hits",)),),
        why=f"half: per spike of the tile's neurons {SUBWORD_STORE_SOURCE}",
    ),
    recurrence_and_bias.SELF_WEIGHT_GRADIENT.name: Change(
        more=(Term(bundles=SUBWORD_STORE_BUNDLES, extents=("hits",)),),
        why=f"half: per spike of the tile's neurons {SUBWORD_STORE_SOURCE}",
    ),
    recurrence_and_bias.SELF_INPUT_GRADIENT.name: Change(
        more=(Term(bundles=SUBWORD_STORE_BUNDLES, extents=("listed",)),), why=f"half: per id {SUBWORD_STORE_SOURCE}"
    ),
    recurrence_and_bias.BIAS_GRADIENT.name: Change(why="half: a quad where a pair was"),
    neurons.STATE_GRADIENT.name: Change(
        more=(Term(bundles=SURROGATE_CONVERSIONS + SUBWORD_STORE_BUNDLES, extents=("hits",)),), why=_SURROGATE
    ),
    neurons.STATE_GRADIENT_ROW.name: Change(
        more=(Term(bundles=SURROGATE_CONVERSIONS + SUBWORD_STORE_BUNDLES, extents=("listed",)),), why=_SURROGATE
    ),
    spikes.WEIGHT_GRADIENT.name: Change(why="half: a quad where a pair was"),
    spikes.INPUT_GRADIENT.name: Change(
        more=(
            Term(bundles=2, extents=("listed", "quads")),  # two more lanes to add up
            Term(bundles=SUBWORD_STORE_BUNDLES, extents=("listed",)),
        ),
        why=f"half: a quad where a pair was, 2 to add up its lanes, per id {SUBWORD_STORE_SOURCE}",
    ),
    neurons.ADJOINT_ROWS.name: Change(why="half: a quad where a pair was"),
    neurons.MASKED_ADJOINT_ROWS.name: Change(why="half: a quad where a pair was"),
    fan_in.SYNAPSE_CURRENT_PART.name: Change(why="half: a quad where a pair was"),
    fan_in.WEIGHT_GRADIENT_PART.name: Change(why="half: a quad where a pair was"),
    fan_in.INPUT_GRADIENT_PART.name: Change(
        more=(
            Term(bundles=2, extents=("hits", "quads")),
            Term(bundles=SUBWORD_STORE_BUNDLES, extents=("listed",)),
        ),
        why=f"half: a quad where a pair was, 2 to add up its lanes, per id {SUBWORD_STORE_SOURCE}",
    ),
    spikes.REDUCE_PARTS.name: Change(
        times=0.5,
        fixed=2 + SUBWORD_STORE_BUNDLES,
        why=f"half: four parts a load and add, 2 to add up the lanes, {SUBWORD_STORE_SOURCE}",
    ),
    losses.CROSS_ENTROPY.name: Change(
        more=(Term(bundles=1 + SUBWORD_STORE_BUNDLES, extents=("classes",)),),
        why=f"half: per class a conversion and {SUBWORD_STORE_SOURCE}",
    ),
    losses.LIST_COUNT_GRADIENT.name: Change(
        more=(Term(bundles=SUBWORD_STORE_BUNDLES, extents=("timesteps", "capacity")),),
        why=f"half: per slot {SUBWORD_STORE_SOURCE}",
    ),
}
_PER_HIT = Change(more=(Term(bundles=SUBWORD_STORE_BUNDLES, extents=("hits",)),), why=_AN_ID)
_PER_LISTED = Change(
    fixed=2 * SUBWORD_STORE_BUNDLES,  # both counts
    more=(Term(bundles=SUBWORD_STORE_BUNDLES, extents=("listed",)),),
    why=_AN_ID,
)
for _name in (losses.LIST_LAST_GRADIENT.name, losses.LISTED_OF.name):
    HALF[_name] = HALF[losses.LIST_COUNT_GRADIENT.name]
_POOLS = [losses.pool_codelet(what, by_timestep).name for what, by_timestep in losses.POOLS]
for _name, _loops in (
    (losses.CROSS_ENTROPY_BY_TIMESTEP.name, ("timesteps", "classes")),
    (losses.MEAN_CROSS_ENTROPY_BY_TIMESTEP.name, ("timesteps", "classes")),
    (losses.SQUARED_ERROR.name, ("classes",)),
    *((name, ("elements",)) for name in _POOLS),
):
    HALF[_name] = Change(
        more=(Term(bundles=1 + SUBWORD_STORE_BUNDLES, extents=_loops),),
        why=f"half: per element a conversion and {SUBWORD_STORE_SOURCE}",
    )
SHORT_IDS = {
    spikes.SCAN_FLAGS.name: _PER_HIT,
    spikes.COMBINE_WORKERS.name: _PER_HIT,
    spikes.COMBINE_TILES.name: _PER_LISTED,
    truncation.SCAN_FLAGS_FROM.name: _PER_HIT,
    truncation.COMBINE_WORKERS_FROM.name: _PER_HIT,
    truncation.COMBINE_TILES_FROM.name: _PER_LISTED,
}
# library vertices: the formula for any number of bytes per element, by the formula for four
_FORMULAS: tuple[Callable[[int], TileFormula], ...] = (
    *(partial(training.update_formula, each, rate) for each in FORMS.values() for rate in (False, True)),
    dense.slice_formula,
    dense.fill_formula,
    dense.copy_formula,
    dense.sum_formula,
    neurons.scale_formula,
    neurons.masked_scale_formula,
    recurrence_and_bias.bias_formula,
    recurrence_and_bias.add_formula,
    spikes.reduce_groups_formula,
    training.sgd_formula,
    training.adam_formula,
    training.squares_formula,
    training.scale_all_formula,
    *losses.STREAM_FORMULAS,
)
FORMULAS = {formula(4): formula for formula in _FORMULAS}


@lru_cache(maxsize=512)
def in_format(
    codelet: Codelet, *, id_bytes: int, value_bytes: int, moved_bytes: int, kept_bytes: int | None = None
) -> Codelet:
    """The codelet for ids of `id_bytes` and values of `value_bytes`; the same one if nothing changes.

    Library vertices depend on `moved_bytes`, per element of the variable they work on: raises MappingError if there is
    no cost for these. kept_bytes: per element of the state that an update keeps of earlier gradients, if any.
    """
    cost = codelet.cost
    if isinstance(cost, TileFormula):
        if moved_bytes == 4:
            return codelet
        if cost not in FORMULAS:
            raise MappingError(f"codelet '{codelet.name}' has no cost for elements of {moved_bytes} byte(s)")
        if kept_bytes == 4:
            return replace(codelet, name=f"{codelet.name}<half, moments float>", cost=_in_floats(cost))
        return replace(codelet, name=f"{codelet.name}<{moved_bytes} bytes>", cost=FORMULAS[cost](moved_bytes))
    if value_bytes == 2 and codelet.name in HALF:
        cost = _changed(cost, HALF[codelet.name])
        return replace(codelet, name=f"{codelet.name}<half>", cost=cost, extents=_in_quads(codelet.extents))
    if id_bytes == 2 and codelet.name in SHORT_IDS:
        return replace(codelet, name=f"{codelet.name}<short ids>", cost=_changed(cost, SHORT_IDS[codelet.name]))
    return codelet


@lru_cache(maxsize=16)
def _in_floats(cost: TileFormula) -> TileFormula:
    """An update of halves whose moments are floats: as for floats, with weight and gradient converted on the way."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        pairs = -(-np.asarray(extents["elements"]) // (2 * worker_contexts))
        return cost.cycles(extents, worker_contexts, vector_bytes) + 3 * worker_contexts * pairs

    source = f"{cost.source}; 3 conversions per pair: weight and gradient to float, the weight back"
    return replace(cost, cycles=cycles, kind="derived", source=source)


def _in_quads(extents: Mapping[str, Extent]) -> dict[str, Extent]:
    """Four halves per turn instead of two floats."""
    changed = dict(extents)
    pairs = changed.pop("pairs", None)
    if isinstance(pairs, Length):
        changed["quads"] = replace(pairs, per=2 * pairs.per)
    return changed


def _changed(cost: WorkerBundles, change: Change) -> WorkerBundles:
    terms = tuple(
        Term(
            bundles=change.times * term.bundles,
            extents=tuple("quads" if name == "pairs" else name for name in term.extents),
            pairable=change.times * term.pairable,
        )
        for term in cost.terms
    )
    return WorkerBundles(
        fixed=cost.fixed + change.fixed,
        terms=terms + change.more,
        kind=cost.kind,
        source=f"{cost.source}; {change.why}",
    )
