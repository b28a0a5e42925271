"""Gradients of currents recomputed, a strip of neurons at a time, from what changed the adjoint in every turn.

An adjoint decays from turn to turn; otherwise it is added to where neurons are listed, and set to zero where they
spiked in the timestep before. Both are kept as lists end to end, those of place turn * batch + sample ending at
starts[place + 1], and replayed in the same order: the same bits.
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.equations import superspike
from mimdsim.numerics.fused.vectors import WIDTH, above, add_sums_run, lowest_bit

ONE_BIT = np.uint64(1)


@numba.njit(cache=True, nogil=True)
def state_gradient(dv, v, g, ids, counts, threshold, slope, turn, added):  # type: ignore[no-untyped-def]
    """`neurons.state_gradient` of whole samples; what it adds to whom is appended to the lists `added`."""
    starts, listed, values = added
    one = dv.dtype.type(1)
    batch, neurons = dv.shape
    end = starts[turn * batch]
    for b in range(batch):
        for k in range(counts[b, 1]):
            n = ids[b, k]
            if 0 <= n < neurons:
                more = g[b, k] * superspike(v[b, n] - threshold, slope, one)
                dv[b, n] += more
                listed[end], values[end] = n, more
                end += 1
        starts[turn * batch + b + 1] = end


@numba.njit(cache=True, nogil=True)
def scaled_copy_and_decay(dv, q, gain, decay, v_previous, threshold, turn, zeroed):  # type: ignore[no-untyped-def]
    """`neuron_chains.scaled_copy_and_decay`; who is set to zero is appended to the lists `zeroed`."""
    starts, listed = zeroed
    batch, neurons = dv.shape
    zero, flat, whole = dv.dtype.type(0), v_previous.reshape(-1), neurons // WIDTH * WIDTH
    end = starts[turn * batch]
    for b in range(batch):
        source, target = dv[b], q[b]
        for n in range(neurons):
            each = source[n]
            target[n] = each * gain[n]
            source[n] = each * decay[n]
        begun, row = end, b * neurons
        for begin in range(0, whole, WIDTH):
            bits = above(flat, row + begin, threshold)
            while bits != 0:
                listed[end] = begin + lowest_bit(bits)
                bits &= bits - ONE_BIT
                end += 1
        for n in range(whole, neurons):
            if flat[row + n] > threshold:
                listed[end] = n
                end += 1
        for k in range(begun, end):
            source[listed[k]] = zero
        starts[turn * batch + b + 1] = end


@numba.njit(cache=True, nogil=True)
def sort_by_strip(batch, starts, listed, begins, where, places):  # type: ignore[no-untyped-def]
    """Of strip s and sample b, in order of turns from begins[s * batch + b]: turn * WIDTH + place in the strip, and
    where it is listed. begins int64[strips * batch + 2]; all three are overwritten."""
    begins[:] = 0
    for place in range(len(starts) - 1):
        for k in range(starts[place], starts[place + 1]):
            begins[listed[k] // WIDTH * batch + place % batch + 2] += 1
    for i in range(2, len(begins)):
        begins[i] += begins[i - 1]
    for place in range(len(starts) - 1):
        b, base = place % batch, place // batch * WIDTH
        for k in range(starts[place], starts[place + 1]):
            own = listed[k] // WIDTH * batch + b + 1
            where[begins[own]], places[begins[own]] = base + listed[k] % WIDTH, k
            begins[own] += 1


@numba.njit(cache=True, nogil=True)
def replay(strip, known, rows):  # type: ignore[no-untyped-def]
    """rows[b * turns + turn]: the gradient of the currents of a strip.

    known: the adjoint before the first turn, gain and decay of the neurons, turns, what `sort_by_strip` made of the
    lists of what was added, how much was, and what it made of the lists of who was set to zero.
    """
    first, gain, decay, turns, added, values, zeroed = known
    batch, neurons = first.shape
    begin = strip * WIDTH
    width = min(WIDTH, neurons - begin)
    state, gains, decays = np.zeros(WIDTH, first.dtype), np.zeros(WIDTH, first.dtype), np.zeros(WIDTH, first.dtype)
    gains[:width], decays[:width] = gain[begin : begin + width], decay[begin : begin + width]
    add_begins, add_where, add_places = added
    zero_begins, zero_where, _ = zeroed
    for b in range(batch):
        state[:width] = first[b, begin : begin + width]
        own = strip * batch + b
        plus, plus_end = add_begins[own], add_begins[own + 1]
        clear, clear_end = zero_begins[own], zero_begins[own + 1]
        for turn in range(turns):
            low = turn * WIDTH
            while plus < plus_end and add_where[plus] < low + WIDTH:
                state[add_where[plus] - low] += values[add_places[plus]]
                plus += 1
            into = rows[b * turns + turn]
            for n in range(WIDTH):
                each = state[n]
                into[n] = each * gains[n]
                state[n] = each * decays[n]
            while clear < clear_end and zero_where[clear] < low + WIDTH:
                state[zero_where[clear] - low] = 0
                clear += 1


@numba.njit(cache=True, nogil=True)
def summed_weight_gradient(total, replicas, columns, rows, known, first, last):  # type: ignore[no-untyped-def]
    """`chains.summed_weight_gradient` of strips first..last-1, each replayed from what is `known` before it is
    summed."""
    adjoint, turns = known[0], known[3]
    inputs, neurons = total.shape
    out, history = total.reshape(-1), np.empty((adjoint.shape[0] * turns, WIDTH), adjoint.dtype)
    flat = history.reshape(-1)
    for strip in range(first, last):
        replay(strip, known, history)
        begin = strip * WIDTH
        width = min(WIDTH, neurons - begin)
        for i in range(inputs):
            for n in range(begin, begin + width):
                total[i, n] = 0
        for replica in range(replicas):
            for i in range(inputs):
                low, high = columns[replica * inputs + i], columns[replica * inputs + i + 1]
                if low < high:
                    add_sums_run(out, i * neurons + begin, flat, 0, WIDTH, rows, low, high, width)
