"""The network that a workload describes, in the graph's own records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from mimdsim.base.errors import MappingError, suggest
from mimdsim.base.units import exact_product
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.cells import Cell
from mimdsim.graph.convolution import Convolution, Planes, Pool, Window, same_size
from mimdsim.graph.derived import Delays, WeightFunction
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.names import INPUT
from mimdsim.graph.norms import BatchNorm
from mimdsim.graph.sources import Source, source_of
from mimdsim.graph.spikes import Selection, ThresholdSchedule
from mimdsim.numerics.optimisers import OPTIMISERS, Optimiser
from mimdsim.program import RecordedActivity
from mimdsim.workload.data.dataset import input_shape, pixel_grid
from mimdsim.workload.description.neuron import neurons_of
from mimdsim.workload.description.sections import (
    ConvolutionKeys,
    Data,
    Network,
    PoolKeys,
    TrainingRecipe,
    WeightFunctionKeys,
    loss_of,
)
from mimdsim.workload.description.workload import Workload, capacity_by_activity
from mimdsim.workload.interchange.layers import imported_layers

FUNCTIONS_OF = ("weights", "recurrent", "bias")  # roles


def network_of(workload: Workload) -> SpikingNetwork:
    """The described network, or the model that the workload names instead; the rest is the workload's."""
    network = described_network(workload)
    if workload.network.imported:
        layers, delay = imported_layers(workload, network)
        network = replace(network, layers=layers, delay=delay)
    training = workload.training
    functions = workload.network.weight_functions
    _named(network.layers, "network.weight_functions", functions, FUNCTIONS_OF)
    layers = tuple(_with_functions(layer, functions, workload.network.weight_format) for layer in network.layers)
    return replace(
        network,
        layers=layers,
        frozen=_named(layers, "training.frozen", training.frozen),
        pruned=_named(layers, "training.pruned", training.pruned),
    )


def described_network(workload: Workload) -> SpikingNetwork:
    """Layers 'hidden0', 'hidden1', ..., 'output' with the workload's constants, batch and timesteps."""
    network, training = workload.network, workload.training
    inputs, classes = input_shape(workload.data)
    names = (INPUT, *network.layers)
    widths = dict(zip(names, (inputs, *network.hidden, classes * network.neurons_per_class), strict=True))
    capacities = capacities_of(workload)
    layers: list[Layer] = []
    one_for_all = isinstance(network.recurrence, str)  # of hidden layers; a list says it of the output layer too
    for index, (before, name, neuron) in enumerate(zip(names, network.layers, neurons_of(network), strict=False)):
        neurons, is_output = widths[name], name == network.layers[-1]
        planes = {layer.name: layer.sent_planes for layer in layers if layer.sent_planes}
        read = network.sources.get(name, (before,))
        sources = tuple(source_of(each).sized(widths, planes.get) for each in read)
        convolution = _convolution(workload, planes, name, sources)
        if convolution and convolution.result.neurons != neurons:
            made, said = convolution.result, "classes" if is_output else f"network.hidden[{index}]"
            raise MappingError(
                f"layer '{name}': its convolution makes planes of {made}, {made.neurons:,} neurons; {said} must be as "
                f"many (given: {neurons:,})"
            )
        layers.append(
            Layer(
                name=name,
                inputs=sources[0].neurons,
                neurons=neurons,
                neuron=neuron,
                selection=_selection(network, index, neuron, min(capacities[index], neurons)),
                bias=network.of_layer("bias", index),
                recurrence="none" if one_for_all and is_output else str(network.of_layer("recurrence", index)),
                spiking=not is_output or network.output == "spikes",
                reset_unread=is_output and network.output == "membrane_of_spiking",
                sources=sources if name in network.sources else (),
                convolution=convolution,
                dropout=network.of_layer("dropout", index),
                dropout_per=network.dropout_per,
                dropout_of=network.of_layer("dropout_of", index),
                norm=_norm(network, index, workload.data.timesteps),
                delays=Delays(**network.delays[name].model_dump()) if name in network.delays else None,
                unweighted=name in network.unweighted,
                planes=sources[0].planes(planes.get) if name in network.unweighted else None,
            )
        )
    threshold_schedule = ThresholdSchedule(
        start=training.second_threshold_start,
        share=training.second_threshold_share,
        output=training.second_threshold_output,
    )
    return SpikingNetwork(
        layers=tuple(layers),
        timesteps=workload.data.timesteps,
        batch=training.batch,
        input_capacity=inputs if network.spikes == "dense" else workload.data.input_capacity,
        spikes=network.spikes,
        encoding=workload.data.encoding,
        logit_scale=training.logit_scale,
        optimiser=optimiser_of(training),
        loss=loss_of(training, network.neurons_per_class),
        threshold_schedule=threshold_schedule if training.second_threshold_share else None,
        largest_gradient_norm=training.largest_gradient_norm,
        delay=network.delay,
    )


def _selection(network: Network, index: int, neuron: LinearNeuron | Cell, capacity: int) -> Selection:
    """Who of a layer fires and is listed; cells hold what they like against their own thresholds."""
    second = network.output_second_threshold if index == len(network.hidden) else network.second_threshold
    cells = isinstance(neuron, Cell)
    return Selection(
        threshold=0.0 if isinstance(neuron, Cell) else neuron.threshold,
        second_threshold=0.0 if cells else second,
        capacity=capacity,
        slope=network.of_layer("surrogate_slope", index),
        surrogate=network.of_layer("surrogate", index),
        truncation=network.truncation,
    )


def _convolution(
    workload: Workload, before: Mapping[str, Planes], name: str, sources: tuple[Source, ...]
) -> Convolution | None:
    """How a layer reads planes of those before it, or of the input; None: it has no convolution."""
    keys, source = workload.network.convolutions.get(name), sources[0]
    if keys is None:
        return None
    made = source.planes(before.get)
    try:
        if source.name != INPUT and (keys.planes or made is None):
            what = "planes are those of the layer that it reads; leave them out" if keys.planes else ""
            raise MappingError(what or f"'{source.names}', which it reads, comes after it or has no planes")
        planes = made or _input_planes(workload.data, keys, source.neurons)
        return Convolution(
            planes=planes,
            window=Window(kernel=keys.kernel, stride=keys.stride, padding=keys.padding, dilation=keys.dilation),
            channels=keys.channels,
            groups=keys.groups,
            before=_pool(keys.pool_before),
            after=_pool(keys.pool),
            own=same_size(keys.own_kernel) if keys.own_kernel else None,
        )
    except MappingError as problem:
        raise MappingError(f"network.convolutions.{name}: {problem}") from None


def _norm(network: Network, index: int, timesteps: int) -> BatchNorm | None:
    """The batch norm of a layer."""
    per, *constants = (network.of_layer(f"batch_norm{key}", index) for key in ("", "_epsilon", "_momentum", "_groups"))
    names = ("epsilon", "momentum", "groups")
    rows = timesteps if per == "each_timestep" else 1
    return None if per == "none" else BatchNorm(per=per, rows=rows, **dict(zip(names, constants, strict=True)))


def _pool(keys: PoolKeys | None) -> Pool | None:
    if keys is None:
        return None
    stride = (keys.stride[0] or keys.size[0], keys.stride[1] or keys.size[1])
    return Pool(kind=keys.kind, window=Window(kernel=keys.size, stride=stride, padding=keys.padding))


def _input_planes(data: Data, keys: ConvolutionKeys, inputs: int) -> Planes:
    """As given, else those of the sensor: a channel for each polarity."""
    if keys.planes:
        given = Planes(**dict(zip(("channels", "height", "width"), keys.planes, strict=True)))
        if given.neurons != inputs:
            raise MappingError(f"planes of {given} are {given.neurons:,} inputs, the data have {inputs:,}")
        return given
    grid = pixel_grid(data)
    if grid is None:
        raise MappingError(f"source '{data.source}' has no pixels; give planes = [channels, height, width]")
    width, height = grid
    return Planes(channels=inputs // (width * height), height=height, width=width)


def _with_functions(layer: Layer, functions: Mapping[str, WeightFunctionKeys], number_format: str) -> Layer:
    """The layer with the functions of its weights, of which others act in a format."""
    if not (functions or number_format):
        return layer
    rest = WeightFunctionKeys(function=number_format) if number_format else None
    formatted = {each.public: each.role != "bias" for each in layer.parameters if each.role in FUNCTIONS_OF}
    try:
        made = tuple(
            (name, WeightFunction(**keys.model_dump()))
            for name, rounds in formatted.items()
            if (keys := functions.get(name, rest if rounds else None))
        )
    except MappingError as problem:
        raise MappingError(f"network.weight_functions of layer '{layer.name}': {problem}") from None
    return replace(layer, weight_functions=made)


def _named(layers: tuple[Layer, ...], key: str, names: Iterable[str], roles: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Parameters, of these roles or that are trained, that a key names, by the graph's names; raises MappingError for
    what no layer has."""
    every = (parameter for layer in layers for parameter in layer.parameters)
    known = {each.public: each.name for each in every if (each.role in roles if roles else each.trained)}
    for name in names:
        if name not in known:
            raise MappingError(
                f"{key}: no {'weights' if roles else 'parameter'} '{name}'{suggest(name, known)}; there are "
                f"{', '.join(known)}"
            )
    return tuple(known[name] for name in names)


def optimiser_of(training: TrainingRecipe) -> Optimiser:
    """The optimiser with its constants; a rate that follows a schedule is a run-time input."""
    return OPTIMISERS[training.optimiser](
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        scheduled=training.schedule != "constant",
        **training.constants,
    )


def capacities_of(workload: Workload) -> tuple[int, ...]:
    """Spike capacity per layer, output layer last; dense spikes have room for all neurons."""
    network = workload.network
    outputs = input_shape(workload.data)[1] * network.neurons_per_class
    if network.spikes == "dense":
        return (*network.hidden, outputs)
    if network.capacity:
        return network.capacity
    hidden = tuple(capacity_by_activity(network.activity, width) for width in network.hidden)
    return (*hidden, network.output_capacity or capacity_by_activity(network.activity, outputs))


def filled_activity(network: SpikingNetwork, share: float) -> RecordedActivity:
    """Every list of the input and of all layers holds `share` (0 to 1) of its capacity, rounded half up, all true.

    Ids are spread evenly over the neurons of a layer, the same in every timestep and sample. Raises MappingError for
    another share.
    """
    if not 0 <= share <= 1:
        raise MappingError(f"lists filled to {share} of their capacity: give a share from 0 to 1")
    sizes = [("input", network.inputs, network.input_capacity)]
    sizes += [(layer.name, layer.neurons, layer.capacity) for layer in network.layers]
    ids, counts = {}, {}
    for name, neurons, capacity in sizes:
        spread = ((np.arange(capacity) * neurons) // capacity).astype(np.int32)
        ids[name] = np.broadcast_to(spread, (network.timesteps, network.batch, capacity)).copy()
        listed = math.floor(exact_product(share, capacity) + Fraction(1, 2))
        counts[name] = np.full((network.timesteps, network.batch, 2), listed, np.int32)
    return RecordedActivity(ids=ids, counts=counts, dropped={})
