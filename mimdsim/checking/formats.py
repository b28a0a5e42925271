"""Whether whole numbers fit the bytes that a program stores them in."""

from __future__ import annotations

from mimdsim.execution import Executor


def misfit(executor: Executor) -> str:
    """The first variable with a whole number that its bytes cannot hold, in words; '' if there is none."""
    for name, variable in executor.program.variables.items():
        held = executor.arrays[name]
        bits = 8 * variable.item_bytes
        if held.dtype.kind in "iu" and variable.item_bytes < held.dtype.itemsize and held.size:
            most, least = int(held.max()), int(held.min())
            wrong = most if most >= 1 << bits else least
            if most >= 1 << bits or least < -(1 << bits - 1):
                return (
                    f"variable '{name}' holds {wrong:,}, which the {variable.item_bytes} bytes it is stored in cannot"
                )
    return ""
