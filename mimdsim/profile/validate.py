"""What the numbers of a profile must satisfy, beyond their types, to make sense: for profiles from other people.

Only what holds for every profile that mimdsim writes is required. First each number is checked alone; then, if all of
them are sound, how they relate to each other.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sized
from itertools import islice
from typing import Any

from mimdsim.base.files import are_plain
from mimdsim.profile.records import Activity, GpuProfile, Inference, MemoryProfile, RunProfile, TiledProfile, Training

MOST = 2**63 - 1  # integers become int64 columns when drawn; no float in a profile comes near
SLACK = 1e-9  # relative: sums of floats round
MOST_COLUMNS = 1 << 16  # of a tile grid, where there are fewer tiles: the places of the last row are drawn too
POSITIVE = frozenset(
    {"timesteps", "batch", "runs", "device_seconds", "clock_hz", "tiles", "chips", "worker_contexts", "grid_columns",
     "limit_bytes", "memory_bytes", "neurons"}
)  # fmt: skip
SHARES = frozenset(
    {"forward", "state_gradient", "weight_gradient", "untouched_weights", "dropped_share", "full_lists",
     "train_accuracy", "test_accuracy", "test_accuracy_all_spikes", "test_accuracy_by_epoch", "train_accuracy_by_epoch",
     "validation_accuracy_by_epoch"}
)  # fmt: skip
# second thresholds count from the resting potential; a change may cost time, or save bytes
ANY_SIGN = frozenset({"scheduled", "gain", "gain_low", "gain_high", "more_bytes"})
ANY_NUMBER = "loss"  # of a training that diverged
ANY_LENGTH = "seed"  # shown but not used in calculations
MEMORY_COLUMNS = {"peak_bytes_by_tile": "peak_bytes", "always_live_bytes_by_tile": "always_live_bytes"}  # are the same
NO_TILE = "exchange_tile"  # -1 where nothing moves
SPAN_TILES = ("slowest_tile", NO_TILE)
PER_TILE = ("busy_cycles", "bytes_sent", "bytes_received", "peak_bytes", "always_live_bytes", "layer")

Problem = tuple[str, object, str]  # dotted path of the field, its value or what is said of it, what it must be


def contradictions(profile: RunProfile, most: int) -> list[str]:
    """The first `most` problems of `profile`, each with field, value and what it must be; none for a sound one."""
    found = list(islice(_numbers(profile, "", ""), most)) or list(islice(_relations(profile), most))
    return [f"field '{where}': {_shorten(value)}, must be {wanted}" for where, value, wanted in found]


def _shorten(value: object) -> str:
    """A value in a message, cut if it has hundreds of digits."""
    said = str(value)
    return said if len(said) <= 32 else f"{said[:12]}.. ({len(said)} digits)"


def _numbers(record: Any, where: str, field: str) -> Iterator[Problem]:
    """Every impossible number in a record or tuple; `where` is the path to it and a dot, `field` its last name."""
    column = isinstance(record, tuple)
    if column and are_plain(record):  # of a number for every tile, few differ
        each = set(zip(map(type, record), record, strict=True))
        if not any(kind in (int, float) and _required(value, field) for kind, value in each):
            return
    for name, value in enumerate(record) if column else vars(record).items():
        last = field if column else str(name)
        if type(value) in (int, float):
            if wanted := _required(value, last):
                yield f"{where}{name}", value, wanted
        elif isinstance(value, tuple) or dataclasses.is_dataclass(value):
            yield from _numbers(value, f"{where}{name}.", last)


def _required(number: float, field: str) -> str:
    """What a number of the field must be, '' where it is. Comparisons with NaN are false."""
    if field == ANY_NUMBER or (field == ANY_LENGTH and number >= 0):
        return ""
    if field == NO_TILE and number == -1:
        return ""
    if field in SHARES:
        return "" if 0 <= number <= 1 else "a share, 0 to 1"
    if field in ANY_SIGN:
        return "" if -MOST <= number <= MOST else "a finite number"
    if field in POSITIVE:
        return "" if 0 < number <= MOST else "a finite number above 0, below 2^63"
    return "" if 0 <= number <= MOST else "a finite number of at least 0, below 2^63"


def _relations(profile: RunProfile) -> Iterator[Problem]:
    if profile.tiled is not None:
        yield from _check_tiled(profile.tiled, "tiled")
    for index, tiled in enumerate(profile.tiled_beside):
        yield from _check_tiled(tiled, f"tiled_beside.{index}")
    for index, gpu in enumerate(profile.gpus):
        yield from _seconds(gpu, f"gpus.{index}")
    if profile.training is not None:
        yield from _training(profile.training)
    for index, one in enumerate(profile.advice):
        if one.command and not _one_command(one.command):
            yield f"advice.{index}.command", one.command[:80], "a command of ours, or empty"
        if not one.gain_low <= one.gain <= one.gain_high <= 1:
            yield f"advice.{index}.gain", one.gain, f"between {one.gain_low} and {one.gain_high}, at most 1"
    for index, batch in enumerate(profile.inference):
        yield from _inference(batch, f"inference.{index}")
    for index, layer in enumerate(profile.activity):
        yield from _activity(layer, f"activity.{index}", profile.timesteps)


def _check_tiled(tiled: TiledProfile, where: str) -> Iterator[Problem]:
    if unequal := list(_columns(tiled, where)):
        yield from unequal  # the checks below pair the columns
        return
    yield from _indices(tiled, where)
    yield from _totals(tiled, where)
    yield from _memory(tiled.memory, f"{where}.memory", tiled)
    yield from _silicon(tiled, where)
    yield from _seconds(tiled, where)


def _at_most(where: str, number: float, most: float, of: str, slack: float = 0.0) -> Iterator[Problem]:
    """A number beyond that of another field."""
    if number > most * (1 + slack):
        yield where, number, f"at most {of}, {most!r}"


def _entries(where: str, column: Sized, count: int, of: str) -> Iterator[Problem]:
    """A column that has not one entry each."""
    if len(column) != count:
        yield where, f"{len(column)} entries", f"{count}, one for each of '{of}'"


def _silicon(tiled: TiledProfile, where: str) -> Iterator[Problem]:
    """Parts of a chip that are further off than they are large, volts in disorder, watts that are unknown and told."""
    chip = tiled.silicon
    if chip is None:
        return
    named = [(f"area.{index}", part) for index, part in enumerate(chip.area)]
    named += [(f"static.{index}", part) for index, part in enumerate(chip.static)]
    named += [("full_load", chip.full_load)] if chip.full_load is not None else []
    for path, part in named:
        yield from _at_most(f"{where}.silicon.{path}.half_width", part.half_width, part.value, "its value", SLACK)
    yield from _at_most(f"{where}.silicon.volts_low", chip.volts_low, chip.volts_high, "its volts_high")
    if bool(chip.unknown) == bool(chip.static):
        yield f"{where}.silicon.unknown", chip.unknown[:80], "empty where static watts are given, else the reason"


def _one_command(command: str) -> bool:
    """Whether a shell takes nothing but words from it, the first of which are ours."""
    try:
        return command.startswith(("mimdsim run ", "mimdsim check ")) and shlex.join(shlex.split(command)) == command
    except ValueError:
        return False


def _columns(tiled: TiledProfile, where: str) -> Iterator[Problem]:
    """Columns whose length is not the number of tiles."""
    memory, tiles = tiled.memory, tiled.tiles
    columns = [(f"tile_columns.{name}", getattr(tiled.tile_columns, name)) for name in PER_TILE]
    columns += [(f"memory.{name}", getattr(memory, name)) for name in MEMORY_COLUMNS]
    rows = memory.bytes_by_category_and_tile
    columns += [(f"memory.bytes_by_category_and_tile.{index}", row) for index, row in enumerate(rows)]
    for name, column in columns:
        yield from _entries(f"{where}.{name}", column, tiles, f"{where}.tiles")
    path, of = f"{where}.memory.bytes_by_category_and_tile", f"{where}.memory.categories"
    yield from _entries(path, rows, len(memory.categories), of)
    if tiles % tiled.chips:
        yield f"{where}.chips", tiled.chips, f"a divisor of '{where}.tiles', {tiles}"
    columns_most = max(tiles, MOST_COLUMNS)
    if tiled.tile_columns.grid_columns > columns_most:
        yield f"{where}.tile_columns.grid_columns", tiled.tile_columns.grid_columns, f"at most {columns_most}"


def _indices(tiled: TiledProfile, where: str) -> Iterator[Problem]:
    """Tile numbers that do not exist."""
    named = [(f"spans.{at}.{name}", getattr(span, name)) for at, span in enumerate(tiled.spans) for name in SPAN_TILES]
    named += [
        (f"memory.liveness.{at}.fullest_tile", point.fullest_tile) for at, point in enumerate(tiled.memory.liveness)
    ]
    for name, tile in named:
        if tile >= tiled.tiles:
            yield f"{where}.{name}", tile, f"below '{where}.tiles', {tiled.tiles}"


def _totals(tiled: TiledProfile, where: str) -> Iterator[Problem]:
    """Sums over supersteps that are not those over tiles, and parts beyond their whole."""
    columns = tiled.tile_columns
    used = sum(cycles > 0 for cycles in columns.busy_cycles)
    if tiled.tiles_used != used:
        yield f"{where}.tiles_used", tiled.tiles_used, f"the number of tiles with busy cycles, {used}"
    for name in ("busy_cycles", "bytes_received"):
        total, by_tile = sum(getattr(span, name) for span in tiled.spans), sum(getattr(columns, name))
        if total != by_tile:
            yield f"{where}.tile_columns.{name}", f"{by_tile} in sum", f"that of '{where}.spans', {total}"
    for index, span in enumerate(tiled.spans):
        for part in ("link_cycles", "memory_cycles"):
            path = f"{where}.spans.{index}.{part}"
            yield from _at_most(path, getattr(span, part), span.exchange_cycles, "its exchange_cycles")
        of_parts = sum(part.compute_cycles for part in span.parts)
        if span.parts and of_parts != span.compute_cycles:
            path = f"{where}.spans.{index}.parts"
            yield path, f"{of_parts} in sum", f"that of its compute_cycles, {span.compute_cycles}"
    for index, doubt in enumerate(tiled.doubts):
        path = f"{where}.doubts.{index}.half_width_cycles"
        yield from _at_most(path, doubt.half_width_cycles, doubt.cycles, "its cycles")


def _memory(memory: MemoryProfile, where: str, tiled: TiledProfile) -> Iterator[Problem]:
    """Bytes that contradict other fields of the record."""
    for ours, column in MEMORY_COLUMNS.items():
        pairs = zip(getattr(memory, ours), getattr(tiled.tile_columns, column), strict=True)
        for tile, (one, other) in enumerate(pairs):
            if one != other:
                yield f"{where}.{ours}.{tile}", one, f"that of tile_columns.{column}, {other}"
                break
    by_tile, peak = memory.peak_bytes_by_tile, memory.peak_bytes
    if peak != max(by_tile):
        yield f"{where}.peak_bytes", peak, f"the largest of peak_bytes_by_tile, {max(by_tile)}"
        return
    if memory.peak_tile >= len(by_tile) or by_tile[memory.peak_tile] != peak:
        yield f"{where}.peak_tile", memory.peak_tile, f"a tile with the peak_bytes, {peak}"
        return
    together = sum(row[memory.peak_tile] for row in memory.bytes_by_category_and_tile)
    if together != peak:
        yield f"{where}.bytes_by_category_and_tile", f"{together} in sum", f"the peak_bytes on the peak tile, {peak}"
    for tile, (always, most) in enumerate(zip(memory.always_live_bytes_by_tile, by_tile, strict=True)):
        if always > most:
            yield f"{where}.always_live_bytes_by_tile.{tile}", always, f"at most the peak of its tile, {most}"
    for index, (_, _, size) in enumerate(memory.largest_on_peak_tile):
        yield from _at_most(f"{where}.largest_on_peak_tile.{index}.2", size, peak, "the peak_bytes")
    for index, point in enumerate(memory.liveness):
        path = f"{where}.liveness.{index}.fullest_tile_bytes"
        yield from _at_most(path, point.fullest_tile_bytes, point.total_bytes, "its total_bytes")
    highest = max((point.fullest_tile_bytes for point in memory.liveness), default=peak)
    if highest != peak:
        yield f"{where}.peak_bytes", peak, f"the largest fullest_tile_bytes of its liveness, {highest}"


def _seconds(machine: TiledProfile | GpuProfile, where: str) -> Iterator[Problem]:
    """Intervals of time and energy that do not contain their number."""
    exposed, host, seconds = machine.host_exposed_seconds, machine.host_seconds, machine.seconds_per_training_step
    yield from _at_most(f"{where}.host_exposed_seconds", exposed, host, "its host_seconds", SLACK)
    if machine.seconds_low > seconds * (1 + SLACK):
        yield f"{where}.seconds_low", machine.seconds_low, f"at most the seconds of its training step, {seconds!r}"
    elif machine.seconds_high < seconds * (1 - SLACK):
        yield f"{where}.seconds_high", machine.seconds_high, f"at least the seconds of its training step, {seconds!r}"
    elif isinstance(machine, TiledProfile) and machine.doubts:
        for name, end in zip(("seconds_low", "seconds_high"), machine.device_ends, strict=True):
            longer = 2 * host if exposed else max(0.0, 2 * host - end)  # that the host may be waited for there
            slack = SLACK * (seconds + end)
            if not end - slack <= getattr(machine, name) <= end + longer + slack:
                yield f"{where}.{name}", getattr(machine, name), f"what the half widths of its doubts make it, {end!r}"
    for index, part in enumerate(machine.energy.parts if machine.energy is not None else ()):
        path = f"{where}.energy.parts.{index}.half_width_joules"
        yield from _at_most(path, part.half_width_joules, part.joules, "its joules", SLACK)


def _training(training: Training) -> Iterator[Problem]:
    """Curves without one number for each training step or epoch."""
    steps, of = training.training_steps, "training.training_steps"
    yield from _entries("training.loss", training.loss, steps, of)
    for index, (_, values) in enumerate(training.scheduled):
        yield from _entries(f"training.scheduled.{index}.1", values, max(steps, 1), of)
    if training.samples != steps * training.batch:
        wanted = f"training_steps times batch, {steps * training.batch}"
        yield "training.samples", training.samples, wanted
    epochs = len(training.train_accuracy_by_epoch)
    if epochs > steps:
        path = "training.train_accuracy_by_epoch"
        yield path, f"{epochs} entries", f"at most the {steps} of 'training.training_steps'"
    held = len(training.validation_accuracy_by_epoch)
    if training.best_epoch is not None and training.best_epoch >= held:
        yield "training.best_epoch", training.best_epoch, f"below the {held} epochs of validation_accuracy_by_epoch"


def _inference(batch: Inference, where: str) -> Iterator[Problem]:
    """Intervals that do not contain their number, and parts beyond their whole."""
    yield from _at_most(f"{where}.fixed_seconds", batch.fixed_seconds, batch.tiled.device_seconds, "its device_seconds")
    times = [(f"{where}.tiled", batch.tiled), *((f"{where}.gpus.{at}", one) for at, one in enumerate(batch.gpus))]
    for path, one in times:
        ends = [
            ("device_low", one.device_low, one.device_seconds),
            ("device_seconds", one.device_seconds, one.device_high),
        ]
        ends += [("exposed_seconds", one.exposed_seconds, one.host_seconds)]
        if one.joules is not None:
            ends += [("joules_low", one.joules_low, one.joules), ("joules", one.joules, one.joules_high)]
        for name, number, most in ends:
            yield from _at_most(f"{path}.{name}", number, most, "the number above it", SLACK)


def _activity(layer: Activity, where: str, timesteps: int) -> Iterator[Problem]:
    """Curves of a different length than the timesteps, and spikes of neurons or timesteps that do not exist."""
    for name in ("spikes_by_timestep", "listed_by_timestep"):
        yield from _entries(f"{where}.{name}", getattr(layer, name), timesteps, "timesteps")
    for index, (timestep, neuron) in enumerate(layer.raster):
        if timestep >= timesteps:
            yield f"{where}.raster.{index}.0", timestep, f"a timestep, below {timesteps}"
        if neuron >= layer.neurons:
            yield f"{where}.raster.{index}.1", neuron, f"a neuron of its layer, below {layer.neurons}"
