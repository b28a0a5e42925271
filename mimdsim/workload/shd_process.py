"""The process that opens SHD files: started by `shd.py`, fed requests on standard input, answering in frames.

Why a process: the HDF5 library may crash or search without end in a damaged file, and nothing inside a Python process
can survive that. A request is one JSON line [path, samples or null]. A frame is its kind (one letter), its length and
its content: L labels, T seconds and U channels of one sample, E the reason of a refusal, Z the end of the answer.

A file may hold nothing but plain lists: what could make HDF5 open another file or load a filter plug-in is refused.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError

FRAME = struct.Struct("<cQ")
CHANNELS = 700
CLASSES = 20
MAX_SAMPLES = 1 << 20  # assumed: the published files have 8,156 and 2,264
MAX_SAMPLE_SECONDS = 60.0  # assumed: the published samples end before 1.4 s
MAX_MEMORY_BYTES = 4 << 30  # assumed: far more than a sample needs; a damaged file can ask for anything
# Filters that HDF5 has built in: deflate 1, shuffle 2, fletcher32 3, szip 4, nbit 5, scale-offset 6 (HDF5 reference,
# H5Zpublic.h). Any other number would be looked for among plug-ins, which are code.
BUILT_IN_FILTERS = frozenset(range(1, 7))


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    _limit_memory()
    for request in requests:
        path, chosen = json.loads(request)
        try:
            for kind, content in read(Path(path), chosen):
                answers.write(FRAME.pack(kind, len(content)) + content)
            kind, content = b"Z", b""
        except DataFileError as problem:
            kind, content = b"E", str(problem).removeprefix(f"{path}: ").encode(errors="replace")
        except Exception as problem:  # what h5py raises on damaged files differs with the place of the damage
            kind, content = b"E", f"is damaged or not HDF5: {problem}; fetch it again".encode(errors="replace")
        answers.write(FRAME.pack(kind, len(content)) + content)
        answers.flush()


def read(path: Path, chosen: list[int] | None) -> Iterator[tuple[bytes, bytes]]:
    """Frames: the labels, then seconds (float64) and channels (int64) of every chosen sample."""
    import h5py

    with h5py.File(path, "r") as file:
        labels = _labels(path, file)
        yield b"L", labels.tobytes()
        if chosen is None:
            return
        times = _plain(path, file, "spikes/times", kinds="f", lists=True)
        units = _plain(path, file, "spikes/units", kinds="iu", lists=True)
        for name, found in (("spikes/times", times), ("spikes/units", units)):
            if found.shape != labels.shape:
                raise DataFileError(path, f"/{name} has shape {list(found.shape)}, /labels has {labels.size} samples")
        for sample in chosen:
            seconds = np.asarray(times[sample]).astype(np.float64)  # before scaling: the files' float16 ends at 65,504
            channels = np.asarray(units[sample])
            _check_sample(path, seconds, channels, sample)
            yield b"T", seconds.tobytes()
            yield b"U", channels.astype(np.int64).tobytes()


def _check_sample(path: Path, seconds: npt.NDArray[np.float64], channels: npt.NDArray[Any], sample: int) -> None:
    if seconds.shape != channels.shape or seconds.ndim != 1:
        raise DataFileError(
            path, f"sample {sample}: /spikes/times has {seconds.size} entries, /spikes/units has {channels.size}"
        )
    late = ~((seconds >= 0) & (seconds <= MAX_SAMPLE_SECONDS))  # also true for NaN
    if late.any():
        worst = seconds[np.argmax(late)]
        raise DataFileError(
            path, f"/spikes/times, sample {sample}: {worst} s is outside 0 to {MAX_SAMPLE_SECONDS:g} seconds"
        )
    outside = (channels < 0) | (channels >= CHANNELS)
    if outside.any():
        worst = channels[np.argmax(outside)]
        raise DataFileError(path, f"/spikes/units, sample {sample}: channel {worst} is outside 0 to {CHANNELS - 1}")


def _labels(path: Path, file: Any) -> npt.NDArray[np.int64]:
    found = _plain(path, file, "labels", kinds="iu", lists=False)
    if len(found.shape) != 1 or not 0 < found.shape[0] <= MAX_SAMPLES:
        raise DataFileError(path, f"/labels has shape {list(found.shape)}, not one entry for each of 1 or more samples")
    labels = np.asarray(found[:])
    outside = (labels < 0) | (labels >= CLASSES)
    if outside.any():
        sample = int(np.argmax(outside))
        raise DataFileError(path, f"/labels, sample {sample}: class {labels[sample]} is outside 0 to {CLASSES - 1}")
    return labels.astype(np.int64)


def _plain(path: Path, file: Any, name: str, *, kinds: str, lists: bool) -> Any:
    """The data set `name`, if it is numbers (or lists of numbers) stored in this very file."""
    import h5py

    group = file
    for part in name.split("/"):
        link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
        if link is None:
            raise DataFileError(path, f"has no data set /{name}; expected are /labels, /spikes/times, /spikes/units")
        if not isinstance(link, h5py.HardLink):
            raise DataFileError(path, f"/{name} is a link to somewhere else, which is not followed")
        group = group[part]
    if not isinstance(group, h5py.Dataset):
        raise DataFileError(path, f"/{name} is not a data set")
    if group.is_virtual or group.external:
        raise DataFileError(path, f"/{name} keeps its values in other files, which are not opened")
    settings = group.id.get_create_plist()
    filters = {settings.get_filter(index)[0] for index in range(settings.get_nfilters())}
    if not filters <= BUILT_IN_FILTERS:
        raise DataFileError(path, f"/{name} is packed with filter {min(filters - BUILT_IN_FILTERS)}, a plug-in")
    if group.chunks and math.prod(group.chunks) > MAX_SAMPLES:
        raise DataFileError(path, f"/{name} is stored in chunks of {math.prod(group.chunks)}, over {MAX_SAMPLES}")
    element = h5py.check_vlen_dtype(group.dtype)
    number = element if lists else group.dtype
    if not isinstance(number, np.dtype) or number.kind not in kinds or (element is not None) != lists:
        expected = {"f": "real numbers", "iu": "integers"}[kinds]
        raise DataFileError(path, f"/{name} does not hold {'lists of ' if lists else ''}{expected}")
    return group


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MAX_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MAX_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
