"""A layer of sparse spiking neurons over all timesteps at once, without tiles.

Weights are stored in blocks of WIDTH neurons, [blocks, inputs, WIDTH], so that a listed id adds WIDTH adjacent weights
and a block stays in cache while all timesteps pass by. Lists are kept end to end: the ids of place t * batch + b are
ids[starts[place]:starts[place + 1]], true spikes first, `trues[place]` of them; slopes and over_* are those of
`functional.lists.Lists`, whose arrays are passed together. Only the potentials of listed neurons are kept.
Blocks, samples and places are independent of each other: a caller may give any share of them to a thread and gets the
same bits.
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.equations import integrated, superspike
from mimdsim.numerics.fused.vectors import WIDTH, above, add_strip, dot_strip, lowest_bit

ONE_BIT = np.uint64(1)


@numba.njit(cache=True, nogil=True)
def forward_blocks(first, last, batch, lag, w, neurons, source, constants, near_lists, spike_lists):  # type: ignore[no-untyped-def]
    """Advance blocks first..last-1 through all timesteps; their lists (ids in the block, surrogate slopes) get running
    ends [blocks, places]. lag: how many places back the input of a place is (0, or batch: the previous timestep).

    constants: decay, scale of the currents, threshold, second threshold, slope of the surrogate.
    """
    decay, scale, threshold, second_threshold, slope = constants
    starts, trues, ids = source[:3]
    near_ids, near_slopes, near_ends = near_lists
    spike_ids, spike_slopes, spike_ends = spike_lists
    inputs, weights, places = w.shape[1], w.reshape(-1), near_ends.shape[1]
    zero, one = w.dtype.type(0), w.dtype.type(1)
    v = np.zeros((batch, WIDTH), w.dtype)
    current = np.zeros(WIDTH, w.dtype)
    potentials, low = v.reshape(-1), min(threshold, second_threshold)
    for block in range(first, last):
        v[:] = 0
        real = min(WIDTH, neurons - block * WIDTH)
        near, spikes = 0, 0
        for place in range(places):
            b = place % batch
            current[:] = 0
            before = place - lag
            if before >= 0:
                begin = starts[before]
                add_strip(current, 0, weights, block * inputs * WIDTH, WIDTH, ids, begin, begin + trues[before])
            state = v[b]
            for n in range(WIDTH):
                state[n] = integrated(state[n], current[n], decay, scale, threshold, zero)
            bits = above(potentials, b * WIDTH, low)
            while bits != 0:
                n = lowest_bit(bits)
                bits &= bits - ONE_BIT
                if n >= real:
                    break
                u = state[n]
                each = superspike(u - threshold, slope, one)
                if u > threshold:
                    spike_ids[block, spikes] = n
                    spike_slopes[block, spikes] = each
                    spikes += 1
                else:
                    near_ids[block, near] = n
                    near_slopes[block, near] = each
                    near += 1
            near_ends[block, place] = near
            spike_ends[block, place] = spikes


@numba.njit(cache=True, nogil=True)
def count_listed(capacity, near_ends, spike_ends, starts, trues, over_starts):  # type: ignore[no-untyped-def]
    """Starts of the joined lists and of those of dropped spikes; true spikes go before gradient entries."""
    blocks, places = near_ends.shape
    starts[0] = 0
    over_starts[0] = 0
    for place in range(places):
        fired, near = 0, 0
        for block in range(blocks):
            fired += spike_ends[block, place]
            near += near_ends[block, place]
            if place:
                fired -= spike_ends[block, place - 1]
                near -= near_ends[block, place - 1]
        trues[place] = min(fired, capacity)
        starts[place + 1] = starts[place] + min(fired + near, capacity)
        over_starts[place + 1] = over_starts[place] + max(0, fired - capacity)


@numba.njit(cache=True, nogil=True)
def join_lists(first, last, near_lists, spike_lists, made):  # type: ignore[no-untyped-def]
    """Lists of places first..last-1 from those of the blocks, block after block."""
    near_ids, near_slopes, near_ends = near_lists
    spike_ids, spike_slopes, spike_ends = spike_lists
    starts, trues, ids, slopes, over_starts, over_ids = made
    for place in range(first, last):
        found, middle, over = starts[place], starts[place] + trues[place], over_starts[place]
        for block in range(spike_ids.shape[0]):
            begin = spike_ends[block, place - 1] if place else 0
            for k in range(begin, spike_ends[block, place]):
                if found < middle:
                    ids[found] = block * WIDTH + spike_ids[block, k]
                    slopes[found] = spike_slopes[block, k]
                    found += 1
                else:
                    over_ids[over] = block * WIDTH + spike_ids[block, k]
                    over += 1
        stop = starts[place + 1]
        for block in range(near_ids.shape[0]):
            begin = near_ends[block, place - 1] if place else 0
            for k in range(begin, near_ends[block, place]):
                if found == stop:
                    break
                ids[found] = block * WIDTH + near_ids[block, k]
                slopes[found] = near_slopes[block, k]
                found += 1


@numba.njit(cache=True, nogil=True)
def adjoint(first, last, t0, t1, masked, decay, scale, made, g, q):  # type: ignore[no-untyped-def]
    """Gradient of the currents of samples first..last-1 at timesteps t1-1 down to t0, q [blocks, t - t0, batch, WIDTH].

    It is `scale` times the adjoint of the potential and obeys the same recursion. q[:, t1 - t0] is given.
    """
    starts, trues, ids, slopes, over_starts, over_ids = made
    zero, batch = q.dtype.type(0), q.shape[2]
    for t in range(t1 - 1, t0 - 1, -1):
        row = t - t0
        for b in range(first, last):
            place = t * batch + b
            for block in range(q.shape[0]):
                source, into = q[block, row + 1, b], q[block, row, b]
                for n in range(WIDTH):
                    into[n] = source[n] * decay
            if masked:
                for k in range(starts[place], starts[place] + trues[place]):
                    q[ids[k] // WIDTH, row, b, ids[k] % WIDTH] = zero
                for k in range(over_starts[place], over_starts[place + 1]):
                    q[over_ids[k] // WIDTH, row, b, over_ids[k] % WIDTH] = zero
            for k in range(starts[place], starts[place + 1]):
                q[ids[k] // WIDTH, row, b, ids[k] % WIDTH] += scale * (g[k] * slopes[k])


@numba.njit(cache=True, nogil=True)
def sort_by_id(first, last, lag, ids, starts, trues, columns, rows):  # type: ignore[no-untyped-def]
    """Where each id is a true spike of the input of places first..last-1: rows[columns[id]:columns[id + 1]], counted
    from `first`; columns int64[inputs + 2] and rows are overwritten."""
    columns[:] = 0
    for place in range(max(first, lag), last):
        begin = starts[place - lag]
        for k in range(begin, begin + trues[place - lag]):
            columns[ids[k] + 2] += 1
    for i in range(2, len(columns)):
        columns[i] += columns[i - 1]
    for place in range(max(first, lag), last):
        begin = starts[place - lag]
        for k in range(begin, begin + trues[place - lag]):
            rows[columns[ids[k] + 1]] = place - first
            columns[ids[k] + 1] += 1


@numba.njit(cache=True, nogil=True)
def weight_gradient_blocks(first, last, inputs, columns, rows, q, stride, dw):  # type: ignore[no-untyped-def]
    """dw[block, id] += sum of the rows of q [blocks, stride / WIDTH, WIDTH] where the id is listed; flat arrays."""
    for block in range(first, last):
        for i in range(inputs):
            into = (block * inputs + i) * WIDTH
            add_strip(dw, into, q, block * stride, WIDTH, rows, columns[i], columns[i + 1])


@numba.njit(cache=True, nogil=True)
def input_gradient_places(first, last, origin, lag, w, ids, starts, q, g):  # type: ignore[no-untyped-def]
    """g[k] = sum over neurons of w[ids[k], n] * q[place, n] for the ids that the inputs of places first..last-1 list.

    The first place of q [blocks, t, batch, WIDTH] is `origin`. Blocks are summed in ascending order.
    """
    blocks, inputs, _ = w.shape
    weights, adjoints, stride = w.reshape(-1), q.reshape(-1), q.shape[1] * q.shape[2] * WIDTH
    begin = max(first, lag)
    if begin < last:
        g[starts[begin - lag] : starts[last - lag]] = 0
    for block in range(blocks):
        for place in range(begin, last):
            low, high = starts[place - lag], starts[place - lag + 1]
            where = block * stride + (place - origin) * WIDTH
            dot_strip(g, weights, block * inputs * WIDTH, WIDTH, ids, low, high, adjoints, where)


@numba.njit(cache=True, nogil=True)
def into_blocks(matrix, blocks):  # type: ignore[no-untyped-def]
    """blocks[k, i, :] = matrix[i, k * WIDTH : (k + 1) * WIDTH], zeros beyond the last neuron."""
    inputs, neurons = matrix.shape
    for block in range(blocks.shape[0]):
        real = min(WIDTH, neurons - block * WIDTH)
        for i in range(inputs):
            for n in range(real):
                blocks[block, i, n] = matrix[i, block * WIDTH + n]
            for n in range(real, WIDTH):
                blocks[block, i, n] = 0


@numba.njit(cache=True, nogil=True)
def from_blocks(blocks, matrix):  # type: ignore[no-untyped-def]
    """matrix from its blocks."""
    inputs, neurons = matrix.shape
    for block in range(blocks.shape[0]):
        real = min(WIDTH, neurons - block * WIDTH)
        for i in range(inputs):
            for n in range(real):
                matrix[i, block * WIDTH + n] = blocks[block, i, n]


@numba.njit(cache=True, nogil=True)
def count_true(first, ids, starts, trues, totals):  # type: ignore[no-untyped-def]
    """totals[row, id]: how often id is a true spike from place `first` on; row: place modulo the number of rows."""
    totals[:] = 0
    for place in range(first, len(trues)):
        for k in range(starts[place], starts[place] + trues[place]):
            totals[place % len(totals), ids[k]] += 1


@numba.njit(cache=True, nogil=True)
def list_gradient(first, ids, starts, gradient, g):  # type: ignore[no-untyped-def]
    """g[k] = gradient[row, id] for everything listed from place `first` on, 0 before; rows as in `count_true`."""
    g[: starts[first]] = 0
    for place in range(first, len(starts) - 1):
        for k in range(starts[place], starts[place + 1]):
            g[k] = gradient[place % len(gradient), ids[k]]


@numba.njit(cache=True, nogil=True)
def lists_of_padded(ids, counts, starts, trues, flat):  # type: ignore[no-untyped-def]
    """Joined lists from padded ones: ids [timesteps, batch, capacity], counts [timesteps, batch, 2]."""
    batch = ids.shape[1]
    starts[0] = 0
    for place in range(len(trues)):
        t, b = place // batch, place % batch
        trues[place] = counts[t, b, 0]
        starts[place + 1] = starts[place] + counts[t, b, 1]
        for k in range(counts[t, b, 1]):
            flat[starts[place] + k] = ids[t, b, k]
