"""Whether a superstep's exchange delivers the data wanted on a tile."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.numerics.columns import boxes as numerics
from mimdsim.program.records import Delivery, Superstep
from mimdsim.program.vertex_boxes import bounds_of


def undelivered(superstep: Superstep, variable: str, tiles: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """bool[rows]: not contained in any delivered box of the variable to that tile."""
    missing = np.ones(len(tiles), bool)
    if superstep.exchange is None:
        return missing
    for delivery in superstep.exchange.deliveries:
        # one timestep and the whole sequence are delivered separately, as boxes of different axes
        alike = delivery.variable == variable and delivery.boxes.shape[1] == boxes.shape[1]
        if alike and len(delivery.tiles) and len(tiles):
            missing &= ~_contained(delivery, tiles, boxes)
    return missing


def _contained(delivery: Delivery, tiles: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """bool[rows]: inside one delivered box."""
    owners, delivered = delivery.tiles, delivery.boxes
    if (owners[1:] < owners[:-1]).any():
        order = np.argsort(owners, kind="stable")
        owners, delivered = owners[order], delivered[order]
    first, last = bisect_left(owners, tiles.min()), bisect_right(owners, tiles.max())
    given = wide(owners[first:last]), bounds_of(delivered[first:last]), wide(tiles), bounds_of(boxes)
    inside: np.ndarray = numerics.contained_boxes(*given)
    return inside
