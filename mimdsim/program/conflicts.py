"""Rule 5: nothing is written twice in a superstep, and nothing is read that another of its vertices writes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mimdsim.numerics.columns import boxes as numerics
from mimdsim.numerics.columns import exchange_fragments
from mimdsim.program import vertex_boxes
from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.records import Problem, Superstep, Variable, VertexTable, of_vertex, vertex_name
from mimdsim.program.repeats import entries_taken
from mimdsim.program.vertex_boxes import bounds_of, boxes_of, describe_box, equal_rows, order_of

TWICE, MEANWHILE = "nothing is written twice", "nothing is read while written"


@dataclass(frozen=True, kw_only=True, eq=False)
class Touch:
    """The part of a variable that the vertices of a table touch through a field."""

    table: VertexTable
    field: Field
    variable: Variable

    @property
    def boxes(self) -> np.ndarray:
        """As given by `boxes_of`; not kept, as most are of variables that nothing writes meanwhile."""
        return boxes_of(self.table, self.field, self.variable)

    @property
    def shift(self) -> int | None:
        """The shift of the timestep; None: the first axis is not a timestep axis."""
        return now_shift(self.field.box[0])

    def with_timesteps(self, timesteps: range) -> np.ndarray:
        """The boxes, with the entries taken in these timesteps as their first axis."""
        if self.shift is None:
            return self.boxes
        least, most = entries_taken(self.variable, self.shift, timesteps)
        first = np.broadcast_to(np.array([max(least, 0), most + 1]), (self.table.vertices, 1, 2))
        return np.concatenate([first, self.boxes], axis=1)


def check_conflicts(superstep: Superstep, touches: list[Touch], timesteps: range, *, local: bool) -> list[Problem]:
    """For every variable written: the first element written twice and, for each table, the first one read meanwhile.
    local: whether all that is written lies on its vertex's own tile."""
    by_variable: dict[str, list[Touch]] = {}
    for touch in touches:
        if touch.table.vertices:
            by_variable.setdefault(touch.variable.name, []).append(touch)
    problems = []
    for name, group in by_variable.items():
        writers = _by_shift([touch for touch in group if touch.field.writes])
        pair = _written_twice(writers, timesteps, local)
        if pair is not None:
            (other, other_row), (touch, row) = pair
            text = f"writes {describe_box(name, touch.boxes[row])}, which {vertex_name(other.table, other_row)} writes"
            problems.append(of_vertex(TWICE, superstep, touch.table, row, f"{text} too"))
        for reader in (touch for touch in group if not touch.field.writes):
            pair = next(filter(None, (_shared(part, [reader], timesteps, skip=True) for part in writers)), None)
            if pair is not None:
                (other, other_row), (_, row) = pair
                text = f"reads {describe_box(name, reader.boxes[row])} while {vertex_name(other.table, other_row)}"
                problems.append(of_vertex(MEANWHILE, superstep, reader.table, row, f"{text} writes it"))
    return problems


Pair = tuple[tuple[Touch, int], tuple[Touch, int]]  # two vertices' boxes that share an element


def _by_shift(touches: list[Touch]) -> list[list[Touch]]:
    """Grouped by the timestep that they take; those that take none form a group too."""
    found: dict[int | None, list[Touch]] = {}
    for touch in touches:
        found.setdefault(touch.shift, []).append(touch)
    return list(found.values())


def _written_twice(writers: list[list[Touch]], timesteps: range, local: bool) -> Pair | None:
    for place, part in enumerate(writers):
        pair = None if local and _once_on_tiles(part) else _twice(part)
        for other in writers[:place]:
            pair = pair or _shared(other, part, timesteps, skip=False)
        if pair is not None:
            return pair
    return None


def _once_on_tiles(touches: list[Touch]) -> bool:
    """Whether it is certain that no two of these boxes, each of which lies on one tile, share an element: tiles after
    tiles, as the boxes of many vertices at once would take several times the memory of the program."""
    if sum(touch.table.vertices for touch in touches) <= vertex_boxes.ROWS_AT_ONCE:
        return False
    return all(
        _twice([replace(touch, table=part) for touch, (part, _) in zip(touches, parts, strict=True)]) is None
        for parts in vertex_boxes.by_tiles([touch.table for touch in touches])
    )


def _twice(touches: list[Touch]) -> Pair | None:
    """Two of these boxes, all with the same axes, that share an element."""
    each = [bounds_of(touch.boxes) for touch in touches]
    bounds = each[0] if len(each) == 1 else np.concatenate(each, axis=2)
    rows = bounds.shape[2]
    if exchange_fragments.are_apart(bounds):  # then boxes meet only if they are equal
        which, one_of_each = equal_rows(np.ascontiguousarray(bounds[:, 0]))
        if len(one_of_each) == rows:
            return None
        first = np.unique(which, return_index=True)[1]
        two = int((first[which] != np.arange(rows)).argmax())
        return _located(touches, int(first[which[two]])), _located(touches, two)
    pair = _first_meeting(bounds, np.arange(rows), bounds, np.arange(rows))
    return None if pair is None else (_located(touches, min(pair)), _located(touches, max(pair)))


def _shared(left: list[Touch], right: list[Touch], timesteps: range, *, skip: bool) -> Pair | None:
    """A box of `left` and one of `right` that share an element; `skip`: ignoring pairs of the same vertex."""
    shifts = left[0].shift, right[0].shift
    if shifts[0] != shifts[1] and None not in shifts:
        return None  # in every timestep these are two different entries
    sides = []
    for touches in (left, right):
        alike = shifts[0] == shifts[1]
        boxes = [touch.boxes if alike else touch.with_timesteps(timesteps) for touch in touches]
        sides.append(bounds_of(np.concatenate(boxes)))
    vertices = _numbered(left + right) if skip else np.arange(sides[0].shape[2] + sides[1].shape[2])
    whose = np.split(vertices, [sides[0].shape[2]])
    pair = _first_meeting(sides[0], whose[0], sides[1], whose[1])
    return None if pair is None else (_located(left, pair[0]), _located(right, pair[1]))


def _numbered(touches: list[Touch]) -> np.ndarray:
    """A number for every row of these, the same for the rows of one vertex."""
    first: dict[int, int] = {}
    count, numbers = 0, []
    for touch in touches:
        if id(touch.table) not in first:
            first[id(touch.table)] = count
            count += touch.table.vertices
        numbers.append(first[id(touch.table)] + np.arange(touch.table.vertices))
    return np.concatenate(numbers)


def _located(touches: list[Touch], row: int) -> tuple[Touch, int]:
    for touch in touches:
        if row < touch.table.vertices:
            return touch, row
        row -= touch.table.vertices
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
