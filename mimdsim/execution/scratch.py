"""What a vertex keeps beside its fields while it runs, and from one run to the next.

Scratch is what the variables of a codelet's function hold from one statement to the next: arrays, lists and the like.
What an expression makes on the way belongs to the host, which computes in whole slices where a tile has a loop.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from mimdsim.base.user_code import is_users
from mimdsim.execution.execute import Executor
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


# ---- what undefined memory holds, so that whoever uses it is seen


LARGE_INTEGER = 2**30  # as an index it leaves every array, as its negative also counted from the end
LARGE = {2: 2.0**14, 4: 2.0**60, 8: 2.0**60}  # by bytes of a float, large and exact: what nobody computes with
MARKED_BITS = {1: 2, 2: 6, 4: 20, 8: 20}  # by bytes of a number: its last bits that may vary, and it stays poison
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # multiplies counters into bits that look random (Knuth, volume 3, section 6.4)


@dataclass(frozen=True, kw_only=True)
class Poison:
    """sign 0: NaN and an integer that as an index leaves every array; 1 and -1: numbers above and below all others,
    which win comparisons that NaN loses."""

    sign: int = 0

    def of(self, dtype: np.dtype[Any]) -> Any:
        """What undefined memory of a type holds."""
        if dtype.kind == "f":
            return self.sign * LARGE[dtype.itemsize] if self.sign else np.nan
        if dtype.kind == "b":
            return self.sign >= 0
        if dtype.itemsize >= 4 and dtype.kind == "i":
            return LARGE_INTEGER if self.sign > 0 else -LARGE_INTEGER
        if dtype.itemsize >= 4:
            return LARGE_INTEGER
        # the most extreme number of a short format: an id or a count that leaves arrays of fewer elements, a flag set
        return np.iinfo(dtype).max if dtype.kind == "u" or self.sign > 0 else np.iinfo(dtype).min

    def image(self, shape: tuple[int, ...], dtype: np.dtype[Any], number: int) -> np.ndarray:
        """Poison for what a vertex must not touch: elements, and memories by their `number`, differ in their last bits,
        so that poison which is copied, sorted or computed with is not what was there."""
        held = np.full(shape, self.of(dtype), dtype)
        bits = 1 if dtype.kind == "b" else MARKED_BITS[dtype.itemsize]
        counters = np.arange(1, held.size + 1, dtype=np.uint64) + np.uint64(number << 40)
        marks = counters * GOLDEN >> np.uint64(64 - bits)
        as_bits(held)[...] ^= marks.reshape(shape).astype(f"u{dtype.itemsize}")
        return held

    def found(self, array: np.ndarray) -> np.ndarray:
        """bool, of the array's shape: which elements hold it, as far as their type can tell it from a number."""
        if array.dtype.kind == "f" and not self.sign:
            return np.asarray(np.isnan(array))
        if array.dtype.kind == "b":
            return np.zeros(array.shape, bool)
        if array.dtype.kind == "f" and array.dtype.itemsize > 2:  # and what was made of it
            return np.asarray(np.abs(array) >= LARGE[array.dtype.itemsize] * 2.0**-20)
        return np.asarray(array == self.of(array.dtype))


NO_NUMBER = Poison()
KINDS = (NO_NUMBER, Poison(sign=1), Poison(sign=-1))  # of one strict run after another


def as_bits(array: np.ndarray) -> np.ndarray:
    """The same memory as whole numbers, of which NaN equals itself."""
    return array.view(f"u{array.dtype.itemsize}")


def undefine(executor: Executor, kinds: str = "fiu", poison: Poison = NO_NUMBER) -> None:
    """Fill with poison what is in memory before a program runs: all but what `write` gave, what is loaded or persists.

    kinds: of the dtypes to be filled; a poisoned integer is safe as an index only in strict execution.
    """
    program = executor.program
    for name, variable in program.variables.items():
        array, defined = executor.arrays[name], variable.persistent or variable.values is not None
        if name not in executor.given and not defined and array.dtype.kind in kinds:
            array[...] = poison.of(array.dtype)
