"""From the training graph to GPU kernels, operation by operation; sparse spike operations become dense products.

A loop strategy launches the kernels of a scan's body once per timestep. The hoisted one takes each product over all
timesteps at once: one whose rows are samples grows to timesteps * batch rows, a summed weight gradient to a reduction
of that length; the elementwise operations between them become kernels that walk the timesteps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.gpu.convolution import ConvolutionPass, Pass
from mimdsim.gpu.dependence import (
    GATHERED,
    MATRIX_PRODUCTS,
    OVER_ROWS,
    check_hoistable,
    fused_accumulations,
    product_levels,
    recurrent_parts,
    walked_operations,
)
from mimdsim.gpu.gemm import ALIGNED_BYTES
from mimdsim.gpu.kernels import (
    LIST_PRODUCTS,
    HostWait,
    InputEncoding,
    Kernel,
    KernelProgram,
    Product,
    Recurrent,
    Stream,
    check_lists,
    expansion_kernels,
    list_kernel,
    list_making,
    streamed_inputs,
    transfer_bytes,
)
from mimdsim.gpu.strategies import Strategy
from mimdsim.graph.convolution import Patches
from mimdsim.graph.operations import OPERATIONS
from mimdsim.graph.records import Graph, Operation, Scan, elements
from mimdsim.graph.synapses import BySample
from mimdsim.machine.gpu import ELEMENT_BYTES, Precision

MASTER_BYTES = 4  # weights, their moments and their update stay fp32 in every precision


def lower_to_kernels(
    graph: Graph,
    strategy: Strategy,
    *,
    precision: Precision,
    input_encoding: InputEncoding = "as_graph",
    counts: Mapping[str, np.ndarray] | None = None,
) -> KernelProgram:
    """The kernels of one training step of `graph`.

    `counts`: of every layer's lists, as recorded, for strategies that follow them. Raises MappingError when the
    strategy is hoisted and a product depends on itself through the timesteps, when it follows lists and there are none,
    or when the graph's input has no ids and 'events' are selected.
    """
    element_bytes = ELEMENT_BYTES[precision]
    kernels: list[Kernel] = list(expansion_kernels(graph, element_bytes, input_encoding))
    streamed = streamed_inputs(graph)  # weights and moments stay on the device from one training step to the next
    buffers = sum(
        elements(graph.value(name)) * (element_bytes if name in streamed else MASTER_BYTES) for name in graph.inputs
    )
    working_set: dict[str, int] = {}
    for op in graph.operations:
        if op.kind == "scan":
            body = _Body(op=op, strategy=strategy, element_bytes=element_bytes, counts=counts or {})
            kernels += body.kernels()
            buffers += body.unstacked_bytes()
            constants = op.inputs[len(op.inputs) - len(op.attributes.constants) :]
            working_set |= {name: elements(graph.value(name)) * element_bytes for name in constants}
            working_set |= {f"{op.name}.{name}": amount for name, amount in body.accumulator_bytes().items()}
        elif op.kind == "zeros" and strategy.hoisted:
            continue  # kernels that walk the timesteps start from zero by themselves
        elif op.kind == "after_burn_in":
            continue  # a view
        else:
            kernels.append(_outer_kernel(graph, op, element_bytes))
        if op.phase != "update" and op.kind != "zeros":  # updates are in place, starts become the final values
            buffers += sum(elements(graph.value(name)) * element_bytes for name in op.outputs)
    sent = transfer_bytes(graph, input_encoding)
    return KernelProgram(
        kernels=tuple(kernels),
        working_set_bytes=sum(working_set.values()),
        bytes_needed=buffers + 2 * sent,  # one batch in use, the next one in transfer
        input_bytes=sent,
    )


def _outer_kernel(graph: Graph, op: Operation, element_bytes: int) -> Kernel:
    inputs = tuple(graph.value(name) for name in op.inputs)
    flops = OPERATIONS[op.kind].flops(inputs, op.attributes)
    if op.kind in MATRIX_PRODUCTS:
        m, n = graph.value(op.outputs[0]).shape
        return Product(name=op.name, op=op.kind, phase=op.phase, times=1, m=m, n=n, k=flops // (2 * m * n))
    read = op.inputs if op.kind != "zeros" else ()  # only the dtype of the input is used
    again = op.inputs[:1] if op.kind in OVER_ROWS else ()
    moved = sum(elements(graph.value(name)) for name in (*dict.fromkeys(read), *again, *op.outputs))
    width = MASTER_BYTES if op.phase == "update" else element_bytes
    return Stream(name=op.name, op=op.kind, phase=op.phase, times=1, bytes_moved=moved * width, flops=flops)


@dataclass(frozen=True, kw_only=True)
class _Body:
    """The body of one scan, and how its operations share kernels."""

    op: Operation
    strategy: Strategy
    element_bytes: int
    counts: Mapping[str, np.ndarray]

    @property
    def scan(self) -> Scan:
        scan: Scan = self.op.attributes
        return scan

    def kernels(self) -> list[Kernel]:
        if self.strategy.hoisted:
            self._check_order()
        if self.strategy.lists:
            check_lists(self.op)
        absorbed = fused_accumulations(self.scan)
        inside = {op.name: part for part in self._recurrent() for op in part}
        groups = self._groups(inside.keys() | set(absorbed.values()))
        group_at = {group[0].name: group for group in groups}
        made: list[Kernel] = list(self._bookkeeping())
        for inner in self.scan.body.operations:
            if inner.name in inside:
                part = inside[inner.name]
                if inner is part[0]:
                    made.append(self._persistent_kernel(part))
                continue
            if self.strategy.lists and inner.kind in LIST_PRODUCTS:
                made.append(list_kernel(self.op, inner, self.counts, self.strategy.lists))
            elif inner.kind in MATRIX_PRODUCTS:
                made.append(self._product(inner, accumulate=inner.name in absorbed))
            elif inner.name in group_at:
                made += [self._stream(chunk) for chunk in self._chunks(group_at[inner.name])]
            if self.strategy.lists == "hoisted":
                made += [
                    list_making(self.op, name, inner.layer, inner.phase)
                    for name in inner.outputs
                    if self.scan.body.value(name).form == "sparse"
                ]
        return made

    def _check_order(self) -> None:
        """Raises MappingError if timesteps cannot be taken at once, or if no recurrent layer exists for a kernel to
        keep."""
        if not self.strategy.persistent:
            check_hoistable(self.op, self.strategy.name)
        elif over := [one for part in self._recurrent() for one in part if one.kind in (*OVER_ROWS, *GATHERED)]:
            what, missing = ("convolution", "places") if over[0].kind in GATHERED else ("batch norm", "samples")
            raise MappingError(
                f"strategy '{self.strategy.name}': a {what} of scan '{self.op.name}' depends on itself through the "
                f"timesteps, and a kernel that walks them has not all {missing}; use the strategy 'graph_replay'"
            )
        elif not self._recurrent() and not self.strategy.lists:
            raise MappingError(
                f"strategy 'persistent': no matrix product of scan '{self.op.name}' depends on itself through the "
                "timesteps, so there is nothing to keep on the chip; use the strategy 'hoisted'"
            )

    def _recurrent(self) -> tuple[tuple[Operation, ...], ...]:
        return recurrent_parts(self.scan) if self.strategy.persistent else ()

    def _persistent_kernel(self, part: tuple[Operation, ...]) -> Recurrent:
        """The persistent kernel of a recurrent layer, or of several that feed each other."""
        products = [inner for inner in part if inner.kind in MATRIX_PRODUCTS]
        batch = self.scan.body.value(products[0].outputs[0]).shape[0]
        neurons, gates = self._width(products), self._gates()
        weights = {name for inner in products for name in inner.inputs} & set(self.scan.constants)
        streamed = self._elements(self._reads(part) - weights) + self._elements(self._writes(part))
        timesteps = self.scan.timesteps
        return Recurrent(
            name=f"{self.op.name}.{'+'.join(inner.name for inner in part)}",
            op="+".join(inner.kind for inner in part),
            phase=part[0].phase,
            times=1,
            neurons=neurons,
            gates=max(gates.get(inner.layer, 1) for inner in products),
            batch=batch,
            timesteps=timesteps,
            bytes_moved=streamed * self.element_bytes * timesteps,
            flops=self._flops(part) * timesteps,
            entries=self._entries(products) if self.strategy.lists else None,
        )

    def _entries(self, products: Sequence[Operation]) -> float:
        """Rows of weights, as wide as all its layers, that a sample follows at a timestep in a persistent kernel."""
        assert self.strategy.lists
        batch = self.scan.body.value(products[0].outputs[0]).shape[0]
        kernels = [list_kernel(self.op, inner, self.counts, "hoisted") for inner in products]
        return sum(each.flops for each in kernels) / (self.scan.timesteps * batch * self._width(products))

    def _width(self, products: Sequence[Operation]) -> int:
        """Neurons whose currents, or whose gradients, these products make; those of a value count once."""
        gates = {inner.layer: self._gates().get(inner.layer, 1) if inner.kind == "matmul" else 1 for inner in products}
        made = {inner.layer: self.scan.body.value(inner.outputs[0]).shape[1] for inner in products}
        return sum(width // gates[layer] for layer, width in made.items())

    def _gates(self) -> dict[str, int]:
        """By layer, how many columns of its products are of a neuron, where these are several."""
        operations = self.scan.body.operations
        apart = [inner for inner in operations if inner.kind in ("split_columns", "join_columns")]
        return {inner.layer: inner.attributes for inner in apart if isinstance(inner.attributes, int)}

    def _groups(self, absorbed: set[str]) -> list[list[Operation]]:
        """Elementwise operations of the same layer with as many products before them, in order."""
        level = product_levels(self.scan, across_timesteps=self.strategy.hoisted)
        groups: dict[tuple[str, int, str], list[Operation]] = {}
        for inner in self.scan.body.operations:
            if inner.kind not in (*MATRIX_PRODUCTS, *GATHERED) and inner.name not in absorbed:
                alone = inner.name if inner.kind in OVER_ROWS else ""
                groups.setdefault((self._layer(inner), level[inner.outputs[0]], alone), []).append(inner)
        return list(groups.values())

    def _layer(self, inner: Operation) -> str:
        """The layer of an operation, or of the operations that make its inputs if it has none."""
        if inner.layer:
            return inner.layer
        makers = (self.scan.body.producer(name) for name in inner.inputs)
        return next((maker.layer for maker in makers if maker and maker.layer), inner.name)

    def _chunks(self, group: Sequence[Operation]) -> list[Sequence[Operation]]:
        """`group` cut into as many kernels as the strategy has for a layer, in order, the longer ones first."""
        strategy = self.strategy
        most = strategy.forward_kernels_per_layer if self.op.phase == "forward" else strategy.backward_kernels_per_layer
        parts = np.array_split(np.arange(len(group)), min(most, len(group)))
        return [[group[at] for at in part] for part in parts]

    def _product(self, inner: Operation, *, accumulate: bool) -> Product:
        m, n = self.scan.body.value(inner.outputs[0]).shape
        k = -(-self._flops([inner]) // (2 * m * n))
        timesteps = self.scan.timesteps
        rows = (n, k) if MATRIX_PRODUCTS[inner.kind] else (m, n)  # extents of the arrays' rows; the other is the batch
        aligned = self.strategy.pads_widths or all(row * self.element_bytes % ALIGNED_BYTES == 0 for row in rows)
        once = Product(
            name=f"{self.op.name}.{inner.name}",
            op=inner.kind,
            phase=inner.phase,
            times=1,
            m=m,
            n=n,
            k=k,
            aligned=aligned,
            convolution=self._convolution(inner),
        )
        if isinstance(about := inner.attributes, BySample):  # a batch of the library's
            m, n, k = about.sizes(*(self.scan.body.value(name) for name in inner.inputs))
            at_once = timesteps if self.strategy.hoisted else 1
            batch = about.samples * about.heads * at_once
            return replace(once, m=m, n=n, k=k, batch=batch, times=timesteps // at_once, repeated=at_once == 1)
        if not self.strategy.hoisted:
            return replace(once, times=timesteps, accumulate=accumulate, repeated=True)
        if once.convolution is not None:
            samples = once.convolution.samples * timesteps
            once = replace(once, convolution=replace(once.convolution, samples=samples))
        if MATRIX_PRODUCTS[inner.kind]:
            return replace(once, m=m * timesteps)
        if accumulate:  # the sum over timesteps is part of the reduction
            return replace(once, k=k * timesteps)
        return replace(once, batch=timesteps)

    def _convolution(self, product: Operation) -> ConvolutionPass | None:
        """What a product is a pass of: that whose patches it reads or makes, unless a patch is all of the planes."""
        body, (made,) = self.scan.body, product.outputs
        ends = {"unfold": lambda op: op.outputs[0] in product.inputs, "fold": lambda op: made in op.inputs}
        gathered = (op.attributes for op in body.operations if op.kind in ends and ends[op.kind](op))
        patches: Patches | None = next(gathered, None)
        if patches is None or isinstance(product.attributes, BySample):
            return None
        groups = product.attributes or 1
        if patches.made.positions == 1 and groups == 1:
            return None
        what: Pass = "forward"
        if product.phase != "forward":
            what = "input gradient" if MATRIX_PRODUCTS[product.kind] else "weight gradient"
        result = body.value(made if what == "forward" else product.inputs[0]).shape
        samples = result[0] // patches.made.positions
        return ConvolutionPass(what=what, patches=patches, channels=result[1], samples=samples, groups=groups)

    def _stream(self, chunk: Sequence[Operation]) -> Stream:
        moved = self._elements(self._reads(chunk)) + self._elements(self._writes(chunk))
        moved += sum(self._elements(inner.inputs[:1]) for inner in chunk if inner.kind in OVER_ROWS)
        hoisted, timesteps = self.strategy.hoisted, self.scan.timesteps
        at_once = timesteps if hoisted else 1
        return Stream(
            name=f"{self.op.name}.{'+'.join(inner.name for inner in chunk)}",
            op="+".join(inner.kind for inner in chunk),
            phase=chunk[0].phase,
            times=timesteps // at_once,
            bytes_moved=moved * self.element_bytes * at_once,
            flops=self._flops(chunk) * at_once,
            walks_timesteps=hoisted  # one after the other in one launch for all
            and (not self.strategy.scans or any(inner.name in self._walked for inner in chunk)),
        )

    @cached_property
    def _walked(self) -> set[str]:
        return walked_operations(self.scan)

    def _reads(self, chunk: Sequence[Operation]) -> set[str]:
        """What the kernel reads from outside; a value read at two timesteps by one hoisted kernel counts once."""
        made = {name for inner in chunk for name in inner.outputs}
        outside = {name for inner in chunk for name in inner.inputs} - made
        if not self.strategy.hoisted:
            return outside
        own = {carry.enters for carry in self.scan.carries if carry.leaves in made}
        start = len(self.scan.carries)
        source = {item.inside: self.op.inputs[start + index] for index, item in enumerate(self.scan.slices)}
        return set({source.get(name, name): name for name in sorted(outside - own)}.values())

    def _writes(self, chunk: Sequence[Operation]) -> list[str]:
        """What others read: other kernels, the next timestep (unless it stays in registers), the stash."""
        made = [name for inner in chunk for name in inner.outputs]
        inside = {inner.name for inner in chunk}
        wanted = {name for op in self.scan.body.operations if op.name not in inside for name in op.inputs}
        if not self.strategy.hoisted:
            wanted |= {carry.leaves for carry in self.scan.carries}
            # the stash is a copy in addition to the value passed on
            return [name for name in made if name in wanted] + [name for name in made if name in self.scan.stacked]
        wanted |= {carry.leaves for carry in self.scan.carries if carry.enters in wanted}
        wanted |= set(self.scan.stacked)
        return [name for name in made if name in wanted]

    def _bookkeeping(self) -> Iterable[Kernel]:
        """Loop counter, condition, and one kernel that cuts this timestep's product operands out of their sequences."""
        strategy, times, phase = self.strategy, self.scan.timesteps, self.op.phase
        if strategy.hoisted:
            return
        if strategy.bookkeeping_kernels:
            kinds = (*MATRIX_PRODUCTS, *GATHERED)
            feeding = {name for op in self.scan.body.operations if op.kind in kinds for name in op.inputs}
            cut = [item.inside for item in self.scan.slices if item.inside in feeding]
            moved = 2 * self._elements(cut) * self.element_bytes  # read and written
            yield Stream(name=f"{self.op.name}.slice", op="slice", phase=phase, times=times, bytes_moved=moved)
            counting = (strategy.bookkeeping_kernels - 1) * times
            yield Stream(name=f"{self.op.name}.loop", op="loop", phase=phase, times=counting, bytes_moved=0)
        if strategy.host_waits:
            yield HostWait(name=f"{self.op.name}.condition", phase=phase, times=times)

    def accumulator_bytes(self) -> dict[str, int]:
        """The sums that products add onto every timestep."""
        sums = set(fused_accumulations(self.scan).values())
        names = [name for inner in self.scan.body.operations if inner.name in sums for name in inner.outputs]
        return {name: self._elements([name]) * self.element_bytes for name in names}

    def unstacked_bytes(self) -> int:
        """Values between kernels that are neither stacked nor summed: of one timestep, or hoisted of all."""
        inner = self.scan.body
        kinds = (*MATRIX_PRODUCTS, *GATHERED)
        crossing = {name for op in inner.operations if op.kind in kinds for name in (*op.inputs, *op.outputs)}
        for op in inner.operations:  # patches are never stored
            crossing -= {*op.outputs} if op.kind == "unfold" else {*op.inputs} if op.kind == "fold" else set()
        crossing &= {name for op in inner.operations for name in op.outputs}
        absorbed = fused_accumulations(self.scan)
        crossing -= {name for op in inner.operations if op.name in absorbed for name in op.outputs}
        crossing -= set(self.scan.stacked)
        at_once = self.scan.timesteps if self.strategy.hoisted else 1
        return self._elements(crossing) * self.element_bytes * at_once

    def _flops(self, group: Iterable[Operation]) -> int:
        value = self.scan.body.value
        return sum(OPERATIONS[op.kind].flops(tuple(map(value, op.inputs)), op.attributes) for op in group)

    def _elements(self, names: Iterable[str]) -> int:
        return sum(elements(self.scan.body.value(name)) for name in names)
