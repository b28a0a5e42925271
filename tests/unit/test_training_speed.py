"""The benchmark beside PyTorch: its problem is what it says, and it says what is missing."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import script

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "training_speed.py"


def benchmark() -> Any:
    return script("benchmarks/training_speed.py")


@pytest.mark.slow
def test_every_layer_spikes_at_the_asked_share() -> None:
    problem = benchmark().made_problem((60, 90, 40), 12, 8, 0.05, "sgd")
    spikes, listed = problem["measured"].T
    np.testing.assert_allclose(spikes, 0.05, rtol=0.1)
    assert (listed > spikes).all()
    assert problem["counts"].mean() / 60 == pytest.approx(0.05, rel=0.15)


@pytest.mark.slow
def test_the_way_of_ours_has_the_gradients_that_others_are_held_to() -> None:
    module = benchmark()
    problem = module.made_problem((60, 90, 40), 6, 8, 0.05, "adam")
    step = module.ours(problem, "whole", 1)
    assert step() > 0
    for number, gradient in enumerate(step.gradients()):
        assert np.abs(gradient).max() > 0
        np.testing.assert_array_equal(gradient, problem[f"gradient{number}"])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pair_bag_eager", "pair_dense_eager"])
def test_populations_have_the_same_gradients_by_pytorch(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    problem = benchmark().made_problem((200, 200, 200, 60), 10, 8, 0.02, "sgd", "populations")
    assert problem["dropped"] == 0
    assert (problem["measured"][:, 0] > 0.01).all()
    step = importlib.import_module("training_speed_populations").training_step(problem, way, 1)
    step()
    for number, gradient in enumerate(step.gradients()):
        right = problem[f"gradient{number}"]
        assert np.abs(right).max() > 0
        np.testing.assert_allclose(gradient, right, rtol=1e-3, atol=1e-5 * np.abs(right).max())


def test_it_says_what_is_missing() -> None:
    nothing = shutil.which("false")
    assert nothing is not None
    done = subprocess.run([sys.executable, SCRIPT, "--torch-python", nothing], capture_output=True, text=True)
    assert done.returncode == 1
    assert "PyTorch is not installed: pip install 'mimdsim[torch]' snntorch spikingjelly, or name" in done.stderr


@pytest.mark.parametrize(("power", "exponent", "off"), [(1, "1.00", "0.0%"), (2, "2.00", "100.0%")])
def test_scaling_says_what_is_not_linear(
    power: int, exponent: str, off: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = benchmark()

    def case(_folder: Path, given: dict[str, float], _rounds: int) -> dict[str, float]:
        amount = given["layers"] * given["timesteps"] * given["batch"] * given["activity"]
        return {**dict.fromkeys(module.OURS, 1e-3 * amount**power), "activity": given["activity"]}

    monkeypatch.setattr(module, "scaling_case", case)
    module.print_scaling(Path(), 1)
    rows = capsys.readouterr().out.splitlines()[3:]
    assert len(rows) == 4
    for row in rows:
        assert row.split()[6] == exponent
        assert row.split()[8] == off
