"""The exchange and sync of a superstep as rows of cycles, seen from one tile."""

from __future__ import annotations

from mimdsim.base.units import counted
from mimdsim.costs.exchange_batch import busiest_tile
from mimdsim.costs.exchange_endpoint import TilePart, part_of_tile, way_cycles
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Exchange as Fabric
from mimdsim.program import Program, Superstep
from mimdsim.timing.critical_path import PathPart
from mimdsim.timing.explanation import Row


def exchange_rows(
    program: Program,
    superstep: Superstep,
    machine: MimdMachine,
    part: PathPart,
    here: int,
    tile: int,
    times: int,
) -> tuple[Row, ...]:
    """here: cycles of one exchange on the tile's chip."""
    exchange, fabric = superstep.exchange, machine.exchange
    rows = []
    if exchange is not None and here:
        own = part_of_tile(program, exchange, fabric, tile)
        way = int(way_cycles(program, exchange, machine)[tile // program.tiles_per_chip])
        phase = here - fabric.fixed_cycles - fabric.route_cycles - way
        rows += [] if own is None else [_own_part(own, fabric)]
        rows.append(_busier(program, superstep, machine, phase - (own.cycles if own else 0)))
        rows.append(Row(what="fixed part of an exchange", how=f"{fabric.fixed_cycles}", cycles=fabric.fixed_cycles))
        rows.append(Row(what="route", how=f"{fabric.route_cycles}", cycles=fabric.route_cycles))
        hops = f"{fabric.hop_cycles:g} a hop, as far as its tiles are apart"
        rows.append(Row(what="way", how=hops, cycles=way))
    rows = [row.times(times) for row in rows if row.cycles]
    rows.append(Row(what="links between chips", how="bytes over links, by route", cycles=part.link))
    rest = part.exchange - part.link - here * times
    rows.append(Row(what="other chips", how="between barriers of all chips the slowest chip counts", cycles=rest))
    return tuple(row for row in rows if row.cycles)


def _own_part(own: TilePart, fabric: Fabric) -> Row:
    wire = f"{own.wire_bytes:,} bytes / {fabric.bytes_per_cycle:g} a cycle"
    control = (
        f"{counted(own.fragments_sent, 'piece')} sent x {fabric.send_fragment_cycles:g} + "
        f"{own.fragments_received:,} received x {fabric.receive_fragment_cycles:g}"
    )
    if own.control_cycles > own.wire_bytes / fabric.bytes_per_cycle:
        return Row(what="control of its pieces", how=control, cycles=own.cycles, note=f"its {wire} take less")
    note = f"sends {own.bytes_sent:,}, receives {own.bytes_received:,}"
    note += f", {own.bytes_saved:,} of them over its neighbour's bus" if own.bytes_saved else ""
    note += f"; control of {control} takes less" if own.control_cycles else ""
    return Row(what="bytes on its wire", how=wire, cycles=own.cycles, note=note)


def _busier(program: Program, superstep: Superstep, machine: MimdMachine, cycles: int) -> Row:
    """How long the tile waits for others, or for its turn in the order of messages."""
    assert superstep.exchange is not None
    busiest = busiest_tile(program, superstep.exchange, machine.exchange)
    assert busiest is not None
    control = f", {busiest.control_cycles:,} cycles of control" if busiest.control_cycles else ""
    note = f"tile {busiest.tile} has {busiest.wire_bytes:,} bytes on its wire{control}"
    note += "; messages wait for each other" if machine.exchange.model == "scheduled" else ""
    return Row(what="waits for the end of the exchange", how=f"{cycles:,}", cycles=cycles, note=note)


def sync_rows(machine: MimdMachine, part: PathPart, cycles: int, all_chips: bool, times: int) -> tuple[Row, ...]:
    """cycles: of one sync of the tile's chip, or of all chips."""
    barrier = machine.barrier_cycles(all_chips=all_chips)
    rows = []
    if cycles:
        what = "barrier of all chips" if all_chips else "barrier of the chip"
        rows.append(Row(what=what, how=f"{barrier}", cycles=barrier).times(times))
        late = cycles - barrier
        share = f"{machine.sync.exchange_share:g} of the exchange"
        rows.append(Row(what="waits for the last tile", how=f"{late:,}", cycles=late, note=share).times(times))
    rest = part.sync - cycles * times
    rows.append(Row(what="other chips", how="between barriers of all chips the slowest chip counts", cycles=rest))
    return tuple(row for row in rows if row.cycles)
