"""A layer with dense spikes that runs all timesteps at once: fully connected, or one of planes.

Its spikes are listed, so that its currents and the gradients of its weights cost what there are spikes; gradients of
the spikes are of all neurons, products of matrices. All that a layer reads are planes, or one pixel with many channels.
Weights of groups are written out with zeros between them, and take as long as those of one group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from mimdsim.execution.execute import Shares, aligned
from mimdsim.execution.whole_tensor_layers import CsrSpikes, LayerInTime, Times, Wanted
from mimdsim.execution.whole_tensor_values import WholeNorm
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.convolution import NOWHERE, Convolution, Patches, Planes, Pool, Window, pixels_of
from mimdsim.graph.dropout import OF_NUMBER, OF_SOURCE, OF_TIMESTEP, WORD
from mimdsim.graph.names import INPUT, keep_of, random_name
from mimdsim.numerics.fused import whole_dense, whole_tensors
from mimdsim.numerics.fused.interpreted import WIDTH

Cover = tuple[np.ndarray, np.ndarray, np.ndarray]
CHUNK_FLOATS = 1 << 18  # of gradients of patches, which stay in a second-level cache
ONE_THREAD = 1 << 19  # multiplications of a product so small that BLAS starts no threads beside ours
NOTHING_DROPPED = np.zeros(0, np.uint64), np.uint64(0), np.uint64(0), np.float32(1)
NO_NORM = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32)
NO_POOL = np.zeros((0, 1), np.int64), np.float32(1)


def pool_of(pool: Pool | None, planes: Planes) -> tuple[np.ndarray, np.float32]:
    """Its table and factor, as kernels take them."""
    if pool is None:
        return NO_POOL
    return _table(planes, pool.window), np.float32(1 / pool.window.taps if pool.kind == "average" else 1)


def _table(planes: Planes, window: Window) -> np.ndarray:
    return np.ascontiguousarray(pixels_of(Patches(planes=planes, window=window)), np.int64)


def cover_of(tables: Sequence[np.ndarray], pixels: int, columns: int) -> Cover:
    """Where a spike at each of `pixels` goes through windows one after another; rows of the last are `columns` wide."""
    at = np.arange(pixels)
    pixel, place, tap = at, at, np.zeros(pixels, np.int64)
    for table in tables:
        places, taps = np.nonzero(table != NOWHERE)
        order = np.argsort(table[places, taps], kind="stable")
        places, taps, under = places[order], taps[order], table[places, taps][order]
        begin, end = np.searchsorted(under, place), np.searchsorted(under, place, side="right")
        number = np.repeat(np.arange(len(place)), end - begin)
        entry = np.arange(len(number)) - np.repeat(np.cumsum(end - begin) - end, end - begin)
        pixel, place, tap = pixel[number], places[entry], taps[entry]
    starts = np.searchsorted(pixel, np.arange(pixels + 1))
    return starts.astype(np.int64), place.astype(np.int64) * columns, tap.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Reading:
    """How a layer reads a list: through a convolution, or all of it as channels of one pixel."""

    convolution: Convolution
    dropping: bool = False

    @cached_property
    def window(self) -> np.ndarray:
        return _table(self.convolution.read, self.convolution.window)

    @property
    def largest(self) -> bool:
        before = self.convolution.before
        return before is not None and before.kind == "max"

    @cached_property
    def pool(self) -> tuple[np.ndarray, np.float32]:
        return pool_of(self.convolution.before, self.convolution.planes)

    @property
    def pooled(self) -> bool:
        """Whether what a pool makes is listed: once for the largest, for every spike where dropout is of a sum."""
        return self.largest or (self.dropping and self.convolution.before is not None)

    @cached_property
    def cover(self) -> Cover:
        """Of what is listed; other spikes under a pool that sums are listed as they are."""
        tables = [self.window] if self.pooled or not len(self.pool[0]) else [self.pool[0], self.window]
        return cover_of(tables, self.listed.positions, self.convolution.channels)

    @cached_property
    def pool_cover(self) -> Cover:
        """Of spikes before the pool."""
        return cover_of([self.pool[0]], self.convolution.planes.positions, 1)

    @property
    def most(self) -> int:
        """How much a pool may list of a sample."""
        if not self.pooled:
            return 0
        covered = int(np.diff(self.pool_cover[0]).sum()) * self.convolution.planes.channels
        return self.listed.neurons if self.largest else covered

    @property
    def listed(self) -> Planes:
        """Of which ids are listed."""
        return self.convolution.read if self.pooled else self.convolution.planes


def of_groups(weights: np.ndarray) -> np.ndarray:
    """The blocks on the diagonal of weights [groups, rows, groups, columns], a view [groups, rows, columns]."""
    return np.asarray(np.einsum("grgc->grc", weights))


def written_out(weights: np.ndarray, groups: int) -> np.ndarray:
    """Weights of groups [rows, channels made] with zeros between them: [groups * rows, channels made]."""
    if groups == 1:
        return weights
    made = np.zeros((groups, len(weights), groups, weights.shape[1] // groups), np.float32)
    of_groups(made)[:] = weights.reshape(len(weights), groups, -1).swapaxes(0, 1)
    return made.reshape(groups * len(weights), -1)


class DenseLayer(LayerInTime):
    """A layer that sends its spikes dense, with or without planes."""

    def __init__(self, network: SpikingNetwork, layer: Layer, share: Shares, together: bool = False):
        super().__init__(network, layer, share, together)
        self.draws, self.neurons, inputs = bool(layer.dropout), layer.neurons, self._read[-1][2].stop
        self._planes = {name: network.planes_of(name) for name, _, _ in self._read}
        flat = Planes(channels=inputs, height=1, width=1)
        one = Convolution(planes=flat, window=Window.whole(flat), channels=layer.neurons)
        self.reading = Reading(layer.convolution_of(inputs) or one, bool(layer.dropout))
        dropped = network.planes_dropped(layer) if layer.dropout_of == "plane" else []
        self._channels_dropped = [each.channels for each in dropped if each]
        self._offsets, self._drop = self._dropped(), NOTHING_DROPPED
        self.spikes = CsrSpikes.room(self.places, layer.neurons, layer.neurons if layer.spiking else 0, self.blocks)
        self._back = not layer.spiking, *self._back
        self._limits = np.float32(layer.selection.threshold) if layer.spiking else self._threshold, layer.neurons
        states, size = self._states, self.blocks * WIDTH
        self._carried = aligned((self.batch, self.blocks, states * WIDTH)), aligned((self.batch, self.blocks, WIDTH))
        self._held = aligned((self.batch, self.blocks, states * WIDTH))
        of_currents = layer.convolution.after if layer.convolution else None
        self._after = pool_of(of_currents, self.reading.convolution.made)
        largest = of_currents is not None and of_currents.kind == "max"
        self._winners = np.zeros((self.places, layer.neurons if largest else 0), np.uint8)
        width = self.reading.convolution.made.neurons
        self._made = aligned((self.places if of_currents or layer.norm else 0, width))
        self.norm = WholeNorm(network, layer, share, self.tensors, width) if layer.norm else None
        self._apart = (self.norm.apart, self.norm.factors) if self.norm else NO_NORM
        self._numbers: np.ndarray | None = None
        listed, most = self.reading.listed.neurons, self.reading.most
        self._pooled = CsrSpikes.room(self.places, listed, most)
        # what dropout keeps may be as long as what it is given
        self._kept_lists = CsrSpikes.room(self.places, listed, (most or listed) if layer.dropout else 0)
        self._size, self._g = size, aligned((self.places, size))

    def read_numbers(self, numbers: np.ndarray) -> None:
        """Read these [timesteps, batch, inputs], or [batch, inputs] in every timestep, which are no spikes: the
        currents are products of all of them."""
        self._numbers = numbers
        if not self.norm:
            self._apart = aligned((self.places, self.neurons)), np.ones((self.timesteps, self.neurons), np.float32)

    def _multiply(self, first: int, last: int) -> None:
        """Currents of timesteps first..last-1 from numbers."""
        assert self._numbers is not None
        apart, lag = self._apart[0].reshape(self.timesteps, self.batch, -1), self.lag // self.batch
        weights = self.tensors["weights"].value[0]
        if self._numbers.ndim == 2:
            apart[first:last] = self._numbers @ weights
            return
        begin = max(first, lag)
        apart[first:begin] = 0
        for t in range(begin, last):
            np.matmul(self._numbers[t - lag], weights, out=apart[t])

    def _gradient_of_numbers(self, q: np.ndarray) -> np.ndarray:
        """Of the weights, from those of the currents [places, neurons, padded]."""
        assert self._numbers is not None
        every, lag = q.reshape(self.timesteps, self.batch, -1)[..., : self.neurons], self.lag // self.batch
        if self._numbers.ndim == 2:
            return np.asarray(self._numbers.T @ every.sum(axis=0))
        read = self._numbers[: self.timesteps - lag]
        return np.asarray(read.reshape(-1, read.shape[2]).T @ every[lag:].reshape(-1, self.neurons))

    def room(self) -> np.ndarray:
        """Zeros for the gradients of all its spikes, the same memory in every training step."""
        self._g[:] = 0
        return self._g

    def gradients(self, first: int, rows: np.ndarray) -> np.ndarray:
        """Of all neurons, from rows of gradients that repeat from place `first` on."""
        g = self.room()
        g[first:, : self.neurons].reshape(-1, *rows.shape)[:] = rows
        return g

    def _dropped(self) -> np.ndarray:
        """What dropout adds to the state of a sample, by id of what is listed: the number of the neuron, by position
        and channel, or of its plane, and the source."""
        if not self.layer.dropout:
            return np.zeros(0, np.uint64)
        parts = []
        for source, (name, _, rows) in enumerate(self._read):
            planes, width = self._planes[name], rows.stop - rows.start
            if convolution := self.layer.convolution_of(width):
                by_id = name == INPUT and not convolution.before  # the input is numbered as it is listed
                listed = Reading(convolution, dropping=True).listed
                planes, width = None if by_id else listed, listed.neurons
            number = np.arange(width, dtype=np.uint64)
            if self._channels_dropped:
                number //= np.uint64(width // self._channels_dropped[source])
            elif planes:
                number = np.ascontiguousarray(number.reshape(planes.positions, planes.channels).T).reshape(-1)
            parts.append(number * np.uint64(OF_NUMBER) + np.uint64(source * OF_SOURCE))
        return np.concatenate(parts)

    def _listed(self, source: CsrSpikes) -> tuple[int, CsrSpikes]:
        """The list whose ids the weights see, of what is pooled and what is kept, and how many places back it is."""
        if self.layer.dropout:
            return 0, self._kept_lists
        return self.lag, self._pooled if self.reading.pooled else source

    def _rows(self, role: str, width: int) -> np.ndarray:
        """Rows of parameters, once for every position, and zeros beyond."""
        value = self.tensors[role].value[0] if role in self.tensors else np.zeros((1, 0), np.float32)
        rows, many = np.zeros((len(value), width), np.float32), self.reading.convolution.made.positions
        rows[:, : many * value.shape[1]] = np.tile(value, many)
        return rows

    def begin(self, given: Mapping[str, np.ndarray]) -> None:
        super().begin(given)
        if self.draws:  # what dropout keeps, from a state for every sample
            step = np.uint64(OF_TIMESTEP if self.layer.dropout_per == "timestep" else 0)
            keep, states = np.float32(given[keep_of(self.layer.name)][0]), given[random_name(self.layer.name)]
            self._drop = states.astype(np.uint64), step, np.uint64(int(float(keep) * (WORD + 1))), np.float32(1) / keep
        factor = self.reading.pool[1] * self._drop[3]
        weights = written_out(self.tensors["weights"].value[0], self.reading.convolution.groups)
        biases = self._rows("bias", max(self._size, self.reading.convolution.made.neurons))
        recurrent = self.tensors["recurrent"].value[0] if "recurrent" in self.tensors else np.zeros((1, 1), np.float32)
        self._given = weights * factor if factor != 1 else weights, biases, recurrent

    def forward(self, source: CsrSpikes, first: int, last: int) -> bool:
        """Spikes of timesteps first..last-1, for which there is room, from those of what it reads."""
        reading, convolution = self.reading, self.reading.convolution
        places = first * self.batch, last * self.batch
        if reading.pooled:
            pixels, positions = convolution.planes.positions, convolution.read.positions
            of_pool = reading.largest, source.arrays, pixels, reading.pool_cover, positions
            whole_dense.list_pooled(*places, *of_pool, *self._pooled.arrays)
        if self.layer.dropout:
            given = self._pooled if reading.pooled else source
            drawn = self.lag, given.arrays, self._offsets, self._drop
            whole_dense.list_kept(*places, *drawn, *self._kept_lists.arrays)
        lag, lists = self._listed(source)
        how = self._wiring, lag, reading.listed.positions, convolution.window.taps
        listed, after = lists.arrays, (*self._after, self._winners)
        norm = self._apart

        def read(begin: int, end: int) -> None:
            of = places[0] + begin, places[0] + end, how, listed, self._given[0], reading.cover
            whole_dense.currents(*of, norm[0])

        if self._numbers is not None:
            self._multiply(first, last)
        elif self.norm:
            self.share(places[1] - places[0], read)
        if self.norm:
            self.norm.forward(first, last)

        def samples(begin: int, end: int) -> None:
            of = (begin, end, self.batch), (first, last), how, listed, self._given, norm, reading.cover, after
            whole_dense.forward(*of, self._ahead, self._limits, self._kept, self._held, self.spikes.bits)

        self.share(self.batch, samples)
        if self.layer.spiking:
            columns, positions, made = self.layer.columns, self.layer.positions, self.spikes
            whole_dense.list_spikes(*places, self.spikes.bits, columns, positions, *made.arrays)
        return True

    def finish(self) -> None:
        """After the last timestep: the lists are made."""

    def go_back(self, t: int, g: np.ndarray, wanted: Wanted) -> None:
        """Gradients of the currents of a timestep, those of the timestep after being made; wanted: as of `backward`."""
        self._adjoint(g, (t, t + 1))
        self._give(self._of_products(g, (t, t + 1)), wanted, (t, t + 1))

    def backward(self, source: CsrSpikes, g: np.ndarray, wanted: Wanted) -> None:
        """Gradients of the parameters from g [places, neurons, padded] of its spikes, or potentials; g is overwritten.

        wanted: by source, gradients of its spikes, to which this adds, and the spikes. Of layers that advance
        together, `go_back` has been through all timesteps.
        """
        times = 0, self.timesteps
        if not self._together:
            self._adjoint(g, times)
        if self.layer.learned:
            self._learned.backward()
        reading, convolution, q = self.reading, self.reading.convolution, g
        whole = (1, 1, cover_of([], 1, 1))
        if "recurrent" in self.learning:
            gradient = self.tensors["recurrent"].gradient[0]
            if self.layer.recurrence == "all_to_all":
                self._add_products(self.batch, self.spikes, whole, q, gradient)
            else:
                gradient[:] = 0
                whole_dense.own_gradient(self.batch, self.spikes.bits, q, gradient[0])
        q = self._of_products(g, times)
        if "bias" in self.learning and not self.norm:
            total = np.ones(self.places, np.float32) @ q[:, : convolution.made.neurons]
            self.tensors["bias"].gradient[0, 0] = total.reshape(-1, convolution.channels).sum(axis=0)
        if "weights" in self.learning and self._numbers is not None:
            self.tensors["weights"].gradient[0] = self._gradient_of_numbers(q)
        elif "weights" in self.learning:
            gradient, groups = self.tensors["weights"].gradient[0], convolution.groups
            whole_gradient = (
                gradient if groups == 1 else np.empty((groups * len(gradient), gradient.shape[1]), np.float32)
            )
            how = reading.listed.positions, convolution.window.taps, reading.cover
            self._add_products(*self._listed(source), how, q, whole_gradient)
            if groups > 1:
                found = of_groups(whole_gradient.reshape(groups, len(gradient), groups, -1))
                gradient[:] = found.swapaxes(0, 1).reshape(gradient.shape)
            if (factor := reading.pool[1] * self._drop[3]) != 1:
                gradient *= factor
        self._give(q, wanted, times)

    def _adjoint(self, g: np.ndarray, times: Times) -> None:
        """Put gradients of the currents of these timesteps in the place of g."""
        if times[1] == self.timesteps:
            for each in (*self._carried, self._learned.made):
                each[:] = 0
        synapses = self.tensors["recurrent"].value[0] if self.layer.recurrence == "all_to_all" else None
        own = self._rows("" if synapses is not None else "recurrent", self._size)[0]

        def advance(begin: int, end: int) -> None:
            def samples(first: int, last: int) -> None:
                of = (first, last, self.batch), (begin, end), self._back, self._maps, own
                whole_dense.adjoint(*of, self._kept, self.spikes.bits, *self._carried, self._learned.arrays, g)

            self.share(self.batch, samples)

        if synapses is None:
            advance(*times)
            return
        by_timestep = g.reshape(self.timesteps, self.batch, -1)[..., : self.neurons]
        for t in reversed(range(*times)):
            advance(t, t + 1)
            if t:
                by_timestep[t - 1] += by_timestep[t] @ synapses.T

    def _of_products(self, q: np.ndarray, times: Times) -> np.ndarray:
        """Gradients of the currents as the weights make them, before they are normalised and pooled."""
        made, channels, origin = self._made, self.reading.convolution.channels, times[0] * self.batch
        if not len(made):
            return q

        def places(first: int, last: int) -> None:
            given = q, self._after[0], channels, self._after[1], self._winners
            whole_dense.scatter_places(origin + first, origin + last, made, *given)

        if len(self._after[0]):
            self.share((times[1] - times[0]) * self.batch, places)
        else:
            end = times[1] * self.batch
            made[origin:end] = q[origin:end, : made.shape[1]]
        if self.norm:
            self.norm.backward(made, *times)
        return made

    def _add_products(
        self, lag: int, listed: CsrSpikes, how: tuple[int, int, Cover], q: np.ndarray, gradient: np.ndarray
    ) -> None:
        columns = np.zeros(listed.width + 2, np.int64)
        rows = np.empty(int(listed.starts[max(self.places - lag, 0)]), np.int32)
        whole_tensors.sort_by_id(lag, *listed.arrays, columns, rows)

        def channels(first: int, last: int) -> None:
            whole_dense.weight_gradient(first, last, columns, rows, *how, q, gradient)

        self.share(len(gradient) // how[1], channels)

    def _give(self, q: np.ndarray, wanted: Wanted, times: Times) -> None:
        """Add gradients of spikes read at these timesteps."""
        places = times[0] * self.batch, times[1] * self.batch
        if self.layer.convolution:
            for source, (name, _, _) in enumerate(self._read):
                if name in wanted:
                    self._fold(q, *wanted[name], *places, source)
        elif wanted:
            self._spread(q, wanted, *places)

    def _spread(self, q: np.ndarray, wanted: Wanted, begin: int, end: int) -> None:
        """Gradients of spikes that are read one by one."""
        for name, lag, rows in self._read:
            first = max(begin, lag)
            if name in wanted and first < end:
                made = q[first:end, : self.neurons] @ self.tensors["weights"].value[0, rows].T
                if self.layer.dropout:
                    self._drop_rows(made, first, self._offsets[rows])
                planes, width = self._planes[name], made.shape[1]
                channels, positions = (planes.channels, planes.positions) if planes else (width, 1)
                by_position = made.reshape(-1, channels, positions).transpose(0, 2, 1)
                wanted[name][0][first - lag : end - lag, :width].reshape(by_position.shape)[:] += by_position

    def _drop_rows(self, made: np.ndarray, origin: int, offsets: np.ndarray) -> None:
        """Gradients of what is read at places from `origin` on: of what is kept."""
        self.share(
            len(made),
            lambda first, last: whole_dense.drop_rows(first, last, origin, offsets, self._drop, made),
        )

    def _fold(self, q: np.ndarray, g: np.ndarray, read: CsrSpikes, origin: int, stop: int, source: int) -> None:
        """Gradients of spikes of a source under a window."""
        reading, convolution, places = self.reading, self.reading.convolution, stop - origin
        taps, positions, (_, lag, ids) = convolution.window.taps, convolution.made.positions, self._read[source]
        first, last = ids.start // convolution.planes.positions, ids.stop // convolution.planes.positions
        channels, values = last - first, written_out(self.tensors["weights"].value[0], convolution.groups)
        weights = values.reshape(convolution.read.channels, taps, -1)[first:last]
        turned = np.ascontiguousarray(weights.transpose(2, 1, 0)).reshape(-1, taps * channels)
        each = max(1, CHUNK_FLOATS // (positions * taps * channels))
        chunks = list(pairwise([*range(0, places, each), places]))
        number = np.arange(convolution.read.positions * channels, dtype=np.uint64)
        if self._channels_dropped:
            number %= np.uint64(channels)
        by_position = number * np.uint64(OF_NUMBER) + np.uint64(source * OF_SOURCE)
        bits = read.bits if reading.largest else read.bits[:0]
        of = reading.window, channels, *reading.pool, bits, by_position, self._drop, g

        patches = q[origin:stop, : positions * len(turned)].reshape(places, positions, -1)
        whole = (patches[:, 0] @ turned)[:, None] if positions == 1 else None
        rows = max(1, ONE_THREAD // turned.size)

        def some(first: int, last: int) -> None:
            for begin, end in chunks[first:last]:
                made = (
                    np.empty((end - begin, positions, taps * channels), np.float32)
                    if whole is None
                    else whole[begin:end]
                )
                for low in range(0, positions if whole is None else 0, rows):
                    np.matmul(patches[begin:end, low : low + rows], turned, out=made[:, low : low + rows])
                whole_dense.fold(origin + begin, made, lag, *of)

        self.share(len(chunks), some)
