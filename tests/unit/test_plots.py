"""What runs and studies draw in notebooks: on axes that are given or on a figure of pyplot's, and what the data say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from test_api import made

import mimdsim
from mimdsim.pipeline import Run
from mimdsim.profile.queries import RunQueries
from mimdsim.report.plots import OpenedRun

KINDS = ("tiles", "timeline", "memory", "compare")


@pytest.fixture
def plt() -> Iterator[Any]:
    mpl.use("agg")
    from matplotlib import pyplot

    pyplot.close("all")
    yield pyplot
    pyplot.close("all")


def beside_a_gpu() -> Run:
    run, gpu = made(), mimdsim.load_machine("a100")
    gpus, _ = mimdsim.pipeline.retiming.time_on_gpus(run.compiled.graph, (gpu,), run.log.activity)
    return replace(run, profile=replace(run.profile, gpus=gpus))


@pytest.mark.parametrize("kind", KINDS)
def test_axes_that_are_given_are_drawn_on_and_no_others_are_made(kind: str, plt: Any) -> None:
    run = beside_a_gpu()
    figure, ax = plt.subplots()
    assert getattr(run.plot, kind)(ax=ax) is ax
    assert ax.has_data()
    assert ax.get_title(loc="left") or ax.get_title()
    assert plt.get_fignums() == [figure.number]
    figure.canvas.draw()


@pytest.mark.parametrize("kind", KINDS)
def test_without_axes_a_figure_of_pyplot_is_drawn(kind: str, plt: Any) -> None:
    before = dict(mpl.rcParams)
    axes = getattr(beside_a_gpu().plot, kind)()
    assert [plt.figure(number) for number in plt.get_fignums()] == [axes.figure]
    assert axes.figure.axes[0] is axes
    assert dict(mpl.rcParams) == before  # the style of the report is not left behind
    axes.figure.canvas.draw()


def test_a_timeline_is_the_cycles_of_every_part(plt: Any) -> None:
    run = made()
    axes = run.plot.timeline()
    bars = {round(bar.get_paths()[0].vertices[:, 1].mean()): bar for bar in axes.collections}
    for row, cycles in enumerate((run.tiled.compute_cycles, run.tiled.exchange_cycles, run.tiled.sync_cycles)):
        widths = [np.ptp(path.vertices[:, 0]) for path in bars[row].get_paths()]
        assert sum(widths) == pytest.approx(1e3 * run.tiled.seconds(cycles))
    assert axes.get_xlim() == pytest.approx((0, 1e3 * run.tiled.seconds(run.cycles)))


def test_two_runs_are_the_time_of_both(plt: Any) -> None:
    run = made()
    other = run.retime({"tile.worker_contexts": 3})
    axes = run.plot.compare(other)
    both = 1e3 * (run.tiled.seconds(run.cycles) + other.tiled.seconds(other.cycles))
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(both)
    assert len(axes.get_yticklabels()) == 2 * len({span.phase for span in run.tiled.spans})
    assert "worker" not in axes.figure.get_suptitle()
    opened = OpenedRun(other.profile, other.detail)
    assert isinstance(opened, RunQueries)
    assert len(opened.plot.compare(run.profile).patches) == len(axes.patches)


def test_what_is_not_there_is_said() -> None:
    run = made()
    with pytest.raises(mimdsim.MimdsimError, match="there is nothing to draw: the run has no comparison; give"):
        run.plot.compare()
    nothing = replace(run.profile, tiled=None)
    with pytest.raises(mimdsim.MimdsimError, match=r"run B \(digits\) has no tiled machine"):
        run.plot.compare(nothing)
    with pytest.raises(mimdsim.MimdsimError, match=r"plot.compare\('other'\): give a run, an opened report"):
        run.plot.compare("other")
    assert "plot.timeline()" in repr(run.plot)


@pytest.mark.slow
def test_sweeps_and_studies_draw_what_their_page_has(plt: Any, tmp_path: Path) -> None:
    axes = {"tile.worker_contexts": (3, 6, 12)}
    rows = mimdsim.sweep("digits", "bow", axes, fill=0.5, gpus="a100", folder=tmp_path)
    assert isinstance(rows, list)
    assert isinstance(rows[0], dict)
    assert "plot.lines()" in repr(rows.plot)
    lines = rows.plot.lines()
    assert len(lines[0].lines) == 1 + len(rows)  # a line, and a mark for each point
    assert len(plt.get_fignums()) == 1  # the crossover, drawn for the same section, is closed
    assert rows.plot.crossover()[0].get_yscale() == "log"
    study = mimdsim.Study(workloads="digits", fill=0.5, axes={"tile.worker_contexts": [3, 6, 12]}, gpus="a100")
    studied = mimdsim.study(study, tmp_path, as_is=True)
    assert len(studied.plot.best()) == len(studied.plot.effects()) == 1
    assert any("tile.worker_contexts" in line for line in studied.answer)
    with pytest.raises(mimdsim.MimdsimError, match="nothing to draw: the study has no points to rank"):
        mimdsim.study("ids-or-dense", as_is=True).plot.best()


@pytest.mark.slow
def test_nothing_imports_matplotlib_before_something_is_drawn() -> None:
    used = "mimdsim.run, mimdsim.pipeline.Run.plot, mimdsim.open_report"
    code = f"import sys, mimdsim; {used}; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
