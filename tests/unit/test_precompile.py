"""Kernels that a second process compiles while a first run begins."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mimdsim.numerics import compiled
from mimdsim.numerics.compiled import CONFIG

ONE = """
from mimdsim.numerics import compiled
name, given = compiled.listed()[0]
compiled.listed = lambda: [(name, given), ("mimdsim.numerics.columns.boxes.gone", "()")]
before = compiled.is_kept(compiled.kernel(name))
compiled.compile_listed()
print(before, compiled.is_kept(compiled.kernel(name)))
"""


def test_listed_kernels_are_there() -> None:
    """And take as many arguments; otherwise run benchmarks/first_run.py --write."""
    for name, given in compiled.listed():
        types = compiled.arguments(given)
        assert str(types) == given
        assert compiled.kernel(name).py_func.__name__ == name.rpartition(".")[2]
        inspect.signature(compiled.kernel(name).py_func).bind(*types)


def started(code: str, folder: Path) -> subprocess.Popen[bytes]:
    where = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=where)


@pytest.mark.slow
@pytest.mark.skipif(bool(CONFIG.DISABLE_JIT), reason="nothing is compiled")
def test_they_are_kept_and_others_passed_over(tmp_path: Path) -> None:
    with started(ONE, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.read().split() == [b"False", b"True"]


def test_the_second_process_ends_with_the_first(tmp_path: Path) -> None:
    with started("from mimdsim.numerics import compiled; compiled.compile_listed()", tmp_path) as process:
        process.communicate(timeout=60)  # closes its input
        assert process.returncode == 0


def test_nothing_is_begun_twice_or_when_kernels_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "is_kept", lambda _: True)
    compiled.compile_ahead.cache_clear()
    assert compiled.compile_ahead() is None
    compiled.compile_ahead.cache_clear()
