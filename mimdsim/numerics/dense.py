"""Slices, updates, fills and sums of whole boxes."""

from __future__ import annotations

import numba


@numba.njit(cache=True, nogil=True)
def move_rows(source, target, timestep, start, stop):  # type: ignore[no-untyped-def]
    """target[rows] = source[rows]; `timestep` says which of a sequence, the caller has taken it."""
    for i in range(len(start)):
        for row in range(start[i], stop[i]):
            for k in range(source.shape[1]):
                target[row, k] = source[row, k]


@numba.njit(cache=True, nogil=True)
def move_columns(source, target, timestep, start, stop):  # type: ignore[no-untyped-def]
    """target[:, columns] = source[:, columns]."""
    for row in range(source.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                target[row, n] = source[row, n]


@numba.njit(cache=True, nogil=True)
def move_states(source, target, timestep, start, stop):  # type: ignore[no-untyped-def]
    """target[..., columns] = source[..., columns], both of three axes."""
    for block in range(source.shape[0]):
        for row in range(source.shape[1]):
            for i in range(len(start)):
                for n in range(start[i], stop[i]):
                    target[block, row, n] = source[block, row, n]


@numba.njit(cache=True, nogil=True)
def fill_columns(target, start, stop):  # type: ignore[no-untyped-def]
    """target[..., columns] = 0, for a target of three axes."""
    for block in range(target.shape[0]):
        for row in range(target.shape[1]):
            for i in range(len(start)):
                for n in range(start[i], stop[i]):
                    target[block, row, n] = 0


@numba.njit(cache=True, nogil=True)
def fill_matrix_columns(target, start, stop):  # type: ignore[no-untyped-def]
    """target[:, columns] = 0."""
    for row in range(target.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                target[row, n] = 0


@numba.njit(cache=True, nogil=True)
def fill_vector(target, start, stop, value):  # type: ignore[no-untyped-def]
    """target[range] = value."""
    for i in range(len(start)):
        for n in range(start[i], stop[i]):
            target[n] = value


@numba.njit(cache=True, nogil=True)
def fill_rows(target, start, stop):  # type: ignore[no-untyped-def]
    """target[rows] = 0."""
    for i in range(len(start)):
        for row in range(start[i], stop[i]):
            for k in range(target.shape[1]):
                target[row, k] = 0


@numba.njit(cache=True, nogil=True)
def sum_replicas(replicas, total, start, stop):  # type: ignore[no-untyped-def]
    """total[:, columns] = sum over the first axis of replicas[:, :, columns]."""
    for row in range(total.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                value = replicas[0, row, n]
                for r in range(1, replicas.shape[0]):
                    value += replicas[r, row, n]
                total[row, n] = value


@numba.njit(cache=True, nogil=True)
def fill_slots(target, sample, slot_start, slot_stop):  # type: ignore[no-untyped-def]
    """target[sample, slots] = 0."""
    for i in range(len(sample)):
        for k in range(slot_start[i], slot_stop[i]):
            target[sample[i], k] = 0


@numba.njit(cache=True, nogil=True)
def move_slots(source, target, timestep, sample, slot_start, slot_stop):  # type: ignore[no-untyped-def]
    """target[sample, slots] = source[sample, slots]."""
    for i in range(len(sample)):
        for k in range(slot_start[i], slot_stop[i]):
            target[sample[i], k] = source[sample[i], k]


@numba.njit(cache=True, nogil=True)
def copy_columns(source, target, start, stop):  # type: ignore[no-untyped-def]
    """target[:, columns] = source[:, columns]."""
    for row in range(source.shape[0]):
        for i in range(len(start)):
            for n in range(start[i], stop[i]):
                target[row, n] = source[row, n]


@numba.njit(cache=True, nogil=True)
def count_on(timestep, chip, by):  # type: ignore[no-untyped-def]
    """timestep[chip] += by."""
    for i in range(len(chip)):
        timestep[chip[i]] += by


@numba.njit(cache=True, nogil=True)
def offset_from(previous, timestep, chip, by):  # type: ignore[no-untyped-def]
    """previous[chip] = timestep[chip] + by."""
    for i in range(len(chip)):
        previous[chip[i]] = timestep[chip[i]] + by


@numba.njit(cache=True, nogil=True)
def random_offsets(offsets, slot):  # type: ignore[no-untyped-def]
    """offsets[slot] = a number of a linear congruential sequence."""
    for i in range(len(slot)):
        offsets[slot[i]] = (slot[i] * 1103 + 12345) & 0x7FFF
