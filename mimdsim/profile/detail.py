"""What a profile keeps beside its record: every tile in every superstep, as columns in `detail.npz`.

Nothing here is a model of its own: the columns are the numbers that the totals of the profile are sums of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, get_type_hints

import numpy as np

from mimdsim.base.checksummed import read_sealed_arrays, write_sealed_arrays
from mimdsim.base.compressed_columns import STORED, narrowed
from mimdsim.base.errors import DataFileError
from mimdsim.base.shown import Shown
from mimdsim.profile.records import RunProfile

DETAIL_FILE = "detail.npz"
DETAIL_VERSION = 2
MAX_DETAIL_BYTES = 256 << 20
MAX_ENTRIES = 1 << 28  # of all columns, texts included
REDO = "make it again with  mimdsim run --out DIR"
MOST = 1 << 53  # larger integers are none that a program of ours makes
MOST_ROUTERS = 1 << 16  # in a row or column, which no chip has
PARTNERS = 8  # tiles named that send most to a tile, and that receive most from it


def _none() -> np.ndarray:
    return np.zeros(0, np.int64)


def _no_rows() -> np.ndarray:
    return np.zeros((0, 0), np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Detail(Shown):
    """One run of a program tile by tile. S supersteps in program order, without loop control; N tiles; all numbers are
    sums over the executions of a superstep.

    run: config_sha256 of its profile. supersteps str[S] names; codelets str[S]: those on the tile with most work;
    explained str[S]: where its cycles come from, as `mimdsim explain` says it of that tile.
    busy, exchange int64[S, N]: cycles in which a tile had work, and those of an exchange if no tile took longer than
    this one, its fixed part included, without what is hidden. sent, received int64[S, N]: bytes. contexts
    int64[S, N]: worker contexts that had vertices. bundles, flops, accessed int64[S]: issued, arithmetic,
    and bytes of memory that vertices read and write, on all tiles.
    window int64[R, W, N]: busy cycles in the timesteps `window_timesteps` int64[W] of the supersteps
    `window_supersteps` int64[R], those that run once per timestep.
    variables, categories str[V]; live int64[V, 2]: first and last superstep in which a variable is in memory;
    holding int64[V]: where it lies, as the entries holding_begins[h] to holding_begins[h + 1] of holding_tiles and
    holding_bytes. vertices, code int64[N]: bytes that are always there. buffers int64[S, N]: bytes of exchange buffers.
    group_of int64[N]: groups of tiles; traffic int64[flows, 4]: superstep, sending group, receiving group, bytes
    received. senders, receivers int64[N, PARTNERS]: the tiles that send most to a tile and receive most from it, -1 for
    none, with sender_bytes and receiver_bytes.
    links int64[chips, chips]: bytes from chip to chip.
    Where a chip has links between routers, else empty: router_grid int64[3]: rows and columns of routers on a chip, and
    1 if all links lead to a middle or from it; router_of int64[tiles of a chip]: the router of each, row * columns +
    column; link_number int64[L]: those that carry anything, numbered by direction (east, west, south, north; to the
    middle 0, from it 2), chip and router; link_bytes, link_cycles int64[S, L]: bytes over each, and cycles in use.
    Columns are annotated with their axes: S, N, R and W as above, V variables, E entries, F flows, C chips, L links.
    """

    run: str
    supersteps: Annotated[np.ndarray, "S", str]
    codelets: Annotated[np.ndarray, "S", str]
    explained: Annotated[np.ndarray, "S", str]
    busy: Annotated[np.ndarray, "SN"]
    exchange: Annotated[np.ndarray, "SN"]
    sent: Annotated[np.ndarray, "SN"]
    received: Annotated[np.ndarray, "SN"]
    contexts: Annotated[np.ndarray, "SN"]
    bundles: Annotated[np.ndarray, "S"]
    flops: Annotated[np.ndarray, "S"]
    accessed: Annotated[np.ndarray, "S"]
    window_timesteps: Annotated[np.ndarray, "W"]
    window_supersteps: Annotated[np.ndarray, "R"]
    window: Annotated[np.ndarray, "RWN"]
    variables: Annotated[np.ndarray, "V", str]
    categories: Annotated[np.ndarray, "V", str]
    live: Annotated[np.ndarray, "V2"]
    holding: Annotated[np.ndarray, "V"]
    holding_begins: Annotated[np.ndarray, "H"]
    holding_tiles: Annotated[np.ndarray, "E"]
    holding_bytes: Annotated[np.ndarray, "E"]
    vertices: Annotated[np.ndarray, "N"]
    code: Annotated[np.ndarray, "N"]
    buffers: Annotated[np.ndarray, "SN"]
    group_of: Annotated[np.ndarray, "N"]
    traffic: Annotated[np.ndarray, "F4"]
    senders: Annotated[np.ndarray, "NP"]
    sender_bytes: Annotated[np.ndarray, "NP"]
    receivers: Annotated[np.ndarray, "NP"]
    receiver_bytes: Annotated[np.ndarray, "NP"]
    links: Annotated[np.ndarray, "CC"]
    router_grid: Annotated[np.ndarray, "3"] = field(default_factory=_none)
    router_of: Annotated[np.ndarray, "T"] = field(default_factory=_none)
    link_number: Annotated[np.ndarray, "L"] = field(default_factory=_none)
    link_bytes: Annotated[np.ndarray, "SL"] = field(default_factory=_no_rows)
    link_cycles: Annotated[np.ndarray, "SL"] = field(default_factory=_no_rows)

    @property
    def tiles(self) -> int:
        return int(self.busy.shape[1])

    @property
    def has_links(self) -> bool:
        """Whether loads of links between routers are kept."""
        return bool(self.router_grid.size)

    @cached_property
    def memory(self) -> np.ndarray:
        """int64[S, N]: bytes in use on every tile in every superstep."""
        change = np.zeros((len(self.supersteps) + 1, self.tiles), np.int64)
        for variable, (first, last) in enumerate(self.live.tolist()):
            tiles, size = self.held(variable)
            change[first, tiles] += size
            change[last + 1, tiles] -= size
        memory: np.ndarray = np.cumsum(change, axis=0)[:-1] + self.buffers + self.vertices + self.code
        return memory

    def held(self, variable: int) -> tuple[np.ndarray, np.ndarray]:
        """(tiles, bytes on each) of a variable, by number."""
        at = slice(*self.holding_begins[self.holding[variable] : self.holding[variable] + 2])
        return self.holding_tiles[at], self.holding_bytes[at]

    def on_tile(self, tile: int, superstep: int) -> list[tuple[str, str, int]]:
        """(variable, category, bytes) of what lies on a tile in a superstep, largest first; code, vertices and exchange
        buffers are categories without a variable."""
        found = [
            ("", category, int(column))
            for category, column in (
                ("code", self.code[tile]),
                ("vertices", self.vertices[tile]),
                ("exchange buffers", self.buffers[superstep, tile]),
            )
        ]
        for variable in np.flatnonzero((self.live[:, 0] <= superstep) & (superstep <= self.live[:, 1])).tolist():
            tiles, size = self.held(variable)
            at = int(np.searchsorted(tiles, tile))
            if at < len(tiles) and tiles[at] == tile:
                found.append((str(self.variables[variable]), str(self.categories[variable]), int(size[at])))
        return sorted((one for one in found if one[2]), key=lambda one: (-one[2], one[:2]))


_COLUMNS = {
    name: kind.__metadata__ for name, kind in get_type_hints(Detail, include_extras=True).items() if name != "run"
}
TEXT_AXES = {name: axes for name, (axes, *text) in _COLUMNS.items() if text}
AXES = {name: axes for name, (axes, *text) in _COLUMNS.items() if not text}
OF_LINKS = frozenset(one.name for one in fields(Detail) if one.default_factory is not MISSING)  # all or none in a file


def save_detail(path: Path, detail: Detail) -> None:
    """Write as sealed NPZ: integers take as few bytes as hold them, names are one text."""
    names = {name: [str(each) for each in getattr(detail, name)] for name in TEXT_AXES}
    texts = {"version": DETAIL_VERSION, "run": detail.run, **names}
    columns = {name: getattr(detail, name) for name in AXES if detail.has_links or name not in OF_LINKS}
    columns = {name: narrowed(each, STORED) if each.dtype.kind in "iu" else each for name, each in columns.items()}
    write_sealed_arrays(path, {"texts": np.frombuffer(json.dumps(texts).encode(), np.uint8), **columns})


def load_detail(path: Path) -> Detail:
    """Read what `save_detail` wrote; raises DataFileError for anything else."""
    arrays = read_sealed_arrays(path, MAX_DETAIL_BYTES, REDO, MAX_ENTRIES)
    try:
        texts = json.loads(arrays.pop("texts", np.zeros(0, np.uint8)).tobytes())
    except (ValueError, RecursionError):
        texts = None
    if not isinstance(texts, dict) or texts.pop("version", None) != DETAIL_VERSION:
        raise DataFileError(path, f"is not of version {DETAIL_VERSION}, which this mimdsim reads; {REDO}")
    expected = AXES.keys() if arrays.keys() & OF_LINKS else AXES.keys() - OF_LINKS
    if wrong := sorted((texts.keys() ^ {"run", *TEXT_AXES}) | (arrays.keys() ^ expected)):
        raise DataFileError(path, f"lacks or adds columns: {', '.join(wrong)[:200]}; {REDO}")
    for name, column in arrays.items():
        if column.dtype.kind not in "iu" or column.dtype == np.uint64:
            raise DataFileError(path, f"column '{name}' is of {column.dtype}, not of int64; {REDO}")
    for name in TEXT_AXES:
        if not isinstance(texts[name], list) or not all(isinstance(text, str) for text in texts[name]):
            raise DataFileError(path, f"column '{name}' is no list of texts; {REDO}")
    named = {name: as_texts(texts[name]) for name in TEXT_AXES}
    columns = {name: column.astype(np.int64) for name, column in arrays.items()}
    detail = Detail(run=str(texts["run"]), **named, **columns)
    if wrong := list(_contradictions(detail)):
        raise DataFileError(path, f"column '{wrong[0]}' does not fit the others; {REDO}")
    return detail


def _contradictions(detail: Detail) -> Iterator[str]:
    """Columns whose shape or numbers cannot be."""
    length: dict[str, int] = {"P": PARTNERS, "4": 4, "3": 3, "2": 2}
    kept = AXES if detail.has_links else {name: axes for name, axes in AXES.items() if name not in OF_LINKS}
    for name, axes in (TEXT_AXES | kept).items():
        column = getattr(detail, name)
        if column.ndim != len(axes) or any(
            length.setdefault(axis, extent) != extent for axis, extent in zip(axes, column.shape, strict=True)
        ):
            yield name
            return
    groups = int(detail.group_of.max(initial=0)) + 1
    below = {
        "window_supersteps": length["S"],
        "live": length["S"],
        "holding": max(0, len(detail.holding_begins) - 1),
        "holding_begins": len(detail.holding_tiles) + 1,
        "holding_tiles": length["N"],
        "senders": length["N"],
        "receivers": length["N"],
        "group_of": length["N"],
    }
    if detail.has_links:
        routers = int(np.prod(detail.router_grid[:2]))
        below |= {"router_grid": MOST_ROUTERS, "router_of": routers, "link_number": 4 * length["C"] * routers}
        if length["T"] * length["C"] != length["N"]:
            yield "router_of"
        if not length["L"]:
            yield "link_number"
    for name in kept:
        column = getattr(detail, name)
        least = -1 if name in ("senders", "receivers") else 0
        if column.size and (column.min() < least or column.max() >= below.get(name, MOST)):
            yield name
    flows = detail.traffic
    if flows.size and (flows[:, 0].max() >= length["S"] or flows[:, 1:3].max() >= groups):
        yield "traffic"
    if (np.diff(detail.holding_begins) < 0).any():
        yield "holding_begins"


def load_beside(profile: Path, run: RunProfile) -> Detail | None:
    """The detail in the folder of a profile.json; None where there is none, as beside profiles of older versions.
    Raises DataFileError for one that does not belong to this profile."""
    path = profile.parent / DETAIL_FILE
    if not path.exists():
        return None
    detail = load_detail(path)
    tiled = run.tiled
    names = [] if tiled is None else [span.name for span in tiled.spans[: len(detail.supersteps)]]
    alike = tiled is not None and (detail.tiles, len(detail.links)) == (tiled.tiles, tiled.chips)
    if not alike or detail.run != run.config_sha256 or names != detail.supersteps.tolist():
        raise DataFileError(path, f"belongs to another run than {profile.name}; {REDO}")
    return detail


def as_texts(texts: Sequence[str]) -> np.ndarray:
    """object[texts]: as an array of fixed width each would take as much memory as the longest."""
    column = np.empty(len(texts), object)
    column[:] = texts
    return column
