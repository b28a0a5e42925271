"""Whole tensors of what is made of parameters before the timesteps: sums of biases, weights that are functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimdsim.execution.whole_tensor_values import Tensor, by_role, in_blocks
from mimdsim.graph import OPERATIONS, Layer
from mimdsim.graph.names import Parameter


class DerivedTensors:
    """Parameters of a layer of which timesteps read what is made of them. tensors: what is read, by role; own: of the
    parameters, which are trained."""

    def __init__(self, layer: Layer, tensors: dict[str, Tensor], room: Callable[[tuple[Parameter, ...]], Tensor]):
        self._layer, self._tensors = layer, tensors
        roles = {own.constant or own.role for each in layer.derived for own in each.of}
        self.own = {role: room(every) for role, every in by_role(layer.parameters).items() if role in roles}

    def _rows(self, array: str, tensors: dict[str, Tensor]) -> dict[Parameter, np.ndarray]:
        """[rows, neurons] of every parameter, of what tensors have of it ('value', 'gradient')."""
        found = {}
        for tensor in tensors.values():
            for each, rows in tensor.rows.items():
                blocks = getattr(tensor, array)[:, rows]
                found[each] = blocks.transpose(1, 0, 2).reshape(each.shape[0], -1)[:, : each.shape[1]]
        return found

    def _leave(self, array: str, tensors: dict[str, Tensor], made: dict[Parameter, np.ndarray]) -> None:
        for tensor in tensors.values():
            for each, rows in tensor.rows.items():
                if each in made:
                    held = getattr(tensor, array)
                    held[:, rows] = in_blocks(made[each], held.shape[2])

    def forward(self) -> None:
        """Make what timesteps read."""
        if not self.own:
            return
        values = self._rows("value", self.own)  # some may be read as they are
        for each in self._layer.derived:
            made = OPERATIONS[each.kind].evaluate(each.about, *(values[own] for own in each.of))
            values |= dict(zip(each.makes, made, strict=True))
        self._leave("value", self._tensors, values)

    def backward(self) -> None:
        """Gradients of the parameters from those of what was made of them."""
        if not self.own:
            return
        values, gradients = self._rows("value", self.own), self._rows("gradient", self._tensors)
        for each in self._layer.derived:
            given = (*(gradients[made] for made in each.makes), *(values[own] for own in each.of))
            made = OPERATIONS[f"{each.kind}_gradient"].evaluate(each.about, *given)
            gradients |= dict(zip(each.of, made, strict=True))
        self._leave("gradient", self.own, gradients)
