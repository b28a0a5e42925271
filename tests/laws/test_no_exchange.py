"""Exchanges at the ends of what a fabric with links is asked about: none at all, and more pieces than are listed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimdsim.compiler import measure_memory
from mimdsim.compiler.memory_report import memory_profile
from mimdsim.costs.fabric.model import exchanges_of
from mimdsim.kernels import Kernel
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.profile import TiledProfile
from mimdsim.program import Program, RecordedActivity, messages
from mimdsim.program.messages import all_messages
from mimdsim.timing import time_program

NOTHING = RecordedActivity(ids={}, counts={}, dropped={})


def machine(name: str, **changes: Any) -> MimdMachine:
    found = load_machine(name, {key.replace("__", "."): value for key, value in changes.items()})
    assert isinstance(found, MimdMachine)
    return found


def summed(of: MimdMachine, columns: int = 32) -> Program:
    kernel = Kernel("sum", of)
    x = kernel.input(kernel.variable("x", (kernel.tiles, columns)))
    kernel.reduce(x, axis=0, out=kernel.output(kernel.variable("y", (columns,))))
    return kernel.program()


def timed(program: Program, of: MimdMachine) -> TiledProfile:
    return time_program(program, of, NOTHING, memory_profile(program, measure_memory(program, of), of))


@pytest.mark.parametrize("name", ["wormhole", "bow-mesh", "wse2"])
def test_a_kernel_without_an_exchange_takes_its_vertices_alone(name: str) -> None:
    of = machine(name, chip__tiles=64) if name == "wse2" else machine(name)
    kernel = Kernel("double", of)
    x = kernel.input(kernel.variable("x", (64,)))
    kernel.elementwise("add", x, x, out=kernel.output(kernel.variable("y", (64,))))
    profile = timed(kernel.program(), of)
    assert sum(span.exchange_cycles for span in profile.spans) == 0
    assert sum(span.compute_cycles for span in profile.spans) > 0


@pytest.mark.parametrize("tiles", [900, 2000])
def test_a_phase_with_too_many_pieces_is_estimated(tiles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reduction, in which every tile hears from few: as all-to-all traffic it took hundreds of times as long."""
    of = machine("wse2", chip__tiles=tiles)
    program = summed(of)
    first = next(iter(exchanges_of(program)))
    exact, scale = all_messages(program, first)
    assert scale == 1.0
    before = [span.exchange_cycles for span in timed(program, of).spans]
    monkeypatch.setattr(messages, "MOST_READINGS", 100)
    program = summed(of)
    first = next(iter(exchanges_of(program)))
    found, scale = all_messages(program, first)
    sent = np.bincount(found.sender, found.size_bytes, program.tiles)
    received = np.bincount(found.reader, found.size_bytes, program.tiles)
    whole = np.zeros((2, program.tiles))
    whole[:, first.tiles] = first.column("bytes_sent"), first.column("bytes_received")
    assert scale == 1.0
    assert (sent >= whole[0]).all()
    assert sent.sum() <= 1.5 * whole[0].sum()
    assert (received[whole[1] > 0] <= 4 * whole[1][whole[1] > 0] + 64).all()
    assert not received[whole[1] == 0].any()
    after = [span.exchange_cycles for span in timed(program, of).spans]
    assert sum(exact.size_bytes) > 0
    assert 1 / 3 < after[0] / before[0] < 3
