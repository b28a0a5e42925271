"""Kernels compiled by processes of their own before they are called, so that a first run waits for one core's share.

`specialisations.txt` has a line per kernel and types of its arguments, in the order in which a first `mimdsim run`
calls them, then those that only tests call: module, kernel, seconds, signature as numba writes it. What has been
compiled lies in numba's cache, where every process finds it; a line that is missing costs time, never a result.
`benchmarks/specialisations.py` makes the table.
"""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numba

HERE = Path(__file__).resolve().parent
TABLE = HERE / "specialisations.txt"
TESTS_ONLY = "# tests"


@dataclass(frozen=True, kw_only=True)
class Specialisation:
    """A kernel for arguments of these types; seconds: what it took to compile where the table was made."""

    module: str
    kernel: str
    seconds: float
    signature: str

    def compile(self) -> None:
        """Into numba's cache, unless it is there."""
        kernel = getattr(importlib.import_module(f"mimdsim.numerics.{self.module}"), self.kernel)
        kernel.compile(self.signature)


def table(of_tests: bool = False) -> list[Specialisation]:
    """Those of a first run, or those of the tests too."""
    found = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line == TESTS_ONLY and not of_tests:
            break
        if not line.startswith("#"):
            module, kernel, seconds, signature = line.split(maxsplit=3)
            found.append(Specialisation(module=module, kernel=kernel, seconds=float(seconds), signature=signature))
    return found


def shared_out(every: list[Specialisation], processes: int) -> list[list[Specialisation]]:
    """Modules dealt to processes, the longest first, each to the one with least to do: kernels of a module call each
    other, and what one process compiles another need not."""
    modules: dict[str, list[Specialisation]] = {}
    for one in every:
        modules.setdefault(one.module, []).append(one)
    shares: list[list[Specialisation]] = [[] for _ in range(processes)]
    for module in sorted(modules.values(), key=lambda module: -sum(one.seconds for one in module)):
        min(shares, key=lambda share: sum(one.seconds for one in share)).extend(module)
    return shares


def done(share: str, number: int) -> Path:
    """A file that is there once a process has compiled its part of `share`, from these sources on this machine."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version} {share} {number}".encode())
    for path in (*sorted(HERE.glob("**/*.py")), TABLE):
        stat = path.stat()
        digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}".encode())  # what numba's cache goes by
    kept_in = str(numba.njit(cache=True)(_kept).stats.cache_path)
    return Path(kept_in) / f"ahead-{digest.hexdigest()[:16]}"


def _kept() -> None:
    """Compiled by nobody: it says where kernels are kept."""


def part_of(share: str, number: int, processes: int) -> list[Specialisation]:
    """What process `number` compiles: of 'tests', all there are; of 'run', the later half, as the run itself is at the
    earlier one meanwhile."""
    if share == "tests":
        return shared_out(table(of_tests=True), processes)[number]
    every = table()
    half, so_far, chosen = sum(one.seconds for one in every) / 2, 0.0, []
    for one in every:
        so_far += one.seconds
        chosen += [one] * (so_far > half)
    return chosen[number::processes]


def start(share: str, processes: int) -> list[subprocess.Popen[bytes]]:
    """Processes that compile 'run' or 'tests'; where one was through with its part before, there is none for it."""
    command = [sys.executable, "-P", "-m", "mimdsim.numerics.ahead", share]
    return [
        subprocess.Popen(
            [*command, str(number), str(processes)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(processes)
        if not done(share, number).exists()
    ]


def main() -> None:
    share, number, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for one in part_of(share, number, processes):
        one.compile()
    done(share, number).touch()


if __name__ == "__main__":
    main()
