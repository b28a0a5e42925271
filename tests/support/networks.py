"""Small networks for tests: sparse inputs, dyadic weights, and one training step by interpreter or by compiled program.

Dyadic weights are multiples of 2^-14 below 4: a float32 sum of up to a hundred of them is exact in any order, so that
membrane potentials, and with them spikes, can be compared bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from mimdsim.compiler import Compiled, compile_graph
from mimdsim.execution import Executor, execute_strictly
from mimdsim.graph import Adam, Graph, Layer, Sgd, SparseSpikes, SpikingNetwork, interpret, training_graph
from mimdsim.graph.learned_constants import first_value
from mimdsim.graph.names import random_name, spikes_of
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.spikes import STATE_BITS, Selection
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.numerics.optimisers import OPTIMISERS, Optimiser
from mimdsim.workload import MappingOptions

DYADIC_UNIT = 2.0**-14
SGD = Sgd(learning_rate=0.01)
ADAM = Adam(learning_rate=0.01)


def every_optimiser() -> dict[str, Optimiser]:
    """One of each class there is, of its most general form: every constant other than by default, and weight decay."""
    made = {}
    for kind in dict.fromkeys(OPTIMISERS.values()):
        constants = {name: sum(kind.bounds_of(name)) / 2 for name in kind.parameters()}
        made[kind.names[0]] = kind(learning_rate=0.02, weight_decay=0.05 if kind.decays else 0.0, **constants)
    return made


def machine(tiles: int = 24, contexts: int = 6, chips: int = 1) -> MimdMachine:
    """A Mk2 of `chips` times `tiles` tiles with `contexts` worker contexts each."""
    made = load_machine("mk2", {"chip.tiles": tiles, "tile.worker_contexts": contexts, "links.chips": chips})
    assert isinstance(made, MimdMachine)
    return made


def small_network(
    widths: tuple[int, ...] = (7, 6, 5, 3),
    *,
    timesteps: int = 5,
    batch: int = 3,
    capacities: tuple[int, ...] | None = None,
    input_capacity: int = 0,
    spikes: str = "sparse",
    reset_gradient: str = "pass",
    second_threshold: float = 0.5,
    smooth: bool = False,
    optimiser: Optimiser = SGD,
    decay: float = 0.95,
    gain: float = 10.0,
    slope: float = 10.0,
    recurrence: str = "none",
    delay: int = 1,
    bias: bool = False,
    truncation: str = "lowest",
    **more: Any,
) -> SpikingNetwork:
    """widths: inputs, hidden layers, classes; capacities: one per layer (as many as neurons when not given).

    more: other fields of the network.
    """
    fan_outs = widths[1:]
    names = [f"hidden{index}" for index in range(len(fan_outs) - 1)] + ["output"]
    layers = []
    for name, (fan_in, neurons), capacity in zip(names, pairwise(widths), capacities or fan_outs, strict=True):
        selection = Selection(
            threshold=1.0, second_threshold=second_threshold, capacity=capacity, slope=slope, smooth=smooth,
            truncation=truncation,
        )  # fmt: skip
        lif = neuron_of("lif", {"decay": decay, "current_gain": gain}, reset_gradient=reset_gradient)
        layers.append(
            Layer(
                name=name, inputs=fan_in, neurons=neurons, neuron=lif, selection=selection,
                recurrence=recurrence, bias=bias,
            )
        )  # fmt: skip
    return SpikingNetwork(
        layers=tuple(layers),
        timesteps=timesteps,
        batch=batch,
        input_capacity=input_capacity or widths[0],
        spikes=spikes,
        logit_scale=0.5,
        optimiser=optimiser,
        delay=delay,
        **more,
    )


SMALL = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)


@st.composite
def networks(draw: Any, hidden: int = 3, widest: int = 10) -> SpikingNetwork:
    """Networks of 1 to `hidden` hidden layers. Batches from 2: a batch of one is a case of its own below."""
    count = draw(st.integers(1, hidden))
    widths = tuple(draw(st.lists(st.integers(1, widest), min_size=count + 2, max_size=count + 2)))
    return small_network(
        widths, timesteps=draw(st.integers(1, 5)), batch=draw(st.integers(2, 8)),
        capacities=tuple(draw(st.integers(1, width)) for width in widths[1:]),
        input_capacity=draw(st.integers(1, widths[0])), reset_gradient=draw(st.sampled_from(["pass", "mask"])),
        second_threshold=draw(st.sampled_from([-100.0, 0.5, 0.9, 1.0])),
        optimiser=draw(st.sampled_from([SGD, ADAM])),
    )  # fmt: skip


MAPPINGS = st.builds(
    MappingOptions,
    neurons_per_tile=st.sampled_from([2, 4, 0]),
    weight_gradient_replicas=st.integers(1, 6),
    states_per_worker=st.sampled_from([1, 2, 3, 64]),
    state_gradient=st.sampled_from(["tilewise", "per_batch"]),
)
SEEDS = st.integers(0, 2**31)


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """What one training step takes. weights and moments by graph input; spikes listed and as 0/1 [T, batch, inputs]."""

    spikes: SparseSpikes
    dense: np.ndarray
    labels: np.ndarray
    arrays: dict[str, np.ndarray]
    training_step: int = 3

    def for_graph(self, network: SpikingNetwork) -> dict[str, Any]:
        """Inputs of the interpreter."""
        dtype = next(self.arrays[name] for name in network.trained).dtype
        source = self.spikes if network.spikes == "sparse" else self.dense.astype(dtype)
        given = {"input": source, "labels": self.labels, "training_step": self.training_step, **self.arrays}
        return given | {name: dtype.type(value) for name, value in self.scalars(network).items()}

    def scalars(self, network: SpikingNetwork) -> dict[str, float]:
        """What is scheduled, half way to where it goes; widths of delays that are learned where they go."""
        return {name: 0.5 * value for name, value in network.scheduled.items()} | network.delay_widths

    def for_program(self, network: SpikingNetwork) -> dict[str, np.ndarray]:
        """Inputs of the executor."""
        values = {"input": self.dense.astype(np.float32), "labels": self.labels}
        if network.spikes == "sparse":
            values = {"input.ids": self.spikes.ids, "input.counts": self.spikes.counts, "labels": self.labels}
        if network.optimiser.form.counts:
            values["training_step"] = np.array([self.training_step])
        scalars = {name: np.full(1, value, np.float32) for name, value in self.scalars(network).items()}
        return values | self.arrays | scalars


def given_values(
    network: SpikingNetwork, seed: int, *, dyadic: bool = True, dtype: Any = np.float32, activity: float = 0.4
) -> Given:
    """Random weights, what the optimiser keeps of them, labels and inputs that spike with probability `activity`."""
    draw = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for name, parameter in network.parameters.items():
        shape = parameter.shape
        limit = (6.0 / shape[0]) ** 0.5
        weights = draw.uniform(-limit, 2 * limit, shape)
        if parameter.role != "weights":  # around zero: neither silence nor every neuron at once
            weights = draw.uniform(-0.25, 0.25, shape)
        if parameter.constant:
            learned = next(layer.learned for layer in network.layers if layer.name == parameter.layer)
            known = next(each for each in learned if each.name == parameter.constant)
            weights = first_value(known) + weights / 8
        if dyadic:
            weights = np.round(weights / DYADIC_UNIT) * DYADIC_UNIT
        arrays[name] = weights.astype(dtype)
        for state in network.optimiser.state:
            positive = state in network.optimiser.form.never_negative
            kept = draw.uniform(1e-4, 1e-3, shape) if positive else draw.normal(0, 0.01, shape)
            if name in network.trained:
                arrays[parameter.kept(state)] = kept.astype(dtype)
    shape3 = (network.timesteps, network.batch, network.inputs)
    dense = draw.random(shape3) < activity
    dense &= dense.cumsum(axis=2) <= network.input_capacity
    ids = np.zeros((*shape3[:2], network.input_capacity), np.int32)
    counts = np.zeros((*shape3[:2], 2), np.int32)
    for place in np.ndindex(*shape3[:2]):
        listed = np.flatnonzero(dense[place])
        ids[place][: listed.size] = listed
        counts[place] = listed.size
    labels = draw.integers(0, network.classes, network.batch).astype(np.int32)
    for layer in network.layers:
        if layer.selection.truncation == "random":
            arrays[random_name(layer.name)] = draw.integers(0, 1 << STATE_BITS, network.batch)
    return Given(
        spikes=SparseSpikes(ids=ids, counts=counts), dense=dense.astype(np.float64), labels=labels, arrays=arrays
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """One training step by layer: ids [T, batch, capacity] (0 where not listed), listed [T, batch, 2],
    potentials [T, batch, neurons], gradients and updated weights [inputs, neurons]; loss and counts [batch, classes].

    Gradients and updates of other parameters go by their own name, e.g. 'r.hidden0', 'b.output'.
    ids, listed are empty for dense spikes.
    """

    loss: float
    counts: np.ndarray
    ids: dict[str, np.ndarray]
    listed: dict[str, np.ndarray]
    potentials: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]
    updated: dict[str, np.ndarray]


def _only_listed(ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Stale ids beyond the count set to 0."""
    return np.where(np.arange(ids.shape[-1]) < counts[..., 1:], ids, 0)


def gradient_names(network: SpikingNetwork) -> dict[str, str]:
    """layer -> graph value of its weights' gradient, and other parameter -> that of its gradient."""
    outputs = training_graph(network).outputs[2:]
    return dict(zip(parameter_keys(network), outputs, strict=False))


def parameter_keys(network: SpikingNetwork) -> dict[str, str]:
    """key of an Outcome's gradients and updates -> the parameter."""
    return {parameter.short: name for name, parameter in network.trained.items()}


def interpreted(network: SpikingNetwork, given: Given) -> Outcome:
    """One training step by the interpreter."""
    seen: dict[str, list[Any]] = {}

    def observe(name: str, _timestep: int, value: Any) -> None:
        seen.setdefault(name, []).append(value)

    values = interpret(training_graph(network), given.for_graph(network), observe)
    names = [layer.name for layer in network.layers if layer.spiking]
    gradients = gradient_names(network)
    spikes = {name: seen[f"spikes.{name}"] for name in names} if network.spikes == "sparse" else {}
    listed = {name: np.stack([item.counts for item in items]) for name, items in spikes.items()}
    ids = {name: np.stack([item.ids for item in items]) for name, items in spikes.items()}
    return Outcome(
        loss=float(values["loss"]),
        counts=values["counts"],
        listed=listed,
        ids={name: _only_listed(ids[name], listed[name]) for name in ids},
        potentials={layer.name: np.stack(seen[potential_of(layer)]) for layer in network.layers},
        gradients={key: values[name] for key, name in gradients.items()},
        updated={key: values[f"next.{name}"] for key, name in parameter_keys(network).items()},
    )


def compiled(
    network: SpikingNetwork,
    *,
    tiles: int = 24,
    contexts: int = 6,
    options: MappingOptions | None = None,
    chips: int = 1,
    slow_links: bool = False,
) -> Compiled:
    """The network's training step on a small machine; slow_links: so that it sends as few bytes as it can over them."""
    on = machine(tiles, contexts, chips)
    if slow_links:
        on = on.model_copy(update={"links": on.links.model_copy(update={"bytes_per_second": 1e4})})
    return compile_graph(training_graph(network), network, on, options or MappingOptions())


def executed(made: Compiled, given: Given, *, strict: bool = False) -> Outcome:
    """One training step of a compiled program."""
    executor = Executor(made.program)
    executor.write(given.for_program(made.network))
    if strict:
        execute_strictly(executor)
    else:
        executor.run()
    return left_in(executor, made)


def left_in(executor: Executor, made: Compiled) -> Outcome:
    """What a training step left in the executor's memory."""
    gradients = gradient_names(made.network)
    arrays = executor.arrays
    listing = [layer.name for layer in made.network.layers if layer.spiking] if made.network.spikes == "sparse" else []
    sequences = {name: (arrays[f"ids.{name}.sequence"], arrays[f"counts.{name}.sequence"]) for name in listing}
    return Outcome(
        loss=float(executor.read("loss").mean()),
        counts=executor.read("counts"),
        ids={name: _only_listed(ids, counts) for name, (ids, counts) in sequences.items()},
        listed={name: counts.copy() for name, (_, counts) in sequences.items()},
        potentials={  # of layers with nothing to learn none is kept
            layer.name: arrays[name].copy()
            for layer in made.network.layers
            if (name := f"{potential_of(layer)}.sequence") in arrays
        },
        gradients={key: executor.read(name) for key, name in gradients.items()},
        updated={key: executor.read(f"next.{name}") for key, name in parameter_keys(made.network).items()},
    )


def potential_of(layer: Layer) -> str:
    """The body value that is held against the threshold; of cells, what they send."""
    if layer.cell:
        return spikes_of(layer.name)
    return f"{'v' if layer.acting_neuron.fused else 'u'}.{layer.name}"


def relative_error(value: np.ndarray, expected: np.ndarray) -> float:
    """Largest deviation relative to the largest expected magnitude; deviations from all zeros count as they are."""
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    return float(np.abs(value - expected).max(initial=0.0)) / scale


def central_difference(
    graph: Graph, given: dict[str, Any], name: str, place: tuple[int, int], step: float = 1e-6
) -> float:
    """The gradient of the loss for one number of an input, from losses at `step` above and below it."""
    ends = []
    for sign in (1, -1):
        moved = given[name].copy()
        moved[place] += sign * step
        ends.append(float(interpret(graph, given | {name: moved})["loss"]))
    return (ends[0] - ends[1]) / (2 * step)


def assert_same_spikes(one: Outcome, other: Outcome) -> None:
    """Ids and counts of every layer and timestep, bit for bit."""
    for name in one.ids:
        np.testing.assert_array_equal(one.listed[name], other.listed[name], err_msg=f"counts of {name}")
        np.testing.assert_array_equal(one.ids[name], other.ids[name], err_msg=f"ids of {name}")


def assert_same_bits(one: Outcome, other: Outcome) -> None:
    """Everything a training step makes, bit for bit."""
    assert_same_spikes(one, other)
    assert one.loss == other.loss
    np.testing.assert_array_equal(one.counts, other.counts)
    for kind in ("potentials", "gradients", "updated"):
        first, second = getattr(one, kind), getattr(other, kind)
        for name in first:
            np.testing.assert_array_equal(first[name], second[name], err_msg=f"{kind} of {name}")
