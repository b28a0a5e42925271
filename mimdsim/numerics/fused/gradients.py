"""Several codelets in one pass, bit-identical to running them in turn, for values that nothing else reads.

Input gradient: products and sums of a tile's neurons, of a group's tiles, of all groups. With one listed id per vector
lane these sums run in their order while the lanes run side by side. Weight gradient: what samples add to a
replica over all timesteps, with replicas then summed, a strip of neurons at a time so that its operands stay in cache.
A sum that starts from zero is never -0, so one more zero in front changes no bit.
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.equations import superspike, unless_spiked
from mimdsim.numerics.fused.nested import EIGHT, deal, dot_nested
from mimdsim.numerics.fused.vectors import WIDTH, add_sum_strip

SAMPLES = 16  # whose adjoints are spread at once, so that many rows follow one another: few ends of loops to foresee


@compiled
def in_eights(lists, width, begins, rows):  # type: ignore[no-untyped-def]
    """Where the rows of width numbers begin that places list, each place from EIGHT * begins[place] on, the last one
    repeated until EIGHT are full. Returns how many there are; called without room (rows of length 0) it only says so.

    lists: where that of each place begins, how many true spikes it has, how much it lists; the lists.
    """
    starts, _, listed, ids = lists
    total = 0
    for place in range(len(listed)):
        begins[place] = total
        count, start = listed[place], starts[place]
        eights = (count + EIGHT - 1) // EIGHT
        if len(rows):
            own, given = rows[total * EIGHT : (total + eights) * EIGHT], ids[start : start + count]
            for k in range(count):
                own[k] = given[k] * width
            for k in range(count, len(own)):
                own[k] = own[count - 1]
        total += eights
    begins[len(listed)] = total
    return total * EIGHT


@compiled
def spread(matrix, order, numbers, into, first, last):  # type: ignore[no-untyped-def]
    """into[block, row] for blocks first..last-1: of every row of the matrix, as by `spread_rows`."""
    (rows, each), width = matrix.shape, into.shape[2]
    source, made = matrix.reshape(-1), into.reshape(-1)
    for block in range(first, last):
        spread_rows(source, 0, each, rows, order, numbers, block, made, block * rows * width, width)


@compiled
def spread_rows(source, first, each, count, order, numbers, block, into, at, width):  # type: ignore[no-untyped-def]
    """into[at + width * row + k] = source[first + each * row + taken[block, k]], row < count, k < width; zero, which
    adds nothing to a sum, at the places empty[e, 1] of block empty[e, 0]. order: taken, empty, and whether a block
    takes numbers that follow one another, as for `deal`."""
    taken, empty, adjoining = order
    if adjoining[block]:
        deal(source, first + taken[block, 0], each, count, into, at, width, numbers)
        return
    own = taken[block]
    for row in range(count):
        given, made = source[first + each * row :], into[at + width * row : at + width * (row + 1)]
        for k in range(len(made)):
            made[k] = given[own[k]]
        if len(empty) and block >= empty[0, 0]:
            for e in range(len(empty)):
                if empty[e, 0] == block:
                    made[empty[e, 1]] = 0


@compiled
def input_gradient(blocks, sums, w, q, each, order, rows, begins, ends, form, first, last):  # type: ignore[no-untyped-def]
    """Goes on with the sums of what places first..last-1 list over some blocks (first, last + 1) of neurons.

    sums: two to a listed id, zero at first. w [blocks, inputs, pieces * numbers * EIGHT] is spread; q, flat, is not: a
    place begins `each` numbers after the one before, and order is as for `spread_rows`. rows and begins as from
    `in_eights`; ends as for `dot_nested`; form: pieces of a block, numbers of a part.
    """
    pieces, numbers = form
    _, inputs, width = w.shape
    weights, some = w.reshape(-1), np.zeros(SAMPLES * width, q.dtype)
    adjoints = np.empty(begins[last] - begins[first], np.int64)  # where those of every eight begin
    for place in range(first, last):
        adjoints[begins[place] - begins[first] : begins[place + 1] - begins[first]] = (place - first) % SAMPLES * width
    own, listed = sums[2 * EIGHT * begins[first] :], rows[EIGHT * begins[first] :]
    for block in range(blocks[0], blocks[1]):
        for low in range(first, last, SAMPLES):
            high = min(low + SAMPLES, last)
            if begins[low] == begins[high]:
                continue
            spread_rows(q, low * each, each, high - low, order, numbers, block, some, 0, width)
            eights = begins[low] - begins[first], begins[high] - begins[first]
            dot_nested(
                own, weights, block * inputs * width, listed, *eights, some, adjoints, ends, block * pieces, numbers
            )


@compiled
def listed_gradients(g, sums, listed, begins, first, last):  # type: ignore[no-untyped-def]
    """g[place, slot] of what places first..last-1 list, from the sums of all blocks."""
    for place in range(first, last):
        own = g[place]
        for k in range(listed[place]):
            own[k] = sums[(2 * (begins[place] + k // EIGHT) + 1) * EIGHT + k % EIGHT]


@compiled
def adjoint(q, dv, v, g, ids, counts, gain, decay, v_previous, threshold, slope, fired, low, high):  # type: ignore[no-untyped-def]
    """`state_gradient` of dv for samples low..high-1, then q = gain * dv, then `scale_unless_spiked` of dv; fired: the
    threshold above which v_previous masks it."""
    one, zero = dv.dtype.type(1), dv.dtype.type(0)
    for b in range(low, high):
        for k in range(counts[b, 1]):
            n = ids[b, k]
            dv[b, n] += g[b, k] * superspike(v[b, n] - threshold, slope, one)
        every, made, before = dv[b], q[b], v_previous[b]
        for n in range(len(made)):
            made[n] = every[n] * gain[n]
            every[n] = unless_spiked(every[n] * decay[n], before[n], fired, zero)


@compiled
def record_lists(ids, counts, first, starts, listed):  # type: ignore[no-untyped-def]
    """Append the true spikes of every sample to `listed`, whose lists end at starts[first + sample + 1]."""
    end = starts[first]
    for b in range(counts.shape[0]):
        for k in range(counts[b, 0]):
            listed[end + k] = ids[b, k]
        end += counts[b, 0]
        starts[first + b + 1] = end


@compiled
def record_rows(q, first, history):  # type: ignore[no-untyped-def]
    """Store q in history [strips, rows, WIDTH], from row `first` on."""
    batch, neurons = q.shape
    for b in range(batch):
        for strip in range(history.shape[0]):
            begin = strip * WIDTH
            source, into = q[b, begin : min(neurons, begin + WIDTH)], history[strip, first + b]
            for n in range(len(source)):
                into[n] = source[n]


@compiled
def sort_by_replica(replica_of_sample, inputs, lists, columns, rows):  # type: ignore[no-untyped-def]
    """rows[columns[r * inputs + id]:...]: the places, ascending, where a sample of replica r lists id as a true spike;
    columns int64[replicas * inputs + 2]. lists: as for `in_eights`."""
    starts, trues, _, ids = lists
    batch = len(replica_of_sample)
    columns[:] = 0
    for place in range(len(trues)):
        replica = replica_of_sample[place % batch]
        if replica >= 0:
            for k in range(starts[place], starts[place] + trues[place]):
                columns[replica * inputs + ids[k] + 2] += 1
    for i in range(2, len(columns)):
        columns[i] += columns[i - 1]
    for place in range(len(trues)):
        replica = replica_of_sample[place % batch]
        if replica >= 0:
            for k in range(starts[place], starts[place] + trues[place]):
                column = replica * inputs + ids[k] + 1
                rows[columns[column]] = place
                columns[column] += 1


@compiled
def summed_weight_gradient(total, replicas, copies, columns, rows, history, first, last):  # type: ignore[no-untyped-def]
    """total[id, n] = the sum over replicas of the sums of their rows of the history, for strips first..last-1; with
    several copies of a layer first over the replicas of each, then over copies. A history of fewer strips begins again
    after its last.

    A replica at a time: its samples' rows stay in a second-level cache where those of all samples would not."""
    inputs, neurons = total.shape
    flat, each = history.reshape(-1), replicas // copies
    sums = np.empty(inputs * WIDTH, total.dtype)
    for strip in range(first, last):
        begin, origin = strip * WIDTH, strip % len(history) * history.shape[1] * WIDTH
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
