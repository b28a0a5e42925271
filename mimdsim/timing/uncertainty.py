"""What makes up the width of a program's interval: the kinds of source of its cycles, and single numbers of a machine
that have intervals of their own."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mimdsim.base.residuals import Residuals, residuals_of
from mimdsim.base.units import has_own_share, kind_of, less_certain, uncertainty
from mimdsim.costs.fabric import fabric_of
from mimdsim.machine import MimdMachine
from mimdsim.profile import Doubt
from mimdsim.program import Program
from mimdsim.timing.critical_path import PathPart, critical_path, loop_spans
from mimdsim.timing.worker_cycles import SuperstepLoad

NUMBERS = {  # wait: section and its numbers that set it, beside the fabric's own kind
    "exchange": ("exchange", (
        "bytes_per_cycle", "link_bytes_per_cycle", "fixed_cycles", "route_cycles", "hop_cycles",
        "send_fragment_cycles", "receive_fragment_cycles",
    )),
    "link": ("links", ("bytes_per_second", "fixed_seconds", "hop_seconds", "piece_seconds")),
    "memory": ("memory", ("bytes_per_cycle", "latency_cycles")),
    "sync": ("sync", ("internal_cycles", "external_cycles", "hop_cycles", "exchange_share")),
    "loops": ("sync", ("loop_cycles",)),
}  # fmt: skip
ARRANGING, ARRANGING_NUMBER = "arranging rows", "exchange.arrange_fragment_bundles"
SECTIONS = ("exchange", "sync", "links", "memory")  # whose numbers set waits


@dataclass(frozen=True, kw_only=True)
class OwnShare:
    """What a number of the machine that has an interval of its own makes of the waits; sign: -1 if a larger number
    makes them shorter."""

    name: str
    kind: str
    waits: dict[str, float]
    sign: int = 1


def _waits(path: Sequence[PathPart], loops: float) -> dict[str, float]:
    """Cycles in which no tile computes, by what they are spent on."""
    link = sum(part.link for part in path)
    memory = sum(part.memory for part in path)
    exchange = sum(part.exchange for part in path) - link - memory
    sync = sum(part.sync for part in path)
    return {"exchange": exchange, "link": link, "memory": memory, "sync": sync, "loops": loops}


def _kind(wait: str, machine: MimdMachine) -> str:
    """The least certain kind of source of what sets the cycles of a wait, but for numbers with intervals of their own;
    what is 0 sets nothing."""
    section, keys = NUMBERS[wait]
    part, fabric = getattr(machine, section), fabric_of(machine)
    idle = {"external_cycles"} if machine.links.chips == 1 else set()
    idle |= {"internal_cycles"} if machine.sync.model == "dataflow" else set()
    counting = [key for key in keys if part is not None and getattr(part, key) and key not in idle]
    kinds = [kind for key in counting if not has_own_share(kind := kind_of(part.sources.get(key, fabric.kind)))]
    return less_certain(*kinds, *([fabric.kind] if wait == "exchange" or not kinds else ()))


def uncertain_parts(
    loads: Sequence[SuperstepLoad],
    path: Sequence[PathPart],
    loops: int,
    machine: MimdMachine,
    own: Sequence[OwnShare] = (),
) -> tuple[Doubt, ...]:
    """What makes up the half width of the interval, widest first; machines with the same names share a source.

    own: numbers whose cycles are doubted by their own intervals; the rest of a wait, by what else sets it.
    """
    cycles: defaultdict[tuple[str, str], float] = defaultdict(float)
    for load, part in zip(loads, path, strict=True):
        for name, kind, share in load.parts:
            cycles[name, kind] += part.compute * share
    waits = _waits(path, loops)
    for name, wait in (
        (f"exchange on the chip, {machine.exchange.model} model", "exchange"),
        ("exchange over links", "link"),
        ("memory behind the tiles", "memory"),
        ("sync, a share of the exchange" if machine.sync.exchange_share else "sync", "sync"),
        ("loop control", "loops"),
    ):
        kind, rest = _kind(wait, machine), waits[wait]
        for one in own:
            part_of_it = min(max(one.waits[wait], 0.0), rest)
            cycles[one.name, one.kind] += part_of_it
            rest -= part_of_it
        cycles[name, kind] += rest
    doubts = [
        Doubt(
            name=name,
            kind=kind,
            cycles=round(size),
            half_width_cycles=round(size * uncertainty(kind)),
            common=_common(name, machine),
        )
        for (name, kind), size in cycles.items()
        if size > 0
    ]
    return tuple(sorted(doubts, key=_widest_first))


def _common(name: str, machine: MimdMachine) -> str:
    """What costs of codelets have in common that all come from one table of a core, or from one rate: machines that
    have the same table share it, whatever they are called."""
    costs, (what, _, codelet) = machine.costs, name.partition(" ")
    priced = costs is not None and (costs.core is not None or costs.bundles_per_operation is not None)
    if costs is None or not priced or what != "codelet" or codelet in costs.codelets:
        return ""
    table = costs.core or (costs.bundles_per_operation, costs.vertex_bundles, costs.sources)
    return f"instructions of {machine.tile.instruction_set}, {zlib.crc32(repr(table).encode()):08x}"


def _widest_first(doubt: Doubt) -> tuple[int, str]:
    return -doubt.half_width_cycles, doubt.name


def own_shares(program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad]) -> tuple[OwnShare, ...]:
    """One record for every number of SECTIONS with an interval of its own. Empty for machines as they are described,
    which have no such numbers."""
    return tuple(
        _own_share(program, machine, loads, section, key, kind)
        for section in SECTIONS
        if getattr(machine, section) is not None
        for key, source in getattr(machine, section).sources.items()
        if has_own_share(kind := kind_of(source))
    )


def residuals_on(machine: MimdMachine, figures: str, propagated: float) -> Residuals:
    """Those of a class, or of a narrowed machine's own rows of it, whose half width then is that of the interval."""
    own = () if machine.correlation is None or not propagated else machine.correlation.residuals
    for known, half_width, rows in own:
        if known == figures:
            return Residuals(figures=figures, of=figures, factor=half_width / propagated, rows=rows, sources=1)
    return residuals_of(figures)


def with_correlation(doubts: tuple[Doubt, ...], own: Sequence[OwnShare], machine: MimdMachine) -> tuple[Doubt, ...]:
    """The doubts with the half widths of a narrowed machine's numbers changed, in proportion, until their squares add
    up to that of what these numbers are known to together."""
    known = machine.correlation
    if known is None:
        return doubts
    signs = {one.name: one.sign for one in own}
    position = {name: at for at, name in enumerate(known.names)}
    found = {}  # position of a doubt -> of its number
    for at, doubt in enumerate(doubts):
        name = ARRANGING_NUMBER if doubt.name == ARRANGING else doubt.name
        if has_own_share(doubt.kind) and name in position:
            found[at] = position[name]
    widths = np.array([doubts[at].half_width_cycles * signs.get(doubts[at].name, 1) for at in found], np.float64)
    at_numbers = list(found.values())
    variance = widths @ np.array(known.correlation)[np.ix_(at_numbers, at_numbers)] @ widths
    if not widths.any():
        return doubts
    factor = min(np.sqrt(max(variance, 0.0) / (widths @ widths)), np.abs(widths).sum() / np.sqrt(widths @ widths))
    made = [
        replace(doubt, half_width_cycles=round(factor * doubt.half_width_cycles)) if at in found else doubt
        for at, doubt in enumerate(doubts)
    ]
    return tuple(sorted(made, key=_widest_first))


def _own_share(
    program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad], section: str, key: str, kind: str
) -> OwnShare:
    """The number times the mean slope of the waits over its interval."""
    part = getattr(machine, section)
    value, off = getattr(part, key), uncertainty(kind) * getattr(part, key)
    if type(part).model_fields[key].annotation is int:
        off = max(round(off), 1)
    low, high = (
        _waits_on(program, machine.model_copy(update={section: part.model_copy(update={key: end})}), loads)
        for end in (value - off, value + off)
    )
    slopes = {wait: value * (high[wait] - low[wait]) / (2 * off) if off else 0.0 for wait in low}
    waits = {wait: abs(slope) for wait, slope in slopes.items()}
    return OwnShare(name=f"{section}.{key}", kind=kind, waits=waits, sign=-1 if sum(slopes.values()) < 0 else 1)


def _waits_on(program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad]) -> dict[str, float]:
    loops = sum(span.sync_cycles for span in loop_spans(program, machine))
    return _waits(critical_path(program, machine, tuple(loads)), loops)
