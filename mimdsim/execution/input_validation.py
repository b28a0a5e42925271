"""What the host may write to the inputs of a program."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, near
from mimdsim.program import Program


def accepted(program: Program, name: str, value: Any, target: np.ndarray) -> np.ndarray:
    """`value` as the array that is written to input `name`; raises MappingError for what the input cannot hold.

    Whole numbers must be whole, within the type and within `Program.bounds`; numbers must be numbers.
    """
    if name not in program.inputs:
        hint = near(name, program.inputs)
        raise MappingError(f"the program has no input '{name}'; it has {sorted(program.inputs)}{hint}")
    given = np.asarray(value)
    if given.dtype.kind not in "biuf":
        raise MappingError(f"input '{name}' is made of {given.dtype}, the program takes {target.dtype}")
    if given.shape != target.shape:
        raise MappingError(f"input '{name}' has shape {given.shape}, the program takes {target.shape}")
    if target.dtype.kind not in "iu" or not given.size:
        return given
    whole = given if given.dtype.kind in "biu" else np.trunc(given)
    if (wrong := ~(whole == given)).any():
        raise MappingError(f"input '{name}' takes whole numbers; {_first(name, given, wrong)}")
    kind = np.iinfo(target.dtype)
    least, most = program.bounds.get(name, (int(kind.min), int(kind.max)))
    if int(whole.min()) < least or int(whole.max()) > most:
        wrong = (whole < least) | (whole > most)
        raise MappingError(f"input '{name}' takes numbers from {least:,} to {most:,}; {_first(name, given, wrong)}")
    return given


def _first(name: str, given: np.ndarray, wrong: np.ndarray) -> str:
    where = tuple(int(index) for index in np.argwhere(wrong)[0]) if given.ndim else ()
    return f"{name}{list(where) if where else ''} is {given[where]}"
