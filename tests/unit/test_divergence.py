"""A training whose weights, states, gradients or loss are no numbers ends by name, and leaves nothing that pretends."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from test_training_course import MADE, trained

from mimdsim.cli import main
from mimdsim.execution import Executor
from mimdsim.execution.checkpoint import Checkpoints
from mimdsim.execution.engines import Diverged, refuse_diverged

DIVERGING = ["training.weight_scale=30", "data.activity=0.3", "training.optimiser=sgd", "training.learning_rate=3e38"]


@pytest.mark.parametrize("engine", ["program", "whole_tensors"])
def test_a_run_that_diverges_ends_by_name_and_writes_nothing(tmp_path: Path, engine: str) -> None:
    chosen = [*DIVERGING, "data.source=random", "data.timesteps=4", "data.train_samples=48", "training.batch=8"]
    chosen += [f"training.engine={engine}", "training.epochs=2"]
    chosen.append("training.logit_scale=1e38")
    words = ["run", "digits", "bow", "--gpu", "none", "--out", str(tmp_path / "out")]
    words += ["--checkpoint", str(tmp_path / "out" / "training.npz")]
    result = CliRunner().invoke(main, words + [word for change in chosen for word in ("--set", change)])
    assert result.exit_code == 2, result.output
    assert "training diverged: 'w." in result.output
    assert "after training step 1 of 12" in result.output
    assert "lower training.learning_rate" in result.output
    assert not list(tmp_path.rglob("*.*"))


def test_every_kind_of_number_is_looked_at() -> None:
    runner = Executor(MADE.program)
    weights = [name for name in MADE.program.inputs if name.startswith("w.")]
    refuse_diverged(runner, weights, "now", loss=1.0, states=True)
    with pytest.raises(Diverged, match="training diverged: the loss is nan now; lower"):
        refuse_diverged(runner, weights, "now", loss=float("nan"))
    looked = [
        MADE.program.inputs[weights[-1]],
        *(name for name in runner.arrays if name.startswith(("v.", "dv.", "dw."))),
    ]
    assert len({name.split(".")[0] for name in looked}) == 4
    for name in looked:
        for wrong in (np.nan, -np.inf):
            kept = runner.arrays[name].flat[-1]
            runner.arrays[name].flat[-1] = wrong
            with pytest.raises(Diverged, match=f"'{name}' holds values that are not finite now"):
                refuse_diverged(runner, weights, "now", states=True)
            runner.arrays[name].flat[-1] = kept
    runner.arrays["w.output"][...] = np.finfo(np.float32).max  # whose sum is none
    refuse_diverged(runner, weights, "now", states=True)


def test_the_training_step_is_named_and_the_last_good_checkpoint_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Checkpoints(path=tmp_path / "training.npz", digest="a")
    trained(file, epochs=1, engine="program")
    good = file.path.read_bytes()
    run, steps = Executor.run, []

    def broken(self: Executor, *given: Any, **named: Any) -> Any:
        made = run(self, *given, **named)
        steps.append(None)
        if len(steps) == 2:
            self.arrays["w.output"][0, 0] = np.nan
        return made

    monkeypatch.setattr(Executor, "run", broken)
    with pytest.raises(Diverged, match=r"'w\.output' holds .* after training step 2 of"):
        trained(file, epochs=1, engine="program")
    assert file.path.read_bytes() == good


def test_looking_costs_next_to_nothing() -> None:
    weights: Any = {"w": np.ones((1000, 1000), np.float32)}
    began = time.process_time()
    for _ in range(100):
        refuse_diverged(SimpleNamespace(weights=weights), (), "now", loss=1.0)  # type: ignore[arg-type]
    assert (time.process_time() - began) / 100 < 5e-3  # of a million weights, whose training step takes over 100 ms
