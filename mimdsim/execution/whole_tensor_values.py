"""What whole tensors keep of parameters: their numbers in blocks of neurons, gradients and moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mimdsim.execution.execute import Shares, aligned
from mimdsim.graph import OPERATIONS, Layer, SpikingNetwork
from mimdsim.graph.learned_constants import Coefficients, ConstantGradient, SharedRow, coefficients_of
from mimdsim.graph.linear_neurons import LinearNeuron, RowGradient
from mimdsim.graph.names import Parameter
from mimdsim.graph.norms import STATISTICS, averaging
from mimdsim.numerics.fused import whole_dense
from mimdsim.numerics.fused.interpreted import WIDTH


def in_blocks(rows: np.ndarray, width: int = WIDTH) -> np.ndarray:
    """float32[blocks, rows, width] from [rows, neurons], zeros beyond the last neuron."""
    count, neurons = rows.shape
    blocks = -(-neurons // width)
    wide = np.zeros((count, blocks * width), np.float32)
    wide[:, :neurons] = rows
    return np.ascontiguousarray(wide.reshape(count, blocks, width).transpose(1, 0, 2))


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensor:
    """Parameters of a layer, their rows one after another, in blocks of so many neurons [blocks, rows, width]; their
    gradient, and what an optimiser keeps of them. Weights of all that a layer reads are one tensor."""

    parameters: tuple[Parameter, ...]
    value: np.ndarray
    gradient: np.ndarray
    moments: tuple[np.ndarray, ...]

    @classmethod
    def zeros(cls, parameters: tuple[Parameter, ...], moments: int, width: int = WIDTH) -> Tensor:
        neurons = parameters[0].shape[1]
        shape = (-(-neurons // width), sum(each.shape[0] for each in parameters), width)
        kept = tuple(np.zeros(shape, np.float32) for _ in range(moments))
        return cls(parameters=parameters, value=aligned(shape), gradient=aligned(shape), moments=kept)

    @property
    def rows(self) -> dict[Parameter, slice]:
        """Where each parameter is."""
        edges = np.cumsum([0, *(each.shape[0] for each in self.parameters)]).tolist()
        return {each: slice(*ends) for each, ends in zip(self.parameters, pairwise(edges), strict=True)}


def by_role(parameters: tuple[Parameter, ...]) -> dict[str, tuple[Parameter, ...]]:
    """Those that are one tensor, by their role; constants by name."""
    roles: dict[str, tuple[Parameter, ...]] = {}
    for each in parameters:
        role = each.constant or each.role
        roles[role] = *roles.get(role, ()), each
    return roles


# ---- whole tensors of what is made of parameters before the timesteps: sums of biases, weights that are functions


class DerivedTensors:
    """Parameters of a layer of which timesteps read what is made of them. tensors: what is read, by role; own: of the
    parameters, which are trained."""

    def __init__(self, layer: Layer, tensors: dict[str, Tensor], room: Callable[[tuple[Parameter, ...]], Tensor]):
        self._layer, self._tensors = layer, tensors
        roles = {own.constant or own.role for each in layer.derived for own in each.of}
        self.own = {role: room(every) for role, every in by_role(layer.parameters).items() if role in roles}

    def _rows(self, array: str, tensors: dict[str, Tensor]) -> dict[Parameter, np.ndarray]:
        """[rows, neurons] of every parameter, of what tensors have of it ('value', 'gradient')."""
        found = {}
        for tensor in tensors.values():
            for each, rows in tensor.rows.items():
                blocks = getattr(tensor, array)[:, rows]
                found[each] = blocks.transpose(1, 0, 2).reshape(each.shape[0], -1)[:, : each.shape[1]]
        return found

    def _leave(self, array: str, tensors: dict[str, Tensor], made: dict[Parameter, np.ndarray]) -> None:
        for tensor in tensors.values():
            for each, rows in tensor.rows.items():
                if each in made:
                    held = getattr(tensor, array)
                    held[:, rows] = in_blocks(made[each], held.shape[2])

    def forward(self) -> None:
        """Make what timesteps read."""
        if not self.own:
            return
        values = self._rows("value", self.own)  # some may be read as they are
        for each in self._layer.derived:
            made = OPERATIONS[each.kind].evaluate(each.about, *(values[own] for own in each.of))
            values |= dict(zip(each.makes, made, strict=True))
        self._leave("value", self._tensors, values)

    def backward(self) -> None:
        """Gradients of the parameters from those of what was made of them."""
        if not self.own:
            return
        values, gradients = self._rows("value", self.own), self._rows("gradient", self._tensors)
        for each in self._layer.derived:
            of_made, trained = [gradients[made] for made in each.makes], [values[own] for own in each.of]
            if isinstance(each.about, SharedRow):
                about = ConstantGradient(coefficients=each.about, constant=0)
                made = OPERATIONS["constant_gradient"].evaluate(about, *trained, *of_made)
            else:
                made = OPERATIONS[f"{each.kind}_gradient"].evaluate(each.about, *of_made, *trained)
            gradients |= dict(zip(each.of, made, strict=True))
        self._leave("gradient", self.own, gradients)


# ---- constants that a layer learns, as it runs all timesteps at once: coefficients before, sums of gradients after


WHENS = {"": -1, "quiet": 0, "after": 1}  # as `whole_linear` takes them


class LearnedConstants:
    """arrays: where the coefficients stand, and room for their gradients, as `whole_linear` takes them."""

    def __init__(self, layer: Layer, batch: int, tensors: Mapping[str, Tensor]):
        """tensors: by constant."""
        neuron, self._neurons = layer.acting_neuron, layer.neurons
        self._about = Coefficients(neuron=neuron, neurons=layer.columns)
        self._tensors = [tensors[each.name] for each in layer.learned]
        rows, states = range(len(neuron.rows)), len(neuron.states)
        places = [(row, place) for row in rows for place in RowGradient(neuron=neuron, row=row, told=True).places]
        self._lifted = [row for row, place in places if place.target == states]
        columns = [*range(states), -1, -2]
        stand = [
            (place.target, columns[place.column], WHENS[place.when], row)
            for row, place in places
            if place.target < states
        ]
        samples = batch if layer.learned else 0
        self.made = aligned((samples, -(-layer.neurons // WIDTH), (len(rows) + 1) * WIDTH))
        self.arrays = np.array(stand, np.int64).reshape(-1, 4), self.made

    @property
    def _trained(self) -> list[np.ndarray]:
        return [each.value[0] for each in self._tensors]

    def neuron(self) -> LinearNeuron:
        """The neurons with the constants as they are now."""
        return self._about.neuron.with_rows(coefficients_of(self._about, self._about.neurons, self._trained))

    def backward(self) -> None:
        """Gradients of the constants from those of the coefficients."""
        batch, blocks, _ = self.made.shape
        by_neuron = self.made.reshape(batch, blocks, -1, WIDTH).sum(axis=0, dtype=np.float64).transpose(1, 0, 2)
        by_column = by_neuron.reshape(len(by_neuron), -1)[:, : self._neurons].reshape(
            len(by_neuron), -1, self._about.neurons
        )
        *rows, potentials = by_column.sum(axis=1)
        for row in self._lifted:
            rows[row] += potentials
        for index, (tensor, trained) in enumerate(zip(self._tensors, self._trained, strict=True)):
            about = ConstantGradient(coefficients=self._about, constant=index)
            given = (rows[row][None].astype(np.float32) for row in about.rows)
            (tensor.gradient[0],) = OPERATIONS["constant_gradient"].evaluate(about, trained, *given)


# ---- batch norm of a layer that runs all timesteps at once: of rows of what its weights make, a row for every place


class WholeNorm:
    """What a layer's batch norm keeps of a training step: `apart`, the currents' distance from their mean [places,
    width], `factors`, what that is multiplied with [timesteps, width], and statistics by timestep and column, the same
    at all timesteps where they are of the sequence."""

    def __init__(self, network: SpikingNetwork, layer: Layer, share: Shares, tensors: Mapping[str, Tensor], width: int):
        """tensors: by role. width: the columns of all positions."""
        assert layer.norm
        self._norm, self._share, self._columns = layer.norm, share, layer.columns
        self._values = network.values_normalised(layer)
        self._rows = {role: tensors[role].value[0] for role in ("gain", *STATISTICS)}
        self._gradients = {role: tensors[role].gradient[0] for role in ("gain", "bias")}
        self.apart = aligned((network.timesteps * network.batch, width))
        self.factors = aligned((network.timesteps, width))
        self._made = {role: np.zeros((network.timesteps, layer.columns), np.float32) for role in STATISTICS}

    def forward(self, first: int, last: int) -> None:
        """Normalise timesteps first..last-1, whose currents are in `apart`."""
        rows = self.apart.reshape(len(self.factors), -1, self.apart.shape[1])
        mean, variance = (self._made[role][first:last] for role in STATISTICS)
        if self._norm.fixed:
            mean[:], variance[:] = (self._rows[role][first:last] for role in STATISTICS)
        else:
            mean[:] = self._sums(rows, rows[:0], first, last) / self._values
        means = self._tiled(mean)

        def centre(begin: int, end: int) -> None:
            for t in range(begin, end):
                rows[first + t] -= means[t]

        self._share(last - first, centre)
        if not self._norm.fixed:
            variance[:] = self._sums(rows, rows, first, last) / self._values
        gain = self._rows["gain"][self._of(first, last)]
        self.factors[first:last] = self._tiled(gain * self._inverse(first, last))

    def backward(self, q: np.ndarray, first: int, last: int) -> None:
        """q [places, width], gradients of what is normalised at these timesteps, becomes that of the currents; those of
        gain and bias are then of these timesteps."""
        shape = len(self.factors), -1, q.shape[1]
        rows, apart, inverse = q.reshape(shape), self.apart.reshape(shape), self._inverse(first, last)
        d_bias = self._sums(rows, rows[:0], first, last)
        d_gain = self._sums(rows, apart, first, last) * inverse
        each = 1 if self._norm.per == "sequence" else last - first
        for role, total in (("gain", d_gain), ("bias", d_bias)):
            of_rows = total if self._norm.rows > 1 else total[:each].sum(axis=0)
            self._gradients[role][self._of(first, last)] = of_rows
        level, slope = self._tiled(d_bias / self._values), self._tiled(inverse * d_gain / self._values)

        def timesteps(begin: int, end: int) -> None:
            for t in range(begin, end):
                rows[first + t] -= level[t] + apart[first + t] * slope[t]
                rows[first + t] *= self.factors[first + t]

        self._share(last - first, timesteps)

    def move_averages(self) -> None:
        """Running averages, by the statistics of the last training step."""
        for role, made in self._made.items():
            how, held = averaging(self._norm, role, self._values), self._rows[role]
            for now in {"sequence": made[:1], "each_timestep": made[None]}.get(self._norm.per, made):
                held[:] = np.float32(how.kept) * held + np.float32(how.share) * now

    def _of(self, first: int, last: int) -> slice:
        """Rows of parameters of these timesteps."""
        return slice(first, last) if self._norm.rows > 1 else slice(1)

    def _inverse(self, first: int, last: int) -> np.ndarray:
        inverse: np.ndarray = np.float32(1) / np.sqrt(
            self._made["variance"][first:last] + np.float32(self._norm.epsilon)
        )
        return inverse

    def _tiled(self, rows: np.ndarray) -> np.ndarray:
        """float32 rows of columns for all positions."""
        return np.tile(rows.astype(np.float32), (1, self.apart.shape[1] // self._columns))

    def _sums(self, one: np.ndarray, other: np.ndarray, first: int, last: int) -> np.ndarray:
        """float64 by timestep and column: sums over all values that have statistics in common, of products with
        `other` if that is not empty."""
        totals = np.zeros((last - first, one.shape[2]))
        self._share(last - first, lambda begin, end: whole_dense.add_rows(begin, end, first, one, other, totals))
        by_column: np.ndarray = totals.reshape(len(totals), -1, self._columns).sum(axis=1)
        if self._norm.per == "sequence":
            by_column[:] = by_column.sum(axis=0)
        return by_column
