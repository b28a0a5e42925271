"""What a check says of numbers, worked out by hand: gradients, outputs changed in place, copies, drawn inputs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from linear_networks import linear_network
from networks import ADAM, small_network

from mimdsim.checking import comparison
from mimdsim.checking.comparison import wrong_elements
from mimdsim.checking.program import _Gradients
from mimdsim.checking.test_inputs import DRAWS, drawn_inputs
from mimdsim.graph import SpikingNetwork, gradient_of
from mimdsim.graph.names import Parameter
from mimdsim.program import Observables
from mimdsim.validation.stencil.boxes import Boxes, Placed, column_copies, cut, row_copies, tile_blocks, worker_blocks

DRAWN = Path(__file__).resolve().parents[1] / "golden" / "pinned_draws.csv"
COLUMNS = ("network", "draw", "input", "dtype", "shape", "sum", "weighted", "largest")


def gradients(draws: list[tuple[Any, Any]]) -> Any:
    """Of one parameter, as held and as expected in every draw."""
    weights = Parameter(layer="a", role="weights", shape=(1, 2))
    observables = Observables(gradients={"w.a": gradient_of("w.a")})
    compiled: Any = SimpleNamespace(
        network=SimpleNamespace(parameters={"w.a": weights}), program=SimpleNamespace(observables=observables)
    )
    found = _Gradients(compiled)
    for held, expected in draws:
        subject: Any = SimpleNamespace(read={gradient_of("w.a"): np.array(held, np.float32)}.__getitem__)
        found.add(subject, {gradient_of("w.a"): np.array(expected, np.float32)})
    return found


def test_gradients_are_judged_by_their_worst_draw() -> None:
    worst = gradients([([3.0, 4.0], [4.0, 3.0]), ([0.0, 8.0], [0.0, 8.0]), ([1.0, 1.0], [1.0, 1.5])])
    assert worst.errors == {"w.a": pytest.approx(1 / 3)}
    assert worst.cosines == {"w.a": pytest.approx(24 / 25)}
    assert worst.sizes == {"w.a": 8.0}
    assert worst.finding().text == "a: relative error 3.3e-01, cosine 0.9600000"
    assert not worst.finding().passed
    same = gradients([([3.0, 4.0], [3.0, 4.0])])
    assert same.finding().passed
    assert same.finding().text == "a: relative error 0.0e+00, cosine 1.0000000"
    silent = gradients([([0.0, 0.0], [0.0, 0.0])])
    assert silent.sizes == {"w.a": 0.01}
    assert silent.finding().passed
    assert silent.finding().text.endswith("cosine undefined (a gradient is all zero)")


def test_what_is_changed_in_place_is_judged_by_its_change_and_its_rounding() -> None:
    """Weights of 1 that change by 1/1024: a thousandth of that is seen, what rounding alone may do is not."""
    start, expected = np.ones(4), np.ones(4) + 2.0**-10
    step = 4 * 2.0**-24 * expected[0]
    held = expected + np.array([0.0, step, 1.01 * step, 2.0**-12])
    assert comparison._wrong(held, expected, start).tolist() == [False, False, True, True]
    assert comparison._wrong(expected - (held - expected), expected, start).tolist() == [False, False, True, True]
    assert comparison._wrong(held, expected, None).tolist() == wrong_elements(held, expected).tolist()
    whole = np.array([1, 2])
    assert comparison._wrong(whole, whole + np.array([0, 1]), whole).tolist() == [False, True]


# the published stencil

BLOCK = [(0, 6, 0, 8, 3), (6, 7, 0, 5, 4), (7, 9, 0, 3, 5)]  # top, bottom, left, right, tile
SLICES = [(0, 6, 0, 4, 3), (0, 6, 4, 5, 3), (0, 6, 5, 8, 3), (6, 7, 0, 2, 4), (6, 7, 2, 5, 4), (7, 9, 0, 3, 5)]


def of(rectangles: list[tuple[int, ...]]) -> Boxes:
    bounds, (*_, tiles) = np.array([each[:4] for each in rectangles]).reshape(-1, 2, 2), np.array(rectangles).T
    return Boxes(bounds=bounds, tiles=tiles)


def test_slices_that_are_copied() -> None:
    found = Placed(of(SLICES), of(BLOCK))
    assert found.in_rows.tolist() == [True, True, True, False, False, False]
    assert found.beside_west.tolist() == [False, True, True, False, False, False]
    assert found.beside_east.tolist() == [True, True, False, False, False, False]


def boxes(table: Any) -> list[tuple[int, ...]]:
    columns = (table.columns[name] for name in ("low0", "high0", "low1", "high1"))
    return list(zip(table.tiles.tolist(), *(column.tolist() for column in columns), strict=True))


def test_copies_and_what_they_cost() -> None:
    """Boxes count from 1, as the frame of zeros is 0; the middle slice is a single column, which is copied once."""
    framed = [(top + 1, bottom + 1, left + 1, right + 1, tile) for top, bottom, left, right, tile in SLICES]
    found = Placed(of(framed), of([(*(end + 1 for end in block[:4]), block[4]) for block in BLOCK]))
    (rows,) = row_copies(found, 4, "image", "block")
    assert rows.operands == {"source": "image", "target": "block"}
    assert boxes(rows) == [(3, 1, 7, 1, 5), (3, 1, 7, 5, 6), (3, 1, 7, 6, 9)]
    first, last = column_copies(found, 2, "block", "edge")
    assert boxes(first) == [(3, 1, 7, 5, 6), (3, 1, 7, 6, 7)]
    assert boxes(last) == [(3, 1, 7, 4, 5)]
    for table, bundles, per, said in ((rows, (6, 1), 2, "in one bundle"), (first, (0, 2), 4, "nothing a row")):
        cost = table.codelet.cost
        assert (cost.fixed, *(term.bundles for term in cost.terms)) == (49, *bundles)
        assert [term.extents for term in cost.terms] == [("rows",), ("words",)]
        assert table.codelet.extents["words"].per == per
        assert said in cost.source
    alone = Placed(of(BLOCK), of(BLOCK))
    assert row_copies(alone, 4, "image", "block") == column_copies(alone, 4, "block", "edge") == ()


def rectangles(blocks: Boxes) -> list[tuple[int, ...]]:
    return [(*high, *wide, tile) for (high, wide), tile in zip(blocks.bounds.tolist(), blocks.tiles, strict=True)]


def test_images_are_cut_for_chips_tiles_and_contexts() -> None:
    assert cut(7, 3, longest_first=True).tolist() == [0, 3, 5, 7]
    assert rectangles(tile_blocks(4, 6, 1, 6)) == [
        (0, 2, 0, 2, 0), (0, 2, 2, 4, 1), (0, 2, 4, 6, 2), (2, 4, 0, 2, 3), (2, 4, 2, 4, 4), (2, 4, 4, 6, 5),
    ]  # fmt: skip
    assert rectangles(tile_blocks(4, 5, 2, 2)) == [(0, 2, 0, 3, 0), (0, 2, 3, 5, 1), (2, 4, 0, 3, 2), (2, 4, 3, 5, 3)]
    assert rectangles(tile_blocks(5, 4, 2, 1)) == [(0, 5, 0, 2, 0), (0, 5, 2, 4, 1)]
    assert rectangles(tile_blocks(4, 4, 2, 1)) == [(0, 4, 0, 2, 0), (0, 4, 2, 4, 1)]
    assert rectangles(worker_blocks(of([(1, 5, 2, 5, 7)]), 2)) == [(1, 3, 2, 5, 7), (3, 5, 2, 5, 7)]
    assert rectangles(worker_blocks(of([(1, 4, 2, 6, 7)]), 2)) == [(1, 4, 2, 4, 7), (1, 4, 4, 6, 7)]
    assert len(worker_blocks(of([(0, 2, 0, 2, 0)]), 6).tiles) == 2


# drawn inputs

NETWORKS: dict[str, Callable[[], SpikingNetwork]] = {
    "sparse": small_network,
    "adam, random, recurrent": lambda: small_network(
        optimiser=ADAM, truncation="random", recurrence="all_to_all", bias=True
    ),
    "dense": lambda: small_network(spikes="dense", recurrence="one_to_one"),
    "linear": lambda: linear_network("cuba_lif", "zero", timesteps=4),
    "most inputs silent": lambda: replace(small_network(widths=(60, 40, 5, 3), timesteps=2), input_capacity=2),
    "long lists": lambda: replace(small_network(), input_capacity=100),
}


def drawn(name: str) -> list[dict[str, str]]:
    """A line for every input of every draw; in the second the gradient of one parameter is known."""
    network, found = NETWORKS[name](), []
    for draw in DRAWS:
        sizes = {next(iter(network.parameters)): 3.0} if draw.number else {}
        for key, values in drawn_inputs(network, draw, sizes).items():
            flat = np.asarray(values, np.float64).ravel()
            weighted = float((flat * (1 + np.arange(len(flat)))).sum())
            row = (
                name, draw.number, key, values.dtype, "x".join(map(str, values.shape)), f"{flat.sum():.7g}",
                f"{weighted:.7g}", f"{np.abs(flat).max():.7g}",
            )  # fmt: skip
            found.append(dict(zip(COLUMNS, map(str, row), strict=True)))
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_drawn_inputs_are_as_pinned(name: str) -> None:
    with DRAWN.open(newline="", encoding="utf-8") as file:
        known = [row for row in csv.DictReader(file) if row["network"] == name]
    assert drawn(name) == known


def main() -> None:
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for name in NETWORKS:
        writer.writerows(drawn(name))


if __name__ == "__main__":
    main()
