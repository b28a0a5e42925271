"""Linear neurons: forward update and adjoint, from a list of the nonzero coefficients.

A term is a row of `terms` int64[n, 4]: row of the state it contributes to, its column (states, then the current, then
one), and where its two coefficients (not fired, fired) lie in `own` [own, neurons], or -1 for `uniform` float64[n, 2].
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.equations import surrogate


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
