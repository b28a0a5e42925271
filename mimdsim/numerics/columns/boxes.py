"""Boxes of vertices in columns: which are local, delivered, equal or touching.

Bounds are int64[axes, 2, boxes], contiguous: start and stop per axis. Intervals of a mapping ascend and do not overlap.
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled

MOST_KEYS = 2.0**62  # rows that int64 keys can distinguish, with room for the rounding of a float product


@compiled
def keys_of(columns, chosen):  # type: ignore[no-untyped-def]
    """(one number per row in the lexicographic order of its chosen columns, whether these ascend).

    No numbers if there are no such keys: the columns span too much.
    """
    rows, span = columns.shape[1], 1.0
    low, radix = np.empty(len(chosen), np.int64), np.empty(len(chosen), np.int64)
    for place in range(len(chosen)):
        column = columns[chosen[place]]
        least = most = column[0]
        for entry in column:
            least, most = min(least, entry), max(most, entry)
        span *= float(most) - float(least) + 1.0
        if span > MOST_KEYS:
            return np.zeros(0, np.int64), False
        low[place], radix[place] = least, most - least + 1
    keys = columns[chosen[0]] - low[0]
    for place in range(1, len(chosen)):
        if radix[place] > 1:
            column, most, least = columns[chosen[place]], radix[place], low[place]
            for row in range(rows):
                keys[row] = keys[row] * most + (column[row] - least)
    ascending = True
    for row in range(1, rows):
        ascending = ascending and keys[row - 1] <= keys[row]
    return keys, ascending


@compiled
def number_equal(columns, order):  # type: ignore[no-untyped-def]
    """(the number of each row's distinct value, one row of each value) of rows sorted by `order`; numbers ascend."""
    which, one_of_each = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    found = 0
    for place in range(len(order)):
        row = order[place]
        same = place > 0
        if same:
            for column in range(len(columns)):
                if columns[column, row] != columns[column, order[place - 1]]:
                    same = False
                    break
        if not same:
            one_of_each[found] = row
            found += 1
        which[row] = found - 1
    return which, one_of_each[:found].copy()


@compiled
def join_touching(columns, order, start):  # type: ignore[no-untyped-def]
    """Rows that differ only in columns [start, start + 1], and touch or overlap there, as one row.

    `order` sorts rows by the other columns, then by `start`; the joined rows come in that order.
    """
    joined = np.empty((len(columns), len(order)), np.int64)
    found, before, reached = 0, -1, 0
    for place in range(len(order)):
        row = order[place]
        same = before >= 0 and columns[start, row] <= reached
        if same:
            for column in range(len(columns)):
                if column != start and column != start + 1 and columns[column, row] != columns[column, before]:
                    same = False
                    break
        if same:
            reached = max(reached, columns[start + 1, row])
        else:
            for column in range(len(columns)):
                joined[column, found] = columns[column, row]
            reached = columns[start + 1, row]
            found += 1
        joined[start + 1, found - 1] = reached
        before = row
    return joined[:, :found].copy()


@compiled
def first_outside(bounds, shape):  # type: ignore[no-untyped-def]
    """The first box that is not inside a variable of `shape` or ends before it begins, -1 if there is none."""
    for box in range(bounds.shape[2]):
        for axis in range(len(bounds)):
            if bounds[axis, 0, box] < 0 or bounds[axis, 1, box] > shape[axis]:
                return box
            if bounds[axis, 1, box] < bounds[axis, 0, box]:
                return box
    return -1


@compiled
def is_empty(bounds, box):  # type: ignore[no-untyped-def]
    """Whether a box has no element."""
    empty = False
    for axis in range(len(bounds)):
        empty = empty or bounds[axis, 1, box] <= bounds[axis, 0, box]
    return empty


@compiled
def first_meeting(left, owners, right, owners_right, order, along, beside):  # type: ignore[no-untyped-def]
    """(box of left, box of right) of different owners sharing an element, the first such one of right; (-1, -1): none.

    `order` sorts the left boxes by where they start along axis `along`, then along `beside`.
    """
    starts, begin = np.empty(len(order), np.int64), np.empty(len(order) + 1, np.int64)  # of boxes that start alike
    beside_starts = np.empty(len(order), np.int64)
    alike = longest = longest_beside = 0
    for place in range(len(order)):
        start = left[along, 0, order[place]]
        beside_starts[place] = left[beside, 0, order[place]]
        longest = max(longest, left[along, 1, order[place]] - start)
        longest_beside = max(longest_beside, left[beside, 1, order[place]] - beside_starts[place])
        if alike == 0 or start != starts[alike - 1]:
            starts[alike], begin[alike] = start, place
            alike += 1
    begin[alike] = len(order)
    for two in range(right.shape[2]):
        group = first_from(starts, right[along, 0, two] - longest + 1, 0, alike)
        while group < alike and starts[group] < right[along, 1, two]:
            low, high = begin[group], begin[group + 1]
            place = first_from(beside_starts, right[beside, 0, two] - longest_beside + 1, low, high)
            while place < high and beside_starts[place] < right[beside, 1, two]:
                one = order[place]
                meet = owners[one] != owners_right[two]
                for axis in range(len(left)):
                    if not meet:
                        break
                    start = max(left[axis, 0, one], right[axis, 0, two])
                    meet = start < min(left[axis, 1, one], right[axis, 1, two])
                if meet:
                    return one, two
                place += 1
            group += 1
    return -1, -1


@compiled
def box_whole_from(bounds, box, shape):  # type: ignore[no-untyped-def]
    """The axis at which runs of consecutive elements begin: the box is whole along the axes after it."""
    axis = len(shape) - 1
    while axis > 0 and bounds[axis, 1, box] - bounds[axis, 0, box] == shape[axis]:
        axis -= 1
    return axis


@compiled
def runs_of(bounds, box, axis):  # type: ignore[no-untyped-def]
    """How many runs a box has that begin at `axis`."""
    runs = 1
    for outer in range(axis):
        runs *= max(0, bounds[outer, 1, box] - bounds[outer, 0, box])
    return runs


@compiled
def run_at(bounds, box, axis, number, strides):  # type: ignore[no-untyped-def]
    """First element and one past the last of run `number` of a box, whose runs begin at `axis`."""
    start = bounds[axis, 0, box] * strides[axis]
    for outer in range(axis - 1, -1, -1):
        length = bounds[outer, 1, box] - bounds[outer, 0, box]
        start += (bounds[outer, 0, box] + number % length) * strides[outer]
        number //= length
    return start, start + (bounds[axis, 1, box] - bounds[axis, 0, box]) * strides[axis]


@compiled
def strides_of(shape):  # type: ignore[no-untyped-def]
    """Elements from one index to the next along every axis, in C order."""
    strides = np.empty(len(shape), np.int64)
    elements = 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = elements
        elements *= shape[axis]
    return strides


@compiled
def first_from(entries, least, low, high):  # type: ignore[no-untyped-def]
    """The position of the first of entries[low:high] (ascending) that is at least `least`; high if none is."""
    while low < high:
        middle = (low + high) // 2
        if entries[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def holds(holders, starts, stops, at, tile, start, stop):  # type: ignore[no-untyped-def]
    """Whether the intervals of one tile, from number `at` on, hold everything from start to stop."""
    if stop <= start:
        return True
    while 0 <= at < len(starts) and starts[at] <= start < stops[at] and holders[at] == tile:
        if stop <= stops[at]:
            return True
        start = stops[at]
        at += 1
    return False


@compiled
def intervals_by_tile(holders):  # type: ignore[no-untyped-def]
    """(first holder; where in the following those of every tile from it to the last holder begin, and the end; the
    intervals, tile by tile, ascending)."""
    low, high = 0, -1
    for at in range(len(holders)):
        low = holders[at] if at == 0 else min(low, holders[at])
        high = max(high, holders[at])
    begin, found = np.zeros(high - low + 2, np.int64), np.empty(len(holders), np.int64)
    for holder in holders:
        begin[holder - low + 1] += 1
    for tile in range(1, len(begin)):
        begin[tile] += begin[tile - 1]
    place = begin.copy()
    for at in range(len(holders)):
        tile = holders[at] - low
        found[place[tile]] = at
        place[tile] += 1
    return low, begin, found


@compiled
def local_boxes(holders, starts, stops, by_tile, axis, shape, tiles, bounds):  # type: ignore[no-untyped-def]
    """bool[boxes]: whether tiles[k] holds all of box k; intervals are along `axis`, or along elements if that is -1;
    by_tile: as from `intervals_by_tile`."""
    local = np.ones(len(tiles), np.bool_)
    strides, along = strides_of(shape), max(axis, 0)
    if axis < 0:
        for box in range(len(tiles)):
            along = max(along, box_whole_from(bounds, box, shape))
    low, begin, own = by_tile
    for box in range(len(tiles)):
        tile = tiles[box]
        place = tile - low if 0 <= tile - low < len(begin) - 1 else -1
        count = begin[place + 1] - begin[place] if place >= 0 else 0
        only = own[begin[place]] if count == 1 else -1
        for number in range(1 if axis >= 0 else runs_of(bounds, box, along)):
            if axis >= 0:
                start, stop = bounds[axis, 0, box], bounds[axis, 1, box]
            else:
                start, stop = run_at(bounds, box, along, number, strides)
            if only >= 0:
                held = stop <= start or (starts[only] <= start and stop <= stops[only])
            else:
                at = first_from(starts, start + 1, 0, len(starts)) - 1 if count else -1
                held = holds(holders, starts, stops, at, tile, start, stop)
            if not held:
                local[box] = is_empty(bounds, box)  # along another axis: there is nothing to hold
                break
    return local


@compiled
def local_in_bands(levels, bands, intervals, by_tile, axis, shape, tiles, bounds):  # type: ignore[no-untyped-def]
    """bool[boxes]: whether tiles[k] holds all of box k of a variable of `shape` that is cut into bands side by side.

    levels: (along, ranges, begin): along[level] is the axis that ranges[:, begin[level]:begin[level + 1]] cut; bands:
    (first of each range of the last level, turns), as of `program.mapping.SideBySide`, turns ascending within a range;
    intervals: (holders, starts, stops, turn of each) along `axis`; by_tile: as from `intervals_by_tile`. No list of the
    parts of boxes is made, and a box is left at the first part that its tile does not hold.
    """
    local = np.ones(len(tiles), np.bool_)
    along, ranges, begin = levels
    first, turns = bands
    holders, starts, stops, turn_of = intervals
    low, of_tile, own = by_tile
    deepest, extent = len(along) - 1, shape[axis]
    at, around = begin[:-1].copy(), np.empty((len(along), 2), np.int64)  # of every level: a range, where it is
    part = np.empty((len(along) + 1, len(bounds), 2), np.int64)  # what of a box is in the ranges of the levels before
    leaf, seen, known = -1, 0, False  # of the last part: its range of the last level, its interval, if one holds it
    failed = -1  # the box before that was left at that part
    for box in range(len(tiles)):
        within = leaf >= 0  # as boxes of neighbouring vertices mostly are
        for level in range(len(along)):
            start, stop = bounds[along[level], 0, box], bounds[along[level], 1, box]
            within = within and around[level, 0] <= start and stop <= around[level, 1]
        if within and known:  # in the interval of the box before, or in the next
            near = seen if holders[seen] == tiles[box] else min(seen + 1, len(starts) - 1)
            further = turn_of[seen] * extent
            start, stop = bounds[axis, 0, box] + further, bounds[axis, 1, box] + further
            alike = holders[near] == tiles[box] and turn_of[near] == turn_of[seen]
            if alike and starts[near] <= start and stop <= stops[near]:
                seen = near
                continue
        if is_empty(bounds, box):
            continue
        again = failed >= 0  # in the same ranges, and its tile holds nothing in the one at which that box was left
        for level in range(len(along)):
            for end in range(2):
                again = again and bounds[along[level], end, box] == bounds[along[level], end, failed]
        if again and 0 <= tiles[box] - low < len(of_tile) - 1:
            for place in range(of_tile[tiles[box] - low], of_tile[tiles[box] - low + 1]):
                again = again and not is_among(turns, first[leaf], first[leaf + 1], turn_of[own[place]])
        if again:
            local[box] = False
            continue
        failed = -1
        level, fresh = 0, True
        if not within:
            for each in range(len(bounds)):
                part[0, each, 0], part[0, each, 1] = bounds[each, 0, box], bounds[each, 1, box]
        while level >= 0:
            if within:
                start, stop, level = bounds[axis, 0, box], bounds[axis, 1, box], -1
            else:
                cut = along[level]
                further = (at[level - 1] - begin[level - 1]) * shape[cut] if level else 0
                start, stop = part[level, cut, 0] + further, part[level, cut, 1] + further
                number = first_from(ranges[1], start + 1, begin[level], begin[level + 1]) if fresh else at[level] + 1
                if number == begin[level + 1] or ranges[0, number] >= stop:
                    level, fresh = level - 1, False
                    continue
                at[level], leaf = number, number - begin[level] if level == deepest else -1
                around[level, 0], around[level, 1] = ranges[0, number] - further, ranges[1, number] - further
                for each in range(len(bounds)):
                    part[level + 1, each, 0], part[level + 1, each, 1] = part[level, each, 0], part[level, each, 1]
                part[level + 1, cut, 0] = max(start - further, around[level, 0])
                part[level + 1, cut, 1] = min(stop - further, around[level, 1])
                fresh = level < deepest
                if fresh:
                    level += 1
                    continue
                start, stop = part[level + 1, axis, 0], part[level + 1, axis, 1]
            band, last, tile = first[leaf], first[leaf + 1], tiles[box]
            found = -1  # the interval at which the tile holds the part
            place = end = 0
            if 0 <= tile - low < len(of_tile) - 1:
                place, end = of_tile[tile - low], of_tile[tile - low + 1]
            while found < 0 and place < end:  # turn by turn of those in which the tile holds something
                turn = turn_of[own[place]]
                if is_among(turns, band, last, turn):
                    at_start = first_after(stops, own, place, end, start + turn * extent)
                    if at_start < end and holds(
                        holders, starts, stops, own[at_start], tile, start + turn * extent, stop + turn * extent
                    ):
                        found = own[at_start]
                place = first_after(stops, own, place, end, (turn + 1) * extent)
            known = found >= 0
            if not known:
                local[box], failed = False, box
                break
            seen = found
    return local


@compiled
def is_among(turns, low, high, turn):  # type: ignore[no-untyped-def]
    """Whether turns[low:high], which ascend, have `turn`."""
    place = low if high == low + 1 else first_from(turns, turn, low, high)
    return place < high and turns[place] == turn


@compiled
def first_after(stops, chosen, low, high, reached):  # type: ignore[no-untyped-def]
    """The position of the first of chosen[low:high] whose stop is after `reached`; high if none is."""
    while low < high:
        middle = (low + high) // 2
        if stops[chosen[middle]] <= reached:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def contained_boxes(owners, delivered, tiles, bounds):  # type: ignore[no-untyped-def]
    """bool[boxes]: whether a box delivered to tiles[k] contains box k; `owners` ascend."""
    inside = np.zeros(len(tiles), np.bool_)
    first = last = latest = 0
    for box in range(len(tiles)):
        if box == 0 or tiles[box] != tiles[box - 1]:
            near = last < len(owners) and owners[last] == tiles[box]  # as vertices mostly come tile after tile
            first = latest = last if near else first_from(owners, tiles[box], 0, len(owners))
            alone = first + 1 < len(owners) and owners[first] == tiles[box] < owners[first + 1]
            last = first + 1 if alone else first_from(owners, tiles[box] + 1, first, len(owners))
        for turn in range(last - first):
            part = first + (latest - first + turn) % (last - first)  # starting where the previous box was found
            within = True
            for axis in range(len(bounds)):
                if delivered[axis, 0, part] > bounds[axis, 0, box] or delivered[axis, 1, part] < bounds[axis, 1, box]:
                    within = False
                    break
            if within:
                inside[box], latest = True, part
                break
    return inside
