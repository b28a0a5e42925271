"""The tiled machine: a chip of tiles with their own memory, an exchange fabric, syncs and a host link.

All cycles are tile clock cycles. Sources are in the description (`models/*.toml`), one per number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field, PrivateAttr, field_validator, model_validator

from mimdsim.base.errors import suggest
from mimdsim.base.schema import Hint, Section, SourcedSection
from mimdsim.base.search_path import Name
from mimdsim.machine.area_power import Area, Power, TiledEnergy
from mimdsim.machine.codelet_costs import NATIVE, CodeletCosts
from mimdsim.machine.notes import NotedMachine


class MatrixUnit(SourcedSection):
    """Units for products of matrices: how many work at once, by number formats, and how they are fed.

    One pass multiplies `*_channels` inputs of every row with the coefficients of all units.
    """

    half_half_units: int = Field(gt=0)
    """Units that work at once on halves with sums in halves."""
    half_float_units: int = Field(gt=0)
    """Units that work at once on halves with sums in float32."""
    float_float_units: int = Field(gt=0)
    """Units that work at once on float32."""
    half_channels: int = Field(gt=0)
    """Inputs of a pass on halves."""
    float_channels: int = Field(gt=0)
    """Inputs of a pass on float32."""
    coefficient_load_bytes_per_cycle: int = Field(gt=0)
    """Rate at which the supervisor loads coefficients before every pass."""

    def units(self, dtype: str, partials_dtype: str) -> int:
        """Units for data in `dtype` and sums in `partials_dtype` ("f16" or "f32"; sums never narrower than data)."""
        if dtype == "f32":
            return self.float_float_units
        return self.half_float_units if partials_dtype == "f32" else self.half_half_units

    def channels(self, dtype: str) -> int:
        """Inputs of a pass for data in `dtype`."""
        return self.float_channels if dtype == "f32" else self.half_channels


_ONE_BY_ONE = MatrixUnit.model_construct(**{**dict.fromkeys(MatrixUnit.model_fields, 1), "sources": {}})  # type: ignore[arg-type]


class Chip(SourcedSection):
    """How many tiles, on which grid, at which clock. Tiles are numbered row by row."""

    tiles: int = Field(gt=0, le=1_000_000, description="placement, hops, area, full load")
    """Tiles of a chip."""
    grid_columns: int = Field(gt=0, description="hops")
    """Tiles in a row of the grid."""
    grid: Literal["mesh", "torus", "crossbar"] = Field(default="mesh", description="hops")
    """How hops are counted: a hop leads to a neighbour; rows and columns of a 'torus' are closed to rings; in a
    'crossbar' any two tiles are two hops apart."""
    clock_hz: float = Field(
        gt=0, description="seconds of all cycles, exchange over links, static power, energy, full load"
    )
    """Clock of the tiles; all cycles are of this clock."""

    def with_together(self, tiles: int) -> Chip:
        """The grid of places that so many tiles share, one after the other."""
        if tiles == 1:
            return self
        return self.model_copy(
            update={"tiles": -(-self.tiles // tiles), "grid_columns": -(-self.grid_columns // tiles)}
        )

    def places(self, strip_columns: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """(columns, rows) int64[tiles], read-only: where tiles lie that are numbered along strips of so many columns,
        down one strip and up the next (0: along whole rows)."""
        return _places(self.tiles, self.grid_columns, strip_columns)

    def hops(self, columns: Any, rows: Any, rings: tuple[int, int] = (0, 0)) -> Any:
        """Most hops between tiles that are at most so many columns and rows apart: whole numbers, or int64 arrays.
        rings: places of a ring along a row and a column, where some have no tile."""
        if self.grid == "mesh":
            return columns + rows
        if self.grid == "crossbar":
            return np.minimum(columns + rows, 1) * 2
        wide, high = max(self.grid_columns, rings[0]), max(-(-self.tiles // self.grid_columns), rings[1])
        return np.minimum(columns, wide // 2) + np.minimum(rows, high // 2)


@lru_cache(maxsize=64)
def _places(count: int, wide: int, strip: int) -> tuple[np.ndarray, np.ndarray]:
    row, column = np.divmod(np.arange(count), wide)
    if 0 < strip < wide:
        number, within = np.divmod(column, strip)
        up, back = number % 2 == 1, row % 2 == 1
        order = np.lexsort((np.where(back, -within, within), np.where(up, -row, row), number))
        row, column = row[order], column[order]
    for axis in (row, column):
        axis.setflags(write=False)
    return column, row


class Tile(SourcedSection):
    """One tile: its memory and its barrel of worker contexts."""

    instruction_set: Annotated[
        Name,
        Hint(
            f'write "{NATIVE}" if the tiles run the machine code that codelets are counted for (Graphcore\'s), '
            "else the name of theirs"
        ),
    ] = Field(description="whose codelet costs compute takes")
    """Which machine code the tiles run: the codelet costs of this project are those of 'colossus'; those of another
    come with the machine (`[costs]`), or its times are unknown."""

    sram_bytes: int = Field(gt=0, description="memory limit, placement of products, area")
    """Memory of a tile."""
    executable_bytes: int = Field(gt=0, description="memory limit of code and vertices")
    """The part of the memory that may hold code and vertex state; the rest is interleaved."""
    worker_contexts: int = Field(gt=0, le=64, description="placement, compute, full load")
    """Worker contexts of a tile."""
    issue_cycles: int = Field(gt=0, description="placement, compute, full load")
    """Cycles between two instruction bundles of a context, a round robin of that many; more contexts take over idle
    turns."""
    vector_bytes: int = Field(ge=4, multiple_of=4, description="compute, placement of products")
    """Width of a vector; codelets are written for vectors of 8 bytes and take as many turns fewer or more."""
    code_bytes: int = Field(ge=0, description="memory")
    """Library and control code on every tile."""
    copy_bytes_per_cycle: float = Field(gt=0, description="compute (rows arranged and copied)")
    """Rate of a copy on the tile that all contexts share."""
    compiled_dual_issue: float = Field(ge=0, le=1, description="compute of compiled codelets")
    """Share of the instructions that could be issued in pairs which a C++ compiler does pair."""
    sram_port_bytes_per_cycle: float = Field(ge=0, default=0.0, description="compute")
    """What all contexts together load and store in a cycle at most; 0: no limit."""

    @property
    def working_contexts(self) -> int:
        """Contexts that share work spread over them: more than the issue interval would add no throughput."""
        return min(self.worker_contexts, self.issue_cycles)


MODELS = ("endpoint", "planner", "scheduled", "routed")  # of exchange fabrics (`costs/fabric/`)


class Fabric(SourcedSection):
    """The on-chip exchange fabric.

    A phase costs fixed_cycles + max(bytes / bytes_per_cycle, control instructions) at the busiest tile, where every
    fragment costs its tile control instructions on the way out and on the way in. Fragments that a codelet needs as one
    row are copied together on the receiving tile; vertices of a tile that read the same box share its row.

    Of "routed" only: routers lie on the grid of the chip, and messages go along their row, then along their column.
    """

    model: str = Field(description="exchange phases")
    """What is counted: 'endpoint' as above; 'planner' leaves the control instructions out, as the vendor's planners do;
    'scheduled' sends the messages of a phase one by one, each when its sender and all its readers are free, which takes
    longer; 'routed' leads them along the links of a network of routers; 'FILE.py:NAME' is a class of one's own."""
    bytes_per_cycle: float = Field(gt=0, description="exchange phases, area")
    """What a tile sends, and receives, in a cycle."""
    tiles_per_bus: int = Field(ge=1, le=2, description="exchange phases, placement")
    """Neighbours that share their buses: what all of them receive alike arrives that many times as fast."""
    route_cycles: int = Field(ge=0, description="exchange phases")
    """Cycles of the route, added to the fixed ones of every phase."""
    fixed_cycles: int = Field(ge=0, description="exchange phases")
    """Cycles of a phase whatever it moves."""
    hop_cycles: float = Field(ge=0, default=0.0, description="exchange phases")
    """What the first byte takes for every hop between the tiles of a phase that are farthest from each other: at most
    as far as their rows and columns are apart, whoever sends to whom."""
    send_fragment_cycles: float = Field(ge=0, description="exchange phases")
    """Control instructions that the sender issues for every fragment, in cycles."""
    receive_fragment_cycles: float = Field(ge=0, description="exchange phases")
    """Control instructions that the receiver issues for every fragment, in cycles."""
    fragment_code_bytes: int = Field(ge=0, description="memory")
    """Exchange code that a fragment takes on a tile."""
    arrange_fragment_bundles: float = Field(ge=0, description="compute")
    """Bundles for each fragment that is copied into a row on the receiving tile, the contexts sharing them."""
    overlap: float = Field(ge=0, le=1, default=0.0, description="exchange phases, memory")
    """The share of a phase that goes on without the cores, so that what of it does not depend on the compute before it
    is sent during that compute; 0: cores send and receive, 1: a DMA engine does."""
    link_bytes_per_cycle: float | None = Field(gt=0, default=None, description="exchange phases")
    """Of 'routed': what a link between two routers carries in a cycle in its direction."""
    tiles_per_router: int = Field(ge=1, le=1024, default=1, description="exchange phases")
    """Of 'routed': tiles, numbered one after the other, that share a router, so that a row has grid_columns /
    tiles_per_router of these."""
    ways: Literal["both", "one", "opposed"] = Field(default="both", description="exchange phases")
    """Of 'routed': links lead 'both' ways and messages the shorter one; 'one': eastwards and southwards only;
    'opposed': there are two such networks, the second northwards and then westwards, and a message takes the one with
    fewer hops."""
    ring_columns: int = Field(ge=0, le=4096, default=0, description="exchange phases")
    """Of 'routed': routers of a ring along a row, with those that have no tile; 0: none such."""
    ring_rows: int = Field(ge=0, le=4096, default=0, description="exchange phases")
    """Of 'routed': routers of a ring along a column, with those that have no tile; 0: none such."""
    packet_bytes: int = Field(ge=0, default=0, description="exchange phases")
    """Of 'routed': the most that a packet of a fragment carries; 0: a fragment is one packet."""
    header_bytes: int = Field(ge=0, default=0, description="exchange phases")
    """Of 'routed': what each packet has beside that."""
    acknowledge_bytes: int = Field(ge=0, default=0, description="exchange phases")
    """Of 'routed': the answer of each reader to a packet, which the phase waits for; 0: no answers."""
    multicast: Literal["tree", "reserved", "linked", "none"] = Field(default="tree", description="exchange phases")
    """Of 'routed': what several tiles want is sent once, along a 'tree'; or its sender waits until the tree is
    'reserved', there and back, for every packet or, 'linked', for every message, where that takes it less time than to
    send to each, and none in phases that this makes slower; 'none': to each."""
    switching: Literal["cut-through", "wormhole"] = Field(default="cut-through", description="exchange phases")
    """Of 'routed': packets are stored where they wait ('cut-through'), or hold the links that they have come along
    ('wormhole')."""

    @field_validator("model")
    @classmethod
    def _known(cls, model: str) -> str:
        path, _, name = model.rpartition(":")
        if model not in MODELS and not (path.endswith(".py") and name.isidentifier()):
            raise ValueError(f"must be {', '.join(MODELS)} or FILE.py:NAME{suggest(model, MODELS)}")
        return model

    @property
    def tiles_at_a_place(self) -> int:
        """Tiles between which there are no hops."""
        return self.tiles_per_router if self.model == "routed" or self.model not in MODELS else 1

    @property
    def rings(self) -> tuple[int, int]:
        """Places of the rings along a row and a column, with those that have no tile; 0: as many as there are tiles."""
        return (self.ring_columns, self.ring_rows) if self.model == "routed" else (0, 0)

    @model_validator(mode="after")
    def _links_of_a_network(self) -> Fabric:
        if self.model == "routed" and self.link_bytes_per_cycle is None:
            raise ValueError('"routed" needs link_bytes_per_cycle: what a link between two routers carries in a cycle')
        return self


ROUTED = (  # keys of [exchange] that only "routed" reads
    "link_bytes_per_cycle", "tiles_per_router", "ways", "ring_columns", "ring_rows", "packet_bytes", "header_bytes",
    "acknowledge_bytes", "multicast", "switching",
)  # fmt: skip
SINCE = {
    "exchange": (*ROUTED, "overlap"),
    "tile": ("sram_port_bytes_per_cycle",),
    "sync": ("model",),
    "costs": ("core",),
    "energy": ("hop_joules_per_byte",),
    "links": ("piece_seconds",),
}  # keys, all with defaults, that 0.1.0 did not have
SECTIONS_SINCE = ("memory",)  # that 0.1.0 did not have


class Sync(SourcedSection):
    """Barriers: on the chip, over all chips, and the control overhead of one turn of a loop on the device."""

    model: Literal["chip", "participants", "dataflow"] = Field(default="chip", description="barriers, loop control")
    """The barrier is of all tiles of a 'chip'; or of the 'participants' of an exchange, so that only their distance
    counts (in loops, that of all tiles of the program); or there is none on a chip, 'dataflow': a tile goes on when its
    inputs have arrived."""
    scope: Literal["chip", "all"] = Field(description="barriers, on several chips")
    """Who waits when the tiles of one chip exchange: they alone, or 'all', every chip of the program, so that library
    programs of different chips run one after another."""
    internal_cycles: int = Field(ge=0, description="barriers of a chip, loop control")
    """Cycles of a barrier of one chip."""
    external_cycles: int = Field(ge=0, description="barriers of all chips, loop control")
    """Cycles of a barrier of all chips."""
    hop_cycles: float = Field(ge=0, default=0.0, description="barriers, loop control")
    """What every hop between the tiles of a chip that are farthest from each other adds to a barrier, there and
    back."""
    exchange_share: float = Field(ge=0, le=1, default=0.0, description="barriers")
    """How long tiles wait at the barrier for the last of them, as a share of its exchange, in addition to the cycles of
    the barrier."""
    loop_cycles: int = Field(ge=0, description="loop control")
    """Cycles of a turn of a loop on the device: counting, comparing, branching."""


class Host(SourcedSection):
    """The link to the host that streams batches in; each link carries what its chips need, side by side."""

    bytes_per_second: float = Field(gt=0)
    """Rate of a link."""
    request_seconds: float = Field(ge=0)
    """What a request to the host takes, whatever it moves."""
    prefetch_depth: int = Field(ge=0)
    """Batches that the host streams ahead; 0: it sends one only when the chip asks for it."""
    chips: int = Field(ge=0, default=0)
    """Chips that share a link, those of a card or a machine, numbered one after the other; 0: all chips of the
    program."""


class Links(SourcedSection):
    """Links between the chips that run one program.

    A global exchange phase costs fixed_seconds, hop_seconds for every edge of the longest route, and then whichever
    takes longer: the bytes of the edge that takes longest, or the pieces of the tile that has most for one other chip,
    one after the other, piece_seconds each for every edge of their route, and once more if it leaves a group. Pieces
    for different chips are sent side by side.
    """

    chips: int = Field(gt=0, le=256, description="placement, exchange over links, area")
    """Chips that run the program."""
    topology: Literal["line", "ring", "ladder", "torus", "all_to_all", "switch"] = Field(
        description="exchange over links, area"
    )
    """Which chips have an edge between them."""
    links_per_edge: int = Field(gt=0, description="exchange over links, area")
    """Links of every edge of the topology."""
    group_chips: int = Field(ge=0, default=0, description="exchange over links, area")
    """Chips of a group, numbered one after the other, as on a card or in a machine; 0: no groups."""
    group_links_per_edge: int = Field(gt=0, default=1, description="exchange over links, area")
    """Links of an edge between chips of one group."""
    bytes_per_second: float = Field(gt=0)
    """Rate of a link in either direction."""
    fixed_seconds: float = Field(ge=0)
    """What a phase over links takes, whatever it moves."""
    hop_seconds: float = Field(ge=0)
    """What every edge of the longest route adds."""
    piece_seconds: float = Field(ge=0, default=0.0)
    """What a piece takes for every edge of its route."""


class TiledMemory(SourcedSection):
    """A second level of memory behind the tiles of a chip, for what `mapping.behind_tiles` names: DRAM, or SRAM that
    clusters share. Give either channels or tiles_per_channel."""

    capacity_bytes: int = Field(gt=0, description="memory limit of what is behind the tiles")
    """Memory of a chip."""
    channels: int | None = Field(gt=0, default=None, description="exchange behind the tiles")
    """Channels of a chip, which together carry what its tiles load and store, each an even share."""
    tiles_per_channel: int | None = Field(gt=0, default=None, description="exchange behind the tiles")
    """Tiles, numbered one after the other, that share one channel."""
    bytes_per_cycle: float = Field(gt=0, description="exchange behind the tiles")
    """Rate of a channel, loads and stores together."""
    latency_cycles: int = Field(ge=0, description="exchange behind the tiles")
    """How late the transfers of a superstep begin."""
    joules_per_byte: float | None = Field(ge=0, default=None, description="energy of a training step")
    """Energy of a byte that is loaded or stored, all told; only, and always, with [energy]."""

    @model_validator(mode="after")
    def _shared_one_way(self) -> TiledMemory:
        if (self.channels is None) == (self.tiles_per_channel is None):
            raise ValueError("give either channels, which all tiles of a chip share evenly, or tiles_per_channel")
        return self


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """Of numbers that measurements tell together better than one by one: their names, as of `machine/calibrated.py`,
    and the correlations of what is left unknown of them, float64[n, n] as rows. residuals: by class of figures, the
    share that nine in ten of the measured rows were off by when predicted from the others, and how many rows."""

    names: tuple[str, ...]
    correlation: tuple[tuple[float, ...], ...]
    residuals: tuple[tuple[str, float, int], ...] = ()


class MimdMachine(NotedMachine):
    """A tiled machine. `name` is its file's stem."""

    kind: Literal["mimd"]
    """That it is a tiled machine."""
    name: Name
    title: str
    """What the machine is, in a line."""
    # descriptions, as those of fields: which sums a number enters; of a section: its fields that have none
    chip: Chip
    tile: Tile
    exchange: Fabric
    sync: Sync
    host: Host = Field(description="host transfers")
    links: Links = Field(description="exchange over links")
    matrix: MatrixUnit | None = Field(default=None, description="compute and placement of dense products")
    energy: TiledEnergy | None = Field(default=None, description="energy of a training step")
    costs: CodeletCosts | None = Field(default=None, description="compute")
    area: Area | None = Field(default=None, description="area")
    power: Power | None = Field(default=None, description="static power, energy, full load")
    memory: TiledMemory | None = None
    _correlation: Correlation | None = PrivateAttr(default=None)  # of a narrowed machine, until a number is changed

    @model_validator(mode="after")
    def _static_power_from_somewhere(self) -> MimdMachine:
        if self.power is not None and self.area is None:
            raise ValueError("[power] gives watts per mm2, but there is no [area]; describe the chip's area too")
        if self.energy is not None and self.energy.static_watts is None and self.power is None:
            raise ValueError("[energy] has no static_watts: give it, or [area] and [power] that it follows from")
        return self

    @model_validator(mode="after")
    def _rings_of_its_tiles(self) -> MimdMachine:
        places, most = self.exchange.ring_columns * self.exchange.ring_rows, max(16 * self.chip.tiles, 4096)
        if places > most:
            raise ValueError(f"[exchange]: rings of {places:,} routers; at most {most:,} for {self.chip.tiles:,} tiles")
        return self

    @model_validator(mode="after")
    def _memory_has_joules(self) -> MimdMachine:
        if self.energy is not None and self.memory is not None and self.memory.joules_per_byte is None:
            raise ValueError("[memory] has no joules_per_byte, but there is [energy], which counts every byte")
        return self

    @property
    def product_unit(self) -> MatrixUnit | None:
        """What products of matrices are cut for: [matrix], or one number after the other on a core of another
        instruction set, whose costs of a product know nothing of units."""
        return self.matrix or (_ONE_BY_ONE if self.tile.instruction_set != NATIVE else None)

    @property
    def correlation(self) -> Correlation | None:
        return self._correlation

    def with_correlation(self, together: Correlation | None) -> MimdMachine:
        """This machine with numbers that are known together."""
        made = self.model_copy()
        made._correlation = together
        return made

    def __hash__(self) -> int:  # its sections hold dicts; equality compares them all
        return hash((self.name, self.title, self.chip.tiles, self.chip.clock_hz, self.links.chips))

    @property
    def diameter(self) -> int:
        """Hops between the two tiles of a chip that are farthest from each other."""
        grid = self.chip.with_together(self.exchange.tiles_at_a_place)
        return int(grid.hops(grid.grid_columns - 1, -(-grid.tiles // grid.grid_columns) - 1, self.exchange.rings))

    def barrier_cycles(self, all_chips: bool, hops: int | None = None) -> int:
        """Cycles of a barrier of one chip or of all, from its last tile until all go on, 0 where there is none; hops:
        between the tiles of a chip that take part and are farthest from each other (None: all of it)."""
        if not all_chips and self.sync.model == "dataflow":
            return 0
        barrier = self.sync.external_cycles if all_chips else self.sync.internal_cycles
        if hops is None:
            hops = self.diameter
        return barrier + round(self.sync.hop_cycles * hops)


# ---- which values of a machine something was made from, so that it can be used for every machine that has the same
#
# A compiler that is given `Reads.watch(machine)` leaves in `Reads.values` all that it asked the machine for. It is
# deterministic, so another machine with the same values makes it take the same path to the same result: no list of keys
# that change a program has to be kept up to date.


GIVEN = "a section"  # of a section, only whether the description has it is recorded; its values follow one by one


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What was asked of a machine: values by dotted path ('chip.tiles'); properties count as asked for themselves."""

    values: dict[str, Any] = field(default_factory=dict)

    def watch(self, machine: MimdMachine) -> MimdMachine:
        """A stand-in for the machine that records here what is read through it, in its methods and copies too."""
        return cast(MimdMachine, _TrackedSection(machine, "", self.values, {}))

    def same_on(self, machine: MimdMachine) -> bool:
        """Whether the machine gives the same answer to everything that was asked."""
        return all(_answer(machine, path) == value for path, value in self.values.items())


class _TrackedSection:
    """A section seen through a watch; `changed` fields, of a copy, come from values that were read before."""

    def __init__(self, section: Section, path: str, values: dict[str, Any], changed: Mapping[str, Any]):
        self._section, self._path, self._values, self._changed = section, path, values, changed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copying and pickling look for
            raise AttributeError(name)
        if name in self._changed:
            return self._changed[name]
        of_class = getattr(type(self._section), name, None)
        if isinstance(of_class, FunctionType):
            return MethodType(of_class, self)
        if isinstance(of_class, property) and self._changed:  # the copy has its own answer
            return cast(Any, of_class.fget)(self)
        value, path = getattr(self._section, name), f"{self._path}{name}"
        self._values[path] = _record(value)
        return _TrackedSection(value, f"{path}.", self._values, {}) if isinstance(value, Section) else value

    def model_copy(self, update: Mapping[str, Any]) -> _TrackedSection:
        """As of the section; fields that are not updated are still watched."""
        return _TrackedSection(self._section, self._path, self._values, {**self._changed, **update})


def _record(value: Any) -> Any:
    return GIVEN if isinstance(value, Section) else value


def _answer(machine: MimdMachine, path: str) -> Any:
    """What a machine has at a path; None where it lacks the section."""
    found: Any = machine
    for name in path.split("."):
        found = getattr(found, name, None)
    return _record(found)
