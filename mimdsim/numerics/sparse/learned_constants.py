"""Gradients of coefficients that neurons learn: what multiplies them, times the adjoint that they add to, summed.

A place is a row of `places` int64[n, 3]: the state that a coefficient adds to (as many as there are: the potential),
what it multiplies (states, the current, one), and when: always (0), after a spike (1), without one (2).
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled

ALWAYS, AFTER, QUIET = range(3)
AT_ONCE = 16


@compiled
def _add_sample(sums, dx, du, fired, x, current, b, first, places, threshold):  # type: ignore[no-untyped-def]
    """sums += of sample b, neurons from `first` on, at all places."""
    states, last = dx.shape[0], first + len(sums)
    for k in range(len(places)):
        target, column, when = places[k, 0], places[k, 1], places[k, 2]
        adjoint = dx[target, b, first:last] if target < states else du[b, first:last]
        for n in range(len(sums)):
            if when != ALWAYS and (fired[b, first + n] > threshold) != (when == AFTER):
                continue
            if column < states:
                sums[n] += adjoint[n] * x[column, b, first + n]
            elif column == states:
                sums[n] += adjoint[n] * current[b, first + n]
            else:
                sums[n] += adjoint[n]


@compiled
def _add_samples(sums, dx, du, fired, x, current, begin, end, first, places, threshold):  # type: ignore[no-untyped-def]
    """sums += of samples begin..end-1, some at a time: terms of many samples cancel, and short sums round less."""
    part = np.zeros_like(sums)
    for block in range(begin, end, AT_ONCE):
        part[:] = 0
        for b in range(block, min(block + AT_ONCE, end)):
            _add_sample(part, dx, du, fired, x, current, b, first, places, threshold)
        for n in range(len(sums)):
            sums[n] += part[n]


@compiled
def replica_gradient(  # type: ignore[no-untyped-def]
    dc, dx, du, fired, x, current, replica, sample_start, sample_stop, start, stop, places, threshold
):
    """dc[replica, 0, n] += of the vertex's samples and neurons."""
    for i in range(len(replica)):
        sums = dc[replica[i], 0, start[i] : stop[i]]
        begin, end = sample_start[i], sample_stop[i]
        _add_samples(sums, dx, du, fired, x, current, begin, end, start[i], places, threshold)


@compiled
def piece_gradient(  # type: ignore[no-untyped-def]
    pieces, dx, du, fired, x, current, piece, row_start, row_stop, start, stop, places, threshold
):
    """pieces[piece, n] = of the vertex's samples and neurons."""
    for i in range(len(piece)):
        sums = pieces[piece[i], start[i] : stop[i]]
        for n in range(len(sums)):
            sums[n] = 0
        begin, end = row_start[i], row_stop[i]
        _add_samples(sums, dx, du, fired, x, current, begin, end, start[i], places, threshold)
