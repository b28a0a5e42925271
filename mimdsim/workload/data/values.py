"""Samples of real numbers in place of spikes: the same in every timestep, as images are, or a sequence of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError
from mimdsim.base.npz_reader import Member, NpzFile, npz_bytes
from mimdsim.base.rng import stream
from mimdsim.workload.data.event_columns import MAX_SAMPLES
from mimdsim.workload.data.events import Ints, refused
from mimdsim.workload.data.sources import MAX_LIST_BYTES, SUBSETS, cut_samples, digit_images, path_of, sample_counts
from mimdsim.workload.description.sections import STEADY, Data

LAYOUT = "an NPZ file of values and labels (docs/event-format.md)"


class Numbers(NamedTuple):
    """values: float32[samples, inputs] of every timestep, or [samples, timesteps, inputs]; labels int64[samples]."""

    values: npt.NDArray[np.float32]
    labels: Ints


def grey_images(data: Data, seed: int) -> list[Numbers]:
    """Images of `digits` or `mnist5k`, grey values from 0 to 1."""
    return [
        Numbers(
            (part.pixels.reshape(len(part.labels), -1) / np.float32(part.brightest)).astype(np.float32), part.labels
        )
        for part in digit_images(data, seed)
    ]


def random_values(data: Data, seed: int) -> list[Numbers]:
    """Numbers from 0 to 1, and labels, each as likely as any other."""
    found = []
    for name, samples in zip(SUBSETS, sample_counts(data), strict=True):
        _refuse_too_large(data, samples)
        random = stream(seed, "random", name)
        values = random.random((samples, *sample_shape(data)), np.float32)
        found.append(Numbers(values, random.integers(0, data.classes, samples)))
    return found


def file_values(data: Data, seed: int) -> list[Numbers]:
    """Samples of a file of values; without a split a fifth of every class is held out by seed."""
    with NpzFile(path_of(data, LAYOUT, missing="no such file")) as file:
        members = {info.filename.removesuffix(".npy"): file.member(info) for info in file.infos}
        if missing := [name for name in ("values", "labels") if name not in members]:
            raise DataFileError(file.path, f"has no '{missing[0]}'; it is not {LAYOUT}")
        _check_shapes(file.path, members, data)
        values = file.whole(members["values"]).astype(np.float32)
        labels = _labels(file, members["labels"], data.classes)
        split = _labels(file, members["split"], 2) if "split" in members else None
    if not np.isfinite(values).all():
        sample = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise DataFileError(file.path, f"'values' of sample {sample} are not all finite")
    for number, name in enumerate(SUBSETS):
        if split is not None and not (split == number).any():
            raise DataFileError(file.path, f"'split' has no {number}, so there is no {name} sample")
    return [Numbers(values[chosen], labels[chosen]) for chosen in cut_samples(labels, split, data, seed).values()]


def sample_shape(data: Data) -> tuple[int, ...]:
    return (data.inputs,) if data.encoding == STEADY else (data.timesteps, data.inputs)


def write_values(parts: list[Numbers]) -> bytes:
    """A file of values (docs/event-format.md) with one part, or those to train and to test on."""
    arrays = {
        "values": np.concatenate([part.values for part in parts]),
        "labels": np.concatenate([part.labels for part in parts]),
    }
    if len(parts) > 1:
        arrays["split"] = np.repeat([0, 1], [len(part.labels) for part in parts])
    return npz_bytes(arrays)


def _check_shapes(path: Path, members: dict[str, Member], data: Data) -> None:
    samples, *shape = members["values"].shape or (0,)
    if not samples or tuple(shape) != sample_shape(data):
        axes = "[samples, inputs]" if data.encoding == STEADY else "[samples, timesteps, inputs]"
        raise DataFileError(
            path, f"'values' has the shape {[samples, *shape]}; {axes} of {list(sample_shape(data))} are described"
        )
    if samples > MAX_SAMPLES:
        raise DataFileError(path, f"has {samples:,} samples, over {MAX_SAMPLES:,}")
    _refuse_too_large(data, samples)
    for name in members.keys() & {"labels", "split"}:
        if members[name].shape != (samples,):
            raise DataFileError(
                path, f"'{name}' has the shape {list(members[name].shape)}; there are {samples} samples"
            )


def _labels(file: NpzFile, member: Member, classes: int) -> Ints:
    found = file.whole(member)
    if found.dtype.kind not in "iub" or not 0 <= found.min() <= found.max() < classes:
        raise member.refused(f"must be whole numbers from 0 to {classes - 1}")
    return found.astype(np.int64)


def _refuse_too_large(data: Data, samples: int) -> None:
    wanted = samples * math.prod(sample_shape(data)) * 4
    if wanted > MAX_LIST_BYTES:
        shape = " x ".join(f"{extent:,}" for extent in (samples, *sample_shape(data)))
        raise refused(f"{shape} values are {wanted:,} bytes, over {MAX_LIST_BYTES:,}; lower 'data.train_samples'")
