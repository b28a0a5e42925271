"""Dense products in blocks, sums of partial products, and moves of boxes of matrices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimdsim.numerics.compiled import compiled


def multiply_blocks(left_transposed: bool, right_transposed: bool) -> Callable[..., None]:
    """The partial products of a table: partial[part, rows, columns] = left[rows, inner] @ right[inner, columns].

    Either operand may be stored transposed; partial may lack its first axis. Blocks of one part that together fill a
    rectangle take one call of the matrix library, which touches exactly their boxes.
    """

    def compute(left, right, partial, row_start, row_stop, inner_start, inner_stop, start, stop, part):  # type: ignore[no-untyped-def]
        a = left.T if left_transposed else left
        b = right.T if right_transposed else right
        whole = partial if partial.ndim == 3 else partial[None]
        for number in np.unique(part):
            chosen = np.flatnonzero(part == number)
            for box in _rectangles(row_start[chosen], row_stop[chosen], start[chosen], stop[chosen]):
                top, bottom, first, last = box
                low, high = int(inner_start[chosen[0]]), int(inner_stop[chosen[0]])
                whole[number, top:bottom, first:last] = a[top:bottom, low:high] @ b[low:high, first:last]

    return compute


def _rectangles(
    row_start: np.ndarray, row_stop: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> list[tuple[int, int, int, int]]:
    """The rectangle that the boxes fill, or the boxes themselves if they leave gaps."""
    top, bottom, first, last = int(row_start.min()), int(row_stop.max()), int(start.min()), int(stop.max())
    if int(((row_stop - row_start) * (stop - start)).sum()) == (bottom - top) * (last - first):
        return [(top, bottom, first, last)]
    return list(zip(row_start.tolist(), row_stop.tolist(), start.tolist(), stop.tolist(), strict=True))


@compiled
def sum_parts(partial, total, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """total[box] = sum over the first axis of partial[:, box]."""
    for i in range(len(start)):
        for r in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                value = partial[0, r, n]
                for p in range(1, partial.shape[0]):
                    value += partial[p, r, n]
                total[r, n] = value


@compiled
def copy_boxes(source, target, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target[box] = source[box]."""
    for i in range(len(start)):
        for r in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[r, n] = source[r, n]


@compiled
def add_boxes(target, more, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target[box] += more[box]."""
    for i in range(len(start)):
        for r in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[r, n] += more[r, n]


@compiled
def sum_boxes(one, other, target, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target[box] = one[box] + other[box]."""
    for i in range(len(start)):
        for r in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[r, n] = one[r, n] + other[r, n]
