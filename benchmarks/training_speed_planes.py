"""The PyTorch side of `training_speed.py --family planes`: one training step of a network of planes.

`conv_first`, `conv_last`: every convolution is one call over all timesteps and samples, with channels outermost or
innermost in memory; neurons and their gradients are loops over timesteps compiled by numba, one pass over memory shared
by as many threads. Dense products only: PyTorch has no convolution of lists of spikes on processors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from torch.nn import functional
from training_speed_torch import dense_input

CHUNK = 1024  # neurons that a thread takes at a time through all timesteps


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def integrate(current, potentials, spikes, decay):  # type: ignore[no-untyped-def]
    """[timesteps, neurons] each."""
    timesteps, neurons = current.shape
    for chunk in numba.prange(-(-neurons // CHUNK)):
        first, last = chunk * CHUNK, min(neurons, (chunk + 1) * CHUNK)
        v = np.zeros(last - first, np.float32)
        for t in range(timesteps):
            given, u, s = current[t, first:last], potentials[t, first:last], spikes[t, first:last]
            for n in range(len(v)):
                v[n] = (np.float32(0) if v[n] > np.float32(1) else decay * v[n]) + given[n]
                u[n] = v[n]
                s[n] = np.float32(1) if v[n] > np.float32(1) else np.float32(0)


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def pull_back(potentials, gradient, q, decay, slope):  # type: ignore[no-untyped-def]
    timesteps, neurons = potentials.shape
    one = np.float32(1)
    for chunk in numba.prange(-(-neurons // CHUNK)):
        first, last = chunk * CHUNK, min(neurons, (chunk + 1) * CHUNK)
        held = np.zeros(last - first, np.float32)
        for back in range(timesteps):
            t = timesteps - 1 - back
            u, g, made = potentials[t, first:last], gradient[t, first:last], q[t, first:last]
            for n in range(len(held)):
                scaled = slope * abs(u[n] - one) + one
                kept = np.float32(0) if u[n] > one else decay * held[n]
                held[n] = g[n] / (scaled * scaled) + kept
                made[n] = held[n]


def _rows(values: torch.Tensor, timesteps: int) -> np.ndarray:
    """[timesteps, neurons] in the order in which they lie in memory."""
    last = values.is_contiguous(memory_format=torch.channels_last) and not values.is_contiguous()
    rows: np.ndarray = (values.permute(0, 2, 3, 1) if last else values).reshape(timesteps, -1).numpy()
    return rows


class Leaky(torch.autograd.Function):
    """Spikes from currents [timesteps * batch, channels, height, width]; every neuron has a gradient."""

    @staticmethod
    def forward(context: Any, current: torch.Tensor, timesteps: int, decay: float, slope: float) -> torch.Tensor:
        potentials, spikes = torch.empty_like(current), torch.empty_like(current)
        given = (_rows(each, timesteps) for each in (current, potentials, spikes))
        integrate(*given, np.float32(decay))
        context.save_for_backward(potentials)
        context.constants = timesteps, decay, slope
        return spikes

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (potentials,) = context.saved_tensors
        timesteps, decay, slope = context.constants
        q, g = torch.empty_like(potentials), torch.empty_like(potentials)
        if gradient.stride() != potentials.stride():
            gradient = g.copy_(gradient)
        given = (_rows(each, timesteps) for each in (potentials, gradient, q))
        pull_back(*given, np.float32(decay), np.float32(slope))
        return q, None, None, None


def training_step(problem: Any, way: str, threads: int) -> Callable[[], float]:
    """A function that does one training step and returns its loss; its `gradients()` are [fan-in, channels]."""
    from training_speed import network_of

    torch.set_num_threads(threads)
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    layout = torch.channels_last if way == "conv_last" else torch.contiguous_format
    layers, gain = network_of(problem).layers, float((1 - problem["decay"]) * problem["gain"])
    weights, biases = [], []
    for index, layer in enumerate(layers):
        about = layer.convolution
        kernel = (about.channels, about.read.channels, *about.window.kernel) if about else (layer.neurons, -1, 1, 1)
        made = torch.from_numpy(np.ascontiguousarray(problem[f"w{index}"].T)).reshape(kernel) * gain
        weights.append(torch.nn.Parameter(made.contiguous(memory_format=layout)))
        biases.append(torch.nn.Parameter(torch.zeros(len(made))))
    source = dense_input(problem)
    timesteps, batch = source.shape[:2]
    assert layers[0].convolution is not None
    source = source.reshape(-1, *layers[0].convolution.planes.shape).contiguous(memory_format=layout)
    labels = torch.tensor(problem["labels"], dtype=torch.long)
    optimiser = torch.optim.SGD([*weights, *biases], lr=0.0)
    constants = timesteps, float(problem["decay"]), float(problem["slope"])

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        spikes = source
        for layer, weight, bias in zip(layers, weights, biases, strict=True):
            about, padding = layer.convolution, 0
            if about:
                padding = about.window.padding
                if about.before:
                    spikes = functional.avg_pool2d(spikes, about.before.window.kernel, divisor_override=1)
            spikes = Leaky.apply(functional.conv2d(spikes, weight, bias, padding=padding), *constants)  # type: ignore
        counts = spikes.reshape(timesteps, batch, -1).sum(0)
        loss = functional.cross_entropy(float(problem["logit_scale"]) * counts, labels)
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    step.gradients = lambda: [  # type: ignore[attr-defined]
        w.grad.contiguous().reshape(len(w), -1).numpy().T * np.float32(gain) for w in weights if w.grad is not None
    ]
    return step
