"""What a codelet's function has beside its fields: closures, defaults, globals, attributes; and how large it is."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Mapping, Set
from functools import lru_cache, partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from mimdsim.base.user_code import is_users

WORD = 4  # bytes of a number of Python's, or of NumPy's long ones, on a tile
DATA = np.ndarray, list, dict, tuple, set, frozenset, bytes, bytearray


def is_library(compute: Callable[..., Any]) -> bool:
    """Whether a codelet's function comes with mimdsim, or another package."""
    while isinstance(compute, partial):
        compute = compute.func
    module = getattr(compute, "__module__", None) or type(compute).__module__
    return not is_users(module)


def closure_of(compute: Callable[..., Any]) -> dict[str, Any]:
    """What a function of a codelet has that is not its own, by name: globals that it reads, variables of functions
    around it, defaults, attributes, what a partial or an object holds; and of users' functions that it calls."""
    found: dict[str, Any] = {}
    for name, value in _walk_closure(compute, {id(compute)}):
        found.setdefault(name, value)
    return found


def _walk_closure(compute: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    compute = getattr(compute, "py_func", compute)
    for name, value in _members_of(compute):
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield name, value
        if _is_users(value):
            yield from _walk_closure(value, seen)


def _members_of(compute: Any) -> Iterator[tuple[str, Any]]:
    """What a function, a partial, a method, a class or an object holds itself."""
    if isinstance(compute, partial):
        yield from ((f"argument {place}", value) for place, value in enumerate(compute.args))
        yield from compute.keywords.items()
        yield "func", compute.func
    elif isinstance(compute, MethodType):
        yield "self", compute.__self__
        yield "func", compute.__func__
    elif isinstance(compute, FunctionType):
        yield from _members_of_function(compute)
    else:
        owner = compute if isinstance(compute, type) else type(compute)
        own = [each for each in owner.__mro__ if is_users(each.__module__)]
        for each in own:
            yield from ((name, value) for name, value in vars(each).items() if not name.startswith("__"))
            slots = each.__dict__.get("__slots__", ())
            names = (slots,) if isinstance(slots, str) else slots
            yield from ((name, getattr(compute, name)) for name in names if hasattr(compute, name))
            if "__call__" in vars(each):
                yield "__call__", vars(each)["__call__"]
        if hasattr(compute, "__wrapped__"):  # functools.cache and its like
            yield "__wrapped__", compute.__wrapped__
        if not isinstance(compute, type):
            yield from getattr(compute, "__dict__", {}).items()


def _members_of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    named, defaults = function.__code__.co_varnames[: function.__code__.co_argcount], function.__defaults__ or ()
    yield from zip(named[len(named) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    yield from function.__dict__.items()
    loaded, attributes, literals = names_of(function.__code__)
    for name in loaded:
        if name in function.__globals__:
            value = function.__globals__[name]
            yield name, value
            if isinstance(value, ModuleType):
                held = vars(value)  # not by getattr, which runs a module's own and warns of names that are deprecated
                yield from ((key, held[key]) for key in attributes if isinstance(held.get(key), DATA))
    yield from ((f"a literal of {len(value)}", value) for value in literals)


@lru_cache(maxsize=1024)  # a search verifies the same codelets again and again
def names_of(code: CodeType) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Any, ...]]:
    """(globals that code reads, names of attributes, literals of several values), of functions within it too."""
    loaded = {each.argval: None for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    attributes, literals = dict.fromkeys(code.co_names), dict[Any, None]()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            for mine, more in zip((loaded, attributes, literals), names_of(constant), strict=True):
                mine.update(dict.fromkeys(more))
        elif isinstance(constant, tuple | frozenset | bytes):
            literals[constant] = None
    return tuple(loaded), tuple(attributes), tuple(literals)


def _is_users(value: Any) -> bool:
    """Whether what a value holds, beyond elements, is to be looked at: users' functions, objects and classes."""
    if isinstance(value, partial | MethodType):
        return True
    if isinstance(value, ModuleType | BuiltinFunctionType | np.ndarray | np.generic | Mapping | Set | list | tuple):
        return False
    module = getattr(value, "__module__", None) if callable(value) else type(value).__module__
    return hasattr(value, "cache_info") or is_users(module or "builtins")


def size_of(value: Any, seen: set[int] | None = None) -> int:
    """Bytes of arrays and of what containers hold, each once, as a tile would hold them; 0 of one number."""
    seen = set() if seen is None else seen
    while isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):
        value = value.base
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return value.size * min(value.itemsize, WORD) if value.dtype.kind != "O" else size_of(value.tolist(), seen)
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_element(each, seen) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple | Set) or type(value).__module__ in ("collections", "array"):
        return sum(_element(each, seen) for each in value)
    return 0


def _element(value: Any, seen: set[int]) -> int:
    if isinstance(value, str):
        return len(value)
    return WORD if isinstance(value, int | float | complex | np.generic) or value is None else size_of(value, seen)
