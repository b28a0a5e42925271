"""The PyTorch side of `training_speed.py --family`: other neurons of the linear family, by autograd over timesteps.

Two ways of products with weights: `linear_dense`, one dense product of all timesteps of a layer (of every timestep, for
synapses of a layer onto itself); `linear_bag`, lists of spikes by the operators that are fastest in
`training_speed_sparse.py` (embedding bags; sampled products for gradients of what is listed). Resets are detached, as
in snnTorch; the loop over time is eager, in operators on all neurons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from training_speed_sparse import Listed
from training_speed_torch import TwoThreshold, dense_input


def listed_of(dense: torch.Tensor) -> Listed:
    """What is not zero in [places, neurons]."""
    place, ids = np.divmod(np.flatnonzero(dense.numpy().reshape(-1)), dense.shape[1])
    return Listed.of(place, ids, len(dense))


class BagProduct(torch.autograd.Function):
    """spikes @ weights; the gradient of the spikes only where `near` is not zero."""

    @staticmethod
    def forward(context: Any, spikes: torch.Tensor, weights: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        listed = listed_of(spikes.detach())
        context.lists = listed, near
        context.save_for_backward(weights)
        return listed.sums(weights, "bag")

    @staticmethod
    def backward(context: Any, q: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (weights,), (listed, near) = context.saved_tensors, context.lists
        q = q.contiguous()
        made = None
        if context.needs_input_grad[0]:
            wanted = listed_of(near)
            place = torch.repeat_interleave(torch.arange(len(near)), torch.from_numpy(np.diff(wanted.starts.numpy())))
            made = torch.zeros(near.shape)
            made[place, wanted.ids.long()] = wanted.products([q], [weights])
        return made, listed.by_id(len(weights)).sums(q, "bag"), None


class DenseProduct:
    @staticmethod
    def apply(spikes: torch.Tensor, weights: torch.Tensor, _near: torch.Tensor) -> torch.Tensor:
        return spikes @ weights


def training_step(problem: Any, way: str, threads: int) -> Callable[[], float]:
    """A function that does one training step and returns its loss; its `gradients()` are [inputs, neurons]."""
    torch.set_num_threads(threads)
    family, second, slope = (problem[name].item() for name in ("family", "second_threshold", "slope"))
    product: Any = BagProduct if way == "linear_bag" else DenseProduct
    count = len(problem["widths"]) - 1
    weights = [torch.nn.Parameter(torch.from_numpy(problem[f"w{index}"].copy())) for index in range(count)]
    own = {
        index: torch.nn.Parameter(torch.from_numpy(problem[f"r{index}"].copy()))
        for index in range(count)
        if f"r{index}" in problem
    }
    source, labels = dense_input(problem), torch.tensor(problem["labels"], dtype=torch.long)
    optimiser = torch.optim.SGD([*weights, *own.values()], lr=0.0)
    given = {name: float(problem[name]) for name in ("alpha", "beta", "rho", "kappa")}

    def advance(
        states: list[torch.Tensor], current: torch.Tensor, fired: torch.Tensor
    ) -> tuple[list[torch.Tensor], Any]:
        """The states a timestep later, and what is compared with the threshold."""
        if family == "leaky":
            v = given["beta"] * states[0] + current - fired
            return [v], v
        if family == "synaptic":
            i = given["alpha"] * states[1] + current
            v = given["beta"] * states[0] + i - fired
            return [v, i], v
        v = given["beta"] * states[0] + current - fired
        a = given["rho"] * states[1] + fired
        return [v, a], v - given["kappa"] * a

    def layer(index: int, source: torch.Tensor, near: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = source.shape[0] * source.shape[1]
        current = product.apply(source.reshape(places, -1), weights[index], near.reshape(places, -1))
        currents = current.view(*source.shape[:2], -1).unbind()
        zero = torch.zeros_like(currents[0])
        if family == "adaptive" and index == count - 1:  # potentials are read
            v, every = zero, []
            for each in currents:
                v = given["beta"] * v + each
                every.append(v)
            return torch.stack(every), zero
        states, spikes, fired, made, listed = [zero, zero], zero, zero, [], []
        for t, each in enumerate(currents):
            if t and index in own:
                each = each + product.apply(spikes, own[index], listed[-1])
            states, u = advance(states, each, fired)
            spikes = TwoThreshold.apply(u, second, slope)  # type: ignore[no-untyped-call]
            fired = spikes.detach()
            made.append(spikes)
            listed.append((u.detach() > second).float() if way == "linear_bag" else zero)
        return torch.stack(made), torch.stack(listed)

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        spikes, near = source, source
        for index in range(count):
            if index:
                spikes, near = (torch.cat([torch.zeros_like(each[:1]), each[:-1]]) for each in (spikes, near))
            spikes, near = layer(index, spikes, near)
        loss = functional.cross_entropy(float(problem["logit_scale"]) * spikes.sum(0), labels)
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    step.gradients = lambda: [w.grad.numpy() for w in weights]  # type: ignore[attr-defined,union-attr]
    return step
