"""Codelets of the linear neuron family, each made for one structure of coefficients, with the bundles that takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.linear_terms import CLOSE_LOOP, Shape, Structure
from mimdsim.codelets.neurons import by_neuron
from mimdsim.codelets.surrogates import COSTS, at_an_id
from mimdsim.codelets.vertex_costs import LOOK_AT_ID, SOURCE, SURROGATE_PAIRABLE, on_loops, overhead_bundles
from mimdsim.numerics.sparse import neurons as numerics
from mimdsim.program import Codelet, Field, Hits, Length, Listed, Lists, Spikes, WorkerBundles, fields_of, terms_of
from mimdsim.program.loops import Mix

OWN_COUNT = (
    "instruction count of our own in the manner of the published codelets, each instruction alone: states, current and "
    "per-neuron coefficients loaded once, a multiply and an add per coefficient that is neither zero nor one, 2 to "
    "select one that a spike changes, stores, a pointer reloaded per array because stores may alias, 3 for the loop"
)
CONSTANT_BUNDLES = 2  # a coefficient as an immediate: setzi and or
SAMPLES = "row_start:row_stop"
NOTHING, NO_ROWS = np.zeros((1, 1), np.float32), np.zeros((1, 1, 1), np.float32)
WORK = "samples neurons"
TOLD = Mix(load=1, compare=1)  # who fired

PLANE = f"{SAMPLES}, start:stop"  # of [batch, neurons]: the vertex's samples and neurons
X, DX = f"update x[:, {PLANE}]", f"update dx[:, {PLANE}]"
FIRED = f"read fired[{PLANE}]"


def _fields(structure: Structure, *signatures: str, reads_own: bool = True) -> tuple[Field, ...]:
    """The fields of these signatures that are not empty, and the coefficients of each neuron, where there are any."""
    own = "read own[:, start:stop]" if structure.own and reads_own else ""
    return fields_of("; ".join(filter(None, (*signatures, own))))


def compute_in_order(kernel: Any, order: tuple[str, ...], fields: tuple[Field, ...]) -> Callable[..., None]:
    """`kernel` called with its arrays in `order`; arrays that are not fields of the vertex are passed empty."""
    names = [item.name for item in fields]
    places = [names.index(name) if name in names else -1 for name in order]
    empty = [NO_ROWS if name in ("x", "dx") else NOTHING for name in order]

    def arranged(function: Any) -> Callable[..., None]:
        def compute(*given: Any) -> None:
            arrays = [given[place] if place >= 0 else empty[index] for index, place in enumerate(places)]
            function(*arrays, *given[len(names) :])

        return compute

    made = arranged(kernel)
    made.py_func = arranged(getattr(kernel, "py_func", kernel))  # type: ignore[attr-defined]
    return made


def _cost(each: Mix, fields: tuple[Field, ...], coefficients: int) -> WorkerBundles:
    fixed = overhead_bundles(scalars=4, vectors=len(fields)) + CONSTANT_BUNDLES * coefficients
    terms = terms_of({WORK: each + Mix(load=len(fields)) + CLOSE_LOOP, "samples": CLOSE_LOOP})
    return WorkerBundles(fixed=fixed, terms=terms, kind="derived", source=OWN_COUNT)


def _read_out(reading: list[Shape]) -> Mix:
    """The adjoint of every state that is read out: load, multiply, add, store."""
    loads = sum(item.loads for item in reading)
    multiplies = sum(not item.unit for item in reading)
    return Mix(load=1, add=1, store=1) * len(reading) + Mix(multiply=multiplies, load=loads)


def _immediates(structure: Structure) -> int:
    """The number of coefficients that are not loaded per neuron."""
    both = (*structure.terms, *structure.readout)
    return sum((1 + item.differs) for item in both if not item.loads and not item.unit)


@lru_cache(maxsize=64)
def update(structure: Structure, source: str) -> Codelet:
    """x and u of the vertex's samples and neurons. source: what tells who fired, 'u' itself, 'flags' or ''."""
    flags = f"read flags[{PLANE}]" if source == "flags" else ""
    u = f"{'update' if source == 'u' else 'write'} u[{PLANE}]"
    fields = _fields(structure, X, u, f"read current[{PLANE}]", flags)
    order = ("x", "u", "current", "u" if source == "u" else "flags", "own")
    each = structure.load_mix() + (TOLD if source else Mix()) + structure.apply_mix() + structure.readout_mix()
    each += Mix(store=structure.states + 1)
    return Codelet(
        name=f"NeuronUpdate({structure.model})",
        fields=fields,
        joinable=True,
        constants=("terms", "uniform", "readout", "weights", "threshold", "switched"),
        compute=compute_in_order(numerics.neuron_update, order, fields),
        cost=_cost(each, fields, _immediates(structure)),
        flops=terms_of({WORK: 2 * len(structure.terms) + 2 * len(structure.readout)}),
        code_bytes=256 + 16 * int(each.bundles),
        extents=by_neuron("u"),
    )


@lru_cache(maxsize=64)
def gradient(structure: Structure, source: str) -> Codelet:
    """dx by the transposed map and q, the adjoint of the current; 'fired' tells who fired if `source` says so."""
    fields = _fields(structure, DX, f"write q[{PLANE}]", FIRED if source else "")
    each = (TOLD if source else Mix()) + structure.apply_mix(transposed=True)
    each += Mix(load=structure.states, store=structure.states + 1)  # adjoints loaded, all stored
    return Codelet(
        name=f"NeuronGradient({structure.model})",
        fields=fields,
        joinable=True,
        constants=("terms", "uniform", "threshold", "switched"),
        compute=compute_in_order(numerics.neuron_gradient, ("dx", "q", "fired", "own"), fields),
        cost=_cost(each, fields, _immediates(structure)),
        flops=terms_of({WORK: 2 * len(structure.terms)}),
        code_bytes=256 + 16 * int(each.bundles),
        extents=by_neuron("q"),
    )


@lru_cache(maxsize=64)
def full_gradient(structure: Structure, reads: tuple[str, ...], surrogate: str, source: str = "fired") -> Codelet:
    """`gradient`, and the adjoint of who fired; times the surrogate of u if one is named ('': none), which is read
    where `source` says so."""
    simple = gradient(structure, source)
    read = [f"read {name}[{'' if name == 'current' else ':, '}{PLANE}]" for name in reads]
    fields = (*fields_of(f"write d_fired[{PLANE}]"), *simple.fields, *fields_of("; ".join(read)))
    shared = ("dx", "fired", "own")
    through = compute_in_order(numerics.fired_gradient, ("d_fired", *shared, "x", "current"), fields)
    back = compute_in_order(numerics.neuron_gradient, ("dx", "q", "fired", "own"), fields)

    def arranged(first: Any, second: Any) -> Callable[..., None]:
        def compute(*given: Any) -> None:
            *rest, slope, kind = given
            *before, threshold, _ = rest
            first(*before, threshold, slope, kind)
            second(*rest)

        return compute

    made = arranged(through, back)
    made.py_func = arranged(through.py_func, back.py_func)  # type: ignore[attr-defined]
    assert isinstance(simple.cost, WorkerBundles)
    function = COSTS[surrogate].mix + Mix(multiply=1) if surrogate else Mix()  # and its product
    first, *others = simple.cost.terms
    assert first.mix is not None
    each = first.mix + structure.change_mix() + function + Mix(store=1, load=1 + len(reads))  # reloaded
    terms = (*terms_of({WORK: each}), *others)
    fixed = overhead_bundles(scalars=6, vectors=len(fields)) + CONSTANT_BUNDLES * _immediates(structure)
    about = f"; {COSTS[surrogate].count} for the surrogate" if surrogate else ""
    return Codelet(
        name=f"NeuronGradientFull({structure.model}{', ' + surrogate if surrogate else ''})",
        fields=fields,
        joinable=True,
        constants=(*simple.constants, "slope", "surrogate"),
        compute=made,
        cost=WorkerBundles(fixed=fixed, terms=terms, kind="derived", source=f"{OWN_COUNT}{about}"),
        flops=terms_of({WORK: 4 * len(structure.terms)}),
        code_bytes=512 + 16 * int(each.bundles),
        extents=simple.extents,
    )


@lru_cache(maxsize=64)
def readout_gradient(structure: Structure) -> Codelet:
    """dx += readout * du, for all neurons."""
    reading = structure.read_states()
    fields = _fields(structure, DX, f"read du[{PLANE}]", reads_own=any(item.loads for item in reading))
    each = Mix(load=1) + _read_out(reading)  # du
    return Codelet(
        name=f"ReadoutGradient({structure.model})",
        fields=fields,
        joinable=True,
        constants=("readout", "weights"),
        compute=compute_in_order(numerics.readout_gradient, ("dx", "du", "own"), fields),
        cost=_cost(each, fields, len(reading)),
        flops=terms_of({WORK: 2 * len(reading)}),
        code_bytes=256 + 16 * int(each.bundles),
        extents=by_neuron("du"),
    )


@lru_cache(maxsize=64)
def state_gradient(structure: Structure, surrogate: str) -> Codelet:
    """The surrogate at listed ids, through the read-out into the adjoint of the states."""
    reading = structure.read_states()
    fields = _fields(
        structure,
        "update dx[:, sample, start:stop]; read u[sample, start:stop]",
        "read g[sample, :]; read ids[sample, :]; read counts[sample, :]",
        reads_own=any(item.loads for item in reading),
    )
    mix, source = at_an_id(surrogate)
    # the published loop adds to one adjoint; every further one costs a load, an add, a store and a reloaded pointer
    more = _read_out(reading) + Mix(load=-1, add=-1, store=-1) + Mix(load=1) * (len(reading) - 1)
    return on_loops(
        f"NeuronStateGradient({structure.model}, {surrogate})",
        fields,
        compute_in_order(numerics.listed_readout_gradient, ("dx", "u", "g", "ids", "counts", "own"), fields),
        {"listed": LOOK_AT_ID, "hits": (Mix(load=2) + mix + more, SURROGATE_PAIRABLE)},
        f"{SOURCE}; 4 per listed id; per id that lies on the tile: {source}; {more.bundles} for the read-out, ours",
        scalars=4,
        joinable=True,
        constants=("readout", "weights", "threshold", "slope", "surrogate"),
        flops={"hits": COSTS[surrogate].flops + 2 * len(reading)},
        code_bytes=832,
        extents={"listed": Lists(Listed), "hits": Lists(Hits, ("listed",))},
    )


@lru_cache(maxsize=64)
def dense_state_gradient(structure: Structure, surrogate: str) -> Codelet:
    """The surrogate of every neuron, through the read-out into the adjoint of the states."""
    reading = structure.read_states()
    reads_own = any(item.loads for item in reading)
    fields = _fields(structure, DX, f"read u[{PLANE}]; read g[{PLANE}]", reads_own=reads_own)
    each = Mix(load=2, multiply=1) + COSTS[surrogate].mix + _read_out(reading)
    cost = _cost(each, fields, len(reading))
    return Codelet(
        name=f"NeuronStateGradientDense({structure.model}, {surrogate})",
        fields=fields,
        joinable=True,
        constants=("readout", "weights", "threshold", "slope", "surrogate"),
        compute=compute_in_order(numerics.dense_readout_gradient, ("dx", "u", "g", "own"), fields),
        cost=replace(cost, source=f"{OWN_COUNT}; {COSTS[surrogate].count} for the surrogate"),
        flops=terms_of({WORK: COSTS[surrogate].flops + 2 * len(reading)}),
        code_bytes=256 + 16 * int(each.bundles),
        extents=by_neuron("u"),
    )


EMITTED_FLAGS = on_loops(
    "EmittedFlags",
    "write flags[sample, start:stop]; read ids[sample, :] in part; read counts[sample, :]",
    numerics.emitted_flags,
    # neurons: store zero, next address, branch; spikes: load id, subtract the tile's start, compare, branch; hits:
    # address, store one
    {"neurons": Mix(store=1, integer=1, loop=1), "spikes": LOOK_AT_ID, "hits": Mix(store=1, integer=1)},
    f"{SOURCE}; counted by us: 3 per neuron cleared, 4 per spike, 2 per spike of the tile's neurons",
    scalars=2,
    joinable=True,
    code_bytes=320,
    extents={"neurons": Length("flags", 1), "spikes": Lists(Spikes), "hits": Lists(Hits, ("spikes",))},
)

EMITTED_GRADIENT = on_loops(
    "EmittedGradient",
    "write partial[part, sample, :]; read d_fired[sample, start:stop]; read ids[sample, :]; read counts[sample, :]",
    numerics.emitted_gradient,
    # listed: load id, subtract the tile's start, compare, branch, store; hits: load the gradient
    {"listed": LOOK_AT_ID + Mix(store=1), "hits": Mix(load=1)},
    f"{SOURCE}; counted by us: 5 per listed id, 1 more per id of the tile's neurons",
    scalars=3,
    code_bytes=320,
    extents={"listed": Lists(Listed), "hits": Lists(Hits, ("listed",))},
)
