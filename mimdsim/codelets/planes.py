"""Codelets for patches and pools of planes: windows gathered where they are needed, and their adjoints.

A vertex makes a box of its target from a run of pixels, or of places of the window, that holds all it may need of a
run of channels.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from mimdsim.codelets.dense import BOX
from mimdsim.graph.convolution import Patches, Window
from mimdsim.numerics.dense import gathers as numerics
from mimdsim.program import Codelet, Length, Size, Term, TileFormula, fields_of, shared_bundles, terms_of

RUN = "from_row:to_row, begin:end"
COLUMNS = ("from_row", "to_row", "begin", "end", "row_start", "row_stop", "start", "stop")
ROW_BUNDLES = 14  # position of a row: two divisions of whole numbers by multiplication, three products, loop
TAP_BUNDLES = 5  # of a row of taps, or a tap: coordinate, both bounds tested, address
HOW = (
    f"instruction count of our own: {ROW_BUNDLES} a row (its position in the planes), {TAP_BUNDLES} for each row of "
    "taps or tap (coordinate, bounds, address)"
)


def geometry_of(patches: Patches) -> np.ndarray:
    """As the numerics take it."""
    planes, window = patches.planes, patches.window
    pairs = (window.kernel, window.stride, window.padding, window.dilation, window.places(planes))
    each = [planes.height, planes.width, *(number for pair in pairs for number in pair), patches.by_channel]
    return np.array(each, np.int64)


def _cost(of_element: float, taps: int, per_tap: float, source: str) -> TileFormula:
    """Contexts share the rows; every element of a row costs by itself and for every tap that it looks at."""
    terms = (
        Term(bundles=ROW_BUNDLES + TAP_BUNDLES * taps, extents=("rows",)),
        Term(bundles=of_element + per_tap * taps, extents=("rows", "columns")),
    )
    what = f"{HOW}, {source}"
    return shared_bundles(supervisor_cycles=11, fixed=24, terms=terms, split="rows", kind="derived", source=what)


def _codelet(name: str, window: Window, signature: str, compute: Any, cost: TileFormula, flops: int) -> Codelet:
    fields = fields_of(f"{signature}; write target[{BOX}]")
    of_values = ("value_from", "value_to") if len(fields) > 2 else ()
    return Codelet(
        name=f"{name}<{window.kernel[0]}x{window.kernel[1]}>",
        fields=fields,
        columns=(*COLUMNS[:2], *of_values, *COLUMNS[2:]),
        constants=("geometry", *(("factor",) if "Pool" in name else ())),
        compute=compute,
        cost=cost,
        flops=terms_of({"elements": flops}) if flops else (),
        code_bytes=640,
        extents={"rows": Length("target", 0), "columns": Length("target", 1), "elements": Size("target")},
    )


def _overlapping(window: Window) -> int:
    """Places that may cover a pixel."""
    down, across = (-(-kernel // step) for kernel, step in zip(window.kernel, window.stride, strict=True))
    return down * across


@lru_cache(maxsize=256)
def unfold(window: Window) -> Codelet:
    """A row of patches for every place: a load and a store for every element, and for each row of taps its bounds."""
    per_row = TAP_BUNDLES / window.kernel[1]
    cost = _cost(2 + per_row, 0, 0.0, "a load and a store for an element")
    return _codelet("Unfold", window, f"read source[{RUN}]", numerics.unfold, cost, 0)


@lru_cache(maxsize=256)
def fold(window: Window) -> Codelet:
    """Patches added up again where they came from."""
    cost = _cost(3, _overlapping(window), 2, "a load and an addition for an element and place, 3 to begin and store it")
    return _codelet("Fold", window, f"read source[{RUN}]", numerics.fold, cost, _overlapping(window))


@lru_cache(maxsize=256)
def pool(kind: str, window: Window) -> Codelet:
    """The largest, the mean or the sum of a window."""
    compute = partial(_pool, largest=kind == "max")
    cost = _cost(3, window.taps, 2, "a load and an operation for an element and tap, 3 to begin and store it")
    return _codelet(f"{kind.title()}Pool", window, f"read source[{RUN}]", compute, cost, window.taps)


def _pool(*given: Any, largest: bool) -> None:
    numerics.pool(*given, largest)


@lru_cache(maxsize=256)
def pool_gradient(kind: str, window: Window) -> Codelet:
    """Its adjoint: to all that a place covers, or to the first of the largest."""
    places = _overlapping(window)
    if kind != "max":
        cost = _cost(3, places, 2, "a load and an addition for an element and place, 3 to begin and store it")
        return _codelet("PoolGradient", window, f"read source[{RUN}]", numerics.spread_pool, cost, places)
    fields = f"read source[{RUN}]; read values[value_from:value_to, begin:end]"
    each = 4 + 2 * window.taps
    cost = _cost(3, places, each, f"{each} for an element and place: its window compared, a load and an addition")
    return _codelet("LargestGradient", window, fields, numerics.spread_to_largest, cost, places * (window.taps + 1))
