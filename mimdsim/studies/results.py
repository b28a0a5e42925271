"""Results of a study: one row per point and workload, as CSV, Parquet, figure and console table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from mimdsim.base.units import show_bytes
from mimdsim.pipeline.overrides import MACHINE_SECTIONS, WORKLOAD_SECTIONS
from mimdsim.profile import UncertainSeconds, independent_ratio, ratio
from mimdsim.report.formatting import field_value, field_values, rounded, significant
from mimdsim.studies.metrics import ENERGY, INFERENCE, METRICS, TIME, Row, interval_columns

RATIOS = interval_columns("ratio")  # ratio of the time to that of the first point that fits and has one
SILICON = ("area_mm2", "static_watts", "dynamic_watts")
SIZES = {"area_mm2": "mm2", "static_watts": "static W"}
RESULTS = (
    *interval_columns(TIME),
    *RATIOS,
    "compute_cycles",
    "exchange_cycles",
    "sync_cycles",
    "tile_balance",
    "tiles_used",
    "neurons_per_tile",
    "peak_bytes",
    "limit_bytes",
    "fits",
    *interval_columns(ENERGY),
    *(column for name in SILICON for column in interval_columns(name)),
    "samples_per_second",
    "samples_per_joule",
    "accuracy",
    *interval_columns("gpu_ratio"),  # time of the fastest GPU by its strongest strategy, over the tiled machine's
)
OF_TIME = (  # what is unknown where the costs are
    *(column for name in (TIME, ENERGY, "dynamic_watts") for column in interval_columns(name)),
    *("samples_per_second", "samples_per_joule", "seconds_by_source"),
)
FIRING_COLUMN = "firing"  # said of layers of a point that never fire, or always; in no file of results but as a note
DESCRIBED = ("seed", "tool_version", "digest")  # what a row is of, besides the changes
POINT_RESULTS = (*(name for name in RESULTS if name not in RATIOS), "seconds_by_source", *DESCRIBED)  # of a point alone
TRAINS_ANEW = tuple(section for section in WORKLOAD_SECTIONS if section != "mapping")
# sections whose numbers are limits that may not be reached; more chips or tiles change the mapping
LIMITS = tuple(section for section in MACHINE_SECTIONS if section not in ("chip", "links", "area", "power"))
# fields of a workload that say how it is computed, or trained, and not how much there is to compute
CHOICES = ("mapping", "network.spikes", "network.capacity", "network.output_capacity", "network.truncation", "training")
# fields of which more can only be faster for one program; a slower step has another program
MORE = ("chip.tiles", "tile.worker_contexts", "exchange.bytes_per_cycle", "exchange.tiles_per_bus")
NO_EFFECT = 0.002  # share of the time: a negligible change
INFERENCE_RESULTS = tuple(
    column for name in INFERENCE for made in METRICS[name].columns for column in interval_columns(made)
)
GPU_RESULTS = ("published_ms", "strongest_ms", "strongest_low_ms", "strongest_high_ms", "strongest", "strongest_mj")


def gpu_columns(gpu: str) -> tuple[str, ...]:
    """Columns of one GPU: 'a100 published_ms' and so on."""
    return tuple(f"{gpu} {name}" for name in GPU_RESULTS)


def with_ratios(rows: Sequence[Row], reference: Row | None = None) -> list[Row]:
    """Rows with the ratio of the time to the reference's, else to the first row's that has one, with interval; none
    where one of the two cannot run.

    An error in a cost affects both by the same factor (`profile/ratios.py`), so the interval of a ratio is much
    narrower than those of the times.
    """
    parts = [_parts(row) if can_run(row) else () for row in rows]
    theirs = next((part for part in parts if part), ())
    if reference:
        theirs = _parts(reference) if can_run(reference) else ()
    found = []
    for row, ours in zip(rows, parts, strict=True):
        times = ratio(ours, theirs) if ours and theirs else None
        ratios = (times.middle, times.low, times.high) if times else (None, None, None)
        rounded = (None if value is None else round(value, 6) for value in ratios)
        found.append(row | dict(zip(RATIOS, rounded, strict=True)))
    return found


def is_property(field: str) -> bool:
    """Whether a field says what a workload asks to be computed, which nobody chooses for its speed."""
    section = field.split(".")[0]
    chosen = field != "training.batch" and (field in CHOICES or section in CHOICES)
    return section in WORKLOAD_SECTIONS and not chosen


def can_run(row: Row) -> bool:
    """Whether a point fits, so that its time is one that it takes."""
    return bool(row.get("fits", True))


def _parts(row: Row) -> tuple[UncertainSeconds, ...]:
    return tuple(
        UncertainSeconds(source=name, seconds=seconds, half_width=reach)
        for name, seconds, reach in row["seconds_by_source"] or ()
    )


def table_value(value: Any) -> Any:
    """A value as shown in tables: lists and tables of values as one word, everything else unchanged."""
    if isinstance(value, dict):
        return " ".join(f"{key}={table_value(each)}" for key, each in value.items())
    return "-".join(str(item) for item in value) if isinstance(value, (list, tuple)) else value


NARROW = (
    "compute",
    "exchange",
    "sync",
    "peak KiB",
    "published ms",
    "strongest ms",
    *SIZES.values(),
)  # what then is left out


def table_lines(rows: list[Row], axes: list[str], gpus: tuple[str, ...] = (), *, narrow: bool = False) -> list[str]:
    """The table for the console: `table_cells`, aligned; narrow: without the columns that end in NARROW, and without
    fields that are alike in all of several rows."""
    cells = table_cells(rows, axes, gpus)
    alike = [len(rows) > 1 and len({line[at] for line in cells[1:]}) == 1 for at in range(len(axes))]
    kept = [
        at
        for at, name in enumerate(cells[0])
        if not (narrow and (alike[at] if at < len(axes) else name.endswith(NARROW)))
    ]
    return align_columns([[line[at] for at in kept] for line in cells])


def table_cells(rows: list[Row], axes: list[str], gpus: tuple[str, ...] = ()) -> list[list[str]]:
    """The cells of the table of a sweep, its head first.

    Changed fields, milliseconds with interval, their ratio to the first row with its interval, cycle shares, memory;
    area and static watts where they differ; per GPU the milliseconds as published and of its strongest strategy, and
    their ratio to the tiled machine's, with the interval from opposite ends of both.
    """
    header = [*axes, "ms/step", "interval", "times the first", "compute", "exchange", "sync", "peak KiB", "fits"]
    sizes = [name for name in SIZES if len({row.get(name) for row in rows}) > 1]
    header += [SIZES[name] for name in sizes]
    header += [f"{gpu} {what}" for gpu in gpus for what in ("published ms", "strongest ms", "ms / tiled ms")]
    cells = [header]
    named = list(zip(*(field_values(key, [row[key] for row in rows]) for key in axes), strict=True))
    for row, line in zip(rows, map(list, named) if axes else ([] for _ in rows), strict=True):
        if row["ms_per_training_step"] is None:
            why = "no result" if row["fits"] is None else "unknown" if row["fits"] else "no tiles"
            cells.append([*line, *["-"] * 7, why, *["-"] * len(sizes), *_gpu_cells(row, gpus)])
            continue
        total = max(1, row["compute_cycles"] + row["exchange_cycles"] + row["sync_cycles"])
        shares = [f"{100 * row[name] / total:.0f} %" for name in ("compute_cycles", "exchange_cycles", "sync_cycles")]
        interval = f"{rounded(row['ms_low'])}-{rounded(row['ms_high'])}"
        memory = f"{row['peak_bytes'] / 1024:.0f}"
        over = row["peak_bytes"] - row["limit_bytes"]
        fits = "yes" if row["fits"] else f"no, {show_bytes(over)} over" if over > 0 else "no, its code"
        cells.append([*line, rounded(row["ms_per_training_step"], 4), interval, _times(row), *shares, memory, fits])
        cells[-1] += [_size(row, name) for name in sizes] + _gpu_cells(row, gpus)
    return cells


def align_columns(lines: Sequence[Sequence[str]]) -> list[str]:
    """Cells below each other, right-aligned."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]


def _size(row: Row, name: str) -> str:
    if row.get(name) is None:
        return "unknown"
    middle, low, high = (significant(row[end]) for end in interval_columns(name))
    return f"{middle} ({low}-{high})"


def _times(row: Row) -> str:
    middle, low, high = (row[name] for name in RATIOS)
    if middle is None or not row["fits"]:
        return "-"
    return rounded(middle) if low == high else f"{rounded(middle)} ({rounded(low)}-{rounded(high)})"


def note_lines(rows: list[Row], axes: list[str], trained: bool = False, ratios: bool = True) -> list[str]:
    """Notes on points, each once, with the first point it applies to; and which steps of an axis change no time.

    trained: whether the points' spikes come from trainings, which vary. ratios: whether "times the first" is shown.
    """
    first: dict[str, list[str]] = {}
    values = {key: list(dict.fromkeys(row[key] for row in rows)) for key in axes}
    for row in rows:
        if row["note"]:
            named = ", ".join(f"{key}={field_value(key, row[key], values[key])}" for key in axes)
            first.setdefault(row["note"], []).append(named)
    said = [
        f"! {points[0]}{f' and {len(points) - 1} more' if len(points) > 1 else ''}: {note}"
        for note, points in first.items()
    ]
    timed = next((row for row in rows if row["ms_per_training_step"]), None)
    if ratios and timed is not None and not timed["fits"] and any(row["fits"] for row in rows):
        said.append("! times the first: of the first point that fits; those before it do not fit their memory")
    said += _trained_apart(rows, axes) if trained else []
    return said + [line for axis in axes for line in _without_effect(rows, axis, axes)]


def _trained_apart(rows: list[Row], axes: list[str]) -> list[str]:
    """A note on points that were trained separately because their networks, data or seeds differ."""
    apart = [axis for axis in axes if axis.split(".")[0] in TRAINS_ANEW and len({str(row[axis]) for row in rows}) > 1]
    if not apart:
        return []
    return [
        f"! {', '.join(apart)}: every value was trained separately; no interval includes how spikes vary from "
        "training to training (sweep seed=1,2,3 to see it)"
    ]


def _without_effect(rows: list[Row], axis: str, axes: list[str]) -> Iterator[str]:
    """The steps from one value of an axis to the next that change no time: something else is the limit there."""
    timed = [row for row in rows if row["ms_per_training_step"]]
    values = list(dict.fromkeys(row[axis] for row in timed))
    names = dict(zip(values, field_values(axis, values), strict=True))
    by_value: dict[Any, dict[tuple[Any, ...], Row]] = {value: {} for value in values}
    for row in timed:
        by_value[row[axis]][tuple(row[other] for other in axes if other != axis)] = row
    for before, after in pairwise(values):
        pairs = [(by_value[before][key], by_value[after][key]) for key in by_value[before] if key in by_value[after]]
        running = [(one, two) for one, two in pairs if one["fits"] and two["fits"]]
        gains = [two["ms_per_training_step"] / one["ms_per_training_step"] - 1 for one, two in running]
        changes = [abs(gain) for gain in gains]
        if axis in MORE and changes and is_number(before) and is_number(after) and before != after:
            longer = max(gain if after > before else 1 / (1 + gain) - 1 for gain in gains)
            if longer > NO_EFFECT:
                least, most = (names[value] for value in sorted((before, after)))
                yield (
                    f"! {axis} from {least} to {most} takes up to {longer:.1%} longer: each value has a program of its "
                    "own, placed by rules that look at one layer or product at a time (docs/mapping.md, "
                    "docs/dense-spikes.md)"
                )
        if changes and max(changes) < NO_EFFECT:
            same = all(one["fits"] == two["fits"] for one, two in pairs)  # else it decides what can run
            why = ": it limits nothing here" if same and axis.split(".")[0] in LIMITS else ""
            why = why or ("" if same else ", but what fits")
            ends = " to ".join(names[value] for value in (before, after))
            yield f"= {axis} from {ends} changes no time by more than {NO_EFFECT:.1%}{why}"


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def gpu_ratio(row: Row, gpu: str) -> tuple[float, float, float] | None:
    """How many times as fast as a GPU, by its strongest strategy, the tiled machine is, and the interval of that. None
    where one of the two has no time, or does not fit."""
    theirs, ours = ([row[name] for name in interval_columns(each)] for each in (f"{gpu} strongest_ms", TIME))
    if not theirs[0] or not ours[0] or not row["fits"]:
        return None
    times = independent_ratio((theirs[0], theirs[1], theirs[2]), (ours[0], ours[1], ours[2]))
    return times.middle, times.low, times.high


def _gpu_cells(row: Row, gpus: tuple[str, ...]) -> list[str]:
    cells = []
    for gpu in gpus:
        times, ratios = (row[f"{gpu} {name}"] for name in ("published_ms", "strongest_ms")), gpu_ratio(row, gpu)
        cells += [f"{number:.4g}" if number else "-" for number in times]
        cells.append("{} ({}-{})".format(*(significant(end, 2) for end in ratios)) if ratios else "-")
    return cells
