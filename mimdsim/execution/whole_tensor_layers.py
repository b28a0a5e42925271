"""A layer that runs all timesteps at once, of any linear neuron, on spikes of many places end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mimdsim.codelets.linear_terms import pack_terms
from mimdsim.execution.execute import Shares, aligned
from mimdsim.execution.whole_tensor_values import DerivedTensors, LearnedConstants, Tensor, by_role, in_blocks
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.layer import RECURRENCES, reads_own_spikes
from mimdsim.graph.linear_neurons import LinearNeuron, constants_of
from mimdsim.graph.names import Parameter, random_name, second_threshold_of
from mimdsim.graph.spikes import next_state, scan_starts
from mimdsim.numerics.equations import KINDS
from mimdsim.numerics.fused import whole_linear, whole_tensors
from mimdsim.numerics.fused.interpreted import WIDTH

if TYPE_CHECKING:
    from mimdsim.execution.whole_tensor_values import WholeNorm


@dataclass(kw_only=True, eq=False)
class CsrSpikes:
    """Spikes of a layer end to end: ids[starts[place]:starts[place + 1]], `trues[place]` of them true spikes.

    over_starts: of the spikes beyond the capacity, which reset their neuron all the same. width: how many neurons there
    are. bits: of dense spikes, uint64[places, blocks], one for every neuron in the order of rows.
    """

    starts: np.ndarray
    trues: np.ndarray
    ids: np.ndarray
    over_starts: np.ndarray
    width: int
    bits: np.ndarray

    @property
    def arrays(self) -> tuple[Any, ...]:
        """As kernels take them."""
        return self.starts, self.trues, self.ids

    @classmethod
    def room(cls, places: int, neurons: int, capacity: int, blocks: int = 0) -> CsrSpikes:
        """Room for the longest lists; memory beyond what is listed is reserved, never touched."""
        return cls(
            starts=np.zeros(places + 1, np.int64),
            trues=np.zeros(places, np.int32),
            ids=np.empty(places * capacity, np.int32),
            over_starts=np.zeros(places + 1, np.int64),
            width=neurons,
            bits=np.zeros((places, blocks), np.uint64),
        )

    def fill(self, counts: np.ndarray, ids: np.ndarray) -> None:
        """Take other lists, ids end to end; counts [timesteps, batch, 1 or 2]: of true spikes, of all listed."""
        self.trues[:] = counts[..., 0].reshape(-1)
        np.cumsum(counts[..., -1], out=self.starts[1:])
        self.ids[: len(ids)] = ids


Sums = tuple[np.ndarray, np.ndarray, np.ndarray]
Term = tuple[int, int, np.ndarray]  # the strip it adds to, the strip it weighs, its coefficients [2, neurons]


class Maps:
    """ahead: a timestep; back: its transpose; change: what firing changes in the states; readout: of potentials, by
    state: (states int64[rows], weights float32[blocks, rows, WIDTH]). Numbering of strips as in the kernels."""

    def __init__(self, neuron: LinearNeuron, columns: int, positions: int = 0):
        """The neuron resets if it has a map for that; its gradient follows `reset_gradient`.

        positions: with constants of their own, `columns` neurons at each; all others share the maps of one block. 0:
        there are `columns` neurons.
        """
        made, states = pack_terms(neuron, columns, switched=neuron.resets), len(neuron.states)
        neurons = columns * positions or columns
        if positions and made.own is None:
            neurons = WIDTH
        ones, after, count = states + 1, states + 2, -(-neurons // WIDTH)

        def pair(places: Sequence[int], uniform: np.ndarray) -> np.ndarray:
            pairs = zip(places, uniform, strict=True)
            rows = [
                np.full(neurons, number) if at < 0 or made.own is None else np.resize(made.own[at], neurons)
                for at, number in pairs
            ]
            return np.array(rows, np.float32)

        def sums(terms: list[Term], first: int, last: int) -> Sums:
            """Strips first..last-1 from their terms, in the order given."""
            ordered = sorted(terms, key=lambda term: term[0])
            ends = np.searchsorted([into for into, _, _ in ordered], np.arange(first, last + 1))
            rows = np.stack([np.arange(first, last), ends[:-1], ends[1:]], axis=1)
            weights = np.array([weights for _, _, weights in ordered], np.float32).reshape(-1, neurons)
            sources = np.array([source for _, source, _ in ordered], np.int64)
            return rows, sources, in_blocks(weights).reshape(count, len(ordered), 2, WIDTH)

        terms = [
            (int(row), int(column), pair(places, uniform))
            for (row, column, *places), uniform in zip(made.terms, made.uniform, strict=True)
        ]
        reading = [
            (int(row), pair((place, place), weights))
            for (row, place), weights in zip(made.readout, made.weights, strict=True)
        ]
        potential = [(after + states, after + row if row < states else ones, weights) for row, weights in reading]
        own = [(after + row, column, weights) for row, column, weights in terms]
        self.ahead = sums([*own, *potential], after, after + states + 1)
        applied = [0, 0] if neuron.reset_gradient == "pass" else [0, 1]
        transposed = [(states + column, row, weights[applied]) for row, column, weights in terms if column <= states]
        self.back = sums(transposed, states, 2 * states + 1)
        changes = [(into, column, weights[[1, 1]] - weights[[0, 0]]) for into, column, weights in own]
        self.change = sums([each for each in changes if each[2].any()], after, after + states)
        read = [(row, weights[0]) for row, weights in reading if row < states]
        each = np.array([weights for _, weights in read], np.float32).reshape(-1, neurons)
        self.readout = np.array([row for row, _ in read], np.int64), in_blocks(each)


LISTED_SHARE = 1 / 16  # of a layer's neurons, for which there is room at first
ById = tuple[np.ndarray, np.ndarray]
Wanted = dict[str, tuple[np.ndarray, CsrSpikes]]
Times = tuple[int, int]  # the first and the last + 1


class JoinedSources:
    """The true spikes of several layers that one reads as if they were one layer's, ids one layer after another."""

    def __init__(self, sources: Sequence[CsrSpikes], lags: Sequence[int]):
        self.sources, self.lags = sources, lags
        self.rows = np.cumsum([0, *(each.width for each in sources)]).tolist()
        places = len(sources[0].trues)
        most = sum(len(each.ids) for each in sources) // places
        self.spikes = CsrSpikes.room(places, self.rows[-1], most)

    def join(self, first: int, last: int) -> None:
        """The lists of places first..last-1, after those before; each source's from as many places before as it
        lags."""
        made, trues = self.spikes, self.spikes.trues[first:last]
        trues[:] = 0
        for source, lag in zip(self.sources, self.lags, strict=True):
            begin = max(first, lag)
            trues[begin - first :] += source.trues[begin - lag : max(last - lag, 0)]
        np.cumsum(trues, out=made.starts[first + 1 : last + 1])
        made.starts[first + 1 : last + 1] += made.starts[first]
        ends = made.starts[first:last].copy()
        for source, lag, row in zip(self.sources, self.lags, self.rows, strict=False):
            whole_tensors.append_lists(first, last, lag, row, source.arrays, ends, made.ids)


class LayerInTime:
    """What a layer of any linear neuron, surrogate and wiring keeps, whether it lists its spikes or sends them dense.

    Potentials are kept only of neurons listed, unless gradients or the loss read all. draws: whether `begin` takes
    generators of its samples. norm: its batch norm.
    """

    draws = False
    norm: WholeNorm | None = None

    def __init__(self, network: SpikingNetwork, layer: Layer, share: Shares, together: bool = False):
        """together: it advances timestep by timestep with layers that it reads and that read it."""
        dense, selection = network.spikes == "dense", layer.selection
        self.layer, self.share, self._together = layer, share, together
        self.timesteps, self.batch = network.timesteps, network.batch
        self.places, self.blocks = network.timesteps * network.batch, -(-layer.neurons // WIDTH)
        sources = network.sources(layer)
        self.lags = [(source.lag or 0) * network.batch for source in sources]
        self.lag = self.lags[0] if len(sources) == 1 else 0
        widths = layer.inputs, *(each.neurons for each in sources[1:])
        rows = (slice(*ends) for ends in pairwise(np.cumsum([0, *widths]).tolist()))  # of the weights
        self._read = [*zip((one.name for one in sources), self.lags, rows, strict=True)]
        roles, state = by_role(layer.acting), len(network.optimiser.state)

        def room(every: tuple[Parameter, ...]) -> Tensor:
            return Tensor.zeros(every, state, every[0].shape[1] if dense or every[0].constant else WIDTH)

        self.tensors = {role: room(every) for role, every in roles.items()}
        self.derived = DerivedTensors(layer, self.tensors, room)
        self.parameters = [*(self.tensors | self.derived.own).values()]  # of the parameters themselves
        made_of = {made: {own.name for own in each.of} for each in layer.derived for made in each.makes}
        self.learning = {
            role for role, every in roles.items() if made_of.get(every[0], {every[0].name}) & network.trained.keys()
        }
        neuron, learns = layer.acting_neuron, bool(layer.learned)
        self._threshold = np.float32(neuron.threshold if neuron.fused else selection.threshold)  # of the reset
        self._full, (matrix, drive) = neuron.resets and neuron.reset_gradient == "full", neuron.differs
        self._shape = KINDS.index(selection.surrogate), np.float32(selection.slope)
        self._wiring = RECURRENCES.index("one_to_one" if layer.recurrence == "one_weight" else layer.recurrence)
        pulled = neuron.resets and neuron.reset_gradient != "pass"
        self._back: tuple[Any, ...] = self._wiring, pulled, self._full, self._threshold, *self._shape
        self._learned = LearnedConstants(layer, self.batch, self.tensors)
        self._positions = layer.positions if dense else 0
        self._take(neuron)
        self._states = len(neuron.states)
        kept = (
            (dense or self._full or not layer.spiking, 1),
            (learns or (self._full and matrix), self._states),
            (learns or (self._full and drive), 1),
        )
        self._kept = tuple(aligned((self.places * each, self.blocks, many * WIDTH)) for each, many in kept)

    def _take(self, neuron: LinearNeuron) -> None:
        """Coefficients of the neurons from now on."""
        maps = Maps(neuron, self.layer.columns, self._positions)
        self._ahead, self._maps = maps.ahead, (maps.readout, maps.back, maps.change)

    @property
    def potentials(self) -> np.ndarray:
        """[timesteps, batch, neurons] of the last forward pass, where they are the output."""
        every = self._kept[0].reshape(self.timesteps, self.batch, -1)
        return np.ascontiguousarray(every[..., : self.layer.neurons])

    def begin(self, given: Mapping[str, np.ndarray]) -> None:
        """Before the first timestep of a training step; given: what is scheduled and drawn, by graph input."""
        self.derived.forward()
        if self.layer.learned:
            self._take(self._learned.neuron())


def room_for_entries(rows: int, timesteps: int, each: int) -> tuple[np.ndarray, ...]:
    """Entries, as `numerics.fused.whole_linear` says: room for so many of each row."""
    kinds = np.int32, np.uint8, np.float32, np.int64  # places, lanes, values, slots
    return *(np.empty((rows, max(WIDTH, each)), kind) for kind in kinds), np.zeros((rows, timesteps), np.int64)


class WholeLayer(LayerInTime):
    """A layer that lists its spikes, with any truncation.

    Gradients of a layer that does not read its own spikes are made a block of neurons at a time, all of whose timesteps
    stay in a second-level cache from the adjoints to the sums over them; adjoints of others are made of all blocks
    first.
    """

    def __init__(self, network: SpikingNetwork, layer: Layer, share: Shares, together: bool = False):
        super().__init__(network, layer, share, together)
        self.spikes = CsrSpikes.room(self.places, layer.neurons, layer.capacity)
        self.w, by_emission = self.tensors["weights"].value, reads_own_spikes(layer)
        self.draws = layer.selection.truncation == "random"
        self._coupled = together or by_emission or layer.recurrence != "none"
        self._how = self._coupled, by_emission, self._wiring
        self._back = self._coupled, by_emission, *self._back
        self._fired = self._threshold if layer.acting_neuron.resets else np.float32(np.inf)
        self._parameters = self.w, self._value("bias"), self._value("recurrent")
        many = share.threads if self._coupled else 1  # groups of samples
        self._groups = list(pairwise(sorted({self.batch * number // many for number in range(many + 1)})))
        self._most = self.places * WIDTH
        self._rows = self.blocks * len(self._groups)
        self._entries = room_for_entries(self._rows, self.timesteps, int(self._most * LISTED_SHARE))
        own = (self.batch, layer.capacity) if self._coupled else (0, 0)
        self._begins = np.zeros((self.timesteps, self.batch), np.int64)
        self._own = self._begins, np.zeros(own, np.int32), np.zeros(own[0], np.int64)
        at_once = self.blocks if self._coupled else min(share.threads, self.blocks)
        self._limits = (np.float32(0),) * 3
        self._held, self._carried = self._hold(at_once), self._carry(at_once)
        self._q = aligned((at_once, self.timesteps, self.batch * WIDTH))

    def _value(self, role: str) -> np.ndarray:
        return self.tensors[role].value if role in self.tensors else aligned((self.blocks, 1, WIDTH))

    def room(self) -> np.ndarray:
        """Zeros for the gradients of everything listed."""
        return np.zeros(int(self.spikes.starts[-1]), np.float32)

    def gradients(self, first: int, rows: np.ndarray) -> np.ndarray:
        """Of everything listed, from rows of gradients that repeat from place `first` on."""
        g = np.empty(int(self.spikes.starts[-1]), np.float32)
        whole_tensors.list_gradient(first, self.spikes.ids, self.spikes.starts, rows, g)
        return g

    def _hold(self, blocks: int) -> tuple[np.ndarray, np.ndarray]:
        """What so many blocks hold from one timestep to the next."""
        return self._carry(blocks), np.zeros((2, blocks, self.batch), np.uint64)

    def _carry(self, blocks: int) -> np.ndarray:
        """States of so many blocks, or their adjoints."""
        return aligned((blocks * self.batch * self._states * WIDTH,))

    def begin(self, given: Mapping[str, np.ndarray]) -> None:
        super().begin(given)
        layer, threshold, none = self.layer, np.float32(self.layer.selection.threshold), np.float32(np.inf)
        scheduled = given.get(second_threshold_of(layer.name), (layer.selection.second_threshold,))
        second_threshold = np.float32(scheduled[0])
        if self.draws:  # where scans start; the generators of the samples move on
            generators = given[random_name(layer.name)]
            for t in range(self.timesteps):
                generators[:] = next_state(generators)
                self._begins[t] = scan_starts(generators, layer.neurons)
        # of spikes that nobody reads, the entries say which neurons were reset; none is listed
        self._limits = self._fired, threshold, second_threshold
        if not layer.spiking:
            self._limits = self._fired, threshold if layer.reset_unread else none, none

    def forward(self, source: CsrSpikes, first: int, last: int) -> bool:
        """Timesteps first..last-1, from the spikes of what it reads. Of layers that advance together, true spikes are
        listed. Returns whether there was room: there will be more, from the first timestep on."""
        if not self._advance(source, (first, last)):
            more = min(self._most, 2 * self._entries[0].shape[1])
            self._entries = room_for_entries(self._rows, self.timesteps, more)
            return False
        if self._together:
            whole_tensors.list_true(first * self.batch, self._own[1], self._own[2], *self.spikes.arrays)
        return True

    def finish(self) -> None:
        """All lists, after the last timestep."""
        layer, made, threshold = self.layer, self.spikes, np.float32(self.layer.selection.threshold)
        capacity = layer.capacity if layer.spiking else 0
        entries, groups = self._entries, len(self._groups)

        def timesteps(first: int, last: int) -> None:
            whole_linear.join(first, last, groups, self._begins, threshold, self._shape, entries, made.arrays)

        whole_linear.count_listed(capacity, entries, made.starts, made.trues, made.over_starts)
        self.share(self.timesteps, timesteps)

    def _advance(self, source: CsrSpikes, times: Times) -> bool:
        """Entries of these timesteps; whether there was room for them."""
        how, many, enough = (*self._how, self.lag), len(self._groups), []
        given = self.layer.neurons, self._parameters, source.arrays, self._ahead, self._limits
        entries, kept = self._entries, self._kept

        def shares(first: int, last: int) -> None:
            held = self._held if self._coupled else self._hold(1)
            for group in range(first, last) if self._coupled else (0,):
                outer = times if self._coupled else (first, last)
                rows, samples = (group, many), self._groups[group]
                enough.append(whole_linear.forward(outer, samples, rows, how, *given, held, self._own, entries, kept))

        self.share(many if self._coupled else self.blocks, shares)
        return all(enough)

    def go_back(self, t: int, g: np.ndarray, wanted: Wanted) -> None:
        """Gradients of the currents of a timestep, those of the timestep after being made; wanted: as of `backward`."""
        self._adjoint(0, self._q, g, (t, t + 1))
        self._give(0, self._q, wanted, (t, t + 1))

    def backward(self, source: CsrSpikes, g: np.ndarray, wanted: Wanted) -> None:
        """Gradients of the parameters from those of what is listed, or of potentials that are the output.

        wanted: by source, gradients of what it lists, to which this adds, and its lists. Of layers that advance
        together, `go_back` has been through all timesteps.
        """
        for role in ("recurrent", "bias"):
            if role in self.tensors:
                self.tensors[role].gradient[:] = 0
        beyond, times = self.blocks * WIDTH - self.layer.neurons, (0, self.timesteps)
        if not self.layer.spiking and beyond:
            g = np.pad(g, ((0, 0), (0, 0), (0, beyond)))
        by_id = {"weights": self._by_id(self.lag, source)} if "weights" in self.learning else {}
        if self.layer.recurrence == "all_to_all" and "recurrent" in self.learning:
            by_id["recurrent"] = self._by_id(self.batch, self.spikes)
        if self._coupled and not self._together:
            self._adjoint(0, self._q, g, times)
        for begin in range(0, self.blocks, self.share.threads):
            end = min(begin + self.share.threads, self.blocks)
            q = self._q[begin:end] if self._coupled else self._q[: end - begin]
            if not self._coupled:
                self._adjoint(begin, q, g, times)
            self._add_gradients(begin, q, by_id)
            self._give(begin, q, wanted, times)
        if self.layer.learned:
            self._learned.backward()

    def _by_id(self, lag: int, source: CsrSpikes) -> ById:
        """Where every id is listed by the input, `lag` places back: rows[columns[id]:columns[id + 1]]."""
        columns = np.zeros(source.width + 2, np.int64)
        rows = np.empty(int(source.starts[max(self.places - lag, 0)]), np.int32)
        given = (*source.arrays, columns, rows)
        whole_tensors.sort_by_id(lag, *given)
        return columns, rows

    def _adjoint(self, begin: int, q: np.ndarray, g: np.ndarray, times: Times) -> None:
        """q [blocks, timesteps, batch * WIDTH] = gradients of currents from block `begin` on, at these timesteps."""
        none, many = np.zeros(0, np.float32), len(self._groups)
        given = (g, none.reshape(0, 0, 0)) if self.layer.spiking else (none, g)
        lists, recurrent = (self.spikes.starts, self.spikes.ids), self._parameters[2]
        each, learned = self.batch * self._states * WIDTH, self._learned.arrays

        def shares(first: int, last: int) -> None:
            for group in range(first, last) if self._coupled else (0,):
                low, made = (begin, q) if self._coupled else (begin + first, q[first:last])
                carried = self._carried if self._coupled else self._carried[first * each : last * each]
                of = times, self._groups[group], (group, many), self._back, self._maps, recurrent, lists
                whole_linear.adjoint(low, *of, self._entries, given, self._kept, carried, learned, made)

        self.share(many if self._coupled else len(q), shares)

    def _add_gradients(self, begin: int, q: np.ndarray, by_id: dict[str, ById]) -> None:
        gradients = {role: tensor.gradient for role, tensor in self.tensors.items()}

        def blocks(first: int, last: int) -> None:
            for number in range(first, last):
                each, block = q[number], begin + number
                for role, (columns, rows) in by_id.items():
                    whole_tensors.weight_gradient_block(
                        columns, rows, each.reshape(-1), gradients[role][block].reshape(-1)
                    )
                if self.layer.recurrence in ("one_to_one", "one_weight") and "recurrent" in self.learning:
                    own = len(self._groups), self._entries, each, gradients["recurrent"][block, 0]
                    whole_linear.own_row_gradient(block, *own)
                if self.layer.bias and "bias" in self.learning:
                    gradients["bias"][block, 0] += each.reshape(-1, WIDTH).sum(axis=0)

        self.share(len(q), blocks)

    def _give(self, begin: int, q: np.ndarray, wanted: Wanted, times: Times) -> None:
        """Add gradients of what is listed by sources, read at these timesteps."""
        origin, end = (t * self.batch for t in times)
        for name, lag, rows in self._read:
            if name in wanted:
                into, lists = wanted[name]
                given = lag, rows.start, self.w[begin : begin + len(q)], lists.ids, lists.starts, q, into

                def places(first: int, last: int, given: tuple[Any, ...] = given) -> None:
                    whole_tensors.input_gradient_places(origin + first, origin + last, *given)

                self.share(end - origin, places)


class PublishedLayer(WholeLayer):
    """Its equations are written out, in registers; whatever is not the neuron is that of any layer."""

    def __init__(self, network: SpikingNetwork, layer: Layer, share: Shares):
        super().__init__(network, layer, share)
        self._q = aligned((len(self._q), self.timesteps + 1, self.batch * WIDTH))

    def _advance(self, source: CsrSpikes, times: Times) -> bool:
        neuron, enough = constants_of(self.layer.linear), []
        constants = neuron.decay, neuron.scale, *self._limits[1:]
        given = (self.batch, self.lag, self.w, self.layer.neurons, source.arrays, constants, self._entries)

        def blocks(first: int, last: int) -> None:
            enough.append(whole_tensors.forward_blocks(first, last, *given))

        self.share(self.blocks, blocks)
        return all(enough)

    def _adjoint(self, begin: int, q: np.ndarray, g: np.ndarray, times: Times) -> None:
        factors, masked = constants_of(self.layer.linear)[:2], self.layer.linear.reset_gradient == "mask"

        def blocks(first: int, last: int) -> None:
            for number in range(first, last):
                of = self.batch, masked, *factors, self._entries, g
                whole_tensors.adjoint(begin + number, *of, q[number])

        self.share(len(q), blocks)


def layer_of(network: SpikingNetwork, layer: Layer, share: Shares, together: bool) -> WholeLayer:
    """The published layer where the layer is all that and advances alone, else one of linear neurons."""
    selection, neuron = layer.selection, layer.linear
    plain = layer.spiking and not layer.bias and layer.recurrence == "none"
    chosen = (selection.surrogate, selection.truncation) == ("superspike", "lowest")
    published = plain and chosen and neuron.fused and neuron.resets and not together
    return PublishedLayer(network, layer, share) if published else WholeLayer(network, layer, share, together)
