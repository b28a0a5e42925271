"""A compiled training step as a module of PyTorch: its forward and backward pass run the program of the tiles.

The program is stopped after the vertices of its loss. What they made of labels is replaced by the gradient that PyTorch
hands back, and the program goes on; its update is left to the caller's optimiser.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.execution import Executor, draw_randomness, scheduled_values
from mimdsim.execution.activity import PassingSpikes
from mimdsim.graph.names import INPUT, LABELS, TRAINING_STEP, listed
from mimdsim.machine import MimdMachine
from mimdsim.pipeline import compile_workload, retime
from mimdsim.pipeline.pipeline import first_weights
from mimdsim.profile import TiledProfile
from mimdsim.program import Program, RecordedActivity, Superstep
from mimdsim.workload import Workload

LOSS_FIELDS = {"totals", "labels", "losses", "gradient"}  # of every codelet of a loss
BEFORE_UPDATE = ("forward", "loss", "backward")


class TorchProgram(torch.nn.Module):  # type: ignore[misc]
    """See `mimdsim.torch_function`. Parameters are float32[inputs, neurons], named after the layers of the workload;
    the widths of delays that are learned are buffers, 'delay_width_hidden0', which the caller may shrink."""

    def __init__(self, workload: Workload, machine: MimdMachine):
        super().__init__()
        if workload.training.firing_strength:
            raise DescriptionError(
                f"workload '{workload.name}'",
                ["training.firing_strength adds to a loss that is yours here: set it to 0, and add it to your own"],
            )
        self.workload, self.machine = workload, machine
        self._compiled = compile_workload(workload, machine)
        self.network = self._compiled.network
        weights = first_weights(workload, self.network)
        self._names = {name: parameter.public for name, parameter in self.network.parameters.items()}
        for name, public in self._names.items():
            shape = self.network.parameters[name].shape
            values = torch.from_numpy(weights[name].reshape(shape).astype(np.float32))
            learns = name in self.network.trained
            self.register_parameter(public.replace(".", "_"), torch.nn.Parameter(values, requires_grad=learns))
        first = scheduled_values(self.network, None, 0, 1)
        for name in self.network.delay_widths:
            self.register_buffer(name.replace(".", "_"), torch.from_numpy(first[name]))
        program = self._compiled.program
        self._executor = Executor(program, rounded=True)
        self._passing = PassingSpikes(self._executor)
        self._loss, operands = _loss_of(program)
        self._totals, self._gradient = operands["totals"], operands["gradient"]
        self._rest: Iterator[tuple[Superstep, int]] = iter(())  # of the step that runs
        self._turn = 0  # forward passes so far

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Copies of the parameters as they are now, by layer, as a run returns them: for `mimdsim.to_torch`."""
        return {public: self._parameter(public).detach().numpy().copy() for public in self._names.values()}

    @property
    def activity(self) -> RecordedActivity:
        """Spikes of the step that ran last."""
        if not self._turn:
            raise MappingError("nothing has run yet: call the module on spikes first")
        return self._executor.activity(self._passing.layers)

    def profile(self) -> TiledProfile:
        """Time, memory and traffic of the training step on the machine, with the spikes of the step that ran last."""
        return retime(self._compiled, self.machine, self.activity)

    def forward(self, spikes: torch.Tensor) -> torch.Tensor:
        """What the loss of the workload would read: [samples, classes], or [timesteps, samples, classes] where
        training.reading is "every".

        spikes: [timesteps, samples, inputs] of 0 and 1, up to as many samples as training.batch; a smaller batch is
        filled up with silent ones. Raises DescriptionError for another shape, and for more spikes than lists hold.
        """
        found: torch.Tensor = _Step.apply(self, spikes, *(self._parameter(name) for name in self._names.values()))
        return found

    def _parameter(self, public: str) -> torch.nn.Parameter:
        return self.get_parameter(public.replace(".", "_"))

    # ---- the two halves of a step

    def run_to_loss(self, spikes: np.ndarray, weights: list[np.ndarray], turn: int, training: bool) -> np.ndarray:
        """The reading, with the program stopped where its loss is known; `turn` seeds what layers draw, in training."""
        executor, network = self._executor, self.network
        if network.averages and not training:
            raise _refusal(
                self.workload,
                "eval() normalises by running averages, and the program by the statistics of its batch: hand the "
                "weights to the module, mimdsim.to_torch, and call that",
            )
        executor.write(dict(zip(self._names, weights, strict=True)))
        executor.write(self._spike_lists(spikes) | {LABELS: np.zeros(network.batch, np.int32)})
        widths = {name: self.get_buffer(name.replace(".", "_")).numpy() for name in network.delay_widths}
        executor.write(scheduled_values(network, None, 0, 1) | widths)
        if not training:
            executor.write({name: np.full(1, at, np.float32) for name, at in network.without_learning.items()})
        if TRAINING_STEP in executor.inputs:
            executor.write({TRAINING_STEP: np.array([turn + 1])})
        draw_randomness(executor, self.workload.seed, turn)
        self._rest = executor.steps(BEFORE_UPDATE)
        for superstep, t in self._rest:
            self._passing(superstep, t, executor)
            if superstep is self._loss:
                break
        return executor.arrays[self._totals].astype(np.float32)

    def keep_averages(self) -> None:
        """Take over what the forward pass has made of the running averages of batch norms."""
        inputs = self._executor.program.inputs
        for name in self.network.averages:
            self._parameter(self._names[name]).data.copy_(torch.from_numpy(self._executor.arrays[inputs[name]]))

    def run_from_loss(self, gradient: np.ndarray, weights: list[np.ndarray]) -> list[np.ndarray | None]:
        """The gradients of all parameters, given that of the reading; None of those that are frozen. Those of pruned
        weights are 0."""
        self._executor.replace(self._gradient, gradient)
        for _ in self._rest:
            pass
        held = self._executor.program.observables.gradients
        found = [self._executor.read(held[name]) if name in held else None for name in self._names]
        for name, values, each in zip(self._names, weights, found, strict=True):
            if name in self.network.pruned and each is not None:
                each[values == 0] = 0
        return found

    def _spike_lists(self, spikes: np.ndarray) -> dict[str, np.ndarray]:
        """Graph inputs of spikes [timesteps, batch, inputs]: as they are where the program takes dense rows."""
        if INPUT in self._executor.inputs:
            return {INPUT: spikes}
        capacity = self.network.input_capacity
        fired = spikes != 0
        counts = fired.sum(axis=2, dtype=np.int32)
        if (most := int(counts.max(initial=0))) > capacity:
            raise _refusal(self.workload, f"{most} spikes in a timestep of a sample; data.input_capacity is {capacity}")
        order = np.argsort(~fired, axis=2, kind="stable")[..., :capacity].astype(np.int32)
        ids = np.where(np.arange(capacity) < counts[..., None], order, 0).astype(np.int32)
        return dict(zip(listed(INPUT), (ids, np.stack([counts, counts], axis=-1)), strict=True))

    def pad_batch(self, spikes: torch.Tensor) -> np.ndarray:
        """The input as float32, with silent samples to make a whole batch."""
        network, dense = self.network, INPUT in self._executor.inputs
        shape: tuple[int, ...] = (network.timesteps, network.batch, network.inputs)
        if dense:  # an input that stays the same has no timesteps
            shape = self._executor.arrays[self._executor.program.inputs[INPUT]].shape
        given = spikes.detach().cpu().numpy()
        fits = given.ndim == len(shape) and (given.shape[:-2], given.shape[-1]) == (shape[:-2], shape[-1])
        if not fits or not 0 < given.shape[-2] <= network.batch:
            wanted = [*map(str, shape[:-2]), f"1 to {network.batch}", str(shape[-1])]
            raise _refusal(self.workload, f"input of shape {list(given.shape)}; [{', '.join(wanted)}] is needed")
        if not (np.isfinite(given).all() if dense else np.isin(given, (0, 1)).all()):
            raise _refusal(self.workload, "spikes must be " + ("finite numbers" if dense else "0 or 1"))
        if network.averages and given.shape[-2] < network.batch:
            raise _refusal(
                self.workload, f"{given.shape[-2]} samples; a batch norm needs all {network.batch} of training.batch"
            )
        whole = np.zeros(shape, np.float32)
        whole[..., : given.shape[-2], :] = given
        return whole


class _Step(torch.autograd.Function):  # type: ignore[misc]
    """One training step of a TorchProgram; a backward pass whose forward pass was not the last runs that again."""

    @staticmethod
    def forward(ctx: Any, owner: TorchProgram, spikes: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        if spikes.requires_grad:
            raise _refusal(owner.workload, "the program computes no gradient of its input: detach the spikes")
        ctx.owner, ctx.turn, ctx.spikes = owner, owner._turn, owner.pad_batch(spikes)
        ctx.samples, ctx.training = spikes.shape[-2], owner.training
        ctx.weights = [weight.detach().cpu().numpy().copy() for weight in weights]
        reading = owner.run_to_loss(ctx.spikes, ctx.weights, ctx.turn, ctx.training)
        owner._turn += 1
        owner.keep_averages()
        return torch.from_numpy(reading[..., : ctx.samples, :].copy())

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        owner: TorchProgram = ctx.owner
        if owner._turn != ctx.turn + 1:
            owner.run_to_loss(ctx.spikes, ctx.weights, ctx.turn, ctx.training)
        owner._turn += 1  # the program has gone on: its forward pass must run again before another backward pass
        whole = np.zeros(owner._executor.arrays[owner._gradient].shape, np.float32)
        whole[..., : ctx.samples, :] = gradient.detach().cpu().numpy()
        found = owner.run_from_loss(whole, ctx.weights)
        return None, None, *(None if each is None else torch.from_numpy(each) for each in found)


def _loss_of(program: Program) -> tuple[Superstep, dict[str, str]]:
    """The superstep of the loss, and what its vertices work on by field."""
    for superstep, _, _ in program.supersteps():
        for table in superstep.tables:
            if {item.name for item in table.codelet.fields} >= LOSS_FIELDS:
                return superstep, dict(table.operands)
    raise MappingError("the program has no loss")


def _refusal(workload: Workload, problem: str) -> DescriptionError:
    return DescriptionError(f"torch_function of workload '{workload.name}'", [problem])
