"""The training graph of a spiking network: layers that read each other, the input, and optionally themselves.

With a delay of one timestep every layer reads what others emitted one timestep earlier (and the input of this
timestep), so all layers are independent of each other within a timestep. Without a delay the layers run one after
another in every timestep. A layer always reads its own spikes one timestep later, and those of a layer after it at
least one. A source may be read at any ages, each by weights of its own: older spikes are handed from carry to carry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mimdsim.base.errors import MappingError, suggest
from mimdsim.base.shown import Shown
from mimdsim.graph.batch_norm import STATISTICS, BatchNorm, averaging
from mimdsim.graph.convolution import Patches, Planes, Pool, Pooling, Window
from mimdsim.graph.dense import Zeros
from mimdsim.graph.differentiate import differentiate
from mimdsim.graph.dropout import Masks
from mimdsim.graph.elementwise import Line
from mimdsim.graph.layer import Layer, cell_step, reads_own_spikes, step
from mimdsim.graph.learned_constants import Coefficients, SharedRow
from mimdsim.graph.losses import FiringTarget, Loss, Output, add_loss, add_scores
from mimdsim.graph.names import (
    INPUT,
    INPUT_NOW,
    LABELS,
    LEARNING_RATE,
    LOSS,
    ROLES,
    SCORES,
    Parameter,
    after,
    aged,
    before,
    coefficient_of,
    current_now,
    delay_width_of,
    every_of,
    gradient_of,
    keep_of,
    mask_of,
    penalty_of,
    random_name,
    second_threshold_of,
    spikes_of,
    weights_of,
)
from mimdsim.graph.operations import builder
from mimdsim.graph.records import Carry, Graph, GraphBuilder, Scan, Slice, Value
from mimdsim.graph.sample_norm import SampleNorm, of_sample
from mimdsim.graph.sources import ADD, COMPLEMENT, TIMES, Source, labels_of
from mimdsim.graph.spikes import ThresholdSchedule
from mimdsim.graph.training import add_updates
from mimdsim.numerics.optimisers import Optimiser

OF_NORM = ("gain", "bias", *STATISTICS)  # the parameters that a batch norm has
DELAYS = (0, 1)  # timesteps from one layer to the next


@dataclass(frozen=True, kw_only=True)
class SpikingNetwork(Shown):
    """A network with everything needed to train it. spikes: 'sparse' (ids and counts) or 'dense' (0/1 arrays).

    frozen: parameters that stay as they are given; pruned: those of which zeros stay zero. delay: timesteps from one
    layer to the next, 1 or 0. Raises MappingError for any other delay.
    """

    layers: tuple[Layer, ...]
    timesteps: int
    batch: int
    input_capacity: int
    spikes: str
    logit_scale: float
    optimiser: Optimiser
    delay: int = 1
    encoding: str = "events"
    loss: Loss = field(default_factory=Loss)
    threshold_schedule: ThresholdSchedule | None = None
    largest_gradient_norm: float = 0.0  # all gradients together are scaled down to it; 0: not clipped
    frozen: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.encoding != "events" and self.spikes != "dense":
            what = "that is the same in every timestep" if self.steady_input else "of real numbers"
            raise MappingError(
                f'an input {what} is an array: set network.spikes = "dense", or data.encoding = "events"'
            )
        if self.delay not in DELAYS:
            raise MappingError(f"network.delay = {self.delay} must be 0 or 1 timesteps from one layer to the next")
        if not self.trained:
            raise MappingError("training.frozen leaves no parameter to train; take one out")
        for layer in self.layers:
            self._check_sources(layer)
            self._check_planes(layer)
            self._check_cell(layer)
            if layer.dropout and self.spikes != "dense":
                raise MappingError(f"layer '{layer.name}': dropout is of dense spikes: set network.spikes = \"dense\"")
            if layer.dropout and layer.dropout_of == "plane" and None in self.planes_dropped(layer):
                raise MappingError(
                    f"layer '{layer.name}': dropout of planes reads what has none: set network.dropout_of = \"neuron\""
                )
            self._check_norm(layer)
            self._check_pruned(layer)
        self._check_stretches()
        if self.sources(self.layers[0])[0].name != INPUT:
            raise MappingError(f"layer '{self.layers[0].name}', the first, must read '{INPUT}' first")
        leading = {self.layers[-1].name}
        for _ in self.layers:
            leading |= {each.name for layer in self.layers if layer.name in leading for each in self.terms(layer)}
        unread = [layer.name for layer in self.layers if layer.name not in leading]
        if unread:
            raise MappingError(f"no layer that leads to the output reads '{unread[0]}'; name it in network.sources")

    @property
    def steady_input(self) -> bool:
        """Whether the input is the same in every timestep."""
        return self.encoding == "image"

    def _check_sources(self, layer: Layer) -> None:
        widths = {INPUT: self.layers[0].inputs}
        widths |= {one.name: one.neurons for one in self.layers if one.spiking and one is not layer}
        for place, read in enumerate(layer.sources):
            self._check_widths(layer, read, read.neurons if place else layer.inputs, widths)
        for each in (term for read in layer.sources for term in read.terms):
            now = 0 if each.name == INPUT or each.name in self._before(layer) else 1
            if each.lag is not None and not now <= each.lag < max(2, self.timesteps):
                raise MappingError(
                    f"layer '{layer.name}' cannot read '{each.name}' {each.lag} timesteps old: of {self.timesteps} "
                    f"timesteps, layers before it and '{INPUT}' may be 0 to {self.timesteps - 1}, those after it from 1"
                )
            if each.name == INPUT and each.lag and self.steady_input:
                raise MappingError(
                    f"layer '{layer.name}' reads '{aged(INPUT, each.lag)}', of an input that is the same in every "
                    "timestep: leave the age out"
                )
        if layer.delays and self.steady_input and INPUT in {each.name for each in self.terms(layer)}:
            raise MappingError(
                f"layer '{layer.name}': network.delays of an input that is the same in every timestep do nothing: "
                "leave them out"
            )
        oldest = max(each.lag or 0 for each in self.sources(layer))
        if layer.delays and oldest >= self.timesteps:
            raise MappingError(
                f"layer '{layer.name}': network.delays: spikes would be {oldest} timesteps old, of {self.timesteps}: "
                f"at most {layer.delays.ages - 1 - oldest + self.timesteps} ages"
            )
        self._check_ages(layer)
        self._check_combinations(layer)

    def _check_widths(self, layer: Layer, read: Source, rows: int, widths: dict[str, int]) -> None:
        if not read.of and read.name not in widths:
            raise MappingError(
                f"layer '{layer.name}' cannot read '{read.name}'{suggest(read.name, widths)}; it may read "
                f"{', '.join(widths)} (and itself, by network.recurrence)"
            )
        pooled = isinstance(read.by, Pool)
        has = widths[read.name] if not read.of else read.neurons
        if rows != has and (pooled or not read.of):
            raise MappingError(f"layer '{layer.name}' has {rows} inputs from '{read.names}', which has {has}")
        for each in read.of:
            self._check_widths(layer, each, each.neurons if pooled else rows, widths)

    def _check_ages(self, layer: Layer) -> None:
        names = [each.names for each in layer.sources]
        every = (self.sources(layer), *(each.of for each in self._combinations(layer)))
        for ages in ([each.aged for each in read] for read in every):
            if twice := [each for place, each in enumerate(ages) if each in ages[:place]]:
                raise MappingError(
                    f"layer '{layer.name}' reads '{twice[0]}' twice; name each once, or with other ages each"
                )
        unsaid = [
            each.names
            for place, each in enumerate(layer.sources)
            if None in (term.lag for term in each.terms) and each.names in names[:place]
        ]
        if unsaid:
            raise MappingError(
                f"layer '{layer.name}' reads '{unsaid[0]}' at several ages; write that of the second too, as in "
                f"'{aged(unsaid[0], self.delay)}'"
            )

    def _combinations(self, layer: Layer) -> list[Source]:
        """All that a layer reads that is made of the spikes of others."""
        return [part for each in self.sources(layer) for part in each.combinations]

    def _check_combinations(self, layer: Layer) -> None:
        for each in self._combinations(layer):
            said = f"layer '{layer.name}' reads the {each.kind} {each.text(lambda term: term.name)}"
            if self.spikes != "dense":
                instead = ", or name each by itself, with weights of its own" if each.by == ADD else ""
                raise MappingError(f'{said}, which lists of spikes do not hold: set network.spikes = "dense"{instead}')
            planes = {part.names: part.planes(self.planes_of) for part in each.of}
            if len({one if one and one.positions > 1 else None for one in planes.values()}) > 1:
                have = ", ".join(f"'{name}' has {one or 'none'}" for name, one in planes.items())
                raise MappingError(f"{said} of other planes each: {have}")
            if isinstance(each.by, Pool) and None in planes.values():
                raise MappingError(f"{said} of what has no planes")

    def _check_cell(self, layer: Layer) -> None:
        if layer.cell is None:
            return
        what = ""
        if self.spikes != "dense":
            what = 'cells send numbers, not lists of spikes: set network.spikes = "dense"'
        elif layer is self.layers[-1] and layer.spiking and not layer.cell.of.spiking:
            what = 'the outputs of the last layer are no spikes: set network.output = "membrane"'
        elif self.loss.firing_strength and layer is not self.layers[-1] and not layer.cell.of.spiking:
            what = "its outputs are no spikes whose share could be penalised: leave training.firing_strength out"
        if what:
            raise MappingError(f"layer '{layer.name}' of cells '{layer.cell.model}': {what}")

    def _check_pruned(self, layer: Layer) -> None:
        for each in layer.derived:
            function, own = each.about, each.of[0]
            if each.kind == "weight_function" and own.name in self.pruned and not function.about.keeps_zeros:
                raise MappingError(
                    f"training.pruned: '{own.public}' is a parameter of which weights are made by {function.function}, "
                    "which makes others of zeros: leave it out, or set network.weight_functions to abs or relu"
                )

    def _check_norm(self, layer: Layer) -> None:
        if layer.norm is None:
            return
        if self.spikes != "dense":
            raise MappingError(f"layer '{layer.name}': batch norm is of all currents: set network.spikes = \"dense\"")
        if layer.gates > 1:
            raise MappingError(f"layer '{layer.name}': cells with gates have no batch norm: leave it out")
        rows = self.timesteps if layer.norm.per == "each_timestep" else 1
        if layer.norm.rows != rows:
            raise MappingError(f"layer '{layer.name}': batch norm has {layer.norm.rows} rows; {rows} are needed")
        if layer.columns % layer.norm.groups:
            raise MappingError(
                f"layer '{layer.name}': network.batch_norm_groups = {layer.norm.groups} do not divide its "
                f"{layer.columns} columns evenly"
            )
        if self.values_normalised(layer) < 2 and not layer.norm.averages:
            raise MappingError(
                f"layer '{layer.name}': a norm of one value has no variance: lower network.batch_norm_groups"
            )
        if self.values_normalised(layer) < 2 and not layer.norm.fixed:
            raise MappingError(f"layer '{layer.name}': batch norm of one value has no variance: raise training.batch")

    def _check_stretches(self) -> None:
        """Raise MappingError where a layer reads another across a batch norm of the whole sequence, but for spikes of
        the same timestep of a layer before it."""
        for number, layers in enumerate(self.stretches):
            known = {INPUT, *(each.name for each in layers)}
            for layer in self.weighted(number):
                across = [each for each in self.terms(layer) if each.name not in known]
                others = [each.aged for each in across if each.lag or each.name not in self._before(layers[0])]
                if others:
                    raise MappingError(
                        f"layer '{layer.name}' reads '{others[0]}' across a batch norm of the whole sequence, which "
                        "needs all timesteps of the layers before it first: let it read spikes of layers before it, of "
                        'the same timestep ("hidden0@t"), or set network.batch_norm = "timestep"'
                    )

    @property
    def stretches(self) -> tuple[tuple[Layer, ...], ...]:
        """Layers that run side by side, timestep by timestep. The current of the first of every stretch but one is
        known for all timesteps before: it is normalised by the statistics of the whole sequence."""
        found: list[list[Layer]] = [[]]
        for layer in self.layers:
            if layer.norm and layer.norm.at_once:
                found.append([])
            found[-1].append(layer)
        return tuple(map(tuple, found))

    def weighted(self, stretch: int) -> tuple[Layer, ...]:
        """The layers whose currents are made by weights in a stretch, that of the next, before its norm, among them."""
        following = self.stretches[stretch + 1 : stretch + 2]
        return (*self.stretches[stretch][bool(stretch) :], *(each[0] for each in following))

    def read_later(self, stretch: int) -> tuple[str, ...]:
        """The layers of a stretch that are read in later ones."""
        later = range(stretch + 1, len(self.stretches))
        read = {term.name for number in later for layer in self.weighted(number) for term in self.terms(layer)}
        return tuple(each.name for each in self.stretches[stretch] if each.name in read)

    def values_normalised(self, layer: Layer) -> int:
        """How many values of a column have a mean and a variance in common."""
        places = layer.convolution.made.positions if layer.convolution else 1
        if layer.norm and not layer.norm.averages:
            return self.sample_norm(layer, layer.norm).values(layer.columns)
        timesteps = self.timesteps if layer.norm and layer.norm.per == "sequence" else 1
        return self.batch * places * timesteps

    def planes_dropped(self, layer: Layer) -> list[Planes | None]:
        """What dropout leaves planes of, source by source."""
        if layer.convolution:
            return [layer.convolution.read]
        return [each.planes(self.planes_of) for each in self.sources(layer)]

    def sample_norm(self, layer: Layer, norm: BatchNorm) -> SampleNorm:
        places = layer.convolution.made.positions if layer.convolution else 1
        return of_sample(norm, places)

    def _check_planes(self, layer: Layer) -> None:
        convolution = layer.convolution
        if convolution is None:
            return
        if self.spikes != "dense":
            raise MappingError(f"layer '{layer.name}', a convolution, has dense spikes: set network.spikes = \"dense\"")
        if layer is self.layers[-1] and layer.positions > 1:
            raise MappingError(
                f"layer '{layer.name}', the last, makes planes of {convolution.result}; let a layer without a "
                "convolution read them"
            )
        for source in self.sources(layer):
            given = source.planes(self.planes_of)
            if source.name != INPUT and given != convolution.planes:
                raise MappingError(
                    f"layer '{layer.name}' reads planes of {convolution.planes} from '{source.names}', which has "
                    f"{given or 'no planes'}"
                )

    def planes_of(self, name: str) -> Planes | None:
        """What a layer with a convolution makes."""
        layer = next((one for one in self.layers if one.name == name), None)
        return layer.convolution.result if layer and layer.convolution else None

    def _before(self, layer: Layer) -> list[str]:
        names = [each.name for each in self.layers]
        return names[: names.index(layer.name)]

    def sources(self, layer: Layer) -> tuple[Source, ...]:
        """What a layer reads, in the order of its weights, with the ages of the spikes."""
        before = self._before(layer)
        every = layer.sources or (Source(name=[INPUT, *before][-1], neurons=layer.inputs),)
        lags = {INPUT: 0} | dict.fromkeys(before, self.delay)

        def dated(each: Source) -> Source:
            return replace(each, lag=lags.get(each.name, 1)) if each.lag is None else each

        dates = (each.mapped(dated) for each in every)
        if layer.delays is None:
            return tuple(dates)
        return tuple(replace(each, lag=(each.lag or 0) + age) for each in dates for age in range(layer.delays.ages))

    def terms(self, layer: Layer) -> tuple[Source, ...]:
        """Whatever a layer reads, by itself or in a sum."""
        return tuple(term for each in self.sources(layer) for term in each.terms)

    @property
    def scheduled(self) -> dict[str, float]:
        """Graph inputs that are scalars the host writes before every training step, with the value each tends to."""
        rate = {LEARNING_RATE: self.optimiser.learning_rate} if self.optimiser.scheduled else {}
        return self.moving_thresholds | self.kept_shares | self.delay_widths | rate

    @property
    def delay_widths(self) -> dict[str, float]:
        """Graph inputs that hold how far weights reach around delays that are learned, with what each tends to."""
        return {delay_width_of(layer.name): layer.delays.final_width for layer in self.layers if layer.delays}

    @property
    def without_learning(self) -> dict[str, float]:
        """What scheduled inputs are where nothing is learned: nothing is dropped, delays are rounded."""
        return dict.fromkeys(self.kept_shares, 1.0) | dict.fromkeys(self.delay_widths, 0.0)

    @property
    def kept_shares(self) -> dict[str, float]:
        """Graph inputs that hold the share that dropout keeps, with it."""
        return {keep_of(layer.name): 1 - layer.dropout for layer in self.layers if layer.dropout}

    @property
    def moving_thresholds(self) -> dict[str, float]:
        """Graph inputs that hold second thresholds that are scheduled, with the value each tends to."""
        moving = self.threshold_schedule
        layers = () if moving is None else self.layers if moving.output else self.layers[:-1]
        return {second_threshold_of(layer.name): layer.selection.second_threshold for layer in layers}

    @property
    def inputs(self) -> int:
        return self.layers[0].inputs

    @property
    def classes(self) -> int:
        return self.layers[-1].neurons // self.loss.neurons_per_class

    @property
    def penalties(self) -> tuple[str, ...]:
        """Terms of the loss besides 'loss': one per hidden layer whose firing is penalised."""
        return tuple(penalty_of(layer.name) for layer in self.layers[:-1]) if self.loss.firing_strength else ()

    @property
    def title(self) -> str:
        """'2312-1466-1466-10'"""
        return "-".join(str(width) for width in (self.inputs, *(layer.neurons for layer in self.layers)))

    @property
    def summary(self) -> str:
        """The title, with what is not as in a chain of layers of published neurons that send lists: '30-24-6 (leaky,
        batch norm, dense spikes)'."""
        written = "neurons that are written out"  # named after their layers
        names = (layer.neuron.model for layer in self.layers)
        models = [*dict.fromkeys(written if name.startswith("neuron_of_") else name for name in names)]
        said = {
            ", ".join(models): models != ["lif"],
            "convolutions": any(layer.convolution for layer in self.layers),
            "recurrent": any(layer.recurs for layer in self.layers),
            "batch norm": any(layer.norm and layer.norm.averages for layer in self.layers),
            "norms of samples": any(layer.norm and not layer.norm.averages for layer in self.layers),
            "dropout": any(layer.dropout for layer in self.layers),
            "learned delays": any(layer.delays for layer in self.layers),
            "functions of weights": any(layer.weight_functions for layer in self.layers),
            "dense spikes": self.spikes == "dense",
            "input of numbers": self.encoding != "events",
        }
        found = ", ".join(text for text, holds in said.items() if holds and text)
        return f"{self.title} ({found})" if found else self.title

    @property
    def parameters(self) -> dict[str, Parameter]:
        """All parameters by name, the weights of all layers first; running averages among them."""
        every = (parameter for layer in self.layers for parameter in layer.parameters)
        return {each.name: each for each in sorted(every, key=lambda each: [*ROLES, each.role].index(each.role))}

    @property
    def trained(self) -> dict[str, Parameter]:
        """The parameters that are not frozen."""
        return {name: each for name, each in self.parameters.items() if each.trained and name not in self.frozen}

    @property
    def averages(self) -> dict[str, Parameter]:
        """The running averages of batch norms, which a training step moves on."""
        return {name: each for name, each in self.parameters.items() if not each.trained}

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """The shapes of all parameters, by name."""
        return {name: parameter.shape for name, parameter in self.parameters.items()}

    def most_spikes(self, layer: Layer) -> int:
        """How many neurons of a layer can spike in one timestep for one sample."""
        return layer.capacity if self.spikes == "sparse" else layer.neurons

    @property
    def input_ages(self) -> tuple[int, ...]:
        """How many timesteps old the input is where layers read it."""
        every = (each for layer in self.layers for each in self.terms(layer))
        return tuple(sorted({each.lag or 0 for each in every if each.name == INPUT}))

    @property
    def oldest_age(self) -> int:
        """How many timesteps old the oldest spikes are that a layer reads."""
        return max(each.lag or 0 for layer in self.layers for each in self.terms(layer))

    def oldest(self, index: int) -> int:
        """How many timesteps the layer's spikes are needed for: by others, or itself."""
        name = self.layers[index].name
        every = (each for layer in self.layers for each in self.terms(layer))
        return max([int(self.is_read(index)), *(each.lag or 0 for each in every if each.name == name)])

    def is_read(self, index: int) -> bool:
        """Whether the layer's spikes are needed a timestep later: by another layer or by itself."""
        return self.learns_through(index) or reads_own_spikes(self.layers[index])

    def learns_through(self, index: int) -> bool:
        """Whether a gradient reaches the layer's spikes from the timestep after."""
        name = self.layers[index].name
        follows = any(each.name == name and each.lag for layer in self.layers for each in self.terms(layer))
        return follows or self.layers[index].gives_itself_gradients


def training_graph(network: SpikingNetwork) -> Graph:
    """Forward scan, loss, backward scan and update of one training step.

    Inputs: 'input' (spikes [timesteps, batch, inputs]), 'labels' [batch], 'training_step', the network's parameters,
    with Adam 'moment1.<layer>', 'moment2.<layer>' for weights and 'moment1.r.<layer>' etc. for others (with momentum
    'momentum.<layer>'), the inputs in `network.scheduled`, and 'random.<layer>' [batch] where truncation is random or
    the layer has dropout. Outputs: 'loss', 'counts' [batch, classes], 'gradient.<parameter>' (clipped where a largest
    norm is given), 'next.<parameter>' (and moments), 'penalty.<layer>' for layers whose firing is penalised, and
    'next.mean.<layer>', 'next.variance.<layer>' of those with batch norm, whose running averages are inputs.
    """
    graph = forward_graph(network)
    graph, found = differentiate(graph, LOSS, tuple(network.trained), terms=network.penalties)
    build = builder("update")
    build.begin_with(graph)
    by_parameter = {parameter: found[name] for name, parameter in network.trained.items()}
    updates = add_updates(build, network.optimiser, network.largest_gradient_norm, by_parameter, network.pruned)
    left = _averages_left(graph, network)
    graph = build.graph((LOSS, SCORES, *updates, *network.penalties, *left))
    gradients = {old: gradient_of(name) for old, name in zip(updates, network.trained, strict=False)}
    return graph.renamed(gradients | left)


def _averages_left(graph: Graph, network: SpikingNetwork) -> dict[str, str]:
    """Values that are running averages -> how they are named in the end."""
    scans = graph.scans("forward")
    made = (pair for op in scans for pair in zip(op.outputs, op.attributes.carries, strict=False))
    left = {outer: after(carry.enters) for outer, carry in made if carry.enters in network.averages}
    return left | {name: name for name in map(after, network.averages) if name in graph.values}


def forward_graph(network: SpikingNetwork) -> Graph:
    """The forward scan and the loss."""
    build, output, others = _over_time(network, learns=True)
    build.phase = "loss"
    add_loss(build, network.loss, output, network.logit_scale)
    for layer, spikes in zip(network.layers, others if network.penalties else (), strict=False):
        wanted = FiringTarget(
            target=network.loss.firing_target, strength=network.loss.firing_strength, neurons=layer.neurons
        )
        build.one("firing_penalty", (spikes,), penalty_of(layer.name), layer=layer.name, attributes=wanted)
    return build.graph((LOSS, SCORES, *network.penalties))


def inference_graph(network: SpikingNetwork) -> Graph:
    """The forward scan and what is read from the output, without all that only gradients need.

    Inputs: 'input', the parameters, and 'random.<layer>' where truncation is random. Output: 'counts' [batch, classes].
    Lists hold spikes only: `network` must be one of `inference_network`.
    """
    build, output, _ = _over_time(network)
    add_scores(build, network.loss, output)
    return build.graph((SCORES,))


def inference_network(network: SpikingNetwork, batch: int) -> SpikingNetwork:
    """The same network for samples in batches of `batch` that it does not learn from: no entries for gradients in its
    lists, no thresholds that move while it learns, no dropout, no batch norm but what `batch_norm.folded` makes of the
    weights, no penalty on how often it fires."""
    layers = tuple(
        replace(
            layer,
            selection=replace(layer.selection, second_threshold=layer.selection.threshold),
            dropout=0.0,
            bias=layer.bias or bool(layer.norm and layer.norm.averages),
            norm=_evaluated(layer.norm),
        )
        for layer in network.layers
    )
    loss = replace(network.loss, firing_strength=0.0)
    return replace(network, layers=layers, batch=batch, threshold_schedule=None, loss=loss, frozen=(), pruned=())


def _evaluated(norm: BatchNorm | None) -> BatchNorm | None:
    """What is left of a norm where nothing is learned: nothing of one that folds into weights."""
    if norm is None or not norm.averages:
        return norm
    return replace(norm, fixed=True) if norm.rows > 1 else None


def _forward_scan(network: SpikingNetwork, stretch: int) -> Scan:
    """The layers of a stretch over the timesteps; stacked are the outputs of the last, or the current that is
    normalised before the next stretch, and the spikes of others that a loss reads.

    Raises MappingError for a layer that cannot be read by its potential.
    """
    for layer in network.layers:
        if not layer.spiking and (layer is not network.layers[-1] or layer.recurrence != "none"):
            raise MappingError(
                f"layer '{layer.name}': only the last layer may be read by its membrane potential, and only if it has "
                "no synapses onto itself: leave spiking = true"
            )
    body = builder("forward")
    layers, following = network.stretches[stretch], network.stretches[stretch + 1 :]
    _declare(body, network, stretch)
    carries: list[Carry] = []
    emitted: list[str] = []
    for number, layer in enumerate(layers):
        current = current_now(layer.name) if stretch and not number else _products(body, network, layer)
        averaged, current = _current(body, network, layer, current)
        carried, sent = (cell_step if layer.cell else step)(body, layer, current)
        carries += (*carried, *averaged)
        if layer.spiking and not layer.cell:
            drawn, sent = _emit(body, network, layer, sent)
            carries += drawn
        emitted.append(sent)
    for layer, spikes in zip(layers, emitted, strict=True):
        if network.is_read(index := network.layers.index(layer)):
            detached = not network.learns_through(index)
            carries.append(Carry(enters=before(spikes), leaves=spikes, detached=detached))
    # of a layer whose spikes no gradient reads, they are kept to be counted
    for layer in layers:
        spikes, oldest = spikes_of(layer.name), network.oldest(network.layers.index(layer))
        carries += (Carry(enters=before(spikes, age + 1), leaves=before(spikes, age)) for age in range(1, oldest))
    counted = emitted if network.loss.firing_strength or network.frozen else []
    handed = _products(body, network, following[0][0]) if following else emitted[-1]
    counted = [name for name in counted if name != handed]
    later = [name for name in map(spikes_of, network.read_later(stretch)) if name not in counted]
    return _scan_of(body, network, carries, (handed, *counted, *later))


def _declare(body: GraphBuilder, network: SpikingNetwork, stretch: int) -> None:
    """What enters a timestep of a stretch."""
    layers = network.stretches[stretch]
    body.elsewhere |= {own.name for layer in network.layers for each in layer.derived for own in each.of}
    weighted = network.weighted(stretch)
    terms = [each for layer in weighted for each in network.terms(layer)]
    read = {each.lag for each in terms if each.name == INPUT}
    for age in network.input_ages:
        if age in read:
            body.declare(replace(_input(network, before(INPUT_NOW, age)), shift=-age))
    if stretch:
        layer = layers[0]
        made = layer.convolution.made if layer.convolution else None
        shape = (network.batch * made.positions, made.channels) if made else (network.batch, layer.neurons)
        body.declare(Value(name=current_now(layer.name), shape=shape, layer=layer.name))
    for layer in layers:
        if (name := second_threshold_of(layer.name)) in network.moving_thresholds:
            body.declare(Value(name=name, shape=(), layer=layer.name))
    for layer in weighted:
        body.declare(layer.matrices[0].value)
    here = {layer.name for layer in (*layers, *weighted)}
    outside = {(each[0].name, role) for each in network.stretches[1:] for role in OF_NORM}
    for name, parameter in _in_timesteps(network).items():
        known = name in body.values or parameter.constant or (parameter.layer, parameter.role) in outside
        if parameter.layer in here and not known:
            body.declare(parameter.value)
    for layer in (each for every in network.stretches[:stretch] for each in every):
        if layer.name in {each.name for each in terms}:
            body.declare(_spikes(network, spikes_of(layer.name), layer))
    for layer in layers:
        for age in range(1, network.oldest(network.layers.index(layer)) + 1):
            body.declare(replace(_spikes(network, before(spikes_of(layer.name), age), layer), shift=-age))


def _in_timesteps(network: SpikingNetwork) -> dict[str, Parameter]:
    """What layers work with in a timestep: parameters, but matrices in place of those that they follow from."""
    every = {each: derived.makes for layer in network.layers for derived in layer.derived for each in derived.of}
    acting = (each for own in network.parameters.values() for each in every.get(own, (own,)))
    return {each.name: each for each in acting}


def _scan_of(body: GraphBuilder, network: SpikingNetwork, carries: list[Carry], stacked: tuple[str, ...]) -> Scan:
    """The scan of a body, whose sequences and constants are what it reads."""
    read = {name for op in body.operations for name in op.inputs}
    masks = {each: of_layer.dropout_per for of_layer, each in _masks_of(network) if each in read}
    ages = {before(INPUT_NOW, age): -age for age in network.input_ages}
    entering = [current_now(layers[0].name) for layers in network.stretches[1:]]
    entering += [name for each in network.layers if (name := spikes_of(each.name)) in body.inputs]
    sequences = [name for name in (*ages, *entering) if name in read]
    sequences += [name for name, per in masks.items() if per == "timestep"]
    for_sequence = (name for name, per in masks.items() if per == "sequence")
    whole = len(network.stretches) == 1
    given = _in_timesteps(network).items()
    every = (name for name, each in given if each.trained and not each.constant)
    parameters = (name for name in every if whole or name in read)
    coefficients = (name for layer in network.layers for name in _coefficients_of(layer) if name in read)
    thresholds = (name for name in network.moving_thresholds if name in body.values)
    if not whole:
        body.inputs = [name for name in body.inputs if name in read]
    return Scan(
        body=body.graph(tuple(carry.leaves for carry in carries)),
        timesteps=network.timesteps,
        reverse=False,
        carries=tuple(carries),
        slices=tuple(Slice(inside=name, shift=ages.get(name, 0)) for name in sequences),
        constants=(*thresholds, *for_sequence, *parameters, *coefficients),
        stacked=stacked,
    )


def _spikes(network: SpikingNetwork, name: str, layer: Layer) -> Value:
    """Spikes of a layer in one timestep in the network's form."""
    sparse = network.spikes == "sparse"
    return Value(
        name=name,
        shape=(network.batch * layer.positions, layer.columns),
        form="sparse" if sparse else "array",
        capacity=layer.capacity if sparse else 0,
        role="spikes",
        layer=layer.name,
    )


def _input(network: SpikingNetwork, name: str) -> Value:
    """Spikes of the input in one timestep."""
    sparse = network.spikes == "sparse"
    capacity = network.input_capacity if sparse else 0
    shape, form = (network.batch, network.inputs), "sparse" if sparse else "array"
    return Value(name=name, shape=shape, form=form, capacity=capacity, role="spikes", layer=INPUT)


def _read(body: GraphBuilder, network: SpikingNetwork, layer: Layer, read: Source, source: str) -> str:
    """What a layer multiplies by its weights: the spikes of a source, or patches of its planes. source: its label."""
    convolution, by_channel = layer.convolution, read.name == INPUT
    spikes = _spikes_read(body, network, layer, read)
    if convolution is None:
        planes = read.planes(network.planes_of)
        spikes = _drop(body, layer, read.names if layer.delays else source, spikes)
        if planes is None or planes.positions == 1:
            return spikes
        patches = Patches(planes=planes, window=Window.whole(planes))
        return body.one("unfold", (spikes,), f"flat.{source}.{layer.name}", layer=layer.name, attributes=patches)
    planes = convolution.planes
    if convolution.before:
        spikes = _pool(body, layer, convolution.before, planes, spikes, f"pooled.{source}.{layer.name}", by_channel)
        planes, by_channel = convolution.read, False
    spikes = _drop(body, layer, source, spikes)
    patches = Patches(planes=planes, window=convolution.window, by_channel=by_channel)
    return body.one("unfold", (spikes,), f"patches.{layer.name}", layer=layer.name, attributes=patches)


def _spikes_read(body: GraphBuilder, network: SpikingNetwork, layer: Layer, read: Source) -> str:
    """The spikes of a source, or what is made of several; what begins alike is made once in a timestep."""
    if not read.of:
        return before(INPUT_NOW if read.name == INPUT else spikes_of(read.name), read.lag or 0)

    def once(name: str, kind: str, inputs: tuple[str, ...], attributes: object = None) -> str:
        return name if name in body.values else body.one(kind, inputs, name, layer=layer.name, attributes=attributes)

    total, *others = (_spikes_read(body, network, layer, each) for each in read.of)
    if isinstance(read.by, Pool):
        planes = read.of[0].planes(network.planes_of)
        assert planes
        pooling = Pooling(planes=planes, window=read.by.window, kind=read.by.kind)
        return once(replace(read, of=(Source(name=total),)).names, "pool", (total,), pooling)
    if read.by == COMPLEMENT:
        return once(f"(1-{total})", "affine", (total,), Line(scale=-1.0, shift=1.0))
    name = f"({total})" if read.of[0].of else total
    for part, each in zip(read.of[1:], others, strict=True):
        sign, kind = (ADD, "add") if read.by == ADD else (TIMES, "times")
        name = f"{name}{sign}{f'({each})' if part.of else each}"
        total = once(name, kind, (total, each))
    return total


def _drop(body: GraphBuilder, layer: Layer, source: str, spikes: str) -> str:
    """What dropout keeps of what a layer reads."""
    if not layer.dropout:
        return spikes
    mask = mask_of(layer.name, source)
    if mask not in body.values:
        body.declare(Value(name=mask, shape=body.values[spikes].shape, layer=layer.name))
    return body.one("drop", (spikes, mask), f"kept.{source}.{layer.name}", layer=layer.name)


def _masks_of(network: SpikingNetwork) -> Iterator[tuple[Layer, str]]:
    """Of every layer with dropout, the masks of its sources: one for all ages of delays that are learned."""
    for layer in network.layers:
        labels = labels_of(network.sources(layer)) if layer.dropout else ()
        for source in labels[:1] if layer.delays else labels:
            yield layer, mask_of(layer.name, source)


def _pool(
    body: GraphBuilder, layer: Layer, pool: Pool, planes: Planes, given: str, name: str, by_channel: bool = False
) -> str:
    pooling = Pooling(planes=planes, window=pool.window, by_channel=by_channel, kind=pool.kind)
    return body.one("pool", (given,), name, layer=layer.name, attributes=pooling)


def _normalised(
    body: GraphBuilder, network: SpikingNetwork, layer: Layer, current: str
) -> tuple[tuple[Carry, ...], str]:
    """The current after the batch norm, of a timestep or of all, and how the running averages are carried."""
    name, trained = layer.name, {parameter.role: parameter.name for parameter in layer.parameters}
    assert layer.norm
    if not layer.norm.averages:
        about = network.sample_norm(layer, layer.norm)
        if layer.bias:
            current = body.one("bias_add", (current, trained["bias"]), f"current.{name}.biased", layer=name)
        made, _ = body.add("standardise", (current,), f"current.{name}.standard", layer=name, attributes=about)
        made = body.one("self_synapse", (made, trained["gain"]), f"current.{name}.scaled", layer=name)
        return (), body.one("bias_add", (made, trained["shift"]), f"current.{name}.normalised", layer=name)
    if layer.norm.fixed:
        given = (current, *(trained[role] for role in OF_NORM))
        made = body.one("batch_norm_fixed", given, f"current.{name}.normalised", layer=name, attributes=layer.norm)
        return (), made
    names = f"current.{name}.normalised", *(f"{role}.{name}.now" for role in STATISTICS)
    inputs = current, trained["gain"], trained["bias"]
    made, *statistics = body.add("batch_norm", inputs, names[0], layer=name, attributes=layer.norm, names=names)
    carries = []
    for role, now in zip(STATISTICS, statistics, strict=True):
        how, held = averaging(layer.norm, role, network.values_normalised(layer)), trained[role]
        moved = body.one("running_average", (held, now), after(held), layer=name, attributes=how)
        carries.append(Carry(enters=held, leaves=moved, detached=True))
    return tuple(carries), made


def _products(body: GraphBuilder, network: SpikingNetwork, layer: Layer) -> str:
    """What a layer's weights make of what it reads, added up."""
    read = network.sources(layer)
    sources = [_read(body, network, layer, *each) for each in zip(read, labels_of(read), strict=True)]
    product = "synapse" if body.values[sources[0]].form == "sparse" else "matmul"
    groups, current = layer.convolution.groups if layer.convolution else None, ""
    for source, weights in zip(sources, layer.matrices, strict=True):
        name = f"current.{weights.short}"
        more = body.one(product, (source, weights.name), name, layer=layer.name, attributes=groups)
        current = (
            body.one("add", (current, more), f"current.{weights.short}.sum", layer=layer.name) if current else more
        )
    return current


def _current(body: GraphBuilder, network: SpikingNetwork, layer: Layer, current: str) -> tuple[tuple[Carry, ...], str]:
    """The current into the layer's neurons: from what it reads, from its spikes of the previous timestep, and its bias;
    and what its batch norm carries."""
    name, trained = layer.name, {parameter.role: parameter.name for parameter in layer.acting}
    product = "matmul" if network.spikes == "dense" else "synapse"
    carries: tuple[Carry, ...] = ()
    if layer.norm and not layer.norm.at_once:
        carries, current = _normalised(body, network, layer, current)
    if layer.recurrence != "none":
        kind = product if layer.recurrence == "all_to_all" else "self_synapse"
        own = body.one(kind, (before(spikes_of(name)), trained["recurrent"]), f"recurrent.{name}", layer=name)
        current = body.one("add", (current, own), f"current.{name}.sum", layer=name)
    if layer.bias and not layer.norm:
        current = body.one("bias_add", (current, trained["bias"]), f"current.{name}.biased", layer=name)
    if layer.convolution and layer.convolution.after:
        made = layer.convolution.made
        current = _pool(body, layer, layer.convolution.after, made, current, f"current.{name}.pooled")
    return carries, current


def _emit(body: GraphBuilder, network: SpikingNetwork, layer: Layer, u: str) -> tuple[tuple[Carry, ...], str]:
    """Spikes from the potentials `u`, and the generator that is carried if truncation is random."""
    name = layer.name
    second = second_threshold_of(name)
    inputs: tuple[str, ...] = (u, second) if second in network.moving_thresholds else (u,)
    if network.spikes == "dense":
        return (), body.one("spike", inputs, spikes_of(name), layer=name, attributes=layer.selection)
    carries: tuple[Carry, ...] = ()
    if layer.selection.truncation == "random":
        given = Value(name=before(random_name(name)), shape=(network.batch,), role="generator", layer=name, shift=-1)
        state = body.one("next_random", (body.declare(given),), random_name(name), layer=name)
        carries = (Carry(enters=given.name, leaves=state, detached=True),)
        inputs = (*inputs, state)
    return carries, body.one("select_spikes", inputs, spikes_of(name), layer=name, attributes=layer.selection)


def _add_masks(build: GraphBuilder, network: SpikingNetwork, scan: Scan) -> dict[str, str]:
    """Masks of one timestep, by their names in the scan, or of all."""
    numbers: Counter[str] = Counter()
    made = {}
    for layer, mask in _masks_of(network):
        if mask not in scan.body.values:
            continue
        name, keep = random_name(layer.name), keep_of(layer.name)
        if name not in build.values:
            build.declare(Value(name=name, shape=(network.batch,), role="generator", layer=layer.name))
            build.declare(Value(name=keep, shape=()))
        rows, columns = scan.body.value(mask).shape
        planes = network.planes_dropped(layer)[numbers[layer.name]] if layer.dropout_of == "plane" else None
        about = Masks(
            rows=rows,
            columns=columns,
            positions=rows // network.batch,
            timesteps=network.timesteps if layer.dropout_per == "timestep" else 0,
            source=numbers[layer.name],
            pixels=columns // planes.channels if planes else 0,
        )
        numbers[layer.name] += 1
        every = f"{mask}.every" if about.timesteps else mask
        made[mask] = build.one("dropout_masks", (name, keep), every, layer=layer.name, attributes=about)
    return made


def _coefficients_of(layer: Layer) -> tuple[str, ...]:
    if layer.cell:
        return tuple(every_of(layer.name, row) for row in layer.cell.of.shared)
    return tuple(
        coefficient_of(layer.name, row) for row in range(len(layer.acting_neuron.rows) if layer.learned else 0)
    )


def _add_derived(build: GraphBuilder, network: SpikingNetwork, scan: Scan) -> None:
    """What is made of parameters before the timesteps."""
    for layer in network.layers:
        for each in layer.derived:
            names = tuple(made.name for made in each.makes)
            if names[0] not in scan.constants:
                continue
            held = [build.declare(own.value) for own in each.of]
            held += [build.declare(Value(name=name, shape=(), layer=layer.name)) for name in each.scheduled]
            build.add(each.kind, tuple(held), each.name, layer=layer.name, attributes=each.about, names=names)


def _add_coefficients(build: GraphBuilder, network: SpikingNetwork, scan: Scan) -> None:
    """What follows from the constants that are learned, before the timesteps."""
    for layer in network.layers:
        names = _coefficients_of(layer)
        if layer.cell:
            for learned, name in zip(layer.learned, names, strict=True):
                if name in scan.constants:
                    (constant,) = (each for each in layer.parameters if each.constant == learned.name)
                    held = build.declare(constant.value)
                    shared = SharedRow(model=layer.cell.model, learned=(learned,), neurons=layer.columns)
                    build.add("coefficients", (held,), name, layer=layer.name, attributes=shared, names=(name,))
        elif names and names[0] in scan.constants:
            about = Coefficients(neuron=layer.acting_neuron, neurons=layer.columns)
            constants = tuple(build.declare(each.value) for each in layer.parameters if each.constant)
            name = f"coefficients.{layer.name}"
            build.add("coefficients", constants, name, layer=layer.name, attributes=about, names=names)


def _over_time(network: SpikingNetwork, learns: bool = False) -> tuple[GraphBuilder, Output, tuple[str, ...]]:
    """A graph that runs the scans over the network's input: the stack of the last layer's outputs, and those of others.

    learns: declare the labels, between the input and the parameters."""
    build = builder("forward")
    now = _input(network, INPUT)
    every = () if network.steady_input else (network.timesteps,)
    source = build.declare(replace(now, shape=(*every, *now.shape)))
    if network.steady_input:
        source = build.one("steady", (source,), "input.every", attributes=network.timesteps)
    if learns:
        build.declare(Value(name=LABELS, shape=(network.batch,)))
    sequences, others = {before(INPUT_NOW, age): source for age in network.input_ages}, []
    for stretch in range(len(network.stretches)):
        scan = _forward_scan(network, stretch)
        first, *more = _add_scan(build, network, scan, sequences)
        sequences |= dict(zip(scan.stacked[1:], more, strict=True))
        others += more
        for layers in network.stretches[stretch + 1 : stretch + 2]:
            for each in layers[0].parameters:
                if each.role in OF_NORM:
                    build.declare(each.value)
            _, sequences[current_now(layers[0].name)] = _normalised(build, network, layers[0], first)
    last = network.layers[-1]
    output = Output(
        name=first, layer=last.name, neurons=last.neurons, timesteps=network.timesteps, spiking=last.spiking
    )
    return build, output, tuple(others)


def _add_scan(build: GraphBuilder, network: SpikingNetwork, scan: Scan, sequences: dict[str, str]) -> tuple[str, ...]:
    """Append a scan, whose sequences are known by what they are in its body; returns what it stacks."""
    made = _add_masks(build, network, scan)
    follow = {name for layer in network.layers for name in _coefficients_of(layer)}
    follow |= {made.name for layer in network.layers for each in layer.derived for made in each.makes}
    for constant in scan.constants:
        if constant not in made and constant not in follow:
            build.declare(scan.body.value(constant))
    _add_coefficients(build, network, scan)
    _add_derived(build, network, scan)
    starts = []
    reference = weights_of(network.layers[0].name)
    for carry in scan.carries:
        inside = scan.body.value(carry.enters)
        if inside.role == "generator":
            starts.append(build.declare(replace(inside, name=carry.leaves, shift=0)))
            continue
        if inside.role in STATISTICS:
            starts.append(build.declare(inside))
            continue
        zeros = Zeros(shape=inside.shape, form=inside.form, capacity=inside.capacity)
        starts.append(build.one("zeros", (reference,), f"{carry.leaves}.start", attributes=zeros))
    given = (sequences.get(item.inside) or made[item.inside] for item in scan.slices)
    constants = (made.get(name, name) for name in scan.constants)
    outputs = build.add("scan", (*starts, *given, *constants), "time", attributes=scan)
    return outputs[len(scan.carries) :]
