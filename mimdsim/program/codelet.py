"""A codelet is one record: what a vertex computes, what it costs in worker cycles, its flops, its source.

A field's `box` says which part of a variable a vertex touches, one entry per axis:

    ":"            the whole axis
    "sample"       one index, from the table's column of that name
    "start:stop"   a range, from two columns
    "@t" "@t-1"    the index of the current timestep (plus a shift; before the first timestep everything is zero)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as member
from functools import cache
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, near
from mimdsim.base.units import UNCERTAINTY, counted, is_kind
from mimdsim.program.loops import RECORDED, Column, Derived, Extent, Hits, Lists, Mix, Size

ACCESS = ("read", "write", "update")
_NOW = re.compile(r"^@t([+-]\d+)?$")
_FIELD = re.compile(r"(\w+) (\w+)\[(.*)\]( as one row)?( in part)?(?: by entry of (\w+))?")


@dataclass(frozen=True, kw_only=True)
class Field:
    """An edge of a vertex: name, access ('read', 'write', 'update' = both) and box.

    one_row: the codelet walks the box as one row in memory, so that pieces gathered from several tiles are first
    arranged into a row by a copy on the tile, shared by all its vertices that read the same box.
    in_part: which elements of the box are read depends on other data (ids below a count), so the rest may hold
    anything; a strict run finds reads of elements that were not written.
    entry_of: the field whose "@t" a device takes at the index that this one holds. Engines take the entry of the
    timestep, whatever it holds, so runs that check a program hold the two against each other (`functional.offsets`).
    """

    name: str
    access: str
    box: tuple[str, ...]
    one_row: bool = False
    in_part: bool = False
    entry_of: str = ""

    def __post_init__(self) -> None:
        if self.access not in ACCESS:
            raise ValueError(f"field '{self.name}': access '{self.access}' must be one of {', '.join(ACCESS)}")
        given = (self.box,) if isinstance(self.box, str) else self.box
        if given is not self.box or any("," in entry for entry in given):
            meant = tuple(part.strip() for entry in given for part in entry.split(","))
            raise ValueError(f"field '{self.name}': box {self.box!r} must have one entry for each axis, as {meant}")

    @property
    def reads(self) -> bool:
        return self.access != "write"

    @property
    def writes(self) -> bool:
        return self.access != "read"

    @property
    def shift(self) -> int | None:
        """The shift of the timestep that it takes along its first axis; None: it takes none."""
        return now_shift(self.box[0]) if self.box else None

    @property
    def space(self) -> tuple[str, ...]:
        """The box without the timestep."""
        return self.box if self.shift is None else self.box[1:]


def fields_of(signature: str) -> tuple[Field, ...]:
    """Fields as the listing of a program writes them, `access name[box]` each, for example:

        "update v[sample, start:stop]; read w[:, start:stop] as one row; read ids[sample, :] in part"

    "by entry of f" stands for `entry_of`. Raises ValueError for anything else.
    """
    found = []
    for text in signature.split("; ") if signature else ():
        match = _FIELD.fullmatch(text)
        if match is None:
            raise ValueError(f"'{text}' is not a field: access name[box] is needed, as in 'read w[:, start:stop]'")
        access, name, box, row, part, entry = match.groups("")
        entries = tuple(box.split(", "))
        found.append(
            Field(name=name, access=access, box=entries, one_row=bool(row), in_part=bool(part), entry_of=entry)
        )
    return tuple(found)


@cache
def now_shift(entry: str) -> int | None:
    """The shift of a "@t" entry of a box, or None for any other entry."""
    match = _NOW.match(entry)
    return None if match is None else int(match.group(1) or 0)


def entry_at(shift: int) -> str:
    """The entry of a box that takes the current timestep plus a shift."""
    return f"@t{shift:+d}" if shift else "@t"


def columns_of(*boxes: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that boxes name, in order of first appearance."""
    cut = (entry for box in boxes for entry in box if entry != ":" and now_shift(entry) is None)
    return tuple(dict.fromkeys(name for entry in cut for name in entry.split(":")))


@dataclass(frozen=True, kw_only=True)
class Term:
    """`bundles` for every turn of a loop nest: the product of the named extents.

    Counted with one instruction per bundle, as compiled C++ issues them; `pairable` of them could share the bundle of
    another. The machine's tile.compiled_dual_issue says what share of those does. mix: which instructions they are;
    None: what the fields and flops of the codelet suggest (`costs/core_costs.py`). converts: only cores without
    arithmetic in this number format run them, to compute in another.
    """

    bundles: float
    extents: tuple[str, ...]
    pairable: float = 0.0
    mix: Mix | None = None
    converts: str = ""

    def turns(self, extents: Mapping[str, Any]) -> Any:
        """float64: of the loop nest, from each of its extents, vertex by vertex."""
        return math.prod((np.asarray(extents[name], np.float64) for name in self.extents), start=1.0)

    def times(self, factor: float) -> Term:
        """So many times as many of each instruction."""
        mix = None if self.mix is None else self.mix * factor
        return replace(self, bundles=factor * self.bundles, pairable=factor * self.pairable, mix=mix)


# bundles, or the mix that makes them; or either, and how many are pairable
Counted = float | Mix | tuple[float | Mix, float]


def terms_of(loops: Mapping[str, Counted]) -> tuple[Term, ...]:
    """Terms by the extents of their loop nest, divided by spaces: bundles or a mix, or (bundles or a mix, pairable)."""
    return tuple(
        _term(nest, *counts) if isinstance(counts, tuple) else _term(nest, counts) for nest, counts in loops.items()
    )


def _term(nest: str, count: float | Mix, pairable: float = 0.0) -> Term:
    extents = tuple(nest.split())
    if isinstance(count, Mix):
        return Term(bundles=count.bundles, extents=extents, pairable=pairable, mix=count)
    return Term(bundles=count, extents=extents, pairable=pairable)


@dataclass(frozen=True, kw_only=True)
class WorkerBundles:
    """Cost of a vertex that one worker context runs: fixed + sum of the terms, in instruction bundles.

    A context issues at most one bundle every `issue_cycles` of its tile. At most one extent of a term may depend on
    activity.
    """

    fixed: float
    terms: tuple[Term, ...]
    kind: str
    source: str


@dataclass(frozen=True, kw_only=True)
class TileFormula:
    """Cost in tile cycles of a vertex that the supervisor spreads over all worker contexts (library vertices).

    cycles(extents, worker_contexts, vector_bytes) -> int64[vertices]; extents by name as int64 columns.
    mix: the arithmetic of each turn of the codelet's flops, on any core, beside loading and storing its fields once;
    None: additions and multiplications alike. product: of matrices, which a core may have a unit for.
    """

    cycles: Callable[[dict[str, Any], int, int], Any]
    kind: str
    source: str
    mix: Mix | None = None
    product: bool = False


def shared_bundles(
    *, supervisor_cycles: int, fixed: float, terms: tuple[Term, ...], split: str, kind: str, source: str
) -> TileFormula:
    """Cost of a vertex that the supervisor splits over all worker contexts (a MultiVertex).

    Every context takes its share of the extent `split`, rounded up, and all other extents in full:

        cycles = supervisor_cycles + contexts * (fixed + sum of the terms with extent `split` divided by contexts)

    The supervisor launches the contexts (11 to 13 cycles in PopLibs) and waits for the longest. Extents are int columns
    of the table; none may depend on activity.
    """

    def cycles(extents: dict[str, Any], worker_contexts: int, _vector_bytes: int) -> Any:
        worker: Any = fixed + 0 * extents[split]
        for term in terms:
            turns: Any = term.bundles
            for name in term.extents:
                turns = turns * (-(-extents[name] // worker_contexts) if name == split else extents[name])
            worker = worker + turns
        return supervisor_cycles + worker_contexts * worker

    return TileFormula(cycles=cycles, kind=kind, source=source)


OF_THE_BOXES = (":",)  # default for columns: those named by the boxes


@dataclass(frozen=True, kw_only=True)
class Codelet:
    """What a vertex computes and costs.

    compute: form 'table' is called once for all vertices of a table as compute(*arrays, *columns, *constants) with the
    whole arrays of the variables (a "@t" axis already taken) and the table's `columns` in the given order; form
    'vertex' is called per vertex as compute(*views, *columns, *constants) with exactly the boxes of its fields (an
    axis given by one index is dropped) and the vertex's own integers. Both write in place.
    A cost without a source is an error. flops: floating-point operations, in the same terms as bundles.
    columns: by default those named by the boxes, in order; none for form 'vertex', which gets the boxes.
    scratch_bytes: what a vertex needs on its tile beside its fields while it runs, beyond the stack that code_bytes
    covers; of a vertex of form 'table', what one on a tile would need.
    joinable: a vertex works element by element along the last axis that the box of its first field cuts by columns, so
    that vertices with adjacent slices may run as one, with bit-identical results.
    extents: how often the loops of its costs run, by the names used in terms and formulas.
    value_bytes: of a value that it computes with; number_format: "bfloat16", where bytes do not say it. narrow: fields
    that it reads in a format of their own, and these formats; of_spikes: what it multiplies them with is 0 or 1.
    count: for extents that depend on data other than recorded lists of spikes: called before compute
    with the same arguments; returns whole numbers by name (form 'table': columns), which runs record for timing.
    """

    name: str
    fields: tuple[Field, ...]
    columns: tuple[str, ...] = OF_THE_BOXES
    constants: tuple[str, ...] = ()
    compute: Callable[..., None]
    form: str = "table"
    cost: WorkerBundles | TileFormula
    flops: tuple[Term, ...] = ()
    code_bytes: int = 512
    scratch_bytes: int = 0
    joinable: bool = False
    value_bytes: int = 4
    number_format: str = ""
    narrow: tuple[tuple[str, str], ...] = ()
    of_spikes: bool = False
    count: Callable[..., dict[str, Any]] | None = None
    extents: Mapping[str, Extent] = member(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.columns == OF_THE_BOXES:
            boxes = (item.box for item in self.fields if self.form == "table")
            object.__setattr__(self, "columns", columns_of(*boxes))
        for problem in self._problems():
            raise MappingError(f"codelet '{self.name}': {problem}")

    def _problems(self) -> Iterator[str]:
        if not isinstance(self.cost, WorkerBundles | TileFormula):
            yield (
                f"its cost is a {type(self.cost).__name__}, not WorkerBundles (bundles by loop level), "
                "shared_bundles(...) or a TileFormula"
            )
        terms = self.cost.terms if isinstance(self.cost, WorkerBundles) else ()
        bundles = [term.bundles for term in (*self.flops, *terms)]
        bundles += [self.cost.fixed] if isinstance(self.cost, WorkerBundles) else []
        if any(not 0 <= number < math.inf for number in bundles):
            yield f"bundles and flops must be finite and not negative: {bundles}"
        for term in terms:
            if not 0 <= term.pairable <= term.bundles:
                yield (
                    f"of {term.bundles:g} bundles for {term.extents}, {term.pairable:g} cannot be pairable: only 0 to "
                    "all of them can"
                )
            if term.mix is not None and not math.isclose(term.mix.bundles, term.bundles):
                yield f"the mix of its {term.bundles:g} bundles for {term.extents} makes {term.mix.bundles:g}"
        for what, size in (("code_bytes", self.code_bytes), ("scratch_bytes", self.scratch_bytes)):
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                yield f"{what} {size} must not be negative, and whole"
        if not self.cost.source:
            yield "its cost names no source"
        if not is_kind(self.cost.kind):
            yield f"kind of source '{self.cost.kind}' must be one of {', '.join(UNCERTAINTY)}"
        if self.form not in ("table", "vertex"):
            yield f"form '{self.form}' must be 'table' or 'vertex'"
        if self.joinable and not (self.along and set(self.along) <= set(self.columns)):
            yield (
                f"joinable along the last axis that columns cut of its first field, whose box is {self.fields[0].box}; "
                f"its columns are {list(self.columns)}"
            )
        sequences = [item.name for item in self.fields if item.shift is not None]
        for item in self.fields:
            if item.entry_of and (item.entry_of not in sequences or not item.reads):
                yield (
                    f"field '{item.name}' ({item.access}) says the entry of '{item.entry_of}'; it must be read, and "
                    f'name a field taken at "@t", of which there are {sequences}'
                )
        for name, extent in self.extents.items():
            if wrong := self._extent_problem(extent):
                yield f"extent '{name}' {wrong}"

    def _extent_problem(self, extent: Extent) -> str:
        """What is wrong with a declared extent, or ''."""
        if isinstance(extent, Lists):
            if extent.kind not in RECORDED:
                return f"counts as {extent.kind}; one of {', '.join(kind.__name__ for kind in RECORDED)} is needed"
            if bool(extent.which) != (extent.kind is Hits):
                return f"counts {extent.kind.__name__} of {extent.which}: 'which' is for Hits, which need it"
            return ""
        if not isinstance(extent, Derived):
            return f"is a {type(extent).__name__}; declare it as Length, Size, Column or Lists"
        if extent.per < 1:
            return f"counts {extent.per} a turn; at least 1 fits one"
        if isinstance(extent, Column):
            where = f"follows from column '{extent.name}', which compute does not get; it gets {list(self.columns)}"
            return "" if extent.name in self.columns else where + near(extent.name, self.columns)
        names = [item.name for item in self.fields]
        if extent.field not in names:
            return f"follows from field '{extent.field}'; its fields are {names}{near(extent.field, names)}"
        if isinstance(extent, Size):
            return ""
        box = self.field(extent.field).box
        if not 0 <= extent.axis < len(box) or now_shift(box[extent.axis]) is not None:
            return f"follows from axis {extent.axis} of field '{extent.field}', whose box {box} has no length there"
        if extent.after and extent.after not in self.constants:
            return (
                f"is counted after '{extent.after}', which is not one of its constants; it has {list(self.constants)}"
            )
        return ""

    @property
    def along(self) -> tuple[str, str] | None:
        """The start and stop columns of the axis along which vertices may be joined, or None; the same name
        twice is a column of single indices."""
        cut = [names for entry in self.fields[0].box if (names := columns_of((entry,)))] if self.joinable else []
        return (cut[-1][0], cut[-1][-1]) if cut else None

    def field(self, name: str) -> Field:
        return next(item for item in self.fields if item.name == name)

    @property
    def vertex_state_bytes(self) -> int:
        """One 4-byte pointer per field and one word per constant (derived: PopLibs vertex layouts, one-pointer)."""
        return 4 * (len(self.fields) + len(self.constants) + len(self.columns))


NEEDED = "it must return one number of tile cycles for every vertex, or one for all"


class LackingExtent(Exception):
    """A formula needs an extent that does not exist."""


def formula_cycles(
    codelet: Codelet, extents: dict[str, Any], contexts: int, vector_bytes: int, vertices: int
) -> np.ndarray:
    """float64[vertices], or float64 for all: what the TileFormula of a codelet gives for its `vertices`.

    Raises MappingError, which names the codelet, for a formula that fails or returns anything else.
    """
    assert isinstance(codelet.cost, TileFormula)
    where = f"codelet '{codelet.name}': its cost formula"
    try:
        given = codelet.cost.cycles(extents, contexts, vector_bytes)
        made = np.asarray(given)
    except LackingExtent:
        raise
    except Exception as failure:  # whatever a user's formula raises
        asked = f"called with the extents {', '.join(extents) or 'none'}"
        raise MappingError(f"{where} raised {type(failure).__name__}: {failure} ({asked})") from failure
    if made.dtype.kind not in "iuf":
        raise MappingError(f"{where} returned {given!r:.60}, a {type(given).__name__}; {NEEDED}")
    if made.shape not in ((), (vertices,)):
        size = counted(made.size, "number") if made.ndim == 1 else f"numbers of shape {list(made.shape)}"
        raise MappingError(f"{where} returned {size} for {counted(vertices, 'vertex', 'vertices')}; {NEEDED}")
    cycles = made.astype(np.float64)
    if cycles.size and not (np.isfinite(cycles).all() and cycles.min() >= 0):
        wrong = cycles.ravel()[np.argmin(np.where(np.isfinite(cycles), cycles, -np.inf))]
        raise MappingError(f"{where} gives {wrong} cycles; correct the formula")
    return cycles
