"""Neurons: of fused ones the update from listed ids, and the adjoint at listed ids; of any linear one the update and
the adjoint, from a list of its nonzero coefficients.

A term is a row of `terms` int64[n, 4]: row of the state it contributes to, its column (states, then the current, then
one), and where its two coefficients (not fired, fired) lie in `own` [own, neurons], or -1 for `uniform` float64[n, 2].

Gradients of coefficients that neurons learn: what multiplies them, times the adjoint that they add to, summed.

A place is a row of `places` int64[n, 3]: the state that a coefficient adds to (as many as there are: the potential),
what it multiplies (states, the current, one), and when: always (0), after a spike (1), without one (2).
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.equations import SUPERSPIKE, integrated, surrogate, unless_spiked


@compiled
def _integrate(v, current, b, first, last, decay, scale, threshold):  # type: ignore[no-untyped-def]
    """v[b, n] <- (0 if v > threshold else decay*v) + scale * current, for n from first to last - 1."""
    zero = v.dtype.type(0)
    for n in range(first, last):
        v[b, n] = integrated(v[b, n], current[n - first], decay, scale, threshold, zero)


@compiled
def lif_update(v, w, ids, counts, sample, start, stop, decay, scale, threshold):  # type: ignore[no-untyped-def]
    """v[b, n] <- (0 if v > threshold else decay*v) + scale * sum of w[id, n] over the true spikes of sample b."""
    current = np.zeros(max(1, (stop - start).max()), v.dtype)
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        current[: last - first] = 0
        for k in range(counts[b, 0]):
            row = ids[b, k]
            for n in range(first, last):
                current[n - first] += w[row, n]
        _integrate(v, current, b, first, last, decay, scale, threshold)


@compiled
def lif_update_dense(v, w, row, sample, start, stop, decay, scale, threshold):  # type: ignore[no-untyped-def]
    """`lif_update` from a row of zeros and ones; in ascending order of neurons, as ids are listed."""
    current = np.zeros(max(1, (stop - start).max()), v.dtype)
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        current[: last - first] = 0
        for k in range(row.shape[1]):
            if row[b, k] != 0:
                for n in range(first, last):
                    current[n - first] += w[k, n]
        _integrate(v, current, b, first, last, decay, scale, threshold)


@compiled
def lif_integrate(v, current, sample, start, stop, decay, scale, threshold):  # type: ignore[no-untyped-def]
    """v[b, n] <- (0 if v > threshold else decay*v) + scale * current[b, n]."""
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        _integrate(v, current[b, first:last], b, first, last, decay, scale, threshold)


@compiled
def state_gradient(dv, v, g, ids, counts, sample, start, stop, threshold, slope, kind=SUPERSPIKE):  # type: ignore[no-untyped-def]
    """dv[b, id] += g[b, k] * surrogate(v[b, id] - threshold) for the listed ids of sample b in [start, stop)."""
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        for k in range(counts[b, 1]):
            n = ids[b, k]
            if first <= n < last:
                dv[b, n] += g[b, k] * surrogate(kind, v[b, n] - threshold, slope, dv)


@compiled
def state_gradient_rows(row, dv, v, threshold, g, ids, counts, sample, slope, kind=SUPERSPIKE):  # type: ignore[no-untyped-def]
    """row[b] = dv[b], plus the surrogate times g at the listed ids: `state_gradient` on whole rows of a sample."""
    for i in range(len(sample)):
        b = sample[i]
        for n in range(dv.shape[1]):
            row[b, n] = dv[b, n]
        for k in range(counts[b, 1]):
            n = ids[b, k]
            row[b, n] += g[b, k] * surrogate(kind, v[b, n] - threshold[n], slope, dv)


@compiled
def scale_in_place(target, factor, start, stop):  # type: ignore[no-untyped-def]
    """target[:, n] *= factor[n]."""
    for i in range(len(start)):
        by = factor[start[i] : stop[i]]
        for b in range(target.shape[0]):
            scaled = target[b, start[i] : stop[i]]
            for n in range(len(scaled)):
                scaled[n] = scaled[n] * by[n]


@compiled
def masked_adjoint_rows(dv, q, v_previous, row_start, row_stop, start, stop, decay, scale, threshold):  # type: ignore[no-untyped-def]
    """`adjoint_rows`, where v_previous > threshold with dv = 0: the gradient masked by the reset."""
    zero = dv.dtype.type(0)
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            adjoint, current = dv[b, start[i] : stop[i]], q[b, start[i] : stop[i]]
            before = v_previous[b, start[i] : stop[i]]
            for n in range(len(adjoint)):
                current[n] = adjoint[n] * scale
                adjoint[n] = unless_spiked(adjoint[n] * decay, before[n], threshold, zero)


@compiled
def adjoint_rows(dv, q, row_start, row_stop, start, stop, decay, scale):  # type: ignore[no-untyped-def]
    """q = dv * scale, then dv = decay * dv, of boxes of samples and neurons."""
    never = dv.dtype.type(np.inf)
    masked_adjoint_rows(dv, q, dv, row_start, row_stop, start, stop, decay, scale, never)


@compiled
def scale_unless_spiked(target, factor, v_previous, start, stop, threshold):  # type: ignore[no-untyped-def]
    """target[:, n] *= factor[n], or 0 where v_previous > threshold: the gradient masked by the reset."""
    zero = target.dtype.type(0)
    for i in range(len(start)):
        by = factor[start[i] : stop[i]]
        for b in range(target.shape[0]):
            into, before = target[b, start[i] : stop[i]], v_previous[b, start[i] : stop[i]]
            for n in range(len(into)):
                into[n] = unless_spiked(into[n] * by[n], before[n], threshold, zero)


# ---- any linear neuron


@compiled
def _add_term(made, given, chosen, own, places, uniform, first, kind):  # type: ignore[no-untyped-def]
    """made += coefficient * given, by the second coefficient where `chosen`; nothing where that coefficient is zero."""
    quiet, fired = kind(uniform[0]), kind(uniform[1])
    zero = kind(0)
    if places[0] < 0 and places[1] < 0:
        if uniform[0] == uniform[1]:
            for n in range(len(made)):
                made[n] += quiet * given[n]
            return
        for n in range(len(made)):
            weight = fired if chosen[n] else quiet
            made[n] += zero if weight == zero else weight * given[n]
        return
    last = first + len(made)
    quiets = own[max(places[0], 0), first:last]  # slices: their indices need no check for numbers from the end
    fireds = own[max(places[1], 0), first:last]
    for n in range(len(made)):
        weight = quiet if places[0] < 0 else quiets[n]
        if chosen[n]:
            weight = fired if places[1] < 0 else fireds[n]
        made[n] += zero if weight == zero else weight * given[n]


@compiled
def _widest(start, stop):  # type: ignore[no-untyped-def]
    """The longest of these runs, at least 1."""
    width = 1
    for i in range(len(start)):
        width = max(width, stop[i] - start[i])
    return width


@compiled
def _copy(given, into):  # type: ignore[no-untyped-def]
    """into[:] = given, without the checks of an assignment to a slice, which are slow to compile."""
    for n in range(len(into)):
        into[n] = given[n]


@compiled
def _who_fired(chosen, source, b, first, last, threshold):  # type: ignore[no-untyped-def]
    given = source[b, first:last]
    for n in range(len(given)):
        chosen[n] = given[n] > source.dtype.type(threshold)


@compiled
def neuron_update(x, u, current, source, own, begin, end, start, stop, *constants):  # type: ignore[no-untyped-def]
    """x and u of samples begin..end-1 and neurons start..stop-1 advanced by one timestep."""
    terms, uniform, readout, weights, threshold, switched = constants
    kind = x.dtype.type
    states = x.shape[0]
    width = _widest(start, stop)
    made = np.zeros((states + 1, width), x.dtype)
    chosen = np.zeros(width, np.bool_)
    ones = np.ones(width, x.dtype)
    same = np.array([-1, -1])
    for i in range(len(start)):
        first, last = start[i], stop[i]
        span = last - first
        for b in range(begin[i], end[i]):
            made[:, :span] = 0
            if switched:
                _who_fired(chosen, source, b, first, last, threshold)
            for k in range(len(terms)):
                row, column = terms[k, 0], terms[k, 1]
                if column < states:
                    given = x[column, b, first:last]
                elif column == states:
                    given = current[b, first:last]
                else:
                    given = ones[:span]
                _add_term(made[row, :span], given, chosen, own, terms[k, 2:], uniform[k], first, kind)
            for k in range(len(readout)):
                given = made[readout[k, 0], :span] if readout[k, 0] < states else ones[:span]
                same[:] = readout[k, 1]
                _add_term(made[states, :span], given, chosen, own, same, weights[k], first, kind)
            for row in range(states):
                _copy(made[row], x[row, b, first:last])
            _copy(made[states], u[b, first:last])


@compiled
def neuron_gradient(dx, q, source, own, begin, end, start, stop, *constants):  # type: ignore[no-untyped-def]
    """dx <- A^T dx and q <- B^T dx, by the map that was applied to each neuron if `switched`."""
    terms, uniform, threshold, switched = constants
    kind = dx.dtype.type
    states = dx.shape[0]
    width = _widest(start, stop)
    made = np.zeros((states + 1, width), dx.dtype)
    chosen = np.zeros(width, np.bool_)
    for i in range(len(start)):
        first, last = start[i], stop[i]
        span = last - first
        for b in range(begin[i], end[i]):
            made[:, :span] = 0
            if switched:
                _who_fired(chosen, source, b, first, last, threshold)
            for k in range(len(terms)):
                row, column = terms[k, 0], terms[k, 1]
                if column <= states:
                    given = dx[row, b, first:last]
                    _add_term(made[column, :span], given, chosen, own, terms[k, 2:], uniform[k], first, kind)
            for row in range(states):
                _copy(made[row], dx[row, b, first:last])
            _copy(made[states], q[b, first:last])


@compiled
def fired_gradient(target, dx, source, own, x, current, begin, end, start, stop, *constants):  # type: ignore[no-untyped-def]
    """target <- the change that firing made, times dx; times the surrogate of `source` if one is named (>= 0)."""
    terms, uniform, threshold, slope, kind_of_surrogate = constants
    kind = dx.dtype.type
    states = dx.shape[0]
    for i in range(len(start)):
        for b in range(begin[i], end[i]):
            for n in range(start[i], stop[i]):
                total = kind(0)
                for row in range(states):
                    change = kind(0)
                    for k in range(len(terms)):
                        if terms[k, 0] != row:
                            continue
                        column = terms[k, 1]
                        quiet = kind(uniform[k, 0]) if terms[k, 2] < 0 else own[terms[k, 2], n]
                        fired = kind(uniform[k, 1]) if terms[k, 3] < 0 else own[terms[k, 3], n]
                        if fired != quiet:
                            given = kind(1)
                            if column < states:
                                given = x[column, b, n]
                            elif column == states:
                                given = current[b, n]
                            change += (fired - quiet) * given
                    total += dx[row, b, n] * change
                if kind_of_surrogate >= 0:
                    total *= surrogate(kind_of_surrogate, source[b, n] - kind(threshold), kind(slope), dx)
                target[b, n] = total


@compiled
def readout_gradient(dx, du, own, begin, end, start, stop, readout, weights):  # type: ignore[no-untyped-def]
    """dx += readout * du."""
    kind = dx.dtype.type
    states = dx.shape[0]
    for i in range(len(start)):
        for b in range(begin[i], end[i]):
            for k in range(len(readout)):
                if readout[k, 0] >= states:
                    continue
                place, into, given = readout[k, 1], dx[readout[k, 0], b, start[i] : stop[i]], du[b, start[i] : stop[i]]
                each, weight = own[max(place, 0), start[i] : stop[i]], kind(weights[k, 0])
                for n in range(len(into)):
                    into[n] += (weight if place < 0 else each[n]) * given[n]


@compiled
def listed_readout_gradient(dx, u, g, ids, counts, own, sample, start, stop, *constants):  # type: ignore[no-untyped-def]
    """dx[:, b, id] += readout * g[b, k] * surrogate(u[b, id] - threshold) for the listed ids in [start, stop)."""
    readout, weights, threshold, slope, kind_of_surrogate = constants
    kind = dx.dtype.type
    states = dx.shape[0]
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        for k in range(counts[b, 1]):
            n = ids[b, k]
            if first <= n < last:
                du = g[b, k] * surrogate(kind_of_surrogate, u[b, n] - kind(threshold), kind(slope), dx)
                for r in range(len(readout)):
                    if readout[r, 0] < states:
                        weight = kind(weights[r, 0]) if readout[r, 1] < 0 else own[readout[r, 1], n]
                        dx[readout[r, 0], b, n] += weight * du


@compiled
def emitted_flags(flags, ids, counts, sample, start, stop):  # type: ignore[no-untyped-def]
    """flags[b, n] = 1 for the true spikes of sample b in [start, stop), else 0."""
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        for n in range(first, last):
            flags[b, n] = 0
        for k in range(counts[b, 0]):
            n = ids[b, k]
            if first <= n < last:
                flags[b, n] = 1


@compiled
def emitted_gradient(partial, d_fired, ids, counts, part, sample, start, stop):  # type: ignore[no-untyped-def]
    """partial[part, b, k] = d_fired[b, id] for the listed ids of sample b that lie in [start, stop), else 0."""
    zero = partial.dtype.type(0)
    for i in range(len(sample)):
        b = sample[i]
        for k in range(counts[b, 1]):
            n = ids[b, k]
            partial[part[i], b, k] = d_fired[b, n] if start[i] <= n < stop[i] else zero


@compiled
def dense_readout_gradient(dx, u, g, own, begin, end, start, stop, *constants):  # type: ignore[no-untyped-def]
    """dx += readout * g * surrogate(u - threshold), for every neuron."""
    readout, weights, threshold, slope, kind_of_surrogate = constants
    kind = dx.dtype.type
    states = dx.shape[0]
    for i in range(len(start)):
        for b in range(begin[i], end[i]):
            for n in range(start[i], stop[i]):
                du = g[b, n] * surrogate(kind_of_surrogate, u[b, n] - kind(threshold), kind(slope), dx)
                for r in range(len(readout)):
                    if readout[r, 0] < states:
                        weight = kind(weights[r, 0]) if readout[r, 1] < 0 else own[readout[r, 1], n]
                        dx[readout[r, 0], b, n] += weight * du


ALWAYS, AFTER, QUIET = range(3)
AT_ONCE = 16


@compiled
def _add_sample(sums, dx, du, fired, x, current, b, first, places, threshold):  # type: ignore[no-untyped-def]
    """sums += of sample b, neurons from `first` on, at all places."""
    states, last = dx.shape[0], first + len(sums)
    for k in range(len(places)):
        target, column, when = places[k, 0], places[k, 1], places[k, 2]
        adjoint = dx[target, b, first:last] if target < states else du[b, first:last]
        for n in range(len(sums)):
            if when != ALWAYS and (fired[b, first + n] > threshold) != (when == AFTER):
                continue
            if column < states:
                sums[n] += adjoint[n] * x[column, b, first + n]
            elif column == states:
                sums[n] += adjoint[n] * current[b, first + n]
            else:
                sums[n] += adjoint[n]


@compiled
def _add_samples(sums, dx, du, fired, x, current, begin, end, first, places, threshold):  # type: ignore[no-untyped-def]
    """sums += of samples begin..end-1, some at a time: terms of many samples cancel, and short sums round less."""
    part = np.zeros_like(sums)
    for block in range(begin, end, AT_ONCE):
        part[:] = 0
        for b in range(block, min(block + AT_ONCE, end)):
            _add_sample(part, dx, du, fired, x, current, b, first, places, threshold)
        for n in range(len(sums)):
            sums[n] += part[n]


@compiled
def replica_gradient(  # type: ignore[no-untyped-def]
    dc, dx, du, fired, x, current, replica, sample_start, sample_stop, start, stop, places, threshold
):
    """dc[replica, 0, n] += of the vertex's samples and neurons."""
    for i in range(len(replica)):
        sums = dc[replica[i], 0, start[i] : stop[i]]
        begin, end = sample_start[i], sample_stop[i]
        _add_samples(sums, dx, du, fired, x, current, begin, end, start[i], places, threshold)


@compiled
def piece_gradient(  # type: ignore[no-untyped-def]
    pieces, dx, du, fired, x, current, piece, row_start, row_stop, start, stop, places, threshold
):
    """pieces[piece, n] = of the vertex's samples and neurons."""
    for i in range(len(piece)):
        sums = pieces[piece[i], start[i] : stop[i]]
        for n in range(len(sums)):
            sums[n] = 0
        begin, end = row_start[i], row_stop[i]
        _add_samples(sums, dx, du, fired, x, current, begin, end, start[i], places, threshold)
