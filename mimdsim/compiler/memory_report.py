"""The memory of a compiled program as profile records, and what is said when it does not fit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, get_args

from mimdsim.base.cache import PerObject
from mimdsim.base.compressed_columns import numbers
from mimdsim.base.errors import DoesNotFit, MappingError, MimdsimError
from mimdsim.base.schema import toml_value
from mimdsim.base.units import show_bytes
from mimdsim.compiler.liveness import Memory, memory_of, variables_behind
from mimdsim.costs.memory_behind_tiles import refuse_behind_tiles, transfers_of, whole_transfer_cycles
from mimdsim.graph import Layer, Sgd, SpikingNetwork
from mimdsim.graph.names import INPUT
from mimdsim.graph.stash import stash_policy
from mimdsim.machine import MimdMachine
from mimdsim.profile import Liveness, MemoryProfile
from mimdsim.profile.records import code_without_room
from mimdsim.program import Program
from mimdsim.workload.description.mapping import Behind, MappingOptions

# peak bytes of the fullest tile when a changed network is compiled with changed options
PeakOf = Callable[[SpikingNetwork, MappingOptions], int]


# assumed: so many times all tile memory by themselves; no choice of mapping helps, and placing them takes minutes and
# gigabytes. Less than that is compiled, so that a refusal names the tile and what would help
HOPELESS_WEIGHTS, HOPELESS_STATES = 10, 2
LARGEST_KNOWN = 16 << 30  # bytes; the 16 chips of the largest published system of the reference have 14 GiB


def refuse_hopeless(
    network: SpikingNetwork, machine: MimdMachine, options: MappingOptions, must_fit: bool = True
) -> None:
    """Raise DoesNotFit for weights or kept states far beyond the memory of all tiles, before they are placed.

    must_fit False: how much is too much is to be told, so only what is far beyond any machine is refused.
    """
    weights = sum(layer.fan_in * layer.neurons for layer in network.layers)
    kept = -(-network.timesteps // max(1, stash_policy(options.stash).segment))
    states = kept * network.batch * sum(layer.neurons for layer in network.layers)  # one of each neuron, at the least
    available = machine.chip.tiles * machine.links.chips * machine.tile.sram_bytes
    beyond = f"all its tiles together have {show_bytes(available)}"
    available = available if must_fit else max(available, LARGEST_KNOWN)
    if weights * options.item_bytes > HOPELESS_WEIGHTS * available:
        raise DoesNotFit(
            f"does not fit {machine.name}: {weights:,} weights are {show_bytes(weights * options.item_bytes)}, "
            f"{beyond}: lower network.hidden, or raise links.chips"
        )
    behind, advice = machine.memory, ""
    if behind is not None and "stash" in options.behind_tiles:
        available += behind.capacity_bytes * machine.links.chips
    elif behind is not None:
        advice = ', or keep them behind the tiles (mapping.behind_tiles = ["stash"])'
    if states * options.item_bytes > HOPELESS_STATES * available:
        raise DoesNotFit(
            f"does not fit {machine.name}: {states:,} neuron states ({kept:,} timesteps kept for the backward pass, "
            f"batch {network.batch:,}) are {show_bytes(states * options.item_bytes)}, {beyond}: lower training.batch "
            f'or data.timesteps, or keep fewer (mapping.stash = "every:K"){advice}'
        )


def check_fits(
    program: Program,
    memory: Memory,
    machine: MimdMachine,
    network: SpikingNetwork,
    options: MappingOptions,
    peak_of: PeakOf,
) -> None:
    """Raise DoesNotFit when a tile needs more than it has: tile, variable, bytes, and three things to change."""
    if machine.tile.executable_bytes < machine.tile.sram_bytes:  # else what follows says it, and what to change
        _check_executable(program, memory, machine)
    available = machine.tile.sram_bytes
    needed = memory.peak_bytes
    if needed <= available:
        return
    alone = code_without_room(int(memory.code.max()), machine.tile.sram_bytes)
    tile = memory.peak_tile
    name, size = memory.largest(tile, 1)[0]
    over = int((memory.peak_by_tile > available).sum())
    lines = [
        f"does not fit {machine.name}: {alone and f'{alone}; '}"
        f"tile {tile} ({program.layer_of_tile[tile] or 'no neurons'}) needs "
        f"{needed:,} bytes ({show_bytes(needed)}) and has {available:,} ({show_bytes(available)}); "
        f"{over} of {program.tiles} tiles are over.",
        f"  largest there: {name}, {size:,} bytes ({program.variables[name].category}), "
        f"in superstep '{memory.names[memory.peak_superstep]}'",
        "  three things to change (each tried on its own):",
    ]
    saving: list[tuple[int, str]] = []
    for advice, other, chosen in remedies(network, options):
        with contextlib.suppress(MimdsimError):  # what the split of the layers does not allow
            saving.append((needed - peak_of(other, chosen), advice))
    for saved, advice in sorted(saving, key=lambda item: -item[0])[:3]:
        left = needed - saved - available
        verdict = "then it fits" if left <= 0 else f"still {show_bytes(left)} over"
        lines.append(f"  - {advice}: saves {saved:,} bytes ({show_bytes(saved)}), {verdict}")
    if machine.memory is not None:
        lines += _behind_tiles_advice(program, machine, options)
    if network.spikes == "sparse":
        lines.append("  or another mapping of the same: mimdsim place looks for one that fits")
    raise DoesNotFit("\n".join(lines))


def _behind_tiles_advice(program: Program, machine: MimdMachine, options: MappingOptions) -> Iterator[str]:
    """What makes the program fit from behind the tiles, one kind of variables or as few as it takes, and what each
    moves."""
    others = [kind for kind in get_args(Behind) if kind not in options.behind_tiles]
    over = 0
    for count in range(1, len(others) + 1):
        found = False
        for added in combinations(others, count):
            chosen = (*options.behind_tiles, *added)
            changed = replace(program, behind_tiles=variables_behind(program, chosen))
            try:
                refuse_behind_tiles(changed, machine)
            except MimdsimError:
                continue
            over = memory_of(changed, machine).peak_bytes - machine.tile.sram_bytes
            if over <= 0:
                found = True
                moved, cycles = transfers_of(changed).bytes_moved(changed), whole_transfer_cycles(changed, machine)
                yield (
                    f"  or mapping.behind_tiles = {toml_value(chosen)} would fit: streams {moved:,} bytes "
                    f"({show_bytes(moved)}) in all, {cycles:,} cycles where compute hides none of them"
                )
        if found:
            return
    if over > 0:
        yield f"  mapping.behind_tiles = {toml_value(get_args(Behind))} would still be {show_bytes(over)} over"


def fits_executable(memory: Memory, machine: MimdMachine) -> bool:
    """Whether code and vertex state of every tile lie in its executable region."""
    return int((memory.code + memory.vertices).max()) <= machine.tile.executable_bytes


def _check_executable(program: Program, memory: Memory, machine: MimdMachine) -> None:
    """Code and vertex state must lie in the executable region of a tile."""
    needed = memory.code + memory.vertices
    tile, limit = int(needed.argmax()), machine.tile.executable_bytes
    if not fits_executable(memory, machine):
        raise DoesNotFit(
            f"code and vertex state do not fit the executable region of {machine.name}: tile {tile} "
            f"({program.layer_of_tile[tile] or 'no neurons'}) needs {int(memory.code[tile]):,} bytes of code and "
            f"{int(memory.vertices[tile]):,} of vertex state, the region has {limit:,} ({show_bytes(limit)}): take a "
            "smaller batch or capacity, fewer timesteps or layers, or fewer weight gradient replicas; or, where code "
            "may lie in more of a tile's memory, a larger tile.executable_bytes"
        )


def remedies(network: SpikingNetwork, options: MappingOptions) -> Iterator[tuple[str, SpikingNetwork, MappingOptions]]:
    """(what to type, the changed network, the changed options)."""
    replicas = options.weight_gradient_replicas
    if replicas > 1 and network.spikes == "sparse":
        fewer = max(1, replicas // 3)
        advice = f"mapping.weight_gradient_replicas = {fewer} instead of {replicas} (fewer contexts add in parallel)"
        yield advice, network, options.model_copy(update={"weight_gradient_replicas": fewer})
    made = network.optimiser
    if made.state:
        name = (made.decays if made.weight_decay else made.names)[0]
        advice = f'training.optimiser = "sgd" instead of "{name}"'
        if isinstance(made, Sgd):
            advice = f"training.momentum = 0 instead of {made.momentum:g}"
        yield advice, replace(network, optimiser=Sgd(learning_rate=made.learning_rate)), options
    if any(layer.recurrence == "all_to_all" for layer in network.layers):
        own = tuple(
            replace(layer, recurrence="one_to_one") if layer.recurrence == "all_to_all" else layer
            for layer in network.layers
        )
        yield 'network.recurrence = "one_to_one" instead of "all_to_all"', replace(network, layers=own), options
    if any(layer.norm and layer.norm.per == "sequence" for layer in network.layers):
        per = {"sequence": "timestep"}
        every = [layer.norm for layer in network.layers]
        norms = [norm and replace(norm, per=per.get(norm.per, norm.per)) for norm in every]
        alike = tuple(replace(layer, norm=norm) for layer, norm in zip(network.layers, norms, strict=True))
        advice = 'network.batch_norm = "timestep" instead of "sequence" (keeps no sequences of what is normalised)'
        yield advice, replace(network, layers=alike), options
    first = network.layers[0]
    inputs = first.inputs * 9 // 16  # 3/4 of the width and height of a sensor
    for smaller in _resized(network, {INPUT: inputs}, input_capacity=min(network.input_capacity, inputs)):
        yield f"{inputs:,} inputs instead of {first.inputs:,} (3/4 of a sensor's width and height)", smaller, options
    segment = _segment(network, options)
    if segment:
        advice = f'mapping.stash = "every:{segment}" instead of "everything" (states of segments; neurons run again)'
        yield advice, network, options.model_copy(update={"stash": f"every:{segment}"})
    unit = max(1, stash_policy(options.stash).segment)
    half = network.timesteps // 2 // unit * unit
    if half > network.oldest_age:
        yield f"data.timesteps = {half} instead of {network.timesteps}", replace(network, timesteps=half), options
    if network.batch > 1:
        half = network.batch // 2
        yield f"training.batch = {half} instead of {network.batch}", replace(network, batch=half), options
    if len(network.layers) > 1:
        narrow = [max(1, layer.neurons // 2) for layer in network.layers[:-1]]
        widths = ", ".join(str(width) for width in narrow)
        advice = f"network.hidden = [{widths}], half as wide"
        hidden = {layer.name: width for layer, width in zip(network.layers, narrow, strict=False)}
        yield from ((advice, smaller, options) for smaller in _resized(network, hidden))


def _resized(network: SpikingNetwork, widths: dict[str, int], **more: Any) -> Iterator[SpikingNetwork]:
    """The network with other widths, where its planes, and sums of spikes, allow them."""
    with contextlib.suppress(MappingError):
        if all(widths.values()):
            yield replace(network, layers=with_widths(network, widths), **more)


def _segment(network: SpikingNetwork, options: MappingOptions) -> int:
    """Timesteps of a segment with which least is kept of potentials, 0 where everything is kept anyway.

    T / K states between segments and K within one are least where K is the root of T.
    """
    if network.spikes == "dense" or options.stash != "everything" or options.spike_exchange == "dense":
        return 0
    whole = [k for k in range(2, network.timesteps // 2 + 1) if network.timesteps % k == 0]
    return min(whole, key=lambda k: network.timesteps // k + k, default=0)


def with_widths(network: SpikingNetwork, changed: dict[str, int]) -> tuple[Layer, ...]:
    """The layers with other widths, of some of them or of the input; capacities stay unless they exceed the width."""
    widths = {INPUT: network.inputs} | {layer.name: layer.neurons for layer in network.layers} | changed
    return tuple(
        replace(
            layer,
            inputs=network.sources(layer)[0].sized(widths, network.planes_of).neurons,
            sources=tuple(each.sized(widths, network.planes_of) for each in layer.sources),
            neurons=widths[layer.name],
            selection=replace(layer.selection, capacity=min(layer.selection.capacity, widths[layer.name])),
        )
        for layer in network.layers
    )


_KNOWN: PerObject[MemoryProfile] = PerObject()  # for re-timing


def memory_profile(program: Program, memory: Memory, machine: MimdMachine) -> MemoryProfile:
    """The compiler's memory measurement as profile records, beside the limit of `machine`."""
    limit, code_fits = machine.tile.sram_bytes, fits_executable(memory, machine)

    def made() -> MemoryProfile:
        known = _KNOWN.get(memory, None, lambda: _profile(program, memory, limit))
        return replace(known, limit_bytes=limit, code_fits=code_fits)

    return _KNOWN.get(memory, (limit, code_fits), made)


def _profile(program: Program, memory: Memory, limit_bytes: int) -> MemoryProfile:
    peak_tile = memory.peak_tile
    largest = tuple((name, program.variables[name].category, size) for name, size in memory.largest(peak_tile, 12))
    curve = tuple(
        Liveness(
            superstep=name,
            phase=phase,
            fullest_tile=int(tile),
            fullest_tile_bytes=int(fullest),
            total_bytes=int(total),
        )
        for name, phase, tile, fullest, total in zip(
            memory.names, memory.phases, memory.fullest_tile, memory.fullest_bytes, memory.total_bytes, strict=True
        )
    )
    return MemoryProfile(
        limit_bytes=limit_bytes,
        peak_tile=peak_tile,
        peak_bytes=memory.peak_bytes,
        categories=memory.categories,
        bytes_by_category_and_tile=tuple(numbers(row) for row in memory.by_category),
        peak_bytes_by_tile=numbers(memory.peak_by_tile),
        always_live_bytes_by_tile=numbers(memory.always),
        largest_on_peak_tile=largest,
        liveness=curve,
    )
