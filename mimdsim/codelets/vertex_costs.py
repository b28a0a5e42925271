"""What vertices share: of C++ ones, the overhead; of library ones, formulas for any number of bytes an element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from mimdsim.machine.codelet_costs import NATIVE_VERTEX_BUNDLES
from mimdsim.program import Codelet, Field, Size, TileFormula, WorkerBundles, fields_of, terms_of
from mimdsim.program.codelet import Counted
from mimdsim.program.loops import Extent, Mix

LAUNCH_BUNDLES = NATIVE_VERTEX_BUNDLES  # launch and return of a vertex
FRAME_BUNDLES = 8  # stack frame of a compiled function
SCALAR_FIELD_BUNDLES = 2  # unpack one scalar field
VECTOR_FIELD_BUNDLES = 1.5  # unpack one pointer with its length
SOURCE = (
    "bundle count of the published C++ codelet (github.com/jrfinkbeiner/graphcore_snn, custom_codelet.cpp); "
    "vertex launch and return 12, 2 per scalar and 1-2 per vector field, frame 8"
)
# The surrogate at one listed id, instruction by instruction as compiled, each alone: subtract the threshold, absolute
# value, times the slope, plus one, square (pow(x, 2) of a float is narrowed to one multiply), divide; then load the
# incoming gradient, multiply, load the adjoint, add, store, and four pointers reloaded because the store may alias.
SUPERSPIKE = Mix(add=3, multiply=2, divide=1)
AT_AN_ID = Mix(load=2 + 4, multiply=1, add=1, store=1)
LOOK_AT_FLAG = Mix(load=1, integer=1.5, branch=1, loop=1)  # load the byte, branch, count
LOOK_AT_ID = Mix(load=1, integer=2, branch=1)  # load id, subtract the tile's start, compare, branch
A_ROW = Mix(integer=5, loop=1)  # its pointers, loop
SURROGATE_PAIRABLE = 3  # loads and the store, together with arithmetic of the same id
SURROGATE_SOURCE = (
    "instruction count of our own for the published loop: subtract, absolute, multiply, add, square, divide (3), two "
    "loads, multiply, add, store, four reloads; 20 to 80 are compatible with the source, hundreds if pow were double"
)

# Tiles store at least 32 bits. Merging one byte or half into its word, compiled: word address, load the word, shift of
# the element (2), shifted mask, clear, shifted value, or; the store itself is counted as for a whole word.
SUBWORD_STORE = Mix(load=1, integer=1 + 2 + 1 + 1 + 1 + 1)
SUBWORD_STORE_BUNDLES = SUBWORD_STORE.bundles
SUBWORD_STORE_SOURCE = (
    f"{SUBWORD_STORE_BUNDLES} to put it into its word (instruction count of our own: tiles store 32 bits at least; "
    "PopLibs MultiUpdateAdd counts 20 for a half merged on its own, 3 for a whole word, commit 7eac0f2)"
)


def overhead_bundles(scalars: int, vectors: int) -> float:
    """Bundles of a vertex outside its loops."""
    return LAUNCH_BUNDLES + FRAME_BUNDLES + SCALAR_FIELD_BUNDLES * scalars + VECTOR_FIELD_BUNDLES * vectors


def cpp_cost(
    loops: Mapping[str, Counted],
    source: str,
    *,
    unpacked: tuple[int, int],
    more: float = 0.0,
    kind: str = "derived",
) -> WorkerBundles:
    """The cost of a C++ vertex: overhead with so many scalar and vector fields `unpacked`, `more` bundles beside the
    loops, and these, as in `terms_of`."""
    fixed = overhead_bundles(*unpacked) + more
    return WorkerBundles(fixed=fixed, terms=terms_of(loops), kind=kind, source=source)


def on_loops(
    name: str,
    fields: str | tuple[Field, ...],
    compute: Any,
    loops: Mapping[str, Counted],
    source: str,
    *,
    scalars: int,
    flops: Mapping[str, float] | None = None,
    more: float = 0.0,
    kind: str = "derived",
    **about: Any,
) -> Codelet:
    """A C++ vertex that costs by its loops, with so many scalar fields beside `fields`, or their signature; about: of
    the codelet. Costs as in `cpp_cost`, flops by the same loops."""
    held = fields_of(fields) if isinstance(fields, str) else fields
    cost = cpp_cost(loops, source, unpacked=(scalars, len(held)), more=more, kind=kind)
    return Codelet(name=name, fields=held, compute=compute, cost=cost, flops=terms_of(flops or {}), **about)


def add_bundles(
    cost: WorkerBundles | TileFormula, why: str, fixed: float, loops: Mapping[str, Counted]
) -> WorkerBundles:
    """The cost of a C++ vertex with more bundles, and the reason after its source."""
    assert isinstance(cost, WorkerBundles)
    terms = (*cost.terms, *terms_of(loops))
    return replace(cost, fixed=cost.fixed + fixed, terms=terms, source=f"{cost.source}; {why}")


Formula = Callable[[int], TileFormula]  # by the bytes of an element
FORMULAS: dict[TileFormula, Formula] = {}  # by the formula for four bytes


_Cycles = Callable[[dict[str, Any], int, int, int], Any]


def by_item_bytes(kind: str, source: str, of_halves: str = "", mix: Mix | None = None) -> Callable[[_Cycles], Formula]:
    """Make cycles(extents, item_bytes, worker_contexts, vector_bytes) of a library vertex a formula for any number of
    bytes an element. of_halves: what the source of the one for two bytes says too. mix: as of the TileFormula."""

    def formula_of(cycles: _Cycles) -> Formula:
        @cache
        def formula(item_bytes: int) -> TileFormula:
            return TileFormula(
                cycles=lambda extents, contexts, vector: cycles(extents, item_bytes, contexts, vector),
                kind=kind,
                source=source + (of_halves if item_bytes == 2 else ""),
                mix=mix,
            )

        FORMULAS[formula(4)] = formula
        return formula

    return formula_of


def vectors_each(elements: Any, item_bytes: int, contexts: int, vector_bytes: int) -> Any:
    """Vectors that a worker context takes of `elements` that all share."""
    return -(-np.asarray(elements) // (contexts * (vector_bytes // item_bytes)))


def by_vectors(
    bundles: Callable[[int], float], source: str, *, set_up: int = 29, of_halves: str = "", mix: Mix | None = None
) -> Formula:
    """A loop of `bundles(item_bytes)` for every vector of the extent 'elements', after `set_up` in every context and 11
    to launch them."""

    @by_item_bytes("derived", source, of_halves, mix)
    def formula(extents: dict[str, Any], item_bytes: int, contexts: int, vector_bytes: int) -> Any:
        vectors = vectors_each(extents["elements"], item_bytes, contexts, vector_bytes)
        return np.ceil(11 + contexts * (set_up + bundles(item_bytes) * vectors)).astype(np.int64)

    return formula


def on_elements(
    name: str,
    signature: str,
    compute: Any,
    cost: TileFormula,
    elements: str,
    *,
    flops: float = 1,
    extents: Mapping[str, Extent] | None = None,
    **more: Any,
) -> Codelet:
    """A library vertex that costs by the elements of one of its fields; more: of the codelet."""
    return Codelet(
        name=name,
        fields=fields_of(signature),
        compute=compute,
        cost=cost,
        flops=terms_of({"elements": flops}) if flops else (),
        extents={"elements": Size(elements), **(extents or {})},
        **more,
    )


def by_runs(compute: Callable[..., None], cut: Sequence[bool]) -> Callable[..., None]:
    """`compute` on the columns of every vertex in turn: of the arrays that are `cut`."""

    def table(*given: Any) -> None:
        *arrays, start, stop = given
        for first, last in zip(start, stop, strict=True):
            compute(*(array[:, first:last] if part else array for array, part in zip(arrays, cut, strict=True)))

    return table
