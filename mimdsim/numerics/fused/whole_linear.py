"""A layer of any linear neurons over all timesteps at once, without tiles: equations of `lists/linear_neurons.py`.

Currents, potentials and adjoints are stored in blocks of WIDTH neurons. Arrays of all timesteps begin with a row of
zeros, [blocks, timesteps + 1, batch, WIDTH]: row t is from before timestep t. If a layer does not read its own spikes,
its blocks are independent of each other, otherwise its samples are. A caller may give any share of these to a thread
and gets the same bits.

forward: (u, x, current, spiked, own). u potentials; x states [blocks, rows, states, batch, WIDTH], a single row if no
gradient reads the earlier ones; current may be the same array as u, which then overwrites it; spiked 1 where a spike is
listed, kept if the layer reads its own spikes; own coefficients per neuron [blocks, rows, batch * WIDTH].
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.equations import surrogate
from mimdsim.numerics.fused.vectors import WIDTH, above, add_strip, dot_strip, lowest_bit
from mimdsim.numerics.lists.linear_neurons import fired_gradient, neuron_gradient, neuron_update, readout_gradient

ONE_BIT = np.uint64(1)
NOTHING, ONE_TO_ONE, ALL_TO_ALL = range(3)  # a layer's synapses onto itself


@numba.njit(cache=True, nogil=True)
def currents(first, last, lag, w, bias, source, current):  # type: ignore[no-untyped-def]
    """Currents of blocks first..last-1 at all timesteps; lag: how many places back the input of a place is."""
    starts, trues, ids = source[:3]
    _, rows, batch, _ = current.shape
    inputs, weights, made = w.shape[1], w.reshape(-1), current.reshape(-1)
    for block in range(first, last):
        for place in range((rows - 1) * batch):
            at = (block * rows * batch + batch + place) * WIDTH
            for n in range(WIDTH):
                made[at + n] = bias[block, 0, n]
            before = place - lag
            if before >= 0:
                begin = starts[before]
                add_strip(made, at, weights, block * inputs * WIDTH, WIDTH, ids, begin, begin + trues[before])


@numba.njit(cache=True, nogil=True)
def _as_rows(plane):  # type: ignore[no-untyped-def]
    """[blocks, timesteps, 1, batch * WIDTH]: the equations treat samples and neighbours of a neuron alike."""
    return plane.reshape(plane.shape[0], plane.shape[1], 1, -1)


@numba.njit(cache=True, nogil=True)
def _box(samples):  # type: ignore[no-untyped-def]
    """The part of such a row for these samples: begin, end, start, stop."""
    return np.array([0]), np.array([1]), np.array([samples[0] * WIDTH]), np.array([samples[1] * WIDTH])


@numba.njit(cache=True, nogil=True)
def advance(blocks, samples, timesteps, by_emission, forward, maps):  # type: ignore[no-untyped-def]
    """Advance states and potentials of these blocks and samples through these timesteps, each (first, last + 1)."""
    x, own = forward[1], forward[4]
    u, current, spiked = _as_rows(forward[0]), _as_rows(forward[2]), _as_rows(forward[3])
    box = _box(samples)
    for block in range(blocks[0], blocks[1]):
        for t in range(timesteps[0], timesteps[1]):
            here = min(t + 1, x.shape[1] - 1)
            if here:
                for state in range(x.shape[2]):
                    for b in range(samples[0], samples[1]):
                        for n in range(WIDTH):
                            x[block, here, state, b, n] = x[block, here - 1, state, b, n]
            source = spiked[block, t] if by_emission else u[block, t]
            states = x[block, here].reshape(x.shape[2], 1, -1)
            neuron_update(states, u[block, t + 1], current[block, t + 1], source, own[block], *box, *maps)


@numba.njit(cache=True, nogil=True)
def advance_coupled(samples, by_emission, wiring, forward, maps, selection, r, begins, ids, counts):  # type: ignore[no-untyped-def]
    """Samples of a layer that reads its own spikes through all timesteps; overwrites ids [batch, capacity] and counts.

    selection: neurons, threshold. begins [timesteps, batch]: the neuron at which the scan for spikes starts.
    """
    u, current, spiked = forward[0], forward[2], forward[3]
    for t in range(u.shape[1] - 1):
        if t and wiring == ONE_TO_ONE:
            for block in range(len(u)):
                for b in range(samples[0], samples[1]):
                    for n in range(WIDTH):
                        current[block, t + 1, b, n] += r[block, 0, n] * spiked[block, t, b, n]
        elif t and wiring == ALL_TO_ALL:
            _add_own(samples, t, current.reshape(-1), current.shape, r, ids, counts)
        advance((np.int64(0), len(u)), samples, (t, t + 1), by_emission, forward, maps)
        for b in range(samples[0], samples[1]):
            counts[b] = _emit(t, b, begins[t, b], u, spiked, selection, ids[b])


@numba.njit(cache=True, nogil=True)
def _add_own(samples, t, made, shape, r, ids, counts):  # type: ignore[no-untyped-def]
    blocks, rows, batch, _ = shape
    neurons, weights, capacity, listed = r.shape[1], r.reshape(-1), ids.shape[1], ids.reshape(-1)
    for block in range(blocks):
        for b in range(samples[0], samples[1]):
            at, begin = ((block * rows + t + 1) * batch + b) * WIDTH, b * capacity
            add_strip(made, at, weights, block * neurons * WIDTH, WIDTH, listed, begin, begin + counts[b])


@numba.njit(cache=True, nogil=True)
def _emit(t, b, begin, u, spiked, selection, ids):  # type: ignore[no-untyped-def]
    """List the spikes of a sample in the order of a scan from neuron `begin` once round; returns how many."""
    neurons, threshold = selection
    found = 0
    for block in range(len(u)):
        spiked[block, t + 1, b] = 0
    for lap in range(2 if begin else 1):
        for n in range(begin if lap == 0 else 0, neurons if lap == 0 else begin):
            block, lane = n // WIDTH, n % WIDTH
            if u[block, t + 1, b, lane] > threshold and found < len(ids):
                ids[found] = n
                spiked[block, t + 1, b, lane] = 1
                found += 1
    return found


@numba.njit(cache=True, nogil=True)
def count_selected(first, last, u, selection, fired, near):  # type: ignore[no-untyped-def]
    """How many neurons fire, and how many nearly do, at places first..last-1; selection: neurons, thresholds."""
    neurons, threshold, second = selection
    blocks, rows, batch, _ = u.shape
    potentials, low = u.reshape(-1), min(threshold, second)
    for place in range(first, last):
        fired[place], near[place] = 0, 0
        for block in range(blocks):
            at = (block * rows * batch + batch + place) * WIDTH
            bits = above(potentials, at, low)
            while bits != 0:
                n = lowest_bit(bits)
                bits &= bits - ONE_BIT
                if block * WIDTH + n < neurons:
                    if potentials[at + n] > threshold:
                        fired[place] += 1
                    else:
                        near[place] += 1


@numba.njit(cache=True, nogil=True)
def list_selected(first, last, u, selection, begins, shape, made):  # type: ignore[no-untyped-def]
    """Lists of places first..last-1, whose starts are known, in the order of a scan from begins[place] once round.

    shape: kind of the surrogate, its slope.
    """
    neurons, threshold, second = selection
    starts, trues, ids, slopes, over_starts, over_ids = made
    blocks, rows, batch, _ = u.shape
    potentials, low = u.reshape(-1), min(threshold, second)
    for place in range(first, last):
        found, middle, over = starts[place], starts[place] + trues[place], over_starts[place]
        near, stop, begin = middle, starts[place + 1], begins[place]
        for lap in range(2 if begin else 1):
            for block in range(blocks):
                at = (block * rows * batch + batch + place) * WIDTH
                bits = above(potentials, at, low)
                while bits != 0:
                    n = lowest_bit(bits)
                    bits &= bits - ONE_BIT
                    each = block * WIDTH + n
                    if each >= neurons or (each < begin) != (lap == 1):
                        continue
                    k = -1
                    if potentials[at + n] > threshold:
                        if found < middle:
                            k = found
                            found += 1
                        else:
                            over_ids[over] = each
                            over += 1
                    elif near < stop:
                        k = near
                        near += 1
                    if k >= 0:
                        ids[k] = each
                        slopes[k] = surrogate(shape[0], potentials[at + n] - threshold, shape[1], slopes)


@numba.njit(cache=True, nogil=True)
def adjoint(samples, timesteps, how, given, forward, maps, r, made, adjoints):  # type: ignore[no-untyped-def]
    """Gradient of the currents of these samples from the last of these timesteps to the first.

    how: reset by emission, gradients through resets, synapses onto itself, threshold of the neuron, kind and slope of
    the surrogate. given: g of listed ids, to which the layer's reading of its own spikes adds; du [timesteps, batch,
    neurons] of potentials that are the output, else with no timesteps. adjoints: dx of the states, du that comes from
    the next timestep, q [blocks, t - timesteps[0], batch, WIDTH].
    """
    by_emission, full, wiring, threshold, kind, slope = how
    x, own = forward[1], forward[4]
    u, current, spiked = _as_rows(forward[0]), _as_rows(forward[2]), _as_rows(forward[3])
    terms, uniform, readout, weights, told, switched = maps
    g, du = given
    dx, later, q = adjoints
    box, rows, states = _box(samples), _as_rows(q), x.shape[2]
    for t in range(timesteps[1] - 1, timesteps[0] - 1, -1):
        _gather(samples, t, full and not by_emission, g, du, made, later)
        for block in range(len(u)):
            one, given_dx = later[block].reshape(1, -1), dx[block].reshape(states, 1, -1)
            source = spiked[block, t] if by_emission else u[block, t]
            readout_gradient(given_dx, one, own[block], *box, readout, weights)
            if full:
                before = x[block, min(t, x.shape[1] - 1)].reshape(states, 1, -1)
                of = (terms, uniform, threshold, slope, -1 if by_emission else kind)
                fired_gradient(one, given_dx, source, own[block], before, current[block, t + 1], *box, *of)
            row = rows[block, t - timesteps[0]]
            neuron_gradient(given_dx, row, source, own[block], *box, terms, uniform, told, switched)
        if t and (wiring != NOTHING or (full and by_emission)):
            _own_gradient(samples, t, t - timesteps[0], wiring, full and by_emission, g, made, later, q, r)


@numba.njit(cache=True, nogil=True)
def _gather(samples, t, kept, g, du, made, later):  # type: ignore[no-untyped-def]
    """The adjoint of the potentials at timestep t, added to the existing one if `kept`."""
    starts, _, ids, slopes = made[:4]
    batch = later.shape[1]
    for b in range(samples[0], samples[1]):
        if not kept:
            later[:, b] = 0
        if len(du):
            for n in range(du.shape[2]):
                later[n // WIDTH, b, n % WIDTH] += du[t, b, n]
        else:
            place = t * batch + b
            for k in range(starts[place], starts[place + 1]):
                later[ids[k] // WIDTH, b, ids[k] % WIDTH] += g[k] * slopes[k]


@numba.njit(cache=True, nogil=True)
def _own_gradient(samples, t, row, wiring, through_reset, g, made, later, q, r):  # type: ignore[no-untyped-def]
    """Add the effect of the layer's spikes of timestep t - 1 on the layer at t to their gradients."""
    starts, _, ids = made[:3]
    blocks, rows, batch, _ = q.shape
    neurons, weights, adjoints = r.shape[1], r.reshape(-1), q.reshape(-1)
    for b in range(samples[0], samples[1]):
        place = (t - 1) * batch + b
        low, high = starts[place], starts[place + 1]
        for k in range(low, high):
            block, n = ids[k] // WIDTH, ids[k] % WIDTH
            if through_reset:
                g[k] += later[block, b, n]
            if wiring == ONE_TO_ONE:
                g[k] += r[block, 0, n] * q[block, row, b, n]
    if wiring == ALL_TO_ALL:
        for block in range(blocks):
            for b in range(samples[0], samples[1]):
                low, high = starts[(t - 1) * batch + b], starts[(t - 1) * batch + b + 1]
                at = ((block * rows + row) * batch + b) * WIDTH
                dot_strip(g, weights, block * neurons * WIDTH, WIDTH, ids, low, high, adjoints, at)


@numba.njit(cache=True, nogil=True)
def own_row_gradient(first, last, timesteps, spiked, q, dr):  # type: ignore[no-untyped-def]
    """dr of blocks first..last-1: sum of q where the neuron itself had fired one timestep earlier."""
    for block in range(first, last):
        for t in range(timesteps[0], timesteps[1]):
            for b in range(q.shape[2]):
                for n in range(WIDTH):
                    dr[block, 0, n] += q[block, t - timesteps[0], b, n] * spiked[block, t, b, n]


@numba.njit(cache=True, nogil=True)
def bias_gradient(q, db):  # type: ignore[no-untyped-def]
    """db <- the sum of all rows of q [places, WIDTH]."""
    db[:] = 0
    for place in range(len(q)):
        row = q[place]
        for n in range(len(row)):
            db[n] += row[n]
