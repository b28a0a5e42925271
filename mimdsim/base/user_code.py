"""Functions of a user's file: loaded, called, and their exceptions reported with the user's line; whose a module is."""

from __future__ import annotations

import importlib.util
import linecache
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from mimdsim.base.errors import DescriptionError, MimdsimError, same_file, suggest, users_frame
from mimdsim.base.files import open_regular

ALLOWED = "MIMDSIM_ALLOW_CODE"  # which processes started from here have too
PACKAGE = __name__.partition(".")[0]
NOT_USERS = frozenset({*sys.stdlib_module_names, "numpy", "numba", "scipy", PACKAGE}) - {"__main__"}


def is_users(module: object) -> bool:
    """Whether a module, by its name, is a user's."""
    return str(module).partition(".")[0] not in NOT_USERS


def allow_code() -> None:
    """From now on, in this process and those that it starts, run the Python files that descriptions name
    (`network.models` of a workload, `exchange.model` of a machine): allow only descriptions that you trust.

        >>> mimdsim.allow_code()  # doctest: +SKIP
    """
    os.environ[ALLOWED] = "1"


def require_allowed(key: str, descriptions: str) -> None:
    """Raise DescriptionError where code that a key of such descriptions names is not allowed to run."""
    if os.environ.get(ALLOWED) != "1":
        raise DescriptionError(
            key,
            [
                "is a Python file, which is run only if you say so: type  mimdsim --allow-code COMMAND ...  , or call "
                f"mimdsim.allow_code(), for {descriptions} that you trust"
            ],
        )


def load_file(path: Path, holds: str) -> ModuleType:
    """The module of a Python file with the content described by `holds`. The file is run: load only files you trust.

    Raises DescriptionError if the file does not exist or cannot be imported, with the line.
    """
    if path.suffix != ".py":
        raise DescriptionError(str(path), [f"is no Python file (.py); give one that {holds}"])
    try:
        open_regular(path).close()
    except FileNotFoundError:
        raise DescriptionError(str(path), [f"no such Python file (.py); give one that {holds}"]) from None
    except OSError as problem:
        raise DescriptionError(str(path), [f"cannot be read: {problem.strerror}; give one that {holds}"]) from None
    name = (
        f"users.{path.stem}"  # which no library has: whose code it is is told by that, and a kernel may be in glob.py
    )
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(specification)  # where dataclasses look themselves up
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as failure:
        raise DescriptionError(str(path), [f"cannot be imported: {_failure_text(failure, str(path))}"]) from None
    return module


def function_in(module: ModuleType, path: Path, name: str, wanted: str) -> Callable[..., Any]:
    """A function of a user's file; raises DescriptionError that says what is wanted."""
    function = getattr(module, name, None)
    if not callable(function):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        known = [key for key in own if callable(getattr(module, key)) and not key.startswith("_")]
        raise DescriptionError(str(path), [f"defines no function {wanted}{suggest(name, known)}"])
    named: Callable[..., Any] = function
    return named


def call_users(what: str, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """The result of the user's function; raises DescriptionError(what) with the user's line if it raises."""
    code = getattr(function, "__code__", None)
    try:
        return function(*given, **named)
    except (Exception, SystemExit) as failure:
        raise DescriptionError(what, [_failure_text(failure, code.co_filename if code else "")]) from None


def _failure_text(failure: BaseException, file: str) -> str:
    """Message and place of a failure, as by `users_frame`."""
    if isinstance(failure, SyntaxError) and failure.filename and same_file(failure.filename, file):
        return f"{type(failure).__name__}: {failure.msg} (line {failure.lineno})"
    said = str(failure) if isinstance(failure, MimdsimError) else f"{type(failure).__name__}: {failure}"
    frame = users_frame(failure, file)
    if frame is None or frame.filename == __file__:
        return said
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"{said}\n    ({Path(frame.filename).name}, line {frame.lineno}: {line})"
