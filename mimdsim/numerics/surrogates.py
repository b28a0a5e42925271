"""The adjoint of the potential at listed ids, with any of the surrogate gradients."""

from __future__ import annotations

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.equations import surrogate


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
