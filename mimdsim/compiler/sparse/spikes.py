"""Gradients that follow listed spikes on tiles: of weights, and of the spikes themselves with their sum over tiles."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from mimdsim.base.compressed_columns import compact, compact_of
from mimdsim.codelets import spikes as codelets
from mimdsim.codelets.dense import (
    ADD_REPLICAS,
    FILL_OWN_REPLICAS,
    FILL_REPLICAS,
    SUM_OWN_REPLICAS,
    SUM_REPLICAS,
    SUM_SOME_REPLICAS,
)
from mimdsim.codelets.spikes import INPUT_GRADIENT_PART, WEIGHT_GRADIENT_PART
from mimdsim.compiler.context import Lowering, Rules
from mimdsim.compiler.layout import Chips, Where, in_bands
from mimdsim.compiler.place.collectives import Trees
from mimdsim.graph import Operation, Value
from mimdsim.graph.sources import labels_of
from mimdsim.program import Codelet, Copy, TileMapping


def replicate_spikes(low: Lowering, spikes: str, layer: str) -> tuple[str, str]:
    """Ids and counts of `spikes` copied to every tile of `layer` that has the sample, once per timestep."""
    placed, originals = low.placed(layer), low.storage[spikes]
    parts = zip(pairwise(placed.batch_edges.tolist()), placed.grid, strict=True)
    mapping = in_bands(0, ((begin, end, TileMapping.replicated(tiles)) for (begin, end), tiles in parts))
    copies = [Copy(source=original, target=f"{original}.on.{layer}") for original in originals]
    if copies[0].target not in low.variables:
        low.copies("replicate ids", "replicate", *copies, layer=layer)
    for copy in copies:
        held = low.variables[copy.source]
        low.variable(copy.target, held.shape, held.dtype, mapping, "spike ids")
    ids, counts = (copy.target for copy in copies)
    return ids, counts


def declare_replicas(low: Lowering, value: Value, layer: str) -> str:
    """Partial sums [replicas, rows, neurons] of a weight gradient, those of a copy of the layer on its tiles; zero."""
    placed, rows = low.placed(layer), value.shape[0]
    each = placed.replicas
    shape = (placed.copies * each, *value.shape)
    name = low.variable(f"d{value.of}", shape, "float32", _in_copies(low, layer, each, rows), "weight gradients")
    codelet, tiles = FILL_REPLICAS, placed.homes.ravel()
    columns = {"start": placed.starts, "stop": placed.stops}
    if len(placed.grid.ravel()) > len(placed.starts):
        codelet = FILL_OWN_REPLICAS
        tiles, columns = low.over_weights(layer, rows)
        columns |= {"first": columns["copy"] * each, "last": (columns["copy"] + 1) * each}
    low.compute("zero weight gradients", "zeros", codelet, tiles, columns, {"target": name}, layer=layer)
    return name


def _in_copies(low: Lowering, layer: str, each: int, rows: int) -> TileMapping:
    """Of [copies * each, rows, neurons]: `each` of them with every copy of the layer."""
    copies = range(low.placed(layer).copies)
    return in_bands(0, ((copy * each, (copy + 1) * each, low.weights_of_copy(layer, copy, rows, 2)) for copy in copies))


def replica_columns(low: Lowering, layer: str, part: int = 0) -> Where:
    """One vertex per replica, tile with a part of the weights, and context that shares its neurons, with the samples
    it sums."""
    placed = low.placed(layer)
    edges = placed.cut_batch(placed.replicas)  # replica r sums samples edges[r]..edges[r + 1] - 1
    filled = np.flatnonzero(edges[1:] > edges[:-1])
    every = np.meshgrid(filled, np.arange(placed.sharers), np.arange(len(placed.starts)), indexing="ij")
    replica, share, run = (column.ravel() for column in every)
    pairs = -(-(placed.stops - placed.starts) // 2)[run]
    start, stop = (placed.starts[run] + 2 * (end * pairs // placed.sharers) for end in (share, share + 1))
    stop = np.minimum(stop, placed.stops[run])
    some = start < stop
    columns = {
        "replica": replica,
        "sample_start": edges[replica],
        "sample_stop": edges[replica + 1],
        "start": start,
        "stop": stop,
    }
    tiles = placed.grid[replica // placed.replicas, part, run]
    return tiles[some], {name: column[some] for name, column in columns.items()}


def parts_of(low: Lowering, layer: str, rows: int, columns_of: Callable[..., Where] | None = None) -> Where:
    """Tiles and columns of a table for every part of weights of so many rows, one part after another: `start` and
    `stop` are the part's range of inputs, `first` and `last` its neurons, `part` its number among a sample's tiles.

    Which of the listed ids are in that range is known only when the spikes are, so a part looks at every id.
    columns_of(low, layer, part): of one part, by default one vertex per sample and tile.
    """
    columns_of = columns_of or _by_sample
    tiles, columns = [], []
    for part, (begin, end) in enumerate(pairwise(low.placed(layer).cut_rows(rows).tolist())):
        where, own = columns_of(low, layer, part)
        own["first"], own["last"] = own["start"], own["stop"]
        own["start"], own["stop"] = np.full(len(where), begin), np.full(len(where), end)
        tiles.append(where)
        columns.append(own)
    return np.concatenate(tiles), {name: np.concatenate([own[name] for own in columns]) for name in columns[0]}


def _by_sample(low: Lowering, layer: str, part: int) -> Where:
    placed = low.placed(layer)
    _, columns = low.by_sample_and_tile(layer, parts=True)
    columns["part"] += part * len(placed.starts)
    columns["fan_in_part"] = np.full(len(columns["part"]), part)
    return placed.grid[placed.copy_of, part].ravel(), columns


def lower_weight_gradient(low: Lowering, gradient: Operation, add: Operation) -> None:
    """synapse_weight_gradient + add: every worker context adds its samples into a replica of its own."""
    layer, (q, spikes) = gradient.layer, gradient.inputs
    dw = low.accumulate(gradient, add)
    ids, counts = replicate_spikes(low, spikes, layer)
    codelet, where = codelets.WEIGHT_GRADIENT, replica_columns(low, layer)
    if low.placed(layer).fan_in_parts > 1:
        codelet, where = WEIGHT_GRADIENT_PART, parts_of(low, layer, low.variables[dw].shape[1], replica_columns)
    operands = {"dw": dw, "q": low.storage[q][0], "ids": ids, "counts": counts}
    low.compute("weight gradient", gradient, codelet, *where, operands, follows=low.origin(spikes))


def lower_input_gradient(low: Lowering, op: Operation) -> None:
    """synapse_spike_gradient: partial sums on the neuron tiles, added up over groups of tiles and then over groups."""
    placed = low.placed(op.layer)
    q, _, weights = (low.storage[name][0] for name in op.inputs)
    codelet, where = codelets.INPUT_GRADIENT, None
    if placed.fan_in_parts > 1:
        codelet, where = INPUT_GRADIENT_PART, parts_of(low, op.layer, low.variables[weights].shape[0])
    emit_parts(low, op, "input gradient", codelet, {"w": weights, "q": q}, placed.grid, where)


def emit_parts(
    low: Lowering,
    op: Operation,
    stage: str,
    codelet: Codelet,
    operands: dict[str, str],
    grid: np.ndarray,
    where: Where | None = None,
) -> None:
    """Numbers at listed ids, the operation's second input, in parts on the tiles of grid[copy], by default one vertex
    for a sample and tile; then their sums."""
    spikes = op.inputs[1]
    ids, counts = replicate_spikes(low, spikes, op.layer)
    partial = _partial_sums(low, op, grid)
    operands = {"partial": partial, "ids": ids, "counts": counts, **operands}
    where = where or low.by_sample_and_tile(op.layer, parts=True)
    low.compute(stage, op, codelet, *where, operands, follows=low.origin(spikes))
    _emit_reduction(low, op, partial, low.storage[spikes][1], _listed_gradient(low, op))


def _stem(low: Lowering, op: Operation) -> str:
    """What variables of an input gradient are named by: the layer, and whose spikes those were."""
    origin = low.origin(op.inputs[1])
    if op.kind == "emitted_gradient":
        return f"{op.layer}.reset"
    if origin.layer == op.layer:
        return f"{op.layer}.own"
    read = low.network.sources(low.layer(op.layer))
    place = [(each.name, each.lag) for each in read].index((origin.layer, -origin.shift))
    return f"{op.layer}.from.{labels_of(read)[place]}" if place else op.layer


def _partial_sums(low: Lowering, op: Operation, grid: np.ndarray) -> str:
    """Gradients at listed ids [part, batch, capacity], one part of a sample on every tile of grid[copy]."""
    placed = low.placed(op.layer)
    part = np.arange(grid[0].size)
    copies = zip(pairwise(placed.batch_edges.tolist()), grid, strict=True)
    mapping = in_bands(
        1, ((begin, end, TileMapping.split(0, tiles.ravel(), part, part + 1)) for (begin, end), tiles in copies)
    )
    shape = (len(part), low.network.batch, op.attributes)
    return low.variable(f"partial.{_stem(low, op)}", shape, "float32", mapping, "gradients")


def _listed_gradient(low: Lowering, op: Operation) -> str:
    """Where an input gradient is summed up: the place of the carry it becomes, or one of its own."""
    name = op.outputs[0]
    if name not in low.storage:
        chips = low.chips_of(op.layer)
        family = ("gradients", low.origin(op.inputs[1]).layer)
        held = low.spread(f"g.{_stem(low, op)}.now", op.attributes, "float32", "gradients", chips, family=family)
        low.storage[name] = (held,)
    return low.storage[name][0]


def gradient_chips(low: Lowering, layer: str) -> Chips:
    """The chips that read the spikes of `layer` a timestep later and sum up their gradients: those of the first other
    layer that does or, without one, its own."""
    read = ((reader.name, source) for reader in low.network.layers for source in low.network.sources(reader))
    return low.placed(next((reader for reader, source in read if source.name == layer and source.lag), layer)).chips


def _emit_reduction(low: Lowering, op: Operation, partial: str, counts: str, g: str) -> None:
    """Partial sums of an input gradient added up over groups of tiles, then over groups, into `g`."""
    origin = low.origin(op.inputs[1])
    plan = low.placement.reductions[op.layer, origin.layer]
    occupied, batch, capacity = low.variables[partial].shape
    groups = max(1, occupied // plan.group_size)
    tiles = plan.tiles_of_vertices(groups)
    mapping = TileMapping.of_elements(tiles)
    stage = low.variable(f"stage.{_stem(low, op)}", (groups, batch, capacity), "float32", mapping, "gradients")
    each = batch * capacity
    operands = {"partial": partial, "counts": counts, "stage": stage}
    with low.superstep("reduce parts", op.kind, layer=op.layer):
        for first, last in ((0, groups - 1), (groups - 1, groups)):  # the last group may be larger
            if first == last:
                continue
            number = np.arange(first, last)
            stop = (number + 1) * plan.group_size
            if last == groups:
                stop[-1] = occupied
            group = np.repeat(compact(number), each)
            alone = plan.group_size == 1  # then the first part of a group has its number
            columns = {
                "part_start": group if alone else np.repeat(compact(number * plan.group_size), each),
                "part_stop": np.repeat(compact(stop), each),
                "group": group,
                "sample": compact(np.tile(np.repeat(np.arange(batch), capacity), last - first)),
                "slot": compact(np.tile(np.arange(capacity), (last - first) * batch)),
            }
            part = tiles[first * each : last * each]
            low.compute("reduce parts", op, codelets.REDUCE_PARTS, part, columns, operands, follows=origin)
    low.compute("reduce groups", op, codelets.REDUCE_GROUPS, *low.slots_of(g), {"stage": stage, "g": g})


def sum_replicas(low: Lowering, outer: str, layer: str, short: str) -> None:
    """The gradient of a parameter from the replicas of its worker contexts; of several copies of a layer, each sums its
    own, and on several chips each chip those of its copies, which then come together along trees; at last every copy
    has a share of the rows."""
    placed = low.placed(layer)
    held = low.storage[outer][0]
    _, rows, neurons = low.variables[held].shape
    chips = placed.chips_of_copies
    in_copies = placed.copies > chips and placed.replicas > 1
    summed = _sum_in_copies(low, layer, short, held) if in_copies else held
    trees = low.trees(layer, rows)
    if chips > 1:
        summed = _sum_over_chips(low, layer, short, summed, trees)
    gradient = low.variable(
        f"gradient.{short}", (rows, neurons), "float32", low.shared(layer, rows), "weight gradients"
    )
    codelet, tiles, columns = low.over_matrix(SUM_REPLICAS, gradient, layer)
    if trees.steps > 1:  # of the chip's own, and of those that pass theirs on last
        codelet = SUM_SOME_REPLICAS
        last = {root: stop for root, _, _, stop in trees.passed_on[1]}
        shares = [
            (0, last[copy // (placed.copies // chips)], begin, end) for copy, begin, end, _ in low.shares(layer, rows)
        ]
        for number, name in enumerate(("first", "last", "row_start", "row_stop")):
            columns[name] = np.repeat([share[number] for share in shares], len(placed.starts))
    operands, defines = {"replicas": summed, "total": gradient}, ((gradient, outer),)
    low.compute("sum replicas", "add", codelet, tiles, columns, operands, layer=layer, defines=defines)
    low.storage[outer] = (gradient,)
    low.outputs[outer] = gradient


def _sum_in_copies(low: Lowering, layer: str, short: str, held: str) -> str:
    """Sums [copies, rows, neurons] of the replicas of each copy, where they lie."""
    _, rows, neurons = low.variables[held].shape
    placed = low.placed(layer)
    summed = low.variable(
        f"sums.{short}",
        (placed.copies, rows, neurons),
        "float32",
        _in_copies(low, layer, 1, rows),
        "weight gradients",
    )
    tiles, columns = low.over_weights(layer, rows)
    columns |= {"first": columns["copy"] * placed.replicas, "last": (columns["copy"] + 1) * placed.replicas}
    operands = {"replicas": held, "totals": summed}
    low.compute("sum replicas", "add", SUM_OWN_REPLICAS, tiles, columns, operands, layer=layer)
    return summed


def _sum_over_chips(low: Lowering, layer: str, short: str, parts: str, trees: Trees) -> str:
    """Sums [chips, rows, neurons] of the parts of every chip, each row on one of its tiles, in the order in which the
    chips are reached along the tree of the chip whose share a row is; and what comes to each of them but the first,
    added step by step."""
    number, rows, neurons = low.variables[parts].shape
    placed = low.placed(layer)
    chips = trees.members
    each = number // chips
    place = np.argsort(trees.order, axis=1)
    found = list(low.sums_on_chips(layer, rows))
    bands: list[list[tuple[int, int, TileMapping]]] = [[] for _ in range(chips)]
    at: dict[tuple[int, int], list[tuple[int, int, np.ndarray]]] = {}  # (whose share, chip) -> rows, tiles
    for share, chip, begin, end, tiles in found:
        bands[place[share, chip]].append((begin, end, low.on_tiles(placed, tiles, 2)))
        at.setdefault((share, chip), []).append((begin, end, tiles))
    summed = low.variable(
        f"chips.{short}",
        (chips, rows, neurons),
        "float32",
        in_bands(0, ((number, number + 1, in_bands(1, own)) for number, own in enumerate(bands))),
        "weight gradients",
    )

    def add(codelet: Codelet, stage: str, operand: str, wanted: list[tuple[int, int, int, int]]) -> None:
        """Of shares on chips (share, chip, first, last): the parts first..last of an operand."""
        rows_of = [
            (place[share, chip], first, last, begin, end, tiles)
            for share, chip, first, last in wanted
            for begin, end, tiles in at.get((share, chip), ())
        ]
        if not rows_of:
            return
        names = ("copy", "first", "last", "row_start", "row_stop")
        neurons = len(placed.starts)
        each = zip(names, np.array([row[:-1] for row in rows_of]).T, strict=True)
        columns = {name: compact_of(column, neurons) for name, column in each}
        edges = {"start": placed.starts, "stop": placed.stops}
        columns |= {name: compact_of(column, len(rows_of), np.tile) for name, column in edges.items()}
        tiles, operands = np.concatenate([row[-1] for row in rows_of]), {"replicas": operand, "totals": summed}
        low.compute(stage, "add", codelet, tiles, columns, operands, layer=layer)

    on_chips = [(share, chip, chip * each, (chip + 1) * each) for share, chip in at]
    add(SUM_OWN_REPLICAS, "sum on chips", parts, on_chips)
    for step in range(trees.steps, 1, -1):
        add(ADD_REPLICAS, f"sum over chips (step {trees.steps - step + 1})", summed, trees.passed_on[step])
    return summed


RULES: Rules = {
    ("synapse_weight_gradient", "add"): lower_weight_gradient,
    ("synapse_spike_gradient",): lower_input_gradient,
}
