"""The published neuron of a program over many timesteps at once, a block of WIDTH neurons after another; its adjoint.

The same numbers as by its tables timestep by timestep. What is kept of a forward pass: bits of the neurons of a block
that fired at a place (timestep * batch + sample), `fires` [blocks, places], and of those above the lower of both
thresholds, `above`; of the latter, end to end over timesteps and samples, `values` [blocks, room], their potentials,
and `lanes`: sample * WIDTH + neuron within the block, all bits inverted where it fired; `ends` [blocks, timesteps] of
these. `ranks` [2, blocks, places]: where the first that fired, and the first that did not, would be in the list of the
place. Blocks are independent of each other, and so are places in `list_turns`.
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.equations import superspike
from mimdsim.numerics.fused.vectors import (
    WIDTH,
    above,
    copy_strips,
    count_bits,
    fade_strip,
    integrate_strip,
    lowest_bit,
    stream_strips,
)
from mimdsim.numerics.fused.whole_tensors import copy_block

ONE_BIT = np.uint64(1)


@compiled
def forward_turns(first, last, begin, w, own_weights, states, source, constants, limits, kept, made, streams):  # type: ignore[no-untyped-def]
    """Advance blocks first..last-1 from timestep `begin` on. Returns whether there was room for all values; if there
    is none at all, none are kept.

    w [inputs, neurons]; own_weights [inputs, WIDTH]: room for those of a block, which stay in cache while all timesteps
    pass by. states: potentials [batch, neurons] before and after. source: as by `end_to_end`. constants: decay, scale
    of the currents, threshold of the reset. limits: the threshold of spikes, and what kept values are above. made
    [timesteps, batch, neurons]: the potentials after every timestep, past the caches if it streams; nothing where it
    has no timesteps.
    """
    decay, scale, threshold = constants
    before, after = states
    starts, ids = source
    fires, listed, lanes, values, ends = kept
    (spiking, low), keeps = limits, values.shape[1] > 0
    weights, every = own_weights.reshape(-1), made.reshape(-1)
    batch, neurons = before.shape
    v = np.zeros(batch * WIDTH, w.dtype)
    for block in range(first, last):
        copy_block(w, block, own_weights)
        origin = block * WIDTH
        real = min(WIDTH, neurons - origin)
        own = ~np.uint64(0) >> np.uint64(WIDTH - real)
        _load_strips(v, before, origin, real)
        found = ends[block, begin - 1] if begin else 0
        for t in range((len(starts) - 1) // batch):
            for b in range(batch):
                place, at = t * batch + b, b * WIDTH
                some, end = starts[place], starts[place + 1]
                integrate_strip(v, at, weights, 0, ids, some, end, decay, scale, threshold)
                if len(made):
                    into = place * neurons + origin
                    if real < WIDTH:
                        every[into : into + real] = v[at : at + real]
                    elif streams:
                        stream_strips(every, into, v, at, 1)
                    else:
                        copy_strips(every, into, v, at, 1)
                bits = above(v, at, low) & own
                spiked = above(v, at, spiking) & bits
                fires[block, begin * batch + place], listed[block, begin * batch + place] = spiked, bits
                if not keeps:
                    continue
                if bits != 0 and found + WIDTH > values.shape[1]:
                    return False
                while bits != 0:
                    n = lowest_bit(bits)
                    bits &= bits - ONE_BIT
                    u = v[at + n]
                    values[block, found] = u
                    lanes[block, found] = ~(at + n) if u > spiking else at + n
                    found += 1
            ends[block, begin + t] = found
        _store_strips(v, after, origin, real)
    return True


@compiled
def end_to_end(starts, trues, ids, begins, made):  # type: ignore[no-untyped-def]
    """made[begins[place]:begins[place + 1]]: the true spikes of a place, which begin at ids[starts[place]]."""
    for place in range(len(starts)):
        own, given = made[begins[place] : begins[place + 1]], ids[starts[place] : starts[place] + trues[place]]
        for k in range(len(own)):
            own[k] = given[k]


@compiled
def list_turns(first, last, origin, fires, listed, ranks, ids, counts):  # type: ignore[no-untyped-def]
    """ids[place - origin] of places first..last-1: those that fired, then others above the lower threshold, both
    ascending, up to the capacity; counts: of the first, of all."""
    capacity = ids.shape[1]
    for place in range(first, last):
        own, fired = ids[place - origin], 0
        for block in range(len(fires)):
            fired += count_bits(fires[block, place])
        middle = min(fired, capacity)
        found, later = 0, middle
        for block in range(len(fires)):
            ranks[0, block, place], ranks[1, block, place] = found, later
            spiked, bits = fires[block, place], listed[block, place]
            while bits != 0:
                n = lowest_bit(bits)
                bits &= bits - ONE_BIT
                fired = (spiked >> np.uint64(n)) & ONE_BIT != 0
                slot = found if fired else later
                at = min(slot, capacity - 1)
                kept = own[at]  # what has no room leaves what is there: no branch to foresee
                own[at] = block * WIDTH + n if slot < capacity else kept
                found, later = found + fired, later + (not fired)
        counts[place - origin, 0], counts[place - origin, 1] = middle, min(later, capacity)


@compiled
def weigh_values(first, last, kept, capacity, given, shape, made):  # type: ignore[no-untyped-def]
    """made[block, k], of timesteps first..last-1: the gradient of a kept value, times its surrogate; -0, which changes
    no sum, where its list had no room.

    A timestep after another, while its gradients are at hand: by blocks they lie all over memory. capacity: of a list.
    given: gradients of all lists, flat, where those of the last timestep begin, and how much further those of the one
    before it. shape: threshold and slope of the surrogate.
    """
    _, _, lanes, values, ends, ranks = kept
    padded, start, step = given
    threshold, slope = shape
    turns, none, one = ends.shape[1], -made.dtype.type(0), made.dtype.type(1)
    batch = ranks.shape[2] // turns
    slots, ends_of = np.empty((2, batch), np.int64), np.empty((2, batch), np.int64)
    every_slot, every_end = slots.reshape(-1), ends_of.reshape(-1)
    for t in range(first, last):
        begin = start + (turns - 1 - t) * step
        ends_of[:] = begin + capacity * np.arange(1, batch + 1)
        for block in range(len(ends)):
            low, high = ends[block, t - 1] if t else 0, ends[block, t]
            own, own_lanes, some = made[block, low:high], lanes[block, low:high], values[block, low:high]
            for kind in range(2):
                into, list_ends, before = slots[kind], ends_of[kind], ranks[kind, block, t * batch : (t + 1) * batch]
                for b in range(len(into)):
                    into[b] = list_ends[b] - capacity + before[b]
            for k in range(len(own)):
                lane = own_lanes[k]
                list_of = ~lane // WIDTH if lane < 0 else batch + lane // WIDTH
                slot = every_slot[list_of]
                every_slot[list_of] = slot + 1
                own[k] = padded[slot] if slot < every_end[list_of] else none
            for k in range(len(own)):
                own[k] *= superspike(some[k] - threshold, slope, one)


@compiled
def adjoint_turns(block, masked, dv, factors, kept, weighted, q):  # type: ignore[no-untyped-def]
    """The adjoint dv [batch, neurons] of a block, as the tables of a program make it, from the last timestep to the
    first, and the gradients of the currents: q [timesteps * batch * WIDTH], in this order.

    masked: none passes where the neuron fired. factors: gain and decay of every neuron. weighted: by `weigh_values`.
    """
    _, _, lanes, _, ends, _ = kept
    gain, decay = factors
    batch, neurons = dv.shape
    turns, origin = len(q) // (batch * WIDTH), block * WIDTH
    real, zero = min(WIDTH, neurons - origin), dv.dtype.type(0)
    strip, both = np.zeros(batch * WIDTH, dv.dtype), np.zeros(2 * WIDTH, dv.dtype)
    _load_strips(strip, dv, origin, real)
    both[:real], both[WIDTH : WIDTH + real] = gain[origin : origin + real], decay[origin : origin + real]
    own_lanes, own = lanes[block], weighted[block]
    for turn in range(turns):
        t = turns - 1 - turn
        resets = masked and turn > 0
        for k in range(ends[block, t - 1] if t else 0, ends[block, t]):
            lane = own_lanes[k]
            fired = lane < 0
            at = ~lane if fired else lane
            before = strip[at]  # read in either case: no branch to foresee
            strip[at] = (zero if fired & resets else before) + own[k]
        for b in range(batch):
            fade_strip(strip, b * WIDTH, both, q, (turn * batch + b) * WIDTH)
    _store_strips(strip, dv, origin, real)


@compiled
def _load_strips(strips, rows, origin, real):  # type: ignore[no-untyped-def]
    """strips [samples * WIDTH] = `real` neighbours from `origin` on of every row."""
    for b in range(len(rows)):
        for n in range(real):
            strips[b * WIDTH + n] = rows[b, origin + n]


@compiled
def _store_strips(strips, rows, origin, real):  # type: ignore[no-untyped-def]
    """The other way."""
    for b in range(len(rows)):
        for n in range(real):
            rows[b, origin + n] = strips[b * WIDTH + n]
