"""The cost of every C++ vertex besides its loops."""

from __future__ import annotations

from collections.abc import Mapping

from mimdsim.program import WorkerBundles, terms_of

LAUNCH_BUNDLES = 12  # launch and return of a vertex
FRAME_BUNDLES = 8  # stack frame of a compiled function
SCALAR_FIELD_BUNDLES = 2  # unpack one scalar field
VECTOR_FIELD_BUNDLES = 1.5  # unpack one pointer with its length
SOURCE = (
    "bundle count of the published C++ codelet (github.com/jrfinkbeiner/graphcore_snn, custom_codelet.cpp); "
    "vertex launch and return 12, 2 per scalar and 1-2 per vector field, frame 8"
)
# The surrogate at one listed id, instruction by instruction as compiled, each alone: subtract the threshold, absolute
# value, times the slope, plus one, square (pow(x, 2) of a float is narrowed to one multiply), divide (3 cycles), load
# the incoming gradient, multiply, load the adjoint, add, store, and four pointers reloaded because the store may alias.
SURROGATE_BUNDLES = 1 + 1 + 1 + 1 + 1 + 3 + 1 + 1 + 1 + 1 + 1 + 4
SURROGATE_PAIRABLE = 3  # loads and the store, together with arithmetic of the same id
SURROGATE_SOURCE = (
    "instruction count of our own for the published loop: subtract, absolute, multiply, add, square, divide (3), two "
    "loads, multiply, add, store, four reloads; 20 to 80 are compatible with the source, hundreds if pow were double"
)

# Tiles store at least 32 bits. Merging one byte or half into its word, compiled: word address, load the word, shift of
# the element (2), shifted mask, clear, shifted value, or; the store itself is counted as for a whole word.
SUBWORD_STORE_BUNDLES = 1 + 1 + 2 + 1 + 1 + 1 + 1
SUBWORD_STORE_SOURCE = (
    f"{SUBWORD_STORE_BUNDLES} to put it into its word (instruction count of our own: tiles store 32 bits at least; "
    "PopLibs MultiUpdateAdd counts 20 for a half merged on its own, 3 for a whole word, commit 7eac0f2)"
)


def overhead_bundles(scalars: int, vectors: int) -> float:
    """Bundles of a vertex outside its loops."""
    return LAUNCH_BUNDLES + FRAME_BUNDLES + SCALAR_FIELD_BUNDLES * scalars + VECTOR_FIELD_BUNDLES * vectors


def compiled(
    loops: Mapping[str, float | tuple[float, float]],
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
