"""What a reader is told before the numbers: left-out events, unused chips, numbers beyond their sources."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from mimdsim.base.units import counted
from mimdsim.compiler import Compiled, Placement
from mimdsim.costs.fabric import fabric_of
from mimdsim.costs.isa_costs import costs_of_another, unmatched_cost_names
from mimdsim.execution import TrainingLog
from mimdsim.graph import SpikingNetwork
from mimdsim.machine import GpuMachine, MimdMachine, machine_notes
from mimdsim.machine.codelet_costs import NATIVE
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.pipeline.detail import is_kept
from mimdsim.program import Program
from mimdsim.workload import SpikeDataset, Workload

SOURCED_TILES = 1472  # largest chip behind the numbers in models/
# what a chip's power depends on besides its work
POWERED = ("chip.clock_hz", "chip.tiles", "tile.sram_bytes")
MOST_NAMED = 3  # codelets in a message
# a fifth of the training steps needs this many losses; their means may differ by this share, or this much near zero
MANY_IDLE = 0.1  # share of tiles without neurons that is worth saying
FEWEST_LOSSES, RISE, LEAST_RISE = 4, 0.1, 0.05


def surplus_warning(workload: Workload, data: SpikeDataset) -> Iterator[str]:
    """Whether input events beyond the input capacity were left out of the training samples."""
    every = int(data.counts.sum(dtype=np.int64)) + data.surplus_events
    if data.surplus_events:
        yield (
            f"{data.surplus_events:,} of {every:,} input events ({data.surplus_events / every:.1%}) were beyond the "
            f"input capacity of {workload.data.input_capacity} per timestep and left out at random: raise "
            "data.input_capacity, which takes memory and cycles: all slots of a list are sent, sliced and kept, full "
            "or not"
        )


def no_detail(program: Program) -> Iterator[str]:
    """Said where single tiles are not kept."""
    if not is_kept(program):
        yield (
            f"{program.tiles:,} tiles: what each of them does in every superstep is too much to keep, so there is no "
            "detail.npz and nothing to walk through: use mimdsim explain for one tile and superstep"
        )


def fewer_slots(workload: Workload, network: SpikingNetwork) -> Iterator[str]:
    """Said when the workload gives spike capacities larger than their layers."""
    asked = workload.network.capacity or ((0,) * (len(network.layers) - 1) + (workload.network.output_capacity,))
    found = [
        f"{slots:,} for the {layer.neurons:,} neurons of {layer.name}"
        for slots, layer in zip(asked, network.layers, strict=True)
        if slots > layer.neurons
    ]
    if found and workload.network.spikes != "dense":
        key = "network.capacity" if workload.network.capacity else "network.output_capacity"
        most = "a list has at most as many slots as its layer has neurons, so no more were made"
        yield f"{key}: {', '.join(found)}: {most}"


def repeated_samples(workload: Workload, data: SpikeDataset) -> Iterator[str]:
    """Said when a batch is larger than the number of training samples, so that it holds some of them repeatedly."""
    batch, share = workload.training.batch, workload.training.validation_share
    trained_on = data.samples - round(share * data.samples)
    if batch <= trained_on:
        return
    less = [f"data.train_samples = {workload.data.train_samples:,}"] if workload.data.train_samples else []
    less += [f"training.validation_share = {share:g}"] if share else []
    why = f" ({', '.join(less)})" if less else ""
    there = f"there {'is' if trained_on == 1 else 'are'} {counted(trained_on, 'sample')}"
    yield (
        f"training.batch = {batch:,}, but {there} to train on{why}: every batch holds "
        f"samples more than once; set training.batch to at most {max(trained_on, 1):,}, or take more samples"
    )


def machine_warnings(
    compiled: Compiled, machine: MimdMachine, changes: Collection[str] = (), named: str = ""
) -> Iterator[str]:
    """What limits the numbers of a machine; changes: what it was loaded with; named: what its sentences begin with."""
    yield from other_costs(compiled.program, machine)
    said = (
        *machine_notes(machine),
        *useless_strips(compiled.program, machine),
        *beyond_sources(machine),
        *unscaled_energy(machine, changes),
        *unused_chips(compiled, machine),
    )
    yield from (f"{named}{text}" for text in said)


def gpu_notes(gpus: Collection[GpuMachine]) -> Iterator[str]:
    """What is said of the descriptions of GPUs."""
    yield from (f"{gpu.name}: {text}" for gpu in gpus for text in machine_notes(gpu))


def useless_strips(program: Program, machine: MimdMachine) -> Iterator[str]:
    """Said when tiles are laid in strips where it does not matter where they lie."""
    if program.strip_columns and not fabric_of(machine).knows_distance:
        where = f"on {machine.name} no exchange depends on where tiles lie"
        yield f"mapping.strip_columns: has no effect, because {where}; see exchange.hop_cycles"


def unused_chips(compiled: Compiled, machine: MimdMachine) -> Iterator[str]:
    """Said when the layers fit fewer chips than the machine has."""
    used, asked = compiled.placement.chips, machine.links.chips
    if used < asked:
        yield f"{used} of {asked} chips used: {compiled.placement.what_fills_chips}"


def beyond_sources(machine: MimdMachine) -> Iterator[str]:
    """Said when a machine has more tiles than the sources of its sync and exchange costs, or a network with hops, whose
    links carry the messages of others too."""
    hops = {"sync": machine.sync.hop_cycles, "exchange": machine.exchange.hop_cycles}
    if (without := [f"{name}.hop_cycles" for name, cycles in hops.items() if not cycles]) and (
        machine.chip.tiles > SOURCED_TILES
    ):
        costs = " and ".join(key.partition(".")[0] for key in without)
        yield (
            f"{machine.chip.tiles:,} tiles: the costs of {costs} come from chips of at most {SOURCED_TILES:,} tiles "
            f"and do not grow with distance; set {' and '.join(without)}"
        )
    if machine.exchange.hop_cycles and (limits := fabric_of(machine).limits):
        yield f"exchange.hop_cycles = {machine.exchange.hop_cycles:g}: {limits}"


def other_costs(program: Program, machine: MimdMachine) -> Iterator[str]:
    """Said when codelets have no costs of the machine's instruction set, and of costs that no codelet has."""
    if names := costs_of_another(program, machine):
        many = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
        yield (
            f'{machine.name} runs the instruction set "{machine.tile.instruction_set}", but the costs of '
            f'{len(names):,} codelets ({", ".join(names[:MOST_NAMED])}{many}) are those of "{NATIVE}": times, ratios '
            "and energy are unknown. Give its own in the machine's file: [costs.core], [costs] with "
            "bundles_per_operation and vertex_bundles, or [costs.codelets.NAME] with fixed, terms and source"
        )
    if unused := unmatched_cost_names(program, machine):
        yield f"{machine.name}, costs.codelets: no codelet of this program is called {', '.join(unused)}"


def unscaled_energy(machine: MimdMachine, changes: Collection[str]) -> Iterator[str]:
    """Said when a change to a machine affects its power, but numbers of its energy do not follow."""
    energy, changed = machine.energy, [key for key in POWERED if key in changes]
    if not changed or energy is None or any(key.startswith("energy.") for key in changes):
        return
    if energy.static_watts is not None:
        yield (
            f"energy: {', '.join(changed)} changed, but static power stays at {energy.static_watts:g} W and joules per "
            "bundle, flop and byte stay as described (for its voltage): set energy.static_watts and the others too, or "
            "describe [area] and [power]"
        )
    elif sizes := [key for key in changed if key != "chip.clock_hz"]:
        yield (
            f"energy: {', '.join(sizes)} changed: area and static power follow, joules per bundle and byte stay those "
            "of the described memory and distances: set energy.bundle_joules and energy.exchange_joules_per_byte too"
        )


def stash_note(workload: Workload, gpus: tuple[GpuMachine, ...]) -> Iterator[str]:
    """Said when tiles recompute forward values and GPUs do not."""
    if gpus and workload.mapping.stash != "everything":
        yield (
            f'mapping.stash = "{workload.mapping.stash}" applies to tiles only: GPU strategies keep every value of '
            'every timestep in memory and recompute nothing; compare with mapping.stash = "everything" too'
        )


def engine_note(log: TrainingLog) -> Iterator[str]:
    """Said when whole tensors could not train the network, and the slower compiled program did."""
    if log.engine_reasons:
        layers: dict[str, list[str]] = {}  # by what is said of them
        for reason in log.engine_reasons:
            name, is_of_layer, why = reason.partition("; use ")[0].rpartition("': ")
            layers.setdefault(why, []).extend([name.removeprefix("layer '")] if is_of_layer else [])
        reasons = "; ".join(f"{why} ({', '.join(names)})" if names else why for why, names in layers.items())
        yield f"trained by the compiled program, which is exact and slower: {reasons}"


def loss_warning(log: TrainingLog) -> Iterator[str]:
    """Said when training went wrong: the loss ended higher than it began."""
    advice = "lower training.learning_rate or clip gradients (training.largest_gradient_norm)"
    loss = np.asarray(log.loss, np.float64)
    part = len(loss) // 5
    if part < FEWEST_LOSSES:
        return
    first, last = loss[:part].mean(), loss[-part:].mean()
    if not last <= first + max(RISE * abs(first), LEAST_RISE):
        yield (
            f"the loss rose from {first:.4g} (first fifth of {len(loss):,} training steps) to {last:.4g} (last): the "
            f"spikes that are timed may not be those of a trained network; {advice}"
        )


def rounded_tiles(workload: Workload, placement: Placement) -> Iterator[str]:
    """Said when the published rule decides by a step: neurons per tile in whole vectors of halves, or many tiles left
    without neurons because one neuron less per tile would not fit."""
    mapping = workload.mapping
    if placement.arrays is not None or mapping.split or mapping.neurons_per_tile:
        return
    each, unit = placement.neurons_per_tile, mapping.tile_unit
    used = sum(layer.tiles.size for layer in placement.layers)
    if unit > mapping.neurons_unit:
        yield (
            f"mapping.value_bytes = {mapping.value_bytes} makes neurons per tile a multiple of {unit} instead of "
            f"{mapping.neurons_unit}: {each:,} on each of {used:,} tiles"
        )
    idle = placement.tiles - placement.reserved_tiles - placement.idle_tiles * placement.chips - used
    if each > unit and idle > MANY_IDLE * placement.tiles:
        yield (
            f"{idle:,} of {placement.tiles:,} tiles hold no neurons: the published rule gives every tile the same "
            f"number, and {each - unit:,} a tile would need more tiles than there are; `mimdsim place` finds other "
            "mappings"
        )


def half_warning(workload: Workload) -> Iterator[str]:
    """Said when values are halves: which effects of half arithmetic the loss does not show; and which weights are kept
    twice."""
    if named := workload.network.weight_format:
        yield (
            f"network.weight_format = {named}: weights act as such, beside a copy as parameters are, which is trained; "
            f"cores without arithmetic in it (costs.core.{FORMATS[named].core}) convert them, which is counted"
        )
    if workload.mapping.number_format:
        yield (
            "mapping.value_bytes = bfloat16: what a vertex writes is rounded to it, its sums are kept in float32; "
            "cores without arithmetic in it (costs.core.bfloat16) convert what they load and store, which is counted"
        )
    elif workload.mapping.value_bytes != 4:
        yield (
            "mapping.value_bytes = 2: memory, exchange and cycles are those of half precision, and what a vertex "
            "writes is rounded to it; sums inside a vertex are kept in float32: adding in half precision may affect "
            "loss and accuracy more than shown"
        )
