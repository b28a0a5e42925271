"""A lack of memory ends every command with a sentence and exit code 2, never with a traceback or as if all was well."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from mimdsim.base.out_of_memory import lacks_memory

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 2 << 30
COMMAND = """
import os, sys, threading
import click
from mimdsim.cli import main
from mimdsim.base.processes import shared_work

def fails(given, item):
    raise MemoryError

class Held:
    def __del__(self):
        raise MemoryError("in a destructor")

def dies():
    raise RuntimeError("can't start new thread")

@main.command()
def lacking():
    {work}
    print("done")

if __name__ == "__main__":
    main(["lacking"])
"""
WORK = {
    "raised": ("raise MemoryError('a')", False),
    "array": ("import numpy; numpy.ones(1 << 40)", False),
    "followed": ("\n    try:\n        raise MemoryError\n    finally:\n        raise ValueError", False),
    "thread": ("threading.Thread(target=dies).start(); threading.Event().wait(60)", False),
    "destructor": ("Held()", False),
    "at the end": ("import atexit; atexit.register(fails, 0, 0)", False),
    "worker": ("list(shared_work(fails, 0, [1, 2, 3]))", False),
    "aborted": ("os.abort()", True),
    "killed": ("os.kill(os.getpid(), 9)", True),
    "limit": ("import numpy; numpy.ones(1 << 29)", True),
}


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def ran(work: str, *, limit: bool) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND.format(work=work)]
    before = limited if limit else None
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, preexec_fn=before, check=False)


@pytest.mark.first(3)
@pytest.mark.parametrize("name", list(WORK))
def test_what_lacks_memory_ends_with_a_sentence(name: str) -> None:
    work, limit = WORK[name]
    found = ran(work, limit=limit)
    assert found.returncode == 2, found
    assert found.stderr.count("mimdsim: not enough memory (") == 1
    assert "Traceback" not in found.stderr
    assert ("this process may use 2.0 GiB" in found.stderr) == limit


@pytest.mark.slow
def test_with_a_limit_that_suffices_all_is_as_without() -> None:
    for limit in (False, True):
        found = ran("print(sys.stdin.isatty())", limit=limit)
        assert (found.returncode, found.stdout.splitlines()[-1], found.stderr) == (0, "done", "")
        found = ran("sys.exit(3)", limit=limit)
        assert found.returncode == 3
        found = ran("raise ValueError('a bug')", limit=limit)
        assert (found.returncode, "this is a bug in mimdsim" in found.stderr) == (4, True)
    assert ran("os.kill(os.getpid(), 15)", limit=True).returncode == -15


def test_other_failures_are_no_lack_of_memory() -> None:
    others = (None, ValueError("out of memory"), RuntimeError("x"), OSError(2, "no such file"))
    lacks = (MemoryError(), OSError(12, "Cannot allocate memory"), RuntimeError("std::bad_alloc"))
    assert [*map(lacks_memory, (*others, *lacks))] == [False] * len(others) + [True] * len(lacks)
