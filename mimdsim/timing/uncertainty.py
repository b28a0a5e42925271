"""Cycles of exchange, links, syncs and loops that single numbers of a machine set, where these have own intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.units import has_own_share, kind_of, uncertainty
from mimdsim.machine import MimdMachine
from mimdsim.profile import Doubt
from mimdsim.program import Program
from mimdsim.timing.critical_path import critical_path
from mimdsim.timing.spans import OwnShare, Waits, loop_spans
from mimdsim.timing.worker_cycles import SuperstepLoad

ARRANGING, ARRANGING_NUMBER = "arranging rows", "exchange.arrange_fragment_bundles"
SECTIONS = ("exchange", "sync", "links")  # whose numbers set waits
# of programs on one chip, where they do not depend on the loads
_ON_ONE_CHIP: PerObject[tuple[OwnShare, ...]] = PerObject()


def own_shares(program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad]) -> tuple[OwnShare, ...]:
    """One record for every number of SECTIONS with an interval of its own. Empty for machines as they are described,
    which have no such numbers."""
    named = [
        (section, key, kind)
        for section in SECTIONS
        for key, source in getattr(machine, section).sources.items()
        if has_own_share(kind := kind_of(source))
    ]
    if not named:
        return ()

    def compute() -> tuple[OwnShare, ...]:
        return tuple(_own_share(program, machine, loads, *number) for number in named)

    return _ON_ONE_CHIP.get(program, machine, compute) if program.chips == 1 else compute()


def with_correlation(doubts: tuple[Doubt, ...], own: Sequence[OwnShare], machine: MimdMachine) -> tuple[Doubt, ...]:
    """The doubts with the half widths of a narrowed machine's numbers made smaller, in proportion, until they add up to
    what these numbers are known to together."""
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
    factor = min(np.sqrt(max(variance, 0.0)) / np.abs(widths).sum(), 1.0)
    made = [
        replace(doubt, half_width_cycles=round(factor * doubt.half_width_cycles)) if at in found else doubt
        for at, doubt in enumerate(doubts)
    ]
    return tuple(sorted(made, key=lambda doubt: (-doubt.half_width_cycles, doubt.name)))


def _own_share(
    program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad], section: str, key: str, kind: str
) -> OwnShare:
    """The number times the mean slope of the waits over its interval."""
    part = getattr(machine, section)
    value, off = getattr(part, key), uncertainty(kind) * getattr(part, key)
    if type(part).model_fields[key].annotation is int:
        off = max(round(off), 1)
    low, high = (
        _waits(program, machine.model_copy(update={section: part.model_copy(update={key: end})}), loads)
        for end in (value - off, value + off)
    )
    slopes = {
        each.name: value * (getattr(high, each.name) - getattr(low, each.name)) / (2 * off) if off else 0.0
        for each in fields(Waits)
    }
    waits = Waits(**{wait: abs(slope) for wait, slope in slopes.items()})
    return OwnShare(name=f"{section}.{key}", kind=kind, waits=waits, sign=-1 if sum(slopes.values()) < 0 else 1)


def _waits(program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad]) -> Waits:
    loops = sum(span.sync_cycles for span in loop_spans(program, machine))
    return Waits.of(critical_path(program, machine, tuple(loads)), loops)
