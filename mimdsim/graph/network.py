"""A spiking network: layers that read each other, the input, and optionally themselves.

With a delay of one timestep every layer reads what others emitted one timestep earlier (and the input of this
timestep), so all layers are independent of each other within a timestep. Without a delay the layers run one after
another in every timestep. A layer always reads its own spikes one timestep later, and those of a layer after it at
least one. A source may be read at any ages, each by weights of its own: older spikes are handed from carry to carry.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mimdsim.base.errors import MappingError, suggest
from mimdsim.base.shown import Shown
from mimdsim.graph.convolution import Planes
from mimdsim.graph.layer import Layer, reads_own_spikes
from mimdsim.graph.losses import Loss
from mimdsim.graph.names import (
    INPUT,
    LEARNING_RATE,
    ROLES,
    Parameter,
    aged,
    delay_width_of,
    keep_of,
    penalty_of,
    second_threshold_of,
)
from mimdsim.graph.norms import BatchNorm, SampleNorm, of_sample
from mimdsim.graph.sources import ADD, CONCAT, Source
from mimdsim.graph.spikes import ThresholdSchedule
from mimdsim.graph.synapses import HeadProduct
from mimdsim.numerics.optimisers import Optimiser

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
        apart = read.of_planes or read.by == CONCAT
        has = widths[read.name] if not read.of else read.neurons
        if rows != has and (apart or not read.of):
            raise MappingError(f"layer '{layer.name}' has {rows} inputs from '{read.names}', which has {has}")
        for each in read.of:
            self._check_widths(layer, each, each.neurons if apart else rows, widths)

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
            if each.of_planes and None in planes.values():
                raise MappingError(f"{said} of what has no planes")
            if isinstance(each.by, HeadProduct):
                continue  # which need not be alike
            alike = [one if one and one.positions > 1 else None for one in planes.values()]
            if len({one and replace(one, channels=1) if each.by == CONCAT else one for one in alike}) > 1:
                have = ", ".join(f"'{name}' has {one or 'none'}" for name, one in planes.items())
                raise MappingError(f"{said} of other planes each: {have}")

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
        places = self.positions_normalised(layer)
        if layer.norm and not layer.norm.averages:
            return self.sample_norm(layer, layer.norm).values(layer.columns)
        timesteps = self.timesteps if layer.norm and layer.norm.per == "sequence" else 1
        return self.batch * places * timesteps

    def planes_dropped(self, layer: Layer) -> list[Planes | None]:
        """What dropout leaves planes of, source by source."""
        if layer.convolution:
            every = (layer.convolution_of(each.neurons) for each in self.sources(layer))
            return [each.read for each in every if each]
        return [each.planes(self.planes_of) for each in self.sources(layer)]

    def sample_norm(self, layer: Layer, norm: BatchNorm) -> SampleNorm:
        return of_sample(norm, self.positions_normalised(layer))

    def positions_normalised(self, layer: Layer) -> int:
        """Of what weights make, before a pool."""
        return layer.convolution.made.positions if layer.convolution else layer.positions

    def _check_planes(self, layer: Layer) -> None:
        convolution = layer.convolution
        if layer.unweighted:
            self._check_unweighted(layer)
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
            wanted = convolution.with_planes(source.neurons // convolution.planes.positions).planes
            given = wanted if source.name == INPUT else given
            if given != wanted or given.neurons != source.neurons:
                has = f"{source.neurons} values" if source.name == INPUT else given or "no planes"
                raise MappingError(
                    f"layer '{layer.name}' reads planes of {wanted} from '{source.names}', which has {has}"
                )

    def _check_unweighted(self, layer: Layer) -> None:
        what, has = "", self.sources(layer)[0].planes(self.planes_of)
        if self.spikes != "dense":
            what = 'lists of spikes are no currents: set network.spikes = "dense"'
        elif layer.planes != has:
            what = f"its planes are {layer.planes or 'none'}, and those that it reads are {has or 'none'}"
        elif layer is self.layers[-1] and layer.positions > 1:
            what = f"it is the last, and has planes of {has}; let a layer with weights read them"
        if what:
            raise MappingError(f"layer '{layer.name}', in network.unweighted: {what}")

    def planes_of(self, name: str) -> Planes | None:
        """What a layer sends that has some."""
        layer = next((one for one in self.layers if one.name == name), None)
        return layer.sent_planes if layer else None

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
