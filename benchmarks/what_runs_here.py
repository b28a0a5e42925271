"""Networks as their authors write them in PyTorch, read by `mimdsim.from_torch`: gradients beside PyTorch's, cycles.

Writes docs/what-runs-here.md: one row for each network of tests/support/torch_networks.py. "off" is the largest
difference of a gradient from PyTorch's in float64, in shares of the largest element, over all parameters; beside it
that of PyTorch's own float32. Needs  pip install 'mimdsim[frameworks]'.

    python benchmarks/what_runs_here.py
    python benchmarks/what_runs_here.py "Spikformer" ...    # these networks anew; the other rows stay
"""

from __future__ import annotations

import copy
import sys
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("support", "frameworks")]

import numpy as np  # noqa: E402
import torch_networks as zoo  # noqa: E402
from networks import compiled, executed  # noqa: E402
from test_from_torch import given_to, off  # noqa: E402

import mimdsim  # noqa: E402
from mimdsim.frameworks.module_calls import NEAREST  # noqa: E402
from mimdsim.frameworks.neurons import NEURONS  # noqa: E402
from mimdsim.frameworks.planes import FUNCTIONS  # noqa: E402
from mimdsim.frameworks.torch_weights import index_in, parameter_names  # noqa: E402
from mimdsim.workload import network_of  # noqa: E402
from mimdsim.workload.interchange.layers import given_weights  # noqa: E402

PAGE = ROOT / "docs" / "what-runs-here.md"
HEAD = """# What runs here
Networks written in PyTorch become workloads by `mimdsim.from_torch` ([docs/pytorch.md](pytorch.md)). This page is
written by `benchmarks/what_runs_here.py`; the networks are those of `tests/support/torch_networks.py`, which the tests
train too.

## Neurons
"""
NETWORKS = """
## Convolutions and pools
{functions};
the modules that call them, and subclasses that do the same. Chains and options:
[docs/pytorch.md](pytorch.md#convolutions-and-pools).

## How neurons are compared
A neuron is read by its class and then compared with the model in float64: spikes, surrogate, gradients through time and
the reset. One whose options change what it does is refused. Any surrogate that has the values of one of
[docs/neurons.md](neurons.md) is recognised, also one of your own. Neurons that are written out, operation by operation,
become [equations](pytorch.md#neurons-that-are-written-out); those that are affine between spikes run as linear neurons.

## Networks that were tried
*off*: largest difference of a gradient from PyTorch's in float64, relative to the largest element of the parameter, of
one training step by the compiled program; *PyTorch*: that of PyTorch's own float32. Widths {widths} (some networks have
more layers, or planes), {timesteps} timesteps, batch {batch}; *cycles*: of that training step on Bow, all neurons
listed for gradients, or dense spikes where there are planes.

| network | neurons | read | off | PyTorch | cycles | strongest A100 strategy, us |
|---|---|---|---|---|---|---|
"""
REFUSED = """
## Refused, with what comes nearest
| module | nearest |
|---|---|
"""


def _neurons(layer: Any) -> str:
    """What a layer is of: a model by its name, or equations, as linear neurons or cells."""
    written = layer.neuron.model.startswith("neuron_of_")
    return f"equations ({'cell' if layer.cell else 'linear'})" if written else layer.neuron.model


def row(name: str, made: Any) -> str:
    module, spikes, labels = zoo.example(made)
    workload = mimdsim.from_torch(
        module, spikes, loss=made.loss, timesteps=zoo.TIMESTEPS if made.single else None,
        changes={"training.max_training_steps": 1}, **made.options,
    )  # fmt: skip
    network = network_of(workload)
    shown = zoo.in_time(made, spikes).numpy()
    given = given_to(network, given_weights(workload, network), shown, labels.numpy())
    outcome = executed(compiled(network), given)
    _, single = zoo.gradients_of(made, module, spikes, labels)
    _, double = zoo.gradients_of(made, copy.deepcopy(module).double(), spikes.double(), labels)
    ours = []
    for parameter, array, turned, first, norm in parameter_names(workload):
        if parameter not in double:
            continue  # frozen
        mine = outcome.gradients[array.removeprefix("w.")][index_in(norm)].astype(np.float64)
        wanted = zoo.as_here(double[parameter], turned, mine, norm)
        ours.append(off(mine, wanted[first : first + len(mine)]))
    theirs = max(off(single[parameter], double[parameter]) for parameter in double)
    result = mimdsim.run(workload, "bow")
    fastest = min(each.seconds_per_training_step for each in result.profile.gpus)
    neurons = ", ".join(dict.fromkeys(map(_neurons, network.layers)))
    read = workload.network.output.replace("_", " ")
    return f"| {name} | {neurons} | {read} | {max(ours):.1e} | {theirs:.1e} | {result.cycles:,} | {1e6 * fastest:.0f} |"


def main() -> None:
    warnings.simplefilter("ignore")
    by_package: dict[str, list[str]] = {}
    for key in NEURONS:
        package, _, name = key.partition(".")
        by_package.setdefault(package, []).append(name)
    text = HEAD + "".join(f"- {package}: {', '.join(names)}\n" for package, names in by_package.items())
    widths = f"{zoo.INPUTS}-{zoo.HIDDEN}-{zoo.CLASSES}"
    functions = ", ".join(name for name, each in FUNCTIONS.items() if each.dimensions)
    text += NETWORKS.format(functions=functions, widths=widths, timesteps=zoo.TIMESTEPS, batch=zoo.BATCH)
    anew, lines = sys.argv[1:], PAGE.read_text(encoding="utf-8").splitlines() if sys.argv[1:] else []
    stays = {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}
    for name, made in zoo.ZOO.items():
        text += f"{row(name, made) if name in anew or name not in stays else stays[name]}\n"
    text += REFUSED + "".join(f"| {name} | {near} |\n" for name, near in sorted(NEAREST.items()))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
