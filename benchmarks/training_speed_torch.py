"""The PyTorch side of `training_speed.py`: one training step of the same network by four ways of writing it.

Every contender does forward, cross-entropy of spike counts, backward and the same update. They differ as their authors
do in details of reset and surrogate; what they compute is dense in neurons, so that their seconds do not depend on it.

step_wise: snnTorch's Leaky, one timestep after another; layer_wise: all currents of a layer in one product and an
eager loop over time; multi_step: SpikingJelly's LIFNode, torch backend; by_hand: the loop over time and its gradient
as one autograd.Function with buffers, two-threshold gradient and masked reset as in mimdsim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

Forward = Callable[[torch.Tensor], torch.Tensor]


def dense_input(problem: Any) -> torch.Tensor:
    """float32[timesteps, batch, inputs] of zeros and ones from the listed ids."""
    ids, counts = problem["ids"], problem["counts"]
    dense = torch.zeros(*ids.shape[:2], int(problem["widths"][0]))
    listed = np.arange(ids.shape[2]) < counts[..., :1]
    t, b, _ = np.nonzero(listed)
    dense[t, b, ids[listed]] = 1.0
    return dense


def layers_of(problem: Any) -> list[nn.Linear]:
    """Bias-free linear layers with the weights of the problem, the input scale of the neuron multiplied in."""
    made = []
    scale = float((1 - problem["decay"]) * problem["gain"])
    for index in range(len(problem["widths"]) - 1):
        weights = torch.tensor(problem[f"w{index}"].T * scale)
        layer = nn.Linear(weights.shape[1], weights.shape[0], bias=False)
        layer.weight.data.copy_(weights)
        made.append(layer)
    return made


def delayed(spikes: torch.Tensor) -> torch.Tensor:
    """What the next layer reads: the spikes of the timestep before."""
    return torch.cat([torch.zeros_like(spikes[:1]), spikes[:-1]])


class TwoThreshold(torch.autograd.Function):
    """Spike, with the SuperSpike surrogate above the second threshold."""

    @staticmethod
    def forward(context: Any, v: torch.Tensor, second_threshold: float, slope: float) -> torch.Tensor:
        context.save_for_backward(v)
        context.constants = second_threshold, slope
        return (v > 1.0).to(v.dtype)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (v,) = context.saved_tensors
        second_threshold, slope = context.constants
        return gradient * (slope * (v - 1.0).abs() + 1.0) ** -2 * (v > second_threshold), None, None


class LeakyOverTime(torch.autograd.Function):
    """Spikes of all timesteps from currents of all timesteps: one loop forward, one backward, nothing else kept."""

    @staticmethod
    def forward(
        context: Any, current: torch.Tensor, decay: float, second_threshold: float, slope: float
    ) -> torch.Tensor:
        potentials, spikes = torch.empty_like(current), torch.empty_like(current)
        v = torch.zeros_like(current[0])
        for t in range(current.shape[0]):
            v = torch.addcmul(current[t], v, v <= 1.0, value=decay, out=potentials[t])
            torch.gt(v, 1.0, out=spikes[t])
        context.save_for_backward(potentials)
        context.constants = decay, second_threshold, slope
        return spikes

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (potentials,) = context.saved_tensors
        decay, second_threshold, slope = context.constants
        surrogate = (potentials - 1.0).abs_().mul_(slope).add_(1.0).pow_(-2).mul_(potentials > second_threshold)
        surrogate.mul_(gradient)
        kept = potentials <= 1.0
        for t in range(gradient.shape[0] - 2, -1, -1):
            surrogate[t].addcmul_(surrogate[t + 1], kept[t], value=decay)
        return surrogate, None, None, None


def by_hand(problem: Any, linear: list[nn.Linear]) -> Forward:
    constants = float(problem["decay"]), float(problem["second_threshold"]), float(problem["slope"])

    def forward(source: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(linear):
            source = LeakyOverTime.apply(layer(delayed(source) if index else source), *constants)  # type: ignore
        return source.sum(0)

    return forward


def layer_wise(problem: Any, linear: list[nn.Linear]) -> Forward:
    decay, constants = float(problem["decay"]), (float(problem["second_threshold"]), float(problem["slope"]))

    def forward(source: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(linear):
            current = layer(delayed(source) if index else source)
            v, spikes = torch.zeros_like(current[0]), []
            for t in range(current.shape[0]):
                v = decay * v * (v <= 1.0) + current[t]
                spikes.append(TwoThreshold.apply(v, *constants))  # type: ignore
            source = torch.stack(spikes)
        return source.sum(0)

    return forward


def step_wise(problem: Any, linear: list[nn.Linear]) -> Forward:
    import snntorch

    surrogate = snntorch.surrogate.fast_sigmoid(slope=float(problem["slope"]))
    neurons = [
        snntorch.Leaky(beta=float(problem["decay"]), reset_mechanism="zero", spike_grad=surrogate) for _ in linear
    ]

    def forward(source: torch.Tensor) -> torch.Tensor:
        states = [neuron.init_leaky() for neuron in neurons]
        emitted = [torch.zeros(source.shape[1], layer.in_features) for layer in linear[1:]]
        total: Any = 0
        for now in source:
            given = [now, *emitted]
            emitted = []
            for index, (layer, neuron) in enumerate(zip(linear, neurons, strict=True)):
                spikes, states[index] = neuron(layer(given[index]), states[index])
                emitted.append(spikes)
            total = total + emitted.pop()
        return total

    return forward


def multi_step(problem: Any, linear: list[nn.Linear]) -> Forward:
    from spikingjelly.activation_based import functional, neuron, surrogate

    neurons = [
        neuron.LIFNode(
            tau=1 / (1 - float(problem["decay"])),
            decay_input=False,
            v_reset=0.0,
            detach_reset=True,
            surrogate_function=surrogate.ATan(),
            step_mode="m",
        )
        for _ in linear
    ]

    def forward(source: torch.Tensor) -> torch.Tensor:
        for index, (layer, one) in enumerate(zip(linear, neurons, strict=True)):
            functional.reset_net(one)
            source = one(layer(delayed(source) if index else source))
        return source.sum(0)

    return forward


WAYS = {"by_hand": by_hand, "layer_wise": layer_wise, "step_wise": step_wise, "multi_step": multi_step}


def training_step(problem: Any, contender: str, threads: int) -> Callable[[], float]:
    """A function that does one training step and returns its loss."""
    torch.set_num_threads(threads)
    linear = layers_of(problem)
    forward = WAYS[contender](problem, linear)
    source, labels = dense_input(problem), torch.tensor(problem["labels"], dtype=torch.long)
    parameters = [layer.weight for layer in linear]
    optimiser: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=0.0)
    if str(problem["optimiser"]) == "adam":
        optimiser = torch.optim.Adam(parameters, lr=0.0, eps=1e-7)
    scale = float(problem["logit_scale"])

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(scale * forward(source), labels)
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    gain = np.float32((1 - problem["decay"]) * problem["gain"])  # of the weights, which it is multiplied into
    step.gradients = lambda: [layer.weight.grad.numpy().T * gain for layer in linear]  # type: ignore[attr-defined]
    return step
