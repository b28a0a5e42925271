"""Batch norm of a layer that runs all timesteps at once: of rows of what its weights make, a row for every place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mimdsim.execution.execute import Shares, aligned
from mimdsim.execution.whole_tensor_values import Tensor
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.batch_norm import STATISTICS, averaging
from mimdsim.numerics.fused import whole_dense


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
