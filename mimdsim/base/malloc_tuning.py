"""How memory that arrays freed is kept for the next ones."""

from __future__ import annotations

import ctypes
from functools import cache

# of glibc's malloc.h: bytes at the top of the heap that are given back (-1: none), bytes it grows by at least, and
# bytes of an array that gets pages of its own (the largest number that mallopt takes)
PARAMETERS = {"trim threshold": (-1, -1), "top pad": (-2, 1 << 26), "mmap threshold": (-3, 2**31 - 1)}


@cache
def keep_freed_memory() -> bool:
    """Let this process reuse memory that it freed instead of handing it back at once; False where the C library is not
    glibc, which then does as it likes.

    Columns of a large program are made and freed by the thousand. glibc takes each from the operating system anew,
    which clears it page by page: up to half of the time of a compilation. Memory at the peak stays the same, but is
    given back only when the process ends.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    set_up = [mallopt(*given) for given in PARAMETERS.values()]
    return all(set_up)
