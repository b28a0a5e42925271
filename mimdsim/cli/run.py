"""`mimdsim run`: train a workload on tiles, profile it, write a report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mimdsim.base.console import FILE_TO_WRITE, PATH, explain_interrupt
from mimdsim.cli.options import FOLDER, MACHINE, MAPPING, SET, WORKLOAD, Output, output

if TYPE_CHECKING:
    from mimdsim.pipeline import Run


@click.command("run", short_help="Train a workload on tiles, profile it, write a report.")
@WORKLOAD
@MACHINE
@click.option("--out", type=PATH, help=FOLDER.format("MACHINE"))
@click.option("--gpu", "gpus", multiple=True, default=("a100",), show_default=True, help="GPU to compare with.")
@click.option("--dump", type=PATH, help="Write the program to this folder after every compiler pass.")
@click.option("--checkpoint", type=FILE_TO_WRITE, help="Save the training to this file after every epoch.")
@click.option("--resume", is_flag=True, help="Continue from the checkpoint, as if the training had never stopped.")
@click.option(
    "--accept-other-code",
    is_flag=True,
    help="With --resume: also if other sources of mimdsim wrote the checkpoint; the profile records it.",
)
@click.option("--inference", is_flag=True, help="Time inference of test samples too: the forward pass alone.")
@click.option("--window", metavar="40-49", help="Timesteps to record per tile (default: the first ten).")
@MAPPING
@SET
@output
def run_command(
    workload: str,
    machine: str,
    mapping: Path | None,
    out: Path | None,
    gpus: tuple[str, ...],
    dump: Path | None,
    checkpoint: Path | None,
    changes: tuple[str, ...],
    shown: Output,
    **more: Any,
) -> None:
    """Train WORKLOAD on the tiles of MACHINE, profile it, and write a report."""
    from mimdsim import api
    from mimdsim.pipeline.overrides import load_tiled

    changed, name = named_changes(workload, changes, mapping)
    folder = out or report_folder(name, load_tiled(machine).name, changed, mapping)
    more |= {"mapping": mapping, "gpus": tuple(gpu for gpu in gpus if gpu != "none")}
    run = partial(api.run, workload, machine, dump=dump, checkpoint=checkpoint, **more)
    run_and_show(run, folder, changed, shown, dump, checkpoint)


def named_changes(workload: str, changes: tuple[str, ...], mapping: Path | None) -> tuple[dict[str, Any], str]:
    """All changes as text, and the name of the workload."""
    from mimdsim.pipeline.overrides import parse_changes
    from mimdsim.workload import find_workload, load_workload

    find_workload(workload)  # a machine given first gets a message
    for_workload, for_machine = parse_changes(changes)
    return for_workload | for_machine, load_workload(workload, for_workload, mapping).name


def report_folder(workload: str, kind: str, changes: dict[str, Any], mapping: Path | None) -> Path:
    from mimdsim.base.files import changes_mark
    from mimdsim.base.schema import read_toml

    decides = changes | ({} if mapping is None else {"--mapping": read_toml(mapping)[1]})
    return Path("reports") / f"{workload}-{kind}{changes_mark(decides)}"


def run_and_show(
    make: Callable[..., Run],
    folder: Path,
    changes: dict[str, Any],
    shown: Output,
    dump: Path | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Write what `make` makes to `folder` and show it."""
    from mimdsim.base.files import folders_to_write
    from mimdsim.report import headline_record, short_lines, summary_lines

    needed = (folder, dump, checkpoint and checkpoint.parent)
    with explain_interrupt(lambda: _kept(checkpoint)), folders_to_write(*filter(None, needed)), shown.bars() as bars:
        profile = make(changes=changes, report=folder, progress=bars.show).profile
    page = folder / "report.html"
    shown.show(
        folder,
        short=lambda: short_lines(profile, page),
        everything=lambda: [*summary_lines(profile), "", f"Report: {page}"],
        record=lambda: headline_record(profile),
    )


def _kept(checkpoint: Path | None) -> str:
    if checkpoint is not None and checkpoint.is_file():
        return f"the same command with --resume continues from {checkpoint}"
    return "nothing was saved; with --checkpoint FILE a training can be continued from its last epoch"
