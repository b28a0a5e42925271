"""Every figure of the page: name, section, what is seen, and the function that draws it."""

from __future__ import annotations

from dataclasses import dataclass

from mimdsim.report.figures_comparison import draw_comparison
from mimdsim.report.figures_cycles import draw_longest_supersteps, draw_time_by_phase
from mimdsim.report.figures_memory import draw_liveness, draw_memory_by_tile
from mimdsim.report.figures_spikes import draw_activity, draw_raster
from mimdsim.report.figures_tiles import draw_tile_balance, draw_tile_map
from mimdsim.report.figures_training import draw_training
from mimdsim.report.style import Draw

__all__ = [
    "FIGURES",
    "FigurePlan",
    "draw_activity",
    "draw_comparison",
    "draw_liveness",
    "draw_longest_supersteps",
    "draw_memory_by_tile",
    "draw_raster",
    "draw_tile_balance",
    "draw_tile_map",
    "draw_time_by_phase",
    "draw_training",
]


@dataclass(frozen=True, kw_only=True)
class FigurePlan:
    """One figure: file stem, section of the page, caption for all readers; draw returns None if the data is missing."""

    name: str
    section: str
    caption: str
    draw: Draw


FIGURES = (
    FigurePlan(
        name="time_by_phase",
        section="time",
        caption="Time by phase: compute (slowest tile), internal exchange, sync and host, if any.",
        draw=draw_time_by_phase,
    ),
    FigurePlan(
        name="longest_supersteps",
        section="time",
        caption="The longest supersteps; at the bar's end: total, number of executions, slowest tile.",
        draw=draw_longest_supersteps,
    ),
    FigurePlan(
        name="tile_map",
        section="tiles",
        caption="Busy cycles on the tile grid, and layers if any (grey: none); numbers go row by row on each chip.",
        draw=draw_tile_map,
    ),
    FigurePlan(
        name="tile_balance",
        section="tiles",
        caption="Busy cycles of all tiles, sorted, and their histogram; dashed: the mean of the tiles that have work.",
        draw=draw_tile_balance,
    ),
    FigurePlan(
        name="memory_by_tile",
        section="memory",
        caption="Memory of every tile by category; the dashed line, if any, is the memory a tile has.",
        draw=draw_memory_by_tile,
    ),
    FigurePlan(
        name="liveness",
        section="liveness",
        caption="Memory in use over the program's supersteps, on the fullest tile and on all tiles.",
        draw=draw_liveness,
    ),
    FigurePlan(
        name="training",
        section="training",
        caption="Loss of every training step with its running mean, and test accuracy by epoch.",
        draw=draw_training,
    ),
    FigurePlan(
        name="activity",
        section="spikes",
        caption="Spikes and list entries per timestep, mean over the batch, with each layer's spike capacity.",
        draw=draw_activity,
    ),
    FigurePlan(
        name="raster",
        section="spikes",
        caption="Spike raster of one sample: a mark for every spike.",
        draw=draw_raster,
    ),
    FigurePlan(
        name="comparison",
        section="comparison",
        caption="Milliseconds per training step on every machine and strategy, with interval and ratio.",
        draw=draw_comparison,
    ),
)
