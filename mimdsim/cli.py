"""The command line. Everything heavy is imported inside the command that needs it, so `--help` answers at once."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mimdsim.base.console import RAISE, say, says_how_to_go_on, told_as_ours
from mimdsim.base.errors import MimdsimError, cannot_write, of_the_machine, shortened
from mimdsim.base.memory_lack import lacks_memory, told_lack, watch_memory
from mimdsim.base.paths import FILE_TO_WRITE, PATH
from mimdsim.base.progress import Bars
from mimdsim.base.version import __version__
from mimdsim.checking import SET, WORKLOAD, check_command, explain_command
from mimdsim.conversion import export_command, import_command
from mimdsim.narrowing import narrow_command
from mimdsim.placing import MAPPING, place_command
from mimdsim.reporting import report_command
from mimdsim.studying import study_command, sweep_command

if TYPE_CHECKING:
    from mimdsim.machine import GpuMachine, MimdMachine
    from mimdsim.run import Run
    from mimdsim.study import Study
    from mimdsim.workload import Workload

FOLDER = "Output folder (default reports/WORKLOAD-{}, plus a digest of the changes with --set)."

OUR_FAILURE = 4
FEW_COLLECTIONS = 500_000  # objects made before Python looks for circles among them: programs are large and have few


class _Commands(click.Group):
    """Turns user errors and refusals by the system into a message and exit code 2, and internal errors into one and
    exit code 4."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        gc.set_threshold(FEW_COLLECTIONS)
        watch_memory()
        atexit.register(gc.freeze)  # at its end Python would look once more, through all that it then gives up
        try:
            if not _has_working_folder():
                raise MimdsimError("the working folder is gone; change to one that is there")
            return super().main(*arguments, **options)
        except (MimdsimError, OSError) as problem:
            if not isinstance(problem, MimdsimError) and not of_the_machine(problem):
                raise
            with contextlib.suppress(OSError):
                say(f"mimdsim: {_said(problem)}", err=True)
            _give_up_output()
            sys.exit(2)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except MimdsimError as mistake:
            say(f"mimdsim: {mistake}", err=True)
            context.exit(2)
        except click.ClickException as misuse:
            told = io.StringIO()
            misuse.show(told)
            say(told.getvalue(), nl=False, err=True)
            context.exit(misuse.exit_code)
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):  # the reader of the output may stop: click exits
            raise
        except Exception as failure:
            if lacks_memory(failure):
                say(told_lack(f"{type(failure).__name__}: {failure}".rstrip(": ")), err=True)
                context.exit(2)
            if os.environ.get(RAISE) or of_the_machine(failure):
                raise
            say(f"mimdsim: {told_as_ours(failure)}", err=True)
            context.exit(OUR_FAILURE)


def _has_working_folder() -> bool:
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False


def _said(problem: MimdsimError | OSError) -> str:
    if isinstance(problem, MimdsimError):
        return str(problem)
    return str(cannot_write(problem.filename or "what is printed here", problem))


def _give_up_output() -> None:
    """Discard buffered output, so that flushing it at exit does not fail again."""
    try:
        sys.stdout.flush()
    except (OSError, AttributeError):  # None if it was closed from the start
        with contextlib.suppress(OSError, AttributeError):  # no file descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mimdsim")
def main() -> None:
    """What-if laboratory for processors of many independent tiles.

    WORKLOAD and MACHINE are names that `mimdsim list` shows, or TOML files.
    """


main.add_command(import_command)
main.add_command(export_command)
main.add_command(check_command)
main.add_command(explain_command)
main.add_command(narrow_command)
main.add_command(place_command)
main.add_command(report_command)
main.add_command(study_command)
main.add_command(sweep_command)


@main.command(short_help="Train a workload on tiles, profile it, write a report.")
@WORKLOAD
@click.argument("machine", default="bow")
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
@click.option(
    "--window", metavar="40-49", help="Timesteps of which every tile is kept one by one (default: the first ten)."
)
@MAPPING
@SET
def run(
    workload: str,
    machine: str,
    mapping: Path | None,
    out: Path | None,
    gpus: tuple[str, ...],
    dump: Path | None,
    checkpoint: Path | None,
    resume: bool,
    accept_other_code: bool,
    window: str | None,
    changes: tuple[str, ...],
) -> None:
    """Train WORKLOAD on the tiles of MACHINE, profile it, and write a report."""
    from mimdsim import api
    from mimdsim.run.changes import load_tiled

    def made(**given: Any) -> Run:
        beside = tuple(gpu for gpu in gpus if gpu != "none")
        to_go_on: dict[str, Any] = {"checkpoint": checkpoint, "resume": resume, "accept_other_code": accept_other_code}
        return api.run(workload, machine, mapping=mapping, gpus=beside, dump=dump, window=window, **to_go_on, **given)

    changed, name = _named(workload, changes, mapping)
    folder = out or _folder(name, load_tiled(machine).name, changed, mapping)
    _run(made, folder, changed, dump, checkpoint)


@main.command(short_help="Compare tiled machines and GPUs on the same training graph.")
@WORKLOAD
@click.argument("machines", nargs=-1)
@click.option("--out", type=PATH, help=FOLDER.format("compared"))
@MAPPING
@SET
def compare(
    workload: str, machines: tuple[str, ...], out: Path | None, mapping: Path | None, changes: tuple[str, ...]
) -> None:
    """Compare tiled machines and GPUs on WORKLOAD (default: bow, a100 and h100).

    The first tiled machine is the reference: WORKLOAD is trained on it, the others are timed with its spikes. One
    machine alone is compared with a100.
    """
    from mimdsim import api

    chosen = machines or ("bow", "a100", "h100")
    if len(chosen) == 1:
        chosen = (*chosen, "a100")
    changed, name = _named(workload, changes, mapping)
    folder = out or _folder(name, "compared", changed, mapping)
    _run(lambda **given: api.compare(workload, chosen, mapping=mapping, **given), folder, changed)


def _named(workload: str, changes: tuple[str, ...], mapping: Path | None) -> tuple[dict[str, Any], str]:
    """All changes as text, and the name of the workload."""
    from mimdsim.run.changes import parse_changes
    from mimdsim.workload import find_workload, load_workload

    find_workload(workload)  # a machine given first gets a message
    for_workload, for_machine = parse_changes(changes)
    return for_workload | for_machine, load_workload(workload, for_workload, mapping).name


def _folder(workload: str, kind: str, changes: dict[str, Any], mapping: Path | None) -> Path:
    from mimdsim.base.files import changes_mark
    from mimdsim.base.schema import read_toml

    decides = changes | ({} if mapping is None else {"--mapping": read_toml(mapping)[1]})
    return Path("reports") / f"{workload}-{kind}{changes_mark(decides)}"


def _run(
    make: Callable[..., Run],
    folder: Path,
    changes: dict[str, Any],
    dump: Path | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Write what `make` makes to `folder` and show it."""
    from mimdsim.base.files import folders_to_write
    from mimdsim.report import marked_as_bad, summary_lines

    needed = (folder, dump, checkpoint and checkpoint.parent)
    with says_how_to_go_on(lambda: _kept(checkpoint)), folders_to_write(*filter(None, needed)), Bars() as bars:
        found = make(changes=changes, report=folder, progress=bars.show)
    for line, bad in marked_as_bad(summary_lines(found.profile)):
        say(line, bad=bad)
    say(f"\nReport: {folder / 'report.html'}")


def _kept(checkpoint: Path | None) -> str:
    if checkpoint is not None and checkpoint.is_file():
        return f"the same command with --resume continues from {checkpoint}"
    return "nothing was saved; with --checkpoint FILE a training can be continued from its last epoch"


@main.command("list", short_help="List the available workloads, machines and studies.")
def list_everything() -> None:
    """List the available workloads, machines and studies, and the files of those that do not come with mimdsim."""
    from mimdsim.base.places import find_description, where_from
    from mimdsim.machine import find_machine, list_machines, load_machine
    from mimdsim.study import list_studies, read_study
    from mimdsim.workload import find_workload, list_workloads, load_workload

    say("workloads")
    for name in list_workloads():
        say(_listed(name, load_workload, where_from("workloads", find_workload(name))))
    say("machines")
    for name in list_machines():
        say(_listed(name, load_machine, where_from("models", find_machine(name))))
    say("studies")
    for name in list_studies():
        say(_listed(name, read_study, where_from("studies", find_description("studies", "study", name))))


def _listed(name: str, load: Callable[[str], Workload | MimdMachine | GpuMachine | Study], file: str) -> str:
    """A line of `list`; files in a folder named models that are not machines are reported without hiding others."""
    try:
        title = load(name).title
    except MimdsimError as problem:
        title = f"cannot be read: {shortened(' '.join(str(problem).split()), 160)}"
    return f"  {name:<22} {title}" + (f"  [{file}]" if file else "")


if __name__ == "__main__":
    main()
