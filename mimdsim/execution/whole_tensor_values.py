"""What whole tensors keep of parameters: their numbers in blocks of neurons, gradients and moments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mimdsim.execution.execute import aligned
from mimdsim.graph.names import Parameter
from mimdsim.numerics.fused.interpreted import WIDTH


def in_blocks(rows: np.ndarray, width: int = WIDTH) -> np.ndarray:
    """float32[blocks, rows, width] from [rows, neurons], zeros beyond the last neuron."""
    count, neurons = rows.shape
    blocks = -(-neurons // width)
    wide = np.zeros((count, blocks * width), np.float32)
    wide[:, :neurons] = rows
    return np.ascontiguousarray(wide.reshape(count, blocks, width).transpose(1, 0, 2))


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensor:
    """Parameters of a layer, their rows one after another, in blocks of so many neurons [blocks, rows, width]; their
    gradient, and what an optimiser keeps of them. Weights of all that a layer reads are one tensor."""

    parameters: tuple[Parameter, ...]
    value: np.ndarray
    gradient: np.ndarray
    moments: tuple[np.ndarray, ...]

    @classmethod
    def zeros(cls, parameters: tuple[Parameter, ...], moments: int, width: int = WIDTH) -> Tensor:
        neurons = parameters[0].shape[1]
        shape = (-(-neurons // width), sum(each.shape[0] for each in parameters), width)
        kept = tuple(np.zeros(shape, np.float32) for _ in range(moments))
        return cls(parameters=parameters, value=aligned(shape), gradient=aligned(shape), moments=kept)

    @property
    def rows(self) -> dict[Parameter, slice]:
        """Where each parameter is."""
        edges = np.cumsum([0, *(each.shape[0] for each in self.parameters)]).tolist()
        return {each: slice(*ends) for each, ends in zip(self.parameters, pairwise(edges), strict=True)}


def by_role(parameters: tuple[Parameter, ...]) -> dict[str, tuple[Parameter, ...]]:
    """Those that are one tensor, by their role; constants by name."""
    roles: dict[str, tuple[Parameter, ...]] = {}
    for each in parameters:
        role = each.constant or each.role
        roles[role] = *roles.get(role, ()), each
    return roles
