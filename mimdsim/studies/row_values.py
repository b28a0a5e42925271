"""What a row of results may hold: types, ranges and what comes together, so that a row from a file is like our own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.program import RecordedActivity
from mimdsim.studies.metrics import ENERGY, TIME, Row, interval_columns
from mimdsim.studies.results import GPU_RESULTS, OF_TIME, POINT_RESULTS, SILICON
from mimdsim.workload import MappingOptions

KEY = re.compile("[0-9a-f]{64}")
MOST_TEXT = 100_000  # characters of a note
MOST_PARTS = 10_000  # sources of seconds
MOST = 1e30  # of any number
MOST_WHOLE = 1 << 63
WHOLE = (
    *("compute_cycles", "exchange_cycles", "sync_cycles", "tiles_used", "neurons_per_tile", "peak_bytes"),
    *("limit_bytes", "seed"),
)
TEXTS = ("note", "tool_version", "digest")
ORIGIN = ("asked", "inputs", "code")  # what a row is of; earlier ones do not say
LOW = ("_low", "_low_ms")  # ends of intervals that may reach below zero
TIMED = (  # where there is a time there are all of these
    *("ms_per_training_step", "ms_low", "ms_high", "compute_cycles", "exchange_cycles", "sync_cycles"),
    *("tile_balance", "tiles_used", "neurons_per_tile", "peak_bytes", "limit_bytes", "samples_per_second"),
    "seconds_by_source",
)
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no file can hold
_OF_GPU = re.compile(f"(.+) ({'|'.join(GPU_RESULTS)})")


def row_problem(key: str, row: Any) -> str:
    """Why this is no row of a finished point; '' if it is one."""
    if not isinstance(row, dict):
        return f"the row of {shortened(key)} is no table"
    return next((f"{wrong} (row {key[:12]})" for wrong in _problems(key, row)), "")


def _problems(key: str, row: Row) -> Iterator[str]:
    if lacks := [name for name in (*POINT_RESULTS, "note") if name not in row]:
        yield f"column '{lacks[0]}' is missing"
        return
    if not KEY.fullmatch(key) or row["digest"] != key:
        yield f"column 'digest' is {shortened(repr(row['digest']))}, not that of its point"
    if "asked" in row and not _is_origin(row):
        yield "does not say what it is of"
    if others := [name for name, value in row.items() if name not in ORIGIN and not _is_value(name, value)]:
        yield f"column '{shortened(others[0])}' is {shortened(repr(row[others[0]]))}"
        return
    if not isinstance(row["fits"], bool):
        yield "column 'fits' is not true or false"
    timed = row["ms_per_training_step"] is not None
    for name in TIMED:
        if (row[name] is None) == timed and (timed or name in OF_TIME):
            yield f"column '{name}' is {shortened(repr(row[name]))} {'beside a time' if timed else 'without a time'}"
    if timed and isinstance(row["seconds_by_source"], list) and not _is_whole(row):
        yield f"column 'seconds_by_source' does not come to {row['ms_per_training_step']} ms"
    gpus = {found[1] for name in row if (found := _OF_GPU.fullmatch(name))}
    for name in (TIME, ENERGY, *SILICON, *(f"{gpu} strongest_ms" for gpu in sorted(gpus)), "gpu_ratio"):
        if wrong := _interval(row, interval_columns(name)):
            yield wrong
    for gpu in sorted(gpus):
        if lacks := [name for name in GPU_RESULTS if f"{gpu} {name}" not in row]:
            yield f"column '{gpu} {lacks[0]}' is missing"


def _is_origin(row: Row) -> bool:
    """Whether a row says what it was asked for, from which inputs and by which code; older ones do not."""
    inputs = row.get("inputs")
    texts = (row["asked"], row.get("code"), *(inputs.values() if isinstance(inputs, dict) else (None,)))
    return all(isinstance(one, str) for one in texts)


def _interval(row: Row, names: Sequence[str]) -> str:
    """Why three columns are no number with an interval; '' if they are, or all are unknown."""
    values = [row.get(name) for name in names]
    if values == [None] * 3:
        return ""
    if None in values or not values[1] <= values[0] <= values[2]:  # type: ignore[operator]
        said = ", ".join(shortened(repr(value)) for value in values)
        return f"columns '{names[0]}', '{names[1]}' and '{names[2]}' are {said}, no number in an interval"
    return ""


def _is_value(name: str, value: Any) -> bool:
    """Whether a column may hold a value; a column that is not known may hold any plain one."""
    if name == "seconds_by_source":
        return value is None or _are_parts(value)
    if name in TEXTS:
        return _is_text(value)
    of_gpu = _OF_GPU.fullmatch(name)
    if of_gpu and of_gpu[2] == "strongest":
        return value is None or _is_text(value)
    known = name in POINT_RESULTS or bool(of_gpu)
    if value is None or name == "fits":
        return name != "seed"
    if not known and isinstance(value, (str, bool)):
        return isinstance(value, bool) or _is_text(value)
    if not _is_number(value) or (known and value < 0 and not name.endswith(LOW)):
        return False
    return ((isinstance(value, int) and value < MOST_WHOLE) or name not in WHOLE) and (value <= 1 or name != "accuracy")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_TEXT and not _SURROGATE.search(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST  # false for NaN


def _is_whole(row: Row) -> bool:
    """Whether the parts of a time come to it."""
    seconds, whole = sum(part[1] for part in row["seconds_by_source"]), 1e-3 * row["ms_per_training_step"]
    return bool(whole > 0 and abs(seconds - whole) <= 1e-9 + 1e-6 * whole)


def _are_parts(value: Any) -> bool:
    """[source, seconds, half width] of every source."""
    return (
        isinstance(value, list)
        and len(value) <= MOST_PARTS
        and all(
            isinstance(part, list)
            and len(part) == 3
            and _is_text(part[0])
            and _is_number(part[1])  # the rest beside all doubts may be a hair below zero
            and _is_number(part[2])
            and part[2] >= 0
            for part in value
        )
    )


# of a training its last step, its test accuracy if there was a test, and what is wrong with its samples
Spikes = tuple[RecordedActivity, float | None, tuple[str, ...]]


def spike_arrays(spikes: Spikes) -> dict[str, np.ndarray]:
    """Spikes as arrays, for a file or a network."""
    activity, accuracy, said = spikes
    arrays = {f"ids.{layer}": ids for layer, ids in activity.ids.items()}
    arrays |= {f"counts.{layer}": counts for layer, counts in activity.counts.items()}
    arrays |= {f"dropped.{layer}": np.array([dropped]) for layer, dropped in activity.dropped.items()}
    if accuracy is not None:
        arrays["accuracy"] = np.array([accuracy])
    if said:
        arrays["said"] = np.frombuffer("\n".join(said).encode(), np.uint8)
    return arrays


def spikes_of(arrays: Mapping[str, np.ndarray]) -> Spikes:
    """What `spike_arrays` was given; raises ValueError for anything else."""
    ids, counts, dropped = (
        {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        for prefix in ("ids.", "counts.", "dropped.")
    )
    accuracy, said = arrays.get("accuracy"), arrays.get("said", np.zeros(0, np.uint8))
    known = None if accuracy is None or accuracy.size != 1 else float(accuracy.reshape(-1)[0])
    others = arrays.keys() - {"accuracy", "said"} - {f"{kind}.{name}" for kind in ("ids", "counts") for name in ids}
    sound = ids.keys() == counts.keys() and others == {f"dropped.{name}" for name in dropped}
    sound &= all(array.shape == (1,) and array.dtype.kind in "iu" and array[0] >= 0 for array in dropped.values())
    if not sound or said.dtype != np.uint8 or not 0 <= (known or 0.0) <= 1:
        raise ValueError("holds no recorded spikes")
    lost = {name: int(array[0]) for name, array in dropped.items()}
    texts = tuple(said.tobytes().decode(errors="replace").splitlines())
    return RecordedActivity(ids=ids, counts=counts, dropped=lost), known, texts


def checked_result(found: Any, keys: Sequence[str]) -> Any:
    """What a worker of a cluster returned for points of these keys; raises MimdsimError for anything that no work
    returns."""
    try:
        if isinstance(found, list):
            if len(found) != len(keys):
                raise ValueError(f"{len(found)} rows for {len(keys)}")
            for key, row in zip(keys, found, strict=True):
                if not isinstance(row, Exception) and (wrong := row_problem(key, row)):
                    raise ValueError(wrong)
        elif isinstance(found, tuple):
            spikes_of(spike_arrays(found))
        elif found is not None and not isinstance(found, MappingOptions):
            raise TypeError("neither rows nor spikes nor a mapping")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        reason = shortened(f"{type(problem).__name__}: {problem}", 200)
        raise MimdsimError(f"a worker returned something else than results ({reason}); are all nodes yours?") from None
    return found
