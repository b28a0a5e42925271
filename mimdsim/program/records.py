"""Programs: variables on tiles, vertex tables, exchanges, supersteps.

A superstep is sync, exchange, compute, in this order. Its vertices see what the exchange delivered and what lies on
their own tile; no vertex sees what another one writes in the same superstep.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter

import numpy as np

from mimdsim.base.compressed_columns import TILES, compact, take_rows, wide
from mimdsim.base.errors import MappingError
from mimdsim.base.shown import Shown, refused_name
from mimdsim.program.codelet import Codelet
from mimdsim.program.loops import Derived, Recorded
from mimdsim.program.mapping import TileMapping, whole_numbers

# categories of compiled training programs, in the order of reports
CATEGORIES = (
    "weights",
    "weight gradients",
    "optimiser",
    "neuron states",
    "spike ids",
    "gradients",
    "spike selection",
)
OVERHEADS = ("exchange buffers", "vertices", "code")  # categories of memory that holds no variable
ENTRIES = ("timesteps", "segments", "segment")


@dataclass(frozen=True, kw_only=True, eq=False)
class Variable(Shown):
    """A typed tensor that lives on tiles.

    category: any name; its bytes are reported under it (compiled programs: CATEGORIES). Persistent variables keep their
    value from run to run (weights, optimiser).
    stored_bytes: bytes of an element in tile memory and on the wire if different from `dtype` (0: the same);
    its values are still computed in `dtype`, and rounded by the engine that executes the program: to halves if they
    take two bytes, or to number_format, a name of `FORMATS`; of one byte they are made so.
    values: its initial content, loaded with the program (None: zeros, until something writes it).
    entries: what its first axis counts if vertices take it at "@t": 'timesteps', 'segments' of `segment` timesteps
    each, or 'segment': the timesteps of the current segment, after an entry for the timestep before it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mapping: TileMapping
    category: str = "data"
    persistent: bool = False
    stored_bytes: int = 0
    number_format: str = ""
    values: np.ndarray | None = None
    entries: str = "timesteps"
    segment: int = 0

    def __post_init__(self) -> None:
        if self.entries not in ENTRIES or (self.entries == "timesteps") != (self.segment == 0):
            raise ValueError(f"variable '{self.name}': entries '{self.entries}' with segments of {self.segment}")
        if wrong := refused_name(self.category):
            raise MappingError(f"variable '{self.name}': category '{self.category}' {wrong}")
        if self.stored_bytes < 0:
            raise ValueError(f"variable '{self.name}': stored_bytes {self.stored_bytes} must not be negative")
        if self.stored_bytes == 1 and np.dtype(self.dtype).kind == "f" and not self.number_format:
            least = f"stored_bytes 1 for {self.dtype}; a half takes 2, the least without a number_format"
            raise ValueError(f"variable '{self.name}': {least}")
        if self.values is not None and self.values.shape != self.shape:
            raise ValueError(f"variable '{self.name}' of shape {self.shape} is loaded with {self.values.shape}")

    @property
    def item_bytes(self) -> int:
        return self.stored_bytes or int(np.dtype(self.dtype).itemsize)

    def entry(self, t: int, shift: int) -> int:
        """The index on the first axis that "@t" and a shift name in timestep t; below 0: before the first."""
        if self.entries == "timesteps":
            return t + shift
        return (t // self.segment if self.entries == "segments" else t % self.segment + 1) + shift


def is_constant(value: object) -> bool:
    """Whether a vertex may have `value` in addition to its fields: a number or name, a tuple of them, or an array that
    its code can hold."""
    if isinstance(value, tuple):
        return all(is_constant(each) for each in value)
    if isinstance(value, np.ndarray):
        return value.nbytes <= MOST_CONSTANT_BYTES and value.dtype.kind in "biuf"
    return isinstance(value, bool | int | float | str | np.generic) or value is None


def frozen(value: object) -> object:
    """A constant that no vertex can change."""
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        return value
    kept = value.copy()
    kept.setflags(write=False)
    return kept


@dataclass(frozen=True, kw_only=True, eq=False)
class VertexTable(Shown):
    """All vertices of one codelet in a compute set, as columns.

    tiles int[vertices]; operands: field -> variable name; columns: int[vertices] by name; extents: name -> a Recorded
    extent, or an int64 column for one that follows from nothing the codelet declares; constants by name. Tiles and
    columns are `compact`. stage: in a superstep that was merged from several, that of its own; '': the superstep's.
    """

    codelet: Codelet
    layer: str = ""
    tiles: np.ndarray
    operands: dict[str, str]
    columns: dict[str, np.ndarray]
    extents: dict[str, np.ndarray | Recorded] = field(default_factory=dict)
    constants: dict[str, object] = field(default_factory=dict)
    stage: str = ""

    def __post_init__(self) -> None:
        where = f"table of '{self.codelet.name}'" + (f" ({self.layer})" if self.layer else "")
        missing = [item.name for item in self.codelet.fields if item.name not in self.operands]
        if missing:
            raise ValueError(f"{where}: no variable for field(s) {missing}")
        absent = [name for name in self.codelet.columns if name not in self.columns]
        if absent:
            raise ValueError(f"{where}: no column(s) {absent}")
        for name, constant in self.constants.items():
            if not is_constant(constant):
                text = f"is a {type(constant).__name__}; constants are numbers or small arrays, others are variables"
                raise ValueError(f"{where}: constant '{name}' {text}, which tiles hold")
        kept = {name: frozen(constant) for name, constant in self.constants.items()}
        object.__setattr__(self, "constants", kept)
        unset = [name for name in self.codelet.constants if name not in self.constants]
        if unset:
            raise ValueError(f"{where}: no constant(s) {unset}")
        twice = [name for name in self.extents if isinstance(self.codelet.extents.get(name), Derived)]
        if twice:
            text = f"the codelet declares what extent(s) {twice} follow from; leave them out of the table"
            raise ValueError(f"{where}: {text}")
        columns = {
            name: compact(whole_numbers(f"{where}: column '{name}'", each)) for name, each in self.columns.items()
        }
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "tiles", compact(whole_numbers(f"{where}: tiles", self.tiles), TILES))
        given = {f"column '{name}'": column for name, column in columns.items()}
        extents = {f"extent '{name}'": each for name, each in self.extents.items() if not isinstance(each, Recorded)}
        for name, column in (given | extents).items():
            if len(column) != len(self.tiles):
                raise ValueError(f"{where}: {name} has {len(column)} entries for {len(self.tiles)} vertices")
        for name, column in extents.items():
            counted = whole_numbers(f"{where}: {name}", column)
            if counted.size and counted.min() < 0:
                least = int(np.argmin(counted))
                text = f"{name} is {int(counted[least])} for vertex {least}; a loop cannot run fewer than 0 times"
                raise ValueError(f"{where}: {text}")

    @property
    def vertices(self) -> int:
        return len(self.tiles)

    @property
    def title(self) -> str:
        """`LifUpdate (hidden0)`"""
        return self.codelet.name + (f" ({self.layer})" if self.layer else "")

    def column(self, name: str) -> np.ndarray:
        """int64[vertices]: a column to compute with."""
        return wide(self.columns[name])

    def on_some(self, chosen: np.ndarray) -> VertexTable:
        """The vertices on the tiles of `chosen` bool[tiles]."""
        return self.some(np.flatnonzero(chosen[self.tiles]))

    def some(self, rows: np.ndarray | slice) -> VertexTable:
        """These vertices; views of the columns for a slice."""
        made = object.__new__(VertexTable)  # its columns were checked with all rows
        extents = {name: each[rows] if isinstance(each, np.ndarray) else each for name, each in self.extents.items()}
        take = itemgetter(rows) if isinstance(rows, slice) else partial(take_rows, rows=rows)
        columns = {name: take(column) for name, column in self.columns.items()}
        made.__dict__.update(self.__dict__, tiles=take(self.tiles), columns=columns, extents=extents)
        return made

    def of_stage(self, stage: str) -> VertexTable:
        """The same vertices, named as a part of a superstep that is merged from several."""
        made = object.__new__(VertexTable)
        made.__dict__.update(self.__dict__, stage=self.stage or stage)
        return made

    def with_codelet(self, codelet: Codelet) -> VertexTable:
        """The same vertices computed by another codelet with the same fields."""
        return self if codelet is self.codelet else replace(self, codelet=codelet)


@dataclass(frozen=True, kw_only=True)
class Relay:
    """How what a copy brings to other chips travels: chips that want it themselves pass it on, round by round.

    parent[a][b]: the chip from which chip b gets what comes from chip a, in round step[a][b], from 1 on; -1: from a
    itself, in the first.
    """

    parent: tuple[tuple[int, ...], ...]
    step: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Copy:
    """An exchange without vertices: `target` <- `source`; a sequence on either side is taken at "@t" plus a shift.

    Written by the exchange straight into the target's tiles; data that stays on its tile is assumed to cost nothing,
    because a compiler would rename it. The shapes must agree once the timestep is taken. relay: None: from chip to chip
    at once.
    """

    source: str
    target: str
    source_shift: int | None = None
    target_shift: int | None = None
    relay: Relay | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Delivery:
    """Parts of a variable sent to tiles before the compute set: box k of `boxes` to `tiles[k]`.

    boxes int[parts, axes, 2]: start and stop per axis of the variable, a timestep axis left out. Both are `compact`.
    shift: of "@t", where one timestep is taken; target: the variable that a copy writes, '' for what vertices read.
    """

    variable: str
    tiles: np.ndarray
    boxes: np.ndarray
    shift: int | None = None
    target: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiles", compact(np.asarray(self.tiles), TILES))
        object.__setattr__(self, "boxes", compact(np.asarray(self.boxes)))


MOST_CONSTANT_BYTES = 1024  # assumed: what fits into a vertex's code; larger tables are variables
EXCHANGE_COLUMNS = (
    "bytes_sent",
    "bytes_received",
    "bytes_shared",
    "fragments_sent",
    "fragments_received",
    "fragments_arranged",
    "bytes_arranged",
)


class _OnEveryTile:
    """int64[total_tiles]: the column of an exchange that has the attribute's name."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    def __get__(self, exchange: Exchange, _owner: type) -> np.ndarray:
        spread = np.zeros(exchange.total_tiles, np.int64)
        spread[exchange.tiles] = exchange.column(self.name)
        return spread


@dataclass(frozen=True, kw_only=True, eq=False)
class Exchange:
    """What one exchange phase delivers, and the resulting counts at the tiles that take part.

    columns int[len(EXCHANGE_COLUMNS), taking part], one per tile of `tiles`; both are `compact`. The properties of the
    same names are int64[total_tiles]. A part wanted by several tiles is sent once (multicast) and received by each;
    what a tile receives in common with its neighbour on the same bus (tile XOR 1) is also in bytes_shared. A fragment
    is a run of elements that are contiguous on the sending tile and wanted by the same tiles. Arranged fragments are
    copied into rows on the receiving tile (`Field.one_row`), with all the bytes of those rows. link_bytes int64[chips,
    chips]: from, to, of all rounds; relayed int64[rounds, chips, chips]: of each, where chips pass on what they got
    (None: one round). link_pieces int64[rounds, chips, chips]: most fragments that one tile sends from chip to chip, if
    any bytes are. What a tile sends to pass it on is not in its columns: links carry far less than tiles.
    stand_ins int64[2, tiles]: of a sample, tiles that would receive, and the sampled one that stands for each.
    """

    deliveries: tuple[Delivery, ...]
    total_tiles: int
    tiles: np.ndarray
    columns: np.ndarray
    link_bytes: np.ndarray | None = None
    relayed: np.ndarray | None = None
    link_pieces: np.ndarray | None = None
    stand_ins: np.ndarray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiles", compact(np.asarray(self.tiles), TILES))
        object.__setattr__(self, "columns", compact(np.asarray(self.columns)))

    @property
    def rounds(self) -> np.ndarray:
        """int64[rounds, chips, chips]: bytes over links, round by round."""
        assert self.link_bytes is not None
        return self.link_bytes[None] if self.relayed is None else self.relayed

    @property
    def pieces_in_rounds(self) -> np.ndarray:
        """int64[rounds, chips, chips]: most pieces that one tile sends over links, round by round."""
        return np.zeros_like(self.rounds) if self.link_pieces is None else self.link_pieces

    def column(self, name: str) -> np.ndarray:
        """int64[taking part]: a column by name, for the tiles of `tiles`."""
        return wide(self.columns[EXCHANGE_COLUMNS.index(name)])

    bytes_sent = _OnEveryTile()
    bytes_received = _OnEveryTile()
    bytes_shared = _OnEveryTile()
    fragments_sent = _OnEveryTile()
    fragments_received = _OnEveryTile()
    fragments_arranged = _OnEveryTile()
    bytes_arranged = _OnEveryTile()

    @property
    def moves(self) -> bool:
        """Whether anything is moved at all."""
        return bool(self.column("bytes_received").any())


@dataclass(frozen=True, kw_only=True, eq=False)
class Superstep(Shown):
    """sync, exchange, compute. `op` is the graph operation it serves; `stage` groups what may be merged across layers.

    phase: any name for the part of the program that it belongs to and is reported under (in a training step: PHASES).
    defines: (variable, graph value) pairs complete after this superstep, for checks against the interpreter.
    exchange None: not planned yet.
    """

    name: str
    op: str = ""
    phase: str = "compute"
    stage: str = ""
    tables: tuple[VertexTable, ...] = ()
    copies: tuple[Copy, ...] = ()
    exchange: Exchange | None = None
    defines: tuple[tuple[str, str], ...] = ()
    mergeable: bool = True

    def __post_init__(self) -> None:
        if wrong := refused_name(self.phase):
            raise MappingError(f"superstep '{self.name}': phase '{self.phase}' {wrong}")

    @property
    def variables_written(self) -> tuple[str, ...]:
        """The variables that its copies and vertices write."""
        names = [copy.target for copy in self.copies]
        for table in self.tables:
            names += [table.operands[item.name] for item in table.codelet.fields if item.writes and table.vertices]
        return tuple(dict.fromkeys(names))

    @property
    def sequences(self) -> set[str]:
        """The variables of which it takes the entry of a timestep."""
        found = {copy.source for copy in self.copies if copy.source_shift is not None}
        found |= {copy.target for copy in self.copies if copy.target_shift is not None}
        fields = ((table, item) for table in self.tables for item in table.codelet.fields)
        return found | {table.operands[item.name] for table, item in fields if item.shift is not None}


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedActivity(Shown):
    """Spikes of one training step, per layer and for 'input': enough to time any mapping of the same network.

    ids: int32[timesteps, batch, capacity] by layer; counts: int32[timesteps, batch, 2] by layer;
    dropped: true spikes beyond capacity, by layer.
    """

    ids: dict[str, np.ndarray]
    counts: dict[str, np.ndarray]
    dropped: dict[str, int]


NO_SPIKES = RecordedActivity(ids={}, counts={}, dropped={})


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A broken rule: which, where, and the vertex's row in its table (-1: not a vertex; empty: no single superstep)."""

    rule: str
    superstep: str = ""
    codelet: str = ""
    vertex: int = -1
    tile: int = -1
    message: str


def problem_in(
    superstep: Superstep, rule: str, text: str, table: VertexTable | None = None, vertex: int = 0
) -> Problem:
    """What a superstep does wrong, or a vertex of it, or what the fields of a table without vertices would do wrong."""
    who, vertices = "", 0
    if table is not None:
        vertices = table.vertices
        who = f"{vertex_name(table, vertex) if vertices else f'the empty table of {table.title}'} "
    return Problem(
        rule=rule,
        superstep=superstep.name,
        codelet="" if table is None else table.codelet.name,
        vertex=vertex if vertices else -1,
        tile=int(table.tiles[vertex]) if table is not None and vertices else -1,
        message=f"superstep '{superstep.name}': {who}{text}",
    )


def vertex_name(table: VertexTable, vertex: int) -> str:
    """`vertex 17 of LifUpdate (hidden0) on tile 5`"""
    return f"vertex {vertex} of {table.title} on tile {int(table.tiles[vertex])}"
