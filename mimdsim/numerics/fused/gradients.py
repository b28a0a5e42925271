"""Several codelets in one pass, bit-identical to running them in turn, for values that nothing else reads.

Input gradient: products and sums of a tile's neurons, of a group's tiles, of all groups. With one group per vector
lane each of these sums runs in its own order while the lanes run side by side. Weight gradient: what samples add to a
replica over all timesteps, with replicas then summed, a strip of neurons at a time so that its operands stay in cache.
A sum that starts from zero is never -0, so one more zero in front changes no bit.
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.fused.vectors import GROUPS, WIDTH, dot_piece, sum_runs

TOGETHER = 16  # listed ids whose groups are added up together; a stage has as many rows more than are listed


@numba.njit(cache=True, nogil=True)
def spread_groups(matrix, source_of, first, last, spread):  # type: ignore[no-untyped-def]
    """spread[piece, row] = matrix[row, source_of[piece]] for rows first..last-1; zero, which adds nothing to a sum,
    where source_of is -1."""
    pieces, _, width = spread.shape
    at, padded = np.maximum(source_of, 0).astype(np.uint32), (source_of < 0).sum(axis=1)
    zero = matrix.dtype.type(0)
    for row in range(first, last):
        source = matrix[row]
        for piece in range(pieces):
            into, taken = spread[piece, row], at[piece]
            for k in range(width):
                into[k] = source[taken[k]]
            if padded[piece]:
                for k in range(width):
                    into[k] = zero if source_of[piece, k] < 0 else into[k]


@numba.njit(cache=True, nogil=True)
def starts_of(counts, starts):  # type: ignore[no-untyped-def]
    """starts[b]: how many ids the samples before list. Returns how many all list."""
    total = 0
    for b in range(len(counts)):
        starts[b] = total
        total += counts[b, 1]
    return total


@numba.njit(cache=True, nogil=True)
def input_gradient(g, stage, w, q, ids, counts, starts, form, first, last):  # type: ignore[no-untyped-def]
    """g[sample, slot] of the ids that samples first..last-1 list, from w and q spread in pieces.

    stage [listed, GROUPS]: sums of groups, a band of them at a time, added up in their order. form: pieces of a band,
    numbers, groups.
    """
    pieces, numbers, groups = form
    weights, adjoints, listed, sums = w.reshape(-1), q.reshape(-1), ids.reshape(-1), stage.reshape(-1)
    _, inputs, width = w.shape
    capacity = ids.shape[1]
    for piece in range(len(w)):
        if piece % pieces == 0:
            for b in range(first, last):
                stage[starts[b] : starts[b] + counts[b, 1]] = 0
        for b in range(first, last):
            begin, at = b * capacity, (piece * q.shape[1] + b) * width
            where = piece * inputs * width
            dot_piece(sums, weights, where, listed, begin, begin + counts[b, 1], adjoints, at, starts[b], numbers)
        if piece % pieces < pieces - 1:
            continue
        band = piece // pieces
        real = min(GROUPS, groups - band * GROUPS)
        for b in range(first, last):
            for begin in range(0, counts[b, 1], TOGETHER):
                totals, at = np.zeros(TOGETHER, g.dtype), (starts[b] + begin) * GROUPS
                some = min(TOGETHER, counts[b, 1] - begin)
                if band:
                    totals[:some] = g[b, begin : begin + some]
                for group in range(real):
                    for k in range(TOGETHER):
                        totals[k] += sums[at + group + k * GROUPS]
                for k in range(some):
                    g[b, begin + k] = totals[k]


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
def record_rows(q, turn, history):  # type: ignore[no-untyped-def]
    """Store q of a turn in history [strips, turns * batch, WIDTH]."""
    batch, neurons = q.shape
    for b in range(batch):
        for strip in range(history.shape[0]):
            begin = strip * WIDTH
            source, into = q[b, begin : min(neurons, begin + WIDTH)], history[strip, turn * batch + b]
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
                rows[columns[column]] = place
                columns[column] += 1


@numba.njit(cache=True, nogil=True)
def summed_weight_gradient(total, replicas, copies, columns, rows, history, first, last):  # type: ignore[no-untyped-def]
    """total[id, n] = the sum over replicas of the sums of their rows of the history, for strips first..last-1; with
    several copies of a layer first over the replicas of each, then over copies."""
    inputs, neurons = total.shape
    flat, each = history.reshape(-1), replicas // copies
    own = np.zeros(WIDTH, total.dtype)
    for strip in range(first, last):
        begin = strip * WIDTH
        origin = strip * history.shape[1] * WIDTH
        for i in range(inputs):
            into = total[i, begin : min(begin + WIDTH, neurons)]
            for copy in range(copies):
                sum_runs(own, 0, flat, origin, rows, columns, copy * each * inputs + i, inputs, each)
                for n in range(len(into)):
                    into[n] = own[n] if copy == 0 else into[n] + own[n]
