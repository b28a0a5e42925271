"""The figures of a study, for notebooks: those of its page, as matplotlib axes; and the rows of a sweep, which have
them too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mimdsim.base.errors import MimdsimError
from mimdsim.base.shown import Listed, Sheet
from mimdsim.base.units import counted
from mimdsim.studies.metrics import Row
from mimdsim.studies.results import table_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mimdsim.studies.runner import StudyResult


class StudyPlots:
    """The figures of a study. Each method draws a figure and returns its axes; a `MimdsimError` says if the study has
    nothing for it."""

    def __init__(self, result: StudyResult):
        self._result = result

    def __repr__(self) -> str:
        return "figures of a study: plot.best(), plot.effects(), plot.lines(), plot.crossover()"

    def best(self) -> list[Axes]:
        """The front of the metrics, or with one metric the best points, with intervals and probabilities.

        >>> len(swept.plot.best())
        1
        """
        return self._axes("best_section", 0, "points to rank")

    def effects(self) -> list[Axes]:
        """The first metric along every varied field.

        >>> [panel.get_title(loc="left").split(":")[0] for panel in swept.plot.effects()]
        ['tile.worker_contexts']
        """
        return self._axes("effects_section", 0, "fields that vary, evenly")

    def lines(self) -> list[Axes]:
        """Time, its ratio to the first point's, and memory along the first axis of a grid.

        >>> [panel.get_title(loc="left") for panel in swept.plot.lines()]
        ['Time', 'Time relative to the first point', 'Memory']
        """
        return self._axes("lines_section", 0, "grid with results")

    def crossover(self) -> list[Axes]:
        """GPU time over tiled time along the first axis of a grid; of studies with GPUs.

        >>> studied.plot.crossover()  # doctest: +SKIP
        """
        return self._axes("lines_section", 1, "grid beside GPUs")

    def _axes(self, name: str, which: int, needed: str) -> list[Axes]:
        """The axes of a figure of a section of the page; others that were drawn for it are closed."""
        from mimdsim.report.style import on_pyplot
        from mimdsim.studies import page_data
        from mimdsim.studies.pareto import rank

        given = self._result if name == "lines_section" else rank(self._result)
        with on_pyplot() as close:
            section = getattr(page_data, name)(given)
            figures = [figure for figure, _ in section.figures] if section is not None else []
            for place, figure in enumerate(figures):
                if place != which:
                    close(figure)
        if len(figures) <= which:
            raise MimdsimError(f"there is nothing to draw: the study has no {needed}")
        return list(figures[which].axes)


class SweptRows(Listed[Row]):
    """The rows of a sweep, a dict each, with its figures."""

    def __init__(self, result: StudyResult):
        study = result.study
        axes, gpus = list(study.axes), tuple(Path(gpu).stem for gpu in study.gpus)

        def sheet(rows: Sequence[Row]) -> Sheet:
            cells = table_cells(list(rows), axes, gpus)
            first = sorted(range(len(cells[0])), key=lambda at: cells[0][at] in ("compute", "exchange", "sync"))
            head, *others = [[row[at] for at in first] for row in cells]
            return Sheet(f"{counted(len(rows), 'point')} of {' and '.join(study.workloads)}", others, tuple(head))

        super().__init__(map(dict, result.rows), sheet)
        self._result = result

    @property
    def plot(self) -> StudyPlots:
        """Its figures: plot.lines(), plot.crossover(), plot.effects(), plot.best()."""
        return StudyPlots(self._result)
