"""Machines as frozen records read from `models/*.toml`; every number with unit and source."""

from mimdsim.machine.gpu import GpuMachine
from mimdsim.machine.load import (
    Given,
    Machine,
    changed_machine,
    description_files,
    find_machine,
    given_machine,
    list_machines,
    load_machine,
    sourced_machine,
    tiled_machine,
    with_values,
)
from mimdsim.machine.mimd import MimdMachine, Reads
from mimdsim.machine.numbers import machine_notes

__all__ = [
    "Given",
    "GpuMachine",
    "Machine",
    "MimdMachine",
    "Reads",
    "changed_machine",
    "description_files",
    "find_machine",
    "given_machine",
    "list_machines",
    "load_machine",
    "machine_notes",
    "sourced_machine",
    "tiled_machine",
    "with_values",
]
