"""Areas and watts of chips as published: rows of `references/chips.csv`.

A row names a machine whose numbers of process, voltage and energy are taken, and, for a chip that has no description of
its own, what of it is changed: tiles, SRAM, transistors, links, clock. No number of a description was fitted to a row
whose column `judged` says "held out"; rows that gave a number are marked "used" and summed up apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.costs.area_power import silicon_profile
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.profile import SiliconProfile
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, within_bounds

COLUMNS = {"chip", "machine", "changes", "metric", "value", "unit", "tolerance", "judged"}
METRICS = {"area_mm2": "mm2", "sram_share": "of the area", "full_load_watts": "W"}


def chip_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    """Fields of a published figure."""
    published, tolerance = (row.number(column, above=0) for column in ("value", "tolerance"))
    name, kind = f"{row['chip']} {row['metric']} {row['value']}", f"{row['metric']}, {row['judged']}"
    yield row.figure(name, row["unit"], published, tolerance, kind)
    value, off = _metric(silicon_profile(_machine(row)), row["metric"])
    yield within_bounds(value, value - off, value + off)
    if not row["changes"]:  # of the chip that is described, not of others that take numbers from it
        yield {
            "bearing": row.bearing(
                row["machine"], published, lambda machine: _metric(silicon_profile(machine), row["metric"])[0]
            )
        }


def _machine(row: Cells) -> MimdMachine:
    """The row's machine with its changes; raises MimdsimError for one whose area is not described."""
    if METRICS.get(row["metric"]) != row["unit"]:
        known = ", ".join(f"{metric} in {unit}" for metric, unit in METRICS.items())
        raise MimdsimError(
            f"no prediction for '{shortened(row['metric'])}' in '{shortened(row['unit'])}'; known: {known}"
        )
    changes = {}
    for change in filter(None, row["changes"].split(";")):
        key, equals, value = change.partition("=")
        if not equals:
            raise MimdsimError(f"changes: '{shortened(change)}' is not key=value; write section.key=value;...")
        changes[key.strip()] = value.strip()
    machine = load_machine(row["machine"], changes)
    if not isinstance(machine, MimdMachine) or machine.area is None:
        raise MimdsimError(f"unknown: {machine.name} has no [area] in its description")
    # changed numbers of its area count as derived from the row's source, not as a what-if
    changed = {key.partition(".")[2]: "derived: the row's source" for key in changes if key.startswith("area.")}
    area = machine.area.model_copy(update={"sources": machine.area.sources | changed})
    return machine.model_copy(update={"area": area})


def _metric(silicon: SiliconProfile | None, metric: str) -> tuple[float, float]:
    """The number and how far it may be off."""
    if silicon is None:
        raise MimdsimError("unknown")
    if metric == "full_load_watts":
        if silicon.full_load is None:
            raise MimdsimError(f"unknown: {silicon.unknown or 'the description has no [energy]'}")
        return silicon.full_load.value, silicon.full_load.half_width
    whole, off = silicon.area_mm2
    if metric == "area_mm2":
        return whole, off
    sram = next(part for part in silicon.area if part.name == "SRAM")
    rest, rest_off = whole - sram.value, off - sram.half_width
    ends = [(sram.value + way * sram.half_width) / (whole + way * (sram.half_width - rest_off)) for way in (-1, 1)]
    share = sram.value / (sram.value + rest)
    return share, max(share - ends[0], ends[1] - share)


CHIPS = ReferenceTable(needed=COLUMNS, also={"source"}, read_row=chip_row)
