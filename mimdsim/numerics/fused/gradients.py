"""Several codelets in one pass, bit-identical to running them in turn, for values that nothing else reads.

Input gradient: products and sums of a tile's neurons, of a group's tiles, of all groups. With one group per vector
lane each of these sums runs in its own order while the lanes run side by side. Weight gradient: what samples add to a
replica over all timesteps, with replicas then summed, a strip of neurons at a time so that its operands stay in cache.
A sum that starts from zero is never -0, so one more zero in front changes no bit.
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.fused.vectors import GROUPS, WIDTH, add_sums_run, dot_groups

TOGETHER = 8  # listed ids whose groups are added up together


@numba.njit(cache=True, nogil=True)
def spread_groups(matrix, where, spread):  # type: ignore[no-untyped-def]
    """spread[row, where[n]] = matrix[row, n]; other entries stay zero, which adds nothing to a sum."""
    for row in range(matrix.shape[0]):
        source, target = matrix[row], spread[row]
        for n in range(len(source)):
            target[where[n]] = source[n]


@numba.njit(cache=True, nogil=True)
def order_by_id(ids, counts, columns, sample, slot):  # type: ignore[no-untyped-def]
    """Where each listed id lies, in order of ids, so that a row of weights is fetched once. Returns how many.

    columns int64[inputs + 1], overwritten.
    """
    columns[:] = 0
    for b in range(counts.shape[0]):
        for k in range(counts[b, 1]):
            columns[ids[b, k] + 1] += 1
    for i in range(1, len(columns)):
        columns[i] += columns[i - 1]
    for b in range(counts.shape[0]):
        for k in range(counts[b, 1]):
            place = columns[ids[b, k]]
            columns[ids[b, k]] = place + 1
            sample[place], slot[place] = b, k
    return columns[-1]


@numba.njit(cache=True, nogil=True)
def input_gradient(g, w, q, ids, sample, slot, form, first, last):  # type: ignore[no-untyped-def]
    """g[sample, slot] of listed ids first..last-1, from w and q spread as [rows, bands of GROUPS, parts, numbers,
    GROUPS]; the groups of a slot are added up in their order. form: parts, numbers, groups."""
    parts, numbers, groups = form
    weights, adjoints = w.reshape(-1), q.reshape(-1)
    row, band = w.shape[1], parts * numbers * GROUPS
    lanes = row // (parts * numbers)
    stage = np.zeros((TOGETHER, lanes), g.dtype)
    flat = stage.reshape(-1)
    totals = np.zeros(TOGETHER, g.dtype)
    for begin in range(first, last, TOGETHER):
        some = min(TOGETHER, last - begin)
        for k in range(some):
            b = sample[begin + k]
            where = np.int64(ids[b, slot[begin + k]]) * row
            for number in range(lanes // GROUPS):
                into, offset = k * lanes + number * GROUPS, number * band
                dot_groups(flat, into, weights, where + offset, adjoints, b * row + offset, parts, numbers)
        totals[:] = 0
        for group in range(groups):
            for k in range(TOGETHER):
                totals[k] += stage[k, group]
        for k in range(some):
            g[sample[begin + k], slot[begin + k]] = totals[k]


@numba.njit(cache=True, nogil=True)
def record_lists(ids, counts, turn, starts, listed):  # type: ignore[no-untyped-def]
    """Append the true spikes of every sample in a turn to `listed`, whose lists end at starts[turn * batch + sample +
    1]."""
    batch = counts.shape[0]
    end = starts[turn * batch]
    for b in range(batch):
        for k in range(counts[b, 0]):
            listed[end + k] = ids[b, k]
        end += counts[b, 0]
        starts[turn * batch + b + 1] = end


@numba.njit(cache=True, nogil=True)
def record_rows(q, turn, turns, history):  # type: ignore[no-untyped-def]
    """Store q of a turn in history [strips, batch * turns, WIDTH], a sample's turns together."""
    batch, neurons = q.shape
    for b in range(batch):
        for strip in range(history.shape[0]):
            begin = strip * WIDTH
            source, into = q[b, begin : min(neurons, begin + WIDTH)], history[strip, b * turns + turn]
            for n in range(len(source)):
                into[n] = source[n]


@numba.njit(cache=True, nogil=True)
def sort_by_replica(replica_of_sample, inputs, turns, starts, listed, columns, rows):  # type: ignore[no-untyped-def]
    """rows[columns[r * inputs + id]:...]: rows of the history, in order of turns and samples, where a sample of
    replica r lists id. columns int64[replicas * inputs + 2]."""
    batch = len(replica_of_sample)
    columns[:] = 0
    for place in range(turns * batch):
        replica = replica_of_sample[place % batch]
        if replica >= 0:
            for k in range(starts[place], starts[place + 1]):
                columns[replica * inputs + listed[k] + 2] += 1
    for i in range(2, len(columns)):
        columns[i] += columns[i - 1]
    for place in range(turns * batch):
        replica = replica_of_sample[place % batch]
        if replica >= 0:
            for k in range(starts[place], starts[place + 1]):
                column = replica * inputs + listed[k] + 1
                rows[columns[column]] = place % batch * turns + place // batch
                columns[column] += 1


@numba.njit(cache=True, nogil=True)
def summed_weight_gradient(total, replicas, copies, columns, rows, history, first, last):  # type: ignore[no-untyped-def]
    """total[id, n] = the sum over replicas of the sums of their rows of the history, for strips first..last-1; with
    several copies of a layer first over the replicas of each, then over copies."""
    inputs, neurons = total.shape
    flat, each = history.reshape(-1), replicas // copies
    own = np.zeros((inputs, WIDTH), total.dtype)
    out = own.reshape(-1)
    for strip in range(first, last):
        begin = strip * WIDTH
        width = min(WIDTH, neurons - begin)
        origin = strip * history.shape[1] * WIDTH
        for copy in range(copies):
            own[:] = 0
            for replica in range(copy * each, (copy + 1) * each):
                for i in range(inputs):
                    low, high = columns[replica * inputs + i], columns[replica * inputs + i + 1]
                    if low < high:
                        add_sums_run(out, i * WIDTH, flat, origin, WIDTH, rows, low, high, width)
            for i in range(inputs):
                into = total[i, begin : begin + width]
                for n in range(width):
                    into[n] = own[i, n] if copy == 0 else into[n] + own[i, n]
