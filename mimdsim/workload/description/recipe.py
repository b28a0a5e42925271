"""How a network is trained: the [training] section of a workload."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from mimdsim.base.errors import suggest
from mimdsim.base.schema import Section
from mimdsim.base.search_path import PathText
from mimdsim.graph.losses import Loss
from mimdsim.numerics.optimisers import OPTIMISERS

MOST_TRAINING_STEPS = 1 << 27  # the most that a checkpoint can count


def _known(optimiser: str) -> str:
    if optimiser not in OPTIMISERS:
        raise ValueError(f"{optimiser!r} is not an optimiser{suggest(optimiser, OPTIMISERS)}")
    return optimiser


def _one_of(names: Iterable[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)


class TrainingRecipe(Section):
    """Initial weights, their updates, and the loss.

    `loss` is the cross-entropy of what `reading` takes from the output (spikes or potentials: network.output) or the
    mean squared error of spike counts, whose targets are `correct_rate` and `incorrect_rate` of the timesteps; mean
    over the batch. Losses of every timestep (reading "every") are added up or averaged, `over_timesteps`. With a
    `firing_strength` the squared distance of every hidden layer's share of spikes from `firing_target` times that is
    added.

    `optimiser` is a name of one of `numerics/optimisers`; `optimiser_parameters` are its constants by name, within its
    bounds, `weight_decay` is for those that support it. `learning_rate` holds throughout (schedule "constant"), or is
    reached after `warm_up_training_steps` and then falls along half a cosine to `final_rate_share` of it ("cosine") or
    is multiplied by `rate_factor` after every `rate_epochs` ("step"); it is the highest of a cycle over the whole
    training ("one_cycle", as PyTorch's OneCycleLR by default), or that of which `rate_table` gives the share from a
    training step on ("table": [[0, 1.0], [500, 0.1]]).
    All gradients together are scaled down to `largest_gradient_norm` (0: as they are). With a `second_threshold_share`
    the second threshold of hidden layers, and of the output layer with `second_threshold_output`, starts at
    `second_threshold_start` and covers that share of the remaining way to its own value in every training step.

    With an `initial_activity` the initial weights are scaled, layer by layer, until that share of a layer's neurons
    spikes in a timestep of one batch, give or take `initial_activity_tolerance` of it (0: as drawn).

    `frozen` names parameters that stay as they begin ("hidden0", "hidden0.recurrent"): a reservoir, a part that was
    trained before. Nothing is computed for their gradients alone. Of those in `pruned` ({ hidden0 = 0.9 }) that share,
    the smallest, begins as zero, and zeros stay zero (0: those that a file has).

    `validation_share` of the training samples are set aside; with `keep_best` the weights after the epoch with the best
    accuracy on them are kept. `initial_weights` names a safetensors or NPZ file with w.<layer>
    [inputs, neurons] and so on for everything that is trained; without it weights are drawn.

    `engine` executes the training steps: "whole_tensors", the same mathematics layer by layer without tiles, equal
    within float32 rounding and faster; the compiled "program"; or "auto", the first that can. The last training step,
    whose spikes are timed, always runs as the compiled program too.
    """

    batch: int = Field(gt=0, le=65_536)
    loss: Literal["cross_entropy", "mean_squared_error"] = "cross_entropy"
    reading: Literal["sum", "mean", "last", "max", "every"] = "sum"
    over_timesteps: Literal["sum", "mean"] = "sum"
    correct_rate: float = Field(default=1.0, ge=0, le=1)
    incorrect_rate: float = Field(default=0.0, ge=0, le=1)
    firing_target: float = Field(default=0.0, ge=0, le=1)
    firing_strength: float = Field(default=0.0, ge=0)
    epochs: int = Field(default=1, gt=0, le=1_000_000)
    optimiser: Annotated[str, AfterValidator(_known)] = "adam"
    optimiser_parameters: dict[str, float] = Field(default_factory=dict)
    learning_rate: float = Field(gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    schedule: Literal["constant", "cosine", "step", "one_cycle", "table"] = "constant"
    rate_factor: float = Field(default=1.0, gt=0, le=10)
    rate_epochs: int = Field(default=1, gt=0, le=1_000_000)
    rate_table: tuple[tuple[Annotated[int, Field(ge=0)], Annotated[float, Field(ge=0, le=1000)]], ...] = Field(
        default=(), max_length=10_000
    )
    warm_up_training_steps: int = Field(default=0, ge=0, le=MOST_TRAINING_STEPS)
    final_rate_share: float = Field(default=0.0, ge=0, le=1)
    largest_gradient_norm: float = Field(default=0.0, ge=0)
    second_threshold_share: float = Field(default=0.0, ge=0, le=1)
    second_threshold_start: float = -100.0
    second_threshold_output: bool = False
    initial_weights: PathText = ""
    frozen: tuple[str, ...] = Field(default=(), max_length=1024)
    pruned: dict[str, Annotated[float, Field(ge=0, lt=1)]] = Field(default_factory=dict, max_length=1024)
    weight_scale: float = Field(default=1.0, gt=0)
    weight_offset: float = 0.001
    recurrent_scale: float = Field(default=0.2, ge=0)  # assumed: digits learn at 0.2, hardly at 2
    initial_activity: float = Field(default=0.0, ge=0, le=1)
    initial_activity_tolerance: float = Field(default=0.1, gt=0, lt=1)
    logit_scale: float = Field(default=1.0, gt=0)
    max_training_steps: int = Field(default=0, ge=0, le=MOST_TRAINING_STEPS)  # 0: all of the epochs
    evaluate: Literal["each epoch", "end", "never"] = "each epoch"
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    keep_best: bool = False
    engine: Literal["auto", "whole_tensors", "program"] = "auto"

    @model_validator(mode="after")
    def _keys_agree(self) -> TrainingRecipe:
        problems = []
        problems += self._problems_of_optimiser()
        problems += self._problems_of_schedule()
        if self.keep_best and (not self.validation_share or self.evaluate != "each epoch"):
            problems.append(
                "training.keep_best: the best epoch is chosen on validation samples; give validation_share and "
                'evaluate = "each epoch"'
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _problems_of_schedule(self) -> list[str]:
        """Keys that are for another schedule, and a schedule without its own."""
        takes = {
            "warm_up_training_steps": ("cosine", "step"),
            "final_rate_share": ("cosine",),
            "rate_factor": ("step",),
            "rate_epochs": ("step",),
            "rate_table": ("table",),
        }
        given = [key for key in takes if getattr(self, key) != type(self).model_fields[key].default]
        problems = [
            f'training.{key}: is for schedule = {_one_of(list(takes[key]))}, not "{self.schedule}"'
            for key in given
            if self.schedule not in takes[key]
        ]
        steps = [step for step, _ in self.rate_table]
        if steps != sorted(set(steps)):
            problems.append("training.rate_table: training steps must ascend")
        needs = {"step": "rate_factor", "table": "rate_table"}.get(self.schedule)
        if needs and needs not in given:
            problems.append(f'training.schedule: "{self.schedule}" needs training.{needs}')
        return problems

    @property
    def constants(self) -> dict[str, float]:
        """Of the optimiser, beside its rate and weight decay."""
        return self.optimiser_parameters | ({"momentum": self.momentum} if self.momentum else {})

    def _problems_of_optimiser(self) -> list[str]:
        kind, problems = OPTIMISERS[self.optimiser], []
        known = kind.parameters()
        if self.momentum and "momentum" not in known:
            having = [name for name, one in OPTIMISERS.items() if "momentum" in one.parameters()]
            problems.append(
                f"training.momentum: is for optimiser {_one_of(having)}; '{self.optimiser}' has no such parameter"
            )
        if self.weight_decay and self.optimiser not in kind.decays:
            others = kind.decays or [name for name, one in OPTIMISERS.items() if name in one.decays]
            problems.append(f"training.weight_decay: '{self.optimiser}' has none; write optimiser = {_one_of(others)}")
        for name, value in self.optimiser_parameters.items():
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has none"
                problems.append(
                    f"training.optimiser_parameters.{name}: optimiser '{self.optimiser}' has no such parameter"
                    f"{suggest(name, known)}; {has}"
                )
            elif name == "momentum" and self.momentum:
                problems.append("training.optimiser_parameters.momentum: training.momentum is given too; omit one")
            elif not kind.bounds_of(name)[0] <= value < kind.bounds_of(name)[1]:
                least, below = kind.bounds_of(name)
                problems.append(
                    f"training.optimiser_parameters.{name}: must be at least {least:g} and below {below:g} "
                    f"(given: {value:g})"
                )
        return problems


def loss_of(training: TrainingRecipe, neurons_per_class: int) -> Loss:
    """The loss with its constants, whose names are those of the section."""
    constants = {field.name: getattr(training, field.name) for field in fields(Loss) if hasattr(training, field.name)}
    return Loss(kind=training.loss, neurons_per_class=neurons_per_class, **constants)
