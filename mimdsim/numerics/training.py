"""The update on tiles. A learning rate is a constant, or one number in memory where it is scheduled."""

from __future__ import annotations

import math

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def sgd(w, gradient, start, stop, rate):  # type: ignore[no-untyped-def]
    """w -= rate * gradient."""
    for row in range(w.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                w[row, n] = w[row, n] - rate * gradient[row, n]


@numba.njit(cache=True, nogil=True)
def adam(w, gradient, m, v, progress, start, stop, *constants):  # type: ignore[no-untyped-def]
    """Adam of Kingma & Ba; progress[0] counts training steps from 1. Constants are float64."""
    rate, beta1, beta2, epsilon = constants
    number = progress[0]
    kind = w.dtype.type
    corrected = kind(rate * math.sqrt(1.0 - beta2**number) / (1.0 - beta1**number))
    keep1, take1, keep2, take2, small = kind(beta1), kind(1.0 - beta1), kind(beta2), kind(1.0 - beta2), kind(epsilon)
    for row in range(w.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                slope = gradient[row, n]
                first = keep1 * m[row, n] + take1 * slope
                second = keep2 * v[row, n] + take2 * slope * slope
                m[row, n] = first
                v[row, n] = second
                w[row, n] = w[row, n] - corrected * first / (np.sqrt(second) + small)


@numba.njit(cache=True, nogil=True)
def sgd_decaying(w, gradient, start, stop, rate, decay):  # type: ignore[no-untyped-def]
    """w -= rate * (gradient + decay * w)."""
    for row in range(w.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                w[row, n] = w[row, n] - rate * (gradient[row, n] + decay * w[row, n])


@numba.njit(cache=True, nogil=True)
def sgd_at_rate(w, gradient, learning_rate, start, stop, decay):  # type: ignore[no-untyped-def]
    """`sgd_decaying` with the rate in memory."""
    sgd_decaying(w, gradient, start, stop, learning_rate[0], decay)


@numba.njit(cache=True, nogil=True)
def momentum(w, gradient, buffer, start, stop, rate, keep, decay):  # type: ignore[no-untyped-def]
    """buffer = keep * buffer + gradient + decay * w; w -= rate * buffer."""
    for row in range(w.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                moved = keep * buffer[row, n] + (gradient[row, n] + decay * w[row, n])
                buffer[row, n] = moved
                w[row, n] = w[row, n] - rate * moved


@numba.njit(cache=True, nogil=True)
def momentum_at_rate(w, gradient, buffer, learning_rate, start, stop, keep, decay):  # type: ignore[no-untyped-def]
    """`momentum` with the rate in memory."""
    momentum(w, gradient, buffer, start, stop, learning_rate[0], keep, decay)


@numba.njit(cache=True, nogil=True)
def adam_decaying(w, gradient, m, v, progress, start, stop, *constants):  # type: ignore[no-untyped-def]
    """w *= 1 - rate * decay, then `adam`."""
    rate, beta1, beta2, epsilon, decay = constants
    kept = w.dtype.type(1.0 - rate * decay)
    for row in range(w.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                w[row, n] = w[row, n] * kept
    adam(w, gradient, m, v, progress, start, stop, rate, beta1, beta2, epsilon)


@numba.njit(cache=True, nogil=True)
def adam_at_rate(w, gradient, m, v, progress, learning_rate, start, stop, *constants):  # type: ignore[no-untyped-def]
    """`adam_decaying` with the rate in memory."""
    rate = float(learning_rate[0])
    adam_decaying(w, gradient, m, v, progress, start, stop, rate, *constants)


@numba.njit(cache=True, nogil=True)
def sum_squares(gradient, partial, start, stop, part):  # type: ignore[no-untyped-def]
    """partial[part] = sum of the squares of gradient[:, start:stop]."""
    for i in range(len(part)):
        total = partial.dtype.type(0)
        for row in range(gradient.shape[0]):
            for n in range(start[i], stop[i]):
                total += gradient[row, n] * gradient[row, n]
        partial[part[i]] = total


@numba.njit(cache=True, nogil=True)
def add_parts(partial, totals, which):  # type: ignore[no-untyped-def]
    """totals[which] = sum of partial."""
    for i in range(len(which)):
        total = totals.dtype.type(0)
        for k in range(len(partial)):
            total += partial[k]
        totals[which[i]] = total


@numba.njit(cache=True, nogil=True)
def clip_factor(totals, factor, place, largest_norm, floor):  # type: ignore[no-untyped-def]
    """factor = min(1, largest_norm / (sqrt of the sum of totals + floor))."""
    for i in range(len(place)):
        total = totals.dtype.type(0)
        for k in range(len(totals)):
            total += totals[k]
        factor[place[i]] = min(factor.dtype.type(1), largest_norm / (np.sqrt(total) + floor))


@numba.njit(cache=True, nogil=True)
def scale_all(gradient, factor, start, stop):  # type: ignore[no-untyped-def]
    """gradient[:, start:stop] *= factor[0]."""
    for row in range(gradient.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                gradient[row, n] = gradient[row, n] * factor[0]
