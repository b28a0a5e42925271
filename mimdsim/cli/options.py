"""Arguments and options that several commands take."""

from __future__ import annotations

import click

from mimdsim.base.click_types import PATH

FOLDER = "Output folder (default reports/WORKLOAD-{}, plus a digest of the changes with --set)."


WORKLOAD = click.argument("workload", default="digits")


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
    "--batch", default=8, show_default=True, type=click.IntRange(min=0), help="Reduce the batch to this; 0 keeps it."
)


MAPPING = click.option(
    "--mapping",
    type=PATH,
    metavar="FILE",
    help="Take the mapping from this file (mimdsim place writes them).",
)
