"""HDF5 files, opened in a separate process: the HDF5 library may crash or search endlessly in a damaged file, which no
Python process can survive. The process is started, watched, and killed if it hangs.

A request is one JSON line [module, function, path, what is wanted]. An answer is frames: kind (one letter), length and
content. I is an array of int64, F of float64, J is JSON, E the reason of a refusal, Z the end of the answer.

A file may hold only plain numbers: anything that could make HDF5 open another file or load a filter plug-in is refused.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import math
import os
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_AS, RLIMIT_CPU, RUSAGE_SELF, getrlimit, getrusage, setrlimit
from typing import Any, BinaryIO

import numpy as np

from mimdsim.base.errors import DataFileError, MissingExtra
from mimdsim.base.files import open_data

Values = Iterator[Any]  # arrays of int64 or float64, and what JSON can express

FRAME_SECONDS = 60.0  # assumed: a sample takes under a millisecond to read; longer means that HDF5 hangs
FRAME = struct.Struct("<cQ")
ARRAYS = {b"I": np.dtype(np.int64), b"F": np.dtype(np.float64)}
MAX_FRAME_BYTES = 64 << 20  # assumed: twice what the most events that a sample may have fill as one column
MAX_MEMORY_BYTES = 900 << 20  # assumed: twice what reading takes; a damaged or packed file can ask for anything
MAX_CPU_SECONDS = 600  # assumed: of one request; clients wait less long, but may be gone
MAX_CHUNK_VALUES = 1 << 20  # assumed: h5py's own choice of chunks is far smaller
# Filters that HDF5 has built in: deflate 1, shuffle 2, fletcher32 3, szip 4, nbit 5, scale-offset 6 (HDF5 reference,
# H5Zpublic.h). Any other number would be searched among plug-ins, which are code.
BUILT_IN_FILTERS = frozenset(range(1, 7))

_idle: list[subprocess.Popen[bytes]] = []
_shared = 0  # how many `shared_process` are entered


def values_of(
    read: Callable[[Path, Any], Values], path: Path, wanted: Any, *, purpose: str, missing: str = "no such file"
) -> Values:
    """What read(path, wanted), a function of a module, yields in a process of its own.

    Raises DataFileError with `missing` if there is no file, with the reason if it is refused, and if HDF5 crashed or
    hung on it; MissingExtra, which names the `purpose`, without h5py.
    """
    if importlib.util.find_spec("h5py") is None:
        raise MissingExtra("h5py", "data", purpose)
    with open_data(path, missing):
        pass
    process = _idle.pop() if _idle else _start()
    assert process.stdin is not None
    finished = False
    try:
        with contextlib.suppress(BrokenPipeError):  # a dead process is noticed when the answer is read
            request = [read.__module__, read.__name__, str(path.absolute()), wanted]
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        while True:
            kind, content = _frame(path, process)
            finished = kind in b"EZ"
            if kind == b"E":
                raise DataFileError(path, content.decode())
            if finished:
                return
            yield np.frombuffer(content, ARRAYS[kind]) if kind in ARRAYS else json.loads(content)
    finally:
        if finished and _shared:
            _idle.append(process)
        else:  # also after a crash, or a caller that stopped early: the rest in the pipe belongs to no request
            _end(process)


@contextlib.contextmanager
def shared_process() -> Iterator[None]:
    """Requests of the block are answered by one process, which outlives each of them: starting it takes a second."""
    global _shared
    _shared += 1
    try:
        yield
    finally:
        _shared -= 1
        while _idle and not _shared:
            _end(_idle.pop())


def _start() -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[3])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "HDF5_PLUGIN_PRELOAD": "::",  # HDF5's switch for "load no plug-ins"
        "OPENBLAS_NUM_THREADS": "1",  # else numpy alone could use up the process's memory limit
    }
    command = f"import sys; from {__name__} import serve; serve(sys.stdin.buffer, sys.stdout.buffer)"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(BrokenPipeError), process:  # closes the pipes and waits
        pass


def _frame(path: Path, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    watch = threading.Timer(FRAME_SECONDS, end)
    watch.start()
    try:
        header = process.stdout.read(FRAME.size)
        if len(header) == FRAME.size:
            kind, length = FRAME.unpack(header)
            if length > MAX_FRAME_BYTES:
                raise DataFileError(path, f"has a list of {length} bytes, over {MAX_FRAME_BYTES}")
            content = process.stdout.read(length)
            if len(content) == length:
                return kind, content
    finally:
        watch.cancel()
    status = process.wait()
    if late.is_set():
        raise DataFileError(
            path,
            f"is not read within {FRAME_SECONDS:g} s: it is damaged and the HDF5 library hangs on it, or this machine "
            "is overloaded; try again, then fetch it again",
        )
    raise DataFileError(path, f"is damaged: the HDF5 library crashed on it (status {status}); fetch it again")


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests, in the process that opens files, until there are no more."""
    _limit(RLIMIT_AS, MAX_MEMORY_BYTES)
    for request in requests:
        used = getrusage(RUSAGE_SELF)
        _limit(RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + MAX_CPU_SECONDS)
        module, function, path, wanted = json.loads(request)
        try:
            for values in getattr(importlib.import_module(module), function)(Path(path), wanted):
                _send(answers, values)
            kind, content = b"Z", b""
        except DataFileError as problem:
            kind, content = b"E", problem.reason.encode(errors="replace")
        except Exception as problem:  # h5py's exceptions on damaged files depend on the place of the damage
            kind, content = b"E", f"is damaged or not HDF5: {problem}; fetch it again".encode(errors="replace")
        answers.write(FRAME.pack(kind, len(content)) + content)
        answers.flush()


def _send(answers: BinaryIO, values: Any) -> None:
    if isinstance(values, np.ndarray):
        kind = next(kind for kind, dtype in ARRAYS.items() if dtype == values.dtype)
        content = values.tobytes()
    else:
        kind, content = b"J", json.dumps(values).encode()
    answers.write(FRAME.pack(kind, len(content)) + content)


def follow_links(path: Path, file: Any, name: str, missing: str) -> Any:
    """What is called `name` (parts separated by '/'), reached over links within this file only.

    Raises DataFileError, with `missing` if there is nothing.
    """
    import h5py

    found = file
    for part in filter(None, name.split("/")):
        link = found.get(part, getlink=True) if isinstance(found, h5py.Group) else None
        if link is None:
            raise DataFileError(path, missing)
        if not isinstance(link, h5py.HardLink):
            raise DataFileError(path, f"/{name} is a link to somewhere else, which is not followed")
        found = found[part]
    return found


def plain_dataset(path: Path, file: Any, name: str, *, expected: str) -> Any:
    """The data set `name` (parts separated by '/'), stored in this file with filters that are built into HDF5.

    Raises DataFileError for a missing one (`expected` says what is needed), a link, a virtual or external data set, a
    filter that is a plug-in or used twice, and chunks of over MAX_CHUNK_VALUES.
    """
    import h5py

    group = follow_links(path, file, name, f"has no data set /{name}; expected are {expected}")
    if not isinstance(group, h5py.Dataset):
        raise DataFileError(path, f"/{name} is not a data set")
    if group.is_virtual or group.external:
        raise DataFileError(path, f"/{name} keeps its values in other files, which are not opened")
    if group.shape is None:
        raise DataFileError(path, f"/{name} is empty")
    settings = group.id.get_create_plist()
    filters = Counter(settings.get_filter(index)[0] for index in range(settings.get_nfilters()))
    if not filters.keys() <= BUILT_IN_FILTERS:
        raise DataFileError(path, f"/{name} is packed with filter {min(filters.keys() - BUILT_IN_FILTERS)}, a plug-in")
    if max(filters.values(), default=0) > 1:  # packed zeros packed again: the ratio of deflate, 1000, is squared
        raise DataFileError(path, f"/{name} is packed {max(filters.values())} times over with the same filter")
    if group.chunks and math.prod(group.chunks) > MAX_CHUNK_VALUES:
        raise DataFileError(path, f"/{name} is stored in chunks of {math.prod(group.chunks)}, over {MAX_CHUNK_VALUES}")
    return group


def _limit(resource: int, most: int) -> None:
    """Let the system end this process beyond `most`: nothing in it could."""
    _, hard = getrlimit(resource)
    setrlimit(resource, (most if hard == RLIM_INFINITY else min(most, hard), hard))
