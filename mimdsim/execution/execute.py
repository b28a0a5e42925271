"""Execute a program: exchanges as moves between variables, compute sets as one call per vertex table.

Vertices with adjoining slices run as one wide vertex (`Codelet.joinable`), with the same bits.

A variable is one array, whatever its mapping: what an exchange delivers before a compute set equals the source, since
no vertex sees what another writes in the same superstep (`mimdsim.program.verify` checks both). A replica is stored
once. `execute_strictly` gives each vertex only what its tile has.

Half precision is emulated: halves are held in float32 arrays, and after every superstep all that its vertices wrote to
halves is rounded to the nearest half. An element is written by one vertex of a superstep, so this rounds each vertex's
results once. Sums inside a vertex stay in float32, where a tile that adds four halves at a time would round every
partial sum; constants of codelets are float32 too. So this shows what storing halves does, and at least what adding in
them would.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import PACKAGE, MappingError, near, users_frame
from mimdsim.base.shown import Shown
from mimdsim.execution.bounds_checked_array import written_though_read
from mimdsim.execution.loop_counts import Offset, TurnCounts, offsets_of
from mimdsim.numerics.dense.dense import Kept, plain
from mimdsim.numerics.fused.vectors import CACHE_LINE
from mimdsim.numerics.fused.wide import WIDE, lif_update
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.program import Copy, Program, RecordedActivity, Superstep, VertexTable
from mimdsim.program.codelet import Codelet, Field, now_shift
from mimdsim.program.records import vertex_name
from mimdsim.program.vertex_boxes import boxes_of

HALF_BYTES = 2
Rounding = Callable[[np.ndarray, np.ndarray], None]  # of float32 in place, also given as their bits
HEAVY = (lif_update,)  # worth more than what it takes to wake a thread


def wide_kernel(compute: Callable[..., None]) -> Callable[..., None]:
    """What stands in for a function on wide slices, if anything does."""
    if isinstance(compute, Kept):
        return replace(compute, compute=wide_kernel(compute.compute))
    return WIDE.get(compute, compute)


def join_vertices(table: VertexTable) -> tuple[Callable[..., None], list[np.ndarray]]:
    """What computes the table, and its columns with adjoining vertices joined; the same bits as vertex by vertex."""
    codelet = table.codelet
    columns = {name: table.column(name) for name in codelet.columns}
    compute = wide_kernel(codelet.compute)
    if codelet.along is None or codelet.count is not None:  # what is counted is told vertex by vertex
        return compute, list(columns.values())
    start, stop = codelet.along
    if start == stop:  # a column of single indices; only a kernel of its own takes ranges
        if compute is codelet.compute:
            return compute, list(columns.values())
        single = columns.pop(start)
        columns |= {"start": single, "stop": single + 1}
        start, stop = "start", "stop"
    return compute, _join_runs(columns, start, stop)


def _join_runs(columns: dict[str, np.ndarray], start: str, stop: str) -> list[np.ndarray]:
    """Rows that agree but for [start, stop) and follow one another, as one."""
    if not len(columns[start]):
        return list(columns.values())
    others = [column for name, column in columns.items() if name not in (start, stop)]
    order = np.lexsort((columns[start], *reversed(others)))
    begins = np.ones(len(order), bool)
    begins[1:] = columns[start][order][1:] != columns[stop][order][:-1]
    for column in others:
        begins[1:] |= column[order][1:] != column[order][:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order)) - 1
    return [np.ascontiguousarray(column[order][last if name == stop else first]) for name, column in columns.items()]


def check_value(program: Program, name: str, value: Any, target: np.ndarray) -> np.ndarray:
    """`value` as the array that is written to input `name`; raises MappingError for what the input cannot hold.

    Whole numbers must be whole, within the type and within `Program.bounds`; numbers must be numbers.
    """
    if name not in program.inputs:
        hint = near(name, program.inputs)
        raise MappingError(f"the program has no input '{name}'; it has {sorted(program.inputs)}{hint}")
    given = np.asarray(value)
    if given.dtype.kind not in "biuf":
        raise MappingError(f"input '{name}' is made of {given.dtype}, the program takes {target.dtype}")
    if given.shape != target.shape:
        raise MappingError(f"input '{name}' has shape {given.shape}, the program takes {target.shape}")
    if target.dtype.kind == "f" and given.dtype != target.dtype:
        with np.errstate(over="ignore"):
            wrong = np.isfinite(given) & ~np.isfinite(given.astype(target.dtype))
        if wrong.any():
            raise MappingError(f"input '{name}' takes what {target.dtype} can hold; {_first(name, given, wrong)}")
    if target.dtype.kind not in "iu" or not given.size:
        return given
    whole = given if given.dtype.kind in "biu" else np.trunc(given)
    if (wrong := ~(whole == given)).any():
        raise MappingError(f"input '{name}' takes whole numbers; {_first(name, given, wrong)}")
    kind = np.iinfo(target.dtype)
    least, most = program.bounds.get(name, (int(kind.min), int(kind.max)))
    if int(whole.min()) < least or int(whole.max()) > most:
        wrong = (whole < least) | (whole > most)
        raise MappingError(f"input '{name}' takes numbers from {least:,} to {most:,}; {_first(name, given, wrong)}")
    return given


def _first(name: str, given: np.ndarray, wrong: np.ndarray) -> str:
    where = tuple(int(index) for index in np.argwhere(wrong)[0]) if given.ndim else ()
    return f"{name}{list(where) if where else ''} is {given[where]}"


LINE = 4 * CACHE_LINE  # bytes
OWN_PAGES = 1 << 22  # bytes of an array that does not come from the heap


class Shares:
    """Calls `work(first, last)` on shares of 0..count-1, one per thread. Kernels release the interpreter's lock."""

    def __init__(self, threads: int):
        self.threads = max(1, threads)
        self._pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None

    def __call__(self, count: int, work: Callable[[int, int], None]) -> None:
        if self._pool is None or count < 2:
            work(0, count)
            return
        edges = [count * number // self.threads for number in range(self.threads + 1)]
        own, *others = [share for share in pairwise(edges) if share[0] < share[1]]
        waiting = [self._pool.submit(work, *share) for share in others]
        work(*own)
        for one in waiting:
            one.result()


def zeros(shape: tuple[int, ...], kind: npt.DTypeLike) -> np.ndarray:
    """Zeros that begin at a cache line, so that no vector of a row straddles two. Large ones take memory only where
    they are written: the C library would clear what it takes from its heap."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    if size < OWN_PAGES or not hasattr(mmap, "MAP_ANONYMOUS"):
        room = np.zeros(size + LINE, np.uint8)
        begin = -room.ctypes.data % LINE
        return room[begin : begin + size].view(kind).reshape(shape)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # not shared with a process that is forked
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, kind, count=size // np.dtype(kind).itemsize).reshape(shape)


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """float32 `zeros`."""
    return zeros(shape, np.float32)


# called after every superstep with (superstep, timestep, executor)
Observer = Callable[[Superstep, int, "Executor"], None]
NOTHING = np.zeros(0)
At = Callable[[int], np.ndarray]  # an entry of a sequence, given the timestep
Turn = Callable[[int], None]  # what is done in a timestep


class Executor(Shown):
    """The tile memories of one program, and the ways to run it. Arrays stay allocated between training steps.

    program: what is run. threads: how many share the heavy passes; they change no bit. rounded: whether halves are
    rounded, inputs when they are written and others after each superstep, or kept as the float32 that hold them.

        >>> executor = mimdsim.Executor(made.compiled.program)
        >>> executor.write({"labels": made.compiled.network.batch * [0], "training_step": [1]})
        >>> executor.run()
        >>> executor.read("gradient.w.hidden0").shape
        (512, 12)
    """

    def __init__(self, program: Program, threads: int = 1, *, rounded: bool = False):
        self.program = program
        self._halves = halves_of(program) if rounded else {}
        self.arrays: dict[str, np.ndarray] = {
            name: zeros(variable.shape, variable.dtype) for name, variable in program.variables.items()
        }
        for name, variable in program.variables.items():
            if variable.values is not None:
                self.arrays[name][...] = variable.values
        self.given: set[str] = set()  # variables that `write` has set
        self.share = Shares(threads)
        self._zero: dict[str, np.ndarray] = {}
        self._entries: dict[str, list[np.ndarray]] = {}
        self._calls: dict[int, list[Turn]] = {}
        self._rounded: dict[int, set[tuple[str, int | None]]] = {}  # variables, or entries, that a superstep writes
        self._offsets: dict[int, list[Offset]] = {}  # of supersteps that were run one by one
        self.counted = TurnCounts(program)
        for superstep, _, _ in program.supersteps():
            calls = [self.prepare_copy(copy) for copy in superstep.copies]
            calls += [self.prepare(superstep, table) for table in superstep.tables]
            self._calls[id(superstep)] = calls
            self._rounded[id(superstep)] = {
                (table.operands[item.name], now_shift(item.box[0]))
                for table in superstep.tables
                for item in table.codelet.fields
                if item.writes and table.operands[item.name] in self._halves
            }

    @property
    def inputs(self) -> tuple[str, ...]:
        """Graph inputs that can be written."""
        return tuple(self.program.inputs)

    @property
    def generators(self) -> dict[str, int]:
        """Graph inputs that hold the generators of layers that drop spikes at random, and their samples."""
        inputs = self.program.inputs
        return {name: len(self.arrays[inputs[name]]) for name in self.program.observables.generators}

    def width(self, name: str) -> int:
        """Of the rows of a graph input."""
        return int(self.arrays[self.program.inputs[name]].shape[-1])

    def write(self, values: Mapping[str, npt.ArrayLike]) -> None:
        """Set graph inputs from the host, e.g. 'w.hidden0', 'labels', 'input.ids'.

        Raises MappingError for an unknown name, another shape, and numbers that the input cannot hold; then nothing is
        written.
        """
        held = {name: self.arrays.get(self.program.inputs.get(name, ""), NOTHING) for name in values}
        given = {name: check_value(self.program, name, value, held[name]) for name, value in values.items()}
        for name, value in given.items():
            self.replace(self.program.inputs[name], value)
            self.given.add(self.program.inputs[name])

    def replace(self, variable: str, values: npt.ArrayLike) -> None:
        """Give a variable of the program other values, rounded as its vertices' are."""
        self.arrays[variable][...] = values
        if variable in self._halves:
            _round(self.arrays[variable], self._halves[variable])

    def read(self, name: str) -> np.ndarray:
        """A copy of the variable that holds graph value `name`; MappingError if that is no output of the program."""
        if name not in self.program.outputs:
            raise MappingError(f"the program has no output '{name}'; it has {sorted(self.program.outputs)}")
        return self.arrays[self.program.outputs[name]].copy()

    def run(self, phases: Collection[str] | None = None, observe: Observer | None = None) -> None:
        """Run the supersteps of `phases` (None: all) in order, and call `observe` after each."""
        for superstep, t in self.steps(phases):
            if observe is not None:
                observe(superstep, t, self)

    def steps(self, phases: Collection[str] | None = None) -> Iterator[tuple[Superstep, int]]:
        """Run one superstep after another; yields each with its timestep when it is done and halves are rounded.

        Raises MappingError where an operand does not hold the entry of a sequence that it stands for.
        """
        for superstep, t in self.program.turns(phases):
            self.require_offsets(superstep, t)
            for call in self._calls[id(superstep)]:
                call(t)
            for name, shift in self._rounded[id(superstep)]:
                array = self.arrays[name]
                entry = array if shift is None else array[self.program.variables[name].entry(t, shift)]
                _round(entry, self._halves[name])
            yield superstep, t

    def require_offsets(self, superstep: Superstep, t: int) -> None:
        """Raise MappingError where a vertex would take another entry of a sequence on a device than it does here."""
        if id(superstep) not in self._offsets:
            self._offsets[id(superstep)] = offsets_of(self.program, superstep)
        for require in self._offsets[id(superstep)]:
            require(self.arrays, t)

    @property
    def timesteps(self) -> int:
        """Of the program's repeats."""
        return self.program.timesteps

    def activity(self, observed: Mapping[str, tuple[np.ndarray, ...]] | None = None) -> RecordedActivity:
        """Spikes of the last run, from the recorded sequences; int32 in whatever format the program lists them.

        observed: sequences of ids and counts, or rows, of layers that the program passes on without keeping them. Ids
        beyond the listed count, which earlier runs left there, are 0: equal runs give equal bytes. Of dense spikes,
        what is not zero is listed.
        """
        ids, counts = {}, {}
        recorded = {layer: tuple(self.arrays[name] for name in names) for layer, names in self.program.recorded.items()}
        for layer, sequences in (recorded | dict(observed or {})).items():
            if len(sequences) == 1:
                (rows,) = sequences
                every = rows if rows.ndim == 3 else np.broadcast_to(rows, (self.timesteps, *rows.shape))
                ids[layer], counts[layer] = listed_of(self._by_sample(layer, every))
                continue
            counts[layer] = sequences[1].astype(np.int32)
            listed = np.arange(sequences[0].shape[2]) < counts[layer][..., 1:]
            ids[layer] = np.where(listed, sequences[0], 0).astype(np.int32)
        counts |= {name: turns.copy() for name, turns in self.counted.found.items()}
        return RecordedActivity(ids=ids, counts=counts, dropped={})

    def _by_sample(self, layer: str, rows: np.ndarray) -> np.ndarray:
        """[timesteps, samples, neurons] of spikes of a layer, channels of planes outermost."""
        positions = self.program.observables.positions.get(layer, 1)
        by_position = rows.reshape(len(rows), -1, positions, rows.shape[-1])
        return np.ascontiguousarray(by_position.swapaxes(2, 3)).reshape(*by_position.shape[:2], -1)

    # ---- one superstep

    def at(self, name: str, box_entry: str, t: int) -> np.ndarray:
        """The array a field works on: the whole variable, or the timestep its "@t" names (zeros before the first)."""
        shift = now_shift(box_entry)
        return self.arrays[name] if shift is None else self.taken(name, shift)(t)

    def taken(self, name: str, shift: int) -> At:
        """What "@t" and a shift name of a sequence in a timestep: one entry, nothing in it before the first."""
        sequence, variable = self.arrays[name], self.program.variables[name]
        if name not in self._entries:
            self._entries[name] = list(sequence)
            self._zero[name] = np.zeros(sequence.shape[1:], sequence.dtype)
        before, entries = self._zero[name], self._entries[name]
        if variable.entries == "timesteps":
            return lambda t: entries[t + shift] if t + shift >= 0 else before
        entry = variable.entry
        return lambda t: entries[entry(t, shift)]

    def prepare(self, superstep: Superstep, table: VertexTable) -> Turn:
        """What runs a table in a timestep."""
        fields = table.codelet.fields
        places = [(table.operands[item.name], now_shift(item.box[0])) for item in fields]
        return self._bind(self.kernel_of(superstep, table), places)

    def prepare_copy(self, copy: Copy) -> Turn:
        """What runs a copy in a timestep."""
        return self._bind(_copied, [(copy.target, copy.target_shift), (copy.source, copy.source_shift)])

    def _bind(self, run: Callable[..., None], places: Sequence[tuple[str, int | None]]) -> Turn:
        """`run(t, *arrays)` on the variables named, or on the entries of them that "@t" and a shift take."""
        given = [self.arrays[name] for name, _ in places]
        entries = [(at, self.taken(name, shift)) for at, (name, shift) in enumerate(places) if shift is not None]

        def turn(t: int) -> None:
            for at, entry in entries:
                given[at] = entry(t)
            run(t, *given)

        return turn

    def kernel_of(self, superstep: Superstep, table: VertexTable) -> Callable[..., None]:
        """`run(t, *arrays)` of a table, given an array for each of its fields."""
        return (self._vertices if table.codelet.form == "vertex" else self._table)(superstep, table)

    def _table(self, superstep: Superstep, table: VertexTable) -> Callable[..., None]:
        record = self.counted.recorder(superstep, table)
        compute, columns = join_vertices(table)
        constants = [table.constants[name] for name in table.codelet.constants]
        numbers = *columns, *constants
        share = self.share
        dealt = share.threads > 1 and plain(compute) in HEAVY and len(columns[0]) > 1

        def run(t: int, *arrays: np.ndarray) -> None:
            if record is not None:
                record(None, t, (*arrays, *numbers))
            if dealt:  # vertices are independent of each other, so any of them may go to any thread
                share(
                    len(columns[0]),
                    lambda first, last: compute(*arrays, *(column[first:last] for column in columns), *constants),
                )
                return
            try:
                compute(*arrays, *numbers)
            except Exception as failure:  # whatever a user's codelet raises
                text = f"codelet {table.codelet.name} raised {type(failure).__name__}: {failure}"
                if isinstance(failure, TypeError) and "argument" in str(failure):
                    text += '; it is given whole arrays and columns, or the slices of one vertex with form="vertex"'
                raise MappingError(f"superstep '{superstep.name}', timestep {t}: {text}") from failure

        return run

    def _vertices(self, superstep: Superstep, table: VertexTable) -> Callable[..., None]:
        """Per-vertex codelets get views of exactly their boxes; reads are read-only."""
        codelet = table.codelet
        boxes = [boxes_of(table, item, self.program.variables[table.operands[item.name]]) for item in codelet.fields]
        constants = [table.constants[name] for name in codelet.constants]
        columns = [table.columns[name].tolist() for name in codelet.columns]
        record = self.counted.recorder(superstep, table)

        def run(t: int, *arrays: np.ndarray) -> None:
            for vertex in range(table.vertices):
                views = []
                for item, box, array in zip(codelet.fields, boxes, arrays, strict=True):
                    view = array[index_of(item.box, box[vertex])]
                    if not item.writes:
                        view = view.view()
                        view.setflags(write=False)
                    views.append(view)
                numbers = *(column[vertex] for column in columns), *constants
                try:
                    if record is not None:
                        record(vertex, t, (*views, *numbers))
                    codelet.compute(*views, *numbers)
                except MappingError:
                    raise
                except Exception as failure:  # whatever a user's codelet raises
                    written = field_written(codelet, views, numbers, failure)
                    raise VertexFailure(superstep, table, vertex, t, failure, written) from failure

        return run


def halves_of(program: Program) -> dict[str, Rounding]:
    """The variables of two bytes that are held in a float32, and what rounds them."""
    return {
        name: FORMATS[variable.number_format or "half"].round
        for name, variable in program.variables.items()
        if variable.item_bytes == HALF_BYTES and np.dtype(variable.dtype) == np.float32  # what is float16 is rounded
    }


def _round(array: np.ndarray, rounding: Rounding) -> None:
    flat = array.reshape(-1)
    assert np.shares_memory(flat, array) or not array.size  # contiguous, or nothing would be rounded
    rounding(flat, flat.view(np.uint32))


class VertexFailure(MappingError):
    """A vertex left its slices or wrote what it may only read."""

    def __init__(
        self, superstep: Superstep, table: VertexTable, vertex: int, t: int, failure: Exception, written: Field | None
    ):
        self.vertex, self.tile = vertex, int(table.tiles[vertex])
        of_types = "must be of integer" in str(failure) or "valid indices" in str(failure)  # as numpy says it
        left = (isinstance(failure, IndexError) and not of_types) or written is not None
        frame = users_frame(failure)
        theirs = frame if frame is not None and not Path(frame.filename).is_relative_to(PACKAGE) else None
        own = theirs is not None and "site-packages" not in theirs.filename and "raise " in (theirs.line or "")
        of_shapes = isinstance(failure, ValueError) and not own and any(word in str(failure) for word in OF_SHAPES)
        at = f" in line {theirs.lineno} of {Path(theirs.filename).name}" if theirs else ""
        unfit = "does not fit its slices" if of_shapes else f"raised {type(failure).__name__}{at}"
        what = "left its slices" if left else unfit
        if written is None and _is_read_only(failure):
            what += " (np.asarray and its like give a field for reading; write to the field itself)"
        why = f"{failure}" if written is None else f"it {written_though_read(written)} ({failure})"
        super().__init__(f"superstep '{superstep.name}', timestep {t}: {vertex_name(table, vertex)} {what}: {why}")


OF_SHAPES = ("broadcast", "shape", "dimension", "size", "read-only", "readonly", "align", "axes")  # numpy on arrays


def _is_read_only(failure: Exception) -> bool:
    return any(word in str(failure) for word in ("read-only", "readonly"))  # as numpy and as numba put it


def field_written(
    codelet: Codelet, views: list[np.ndarray], numbers: tuple[Any, ...], failure: Exception
) -> Field | None:
    """The field that the vertex wrote though it may only read it: protected alone, it makes the vertex fail again."""
    for index, item in enumerate(codelet.fields) if _is_read_only(failure) else ():
        copies = [view.copy() for view in views]
        copies[index].setflags(write=item.writes)
        try:
            codelet.compute(*copies, *numbers)
        except Exception as again:
            if _is_read_only(again):
                return item
    return None


def listed_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ids int32[timesteps, batch, most that are not zero], counts int32[timesteps, batch, 2]) of dense spikes."""
    fired = rows != 0
    count = fired.sum(axis=2)
    ids: np.ndarray = np.zeros((*count.shape, max(1, int(count.max(initial=0)))), np.int32)
    ids[np.arange(ids.shape[2]) < count[..., None]] = np.nonzero(fired)[2]
    return ids, np.stack([count, count], axis=-1).astype(np.int32)


def _copied(_t: int, target: np.ndarray, source: np.ndarray) -> None:
    target[...] = source


def index_of(box: tuple[str, ...], bounds: np.ndarray) -> tuple[Any, ...]:
    """A numpy index for one vertex's box; single indices drop their axis."""
    entries = box[1:] if now_shift(box[0]) is not None else box
    index: list[Any] = []
    for entry, (start, stop) in zip(entries, bounds.tolist(), strict=True):
        index.append(slice(start, stop) if entry == ":" or ":" in entry else start)
    # an all-integer index would give a scalar, which cannot be written through
    if index and all(isinstance(part, int) for part in index):
        index[-1] = slice(index[-1], index[-1] + 1)
    return tuple(index)
