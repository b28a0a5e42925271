"""Several codelets in one pass, bit-identical to running them in turn, for values that nothing else reads.

Input gradient: products and sums of a tile's neurons, of a group's tiles, of all groups. With one listed id per vector
lane these sums run in their order while the lanes run side by side. Weight gradient: what samples add to a
replica over all timesteps, with replicas then summed, a strip of neurons at a time so that its operands stay in cache.
A sum that starts from zero is never -0, so one more zero in front changes no bit.
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.equations import superspike, unless_spiked
from mimdsim.numerics.fused.nested import EIGHT, dot_nested
from mimdsim.numerics.fused.vectors import WIDTH, add_sum_strip, fade_strip

SAMPLES = 16  # whose adjoints are spread at once, so that many rows follow one another: few ends of loops to foresee


@numba.njit(cache=True, nogil=True)
def in_eights(ids, counts, width, starts, rows):  # type: ignore[no-untyped-def]
    """Where the rows of width numbers begin that the samples list, each sample from EIGHT * starts[sample] on, the last
    one repeated until EIGHT are full. Returns how many there are; called without room (rows of length 0) it only says
    so."""
    total = 0
    for b in range(len(counts)):
        starts[b] = total
        count = counts[b, 1]
        eights = (count + EIGHT - 1) // EIGHT
        if len(rows):
            for k in range(eights * EIGHT):
                rows[total * EIGHT + k] = ids[b, min(k, count - 1)] * width
        total += eights
    starts[len(counts)] = total
    return total * EIGHT


@numba.njit(cache=True, nogil=True)
def spread(matrix, taken, empty, spread):  # type: ignore[no-untyped-def]
    """spread[block, row] = matrix[row, taken[block]], as `spread_row` does it."""
    for row in range(matrix.shape[0]):
        for block in range(len(spread)):
            spread_row(matrix[row], taken[block], empty, block, spread[block, row])


@numba.njit(cache=True, nogil=True)
def spread_row(row, taken, empty, block, into):  # type: ignore[no-untyped-def]
    """into[k] = row[taken[k]]; zero, which adds nothing to a sum, at the places empty[e, 1] of block empty[e, 0]."""
    for k in range(len(into)):
        into[k] = row[taken[k]]
    if len(empty) and block >= empty[0, 0]:
        for e in range(len(empty)):
            if empty[e, 0] == block:
                into[empty[e, 1]] = 0


@numba.njit(cache=True, nogil=True)
def input_gradient(g, sums, w, q, each, taken, empty, rows, counts, starts, ends, form, first, last):  # type: ignore[no-untyped-def]
    """g[sample, slot] of the ids that samples first..last-1 list.

    w [blocks, inputs, pieces * numbers * EIGHT] is spread; q, flat, is not: a sample begins `each` numbers after the
    one before, and taken and empty are as for `spread`. rows and starts as from `in_eights`; ends as for `dot_nested`;
    sums: room for two to a listed id; form: pieces of a block, numbers of a part.
    """
    pieces, numbers = form
    _, inputs, width = w.shape
    weights, some = w.reshape(-1), np.zeros(SAMPLES * width, q.dtype)
    begins = np.empty(starts[last] - starts[first], np.int64)  # of the adjoints of every eight
    for b in range(first, last):
        begins[starts[b] - starts[first] : starts[b + 1] - starts[first]] = (b - first) % SAMPLES * width
    first_sum = 2 * EIGHT * starts[first]
    sums[first_sum : 2 * EIGHT * starts[last]] = 0
    for block in range(len(w)):
        for low in range(first, last, SAMPLES):
            high = min(low + SAMPLES, last)
            if starts[low] == starts[high]:
                continue
            for b in range(low, high):
                begin = (b - low) * width
                spread_row(q[b * each :], taken[block], empty, block, some[begin : begin + width])
            eights = starts[low] - starts[first], starts[high] - starts[first]
            at, end = block * inputs * width, block * pieces
            listed = rows[EIGHT * starts[first] :]
            dot_nested(sums[first_sum:], weights, at, listed, *eights, some, begins, ends, end, numbers)
    for b in range(first, last):
        for k in range(counts[b, 1]):
            g[b, k] = sums[(2 * (starts[b] + k // EIGHT) + 1) * EIGHT + k % EIGHT]


@numba.njit(cache=True, nogil=True)
def adjoint(q, first, dv, v, g, ids, counts, gain, decay, v_previous, threshold, slope, fired, low, high):  # type: ignore[no-untyped-def]
    """`state_gradient` of dv for samples low..high-1, then q = gain * dv, then `scale_unless_spiked` of dv; fired: the
    threshold above which v_previous masks it.

    q [strips, rows, neighbours] from row `first` on: `aligned` strips of WIDTH, or one as wide as dv."""
    _, rows, width = q.shape
    neurons, one, zero = dv.shape[1], dv.dtype.type(1), dv.dtype.type(0)
    made, every, before = q.reshape(-1), dv.reshape(-1), v_previous.reshape(-1)
    for b in range(low, high):
        start = b * neurons
        for k in range(counts[b, 1]):
            n = ids[b, k]
            every[start + n] += g[b, k] * superspike(v[b, n] - threshold, slope, one)
        for n in range(0, neurons, width):
            at, place, some = start + n, (n // width * rows + first + b) * width, min(width, neurons - n)
            if some == WIDTH == width:
                fade_strip(every, at, gain, decay, n, made, place, before, at, fired)
                continue
            for k in range(some):
                made[place + k] = every[at + k] * gain[n + k]
                every[at + k] = unless_spiked(every[at + k] * decay[n + k], before[at + k], fired, zero)


@numba.njit(cache=True, nogil=True)
def record_lists(ids, counts, first, starts, listed):  # type: ignore[no-untyped-def]
    """Append the true spikes of every sample to `listed`, whose lists end at starts[first + sample + 1]."""
    end = starts[first]
    for b in range(counts.shape[0]):
        for k in range(counts[b, 0]):
            listed[end + k] = ids[b, k]
        end += counts[b, 0]
        starts[first + b + 1] = end


@numba.njit(cache=True, nogil=True)
def record_rows(q, first, history):  # type: ignore[no-untyped-def]
    """Store q in history [strips, rows, WIDTH], from row `first` on."""
    batch, neurons = q.shape
    for b in range(batch):
        for strip in range(history.shape[0]):
            begin = strip * WIDTH
            source, into = q[b, begin : min(neurons, begin + WIDTH)], history[strip, first + b]
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
    several copies of a layer first over the replicas of each, then over copies.

    A replica at a time: its samples' rows stay in a second-level cache where those of all samples would not."""
    inputs, neurons = total.shape
    flat, each = history.reshape(-1), replicas // copies
    sums = np.empty(inputs * WIDTH, total.dtype)
    for strip in range(first, last):
        begin, origin = strip * WIDTH, strip * history.shape[1] * WIDTH
        end = min(begin + WIDTH, neurons)
        for copy in range(copies):
            sums[:] = 0
            for replica in range(copy * each, (copy + 1) * each):
                for i in range(inputs):
                    low, high = columns[replica * inputs + i], columns[replica * inputs + i + 1]
                    if low < high:
                        add_sum_strip(sums, i * WIDTH, flat, origin, WIDTH, rows, low, high)
            for i in range(inputs):
                own, into = sums[i * WIDTH : (i + 1) * WIDTH], total[i, begin:end]
                for n in range(len(into)):
                    into[n] = own[n] if copy == 0 else into[n] + own[n]
