"""Figures of the tiles: where on the chip the work is done, and how evenly it is spread."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mimdsim.profile import RunProfile, TileColumns
from mimdsim.report.colours import BLUE, LAYER_COLOURS, PALE, VERMILLION
from mimdsim.report.formatting import clipped, thousands
from mimdsim.report.style import LABEL_BOX, panels, styled, thousands_axis

BINS = 40


@styled
def draw_tile_map(profile: RunProfile) -> Figure | None:
    """Busy cycles of every tile on the tile grid, and next to it the layer each tile works for."""
    tiled = profile.tiled
    if tiled is None or not any(tiled.tile_columns.busy_cycles):
        return None
    columns = tiled.tile_columns
    names = [name for name in dict.fromkeys(columns.layer) if name]
    with_layers = 0 < len(names) <= len(LAYER_COLOURS)
    busy = _grid(columns, np.asarray(columns.busy_cycles, float), tiled.chips)
    aspect = min(max(busy.shape[0] / busy.shape[1], 0.15), 2.0)
    wide = 2 if with_layers else 1
    figure, axes = panels(2, wide, height=1.5 + (3.5 if with_layers else 8.0) * aspect, height_ratios=(20, 1))
    image = axes[0].imshow(busy, cmap="cividis", vmin=0)
    figure.colorbar(image, cax=axes[wide], orientation="horizontal", ticks=MaxNLocator(nbins=5))
    axes[wide].xaxis.set_major_formatter(FuncFormatter(lambda cycles, _: thousands(cycles)))
    axes[wide].set_xlabel(f"busy cycles per {tiled.run_name}")
    _plain_map(axes[0], columns.grid_columns, tiled.chips, f"Busy cycles of the {thousands(tiled.tiles)} tiles")
    if with_layers:
        numbers = {name: index for index, name in enumerate(names)}
        layers = np.asarray([numbers.get(name, np.nan) for name in columns.layer], float)
        # a list: the oldest matplotlib takes a pair for a colour and its opacity
        palette = ListedColormap(list(LAYER_COLOURS[: len(names)]))
        found = _grid(columns, layers, tiled.chips)
        axes[1].imshow(found, cmap=palette, vmin=-0.5, vmax=len(names) - 0.5, interpolation="nearest")
        _plain_map(axes[1], columns.grid_columns, tiled.chips, "Layer that each tile works for")
        axes[3].set_axis_off()
        axes[3].legend(
            [Patch(color=LAYER_COLOURS[index]) for index in range(len(names))],
            [f"{clipped(name, 18)} ({thousands(columns.layer.count(name))})" for name in names],
            loc="center",
            ncols=min(len(names), 3),
            title="layer (number of tiles)",
        )
    return figure


@styled
def draw_tile_balance(profile: RunProfile) -> Figure | None:
    """Busy cycles of the tiles, sorted from the busiest, and their histogram."""
    tiled = profile.tiled
    if tiled is None or not any(tiled.tile_columns.busy_cycles):
        return None
    busy = np.sort(np.asarray(tiled.tile_columns.busy_cycles, float))[::-1]
    worked = busy[busy > 0]
    figure, (left, right) = panels(1, 2, height=3.6, width_ratios=(3, 2), sharey=True)
    left.fill_between(np.arange(len(busy)), busy, step="mid", color=BLUE, linewidth=0)
    left.axhline(worked.mean(), color=VERMILLION, linestyle="--")
    words = f"mean {thousands(worked.mean())}"
    left.text(0.02 * len(busy), worked.mean(), words, va="center", fontsize=8.5, bbox=LABEL_BOX)
    left.set_title(f"Tiles, busiest first: balance {tiled.tile_balance:.2f}")
    left.set_xlabel(f"tiles, sorted ({thousands(len(worked))} of {thousands(tiled.tiles)} have work)")
    left.set_ylabel(f"busy cycles per {tiled.run_name}")
    left.set_xlim(0, len(busy))
    left.set_ylim(0, 1.08 * busy[0])
    look: dict[str, Any] = {"color": BLUE, "edgecolor": "white", "linewidth": 0.4}
    right.hist(busy, bins=BINS, range=(0, busy[0]), orientation="horizontal", **look)
    right.axhline(worked.mean(), color=VERMILLION, linestyle="--")
    right.set_title("Number of tiles by busy cycles")
    right.set_xlabel("number of tiles")
    for axes in (left, right):
        axes.grid()
        thousands_axis(axes.xaxis, 8 if axes is left else 4)
    thousands_axis(left.yaxis)
    return figure


def _abreast(chips: int) -> int:
    """How many chips stand side by side: they fill a rectangle that is at least as wide as high."""
    return next(side for side in range(1, chips + 1) if chips % side == 0 and side * side >= chips)


def _grid(columns: TileColumns, values: np.ndarray, chips: int) -> np.ma.MaskedArray:
    """`values` by tile as rows of the grid of each chip, its first tile top left, chips side by side; cells without
    tile or value are masked."""
    across, side, held = columns.grid_columns, _abreast(chips), len(values) // chips
    rows = -(-held // across)
    cells = np.full((chips, rows * across), np.nan)
    cells[:, :held] = values.reshape(chips, held)
    ranks = cells.reshape(chips // side, side, rows, across).swapaxes(1, 2)
    return np.ma.masked_invalid(ranks.reshape(chips // side * rows, side * across))


def _plain_map(axes: Axes, grid_columns: int, chips: int, title: str) -> None:
    """Down the left side the first tile of each row, or the first chip of each row of chips; no other ticks: columns
    are only a drawing order."""
    axes.set_title(title)
    axes.set_facecolor(PALE)
    axes.set_xticks([])
    axes.tick_params(length=0, labelsize=8)
    if chips == 1:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda row, _: thousands(max(row, 0) * grid_columns)))
        axes.set_ylabel("first tile of the row", fontsize=8)
    else:
        side = _abreast(chips)
        right, bottom = axes.get_xlim()[1], axes.get_ylim()[0]  # half a cell beyond the last one, both
        tall = (bottom + 0.5) / (chips // side)
        middles = [(rank + 0.5) * tall - 0.5 for rank in range(chips // side)]
        axes.set_yticks(middles, [str(rank * side) for rank in range(chips // side)])
        axes.set_ylabel("first chip of the row", fontsize=8)
        for rank in range(1, chips // side):
            axes.axhline(rank * tall - 0.5, color="white", linewidth=2)
        for place in range(1, side):
            axes.axvline(place * (right + 0.5) / side - 0.5, color="white", linewidth=2)
    for spine in axes.spines.values():
        spine.set_visible(False)
