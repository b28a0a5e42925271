"""Leaky integrate-and-fire: forward update from listed ids, and the adjoint at listed ids."""

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
def state_gradient_by(dv, v, g, ids, counts, sample, start, stop, threshold, slope, kind):  # type: ignore[no-untyped-def]
    """dv[b, id] += g[b, k] * surrogate(v[b, id] - threshold) for the listed ids of sample b in [start, stop)."""
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        for k in range(counts[b, 1]):
            n = ids[b, k]
            if first <= n < last:
                dv[b, n] += g[b, k] * surrogate(kind, v[b, n] - threshold, slope, dv)


@compiled
def state_gradient(dv, v, g, ids, counts, sample, start, stop, threshold, slope):  # type: ignore[no-untyped-def]
    """`state_gradient_by` the published surrogate."""
    state_gradient_by(dv, v, g, ids, counts, sample, start, stop, threshold, slope, SUPERSPIKE)


@compiled
def state_gradient_rows_by(row, dv, v, threshold, g, ids, counts, sample, slope, kind):  # type: ignore[no-untyped-def]
    """row[b] = dv[b], plus the surrogate times g at the listed ids: `state_gradient_by` on whole rows of a sample."""
    for i in range(len(sample)):
        b = sample[i]
        for n in range(dv.shape[1]):
            row[b, n] = dv[b, n]
        for k in range(counts[b, 1]):
            n = ids[b, k]
            row[b, n] += g[b, k] * surrogate(kind, v[b, n] - threshold[n], slope, dv)


@compiled
def state_gradient_rows(row, dv, v, threshold, g, ids, counts, sample, slope):  # type: ignore[no-untyped-def]
    """`state_gradient_rows_by` the published surrogate."""
    state_gradient_rows_by(row, dv, v, threshold, g, ids, counts, sample, slope, SUPERSPIKE)


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
