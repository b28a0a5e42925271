"""The tiled machine: a chip of tiles with their own memory, an exchange fabric, syncs and a host link.

All cycles are tile clock cycles. Sources are in the description (`models/*.toml`), one per number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, PrivateAttr, model_validator

from mimdsim.base.schema import Section, SourcedSection
from mimdsim.base.search_path import Name
from mimdsim.machine.area_power import Area, Power, TiledEnergy
from mimdsim.machine.codelet_costs import NATIVE, CodeletCosts


class MatrixUnit(SourcedSection):
    """How many units work at once, by number formats (of the data, of the partial sums), and how they are fed.

    One pass multiplies `*_channels` inputs of every row with the coefficients of all units. Coefficients are loaded by
    the supervisor, `coefficient_load_bytes_per_cycle`, before every pass.
    """

    half_half_units: int = Field(gt=0)
    half_float_units: int = Field(gt=0)
    float_float_units: int = Field(gt=0)
    half_channels: int = Field(gt=0)
    float_channels: int = Field(gt=0)
    coefficient_load_bytes_per_cycle: int = Field(gt=0)

    def units(self, dtype: str, partials_dtype: str) -> int:
        """Units for data in `dtype` and sums in `partials_dtype` ("f16" or "f32"; sums never narrower than data)."""
        if dtype == "f32":
            return self.float_float_units
        return self.half_float_units if partials_dtype == "f32" else self.half_half_units

    def channels(self, dtype: str) -> int:
        """Inputs of a pass for data in `dtype`."""
        return self.float_channels if dtype == "f32" else self.half_channels


class Chip(SourcedSection):
    """How many tiles, on which grid, at which clock.

    Tiles are numbered row by row. grid: "mesh", or "torus", whose rows and columns are closed to rings; a hop leads to
    a neighbour (see `exchange.hop_cycles`, `sync.hop_cycles`).
    """

    tiles: int = Field(gt=0, le=1_000_000)
    grid_columns: int = Field(gt=0)
    grid: Literal["mesh", "torus"] = "mesh"
    clock_hz: float = Field(gt=0)

    @property
    def diameter(self) -> int:
        """Hops between the two tiles that are farthest from each other."""
        return int(self.hops(self.grid_columns - 1, -(-self.tiles // self.grid_columns) - 1))

    def hops(self, columns: Any, rows: Any) -> Any:
        """Most hops between tiles that are at most so many columns and rows apart: whole numbers, or int64 arrays."""
        if self.grid == "mesh":
            return columns + rows
        wide, high = self.grid_columns, -(-self.tiles // self.grid_columns)
        return np.minimum(columns, wide // 2) + np.minimum(rows, high // 2)


class Tile(SourcedSection):
    """One tile: its memory and its barrel of worker contexts.

    A worker context issues at most one instruction bundle every `issue_cycles` (a round robin of that many;
    more contexts take over idle turns). A vector is `vector_bytes` wide; codelets are written for vectors of 64 bits,
    and take as many turns fewer or more. instruction_set: which machine code the tiles run. The codelet costs of this
    project are those of "colossus"; those of another come with the machine (`costs`), or its times are unknown.
    """

    instruction_set: Name = Field(
        description=f'write "{NATIVE}" if the tiles run the machine code that codelets are counted for (Graphcore\'s), '
        "else the name of theirs"
    )

    sram_bytes: int = Field(gt=0)
    executable_bytes: int = Field(gt=0)  # the part that may hold code and vertex state; the rest is interleaved
    worker_contexts: int = Field(gt=0, le=64)
    issue_cycles: int = Field(gt=0)
    vector_bytes: int = Field(ge=4, multiple_of=4)
    code_bytes: int = Field(ge=0)  # library and control code on every tile
    copy_bytes_per_cycle: float = Field(gt=0)  # a copy on the tile that all contexts share
    compiled_dual_issue: float = Field(ge=0, le=1)  # share of pairable instructions a C++ compiler issues together
    sram_port_bytes_per_cycle: float = Field(ge=0, default=0.0)  # loaded and stored by all contexts; 0: no limit

    @property
    def working_contexts(self) -> int:
        """Contexts that share work spread over them: more than the issue interval would add no throughput."""
        return min(self.worker_contexts, self.issue_cycles)


class Fabric(SourcedSection):
    """The on-chip exchange fabric, an endpoint model.

    A phase costs fixed_cycles + max(bytes / bytes_per_cycle, control instructions) at the busiest tile, where every
    fragment costs its tile control instructions on the way out and on the way in. Fragments that a codelet needs as one
    row are copied together on the receiving tile, `arrange_fragment_bundles` each, the contexts sharing them; vertices
    of a tile that read the same box share its row.
    `tiles_per_bus` neighbours share their buses: what all of them receive alike arrives that many times as fast.
    hop_cycles: what the first byte takes for every hop between the tiles of a phase that are farthest from each other,
    in addition to the fixed cycles: at most as far as their rows and columns are apart, whoever sends to whom.
    model: "endpoint" as above; "planner" leaves the control instructions out, as the vendor's planners do; "scheduled"
    sends the messages of a phase one by one, each when its sender and all its readers are free, which takes longer.
    """

    model: Literal["endpoint", "planner", "scheduled"]
    bytes_per_cycle: float = Field(gt=0)
    tiles_per_bus: int = Field(ge=1, le=2)
    route_cycles: int = Field(ge=0)
    fixed_cycles: int = Field(ge=0)
    hop_cycles: float = Field(ge=0, default=0.0)
    send_fragment_cycles: float = Field(ge=0)
    receive_fragment_cycles: float = Field(ge=0)
    fragment_code_bytes: int = Field(ge=0)
    arrange_fragment_bundles: float = Field(ge=0)


class Sync(SourcedSection):
    """Barriers: on the chip, over all chips, and the control overhead of one turn of a loop on the device.

    scope: who waits when the tiles of one chip exchange: "chip", they alone, or "all", every chip of the program, so
    that library programs of different chips run one after another. exchange_share: how long tiles wait at the
    barrier for the last of them, as a share of its exchange, in addition to internal_cycles or external_cycles.
    hop_cycles: what every hop between the tiles of a chip that are farthest from each other adds to a barrier, there
    and back.
    """

    scope: Literal["chip", "all"]
    internal_cycles: int = Field(ge=0)
    external_cycles: int = Field(ge=0)
    hop_cycles: float = Field(ge=0, default=0.0)
    exchange_share: float = Field(ge=0, le=1, default=0.0)
    loop_cycles: int = Field(ge=0)


class Host(SourcedSection):
    """The link to the host that streams batches in. chips: how many share one, those of a card or a machine, numbered
    one after the other (0: all chips of the program); each link carries what its chips need, side by side."""

    bytes_per_second: float = Field(gt=0)
    request_seconds: float = Field(ge=0)
    prefetch_depth: int = Field(ge=0)
    chips: int = Field(ge=0, default=0)


class Links(SourcedSection):
    """Links between the chips that run one program.

    Every edge of the topology has `links_per_edge` links, each with bytes_per_second in either direction; between chips
    of one group, `group_chips` that are numbered one after the other, as on a card or in a machine (0: no groups), it
    has `group_links_per_edge`. A global exchange phase costs fixed_seconds, hop_seconds for every edge of the longest
    route, and the bytes of the edge that takes longest.
    """

    chips: int = Field(gt=0, le=256)
    topology: Literal["line", "ring", "ladder", "torus", "all_to_all", "switch"]
    links_per_edge: int = Field(gt=0)
    group_chips: int = Field(ge=0, default=0)
    group_links_per_edge: int = Field(gt=0, default=1)
    bytes_per_second: float = Field(gt=0)
    fixed_seconds: float = Field(ge=0)
    hop_seconds: float = Field(ge=0)


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """Of numbers that measurements tell together better than one by one: their names, as of `machine/calibrated.py`,
    and the correlations of what is left unknown of them, float64[n, n] as rows."""

    names: tuple[str, ...]
    correlation: tuple[tuple[float, ...], ...]


class MimdMachine(Section):
    """A tiled machine. `name` is its file's stem. correlation: of a narrowed machine, until a number is changed."""

    kind: Literal["mimd"]
    name: Name
    title: str
    chip: Chip
    tile: Tile
    exchange: Fabric
    sync: Sync
    host: Host
    links: Links
    matrix: MatrixUnit | None = None
    energy: TiledEnergy | None = None
    costs: CodeletCosts | None = None
    area: Area | None = None
    power: Power | None = None
    _correlation: Correlation | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _static_power_from_somewhere(self) -> MimdMachine:
        if self.power is not None and self.area is None:
            raise ValueError("[power] gives watts per mm2, but there is no [area]; describe the chip's area too")
        if self.energy is not None and self.energy.static_watts is None and self.power is None:
            raise ValueError("[energy] has no static_watts: give it, or [area] and [power] that it follows from")
        return self

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

    def barrier_cycles(self, all_chips: bool) -> int:
        """Cycles of a barrier of one chip or of all, from its last tile until all go on."""
        barrier = self.sync.external_cycles if all_chips else self.sync.internal_cycles
        return barrier + round(self.sync.hop_cycles * self.chip.diameter)
