"""A layer whose neurons do not read their own spikes, on whole tensors: a block of neurons after another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimdsim.functional.lists import Entries, Lists
from mimdsim.functional.neuron_maps import Maps
from mimdsim.functional.shares import Shares, aligned
from mimdsim.functional.whole_tensor_layers import LinearLayer, WholeLayer, flat
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.layer import reads_own_spikes
from mimdsim.graph.truncation import next_state, scan_starts
from mimdsim.numerics.equations import KINDS
from mimdsim.numerics.fused import neuron_blocks, whole_linear, whole_tensors
from mimdsim.numerics.fused.vectors import WIDTH

LISTED_SHARE = 1 / 16  # of a layer's neurons, for which there is room at first


class BlockLayer(WholeLayer):
    """Potentials are kept only of neurons listed, unless gradients or the loss read all; gradients are made a block of
    neurons at a time, all of whose timesteps stay in a second-level cache from the adjoints to the sums over them."""

    def __init__(self, network: SpikingNetwork, layer: Layer, share: Shares):
        super().__init__(network, layer, share)
        # what does not spike is not reset either
        neuron = layer.neuron if layer.spiking else replace(layer.neuron, fired=None)
        maps, states, selection = Maps(neuron, layer.neurons), len(neuron.states), layer.selection
        full = neuron.resets and neuron.reset_gradient == "full"
        matrix, drive = neuron.differs
        self._most = self.places * WIDTH
        self._entries = Entries.room(self.blocks, self.timesteps, max(WIDTH, int(self._most * LISTED_SHARE)))
        self._q = aligned((min(share.threads, self.blocks), self.timesteps + 1, self.batch * WIDTH))
        self._begins = np.zeros((self.timesteps, self.batch), np.int64)
        self._bias = self.tensors["bias"].value if layer.bias else aligned((self.blocks, 1, WIDTH))
        kept = (full or not layer.spiking, WIDTH), (full and matrix, states * WIDTH), (full and drive, WIDTH)
        self._kept = tuple(aligned((self.blocks, self.timesteps * each, self.batch, width)) for each, width in kept)
        self._ahead = maps.ahead, states, np.float32(selection.threshold if neuron.resets else np.inf)
        self._back = maps.readout, maps.back, maps.change
        self._shape = KINDS.index(selection.surrogate), np.float32(selection.slope)
        switched = neuron.resets and neuron.reset_gradient != "pass"
        self._how = switched, full, np.float32(selection.threshold), *self._shape

    @property
    def potentials(self) -> np.ndarray:
        """[timesteps, batch, neurons] of the last forward pass, if they are the output."""
        every = self._kept[0].transpose(1, 2, 0, 3).reshape(self.timesteps, self.batch, -1)
        return np.ascontiguousarray(every[..., : self.layer.neurons])

    def draw(self, generators: np.ndarray) -> None:
        """Where the scans for spikes start, from the generators of the samples, which move on."""
        for t in range(self.timesteps):
            generators[:] = next_state(generators)
            self._begins[t] = scan_starts(generators, self.layer.neurons)

    def forward(self, source: Lists, second_threshold: np.float32) -> None:
        layer, made, selection = self.layer, self.spikes, self.layer.selection
        ahead, states, fired = self._ahead
        chosen = (selection.threshold, second_threshold) if layer.spiking else (np.inf, np.inf)
        limits = fired, *(np.float32(each) for each in chosen)
        given = (self.lag, self.w, self._bias, layer.neurons, source.arrays, ahead, states, limits)
        enough: list[bool] = []

        def blocks(first: int, last: int) -> None:
            enough.append(neuron_blocks.forward_blocks(first, last, *given, self._entries.arrays, self._kept))

        self.share(self.blocks, blocks)
        while not all(enough):
            enough.clear()
            each = min(self._most, 2 * self._entries.places.shape[1])
            self._entries = Entries.room(self.blocks, self.timesteps, each)
            self.share(self.blocks, blocks)
        entries = self._entries.arrays

        def timesteps(first: int, last: int) -> None:
            lists = made.starts, made.trues, made.ids
            neuron_blocks.join(first, last, self._begins, limits[1], self._shape, entries, lists)

        neuron_blocks.count_listed(layer.capacity, entries, made.starts, made.trues, made.over_starts)
        self.share(self.timesteps, timesteps)

    def backward(self, source: Lists, g: np.ndarray, wanted: np.ndarray | None) -> None:
        gradients, entries = {role: tensor.gradient for role, tensor in self.tensors.items()}, self._entries.arrays
        none = np.zeros(0, np.float32)
        given = (g, none.reshape(0, 0, 0)) if self.layer.spiking else (none, g)
        columns, rows = self._by_id(0, self.timesteps, self.lag, source)
        if wanted is not None:
            wanted[:] = 0
        for begin in range(0, self.blocks, len(self._q)):
            some = min(len(self._q), self.blocks - begin)

            def blocks(first: int, last: int, begin: int = begin) -> None:
                for number in range(first, last):
                    q, block = self._q[number], begin + number
                    neuron_blocks.adjoint(block, self._how, self._back, entries, given, self._kept, q)
                    weights = flat(gradients["weights"][block])
                    whole_tensors.weight_gradient_block(columns, rows, flat(q), weights, True)
                    if self.layer.bias:
                        whole_linear.bias_gradient(q.reshape(-1, WIDTH), gradients["bias"][block, 0])

            def places(first: int, last: int, begin: int = begin, some: int = some) -> None:
                given = (self.w[begin : begin + some], source.ids, source.starts, self._q, wanted)
                whole_tensors.input_gradient_places(first, last, 0, self.lag, *given)

            self.share(some, blocks)
            if wanted is not None:
                self.share(self.places, places)


def layer_of(network: SpikingNetwork, layer: Layer, share: Shares) -> WholeLayer:
    """The layer by blocks where it does not read its own spikes, else sample by sample."""
    coupled = layer.recurrence != "none" or reads_own_spikes(layer)
    return (LinearLayer if coupled else BlockLayer)(network, layer, share)
