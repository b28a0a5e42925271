"""A layer of sparse spiking neurons over all timesteps at once, without tiles.

Weights are stored in blocks of WIDTH neurons, [blocks, inputs, WIDTH], so that a listed id adds WIDTH adjacent weights
and a block stays in cache while all timesteps pass by. Lists are kept end to end: the ids of place t * batch + b are
ids[starts[place]:starts[place + 1]], true spikes first, `trues[place]` of them. Blocks and places are independent of
each other: a caller may give any share of them to a thread and gets the same bits.
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.fused.interpreted import WIDTH
from mimdsim.numerics.fused.vectors import above, dot_strip, integrate_strip, lowest_bit, sum_strip
from mimdsim.numerics.fused.whole_linear import FIRED, ONE_BIT


@compiled
def sort_by_id(lag, starts, trues, ids, columns, rows):  # type: ignore[no-untyped-def]
    """The places whose input, `lag` places back, has each id as a true spike: rows[columns[id]:columns[id + 1]], in
    ascending order; columns int64[inputs + 2] and rows are overwritten."""
    columns[:] = 0
    for place in range(lag, len(trues)):
        begin = starts[place - lag]
        for k in range(begin, begin + trues[place - lag]):
            columns[ids[k] + 2] += 1
    for i in range(2, len(columns)):
        columns[i] += columns[i - 1]
    for place in range(lag, len(trues)):
        begin = starts[place - lag]
        for k in range(begin, begin + trues[place - lag]):
            rows[columns[ids[k] + 1]] = place
            columns[ids[k] + 1] += 1


@compiled
def append_lists(first, last, lag, row, source, ends, ids):  # type: ignore[no-untyped-def]
    """Append the true spikes of a source, its ids from `row` on, to joined ones of places first..last-1, each list from
    `lag` places before; ends: where the next spike of every place goes, moved on."""
    starts, trues, listed = source
    for place in range(max(first, lag), last):
        begin = starts[place - lag]
        for k in range(begin, begin + trues[place - lag]):
            ids[ends[place - first]] = listed[k] + row
            ends[place - first] += 1


@compiled
def list_true(place, own, counts, starts, trues, ids):  # type: ignore[no-untyped-def]
    """Lists of the samples from `place` on: true spikes alone, own[b, :counts[b]]."""
    for b in range(len(counts)):
        begin, many = starts[place + b], counts[b]
        ids[begin : begin + many] = own[b, :many]
        trues[place + b], starts[place + b + 1] = many, begin + many


@compiled
def weight_gradient_block(columns, rows, q, dw):  # type: ignore[no-untyped-def]
    """dw[id] = the sum of the rows of q [places, WIDTH] where the id is listed; flat arrays."""
    for i in range(len(dw) // WIDTH):
        sum_strip(dw, i * WIDTH, q, 0, WIDTH, rows, columns[i], columns[i + 1])


@compiled
def input_gradient_places(first, last, lag, row, w, ids, starts, q, g):  # type: ignore[no-untyped-def]
    """g[k] += sum over neurons of w[row + ids[k], n] * q[place, n] for the ids that the inputs of places first..last-1
    list.

    q: [blocks, places, WIDTH], in any shape that begins with the blocks. Blocks are summed in ascending order.
    """
    blocks, inputs, _ = w.shape
    weights, adjoints, stride = w.reshape(-1), q.reshape(-1), q[0].size
    begin = max(first, lag)
    for block in range(blocks):
        for place in range(begin, last):
            low, high = starts[place - lag], starts[place - lag + 1]
            where = block * stride + place * WIDTH
            dot_strip(g, weights, (block * inputs + row) * WIDTH, WIDTH, ids, low, high, adjoints, where)


@compiled
def count_true(first, ids, starts, trues, totals):  # type: ignore[no-untyped-def]
    """totals[row, id]: how often id is a true spike from place `first` on; row: place modulo the number of rows."""
    totals[:] = 0
    for place in range(first, len(trues)):
        for k in range(starts[place], starts[place] + trues[place]):
            totals[place % len(totals), ids[k]] += 1


@compiled
def list_gradient(first, ids, starts, gradient, g):  # type: ignore[no-untyped-def]
    """g[k] = gradient[row, id] for everything listed from place `first` on, 0 before; row: places from there on, modulo
    the number of rows."""
    g[: starts[first]] = 0
    for place in range(first, len(starts) - 1):
        for k in range(starts[place], starts[place + 1]):
            g[k] = gradient[(place - first) % len(gradient), ids[k]]


@compiled
def forward_blocks(first, last, batch, lag, w, neurons, source, constants, entries):  # type: ignore[no-untyped-def]
    """Advance blocks first..last-1 through all timesteps. lag: how many places back the input of a place is (0, or
    batch: the previous timestep). constants: decay, scale of the currents, threshold, second threshold. Returns whether
    there was room for all entries."""
    decay, scale, threshold, second_threshold = constants
    starts, trues, ids = source
    places, lanes, values, _, ends = entries
    inputs, weights = w.shape[1], w.reshape(-1)
    v = np.zeros(batch * WIDTH, w.dtype)
    low = min(threshold, second_threshold)
    for block in range(first, last):
        v[:] = 0
        real = min(WIDTH, neurons - block * WIDTH)
        found = 0
        for t in range(ends.shape[1]):
            for b in range(batch):
                place, at = t * batch + b, b * WIDTH
                before = place - lag
                begin, end = (starts[before], starts[before] + trues[before]) if before >= 0 else (0, 0)
                rows = weights, block * inputs * WIDTH, ids, begin, end
                integrate_strip(v, at, *rows, decay, scale, threshold)
                bits = above(v, at, low)
                if bits != 0 and found + WIDTH > places.shape[1]:
                    return False
                while bits != 0:  # as in `whole_linear`: a function for both makes this one a sixth slower
                    n = lowest_bit(bits)
                    bits &= bits - ONE_BIT
                    if n >= real:
                        break
                    u = v[at + n]
                    places[block, found] = place
                    lanes[block, found] = n + FIRED * (u > threshold)
                    values[block, found] = u
                    found += 1
            ends[block, t] = found
    return True


@compiled
def adjoint(block, batch, masked, decay, scale, entries, g, q):  # type: ignore[no-untyped-def]
    """Gradient of the currents of a block at all timesteps, q [timesteps + 1, batch * WIDTH]; its last row is zero.

    It is `scale` times the adjoint of the potential and obeys the same recursion. masked: none where the neuron fired.
    """
    places, lanes, values, slots, ends = entries
    zero = q.dtype.type(0)
    for t in range(len(q) - 2, -1, -1):
        source, into = q[t + 1], q[t]
        for n in range(len(into)):
            into[n] = source[n] * decay
        begin, end = ends[block, t - 1] if t else 0, ends[block, t]
        for e in range(begin, end):
            lane, slot = lanes[block, e], slots[block, e]
            at = (places[block, e] - t * batch) * WIDTH + lane % FIRED
            kept = zero if masked and lane >= FIRED else into[at]
            into[at] = kept + scale * (g[slot] * values[block, e]) if slot >= 0 else kept
