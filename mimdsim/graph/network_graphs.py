"""The graphs of a network: of a training step, of its forward part alone, and of inference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from mimdsim.base.errors import MappingError
from mimdsim.graph.convolution import Patches, Planes, Pool, Pooling, Window
from mimdsim.graph.differentiate import differentiate
from mimdsim.graph.dropout import Masks
from mimdsim.graph.elementwise import Line
from mimdsim.graph.layer import Layer, cell_step, step
from mimdsim.graph.learned_constants import Coefficients, SharedRow
from mimdsim.graph.losses import FiringTarget, Output, add_loss, add_scores
from mimdsim.graph.names import (
    INPUT,
    INPUT_NOW,
    LABELS,
    LOSS,
    SCORES,
    Parameter,
    after,
    before,
    coefficient_of,
    current_now,
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
from mimdsim.graph.network import SpikingNetwork
from mimdsim.graph.norms import STATISTICS, BatchNorm, averaging
from mimdsim.graph.operations import builder
from mimdsim.graph.records import Carry, Graph, GraphBuilder, Scan, Slice, Value
from mimdsim.graph.sources import ADD, COMPLEMENT, CONCAT, TIMES, Source, labels_of
from mimdsim.graph.synapses import BySample, HeadProduct, Zeros
from mimdsim.graph.training import add_updates

OF_NORM = ("gain", "bias", *STATISTICS)  # the parameters that a batch norm has


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
    build, output, sequences = _over_time(network, learns=True)
    build.phase = "loss"
    add_loss(build, network.loss, output, network.logit_scale)
    for layer in network.layers[:-1] if network.penalties else ():
        spikes = sequences[spikes_of(layer.name)]
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
            norm=_evaluated(layer),
        )
        for layer in network.layers
    )
    loss = replace(network.loss, firing_strength=0.0)
    return replace(network, layers=layers, batch=batch, threshold_schedule=None, loss=loss, frozen=(), pruned=())


def _evaluated(layer: Layer) -> BatchNorm | None:
    """What is left of a norm where nothing is learned: nothing of one that folds into weights."""
    if layer.norm is None or not layer.norm.averages:
        return layer.norm
    return None if layer.folds else replace(layer.norm, fixed=True)


def _forward_scan(network: SpikingNetwork, stretch: int) -> Scan:
    """The layers of a stretch over the timesteps; stacked are the outputs of the last, or the current that is
    normalised before the next stretch, and the spikes of others that a loss reads.

    Raises MappingError for a layer that cannot be read by its potential.
    """
    for layer in network.layers:
        if not layer.spiking and (layer is not network.layers[-1] or layer.recurrence != "none"):
            raise MappingError(
                f"layer '{layer.name}': only the last layer may be read by its membrane potential, and only if it has "
                'no synapses onto itself: read its spikes (network.output = "spikes")'
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
    counted = [name for name in counted if following or name != handed]
    stacked = dict.fromkeys((*counted, *map(spikes_of, network.read_later(stretch))))
    if handed in stacked:  # spikes that a norm reads as they are, and others as well, whose gradients come apart
        handed = body.one("affine", (handed,), current_now(following[0][0].name), attributes=Line(scale=1.0))
    return _scan_of(body, network, carries, (handed, *stacked))


def _declare(body: GraphBuilder, network: SpikingNetwork, stretch: int) -> None:
    """What enters a timestep of a stretch."""
    layers = network.stretches[stretch]
    body.elsewhere |= {own.name for layer in network.layers for each in layer.derived for own in each.of}
    weighted = network.weighted(stretch)
    terms = [each for layer in weighted for each in network.terms(layer)]
    read = {each.lag for each in terms if each.name == INPUT}
    for age in network.input_ages:
        if age in read:
            body.declare(replace(_spikes(network, before(INPUT_NOW, age), None), shift=-age))
    if stretch:
        layer = layers[0]
        made = layer.convolution.made if layer.convolution else layer.planes
        shape = (network.batch * made.positions, made.channels) if made else (network.batch, layer.neurons)
        shape = shape[0], layer.gates * shape[1]
        body.declare(Value(name=current_now(layer.name), shape=shape, layer=layer.name))
    for layer in layers:
        if (name := second_threshold_of(layer.name)) in network.moving_thresholds:
            body.declare(Value(name=name, shape=(), layer=layer.name))
    for layer in weighted:
        for each in layer.matrices[:1]:
            body.declare(each.value)
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
    fixed = read - {carry.enters for carry in carries}  # also averages, where nothing is learned
    every = (name for name, each in given if (each.trained or name in fixed) and not each.constant)
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


def _spikes(network: SpikingNetwork, name: str, of: Layer | None) -> Value:
    """Spikes of a layer, None for the input, in one timestep in the network's form."""
    sparse = network.spikes == "sparse"
    capacity = of.capacity if of else network.input_capacity
    return Value(
        name=name,
        shape=(network.batch * of.positions, of.columns) if of else (network.batch, network.inputs),
        form="sparse" if sparse else "array",
        capacity=capacity if sparse else 0,
        role="spikes",
        layer=of.name if of else INPUT,
    )


def _read(body: GraphBuilder, network: SpikingNetwork, layer: Layer, read: Source, source: str) -> str:
    """What a layer multiplies by its weights: the spikes of a source, or patches of its planes. source: its label."""
    convolution, by_channel = layer.convolution_of(read.neurons), read.name == INPUT
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
    name = (
        f"patches.{layer.name}" if source == labels_of(network.sources(layer))[0] else f"patches.{source}.{layer.name}"
    )
    return body.one("unfold", (spikes,), name, layer=layer.name, attributes=patches)


def _spikes_read(body: GraphBuilder, network: SpikingNetwork, layer: Layer, read: Source) -> str:
    """The spikes of a source, or what is made of several; what begins alike is made once in a timestep."""
    if not read.of:
        return before(INPUT_NOW if read.name == INPUT else spikes_of(read.name), read.lag or 0)

    def once(name: str, kind: str, inputs: tuple[str, ...], attributes: object = None) -> str:
        return name if name in body.values else body.one(kind, inputs, name, layer=layer.name, attributes=attributes)

    total, *others = (_spikes_read(body, network, layer, each) for each in read.of)
    if read.by == CONCAT:
        return once(f"concat({','.join((total, *others))})", "join_columns", (total, *others))
    if isinstance(read.by, Pool):
        planes = read.of[0].planes(network.planes_of)
        assert planes
        pooling = Pooling(planes=planes, window=read.by.window, kind=read.by.kind)
        return once(replace(read, of=(Source(name=total),)).names, "pool", (total,), pooling)
    if isinstance(read.by, HeadProduct):
        both = replace(read, of=(Source(name=total), Source(name=others[0]))).names
        about = BySample(kind=read.by.kind, heads=read.by.heads, samples=network.batch)
        return once(both, "head_product", (total, *others), about)
    if isinstance(read.by, Line):
        name = f"(1-{total})" if read.by == COMPLEMENT else f"({read.by.scale!r}*{total})"
        return once(name, "affine", (total,), read.by)
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
    """What a layer's weights make of what it reads, added up; what it reads, where it has none."""
    read = network.sources(layer)
    if layer.unweighted:
        return _drop(body, layer, labels_of(read)[0], _spikes_read(body, network, layer, read[0]))
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
    if layer.convolution and (patches := layer.convolution.of_itself):
        read = body.one("unfold", (before(spikes_of(name)),), f"patches.own.{name}", layer=name, attributes=patches)
        own = body.one("matmul", (read, trained["recurrent"]), f"recurrent.{name}", layer=name)
        current = body.one("add", (current, own), f"current.{name}.sum", layer=name)
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


def _over_time(network: SpikingNetwork, learns: bool = False) -> tuple[GraphBuilder, Output, dict[str, str]]:
    """A graph that runs the scans over the network's input: the stack of the last layer's outputs, and all sequences by
    what they are in the scans.

    learns: declare the labels, between the input and the parameters."""
    build = builder("forward")
    now = _spikes(network, INPUT, None)
    every = () if network.steady_input else (network.timesteps,)
    source = build.declare(replace(now, shape=(*every, *now.shape)))
    if network.steady_input:
        source = build.one("steady", (source,), "input.every", attributes=network.timesteps)
    if learns:
        build.declare(Value(name=LABELS, shape=(network.batch,)))
    sequences = {before(INPUT_NOW, age): source for age in network.input_ages}
    for stretch in range(len(network.stretches)):
        scan = _forward_scan(network, stretch)
        stacks = _add_scan(build, network, scan, sequences)
        sequences |= dict(zip(scan.stacked, stacks, strict=True))
        for layers in network.stretches[stretch + 1 : stretch + 2]:
            for each in layers[0].parameters:
                if each.role in OF_NORM:
                    build.declare(each.value)
            _, sequences[current_now(layers[0].name)] = _normalised(build, network, layers[0], stacks[0])
    last = network.layers[-1]
    output = Output(
        name=stacks[0], layer=last.name, neurons=last.neurons, timesteps=network.timesteps, spiking=last.spiking
    )
    return build, output, sequences


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
    reference = next(weights_of(layer.name) for layer in network.layers if not layer.unweighted)
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
