"""Figures of the tiles: where on the chip the work is done, how evenly, what fills their memory, and when."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mimdsim.base.units import show_bytes
from mimdsim.profile import Liveness, MemoryProfile, RunProfile, TileColumns
from mimdsim.report.formatting import (
    BLUE,
    CATEGORY_COLOURS,
    GREY,
    INK,
    LAYER_COLOURS,
    PALE,
    VERMILION,
    clipped,
    largest_first,
    layer_colours,
    thousands,
)
from mimdsim.report.style import LABEL_BOX, legend_beside, panels, plain_axis, styled_plain, thousands_axis

BINS = 40


@styled_plain
def draw_tile_map(profile: RunProfile, ax: Axes | None = None) -> Figure | None:
    """Busy cycles of every tile on the tile grid, and next to it, unless on `ax`, the layer each tile works for."""
    tiled = profile.tiled
    if tiled is None or not any(tiled.tile_columns.busy_cycles):
        return None
    columns = tiled.tile_columns
    names = [name for name in dict.fromkeys(columns.layer) if name]
    with_layers = ax is None and 0 < len(names) <= len(LAYER_COLOURS)
    busy = _grid(columns, np.asarray(columns.busy_cycles, float), tiled.chips)
    aspect = min(max(busy.shape[0] / busy.shape[1], 0.15), 2.0)
    wide = 2 if with_layers else 1
    height = 1.5 + (3.5 if with_layers else 8.0) * aspect
    figure, axes = panels(2, wide, ax=ax, height=height, height_ratios=(20, 1))
    image = axes[0].imshow(busy, cmap="cividis", vmin=0)
    lies = None if ax is not None else axes[wide]
    scale = figure.colorbar(image, cax=lies, ax=ax, orientation="horizontal", ticks=MaxNLocator(nbins=5)).ax
    scale.xaxis.set_major_formatter(FuncFormatter(lambda cycles, _: thousands(cycles)))
    scale.set_xlabel(f"busy cycles per {tiled.run_name}")
    _label_map(axes[0], columns.grid_columns, tiled.chips, f"Busy cycles of the {thousands(tiled.tiles)} tiles")
    if with_layers:
        numbers = {name: index for index, name in enumerate(names)}
        layers = np.asarray([numbers.get(name, np.nan) for name in columns.layer], float)
        # a list: the oldest matplotlib takes a pair for a colour and its opacity
        colours = layer_colours(profile)
        palette = ListedColormap([colours[name] for name in names])
        found = _grid(columns, layers, tiled.chips)
        axes[1].imshow(found, cmap=palette, vmin=-0.5, vmax=len(names) - 0.5, interpolation="nearest")
        _label_map(axes[1], columns.grid_columns, tiled.chips, "Layer that each tile works for")
        axes[3].set_axis_off()
        axes[3].legend(
            [Patch(color=colours[name]) for name in names],
            [f"{clipped(name, 18)} ({thousands(columns.layer.count(name))})" for name in names],
            loc="center",
            ncols=min(len(names), 3),
            title="layer (number of tiles)",
        )
    return figure


@styled_plain
def draw_tile_balance(profile: RunProfile) -> Figure | None:
    """Busy cycles of the tiles, sorted from the busiest, and their histogram."""
    tiled = profile.tiled
    if tiled is None or not any(tiled.tile_columns.busy_cycles):
        return None
    busy = np.sort(np.asarray(tiled.tile_columns.busy_cycles, float))[::-1]
    worked = busy[busy > 0]
    figure, (left, right) = panels(1, 2, height=3.6, width_ratios=(3, 2), sharey=True)
    left.fill_between(np.arange(len(busy)), busy, step="mid", color=BLUE, linewidth=0)
    left.axhline(worked.mean(), color=VERMILION, linestyle="--")
    words = f"mean {thousands(worked.mean())}"
    left.text(0.02 * len(busy), worked.mean(), words, va="center", fontsize=8.5, bbox=LABEL_BOX)
    left.set(
        title=f"Tiles, busiest first: balance {tiled.tile_balance:.2f}",
        xlabel=f"tiles, sorted ({thousands(len(worked))} of {thousands(tiled.tiles)} have work)",
        ylabel=f"busy cycles per {tiled.run_name}",
        xlim=(0, len(busy)),
        ylim=(0, 1.08 * busy[0]),
    )
    bounds = (0, busy[0])
    right.hist(busy, BINS, range=bounds, orientation="horizontal", color=BLUE, edgecolor="white", linewidth=0.4)
    right.axhline(worked.mean(), color=VERMILION, linestyle="--")
    right.set(title="Number of tiles by busy cycles", xlabel="number of tiles")
    for axes in (left, right):
        axes.grid()
        thousands_axis(axes.xaxis, 8 if axes is left else 4)
    thousands_axis(left.yaxis)
    return figure


def chips_abreast(chips: int) -> int:
    """How many chips stand side by side: they fill a rectangle that is at least as wide as high."""
    return next(side for side in range(1, chips + 1) if chips % side == 0 and side * side >= chips)


def _grid(columns: TileColumns, values: np.ndarray, chips: int) -> np.ma.MaskedArray:
    """`values` by tile as rows of the grid of each chip, its first tile top left, chips side by side; cells without
    tile or value are masked."""
    across, side, held = columns.grid_columns, chips_abreast(chips), len(values) // chips
    rows = -(-held // across)
    cells = np.full((chips, rows * across), np.nan)
    cells[:, :held] = values.reshape(chips, held)
    ranks = cells.reshape(chips // side, side, rows, across).swapaxes(1, 2)
    return np.ma.masked_invalid(ranks.reshape(chips // side * rows, side * across))


def _label_map(axes: Axes, grid_columns: int, chips: int, title: str) -> None:
    """Down the left side the first tile of each row, or the first chip of each row of chips; no other ticks: columns
    are only a drawing order."""
    axes.set(title=title, facecolor=PALE, xticks=[])
    axes.tick_params(length=0, labelsize=8)
    if chips == 1:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda row, _: thousands(max(row, 0) * grid_columns)))
        axes.set_ylabel("first tile of the row", fontsize=8)
    else:
        side = chips_abreast(chips)
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


MAX_DRAWN_TILES = 2_048
LITTLE = 0.1  # of the limit: fuller tiles are drawn under its line, emptier ones would be too flat to be read


@styled_plain
def draw_memory_by_tile(profile: RunProfile, ax: Axes | None = None) -> Figure | None:
    """Bytes of every tile by category, stacked, in tile order, under the line of the tile's memory.

    Above MAX_DRAWN_TILES tiles, each column is the fullest tile of its bin, so that no peak is lost.
    """
    tiled = profile.tiled
    if tiled is None or not any(any(row) for row in tiled.memory.bytes_by_category_and_tile):
        return None
    memory = tiled.memory
    names, table = fold_categories(memory)
    chosen = _tiles_to_draw(table.sum(axis=0))
    figure, (axes,) = panels(ax=ax, height=4.2)
    edges = np.append(chosen, table.shape[1])
    base = np.zeros(len(chosen))
    for name, row, colour in zip(names, table[:, chosen] / 1024, CATEGORY_COLOURS, strict=False):
        top = base + row
        low, high = np.append(base, base[-1]), np.append(top, top[-1])
        axes.fill_between(edges, low, high, step="post", color=colour, linewidth=0, label=name)
        base = top
    little = memory.peak_bytes < LITTLE * memory.limit_bytes
    limit, peak = memory.limit_bytes / 1024, memory.peak_bytes / 1024
    if not little:
        axes.axhline(limit, color=VERMILION, linestyle="--", label=f"limit {show_bytes(memory.limit_bytes)}")
    words = f"fullest: tile {thousands(memory.peak_tile)}, {show_bytes(memory.peak_bytes)}"
    _annotate_maximum(axes, memory.peak_tile + 0.5, peak, words, table.shape[1])
    binned = "" if len(chosen) == table.shape[1] else f" (fullest tile of each of {thousands(len(chosen))} bins)"
    axes.set(
        title=f"Memory of every tile by category{binned}{_distant_limit(memory) if little else ''}",
        xlabel="tile",
        ylabel="KiB",
        xlim=(0, table.shape[1]),
        ylim=(0, 1.15 * (peak if little else max(peak, limit))),
    )
    axes.grid(axis="y")
    thousands_axis(axes.xaxis)
    thousands_axis(axes.yaxis)
    legend_beside(figure, axes, "right upper", within=ax is not None, reverse=True)  # as stacked: first one lowest
    return figure


@styled_plain
def draw_liveness(profile: RunProfile) -> Figure | None:
    """Bytes in use at every superstep in program order: on the fullest tile, and on all tiles together."""
    tiled = profile.tiled
    if tiled is None or not tiled.memory.liveness:
        return None
    points = tiled.memory.liveness
    figure, (upper, lower) = panels(2, 1, height=4.8, sharex=True, height_ratios=(3, 2))
    always = max(tiled.tile_columns.always_live_bytes, default=0)
    limit = tiled.memory.limit_bytes
    _draw_staircase(upper, [point.fullest_tile_bytes / 1024 for point in points], points)
    little = tiled.memory.peak_bytes < LITTLE * limit
    if not little:
        upper.axhline(limit / 1024, color=VERMILION, linestyle="--")
        upper.text(len(points), limit / 1024, f"limit {show_bytes(limit)} ", ha="right", va="bottom", color=VERMILION)
    if always:
        upper.axhline(always / 1024, color=INK, linestyle=":", linewidth=1.2)
        words = f"always live: at most {show_bytes(always)} on a tile"
        above = "top" if little else "center"
        upper.text(0.995 * len(points), always / 1024, words, ha="right", fontsize=8, bbox=LABEL_BOX, va=above)
    highest = max(range(len(points)), key=lambda index: points[index].fullest_tile_bytes)
    most = points[highest]
    where = f"tile {thousands(most.fullest_tile)}: {clipped(most.superstep, 40)}"
    words = f"{show_bytes(most.fullest_tile_bytes)} on {where}"
    _annotate_maximum(upper, highest + 0.5, most.fullest_tile_bytes / 1024, words, len(points))
    top, far = (0, _distant_limit(tiled.memory)) if little else (limit, "")
    title = f"Memory in use on the fullest tile, superstep by superstep{far}"
    upper.set(title=title, ylabel="KiB", ylim=(0, 1.18 * max(top, most.fullest_tile_bytes) / 1024))
    _draw_staircase(lower, [point.total_bytes / 1024**2 for point in points], points)
    lower.set_ylim(bottom=0)
    lower.set(title="Memory in use on all tiles together", ylabel="MiB", xlabel="superstep in program order")
    for axes in (upper, lower):
        axes.grid(axis="y")
        plain_axis(axes.yaxis)  # a small machine's memory is a fraction of a MiB
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    thousands_axis(lower.xaxis, 10)
    return figure


def _distant_limit(memory: MemoryProfile) -> str:
    """Text about a limit that is not drawn."""
    times = memory.limit_bytes / max(memory.peak_bytes, 1)
    return f" (limit: {show_bytes(memory.limit_bytes)}, {times:.0f} times the fullest)"


def fold_categories(memory: MemoryProfile) -> tuple[list[str], np.ndarray]:
    """Categories from the largest, with their bytes [category, tile]; if many, the smallest share the last row."""
    order = [index for index in largest_first(memory) if any(memory.bytes_by_category_and_tile[index])]
    names = [clipped(memory.categories[index], 28) for index in order]
    table = np.asarray(memory.bytes_by_category_and_tile, dtype=float)[order]
    most = len(CATEGORY_COLOURS)
    if len(names) > most:
        rest = table[most - 1 :].sum(axis=0, keepdims=True)
        names = [*names[: most - 1], f"{len(names) - most + 1} smaller categories"]
        table = np.concatenate([table[: most - 1], rest])
    return names, table


def _tiles_to_draw(totals: np.ndarray) -> np.ndarray:
    """The tiles to draw, ascending: all of them, or the fullest of each bin."""
    if len(totals) <= MAX_DRAWN_TILES:
        return np.arange(len(totals))
    bins = np.array_split(np.arange(len(totals)), MAX_DRAWN_TILES)
    return np.asarray([part[np.argmax(totals[part])] for part in bins])


def _annotate_maximum(axes: Axes, x: float, y: float, words: str, width: float) -> None:
    """A triangle at a maximum with text above it, on the side with room."""
    axes.plot([x], [y], marker="v", color=INK, markersize=5, clip_on=False)
    side = "left" if x < 0.3 * width else "right" if x > 0.7 * width else "center"
    axes.annotate(words, (x, y), xytext=(0, 6), textcoords="offset points", ha=side, fontsize=9)


def _draw_staircase(axes: Axes, values: list[float], points: tuple[Liveness, ...]) -> None:
    """A filled staircase over supersteps, with every other phase shaded and all phases named."""
    edges = np.arange(len(values) + 1)
    axes.fill_between(edges, [*values, values[-1]], step="post", color=BLUE, alpha=0.85, linewidth=0)
    axes.set_xlim(0, len(values))
    start = 0
    for end in range(1, len(points) + 1):
        if end == len(points) or points[end].phase != points[start].phase:
            axes.axvline(start, color=GREY, linewidth=0.6)
            if end - start > 0.04 * len(points):
                name, along = clipped(points[start].phase, 14), axes.get_xaxis_transform()
                axes.text((start + end) / 2, 0.05, name, transform=along, ha="center", fontsize=8, bbox=LABEL_BOX)
            start = end
