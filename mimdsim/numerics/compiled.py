"""Compiled kernels, kept on disk for all sources of this package together.

numba keeps a kernel as long as the file stays the same in which it stands, and so would run what was compiled from an
older version of another file that is inlined into it. Here the folder is named after the digest of all sources of
`numerics` and of the versions that compile them (`base/identity.py`), so other sources find nothing. A kernel for types
of arguments is one file with a digest of its own: what is damaged is compiled again.

Kernels compiled by a second process while a first run begins.

After installation no kernel is compiled, and compiling those of a training step takes longer than the rest of the run.
numba compiles one at a time, so a process beside this one begins with the kernels that are needed last, and keeps them
on disk; this one compiles what it needs, and finds the others. `kernels.txt` lists them, each with the types
of its arguments, in the order in which a run needs them; benchmarks/first_run.py writes it.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, overload

import numba
import numpy as np
from numba import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

from mimdsim.base.errors import MimdsimError
from mimdsim.base.files import open_regular, write_atomically
from mimdsim.base.identity import code_digest

HERE = Path(__file__).parent
FOLDER = "mimdsim-"  # and a digest
MOST_FOLDERS = 6  # of versions that take turns, such as several checkouts with one NUMBA_CACHE_DIR
DIGEST_BYTES = 32
CONFIG: Any = numba.config  # set by the environment
NJIT: Any = numba.njit  # its type lacks some options
ErrorModel = Literal["python", "numpy"]


@overload
def compiled(function: Callable[..., Any]) -> Callable[..., Any]: ...
@overload
def compiled(*, error_model: ErrorModel) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def compiled(function: Any = None, *, error_model: ErrorModel = "python") -> Any:
    """`function` compiled by numba without fastmath and the interpreter's lock, and kept on disk; interpreted
    with NUMBA_DISABLE_JIT=1."""
    if function is None:
        return partial(compiled, error_model=error_model)
    if CONFIG.DISABLE_JIT:
        made: Any = np.errstate(all="ignore")(function)  # compiled code says nothing of overflows either
        made.py_func = function
        return made
    made = NJIT(nogil=True, error_model=error_model, no_cfunc_wrapper=True)(function)  # C calls none of them
    made._cache = _Cache(function)
    return made


def is_kept(kernel: Any) -> bool:
    """Whether a kernel is kept, for whatever arguments."""
    return not CONFIG.DISABLE_JIT and any(kernel._cache._cache_file.files())


def check_folder() -> None:
    """Raise MimdsimError at once where no kernel can be kept."""
    if not CONFIG.DISABLE_JIT:
        folder()


@cache
def folder() -> Path:
    """Where the kernels of these sources are kept: where numba would keep them, in a folder of their own.

    Raises MimdsimError if nothing can be written in any such place.
    """
    for place in _places():
        path = place / f"{FOLDER}{code_digest('numerics')[:24]}"
        with contextlib.suppress(OSError):
            if path.is_file():
                path.unlink()
            is_new = not path.is_dir()
            _Place(str(path)).ensure_cache_path()  # type: ignore[no-untyped-call]
            os.utime(path)
            if is_new:
                _remove_unused(place)
            return path
    raise MimdsimError(
        f"compiled kernels can be kept neither in {HERE} nor in your cache folder; set NUMBA_CACHE_DIR to a writable "
        "folder"
    )


def _places() -> Iterator[Path]:
    if CONFIG.CACHE_DIR:
        yield Path(CONFIG.CACHE_DIR)
    yield HERE / "__pycache__"
    yield Path(AppDirs(appname="numba", appauthor=False).user_cache_dir)


def _remove_unused(place: Path) -> None:
    """Remove the folders that were not used for longest; a process that still uses one compiles again."""
    found = sorted(place.glob(f"{FOLDER}*"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in found[MOST_FOLDERS:]:
        shutil.rmtree(path, ignore_errors=True)


class _Files:
    """A file for every key of a kernel: sha256, then the key and what was compiled."""

    def __init__(self, stem: str):
        self.stem = stem

    def files(self) -> Iterator[Path]:
        return folder().glob(f"{self.stem}-*.nbc")

    def path(self, key: Any) -> Path:
        return folder() / f"{self.stem}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.nbc"

    def load(self, key: Any) -> Any:
        """What was kept; None if nothing was, or if it is damaged."""
        try:
            with open_regular(self.path(key)) as file:
                content = file.read()
        except FileNotFoundError:
            return None
        except OSError:
            return self.forget(key)
        if hashlib.sha256(content[DIGEST_BYTES:]).digest() != content[:DIGEST_BYTES]:
            return self.forget(key)
        known, found = pickle.loads(content[DIGEST_BYTES:])
        return found if known == key else None

    def save(self, key: Any, data: Any) -> None:
        content = dumps((key, data))
        with contextlib.suppress(MimdsimError):  # no room, or no right to: the next process compiles again
            write_atomically(self.path(key), hashlib.sha256(content).digest() + content)

    def forget(self, key: Any) -> None:
        """Remove what was kept, as far as that can be done."""
        path = self.path(key)
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def flush(self) -> None:
        for path in self.files():
            with contextlib.suppress(OSError):
                path.unlink()


class _Place(_CacheLocator):
    """A folder as numba takes it; py_file: of a function that is kept there."""

    def __init__(self, path: str, py_file: str = ""):
        self._path, self._py_file = path, py_file

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> str:
        return self._path

    def get_disambiguator(self) -> str:
        return ""


class _Compiled(CompileResultCacheImpl):
    """How numba writes down what it has compiled."""

    def __init__(self, function: Callable[..., Any]):
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Place(str(folder()), function.__code__.co_filename)
        self._filename_base = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")


class _Cache(FunctionCache):
    """What numba asks for a kernel."""

    def __init__(self, function: Callable[..., Any]):
        self._name, self._py_func = repr(function), function
        self._impl = _Compiled(function)
        self._cache_path = str(folder())
        self._cache_file: Any = _Files(self._impl.filename_base)
        self.enable()  # type: ignore[no-untyped-call]

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super()._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # whatever a file that this process cannot use makes of it
            self._cache_file.forget(self._index_key(sig, target_context.codegen()))  # type: ignore[no-untyped-call]
            return None


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
    return tuple(_made(ast.parse(given, mode="eval").body))


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
    command = [sys.executable, "-P", "-c", "from mimdsim.numerics.compiled import compile_listed; compile_listed()"]
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
