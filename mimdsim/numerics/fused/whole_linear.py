"""A layer of linear neurons over all timesteps at once, without tiles, WIDTH neurons (a block) of a sample at a time.

Neurons. A map is (sums, sources, coefficients [blocks, terms, 2, WIDTH]) as `weigh_strips` takes them, the second
coefficients those of neurons that have fired. Strips are numbered
    forward     states, current, ones | states made, potential
    backward    adjoints of states | adjoints of states made, gradient of the current

Order. A layer that does not read its own spikes goes through all timesteps of a block before the next block (an outer
turn is a block, an inner one a timestep), others through all blocks of a timestep. Blocks, or samples, are independent
of each other, and so are timesteps in `join`: a caller may give any share of them to a thread and gets the same bits.

Entries. What a block lists, end to end over timesteps, samples and then neurons: (places, lanes, values, slots, ends).
places: timestep * batch + sample; lanes: the neuron within the block, FIRED added where its spike is true; values:
first its potential, then its surrogate; slots: where the joined list of its place has it, -1 where there was no room;
ends [rows, timesteps]: of the entries of each timestep. A row is a block and a group of samples, row = block * groups +
group.

Kept for gradients that read them, else without places: (potentials [places, blocks, WIDTH], states before the timestep
[places, blocks, states * WIDTH], currents [places, blocks, WIDTH]).

Coefficients that are learned: `learned` is (stand, made). stand int64[places, 4]: the state that a coefficient adds to;
the state that it multiplies, the current (-1) or one (-2); after a spike (1), without one (0) or always (-1); which one
it is. made [batch, blocks, (coefficients + 1) * WIDTH]: their gradients, and last the sum of those of the potentials;
no samples where nothing is learned.
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.equations import SUPERSPIKE, superspike, surrogate
from mimdsim.numerics.fused.interpreted import WIDTH
from mimdsim.numerics.fused.vectors import (
    above,
    add_products,
    add_strip,
    copy_strips,
    dot_strip,
    fetch_strips,
    lowest_bit,
    stream_strips,
    weigh_strips,
)

ONE_BIT = np.uint64(1)
FIRED = np.uint8(WIDTH)
CURRENT = -1  # among what coefficients multiply
NOTHING, ONE_TO_ONE, ALL_TO_ALL = range(3)  # a layer's synapses onto itself


@compiled
def forward(outer, samples, rows, how, neurons, parameters, source, ahead, limits, held, own, entries, kept):  # type: ignore[no-untyped-def]
    """Advance these samples (first, last + 1) through these outer turns. Returns whether entries all had room.

    rows: (group, groups). how: whether the layer reads its own spikes, reset by emission, synapses onto itself, how
    many places back the input of a place is (0, or batch: the previous timestep). parameters: w, bias, recurrent.
    limits: what a neuron that has fired is above; threshold, second threshold of what is listed. held: from one turn to
    the next, states of one block or all and bits of neurons that are reset, that fired, [2, blocks, batch]. own: begins
    [timesteps, batch], where scans for spikes start; ids [batch, capacity] and counts of own spikes, overwritten.
    """
    coupled, by_emission, wiring, lag = how
    group, groups = rows
    w, bias, r = parameters
    starts, trues, ids = source
    sums, sources, coefficients = ahead[0], ahead[1], ahead[2].reshape(-1)
    fired, threshold, second_threshold = limits
    begins, own_ids, counts = own
    places, lanes, values, _, ends = entries
    potentials, befores, currents = kept[0].reshape(-1), kept[1].reshape(-1), kept[2].reshape(-1)
    weights, biases, recurrent, listed = w.reshape(-1), bias.reshape(-1), r.reshape(-1), own_ids.reshape(-1)
    blocks, inputs, _ = w.shape
    timesteps, batch = begins.shape
    states, low, capacity = len(sums) - 1, min(threshold, second_threshold), own_ids.shape[1]
    size, current, made, u = states * WIDTH, states * WIDTH, (states + 2) * WIDTH, (2 * states + 2) * WIDTH
    strips = np.ones(u + WIDTH, w.dtype)
    x, (before, spikes) = held
    for turn in range(outer[0], outer[1]):
        if turn == 0 or not coupled:
            for at in range(len(before)):
                x[(at * batch + samples[0]) * size : (at * batch + samples[1]) * size] = 0
                before[at, samples[0] : samples[1]] = spikes[at, samples[0] : samples[1]] = 0
        for inner in range(blocks if coupled else timesteps):
            block, t, at = (inner, turn, inner) if coupled else (turn, inner, 0)
            row, real = block * groups + group, min(WIDTH, neurons - block * WIDTH)
            end = ends[row, t - 1] if t else 0
            for b in range(samples[0], samples[1]):
                place = t * batch + b
                read, state, spot = place - lag, (at * batch + b) * size, place * blocks + block
                copy_strips(strips, current, biases, block * WIDTH, 1)
                first = block * inputs * WIDTH
                if 0 <= read + 1 < len(trues):  # the next sample's
                    begin = starts[read + 1]
                    fetch_strips(weights, first, ids, begin, begin + trues[read + 1])
                if read >= 0:
                    begin = starts[read]
                    add_strip(strips, current, weights, first, WIDTH, ids, begin, begin + trues[read])
                if wiring == ALL_TO_ALL and t:
                    begin, first = b * capacity, block * neurons * WIDTH
                    if b + 1 < samples[1]:
                        fetch_strips(recurrent, first, listed, begin + capacity, begin + capacity + counts[b + 1])
                    add_strip(strips, current, recurrent, first, WIDTH, listed, begin, begin + counts[b])
                elif wiring == ONE_TO_ONE:
                    bits = spikes[at, b]
                    while bits != 0:
                        n = lowest_bit(bits)
                        bits &= bits - ONE_BIT
                        strips[current + n] += recurrent[block * WIDTH + n]
                copy_strips(strips, 0, x, state, states)
                who = spikes[at, b] if by_emission else before[at, b]
                weigh_strips(strips, sums, len(sums), sources, coefficients, block * ahead[2][0].size, who)
                copy_strips(x, state, strips, made, states)
                before[at, b] = above(strips, u, fired)
                if coupled:
                    spikes[at, b] = above(strips, u, threshold)
                if len(potentials):
                    stream_strips(potentials, spot * WIDTH, strips, u, 1)
                if len(befores):
                    stream_strips(befores, spot * size, strips, 0, states)
                if len(currents):
                    stream_strips(currents, spot * WIDTH, strips, current, 1)
                bits = above(strips, u, low)
                if bits != 0 and end + WIDTH > places.shape[1]:
                    return False
                while bits != 0:
                    n = lowest_bit(bits)
                    bits &= bits - ONE_BIT
                    if n >= real:
                        break
                    value = strips[u + n]
                    places[row, end] = place
                    lanes[row, end] = n + FIRED * (value > threshold)
                    values[row, end] = value
                    end += 1
            ends[row, t] = end
        if coupled:
            for b in range(samples[0], samples[1]):
                counts[b] = _emit(begins[turn, b], neurons, spikes[:, b], own_ids[b])
    return True


@compiled
def _emit(begin, neurons, spikes, ids):  # type: ignore[no-untyped-def]
    """List those that fire, of bits by block, in the order of a scan from neuron `begin` once round; returns how many.
    Bits of those for which there is no room are cleared."""
    found = 0
    for lap in range(2 if begin else 1):
        for block in range(len(spikes)):
            bits = spikes[block]
            while bits != 0:
                n = lowest_bit(bits)
                bits &= bits - ONE_BIT
                each = block * WIDTH + n
                if (each < begin) != (lap == 1):
                    continue
                if each < neurons and found < len(ids):
                    ids[found] = each
                    found += 1
                else:
                    spikes[block] &= ~(ONE_BIT << np.uint64(n))
    return found


@compiled
def count_listed(capacity, entries, starts, trues, over_starts):  # type: ignore[no-untyped-def]
    """Starts of the joined lists, how many true spikes each has, and running ends of how many spikes are dropped."""
    places, lanes, _, _, ends = entries
    trues[:] = 0
    listed = starts[1:]
    listed[:] = 0
    for row in range(len(ends)):
        for e in range(ends[row, -1]):
            place = places[row, e]
            listed[place] += 1
            trues[place] += lanes[row, e] >= FIRED
    starts[0], over_starts[0] = 0, 0
    for place in range(len(trues)):
        over_starts[place + 1] = over_starts[place] + max(0, trues[place] - capacity)
        trues[place] = min(trues[place], capacity)
        starts[place + 1] = starts[place] + min(listed[place], capacity)


@compiled
def join(first, last, groups, begins, threshold, shape, entries, made):  # type: ignore[no-untyped-def]
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
        for row in range(len(ends)):
            begin, end = ends[row, first - 1] if first else 0, ends[row, last - 1]
            for e in range(begin, end):
                k, fired, lane = places[row, e] - origin, lanes[row, e] // FIRED, lanes[row, e] % FIRED
                each = row // groups * WIDTH + lane
                if (each < scanned[k]) != (lap == 1):
                    continue
                slot = where[fired, k]
                if slot < stop[fired, k]:
                    ids[slot] = each
                    where[fired, k] = slot + 1
                    slots[row, e] = slot
                else:
                    slots[row, e] = -1
    for row in range(len(ends)):
        begin, end = ends[row, first - 1] if first else 0, ends[row, last - 1]
        some = values[row, begin:end]
        if shape[0] == SUPERSPIKE:  # alone, a vector at a time
            for e in range(len(some)):
                some[e] = superspike(some[e] - threshold, shape[1], values.dtype.type(1))
        else:
            for e in range(len(some)):
                some[e] = surrogate(shape[0], some[e] - threshold, shape[1], values)


@compiled
def adjoint(begin, times, samples, rows, how, maps, r, lists, entries, given, kept, carried, learned, q):  # type: ignore[no-untyped-def]
    """q [blocks, timesteps, batch * WIDTH] = gradients of the currents of these samples (first, last + 1) at these
    timesteps, from block `begin` on.

    carried: adjoints of the states, from one timestep to the one before, [blocks, batch, states, WIDTH]. rows: (group,
    groups). how: whether the layer reads its own spikes, reset by emission, synapses onto itself, whether neurons that
    fired are pulled back by the other coefficients, whether gradients go through their firing, threshold, kind and
    slope of the surrogate. maps: readout, back, change. lists: starts and ids of what is listed. given: g of it, to
    which the layer's reading of its own spikes adds; du [timesteps, batch, blocks * WIDTH] of potentials that are the
    output, one timestep if it is the same for all, else none. To what is learned this adds.
    """
    coupled, by_emission, wiring, switched, full, threshold, kind, slope = how
    (read, readout), back, change = maps
    starts, ids = lists
    places, lanes, values, slots, ends = entries
    (g, du), (group, groups), (first, last), (stand, made) = given, rows, samples, learned
    states, batch, neurons, turns = len(back[0]) - 1, q.shape[2] // WIDTH, r.shape[1], q.shape[1]
    many = times[1] - times[0]
    sums, sources, coefficients = back[0], back[1], back[2].reshape(-1)
    potentials, befores, currents = kept[0].reshape(-1), kept[1].reshape(-1), kept[2].reshape(-1)
    recurrent, adjoints, size = r.reshape(-1), q.reshape(-1), states * WIDTH
    strips, others = np.ones(2 * size + WIDTH, q.dtype), np.ones(2 * size + 2 * WIDTH, q.dtype)
    through, fired = np.zeros((batch, WIDTH), q.dtype), np.zeros(batch, np.uint64)
    passed, changes, factors, output = through.reshape(-1), change[2].reshape(-1), readout.reshape(-1), du.reshape(-1)
    every = len(ends) // groups  # blocks
    for turn in range(many * len(q)):
        number, past = (turn % len(q), turn // len(q)) if coupled else (turn // many, turn % many)
        block, t = begin + number, times[1] - 1 - past
        row, state = block * groups + group, number * batch * size
        start, middle, end = ends[row, t - 2] if t > 1 else 0, ends[row, t - 1] if t else 0, ends[row, t]
        if t == turns - 1:
            carried[state + first * size : state + last * size] = 0
            made[first:last, block] = 0
        for e in range(middle, end):
            if slots[row, e] >= 0:
                lane = lanes[row, e] % FIRED
                at, one = state + (places[row, e] - t * batch) * size + lane, g[slots[row, e]] * values[row, e]
                for k in range(len(read)):
                    carried[at + read[k] * WIDTH] += readout[block, k, lane] * one
                if len(made):
                    made[places[row, e] - t * batch, block, made.shape[2] - WIDTH + lane] += one
        if len(du):
            for b in range(first, last):
                given_at = ((min(t, len(du) - 1) * batch + b) * every + block) * WIDTH
                for k in range(len(read)):
                    weights = (block * len(read) + k) * WIDTH
                    add_products(carried, state + b * size + read[k] * WIDTH, factors, weights, output, given_at)
                if len(made):
                    _add_strip(made[b, block], made.shape[2] - WIDTH, output, given_at)
        fired[:] = 0
        if switched or len(made):
            for e in range(start, middle):
                if lanes[row, e] >= FIRED and (slots[row, e] >= 0 or not by_emission):
                    fired[places[row, e] - (t - 1) * batch] |= ONE_BIT << np.uint64(lanes[row, e] % FIRED)
        for b in range(first, last):
            at, spot = state + b * size, (t * batch + b) * every + block
            if len(made):
                into = made[b, block]
                add_places(stand, carried, at, befores, spot * size, currents, spot * WIDTH, fired[b], into)
            if full and t:
                if len(befores):
                    copy_strips(others, 0, befores, spot * size, states)
                if len(currents):
                    copy_strips(others, size, currents, spot * WIDTH, 1)
                at_changes = block * change[2][0].size
                weigh_strips(others, change[0], len(change[0]), change[1], changes, at_changes, np.uint64(0))
                through[b] = 0
                for k in range(states):
                    add_products(passed, b * WIDTH, carried, at + k * WIDTH, others, size + (k + 2) * WIDTH)
            copy_strips(strips, 0, carried, at, states)
            at_block, who = block * back[2][0].size, fired[b] if switched else np.uint64(0)
            weigh_strips(strips, sums, len(sums), sources, coefficients, at_block, who)
            copy_strips(carried, at, strips, size, states)
            into = ((number * turns + t) * batch + b) * WIDTH
            copy_strips(adjoints, into, strips, 2 * size, 1)
            if full and t and not by_emission:
                before = (spot - batch * every) * WIDTH
                each, us = through[b], potentials[before : before + WIDTH]
                for n in range(len(each)):
                    each[n] *= surrogate(kind, us[n] - threshold, slope, through)
                if len(made):
                    _add_strip(made[b, block], made.shape[2] - WIDTH, passed, b * WIDTH)
                for k in range(len(read)):
                    add_products(
                        carried, at + read[k] * WIDTH, factors, (block * len(read) + k) * WIDTH, passed, b * WIDTH
                    )
            if wiring == ALL_TO_ALL and t:
                place, rows_of = (t - 1) * batch + b, block * neurons * WIDTH
                low, high = starts[place], starts[place + 1]
                if b + 1 < last:  # the next sample's
                    fetch_strips(recurrent, rows_of, ids, high, starts[place + 2])
                dot_strip(g, recurrent, rows_of, WIDTH, ids, low, high, adjoints, into)
        if wiring == ONE_TO_ONE or (full and by_emission):
            for e in range(start, middle):
                slot, lane, b = slots[row, e], lanes[row, e] % FIRED, places[row, e] - (t - 1) * batch
                if slot >= 0 and full and by_emission:
                    g[slot] += through[b, lane]
                if slot >= 0 and wiring == ONE_TO_ONE:
                    g[slot] += r[block, 0, lane] * q[number, t, b * WIDTH + lane]


@compiled
def _add_strip(made, into, given, start):  # type: ignore[no-untyped-def]
    made, given = made[into : into + WIDTH], given[start : start + WIDTH]
    for n in range(len(made)):
        made[n] += given[n]


@compiled
def add_places(stand, adjoints, at, befores, before, currents, current, who, made):  # type: ignore[no-untyped-def]
    """Add a timestep of a block and sample to gradients of coefficients: adjoints of the states from `at` on, states
    before from `before` on, currents from `current` on."""
    for k in range(len(stand)):
        target, column, when, row = stand[k]
        into, given = row * WIDTH, at + target * WIDTH
        others, other = (befores, before + column * WIDTH) if column >= 0 else (currents, current)
        if when < 0 or (when == 0 and who == 0):
            if column >= CURRENT:
                add_products(made, into, adjoints, given, others, other)
            else:
                _add_strip(made, into, adjoints, given)
            continue
        bits = who if when else ~who
        while bits != 0:
            n = lowest_bit(bits)
            bits &= bits - ONE_BIT
            made[into + n] += adjoints[given + n] * others[other + n] if column >= CURRENT else adjoints[given + n]


@compiled
def own_row_gradient(block, groups, entries, q, dr):  # type: ignore[no-untyped-def]
    """dr [WIDTH] += the sum of q [timesteps, batch * WIDTH] where the neuron itself had fired a timestep earlier."""
    places, lanes, _, slots, ends = entries
    batch = q.shape[1] // WIDTH
    for t in range(1, len(q)):
        for row in range(block * groups, (block + 1) * groups):
            for e in range(ends[row, t - 2] if t > 1 else 0, ends[row, t - 1]):
                if lanes[row, e] >= FIRED and slots[row, e] >= 0:
                    b, lane = places[row, e] - (t - 1) * batch, lanes[row, e] % FIRED
                    dr[lane] += q[t, b * WIDTH + lane]
