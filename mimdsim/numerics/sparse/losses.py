"""Read-outs and losses on tiles: per sample on whole rows of scores, per neuron where the potentials are stored."""

from __future__ import annotations

import math

import numpy as np

from mimdsim.numerics.compiled import compiled


@compiled
def count_spikes(ids, counts, totals, sample):  # type: ignore[no-untyped-def]
    """totals[b, id] = how often id is a true spike of sample b over the sequence; ids [timesteps, batch, capacity]."""
    for i in range(len(sample)):
        b = sample[i]
        totals[b, :] = 0
        for t in range(ids.shape[0]):
            for k in range(counts[t, b, 0]):
                totals[b, ids[t, b, k]] += 1


@compiled
def cross_entropy(totals, labels, losses, gradient, sample, scale):  # type: ignore[no-untyped-def]
    """Per sample: loss and d(mean loss)/d(totals), from logits = scale * totals."""
    weighted_cross_entropy(totals, labels, losses, gradient, sample, scale, 1.0)


@compiled
def weighted_cross_entropy(totals, labels, losses, gradient, sample, scale, weight):  # type: ignore[no-untyped-def]
    """`cross_entropy` times weight."""
    classes = totals.shape[1]
    shifted, each = np.zeros(classes, np.float64), np.zeros(classes, np.float64)
    for i in range(len(sample)):
        b = sample[i]
        highest = totals[b, 0] * scale
        for c in range(classes):
            highest = max(highest, totals[b, c] * scale)
        mass = 0.0
        for c in range(classes):
            shifted[c] = totals[b, c] * scale - highest
            each[c] = math.exp(shifted[c])
            mass += each[c]
        losses[b] = weight * (math.log(mass) - shifted[labels[b]])
        for c in range(classes):
            probability = each[c] / mass
            if c == labels[b]:
                probability -= 1.0
            gradient[b, c] = probability * (weight * (scale / totals.shape[0]))


@compiled
def list_count_gradient(ids, counts, gradient, g, sample):  # type: ignore[no-untyped-def]
    """g[t, b, k] = gradient[b, id_k] for the listed ids."""
    listed_of(np.broadcast_to(gradient, (ids.shape[0], *gradient.shape)), ids, counts, g, sample)


@compiled
def count_last(ids, counts, totals, sample, first):  # type: ignore[no-untyped-def]
    """`count_spikes` from timestep `first` on."""
    count_spikes(ids[first:], counts[first:], totals, sample)


@compiled
def list_last_gradient(ids, counts, gradient, g, sample, first):  # type: ignore[no-untyped-def]
    """`list_count_gradient` from timestep `first` on, 0 before."""
    for i in range(len(sample)):
        b = sample[i]
        g[:first, b] = 0
    list_count_gradient(ids[first:], counts[first:], gradient, g[first:], sample)


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
def cross_entropy_by_timestep(scores, labels, losses, gradient, sample, scale):  # type: ignore[no-untyped-def]
    """`cross_entropy` of every timestep, added up."""
    weighted_by_timestep(scores, labels, losses, gradient, sample, scale, 1.0)


@compiled
def weighted_by_timestep(scores, labels, losses, gradient, sample, scale, weight):  # type: ignore[no-untyped-def]
    """`cross_entropy` of every timestep times weight, added up."""
    one = np.zeros(losses.shape, losses.dtype)
    for i in range(len(sample)):
        losses[sample[i]] = 0
    for t in range(scores.shape[0]):
        weighted_cross_entropy(scores[t], labels, one, gradient[t], sample, scale, weight)
        for i in range(len(sample)):
            losses[sample[i]] += one[sample[i]]


@compiled
def squared_error(totals, labels, losses, gradient, sample, correct, incorrect, timesteps):  # type: ignore[no-untyped-def]
    """Per sample: mean square over the classes divided by `timesteps`, and d(mean over samples)/d(totals)."""
    samples, classes = totals.shape
    for i in range(len(sample)):
        b = sample[i]
        total = 0.0
        for c in range(classes):
            wanted = incorrect
            if c == labels[b]:
                wanted = correct
            off = float(totals[b, c]) - wanted
            total += off * off
            gradient[b, c] = off * (2.0 / (samples * classes * timesteps))
        losses[b] = total / (classes * timesteps)


@compiled
def pool_classes(scores, pooled, sample, each):  # type: ignore[no-untyped-def]
    """pooled[b, c] = sum of scores[b] over the `each` neurons of class c."""
    for i in range(len(sample)):
        b = sample[i]
        for c in range(pooled.shape[1]):
            total = pooled.dtype.type(0)
            for k in range(each):
                total += scores[b, c * each + k]
            pooled[b, c] = total


@compiled
def pool_classes_by_timestep(scores, pooled, sample, each):  # type: ignore[no-untyped-def]
    """`pool_classes` of every timestep."""
    for t in range(scores.shape[0]):
        pool_classes(scores[t], pooled[t], sample, each)


@compiled
def spread_classes(gradient, spread, sample, each):  # type: ignore[no-untyped-def]
    """spread[b, n] = gradient[b, class of n]."""
    for i in range(len(sample)):
        b = sample[i]
        for n in range(spread.shape[1]):
            spread[b, n] = gradient[b, n // each]


@compiled
def spread_classes_by_timestep(gradient, spread, sample, each):  # type: ignore[no-untyped-def]
    """`spread_classes` of every timestep."""
    for t in range(spread.shape[0]):
        spread_classes(gradient[t], spread[t], sample, each)


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
    for i in range(len(sample)):
        for k in range(slot_start[i], slot_stop[i]):
            total[sample[i], k] = g[sample[i], k] + even[0]
