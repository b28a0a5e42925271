"""A program run element by element on tiles that have memories of their own: slow, for programs of a few tiles.

Every tile holds what its mappings give it, and garbage elsewhere. An exchange delivers copies of what the owners hold
to the tiles named, for one superstep. A vertex gets its boxes from its own tile and from what was delivered, garbage
where neither has it; a slice or update takes the entry that its operand says; what a vertex writes reaches the memory
of its own tile only. What is not kept between runs (no input, not persistent, not loaded) is garbage at the start of
every run. Vertices run in program order, or in the reverse.

Written apart from the checker: nothing here is taken from its rules or its strict execution.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.program import Copy, Program, Superstep, Variable, VertexTable
from mimdsim.program.mapping import BANDED, FLAT, PER_TIMESTEP, REPLICATED
from mutations.counters import OFFSET, takes_entry

Place = tuple[slice, ...]


class Wrong(Exception):
    """What no machine does: a box or a tile that is not there, a write that was not declared."""


class Outside(Wrong, IndexError):
    """An index beyond a view; walks over the view end with it."""


class Tiles:
    """The memories of all tiles; `reverse`: vertices of a superstep run from the last to the first."""

    def __init__(self, program: Program, draw: np.random.Generator, reverse: bool = False):
        self.program, self.draw, self.reverse = program, draw, reverse
        self.held = {name: _held(variable, program.tiles) for name, variable in program.variables.items()}
        self.memory: dict[str, np.ndarray] = {}
        self.junk: dict[str, np.ndarray] = {}
        self.arriving: dict[int, dict[tuple[str, int], np.ndarray]] = {}
        self.touched: dict[tuple[int, int], list[tuple[Place, bool]]] = {}
        for name, variable in program.variables.items():
            self.junk[name] = _garbage(draw, variable.shape, variable.dtype)
            self.memory[name] = _garbage(draw, (program.tiles, *variable.shape), variable.dtype)
            if variable.values is not None:
                self._spread(name, np.asarray(variable.values))

    def write(self, values: dict[str, np.ndarray]) -> None:
        """What the host writes, by input name."""
        for name, value in values.items():
            if name not in self.program.inputs:
                raise Wrong(f"no input '{name}'")
            self._spread(self.program.inputs[name], np.asarray(value))

    def read(self, name: str) -> np.ndarray:
        """An output as the host sees it: every element from the first tile that holds it."""
        if name not in self.program.outputs:
            raise Wrong(f"no output '{name}'")
        return self.whole(self.program.outputs[name])

    def whole(self, variable: str) -> np.ndarray:
        """A variable put together from its owners; garbage where there is none."""
        if variable not in self.program.variables:
            raise Wrong(f"no variable '{variable}'")
        owner = self.held[variable].argmax(axis=0)
        found: np.ndarray = np.take_along_axis(self.memory[variable], owner[None], axis=0)[0]
        return np.where(self.held[variable].any(axis=0), found, self.junk[variable])

    def forget(self) -> None:
        """Between two runs memory is used for something else."""
        for name, variable in self.program.variables.items():
            if not variable.persistent and variable.values is None:
                self.memory[name][...] = _garbage(self.draw, self.memory[name].shape, variable.dtype)

    def run(self) -> None:
        """All supersteps once, as the program's repeats say."""
        for superstep, t in self.program.turns():
            self._run(superstep, t)

    def _spread(self, name: str, value: np.ndarray) -> None:
        variable = self.program.variables.get(name)
        if variable is None or value.shape != variable.shape:
            raise Wrong(f"'{name}' does not take a value of shape {value.shape}")
        self.memory[name] = np.where(
            self.held[name], _stored(variable, value.astype(variable.dtype)), self.memory[name]
        )

    def _run(self, superstep: Superstep, t: int) -> None:
        if id(superstep) not in self.arriving:
            self.arriving[id(superstep)] = self._arriving(superstep)
        arriving = self.arriving[id(superstep)]
        sent = {name: self.whole(name) for name, _ in arriving}
        for target, here, value in [
            part for copy in superstep.copies for part in self._copied(copy, t, arriving, sent)
        ]:
            target[here] = value[here]
        vertices = [(table, row) for table in superstep.tables for row in range(table.vertices)]
        for table, row in reversed(vertices) if self.reverse else vertices:
            self._vertex(table, row, t, arriving, sent)

    def _arriving(self, superstep: Superstep) -> dict[tuple[str, int], np.ndarray]:
        """(variable, axes without time where a timestep is taken) -> bool[tiles, *shape] of what is delivered."""
        found: dict[tuple[str, int], np.ndarray] = {}
        for delivery in superstep.exchange.deliveries if superstep.exchange is not None else ():
            if delivery.variable not in self.program.variables:
                raise Wrong(f"delivery of no variable '{delivery.variable}'")
            shape = self.program.variables[delivery.variable].shape
            axes = delivery.boxes.shape[1]
            shape = shape[len(shape) - axes :]
            mask = found.setdefault((delivery.variable, axes), np.zeros((self.program.tiles, *shape), bool))
            for tile, box in zip(delivery.tiles.tolist(), delivery.boxes.tolist(), strict=True):
                mask[(self._tile(tile), *_place(box, shape))] = True
        return found

    def _tile(self, tile: int) -> int:
        if not 0 <= tile < self.program.tiles:
            raise Wrong(f"no tile {tile}")
        return tile

    def _seen(
        self, name: str, tile: int, entry: int | None, arriving: dict[tuple[str, int], np.ndarray], sent: dict[str, Any]
    ) -> np.ndarray:
        """What a tile sees of a variable, or of one entry of it: its own, what was delivered, garbage."""
        shape = self.program.variables[name].shape
        if entry is not None and entry < 0:
            return np.zeros(shape[1:], self.junk[name].dtype)
        at: Any = ... if entry is None else entry
        seen = np.where(self.held[name][tile][at], self.memory[name][tile][at], self.junk[name][at])
        mask = arriving.get((name, seen.ndim))
        if mask is not None:
            seen = np.where(mask[tile] & ~self.held[name][tile][at], sent[name][at], seen)
        return seen

    def _entry(self, name: str, box_entry: str | int | None, t: int, writes: bool) -> int | None:
        """The index that "@t" and a shift name; None: no timestep is taken."""
        if isinstance(box_entry, str):
            box_entry = int(box_entry[2:] or 0) if box_entry.startswith("@t") else None
        if box_entry is None:
            return None
        return self._entry_at(name, self.program.variables[name].entry(t, box_entry), writes)

    def _entry_at(self, name: str, entry: int, writes: bool) -> int:
        """The entry, which is there to be read or written; before the first of timesteps zeros are read."""
        variable = self.program.variables[name]
        if entry >= variable.shape[0] or (entry < 0 and (writes or variable.entries != "timesteps")):
            raise Wrong(f"entry {entry} of '{name}'")
        return entry

    def _offset(
        self, table: VertexTable, row: int, tile: int, arriving: dict[tuple[str, int], np.ndarray], sent: dict[str, Any]
    ) -> int | None:
        """The entry that a slice or an update takes, which its operand says whatever the timestep; None for others."""
        if not takes_entry(table):
            return None
        name, (column,) = table.operands[OFFSET], table.codelet.field(OFFSET).box
        return int(self._seen(name, tile, None, arriving, sent)[int(table.columns[column][row])])

    def _copied(
        self, copy: Copy, t: int, arriving: dict[tuple[str, int], np.ndarray], sent: dict[str, Any]
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(memory, where, value) by tile that holds some of the target."""
        from_entry = self._entry(copy.source, copy.source_shift, t, False)
        to_entry = self._entry(copy.target, copy.target_shift, t, True)
        at: Any = ... if to_entry is None else to_entry
        parts = []
        for tile in np.flatnonzero(self.held[copy.target].reshape(self.program.tiles, -1).any(axis=1)).tolist():
            value = self._seen(copy.source, tile, from_entry, arriving, sent)
            memory = self.memory[copy.target][tile][at]
            if value.shape != memory.shape:
                raise Wrong(f"'{copy.source}' is copied to '{copy.target}' of another shape")
            stored = _stored(self.program.variables[copy.target], value.astype(memory.dtype))
            parts.append((memory, self.held[copy.target][tile][at], stored))
        return parts

    def _touched(self, table: VertexTable, row: int, tile: int) -> list[tuple[Place, bool]]:
        """The box of a vertex, field by field, and whether all of it lies on the vertex's tile."""
        found = []
        for item in table.codelet.fields:
            name = table.operands[item.name]
            if name not in self.program.variables:
                raise Wrong(f"no variable '{name}'")
            timed = item.box[0].startswith("@t")
            shape, names = self.program.variables[name].shape[timed:], item.box[timed:]
            if len(names) != len(shape):
                raise Wrong(f"box {item.box} for '{name}' of shape {shape}")
            box = [_bounds(part, table, row, extent) for part, extent in zip(names, shape, strict=True)]
            place = _place(box, shape)
            found.append((place, bool(self.held[name][tile][(slice(None), *place) if timed else place].all())))
        return found

    def _vertex(
        self, table: VertexTable, row: int, t: int, arriving: dict[tuple[str, int], np.ndarray], sent: dict[str, Any]
    ) -> None:
        codelet, tile = table.codelet, self._tile(int(table.tiles[row]))
        if (id(table), row) not in self.touched:
            self.touched[id(table), row] = self._touched(table, row, tile)
        touched = self.touched[id(table), row]
        offset = self._offset(table, row, tile, arriving, sent)
        given: list[np.ndarray] = []
        homes: list[Any] = []  # what the tile itself holds of each field, of the entry that is taken
        for item, (place, own) in zip(codelet.fields, touched, strict=True):
            name = table.operands[item.name]
            entry = self._entry(name, item.box[0], t, item.access != "read")
            if entry is not None and offset is not None:
                entry = self._entry_at(name, offset, item.access != "read")
            at: Any = ... if entry is None else entry
            given.append(self.junk[name][... if entry is None else 0].copy())
            homes.append((self.memory[name][tile][at], self.held[name][tile][at]))
            if item.access == "write":
                continue
            if own and (entry is None or entry >= 0):
                given[-1][place] = homes[-1][0][place]
            else:
                given[-1][place] = self._seen(name, tile, entry, arriving, sent)[place]
        before = [array.copy() for array in given]
        _compute(table, row, given, [place for place, _ in touched])
        for item, array, old, home, (place, own) in zip(codelet.fields, given, before, homes, touched, strict=True):
            name = table.operands[item.name]
            value = array[place].copy()
            if item.access != "read":
                array[place] = old[place]
            if array.tobytes() != old.tobytes():
                raise Wrong(f"'{name}' is written where it may not")
            if item.access != "read":
                stored, (memory, held) = _stored(self.program.variables[name], value), home
                memory[place] = stored if own else np.where(held[place], stored, memory[place])


def _held(variable: Variable, tiles: int) -> np.ndarray:
    """bool[tiles, *shape]: which elements lie on which tile."""
    mapping, shape = variable.mapping, variable.shape
    found = np.zeros((tiles, *shape), bool)
    if len(mapping.tiles) and not 0 <= int(mapping.tiles.min()) <= int(mapping.tiles.max()) < tiles:
        raise Wrong(f"'{variable.name}' lies on a tile that is not there")
    if mapping.axis == REPLICATED:
        found[mapping.tiles] = True
        return found
    for band in mapping.bands:
        part = (slice(None), *(slice(None),) * band.axis, slice(band.start, band.stop))
        found[part] |= _held(replace(variable, mapping=band.mapping), tiles)[part]
    if mapping.axis == BANDED:
        return found
    for tile, start, stop in zip(mapping.tiles.tolist(), mapping.starts.tolist(), mapping.stops.tolist(), strict=True):
        if mapping.axis == FLAT:
            found[tile].reshape(-1)[start:stop] = True
        elif mapping.axis == PER_TIMESTEP:
            found[tile].reshape(shape[0], -1)[:, start:stop] = True
        else:
            found[tile][(slice(None),) * mapping.axis + (slice(start, stop),)] = True
    return found


def _bounds(entry: str, table: VertexTable, row: int, extent: int) -> tuple[int, int]:
    if entry == ":":
        return 0, extent
    names = entry.split(":")
    start = int(table.columns[names[0]][row])
    return start, int(table.columns[names[1]][row]) if len(names) == 2 else start + 1


def _place(box: Any, shape: tuple[int, ...]) -> Place:
    if any(not 0 <= start <= stop <= extent for (start, stop), extent in zip(box, shape, strict=True)):
        raise Wrong(f"box {box} outside shape {shape}")
    return tuple(slice(start, stop) for start, stop in box)


def _compute(table: VertexTable, row: int, given: list[np.ndarray], places: list[Place]) -> None:
    codelet: Any = table.codelet
    constants = [table.constants[name] for name in codelet.constants]
    compute = getattr(codelet.compute, "py_func", codelet.compute)
    if codelet.form == "table":
        columns = [np.asarray(table.columns[name][row : row + 1]) for name in codelet.columns]
        compute(*given, *columns, *constants)
        return
    views = []
    for item, array, place in zip(codelet.fields, given, places, strict=True):
        names = item.box[len(item.box) - array.ndim :]
        index: list[Any] = [part if ":" in name else part.start for name, part in zip(names, place, strict=True)]
        if not any(isinstance(part, slice) for part in index):
            index[-1] = place[-1]  # a view, even of one element
        views.append(array[tuple(index)].view(Checked))
    compute(*views, *(int(table.columns[name][row]) for name in codelet.columns), *constants)


class Checked(np.ndarray):
    """A view that refuses indices and slices beyond its ends, as memory does not."""

    def __getitem__(self, index: Any) -> Any:
        self._refuse(index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._refuse(index)
        super().__setitem__(index, value)

    def _refuse(self, index: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        if Ellipsis in [part for part in parts if not isinstance(part, np.ndarray)] or None in [
            part for part in parts if not isinstance(part, np.ndarray)
        ]:
            return
        for part, extent in zip(parts, self.shape, strict=False):
            bounds = [part.stop] if isinstance(part, slice) else [part] if isinstance(part, (int, np.integer)) else []
            if any(bound is not None and bound >= extent + isinstance(part, slice) for bound in bounds):
                raise Outside(f"index {part} of {extent} elements")


def _stored(variable: Variable, value: np.ndarray) -> np.ndarray:
    """The value as its bytes in memory keep it."""
    if variable.stored_bytes == 2 and value.dtype.kind == "f":
        return value.astype(np.float16).astype(value.dtype)
    return value


def _garbage(draw: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    made = draw.normal(0, 3, shape) if kind.kind == "f" else draw.integers(0, 9, shape)
    return np.asarray(made).astype(kind)
