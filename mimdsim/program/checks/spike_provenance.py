"""Which layer's recorded spikes a vertex reads, and from which timestep: followed through copies and moves to the
recorded sequences.

A variable holds the entry of a recorded sequence that it was taken from, or that it goes into later in the timestep.
A value is moved if it arrives unchanged, element by element: by a copy, or by vertices that write the whole numbers of
the same box that they read. A value that a vertex makes from whole numbers may hold their lists (a row of bytes made
from ids, two lists in one); one made from floats holds none. If nothing is known, nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from mimdsim.base.errors import near
from mimdsim.program.codelet import Field
from mimdsim.program.loops import Recorded
from mimdsim.program.program import Body, Program, Repeat, stretches
from mimdsim.program.records import Superstep, VertexTable

Entry = tuple[str, int]  # a layer, and the timestep relative to the current one
# what a variable holds: ("at", layer, shift), ("made", number, ""), or ("before", repeat, variable): since the
# previous turn; None: unknown
Content = tuple[str, int | str, int | str] | None
NOTHING: frozenset[Entry] = frozenset()


@lru_cache(maxsize=1)
def provenance_of(program: Program) -> Provenance:
    """Computed once per program."""
    return Provenance(program)


class Provenance:
    """Where the data that every table of a program reads comes from, and what becomes of the data it writes."""

    def __init__(self, program: Program):
        self._program = program
        self._layer_of = {name: layer for layer, names in program.recorded.items() for name in names}
        self._passing = {name: layer for layer, names in program.observables.passing.items() for name in names}
        self._reads: dict[VertexTable, dict[str, Content]] = {}  # whole numbers
        self._writes: dict[VertexTable, list[Content]] = {}
        self._made_of: dict[Content, set[Content]] = {}  # whole numbers
        self._goes_into: dict[Content, set[Content]] = {}
        self._entries: dict[Content, set[Entry]] = {}  # of the recorded sequences that a content is stored in
        self._ends: list[dict[str, Content]] = []  # by repeat: what variables hold at the end of a turn
        self._repeats: list[Repeat] = []
        self._follow_body(program.body, {})

    def contradiction(self, table: VertexTable, extent: Recorded) -> str:
        """Whatever contradicts that a table counts spikes as `extent` says, or ''."""
        recorded = self._program.recorded | self._program.observables.passing
        if not recorded:
            return ""
        if extent.layer not in recorded:
            known = f"which the program does not record; it records {', '.join(recorded)}"
            return f"'{extent.layer}', {known}{near(extent.layer, recorded)}"
        wanted = (extent.layer, extent.shift)
        reads = {name: self._lists_in(content) for name, content in self._reads.get(table, {}).items()}
        found = {name: entries for name, entries in reads.items() if entries}
        if None in reads.values() or any(wanted in entries for entries in found.values()):
            return ""
        writes = self._writes.get(table, [])
        becomes = NOTHING.union(*(self._becomes(content) for content in writes))
        lists = NOTHING.union(*(self._entries.get(content, NOTHING) for content in writes))
        read_as_it_was = any(self._is_list(content) for content in self._reads.get(table, {}).values())
        if wanted in lists or (wanted in becomes and not read_as_it_was):  # a selection counts what it lists
            return ""
        if found:
            name, entries = next(iter(found.items()))
            return (
                f"{_describe_entries([wanted])}, but reads '{name}', which holds those of {_describe_entries(entries)}"
            )
        return (
            f"{_describe_entries([wanted])}, but what it writes becomes the list of {_describe_entries(becomes)}"
            if becomes
            else ""
        )

    # ---- the walk

    def _follow_body(self, body: Body, held: dict[str, Content]) -> None:
        for item in body:
            if isinstance(item, Repeat):
                number = len(self._repeats)
                within: dict[str, Content] = {
                    name: ("before", number, name)
                    for stretch in stretches(item.body)
                    for superstep in stretch.body
                    for name in superstep.variables_written
                }
                self._repeats.append(item)
                self._ends.append(within)
                self._follow_body(item.body, within)
                held.clear()  # entries are relative to the timestep of the repeat
            else:
                self._follow_superstep(item, held)

    def _follow_superstep(self, superstep: Superstep, held: dict[str, Content]) -> None:
        arrived = [
            (copy.target, copy.target_shift, self._read(copy.source, copy.source_shift, held))
            for copy in superstep.copies
        ]
        for target, shift, content in arrived:
            self._write(target, shift, content, held)
        written: dict[tuple[str, int | None], list[tuple[VertexTable, Content]]] = {}
        reads: dict[VertexTable, dict[str, Content]] = {}
        for table in superstep.tables:
            fields = table.codelet.fields
            given = {
                each.name: self._read(table.operands[each.name], each.shift, held) for each in fields if each.reads
            }
            reads[table] = {table.operands[name]: content for name, content in given.items()}
            self._reads[table] = {name: each for name, each in reads[table].items() if self._is_whole_numbers(name)}
            for item in fields:
                if item.writes:
                    moved = {given[other.name] for other in fields if self._moves(table, other, item)}
                    place = table.operands[item.name], item.shift
                    written.setdefault(place, []).append((table, moved.pop() if len(moved) == 1 else None))
        for (name, shift), parts in written.items():
            contents = {content for _, content in parts}
            content = contents.pop() if len(contents) == 1 else None
            if content is None:
                content = ("made", len(self._made_of), "")
                self._made_of[content] = {each for table, _ in parts for each in self._reads[table].values()}
                for source in {each for table, _ in parts for each in reads[table].values()}:
                    self._goes_into.setdefault(source, set()).add(content)
            for table, _ in parts:
                self._writes.setdefault(table, []).append(content)
            self._write(name, shift, content, held)

    def _moves(self, table: VertexTable, source: Field, target: Field) -> bool:
        """Whether a vertex that reads and writes like this passes on whole numbers unchanged."""
        one, other = (self._program.variables.get(table.operands[item.name]) for item in (source, target))
        if one is None or other is None or one.dtype != other.dtype or not self._is_whole_numbers(one.name):
            return False
        return source.access == "read" and target.access == "write" and source.space == target.space

    def _read(self, name: str, shift: int | None, held: dict[str, Content]) -> Content:
        if shift is None:
            return held.get(name)
        return ("at", self._layer_of[name], shift) if self._counts_timesteps(name) else None

    def _write(self, name: str, shift: int | None, content: Content, held: dict[str, Content]) -> None:
        if shift is None:
            held[name] = content
            if content is not None and name in self._passing:
                self._entries.setdefault(content, set()).add((self._passing[name], 0))
        elif content is not None and self._counts_timesteps(name):
            self._entries.setdefault(content, set()).add((self._layer_of[name], shift))

    def _is_whole_numbers(self, name: str) -> bool:
        variable = self._program.variables.get(name)
        return variable is not None and np.dtype(variable.dtype).kind in "iub"

    def _counts_timesteps(self, name: str) -> bool:
        variable = self._program.variables.get(name)
        return name in self._layer_of and variable is not None and variable.entries == "timesteps"

    # ---- what it shows

    def _lists_in(self, content: Content, seen: tuple[Content, ...] = ()) -> frozenset[Entry] | None:
        """The recorded entries that a content may hold; None: any."""
        if content is None:
            return None
        if content in seen:
            return NOTHING
        found = NOTHING.union(self._entries.get(content, ()))
        kind, first, second = content
        if kind == "at":
            return found | {(str(first), int(second))}
        if kind == "before":
            repeat = self._repeats[int(first)]
            end = self._lists_in(self._ends[int(first)].get(str(second)), (*seen, content))
            if end is None or repeat.segment > 1:
                return None
            later = 1 if repeat.reverse else -1  # what was at t lies one timestep back in the next turn
            return found | {(layer, shift + later) for layer, shift in end}
        if found:
            return found
        for source in self._made_of[content]:
            more = self._lists_in(source, (*seen, content))
            if more is None:
                return None
            found |= more
        return found

    def _is_list(self, content: Content) -> bool:
        """Whether a content is a recorded entry itself, now or some turns ago."""
        seen: set[Content] = set()
        while content is not None and content[0] == "before" and content not in seen | self._entries.keys():
            seen.add(content)
            content = self._ends[int(content[1])].get(str(content[2]))
        return content is not None and (content[0] == "at" or content in self._entries)

    def _becomes(self, content: Content) -> frozenset[Entry]:
        """The recorded entries that a content goes into first, within the timestep."""
        found: set[Entry] = set()
        open_, seen = [content], {content}
        while open_:
            now = open_.pop()
            entries = self._entries.get(now, set())
            found |= entries
            later = self._goes_into.get(now, set()) - seen if not entries else set()
            seen |= later
            open_ += later
        return frozenset(found)


def _describe_entries(entries: Iterable[Entry]) -> str:
    """`'hidden0' at t-1`"""
    return " and ".join(f"'{layer}' at t{shift:+d}" if shift else f"'{layer}' at t" for layer, shift in sorted(entries))
