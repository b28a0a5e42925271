"""The examples do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_hand_written_program_keeps_the_rules_computes_and_is_timed() -> None:
    done = subprocess.run(
        [sys.executable, "examples/hand_written.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert lines["rules"] == "kept"
    assert float(lines["largest error"]) < 1e-6
    # inner tiles get one cell from either side; 4 cells a vertex: 6 * (30 + 5 * 4) cycles;
    # exchange 100 fixed and 2 fragments each way at 2 cycles
    assert lines["bytes received by tile"] == "[4, 8, 8, 4]"
    assert lines["cycles"] == "compute 300, exchange 108, sync 126"
