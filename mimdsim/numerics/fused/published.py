"""The published neuron over all timesteps at once: blocks of WIDTH neurons, whose potentials stay in registers.

Entries of a block, end to end over places (timestep * batch + sample) and then neurons, are all that is known of its
potentials afterwards: (places, lanes, values, slots, ends). lanes: the neuron within the block, FIRED added where its
spike is true; values: first its potential, then its surrogate; slots: where the joined list of its place has it, -1
where there was no room; ends [blocks, timesteps]: of the entries of each timestep.
Blocks and timesteps are independent of each other where a kernel takes a range of them.
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.equations import integrated, superspike
from mimdsim.numerics.fused.vectors import WIDTH, above, lowest_bit, sum_strip

ONE_BIT = np.uint64(1)
FIRED = np.uint8(WIDTH)


@numba.njit(cache=True, nogil=True)
def forward_blocks(first, last, batch, lag, w, neurons, source, constants, entries):  # type: ignore[no-untyped-def]
    """Advance blocks first..last-1 through all timesteps. lag: how many places back the input of a place is (0, or
    batch: the previous timestep). constants: decay, scale of the currents, threshold, second threshold. Returns whether
    there was room for all entries."""
    decay, scale, threshold, second_threshold = constants
    starts, trues, ids = source[:3]
    places, lanes, values, _, ends = entries
    inputs, weights, zero = w.shape[1], w.reshape(-1), w.dtype.type(0)
    v = np.zeros(batch * WIDTH, w.dtype)
    current = np.zeros(WIDTH, w.dtype)
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
                sum_strip(current, 0, weights, block * inputs * WIDTH, WIDTH, ids, begin, end)
                for n in range(WIDTH):
                    v[at + n] = integrated(v[at + n], current[n], decay, scale, threshold, zero)
                bits = above(v, at, low)
                if bits != 0 and found + WIDTH > places.shape[1]:
                    return False
                while bits != 0:
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
def join(first, last, batch, threshold, slope, entries, made):  # type: ignore[no-untyped-def]
    """Joined lists of timesteps first..last-1, true spikes first, then in ascending order; surrogates of all entries.

    made: starts, trues, ids.
    """
    places, lanes, values, slots, ends = entries
    starts, trues, ids = made
    origin, one = first * batch, values.dtype.type(1)
    where = np.zeros((2, (last - first) * batch), np.int64)  # of the next gradient entry, of the next true spike
    stop = np.zeros_like(where)
    for k in range(where.shape[1]):
        place = origin + k
        middle = starts[place] + trues[place]
        where[0, k], stop[0, k] = middle, starts[place + 1]
        where[1, k], stop[1, k] = starts[place], middle
    for block in range(len(ends)):
        begin, end = ends[block, first - 1] if first else 0, ends[block, last - 1]
        for e in range(begin, end):
            values[block, e] = superspike(values[block, e] - threshold, slope, one)
        for e in range(begin, end):
            k, fired, lane = places[block, e] - origin, lanes[block, e] // FIRED, lanes[block, e] % FIRED
            slot = where[fired, k]
            if slot < stop[fired, k]:
                ids[slot] = block * WIDTH + lane
                where[fired, k] = slot + 1
                slots[block, e] = slot
            else:
                slots[block, e] = -1


@numba.njit(cache=True, nogil=True)
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
