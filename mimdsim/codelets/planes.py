"""Codelets for patches and pools of planes: windows gathered where they are needed, and their adjoints.

A vertex makes a box of its target from a run of pixels, or of places of the window, that holds all it may need of a
run of channels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.codelets.dense import BOX
from mimdsim.codelets.vertex_costs import cpp_cost
from mimdsim.graph.convolution import Patches, Pooling
from mimdsim.numerics.dense import gathers as numerics
from mimdsim.program import Codelet, Length, WorkerBundles, fields_of, terms_of
from mimdsim.program.loops import Mix

RUN = "from_row:to_row, begin:end"
COLUMNS = ("from_row", "to_row", "begin", "end", "row_start", "row_stop", "start", "stop")
# position of a row: two divisions of whole numbers by multiplication, three products, loop
ROW = Mix(integer=13, loop=1)
TAP = Mix(integer=4, branch=1)  # of a row of taps, or a tap: coordinate, both bounds tested, address
HOW = (
    f"instruction count of our own: {ROW.bundles} a row (its position in the planes), {TAP.bundles} for each row of "
    "taps or tap (coordinate, bounds, address)"
)


BEGUN = Mix(integer=1, store=1, loop=1)
BEGIN = "3 to begin and store an element"


def geometry_of(patches: Patches) -> np.ndarray:
    """As the numerics take it."""
    planes, window = patches.planes, patches.window
    pairs = (window.kernel, window.stride, window.padding, window.dilation, window.places(planes))
    each = [planes.height, planes.width, *(number for pair in pairs for number in pair), patches.by_channel]
    return np.array(each, np.int64)


def _cost(loops: dict[str, Mix], per_tap: int, source: str, scalars: int = len(COLUMNS)) -> WorkerBundles:
    """Bundles by loop nest beside those of a row and, in every row, of `per_tap` taps."""
    return cpp_cost({"rows": ROW + TAP * per_tap, **loops}, f"{HOW}, {source}", unpacked=(scalars, 2))


def _codelet(name: str, patches: Patches, signature: str, compute: Any, cost: WorkerBundles, flops: int = 0) -> Codelet:
    fields = fields_of(f"{signature}; write target[{BOX}]")
    of_values = ("value_from", "value_to") if len(fields) > 2 else ()
    return Codelet(
        name=f"{name}<{patches.window.kernel[0]}x{patches.window.kernel[1]}>",
        fields=fields,
        columns=(*COLUMNS[:2], *of_values, *COLUMNS[2:]),
        constants=("geometry", *(("factor",) if "Pool" in name else ())),
        compute=compute,
        cost=cost,
        flops=terms_of({"rows columns": flops}) if flops else (),
        code_bytes=640,
        extents={"rows": Length("target", 0), "columns": Length("target", 1)},
    )


def _places_of_pixel(patches: Patches) -> int:
    """Places that may cover a pixel."""
    window, most = patches.window, patches.window.places(patches.planes)
    each = zip(window.kernel, window.stride, most, strict=True)
    down, across = (min(-(-kernel // step), places) for kernel, step, places in each)
    return down * across


@lru_cache(maxsize=256)
def unfold(patches: Patches) -> Codelet:
    """A row of patches for every place: a load and a store for every element, and for each row of taps its bounds."""
    loops = {"rows columns": Mix(load=1, store=1) + TAP * (1 / patches.window.kernel[1])}
    cost = _cost(loops, 0, "a load and a store for an element")
    return _codelet("Unfold", patches, f"read source[{RUN}]", numerics.unfold, cost)


@lru_cache(maxsize=256)
def fold(patches: Patches) -> Codelet:
    """Patches added up again where they came from."""
    places = _places_of_pixel(patches)
    cost = _cost(
        {"rows columns": BEGUN + Mix(load=1, add=1) * places}, places, f"{BEGIN}, a load and an addition for each place"
    )
    taps = patches.window.taps

    def compute(*given: Any) -> None:
        numerics.spread(*given, np.float32(1), taps)

    return _codelet("Fold", patches, f"read source[{RUN}]", compute, cost, places)


@lru_cache(maxsize=256)
def pool(pooling: Pooling) -> Codelet:
    """The largest, the mean or the sum of a window."""
    largest, taps = pooling.kind == "max", pooling.window.taps

    def compute(*given: Any) -> None:
        numerics.pool(*given, largest)

    cost = _cost(
        {"rows columns": BEGUN + (Mix(load=1, compare=1) if largest else Mix(load=1, add=1)) * taps},
        taps,
        f"{BEGIN}, a load and an operation for each tap",
    )
    return _codelet(f"{pooling.kind.title()}Pool", pooling, f"read source[{RUN}]", compute, cost, taps)


@lru_cache(maxsize=256)
def pool_gradient(pooling: Pooling) -> Codelet:
    """Its adjoint: to all that a place covers, or to the first of the largest."""
    places, signature = _places_of_pixel(pooling), f"read source[{RUN}]"
    if pooling.kind != "max":
        cost = _cost(
            {"rows columns": BEGUN + Mix(load=1, add=1) * places},
            places,
            f"{BEGIN}, a load and an addition for each place",
        )
        return _codelet("PoolGradient", pooling, signature, lambda *given: numerics.spread(*given, 1), cost, places)
    each = Mix(load=1, add=1, integer=2) + Mix(load=1, compare=1) * pooling.window.taps
    what = f"{BEGIN}, {each.bundles} for each place: its window compared, a load and an addition"
    cost = _cost({"rows columns": BEGUN + each * places}, places, what, len(COLUMNS) + 2)
    signature += "; read values[value_from:value_to, begin:end]"
    flops = places * (pooling.window.taps + 1)
    return _codelet("LargestGradient", pooling, signature, numerics.spread_to_largest, cost, flops)
