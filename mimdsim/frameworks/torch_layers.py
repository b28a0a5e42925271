"""The layers of a PyTorch module: who reads whom, by which parameters, from what a forward pass showed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.frameworks.blocks import function_of, uses_of
from mimdsim.frameworks.neurons import refusal, refused_backward, tell
from mimdsim.frameworks.origins import (
    THROUGH,
    Combined,
    Dropout,
    Dropped,
    Feed,
    FunctionResult,
    Gate,
    Input,
    Joined,
    LayerOutput,
    Made,
    Origin,
    Parameter,
    Pooled,
    Product,
    Scaled,
    Slice,
    Sum,
    each_in,
    feeds_of,
    is_sent,
    parts_of,
    sources_in,
    terms_of,
    undropped,
    unread_in,
)
from mimdsim.frameworks.own_neurons import not_read
from mimdsim.frameworks.planes import ROW_NORMS
from mimdsim.frameworks.recorded import NeuronCalls, Recorded
from mimdsim.frameworks.recording import GATHERS
from mimdsim.graph import sources as graph
from mimdsim.graph.convolution import Convolution, Window, same_size
from mimdsim.graph.derived import Delays, WeightFunction
from mimdsim.graph.elementwise import Line
from mimdsim.graph.names import INPUT, aged
from mimdsim.graph.norms import BatchNorm
from mimdsim.graph.sources import ADD, CONCAT
from mimdsim.workload.interchange.weights_file import layer_names

READABLE = (
    "a layer reads spikes of others, side by side (torch.cat), added up, multiplied or by weights of their own, or the "
    "input, or one of these times a number above 0"
)
_SIDE_BY_SIDE = "nearest: spikes of the same timestep side by side along the axis of neurons or of channels"
_ATTENTION = "nearest: attention of spikes, (q @ k.transpose(-2, -1)) @ v of planes cut into heads, without a softmax"
NEAREST_FUNCTIONS = {  # to functions between layers
    **dict.fromkeys(("cat", "concat", "concatenate"), _SIDE_BY_SIDE),
    **dict.fromkeys(("matmul", "bmm", "einsum", "softmax", "scaled_dot_product_attention"), _ATTENTION),
    "relu": "nearest: spikes as they are; relu has no gradient where there is no spike",
}
WAYS = {Sum: ADD, Joined: CONCAT}  # in which sources are one
INSTANCE_NORMS = (torch.nn.InstanceNorm1d, torch.nn.InstanceNorm2d)


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a layer reads, others ('': the input) at their ages, by products whose weights are one array here."""

    read: graph.Source
    feeds: tuple[Feed, ...]
    dropout: Dropout | None = None

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.read.terms)

    @property
    def product(self) -> Product:
        return self.feeds[0].product

    @property
    def inputs(self) -> int:
        convolution = self.feeds[0].convolution
        return convolution.planes.neurons if convolution else self.feeds[0].rows

    @property
    def function(self) -> WeightFunction | None:
        """What its weights are of the parameters."""
        return function_of(self.feeds)


@dataclass(frozen=True, kw_only=True)
class TorchLayer:
    """One layer: its neurons, and the parameters that it takes. own: by which it reads itself; biases: those that are
    added up to its own; columns: those of some neurons, and where they are in a row of all; recurrent_bias: of cells;
    trained_norm: its batch norm, where that is not folded into it, in which the statistics have the bias before it in
    them; of_norm: what that has in the module, if it scales and shifts 'weight' and 'bias'; norms: those of timesteps,
    in their order; negative: biases that are subtracted."""

    calls: NeuronCalls
    sources: tuple[Source, ...]
    biases: tuple[str, ...] = ()
    own: tuple[Feed, ...] = ()
    columns: Mapping[str, Feed] = field(default_factory=dict)
    bias_function: WeightFunction | None = None
    recurrent_bias: str = ""
    trained_norm: BatchNorm | None = None
    norms: tuple[str, ...] = ()
    of_norm: frozenset[str] = frozenset()
    negative: frozenset[str] = frozenset()

    @property
    def convolution(self) -> Convolution | None:
        found, own = self.sources[0].feeds[0].convolution, self.own_window
        try:
            return replace(found, own=own) if found and own else found
        except MappingError as problem:
            raise refusal(f"layer '{self.calls.name}': {problem}") from None

    @property
    def gates(self) -> int:
        """Columns of weights for each neuron."""
        written = self.calls.reading.written
        return written.model(self.calls.name).gates if written else 1

    @property
    def gains(self) -> int:
        """How many biases, or gains, it has: one for each of its planes, or neurons."""
        if self.convolution:
            return self.convolution.channels
        return self.sources[0].product.channels or self.calls.neurons

    @property
    def own_window(self) -> Window | None:
        """Over the planes of itself that it reads."""
        own = self.own[0].convolution if self.own else None
        return own.window if own else self.calls.reading.own_window

    @property
    def recurrent(self) -> str:
        """A parameter by which it reads itself."""
        return self.own[0].product.weight if self.own else ""

    @property
    def recurrent_function(self) -> WeightFunction | None:
        return function_of(self.own)

    @property
    def feeds(self) -> list[Feed]:
        return [feed for source in self.sources for feed in source.feeds]

    @property
    def norm(self) -> str:
        return self.sources[0].product.norm

    @property
    def shifts(self) -> bool:
        """Whether the bias here is that of a batch norm."""
        return bool(self.norm) and (self.trained_norm is None or bool(self.trained_norm.averages))

    @property
    def delays(self) -> Delays | None:
        return self.sources[0].product.delays

    @property
    def unweighted(self) -> bool:
        """Whether it reads what others send as its current."""
        return bool(self.sources[0].product.channels)


def widths_of(layers: list[TorchLayer]) -> list[int]:
    return [layer.calls.neurons for layer in layers]


def named(layers: list[TorchLayer]) -> list[tuple[str, TorchLayer]]:
    """The layers by the names here."""
    return list(zip(layer_names(len(layers)), layers, strict=True))


def layers_of(module: torch.nn.Module, recorded: Recorded) -> list[TorchLayer]:
    """The layers in the order in which they run, that of the output last."""
    if not recorded.layers:
        raise refusal(
            "no neurons of snntorch, norse or spikingjelly, and no RNN, GRU or LSTM, ran in the module"
            + (f"; neurons that are written out have no '{unread}'" if (unread := not_read(recorded)) else "")
            + '; neurons and cells of one\'s own, and event-based GRUs (network.neuron = "egru"): docs/neurons.md'
        )
    order = [_layer(name, calls) for name, calls in recorded.layers.items()]
    for layer in order:
        if len({each.product for each in layer.feeds}) > 1 and any(each.product.norm for each in layer.feeds):
            raise refusal(
                f"layer '{layer.calls.name}' adds up what batch norm makes and more; one source can run; nearest: "
                "spikes that are added up, as in SEW blocks, and one norm behind their weights"
            )
    order = _in_order([_with_norm(module, recorded, layer) for layer in order])
    of_input = [layer for layer in order if ("",) in {source.layers for source in layer.sources}]
    order = order if order[0] in of_input else _in_order([*of_input[:1], *order])
    read = {name for layer in order for source in layer.sources for name in source.layers}
    order.sort(key=lambda layer: bool(returned_by(recorded, layer)) and layer.calls.name not in read)
    _check_returned(recorded, order[-1])
    apart, last = [layer.calls.name for layer in order[:-1] if layer.calls.name not in read], order[-1].calls.name
    if apart:
        raise refusal(
            f"layer '{apart[0]}' leads to nothing that '{last}' gets, whose output is read; nearest: a module without "
            "it, or one for each output (auxiliary heads)"
        )
    every = [name for layer in order for name in _parameters_of(module, layer)]
    shared = [name for name in every if every.count(name) > 1]
    if shared:
        raise refusal(f"'{shared[0]}' is shared by several layers, which train weights of their own here")
    _check_unused(recorded, {name: each for name, each in module.named_parameters() if name not in every})
    first = {each.calls.name: each.calls.reading.written.first for each in order if each.calls.reading.written}
    for layer in order:
        _check_every_call(layer, first)
        if layer.norm and layer.recurrent and layer.trained_norm is None:
            raise refusal(f"layer '{layer.calls.name}' adds up what batch norm makes and more; one source can run")
        if len(layer.feeds) > 1 and any(each.product.delays for each in layer.feeds):
            raise refusal(f"layer '{layer.calls.name}' reads delays that are learned, and more; one source can run")
        _check_planes(layer, order)
    if not of_input:
        raise refusal(f"layer '{order[0].calls.name}' runs first and does not read the input")
    for index, layer in enumerate(order):
        before = {each.calls.name for each in order[:index]}
        terms = (term for source in layer.sources for term in source.read.terms)
        late = [each.name for each in terms if not each.lag and each.name not in {"", *before}]
        if late:
            raise refusal(f"layer '{layer.calls.name}' reads spikes of '{late[0]}', which runs after it")
    silent = [layer.calls.name for layer in order[:-1] if not layer.calls.reading.spiking]
    if silent:
        raise refusal(f"layer '{silent[0]}' sends potentials; only the last layer may")
    return order


def check_reads(recorded: Recorded) -> None:
    """Raise DescriptionError where a layer reads what none here can."""
    for name, calls in recorded.layers.items():
        _layer(name, calls)


def _check_unused(recorded: Recorded, others: Mapping[str, torch.nn.Parameter]) -> None:
    """Tell of parameters that are of no layer and that PyTorch does not train either; raises DescriptionError for one
    that it trains."""
    others = {name: each for name, each in others.items() if each.requires_grad}
    ends = [each.sum() for made in recorded.made_by_call for each in made if each.requires_grad]
    if not others:
        return
    try:
        back = torch.autograd.grad(sum(ends), [*others.values()], retain_graph=True, allow_unused=True) if ends else []
    except RuntimeError as problem:
        raise refused_backward(problem) from problem
    for name, gradient in zip(others, back, strict=False):
        if gradient is not None:
            raise refusal(f"the parameter '{name}' is no weight of a layer that ran; nothing here would train it")
    tell(f"PyTorch gives {', '.join(map(repr, others))} no gradient, and nothing trains such a parameter here either")


def _in_order(layers: list[TorchLayer]) -> list[TorchLayer]:
    """As they ran, and each after those that it reads in the same timestep."""
    by_name, found = {each.calls.name: each for each in layers}, dict[str, TorchLayer]()
    waiting, begun = layers[::-1], set[str]()
    while waiting:
        layer = waiting[-1]
        terms = [] if layer.calls.name in begun else [term for each in layer.sources for term in each.read.terms]
        begun.add(layer.calls.name)
        before = [each.name for each in terms if not each.lag and each.name and each.name not in begun]
        waiting += [by_name[name] for name in reversed(before)]
        if not before:
            found.setdefault(layer.calls.name, waiting.pop())
    return [*found.values()]


def _layer(name: str, calls: NeuronCalls) -> TorchLayer:
    """A layer, with what it reads."""
    reading = calls.reading
    prefix = f"{path}." if (path := calls.path or name) else ""
    origin = calls.origins[-1]
    if reading.weights:  # the module multiplies by itself
        of = origin or FunctionResult(by="?", of=())
        inputs = calls.currents[-1].shape[-1]
        origin = Product(of=of, inputs=inputs, weight=prefix + reading.weights, transposed=True)
    for part, columns in terms_of(origin):
        if not isinstance(part, Product):
            nearest = NEAREST_FUNCTIONS.get(
                getattr(unread_in(part), "by", ""), "neurons read products of spikes and weights"
            )
            raise refusal(f"layer '{name}' reads {_describe(part)}; {nearest}")
        if columns and (part.convolution or part.norm or part.delays):
            raise refusal(
                f"layer '{name}' reads '{part.weight}' beside other products (cat), and it is a convolution, or has a "
                "norm or delays; nearest: one for all neurons, or neurons behind each, whose spikes are side by side"
            )
    every = feeds_of(origin)
    if reading.weights and any(feed.rows != feed.last - feed.first for feed in every):
        raise refusal(f"layer '{name}' reads some neurons of another; nearest: all of them, or torch.nn.Linear before")
    own = tuple(feed for feed in every if isinstance(feed.of, LayerOutput) and feed.of.layer == name)
    sources = _sources(name, calls, [feed for feed in every if feed not in own])
    if not sources:
        raise refusal(f"layer '{name}' reads nothing but itself; give neurons that are called twice a module each")
    apart = tuple(feeds_of(reading.written.own)) if reading.written else ()
    read_apart = apart if not own else ()
    products = list(dict.fromkeys(feed.product for feed in (*every, *read_apart)))
    rows = [(feed.product.weight, feed.first) for feed in (*every, *read_apart)]
    if len(set(rows)) < len(rows):
        raise refusal(
            f"layer '{name}' multiplies several sources by the same weights; give each weights of its own, or add up "
            "their spikes before"
        )
    for source in sources:
        _check_apart(name, f"'{_written(source.read)}'", source.feeds)
    of_itself = _of_itself(name, calls, own, apart, prefix)
    biases = [bias for product in products for bias in product.biases]
    if twice := _twice(biases):  # whose gradient would be that of one of them
        raise refusal(f"layer '{name}' adds or subtracts the bias {twice} several times; nearest: a bias for each")
    biases = list(dict.fromkeys(bias for feed in every for bias in feed.product.biases))
    own_bias = reading.bias or ("" if reading.of_cells else reading.recurrent_bias)
    factors = {bias: product.bias_factor for product in products for bias in product.biases}
    if len(factors) + bool(own_bias) > 1 and set(factors.values()) != {1.0}:
        raise refusal(f"layer '{name}' adds up biases of products that are scaled; nearest: bias=False for all but one")
    of_cells = prefix + reading.recurrent_bias if reading.of_cells and reading.recurrent_bias else ""
    if any(source.product.norm for source in sources) and (own_bias or any(feed.product.biases for feed in own)):
        raise refusal(f"layer '{name}' adds a bias to what batch norm makes; nearest: synapses onto itself without one")
    biases += [prefix + own_bias] if own_bias else []
    return TorchLayer(
        calls=calls,
        sources=tuple(sources),
        biases=tuple(biases),
        own=of_itself,
        columns={
            bias: replace(feed, first=0, last=1, row=0, rows=1)
            for feed in every
            if feed.columns
            for bias in feed.product.biases
        },
        bias_function=next(
            (WeightFunction(function="identity", factor=each) for each in factors.values() if each != 1), None
        ),
        recurrent_bias="".join({bias for each in apart for bias in each.product.biases}) or of_cells,
        negative=frozenset(bias for feed in every if feed.product.negative for bias in feed.product.biases),
    )


def _of_itself(
    name: str, calls: NeuronCalls, own: tuple[Feed, ...], apart: tuple[Feed, ...], prefix: str
) -> tuple[Feed, ...]:
    """What a layer reads of itself: in its currents, in sums `apart` from them, or by weights of its neurons."""
    _check_apart(name, "itself", apart or own)
    if own and calls.reading.recurrent:
        raise _of_several(name, "itself")
    if any(feed.product.dropout for feed in (*own, *apart)):
        raise refusal(f"layer '{name}' reads itself through dropout; nearest: dropout of what other layers send")
    if len({bias for feed in apart for bias in feed.product.biases}) > 1:
        raise refusal(f"layer '{name}' adds several biases to what it reads of itself; nearest: bias=False but for one")
    if not all(
        isinstance(feed.of, LayerOutput)
        and feed.of.spikes
        and feed.of.call == len(calls.origins) - 2
        and feed.rows == (feed.convolution.fan_in if feed.convolution else calls.neurons)
        and not feed.product.delays
        for feed in own
    ):
        raise refusal(f"layer '{name}' reads itself other than its spikes of the timestep before")
    for each in filter(None, (feed.convolution for feed in own)):
        if each.window != same_size(each.window.kernel) or each.groups > 1 or each.before or each.after or len(own) > 1:
            raise refusal(
                f"layer '{name}' reads its own planes by a convolution that is not one kernel with padding='same'; "
                "nearest: an odd kernel_size, padding=kernel_size // 2, stride=1, groups=1 and no pool"
            )
    if not calls.reading.recurrent or apart or own:
        return apart or own
    of, weight = FunctionResult(by="?", of=()), prefix + calls.reading.recurrent
    window, inputs = calls.reading.own_window, calls.neurons
    if window and calls.planes:
        inputs = calls.planes.channels * window.taps
    return tuple(feeds_of(Product(of=of, inputs=inputs, weight=weight, transposed=True)))


def _sources(name: str, calls: NeuronCalls, feeds: list[Feed]) -> list[Source]:
    """What a layer reads of others, the input first; what it reads of slices of the same is one source."""
    found: dict[str, Source] = {}
    for each in (_source(name, calls, feed) for feed in feeds):
        before = found.setdefault(_written(each.read), each)
        if before is not each:
            if each.dropout != before.dropout:
                raise refusal(f"layer '{name}' reads neurons of '{each.read.names}' with dropout of several kinds")
            found[_written(each.read)] = replace(before, feeds=before.feeds + each.feeds)
    return sorted(found.values(), key=lambda source: source.layers != ("",))


def _check_apart(name: str, of: str, feeds: tuple[Feed, ...]) -> None:
    """Raise DescriptionError where several products read the same neurons for the same currents."""
    if feeds and (uses_of(feeds) > 1).any():
        raise _of_several(name, of)


def _of_several(name: str, of: str) -> DescriptionError:
    return refusal(
        f"layer '{name}' adds up several products of {of}; one of each neuron can run: one matrix with a mask, slices "
        "that do not overlap, or a layer of neurons for each population"
    )


def _with_norm(module: torch.nn.Module, recorded: Recorded, layer: TorchLayer) -> TorchLayer:
    """The layer with its batch norm, if that is trained: of every timestep, or of all in one call."""
    if not layer.norm:
        return layer
    of: Any = module.get_submodule(layer.norm)
    columns = layer.gains
    features, groups = features_of(of)
    plain = isinstance(of, ROW_NORMS) and of.weight is None  # which is that of one group of all planes
    if features != columns and not (plain and layer.convolution and features == layer.convolution.made.neurons):
        near = f"torch.nn.GroupNorm(1, {columns}), or a {type(of).__name__} with elementwise_affine=False"
        nearest = f"; nearest: {near}" if layer.convolution and groups else ""
        raise refusal(
            f"'{layer.norm}' normalises along another axis than that of '{layer.calls.name}'s {columns} neurons"
            f"{nearest}"
        )
    if layer.sources[0].function and not layer.sources[0].product.folded:
        raise refusal(
            f"'{layer.norm}' normalises a product of weights that are a function, or of spikes times a number; "
            "nearest: the weights themselves, and without the number, which a norm divides out again but for its eps"
        )
    has = frozenset(name for name, _ in (*of.named_parameters(), *of.named_buffers()))
    layer = replace(layer, of_norm=has)
    every = tuple(feed.product.norm for each in layer.calls.origins for feed in feeds_of(each) if feed.product.norm)
    if len(set(every)) > 1:
        return _with_norms(module, recorded, layer, every)
    if groups:
        of_squares = isinstance(of, ROW_NORMS[1:])
        by_position = isinstance(of, ROW_NORMS) and layer.convolution and features == columns
        per = "root_mean_square" if of_squares else "position" if by_position else "sample"
        kind = layer.calls.currents[0].dtype
        epsilon = torch.finfo(kind).eps if of_squares and of.eps is None else of.eps
        return replace(layer, trained_norm=BatchNorm(per=per, epsilon=epsilon, groups=groups))
    if layer.sources[0].product.folded:
        return layer
    calls, timesteps = recorded.norms[layer.norm], len(layer.calls.sequence(layer.calls.outputs))
    if calls not in (1, timesteps):
        raise refusal(f"'{layer.norm}' ran {calls} times in {timesteps} timesteps; once, or once in each, can run")
    per = "timestep" if calls == timesteps else "sequence"
    return replace(layer, trained_norm=BatchNorm(per=per, epsilon=of.eps, momentum=of.momentum))


def _with_norms(module: torch.nn.Module, recorded: Recorded, layer: TorchLayer, every: tuple[str, ...]) -> TorchLayer:
    """The layer with batch norms of timesteps, `every` in their order (BNTT)."""
    norms: list[Any] = [module.get_submodule(each) for each in every]
    about = {
        (type(each), each.eps, getattr(each, "momentum", 0), getattr(each, "bias", None) is None) for each in norms
    }
    timesteps = len(layer.calls.sequence(layer.calls.outputs))
    alike = len(about) == 1 and not features_of(norms[0])[1] and not layer.sources[0].product.folded
    if not alike or len(set(every)) < timesteps or any(recorded.norms[each] != 1 for each in every):
        raise refusal(
            f"layer '{layer.calls.name}' has several norms, '{every[0]}' among them; nearest: one, or a batch norm for "
            "each timestep (BNTT), all of the same momentum and epsilon and in train()"
        )
    how = {"per": "each_timestep", "rows": timesteps, "epsilon": norms[0].eps, "momentum": norms[0].momentum}
    return replace(layer, norms=every, trained_norm=BatchNorm(**how))


def features_of(norm: Any) -> tuple[int, int]:
    """How many columns a norm has gains for, and of norms of samples into how many groups it cuts them."""
    if isinstance(norm, ROW_NORMS):
        return math.prod(norm.normalized_shape), 1
    if isinstance(norm, torch.nn.GroupNorm):
        return norm.num_channels, norm.num_groups
    return norm.num_features, norm.num_features if isinstance(norm, INSTANCE_NORMS) else 0


def _twice(names: list[str]) -> str:
    return next((f"'{name}'" for name in names if names.count(name) > 1), "")


def _source(name: str, calls: NeuronCalls, feed: Feed) -> Source:
    """What a layer reads by one product."""
    of, dropout = undropped(feed.of) if feed.of else (None, None)
    feed = replace(feed, of=of)
    weight = "" if feed.product.channels else feed.product.weight
    read = combination(name, weight, of, 0 if calls.in_time else len(calls.origins))
    for each in read.combinations:
        if twice := _twice([_written(part) for part in each.of]):
            raise refusal(f"layer '{name}' reads a {each.kind} that has {twice} twice; each once can run")
    product = feed.product
    if product.dropout and dropout:
        raise refusal(f"'{product.weight}' reads what is left of what dropout left; nearest: one dropout for both")
    return Source(read=read, feeds=(feed,), dropout=product.dropout or dropout)


def _written(read: graph.Source) -> str:
    return read.text(lambda each: aged(each.name or INPUT, each.lag or 0))


def combination(name: str, weight: str, of: Origin | None, timesteps: int) -> graph.Source:
    """What layer `name` reads in its last timestep by weights, of others by their names in the module ('': the input);
    weight: '' where it has none; timesteps: that it took one by one, 0 where it took all at once."""
    of = of if timesteps else _at_once(of)
    if isinstance(of, Scaled) and of.factor > 0 and is_sent(of):
        return graph.Source(by=Line(scale=of.factor), of=(combination(name, weight, of.of[0], timesteps),))
    if isinstance(of, (Sum, Combined, Joined, Pooled)):
        by = of.pool if isinstance(of, Pooled) else of.by if isinstance(of, Combined) else WAYS[type(of)]
        return graph.Source(by=by, of=tuple(combination(name, weight, each, timesteps) for each in parts_of(of)))
    if not isinstance(of, (LayerOutput, Input)):
        reads = f"'{weight}' is multiplied by" if weight else f"layer '{name}' reads"
        nearest = NEAREST_FUNCTIONS.get(getattr(unread_in(of), "by", ""), READABLE)
        through = FunctionResult, *THROUGH
        ends = [each for each in each_in(through, of) if not isinstance(each, through)]
        if isinstance(of, FunctionResult) and ends and all(isinstance(each, Input) for each in ends):
            nearest = "nearest: a module that gets the example as this makes it"
        raise refusal(f"{reads} {_describe(of)}; {nearest}")
    if isinstance(of, LayerOutput) and not of.spikes:
        raise refusal(f"layer '{name}' reads a state of '{of.layer}'; layers read spikes")
    if isinstance(of, LayerOutput) and of.layer == name:
        raise refusal(f"layer '{name}' reads itself in a sum with others; nearest: by weights of its own")
    return graph.Source(name=_sender(of), lag=_age(of, timesteps - 1, timesteps) if timesteps else 0)


def senders_in(of: Origin | None) -> list[LayerOutput | Input]:
    if isinstance(of, (Sum, Combined, Joined, Pooled, Scaled)):
        return [each for part in parts_of(of) for each in senders_in(part)]
    return [of] if isinstance(of, (LayerOutput, Input)) else []


def _at_once(of: Origin | None) -> Origin | None:
    """What a layer sent in every timestep, one after another, as what it sent in the last."""
    every = of.of if isinstance(of, FunctionResult) and of.by == "stack" else ()
    alike = {(each.layer, each.spikes) for each in every if isinstance(each, LayerOutput)}
    return every[-1] if len(alike) == 1 and all(isinstance(each, LayerOutput) for each in every) else of


def _sender(of: Origin | None) -> str:
    return of.layer if isinstance(of, LayerOutput) else ""


def _age(of: Origin | None, t: int, timesteps: int) -> int:
    """How many timesteps before timestep t of so many it was sent, or is an entry of the input."""
    if isinstance(of, LayerOutput):
        return t - of.call - of.entry
    return t - of.entry[0] if isinstance(of, Input) and of.entry and of.entry[1] == timesteps else 0


def _check_planes(layer: TorchLayer, every: list[TorchLayer]) -> None:
    """A convolution reads the planes that another layer, or the input, has, and nothing else."""
    name, convolution = layer.calls.name, layer.convolution
    made = {
        each.calls.name: replace(each.convolution.result, channels=each.convolution.channels // each.gates)
        for each in every
        if each.convolution
    }
    for one in every:  # after what it reads, whose pixels may have been put in a row since
        if one.unweighted and (planes := one.sources[0].read.planes(made.get) or one.calls.planes):
            made[one.calls.name] = planes
    of = layer.sources[0].read.planes(made.get) if layer.unweighted and layer.norm else None
    if of and of.channels != layer.gains:
        raise refusal(
            f"'{layer.norm}' normalises {layer.gains} neurons of planes of {of} by themselves; nearest: a norm of "
            "channels, before they are flattened"
        )
    if not any(feed.product.convolution for feed in layer.feeds):
        return
    several = len({each.product for each in layer.feeds}) > 1
    if convolution is None or several or (layer.recurrent and not convolution.own):
        raise refusal(f"layer '{name}' reads planes by a convolution or a pool, and more: one source alone can run")
    pool = convolution.after if convolution.own else None
    if pool and (pool.kind == "sum" or any(pool.window.padding)):  # biases are added before a pool
        raise refusal(
            f"layer '{name}' has a pool that sums or is padded, and a bias of its own kernel behind it; nearest: a "
            "largest or an average without padding"
        )
    for source in layer.sources:
        reads = source.feeds[0].convolution
        wanted = reads and reads.planes
        for each in _with_planes(source.read):
            planes = each.planes(made.get)
            if planes != wanted and (each.name != "" or each.of):
                has = f"makes planes of {planes}" if planes else "has no planes"
                what = _written(each) if each.of else each.name
                raise refusal(f"layer '{name}' reads planes of {wanted} of '{what}', which {has}")


def _with_planes(read: graph.Source) -> list[graph.Source]:
    """All that has the planes that a layer reads: layers, and pools of them."""
    if not read.of or read.of_planes:
        return [read]
    return [each for part in read.of for each in _with_planes(part)]


def _check_every_call(layer: TorchLayer, first: Mapping[str, int]) -> None:
    """What a layer reads is the same in every timestep, but for itself in the first, and for what was before it or, by
    layer, before there was anything."""
    origins = layer.calls.origins
    read = [_products_read(origin, t, len(origins), layer.norms) for t, origin in enumerate(origins)]
    for t, each in enumerate(read):
        missing = read[-1] - each
        if not each <= read[-1] or (t and any(age + first.get(of, 0) <= t for *_, of, age in missing)):
            raise refusal(f"layer '{layer.calls.name}' reads other things in timestep {t} than in the last one")


def _products_read(origin: Origin | None, t: int, timesteps: int, norms: tuple[str, ...] = ()) -> set[tuple[Any, ...]]:
    """(weights, convolution, layer, timesteps ago) of all that a layer reads in timestep t. norms: of timesteps."""
    return {
        (
            feed.product.weight,
            feed.product.convolution,
            feed.product.norm in norms or feed.product.norm,
            feed.product.dropout,
            feed.product.negative,
            feed.product.function,
            feed.row,
            feed.columns,
            _sender(part),
            _age(part, t, timesteps),
        )
        for feed in feeds_of(origin)
        for part in senders_in(feed.of)
    }


def _describe(origin: Origin | None) -> str:
    if origin is None:
        return "a tensor that comes from nothing that is known"
    if isinstance(origin, FunctionResult) and origin.by == "stack" and origin.of:
        return f"{_describe(origin.of[-1])}, in every timestep"
    origin = unread_in(origin)
    if isinstance(origin, (FunctionResult, Made)):
        return f"what '{origin.by}' made"
    if isinstance(origin, Gate):
        return "a share of the columns of a product"
    if isinstance(origin, (Sum, Combined, Joined)):
        by = origin.by if isinstance(origin, Combined) else WAYS[type(origin)]
        return f"a {graph.Source(by=by).kind}"
    if isinstance(origin, Product) and origin.channels:
        return f"what '{origin.norm}' made"
    if isinstance(origin, Product):
        return f"a product with '{origin.weight}', without neurons between both"
    if isinstance(origin, Slice):
        return f"some neurons of {_describe(origin.of)}"
    if isinstance(origin, (Pooled, Dropped)):
        return f"{'a pool' if isinstance(origin, Pooled) else 'what dropout leaves'} of {_describe(origin.of)}"
    if isinstance(origin, LayerOutput):
        return f"what '{origin.layer}' sent, without weights"
    return f"'{origin.name}' itself" if isinstance(origin, Parameter) else "the input itself"


def functions_in(origin: Origin | None) -> set[str]:
    names = {Sum: "add", Combined: "mul", Pooled: "pool", Dropped: "dropout", Slice: "a slice"}
    every = [*each_in((FunctionResult, *names), origin)]
    found = {names[type(each)] for each in every if type(each) in names}
    made = (each for each in every if isinstance(each, FunctionResult))
    return found.union("div" if each.divisor != 1 else each.by for each in made)  # or what it multiplies by


def divisor_of(origin: Origin | None, known: dict[int, float] | None = None) -> float:
    """By what a module divides what it returns. known: of functions that others are made of as well, by id."""
    if not isinstance(origin, FunctionResult):
        return 1.0
    known = {} if known is None else known
    if id(origin) not in known:
        known[id(origin)] = origin.divisor * max((divisor_of(each, known) for each in origin.of), default=1.0)
    return known[id(origin)]


def returned_by(recorded: Recorded, last: TorchLayer) -> list[Origin | None]:
    """Of what the module returned, what the last layer sent."""
    return [origin for origin in recorded.returned if last.calls.name in {name for name, _ in sources_in(origin)}]


def _check_returned(recorded: Recorded, last: TorchLayer) -> None:
    found = returned_by(recorded, last)
    if not found:
        of_it = (each for each in recorded.unread if any(isinstance(of, (LayerOutput, Made)) for of in each.of))
        made = next((f", but what '{each.by.strip('_')}' made of it" for each in of_it), "")
        ends = (each for each in each_in((FunctionResult, *THROUGH), *recorded.returned) if isinstance(each, Product))
        if not made and (end := next(ends, None)):
            made = f", but the product of '{end.weight}' with {_describe(end.of)}; products of spikes are read"
        raise refusal(f"the module does not return what its last layer, '{last.calls.name}', sent{made}")
    mixed = sorted({name for name, _ in sources_in(found[0])} - {last.calls.name})
    if mixed:
        raise refusal(
            f"the output mixes what '{last.calls.name}' sent with what '{mixed[0]}' sent; let one more layer read both"
        )
    functions = functions_in(found[0])
    others = functions - GATHERS - ({"softmax"} if functions & {"sum", "add", "mean"} else set())
    if others:
        mean = ", as torch.stack(outputs).mean(0)" if "div" in others else ""
        raise refusal(
            f"the output goes through '{sorted(others)[0]}'; return what the last layer sent{mean}, and see loss="
        )


def _parameters_of(module: torch.nn.Module, layer: TorchLayer) -> list[str]:
    """The parameters of the module that a layer takes, each once."""
    norms = [*dict.fromkeys(filter(None, (layer.norm, *layer.norms)))]
    of_norm = [f"{norm}.{name}" for norm in norms for name, _ in module.get_submodule(norm).named_parameters()]
    products = [each.product for each in (*layer.feeds, *layer.own) if not each.product.channels]
    names = [name for each in products for name in (each.weight, each.positions)]
    names += [*layer.biases, layer.recurrent_bias, *of_norm]
    return [*filter(None, dict.fromkeys([*names, *(of for of, *_ in constants_of("", layer))]))]


def constants_of(name: str, layer: TorchLayer) -> list[tuple[str, str, tuple[int, int] | None]]:
    """(parameter of the module, array here, which row of the parameter and how long one is, None for all of it) of the
    constants that a layer's neurons learn."""
    prefix, reading = f"{layer.calls.name}." if layer.calls.name else "", layer.calls.reading
    learned: list[tuple[str, str, tuple[int, int] | None]]
    learned = [(f"{prefix}{of}", f"c.{name}.{constant}", None) for constant, of in reading.learned.items()]
    if not (written := reading.written):
        return learned
    arrays = {each: f"c.{name}.{each}" if each in written.shared else f"{each}.{name}" for each in written.rows}
    for each, (of, values, row) in written.rows.items():
        if of:
            learned.append((of, arrays[each], None if row is None else (row, values.size)))
    return learned


def number_of_biases(layer: TorchLayer) -> int:
    """How many are added up; a norm that averages has one, with those before it in its statistics."""
    return 1 if layer.shifts or (layer.recurrent_bias and not layer.biases) else len(bias_groups(layer))


def bias_groups(layer: TorchLayer) -> list[list[str]]:
    """Its biases, those of different neurons together."""
    groups: list[list[str]] = []
    for bias in layer.biases:
        for group in groups:
            feeds = tuple(layer.columns[each] for each in (*group, bias) if each in layer.columns)
            if len(feeds) == len(group) + 1 and uses_of(feeds).max() == 1:
                group.append(bias)
                break
        else:
            groups.append([bias])
    return groups


def mostly_delayed(layers: list[TorchLayer]) -> bool:
    """Whether most layers read what others sent a timestep earlier."""
    terms = (term for layer in layers for source in layer.sources for term in source.read.terms)
    lags = [each.lag for each in terms if each.name]
    return 2 * lags.count(1) > len(lags)


def read_by(layers: list[TorchLayer], layer: TorchLayer) -> tuple[graph.Source, ...]:
    """What a layer reads, by the names here."""
    names = {each.calls.name: name for name, each in named(layers)} | {"": INPUT}
    return tuple(source.read.mapped(lambda each: replace(each, name=names[each.name])) for source in layer.sources)


def sums_apart(layer: TorchLayer) -> bool:
    """Whether sums over its own outputs are no part of its currents, as in gated cells."""
    reading = layer.calls.reading
    return bool(reading.written.own) if reading.written else reading.of_cells
