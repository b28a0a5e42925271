"""The kernels of other modules for wide slices: the same numbers in the same order, in vector registers.

The plain kernel is the definition and runs vertex by vertex in strict execution; WIDE says which one may replace it.
Columns are those of the plain kernel, except that start and stop replace a column of single neurons.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.equations import integrated
from mimdsim.numerics.fused.interpreted import WIDTH
from mimdsim.numerics.fused.vectors import above, add_run, lowest_bit
from mimdsim.numerics.sparse import neurons, spikes

ONE_BIT, NO_FLAG = np.uint64(1), np.int32(0)
BAND = 512  # neurons done for all samples before the next ones: their weights stay in cache


@compiled
def lif_update(v, w, ids, counts, sample, start, stop, decay, scale, threshold):  # type: ignore[no-untyped-def]
    """`neurons.lif_update`, a strip of neighbours at a time."""
    current, zero = np.zeros(BAND, v.dtype), v.dtype.type(0)
    rows, listed, stride, capacity = w.reshape(-1), ids.reshape(-1), w.shape[1], ids.shape[1]
    for begin in range(start.min(), stop.max(), BAND):
        for i in range(len(sample)):
            b, first = sample[i], max(begin, start[i])
            width = min(begin + BAND, stop[i]) - first
            if width <= 0:
                continue
            current[:] = 0
            add_run(current, 0, rows, first, stride, listed, b * capacity, b * capacity + counts[b, 0], width)
            state = v[b, first : first + width]
            for n in range(width):
                state[n] = integrated(state[n], current[n], decay, scale, threshold, zero)


@compiled
def flag_spikes(v, flags, sample, start, stop, threshold, second_threshold):  # type: ignore[no-untyped-def]
    """`spikes.flag_spikes` of neurons start..stop-1."""
    spikes.flag_rows(v, flags, sample, sample + 1, start, stop, threshold, second_threshold)


@compiled
def scan_flags(flags, worker_ids, worker_counts, row, sample, start, stop, slot, capacity):  # type: ignore[no-untyped-def]
    """`spikes.scan_flags`, WIDTH flags at a time."""
    slots, every, size = min(capacity, worker_ids.shape[1]), flags.reshape(-1), flags.size
    _, samples, neurons = flags.shape
    for i in range(len(row)):
        line, s, found = (row[i] * samples + sample[i]) * neurons, slot[i], 0
        for begin in range(start[i], stop[i], WIDTH):
            end = min(stop[i], begin + WIDTH)
            if line + begin + WIDTH > size:  # the last flags of all
                for n in range(begin, end):
                    if every[line + n] != 0 and found < slots:
                        worker_ids[s, found] = n
                        found += 1
                continue
            bits = above(every, line + begin, NO_FLAG)
            while bits != 0 and found < slots:
                n = begin + lowest_bit(bits)
                if n >= end:
                    break
                bits &= bits - ONE_BIT
                worker_ids[s, found] = n
                found += 1
        worker_counts[s] = found


WIDE: dict[Callable[..., None], Callable[..., None]] = {
    neurons.lif_update: lif_update,
    spikes.flag_spikes: flag_spikes,
    spikes.scan_flags: scan_flags,
}
