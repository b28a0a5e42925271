"""Pieces of an exchange: parts cut where the sending tile changes, counted at senders and readers.

Bounds are int64[axes, 2, pieces], contiguous. A mapping's axis is -1 if its intervals count elements in C order;
pieces are then runs of elements, with one axis.
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.columns.boxes import box_whole_from, first_from, is_empty, run_at, runs_of, strides_of
from mimdsim.numerics.compiled import compiled


@compiled
def element_runs(bounds, shape):  # type: ignore[no-untyped-def]
    """(box, start, stop) of every run of consecutive elements: each box cut at the axis after which it is whole."""
    strides = strides_of(shape)
    axes = np.empty(bounds.shape[2], np.int64)
    total = 0
    for box in range(bounds.shape[2]):
        axes[box] = box_whole_from(bounds, box, shape)
        total += runs_of(bounds, box, axes[box])
    of, starts, stops = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    place = 0
    for box in range(bounds.shape[2]):
        for number in range(runs_of(bounds, box, axes[box])):
            of[place] = box
            starts[place], stops[place] = run_at(bounds, box, axes[box], number, strides)
            place += 1
    return of, starts, stops


@compiled
def intervals_met(starts, stops, along_start, along_stop):  # type: ignore[no-untyped-def]
    """(first, count) of the ascending intervals that each run from along_start to along_stop meets."""
    first, count = np.empty(len(along_start), np.int64), np.empty(len(along_start), np.int64)
    near = 0
    for run in range(len(along_start)):
        start, stop = along_start[run], along_stop[run]
        for _ in range(2):  # runs of neighbouring vertices mostly begin in the same interval or in the next
            if near < len(stops) and stops[near] <= start:
                near += 1
        if (near < len(stops) and stops[near] <= start) or (near > 0 and stops[near - 1] > start):
            near = first_from(stops, start + 1, 0, len(stops))
        end = near
        if end < len(starts) and starts[end] < stop:
            end += 1
            if end < len(starts) and starts[end] < stop:
                end = first_from(starts, stop, end, len(starts))
        first[run], count[run] = near, end - near
    return first, count


@compiled
def cut_at_intervals(starts, stops, along_start, along_stop):  # type: ignore[no-untyped-def]
    """(run, interval) of every piece of runs from along_start to along_stop, cut at ascending intervals."""
    first, count = intervals_met(starts, stops, along_start, along_stop)
    total = count.sum()
    run_of, interval = np.empty(total, np.int64), np.empty(total, np.int64)
    place = 0
    for run in range(len(along_start)):
        for number in range(count[run]):
            run_of[place], interval[place] = run, first[run] + number
            place += 1
    return run_of, interval


@compiled
def cut_at_ranges(bounds, along, starts, stops, apart, extent):  # type: ignore[no-untyped-def]
    """(box, range, bounds) of what of every box lies in each of ascending ranges along an axis.

    Ranges count as if box k were apart[k] times `extent` further along.
    """
    axes, _, boxes = bounds.shape
    first, count = np.empty(boxes, np.int64), np.zeros(boxes, np.int64)
    total = 0
    for box in range(boxes):
        if is_empty(bounds, box):
            continue
        start, stop = bounds[along, 0, box] + apart[box] * extent, bounds[along, 1, box] + apart[box] * extent
        same = box > 0 and count[box - 1] > 0  # boxes of neighbouring vertices mostly are in the same range
        at = first[box - 1] if same else 0
        if not (same and starts[at] <= start < stops[at]):
            at = first_from(stops, start + 1, 0, len(stops))
        first[box] = at
        while at < len(starts) and starts[at] < stop:
            at += 1
        count[box] = at - first[box]
        total += count[box]
    of, within, inside = np.empty(total, np.int64), np.empty(total, np.int64), np.empty((axes, 2, total), np.int64)
    place = 0
    for box in range(boxes):
        for each in range(first[box], first[box] + count[box]):
            of[place], within[place] = box, each
            for axis in range(axes):
                inside[axis, 0, place], inside[axis, 1, place] = bounds[axis, 0, box], bounds[axis, 1, box]
            inside[along, 0, place] = max(bounds[along, 0, box], starts[each] - apart[box] * extent)
            inside[along, 1, place] = min(bounds[along, 1, box], stops[each] - apart[box] * extent)
            place += 1
    return of, within, inside


@compiled
def elements_and_fragments(bounds, shape, axis, held):  # type: ignore[no-untyped-def]
    """For every piece: elements, and separate runs where its tile holds `held` of the mapped axis, row after row."""
    elements, fragments = np.empty(bounds.shape[2], np.int64), np.empty(bounds.shape[2], np.int64)
    for piece in range(bounds.shape[2]):
        elements[piece] = fragments[piece] = 1
        joined = True
        for along in range(len(bounds) - 1, -1, -1):
            length = bounds[along, 1, piece] - bounds[along, 0, piece]
            elements[piece] *= length
            if not joined:
                fragments[piece] *= length
            joined = joined and length == (held[piece] if along == axis else shape[along])
        if elements[piece] == 0:  # a part without elements is not sent
            fragments[piece] = 0
    return elements, fragments


@compiled
def count_received(  # type: ignore[no-untyped-def]
    which, reader, order, piece_box, sender, size_bytes, fragments, boxes, per_chip, totals
):
    """Add to totals (bytes received, pieces received, bytes shared) by tile; returns how many other readers every
    piece has.

    Box which[k] is wanted by reader[k]; `order` sorts by box, then reader. Pieces that a reader holds are not sent.
    Shared are pieces that both tiles of a pair (on a chip, 2n and 2n + 1) receive: of a box, those neither holds.
    """
    received, pieces_received, shared = totals
    begin = np.zeros(boxes + 1, np.int64)
    ordered = np.empty(len(order), np.int64)
    for place in range(len(order)):
        begin[which[place] + 1] += 1
        ordered[place] = reader[order[place]]
    begin = np.cumsum(begin)
    all_bytes, all_fragments = np.zeros(boxes, np.int64), np.zeros(boxes, np.int64)
    own_bytes, own_fragments = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    others = np.empty(len(piece_box), np.int64)
    for piece in range(len(piece_box)):
        box = piece_box[piece]
        all_bytes[box] += size_bytes[piece]
        all_fragments[box] += fragments[piece]
        low, high = begin[box], begin[box + 1]
        at = first_from(ordered, sender[piece], low, high)
        others[piece] = high - low - (at < high and ordered[at] == sender[piece])
        while at < high and ordered[at] == sender[piece]:
            own_bytes[at] += size_bytes[piece]
            own_fragments[at] += fragments[piece]
            at += 1
    for box in range(boxes):
        for at in range(begin[box], begin[box + 1]):
            tile = ordered[at]
            received[tile] += all_bytes[box] - own_bytes[at]
            pieces_received[tile] += all_fragments[box] - own_fragments[at]
            before = ordered[at - 1] if at > begin[box] else tile
            if before == tile or before // per_chip != tile // per_chip:
                continue
            if before % per_chip // 2 == tile % per_chip // 2:
                alike = max(0, all_bytes[box] - own_bytes[at] - own_bytes[at - 1])
                shared[before] += alike
                shared[tile] += alike
    return others


@compiled
def count_pairs(which, reader, order, piece_box, sender, size_bytes, boxes, per_chip, pairs, group_of, groups):  # type: ignore[no-untyped-def]
    """Add the bytes of every piece to pairs[sender, reader on its chip] and groups[its group, the reader's group], for
    readers on the sender's chip that do not hold it; pairs may be empty. Arguments as of `count_received`."""
    begin = np.zeros(boxes + 1, np.int64)
    for place in range(len(order)):
        begin[which[place] + 1] += 1
    begin = np.cumsum(begin)
    for piece in range(len(piece_box)):
        box, tile, size = piece_box[piece], sender[piece], size_bytes[piece]
        for at in range(begin[box], begin[box + 1]):
            other = reader[order[at]]
            if other != tile and other // per_chip == tile // per_chip:
                if len(pairs):
                    pairs[tile, other % per_chip] += size
                groups[group_of[tile], group_of[other]] += size


@compiled
def linked_pieces(which, reader, order, piece_box, sender, boxes, per_chip):  # type: ignore[no-untyped-def]
    """(piece, chip) for every chip but the sender's with a reader of the piece's box; `order` sorts by box, reader."""
    begin = np.zeros(boxes + 1, np.int64)
    chips = np.empty(len(order), np.int64)
    found = 0
    for place in range(len(order)):
        box, chip = which[order[place]], reader[order[place]] // per_chip
        if place == 0 or box != which[order[place - 1]] or chip != chips[found - 1]:
            chips[found] = chip
            begin[box + 1] += 1
            found += 1
    begin = np.cumsum(begin)
    total = 0
    for piece in range(len(piece_box)):
        for at in range(begin[piece_box[piece]], begin[piece_box[piece] + 1]):
            total += chips[at] != sender[piece] // per_chip
    pieces, targets = np.empty(total, np.int64), np.empty(total, np.int64)
    place = 0
    for piece in range(len(piece_box)):
        for at in range(begin[piece_box[piece]], begin[piece_box[piece] + 1]):
            if chips[at] != sender[piece] // per_chip:
                pieces[place], targets[place] = piece, chips[at]
                place += 1
    return pieces, targets


def are_apart(bounds: np.ndarray) -> bool:
    """Whether different boxes share no element because, along every axis, their intervals are equal or apart."""
    for starts, stops in bounds:
        if (starts[1:] < starts[:-1]).any():
            order = np.argsort(starts)
            starts, stops = starts[order], stops[order]
        alike, same_stop = starts[1:] == starts[:-1], stops[1:] == stops[:-1]
        apart = np.where(alike, same_stop, starts[1:] >= stops[:-1])
        if not apart.all() or (stops <= starts).any():
            return False
    return True


@compiled
def add_fresh(group, starts, stops, order, total):  # type: ignore[no-untyped-def]
    """total[group] += elements of its runs, each counted once; `order` sorts by group, then start."""
    before, reached = -1, 0
    for run in order:
        if group[run] != before:
            before, reached = group[run], starts[run]
        total[before] += max(0, stops[run] - max(starts[run], reached))
        reached = max(reached, stops[run])
