"""`mimdsim import`: a NIR graph or a state dict becomes a workload."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from mimdsim.base.click_types import PATH
from mimdsim.base.console import say
from mimdsim.base.errors import DescriptionError


class Finite(click.FloatRange):
    """A finite number in a range (NaN would pass a range check)."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        number = super().convert(value, param, context)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, context)
        return number


SECONDS = Finite(min=0, min_open=True)


RESETS = ("file", "zero", "zero_after", "subtract", "subtract_decayed", "none")


@click.command("import", short_help="Turn a NIR graph or a state dict into a workload.")
@click.argument("model", type=PATH)
@click.option("--out", type=PATH, help="Folder to write (default imported/MODEL).")
@click.option("--workload", default="", help="Take data, training and mapping from this workload (default: random).")
@click.option("--dt", type=SECONDS, help="Length of a timestep in seconds (default: tau/r).")
@click.option(
    "--leak", type=click.Choice(["euler", "exp"]), default="euler", show_default=True, help="How tau becomes a decay."
)
@click.option(
    "--reset", type=click.Choice(RESETS), default="file", show_default=True, help="What a spike does to its neuron."
)
@click.option(
    "--map", "mapped", multiple=True, metavar="TENSOR=w.LAYER", help="Which weights a tensor holds; repeat for more."
)
def import_command(
    model: Path, out: Path | None, workload: str, dt: float | None, leak: str, reset: str, mapped: tuple[str, ...]
) -> None:
    """Turn MODEL into a workload: a NIR graph (.nir), or a PyTorch state dict (.safetensors, .npz).

    docs/nir.md lists the supported nodes and resets.
    """
    from mimdsim.workload.interchange.importing import import_nir, import_state_dict, model_name
    from mimdsim.workload.interchange.nir_neurons import Discretisation
    from mimdsim.workload.interchange.state_dict import parse_map

    folder = out or Path("imported") / model_name(model)
    if model.suffix.lower() in (".nir", ".h5", ".hdf5"):
        if mapped:
            raise DescriptionError("--map", ["is for state dicts; a NIR graph says what its own weights are"])
        how = Discretisation(dt_seconds=dt or 0.0, leak=leak, reset=reset)  # type: ignore[arg-type]
        written, lines = import_nir(model, folder, how, workload)
    else:
        if dt or leak != "euler" or reset != "file":
            raise DescriptionError(
                "import", ["--dt, --leak and --reset are for NIR graphs; a state dict has no neurons"]
            )
        written, lines = import_state_dict(model, folder, workload, parse_map(mapped))
    for line in lines:
        say(line)
    say(f"\nRun it: mimdsim run {written}")
