"""Transfers between memories of tiles over a network of routers: rows in cycles.

The programs (tenstorrent/tt-metal, tests/tt_metal/tt_metal/data_movement) time one core of a tile from before its first
request until all data or answers are back. `pattern` says who sends to whom among the tiles of a square of the grid, of
a row or of a column; a reading tile makes the requests itself. A row of many tiles gives a middle value over them:
where multicasts of several tiles hold their links, these take turns, and the one in the middle waits for half of them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.base.units import UNCERTAINTY
from mimdsim.costs.fabric.network import Network
from mimdsim.costs.fabric.routed import Routed
from mimdsim.costs.fabric.traffic import Ends
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.program.messages import Messages
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, around, whole_numbers

MACHINES = {"WORMHOLE_B0": "wormhole", "BLACKHOLE": "blackhole"}
MULTICAST = {"UNICAST": "none", "MULTICAST": "reserved", "MULTICAST_LINKED": "linked"}
SHAPES = ("ALL", "ROW", "COLUMN")
COLUMNS = {
    "arch", "mechanism", "pattern", "memory", "num_transactions", "num_subordinates", "same_axis",
    "transaction_size_bytes", "latency_cycles",
}  # fmt: skip
MOST = 1 << 40


def transfer_row(row: Cells, asked: Asked) -> Fields:
    """Fields of one measured transfer, on the machine of its `arch` unless one is asked for."""
    names = ("num_transactions", "transaction_size_bytes", "num_subordinates", "same_axis")
    transactions, size, many, same_axis = whole_numbers(row, *names)
    loopback, repeated = whole_numbers(row, "loopback", "filled_not_measured", default=0)
    measured = row.number("latency_cycles", above=0)
    arch, mechanism, pattern = (row[column] for column in ("arch", "mechanism", "pattern"))
    said = pattern.replace("_", " ").lower()
    kind = f"{arch.partition('_')[0].capitalize()}, {said}" + (
        "" if mechanism == "UNICAST" else f", {mechanism.lower()}"
    )

    def predict() -> Fields:
        if repeated:
            raise MimdsimError("repeats the last value that was measured")
        if row["memory"] != "L1":
            raise MimdsimError(f"memory '{shortened(row['memory'])}': only transfers between tiles are predicted")
        if asked.machine is None and arch not in MACHINES:
            raise MimdsimError(f"no machine for '{shortened(arch)}'; known: {', '.join(MACHINES)}")
        if mechanism not in MULTICAST:
            raise MimdsimError(f"mechanism '{shortened(mechanism)}'; known: {', '.join(MULTICAST)}")
        if min(transactions, size) < 1 or transactions * size > MOST or many < 0:
            raise MimdsimError("counts of transactions and their bytes must be at least 1, and moderate")
        machine = asked.machine or load_machine(MACHINES[arch])
        assert isinstance(machine, MimdMachine)
        again = partial(_cycles, mechanism, pattern, transactions, size, many, same_axis, bool(loopback))
        return {
            **around(again(machine), UNCERTAINTY["derived"]),
            "bearing": row.bearing(machine.name, measured, again, formula=kind),
        }

    name = f"{said}, {transactions:,} x {size:,} bytes" + (f", {many} tiles" if many else "")
    return {"name": name, "unit": "cycles", "published": measured, "tolerance": 0.25, "kind": kind, "predict": predict}


def _cycles(
    mechanism: str, pattern: str, transactions: int, size: int, many: int, same_axis: int, loopback: bool,
    machine: MimdMachine,
) -> float:  # fmt: skip
    if machine.exchange.model != "routed":
        raise MimdsimError(f"{machine.name} has no network of routers (exchange.model)")
    pairs = _pairs(machine.chip.tiles, machine.chip.grid_columns, mechanism, pattern, many, bool(same_axis), loopback)
    fabric = machine.exchange
    packet = min(size, fabric.packet_bytes or size)  # every transaction is at least one
    one_way = {"ways": "one", "multicast": MULTICAST[mechanism], "packet_bytes": packet}
    if _asking(pattern):
        one_way |= {"send_fragment_cycles": 0.0, "receive_fragment_cycles": fabric.send_fragment_cycles}
    network = Routed(machine.model_copy(update={"exchange": fabric.model_copy(update=one_way)}))
    sender, reader = (np.array(ends, np.int64) for ends in zip(*pairs, strict=True))
    if mechanism == "UNICAST":
        fanout = np.ones(len(sender), np.int64)
        each = transactions / int(np.count_nonzero((sender, reader)[_asking(pattern)] == pairs[0][_asking(pattern)]))
    else:
        sender, fanout = np.unique(sender, return_counts=True)
        each = float(transactions)
    first = np.concatenate([[0], np.cumsum(fanout)]).astype(np.int64)
    bytes_of = np.full(len(fanout), math.ceil(each * size), np.int64)
    messages = Messages(sender=sender, size_bytes=bytes_of, first=first, reader=reader)
    tiles = np.unique(np.concatenate([sender, reader]))

    def by(tile: np.ndarray, amount: np.ndarray) -> np.ndarray:
        return np.bincount(np.searchsorted(tiles, tile), weights=amount, minlength=len(tiles))

    requests, got = by(sender, np.full(len(sender), each)), by(reader, np.repeat(bytes_of, fanout))
    heard = by(reader, np.repeat(np.full(len(sender), each), fanout))
    ends = Ends(tiles, by(sender, bytes_of), got, requests, heard)
    cycles = float(network.phase_of(messages, ends).cycles[0])
    turns = len(sender) if mechanism != "UNICAST" else 1
    return cycles * (turns + 1) / (2 * turns)


def _asking(pattern: str) -> int:
    """Which end of a pair makes the requests: 0 the sender, 1 the reader."""
    return int("_FROM_" in pattern)


@lru_cache(maxsize=64)
def _pairs(
    tiles: int, wide: int, mechanism: str, pattern: str, many: int, same_axis: bool, loopback: bool
) -> list[tuple[int, int]]:
    """(sender, reader) of a pattern; raises MimdsimError for one that is not known, or too large for the grid."""
    one, _, other = pattern.partition("_FROM_" if _asking(pattern) else "_TO_")
    if {one, other} == {"ONE"} and not many:
        pairs = [(0, 1 if same_axis else wide + 1)]
    elif one in ("ONE", other) and other in SHAPES and many:
        square = other == "ALL" and math.isqrt(many) ** 2 == many
        beside = one == "ONE" and mechanism == "UNICAST" and not square  # the tile itself is not counted
        across, down = _extents(other, many + beside, wide, tiles // wide)
        group = [row * wide + column for row in range(down) for column in range(across)]
        ones = group[:1] if one == "ONE" else group
        if one == "ONE" and mechanism != "UNICAST" and not loopback:  # next to its readers
            ones = [across if across < wide else min(down * wide, tiles - 1)]
        pairs = [(a, b) for a in ones for b in group if a != b or not beside]
    else:
        raise MimdsimError(f"pattern '{shortened(pattern)}' is not known")
    return [pair[::-1] for pair in pairs] if _asking(pattern) else pairs


def _extents(shape: str, many: int, wide: int, high: int) -> tuple[int, int]:
    """(columns, rows) of so many tiles: a row, a column, a square or the lowest rectangle on the grid."""
    side = math.isqrt(many)
    if shape != "ALL":
        across, down = (many, 1) if shape == "ROW" else (1, many)
    elif side * side == many:
        across, down = side, side
    else:
        down = next((rows for rows in range(1, high + 1) if many % rows == 0 and many // rows <= wide), many)
        across = many // down
    if across > wide or down > high:
        raise MimdsimError(f"{many} tiles: they make no {shape.lower()} of the machine's grid of {wide} x {high}")
    return across, down


# (column, row) of the twelve channels' ports for tiles, and columns and rows of tiles, on 10 x 12 places
# (tenstorrent/tt-metal soc_descriptors/wormhole_b0_80_arch.yaml); bytes a cycle of a port, out and in (tt-npe)
PORTS = ((0, 11), (0, 1), (0, 5), (0, 7), (5, 1), (5, 11), (5, 2), (5, 9), (5, 8), (5, 3), (5, 5), (5, 7))
TILE_COLUMNS, TILE_ROWS = (1, 2, 3, 4, 6, 7, 8, 9), (1, 2, 3, 4, 5, 7, 8, 9, 10, 11)
PORT_BYTES = {"read": 23.2, "write": 24.0}
DRAWS = 20


def memory_row(row: Cells, _asked: Asked) -> Fields:
    """Fields of tiles that read from or write to channels of memory, on a Wormhole."""
    tiles, channels, network, size = whole_numbers(row, "tensix_tiles", "dram_channels", "noc", "bytes_per_tile")
    measured, direction, pairing = row.number("GB_per_s", above=0), row["direction"], row["pairing"]

    def predict() -> Fields:
        if direction not in PORT_BYTES or not 1 <= channels <= len(PORTS) or network not in (0, 1):
            raise MimdsimError(f"direction read or write, 1 to {len(PORTS)} channels, noc 0 or 1")
        if not (1 <= tiles <= len(TILE_COLUMNS) * len(TILE_ROWS) and 1 <= size <= MOST):
            raise MimdsimError(f"{tiles} tiles: there are {len(TILE_COLUMNS) * len(TILE_ROWS)}")
        if "random" in pairing:
            predicted = float(np.mean(_drawn_rates(tiles, channels, network, size, direction)))
        else:
            predicted = min(channels, tiles) * PORT_BYTES[direction]
        return around(predicted, UNCERTAINTY["derived"])

    name = f"{tiles} tiles {direction}, {channels} channels, {pairing}, {row['virtual_channel']}, network {network}"
    kind = f"Wormhole, tiles and memory, pairs {'at random' if 'random' in pairing else 'with care'}"
    return {"name": name, "unit": "GB/s", "published": measured, "tolerance": 0.25, "kind": kind, "predict": predict}


@lru_cache(maxsize=32)
def _drawn_rates(tiles: int, channels: int, network: int, size: int, direction: str) -> np.ndarray:
    """float64[DRAWS]: bytes a cycle of all tiles together, the slowest pair deciding, of pairs drawn at random."""
    changes = {"chip.tiles": 120, "chip.grid_columns": 10, "exchange.ways": "opposed", "exchange.multicast": "none"}
    machine = load_machine(MACHINES["WORMHOLE_B0"], changes)
    assert isinstance(machine, MimdMachine)
    fabric, routes = Routed(machine), Network.of(machine.chip, machine.exchange)
    one = replace(routes.turned(network), both=False)
    draw, rates = np.random.default_rng(0), np.zeros(DRAWS)
    places = np.array([column + 10 * line for line in TILE_ROWS for column in TILE_COLUMNS])
    ports = np.array([column + 10 * line for column, line in PORTS])
    for at in range(DRAWS):
        ends = draw.permutation(places)[:tiles], draw.permutation(ports)[np.arange(tiles) % channels]
        sender, reader = (each.astype(np.int64) for each in (ends[::-1] if direction == "read" else ends))
        each = np.full(tiles, size, np.int64)
        messages = Messages(sender=sender, size_bytes=each, first=np.arange(tiles + 1), reader=reader)
        taking = np.unique(np.concatenate(ends))
        sent, received = (np.bincount(np.searchsorted(taking, end), each, len(taking)) for end in (sender, reader))
        nothing = np.zeros(len(taking))
        cycles = fabric.phase_of(messages, Ends(taking, sent, received, nothing, nothing), one).cycles[0]
        share = np.unique(ends[1], return_counts=True)[1].max() * size / PORT_BYTES[direction]
        rates[at] = tiles * size / max(float(cycles), float(share))
    return rates


MEMORY = ReferenceTable(
    needed={"tensix_tiles", "pairing", "dram_channels", "direction", "virtual_channel", "noc", "GB_per_s"},
    also={"bytes_per_tile"},
    ignored={"arch", "percent_of_theoretical"},
    read_row=memory_row,
    figures="transfer over routers",
    doing="transfers to memory",
    on="wormhole",
)
TRANSFERS = ReferenceTable(
    needed=COLUMNS,
    also={"loopback", "filled_not_measured"},
    ignored={"stateful", "noc_index"},
    read_row=transfer_row,
    figures="transfer over routers",
    doing="transfers",
)
