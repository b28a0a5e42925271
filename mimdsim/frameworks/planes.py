"""Convolutions and pools of PyTorch in the terms of graph/convolution.py.

A module is read as the function that it calls, with its attributes as arguments, whose names are the same; what it made
must then be what that function makes. A function that is called directly is read alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from mimdsim.base.errors import MappingError
from mimdsim.frameworks.neurons import refusal
from mimdsim.graph import OPERATIONS
from mimdsim.graph.convolution import Convolution, Pair, Patches, Planes, Pool, Pooling, Window

Options = dict[str, Any]
_WEIGHTS = ("weight", "bias", "stride", "padding", "dilation", "groups")
_LARGEST = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_MEAN = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_SIZES = ("output_size",)


@dataclass(frozen=True, kw_only=True)
class PlaneFunction:
    """A function of torch.nn.functional, the module that calls it, and its arguments after the input, in order."""

    call: Callable[..., torch.Tensor]
    module: type[torch.nn.Module]
    dimensions: int
    arguments: tuple[str, ...]

    @property
    def convolves(self) -> bool:
        return self.arguments == _WEIGHTS

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[torch.Tensor, Options]:
        """(the input, the other arguments by name) of a call."""
        options = dict(zip(("input", *self.arguments), args, strict=False)) | dict(kwargs)
        return options.pop("input"), options

    def pair(self, value: Any, along_height: int) -> Pair:
        """An option along the height and the width."""
        sizes = (value,) if isinstance(value, int) or value is None else tuple(value)
        sizes = sizes * (self.dimensions // len(sizes))
        return (along_height, sizes[0]) if self.dimensions == 1 else (sizes[0], sizes[1])


FUNCTIONS = {
    call.__name__: PlaneFunction(call=call, module=module, dimensions=dimensions, arguments=arguments)
    for call, module, dimensions, arguments in (
        (functional.conv1d, nn.Conv1d, 1, _WEIGHTS),
        (functional.conv2d, nn.Conv2d, 2, _WEIGHTS),
        (functional.max_pool1d, nn.MaxPool1d, 1, _LARGEST),
        (functional.max_pool2d, nn.MaxPool2d, 2, _LARGEST),
        (functional.avg_pool1d, nn.AvgPool1d, 1, _MEAN),
        (functional.avg_pool2d, nn.AvgPool2d, 2, _MEAN),
        (functional.adaptive_avg_pool1d, nn.AdaptiveAvgPool1d, 1, _SIZES),
        (functional.adaptive_avg_pool2d, nn.AdaptiveAvgPool2d, 2, _SIZES),
    )
}


def function_of(module: torch.nn.Module) -> PlaneFunction | None:
    """What a module calls, if it is a convolution or a pool."""
    return next((each for each in FUNCTIONS.values() if isinstance(module, each.module)), None)


def options_of(where: str, function: PlaneFunction, module: Any, given: torch.Tensor, made: Any) -> Options:
    """The arguments that a module calls its function with; raises DescriptionError where it does anything else."""
    options = {name: getattr(module, name) for name in function.arguments if hasattr(module, name)}
    if (mode := getattr(module, "padding_mode", "zeros")) != "zeros":
        raise refusal(f"{where} has padding_mode='{mode}'; nearest: padding_mode='zeros'")
    if not options.get("return_indices"):
        wanted = function.call(given.reshape(-1, *given.shape[-1 - function.dimensions :]), **options)
        if made.numel() != wanted.numel() or not torch.allclose(made.reshape(wanted.shape), wanted, atol=1e-6):
            raise refusal(f"{where} does more than its class says; write it as torch.nn.{function.module.__name__}")
    return options


def planes_of(where: str, function: PlaneFunction, given: torch.Tensor) -> Planes:
    """Those that a function reads; samples, and timesteps, lie before them."""
    if given.ndim < 2 + function.dimensions:
        axes = "channels, width" if function.dimensions == 1 else "channels, height, width"
        raise refusal(f"{where} reads {list(given.shape)}; [samples, {axes}] is needed")
    channels, *sizes = given.shape[-1 - function.dimensions :]
    height, width = function.pair(sizes, 1)
    return Planes(channels=channels, height=height, width=width)


def convolution_of(
    where: str, function: PlaneFunction, options: Options, planes: Planes, before: Pool | None
) -> Convolution:
    """Weights over a window of `planes`, pooled `before`; raises DescriptionError for options that nothing here has."""
    if (groups := options.get("groups", 1)) != 1:
        raise refusal(f"{where} has groups={groups}; nearest: groups=1, whose channels read all channels")
    weight, padding = options["weight"], options.get("padding", 0)
    kernel = function.pair(tuple(weight.shape[2:]), 1)
    dilation = function.pair(options.get("dilation", 1), 1)
    if padding == "same":
        total = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        if any(each % 2 for each in total):
            raise refusal(f"{where} has padding='same' that differs from side to side; nearest: an odd kernel")
        pads = (total[0] // 2, total[1] // 2)
    else:
        pads = function.pair(0 if padding == "valid" else padding, 0)
    try:
        window = Window(
            kernel=kernel, stride=function.pair(options.get("stride", 1), 1), padding=pads, dilation=dilation
        )
        return Convolution(planes=planes, window=window, channels=len(weight), before=before)
    except MappingError as problem:
        raise refusal(f"{where}: {problem}") from None


def pool_of(where: str, function: PlaneFunction, options: Options, planes: Planes) -> Pool:
    """A pool over `planes`; raises DescriptionError for options that nothing here has."""
    if function.arguments == _SIZES:
        return Pool(kind="average", window=_equal_windows(where, function.pair(options["output_size"], 1), planes))
    kernel = function.pair(options["kernel_size"], 1)
    padding = function.pair(options.get("padding", 0), 0)
    for problem in _problems(options, padding):
        raise refusal(f"{where} {problem}")
    divisor = options.get("divisor_override")
    kind = "max" if function.arguments == _LARGEST else "sum" if divisor == 1 else "average"
    stride = function.pair(options.get("stride") or kernel[-function.dimensions :], 1)
    try:
        return Pool(kind=kind, window=Window(kernel=kernel, stride=stride, padding=padding))
    except MappingError as problem:
        raise refusal(f"{where}: {problem}") from None


def _problems(options: Options, padding: Pair) -> Iterator[str]:
    if options.get("ceil_mode"):
        yield "has ceil_mode=True, whose last windows are smaller; nearest: ceil_mode=False"
    if options.get("return_indices"):
        yield "returns where its largest values are; nearest: return_indices=False"
    if options.get("dilation", 1) not in (1, (1,), (1, 1)):
        yield f"has dilation={options['dilation']}; nearest: dilation=1"
    if not options.get("count_include_pad", True) and any(padding):
        yield "leaves its padding out of the mean; nearest: count_include_pad=True"
    if (divisor := options.get("divisor_override")) not in (None, 1):
        yield (
            f"has divisor_override={divisor}; nearest: 1 (a sum) or None (a mean), with a factor in the weights after "
            "it"
        )


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


def keys_of(convolution: Convolution, of_input: bool) -> dict[str, Any]:
    """The section [network.convolutions.<layer>]."""
    window, planes = convolution.window, convolution.planes
    pools = {"pool_before": convolution.before, "pool": convolution.after}
    made: dict[str, Any] = {
        "channels": convolution.channels,
        "kernel": list(window.kernel),
        "stride": list(window.stride),
        "padding": list(window.padding),
        "dilation": list(window.dilation),
    }
    if of_input:
        made["planes"] = [planes.channels, planes.height, planes.width]
    for name, pool in pools.items():
        if pool:
            window = pool.window
            sizes = {"size": window.kernel, "stride": window.stride, "padding": window.padding}
            made[name] = {"kind": pool.kind} | {key: list(pair) for key, pair in sizes.items()}
    return made


def currents_of(
    convolution: Convolution | None, spikes: np.ndarray, weights: np.ndarray, bias: np.ndarray | float
) -> np.ndarray:
    """float64[timesteps, samples, neurons] of spikes [timesteps, samples, inputs], channels outermost."""
    if convolution is None:
        return spikes @ weights + bias
    return np.stack([_currents_of_planes(convolution, each, weights, bias) for each in spikes])


def _currents_of_planes(
    convolution: Convolution, values: np.ndarray, weights: np.ndarray, bias: np.ndarray | float
) -> np.ndarray:
    before, after, result = convolution.before, convolution.after, convolution.result
    samples = len(values)
    if before:
        values = _pooled(before, convolution.planes, values, by_channel=True)
    patches = Patches(planes=convolution.read, window=convolution.window, by_channel=not before)
    (rows,) = OPERATIONS["unfold"].evaluate(patches, values)
    made = rows @ weights + bias
    if after:
        made = _pooled(after, convolution.made, made, by_channel=False)
    return made.reshape(samples, result.positions, result.channels).transpose(0, 2, 1).reshape(samples, -1)


def _pooled(pool: Pool, planes: Planes, values: np.ndarray, *, by_channel: bool) -> np.ndarray:
    pooling = Pooling(planes=planes, window=pool.window, kind=pool.kind, by_channel=by_channel)
    (made,) = OPERATIONS["pool"].evaluate(pooling, values)
    result: np.ndarray = made
    return result
