"""Work that depends on spikes, added up per (timestep, cell); a cell is one worker context of one tile."""

from __future__ import annotations

import numba


@numba.njit(cache=True, nogil=True)
def add_by_count(load, cell, weight, sample, counts):  # type: ignore[no-untyped-def]
    """load[t, cell] += weight * counts[t, sample], per vertex."""
    for t in range(load.shape[0]):
        for i in range(len(cell)):
            load[t, cell[i]] += weight[i] * counts[t, sample[i]]


@numba.njit(cache=True, nogil=True)
def add_by_count_over(load, cell, weight, first, last, running):  # type: ignore[no-untyped-def]
    """load[t, cell] += weight * (counts of samples first..last-1), from running sums [timesteps, batch + 1]."""
    for t in range(load.shape[0]):
        for i in range(len(cell)):
            load[t, cell[i]] += weight[i] * (running[t, last[i]] - running[t, first[i]])


@numba.njit(cache=True, nogil=True)
def add_by_hit(load, cell, weight, owner, ids, first, last):  # type: ignore[no-untyped-def]
    """For ids first[t, b]..last[t, b]-1 of every list: weight of the vertex that owns (b, id), to its cell."""
    for t in range(load.shape[0]):
        for b in range(ids.shape[1]):
            for k in range(first[t, b], last[t, b]):
                vertex = owner[b, ids[t, b, k]]
                if vertex >= 0:
                    load[t, cell[vertex]] += weight[vertex]


@numba.njit(cache=True, nogil=True)
def add_if_within(load, cell, weight, sample, slot, counts):  # type: ignore[no-untyped-def]
    """load[t, cell] += weight where slot < counts[t, sample], per vertex."""
    for t in range(load.shape[0]):
        for i in range(len(cell)):
            if slot[i] < counts[t, sample[i]]:
                load[t, cell[i]] += weight[i]
