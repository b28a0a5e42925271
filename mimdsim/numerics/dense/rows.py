"""Work on some rows of matrices by a function for whole ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.numerics.compiled import compiled


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
        for first, last in np.unique(np.stack([start, stop]), axis=1).T.tolist():
            chosen = np.flatnonzero((start == first) & (stop == last))
            rows = slice(first, last)
            views = (array[..., rows, :] if cut else array for array, cut in zip(arrays, self.cut, strict=True))
            self.compute(*views, *(column[chosen] for column in columns), *constants)


@compiled
def in_time(matrix):  # type: ignore[no-untyped-def]
    """[timesteps, rows, columns] of a matrix or a sequence of it."""
    if matrix.ndim == 2:
        return np.expand_dims(matrix, 0)
    return matrix


@compiled
def keep_boxes(source, target, first, last, start, stop, one_row=0):  # type: ignore[no-untyped-def]
    """target[..., box] = source[..., box]; one_row 1: `last` is the row itself."""
    old = source.reshape(-1, source.shape[-2], source.shape[-1])
    new = target.reshape(-1, target.shape[-2], target.shape[-1])
    for i in range(len(start)):
        for s in range(len(old)):
            for row in range(first[i], last[i] + one_row):
                before, after = old[s, row, start[i] : stop[i]], new[s, row, start[i] : stop[i]]
                for n in range(len(after)):
                    after[n] = before[n]


@dataclass(frozen=True)
class Kept:
    """`compute(*arrays, *columns, *constants)`, then what it left in the array at `place` copied to one array more,
    behind the `fields` arrays of its own. boxes: the columns of first and last row (the same: one row), start, stop."""

    compute: Callable[..., None]
    fields: int
    place: int
    boxes: tuple[int, int, int, int]

    def __call__(self, *given: Any) -> None:
        arrays, kept, rest = given[: self.fields], given[self.fields], given[self.fields + 1 :]
        self.compute(*arrays, *rest)
        first, last, start, stop = self.boxes
        one_row = int(first == last)
        keep_boxes(arrays[self.place], kept, rest[first], rest[last], rest[start], rest[stop], one_row)


def plain(compute: Callable[..., None]) -> Callable[..., None]:
    """The function itself of one that works on some rows, or keeps what it leaves."""
    return compute.compute if isinstance(compute, OnRows | Kept) else compute
