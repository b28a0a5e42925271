"""The figures of a run as matplotlib axes, for notebooks: those of the report, drawn where one wants them.

matplotlib is imported when something is drawn.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mimdsim.base.errors import DataFileError, MimdsimError
from mimdsim.base.shown import one_line
from mimdsim.profile import RunProfile, load_profile
from mimdsim.profile.detail import DETAIL_FILE, REDO, load_beside
from mimdsim.profile.queries import RunQueries, SavedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class RunPlots:
    """The figures of a run. Each method draws on `ax`, or on a figure of its own, and returns the axes.

    Raises MimdsimError if the run has nothing to draw.
    """

    def __init__(self, profile: RunProfile):
        self._profile = profile

    def __repr__(self) -> str:
        return "figures of a run: plot.tiles(), plot.timeline(), plot.memory(), plot.compare(other)"

    def tiles(self, ax: Axes | None = None) -> Axes:
        """Busy cycles of a training step by tile, on the grid of the chip.

        ax: where to draw; without, the layer that each tile works for is drawn beside it.

            >>> made.plot.tiles().get_title(loc="left")
            'Busy cycles of the 16 tiles'
        """
        return _drawn("figures_tiles", "tile_map", self._profile, ax=ax)

    def timeline(self, ax: Axes | None = None) -> Axes:
        """The supersteps of a training step to scale, in order, in milliseconds: compute, exchange and sync.

        ax: where to draw.

            >>> made.plot.timeline().get_xlabel()
            'milliseconds'
        """
        return _drawn("figures_time", "timeline", self._profile, ax=ax)

    def memory(self, ax: Axes | None = None) -> Axes:
        """KiB of every tile by category where the fullest one is fullest, under the memory of a tile.

        ax: where to draw.

            >>> made.plot.memory().get_ylabel()
            'KiB'
        """
        return _drawn("figures_tiles", "memory_by_tile", self._profile, ax=ax)

    def compare(self, other: RunQueries | RunProfile | None = None, ax: Axes | None = None) -> Axes:
        """This run and another one by phase, in milliseconds; without another one, the machines and GPUs of this run.

        other: a run, a report that was opened, or a profile. ax: where to draw.

            >>> made.plot.compare(made.retime({"tile.worker_contexts": 3})).get_xlabel()
            'milliseconds per training step'
        """
        if other is None:
            return _drawn("figures_time", "comparison", self._profile, ax=ax)
        beside = other.profile if isinstance(other, RunQueries) else other
        if not isinstance(beside, RunProfile):
            raise MimdsimError(f"plot.compare({one_line(repr(other))}): give a run, an opened report or a profile")
        return _drawn("figures_time", "two_runs", self._profile, beside, ax=ax)


def _drawn(home: str, name: str, *given: Any, ax: Axes | None) -> Axes:
    """What `draw_<name>` of a module draws: on `ax`, or on a figure that pyplot shows."""
    draw = getattr(import_module(f"mimdsim.report.{home}"), f"draw_{name}")
    from mimdsim.report.style import on_pyplot

    with on_pyplot():
        figure = draw(*given, ax)
    if figure is None:
        hint = "; give another run, or let it have GPUs (gpus=)" if name == "comparison" else ""
        raise MimdsimError(f"there is nothing to draw: the run has no {name.replace('_', ' ')}{hint}")
    axes: Axes = figure.axes[0] if ax is None else ax
    return axes


class Plotted:
    """Has figures."""

    profile: RunProfile

    @property
    def plot(self) -> RunPlots:
        """Its figures: plot.tiles(), plot.timeline(), plot.memory(), plot.compare(other)."""
        return RunPlots(self.profile)


class OpenedRun(Plotted, SavedRun):
    """A saved run that is asked and drawn as one in memory is."""


def open_report(folder: str | Path) -> OpenedRun:
    """A saved run, which answers the same questions as one in memory; raises DataFileError for files that cannot be
    read.

    folder: of a report, which holds profile.json and detail.npz.

        >>> mimdsim.open_report("mine").work_of(3)  # doctest: +SKIP
    """
    path = Path(folder)
    path = path if path.suffix == ".json" else path / "profile.json"
    profile = load_profile(path)
    detail = load_beside(path, profile)
    if detail is None:
        raise DataFileError(path.parent / DETAIL_FILE, f"no such file, which has the columns of tiles; {REDO}")
    return OpenedRun(profile, detail)
