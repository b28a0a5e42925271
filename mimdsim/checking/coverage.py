"""Which statements and comparisons of a user's codelets the drawn inputs have met."""

from __future__ import annotations

import linecache
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

from mimdsim.base.units import counted
from mimdsim.machine import MimdMachine
from mimdsim.profile import TiledProfile, WhatIf
from mimdsim.program import Program, Superstep, TileFormula
from mimdsim.program.codelet import Codelet
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
    after = [span.compute_cycles * share for span, (_, _, share) in zip(tiled.spans, shares, strict=True)]
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
