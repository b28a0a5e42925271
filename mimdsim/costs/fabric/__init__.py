"""Exchange fabrics: what a machine's exchange costs, by the model that it names."""

from __future__ import annotations

from mimdsim.costs.fabric.endpoint import Endpoint, Planner, Scheduled
from mimdsim.costs.fabric.model import BusiestTile, FabricModel, Part
from mimdsim.costs.fabric.routed import Routed
from mimdsim.machine import MimdMachine

__all__ = ["FABRICS", "BusiestTile", "FabricModel", "Part", "fabric_of"]

FABRICS: dict[str, type[FabricModel]] = {
    "endpoint": Endpoint,
    "planner": Planner,
    "scheduled": Scheduled,
    "routed": Routed,
}


def fabric_of(machine: MimdMachine) -> FabricModel:
    """The exchange fabric of a machine, by its `exchange.model`."""
    return FABRICS[machine.exchange.model](machine)
