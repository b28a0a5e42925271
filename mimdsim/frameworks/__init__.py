"""Networks written in PyTorch, with snnTorch, Norse or SpikingJelly, as workloads, and their weights back.

workload = mimdsim.from_torch(network, spikes, loss="ce_rate_loss")
trained = mimdsim.run(workload, "bow")
mimdsim.to_torch(network, trained)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mimdsim.base.errors import MissingExtra
from mimdsim.machine import MimdMachine, tiled_machine
from mimdsim.pipeline.result import Run
from mimdsim.workload import Workload, load_workload

if TYPE_CHECKING:
    import torch

    from mimdsim.frameworks.torch_program import TorchProgram

__all__ = ["from_torch", "to_torch", "torch_function"]


class Trained(Protocol):
    """What a run returns: its workload, and its weights by layer ('hidden0', 'hidden0.bias', 'hidden0.recurrent')."""

    @property
    def workload(self) -> Workload: ...

    @property
    def weights(self) -> Mapping[str, np.ndarray]: ...


def from_torch(
    module: torch.nn.Module,
    example_input: torch.Tensor,
    *,
    timesteps: int | None = None,
    loss: str | Mapping[str, Any] = "",
    output: str = "",
    workload: str = "",
    changes: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    zero_states: bool = False,
) -> Workload:
    """The workload of a network written in PyTorch, with its weights, for `run`, `check`, `place` and `compare`.

    module: layers of torch.nn.Linear (or products with parameters of its own), Conv1d, Conv2d and pools, and neurons of
    snnTorch, Norse or SpikingJelly, each optionally recurrent, or GRU and LSTM; it may loop over time in any way.
    example_input: spikes as the module takes them, with time as its first, second or last axis. timesteps: for a module
    that takes one timestep a call: how many calls make a sequence; example_input[t] is given to call t, or all of it to
    each. loss: a name of snnTorch's ("ce_count_loss", "ce_rate_loss", "mse_count_loss", "mse_membrane_loss",
    "ce_max_membrane_loss"), or keys of the section `training`; default: the cross-entropy of what the module returns,
    added up over the timesteps unless it returns their mean, their maximum or the last. output: what the loss reads of
    the last layer, "spikes" or "membrane"; default: what the module returns of it, spikes if both.
    workload: one to take data, training and mapping from; default: random spikes as frequent as the example's. changes:
    keys of the made description. out: a folder to write it to (default: one for this process). zero_states:
    states that the module draws at random in every forward pass begin at 0 instead.

    Raises DescriptionError, by its name, for what is not understood: a layer, a function between layers, an option that
    changes what they do. Warns of layers that never spike on the example, and of neurons that no model does, which are
    read by their own operations.

        >>> workload = mimdsim.from_torch(network, spikes, loss="ce_rate_loss")  # doctest: +SKIP
        >>> mimdsim.run(workload, "bow")  # doctest: +SKIP
    """
    _require_torch()
    from mimdsim.frameworks.reading import read_workload

    asked: dict[str, Any] = {"loss": loss, "output": output, "workload": workload, "changes": changes, "out": out}
    asked["zero_states"] = zero_states
    return read_workload(module, example_input, timesteps, asked)


def to_torch(module: torch.nn.Module, trained: Trained) -> torch.nn.Module:
    """The module that `from_torch` read, with the weights of a run of its workload, in place.

    module: that one. trained: a run, or what `torch_function` returned.

    Warns where the test accuracy of the run rests on lists that drop spikes, which the module does not have. Raises
    DescriptionError for a run of another workload, and for a module with other parameters.

        >>> mimdsim.to_torch(network, mimdsim.run(workload, "bow"))  # doctest: +SKIP
    """
    _require_torch()
    from mimdsim.frameworks.torch_weights import load_trained

    training = trained.profile.training if isinstance(trained, Run) else None
    if training is not None and training.said_of_lists:
        warnings.warn(f"the weights are right about {training.said_of_lists}, as in the module", UserWarning, 2)

    load_trained(module, trained.workload, trained.weights)
    return module


def torch_function(workload: str | Path | Workload, machine: str | Path | MimdMachine = "bow") -> TorchProgram:
    """A module of PyTorch whose forward and backward pass run the compiled program of `workload` on `machine`, so that
    a loss and an optimiser of your own train it.

        >>> program = mimdsim.torch_function(workload, "bow")  # doctest: +SKIP
        >>> optimiser = torch.optim.SGD(program.parameters(), lr=0.1)  # doctest: +SKIP
        >>> torch.nn.functional.cross_entropy(program(spikes), labels).backward()  # doctest: +SKIP
        >>> optimiser.step()  # doctest: +SKIP
        >>> print(program.profile().cycles)  # doctest: +SKIP

    workload: a name, a file, or one that is loaded. machine: a tiled one, itself or by name.

    It takes spikes [timesteps, samples, inputs] and returns what the workload's loss would read (training.reading),
    without logit scale. Parameters begin as those of a run. `program.profile()` has the time of the last step;
    `mimdsim.to_torch(module, program)` writes the parameters back into the module that `from_torch` read. Raises
    DescriptionError for a workload whose loss has a part of its own (training.firing_strength), and MappingError where
    it does not fit the machine.
    """
    _require_torch()
    from mimdsim.frameworks.torch_program import TorchProgram

    found = workload if isinstance(workload, Workload) else load_workload(workload)
    return TorchProgram(found, tiled_machine(machine, "give a tiled machine, such as 'bow'"))


def _require_torch() -> None:
    if find_spec("torch") is None:
        raise MissingExtra("torch", "torch", "reading a network written in PyTorch")
