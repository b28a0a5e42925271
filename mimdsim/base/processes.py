"""Worker processes that end with their parent, however it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

ENDED = "the process computing it was killed, perhaps for lack of memory: use fewer --processes"


@contextlib.contextmanager
def process_pool(
    processes: int, begin: Callable[..., None] | None = None, given: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Processes that end when the other end of their pipe is closed: this process has left, or is dead.

    begin: called in each with `given`, which forked processes share.
    """
    line, ours = multiprocessing.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, initializer=_hold, initargs=(line, ours, begin, given))
    try:
        yield pool
    except BaseException:
        ours.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        ours.close()
        line.close()


def _hold(line: Connection, other: Connection, begin: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    """In a worker process: end with the parent, which also handles the Ctrl-C that a terminal sends to all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    other.close()
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()
    if begin is not None:
        begin(*given)


def _end_with(line: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        line.recv()
    os._exit(1)
