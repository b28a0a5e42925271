"""The inputs of a checked training step: several draws in which every input matters.

Weights are multiples of 2^-14, so that sums of binary spikes times weights are exact in float32 in any order, and
spikes must agree bit for bit. Moments are as large as gradients, and the count of training steps is not always that of
the first. In one draw some neurons have one synapse alone, of a weight that lifts their potential exactly onto a
threshold, or one bit above it, so that `>=` instead of `>` is noticed. In two lists are full, in one of them weights
strong and spikes many; in another, many potentials lie between the thresholds. In the last, inputs and neurons are in
groups that excite one another in turn, so that every neuron is listed and every vertex that adds up gradients has some
to add: one that is left out is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from mimdsim.base.rng import stream
from mimdsim.execution import initial_weights
from mimdsim.graph import Graph, Layer, SparseSpikes, SpikingNetwork
from mimdsim.graph.convolution import Patches, Planes, Window, pixels_of
from mimdsim.graph.derived import WeightFunction
from mimdsim.graph.names import (
    INPUT,
    LABELS,
    LEARNING_RATE,
    TRAINING_STEP,
    delay_width_of,
    listed,
    random_name,
    weights_of,
)
from mimdsim.graph.operations import OPERATIONS
from mimdsim.graph.spikes import STATE_BITS

IDS, COUNTS = listed(INPUT)
DYADIC = 2.0**14
TIED = 4  # one in this many neurons is tied, in a draw with ties
# most of what is drawn to either side of where these begin
ROOM = {"bias": 0.25, "shift": 0.25, "gain": 0.5, "mean": 0.25, "variance": 0.5, "constant": 0.0625}
UNKNOWN = 0.01  # the assumed size of a gradient before one was seen
GROUP_LIFT = 1.1  # of the threshold: where a group that spikes puts the next one
GROUP_APART = 0.02  # what it does to other groups, as a share of that
FORBIDDEN = 8  # weights whose sign a function forbids are weaker by this factor
REACH = 16  # this many floats below and above are tried for a weight that meets a threshold


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One set of inputs: which training step it is; how strong weights are, and how far they are lifted above zero;
    whether lists are full or as they come; whether some neurons are put onto their thresholds; whether inputs and
    neurons are in groups; how often it was drawn before."""

    number: int
    training_step: int
    weight_scale: float = 4.0
    lift: float = 0.0
    full_lists: bool = False
    ties: bool = False
    groups: bool = False
    again: int = 0


DRAWS = (
    Draw(number=0, training_step=3),
    Draw(number=1, training_step=1, ties=True),
    Draw(number=2, training_step=40, weight_scale=12.0, lift=1.0, full_lists=True),
    Draw(number=3, training_step=2, lift=0.2, full_lists=True),
    Draw(number=4, training_step=7, weight_scale=1.0, lift=0.4),  # weak: many gradients where there is no spike
    Draw(number=5, training_step=5, groups=True),
    Draw(number=6, training_step=4, groups=True),
)


def drawn_inputs(
    network: SpikingNetwork, draw: Draw, sizes: Mapping[str, float] = MappingProxyType({})
) -> dict[str, np.ndarray]:
    """Spikes, labels, weights, moments and generator states for one training step, by graph input.

    sizes: how large the gradient of a parameter is, as far as known; moments are made as large, so that an update
    depends on both.
    """
    # no weight alone lifts what is normalised, and samples that are all alike have no variance
    if any(layer.norm for layer in network.layers):
        draw = replace(draw, lift=0.0, full_lists=False, ties=False, groups=False)
    seed = draw.number + len(DRAWS) * draw.again
    random = stream(seed, "check")
    values: dict[str, np.ndarray] = {
        **_spikes(network, draw, random),
        LABELS: np.resize(random.permutation(network.classes), network.batch).astype(np.int32),
        TRAINING_STEP: np.array([draw.training_step]),
    }
    for name, value in network.scheduled.items():
        changed = value * 0.5**draw.number if name == LEARNING_RATE else value
        values[name] = np.full(1, changed, np.float32)
    for name in network.kept_shares:  # with others the weights of what is kept would not be dyadic
        values[name] = np.full(1, 0.5 ** (1 + draw.number % 2), np.float32)
    for layer in network.layers:
        if layer.selection.truncation == "random" or layer.dropout:
            values[random_name(layer.name)] = random.integers(0, 1 << STATE_BITS, network.batch)
    gated = {each.name: each.gates > 1 or (each.cell is not None and each.cell.of.recurrent) for each in network.layers}
    of_planes = {weights_of(layer.name) for layer in network.layers if layer.positions > 1}
    offset = draw.lift * draw.weight_scale / max(layer.fan_in for layer in network.layers) ** 0.5
    for name, drawn in initial_weights(network, seed, draw.weight_scale, 0.02 + offset).items():
        around = ROOM.get(network.parameters[name].role.rstrip("0123456789"), 0.0)
        bias = random.uniform(-around, around, drawn.shape) if around else 0.0
        if gated[network.parameters[name].layer]:  # gates that saturate would hide what comes before them
            drawn = drawn / np.float32(draw.weight_scale)
        if name in of_planes:  # a few weights, shared by all positions: by chance none of these would fire, or all
            bias = 0.02 + offset - drawn.mean(axis=0)
        values[name] = _dyadic(drawn + bias)
    values |= _delays(network, draw, random)
    if draw.groups:
        _group(network, values, random)
    if draw.ties:
        firing = _often(values, network)
        for layer in network.layers:
            if layer.cell or layer.unweighted:  # whose thresholds no weight alone leads onto
                firing = np.arange(layer.neurons)
            elif layer.spiking:
                firing = _tie(layer, values, firing, random)
    for layer in network.layers:
        for each in layer.derived:
            if each.kind == "weight_function":
                values[each.of[0].name] = _made_by(each.about, values[each.of[0].name])
    for name, parameter in network.trained.items():
        for moment in network.optimiser.state:
            size = sizes.get(name, UNKNOWN)
            square = moment in network.optimiser.form.never_negative
            shape = parameter.shape
            kept = random.uniform(0.25, 1.0, shape) * size**2 if square else random.normal(0.0, size, shape)
            values[parameter.kept(moment)] = kept.astype(np.float32)
    return values


def _delays(network: SpikingNetwork, draw: Draw, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Delays that are learned, halfway between two ages or at one: a width this small makes shares of exactly 1/2, or
    of 1."""
    values: dict[str, np.ndarray] = {}
    for place, layer in enumerate(network.layers):
        if layer.delays:
            ages, whole = layer.delays.ages, draw.ties or draw.groups
            number = random.integers(0, ages - (not whole), (layer.inputs, layer.neurons))
            if draw.groups:  # what a group sends arrives together
                number[:] = draw.number % 2
            values[layer.parameters[1].name] = (number + 0.5 * (not whole)).astype(np.float32)
            # beside a sum with an epsilon a Gaussian that is narrow would be next to nothing halfway
            width = 2.0 ** (-1 if layer.delays.epsilon and not whole else -4) * (1 - place % 8 / 16)
            values[delay_width_of(layer.name)] = np.full(1, width, np.float32)
    return values


def graph_inputs(graph: Graph, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """The same values as inputs of the graph."""
    given: dict[str, Any] = {}
    if IDS in inputs:
        given[INPUT] = SparseSpikes(ids=inputs[IDS], counts=inputs[COUNTS])
    for name in graph.inputs:
        if name == TRAINING_STEP:
            given[name] = int(inputs[name][0])
        elif name in inputs and not graph.value(name).shape:
            given[name] = inputs[name][0]  # a scalar is a variable of one element
        elif name in inputs:
            given[name] = inputs[name]
        elif name not in given:
            given[name] = np.zeros(graph.value(name).shape, np.float32)
    return given


def _made_by(function: WeightFunction, acting: np.ndarray) -> np.ndarray:
    """The parameter of which the drawn weights are made; those that a sign forbids are weak, or none, of the other."""
    wanted = acting.astype(np.float64) / function.sign(0, len(acting))
    if function.function == "identity":
        return np.asarray(wanted, np.float32)
    made = np.where(wanted < 0, -wanted / FORBIDDEN, wanted)
    below = np.where(wanted < 0, -1.0, 1.0) if function.about.keeps_zeros else 1.0
    return np.asarray((function.about.inverse(made) * below).astype(np.float32))


def _dyadic(weights: np.ndarray) -> np.ndarray:
    return np.asarray((np.round(weights * DYADIC) / DYADIC).astype(np.float32))


def _spikes(network: SpikingNetwork, draw: Draw, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Input lists: of any length, or full but for one sample of every timestep, which has none, and only some of what
    they list true spikes."""
    lists = (network.timesteps, network.batch)
    counts = random.integers(0, network.input_capacity + 1, lists).astype(np.int32)
    if draw.full_lists:
        counts[:] = network.input_capacity
        counts[np.arange(network.timesteps), np.arange(network.timesteps) % network.batch] = 0
    ids = np.zeros((*lists, network.input_capacity), np.int32)
    every, groups = np.arange(network.inputs), _groups(network)
    for where in np.ndindex(*lists):
        some = every[(sum(where) + draw.number * network.timesteps) % groups :: groups] if draw.groups else every
        count = min(network.input_capacity if draw.groups else int(counts[where]), len(some))
        counts[where] = count
        ids[where][:count] = np.sort(random.choice(some, count, replace=False))
    if network.spikes == "dense":  # unfolded here, as training unfolds its input by what is being checked
        rows = np.zeros((*lists, network.inputs), np.float32)
        for where in np.ndindex(*lists):
            rows[(*where, ids[where][: counts[where]])] = 1.0
        if network.encoding != "events" and not draw.ties:  # sums of halves and ones times weights are exact as well
            rows *= random.choice(np.array([-0.5, 0.5, 1.0], np.float32), rows.shape)
        return {INPUT: rows[0] if network.steady_input else rows}
    spikes = random.integers(0, counts + 1) if draw.full_lists else counts  # the other ids are listed and no spikes
    return {IDS: ids, COUNTS: np.stack([spikes, counts], axis=-1).astype(np.int32)}


def _groups(network: SpikingNetwork) -> int:
    """So many groups that the neurons of one fit into the list of their layer: neuron n is in group n modulo these."""
    return max([2, *(-(-layer.neurons // layer.selection.capacity) for layer in network.layers if layer.spiking)])


def _group(network: SpikingNetwork, values: dict[str, np.ndarray], random: np.random.Generator) -> None:
    """Weights with which a group that spikes lifts the same group of the next layer just above its threshold, and
    hardly moves the others."""
    groups, most = _groups(network), network.input_capacity
    for layer in network.layers:
        if layer.cell or layer.unweighted:
            most = layer.neurons
            continue
        rows, columns = layer.parameters[0].shape  # of planes, by channel and tap: a group is of some taps
        together = min(most, -(-rows // groups))
        lifted = _weights_for(layer, np.float32(GROUP_LIFT * layer.selection.threshold)) / together
        lifted = np.where(np.isfinite(lifted), lifted, 0.0)
        same = np.arange(rows)[:, None] % groups == np.arange(columns) % groups
        share = random.uniform(0.75, 1.25, same.shape) * np.where(same, 1.0, -GROUP_APART)
        values[layer.parameters[0].name] = _dyadic(lifted * share)
        for other in (each for each in layer.parameters[1:] if each.role != "delay"):
            values[other.name] = _dyadic(GROUP_APART * values[other.name])
        most = layer.selection.capacity


def _often(values: dict[str, np.ndarray], network: SpikingNetwork) -> np.ndarray:
    """Inputs that spike, those that spike most often first."""
    if INPUT in values:
        spikes = values[INPUT].reshape(-1, network.inputs).sum(axis=0)
    else:
        true = np.arange(values[IDS].shape[-1]) < values[COUNTS][..., :1]
        spikes = np.bincount(values[IDS][true], minlength=network.inputs)
    order: np.ndarray = np.argsort(-spikes, kind="stable")
    return order[: max(1, int((spikes > 0).sum()))]


def _tie(layer: Layer, values: dict[str, np.ndarray], firing: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Give every TIED-th neuron of a layer one synapse alone, whose spike lifts it onto a threshold or just above.

    The synapse comes from a neuron that fires (int64, the surest first); returns the one of this layer that surely does
    and whose id is low, so that no list is too short for it.
    """
    wanted = [
        np.float32(threshold) if not above else np.nextafter(np.float32(threshold), np.float32(np.inf))
        for threshold in (layer.selection.threshold, layer.selection.second_threshold)
        for above in (False, True)
    ]
    weights, *others = (values[parameter.name] for parameter in layer.parameters if not parameter.constant)
    groups, position = layer.convolution.groups if layer.convolution else 1, 0
    for kind, potential in enumerate(wanted):
        tied = np.arange(kind, layer.columns, TIED * len(wanted))
        if not len(tied):
            continue
        found = _weights_for(layer, potential)[tied]
        weights[:, tied] = 0.0
        sources = random.choice(firing[: (len(firing) + 1) // 2], len(tied))
        sources[0] = firing[0]
        if groups > 1:
            sources = _of_groups(layer, groups, tied, firing, random)
        rows, positions = np.array([_reached(layer, source) for source in sources.tolist()]).T
        weights[rows, tied] = np.where(np.isfinite(found), found, 0.0)
        position = int(positions[0]) if kind <= 1 else position
        _clear(others, tied)
    sure = min(1, layer.columns - 1)
    if groups > 1:  # of the group that reads what surely fires
        sure = _group_of(layer, groups, firing[0]) * layer.columns // groups
        row, position = _reached(layer, firing[0])
        weights[:, sure] = 0.0
        weights[row, sure] = _weights_for(layer, wanted[1])[sure]
        _clear(others, sure)
    return np.array([sure * layer.positions + position])


def _clear(arrays: list[np.ndarray], neurons: Any) -> None:
    """Set what these neurons have of each array to 0, also of a number that all of them share."""
    for each in arrays:
        each[:, neurons if each.shape[1] > 1 else 0] = 0.0


def _group_of(layer: Layer, groups: int, source: Any) -> Any:
    """Of neurons that a convolution reads."""
    return source * groups // layer.inputs


def _of_groups(
    layer: Layer, groups: int, columns: np.ndarray, firing: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """For each column a neuron that its group reads, which fires if any does."""
    of = _group_of(layer, groups, firing)
    read = [firing[of == group] for group in columns * groups // layer.columns]
    first = columns * groups // layer.columns * (layer.inputs // groups)
    return np.array([random.choice(each) if len(each) else one for each, one in zip(read, first, strict=True)])


def _reached(layer: Layer, source: int) -> tuple[int, int]:
    """The row of weights that a neuron before acts by, and a position of the layer that it then reaches; of planes, by
    the first place and tap that cover its pixel, or the first of all where none does."""
    convolution = layer.convolution
    if convolution is None:
        return source, 0
    channel, pixel = divmod(int(source), convolution.planes.positions)
    if convolution.before:
        pixel, _ = _covering(convolution.planes, convolution.before.window, pixel)
    place, tap = _covering(convolution.read, convolution.window, pixel)
    if convolution.after:
        place, _ = _covering(convolution.made, convolution.after.window, place)
    return (channel * convolution.window.taps + tap) % convolution.fan_in, place


def _covering(planes: Planes, window: Window, pixel: int) -> tuple[int, int]:
    """The first place of a window that covers a pixel, and its tap there."""
    found = np.argwhere(pixels_of(Patches(planes=planes, window=window)) == pixel)
    return (int(found[0, 0]), int(found[0, 1])) if len(found) else (0, 0)


def _weights_for(layer: Layer, potential: np.float32) -> np.ndarray:
    """float32[columns]: the weight with which one spike lifts a neuron at rest to `potential`, or next to it."""
    unit = np.stack([np.zeros(layer.columns, np.float32), np.ones(layer.columns, np.float32)])
    low, high = _potentials(layer, unit)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = ((potential - low) / (high - low)).astype(np.float32)
    steps = np.arange(-REACH, REACH + 1)[:, None].astype(np.float32)
    tried = middle + steps * np.spacing(np.abs(middle))
    reached = _potentials(layer, tried)
    best = np.argmin(np.abs(reached - potential), axis=0)
    return np.asarray(tried[best, np.arange(layer.columns)])


def _potentials(layer: Layer, currents: np.ndarray) -> np.ndarray:
    """float32[rows, columns]: what is held against the threshold after a timestep of currents into neurons at rest."""
    neuron = layer.linear
    rest = np.zeros((len(neuron.states), *currents.shape), np.float32)
    return np.asarray(OPERATIONS["neuron"].evaluate(replace(neuron, fired=None), rest, currents)[1])
