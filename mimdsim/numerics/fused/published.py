"""The published neuron over many timesteps at once: blocks of WIDTH neurons, whose potentials stay in registers.

Entries, and lists from them, are as in `whole_linear`; blocks are independent of each other.
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.fused.vectors import (
    WIDTH,
    above,
    copy_strips,
    fade_strip,
    integrate_strip,
    lowest_bit,
    stream_strips,
)
from mimdsim.numerics.fused.whole_linear import FIRED, ONE_BIT


@numba.njit(cache=True, nogil=True)
def forward_blocks(first, last, begin, lag, w, states, source, constants, low, entries, made, streams):  # type: ignore[no-untyped-def]
    """Advance blocks first..last-1 from timestep `begin` on. Returns whether there was room for all entries.

    lag: how many places back the input of a place is (0, or batch: the previous timestep). states: potentials
    [batch, neurons] before and after. source: lists of the timesteps from `begin` on. constants: decay, scale of the
    currents, threshold. low: what is listed is above it; nothing where it is infinite. made [timesteps, batch,
    neurons]: the potentials after every timestep, past the caches if it streams; nothing where it has no timesteps.
    """
    decay, scale, threshold = constants
    before, after = states
    starts, trues, ids = source
    places, lanes, values, _, ends = entries
    inputs, weights, kept = w.shape[1], w.reshape(-1), made.reshape(-1)
    batch, neurons = before.shape
    v = np.zeros(batch * WIDTH, w.dtype)
    for block in range(first, last):
        origin = block * WIDTH
        real = min(WIDTH, neurons - origin)
        _load_strips(v, before, origin, real)
        found = ends[block, begin - 1] if begin else 0
        for t in range(len(trues) // batch):
            for b in range(batch):
                place, at = t * batch + b, b * WIDTH
                read = place - lag
                some, end = (starts[read], starts[read] + trues[read]) if read >= 0 else (0, 0)
                integrate_strip(v, at, weights, origin * inputs, ids, some, end, decay, scale, threshold)
                if len(made):
                    into = place * neurons + origin
                    if real < WIDTH:
                        kept[into : into + real] = v[at : at + real]
                    elif streams:
                        stream_strips(kept, into, v, at, 1)
                    else:
                        copy_strips(kept, into, v, at, 1)
                bits = above(v, at, low)
                if bits != 0 and found + WIDTH > places.shape[1]:
                    return False
                while bits != 0:  # as in `whole_linear`: a function for both makes this one a sixth slower
                    n = lowest_bit(bits)
                    bits &= bits - ONE_BIT
                    if n >= real:
                        break
                    u = v[at + n]
                    places[block, found] = begin * batch + place
                    lanes[block, found] = n + FIRED * (u > threshold)
                    values[block, found] = u
                    found += 1
            ends[block, begin + t] = found
        _store_strips(v, after, origin, real)
    return True


@numba.njit(cache=True, nogil=True)
def _load_strips(strips, rows, origin, real):  # type: ignore[no-untyped-def]
    """strips [samples * WIDTH] = `real` neighbours from `origin` on of every row."""
    for b in range(len(rows)):
        for n in range(real):
            strips[b * WIDTH + n] = rows[b, origin + n]


@numba.njit(cache=True, nogil=True)
def _store_strips(strips, rows, origin, real):  # type: ignore[no-untyped-def]
    """The other way."""
    for b in range(len(rows)):
        for n in range(real):
            rows[b, origin + n] = strips[b * WIDTH + n]


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


@numba.njit(cache=True, nogil=True)
def adjoint_turns(block, masked, dv, gain, decay, entries, slots_each, given, q):  # type: ignore[no-untyped-def]
    """The adjoint dv [batch, neurons] of a block, as the tables of a program make it, from the last timestep to the
    first, and the gradients of the currents: q [timesteps * batch * WIDTH], in this order.

    masked: none passes where the neuron fired. gain, decay: of every neuron. slots_each: room of a list. given: g of
    everything listed, flat, where it begins in the first turn, and how much further in the next.
    """
    places, lanes, values, slots, ends = entries
    g, begin, step = given
    batch, neurons = dv.shape
    turns, origin = len(q) // (batch * WIDTH), block * WIDTH
    real, zero = min(WIDTH, neurons - origin), dv.dtype.type(0)
    strip, factors = np.zeros(batch * WIDTH, dv.dtype), np.zeros(2 * WIDTH, dv.dtype)
    _load_strips(strip, dv, origin, real)
    factors[:real], factors[WIDTH : WIDTH + real] = gain[origin : origin + real], decay[origin : origin + real]
    for turn in range(turns):
        t = turns - 1 - turn
        of = begin + turn * step - t * batch * slots_each
        for e in range(ends[block, t - 1] if t else 0, ends[block, t]):
            lane, slot = lanes[block, e], slots[block, e]
            at = (places[block, e] - t * batch) * WIDTH + lane % FIRED
            kept = zero if masked and turn and lane >= FIRED else strip[at]
            strip[at] = kept + g[of + slot] * values[block, e] if slot >= 0 else kept
        for b in range(batch):
            fade_strip(strip, b * WIDTH, factors, q, (turn * batch + b) * WIDTH)
    _store_strips(strip, dv, origin, real)
