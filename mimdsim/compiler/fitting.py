"""A program that does not fit is refused with the numbers, and with what would save how much."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimdsim.base.errors import DoesNotFit
from mimdsim.base.units import show_bytes
from mimdsim.compiler.liveness import Memory
from mimdsim.compiler.placement import MappingOptions, Placement
from mimdsim.graph import Adam, SpikingNetwork
from mimdsim.machine import MimdMachine
from mimdsim.program import Program, Variable


def check_fits(
    program: Program,
    memory: Memory,
    machine: MimdMachine,
    network: SpikingNetwork,
    placement: Placement,
    options: MappingOptions,
) -> None:
    """Raise DoesNotFit when a tile needs more than it has: tile, variable, bytes, and three things to change."""
    available = machine.tile.sram_bytes
    needed = memory.peak_bytes
    if needed <= available:
        return
    tile = memory.peak_tile
    name, size = memory.largest(tile, 1)[0]
    over = int((memory.peak_by_tile > available).sum())
    lines = [
        f"does not fit {machine.name}: tile {tile} ({program.layer_of_tile[tile] or 'no neurons'}) needs "
        f"{needed:,} bytes ({show_bytes(needed)}) and has {available:,} ({show_bytes(available)}); "
        f"{over} of {program.tiles} tiles are over.",
        f"  largest there: {name}, {size:,} bytes ({program.variables[name].category}), "
        f"in superstep '{memory.names[memory.peak_superstep]}'",
        "  three things to change:",
    ]
    for saved, advice in suggestions(program, memory, network, placement, options)[:3]:
        left = needed - saved - available
        verdict = "then it fits" if left <= 0 else f"still {show_bytes(left)} over"
        lines.append(f"  - {advice}: saves {saved:,} bytes ({show_bytes(saved)}), {verdict}")
    raise DoesNotFit("\n".join(lines))


def suggestions(
    program: Program, memory: Memory, network: SpikingNetwork, placement: Placement, options: MappingOptions
) -> list[tuple[int, str]]:
    """(bytes saved on the fullest tile, what to type), largest saving first."""
    tile = memory.peak_tile

    def held(matches: Callable[[str, Variable], bool]) -> int:
        return sum(
            int(row[tile]) for name, row in memory.variable_bytes.items() if matches(name, program.variables[name])
        )

    advice: list[tuple[int, str]] = []
    replicas = options.weight_gradient_replicas
    dw = held(lambda name, _: name.startswith("dw."))
    if replicas > 1:
        fewer = max(1, replicas // 3)
        text = f"mapping.weight_gradient_replicas = {fewer} instead of {replicas} (fewer contexts add in parallel)"
        advice.append((dw - dw * fewer // replicas, text))
    if isinstance(network.optimiser, Adam):
        moments = held(lambda _, variable: variable.category == "optimiser")
        advice.append((moments, 'training.optimiser = "sgd" instead of "adam"'))
    by_fan_in = held(lambda _, variable: variable.category in ("weights", "weight gradients", "optimiser"))
    layer = program.layer_of_tile[tile]
    if network.layers and layer == network.layers[0].name:
        text = "a smaller input: data.grid at 3/4 of the width and height (7/16 fewer inputs)"
        advice.append((by_fan_in * 7 // 16, text))
    if placement.neurons_per_tile > options.neurons_unit:
        text = (
            f"half the neurons per tile ({placement.neurons_per_tile} now): narrower network.hidden, "
            "or a machine with twice the tiles"
        )
        advice.append((by_fan_in // 2, text))
    sequences = held(lambda name, _: name.endswith(".sequence"))
    advice.append((sequences // 2, f"data.timesteps = {network.timesteps // 2} instead of {network.timesteps}"))
    per_batch = held(lambda _, variable: network.batch in variable.shape) + int(
        np.asarray(memory.overhead_bytes["exchange buffers"])[tile]
    )
    advice.append((per_batch // 2, f"training.batch = {network.batch // 2} instead of {network.batch}"))
    advice = [(saved, text) for saved, text in advice if saved > 0]
    return sorted(advice, key=lambda item: -item[0])
