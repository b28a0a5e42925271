"""All that a description says of a machine: every value with its unit, its source and the sums that it enters;
and keys that nothing reads."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from mimdsim.base.schema import Section, SourcedSection, is_given, toml_value
from mimdsim.base.units import dimension
from mimdsim.machine.codelet_costs import NATIVE
from mimdsim.machine.gpu import GpuMachine
from mimdsim.machine.mimd import MODELS, ROUTED, MimdMachine
from mimdsim.machine.notes import number_text

WIDTH, KEY, VALUE = 100, 35, 21  # columns of the console; of them for keys, for values
DEFAULT = "by default"  # source of what a description does not give


@dataclass(frozen=True, kw_only=True)
class DescribedValue:
    """A value of a machine. unit: that of `value`, '' for counts and texts; enters: the sums that it goes into; base:
    the machine whose file gives it, '' for the machine's own (`load.listed_values` finds out)."""

    section: str
    key: str
    value: Any
    unit: str
    source: str
    enters: str
    base: str = ""


def described_values(machine: MimdMachine | GpuMachine) -> Iterator[DescribedValue]:
    """Every value of the machine's sections, in the order of the description's fields; without what is not given and
    would have no effect."""
    idle = keys_without_effect(machine)
    for name, about in type(machine).model_fields.items():
        section = getattr(machine, name)
        for key, field in type(section).model_fields.items() if isinstance(section, Section) else ():
            value = getattr(section, key)
            if key == "sources" or value is None:
                continue
            if f"{name}.{key}" in idle and key not in section.model_fields_set:
                continue
            enters = field.description or about.description or ""
            unit = (dimension(key) or "").replace("_", " ")
            if isinstance(value, SourcedSection):  # a core, with numbers of its own
                yield from _nested(name, key, value, enters)
                continue
            if isinstance(value, dict):  # costs of codelets, each with a source of its own
                for codelet, cost in value.items():
                    content = cost.model_dump(mode="json", exclude={"source"})
                    yield DescribedValue(
                        section=name, key=f"{key}.{codelet}", value=content, unit="", source=cost.source, enters=enters
                    )
                continue
            source = section.sources.get(key, "" if key in section.model_fields_set else DEFAULT)
            yield DescribedValue(section=name, key=key, value=value, unit=unit, source=source, enters=enters)


def _nested(section: str, key: str, values: SourcedSection, enters: str) -> Iterator[DescribedValue]:
    for field in type(values).model_fields:
        value, name = getattr(values, field), f"{key}.{field}"
        if isinstance(value, SourcedSection):
            yield from _nested(section, name, value, enters)
        elif field in values.sources:
            unit = (dimension(field) or "").replace("_", " ")
            source = values.sources[field]
            yield DescribedValue(section=section, key=name, value=value, unit=unit, source=source, enters=enters)


def machine_table(machine: MimdMachine | GpuMachine, values: Iterable[DescribedValue]) -> Iterator[str]:
    """Lines of at most WIDTH columns: a value and what it enters on one, its source below; notes at the end."""
    yield from (f"{machine.name}: {machine.title}", "", f"  {'':{KEY}}{'':{VALUE}}enters")
    section = ""
    for row in values:
        if row.section != section:
            section = row.section
            yield f"[{section}]"
        value = toml_value(row.value) if isinstance(row.value, dict) else number_text(row.value, row.key)
        start, indent = f"  {row.key:{KEY - 1}} {value:{VALUE - 1}} ", " " * (2 + KEY + VALUE)
        if len(start) > len(indent):
            yield from textwrap.wrap(start, WIDTH, subsequent_indent=" " * 6)
            start = indent
        yield from textwrap.wrap(row.enters, WIDTH, initial_indent=start, subsequent_indent=indent)
        source = f"from {row.base}: {row.source}" if row.base else row.source
        yield from textwrap.wrap(source, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    for note in machine_notes(machine):
        yield from ("", *textwrap.wrap(note, WIDTH))


def machine_record(machine: MimdMachine | GpuMachine, values: Iterable[DescribedValue]) -> dict[str, Any]:
    """The same as a record for JSON; numbers in the unit that stands beside them."""
    head = {"name": machine.name, "title": machine.title, "kind": machine.kind}
    return {**head, "values": [asdict(row) for row in values], "notes": list(machine_notes(machine))}


# ---- keys of a machine that are given and that nothing reads, given the rest of it; and what else its notes say


class _Readers(NamedTuple):
    """`keys` are read on machines of which `are_read` holds; else `why` says why they are not."""

    keys: tuple[str, ...]
    are_read: Callable[[Any], bool]
    why: str


IDLE = {  # what required keys are that nothing reads
    "exchange.tiles_per_bus": 1, "tile.compiled_dual_issue": 0, "sync.scope": "chip", "sync.internal_cycles": 0,
}  # fmt: skip
OF_TILED = (
    _Readers(
        ("links.group_chips", "links.group_links_per_edge"),
        lambda machine: machine.links.topology != "switch",
        'links.topology = "switch" has no links between two chips',
    ),
    _Readers(
        ("links.group_links_per_edge",),
        lambda machine: machine.links.group_chips > 1,
        "links.group_chips makes no groups of several chips",
    ),
    _Readers(
        ("chip.grid",),
        lambda machine: bool(
            machine.sync.hop_cycles or machine.exchange.hop_cycles or machine.exchange.model == "routed"
        ),
        "hops take no time: neither sync.hop_cycles nor exchange.hop_cycles is given",
    ),
    _Readers(
        tuple(f"exchange.{key}" for key in ROUTED),
        lambda machine: machine.exchange.model not in MODELS or machine.exchange.model == "routed",
        'only exchange.model = "routed" has links between routers',
    ),
    _Readers(
        ("exchange.packet_bytes",),
        lambda machine: bool(
            machine.exchange.header_bytes
            or machine.exchange.acknowledge_bytes
            or machine.exchange.multicast == "reserved"
        ),
        "packets have no header_bytes, no acknowledge_bytes, and reserve nothing",
    ),
    _Readers(
        ("exchange.send_fragment_cycles", "exchange.receive_fragment_cycles"),
        lambda machine: machine.exchange.model != "planner",
        'exchange.model = "planner" leaves them out, but for the cycles of "endpoint" that stand beside its own',
    ),
    _Readers(
        ("exchange.ways", "exchange.ring_columns", "exchange.ring_rows"),
        lambda machine: machine.chip.grid == "torus",
        'rows and columns are closed to rings by chip.grid = "torus" alone',
    ),
    _Readers(
        ("exchange.ring_columns",),
        lambda machine: machine.exchange.ring_columns * machine.exchange.tiles_per_router >= machine.chip.grid_columns,
        "a row of tiles has more routers",
    ),
    _Readers(
        ("exchange.ring_rows",),
        lambda machine: machine.exchange.ring_rows * machine.chip.grid_columns >= machine.chip.tiles,
        "a column of tiles has more routers",
    ),
    _Readers(
        ("exchange.tiles_per_bus",),
        lambda machine: machine.exchange.model != "routed" or machine.exchange.tiles_per_bus == 1,
        'tiles of exchange.model = "routed" have ports of their own',
    ),
    _Readers(
        ("tile.compiled_dual_issue",),
        lambda machine: (
            not machine.tile.compiled_dual_issue
            or machine.tile.instruction_set == NATIVE
            or machine.costs is None
            or machine.costs.core is None
        ),
        "[costs.core] says what its instructions take, side by side or not",
    ),
    _Readers(
        ("energy.hop_joules_per_byte",),
        lambda machine: machine.exchange.model not in MODELS or machine.exchange.model == "routed",
        'only exchange.model = "routed" has links between routers',
    ),
    _Readers(
        ("memory.joules_per_byte",),
        lambda machine: machine.energy is not None,
        "energy is counted with [energy] alone",
    ),
    _Readers(
        ("sync.exchange_share", "sync.hop_cycles"),
        lambda machine: machine.sync.model != "dataflow" or machine.links.chips > 1,
        'tiles wait for their inputs alone: sync.model = "dataflow"',
    ),
    _Readers(
        ("sync.internal_cycles",),
        lambda machine: machine.sync.model != "dataflow" or not machine.sync.internal_cycles,
        'a chip has no barriers: sync.model = "dataflow"',
    ),
    _Readers(
        ("sync.scope",),
        lambda machine: machine.sync.model != "dataflow" or machine.sync.scope == "chip",
        'chips wait for each other only over links: sync.model = "dataflow"',
    ),
    _Readers(
        ("power.matrix_joules_per_flop",),
        lambda machine: machine.matrix is not None and machine.energy is not None,
        "the watts of a fully busy matrix unit need [matrix] and [energy]",
    ),
)
OF_GPUS = (
    _Readers(
        (
            *("chip.tensor_clock_hz", "chip.product_share", "chip.tensor_product_share", "chip.tensor_tile_edge"),
            *("chip.tensor_k_in_flight", "chip.tensor_unaligned_share", "chip.cluster_multiprocessors"),
            *("compute.tf32_flops_per_cycle", "compute.fp32_library_share", "compute.fp32_wide_share"),
        ),
        lambda machine: machine.systolic is None,
        "products run on the arrays of [systolic]",
    ),
)


def keys_without_effect(machine: MimdMachine | GpuMachine) -> dict[str, str]:
    """Dotted keys that nothing reads on a machine, given or not: and why."""
    found: dict[str, str] = {}
    for keys, are_read, why in OF_TILED if isinstance(machine, MimdMachine) else OF_GPUS:
        for dotted in () if are_read(machine) else keys:
            found.setdefault(dotted, why)
    return found


def unread_keys(machine: MimdMachine | GpuMachine) -> dict[str, str]:
    """Those that are given, with another value than by default."""
    return {dotted: why for dotted, why in keys_without_effect(machine).items() if is_given(machine, dotted)}


def routers_in_a_line(machine: MimdMachine) -> Iterator[str]:
    """Said where routers that tiles share lie in one column, as they do if grid_columns was meant to count routers."""
    together = machine.exchange.tiles_at_a_place
    grid = machine.chip.with_together(together)
    if grid.grid_columns * together != machine.chip.grid_columns and 1 < together < machine.chip.tiles:
        yield (
            f"exchange.tiles_per_router = {together} does not divide chip.grid_columns = {machine.chip.grid_columns}: "
            f"rows are taken as {grid.grid_columns} routers, {grid.grid_columns * together} tiles"
        )
    if together > 1 and grid.grid_columns == 1 and grid.tiles > 3 and grid.grid != "crossbar":
        yield (
            f"exchange.tiles_per_router = {together:,}: the {grid.tiles:,} routers lie in one column, because "
            f"chip.grid_columns = {machine.chip.grid_columns:,} counts tiles: a row of 4 routers has "
            f"chip.grid_columns = {4 * together:,}"
        )


def machine_notes(machine: MimdMachine | GpuMachine) -> tuple[str, ...]:
    """What is said of a description before its numbers: sources of its base that name other numbers, unread keys,
    routers in a line."""
    lines = routers_in_a_line(machine) if isinstance(machine, MimdMachine) else ()
    unread = (f"{dotted}: has no effect, because {why}" for dotted, why in unread_keys(machine).items())
    return (*machine.outdated_texts(), *unread, *lines)
