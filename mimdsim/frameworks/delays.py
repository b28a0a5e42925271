"""Delays that are learned as DCLS has them (Dilated Convolutions with Learnable Spacings), in the terms of
graph/derived.py.

A Dcls1d has a weight and a position P for every synapse, of which it makes taps of a convolution over time. The last
tap reads the youngest spikes: a delay is how far P lies before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mimdsim.frameworks.neurons import number, refusal
from mimdsim.frameworks.origins import Origin, Padded
from mimdsim.graph.derived import Delays, delayed_weights

NARROWEST, EPSILON = 0.27, 1e-7  # the width where SIG is 0; beside the sum of the Gaussian


def delays_of(where: str, module: Any, of: Origin | None) -> Delays:
    """Those of a Dcls1d that reads `of`; raises DescriptionError for what nothing here has."""
    (ages,) = module.dilated_kernel_size
    width = None if module.SIG is None else number(module.SIG.abs() + NARROWEST)
    before, after, *beside = of.zeros if isinstance(of, Padded) else (0, 0)
    pad = f"torch.nn.functional.pad(x, ({ages - 1}, 0))"
    refused = {
        f"has version='{module.version}'; nearest: version='gauss'": module.version != "gauss",
        f"has {module.kernel_count} weights for a synapse; nearest: kernel_count=1": module.kernel_count != 1,
        f"has groups={module.groups}; nearest: groups=1": module.groups != 1,
        f"has stride={module.stride[0]}; nearest: stride=1": module.stride != (1,),
        f"pads by itself, before and after; nearest: padding=0, of x = {pad}": module.padding != (0,),
        "has delays of 0 alone; nearest: torch.nn.Linear": ages == 1,
        "learns its SIG; nearest: SIG.requires_grad = False, and a schedule": width and module.SIG.requires_grad,
        "has a SIG that differs from synapse to synapse; nearest: one for the layer": isinstance(width, tuple),
        "has a mask of its positions; nearest: one of its weights": "P" not in dict(module.named_parameters()),
        f"reads what has {before} zeros before the first timestep, and {ages} taps; nearest: x = {pad}": (
            before != ages - 1
        ),
        f"reads what has {after} more timesteps at its end than layers before it; nearest: so many zeros at the end of "
        f"the example, and x = {pad}": after,
        f"reads zeros beside its inputs; nearest: x = {pad}": any(beside),
    }
    for problem in (text for text, wrong in refused.items() if wrong):
        raise refusal(f"{where} {problem}")
    assert isinstance(width, float)
    return Delays(ages=ages, width=width, final_width=width, epsilon=EPSILON)


def delay_of(ages: int, positions: np.ndarray) -> np.ndarray:
    """float64[inputs, neurons], in timesteps, of P [1, neurons, inputs, 1]."""
    found: np.ndarray = (ages - 1) // 2 - positions[0, :, :, 0].T
    return found


def position_of(module: torch.nn.Module, name: str, delay: np.ndarray) -> np.ndarray:
    """P, [inputs, neurons], of delays that were trained; name: of the Dcls1d in the module."""
    of: Any = module.get_submodule(name)
    return np.asarray((of.dilated_kernel_size[0] - 1) // 2 - delay)


def at_every_age(
    delays: Delays, spikes: np.ndarray, weights: np.ndarray, delay: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Spikes [timesteps, samples, inputs] of every age side by side, and the weights of all."""
    timesteps = len(spikes)
    padded = np.concatenate([np.zeros((delays.ages - 1, *spikes.shape[1:]), spikes.dtype), spikes])
    aged = [padded[delays.ages - 1 - age :][:timesteps] for age in range(delays.ages)]
    matrices = delayed_weights(delays.ages, delays.epsilon, weights, delay, np.array([delays.width]))
    return np.concatenate(aged, axis=-1), np.concatenate(matrices)
