"""Tables of time and tiles: phases, supersteps, busiest tiles."""

from __future__ import annotations

from mimdsim.base.phases import in_order
from mimdsim.base.units import show_bytes
from mimdsim.profile import Span, TiledProfile
from mimdsim.report.formatting import significant, thousands, unit_of
from mimdsim.report.machine_comparison import PARTS
from mimdsim.report.tables import Cell, Table, aligned_ms, count, percent, shown, spent, table, text

MILLISECONDS = "total ms"


def phases_table(tiled: TiledProfile) -> Table:
    """Time of a run by phase and part; the last row is the whole."""
    total = tiled.seconds_per_training_step
    unit = unit_of(tiled)
    rows = []
    for phase in in_order(span.phase for span in tiled.spans):
        spans = [span for span in tiled.spans if span.phase == phase]
        rows.append(_phase_row(tiled, phase, spans, total))
    host, none = spent(tiled, tiled.host_exposed_seconds), spent(tiled, 0.0)
    if tiled.host_seconds:
        rows.append([text("host"), none, none, none, host, host, percent(tiled.host_exposed_seconds, total), count(0)])
    whole = _phase_row(tiled, "all", list(tiled.spans), total)
    whole[4:7] = host, spent(tiled, total), percent(total, total)
    batch = f"Host exchange of one {'batch' if tiled.trains else 'run'} takes {spent(tiled, tiled.host_seconds).text}"
    headers = ("phase", *(f"{part} {unit}" for part in (*PARTS, "total")), "share", "supersteps run")
    kept = [at for at, header in enumerate(headers) if tiled.host_seconds or header != f"host {unit}"]
    return table(
        "phases",
        f"{'Milliseconds' if tiled.trains else 'Cycles'} per {tiled.run_name} by phase",
        [headers[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
        f"{batch} {unit}; only the part that compute does not hide is counted."
        if tiled.host_seconds
        else "Inputs are on the tiles: nothing is streamed from the host.",
        total=[whole[at] for at in kept],
    )


def supersteps_table(tiled: TiledProfile, most: int) -> Table:
    """The `most` longest supersteps with all their counts; without operations if the names already tell them."""
    total = tiled.seconds_per_training_step
    longest = sorted(tiled.spans, key=lambda span: -span.cycles)
    headers = (
        "superstep", "operation", "phase", "times", "compute cycles", "exchange cycles", "sync cycles",
        "total cycles", MILLISECONDS, "share", "balance", "received", "MFLOP", "slowest tile",
    )  # fmt: skip
    rows = [
        (
            text(span.name),
            text(span.op),
            text(span.phase),
            count(span.times),
            count(span.compute_cycles),
            count(span.exchange_cycles),
            count(span.sync_cycles),
            count(span.cycles),
            aligned_ms(tiled.seconds(span.cycles), total),
            percent(tiled.seconds(span.cycles), total),
            _balance(span, tiled),
            shown(show_bytes(span.bytes_received), span.bytes_received),
            shown(significant(span.flops / 1e6), span.flops),
            count(span.slowest_tile) if span.compute_cycles else shown("–", -1),
        )
        for span in longest[:most]
    ]
    told = all(span.op in span.name for span in tiled.spans)
    dropped = {"operation"} if told else set()
    dropped |= set() if tiled.trains else {MILLISECONDS}
    kept = [at for at, header in enumerate(headers) if header not in dropped]
    loops = "Control of a loop has a row of its own. " if any(span.op == "repeat" for span in tiled.spans) else ""
    left = len(longest) - len(rows)
    note = f"{thousands(left)} shorter supersteps are left out here; supersteps.csv has all. " if left else ""
    return table(
        "supersteps",
        f"Supersteps, longest first; cycles are sums over all executions of one {tiled.run_name}",
        [headers[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
        f"{note}{loops}Balance: mean busy cycles of the used tiles divided by the compute cycles, which the slowest "
        "tile determines.",
    )


def tiles_table(tiled: TiledProfile, most: int) -> Table:
    """The `most` busiest tiles."""
    columns = tiled.tile_columns
    order = sorted(range(len(columns.busy_cycles)), key=lambda tile: (-columns.busy_cycles[tile], tile))
    rows = [
        (
            count(tile),
            text(columns.layer[tile] or "–"),
            count(columns.busy_cycles[tile]),
            percent(columns.busy_cycles[tile], tiled.cycles),
            shown(show_bytes(columns.bytes_sent[tile]), columns.bytes_sent[tile]),
            shown(show_bytes(columns.bytes_received[tile]), columns.bytes_received[tile]),
            shown(show_bytes(columns.peak_bytes[tile]), columns.peak_bytes[tile]),
            shown(show_bytes(columns.always_live_bytes[tile]), columns.always_live_bytes[tile]),
        )
        for tile in order[:most]
    ]
    headers = ("tile", "layer", "busy cycles", "of all cycles", "sent", "received", "peak memory", "always live")
    kept = [at for at, header in enumerate(headers) if header != "layer" or any(columns.layer)]
    return table(
        "tiles",
        f"The {len(rows)} busiest tiles",
        [headers[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
        "tiles.csv has every tile.",
    )


def utilisation_table(tiled: TiledProfile) -> Table:
    """How well the tiles are used, by named measures."""
    busy = [cycles for cycles in tiled.tile_columns.busy_cycles if cycles]
    flops = sum(span.flops for span in tiled.spans)
    seconds = tiled.seconds_per_training_step
    clock = significant(tiled.clock_hz / 1e9, 4)
    rate = significant(flops / seconds / 1e12) if seconds else "–"
    rows = [
        (text("tiles with work"), text(f"{thousands(len(busy))} of {thousands(tiled.tiles)}")),
        (text("tile balance (mean over busiest tile)"), text(f"{tiled.tile_balance:.3f}")),
        (text("time utilisation (busy tile cycles of all)"), text(f"{100 * tiled.time_utilisation:.1f} %")),
        (text("worker contexts per tile"), text(thousands(tiled.worker_contexts))),
        (text(f"cycles of one {tiled.run_name}"), text(f"{thousands(tiled.cycles)} at {clock} GHz")),
        (text("arithmetic rate"), text(f"{rate} TFLOP/s ({significant(flops / 1e9)} GFLOP per {tiled.run_name})")),
    ]
    return table("utilisation", "How well the tiles are used", ("measure", "value"), rows)


def _phase_row(tiled: TiledProfile, name: str, spans: list[Span], total: float) -> list[Cell]:
    parts = (
        tiled.seconds(sum(span.compute_cycles for span in spans)),
        tiled.seconds(sum(span.exchange_cycles for span in spans)),
        tiled.seconds(sum(span.sync_cycles for span in spans)),
        0.0,
        tiled.seconds(sum(span.cycles for span in spans)),
    )
    runs = sum(span.times for span in spans)
    return [text(name), *(spent(tiled, part) for part in parts), percent(parts[-1], total), count(runs)]


def _balance(span: Span, tiled: TiledProfile) -> Cell:
    """Mean busy cycles of the used tiles over the slowest tile's."""
    if not span.compute_cycles or not tiled.tiles_used:
        return text("–")
    balance = span.busy_cycles / tiled.tiles_used / span.compute_cycles
    return shown(f"{balance:.2f}", balance)


def doubts_table(tiled: TiledProfile, most: int) -> Table:
    """The `most` parts of the cycles that widen the interval most, and the exchange model not selected."""
    width = sum(doubt.half_width_cycles for doubt in tiled.doubts) or 1
    rows = [
        (
            text(doubt.name),
            text(doubt.kind),
            count(doubt.cycles),
            percent(doubt.cycles, tiled.cycles or 1),
            spent(tiled, tiled.seconds(doubt.half_width_cycles)),
            shown(_whole_share(doubt.half_width_cycles, width), doubt.half_width_cycles),
        )
        for doubt in tiled.doubts[:most]
    ]
    left = len(tiled.doubts) - len(rows)
    return table(
        "doubts",
        "What the interval is made of, widest first",
        ("part", "kind of source", "cycles", "of all cycles", f"plus or minus {unit_of(tiled)}", "of the width"),
        rows,
        (f"{thousands(left)} smaller parts are left out. " if left > 0 else "") + _other_model(tiled),
    )


def _other_model(tiled: TiledProfile) -> str:
    ours, other = tiled.exchange_cycles, tiled.exchange_cycles_other_model
    if not ours or not other:
        return ""
    change = 100 * (other / ours - 1)
    percent = f"{change:+.0f} %" if abs(change) >= 1 else f"{change:+.1f} %"
    milliseconds = f", {significant(1e3 * tiled.seconds(other - ours))} ms" if tiled.trains else ""
    return (
        f"With the other exchange model (exchange.model) the exchanges would take {thousands(other)} cycles instead "
        f"of {thousands(ours)} ({percent}{milliseconds})."
    )


def _whole_share(part: float, whole: float) -> str:
    """A percentage without decimals: '24 %', '<1 %'."""
    percent = 100 * part / whole
    return "<1 %" if 0 < percent < 0.5 else f"{percent:.0f} %"
