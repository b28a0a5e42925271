"""What would make a training step faster: changes that are compiled and timed with the same spikes, no rules of thumb.

Changes of the mapping are estimated first, as a search estimates them, and the best few timed in full.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError
from mimdsim.base.schema import build
from mimdsim.base.units import show_bytes
from mimdsim.machine import MimdMachine
from mimdsim.profile import TiledProfile, WhatIf, ratio_of
from mimdsim.search import Case, copied, estimate, profiled, shortened_most
from mimdsim.workload.mapping import MappingOptions, Rule, Split

Kind = Literal["mapping", "machine"]
TIMED = 6  # changes of the mapping that are timed in full
LEAST_GAIN = 1e-3  # of a training step, that is worth saying
COPIES = (4, 8)  # of every layer, about


@dataclass(frozen=True, kw_only=True, eq=False)
class Lever:
    """A change by dotted keys of workload or machine, in words and as values."""

    what: str
    kind: Kind
    changes: Mapping[str, Any]

    @classmethod
    def of(cls, changes: Mapping[str, Any]) -> Lever:
        """Changes that are said as they are."""
        kind: Kind = "mapping" if all(key.startswith("mapping.") for key in changes) else "machine"
        return cls(
            what=", ".join(f"{key} = {_toml(value)}" for key, value in changes.items()), kind=kind, changes=changes
        )


def advice(case: Case, before: TiledProfile, command: str) -> tuple[WhatIf, ...]:
    """Changes that save time, most first, of a training step that takes `before`; command: runs what they change."""
    promising = sorted(
        (cycles, number, lever)
        for number, lever in enumerate(mapping_levers(case))
        if (cycles := _estimated(case, lever)) is not None
    )
    alike = {tuple(sorted(lever.changes)): lever for _, _, lever in reversed(promising)}  # of each the best value
    chosen = [lever for _, _, lever in promising if lever in alike.values()][:TIMED]
    found = []
    for lever in (*chosen, *machine_levers(case.machine)):
        with contextlib.suppress(DoesNotFit, MappingError):
            found.append(what_if(case, before, lever, command))
    return tuple(sorted((one for one in found if one.gain >= LEAST_GAIN), key=lambda one: -one.gain))


def what_if(case: Case, before: TiledProfile, lever: Lever, command: str) -> WhatIf:
    """What a change makes of a training step; raises DoesNotFit where it leaves too few tiles or too little memory,
    MappingError for a mapping that cannot be."""
    other = _changed(case, lever.changes)
    _, after = profiled(other, other.options)
    memory = after.memory
    if memory.peak_bytes > memory.limit_bytes and before.memory.peak_bytes <= before.memory.limit_bytes:
        raise DoesNotFit(
            f"{lever.what}: tile {memory.peak_tile} then needs {show_bytes(memory.peak_bytes)} of "
            f"{show_bytes(memory.limit_bytes)}"
        )
    share = ratio_of(after, before)
    spans = ([(span.name, span.cycles) for span in profile.spans] for profile in (before, after))
    name, one, two = shortened_most(*spans)
    return WhatIf(
        what=lever.what,
        kind=lever.kind,
        command=f"{command} {settings(lever.changes)}",
        cycles=after.cycles,
        gain=1 - share.middle,
        gain_low=1 - share.high,
        gain_high=1 - share.low,
        more_bytes=memory.peak_bytes - before.memory.peak_bytes,
        superstep=name,
        before=one,
        after=two,
    )


def run_command(workload: str, machine: str, changes: Mapping[str, Any], mapping: str = "") -> str:
    """The command that runs a workload with changes, and with a file of options of its mapping."""
    words = ["mimdsim run", shlex.quote(workload), shlex.quote(machine)]
    words += [f"--mapping {shlex.quote(mapping)}"] if mapping else []
    return " ".join([*words, *([settings(changes)] if changes else [])])


def settings(changes: Mapping[str, Any]) -> str:
    """Changes by dotted key as options of a command."""
    return " ".join(f"--set {shlex.quote(f'{key}={_toml(value)}')}" for key, value in changes.items())


def mapping_levers(case: Case) -> Iterator[Lever]:
    """Single steps from a mapping, and copies of every layer with all rules."""
    options = case.options
    every = get_args(Rule)
    if case.network.spikes == "dense":
        return
    for rule in every:
        if rule not in options.rules:
            rules = [one for one in every if one in options.rules or one == rule]
            yield _lever(f'program rule "{rule}"', {"mapping.program": rules})
    if options.rules != set(every):
        yield _lever("all rules of the program", {"mapping.program": "best"})
    for about in COPIES:
        if not options.split and (found := copied(case, about)) is not None:
            copies = next(iter(found.split.values())).batch
            changes: dict[str, Any] = {"mapping.program": "best", "mapping.reduce_group": found.reduce_group}
            changes |= {
                f"mapping.split.{name}": split.model_dump(exclude_defaults=True) for name, split in found.split.items()
            }
            yield _lever(f"{copies} copies of every layer and all rules of the program", changes)
    for layer in case.network.layers:
        split = options.split.get(layer.name, Split())
        key = f"mapping.split.{layer.name}"
        if split.batch < case.network.batch:
            yield _lever(f"one more batch part for {layer.name}", {f"{key}.batch": split.batch + 1})
        if split.inputs < layer.inputs:
            yield _lever(f"one more fan-in part for {layer.name}", {f"{key}.inputs": split.inputs + 1})
    replicas = options.weight_gradient_replicas
    for other in sorted({1, replicas // 2, replicas * 2} - {0, replicas}):
        yield _lever(f"{other} replicas of weight gradients", {"mapping.weight_gradient_replicas": min(other, 64)})
    for other in (options.states_per_worker // 2, options.states_per_worker * 2):
        if other:
            yield _lever(f"{other} states per worker", {"mapping.states_per_worker": other})
    if options.stash != "everything":
        yield _lever("nothing recomputed", {"mapping.stash": "everything"})
    if options.id_bytes == 4 and max(layer.neurons for layer in case.network.layers) < 1 << 16:
        yield _lever("ids and counts of 2 bytes", {"mapping.id_bytes": 2})


def machine_levers(machine: MimdMachine) -> Iterator[Lever]:
    """One more context, a faster exchange, no sync: what a machine would gain."""
    more: dict[str, dict[str, Any]] = {
        "one more worker context": {"tile.worker_contexts": machine.tile.worker_contexts + 1},
        "twice the exchange bandwidth": {"exchange.bytes_per_cycle": 2 * machine.exchange.bytes_per_cycle},
        "no wait at a sync": {"sync.internal_cycles": 0, "sync.exchange_share": 0.0},
    }
    for what, changes in more.items():
        yield Lever(what=what, kind="machine", changes=changes)


def _lever(what: str, changes: Mapping[str, Any]) -> Lever:
    return Lever(what=what, kind="mapping", changes=changes)


def _estimated(case: Case, lever: Lever) -> int | None:
    """Cycles; None where the mapping does not fit."""
    try:
        figures = estimate(case, _changed(case, lever.changes).options).figures
    except (DoesNotFit, MappingError):
        return None
    return figures.cycles if figures.peak_bytes <= case.machine.tile.sram_bytes else None


def _changed(case: Case, changes: Mapping[str, Any]) -> Case:
    """The case with changes of its machine and mapping by dotted key."""
    mapping = {"mapping": case.options.model_dump()}
    machine = case.machine.model_dump()
    for key, value in changes.items():
        section, *path = key.split(".")
        if section not in mapping and section not in machine:
            known = ", ".join(["mapping", *machine])
            problem = f"{key}: only sections of the machine and the mapping can change with the same spikes: {known}"
            raise DescriptionError("what_if", [problem])
        table: Any = mapping if section in mapping else machine
        for name in (section, *path[:-1]):
            table = table.setdefault(name, {})
        table[path[-1]] = value
    return replace(
        case,
        machine=build(type(case.machine), machine, where="what_if"),
        options=build(MappingOptions, mapping["mapping"], where="what_if"),
    )


def _toml(value: Any) -> str:
    """As --set takes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value)
