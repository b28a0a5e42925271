"""The published neuron over all timesteps at once: blocks of WIDTH neurons, whose potentials stay in registers.

Entries, and lists from them, are as in `whole_linear`; blocks are independent of each other.
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.fused.vectors import WIDTH, above, integrate_strip, lowest_bit
from mimdsim.numerics.fused.whole_linear import FIRED, ONE_BIT


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
