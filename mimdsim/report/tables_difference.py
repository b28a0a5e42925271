"""Tables of the differences between two runs: A, whose page it is, and B, which is set beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter

from mimdsim.base.errors import MimdsimError
from mimdsim.base.units import counted, show_bytes
from mimdsim.profile import FIRING, RunProfile, Span, TiledProfile
from mimdsim.report.explorer_data import match_names
from mimdsim.report.formatting import changed_fields, significant, thousands
from mimdsim.report.tables import Cell, Table, Value, shown, table

NOTHING = "–"
PARTS_OF_CYCLES = ("compute", "exchange", "sync")


def difference_tables(profile: RunProfile, other: RunProfile) -> tuple[Table, ...]:
    """Totals, and supersteps matched by name. Raises MimdsimError if one of the runs has no tiled machine."""
    one, two = both_tiled(profile, other)
    return _totals(profile, one, other, two), _supersteps(one, two)


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
        *(row(f"{part} cycles", attrgetter(f"{part}_cycles")) for part in PARTS_OF_CYCLES),
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
        ("", "A", "B", "B − A", "B / A"),
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


def _supersteps(one: TiledProfile, two: TiledProfile) -> Table:
    """All supersteps of both, by the size of the change; those of one run only have no partner."""
    places = match_names([span.name for span in one.spans], [span.name for span in two.spans])
    pairs: list[tuple[Span | None, Span | None]] = [
        (span, two.spans[place] if place >= 0 else None) for span, place in zip(one.spans, places, strict=True)
    ]
    known_places = set(places)
    pairs += [(None, span) for place, span in enumerate(two.spans) if place not in known_places]
    pairs.sort(key=lambda pair: -abs(_change(*pair)))
    rows = []
    for a, b in pairs:
        known = a or b
        assert known is not None
        rows.append(
            [
                known.name,
                known.phase,
                a.cycles if a else NOTHING,
                b.cycles if b else NOTHING,
                _signed(thousands, _change(a, b)),
                _ratio(a.cycles, b.cycles) if a and b else NOTHING,
                *(_signed(thousands, _change(a, b, f"{part}_cycles")) for part in PARTS_OF_CYCLES),
            ]
        )
    alone = (sum(b is None for _, b in pairs), sum(a is None for a, _ in pairs))
    return table(
        "supersteps-compared",
        "Supersteps by the change of their cycles",
        ("superstep", "phase", "cycles A", "cycles B", "B − A", "B / A", *PARTS_OF_CYCLES),
        rows,
        f"Matched by name, equal names in order; {thousands(alone[0])} are only in A, {thousands(alone[1])} only in B. "
        "The last three columns are the parts of the change.",
    )


def _change(a: Span | None, b: Span | None, what: str = "cycles") -> int:
    return getattr(b, what, 0) - getattr(a, what, 0)


def _ratio(a: float, b: float) -> Value:
    return shown(f"{b / a:.3f}", b / a) if a else NOTHING


def _signed(say: Callable[[float], str], value: float) -> Cell:
    return shown(f"{'+' if value > 0 else '−' if value < 0 else ''}{say(abs(value))}", value)
