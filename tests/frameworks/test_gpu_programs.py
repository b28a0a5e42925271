"""The programs that were measured on a GPU: all strategies of one network have the same gradients, also where layers
recur. Triton interprets its kernels on the processor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("triton")

COMPARE = """
import torch
from benchmarks.gpu import programs
from benchmarks.gpu.bptt import Shape


def gradients(build):
    own = programs.Buffers(torch, problem, torch.float32)
    step = build(own)
    step()
    step()  # nothing is left over from a step before
    return [*own.gradients, *programs.filter_none(own.recurrent_gradients)]


for widths, recurs in [((20, 14, 10, 4), False), ((20, 14, 4), True)]:
    draw = torch.Generator().manual_seed(1)
    fired = torch.rand((21, widths[0]), generator=draw) < 0.2  # 7 timesteps of 3 samples
    pairs = list(zip(widths, widths[1:]))
    problem = programs.Problem(
        shape=Shape(widths=widths, timesteps=7, batch=3),
        ids=torch.argsort(fired.to(torch.int8), dim=1, descending=True, stable=True).to(torch.int32),
        counts=fired.sum(1, dtype=torch.int32),
        weights=[2 * torch.randn(pair, generator=draw) / pair[0] ** 0.5 for pair in pairs],
        recurrent=[torch.randn((n, n), generator=draw) / n**0.5 if recurs and n > 4 else None for n in widths[1:]],
        labels=torch.randint(widths[-1], (3,), generator=draw),
    )
    looped = gradients(programs.looped)
    assert all(float(each.abs().max()) > 0 for each in looped)
    for build in (programs.listed, *(() if recurs else (programs.hoisted,))):
        for mine, theirs in zip(gradients(build), looped, strict=True):
            assert float((mine - theirs).abs().max()) <= 1e-5 * float(theirs.abs().max()), (build.__name__, recurs)
"""


PLANES = """
import torch
from benchmarks.gpu import planes
from benchmarks.gpu.measure_convolutions import layouts
from mimdsim.graph.convolution import convolutions_of

for case in ["2x7x6-3c3p1s2-avg2-4-3", "1x6x7-3c2:max2-max2-5", "2x6x6-4c3p1-sum2-4"]:
    draw = torch.Generator().manual_seed(1)
    layers, steps, batch = convolutions_of(case), 3, 2
    fired = torch.rand((steps * batch, layers[0].planes.neurons), generator=draw) < 0.3
    weights = [
        4 * torch.randn((of.channels, of.read.channels, *of.window.kernel), generator=draw) / of.fan_in**0.5
        for of in layers
    ]
    problem = planes.Problem(
        layers=layers, timesteps=steps, batch=batch, weights=weights,
        ids=torch.argsort(fired.to(torch.int8), dim=1, descending=True, stable=True).to(torch.int32),
        counts=fired.sum(1, dtype=torch.int32),
        biases=[0.1 * torch.randn(len(w), generator=draw) for w in weights],
        labels=torch.randint(layers[-1].channels, (batch,), generator=draw),
    )
    exact = planes.reference(torch, problem, torch.float64)()
    assert all(float(each.abs().max()) > 0 for each in exact)
    for build in (planes.hoisted, planes.looped):
        for number, (last, pad) in enumerate(layouts("fp16")):
            own = planes.Buffers(torch, problem, torch.float32, last=last, pad=pad)
            step = build(own)
            step()
            if not number:
                step()  # nothing is left over from a step before
            for mine, theirs in zip(own.found(), exact, strict=True):
                assert float((mine - theirs).abs().max()) <= 2e-5 * float(theirs.abs().max()), (case, build, last, pad)
"""


def run(script: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_programs_of_planes_have_the_gradients_of_automatic_differentiation() -> None:
    run(PLANES)


def test_all_programs_have_the_same_gradients() -> None:
    run(COMPARE)
