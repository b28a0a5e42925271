"""What the links of a network of routers carry, by dimension-ordered routes: first along the row, then the column."""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled

MESH, TORUS, ONE_WAY, CROSSBAR = 0, 1, 2, 3
NONE, SEVERAL = -1, -2


@compiled
def link_loads(kind, wide, high, columns, rows, sender, size, hold, tree, first, reader, loads, held, senders, readers):  # type: ignore[no-untyped-def]
    """Add messages to `loads` float64[4, routers], by the router that a link leaves: east, west, south, north.

    columns, rows int64[tiles]: the router of each tile, numbered over all chips, `high` rows each. Message k of
    size[k] bytes goes from sender[k] to reader[first[k]:first[k + 1]], once along a tree of their routes where tree[k],
    else to each on its own; `held`, shaped alike, gets hold[k] of each. senders, readers int64[4, routers]: the tile
    whose messages a link carries or leads to, NONE or SEVERAL. A crossbar's routers have one link to its middle (east)
    and one from it (south).
    """
    south, north, reached = np.zeros(wide, np.int64), np.zeros(wide, np.int64), np.full(loads.shape[1], NONE)
    for k in range(len(sender)):
        x, y = columns[sender[k]], rows[sender[k]]
        group = first[k + 1] - first[k] if tree[k] else 1
        for begin in range(first[k], first[k + 1], group):
            east, west = np.int64(0), np.int64(0)
            for i in range(begin, begin + group):
                step = steps_between(kind, x, columns[reader[i]], wide)
                east, west = max(east, step), max(west, -step)
            to = reader[begin] if group == 1 else SEVERAL
            if kind == CROSSBAR:
                here, leaves = y * wide + x, False
                for i in range(begin, begin + group):
                    there = rows[reader[i]] * wide + columns[reader[i]]
                    if there != here and reached[there] != begin:
                        reached[there], leaves = begin, True
                        _mark(2, there, size[k], hold[k], sender[k], reader[i], loads, held, senders, readers)
                if leaves:
                    _mark(0, here, size[k], hold[k], sender[k], to, loads, held, senders, readers)
                continue
            _walk(
                0,
                1,
                x,
                y,
                east,
                wide,
                y // high * high,
                high,
                size[k],
                hold[k],
                sender[k],
                to,
                loads,
                held,
                senders,
                readers,
            )
            _walk(
                1,
                -1,
                x,
                y,
                west,
                wide,
                y // high * high,
                high,
                size[k],
                hold[k],
                sender[k],
                to,
                loads,
                held,
                senders,
                readers,
            )
            for i in range(begin, begin + group):
                at = columns[reader[i]]
                step = steps_between(kind, y, rows[reader[i]], high)
                if step > south[at]:
                    south[at] = step
                elif -step > north[at]:
                    north[at] = -step
            for i in range(begin, begin + group):
                at = columns[reader[i]]
                floor = y // high * high
                _walk(
                    2,
                    1,
                    at,
                    y,
                    south[at],
                    wide,
                    floor,
                    high,
                    size[k],
                    hold[k],
                    sender[k],
                    to,
                    loads,
                    held,
                    senders,
                    readers,
                )
                _walk(
                    3,
                    -1,
                    at,
                    y,
                    north[at],
                    wide,
                    floor,
                    high,
                    size[k],
                    hold[k],
                    sender[k],
                    to,
                    loads,
                    held,
                    senders,
                    readers,
                )
                south[at] = north[at] = 0


@compiled
def steps_between(kind, here, there, extent):  # type: ignore[no-untyped-def]
    """Steps along a row or column of so many routers, negative if against their order."""
    steps = there - here
    if kind == TORUS:
        steps %= extent
        if 2 * steps > extent:
            steps -= extent
    elif kind == ONE_WAY:
        steps %= extent
    elif kind == CROSSBAR:
        steps = np.int64(0)
    return steps


@compiled
def _walk(direction, by, x, y, steps, wide, floor, high, size, hold, sender, reader, loads, held, senders, readers):  # type: ignore[no-untyped-def]
    for _ in range(steps):
        _mark(direction, y * wide + x, size, hold, sender, reader, loads, held, senders, readers)
        if direction < 2:
            x = (x + by) % wide
        else:
            y = floor + (y - floor + by) % high


@compiled
def _mark(direction, router, size, hold, sender, reader, loads, held, senders, readers):  # type: ignore[no-untyped-def]
    loads[direction, router] += size
    held[direction, router] += hold
    if senders[direction, router] == NONE:
        senders[direction, router], readers[direction, router] = sender, reader
        return
    if senders[direction, router] != sender:
        senders[direction, router] = SEVERAL
    if readers[direction, router] != reader:
        readers[direction, router] = SEVERAL


@compiled
def latest_senders(reader, first, sender, ready):  # type: ignore[no-untyped-def]
    """(readers that are ready before one of their senders, the sender of each that is ready last, the first of
    several); reader[k] waits for sender[first[k]:first[k + 1]]; ready int64[tiles]."""
    later, latest = np.empty(len(reader), np.int64), np.empty(len(reader), np.int64)
    found = 0
    for k in range(len(reader)):
        at = reader[k]
        for i in range(first[k], first[k + 1]):
            if ready[sender[i]] > ready[at]:
                at = sender[i]
        if at != reader[k]:
            later[found], latest[found] = reader[k], at
            found += 1
    return later[:found], latest[:found]
