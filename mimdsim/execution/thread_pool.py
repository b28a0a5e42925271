"""Independent parts of work dealt to threads, and arrays that begin where a processor likes them to."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mimdsim.numerics.fused.registers import CACHE_LINE

LINE = 4 * CACHE_LINE  # bytes
OWN_PAGES = 1 << 22  # bytes of an array that does not come from the heap


class Shares:
    """Calls `work(first, last)` on shares of 0..count-1, one per thread. Kernels release the interpreter's lock."""

    def __init__(self, threads: int):
        self.threads = max(1, threads)
        self._pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None

    def __call__(self, count: int, work: Callable[[int, int], None]) -> None:
        if self._pool is None or count < 2:
            work(0, count)
            return
        edges = [count * number // self.threads for number in range(self.threads + 1)]
        own, *others = [share for share in pairwise(edges) if share[0] < share[1]]
        waiting = [self._pool.submit(work, *share) for share in others]
        work(*own)
        for one in waiting:
            one.result()


def zeros(shape: tuple[int, ...], kind: npt.DTypeLike) -> np.ndarray:
    """Zeros that begin at a cache line, so that no vector of a row straddles two. Large ones take memory only where
    they are written: the C library would clear what it takes from its heap."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    if size < OWN_PAGES or not hasattr(mmap, "MAP_ANONYMOUS"):
        room = np.zeros(size + LINE, np.uint8)
        begin = -room.ctypes.data % LINE
        return room[begin : begin + size].view(kind).reshape(shape)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # not shared with a process that is forked
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, kind, count=size // np.dtype(kind).itemsize).reshape(shape)


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """float32 `zeros`."""
    return zeros(shape, np.float32)
