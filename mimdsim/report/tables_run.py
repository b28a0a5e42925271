"""Tables of a run: where time goes, how well tiles are used, what fills their memory; learning and spikes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mimdsim.base.shown import in_order
from mimdsim.base.units import counted
from mimdsim.profile import Activity, MemoryProfile, Span, TiledProfile, Training
from mimdsim.profile.operations import Cycles, cycles_by_operation
from mimdsim.report.formatting import significant, thousands, unit_of
from mimdsim.report.machine_comparison import PARTS, seconds_by_part
from mimdsim.report.tables import Table, Value, aligned_ms, percent, shown, size, table, three_digits, time_cell
from mimdsim.report.tables_difference import MERGED_PARTS

if TYPE_CHECKING:
    from mimdsim.profile.detail import Detail

MILLISECONDS = "total ms"
BUSIEST = 5
# what executed the training steps, by `training.engine` of a profile
ENGINES = {
    "whole_tensors": "whole tensors, within float32 rounding of the compiled program, which ran the recorded last step",
    "program": "the compiled program",
}


def phases_table(tiled: TiledProfile) -> Table:
    """Time of a run by phase and part; the last row is the whole."""
    total = tiled.seconds_per_training_step
    unit = unit_of(tiled)
    phases = in_order(span.phase for span in tiled.spans)
    rows = [_phase_row(tiled, phase, [span for span in tiled.spans if span.phase == phase]) for phase in phases]
    host, none = time_cell(tiled, tiled.host_exposed_seconds), time_cell(tiled, 0.0)
    if tiled.host_exposed_seconds:
        rows.append(["host", none, none, none, host, host, percent(tiled.host_exposed_seconds, total), 0])
    whole = _phase_row(tiled, "all", tiled.spans)
    whole[4:7] = host, time_cell(tiled, total), percent(total, total)
    streamed = time_cell(tiled, tiled.host_seconds).text
    headers = ("phase", *(f"{part} {unit}" for part in (*PARTS, "total")), "share", "supersteps run")
    without = () if tiled.host_exposed_seconds else (f"host {unit}",)
    waited = time_cell(tiled, tiled.seconds(tiled.memory_cycles)).text
    behind = f" Of exchange, {waited} {unit} are transfers of the memory behind the tiles that compute does not hide."
    notes = behind if tiled.memory_cycles else ""
    if tiled.hidden_cycles:
        hidden = time_cell(tiled, tiled.seconds(tiled.hidden_cycles)).text
        notes += f" Of the exchanges, {hidden} {unit} more go on while tiles compute, and are not counted."
    return table(
        "phases",
        f"{'Milliseconds' if tiled.trains else 'Cycles'} per {tiled.run_name} by phase",
        headers,
        rows,
        f"Host exchange of one {'batch' if tiled.trains else 'run'} takes {streamed} {unit}; only the part that "
        f"compute does not hide is counted.{notes}"
        if tiled.host_seconds
        else f"Inputs are on the tiles: nothing is streamed from the host.{notes}",
        total=whole,
        without=without,
        title="Where the time goes",
        page_only=headers[-1:],
    )


def _phase_row(tiled: TiledProfile, name: str, spans: Sequence[Span]) -> list[Value]:
    parts = (*seconds_by_part(tiled, spans), 0.0, tiled.seconds(sum(span.cycles for span in spans)))
    portion = percent(parts[-1], tiled.seconds_per_training_step)
    return [name, *(time_cell(tiled, part) for part in parts), portion, sum(span.times for span in spans)]


def supersteps_table(tiled: TiledProfile, most: int) -> Table:
    """The `most` longest supersteps with all their counts; without operations if the names already tell them."""
    total = tiled.seconds_per_training_step
    longest = sorted(tiled.spans, key=lambda span: -span.cycles)
    rows = [
        (
            span.name,
            span.op,
            span.phase,
            span.times,
            span.compute_cycles,
            span.exchange_cycles,
            span.sync_cycles,
            span.cycles,
            aligned_ms(tiled.seconds(span.cycles), total),
            percent(tiled.seconds(span.cycles), total),
            _balance(span, tiled),
            size(span.bytes_received),
            shown(significant(span.flops / 1e6), span.flops),
            span.slowest_tile if span.compute_cycles else shown("–", -1),
        )
        for span in longest[:most]
    ]
    without = {"operation"} if all(span.op in span.name for span in tiled.spans) else set()
    without |= set() if tiled.trains else {MILLISECONDS}
    loops = "Control of a loop has a row of its own. " if any(span.op == "repeat" for span in tiled.spans) else ""
    left = len(longest) - len(rows)
    note = f"{thousands(left)} shorter supersteps are left out here; supersteps.csv has all. " if left else ""
    return table(
        "supersteps",
        f"Supersteps, longest first; cycles are sums over all executions of one {tiled.run_name}",
        (
            "superstep", "operation", "phase", "times", "compute cycles", "exchange cycles", "sync cycles",
            "total cycles", MILLISECONDS, "share", "balance", "received", "MFLOP", "slowest tile",
        ),
        rows,
        f"{note}{loops}Balance: mean busy cycles of the used tiles divided by the compute cycles, which the slowest "
        "tile determines.",
        without=without,
        title=f"The {counted(len(rows), 'longest superstep')}",
        page_only=("operation", "total cycles", MILLISECONDS, "balance", "received", "MFLOP"),
    )  # fmt: skip


def _balance(span: Span, tiled: TiledProfile) -> Value:
    """Mean busy cycles of the used tiles over the slowest tile's."""
    if not span.compute_cycles or not tiled.tiles_used:
        return "–"
    balance = span.busy_cycles / tiled.tiles_used / span.compute_cycles
    return shown(f"{balance:.2f}", balance)


def doubts_table(tiled: TiledProfile, most: int) -> Table:
    """The `most` parts of the cycles that widen the interval most, and the exchange model not selected."""
    together: Counter[str] = Counter()
    for doubt in tiled.doubts:
        together[doubt.source] += doubt.half_width_cycles
    width = sum(size**2 for size in together.values()) or 1
    rows = [
        (
            doubt.name,
            doubt.kind,
            doubt.cycles,
            percent(doubt.cycles, tiled.cycles or 1),
            time_cell(tiled, tiled.seconds(doubt.half_width_cycles)),
            shown(_whole_share(doubt.half_width_cycles * together[doubt.source], width), doubt.half_width_cycles),
        )
        for doubt in tiled.doubts[:most]
    ]
    left = len(tiled.doubts) - len(rows)
    note = f"{thousands(left)} smaller parts are left out. " if left > 0 else ""
    known = tiled.residuals
    if known is not None and tiled.doubts:
        note += f"Together {100 * tiled.propagated:.1f} %, times {known.factor:g}: {known.text} (docs/intervals.md). "
    note += _other_model(tiled)
    headers = ("part", "kind of source", "cycles", "of all cycles", f"plus or minus {unit_of(tiled)}", "of the width")
    return table(
        "doubts",
        "What the interval is made of, widest first: parts of one source add up, squares of sources do",
        headers,
        rows,
        note,
        title="What widens the interval most" if rows else "",
        page_only=("cycles",),
        said=("", note),
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


def utilisation_table(tiled: TiledProfile) -> Table:
    """How well the tiles are used, by named measures."""
    busy = [cycles for cycles in tiled.tile_columns.busy_cycles if cycles]
    flops = sum(span.flops for span in tiled.spans)
    seconds = tiled.seconds_per_training_step
    clock = significant(tiled.clock_hz / 1e9, 4)
    rate = significant(flops / seconds / 1e12) if seconds else "–"
    rows = [
        ("tiles with work", f"{thousands(len(busy))} of {thousands(tiled.tiles)}"),
        ("tile balance (mean over busiest tile)", f"{tiled.tile_balance:.3f}"),
        ("time utilisation (busy tile cycles of all)", f"{100 * tiled.time_utilisation:.1f} %"),
        ("worker contexts per tile", thousands(tiled.worker_contexts)),
        (f"cycles of one {tiled.run_name}", f"{thousands(tiled.cycles)} at {clock} GHz"),
        ("arithmetic rate", f"{rate} TFLOP/s ({significant(flops / 1e9)} GFLOP per {tiled.run_name})"),
    ]
    return table("utilisation", "How well the tiles are used", ("measure", "value"), rows)


def balance_table(tiled: TiledProfile, detail: Detail) -> Table:
    """How evenly the tiles are busy, in the usual numbers, by phase; the last row is the whole run."""
    phase_of = [span.phase for span in tiled.spans[: len(detail.supersteps)]]

    def row(name: str, at: Sequence[int]) -> list[Value]:
        busy = detail.busy[list(at)].sum(axis=0)
        mean, most, tile = float(busy.mean()), int(busy.max()), int(busy.argmax())
        cycles = sum(tiled.spans[number].cycles for number in at)
        spread = float(busy.std()) / mean if mean else 0.0
        over = shown(f"{most / mean:.2f}", most / mean) if mean else "–"
        idle = percent(cycles * tiled.tiles - float(busy.sum()), cycles * tiled.tiles)
        with_work = int((busy > 0).sum())
        return [name, cycles, with_work, round(mean), most, tile, over, shown(f"{spread:.2f}", spread), idle]

    rows = [row(name, [at for at, phase in enumerate(phase_of) if phase == name]) for name in in_order(phase_of)]
    return table(
        "balance",
        "Load balance by phase, over all tiles",
        (
            "phase", "cycles", "tiles with work", "mean busy cycles", "busiest", "tile", "busiest over mean",
            "coefficient of variation", "idle share",
        ),
        rows,
        "Busy cycles of a tile are summed over the phase. Coefficient of variation: standard deviation over mean. Idle "
        "share: of the cycles of all tiles, those in which a tile has no work, exchange and sync included. Loop "
        "control is left out.",
        total=row("all", range(len(phase_of))),
    )  # fmt: skip


def layers_table(tiled: TiledProfile) -> Table:
    """Cycles by layer, phase and operation, most first; they add up to the whole run."""
    found = sorted(cycles_by_operation(tiled).items(), key=lambda one: -one[1].total)
    return table(
        "layers",
        "Cycles by layer, phase and operation",
        ("layer", "phase", "operation", "cycles", "share of the time", *Cycles._fields),
        [
            (key.layer or "–", key.phase, key.name, each.total, percent(each.total, tiled.cycles), *each)
            for key, each in found
        ],
        MERGED_PARTS,
    )


def tiles_table(tiled: TiledProfile) -> Table:
    """The busiest tiles."""
    columns = tiled.tile_columns
    order = sorted(range(len(columns.busy_cycles)), key=lambda tile: (-columns.busy_cycles[tile], tile))[:BUSIEST]
    sizes = (columns.bytes_sent, columns.bytes_received, columns.peak_bytes, columns.always_live_bytes)
    rows: list[Sequence[Value]] = [
        (
            tile,
            columns.layer[tile] or "–",
            columns.busy_cycles[tile],
            percent(columns.busy_cycles[tile], tiled.cycles),
            *(size(of_tiles[tile]) for of_tiles in sizes),
        )
        for tile in order
    ]
    return table(
        "tiles",
        f"The {len(rows)} busiest tiles",
        ("tile", "layer", "busy cycles", "of all cycles", "sent", "received", "peak memory", "always live"),
        rows,
        "tiles.csv has every tile.",
        without=() if any(columns.layer) else ("layer",),
    )


def categories_table(memory: MemoryProfile) -> Table:
    """Bytes by category on the fullest tile, and over all tiles."""

    def here(by_tile: Sequence[int]) -> int:
        return by_tile[memory.peak_tile] if memory.peak_tile < len(by_tile) else 0

    rows: list[Sequence[Value]] = []
    together = zip(memory.categories, memory.bytes_by_category_and_tile, strict=True)
    for category, by_tile in sorted(together, key=lambda pair: -here(pair[1])):
        most, total = max(by_tile, default=0), sum(by_tile)
        fullest, of_limit = here(by_tile), percent(here(by_tile), memory.limit_bytes)
        mean, where = total / len(by_tile) if by_tile else 0.0, by_tile.index(most) if most else "–"
        rows.append((category, size(fullest), of_limit, size(mean), size(most), where, size(total)))
    return table(
        "categories",
        f"Memory by category; fullest tile is {thousands(memory.peak_tile)}",
        ("category", "fullest tile", "of limit", "mean tile", "largest", "on tile", "all tiles"),
        rows,
        f"Peak {memory.peak_of_limit}; tiles.csv has every tile.",
        title=f"Memory on the fullest tile, {thousands(memory.peak_tile)}",
        page_only=("all tiles",),
    )


def variables_table(memory: MemoryProfile) -> Table:
    """The largest variables on the fullest tile."""
    rows = [
        (name, category, size(nbytes), percent(nbytes, memory.limit_bytes))
        for name, category, nbytes in memory.largest_on_peak_tile
    ]
    caption = f"Largest variables on the fullest tile, {thousands(memory.peak_tile)}"
    return table("variables", caption, ("variable", "category", "memory", "of limit"), rows)


def liveness_table(memory: MemoryProfile) -> Table:
    """The fullest superstep of every phase."""
    rows = []
    for phase in in_order(point.phase for point in memory.liveness):
        points = [point for point in memory.liveness if point.phase == phase]
        most = max(points, key=lambda point: point.fullest_tile_bytes)
        fullest, total = most.fullest_tile_bytes, max(point.total_bytes for point in points)
        of_limit = percent(fullest, memory.limit_bytes)
        rows.append((phase, size(fullest), of_limit, most.fullest_tile, most.superstep, size(total)))
    return table(
        "liveness",
        "The fullest moment of every phase",
        ("phase", "fullest tile", "of limit", "tile", "in superstep", "all tiles, at most"),
        rows,
        "liveness.csv has every superstep.",
        title="Liveness, fullest moment of every phase" if rows else "",
        page_only=("all tiles, at most",),
    )


def training_table(training: Training) -> Table:
    """Results of the training, as facts."""

    def accuracy(value: float | None) -> str:
        return "not evaluated" if value is None else f"{100 * value:.1f} %"

    loss = training.loss
    finite = [each for each in loss if math.isfinite(each)]
    rows = [
        ("training steps", f"{thousands(training.training_steps)} of batch {thousands(training.batch)}"),
        *([("trained by", ENGINES[training.engine])] if training.engine else []),
        ("training samples", thousands(training.samples)),
        ("loss, first to last", f"{significant(loss[0])} to {significant(loss[-1])}" if loss else "–"),
        ("lowest loss", significant(min(finite)) if finite else "–"),
        ("training accuracy", accuracy(training.train_accuracy)),
        ("test accuracy", f"{accuracy(training.test_accuracy)} ({counted(training.test_samples, 'sample')})"),
    ]
    if training.test_accuracy_all_spikes is not None:
        rows.append(("test accuracy, no spike dropped", accuracy(training.test_accuracy_all_spikes)))
    held = training.validation_accuracy_by_epoch
    if held:
        chosen = len(held) - 1 if training.best_epoch is None else training.best_epoch
        where = "last epoch" if training.best_epoch is None else f"epoch {chosen + 1}, whose weights were kept"
        samples = counted(training.validation_samples, "sample")
        rows.append(("validation accuracy", f"{accuracy(held[chosen])} ({samples}; {where})"))
    for name, values in training.scheduled:
        ends = f"{significant(values[0])} to {significant(values[-1])}, by training step"
        rows.append((name.replace("_", " ").replace(".", ", "), ends))
    return table("training", "Results of the training", ("measure", "value"), rows)


def activity_table(layers: tuple[Activity, ...]) -> Table:
    """Spikes, list entries, capacity and losses of every layer."""
    rows, numbers = [], any(layer.sends == "numbers" for layer in layers)
    of_numbers = " Of cells that send numbers: those that are not zero." if numbers else ""
    for layer in layers:
        spikes, entries = layer.spikes_by_timestep or (0.0,), layer.listed_by_timestep or (0.0,)
        mean, listed = sum(spikes) / len(spikes), sum(entries) / len(entries)
        filled = percent(listed, layer.capacity)
        lists = (three_digits(listed), layer.capacity, filled, percent(layer.full_lists), layer.dropped)
        rows.append(
            (
                layer.layer,
                layer.neurons,
                three_digits(mean),
                percent(mean, layer.neurons),
                three_digits(max(spikes)),
                *(lists if layer.sends == "lists" else ["–"] * len(lists)),
            )
        )
    return table(
        "activity",
        "Spikes per timestep and sample, mean over the batch of the recorded training step",
        (
            "layer", "neurons", "spikes", "firing share", "peak spikes", "listed", "capacity", "list filled",
            "full lists", "dropped",
        ),
        rows,
        "Listed: entries that are sent and processed, including those that only carry a gradient. Dropped: spikes "
        "beyond the capacity, over the whole batch and sequence." + of_numbers,
        title="Spikes per timestep and sample",
        page_only=("peak spikes", "list filled"),
    )  # fmt: skip


def sparsity_table(layers: tuple[Activity, ...]) -> Table | None:
    """The work that each pass saves, layer by layer; None if nothing was recorded."""
    rows = [
        (
            layer.layer,
            percent(found.forward),
            percent(found.state_gradient),
            percent(found.weight_gradient),
            percent(found.untouched_weights),
            percent(found.dropped_share),
        )
        for layer in layers
        if (found := layer.sparsity)
    ]
    if not rows:
        return None
    return table(
        "sparsity",
        "Sparsity of the three passes: shares of zeros in the recorded training step",
        ("layer", "forward", "state gradient", "weight gradient", "untouched weights", "spikes dropped"),
        rows,
        "Forward: neurons that emit no spike. State gradient: neurons that are not listed and get no gradient "
        "through their spikes. Weight gradient: weights to which a timestep of a sample adds nothing, because their "
        "presynaptic neuron emitted no spike. Untouched: weights to which no timestep of any sample adds anything. "
        "Dropped: share of all true spikes that are beyond the capacity.",
        title="Sparsity of the passes (share of zeros)",
    )
