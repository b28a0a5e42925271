"""Long columns in as little memory as their numbers need, and tuples of them.

A program that uses all of a machine of many tiles has tens of millions of vertices, and most of its memory would be the
zeros of small numbers. Short columns stay as they are: there, types that are always the same are worth more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

LONG = 1 << 14  # entries
NUMBERS = np.int8, np.int16, np.int32
STORED = np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32
TILES = (np.int32,)  # which are computed with as they are: nothing comes to more tiles than it holds

_MADE: WeakValueDictionary[tuple[object, ...], np.ndarray] = WeakValueDictionary()


def uniform(column: np.ndarray) -> np.ndarray:
    """The same numbers; of a long array in which they are equal one for all, read-only, which takes no memory."""
    if column.size < LONG or column.flat[0] != column.flat[-1] or not (column == column.flat[0]).all():
        return column
    return np.broadcast_to(column.flat[0], column.shape)


def single(column: np.ndarray) -> Any:
    """The number of a column that holds one for all, else the column."""
    return column[0] if len(column) and not any(column.strides) else column


def compact(column: np.ndarray, kinds: tuple[type[np.signedinteger[Any]], ...] = NUMBERS) -> np.ndarray:
    """The same numbers, of a long array as by `uniform` or, whole ones, in the first of `kinds` that holds them.
    What computes with them widens them first: sums may not fit into it."""
    if column.size < LONG or column.dtype == kinds[0]:
        return column
    column = uniform(column)
    if not any(column.strides):
        return column
    narrow = narrowed(column, kinds)
    if narrow is column or (column.dtype.kind not in "iu" and (narrow != column).any()):
        return column
    return _one_of_equal(narrow)


def narrowed(column: np.ndarray, kinds: tuple[type[np.integer[Any]], ...]) -> np.ndarray:
    """Numbers in the first of `kinds` that holds them all; as they are if none does, or if there are none."""
    if not column.size:
        return column
    least, most = column.min(), column.max()
    fits = (kind for kind in kinds if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max)
    return column.astype(next(fits, column.dtype), copy=False)


def compact_of(
    numbers: np.ndarray, times: int, make: Callable[[np.ndarray, int], np.ndarray] = np.repeat
) -> np.ndarray:
    """`compact(make(numbers, times))` of whole numbers, `make` being np.repeat or np.tile: in few bytes from the
    beginning."""
    if numbers.size * times < LONG or (numbers == numbers[:1]).all():
        return compact(make(numbers, times))
    return _one_of_equal(make(narrowed(numbers, NUMBERS), times))


def _one_of_equal(made: np.ndarray) -> np.ndarray:
    """The array that was made before of the same numbers, if it is still in use: tables on the same tiles have many.
    Read-only, as it may be of several tables."""
    if made.size < LONG or made.dtype == np.int64:
        return made
    made.setflags(write=False)
    key = made.dtype, made.shape, made.strides, int(made.flat[0]), int(made.flat[-1]), int(made.sum(dtype=np.int64))
    known = _MADE.setdefault(key, made)
    return known if known is made or np.array_equal(known, made) else made


def take_rows(column: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Entries `rows` (numbers, or one bool for each) of a compact column, compact as well."""
    if any(column.strides):
        return _one_of_equal(column[rows])
    return np.broadcast_to(column[:1], int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows))


def ascends(column: np.ndarray) -> bool:
    """Whether every number is larger than the one before it."""
    return bool((column[1:] > column[:-1]).all())


def distinct(column: np.ndarray) -> np.ndarray:
    """Whole numbers, each once, ascending. As `np.unique` without what else that gives, which since numpy 2.3 takes a
    hash table and up to thirty times as long as this."""
    if column.ndim == 1 and ascends(column):
        return column.copy()
    ordered = np.sort(column, axis=None)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))]


def wide(column: np.ndarray) -> np.ndarray:
    """int64, contiguous and not read-only, for which kernels would be compiled again: to compute with."""
    made = np.ascontiguousarray(column, np.int64)
    return made if made.flags.writeable else made.copy()


def numbers(column: np.ndarray) -> tuple[int, ...]:
    """A column as a tuple; of a long one, equal numbers are one object: of tiles, most are equal to others."""
    if len(column) < LONG:
        return tuple(column.tolist())
    known: dict[int, int] = {}
    found: list[int] = []
    for first in range(0, len(column), LONG):
        part = column[first : first + LONG].tolist()
        found += map(known.setdefault, part, part)
    return tuple(found)
