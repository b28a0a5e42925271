"""A whole training step of a spiking network on a GPU, written out as each strategy of mimdsim's GPU model forms it.

Input arrives as lists of spikes; the step ends with Adam (of learning rate 0, so that every repetition does the same).
Each program is a function without arguments over arrays that stay, which may be captured as a CUDA graph. With
TRITON_INTERPRET=1 they run on the processor, for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu import triton_kernels as gpu
from benchmarks.gpu.bptt import DECAY, SCALE, SECOND_THRESHOLD, SLOPE, Shape

EVERYWHERE = -100.0  # second threshold of the output layer, which always learns
HALF_LOSS_SCALE = 1024.0  # or gradients in halves are mostly zeros, which draw less power


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Network, one batch, and what the training holds. ids: int32[T * B, n0], counts: int32[T * B]."""

    shape: Shape
    ids: Any
    counts: Any
    weights: list[Any]
    recurrent: list[Any]  # None where a layer is fed forward only
    labels: Any


def power_of_two(number: int) -> int:
    return 1 << max(number - 1, 1).bit_length()


class Buffers:
    """All arrays of a step in `dtype`, one timestep more where a delay reads beyond the end."""

    def __init__(self, torch: Any, problem: Problem, dtype: Any) -> None:
        shape, device = problem.shape, problem.ids.device
        steps, batch = shape.timesteps, shape.batch

        def zeros(*sizes: int, kind: Any = dtype) -> Any:
            return torch.zeros(sizes, device=device, dtype=kind)

        self.torch, self.problem, self.dtype = torch, problem, dtype
        self.steps, self.batch, self.rows = steps, batch, steps * batch
        self.master = [w.float().clone() for w in (*problem.weights, *filter_none(problem.recurrent))]
        # for precisions that multiply in another format the weights are converted every step
        self.weights = [w.to(dtype) for w in self.master[: len(problem.weights)]]
        others = iter(self.master[len(problem.weights) :])
        self.recurrent = [None if w is None else next(others).to(dtype) for w in problem.recurrent]
        self.input = zeros(self.rows, shape.widths[0])
        widths = shape.widths[1:]
        self.current = [zeros(steps, batch, n) for n in widths]
        self.states = [zeros(steps + 1, batch, n) for n in widths]  # index 0: before the first timestep
        self.fired = [zeros(steps + 1, batch, n) for n in widths]
        self.handed = [zeros(steps + 1, batch, n) for n in widths]  # index `steps`: nothing comes from after the end
        self.arriving = [zeros(steps, batch, n) for n in widths]
        self.gradients = [zeros(*w.shape) for w in problem.weights]
        self.recurrent_gradients = [None if w is None else zeros(*w.shape) for w in problem.recurrent]
        self.outer = zeros(batch, widths[-1])
        parameters = [torch.nn.Parameter(w) for w in self.master]
        on_gpu = device.type == "cuda"
        self.adam = torch.optim.Adam(parameters, lr=0.0, fused=on_gpu, capturable=on_gpu)
        for parameter, gradient in zip(
            parameters, (*self.gradients, *filter_none(self.recurrent_gradients)), strict=True
        ):
            parameter.grad = gradient if dtype is torch.float32 else torch.zeros_like(parameter)

    def source(self, layer: int) -> Any:
        """What layer reads at every timestep, [T * B, n]: the input, or spikes of the timestep before."""
        return self.fired[layer - 1][:-1].flatten(0, 1) if layer else self.input

    def unfold(self) -> None:
        self.input.zero_()
        rows, width = self.input.shape
        ids, counts = self.problem.ids, self.problem.counts
        gpu.unfold[(rows,)](ids, counts, self.input, ids.shape[1], width, BLOCK=32)

    def loss(self) -> None:
        """The gradient of the cross-entropy of the output's spike counts, per sample."""
        counts = (self.states[-1][1:] > 1.0).float().sum(0)
        chance = self.torch.softmax(counts, 1)
        chance.scatter_add_(1, self.problem.labels[:, None], -self.torch.ones_like(chance[:, :1]))
        half = self.dtype is self.torch.float16
        self.outer.copy_(chance * ((HALF_LOSS_SCALE if half else 1.0) / self.batch))

    def update(self) -> None:
        if self.dtype is not self.torch.float32:
            for parameter, gradient in zip(
                self.adam.param_groups[0]["params"],
                (*self.gradients, *filter_none(self.recurrent_gradients)),
                strict=True,
            ):
                parameter.grad.copy_(gradient)
        self.adam.step()
        if self.dtype is not self.torch.float32:
            for own, master in zip((*self.weights, *filter_none(self.recurrent)), self.master, strict=True):
                own.copy_(master)

    def second(self, layer: int) -> float:
        return EVERYWHERE if layer == len(self.weights) - 1 else SECOND_THRESHOLD

    def walk(self, layer: int, first: int, steps: int, *, fired: bool = True) -> None:
        """The neurons of a layer through `steps` timesteps from `first` on; spikes as an array if `fired`."""
        current, states = self.current[layer], self.states[layer]
        columns = current[0].numel()
        gpu.walk_forward[(blocks(columns),)](
            current[first], states[first], states[first + 1], self.fired[layer][first + 1], steps, columns,
            DECAY, SCALE, INITIAL=first > 0, FIRED=fired, BLOCK=BLOCK,
        )  # fmt: skip

    def walk_back(self, layer: int, first: int, steps: int, carried: Any) -> None:
        arriving = self.outer if layer == len(self.weights) - 1 else self.arriving[layer][first]
        columns = self.outer.numel() if layer == len(self.weights) - 1 else arriving.numel()
        step = 0 if layer == len(self.weights) - 1 else columns
        gpu.walk_backward[(blocks(columns),)](
            arriving, self.states[layer][first + 1], arriving if carried is None else carried,
            self.handed[layer][first], steps, columns, step, DECAY, SCALE, self.second(layer), SLOPE,
            CARRIED=carried is not None, BLOCK=BLOCK,
        )  # fmt: skip


BLOCK = 128


def blocks(columns: int) -> int:
    return -(-columns // BLOCK)


def warps(neurons: int) -> int:
    """Of a program that has all neurons of a layer: four of them a thread."""
    return max(1, min(16, power_of_two(neurons) // 128))


def filter_none(arrays: list[Any]) -> list[Any]:
    return [each for each in arrays if each is not None]


def looped(own: Buffers) -> Callable[[], None]:
    """Time outermost: products of one timestep, one kernel a layer and pass for its neurons."""
    torch, layers = own.torch, range(len(own.weights))
    carried = [torch.zeros_like(own.states[layer][0], dtype=torch.float32) for layer in layers]

    def step() -> None:
        own.unfold()
        sources = [own.source(layer).unflatten(0, (own.steps, own.batch)) for layer in layers]
        for t in range(own.steps):
            for layer in layers:
                torch.mm(sources[layer][t], own.weights[layer], out=own.current[layer][t])
                if own.recurrent[layer] is not None:
                    own.current[layer][t].addmm_(own.fired[layer][t], own.recurrent[layer])
                own.walk(layer, t, 1)
        own.loss()
        for each in (*own.gradients, *filter_none(own.recurrent_gradients), *carried):
            each.zero_()
        for layer in layers[:-1]:
            own.arriving[layer][-1].zero_()
        for t in reversed(range(own.steps)):
            for layer in layers:
                own.walk_back(layer, t, 1, carried[layer])
            for layer in layers:
                q = own.handed[layer][t]
                own.gradients[layer].addmm_(sources[layer][t].T, q)
                if layer and t:
                    torch.mm(q, own.weights[layer].T, out=own.arriving[layer - 1][t - 1])
            for layer in layers:
                if own.recurrent[layer] is not None:
                    q = own.handed[layer][t]
                    own.recurrent_gradients[layer].addmm_(own.fired[layer][t].T, q)
                    if t:
                        own.arriving[layer][t - 1].addmm_(q, own.recurrent[layer].T)
        own.update()

    return step


def hoisted(own: Buffers) -> Callable[[], None]:
    """Layer by layer: one product for all timesteps, one kernel that walks the neurons through them."""
    torch, layers = own.torch, range(len(own.weights))

    def step() -> None:
        own.unfold()
        for layer in layers:
            torch.mm(own.source(layer), own.weights[layer], out=own.current[layer].flatten(0, 1))
            own.walk(layer, 0, own.steps)
        own.loss()
        for layer in reversed(layers):
            own.walk_back(layer, 0, own.steps, None)
            torch.mm(own.source(layer).T, own.handed[layer][:-1].flatten(0, 1), out=own.gradients[layer])
            if layer:
                later = own.handed[layer][1:].flatten(0, 1)
                torch.mm(later, own.weights[layer].T, out=own.arriving[layer - 1].flatten(0, 1))
        own.update()

    return step


def listed(own: Buffers, splits: int = 4) -> Callable[[], None]:
    """Layer by layer, every product along lists of spikes; a recurrent layer is walked by one program per sample."""
    torch, layers, rows = own.torch, range(len(own.weights)), own.rows
    shape, device = own.problem.shape, own.problem.ids.device

    def lists(count: int, capacity: int) -> tuple[Any, Any]:
        ids = torch.zeros((count, capacity), device=device, dtype=torch.int32)
        return ids, torch.zeros(count, device=device, dtype=torch.int32)

    by_row = [(own.problem.ids, own.problem.counts), *(lists(rows, n) for n in shape.widths[1:])]
    gradient_rows = [lists(rows, n) for n in shape.widths[1:-1]]
    by_column = [lists(n, rows) for n in shape.widths[:-1]]

    def gather(table: Any, along: tuple[Any, Any], out: Any, shift: int, parts: int) -> None:
        ids, counts = along
        if parts > 1:
            out.zero_()
        columns = table.shape[-1]
        block = min(256, power_of_two(columns))
        grid = (len(counts), -(-columns // block), parts)
        gpu.gather_rows[grid](
            table, ids, counts, out, columns, ids.shape[1], shift,
            SPLITS=parts, ENTRIES=gpu.ENTRIES, BLOCK=block, num_warps=2,
        )  # fmt: skip

    def make_lists(layer: int) -> None:
        states, (ids, counts), (columns, column_counts) = own.states[layer][1:], by_row[1 + layer], by_column[1 + layer]
        n = states.shape[-1]
        column_counts.zero_()
        gpu.list_rows[(rows,)](
            states, ids, counts, *gradient_rows[layer], columns, column_counts, rows, n, SECOND_THRESHOLD,
            SPIKES=own.recurrent[layer] is None, NEAR=True, BLOCK=power_of_two(n),
        )  # fmt: skip

    def walk_recurrent(layer: int) -> None:
        n = shape.widths[1 + layer]
        gpu.recur_forward[(own.batch,)](
            own.current[layer], own.recurrent[layer], own.states[layer][1:], *by_row[1 + layer], own.steps, own.batch,
            n, DECAY, SCALE, ENTRIES=gpu.ENTRIES_OF_WALK, BLOCK=power_of_two(n), num_warps=warps(n),
        )  # fmt: skip

    def walk_recurrent_back(layer: int) -> None:
        n = shape.widths[1 + layer]
        gpu.recur_backward[(own.batch,)](
            own.arriving[layer], own.recurrent[layer], own.states[layer][1:], *gradient_rows[layer],
            own.handed[layer], own.steps, own.batch, n, DECAY, SCALE, SECOND_THRESHOLD, SLOPE,
            ENTRIES=gpu.ENTRIES_BACK, CHUNK=min(512, power_of_two(n)), BLOCK=power_of_two(n), num_warps=warps(n),
        )  # fmt: skip

    def step() -> None:
        (ids, counts), (columns, column_counts) = by_row[0], by_column[0]
        column_counts.zero_()
        gpu.enter_into_columns[(rows,)](ids, counts, columns, column_counts, ids.shape[1], rows, BLOCK=32)
        for layer in layers:
            # a spike is read one timestep later: lists of the rows before, none for the first timestep
            along, first = by_row[layer], own.batch if layer else 0
            target = own.current[layer].flatten(0, 1)[first:]
            gather(own.weights[layer], (along[0], along[1][: rows - first]), target, 0, 1)
            if own.recurrent[layer] is None:
                own.walk(layer, 0, own.steps, fired=False)
            else:
                walk_recurrent(layer)
            if layer < len(layers) - 1:
                make_lists(layer)
        own.loss()
        for layer in reversed(layers):
            q, shift = own.handed[layer], own.batch
            if own.recurrent[layer] is None:
                own.walk_back(layer, 0, own.steps, None)
            else:
                walk_recurrent_back(layer)
                gather(q, by_column[1 + layer], own.recurrent_gradients[layer], shift, splits)
            gather(q, by_column[layer], own.gradients[layer], shift if layer else 0, splits if layer else 1)
            if layer:
                n, sources = q.shape[-1], shape.widths[layer]
                own.arriving[layer - 1].zero_()
                gpu.gradient_of_listed[(rows,)](
                    q, own.weights[layer], *gradient_rows[layer - 1], own.arriving[layer - 1], n, sources, shift,
                    ENTRIES=gpu.ENTRIES, BLOCK=min(512, power_of_two(n)),
                )  # fmt: skip
        own.update()

    return step
