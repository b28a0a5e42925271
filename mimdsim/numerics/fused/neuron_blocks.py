"""Linear neurons that do not read their own spikes over all timesteps at once: a block of WIDTH neurons after another.

Entries of a block, end to end over places (timestep * batch + sample) and then neurons, are all that is known of its
potentials afterwards unless they are kept: (places, lanes, values, slots, ends). lanes: the neuron within the block,
FIRED added where its spike is true; values: first its potential, then its surrogate; slots: where the joined list of
its place has it, -1 where there was no room; ends [blocks, timesteps]: of the entries of each timestep.
Kept for gradients that read them, else without timesteps: (potentials [blocks, timesteps, batch, WIDTH], states before
the timestep [blocks, timesteps, batch, states * WIDTH], currents [blocks, timesteps, batch, WIDTH]).
Blocks and timesteps are independent of each other where a kernel takes a range of them.
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.equations import surrogate
from mimdsim.numerics.fused.neuron_strips import change_strip
from mimdsim.numerics.fused.vectors import WIDTH, above, add_strip, copy_strips, lowest_bit, weigh_strips

ONE_BIT = np.uint64(1)
FIRED = np.uint8(WIDTH)


@numba.njit(cache=True, nogil=True)
def forward_blocks(first, last, lag, w, bias, neurons, source, ahead, states, limits, entries, kept):  # type: ignore[no-untyped-def]
    """Advance blocks first..last-1 through all timesteps. lag: how many places back the input of a place is (0, or
    batch: the previous timestep). limits: what a neuron that has fired is above; threshold, second threshold of what
    is listed. Returns whether there was room for all entries."""
    fired, threshold, second_threshold = limits
    starts, trues, ids = source[:3]
    places, lanes, values, _, ends = entries
    potentials, befores, currents = kept[0].reshape(-1), kept[1].reshape(-1), kept[2].reshape(-1)
    batch, timesteps = kept[0].shape[2], ends.shape[1]
    inputs, weights, biases = w.shape[1], w.reshape(-1), bias.reshape(-1)
    low = min(threshold, second_threshold)
    strips = np.ones((2 * states + 3) * WIDTH, w.dtype)
    sums, sources, coefficients = ahead[0], ahead[1], ahead[2].reshape(-1)
    current, made, u = states * WIDTH, (states + 2) * WIDTH, (2 * states + 2) * WIDTH
    x = np.zeros(batch * states * WIDTH, w.dtype)
    before = np.zeros(batch, np.uint64)
    for block in range(first, last):
        x[:] = 0
        before[:] = 0
        real = min(WIDTH, neurons - block * WIDTH)
        found = 0
        for t in range(timesteps):
            for b in range(batch):
                place, at = t * batch + b, b * states * WIDTH
                read = place - lag
                copy_strips(strips, current, biases, block * WIDTH, 1)
                if read >= 0:
                    begin = starts[read]
                    add_strip(strips, current, weights, block * inputs * WIDTH, WIDTH, ids, begin, begin + trues[read])
                copy_strips(strips, 0, x, at, states)
                weigh_strips(strips, sums, sources, coefficients, block * ahead[2][0].size, before[b])
                copy_strips(x, at, strips, made, states)
                before[b] = above(strips, u, fired)
                row = (block * timesteps + t) * batch + b
                if len(potentials):
                    copy_strips(potentials, row * WIDTH, strips, u, 1)
                if len(befores):
                    copy_strips(befores, row * states * WIDTH, strips, 0, states)
                if len(currents):
                    copy_strips(currents, row * WIDTH, strips, current, 1)
                bits = above(strips, u, low)
                if bits != 0 and found + WIDTH > places.shape[1]:
                    return False
                while bits != 0:
                    n = lowest_bit(bits)
                    bits &= bits - ONE_BIT
                    if n >= real:
                        break
                    value = strips[u + n]
                    places[block, found] = place
                    lanes[block, found] = n + FIRED * (value > threshold)
                    values[block, found] = value
                    found += 1
            ends[block, t] = found
    return True


@numba.njit(cache=True, nogil=True)
def count_listed(capacity, entries, starts, trues, over_starts):  # type: ignore[no-untyped-def]
    """Starts of the joined lists, how many true spikes each has, and running ends of how many spikes are dropped."""
    places, lanes, _, _, ends = entries
    trues[:] = 0
    listed = starts[1:]
    listed[:] = 0
    for block in range(len(ends)):
        for e in range(ends[block, -1]):
            place = places[block, e]
            listed[place] += 1
            trues[place] += lanes[block, e] >= FIRED
    starts[0], over_starts[0] = 0, 0
    for place in range(len(trues)):
        over_starts[place + 1] = over_starts[place] + max(0, trues[place] - capacity)
        trues[place] = min(trues[place], capacity)
        starts[place + 1] = starts[place] + min(listed[place], capacity)


@numba.njit(cache=True, nogil=True)
def join(first, last, begins, threshold, shape, entries, made):  # type: ignore[no-untyped-def]
    """Joined lists of timesteps first..last-1, true spikes first, then in the order of a scan from neuron begins
    [timesteps, batch] once round; surrogates of all entries.

    shape: kind of the surrogate, its slope. made: starts, trues, ids.
    """
    places, lanes, values, slots, ends = entries
    starts, trues, ids = made
    batch = begins.shape[1]
    origin = first * batch
    scanned = begins.reshape(-1)[origin : last * batch]
    where = np.zeros((2, len(scanned)), np.int64)  # of the next gradient entry, of the next true spike
    stop = np.zeros_like(where)
    for k in range(len(scanned)):
        place = origin + k
        middle = starts[place] + trues[place]
        where[0, k], stop[0, k] = middle, starts[place + 1]
        where[1, k], stop[1, k] = starts[place], middle
    for lap in range(2 if scanned.any() else 1):
        for block in range(len(ends)):
            begin, end = ends[block, first - 1] if first else 0, ends[block, last - 1]
            for e in range(begin, end):
                k, fired, lane = places[block, e] - origin, lanes[block, e] // FIRED, lanes[block, e] % FIRED
                each = block * WIDTH + lane
                if (each < scanned[k]) != (lap == 1):
                    continue
                slot = where[fired, k]
                if slot < stop[fired, k]:
                    ids[slot] = each
                    where[fired, k] = slot + 1
                    slots[block, e] = slot
                else:
                    slots[block, e] = -1
    for block in range(len(ends)):
        begin, end = ends[block, first - 1] if first else 0, ends[block, last - 1]
        some = values[block, begin:end]
        for e in range(len(some)):
            some[e] = surrogate(shape[0], some[e] - threshold, shape[1], values)


@numba.njit(cache=True, nogil=True)
def _read_out(dx, at, readout, block, du):  # type: ignore[no-untyped-def]
    """The adjoints of a strip of potentials, or of fewer, to those of their states."""
    rows, weights = readout
    for k in range(len(rows)):
        begin, each = at + rows[k] * WIDTH, weights[block, k]
        into = dx[begin : begin + len(du)]
        for n in range(len(into)):
            into[n] += each[n] * du[n]


@numba.njit(cache=True, nogil=True)
def adjoint(block, how, maps, entries, given, kept, q):  # type: ignore[no-untyped-def]
    """Gradient of the currents of a block at all timesteps, q [timesteps + 1, batch * WIDTH]; its last row is zero.

    how: whether neurons that fired are pulled back by the other coefficients, whether gradients go through their
    firing, threshold, kind and slope of the surrogate. maps: readout, back, change. given: g of listed ids; du
    [timesteps, batch, neurons] of potentials that are the output, else with no timesteps.
    """
    switched, full, threshold, kind, slope = how
    (rows, weights), back, change = maps
    places, lanes, values, slots, ends = entries
    g, du = given
    states, batch = len(back[0]) - 1, q.shape[1] // WIDTH
    dx, size = np.zeros(batch * states * WIDTH, q.dtype), states * WIDTH
    strips, others = np.ones((2 * states + 3) * WIDTH, q.dtype), np.ones((2 * states + 3) * WIDTH, q.dtype)
    potentials, befores, currents = kept[0].reshape(-1), kept[1].reshape(-1), kept[2].reshape(-1)
    sums, sources, coefficients = back[0], back[1], back[2].reshape(-1)
    through, fired, adjoints = np.zeros(WIDTH, q.dtype), np.zeros(batch, np.uint64), q.reshape(-1)
    for t in range(len(q) - 2, -1, -1):
        middle, end = ends[block, t - 1] if t else 0, ends[block, t]
        for e in range(middle, end):
            if slots[block, e] >= 0:
                lane = lanes[block, e] % FIRED
                at, one = (places[block, e] - t * batch) * size + lane, g[slots[block, e]] * values[block, e]
                for k in range(len(rows)):
                    dx[at + rows[k] * WIDTH] += weights[block, k, lane] * one
        if len(du):
            for b in range(batch):
                _read_out(dx, b * size, maps[0], block, du[t, b, block * WIDTH : (block + 1) * WIDTH])
        fired[:] = 0
        if switched and t:
            for e in range(ends[block, t - 2] if t > 1 else 0, middle):
                if lanes[block, e] >= FIRED:
                    fired[places[block, e] - (t - 1) * batch] |= ONE_BIT << np.uint64(lanes[block, e] % FIRED)
        for b in range(batch):
            place = (block * (len(q) - 1) + t) * batch + b
            if full and t:
                if len(befores):
                    copy_strips(others, 0, befores, place * size, states)
                if len(currents):
                    copy_strips(others, size, currents, place * WIDTH, 1)
                change_strip(block, change, others, dx, b * size, states, through)
                us = potentials[(place - batch) * WIDTH : (place - batch + 1) * WIDTH]
                for n in range(len(us)):
                    through[n] *= surrogate(kind, us[n] - threshold, slope, through)
            copy_strips(strips, 0, dx, b * size, states)
            weigh_strips(strips, sums, sources, coefficients, block * back[2][0].size, fired[b])
            copy_strips(dx, b * size, strips, size, states)
            copy_strips(adjoints, (t * batch + b) * WIDTH, strips, 2 * size, 1)
            if full and t:
                _read_out(dx, b * size, maps[0], block, through)
