"""What undefined memory holds, so that whoever uses it is seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.functional.execute import Executor

LARGE_INTEGER = 2**30  # as an index it leaves every array, as its negative also counted from the end
LARGE = {2: 2.0**14, 4: 2.0**60, 8: 2.0**60}  # by bytes of a float, large and exact: what nobody computes with


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

    def found(self, array: np.ndarray) -> np.ndarray:
        """bool, of the array's shape: which elements hold it, as far as their type can tell it from a number."""
        if array.dtype.kind == "f" and not self.sign:
            return np.isnan(array)
        if array.dtype.kind == "b":
            return np.zeros(array.shape, bool)
        if array.dtype.kind == "f" and array.dtype.itemsize > 2:  # and what was made of it
            large: np.ndarray = np.abs(array) >= LARGE[array.dtype.itemsize] * 2.0**-20
            return large
        held: np.ndarray = array == self.of(array.dtype)
        return held


NO_NUMBER = Poison()
KINDS = (NO_NUMBER, Poison(sign=1), Poison(sign=-1))  # of one strict run after another


def undefine(executor: Executor, kinds: str = "fiu", poison: Poison = NO_NUMBER) -> None:
    """Fill with poison what is in memory before a program runs: all but what `write` gave, what is loaded or persists.

    kinds: of the dtypes to be filled; a poisoned integer is safe as an index only in strict execution.
    """
    program = executor.program
    for name, variable in program.variables.items():
        array, defined = executor.arrays[name], variable.persistent or variable.values is not None
        if name not in executor.given and not defined and array.dtype.kind in kinds:
            array[...] = poison.of(array.dtype)
