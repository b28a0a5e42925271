"""GPU kernels in Triton of a spiking training step: neurons walked through time, and products that follow lists.

Arrays over time have shape [timesteps, batch, neurons] with timesteps * batch rows. A list of a row (the spikes of one
timestep and sample) or of a column (the rows in which one neuron fired) has a count and space for all it could hold, so
that none overflows. Programs of a launch are numbered over rows first. Neurons as in bptt.py.
"""

# Triton reads annotations of its kernels' parameters: they stay values, and nothing else is annotated.
import triton
import triton.language as tl

THRESHOLD = tl.constexpr(1.0)
ENTRIES = 4  # list entries whose rows a program has under way at once
ENTRIES_OF_WALK, ENTRIES_BACK = 8, 16  # the same, where one program is all that a sample has


@triton.jit
def _surrogate(v, second, slope):
    near = 1.0 / (slope * tl.abs(v - THRESHOLD) + 1.0)
    return tl.where(v > second, near * near, 0.0)


@triton.jit
def _advance(v, arriving, decay, scale):
    return decay * tl.where(v > THRESHOLD, 0.0, v) + scale * arriving.to(tl.float32)


@triton.jit
def walk_forward(
    current, initial, states, fired, timesteps, columns, decay, scale,
    INITIAL: tl.constexpr, FIRED: tl.constexpr, BLOCK: tl.constexpr,
    bias=None, inner=1, channels=1, BIAS: tl.constexpr = False,
):  # fmt: skip
    """states[t] = decay * states[t - 1] (zero where it fired) + scale * current[t]; if FIRED, fired[t] = states[t] > 1.

    `columns` = batch * neurons; a program owns BLOCK of them for all timesteps, from `initial` on if INITIAL. The
    currents of four timesteps are loaded at once, because a timestep waits for the one before but not for its load.
    BIAS: added to the current, one for each of `channels`, which `inner` columns next to each other share.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.zeros([BLOCK], tl.float32)
    beside = v
    if BIAS:
        beside = tl.load(bias + (at // inner) % channels, mask=inside, other=0.0)
    if INITIAL:
        v = tl.load(initial + at, mask=inside, other=0.0).to(tl.float32)
    end = timesteps * columns
    for _ in range(0, timesteps, 4):
        at1, at2, at3 = at + columns, at + 2 * columns, at + 3 * columns
        in1, in2, in3 = inside & (at1 < end), inside & (at2 < end), inside & (at3 < end)
        c0 = tl.load(current + at, mask=inside, other=0.0)
        c1 = tl.load(current + at1, mask=in1, other=0.0)
        c2 = tl.load(current + at2, mask=in2, other=0.0)
        c3 = tl.load(current + at3, mask=in3, other=0.0)
        v0 = _advance(v, c0 + beside, decay, scale)
        v1 = _advance(v0, c1 + beside, decay, scale)
        v2 = _advance(v1, c2 + beside, decay, scale)
        v = _advance(v2, c3 + beside, decay, scale)
        tl.store(states + at, v0, mask=inside)
        tl.store(states + at1, v1, mask=in1)
        tl.store(states + at2, v2, mask=in2)
        tl.store(states + at3, v, mask=in3)
        if FIRED:
            tl.store(fired + at, (v0 > THRESHOLD).to(tl.float32), mask=inside)
            tl.store(fired + at1, (v1 > THRESHOLD).to(tl.float32), mask=in1)
            tl.store(fired + at2, (v2 > THRESHOLD).to(tl.float32), mask=in2)
            tl.store(fired + at3, (v > THRESHOLD).to(tl.float32), mask=in3)
        at += 4 * columns


@triton.jit
def _driven(arriving, states, t, columns, step, own, inside, second, slope):
    here = inside & (t * columns + own >= 0)
    v = tl.load(states + t * columns + own, mask=here, other=0.0).to(tl.float32)
    given = tl.load(arriving + t * step + own, mask=here, other=0.0).to(tl.float32)
    return given * _surrogate(v, second, slope)


@triton.jit
def walk_backward(
    arriving, states, carried, handed, timesteps, columns, step, decay, scale, second, slope,
    CARRIED: tl.constexpr, BLOCK: tl.constexpr,
    totals=None, TOTAL: tl.constexpr = False,
):  # fmt: skip
    """handed[t] = scale * d[t], d[t] = decay * d[t + 1] + arriving[t] * surrogate(states[t]), last timestep first.

    `step`: columns from one timestep of `arriving` to the next, 0 where all have the same. CARRIED: d starts with
    `carried` and is left there, for one timestep at a time. TOTAL: `totals` has the sum of handed over the timesteps,
    added to what is there if CARRIED.
    """
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = own < columns
    d = tl.zeros([BLOCK], tl.float32)
    if CARRIED:
        d = tl.load(carried + own, mask=inside, other=0.0)
        d = decay * d + _driven(arriving, states, 0, columns, step, own, inside, second, slope)
        tl.store(carried + own, d, mask=inside)
        tl.store(handed + own, scale * d, mask=inside)
        if TOTAL:
            tl.store(totals + own, tl.load(totals + own, mask=inside) + scale * d, mask=inside)
    else:
        total = d
        for back in range(0, timesteps, 4):
            t = timesteps - 1 - back
            g0 = _driven(arriving, states, t, columns, step, own, inside, second, slope)
            g1 = _driven(arriving, states, t - 1, columns, step, own, inside, second, slope)
            g2 = _driven(arriving, states, t - 2, columns, step, own, inside, second, slope)
            g3 = _driven(arriving, states, t - 3, columns, step, own, inside, second, slope)
            d0 = decay * d + g0
            d1 = decay * d0 + g1
            d2 = decay * d1 + g2
            d = decay * d2 + g3
            total += d0 + tl.where(t >= 1, d1, 0.0) + tl.where(t >= 2, d2, 0.0) + tl.where(t >= 3, d, 0.0)
            tl.store(handed + t * columns + own, scale * d0, mask=inside)
            tl.store(handed + (t - 1) * columns + own, scale * d1, mask=inside & ((t - 1) * columns + own >= 0))
            tl.store(handed + (t - 2) * columns + own, scale * d2, mask=inside & ((t - 2) * columns + own >= 0))
            tl.store(handed + (t - 3) * columns + own, scale * d, mask=inside & ((t - 3) * columns + own >= 0))
        if TOTAL:
            tl.store(totals + own, scale * total, mask=inside)


@triton.jit
def unfold(
    ids, counts, dense, capacity, columns, BLOCK: tl.constexpr, positions=1, channels=1, LAST: tl.constexpr = False
):  # fmt: skip
    """Ones at the ids of each row of `dense`, which holds zeros. LAST: ids count channels outermost, `positions` each;
    rows have them innermost, `channels` of them with padding."""
    row = tl.program_id(0)
    count = tl.load(counts + row)
    for start in range(0, count, BLOCK):
        entry = start + tl.arange(0, BLOCK)
        id = tl.load(ids + row * capacity + entry, mask=entry < count, other=0)
        if LAST:
            id = (id % positions) * channels + id // positions
        tl.store(dense + row * columns + id, tl.full([BLOCK], 1.0, tl.float32), mask=entry < count)


@triton.jit
def list_rows(
    states, spikes, spike_counts, near, near_counts, by_column, column_counts, rows, columns, lowest,
    SPIKES: tl.constexpr, NEAR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of every row: the columns that fired, entered into the lists of the columns as well, and if NEAR those above
    `lowest`. SPIKES: the row's own list of spikes is made too, and not there already."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(states + row * columns + at, mask=at < columns, other=-1e30).to(tl.float32)
    fired = v > THRESHOLD
    if SPIKES:
        tl.store(spikes + row * columns + tl.cumsum(fired.to(tl.int32), 0) - 1, at, mask=fired)
        tl.store(spike_counts + row, tl.sum(fired.to(tl.int32), 0))
    place = tl.atomic_add(column_counts + at, 1, mask=fired, sem="relaxed")
    tl.store(by_column + at * rows + place, row + tl.zeros_like(at), mask=fired)
    if NEAR:
        above = v > lowest
        tl.store(near + row * columns + tl.cumsum(above.to(tl.int32), 0) - 1, at, mask=above)
        tl.store(near_counts + row, tl.sum(above.to(tl.int32), 0))


@triton.jit
def enter_into_columns(ids, counts, by_column, column_counts, capacity, rows, BLOCK: tl.constexpr):
    """Every row's list, which is there, entered into the lists of the columns, in any order."""
    row = tl.program_id(0)
    count = tl.load(counts + row)
    for start in range(0, count, BLOCK):
        entry = start + tl.arange(0, BLOCK)
        id = tl.load(ids + row * capacity + entry, mask=entry < count, other=0)
        place = tl.atomic_add(column_counts + id, 1, mask=entry < count, sem="relaxed")
        tl.store(by_column + id * rows + place, row + tl.zeros_like(entry), mask=entry < count)


@triton.jit
def gather_rows(
    table, ids, counts, out, columns, capacity, shift,
    SPLITS: tl.constexpr, ENTRIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[row] = sum of table[id + shift] over the ids of the row's list; added to `out` where SPLITS share a list."""
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    part = tl.program_id(2)
    inside = at < columns
    count = tl.load(counts + row)
    first, last = 0, count
    if SPLITS > 1:
        share = tl.cdiv(count, SPLITS)
        first, last = part * share, tl.minimum(count, part * share + share)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(first, last, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        id = tl.load(ids + row * capacity + entry, mask=entry < last, other=0) + shift
        here = (entry < last)[:, None] & inside[None, :]
        total += tl.sum(tl.load(table + id[:, None] * columns + at[None, :], mask=here, other=0.0).to(tl.float32), 0)
    if SPLITS > 1:
        if first < last:
            tl.atomic_add(out + row * columns + at, total, mask=inside, sem="relaxed")
    else:
        tl.store(out + row * columns + at, total, mask=inside)


@triton.jit
def gradient_of_listed(
    handed, weights, ids, counts, out, columns, sources, shift, ENTRIES: tl.constexpr, BLOCK: tl.constexpr
):
    """out[row, id] = handed[row + shift] . weights[id], for the ids of the row's list; the rest of `out` stays."""
    row = tl.program_id(0)
    count = tl.load(counts + row)
    for start in range(0, count, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        id = tl.load(ids + row * sources + entry, mask=entry < count, other=0)
        total = tl.zeros([ENTRIES, BLOCK], tl.float32)
        for first in range(0, columns, BLOCK):
            at = first + tl.arange(0, BLOCK)
            inside = at < columns
            q = tl.load(handed + (row + shift) * columns + at, mask=inside, other=0.0).to(tl.float32)
            here = (entry < count)[:, None] & inside[None, :]
            total += q[None, :] * tl.load(weights + id[:, None] * columns + at[None, :], mask=here, other=0.0)
        tl.store(out + row * sources + id, tl.sum(total, 1), mask=entry < count)


@triton.jit
def recur_forward(
    current, weights, states, ids, counts, timesteps, batch, neurons, decay, scale,
    ENTRIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A recurrent layer of one sample, all timesteps: the neurons that fired add their rows of `weights` to the next.

    Nothing is waited for but the program's own threads. Lists of the spikes of every row stay in `ids`.
    """
    sample = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < neurons
    v = tl.zeros([BLOCK], tl.float32)
    count = 0
    for t in range(timesteps):
        row = t * batch + sample
        arriving = tl.load(current + row * neurons + at, mask=inside, other=0.0)
        for start in range(0, count, ENTRIES):
            entry = start + tl.arange(0, ENTRIES)
            id = tl.load(ids + (row - batch) * neurons + entry, mask=entry < count, other=0)
            here = (entry < count)[:, None] & inside[None, :]
            arriving += tl.sum(tl.load(weights + id[:, None] * neurons + at[None, :], mask=here, other=0.0), 0)
        v = decay * tl.where(v > THRESHOLD, 0.0, v) + scale * arriving
        above = ((v > THRESHOLD) & inside).to(tl.int32)
        tl.store(states + row * neurons + at, v, mask=inside)
        tl.store(ids + row * neurons + tl.cumsum(above, 0) - 1, at, mask=above > 0)
        count = tl.sum(above, 0)
        tl.store(counts + row, count)
        tl.debug_barrier()


@triton.jit
def recur_backward(
    arriving, weights, states, ids, counts, handed, timesteps, batch, neurons, decay, scale, second, slope,
    ENTRIES: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The backward pass of recur_forward: `arriving` [rows, neurons] holds what later layers sent, and gets what the
    layer sends itself, at the ids of each row's list."""
    sample = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < neurons
    d = tl.zeros([BLOCK], tl.float32)
    for back in range(timesteps):
        row = (timesteps - 1 - back) * batch + sample
        v = tl.load(states + row * neurons + at, mask=inside, other=0.0)
        count = tl.load(counts + row)
        if back > 0:
            for start in range(0, count, ENTRIES):
                entry = start + tl.arange(0, ENTRIES)
                id = tl.load(ids + row * neurons + entry, mask=entry < count, other=0)
                total = tl.zeros([ENTRIES, CHUNK], tl.float32)
                for first in range(0, neurons, CHUNK):
                    column = first + tl.arange(0, CHUNK)
                    q = tl.load(handed + (row + batch) * neurons + column, mask=column < neurons, other=0.0)
                    here = (entry < count)[:, None] & (column < neurons)[None, :]
                    w = tl.load(weights + id[:, None] * neurons + column[None, :], mask=here, other=0.0)
                    total += q[None, :] * w
                sent = tl.sum(total, 1)
                place = arriving + row * neurons + id
                tl.store(place, tl.load(place, mask=entry < count, other=0.0) + sent, mask=entry < count)
            tl.debug_barrier()
        given = tl.load(arriving + row * neurons + at, mask=inside, other=0.0)
        d = decay * d + given * _surrogate(v, second, slope)
        tl.store(handed + row * neurons + at, scale * d, mask=inside)
        tl.debug_barrier()


@triton.jit
def _window_at(at, channels, high, wide, LAST: tl.constexpr):
    """(sample, channel, y, x) of window `at` of high x wide in each plane."""
    if LAST:
        c, rest = at % channels, at // channels
        return rest // wide // high, c, rest // wide % high, rest % wide
    else:  # because Triton compiles what follows a branch
        plane = at // wide // high
        return plane // channels, plane % channels, at // wide % high, at % wide


@triton.jit
def _pixel(n, c, y, x, channels, height, width, LAST: tl.constexpr):
    if LAST:
        return ((n * height + y) * width + x) * channels + c
    else:
        return ((n * channels + c) * height + y) * width + x


@triton.jit
def pool(
    values, out, count, channels, height, width, high, wide, factor,
    K: tl.constexpr, MAX: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest value, or the sum times `factor`, of windows of K x K side by side; LAST: channels innermost."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    n, c, y, x = _window_at(at, channels, high, wide, LAST)
    found = tl.zeros([BLOCK], tl.float32)
    for tap in tl.static_range(K * K):
        here = _pixel(n, c, y * K + tap // K, x * K + tap % K, channels, height, width, LAST)
        v = tl.load(values + here, mask=inside, other=0.0).to(tl.float32)
        if MAX:
            found = v if tap == 0 else tl.maximum(found, v)
        else:
            found += v
    tl.store(out + at, found if MAX else found * factor, mask=inside)


@triton.jit
def pool_back(
    q, values, out, count, channels, height, width, high, wide, factor,
    K: tl.constexpr, MAX: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `pool`: to the first of the largest values, or to all; zero beyond the last window."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    all_high, all_wide = (height + K - 1) // K, (width + K - 1) // K
    n, c, y, x = _window_at(at, channels, all_high, all_wide, LAST)
    whole = (at < count) & (y < high) & (x < wide)
    given = tl.load(q + _pixel(n, c, y, x, channels, high, wide, LAST), mask=whole, other=0.0).to(tl.float32) * factor
    first, largest = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.float32)
    if MAX:
        for tap in tl.static_range(K * K):
            here = _pixel(n, c, y * K + tap // K, x * K + tap % K, channels, height, width, LAST)
            v = tl.load(values + here, mask=whole, other=0.0).to(tl.float32)
            larger = (v > largest) | (tap == 0)
            first, largest = tl.where(larger, tap, first), tl.where(larger, v, largest)
    for tap in tl.static_range(K * K):
        down, right = y * K + tap // K, x * K + tap % K
        here = _pixel(n, c, down, right, channels, height, width, LAST)
        there = (at < count) & (down < height) & (right < width)
        tl.store(out + here, tl.where(first == tap, given, 0.0) if MAX else given, mask=there)
