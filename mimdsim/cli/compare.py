"""`mimdsim compare`: tiled machines and GPUs on the same training graph."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from mimdsim.base.console import PATH
from mimdsim.cli.options import BEST_MAPPING, CANDIDATES, FOLDER, MAPPING, SET, WORKLOAD, Output, output
from mimdsim.cli.run import named_changes, report_folder, run_and_show


@click.command("compare", short_help="Compare tiled machines and GPUs on the same training graph.")
@WORKLOAD
@click.argument("machines", nargs=-1)
@click.option("--out", type=PATH, help=FOLDER.format("compared"))
@MAPPING
@BEST_MAPPING
@CANDIDATES
@SET
@output
def compare_command(
    workload: str,
    machines: tuple[str, ...],
    out: Path | None,
    mapping: Path | None,
    best_mapping: bool,
    candidates: int,
    changes: tuple[str, ...],
    shown: Output,
) -> None:
    """Compare tiled machines and GPUs on WORKLOAD (default: bow, a100 and h100).

    The first tiled machine that WORKLOAD fits is the reference: WORKLOAD is trained on it, the others are timed with
    its spikes. One machine alone is compared with a100, a GPU alone with bow.
    """
    from mimdsim import api
    from mimdsim.machine import GpuMachine, given_machine

    chosen = machines or ("bow", "a100", "h100")
    if len(chosen) == 1:
        chosen = ("bow", *chosen) if isinstance(given_machine(chosen[0]), GpuMachine) else (*chosen, "a100")
    changed, name = named_changes(workload, changes, mapping)
    folder = out or report_folder(name, "compared", changed, mapping)
    searched = candidates if best_mapping else 0
    run_and_show(partial(api.compare, workload, chosen, mapping=mapping, best_mapping=searched), folder, changed, shown)
