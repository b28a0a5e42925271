"""Tables of the differences between two runs: A, whose page it is, and B, which is set beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter

from mimdsim.base.errors import MimdsimError
from mimdsim.base.units import counted, show_bytes
from mimdsim.profile import FIRING, RunProfile, TiledProfile
from mimdsim.profile.operations import Cycles, cycles_by_operation, has_parts, under_same_names
from mimdsim.report.formatting import changed_fields, significant, thousands
from mimdsim.report.tables import Cell, Table, Value, shown, table

NOTHING = "–"
MERGED_PARTS = (
    "A superstep that is merged from several counts with each of them, by their share of its compute; its exchange and "
    "sync count with the one that computes most."
)
OLDER = "By the names of supersteps: one of the profiles is of a version that did not keep their parts."


def difference_tables(profile: RunProfile, other: RunProfile) -> tuple[Table, ...]:
    """Totals, and operations by layer and phase. Raises MimdsimError if one of the runs has no tiled machine."""
    one, two = both_tiled(profile, other)
    return _totals(profile, one, other, two), _operations(one, two)


def both_tiled(profile: RunProfile, other: RunProfile) -> tuple[TiledProfile, TiledProfile]:
    """Their tiled machines; raises MimdsimError if one has none."""
    one, two = profile.tiled, other.tiled
    if one is None or two is None:
        lacks = f"run A ({profile.workload})" if one is None else f"run B ({other.workload})"
        raise MimdsimError(f"{lacks} has no tiled machine, so there is nothing to compare; make it again with one")
    return one, two


def _totals(profile: RunProfile, one: TiledProfile, other: RunProfile, two: TiledProfile) -> Table:
    def row(name: str, of: Callable[[TiledProfile], float], say: Callable[..., str] = thousands) -> list[Value]:
        a, b = of(one), of(two)
        both = (say(a, b), say(b, a)) if say is show_bytes else (say(a), say(b))  # bytes: so that they look different
        return [name, shown(both[0], a), shown(both[1], b), _signed(say, b - a), _ratio(a, b)]

    rows = [
        row("cycles", lambda run: run.cycles),
        row("time, ms", lambda run: 1e3 * run.seconds_per_training_step, partial(significant, digits=4)),
        *(row(f"{part} cycles", attrgetter(f"{part}_cycles")) for part in Cycles._fields),
        row("tiles used", lambda run: run.tiles_used),
        row("flops", lambda run: sum(span.flops for span in run.spans)),
        row("peak memory of the fullest tile", lambda run: run.memory.peak_bytes, show_bytes),
        row("bytes received", lambda run: sum(run.tile_columns.bytes_received), show_bytes),
    ]
    if one.incomparable or two.incomparable:
        rows[0][-1] = rows[1][-1] = NOTHING
    return table(
        "totals-compared",
        f"Totals of one {one.run_name}",
        ("quantity", "A", "B", "B − A", "B / A"),
        rows,
        f"A: {profile.workload} on {one.title}, batch {profile.batch}, {counted(profile.timesteps, 'timestep')}. "
        f"B: {other.workload} on {two.title}, batch {other.batch}, {counted(other.timesteps, 'timestep')}."
        + "".join(
            f" {name}: {found.text}"
            for name, run in (("A", profile), ("B", other))
            for found in run.findings
            if found.name == FIRING and not found.passed
        )
        + "".join(
            f" {name}: {each.incomparable}, so its time is not compared."
            for name, each in (("A", one), ("B", two))
            if each.incomparable
        )
        + "".join(_only(name, run, beside) for name, run, beside in (("A", profile, other), ("B", other, profile))),
    )


def _only(name: str, run: RunProfile, other: RunProfile) -> str:
    """The changed fields of one run that the other lacks or has otherwise, in a sentence."""
    others = changed_fields(other)
    found = [f"{key} = {value}" for key, value in changed_fields(run) if (key, value) not in others]
    return f" Changed in {name} only: {', '.join(found)}." if found else ""


def _operations(one: TiledProfile, two: TiledProfile) -> Table:
    """All operations of both, by the size of the change; those of one run only have no partner."""
    by_part = has_parts(one) and has_parts(two)
    cycles_a, cycles_b = under_same_names(*(cycles_by_operation(each, by_part=by_part) for each in (one, two)))
    rows = []
    changed = {
        key: cycles_b.get(key, Cycles()).total - cycles_a.get(key, Cycles()).total
        for key in dict.fromkeys((*cycles_a, *cycles_b))
    }
    for key in sorted(changed, key=lambda key: -abs(changed[key])):
        a, b = cycles_a.get(key), cycles_b.get(key)
        before, after = a or Cycles(), b or Cycles()
        rows.append(
            [
                *key,
                a.total if a else NOTHING,
                b.total if b else NOTHING,
                _signed(thousands, changed[key]),
                _ratio(a.total, b.total) if a and b else NOTHING,
                *(_signed(thousands, new - old) for old, new in zip(before, after, strict=True)),
            ]
        )
    return table(
        "operations-compared",
        "Operations by the change of their cycles",
        ("operation", "layer", "phase", "cycles A", "cycles B", "B − A", "B / A", *Cycles._fields),
        rows,
        f"{thousands(len(cycles_a.keys() - cycles_b.keys()))} are only in A, "
        f"{thousands(len(cycles_b.keys() - cycles_a.keys()))} only in B. "
        + (MERGED_PARTS if by_part else OLDER)
        + " The last three columns are the parts of the change.",
    )


def _ratio(a: float, b: float) -> Value:
    return shown(f"{b / a:.3f}", b / a) if a else NOTHING


def _signed(say: Callable[[float], str], value: float) -> Cell:
    return shown(f"{'+' if value > 0 else '−' if value < 0 else ''}{say(abs(value))}", value)
