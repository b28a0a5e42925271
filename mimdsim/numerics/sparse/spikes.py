"""Spike selection (flags, worker scans, two combines), the gradients that follow listed ids, and sums
and gradients over a part of the weights of neurons: of the ids in [start, stop).

With random truncation the scan for spikes runs once round a layer from a drawn neuron, else from neuron 0.
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.sparse.neurons import emitted_flags


@compiled
def flag_spikes(v, flags, sample, neuron, threshold, second_threshold):  # type: ignore[no-untyped-def]
    """flags[0] = v > threshold; flags[1] = second_threshold < v <= threshold."""
    flag_rows(v, flags, sample, sample + 1, neuron, neuron + 1, threshold, second_threshold)


@compiled
def flag_rows(v, flags, row_start, row_stop, start, stop, threshold, second_threshold):  # type: ignore[no-untyped-def]
    """`flag_spikes` of boxes of samples and neurons."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            state = v[b, start[i] : stop[i]]
            fires, near = flags[0, b, start[i] : stop[i]], flags[1, b, start[i] : stop[i]]
            for n in range(len(state)):
                fires[n] = state[n] > threshold
            for n in range(len(state)):
                near[n] = (state[n] > second_threshold) & (not (state[n] > threshold))


@compiled
def flag_rows_above(v, flags, second_threshold, row_start, row_stop, start, stop, threshold):  # type: ignore[no-untyped-def]
    """`flag_rows` with the second threshold in memory."""
    flag_rows(v, flags, row_start, row_stop, start, stop, threshold, second_threshold[0])


@compiled
def flag_spikes_above(v, flags, second_threshold, sample, neuron, threshold):  # type: ignore[no-untyped-def]
    """`flag_spikes` with the second threshold in memory."""
    flag_spikes(v, flags, sample, neuron, threshold, second_threshold[0])


@compiled
def draw_starts(random, starts, sample, neurons):  # type: ignore[no-untyped-def]
    """random[b] = the next number of its generator (graph/spikes.py), starts[b] = that number as a neuron."""
    for i in range(len(sample)):
        b = sample[i]
        random[b] = (random[b] * 1664525 + 1013904223) & 0xFFFFFFFF
        starts[b] = (random[b] * neurons) >> 32


@compiled
def scan_flags_from(flags, starts, worker_ids, worker_counts, row, sample, start, stop, slot, capacity):  # type: ignore[no-untyped-def]
    """Ids of set flags in [start, stop), at most `capacity` and at most the worker's slots: those from
    starts[sample] on, ascending, then those below."""
    slots = min(capacity, worker_ids.shape[1])
    for i in range(len(row)):
        r, b, s = row[i], sample[i], slot[i]
        middle = min(max(starts[b], start[i]), stop[i])
        found = 0
        for lap in range(2):
            first, last = (middle, stop[i]) if lap == 0 else (start[i], middle)
            for n in range(first, last):
                if found == slots:
                    break
                if flags[r, b, n] != 0:
                    worker_ids[s, found] = n
                    found += 1
        worker_counts[s] = found


@compiled
def combine_workers_from(  # type: ignore[no-untyped-def]
    worker_ids, worker_counts, starts, tile_ids, tile_counts, sample, first, last, slot
):
    """The workers' lists first..last-1 joined, up to the length of the tile's list: from all of them the ids from
    starts[sample] on, then those below."""
    slots = tile_ids.shape[1]
    for i in range(len(slot)):
        s, begin = slot[i], starts[sample[i]]
        found = 0
        for lap in range(2 if begin else 1):
            for worker in range(first[i], last[i]):
                for k in range(worker_counts[worker]):
                    if found == slots:
                        break
                    if (worker_ids[worker, k] < begin) == (lap == 1):
                        tile_ids[s, found] = worker_ids[worker, k]
                        found += 1
        tile_counts[s] = found


@compiled
def combine_tiles_from(tile_ids, tile_counts, starts, ids, counts, sample, first, middle, last):  # type: ignore[no-untyped-def]
    """True spikes from tile lists first..middle-1, then gradient entries from middle..last-1, up to the capacity: of
    each the ids from starts[sample] on, then those below."""
    capacity = ids.shape[1]
    for i in range(len(sample)):
        b = sample[i]
        begin = starts[b]
        found = 0
        for kind in range(2):
            from_part, to_part = (first[i], middle[i]) if kind == 0 else (middle[i], last[i])
            for lap in range(2 if begin else 1):
                for part in range(from_part, to_part):
                    for k in range(tile_counts[part]):
                        if found == capacity:
                            break
                        if (tile_ids[part, k] < begin) == (lap == 1):
                            ids[b, found] = tile_ids[part, k]
                            found += 1
            counts[b, kind] = found


@compiled
def scan_flags(flags, worker_ids, worker_counts, row, sample, start, stop, slot, capacity):  # type: ignore[no-untyped-def]
    """`scan_flags_from` neuron 0."""
    starts = np.zeros(flags.shape[1], np.int64)
    scan_flags_from(flags, starts, worker_ids, worker_counts, row, sample, start, stop, slot, capacity)


@compiled
def combine_workers(worker_ids, worker_counts, tile_ids, tile_counts, first, last, slot):  # type: ignore[no-untyped-def]
    """`combine_workers_from` neuron 0."""
    sample = np.zeros_like(slot)
    combine_workers_from(worker_ids, worker_counts, sample, tile_ids, tile_counts, sample, first, last, slot)


@compiled
def combine_tiles(tile_ids, tile_counts, ids, counts, sample, first, middle, last):  # type: ignore[no-untyped-def]
    """`combine_tiles_from` neuron 0."""
    starts = np.zeros(len(ids), np.int64)
    combine_tiles_from(tile_ids, tile_counts, starts, ids, counts, sample, first, middle, last)


@compiled
def spikes_to_dense(row, ids, counts, sample):  # type: ignore[no-untyped-def]
    """row[b] = 1 at the true spikes of sample b, else 0."""
    first = np.zeros_like(sample)
    emitted_flags(row, ids, counts, sample, first, first + row.shape[1])


@compiled
def weight_gradient(dw, q, ids, counts, replica, sample_start, sample_stop, start, stop):  # type: ignore[no-untyped-def]
    """dw[replica, id, n] += q[b, n] for the true spikes of the vertex's samples."""
    for i in range(len(replica)):
        r = replica[i]
        for b in range(sample_start[i], sample_stop[i]):
            for k in range(counts[b, 0]):
                row = ids[b, k]
                for n in range(start[i], stop[i]):
                    dw[r, row, n] += q[b, n]


@compiled
def input_gradient(partial, w, q, ids, counts, part, sample, start, stop):  # type: ignore[no-untyped-def]
    """partial[part, b, k] = sum over the tile's neurons of w[id_k, n] * q[b, n], for the listed ids."""
    for i in range(len(part)):
        p, b = part[i], sample[i]
        for k in range(counts[b, 1]):
            row = ids[b, k]
            total = partial.dtype.type(0)
            for n in range(start[i], stop[i]):
                total += w[row, n] * q[b, n]
            partial[p, b, k] = total


@compiled
def reduce_parts(partial, counts, stage, part_start, part_stop, group, sample, slot):  # type: ignore[no-untyped-def]
    """stage[group, b, k] = sum of partial[p, b, k] over the tiles p of the group, where k is listed."""
    for i in range(len(group)):
        b, k = sample[i], slot[i]
        if k < counts[b, 1]:
            total = stage.dtype.type(0)
            for p in range(part_start[i], part_stop[i]):
                total += partial[p, b, k]
            stage[group[i], b, k] = total


@compiled
def reduce_groups(stage, g, sample, slot_start, slot_stop):  # type: ignore[no-untyped-def]
    """g[b, k] = sum of stage[:, b, k]."""
    for i in range(len(sample)):
        b = sample[i]
        for k in range(slot_start[i], slot_stop[i]):
            total = g.dtype.type(0)
            for group in range(stage.shape[0]):
                total += stage[group, b, k]
            g[b, k] = total


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


# ---- changes to lists of events, in place, sample by sample


@compiled
def move(ids, counts, across, down, columns, lines):  # type: ignore[no-untyped-def]
    """Move the events of sample b by across[b] columns and down[b] lines; events that leave the sensor are dropped.

    ids int32[timesteps, batch, capacity] (x + columns * (y + lines * polarity), ascending) valid up to counts
    int32[timesteps, batch]; the remaining events ascend, and zeros follow them.
    """
    timesteps, batch, _ = ids.shape
    for t in range(timesteps):
        for b in range(batch):
            left = 0
            for slot in range(counts[t, b]):
                found = ids[t, b, slot]
                row = found // columns
                x = found - row * columns + across[b]
                y = row % lines + down[b]
                if 0 <= x < columns and 0 <= y < lines:
                    ids[t, b, left] = found + across[b] + columns * down[b]
                    left += 1
            ids[t, b, left : counts[t, b]] = 0
            counts[t, b] = left
