"""Operands whose value never matters: fields that a vertex reads, and whose other values change nothing it leaves.

What is read, moved to the tile and held there for nothing is a mistake of the codelet's author: an index that `compute`
does not use, a field that is left over, "update" where "write" is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.execution import Executor
from mimdsim.execution.strict import as_python
from mimdsim.profile import Finding
from mimdsim.program import Codelet, Superstep, VertexTable
from mimdsim.program.codelet_closure import is_library

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
