"""What a forward pass of a PyTorch module showed: the calls of layers of neurons, and what it returned; where tensors
come from, and how their values lie."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from mimdsim.frameworks.neurons import Reading, numbers_of, refusal
from mimdsim.frameworks.origins import (
    THROUGH,
    Combined,
    Dropped,
    FunctionResult,
    Made,
    Origin,
    Pooled,
    Product,
    Scaled,
    each_in,
    parts_of,
    sources_in,
    terms_of,
)
from mimdsim.frameworks.tensors import Layouts, tensors_in
from mimdsim.graph.convolution import Planes
from mimdsim.graph.synapses import HeadProduct


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
        shape, read = tuple(self.outputs[0].shape[2 if self.in_time else 1 :]), self.pixels
        if read and read.positions == 1 and read.neurons == self.neurons:  # its channels may lie along any axes
            return read
        if len(shape) not in (2, 3):
            return None
        made = Planes(channels=shape[0], height=shape[1] if shape[2:] else 1, width=shape[-1])
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


class OriginRecorder(TorchFunctionMode):  # type: ignore[misc]
    """Knows where tensors come from, and how their values lie in the planes that layers and products make."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Recorded()
        self.layouts = Layouts()
        self._origins: dict[int, Origin] = {}
        self._held: list[torch.Tensor] = []  # an id is reused once its tensor is gone

    def mark(self, made: Any, origin: Origin) -> None:
        for tensor in tensors_in(made):
            self._origins[id(tensor)] = origin
            self._held.append(tensor)
            if isinstance(origin, Product):
                shown = self.in_planes(tensor, origin)
                self.seen.currents.append((origin, shown, shown._version))

    def origin(self, tensor: Any) -> Origin | None:
        return self._origins.get(id(tensor)) if isinstance(tensor, torch.Tensor) else None

    def in_planes(self, tensor: torch.Tensor, of: Origin | None) -> torch.Tensor:
        """Its values as they lie in planes, [..., channels, positions], where it has channels last or other places;
        else itself."""
        planes = self.planes_of(of) if self.layouts.is_turned(tensor) else None
        order = self.layouts.order(tensor, planes.neurons) if planes else None
        if planes is None or order is None or torch.equal(order, torch.arange(planes.neurons)):
            return tensor
        shape, samples = tensor.shape, tensor.numel() // planes.neurons
        before = next((shape[:k] for k in range(len(shape)) if shape[:k].numel() == samples), (samples,))
        rows = tensor.detach().reshape(samples, -1)[:, order]
        return rows.reshape(*before, planes.channels, planes.positions)

    def planes_of(self, of: Origin | None) -> Planes | None:
        """Those that a tensor of this origin is of; None where it has none, or several."""
        if isinstance(of, Pooled):
            return of.pool.over(of.planes)
        made = (each.planes for each in each_in((FunctionResult, *THROUGH), of) if isinstance(each, Made))
        return self._planes_made([of]) or self._planes_sent(of) or next(filter(None, made), None)

    def _planes_sent(self, of: Origin | None) -> Planes | None:
        """Those of the first layer in it, as its convolution made them: pixels may have been put in a row since; None:
        others have fewer channels or pixels."""
        if isinstance(of, (Scaled, Dropped)):
            return self._planes_sent(parts_of(of)[0])
        if isinstance(of, Combined) and isinstance(of.by, HeadProduct):
            both = [planes for each in of.parts if (planes := self._planes_sent(each))]
            return of.by.over(*both) if len(both) == 2 else None
        sent = []
        for calls in (self.seen.layers[name] for name, spikes in sorted(sources_in(of)) if spikes):
            made, has = calls.pixels, calls.planes
            same = made and made.neurons == calls.neurons and (has is None or made.channels == has.channels)
            sent.append(made if same else has)  # else cells have several gates for each neuron
        return sent[0] if len({each and (each.channels, each.positions) for each in sent}) == 1 else None

    def _planes_made(self, currents: list[Origin | None]) -> Planes | None:
        """Those of the convolutions that make currents."""
        read = [part for origin in currents for part, _ in terms_of(origin)]
        every = {each.convolution.result for each in read if isinstance(each, Product) and each.convolution}
        return every.pop() if len(every) == 1 else None
