"""A layer, and its neurons in the body of the scan: what they carry, which of them fired, and one timestep of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mimdsim.base.errors import MappingError, check_choice, suggest
from mimdsim.base.shown import Shown
from mimdsim.graph.cells import OUTPUT, Cell, Equations
from mimdsim.graph.convolution import Convolution, Planes
from mimdsim.graph.derived import Delays, WeightFunction
from mimdsim.graph.dropout import OF, PER
from mimdsim.graph.learned_constants import SharedRow, plain_number
from mimdsim.graph.linear_neurons import Fired, Learned, LinearNeuron
from mimdsim.graph.names import Parameter, before, coefficient_of, delay_width_of, spikes_of
from mimdsim.graph.norms import BatchNorm
from mimdsim.graph.records import Carry, GraphBuilder, Value
from mimdsim.graph.sources import Source, labels_of
from mimdsim.graph.spikes import Selection

RECURRENCES = ("none", "one_to_one", "all_to_all", "one_weight")


@dataclass(frozen=True, kw_only=True)
class Derived:
    """What an operation makes of parameters before the timesteps, which read it in their place. `scheduled`: scalars
    that it reads too, which the host writes."""

    name: str
    kind: str
    about: Any
    of: tuple[Parameter, ...]
    makes: tuple[Parameter, ...]
    scheduled: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Layer(Shown):
    """One layer: `inputs` x `neurons` weights; at most `capacity` ids listed per sample and timestep.

    sources: what it reads, each with weights of its own, whose currents are added up; none: the layer before it, or the
    input. `inputs` is the width of the first. convolution: how it reads the first, if that is planes, and others, whose
    planes are as large but may be more or fewer; its weights and biases are shared by all positions. dropout: the share
    of what its weights see that is left out in a training step, drawn anew for every timestep or for the whole sequence
    (`dropout_per`), of every neuron or of whole planes (`dropout_of`). norm: batch norm of the sum of its weighted
    sources, with gain and bias; what comes from itself is added to that. bias: trained currents per neuron, so many,
    which are added up. recurrence: synapses from the layer's spikes of the previous timestep onto each neuron itself
    ('one_to_one'; 'one_weight': the same for all) or all ('all_to_all'). spiking False: the membrane potential is the
    output, of neurons that are never reset, or with `reset_unread` where they would spike, though nobody reads those
    spikes. delays: of every weight, learned with it. weight_functions: by the public name of a parameter, what weights
    are made of it. unweighted: what it reads is its current as it is, neuron by neuron; planes: those that it then has.
    Raises MappingError for an unknown choice.
    """

    name: str
    inputs: int
    neurons: int
    neuron: LinearNeuron | Cell
    selection: Selection
    bias: int = False
    recurrence: str = "none"
    spiking: bool = True
    reset_unread: bool = False
    sources: tuple[Source, ...] = ()
    convolution: Convolution | None = None
    dropout: float = 0.0
    dropout_per: str = "timestep"
    dropout_of: str = "neuron"
    norm: BatchNorm | None = None
    delays: Delays | None = None
    weight_functions: tuple[tuple[str, WeightFunction], ...] = ()
    unweighted: bool = False
    planes: Planes | None = None

    def __post_init__(self) -> None:
        check_choice(f"layer '{self.name}': network.recurrence", self.recurrence, RECURRENCES)
        made_of_weights = f"{self.name}.recurrent" in dict(self.weight_functions)
        if self.recurrence == "one_weight" and (made_of_weights or self.gates > 1):
            raise MappingError(
                f"layer '{self.name}': network.recurrence = \"one_weight\" goes with no function or format of weights, "
                'and with no cells that have gates; nearest: "one_to_one"'
            )
        if self.dropout_per not in PER or not 0 <= self.dropout < 1:
            raise MappingError(
                f"layer '{self.name}': dropout {self.dropout} per '{self.dropout_per}' is not valid: a share of at "
                f"least 0 and below 1, per {' or '.join(PER)}, is needed"
            )
        check_choice(f"layer '{self.name}': network.dropout_of", self.dropout_of, OF)
        if self.cell is not None:
            self._check_cell(self.cell)
        elif self.reset_unread and self.linear.reset_by == "emission":
            raise MappingError(
                f"layer '{self.name}': spikes that nobody reads are not listed, so they reset by state: leave "
                'network.reset_by = "emission" out'
            )
        if self.reset_unread and self.linear.lifts:
            raise MappingError(
                f"layer '{self.name}' is read by its membrane potential and resets at thresholds that neurons have of "
                "their own, or learn, which is not in that potential here; nearest: one fixed threshold for the layer"
            )
        if self.convolution is not None:
            self._check_convolution(self.convolution)
        if self.delays is not None:
            self._check_delays()
        if self.unweighted:
            self._check_unweighted()
        self._check_weight_functions()

    def _check_unweighted(self) -> None:
        what = ""
        if len(self.sources) > 1:
            what = f'reads {len(self.sources)} sources: write one, as in "hidden0 + hidden1"'
        elif self.convolution or self.delays or self.gates > 1:
            what = "has a convolution, delays or gates, which are of weights: leave these out"
        elif self.neurons != self.inputs:
            what = f"has {self.neurons} neurons, and reads {self.inputs}: as many are needed"
        if what:
            raise MappingError(f"layer '{self.name}', in network.unweighted, {what}")

    def _check_delays(self) -> None:
        what = ""
        if len(self.sources) > 1 or any(each.of for each in self.sources):
            what = "a layer with them reads one source: name one in network.sources"
        elif self.convolution or self.cell:
            what = "convolutions and cells have none: leave network.delays out"
        elif self.dropout and self.dropout_per == "timestep":
            what = (
                "dropout would draw for each age of a spike anew: set network.dropout = 0.0 there, or "
                'network.dropout_per = "sequence"'
            )
        if what:
            raise MappingError(f"layer '{self.name}': network.delays: {what}")

    def _check_weight_functions(self) -> None:
        roles = ("weights", "recurrent", *(("bias",) if self.bias == 1 else ()))
        known = {each.public: each for each in self.parameters if each.role in roles}
        for name, function in self.weight_functions:
            try:
                if name not in known:
                    raise MappingError(f"no weights{suggest(name, known)}; there are {', '.join(known)}")
                if self.delays:
                    raise MappingError("weights with delays that are learned have none: leave one of both out")
                if self.norm:
                    raise MappingError(
                        "batch norm is folded into weights for inference, and not into a function of them: leave one "
                        "of both out"
                    )
                function.check(known[name].shape[0])
            except MappingError as problem:
                raise MappingError(f"layer '{self.name}': network.weight_functions.'{name}': {problem}") from None

    def _check_cell(self, cell: Cell) -> None:
        what = ""
        if self.reset_unread:
            what = 'their equations say what a spike resets: set network.output = "membrane", or "spikes"'
        elif cell.of.recurrent and self.recurrence != "none":
            what = "these cells have synapses onto themselves already: leave network.recurrence out"
        elif self.convolution and (cell.of.recurrent or (cell.of.gates > 1 and self.convolution.parted)):
            what = (
                "a convolution in groups, or with a pool after it, has one weight for each input of a neuron, and none "
                "read what cells sent apart from the rest; these cells have several"
            )
        if what:
            raise MappingError(f"layer '{self.name}' of cells '{cell.model}': {what}")

    def _check_convolution(self, convolution: Convolution) -> None:
        for what, given, planes in (
            ("inputs", self.inputs, convolution.planes),
            ("neurons", self.neurons, convolution.result),
        ):
            if given != planes.neurons:
                raise MappingError(f"layer '{self.name}' has {given} {what}; planes of {planes} are {planes.neurons}")
        if len(self.sources) > 1 and convolution.groups > 1:
            names = ", ".join(each.names for each in self.sources)
            raise MappingError(f"layer '{self.name}', a convolution with groups, reads {names}: one source can run")
        if self.recurrence != "none":
            raise MappingError(
                f"layer '{self.name}', a convolution, has no such synapses onto itself: leave network.recurrence out; "
                "nearest: own_kernel of its convolution"
            )

    @property
    def cell(self) -> Cell | None:
        """Its neurons, where these are given by equations."""
        return self.neuron if isinstance(self.neuron, Cell) else None

    @property
    def linear(self) -> LinearNeuron:
        """Its neurons, where these are linear; raises MappingError for others."""
        if isinstance(self.neuron, Cell):
            raise MappingError(
                f"layer '{self.name}' is of cells '{self.neuron.model}', which are no linear neurons: set "
                "network.neuron to a model of these"
            )
        return self.neuron

    @cached_property
    def acting_neuron(self) -> LinearNeuron:
        """The neurons with the reset that they have."""
        return self.linear if self.spiking or self.reset_unread else self.linear.unreset

    @property
    def learned(self) -> tuple[Learned, ...]:
        """Constants of linear neurons that are trained, and numbers of cells that the layer shares."""
        if self.cell is None:
            return self.acting_neuron.learned
        return tuple(plain_number(row, self.cell.values[row]) for row in self.cell.of.shared)

    @property
    def folds(self) -> bool:
        """Whether its norm, if it has one, becomes a part of its weights where nothing is learned."""
        return self.norm is None or (self.norm.averages != () and self.norm.rows == 1 and not self.unweighted)

    @property
    def gates(self) -> int:
        """Columns of weights for each neuron."""
        return self.cell.of.gates if self.cell else 1

    @property
    def sends_numbers(self) -> bool:
        """Whether its cells send numbers that are seldom 0, and no spikes."""
        return self.cell is not None and not self.cell.of.sparse

    @property
    def recurs(self) -> bool:
        """Whether it has trained synapses onto itself."""
        by_window = self.convolution is not None and self.convolution.own is not None
        return by_window or self.recurrence != "none" or (self.cell is not None and self.cell.of.recurrent)

    @property
    def capacity(self) -> int:
        return self.selection.capacity

    @property
    def sent_planes(self) -> Planes | None:
        return self.convolution.result if self.convolution else self.planes

    @property
    def positions(self) -> int:
        """Of its planes: values of the layer have so many rows a sample."""
        return self.sent_planes.positions if self.sent_planes else 1

    @property
    def columns(self) -> int:
        """Neurons at a position, which share no weights."""
        return self.neurons // self.positions

    @property
    def gives_itself_gradients(self) -> bool:
        """Whether a gradient reaches the layer's spikes from its own neurons, a timestep later."""
        if self.cell:
            of = self.cell.of
            return of.reads_itself or (self.recurs and (not of.recurrent or of.recurrent_of == OUTPUT))
        return self.recurs or (reads_own_spikes(self) and self.linear.reset_gradient == "full")

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters: weights, first those of what it reads first, and, where the layer has them, synapses onto
        itself, biases, what its batch norm has, and constants of its neurons."""
        channels = self.gates * (self.convolution.channels if self.convolution else self.neurons)
        also = (
            Parameter(layer=self.name, role="weights", shape=(self.rows_of(each.neurons), channels), source=label)
            for each, label in list(zip(self.sources, labels_of(self.sources), strict=True))[1:]
        )
        shapes = {"delay": (self.inputs, self.neurons)} if self.delays else {}
        if self.recurs:
            rows = self.neurons if self.recurrence in ("all_to_all", "none") else 1  # none: cells have their own
            shapes["recurrent"] = (rows, 1 if self.recurrence == "one_weight" else self.gates * self.neurons)
        if self.convolution and self.convolution.own:
            shapes["recurrent"] = (self.columns * self.convolution.own.taps, self.gates * self.columns)
        if self.bias or (self.norm and self.norm.averages):
            rows = self.norm.rows if self.norm else 1
            shapes |= dict.fromkeys(self._biases, (rows, self.gates * self.columns))
        if self.norm:
            of_norm = ("gain", *(self.norm.averages or ("shift",)))
            shapes |= dict.fromkeys(of_norm, (self.norm.rows, self.columns))
        if self.cell is not None:
            if self.bias and self.cell.of.recurrent:
                shapes["recurrent_bias"] = (1, self.gates * self.columns)
            shapes |= {row: (1, self.columns) for row in self.cell.of.rows if row not in self.cell.of.shared}
        others = (Parameter(layer=self.name, role=role, shape=shape) for role, shape in shapes.items())
        weights = Parameter(layer=self.name, role="weights", shape=(self.rows_of(self.inputs), channels))
        learned = (
            Parameter(layer=self.name, role="constant", shape=(1, len(each.value)), constant=each.name)
            for each in self.learned
        )
        return *(() if self.unweighted else (weights,)), *also, *others, *learned

    @property
    def _biases(self) -> tuple[str, ...]:
        """Roles of biases that are added up."""
        return "bias", *(f"bias{number}" for number in range(2, 1 + (0 if self.norm else self.bias)))

    @cached_property
    def derived(self) -> tuple[Derived, ...]:
        """What is made of parameters before the timesteps: of delays that are learned the weights for each age, and
        weights that are functions of parameters."""
        named, made = {each.public: each for each in self.parameters}, []
        if self.delays:
            of = tuple(each for each in self.parameters if each.role in ("weights", "delay"))
            ages = tuple(replace(of[0], source=f"delay{age}") for age in range(self.delays.ages))
            width = (delay_width_of(self.name),)
            name, kind = f"delayed.{self.name}", "delayed_weights"
            made.append(Derived(name=name, kind=kind, about=self.delays, of=of, makes=ages, scheduled=width))
        if len(roles := self._biases) > 1:
            of = tuple(named[f"{self.name}.{role}"] for role in roles)
            name, total = f"biases.{self.name}", (replace(of[0], source="sum"),)
            made.append(Derived(name=name, kind="bias_sum", about=len(of), of=of, makes=total))
        if self.recurrence == "one_weight":
            own = named[f"{self.name}.recurrent"]
            each, about = replace(own, shape=(1, self.neurons), source="each"), SharedRow.of("V", self.neurons)
            made.append(Derived(name=each.name, kind="coefficients", about=about, of=(own,), makes=(each,)))
        for public, function in self.weight_functions:
            own = named[public]
            acts = replace(own, source=".".join(filter(None, (own.source, function.function))))
            name = f"{function.function}.{own.short}"
            made.append(Derived(name=name, kind="weight_function", about=function, of=(own,), makes=(acts,)))
        return tuple(made)

    @property
    def acting(self) -> tuple[Parameter, ...]:
        """What timesteps read: the parameters, but what is derived of some of them in their place."""
        places = {name: each.makes for each in self.derived for name in each.of[:1]}
        gone = {name for each in self.derived for name in each.of[1:]}
        return tuple(each for own in self.parameters if own not in gone for each in places.get(own, (own,)))

    @property
    def matrices(self) -> tuple[Parameter, ...]:
        """The weights of what it reads as timesteps read them, source by source, or age by age."""
        return tuple(each for each in self.acting if each.role == "weights")

    @property
    def fan_in(self) -> int:
        """The inputs of a neuron from other layers, by weights."""
        widths = () if self.unweighted else (self.inputs, *(each.neurons for each in self.sources[1:]))
        return sum(map(self.rows_of, widths))

    def convolution_of(self, neurons: int) -> Convolution | None:
        """How it reads a source of so many neurons, which are planes."""
        return self.convolution and self.convolution.with_planes(neurons // self.convolution.planes.positions)

    def rows_of(self, neurons: int) -> int:
        """The rows of the weights of a source of so many neurons."""
        convolution = self.convolution_of(neurons)
        return convolution.fan_in if convolution else neurons


def step(body: GraphBuilder, layer: Layer, current: str) -> tuple[tuple[Carry, ...], str]:
    """Append one timestep of the layer's neurons; returns what it carries and the name of the potential compared
    with the thresholds.

    Rows are samples, or positions of them where the layer has planes, whose columns are channels. Carried: the states x
    [states, rows, columns], and u [rows, columns] for a reset by state. For one by emission, the layer's own spikes of
    the previous timestep, which the network carries, tell which were reset. Fused neurons carry only the potential v
    [rows, columns].
    """
    name = layer.name
    neuron = layer.acting_neuron
    neuron.check_width(name, layer.columns)
    rows, columns = body.values[current].shape
    earlier = replace(body.values[current], layer=name, role="", shift=-1)  # also of what others send
    if neuron.fused:
        v = f"v.{name}"
        held = body.declare(replace(earlier, name=before(v)))
        v = body.one("lif", (held, current), v, layer=name, attributes=neuron)
        return (Carry(enters=held, leaves=v),), v
    x, u = f"x.{name}", f"u.{name}"
    shape = (len(neuron.states), rows, columns)
    held = body.declare(replace(earlier, name=before(x), shape=shape))
    inputs: tuple[str, ...] = (held, current)
    full = neuron.reset_gradient == "full"
    carries = []
    if neuron.resets:
        attributes = Fired(selection=layer.selection, neurons=columns, differentiable=full)
        if neuron.reset_by == "state":
            potential = body.declare(replace(earlier, name=before(u)))
            carries.append(Carry(enters=potential, leaves=u, detached=not full))
            fired = body.one("fired", (potential,), f"fired.{name}", layer=name, attributes=attributes)
        else:
            fired = before(spikes_of(name))
            if body.values[fired].form == "sparse":
                fired = body.one("emitted", (fired,), f"fired.{name}", layer=name, attributes=attributes)
        inputs = (*inputs, fired)
    for row in range(len(neuron.rows)):
        coefficient = Value(name=coefficient_of(name, row), shape=(1, columns), layer=name)
        inputs = (*inputs, body.declare(coefficient))
    x, u = body.add("neuron", inputs, x, layer=name, attributes=neuron, names=(x, u))
    return (Carry(enters=held, leaves=x), *carries), u


def cell_step(body: GraphBuilder, layer: Layer, current: str) -> tuple[tuple[Carry, ...], str]:
    """Append one timestep of the layer's cells; returns what they carry and the name of what they send.

    Carried: their states [rows, columns]; what they sent the network carries.
    """
    cell, name = layer.cell, layer.name
    assert cell is not None
    equations = Equations(body, name, cell, layer.selection, current, layer.spiking)
    if cell.of.recurrent:
        trained = {parameter.role: parameter.name for parameter in layer.acting}
        equations.add_own(trained["recurrent"], trained.get("recurrent_bias", ""))
    return equations.finish()


def reads_own_spikes(layer: Layer) -> bool:
    """Whether the neurons need what they emitted in the previous timestep."""
    if layer.cell is not None:
        return False
    neuron = layer.linear
    return layer.spiking and neuron.resets and neuron.reset_by == "emission"
