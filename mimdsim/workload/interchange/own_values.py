"""Samples of real numbers that somebody has in memory, as a file of values and a workload of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, shortened
from mimdsim.workload.data.values import Numbers, write_values
from mimdsim.workload.description.sections import STEADY
from mimdsim.workload.description.workload import Workload, load_workload
from mimdsim.workload.interchange.own_events import DEFAULT_HIDDEN, label_of, labelled, write_own

FILE = "values.npz"


def from_values(
    train: Any,
    test: Any = None,
    *,
    timesteps: int = 0,
    classes: int = 0,
    time_axis: int = 0,
    out: str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Workload:
    """A workload whose input are your own real numbers, for `run`, `check`, `place`, `compare` and `from_torch`.

    train, test: samples (values, label), in a list, a data set or anything else that yields them, or, where the label
    is an array, batches of them (a PyTorch DataLoader); without test, a fifth of train is held out. timesteps: a sample
    is the same in every one of so many, as an image is; without, it is a sequence. time_axis: the axis of such a
    sequence that is time, counted without the axis of the batch; other axes are flattened. classes: number of classes
    (default: up to the highest label). changes: keys of the made description. out: a folder for values.npz and
    values.toml, which all commands and `from_torch(workload=...)` take (default: one for this process).

    Raises DescriptionError, by sample, for what is not understood.

        >>> samples = [([0.5, 1.0, 0.0], 0), ([0.0, 0.2, 0.9], 1)] * 8
        >>> mimdsim.from_values(samples, timesteps=5).data.timesteps
        5
    """
    parts = [_numbers([*_samples(part, bool(timesteps), time_axis)]) for part in (train, test) if part is not None]
    every = np.concatenate([part.labels for part in parts])
    classes, shape = classes or int(every.max()) + 1, parts[0].values.shape[1:]
    if any(part.values.shape[1:] != shape for part in parts):
        raise _refused(f"samples to test on have the shape {list(parts[1].values.shape[1:])}, others {list(shape)}")
    data = {"source": "values", "path": FILE, "inputs": shape[-1], "classes": classes, "input_capacity": shape[-1]}
    data |= {"encoding": STEADY if timesteps else "values", "timesteps": timesteps or shape[0]}
    title = f"{len(every):,} samples of one's own: {shape[-1]}-{DEFAULT_HIDDEN}-{classes}"
    path = write_own(out, data, write_values(parts), title, {"spikes": "dense"}, len(parts[0].labels))
    return load_workload(path, dict(changes or {}))


def _refused(problem: str) -> DescriptionError:
    return DescriptionError("from_values", [problem])


def _samples(samples: Any, steady: bool, time_axis: int) -> Iterator[tuple[np.ndarray, int]]:
    """(float32[inputs] or [timesteps, inputs], label) of every sample."""
    for where, given, labels in labelled(samples, "values", _refused):
        try:
            values = np.asarray(given)
        except (TypeError, ValueError):
            raise _refused(f"{where} is {type(given).__name__}, not a pair of values and a label") from None
        if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            raise _refused(f"{where}: values are {shortened(str(values.dtype))}, or not all finite")
        batch = values if labels.ndim else values[None]
        if (
            len(batch) != labels.size
            or batch.ndim < (2 if steady else 3)
            or not -batch.ndim < time_axis < batch.ndim - 1
        ):
            raise _refused(f"{where}: values have the shape {list(values.shape)}, labels {list(labels.shape)}")
        for one, of in zip(batch, labels.reshape(-1), strict=True):
            if not steady:
                one = np.moveaxis(one, time_axis, 0)
            flat = one.reshape(-1) if steady else one.reshape(len(one), -1)
            yield flat.astype(np.float32), label_of(int(of), where, _refused)


def _numbers(samples: list[tuple[np.ndarray, int]]) -> Numbers:
    if not samples:
        raise _refused("there are no samples")
    shapes = {values.shape for values, _ in samples}
    if len(shapes) > 1 or not math.prod(next(iter(shapes))):
        raise _refused(f"samples have the shapes {', '.join(map(str, map(list, sorted(shapes)[:3])))}; one is needed")
    return Numbers(np.stack([values for values, _ in samples]), np.array([label for _, label in samples]))
