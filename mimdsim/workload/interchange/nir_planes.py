"""Convolutions and pools of a NIR graph: what arrives at a population from planes, put together node by node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.graph.convolution import Convolution, Pair, Planes, Pool, Window
from mimdsim.workload.interchange.nir_nodes import MAX_VALUES, POOLS, NirNode, NodeProblem, Reals

T = TypeVar("T")
PADDING = "padding"  # numbers, or a word in the metadata of a node that was read


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaneMap:
    """What a source of planes sends, through a pool, a convolution and another pool, each of which may be missing.
    weights [channels read * taps, channels made], bias one for each of these."""

    planes: Planes
    before: Pool | None = None
    window: Window | None = None
    weights: Reals | None = None
    bias: Reals | None = None
    after: Pool | None = None

    @property
    def convolution(self) -> Convolution:
        """Raises NodeProblem where there is none, or where windows do not fit."""
        if self.window is None or self.weights is None:
            raise NodeProblem("gets pools of planes without weights; a layer has weights")
        try:
            made = Convolution(
                planes=self.planes,
                window=self.window,
                channels=int(self.weights.shape[1]),
                before=self.before,
                after=self.after,
            )
        except MappingError as problem:
            raise NodeProblem(str(problem)) from None
        if made.fan_in != self.weights.shape[0]:
            raise NodeProblem(f"has weights for {self.weights.shape[0]} inputs of a window that covers {made.fan_in}")
        if max(made.result.neurons, made.made.neurons, made.read.neurons) > MAX_VALUES:
            raise NodeProblem(f"makes planes of {made.made}, over {MAX_VALUES} neurons")
        return made

    def through(self, node: NirNode) -> PlaneMap:
        """What comes of it by a convolution, a pool or a matrix; raises NodeProblem for what no layer does."""
        if node.kind in POOLS:
            pool = _fits(lambda: Pool(kind=POOLS[node.kind], window=_window(node, "kernel_size")))
            if self.window is None and self.before is None:
                return replace(self, before=pool)
            if self.window is not None and self.after is None:
                return replace(self, after=pool)
            raise NodeProblem("follows another pool; a layer has one before its weights and one after")
        if self.window is not None:
            raise NodeProblem("follows a convolution without neurons between both")
        if node.kind in ("Linear", "Affine"):
            read = _fits(lambda: self.before.over(self.planes) if self.before else self.planes)
            bias = node.arrays["bias"].reshape(-1) if "bias" in node.arrays else None
            return replace(self, window=Window.whole(read), weights=node.arrays["weight"].T, bias=bias)
        if node.kind not in ("Conv1d", "Conv2d"):
            raise NodeProblem("acts on planes, between a source and its convolution, pool or weights")
        weight, one = node.arrays["weight"], node.kind == "Conv1d"
        if weight.ndim != (3 if one else 4):
            raise NodeProblem(f"'weight' has the shape {list(weight.shape)}; [made, read, kernel ...] is needed")
        groups = node.arrays["groups"].reshape(-1)
        if groups.size != 1 or groups[0] != 1:
            raise NodeProblem(f"has {groups[:4].tolist()} groups; one can run")
        kernel = (1, weight.shape[2]) if one else (int(weight.shape[2]), int(weight.shape[3]))
        bias = node.arrays["bias"].reshape(-1) if "bias" in node.arrays else None
        if bias is not None and bias.size != weight.shape[0]:
            raise NodeProblem(f"'bias' has {bias.size} values for {weight.shape[0]} channels")
        flat = weight.reshape(len(weight), -1).T
        return replace(self, window=_fits(lambda: _window(node, kernel)), weights=flat, bias=bias)


def planes_of(shape: Reals) -> Planes | None:
    """Of a shape [channels, height, width] or [channels, length]; None for any other."""
    if shape.size not in (2, 3) or not np.all(np.isfinite(shape)) or np.any(shape < 1) or np.any(shape % 1):
        return None
    if np.prod(shape) > MAX_VALUES:
        return None
    channels, *sides = map(int, shape.tolist())
    return Planes(channels=channels, height=sides[0] if len(sides) == 2 else 1, width=sides[-1])


def _fits(make: Callable[[], T]) -> T:
    """What is made; raises NodeProblem where a window cannot be."""
    try:
        return make()
    except MappingError as problem:
        raise NodeProblem(str(problem)) from None


def _window(node: NirNode, kernel: Pair | str) -> Window:
    """The window of a node; one number is for both sides, of one dimension for the width."""
    size = _pair(node, kernel) if isinstance(kernel, str) else kernel
    one, word = node.kind == "Conv1d", node.metadata.get(PADDING, "")
    stride = _pair(node, "stride", one)
    dilation = _pair(node, "dilation", one) if "dilation" in node.arrays else (1, 1)
    if word == "same":
        spare = [reach * (side - 1) for side, reach in zip(size, dilation, strict=True)]
        if any(each % 2 for each in spare) or stride != (1, 1):
            raise NodeProblem("its padding 'same' is not the same on both sides; give it as numbers")
        padding = spare[0] // 2, spare[1] // 2
    elif word not in ("", "valid"):
        raise NodeProblem(f"its padding is '{word}'; numbers, 'same' and 'valid' are known")
    else:
        padding = (0, 0) if word else _pair(node, PADDING, one)
    return Window(kernel=size, stride=stride, padding=padding, dilation=dilation)


def _pair(node: NirNode, name: str, one: bool = False) -> Pair:
    values = node.arrays[name].reshape(-1) if name in node.arrays else np.zeros(0)
    if values.size not in ((1,) if one else (1, 2)) or np.any(values % 1) or np.any(np.abs(values) > MAX_VALUES):
        wanted = "one" if one else "one or two"
        raise NodeProblem(f"'{name}' is {values[:4].tolist()}; {wanted} whole numbers are needed")
    least = 0 if name == PADDING else 1
    first, last = int(values[0]), int(values[-1])
    return (least, last) if one else (first, last)


def by_channel(node: NirNode, planes: Planes) -> NirNode:
    """Neurons of planes with one number for each channel in place of one for each neuron; raises NodeProblem where
    those of a channel differ."""
    arrays = {}
    for name, values in node.arrays.items():
        if values.size == planes.neurons and planes.positions > 1:
            of_channels = values.reshape(planes.channels, planes.positions)
            if np.any(of_channels != of_channels[:, :1]):
                raise NodeProblem(f"'{name}' differs within a channel; neurons of planes have one for each channel")
            values = of_channels[:, 0]
        arrays[name] = values
    return replace(node, arrays=arrays)
