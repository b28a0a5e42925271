"""A network as its author wrote it in PyTorch becomes a workload.

The module runs once on its example input (recording.py) and its neurons are compared with the models of docs/neurons.md
in float64 (neurons.py). The layers are then put together from what ran on what, and run again from what was recorded:
currents must be those of the weights and of what a layer reads, and spikes those that the module sent.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mimdsim.base.errors import DescriptionError
from mimdsim.base.files import with_home, writable_folder, write_atomically
from mimdsim.base.schema import toml_text
from mimdsim.frameworks.cells import READ_OUT, reading_of, run_cells
from mimdsim.frameworks.neurons import Reading, neuron_key, refusal, run_neuron
from mimdsim.frameworks.origins import (
    Dropout,
    Dropped,
    Feed,
    FunctionResult,
    Gate,
    Input,
    Joined,
    LayerOutput,
    Made,
    Origin,
    Parameter,
    Pooled,
    Product,
    Sum,
    feeds_of,
    undropped,
)
from mimdsim.frameworks.own_neurons import not_read, with_own_neurons
from mimdsim.frameworks.planes import SAME_CURRENT, currents_of, keys_of, normalised_currents
from mimdsim.frameworks.recording import GATHERS, NeuronCalls, Recorded, record
from mimdsim.graph import layer as graph
from mimdsim.graph.batch_norm import STATISTICS, BatchNorm
from mimdsim.graph.convolution import Convolution
from mimdsim.graph.layer import labels_of
from mimdsim.graph.linear_equations import linear_neuron_of
from mimdsim.graph.names import INPUT, aged
from mimdsim.workload import Workload, load_workload, network_of
from mimdsim.workload.description.workload import change_description
from mimdsim.workload.interchange.importing import base_table, random_table
from mimdsim.workload.interchange.weights_file import read_notes, write_safetensors

NEAR = 1e-4  # of the threshold: float32 sums in another order may fall on either side
NOTE = "mimdsim.torch"  # of the weights: which parameter of the module each is
WEIGHTS, DESCRIPTION = "weights.safetensors", "network.toml"
MADE_BY = "Made by mimdsim.from_torch; edit freely."
LOSSES: dict[str, dict[str, Any]] = {
    "ce_count_loss": {"loss": "cross_entropy", "reading": "sum"},
    "ce_rate_loss": {"loss": "cross_entropy", "reading": "every", "over_timesteps": "mean"},
    "mse_count_loss": {"loss": "mean_squared_error", "reading": "sum"},
    "ce_max_membrane_loss": {"loss": "cross_entropy", "reading": "max"},
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a layer reads, another ('': the input), so many timesteps old, or the sum of several, by rows from `first`
    on of weights, whose name in the module this is."""

    terms: tuple[tuple[str, int], ...]
    weight: str
    transposed: bool
    first: int
    last: int
    convolution: Convolution | None
    norm: str = ""
    folded: bool = False
    dropout: Dropout | None = None

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(layer for layer, _ in self.terms)

    @property
    def inputs(self) -> int:
        return self.convolution.planes.neurons if self.convolution else self.last - self.first


@dataclass(frozen=True, kw_only=True)
class TorchLayer:
    """One layer: its neurons, and the parameters that it takes. recurrent: name in the module, with the rows of it;
    biases: those that are added up to its own; recurrent_bias: of cells; trained_norm: its batch norm, where that is
    not folded into it, in which the statistics have the bias before it in them."""

    calls: NeuronCalls
    sources: tuple[Source, ...]
    biases: tuple[str, ...] = ()
    recurrent: str = ""
    recurrent_transposed: bool = False
    recurrent_rows: tuple[int, int | None] = (0, None)
    recurrent_bias: str = ""
    trained_norm: BatchNorm | None = None

    @property
    def convolution(self) -> Convolution | None:
        return self.sources[0].convolution

    @property
    def norm(self) -> str:
        return self.sources[0].norm

    @property
    def weights(self) -> list[str]:
        """The names of its weights in the module, each once."""
        return list(
            dict.fromkeys([*(each.weight for each in self.sources), *([self.recurrent] * bool(self.recurrent))])
        )


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
    recorded = with_own_neurons(record(module, example_input, timesteps), output)
    recorded = _with_read_out(module, recorded)
    layers = _layers(module, recorded)
    weights = _weights(module, layers, recorded.masks)
    values = _find_input(layers, weights, example_input, timesteps)
    _check_spikes(layers, weights)
    _check_cells(layers, weights)
    classes = _widths(layers)[-1] // recorded.votes
    table = base_table(workload, Path(out or ".")) if workload else _random(values, classes)
    table["network"] = _network(layers, table.get("network", {}))
    table["network"] |= {"neurons_per_class": recorded.votes} if recorded.votes > 1 else {}
    training = table.setdefault("training", {})
    reads = _output(output or ("membrane" if "membrane" in str(loss) else ""), recorded, layers[-1])
    table["network"]["output"] = reads
    reading = "" if loss else _reading(recorded, layers[-1], reads, timesteps is not None)
    training |= _objective(loss, recorded, layers[-1], reads != "spikes", len(values), reading)
    folder = writable_folder(Path(out)) if out is not None else Path(_own_folder())
    training["initial_weights"] = WEIGHTS
    if frozen := _frozen(module, layers):
        training["frozen"] = frozen
    if pruned := _pruned(layers, recorded.masks):
        training["pruned"] = {name: 0.0 for name in pruned if name not in frozen}
    widths = "-".join(map(str, [values.shape[-1], *_widths(layers)]))
    table["title"] = f"{type(module).__name__}: {widths}"
    write_safetensors(folder / WEIGHTS, weights, {NOTE: json.dumps(_links(layers))})
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


def _own_folder() -> str:
    """A folder that is gone when the process ends."""
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="mimdsim-from-torch-"))
    return _FOLDERS[-1].name


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _widths(layers: list[TorchLayer]) -> list[int]:
    return [layer.calls.neurons for layer in layers]


def _names(layers: list[TorchLayer]) -> list[str]:
    return [*(f"hidden{index}" for index in range(len(layers) - 1)), "output"]


# ---- what ran on what


def _layers(module: torch.nn.Module, recorded: Recorded) -> list[TorchLayer]:
    """The layers in the order in which they run, that of the output last."""
    if not recorded.layers:
        raise refusal(
            "no neurons of snntorch, norse or spikingjelly, and no GRU or LSTM, ran in the module"
            + (f"; neurons that are written out have no '{unread}'" if (unread := not_read(recorded)) else "")
            + '; neurons and cells of one\'s own, and event-based GRUs (network.neuron = "egru"): docs/neurons.md'
        )
    order = [_with_norm(module, recorded, _layer(name, calls)) for name, calls in recorded.layers.items()]
    read = {name for layer in order for source in layer.sources for name in source.layers}
    order.sort(key=lambda layer: bool(_returned(recorded, layer)) and layer.calls.name not in read)
    _check_returned(recorded, order[-1])
    every = [
        name
        for layer in order
        for name in (
            *(*layer.weights, *layer.biases, layer.recurrent_bias, *_of_norm(module, layer)),
            *(of for of, _ in _constants("", layer)),
        )
        if name
    ]
    shared = [name for name in every if every.count(name) > 1]
    if shared:
        raise refusal(f"'{shared[0]}' is shared by several layers, which train weights of their own here")
    unused = [name for name, each in module.named_parameters() if each.requires_grad and name not in every]
    if unused:
        raise refusal(f"the parameter '{unused[0]}' is no weight of a layer that ran; nothing here would train it")
    first = {each.calls.name: each.calls.reading.written.first for each in order if each.calls.reading.written}
    for layer in order:
        _check_every_call(layer, first)
        alone = len(layer.sources) == 1 and not (layer.recurrent and layer.trained_norm is None)
        if any(each.norm for each in layer.sources) and not alone:
            raise refusal(f"layer '{layer.calls.name}' adds up what batch norm makes and more; one source can run")
        _check_planes(layer, order)
    if ("",) not in {source.layers for source in order[0].sources}:
        raise refusal(f"layer '{order[0].calls.name}' runs first and does not read the input")
    for index, layer in enumerate(order):
        before = {each.calls.name for each in order[:index]}
        terms = (term for source in layer.sources for term in source.terms)
        late = [name for name, lag in terms if not lag and name not in {"", *before}]
        if late:
            raise refusal(f"layer '{layer.calls.name}' reads spikes of '{late[0]}', which runs after it")
    silent = [layer.calls.name for layer in order[:-1] if not layer.calls.reading.spiking]
    if silent:
        raise refusal(f"layer '{silent[0]}' sends potentials; only the last layer may")
    return order


def _layer(name: str, calls: NeuronCalls) -> TorchLayer:
    """A layer, with what it reads."""
    reading = calls.reading
    prefix = f"{name}." if name else ""
    origin = calls.origins[-1]
    if reading.weights:  # the module multiplies by itself
        of = origin or FunctionResult(by="?", of=())
        inputs = calls.currents[-1].shape[-1]
        origin = Product(of=of, inputs=inputs, weight=prefix + reading.weights, bias="", transposed=True)
    for part in origin.parts if isinstance(origin, Sum) else (origin,):
        if not isinstance(part, Product):
            raise refusal(f"layer '{name}' reads {_describe(part)}; neurons read products of spikes and weights")
    every = feeds_of(origin)
    own = [feed for feed in every if isinstance(feed.of, LayerOutput) and feed.of.layer == name]
    sources = [_source(name, calls, feed) for feed in every if feed not in own]
    sources.sort(key=lambda source: source.layers != ("",))  # the input first
    if not sources:
        raise refusal(f"layer '{name}' reads nothing but itself; give neurons that are called twice a module each")
    names = [" + ".join(aged(layer or INPUT, lag) for layer, lag in source.terms) for source in sources]
    rows = [(source.weight, source.first) for source in sources]
    if len(set(rows)) < len(rows):
        raise refusal(
            f"layer '{name}' multiplies several sources by the same weights; give each weights of its own, or add up "
            "their spikes before"
        )
    if len(own) > 1 or (own and reading.recurrent) or len(set(names)) < len(names):
        raise refusal(f"layer '{name}' adds up several products of {_twice(names) or 'itself'}; one of each can run")
    if own and not (
        isinstance(own[0].of, LayerOutput) and own[0].of.spikes and own[0].of.call == len(calls.origins) - 2
    ):
        raise refusal(f"layer '{name}' reads itself other than its spikes of the timestep before")
    biases = list(dict.fromkeys(feed.product.bias for feed in every if feed.product.bias))
    if reading.written and reading.written.own:
        return TorchLayer(
            calls=calls,
            sources=tuple(sources),
            biases=tuple(biases),
            recurrent=reading.written.own.weight,
            recurrent_transposed=reading.written.own.transposed,
            recurrent_bias=reading.written.own.bias,
        )
    of_cells = prefix + reading.recurrent_bias if reading.of_cells and reading.recurrent_bias else ""
    own_bias = reading.bias or ("" if reading.of_cells else reading.recurrent_bias)
    if any(source.norm for source in sources) and (own_bias or any(feed.product.bias for feed in own)):
        raise refusal(f"layer '{name}' adds a bias to what batch norm makes; nearest: synapses onto itself without one")
    biases += [prefix + own_bias] if own_bias else []
    return TorchLayer(
        calls=calls,
        sources=tuple(sources),
        biases=tuple(biases),
        recurrent=own[0].product.weight if own else prefix + reading.recurrent if reading.recurrent else "",
        recurrent_transposed=bool(reading.recurrent) or (bool(own) and own[0].product.transposed),
        recurrent_rows=(own[0].first, own[0].last) if own else (0, None),
        recurrent_bias=of_cells,
    )


def _with_norm(module: torch.nn.Module, recorded: Recorded, layer: TorchLayer) -> TorchLayer:
    """The layer with its batch norm, if that is trained: of every timestep, or of all in one call."""
    if not layer.norm:
        return layer
    of: Any = module.get_submodule(layer.norm)
    columns = layer.convolution.channels if layer.convolution else layer.calls.neurons
    if of.num_features != columns:
        raise refusal(
            f"'{layer.norm}' normalises along another axis than that of '{layer.calls.name}'s {columns} neurons"
        )
    if layer.sources[0].folded:
        return layer
    calls, timesteps = recorded.norms[layer.norm], len(layer.calls.sequence(layer.calls.outputs))
    if calls not in (1, timesteps):
        raise refusal(f"'{layer.norm}' ran {calls} times in {timesteps} timesteps; once, or once in each, can run")
    per = "timestep" if calls == timesteps else "sequence"
    return replace(layer, trained_norm=BatchNorm(per=per, epsilon=of.eps, momentum=of.momentum))


def _twice(names: list[str]) -> str:
    return next((f"'{name}'" for name in names if names.count(name) > 1), "")


def _source(name: str, calls: NeuronCalls, feed: Feed) -> Source:
    """What a layer reads by one product."""
    of, dropout = undropped(feed.of) if feed.of else (None, None)
    feed = replace(feed, of=of)
    parts = _added(of)
    for part in parts:
        if not isinstance(part, (LayerOutput, Input)):
            raise refusal(
                f"'{feed.product.weight}' is multiplied by {_describe(part)}; a layer reads spikes of others, side by "
                "side (torch.cat), added up or by weights of their own, or the input"
            )
        if isinstance(part, LayerOutput) and not part.spikes:
            raise refusal(f"layer '{name}' reads a state of '{part.layer}'; layers read spikes")
        if isinstance(part, LayerOutput) and part.layer == name:
            raise refusal(f"layer '{name}' reads itself in a sum with others; nearest: by weights of its own")
    last = len(calls.origins) - 1
    terms = tuple((_sender(part), 0 if calls.in_time else _age(part, last, last + 1)) for part in parts)
    if twice := _twice([aged(layer or INPUT, lag) for layer, lag in terms]):
        raise refusal(f"layer '{name}' reads a sum that has {twice} twice; each once can run")
    product = feed.product
    if product.dropout and dropout:
        raise refusal(f"'{product.weight}' reads what is left of what dropout left; nearest: one dropout for both")
    return Source(
        terms=terms,
        weight=product.weight,
        transposed=product.transposed,
        first=feed.first,
        last=feed.last,
        convolution=product.convolution,
        norm=product.norm,
        folded=product.folded,
        dropout=product.dropout or dropout,
    )


def _added(of: Origin | None) -> tuple[Origin | None, ...]:
    return of.parts if isinstance(of, Sum) else (of,)


def _sender(of: Origin | None) -> str:
    return of.layer if isinstance(of, LayerOutput) else ""


def _age(of: Origin | None, t: int, timesteps: int) -> int:
    """How many timesteps before timestep t of so many it was sent, or is an entry of the input."""
    if isinstance(of, LayerOutput):
        return t - of.call
    return t - of.entry[0] if isinstance(of, Input) and of.entry and of.entry[1] == timesteps else 0


def _check_planes(layer: TorchLayer, every: list[TorchLayer]) -> None:
    """A convolution reads the planes that another layer, or the input, has, and nothing else."""
    name, convolution = layer.calls.name, layer.convolution
    if not any(source.convolution for source in layer.sources):
        return
    if convolution is None or len(layer.sources) > 1 or layer.recurrent:
        raise refusal(f"layer '{name}' reads planes by a convolution or a pool, and more: one source alone can run")
    made = {each.calls.name: each.convolution.result for each in every if each.convolution}
    for source in layer.sources[0].layers:
        if source and made.get(source) != convolution.planes:
            has = f"makes planes of {made[source]}" if source in made else "has no planes"
            raise refusal(f"layer '{name}' reads planes of {convolution.planes} of '{source}', which {has}")


def _check_every_call(layer: TorchLayer, first: Mapping[str, int]) -> None:
    """What a layer reads is the same in every timestep, but for itself in the first, and for what was before it or, by
    layer, before there was anything."""
    origins = layer.calls.origins
    read = [_products_read(origin, t, len(origins)) for t, origin in enumerate(origins)]
    for t, each in enumerate(read):
        missing = read[-1] - each
        if not each <= read[-1] or (t and any(age + first.get(of, 0) <= t for *_, of, age in missing)):
            raise refusal(f"layer '{layer.calls.name}' reads other things in timestep {t} than in the last one")


def _products_read(origin: Origin | None, t: int, timesteps: int) -> set[tuple[Any, ...]]:
    """(weights, convolution, layer, timesteps ago) of all that a layer reads in timestep t."""
    return {
        (
            feed.product.weight,
            feed.product.convolution,
            feed.product.norm,
            feed.product.dropout,
            _sender(part),
            _age(part, t, timesteps),
        )
        for feed in feeds_of(origin)
        for part in _added(feed.of)
        if isinstance(part, (LayerOutput, Input))
    }


def _describe(origin: Origin | None) -> str:
    if origin is None:
        return "a tensor that comes from nothing that is known"
    if isinstance(origin, (FunctionResult, Made)):
        return f"what '{origin.by}' made"
    if isinstance(origin, Gate):
        return "a share of the columns of a product"
    if isinstance(origin, Sum):
        return "a sum"
    if isinstance(origin, Joined):
        return "what is side by side with other spikes"
    if isinstance(origin, Product):
        return f"a product with '{origin.weight}', without neurons between both"
    if isinstance(origin, (Pooled, Dropped)):
        return f"{'a pool' if isinstance(origin, Pooled) else 'what dropout leaves'} of {_describe(origin.of)}"
    if isinstance(origin, LayerOutput):
        return f"what '{origin.layer}' sent, without weights"
    return f"'{origin.name}' itself" if isinstance(origin, Parameter) else "the input itself"


def _sources(origin: Origin | None) -> set[tuple[str, bool]]:
    if isinstance(origin, LayerOutput):
        return {(origin.layer, origin.spikes)}
    if isinstance(origin, (Pooled, Dropped)):
        return _sources(origin.of)
    if isinstance(origin, (FunctionResult, Sum)):
        return set().union(*map(_sources, origin.of if isinstance(origin, FunctionResult) else origin.parts))
    return set()


def _functions(origin: Origin | None) -> set[str]:
    if isinstance(origin, FunctionResult):
        return {origin.by}.union(*map(_functions, origin.of))
    if isinstance(origin, Sum):
        return {"add"}.union(*map(_functions, origin.parts))
    if isinstance(origin, (Pooled, Dropped)):
        return {"pool" if isinstance(origin, Pooled) else "dropout"} | _functions(origin.of)
    return set()


def _divisor(origin: Origin | None) -> float:
    """By what a module divides what it returns."""
    if isinstance(origin, FunctionResult):
        return origin.divisor * max(map(_divisor, origin.of), default=1.0)
    return 1.0


def _returned(recorded: Recorded, last: TorchLayer) -> list[Origin | None]:
    """Of what the module returned, what the last layer sent."""
    return [origin for origin in recorded.returned if last.calls.name in {name for name, _ in _sources(origin)}]


def _check_returned(recorded: Recorded, last: TorchLayer) -> None:
    found = _returned(recorded, last)
    if not found:
        raise refusal(f"the module does not return what its last layer, '{last.calls.name}', sent")
    mixed = sorted({name for name, _ in _sources(found[0])} - {last.calls.name})
    if mixed:
        raise refusal(
            f"the output mixes what '{last.calls.name}' sent with what '{mixed[0]}' sent; let one more layer read both"
        )
    others = _functions(found[0]) - GATHERS
    if others:
        mean = ", as torch.stack(outputs).mean(0)" if "div" in others else ""
        raise refusal(
            f"the output goes through '{sorted(others)[0]}'; return what the last layer sent{mean}, and see loss="
        )


# ---- weights


def _parameters(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: each.detach().cpu().numpy().astype(np.float64) for name, each in module.named_parameters()}


def _of_norm(module: torch.nn.Module, layer: TorchLayer) -> list[str]:
    """The parameters of a batch norm that is folded into a layer."""
    named = module.get_submodule(layer.norm).named_parameters() if layer.norm else ()
    return [f"{layer.norm}.{name}" for name, _ in named]


def folded(module: torch.nn.Module, norm: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64[channels] (scale, mean, shift) of a batch norm with constants: it makes (x - mean) * scale + shift."""
    of: Any = module.get_submodule(norm)
    mean, variance = (each.detach().cpu().numpy().astype(np.float64) for each in (of.running_mean, of.running_var))
    gain, shift = (
        np.full(mean.shape, plain) if each is None else each.detach().cpu().numpy().astype(np.float64)
        for each, plain in ((of.weight, 1.0), (of.bias, 0.0))
    )
    return gain / np.sqrt(variance + of.eps), mean, shift


def _weights(
    module: torch.nn.Module, layers: list[TorchLayer], masks: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Arrays by mimdsim's names: w.hidden0 [inputs, neurons] or [channels * window, channels], r.hidden0 [from, to] or
    [neurons], b.hidden0. Raises DescriptionError for zeros that a mask lets through, which would stay zero."""
    held, made = _parameters(module), {}
    for name, mask in masks.items():
        if zeros := np.count_nonzero((held[name] == 0) & (mask == 1)):
            raise refusal(
                f"{zeros} values of '{name}' are 0 where its mask is 1, and would stay 0; nearest: start them elsewhere"
            )
        held[name] = held[name] * mask
    for name, layer in zip(_names(layers), layers, strict=True):
        neurons = layer.calls.neurons
        for source, array in zip(layer.sources, _arrays(layers, name, layer), strict=True):
            values = held[source.weight]
            values = values.reshape(len(values), -1).T if source.transposed else values
            made[array] = values[source.first : source.last]
            if source.norm and source.folded:
                made[array] = made[array] * folded(module, source.norm)[0]
        if layer.recurrent:
            own = held[layer.recurrent]
            if own.ndim < 2 and own.size != neurons:
                raise refusal(
                    f"'{layer.recurrent}' is one number for {neurons} neurons; give each its own, V of that size"
                )
            made[f"r.{name}"] = own.reshape(-1) if own.ndim < 2 else own.T if layer.recurrent_transposed else own
            if own.ndim == 2:
                made[f"r.{name}"] = made[f"r.{name}"][slice(*layer.recurrent_rows)]
        if layer.biases:
            made[f"b.{name}"] = np.sum([held[bias] for bias in layer.biases], axis=0)
        for of, array in _constants(name, layer):
            made[array] = held[of].reshape(1, -1)
        made |= _rows(name, layer)
        if layer.recurrent_bias:
            made[f"rb.{name}"] = held[layer.recurrent_bias]
        if layer.trained_norm:
            made |= _of_trained_norm(module, layer, name, made.get(f"b.{name}", 0.0))
        elif layer.norm:
            scale, mean, shift = folded(module, layer.norm)
            made[f"b.{name}"] = (made.get(f"b.{name}", 0.0) - mean) * scale + shift
    return made


def _constants(name: str, layer: TorchLayer) -> list[tuple[str, str]]:
    """(parameter of the module, array here) of the constants that a layer's neurons learn."""
    prefix, reading = f"{layer.calls.name}." if layer.calls.name else "", layer.calls.reading
    rows = reading.written.rows if reading.written else {}
    learned = [(f"{prefix}{of}", f"c.{name}.{constant}") for constant, of in reading.learned.items()]
    return learned + [(of, f"{row}.{name}") for row, (of, _) in rows.items() if of]


def _rows(name: str, layer: TorchLayer) -> dict[str, np.ndarray]:
    """Constants that differ from neuron to neuron, of neurons that are written out, and biases of 0 where the other of
    both is there."""
    written = layer.calls.reading.written
    if not written:
        return {}
    made = {f"{row}.{name}": values for row, (of, values) in written.rows.items() if not of}
    if written.own and bool(layer.biases or layer.norm) != bool(layer.recurrent_bias):
        columns = layer.calls.neurons * written.model(name).gates
        made[f"b.{name}" if layer.recurrent_bias else f"rb.{name}"] = np.zeros((1, columns))
    return made


def _of_trained_norm(
    module: torch.nn.Module, layer: TorchLayer, name: str, before: np.ndarray | float
) -> dict[str, np.ndarray]:
    """Gain, bias and running averages, of currents without the bias before the norm, which it takes off again."""
    of: Any = module.get_submodule(layer.norm)
    held = {"gain": of.weight, "b": of.bias, "mean": of.running_mean, "variance": of.running_var}
    arrays = {f"{role}.{name}": each.detach().cpu().numpy().astype(np.float64) for role, each in held.items()}
    return arrays | {f"mean.{name}": arrays[f"mean.{name}"] - before}


def _delayed(layers: list[TorchLayer]) -> bool:
    """Whether most layers read what others sent a timestep earlier."""
    lags = [lag for layer in layers for source in layer.sources for name, lag in source.terms if name]
    return 2 * lags.count(1) > len(lags)


def _read(layers: list[TorchLayer], layer: TorchLayer) -> tuple[graph.Source, ...]:
    """What a layer reads, by the names here."""
    names = dict(zip((each.calls.name for each in layers), _names(layers), strict=True)) | {"": INPUT}
    every = (
        [graph.Source(name=names[name], neurons=source.inputs, lag=lag) for name, lag in source.terms]
        for source in layer.sources
    )
    return tuple(replace(first, also=tuple(also)) for first, *also in every)


def _arrays(layers: list[TorchLayer], name: str, layer: TorchLayer) -> list[str]:
    """The names of the weights of a layer's sources."""
    _, *others = labels_of(_read(layers, layer))
    return [f"w.{name}", *(f"w.{name}.from.{other}" for other in others)]


Link = tuple[str, str, bool, int, str]


def _links(layers: list[TorchLayer]) -> list[Link]:
    """(parameter of the module, array here, whether it is transposed, from which row on, the batch norm folded into
    it); biases that are added up name one array, with a batch norm that of its shift. Of the running mean of one
    that is trained, the last is the bias before it."""
    made = []
    for name, layer in zip(_names(layers), layers, strict=True):
        for source, array in zip(layer.sources, _arrays(layers, name, layer), strict=True):
            made.append((source.weight, array, source.transposed, source.first, source.norm * source.folded))
        if layer.recurrent:
            made.append((layer.recurrent, f"r.{name}", layer.recurrent_transposed, layer.recurrent_rows[0], ""))
        made += [(layer.recurrent_bias, f"rb.{name}", False, 0, "")] if layer.recurrent_bias else []
        made += [(of, array, False, 0, "") for of, array in _constants(name, layer)]
        if layer.trained_norm:
            made.append((f"{layer.norm}.weight", f"gain.{name}", False, 0, ""))
            made.append((f"{layer.norm}.bias", f"b.{name}", False, 0, ""))
            made.append((f"{layer.norm}.running_mean", f"mean.{name}", False, 0, "".join(layer.biases)))
            made.append((f"{layer.norm}.running_var", f"variance.{name}", False, 0, ""))
            continue
        biases = (f"{layer.norm}.bias",) if layer.norm else layer.biases
        made += [(bias, f"b.{name}", False, 0, layer.norm) for bias in biases]
    return made


ROLE = {
    **{"w": "", "b": ".bias", "r": ".recurrent", "rb": ".recurrent_bias", "c": ""},
    **{role: f".{role}" for role in ("gain", *STATISTICS)},
}


def _frozen(module: torch.nn.Module, layers: list[TorchLayer]) -> list[str]:
    """The arrays that stay as they are (requires_grad = False), by their public names."""
    learns = {name: each.requires_grad for name, each in module.named_parameters()}
    arrays: dict[str, bool] = {}
    for of, array, *_ in _links(layers):
        if array.partition(".")[0] in STATISTICS:
            continue
        arrays[array] = arrays.get(array, False) or learns[of]
    fixed = (_public(array) for name, layer in zip(_names(layers), layers, strict=True) for array in _rows(name, layer))
    return [*(_public(array) for array, learning in arrays.items() if not learning), *fixed]


def _pruned(layers: list[TorchLayer], masks: Collection[str]) -> list[str]:
    """The arrays that have a mask, by their public names."""
    links = _links(layers)
    arrays = [array for of, array, *_ in links if of in masks]
    several = [of for of, array, *_ in links if array in arrays and of not in masks]
    if several:
        raise refusal(f"'{several[0]}' is added to a bias that has a mask; nearest: one bias")
    return [_public(array) for array in arrays]


def _public(array: str) -> str:
    role, _, layer = array.partition(".")
    return f"{layer}{ROLE.get(role, f'.{role}')}"


def parameter_names(workload: Workload) -> list[Link]:
    """(parameter of the module, the array that it is here, whether that is transposed, the row that it begins at, the
    batch norm folded into it) of a workload that `from_torch` made; raises DescriptionError for another."""
    path = with_home(workload.training.initial_weights)
    note = read_notes(path).get(NOTE) if workload.training.initial_weights else None
    if note is None:
        raise DescriptionError(f"workload '{workload.name}'", ["was not made by mimdsim.from_torch"])
    links = ((*each, "")[:5] for each in json.loads(note))  # those of before have no batch norm
    return [(str(of), str(array), bool(turned), int(row), str(norm)) for of, array, turned, row, norm in links]


# ---- the same currents from the recorded spikes, and the same spikes from the recorded currents


def _earlier(values: np.ndarray, age: int = 1) -> np.ndarray:
    """Those of `age` timesteps before, zeros in the first."""
    return np.concatenate([np.zeros_like(values[:age]), values[: len(values) - age]])


def _find_input(
    layers: list[TorchLayer], weights: Mapping[str, np.ndarray], example: torch.Tensor, timesteps: int | None
) -> np.ndarray:
    """float64[timesteps, samples, inputs]: the example with its axes as the layers read it, so that all currents are
    those of their weights."""
    calls = layers[0].calls
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
    sent = {layer.calls.name: layer.calls.sequence(layer.calls.outputs) for layer in layers} | {"": values}
    for name, layer in zip(_names(layers), layers, strict=True):
        calls, reading = layer.calls, layer.calls.reading
        recorded = calls.sequence(calls.currents)
        bias = weights.get(f"b.{name}", 0.0) - (
            _own_bias(layer) if reading.recurrent_bias and not reading.of_cells else 0.0
        )
        currents: np.ndarray | float = 0.0
        for source, array in zip(layer.sources, _arrays(layers, name, layer), strict=True):
            what = f"what '{' + '.join(source.layers)}' sends" if any(source.layers) else "the input"
            if len({sent[layer].shape for layer in source.layers}) > 1:
                return f"layer '{calls.name}' reads the sum of {what}, of several widths; one can run"
            spikes = np.sum([_earlier(sent[layer], lag) for layer, lag in source.terms], axis=0)
            if spikes.shape[-1] != source.inputs:
                return f"layer '{calls.name}' reads {source.inputs} of {spikes.shape[-1]} values of {what}; all can run"
            if layer.trained_norm:
                rows = (weights[f"{role}.{name}"] for role in ("gain", "b"))
                currents += normalised_currents(source.convolution, spikes, weights[array], layer.trained_norm, *rows)
                continue
            currents += spikes if reading.weights else currents_of(source.convolution, spikes, weights[array], bias)
            bias = 0.0
        if layer.recurrent and not reading.recurrent and not _sums_apart(layer):
            currents += _earlier(sent[calls.name]) @ weights[f"r.{name}"]
        off = np.abs(currents - recorded).max() if np.shape(currents) == recorded.shape else np.inf
        largest = np.abs(recorded).max()
        if not off <= SAME_CURRENT * max(largest, SAME_CURRENT):
            return (
                f"layer '{calls.name}' gets currents that differ by up to {off:.2g}, of {largest:.2g} at most, from "
                f"those of its weights and of {what}: axes are swapped, values reordered or added on the way"
            )
    return ""


def _check_spikes(layers: list[TorchLayer], weights: Mapping[str, np.ndarray]) -> None:
    for name, layer in zip(_names(layers), layers, strict=True):
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
    for name, layer in zip(_names(layers), layers, strict=True):
        calls = layer.calls
        if not calls.reading.of_cells or calls.reading.written:
            continue
        arrays = {role: weights[f"{role}.{name}"] for role in ROLE if f"{role}.{name}" in weights}
        made = run_cells(calls.reading.model, arrays, calls.sequence(calls.currents))
        sent = calls.sequence(calls.outputs)
        off = float(np.abs(made - sent).max()) if made.shape == sent.shape else np.inf
        if not off <= SAME_CURRENT * max(float(np.abs(sent).max()), SAME_CURRENT):
            raise refusal(
                f"layer '{calls.name}' sends what differs by up to {off:.2g} from what a '{calls.reading.model}' sends "
                "of the same: something acts on it that is not known here (a state handed in, an option)"
            )


def _with_read_out(module: torch.nn.Module, recorded: Recorded) -> Recorded:
    """What was recorded, with the linear layer that reads cells at its end as a layer whose potentials are read."""
    every = (feed for calls in recorded.layers.values() for origin in calls.origins for feed in feeds_of(origin))
    read = {feed.product.weight for feed in every}  # by neurons that may send their current, as it is, at first
    found = [(_product_in(each), at) for at, each in enumerate(recorded.returned)]
    ends = [(origin, at) for origin, at in found if origin is not None and origin.weight not in read]
    if not ends:
        return recorded
    product, at = ends[0]
    of: Origin | None = product.of
    while isinstance(of, FunctionResult) and of.by in GATHERS and len(set(map(_layer_of, of.of))) == 1:
        of = of.of[-1]  # of every timestep, where there are several
        if product.dropout:  # of a sum over time: the same in every timestep
            product = replace(product, dropout=replace(product.dropout, per="sequence"))
    if not isinstance(of, LayerOutput) or not recorded.layers[of.layer].reading.of_cells:
        return recorded
    held, calls = _parameters(module), recorded.layers[of.layer]
    values = held[product.weight].T if product.transposed else held[product.weight]
    outputs = calls.sequence(calls.outputs) @ values + (held[product.bias] if product.bias else 0.0)
    reading = reading_of(recorded.values[at], outputs, _functions(recorded.returned[at]))
    if not reading:
        raise refusal(
            f"the output is neither the product with '{product.weight}' of what '{of.layer}' sent nor its last, mean, "
            "highest or summed value over time; return one of these"
        )
    tensor = torch.as_tensor(outputs)
    name = product.weight.rpartition(".")[0] or product.weight
    made = NeuronCalls(
        name=name,
        module=module,
        reading=Reading(model="li", parameters=dict(READ_OUT), reset="none", spiking=False, in_time=True),
        currents=[tensor],
        origins=[replace(product, of=of)],
        outputs=[tensor],
    )
    returned: list[Origin | None] = [LayerOutput(layer=name, call=0, spikes=False)]
    return replace(recorded, layers={**recorded.layers, name: made}, returned=returned, reading=reading)


def _layer_of(origin: Origin | None) -> object:
    """What is alike of a layer's outputs in every timestep."""
    return origin.layer if isinstance(origin, LayerOutput) else origin


def _product_in(origin: Origin | None) -> Product | None:
    """The last product in what a module returns, alone or of all timesteps."""
    if isinstance(origin, FunctionResult) and origin.by in GATHERS:
        return _product_in(origin.of[-1]) if origin.of else None
    return origin if isinstance(origin, Product) else None


def _own_bias(layer: TorchLayer) -> np.ndarray:
    module: Any = layer.calls.module
    values: np.ndarray = module.recurrent.bias.detach().cpu().numpy().astype(np.float64)
    return values


# ---- the description


def _network(layers: list[TorchLayer], old: Mapping[str, Any]) -> dict[str, Any]:
    """The section [network]: per layer what differs, and gradients of all neurons."""
    readings = [layer.calls.reading for layer in layers]
    widths = _widths(layers)
    made: dict[str, Any] = {
        "hidden": widths[:-1],
        "capacity": widths,
        "neuron": [each.model for each in readings],
        "neuron_parameters": [each.parameters for each in readings],
        "reset": [each.reset for each in readings],
        "reset_gradient": [each.reset_gradient for each in readings],
        "surrogate": [each.surrogate for each in readings],
        "surrogate_slope": [each.slope for each in readings],
        "recurrence": [_recurrence(layer) for layer in layers],
        "bias": [bool(layer.biases or layer.norm or layer.recurrent_bias) for layer in layers],
        "delay": int(_delayed(layers)),
        "second_threshold": NONE,
        "output_second_threshold": NONE,
    }
    names = _names(layers)
    own = {name: each.written for name, each in zip(names, readings, strict=True) if each.written}
    if own:
        made["neuron"] = [
            f"neuron_of_{name}" if name in own else each.model for name, each in zip(names, readings, strict=True)
        ]
        made["cells"] = {
            f"neuron_of_{name}": {"equations": list(each.texts), "learned": dict.fromkeys(each.rows, 0.0)}
            for name, each in own.items()
        }
    for before, name, layer in zip((INPUT, *names), names, layers, strict=False):
        # the age that is not written: of layers after it, the timestep before
        unsaid = {INPUT: 0} | dict.fromkeys(names[: names.index(name)], int(_delayed(layers)))
        read = _read(layers, layer)
        twice = [each.names in {other.names for other in read[:place]} for place, each in enumerate(read)]
        said = [
            " + ".join(
                term.name if term.lag == unsaid.get(term.name, 1) and not again else aged(term.name, term.lag or 0)
                for term in each.terms
            )
            for each, again in zip(read, twice, strict=True)
        ]
        if said != [before]:
            made.setdefault("sources", {})[name] = said
        if layer.convolution:
            made.setdefault("convolutions", {})[name] = keys_of(layer.convolution, of_input=read[0].name == INPUT)
    if learned := {name: [*each.learned] for name, each in zip(names, readings, strict=True) if each.learned}:
        made["learned"] = learned
    for key in ("spikes", "truncation", "neurons_per_class"):
        if key in old:
            made[key] = old[key]
    made |= _dropout(layers) | _norms(layers)
    sums = any(len(source.terms) > 1 for layer in layers for source in layer.sources)
    dense = sums or made.keys() & {"convolutions", "dropout", "batch_norm"} or any(map(_sends_numbers, readings))
    return made | ({"spikes": "dense"} if dense else {})


def _sends_numbers(reading: Reading) -> bool:
    """Whether neurons run from dense spikes alone: cells, and equations that no linear neuron has."""
    if reading.written is None:
        return reading.of_cells
    return linear_neuron_of(reading.written.model(reading.model), {}) is None


def _norms(layers: list[TorchLayer]) -> dict[str, Any]:
    """Keys of the section [network] for batch norms that are trained."""
    if not any(layer.trained_norm for layer in layers):
        return {}
    norms = [layer.trained_norm for layer in layers]
    found = [each or BatchNorm() for each in norms]
    return {
        "batch_norm": [each.per if each else "none" for each in norms],
        "batch_norm_epsilon": [each.epsilon for each in found],
        "batch_norm_momentum": [each.momentum for each in found],
    }


def _dropout(layers: list[TorchLayer]) -> dict[str, Any]:
    """Keys of the section [network] for what is left out."""
    every = {layer.calls.name: {source.dropout for source in layer.sources} for layer in layers}
    several = [name for name, found in every.items() if len(found) > 1]
    if several:
        raise refusal(f"layer '{several[0]}' reads sources with dropout of several kinds; one for all can run")
    found = [one for (one,) in every.values()]
    ways = sorted({each.per for each in found if each})
    if len(ways) > 1:
        raise refusal("some dropout is drawn for every timestep, other for every sequence; one of both can run")
    if not ways:
        return {}
    return {"dropout": [each.share if each else 0.0 for each in found], "dropout_per": ways[0]}


NONE = -100.0  # a second threshold that every potential is above: gradients of all neurons, as PyTorch's


def _sums_apart(layer: TorchLayer) -> bool:
    """Whether sums over its own outputs are no part of its currents, as in gated cells."""
    reading = layer.calls.reading
    return bool(reading.written.own) if reading.written else reading.of_cells


def _recurrence(layer: TorchLayer) -> str:
    if not layer.recurrent or _sums_apart(layer):
        return "none"
    return "one_to_one" if layer.calls.reading.recurrent == "V" else "all_to_all"


def _output(wanted: str, recorded: Recorded, last: TorchLayer) -> str:
    """What is read of the last layer: its spikes, or its potentials, of neurons that are reset or not."""
    if wanted not in ("", "spikes", "membrane"):
        raise refusal(f"output '{wanted}' is not known: write 'spikes' or 'membrane'")
    reading = last.calls.reading
    if reading.of_cells:
        spikes = reading.written is not None and reading.written.model(reading.model).spiking
        return "spikes" if spikes else "membrane"
    returned = set().union(*map(_sources, recorded.returned))
    if not wanted:
        only_states = (last.calls.name, True) not in returned
        wanted = "membrane" if only_states else "spikes"
    if wanted == "spikes" and not reading.spiking:
        raise refusal(f"output 'spikes': the last layer, '{last.calls.name}', never spikes; write output='membrane'")
    if wanted == "spikes":
        return "spikes"
    if not reading.spiking or reading.reset == "none":
        return "membrane"
    if not neuron_key(last.calls.module).startswith("snntorch."):
        raise refusal(
            f"output 'membrane': the last layer, '{last.calls.name}', returns its potential after the reset, which is "
            "not read here; nearest: neurons that never spike, norse LI or spikingjelly NonSpikingLIFNode"
        )
    return "membrane_of_spiking"


def _reading(recorded: Recorded, last: TorchLayer, reads: str, stepwise: bool) -> str:
    """How what the module returned, in one call, reads its last layer over time; '' where its functions say so."""
    if recorded.reading or stepwise:
        return recorded.reading
    calls, of_cells = last.calls, last.calls.reading.of_cells
    outputs, spikes = (calls.outputs, True) if reads == "spikes" or of_cells else (calls.states or calls.outputs, False)
    of_output = [at for at, each in enumerate(recorded.returned) if (calls.name, spikes) in _sources(each)]
    timesteps = len(calls.sequence(outputs))
    # a list of all timesteps, the first of which may be a current as it is
    if not of_output or len(recorded.returned) == timesteps <= len(of_output) + 1 or len(of_output) == timesteps:
        return ""
    functions, values = _functions(recorded.returned[of_output[0]]), recorded.values[of_output[0]]
    some = functions <= {"stack"} and values.ndim < calls.outputs[0].ndim + (not calls.in_time)
    if not some and not of_cells:
        return ""
    found = reading_of(values, calls.sequence(outputs), functions)
    if not found:
        raise refusal(f"the output is neither all of what '{calls.name}' made nor a reading of it; return one of these")
    return found


def _objective(
    loss: str | Mapping[str, Any], recorded: Recorded, last: TorchLayer, by_membrane: bool, timesteps: int, reading: str
) -> dict[str, Any]:
    """Keys of [training] for the loss; by default the cross-entropy of what the module returns, by `reading`."""
    if not isinstance(loss, Mapping) and loss and loss not in LOSSES:
        raise refusal(f"loss '{loss}' is not known: write one of {', '.join(LOSSES)}, or keys of [training]")
    divisor = recorded.votes * _divisor(next(iter(_returned(recorded, last)), None))
    votes: dict[str, Any] = {"logit_scale": 1 / divisor} if divisor != 1 else {}
    functions = set().union(*map(_functions, _returned(recorded, last)))
    if loss:
        made = votes | (dict(loss) if isinstance(loss, Mapping) else LOSSES[loss])
    elif by_membrane:
        by_function = "mean" if "mean" in functions else "max" if functions & {"max", "amax"} else "sum"
        made = {"loss": "cross_entropy", "reading": reading or by_function} | votes
    else:
        scale = {"logit_scale": 1 / timesteps / divisor} if "mean" in functions else votes
        made = {"loss": "cross_entropy", "reading": reading or "sum", **scale}
    if (made.get("loss") == "mean_squared_error" and votes) or (made.get("reading") == "max" and recorded.votes > 1):
        raise refusal("counts, or the highest, of a mean of outputs have no loss here; nearest: 'ce_count_loss'")
    return made


def _random(values: np.ndarray, classes: int) -> dict[str, Any]:
    """A workload of random spikes, as frequent as those of the example."""
    if not np.isin(values, (0.0, 1.0)).all():
        odd = values[~np.isin(values, (0.0, 1.0))][0]
        raise refusal(
            f"the example input holds {odd:g}; spikes are 0 or 1. Give spikes (for instance snntorch.spikegen.rate), "
            "or a workload whose data are images, as workload='snntorch-mnist'"
        )
    steps, batch, inputs = values.shape
    table = random_table(inputs, classes)
    table["data"] |= {"timesteps": steps, "activity": float(values.mean())}
    table["data"] |= {"train_samples": 4 * batch, "test_samples": batch}
    table["training"]["batch"] = batch
    return table


def load_trained(module: torch.nn.Module, workload: Workload, weights: Mapping[str, np.ndarray]) -> None:
    """Write trained weights, by layer ('hidden0', 'hidden0.bias'), into the module that the workload was made of."""
    held = dict(module.named_parameters()) | dict(module.named_buffers())
    names = parameter_names(workload)
    missing = [name for name, *_ in names if name not in held]
    if missing:
        raise DescriptionError(
            "to_torch", [f"the module has no parameter '{missing[0]}', which the workload was made of"]
        )
    done: set[str] = set()
    with torch.no_grad():
        for name, array, turned, row, norm in names:
            if array in done:
                continue
            done.add(array)
            values = torch.as_tensor(_unfolded(module, weights[_public(array)], array, names, norm))
            others = [other for other, same, *_ in names if same == array and other != name]
            target = held[name]
            if len({each for one, each, *_ in names if one == name}) > 1:  # several arrays lie in it
                target = (target.T if turned else target)[row : row + len(values)]
            elif turned and min(values.shape) > 1:  # else the order of numbers is the same
                values = values.T
            if values.numel() != target.numel():
                raise DescriptionError(
                    "to_torch", [f"'{name}' has the shape {list(target.shape)}, the trained one {list(values.shape)}"]
                )
            values = values.reshape(target.shape).to(target)
            target.copy_(values - sum(held[other] for other in others))


def _unfolded(module: torch.nn.Module, trained: np.ndarray, array: str, names: list[Link], norm: str) -> np.ndarray:
    """Weights before a batch norm, or its shift, of what was trained with it folded in; others as they are."""
    if not norm:
        return np.array(trained)
    if array.startswith("mean."):
        return np.asarray(trained.reshape(-1) + dict(module.named_parameters())[norm].detach().cpu().numpy())
    scale, mean, _ = folded(module, norm)
    if array.startswith("w."):
        return np.asarray(trained / scale)
    weight = next(of for of, other, *_ in names if other == f"w.{array[2:]}")
    before = dict(module.named_parameters()).get(weight.removesuffix("weight") + "bias")
    bias = 0.0 if before is None else before.detach().cpu().numpy().astype(np.float64)
    return np.asarray(trained.reshape(-1) - (bias - mean) * scale)
