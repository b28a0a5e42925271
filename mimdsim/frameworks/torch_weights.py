"""Weights of a PyTorch module as arrays here, which parameter each of them is, and trained ones back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from mimdsim.base.errors import DescriptionError
from mimdsim.base.files import with_home
from mimdsim.frameworks.blocks import ROW, function_of, has_gaps, index_in, place_of, uses_of
from mimdsim.frameworks.delays import delay_of, position_of
from mimdsim.frameworks.neurons import numbers_of, refusal
from mimdsim.frameworks.origins import Feed
from mimdsim.frameworks.torch_layers import (
    TorchLayer,
    bias_groups,
    constants_of,
    named,
    number_of_biases,
    read_by,
)
from mimdsim.graph.names import ROLES
from mimdsim.graph.norms import STATISTICS, BatchNorm
from mimdsim.workload import Workload
from mimdsim.workload.interchange.model_file import weights_named
from mimdsim.workload.interchange.weights_file import read_notes

# in the place of a batch norm: what is subtracted; behind the place in an array here (blocks.ROW), if it is a part of
# one: '@0-18:-', or '@3:fc.bias' of a running mean with that bias in it
MINUS = "-"
NOTE = "mimdsim.torch"  # of the weights: which parameter of the module each is


def parameters_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """Also those that are not trained, such as running averages."""
    every = (*module.named_parameters(), *module.named_buffers())
    return {name: numbers_of(each) for name, each in every}


def folded(module: torch.nn.Module, norm: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64[channels] (scale, mean, shift) of a batch norm with constants: it makes (x - mean) * scale + shift."""
    of: Any = module.get_submodule(norm)
    mean, variance = map(numbers_of, (of.running_mean, of.running_var))
    gain, shift = (
        np.full(mean.shape, plain) if each is None else numbers_of(each)
        for each, plain in ((of.weight, 1.0), (of.bias, 0.0))
    )
    return gain / np.sqrt(variance + of.eps), mean, shift


def weights_of(
    module: torch.nn.Module, layers: list[TorchLayer], masks: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Arrays by mimdsim's names: w.hidden0 [inputs, neurons] or [channels * window, channels], r.hidden0 [from, to] or
    [neurons], b.hidden0. Raises DescriptionError for zeros that a mask lets through, which would stay zero."""
    held, made = parameters_of(module), dict[str, np.ndarray]()
    zeros = {name: np.count_nonzero((held[name] == 0) & (mask == 1)) for name, mask in masks.items()}
    for name, mask in masks.items():
        held[name] = held[name] * mask
    pruned = _pruned(layers, masks)
    for name, layer in named(layers):
        before = np.sum([held[bias] for bias in layer.biases], axis=0) if layer.norm else 0.0
        feeds = feeds_by_array(layers, name, layer)
        parts = {array: part[1] for _, array, part in constants_of(name, layer) if part}
        for of, array, turned, rows, link in _links_of(layers, name, layer):
            values, role, norm = held[of], array.partition(".")[0], without_place(link)
            if array in pruned and (found := zeros.get(of, np.count_nonzero(values == 0))):
                where = "where its mask is 1" if of in zeros else "beside places without weights"
                raise refusal(
                    f"{found} values of '{of}' are 0 {where}, and would stay 0; nearest: start them elsewhere"
                )
            if role == "r" and values.ndim < 2 and values.size not in (1, layer.calls.neurons):
                raise refusal(f"'{of}' has {values.size} numbers for {layer.calls.neurons} neurons; nearest: one")
            if layer.delays and role == "delay":
                values = delay_of(layer.delays.ages, values)
            elif rows is None:
                values = values.reshape(1, -1)
            elif array in parts:
                values = values.reshape(-1, parts[array])[slice(*rows)]
            elif values.ndim > 1:
                values = values.reshape(len(values), -1)
                values = (values.T if turned else values)[slice(*rows)]
            else:
                values = values.reshape(-1)
            if role == "mean":  # of currents without the bias before the norm, which it takes off again
                values = values - before
            elif norm == MINUS:
                values = -values
            elif norm and role != "delay":
                scale, mean, shift = folded(module, norm)
                values = values * scale if role == "w" else (before - mean) * scale + shift
            if link.startswith(ROW):
                columns = layer.calls.sequence(layer.calls.currents).shape[-1]
                shape = (len(uses_of(feeds[array])), columns) if array in feeds else (len(layer.norms), values.size)
                place = made.setdefault(array, np.zeros(shape))[index_in(link)]
                if values.size != place.size:
                    raise refusal(f"'{of}' makes {values.shape[-1]} of {columns} currents; nearest: one for each")
                place[...] = values
            else:
                made[array] = values
        made |= _rows(name, layer)
    return made


def _rows(name: str, layer: TorchLayer) -> dict[str, np.ndarray]:
    """Constants that differ from neuron to neuron, of neurons that are written out, and biases of 0 where the other of
    both is there; of a norm that does not scale or shift, 1 and 0."""
    written, norm = layer.calls.reading.written, layer.trained_norm
    held = {"weight": (f"gain.{name}", 1.0), "bias": (f"{_shift_of(norm)}.{name}", 0.0)} if norm else {}
    if norm and norm.averages:
        held |= {"running_mean": (f"mean.{name}", 0.0), "running_var": (f"variance.{name}", 1.0)}
    columns = layer.gains
    shape = norm.rows if norm else 1, columns
    plain: dict[str, np.ndarray]
    plain = {array: np.full(shape, value) for of, (array, value) in held.items() if of not in layer.of_norm}
    if not written:
        return plain
    made = {f"{row}.{name}": values for row, (of, values, _) in written.rows.items() if not of}
    if written.own and bool(layer.biases or layer.shifts) != bool(layer.recurrent_bias):
        columns = layer.calls.neurons * written.model(name).gates
        made[f"b.{name}" if layer.recurrent_bias else f"rb.{name}"] = np.zeros((1, columns))
    return made | plain


def _shift_of(norm: BatchNorm) -> str:
    """In which array here its shift is."""
    return "b" if norm.averages else "shift"


Link = tuple[str, str, bool, int, str]


def links_of(layers: list[TorchLayer]) -> list[Link]:
    """(parameter of the module, array here, whether it is transposed, from which row on, the batch norm folded into
    it, or MINUS); with a batch norm the bias is that of its shift. Of the running mean of one that is trained, the
    last is the bias before it; of delays, the Dcls1d; of norms of timesteps ROW and which."""
    every = (link for name, layer in named(layers) for link in _links_of(layers, name, layer))
    return [(of, array, turned, rows[0] if rows else 0, norm) for of, array, turned, rows, norm in every]


def _links_of(
    layers: list[TorchLayer], name: str, layer: TorchLayer
) -> Iterator[tuple[str, str, bool, tuple[int, int | None] | None, str]]:
    """`links_of` a layer, with the row after the last; without rows what is one of an array here."""
    whole = (0, None)
    found = feeds_by_array(layers, name, layer)
    for array, feeds in found.items():
        made = array[:2] in ("w.", "r.") and function_of(feeds)
        for feed in feeds if array[:2] in ("w.", "r.") else ():
            product, rows = feed.product, (feed.first, feed.last)
            norm = MINUS if product.negative and not made else product.norm * product.folded
            yield product.weight, array, product.transposed, rows, _placed(place_of(feed, feeds), norm)
    sign = dict.fromkeys(layer.negative, MINUS)
    if positions := layer.sources[0].product.positions:
        yield positions, f"delay.{name}", True, whole, positions.rpartition(".")[0]
    if layer.recurrent_bias:
        yield layer.recurrent_bias, f"rb.{name}", False, whole, ""
    for of, array, part in constants_of(name, layer):
        yield of, array, False, (part[0], part[0] + 1) if part else None, ""
    for number, norm in enumerate(layer.norms):
        shares = {"weight": "gain", "bias": "b", "running_mean": "mean", "running_var": "variance"}
        for of, array in shares.items():
            if of in layer.of_norm:
                bias = f":{layer.biases[0]}" if array == "mean" and layer.biases else ""
                yield f"{norm}.{of}", f"{array}.{name}", False, whole, f"{ROW}{number}{bias}"
    if layer.norms:
        return
    if layer.trained_norm:
        arrays = {"weight": "gain", "bias": _shift_of(layer.trained_norm)}
        yield from (
            (f"{layer.norm}.{of}", f"{arrays[of]}.{name}", False, whole, "") for of in layer.of_norm & arrays.keys()
        )
    if layer.trained_norm and layer.trained_norm.averages:
        if "running_mean" in layer.of_norm:
            yield f"{layer.norm}.running_mean", f"mean.{name}", False, whole, "".join(layer.biases)
            yield f"{layer.norm}.running_var", f"variance.{name}", False, whole, ""
    else:
        of_norm = layer.norm if layer.trained_norm is None else ""
        groups = [[f"{of_norm}.bias"]] if of_norm else bias_groups(layer)
        for group, array in zip(groups, bias_arrays(name, layer), strict=False):
            for bias in group:
                place = place_of(layer.columns[bias], found[array]) if array in found else ""
                yield bias, array, False, whole, _placed(place, sign.get(bias, of_norm))


def _placed(place: str, norm: str) -> str:
    return f"{place}:{norm}" if place and norm else place or norm


def without_place(link: str) -> str:
    """The batch norm that is folded into what `link` is of, or MINUS."""
    return link.partition(":")[2] if link.startswith(ROW) else link


def feeds_by_array(layers: list[TorchLayer], name: str, layer: TorchLayer) -> dict[str, tuple[Feed, ...]]:
    """By array here, what it is put together from: weights, and biases of some neurons."""
    read = weights_named(name, read_by(layers, layer))
    feeds = (source.feeds for source in layer.sources)
    found = {} if layer.unweighted else dict(zip(read, feeds, strict=True))
    found |= {f"r.{name}": layer.own} if layer.own else {}
    for group, array in zip(bias_groups(layer), bias_arrays(name, layer), strict=False):
        if group[0] in layer.columns:
            found[array] = tuple(layer.columns[bias] for bias in group)
    return found


def bias_arrays(name: str, layer: TorchLayer) -> list[str]:
    """The arrays here of biases that add up."""
    return [f"b.{name}", *(f"bias{number}.{name}" for number in range(2, 1 + number_of_biases(layer)))]


def frozen_arrays(module: torch.nn.Module, layers: list[TorchLayer]) -> list[str]:
    """The arrays that stay as they are (requires_grad = False), by their public names."""
    learns = {name: each.requires_grad for name, each in module.named_parameters()}
    arrays: dict[str, bool] = {}
    for of, array, *_ in links_of(layers):
        if array.partition(".")[0] in STATISTICS:
            continue
        learning = learns.get(of, False)  # a buffer never does
        if arrays.setdefault(array, learning) != learning:
            raise refusal(
                f"'{of}' is a part of weights of which others {'stay' if learning else 'are trained'}, all of them one "
                "array here; nearest: requires_grad alike for all"
            )
    fixed = (public_name(array) for name, layer in named(layers) for array in _rows(name, layer))
    fixed = (each for each in fixed if each.rpartition(".")[2] not in STATISTICS)
    return [*(public_name(array) for array, learning in arrays.items() if not learning), *fixed]


def pruned_arrays(layers: list[TorchLayer], masks: Collection[str]) -> list[str]:
    """The arrays that have a mask, or no weights in places, by their public names."""
    return [public_name(array) for array in sorted(_pruned(layers, masks))]


def _pruned(layers: list[TorchLayer], masks: Collection[str]) -> set[str]:
    every = (each for name, layer in named(layers) for each in feeds_by_array(layers, name, layer).items())
    return {array for array, feeds in every if has_gaps(feeds)} | {
        array for of, array, *_ in links_of(layers) if of in masks
    }


def public_name(array: str) -> str:
    """'hidden0.bias' of 'b.hidden0'"""
    role, _, layer = array.partition(".")
    said = {short: role for role, short in ROLES.items()}.get(role, role)
    return layer if said in ("weights", "constant") else f"{layer}.{said}"


def parameter_names(workload: Workload) -> list[Link]:
    """(parameter of the module, the array that it is here, whether that is transposed, the row that it begins at, the
    batch norm folded into it) of a workload that `from_torch` made; raises DescriptionError for another."""
    path = with_home(workload.training.initial_weights)
    note = read_notes(path).get(NOTE) if workload.training.initial_weights else None
    if note is None:
        raise DescriptionError(f"workload '{workload.name}'", ["was not made by mimdsim.from_torch"])
    links = ((*each, "")[:5] for each in json.loads(note))  # those of before have no batch norm
    return [(str(of), str(array), bool(turned), int(row), str(norm)) for of, array, turned, row, norm in links]


def load_trained(module: torch.nn.Module, workload: Workload, weights: Mapping[str, np.ndarray]) -> None:
    """Write trained weights, by layer ('hidden0', 'hidden0.bias'), into the module that the workload was made of."""
    held = dict(module.named_parameters()) | dict(module.named_buffers())
    names = parameter_names(workload)
    missing = [name for name, *_ in names if name not in held]
    if missing:
        raise DescriptionError(
            "to_torch", [f"the module has no parameter '{missing[0]}', which the workload was made of"]
        )
    done: set[tuple[str, str]] = set()
    with torch.no_grad():
        for name, array, turned, row, link in names:
            if (array, place := str(index_in(link))) in done:
                continue
            done.add((array, place))
            # notes of before have one array for biases that add up: all that was learned goes to the first
            others = [
                (other, sign)
                for other, same, _, _, sign in names
                if same == array and other != name and index_in(sign) == index_in(link)
            ]
            trained = weights[public_name(array)][index_in(link)]
            values = torch.as_tensor(_unfolded(module, trained, array, names, without_place(link)))
            target = held[name]
            if not turned and values.ndim == 2 and len(values) == 1 and target.is_contiguous():  # it may be a part
                target = target.view(-1, values.shape[1])[row : row + 1]
            elif sum(one == name for one, *_ in names) > 1:  # several arrays, or parts of one, lie in it
                target = target.view(len(target), -1) if target.ndim > 2 else target
                target = (target.T if turned else target)[row : row + len(values)]
            elif turned and min(values.shape) > 1:  # else the order of numbers is the same
                values = values.T
            if values.numel() != target.numel():
                raise DescriptionError(
                    "to_torch", [f"'{name}' has the shape {list(target.shape)}, the trained one {list(values.shape)}"]
                )
            values = values.reshape(target.shape).to(target)
            target.copy_(values - sum(held[other] * (1 if sign == link else -1) for other, sign in others))


def _unfolded(module: torch.nn.Module, trained: np.ndarray, array: str, names: list[Link], norm: str) -> np.ndarray:
    """Weights before a batch norm, or its shift, of what was trained with it folded in; others as they are."""
    if norm in ("", MINUS):
        return np.array(trained) * (-1 if norm else 1)
    if array.startswith("delay."):
        return position_of(module, norm, trained)
    if array.startswith("mean."):
        return np.asarray(trained.reshape(-1) + numbers_of(dict(module.named_parameters())[norm]))
    scale, mean, _ = folded(module, norm)
    if array.startswith("w."):
        return np.asarray(trained / scale)
    weight = next(of for of, other, *_ in names if other == f"w.{array[2:]}")
    before = dict(module.named_parameters()).get(weight.removesuffix("weight") + "bias")
    bias = 0.0 if before is None else numbers_of(before)
    return np.asarray(trained.reshape(-1) - (bias - mean) * scale)
