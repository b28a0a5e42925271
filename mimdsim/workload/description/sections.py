"""The sections `data`, `network` and `training` of a workload."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from mimdsim.base.errors import MappingError, near, suggest
from mimdsim.base.schema import OneOrMore, Section
from mimdsim.base.search_path import PathText
from mimdsim.graph.losses import Loss
from mimdsim.graph.sources import source_of
from mimdsim.numerics.optimisers import OPTIMISERS

MAX_NEURONS = 1 << 24
MAX_LAYERS = 256
MAX_SAMPLES = 1 << 31
MOST_TRAINING_STEPS = 1 << 27  # the most that a checkpoint can count
IMAGE_SOURCES = ("digits", "mnist5k")
STEADY = "image"  # the encoding of what is the same in every timestep
# keys of the network that may be a list with one entry per layer, output layer last
PER_LAYER = (
    *("capacity", "neuron", "neuron_parameters", "decay", "current_gain", "threshold"),
    *("reset", "reset_gradient", "surrogate", "surrogate_slope", "recurrence", "bias", "dropout", "dropout_of"),
    *("batch_norm", "batch_norm_epsilon", "batch_norm_momentum", "batch_norm_groups"),
)
Extent = Annotated[int, Field(ge=0, le=65_536)]
Pair = Annotated[tuple[Extent, Extent], Field()]


def _pair(value: Any) -> Any:
    """One number for the height and the width."""
    return (value, value) if isinstance(value, int) and not isinstance(value, bool) else value


PairOrOne = Annotated[Pair, BeforeValidator(_pair)]
FILE_SOURCES = ("nmnist", "shd", "ssc", "dvs_gesture", "events", "braille", "values")


class Data(Section):
    """Where samples come from and how they become spikes per timestep.

    `bin_seconds` is the width of one timestep for recordings; `input_capacity` the most input ids a timestep keeps
    (surplus ids are dropped at random). `path` is a user's folder or file; `train_samples` and `test_samples` bound
    what is read (0 = all there is). Recordings are denoised, then cropped, reduced and binned. Training samples, never
    test or validation samples, are shifted by up to `shift_pixels` to each side, differently in every epoch.
    `encoding`, for dense spikes: 'image': real numbers that are the same in every timestep (digits: grey values from 0
    to 1); 'values': others in every timestep. Both are of a file (source 'values', docs/event-format.md), or random.
    """

    source: Literal[
        "digits", "mnist5k", "nmnist", "shd", "ssc", "dvs_gesture", "events", "braille", "randman", "random", "values"
    ]
    path: PathText = ""
    encoding: Literal["events", "image", "values"] = "events"
    timesteps: int = Field(gt=0, le=100_000)
    bin_seconds: float = Field(default=1e-3, gt=0)
    input_capacity: int = Field(gt=0, le=MAX_NEURONS)
    train_samples: int = Field(default=0, ge=0, le=MAX_SAMPLES)
    test_samples: int = Field(default=0, ge=0, le=MAX_SAMPLES)
    denoise_seconds: float = Field(
        default=0.0, ge=0, le=1e6
    )  # how old a neighbour's event may be (0 = keep all events)
    crop: int = Field(default=0, ge=0, le=4096)  # width and height of the central part that is kept (0 = all)
    grid: int = Field(default=0, ge=0, le=4096)  # width and height events are reduced to (0 = as recorded)
    shift_pixels: int = Field(default=0, ge=0, le=4095)  # in listed pixels (0 = trained on as recorded)
    sensor: tuple[int, ...] = ()  # events: width, height, polarities
    levels: int = Field(default=0, ge=0, le=255)  # braille: pressures at which a taxel spikes
    classes: int = Field(default=0, ge=0, le=65_536)  # events, values, randman, random
    inputs: int = Field(default=0, ge=0, le=MAX_NEURONS)  # events (units without a position), values, randman, random
    manifold_dimensions: int = Field(default=1, gt=0, le=8)  # randman
    smoothness: float = Field(default=2.0, gt=0)  # randman
    activity: float = Field(default=0.005, ge=0, le=1)  # random: chance of an input spike per neuron and timestep


class PoolKeys(Section):
    """A pool of planes: the largest value, the mean (zeros of the padding count) or the sum of every `size` pixels;
    `stride` (0: as `size`) from one to the next. Pairs are height and width; one number is for both."""

    kind: Literal["max", "average", "sum"] = "max"
    size: PairOrOne
    stride: PairOrOne = (0, 0)
    padding: PairOrOne = (0, 0)


class ConvolutionKeys(Section):
    """How a layer reads planes: weights of a `kernel` for each of `channels`, shared by all positions, as Conv2d of
    PyTorch. `groups`: channels made read only the channels of their own group. `pool_before` is of the spikes that it
    reads, `pool` of its currents. `planes`: channels, height and width of the network's input, where the data do not
    say it. A height of 1 is one dimension."""

    channels: int = Field(gt=0, le=65_536)
    kernel: PairOrOne
    stride: PairOrOne = (1, 1)
    padding: PairOrOne = (0, 0)
    dilation: PairOrOne = (1, 1)
    groups: int = Field(default=1, gt=0, le=65_536)
    pool_before: PoolKeys | None = None
    pool: PoolKeys | None = None
    planes: tuple[Extent, Extent, Extent] | None = None


class DelayKeys(Section):
    """Delays that a layer learns, one for every weight: 0 to `ages` - 1 timesteps more than the age at which it reads
    its source. A weight is spread over the ages as a Gaussian of `width` timesteps around its delay, which shrinks over
    `training_steps` to `final_width`, exponentially (0: is that from the first); `epsilon` is added to the sum by which
    it is divided (DCLS: 1e-7). Tests round delays."""

    ages: int = Field(gt=1, le=1024)
    width: float = Field(default=0.5, gt=0, le=1e6)
    final_width: float = Field(default=0.5, gt=0, le=1e6)
    training_steps: int = Field(default=0, ge=0, le=1 << 31)
    epsilon: float = Field(default=0.0, ge=0, le=1)


class WeightFunctionKeys(Section):
    """What weights are made of a parameter: `function` of every number of it, times 1 in rows of sources that excite
    and -1 in those that inhibit: `signs` are so many rows of each, as in [24, -6]; none: all excite."""

    function: str
    signs: tuple[int, ...] = Field(default=(), max_length=65_536)


class CellKeys(Section):
    """Neurons by equations of a timestep, each 'name = expression': docs/neurons.md. `parameters`: numbers that they
    name; `learned`: those that every neuron has of its own and trains, and where they start; `shared`: the learned ones
    that are one number for the layer."""

    equations: tuple[str, ...] = Field(min_length=1, max_length=64)
    parameters: dict[str, float] = Field(default_factory=dict, max_length=64)
    learned: dict[str, float] = Field(default_factory=dict, max_length=64)
    shared: tuple[str, ...] = Field(default=(), max_length=64)


class Network(Section):
    """Layers of spiking neurons; the output layer has one neuron per class.

    `neuron` is a model of docs/neurons.md, one of `cells`, or one of the Python file `models` (run only where code is
    allowed), with its `neuron_parameters`, each a number or one per neuron; those of "lif" may also be given as
    `decay`, `current_gain` and `threshold`. `reset`, `reset_gradient`: the neuron's own by default. These, `surrogate`,
    `surrogate_slope`, `recurrence`, `bias`, `dropout` and `batch_norm` with its constants take one value for all layers
    or a list with one per layer, output layer last. Second thresholds count from the resting potential.

    `learned`: by layer, the parameters of its neurons that are trained, from what is given of them on; one number is
    shared by the layer.

    `capacity` lists the spike capacity of every hidden layer and of the output layer (beyond a layer's neurons: all of
    them); alternatively `activity` is the share of a layer's neurons that fits, converted to
    2*floor(activity*neurons/2), at least 2 (authors' rule). Dense spikes list nothing and need neither.
    `recurrence`: trained synapses of a layer onto itself, one timestep later; one value is for hidden layers only.
    `convolutions`: by layer, how it reads planes of the layer before it, or of the input; its entry of `hidden` is the
    channels times the pixels that come of it.
    `sources`: by layer, what it reads, other layers (hidden0, ..., output) or "input", each with weights of its own; by
    default the layer before it. `delay`: timesteps from layer to layer; "hidden0@t" and "hidden0@t-3" say it of one
    source, which may be there at several ages. Spikes of a layer that comes later are at least one timestep old.
    `delays`: by layer, delays of its weights that are learned. `weight_functions`: by parameter (hidden0,
    hidden0.recurrent), what weights are made of it, as in Dale's law. "hidden0 + hidden1" are the dense spikes of both
    added up, which must be as many, with one matrix of weights; products, complements and pools stand there too, as in
    "hidden0 * (1 - hidden1)" and "max_pool(hidden0, 3, 2, 1)" (size, stride, padding).
    `bias`: a trained current per neuron, output layer included; 2 or more: so many, which are added up, as those of
    several products in PyTorch. `dropout`: of dense spikes, the share of what a layer reads that is left out of a
    training step, drawn anew for every timestep or sequence (`dropout_per`), neuron by neuron or whole planes
    (`dropout_of`), while the rest grows; nothing is in tests. `batch_norm`: of dense spikes, the weighted sum of what a
    layer reads is normalised over the samples (and positions of planes) of every timestep, or of the whole sequence,
    then times a trained gain, plus a bias; what comes from the layer itself is added to that. `batch_norm_epsilon` is
    added to the variance; `batch_norm_momentum` is the share of a new value in the running averages, by which tests and
    inference normalise. "sample" is layer norm, in every timestep over a sample's neurons, or over each of
    `batch_norm_groups` equal shares of them or of a sample's planes: group norm, with as many groups as planes instance
    norm; it keeps no averages.
    `imported` names a model that `mimdsim import` made: neurons, biases, recurrence, delays and initial weights come
    from it; second thresholds are then shares of a layer's threshold.
    """

    hidden: tuple[int, ...] = Field(max_length=MAX_LAYERS)
    imported: PathText = ""
    capacity: tuple[int, ...] = ()
    activity: float = Field(default=0.0, ge=0, le=1)
    output_capacity: int = Field(default=0, ge=0)  # 0: by the same rule as hidden layers
    spikes: Literal["sparse", "dense"] = "sparse"
    decay: OneOrMore[Annotated[float, Field(gt=0, lt=1)]] = 0.95
    current_gain: OneOrMore[Annotated[float, Field(gt=0)]] = 10.0
    threshold: OneOrMore[Annotated[float, Field(gt=0)]] = 1.0
    second_threshold: float = 0.9
    output_second_threshold: float = -100.0
    surrogate: OneOrMore[str] = "superspike"
    surrogate_slope: OneOrMore[Annotated[float, Field(gt=0)]] = 10.0
    cells: dict[str, CellKeys] = Field(default_factory=dict, max_length=64)
    models: PathText = ""  # a Python file with neuron models or cells of one's own
    neuron: OneOrMore[str] = "lif"
    neuron_parameters: OneOrMore[Annotated[dict[str, OneOrMore[float]], Field(max_length=64)]] = Field(
        default_factory=dict
    )
    reset: OneOrMore[Literal["", "zero", "subtract", "none"]] = ""
    reset_by: Literal["state", "emission"] = "state"
    reset_gradient: OneOrMore[Literal["", "pass", "mask", "full"]] = ""
    truncation: Literal["lowest", "random"] = (
        "lowest"  # which spikes a full list keeps: lowest ids, or from a random start
    )
    learned: dict[str, Annotated[tuple[str, ...], Field(min_length=1, max_length=64)]] = Field(
        default_factory=dict, max_length=MAX_LAYERS
    )
    recurrence: OneOrMore[Literal["none", "one_to_one", "all_to_all"]] = "none"
    sources: dict[str, Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_LAYERS)]] = Field(
        default_factory=dict, max_length=MAX_LAYERS
    )
    convolutions: dict[str, ConvolutionKeys] = Field(default_factory=dict, max_length=MAX_LAYERS)
    delays: dict[str, DelayKeys] = Field(default_factory=dict, max_length=MAX_LAYERS)
    weight_functions: dict[str, WeightFunctionKeys] = Field(default_factory=dict, max_length=4 * MAX_LAYERS)
    delay: Literal[0, 1] = 1
    bias: OneOrMore[bool | Annotated[int, Field(ge=2, le=64)]] = False
    dropout: OneOrMore[Annotated[float, Field(ge=0, lt=1)]] = 0.0
    dropout_per: Literal["timestep", "sequence"] = "timestep"  # how often what is left out is drawn
    dropout_of: OneOrMore[Literal["neuron", "plane"]] = "neuron"  # what is left out
    batch_norm: OneOrMore[Literal["none", "timestep", "sequence", "sample"]] = "none"
    batch_norm_epsilon: OneOrMore[Annotated[float, Field(gt=0, le=1)]] = 1e-5
    batch_norm_momentum: OneOrMore[Annotated[float, Field(ge=0, le=1)]] = 0.1
    batch_norm_groups: OneOrMore[Annotated[int, Field(gt=0, le=65_536)]] = 1
    # of the last layer; "membrane": it neither spikes nor is reset; "membrane_of_spiking": it is reset where it would
    output: Literal["spikes", "membrane", "membrane_of_spiking"] = "spikes"
    neurons_per_class: int = Field(default=1, gt=0, le=65_536)  # of the last layer, whose outputs are added up

    @property
    def layers(self) -> tuple[str, ...]:
        """hidden0, hidden1, ..., output."""
        return *(f"hidden{index}" for index in range(len(self.hidden))), "output"

    def of_layer(self, key: str, index: int) -> Any:
        """The value of one of PER_LAYER in layer `index`."""
        value = getattr(self, key)
        return value[index] if isinstance(value, tuple) else value


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


def check_sources(network: Network) -> None:
    """Raises MappingError for layers that are not there, or cannot be read."""
    known = ("input", *network.layers)
    for key in ("convolutions", "delays", "learned", "sources"):
        for layer in getattr(network, key):
            if layer not in network.layers:
                raise MappingError(
                    f"network.{key}.{layer}: no such layer{near(layer, network.layers)}; the layers are "
                    f"{', '.join(network.layers)}"
                )
    for layer, names in network.sources.items():
        terms = [term.name for each in names for term in source_of(each).terms]
        for name in terms:
            if name == layer:
                raise MappingError(f"network.sources.{layer}: write network.recurrence for its synapses onto itself")
            if name not in known:
                raise MappingError(
                    f"network.sources.{layer}: no layer '{name}'{near(name, known)}; it may read {', '.join(known)}"
                )
        if "output" in terms and network.output == "membrane":
            raise MappingError(f'network.sources.{layer}: with output = "membrane" the output layer sends no spikes')
