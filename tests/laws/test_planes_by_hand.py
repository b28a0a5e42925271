"""Patches counted by hand: cycles of their vertices loop by loop, and bytes of halos pixel by pixel."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np
import pytest
from by_hand import timed
from networks import compiled, given_values, machine
from test_convolutions import after, network_of_planes

from mimdsim.compiler import Compiled
from mimdsim.execution import Executor
from mimdsim.graph.convolution import Convolution, Planes, Window
from mimdsim.program import Superstep, Variable

CONTEXTS, TILES = 6, 24
FIXED = 39  # launch, frame, eight whole numbers and two arrays unpacked
FIRST = Convolution(planes=Planes(channels=2, height=8, width=7), window=Window(kernel=(3, 3)), channels=5)
SECOND = replace(after(FIRST, 2, 4), window=Window(kernel=(2, 2), padding=(1, 1)))


@pytest.fixture(scope="module")
def made() -> Compiled:
    return compiled(network_of_planes(FIRST, SECOND, batch=2), tiles=TILES, contexts=CONTEXTS)


def supersteps_named(made: Compiled, name: str) -> list[Superstep]:
    """Forward, and for weight gradients once more."""
    return [superstep for superstep, _, _ in made.program.supersteps() if superstep.name == name]


def boxes(superstep: Superstep) -> list[tuple[int, range, range]]:
    """Tile, rows and columns of every vertex."""
    (table,) = superstep.tables
    names = ("row_start", "row_stop", "start", "stop")
    ends = zip(*(np.asarray(table.columns[name]).tolist() for name in names), strict=True)
    return [
        (tile, range(top, bottom), range(left, right))
        for tile, (top, bottom, left, right) in zip(table.tiles.tolist(), ends, strict=True)
    ]


def bundles(rows: range, columns: range, kernel: tuple[int, int]) -> float:
    """Of a vertex: the position of each row, bounds of each row of taps that is begun, a load and a store of each."""
    total = float(FIXED)
    for _ in rows:
        total += 14
        for _ in columns:
            total += 2 + 5 / kernel[1]
    return total


@pytest.mark.parametrize(("name", "kernel"), [("hidden0", (3, 3)), ("hidden1", (2, 2)), ("output", (7, 6))])
def test_cycles_of_patches(made: Compiled, name: str, kernel: tuple[int, int]) -> None:
    network, cycles = made.network, 0
    for superstep in supersteps_named(made, f"unfold {name}"):
        on_tiles: dict[int, list[float]] = defaultdict(list)
        for tile, rows, columns in boxes(superstep):
            on_tiles[tile].append(bundles(rows, columns, kernel))
        in_turn = [sum(each[context::CONTEXTS]) for each in on_tiles.values() for context in range(CONTEXTS)]
        cycles += network.timesteps * ceil(round(CONTEXTS * max(in_turn), 6))
    executor = Executor(made.program)
    executor.write(given_values(network, 3).for_program(network))
    executor.run()
    profile = timed(made.program, machine(TILES, CONTEXTS, 1), executor.activity())
    assert sum(span.compute_cycles for span in profile.spans if span.name == f"unfold {name}") == cycles > 0


def pixels_of_run(places: range, taps: set[int], convolution: Convolution) -> set[tuple[int, int]]:
    """Sample and pixel of all from the first to the last that these taps of windows at these places cover."""
    planes, window = convolution.read, convolution.window
    across, count = window.places(planes)[1], int(np.prod(window.places(planes)))
    covered = set()
    for place in places:
        sample, (down, right) = place // count, divmod(place % count, across)
        for i, j in (divmod(tap, window.kernel[1]) for tap in taps):
            y = down * window.stride[0] + i * window.dilation[0] - window.padding[0]
            x = right * window.stride[1] + j * window.dilation[1] - window.padding[1]
            if 0 <= y < planes.height and 0 <= x < planes.width:
                covered.add(sample * planes.positions + y * planes.width + x)
    run = range(min(covered, default=0), max(covered, default=-1) + 1)
    return {divmod(pixel, planes.positions) for pixel in run}


@pytest.mark.parametrize(("name", "convolution", "by_channel"), [("hidden0", FIRST, True), ("hidden1", SECOND, False)])
def test_bytes_of_halos(made: Compiled, name: str, convolution: Convolution, by_channel: bool) -> None:
    """What a tile receives is the receptive field of its places without what it holds; every element once."""
    superstep, planes, taps = supersteps_named(made, f"unfold {name}")[0], convolution.read, convolution.window.taps
    (table,) = superstep.tables
    source: Variable = made.program.variables[table.operands["source"]]
    needed: dict[int, set[tuple[int, int]]] = defaultdict(set)  # elements of the variable by tile
    for tile, rows, columns in boxes(superstep):
        channels = {column // taps for column in columns}
        read = {column % taps for column in columns}  # of planes side by side a vertex has one channel
        for (sample, pixel), channel in product(pixels_of_run(rows, read, convolution), channels):
            apart = (sample, channel * planes.positions + pixel)
            needed[tile].add(apart if by_channel else (sample * planes.positions + pixel, channel))
    assert superstep.exchange is not None
    received = superstep.exchange.bytes_received
    for tile in range(TILES):
        rows_and_columns = np.array(sorted(needed[tile]), np.int64).reshape(-1, 2)
        elements = np.ravel_multi_index(tuple(rows_and_columns.T), source.shape)
        away = source.mapping.owners(elements if source.mapping.axis < -1 else rows_and_columns[:, source.mapping.axis])
        assert received[tile] == 4 * np.count_nonzero(away != tile), tile
    assert received.any()
