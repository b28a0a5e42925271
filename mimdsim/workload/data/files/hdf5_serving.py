"""What the processes that open HDF5 files share: the loop that answers requests, and what a file may not contain.

A separate process is needed because the HDF5 library may crash or search endlessly in a damaged file, which no Python
process can survive. A request is one JSON line [path, what is wanted]. An answer is frames: kind (one letter), length
and content. E is the reason of a refusal, Z the end of the answer; the other letters belong to the format that is read.

A file may hold only plain numbers: anything that could make HDF5 open another file or load a filter plug-in is refused.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mimdsim.base.errors import DataFileError

Frames = Iterator[tuple[bytes, bytes]]

FRAME = struct.Struct("<cQ")
MAX_FRAME_BYTES = 64 << 20  # assumed: twice what the most events that a sample may have fill as one column
MAX_MEMORY_BYTES = 900 << 20  # assumed: twice what reading takes; a damaged or packed file can ask for anything
MAX_CPU_SECONDS = 600  # assumed: of one request; clients wait less long, but may be gone
MAX_CHUNK_VALUES = 1 << 20  # assumed: h5py's own choice of chunks is far smaller
# Filters that HDF5 has built in: deflate 1, shuffle 2, fletcher32 3, szip 4, nbit 5, scale-offset 6 (HDF5 reference,
# H5Zpublic.h). Any other number would be searched among plug-ins, which are code.
BUILT_IN_FILTERS = frozenset(range(1, 7))


def serve(requests: BinaryIO, answers: BinaryIO, read: Callable[[Path, Any], Frames]) -> None:
    """Answer requests with the frames that `read` makes, until there are no more."""
    _limit_memory()
    for request in requests:
        _limit_time()
        path, wanted = json.loads(request)
        try:
            for kind, content in read(Path(path), wanted):
                answers.write(FRAME.pack(kind, len(content)) + content)
            kind, content = b"Z", b""
        except DataFileError as problem:
            kind, content = b"E", problem.reason.encode(errors="replace")
        except Exception as problem:  # h5py's exceptions on damaged files depend on the place of the damage
            kind, content = b"E", f"is damaged or not HDF5: {problem}; fetch it again".encode(errors="replace")
        answers.write(FRAME.pack(kind, len(content)) + content)
        answers.flush()


def plain_dataset(path: Path, file: Any, name: str, *, expected: str) -> Any:
    """The data set `name` (parts separated by '/'), stored in this file with filters that are built into HDF5.

    Raises DataFileError for a missing one (`expected` says what is needed), a link, a virtual or external data set, a
    filter that is a plug-in or used twice, and chunks of over MAX_CHUNK_VALUES.
    """
    import h5py

    group = file
    for part in name.split("/"):
        link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
        if link is None:
            raise DataFileError(path, f"has no data set /{name}; expected are {expected}")
        if not isinstance(link, h5py.HardLink):
            raise DataFileError(path, f"/{name} is a link to somewhere else, which is not followed")
        group = group[part]
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


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MAX_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MAX_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _limit_time() -> None:
    """Let the system end an endless search after MAX_CPU_SECONDS: nothing in this process could."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime) + MAX_CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
