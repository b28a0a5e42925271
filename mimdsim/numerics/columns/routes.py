"""What the links of a network of routers carry, by dimension-ordered routes: first along the row, then the column."""

from __future__ import annotations

import heapq

import numpy as np

from mimdsim.numerics.compiled import compiled

MESH, TORUS, ONE_WAY, CROSSBAR = 0, 1, 2, 3
NONE, SEVERAL = -1, -2


@compiled
def link_loads(kind, wide, high, columns, rows, sender, size, tree, first, reader, loads, senders, readers):  # type: ignore[no-untyped-def]
    """Add messages to `loads` float64[4, routers], by the router that a link leaves: east, west, south, north.

    columns, rows int64[tiles]: the router of each tile, numbered over all chips, `high` rows each. Message k of
    size[k] goes from sender[k] to reader[first[k]:first[k + 1]], once along a tree of their routes with `tree`, else to
    each on its own. senders, readers int64[4, routers]: the tile whose messages a link carries or leads to, NONE or
    SEVERAL. A crossbar's routers have one link to its middle
    (east) and one from it (south). Fastest where messages of a tile follow one another.
    """
    grid, links = (kind, wide, high, columns, rows), (loads, senders, readers)
    south, north, visited = np.zeros(wide, np.int64), np.zeros(wide, np.int64), np.full(loads.shape[1], NONE)
    along, along_to = np.zeros(wide), np.full(wide, NONE)
    across, across_to = np.zeros((high, wide)), np.full((high, wide), NONE)
    k = 0
    while k < len(sender):
        end = k + 1
        if kind == CROSSBAR:
            group = first[end] - first[k] if tree else 1
            for begin in range(first[k], first[end], group):
                _over_middle(grid, sender[k], size[k], reader, begin, begin + group, links, visited)
        elif tree:
            _along_tree(grid, sender[k], size[k], reader[first[k] : first[end]], links, south, north)
        else:
            while end < len(sender) and sender[end] == sender[k]:
                end += 1
            sums = south, north, along, along_to, across, across_to
            _each_alone(grid, sender[k], size[k:end], first[k : end + 1], reader, links, sums)
        k = end


@compiled
def _over_middle(grid, tile, size, reader, begin, end, links, visited):  # type: ignore[no-untyped-def]
    _, wide, _, columns, rows = grid
    here, leaves = rows[tile] * wide + columns[tile], False
    for i in range(begin, end):
        there = rows[reader[i]] * wide + columns[reader[i]]
        if there != here and visited[there] != begin:
            visited[there], leaves = begin, True
            _mark(2, there, size, tile, reader[i], links)
    if leaves:
        _mark(0, here, size, tile, reader[begin] if end - begin == 1 else SEVERAL, links)


@compiled
def _along_tree(grid, tile, size, readers, links, south, north):  # type: ignore[no-untyped-def]
    """south, north int64[wide]: scratch, zeros before and after."""
    kind, wide, high, columns, rows = grid
    x, y = columns[tile], rows[tile]
    floor, east, west = y // high * high, np.int64(0), np.int64(0)
    for to in readers:
        at = columns[to]
        step = steps_between(kind, x, at, wide)
        east, west = max(east, step), max(west, -step)
        step = steps_between(kind, y, rows[to], high)
        south[at], north[at] = max(south[at], step), max(north[at], -step)
    for direction, by, steps in ((0, 1, east), (1, -1, west)):
        for step in range(steps):
            _mark(direction, y * wide + (x + by * step) % wide, size, tile, SEVERAL, links)
    for to in readers:
        at = columns[to]
        for direction, by, steps in ((2, 1, south[at]), (3, -1, north[at])):
            for step in range(steps):
                row = floor + (y - floor + by * step) % high
                _mark(direction, row * wide + at, size, tile, SEVERAL, links)
        south[at] = north[at] = 0


@compiled
def _each_alone(grid, tile, size, first, reader, links, sums):  # type: ignore[no-untyped-def]
    """Messages of one tile without trees, together: what goes beyond a router is summed from the farthest one back, so
    that each link is visited once. sums: scratch, zeros and NONE before and after."""
    kind, wide, high, columns, rows = grid
    south, north, along, along_to, across, across_to = sums
    x, y = columns[tile], rows[tile]
    floor, east, west = y // high * high, np.int64(0), np.int64(0)
    for k in range(len(size)):
        for to in reader[first[k] : first[k + 1]]:
            at, row = columns[to], rows[to] - floor
            step = steps_between(kind, x, at, wide)
            east, west = max(east, step), max(west, -step)
            step = steps_between(kind, y, floor + row, high)
            south[at], north[at] = max(south[at], step), max(north[at], -step)
            along[at] += size[k]
            along_to[at] = _one_or_several(along_to[at], to)
            across[row, at] += size[k]
            across_to[row, at] = _one_or_several(across_to[row, at], to)
    for direction, by, steps in ((0, 1, east), (1, -1, west)):
        beyond, to = 0.0, NONE
        for step in range(steps, 0, -1):
            at = (x + by * step) % wide
            beyond, to = beyond + along[at], _one_or_several(to, along_to[at])
            _down_and_up(grid, tile, at, links, sums)
            _mark(direction, y * wide + (x + by * (step - 1)) % wide, beyond, tile, to, links)
    _down_and_up(grid, tile, x, links, sums)


@compiled
def _down_and_up(grid, tile, at, links, sums):  # type: ignore[no-untyped-def]
    """The messages of one tile along the column `at`."""
    _, wide, high, _, rows = grid
    south, north, along, along_to, across, across_to = sums
    y = rows[tile]
    floor = y // high * high
    for direction, by, steps in ((2, 1, south[at]), (3, -1, north[at])):
        beyond, to = 0.0, NONE
        for step in range(steps, 0, -1):
            row = (y - floor + by * step) % high
            beyond, to = beyond + across[row, at], _one_or_several(to, across_to[row, at])
            across[row, at], across_to[row, at] = 0.0, NONE
            before = floor + (y - floor + by * (step - 1)) % high
            _mark(direction, before * wide + at, beyond, tile, to, links)
    across[y - floor, at], across_to[y - floor, at] = 0.0, NONE
    along[at], along_to[at], south[at], north[at] = 0.0, NONE, 0, 0


@compiled
def _one_or_several(known, more):  # type: ignore[no-untyped-def]
    """Of two that are each NONE, SEVERAL or one tile."""
    if more in (NONE, known):
        return known
    return more if known == NONE else SEVERAL


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
def _mark(direction, router, size, sender, reader, links):  # type: ignore[no-untyped-def]
    loads, senders, readers = links
    loads[direction, router] += size
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


@compiled
def fullest_links(line, first, option, count, sender, reader):  # type: ignore[no-untyped-def]
    """bool[links]: all but those of which another link of the same line carries no less, whatever becomes of the
    messages. Link k of line[k], ascending, carries the entries first[k] to first[k + 1]: so many messages of an option,
    ascending, of a sender and to a reader as in `link_loads`."""
    kept, begin = np.ones(len(line), np.bool_), 0
    columns = first, option, count, sender, reader
    for k in range(len(line)):
        if line[k] != line[begin]:
            begin = k
        for other in range(begin, k):
            if kept[other] and _covers(k, other, columns):
                kept[other] = False
            elif kept[other] and _covers(other, k, columns):
                kept[k] = False
                break
    return kept


@compiled
def _covers(link, other, columns):  # type: ignore[no-untyped-def]
    first, option, count, sender, reader = columns
    i = first[link]
    for k in range(first[other], first[other + 1]):
        while i < first[link + 1] and option[i] < option[k]:
            i += 1
        if i == first[link + 1] or option[i] != option[k] or count[i] < count[k]:
            return False
        if sender[i] not in (sender[k], SEVERAL) or reader[i] not in (reader[k], SEVERAL):
            return False
    return True


@compiled
def sum_options(at, option, count, weight, sums):  # type: ignore[no-untyped-def]
    """Add count[i] times weight[option[i]] float64[options, columns] to sums[at[i]]."""
    for i in range(len(at)):
        for column in range(weight.shape[1]):
            sums[at[i], column] += count[i] * weight[option[i], column]


@compiled
def are_shared(link, option, sender, reader, chosen, shared):  # type: ignore[no-untyped-def]
    """Write to shared bool[links] whether messages of chosen[option] that several tiles send to several go along a
    link; entries by ascending link, as of `fullest_links`."""
    senders = readers = NONE
    for i in range(len(link)):
        if i == 0 or link[i] != link[i - 1]:
            senders = readers = NONE
        if chosen[option[i]]:
            senders, readers = _one_or_several(senders, sender[i]), _one_or_several(readers, reader[i])
            shared[link[i]] = senders == SEVERAL and readers == SEVERAL


@compiled
def slowest_routes(place, ends, lines, option, hops, places, ports, several, takes, reserve, hop):  # type: ignore[no-untyped-def]
    """(what each route waits for float64[routes]; of each place and network: the longest with its hops, 0 for none, and
    the first route that takes it, -1 for none, both shaped [places, networks]).

    By route: place, ends (ports out and in), lines (row, column), the option that is reserved, hops of `hop` cycles. By
    port, which are numbered by tiles and networks: ports (out, in, in as heard) float64[tiles, networks], several
    (senders, readers); takes float64[2, lines]: the fullest link, and the fullest that is shared; without `reserve`
    nothing is held while it is waited for.
    """
    networks = ports[0].shape[1]
    out, into, heard = ports[0].reshape(-1), ports[1].reshape(-1), ports[2].reshape(-1)
    whole, most = np.empty(len(place)), np.zeros((places, networks))
    first = np.full((places, networks), NONE)
    for k in range(len(place)):
        one, other, row, column = ends[0][k], ends[1][k], lines[0][k], lines[1][k]
        longest = max(out[one], takes[0, row], takes[0, column], heard[other])
        if len(reserve) and several[1][one] and reserve[option[k]] == 0:
            held = out[one] + takes[1, row] + takes[1, column] + (into[other] if several[0][other] else 0.0)
            longest = max(longest, held)
        whole[k] = longest
        arrives, of, network = longest + hop * hops[k], place[k], one % networks
        if first[of, network] == NONE or arrives > most[of, network]:
            most[of, network], first[of, network] = arrives, k
    return whole, most, first


# ---- list scheduling of messages in a given order, each as soon as all its ends are free


@compiled
def arrivals(sender, duration, first, port, of_end_first, of_end, places):  # type: ignore[no-untyped-def]
    """int64[messages]: when each message has arrived, in the unit of `duration`.

    sender, duration int64[messages], in the order in which messages are tried. Message k occupies its sender and a
    place at each of the ends port[first[k]:first[k + 1]] (ends: senders first, then ports); end e may take
    places[e] at once and takes part in of_end[of_end_first[e]:of_end_first[e + 1]], ascending. When an end becomes
    free, the first of its messages in this order whose other ends are free too begins.
    """
    free, head = places.copy(), of_end_first[:-1].copy()
    begun = np.zeros(len(sender), np.bool_)
    arrived = np.zeros(len(sender), np.int64)
    running = [(np.int64(0), np.int64(0)) for _ in range(0)]
    for message in range(len(sender)):
        if _may_begin(message, sender, first, port, free):
            _occupy(message, sender, first, port, free, -1)
            begun[message] = True
            arrived[message] = duration[message]
            heapq.heappush(running, (arrived[message], np.int64(message)))
    touched, is_touched = np.empty(len(places), np.int64), np.zeros(len(places), np.bool_)
    while len(running) > 0:
        now, count = running[0][0], 0
        while len(running) > 0 and running[0][0] == now:
            message = heapq.heappop(running)[1]  # type: ignore[assignment]
            _occupy(message, sender, first, port, free, 1)
            for k in range(first[message] - 1, first[message + 1]):
                end = port[k] if k >= first[message] else sender[message]
                if not is_touched[end]:
                    is_touched[end] = True
                    touched[count] = end
                    count += 1
        for i in range(count):
            end = touched[i]
            is_touched[end] = False
            while head[end] < of_end_first[end + 1] and begun[of_end[head[end]]]:
                head[end] += 1
            for k in range(head[end], of_end_first[end + 1]):
                if free[end] == 0:
                    break
                message = of_end[k]
                if not begun[message] and _may_begin(message, sender, first, port, free):
                    _occupy(message, sender, first, port, free, -1)
                    begun[message] = True
                    arrived[message] = now + duration[message]
                    heapq.heappush(running, (arrived[message], np.int64(message)))
    return arrived


@compiled
def _may_begin(message, sender, first, port, free):  # type: ignore[no-untyped-def]
    if free[sender[message]] == 0:
        return False
    at = first[message]
    while at < first[message + 1] and free[port[at]] > 0:
        at += 1
    return at == first[message + 1]


@compiled
def _occupy(message, sender, first, port, free, by):  # type: ignore[no-untyped-def]
    free[sender[message]] += by
    for k in range(first[message], first[message + 1]):
        free[port[k]] += by
