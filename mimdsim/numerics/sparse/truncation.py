"""Spike selection whose scan runs once round a layer from a drawn neuron: `lists/spikes.py` in another order."""

from __future__ import annotations

from mimdsim.numerics.compiled import compiled


@compiled
def draw_starts(random, starts, sample, neurons):  # type: ignore[no-untyped-def]
    """random[b] = the next number of its generator (graph/truncation.py), starts[b] = that number as a neuron."""
    for i in range(len(sample)):
        b = sample[i]
        random[b] = (random[b] * 1664525 + 1013904223) & 0xFFFFFFFF
        starts[b] = (random[b] * neurons) >> 32


@compiled
def scan_flags_from(flags, starts, worker_ids, worker_counts, row, sample, start, stop, slot, capacity):  # type: ignore[no-untyped-def]
    """`scan_flags` once round from starts[sample]: the ids from there on first, then those below."""
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
    """`combine_workers` of lists in scan order: from all lists the ids from starts[sample] on, then those below."""
    slots = tile_ids.shape[1]
    for i in range(len(slot)):
        s, begin = slot[i], starts[sample[i]]
        found = 0
        for lap in range(2):
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
    """`combine_tiles` of lists in scan order: of each kind the ids from starts[sample] on, then those below."""
    capacity = ids.shape[1]
    for i in range(len(sample)):
        b = sample[i]
        begin = starts[b]
        found = 0
        for kind in range(2):
            from_part, to_part = (first[i], middle[i]) if kind == 0 else (middle[i], last[i])
            for lap in range(2):
                for part in range(from_part, to_part):
                    for k in range(tile_counts[part]):
                        if found == capacity:
                            break
                        if (tile_ids[part, k] < begin) == (lap == 1):
                            ids[b, found] = tile_ids[part, k]
                            found += 1
            counts[b, kind] = found
