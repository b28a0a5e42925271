"""Grouping of entries: places within a group, the order by group, stretches equal bit for bit."""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled

FREE = -1


@compiled
def places_among(group, turns):  # type: ignore[no-untyped-def]
    """int32[entries]: how many entries of its group precede each, plus turns[group]; turns is advanced."""
    place = np.empty(len(group), np.int32)
    for i in range(len(group)):
        place[i] = turns[group[i]]
        turns[group[i]] += 1
    return place


@compiled
def order_by(group, groups):  # type: ignore[no-untyped-def]
    """(entries by group, in their order within each group; where each group 0..groups - 1 begins, and the end)."""
    begins = np.zeros(groups + 1, np.int64)
    for i in range(len(group)):
        begins[group[i] + 1] += 1
    for k in range(groups):
        begins[k + 1] += begins[k]
    at, order = begins.copy(), np.empty(len(group), np.int64)
    for i in range(len(group)):
        order[at[group[i]]] = i
        at[group[i]] += 1
    return order, begins


@compiled
def number_alike(before, begins, words):  # type: ignore[no-untyped-def]
    """(number of each stretch words[begins[k]:begins[k + 1]], first stretch of each), numbered in order of appearance.

    Two stretches have the same number if before[k] and all their words agree. words int64: the bits of any data.
    """
    count = len(before)
    size = 4
    while size < 2 * count:
        size *= 2
    slots = np.full(size, FREE)  # numbers, by the hash of their stretch; the next free slot if that is taken
    number_of, first = np.empty(count, np.int64), np.empty(count, np.int64)
    found = 0
    for k in range(count):
        low, length = begins[k], begins[k + 1] - begins[k]
        mixed = np.uint64(before[k])
        for place in range(low, low + length):  # splitmix64's multiplier; any odd multiplier gives the same numbers
            mixed = (mixed ^ np.uint64(words[place])) * np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(29)
        slot = np.int64(mixed & np.uint64(size - 1))
        while True:
            number = slots[slot]
            if number == FREE:
                slots[slot], first[found], number_of[k] = found, k, found
                found += 1
                break
            other = first[number]
            same = before[other] == before[k] and begins[other + 1] - begins[other] == length
            place = 0
            while same and place < length:
                same = words[begins[other] + place] == words[low + place]
                place += 1
            if same:
                number_of[k] = number
                break
            slot = (slot + 1) & (size - 1)
    return number_of, first[:found].copy()


@compiled
def digest(words):  # type: ignore[no-untyped-def]
    """uint64[4] of uint64 words: every fourth word goes into one number, so that any word that is changed alone changes
    the digest, and several at random by all but a chance of 2^-64. Not safe against words made to collide."""
    prime, high = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    fours = len(words) // 4 * 4
    for at in range(0, fours, 4):  # four chains of products, which do not wait for each other
        a, b = (a ^ words[at]) * prime, (b ^ words[at + 1]) * prime
        c, d = (c ^ words[at + 2]) * prime, (d ^ words[at + 3]) * prime
        a, b, c, d = a ^ (a >> high), b ^ (b >> high), c ^ (c >> high), d ^ (d >> high)
    for at in range(fours, len(words)):
        a = (a ^ words[at]) * prime
        a ^= a >> high
    return np.array([a, b, c, d])
