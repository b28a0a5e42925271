"""How long a word travels over the chip: the route delays of an IPU2 grid (Mk2, Bow, C600).

A tile's physical number holds its place: bits 0-1 the lane (bit 0 the side of the column, bit 1 the member of the
exchange pair), bits 2-5 the column (0..15), the bits above the row (0..22). The two halves of the chip mirror each
other, so columns count folded: 0..7 from the outside in, 7..0 on the far half. Two parts add up:

    send -> input multiplexer   linear in rows and folded columns, with offsets by half, side and lane
    multiplexer -> memory       59 + 2 * row of the receiver

Source: the topology of osmarks/ipu-stack (commit ce7c7e9, written for a C600 of 1,472 tiles). Over all pairs of tiles
the sum is 25 to 171 cycles, median 69, mean 71.1, 95th percentile 115. The clocks of tiles are skewed by their own sync
delay, so these are relative times of a schedule; the row of the receiver cancels. That Mk2 and Bow have the same delays
is assumed: they have the same grid.
"""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError

COLUMNS = 16
ROWS = 23
LANES = 4
TILES = COLUMNS * ROWS * LANES
MUX_TO_MEMORY_CYCLES = 59
CYCLES_PER_ROW = 2


def physical_tiles(tiles: np.ndarray | int) -> np.ndarray:
    """int64, shape of `tiles`: physical numbers of logical tiles 0..1471.

    Logical tiles 2i and 2i+1 are partners at the exchange. The pairs fill 32 blocks of 23 rows, one for each side of
    each column, up one and down the next (snake). Source: osmarks/ipu-stack. Raises MappingError for a tile that the
    chip does not have.
    """
    logical = _checked(tiles)
    pair = logical >> 1
    block, along = np.divmod(pair, ROWS)
    row = np.where(block % 2 == 0, along, ROWS - 1 - along)
    place = (block // 2) * LANES + block % 2
    return row * (COLUMNS * LANES) + place + 2 * (logical & 1)


def mux_cycles(source_physical: np.ndarray, target_physical: np.ndarray) -> np.ndarray:
    """int64, broadcast: cycles from the send to the receiver's input multiplexer, -78..112, physical tile numbers."""
    row_s, column_s, lane_s = _parts(source_physical)
    row_d, column_d, lane_d = _parts(target_physical)
    half_s, half_d = column_s >> 3, column_d >> 3
    folded_s, folded_d = np.minimum(column_s, 15 - column_s), np.minimum(column_d, 15 - column_d)
    side_s, side_d = lane_s & 1, lane_d & 1
    turn = np.where(half_s == half_d, (column_s & 7) + 1, 16 - (column_s & 7))
    second = np.where(half_d == side_d, 2, 4)  # for the second member of an exchange pair, lane 2 or 3
    first = np.where(half_d == lane_d, 1, 5)
    across = 6 * (folded_d - folded_s - (half_s ^ side_s)) + np.where(lane_d > 1, second, first)
    columns = 4 * (folded_s - folded_d)
    rows = CYCLES_PER_ROW * (row_s - row_d)
    return 8 * half_s + 3 - column_d + turn + columns + rows + np.abs(across) - 34


def route_cycles(source_tiles: np.ndarray | int, target_tiles: np.ndarray | int) -> np.ndarray:
    """int64, broadcast: cycles from the send on one logical tile to the word in the memory of another.

    Raises MappingError for a tile that the chip does not have (an IPU2 grid has tiles 0..1471).
    """
    source, target = physical_tiles(source_tiles), physical_tiles(target_tiles)
    row, _, _ = _parts(target)
    return mux_cycles(source, target) + MUX_TO_MEMORY_CYCLES + CYCLES_PER_ROW * row


def _parts(physical: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, column, lane) of physical tile numbers."""
    return physical >> 6, (physical >> 2) & 15, physical & 3


def _checked(tiles: np.ndarray | int) -> np.ndarray:
    found = np.asarray(tiles)
    wrong = found[(found < 0) | (found >= TILES)] if found.size else found
    if not np.issubdtype(found.dtype, np.integer) or wrong.size:
        what = f"tile {wrong.flat[0]}" if wrong.size else f"tiles of type {found.dtype}"
        raise MappingError(
            f"route delay: {what}; an IPU2 grid has tiles 0 to {TILES - 1}, give whole numbers in that range"
        )
    return found.astype(np.int64)
