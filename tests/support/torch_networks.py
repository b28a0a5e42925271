"""Networks as their authors write them in PyTorch, and one training step of each by PyTorch itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from dcls import Dcls1d
from torch_published import Balanced, DenseNet, Inception, NormedBefore, OwnPlanes, PreActivation, SqueezeNet

torch = pytest.importorskip("torch")
snn = pytest.importorskip("snntorch")
norse = pytest.importorskip("norse.torch")
neuron = pytest.importorskip("spikingjelly.activation_based.neuron")
jelly = pytest.importorskip("spikingjelly.activation_based.layer")
functional = pytest.importorskip("spikingjelly.activation_based.functional")
surrogate = pytest.importorskip("snntorch.surrogate")
jelly_rnn = pytest.importorskip("spikingjelly.activation_based.rnn")
parametric_lif_net = pytest.importorskip("spikingjelly.activation_based.model.parametric_lif_net")
jelly_surrogate = pytest.importorskip("spikingjelly.activation_based.surrogate")

nn: Any = torch.nn
TIMESTEPS, BATCH, INPUTS, HIDDEN, CLASSES = 14, 5, 30, 24, 6


class Loop(nn.Module):  # type: ignore[misc]
    """snnTorch's tutorials: a loop over time, states handed on."""

    def __init__(self, first: Any, last: Any, bias: bool = True):
        super().__init__()
        self.fc1, self.lif1 = nn.Linear(INPUTS, HIDDEN, bias=bias), first
        self.fc2, self.lif2 = nn.Linear(HIDDEN, CLASSES, bias=bias), last

    def forward(self, x: Any) -> Any:
        state1 = self._start(self.lif1)
        state2 = self._start(self.lif2)
        spikes, potentials = [], []
        for step in range(x.size(0)):
            spk1, *state1 = self.lif1(self.fc1(x[step]), *state1)
            state1 = self._own(self.lif1, spk1, state1)
            spk2, *state2 = self.lif2(self.fc2(spk1), *state2)
            state2 = self._own(self.lif2, spk2, state2)
            spikes.append(spk2)
            potentials.append(state2[-1])
        return torch.stack(spikes, dim=0), torch.stack(potentials, dim=0)

    def _start(self, cell: Any) -> list[Any]:
        for name in ("reset_mem",):
            states = getattr(cell, name)()
        return list(states) if isinstance(states, tuple) else [states]

    def _own(self, cell: Any, spikes: Any, states: list[Any]) -> list[Any]:
        return [spikes, *states] if hasattr(cell, "recurrent") else states


class HandRecurrent(nn.Module):  # type: ignore[misc]
    """A recurrence written by hand, batch first."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.rec, self.out = (
            nn.Linear(INPUTS, HIDDEN),
            nn.Linear(HIDDEN, HIDDEN, bias=False),
            nn.Linear(HIDDEN, CLASSES),
        )
        self.hidden = snn.Leaky(beta=0.85, reset_mechanism="zero", spike_grad=surrogate.fast_sigmoid(slope=10))
        self.read = snn.Leaky(beta=0.9, reset_mechanism="none")

    def forward(self, x: Any) -> Any:
        mem, mem_out = self.hidden.reset_mem(), self.read.reset_mem()
        spk = torch.zeros(x.shape[0], HIDDEN, dtype=x.dtype)
        recorded = []
        for t in range(x.shape[1]):
            spk, mem = self.hidden(self.inp(x[:, t]) + self.rec(spk), mem)
            out, mem_out = self.read(self.out(spk), mem_out)
            recorded.append(out)
        return torch.stack(recorded).sum(0)


class Products(nn.Module):  # type: ignore[misc]
    """Weights as bare parameters, as in the SpyTorch tutorials."""

    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(INPUTS, HIDDEN) * 0.3)
        self.w2 = nn.Parameter(torch.randn(CLASSES, HIDDEN) * 0.4)
        self.a, self.b = snn.Synaptic(alpha=0.8, beta=0.9), snn.Leaky(beta=0.95)

    def forward(self, x: Any) -> Any:
        syn, mem = self.a.reset_mem()
        mem2 = self.b.reset_mem()
        out = []
        for step in x:
            spk, syn, mem = self.a(step @ self.w1, syn, mem)
            spk2, mem2 = self.b(torch.nn.functional.linear(spk, self.w2), mem2)
            out.append(spk2)
        return torch.stack(out)


class Masked(nn.Module):  # type: ignore[misc]
    """Sparse weights as they are often trained: by a mask that does not change."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES, bias=False)
        self.lif1, self.lif2 = snn.Leaky(beta=0.9), snn.Leaky(beta=0.95)
        self.register_buffer("mask", (torch.rand(HIDDEN, INPUTS) < 0.4).float())

    def forward(self, x: Any) -> Any:
        mem1, mem2, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for step in x:
            weight = self.first.weight * self.mask
            spk, mem1 = self.lif1(torch.nn.functional.linear(step, weight, self.first.bias), mem1)
            spk, mem2 = self.lif2(self.last(spk), mem2)
            out.append(spk)
        return torch.stack(out)


class Dale(nn.Module):  # type: ignore[misc]
    """Excitatory and inhibitory populations: weights as `kind` of parameters, inhibition subtracted, or by a mask of
    signs with no neuron onto itself."""

    def __init__(self, kind: str = "abs") -> None:
        super().__init__()
        self.kind, excite, inhibit = kind, HIDDEN * 3 // 4, HIDDEN // 4
        self.excite, self.inhibit = snn.Leaky(beta=0.9), snn.Leaky(beta=0.85)
        self.read = snn.Leaky(beta=0.95)
        self.in_e, self.in_i = nn.Linear(INPUTS, excite), nn.Linear(INPUTS, inhibit, bias=False)
        self.ee, self.ei = (nn.Parameter(torch.randn(excite, wide) * 0.2) for wide in (excite, inhibit))
        self.ie = nn.Parameter(torch.randn(inhibit, excite) * 0.2)
        self.out = nn.Linear(excite, CLASSES)
        self.register_buffer("mask", 1 - torch.eye(excite))
        if kind in ("exp", "softplus"):
            with torch.no_grad():
                for each in (self.ee, self.ei, self.ie):
                    each.sub_(2.5)

    def forward(self, x: Any) -> Any:
        functions = {"softplus": torch.nn.functional.softplus, "relu": torch.relu, "exp": torch.exp}
        positive = functions.get(self.kind, torch.abs)
        mem_e, mem_i, mem = self.excite.reset_mem(), self.inhibit.reset_mem(), self.read.reset_mem()
        spk_e, spk_i, recorded = x.new_zeros(x.shape[1], len(self.ee)), x.new_zeros(x.shape[1], len(self.ie)), []
        for step in x:
            own = positive(self.ee) * self.mask if self.kind in ("abs", "relu") else positive(self.ee)
            to_e = self.in_e(step) + spk_e @ own - spk_i @ positive(self.ie)
            to_i = torch.nn.functional.linear(step, self.in_i.weight.abs()) + spk_e @ positive(self.ei)
            spk_e, mem_e = self.excite(to_e, mem_e)
            spk_i, mem_i = self.inhibit(to_i, mem_i)
            spk, mem = self.read(self.out(spk_e), mem)
            recorded.append(spk)
        return torch.stack(recorded)


class Scaled(nn.Module):  # type: ignore[misc]
    """Currents times fixed numbers: of a convolution, of a sum with own spikes, and of both sides of a difference; the
    input and spikes times numbers, of which a bias is not multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pooled = nn.Conv2d(2, 4, 3), nn.AvgPool2d(2)
        self.fc, self.less, self.out = nn.Linear(16, 8), nn.Linear(16, CLASSES, bias=False), nn.Linear(8, CLASSES)
        self.rec = nn.Linear(8, 8, bias=False)
        self.cells = nn.ModuleList(snn.Leaky(beta=0.9) for _ in range(3))

    def forward(self, x: Any) -> Any:
        mems, recorded = [each.reset_mem() for each in self.cells], []
        own = x.new_zeros(x.shape[1], 8)
        for step in x:
            spikes, mems[0] = self.cells[0](10 * self.pooled(self.conv(step * 0.5)), mems[0])
            flat = spikes.flatten(1)
            own, mems[1] = self.cells[1](1.7 * (self.fc(flat) + self.rec(own)), mems[1])
            spikes, mems[2] = self.cells[2](-0.8 * self.out(1.5 * own) - self.less(flat) / 2, mems[2])
            recorded.append(spikes)
        return torch.stack(recorded)


class SignedRecurrence(nn.Module):  # type: ignore[misc]
    """One population with signs per neuron: as a mask of 1, 0 and -1, and as a diagonal matrix; a read-out of what
    excites through a parametrization."""

    def __init__(self) -> None:
        super().__init__()
        excite = HIDDEN * 3 // 4
        self.inp, self.out = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.rec = nn.Parameter(torch.randn(HIDDEN, HIDDEN) * 0.3)
        signs = torch.cat([torch.ones(excite), -torch.ones(HIDDEN - excite)])
        self.register_buffer("mask", signs.repeat(HIDDEN, 1).fill_diagonal_(0))
        self.register_buffer("signs", torch.diag(signs))
        self.lif, self.read = snn.Leaky(beta=0.9), snn.Leaky(beta=0.95)
        torch.nn.utils.parametrize.register_parametrization(self.inp, "weight", nn.ReLU())

    def forward(self, x: Any) -> Any:
        mem, mem2 = self.lif.reset_mem(), self.read.reset_mem()
        spk, recorded = x.new_zeros(x.shape[1], HIDDEN), []
        weight = torch.abs(self.rec) * self.mask
        for step in x:
            spk, mem = self.lif(self.inp(step) + torch.nn.functional.linear(spk, weight), mem)
            out = torch.nn.functional.linear(spk, self.out.weight.abs() @ self.signs, self.out.bias)
            spk2, mem2 = self.read(out, mem2)
            recorded.append(spk2)
        return torch.stack(recorded)


class SurrogateSpike(torch.autograd.Function):  # type: ignore[misc]
    """As the SpyTorch tutorials write it."""

    scale = 10.0

    @staticmethod
    def forward(ctx: Any, given: Any) -> Any:
        ctx.save_for_backward(given)
        out = torch.zeros_like(given)
        out[given > 0] = 1.0
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (given,) = ctx.saved_tensors
        return gradient.clone() / (SurrogateSpike.scale * torch.abs(given) + 1.0) ** 2


spike_fn = SurrogateSpike.apply  # bound before anything is recorded, as in the tutorials


class SpyTorch(nn.Module):  # type: ignore[misc]
    """Zenke's SpyTorch: neurons written out, each layer over all timesteps, a read-out that leaks."""

    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(INPUTS, HIDDEN) * 0.3)
        self.v1 = nn.Parameter(torch.randn(HIDDEN, HIDDEN) * 0.2)
        self.w2 = nn.Parameter(torch.randn(HIDDEN, CLASSES) * 0.4)

    def forward(self, inputs: Any) -> Any:
        alpha, beta, batch = 0.8, 0.9, len(inputs)
        h1 = torch.einsum("abc,cd->abd", (inputs, self.w1))
        syn, mem, out = (torch.zeros((batch, HIDDEN), dtype=inputs.dtype) for _ in range(3))
        recorded = []
        for t in range(inputs.shape[1]):
            current = h1[:, t] + torch.einsum("ab,bc->ac", (out, self.v1))
            out = spike_fn(mem - 1.0)
            syn, mem = alpha * syn + current, (beta * mem + syn) * (1.0 - out.detach())
            recorded.append(out)
        h2 = torch.einsum("abc,cd->abd", (torch.stack(recorded, dim=1), self.w2))
        flt, out = (torch.zeros((batch, CLASSES), dtype=inputs.dtype) for _ in range(2))
        read = []
        for t in range(inputs.shape[1]):
            flt, out = alpha * flt + h2[:, t], beta * out + flt
            read.append(out)
        return torch.stack(read, dim=1)


class OwnNeuron(nn.Module):  # type: ignore[misc]
    """A neuron of one's own, which keeps its potential, with a surrogate of snnTorch's."""

    def __init__(self, beta: float, detached: bool):
        super().__init__()
        self.beta, self.detached, self.mem = beta, detached, None
        self.spike = surrogate.fast_sigmoid(slope=10)

    def forward(self, current: Any) -> Any:
        self.mem = current if self.mem is None else self.beta * self.mem + current
        spikes = self.spike(self.mem - 1.0)
        if self.detached:
            self.mem = torch.where(spikes > 0, 0.1 * self.mem, self.mem)
        else:
            self.mem = self.mem * (1 - 0.9 * spikes)
        return spikes


class OwnNeurons(nn.Module):  # type: ignore[misc]
    def __init__(self, detached: bool = True):
        super().__init__()
        self.first, self.between, self.last = (
            nn.Linear(INPUTS, HIDDEN),
            nn.Linear(HIDDEN, HIDDEN),
            nn.Linear(HIDDEN, CLASSES),
        )
        self.neurons = nn.ModuleList([OwnNeuron(beta, detached) for beta in (0.9, 0.8, 0.95)])

    def forward(self, x: Any) -> Any:
        out = []
        for each in self.neurons:
            each.mem = None
        one, two, three = self.neurons
        for step in x:
            out.append(three(self.last(two(self.between(one(self.first(step)))))))
        for each in self.neurons:
            each.mem = None
        return torch.stack(out)


class OneByOne(nn.Module):  # type: ignore[misc]
    """Currents that are added to the potential one by one: of the input, of slices of the layer, of layers before."""

    def __init__(self, excite: int = HIDDEN * 3 // 4) -> None:
        super().__init__()
        self.excite = excite
        self.first, self.second, self.skip = (nn.Linear(wide, HIDDEN) for wide in (INPUTS, HIDDEN, INPUTS))
        self.e, self.i, self.own = (nn.Linear(wide, HIDDEN, bias=False) for wide in (excite, HIDDEN - excite, HIDDEN))
        self.read = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        v, u, z, s = (torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype) for _ in range(4))
        out, spike = [], SurrogateSpike.apply
        for step in x:
            v = (
                0.9 * v * (1 - z.detach())
                + self.first(step)
                + self.e(z[:, : self.excite])
                - self.i(z[:, self.excite :])
            )
            z = spike(v - 1.0)
            u = 0.8 * u
            u += self.skip(step)
            u -= self.own(s)
            u += self.second(z)
            s = spike(u - 1.0)
            out.append(self.read(s))
        return torch.stack(out).mean(0)


class ResidualStream(nn.Module):  # type: ignore[misc]
    """Layers, written out, that add their spikes to a stream, which the next reads; one adds those of before, too."""

    def __init__(self) -> None:
        super().__init__()
        widths = ((INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES))
        betas = (0.9, 0.8, 0.9, 0.95)
        self.layers = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(*each, bias=False), OwnNeuron(beta, True))
                for each, beta in zip(widths, betas, strict=True)
            ]
        )

    def forward(self, x: Any) -> Any:
        one, two, three, last = self.layers
        out, before = [], torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)
        for step in x:
            first = one(step)
            stream = first + two(first + before)
            before = first
            out.append(last(stream + three(stream)))
        for _, neurons in self.layers:
            neurons.mem = None
        return torch.stack(out)


class RadLif(nn.Module):  # type: ignore[misc]
    """Bittar and Garner 2022: adaptive, recurrent, four constants a neuron learned, batch norm over the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.W, self.V = nn.Linear(INPUTS, HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        nn.init.uniform_(self.V.weight, 0.01, 0.1)
        self.norm = nn.BatchNorm1d(HIDDEN, momentum=0.05)
        self.alpha = nn.Parameter(torch.empty(HIDDEN).uniform_(0.82, 0.95))
        self.beta = nn.Parameter(torch.empty(HIDDEN).uniform_(0.97, 0.99))
        self.a, self.b = (
            nn.Parameter(torch.empty(HIDDEN).uniform_(low, high)) for low, high in ((-0.9, 0.9), (0.1, 1.9))
        )
        self.out, self.read = nn.Linear(HIDDEN, CLASSES), snn.Leaky(beta=0.9, reset_mechanism="none")
        self.spike = surrogate.fast_sigmoid(slope=5)

    def forward(self, x: Any) -> Any:
        current = self.W(x)
        batch, timesteps, width = current.shape
        current = self.norm(current.reshape(batch * timesteps, width)).reshape(batch, timesteps, width)
        ut, wt, st = (torch.zeros(batch, width, dtype=x.dtype) for _ in range(3))
        alpha, beta = torch.clamp(self.alpha, min=0.81, max=0.96), torch.clamp(self.beta, min=0.96, max=0.991)
        a, b = torch.clamp(self.a, min=-1.0, max=1.0), torch.clamp(self.b, min=0.0, max=2.0)
        own = self.V.weight.clone().fill_diagonal_(0)
        mem, out = self.read.reset_mem(), []
        for t in range(timesteps):
            wt = beta * wt + a * ut + b * st
            ut = alpha * (ut - st) + (1 - alpha) * (current[:, t, :] + torch.matmul(st, own) - wt)
            st = self.spike(ut - 0.3)
            _, mem = self.read(self.out(st), mem)
            out.append(mem)
        return torch.stack(out)


class OwnGru(nn.Module):  # type: ignore[misc]
    """A GRU by hand, its gates in one matrix, read by a linear layer at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.x2h, self.h2h = nn.Linear(INPUTS, 3 * HIDDEN), nn.Linear(HIDDEN, 3 * HIDDEN)
        self.fc = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        h = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)
        for step in x:
            r_in, z_in, n_in = self.x2h(step).chunk(3, 1)
            r_own, z_own, n_own = self.h2h(h).chunk(3, 1)
            r, z = torch.sigmoid(r_in + r_own), torch.sigmoid(z_in + z_own)
            n = torch.tanh(n_in + r * n_own)
            h = n + z * (h - n)
        return self.fc(h)


class OwnEgru(nn.Module):  # type: ignore[misc]
    """An event-based GRU by hand (Subramoney et al. 2023), whose thresholds are learned."""

    def __init__(self) -> None:
        super().__init__()
        self.x2h, self.h2h = nn.Linear(INPUTS, 3 * HIDDEN), nn.Linear(HIDDEN, 3 * HIDDEN)
        self.thr = nn.Parameter(torch.empty(HIDDEN).uniform_(0.05, 0.3))
        self.fc = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        c, y = (torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype) for _ in range(2))
        sent = []
        for step in x:
            inputs, own = self.x2h(step), self.h2h(y)
            z = torch.sigmoid(inputs[:, :HIDDEN] + own[:, :HIDDEN])
            r = torch.sigmoid(inputs[:, HIDDEN : 2 * HIDDEN] + own[:, HIDDEN : 2 * HIDDEN])
            g = torch.tanh(inputs[:, 2 * HIDDEN :] + r * own[:, 2 * HIDDEN :])
            c = z * c + (1 - z) * g
            event = SurrogateSpike.apply(c - self.thr)
            y, c = event * c, c - event * self.thr
            sent.append(y)
        return self.fc(torch.stack(sent).mean(0))


class Quadratic(nn.Module):  # type: ignore[misc]
    """Quadratic integrate-and-fire neurons of planes, after a convolution, and counts that are added up by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 4, 3), nn.Linear(4 * 4 * 4, CLASSES)

    def forward(self, x: Any) -> Any:
        v, w, total = 0.0, 0.0, 0.0
        for step in x:
            v = v + 0.1 * v * (v - 0.5) + self.conv(step)
            spikes = spike_fn(v - 1.0)
            v = v * (1 - spikes)
            w = 0.9 * w + self.fc(spikes.flatten(1))
            out = spike_fn(w - 1.0)
            w = w - out.detach()
            total = total + out
        return total / len(x)


class Rectangle(torch.autograd.Function):  # type: ignore[misc]
    """Wu et al. 2018: the threshold is inside, and so is a gradient of height 1 and width 0.8."""

    @staticmethod
    def forward(ctx: Any, given: Any) -> Any:
        ctx.save_for_backward(given)
        return given.gt(0.5).to(given.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (given,) = ctx.saved_tensors
        return gradient * (abs(given - 0.5) < 0.4).to(gradient.dtype)


class Stbp(nn.Module):  # type: ignore[misc]
    """Wu et al. 2018: one function updates neurons of planes and others, and counts are added up in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc1, self.fc2 = nn.Conv2d(2, 3, 3), nn.Linear(3 * 2 * 2, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        def update(ops: Any, given: Any, mem: Any, spikes: Any) -> Any:
            mem = mem * 0.2 * (1 - spikes) + ops(given)
            return mem, Rectangle.apply(mem)

        shapes = ((3, 4, 4), (HIDDEN,), (CLASSES,))
        mems, sent = ([torch.zeros(x.shape[1], *shape, dtype=x.dtype) for shape in shapes] for _ in range(2))
        total = torch.zeros_like(sent[-1])
        for step in x:
            mems[0], sent[0] = update(self.conv, step, mems[0], sent[0])
            pooled = torch.nn.functional.avg_pool2d(sent[0], 2).flatten(1)
            mems[1], sent[1] = update(self.fc1, pooled, mems[1], sent[1])
            mems[2], sent[2] = update(self.fc2, sent[1], mems[2], sent[2])
            total += sent[2]
        return total / len(x)


class Damped(torch.autograd.Function):  # type: ignore[misc]
    """Bellec et al. 2018: a triangle, dampened."""

    @staticmethod
    def forward(ctx: Any, given: Any) -> Any:
        ctx.save_for_backward(given)
        return (given > 0).to(given.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (given,) = ctx.saved_tensors
        return gradient * 0.3 * torch.clamp(1 - abs(given), min=0)


class Lsnn(nn.Module):  # type: ignore[misc]
    """Bellec et al. 2018: half of the neurons adapt their threshold, by which what they compare is divided."""

    def __init__(self) -> None:
        super().__init__()
        self.w_in, self.w_rec, self.w_out = (
            nn.Parameter(torch.randn(rows, columns) * 0.3)
            for rows, columns in ((INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES))
        )
        self.register_buffer("adapts", torch.arange(HIDDEN) % 2 * 1.6)

    def forward(self, x: Any) -> Any:
        v, b, z = (torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype) for _ in range(3))
        y, out = torch.zeros(x.shape[1], CLASSES, dtype=x.dtype), []
        for step in x:
            b = 0.9 * b + 0.1 * z
            threshold = 0.6 + self.adapts * b
            v = 0.95 * v + step @ self.w_in + z @ self.w_rec - z.detach() * 0.6
            z = Damped.apply((v - threshold) / threshold)
            y = 0.9 * y + z @ self.w_out
            out.append(y)
        return torch.stack(out)


class Srnn(nn.Module):  # type: ignore[misc]
    """Yin et al. 2021: adaptive and recurrent, with two time constants a neuron that are learned; begins: what is
    added to thresholds at first, before it decays."""

    def __init__(self, begins: float = 0.0) -> None:
        super().__init__()
        self.begins = begins
        self.i2h, self.h2h, self.h2o = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.tau_m, self.tau_adp, self.tau_o = (
            nn.Parameter(mean + torch.rand(neurons)) for mean, neurons in ((4, HIDDEN), (20, HIDDEN), (3, CLASSES))
        )

    def forward(self, x: Any) -> Any:
        mem, spikes, b = (torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype) for _ in range(3))
        b = b + self.begins
        read, out = torch.zeros(x.shape[1], CLASSES, dtype=x.dtype), []
        for step in x:
            current = self.i2h(step) + self.h2h(spikes)
            alpha, rho, decay = (torch.exp(-1.0 / tau) for tau in (self.tau_m, self.tau_adp, self.tau_o))
            b = rho * b + (1 - rho) * spikes
            threshold = 0.1 + 1.8 * b
            mem = mem * alpha + (1 - alpha) * current - threshold * spikes
            spikes = spike_fn(mem - threshold)
            read = read * decay + (1 - decay) * self.h2o(spikes)
            out.append(read)
        return torch.stack(out)


class TwoCompartments(nn.Module):  # type: ignore[misc]
    """Zhang et al. 2024: a dendrite and a soma, whose constants are the two numbers of one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.decay = nn.Parameter(torch.tensor([[0.25, 0.5]]))

    def forward(self, x: Any) -> Any:
        dendrite = soma = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)
        total: Any = 0.0
        for step in x:
            dendrite = dendrite - torch.sigmoid(self.decay[0][0]) * soma + self.fc1(step)
            soma = soma + torch.sigmoid(self.decay[0][1]) * dendrite
            spikes = spike_fn(soma - 1.0)
            dendrite, soma = dendrite - spikes * 0.5, soma - spikes
            total = total + self.fc2(spikes)
        return total


class ByDetaching(nn.Module):  # type: ignore[misc]
    """Baronig et al. 2025: the gradient of a step is that of a line whose slope is detached; and straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.a, self.b = (nn.Parameter(torch.rand(HIDDEN)) for _ in range(2))

    def forward(self, x: Any) -> Any:
        u1, u2, w = (torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype) for _ in range(3))
        total: Any = 0.0
        for step in x:
            u1 = 0.8 * u1 + 0.2 * (5 * self.fc1(step) - w)
            above = u1 - 1.0
            hard = torch.heaviside(above, torch.zeros((), dtype=x.dtype)).detach()
            spikes = hard + (above - above.detach()) * (2.0 / torch.exp(4.0 * above.abs())).detach()
            u1 = u1 * (1 - spikes.detach())
            w = 0.9 * w + 0.1 * (self.a * u1 + self.b * spikes)
            u2 = 0.9 * u2 + self.fc2(spikes)
            soft = torch.sigmoid(5.0 * (u2 - 1.0))
            spikes = ((u2 > 1.0).to(x.dtype) - soft).detach() + soft
            u2 = u2 - spikes.detach()
            total = total + self.fc3(spikes)
        return total


class TimeLast(nn.Module):  # type: ignore[misc]
    """Zheng et al. 2021, without its norm: arrays of all timesteps, along their last axis, are filled one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3)
        self.pool, self.as_it_is, self.fc = nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(3), nn.Linear(4, CLASSES)

    def forward(self, x: Any) -> Any:
        x = x.permute(1, 2, 3, 4, 0)
        x = self._sent(self._of_every(self.conv1, x))
        x = self._sent(self._of_every(self.conv2, self._of_every(self.as_it_is, self._of_every(self.pool, x))))
        return self.fc(x.permute(4, 0, 1, 2, 3).flatten(3).mean(3).mean(0))

    def _of_every(self, layer: Any, x: Any) -> Any:
        made = torch.zeros(*layer(x[..., 0]).shape, x.shape[-1], dtype=x.dtype)
        for t in range(x.shape[-1]):
            made[..., t] = layer(x[..., t])
        return made

    def _sent(self, x: Any) -> Any:
        v, spikes = torch.zeros_like(x[..., 0]), torch.zeros_like(x)
        for t in range(x.shape[-1]):
            v = 0.5 * v * (1 - spikes[..., max(t - 1, 0)]) + x[..., t]
            spikes[..., t] = Rectangle.apply(v)
        return spikes


class TimeLastNorms(TimeLast):
    """The same with its norm, of all timesteps, which its subclass of a batch norm writes out."""

    class Norm(nn.BatchNorm2d):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            mean, variance = x.mean([0, 2, 3, 4]), x.var([0, 2, 3, 4], unbiased=False)
            shape = (-1, 1, 1, 1)
            made = (x - mean.view(shape)) / torch.sqrt(variance.view(shape) + self.eps)
            return made * self.weight.view(shape) + self.bias.view(shape)

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.conv1.bias, self.conv2.bias = self.Norm(4), self.Norm(4), None, None

    def _of_every(self, layer: Any, x: Any) -> Any:
        norms = {self.conv1: self.norm1, self.conv2: self.norm2}
        made = super()._of_every(layer, x)
        return norms[layer](made) if layer in norms else made


class Ternary(TimeLast):
    """Guo et al. 2024: spikes of 1 and -1, whose gradient is that of a clamp."""

    def _sent(self, x: Any) -> Any:
        v, spikes = torch.zeros_like(x[..., 0]), torch.zeros_like(x)
        for t in range(x.shape[-1]):
            v = 0.25 * v + x[..., t]
            sign, soft = torch.sign(v), torch.clamp(v, -1, 1)
            sign[torch.abs(v) < 0.5] = torch.tensor(0.0, dtype=x.dtype)
            sent = (sign - soft).detach() + soft
            v = v * (1 - torch.abs(sent))
            spikes[..., t] = sent
        return spikes


class RealSpike(nn.Module):  # type: ignore[misc]
    """Guo et al. 2022: a clamp's gradient, spikes of a size that is learned, norms of stacks of all timesteps."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(planes, 4, 3, padding=1, bias=False) for planes in (2, 4))
        self.norm1, self.norm2 = nn.BatchNorm3d(4), nn.BatchNorm3d(4)
        self.size1, self.size2 = (nn.Parameter(torch.rand(1, 4, 1, 1) + 0.5) for _ in "12")
        self.pool, self.fc = nn.AvgPool2d(2), nn.Linear(36, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self._sent(self.norm1, [self.conv1(step) for step in x], self.size1)
        x = torch.stack([self.pool(step) for step in x])
        x = self._sent(self.norm2, [self.conv2(step) for step in x], self.size2)
        return torch.stack([self.fc(step.flatten(1)) for step in x]).mean(0)

    def _sent(self, norm: Any, currents: list[Any], size: Any) -> Any:
        given = norm(torch.stack(currents).permute(1, 2, 0, 3, 4)).permute(2, 0, 1, 3, 4).contiguous()
        u, sent = torch.zeros_like(given[0]), []
        for step in given:
            u = u * 0.25 + step
            soft = torch.clamp(u, 0, 1)
            spike = (torch.gt(u, 0.5).to(u.dtype) - soft).detach() + soft
            u = u * (1 - spike)
            sent.append(spike * size)
        return torch.stack(sent)


class Triangle(Damped):
    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (given,) = ctx.saved_tensors
        return gradient * torch.clamp(1 - abs(given), min=0)


class TetBlock(nn.Module):  # type: ignore[misc]
    """A block of the ResNet-19 of Deng et al. 2022: samples before time, currents added up before neurons."""

    class Spike(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            mem: Any = 0
            sent = []
            for t in range(x.shape[1]):
                mem = mem * 0.5 + x[:, t, ...]
                spike = Triangle.apply(mem - 1.0)
                mem = (1 - spike) * mem
                sent.append(spike)
            return torch.stack(sent, dim=1)

    def __init__(self, planes: int, made: int):
        super().__init__()
        self.conv1, self.past = (nn.Conv2d(planes, made, size, 2, size // 2, bias=False) for size in (3, 1))
        self.conv2 = nn.Conv2d(made, made, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(made) for _ in "123")
        self.spike1, self.spike2 = self.Spike(), self.Spike()

    def forward(self, x: Any) -> Any:
        out = self._over(self.norms[1], self._over(self.conv2, self.spike1(self._of(self.conv1, 0, x))))
        out += self._of(self.past, 2, x)
        return self.spike2(out)

    def _of(self, conv: Any, norm: int, x: Any) -> Any:
        return self._over(self.norms[norm], self._over(conv, x))

    def _over(self, layer: Any, x: Any) -> Any:
        made = layer(x.flatten(0, 1).contiguous())
        return made.view([*x.shape[:2], *made.shape[1:]])


class Tet(nn.Module):  # type: ignore[misc]
    """With one block, and fewer planes, each timestep judged."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.spike = nn.Conv2d(2, 6, 3, padding=1), TetBlock.Spike()
        self.block, self.fc = TetBlock(6, 4), nn.Linear(64, CLASSES)

    def forward(self, x: Any) -> Any:
        stem = self.spike(self.conv(x.flatten(0, 1)).view(*x.shape[:2], 6, *x.shape[3:]))
        return self.fc(self.block(stem).flatten(2))


class Peephole(nn.Module):  # type: ignore[misc]
    """An LSTM by hand whose gates see its cells, with one bias."""

    def __init__(self) -> None:
        super().__init__()
        self.x2h, self.h2h = nn.Linear(INPUTS, 4 * HIDDEN), nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.p_i, self.p_f, self.p_o = (nn.Parameter(torch.randn(HIDDEN) * 0.2) for _ in range(3))
        self.fc, self.sigmoid = nn.Linear(HIDDEN, CLASSES), nn.Sigmoid()

    def forward(self, x: Any) -> Any:
        h = c = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)
        for step in x:
            gates = zip(self.x2h(step).chunk(4, 1), self.h2h(h).chunk(4, 1), strict=True)
            i, f, g, o = (one + other for one, other in gates)
            i, f = self.sigmoid(i + self.p_i * c), self.sigmoid(f + self.p_f * c)
            c = f * c + i * torch.tanh(g)
            h = self.sigmoid(o + self.p_o * c) * torch.tanh(c)
        return self.fc(h)


class MatrixAGate(nn.Module):  # type: ignore[misc]
    """An LSTM by hand in which every gate has matrices of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(INPUTS + HIDDEN, HIDDEN) for _ in range(4))
        self.fc = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        h = c = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)
        for step in x:
            i, f, g, o = (gate(torch.cat([step, h], 1)) for gate in self.gates)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.fc(h)


class OwnRnn(nn.Module):  # type: ignore[misc]
    """An RNN by hand, which keeps nothing but what it sent, read in every timestep."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.i2h, self.h2h, self.fc = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.function = function

    def forward(self, x: Any) -> Any:
        h, total = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype), 0
        for step in x:
            h = self.function(self.i2h(step) + self.h2h(h))
            total = total + self.fc(h)
        return total


class WithoutStates(nn.Module):  # type: ignore[misc]
    """Binary neurons that keep nothing: timesteps differ by what is read in them alone."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        return sum(self.fc3(spike_fn(self.fc2(spike_fn(self.fc1(step))))) for step in x)


class GatesAtOnce(nn.Module):  # type: ignore[misc]
    """An LSTM by hand, one function of several gates before they are parted."""

    def __init__(self) -> None:
        super().__init__()
        self.i2h, self.h2h = nn.Linear(INPUTS, 4 * HIDDEN), nn.Linear(HIDDEN, 4 * HIDDEN)
        self.fc = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        h = c = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)
        for step in x:
            made = self.i2h(step) + self.h2h(h)
            gates, g = made[:, : 3 * HIDDEN].sigmoid(), made[:, 3 * HIDDEN :].tanh()
            i, f, o = gates[:, :HIDDEN], gates[:, HIDDEN : 2 * HIDDEN], gates[:, -HIDDEN:]
            c = torch.mul(c, f) + torch.mul(i, g)
            h = torch.mul(o, c.tanh())
        return self.fc(h)


class JellyCells(nn.Module):  # type: ignore[misc]
    """SpikingJelly's recurrent cells over the sequence, of which a linear layer reads the last timestep."""

    def __init__(self, cells: Any) -> None:
        super().__init__()
        self.cells, self.fc = cells(INPUTS, HIDDEN, 1), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.fc(self.cells(x)[0][-1])


class AllAtOnce(nn.Module):  # type: ignore[misc]
    """Neurons as stork has them: currents are added to what is cleared in every timestep, and all states are made of
    those of the timestep before. Two learned time constants are one number for the layer each, that of the adaptation
    is one per neuron."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.rec = nn.Linear(INPUTS, HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, CLASSES, bias=False)
        self.mem_scale, self.syn_scale = nn.Parameter(torch.randn(1)), nn.Parameter(torch.randn(1))
        self.strength, self.ada_scale = nn.Parameter(torch.rand(HIDDEN)), nn.Parameter(torch.randn(HIDDEN))

    def forward(self, x: Any) -> Any:
        def none() -> Any:
            return torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)

        beta = torch.exp(-0.2 / (2 * torch.sigmoid(self.mem_scale)))
        alpha = torch.exp(-0.4 / (2 * torch.sigmoid(self.syn_scale)))
        rho = torch.exp(-0.1 / torch.sigmoid(self.ada_scale))
        syn, mem, ada, sent = none(), none(), none(), none()
        read, recorded = torch.zeros(x.shape[1], CLASSES, dtype=x.dtype), []
        for step in x:
            current = none()
            current = current + self.inp(step)
            current = current + self.rec(sent)
            read = 0.8 * read + self.out(sent)
            recorded.append(read)
            fired = SurrogateSpike.apply(mem - 0.2)
            pulled = beta * mem + (1 - beta) * (syn - self.strength * ada)
            ada = rho * ada + (1 - rho) * sent
            mem, syn, sent = pulled * (1 - fired.detach()), alpha * syn + current, fired
        return torch.stack(recorded)


class CurrentMadeOnce(nn.Module):  # type: ignore[misc]
    """An image goes through a convolution before the timesteps, as in direct coding."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.AvgPool2d(2), nn.Linear(64, CLASSES)

    def forward(self, x: Any) -> Any:
        current = self.conv(x)
        mem, summed = torch.zeros_like(current), 0
        for _ in range(TIMESTEPS):
            mem = 0.9 * mem + current
            spk = SurrogateSpike.apply(mem - 1)
            mem = mem - spk.detach()
            summed = summed + self.fc(self.pool(spk).flatten(1))
        return summed / TIMESTEPS


class SinceLastSpike(torch.autograd.Function):  # type: ignore[misc]
    """It is told when a neuron last fired, and does not use it."""

    @staticmethod
    def forward(ctx: Any, x: Any, _since: Any) -> Any:
        ctx.save_for_backward(x)
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 0.3 * torch.clamp(1 - x.abs(), min=0), None


class LastSpikes(nn.Module):  # type: ignore[misc]
    """Neurons of Rathi et al. 2020, whose surrogate reads two tensors; the last layer adds up what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(INPUTS, HIDDEN, bias=False), nn.Linear(HIDDEN, CLASSES, bias=False)
        self.limit, self.leak = torch.tensor(1.0), torch.tensor(0.95)

    def forward(self, x: Any) -> Any:
        mem, summed = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype), torch.zeros(x.shape[1], CLASSES, dtype=x.dtype)
        last = torch.full_like(mem, -1000)
        for t, step in enumerate(x):
            over = mem / self.limit - 1.0
            spk = SinceLastSpike.apply(over, t - 1 - last)
            last = last.masked_fill(spk.bool(), t - 1)
            mem = self.leak * mem + self.fc1(step) - self.limit * (over > 0).to(x.dtype)
            summed = summed + self.fc2(spk)
        return summed


class Refractory(nn.Module):  # type: ignore[misc]
    """Neurons as Perez-Nieves et al. 2021 write them: every timestep makes the states of the next, of which the last
    are not made; resets and timesteps to rest are written where there are spikes; time constants are learned."""

    def __init__(self, rest: float = 2.0):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(INPUTS, HIDDEN, bias=False), nn.Linear(HIDDEN, CLASSES, bias=False)
        self.alpha, self.beta = (nn.Parameter(torch.empty(1, HIDDEN).uniform_(0.5, 0.9)) for _ in range(2))
        self.register_buffer("thr", torch.empty(1, HIDDEN).uniform_(0.4, 0.6))
        self.rest = rest

    def forward(self, x: Any) -> Any:
        current = self.fc1(x)
        syn, mem, left = (torch.zeros(x.shape[0], HIDDEN, dtype=x.dtype) for _ in range(3))
        sent = [mem]
        for t in range(x.shape[1] - 1):
            over = mem - self.thr
            spk, reset = SurrogateSpike.apply(over), torch.zeros_like(mem)
            fired = over > 0
            reset[fired] = torch.ones_like(mem)[fired]
            left[fired] = self.rest * torch.ones_like(mem)[fired]
            free = (left < 1.0).to(x.dtype)
            mem = (self.beta * mem + (1 - self.beta.detach()) * syn - reset * self.thr) * free
            left[left > 0.0] -= 1.0
            syn = self.alpha * syn + current[:, t]
            sent.append(spk)
        potential, read = torch.zeros(x.shape[0], CLASSES, dtype=x.dtype), []
        read.append(potential)
        current = self.fc2(torch.stack(sent, 1))
        for t in range(x.shape[1] - 1):
            potential = 0.9 * potential + current[:, t]
            read.append(potential)
        return torch.stack(read, 1)


class HalfCharged(nn.Module):  # type: ignore[misc]
    """Neurons of networks converted as by Bu et al. 2022: potentials begin at half of the threshold, by which spikes
    are multiplied; timesteps lie along the axis of samples between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.threshold = nn.Parameter(torch.tensor([1.5]), requires_grad=False)

    def forward(self, x: Any) -> Any:
        current = self.fc1(x.flatten(0, 1)).view(*x.shape[:2], HIDDEN)
        mem, sent = 0.5 * self.threshold.data, []
        for each in current:
            mem = mem + each
            spk = SurrogateSpike.apply(mem - self.threshold) * self.threshold
            mem = mem - spk
            sent.append(spk)
        return self.fc2(torch.stack(sent).flatten(0, 1)).view(*x.shape[:2], CLASSES).mean(0)


class TwoBells(torch.autograd.Function):  # type: ignore[misc]
    """A step whose gradient is a bell less a wide one."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        narrow, wide = (torch.exp(-((x / s) ** 2) / 2) / (s * (2 * torch.pi) ** 0.5) for s in (0.5, 3.0))
        return grad * 0.5 * (1.15 * narrow - 0.3 * wide)


class Resonators(nn.Module):  # type: ignore[misc]
    """Harmonic resonate-and-fire neurons (Higuchi et al. 2024): their frequency and damping are learned, a refractory
    state raises the threshold and damps. The input and their own spikes are side by side."""

    def __init__(self, dt: float = 0.05) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(INPUTS + HIDDEN, HIDDEN, bias=False), nn.Linear(HIDDEN, CLASSES, bias=False)
        self.a = nn.Parameter(torch.empty(HIDDEN).uniform_(5.0, 10.0))  # of the frequency
        self.b = nn.Parameter(torch.empty(HIDDEN).uniform_(0.1, 1.0))
        self.k = nn.Parameter(torch.empty(CLASSES).normal_(5.0, 1.0))  # timesteps of the read-out
        self.dt = dt

    def forward(self, x: Any) -> Any:
        z, u, v, q = (torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype) for _ in range(4))
        read, recorded = torch.zeros(x.shape[1], CLASSES, dtype=x.dtype), []
        for step in x:
            current, omega = self.inp(torch.cat((step, z), dim=1)), self.a.abs()
            b = omega.square().mul(0.005) + self.b.abs() + q
            v = v + u.mul(self.dt)
            u = u + current.mul(self.dt) - b.mul(u).mul(2 * self.dt) - torch.square(omega).mul(v).mul(self.dt)
            z = TwoBells.apply(u - 0.1 - q)
            q = q.mul(0.9) + z
            leak = torch.exp(-1 / self.k.abs())
            read = read * leak + self.out(z) * (1 - leak)
            recorded.append(read)
        return torch.stack(recorded)


@torch.jit.script
def _decayed(v: torch.Tensor, current: torch.Tensor) -> torch.Tensor:
    return 0.9 * v + current


class StepByStep(nn.Module):  # type: ignore[misc]
    """One timestep a call, potentials kept, TorchScript, and a reset by what is written into them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.reset()

    def reset(self) -> None:
        self.v1: Any = None
        self.v2: Any = None

    def forward(self, x: Any) -> Any:
        if self.v1 is None:
            self.v1, self.v2 = (torch.zeros(len(x), neurons, dtype=x.dtype) for neurons in (HIDDEN, CLASSES))
        self.v1 = _decayed(self.v1, self.fc1(x))
        spikes = spike_fn(self.v1 - 1)
        self.v1 = self.v1.clone()
        self.v1[spikes > 0] = 0.0
        self.v2 = _decayed(self.v2, self.fc2(spikes))
        out = spike_fn(self.v2 - 1)
        with torch.no_grad():
            held = spike_fn(self.v2 - 1)
        self.v2 = self.v2 - held
        return out


class Delays(nn.Module):  # type: ignore[misc]
    """A delay for each synapse from the input, as of DCLS once they are rounded, and axonal ones between layers."""

    AGES = (0, 2, 5)

    def __init__(self) -> None:
        super().__init__()
        self.synapses = nn.ParameterList([nn.Parameter(torch.rand(INPUTS, HIDDEN) - 0.3) for _ in self.AGES])
        delays = torch.randint(0, len(self.AGES), (INPUTS, HIDDEN))
        self.register_buffer("masks", torch.stack([(delays == place).float() for place in range(len(self.AGES))]))
        self.late, self.later = nn.Linear(HIDDEN, CLASSES), nn.Linear(HIDDEN, CLASSES, bias=False)
        self.lif1, self.lif2 = snn.Leaky(beta=0.9), snn.Leaky(beta=0.8)

    def forward(self, x: Any) -> Any:
        mem1, mem2, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        past = deque([torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)] * 3, maxlen=3)  # what the first layer sent
        for t in range(len(x)):
            current = sum(
                x[t - age] @ (weight * mask)
                for age, weight, mask in zip(self.AGES, self.synapses, self.masks, strict=True)
                if age <= t
            )
            spk, mem1 = self.lif1(current, mem1)
            read = self.late(past[-1]) + self.later(past[-3])
            past.append(spk)
            spk, mem2 = self.lif2(read, mem2)
            out.append(spk)
        return torch.stack(out)


class DelayLine(nn.Module):  # type: ignore[misc]
    """Hammouamri et al. 2024, smaller: convolutions over time with a learned delay for every synapse, batch norm,
    SpikingJelly's neurons and dropout over all timesteps; the highest potential of integrators is read."""

    def __init__(self, ages: int = 5, dropout: float = 0.0, norm: bool = True, version: str = "gauss") -> None:
        super().__init__()
        self.ages, widths = ages, (INPUTS, HIDDEN, HIDDEN, CLASSES)
        self.convs = nn.ModuleList(
            [
                Dcls1d(a, b, kernel_count=1, dilated_kernel_size=ages, bias=False, version=version)
                for a, b in pairwise(widths)
            ]
        )
        for conv in self.convs:
            nn.init.uniform_(conv.P, -(ages // 2), ages // 2)
            conv.clamp_parameters()
            if conv.SIG is not None:
                nn.init.constant_(conv.SIG, ages / 4)
                conv.SIG.requires_grad = False
        self.norms = nn.ModuleList([jelly.BatchNorm1d(HIDDEN) if norm else nn.Identity() for _ in range(2)])
        self.neurons = nn.ModuleList([neuron.LIFNode(detach_reset=True) for _ in range(2)])
        self.drops = nn.ModuleList([jelly.Dropout(dropout) for _ in range(2)])
        self.read = neuron.LIFNode(v_threshold=1e9, detach_reset=True, store_v_seq=True)
        functional.set_step_mode(self, "m")

    def forward(self, x: Any) -> Any:
        for conv, norm, cells, drop in zip(self.convs, self.norms, self.neurons, self.drops, strict=False):
            current = norm(self.delayed(conv, x).unsqueeze(3)).squeeze(3)
            x = drop(cells(current))
        self.read(self.delayed(self.convs[-1], x))
        return self.read.v_seq

    def delayed(self, conv: Any, x: Any) -> Any:
        return conv(nn.functional.pad(x.permute(1, 2, 0), (self.ages - 1, 0), "constant", 0)).permute(2, 0, 1)


class OwnSurrogate(torch.autograd.Function):  # type: ignore[misc]
    """A surrogate of the user's own, which is SuperSpike with slope 7."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient / (7 * x.abs() + 1) ** 2


class JellyLoop(nn.Module):  # type: ignore[misc]
    """SpikingJelly, one timestep a call, a loop outside the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            jelly.Linear(INPUTS, HIDDEN, bias=False),
            neuron.LIFNode(tau=2.5, surrogate_function=jelly_surrogate.ATan()),
            jelly.Linear(HIDDEN, CLASSES, bias=False),
            neuron.IFNode(v_reset=None, detach_reset=True, surrogate_function=jelly_surrogate.Sigmoid(alpha=5.0)),
        )

    def forward(self, x: Any) -> Any:
        return sum(self.net(step) for step in x)


class NorseRecurrent(nn.Module):  # type: ignore[misc]
    """Norse: a recurrent cell with weights of its own, and an integrator that is read."""

    def __init__(self, autapses: bool) -> None:
        super().__init__()
        parameters = norse.LIFParameters(tau_mem_inv=torch.tensor(250.0), alpha=torch.tensor(1.0))
        self.cell = norse.LIFRecurrentCell(INPUTS, HIDDEN, p=parameters, autapses=autapses)
        if not autapses:
            with torch.no_grad():  # none near zero, which rounding would make one of those that stay
                self.cell.recurrent_weights.uniform_(-0.3, -0.05).fill_diagonal_(0)
        self.fc, self.out = nn.Linear(HIDDEN, CLASSES, bias=False), norse.LICell()

    def forward(self, x: Any) -> Any:
        s1 = s2 = None
        voltages = []
        for t in range(x.shape[0]):
            z, s1 = self.cell(x[t], s1)
            v, s2 = self.out(self.fc(z), s2)
            voltages.append(v)
        return torch.stack(voltages)


class NorseExponential(nn.Module):  # type: ignore[misc]
    """Norse: recurrent, adaptive, exponential and refractory, and an integrator with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = norse.LIFAdExRefracRecurrentCell(INPUTS, HIDDEN)
        with torch.no_grad():  # none near zero, which rounding would make one of those that stay
            self.cell.recurrent_weights.uniform_(-0.3, -0.05).fill_diagonal_(0)
        self.mean, self.fc = norse.LIBoxCell(), nn.Linear(HIDDEN, HIDDEN)
        self.out = norse.LILinearCell(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        s1 = s2 = s3 = None
        voltages = []
        for step in x:
            z, s1 = self.cell(step, s1)
            v, s2 = self.mean(self.fc(z), s2)
            v, s3 = self.out(v, s3)
            voltages.append(v)
        return torch.stack(voltages)


class NorseIntegrators(nn.Module):  # type: ignore[misc]
    """Norse: neurons that forget nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.net = norse.SequentialState(
            nn.Linear(INPUTS, HIDDEN), norse.IAFCell(), nn.Linear(HIDDEN, CLASSES), norse.LICell()
        )

    def forward(self, x: Any) -> Any:
        state, voltages = None, []
        for step in x:
            v, state = self.net(step, state)
            voltages.append(v)
        return torch.stack(voltages)


class NorseInTime(nn.Module):  # type: ignore[misc]
    """Norse: modules that take whole sequences."""

    def __init__(self) -> None:
        super().__init__()
        fast = norse.LIFParameters(tau_mem_inv=torch.tensor(300.0), alpha=torch.tensor(1.0))
        self.net = norse.SequentialState(
            nn.Linear(INPUTS, HIDDEN, bias=False), norse.LIF(p=fast), nn.Linear(HIDDEN, CLASSES, bias=False), norse.LI()
        )

    def forward(self, x: Any) -> Any:
        voltages, _ = self.net(x)
        return voltages


def _sequential(*layers: Any) -> Any:
    return nn.Sequential(*layers)


class JellyMean(nn.Module):  # type: ignore[misc]
    """SpikingJelly as its tutorials train: firing rates are the mean over time."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            jelly.Flatten(), jelly.Linear(INPUTS, HIDDEN), neuron.LIFNode(surrogate_function=jelly_surrogate.ATan()),
            jelly.Dropout(0.0), jelly.Linear(HIDDEN, CLASSES), neuron.LIFNode(v_reset=None),
        )  # fmt: skip
        functional.set_step_mode(self, "m")

    def forward(self, x: Any) -> Any:
        return self.layers(x).mean(0)


class Delayed(nn.Module):  # type: ignore[misc]
    """Every layer reads what the one before it sent a timestep earlier; counts added up on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.ModuleList([nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, 16), nn.Linear(16, CLASSES)])
        self.lif = nn.ModuleList([snn.Leaky(beta=beta) for beta in (0.9, 0.8, 0.95)])

    def forward(self, x: Any) -> Any:
        states = [cell.reset_mem() for cell in self.lif]
        sent = [torch.zeros(x.shape[1], width, dtype=x.dtype) for width in (HIDDEN, 16)]
        total: Any = 0
        for step in x:
            made = []
            for number, given in enumerate([step, *sent]):
                spikes, states[number] = self.lif[number](self.fc[number](given), states[number])
                made.append(spikes)
            *sent, last = made
            total = total + last
        return total


class Skip(nn.Module):  # type: ignore[misc]
    """The last layer reads both hidden layers and the input, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, 16)
        self.fc3 = nn.Linear(16 + HIDDEN + INPUTS, CLASSES)
        self.lif1, self.lif2, self.lif3 = snn.Leaky(beta=0.9), snn.Leaky(beta=0.8), snn.Leaky(beta=0.95)

    def forward(self, x: Any) -> Any:
        one, two, three, out = self.lif1.reset_mem(), self.lif2.reset_mem(), self.lif3.reset_mem(), []
        for step in x:
            spk1, one = self.lif1(self.fc1(step), one)
            spk2, two = self.lif2(self.fc2(spk1), two)
            spk3, three = self.lif3(self.fc3(torch.cat([spk2, spk1, step], dim=1)), three)
            out.append(spk3)
        return torch.stack(out)


class Shortcut(nn.Module):  # type: ignore[misc]
    """A second way around the hidden layer, with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.ModuleDict({
            "up": nn.Linear(INPUTS, HIDDEN), "down": nn.Linear(HIDDEN, CLASSES), "past": nn.Linear(INPUTS, CLASSES)
        })  # fmt: skip
        self.hidden, self.out = neuron.LIFNode(v_reset=None), neuron.LIFNode(tau=3.0)

    def forward(self, x: Any) -> Any:
        net = self.net
        return sum(self.out(net["down"](self.hidden(net["up"](step))) + net["past"](step)) for step in x)


class Populations(nn.Module):  # type: ignore[misc]
    """Excitatory and inhibitory neurons that drive each other and themselves, a timestep later."""

    def __init__(self) -> None:
        super().__init__()
        self.e_in, self.i_in, self.out = nn.Linear(INPUTS, HIDDEN), nn.Linear(INPUTS, 9), nn.Linear(HIDDEN, CLASSES)
        self.to_e, self.to_i = nn.Linear(HIDDEN + 9, HIDDEN, bias=False), nn.Linear(HIDDEN, 9, bias=False)
        self.e, self.i, self.read = snn.Leaky(beta=0.9), snn.Leaky(beta=0.7), snn.Leaky(beta=0.95)

    def forward(self, x: Any) -> Any:
        one, two, three, out = self.e.reset_mem(), self.i.reset_mem(), self.read.reset_mem(), []
        e, i = (torch.zeros(x.shape[1], width, dtype=x.dtype) for width in (HIDDEN, 9))
        for step in x:
            drive = self.i_in(step) + self.to_i(e)
            e, one = self.e(self.e_in(step) + self.to_e(torch.cat([e, i], dim=-1)), one)
            i, two = self.i(drive, two)
            spikes, three = self.read(self.out(e), three)
            out.append(spikes)
        return torch.stack(out)


class Inhibited(nn.Module):  # type: ignore[misc]
    """What inhibitory neurons, and a layer's own spikes, send is subtracted."""

    def __init__(self) -> None:
        super().__init__()
        self.e_in, self.i_in, self.out = (
            nn.Linear(INPUTS, HIDDEN, bias=False),
            nn.Linear(INPUTS, 9),
            nn.Linear(HIDDEN, CLASSES),
        )
        self.own, self.from_i = nn.Linear(HIDDEN, HIDDEN, bias=False), nn.Linear(9, HIDDEN)
        self.e, self.i, self.read = snn.Leaky(beta=0.9), snn.Leaky(beta=0.7), snn.Leaky(beta=0.95)

    def forward(self, x: Any) -> Any:
        one, two, three, out = self.e.reset_mem(), self.i.reset_mem(), self.read.reset_mem(), []
        e = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)
        for step in x:
            i, two = self.i(self.i_in(step), two)
            e, one = self.e(self.e_in(step) - (self.own(e) + self.from_i(i)), one)
            spikes, three = self.read(self.out(e), three)
            out.append(spikes)
        return torch.stack(out)


class Slices(nn.Module):  # type: ignore[misc]
    """One layer of neurons, of which some excite and others inhibit; the read-out has weights from those that excite,
    and from inputs in two parts. negative: what inhibits is subtracted; else by signs of absolute weights."""

    def __init__(self, subtracted: bool = True) -> None:
        super().__init__()
        self.subtracted, self.excite = subtracted, HIDDEN * 3 // 4
        self.inp = nn.Linear(INPUTS, HIDDEN)
        self.rec_e = nn.Linear(self.excite, HIDDEN, bias=False)
        self.rec_i = nn.Linear(HIDDEN - self.excite, HIDDEN, bias=subtracted)
        self.out, self.few, self.many = (
            nn.Linear(wide, CLASSES, bias=wide < 20) for wide in (self.excite, 10, INPUTS - 10)
        )
        self.lif, self.read = snn.Leaky(beta=0.9), snn.Leaky(beta=0.95)

    def forward(self, x: Any) -> Any:
        mem, mem2, recorded = self.lif.reset_mem(), self.read.reset_mem(), []
        spk = x.new_zeros(x.shape[1], HIDDEN)
        for step in x:
            e, i = spk[:, : self.excite], spk[:, self.excite :]
            if self.subtracted:
                own = self.rec_e(e) - self.rec_i(i)
            else:
                own = e @ self.rec_e.weight.abs().T - i @ self.rec_i.weight.abs().T
            spk, mem = self.lif(self.inp(step) + own, mem)
            few, many = torch.split(step, [10, INPUTS - 10], dim=1)
            current = self.few(few) + self.many(many) + self.out(spk[:, : self.excite])
            spk2, mem2 = self.read(current, mem2)
            recorded.append(spk2)
        return torch.stack(recorded)


class Columns(nn.Module):  # type: ignore[misc]
    """Neurons that are written out, whose halves get currents of their own: from the input, and from each other."""

    def __init__(self) -> None:
        super().__init__()
        half = HIDDEN // 2
        self.to_e, self.to_i = nn.Linear(INPUTS, half), nn.Linear(INPUTS, half)
        self.ei, self.ie = (nn.Parameter(torch.randn(half, half) * 0.2) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(half, CLASSES, bias=False) for _ in range(2))
        self.neurons = nn.ModuleList([OwnNeuron(beta, True) for beta in (0.9, 0.95)])

    def forward(self, x: Any) -> Any:
        spk, made = x.new_zeros(x.shape[1], HIDDEN), []
        for each in self.neurons:
            each.mem = None
        for step in x:
            e, i = spk.chunk(2, 1)
            current = torch.cat([self.to_e(step), self.to_i(step)], dim=1)
            spk = self.neurons[0](current + torch.cat([i @ self.ie, e @ self.ei], 1))
            halves = spk.chunk(2, -1)
            made.append(self.neurons[1](self.out[0](halves[0]) - self.out[1](halves[1])))
        for each in self.neurons:
            each.mem = None
        return torch.stack(made)


class GatedSlices(nn.Module):  # type: ignore[misc]
    """A gated cell, written out, that reads two slices of itself apart from its input."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(INPUTS, 2 * HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.few, self.many = (nn.Linear(wide, 2 * HIDDEN, bias=False) for wide in (10, HIDDEN - 10))

    def forward(self, x: Any) -> Any:
        h = x.new_zeros(x.shape[1], HIDDEN)
        for step in x:
            z, n = self.inp(step).chunk(2, 1)
            own_z, own_n = (self.few(h[:, :10]) + self.many(h[:, 10:])).chunk(2, 1)
            z = torch.sigmoid(z + own_z)
            h = z * h + (1 - z) * torch.tanh(n + own_n)
        return self.out(h)


class SlicesInTime(nn.Module):  # type: ignore[misc]
    """Slices of all timesteps at once, and a read-out of one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.out = jelly.Linear(INPUTS, HIDDEN, step_mode="m"), nn.Linear(7, CLASSES)
        self.one, self.other = nn.Linear(10, 12), nn.Linear(HIDDEN - 10, 12, bias=False)
        self.first, self.last = (neuron.LIFNode(step_mode="m", detach_reset=True) for _ in range(2))

    def forward(self, x: Any) -> Any:
        spikes = self.first(self.inp(x))
        spikes = self.last(self.one(spikes[..., :10]) - self.other(spikes.narrow(2, 10, HIDDEN - 10)))
        return self.out(spikes[:, :, 5:]).mean(0)


class OneMatrix(nn.Module):  # type: ignore[misc]
    """A recurrent layer as a cell of an RNN is often written: input and own spikes meet one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(INPUTS + HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.lif, self.read = snn.Leaky(beta=0.8), snn.Leaky(beta=0.9)

    def forward(self, x: Any) -> Any:
        one, two, made = self.lif.reset_mem(), self.read.reset_mem(), []
        spk = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)
        for step in x:
            spk, one = self.lif(self.fc(torch.cat((step, spk), -1)), one)
            out, two = self.read(self.out(spk), two)
            made.append(out)
        return torch.stack(made)


def _reservoir() -> Any:
    """Recurrent neurons with fixed weights, and a read-out that is trained."""
    made = Loop(snn.RLeaky(beta=0.8, linear_features=HIDDEN, learn_recurrent=False), snn.Leaky(beta=0.9))
    made.fc1.requires_grad_(False)
    return made


def _jelly_in_time() -> Any:
    net = nn.Sequential(
        jelly.Linear(INPUTS, HIDDEN), neuron.LIFNode(tau=3.0, decay_input=False, v_reset=None),
        jelly.Linear(HIDDEN, CLASSES), neuron.LIFNode(tau=2.0, detach_reset=True),
    )  # fmt: skip
    functional.set_step_mode(net, "m")
    return net


def _jelly_nodes(step_mode: str) -> Any:
    """SpikingJelly's neurons that are recorded operation by operation, behind one that is known."""
    if step_mode == "m":
        nodes = [neuron.LIFNode(detach_reset=True), neuron.QIFNode(), neuron.KLIFNode(scale_reset=True)]
    else:
        nodes = [neuron.EIFNode(detach_reset=True), neuron.IzhikevichNode(a=0.1, b=0.2), neuron.IFNode()]
    widths = (INPUTS, HIDDEN, HIDDEN, CLASSES)
    linear = [jelly.Linear(one, other) for one, other in pairwise(widths)]
    net = nn.Sequential(*(each for pair in zip(linear, nodes, strict=True) for each in pair))
    functional.set_step_mode(net, step_mode)
    return net


def _sliding(step_mode: str) -> Any:
    """Neurons without a reset, whose potential is a weighted sum of their last currents (Fang et al. 2023)."""
    nodes = [neuron.SlidingPSN(3), neuron.SlidingPSN(2, exp_init=False), neuron.LIFNode()]
    linear = [jelly.Linear(one, other) for one, other in pairwise((INPUTS, HIDDEN, HIDDEN, CLASSES))]
    net = nn.Sequential(*(each for pair in zip(linear, nodes, strict=True) for each in pair))
    functional.set_step_mode(net, step_mode)
    return net


class LastCurrents(nn.Module):  # type: ignore[misc]
    """Neurons, written out, that weigh their current, that of the timestep before and that of three before."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.taps = nn.Parameter(torch.tensor([0.6, 0.5]))

    def forward(self, x: Any) -> Any:
        spike, sent = surrogate.atan(), 0
        kept = [torch.zeros(x.shape[1], HIDDEN)] * 3
        for each in x:
            current = self.first(each)
            potential = self.taps[0] * current + self.taps[1] * kept[0] - 0.25 * kept[2]
            kept = [current, *kept[:2]]
            sent = sent + self.last(spike(potential - 1.0))
        return sent / len(x)


class _Mean(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x.mean(0)


def _resonating() -> Any:
    """Neurons whose first spikes no current makes, in time."""
    net = nn.Sequential(jelly.Linear(INPUTS, HIDDEN), neuron.RAFNode(), jelly.Linear(HIDDEN, CLASSES), _Mean())
    functional.set_step_mode(net, "m")
    return net


class SpikesFirst(nn.Module):  # type: ignore[misc]
    """Neurons that are written out and spike by their state of the timestep before, as SpyTorch's; behind them weights
    of their `rate` or their `last` spikes, of `every` timestep or its `mean`, or neurons of a framework and a `sum`."""

    def __init__(self, behind: str) -> None:
        super().__init__()
        self.behind = behind
        self.first, self.last = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        if behind == "sum":
            self.between, self.lif = nn.Linear(HIDDEN, HIDDEN), _leaky(threshold=0.3)

    def forward(self, x: Any) -> Any:
        spike, every = surrogate.atan(), []
        synapse, potential = torch.zeros(2, x.shape[1], HIDDEN)
        membrane, count = self.lif.init_leaky() if self.behind == "sum" else 0, 0
        for each in x:
            sent = spike(potential - 0.3)
            potential = 0.8 * potential * (1 - sent.detach()) + synapse
            synapse = 0.7 * synapse + self.first(each)
            if self.behind == "sum":
                sent, membrane = self.lif(self.between(sent), membrane)
            count = count + sent
            every.append(self.last(sent) if self.behind not in ("rate", "last") else sent)
        if self.behind in ("rate", "last"):
            return self.last(count / len(x) if self.behind == "rate" else sent)
        return torch.stack(every) if self.behind == "every" else sum(every) / (len(x) if self.behind == "mean" else 1)


def _lsnn() -> Any:
    adaptive = norse.LSNNParameters(
        tau_mem_inv=torch.tensor(300.0), tau_adapt_inv=torch.tensor(20.0), beta=torch.tensor(0.4), alpha=1.0
    )
    return norse.SequentialState(
        nn.Linear(INPUTS, HIDDEN, bias=False),
        norse.LSNN(p=adaptive),
        nn.Linear(HIDDEN, CLASSES, bias=False),
        norse.LI(),
    )


class FirstOf(nn.Module):  # type: ignore[misc]
    """The output of a module that returns its state too."""

    def __init__(self, module: Any):
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        return self.module(x)[0]


@dataclass(frozen=True, kw_only=True)
class TorchNetwork:
    """make: the module; loss: as given to from_torch, `judge`: the same by PyTorch of what the module returns;
    single: it takes a timestep a call; sample: the shape of a timestep of one; input: spikes, an "image", which the
    module shows in every timestep, or a sequence of "values"."""

    make: Callable[[], Any]
    loss: Any = "ce_count_loss"
    judge: Callable[[Any, Any], Any]
    single: bool = False
    batch_first: bool = False
    scale: float = 3.0
    sample: tuple[int, ...] = (INPUTS,)
    input: str = "spikes"
    options: dict[str, Any] = field(default_factory=dict)


def of_counts(spikes: Any, labels: Any) -> Any:
    spikes = spikes[0] if isinstance(spikes, tuple) else spikes
    return torch.nn.functional.cross_entropy(spikes.sum(0) if spikes.ndim == 3 else spikes, labels)


def of_rate(spikes: Any, labels: Any) -> Any:
    spikes = spikes[0] if isinstance(spikes, tuple) else spikes
    return sum(torch.nn.functional.cross_entropy(step, labels) for step in spikes) / len(spikes)


def of_membrane(potentials: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(potentials.max(0).values, labels)


def of_every_membrane(returned: Any, labels: Any) -> Any:
    """Tutorial 5 of snnTorch: the cross-entropy of the membrane in every timestep, added up."""
    return sum(torch.nn.functional.cross_entropy(step, labels) for step in returned[1])


def of_highest_membrane(returned: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(returned[1].max(0).values, labels)


def of_highest_of_samples(potentials: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(potentials.max(1).values, labels)


def of_squares_of_membranes(returned: Any, labels: Any) -> Any:
    """snnTorch's mse_membrane_loss."""
    potentials = returned[1]
    wanted = torch.nn.functional.one_hot(labels, potentials.shape[-1]).to(potentials.dtype)
    return ((potentials - wanted) ** 2).mean()


EVERY = {"loss": "cross_entropy", "reading": "every"}


class Functions(nn.Module):  # type: ignore[misc]
    """Convolutions and pools called as functions, with parameters of the module; the first pool is of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(3, 2, 3, 3) * 0.3), nn.Parameter(torch.randn(3) * 0.1)
        self.w2, self.fc = nn.Parameter(torch.randn(4, 3, 2, 3) * 0.3), nn.Linear(4, CLASSES)
        self.cells = nn.ModuleList([snn.Leaky(beta=beta) for beta in (0.9, 0.8, 0.95)])

    def forward(self, x: Any) -> Any:
        f, states, out = torch.nn.functional, [cell.reset_mem() for cell in self.cells], []
        for step in x:
            current = f.conv2d(f.max_pool2d(step, 2, stride=1), self.w1, self.b1, padding="same")
            one, states[0] = self.cells[0](f.avg_pool2d(current, (2, 1)), states[0])
            two, states[1] = self.cells[1](f.conv2d(one, self.w2, stride=(1, 2)), states[1])
            three, states[2] = self.cells[2](self.fc(f.adaptive_avg_pool2d(two, 1).flatten(1)), states[2])
            out.append(three)
        return torch.stack(out)


class NorsePlanes(nn.Module):  # type: ignore[misc]
    """Norse, a loop over time; pools of spikes add up or take the largest."""

    def __init__(self) -> None:
        super().__init__()
        fast = norse.LIFParameters(tau_mem_inv=torch.tensor(300.0), alpha=torch.tensor(1.0))
        self.net = norse.SequentialState(
            nn.Conv2d(2, 3, 3, padding=1), norse.LIFCell(p=fast), nn.AvgPool2d(2, divisor_override=1),
            nn.Conv2d(3, 4, 2, bias=False), norse.LIFCell(p=fast), nn.MaxPool2d(2, stride=1, padding=1),
            nn.Flatten(), nn.Linear(4 * 9, CLASSES, bias=False), norse.LICell(),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        state, voltages = None, []
        for step in x:
            v, state = self.net(step, state)
            voltages.append(v)
        return torch.stack(voltages)


def _norse_lifted() -> Any:
    """Norse: modules of whole sequences, and Lift for those that know no time."""
    fast = norse.LIFParameters(tau_mem_inv=torch.tensor(300.0), alpha=torch.tensor(1.0))
    return norse.SequentialState(
        norse.Lift(nn.Conv2d(2, 3, 3)), norse.LIF(p=fast), norse.Lift(nn.MaxPool2d(2)), nn.Flatten(2),
        nn.Linear(12, CLASSES, bias=False), norse.LI(),
    )  # fmt: skip


def _jelly_planes(step_mode: str) -> Any:
    """SpikingJelly's network for DVS Gesture, without batch norm and dropout."""
    net = nn.Sequential(
        jelly.Conv2d(2, 4, 3, padding=1, bias=False), neuron.LIFNode(tau=2.0, detach_reset=True), jelly.MaxPool2d(2, 2),
        jelly.Conv2d(4, 4, 3, padding=1, bias=False), neuron.LIFNode(tau=2.0, detach_reset=True), jelly.MaxPool2d(2, 2),
        jelly.Flatten(), jelly.Linear(16, 12), neuron.LIFNode(detach_reset=True),
        jelly.Linear(12, CLASSES), neuron.LIFNode(detach_reset=True),
    )  # fmt: skip
    functional.set_step_mode(net, step_mode)
    return net


class Shown(nn.Module):  # type: ignore[misc]
    """snnTorch's tutorial 5: an image in every timestep."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.lif1 = nn.Linear(INPUTS, HIDDEN), snn.Leaky(beta=0.95)
        self.fc2, self.lif2 = nn.Linear(HIDDEN, CLASSES), snn.Leaky(beta=0.95)

    def forward(self, x: Any) -> Any:
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spikes, potentials = [], []
        for _ in range(TIMESTEPS):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
            potentials.append(mem2)
        return torch.stack(spikes, dim=0), torch.stack(potentials, dim=0)


class OwnTau(nn.Module):  # type: ignore[misc]
    """One learned number for the neurons of a layer: how much they keep, as a sigmoid, and in planes a threshold."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc1, self.fc2 = nn.Conv2d(2, 3, 3), nn.Linear(48, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.w, self.thr = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.tensor([0.5]))

    def forward(self, x: Any) -> Any:
        v, u, made = 0.0, 0.0, 0.0
        for step in x:
            v = 0.9 * v + self.conv(step)
            first = spike_fn(v - self.thr)
            v = v * (1 - first)
            u = torch.sigmoid(self.w) * u + self.fc1(first.flatten(1))
            second = spike_fn(u - 1.0)
            u = u - second
            made = made + self.fc2(second)
        return made


class ReadOut(nn.Module):  # type: ignore[misc]
    """A linear layer without neurons at the end: of every timestep, averaged, or of the mean or the sum of all."""

    def __init__(self, of: str):
        super().__init__()
        self.fc1, self.lif1, self.fc2 = nn.Linear(INPUTS, HIDDEN), snn.Leaky(beta=0.9), nn.Linear(HIDDEN, CLASSES)
        self.of = of

    def forward(self, x: Any) -> Any:
        mem, spikes = self.lif1.init_leaky(), []
        for step in x:
            spk, mem = self.lif1(self.fc1(step), mem)
            spikes.append(spk)
        sent = torch.stack(spikes)
        return self.fc2(getattr(sent, self.of)(0)) if self.of else self.fc2(sent).mean(0)


class SoftReadOut(nn.Module):  # type: ignore[misc]
    """Code for SHD and SSC: a read-out that leaks, written out, and its softmax of every timestep, added up."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.v = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.read = nn.Linear(HIDDEN, CLASSES)
        self.lif = snn.Leaky(beta=0.9)

    def forward(self, x: Any) -> Any:
        mem, out = self.lif.reset_mem(), 0
        spk, u = x.new_zeros(x.shape[1], HIDDEN), x.new_zeros(x.shape[1], CLASSES)
        for step in x:
            spk, mem = self.lif(self.w(step) + self.v(spk), mem)
            u = 0.9 * u + 0.1 * self.read(spk)
            out += torch.nn.functional.softmax(u, dim=1)
        return out


class SoftMembrane(Loop):
    """The mean over time of the softmax of potentials, and its logarithm of the softmax."""

    def __init__(self) -> None:
        super().__init__(_leaky(), _leaky(reset_mechanism="none"))
        self.shares = nn.Softmax(dim=-1)

    def forward(self, x: Any) -> Any:
        return torch.log_softmax(self.shares(super().forward(x)[1]).mean(0), 1)


class SoftCurrent(nn.Module):  # type: ignore[misc]
    """A linear read-out whose softmax is averaged over time."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.lif, self.read = nn.Linear(INPUTS, HIDDEN), _leaky(), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        mem, out = self.lif.reset_mem(), torch.zeros(x.shape[1], CLASSES, dtype=x.dtype)
        for step in x:
            spk, mem = self.lif(self.fc(step), mem)
            out = out + self.read(spk).softmax(1)
        return out / len(x)


class ClassPopulations(Loop):
    """Several neurons for a class, side by side: their mean or their sum."""

    def __init__(self, of: str, each: int = 4):
        super().__init__(snn.Leaky(beta=0.9), snn.Leaky(beta=0.9))
        self.fc2, self.of, self.each = nn.Linear(HIDDEN, each * CLASSES), of, each

    def forward(self, x: Any) -> Any:
        spikes, _ = super().forward(x)
        if self.of == "sum":
            return spikes.view(*spikes.shape[:2], CLASSES, self.each).sum(dim=-1)
        return spikes.mean(0).reshape(-1, CLASSES, self.each).mean(2)


class DefinedInForward(ReadOut):
    """Neurons written out, whose surrogate gradient is defined where the module runs."""

    def forward(self, x: Any) -> Any:
        class Spike(torch.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, given: Any) -> Any:
                ctx.save_for_backward(given)
                return (given > 0).to(given.dtype)

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                (given,) = ctx.saved_tensors
                return gradient / (10 * given.abs() + 1) ** 2

        mem, spikes = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype), []
        for step in x:
            mem = 0.9 * mem + self.fc1(step)
            sent = Spike.apply(mem - 1)
            mem = mem * (1 - sent.detach())
            spikes.append(sent)
        return self.fc2(torch.stack(spikes)).sum(0)


class CountsInALoop(ReadOut):
    """Counts that grow by a timestep after another, and what they come to by a linear layer; so many timesteps late."""

    def __init__(self, of: str, late: int = 0):
        super().__init__(of)
        self.late = late

    def forward(self, x: Any) -> Any:
        mem, counts = self.lif1.init_leaky(), torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)
        for t, step in enumerate(x):
            spk, mem = self.lif1(self.fc1(step), mem)
            if t >= self.late:
                counts = counts + spk
        return self.fc2(counts / len(x) if self.of == "mean" else counts)


class LateMembranes(Loop):
    """The mean of a membrane, but for the first timesteps."""

    def __init__(self) -> None:
        super().__init__(_leaky(), _leaky(reset_mechanism="none"))

    def forward(self, x: Any) -> Any:
        return super().forward(x)[1][5:].mean(0)


def _unbiased(module: Any) -> Any:
    """With a bias that begins at 0, and so is in no value, but in gradients."""
    nn.init.zeros_(module.fc2.bias)
    return module


class ShownPlanes(nn.Module):  # type: ignore[misc]
    """SpikingJelly's network for Fashion-MNIST: the first convolution and its neurons turn an image into spikes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            jelly.Conv2d(1, 4, kernel_size=3, padding=1, bias=False), jelly.BatchNorm2d(4), neuron.IFNode(),
            jelly.MaxPool2d(2, 2),
            jelly.Conv2d(4, 4, kernel_size=3, padding=1, bias=False), jelly.BatchNorm2d(4), neuron.IFNode(),
            jelly.MaxPool2d(2, 2),
            jelly.Flatten(), jelly.Linear(16, 12, bias=False), neuron.IFNode(),
            jelly.Linear(12, CLASSES, bias=False), neuron.IFNode(),
        )  # fmt: skip
        functional.set_step_mode(self, step_mode="m")

    def forward(self, x: Any) -> Any:
        return self.layers(x.unsqueeze(0).repeat(TIMESTEPS, 1, 1, 1, 1)).mean(0)


def _gesture_net() -> Any:
    """The network for DVS Gesture that SpikingJelly ships (Fang et al. 2021), on 32 x 32 pixels and without dropout."""
    net = parametric_lif_net.DVSGestureNet(
        channels=3, spiking_neuron=neuron.ParametricLIFNode, init_tau=2.0, detach_reset=True
    )
    kept = [part for part in net.conv_fc if not isinstance(part, jelly.Dropout)]
    narrow = {
        layer: jelly.Linear(*shape)
        for layer, shape in zip(
            (part for part in kept if isinstance(part, jelly.Linear)), ((3, 12), (12, 2 * CLASSES)), strict=True
        )
    }
    votes = [narrow.get(part, jelly.VotingLayer(2) if isinstance(part, jelly.VotingLayer) else part) for part in kept]
    net.conv_fc = nn.Sequential(*votes)
    functional.set_step_mode(net, "m")
    return net


def _plif(planes: bool) -> Any:
    """Neurons that learn how fast they forget, one number for a layer (Fang et al. 2021)."""
    cells = [neuron.ParametricLIFNode(init_tau=tau, decay_input=tau < 3, detach_reset=True) for tau in (2.0, 4.0)]
    if planes:
        first = (nn.Unflatten(1, (3, 10)), nn.Conv1d(3, 4, 3, padding=1, bias=False), cells[0], nn.MaxPool1d(2))
        return nn.Sequential(*first, nn.Flatten(), nn.Linear(20, CLASSES, bias=False), cells[1])
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN, bias=False), cells[0], nn.Linear(HIDDEN, CLASSES), cells[1])


def _learning() -> Any:
    """snnTorch's neurons that learn their decay and threshold, each its own or one for all."""
    decays = torch.linspace(0.7, 0.95, HIDDEN)
    first = snn.Leaky(beta=decays, learn_beta=True, threshold=0.75, learn_threshold=True)
    return Loop(first, snn.Leaky(beta=0.8, learn_beta=True, learn_threshold=True))


def _jelly_normed() -> Any:
    """SpikingJelly's blocks of a convolution, batch norm and neurons, over all timesteps at once."""
    net = nn.Sequential(
        jelly.Conv2d(2, 4, 3, padding=1, bias=False), jelly.BatchNorm2d(4), neuron.LIFNode(detach_reset=True),
        jelly.MaxPool2d(2, 2), jelly.Conv2d(4, 4, 3, padding=1, bias=False), jelly.BatchNorm2d(4),
        neuron.LIFNode(detach_reset=True), jelly.MaxPool2d(2, 2), jelly.Flatten(), jelly.Linear(16, CLASSES),
        neuron.LIFNode(detach_reset=True),
    )  # fmt: skip
    functional.set_step_mode(net, "m")
    return net


class Boosted(nn.Module):  # type: ignore[misc]
    """Fang et al. 2021 as published: counts of a loop, whose pool makes a class of adjacent neurons; zeros at the edges
    of planes are added before the convolution, as Cordone et al. 2022 do."""

    def __init__(self) -> None:
        super().__init__()
        cells = [neuron.ParametricLIFNode(init_tau=2.0, detach_reset=True) for _ in range(3)]
        self.conv = nn.Sequential(
            nn.ConstantPad2d(1, 0.0), nn.Conv2d(2, 4, 3, bias=False), cells[0], nn.MaxPool2d(2),
            nn.ZeroPad2d((1, 1, 0, 0)), nn.Conv2d(4, 4, 3, padding=1), cells[1],
        )  # fmt: skip
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(96, CLASSES * 3, bias=False), cells[2])
        self.boost = nn.AvgPool1d(3, 3)

    def forward(self, x: Any) -> Any:
        out = self.boost(self.fc(self.conv(x[0])).unsqueeze(1)).squeeze(1)
        for step in x[1:]:
            out += self.boost(self.fc(self.conv(step)).unsqueeze(1)).squeeze(1)
        return out


def _separable(step_mode: str) -> Any:
    """A block of MobileNets in SpikingJelly: each plane by itself, then all planes pixel by pixel, neurons after both;
    before it planes in two groups."""
    net = nn.Sequential(
        jelly.Conv2d(2, 4, 3, padding=1, groups=2, bias=False), jelly.BatchNorm2d(4),
        neuron.LIFNode(detach_reset=True), jelly.Conv2d(4, 8, 3, stride=2, padding=1, groups=4, bias=False),
        jelly.BatchNorm2d(8), neuron.LIFNode(detach_reset=True), jelly.Conv2d(8, 6, 1, bias=False),
        jelly.BatchNorm2d(6), neuron.LIFNode(detach_reset=True), jelly.AvgPool2d(2, 2), jelly.Flatten(),
        jelly.Linear(24, CLASSES), neuron.LIFNode(detach_reset=True),
    )  # fmt: skip
    functional.set_step_mode(net, step_mode)
    return net


def _separable_loop() -> Any:
    """The same in snnTorch, with biases and currents that are pooled."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), _leaky(init_hidden=True),
        nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.MaxPool2d(2), _leaky(init_hidden=True),
        nn.Conv2d(4, 6, 1), _leaky(init_hidden=True), nn.Flatten(), nn.Linear(96, CLASSES), _leaky(init_hidden=True),
    )  # fmt: skip


class SewBlock(nn.Module):  # type: ignore[misc]
    """SpikingJelly's BasicBlock of SEW ResNets (Fang et al. 2021), connected by ADD."""

    def __init__(self, planes: int, made: int = 0, size: int = 3):
        super().__init__()
        self.conv1, self.conv2 = (
            jelly.Conv2d(a, b, size, padding=size // 2, bias=False)
            for a, b in ((planes, made or planes), (made or planes, made or planes))
        )
        self.bn1, self.bn2 = jelly.BatchNorm2d(made or planes), jelly.BatchNorm2d(made or planes)
        self.sn1, self.sn2 = neuron.IFNode(detach_reset=True), neuron.IFNode(detach_reset=True)
        self.downsample = None
        if made:
            self.downsample = nn.Sequential(
                jelly.Conv2d(planes, made, 1, bias=False), jelly.BatchNorm2d(made), neuron.IFNode(detach_reset=True)
            )

    def forward(self, x: Any) -> Any:
        out = self.sn2(self.bn2(self.conv2(self.sn1(self.bn1(self.conv1(x))))))
        if self.downsample is None:
            return out + x
        out += self.downsample(x)
        return out


def _sew(step_mode: str) -> Any:
    net = nn.Sequential(
        jelly.Conv2d(2, 4, 3, padding=1, bias=False), jelly.BatchNorm2d(4), neuron.IFNode(detach_reset=True),
        SewBlock(4), jelly.MaxPool2d(2, 2), SewBlock(4, 6), SewBlock(6), jelly.AvgPool2d(2, 2), jelly.Flatten(),
        jelly.Linear(24, CLASSES), neuron.LIFNode(detach_reset=True),
    )  # fmt: skip
    functional.set_step_mode(net, step_mode)
    return net


class SewResNet(nn.Module):  # type: ignore[misc]
    """SpikingJelly's SEW ResNet (`sew_resnet18` and the like) with fewer blocks and planes: stem, pool, blocks, the
    second with a shortcut of its own and half the size, an adaptive pool and a linear layer without neurons."""

    def __init__(self, connect: str, step_mode: str):
        super().__init__()
        self.connect = connect
        self.conv1, self.bn1 = jelly.Conv2d(2, 4, 7, stride=2, padding=3, bias=False), jelly.BatchNorm2d(4)
        self.sn1 = neuron.IFNode(detach_reset=True)
        self.maxpool = jelly.MaxPool2d(3, 2, 1)
        self.layer1, self.layer2 = self._block(4, 4), self._block(4, 6, stride=2)
        self.avgpool, self.fc = jelly.AdaptiveAvgPool2d((1, 1)), jelly.Linear(6, CLASSES)
        functional.set_step_mode(self, step_mode)

    def _block(self, planes: int, made: int, stride: int = 1) -> Any:
        block = nn.ModuleDict()
        shapes = {"1": (planes, made, 3, stride, 1), "2": (made, made, 3, 1, 1)}
        shapes |= {"downsample": (planes, made, 1, stride, 0)} if stride > 1 else {}
        for name, shape in shapes.items():
            block[name] = nn.Sequential(
                jelly.Conv2d(*shape, bias=False), jelly.BatchNorm2d(made), neuron.IFNode(detach_reset=True)
            )
        return block

    def _through(self, block: Any, x: Any) -> Any:
        out, identity = block["2"](block["1"](x)), x
        if "downsample" in block:
            identity = block["downsample"](x)
        if self.connect == "ADD":
            return identity + out
        return identity * out if self.connect == "AND" else identity * (1.0 - out)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.sn1(self.bn1(self.conv1(x))))
        x = self.avgpool(self._through(self.layer2, self._through(self.layer1, x)))
        return self.fc(x.flatten(2 if self.avgpool.step_mode == "m" else 1))


class MembraneStream(nn.Module):  # type: ignore[misc]
    """Membrane shortcuts in fully connected form: a stream of currents, to which blocks add what they make."""

    def __init__(self, neurons: Callable[[], Any]):
        super().__init__()
        self.stem, self.out = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.blocks = nn.ModuleList(
            nn.ModuleList([neurons(), nn.Linear(HIDDEN, INPUTS), neurons(), nn.Linear(INPUTS, HIDDEN)]) for _ in "12"
        )
        self.last, self.read = neurons(), neurons()

    def forward(self, x: Any) -> Any:
        out = []
        for step in x:
            stream = self.stem(step)
            for lif1, fc1, lif2, fc2 in self.blocks:
                stream = fc2(lif2(fc1(lif1(stream)))) + stream
            out.append(self.read(self.out(self.last(stream))))
        for each in self.modules():
            if isinstance(each, OwnNeuron):
                each.mem = None
        return torch.stack(out)


class MsBlock(nn.Module):  # type: ignore[misc]
    """A block of MS-ResNet (Hu et al. 2021) with neurons before convolutions; its shortcut may be weights of its own,
    of the currents or of the spikes."""

    def __init__(self, planes: int, made: int = 0, of_spikes: bool = False):
        super().__init__()
        self.of_spikes, wide, stride = of_spikes, made or planes, 2 if made else 1
        self.lif1, self.lif2 = (neuron.LIFNode(tau=1.5, detach_reset=True) for _ in "12")
        self.conv1 = jelly.Conv2d(planes, wide, 3, stride=stride, padding=1, bias=False)
        self.conv2 = jelly.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.bn1, self.bn2 = jelly.BatchNorm2d(wide), jelly.BatchNorm2d(wide)
        self.shortcut = nn.Sequential()
        if made:
            self.shortcut = nn.Sequential(jelly.Conv2d(planes, made, 1, stride=2, bias=False), jelly.BatchNorm2d(made))

    def forward(self, x: Any) -> Any:
        spikes = self.lif1(x)
        out = self.bn2(self.conv2(self.lif2(self.bn1(self.conv1(spikes)))))
        out += self.shortcut(spikes if self.of_spikes else x)
        return out


def _ms_resnet(step_mode: str, of_spikes: bool) -> Any:
    net = nn.Sequential(
        jelly.Conv2d(2, 4, 3, stride=2, padding=1, bias=False), jelly.BatchNorm2d(4), MsBlock(4),
        MsBlock(4, 6, of_spikes), MsBlock(6), neuron.LIFNode(tau=1.5, detach_reset=True), jelly.AvgPool2d(2, 2),
        jelly.Flatten(), jelly.Linear(6, CLASSES), neuron.LIFNode(v_threshold=0.25, detach_reset=True),
    )  # fmt: skip
    functional.set_step_mode(net, step_mode)
    return net


class MemUpdate(nn.Module):  # type: ignore[misc]
    """The neurons of MS-ResNet as its authors write them, over all timesteps."""

    def forward(self, x: Any) -> Any:
        mem_old: Any = 0
        spike, output = torch.zeros_like(x[0]), torch.zeros_like(x)
        for i in range(len(x)):
            mem = mem_old * 0.25 * (1 - spike.detach()) + x[i] if i >= 1 else x[i]
            spike = Rectangle.apply(mem)
            mem_old = mem.clone()
            output[i] = spike
        return output


class TimestepConv(nn.Conv2d):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        made = [self._conv_forward(step, self.weight, self.bias) for step in x]
        output = torch.zeros(len(x), *made[0].shape, dtype=x.dtype)
        for i, each in enumerate(made):
            output[i] = each
        return output


class VolumeNorm(nn.BatchNorm3d):  # type: ignore[misc]
    """tdBN of [timesteps, samples, channels, height, width]."""

    def forward(self, x: Any) -> Any:
        y = super().forward(x.transpose(0, 2).contiguous().transpose(0, 1).contiguous())
        return y.contiguous().transpose(0, 1).contiguous().transpose(0, 2)


class MsAuthors(nn.Module):  # type: ignore[misc]
    """MS-ResNet as its authors write it, with fewer blocks and planes, shown an image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = self._conv(2, 4, 3, 2)
        self.blocks = nn.ModuleList([self._block(4, 4, 1), self._block(4, 6, 2)])
        self.shortcuts = nn.ModuleList([nn.Sequential(), self._conv(4, 6, 1, 2)])
        self.mem_update, self.fc = MemUpdate(), nn.Linear(6, CLASSES)

    def _conv(self, planes: int, made: int, size: int, stride: int = 1) -> Any:
        return nn.Sequential(TimestepConv(planes, made, size, stride, size // 2, bias=False), VolumeNorm(made))

    def _block(self, planes: int, made: int, stride: int) -> Any:
        first, second = self._conv(planes, made, 3, stride), self._conv(made, made, 3)
        return nn.Sequential(MemUpdate(), first, MemUpdate(), second)

    def forward(self, x: Any) -> Any:
        given = torch.zeros(TIMESTEPS, *x.shape, dtype=x.dtype)
        for i in range(TIMESTEPS):
            given[i] = x
        x = self.conv1(given)
        for block, shortcut in zip(self.blocks, self.shortcuts, strict=True):
            x = block(x) + shortcut(x)
        x = torch.nn.functional.adaptive_avg_pool3d(self.mem_update(x), (None, 1, 1))
        x = x.view(x.shape[0], x.shape[1], -1)
        return self.fc(x.sum(dim=0) / x.shape[0])


class SpikeDriven(nn.Module):  # type: ignore[misc]
    """Spike-driven Transformer (Yao et al. 2023) without attention, time and samples in one axis: patches that are
    split with pools of currents and a shortcut around a convolution, an MLP, and the mean of planes of the stream."""

    def __init__(self, dim: int = 6):
        super().__init__()
        self.proj_conv, self.proj_bn = nn.Conv2d(2, dim, 3, 1, 1, bias=False), nn.BatchNorm2d(dim)
        self.rpe_conv, self.rpe_bn = nn.Conv2d(dim, dim, 3, 1, 1, bias=False), nn.BatchNorm2d(dim)
        self.fc1_conv, self.fc1_bn = nn.Conv2d(dim, 2 * dim, 1, bias=False), nn.BatchNorm2d(2 * dim)
        self.fc2_conv, self.fc2_bn = nn.Conv2d(2 * dim, dim, 1, bias=False), nn.BatchNorm2d(dim)
        self.maxpool, self.head = nn.MaxPool2d(4, 4), nn.Linear(dim, CLASSES)
        self.lifs = nn.ModuleList(neuron.LIFNode(tau=2.0, detach_reset=True, step_mode="m") for _ in range(4))

    def forward(self, x: Any) -> Any:
        steps, samples = x.shape[:2]
        proj_lif, fc1_lif, fc2_lif, head_lif = self.lifs
        x = self.maxpool(self.proj_bn(self.proj_conv(x.flatten(0, 1))))
        feature, planes = x, (steps, samples, -1, *x.shape[-2:])
        x = proj_lif(x.reshape(planes).contiguous()).flatten(0, 1).contiguous()
        x = (self.rpe_bn(self.rpe_conv(x)) + feature).reshape(planes).contiguous()
        identity = x
        x = self.fc1_bn(self.fc1_conv(fc1_lif(x).flatten(0, 1))).reshape(planes).contiguous()
        x = self.fc2_bn(self.fc2_conv(fc2_lif(x).flatten(0, 1))).reshape(planes).contiguous() + identity
        return self.head(head_lif(x.flatten(3).mean(3))).mean(0)


class Spikformer(nn.Module):  # type: ignore[misc]
    """Spikformer (Zhou et al. 2022): pixels in a row as tokens, spiking self-attention over them, which convolutions of
    one token read, and spikes added to them."""

    def __init__(self, dim: int = 6, heads: int = 2):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, dim, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(dim)
        wide = {"q": (dim, dim), "k": (dim, dim), "v": (dim, dim), "proj": (dim, dim)}
        wide |= {"fc1": (dim, 2 * dim), "fc2": (2 * dim, dim)}
        self.convs = nn.ModuleDict({name: nn.Conv1d(*each, 1, bias=False) for name, each in wide.items()})
        self.norms = nn.ModuleDict({name: nn.BatchNorm1d(made) for name, (_, made) in wide.items()})
        self.lifs = nn.ModuleDict(
            {name: neuron.LIFNode(tau=2.0, detach_reset=True, step_mode="m") for name in ("conv", *wide)}
        )
        self.attn_lif = neuron.LIFNode(tau=2.0, v_threshold=0.5, detach_reset=True, step_mode="m")
        self.head, self.heads = nn.Linear(dim, CLASSES), heads

    def one(self, name: str, x: Any) -> Any:
        """[timesteps, samples, channels, tokens]"""
        made = self.norms[name](self.convs[name](x.flatten(0, 1)))
        return self.lifs[name](made.reshape(*x.shape[:2], *made.shape[1:]).contiguous())

    def by_head(self, name: str, x: Any) -> Any:
        """[timesteps, samples, heads, tokens, channels of a head]"""
        made = self.one(name, x).transpose(-1, -2)
        return made.reshape(*made.shape[:3], self.heads, -1).permute(0, 1, 3, 2, 4).contiguous()

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        return (q @ k.transpose(-2, -1)) @ v * 0.25

    def forward(self, x: Any) -> Any:
        steps, samples = x.shape[:2]
        y = self.bn(self.conv(x.flatten(0, 1)))
        y = self.lifs["conv"](y.reshape(steps, samples, *y.shape[1:]).contiguous()).flatten(3)
        z = self.attend(*(self.by_head(name, y) for name in ("q", "k", "v")))
        y = y + self.one("proj", self.attn_lif(z.transpose(3, 4).reshape(y.shape).contiguous()))
        y = y + self.one("fc2", self.one("fc1", y))
        return self.head(y.mean(3)).mean(0)


class LinearSpikformer(Spikformer):
    """The same with linear layers of tokens, as it was published: [timesteps, samples, tokens, channels]."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleDict(
            {name: nn.Linear(conv.in_channels, conv.out_channels, bias=False) for name, conv in self.convs.items()}
        )

    def one(self, name: str, x: Any) -> Any:
        tokens = x.transpose(-1, -2)
        made = self.norms[name](self.convs[name](tokens.flatten(0, 1)).transpose(-1, -2)).transpose(-1, -2)
        return self.lifs[name](made.reshape(*tokens.shape[:3], -1).contiguous()).transpose(-1, -2)


class SpikeDrivenAttention(Spikformer):
    """Self-attention of the spike-driven transformer (Yao et al. 2023): channels of q by which k and v often agree."""

    def __init__(self) -> None:
        super().__init__()
        self.kv_lif = neuron.LIFNode(tau=2.0, v_threshold=0.5, detach_reset=True, step_mode="m")

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        return q.mul(self.kv_lif(k.mul(v).sum(dim=-2, keepdim=True)))


class NormedLoop(Loop):
    """snnTorch, a loop over time with a batch norm in every timestep."""

    def __init__(self) -> None:
        super().__init__(_leaky(), _leaky(), bias=False)
        self.bn1, self.bn2 = nn.BatchNorm1d(HIDDEN), nn.BatchNorm1d(CLASSES)

    def forward(self, x: Any) -> Any:
        one, two, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for step in x:
            spikes, one = self.lif1(self.bn1(self.fc1(step)), one)
            last, two = self.lif2(self.bn2(self.fc2(spikes)), two)
            out.append(last)
        return torch.stack(out)


class LayerNormed(Loop):
    """snnTorch, a loop over time with a layer norm of what linear layers and their biases make."""

    def __init__(self) -> None:
        super().__init__(_leaky(), _leaky())
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(CLASSES)

    def forward(self, x: Any) -> Any:
        one, two, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for step in x:
            spikes, one = self.lif1(self.norm1(self.fc1(step)), one)
            last, two = self.lif2(self.norm2(self.fc2(spikes)), two)
            out.append(last)
        return torch.stack(out)


class RootNorms(LayerNormed):
    """RMSNorm of what linear layers and their biases make, with an epsilon and with that of float32."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-5), nn.RMSNorm(CLASSES)


class PlainNorms(NormedLoop):
    """Norms that do not scale, or do not shift (Kim and Panda 2021, but for all timesteps)."""

    def __init__(self) -> None:
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm1d(HIDDEN, affine=False), nn.LayerNorm(CLASSES, bias=False)


class BnttPlanes(nn.Module):  # type: ignore[misc]
    """BNTT (Kim and Panda 2021) as snnTorch has it: a norm for each timestep, which scales and does not shift."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.Linear(64, CLASSES, bias=False)
        self.norm1, self.norm2 = snn.BatchNormTT2d(4, TIMESTEPS), snn.BatchNormTT1d(CLASSES, TIMESTEPS)
        self.cells = nn.ModuleList(_leaky() for _ in range(2))

    def forward(self, x: Any) -> Any:
        one, two, out = self.cells[0].reset_mem(), self.cells[1].reset_mem(), []
        for t, step in enumerate(x):
            spikes, one = self.cells[0](self.norm1[t](self.conv(step)), one)
            pooled = torch.nn.functional.avg_pool2d(spikes, 2).flatten(1)
            last, two = self.cells[1](self.norm2[t](self.fc(pooled)), two)
            out.append(last)
        return torch.stack(out)


def _jelly_bntt() -> Any:
    return nn.Sequential(
        jelly.Conv2d(2, 4, 3, padding=1, bias=False), jelly.BatchNormThroughTime2d(TIMESTEPS, 4),
        neuron.LIFNode(detach_reset=True), jelly.AvgPool2d(2, 2), jelly.Flatten(), jelly.Linear(64, CLASSES),
        neuron.LIFNode(detach_reset=True),
    )  # fmt: skip


class Bntt(NormedLoop):
    """With a shift, between fully connected layers."""

    def __init__(self) -> None:
        super().__init__()
        self.bn1, self.bn2 = nn.ModuleList(nn.BatchNorm1d(HIDDEN, eps=1e-4) for _ in range(TIMESTEPS)), None

    def forward(self, x: Any) -> Any:
        one, two, out = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for step, norm in zip(x, self.bn1, strict=True):
            spikes, one = self.lif1(norm(self.fc1(step)), one)
            last, two = self.lif2(self.fc2(spikes), two)
            out.append(last)
        return torch.stack(out)


def _plain_layer_norm() -> Any:
    """A layer norm of all planes, without a gain for every pixel."""
    return _sequential(
        nn.Conv2d(2, 4, 3), nn.LayerNorm([4, 6, 6], elementwise_affine=False), nn.MaxPool2d(2),
        _leaky(init_hidden=True), nn.Flatten(), nn.Linear(36, CLASSES), _leaky(init_hidden=True),
    )  # fmt: skip


class NormedVolumes(nn.Module):  # type: ignore[misc]
    """tdBN as its authors write it: a BatchNorm3d of [samples, channels, timesteps, height, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = jelly.SeqToANNContainer(nn.Conv2d(2, 4, 3, padding=1, bias=False))
        self.norm, self.fc = nn.BatchNorm3d(4), jelly.SeqToANNContainer(nn.Linear(64, CLASSES))
        self.cells = nn.ModuleList(neuron.LIFNode(detach_reset=True, step_mode="m") for _ in range(2))

    def forward(self, x: Any) -> Any:
        current = self.norm(self.conv(x).permute(1, 2, 0, 3, 4)).permute(2, 0, 1, 3, 4)
        pooled = jelly.SeqToANNContainer(nn.AvgPool2d(2))(self.cells[0](current))
        return self.cells[1](self.fc(pooled.flatten(2)))


def _group_normed() -> Any:
    net = nn.Sequential(
        jelly.Conv2d(2, 4, 3, padding=1), jelly.GroupNorm(2, 4), neuron.LIFNode(detach_reset=True),
        jelly.MaxPool2d(2, 2), jelly.Conv2d(4, 6, 3, bias=False),
        jelly.SeqToANNContainer(nn.InstanceNorm2d(6, affine=True)), neuron.LIFNode(detach_reset=True),
        jelly.Flatten(), jelly.Linear(24, CLASSES), neuron.LIFNode(detach_reset=True),
    )  # fmt: skip
    functional.set_step_mode(net, "m")
    return net


def _threshold_normed() -> Any:
    """Zheng et al. 2021, as SpikingJelly has it."""
    net = nn.Sequential(
        jelly.Conv2d(2, 4, 3, padding=1, bias=False), jelly.ThresholdDependentBatchNorm2d(1.0, 1.0, 4),
        neuron.IFNode(detach_reset=True), jelly.AvgPool2d(2, 2), jelly.Conv2d(4, 6, 3, bias=False),
        jelly.ThresholdDependentBatchNorm2d(0.5**0.5, 1.0, 6), neuron.IFNode(detach_reset=True), jelly.Flatten(),
        jelly.Linear(24, CLASSES), neuron.LIFNode(detach_reset=True),
    )  # fmt: skip
    functional.set_step_mode(net, "m")
    return net


class NormedSequence(nn.Module):  # type: ignore[misc]
    """The wiring of recurrent layers in sparch: the current of the input is normalised over samples and timesteps, that
    of the layer itself is added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(INPUTS, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN, momentum=0.05)
        self.own, self.out = nn.Linear(HIDDEN, HIDDEN, bias=False), nn.Linear(HIDDEN, CLASSES)
        self.cells = nn.ModuleList([_leaky(), _leaky()])

    def forward(self, x: Any) -> Any:
        current = self.fc(x)
        current = self.norm(current.reshape(-1, HIDDEN)).reshape(current.shape)
        spikes = torch.zeros(x.shape[1], HIDDEN, dtype=x.dtype)
        states, out = [cell.reset_mem() for cell in self.cells], []
        for now in current:
            spikes, states[0] = self.cells[0](now + self.own(spikes), states[0])
            last, states[1] = self.cells[1](self.out(spikes), states[1])
            out.append(last)
        return torch.stack(out)


def _snntorch_planes() -> Any:
    """snnTorch's convolutional tutorial."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 5), nn.MaxPool2d(2), _leaky(init_hidden=True), nn.Conv2d(3, 5, 2), nn.MaxPool2d(2),
        _leaky(init_hidden=True), nn.Flatten(), nn.Linear(20, CLASSES), _leaky(init_hidden=True, output=True),
    )  # fmt: skip


def _one_dimension() -> Any:
    return nn.Sequential(
        nn.Unflatten(1, (3, 10)), nn.Conv1d(3, 4, 3, padding=1, dilation=2, bias=False), _leaky(init_hidden=True),
        nn.AvgPool1d(2, padding=1), nn.Conv1d(4, 5, 2), nn.MaxPool1d(2), _leaky(init_hidden=True), nn.Flatten(),
        nn.Linear(10, CLASSES), _leaky(init_hidden=True, output=True),
    )  # fmt: skip


class Gated(nn.Module):  # type: ignore[misc]
    """A GRU or LSTM over the sequence, and a linear layer that reads its last timestep."""

    def __init__(self, cells: Any, by_state: bool = False):
        super().__init__()
        self.cells, self.out, self.by_state = cells, nn.Linear(HIDDEN, CLASSES), by_state

    def forward(self, x: Any) -> Any:
        sent, state = self.cells(x)
        if self.by_state:
            return self.out(state.squeeze(0))
        return self.out(sent[:, -1] if self.cells.batch_first else sent[-1])


class ConvLstm(nn.Module):  # type: ignore[misc]
    """A convolutional LSTM (Shi et al. 2015) of one convolution over what it reads beside what it sent, or of one of
    each; peepholes: states times learned numbers in its gates."""

    def __init__(self, together: bool = True, peepholes: bool = False, channels: int = 4):
        super().__init__()
        self.own = None if together else nn.Conv2d(channels, 4 * channels, 3, padding=1, bias=False)
        self.gates = nn.Conv2d(2 + channels if together else 2, 4 * channels, 3, padding=1)
        self.forget = nn.Parameter(torch.linspace(-0.5, 0.5, channels).reshape(1, -1, 1, 1)) if peepholes else None
        self.out, self.channels = nn.Linear(channels * 36, CLASSES), channels

    def forward(self, x: Any) -> Any:
        h = c = torch.zeros(x.shape[1], self.channels, *x.shape[3:], dtype=x.dtype)
        out = []
        for step in x:
            made = self.gates(step) + self.own(h) if self.own else self.gates(torch.cat([step, h], dim=1))
            i, f, o, g = torch.split(made, self.channels, dim=1) if self.own else made.chunk(4, dim=1)
            f = f if self.forget is None else f + self.forget * c
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            out.append(self.out(h.flatten(1)))
        return torch.stack(out)


class GatedLoop(nn.Module):  # type: ignore[misc]
    """Two cells called timestep by timestep; the mean over time of what a linear layer makes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GRUCell(INPUTS, HIDDEN), nn.LSTMCell(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Any) -> Any:
        h, state, made = None, None, []
        for step in x:
            h = self.first(step, h)
            state = self.second(h, state)
            made.append(self.out(state[0]))
        return torch.stack(made).mean(0)


class SpikingLstms(nn.Module):  # type: ignore[misc]
    """Spiking LSTMs of snnTorch one after the other, as wide as the input, and what they send or a layer that reads
    it."""

    def __init__(self, count: int, read: bool = True, **more: Any):
        super().__init__()
        made = {"threshold": 0.05, "spike_grad": surrogate.fast_sigmoid(slope=10)} | more
        self.cells = nn.ModuleList(snn.SLSTM(INPUTS, INPUTS, **made) for _ in range(count))
        self.out, self.lif = (nn.Linear(INPUTS, CLASSES), _leaky()) if read else (None, None)

    def forward(self, x: Any) -> Any:
        states, last, spikes, potentials = [each.reset_mem() for each in self.cells], None, [], []
        for sent in x:
            for at, each in enumerate(self.cells):
                sent, *states[at] = each(sent, *states[at])
            potential = states[-1][1]
            if self.lif:
                sent, potential = self.lif(self.out(sent), last if last is not None else self.lif.reset_mem())
                last = potential
            spikes.append(sent)
            potentials.append(potential)
        return torch.stack(spikes), torch.stack(potentials)


class RecurrentPlanes(nn.Module):  # type: ignore[misc]
    """Neurons of planes whose spikes come back through a second convolution."""

    def __init__(self, cell: Any, pool: Any = None):
        super().__init__()
        self.conv, self.pool, self.cell = nn.Conv2d(2, 3, 3, padding=1), pool or nn.Identity(), cell
        self.out, self.read = nn.Linear(3 * (9 if pool else 36), CLASSES), _leaky(init_hidden=True)

    def forward(self, x: Any) -> Any:
        state, made = self.cell.reset_mem(), []
        for step in x:
            spikes, *states = self.cell(self.pool(self.conv(step)), *state)
            state = (spikes, *states)
            made.append(self.read(self.out(spikes.flatten(1))))
        return torch.stack(made)


def _leaky(**more: Any) -> Any:
    return snn.Leaky(beta=0.9, **more)


ZOO: dict[str, TorchNetwork] = {
    "snntorch Leaky": TorchNetwork(make=lambda: Loop(_leaky(), _leaky()), judge=of_counts),
    "snntorch tutorial 5": TorchNetwork(
        make=lambda: Loop(_leaky(), _leaky()), judge=of_every_membrane, loss=EVERY, options={"output": "membrane"}
    ),
    "snntorch membrane, reset to zero": TorchNetwork(
        make=lambda: Loop(_leaky(reset_mechanism="zero"), _leaky(reset_mechanism="zero")), judge=of_highest_membrane,
        loss="ce_max_membrane_loss",
    ),
    "snntorch membrane of Synaptic": TorchNetwork(
        make=lambda: Loop(snn.Synaptic(alpha=0.7, beta=0.8), snn.Synaptic(alpha=0.7, beta=0.8, reset_mechanism="zero")),
        judge=of_every_membrane, loss=EVERY, options={"output": "membrane"},
    ),
    "snntorch membrane without reset": TorchNetwork(
        make=lambda: Loop(_leaky(), _leaky(reset_mechanism="none")), judge=of_every_membrane, loss=EVERY,
        options={"output": "membrane"},
    ),
    "snntorch regression tutorial 1: beta learned, thresholds drawn": TorchNetwork(
        make=lambda: Loop(
            snn.Leaky(
                beta=torch.linspace(0.5, 0.9, HIDDEN), threshold=torch.linspace(0.6, 1.4, HIDDEN), learn_beta=True
            ),
            snn.Leaky(beta=torch.tensor([0.8]), learn_beta=True, reset_mechanism="none"),
        ),
        judge=of_every_membrane, loss=EVERY, options={"output": "membrane"},
    ),
    "snntorch regression tutorial 2: potentials of a recurrent output": TorchNetwork(
        make=lambda: Loop(
            snn.RLeaky(beta=0.8, linear_features=HIDDEN),
            snn.RLeaky(beta=torch.linspace(0.5, 0.9, CLASSES), linear_features=CLASSES),
        ),
        judge=of_squares_of_membranes, loss="mse_membrane_loss", scale=2.0,
    ),
    "snntorch Leaky, rates": TorchNetwork(
        make=lambda: Loop(_leaky(reset_mechanism="zero"), snn.Leaky(beta=torch.linspace(0.5, 0.95, CLASSES))),
        loss="ce_rate_loss", judge=of_rate,
    ),
    "snntorch Leaky, own thresholds": TorchNetwork(
        make=lambda: Loop(_leaky(threshold=torch.linspace(0.6, 1.4, HIDDEN)), _leaky(), bias=False), judge=of_counts
    ),
    "snntorch own surrogate": TorchNetwork(
        make=lambda: Loop(_leaky(spike_grad=OwnSurrogate.apply), _leaky(spike_grad=surrogate.sigmoid(slope=4))),
        judge=of_counts,
    ),
    "snntorch RLeaky": TorchNetwork(
        make=lambda: Loop(snn.RLeaky(beta=0.8, linear_features=HIDDEN), _leaky()), judge=of_counts, scale=2.0
    ),
    "snntorch RLeaky, one to one": TorchNetwork(
        make=lambda: Loop(snn.RLeaky(beta=0.8, all_to_all=False, V=torch.rand(HIDDEN) - 0.5), _leaky()), judge=of_counts
    ),
    "snntorch RLeaky, one weight": TorchNetwork(
        make=lambda: Loop(snn.RLeaky(beta=0.8, all_to_all=False, V=0.6), snn.RLeaky(beta=0.8, all_to_all=False)),
        judge=of_counts,
    ),
    "snntorch RSynaptic, one weight that stays, and one that learns": TorchNetwork(
        make=lambda: Loop(
            snn.RSynaptic(alpha=0.7, beta=0.8, all_to_all=False, V=0.6, learn_recurrent=False),
            snn.RSynaptic(alpha=0.5, beta=0.9, all_to_all=False, V=-0.4),
        ),
        judge=of_counts,
    ),
    "snntorch Synaptic": TorchNetwork(
        make=lambda: Loop(snn.Synaptic(alpha=0.7, beta=0.8), snn.Synaptic(alpha=0.5, beta=0.9)), judge=of_counts
    ),
    "snntorch Alpha": TorchNetwork(
        make=lambda: Loop(snn.Alpha(alpha=0.9, beta=0.8), _leaky()), judge=of_counts, scale=6.0
    ),
    "snntorch Lapicque": TorchNetwork(make=lambda: Loop(snn.Lapicque(R=4.0, C=2.0), _leaky()), judge=of_counts),
    "snntorch Sequential": TorchNetwork(
        make=lambda: _sequential(
            nn.Flatten(), nn.Linear(INPUTS, HIDDEN), _leaky(init_hidden=True),
            nn.Linear(HIDDEN, CLASSES), _leaky(init_hidden=True, output=True),
        ),
        judge=of_counts, single=True,
    ),
    "recurrence by hand": TorchNetwork(make=HandRecurrent, judge=of_counts, batch_first=True, scale=2.0),
    "bare parameters": TorchNetwork(make=Products, judge=of_counts, scale=1.0),
    "masked": TorchNetwork(make=Masked, judge=of_counts, scale=4.0),
    "spikingjelly, a loop": TorchNetwork(make=JellyLoop, judge=of_counts, scale=5.0),
    "spikingjelly in time": TorchNetwork(make=_jelly_in_time, judge=of_counts, scale=4.0),
    "spikingjelly, mean over time": TorchNetwork(make=JellyMean, loss="", judge=of_counts, scale=4.0),
    "spikingjelly's own network for DVS Gesture": TorchNetwork(
        make=_gesture_net, judge=of_counts, sample=(2, 32, 32), scale=8.0
    ),
    "spikingjelly PLIF, zeros at edges, a pool of outputs": TorchNetwork(
        make=Boosted, loss="", judge=of_counts, sample=(2, 8, 8), scale=8.0
    ),
    "spikingjelly PLIF": TorchNetwork(make=lambda: _plif(False), judge=of_counts, single=True, scale=4.0),
    "spikingjelly PLIF after a convolution": TorchNetwork(
        make=lambda: _plif(True), judge=of_counts, single=True, scale=6.0
    ),
    "spikingjelly QIF and KLIF, in time": TorchNetwork(make=lambda: _jelly_nodes("m"), judge=of_counts, scale=4.0),
    "spikingjelly SlidingPSN, in time": TorchNetwork(make=lambda: _sliding("m"), judge=of_counts, scale=4.0),
    "spikingjelly SlidingPSN": TorchNetwork(make=lambda: _sliding("s"), judge=of_counts, single=True, scale=4.0),
    "neurons written out: currents of before": TorchNetwork(make=LastCurrents, loss="", judge=of_counts, scale=3.0),
    "neurons written out: spikes first, their mean": TorchNetwork(
        make=lambda: SpikesFirst("mean"), loss="", judge=of_counts, scale=3.0
    ),
    "neurons written out: spikes first, weights of their rate": TorchNetwork(
        make=lambda: SpikesFirst("rate"), loss="", judge=of_counts, scale=3.0
    ),
    "neurons written out: spikes first, weights of the last": TorchNetwork(
        make=lambda: SpikesFirst("last"), loss="", judge=of_counts, scale=3.0
    ),
    "neurons written out: spikes first, weights of each timestep": TorchNetwork(
        make=lambda: SpikesFirst("every"),
        loss=EVERY,
        judge=lambda made, labels: of_rate(made, labels) * len(made),
        scale=3.0,
    ),
    "neurons written out: spikes first, behind them snntorch": TorchNetwork(
        make=lambda: SpikesFirst("sum"), loss="", judge=of_counts, scale=3.0
    ),
    "spikingjelly resonate and fire, in time": TorchNetwork(make=_resonating, loss="", judge=of_counts, scale=6.0),
    "spikingjelly EIF and Izhikevich": TorchNetwork(
        make=lambda: _jelly_nodes("s"), judge=of_counts, single=True, scale=4.0
    ),
    "snntorch, learned decays and thresholds": TorchNetwork(make=_learning, judge=of_counts),
    "snntorch, learned decays of Synaptic": TorchNetwork(
        make=lambda: Loop(
            snn.Synaptic(alpha=0.7, beta=0.8, learn_alpha=True, learn_beta=True, reset_mechanism="zero"),
            snn.RSynaptic(alpha=0.6, beta=0.8, learn_beta=True, linear_features=CLASSES),
        ),
        judge=of_counts,
    ),
    "snntorch, a membrane that learns its decay": TorchNetwork(
        make=lambda: Loop(_leaky(learn_threshold=True), _leaky(learn_beta=True)),
        judge=of_every_membrane, loss=EVERY, options={"output": "membrane"},
    ),
    "snntorch, a membrane without reset": TorchNetwork(
        make=lambda: Loop(
            _leaky(), snn.Leaky(beta=0.8, threshold=torch.linspace(0.5, 1.5, CLASSES), reset_mechanism="none")
        ),
        judge=of_every_membrane, loss=EVERY, options={"output": "membrane"},
    ),
    "a timestep between layers": TorchNetwork(make=Delayed, loss="", judge=of_counts, scale=4.0),
    "a reservoir, whose read-out learns": TorchNetwork(make=_reservoir, judge=of_counts, scale=2.0),
    "delays of synapses and axons": TorchNetwork(make=Delays, judge=of_counts, scale=1.0),
    "DCLS delays": TorchNetwork(make=DelayLine, judge=of_membrane, loss="ce_max_membrane_loss", scale=3.0),
    "skip, side by side": TorchNetwork(make=Skip, judge=of_counts),
    "DenseNet, planes side by side": TorchNetwork(make=DenseNet, judge=of_counts, sample=(2, 4, 4), scale=4.0),
    "SqueezeNet, in time": TorchNetwork(make=SqueezeNet, judge=of_counts, sample=(2, 4, 4), scale=4.0),
    "norms before the weights, in time": TorchNetwork(
        make=lambda: NormedBefore("m"), judge=of_counts, sample=(2, 4, 4), scale=6.0
    ),
    "norms before the weights, by timestep": TorchNetwork(
        make=lambda: NormedBefore("s"), judge=of_counts, sample=(2, 4, 4), scale=6.0
    ),
    "DenseNet, norms first": TorchNetwork(
        make=lambda: PreActivation("s"), judge=of_counts, sample=(2, 4, 4), scale=4.0
    ),
    "planes that read themselves": TorchNetwork(
        make=lambda: OwnPlanes(False), judge=of_counts, sample=(2, 4, 4), scale=3.0
    ),
    "planes that read the input and themselves by one kernel": TorchNetwork(
        make=lambda: OwnPlanes(True), judge=of_counts, sample=(2, 4, 4), scale=2.0
    ),
    "Inception over one dimension": TorchNetwork(make=Inception, judge=of_counts, sample=(3, 10), scale=4.0),
    "skip, weights of its own": TorchNetwork(make=Shortcut, loss="", judge=of_counts, scale=4.0),
    "excitatory and inhibitory": TorchNetwork(make=Populations, judge=of_counts, scale=2.0),
    "inhibition that is subtracted": TorchNetwork(make=Inhibited, judge=of_counts, scale=2.0),
    "Dale's law: absolute weights": TorchNetwork(make=Dale, judge=of_counts),
    "Dale's law: rectified weights": TorchNetwork(make=lambda: Dale("relu"), judge=of_counts),
    "Dale's law: exponential weights": TorchNetwork(make=lambda: Dale("exp"), judge=of_counts),
    "Dale's law: softplus weights": TorchNetwork(make=lambda: Dale("softplus"), judge=of_counts),
    "Dale's law: a mask of signs, and a parametrization": TorchNetwork(make=SignedRecurrence, judge=of_counts),
    "slices of a layer: what inhibits is subtracted": TorchNetwork(make=Slices, judge=of_counts, scale=2.0),
    "slices of a layer: absolute weights": TorchNetwork(make=lambda: Slices(False), judge=of_counts, scale=2.0),
    "slices of a layer: halves that drive each other": TorchNetwork(make=Columns, judge=of_counts),
    "slices of a layer: a gated cell": TorchNetwork(make=GatedSlices, loss="", judge=of_counts, scale=1.0),
    "slices of a layer: spikingjelly, in time": TorchNetwork(make=SlicesInTime, loss="", judge=of_counts, scale=5.0),
    "currents times numbers": TorchNetwork(make=Scaled, judge=of_counts, sample=(2, 6, 6), scale=1.0),
    "input and own spikes in one matrix": TorchNetwork(make=OneMatrix, judge=of_counts, scale=2.0),
    "norse recurrent": TorchNetwork(
        make=lambda: NorseRecurrent(True), judge=of_membrane, loss="ce_max_membrane_loss", scale=1.5
    ),
    "norse recurrent, no neuron onto itself": TorchNetwork(
        make=lambda: NorseRecurrent(False), judge=of_membrane, loss="ce_max_membrane_loss", scale=1.5
    ),
    "norse, exponential and refractory": TorchNetwork(
        make=NorseExponential, judge=of_membrane, loss="ce_max_membrane_loss", scale=3.0
    ),
    "norse integrators": TorchNetwork(
        make=NorseIntegrators, judge=of_membrane, loss="ce_max_membrane_loss", scale=1.5
    ),
    "norse in time": TorchNetwork(make=NorseInTime, judge=of_membrane, loss="ce_max_membrane_loss", scale=6.0),
    "norse LSNN": TorchNetwork(
        make=lambda: FirstOf(_lsnn()), judge=of_membrane, loss="ce_max_membrane_loss", scale=6.0
    ),
    "snntorch convolutions": TorchNetwork(
        make=_snntorch_planes, judge=of_counts, single=True, sample=(1, 14, 14), scale=2.0
    ),
    "snntorch in one dimension": TorchNetwork(make=_one_dimension, judge=of_counts, single=True),
    "convolutions as functions": TorchNetwork(make=Functions, judge=of_counts, sample=(2, 7, 8), scale=2.0),
    "convolutional LSTM": TorchNetwork(make=ConvLstm, loss="", judge=of_counts, sample=(2, 6, 6), scale=2.0),
    "convolutional LSTM, two convolutions, peepholes": TorchNetwork(
        make=lambda: ConvLstm(together=False, peepholes=True), loss="", judge=of_counts, sample=(2, 6, 6), scale=2.0
    ),
    "norse convolutions": TorchNetwork(
        make=NorsePlanes, judge=of_membrane, loss="ce_max_membrane_loss", sample=(2, 6, 6), scale=6.0
    ),
    "norse convolutions, lifted": TorchNetwork(
        make=lambda: FirstOf(_norse_lifted()), judge=of_membrane, loss="ce_max_membrane_loss", sample=(2, 6, 6),
        scale=6.0,
    ),
    "spikingjelly, gestures": TorchNetwork(
        make=lambda: _jelly_planes("s"), judge=of_counts, single=True, sample=(2, 8, 8), scale=8.0
    ),
    "GRU": TorchNetwork(make=lambda: Gated(nn.GRU(INPUTS, HIDDEN)), loss="", judge=of_counts, scale=2.0),
    "GRU without biases, samples first": TorchNetwork(
        make=lambda: Gated(nn.GRU(INPUTS, HIDDEN, bias=False, batch_first=True)), loss="", judge=of_counts,
        batch_first=True, scale=2.0,
    ),
    "GRU, its last state": TorchNetwork(
        make=lambda: Gated(nn.GRU(INPUTS, HIDDEN), by_state=True), loss="", judge=of_counts, scale=2.0
    ),
    "LSTM": TorchNetwork(make=lambda: Gated(nn.LSTM(INPUTS, HIDDEN)), loss="", judge=of_counts, scale=2.0),
    "RNN": TorchNetwork(make=lambda: Gated(nn.RNN(INPUTS, HIDDEN)), loss="", judge=of_counts, scale=2.0),
    "LSTM of two layers": TorchNetwork(
        make=lambda: Gated(nn.LSTM(INPUTS, HIDDEN, num_layers=2)), loss="", judge=of_counts, scale=2.0
    ),
    "GRU of three layers, samples first": TorchNetwork(
        make=lambda: Gated(nn.GRU(INPUTS, HIDDEN, num_layers=3, batch_first=True)), loss="", judge=of_counts,
        batch_first=True, scale=2.0,
    ),
    "RNN of rectified numbers": TorchNetwork(
        make=lambda: Gated(nn.RNN(INPUTS, HIDDEN, nonlinearity="relu")), loss="", judge=of_counts, scale=1.5
    ),
    **{
        f"spikingjelly {type(last).__name__}, {last.decode}": TorchNetwork(
            make=lambda last=last: nn.Sequential(
                nn.Linear(INPUTS, HIDDEN), neuron.LIFNode(step_mode="m"), nn.Linear(HIDDEN, CLASSES), last
            ),
            loss="", judge=of_counts,
        )
        for last in (neuron.NonSpikingIFNode("max-mem"), neuron.NonSpikingLIFNode(3.0, "mean-mem"))
    },
    "snntorch spikes of a size": TorchNetwork(
        make=lambda: Loop(_leaky(graded_spikes_factor=0.3), _leaky(graded_spikes_factor=2.0)), judge=of_counts
    ),
    "snntorch spikes of a size that is learned": TorchNetwork(
        make=lambda: Loop(*(_leaky(learn_graded_spikes_factor=True, graded_spikes_factor=0.7) for _ in range(2))),
        judge=of_counts,
    ),
    "snntorch reset in the timestep of the spike": TorchNetwork(
        make=lambda: Loop(_leaky(reset_delay=False), _leaky(reset_delay=False, reset_mechanism="zero")),
        judge=of_counts,
    ),
    "snntorch Synaptic, reset in the timestep of the spike, learned": TorchNetwork(
        make=lambda: Loop(
            snn.Synaptic(alpha=0.7, beta=0.8, reset_delay=False, learn_threshold=True, threshold=0.9), _leaky()
        ),
        judge=of_counts,
    ),
    "snntorch RLeaky, reset in the timestep of the spike": TorchNetwork(
        make=lambda: Loop(snn.RLeaky(beta=0.8, linear_features=HIDDEN, reset_delay=False), _leaky()), judge=of_counts
    ),
    "snntorch RLeaky, a convolution of its own spikes": TorchNetwork(
        make=lambda: RecurrentPlanes(snn.RLeaky(beta=0.8, conv2d_channels=3, kernel_size=3)), judge=of_counts,
        sample=(2, 6, 6),
    ),
    "snntorch RSynaptic, a convolution of its own spikes, pooled before": TorchNetwork(
        make=lambda: RecurrentPlanes(
            snn.RSynaptic(alpha=0.5, beta=0.8, conv2d_channels=3, kernel_size=(1, 3), reset_mechanism="zero"),
            nn.MaxPool2d(2),
        ),
        judge=of_counts, sample=(2, 6, 6),
    ),
    "SLSTM": TorchNetwork(make=lambda: SpikingLstms(2), judge=of_counts),
    "SLSTM, reset by subtraction, a learned threshold": TorchNetwork(
        make=lambda: SpikingLstms(1, reset_mechanism="subtract", learn_threshold=True), judge=of_counts
    ),
    "SLSTM without biases, reset to zero, at the end": TorchNetwork(
        make=lambda: SpikingLstms(2, read=False, reset_mechanism="zero", bias=False), judge=of_counts
    ),
    "SLSTM, its potential": TorchNetwork(
        make=lambda: SpikingLstms(2, read=False, reset_mechanism="zero"), judge=of_every_membrane, loss=EVERY,
        options={"output": "membrane"},
    ),
    "GRUCell and LSTMCell, a loop": TorchNetwork(make=GatedLoop, loss="", judge=of_counts, scale=2.0),
    "spikingjelly, gestures in time": TorchNetwork(
        make=lambda: _jelly_planes("m"), judge=of_counts, sample=(2, 8, 8), scale=8.0
    ),
    "snntorch, batch norm of timesteps": TorchNetwork(make=NormedLoop, judge=of_counts, scale=1.5),
    "snntorch, layer norm": TorchNetwork(make=LayerNormed, judge=of_counts, scale=1.5),
    "snntorch, RMSNorm": TorchNetwork(make=RootNorms, judge=of_counts, scale=1.5),
    "snntorch, layer norm of planes": TorchNetwork(
        make=_plain_layer_norm, judge=of_counts, single=True, sample=(2, 8, 8), scale=2.0
    ),
    "snntorch, norms that do not scale or shift": TorchNetwork(make=PlainNorms, judge=of_counts, scale=1.5),
    "snntorch, BNTT of planes": TorchNetwork(make=BnttPlanes, judge=of_counts, sample=(2, 8, 8), scale=2.5),
    "spikingjelly, BNTT of planes": TorchNetwork(make=_jelly_bntt, judge=of_counts, single=True, sample=(2, 8, 8)),
    "BNTT that shifts": TorchNetwork(make=Bntt, judge=of_counts, scale=1.5),
    "tdBN of volumes": TorchNetwork(make=NormedVolumes, judge=of_counts, sample=(2, 8, 8)),
    "spikingjelly, group and instance norm in time": TorchNetwork(
        make=_group_normed, judge=of_counts, sample=(2, 8, 8), scale=2.0
    ),
    "spikingjelly, batch norm that depends on the threshold": TorchNetwork(
        make=_threshold_normed, judge=of_counts, sample=(2, 8, 8), scale=2.0
    ),
    "batch norm of sequences, recurrent": TorchNetwork(make=NormedSequence, judge=of_counts, scale=1.5),
    "spikingjelly, batch norm in time": TorchNetwork(make=_jelly_normed, judge=of_counts, sample=(2, 8, 8), scale=2.0),
    "snntorch, depthwise and pointwise convolutions": TorchNetwork(
        make=_separable_loop, judge=of_counts, single=True, sample=(2, 8, 8), scale=3.0
    ),
    "spikingjelly, depthwise and pointwise in time": TorchNetwork(
        make=lambda: _separable("m"), judge=of_counts, sample=(2, 8, 8), scale=5.0
    ),
    "spikingjelly, SEW blocks": TorchNetwork(
        make=lambda: _sew("s"), judge=of_counts, single=True, sample=(2, 8, 8), scale=2.0
    ),
    "spikingjelly, SEW blocks in time": TorchNetwork(
        make=lambda: _sew("m"), judge=of_counts, sample=(2, 8, 8), scale=2.0
    ),
    **{
        f"spikingjelly, SEW ResNet, {connect}{' in time' * (step_mode == 'm')}": TorchNetwork(
            make=partial(SewResNet, connect, step_mode), loss="", judge=of_counts, single=step_mode == "s",
            sample=(2, 16, 16), scale=2.0,
        )
        for connect, step_mode in (("ADD", "m"), ("AND", "m"), ("IAND", "s"), ("IAND", "m"))
    },
    "a stream of currents: snntorch": TorchNetwork(
        make=partial(MembraneStream, lambda: _leaky(init_hidden=True, spike_grad=surrogate.fast_sigmoid(slope=4))),
        judge=of_counts,
    ),
    "a stream of currents: neurons written out": TorchNetwork(
        make=partial(MembraneStream, partial(OwnNeuron, 0.8, True)), judge=of_counts
    ),
    "a stream of currents: MS-ResNet, spikingjelly": TorchNetwork(
        make=partial(_ms_resnet, "s", True), judge=of_counts, single=True, sample=(2, 8, 8), scale=2.0
    ),
    "a stream of currents: MS-ResNet, spikingjelly in time": TorchNetwork(
        make=partial(_ms_resnet, "m", False), judge=of_counts, sample=(2, 8, 8), scale=2.0
    ),
    "a stream of currents: MS-ResNet, its authors": TorchNetwork(
        make=MsAuthors, loss="", judge=of_counts, sample=(2, 8, 8), scale=2.0, input="image"
    ),
    "a stream of currents: Spike-driven Transformer": TorchNetwork(
        make=SpikeDriven, loss="", judge=of_counts, sample=(2, 8, 8), scale=2.0
    ),
    "Spikformer": TorchNetwork(make=Spikformer, loss="", judge=of_counts, sample=(2, 8, 8), scale=2.0),
    "Spike-driven transformer": TorchNetwork(
        make=SpikeDrivenAttention, loss="", judge=of_counts, sample=(2, 8, 8), scale=3.0
    ),
    "Spikformer, linear layers of tokens": TorchNetwork(
        make=LinearSpikformer, loss="", judge=of_counts, sample=(2, 8, 8), scale=2.0
    ),
    "an image in every timestep: snnTorch's tutorial 5": TorchNetwork(make=Shown, judge=of_counts, input="image"),
    "an image in every timestep: SpikingJelly, Fashion-MNIST": TorchNetwork(
        make=ShownPlanes, loss="", judge=of_counts, sample=(1, 8, 8), scale=2.0, input="image"
    ),
    "neurons written out: one learned number for a layer": TorchNetwork(
        make=OwnTau, loss="", judge=of_counts, sample=(2, 6, 6), scale=3.0
    ),
    "a softmax of every timestep, added up": TorchNetwork(make=SoftReadOut, loss="", judge=of_counts, scale=2.0),
    "a softmax of every timestep, its mean": TorchNetwork(
        make=SoftMembrane, loss="", judge=torch.nn.functional.nll_loss
    ),
    "a softmax of currents, its mean": TorchNetwork(make=SoftCurrent, loss="", judge=of_counts),
    "a linear read-out, its mean": TorchNetwork(make=lambda: ReadOut(""), loss="", judge=of_counts),
    "a linear read-out of mean rates": TorchNetwork(make=lambda: ReadOut("mean"), loss="", judge=of_counts),
    "a linear read-out of counts": TorchNetwork(make=lambda: ReadOut("sum"), loss="", judge=of_counts),
    "a surrogate defined in forward": TorchNetwork(make=lambda: DefinedInForward(""), loss="", judge=of_counts),
    "means of populations": TorchNetwork(make=lambda: ClassPopulations("mean"), loss="", judge=of_counts),
    "sums of populations": TorchNetwork(make=lambda: ClassPopulations("sum"), loss="", judge=of_counts),
    "counts in a loop": TorchNetwork(make=lambda: CountsInALoop("sum"), loss="", judge=of_counts),
    "counts of the last timesteps": TorchNetwork(
        make=lambda: CountsInALoop("sum", late=5), loss="", judge=of_counts
    ),
    "membranes of the last timesteps, their mean": TorchNetwork(make=LateMembranes, loss="", judge=of_counts),
    "rates in a loop": TorchNetwork(make=lambda: CountsInALoop("mean"), loss="", judge=of_counts),
    "a linear read-out of counts, a bias of 0": TorchNetwork(
        make=lambda: _unbiased(ReadOut("sum")), loss="", judge=of_counts
    ),
    "a sequence of numbers": TorchNetwork(make=lambda: Loop(_leaky(), _leaky()), judge=of_counts, input="values"),
    "a sequence of numbers, recurrent": TorchNetwork(
        make=HandRecurrent, judge=of_counts, batch_first=True, scale=2.0, input="values"
    ),
    "neurons written out: SpyTorch, recurrent": TorchNetwork(
        make=SpyTorch, judge=of_highest_of_samples, loss="ce_max_membrane_loss", batch_first=True, scale=1.0,
        options={"output": "membrane"},
    ),
    "neurons written out: modules": TorchNetwork(make=OwnNeurons, judge=of_counts, scale=4.0),
    "neurons written out: a residual stream": TorchNetwork(make=ResidualStream, judge=of_counts, scale=3.0),
    "neurons written out: currents one by one": TorchNetwork(make=OneByOne, loss="", judge=of_counts, scale=1.5),
    "neurons written out: gradients through resets": TorchNetwork(
        make=lambda: OwnNeurons(detached=False), judge=of_counts, scale=4.0
    ),
    "neurons written out: RadLIF, batch norm": TorchNetwork(
        make=RadLif, judge=of_membrane, loss="ce_max_membrane_loss", batch_first=True, scale=1.5
    ),
    "cells written out: GRU": TorchNetwork(make=OwnGru, loss="", judge=of_counts, scale=2.0),
    "cells written out: a matrix a gate": TorchNetwork(make=MatrixAGate, loss="", judge=of_counts, scale=2.0),
    "cells written out: EGRU": TorchNetwork(make=OwnEgru, loss="", judge=of_counts, scale=4.0),
    "cells written out: RNN": TorchNetwork(make=lambda: OwnRnn(torch.tanh), loss="", judge=of_counts, scale=2.0),
    "cells written out: RNN that spikes": TorchNetwork(
        make=lambda: OwnRnn(spike_fn), loss="", judge=of_counts, scale=2.0
    ),
    "cells written out: LSTM, gates at once": TorchNetwork(make=GatesAtOnce, loss="", judge=of_counts, scale=2.0),
    **{
        f"spikingjelly {cells.__name__}": TorchNetwork(
            make=partial(JellyCells, cells), loss="", judge=of_counts, scale=3.0
        )
        for cells in (jelly_rnn.SpikingLSTM, jelly_rnn.SpikingGRU, jelly_rnn.SpikingVanillaRNN)
    },
    "neurons written out: without states": TorchNetwork(make=WithoutStates, loss="", judge=of_counts, scale=3.0),
    "neurons written out: quadratic, of planes": TorchNetwork(
        make=Quadratic, loss="", judge=of_counts, sample=(2, 6, 6), scale=3.0
    ),
    "neurons written out: STBP": TorchNetwork(make=Stbp, loss="", judge=of_counts, sample=(2, 6, 6), scale=2.0),
    "neurons written out: LSNN": TorchNetwork(
        make=Lsnn, judge=of_membrane, loss="ce_max_membrane_loss", scale=1.0
    ),
    "neurons written out: SRNN": TorchNetwork(
        make=Srnn, judge=of_membrane, loss="ce_max_membrane_loss", scale=1.0
    ),
    "neurons written out: SRNN, thresholds that begin higher": TorchNetwork(
        make=lambda: Srnn(0.25), judge=of_membrane, loss="ce_max_membrane_loss", scale=1.0
    ),
    "neurons written out: two compartments": TorchNetwork(make=TwoCompartments, loss="", judge=of_counts, scale=2.0),
    "neurons written out: gradients by detaching": TorchNetwork(make=ByDetaching, loss="", judge=of_counts, scale=3.0),
    "neurons written out: arrays of all timesteps, time last": TorchNetwork(
        make=TimeLast, loss="", judge=of_counts, sample=(2, 6, 6), scale=3.0
    ),
    "neurons written out: arrays of all timesteps, time last, norms": TorchNetwork(
        make=TimeLastNorms, loss="", judge=of_counts, sample=(2, 6, 6), scale=1.5
    ),
    "neurons written out: Real Spike, norms of stacks": TorchNetwork(
        make=RealSpike, loss="", judge=of_counts, sample=(2, 6, 6), scale=1.0
    ),
    "neurons written out: ternary spikes": TorchNetwork(
        make=Ternary, loss="", judge=of_counts, sample=(2, 6, 6), scale=3.0
    ),
    "a stream of currents: ResNet-19 of TET, samples first": TorchNetwork(
        make=Tet, loss="ce_rate_loss", judge=lambda made, labels: of_rate(made.movedim(1, 0), labels),
        batch_first=True, sample=(2, 8, 8), scale=1.0,
    ),
    "cells written out: LSTM with peepholes": TorchNetwork(make=Peephole, loss="", judge=of_counts, scale=2.0),
    "neurons written out: all states of those before, as stork has them": TorchNetwork(
        make=AllAtOnce, loss="ce_max_membrane_loss", judge=of_membrane, scale=4.0
    ),
    "neurons written out: a current that is made once": TorchNetwork(
        make=CurrentMadeOnce, loss="", judge=of_counts, sample=(1, 8, 8), input="image", scale=2.0
    ),
    "neurons written out: a surrogate that is told of more": TorchNetwork(make=LastSpikes, loss="", judge=of_counts),
    "neurons written out: refractory, written where there are spikes": TorchNetwork(
        make=Refractory, loss="ce_max_membrane_loss", judge=of_highest_of_samples, batch_first=True, scale=4.0
    ),
    "neurons written out: potentials that begin half charged": TorchNetwork(
        make=HalfCharged, loss="", judge=of_counts
    ),
    "neurons written out: balanced resonate and fire": TorchNetwork(
        make=lambda: Balanced(INPUTS, HIDDEN, CLASSES), loss="ce_rate_loss", judge=of_rate, scale=20.0
    ),
    "neurons written out: resonate and fire": TorchNetwork(
        make=Resonators, loss="ce_max_membrane_loss", judge=of_membrane, scale=3.0
    ),
    "neurons written out: step by step": TorchNetwork(make=StepByStep, loss="", judge=of_counts, single=True),
}  # fmt: skip


CONSTANTS = (  # of neurons, which stay as they are
    "P", "SIG", "V", "a", "alpha", "b", "beta", "k", "offset", "omega", "thr", "threshold", "w",
)  # fmt: skip


def example(network: TorchNetwork, seed: int = 3) -> tuple[Any, Any, Any]:
    """(the module, its input as it takes it, labels), all drawn from the seed; weights are multiples of 2^-10."""
    torch.manual_seed(seed)
    module = network.make()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            constant = name.rpartition(".")[2] in CONSTANTS
            parameter.mul_(1.0 if constant else network.scale).mul_(1024).round_().div_(1024)
    drawn = torch.rand(TIMESTEPS, BATCH, *network.sample)
    given = (drawn < 0.3).float() if network.input == "spikes" else drawn.mul(16).round().div(16)
    labels = torch.randint(0, CLASSES, (BATCH,))
    if network.input == "image":
        return module, given[0], labels
    return module, given.movedim(0, 1) if network.batch_first else given, labels


def in_time(network: TorchNetwork, given: Any) -> Any:
    """What `example` gave, by timestep: [timesteps, batch, ...]."""
    if network.input == "image":
        return given.expand(TIMESTEPS, *given.shape)
    return given.movedim(1, 0) if network.batch_first else given


def as_here(values: np.ndarray, transposed: bool, mine: np.ndarray, norm: str = "") -> np.ndarray:
    """A gradient of the module's, [rows, columns] as the array `mine` lies; norm ends with "-": of what is
    subtracted."""
    laid = (values.reshape(len(values), -1).T if transposed and values.ndim else values).reshape(-1, mine.shape[1])
    return -laid if norm.endswith("-") else laid


def gradients_of(network: TorchNetwork, module: Any, spikes: Any, labels: Any) -> tuple[float, dict[str, np.ndarray]]:
    """(the loss, gradients by the module's names), in the module's precision."""
    from mimdsim.frameworks.module_calls import reset_states

    reset_states(module)
    functional.reset_net(module)
    module.zero_grad()
    with pytest.MonkeyPatch.context() as patch:
        if spikes.dtype == torch.float64:  # snnTorch casts spikes to float32
            patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        default = torch.get_default_dtype()
        torch.set_default_dtype(spikes.dtype)  # of the states that its SLSTM begins with
        try:
            return _step(network, module, spikes, labels)
        finally:
            torch.set_default_dtype(default)


def _step(network: TorchNetwork, module: Any, spikes: Any, labels: Any) -> tuple[float, dict[str, np.ndarray]]:
    from mimdsim.frameworks.module_calls import reset_states

    if network.single:
        made = [module(step) for step in spikes]
        returned = torch.stack([each[0] if isinstance(each, tuple) else each for each in made])
    else:
        returned = module(spikes)
    loss = network.judge(returned, labels)
    loss.backward()
    for each in module.modules():
        if not getattr(each, "autapses", True):  # by a hook, which copies in float64 have not
            each.recurrent_weights.grad.fill_diagonal_(0)
    reset_states(module)
    functional.reset_net(module)
    learning = {name: each for name, each in module.named_parameters() if each.requires_grad}
    return loss.item(), {name: _gradient_of(name, each.grad.numpy()) for name, each in learning.items()}


def _gradient_of(name: str, gradient: np.ndarray) -> np.ndarray:
    """A gradient; that of positions (DCLS) as one of delays [neurons, inputs], which are less where those are more."""
    return -gradient[0, :, :, 0] if name.rpartition(".")[2] == "P" else gradient.copy()
