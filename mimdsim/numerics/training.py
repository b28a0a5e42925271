"""Loss and update on tiles."""

from __future__ import annotations

import math

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def count_spikes(ids, counts, totals, sample):  # type: ignore[no-untyped-def]
    """totals[b, id] = how often id is a true spike of sample b over the sequence; ids [timesteps, batch, capacity]."""
    for i in range(len(sample)):
        b = sample[i]
        totals[b, :] = 0
        for t in range(ids.shape[0]):
            for k in range(counts[t, b, 0]):
                totals[b, ids[t, b, k]] += 1


@numba.njit(cache=True, nogil=True)
def cross_entropy(totals, labels, losses, gradient, sample, scale):  # type: ignore[no-untyped-def]
    """Per sample: loss and d(mean loss)/d(totals), from logits = scale * totals."""
    classes = totals.shape[1]
    shifted = np.zeros(classes, np.float64)
    for i in range(len(sample)):
        b = sample[i]
        highest = totals[b, 0] * scale
        for c in range(classes):
            highest = max(highest, totals[b, c] * scale)
        mass = 0.0
        for c in range(classes):
            shifted[c] = totals[b, c] * scale - highest
            mass += math.exp(shifted[c])
        losses[b] = math.log(mass) - shifted[labels[b]]
        for c in range(classes):
            probability = math.exp(shifted[c]) / mass
            if c == labels[b]:
                probability -= 1.0
            gradient[b, c] = probability * (scale / totals.shape[0])


@numba.njit(cache=True, nogil=True)
def list_count_gradient(ids, counts, gradient, g, sample):  # type: ignore[no-untyped-def]
    """g[t, b, k] = gradient[b, id_k] for the listed ids."""
    for i in range(len(sample)):
        b = sample[i]
        for t in range(ids.shape[0]):
            for k in range(ids.shape[2]):
                if k < counts[t, b, 1]:
                    g[t, b, k] = gradient[b, ids[t, b, k]]
                else:
                    g[t, b, k] = 0


@numba.njit(cache=True, nogil=True)
def sgd(w, gradient, start, stop, rate):  # type: ignore[no-untyped-def]
    """w -= rate * gradient."""
    for row in range(w.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                w[row, n] = w[row, n] - rate * gradient[row, n]


@numba.njit(cache=True, nogil=True)
def adam(w, gradient, m, v, progress, start, stop, rate, beta1, beta2, epsilon):  # type: ignore[no-untyped-def]
    """Adam of Kingma & Ba; progress[0] counts training steps from 1. Constants are float64."""
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
