"""Sums and gradients over a part of the weights of neurons: of the ids in [start, stop)."""

from __future__ import annotations

from mimdsim.numerics.compiled import compiled


@compiled
def synapse_current_part(current, w, ids, counts, part, sample, start, stop, first, last):  # type: ignore[no-untyped-def]
    """current[part, b, n] = sum of w[id, n] over the true spikes of sample b in range."""
    for i in range(len(sample)):
        p, b = part[i], sample[i]
        current[p, b, first[i] : last[i]] = 0
        for k in range(counts[b, 0]):
            row = ids[b, k]
            if start[i] <= row < stop[i]:
                for n in range(first[i], last[i]):
                    current[p, b, n] += w[row, n]


@compiled
def weight_gradient_part(dw, q, ids, counts, replica, sample_start, sample_stop, start, stop, first, last):  # type: ignore[no-untyped-def]
    """dw[replica, id, n] += q[b, n] for the true spikes of the vertex's samples in range."""
    for i in range(len(replica)):
        for b in range(sample_start[i], sample_stop[i]):
            for k in range(counts[b, 0]):
                row = ids[b, k]
                if start[i] <= row < stop[i]:
                    for n in range(first[i], last[i]):
                        dw[replica[i], row, n] += q[b, n]


@compiled
def input_gradient_part(partial, w, q, ids, counts, part, sample, start, stop, first, last):  # type: ignore[no-untyped-def]
    """partial[part, b, k] = sum over the tile's neurons of w[id_k, n] * q[b, n], zero for listed ids out of range."""
    for i in range(len(part)):
        p, b = part[i], sample[i]
        for k in range(counts[b, 1]):
            row = ids[b, k]
            total = partial.dtype.type(0)
            if start[i] <= row < stop[i]:
                for n in range(first[i], last[i]):
                    total += w[row, n] * q[b, n]
            partial[p, b, k] = total
