"""The sections `data`, `network` and `training` of a workload."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from mimdsim.base.errors import MappingError, near, suggest
from mimdsim.base.schema import OneOrMore, Section, has_default
from mimdsim.base.search_path import PathText
from mimdsim.graph.losses import Loss
from mimdsim.graph.sources import source_of
from mimdsim.numerics.optimisers import OPTIMISERS

MAX_NEURONS = 1 << 24
MOST_FLOAT32 = 3.4e38
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

    Recordings are denoised, then cropped, reduced and binned. Keys that a source does not read are refused.
    """

    source: Literal[
        "digits", "mnist5k", "nmnist", "shd", "ssc", "dvs_gesture", "events", "braille", "randman", "random", "values"
    ]
    """The loader: real digits ('digits', 'mnist5k'), recordings in files, generated samples ('randman', 'random'), or
    files of dense values ('values')."""
    path: PathText = ""
    """The user's folder or file of recordings or values; a relative path is searched beside the workload, then in the
    working folder."""
    encoding: Literal["events", "image", "values"] = "events"
    """What the network receives: 'events', spikes; for dense spikes also 'image', real numbers that are the same in
    every timestep (digits: grey values from 0 to 1), or 'values', others in every timestep; both are of a file (source
    'values', docs/event-format.md) or random."""
    timesteps: int = Field(gt=0, le=100_000)
    """Timesteps of a sample."""
    bin_seconds: float = Field(default=1e-3, gt=0)
    """Width of one timestep of a recording."""
    input_capacity: int = Field(gt=0, le=MAX_NEURONS)
    """The most input ids that a timestep keeps; surplus ids are dropped at random."""
    train_samples: int = Field(default=0, ge=0, le=MAX_SAMPLES)
    """The most training samples that are read; 0: all there are."""
    test_samples: int = Field(default=0, ge=0, le=MAX_SAMPLES)
    """The most test samples that are read; 0: all there are."""
    denoise_seconds: float = Field(default=0.0, ge=0, le=1e6)
    """An event is kept if a neighbouring pixel had one at most this long before; 0: all events are kept."""
    crop: int = Field(default=0, ge=0, le=4096)
    """Width and height in pixels of the central part that is kept; 0: all of it."""
    grid: int = Field(default=0, ge=0, le=4096)
    """Width and height in pixels that events are reduced to; 0: as recorded."""
    shift_pixels: int = Field(default=0, ge=0, le=4095)
    """Training samples, never test or validation samples, are shifted by up to so many listed pixels to each side,
    differently in every epoch; 0: trained on as recorded."""
    sensor: tuple[int, ...] = ()
    """Of 'events': width, height and polarities of the sensor."""
    levels: int = Field(default=0, ge=0, le=255)
    """Of 'braille': pressures at which a taxel spikes."""
    classes: int = Field(default=0, ge=0, le=65_536)
    """Classes of the samples; for 'events', 'values', 'randman' and 'random'."""
    inputs: int = Field(default=0, ge=0, le=MAX_NEURONS)
    """Inputs of the network; for 'events' whose units have no position, 'values', 'randman' and 'random'."""
    manifold_dimensions: int = Field(default=1, gt=0, le=8)
    """Of 'randman': dimensions of each random manifold."""
    smoothness: float = Field(default=2.0, gt=0)
    """Of 'randman': how fast the coefficients of higher frequencies fall; larger is smoother."""
    activity: float = Field(default=0.005, ge=0, le=1)
    """Of 'random': the chance of an input spike per neuron and timestep."""


class PoolKeys(Section):
    """A pool of planes. Pairs are height and width; one number stands for both."""

    kind: Literal["max", "average", "sum"] = "max"
    """What is made of each window: the largest value, the mean (zeros of the padding count) or the sum."""
    size: PairOrOne
    """Height and width of the window in pixels."""
    stride: PairOrOne = (0, 0)
    """Pixels from one window to the next; 0: as `size`."""
    padding: PairOrOne = (0, 0)
    """Zeros added at each side, in pixels."""


class ConvolutionKeys(Section):
    """How a layer reads planes: weights shared by all positions, as Conv2d of PyTorch. Pairs are height and width; one
    number stands for both, and a height of 1 is one dimension."""

    channels: int = Field(gt=0, le=65_536)
    """Channels that the layer makes."""
    kernel: PairOrOne
    """Height and width of the weights of each channel."""
    stride: PairOrOne = (1, 1)
    """Pixels from one position of the kernel to the next."""
    padding: PairOrOne = (0, 0)
    """Zeros added at each side, in pixels."""
    dilation: PairOrOne = (1, 1)
    """Pixels from one weight of the kernel to the next."""
    groups: int = Field(default=1, gt=0, le=65_536)
    """Groups of channels; those that are made read only the channels of their own group."""
    pool_before: PoolKeys | None = None
    """A pool of the spikes that the layer reads."""
    pool: PoolKeys | None = None
    """A pool of the currents that the convolution makes."""
    own_kernel: PairOrOne | None = None
    """Height and width, both odd, of weights by which its neurons read what they sent in the timestep before, as those
    of Conv2d with zeros at each side so that planes keep their size."""
    planes: tuple[Extent, Extent, Extent] | None = None
    """Channels, height and width of the network's input, where the data do not say it."""


class DelayKeys(Section):
    """Delays that a layer learns, one for every weight, in addition to the age at which it reads its source.

    A weight is spread over the ages as a Gaussian around its delay. Tests round delays.
    """

    ages: int = Field(gt=1, le=1024)
    """Delays are 0 to `ages` - 1 timesteps."""
    width: float = Field(default=0.5, gt=0, le=1e6)
    """Width of the Gaussian at the start, in timesteps."""
    final_width: float = Field(default=0.5, gt=0, le=1e6)
    """The width that it shrinks to, in timesteps."""
    training_steps: int = Field(default=0, ge=0, le=1 << 31)
    """Training steps over which it shrinks, exponentially; 0: it has its final width from the first."""
    epsilon: float = Field(default=0.0, ge=0, le=1)
    """Added to the sum that the Gaussian is divided by (DCLS: 1e-7)."""


class WeightFunctionKeys(Section):
    """What weights are made of a parameter."""

    function: str
    """The function of every number of the parameter, by name (`graph/derived.py`)."""
    signs: tuple[int, ...] = Field(default=(), max_length=65_536)
    """Numbers of consecutive sources that excite (positive) and that inhibit (negative), as in [24, -6], whose weights
    are multiplied by 1 and -1; none: all excite."""
    factor: float = 1.0
    """A number, other than 0, that multiplies all of them."""


class CellKeys(Section):
    """Neurons by equations of a timestep (docs/neurons.md)."""

    equations: tuple[str, ...] = Field(min_length=1, max_length=64)
    """The equations of a timestep in order, each 'name = expression'."""
    parameters: dict[str, float] = Field(default_factory=dict, max_length=64)
    """Numbers that the equations name."""
    learned: dict[str, float] = Field(default_factory=dict, max_length=64)
    """Parameters that every neuron has of its own and trains, with the values where they start."""
    shared: tuple[str, ...] = Field(default=(), max_length=64)
    """The learned parameters that are one number for the layer."""
    recurrent_of: str = "output"
    """What `R` sums over, with weights of the layer's own: its outputs of the timestep before, or what another equation
    made then."""


class Trained(Section):
    """A section whose numbers enter a training, which computes in float32."""

    @field_validator("*")
    @classmethod
    def _fits(cls, value: Any) -> Any:
        given = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        if any(isinstance(each, float) and abs(each) > MOST_FLOAT32 for each in given):
            raise ValueError(f"must be at most {MOST_FLOAT32:.1e} in size, as float32 holds it")
        return value


class Network(Trained):
    """Layers of spiking neurons, named hidden0, hidden1, ... and output, which has one neuron per class.

    Keys that take a list take one value for all layers or a list with one per layer, output layer last.

    In `sources`, "hidden0@t" and "hidden0@t-3" say the delay of one source, which may be there at several ages; spikes
    of a layer that comes later are at least one timestep old. "hidden0 + hidden1" are the dense spikes of both added
    up, which must be as many, with one matrix of weights; products, complements, pools and what is side by side stand
    there too, as in "hidden0 * (1 - hidden1)", "max_pool(hidden0, 3, 2, 1)" (size, stride, padding) and
    "concat(hidden0, hidden1)", and products by head of planes, as in "0.25 * matmul_nt(hidden0, hidden1, 8)".
    """

    hidden: tuple[int, ...] = Field(max_length=MAX_LAYERS)
    """Neurons of every hidden layer; of a layer in `convolutions` the channels times the pixels that come of it."""
    imported: PathText = ""
    """A model that `mimdsim import` made: neurons, biases, recurrence, delays and initial weights come from it, and
    second thresholds are then shares of a layer's threshold."""
    capacity: tuple[int, ...] = ()
    """The spikes that a list holds, of every hidden layer and of the output layer (beyond a layer's neurons: all of
    them). Sparse spikes need this or `activity`."""
    activity: float = Field(default=0.0, ge=0, le=1)
    """Instead of `capacity`, the share of a layer's neurons that fits into its list, converted to
    2*floor(activity*neurons/2), at least 2 (authors' rule)."""
    output_capacity: int = Field(default=0, ge=0)
    """The spikes that the list of the output layer holds; 0: by the same rule as those of hidden layers."""
    spikes: Literal["sparse", "dense"] = "sparse"
    """What layers send: lists of ids ('sparse') or every neuron's value ('dense', which lists nothing)."""
    decay: OneOrMore[Annotated[float, Field(gt=0, lt=1)]] = 0.95
    """Of 'lif': the share of the membrane potential that is left after a timestep."""
    current_gain: OneOrMore[Annotated[float, Field(gt=0)]] = 10.0
    """Of 'lif': what currents are multiplied by."""
    threshold: OneOrMore[Annotated[float, Field(gt=0)]] = 1.0
    """Of 'lif': the membrane potential above which a neuron spikes."""
    second_threshold: float = 0.9
    """Of hidden layers: the membrane potential above which a neuron that does not spike is listed for gradients,
    counted from the resting potential."""
    output_second_threshold: float = -100.0
    """The same of the output layer."""
    surrogate: OneOrMore[str] = "superspike"
    """The surrogate gradient of the spike, by name (docs/neurons.md)."""
    surrogate_slope: OneOrMore[Annotated[float, Field(gt=0)]] = 10.0
    """The steepness of the surrogate gradient."""
    cells: dict[str, CellKeys] = Field(default_factory=dict, max_length=64)
    """Neurons of one's own by equations, each by a name that `neuron` may take."""
    models: PathText = ""
    """A Python file with neuron models or cells of one's own (run only where code is allowed)."""
    neuron: OneOrMore[str] = "lif"
    """The neuron model: one of docs/neurons.md, one of `cells`, or one of the file `models`."""
    neuron_parameters: OneOrMore[Annotated[dict[str, OneOrMore[float]], Field(max_length=64)]] = Field(
        default_factory=dict
    )
    """Parameters of the neuron by name, each a number or one per neuron; those of 'lif' may also be given as `decay`,
    `current_gain` and `threshold`."""
    reset: OneOrMore[Literal["", "zero", "subtract", "none"]] = ""
    """What a spike does to the membrane potential; '': the neuron's own reset."""
    reset_by: Literal["state", "emission"] = "state"
    """Which neurons are reset: those above the threshold ('state'), or those whose spike was listed ('emission')."""
    reset_gradient: OneOrMore[Literal["", "pass", "mask", "full"]] = ""
    """How gradients pass the reset (docs/neurons.md#resets); '': the neuron's own way."""
    truncation: Literal["lowest", "random"] = "lowest"
    """Which spikes a full list keeps: those with the lowest ids, or from a random start."""
    learned: dict[str, Annotated[tuple[str, ...], Field(min_length=1, max_length=64)]] = Field(
        default_factory=dict, max_length=MAX_LAYERS
    )
    """By layer, the parameters of its neurons that are trained, starting from what is given of them; one number is
    shared by the layer."""
    recurrence: OneOrMore[Literal["none", "one_to_one", "all_to_all", "one_weight"]] = "none"
    """Trained synapses of a layer onto itself, one timestep later, 'one_weight' one to one and all the same; one value
    is for hidden layers only."""
    sources: dict[str, Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_LAYERS)]] = Field(
        default_factory=dict, max_length=MAX_LAYERS
    )
    """By layer, what it reads, each with weights of its own: 'input', other layers, or sums, products, pools and
    concatenations of dense spikes; by default the layer before it."""
    unweighted: tuple[str, ...] = Field(default=(), max_length=MAX_LAYERS)
    """Layers that have no weights: what one reads of dense spikes, or of numbers, is the current of its neurons, one to
    one."""
    convolutions: dict[str, ConvolutionKeys] = Field(default_factory=dict, max_length=MAX_LAYERS)
    """By layer, how it reads planes of the layer before it, of those in `sources`, or of the input."""
    delays: dict[str, DelayKeys] = Field(default_factory=dict, max_length=MAX_LAYERS)
    """By layer, delays of its weights that are learned."""
    weight_functions: dict[str, WeightFunctionKeys] = Field(default_factory=dict, max_length=4 * MAX_LAYERS)
    """By parameter (hidden0, hidden0.recurrent), what weights are made of it, as in Dale's law."""
    weight_format: Literal["", "half", "bfloat16", "e4m3", "e5m2", "int8"] = ""
    """The format that weights without a function of their own act in: parameters and updates stay as they are, and
    gradients pass the rounding unchanged; '': as parameters are."""
    delay: Literal[0, 1] = 1
    """Timesteps from layer to layer."""
    bias: OneOrMore[bool | Annotated[int, Field(ge=2, le=64)]] = False
    """Whether every neuron, output layer included, has a trained current; 2 or more: so many, which are added up, as
    those of several products in PyTorch."""
    dropout: OneOrMore[Annotated[float, Field(ge=0, lt=1)]] = 0.0
    """Of dense spikes: the share of what a layer reads that is left out of a training step, while the rest is scaled
    up; nothing is left out in tests."""
    dropout_per: Literal["timestep", "sequence"] = "timestep"
    """How often what is left out is drawn."""
    dropout_of: OneOrMore[Literal["neuron", "plane"]] = "neuron"
    """What is left out: single neurons or whole planes."""
    batch_norm: OneOrMore[
        Literal["none", "timestep", "sequence", "each_timestep", "sample", "root_mean_square", "position"]
    ] = "none"
    """Of dense spikes: the weighted sum of what a layer reads is normalised over the samples (and positions of planes)
    of every timestep, or of the whole sequence, then times a trained gain, plus a bias; 'each_timestep' has gains,
    biases and running averages of each timestep's own (BNTT), 'sample' is layer norm, in every timestep over a sample's
    neurons, without running averages; 'root_mean_square' takes no mean off; 'position' is over the channels of every
    position of planes, as of tokens. What comes from the layer itself is added to that."""
    batch_norm_epsilon: OneOrMore[Annotated[float, Field(gt=0, le=1)]] = 1e-5
    """Added to the variance."""
    batch_norm_momentum: OneOrMore[Annotated[float, Field(ge=0, le=1)]] = 0.1
    """The share of a new value in the running averages, by which tests and inference normalise."""
    batch_norm_groups: OneOrMore[Annotated[int, Field(gt=0, le=65_536)]] = 1
    """Of norms without running averages: equal shares of a sample's neurons or planes that are normalised each by
    itself (group norm; with as many groups as planes instance norm)."""
    output: Literal["spikes", "membrane", "membrane_of_spiking"] = "spikes"
    """What is read of the last layer: spikes, or potentials of neurons that neither spike nor are reset ('membrane'),
    or that are reset where they would spike ('membrane_of_spiking')."""
    neurons_per_class: int = Field(default=1, gt=0, le=65_536)
    """Neurons of the last layer for each class, whose outputs are added up."""

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


class TrainingRecipe(Trained):
    """Initial weights, their updates, and the loss."""

    batch: int = Field(gt=0, le=65_536)
    """Samples of a training step."""
    loss: Literal["cross_entropy", "mean_squared_error"] = "cross_entropy"
    """The cross-entropy of what `reading` takes from the output, or its mean squared error: of spike counts (by reading
    'mean', of their share of the timesteps), or of potentials; mean over the batch."""
    reading: Literal["sum", "mean", "last", "max", "softmax", "every"] = "sum"
    """What is read of the output's spikes or potentials over the timesteps; 'softmax': the sum of a softmax of every
    timestep's potentials; 'every': a loss of every timestep."""
    over_timesteps: Literal["sum", "mean"] = "sum"
    """Whether the losses of every timestep (reading 'every') are added up or averaged."""
    burn_in: int = Field(default=0, ge=0)
    """So many timesteps at the start are not read: neither by the loss nor for the accuracy."""
    correct_rate: float = Field(default=1.0, ge=-1e6, le=1e6)
    """Of the mean squared error: target of the right class, a share of the timesteps; of potentials, what they are to
    be."""
    incorrect_rate: float = Field(default=0.0, ge=-1e6, le=1e6)
    """Of the mean squared error: target of the other classes, a share of the timesteps; of potentials, what they are to
    be."""
    firing_target: float = Field(default=0.0, ge=0, le=1)
    """The share of spikes that hidden layers are held to by `firing_strength`."""
    firing_strength: float = Field(default=0.0, ge=0)
    """What the squared distance of every hidden layer's share of spikes from `firing_target` is multiplied by before it
    is added to the loss."""
    epochs: int = Field(default=1, gt=0, le=1_000_000)
    """How often all training samples are trained on."""
    optimiser: Annotated[str, AfterValidator(_known)] = "adam"
    """The optimiser, by a name of `numerics/optimisers`."""
    optimiser_parameters: dict[str, float] = Field(default_factory=dict)
    """Constants of the optimiser by name, within its bounds."""
    learning_rate: float = Field(gt=0)
    """The learning rate: throughout (schedule 'constant'), or that of which `schedule` takes a share."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Momentum of optimisers that have it."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay of optimisers that support it."""
    schedule: Literal["constant", "cosine", "step", "one_cycle", "table"] = "constant"
    """How the learning rate changes: not at all; along half a cosine; by a factor at epochs ('step'); in a cycle over
    the whole training ('one_cycle', as PyTorch's OneCycleLR by default); by `rate_table`."""
    rate_factor: float = Field(default=1.0, gt=0, le=10)
    """Of 'step': what the learning rate is multiplied by after every `rate_epochs`."""
    rate_epochs: int = Field(default=1, gt=0, le=1_000_000)
    """Of 'step': epochs between two changes."""
    rate_table: tuple[tuple[Annotated[int, Field(ge=0)], Annotated[float, Field(ge=0, le=1000)]], ...] = Field(
        default=(), max_length=10_000
    )
    """Of 'table': [[0, 1.0], [500, 0.1]], training steps and the share of the learning rate from each on."""
    warm_up_training_steps: int = Field(default=0, ge=0, le=MOST_TRAINING_STEPS)
    """Of 'cosine' and 'step': training steps after which the learning rate is reached."""
    final_rate_share: float = Field(default=0.0, ge=0, le=1)
    """Of 'cosine': the share of the learning rate at the end."""
    largest_gradient_norm: float = Field(default=0.0, ge=0)
    """The norm that all gradients together are scaled down to; 0: as they are."""
    second_threshold_share: float = Field(default=0.0, ge=0, le=1)
    """The share of the remaining way to its own value that the second threshold covers in every training step; 0: it
    has its own value from the first."""
    second_threshold_start: float = -100.0
    """Where the second threshold starts, with a `second_threshold_share`."""
    second_threshold_output: bool = False
    """Whether the second threshold of the output layer moves too."""
    initial_weights: PathText = ""
    """A safetensors or NPZ file with w.<layer> [inputs, neurons] and so on for everything that is trained; without it
    weights are drawn."""
    frozen: tuple[str, ...] = Field(default=(), max_length=1024)
    """Parameters that stay as they begin ('hidden0', 'hidden0.recurrent'), as in a reservoir; nothing is computed for
    their gradients alone."""
    pruned: dict[str, Annotated[float, Field(ge=0, lt=1)]] = Field(default_factory=dict, max_length=1024)
    """By parameter ({ hidden0 = 0.9 }), the share of its weights, the smallest, that begins as zero; zeros stay zero
    (0: those that a file has)."""
    weight_scale: float = Field(default=1.0, gt=0)
    """Weights are drawn evenly from +-weight_scale*sqrt(6/inputs), plus `weight_offset`."""
    weight_offset: float = 0.001
    """Added to every drawn weight."""
    recurrent_scale: float = Field(default=0.2, ge=0)
    """Weights of a layer onto itself are drawn evenly from +-recurrent_scale*sqrt(6/neurons) (assumed: digits learn at
    0.2, hardly at 2)."""
    initial_activity: float = Field(default=0.0, ge=0, le=1)
    """Initial weights are scaled, layer by layer, until this share of a layer's neurons spikes in a timestep of one
    batch; 0: as drawn."""
    initial_activity_tolerance: float = Field(default=0.1, gt=0, lt=1)
    """How far the reached share may be off, as a share of `initial_activity`."""
    logit_scale: float = Field(default=1.0, gt=0)
    """What is read of the output is multiplied by this before the loss."""
    max_training_steps: int = Field(default=0, ge=0, le=MOST_TRAINING_STEPS)
    """Training steps after which the training ends; 0: all of the epochs."""
    evaluate: Literal["each epoch", "end", "never"] = "each epoch"
    """When the test samples are run."""
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    """The share of the training samples that is set aside for validation."""
    keep_best: bool = False
    """Whether the weights after the epoch with the best accuracy on the validation samples are kept."""
    engine: Literal["auto", "whole_tensors", "program"] = "auto"
    """What executes the training steps: 'whole_tensors', the same mathematics layer by layer without tiles, equal
    within float32 rounding and faster; the compiled 'program'; or 'auto', the first that can. The last training step,
    whose spikes are timed, always runs as the compiled program too."""

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
        given = [key for key in takes if not has_default(self, key)]
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
    for key in ("convolutions", "delays", "learned", "sources", "unweighted"):
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
