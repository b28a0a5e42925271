"""Arguments and options that several commands take."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from mimdsim.base.console import PATH, Bars, say
from mimdsim.base.errors import DescriptionError

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
