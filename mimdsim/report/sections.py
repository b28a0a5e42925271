"""The sections of a report with their tables, of which the console prints some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mimdsim.profile import RunProfile
from mimdsim.report import tables_machines, tables_run
from mimdsim.report.explorer_data import too_large
from mimdsim.report.tables import Table
from mimdsim.report.tables_difference import difference_tables

if TYPE_CHECKING:
    from mimdsim.profile.detail import Detail

PAGE_ROWS = 400  # supersteps and kernels on the page; the CSV files have all
OF_TRAINING = ("training", "spikes", "comparison")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A numbered part of the page. missing: the sentence shown if the profile has no data for it.

    folded: tables that are closed until the reader opens them.
    """

    key: str
    title: str
    tables: tuple[Table, ...]
    folded: tuple[Table, ...]
    missing: str


def sections(
    profile: RunProfile,
    detail: Detail | None = None,
    other: tuple[RunProfile, Detail | None] | None = None,
    rows: int = PAGE_ROWS,
) -> tuple[Section, ...]:
    """The sections between the summary and the list of files, always in the same order; three only appear for
    training, one with a detail, and one with another run. rows: at most, of supersteps, doubts and GPU kernels."""
    tiled, training, compared = profile.tiled, profile.training, bool(profile.gpus or profile.tiled_beside)
    shown: dict[str, Sequence[Table | None]] = {"modelled": [tables_machines.assumptions_table(profile)]}
    folded: dict[str, Table | None] = {}
    too_many = ""
    if tiled is not None:
        advice = tables_machines.advice_table(profile) if profile.advice else None
        shown |= {
            "time": [
                advice,
                tables_run.phases_table(tiled),
                tables_run.supersteps_table(tiled, rows),
                tables_run.doubts_table(tiled, rows),
            ],
            "tiles": [
                tables_run.utilisation_table(tiled),
                tables_run.tiles_table(tiled),
                tables_machines.silicon_table(profile),
            ],
            "memory": [tables_run.categories_table(tiled.memory), tables_run.variables_table(tiled.memory)],
            "liveness": [tables_run.liveness_table(tiled.memory)],
        }
        folded |= {
            "time": tables_machines.energy_parts_table(tiled),
            "tiles": tables_machines.silicon_parts_table(tiled),
        }
        if detail is not None:
            shown["walk"], too_many = [], too_large(detail)
    if other is not None:
        shown["differences"] = difference_tables(profile, other[0])
    if training is not None:
        shown["training"] = [tables_run.training_table(training)]
    if profile.activity:
        shown["spikes"] = [tables_run.activity_table(profile.activity), tables_run.sparsity_table(profile.activity)]
    if profile.network:
        machines = (
            [tables_machines.comparison_table(profile), tables_machines.phase_comparison_table(profile)]
            if compared
            else []
        )
        shown["comparison"] = [*machines, tables_machines.energy_table(profile)]
        folded["comparison"] = tables_machines.kernels_table(profile, rows)
    untimed = "No tiled machine was profiled in this run." if profile.network else "The kernel was not timed."
    no_tiles = "" if tiled else untimed
    with_machines = f"Comparison with {'tiled machines and ' if profile.tiled_beside else ''}GPUs"
    every = (
        ("differences", "Differences", ""),
        ("walk", "Walk through", too_many),
        ("time", "Where the time goes", no_tiles),
        ("tiles", "Tiles", no_tiles),
        ("memory", "Memory", no_tiles),
        ("liveness", "Liveness", no_tiles),
        ("training", "Training", "" if training else "Nothing was trained in this run."),
        ("spikes", "Spikes", "" if profile.activity else "No activity was recorded in this run."),
        ("comparison", with_machines, "" if compared else "No GPU was compared in this run."),
        ("modelled", "What is modelled", ""),
    )
    return tuple(
        Section(
            key=key,
            title=title,
            tables=tuple(each for each in shown.get(key, ()) if each is not None),
            folded=tuple(each for each in (folded.get(key),) if each is not None),
            missing=missing,
        )
        for key, title, missing in every
        if (key in shown or missing) and (profile.network or key not in OF_TRAINING)
    )
