"""A network as its author wrote it in PyTorch becomes a workload.

The module runs once on its example input (module_calls.py) and its neurons are compared with the models of
docs/neurons.md in float64 (neurons.py). The layers are then put together from what ran on what, and run again from what
was recorded: currents must be those of the weights and of what a layer reads, and spikes those that the module sent.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mimdsim.base.errors import MappingError
from mimdsim.base.files import folder_to_make, write_atomically
from mimdsim.base.schema import toml_text
from mimdsim.frameworks.delays import at_every_age, delay_of
from mimdsim.frameworks.module_calls import record
from mimdsim.frameworks.network_table import (
    leaves_out,
    network_table,
    objective,
    output_read,
    random_workload,
    read_over_time,
    reading_of,
)
from mimdsim.frameworks.neurons import Reading, refusal, run_neuron
from mimdsim.frameworks.origins import FunctionResult, LayerOutput, Origin, Product, Slice, Sum, feeds_of
from mimdsim.frameworks.own_neurons import with_own_neurons
from mimdsim.frameworks.planes import SAME_CURRENT, currents_of, largest_of_norm
from mimdsim.frameworks.recording import GATHERS, NeuronCalls, Recorded
from mimdsim.frameworks.torch_layers import (
    TorchLayer,
    combination,
    functions_in,
    layers_of,
    named,
    read_by,
    senders_in,
    sums_apart,
    widths_of,
)
from mimdsim.frameworks.torch_weights import (
    NOTE,
    bias_arrays,
    frozen_arrays,
    links_of,
    parameters_of,
    pruned_arrays,
    weights_of,
)
from mimdsim.graph import Layer, Sgd, SpikingNetwork, inference_graph, interpret
from mimdsim.graph.cell_catalogue import cell_of
from mimdsim.graph.losses import Loss
from mimdsim.graph.names import INPUT, ROLES, spikes_of
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.sources import Source
from mimdsim.graph.spikes import Selection
from mimdsim.graph.weight_functions import WeightFunction, weights_of_function
from mimdsim.workload import Workload, load_workload, network_of
from mimdsim.workload.description.workload import change_description
from mimdsim.workload.interchange.importing import base_table
from mimdsim.workload.interchange.model_file import weights_named
from mimdsim.workload.interchange.weights_file import write_safetensors

NEAR = 1e-4  # of the threshold: float32 sums in another order may fall on either side
READ_OUT: dict[str, float] = {"tau": 1.0, "dt": 1.0}  # of "li": what comes in is read
WEIGHTS, DESCRIPTION = "weights.safetensors", "network.toml"


MADE_BY = "Made by mimdsim.from_torch; edit freely."


def workload_of(
    module: torch.nn.Module,
    example_input: torch.Tensor,
    timesteps: int | None,
    loss: str | Mapping[str, Any],
    output: str,
    workload: str,
    changes: Mapping[str, Any] | None,
    out: str | Path | None,
) -> Workload:
    """See `mimdsim.from_torch`."""
    for name, each, kind in (("module", module, torch.nn.Module), ("example_input", example_input, torch.Tensor)):
        if not isinstance(each, kind):
            raise refusal(
                f"{name} is {type(each).__name__}; give a torch.{'nn.Module' if name == 'module' else 'Tensor'}"
            )
    if timesteps is not None and (type(timesteps) is not int or timesteps < 1):
        raise refusal(f"timesteps is {timesteps!r}; give a whole number, 1 or more")
    if example_input.ndim < (2 if timesteps is None else 1) or not example_input.numel():
        shape = list(example_input.shape)
        raise refusal(f"example_input has the shape {shape}; time, samples and inputs are needed")
    if not torch.isfinite(example_input).all():
        raise refusal("example_input holds numbers that are not finite")
    if compiled := getattr(module, "_orig_mod", None):
        raise refusal(f"module is a {type(compiled).__name__} that torch.compile made; give module._orig_mod")
    for name, each in module.named_parameters():
        if not isinstance(each, torch.nn.parameter.UninitializedParameter) and not torch.isfinite(each).all():
            raise refusal(f"'{name}' of the module holds numbers that are not finite; give weights that are")
    recorded, layers, weights, values = _read(module, example_input, timesteps, output)
    with _told_apart(module, layers, weights) as changed:
        if changed:
            _read(module, example_input, timesteps, output)
    _check_spikes(layers, weights)
    _check_cells(layers, weights)
    classes = widths_of(layers)[-1] // recorded.votes
    table = base_table(workload, Path(out or ".")) if workload else random_workload(values, classes)
    table["network"] = network_table(layers, table.get("network", {}))
    table["network"] |= {"neurons_per_class": recorded.votes} if recorded.votes > 1 else {}
    training = table.setdefault("training", {})
    reads = output_read(output or ("membrane" if "membrane" in str(loss) else ""), recorded, layers[-1])
    table["network"]["output"] = reads
    reading = read_over_time(recorded, layers[-1], reads, timesteps is not None, not loss)
    training |= objective(loss, recorded, layers[-1], reads != "spikes", len(values), reading)
    folder = folder_to_make(out, "from-torch")
    training["initial_weights"] = WEIGHTS
    if frozen := frozen_arrays(module, layers):
        training["frozen"] = frozen
    if pruned := pruned_arrays(layers, recorded.masks):
        training["pruned"] = {name: 0.0 for name in pruned if name not in frozen}
    widths = "-".join(map(str, [values.shape[-1], *widths_of(layers)]))
    table["title"] = f"{type(module).__name__}: {widths}"
    write_safetensors(folder / WEIGHTS, weights, {NOTE: json.dumps(links_of(layers))})
    path = folder / DESCRIPTION
    write_atomically(path, toml_text(table, comment=MADE_BY))
    made = load_workload(path, dict(changes or {}))
    given = network_of(made).inputs  # raises where the layers make no network
    if given != values.shape[-1]:
        raise refusal(f"the module reads {values.shape[-1]} inputs, and the data of '{workload}' have {given}")
    if changes and out is not None:  # commands that take the file have them, too
        change_description(table, changes, str(path))
        write_atomically(path, toml_text(table, comment=MADE_BY))
    return made


def _read(
    module: torch.nn.Module, example: torch.Tensor, timesteps: int | None, output: str
) -> tuple[Recorded, list[TorchLayer], dict[str, np.ndarray], np.ndarray]:
    """What was recorded, its layers, their weights, and the example as they read it; currents are compared."""
    recorded = _with_read_out(module, with_own_neurons(record(module, example, timesteps), output))
    layers = layers_of(module, recorded)
    weights = weights_of(module, layers, recorded.masks)
    return recorded, layers, weights, _find_input(layers, weights, example, timesteps)


@contextmanager
def _told_apart(module: torch.nn.Module, layers: list[TorchLayer], weights: Mapping[str, np.ndarray]) -> Iterator[bool]:
    """While weights that are the same for several of their sources, or neurons, whose order no current tells, differ;
    whether there are such."""
    alike = {
        array
        for array, values in weights.items()
        if array[:2] in ("w.", "r.") and values.ndim == 2
        if any(np.unique(values, axis=axis).shape[axis] < size for axis, size in enumerate(values.shape))
    }
    names = {of for of, array, *_ in links_of(layers) if array in alike}
    changed = [each for name, each in module.named_parameters() if name in names]
    before = [each.detach().clone() for each in changed]
    generator = torch.Generator().manual_seed(1)
    try:
        for each in changed:
            each.data += torch.randn(each.shape, generator=generator).to(each) * max(float(each.detach().std()), 0.1)
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            yield bool(changed)
    finally:
        for each, values in zip(changed, before, strict=True):
            each.data.copy_(values)


def _earlier(values: np.ndarray, age: int = 1) -> np.ndarray:
    """Those of `age` timesteps before, zeros in the first."""
    return np.concatenate([np.zeros_like(values[:age]), values[: len(values) - age]])


def _spikes_read(read: Source, layers: Mapping[str, NeuronCalls], values: np.ndarray) -> np.ndarray:
    """float64[timesteps, samples, inputs]: what weights read of the input, '', and of what layers sent; raises
    MappingError for widths, or planes, that differ."""
    sent = {name: each.sequence(each.outputs) for name, each in layers.items()} | {"": values}
    planes = {name: each.planes for name, each in layers.items()}
    return read.values(lambda each: _earlier(sent[each.name], each.lag or 0), planes.get)


def _find_input(
    layers: list[TorchLayer], weights: Mapping[str, np.ndarray], example: torch.Tensor, timesteps: int | None
) -> np.ndarray:
    """float64[timesteps, samples, inputs]: the example with its axes as the layers read it, so that all currents are
    those of their weights."""
    calls = layers[0].calls
    shape = list(calls.currents[0].shape)
    if len(shape) < 2 + calls.in_time:
        raise refusal(
            f"layer '{calls.name}' gets currents {shape}, which have no axis of samples: give the example with one, as "
            "example.unsqueeze(1), and an image for all timesteps as image.expand(timesteps, *image.shape)"
        )
    steps, samples = calls.sequence(calls.currents).shape[:2]
    if steps == 1 and timesteps is None:
        raise refusal("the module ran for one timestep; if it takes one a call, say how many: timesteps=10")
    inputs = layers[0].sources[0].inputs
    array = example.detach().cpu().numpy().astype(np.float64)
    by_axis = [np.moveaxis(array, axis, 0) for axis in (1, 0) if axis < array.ndim]
    problem = (
        f"the first layer reads {[steps, samples, inputs]} [timesteps, samples, inputs], which is not the example "
        f"{list(example.shape)} with its first or second axis as time: give spikes as the first layer reads them"
    )
    for given in (np.broadcast_to(array, (steps, *array.shape)), *by_axis):
        if len(given) == steps and given.size == steps * samples * inputs:
            values: np.ndarray = given.reshape(steps, samples, inputs)
            problem = _wrong_currents(layers, weights, values)
            if not problem:
                return values
    raise refusal(problem)


def _wrong_currents(layers: list[TorchLayer], weights: Mapping[str, np.ndarray], values: np.ndarray) -> str:
    """What is wrong with a layer whose recorded currents are not those of its weights and of what it reads; else ''."""
    every = {layer.calls.name: layer.calls for layer in layers}
    for name, layer in named(layers):
        calls, reading = layer.calls, layer.calls.reading
        recorded = calls.sequence(calls.currents)
        bias = sum(weights.get(array, 0.0) for array in bias_arrays(name, layer))
        bias = bias * layer.bias_function.factor if layer.bias_function else bias
        bias -= _own_bias(layer) if reading.recurrent_bias and not reading.of_cells else 0.0
        currents: np.ndarray | float = 0.0
        largest = np.abs(recorded).max()
        for source, array in zip(layer.sources, weights_named(name, read_by(layers, layer)), strict=True):
            text = source.read.text(lambda each: each.name or INPUT)
            what = f"what '{text}' sends" if any(source.layers) else "the input"
            try:
                spikes = _spikes_read(source.read, every, values)
            except MappingError as problem:
                return f"layer '{calls.name}' reads {problem}; one can run"
            if spikes.shape[-1] != source.inputs:
                return f"layer '{calls.name}' reads {source.inputs} of {spikes.shape[-1]} values of {what}; all can run"
            norm = layer.trained_norm
            rows: tuple[np.ndarray, ...] = ()
            if norm:
                rows = weights[f"gain.{name}"], weights[f"{'b' if norm.averages else 'shift'}.{name}"]
                bias = 0.0 if norm.averages else bias
            convolution, matrix = source.product.convolution, _acting(source.function, weights[array])
            if source.product.delays:
                spikes, matrix = at_every_age(source.product.delays, spikes, matrix, weights[f"delay.{name}"])
            if norm:
                largest = np.maximum(largest, largest_of_norm(convolution, spikes, matrix, bias, norm, rows[0]))
            if not reading.weights:
                spikes = currents_of(convolution, spikes, matrix, bias, norm, rows)
            currents += spikes
            bias = 0.0
        if layer.recurrent and not reading.recurrent and not sums_apart(layer):
            matrix = _acting(layer.recurrent_function, weights[f"r.{name}"])
            currents += _earlier(calls.sequence(calls.outputs)) @ matrix
        if np.shape(currents) != recorded.shape:
            return (
                f"layer '{calls.name}' gets currents {list(recorded.shape)} [timesteps, samples, neurons], and its "
                f"weights make {list(np.shape(currents))} of {what}: time may lie along another axis"
            )
        off = np.abs(currents - recorded)
        if not (off <= SAME_CURRENT * np.maximum(largest, SAME_CURRENT)).all():
            return (
                f"layer '{calls.name}' gets currents that differ by up to {off.max():.2g}, of "
                f"{np.abs(recorded).max():.2g} at most, from "
                f"those of its weights and of {what}: axes are swapped, values reordered or added on the way"
            )
    return ""


def _check_spikes(layers: list[TorchLayer], weights: Mapping[str, np.ndarray]) -> None:
    for name, layer in named(layers):
        calls, reading = layer.calls, layer.calls.reading
        if not reading.spiking or reading.of_cells:
            continue
        sent = calls.sequence(calls.outputs)
        if not sent.any():
            warnings.warn(
                f"layer '{calls.name}' sends no spikes on the example, so that little of it and of what reads it is "
                "compared: give an example, or weights, with which it fires",
                UserWarning,
                stacklevel=4,
            )
        currents = calls.sequence(calls.currents)
        if reading.weights:
            currents = currents @ weights[f"w.{name}"]
        if reading.recurrent:
            before = _earlier(sent)
            own = weights[f"r.{name}"]
            currents = currents + (before @ own if own.ndim == 2 else before * own)
        if reading.recurrent_bias:
            currents = currents + _own_bias(layer)
        spikes, potentials, _ = run_neuron(reading.neuron, currents)
        first = np.argwhere(
            (spikes != sent) & (np.abs(potentials - reading.neuron.threshold) > NEAR * reading.neuron.threshold)
        )
        if len(first):
            t, sample, neuron = first[0]
            raise refusal(
                f"layer '{calls.name}' sent {sent[t, sample, neuron]:g} from neuron {neuron} in timestep {t} of sample "
                f"{sample}, where model '{reading.model}' sends {spikes[t, sample, neuron]:g} of the same currents: "
                "something acts on it that is not known here (a state handed in, an option)"
            )


def _check_cells(layers: list[TorchLayer], weights: Mapping[str, np.ndarray]) -> None:
    """Layers of cells send what their equations make of what they read."""
    for name, layer in named(layers):
        calls = layer.calls
        if not calls.reading.of_cells or calls.reading.written:
            continue
        arrays = {role: weights[f"{role}.{name}"] for role in ROLES.values() if f"{role}.{name}" in weights}
        made = _run_cells(calls.reading.model, arrays, calls.sequence(calls.currents))
        sent = calls.sequence(calls.outputs)
        off = float(np.abs(made - sent).max()) if made.shape == sent.shape else np.inf
        if not off <= SAME_CURRENT * max(float(np.abs(sent).max()), SAME_CURRENT):
            raise refusal(
                f"layer '{calls.name}' sends what differs by up to {off:.2g} from what a '{calls.reading.model}' sends "
                "of the same: something acts on it that is not known here (a state handed in, an option)"
            )


def _run_cells(model: str, arrays: Mapping[str, np.ndarray], given: np.ndarray) -> np.ndarray:
    """What a layer of cells sends, float64[timesteps, batch, neurons], of what it reads; arrays: its 'w', 'r' and, with
    biases, 'b' and 'rb'."""
    timesteps, batch, inputs = given.shape
    neurons, bias = arrays["r"].shape[0], "b" in arrays
    selection = Selection(threshold=0.0, second_threshold=0.0, capacity=neurons, slope=1.0)
    layers = (
        Layer(name="cells", inputs=inputs, neurons=neurons, neuron=cell_of(model), selection=selection, bias=bias),
        Layer(
            name="output", inputs=neurons, neurons=1, neuron=neuron_of("li", READ_OUT), selection=selection,
            spiking=False,
        ),
    )  # fmt: skip
    network = SpikingNetwork(
        layers=layers, timesteps=timesteps, batch=batch, input_capacity=inputs, spikes="dense", logit_scale=1.0,
        optimiser=Sgd(learning_rate=1.0), delay=0, loss=Loss(reading="last"),
    )  # fmt: skip
    known = {f"{role}.cells": array.reshape(-1, array.shape[-1]) for role, array in arrays.items()}
    sent: list[np.ndarray] = []

    def watch(name: str, _timestep: int, value: Any) -> None:
        if name == spikes_of("cells"):
            sent.append(value)

    interpret(inference_graph(network), {"input": given, "w.output": np.zeros((neurons, 1)), **known}, watch)
    return np.stack(sent)


def _with_read_out(module: torch.nn.Module, recorded: Recorded) -> Recorded:
    """What was recorded, with the linear layer that reads spikes or cells at its end as a layer whose potentials are
    read."""
    every = (feed for calls in recorded.layers.values() for origin in calls.origins for feed in feeds_of(origin))
    known = {feed.product.weight for feed in every}  # by neurons that may send their current, as it is, at first
    found = [(_product_in(each), at) for at, each in enumerate(recorded.returned)]
    ends = [(origin, at) for origin, at in found if origin is not None and origin.weight not in known]
    if not ends:
        return recorded
    product, at = ends[0]
    of: Origin | None = product.of
    summed = False
    while parts := _of_one_layer(of):
        summed |= isinstance(of, Sum) or (isinstance(of, FunctionResult) and of.by in ("sum", "add"))
        of = parts[-1]  # of every timestep, where there are several
        if product.dropout:  # of a sum over time: the same in every timestep
            product = replace(product, dropout=replace(product.dropout, per="sequence"))
    cut = of if isinstance(of, Slice) else None
    of = cut.of if cut else of
    senders = senders_in(of)
    if of is None or not senders or not all(isinstance(each, LayerOutput) and each.spikes for each in senders):
        return recorded
    name = product.weight.rpartition(".")[0] or product.weight
    read, held = combination(name, product.weight, of, 0), parameters_of(module)
    values = held[product.weight] * recorded.masks.get(product.weight, 1.0)
    values = _acting(product.function, values.reshape(len(values), -1).T if product.transposed else values)
    bias, sent = held[product.bias] if product.bias else 0.0, _spikes_read(read, recorded.layers, np.zeros(0))
    sent = sent[..., cut.first : cut.first + len(values)] if cut else sent
    if product.delays:
        sent, values = at_every_age(
            product.delays, sent, values, delay_of(product.delays.ages, held[product.positions])
        )
    if not product.convolution and sent.shape[-1] != len(values):
        raise refusal(f"'{product.weight}' reads {len(values)} of {sent.shape[-1]} values of each sample; all can run")
    read_of = [recorded.returned[at] for _, at in ends]
    # the bias counts once in the product with a sum over time, where that is no mean
    for share in (1 / len(sent), 1.0) if summed else (1.0,):
        outputs = currents_of(product.convolution, sent, values, bias * product.bias_factor * share)
        reading = reading_of(recorded.values[at], outputs, functions_in(recorded.returned[at]))
        whole = recorded.stepwise or not leaves_out(read_of, recorded, len(sent), reading)
        if reading and whole and (not summed or (reading == "sum") == (share < 1)):
            break
    else:
        raise refusal(
            f"the output is neither the product with '{product.weight}' of what "
            f"'{read.text(lambda each: each.name)}' sent nor its last, mean, highest or summed value over time; return "
            "one of these"
        )
    tensor = torch.as_tensor(outputs)
    if recorded.stepwise:  # of which the last timestep is the one that was seen
        reading = reading.replace("last", "")
    made = NeuronCalls(
        name=name,
        module=module,
        reading=Reading(model="li", parameters=dict(READ_OUT), reset="none", spiking=False, in_time=True),
        currents=[tensor],
        origins=[replace(product, of=cut or of, bias_factor=product.bias_factor * share)],
        outputs=[tensor],
    )
    returned: list[Origin | None] = [LayerOutput(layer=name, call=0, spikes=False)]
    return replace(recorded, layers={**recorded.layers, name: made}, returned=returned, reading=reading)


def _acting(function: WeightFunction | None, values: np.ndarray) -> np.ndarray:
    return weights_of_function(function, values) if function else values


def _of_one_layer(of: Origin | None) -> tuple[Origin | None, ...]:
    """What a function over time is of, if that is one layer's, such as a sum that grew by a timestep after another."""
    parts: tuple[Origin | None, ...] = ()
    if isinstance(of, FunctionResult) and of.by in GATHERS:
        parts = of.of
    if isinstance(of, Sum):
        parts = tuple(part for each in of.parts for part in (_of_one_layer(each) or (each,)))
        if not all(isinstance(each, LayerOutput) for each in parts):
            return ()
    return parts if len(set(map(_layer_of, parts))) == 1 else ()


def _layer_of(origin: Origin | None) -> object:
    """What is alike of a layer's outputs in every timestep."""
    return origin.layer if isinstance(origin, LayerOutput) else origin


def _product_in(origin: Origin | None) -> Product | None:
    """The last product in what a module returns, alone or of all timesteps."""
    if isinstance(origin, FunctionResult) and origin.by in (*GATHERS, "softmax"):
        return _product_in(origin.of[-1]) if origin.of else None
    if isinstance(origin, Sum):  # of a timestep and those before it
        return _product_in(origin.parts[-1])
    return origin if isinstance(origin, Product) else None


def _own_bias(layer: TorchLayer) -> np.ndarray:
    module: Any = layer.calls.module
    values: np.ndarray = module.recurrent.bias.detach().cpu().numpy().astype(np.float64)
    return values
