"""Supersteps of neurons in one pass over their potentials or adjoints: selection of spikes, gradient of currents.

The same numbers in the same order as the codelets they stand for; what those hand to one another is not written.
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.equations import unless_spiked
from mimdsim.numerics.fused.vectors import WIDTH, above, lowest_bit

ONE_BIT = np.uint64(1)


@numba.njit(cache=True, nogil=True)
def list_flagged(v, threshold, second_threshold, listed, ends):  # type: ignore[no-untyped-def]
    """listed[0, b, :ends[0, b]]: neurons with v > threshold; listed[1, ...]: with second_threshold < v <= threshold;
    ascending, listed [2, batch, neurons + 1]. `spikes.flag_spikes`, flags as lists."""
    batch, neurons = v.shape
    flat, low = v.reshape(-1), min(threshold, second_threshold)
    whole = neurons // WIDTH * WIDTH
    for b in range(batch):
        fires, near = listed[0, b], listed[1, b]
        fired, others, row = 0, 0, b * neurons
        for begin in range(0, whole, WIDTH):
            bits = above(flat, row + begin, low)
            while bits != 0:
                n = begin + lowest_bit(bits)
                bits &= bits - ONE_BIT
                fires[fired], near[others] = n, n  # written to both and kept in one: no branch to be guessed
                over = flat[row + n] > threshold
                fired += int(over)
                others += int((flat[row + n] > second_threshold) & (not over))
        for n in range(whole, neurons):
            fires[fired], near[others] = n, n
            over = flat[row + n] > threshold
            fired += int(over)
            others += int((flat[row + n] > second_threshold) & (not over))
        ends[0, b], ends[1, b] = fired, others


@numba.njit(cache=True, nogil=True)
def deal_to_tiles(listed, ends, workers, first, last, slot, tile_ids, tile_counts):  # type: ignore[no-untyped-def]
    """Lists of tiles from those of `list_flagged`: `spikes.scan_flags` of workers (row, sample, start, stop, slots),
    then `spikes.combine_workers` of workers first..last-1 of a tile's list."""
    row, sample, start, stop, slots = workers
    room = tile_ids.shape[1]
    for i in range(len(slot)):
        found, place, which, whose = 0, 0, -1, -1
        for worker in range(first[i], last[i]):
            if row[worker] != which or sample[worker] != whose:
                which, whose, place = row[worker], sample[worker], 0
            line, end = listed[which, whose], ends[which, whose]
            while place > 0 and line[place - 1] >= start[worker]:
                place -= 1
            while place < end and line[place] < start[worker]:
                place += 1
            taken = 0
            while place < end and line[place] < stop[worker] and taken < slots[worker]:
                if found < room:
                    tile_ids[slot[i], found] = line[place]
                    found += 1
                place += 1
                taken += 1
        tile_counts[slot[i]] = found


@numba.njit(cache=True, nogil=True)
def scaled_copy(dv, q, gain):  # type: ignore[no-untyped-def]
    """q = dv * gain[n]."""
    for b in range(dv.shape[0]):
        source, target = dv[b], q[b]
        for n in range(len(source)):
            target[n] = source[n] * gain[n]


@numba.njit(cache=True, nogil=True)
def scaled_copy_and_decay(dv, q, gain, decay, v_previous, threshold):  # type: ignore[no-untyped-def]
    """q = dv * gain[n]; then dv *= decay[n], or 0 where v_previous > threshold."""
    zero = dv.dtype.type(0)
    for b in range(dv.shape[0]):
        source, target, before = dv[b], q[b], v_previous[b]
        for n in range(len(source)):
            each = source[n]
            target[n] = each * gain[n]
            source[n] = unless_spiked(each * decay[n], before[n], threshold, zero)
