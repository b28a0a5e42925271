"""Codelets on a core that is described by what its instructions take: `on_core`.

A loop level of a codelet says which instructions a turn has (`Mix`). Where it does not, they follow by rule: a load for
every field read and a store for every field written, as far as half of its bundles go, its flops, and integer
instructions for the rest. A library vertex, whose instructions are another library's, loads and stores every field once
in vectors and computes its flops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.units import less_certain, uncertainty, within
from mimdsim.machine.codelet_costs import NATIVE_VECTOR_BYTES, NATIVE_VERTEX_BUNDLES, Core
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.program import Codelet, Field, Length, Program, Size, Term, TileFormula, Vectors, WorkerBundles
from mimdsim.program.loops import Extent, Mix

VECTORS = "vectors"  # the extent that takes the place of those over vectors of 64 bits
OUTSIDE = Mix(load=0.5, integer=0.5)  # of the bundles outside loops: fields unpacked, loops begun
ARITHMETIC = ("add", "multiply", "compare", "divide", "function")
# of a bfloat16 to the float32 whose upper half it is, and back to the nearest: shifted; the last bit that stays and a
# constant added
WIDENED, NARROWED = Mix(integer=1), Mix(integer=5)
KIND = "derived"  # at best: the instructions are those of another compiler's code


@dataclass(frozen=True, kw_only=True)
class Price:
    """Cycles, and by how many of them the numbers of the core may be off."""

    cycles: float
    off: float

    def __mul__(self, times: float) -> Price:
        return Price(cycles=self.cycles * times, off=self.off * times)


def price(mix: Mix, core: Core, *, narrow: str = "", vectors: bool = False) -> Price:
    """What the instructions of a mix take, each in turn, as many in a cycle as the core issues; narrow: as of
    `Core.cycles_of`."""
    table, counts = core.cycles_of(narrow=narrow, vectors=vectors), dict(mix.items())
    if "multiply_add_cycles" in table:
        fused = min(mix.add, mix.multiply)
        counts |= {"add": mix.add - fused, "multiply": mix.multiply - fused, "multiply_add": fused}
    counts["load_use"] = mix.load if "load_use_cycles" in table else 0
    cycles = off = 0.0
    for name, number in counts.items():
        if number:
            each, kind = table[f"{name}_cycles"]
            cycles += number * each
            off += number * each * uncertainty(kind)
    return Price(cycles=cycles / core.issue_width, off=off / core.issue_width)


def on_core(codelet: Codelet, core: Core, vector_bytes: int) -> Codelet:
    """The codelet with what it takes the core."""
    if isinstance(codelet.cost, TileFormula):
        return _library_on_core(codelet, codelet.cost, core, vector_bytes)
    cost, extents, (narrow, item_bytes) = codelet.cost, dict(codelet.extents), _computed_in(codelet, core)
    lanes = max(vector_bytes // item_bytes, 1)
    terms, prices = [], []
    for term in cost.terms:
        if term.converts and _multiplies(codelet, term.converts, core):
            continue
        mix, nest = instructions_of(codelet, term), term.extents
        vectors = any(name == VECTORS or isinstance(extents.get(name), Vectors) for name in nest)
        innermost = extents.get(nest[-1]) if nest else None
        if not vectors and core.vectors is not None and (wide := _in_vectors(innermost, mix, lanes)):
            vectors, nest = True, (*nest[:-1], f"{VECTORS} of {nest[-1]}")
            extents[nest[-1]] = wide
        prices.append(price(mix, core, narrow=narrow if vectors else "", vectors=vectors))
        terms.append(Term(bundles=prices[-1].cycles, extents=nest))
    outside = price(OUTSIDE * max(cost.fixed - NATIVE_VERTEX_BUNDLES, 0), core)
    launch = _launch(core)
    source = "" if all(term.mix for term in cost.terms) else ", by rule where only their number is known"
    return replace(
        codelet,
        cost=WorkerBundles(
            fixed=outside.cycles + launch.cycles,
            terms=tuple(terms),
            kind=less_certain(cost.kind, _kind((*prices, outside, launch))),
            source=f"the machine's core (costs.core), for the instructions{source} of: {cost.source}",
        ),
        extents=extents,
    )


def _multiplies(codelet: Codelet, own: str, core: Core) -> bool:
    """Whether the core computes with numbers of a format as they are: with whole numbers where all are."""
    return getattr(core, FORMATS[own].core) is not None and (codelet.of_spikes or FORMATS[own].fraction > 0)


def _computed_in(codelet: Codelet, core: Core) -> tuple[str, int]:
    """The table of a core for the numbers that a codelet computes with ('': float32), and their bytes."""
    if codelet.number_format:
        own = FORMATS[codelet.number_format]
        return ("", 4) if getattr(core, own.core) is None else (own.core, own.bytes)
    return "halves" if codelet.value_bytes == 2 else "", codelet.value_bytes


def vectors_of_fields(codelet: Codelet, lanes: int) -> dict[str, Extent]:
    """Vectors that fill the boxes of its fields."""
    return {f"{VECTORS} of {field.name}": Size(field.name, per=lanes) for field in codelet.fields}


def _launch(core: Core) -> Price:
    _, kind = core.cycles_of()["vertex_cycles"]
    return Price(cycles=core.vertex_cycles, off=core.vertex_cycles * uncertainty(kind))


def _kind(prices: Iterable[Price]) -> str:
    """The kind of source of cycles: derived, or a larger share of doubt where the core's numbers have one."""
    every = tuple(prices)
    cycles, off = (sum(getattr(one, key) for one in every) for key in ("cycles", "off"))
    share = off / cycles if cycles else 0.0
    return KIND if share <= uncertainty(KIND) else within(KIND, share)


def _in_vectors(extent: Extent | None, mix: Mix, lanes: int) -> Extent | None:
    """The vectors of a loop over elements that computes and does not branch."""
    if mix.branch or not any(getattr(mix, name) for name in ARITHMETIC) or not isinstance(extent, Length | Size):
        return None
    return replace(extent, per=extent.per * lanes)


def instructions_of(codelet: Codelet, term: Term) -> Mix:
    """Those of a turn of one of its loops, by rule where only their number is known."""
    if term.mix is not None:
        return term.mix
    half = term.bundles / 2
    load = min(half, sum(field.reads for field in codelet.fields))
    store = min(half - load, sum(field.writes for field in codelet.fields))
    flops = sum(each.bundles for each in codelet.flops if len(each.extents) == len(term.extents))
    arithmetic = min(flops, term.bundles - load - store)
    rest = term.bundles - load - store - arithmetic
    return Mix(load=load, store=store, add=arithmetic / 2, multiply=arithmetic / 2, integer=rest)


def _library_on_core(codelet: Codelet, formula: TileFormula, core: Core, vector_bytes: int) -> Codelet:
    narrow, item_bytes = _computed_in(codelet, core)
    lanes, wide = max(vector_bytes // item_bytes, 1), core.vectors is not None
    converts = bool(codelet.number_format) and not narrow
    loaded, stored = (Mix(load=1), Mix(store=1)) if not converts else (Mix(load=1) + WIDENED, Mix(store=1) + NARROWED)
    apart = {name: FORMATS[own] for name, own in codelet.narrow}
    tables = [FORMATS[own].core for _, own in codelet.narrow if _multiplies(codelet, own, core)]
    whole = any(not FORMATS[own].fraction for _, own in codelet.narrow) and tables  # what is beside them becomes bytes

    def moving(field: Field) -> Mix:
        mix = loaded * field.reads + stored * field.writes
        if field.name in apart and not tables:
            mix += Mix(integer=apart[field.name].widened * (1 if wide else lanes / 2))
        if whole and field.name not in apart:  # into bytes; sums of whole numbers times the scale
            mix += Mix(integer=field.reads + field.writes, multiply=field.writes) * (1 if wide else lanes)
        return mix

    each = [
        (f"{VECTORS} of {field.name}", price(moving(field), core, narrow=narrow, vectors=wide))
        for field in codelet.fields
    ]
    closing, launch = price(Mix(integer=1, loop=1), core, narrow=narrow, vectors=wide), _launch(core)
    rates = core.cycles_of(narrow=tables[0] if tables else narrow, vectors=wide)
    rate, kind = rates.get("matrix_flops_per_cycle", (0.0, KIND))
    computed = []
    for term in codelet.flops:
        mix = formula.mix or Mix(add=term.bundles / 2, multiply=term.bundles / 2)
        one = price(mix, core, narrow=narrow, vectors=wide) * (1 / lanes)
        if formula.product and rate:  # the unit's own rate, beside what feeds it
            one = Price(cycles=term.bundles / rate, off=term.bundles / rate * uncertainty(kind))
        computed.append((term, one))

    def cycles(extents: dict[str, Any], worker_contexts: int, _vector_bytes: int) -> Any:
        vectors = {name: np.asarray(extents[name], np.float64) for name, _ in each}
        total: Any = worker_contexts * core.vertex_cycles + sum(vectors[name] * one.cycles for name, one in each)
        if vectors:
            total = total + closing.cycles * np.maximum.reduce(np.broadcast_arrays(*vectors.values()))
        for term, one in computed:
            total = total + term.turns(extents) * one.cycles
        return total

    doubts = (*(one for _, one in each), *(one for _, one in computed), closing, launch)
    source = f"the machine's core (costs.core), for its fields loaded and stored and its flops, not: {formula.source}"
    cost = TileFormula(cycles=cycles, kind=less_certain(formula.kind, _kind(doubts)), source=source)
    return replace(codelet, cost=cost, extents={**codelet.extents, **vectors_of_fields(codelet, lanes)})


# ---- what the vertices of a program load and store, in place of their costs: for tiles whose memory port is a limit


WORD = 4  # bytes of what is loaded or stored outside vectors; fewer take the port as long
_MOVED: PerObject[Program] = PerObject()


def with_moved_bytes(program: Program) -> Program:
    """`program` as compiled, with bytes for bundles; cycles of library vertices are those of their fields."""
    return _MOVED.get(program, None, lambda: program.map_codelets(moving_codelet))


def moving_codelet(codelet: Codelet) -> Codelet:
    """A codelet that costs the bytes it loads and stores."""
    kind, source = codelet.cost.kind, "bytes loaded and stored"
    if isinstance(codelet.cost, TileFormula):
        each = vectors_of_fields(codelet, 1)
        moved = [
            name for name, field in zip(each, codelet.fields, strict=True) for _ in range(field.reads + field.writes)
        ]

        def cycles(extents: dict[str, Any], _contexts: int, _vector_bytes: int) -> Any:
            return codelet.value_bytes * sum(np.asarray(extents[name], np.float64) for name in moved)

        cost = TileFormula(cycles=cycles, kind=kind, source=source)
        return replace(codelet, cost=cost, extents={**codelet.extents, **each})
    terms = []
    for term in codelet.cost.terms:
        wide = any(isinstance(codelet.extents.get(name), Vectors) for name in term.extents)
        bytes_ = _moves(instructions_of(codelet, term)) * (NATIVE_VECTOR_BYTES if wide else WORD)
        terms.append(replace(term, bundles=bytes_, pairable=0.0, mix=None))
    outside = WORD * _moves(OUTSIDE) * max(codelet.cost.fixed - NATIVE_VERTEX_BUNDLES, 0)
    return replace(codelet, cost=WorkerBundles(fixed=outside, terms=tuple(terms), kind=kind, source=source))


def _moves(mix: Mix) -> float:
    return mix.load + mix.store
