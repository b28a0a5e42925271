"""Work that depends on spikes, added up per cell; a cell is one worker context of one class of tiles.

Work that counts spikes of whole samples is added in one row of timesteps per cell; work that counts single ids is
added to all cells, one timestep after another, so that they stay in cache.
"""

from __future__ import annotations

import numpy as np

from mimdsim.numerics.compiled import compiled

# ---- grouping of entries: places within a group, the order by group, stretches equal bit for bit


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


@compiled
def add_by_count(load, cell, weight, sample, counts):  # type: ignore[no-untyped-def]
    """load[cell, t] += weight * counts[sample, t], per vertex."""
    for i in range(len(cell)):
        into, each, factor = load[cell[i]], counts[sample[i]], weight[i]
        for t in range(load.shape[1]):
            into[t] += factor * each[t]


@compiled
def add_by_count_over(load, cell, weight, first, last, running):  # type: ignore[no-untyped-def]
    """load[cell, t] += weight * (counts of samples first..last-1), from running sums [batch + 1, timesteps]."""
    for i in range(len(cell)):
        into, low, high, factor = load[cell[i]], running[first[i]], running[last[i]], weight[i]
        for t in range(load.shape[1]):
            into[t] += factor * (high[t] - low[t])


@compiled
def fill_owners(owner, first, last, start, stop):  # type: ignore[no-untyped-def]
    """owner[sample, neuron] = vertex for samples first..last - 1 and neurons start..stop - 1 of every vertex."""
    for vertex in range(len(start)):
        for sample in range(first[vertex], last[vertex]):
            owner[sample, start[vertex] : stop[vertex]] = vertex


@compiled
def of_owners(owner, members, place, row):  # type: ignore[no-untyped-def]
    """(place, row) int32 of the vertex members[owner] of every neuron, place -1 where there is no owner."""
    places, rows = np.empty(owner.size, np.int32), np.zeros(owner.size, np.int32)
    flat = owner.reshape(-1)
    for i in range(len(flat)):
        if flat[i] < 0:
            places[i] = -1
        else:
            places[i], rows[i] = place[members[flat[i]]], row[members[flat[i]]]
    return places, rows


@compiled
def cells_on(place, row, rows, contexts):  # type: ignore[no-untyped-def]
    """int32: context * rows + row, where context `place % contexts` runs the vertex; -1 where the place is -1."""
    first = np.empty(1 + max(0, place.max()), np.int32)  # cell of the context of each place: dividing is slow
    for k in range(len(first)):
        first[k] = k % contexts * rows
    cells = np.empty(len(place), np.int32)
    for i in range(len(place)):
        cells[i] = first[place[i]] + row[i] if place[i] >= 0 else -1
    return cells


AT_ONCE = 4  # timesteps that are counted together, if their cells fit in a second-level cache: so many
CACHED_CELLS = 1 << 16
HITS, WITHIN, SHARED_HITS = 0, 1, 2
# entries of a row of `terms` in `add_by_id`
KIND, LISTS, BATCH, SHIFT, FROM, TO, CELLS, WEIGHTS, SEVERAL, SAMPLES, EXTENT, BEGINS = range(12)


@compiled
def add_hits(loads, cells, weights, shape, source):  # type: ignore[no-untyped-def]
    """loads[turn, cell] += weight for every listed id that has a cell, cells[sample * extent + id], not -1; weights as
    cells, or one. Returns how many.

    shape: samples, extent. source: lists and their contents, as of `timing.recording`; the list of the first sample in
    the first turn, how many further the next turn's is, and the columns that say where what counts begins and ends.
    """
    samples, extent = shape
    lists, flat, first_list, batch, begin, end = source
    added, only = 0, weights[0]
    for b in range(samples):
        own = cells[b * extent : (b + 1) * extent]
        for turn in range(len(loads)):  # all of them while the cells of a sample are at hand
            known = first_list + turn * batch + b
            for k in range(lists[known, begin], lists[known, end]):
                id = flat[k]
                if id >= extent or own[id] < 0:
                    continue
                loads[turn, own[id]] += weights[b * extent + id] if len(weights) > 1 else only
                added += 1
    return added


@compiled
def add_shared_hits(loads, groups, cells, weights, shape, source):  # type: ignore[no-untyped-def]
    """The same for all cells of a group: groups[sample * extent + id] is that of an id, -1 for none; behind all of
    these, the first cell of each group."""
    samples, extent = shape
    lists, flat, first_list, batch, begin, end = source
    first_cells = groups[samples * extent :]
    for b in range(samples):
        own = groups[b * extent : (b + 1) * extent]
        for turn in range(len(loads)):
            known = first_list + turn * batch + b
            for k in range(lists[known, begin], lists[known, end]):
                if flat[k] < extent and own[flat[k]] >= 0:
                    group = own[flat[k]]
                    for cell in range(first_cells[group], first_cells[group + 1]):
                        loads[turn, cells[cell]] += weights[cell if len(weights) > 1 else 0]


@compiled
def add_within(loads, ends, cells, weights, shape, source):  # type: ignore[no-untyped-def]
    """The same for the cells of a sample's slots below the listed count: cells[ends[0]:ends[count]], of its own
    ends[sample * (extent + 1):]."""
    samples, extent = shape
    lists, _, first_list, batch, begin, end = source
    only = weights[0]
    for b in range(samples):
        own_ends = ends[b * (extent + 1) : (b + 1) * (extent + 1)]
        for turn in range(len(loads)):
            known = first_list + turn * batch + b
            low, high = own_ends[0], own_ends[min(extent, lists[known, end] - lists[known, begin])]
            load, own = loads[turn], cells[low:high]
            if len(weights) == 1:
                for cell in own:
                    load[cell] += only
            else:
                for k in range(len(own)):
                    load[own[k]] += weights[low + k]


@compiled
def add_by_id(loads, first, by_id, timesteps, found):  # type: ignore[no-untyped-def]
    """loads[t - first, cell] += weight for everything the terms find listed at timestep t; found[term] += hits.

    by_id: terms, cells, weights, begins; the lists and their contents, as of `timing.recording`. Of a term, cells begin
    at CELLS, weights (SEVERAL, or one) at WEIGHTS, and, for all but hits, groups or ends of slots at BEGINS.
    """
    terms, cells, weights, begins, lists, flat = by_id
    for number in range(len(terms)):
        term = terms[number]
        low = max(0, -(first + term[SHIFT]))
        some = loads[low : max(low, timesteps - first - term[SHIFT])]
        first_list = term[LISTS] + (first + low + term[SHIFT]) * term[BATCH]
        columns = (0, 2) if term[KIND] == WITHIN else (term[FROM], term[TO])
        source = lists, flat, first_list, term[BATCH], columns[0], columns[1]
        shape = term[SAMPLES], term[EXTENT]
        own, of_term = cells[term[CELLS] :], weights[term[WEIGHTS] :]
        each = of_term if term[SEVERAL] else of_term[:1]
        if term[KIND] == HITS:
            found[number] += add_hits(some, own, each, shape, source)
        elif term[KIND] == WITHIN:
            add_within(some, begins[term[BEGINS] :], own, each, shape, source)
        else:
            add_shared_hits(some, begins[term[BEGINS] :], own, each, shape, source)


@compiled
def barrel(cycles, load, rows, contexts, issue_cycles, whole):  # type: ignore[no-untyped-def]
    """cycles[row] = max(issue_cycles * longest context, all contexts together); load [contexts, rows], flat."""
    for r in range(rows):
        cycles[r] = load[r]
        whole[r] = load[r]
    for context in range(1, contexts):
        one = load[context * rows : (context + 1) * rows]
        for r in range(rows):
            more = one[r]
            cycles[r] = more if more > cycles[r] else cycles[r]
            whole[r] += more
    for r in range(rows):
        longest = issue_cycles * cycles[r]
        cycles[r] = longest if longest > whole[r] else whole[r]


@compiled
def fill_kinds(load, each, runs, contexts):  # type: ignore[no-untyped-def]
    """load [contexts, rows], flat: each[context * kinds + kind] of the kind of every row."""
    kinds, rows = len(runs) - 1, runs[-1]
    for context in range(contexts):
        for kind in range(kinds):
            load[context * rows + runs[kind] : context * rows + runs[kind + 1]] = each[context * kinds + kind]


@compiled
def count_cycles(  # type: ignore[no-untyped-def]
    cycles, first, times, base, constant, runs, contexts, issue_cycles, by_id, found
):
    """cycles[t - first, row] of all rows in some of `times` turns: constant[context * kinds + kind] of their kind, plus
    base[context * kinds + kind, t] (nothing if base has no rows), plus the work of listed ids.

    Rows runs[k]..runs[k+1]-1 are of kind k. cycles has one more column, for tiles without vertices: left as it is.
    """
    rows = cycles.shape[1] - 1
    at_once = min(AT_ONCE, len(cycles), max(1, CACHED_CELLS // max(1, contexts * rows)))
    loads, whole, fixed = np.empty((at_once, contexts * rows)), np.zeros(rows), np.empty(contexts * rows)
    if not len(base):
        fill_kinds(fixed, constant, runs, contexts)
    for begin in range(0, len(cycles), at_once):
        some = loads[: len(cycles) - begin]
        for turn in range(len(some)):
            if len(base):
                fill_kinds(some[turn], constant + base[:, first + begin + turn], runs, contexts)
            else:
                some[turn] = fixed
        add_by_id(some, first + begin, by_id, times, found)
        for turn in range(len(some)):
            barrel(cycles[begin + turn], some[turn], rows, contexts, issue_cycles, whole)


@compiled
def advance(since_sync, longest, cycles, busy):  # type: ignore[no-untyped-def]
    """since_sync[t, class] and busy[class] += cycles[t or 0, class]; longest[t] becomes the most that any class has now
    reached."""
    alike = cycles.shape[0] == 1
    for t in range(since_sync.shape[0]):
        reached, each = since_sync[t], cycles[0 if alike else t]
        most = longest[t]
        for i in range(len(busy)):
            more = each[i]
            busy[i] += more
            now = reached[i] + more
            reached[i] = now
            most = now if now > most else most
        longest[t] = most


@compiled
def total_by_hit(weight, owner, shift, timesteps, first_list, batch, which, lists, flat):  # type: ignore[no-untyped-def]
    """Sum over timesteps of the weights of the vertices that own listed ids; which: columns of `lists`."""
    total = 0.0
    for t in range(max(0, shift), min(timesteps, timesteps + shift)):
        for b in range(min(batch, owner.shape[0])):
            known = lists[first_list + t * batch + b]
            for k in range(known[which[0]], known[which[1]]):
                if flat[k] < owner.shape[1] and owner[b, flat[k]] >= 0:
                    total += weight[owner[b, flat[k]]]
    return total
