"""What would make a training step faster: changes that are compiled and timed with the same spikes, no rules of thumb.

Changes of the mapping are estimated first, as a search estimates them, and the best few timed in full. The estimates
are of lists that are half full, so they can be made before spikes are known, while the training runs; so are the
programs of the best few.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from mimdsim.base.errors import DescriptionError, DoesNotFit, MimdsimError
from mimdsim.base.processes import Background, shared_work
from mimdsim.base.schema import Section, build, changed_table, parse_toml, toml_value
from mimdsim.compiler import Compiled, compile_graph
from mimdsim.costs.fabric import fabric_of
from mimdsim.machine import MimdMachine, changed_machine
from mimdsim.pipeline.retiming import retime
from mimdsim.profile import TiledProfile, WhatIf, ratio_of
from mimdsim.search import Case, compile_and_time, estimate, most_shortened, replicate_layers
from mimdsim.workload import filled_activity
from mimdsim.workload.description.mapping import MappingOptions, Rule, Split

TIMED = 6  # changes of the mapping that are timed in full
FILL = 0.5  # of all lists, for the estimates
_AHEAD: list[tuple[MappingOptions, Compiled]] = []  # compiled in a process of the background, before spikes are known
LEAST_GAIN = 1e-3  # of a training step, that is worth saying
COPIES = (4, 8)  # of every layer, about


@dataclass(frozen=True, eq=False)
class Lever:
    """A change by dotted keys of workload or machine, in words and as values."""

    what: str
    changes: Mapping[str, Any]

    @classmethod
    def of(cls, changes: Mapping[str, Any]) -> Lever:
        """Changes that are said as they are."""
        return cls(", ".join(f"{key} = {_toml(value)}" for key, value in changes.items()), changes)

    @property
    def kind(self) -> Literal["mapping", "machine"]:
        return "mapping" if all(key.startswith("mapping.") for key in self.changes) else "machine"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a run was asked for: a command can say it if workload and machine are names or files. mapping: a file of
    options; name: of the command."""

    workload: str
    machine: str
    changes: Mapping[str, Any]
    mapping: str = ""
    name: Literal["run", "check"] = "run"

    def command(self, more: Mapping[str, Any]) -> str:
        """The command that runs it with more changes; '' for values that a command cannot say."""
        kept = {  # but for those of which, or of what they are in, a further change says something
            key: value
            for key, value in self.changes.items()
            if not any(f"{key}.".startswith(f"{other}.") for other in more)
        }
        words = [f"mimdsim {self.name}", shlex.quote(self.workload), shlex.quote(self.machine)]
        words += [f"--mapping {shlex.quote(self.mapping)}"] if self.mapping else []
        try:
            words += [f"--set {shlex.quote(f'{key}={_toml(value)}')}" for key, value in {**kept, **more}.items()]
        except TypeError:
            return ""
        return " ".join(words)


LeverEstimates = Callable[[], Iterable[tuple[Lever, int | None]]]  # cycles; None: it does not fit


def begin_advice(
    case: Case,
    compiled: Compiled,
    before: TiledProfile,
    asked: Request | None,
    estimated: LeverEstimates | None = None,
    background: Background | None = None,
) -> Callable[[], tuple[WhatIf, ...]]:
    """Begin to look for changes that save time, most first, of a training step that is `compiled` and takes `before`;
    what is returned waits for them. asked: for the commands, if there can be any; estimated: what `estimates` of the
    same mapping has begun."""
    chosen = best_estimates(estimated or estimates(compiled, case.machine, case.options))
    given = case, None, before, asked
    begun = None if background is None else background.begin(_try_lever, given, chosen)

    def found() -> tuple[WhatIf, ...]:
        of_machine = [_try_lever((case, compiled, before, asked), lever) for lever in machine_levers(case.machine)]
        of_mapping = shared_work(_try_lever, given, chosen) if begun is None else begun()
        return largest_gains_first(one for one in (*of_mapping, *of_machine) if one is not None)

    return found


def estimates(
    compiled: Compiled, machine: MimdMachine, options: MappingOptions, background: Background | None = None
) -> LeverEstimates:
    """Begin to estimate all changes of a mapping, in the background if any, which then compiles the best; what is
    returned waits for the estimates."""
    filled = filled_activity(compiled.network, FILL)
    case = Case(network=compiled.network, graph=compiled.graph, machine=machine, activity=filled, options=options)
    levers = list(mapping_levers(case))
    begun = None if background is None else background.begin(_estimate_lever, case, levers, _compile_ahead)

    def made() -> list[tuple[Lever, int | None]]:
        return list(zip(levers, shared_work(_estimate_lever, case, levers) if begun is None else begun(), strict=True))

    return made


def _compile_ahead(case: Case, levers: Sequence[Lever], cycles: list[int | None]) -> None:
    """Compile what will be timed in full."""
    _AHEAD.clear()
    for lever in best_estimates(lambda: zip(levers, cycles, strict=True)):
        options = _changed_case(case, lever.changes).options
        with contextlib.suppress(MimdsimError):  # as when it is timed
            _AHEAD.append((options, compile_graph(case.graph, case.network, case.machine, options, must_fit=False)))


def best_estimates(estimated: LeverEstimates) -> list[Lever]:
    """The changes with the least time, of several values for the same keys the best."""
    found = sorted((cycles, at, lever) for at, (lever, cycles) in enumerate(estimated()) if cycles is not None)
    alike = {tuple(sorted(lever.changes)): lever for _, _, lever in reversed(found)}
    return [lever for _, _, lever in found if lever in alike.values()][:TIMED]


def _try_lever(given: tuple[Case, Compiled | None, TiledProfile, Request | None], lever: Lever) -> WhatIf | None:
    """None: it cannot be placed, does not fit, or is no machine."""
    case, compiled, before, asked = given
    try:
        return what_if(case, compiled, before, lever, asked)
    except MimdsimError:
        return None


def largest_gains_first(found: Iterable[WhatIf]) -> tuple[WhatIf, ...]:
    """Those that save enough time to be worth saying."""
    return tuple(sorted((one for one in found if one.gain >= LEAST_GAIN), key=lambda one: -one.gain))


def what_if(case: Case, compiled: Compiled | None, before: TiledProfile, lever: Lever, asked: Request | None) -> WhatIf:
    """What a change makes of a training step (compiled None: it is compiled again, if that was not done ahead); raises
    DoesNotFit where it leaves too few tiles or too little memory, MappingError for a mapping that cannot be,
    DescriptionError for what no mapping or machine can have."""
    other = _changed_case(case, lever.changes)
    known = _AHEAD if compiled is None else [(case.options, compiled)]
    fitting = (made for options, made in known if options == other.options and made.network == case.network)
    same = next(filter(None, (made.on(other.machine) for made in fitting)), None)
    after = compile_and_time(other, other.options)[1] if same is None else retime(same, other.machine, case.activity)
    memory = after.memory
    if not memory.fits:
        raise DoesNotFit(f"{lever.what}: tile {memory.peak_tile} then needs {memory.peak_of_limit}")
    return difference(before, after, lever, "" if asked is None else asked.command(lever.changes))


def difference(before: TiledProfile, after: TiledProfile, lever: Lever, command: str) -> WhatIf:
    """What a change has made of a program that takes `before`."""
    share = ratio_of(after, before)
    spans = ([(span.name, span.cycles) for span in profile.spans] for profile in (before, after))
    name, one, two = most_shortened(*spans)
    return WhatIf(
        what=lever.what,
        kind=lever.kind,
        command=command,
        cycles=after.cycles,
        gain=1 - share.middle,
        gain_low=1 - share.high,
        gain_high=1 - share.low,
        more_bytes=after.memory.peak_bytes - before.memory.peak_bytes,
        superstep=name,
        before=one,
        after=two,
    )


def mapping_levers(case: Case) -> Iterator[Lever]:
    """Single steps from a mapping, and copies of every layer with all rules."""
    options = case.options
    every = get_args(Rule)
    if case.network.spikes == "dense":
        return
    for rule in every:
        if rule not in options.rules:
            rules = [one for one in every if one in options.rules or one == rule]
            yield Lever(f'program rule "{rule}"', {"mapping.program": rules})
    if options.rules != set(every):
        yield Lever("all rules of the program", {"mapping.program": "best"})
    for about in COPIES:
        if not options.split and (found := replicate_layers(case, about)) is not None:
            copies = next(iter(found.split.values())).batch
            changes: dict[str, Any] = {"mapping.program": "best", "mapping.reduce_group": found.reduce_group}
            changes |= {
                f"mapping.split.{name}": split.model_dump(exclude_defaults=True) for name, split in found.split.items()
            }
            yield Lever(f"{copies} copies of every layer and all rules of the program", changes)
    for layer in case.network.layers:
        split = options.split.get(layer.name, Split())
        key = f"mapping.split.{layer.name}"
        if split.batch < case.network.batch:
            yield Lever(f"one more batch part for {layer.name}", {f"{key}.batch": split.batch + 1})
        if split.inputs < layer.inputs:
            yield Lever(f"one more fan-in part for {layer.name}", {f"{key}.inputs": split.inputs + 1})
    replicas = options.weight_gradient_replicas
    for other in sorted({1, replicas // 2, replicas * 2} - {0, replicas}):
        yield Lever(f"{other} replicas of weight gradients", {"mapping.weight_gradient_replicas": min(other, 64)})
    for other in (options.states_per_worker // 2, options.states_per_worker * 2):
        if other:
            yield Lever(f"{other} states per worker", {"mapping.states_per_worker": other})
    if options.stash != "everything":
        yield Lever("nothing recomputed", {"mapping.stash": "everything"})
    if options.id_bytes == 4 and max(layer.neurons for layer in case.network.layers) < 1 << 16:
        yield Lever("ids and counts of 2 bytes", {"mapping.id_bytes": 2})


def machine_levers(machine: MimdMachine) -> Iterator[Lever]:
    """One more context, a faster exchange, no sync: what a machine would gain."""
    yield Lever("one more worker context", {"tile.worker_contexts": machine.tile.worker_contexts + 1})
    for rate in fabric_of(machine).rates:
        wider = {f"exchange.{rate}": 2 * getattr(machine.exchange, rate)}
        yield Lever("twice the exchange bandwidth" if rate == "bytes_per_cycle" else f"twice exchange.{rate}", wider)
    no_wait = {"sync.internal_cycles": 0, "sync.exchange_share": 0.0}
    yield Lever("no wait at a sync", no_wait | ({"sync.hop_cycles": 0.0} if machine.sync.hop_cycles else {}))


def _estimate_lever(case: Case, lever: Lever) -> int | None:
    """Cycles; None where the mapping does not fit."""
    try:
        figures = estimate(case, _changed_case(case, lever.changes).options).figures
    except MimdsimError:
        return None
    return figures.cycles if figures.peak_bytes <= case.machine.tile.sram_bytes else None


def _changed_case(case: Case, changes: Mapping[str, Any]) -> Case:
    """The case with changes of its machine and mapping by dotted key."""
    of_mapping = {key: value for key, value in changes.items() if key.startswith("mapping.")}
    of_machine = {key: value for key, value in changes.items() if key not in of_mapping}
    sections = [name for name, value in case.machine if isinstance(value, Section)]
    wrong = [key for key in of_machine if key.split(".")[0] not in sections or key.count(".") != 1]
    if wrong:
        problem = f"{wrong[0]}: only fields of the mapping and of a machine's sections change with the same spikes"
        raise DescriptionError("what_if", [f"{problem}: {', '.join(['mapping', *sections])}"])
    machine = changed_machine(case.machine, of_machine)
    table = {"mapping": case.options.model_dump()}  # with its defaults: no option of a mapping excludes another
    changed_table(table, of_mapping, where="what_if", example="mapping.stash")
    return replace(case, machine=machine, options=build(MappingOptions, table["mapping"], where="what_if"))


def _toml(value: Any) -> str:
    """As --set takes it; raises TypeError for what it cannot take."""
    value = str(value) if isinstance(value, Path) else value
    if not isinstance(value, (str, int, float, list, tuple, Mapping)):
        raise TypeError(f"{value!r} is no value of TOML")
    return value if isinstance(value, str) and _is_bare_text(value) else toml_value(value)


def _is_bare_text(value: str) -> bool:
    """Whether --set reads a text without quotes as this text, not as another value of TOML."""
    try:
        parse_toml(f"value = {value}", where="")
    except DescriptionError:
        return value == value.strip().strip("'\"") and len(value.splitlines()) == 1
    return False
