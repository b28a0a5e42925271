"""The names of values in a training graph: every name that is needed in more than one place is built here.

Names are never parsed. The layer of a value, what it holds and its timestep are fields of its record
(`records.Value`).
"""

from __future__ import annotations

from dataclasses import dataclass

from mimdsim.graph.norms import STATISTICS
from mimdsim.graph.records import Value
from mimdsim.numerics import optimisers

INPUT, LABELS = "input", "labels"
INPUT_NOW = "input.now"  # in a timestep
LOSS, SCORES = "loss", "counts"
LEARNING_RATE = optimisers.LEARNING_RATE  # graph input of a scheduled rate
TRAINING_STEP = optimisers.TRAINING_STEP  # graph input that counts from 1
# of the parameters, and how their names begin; those of rows of cells begin with the row's own name
ROLES = {
    **{"weights": "w", "recurrent": "r", "bias": "b", "recurrent_bias": "rb", "constant": "c"},
    **{role: role for role in ("gain", "shift", *STATISTICS)},
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a layer: its 'weights' [inputs, neurons], its 'recurrent' synapses onto itself, its 'bias', a
    'constant' of its neurons, or of its norm the 'gain' and the running averages, 'mean' and 'variance', or 'shift'.

    Further biases are 'bias2', 'bias3'. Where delays are learned, 'delay' is that of every weight. Of cells with gates,
    with as many columns for each gate; these have a 'recurrent_bias' too, and rows of their own. One number per neuron
    is a row [1, neurons], one for the layer [1, 1]. source: of weights from a further layer that it reads, or 'input',
    with its age where the layer reads others of it; of what is made of parameters, by what. constant: which, by the
    name of the model's parameter.
    """

    layer: str
    role: str
    shape: tuple[int, int]
    source: str = ""
    constant: str = ""

    @property
    def name(self) -> str:
        """'w.hidden1', 'w.hidden1.from.input', 'r.hidden1', 'b.hidden1'."""
        return f"{ROLES.get(self.role, self.role)}.{self._of}"

    @property
    def trained(self) -> bool:
        """Whether there is a gradient of it; running averages have none."""
        return self.role not in STATISTICS

    @property
    def short(self) -> str:
        """Like `name`, but without its kind for weights: 'hidden1', 'hidden1.from.input', 'r.hidden1', 'b.hidden1'."""
        return self._of if self.role == "weights" else self.name

    @property
    def public(self) -> str:
        """'hidden1', 'hidden1.from.input', 'hidden1.recurrent', 'hidden1.bias', 'hidden1.beta'."""
        return self._of if self.role in ("weights", "constant") else f"{self.layer}.{self.role}"

    @property
    def _of(self) -> str:
        if self.constant:
            return f"{self.layer}.{self.constant}"
        return f"{self.layer}.from.{self.source}" if self.source else self.layer

    @property
    def value(self) -> Value:
        """The graph input."""
        return Value(name=self.name, shape=self.shape, role=self.role, layer=self.layer)

    def kept(self, slot: str) -> str:
        """What an optimiser keeps for it: 'moment1.hidden0' for weights, 'moment1.b.hidden0' for a bias."""
        return f"{slot}.{self.short}"


def weights_of(layer: str) -> str:
    """The weights of a layer."""
    return f"{ROLES['weights']}.{layer}"


def gradient_of(parameter: str) -> str:
    """A parameter's gradient as the update uses it."""
    return f"gradient.{parameter}"


def penalty_of(layer: str) -> str:
    """What a layer's firing adds to the loss."""
    return f"penalty.{layer}"


def second_threshold_of(layer: str) -> str:
    """The graph input that holds a layer's second threshold if it is scheduled."""
    return f"second_threshold.{layer}"


def keep_of(layer: str) -> str:
    """The graph input that holds the share of what a layer reads that dropout keeps; 1 where nothing is learned."""
    return f"keep.{layer}"


def mask_of(layer: str, source: str) -> str:
    """What dropout keeps of a source of a layer."""
    return f"mask.{layer}.of.{source}"


def random_name(layer: str) -> str:
    """The graph input that holds the state of a layer's generator, one whole number below 2^32 per sample."""
    return f"random.{layer}"


def delay_width_of(layer: str) -> str:
    """The graph input that holds how far a layer's weights reach around their delays; 0 where nothing is learned."""
    return f"delay_width.{layer}"


def every_of(layer: str, row: str) -> str:
    """What every neuron has of a number that the layer shares."""
    return f"{row}.{layer}.every"


def coefficient_of(layer: str, row: int) -> str:
    """A coefficient of the neurons that follows from constants that are learned."""
    return f"coefficient{row}.{layer}"


def spikes_of(layer: str) -> str:
    """What a layer emits in a timestep."""
    return f"spikes.{layer}"


def before(value: str, age: int = 1) -> str:
    """A body value `age` timesteps earlier."""
    return value if age == 0 else f"{value}.previous" if age == 1 else f"{value}.t-{age}"


def aged(source: str, age: int) -> str:
    """Spikes of a source at an age, as they are written: 'hidden0@t', 'hidden0@t-2'."""
    return f"{source}@t-{age}" if age else f"{source}@t"


def after(value: str) -> str:
    """What a training step leaves of a graph input."""
    return f"next.{value}"


def current_now(layer: str) -> str:
    """The current of a timestep that comes from a batch norm over all of them."""
    return f"normalised.{layer}"


def listed(spikes: str) -> tuple[str, str]:
    """The two arrays of sparse spikes: ids and counts."""
    return f"{spikes}.ids", f"{spikes}.counts"
