"""Constants that a layer learns, as it runs all timesteps at once: coefficients before, sums of gradients after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mimdsim.execution.execute import aligned
from mimdsim.graph import Layer
from mimdsim.graph.learned_constants import Coefficients, ConstantGradient, coefficients_of
from mimdsim.graph.linear_neurons import LinearNeuron, RowGradient
from mimdsim.graph.operations import OPERATIONS
from mimdsim.numerics.fused.interpreted import WIDTH

if TYPE_CHECKING:
    from mimdsim.execution.whole_tensor_values import Tensor

WHENS = {"": -1, "quiet": 0, "after": 1}  # as `whole_linear` takes them


class LearnedConstants:
    """arrays: where the coefficients stand, and room for their gradients, as `whole_linear` takes them."""

    def __init__(self, layer: Layer, batch: int, tensors: Mapping[str, Tensor]):
        """tensors: by constant."""
        neuron, self._neurons = layer.acting_neuron, layer.neurons
        self._about = Coefficients(neuron=neuron, neurons=layer.columns)
        self._tensors = [tensors[each.name] for each in layer.learned]
        rows, states = range(len(neuron.rows)), len(neuron.states)
        places = [(row, place) for row in rows for place in RowGradient(neuron=neuron, row=row, told=True).places]
        self._lifted = [row for row, place in places if place.target == states]
        columns = [*range(states), -1, -2]
        stand = [
            (place.target, columns[place.column], WHENS[place.when], row)
            for row, place in places
            if place.target < states
        ]
        samples = batch if layer.learned else 0
        self.made = aligned((samples, -(-layer.neurons // WIDTH), (len(rows) + 1) * WIDTH))
        self.arrays = np.array(stand, np.int64).reshape(-1, 4), self.made

    @property
    def _trained(self) -> list[np.ndarray]:
        return [each.value[0] for each in self._tensors]

    def neuron(self) -> LinearNeuron:
        """The neurons with the constants as they are now."""
        return self._about.neuron.with_rows(coefficients_of(self._about, self._about.neurons, self._trained))

    def backward(self) -> None:
        """Gradients of the constants from those of the coefficients."""
        batch, blocks, _ = self.made.shape
        by_neuron = self.made.reshape(batch, blocks, -1, WIDTH).sum(axis=0, dtype=np.float64).transpose(1, 0, 2)
        by_column = by_neuron.reshape(len(by_neuron), -1)[:, : self._neurons].reshape(
            len(by_neuron), -1, self._about.neurons
        )
        *rows, potentials = by_column.sum(axis=1)
        for row in self._lifted:
            rows[row] += potentials
        for index, (tensor, trained) in enumerate(zip(self._tensors, self._trained, strict=True)):
            about = ConstantGradient(coefficients=self._about, constant=index)
            given = (rows[row][None].astype(np.float32) for row in about.rows)
            (tensor.gradient[0],) = OPERATIONS["constant_gradient"].evaluate(about, trained, *given)
