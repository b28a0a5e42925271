"""Exchange fabrics: what a machine's exchange costs, by the model that it names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError
from mimdsim.base.files import with_home
from mimdsim.base.user_code import call_users, load_file, require_allowed
from mimdsim.costs.fabric.endpoint import Endpoint, Planner, Scheduled
from mimdsim.costs.fabric.model import BusiestTile, FabricModel, LinkLoads, Row, exchanges_of
from mimdsim.costs.fabric.routed import Routed
from mimdsim.machine import MimdMachine
from mimdsim.program import Exchange, Program

__all__ = ["FABRICS", "BusiestTile", "FabricModel", "LinkLoads", "Row", "fabric_of"]

FABRICS: dict[str, type[FabricModel]] = {
    "endpoint": Endpoint,
    "planner": Planner,
    "scheduled": Scheduled,
    "routed": Routed,
}


def fabric_of(machine: MimdMachine) -> FabricModel:
    """The exchange fabric of a machine, by its `exchange.model`: one of FABRICS, or a class of a Python file.

    Raises DescriptionError where code is not allowed, and for a file that cannot be run or has no such class.
    """
    name = machine.exchange.model
    known = FABRICS.get(name)
    if known is not None:
        return known(machine)
    require_allowed(f"exchange.model = '{name}'", "machines")
    file = with_home(name.rpartition(":")[0])
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        changed = 0  # loading says what is wrong
    return _of_file(name, changed)(machine)


@lru_cache(maxsize=16)
def _of_file(name: str, _changed: int) -> type[FabricModel]:
    """The class, whose answers are checked and whose mistakes are told with the user's line."""
    path, _, called = name.rpartition(":")
    holds = "defines exchange fabrics (classes of mimdsim.costs.fabric.FabricModel)"
    users = getattr(load_file(with_home(path), holds), called, None)
    if not (isinstance(users, type) and issubclass(users, FabricModel)):
        raise DescriptionError(name, [f"'{called}' is no class of mimdsim.costs.fabric.FabricModel in {path}"])
    if missing := sorted(getattr(users, "__abstractmethods__", ())):
        raise DescriptionError(
            name, [f"'{called}' lacks {', '.join(missing)}; define what mimdsim.costs.fabric.FabricModel asks"]
        )

    class Checked(users):  # type: ignore[misc, valid-type]
        def cycles(self, program: Program, exchanges: Sequence[Exchange] | None = None) -> np.ndarray:
            found = call_users(name, super().cycles, program, exchanges)
            count = len(exchanges_of(program) if exchanges is None else exchanges)
            return _whole(name, "cycles", found, (count, program.chips))

        def estimate(self, wire_bytes: Any, sent: Any, received: Any) -> np.ndarray:
            found = call_users(name, super().estimate, wire_bytes, sent, received)
            return _whole(name, "estimate", found, np.shape(np.asarray(wire_bytes) + sent + received))

    return Checked


def _whole(name: str, method: str, found: Any, shape: tuple[int, ...]) -> np.ndarray:
    cycles = np.asarray(found)
    if cycles.shape != shape or cycles.dtype.kind not in "iu" or (cycles < 0).any():
        said = f"an array of {cycles.dtype} {cycles.shape}" if cycles.ndim else f"'{found}'"
        raise DescriptionError(name, [f"{method} returns {said}; it must return whole cycles from 0, shape {shape}"])
    return cycles.astype(np.int64)
