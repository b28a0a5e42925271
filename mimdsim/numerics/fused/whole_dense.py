"""A layer with dense spikes over all timesteps at once, without tiles: every neuron has a gradient.

Rows. A value of a layer has a row for every place t * batch + b, in it the positions of its planes one after another,
at each the channels; layers without planes have one position. Rows of neurons are padded to blocks of WIDTH, and so are
maps of neurons (those of `whole_linear`; one block of coefficients where all neurons have the same).

Lists. Spikes are those of `whole_tensors`, true ones only, numbered with channels outermost. `cover` says where the
spikes of a pixel go: (starts [pixels + 1], at, taps); entry e adds the weights of row channel * taps + taps[e] to the
currents from at[e] on. One pixel and one tap are a product of all neurons with all.

Dropout. `drop` is (states uint64[batch], step of the masks from timestep to timestep, limit, scale): what is read is
kept, and multiplied by `scale`, where the mixed sum of the sample's state, an offset of the neuron and `step` times the
timestep is below `limit`. Without states nothing is dropped.

Pools. A table int64[places, taps] holds the pixel under each tap, negative in the padding; a pool is (table, factor),
a largest value is kept by its tap in `winners`.

Norms. Where what the weights make is normalised, `currents` makes it of all places before; then `apart` is its distance
from the mean [places, columns of a row], `factors` what that is multiplied with [timesteps, columns].
Samples are independent of each other, and so are rows of weights: threads share them and get the same bits.
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.dense.elementwise import mixed
from mimdsim.numerics.equations import SUPERSPIKE, superspike, surrogate
from mimdsim.numerics.fused.interpreted import WIDTH
from mimdsim.numerics.fused.vectors import (
    above,
    add_products,
    add_run,
    copy_strips,
    lowest_bit,
    stream_strips,
    weigh_strips,
)
from mimdsim.numerics.fused.whole_linear import ALL_TO_ALL, ONE_BIT, ONE_TO_ONE, add_places

WORD = np.uint64(0xFFFFFFFF)


@compiled
def currents(first, last, how, source, weights, cover, made):  # type: ignore[no-untyped-def]
    """What the weights make of what places first..last-1 read, into made [places, ...]; how, source, cover: as of
    `forward`."""
    for place in range(first, last):
        made[place] = 0
        _add_read(made[place], place, how, source, weights.reshape(-1), weights.shape[1], cover)


@compiled
def _add_read(given, place, how, source, weights, columns, cover):  # type: ignore[no-untyped-def]
    _, lag, pixels, taps = how
    starts, trues, ids = source
    cover_starts, cover_at, cover_taps = cover
    read = place - lag
    begin, end = (starts[read], starts[read] + trues[read]) if read >= 0 else (0, 0)
    if pixels == 1 and taps == 1 and len(cover_at) == 1 and cover_at[0] == 0:
        add_run(given, 0, weights, 0, columns, ids, begin, end, columns)
    else:
        for k in range(begin, end):
            channel, pixel = ids[k] // pixels, ids[k] % pixels
            for e in range(cover_starts[pixel], cover_starts[pixel + 1]):
                row = (channel * taps + cover_taps[e]) * columns
                add_run(given, cover_at[e], weights, row, 0, ids, k, k + 1, columns)


@compiled
def forward(samples, times, how, source, parameters, norm, cover, after, ahead, limits, kept, x, spikes):  # type: ignore[no-untyped-def]
    """Advance these samples (first, last + 1, batch) through these timesteps (first, last + 1).

    how: synapses onto itself, how many places back the input is, its pixels, taps. source: starts, trues, ids.
    parameters: weights, biases (a row, or one for each timestep), r. norm: apart and factors; apart is empty without
    one. after: a pool of the currents (an empty table: none) and its winners [places, neurons], none wide if it does
    not keep the largest. limits: what a neuron that has fired is above, neurons. kept: potentials, and the states
    before and currents where gradients read them, else empty. x: states, from one timestep to the next, [batch, blocks,
    states * WIDTH]. spikes: uint64[places, blocks], overwritten.
    """
    wiring, (apart, norm_factors) = how[0], norm
    weights, biases, r = parameters[0].reshape(-1), parameters[1], parameters[2].reshape(-1)
    table, factor, winners = after
    fired, neurons = limits
    sums, sources, coefficients = ahead[0], ahead[1], ahead[2].reshape(-1)
    potentials, befores, currents = kept[0].reshape(-1), kept[1].reshape(-1), kept[2].reshape(-1)
    blocks, columns, states = spikes.shape[1], parameters[0].shape[1], len(sums) - 1
    batch, held = samples[2], x.reshape(-1)
    step = ahead[2][0].size if len(ahead[2]) > 1 else 0
    size, current, made, u = states * WIDTH, states * WIDTH, (states + 2) * WIDTH, (2 * states + 2) * WIDTH
    strips = np.ones(u + WIDTH, potentials.dtype)
    given, pooled = np.zeros(biases.shape[1], potentials.dtype), np.zeros(blocks * WIDTH, potentials.dtype)
    own = np.zeros(neurons if wiring == ALL_TO_ALL else 0, np.int32)
    for b in range(samples[0], samples[1]):
        for t in range(times[0], times[1]):
            place = t * batch + b
            if t == 0:
                x[b] = 0
            given[:] = biases[t % len(biases)]
            if len(apart):
                for n in range(apart.shape[1]):
                    given[n] += apart[place, n] * norm_factors[t, n]
            else:
                _add_read(given, place, how, source, weights, columns, cover)
            if wiring == ALL_TO_ALL and t:
                found = 0
                for block in range(blocks):
                    bits = spikes[place - batch, block]
                    while bits != 0:
                        own[found] = block * WIDTH + lowest_bit(bits)
                        bits &= bits - ONE_BIT
                        found += 1
                add_run(given, 0, r, 0, columns, own, 0, found, columns)
            elif wiring == ONE_TO_ONE and t:
                for block in range(blocks):
                    bits = spikes[place - batch, block]
                    while bits != 0:
                        n = block * WIDTH + lowest_bit(bits)
                        bits &= bits - ONE_BIT
                        given[n] += r[n]
            if len(table):
                _gather(pooled, given, table, columns, factor, winners[place])
            into = pooled if len(table) else given
            for block in range(blocks):
                spot, state = place * blocks + block, (b * blocks + block) * size
                copy_strips(strips, current, into, block * WIDTH, 1)
                copy_strips(strips, 0, held, state, states)
                who = spikes[place - batch, block] if t else np.uint64(0)
                weigh_strips(strips, sums, len(sums), sources, coefficients, block * step, who)
                copy_strips(held, state, strips, made, states)
                stream_strips(potentials, spot * WIDTH, strips, u, 1)
                if len(befores):
                    stream_strips(befores, spot * size, strips, 0, states)
                if len(currents):
                    stream_strips(currents, spot * WIDTH, strips, current, 1)
                bits, real = above(strips, u, fired), neurons - block * WIDTH
                spikes[place, block] = bits if real >= WIDTH else bits & ((ONE_BIT << np.uint64(real)) - ONE_BIT)


@compiled
def add_rows(first, last, origin, one, other, totals):  # type: ignore[no-untyped-def]
    """Add to totals [timesteps, columns] the rows of one [timesteps, rows, columns], times those of `other` if it has
    any; timesteps first..last-1 of totals are those from `origin` + first on."""
    for t in range(first, last):
        into = totals[t]
        for b in range(one.shape[1]):
            row = one[origin + t, b]
            if len(other):
                factors = other[origin + t, b]
                for n in range(len(row)):
                    into[n] += row[n] * factors[n]
            else:
                for n in range(len(row)):
                    into[n] += row[n]


@compiled
def _gather(made, given, table, channels, factor, winners):  # type: ignore[no-untyped-def]
    """made[place, channel] = factor * the sum of what the window covers, or the largest of it, whose taps are kept."""
    largest = len(winners) > 0
    for place in range(len(table)):
        row = made[place * channels : (place + 1) * channels]
        won = winners[place * channels : (place + 1) * channels] if largest else winners[:0]
        row[:] = 0
        first = True
        for tap in range(table.shape[1]):
            if table[place, tap] < 0:
                continue
            begin = table[place, tap] * channels
            covered = given[begin : begin + channels]
            if not largest:
                for n in range(len(row)):
                    row[n] += covered[n]
            else:
                for n in range(len(row)):
                    if first or covered[n] > row[n]:
                        row[n] = covered[n]
                        won[n] = tap
            first = False
        if not largest:
            for n in range(len(row)):
                row[n] *= factor


@compiled
def scatter(made, given, table, channels, factor, winners):  # type: ignore[no-untyped-def]
    """Add to `made` what the adjoint of `_gather` makes of `given`."""
    largest = len(winners) > 0
    for place in range(len(table)):
        row = given[place * channels : (place + 1) * channels]
        won = winners[place * channels : (place + 1) * channels] if largest else winners[:0]
        for tap in range(table.shape[1]):
            if table[place, tap] < 0:
                continue
            begin = table[place, tap] * channels
            covered = made[begin : begin + channels]
            if not largest:
                for n in range(len(row)):
                    covered[n] += factor * row[n]
            else:
                for n in range(len(row)):
                    if won[n] == tap:
                        covered[n] += row[n]


@compiled
def scatter_places(first, last, made, given, table, channels, factor, winners):  # type: ignore[no-untyped-def]
    """`scatter` of every place, into zeros."""
    for place in range(first, last):
        made[place] = 0
        scatter(made[place], given[place], table, channels, factor, winners[place])


@compiled
def list_spikes(first, last, spikes, channels, positions, starts, trues, ids):  # type: ignore[no-untyped-def]
    """The lists of places first..last-1, those before being listed, from a bit for every neuron, numbered with channels
    outermost, in ascending order."""
    end = starts[first]
    for place in range(first, last):
        starts[place] = end
        for block in range(spikes.shape[1]):
            bits = spikes[place, block]
            while bits != 0:
                n = block * WIDTH + lowest_bit(bits)
                bits &= bits - ONE_BIT
                ids[end] = n % channels * positions + n // channels
                end += 1
        trues[place] = end - starts[place]
        if positions > 1:
            ids[starts[place] : end].sort()
    starts[last] = end


@compiled
def list_pooled(first, last, once, source, pixels, cover, positions, starts, trues, ids):  # type: ignore[no-untyped-def]
    """Which windows cover spikes: lists of places first..last-1 by channel and position, each once (where the largest
    spike is 1) or for every spike under it, in the order of spikes."""
    given_starts, given_trues, given = source
    cover_starts, at, _ = cover
    seen = np.full(len(ids) // len(trues) if once else 0, -1, np.int64)
    end = starts[first]
    for place in range(first, last):
        starts[place] = end
        for k in range(given_starts[place], given_starts[place] + given_trues[place]):
            channel, pixel = given[k] // pixels, given[k] % pixels
            for e in range(cover_starts[pixel], cover_starts[pixel + 1]):
                one = channel * positions + at[e]
                if once and seen[one] == place:
                    continue
                if once:
                    seen[one] = place
                ids[end] = one
                end += 1
        trues[place] = end - starts[place]
    starts[last] = end


@compiled
def list_kept(first, last, lag, source, offsets, drop, starts, trues, ids):  # type: ignore[no-untyped-def]
    """The lists of places first..last-1, those before being listed, of what dropout keeps of those `lag` places before;
    offsets: uint64 by id."""
    given_starts, given_trues, given = source
    states, step, limit, _ = drop
    batch, end = len(states), starts[first]
    for place in range(first, last):
        starts[place] = end
        begin = given_starts[place - lag] if place >= lag else 0
        for k in range(begin, begin + given_trues[place - lag] if place >= lag else 0):
            word = states[place % batch] + offsets[given[k]] + step * np.uint64(place // batch)
            if mixed(word & WORD) < limit:
                ids[end] = given[k]
                end += 1
        trues[place] = end - starts[place]
    starts[last] = end


@compiled
def drop_rows(first, last, origin, offsets, drop, rows):  # type: ignore[no-untyped-def]
    """Gradients of what is kept, in place; rows first..last-1 are of places from `origin` + first on."""
    for k in range(first, last):
        place = origin + k
        _drop_row(rows[k], place // len(drop[0]), place % len(drop[0]), offsets, drop)


@compiled
def _drop_row(row, t, sample, offsets, drop):  # type: ignore[no-untyped-def]
    states, step, limit, scale = drop
    begin, none = states[sample] + step * np.uint64(t), row.dtype.type(0)
    for n in range(len(offsets)):
        row[n] = row[n] * scale if mixed((begin + offsets[n]) & WORD) < limit else none


@compiled(error_model="numpy")
def _of_potentials(kind, us, threshold, slope, gs, more, direct, du):  # type: ignore[no-untyped-def]
    """du <- (gs + more) * surrogate, or with `direct` gs + more * surrogate."""
    one = us.dtype.type(1)
    if kind == SUPERSPIKE and not direct:
        for n in range(len(du)):
            du[n] = (gs[n] + more[n]) * superspike(us[n] - threshold, slope, one)
        return
    for n in range(len(du)):
        near = surrogate(kind, us[n] - threshold, slope, du)
        du[n] = gs[n] + more[n] * near if direct else (gs[n] + more[n]) * near


@compiled
def adjoint(samples, times, how, maps, r, kept, spikes, carried, through, learned, g):  # type: ignore[no-untyped-def]
    """g [places, blocks * WIDTH], the gradients of these samples' (first, last + 1, batch) spikes, or potentials, at
    these times (first, last + 1) becomes that of their currents.

    how: whether g is of potentials, synapses onto itself, whether neurons that fired are pulled back by the other
    coefficients, whether gradients go through their firing, threshold, kind and slope of the surrogate. maps: readout,
    back, change. carried: adjoints of the states [batch, blocks, states * WIDTH], through: of the spikes [batch,
    blocks, WIDTH], both of the timestep after. learned: as of `whole_linear`.
    """
    direct, wiring, switched, full, threshold, kind, slope = how
    (read, readout), back, change = maps
    sums, sources, coefficients = back[0], back[1], back[2].reshape(-1)
    potentials, befores, currents = kept[0].reshape(-1), kept[1].reshape(-1), kept[2].reshape(-1)
    blocks, states, batch = spikes.shape[1], len(sums) - 1, samples[2]
    size, several = states * WIDTH, 1 if len(back[2]) > 1 else 0
    strips, others = np.ones(2 * size + WIDTH, g.dtype), np.ones(2 * size + 2 * WIDTH, g.dtype)
    du, gradients = np.zeros(WIDTH, g.dtype), g.reshape(-1)
    factors, changes = readout.reshape(-1), change[2].reshape(-1)
    adjoints, passed, own = carried.reshape(-1), through.reshape(-1), r.reshape(-1)
    stand, made = learned
    for b in range(samples[0], samples[1]):
        for t in range(times[1] - 1, times[0] - 1, -1):
            for block in range(blocks):
                spot, here = (t * batch + b) * blocks + block, b * blocks + block
                at, given, later = here * size, spot * WIDTH, here * WIDTH
                us, gs = potentials[given : given + WIDTH], gradients[given : given + WIDTH]
                more = passed[later : later + WIDTH]
                _of_potentials(kind, us, threshold, slope, gs, more, direct, du)
                for k in range(len(read)):
                    weights = (block * several * len(read) + k) * WIDTH
                    add_products(adjoints, at + read[k] * WIDTH, factors, weights, du, 0)
                if len(made):
                    who, before = spikes[(t - 1) * batch + b, block] if t else np.uint64(0), spot * size
                    into = made[b, block]
                    add_places(stand, adjoints, at, befores, before, currents, given, who, into)
                    for n in range(WIDTH):
                        into[len(into) - WIDTH + n] += du[n]
                more[:] = 0
                if full and t:
                    if len(befores):
                        copy_strips(others, 0, befores, spot * size, states)
                    if len(currents):
                        copy_strips(others, size, currents, spot * WIDTH, 1)
                    begin = block * several * change[2][0].size
                    weigh_strips(others, change[0], len(change[0]), change[1], changes, begin, np.uint64(0))
                    for k in range(states):
                        add_products(passed, later, adjoints, at + k * WIDTH, others, size + (k + 2) * WIDTH)
                who = spikes[(t - 1) * batch + b, block] if t and switched else np.uint64(0)
                copy_strips(strips, 0, adjoints, at, states)
                weigh_strips(strips, sums, len(sums), sources, coefficients, block * several * back[2][0].size, who)
                copy_strips(adjoints, at, strips, size, states)
                copy_strips(gradients, given, strips, 2 * size, 1)
                if wiring == ONE_TO_ONE:
                    add_products(passed, later, own, block * WIDTH, gradients, given)


@compiled
def own_gradient(batch, spikes, q, dr):  # type: ignore[no-untyped-def]
    """dr += the sum of q [places, blocks * WIDTH] where the neuron itself had fired a timestep earlier."""
    for place in range(batch, len(spikes)):
        for block in range(spikes.shape[1]):
            bits = spikes[place - batch, block]
            while bits != 0:
                n = block * WIDTH + lowest_bit(bits)
                bits &= bits - ONE_BIT
                dr[n] += q[place, n]


@compiled
def weight_gradient(first, last, columns, rows, pixels, taps, cover, q, dw):  # type: ignore[no-untyped-def]
    """dw [rows, neurons] of channels first..last-1 = sums of q [places, ...] where spikes are read; columns, rows: the
    places that read each id, as `sort_by_id` makes them."""
    starts, at, of = cover
    width, stride, gradient, adjoints = dw.shape[1], q.shape[1], dw.reshape(-1), q.reshape(-1)
    dw[first * taps : last * taps] = 0
    for each in range(first * pixels, last * pixels):
        begin, end = columns[each], columns[each + 1]
        channel, pixel = each // pixels, each % pixels
        for e in range(starts[pixel], starts[pixel + 1] if begin < end else starts[pixel]):
            add_run(gradient, (channel * taps + of[e]) * width, adjoints, at[e], stride, rows, begin, end, width)


@compiled
def fold(first, made, back, table, channels, pool, factor, spikes, offsets, drop, g):  # type: ignore[no-untyped-def]
    """Add gradients of patches `made` [places, window places, taps * channels], of places from `first` on, to the rows
    of g [places, planes] that lie `back` places before.

    table: of the window. pool, factor: of the spikes before it; with `spikes`, bits by place, a largest is the first
    under the pool that fired, or just the first; without places it is a sum. offsets: of what dropout keeps, in
    the order of rows.
    """
    dropping = len(drop[0]) > 0
    pooled = np.zeros(len(offsets) if dropping else len(pool) * channels, g.dtype)
    winners = np.zeros(len(pool) * channels if len(spikes) else 0, np.uint8)
    for k in range(max(0, back - first), len(made)):
        row = g[first + k - back]
        pooled[:] = 0
        into = pooled if len(pooled) else row
        for place in range(len(table)):
            for tap in range(table.shape[1]):
                if table[place, tap] < 0:
                    continue
                begin = table[place, tap] * channels
                covered, given = into[begin : begin + channels], made[k, place, tap * channels : (tap + 1) * channels]
                for n in range(len(covered)):
                    covered[n] += given[n]
        if dropping:
            _drop_row(pooled, (first + k) // len(drop[0]), (first + k) % len(drop[0]), offsets, drop)
        if len(spikes):
            _first_spikes(spikes[first + k - back], pool, channels, winners)
        if len(pool):
            scatter(row, pooled, pool, channels, factor, winners)
        elif dropping:
            row[: len(pooled)] += pooled


@compiled
def _first_spikes(bits, table, channels, winners):  # type: ignore[no-untyped-def]
    """Taps of the first spikes under a pool; of the first pixels where there are none."""
    for place in range(len(table)):
        for channel in range(channels):
            found = -1
            for tap in range(table.shape[1]):
                if table[place, tap] < 0:
                    continue
                n = table[place, tap] * channels + channel
                if found < 0:
                    found = tap
                if bits[n // WIDTH] >> np.uint64(n % WIDTH) & ONE_BIT:
                    found = tap
                    break
            winners[place * channels + channel] = found
