"""What every C++ vertex pays beside its loops."""

from __future__ import annotations

LAUNCH_BUNDLES = 12  # launch and return of a vertex
FRAME_BUNDLES = 8  # stack frame of a compiled function
SCALAR_FIELD_BUNDLES = 2  # unpack one scalar field
VECTOR_FIELD_BUNDLES = 1.5  # unpack one pointer with its length
SOURCE = (
    "bundle count of the published C++ codelet (github.com/jrfinkbeiner/graphcore_snn, custom_codelet.cpp); "
    "vertex launch and return 12, 2 per scalar and 1-2 per vector field, frame 8"
)


def overhead_bundles(scalars: int, vectors: int) -> float:
    """Bundles of a vertex outside its loops."""
    return LAUNCH_BUNDLES + FRAME_BUNDLES + SCALAR_FIELD_BUNDLES * scalars + VECTOR_FIELD_BUNDLES * vectors
