"""List scheduling of messages in a given order, each as soon as all its ends are free."""

from __future__ import annotations

import heapq

import numpy as np

from mimdsim.numerics.compiled import compiled


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
