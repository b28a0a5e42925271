"""Transfers between memories of tiles over a network of routers: rows in cycles.

The programs (tenstorrent/tt-metal, tests/tt_metal/tt_metal/data_movement) time one core of a tile from before its first
request until all data or answers are back. `pattern` says who sends to whom among the tiles of a square of the grid, of
a row or of a column; a reading tile makes the requests itself. A row of many tiles gives a middle value over them:
where multicasts of several tiles hold their links, these take turns, and the one in the middle waits for half of them.

One multicast on a C600, and a copy of one integer from the host: cycles between two reads of a tile's counter.

The multicast (osmarks/ipu-stack e4eb9ab: device/exchange_loop_runtime.S, crates/ipu-exchange, crates/ipu-cli) goes from
tile 0 to two others after a sum over all tiles. Worker 0 of a tile reads the counter, hands the tile to the supervisor,
which waits for all tiles and follows its list of delays and sends; then worker 0 is launched again and reads a second
time. So an interval holds, beside the words, a barrier and the way from worker to supervisor and back:

    sender    worker ends + supervisor prepares + barrier + wait before the first word + words + worker is launched
    receiver  what the sender is late + the same, with the fixed part of the list of the receiver for that wait

The sender is late because it has received the last sum in the step before, added it and sampled its counter, in which
the others take no part: they pass the barrier of that step and begin the next at once. The fixed part of an exchange
itself is in none of the sender's rows, and in a receiver's the smaller part.

Delays are those that the program computes for the tiles of its own test, 0 to 736 and 1286 (736 is tile 32 by hardware
number). Instructions are counted from the source as PopLibs counts those of a supervisor that runs alone: one cycle
each, six for a branch that is taken, a launch, a wait for workers and a register just loaded; a worker's take a turn of
the barrel each. No number is taken from a row, but the rows were known when the counts were made.

A copy from the host is `host.request_seconds`. It was measured by a profiler with a callback each, so that the figure
is an upper bound; where the table leaves open which of two chips it was, the prediction is for the slower clock, which
gives fewer cycles, and the interval goes to the faster.

Compiled loops of one worker on every tile: cycles of rows with iterations, unrolling and the tile's counter.

The program (UCL-RITS/pi_examples, commit 6e194e1: codelets.cpp, pi.jl) integrates 4 / (1 + x^2) by midpoints; the
vertex reads the cycle counter before and after its loop, so neither launch nor sync is measured. One of six contexts
works, and a context issues one bundle in `tile.issue_cycles`. Two rows for each of the table:

    whole slots     issue_cycles * n/unroll * (whole number of slots nearest to the measured time): tests the issue
                    rate. If a context issued at another rate, no whole number would fit
    counted slots   issue slots of an element by our own count of the loop, and the range it may have

Counted: every instruction alone, as compiled loops are (`tile.compiled_dual_issue` of the machines). The least: integer
code beside arithmetic and divisions of one slot. The most: divisions of three, and two slots for a vertex field that is
loaded again. Assembly is not published, so the range is what is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.base.units import UNCERTAINTY, kind_of, uncertainty
from mimdsim.costs.fabric.network import Network
from mimdsim.costs.fabric.routed import Routed
from mimdsim.costs.fabric.traffic import Ends
from mimdsim.machine import MimdMachine, load_machine, tiled_machine
from mimdsim.program.messages import Messages
from mimdsim.validation.reference_table import (
    Asked,
    Cells,
    Fields,
    ReferenceTable,
    around,
    whole_numbers,
    within_bounds,
)
from mimdsim.validation.silicon.vertices import DIVIDE, DIVIDE_LEAST, DIVIDE_MOST

MACHINES = {"WORMHOLE_B0": "wormhole", "BLACKHOLE": "blackhole"}
MULTICAST = {"UNICAST": "none", "MULTICAST": "reserved", "MULTICAST_LINKED": "linked"}
SHAPES = ("ALL", "ROW", "COLUMN")
COLUMNS = {
    "arch", "mechanism", "pattern", "memory", "num_transactions", "num_subordinates", "same_axis",
    "transaction_size_bytes", "latency_cycles",
}  # fmt: skip
MOST = 1 << 40
TOLERANCE = 0.25


def transfer_row(row: Cells, asked: Asked) -> Iterator[Fields]:
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
    name = f"{said}, {transactions:,} x {size:,} bytes" + (f", {many} tiles" if many else "")
    yield row.figure(name, "cycles", measured, TOLERANCE, kind)
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
    again = partial(_cycles, mechanism, pattern, transactions, size, many, same_axis, bool(loopback))
    machine = asked.machine or tiled_machine(MACHINES[arch], "")
    yield row.predicted(machine, measured, again, UNCERTAINTY["derived"], formula=kind)


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
    messages, ends = _messages(sender, fanout, reader, math.ceil(each * size), each)
    cycles = float(network.phase_of(messages, ends, trees=mechanism != "UNICAST").cycles[0])
    turns = len(sender) if mechanism != "UNICAST" else 1
    return cycles * (turns + 1) / (2 * turns)


def _messages(
    sender: np.ndarray, fanout: np.ndarray, reader: np.ndarray, size: int, requests: float = 0.0
) -> tuple[Messages, Ends]:
    """A message of so many bytes and requests from every sender to the next `fanout` readers, and their ends."""
    first = np.concatenate([[0], np.cumsum(fanout)]).astype(np.int64)
    bytes_of = np.full(len(fanout), size, np.int64)
    tiles = np.unique(np.concatenate([sender, reader]))

    def by(tile: np.ndarray, each: float) -> np.ndarray:
        return np.bincount(np.searchsorted(tiles, tile), np.full(len(tile), each), len(tiles))

    ends = Ends(tiles, by(sender, size), by(reader, size), by(sender, requests), by(reader, requests))
    fragments = np.full(len(fanout), max(math.ceil(requests), 1), np.int64)
    return Messages(sender=sender, size_bytes=bytes_of, fragments=fragments, first=first, reader=reader), ends


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
        # as `noc_estimator_tests` places them: beside the readers, below those of a row
        if not loopback and (mechanism != "UNICAST" or (one == "ONE" and square)):
            beyond = down * wide if across == wide or other == "ROW" else across
            ones = [tile + beyond for tile in ones]
            if ones[-1] >= tiles:
                raise MimdsimError(f"{many} tiles: no other is left on the grid to send to them")
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


def memory_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    """Fields of tiles that read from or write to channels of memory, on a Wormhole."""
    tiles, channels, network, size = whole_numbers(row, "tensix_tiles", "dram_channels", "noc", "bytes_per_tile")
    measured, direction, pairing = row.number("GB_per_s", above=0), row["direction"], row["pairing"]
    name = f"{tiles} tiles {direction}, {channels} channels, {pairing}, {row['virtual_channel']}, network {network}"
    kind = f"Wormhole, tiles and memory, pairs {'at random' if 'random' in pairing else 'with care'}"
    yield row.figure(name, "GB/s", measured, TOLERANCE, kind)
    if direction not in PORT_BYTES or not 1 <= channels <= len(PORTS) or network not in (0, 1):
        raise MimdsimError(f"direction read or write, 1 to {len(PORTS)} channels, noc 0 or 1")
    if not (1 <= tiles <= len(TILE_COLUMNS) * len(TILE_ROWS) and 1 <= size <= MOST):
        raise MimdsimError(f"{tiles} tiles: there are {len(TILE_COLUMNS) * len(TILE_ROWS)}")
    rate = min(channels, tiles) * PORT_BYTES[direction]
    if "random" in pairing:
        rate = float(np.mean(_drawn_rates(tiles, channels, network, size, direction)))
    yield around(rate, UNCERTAINTY["derived"])


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
        cycles = fabric.phase_of(*_messages(sender, np.ones(tiles, np.int64), reader, size), one).cycles[0]
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


STALL = 6  # of a supervisor: branch taken, launch, wait for workers, use of a register just loaded
PREPARED = 15 + 3 * STALL  # command read, its kind found out (the last branch is taken), base set, two more branches
RELAUNCHED = 1 + 2 * STALL  # branch back from the list, address of the worker's code, launch
BUNDLES_AFTER_READ, BUNDLES_BEFORE_READ = 4, 3  # read, address, store, exit; number of the context
BUNDLES_OF_SAMPLE = 9  # number of the context (3), read, address, load, subtract, store, exit
# The sum before: branch of its kind, two loads, their sum once the second is there, store, branch
ADDED = 1 + STALL + 2 + STALL + 1 + STALL
SENDER_WAITS = 23  # -min over the readers of the time to their multiplexer (time_to_mux): -4 and -23 cycles
RECEIVER_FIXED = (SENDER_WAITS - 4 + 1) + 57  # until its multiplexer opens; from the last word until it closes
POINT_TO_POINT = 113 + 1 + 51 + 6  # list of the receiver of one word in the first row of tiles
MOST_WORDS = 64 + 4096  # of one list
INTERVALS = {"what", "machine", "parameters", "measured", "unit"}
RECEIVER = "receiver 32"


def multicast_cycles(machine: MimdMachine, words: int, *, receiver: bool) -> tuple[float, float, float]:
    """Cycles of an interval of the sender or of receiver 32, and the least and the most by the sources of its parts."""
    issue, barrier = machine.tile.issue_cycles, machine.sync.internal_cycles
    counted = BUNDLES_AFTER_READ * issue + STALL + PREPARED + RELAUNCHED + BUNDLES_BEFORE_READ * issue
    exact = words + (RECEIVER_FIXED if receiver else SENDER_WAITS)
    if receiver:
        exact += POINT_TO_POINT
        # it waits for its worker and adds; the others branch once, which takes as long as that wait
        counted += RELAUNCHED + BUNDLES_OF_SAMPLE * issue + ADDED
    doubt = UNCERTAINTY["derived"] * counted + uncertainty(kind_of(machine.sync.sources["internal_cycles"])) * barrier
    whole = exact + counted + barrier
    return whole, whole - doubt, whole + doubt


def exchange_or_host_row(row: Cells, asked: Asked) -> Iterator[Fields]:
    """Fields of a measured interval."""
    measured, host = row.number("measured", above=0), row["what"].startswith("stream copy")
    name, kind = f"{row['what']}, {row['parameters']}", "one copy from the host" if host else "one multicast"
    yield row.figure(shortened(name, 160), row["unit"], measured, 0.0 if host else TOLERANCE, kind, upper_bound=host)
    row.check_unit("an interval", "cycles")
    yield _predict_host(row, asked) if host else _predict_multicast(row, asked, measured)


def _predict_multicast(row: Cells, asked: Asked, measured: float) -> Fields:
    receiver, words = RECEIVER in row["what"], _amount(row, "words")
    if not row["what"].startswith("multicast") or not (receiver or "sender" in row["what"]):
        raise MimdsimError(f"'{shortened(row['what'])}': known are the sender and {RECEIVER} of a multicast")
    if words > MOST_WORDS:
        raise MimdsimError(f"{words} words: one list sends up to {MOST_WORDS:,}")
    machine = asked.machine_of(row["machine"])
    parts = f"barrier of {machine.sync.internal_cycles}, {RECEIVER_FIXED if receiver else SENDER_WAITS} of its list"
    parts += ", what the sender is late, hand-over and launch of workers" if receiver else ", hand-over and launch"
    of, formula = partial(multicast_cycles, words=words, receiver=receiver), "receiver" if receiver else "sender"
    bearing = row.bearing(machine.name, measured, lambda on: of(on)[0], formula=formula)
    return within_bounds(*of(machine)) | {"note": parts, "bearing": bearing}


def _predict_host(row: Cells, asked: Asked) -> Fields:
    copied = _amount(row, "bytes")
    names = re.sub(r"\(.*\)", "", row["machine"]).split(" or ")
    made = []
    for machine in (asked.machine_of(name.strip()) for name in names):
        doubts = (uncertainty(kind_of(machine.host.sources[key])) for key in ("bytes_per_second", "request_seconds"))
        parts = copied / machine.host.bytes_per_second, machine.host.request_seconds
        off = sum(doubt * seconds for doubt, seconds in zip(doubts, parts, strict=True))
        made.append([machine.chip.clock_hz * seconds for seconds in (sum(parts), sum(parts) - off, sum(parts) + off)])
    predicted, low, high = zip(*made, strict=True)
    note = "an upper bound: a callback each, and the profiler itself, are in the measured figure"
    return within_bounds(min(predicted), min(low), max(high)) | {"note": note}


def _amount(row: Cells, unit: str) -> int:
    """The whole number of a text such as '52 words'."""
    number, _, given = row["parameters"].partition(" ")
    if given != unit or not number.isdecimal() or int(number[:12]) < 1:
        raise MimdsimError(f"parameters '{shortened(row['parameters'])}': must be a whole number of {unit} from 1")
    return int(number[:12])


EXCHANGE_AND_HOST = ReferenceTable(needed=INTERVALS, read_row=exchange_or_host_row)


LOOP_COLUMNS = {"id", "language", "workers_per_tile", "iterations_per_tile", "unroll_factor", "tile_cycles_max"}
MACHINE = "bow"  # clock of 1.85 GHz, as printed
MOST_ITERATIONS = 1 << 40
CONVERTED = 1  # index to floating point, once a trip
ELEMENT = 5  # subtract a half, multiply by the step, square, add one, accumulate; and a division
OFFSET = 1  # add the number of the copy, where the loop is unrolled
TRIP = 5  # index from integer to arithmetic registers through memory (2), count, compare, branch
RELOADED = 2
# Reading the counter, moving arguments, the first values of loop and sum: outside of the trips, assumed.
AROUND_BUNDLES = 20


class Slots:
    """Issue slots of one trip of the loop, in which the body is written `unroll` times: as counted, the fewest and the
    most that the source allows."""

    def __init__(self, unroll: int):
        each = ELEMENT + (OFFSET if unroll > 1 else 0)
        self.counted = TRIP + CONVERTED + unroll * (each + DIVIDE)
        self.least = max(TRIP, CONVERTED + unroll * (each + DIVIDE_LEAST))
        self.most = TRIP + RELOADED + CONVERTED + unroll * (each + DIVIDE_MOST)


def loop_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    """Fields of the two figures of a measured loop."""
    machine = tiled_machine(MACHINE, "")
    issue = machine.tile.issue_cycles
    n, unroll, workers = (row.whole(name) for name in ("iterations_per_tile", "unroll_factor", "workers_per_tile"))
    cycles = row.number("tile_cycles_max", above=0)
    if n > MOST_ITERATIONS or unroll > n:
        raise MimdsimError(f"unroll_factor {unroll} of {n} iterations; iterations are at most {MOST_ITERATIONS:,}")
    name = f"{row['id']}, {row['language']}"
    if workers > min(machine.tile.worker_contexts, issue):
        yield row.figure(name, "cycles", cycles, 0.0, "other")
        raise MimdsimError(f"{workers} workers a tile: a tile has {machine.tile.worker_contexts}")
    around = issue * AROUND_BUNDLES
    a_slot = issue * n / unroll
    whole = max(1, round((cycles - around) / a_slot))
    slots = Slots(unroll)
    note = f"the whole number of slots that is nearest: tests one bundle of a context in {issue} cycles, not the "
    note += "number of slots"
    yield row.figure(f"{name}: whole slots", "cycles", cycles, 0.01, "one bundle a turn", note=note, figures="")
    yield within_bounds(whole * a_slot + around, whole * a_slot, whole * a_slot + 3 * around)
    note, unit = "instruction count of our own; the assembly is not published", "issue slots an iteration"
    yield row.figure(f"{name}: counted slots", unit, cycles / (issue * n), TOLERANCE, "issue slots", note=note)
    yield within_bounds(slots.counted / unroll, slots.least / unroll, slots.most / unroll)


LOOPS = ReferenceTable(
    needed=LOOP_COLUMNS,
    also={"source_path"},
    ignored={"tiles", "tile_cycles_per_iteration", "issue_slots_per_iteration", "time_s"},
    read_row=loop_row,
    figures="vertex",
    on="bow",
)
