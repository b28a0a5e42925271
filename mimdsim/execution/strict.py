"""Strict execution: every vertex runs alone and sees only its own boxes; everything else is poison.

Slow and exact: for small programs, in tests and in `mimdsim check`. Memory holds poison until something writes it
(`mimdsim.execution.scratch`). A vertex that reads outside its slices meets poison and hands it on;
one that writes outside them is named; so is one that writes what it may only read, or leaves its slices by an index.
What lies outside differs from element to element and from memory to memory (`Poison.image`) and is compared bit for
bit, before each vertex where it may touch memory and in the end everywhere. What is written there as it was is seen by
its index: of users' codelets in the first run of every table, of the library's, which are slow on guards, at its first
and last vertices (GUARDED_ELEMENTS).
What a `write` field leaves unwritten is poison from then on, and not what was there before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from types import FunctionType
from typing import Any

import numpy as np

from mimdsim import numerics
from mimdsim.base.errors import MappingError
from mimdsim.base.user_code import is_users
from mimdsim.execution.bounds_checked_array import Bounded, Guarded, Region, Work, written_though_read
from mimdsim.execution.cost_lower_bound import VECTOR_BYTES, cost_shortfall, declared_bundles
from mimdsim.execution.execute import Executor, VertexFailure, field_written, index_of
from mimdsim.execution.scratch import LARGE, NO_NUMBER, STACK_BYTES, Poison, Scratch, as_bits, state_of, undefine
from mimdsim.program import Superstep, VertexTable, WorkerBundles
from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.codelet_closure import closure_of, is_library
from mimdsim.program.records import vertex_name
from mimdsim.program.vertex_boxes import boxes_of, describe_box

# of vertices of form 'table' of the library, which are slow on guards: so many elements of a table's first run, from
# its first vertex in one run and from its last in another
GUARDED_ELEMENTS = 20_000
OTHER = {"f": 0.71875, "b": True}  # what else undefined memory may hold; integers: 1, flags: the same, which tells none

Index = tuple[slice, ...]
Commit = tuple[np.ndarray, Index, np.ndarray]


def execute_strictly(executor: Executor, poison: Poison = NO_NUMBER, *, vector_bytes: int = VECTOR_BYTES) -> Doubts:
    """Run the program of `executor` on its arrays; raises MappingError that names the vertex that broke a rule.

    vector_bytes: of the machine, to which costs are held."""
    doubts, tables = Doubts(), dict[int, list[_Table]]()
    for _ in strict_steps(executor, poison, tables, vector_bytes=vector_bytes):
        pass
    for table in (each for of_superstep in tables.values() for each in of_superstep if not each.library):
        doubts.add(table.doubts)
    return doubts


def strict_steps(
    executor: Executor,
    poison: Poison,
    tables: dict[int, list[_Table]] | None = None,
    *,
    vector_bytes: int = VECTOR_BYTES,
) -> Iterator[tuple[Superstep, int]]:
    """Run one superstep after another, strictly; yields each with its timestep when it is done, and fills `tables`."""
    program = executor.program
    undefine(executor, poison=poison)
    tables = {} if tables is None else tables
    for superstep, t in program.turns():
        if id(superstep) not in tables:
            found = [table for table in superstep.tables if table.vertices]
            tables[id(superstep)] = [_Table(executor, superstep, table, poison, vector_bytes) for table in found]
        executor.require_offsets(superstep, t)
        for copy in superstep.copies:
            executor.prepare_copy(copy)(t)
        commits: list[Commit] = []
        for table in tables[id(superstep)]:
            commits += table.run(t)
        for array, index, value in commits:  # all vertices of a compute set see the memory as it was before it
            array[index] = value
        yield superstep, t


class Doubts:
    """What is doubtful in users' codelets, by their names, which may be on purpose: in costs, and `wide`, the first
    vertex that wrote what was computed in 64 bits.

    fixed: the first vertex that touched several elements for no turn of any loop, unless some vertex is `charged`;
    few: the first with fewer bundles than elements.
    """

    def __init__(self) -> None:
        self.fixed, self.few, self.charged = dict[str, str](), dict[str, str](), set[str]()
        self.wide = dict[str, str]()

    def add(self, later: Doubts) -> None:
        """Those of one more table or run."""
        self.fixed, self.few = {**later.fixed, **self.fixed}, {**later.few, **self.few}
        self.wide = {**later.wide, **self.wide}
        self.charged |= later.charged

    def texts(self) -> list[str]:
        """Those of costs in words, one for each codelet."""
        fixed = {name: text for name, text in self.fixed.items() if name not in self.charged}
        return list({**self.few, **fixed}.values())


@dataclass(kw_only=True, eq=False)
class _Memory:
    """What the vertices of a table see of a variable, or of an entry of it: nothing but poison outside their slices.

    untouched: what it holds outside the slices; own: bool, the slices of the vertex that runs.
    """

    array: np.ndarray
    untouched: np.ndarray
    own: np.ndarray

    def touched(self, index: Any = ...) -> np.ndarray:
        """bool: which elements differ from what lies outside the slices: there some vertex has written."""
        return np.asarray(as_bits(self.array[index]) != as_bits(self.untouched[index]))

    def restore(self, index: Any = ...) -> None:
        self.array[index] = self.untouched[index]


@dataclass(kw_only=True, eq=False)
class _Operand:
    """A field of a table: the slices of its vertices; fields of one variable and timestep share a memory."""

    field: Field
    name: str
    memory: _Memory
    boxes: np.ndarray
    slices: list[Index]

    @cached_property
    def anywhere(self) -> Field:
        """The field as of a whole array, to which other fields of a vertex may give access."""
        return replace(self.field, access="update")

    def view(self, vertex: int) -> np.ndarray:
        """The slice of a vertex."""
        return self.memory.array[self.slices[vertex]]

    def place(self, vertex: int, wrong: np.ndarray) -> str:
        """In words, the first element of a vertex's slice that is `wrong`."""
        where = np.argwhere(wrong)[0] + self.boxes[vertex][:, 0]
        return describe_box(self.name, np.stack([where, where + 1], axis=1))


class _Table:
    """The vertices of a table, each run on a memory of its own that holds nothing but its slices."""

    def __init__(self, executor: Executor, superstep: Superstep, table: VertexTable, poison: Poison, vector_bytes: int):
        self.executor, self.superstep, self.table, self.poison = executor, superstep, table, poison
        self.vector_bytes = vector_bytes
        self.memory: dict[tuple[str, int | None], _Memory] = {}
        self.operands = [self._operand(item) for item in table.codelet.fields]
        self.written = [operand for operand in self.operands if operand.field.writes]
        codelet = table.codelet
        self.constants = [table.constants[name] for name in codelet.constants]
        self.compute: Any = as_python(codelet.compute)
        self.columns = [table.column(name) for name in codelet.columns]
        self.probed = not any(operand.field.access == "write" for operand in self.operands)
        self.declared = None if codelet.count else declared_bundles(executor.program, table)
        self.library, self.first = is_library(codelet.compute), True
        self.doubts, self.compiled = Doubts(), False  # compiled: code that takes nothing but arrays runs in a vertex
        self.guarded = GUARDED_ELEMENTS if self.library else math.inf
        self.around = {} if self.library else closure_of(codelet.compute)
        self.kept = {name: state_of(value) for name, value in self.around.items()}
        self.item_bytes = [executor.program.variables[operand.name].item_bytes for operand in self.operands]

    def _operand(self, item: Field) -> _Operand:
        name = self.table.operands[item.name]
        boxes = boxes_of(self.table, item, self.executor.program.variables[name])
        slices = [tuple(slice(start, stop) for start, stop in box) for box in boxes.tolist()]
        key = name, now_shift(item.box[0])
        if key not in self.memory:
            array = self.executor.at(name, item.box[0], 0)
            image = self.poison.image(array.shape, array.dtype, len(self.memory))
            self.memory[key] = _Memory(array=image.copy(), untouched=image, own=np.zeros(array.shape, bool))
        return _Operand(field=item, name=name, memory=self.memory[key], boxes=boxes, slices=slices)

    def run(self, t: int) -> list[Commit]:
        """All vertices, one after another; what they write, to be written when all have run."""
        real = [self.executor.at(operand.name, operand.field.box[0], t) for operand in self.operands]
        commits: list[Commit] = []
        order = range(self.table.vertices)
        for vertex in reversed(order) if self.poison.sign > 0 else order:  # vertices have no order among themselves
            left = self._run_vertex(vertex, t, real)
            if not self.probed:
                self._refuse_own_poison(vertex, t, real, left)
            commits += left
        if self.first:
            self._refuse_kept(t)
        self.probed, self.guarded, self.first = True, 0, False
        if any(memory.touched().any() for memory in self.memory.values()):
            self._name_stray(t, real)
        return commits

    def _load(self, vertex: int, real: list[np.ndarray], *, other: bool = False) -> None:
        """What a vertex may read, into the memory; where it only writes, poison, or `other` undefined memory."""
        for operand in self.operands:
            if not operand.field.reads:
                view = operand.view(vertex)
                view[...] = OTHER.get(view.dtype.kind, 1) if other else self.poison.of(view.dtype)
        for operand, array in zip(self.operands, real, strict=True):
            if operand.field.reads:
                operand.view(vertex)[...] = array[operand.slices[vertex]]

    def _run_vertex(self, vertex: int, t: int, real: list[np.ndarray]) -> list[Commit]:
        looked_at = self.first or not self.library  # the library's in a table's first run, which later ones are like
        if looked_at and any(operand.memory.touched(operand.slices[vertex]).any() for operand in self.operands):
            self._name_stray(t, real)
        self._load(vertex, real)
        work, turns = Work(), None
        try:
            if self.table.codelet.count is not None:
                views, numbers = self._arguments(vertex)
                turns = {name: np.ravel(each)[0] for name, each in self.table.codelet.count(*views, *numbers).items()}
            scratch = self._call(vertex, work)
        except Exception as failure:  # whatever a user's codelet raises
            if type(failure).__name__ == "TypingError" and not self.compiled:  # numba's, of slices that are no arrays
                self.compiled = True
                self._clear(vertex)
                return self._run_vertex(vertex, t, real)
            views, numbers = self._arguments(vertex)
            written = field_written(self.table.codelet, views, numbers, failure)
            why = self._explained(failure, vertex)
            raise VertexFailure(self.superstep, self.table, vertex, t, why, written) from failure
        commits = []
        for operand, array in zip(self.operands, real, strict=True):
            index, value = operand.slices[vertex], operand.view(vertex)
            if operand.field.writes:
                commits.append((array, index, value.copy()))
            elif (as_bits(value) != as_bits(array[index])).any() and self._changed(operand, vertex, array):
                raise MappingError(f"{self._name(vertex, t)} {written_though_read(operand.field)}")
        if any(value.dtype.kind == "f" and np.isnan(value).any() for _, _, value in commits):
            self._refuse_foreign_poison(vertex, t, real)
        declared = self.declared if turns is None else declared_bundles(self.executor.program, self.table, turns)
        if declared is not None:
            moved = self._moved(vertex, work, real)
            if text := cost_shortfall(float(declared[vertex]), *moved, self.vector_bytes):
                raise MappingError(f"{self._name(vertex, t)} {text}")
        if declared is not None and not self.library:
            self._doubt(vertex, float(declared[vertex]), work)
        if work.wide and not self.doubts.wide:
            self._doubt_width(vertex, work)
        if scratch is not None:
            self._refuse_scratch(vertex, t, scratch)
        self.guarded -= sum(operand.view(vertex).size for operand in self.operands)
        self._clear(vertex)
        return commits

    def _moved(self, vertex: int, work: Work, real: list[np.ndarray]) -> tuple[int, int]:
        """(bytes loaded, bytes stored) by a vertex at the least: every element that it touched once.

        Of form 'table' without guards, and of what a function writes into an argument, only what changed is known.
        """
        loaded = stored = 0
        for operand, array, item_bytes in zip(self.operands, real, self.item_bytes, strict=True):
            name, value = operand.field.name, operand.view(vertex)
            loaded += min(work.read[name], value.size) * item_bytes
            written = min(work.written[name], value.size)
            if operand.field.writes and value.dtype.kind != "b":
                defined = ~self.poison.found(value)
                defined &= (value != array[operand.slices[vertex]]) if operand.field.reads else True
                written = max(written, int(np.count_nonzero(defined)))
            stored += written * item_bytes
        return loaded, stored

    def _doubt(self, vertex: int, declared: float, work: Work) -> None:
        """What is doubtful in the cost of a vertex."""
        cost, name = self.table.codelet.cost, self.table.codelet.name
        if not isinstance(cost, WorkerBundles):
            return
        sizes = {each.field.name: each.view(vertex).size for each in self.operands}
        touched = [min(one[field], size) for one in (work.read, work.written) for field, size in sizes.items()]
        who, elements = vertex_name(self.table, vertex), sum(touched)
        if declared > cost.fixed:
            self.doubts.charged.add(name)
        elif (most := max(touched)) > 1 and name not in self.doubts.fixed:
            self.doubts.fixed[name] = (
                f"{who} touches {most:,} elements of a field for the fixed {cost.fixed:g} bundles of its cost, and no "
                "turn of a loop, which is right only if it does so whatever the length of its slices"
            )
        if elements > declared and name not in self.doubts.few:
            self.doubts.few[name] = (
                f"{who} loads and stores {elements:,} elements for {declared:,g} bundles, which is right only if its "
                "instructions move several at once"
            )

    def _doubt_width(self, vertex: int, work: Work) -> None:
        """What a vertex wrote to a field of 32 bits or fewer, computed in 64."""
        field, (given, held) = next(iter(work.wide.items()))
        narrow = f"np.{given.name[:-2]}32"
        sums = "" if given.kind == "f" else " (numpy sums whole numbers in 64 bits)"
        self.doubts.wide[self.table.codelet.name] = (
            f"{vertex_name(self.table, vertex)} computes in {given} what it writes to its field '{field}' of {held}; a "
            f"tile computes in 32 bits: write .astype({narrow}) or dtype={narrow} where it becomes {given}{sums}"
        )

    def _changed(self, operand: _Operand, vertex: int, array: np.ndarray) -> bool:
        """Whether a slice that is only read holds something new where no other field of the vertex may write."""
        memory, index = operand.memory.array, operand.slices[vertex]
        new = (memory != array) & ~(self.poison.found(memory) & self.poison.found(array))
        for other in self.written:
            if other.memory is operand.memory:
                new[other.slices[vertex]] = False
        return bool(new[index].any())

    def _arguments(self, vertex: int, work: Work | None = None) -> tuple[list[Any], tuple[Any, ...]]:
        """(arrays, numbers) that the codelet is called with."""
        memory: list[Any] = [operand.memory.array for operand in self.operands]
        if self.table.codelet.form == "table":
            if self.guarded > 0:
                counted = work if self.guarded == math.inf else None  # the library's may touch more than a vertex would
                memory = [self._guarded(operand, vertex, counted) for operand in self.operands]
            return memory, (*(column[vertex : vertex + 1] for column in self.columns), *self.constants)
        views: list[Any] = [
            Guarded.of(array[index_of(operand.field.box, operand.boxes[vertex])], operand.field, work)
            for operand, array in zip(self.operands, memory, strict=True)
        ]
        views = [view.bounded() for view in views] if self.compiled else views
        return views, (*(int(column[vertex]) for column in self.columns), *self.constants)

    def _guarded(self, operand: _Operand, vertex: int, work: Work | None) -> Bounded | Guarded:
        """The whole memory of a field, in which a user's vertex may write within the slices of all its fields.

        Writes of the library's are found by what they leave; a look at each of theirs would take as long as all else.
        """
        memory = operand.memory
        if self.guarded < math.inf or self.compiled:
            return Bounded.of(memory.array, operand.anywhere)
        memory.own[...] = False
        for other in self.operands:
            if other.memory is memory:
                memory.own[other.slices[vertex]] = True
        place = describe_box(operand.name, operand.boxes[vertex])
        region = Region(whole=memory.array, own=memory.own, place=place)
        return Guarded.of(memory.array, operand.anywhere, work, region=region)

    def _call(self, vertex: int, work: Work | None = None) -> Scratch | None:
        """Run a vertex; its scratch, of users' codelets of form 'vertex' in the first run of a table."""
        views, numbers = self._arguments(vertex, work)
        measured = self.guarded == math.inf and self.table.codelet.form == "vertex"
        scratch = Scratch([operand.memory.array for operand in self.operands]) if measured else None
        with np.errstate(all="ignore"), scratch or nullcontext():  # sums of poison overflow; plain runs warn
            self.compute(*views, *numbers)
        return scratch

    def _refuse_scratch(self, vertex: int, t: int, scratch: Scratch) -> None:
        declared, (name, size) = self.table.codelet.scratch_bytes, scratch.held
        if scratch.bytes > max(declared, STACK_BYTES):
            covered = "" if declared > STACK_BYTES else f", of which its stack holds {STACK_BYTES}"
            raise MappingError(
                f"{self._name(vertex, t)} keeps {scratch.bytes:,} bytes beside its fields while it runs{covered}; "
                f"'{name}' takes {size:,}; its codelet declares scratch_bytes={declared:,}: declare what it needs, "
                "which is counted in the memory of its tile, or make it a variable"
            )

    def _refuse_kept(self, t: int) -> None:
        """Raise where something around a user's function is no longer what it was before the vertices ran."""
        if not self.kept:
            return
        now = {name: state_of(value) for name, value in closure_of(self.table.codelet.compute).items()}
        name = next((name for name, state in now.items() if state != self.kept.get(name, state)), None)
        if name is not None:
            raise MappingError(
                f"superstep '{self.superstep.name}', timestep {t}: {self.table.codelet.name} changes '{name}', which "
                "is around its function: it draws random numbers, or keeps something outside its slices; a vertex has "
                "nothing but its fields"
            )

    def _clear(self, vertex: int) -> None:
        for operand in self.operands:
            operand.memory.restore(operand.slices[vertex])

    def _restore(self) -> None:
        for memory in self.memory.values():
            memory.restore()

    def _left(self, vertex: int) -> list[np.ndarray]:
        """What a vertex has left in the fields that it writes."""
        return [operand.view(vertex).copy() for operand in self.written]

    def _refuse_foreign_poison(self, vertex: int, t: int, real: list[np.ndarray]) -> None:
        """Raise where poison that lies outside the slices reaches a result: another poison there changes it.

        What lies undefined in the slices themselves may be handed on: whether it matters is seen where it is used.
        """
        results = []
        for sign in (1, -1):
            for memory in self.memory.values():
                if memory.array.dtype.kind == "f":
                    memory.array[...] = sign * LARGE[memory.array.dtype.itemsize]
            self._load(vertex, real)
            self._call(vertex)
            results.append(self._left(vertex))
        self._restore()
        for operand, one, other in zip(self.written, *results, strict=True):
            if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
                raise MappingError(
                    f"{self._name(vertex, t)} read data outside its slices (poison reached '{operand.field.name}')"
                )

    def _refuse_own_poison(self, vertex: int, t: int, real: list[np.ndarray], commits: list[Commit]) -> None:
        """Raise where what a `write` field held before changes a result: it holds nothing that a vertex may read.

        What is left as it was is no result. Looked at once a table, by running its vertices with something else there.
        """
        again = self._run_on_other(vertex, real)
        for operand, (_, _, first), second in zip(self.written, commits, again, strict=True):
            other = second.dtype.type(OTHER.get(second.dtype.kind, 1))
            differs = (first != second) & ~(self.poison.found(first) & ((second == other) | self.poison.found(second)))
            if differs.any() and operand.field.access == "write":
                place, third = operand.place(vertex, differs), self._run_on_other(vertex, real)
                if any(one.tobytes() != kept.tobytes() for one, kept in zip(again, third, strict=True)):
                    raise MappingError(
                        f"{self._name(vertex, t)} leaves something else in {place} whenever it runs: it draws random "
                        "numbers, or keeps something outside its slices; a vertex has nothing but its fields"
                    )
                raise MappingError(
                    f"{self._name(vertex, t)} reads {place} through its field '{operand.field.name}', declared "
                    'access="write": there is nothing that was written; write it first, or declare "update"'
                )
        self._clear(vertex)

    def _run_on_other(self, vertex: int, real: list[np.ndarray]) -> list[np.ndarray]:
        """What a vertex leaves in its fields that it writes, which held other undefined memory before."""
        self._load(vertex, real, other=True)
        self._call(vertex)
        return self._left(vertex)

    def _explained(self, failure: Exception, vertex: int) -> Exception:
        """The failure, with what lies undefined in the vertex's slices: an index may be made of it."""
        for operand in self.operands:
            value = operand.view(vertex)
            if operand.field.reads and value.dtype.kind in "iu" and self.poison.found(value).any():
                place = operand.place(vertex, self.poison.found(value))
                return type(failure)(f"{failure} ({place} holds nothing that was written)")
        return failure

    def _name_stray(self, t: int, real: list[np.ndarray]) -> None:
        """Run the vertices once more, to name the first that writes outside its slices."""
        self._restore()
        for vertex in range(self.table.vertices):
            self._run_vertex(vertex, t, real)
            for operand in self.operands:
                if (stray := operand.memory.touched()).any():
                    where = np.argwhere(stray)[0]
                    place = describe_box(operand.name, np.stack([where, where + 1], axis=1))
                    raise MappingError(f"{self._name(vertex, t)} writes {place}, outside its slice")
        raise MappingError(
            f"superstep '{self.superstep.name}', timestep {t}: a vertex of {self.table.codelet.name} writes outside "
            "its slices, not whenever it runs: it draws random numbers, or keeps something outside its slices"
        )

    def _name(self, vertex: int, t: int) -> str:
        return f"superstep '{self.superstep.name}', timestep {t}: {vertex_name(self.table, vertex)}"


def as_python(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a kernel was compiled from, with the equations and kernels of the library that it calls in
    Python too: a compiled equation returns a number of Python's, with which NumPy before 2 goes on in double precision,
    and a compiled kernel does not look at the bounds of its slices. Private parts of kernels stay compiled."""
    function = getattr(kernel, "py_func", kernel)
    if not isinstance(function, FunctionType):
        return function
    called: dict[str, Any] = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    inner = {
        name: as_python(each)
        for name, each in called.items()
        if hasattr(each, "py_func") and each is not kernel and _is_read_in_python(name, each.py_func.__module__)
    }
    if not inner:
        return function
    plain = FunctionType(function.__code__, {**function.__globals__, **inner}, function.__name__)
    plain.__defaults__, plain.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return plain if function.__closure__ is None else function


def _is_read_in_python(name: str, module: str) -> bool:
    """Whether a compiled function of a module runs in Python within a codelet; users' always, they get slices."""
    return is_users(module) or (not name.startswith("_") and module.startswith(numerics.__name__))
