"""What is said and done where memory lacks, and how memory that arrays freed is kept for the next ones."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import multiprocessing
import os
import resource
import signal
import sys
import threading
from functools import cache
from typing import Any

from mimdsim.base.console import say
from mimdsim.base.errors import shortened
from mimdsim.base.units import show_bytes

ABORTED = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGKILL)
_SAYINGS = (  # of Python for threads, of libraries, of the loader of libraries
    *("can't start new thread", "cannot join thread before it is started", "cannot allocate memory"),
    *("unable to allocate", "bad_alloc", "out of memory", "failed to map segment", "libllvmlite.so"),
)
_LEAVING = threading.Lock()  # of threads that lack memory, the first says so


def lacks_memory(failure: BaseException | None) -> bool:
    """Whether a failure, or one that it follows from, is for lack of memory."""
    chain: list[BaseException] = []
    while failure is not None and failure not in chain:
        if isinstance(failure, MemoryError) or getattr(failure, "errno", None) == errno.ENOMEM:
            return True
        told = str(failure).lower() if isinstance(failure, (RuntimeError, OSError, ImportError)) else ""
        if any(saying in told for saying in _SAYINGS):
            return True
        chain.append(failure)
        failure = failure.__cause__ or failure.__context__
    return False


def out_of_memory_text(what: str) -> str:
    """The sentence: what could not be had, the limit if there is one, and what to do."""
    limit = memory_limit()
    allowed = f"; this process may use {show_bytes(limit)} (ulimit -v)" if limit else ""
    advice = "allow more, or use a smaller workload or fewer --processes"
    return f"mimdsim: not enough memory ({shortened(what, 200) or 'none could be had'}){allowed}: {advice}"


def memory_limit() -> int:
    """Bytes of address space that this process may have; 0: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 0 if soft == resource.RLIM_INFINITY else soft


@cache
def watch_memory() -> None:
    """From now on a thread or a destructor that fails for lack of memory ends this process, with a sentence and exit
    code 2 instead of a traceback: others may wait for what it leaves undone.

    With a limit on memory the work is done by a fork of this process, for libraries abort where they get none; this one
    only waits, and says what became of it.
    """
    if memory_limit() and hasattr(os, "fork") and (worker := os.fork()):
        _wait_for(worker)
    thread_failed, destructor_failed = threading.excepthook, sys.unraisablehook

    def of_thread(about: Any) -> None:
        if not (memory_limit() or lacks_memory(about.exc_value)):  # with a limit, what fails in a thread lacks memory
            thread_failed(about)
        elif multiprocessing.parent_process() is not None:
            os._exit(1)  # as a killed process: its work is done by another one, or its end is told
        else:
            _leave(str(about.exc_value))

    def of_destructor(about: Any) -> None:
        if lacks_memory(about.exc_value):
            _leave(str(about.exc_value))
        destructor_failed(about)

    threading.excepthook, sys.unraisablehook = of_thread, of_destructor


def _leave(what: str) -> None:
    """End at once. Nothing is left half done: what writes and works elsewhere takes this for a killed process."""
    with _LEAVING, contextlib.suppress(Exception):
        say(out_of_memory_text(what), err=True)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(2)
    os._exit(2)


def _wait_for(worker: int) -> None:
    """Leave as a process leaves, with a sentence if it was aborted."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda given, _: os.kill(worker, given))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    _, status = os.waitpid(worker, 0)
    code = os.waitstatus_to_exitcode(status)
    if -code in ABORTED:
        say(out_of_memory_text(f"the process ended by {signal.Signals(-code).name}"), err=True)
        os._exit(2)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


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
