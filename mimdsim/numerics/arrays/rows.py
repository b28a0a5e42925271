"""Work on some rows of matrices by a function for whole ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class OnRows:
    """`compute(*arrays, *columns, *constants)` for the rows that two columns more, start and stop, name before the
    others: once for every range, with views of these rows (the last axis but one) of the arrays that `cut` names."""

    compute: Callable[..., None]
    cut: tuple[bool, ...]
    columns: int

    def __call__(self, *given: Any) -> None:
        arrays, (start, stop, *rest) = given[: len(self.cut)], given[len(self.cut) :]
        columns, constants = rest[: self.columns], rest[self.columns :]
        for first in np.unique(start).tolist():
            chosen = np.flatnonzero(start == first)
            rows = slice(first, int(stop[chosen[0]]))
            views = (array[..., rows, :] if cut else array for array, cut in zip(arrays, self.cut, strict=True))
            self.compute(*views, *(column[chosen] for column in columns), *constants)
