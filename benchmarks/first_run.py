"""What compiling takes of the first run after installation: seconds of processor time by kernel; `--write` also keeps
the list of kernels that a second process compiles ahead (`mimdsim/numerics/kernels.txt`).

Run it with NUMBA_CACHE_DIR set to an empty folder.
Usage: NUMBA_CACHE_DIR=$(mktemp -d) python benchmarks/first_run.py [--workload digits] [--machine bow] [--write]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from numba.core import event

from mimdsim import api


class _Compiled(event.Listener):  # type: ignore[misc]
    """Kernels compiled by others than kernels: (seconds, name, types of the arguments), in order."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, str, str]] = []
        self._begun: list[float] = []

    def on_start(self, _: Any) -> None:
        self._begun.append(time.process_time())

    def on_end(self, found: Any) -> None:
        seconds, function = time.process_time() - self._begun.pop(), found.data["dispatcher"].py_func
        if not self._begun:
            self.rows.append((seconds, f"{function.__module__}.{function.__name__}", str(found.data["args"])))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", default="digits")
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    compiled = _Compiled()
    compiled.compile_ahead = lambda: None  # type: ignore[assignment]
    event.register("numba:compile", compiled)
    with tempfile.TemporaryDirectory() as folder:
        api.run(given.workload, given.machine, report=Path(folder) / "report")
    if not compiled.rows:
        raise SystemExit("nothing was compiled: set NUMBA_CACHE_DIR to an empty folder")
    for seconds, name, types in sorted(compiled.rows, reverse=True):
        print(f"{seconds:6.2f} s  {name} {types}")
    print(f"{sum(row[0] for row in compiled.rows):.1f} s of {time.process_time():.1f} s, {len(compiled.rows)} kernels")
    if given.write:
        lines = [f"{name} {types}\n" for _, name, types in compiled.rows]
        compiled.LISTED.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
