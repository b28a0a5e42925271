"""The front door from Python: docs/api.md runs, names are found lazily, what is written is checked."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mimdsim
from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.execution import Executor
from mimdsim.machine import load_machine
from mimdsim.pipeline import Run

ROOT = Path(__file__).resolve().parents[2]
SMALL: dict[str, Any] = {
    "data.timesteps": 3,
    "network.hidden": (12,),
    "network.capacity": (6, 4),
    "training.max_training_steps": 1,
    "training.evaluate": "never",
}


@cache
def made(recurrence: str = "none", bias: bool = False) -> Run:
    changes = SMALL | {"network.recurrence": recurrence, "network.bias": bias}
    found: Run = mimdsim.run("digits", "tiny", changes=changes, gpus=())
    return found


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    monkeypatch.setenv("MIMDSIM_HOME", str(ROOT))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mimdsim.report.page.FIGURES", ())  # drawing takes most of a short run
    known: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "docs/api.md", "exec"), known)
    assert (tmp_path / "mine" / "report.html").is_file()
    for name in re.findall(r"mimdsim\.([a-z_A-Z]+)\(", page):
        assert name in mimdsim.__all__


@pytest.mark.slow
def test_packages_and_errors_are_there_from_the_start() -> None:
    code = (
        "import mimdsim; mimdsim.kernels.Codelet, mimdsim.program.Program, mimdsim.timing.time_program\n"
        "try: mimdsim.Kernel('x', 'a100')\n"
        "except mimdsim.MimdsimError as refusal: print(refusal)\n"
        "print(mimdsim.Kernel('x', 'tiny').tiles, hasattr(mimdsim, 'kernel'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "machine 'a100': 1 problem\n  - is a GPU; a kernel runs on a tiled machine\n16 False" in done.stdout


def test_what_explains_takes_machines_by_name() -> None:
    kernel = mimdsim.Kernel("filled", "tiny")
    kernel.fill(kernel.output(kernel.variable("x", 64)), 1.0)
    program = kernel.program()
    assert str(mimdsim.explain(program, "tiny", 0)) == str(mimdsim.explain(program, load_machine("tiny"), 0))
    with pytest.raises(DescriptionError, match="machine 'a100': 1 problem\n  - is a GPU; only programs of tiled"):
        mimdsim.explain(program, "a100", 0)


def test_importing_imports_nothing_heavy() -> None:
    heavy = {"numpy", "numba", "pydantic", "matplotlib"}
    code = f"import sys, mimdsim; print(sorted({heavy} & set(sys.modules)), dir(mimdsim))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("[] [")
    assert all(f"'{name}'" in done.stdout for name in mimdsim.__all__)


def test_every_name_is_there() -> None:
    for name in mimdsim.__all__:
        assert getattr(mimdsim, name) is not None
    assert "changes" in inspect.signature(mimdsim.run).parameters
    with pytest.raises(AttributeError, match="no attribute 'rum'; it has"):
        _ = mimdsim.rum  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_run_in_one_line_each() -> None:
    run = made()
    assert len(repr(run)) < 400
    assert f"{run.cycles:,} cycles" in repr(run)
    assert run.gradients.keys() == run.weights.keys() == {"hidden0", "output"}
    assert np.abs(run.gradients["hidden0"]).max() > 0
    columns = run.tiled.tile_columns
    assert np.array_equal(run.detail.busy.sum(axis=0), columns.busy_cycles)
    assert run.explain(str(run.detail.supersteps[0])).cycles == run.tiled.spans[0].cycles
    longest = max(span.cycles for span in run.tiled.spans if span.phase == "backward")
    assert run.explain("backward").cycles == longest
    faster = load_machine("tiny", {"chip.clock_hz": "2 GHz"})
    assert run.retime(faster).cycles == run.cycles
    with pytest.warns(FutureWarning, match=r"Run\.on is Run\.retime"):
        assert run.on(faster).cycles == run.cycles


@pytest.mark.slow
def test_gradients_of_biases_and_recurrence_have_names() -> None:
    run = made("all_to_all", True)
    assert run.gradients.keys() == {*("hidden0", "hidden0.bias", "hidden0.recurrent", "output", "output.bias")}
    assert run.gradients["hidden0.recurrent"].shape == (12, 12)


def test_what_is_loaded_takes_no_changes() -> None:
    machine, workload = load_machine("tiny"), mimdsim.load_workload("digits", SMALL)
    with pytest.raises(DescriptionError, match=r"worker_contexts: 'tiny' is already loaded; pass this to load_machine"):
        mimdsim.run(workload, machine, changes={"tile.worker_contexts": 3})
    with pytest.raises(DescriptionError, match=r"epochs: the workload is already loaded; pass this to load_workload"):
        mimdsim.run(workload, machine, changes={"training.epochs": 3})
    with pytest.raises(DescriptionError, match="tiny given twice"):
        mimdsim.compare(workload, (machine, "tiny"))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("input.ids", lambda held: held + 512, r"'input.ids' takes numbers from 0 to 511; input.ids\[0, 0, 0\] is 5"),
        ("input.ids", lambda held: held - 600, r"'input.ids' takes numbers from 0 to 511"),
        ("input.ids", lambda held: held + 0.5, r"'input.ids' takes whole numbers; input.ids\[0, 0, 0\] is"),
        ("input.ids", lambda held: held * np.nan, r"'input.ids' takes whole numbers"),
        ("input.counts", lambda held: held + 41, r"'input.counts' takes numbers from 0 to 40"),
        ("labels", lambda held: held * 0 + 10, r"'labels' takes numbers from 0 to 9; labels\[0\] is 10"),
        ("labels", lambda held: held[:3], r"'labels' has shape \(3,\), the program takes"),
        ("w.output", lambda held: held + np.float64(1e39), r"'w.output' takes what float32 can hold; w.output\[0, 0\]"),
        ("labels", lambda _: "seven", r"'labels' is made of <U5"),
        ("training_step", lambda held: held * 0, r"'training_step' takes numbers from 1 to"),
        ("label", lambda held: held, r"no input 'label'; it has .*; did you mean 'labels'"),
    ],
)
def test_what_is_written_is_checked_before_anything_is(name: str, value: Any, said: str) -> None:
    executor = Executor(made().compiled.program)
    held = executor.program.inputs.get(name, "labels")
    labels = executor.arrays[executor.program.inputs["labels"]].copy()
    with pytest.raises(MappingError, match=said):
        executor.write({"labels": labels * 0 + 1, name: value(executor.arrays[held])})
    assert np.array_equal(executor.arrays[executor.program.inputs["labels"]], labels)
