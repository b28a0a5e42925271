"""Which kernels a first run and the fast tests call, for which types, and how long each takes to compile: the table
`mimdsim/numerics/specialisations.txt`, from which they are compiled ahead (`mimdsim/numerics/ahead.py`).

Usage: python benchmarks/specialisations.py   (some minutes: it runs `mimdsim run` and the fast tests with cold kernels)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from numba.core import event

from mimdsim.numerics.ahead import TABLE, TESTS_ONLY

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "MIMDSIM_KERNELS"  # where every process of the tests leaves what it compiled
RUN = """
import sys
from specialisations import Watch
from mimdsim.cli import main
Watch().install()
main(["run", "digits", "bow", "--set", "training.epochs=1", "--out", sys.argv[1]])
"""
PACKAGE = "mimdsim.numerics."


class Watch(event.Listener):  # type: ignore[misc]
    """Writes a line for every kernel that is compiled because it was called, not because another one calls it."""

    def __init__(self) -> None:
        self._began: list[float] = []
        self._path = Path(os.environ[FOLDER]) / f"{os.getpid()}.txt"

    def install(self) -> None:
        event.register("numba:compile", self)

    def on_start(self, event: Any) -> None:
        self._began.append(time.perf_counter())

    def on_end(self, event: Any) -> None:
        seconds = time.perf_counter() - self._began.pop()
        kernel = event.data["dispatcher"].py_func
        if not self._began and kernel.__module__.startswith(PACKAGE):
            types = ", ".join(map(repr, event.data["args"]))
            with self._path.open("a") as file:
                file.write(f"{kernel.__module__.removeprefix(PACKAGE)} {kernel.__name__} {seconds:.2f} ({types},)\n")


def compiled(command: list[str]) -> dict[tuple[str, str, str], str]:
    """Seconds by module, kernel and signature, in the order of the calls, of what `command` compiles from nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "kernels"
        folder.mkdir()
        paths = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
        changed = {FOLDER: str(folder), "NUMBA_CACHE_DIR": f"{scratch}/numba", "PYTHONPATH": paths}
        subprocess.run([*command, f"{scratch}/out"], cwd=ROOT, env=os.environ | changed, stdout=sys.stderr, check=True)
        lines = [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
    found: dict[tuple[str, str, str], str] = {}
    for line in lines:
        module, kernel, seconds, signature = line.split(maxsplit=3)
        if "Literal" not in signature:
            found.setdefault((module, kernel, signature), seconds)
    return found


def main() -> None:
    run = compiled([sys.executable, "-c", RUN])
    tests = compiled([sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "--basetemp"])
    lines = ["# module kernel seconds signature: made by benchmarks/specialisations.py"]
    for part in (run, {what: seconds for what, seconds in tests.items() if what not in run}):
        lines += [f"{module} {kernel} {seconds} {types}" for (module, kernel, types), seconds in part.items()]
        lines += [TESTS_ONLY] * (part is run)
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(run)} of a first run, {len(tests.keys() - run.keys())} more of the tests: {TABLE}")


if __name__ == "__main__":
    main()
