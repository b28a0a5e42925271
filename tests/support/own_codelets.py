"""Kernels of one superstep with a codelet of one's own, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mimdsim.checking import KernelResult, check_kernel
from mimdsim.kernels import Kernel
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.program import Codelet, Field, Program, WorkerBundles

COST = WorkerBundles(fixed=1000, terms=(), kind="assumed", source="a test")


def machine(name: str = "tiny", /, **changes: Any) -> MimdMachine:
    found = load_machine(name, {"chip.tiles": 4, **changes})
    assert isinstance(found, MimdMachine)
    return found


def codelet(compute: Callable[..., None], *fields: tuple[str, str], **more: Any) -> Codelet:
    made = {"cost": COST, "form": "vertex", "columns": ("start", "stop")} | more
    return Codelet(
        name="Own",
        fields=tuple(Field(name=name, access=access, box=("start:stop",)) for name, access in fields),
        compute=compute,
        **made,
    )


def checked(
    compute: Callable[..., None],
    reference: Callable[..., Any] = lambda x: x,
    dtype: str = "float32",
    length: int = 16,
    inputs: Any = None,
    constants: dict[str, Any] | None = None,
    on: MimdMachine | None = None,
    **more: Any,
) -> KernelResult:
    """A kernel of one superstep, y <- f(x), four vertices on four tiles."""

    def build(on: MimdMachine) -> Program:
        k = Kernel("own", on)
        x = k.input(k.variable("x", length, dtype))
        y = k.output(k.variable("y", length, dtype))
        starts = np.arange(4) * (length // 4)
        own = codelet(compute, ("y", "write"), ("x", "read"), constants=tuple(constants or ()), **more)
        columns = {"start": starts, "stop": starts + length // 4}
        k.vertices(own, tiles=np.arange(4), operands={"y": y, "x": x}, columns=columns, constants=constants)
        return k.program()

    return check_kernel(build, on or machine(), reference=reference, inputs=inputs)
