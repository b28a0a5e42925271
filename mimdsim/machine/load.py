"""Machine descriptions from `models/*.toml`, by name or path."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from mimdsim.base.errors import DescriptionError, shortened, suggest
from mimdsim.base.schema import Section, build, changed_table, dotted_changes, given_keys, read_toml, whence
from mimdsim.base.search_path import Named, beside, find_description, is_path, names_of, own_folder, possible_path
from mimdsim.base.units import UNITS, dimension, show_quantity
from mimdsim.machine.calibrated import (
    CODELET,
    KIND,
    CalibrationFile,
    calibrated_values,
    read_calibration,
    uncertain_numbers,
)
from mimdsim.machine.gpu import GpuMachine
from mimdsim.machine.mimd import MimdMachine
from mimdsim.machine.notes import outdated_sources
from mimdsim.machine.numbers import DEFAULT, IDLE, DescribedValue, described_values, unread_keys

BASE = "base"
"""The machine that the rest of the file differs from, by name or as a path beside the file."""
WITHOUT = "without"
"""Sections of the base that this machine lacks."""
MOST_BASES = 8  # one above the other
COUNT = (0.0, 1e7)  # of anything without a unit
TRANSISTORS = (1e3, 1e12)  # of a tile
# by unit: least (0 is always accepted if the field allows it) and greatest number in the base unit
BOUNDS: dict[str, tuple[float, float]] = {
    "hz": (1e6, 1e12),
    "bytes": (1.0, 2.0**44),
    "bytes_per_second": (1e6, 1e18),
    "bytes_per_cycle": (1e-3, 1e15),  # 1e15: effectively free
    "flops_per_cycle": (1e-3, 1e9),
    "cycles": (1e-3, 1e9),
    "seconds": (1e-12, 1.0),
    "watts": (1e-3, 1e5),
    "watts_per_mm2": (1e-4, 1e2),
    "mm2": (1e-4, 1e5),
    "volts": (0.2, 2.0),
    "joules": (1e-15, 1e-6),
    "joules_per_byte": (1e-15, 1e-6),
    "joules_per_flop": (1e-15, 1e-6),
}
NARROWER: dict[str, tuple[float, float]] = {  # fields for which a few bytes make no sense
    "tile.sram_bytes": (1024.0, 2.0**44),
    "tile.executable_bytes": (64.0, 2.0**44),
    "memory.capacity_bytes": (1024.0, 2.0**44),
    "memory.l2_bytes": (1024.0, 2.0**44),
    "tile.vector_bytes": (4.0, 4096.0),
    "tile.issue_cycles": (1.0, 1000.0),
    "area.tile_transistors": TRANSISTORS,
}
INSTEAD = {  # a key, and that of a base which it takes the place of
    "memory.channels": "memory.tiles_per_channel",
    "memory.tiles_per_channel": "memory.channels",
}
PARTS = (  # section, part, whole
    ("tile", "executable_bytes", "sram_bytes"),
    ("chip", "grid_columns", "tiles"),  # a row of the grid has at most as many places as there are tiles
)
CUT = "all of"  # in the source of a part that was larger than its whole
UNIT_MEANT = {"hz": ("GHz", "MHz"), "bytes_per_second": ("GB/s",), "bytes": ("KiB",), "seconds": ("us",)}
UNIT_MEANT |= {"joules": ("pJ",), "joules_per_byte": ("pJ/B",), "joules_per_flop": ("pJ/FLOP",)}
MOST_HZ_MEANT = 1e11  # above it a smaller unit was meant


def plausibility_problems(machine: Section, text: str, changed: Collection[str]) -> list[str]:
    """A message for every number out of bounds, with the bounds and the unit that may have been meant."""
    found = []
    for section in type(machine).model_fields:
        part = getattr(machine, section)
        if not isinstance(part, Section):
            continue
        for key in type(part).model_fields:
            value = getattr(part, key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value == 0:
                continue
            low, high = NARROWER.get(f"{section}.{key}") or BOUNDS.get(dimension(key) or "", COUNT)
            if not low <= value <= high:
                at = whence((section, key), text, changed)
                found.append(f"'{section}.{key}'{at}: {_bounds_text(value, key, low, high)}")
    return found


def _bounds_text(value: float, key: str, low: float, high: float) -> str:
    bounds = f"{show_quantity(low, key)} to {show_quantity(high, key)}" if low else f"at most {high:,.0f}"
    of = dimension(key) or ""
    high_meant = min(high, MOST_HZ_MEANT) if of == "hz" else high
    meant = (unit for unit in UNIT_MEANT.get(of, ()) if low <= value * UNITS[of][unit] <= high_meant)
    unit = next(meant, "")
    hint = f'; did you mean "{value:g} {unit}"?' if unit else ""
    return f"{show_quantity(value, key)} is not plausible; expected {bounds}{hint}"


Given = Named | MimdMachine | GpuMachine
Described = TypeVar("Described", bound=MimdMachine | GpuMachine)
KINDS: dict[str, type[MimdMachine] | type[GpuMachine]] = {"mimd": MimdMachine, "gpu": GpuMachine}


def list_machines() -> tuple[str, ...]:
    """The names of all machines, sorted: those of the package, of MIMDSIM_HOME and of the working folder.

    >>> "bow" in mimdsim.list_machines()
    True
    """
    return names_of("models")


def find_machine(name: Named) -> Path:
    """The file of a machine given by name ('bow'; `base/search_path.py` says where it is searched) or by path."""
    return find_description("models", "machine", name)


def given_machine(machine: Given) -> MimdMachine | GpuMachine:
    """A machine given itself, or by name or file."""
    return machine if isinstance(machine, (MimdMachine, GpuMachine)) else load_machine(machine)


def description_files(name: Named) -> tuple[Path, ...]:
    """The files that the description of a machine is read from: its own, and those of what it is narrowed from and by
    and of its bases."""
    found: dict[Path, None] = {}
    waiting = [find_machine(name)]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = None
        table, _ = read_toml(path)
        if table.get("kind") == KIND:
            waiting.append(find_machine(_beside(path, read_calibration(path).machine)))
        elif isinstance(by := table.get(KIND), str):
            found[path.parent / by] = None
        if isinstance(base := table.get(BASE), str):
            waiting.append(find_machine(_beside(path, base)))
    return tuple(found)


def listed_values(name: Named) -> tuple[DescribedValue, ...]:
    """Every value of a machine with the base whose file gives it, if the machine's own does not."""
    path, rows = find_machine(name), tuple(described_values(load_machine(name)))
    table, _ = read_toml(path)
    base = read_calibration(path).machine if table.get("kind") == KIND else table.get(BASE)
    if base is None:
        return rows
    below, given = find_machine(_beside(path, base)), _dotted(table)
    of_base = {(row.section, row.key): row for row in listed_values(below) if row.source != DEFAULT}

    def with_base(row: DescribedValue) -> DescribedValue:
        other = of_base.get((row.section, row.key))
        if other is None or f"{row.section}.{row.key}" in given or replace(other, base="") != row:
            return row
        return replace(row, base=other.base or below.stem)

    return tuple(map(with_base, rows))


def _beside(path: Path, named: str) -> str:
    """A machine that the file at `path` names: a path beside it, or a name, which in a file that comes with the package
    is that of another such."""
    if is_path(named):
        return beside(path, named)
    shipped = own_folder("models") / f"{named}.toml"
    return str(shipped) if path.parent == shipped.parent and shipped.is_file() else named


def tiled_machine(machine: Given, advice: str) -> MimdMachine:
    """A tiled machine, given itself or by name or file; raises DescriptionError with the advice for a GPU."""
    found = given_machine(machine)
    if not isinstance(found, MimdMachine):
        raise DescriptionError(f"machine '{found.name}'", [f"is a GPU; {advice}"])
    return found


def load_machine(name: Named, changes: dict[str, Any] | None = None) -> MimdMachine | GpuMachine:
    """The machine `name`, with `changes` of dotted keys ('tile.sram_bytes') applied to its description.

    name: of a machine, or the path of its file. changes: by dotted key; a changed number's source becomes "assumed:
    what-if value", and the title says that something was changed.

    Where a change makes a whole smaller than the part that the description has of it, such as the executable region of
    a tile's memory, the part becomes the whole; a part that is the whole stays it. Raises DescriptionError with every
    problem, and for numbers that look as if their unit is missing or that are larger than their whole
    (`plausibility_problems`). A file that says `base` is that machine but for what follows; one that says `narrowed`,
    or of that kind, is a machine with the numbers of one's own measurements (`machine/calibrated.py`).

        >>> mimdsim.load_machine("bow", {"tile.sram_bytes": "1 MiB"}).tile.sram_bytes
        1048576
    """
    return _load(name, dotted_changes(changes), ())


def Machine(
    base: Given, changes: Mapping[str, Any] | None = None, /, *, name: str = "", title: str = "", **sections: Any
) -> MimdMachine | GpuMachine:
    """A machine as another one, but for `changes` of dotted keys and whole `sections`, as a file with `base` has them:
    Machine("bow", name="half", title="Half a Bow", chip={"tiles": 736, "sources": {"tiles": "published: ..."}}).

    base: the machine that it differs from, itself or by name or file. changes: fields by dotted key; the source of a
    number here becomes "assumed: what-if value", unless `sections` give it. name, title: those of the new machine
    (default: name of the base, its title with "(changed)"). sections: by keyword, keys of a section, sources included.

    Checked as files are; raises DescriptionError with every problem.

        >>> half = mimdsim.Machine("bow", {"chip.tiles": 736}, name="half", title="Half a Bow")
        >>> half.chip.tiles, half.chip.sources["tiles"]
        (736, 'assumed: what-if value 736')
    """
    original = given_machine(base)
    where = f"Machine({original.name!r})"
    changes = dotted_changes(changes, where)
    started = _with_changes(type(original), given_keys(original), changes, where, "")
    table = {"name": name or original.name, "title": title or f"{original.title} (changed)"} | sections
    made = _on_base(started, table, where, "")
    given = {*changes, *_dotted(sections)}
    made = _without_unread(made, given)
    return made.with_outdated(outdated_sources(original, made, given))


def _load(name: Named, changes: Mapping[str, Any], above: tuple[Path, ...]) -> MimdMachine | GpuMachine:
    """`load_machine`; above: the files that this one is the base of."""
    path = find_machine(name)
    if path in above or len(above) > MOST_BASES:
        chain = " -> ".join(str(each) for each in (*above, path))
        wrong = "a machine cannot be its own base" if path in above else f"at most {MOST_BASES} bases are followed"
        raise DescriptionError(str(above[-1]), [f"'{BASE}': {wrong}: {chain}"])
    table, text = read_toml(path)
    if table.get("kind") == KIND:
        content = read_calibration(path)
        original = sourced_machine(_beside(path, content.machine))
        return _calibrated_machine(path, original, content, path, changes)
    table.setdefault("name", path.stem)
    named = table.pop(KIND, None)
    first: Mapping[str, Any] = changes if named is None else {}
    if BASE in table:
        base = _base_of(path, table.pop(BASE), text, above)
        sourced = _on_base(base, table, str(path), text, first)
        sourced = _without_unread(sourced, {*_dotted(table), *first})
        sourced = sourced.with_outdated(outdated_sources(base, sourced, set(_dotted(table))))
    else:
        kind = table.get("kind")
        if not isinstance(kind, str) or kind not in KINDS:
            known = ", ".join((*KINDS, KIND))
            wrong = f"kind = {shortened(repr(kind))}; must be one of {known}"
            begins = f'there is neither base nor kind; begin with base = "bow" (mimdsim list: others), or kind, {known}'
            raise DescriptionError(str(path), [begins if kind is None else wrong])
        sourced = _with_changes(KINDS[kind], table, first, str(path), text)
    if named is None:
        return sourced
    if not isinstance(sourced, MimdMachine) or not isinstance(named, str):
        what = "is for tiled machines" if isinstance(named, str) else "must be the path of a file"
        raise DescriptionError(str(path), [f"'{KIND}' {what}; see docs/own-measurements.md"])
    try:
        file = Path(beside(path, possible_path(named)))
    except ValueError as problem:
        raise DescriptionError(str(path), [f"'{KIND}' {problem}"]) from None
    return _calibrated_machine(path, sourced, read_calibration(file), file, changes)


def _base_of(path: Path, named: Any, text: str, above: tuple[Path, ...]) -> MimdMachine | GpuMachine:
    """The machine that the file at `path` names as its base."""
    try:
        if not isinstance(named, str):
            raise ValueError("must be the name of a machine, or the path of its file")
        base = find_machine(_beside(path, possible_path(named)))
        if not base.exists():
            raise ValueError(f"no such file: {base}")
    except (DescriptionError, ValueError) as missing:
        why = missing.problems[0] if isinstance(missing, DescriptionError) else str(missing)
        raise DescriptionError(str(path), [f"'{BASE}'{whence((BASE,), text, ())}: {why}"]) from None
    return _load(base, {}, (*above, path))


def _on_base(
    base: MimdMachine | GpuMachine,
    table: dict[str, Any],
    where: str,
    text: str,
    changes: Mapping[str, Any] | None = None,
) -> MimdMachine | GpuMachine:
    """`base` with what `table` gives instead. Sources go with their numbers: what is given needs one of its own."""
    described: dict[str, Any] = {key: value for key, value in given_keys(base).items() if key not in ("name", "title")}
    problems = []
    kind = table.setdefault("kind", base.kind)
    if kind != base.kind:
        at = whence(("kind",), text, ())
        problems.append(f"'kind'{at}: {shortened(repr(kind))}, but the base '{base.name}' is of kind '{base.kind}'")
    known = type(base).model_fields
    others = {key: other for other, model in KINDS.items() for key in model.model_fields if key not in known}
    for key in filter(others.__contains__, table):
        at = whence((key,), text, ())
        problems.append(f"'{key}'{at}: is of kind '{others[key]}', but the base '{base.name}' is of kind '{base.kind}'")
    left_out = table.pop(WITHOUT, [])
    for name in left_out if isinstance(left_out, list) else (left_out,):
        sections = [key for key in known if key not in ("kind", "name", "title")]
        if name not in sections:
            hint = suggest(str(name), sections)
            said = f"{shortened(repr(name))} is no section of '{base.name}'{hint}; write a list of sections"
            problems.append(f"'{WITHOUT}'{whence((WITHOUT,), text, ())}: {said}")
            continue
        described.pop(name, None)
    if problems:
        raise DescriptionError(where, problems)
    tile = table.get("tile")
    if isinstance(base, MimdMachine) and isinstance(tile, dict):
        runs = tile.get("instruction_set", base.tile.instruction_set)
        described |= {} if runs == base.tile.instruction_set else {"costs": None}  # those of other cores
    for name, given in table.items():
        described[name] = _merged(described.get(name), given)
    return _with_changes(
        KINDS[base.kind], described, changes or {}, where, text, set(_dotted(table)), _whole_parts(base)
    )


def _without_unread(machine: MimdMachine | GpuMachine, given: Collection[str]) -> MimdMachine | GpuMachine:
    """`machine` without keys of its base, which are not among those `given`, that nothing reads on it."""
    table = given_keys(machine)
    unread = [dotted for dotted in unread_keys(machine) if dotted not in given]
    for dotted in unread:
        section, key = dotted.split(".")
        if dotted in IDLE:
            table[section][key] = IDLE[dotted]
            table[section]["sources"][key] = "derived: nothing reads what the base says"
        elif not type(getattr(machine, section)).model_fields[key].is_required():
            del table[section][key]
            table[section].get("sources", {}).pop(key, None)
    return build(type(machine), table, where=machine.name) if unread else machine


def _merged(section: Any, given: Any) -> Any:
    """A section of a base with the keys that are given instead; tables of it (sources, codelets, a core) entry by
    entry."""
    if not isinstance(section, dict) or not isinstance(given, dict):
        return given
    sources = {key: text for key, text in section.get("sources", {}).items() if key not in given}
    kept = {**section, "sources": sources} if sources or "sources" in given else section
    tables = {
        key: _merged(kept[key], each) if "sources" in kept[key] else kept[key] | each
        for key, each in given.items()
        if isinstance(each, dict) and key in kept
    }
    return {**kept, **given, **tables}


def _dotted(table: Mapping[str, Any], above: str = "") -> list[str]:
    """section.key of what a table gives, and what is given within that."""
    deeper = (_dotted(given, f"{above}{name}.") for name, given in table.items() if isinstance(given, dict))
    return [*(f"{above}{name}" for name in table if above), *chain.from_iterable(deeper)]


def sourced_machine(name: Named) -> MimdMachine:
    """A tiled machine that is not narrowed, nor its bases; raises DescriptionError for others."""
    tables = (read_toml(path)[0] for path in description_files(name))
    if any(table.get("kind") == KIND or KIND in table for table in tables):
        problem = "is narrowed already; narrow the machine that it is made from, with all tables at once"
        raise DescriptionError(f"machine '{name}'", [problem])
    return tiled_machine(name, "only tiled machines are narrowed")


def _calibrated_machine(
    path: Path, sourced: MimdMachine, found: CalibrationFile, file: Path, changes: Mapping[str, Any]
) -> MimdMachine | GpuMachine:
    """The machine described at `path`: `sourced` with the numbers of `file`, then `changes`."""
    title = f"{sourced.title}, narrowed by {file.name}"
    machine = with_values(sourced, calibrated_values(sourced, found, str(file)), title)
    table = given_keys(machine) | {"name": path.stem}
    made = _with_changes(MimdMachine, table, changes, str(path), "").with_outdated(sourced.outdated)
    return made if changes else made.with_correlation(found.together)


def changed_machine(machine: MimdMachine, changes: Mapping[str, Any]) -> MimdMachine:
    """A machine with changes of dotted keys, checked as those of `load_machine`; sections that are not changed are
    those of `machine`."""
    if not changes:
        return machine
    touched = {dotted.split(".")[0] for dotted in changes}
    table = {
        name: given_keys(value) if isinstance(value, Section) and name in touched else value
        for name in machine.model_fields_set
        if (value := getattr(machine, name)) is not None
    }
    return _with_changes(type(machine), table, changes, f"machine '{machine.name}'", "")


def with_values(machine: MimdMachine, values: Mapping[str, tuple[float, str]], title: str = "") -> MimdMachine:
    """A machine with (value, source) by the names of its doubted numbers and of codelets; whole where a number is."""
    known, table = uncertain_numbers(machine), given_keys(machine)
    table |= {"title": title} if title else {}
    for name, (value, source) in values.items():
        if name.startswith(CODELET):
            scaled = {"factor": value, "source": source}
            costs = table.get("costs", {})
            table["costs"] = costs | {"scaled": costs.get("scaled", {}) | {name.removeprefix(CODELET): scaled}}
        else:
            section, _, key = name.partition(".")
            number = round(value) if name in known and known[name].whole else value
            sources = table[section]["sources"] | {key: source}
            table[section] = table[section] | {key: number, "sources": sources}
    return _with_changes(MimdMachine, table, {}, f"machine '{machine.name}'", "")


def _with_changes(
    kind: type[Described],
    table: dict[str, Any],
    changes: Mapping[str, Any],
    where: str,
    text: str,
    given: Collection[str] = (),
    whole: Collection[str] = (),
) -> Described:
    """The record of a table with changes; given: keys that a file gives, whose parts are those of its base; whole:
    those parts that are the whole on it."""
    if kind is MimdMachine and any(f"{section}.{of}" in changes for section, _, of in PARTS):
        unchanged = _with_changes(kind, deepcopy(table), {}, where, text, given, whole)
        whole = _whole_parts(unchanged)
    _without_others(table, given)
    for dotted, value in changes.items():
        *sections, key = dotted.split(".")
        if not sections:
            raise DescriptionError(where, [f"unknown field '{dotted}'; write section.key, e.g. tile.sram_bytes"])
        changed_table(table, {dotted: value}, where=where, example="tile.sram_bytes")
        target: Any = table
        for section in sections:
            target = target[section]
        if isinstance(target.get("sources"), dict):
            target["sources"][key] = f"assumed: what-if value {value}"
    _without_others(table, changes)
    if changes and isinstance(table.get("title"), str):
        table["title"] += " (changed)"
    changed = set(changes)
    machine = build(kind, table, where=where, text=text, changed=changed)
    problems = plausibility_problems(machine, text, changed)
    if not problems and kind is MimdMachine:
        machine, problems = _fit_parts(machine, text, changed, given, whole)
    if problems:
        raise DescriptionError(where, problems)
    return machine


def _without_others(table: dict[str, Any], given: Collection[str]) -> None:
    """Takes from `table` the keys that those `given` take the place of, by INSTEAD."""
    for dotted, other in INSTEAD.items():
        section, _, key = other.partition(".")
        if dotted in given and other not in given and isinstance(held := table.get(section), dict):
            held.pop(key, None)
            if isinstance(sources := held.get("sources"), dict):
                sources.pop(key, None)


def _whole_parts(machine: MimdMachine | GpuMachine) -> set[str]:
    """Those of PARTS that are as large as their wholes, but for what was cut to that."""
    found = set()
    for section, part, whole in PARTS if isinstance(machine, MimdMachine) else ():
        values = getattr(machine, section)
        if getattr(values, part) == getattr(values, whole) and f", {CUT} " not in values.sources.get(part, ""):
            found.add(f"{section}.{part}")
    return found


def _fit_parts(
    machine: Described, text: str, changed: set[str], given: Collection[str], was_whole: Collection[str]
) -> tuple[Described, list[str]]:
    """`machine` with parts no larger than wholes that were changed without them, and as large where they were so
    before; and a message, with both numbers, for every other part that is larger than its whole."""
    problems = []
    fitted: dict[str, Section] = {}
    for section, part, whole in PARTS:
        values = getattr(machine, section)
        size, most = getattr(values, part), getattr(values, whole)
        if size == most or (size < most and f"{section}.{part}" not in was_whole):
            continue
        if any(f"{section}.{whole}" in new and f"{section}.{part}" not in new for new in (changed, given)):
            what = "what-if value " if f"{section}.{whole}" in changed else ""
            fitting = {part: f"assumed: {what}{show_quantity(most, part)}, {CUT} {whole}"}
            sources = values.sources | ({} if f"{section}.{part}" in was_whole else fitting)
            fitted[section] = values.model_copy(update={part: most, "sources": sources})
        if size < most or section in fitted:
            continue
        at, at_whole = (whence((section, key), text, changed) for key in (part, whole))
        problems.append(
            f"'{section}.{part}'{at}: {show_quantity(size, part)} is more than '{section}.{whole}'{at_whole}, "
            f"{show_quantity(most, whole)}; give at most that"
        )
    return cast(Described, machine.model_copy(update=fitted)), problems
