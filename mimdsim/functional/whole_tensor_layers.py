"""Layers that run all timesteps at once: what all have in common, and one of any linear neuron."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mimdsim.codelets.linear_terms import packed
from mimdsim.functional.lists import Lists
from mimdsim.functional.shares import Shares, aligned
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.layer import RECURRENCES, reads_own_spikes
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.names import Parameter
from mimdsim.graph.truncation import next_state, scan_starts
from mimdsim.numerics.equations import KINDS
from mimdsim.numerics.fused import whole_linear, whole_tensors
from mimdsim.numerics.fused.vectors import WIDTH
from mimdsim.program.records import frozen

CHUNK_BYTES = 1 << 18  # of a block's adjoints over a chunk of timesteps; rows are added chunk by chunk, the last first
LISTED = 0.5  # between the two numbers that say whether a spike is listed


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensor:
    """A parameter in blocks of WIDTH neurons [blocks, rows, WIDTH], its gradient, and what an optimiser keeps of it."""

    parameter: Parameter
    value: np.ndarray
    gradient: np.ndarray
    moments: tuple[np.ndarray, ...]

    @classmethod
    def zeros(cls, parameter: Parameter, moments: int) -> Tensor:
        rows, neurons = parameter.shape
        shape = (-(-neurons // WIDTH), rows, WIDTH)
        kept = tuple(np.zeros(shape, np.float32) for _ in range(moments))
        return cls(parameter=parameter, value=aligned(shape), gradient=aligned(shape), moments=kept)


class WholeLayer:
    """What a layer keeps between training steps, and its spikes of the last one."""

    def __init__(self, network: SpikingNetwork, layer: Layer, share: Shares):
        self.layer = layer
        self.timesteps, self.batch = network.timesteps, network.batch
        self.places = network.timesteps * network.batch
        self.times = max(1, min(self.timesteps, CHUNK_BYTES // (4 * self.batch * WIDTH)))
        self.lag = 0 if layer is network.layers[0] else network.delay * network.batch
        self.tensors = {each.role: Tensor.zeros(each, len(network.optimiser.state)) for each in layer.parameters}
        self.spikes = Lists.room(self.places, layer.neurons, layer.capacity)
        self.share = share
        self.w = self.tensors["weights"].value
        self.blocks = len(self.w)

    def forward(self, source: Lists, second_threshold: np.float32) -> None:
        """Spikes of all timesteps from those of the input."""
        raise NotImplementedError

    def _adjoint(self, t0: int, t1: int, q: np.ndarray, g: np.ndarray) -> None:
        """q[:, t - t0] = gradient of the currents at timesteps t1-1 down to t0; later timesteps went before."""
        raise NotImplementedError

    def backward(self, source: Lists, g: np.ndarray, wanted: np.ndarray | None) -> None:
        """Gradients of the parameters from those of what is listed, or of potentials that are the output.

        wanted: overwritten with those of what the input lists.
        """
        q = aligned((self.blocks, self.times + 1, self.batch, WIDTH))
        for tensor in self.tensors.values():
            tensor.gradient[:] = 0
        if wanted is not None:
            wanted[:] = 0
        t1 = self.timesteps
        while t1 > 0:
            t0 = max(0, t1 - self.times)
            self._adjoint(t0, t1, q, g)
            self._add_gradients(t0, t1, source, q)
            if wanted is not None:
                self._input_gradients(t0, t1, source, q, wanted)
            t1 = t0

    def _add_gradients(self, t0: int, t1: int, source: Lists, q: np.ndarray) -> None:
        self._add_by_id(t0, t1, self.lag, source, q, self.tensors["weights"].gradient)

    def _by_id(self, t0: int, t1: int, lag: int, source: Lists) -> tuple[np.ndarray, np.ndarray]:
        """Where every id is listed by the input of timesteps t0..t1-1, in the order in which its rows are added."""
        low, high = t0 * self.batch, t1 * self.batch
        columns = np.zeros(source.width + 2, np.int64)
        rows = np.empty(int(source.starts[max(high - lag, 0)] - source.starts[max(low - lag, 0)]), np.int32)
        given = source.ids, source.starts, source.trues, columns, rows
        whole_tensors.sort_by_id(low, high, self.times * self.batch, lag, *given)
        return columns, rows

    def _add_by_id(self, t0: int, t1: int, lag: int, source: Lists, q: np.ndarray, gradient: np.ndarray) -> None:
        """To the gradient of every row of weights the adjoints at the places whose input, `lag` back, lists its id."""
        columns, rows = self._by_id(t0, t1, lag, source)

        def blocks(first: int, last: int) -> None:
            for block in range(first, last):
                whole_tensors.weight_gradient_block(columns, rows, flat(q[block]), flat(gradient[block]), False)

        self.share(self.blocks, blocks)

    def _input_gradients(self, t0: int, t1: int, source: Lists, q: np.ndarray, wanted: np.ndarray) -> None:
        low, high = t0 * self.batch, t1 * self.batch

        def places(first: int, last: int) -> None:
            given = (self.w, source.ids, source.starts, q, wanted)
            whole_tensors.input_gradient_places(low + first, low + last, low, self.lag, *given)

        self.share(high - low, places)


class LinearLayer(WholeLayer):
    """Any linear neuron, surrogate, truncation and wiring; potentials of all timesteps are kept."""

    def __init__(self, network: SpikingNetwork, layer: Layer, share: Shares):
        super().__init__(network, layer, share)
        # what does not spike is not reset either
        neuron = layer.neuron if layer.spiking else replace(layer.neuron, fired=None)
        self._by_emission = reads_own_spikes(layer)
        self._full = neuron.resets and neuron.reset_gradient == "full"
        self._wiring = RECURRENCES.index(layer.recurrence)
        self._coupled = self._by_emission or layer.recurrence != "none"
        self._threshold = neuron.threshold if neuron.fused else layer.selection.threshold
        told = LISTED if self._by_emission else self._threshold
        rows, (matrix, drive) = network.timesteps + 1, neuron.differs
        plane = (self.blocks, rows, network.batch, WIDTH)
        u, states = aligned(plane), (len(neuron.states), network.batch, WIDTH)
        self._u, self._x = u, aligned((self.blocks, rows if self._full and matrix else 1, *states))
        current = aligned(plane) if self._full and drive else u
        self._kept = u, self._x, current, aligned(plane if self._coupled else (self.blocks, 1, 1, WIDTH))
        self._ahead, own = _maps(neuron, layer.neurons, told, neuron.resets)
        self._back, own_back = _maps(neuron, layer.neurons, told, neuron.resets and neuron.reset_gradient != "pass")
        self._forward, self._backward = ((*self._kept, np.tile(each, network.batch)) for each in (own, own_back))
        self._later = aligned((self.blocks, *states)), aligned((self.blocks, network.batch, WIDTH))
        self._begins = np.zeros((network.timesteps, network.batch), np.int64)
        self._own_ids = np.zeros((network.batch, layer.capacity), np.int32), np.zeros(network.batch, np.int64)
        self._r, self._bias = (self._value(role) for role in ("recurrent", "bias"))

    def _value(self, role: str) -> np.ndarray:
        return self.tensors[role].value if role in self.tensors else aligned((self.blocks, 1, WIDTH))

    @property
    def potentials(self) -> np.ndarray:
        """[timesteps, batch, neurons] of the last forward pass."""
        every = self._u[:, 1:].transpose(1, 2, 0, 3).reshape(self.timesteps, self.batch, -1)
        return np.ascontiguousarray(every[..., : self.layer.neurons])

    def draw(self, generators: np.ndarray) -> None:
        """Where the scans for spikes start, from the generators of the samples, which move on."""
        for t in range(self.timesteps):
            generators[:] = next_state(generators)
            self._begins[t] = scan_starts(generators, self.layer.neurons)

    def forward(self, source: Lists, second_threshold: np.float32) -> None:
        self._x[:, 0] = 0
        current = self._kept[2]

        def currents(first: int, last: int) -> None:
            whole_linear.currents(first, last, self.lag, self.w, self._bias, source.arrays, current)

        def blocks(first: int, last: int) -> None:
            every = (0, self.batch), (0, self.timesteps)
            whole_linear.advance((first, last), *every, self._by_emission, self._forward, self._ahead)

        def samples(first: int, last: int) -> None:
            how = self._by_emission, self._wiring, self._forward, self._ahead
            selection = self.layer.neurons, np.float32(self._threshold)
            whole_linear.advance_coupled((first, last), *how, selection, self._r, self._begins, *self._own_ids)

        self.share(self.blocks, currents)
        if self._coupled:
            self.share(self.batch, samples)
        else:
            self.share(self.blocks, blocks)
        if self.layer.spiking:
            self._select(second_threshold)

    def _select(self, second_threshold: np.float32) -> None:
        made, capacity, chosen = self.spikes, self.layer.capacity, self.layer.selection
        selection = self.layer.neurons, np.float32(chosen.threshold), second_threshold
        fired, near = (np.zeros(self.places, np.int64) for _ in range(2))
        shape = KINDS.index(chosen.surrogate), np.float32(chosen.slope)

        def count(first: int, last: int) -> None:
            whole_linear.count_selected(first, last, self._u, selection, fired, near)

        def fill(first: int, last: int) -> None:
            whole_linear.list_selected(first, last, self._u, selection, flat(self._begins), shape, made.arrays)

        self.share(self.places, count)
        made.trues[:] = np.minimum(fired, capacity)
        np.cumsum(np.minimum(fired + near, capacity), out=made.starts[1:])
        np.cumsum(np.maximum(fired - capacity, 0), out=made.over_starts[1:])
        self.share(self.places, fill)

    def _adjoint(self, t0: int, t1: int, q: np.ndarray, g: np.ndarray) -> None:
        dx, later = self._later
        if t1 == self.timesteps:
            dx[:], later[:] = 0, 0
        selection, none = self.layer.selection, np.zeros(0, np.float32)
        given = (g, none.reshape(0, 0, 0)) if self.layer.spiking else (none, g)
        surrogate = KINDS.index(selection.surrogate), np.float32(selection.slope)
        how = self._by_emission, self._full, self._wiring, np.float32(self._threshold), *surrogate

        def samples(first: int, last: int) -> None:
            lists, adjoints = self.spikes.arrays, (dx, later, q)
            at = (first, last), (t0, t1), how, given, self._backward, self._back
            whole_linear.adjoint(*at, self._r, lists, adjoints)

        self.share(self.batch, samples)

    def _add_gradients(self, t0: int, t1: int, source: Lists, q: np.ndarray) -> None:
        super()._add_gradients(t0, t1, source, q)
        recurrence = self.layer.recurrence
        gradients = {role: tensor.gradient for role, tensor in self.tensors.items()}
        if recurrence == "all_to_all":
            self._add_by_id(t0, t1, self.batch, self.spikes, q, gradients["recurrent"])

        def blocks(first: int, last: int) -> None:
            if recurrence == "one_to_one":
                whole_linear.own_row_gradient(first, last, (t0, t1), self._kept[3], q, gradients["recurrent"])
            if self.layer.bias:
                whole_linear.bias_gradient(first, last, t1 - t0, q, gradients["bias"])

        self.share(self.blocks, blocks)


def _maps(neuron: LinearNeuron, neurons: int, told: float, switched: bool) -> tuple[tuple[Any, ...], np.ndarray]:
    """What kernels take of a neuron, and the coefficients of every neuron its own [blocks, rows, WIDTH].

    told: what a neuron that has fired is above.
    """
    made = packed(neuron, neurons, switched=switched)
    rows = np.zeros((1, 1)) if made.own is None else made.own
    wide = np.zeros((len(rows), -(-neurons // WIDTH) * WIDTH), np.float32)
    wide[:, : rows.shape[1]] = rows
    own = np.ascontiguousarray(wide.reshape(len(rows), -1, WIDTH).transpose(1, 0, 2))
    # read-only like the constants of a program, for which the same kernels are compiled
    terms, uniform, readout, weights = (frozen(each) for each in (made.terms, made.uniform, made.readout, made.weights))
    return (terms, uniform, readout, weights, float(told), switched), own


def flat(array: np.ndarray) -> np.ndarray:
    """The same memory as one axis."""
    return array.reshape(-1)
