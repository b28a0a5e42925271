"""How far measurements may be off: what their table says, or a share of the figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mimdsim.base.errors import DataFileError, DescriptionError, shortened
from mimdsim.validation.reference_table import Row
from mimdsim.validation.tables import cells_of

COLUMN = "spread"  # of a table: one standard deviation, "0.2" in the unit of the figure or "3 %" of it
LEAST, MOST = 1e-6, 1.0  # shares of a figure


def spreads(rows: Sequence[Row], tables: Sequence[Path], share: float) -> np.ndarray:
    """float64[rows]: one standard deviation of each, in its unit: its cell of the column `spread`, else the standard
    error of its mean, else `share` of it. Raises DataFileError for a cell that is none."""
    if not LEAST <= share <= MOST:
        raise DescriptionError("--spread", [f"{share:g} of a figure: give {LEAST:g} to {MOST:g}, e.g. 0.02 for 2 %"])
    cells = {path.name: (path, cells_of(path, COLUMN)) for path in tables}
    return np.array([_spread(row, *cells[row.file], share) for row in rows])


def _spread(row: Row, path: Path, cells: dict[int, str], share: float) -> float:
    assert row.bearing is not None
    text = cells.get(row.bearing.line)
    measured = row.bearing.measured
    if text is None:
        return max(row.noise if row.noise is not None else share * measured, LEAST * measured)
    relative = text.endswith("%")
    try:
        found = float(text.removesuffix("%")) * (measured / 100 if relative else 1.0)
    except ValueError:
        found = math.nan
    if not LEAST * measured <= found <= MOST * measured:
        raise DataFileError(
            path,
            f"line {row.bearing.line}, column '{COLUMN}': '{shortened(text)}' is no spread of {measured:g}: write one "
            f"standard deviation, in the figure's unit or as '3 %', from {LEAST:g} of it to all of it",
        )
    return found
