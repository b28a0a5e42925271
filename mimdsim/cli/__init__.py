"""The command line. Everything heavy is imported inside the command that needs it, so `--help` answers at once."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import click

from mimdsim.base import __version__
from mimdsim.base.console import RAISE, Bars, internal_error_text, say
from mimdsim.base.errors import AS_CHANGED, MimdsimError, cannot_write, no_temporary_folder, of_the_machine
from mimdsim.base.out_of_memory import lacks_memory, out_of_memory_text, watch_memory
from mimdsim.base.user_code import PACKAGE
from mimdsim.cli.calibrate import calibrate_command, narrow_command
from mimdsim.cli.check import check_command
from mimdsim.cli.compare import compare_command
from mimdsim.cli.explain import explain_command
from mimdsim.cli.export_model import export_command
from mimdsim.cli.import_model import import_command
from mimdsim.cli.list import list_command
from mimdsim.cli.place import place_command
from mimdsim.cli.report import report_command
from mimdsim.cli.reproduce import reproduce_command
from mimdsim.cli.run import run_command
from mimdsim.cli.study import study_command
from mimdsim.cli.sweep import sweep_command
from mimdsim.cli.validate import validate_command

OUR_FAILURE = 4
EXTRA_FIELD = re.compile(r"unexpected extra arguments? \((\w+\.\w+=\S+?)[ )]")


FEW_COLLECTIONS = 500_000  # objects made before Python looks for circles among them: programs are large and have few


class Commands(click.Group):
    """Turns user errors and refusals by the system into a message and exit code 2, and internal errors into one and
    exit code 4."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        if sys.platform == "win32":
            say("mimdsim: runs on Linux; on Windows, use it in WSL", err=True)
            sys.exit(2)
        _open_streams()
        gc.set_threshold(FEW_COLLECTIONS)
        watch_memory()
        atexit.register(gc.freeze)  # at its end Python would look once more, through all that it then gives up
        try:
            if not _has_working_folder():
                raise MimdsimError("the working folder is gone; change to one that is there")
            with _environment():
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
            with Bars():  # until the command has its own
                return super().invoke(context)
        except MimdsimError as mistake:
            say(f"mimdsim: {str(mistake).replace(AS_CHANGED, ' (by --set)')}", err=True)
            context.exit(2)
        except click.ClickException as misuse:
            told = io.StringIO()
            misuse.show(told)
            if given := EXTRA_FIELD.search(misuse.message):
                told.write(f"A field is changed by  --set {given[1]}\n")
            say(told.getvalue(), nl=False, err=True)
            context.exit(misuse.exit_code)
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):  # the reader of the output may stop: click exits
            raise
        except Exception as failure:
            if lacks_memory(failure):
                say(out_of_memory_text(f"{type(failure).__name__}: {failure}".rstrip(": ")), err=True)
                context.exit(2)
            if os.environ.get(RAISE) or of_the_machine(failure):
                raise
            if isinstance(failure, ModuleNotFoundError) and not str(failure.name).startswith(PACKAGE):
                needed = f"mimdsim needs the package '{failure.name}', which this Python does not have"
                say(f"mimdsim: {needed}: type  {sys.executable} -m pip install mimdsim", err=True)
                context.exit(2)
            say(f"mimdsim: {internal_error_text(failure)}", err=True)
            context.exit(OUR_FAILURE)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """What a command and the processes that it starts find in the environment; a caller in this process has its own
    again afterwards."""
    before = dict(os.environ)
    os.environ["MPLBACKEND"] = "agg"  # figures go to files; notebooks name one that this Python may not have
    try:
        yield
    finally:
        for name in {**before, **os.environ}:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


def _open_streams() -> None:
    """Open what was closed when the command began, as a shell's `2>&-` does: else Python has no such stream, and the
    next file that is opened takes its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w"))


def _has_working_folder() -> bool:
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False


def _said(problem: MimdsimError | OSError) -> str:
    if isinstance(problem, MimdsimError):
        return str(problem)
    if no_temporary_folder(problem):
        return f"{problem.strerror}; free some space, or set TMPDIR to a folder that can be written"
    return str(cannot_write(problem.filename or "what is printed here", problem))


def _give_up_output() -> None:
    """Discard buffered output, so that flushing it at exit does not fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):  # no file descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mimdsim")
@click.option("--allow-code", is_flag=True, help="Run Python files that workloads name (network.models).")
def main(allow_code: bool) -> None:
    """What-if laboratory for processors of many independent tiles.

    WORKLOAD and MACHINE are names that `mimdsim list` shows, or TOML files.
    """
    if allow_code:
        from mimdsim.workload import allow_code as allow

        allow()


for _command in (
    run_command, compare_command, sweep_command, study_command, check_command, validate_command, calibrate_command,
    narrow_command, reproduce_command, place_command, explain_command, report_command, import_command, export_command,
    list_command,
):  # fmt: skip
    main.add_command(_command)

if __name__ == "__main__":
    main()
