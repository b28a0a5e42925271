"""`mimdsim export`: a network with trained weights becomes a NIR graph."""

from __future__ import annotations

from pathlib import Path

import click

from mimdsim.base.console import FILE_TO_WRITE, PATH, say
from mimdsim.cli.import_model import SECONDS


@click.command("export", short_help="Write a network with trained weights as a NIR graph.")
@click.argument("workload")
@click.option("--weights", type=PATH, help="Trained weights (default: what the workload names).")
@click.option("--out", type=FILE_TO_WRITE, required=True, metavar="FILE.nir", help="File to write.")
@click.option(
    "--dt",
    type=SECONDS,
    help="Length of a timestep in seconds (default: data.bin_seconds).",
)
def export_command(workload: str, weights: Path | None, out: Path, dt: float | None) -> None:
    """Write the network of WORKLOAD with trained weights as a NIR graph.

    `mimdsim run` saves these as weights.safetensors with its report. snnTorch assumes a timestep of 1e-4 s.
    """
    from mimdsim.workload import load_workload
    from mimdsim.workload.interchange.nir_writing import export_nir

    for line in export_nir(load_workload(workload), weights, out, dt):
        say(line)
