"""A layer of sparse spiking neurons over all timesteps at once, without tiles.

Weights are stored in blocks of WIDTH neurons, [blocks, inputs, WIDTH], so that a listed id adds WIDTH adjacent weights
and a block stays in cache while all timesteps pass by. Lists are kept end to end: the ids of place t * batch + b are
ids[starts[place]:starts[place + 1]], true spikes first, `trues[place]` of them. Blocks and places are independent of
each other: a caller may give any share of them to a thread and gets the same bits.
"""

from __future__ import annotations

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.fused.vectors import WIDTH, copy_strips, dot_strip, sum_strip


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
def weight_gradient_block(columns, rows, q, dw):  # type: ignore[no-untyped-def]
    """dw[id] = the sum of the rows of q [places, WIDTH] where the id is listed; flat arrays."""
    for i in range(len(dw) // WIDTH):
        sum_strip(dw, i * WIDTH, q, 0, WIDTH, rows, columns[i], columns[i + 1])


@compiled
def input_gradient_places(first, last, lag, w, ids, starts, q, g):  # type: ignore[no-untyped-def]
    """g[k] += sum over neurons of w[ids[k], n] * q[place, n] for the ids that the inputs of places first..last-1 list.

    q: [blocks, places, WIDTH], in any shape that begins with the blocks. Blocks are summed in ascending order.
    """
    blocks, inputs, _ = w.shape
    weights, adjoints, stride = w.reshape(-1), q.reshape(-1), q[0].size
    begin = max(first, lag)
    for block in range(blocks):
        for place in range(begin, last):
            low, high = starts[place - lag], starts[place - lag + 1]
            where = block * stride + place * WIDTH
            dot_strip(g, weights, block * inputs * WIDTH, WIDTH, ids, low, high, adjoints, where)


@compiled
def copy_block(matrix, block, made):  # type: ignore[no-untyped-def]
    """made[i, :] = matrix[i, block * WIDTH : (block + 1) * WIDTH], zeros beyond the last neuron."""
    inputs, neurons = matrix.shape
    real = min(WIDTH, neurons - block * WIDTH)
    own, every = made.reshape(-1), matrix.reshape(-1)
    for i in range(inputs):
        if real == WIDTH:
            copy_strips(own, i * WIDTH, every, i * neurons + block * WIDTH, 1)
            continue
        for n in range(real):
            made[i, n] = matrix[i, block * WIDTH + n]
        made[i, real:] = 0


@compiled
def into_blocks(matrix, blocks):  # type: ignore[no-untyped-def]
    """All blocks of a matrix."""
    for block in range(len(blocks)):
        copy_block(matrix, block, blocks[block])


@compiled
def from_blocks(blocks, matrix):  # type: ignore[no-untyped-def]
    """matrix from its blocks."""
    inputs, neurons = matrix.shape
    for block in range(blocks.shape[0]):
        real = min(WIDTH, neurons - block * WIDTH)
        for i in range(inputs):
            for n in range(real):
                matrix[i, block * WIDTH + n] = blocks[block, i, n]


@compiled
def count_true(first, ids, starts, trues, totals):  # type: ignore[no-untyped-def]
    """totals[row, id]: how often id is a true spike from place `first` on; row: place modulo the number of rows."""
    totals[:] = 0
    for place in range(first, len(trues)):
        for k in range(starts[place], starts[place] + trues[place]):
            totals[place % len(totals), ids[k]] += 1


@compiled
def list_gradient(first, ids, starts, gradient, g):  # type: ignore[no-untyped-def]
    """g[k] = gradient[row, id] for everything listed from place `first` on, 0 before; rows as in `count_true`."""
    g[: starts[first]] = 0
    for place in range(first, len(starts) - 1):
        for k in range(starts[place], starts[place + 1]):
            g[k] = gradient[place % len(gradient), ids[k]]


@compiled
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
