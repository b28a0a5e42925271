"""Exchange phases of a planned product, for arrays of splits; the rules are those of the timed program's exchanges."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.costs.exchange_endpoint import exchange_phase_cycles, longest_way_cycles
from mimdsim.machine import MimdMachine


def control_cycles(machine: MimdMachine, sent: Any, received: Any) -> Any:
    """Cycles of the control instructions for fragments, 0 in the vendor's planner model."""
    fabric = machine.exchange
    if fabric.model == "planner":
        return sent * 0.0
    return sent * fabric.send_fragment_cycles + received * fabric.receive_fragment_cycles


def phase_cycles(machine: MimdMachine, wire: Any, control: Any, moves: Any) -> Any:
    """int64: cycles of one exchange phase whose busiest tile has so many cycles on the wire and of control."""
    # a phase of one cycle less that one: the fixed part of the fabric, whatever it is made of
    way = longest_way_cycles(machine.chip, machine.exchange)
    fixed = exchange_phase_cycles(np.ones(1, np.int64), machine.exchange, way) - 1
    busiest = np.ceil(np.maximum(wire, control)).astype(np.int64)
    return np.where(moves, fixed + busiest, 0)


def operand_phase_cycles(machine: MimdMachine, left: Any, right: Any, rows: Any, columns: Any) -> Any:
    """int64: cycles of the phase that brings both operands; `left` and `right` are the bytes of one piece.

    A tile receives the pieces it does not hold. Tiles next to each other differ in their rows, so both want the same
    block of B; where the rows are not split they want the same block of A. What neither of a pair holds arrives over
    both their buses, so twice as fast, when pairs do not straddle blocks (an even split).
    """
    received = (columns - 1) * left + (rows - 1) * right
    if machine.exchange.tiles_per_bus == 2:
        alike = np.where(rows % 2 == 0, (rows - 2) * right, 0)
        alike = np.where((rows == 1) & (columns % 2 == 0), (columns - 2) * left, alike)
        received = received - alike // 2
    sent = np.where(columns > 1, left, 0) + np.where(rows > 1, right, 0)
    control = control_cycles(machine, (columns > 1).astype(np.int64) + (rows > 1), (columns - 1) + (rows - 1))
    wire = np.maximum(sent, received) / machine.exchange.bytes_per_cycle
    return phase_cycles(machine, wire, control, (columns > 1) | (rows > 1))
