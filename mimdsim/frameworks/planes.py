"""Convolutions and pools of PyTorch in the terms of graph/convolution.py.

A module is read as the function that it calls, with its attributes as arguments, whose names are the same; what it made
must then be what that function makes. A function that is called directly is read alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from mimdsim.frameworks.neurons import agree, refusal
from mimdsim.graph import OPERATIONS
from mimdsim.graph.convolution import Convolution, Pair, Patches, Planes, Pool, Pooling, Window
from mimdsim.graph.norms import BatchNorm, of_sample
from mimdsim.graph.synapses import product

Options = dict[str, Any]
# norms of the last axes of a sample; PyTorch has the second since 2.4
ROW_NORMS = tuple(getattr(torch.nn, name) for name in ("LayerNorm", "RMSNorm") if hasattr(torch.nn, name))
SAME_CURRENT = 1e-5  # of the largest: float32 sums in another order


@dataclass(frozen=True, kw_only=True)
class LayerFunction:
    """A function of torch.nn.functional, the module that calls it, and its arguments after the input, in order.
    dimensions: of its planes; 0: it has none."""

    kind: str
    call: Callable[..., torch.Tensor]
    module: type[torch.nn.Module]
    dimensions: int
    arguments: tuple[str, ...]

    def pair(self, value: Any, along_height: int) -> Pair:
        """An option along the height and the width."""
        sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,) * self.dimensions
        sizes = sizes * (self.dimensions // len(sizes))
        return (along_height, sizes[0]) if self.dimensions == 1 else (sizes[0], sizes[1])


_PRODUCT, _PLACES = ("weight", "bias"), ("kernel_size", "stride", "padding")
FUNCTIONS = {
    name: LayerFunction(
        kind=kind,
        call=getattr(torch.nn.functional, name),
        module=getattr(torch.nn, module),
        dimensions=dimensions,
        arguments=arguments,
    )
    for kind, name, module, dimensions, arguments in (
        ("linear", "linear", "Linear", 0, _PRODUCT),
        *(
            (kind, f"{name}{d}d", f"{module}{d}d", d, arguments)
            for kind, name, module, arguments in (
                ("convolution", "conv", "Conv", (*_PRODUCT, "stride", "padding", "dilation", "groups")),
                ("max", "max_pool", "MaxPool", (*_PLACES, "dilation", "ceil_mode", "return_indices")),
                ("average", "avg_pool", "AvgPool", (*_PLACES, "ceil_mode", "count_include_pad", "divisor_override")),
                ("adaptive", "adaptive_avg_pool", "AdaptiveAvgPool", ("output_size",)),
            )
            for d in (1, 2)
        ),
    )
}


def function_of(module: torch.nn.Module) -> LayerFunction | None:
    """What a module calls, if it is a linear layer, a convolution or a pool."""
    return next((each for each in FUNCTIONS.values() if isinstance(module, each.module)), None)


def options_of(where: str, function: LayerFunction, module: Any, given: torch.Tensor, made: Any) -> Options:
    """The arguments that a module calls its function with; raises DescriptionError where it does anything else."""
    options = {name: getattr(module, name) for name in function.arguments if hasattr(module, name)}
    if (mode := getattr(module, "padding_mode", "zeros")) != "zeros":
        raise refusal(f"{where} has padding_mode='{mode}'; nearest: padding_mode='zeros'")
    if options.get("return_indices"):
        raise refusal(f"{where} returns where its largest values are; nearest: return_indices=False")
    wanted = function.call(given.reshape(-1, *given.shape[-1 - function.dimensions :]), **options)
    if made.numel() != wanted.numel() or not agree(made.reshape(wanted.shape), wanted, SAME_CURRENT):
        raise refusal(f"{where} does more than its class says; write it as torch.nn.{function.module.__name__}")
    return options


def planes_of(where: str, function: LayerFunction, given: torch.Tensor) -> Planes:
    """Those that a function reads; samples, and timesteps, lie before them."""
    if given.ndim < 2 + function.dimensions:
        axes = "channels, width" if function.dimensions == 1 else "channels, height, width"
        raise refusal(f"{where} reads {list(given.shape)}; [samples, {axes}] is needed")
    channels, *sizes = given.shape[-1 - function.dimensions :]
    height, width = function.pair(sizes, 1)
    return Planes(channels=channels, height=height, width=width)


def is_of_pixels(function: LayerFunction, options: Options) -> bool:
    """Whether it is a convolution whose places are single pixels, however they lie."""
    weight, ones = options.get("weight"), (1, 1)
    sizes = () if weight is None else tuple(weight.shape[2:])
    return (
        function.kind == "convolution"
        and function.pair(sizes, 1) == function.pair(options.get("stride", 1), 1) == ones
        and options.get("padding", 0) in (0, (0,), (0, 0), "same", "valid")
    )


def convolution_of(
    where: str, function: LayerFunction, options: Options, planes: Planes, before: Pool | None, edges: Pair
) -> Convolution:
    """Weights over a window of `planes`, pooled `before` and with so many zeros at their `edges`; raises
    DescriptionError for options that nothing here has."""
    weight, padding = options["weight"], options.get("padding", 0)
    kernel = function.pair(tuple(weight.shape[2:]), 1)
    dilation = function.pair(options.get("dilation", 1), 1)
    if padding == "same":
        high, wide = (step * (size - 1) for step, size in zip(dilation, kernel, strict=True))
        if high % 2 or wide % 2:
            raise refusal(f"{where} has padding='same' that differs from side to side; nearest: an odd kernel")
        pads = (high // 2, wide // 2)
    else:
        pads = function.pair(0 if padding == "valid" else padding, 0)
    stride = function.pair(options.get("stride", 1), 1)
    padding = (pads[0] + edges[0], pads[1] + edges[1])
    window = Window(kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    groups = options.get("groups", 1)
    return Convolution(planes=planes, window=window, channels=len(weight), groups=groups, before=before)


def pool_of(where: str, function: LayerFunction, options: Options, planes: Planes) -> Pool:
    """A pool over `planes`; raises DescriptionError for options that nothing here has."""
    if function.kind == "adaptive":
        return Pool(kind="average", window=_equal_windows(where, function.pair(options["output_size"], 1), planes))
    kernel = function.pair(options["kernel_size"], 1)
    padding = function.pair(options.get("padding", 0), 0)
    divisor, dilation = options.get("divisor_override"), options.get("dilation", 1)
    refused = {
        "has ceil_mode=True, whose last windows are smaller; nearest: ceil_mode=False": options.get("ceil_mode"),
        f"has dilation={dilation}; nearest: dilation=1": function.pair(dilation, 1) != (1, 1),
        "leaves its padding out of the mean; nearest: count_include_pad=True": (
            not options.get("count_include_pad", True) and any(padding)
        ),
        f"has divisor_override={divisor}; nearest: 1 (a sum) or None (a mean)": divisor not in (None, 1),
    }
    for problem in (text for text, wrong in refused.items() if wrong):
        raise refusal(f"{where} {problem}")
    stride = function.pair(options.get("stride") or kernel[-function.dimensions :], 1)
    kind = "sum" if divisor == 1 else function.kind
    return Pool(kind=kind, window=Window(kernel=kernel, stride=stride, padding=padding))


def _equal_windows(where: str, sizes: Pair, planes: Planes) -> Window:
    """Those of an adaptive pool that makes planes of these sizes (None: as large as they are)."""
    kernel, stride = [], []
    for given, made in zip((planes.height, planes.width), sizes, strict=True):
        made = made or given
        begin = np.arange(made) * given // made
        lengths = -(-(np.arange(made) + 1) * given // made) - begin
        steps = np.diff(begin) if made > 1 else lengths
        if np.ptp(lengths) or np.ptp(steps) or not steps.min():
            raise refusal(f"{where} makes {made} of {given} pixels by windows of several sizes; nearest: AvgPool2d")
        kernel.append(int(lengths[0]))
        stride.append(int(steps[0]))
    return Window(kernel=(kernel[0], kernel[1]), stride=(stride[0], stride[1]))


def keys_of(convolution: Convolution, of_input: bool, gates: int) -> dict[str, Any]:
    """The section [network.convolutions.<layer>] of neurons with so many columns of weights each."""
    planes, window = convolution.planes, convolution.window
    made = {"channels": convolution.channels // gates, "dilation": window.dilation, **_places("kernel", window)}
    if convolution.groups > 1:
        made["groups"] = convolution.groups
    if of_input:
        made["planes"] = (planes.channels, planes.height, planes.width)
    for name, pool in (("pool_before", convolution.before), ("pool", convolution.after)):
        if pool:
            made[name] = {"kind": pool.kind, **_places("size", pool.window)}
    if convolution.own:
        made["own_kernel"] = convolution.own.kernel
    return made


def _places(size: str, window: Window) -> dict[str, Any]:
    return {size: window.kernel, "stride": window.stride, "padding": window.padding}


def one_to_one(channels: int, neurons: int) -> Convolution:
    """One that leaves planes, so many pixels in all, as they are with weights of 1."""
    planes = Planes(channels=channels, height=1, width=neurons // channels)
    return Convolution(planes=planes, window=Window(kernel=(1, 1)), channels=channels, groups=channels)


def currents_of(
    convolution: Convolution | None,
    spikes: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | float,
    norm: BatchNorm | None = None,
    rows_of_norm: tuple[np.ndarray, ...] = (),
) -> np.ndarray:
    """float64[timesteps, samples, neurons] of spikes [timesteps, samples, inputs], channels outermost; with a norm of
    what weights and bias make, and its gain and shift."""
    timesteps, samples, _ = spikes.shape
    rows = spikes
    if convolution:
        unfold = Patches(planes=convolution.read, window=convolution.window, by_channel=not convolution.before)
        if convolution.before:
            rows = _pooled(convolution.planes, convolution.before, rows, by_channel=True)
        rows = np.stack([OPERATIONS["unfold"].evaluate(unfold, each)[0] for each in rows])
    made = product(convolution.groups if convolution else None, rows, weights) + bias
    gain, shift = map(np.atleast_2d, rows_of_norm or (np.ones(1), np.zeros(1)))
    if norm and norm.averages:
        batches = [made] if norm.at_once else list(made)
        evaluate = OPERATIONS["batch_norm"].evaluate
        made = np.stack([evaluate(norm, each, gain, shift)[0] for each in batches]).reshape(made.shape)
    elif norm:
        positions = convolution.made.positions if convolution else 1
        standard, _ = OPERATIONS["standardise"].evaluate(of_sample(norm, positions), made.reshape(-1, made.shape[-1]))
        made = standard.reshape(made.shape) * gain + shift
    if convolution and convolution.after:
        made = _pooled(convolution.made, convolution.after, made)
    found: np.ndarray = made.reshape(timesteps, samples, -1, weights.shape[1]).transpose(0, 1, 3, 2)
    return found.reshape(timesteps, samples, -1)


def largest_of_norm(
    convolution: Convolution | None,
    spikes: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | float,
    norm: BatchNorm,
    gain: np.ndarray,
) -> np.ndarray:
    """float64[neurons]: the largest current of `currents_of` before its norm, as far as the norm makes it larger: of
    values that hardly differ it makes their rounding large."""
    before = replace(convolution, after=None) if convolution else None
    made = currents_of(before, spikes, weights, bias)
    gain = np.atleast_2d(gain)
    groups = gain.shape[-1] if norm.averages else norm.groups
    gain = np.abs(gain).max(axis=0)  # of all timesteps
    shares = made.reshape(*made.shape[:2], groups, -1)
    axes = (1, 3) if norm.averages else (3,)
    axes = (0, *axes) if norm.per == "sequence" else axes
    spread = np.square(shares).mean if norm.per == "root_mean_square" else shares.var
    least = spread(axis=axes, keepdims=True).min(axis=(0, 1, 3))
    scale = np.abs(gain.reshape(groups, -1)) / np.sqrt(least + norm.epsilon)[:, None]
    neurons = convolution.result.neurons if convolution else gain.size
    largest: np.ndarray = np.repeat(scale.reshape(-1), neurons // gain.size) * np.abs(made).max()
    return largest


def _pooled(planes: Planes, pool: Pool, values: np.ndarray, by_channel: bool = False) -> np.ndarray:
    pooling = Pooling(planes=planes, window=pool.window, kind=pool.kind, by_channel=by_channel)
    return np.stack([OPERATIONS["pool"].evaluate(pooling, each)[0] for each in values])
