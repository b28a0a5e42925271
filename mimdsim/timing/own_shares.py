"""Cycles of exchange, links, syncs and loops that single numbers of a machine set, where these have own intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from weakref import WeakKeyDictionary

from mimdsim.base.sources import has_own_share, kind_of, uncertainty
from mimdsim.machine import MimdMachine
from mimdsim.program import Program
from mimdsim.timing.loads import SuperstepLoad
from mimdsim.timing.path import critical_path
from mimdsim.timing.spans import OwnShare, Waits, loop_spans

SECTIONS = ("exchange", "sync", "links")  # whose numbers set waits
# of programs on one chip, where they do not depend on the loads
_KNOWN: WeakKeyDictionary[Program, list[tuple[MimdMachine, tuple[OwnShare, ...]]]] = WeakKeyDictionary()
MACHINES_KEPT = 8


def own_shares(program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad]) -> tuple[OwnShare, ...]:
    """One record for every number of SECTIONS with an interval of its own: the number times the mean slope of the
    waits over that interval. Empty for machines as they are described, which have no such numbers."""
    named = [
        (section, key, kind)
        for section in SECTIONS
        for key, source in getattr(machine, section).sources.items()
        if has_own_share(kind := kind_of(source))
    ]
    if not named:
        return ()
    known = _KNOWN.setdefault(program, []) if program.chips == 1 else []
    for one, made in known:
        if one == machine:
            return made
    made = tuple(
        OwnShare(name=f"{section}.{key}", kind=kind, waits=_waits_of(program, machine, loads, section, key, kind))
        for section, key, kind in named
    )
    known[:] = [*known[1 - MACHINES_KEPT :], (machine, made)]
    return made


def _waits_of(
    program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad], section: str, key: str, kind: str
) -> Waits:
    value, whole = getattr(getattr(machine, section), key), type(getattr(machine, section)).model_fields[key]
    off = uncertainty(kind) * value
    if whole.annotation is int:
        off = max(round(off), 1)
    ends = [
        _waits(program, machine.model_copy(update={section: _with(machine, section, key, end)}), loads)
        for end in (value - off, value + off)
    ]
    low, high = ends
    slopes = {
        each.name: value * (getattr(high, each.name) - getattr(low, each.name)) / (2 * off) if off else 0.0
        for each in fields(Waits)
    }
    return Waits(**{name: abs(slope) for name, slope in slopes.items()})


def _with(machine: MimdMachine, section: str, key: str, value: float) -> object:
    return getattr(machine, section).model_copy(update={key: value})


def _waits(program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad]) -> Waits:
    loops = sum(span.sync_cycles for span in loop_spans(program, machine))
    return Waits.of(critical_path(program, machine, tuple(loads)), loops)
