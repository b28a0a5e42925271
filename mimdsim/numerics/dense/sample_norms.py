"""Norms of samples on boxes of [rows, columns] matrices, each of one sample and one group of columns."""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled


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
