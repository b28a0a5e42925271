"""What the lowering rules of dense spikes write into: matrices in boxes, and copies between two ways to lie."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mimdsim.codelets import dense
from mimdsim.codelets import elementwise as codelets
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.layout import Vertices, Where
from mimdsim.compiler.place.products import ArrayPlacement, Blocks
from mimdsim.graph import Graph, Operation
from mimdsim.program import Codelet, Program, TileMapping


@dataclass(kw_only=True, eq=False, repr=False)
class ArrayLowering(Lowering):
    """A lowering whose matrices lie in boxes: `blocks` by variable. steady: sequences that are the same in every
    timestep, by the matrix they repeat."""

    blocks: dict[str, Blocks] = field(default_factory=dict)
    steady: dict[str, str] = field(default_factory=dict)

    @property
    def arrays(self) -> ArrayPlacement:
        assert self.placement.arrays is not None
        return self.placement.arrays

    def states(self, layer: str) -> Blocks:
        """Where the neurons of a layer lie, all samples."""
        found = self.layer(layer)
        if found.unweighted or found.gates > 1 or (found.convolution and found.convolution.after):
            return self.arrays.spread(*self.shape_of(layer))
        return self.arrays.forward(self.product_rows(layer), *found.parameters[0].shape, self.groups_of(layer)).result

    def groups_of(self, layer: str) -> int:
        """Of the products of a layer."""
        convolution = self.layer(layer).convolution
        return convolution.groups if convolution else 1

    def product_rows(self, layer: str) -> int:
        """Of the products of a layer: its samples, or the positions of them."""
        convolution = self.layer(layer).convolution
        return self.network.batch * (convolution.made.positions if convolution else 1)

    def blocks_for_reader(self, body: Graph, value: str) -> Blocks:
        """How the product that reads a value first wants it; over all tiles where no product does."""
        reader = next(step for step in body.operations if value in step.inputs)
        rows, columns = body.value(value).shape
        others = [body.value(name).shape for name in reader.inputs if name != value]
        groups = reader.attributes or 1
        if reader.kind == "matmul":
            return self.arrays.forward(rows, columns // groups, others[0][1], groups).left
        if reader.kind == "matmul_weight_gradient":
            return self.arrays.weight_gradient(rows, columns // groups, others[0][1], groups).left.transposed
        return self.arrays.spread(rows, columns)

    def matrix(
        self,
        name: str,
        shape: tuple[int, ...],
        blocks: Blocks,
        category: str,
        *,
        timesteps: int = 0,
        persistent: bool = False,
        number_format: str = "",
    ) -> str:
        """Declare a matrix, states [states, batch, neurons], or a sequence of these, in boxes; returns its name."""
        mapping = blocks.mapping(shape, sequence=timesteps > 0)
        whole = (timesteps, *shape) if timesteps else shape
        self.blocks[name] = blocks
        return self.variable(
            name, whole, "float32", mapping, category, persistent=persistent, number_format=number_format
        )

    @property
    def category(self) -> str:
        """Of what layers make in this phase."""
        return "neuron states" if self.phase == "forward" else "gradients"

    def result(self, op: Operation, blocks: Blocks, category: str = "", output: int = 0) -> str:
        """The variable of an operation's output: the one it was given to leave its value in, or a new one."""
        value = op.outputs[output]
        if value not in self.storage:
            *timesteps, rows, columns = self.values[value].shape
            whole = timesteps[0] if timesteps else 0
            made = self.matrix(value, (rows, columns), blocks, category or self.category, timesteps=whole)
            self.storage[value] = (made,)
        return self.storage[value][0]

    def by_context(self, layer: str) -> Where:
        """Every box of a layer's states; for vertices written by hand in a run of rows per worker context."""
        blocks, shares = self.states(layer), self.placement.worker_contexts
        if self.options.dense_neurons != "fused":
            return blocks.tiles, blocks.columns
        share, box = (column.ravel() for column in np.indices((shares, len(blocks.tiles))))
        every = blocks.some(box)
        edges = (every.row_start + (part * (every.row_stop - every.row_start)) // shares for part in (share, share + 1))
        cut = replace(every, **dict(zip(("row_start", "row_stop"), edges, strict=True)))
        cut = cut.some(cut.row_stop > cut.row_start)
        return cut.tiles, cut.columns

    def with_neurons(self, name: str, shape: tuple[int, ...], layer: str, category: str, dtype: str = "float32") -> str:
        """Declare a matrix, or a sequence of it, that lies where the layer's neurons do."""
        timesteps, *matrix = (0, *shape) if len(shape) == 2 else shape
        return self.matrix(name, tuple(matrix), self.states(layer), category, timesteps=timesteps)

    def over_neurons(self, codelet: Codelet, layer: str, whole: tuple[str, ...] = ()) -> Vertices:
        """As with sparse spikes, but one vertex per box."""
        blocks = self.states(layer)
        return codelets.on_rows(codelet, whole), blocks.tiles, blocks.columns

    def by_neuron(self, layer: str, axis: int) -> TileMapping:
        """Numbers per neuron that are no matrix over samples: in runs as the library maps linearly."""
        row = self.arrays.row(self.layer(layer).columns)
        return TileMapping.split(axis, row.tiles, row.start, row.stop)

    def on_boxes(
        self,
        stage: str,
        op: Operation | str,
        codelet: Codelet,
        blocks: Blocks,
        operands: dict[str, str],
        columns: dict[str, np.ndarray] | None = None,
        **how: Any,
    ) -> None:
        """`compute` with one vertex for every box of `blocks`."""
        self.compute(stage, op, codelet, blocks.tiles, blocks.columns | (columns or {}), operands, **how)

    def element_wise(
        self,
        stage: str,
        op: Operation,
        codelet: Codelet,
        *given: str,
        blocks: Blocks | None = None,
        category: str = "",
        columns: dict[str, np.ndarray] | None = None,
        **how: Any,
    ) -> str:
        """The result of an operation by a codelet whose fields are its operands in order, by default all inputs: left
        in the first if the codelet updates that, else in the field it writes, as `blocks` or the first operand lie.
        Returns the variable."""
        variables = given or [self.storage[name][0] for name in op.inputs]
        if codelet.fields[0].access == "update":
            self.storage[op.outputs[0]] = (variables[0],)
        made = self.result(op, blocks or self.blocks[variables[0]], category)
        operands = dict(zip((item.name for item in codelet.fields if item.reads), variables, strict=True))
        operands |= {item.name: made for item in codelet.fields if not item.reads}
        self.on_boxes(stage, op, codelet, self.blocks[made], operands, columns, **how)
        return made

    def numbers(self, name: str, shape: tuple[int, int], category: str, layer: str, **how: Any) -> str:
        """Declare a matrix that lies as a parameter of this shape does; how: persistent, number_format."""
        norm, columns = self.layer(layer).norm, self.layer(layer).columns
        of_norm = norm is not None and shape == (norm.rows, columns)
        blocks = self.arrays.row(shape[1], shape[0] if of_norm else 1)
        if shape[0] > 1 and not of_norm:
            blocks = self.arrays.forward(self.product_rows(layer), *shape, self.groups_of(layer)).right
        return self.matrix(name, shape, blocks, category, **how)

    def over_row(self, layer: str) -> Where:
        """Tiles and columns of what is mapped `by_neuron`."""
        row = self.arrays.row(self.layer(layer).columns)
        return row.tiles, {"start": row.start, "stop": row.stop}

    def copies_of(self, layer: str) -> int:
        """Every neuron of a sample is there once."""
        return 1

    def tiles_of(self, layer: str) -> np.ndarray:
        """The tiles that hold neurons of a layer."""
        return np.unique(self.states(layer).tiles)

    def over_matrix(self, codelet: Codelet, matrix: str, layer: str) -> Vertices:
        """As with sparse spikes, but one vertex per box."""
        blocks = self.blocks[matrix]
        return codelets.on_boxes(codelet), blocks.tiles, blocks.columns

    def pieces(self, *variables: str) -> tuple[str, np.ndarray, dict[str, np.ndarray]]:
        """As with sparse spikes, but always one vertex per box of the first variable."""
        blocks, several = self.blocks[variables[0]], len(self.variables[variables[0]].shape) == 3
        return "boxes of states" if several else "boxes", blocks.tiles, blocks.columns

    def arrange(self, source: str, target: str, blocks: Blocks, category: str, op: str, layer: str) -> str:
        """`source` as `blocks` want it: the same variable if it lies so, else a copy with an exchange of its own.

        Where other neighbours lie together in memory the pieces are transposed on the tile, else only copied.
        """
        held = self.blocks[source]
        if held is blocks:
            return source
        shape, number_format = self.variables[source].shape, self.variables[source].number_format
        self.matrix(target, (shape[0], shape[1]), blocks, category, number_format=number_format)
        codelet = codelets.ARRANGE_BOXES if held.fastest == blocks.fastest else codelets.TRANSPOSE_BOXES
        operands, stage = {"source": source, "target": target}, f"arrange {target}"
        self.on_boxes(stage, op, codelet, blocks, operands, layer=layer, named=False, mergeable=False)
        return target

    @property
    def traced(self) -> bool:
        """Whether a timestep is a call of a function that a framework's compiler found repeated in an unrolled trace.

        What a call reads is copied to where the function wants it, what it makes is copied from there: both addresses
        are known when the program is compiled (PopART: outlining above `outlineThreshold`, CallOpx, commit 1e52052).
        """
        return self.options.dense_neurons == "traced"

    def copied(
        self, source: str, target: str, category: str, *, source_shift: int | None = None, layer: str = ""
    ) -> str:
        """`target`, declared if it is new, with a copy of `source` (of its entry at t plus a shift) where that lies."""
        blocks = self.blocks[source]
        shape = self.variables[source].shape[(source_shift is not None) :]
        if target not in self.variables:
            self.matrix(target, shape, blocks, category)
        codelet = dense.copy_codelet(self.pieces(target)[0], source_shift)
        operands, stage = {"source": source, "target": target}, f"pass {target}"
        self.on_boxes(stage, "call", codelet, blocks, operands, layer=layer, named=False, mergeable=False)
        return target

    def program(self, **about: Any) -> Program:
        """Every tile works for all layers."""
        return super().program(layer_of_tile=("all layers",) * self.tiles, **about)
