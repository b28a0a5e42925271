"""Clipping on tiles: the norm of all gradients, and its factor; the largest of all weights."""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled


@compiled
def sum_squares(gradient, partial, start, stop, part):  # type: ignore[no-untyped-def]
    """partial[part] = sum of the squares of gradient[:, start:stop]."""
    for i in range(len(part)):
        total = partial.dtype.type(0)
        for row in range(gradient.shape[0]):
            for n in range(start[i], stop[i]):
                total += gradient[row, n] * gradient[row, n]
        partial[part[i]] = total


@compiled
def add_parts(partial, totals, which):  # type: ignore[no-untyped-def]
    """totals[which] = sum of partial."""
    for i in range(len(which)):
        total = totals.dtype.type(0)
        for k in range(len(partial)):
            total += partial[k]
        totals[which[i]] = total


@compiled
def clip_factor(totals, factor, place, largest_norm, floor):  # type: ignore[no-untyped-def]
    """factor = min(1, largest_norm / (sqrt of the sum of totals + floor))."""
    for i in range(len(place)):
        total = totals.dtype.type(0)
        for k in range(len(totals)):
            total += totals[k]
        factor[place[i]] = min(factor.dtype.type(1), largest_norm / (np.sqrt(total) + floor))


@compiled
def prune_gradient(gradient, w, start, stop):  # type: ignore[no-untyped-def]
    """gradient[:, start:stop] = 0 where w is."""
    for row in range(gradient.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                if w[row, n] == 0:
                    gradient[row, n] = 0


@compiled
def scale_all(gradient, factor, start, stop):  # type: ignore[no-untyped-def]
    """gradient[:, start:stop] *= factor[0]."""
    for row in range(gradient.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                gradient[row, n] = gradient[row, n] * factor[0]


@compiled
def largest(w, partial, start, stop, part):  # type: ignore[no-untyped-def]
    """partial[part] = the largest of w[:, start:stop], in size."""
    for i in range(len(part)):
        found = partial.dtype.type(0)
        for row in range(w.shape[0]):
            for n in range(start[i], stop[i]):
                found = max(found, abs(w[row, n]))
        partial[part[i]] = found


@compiled
def largest_of(partial, largest, which):  # type: ignore[no-untyped-def]
    """largest[which] = the largest of partial."""
    for i in range(len(which)):
        largest[which[i]] = partial.max()
