"""Codelets on numbers of two bytes: half values and bfloat16, and ids and counts as uint16; and on weights in a format
of their own.

The records of codelets assume four bytes per number. This file says how two bytes change their cost; they still
compute in float32 (`Variable.stored_bytes`), and what they write is rounded (`execution/execute.py`).

Cores that compute with bfloat16 (`costs.core.bfloat16`) take the loops of halves. Others, "colossus" among them,
convert what they load and store, and compute with float32, two where there are four halves: terms that say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets import losses, neurons, recurrence_and_bias, spikes
from mimdsim.codelets.vertex_costs import FORMULAS, SUBWORD_STORE, SUBWORD_STORE_SOURCE
from mimdsim.costs.core_costs import NARROWED, WIDENED, instructions_of, vectors_of_fields
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.program import Codelet, Length, Size, Term, TileFormula, WorkerBundles, terms_of
from mimdsim.program.codelet import Counted
from mimdsim.program.loops import Extent, Mix

# A surrogate in half: threshold, state, incoming gradient and adjoint are converted to float, the sum back to half;
# division is a float operation (PopLibs operation tables).
SURROGATE_CONVERSIONS = Mix(add=5)


@dataclass(frozen=True, kw_only=True)
class Change:
    """The cost that two bytes add to a C++ vertex: why, bundles per vertex, and per turn of a loop nest as in
    `terms_of`. times: factor of its loops."""

    why: str
    more: Mapping[str, Counted] = field(default_factory=dict)
    fixed: float = 0.0
    times: float = 1.0


def _of(change: Change, *codelets: Codelet) -> dict[str, Change]:
    return {codelet.name: change for codelet in codelets}


_STORE = SUBWORD_STORE
_CONVERTED = Mix(add=1) + _STORE
_SURROGATE = f"half: {SURROGATE_CONVERSIONS.bundles} conversions per surrogate, {SUBWORD_STORE_SOURCE}"
_A_HIT = f"half: per spike of the tile's neurons {SUBWORD_STORE_SOURCE}"
_LANES = f"half: a quad where a pair was, 2 to add up its lanes, per id {SUBWORD_STORE_SOURCE}"
_A_CLASS = f"half: per class a conversion and {SUBWORD_STORE_SOURCE}"
_AN_ELEMENT = f"half: per element a conversion and {SUBWORD_STORE_SOURCE}"
_AN_ID = f"ids of two bytes: for every id {SUBWORD_STORE_SOURCE}"
_POOLS = (losses.pool_codelet(what, by_timestep) for what in losses.POOLS for by_timestep in (False, True))

# 64-bit loads and adds take four halves instead of two floats: `pairs` become `quads`. The end of the LIF update
# keeps its bundles per neuron (two halves make the word it stores).
HALF = {
    **_of(
        Change(why="half: a quad where a pair was"),
        *(neurons.LIF_UPDATE, neurons.LIF_UPDATE_DENSE, neurons.ADJOINT_ROWS, neurons.MASKED_ADJOINT_ROWS),
        *(recurrence_and_bias.SYNAPSE_CURRENT, recurrence_and_bias.SYNAPSE_CURRENT_DENSE),
        *(recurrence_and_bias.BIAS_GRADIENT, spikes.WEIGHT_GRADIENT),
        *(spikes.SYNAPSE_CURRENT_PART, spikes.WEIGHT_GRADIENT_PART),
    ),
    **_of(
        Change(more={"hits": _STORE}, why=_A_HIT),
        *(recurrence_and_bias.SELF_SYNAPSE, recurrence_and_bias.SELF_WEIGHT_GRADIENT),
    ),
    **_of(
        Change(more={"listed": _STORE}, why=f"half: per id {SUBWORD_STORE_SOURCE}"),
        recurrence_and_bias.SELF_INPUT_GRADIENT,
    ),
    **_of(Change(more={"hits": SURROGATE_CONVERSIONS + _STORE}, why=_SURROGATE), neurons.STATE_GRADIENT),
    **_of(Change(more={"listed": SURROGATE_CONVERSIONS + _STORE}, why=_SURROGATE), neurons.STATE_GRADIENT_ROW),
    **_of(Change(more={"listed quads": Mix(add=2), "listed": _STORE}, why=_LANES), spikes.INPUT_GRADIENT),
    **_of(Change(more={"hits quads": Mix(add=2), "listed": _STORE}, why=_LANES), spikes.INPUT_GRADIENT_PART),
    **_of(
        Change(
            times=0.5,
            fixed=2 + _STORE.bundles,
            why=f"half: four parts a load and add, 2 to add up the lanes, {SUBWORD_STORE_SOURCE}",
        ),
        spikes.REDUCE_PARTS,
    ),
    **_of(Change(more={"classes": _CONVERTED}, why=_A_CLASS), losses.CROSS_ENTROPY),
    **_of(Change(more={"classes": _CONVERTED}, why=_AN_ELEMENT), losses.SQUARED_ERROR),
    **_of(
        Change(more={"timesteps classes": _CONVERTED}, why=_AN_ELEMENT),
        *(losses.CROSS_ENTROPY_BY_TIMESTEP, losses.MEAN_CROSS_ENTROPY_BY_TIMESTEP),
    ),
    **_of(Change(more={"elements": _CONVERTED}, why=_AN_ELEMENT), *_POOLS),
    **_of(
        Change(more={"timesteps capacity": _STORE}, why=f"half: per slot {SUBWORD_STORE_SOURCE}"),
        *(losses.LIST_COUNT_GRADIENT, losses.LIST_LAST_GRADIENT, losses.LISTED_OF),
    ),
}
SHORT_IDS = {
    **_of(
        Change(more={"hits": _STORE}, why=_AN_ID),
        *(spikes.SCAN_FLAGS, spikes.SCAN_FLAGS_FROM, spikes.COMBINE_WORKERS, spikes.COMBINE_WORKERS_FROM),
    ),
    **_of(  # and both counts
        Change(fixed=2 * _STORE.bundles, more={"listed": _STORE}, why=_AN_ID),
        *(spikes.COMBINE_TILES, spikes.COMBINE_TILES_FROM),
    ),
}


@lru_cache(maxsize=512)
def in_format(
    codelet: Codelet,
    *,
    id_bytes: int,
    value_bytes: int,
    moved_bytes: int,
    kept_bytes: int | None = None,
    number_format: str = "",
) -> Codelet:
    """The codelet for ids of `id_bytes` and values of `value_bytes`; the same one if nothing changes.

    Library vertices depend on `moved_bytes`, per element of the variable they work on: raises MappingError if there is
    no cost for these. kept_bytes: per element of the state that an update keeps of earlier gradients, if any.
    number_format: "bfloat16", else values of two bytes are halves.
    """
    cost = codelet.cost
    if isinstance(cost, TileFormula):
        if moved_bytes == 4:
            return codelet
        if cost not in FORMULAS:
            raise MappingError(f"codelet '{codelet.name}' has no cost for elements of {moved_bytes} byte(s)")
        if number_format and codelet.flops:
            return _library_in_bfloat16(codelet, cost, kept_bytes == 4)
        if kept_bytes == 4:
            return replace(codelet, name=f"{codelet.name}<half, moments float>", cost=_in_floats(cost), value_bytes=2)
        return replace(
            codelet,
            name=f"{codelet.name}<{moved_bytes} bytes>",
            cost=FORMULAS[cost](moved_bytes),
            value_bytes=moved_bytes,
        )
    if number_format and (codelet.name in HALF or codelet.flops):
        return _in_bfloat16(codelet)
    if value_bytes == 2 and codelet.name in HALF:
        cost = _changed(cost, HALF[codelet.name])
        return replace(
            codelet, name=f"{codelet.name}<half>", cost=cost, extents=_in_quads(codelet.extents), value_bytes=2
        )
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


WIDENED_PAIR, NARROWED_PAIR = FORMATS["bfloat16"].widened, FORMATS["bfloat16"].narrowed
_BFLOAT = (
    f"bfloat16, without arithmetic of its own: per pair loaded {WIDENED_PAIR} instruction that spreads it, per pair "
    f"stored {NARROWED_PAIR} that round and pack it (every load and store of a loop counts); computed in float32"
)


def _and_by_pairs(cost: TileFormula, each: Mapping[str, float], kind: str, why: str) -> TileFormula:
    """The cost with so much more, spread over the contexts, for every pair of a field; each: by the extent of those."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        more: Any = sum(count * -(-np.asarray(extents[name]) // worker_contexts) for name, count in each.items())
        return cost.cycles(extents, worker_contexts, vector_bytes) + worker_contexts * more

    return replace(cost, cycles=cycles, kind=kind, source=f"{cost.source}; {why}")


def _library_in_bfloat16(codelet: Codelet, cost: TileFormula, floats_kept: bool) -> Codelet:
    """As for floats, with every field converted; floats_kept: an update, whose moments are floats, so that a weight and
    its gradient alone are converted."""
    pairs = vectors_of_fields(codelet, 2)
    ways = [(int(field.reads), int(field.writes)) for field in codelet.fields]
    if floats_kept:
        ways = [(2, 1), *[(0, 0)] * (len(ways) - 1)]
    each = {
        name: reads * WIDENED_PAIR + writes * NARROWED_PAIR for name, (reads, writes) in zip(pairs, ways, strict=True)
    }
    return replace(
        codelet,
        name=f"{codelet.name}<bfloat16>",
        cost=_and_by_pairs(cost, each, "derived", _BFLOAT),
        extents={**codelet.extents, **pairs},
        value_bytes=2,
        number_format="bfloat16",
    )


def _in_bfloat16(codelet: Codelet) -> Codelet:
    """A C++ vertex: as for halves, and terms of what cores without bfloat16 do besides."""
    cost, change = codelet.cost, HALF.get(codelet.name, Change(why=""))
    assert isinstance(cost, WorkerBundles)
    half = replace(
        codelet,
        name=f"{codelet.name}<bfloat16>",
        cost=_changed(cost, change) if change.why else cost,
        extents=_in_quads(codelet.extents),
        value_bytes=2,
        number_format="bfloat16",
    )
    assert isinstance(half.cost, WorkerBundles)
    converting = []
    for term in half.cost.terms:
        mix = instructions_of(half, term)
        more = WIDENED * mix.load + NARROWED * mix.store
        if "quads" in term.extents or change.times != 1:  # in two pairs
            more = Mix(integer=2 * (WIDENED_PAIR * mix.load + NARROWED_PAIR * mix.store))
            more += replace(mix, load=0, store=0, integer=0, branch=0, loop=0)
        if more.bundles:
            converting.append(Term(bundles=more.bundles, extents=term.extents, mix=more, converts="bfloat16"))
    return replace(
        half, cost=replace(half.cost, terms=(*half.cost.terms, *converting), source=f"{half.cost.source}; {_BFLOAT}")
    )


@lru_cache(maxsize=512)
def with_narrow(codelet: Codelet, fields: tuple[tuple[str, str], ...], of_spikes: bool = False) -> Codelet:
    """The codelet where it reads fields in formats of their own: converted, pair by pair, where nothing computes with
    them. of_spikes: what they are multiplied with is 0 or 1. A C++ vertex loads a vector of them in a turn of its
    deepest loop."""
    cost, extents, names = codelet.cost, dict(codelet.extents), ", ".join(f"{name} {each}" for name, each in fields)
    why = f"converts {names}: " + "; ".join(
        f"{FORMATS[each].widened:g} a pair, {FORMATS[each].counted.partition(';')[0]}, assumed" for _, each in fields
    )
    about: dict[str, Any] = {"name": f"{codelet.name}<{names}>", "narrow": fields, "of_spikes": of_spikes}
    if isinstance(cost, WorkerBundles):
        deepest = max(cost.terms, key=lambda term: len(term.extents), default=None)
        if deepest is None:
            return codelet
        pairs = 2 if "quads" in deepest.extents else 1
        more = [
            Term(
                bundles=pairs * FORMATS[each].widened,
                extents=deepest.extents,
                mix=Mix(integer=pairs * FORMATS[each].widened),
                converts=each,
            )
            for _, each in fields
        ]
        return replace(codelet, cost=replace(cost, terms=(*cost.terms, *more), source=f"{cost.source}; {why}"), **about)
    extents |= {f"pairs of {name}": Size(name, per=2) for name, _ in fields}
    each_pair = {f"pairs of {name}": FORMATS[each].widened for name, each in fields}
    return replace(codelet, cost=_and_by_pairs(cost, each_pair, "assumed", why), extents=extents, **about)


def _in_quads(extents: Mapping[str, Extent]) -> dict[str, Extent]:
    """Four halves per turn instead of two floats."""
    changed = dict(extents)
    pairs = changed.pop("pairs", None)
    if isinstance(pairs, Length):
        changed["quads"] = replace(pairs, per=2 * pairs.per)
    return changed


def _changed(cost: WorkerBundles, change: Change) -> WorkerBundles:
    terms = (
        replace(
            term.times(change.times),
            extents=tuple("quads" if name == "pairs" else name for name in term.extents),
        )
        for term in cost.terms
    )
    return replace(
        cost,
        fixed=cost.fixed + change.fixed,
        terms=(*terms, *terms_of(change.more)),
        source=f"{cost.source}; {change.why}",
    )
