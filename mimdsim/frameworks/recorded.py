"""What a forward pass of a PyTorch module showed: the calls of layers of neurons, and what it returned."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from mimdsim.frameworks.neurons import Reading, numbers_of, refusal
from mimdsim.frameworks.origins import (
    FunctionResult,
    Made,
    Origin,
    Product,
)
from mimdsim.graph.convolution import Planes


@dataclass(kw_only=True)
class NeuronCalls:
    """The calls of one layer of neurons, in order. currents, outputs: [batch, neurons] a call, or with `in_time`
    [timesteps, batch, neurons] in the only one; neurons may be planes. states: alike, of neurons that hand them on.
    path: of the module, where that has several layers. pixels: of the planes that it reads, which may have been put in
    a row since."""

    name: str
    module: torch.nn.Module
    reading: Reading
    path: str = ""
    pixels: Planes | None = None
    currents: list[torch.Tensor] = field(default_factory=list)
    origins: list[Origin | None] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)
    states: list[torch.Tensor] = field(default_factory=list)

    @property
    def in_time(self) -> bool:
        return self.reading.in_time

    @property
    def neurons(self) -> int:
        return math.prod(self.outputs[0].shape[2 if self.in_time else 1 :])

    @property
    def planes(self) -> Planes | None:
        """Those that it sends; None: it has none."""
        shape = tuple(self.outputs[0].shape[2 if self.in_time else 1 :])
        if len(shape) not in (2, 3):
            return None
        made, read = Planes(channels=shape[0], height=shape[1] if shape[2:] else 1, width=shape[-1]), self.pixels
        return replace(read, channels=made.channels) if read and read.positions == made.positions else made

    def sequence(self, tensors: list[torch.Tensor]) -> np.ndarray:
        """float64[timesteps, batch, neurons]"""
        together = tensors[0] if self.in_time else torch.stack(tensors)
        if together.dtype in (torch.float16, torch.bfloat16):
            raise refusal(
                f"layer '{self.name}' computes in {together.dtype}; nearest: float32, without autocast, and "
                "mapping.value_bytes for halves"
            )
        return numbers_of(together.reshape(*together.shape[:2], -1))


@dataclass(kw_only=True)
class Recorded:
    """What a forward pass showed. returned: the origins of what the module returned (in a single step: of the last);
    masks: zeros and ones by which parameters are multiplied, by their names; norms: how often each batch norm ran;
    made_by_call: what every call returned; reading: how what it returned reads a linear layer that ends it, '' where
    none does; log_softmax: whether that was one over the classes, which a cross-entropy undoes: what it returned is
    what it was made of; votes: how many outputs stand for a class, of which the module returned the mean; made: by
    operations element by element, in order; timesteps: of the sequence, 0 where it was not seen; stepwise: the module
    took one a call; unread: what functions made that are not understood, or gather timesteps, in order;
    returned_before: by the calls before the last, in a single step; currents: what products made, and its version;
    at_once: what functions of all timesteps made; burn_in: of so many timesteps at the start nothing is in what it
    returned."""

    layers: dict[str, NeuronCalls] = field(default_factory=dict)
    norms: Counter[str] = field(default_factory=Counter)
    returned: list[Origin | None] = field(default_factory=list)
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    made_by_call: list[list[torch.Tensor]] = field(default_factory=list)
    reading: str = ""
    log_softmax: bool = False
    votes: int = 1
    made: list[Made] = field(default_factory=list)
    timesteps: int = 0
    burn_in: int = 0
    stepwise: bool = False
    unread: list[FunctionResult] = field(default_factory=list)
    returned_before: list[Origin | None] = field(default_factory=list)
    at_once: list[Origin | None] = field(default_factory=list)
    currents: list[tuple[Product, torch.Tensor, int]] = field(default_factory=list)
