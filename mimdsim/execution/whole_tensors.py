"""Train without tiles: a layer over all timesteps at once, on lists of spikes.

The same meaning as the compiled program and the interpreter: the same spikes where sums are exact, gradients within
float32 rounding. For training where only values are wanted; what runs on tiles, and what it costs there, is the
compiled program's. Inputs and outputs go by the same names as an `Executor`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import networkx as nx
import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets.training import update_codelet
from mimdsim.execution.execute import Shares
from mimdsim.execution.whole_tensor_dense import DenseLayer
from mimdsim.execution.whole_tensor_layers import CsrSpikes, JoinedSources, WholeLayer, layer_of
from mimdsim.execution.whole_tensor_values import Tensor, in_blocks
from mimdsim.graph import Layer, SpikingNetwork, training_graph
from mimdsim.graph.losses import Targets
from mimdsim.graph.names import (
    INPUT,
    LABELS,
    LEARNING_RATE,
    LOSS,
    SCORES,
    TRAINING_STEP,
    Parameter,
    after,
    gradient_of,
    listed,
    penalty_of,
    random_name,
)
from mimdsim.graph.network_graphs import forward_graph
from mimdsim.graph.operations import OPERATIONS
from mimdsim.graph.training import NORM_FLOOR
from mimdsim.numerics import optimisers as updates
from mimdsim.numerics.fused import whole_tensors as kernels
from mimdsim.numerics.sparse import losses
from mimdsim.program import RecordedActivity


def refusals(network: SpikingNetwork) -> list[str]:
    """What of `network` whole-tensor execution does not know, and what to use instead."""
    problems = []
    instead = '; use the compiled program (training.engine = "program", Executor) or the interpreter'
    for layer in network.layers:
        plain = len(network.sources(layer)) == 1 and not layer.convolution and not layer.dropout
        if network.encoding != "events" and not plain and INPUT in {each.name for each in network.terms(layer)}:
            problems.append(
                f"layer '{layer.name}': an input that is not spikes (data.encoding = \"{network.encoding}\") does not "
                "run as whole tensors where a convolution, or a layer with dropout or other sources beside it, reads "
                f"it{instead}"
            )
        combined = [each.kind for each in layer.sources if each.of]
        unknown = {
            "a smooth spike does not": layer.selection.smooth,
            f"cells ('{layer.cell and layer.cell.model}') do not": layer.cell,
            "a layer without weights does not": layer.unweighted,
            "a norm of samples does not": layer.norm and not layer.norm.averages,
            "a kernel over its own spikes does not": layer.convolution and layer.convolution.own,
            "delays that are learned do not": layer.delays,
            f"a {' '.join(combined[:1])} of spikes does not": combined,
        }
        problems += [
            f"layer '{layer.name}': {what} run as whole tensors{instead}" for what, asked in unknown.items() if asked
        ]
        mixed = {each.name in network.frozen for each in layer.parameters if each.role == "weights"}
        if len(mixed) > 1:
            problems.append(f"layer '{layer.name}': some of its weights are frozen, others are trained{instead}")
    return problems


def components(network: SpikingNetwork) -> list[list[str]]:
    """Layers that read each other, directly or through others, or one alone; every component after those it reads."""
    order = [layer.name for layer in network.layers]
    reads = nx.DiGraph()
    reads.add_nodes_from(order)
    reads.add_edges_from(
        (one.name, layer.name) for layer in network.layers for one in network.sources(layer) if one.name != INPUT
    )
    merged = nx.condensation(reads)
    members = {each: sorted(names, key=order.index) for each, names in merged.nodes(data="members")}
    sequence = nx.lexicographical_topological_sort(merged, key=lambda each: order.index(members[each][0]))
    return [members[each] for each in sequence]


LISTS = listed(INPUT)


class WholeTensors:
    """One training step of a network, again and again; `threads` share it and change no bit."""

    def __init__(self, network: SpikingNetwork, threads: int = 1):
        """Raises MappingError that names everything the network asks for and this way of running does not know."""
        problems = refusals(network)
        if problems:
            raise MappingError("\n".join(problems))
        self.network, self.threads = network, threads
        self._share = Shares(threads)
        self._input = CsrSpikes.room(network.timesteps * network.batch, network.inputs, network.input_capacity)
        self._components = components(network)
        together = {name: len(names) > 1 for names in self._components for name in names}
        made = DenseLayer if network.spikes == "dense" else layer_of
        self._layers: dict[str, WholeLayer | DenseLayer] = {
            layer.name: made(network, layer, self._share, together[layer.name]) for layer in network.layers
        }
        steady = () if network.steady_input else (network.timesteps,)
        self._numbers = np.zeros((*steady, network.batch, network.inputs), np.float32)  # of an input that is no spikes
        for each in self._layers.values():
            numbers = network.encoding != "events" and network.sources(each.layer)[0].name == INPUT
            if numbers and isinstance(each, DenseLayer):
                each.read_numbers(self._numbers)
        lists = {INPUT: self._input} | {name: each.spikes for name, each in self._layers.items()}
        self._sources = {
            name: [lists[source.name] for source in network.sources(each.layer)] for name, each in self._layers.items()
        }
        self._joined = {
            name: JoinedSources(sources, self._layers[name].lags)
            for name, sources in self._sources.items()
            if len(sources) > 1
        }
        self._loss = WholeLoss(network)
        self._tensors = tuple(tensor for layer in self._layers.values() for tensor in layer.parameters)
        self._trained = tuple(tensor for tensor in self._tensors if tensor.parameters[0].name in network.trained)
        self._pruned = tuple(
            (tensor.value[:, rows], tensor.gradient[:, rows])
            for tensor in self._trained
            for parameter, rows in tensor.rows.items()
            if parameter.name in network.pruned
        )
        self._given = self._room_for_given()
        self._places = {
            name: (parameter, array)
            for tensor in self._tensors
            for parameter in tensor.rows
            for name, array in self._kept(tensor, parameter)
        }
        self._readable = self._places | self._made()

    def _room_for_given(self) -> dict[str, np.ndarray]:
        """What the host writes beside spikes and memory, by graph input."""
        network = self.network
        given: dict[str, np.ndarray] = {LABELS: np.zeros(network.batch, np.int32), TRAINING_STEP: np.ones(1, np.int64)}
        given |= {name: np.full(1, value) for name, value in network.scheduled.items()}
        return given | {name: np.zeros(samples, np.int64) for name, samples in self.generators.items()}

    def _kept(self, tensor: Tensor, parameter: Parameter) -> list[tuple[str, np.ndarray]]:
        """What stays from one training step to the next of a parameter, by graph input: its rows in blocks."""
        rows = tensor.rows[parameter]
        slots = self.network.optimiser.state if parameter.name in self.network.trained else ()
        names = parameter.name, *(parameter.kept(slot) for slot in slots)
        arrays = tensor.value, *tensor.moments[: len(slots)]
        return [(name, array[:, rows]) for name, array in zip(names, arrays, strict=True)]

    def _made(self) -> dict[str, tuple[Parameter, np.ndarray]]:
        """What a training step makes of it, by graph output: gradients, and what the update leaves."""
        found = {
            gradient_of(parameter.name): (parameter, tensor.gradient[:, rows])
            for tensor in self._trained
            for parameter, rows in tensor.rows.items()
        }
        fixed = any(each.norm and each.norm.fixed for each in self.network.layers)  # only evaluated: no updates
        for op in () if fixed else training_graph(self.network).operations:
            if op.kind == self.network.optimiser.kind:
                parameter = self._places[op.inputs[0]][0]
                slots = (parameter.kept(slot) for slot in self.network.optimiser.state)
                left = (self._places[name] for name in (parameter.name, *slots))
                found |= dict(zip(op.outputs, left, strict=True))
        return found | {after(name): self._places[name] for name in self.network.averages}

    # ---- values in and out

    @property
    def generators(self) -> dict[str, int]:
        """Graph inputs that hold the generators of layers that drop spikes at random or have dropout, and their
        samples."""
        return {random_name(name): self.network.batch for name, each in self._layers.items() if each.draws}

    @property
    def memory(self) -> tuple[str, ...]:
        """What stays from one training step to the next: parameters and moments, by graph input."""
        return tuple(self._places)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The memory of all that is trained, in blocks of columns, by graph input."""
        return {name: self._places[name][1] for name in self.network.parameters}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Graph inputs that can be written."""
        network = self.network
        lists = LISTS if network.encoding == "events" else ()
        given = (*lists, INPUT) if network.spikes == "dense" else LISTS
        moving = *network.moving_thresholds, *network.kept_shares, *self.generators
        return (*self.memory, *given, LABELS, *network.optimiser.scalars, *moving)

    def write(self, values: dict[str, np.ndarray]) -> None:
        """Set graph inputs: 'w.<layer>', 'moment1.<layer>', 'input.ids', 'input.counts' (of dense spikes also 'input',
        zeros and ones, or any numbers where the input is no spikes), 'labels', 'training_step', and what is scheduled
        or drawn: 'learning_rate', 'second_threshold.<layer>', 'keep.<layer>', 'random.<layer>'.

        Raises MappingError for an unknown name or another shape.
        """
        lists = {name: values[name] for name in LISTS if name in values}
        dense = values.get(INPUT) if self.network.spikes == "dense" else None
        for name, value in values.items():
            shape = self._shape(name)
            if name == LISTS[0] and self.network.spikes == "dense":  # lists of any length
                shape = (*shape[:2], *np.shape(value)[2:3])
            if np.shape(value) != shape:
                raise MappingError(f"input '{name}' has shape {np.shape(value)}, the network takes {shape}")
        if lists:
            if len(lists) == 1:
                raise MappingError(
                    f"'{next(iter(lists))}' alone says nothing: write input.ids and input.counts at once"
                )
            ids, counts = (np.asarray(lists[name], np.int32) for name in LISTS)
            self._input.fill(counts, self._checked(ids, counts))
        if dense is not None:
            fired = np.asarray(dense, np.float32)
            if self.network.encoding != "events":
                self._numbers[:] = fired
                fired = np.broadcast_to(fired, self._shape(INPUT, every=True))
            elif ((fired != 0) & (fired != 1)).any():
                raise MappingError("'input' must be spikes, zeros and ones, of data.encoding = \"events\"")
            self._input.fill(np.count_nonzero(fired, axis=2)[..., None], np.nonzero(fired)[2])
        for name, value in values.items():
            if name in self._given:
                self._given[name][:] = value
            elif name not in lists and value is not dense:
                _, placed = self._placed(name)
                placed[:] = in_blocks(np.asarray(value), placed.shape[2])

    def _checked(self, ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The ids that are listed, one after another; raises MappingError for those that the input does not have."""
        capacity, inputs = min(self.network.input_capacity, ids.shape[2]), self.network.inputs
        if counts.min(initial=0) < 0 or counts.max(initial=0) > capacity:
            raise MappingError(f"input.counts must be 0 to {capacity}, given {counts.min()} to {counts.max()}")
        listed = ids[np.arange(ids.shape[2]) < counts[..., 1:]]
        if listed.size and (listed.min() < 0 or listed.max() >= inputs):
            raise MappingError(f"input.ids must be 0 to {inputs - 1}, given {listed.min()} to {listed.max()}")
        return listed

    def _shape(self, name: str, every: bool = False) -> tuple[int, ...]:
        """every: of all timesteps, also of an input that is the same in them."""
        network = self.network
        if name in LISTS:
            return network.timesteps, network.batch, network.input_capacity if name == LISTS[0] else 2
        if name == INPUT and network.spikes == "dense":
            once = network.steady_input and not every
            return *(() if once else (network.timesteps,)), network.batch, network.inputs
        if name in self._given:
            return self._given[name].shape
        return self._placed(name)[0].shape

    def _placed(self, name: str) -> tuple[Parameter, np.ndarray]:
        """The parameter that a graph input belongs to, and its blocks."""
        if name not in self._places:
            known = [*sorted(LISTS), LABELS, *self.weights]
            raise MappingError(f"the network has no input '{name}'; it has {known}")
        return self._places[name]

    def read(self, name: str) -> np.ndarray:
        """'loss' [batch], 'counts' [batch, classes], 'penalty.<layer>' [1], an output of the update by its name in the
        training graph, or what stays between training steps."""
        plain: dict[str, np.ndarray] = {LOSS: self._loss.losses, SCORES: self._loss.scores, **self._loss.penalties}
        if name in plain:
            return plain[name].copy()
        parameter, blocks = self._readable.get(name) or self._placed(name)
        rows, neurons = parameter.shape
        return blocks.transpose(1, 0, 2).reshape(rows, -1)[:, :neurons].copy()

    def activity(self) -> RecordedActivity:
        """Spikes of the last training step, padded to the capacities, and how many were dropped."""
        network, ids, counts = self.network, {}, {}
        spiking = [
            (each.layer.name, each.spikes, network.most_spikes(each.layer))
            for each in self._layers.values()
            if each.layer.spiking
        ]
        for name, lists, capacity in [(INPUT, self._input, network.input_capacity), *spiking]:
            listed = np.diff(lists.starts)
            padded = np.zeros((len(listed), capacity), np.int32)
            padded[np.arange(capacity) < listed[:, None]] = lists.ids[: lists.starts[-1]]
            ids[name] = padded.reshape(network.timesteps, network.batch, capacity)
            both = np.stack([lists.trues, listed], axis=-1).astype(np.int32)
            counts[name] = both.reshape(network.timesteps, network.batch, 2)
        dropped = {name: int(lists.over_starts[-1]) for name, lists, _ in spiking}
        return RecordedActivity(ids=ids, counts=counts, dropped=dropped)

    # ---- one training step

    def run(self, phases: Collection[str] = ("forward", "loss", "backward", "update")) -> None:
        """One training step, or the first of its phases."""
        for each in self._layers.values():
            each.begin(self._given)
        for names in self._components:
            while not all(self._advance(names, *times) for times in self._times(names)):
                pass  # from the first timestep on, with more room
            for name in names:
                self._layers[name].finish()
        g = self._judge()
        if "backward" not in phases:
            return
        self._backward(g)
        for each in self._layers.values():
            each.derived.backward()
        if "update" in phases:
            for weights, gradient in self._pruned:
                gradient[weights == 0] = 0
            if self.network.largest_gradient_norm:
                clip(self._trained, self.network.largest_gradient_norm, self._share)
            rate = self._given.get(LEARNING_RATE, (self.network.optimiser.learning_rate,))
            for tensor in self._trained:
                update(self.network, tensor, float(rate[0]), self._given[TRAINING_STEP], self._share)
            for each in self._layers.values():
                if each.norm:
                    each.norm.move_averages()

    def _judge(self) -> np.ndarray:
        """Loss of every sample; gradient of everything the output layer lists, or of its potentials."""
        last, labels = self._layers[self.network.layers[-1].name], self._given[LABELS]
        if last.layer.spiking:
            return last.gradients(*self._loss.of_spikes(last.spikes, labels))
        g = self._loss.of_potentials(last.potentials, labels)
        return g if isinstance(last, WholeLayer) else last.gradients(0, g.reshape(-1, g.shape[2]))

    def _read(self, name: str) -> CsrSpikes:
        """What a layer reads."""
        return self._joined[name].spikes if name in self._joined else self._sources[name][0]

    def _times(self, names: Sequence[str]) -> list[tuple[int, int]]:
        """Timesteps that a component goes through at once: one, or all where it is one layer."""
        timesteps = self.network.timesteps
        return [(t, t + 1) for t in range(timesteps)] if len(names) > 1 else [(0, timesteps)]

    def _advance(self, names: Sequence[str], first: int, last: int) -> bool:
        """Take layers through some timesteps, each from what those before it made of them; whether all had room."""
        for name in names:
            if name in self._joined:
                self._joined[name].join(first * self.network.batch, last * self.network.batch)
            if not self._layers[name].forward(self._read(name), first, last):
                return False
        return True

    def _backward(self, g: np.ndarray) -> None:
        """Gradients of all parameters, from that of what the last layer lists, or of its potentials."""
        output = self.network.layers[-1].name
        given, learns = {output: g}, self._learns()
        for names in reversed(self._components):
            if not learns[names[0]]:
                continue
            read = {name: [one.name for one in self.network.sources(self._layers[name].layer)] for name in names}
            for name in {*names, *(one for each in names for one in read[each] if learns[one])} - given.keys():
                given[name] = self._layers[name].room()
            for name in names if self._loss.penalties else ():
                if name != output:
                    self._loss.penalise(self._layers[name].layer, self._layers[name].spikes, given[name])
            for first, _ in reversed(self._times(names)) if len(names) > 1 else ():
                for name in reversed(names):
                    inside = {one: (given[one], self._layers[one].spikes) for one in read[name] if one in names}
                    self._layers[name].go_back(first, given[name], inside)
            for name in reversed(names):
                before = (one for one in read[name] if learns[one] and one not in names)
                outside = {one: (given[one], self._layers[one].spikes) for one in before}
                self._layers[name].backward(self._read(name), given[name], outside)

    def _learns(self) -> dict[str, bool]:
        """Of every layer, whether it or one that it reads has something to learn; the input has not."""
        found = {INPUT: False}
        for names in self._components:
            layers = [self._layers[name].layer for name in names]
            own = any(parameter.name in self.network.trained for layer in layers for parameter in layer.parameters)
            read = (one.name for layer in layers for one in self.network.sources(layer) if one.name not in names)
            found |= dict.fromkeys(names, own or any(found[one] for one in read))
        return found


# ---- the two ends of a training step: loss and update


class WholeLoss:
    """The loss of every sample and the scores of its classes, as the last training step left them."""

    def __init__(self, network: SpikingNetwork):
        self.network = network
        loss = forward_graph(network).producer(LOSS)
        assert loss is not None
        self._about = loss.attributes
        self.losses = np.zeros(network.batch, np.float64)
        self.scores = np.zeros((network.batch, network.classes), np.float32)
        self.penalties = {name: np.zeros(1, np.float32) for name in network.penalties}

    def of_spikes(self, made: CsrSpikes, labels: np.ndarray) -> tuple[int, np.ndarray]:
        """The place from which on spikes count, and the gradients of all neurons, by sample or by place."""
        network, reading = self.network, self.network.loss.reading
        batch, neurons = network.batch, network.layers[-1].neurons
        first = network.loss.first_of(network.timesteps) * batch
        totals = np.zeros((network.timesteps * batch if reading == "every" else batch, neurons), np.int32)
        kernels.count_true(first, made.ids, made.starts, made.trues, totals)
        by_timestep = totals.reshape(-1, batch, neurons)
        read = by_timestep[network.loss.burn_in :] if reading == "every" else totals
        return first, self._judge(read, by_timestep.sum(axis=0), labels).reshape(-1, neurons)

    @staticmethod
    def _after_burn_in(gradient: np.ndarray, first: int) -> np.ndarray:
        """That of all timesteps."""
        return np.asarray(OPERATIONS["after_burn_in_gradient"].evaluate(first, gradient)[0]) if first else gradient

    def of_potentials(self, u: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Gradient of the potentials [timesteps, batch, neurons], or [1, batch, neurons] if it is that of every
        timestep."""
        reading = self.network.loss.reading
        first = 0 if reading == "last" else self.network.loss.burn_in
        late = u[first:]
        (read,) = OPERATIONS["read_out"].evaluate("sum" if reading == "every" else reading, late)
        if reading == "every":
            return self._after_burn_in(self._judge(late, read, labels), first)
        gradient = self._judge(read, read, labels)
        if reading in ("sum", "mean") and not first:
            return gradient[None] if reading == "sum" else gradient[None] * np.float32(1 / len(u))
        made = np.asarray(OPERATIONS["read_out_gradient"].evaluate(reading, gradient, late)[0])
        return self._after_burn_in(made, first)

    def _judge(self, read: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Gradient of what is read of the neurons, [batch, neurons] or at every timestep; `scores` are added up."""
        each, samples = self.network.loss.neurons_per_class, np.arange(self.network.batch)
        (self.scores,) = OPERATIONS["pool_classes"].evaluate(each, scores)
        pooled = np.ascontiguousarray(OPERATIONS["pool_classes"].evaluate(each, read)[0])
        gradient, about = np.zeros(pooled.shape, np.float32), self._about
        if isinstance(about, Targets):
            targets = float(about.correct), float(about.incorrect), float(about.divisor)
            losses.squared_error(pooled, labels, self.losses, gradient, samples, *targets)
        else:
            numbers = float(about.scale), float(about.weight)
            losses.cross_entropy(pooled, labels, self.losses, gradient, samples, *numbers)
        return np.asarray(OPERATIONS["spread_classes"].evaluate(each, gradient)[0])

    def penalise(self, layer: Layer, spikes: CsrSpikes, g: np.ndarray) -> None:
        """Add to the gradients of a hidden layer's listed spikes what its firing adds to the loss."""
        loss, even = self.network.loss, np.zeros(1, np.float32)
        aims = loss.firing_target, loss.firing_strength, float(len(spikes.trues) * layer.neurons)
        total, first = np.array([spikes.trues.sum()]), np.zeros(1, np.int64)
        losses.firing_penalty(total, self.penalties[penalty_of(layer.name)], even, first, *aims)
        g += even


def clip(tensors: Sequence[Tensor], largest_norm: float, share: Shares) -> None:
    """Scale all gradients down together where their norm is above `largest_norm`."""
    totals, factor = np.zeros(len(tensors)), np.ones(1, np.float32)
    for number, tensor in enumerate(tensors):
        gradient = tensor.gradient
        parts, columns = np.zeros(len(gradient)), (np.array([0]), np.array([gradient.shape[2]]))

        def squares(
            first: int, last: int, gradient: np.ndarray = gradient, parts: np.ndarray = parts, columns: Any = columns
        ) -> None:
            for block in range(first, last):
                updates.sum_squares(gradient[block], parts, *columns, np.array([block]))

        share(len(gradient), squares)
        updates.add_parts(parts, totals, np.array([number]))
    updates.clip_factor(totals, factor, np.array([0]), largest_norm, NORM_FLOOR)
    for tensor in tensors:
        rows = tensor.gradient.reshape(-1, tensor.gradient.shape[2])
        columns = np.array([0]), np.array([rows.shape[1]])

        def scale(first: int, last: int, rows: np.ndarray = rows, columns: Any = columns) -> None:
            updates.scale_all(rows[first:last], factor, *columns)

        share(len(rows), scale)


def update(network: SpikingNetwork, tensor: Tensor, rate: float, training_step: np.ndarray, share: Shares) -> None:
    """The optimiser's step of one parameter, by the arithmetic of its codelet."""
    optimiser = network.optimiser
    codelet = update_codelet(optimiser.kind, scheduled=False, decaying=bool(optimiser.weight_decay))
    constants = optimiser.passed(codelet.constants, rate)
    progress = (training_step,) if optimiser.form.counts else ()
    held = [array.reshape(len(array), -1) for array in (tensor.value, tensor.gradient, *tensor.moments)]
    every = np.array([0]), np.array([held[0].shape[1]])

    def rows(first: int, last: int) -> None:
        codelet.compute(*(array[first:last] for array in held), *progress, *every, *constants)

    share(len(held[0]), rows)
