"""The sections of a report with their tables, of which the console prints some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mimdsim.profile import RunProfile
from mimdsim.report import tables_machines as machines
from mimdsim.report import tables_run as run
from mimdsim.report.explorer_data import too_large
from mimdsim.report.tables import Table
from mimdsim.report.tables_difference import difference_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mimdsim.profile.detail import Detail

PAGE_ROWS = 400  # supersteps and kernels on the page; the CSV files have all
TITLES = {
    "differences": "Differences",
    "walk": "Walk through",
    "time": "Where the time goes",
    "tiles": "Tiles",
    "memory": "Memory",
    "liveness": "Liveness",
    "training": "Training",
    "spikes": "Spikes",
    "comparison": "Comparison with GPUs",
    "inference": "Inference",
    "modelled": "What is modelled",
}
OF_TRAINING = {  # sections of networks alone, and the sentence where a run has nothing for them
    "training": "Nothing was trained in this run.",
    "spikes": "No activity was recorded in this run.",
    "comparison": "No GPU was compared in this run.",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Section:
    """A numbered part of a page. missing: the sentence shown if a profile has no data for it. lines: paragraphs;
    figures, of a study: each with what it shows and what it leaves out.

    folded: tables that are closed until the reader opens them.
    """

    key: str
    title: str
    lines: Sequence[str] = ()
    figures: Sequence[tuple[Figure, str]] = ()
    tables: Sequence[Table] = ()
    folded: Sequence[Table] = ()
    missing: str = ""


def sections(
    profile: RunProfile,
    detail: Detail | None = None,
    other: tuple[RunProfile, Detail | None] | None = None,
    rows: int = PAGE_ROWS,
) -> tuple[Section, ...]:
    """The sections between the summary and the list of files, always in the same order; three only appear for
    training, one with a detail, and one with another run. rows: at most, of supersteps, doubts and GPU kernels."""
    untimed = "No tiled machine was profiled in this run." if profile.network else "The kernel was not timed."
    missing = dict.fromkeys(("time", "tiles", "memory", "liveness"), untimed) | OF_TRAINING
    shown = _tables(profile, rows, detail)
    if other is not None:
        shown["differences"] = list(difference_tables(profile, other[0])), []
    if detail is not None and profile.tiled is not None:
        missing["walk"] = too_large(detail)
        shown |= {} if missing["walk"] else {"walk": ([], [])}
    titles = TITLES | ({"comparison": "Comparison with tiled machines and GPUs"} if profile.tiled_beside else {})
    return tuple(
        Section(
            key=key,
            title=title,
            tables=tuple(each for each in shown.get(key, NONE)[0] if each is not None),
            folded=tuple(each for each in shown.get(key, NONE)[1] if each is not None),
            missing="" if key in shown else missing[key],
        )
        for key, title in titles.items()
        if (key in shown or missing.get(key)) and (profile.network or key not in OF_TRAINING)
    )


Tables = tuple[list[Table | None], list[Table | None]]  # open and folded
NONE: Tables = [], []


def _tables(profile: RunProfile, rows: int, detail: Detail | None) -> dict[str, Tables]:
    """The tables of every section that the profile has data for."""
    tiled = profile.tiled
    shown: dict[str, Tables] = {"modelled": ([machines.assumptions_table(profile)], [])}
    if tiled is not None:
        advice = machines.advice_table(profile) if profile.advice else None
        time = [advice, run.phases_table(tiled), run.layers_table(tiled)]
        time += [run.supersteps_table(tiled, rows), run.doubts_table(tiled, rows)]
        balance = None if detail is None else run.balance_table(tiled, detail)
        tiles = [run.utilisation_table(tiled), balance, run.tiles_table(tiled), machines.silicon_table(profile)]
        shown |= {
            "time": (time, [machines.energy_parts_table(tiled)]),
            "tiles": (tiles, [machines.silicon_parts_table(tiled)]),
            "memory": ([run.categories_table(tiled.memory), run.variables_table(tiled.memory)], []),
            "liveness": ([run.liveness_table(tiled.memory)], []),
        }
    if profile.training is not None:
        shown["training"] = [run.training_table(profile.training)], []
    if profile.activity:
        shown["spikes"] = [run.activity_table(profile.activity), run.sparsity_table(profile.activity)], []
    if profile.gpus or profile.tiled_beside:
        by_phase = machines.phase_comparison_table(profile)
        beside = [
            machines.comparison_table(profile),
            by_phase,
            machines.operations_table(profile),
            machines.energy_table(profile),
        ]
        shown["comparison"] = beside, [machines.kernels_table(profile, rows)]
    if profile.inference:
        shown["inference"] = [machines.inference_table(profile)], []
    return shown
