"""Mutants run one by one, each in a forked process over a copy of the checkout, on the quickest tests that reach it."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from source_mutants.mutants import Mutant

# imported once, before the processes fork; the package itself is imported by each of them, from its copy
HEAVY = ("numpy", "numba", "pytest", "hypothesis", "networkx", "simpy", "pydantic", "click", "jinja2", "h5py")
MOST_SECONDS = 150.0
PINNED = "tests/golden/test_pinned_"  # tables of figures as they are: they notice most, and run first
QUICK = 0.3  # seconds


@dataclass(frozen=True, kw_only=True)
class Result:
    """outcome: killed, survived, time-out or unreached; told: the test that noticed."""

    mutant: Mutant
    outcome: str
    told: str
    tests: int
    seconds: float


class Reached:
    """Which tests to run for a mutant, pins and then the quickest first, as recorded: a file per test file."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        self.by_place: dict[str, set[str]] = {}
        self.by_file: dict[str, list[str]] = {}
        self.known: set[str] = set()
        for path in sorted(folder.glob("test_*.json")):
            found = json.loads(path.read_text())
            self.known |= {*found["tests"], *found["failed"]}
            for name, test in found["tests"].items():
                self.seconds[name] = test["seconds"]
                self.by_file.setdefault(name.partition("::")[0], []).append(name)
                for place in [*test["hits"], *found["imported"]]:
                    self.by_place.setdefault(place, set()).add(name)
                    self.by_place.setdefault(place.partition(":")[0], set()).add(name)

    def tests(self, places: list[str], most_seconds: float, module: str = "") -> list[str]:
        """Those that reach any of the places (where no record has any, their files), then the rest of their test files:
        what they share was made once. module: a file of whose definitions quick tables of figures are read too; they
        may hold the changed record without a call of anything that names it."""
        direct: set[str] = set().union(*(self.by_place.get(place, ()) for place in places))
        direct = direct or set().union(*(self.by_place.get(place.partition(":")[0], ()) for place in places))
        files = {name.partition("::")[0] for name in direct}
        beside = {name for file in files for name in self.by_file[file]} - direct
        chosen, total = [], 0.0
        read = self.by_place.get(module, set()) - direct
        direct = direct | {name for name in read if name.startswith(PINNED) and self.seconds[name] < QUICK}
        pinned = {name for name in direct if name.startswith(PINNED)}
        for name in (*self._quickest(pinned), *self._quickest(direct - pinned), *self._quickest(beside)):
            total += self.seconds[name]
            if chosen and total > most_seconds:
                break
            chosen.append(name)
        return chosen

    def _quickest(self, names: set[str]) -> list[str]:
        return sorted(names, key=self.seconds.__getitem__)


class Chosen:
    """A pytest plugin: the tests planned, in their order, and those whose names no record has: they follow from values,
    which the mutant may have changed."""

    def __init__(self, tests: list[str], known: set[str]) -> None:
        self.rank = {name: number for number, name in enumerate(tests)}
        self.known = known

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.rank or self._is_new(item)]
        items.sort(key=lambda item: self.rank.get(item.nodeid, -1))

    def _is_new(self, item: Any) -> bool:
        return item.nodeid not in self.known and item.get_closest_marker("slow") is None


def refreshed(root: Path, copy: Path) -> Path:
    """A copy of the checkout's files, those that changed anew; compiled kernels beside them stay."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        source, target = root / name, copy / name
        if not source.exists():
            target.unlink(missing_ok=True)
            continue
        here, there = source.stat(), target.stat() if target.exists() else None
        if there is None or (here.st_mtime_ns, here.st_size) != (there.st_mtime_ns, there.st_size):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return copy


def record(copies: list[Path], folder: Path, files: list[str], interpreted: bool) -> None:
    """Which tests reach what, for the test files named, into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting, running = list(files), {}
    while waiting or running:
        for copy in copies:
            if copy in running and running[copy].poll() is not None:
                del running[copy]
            if copy not in running and waiting:
                name = waiting.pop(0)
                output = folder / f"{Path(name).stem}.json"
                program = copy / "benchmarks" / "source_mutants" / "reached.py"
                with output.with_suffix(".log").open("w") as log:
                    running[copy] = subprocess.Popen(
                        [sys.executable, str(program), str(output), name],
                        cwd=copy, env=_environment(copy, interpreted), stdout=log, stderr=log,
                    )  # fmt: skip
        time.sleep(0.2)


def results(
    mutants: list[Mutant], plans: list[list[str]], reached: Reached, copies: list[Path], interpreted: bool
) -> Iterator[Result]:
    """Outcomes as they come in, from one process per copy."""
    for name in HEAVY:
        importlib.import_module(name)
    context = multiprocessing.get_context("fork")
    todo, done = context.Queue(), context.Queue()
    for item in zip(mutants, plans, strict=True):
        todo.put(item)
    workers = [context.Process(target=_work, args=(copy, todo, done, reached.known, interpreted)) for copy in copies]
    for worker in workers:
        todo.put(None)
        worker.start()
    for _ in mutants:
        yield done.get()
    for worker in workers:
        worker.join()


def _environment(copy: Path, interpreted: bool) -> dict[str, str]:
    changed = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    return os.environ | changed | ({"NUMBA_DISABLE_JIT": "1"} if interpreted else {})


def _work(copy: Path, todo: Any, done: Any, known: set[str], interpreted: bool) -> None:
    os.environ.update(_environment(copy, interpreted))
    while (item := todo.get()) is not None:
        mutant, tests = item
        done.put(_result(mutant, tests, known, copy, interpreted) if tests else _unreached(mutant))


def _unreached(mutant: Mutant) -> Result:
    return Result(mutant=mutant, outcome="unreached", told="", tests=0, seconds=0.0)


def _result(mutant: Mutant, tests: list[str], known: set[str], copy: Path, interpreted: bool) -> Result:
    path = copy / mutant.path
    original, times = path.read_bytes(), path.stat()
    log = copy.with_suffix(".log")
    began = time.monotonic()
    path.write_bytes(mutant.applied(original))
    try:
        child = os.fork()
        if not child:
            _child(copy, tests, known, log, interpreted)
        limit = MOST_SECONDS
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended or time.monotonic() - began > limit:
                break
            time.sleep(0.02)
        if not ended:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            outcome = "time-out"
        else:
            outcome = "survived" if os.waitstatus_to_exitcode(status) in (0, 5) else "killed"  # 5: no test
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    lines = [row for row in log.read_text(errors="replace").splitlines() if row.startswith(("FAILED", "ERROR"))]
    told = lines[0] if lines and outcome == "killed" else ""
    return Result(
        mutant=mutant, outcome=outcome, told=told, tests=len(tests), seconds=round(time.monotonic() - began, 1)
    )


def _child(copy: Path, tests: list[str], known: set[str], log: Path, interpreted: bool) -> None:
    """pytest in this process, which ends with it."""
    os.setsid()
    os.chdir(copy)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(copy), str(copy / "tests" / "support")]
    code = 3
    try:
        import hypothesis
        import numba
        import pytest

        numba.config.DISABLE_JIT = int(interpreted)
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", database=None, phases=phases, derandomize=True)
        hypothesis.settings.load_profile("mutants")
        options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-rfE", "--no-header", "-m", "slow or not slow"]
        files = dict.fromkeys(name.partition("::")[0] for name in tests)
        code = int(pytest.main([*options, *files], plugins=[Chosen(tests, known)]))
    finally:
        sys.stdout.flush()
        os._exit(code)
