"""What a vertex keeps beside its fields while it runs, and from one run to the next.

Scratch is what the variables of a codelet's function hold from one statement to the next: arrays, lists and the like.
What an expression makes on the way belongs to the host, which computes in whole slices where a tile has a loop.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping, Set
from types import FrameType
from typing import Any

import numpy as np

from mimdsim.base.modules import is_users
from mimdsim.program.codelet_closure import size_of

STACK_BYTES = 256  # assumed: of scratch that the stack holds, which code_bytes covers


class Scratch:
    """Within `with`, looks at what users' functions hold at every statement: `bytes`, the most at a time, and `held`,
    the largest of its variables and their bytes. fields: arrays that are not scratch."""

    def __init__(self, fields: list[np.ndarray]):
        self.bytes, self.held = 0, ("", 0)
        self._fields, self._frames = {id(_owner(each)) for each in fields}, list[FrameType]()
        self._given: list[Any] = []  # arguments of the codelet's function, kept, or others could get their ids

    def __enter__(self) -> Scratch:
        self._before, self._collects = sys.gettrace(), gc.isenabled()
        gc.disable()  # what others have registered to run at collections is not the codelet's
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self._before)
        if self._collects:
            gc.enable()

    def _call(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if not is_users(frame.f_globals.get("__name__", "")):
            return None
        if not self._frames:
            self._given = list(frame.f_locals.values())
            self._fields |= {id(each) for each in self._given}
        self._frames.append(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        self._look()
        if event == "return" and frame in self._frames:
            self._frames.remove(frame)
        return self._step

    def _look(self) -> None:
        seen, total, largest = set(self._fields), 0, ("", 0)
        for frame in self._frames:
            around = frame.f_code.co_freevars
            for name, value in frame.f_locals.items():
                size = 0 if name in around else size_of(value, seen)
                total += size
                largest = max(largest, (name, size), key=lambda each: each[1])
        if total > self.bytes:
            self.bytes, self.held = total, largest


def _owner(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def state_of(value: Any) -> Any:
    """What could change in a value between two runs, to be compared."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, Mapping):
        return [(repr(key), state_of(each)) for key, each in value.items()]
    if isinstance(value, Set):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return [state_of(each) for each in value]
    if hasattr(value, "cache_info"):
        return value.cache_info()
    return value if isinstance(value, bool | int | float | str | bytes | None) else repr(value)
