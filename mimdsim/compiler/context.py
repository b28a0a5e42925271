"""What the lowering rules write into: storage of graph values, supersteps of the current block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mimdsim.codelets.dense import FILL_VECTOR
from mimdsim.codelets.formats import in_format, with_narrow
from mimdsim.compiler.layout import MOMENTS, Layout, entries_on, in_bands
from mimdsim.graph import Graph, Operation, Scan, Value
from mimdsim.graph.names import INPUT, listed
from mimdsim.program import Codelet, Copy, Program, Superstep, TileFormula, TileMapping
from mimdsim.program.loops import Lists, Recorded

Rules = dict[tuple[str, ...], Callable[..., None]]  # kinds of fused operations -> function(lowering, *operations)


def together(*ops: Operation) -> Operation:
    """What one vertex does the work of: named by all of the operations, else the last one."""
    return replace(ops[-1], kind="+".join(op.kind for op in ops))


@dataclass(kw_only=True, eq=False, repr=False)
class Lowering(Layout):
    """The builder of a network's program. `storage` tells in which variables a graph value lies: one for an array, two
    (ids, counts) for sparse spikes."""

    rules: Rules
    lower_body: Callable[[Lowering, Scan], None]  # the operations of a scan
    storage: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)  # weights that copies of a layer use -> those that are trained
    recorded: dict[str, tuple[str, ...]] = field(default_factory=dict)
    phase: str = "forward"
    values: dict[str, Value] = field(default_factory=dict)  # of the graph or body being lowered
    operations: tuple[Operation, ...] = ()  # being lowered
    stash: Any = None  # what of the forward scan is made anew (`lower_stash.Stash`), None: nothing
    scan_body: Graph | None = None  # being lowered
    carried: frozenset[str] = frozenset()  # what enters the body being lowered from another timestep, or recorded
    sequences: dict[str, str] = field(default_factory=dict)  # body value -> the variable that keeps all its timesteps

    def origin(self, spikes: str) -> Recorded:
        """The layer (or 'input') whose spikes a body value holds, and at which timestep from this one."""
        value = self.values[spikes]
        return Recorded(layer=value.layer, shift=value.shift)

    def constant(
        self,
        name: str,
        layer: str,
        value: float | np.float32,
        stage: str,
        tiles: np.ndarray,
        columns: dict[str, np.ndarray],
    ) -> None:
        """A float per neuron of `layer`, set once."""
        mapping, shape = TileMapping.split(0, tiles, columns["start"], columns["stop"]), (self.layer(layer).neurons,)
        operands = {"target": self.variable(f"{name}.{layer}", shape, "float32", mapping, "neuron states")}
        constants = {"value": value}
        self.compute(stage, "zeros", FILL_VECTOR, tiles, columns, operands, layer=layer, constants=constants)

    def parameter(self, name: str, shape: tuple[int, int], category: str, layer: str) -> None:
        """Declare numbers that training keeps from step to step: weights, or what an optimiser keeps of them.

        Of weights that several copies of a layer use, each copy keeps and updates a share, and gets the others' when a
        training step begins.
        """
        self.inputs[name] = self.numbers(name, shape, category, layer, persistent=True)
        self.storage[name] = (name,)
        # what is worked out before the timesteps alone reads some
        before = {own.name for of in self.network.layers for each in of.derived for own in each.of}
        if category != MOMENTS and name not in self.alone | before:
            self.storage[name] = (self.on_every_copy(name, shape, category, layer),)

    def on_every_copy(self, name: str, shape: tuple[int, int], category: str, layer: str) -> str:
        """The variable that holds whole weights with each of several copies of a layer, which keep shares of them."""
        if self.copies_of(layer) == 1:
            return name
        copies = range(self.copies_of(layer))
        everywhere = in_bands(1, ((0, shape[1], self.weights_of_copy(layer, copy, shape[0], 1)) for copy in copies))
        number_format = self.variables[name].number_format
        used = self.variable(f"{name}.copies", shape, "float32", everywhere, category, number_format=number_format)
        self.kept[used] = name
        trees, groups = self.trees(layer, shape[0]), self.chips_of_shares(layer)
        relay = trees.relay(groups, self.placement.chips) if trees.steps > 1 else None
        self.copies("share weights", "copy", Copy(source=name, target=used, relay=relay), layer=layer)
        return used

    def accumulate(self, gradient: Operation, add: Operation) -> str:
        """The variable that `add` adds a gradient to, which its sum is left in."""
        (total,) = (name for name in add.inputs if name not in gradient.outputs)
        self.storage[add.outputs[0]] = self.storage[total]
        return self.storage[total][0]

    # ---- supersteps

    def _superstep(self, stage: str, op: str, layer: str, **how: Any) -> Superstep:
        return Superstep(name=f"{stage} {layer}".strip(), op=op, phase=self.phase, stage=stage, **how)

    def copies(self, stage: str, op: str, *copies: Copy, layer: str = "") -> None:
        """Add copies, which a superstep's exchange makes."""
        self.add(self._superstep(stage, op, layer, copies=copies))

    @contextmanager
    def superstep(self, stage: str, op: str, *, layer: str = "", **how: Any) -> Iterator[None]:
        """What is added within shares a superstep."""
        self.open_superstep = self._superstep(stage, op, layer, **how)
        yield
        shared, self.open_superstep = self.open_superstep, None
        self.add(replace(shared, defines=tuple(dict.fromkeys(shared.defines))))

    def compute(
        self,
        stage: str,
        op: Operation | str,
        codelet: Codelet,
        tiles: np.ndarray,
        columns: dict[str, np.ndarray],
        operands: dict[str, str],
        *,
        layer: str | None = None,
        named: bool = True,
        follows: Recorded | None = None,
        constants: Mapping[str, Any] | None = None,
        defines: tuple[tuple[str, str], ...] | None = None,
        mergeable: bool = True,
    ) -> None:
        """Add vertices for an operation and by default its layer, in the number formats of the options.

        Of operands and constants they get those that the codelet has. named: after the layer. follows: whose spikes say
        how often loops run, and when. defines: (variable, graph value) of what is complete then, by default all
        results that lie in variables that the vertices write.
        """
        operands = {item.name: operands[item.name] for item in codelet.fields}
        if defines is None:
            defines = () if isinstance(op, str) else self._results(codelet, operands)
        kind, owner = (op, "") if isinstance(op, str) else (op.kind, op.layer)
        owner = owner if layer is None else layer
        self.add_vertices(
            self._superstep(stage, kind, owner if named else "", defines=defines, mergeable=mergeable),
            self._in_format(codelet, operands),
            tiles,
            operands,
            columns,
            layer=owner,
            extents=_recorded_extents(codelet, follows) if follows is not None else {},
            constants={name: (constants or {})[name] for name in codelet.constants},
        )

    def by_tile(
        self, stage: str, op: Operation, codelet: Codelet, matrix: str, operands: dict[str, str], category: str
    ) -> tuple[str, np.ndarray]:
        """A number of every tile that holds some of a matrix, as the variable 'partial' of `codelet`; and the tiles."""
        codelet, tiles, columns = self.over_matrix(codelet, matrix, op.layer)
        partial = self.variable(f"{op.name}.parts", (len(tiles),), "float32", entries_on(tiles), category)
        columns = {**columns, "part": np.arange(len(tiles))}
        self.compute(stage, op, codelet, tiles, columns, {**operands, "partial": partial})
        return partial, tiles

    def _results(self, codelet: Codelet, operands: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Of the operations being lowered; sums in replicas, which have an axis more, are none yet."""
        written = {operands[item.name] for item in codelet.fields if item.writes}
        values = (self.values[name] for op in self.operations for name in op.outputs if name in self.storage)
        return tuple(
            pair
            for value in values
            for pair in defines_of(self.storage[value.name], value)
            if pair[0] in written and len(self.variables[pair[0]].shape) == len(value.shape)
        )

    def _in_format(self, codelet: Codelet, operands: Mapping[str, str]) -> Codelet:
        """The codelet for the formats chosen; library vertices by the variable they move first."""
        moved = self.variables[operands[codelet.fields[0].name]]
        formats = {
            item.name: self.variables[operands[item.name]].number_format for item in codelet.fields if item.reads
        }
        own = tuple((name, each) for name, each in formats.items() if each not in ("", self.options.number_format))
        everywhere = self.options.number_format
        other = moved.number_format not in ("", everywhere)
        # what makes weights of a format counts that itself; what moves numbers of a byte on a tile costs what it costs
        # for others: no formula is known
        alone = other and (codelet.flops or moved.item_bytes == 1)
        # what an optimiser keeps of a parameter is as large as that, unlike the count of training steps
        kept = (held for name in operands.values() if len((held := self.variables[name]).shape) > 1)
        made = in_format(
            codelet,
            id_bytes=self.options.id_bytes,
            value_bytes=self.options.item_bytes,
            number_format=everywhere if other or not isinstance(codelet.cost, TileFormula) else moved.number_format,
            moved_bytes=self.options.item_bytes if alone else moved.item_bytes,
            kept_bytes=max((held.item_bytes for held in kept if held.category == MOMENTS), default=None),
        )
        return with_narrow(made, own, self._of_spikes()) if own and codelet.flops else made

    def _of_spikes(self) -> bool:
        """Whether what is lowered multiplies weights with zeros and ones, not with gradients or other numbers."""
        read = [self.values[op.inputs[0]] for op in self.operations if op.kind in ("matmul", "synapse")]
        spiking = {one.name for one in self.network.layers if one.spiking and (not one.cell or one.cell.of.spiking)}
        spiking |= {INPUT} if self.network.encoding == "events" else set()
        return bool(read) and all(one.role == "spikes" and one.layer in spiking for one in read)

    def program(self, **about: Any) -> Program:
        layer_of_tile = [""] * self.tiles
        for layer in self.placement.layers:
            for tile in layer.tiles.tolist():
                layer_of_tile[tile] = layer.name
        names = tuple(layer.name for layer in self.network.layers)
        about = {"layer_of_tile": tuple(layer_of_tile), "layers": names, "recorded": dict(self.recorded)} | about
        return super().program(**about)


def _recorded_extents(codelet: Codelet, follows: Recorded) -> dict[str, Recorded]:
    """Those of a table that the codelet leaves to recorded spikes; of hits by row, `follows` says which."""
    found: dict[str, Recorded] = {}
    for name, each in codelet.extents.items():
        if isinstance(each, Lists):
            which = {"which": getattr(follows, "which", each.which[0])} if each.which else {}
            found[name] = each.kind(layer=follows.layer, shift=follows.shift, **which)
    return found


def lower_in_place(low: Lowering, op: Operation) -> None:
    """The same value, which needs no other place."""
    low.storage[op.outputs[0]] = low.storage[op.inputs[0]]


def defines_of(storage: tuple[str, ...], value: Value) -> tuple[tuple[str, str], ...]:
    """(variable, graph value) pairs; sparse spikes give their ids and their counts."""
    names = listed(value.name) if value.form == "sparse" else (value.name,)
    return tuple(zip(storage, names, strict=False))
