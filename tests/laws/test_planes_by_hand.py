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

SIX = replace(FIRST, channels=6)
GROUPED = {"depthwise": after(SIX, 3, 6, groups=6), "two groups": after(SIX, 3, 4, groups=2)}


@pytest.fixture(scope="module")
def made() -> Compiled:
    return compiled(network_of_planes(FIRST, SECOND, batch=2), tiles=TILES, contexts=CONTEXTS)


@pytest.fixture(scope="module", params=GROUPED.values(), ids=GROUPED)
def grouped(request: pytest.FixtureRequest) -> Compiled:
    """hidden1 has groups."""
    return compiled(network_of_planes(SIX, request.param, batch=2), tiles=TILES, contexts=CONTEXTS)


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
    assert_cycles_of_patches(made, name, kernel)


def assert_cycles_of_patches(made: Compiled, name: str, kernel: tuple[int, int]) -> None:
    network, cycles = made.network, 0
    for superstep in supersteps_named(made, f"unfold {name}"):
        on_tiles: dict[int, list[float]] = defaultdict(list)
        for tile, rows, columns in boxes(superstep):
            on_tiles[tile].append(bundles(rows, columns, kernel))
        in_turn = [sum(each[context::CONTEXTS]) for each in on_tiles.values() for context in range(CONTEXTS)]
        cycles += network.timesteps * ceil(round(CONTEXTS * max(in_turn), 6))
    assert timed_cycles(made, f"unfold {name}") == cycles > 0


def timed_cycles(made: Compiled, name: str) -> int:
    executor = Executor(made.program)
    executor.write(given_values(made.network, 3).for_program(made.network))
    executor.run()
    profile = timed(made.program, machine(TILES, CONTEXTS, 1), executor.activity())
    return sum(span.compute_cycles for span in profile.spans if span.name == name)


def test_cycles_of_groups(grouped: Compiled) -> None:
    """Patches as those of one group; a product on the matrix unit for each vertex, of the weights of its group alone:
    8 of the inputs that an output has in a pass, and 16 outputs past which places stream, or 16 places and outputs."""
    assert_cycles_of_patches(grouped, "hidden1", (3, 3))
    convolution = grouped.network.layers[1].convolution
    assert convolution is not None
    (superstep,) = supersteps_named(grouped, "multiply current.hidden1")
    assert len(superstep.tables[0].tiles) == len(np.unique(superstep.tables[0].tiles))
    unit = machine(TILES, CONTEXTS, 1).matrix
    assert unit is not None
    inputs, most = convolution.read.channels // convolution.groups * 9, 0
    (table,) = superstep.tables
    begin, end = (np.asarray(table.columns[f"inner_{each}"]) for each in ("start", "stop"))
    for (_, rows, columns), first, last in zip(boxes(superstep), begin.tolist(), end.tolist(), strict=True):
        group = {column * convolution.groups // convolution.channels for column in columns}
        assert group == {first // inputs} == {(last - 1) // inputs}  # no inputs but those of the group
        positions, held = (rows, columns) if "turned" in table.codelet.name else (columns, rows)
        passes = ceil(len(held) / unit.units("f32", "f32")), ceil((last - first) / unit.channels("f32"))
        most = max(most, product_cycles(len(positions), *passes))
    assert timed_cycles(grouped, superstep.name) == grouped.network.timesteps * most


def product_cycles(positions: int, row_passes: int, inner_passes: int) -> int:
    """Of one vertex of the library (ConvPartial1x1Out in float32). Six contexts take turns, each for its positions: 9
    bundles for none, 44 for one, 50 for two, 52 and 8 more for each beyond three; sums are set to zero by 2 and 8 for
    each. A context takes 8 once, and 3 at every group of inputs. Before every pass 16 x 8 coefficients of 4 bytes are
    loaded."""
    unit = machine(TILES, CONTEXTS, 1).matrix
    assert unit is not None
    loaded = 16 * 8 * 4 // unit.coefficient_load_bytes_per_cycle
    most = ceil(positions / CONTEXTS)
    each = (9, 44, 50)[most] if most < 3 else 52 + 8 * (most - 3)
    set_to_zero, added = CONTEXTS * (each + 2 + 8 * most), CONTEXTS * each
    first = 11 + row_passes * (18 + 7 + loaded + set_to_zero)
    later = (inner_passes - 1) * (14 + 1 + row_passes * (19 + 6 + loaded + added))
    return 50 + 13 + CONTEXTS * (8 + 3 * inner_passes) + first + later


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
    assert_bytes_of_halos(made, name, convolution, by_channel)


def test_bytes_of_halos_of_groups(grouped: Compiled) -> None:
    """A tile receives planes of the groups that it computes alone."""
    convolution = grouped.network.layers[1].convolution
    assert convolution is not None
    assert_bytes_of_halos(grouped, "hidden1", convolution, False)
    arrays = grouped.placement.arrays
    assert arrays is not None
    each = (TILES - arrays.first_tile) // convolution.groups
    for tile, _, columns in boxes(supersteps_named(grouped, "unfold hidden1")[0]):
        groups = {column // (9 * SIX.channels // convolution.groups) for column in columns}
        assert groups == {(tile - arrays.first_tile) // each}


def assert_bytes_of_halos(made: Compiled, name: str, convolution: Convolution, by_channel: bool) -> None:
    """What a tile receives is the receptive field of its places without what it holds; every element once."""
    superstep, planes, taps = supersteps_named(made, f"unfold {name}")[0], convolution.read, convolution.window.taps
    (table,) = superstep.tables
    source: Variable = made.program.variables[table.operands["source"]]
    needed: dict[int, set[tuple[int, int]]] = defaultdict(set)  # elements of the variable by tile
    for tile, rows, columns in boxes(superstep):
        channels = {column // taps for column in columns}
        # of planes side by side a vertex has one channel, and gets what its own taps cover
        read = {column % taps for column in columns} if by_channel else set(range(taps))
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
