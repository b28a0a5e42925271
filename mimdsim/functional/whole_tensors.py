"""Train without tiles: a layer over all timesteps at once, on lists of spikes.

The same meaning as the compiled program and the interpreter: the same spikes where sums are exact, gradients within
float32 rounding. For training where only values are wanted; what runs on tiles, and what it costs there, is the
compiled program's. Inputs and outputs go by the same names as an `Executor`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.functional.lists import BlockLists, Lists, max_listed
from mimdsim.functional.shares import Shares, aligned
from mimdsim.functional.whole_tensor_limits import refusals
from mimdsim.graph import Adam, Layer, SpikingNetwork, training_graph
from mimdsim.graph.names import (
    INPUT,
    LABELS,
    LEARNING_RATE,
    LOSS,
    SCORES,
    TRAINING_STEP,
    gradient_of,
    listed,
    weights_of,
)
from mimdsim.graph.neurons import constants_of
from mimdsim.numerics import training as updates
from mimdsim.numerics.fused import whole_tensors as kernels
from mimdsim.numerics.fused.vectors import WIDTH
from mimdsim.numerics.lists import losses
from mimdsim.program import RecordedActivity

LISTS = listed(INPUT)
CHUNK_BYTES = 1 << 18  # of a block's gradients over a chunk of timesteps: what stays in a second-level cache


@dataclass(kw_only=True, eq=False)
class LayerTensors:
    """What a layer keeps between training steps, and its spikes of the last one. Weights in blocks of WIDTH neurons."""

    layer: Layer
    w: np.ndarray
    dw: np.ndarray
    moments: tuple[np.ndarray, ...]
    spikes: Lists

    @property
    def blocks(self) -> int:
        return int(self.w.shape[0])


class WholeTensors:
    """One training step of a network of sparse spikes, again and again; `threads` share it and change no bit."""

    def __init__(self, network: SpikingNetwork, threads: int = 1):
        """Raises MappingError that names everything the network asks for and this way of running does not know."""
        problems = refusals(network)
        if problems:
            raise MappingError("\n".join(problems))
        self.network = network
        self._share = Shares(threads)
        places = network.timesteps * network.batch
        self._input = Lists.room(places, network.inputs, network.input_capacity)
        self._layers = [self._tensors(layer, places) for layer in network.layers]
        self._labels = np.zeros(network.batch, np.int32)
        self._training_step = np.ones(1, np.int64)
        self._rate = np.full(1, network.optimiser.learning_rate)
        self._totals = np.zeros((network.batch, network.classes), np.int32)
        self._losses = np.zeros(network.batch, np.float64)
        self._places = {name: (item, array) for item in self._layers for name, array in self._kept(item)}
        self._readable = self._places | self._made()

    def _kept(self, item: LayerTensors) -> Iterator[tuple[str, np.ndarray]]:
        """What stays from one training step to the next, by graph input."""
        (weights,) = item.layer.parameters
        yield weights.name, item.w
        for slot, moment in zip(self.network.optimiser.state, item.moments, strict=True):
            yield weights.kept(slot), moment

    def _made(self) -> dict[str, tuple[LayerTensors, np.ndarray]]:
        """What a training step makes of it, by graph output: gradients, and what the update leaves."""
        item_of = {item.layer.name: item for item in self._layers}
        found = {gradient_of(weights_of(name)): (item, item.dw) for name, item in item_of.items()}
        for op in training_graph(self.network).operations:
            if op.phase == "update":
                item = item_of[op.layer]
                found |= {name: (item, held) for name, held in zip(op.outputs, (item.w, *item.moments), strict=True)}
        return found

    def _tensors(self, layer: Layer, places: int) -> LayerTensors:
        shape = (-(-layer.neurons // WIDTH), layer.inputs, WIDTH)
        return LayerTensors(
            layer=layer,
            w=aligned(shape),
            dw=aligned(shape),
            moments=tuple(np.zeros(shape, np.float32) for _ in self.network.optimiser.state),
            spikes=Lists.room(places, layer.neurons, layer.capacity),
        )

    # ---- values in and out

    @property
    def memory(self) -> tuple[str, ...]:
        """What stays from one training step to the next: weights and moments, by graph input."""
        return tuple(self._places)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The memory of all weights, in blocks of columns, by graph input."""
        return {weights_of(item.layer.name): item.w for item in self._layers}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Graph inputs that can be written."""
        return (*self.memory, *LISTS, LABELS, *self.network.optimiser.scalars)

    def write(self, values: dict[str, np.ndarray]) -> None:
        """Set graph inputs: 'w.<layer>', 'moment1.<layer>', 'input.ids', 'input.counts', 'labels', 'training_step',
        and 'learning_rate' where it is scheduled.

        Raises MappingError for an unknown name or another shape.
        """
        lists = {name: values[name] for name in LISTS if name in values}
        for name, value in values.items():
            shape = self._shape(name)
            if np.shape(value) != shape:
                raise MappingError(f"input '{name}' has shape {np.shape(value)}, the network takes {shape}")
        if lists:
            if len(lists) == 1:
                raise MappingError(
                    f"'{next(iter(lists))}' alone says nothing: write input.ids and input.counts at once"
                )
            ids, counts = (np.ascontiguousarray(lists[name], np.int32) for name in LISTS)
            self._check_input(ids, counts)
            kernels.lists_of_padded(ids, counts, self._input.starts, self._input.trues, self._input.ids)
        for name, value in values.items():
            if name == LABELS:
                self._labels[:] = value
            elif name == TRAINING_STEP:
                self._training_step[:] = value
            elif name == LEARNING_RATE:
                self._rate[:] = value
            elif name not in lists:
                kernels.into_blocks(np.ascontiguousarray(value, np.float32), self._placed(name)[1])

    def _check_input(self, ids: np.ndarray, counts: np.ndarray) -> None:
        capacity, inputs = self.network.input_capacity, self.network.inputs
        if counts.min(initial=0) < 0 or counts.max(initial=0) > capacity:
            raise MappingError(f"input.counts must be 0 to {capacity}, given {counts.min()} to {counts.max()}")
        listed = ids[np.arange(ids.shape[2]) < counts[..., 1:]]
        if listed.size and (listed.min() < 0 or listed.max() >= inputs):
            raise MappingError(f"input.ids must be 0 to {inputs - 1}, given {listed.min()} to {listed.max()}")

    def _shape(self, name: str) -> tuple[int, ...]:
        network = self.network
        fixed: dict[str, tuple[int, ...]] = {LABELS: (network.batch,), TRAINING_STEP: (1,)}
        for listed_as, width in zip(LISTS, (network.input_capacity, 2), strict=True):
            fixed[listed_as] = (network.timesteps, network.batch, width)
        if network.optimiser.scheduled:
            fixed[LEARNING_RATE] = (1,)
        if name in fixed:
            return fixed[name]
        layer = self._placed(name)[0].layer
        return layer.inputs, layer.neurons

    def _placed(self, name: str) -> tuple[LayerTensors, np.ndarray]:
        """The layer and the blocks of a graph input."""
        if name not in self._places:
            known = [*sorted(LISTS), LABELS, *self.weights]
            raise MappingError(f"the network has no input '{name}'; it has {known}")
        return self._places[name]

    def read(self, name: str) -> np.ndarray:
        """'loss' [batch], 'counts' [batch, classes], an output of the update by its name in the training graph, or what
        stays between training steps."""
        if name == LOSS:
            return self._losses.copy()
        if name == SCORES:
            return self._totals.copy()
        item, blocks = self._readable.get(name) or self._placed(name)
        matrix = np.empty((item.layer.inputs, item.layer.neurons), np.float32)
        kernels.from_blocks(blocks, matrix)
        return matrix

    def activity(self) -> RecordedActivity:
        """Spikes of the last training step, padded to the capacities, and how many were dropped."""
        network, ids, counts = self.network, {}, {}
        sources = [(INPUT, self._input, network.input_capacity)]
        sources += [(item.layer.name, item.spikes, item.layer.capacity) for item in self._layers]
        for name, lists, capacity in sources:
            listed = np.diff(lists.starts)
            padded = np.zeros((len(listed), capacity), np.int32)
            padded[np.arange(capacity) < listed[:, None]] = lists.ids[: lists.starts[-1]]
            ids[name] = padded.reshape(network.timesteps, network.batch, capacity)
            both = np.stack([lists.trues, listed], axis=-1).astype(np.int32)
            counts[name] = both.reshape(network.timesteps, network.batch, 2)
        dropped = {item.layer.name: int(item.spikes.over_starts[-1]) for item in self._layers}
        return RecordedActivity(ids=ids, counts=counts, dropped=dropped)

    # ---- one training step

    def run(self, phases: Collection[str] = ("forward", "loss", "backward", "update")) -> None:
        """One training step, or the first of its phases."""
        source = self._input
        for index, tensors in enumerate(self._layers):
            self._forward(tensors, source, self._lag(index))
            source = tensors.spikes
        g = self._loss()
        if "backward" not in phases:
            return
        for index in reversed(range(len(self._layers))):
            g = self._backward(index, g)
        if "update" in phases:
            for tensors in self._layers:
                self._update(tensors)

    def _lag(self, index: int) -> int:
        return self.network.delay * self.network.batch if index else 0

    def _forward(self, tensors: LayerTensors, source: Lists, lag: int) -> None:
        layer, network, made = tensors.layer, self.network, tensors.spikes
        places = network.timesteps * network.batch
        lists = [BlockLists.room(tensors.blocks, places) for _ in range(2)]
        near, fired = lists
        kind, selection, neuron = np.float32, layer.selection, constants_of(layer.neuron)
        thresholds = kind(selection.threshold), kind(selection.second_threshold)
        constants = neuron.decay, neuron.scale, *thresholds, kind(selection.slope)

        def blocks(first: int, last: int) -> None:
            given = (network.batch, lag, tensors.w, layer.neurons, source.arrays, constants)
            kernels.forward_blocks(first, last, *given, near.arrays, fired.arrays)

        def join(first: int, last: int) -> None:
            kernels.join_lists(first, last, near.arrays, fired.arrays, made.arrays)

        self._share(tensors.blocks, blocks)
        kernels.count_listed(layer.capacity, near.ends, fired.ends, made.starts, made.trues, made.over_starts)
        self._share(places, join)

    def _loss(self) -> np.ndarray:
        """Loss of every sample; gradient of everything the output layer lists."""
        network, made = self.network, self._layers[-1].spikes
        kernels.count_true(network.batch, made.ids, made.starts, made.trues, self._totals)
        gradient = np.zeros((network.batch, network.classes), np.float32)
        samples = np.arange(network.batch)
        scale = float(network.logit_scale)
        losses.cross_entropy(self._totals, self._labels, self._losses, gradient, samples, scale)
        g = np.empty(int(made.starts[-1]), np.float32)
        kernels.list_gradient(network.batch, made.ids, made.starts, gradient, g)
        return g

    def _backward(self, index: int, g: np.ndarray) -> np.ndarray:
        """Weight gradient of a layer from the gradients of its listed spikes; returns those of its input's."""
        tensors, network, lag = self._layers[index], self.network, self._lag(index)
        layer, batch, made = tensors.layer, network.batch, tensors.spikes
        source = self._layers[index - 1].spikes if index else self._input
        times = max(1, min(network.timesteps, CHUNK_BYTES // (4 * batch * WIDTH)))
        q = aligned((tensors.blocks, times + 1, batch, WIDTH))
        stride = (times + 1) * batch * WIDTH
        tensors.dw[:] = 0
        columns = np.zeros(layer.inputs + 2, np.int64)
        rows = np.empty(int(max_listed(source.starts, times * batch)), np.int32)
        wanted = np.zeros(int(source.starts[-1]) if index else 0, np.float32)
        factors = constants_of(layer.neuron)[:2]
        masked = layer.neuron.reset_gradient == "mask"
        t1 = network.timesteps
        while t1 > 0:
            t0 = max(0, t1 - times)
            low, high = t0 * batch, t1 * batch

            def samples(first: int, last: int, t0: int = t0, t1: int = t1) -> None:
                kernels.adjoint(first, last, t0, t1, masked, *factors, made.arrays, g, q)

            def weights(first: int, last: int) -> None:
                kernels.weight_gradient_blocks(
                    first, last, layer.inputs, columns, rows, flat(q), stride, flat(tensors.dw)
                )

            def inputs(first: int, last: int, low: int = low) -> None:
                given = (tensors.w, source.ids, source.starts, q, wanted)
                kernels.input_gradient_places(low + first, low + last, low, lag, *given)

            self._share(batch, samples)
            kernels.sort_by_id(low, high, lag, source.ids, source.starts, source.trues, columns, rows)
            self._share(tensors.blocks, weights)
            if index:
                self._share(high - low, inputs)
            if t0:
                q[:, min(times, t0)] = q[:, 0]
            t1 = t0
        return wanted

    def _update(self, tensors: LayerTensors) -> None:
        optimiser = self.network.optimiser
        whole: Any = np.array([0]), np.array([WIDTH])
        adam: Any = updates.adam
        sgd: Any = updates.sgd

        def rows(first: int, last: int) -> None:
            w, dw, *moments = (
                array.reshape(-1, WIDTH)[first:last] for array in (tensors.w, tensors.dw, *tensors.moments)
            )
            if isinstance(optimiser, Adam):
                rates = (self._rate[0], optimiser.beta1, optimiser.beta2, optimiser.epsilon)
                adam(w, dw, *moments, self._training_step, *whole, *(float(rate) for rate in rates))
            else:
                sgd(w, dw, *whole, np.float32(self._rate[0]))

        self._share(tensors.blocks * tensors.layer.inputs, rows)


def flat(array: np.ndarray) -> np.ndarray:
    """The same memory as one axis."""
    return array.reshape(-1)
