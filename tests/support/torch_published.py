"""Networks of published code: planes side by side (torch.cat), planes that read themselves, norms before weights, and
balanced resonate-and-fire neurons."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
snn = pytest.importorskip("snntorch")
neuron = pytest.importorskip("spikingjelly.activation_based.neuron")
jelly = pytest.importorskip("spikingjelly.activation_based.layer")
functional = pytest.importorskip("spikingjelly.activation_based.functional")
jelly_surrogate = pytest.importorskip("spikingjelly.activation_based.surrogate")
nn: Any = torch.nn


class DenseLayer(nn.Module):  # type: ignore[misc]
    """Of a DenseNet: its planes beside those that it reads."""

    def __init__(self, channels: int, growth: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, growth, 3, padding=1, bias=False)
        self.norm, self.lif = nn.BatchNorm2d(growth), snn.Leaky(beta=0.9, init_hidden=True)

    def forward(self, x: Any) -> Any:
        return torch.cat([x, self.lif(self.norm(self.conv(x)))], 1)


class DenseNet(nn.Module):  # type: ignore[misc]
    """Two dense blocks and a transition between them, by timestep; the read-out pools all planes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), snn.Leaky(beta=0.9, init_hidden=True)
        )
        self.first = nn.Sequential(DenseLayer(4, 3), DenseLayer(7, 3))
        self.between = nn.Sequential(
            nn.Conv2d(10, 5, 1, bias=False), nn.BatchNorm2d(5), snn.Leaky(beta=0.9, init_hidden=True), nn.AvgPool2d(2)
        )
        self.second = nn.Sequential(DenseLayer(5, 3), DenseLayer(8, 3))
        self.pool, self.last = nn.AdaptiveAvgPool2d(1), nn.Linear(11, 6)
        self.read = snn.Leaky(beta=0.95, init_hidden=True, output=True)

    def forward(self, x: Any) -> Any:
        from snntorch import utils

        utils.reset(self)
        spikes = []
        for step in x:
            made = self.second(self.between(self.first(self.stem(step))))
            spikes.append(self.read(self.last(self.pool(made).flatten(1)))[0])
        return torch.stack(spikes)


def lif() -> Any:
    return neuron.LIFNode(tau=2.0, surrogate_function=jelly_surrogate.ATan(), detach_reset=True)


class Fire(nn.Module):  # type: ignore[misc]
    """Of a SqueezeNet, all timesteps at once."""

    def __init__(self, channels: int, squeezed: int, expanded: int):
        super().__init__()
        self.squeeze, self.squeezed = jelly.Conv2d(channels, squeezed, 1, bias=False), lif()
        self.norms = nn.ModuleList(
            [jelly.BatchNorm2d(squeezed), jelly.BatchNorm2d(expanded), jelly.BatchNorm2d(expanded)]
        )
        self.expand1, self.one = jelly.Conv2d(squeezed, expanded, 1, bias=False), lif()
        self.expand3, self.three = jelly.Conv2d(squeezed, expanded, 3, padding=1, bias=False), lif()

    def forward(self, x: Any) -> Any:
        x = self.squeezed(self.norms[0](self.squeeze(x)))
        one = self.one(self.norms[1](self.expand1(x)))
        return torch.cat([one, self.three(self.norms[2](self.expand3(x)))], dim=2)


class SqueezeNet(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            jelly.Conv2d(2, 6, 3, padding=1, bias=False), jelly.BatchNorm2d(6), lif(), Fire(6, 3, 4),
            jelly.MaxPool2d(2, 2), Fire(8, 3, 5), jelly.MaxPool2d(2, 2),
            jelly.Flatten(), jelly.Dropout(0.0), jelly.Linear(10, 6), lif(),
        )  # fmt: skip
        functional.set_step_mode(self, "m")

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Inception(nn.Module):  # type: ignore[misc]
    """Branches with kernels of several sizes over one dimension, and a pool; what they send is side by side, and read
    by a norm behind weights."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(3, 2, size, padding=size // 2) for size in (1, 3, 5)])
        self.lifs = nn.ModuleList([snn.Leaky(beta=beta) for beta in (0.7, 0.8, 0.9)])
        self.mix, self.mixed = nn.Conv1d(9, 4, 3), snn.Leaky(beta=0.9)
        self.wide, self.norm, self.lif = nn.Linear(32 + 90, 12, bias=False), nn.BatchNorm1d(12), snn.Leaky(beta=0.8)
        self.last, self.read = nn.Linear(12, 6), snn.Leaky(beta=0.95)

    def forward(self, x: Any) -> Any:
        states = [each.reset_mem() for each in (*self.lifs, self.mixed, self.lif, self.read)]
        spikes = []
        for step in x:
            made = [step]
            for number, (conv, cell) in enumerate(zip(self.convs, self.lifs, strict=True)):
                sent, states[number] = cell(conv(step), states[number])
                made.append(sent)
            joined = torch.cat(made, dim=1)
            mixed, states[3] = self.mixed(self.mix(joined), states[3])
            flat = torch.cat([mixed.flatten(1), joined.flatten(1)], dim=1)
            sent, states[4] = self.lif(self.norm(self.wide(flat)), states[4])
            sent, states[5] = self.read(self.last(sent), states[5])
            spikes.append(sent)
        return torch.stack(spikes)


class OwnPlanes(nn.Module):  # type: ignore[misc]
    """Planes with a kernel over their own spikes, written out: by weights of its own, or as one with the input's."""

    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2 + 4 * joined, 4, 3, padding=1)
        self.own = None if joined else nn.Conv2d(4, 4, 5, padding=2, bias=False)
        self.lif, self.last, self.read = snn.Leaky(beta=0.8), nn.Linear(64, 6), snn.Leaky(beta=0.95)

    def forward(self, x: Any) -> Any:
        one, out, spikes = self.lif.reset_mem(), self.read.reset_mem(), []
        sent = torch.zeros(x.shape[1], 4, *x.shape[3:], dtype=x.dtype)
        for step in x:
            given = torch.cat([step, sent], 1) if self.own is None else step
            current = self.conv(given)
            sent, one = self.lif(current if self.own is None else current + self.own(sent), one)
            made, out = self.read(self.last(sent.flatten(1)), out)
            spikes.append(made)
        return torch.stack(spikes)


class NormedBefore(nn.Module):  # type: ignore[misc]
    """Norms of spikes before the weights, as in pre-activation networks; all timesteps at once, or one by one."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            jelly.Conv2d(2, 4, 3, padding=1, bias=False), lif(), jelly.BatchNorm2d(4), jelly.Conv2d(4, 5, 3), lif(),
            jelly.AvgPool2d(2), jelly.Flatten(), jelly.Linear(5, 12), lif(), jelly.BatchNorm1d(12),
            jelly.Linear(12, 6), lif(),
        )  # fmt: skip
        self.mode = mode
        functional.set_step_mode(self, mode)

    def forward(self, x: Any) -> Any:
        functional.reset_net(self)
        return self.layers(x) if self.mode == "m" else torch.stack([self.layers(step) for step in x])


class PreActivation(nn.Module):  # type: ignore[misc]
    """A DenseNet whose norms come first (Cordone et al. 2022); kernels of two sizes make the currents of its stem."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.stem = nn.ModuleList([jelly.Conv2d(2, 2, 3, padding=1, bias=False), jelly.Conv2d(2, 2, 1, bias=False)])
        self.norms = nn.ModuleList([jelly.BatchNorm2d(channels) for channels in (4, 7, 10)])
        self.convs = nn.ModuleList(
            [jelly.Conv2d(4, 3, 3, padding=1), jelly.Conv2d(7, 3, 3, padding=1), jelly.Conv2d(10, 5, 1)]
        )
        self.lifs = nn.ModuleList([lif() for _ in range(5)])
        self.pool, self.last, self.mode = jelly.AvgPool2d(4), jelly.Linear(5, 6), mode
        functional.set_step_mode(self, mode)

    def _layers(self, x: Any, channels: int) -> Any:
        made = self.lifs[0](torch.cat([conv(x) for conv in self.stem], channels))
        for norm, conv, cell in zip(self.norms[:2], self.convs[:2], self.lifs[1:3], strict=True):
            made = torch.cat([made, cell(conv(norm(made)))], channels)
        made = self.pool(self.lifs[3](self.convs[2](self.norms[2](made))))
        return self.lifs[4](self.last(made.flatten(channels)))

    def forward(self, x: Any) -> Any:
        functional.reset_net(self)
        return self._layers(x, 2) if self.mode == "m" else torch.stack([self._layers(step, 1) for step in x])


class Fires(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient / (1 + 10 * x.abs()) ** 2


class BalancedResonators(nn.Module):  # type: ignore[misc]
    """Higuchi et al. 2024: damping that keeps the oscillation from growing, and a refractory state."""

    def __init__(self, inputs: int, neurons: int, dt: float = 0.05):
        super().__init__()
        self.fc, self.dt = nn.Linear(inputs + neurons, neurons, bias=False), dt
        self.omega = nn.Parameter(torch.linspace(3.0, 9.0, neurons))
        self.offset = nn.Parameter(torch.linspace(0.2, 1.0, neurons))

    def forward(self, x: Any, states: Any) -> Any:
        z, u, v, q = states
        current, omega = self.fc(torch.cat((x, z), dim=1)), torch.abs(self.omega)
        damping = (-1 + torch.sqrt(1 - torch.square(self.dt * omega))) / self.dt - torch.abs(self.offset) - q
        made = u + damping * u * self.dt - omega * v * self.dt + current * self.dt
        v = v + omega * u * self.dt + damping * v * self.dt
        z = Fires.apply(made - 1.0 - q)
        return z, made, v, q.mul(0.9) + z


class Balanced(nn.Module):  # type: ignore[misc]
    """A layer of them, recurrent, and a leaky read-out."""

    def __init__(self, inputs: int, hidden: int, classes: int):
        super().__init__()
        self.cell, self.out, self.hidden = BalancedResonators(inputs, hidden), nn.Linear(hidden, classes), hidden

    def forward(self, x: Any) -> Any:
        states = [torch.zeros(x.shape[1], self.hidden, dtype=x.dtype) for _ in range(4)]
        potential: Any = torch.zeros(x.shape[1], self.out.out_features, dtype=x.dtype)
        made = []
        for step in x:
            states = self.cell(step, states)
            potential = 0.9 * potential + 0.1 * self.out(states[0])
            made.append(potential)
        return torch.stack(made)
