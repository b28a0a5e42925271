"""Links between routers as a figure."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from random_profile import make_profile
from small_detail import made, with_links

from mimdsim.base.errors import MappingError
from mimdsim.profile.detail import Detail
from mimdsim.profile.queries import SavedRun
from mimdsim.report.figures_links import draw_links
from mimdsim.report.style import picture


def run_of(detail: Detail) -> SavedRun:
    return SavedRun(dataclasses.replace(make_profile(), tiled=made()[0]), detail)


@pytest.mark.parametrize("grid", ["mesh", "torus", "crossbar"])
@pytest.mark.parametrize("chips", [1, 2])
def test_every_link_has_the_colour_of_its_cycles(grid: str, chips: int) -> None:
    changes: dict[str, Any] = {"chip.grid": grid}
    _, _, detail = with_links(chips, **changes)
    superstep = int(detail.link_bytes.sum(axis=1).argmax())
    for number in (None, superstep):
        axes = draw_links(run_of(detail), number)
        cycles = detail.link_cycles.sum(axis=0) if number is None else detail.link_cycles[superstep]
        drawn = next(one for one in axes.collections if isinstance(one, PolyCollection))
        shown = drawn.get_array()
        assert shown is not None
        rows, columns, _ = detail.router_grid.tolist()
        way, router = np.divmod(detail.link_number, chips * rows * columns)
        row, column = router // columns % rows, router % columns
        edges = [column == columns - 1, column == 0, row == rows - 1, row == 0]
        round_a_ring = np.choose(way, edges) & (grid == "torus")  # in two pieces
        expected = np.sort(np.repeat(cycles, 1 + round_a_ring))
        assert np.ma.getdata(shown).tolist() == expected.tolist()
        assert (np.ma.getmaskarray(shown) == (expected == 0)).all()
        fullest = int(cycles.argmax())
        size = detail.link_bytes.sum(axis=0) if number is None else detail.link_bytes[superstep]
        assert f"{size[fullest]:,} bytes, in use for {cycles[fullest]:,} cycles" in axes.get_xlabel()
        assert f"fullest: column {column[fullest]}, row {row[fullest]}" in axes.get_xlabel()
        (ring,) = (one for one in axes.patches if isinstance(one, Circle))
        x, y = ring.center
        chip = int(router[fullest]) // (rows * columns)
        side = chips if chips == 2 else 1
        assert abs(x - column[fullest] - chip % side * (columns + 1)) < 0.7
        assert abs(y - row[fullest]) < 0.7
    assert isinstance(axes.figure, Figure)
    assert picture(axes.figure).startswith(b"\x89PNG")


def test_axes_of_ones_own_a_superstep_by_name_and_one_that_moves_nothing() -> None:
    _, _, detail = with_links()
    own = Figure().subplots()
    moving = str(detail.supersteps[detail.link_bytes.sum(axis=1).argmax()])
    assert draw_links(run_of(detail), moving, own) is own
    assert moving in own.get_title(loc="left") + own.get_title()
    idle = int((detail.link_bytes.sum(axis=1) == 0).argmax())
    assert "no link carries anything" in draw_links(run_of(detail), idle).get_xlabel()


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(MappingError, match="no superstep 'nothing'"):
        draw_links(run_of(with_links()[2]), "nothing")
    with pytest.raises(MappingError, match=r"keeps no loads of links.* exchange.model = 'routed'"):
        draw_links(run_of(made()[1]))
