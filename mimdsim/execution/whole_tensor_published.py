"""A layer of the published neuron, its surrogate and its truncation, on whole tensors."""

from __future__ import annotations

import numpy as np

from mimdsim.execution.csr_spikes import Lists
from mimdsim.execution.thread_pool import Shares, aligned
from mimdsim.execution.whole_tensor_layers import WholeLayer
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.neurons import constants_of
from mimdsim.numerics.fused import published
from mimdsim.numerics.fused.vectors import WIDTH


class PublishedLayer(WholeLayer):
    """Its equations are written out, in registers; whatever is not the neuron is that of any layer."""

    def __init__(self, network: SpikingNetwork, layer: Layer, share: Shares):
        super().__init__(network, layer, share)
        self._q = aligned((len(self._q), self.timesteps + 1, self.batch * WIDTH))

    def _advance(self, source: Lists, limits: tuple[np.float32, ...]) -> bool:
        neuron, enough = constants_of(self.layer.neuron), []
        constants = neuron.decay, neuron.scale, *limits[1:]
        given = (self.batch, self.lag, self.w, self.layer.neurons, source.arrays, constants, self._entries.arrays)

        def blocks(first: int, last: int) -> None:
            enough.append(published.forward_blocks(first, last, *given))

        self.share(self.blocks, blocks)
        return all(enough)

    def _adjoint(self, begin: int, q: np.ndarray, g: np.ndarray) -> None:
        factors, masked = constants_of(self.layer.neuron)[:2], self.layer.neuron.reset_gradient == "mask"

        def blocks(first: int, last: int) -> None:
            for number in range(first, last):
                of = self.batch, masked, *factors, self._entries.arrays, g
                published.adjoint(begin + number, *of, q[number])

        self.share(len(q), blocks)


def layer_of(network: SpikingNetwork, layer: Layer, share: Shares) -> WholeLayer:
    """The published layer where the layer is all that, else one of linear neurons."""
    selection, neuron = layer.selection, layer.neuron
    plain = layer.spiking and not layer.bias and layer.recurrence == "none"
    chosen = (selection.surrogate, selection.truncation) == ("superspike", "lowest")
    published = plain and chosen and neuron.fused and neuron.resets
    return (PublishedLayer if published else WholeLayer)(network, layer, share)
