"""PyTorch's names and layouts of weights turned into those of a network: w.<layer>, r.<layer>, b.<layer>.

PyTorch keeps a Linear layer as [outputs, inputs] and a network here has weights [inputs, neurons], so that matrices are
transposed. Which tensor is which is guessed from names and shapes if only one assignment fits; otherwise it must be
given.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError, DescriptionError, suggest
from mimdsim.graph.names import INPUT

Array = npt.NDArray[Any]
# snnTorch: lif1.recurrent.weight, lif1.recurrent.V; torch.nn.RNN: weight_hh_l0; norse: recurrent_weights.
_RECURRENT = re.compile(r"recurrent|_hh|w_rec")
_OWN_NAME = re.compile(r"([wrb])\.([A-Za-z0-9_]+)")
FROM = ".from."  # in names of weights for a second source


def layer_names(count: int) -> tuple[str, ...]:
    """'hidden0', 'hidden1', ..., 'output'"""
    return (*(f"hidden{index}" for index in range(count - 1)), "output")


class Assignment(NamedTuple):
    """Where a tensor goes: `tensor` of the file to `target` of the network ('w.hidden0')."""

    tensor: str
    target: str


def parse_map(texts: Iterable[str]) -> tuple[Assignment, ...]:
    """Assignments written as fc1.weight=w.hidden0; raises DescriptionError."""
    made = []
    for text in texts:
        tensor, equals, target = text.partition("=")
        if not equals or not _OWN_NAME.fullmatch(target.strip()):
            raise DescriptionError(
                f"--map {text}", ["write  --map TENSOR=w.LAYER  (r.LAYER recurrent, b.LAYER bias), e.g. w.hidden0"]
            )
        made.append(Assignment(tensor.strip(), target.strip()))
    return tuple(made)


def weights_of_state_dict(
    path: Path, tensors: Mapping[str, Array], given: tuple[Assignment, ...] = ()
) -> tuple[dict[str, Array], tuple[Assignment, ...], tuple[str, ...]]:
    """(weights by our names and in our layout; which tensor went where; tensors not used).

    Layers are named hidden0, hidden1, ..., output in their order. Raises DataFileError if the tensors form no
    chain of layers, or more than one, and for tensors that are not used unless assignments are given.
    """
    assigned = given or _guess(path, tensors)
    weights: dict[str, Array] = {}
    for each in assigned:
        if each.tensor not in tensors:
            raise DataFileError(path, f"has no tensor '{each.tensor}'{suggest(each.tensor, tensors)}")
        with np.errstate(invalid="ignore"):  # widening some NaNs raises warnings
            values = np.asarray(tensors[each.tensor], np.float64)
        if not np.all(np.abs(values) <= np.finfo(np.float32).max):
            raise DataFileError(
                path, f"'{each.tensor}' holds values that are not finite in float32; nothing starts there"
            )
        kind = each.target[0]
        wanted = {"w": (2,), "r": (1, 2), "b": (1,)}[kind]
        if values.ndim not in wanted:
            raise DataFileError(
                path,
                f"'{each.tensor}' has {values.ndim} dimensions; {each.target} takes {' or '.join(map(str, wanted))}; "
                "convolutions come with their module,  mimdsim import net.py:build  (docs/pytorch.md)",
            )
        values = values.T if values.ndim == 2 else values
        if each.target in weights:
            if kind != "b":
                raise DataFileError(path, f"'{each.target}' is given twice; each layer has one")
            values = values + weights[each.target]  # PyTorch keeps a bias for input and recurrence; they add up
        weights[each.target] = values
    used = {each.tensor for each in assigned}
    unused = tuple(name for name in tensors if name not in used)
    if unused and not given:
        listed = ", ".join(f"'{name}' {list(tensors[name].shape)}" for name in unused[:6])
        raise DataFileError(
            path,
            f"also holds {listed}{' and more' if len(unused) > 6 else ''}, which no layer of weights has (constants of "
            "neurons, norms, convolutions): import the module itself,  mimdsim import net.py:build  (docs/pytorch.md), "
            f"or say what is used, --map {assigned[0].tensor}={assigned[0].target} ...",
        )
    return weights, assigned, unused


def chain_of(
    path: Path,
    weights: Mapping[str, Array],
    sizes: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    reads: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """(layers in order, widths from the input to the output); raises DataFileError if they do not fit together. sizes:
    inputs and neurons of those with a convolution, whose weights have other extents. reads: of layers that do not read
    the one before them alone, the names of their weights, and what each is for."""
    found = sorted((name[2:] for name in weights if name.startswith("w.") and FROM not in name), key=natural)
    layers = layer_names(len(found))
    if not found or set(found) != set(layers):
        raise DataFileError(
            path, f"has weights for layers {', '.join(found) or '(none)'}; needed are hidden0, hidden1, ..., output"
        )
    flat = [name for name, values in weights.items() if name.startswith("w.") and values.ndim != 2]
    if flat:
        raise DataFileError(path, f"{flat[0]} has {weights[flat[0]].ndim} dimensions, not [inputs, neurons]")
    extents = {layer: sizes.get(layer, weights[f"w.{layer}"].shape) for layer in layers}
    widths = {INPUT: extents[layers[0]][0]} | {layer: int(wide) for layer, (_, wide) in extents.items()}
    known = set()
    for before, layer in zip(widths, layers, strict=False):
        neurons = weights[f"w.{layer}"].shape[1]
        for name, source in reads.get(layer, {f"w.{layer}": before}).items():
            if name not in weights:
                raise DataFileError(path, f"says that '{layer}' reads '{source}' also; '{name}' is missing")
            inputs, made = extents[layer] if name == f"w.{layer}" else weights[name].shape
            if inputs != widths[source]:
                what = "the layer before it" if source == before else f"'{source}'"
                raise DataFileError(path, f"{name} takes {inputs} inputs, {what} has {widths[source]} neurons")
            if made != widths[layer]:
                raise DataFileError(path, f"{name} has columns for {made} neurons, '{layer}' has {widths[layer]}")
            known.add(name)
        for kind, shapes in (("r", ((neurons, neurons), (neurons,))), ("b", ((neurons,),))):
            other = weights.get(f"{kind}.{layer}")
            if other is not None and other.shape not in shapes:
                raise DataFileError(path, f"{kind}.{layer} has the shape {list(other.shape)} for {neurons} neurons")
        known |= {f"r.{layer}", f"b.{layer}"}
    strays = [name for name in weights if name not in known]
    if strays:
        raise DataFileError(path, f"{', '.join(strays)} belong to no layer; layers are {', '.join(layers)}")
    return layers, tuple(widths.values())


def _guess(path: Path, tensors: Mapping[str, Array]) -> tuple[Assignment, ...]:
    """Matrices in the natural order of their names as layers, each with its bias and recurrence."""
    if all(_OWN_NAME.fullmatch(name) for name in tensors) and tensors:
        raise DataFileError(
            path, "already has weights under the names of a network: set training.initial_weights to it"
        )
    matrices = [
        name for name in sorted(tensors, key=natural) if tensors[name].ndim == 2 and not _RECURRENT.search(name)
    ]
    if not matrices:
        found = ", ".join(f"{name} {list(array.shape)}" for name, array in list(tensors.items())[:12])
        raise DataFileError(path, f"has no matrix that could be a layer's weights; it has {found or 'nothing'}")
    for first, second in itertools.pairwise(matrices):
        if tensors[first].shape[0] != tensors[second].shape[1]:
            listed = ", ".join(f"{name} {list(tensors[name].shape)}" for name in matrices)
            raise DataFileError(
                path,
                f"its matrices in the order of their names do not form a chain of layers ({listed}); say which is "
                f"which, --map {matrices[0]}=w.hidden0 ...",
            )
    layers = layer_names(len(matrices))
    made = [Assignment(name, f"w.{layer}") for name, layer in zip(matrices, layers, strict=True)]
    widths = {layer: tensors[name].shape[0] for name, layer in zip(matrices, layers, strict=True)}
    for name, layer in zip(matrices, layers, strict=True):
        bias = re.sub("weight(?=[^.]*$)", "bias", name)
        if bias != name and bias in tensors and tensors[bias].ndim == 1:
            made.append(Assignment(bias, f"b.{layer}"))
    for name in sorted(tensors, key=natural):
        if _RECURRENT.search(name) and tensors[name].ndim in (1, 2):
            layer = _recurrent_layer(path, name, tensors[name], widths)
            kind = "b" if "bias" in name else "r"
            made.append(Assignment(name, f"{kind}.{layer}"))
    return tuple(made)


def _recurrent_layer(path: Path, name: str, values: Array, widths: Mapping[str, int]) -> str:
    """The layer that a recurrent tensor belongs to, determined by its size."""
    fitting = [layer for layer, width in widths.items() if values.shape in ((width, width), (width,))]
    if len(fitting) != 1:
        which = f"fits {' and '.join(fitting)}" if fitting else "fits no layer"
        raise DataFileError(
            path, f"'{name}' {list(values.shape)} {which}; give all tensors, --map {name}=r.hidden0 and so on"
        )
    return fitting[0]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts fc2 before fc10."""
    return [
        (1, int(part), "") if part.isdecimal() and len(part) < 9 else (0, 0, part)
        for part in re.split("([0-9]+)", name)
    ]
