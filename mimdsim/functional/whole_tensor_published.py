"""A layer of the published neuron, its surrogate and its truncation, on whole tensors."""

from __future__ import annotations

import numpy as np

from mimdsim.functional.lists import Entries, Lists
from mimdsim.functional.shares import Shares, aligned
from mimdsim.functional.whole_tensor_layers import LinearLayer, WholeLayer, flat
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.neurons import constants_of
from mimdsim.numerics.fused import published, whole_tensors
from mimdsim.numerics.fused.vectors import WIDTH

LISTED_SHARE = 1 / 16  # of a layer's neurons, for which there is room at first


class PublishedLayer(WholeLayer):
    """No potential is kept but those of neurons listed; gradients are made a block of neurons at a time, all of whose
    timesteps stay in a second-level cache from the adjoints to the sums over them."""

    def __init__(self, network: SpikingNetwork, layer: Layer, share: Shares):
        super().__init__(network, layer, share)
        self._most = self.places * WIDTH
        self._entries = Entries.room(self.blocks, self.timesteps, max(WIDTH, int(self._most * LISTED_SHARE)))
        self._q = aligned((min(share.threads, self.blocks), self.timesteps + 1, self.batch * WIDTH))

    def forward(self, source: Lists, second_threshold: np.float32) -> None:
        layer, made = self.layer, self.spikes
        neuron, slope = constants_of(layer.neuron), np.float32(layer.selection.slope)
        threshold = np.float32(layer.selection.threshold)
        constants = neuron.decay, neuron.scale, threshold, second_threshold

        given = (self.batch, self.lag, self.w, layer.neurons, source.arrays, constants)
        enough: list[bool] = []

        def blocks(first: int, last: int) -> None:
            enough.append(published.forward_blocks(first, last, *given, self._entries.arrays))

        self.share(self.blocks, blocks)
        while not all(enough):
            enough.clear()
            each = min(self._most, 2 * self._entries.places.shape[1])
            self._entries = Entries.room(self.blocks, self.timesteps, each)
            self.share(self.blocks, blocks)
        entries = self._entries.arrays

        def timesteps(first: int, last: int) -> None:
            published.join(first, last, self.batch, threshold, slope, entries, (made.starts, made.trues, made.ids))

        published.count_listed(layer.capacity, entries, made.starts, made.trues, made.over_starts)
        self.share(self.timesteps, timesteps)

    def backward(self, source: Lists, g: np.ndarray, wanted: np.ndarray | None) -> None:
        factors, masked = constants_of(self.layer.neuron)[:2], self.layer.neuron.reset_gradient == "mask"
        gradient, entries = self.tensors["weights"].gradient, self._entries.arrays
        columns, rows = self._by_id(0, self.timesteps, self.lag, source)
        if wanted is not None:
            wanted[:] = 0
        for begin in range(0, self.blocks, len(self._q)):
            some = min(len(self._q), self.blocks - begin)

            def blocks(first: int, last: int, begin: int = begin) -> None:
                for number in range(first, last):
                    q = self._q[number]
                    published.adjoint(begin + number, self.batch, masked, *factors, entries, g, q)
                    whole_tensors.weight_gradient_block(columns, rows, flat(q), flat(gradient[begin + number]), True)

            def places(first: int, last: int, begin: int = begin, some: int = some) -> None:
                given = (self.w[begin : begin + some], source.ids, source.starts, self._q, wanted)
                whole_tensors.input_gradient_places(first, last, 0, self.lag, *given)

            self.share(some, blocks)
            if wanted is not None:
                self.share(self.places, places)


def layer_of(network: SpikingNetwork, layer: Layer, share: Shares) -> WholeLayer:
    """The published layer where the layer is all that, else one of linear neurons."""
    selection, neuron = layer.selection, layer.neuron
    plain = layer.spiking and not layer.bias and layer.recurrence == "none"
    chosen = (selection.surrogate, selection.truncation) == ("superspike", "lowest")
    published = plain and chosen and neuron.fused and neuron.resets
    return (PublishedLayer if published else LinearLayer)(network, layer, share)
