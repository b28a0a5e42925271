"""The PyTorch side of `training_speed.py --family populations`: excitatory and inhibitory neurons drive each other.

Excitatory neurons read the input and the inhibitory ones, these read the excitatory ones, the output reads the
excitatory ones, all a timestep later. No autograd: gradients are written out, with two thresholds and detached resets
as in mimdsim. What does not depend on the loop over timesteps (currents of the input, the output layer, gradients of
weights) is one product over all of them. A way is named by one of each of

    products of the pair    bag: lists of spikes by embedding bags and sampled products; dense: of all neurons
    neurons of a timestep   eager, or compiled: torch.compile
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from training_speed_sparse import Listed

Step = tuple[torch.Tensor, torch.Tensor]


def listed_of(chosen: torch.Tensor) -> Listed:
    """What is true in [places, neurons]."""
    place, ids = np.divmod(np.flatnonzero(chosen.numpy().reshape(-1)), chosen.shape[1])
    return Listed.of(place, ids, len(chosen))


def advance(v: torch.Tensor, current: torch.Tensor, beta: float) -> Step:
    """Potentials a timestep later, and who spikes."""
    v = v * beta + current - (v > 1.0).to(v.dtype)
    return v, v > 1.0


def go_back(
    q: torch.Tensor, g: torch.Tensor, u: torch.Tensor, beta: float, second: float, slope: float
) -> torch.Tensor:
    """Adjoints of a timestep from those of the timestep after and gradients of the spikes."""
    near = ((u - 1.0).abs() * slope + 1.0) ** -2
    return q * beta + torch.where(u > second, g * near, 0.0)


class Pair:
    """Products with weights [inputs, neurons] of one timestep or of many, by lists or of all neurons."""

    def __init__(self, by_lists: bool):
        self.by_lists = by_lists

    def currents(self, spikes: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """[places, neurons] of spikes [places, inputs], true or false."""
        return listed_of(spikes).sums(weights, "bag") if self.by_lists else spikes.to(weights.dtype) @ weights

    def of_spikes(self, q: torch.Tensor, weights: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        """Gradients of spikes [places, inputs], where they are near the threshold."""
        if not self.by_lists:
            return q @ weights.t()
        place, ids = np.divmod(np.flatnonzero(near.numpy().reshape(-1)), near.shape[1])
        found = Listed.of(place, ids, len(near)).products([q], [weights])
        made = torch.zeros(near.shape)
        made[torch.from_numpy(place), torch.from_numpy(ids)] = found
        return made

    def of_weights(self, spikes: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        if not self.by_lists:
            return spikes.to(q.dtype).t() @ q
        return listed_of(spikes).by_id(spikes.shape[1]).sums(q, "bag")


def training_step(problem: Any, way: str, threads: int) -> Callable[[], float]:
    """A function that does one training step and returns its loss; its `gradients()` are [inputs, neurons]."""
    torch.set_num_threads(threads)
    _, products, loop = way.split("_")
    pair = Pair(products == "bag")
    ahead, back = advance, go_back
    if loop == "compiled":
        ahead, back = torch.compile(advance, dynamic=False), torch.compile(go_back, dynamic=False)
    names = ("w0", "r0", "w1", "w2")  # input -> E, I -> E, E -> I, E -> output
    weights = {name: torch.nn.Parameter(torch.from_numpy(problem[name].copy())) for name in names}
    beta, second, slope, scale = (float(problem[name]) for name in ("beta", "second_threshold", "slope", "logit_scale"))
    timesteps, batch, _ = problem["ids"].shape
    listed = np.arange(problem["ids"].shape[2]) < problem["counts"][..., :1]
    t_of, b_of, _ = np.nonzero(listed)
    source = torch.zeros(timesteps * batch, len(weights["w0"]), dtype=torch.bool)
    source[t_of * batch + b_of, problem["ids"][listed]] = True
    given = Listed.of(t_of * batch + b_of, problem["ids"][listed], timesteps * batch)
    labels = torch.tensor(problem["labels"], dtype=torch.long)
    optimiser = torch.optim.SGD(list(weights.values()), lr=0.0)
    dense_source = source.float()

    def delayed(spikes: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros_like(spikes[:1]), spikes[:-1]]).flatten(0, 1)

    @torch.no_grad()
    def step() -> float:
        w0, r0, w1, w2 = weights.values()
        into_e = (given.sums(w0, "bag") if pair.by_lists else dense_source @ w0).view(timesteps, batch, -1)
        us = [torch.empty(timesteps, batch, w.shape[1]) for w in (w0, w1, w2)]
        fired = [torch.empty(u.shape, dtype=torch.bool) for u in us]
        e, i, o = (torch.zeros_like(u[0]) for u in us)
        for t in range(timesteps):
            first, other = into_e[t], torch.zeros_like(i)
            if t:
                first = first + pair.currents(fired[1][t - 1], r0)
                other = pair.currents(fired[0][t - 1], w1)
            for each, (v, current) in enumerate(((e, first), (i, other))):
                us[each][t], fired[each][t] = ahead(v, current, beta)
            e, i = us[0][t], us[1][t]
        into_o = pair.currents(delayed(fired[0]), w2).view(timesteps, batch, -1)
        for t in range(timesteps):
            us[2][t], fired[2][t] = ahead(o, into_o[t], beta)
            o = us[2][t]
        logits = scale * fired[2].float().sum(0)
        judged = torch.softmax(logits, 1)
        judged[torch.arange(batch), labels] -= 1
        judged *= scale / batch
        qs = [torch.empty_like(u) for u in us]
        q = torch.zeros_like(us[2][0])
        for t in range(timesteps - 1, -1, -1):
            q = qs[2][t] = back(q, judged, us[2][t], beta, second, slope)
        later = torch.cat([qs[2][1:], torch.zeros_like(qs[2][:1])]).flatten(0, 1)
        near = [u > second for u in us[:2]]
        from_o = pair.of_spikes(later, w2, near[0].flatten(0, 1)).view(us[0].shape)
        e, i = torch.zeros_like(us[0][0]), torch.zeros_like(us[1][0])
        for t in range(timesteps - 1, -1, -1):
            to_e, to_i = from_o[t], torch.zeros_like(i)
            if t + 1 < timesteps:
                to_e = to_e + pair.of_spikes(i, w1, near[0][t])
                to_i = pair.of_spikes(e, r0, near[1][t])
            e = qs[0][t] = back(e, to_e, us[0][t], beta, second, slope)
            i = qs[1][t] = back(i, to_i, us[1][t], beta, second, slope)
        q_e, q_i, q_o = (each.flatten(0, 1) for each in qs)
        w0.grad = given.by_id(len(w0)).sums(q_e, "bag") if pair.by_lists else dense_source.t() @ q_e
        r0.grad, w1.grad, w2.grad = (
            pair.of_weights(delayed(spikes), adjoints)
            for spikes, adjoints in ((fired[1], q_e), (fired[0], q_i), (fired[0], q_o))
        )
        optimiser.step()
        return float(functional.cross_entropy(logits, labels))

    step.gradients = lambda: [weights[name].grad.numpy() for name in ("w0", "w1", "w2")]  # type: ignore[attr-defined,union-attr]
    return step
