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
def total_by_hit(weight, owner, ids, first, last):  # type: ignore[no-untyped-def]
    """Sum of what `add_by_hit` adds."""
    total = 0.0
    for t in range(ids.shape[0]):
        for b in range(ids.shape[1]):
            for k in range(first[t, b], last[t, b]):
                vertex = owner[b, ids[t, b, k]]
                if vertex >= 0:
                    total += weight[vertex]
    return total


@numba.njit(cache=True, nogil=True)
def add_if_within(load, cell, weight, sample, slot, counts):  # type: ignore[no-untyped-def]
    """load[cell, t] += weight where slot < counts[sample, t], per vertex."""
    most = np.zeros(counts.shape[0], np.int64)
    for b in range(counts.shape[0]):
        most[b] = counts[b].max()
    for i in range(len(cell)):
        into, each, factor, place = load[cell[i]], counts[sample[i]], weight[i], slot[i]
        if place < most[sample[i]]:
            for t in range(load.shape[1]):
                into[t] += factor if place < each[t] else 0.0


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


@numba.njit(cache=True, nogil=True)
def advance(since_sync, longest, cycles):  # type: ignore[no-untyped-def]
    """since_sync[tile, t] += cycles[tile, t or 0]; longest[t] becomes what any tile has now reached."""
    times = since_sync.shape[1]
    alike = cycles.shape[1] == 1
    for tile in range(since_sync.shape[0]):
        row, more = since_sync[tile], cycles[tile]
        if alike:
            each = more[0]
            for t in range(times):
                row[t] += each
        else:
            for t in range(times):
                row[t] += more[t]
        for t in range(times):
            reached = row[t]
            longest[t] = reached if reached > longest[t] else longest[t]
