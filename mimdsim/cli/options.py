"""Arguments and options that several commands take."""

from __future__ import annotations

import click

from mimdsim.base.console import PATH

FOLDER = "Output folder (default reports/WORKLOAD-{}, plus a digest of the changes with --set)."
WORKLOAD = click.argument("workload", default="digits")
MACHINE = click.argument("machine", default="bow")
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
