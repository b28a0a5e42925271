"""A module and the program that was read of it, trained side by side."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import mimdsim

torch = pytest.importorskip("torch")
module_calls = pytest.importorskip("mimdsim.frameworks.module_calls")


def losses_of(module: Any, spikes: Any, steps: int = 3, **asked: Any) -> tuple[list[str], list[float], list[float]]:
    """What `from_torch` warns of, and the cross-entropies of the outputs, added up over the timesteps, before each
    step of gradient descent: of the module, which is trained, and of the program."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        workload = mimdsim.from_torch(module, spikes, **asked)
    program = mimdsim.torch_function(workload, "tiny")
    samples, every = workload.training.batch, workload.data.timesteps
    steady = program.network.steady_input
    by_time = spikes if steady or len(spikes) == every else spikes.transpose(0, 1)
    given = by_time.reshape(samples, -1) if steady else by_time.reshape(every, samples, -1)

    def summed(made: Any) -> Any:
        made = torch.stack(made) if isinstance(made, list) else made[0] if isinstance(made, tuple) else made
        made = made.flatten(2) if made.ndim > 3 else made
        return made.sum(0) if made.ndim == 3 else made

    def of_module() -> Any:
        module_calls.reset_states(module)
        if not asked.get("timesteps"):
            return summed(module(spikes))
        sent = (module(each) for each in by_time)
        return summed(torch.stack([each[0] if isinstance(each, tuple) else each for each in sent]))

    labels, found = torch.arange(samples) % 3, list[list[float]]()
    for own, run in ((module, of_module), (program, lambda: summed(program(given)) * workload.training.logit_scale)):
        trained = torch.optim.SGD([each for each in own.parameters() if each.requires_grad], lr=0.05)
        losses = []
        for _ in range(steps):
            loss = torch.nn.functional.cross_entropy(run(), labels)
            losses.append(float(loss.detach()))
            trained.zero_grad()
            loss.backward()
            trained.step()
        found.append(losses)
    return [str(each.message) for each in told], *map(list, found)


def check_steps(module: Any, spikes: Any, **asked: Any) -> list[str]:
    """That the program trains as the module does in PyTorch; returns what `from_torch` warns of."""
    told, theirs, mine = losses_of(module, spikes, **asked)
    assert len(set(theirs)) > 1, "nothing was trained"
    np.testing.assert_allclose(mine, theirs, rtol=2e-4)
    return told


def check_by_operations(said: str, module: Any, spikes: Any, **asked: Any) -> None:
    """That neurons are read by their own operations, for what is said, and train as they do in PyTorch."""
    told = check_steps(module, spikes, **asked)
    assert any("neurons are read by their own operations" in each and said in each for each in told), told
