"""Slices, updates, fills and sums of whole boxes; norms of samples on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.numerics.compiled import compiled

# ---- work on some rows of matrices by a function for whole ones


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


@compiled
def move_rows(source, target, timestep, start, stop):  # type: ignore[no-untyped-def]
    """target[rows] = source[rows]; `timestep` says which entry of a sequence; the caller has taken it."""
    for i in range(len(start)):
        for row in range(start[i], stop[i]):
            for k in range(source.shape[1]):
                target[row, k] = source[row, k]


@compiled
def move_columns(source, target, timestep, start, stop):  # type: ignore[no-untyped-def]
    """target[..., columns] = source[..., columns]."""
    old, new = source.reshape(-1, source.shape[-1]), target.reshape(-1, target.shape[-1])
    for row in range(len(old)):
        for i in range(len(start)):
            before, after = old[row, start[i] : stop[i]], new[row, start[i] : stop[i]]
            for n in range(len(after)):
                after[n] = before[n]


@compiled
def move_slots(source, target, timestep, sample, slot_start, slot_stop):  # type: ignore[no-untyped-def]
    """target[sample, slots] = source[sample, slots]."""
    for i in range(len(sample)):
        old, new = source[sample[i], slot_start[i] : slot_stop[i]], target[sample[i], slot_start[i] : slot_stop[i]]
        for k in range(len(new)):
            new[k] = old[k]


@compiled
def move_boxes(source, target, timestep, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target[..., box] = source[..., box]."""
    keep_boxes(source, target, row_start, row_stop, start, stop)


@compiled
def fill_columns(target, start, stop):  # type: ignore[no-untyped-def]
    """target[..., columns] = 0."""
    rows = target.reshape(-1, target.shape[-1])
    for row in range(len(rows)):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                rows[row, n] = 0


@compiled
def fill_boxes(target, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target[..., box] = 0."""
    blocks = target.reshape(-1, target.shape[-2], target.shape[-1])
    for i in range(len(start)):
        for s in range(len(blocks)):
            for r in range(row_start[i], row_stop[i]):
                for n in range(start[i], stop[i]):
                    blocks[s, r, n] = 0


@compiled
def fill_vector(target, start, stop, value):  # type: ignore[no-untyped-def]
    """target[range] = value."""
    for i in range(len(start)):
        for n in range(start[i], stop[i]):
            target[n] = value


@compiled
def fill_rows(target, start, stop):  # type: ignore[no-untyped-def]
    """target[rows] = 0."""
    for i in range(len(start)):
        for row in range(start[i], stop[i]):
            for k in range(target.shape[1]):
                target[row, k] = 0


@compiled
def sum_replicas(replicas, total, start, stop):  # type: ignore[no-untyped-def]
    """total[:, columns] = sum over the first axis of replicas[:, :, columns]."""
    for row in range(total.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                value = replicas[0, row, n]
                for r in range(1, replicas.shape[0]):
                    value += replicas[r, row, n]
                total[row, n] = value


@compiled
def sum_own_replicas(replicas, totals, first, last, row_start, row_stop, start, stop, copy):  # type: ignore[no-untyped-def]
    """totals[copy, box] = sum of replicas[first:last, box]."""
    for i in range(len(start)):
        for row in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                value = replicas[first[i], row, n]
                for r in range(first[i] + 1, last[i]):
                    value += replicas[r, row, n]
                totals[copy[i], row, n] = value


@compiled
def sum_some_replicas(replicas, total, first, last, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """total[box] = sum of replicas[first:last, box]."""
    alone = np.zeros(len(first), np.int64)
    sum_own_replicas(replicas, np.expand_dims(total, 0), first, last, row_start, row_stop, start, stop, alone)


@compiled
def add_replicas(replicas, totals, first, last, row_start, row_stop, start, stop, copy):  # type: ignore[no-untyped-def]
    """totals[copy, box] += sum of replicas[first:last, box]."""
    for i in range(len(start)):
        for row in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                value = totals[copy[i], row, n]
                for r in range(first[i], last[i]):
                    value += replicas[r, row, n]
                totals[copy[i], row, n] = value


@compiled
def fill_replicas(target, first, last, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target[first:last, box] = 0."""
    for i in range(len(start)):
        for r in range(first[i], last[i]):
            for row in range(row_start[i], row_stop[i]):
                for n in range(start[i], stop[i]):
                    target[r, row, n] = 0


@compiled
def fill_slots(target, sample, slot_start, slot_stop):  # type: ignore[no-untyped-def]
    """target[sample, slots] = 0."""
    fill_boxes(target, sample, sample + 1, slot_start, slot_stop)


@compiled
def copy_columns(source, target, start, stop):  # type: ignore[no-untyped-def]
    """target[:, columns] = source[:, columns]."""
    move_columns(source, target, start, start, stop)


@compiled
def count_on(timestep, tile, by):  # type: ignore[no-untyped-def]
    """timestep[tile] += by."""
    for i in range(len(tile)):
        timestep[tile[i]] += by


@compiled
def offset_from(previous, timestep, tile, by):  # type: ignore[no-untyped-def]
    """previous[tile] = timestep[tile] + by."""
    for i in range(len(tile)):
        previous[tile[i]] = timestep[tile[i]] + by


@compiled
def random_offsets(offsets, slot):  # type: ignore[no-untyped-def]
    """offsets[slot] = a number of a linear congruential sequence."""
    for i in range(len(slot)):
        offsets[slot[i]] = (slot[i] * 1103 + 12345) & 0x7FFF


# ---- norms of samples on boxes of [rows, columns] matrices, each of one sample and one group of columns


@compiled
def sum_box(source, pieces, row_start, row_stop, start, stop, part):  # type: ignore[no-untyped-def]
    """pieces[part] = the sum of a box."""
    for i in range(len(start)):
        total = source.dtype.type(0)
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                total += source[b, n]
        pieces[part[i]] = total


@compiled
def sum_box_apart(source, mean, pieces, row_start, row_stop, start, stop, sample, group, part):  # type: ignore[no-untyped-def]
    """pieces[part] = the sum of the squared distances from the mean."""
    for i in range(len(start)):
        total = source.dtype.type(0)
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                apart = source[b, n] - mean[sample[i], group[i]]
                total += apart * apart
        pieces[part[i]] = total


@compiled
def sum_box_products(q, made, sums, products, row_start, row_stop, start, stop, part):  # type: ignore[no-untyped-def]
    """sums[part] = the sum of a box of q, products[part] that of q * made."""
    for i in range(len(start)):
        total = product = q.dtype.type(0)
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                total += q[b, n]
                product += q[b, n] * made[b, n]
        sums[part[i]] = total
        products[part[i]] = product


@compiled
def sum_box_product(q, made, products, row_start, row_stop, start, stop, part):  # type: ignore[no-untyped-def]
    """products[part] = the sum of a box of q * made."""
    for i in range(len(start)):
        product = q.dtype.type(0)
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                product += q[b, n] * made[b, n]
        products[part[i]] = product


@compiled
def average_parts(average, pieces, sample, group, first, last, values):  # type: ignore[no-untyped-def]
    """average[sample, group] = the sum of pieces[first:last], divided by the number of values."""
    for i in range(len(first)):
        total = pieces[first[i]]
        for p in range(first[i] + 1, last[i]):
            total += pieces[p]
        average[sample[i], group[i]] = total / values


@compiled
def standardise_boxes(  # type: ignore[no-untyped-def]
    source, mean, variance, target, row_start, row_stop, start, stop, sample, group, epsilon
):
    """target = (source - mean) / sqrt(variance + epsilon)."""
    for i in range(len(start)):
        inverse = source.dtype.type(1) / np.sqrt(variance[sample[i], group[i]] + epsilon)
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = (source[b, n] - mean[sample[i], group[i]]) * inverse


@compiled
def standardise_gradient(  # type: ignore[no-untyped-def]
    q, made, variance, mean, slope, target, row_start, row_stop, start, stop, sample, group, epsilon
):
    """target = (q - mean - slope * made) / sqrt(variance + epsilon)."""
    for i in range(len(start)):
        s, g = sample[i], group[i]
        inverse = q.dtype.type(1) / np.sqrt(variance[s, g] + epsilon)
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = (q[b, n] - mean[s, g] - slope[s, g] * made[b, n]) * inverse


@compiled
def scale_boxes(source, variance, target, row_start, row_stop, start, stop, sample, group, epsilon):  # type: ignore[no-untyped-def]
    """target = source / sqrt(variance + epsilon)."""
    for i in range(len(start)):
        inverse = source.dtype.type(1) / np.sqrt(variance[sample[i], group[i]] + epsilon)
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = source[b, n] * inverse


@compiled
def scale_gradient(q, made, variance, slope, target, row_start, row_stop, start, stop, sample, group, epsilon):  # type: ignore[no-untyped-def]
    """target = (q - slope * made) / sqrt(variance + epsilon)."""
    for i in range(len(start)):
        s, g = sample[i], group[i]
        inverse = q.dtype.type(1) / np.sqrt(variance[s, g] + epsilon)
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = (q[b, n] - slope[s, g] * made[b, n]) * inverse
