"""Separate currents, before the neurons integrate them: from synapses, from a neuron onto itself, from a bias."""

from __future__ import annotations

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.dense.elementwise import add_boxes


@compiled
def synapse_current(current, w, ids, counts, sample, start, stop):  # type: ignore[no-untyped-def]
    """current[b, n] = sum of w[id, n] over the true spikes of sample b."""
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        current[b, first:last] = 0
        for k in range(counts[b, 0]):
            row = ids[b, k]
            for n in range(first, last):
                current[b, n] += w[row, n]


@compiled
def synapse_current_dense(current, w, row, sample, start, stop):  # type: ignore[no-untyped-def]
    """`synapse_current` from a row of zeros and ones; in ascending order of neurons, as ids are listed."""
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        current[b, first:last] = 0
        for k in range(row.shape[1]):
            if row[b, k] != 0:
                for n in range(first, last):
                    current[b, n] += w[k, n]


@compiled
def self_synapse(current, r, ids, counts, sample, start, stop):  # type: ignore[no-untyped-def]
    """current[b, n] = r[0, n] where n in [start, stop) is a true spike of sample b, else 0."""
    for i in range(len(sample)):
        b, first, last = sample[i], start[i], stop[i]
        current[b, first:last] = 0
        for k in range(counts[b, 0]):
            n = ids[b, k]
            if first <= n < last:
                current[b, n] = r[0, n]


@compiled
def self_synapse_dense(current, r, row, sample, start, stop):  # type: ignore[no-untyped-def]
    """`self_synapse` from a row of zeros and ones, of which a vertex needs only its own neurons."""
    zero = current.dtype.type(0)
    for i in range(len(sample)):
        b = sample[i]
        for n in range(start[i], stop[i]):
            current[b, n] = r[0, n] if row[b, n] != 0 else zero


@compiled
def add_columns(total, other, start, stop):  # type: ignore[no-untyped-def]
    """total[:, n] += other[:, n], or of its only row."""
    for i in range(len(start)):
        for b in range(total.shape[0]):
            row = b if len(other) > 1 else 0
            for n in range(start[i], stop[i]):
                total[b, n] += other[row, n]


@compiled
def add_slots(total, other, sample, slot_start, slot_stop):  # type: ignore[no-untyped-def]
    """total[b, k] += other[b, k]."""
    add_boxes(total, other, sample, sample + 1, slot_start, slot_stop)


@compiled
def self_weight_gradient(dw, q, ids, counts, replica, sample_start, sample_stop, start, stop):  # type: ignore[no-untyped-def]
    """dw[replica, 0, n] += q[b, n] for the true spikes n in [start, stop) of the vertex's samples."""
    for i in range(len(replica)):
        r, first, last = replica[i], start[i], stop[i]
        for b in range(sample_start[i], sample_stop[i]):
            for k in range(counts[b, 0]):
                n = ids[b, k]
                if first <= n < last:
                    dw[r, 0, n] += q[b, n]


@compiled
def self_input_gradient(partial, r, q, ids, counts, part, sample, start, stop):  # type: ignore[no-untyped-def]
    """partial[part, b, k] = r[0, id_k] * q[b, id_k] where the listed id lies in [start, stop), else 0."""
    zero = partial.dtype.type(0)
    for i in range(len(part)):
        p, b = part[i], sample[i]
        for k in range(counts[b, 1]):
            n = ids[b, k]
            partial[p, b, k] = r[0, n] * q[b, n] if start[i] <= n < stop[i] else zero


@compiled
def bias_gradient(db, q, replica, sample_start, sample_stop, start, stop):  # type: ignore[no-untyped-def]
    """db[replica, 0, n] += sum of q[b, n] over the vertex's samples."""
    for i in range(len(replica)):
        r = replica[i]
        for b in range(sample_start[i], sample_stop[i]):
            for n in range(start[i], stop[i]):
                db[r, 0, n] += q[b, n]
