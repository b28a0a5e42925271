"""Every figure of the page: name, section, what is seen, and the function that draws it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mimdsim.profile import RunProfile


@dataclass(frozen=True, kw_only=True)
class FigurePlan:
    """One figure: file stem, section of the page, caption for all readers; home: the module that draws it, imported
    then, as it imports matplotlib."""

    name: str
    section: str
    caption: str
    home: str

    def draw(self, profile: RunProfile) -> Figure | None:
        """The figure; None if the profile lacks its data."""
        drawn: Figure | None = getattr(import_module(f"mimdsim.report.{self.home}"), f"draw_{self.name}")(profile)
        return drawn


FIGURES = (
    FigurePlan(
        name="time_by_phase",
        section="time",
        caption="Time by phase: compute (slowest tile), internal exchange, sync and host, if any.",
        home="figures_cycles",
    ),
    FigurePlan(
        name="longest_supersteps",
        section="time",
        caption="The longest supersteps; at the bar's end: total, number of executions, slowest tile.",
        home="figures_cycles",
    ),
    FigurePlan(
        name="tile_map",
        section="tiles",
        caption="Busy cycles on the tile grid, and layers if any (grey: none); numbers go row by row on each chip.",
        home="figures_tiles",
    ),
    FigurePlan(
        name="tile_balance",
        section="tiles",
        caption="Busy cycles of all tiles, sorted, and their histogram; dashed: the mean of the tiles that have work.",
        home="figures_tiles",
    ),
    FigurePlan(
        name="memory_by_tile",
        section="memory",
        caption="Memory of every tile by category; the dashed line, if any, is the memory a tile has.",
        home="figures_memory",
    ),
    FigurePlan(
        name="liveness",
        section="liveness",
        caption="Memory in use over the program's supersteps, on the fullest tile and on all tiles.",
        home="figures_memory",
    ),
    FigurePlan(
        name="training",
        section="training",
        caption="Loss of every training step with its running mean, and test accuracy by epoch.",
        home="figures_training",
    ),
    FigurePlan(
        name="activity",
        section="spikes",
        caption="Spikes and list entries per timestep, mean over the batch, with each layer's spike capacity.",
        home="figures_spikes",
    ),
    FigurePlan(
        name="raster",
        section="spikes",
        caption="Spike raster of one sample: a mark for every spike.",
        home="figures_spikes",
    ),
    FigurePlan(
        name="comparison",
        section="comparison",
        caption="Milliseconds per training step on every machine and strategy, with interval and ratio.",
        home="figures_cycles",
    ),
)
