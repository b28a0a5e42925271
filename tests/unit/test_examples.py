"""The examples do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from by_hand import tiny
from scripts import script

from mimdsim.execution import Executor
from mimdsim.program import extents_of, verify

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_hand_written_program_keeps_the_rules_computes_and_is_timed() -> None:
    done = subprocess.run(
        [sys.executable, "examples/hand_written.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert lines["ok    rules"].startswith("8 vertices in 1 superstep:")
    assert lines["ok    values"].startswith("smoothed: 32 elements match the reference")
    # inner tiles get one cell from either side; 4 cells a vertex: 6 * (30 + 5 * 4) cycles;
    # exchange 100 fixed and 2 fragments each way at 2 cycles
    assert lines["bytes received by tile"] == "[4, 8, 8, 4]"
    assert "compute 300, exchange 108, sync 126" in lines["ok    time"]


def hand_written(cells: int, tiles: int) -> ModuleType:
    """The example as a module, for another size."""
    module = script("examples/hand_written.py")
    module.CELLS, module.TILES = cells, tiles
    return module


@pytest.mark.parametrize(("cells", "tiles"), [(100, 16), (33, 4), (7, 4), (3, 4), (1, 1), (5, 1), (1000, 7)])
def test_the_hand_written_program_is_right_for_every_size(cells: int, tiles: int) -> None:
    program = hand_written(cells, tiles).build(tiny(chip_tiles=tiles))
    assert verify(program, tiles) == ()
    executor = Executor(program)
    old = np.sin(np.arange(cells + 2, dtype=np.float32))
    executor.write({"cells": old})
    executor.run()
    np.testing.assert_allclose(executor.read("smoothed"), (old[:-2] + old[1:-1] + old[2:]) / 3, atol=1e-6)
    (table,) = next(program.supersteps())[0].tables
    assert np.ptp(extents_of(program, table)["cells"]) <= 1
