"""Bounds on time and memory around the reading of one file."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from unittest.mock import patch

from mimdsim.workload.data import hdf5

LIMIT_SECONDS = 10.0
LIMIT_BYTES = 10**9


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the code under it, where the platform can."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still loading after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def peak_bytes(*, again: bool = False) -> int:
    """The most memory this process has held since the last call with `again`; 0 where Linux does not tell."""
    try:
        if again:
            Path("/proc/self/clear_refs").write_text("5")
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


@contextlib.contextmanager
def one_process() -> Iterator[None]:
    """All HDF5 files are read by one process, which may take as long for a frame as for a file."""
    with patch.object(hdf5, "FRAME_SECONDS", LIMIT_SECONDS), hdf5.shared_process():
        yield
