"""`mimdsim import`: a NIR graph, a state dict or a network in PyTorch becomes a workload."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from mimdsim.base.console import PATH, say
from mimdsim.base.errors import DescriptionError, suggest


class Finite(click.FloatRange):
    """A finite number in a range (NaN would pass a range check)."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        number = super().convert(value, param, context)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, context)
        return number


SECONDS = Finite(min=0, min_open=True)


ARGUMENTS = ("timesteps", "loss", "output", "workload", "changes")  # of from_torch, that build may return
RESETS = ("file", "zero", "zero_after", "subtract", "subtract_decayed", "none")


@click.command("import", short_help="Turn a NIR graph, weights or a PyTorch network into a workload.")
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
    """Turn MODEL into a workload: a NIR graph (.nir), a PyTorch state dict (.safetensors, .npz), or the network that a
    function of a Python file builds (net.py:build).

    docs/nir.md lists the supported nodes and resets, docs/pytorch.md what build returns. A Python file is run: import
    only files that you trust.
    """
    from mimdsim.workload.interchange.importing import import_nir, import_state_dict, model_name
    from mimdsim.workload.interchange.nir_neurons import Discretisation
    from mimdsim.workload.interchange.weights_file import parse_map

    file, _, function = str(model).rpartition(":") if ".py:" in str(model) else (str(model), "", "build")
    if file.endswith(".py"):
        if dt or leak != "euler" or reset != "file" or mapped:
            raise DescriptionError("import", ["--dt, --leak, --reset and --map are for files; a module says all that"])
        _import_torch(Path(file), function, out or Path("imported") / model_name(Path(file)), workload)
        return
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


def _import_torch(path: Path, name: str, folder: Path, workload: str) -> None:
    """The network that a function of a user's file builds; the file is run."""
    from mimdsim.base.user_code import call_users, function_in, load_file
    from mimdsim.frameworks import from_torch
    from mimdsim.workload import network_of

    say(f"{path} is run: import only files that you trust.")
    returns = "a module, an example input and, in a dictionary, more arguments of mimdsim.from_torch"
    module = load_file(path, f"defines {name}(), which returns {returns}")
    made = call_users(str(path), function_in(module, path, name, f"{name}(), which returns {returns}"))
    given = made if isinstance(made, tuple) else (made,)
    more = given[2] if len(given) == 3 else {}
    if not 2 <= len(given) <= 3 or not isinstance(more, dict):
        raise DescriptionError(str(path), [f"{name}() returns {type(made).__name__}; it must return {returns}"])
    unknown = [str(key) for key in more if key not in ARGUMENTS]
    if unknown:
        hint = suggest(unknown[0], ARGUMENTS)
        raise DescriptionError(str(path), [f"{name}() returns '{unknown[0]}'{hint}; known: {', '.join(ARGUMENTS)}"])
    made = from_torch(given[0], given[1], **{"workload": workload, **more, "out": folder})
    for layer in network_of(made).layers:
        surrogate = f"{layer.selection.surrogate} with slope {layer.selection.slope:g}"
        say(
            f"{layer.name}: {layer.neurons} of model '{layer.neuron.model}', {surrogate}, recurrence {layer.recurrence}"
        )
    say(f"\nRun it: mimdsim run {folder / 'network.toml'}")
