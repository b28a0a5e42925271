"""Tables of the differences between two runs: A, whose page it is, and B, which is set beside it."""

from __future__ import annotations

from collections.abc import Callable

from mimdsim.base.errors import MimdsimError
from mimdsim.base.units import counted, show_bytes
from mimdsim.profile import FIRING, RunProfile, Span, TiledProfile
from mimdsim.report.explorer_data import matched
from mimdsim.report.formatting import changed_fields, significant, thousands
from mimdsim.report.tables import Cell, Table, count, shown, table, text

NOTHING = text("–")


def difference_tables(profile: RunProfile, other: RunProfile) -> tuple[Table, ...]:
    """Totals, and supersteps matched by name. Raises MimdsimError if one of the runs has no tiled machine."""
    for run, name in ((profile, "A"), (other, "B")):
        if run.tiled is None:
            raise MimdsimError(
                f"run {name} ({run.workload}) has no tiled machine, so there is nothing to compare; make it again with "
                "one"
            )
    assert profile.tiled is not None
    assert other.tiled is not None
    return _totals(profile, profile.tiled, other, other.tiled), _supersteps(profile.tiled, other.tiled)


def _totals(profile: RunProfile, one: TiledProfile, other: RunProfile, two: TiledProfile) -> Table:
    numbers = (
        ("cycles", one.cycles, two.cycles),
        ("compute cycles", one.compute_cycles, two.compute_cycles),
        ("exchange cycles", one.exchange_cycles, two.exchange_cycles),
        ("sync cycles", one.sync_cycles, two.sync_cycles),
        ("tiles used", one.tiles_used, two.tiles_used),
        ("flops", sum(span.flops for span in one.spans), sum(span.flops for span in two.spans)),
    )
    seconds = (one.seconds_per_training_step, two.seconds_per_training_step)
    sizes = (
        ("peak memory of the fullest tile", one.memory.peak_bytes, two.memory.peak_bytes),
        ("bytes received", sum(one.tile_columns.bytes_received), sum(two.tile_columns.bytes_received)),
    )
    no_times = one.incomparable or two.incomparable
    rows = [[text(name), count(a), count(b), _signed(thousands, b - a), _ratio(a, b)] for name, a, b in numbers]
    rows[0][-1] = NOTHING if no_times else rows[0][-1]
    told = [1e3 * each for each in seconds]
    rows.insert(1, [text("time, ms"), *(shown(significant(ms, 4), ms) for ms in told),
                    _signed(lambda ms: significant(ms, 4), told[1] - told[0]),
                    NOTHING if no_times else _ratio(*told)])  # fmt: skip
    rows += [
        [text(name), shown(show_bytes(a, b), a), shown(show_bytes(b, a), b), _signed(show_bytes, b - a), _ratio(a, b)]
        for name, a, b in sizes
    ]
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
    places = matched([span.name for span in one.spans], [span.name for span in two.spans])
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
                text(known.name),
                text(known.phase),
                count(a.cycles) if a else NOTHING,
                count(b.cycles) if b else NOTHING,
                _signed(thousands, _change(a, b)),
                _ratio(a.cycles, b.cycles) if a and b else NOTHING,
                *(
                    _signed(thousands, (getattr(b, part) if b else 0) - (getattr(a, part) if a else 0))
                    for part in ("compute_cycles", "exchange_cycles", "sync_cycles")
                ),
            ]
        )
    alone = (sum(b is None for _, b in pairs), sum(a is None for a, _ in pairs))
    return table(
        "supersteps-compared",
        "Supersteps by the change of their cycles",
        ("superstep", "phase", "cycles A", "cycles B", "B − A", "B / A", "compute", "exchange", "sync"),
        rows,
        f"Matched by name, equal names in order; {thousands(alone[0])} are only in A, {thousands(alone[1])} only in B. "
        "The last three columns are the parts of the change.",
    )


def _change(a: Span | None, b: Span | None) -> int:
    return (b.cycles if b else 0) - (a.cycles if a else 0)


def _ratio(a: float, b: float) -> Cell:
    return shown(f"{b / a:.3f}", b / a) if a else NOTHING


def _signed(say: Callable[[float], str], value: float) -> Cell:
    return shown(f"{'+' if value > 0 else '−' if value < 0 else ''}{say(abs(value))}", value)
