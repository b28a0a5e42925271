"""A whole training step of a spiking network with convolutions, as each dense strategy of mimdsim's GPU model forms it.

As programs.py, but without a delay between layers, with biases, and convolutions by cuDNN; pools are kernels of their
own, side by side. A layer that reads all there is is a matrix product. `reference` is the same step by PyTorch's own
automatic differentiation, a loop over timesteps as snnTorch runs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.gpu import triton_kernels as gpu
from benchmarks.gpu.bptt import DECAY, SCALE, SLOPE, THRESHOLD
from benchmarks.gpu.programs import EVERYWHERE, HALF_LOSS_SCALE
from mimdsim.graph.convolution import Convolution, Planes, Pool


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Network, one batch. ids: int32[T * B, most spikes] of the input, channels outermost; counts: int32[T * B];
    weights: [channels made, channels read, height, width], biases: [channels made]."""

    layers: tuple[Convolution, ...]
    timesteps: int
    batch: int
    ids: Any
    counts: Any
    weights: list[Any]
    biases: list[Any]
    labels: Any


def reads_all(layer: Convolution) -> bool:
    return layer.made.positions == 1


class Buffers:
    """All arrays of a step in `dtype`, of [T * B, channels, height, width]; `last`: channels innermost in memory;
    channels are padded to a multiple of `pad`."""

    def __init__(self, torch: Any, problem: Problem, dtype: Any, *, last: bool = True, pad: int = 1) -> None:
        self.torch, self.problem, self.dtype, self.last, self.pad = torch, problem, dtype, last, pad
        self.steps, self.batch, self.rows = problem.timesteps, problem.batch, problem.timesteps * problem.batch
        self.device = problem.ids.device
        self.layers = problem.layers
        self.master, self.biases = [], []
        for w, b in zip(problem.weights, problem.biases, strict=True):
            wide = self.zeros(self.padded(w.shape[0]), self.padded(w.shape[1]), *w.shape[2:], kind=torch.float32)
            wide[: w.shape[0], : w.shape[1]] = w
            bias = torch.zeros(wide.shape[0], device=self.device)
            bias[: len(b)] = b
            self.master.append(wide)
            self.biases.append(bias)
        self.weights = [w if dtype is torch.float32 else w.to(dtype) for w in self.master]
        self.input = self.planes(self.layers[0].planes, self.rows)
        self.states = [self.planes(layer.result, self.rows + self.batch) for layer in self.layers]
        self.fired = [self.planes(layer.result, self.rows + self.batch) for layer in self.layers]
        self.handed = [self.planes(layer.result, self.rows) for layer in self.layers]
        self.totals = [self.planes(layer.result, self.batch, kind=torch.float32) for layer in self.layers]
        self.gradients = [torch.zeros_like(w) for w in self.weights]
        self.bias_gradients = [torch.zeros_like(b) for b in self.biases]
        self.outer = self.planes(self.layers[-1].result, self.batch)
        parameters = [torch.nn.Parameter(w) for w in (*self.master, *self.biases)]
        on_gpu = self.device.type == "cuda"
        self.adam = torch.optim.Adam(parameters, lr=0.0, fused=on_gpu, capturable=on_gpu)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)

    def padded(self, channels: int) -> int:
        return -(-channels // self.pad) * self.pad

    def zeros(self, *sizes: int, kind: Any = None) -> Any:
        torch = self.torch
        order = torch.channels_last if self.last else torch.contiguous_format
        return torch.empty(sizes, device=self.device, dtype=kind or self.dtype, memory_format=order).zero_()

    def planes(self, planes: Planes, rows: int, kind: Any = None) -> Any:
        return self.zeros(rows, self.padded(planes.channels), planes.height, planes.width, kind=kind)

    def flat(self, planes: Any) -> Any:
        """[rows, neurons], as they lie."""
        return planes.permute(0, 2, 3, 1).flatten(1) if self.last else planes.flatten(1)

    def ordered(self, planes: Any) -> Any:
        """`planes` as all arrays lie, copied if the library made them otherwise."""
        torch = self.torch
        return planes.contiguous(memory_format=torch.channels_last if self.last else torch.contiguous_format)

    def blocks(self, columns: int) -> tuple[int, int]:
        """(programs, columns of each)"""
        block = 1024 // self.dtype.itemsize
        return -(-columns // block), block

    def unfold(self) -> None:
        self.input.zero_()
        ids, planes = self.problem.ids, self.layers[0].planes
        gpu.unfold[(self.rows,)](
            ids, self.problem.counts, self.input, ids.shape[1], self.input[0].numel(), BLOCK=32,
            positions=planes.positions, channels=self.input.shape[1], LAST=self.last,
        )  # fmt: skip

    def source(self, layer: int, first: int, rows: int) -> Any:
        return self.fired[layer - 1][self.batch :][first : first + rows] if layer else self.input[first : first + rows]

    def pooled(self, pool: Pool, values: Any, planes: Planes) -> Any:
        made = pool.over(planes)
        out = self.planes_like(made, values)
        programs, block = self.blocks(out.numel())
        gpu.pool[(programs,)](
            values, out, out.numel(), out.shape[1], planes.height, planes.width, made.height, made.width,
            *self.pooling(pool), block,
        )  # fmt: skip
        return out

    def pooled_back(self, pool: Pool, q: Any, values: Any, planes: Planes) -> Any:
        made, size = pool.over(planes), pool.window.kernel[0]
        out = self.planes_like(planes, q)
        windows = q.shape[0] * q.shape[1] * math.ceil(planes.height / size) * math.ceil(planes.width / size)
        programs, block = self.blocks(windows)
        gpu.pool_back[(programs,)](
            q, values, out, windows, q.shape[1], planes.height, planes.width, made.height, made.width,
            *self.pooling(pool), block,
        )  # fmt: skip
        return out

    def pooling(self, pool: Pool) -> tuple[float, int, bool, bool]:
        size = pool.window.kernel[0]
        assert pool.window.stride == (size, size)
        assert pool.window.padding == (0, 0)
        return 1 / size**2 if pool.kind == "average" else 1.0, size, pool.kind == "max", self.last

    def planes_like(self, planes: Planes, values: Any) -> Any:
        torch = self.torch
        order = torch.channels_last if self.last else torch.contiguous_format
        sizes = (values.shape[0], values.shape[1], planes.height, planes.width)
        return torch.empty(sizes, device=self.device, dtype=self.dtype, memory_format=order)

    def currents(self, layer: int, first: int, rows: int) -> tuple[Any, Any, Any]:
        """(what the weights see, currents before a pool of them, currents) of so many rows."""
        of, x = self.layers[layer], self.source(layer, first, rows)
        if of.before:
            x = self.pooled(of.before, x, of.planes)
        w = self.weights[layer]
        if reads_all(of):
            made = (self.flat(x) @ self.flat(w).T)[:, :, None, None]
        else:
            made = self.ordered(self.torch.nn.functional.conv2d(x, w, None, of.window.stride, of.window.padding))
        return x, made, self.pooled(of.after, made, of.made) if of.after else made

    def walk(self, layer: int, current: Any, first: int, steps: int) -> None:
        at, states = first * self.batch, self.states[layer]
        columns = states[: self.batch].numel()
        programs, block = self.blocks(columns)
        channels, inner = states.shape[1], 1 if self.last else states[0, 0].numel()
        gpu.walk_forward[(programs,)](
            current, states[at:], states[at + self.batch :], self.fired[layer][at + self.batch :], steps, columns,
            DECAY, SCALE, INITIAL=first > 0, FIRED=True, BLOCK=block,
            bias=self.biases[layer], inner=inner, channels=channels, BIAS=True,
        )  # fmt: skip

    def walk_back(self, layer: int, arriving: Any, first: int, steps: int, carried: Any) -> None:
        at, last = first * self.batch, layer == len(self.layers) - 1
        columns = self.states[layer][: self.batch].numel()
        programs, block = self.blocks(columns)
        gpu.walk_backward[(programs,)](
            arriving, self.states[layer][at + self.batch :], arriving if carried is None else carried,
            self.handed[layer][at:], steps, columns, 0 if last else columns, DECAY, SCALE, EVERYWHERE, SLOPE,
            CARRIED=carried is not None, BLOCK=block, totals=self.totals[layer], TOTAL=True,
        )  # fmt: skip

    def back(self, layer: int, seen: Any, made: Any, first: int, steps: int, *, add: bool) -> Any:
        """The gradient of the weights, and of the spikes that the layer reads, which it returns."""
        of, w, rows = self.layers[layer], self.weights[layer], steps * self.batch
        q = self.handed[layer][first * self.batch :][:rows]
        if of.after:
            q = self.pooled_back(of.after, q, made, of.made)
        if reads_all(of):
            product, target = (self.flat(q).T, self.flat(seen)), self.flat(self.gradients[layer])
            target.addmm_(*product) if add else self.torch.mm(*product, out=target)
        else:
            found = self.adjoint(q, seen, w, of, (False, True, False))[1]
            self.gradients[layer].add_(found) if add else self.gradients[layer].copy_(found)
        if not layer:
            return None
        if reads_all(of):
            d = self.torch.empty_like(seen)
            self.torch.mm(self.flat(q), self.flat(w), out=self.flat(d))
        else:
            d = self.ordered(self.adjoint(q, seen, w, of, (True, False, False))[0])
        if of.before is None:
            return d
        return self.pooled_back(of.before, d, self.source(layer, first * self.batch, rows), of.planes)

    def adjoint(self, q: Any, x: Any, w: Any, of: Convolution, wanted: tuple[bool, bool, bool]) -> Any:
        window = of.window
        return self.torch.ops.aten.convolution_backward(
            q, x, w, None, window.stride, window.padding, window.dilation, False, (0, 0), 1, wanted
        )

    def loss(self) -> None:
        classes = self.problem.weights[-1].shape[0]
        counts = (self.states[-1][self.batch :] > THRESHOLD).unflatten(0, (self.steps, self.batch)).sum(0)
        chance = self.torch.softmax(counts[:, :classes, 0, 0].float(), 1)
        chance.scatter_add_(1, self.problem.labels[:, None], -self.torch.ones_like(chance[:, :1]))
        half = self.dtype is self.torch.float16
        self.outer[:, :classes, 0, 0] = (chance * ((HALF_LOSS_SCALE if half else 1.0) / self.batch)).to(self.dtype)

    def update(self) -> None:
        for gradient, totals in zip(self.bias_gradients, self.totals, strict=True):
            self.torch.sum(totals, (0, 2, 3), out=gradient)
        for parameter, gradient in zip(
            self.adam.param_groups[0]["params"], (*self.gradients, *self.bias_gradients), strict=True
        ):
            if parameter.dtype is gradient.dtype:
                parameter.grad = gradient
            else:
                parameter.grad.copy_(gradient)
        self.adam.step()
        if self.dtype is not self.torch.float32:
            for own, master in zip(self.weights, self.master, strict=True):
                own.copy_(master)

    def found(self) -> list[Any]:
        """The gradients of weights and biases, without padding."""
        given = (*self.problem.weights, *self.problem.biases)
        mine = (*self.gradients, *self.bias_gradients)
        return [m[tuple(map(slice, g.shape))] for m, g in zip(mine, given, strict=True)]


def hoisted(own: Buffers) -> Callable[[], None]:
    """Layer by layer: one convolution for all timesteps, one kernel that walks the neurons through them."""
    layers = range(len(own.layers))

    def step() -> None:
        own.unfold()
        kept = []
        for layer in layers:
            seen, made, current = own.currents(layer, 0, own.rows)
            own.walk(layer, current, 0, own.steps)
            kept.append((seen, made if own.layers[layer].after else None))
        own.loss()
        arriving = own.outer
        for layer in reversed(layers):
            own.walk_back(layer, arriving, 0, own.steps, None)
            arriving = own.back(layer, *kept.pop(), 0, own.steps, add=False)
        own.update()

    return step


def looped(own: Buffers) -> Callable[[], None]:
    """Time outermost: convolutions of one timestep, one kernel a layer and pass for its neurons."""
    torch, layers = own.torch, range(len(own.layers))
    carried = [torch.zeros_like(each) for each in own.totals]

    def step() -> None:
        own.unfold()
        kept: list[list[Any]] = [[] for _ in layers]
        for t in range(own.steps):
            for layer in layers:
                seen, made, current = own.currents(layer, t * own.batch, own.batch)
                own.walk(layer, current, t, 1)
                kept[layer].append((seen, made if own.layers[layer].after else None))
        own.loss()
        for each in (*own.gradients, *own.totals, *carried):
            each.zero_()
        for t in reversed(range(own.steps)):
            arriving = own.outer
            for layer in reversed(layers):
                own.walk_back(layer, arriving, t, 1, carried[layer])
                arriving = own.back(layer, *kept[layer].pop(), t, 1, add=True)
        own.update()

    return step


def fast_sigmoid(torch: Any) -> Any:
    """Spikes, with the surrogate of the programs as their derivative."""

    class Spike(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, v: Any) -> Any:
            ctx.save_for_backward(v)
            return (v > THRESHOLD).to(v.dtype)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (v,) = ctx.saved_tensors
            return gradient / (SLOPE * (v - THRESHOLD).abs() + 1) ** 2

    return Spike.apply


def spikes_of(torch: Any, problem: Problem, dtype: Any) -> Any:
    """The input, [T, B, channels, height, width]."""
    ids, planes = problem.ids.long(), problem.layers[0].planes
    dense = torch.zeros((len(ids), planes.neurons), device=ids.device, dtype=dtype)
    listed = torch.arange(ids.shape[1], device=ids.device) < problem.counts[:, None]
    dense.scatter_add_(1, ids, listed.to(dtype))
    return dense.unflatten(1, planes.shape).unflatten(0, (problem.timesteps, problem.batch))


def torch_pool(torch: Any, pool: Pool | None, x: Any) -> Any:
    """By PyTorch's own kernels."""
    if pool is None:
        return x
    size, f = pool.window.kernel, torch.nn.functional
    if pool.kind == "max":
        return f.max_pool2d(x, size)
    return f.avg_pool2d(x, size, divisor_override=1 if pool.kind == "sum" else None)


def reference(torch: Any, problem: Problem, dtype: Any) -> Callable[[], list[Any]]:
    """The step, without Adam, as a loop in Python with automatic differentiation; returns the gradients."""
    f, spike = torch.nn.functional, fast_sigmoid(torch)
    inputs = spikes_of(torch, problem, dtype)
    weights = [w.to(dtype).contiguous().clone().requires_grad_() for w in problem.weights]
    biases = [b.to(dtype).clone().requires_grad_() for b in problem.biases]

    def step() -> list[Any]:
        v, counts = [None] * len(weights), 0
        for now in inputs:
            x = now
            for layer, (of, w, b) in enumerate(zip(problem.layers, weights, biases, strict=True)):
                current = f.conv2d(torch_pool(torch, of.before, x), w, b, of.window.stride, of.window.padding)
                current = torch_pool(torch, of.after, current)
                held = v[layer]
                kept = 0.0 if held is None else held - (held * (held > THRESHOLD)).detach()
                v[layer] = DECAY * kept + SCALE * current
                x = spike(v[layer])
            counts = counts + x.flatten(1)
        loss = f.cross_entropy(counts, problem.labels)
        found = torch.autograd.grad(loss, [*weights, *biases])
        return list(found)

    return step


def of_snntorch(torch: Any, snntorch: Any, problem: Problem) -> Callable[[], Any]:
    """The step as the tutorials of snnTorch write it, Adam included."""
    f = torch.nn.functional
    device, inputs = problem.ids.device, spikes_of(torch, problem, torch.float32)
    weights = [torch.nn.Parameter(w.contiguous().clone()) for w in problem.weights]
    biases = [torch.nn.Parameter(b.clone()) for b in problem.biases]
    cells = [snntorch.Leaky(beta=DECAY, reset_mechanism="zero").to(device) for _ in weights]
    adam = torch.optim.Adam([*weights, *biases], lr=0.0)

    def step() -> Any:
        held, out = [cell.reset_mem() for cell in cells], []
        for now in inputs:
            x = now
            for layer, (of, w, b) in enumerate(zip(problem.layers, weights, biases, strict=True)):
                current = f.conv2d(torch_pool(torch, of.before, x), w, b, of.window.stride, of.window.padding)
                x, held[layer] = cells[layer](torch_pool(torch, of.after, current), held[layer])
            out.append(x)
        loss = f.cross_entropy(torch.stack(out).sum(0).flatten(1), problem.labels)
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss

    return step


def reduced(problem: Problem, timesteps: int, batch: int) -> Problem:
    """The first timesteps and samples."""
    rows = [t * problem.batch + b for t in range(timesteps) for b in range(batch)]
    return replace(
        problem, timesteps=timesteps, batch=batch, ids=problem.ids[rows].contiguous(),
        counts=problem.counts[rows].contiguous(), labels=problem.labels[:batch].contiguous(),
    )  # fmt: skip
