"""The two ends of a training step on whole tensors: the loss of an output and its gradient, and the update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimdsim.codelets.training import update_codelet
from mimdsim.execution.csr_spikes import Lists
from mimdsim.execution.execute import Shares
from mimdsim.execution.whole_tensor_layers import Tensor
from mimdsim.graph import Layer, SpikingNetwork, training_graph
from mimdsim.graph.losses import CountTargets
from mimdsim.graph.names import LOSS, penalty_of
from mimdsim.graph.operations import OPERATIONS
from mimdsim.graph.training import NORM_FLOOR
from mimdsim.numerics import training as updates
from mimdsim.numerics.fused import whole_tensors as kernels
from mimdsim.numerics.fused.interpreted import WIDTH
from mimdsim.numerics.sparse import losses

WHOLE = np.array([0]), np.array([WIDTH])  # all columns of a block


class WholeLoss:
    """The loss of every sample and the scores of its classes, as the last training step left them."""

    def __init__(self, network: SpikingNetwork):
        self.network = network
        loss = training_graph(network).producer(LOSS)
        assert loss is not None
        self._about = loss.attributes
        self.losses = np.zeros(network.batch, np.float64)
        self.scores = np.zeros((network.batch, network.classes), np.float32)
        self.penalties = {name: np.zeros(1, np.float32) for name in network.penalties}

    def of_spikes(self, made: Lists, labels: np.ndarray) -> np.ndarray:
        """Gradient of everything the output layer lists."""
        network, reading = self.network, self.network.loss.reading
        batch, neurons = network.batch, network.layers[-1].neurons
        first = (network.timesteps - 1) * batch if reading == "last" else 0
        totals = np.zeros((network.timesteps * batch if reading == "every" else batch, neurons), np.int32)
        kernels.count_true(first, made.ids, made.starts, made.trues, totals)
        by_timestep = totals.reshape(-1, batch, neurons)
        gradient = self._judge(by_timestep if reading == "every" else totals, by_timestep.sum(axis=0), labels)
        g = np.empty(int(made.starts[-1]), np.float32)
        kernels.list_gradient(first, made.ids, made.starts, gradient.reshape(totals.shape), g)
        return g

    def of_potentials(self, u: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Gradient of the potentials [timesteps, batch, neurons], or [1, batch, neurons] if it is that of every
        timestep."""
        reading = self.network.loss.reading
        (read,) = OPERATIONS["read_out"].evaluate("sum" if reading == "every" else reading, u)
        if reading == "every":
            return self._judge(u, read, labels)
        gradient = self._judge(read, read, labels)
        if reading in ("sum", "mean"):
            return gradient[None] if reading == "sum" else gradient[None] * np.float32(1 / len(u))
        made: np.ndarray = OPERATIONS["read_out_gradient"].evaluate(reading, gradient, u)[0]
        return made

    def _judge(self, read: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Gradient of what is read of the neurons, [batch, neurons] or at every timestep; `scores` are added up."""
        each, samples = self.network.loss.neurons_per_class, np.arange(self.network.batch)
        (self.scores,) = OPERATIONS["pool_classes"].evaluate(each, scores)
        pooled = np.ascontiguousarray(OPERATIONS["pool_classes"].evaluate(each, read)[0])
        gradient, about = np.zeros(pooled.shape, np.float32), self._about
        if isinstance(about, CountTargets):
            targets = float(about.correct), float(about.incorrect), float(about.timesteps)
            losses.squared_error(pooled, labels, self.losses, gradient, samples, *targets)
        else:
            given = pooled, labels, self.losses, gradient, samples, float(about.scale)
            if pooled.ndim == 3:
                losses.weighted_by_timestep(*given, float(about.weight))
            else:
                losses.cross_entropy(*given)
        spread: np.ndarray = OPERATIONS["spread_classes"].evaluate(each, gradient)[0]
        return spread

    def penalise(self, layer: Layer, spikes: Lists, g: np.ndarray) -> None:
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
        parts = np.zeros(len(gradient))

        def squares(first: int, last: int, gradient: np.ndarray = gradient, parts: np.ndarray = parts) -> None:
            for block in range(first, last):
                updates.sum_squares(gradient[block], parts, *WHOLE, np.array([block]))

        share(len(gradient), squares)
        updates.add_parts(parts, totals, np.array([number]))
    updates.clip_factor(totals, factor, np.array([0]), largest_norm, NORM_FLOOR)
    for tensor in tensors:
        rows = tensor.gradient.reshape(-1, WIDTH)

        def scale(first: int, last: int, rows: np.ndarray = rows) -> None:
            updates.scale_all(rows[first:last], factor, *WHOLE)

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
