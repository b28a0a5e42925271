"""Kernels compiled by a second process while a first run begins.

After installation no kernel is compiled, and compiling those of a training step takes longer than the rest of the run.
numba compiles one at a time, so a process beside this one begins with the kernels that are needed last, and keeps them
on disk; this one compiles what it needs, and finds the others. `kernels.txt` lists them, each with the types
of its arguments, in the order in which a run needs them; benchmarks/first_run.py writes it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

from numba import types

from mimdsim.numerics.compiled import CONFIG, is_kept

LISTED = Path(__file__).with_name("kernels.txt")
_TYPES: dict[str, Any] = {**vars(types), "bool": types.boolean, "omitted": lambda default: types.Omitted(default)}


def listed() -> list[tuple[str, str]]:
    """(module and name, types of the arguments) of every kernel."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    return [(name, given) for name, _, given in (line.partition(" ") for line in lines)]


def kernel(name: str) -> Any:
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(module), function)


def arguments(given: str) -> tuple[Any, ...]:
    """Types from what numba calls them."""
    found: tuple[Any, ...] = _made(ast.parse(given, mode="eval").body)
    return found


def _made(node: ast.expr) -> Any:
    """What a name of a type, a constant, a tuple or a call of these stands for."""
    if isinstance(node, ast.Name):
        return _TYPES[node.id]
    if isinstance(node, ast.Tuple):
        return tuple(_made(each) for each in node.elts)
    if isinstance(node, ast.Call):
        named = {str(each.arg): _made(each.value) for each in node.keywords}
        return _made(node.func)(*(_made(each) for each in node.args), **named)
    return ast.literal_eval(node)


@cache
def compile_ahead() -> subprocess.Popen[bytes] | None:
    """Begin, once in a process, if there is a second processor and nothing is compiled yet; the other process ends when
    it is done or this one has ended."""
    if CONFIG.DISABLE_JIT or (os.cpu_count() or 1) < 2 or is_kept(kernel(listed()[0][0])):
        return None
    nowhere = subprocess.DEVNULL
    command = [sys.executable, "-P", "-c", "from mimdsim.numerics.precompile import compile_listed; compile_listed()"]
    with contextlib.suppress(OSError):  # then this process compiles all
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere)
    return None


def compile_listed() -> None:
    """Compile the listed kernels, the last ones first, as long as standard input is open."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    for name, given in reversed(listed()):
        with contextlib.suppress(Exception):  # left to the other process, which says what is wrong
            kernel(name).compile(arguments(given))


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
