"""Machines as frozen records read from `models/*.toml`; every number with unit and source."""

from mimdsim.machine.gpu import GpuMachine
from mimdsim.machine.load import (
    changed_machine,
    find_machine,
    list_machines,
    load_machine,
    sourced_machine,
    tiled_machine,
    with_values,
)
from mimdsim.machine.mimd import MimdMachine
from mimdsim.machine.watched import Reads

__all__ = [
    "GpuMachine",
    "MimdMachine",
    "Reads",
    "changed_machine",
    "find_machine",
    "list_machines",
    "load_machine",
    "sourced_machine",
    "tiled_machine",
    "with_values",
]
