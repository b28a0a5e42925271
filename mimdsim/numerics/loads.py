"""Work that depends on spikes, added up per (cell, timestep); a cell is one worker context of one tile.

Timesteps lie together, so that one vertex adds to a run of numbers.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def add_by_count(load, cell, weight, sample, counts):  # type: ignore[no-untyped-def]
    """load[cell, t] += weight * counts[sample, t], per vertex."""
    for i in range(len(cell)):
        into, each, factor = load[cell[i]], counts[sample[i]], weight[i]
        for t in range(load.shape[1]):
            into[t] += factor * each[t]


@numba.njit(cache=True, nogil=True)
def add_by_count_over(load, cell, weight, first, last, running):  # type: ignore[no-untyped-def]
    """load[cell, t] += weight * (counts of samples first..last-1), from running sums [batch + 1, timesteps]."""
    for i in range(len(cell)):
        into, low, high, factor = load[cell[i]], running[first[i]], running[last[i]], weight[i]
        for t in range(load.shape[1]):
            into[t] += factor * (high[t] - low[t])


@numba.njit(cache=True, nogil=True)
def add_by_hit(load, cell, weight, owner, ids, first, last):  # type: ignore[no-untyped-def]
    """For ids first[t, b]..last[t, b]-1 of every list: weight of the vertex that owns (b, id), to its cell."""
    for t in range(load.shape[1]):
        for b in range(ids.shape[1]):
            for k in range(first[t, b], last[t, b]):
                vertex = owner[b, ids[t, b, k]]
                if vertex >= 0:
                    load[cell[vertex], t] += weight[vertex]


@numba.njit(cache=True, nogil=True)
def add_if_within(load, cell, weight, sample, slot, counts):  # type: ignore[no-untyped-def]
    """load[cell, t] += weight where slot < counts[sample, t], per vertex."""
    for i in range(len(cell)):
        into, each, factor, place = load[cell[i]], counts[sample[i]], weight[i], slot[i]
        for t in range(load.shape[1]):
            if place < each[t]:
                into[t] += factor


@numba.njit(cache=True, nogil=True)
def add_barrel(cycles, load, contexts, issue_cycles):  # type: ignore[no-untyped-def]
    """cycles[tile, t] += max(issue_cycles * longest context, all contexts together); load [tiles * contexts, times]."""
    times = load.shape[1]
    longest, whole = np.zeros(times), np.zeros(times)
    for tile in range(cycles.shape[0]):
        longest[:] = 0
        whole[:] = 0
        for context in range(contexts):
            row = load[tile * contexts + context]
            for t in range(times):
                longest[t] = max(longest[t], row[t])
                whole[t] += row[t]
        for t in range(times):
            cycles[tile, t] += max(issue_cycles * longest[t], whole[t])
