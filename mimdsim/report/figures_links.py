"""Links between routers where they lie on the grid of a chip, coloured by how long each is in use: what the page's
section "Walk through" draws, for papers and notebooks."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.patches import Circle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from mimdsim.base.errors import MappingError
from mimdsim.base.units import counted
from mimdsim.profile.detail import Detail
from mimdsim.profile.queries import RunQueries
from mimdsim.report.figures_tiles import chips_abreast
from mimdsim.report.formatting import GREY, INK, clipped, thousands
from mimdsim.report.style import panels, styled, thousands_axis

COLOURS = LinearSegmentedColormap.from_list("links", ["#fde18c", "#feb24c", "#fc622a", "#c80a26", "#5a0026"])
ABREAST = 24  # routers in a row, above which arrows are bars without heads
MOST_RATIO = 100  # of the fullest link to those with the lowest colour
WAYS = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])
WAY_WORDS = ("east", "west", "south", "north")
MIDDLE_WORDS = {0: "to the middle", 2: "from the middle"}
EDGE = 0.2  # of the distance between routers: where a link begins


@styled
def draw_links(run: RunQueries, superstep: str | int | None = None, axes: Axes | None = None) -> Axes:
    """The links of one superstep (its name or number) or of all together, each direction a half arrow on its right-hand
    side, in the colour of the cycles that it is in use, summed over all executions; a ring marks the fullest.

    axes: where to draw (None: a figure of its own, `axes.figure`). Raises MappingError for a machine without links
    between routers and for a superstep that does not exist.
    """
    detail = run.detail
    if not detail.has_links:
        problem = "keeps no loads of links between routers: its exchange is not of routers, or moves nothing over links"
        raise MappingError(f"the run on {run.tiled.title} {problem}; they come with exchange.model = 'routed'")
    number = None if superstep is None else run.number_of(superstep)
    chosen = slice(None) if number is None else slice(number, number + 1)
    size, cycles = (column[chosen].sum(axis=0) for column in (detail.link_bytes, detail.link_cycles))
    rows, columns, _ = detail.router_grid.tolist()
    side = chips_abreast(len(detail.links))
    wide, high = side * (columns + 1) - 1, len(detail.links) // side * (rows + 1) - 1
    if axes is None:
        _, (axes,) = panels(height=1.75 + 9.0 * min(max(high / wide, 0.05), 0.8))
    most = max(int(cycles.max()), 1)
    lowest = int(cycles[cycles > 0].min(initial=most))
    least = max(lowest, most / MOST_RATIO)
    polygons, link = _half_arrows(detail)
    order = np.argsort(cycles[link], kind="stable")  # the fullest on top
    colours = np.ma.masked_equal(cycles[link][order], 0)
    norm = LogNorm(least, most) if most > least else LogNorm(0.5 * most, most)
    drawn = PolyCollection(list(polygons[order]), array=colours, cmap=COLOURS.with_extremes(bad="#d8dbe0"), norm=norm)
    axes.add_collection(drawn)
    _draw_routers(axes, detail)
    bar = axes.figure.colorbar(drawn, ax=axes, orientation="horizontal", aspect=50, pad=0.02, shrink=0.7)
    bar.ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
    bar.ax.xaxis.set_minor_formatter(NullFormatter())
    little = "; lowest colour: a hundredth of the most, or less" if least > lowest else ""
    bar.set_label(f"cycles in use (grey: carries nothing{little})")
    axes.set(aspect="equal", xlim=(-0.6, wide - 0.4), ylim=(high - 0.4, -0.6))
    axes.tick_params(length=0, labelsize=8)
    if len(detail.links) == 1:
        axes.set(ylabel="row", xlabel="column")
        for axis in (axes.xaxis, axes.yaxis):
            thousands_axis(axis)
    else:
        axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    words = "all supersteps together" if number is None else f"superstep {number}, {detail.supersteps[number]}"
    axes.set_title(f"Links between routers: {clipped(words, 60)}")
    fullest = int(cycles.argmax())
    if not cycles[fullest]:
        axes.set_xlabel(f"{axes.get_xlabel()}\nno link carries anything".strip())
        return axes
    corners = polygons[np.flatnonzero(link == fullest)[0]]
    x, y = corners.mean(axis=0).tolist()
    axes.add_patch(Circle((x, y), max(0.45, 0.01 * wide), fill=False, color=INK, linewidth=1.5, clip_on=False))
    used = f"{counted(int(size[fullest]), 'byte')}, in use for {counted(int(cycles[fullest]), 'cycle')}"
    axes.set_xlabel(f"{axes.get_xlabel()}\nfullest: {_link_words(detail, fullest)}: {used}".strip(), color=INK)
    return axes


def _places(detail: Detail, chip: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """float64[routers, 2]: where routers are drawn, chips side by side."""
    rows, columns, _ = detail.router_grid.tolist()
    rank, place = np.divmod(chip, chips_abreast(len(detail.links)))
    return np.stack([place * (columns + 1) + column, rank * (rows + 1) + row], axis=1).astype(float)


def _parts(detail: Detail) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """int64[links]: direction, and chip, row and column of the router that each link leaves."""
    rows, columns, _ = detail.router_grid.tolist()
    way, router = np.divmod(detail.link_number, len(detail.links) * rows * columns)
    chip, within = np.divmod(router, rows * columns)
    return way, chip, within // columns, within % columns


def _half_arrows(detail: Detail) -> tuple[np.ndarray, np.ndarray]:
    """(polygons float64[pieces, 5, 2], their links): one for a link, two for one that goes round a ring, which ends at
    the edge and comes back at the other; a link to the middle of a crossbar ends halfway."""
    rows, columns, crossbar = detail.router_grid.tolist()
    way, chip, row, column = _parts(detail)
    along, place = WAYS[way], _places(detail, chip, row, column)
    to = np.stack([column, row], axis=1) + along
    leaves = ((to < 0) | (to >= (columns, rows))).any(axis=1) | bool(crossbar)
    again = np.flatnonzero(leaves & (not crossbar))
    link = np.append(np.arange(len(way)), again)
    start = np.concatenate([place + EDGE * along, (place - along * (np.array([columns, rows]) - 0.5))[again]])
    long = np.where(leaves, 0.5 - EDGE, 1 - 2 * EDGE)[link]
    bars = columns * chips_abreast(len(detail.links)) > ABREAST
    wide, gap, head = (0.24, 0.025, 0.0) if bars else (0.14, 0.025, 0.26)
    ahead = np.stack([0 * long, long, long - head, long - head, 0 * long], axis=1)
    aside = np.broadcast_to([gap, gap, gap + (1 if bars else 1.9) * wide, gap + wide, gap + wide], ahead.shape)
    ways = along[link].astype(float)
    right = np.stack([-ways[:, 1], ways[:, 0]], axis=1)
    return start[:, None] + ahead[..., None] * ways[:, None] + aside[..., None] * right[:, None], link


def _draw_routers(axes: Axes, detail: Detail) -> None:
    """Squares, hollow where there is no tile."""
    rows, columns, _ = detail.router_grid.tolist()
    chip, within = np.divmod(np.arange(len(detail.links) * rows * columns), rows * columns)
    corners = 0.85 * EDGE * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    squares = _places(detail, chip, within // columns, within % columns)[:, None] + corners
    tiled = np.isin(within, detail.router_of)
    axes.add_collection(PolyCollection(list(squares[tiled]), facecolor="#5b6570"))
    axes.add_collection(PolyCollection(list(squares[~tiled]), facecolor="none", edgecolor=GREY, linewidth=0.6))


def _link_words(detail: Detail, link: int) -> str:
    """From which router to which, as explanations say it."""
    rows, columns, crossbar = detail.router_grid.tolist()
    way, chip, row, column = (int(part[link]) for part in _parts(detail))
    here = f"column {column}, row {row}" + (f" of chip {chip}" if len(detail.links) > 1 else "")
    if crossbar:
        return f"{here} {MIDDLE_WORDS[way]}"
    across, down = WAYS[way].tolist()
    return f"{here} {WAY_WORDS[way]} to column {(column + across) % columns}, row {(row + down) % rows}"
