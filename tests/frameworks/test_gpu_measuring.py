"""The script that measures on a GPU: its two orders of operations agree, and it runs on the processor where none is."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


def test_both_orders_give_the_same_gradients() -> None:
    sys.path.insert(0, str(ROOT))
    from benchmarks.gpu.bptt import Shape, given, hoisted, looped

    shape = Shape(widths=(30, 20, 15, 4), timesteps=12, batch=5)
    spikes, weights, labels = given(torch, shape, "cpu", torch.float64)
    weights = [8 * weight for weight in weights]  # so that neurons fire
    one, other = looped(torch, spikes, weights, labels), hoisted(torch, spikes, weights, labels)
    assert all(float(gradient.abs().max()) > 0 for gradient in one[1])
    for mine, theirs in zip((*one[0], *one[1]), (*other[0], *other[1]), strict=True):
        assert float((mine - theirs).abs().max()) <= 1e-12 * max(float(mine.abs().max()), 1.0)


@pytest.mark.slow
def test_it_writes_rows_that_the_check_reads(tmp_path: Path) -> None:
    script = [sys.executable, "benchmarks/gpu/measure.py", "--out", str(tmp_path), "--repeats", "2", "--small"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "gemm_measurements.csv").open() as file:
        assert all(float(row["time_us"]) > 0 for row in csv.DictReader(file))
    check = [sys.executable, "-m", "mimdsim", "validate", str(tmp_path / "gpu_snn_measurements.csv")]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stdout + done.stderr
