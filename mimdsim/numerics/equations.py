"""The equations of one neuron, called by every kernel that uses them; constants have the dtype of the state."""

from __future__ import annotations

import math

import numpy as np

from mimdsim.numerics.compiled import compiled

KINDS = ("superspike", "arctan", "sigmoid", "triangular", "boxcar", "straight_through")
SUPERSPIKE, ARCTAN, SIGMOID, TRIANGULAR, BOXCAR = range(5)


@compiled
def integrated(v, current, decay, scale, threshold, zero):  # type: ignore[no-untyped-def]
    """The potential a timestep later: (0 if v > threshold else decay * v) + scale * current."""
    kept = v * decay
    if v > threshold:
        kept = zero
    return kept + scale * current


@compiled
def unless_spiked(value, v_previous, threshold, zero):  # type: ignore[no-untyped-def]
    """The gradient masked by the reset: 0 where v_previous > threshold."""
    return zero if v_previous > threshold else value


@compiled(error_model="numpy")  # the divisor is never zero
def superspike(x, slope, one):  # type: ignore[no-untyped-def]
    """1 / (slope * |x| + 1)^2, in place of the derivative of a spike at x = v - threshold."""
    scaled = slope * abs(x) + one
    return one / (scaled * scaled)


@compiled
def surrogate(kind, x, slope, like):  # type: ignore[no-untyped-def]
    """The surrogate for the derivative of a spike, at x = u - threshold; all in the dtype of the array `like`."""
    real = like.dtype.type
    zero, half, one = real(0), real(0.5), real(1)
    if kind == SUPERSPIKE:
        return superspike(x, slope, one)
    if kind == ARCTAN:
        top = slope * half
        scaled = real(np.pi) * top * x
        return top / (scaled * scaled + one)
    if kind == SIGMOID:
        decay = real(math.exp(-slope * abs(x)))
        raised = decay + one
        return slope * decay / (raised * raised)
    if kind == TRIANGULAR:
        return max(slope - slope * slope * abs(x), zero)
    if kind == BOXCAR:
        return slope if slope * abs(x) < half else zero
    return one


@compiled
def state_gradient_by(dv, v, g, ids, counts, sample, start, stop, *constants):  # type: ignore[no-untyped-def]
    """dv[b, id] += g[b, k] * surrogate(v[b, id] - threshold) for the listed ids of sample b in [start, stop)."""
    threshold, slope, kind = constants
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        for k in range(counts[b, 1]):
            n = ids[b, k]
            if first <= n < last:
                dv[b, n] += g[b, k] * surrogate(kind, v[b, n] - threshold, slope, dv)


@compiled
def state_gradient_rows_by(row, dv, v, threshold, g, ids, counts, sample, slope, kind):  # type: ignore[no-untyped-def]
    """row[b] = dv[b], plus the surrogate times g at the listed ids."""
    for i in range(len(sample)):
        b = sample[i]
        for n in range(dv.shape[1]):
            row[b, n] = dv[b, n]
        for k in range(counts[b, 1]):
            n = ids[b, k]
            row[b, n] += g[b, k] * surrogate(kind, v[b, n] - threshold[n], slope, dv)
