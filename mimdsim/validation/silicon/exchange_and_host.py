"""One multicast on a C600, and a copy of one integer from the host: cycles between two reads of a tile's counter.

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
"""

from __future__ import annotations

import re
from functools import partial

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.base.units import UNCERTAINTY, kind_of, uncertainty
from mimdsim.machine import MimdMachine, tiled_machine
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, within_bounds

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
COLUMNS = {"what", "machine", "parameters", "measured", "unit"}
TOLERANCE = 0.25
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


def exchange_or_host_row(row: Cells, asked: Asked) -> Fields:
    """Fields of a measured interval."""
    what = row["what"]
    measured = row.number("measured", above=0)
    host = what.startswith("stream copy")
    predict = partial(_predict_host if host else _predict_multicast, row, asked, measured)
    return {
        "name": shortened(f"{what}, {row['parameters']}", 160),
        "unit": row["unit"],
        "published": measured,
        "tolerance": 0.0 if host else TOLERANCE,
        "kind": "one copy from the host" if host else "one multicast",
        "upper_bound": host,
        "predict": predict,
    }


def _predict_multicast(row: Cells, asked: Asked, measured: float) -> Fields:
    receiver, words = RECEIVER in row["what"], _amount(row, "words")
    if not row["what"].startswith("multicast") or not (receiver or "sender" in row["what"]):
        raise MimdsimError(f"'{shortened(row['what'])}': known are the sender and {RECEIVER} of a multicast")
    if row["unit"] != "cycles" or words > MOST_WORDS:
        raise MimdsimError(f"{words} words in {shortened(row['unit'])}: one list sends up to {MOST_WORDS:,}, in cycles")
    machine = _machine(row["machine"], asked)
    again = partial(_interval, words, receiver)
    parts = f"barrier of {machine.sync.internal_cycles}, {RECEIVER_FIXED if receiver else SENDER_WAITS} of its list"
    parts += ", what the sender is late, hand-over and launch of workers" if receiver else ", hand-over and launch"
    bearing = row.bearing(machine.name, measured, again, formula="receiver" if receiver else "sender")
    return within_bounds(*multicast_cycles(machine, words, receiver=receiver)) | {"note": parts, "bearing": bearing}


def _interval(words: int, receiver: bool, machine: MimdMachine) -> float:
    return multicast_cycles(machine, words, receiver=receiver)[0]


def _predict_host(row: Cells, asked: Asked, _measured: float) -> Fields:
    copied = _amount(row, "bytes")
    if row["unit"] != "cycles":
        raise MimdsimError(f"unit '{shortened(row['unit'])}': copies from the host are predicted in cycles")
    names = re.sub(r"\(.*\)", "", row["machine"]).split(" or ")
    made = []
    for machine in (_machine(name.strip(), asked) for name in names):
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


def _machine(name: str, asked: Asked) -> MimdMachine:
    """The machine of a row, or that which is asked for under its name."""
    if asked.machine is not None and asked.machine.name == name:
        return asked.machine
    return tiled_machine(name, "these rows are of tiled machines")


EXCHANGE_AND_HOST = ReferenceTable(needed=COLUMNS, read_row=exchange_or_host_row)
