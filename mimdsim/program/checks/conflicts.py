"""Rule 5: nothing is written twice in a superstep, and nothing is read that another vertex or a copy of it writes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mimdsim.numerics.columns import boxes as numerics
from mimdsim.numerics.columns import exchange_fragments
from mimdsim.program import vertex_boxes
from mimdsim.program.checks.scope import MEANWHILE, TWICE, Access, Scope, entries_taken
from mimdsim.program.records import Copy, Problem, vertex_name
from mimdsim.program.vertex_boxes import bounds_of, describe_box, equal_rows, order_of


def check_copies_apart(scope: Scope) -> Iterator[Problem]:
    """Pairs of copies in a superstep where the second writes what the first reads or writes, as both happen at once."""
    copies = scope.superstep.copies
    for place, copy in enumerate(copies):
        for other in copies[:place] + copies[place + 1 :]:
            if is_written_by(other, copy.source, copy.source_shift):
                text = f"copies '{copy.source}' to '{copy.target}' while '{other.source}' is copied there"
                yield scope.problem(MEANWHILE, f"{text}; copy it in the next superstep")
        for other in copies[:place]:
            if is_written_by(other, copy.target, copy.target_shift):
                text = f"copies both '{other.source}' and '{copy.source}' to '{copy.target}'"
                yield scope.problem(TWICE, f"{text}; move one of them to another superstep")


def is_written_by(copy: Copy, variable: str, shift: int | None) -> bool:
    """Whether a copy writes the entry of a variable that "@t" and a shift take (None: all of it)."""
    return copy.target == variable and (shift == copy.target_shift or None in (shift, copy.target_shift))


def check_conflicts(scope: Scope) -> Iterator[Problem]:
    """For every variable written: the first element written twice and, for each field, the first one read meanwhile.

    Expects writes on their vertex's own tile.
    """
    timesteps = scope.stretch.timesteps
    by_variable: dict[str, list[Access]] = {}
    for access in scope.accesses:
        if access.table.vertices:
            by_variable.setdefault(access.variable.name, []).append(access)
    for name, group in by_variable.items():
        writers = _group_by_shift([access for access in group if access.field.writes])
        pair = _first_double_write(writers, timesteps)
        if pair is not None:
            (other, other_row), (access, row) = pair
            text = f"writes {describe_box(name, access.boxes[row])}, which {vertex_name(other.table, other_row)} writes"
            yield scope.problem(TWICE, f"{text} too", access.table, row)
        for reader in (access for access in group if not access.field.writes):
            pair = next(
                filter(None, (_overlap_between(part, [reader], timesteps, skip=True) for part in writers)), None
            )
            if pair is not None:
                (other, other_row), (_, row) = pair
                text = f"reads {describe_box(name, reader.boxes[row])} while {vertex_name(other.table, other_row)}"
                yield scope.problem(MEANWHILE, f"{text} writes it", reader.table, row)


Pair = tuple[tuple[Access, int], tuple[Access, int]]  # two vertices' boxes that share an element


def _group_by_shift(accesses: list[Access]) -> list[list[Access]]:
    """Grouped by the timestep that they take; those that take none form a group too."""
    found: dict[int | None, list[Access]] = {}
    for access in accesses:
        found.setdefault(access.shift, []).append(access)
    return list(found.values())


def _first_double_write(writers: list[list[Access]], timesteps: range) -> Pair | None:
    for place, part in enumerate(writers):
        pair = None if _is_surely_apart(part) else _overlap_within(part)
        for other in writers[:place]:
            pair = pair or _overlap_between(other, part, timesteps, skip=False)
        if pair is not None:
            return pair
    return None


def _is_surely_apart(accesses: list[Access]) -> bool:
    """Whether it is certain that no two of these boxes, each of which lies on one tile, share an element: tiles after
    tiles, as the boxes of many vertices at once would take several times the memory of the program."""
    if sum(access.table.vertices for access in accesses) <= vertex_boxes.ROWS_AT_ONCE:
        return False
    return all(
        _overlap_within([access.on(part) for access, (part, _) in zip(accesses, parts, strict=True)]) is None
        for parts in vertex_boxes.by_tiles([access.table for access in accesses])
    )


def _overlap_within(accesses: list[Access]) -> Pair | None:
    """Two of these boxes, all with the same axes, that share an element."""
    each = [bounds_of(access.boxes) for access in accesses]
    bounds = each[0] if len(each) == 1 else np.concatenate(each, axis=2)
    rows = bounds.shape[2]
    if exchange_fragments.are_apart(bounds):  # then boxes meet only if they are equal
        which, one_of_each = equal_rows(np.ascontiguousarray(bounds[:, 0]))
        if len(one_of_each) == rows:
            return None
        first = np.unique(which, return_index=True)[1]
        two = int((first[which] != np.arange(rows)).argmax())
        return _locate(accesses, int(first[which[two]])), _locate(accesses, two)
    pair = _first_meeting(bounds, np.arange(rows), bounds, np.arange(rows))
    return None if pair is None else (_locate(accesses, min(pair)), _locate(accesses, max(pair)))


def _overlap_between(left: list[Access], right: list[Access], timesteps: range, *, skip: bool) -> Pair | None:
    """A box of `left` and one of `right` that share an element; `skip`: ignoring pairs of the same vertex."""
    shifts = left[0].shift, right[0].shift
    if shifts[0] != shifts[1] and None not in shifts:
        return None  # in every timestep these are two different entries
    sides = []
    for accesses in (left, right):
        alike = shifts[0] == shifts[1]
        boxes = [access.boxes if alike else _boxes_with_timesteps(access, timesteps) for access in accesses]
        sides.append(bounds_of(np.concatenate(boxes)))
    vertices = _number_vertices(left + right) if skip else np.arange(sides[0].shape[2] + sides[1].shape[2])
    whose = np.split(vertices, [sides[0].shape[2]])
    pair = _first_meeting(sides[0], whose[0], sides[1], whose[1])
    return None if pair is None else (_locate(left, pair[0]), _locate(right, pair[1]))


def _boxes_with_timesteps(access: Access, timesteps: range) -> np.ndarray:
    """The boxes, with the entries taken in these timesteps as their first axis."""
    if access.shift is None:
        return access.boxes
    least, most = entries_taken(access.variable, access.shift, timesteps)
    first = np.broadcast_to(np.array([max(least, 0), most + 1]), (access.table.vertices, 1, 2))
    return np.concatenate([first, access.boxes], axis=1)


def _number_vertices(accesses: list[Access]) -> np.ndarray:
    """A number for every row of these, the same for the rows of one vertex."""
    first: dict[int, int] = {}
    count, numbers = 0, []
    for access in accesses:
        if id(access.table) not in first:
            first[id(access.table)] = count
            count += access.table.vertices
        numbers.append(first[id(access.table)] + np.arange(access.table.vertices))
    return np.concatenate(numbers)


def _locate(accesses: list[Access], row: int) -> tuple[Access, int]:
    for access in accesses:
        if row < access.table.vertices:
            return access, row
        row -= access.table.vertices
    raise IndexError(row)


def _first_meeting(
    left: np.ndarray, whose: np.ndarray, right: np.ndarray, whose_right: np.ndarray
) -> tuple[int, int] | None:
    """Rows of two boxes of different vertices that share an element, the first such row of `right`."""
    lengths, spans = (left[:, 1] - left[:, 0]).max(axis=1), left[:, 1].max(axis=1) - left[:, 0].min(axis=1)
    shortest = np.argsort(
        lengths / np.maximum(spans, 1), kind="stable"
    )  # along axes where boxes are short, few overlap
    along, beside = int(shortest[0]), int(shortest[min(1, len(shortest) - 1)])
    order = order_of(np.ascontiguousarray(left[[along, beside], 0]), [0, 1])
    one, two = numerics.first_meeting(left, whose, right, whose_right, order, along, beside)
    return None if one < 0 else (int(one), int(two))
