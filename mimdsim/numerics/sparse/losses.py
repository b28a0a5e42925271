"""Read-outs and losses on tiles: per sample on whole rows of scores, per neuron where the potentials are stored."""

from __future__ import annotations

import math

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.dense.dense import in_time
from mimdsim.numerics.dense.elementwise import add_even_boxes


@compiled
def count_spikes(ids, counts, totals, sample, first=0):  # type: ignore[no-untyped-def]
    """totals[b, id] = how often id is a true spike of sample b from timestep `first` on; ids [timesteps, batch,
    capacity]."""
    for i in range(len(sample)):
        b = sample[i]
        totals[b, :] = 0
        for t in range(first, ids.shape[0]):
            for k in range(counts[t, b, 0]):
                totals[b, ids[t, b, k]] += 1


@compiled
def cross_entropy(totals, labels, losses, gradient, sample, scale, weight=1.0):  # type: ignore[no-untyped-def]
    """Per sample: weight * loss and d(mean of it)/d(totals), from logits = scale * totals; of totals [timesteps, batch,
    classes] the sum over the timesteps."""
    every, slopes = in_time(totals), in_time(gradient)
    timesteps, samples, classes = every.shape
    shifted, each = np.zeros(classes, np.float64), np.zeros(classes, np.float64)
    for i in range(len(sample)):
        b = sample[i]
        losses[b] = 0
        for t in range(timesteps):
            highest = every[t, b, 0] * scale
            for c in range(classes):
                highest = max(highest, every[t, b, c] * scale)
            mass = 0.0
            for c in range(classes):
                shifted[c] = every[t, b, c] * scale - highest
                each[c] = math.exp(shifted[c])
                mass += each[c]
            losses[b] += losses.dtype.type(weight * (math.log(mass) - shifted[labels[b]]))
            for c in range(classes):
                probability = each[c] / mass
                if c == labels[b]:
                    probability -= 1.0
                slopes[t, b, c] = probability * (weight * (scale / samples))


@compiled
def list_count_gradient(ids, counts, gradient, g, sample, first=0):  # type: ignore[no-untyped-def]
    """g[t, b, k] = gradient[b, id_k] for the ids listed from timestep `first` on, 0 before."""
    for i in range(len(sample)):
        g[:first, sample[i]] = 0
    rows = np.broadcast_to(gradient, (ids.shape[0] - first, *gradient.shape))
    listed_of(rows, ids[first:], counts[first:], g[first:], sample)


@compiled
def emitted_rows(ids, counts, rows, sample):  # type: ignore[no-untyped-def]
    """rows[t, b, n] = 1 where n is a true spike of sample b at t, else 0."""
    for i in range(len(sample)):
        b = sample[i]
        for t in range(ids.shape[0]):
            rows[t, b, :] = 0
            for k in range(counts[t, b, 0]):
                rows[t, b, ids[t, b, k]] = 1


@compiled
def listed_of(rows, ids, counts, g, sample):  # type: ignore[no-untyped-def]
    """g[t, b, k] = rows[t, b, id_k] for the listed ids."""
    for i in range(len(sample)):
        b = sample[i]
        for t in range(ids.shape[0]):
            for k in range(ids.shape[2]):
                if k < counts[t, b, 1]:
                    g[t, b, k] = rows[t, b, ids[t, b, k]]
                else:
                    g[t, b, k] = 0


@compiled
def squared_error(totals, labels, losses, gradient, sample, correct, incorrect, divisor):  # type: ignore[no-untyped-def]
    """Per sample: mean square over the classes over `divisor`, and d(mean over samples)/d(totals); of totals
    [timesteps, batch, classes] the sum over the timesteps."""
    every, slopes = in_time(totals), in_time(gradient)
    timesteps, samples, classes = every.shape
    for i in range(len(sample)):
        b = sample[i]
        total = 0.0
        for t in range(timesteps):
            for c in range(classes):
                wanted = incorrect
                if c == labels[b]:
                    wanted = correct
                off = float(every[t, b, c]) - wanted
                total += off * off
                slopes[t, b, c] = off * (2.0 / (samples * classes * divisor))
        losses[b] = total / (classes * divisor)


@compiled
def pool_classes(scores, pooled, sample, each):  # type: ignore[no-untyped-def]
    """pooled[b, c] = sum of scores[b] over the `each` neurons of class c; of a sequence, of every timestep."""
    every, made = in_time(scores), in_time(pooled)
    for i in range(len(sample)):
        b = sample[i]
        for t in range(len(made)):
            for c in range(made.shape[2]):
                total = made.dtype.type(0)
                for k in range(each):
                    total += every[t, b, c * each + k]
                made[t, b, c] = total


@compiled
def spread_classes(gradient, spread, sample, each):  # type: ignore[no-untyped-def]
    """spread[b, n] = gradient[b, class of n]; of a sequence, of every timestep."""
    every, made = in_time(gradient), in_time(spread)
    for i in range(len(sample)):
        b = sample[i]
        for t in range(len(made)):
            for n in range(made.shape[2]):
                made[t, b, n] = every[t, b, n // each]


@compiled
def take_late(every, late, start, stop, first):  # type: ignore[no-untyped-def]
    """late = what is there from timestep `first` on."""
    for i in range(len(start)):
        late[:, :, start[i] : stop[i]] = every[first:, :, start[i] : stop[i]]


@compiled
def give_late(gradient, every, start, stop, first):  # type: ignore[no-untyped-def]
    """every = gradient from timestep `first` on, 0 before."""
    for i in range(len(start)):
        every[:first, :, start[i] : stop[i]] = 0
        every[first:, :, start[i] : stop[i]] = gradient[:, :, start[i] : stop[i]]


@compiled
def spread_late(gradient, du, start, stop, first):  # type: ignore[no-untyped-def]
    """du = gradient at every timestep from `first` on, 0 before."""
    for i in range(len(start)):
        du[:first, :, start[i] : stop[i]] = 0
        for t in range(first, du.shape[0]):
            du[t, :, start[i] : stop[i]] = gradient[:, start[i] : stop[i]]


@compiled
def add_timesteps(u, scores, start, stop, factor):  # type: ignore[no-untyped-def]
    """scores[b, n] = factor * sum of u[t, b, n] over the timesteps."""
    for b in range(u.shape[1]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                total = u.dtype.type(0)
                for t in range(u.shape[0]):
                    total += u[t, b, n]
                scores[b, n] = factor * total


@compiled
def take_last(u, scores, start, stop):  # type: ignore[no-untyped-def]
    """scores = u of the last timestep."""
    for b in range(u.shape[1]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                scores[b, n] = u[u.shape[0] - 1, b, n]


@compiled
def highest(u, scores, start, stop):  # type: ignore[no-untyped-def]
    """scores = the highest u of all timesteps."""
    for b in range(u.shape[1]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                best = u[0, b, n]
                for t in range(1, u.shape[0]):
                    best = max(best, u[t, b, n])
                scores[b, n] = best


@compiled
def _softmax(row, shares):  # type: ignore[no-untyped-def]
    """shares = the softmax of a row of potentials."""
    best, mass = row[0], 0.0
    for c in range(len(row)):
        best = max(best, row[c])
    for c in range(len(row)):
        shares[c] = math.exp(row[c] - best)
        mass += shares[c]
    for c in range(len(row)):
        shares[c] /= mass


@compiled
def softmax_sum(u, scores, sample):  # type: ignore[no-untyped-def]
    """scores[b] = sum of the softmax of u[t, b] over the timesteps."""
    shares, total = np.zeros(u.shape[2], np.float64), np.zeros(u.shape[2], np.float64)
    for i in range(len(sample)):
        total[:] = 0
        for t in range(u.shape[0]):
            _softmax(u[t, sample[i]], shares)
            total += shares
        scores[sample[i]] = total


@compiled
def softmax_sum_gradient(gradient, u, du, sample):  # type: ignore[no-untyped-def]
    """du[t, b] = gradient[b] through the softmax of u[t, b]."""
    shares = np.zeros(u.shape[2], np.float64)
    for i in range(len(sample)):
        b = sample[i]
        for t in range(u.shape[0]):
            _softmax(u[t, b], shares)
            mean = 0.0
            for c in range(len(shares)):
                mean += shares[c] * gradient[b, c]
            for c in range(len(shares)):
                du[t, b, c] = shares[c] * (gradient[b, c] - mean)


@compiled
def spread_timesteps(gradient, du, start, stop, factor):  # type: ignore[no-untyped-def]
    """du[t] = factor * gradient at every timestep."""
    for t in range(du.shape[0]):
        for b in range(du.shape[1]):
            for i in range(len(start)):
                for n in range(start[i], stop[i]):
                    du[t, b, n] = factor * gradient[b, n]


@compiled
def give_last(gradient, du, start, stop):  # type: ignore[no-untyped-def]
    """du = gradient at the last timestep, 0 before."""
    last = du.shape[0] - 1
    for t in range(du.shape[0]):
        for b in range(du.shape[1]):
            for i in range(len(start)):
                for n in range(start[i], stop[i]):
                    du[t, b, n] = gradient[b, n] if t == last else 0


@compiled
def give_highest(gradient, u, du, start, stop):  # type: ignore[no-untyped-def]
    """du = gradient at the first timestep with the highest u, 0 at the others."""
    for b in range(du.shape[1]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                best = 0
                for t in range(u.shape[0]):
                    du[t, b, n] = 0
                    if u[t, b, n] > u[best, b, n]:
                        best = t
                du[best, b, n] = gradient[b, n]


@compiled
def count_listed(counts, spikes, sample):  # type: ignore[no-untyped-def]
    """spikes[b] = true spikes of sample b over all timesteps."""
    for i in range(len(sample)):
        b = sample[i]
        total = 0
        for t in range(counts.shape[0]):
            total += counts[t, b, 0]
        spikes[b] = total


@compiled
def firing_penalty(spikes, penalty, even, place, target, strength, places):  # type: ignore[no-untyped-def]
    """penalty = strength * (share - target)^2 of spikes over `places`; even = its derivative by one spike."""
    for i in range(len(place)):
        total = 0
        for b in range(len(spikes)):
            total += spikes[b]
        off = total / places - target
        penalty[place[i]] = strength * off * off
        even[place[i]] = 2.0 * strength * off / places


@compiled
def add_even(g, even, total, sample, slot_start, slot_stop):  # type: ignore[no-untyped-def]
    """total[sample, slots] = g[sample, slots] + even[0]."""
    add_even_boxes(g, even, total, sample, sample + 1, slot_start, slot_stop)
