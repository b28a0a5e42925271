"""Where what a program computes on lies: neurons in parts of layers, lists in runs over chips, weights and samples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from itertools import pairwise
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from mimdsim.codelets.elementwise import on_rows
from mimdsim.compiler.place.collectives import Trees, best_trees, direct
from mimdsim.compiler.place.layer_partition import LayerPlacement, Placement
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.names import INPUT
from mimdsim.machine import MimdMachine
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.program import Codelet, ProgramBuilder, TileMapping, Variable
from mimdsim.program.mapping import FLAT, PER_TIMESTEP, Band, repeat_each
from mimdsim.program.vertex_boxes import boxes_of_runs
from mimdsim.workload.description.mapping import MappingOptions

LINEAR_BYTES = 128  # the library maps linearly in runs of at least 128 bytes a tile (poputil)
MOMENTS = "optimiser"  # the category of what an optimiser keeps
WORD_BYTES = 4  # tiles store and exchange whole words


Where = tuple[np.ndarray, dict[str, np.ndarray]]  # tiles and columns of vertices
Vertices = tuple[Codelet, np.ndarray, dict[str, np.ndarray]]  # and their codelet
LISTS = ("ids", "counts", "gradients")
Chips = tuple[int, ...]  # of every sample, the chip of its lists
Family = tuple[str, str]  # one of LISTS, and the layer whose spikes they are of
Given = ParamSpec("Given")
Result = TypeVar("Result")


def made_once(
    make: Callable[Concatenate[Layout, Given], Result],
) -> Callable[Concatenate[Layout, Given], Result]:
    """A result that is worked out once in every lowering: many variables lie alike."""

    @wraps(make)
    def known(layout: Layout, *given: Given.args, **named: Given.kwargs) -> Result:
        key = make.__name__, *given, *sorted(named.items())
        if key not in layout.known:
            layout.known[key] = make(layout, *given, **named)
        result: Result = layout.known[key]
        return result

    return known  # type: ignore[return-value]  # wraps() forgets that the first parameter is positional


def entries_on(tiles: np.ndarray, axis: int = 0) -> TileMapping:
    """Entry k along an axis on tiles[k]."""
    entry = np.arange(len(tiles))
    return TileMapping.split(axis, tiles, entry, entry + 1)


def in_bands(axis: int, bands: Iterable[tuple[int, int, TileMapping]]) -> TileMapping:
    """The mapping of (start, stop, mapping) of ranges along an axis; empty ones are left out."""
    some = (Band(axis=axis, start=start, stop=stop, mapping=each) for start, stop, each in bands if start < stop)
    return TileMapping.banded(tuple(some))


@dataclass(kw_only=True, eq=False, repr=False)
class Layout(ProgramBuilder):
    """A program in the making with the variables of a network, each where its placement puts it."""

    network: SpikingNetwork
    placement: Placement
    options: MappingOptions
    machine: MimdMachine
    lists: dict[str, tuple[Chips, int, Family | None]] = field(default_factory=dict)  # how each is spread
    layer_of: dict[str, str] = field(default_factory=dict)  # of variables that lie with neurons
    alone: set[str] = field(default_factory=set)  # single numbers that a layer shares, on one tile
    known: dict[Hashable, Any] = field(default_factory=dict)  # by `made_once`

    def layer(self, name: str) -> Layer:
        return next(layer for layer in self.network.layers if layer.name == name)

    def placed(self, name: str) -> LayerPlacement:
        return next(layer for layer in self.placement.layers if layer.name == name)

    def by_context(self, layer: str) -> Where:
        """Tiles and (row_start, row_stop, start, stop) of one vertex per tile of a layer and worker context, each with
        a share of the samples."""
        placed = self.placed(layer)
        shares = np.minimum(self.placement.worker_contexts, np.diff(placed.batch_edges))
        tiles = placed.homes[np.repeat(np.arange(placed.copies), shares)].ravel()
        return tiles, placed.rows(placed.cut_batch(shares))

    @property
    def per_sample(self) -> Where:
        """The tile of every sample, and its column."""
        return self.placement.sample_tiles, {"sample": np.arange(self.network.batch)}

    def by_sample_and_tile(self, layer: str, *, parts: bool = False) -> Where:
        """Tiles and (sample, start, stop) of one vertex per sample and tile of a layer, samples outermost so that
        neighbours touch neighbouring weights. parts: number a sample's tiles too."""
        placed, batch = self.placed(layer), self.network.batch
        columns = {
            "sample": np.repeat(np.arange(batch), len(placed.starts)),
            "start": np.tile(placed.starts, batch),
            "stop": np.tile(placed.stops, batch),
        }
        if parts:
            columns["part"] = np.tile(np.arange(len(placed.starts)), batch)
        return placed.homes[placed.copy_of].ravel(), columns

    def shape_of(self, layer: str) -> tuple[int, int]:
        """Of what its neurons have."""
        found = self.layer(layer)
        return self.network.batch * found.positions, found.columns

    def plane(self, name: str, layer: str, category: str, dtype: str = "float32") -> str:
        """Declare a variable of the shape of the layer's neurons that lies where they do."""
        return self.with_neurons(name, self.shape_of(layer), layer, category, dtype)

    # ---- variables

    def with_neurons(self, name: str, shape: tuple[int, ...], layer: str, category: str, dtype: str = "float32") -> str:
        """Declare a variable of [..., batch, neurons] that lies where the layer's neurons do."""
        self.layer_of[name] = layer
        return self.variable(name, shape, dtype, self.on_neurons(layer, len(shape) - 1), category)

    def pieces(self, *variables: str) -> tuple[str, np.ndarray, dict[str, np.ndarray]]:
        """How vertices share a variable (as in `PARTS` of codelets/dense.py), their tiles and columns: of the first of
        these variables that holds lists or lies with neurons, else a vertex for each row of the first."""
        for name in variables:
            if name in self.lists:
                return "slots", *self.slots_of(name)
            if name in self.layer_of:
                placed, several = self.placed(self.layer_of[name]), len(self.variables[name].shape) == 3
                tiles = placed.homes.ravel()
                if placed.copies > 1:
                    return "boxes of states" if several else "boxes", tiles, placed.rows(placed.batch_edges)
                return "states" if several else "columns", tiles, {"start": placed.starts, "stop": placed.stops}
        mapping = self.variables[variables[0]].mapping
        tiles = np.repeat(mapping.tiles, mapping.stops - mapping.starts)
        row = np.arange(len(tiles))
        return "rows", tiles, {"start": row, "stop": row + 1}

    def variable(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        mapping: TileMapping,
        category: str,
        *,
        persistent: bool = False,
        stored_bytes: int = 0,
        number_format: str = "",
        values: np.ndarray | None = None,
    ) -> str:
        """Declare a variable once, loaded with `values` where given; returns its name.

        It is stored in `stored_bytes` or in a format where these are given, else float32 as the options say and others
        as they are.
        """
        if name not in self.variables:
            stored = FORMATS[number_format].bytes if number_format else stored_bytes or self.value_bytes(dtype)
            everywhere = self.options.number_format if dtype == "float32" and stored == 2 else ""
            self.variables[name] = Variable(
                name=name,
                shape=shape,
                dtype=dtype,
                mapping=mapping,
                category=category,
                persistent=persistent,
                stored_bytes=0 if stored == np.dtype(dtype).itemsize else stored,
                number_format=number_format or everywhere,
                values=values,
            )
        return name

    def value_bytes(self, dtype: str) -> int:
        """Bytes of one element of `dtype` in tile memory."""
        return self.options.item_bytes if dtype == "float32" else int(np.dtype(dtype).itemsize)

    @made_once
    def by_neuron(self, layer: str, axis: int) -> TileMapping:
        """Split along `axis` as the layer's neurons are, once for every copy of its weights."""
        placed, neurons = self.placed(layer), self.layer(layer).neurons
        return in_bands(axis, ((0, neurons, self.on_tiles(placed, tiles, axis)) for tiles in placed.homes))

    @made_once
    def on_neurons(self, layer: str, axis: int) -> TileMapping:
        """Of [..., batch, neurons], neurons along `axis`: where the layer's neurons of each sample are."""
        placed = self.placed(layer)
        return self.in_parts(placed, placed.batch_edges, placed.homes, axis)

    @made_once
    def weights_of_copy(self, layer: str, copy: int, rows: int, axis: int) -> TileMapping:
        """Of [..., rows, neurons], neurons along `axis`: where one copy of a layer has weights of this shape."""
        placed = self.placed(layer)
        return self.in_parts(placed, placed.cut_rows(rows), placed.grid[copy], axis)

    def in_parts(self, placed: LayerPlacement, edges: np.ndarray, tiles: np.ndarray, axis: int) -> TileMapping:
        """Of [..., rows, neurons], neurons along `axis`: rows edges[k] to edges[k + 1] with the neurons on tiles[k]."""
        parts = zip(pairwise(edges.tolist()), tiles, strict=True)
        return in_bands(axis - 1, ((begin, end, self.on_tiles(placed, row, axis)) for (begin, end), row in parts))

    def over_weights(self, layer: str, rows: int) -> Where:
        """Tiles and (copy, row_start, row_stop, start, stop) of every tile that has weights of so many rows."""
        placed, edges = self.placed(layer), self.placed(layer).cut_rows(rows)
        copy, part, run = (column.ravel() for column in np.indices(placed.grid.shape))
        some = edges[part] < edges[part + 1]
        copy, part, run = copy[some], part[some], run[some]
        columns = {
            "copy": copy,
            "row_start": edges[part],
            "row_stop": edges[part + 1],
            "start": placed.starts[run],
            "stop": placed.stops[run],
        }
        return placed.grid[copy, part, run], columns

    def on_tiles(self, placed: LayerPlacement, tiles: np.ndarray, axis: int) -> TileMapping:
        """The neurons of a layer along an axis, on a row of its grid."""
        key = placed.name, int(tiles[0]), axis
        if key not in self.known:
            self.known[key] = TileMapping.split(axis, tiles, placed.starts, placed.stops)
        mapping: TileMapping = self.known[key]
        return mapping

    def shares(self, layer: str, rows: int) -> Iterator[tuple[int, int, int, np.ndarray]]:
        """(copy, first row, one past the last, tiles) of what each copy of a layer keeps of weights of so many rows."""
        placed = self.placed(layer)
        for part, (first, last) in enumerate(pairwise(placed.cut_rows(rows).tolist())):
            edges = first + np.arange(placed.copies + 1) * (last - first) // placed.copies
            for copy, (begin, end) in enumerate(pairwise(edges.tolist())):
                if begin < end:
                    yield copy, begin, end, placed.grid[copy, part]

    def sums_on_chips(self, layer: str, rows: int) -> Iterator[tuple[int, int, int, int, np.ndarray]]:
        """(chip whose share it is, chip, first row, one past the last, tiles) of where the copies on each chip add up
        weight gradients of so many rows: each takes as many rows, whosever share they are."""
        placed = self.placed(layer)
        chips = placed.chips_of_copies
        each = placed.copies // chips
        share, place = np.arange(placed.copies) // each, np.arange(placed.copies) // chips
        last_of_both = np.append(np.flatnonzero(np.diff(share) | np.diff(place)), placed.copies - 1)
        for part, (first, last) in enumerate(pairwise(placed.cut_rows(rows).tolist())):
            edges = first + np.append(0, last_of_both + 1) * (last - first) // placed.copies
            for at, (begin, end) in zip(last_of_both.tolist(), pairwise(edges.tolist()), strict=True):
                if begin < end:
                    for chip in range(chips):
                        yield int(share[at]), chip, begin, end, placed.grid[chip * each + place[at], part]

    def chips_of_shares(self, layer: str) -> np.ndarray:
        """int64[shares, chips of each]: the chips that share the weights of a layer, with as many copies each; of one
        share, all."""
        placed = self.placed(layer)
        chips = np.unique(placed.tiles // self.placement.tiles_per_chip)
        shares = placed.chips_of_copies
        return chips.reshape(shares, -1) if len(chips) % shares == 0 else chips[None]

    @made_once
    def trees(self, layer: str, rows: int) -> Trees:
        """Along which weights of so many rows go from chip to chip, and their gradients back."""
        groups, shares = self.chips_of_shares(layer), self.placed(layer).chips_of_copies
        nbytes = rows * self.layer(layer).neurons * self.value_bytes("float32")
        alike = len(groups) == shares  # else the chips do not have as many parts each
        return best_trees(groups, nbytes, self.machine) if alike else direct(shares)

    @made_once
    def shared(self, layer: str, rows: int) -> TileMapping:
        """Of [rows, neurons], one number for all copies: each copy holds a share of the rows of its neurons."""
        placed, shares = self.placed(layer), self.shares(layer, rows)
        return in_bands(0, ((begin, end, self.on_tiles(placed, tiles, 1)) for _, begin, end, tiles in shares))

    @made_once
    def by_sample(self, axis: int) -> TileMapping:
        """One sample after another over the sample tiles."""
        return entries_on(self.placement.sample_tiles, axis)

    def chips_of(self, layer: str) -> Chips:
        """The chips of a layer's lists; those of the input are where the first layer's are."""
        return self.placement.layers[0].chips if layer == INPUT else self.placed(layer).chips

    @made_once
    def slots(self, width: int, chips: Chips, item_bytes: int, least_bytes: int, family: Family | None) -> Where:
        """Tiles and (sample, slot_start, slot_stop) of runs of a [batch, width] variable, spread over the tiles of each
        sample's chip; by the rule 'lists_apart' over those of its family.

        A run stays within a sample, is of whole words and has at least `least_bytes` where the sample has them.
        """
        word, found = max(1, WORD_BYTES // item_bytes), []
        for chip in sorted(set(chips)):
            samples, usable = np.flatnonzero(np.array(chips) == chip), self._tiles_of(family, chip)
            if self._apart(family):  # no tile has two runs where each could have one: more tiles never take longer
                run = -(-width // (max(1, len(usable) // len(samples)) * word)) * word
            else:
                run = -(-len(samples) * width // (len(usable) * word)) * word
            run = min(width, max(1, least_bytes // item_bytes, run))
            runs = -(-width // run)
            sample, start = np.repeat(samples, runs), np.tile(np.arange(runs) * run, len(samples))
            # far more runs than tiles share tiles in turn
            tiles = usable[(np.arange(len(sample)) * len(usable)) // len(sample)]
            found.append((tiles, sample, start, np.minimum(start + run, width)))
        tiles, sample, start, stop = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(sample, kind="stable")
        return tiles[order], {"sample": sample[order], "slot_start": start[order], "slot_stop": stop[order]}

    def slots_of(self, variable: str) -> Where:
        """`slots` of a variable that `spread` declared."""
        held, (chips, least_bytes, family) = self.variables[variable], self.lists[variable]
        return self.slots(held.shape[-1], chips, held.item_bytes, least_bytes, family)

    def _apart(self, family: Family | None) -> bool:
        """Whether lists of this family have tiles of their own."""
        return family is not None and "lists_apart" in self.options.rules

    def _tiles_of(self, family: Family | None, chip: int) -> np.ndarray:
        """Tiles of a chip for a family of lists: every n-th, where each of n families has tiles of its own."""
        usable = self.placement.usable_on(chip)
        if not self._apart(family) or family is None:
            return usable
        layers = [INPUT, *(layer.name for layer in self.network.layers)]
        place, count = LISTS.index(family[0]) * len(layers) + layers.index(family[1]), len(LISTS) * len(layers)
        return usable[place::count] if len(usable) >= count else usable

    def rows_of(self, variable: str) -> Where:
        """Tiles and (sample, slot_start, slot_stop) of a declared variable of [batch, width] as it lies: whole samples
        or runs within samples."""
        held = self.variables[variable]
        if held.mapping.axis == FLAT:
            tiles, boxes = boxes_of_runs(held.mapping, held.shape)
            return tiles, {"sample": boxes[:, 0, 0], "slot_start": boxes[:, 1, 0], "slot_stop": boxes[:, 1, 1]}
        run, number = repeat_each(held.mapping.stops - held.mapping.starts)
        sample, none = held.mapping.starts[run] + number, np.zeros_like(run)
        return held.mapping.tiles[run], {"sample": sample, "slot_start": none, "slot_stop": none + held.shape[1]}

    def spread(
        self,
        name: str,
        width: int,
        dtype: str,
        category: str,
        chips: Chips,
        *,
        timesteps: int = 0,
        least_bytes: int = WORD_BYTES,
        family: Family | None = None,
    ) -> str:
        """A [batch, width] variable, or a sequence of it, in runs over the tiles of chips as `slots` says."""
        self.lists[name] = chips, least_bytes, family
        mapping = self._in_runs(
            PER_TIMESTEP if timesteps else FLAT, width, chips, self.value_bytes(dtype), least_bytes, family
        )
        shape = (timesteps, self.network.batch, width) if timesteps else (self.network.batch, width)
        return self.variable(name, shape, dtype, mapping, category)

    @made_once
    def _in_runs(
        self, axis: int, width: int, chips: Chips, item_bytes: int, least_bytes: int, family: Family | None
    ) -> TileMapping:
        """Of [batch, width], in the runs of `slots`."""
        tiles, columns = self.slots(width, chips, item_bytes, least_bytes, family)
        offset = columns["sample"] * width
        return TileMapping.split(axis, tiles, offset + columns["slot_start"], offset + columns["slot_stop"])

    def spikes(
        self, name: str, capacity: int, chips: Chips, layer: str, *, timesteps: int = 0, least_bytes: int = WORD_BYTES
    ) -> tuple[str, str]:
        """Ids and counts of a layer's sparse spikes, spread; a whole sequence when `timesteps` is given."""
        ids, counts = (
            self.spread(
                f"{what}.{name}",
                width,
                self.options.id_dtype,
                "spike ids",
                chips,
                timesteps=timesteps,
                least_bytes=least_bytes,
                family=(what, layer),
            )
            for what, width in (("ids", capacity), ("counts", 2))
        )
        return ids, counts

    def linear_runs(self, layer: str) -> Where:
        """Tiles and columns of one number per neuron in runs over the layer's first chip, as the library maps."""
        width = self.layer(layer).neurons
        usable = self.placement.usable_on(self.chips_of(layer)[0])
        run = max(LINEAR_BYTES // self.value_bytes("float32"), -(-width // len(usable)))
        starts = np.arange(0, width, run)
        # a copy, so that those of all tiles are freed
        return usable[: len(starts)].copy(), {"start": starts, "stop": np.minimum(starts + run, width)}

    def numbers(self, name: str, shape: tuple[int, int], category: str, layer: str, **how: Any) -> str:
        """Declare a variable that lies as a parameter of this shape does: on one tile where it is one number of the
        layer; how: persistent, number_format."""
        shared = shape == (1, 1)
        tile = self.placed(layer).homes.ravel()[:1]
        mapping = entries_on(tile, 1) if shared else self.shared(layer, shape[0])
        self.alone |= {name} if shared else set()
        stored = self.options.moment_bytes if category == MOMENTS else 0
        return self.variable(name, shape, "float32", mapping, category, stored_bytes=stored, **how)

    def over_row(self, layer: str) -> Where:
        """Tiles and columns of what is mapped `by_neuron`, of one copy of the layer."""
        placed = self.placed(layer)
        return placed.homes[0], {"start": placed.starts, "stop": placed.stops}

    def copies_of(self, layer: str) -> int:
        """How many copies of a layer share its samples."""
        return self.placed(layer).copies

    def tiles_of(self, layer: str) -> np.ndarray:
        """The tiles that hold neurons of a layer."""
        return self.placed(layer).tiles

    def over_matrix(self, codelet: Codelet, matrix: str, layer: str) -> Vertices:
        """The codelet, its tiles and columns for work on all of a [rows, neurons] matrix where it lies.

        `codelet` works on whole columns of the matrix (":", "start:stop"), one vertex per tile of the layer.
        """
        if matrix in self.alone:
            return codelet, self.variables[matrix].mapping.tiles, {"start": np.zeros(1, int), "stop": np.ones(1, int)}
        shares, placed = list(self.shares(layer, self.variables[matrix].shape[0])), self.placed(layer)
        if len(shares) == 1:
            return codelet, shares[0][3], {"start": placed.starts, "stop": placed.stops}
        edges = np.array([0, *(end for _, _, end, _ in shares)])
        return on_rows(codelet), np.concatenate([tiles for *_, tiles in shares]), placed.rows(edges)

    def over_neurons(self, codelet: Codelet, layer: str, whole: tuple[str, ...] = ()) -> Vertices:
        """The codelet, its tiles and columns for work on all of a [batch, neurons] plane where it lies.

        `codelet` works on whole columns of the plane (":", "start:stop"), one vertex per tile of the states. whole: its
        fields that have no samples.
        """
        placed = self.placed(layer)
        if placed.copies == 1:
            return codelet, placed.homes.ravel(), {"start": placed.starts, "stop": placed.stops}
        return on_rows(codelet, whole), placed.homes.ravel(), placed.rows(placed.batch_edges)
