"""The dense training step of a feed-forward spiking network in PyTorch, written out, in two orders of operations.

Neurons as in mimdsim's graph: v = decay * v * (v <= 1) + scale * current, a spike where v > 1, one timestep of delay
between layers, surrogate 1 / (10 |v - 1| + 1)^2 above the second threshold, gradient passed through the reset,
cross-entropy of spike counts. `looped` keeps time outermost, as the published Keras program does; `hoisted` takes each
layer's products of all timesteps at once. Both return the same gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DECAY, SCALE, THRESHOLD, SECOND_THRESHOLD, SLOPE = 0.95, 0.5, 1.0, 0.9, 10.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Widths from input to output, timesteps and batch."""

    widths: tuple[int, ...]
    timesteps: int
    batch: int

    @property
    def title(self) -> str:
        return "-".join(str(width) for width in self.widths)


def given(torch: Any, shape: Shape, device: str, dtype: Any, seed: int = 1) -> tuple[Any, list[Any], Any]:
    """(input [T, B, n0] of 0 and 1, weights, labels), about 1 % of the input firing."""
    draw = torch.Generator().manual_seed(seed)
    spikes = (torch.rand((shape.timesteps, shape.batch, shape.widths[0]), generator=draw) < 0.01).to(device, dtype)
    weights = []
    for inputs, neurons in zip(shape.widths, shape.widths[1:], strict=False):
        limit = 4.0 * (6.0 / inputs) ** 0.5
        drawn = torch.rand((inputs, neurons), generator=draw) * 2 * limit - limit
        weights.append(drawn.to(device, dtype))
    labels = torch.randint(shape.widths[-1], (shape.batch,), generator=draw).to(device)
    return spikes, weights, labels


def _integrate(torch: Any, v: Any, current: Any) -> Any:
    return DECAY * torch.where(v > THRESHOLD, torch.zeros_like(v), v) + SCALE * current


def _surrogate(v: Any, second: float) -> Any:
    return (v > second).to(v.dtype) / (SLOPE * (v - THRESHOLD).abs() + 1) ** 2


def _loss_gradient(torch: Any, counts: Any, labels: Any) -> Any:
    chance = torch.softmax(counts.float(), 1)
    chance[torch.arange(len(labels), device=labels.device), labels] -= 1
    return (chance / len(labels)).to(counts.dtype)


def looped(torch: Any, spikes: Any, weights: list[Any], labels: Any) -> tuple[list[Any], list[Any]]:
    """(potentials of every layer [T, B, n], gradients), one timestep after another."""
    timesteps, batch, _ = spikes.shape
    fired = [spikes.new_zeros((batch, w.shape[1])) for w in weights]
    v = [torch.zeros_like(each) for each in fired]
    states: list[list[Any]] = [[] for _ in weights]
    for t in range(timesteps):
        sources = [spikes[t], *fired[:-1]]
        currents = [source @ weight for source, weight in zip(sources, weights, strict=True)]
        v = [_integrate(torch, each, current) for each, current in zip(v, currents, strict=True)]
        fired = [(each > THRESHOLD).to(each.dtype) for each in v]
        for layer, each in enumerate(v):
            states[layer].append(each)
    counts = sum((each > THRESHOLD).to(each.dtype) for each in states[-1])
    outer = _loss_gradient(torch, counts, labels)
    dv = [torch.zeros_like(each) for each in v]
    gradients = [torch.zeros_like(w) for w in weights]
    handed: list[Any] = [None] * len(weights)
    for t in reversed(range(timesteps)):
        q: list[Any] = []
        for layer in range(len(weights)):
            last = layer == len(weights) - 1
            arriving = outer if last else handed[layer]
            dv[layer] = DECAY * dv[layer]
            if arriving is not None:
                second = -100.0 if last else SECOND_THRESHOLD
                dv[layer] = dv[layer] + arriving * _surrogate(states[layer][t], second)
            q.append(SCALE * dv[layer])
        for layer in range(len(weights)):
            if layer == 0:
                source = spikes[t]
            elif t:
                source = (states[layer - 1][t - 1] > THRESHOLD).to(spikes.dtype)
            else:
                continue
            gradients[layer] += source.T @ q[layer]
            if layer:
                handed[layer - 1] = q[layer] @ weights[layer].T
    return [torch.stack(each) for each in states], gradients


def hoisted(torch: Any, spikes: Any, weights: list[Any], labels: Any) -> tuple[list[Any], list[Any]]:
    """(potentials of every layer [T, B, n], gradients), layer by layer over all timesteps."""
    timesteps, batch, _ = spikes.shape
    sources, states = [spikes], []
    for weight in weights:
        source = sources[-1]
        current = (source.reshape(timesteps * batch, -1) @ weight).reshape(timesteps, batch, -1)
        v, kept = current.new_zeros(current.shape[1:]), []
        for t in range(timesteps):
            v = _integrate(torch, v, current[t])
            kept.append(v)
        states.append(torch.stack(kept))
        fired = (states[-1] > THRESHOLD).to(spikes.dtype)
        sources.append(torch.cat([torch.zeros_like(fired[:1]), fired[:-1]]))
    counts = (states[-1] > THRESHOLD).to(spikes.dtype).sum(0)
    arriving = _loss_gradient(torch, counts, labels).expand(timesteps, -1, -1)
    gradients: list[Any] = [None] * len(weights)
    for layer in reversed(range(len(weights))):
        second = -100.0 if layer == len(weights) - 1 else SECOND_THRESHOLD
        driven = arriving * _surrogate(states[layer], second)
        dv, kept = torch.zeros_like(driven[0]), []
        for t in reversed(range(timesteps)):
            dv = DECAY * dv + driven[t]
            kept.append(dv)
        q = (SCALE * torch.stack(kept[::-1])).reshape(timesteps * batch, -1)
        gradients[layer] = sources[layer].reshape(timesteps * batch, -1).T @ q
        if layer:
            back = (q @ weights[layer].T).reshape(timesteps, batch, -1)
            arriving = torch.cat([back[1:], torch.zeros_like(back[:1])])  # a spike of t is read at t + 1
    return states, gradients
