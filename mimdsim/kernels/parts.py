"""The parts of variables on their tiles: where library vertices are placed, the boxes they work on, and their costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, shortened
from mimdsim.program import TileFormula, Variable
from mimdsim.program.mapping import FLAT
from mimdsim.program.vertex_boxes import bounds_of, boxes_on_tiles, distinct_boxes, spatial_mapping

POPOPS = "PopLibs popops cycle estimators (commit 7eac0f2)"
ENDS = "start", "stop"  # of columns
# the vendor's names of number formats, by numpy's
FORMATS = {
    "float32": "f32",
    "float16": "f16",
    "int32": "i32",
    "uint32": "u32",
    "int16": "i16",
    "uint16": "u16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}


def in_number_format(what: str, values: object, dtype: object) -> np.ndarray:
    """Numbers in a format; raises MappingError for what it cannot hold: no numbers, fractions, and what would wrap
    around or become infinite."""
    given = np.asarray(values)
    if given.dtype.kind not in "biuf":
        raise MappingError(f"{what} cannot hold {shortened(str(values))!r}; give numbers")
    kind = np.dtype(str(dtype))
    with np.errstate(all="ignore"):
        held = given.astype(kind)
    lost = np.isfinite(given) & ~np.isfinite(held) if kind.kind == "f" else held != given
    if lost.any():
        raise MappingError(f"{what} of {kind} cannot hold {given[lost].item(0)!r}")
    return held


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """Boxes of a variable on tiles: int64[parts, axes, 2] of start and stop, and int64[parts]."""

    tiles: np.ndarray
    bounds: np.ndarray

    def columns(self, ends: tuple[str, str] = ENDS, reach: int = 0) -> dict[str, np.ndarray]:
        """Columns of a vertex table with one vertex per part, `reach` further out, named as by `box_of`."""
        bounds = self.bounds + np.array([-reach, reach])
        axes = range(bounds.shape[1])
        return {f"{end}{axis}": bounds[:, axis, side] for axis in axes for side, end in enumerate(ends)}

    @property
    def lengths(self) -> np.ndarray:
        """int64[parts, axes]"""
        extents: np.ndarray = self.bounds[:, :, 1] - self.bounds[:, :, 0]
        return extents


def box_of(axes: int, ends: tuple[str, str] = ENDS) -> tuple[str, ...]:
    """The box of a field that takes a part of a variable with this many axes, in these columns."""
    return tuple(f"{ends[0]}{axis}:{ends[1]}{axis}" for axis in range(axes))


def parts_of(variable: Variable) -> Parts:
    """The parts of a variable, as few and as large as boxes allow.

    Raises MappingError for a variable copied to several tiles: a vertex would leave the other copies stale.
    """
    mapping = spatial_mapping(variable, drop_axis=False)
    if mapping.has_copies:
        raise MappingError(
            f"'{variable.name}' is a copy on {len(mapping.tiles)} tiles, which no vertex can write; use "
            "broadcast(x, to=...) to send a value to all of them"
        )
    tiles, boxes = boxes_on_tiles(mapping, variable.shape)
    if mapping.axis == FLAT:
        tiles, bounds = distinct_boxes(tiles, bounds_of(boxes))
        return Parts(tiles=tiles, bounds=bounds.transpose(2, 0, 1))
    return Parts(tiles=tiles, bounds=boxes)


def format_of(variable: Variable) -> str:
    """The vendor's name of a variable's number format."""
    return FORMATS[variable.dtype]


def same_parts(one: Parts, other: Parts) -> bool:
    """Whether both have the same boxes on the same tiles, in any order."""
    rows = [
        sorted(zip(each.tiles.tolist(), each.bounds.reshape(len(each.tiles), -1).tolist(), strict=True))
        for each in (one, other)
    ]
    return rows[0] == rows[1]


def published(price: Callable[..., Any], called: str, extents: tuple[str, ...], **given: Any) -> TileFormula:
    """The vendor's estimator `price` of the vertex `called` so, which takes these extents, and what is given. Raises
    NoCycleFormula where it has none for a format or an operation, while the user's line is known."""

    def cycles(of_vertices: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        loops = (np.asarray(of_vertices[name]) for name in extents)
        return price(*loops, worker_contexts=worker_contexts, vector_bytes=vector_bytes, **given)

    cycles(dict.fromkeys(extents, np.ones(1, np.int64)), 6, 8)
    return TileFormula(cycles=cycles, kind="published", source=f"{POPOPS}: {called}")
