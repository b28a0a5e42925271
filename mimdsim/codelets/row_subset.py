"""Codelets for columns of whole matrices, changed to work on some rows of these: a tile's part of the batch."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mimdsim.codelets.dense import BOX
from mimdsim.numerics.dense.rows import OnRows
from mimdsim.program import Codelet

ROWS = ("row_start", "row_stop")
WHOLE = (":", BOX[1])


@lru_cache(maxsize=128)
def on_rows(codelet: Codelet, whole: tuple[str, ...] = ()) -> Codelet:
    """The codelet with `BOX` for every box that ends in whole columns (":", "start:stop"), and two columns more.

    whole: fields that stay as they are.

    Costs follow from the boxes; values are those of the codelet itself.
    """
    cut = tuple(item.box[-2:] == WHOLE and item.name not in whole for item in codelet.fields)
    fields = (
        replace(item, box=(*item.box[:-2], *BOX)) if part else item
        for item, part in zip(codelet.fields, cut, strict=True)
    )
    return replace(
        codelet,
        name=f"{codelet.name}Rows",
        fields=tuple(fields),
        columns=(*ROWS, *codelet.columns),
        compute=OnRows(codelet.compute, cut, len(codelet.columns)),
    )
