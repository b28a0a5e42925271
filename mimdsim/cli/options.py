"""Arguments and options that several commands take; the group of commands: user errors and refusals of the system as
one message, exit codes, memory."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from mimdsim.base.console import PATH, RAISE, Bars, internal_error_text, say
from mimdsim.base.errors import DescriptionError, MimdsimError, cannot_write, of_the_machine
from mimdsim.base.modules import PACKAGE
from mimdsim.base.out_of_memory import lacks_memory, out_of_memory_text, watch_memory

FOLDER = "Output folder (default reports/WORKLOAD-{}, plus a digest of the changes with --set)."
WORKLOAD = click.argument("workload", default="digits")
DEFAULT_MACHINE = "bow"
MACHINE = click.argument("machine", default=DEFAULT_MACHINE)
SET = click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a field, e.g. --set training.epochs=2."
)
TIMESTEPS = click.option(
    "--timesteps",
    default=6,
    show_default=True,
    type=click.IntRange(min=0),
    help="Shorten sequences to this many timesteps; 0 keeps them.",
)
BATCH = click.option(
    "--batch",
    default=8,
    show_default=True,
    type=click.IntRange(min=0),
    help="Reduce the batch to this, more where tiles share samples; 0 keeps it.",
)
MAPPING = click.option(
    "--mapping",
    type=PATH,
    metavar="FILE",
    help="Take the mapping from this file (mimdsim place writes them).",
)
BEST_MAPPING = click.option(
    "--best-mapping", is_flag=True, help="Time every point or machine at the best mapping that a search finds."
)
CANDIDATES = click.option(
    "--candidates",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    help="Mappings that each such search evaluates.",
)
PROCESSES = click.option("--processes", type=click.IntRange(min=1), help="Local processes (default: all processors).")
DASK = click.option(
    "--dask",
    metavar="ADDRESS",
    help=(
        "Work on the cluster of this Dask scheduler (tcp://HOST:PORT). Dask unpickles what it receives: use one that "
        "only you can reach, or tls:// with certificates."
    ),
)
STUDY_FOLDER = click.option("--out", type=PATH, help="Folder to write to and to resume from.")
DATA = click.option("--data", type=PATH, help="N-MNIST folder for the activity of training steps.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
VERBOSE = "All of it on the console: --verbose"  # the last line of a short form


class Output(NamedTuple):
    """What of its result a command prints."""

    form: Literal["short", "verbose", "quiet", "json"] = "short"

    def bars(self) -> Bars:
        """Progress, unless only errors are to be printed."""
        return Bars(silent=self.form == "quiet")

    def show(
        self,
        where: Path | None,
        *,
        short: Callable[[], Iterable[str]],
        everything: Callable[[], Iterable[str]],
        record: Callable[[], dict[str, Any]],
    ) -> None:
        """Print the result that lies in a folder or file: a few lines, all of them (bad news begin with "!"), or as
        one JSON document."""
        from mimdsim.base.files import dump_json
        from mimdsim.report import marked_as_bad
        from mimdsim.report.explorer_data import harmless

        if self.form == "json":
            say(dump_json(harmless({**record(), "written": None if where is None else str(where)})), nl=False)
        elif self.form == "quiet":
            say("" if where is None else str(where), nl=where is not None)
        else:
            for line, bad in marked_as_bad(short() if self.form == "short" else everything()):
                say(line, bad=bad)


def output(command: Callable[..., None]) -> Callable[..., None]:
    """A command with --verbose, --quiet and --json, of which it gets `shown`, an Output."""

    @click.option("--verbose", is_flag=True, help="Print everything: all tables, advice with its commands.")
    @click.option("--quiet", is_flag=True, help="Print errors only, and the path of what was written.")
    @click.option("--json", "as_json", is_flag=True, help="Print the headline figures as one JSON document.")
    @functools.wraps(command)
    def with_output(*given: Any, verbose: bool, quiet: bool, as_json: bool, **more: Any) -> None:
        chosen = [form for form, wanted in (("verbose", verbose), ("quiet", quiet), ("json", as_json)) if wanted]
        if len(chosen) > 1:
            raise DescriptionError("output", [f"--{chosen[0]} and --{chosen[1]} exclude each other; leave out one"])
        shown = Output(*chosen)  # type: ignore[arg-type]
        with shown.bars():  # quiet from the beginning
            command(*given, shown=shown, **more)

    return with_output


OUR_FAILURE = 4


FEW_COLLECTIONS = 500_000  # objects made before Python looks for circles among them: programs are large and have few


class Commands(click.Group):
    """Turns user errors and refusals by the system into a message and exit code 2, and internal errors into one and
    exit code 4."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        if sys.platform == "win32":
            say("mimdsim: runs on Linux; on Windows, use it in WSL", err=True)
            sys.exit(2)
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
            with Bars():  # until the command has its own
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
