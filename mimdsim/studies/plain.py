"""What a worker of a cluster found, as plain data: a JSON text and the bytes of arrays.

What arrives is held against what its work may return, as rows and spikes from disk are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.base.files import dump_json, parse_json
from mimdsim.program import RecordedActivity
from mimdsim.studies.row_values import row_problem
from mimdsim.workload import MappingOptions

Plain = tuple[str, dict[str, bytes]]
MOST_CHARACTERS = 1 << 26


class WorkerFailure(Exception):
    """A worker failed as mimdsim should not; the text is its own."""


def to_plain(found: Any) -> Plain:
    """Rows (or why there is none), recorded spikes, a mapping, nothing, or an exception."""
    arrays: dict[str, bytes] = {}
    if isinstance(found, list):
        said: Any = {"rows": [_failure(row) if isinstance(row, Exception) else {"row": row} for row in found]}
    elif isinstance(found, Exception):
        said = _failure(found)
    elif isinstance(found, MappingOptions):
        said = {"mapping": found.model_dump(mode="json")}
    elif found is None:
        said = {"none": True}
    else:
        activity, accuracy, problems = found
        said = {"accuracy": accuracy, "dropped": activity.dropped, "problems": list(problems), "shapes": {}}
        for kind, values in (("ids", activity.ids), ("counts", activity.counts)):
            for layer, array in values.items():
                said["shapes"][f"{kind}.{layer}"] = list(array.shape)
                arrays[f"{kind}.{layer}"] = np.ascontiguousarray(array, "<i4").tobytes()
    return dump_json(said), arrays


def of_plain(given: Any, keys: Sequence[str]) -> Any:
    """What `to_plain` was given; keys: of the points of the work. Raises what the worker raised, and MimdsimError for
    anything that no work returns."""
    try:
        text, arrays = given
        if type(text) is not str or type(arrays) is not dict or len(text) > MOST_CHARACTERS:
            raise TypeError("it is no text with arrays")
        return _found(parse_json(text), arrays, keys)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        reason = shortened(f"{type(problem).__name__}: {problem}", 200)
        raise MimdsimError(f"a worker returned something else than results ({reason}); are all nodes yours?") from None


def _found(said: Any, arrays: Mapping[str, bytes], keys: Sequence[str]) -> Any:
    if failure := _failed(said):
        raise failure
    if said == {"none": True}:
        return None
    if "mapping" in said:
        try:
            return MappingOptions.model_validate(said["mapping"])
        except ValidationError:
            raise ValueError("it is no mapping") from None
    if "rows" in said:
        rows = said["rows"]
        if len(rows) != len(keys):
            raise ValueError(f"{len(rows)} rows for {len(keys)}")
        return [_row(row, key) for row, key in zip(rows, keys, strict=True)]
    return _spikes(said, arrays)


def _row(said: Any, key: str) -> Any:
    if failure := _failed(said):
        return failure
    row = said["row"]
    if wrong := row_problem(key, row):
        raise ValueError(wrong)
    return row


def _spikes(said: Any, arrays: Mapping[str, bytes]) -> tuple[RecordedActivity, float | None, tuple[str, ...]]:
    accuracy, dropped, problems = said["accuracy"], said["dropped"], tuple(said["problems"])
    if type(said["problems"]) is not list or not all(type(one) is str for one in problems):
        raise ValueError("what is wrong with its samples is no text")
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise ValueError("it has no accuracy")
    if not all(type(count) is int and count >= 0 for count in dropped.values()):
        raise ValueError("it has no dropped spikes")
    found: dict[str, dict[str, np.ndarray]] = {"ids": {}, "counts": {}}
    for name, shape in said["shapes"].items():
        kind, _, layer = name.partition(".")
        found[kind][layer] = np.frombuffer(bytes(arrays[name]), "<i4").reshape(shape)
    return RecordedActivity(ids=found["ids"], counts=found["counts"], dropped=dropped), accuracy, problems


def _failure(failure: Exception) -> dict[str, Any]:
    number = failure.errno if isinstance(failure, OSError) else None
    kind = "user" if isinstance(failure, MimdsimError) else "machine" if number is not None else "other"
    text = str(failure) if kind == "user" else getattr(failure, "strerror", None) or repr(failure)
    return {"failed": kind, "text": str(text), "number": number}


def _failed(said: Any) -> Exception | None:
    """The exception that a worker told of; None: it found something."""
    kind = said.get("failed")
    if kind is None:
        return None
    text = json.dumps(said["text"]) if type(said["text"]) is not str else said["text"]
    if kind == "user":
        return MimdsimError(text)
    return OSError(int(said["number"]), text) if kind == "machine" else WorkerFailure(text)
