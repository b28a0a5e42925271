"""What a profile is based on: every number of the machine, every format and codelet cost, with their sources."""

from __future__ import annotations

from functools import lru_cache

from mimdsim.machine import MimdMachine
from mimdsim.profile import Assumption
from mimdsim.program import Program


@lru_cache(maxsize=8)
def program_assumptions(program: Program) -> tuple[Assumption, ...]:
    return format_assumptions(program) + codelet_assumptions(program)


def machine_assumptions(machine: MimdMachine) -> tuple[Assumption, ...]:
    """Every number of the machine with its source."""
    found = []
    for section_name in (
        "chip",
        "tile",
        "exchange",
        "sync",
        "host",
        "links",
        "matrix",
        "energy",
        "area",
        "power",
        "costs",
    ):
        section = getattr(machine, section_name)
        if section is None:
            continue
        for field, text in section.sources.items():
            kind, _, source = text.partition(":")
            found.append(
                Assumption(
                    name=f"{section_name}.{field}",
                    value=f"{value:g}" if isinstance(value := getattr(section, field), int | float) else str(value),
                    kind=kind,
                    source=source.strip(),
                )
            )
    return tuple(found)


def format_assumptions(program: Program) -> tuple[Assumption, ...]:
    """One for every format that values are counted in but not computed in."""
    formats = {
        (held.dtype, held.stored_bytes)
        for held in program.variables.values()
        if held.stored_bytes and held.dtype.startswith("float")
    }
    return tuple(
        Assumption(
            name=f"{dtype} in {stored} bytes",
            value=f"bytes and cycles of {stored}-byte values; computed in {dtype}, rounded where a vertex writes them",
            kind="assumed",
            source=f"sums inside a vertex are those of {dtype}: what adding in {stored} bytes does to spikes, loss and "
            "accuracy is not simulated",
        )
        for dtype, stored in sorted(formats)
    )


def codelet_assumptions(program: Program) -> tuple[Assumption, ...]:
    """Every codelet of the program with the source of its cost."""
    known: dict[str, Assumption] = {}
    for superstep, _, _ in program.supersteps():
        for table in superstep.tables:
            codelet = table.codelet
            terms = getattr(codelet.cost, "terms", None)
            if terms is None:
                value = "library formula"
            else:
                fixed = getattr(codelet.cost, "fixed", 0)
                parts = [f"{term.bundles:g} per {' x '.join(term.extents)}" for term in terms]
                value = f"{fixed:g} bundles" + "".join(f" + {part}" for part in parts)
            known[codelet.name] = Assumption(
                name=f"codelet {codelet.name}", value=value, kind=codelet.cost.kind, source=codelet.cost.source
            )
    return tuple(known[name] for name in sorted(known))
