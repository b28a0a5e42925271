"""Which statements and comparisons of a user's codelets the drawn inputs have met.

Operands whose value never matters: fields that a vertex reads, and whose other values change nothing it leaves.

What is read, moved to the tile and held there for nothing is a mistake of the codelet's author: an index that `compute`
does not use, a field that is left over, "update" where "write" is meant.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

from mimdsim.base.units import counted
from mimdsim.execution import Executor
from mimdsim.execution.strict import as_python
from mimdsim.machine import MimdMachine
from mimdsim.profile import Finding, TiledProfile, WhatIf
from mimdsim.program import Codelet, Program, Superstep, TileFormula, VertexTable
from mimdsim.program.codelet_closure import is_library

COMPARISONS = (np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal)
Place = tuple[str, int]  # file, line


class Coverage:
    """Lines of users' codelets that ran, and how many of their comparisons were true, over all runs of `program`."""

    def __init__(self, program: Program):
        self.ran: set[Place] = set()
        self.compared: dict[Place, np.ndarray] = {}  # true, all
        self._codes: dict[CodeType, None] = {}
        self.program = program.map_codelets(self._watch)

    def _watch(self, codelet: Codelet) -> Codelet:
        """A user's codelet that notes what it runs; another one as it is."""
        function = codelet.compute
        if is_library(function) or not isinstance(function, FunctionType):
            return codelet
        self._codes |= dict.fromkeys(_nested_codes(function.__code__))
        return replace(codelet, compute=partial(self._run, function))

    def __bool__(self) -> bool:
        return bool(self._codes)

    def not_exercised(self) -> list[str]:
        """What no run has met, in words."""
        lines = {(code.co_filename, line) for code in self._codes for _, _, line in code.co_lines() if line}
        first = {(code.co_filename, code.co_firstlineno) for code in self._codes}
        said = [f"{_describe_place(place)} never ran" for place in sorted(lines - self.ran - first)]
        for place, (true, every) in sorted(self.compared.items()):
            if true in (0, every):
                said.append(f"{true:,} of {every:,} comparisons in {_describe_place(place)} held")
        return said

    def _run(self, function: Any, *given: Any) -> None:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            function(*(ObservedArray.of(each, self) if isinstance(each, np.ndarray) else each for each in given))
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code in self._codes else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        self.ran.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def note(self, outcome: Any) -> None:
        """The outcome of a comparison, made at the innermost line of a codelet."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code not in self._codes:
            frame = frame.f_back
        if frame is not None:
            found = np.array([np.count_nonzero(outcome), np.size(outcome)])
            place = frame.f_code.co_filename, frame.f_lineno
            self.compared[place] = self.compared.get(place, 0) + found


class ObservedArray(np.ndarray):
    """An array whose comparisons, and those of what is computed from it, are noted."""

    _by: Coverage | None = None

    @classmethod
    def of(cls, array: np.ndarray, by: Coverage) -> ObservedArray:
        made = array.view(cls)
        made._by = by
        return made

    def __array_finalize__(self, origin: Any) -> None:
        self._by = getattr(origin, "_by", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        def plain(value: Any) -> Any:
            return value.view(np.ndarray) if isinstance(value, ObservedArray) else value

        given = {key: plain(each) for key, each in options.items()}
        if out:
            given["out"] = tuple(plain(each) for each in out)
        made = getattr(ufunc, method)(*(plain(each) for each in inputs), **given)
        by = self._by or next((each._by for each in inputs if isinstance(each, ObservedArray) and each._by), None)
        if by is not None and ufunc in COMPARISONS and method == "__call__":
            by.note(made)
        if out:
            return out[0] if len(out) == 1 else out
        return ObservedArray.of(made, by) if isinstance(made, np.ndarray) and by is not None else made


def _nested_codes(code: CodeType) -> list[CodeType]:
    """The code of a function and of those within it."""
    return [code, *(inner for each in code.co_consts if isinstance(each, CodeType) for inner in _nested_codes(each))]


def _describe_place(place: Place) -> str:
    file, line = place
    return f"{Path(file).name}, line {line} ({linecache.getline(file, line).strip()[:60]})"


def more_vertices(program: Program, machine: MimdMachine, tiled: TiledProfile) -> WhatIf | None:
    """What it would save to cut the work of every superstep into vertices for all tiles and contexts; None where all
    work. At most: what a vertex costs whatever its size, and exchanges, stay as they are."""
    supersteps = [step for step, _, _ in program.supersteps()]
    tiles = machine.chip.tiles * machine.links.chips
    longest = max(range(len(supersteps)), key=lambda at: tiled.spans[at].compute_cycles)
    shares = [_share(step, tiles, machine.tile.worker_contexts) for step in supersteps]
    used, contexts, _ = shares[longest]
    # spans of loop control, which compute nothing, follow those of supersteps
    after = [span.compute_cycles * share for span, (_, _, share) in zip(tiled.spans, shares, strict=False)]
    saved = int(tiled.compute_cycles - sum(after))
    if not tiled.cycles or saved <= 0:
        return None
    span = tiled.spans[longest]
    at_most = saved / tiled.cycles
    of_contexts = f" and {contexts:.3g} of {machine.tile.worker_contexts} contexts" if contexts else ""
    return WhatIf(
        what=f"more vertices ('{span.name}' uses {used:,} of {counted(tiles, 'tile')}{of_contexts}), at most",
        kind="mapping",
        command="",
        cycles=tiled.cycles - saved,
        gain=at_most,
        gain_low=0.0,
        gain_high=at_most,
        more_bytes=0,
        superstep=span.name,
        before=span.cycles,
        after=span.cycles - span.compute_cycles + int(after[longest]),
    )


def _share(superstep: Superstep, tiles: int, contexts: int) -> tuple[int, float, float]:
    """(tiles with vertices, contexts at work on these in the mean, 0 of library vertices, share of all that work)."""
    workers, library = np.zeros(tiles, np.int64), np.zeros(tiles, bool)
    for table in superstep.tables:
        if isinstance(table.codelet.cost, TileFormula):
            library[table.tiles] = True
        else:
            workers += np.bincount(table.tiles, minlength=tiles)
    busy = np.where(library, contexts, np.minimum(workers, contexts))
    used = int(np.count_nonzero(busy))
    mean = float(busy.sum() / used) if used and not library.any() else 0.0
    return used, mean, float(busy.sum() / (tiles * contexts)) if used else 1.0


VERTICES = 4  # of a table that are tried in a turn
TURNS = 40  # of a run in which a field is tried, while nothing changes
UNWRITTEN = {"f": 0.71875, "b": True}  # what fields hold that are only written; of whole numbers 77

Results = list[bytes]


class Operands:
    """The fields of some codelets that have not mattered yet, tried while a program runs superstep by superstep.

    of: which codelets are tried, by default what their authors wrote, not what comes with mimdsim. A field that says
    which entry of a sequence is taken matters by being what it is.
    """

    def __init__(self, of: Callable[[Codelet], bool] = lambda codelet: not is_library(codelet.compute)):
        self.of = of
        self.idle: dict[tuple[str, str], int] = {}  # (codelet, field) -> turns in which it was tried for nothing
        self.matters: set[tuple[str, str]] = set()  # those of which a value changed something
        self._left: dict[tuple[str, str], int] = {}  # turns of this run

    def for_next_run(self) -> Operands:
        """For another run, in which what has not mattered yet is tried as often again."""
        self._left = {}
        return self

    def __call__(self, superstep: Superstep, t: int, executor: Executor) -> None:
        """Run some vertices of the superstep once more, with every field in question as it is and as it is not."""
        for table in superstep.tables:
            codelet = table.codelet
            names = [item.name for item in codelet.fields if item.reads and not item.entry_of]
            open_ = [name for name in names if (codelet.name, name) not in self.matters]
            open_ = [name for name in open_ if self._left.setdefault((codelet.name, name), TURNS) > 0]
            if open_ and table.vertices and self.of(codelet):
                self._try(_Rerun(executor, superstep, table, t), open_)

    def _try(self, again: _Rerun, names: list[str]) -> None:
        with np.errstate(all="ignore"):
            right = again.results()
            if right is None:
                return
            for name in names:
                key = again.codelet.name, name
                self._left[key] -= 1
                if any(again.results(name, other) != right for other in other_values(again.held[name])):
                    self.matters.add(key)
                    self.idle.pop(key, None)
                else:
                    self.idle[key] = self.idle.get(key, 0) + 1

    def findings(self) -> list[Finding]:
        """A warning for what never mattered; nothing where everything did."""
        if not self.idle:
            return []
        said = [
            f"'{field}' of codelet '{codelet}' (tried in {turns:,} {'turn' if turns == 1 else 'turns'})"
            for (codelet, field), turns in self.idle.items()
        ]
        text = (
            f"no value changes what vertices leave or count: {', '.join(said)}; leave out what is not used, let "
            'compute use it, declare "write" for what is only written, or entry_of for the index of a sequence'
        )
        return [Finding(name="operands", passed=True, warning=True, text=text)]


class _Rerun:
    """Some vertices of a table, run on copies of what they read."""

    def __init__(self, executor: Executor, superstep: Superstep, table: VertexTable, t: int):
        self.codelet, self.t = table.codelet, t
        self.counted: list[Any] = []
        compute, count = as_python(table.codelet.compute), table.codelet.count

        def counting(*given: Any) -> None:
            if count is not None:
                self.counted.append(as_python(count)(*given))
            compute(*given)

        rows = np.unique(np.linspace(0, table.vertices - 1, VERTICES).astype(np.int64))
        chosen = table.some(rows).with_codelet(replace(table.codelet, compute=counting, count=None))
        self.run = executor.kernel_of(superstep, chosen)
        fields = self.codelet.fields
        self.held = {item.name: executor.at(table.operands[item.name], item.box[0], t) for item in fields}

    def results(self, name: str = "", other: np.ndarray | None = None) -> Results | None:
        """What the vertices leave and count, with something else in a field; None where they fail."""
        arrays = {key: value.copy() for key, value in self.held.items()}
        for item in self.codelet.fields:
            if item.access == "write":  # or what is left out would be what is there
                arrays[item.name][...] = UNWRITTEN.get(arrays[item.name].dtype.kind, 77)
        if other is not None:
            arrays[name] = other
        self.counted.clear()
        try:
            self.run(self.t, *arrays.values())
        except Exception:  # of other values than there can be: then they matter
            return None
        left = [arrays[item.name].tobytes() for item in self.codelet.fields if item.writes]
        return [*left, repr(self.counted).encode()]


def other_values(values: np.ndarray) -> Iterator[np.ndarray]:
    """Other values of an array, as far from what it holds as its type and its own range let them be; of whole numbers,
    which may be indices, first those within the range."""
    if values.dtype.kind == "b":
        yield ~values
        return
    low, high = values.min(initial=0), values.max(initial=0)
    if values.dtype.kind in "iu":
        yield (high - (values - low)).astype(values.dtype)
        yield np.where(values > 0, values - 1, values + 1).astype(values.dtype)
        yield np.roll(values.reshape(-1), 1).reshape(values.shape)
        return
    finite = np.where(np.isfinite(values), values, 0)
    scale = values.dtype.type(np.abs(finite).max(initial=0) or 1)
    for far in (scale, 64, -64):  # across whatever they are compared with
        yield 2 * finite + values.dtype.type(far)
    yield -finite - scale / 4
    yield np.zeros_like(values)
    yield np.roll(finite.reshape(-1), 1).reshape(values.shape) * values.dtype.type(0.7)
