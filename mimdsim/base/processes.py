"""Worker processes that end with their parent, however it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from mimdsim.base.errors import MimdsimError

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")
Each = Callable[[Callable[[Any, Any], Any], Sequence[Any]], Iterator[Any]]  # what `shared_pool` yields
_OURS: set[Connection] = set()  # ends of pipes that this process holds, one of each pool
_SHARED: list[Any] = []  # of a worker process: what all its items have in common
_LAST: list[tuple[Any, Sequence[Any], list[Any]]] = []  # of the first process of a background: what it made last
MOST = 4  # processes that share work of about a second
ENDED = "the process computing it was killed, perhaps for lack of memory: use fewer --processes"


@contextlib.contextmanager
def process_pool(
    processes: int, begin: Callable[..., None] | None = None, given: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Processes that end when the other end of their pipe is closed: this process has left, or is dead.

    begin: called in each with `given`, which forked processes share.
    """
    line, ours = multiprocessing.Pipe(duplex=False)
    _OURS.add(ours)
    pool = ProcessPoolExecutor(processes, initializer=_end_with_parent, initargs=(line, ours, begin, given))
    try:
        yield pool
    except BaseException:
        ours.close()
        # a process may end in the middle of a result, whose rest the pool would wait for as long as it can write itself
        if (results := getattr(pool, "_result_queue", None)) is not None:
            results._writer.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        _OURS.discard(ours)
        ours.close()
        line.close()


class Background:
    """A process that works while this one does, with others that it begins."""

    def __init__(self, pool: ProcessPoolExecutor, processes: int):
        self._pool, self._processes = pool, processes

    def begin(
        self,
        work: Callable[[Shared, Item], Result],
        given: Shared,
        items: Sequence[Item],
        then: Callable[[Shared, Sequence[Item], list[Result]], None] | None = None,
    ) -> Callable[[], list[Result]]:
        """Begin `work(given, item)` of every item; what is returned waits for them, in their order. Everything is sent
        to the process, so unlike in `shared_work` it can be made after it has begun. then: called there with what was
        made, which is not kept waiting: for what later work of this background finds in the memory of its process.

        It raises what `work` raises. What cannot be sent, and what a process leaves undone that was killed or could not
        begin, is done here: memory or processes are short, but nothing that took long is lost.
        """
        try:
            sent = pickle.dumps((work, given), pickle.HIGHEST_PROTOCOL)
            begun = self._pool.submit(_work_all, sent, items, min(self._processes, len(items)))
            if then is not None:
                self._pool.submit(_follow_up, then)
        except (BrokenProcessPool, OSError, pickle.PicklingError, AttributeError, TypeError):
            return lambda: [work(given, item) for item in items]

        def made() -> list[Result]:
            try:
                return begun.result()
            except (BrokenProcessPool, CancelledError):
                return [work(given, item) for item in items]

        return made


@contextlib.contextmanager
def background_processes(begin: Callable[[], None] | None = None) -> Iterator[Background | None]:
    """Processes that give way to this one and end with this context, whatever they are at; None: there is one
    processor. With something to `begin`, the first begins it at once, and there is a process for every processor; else
    one processor is left to this process, and the first starts with the first work, with all that is loaded here then.
    """
    processes = min(os.cpu_count() or 1, MOST)
    if processes < 2 or multiprocessing.parent_process() is not None:
        yield None
        return
    with contextlib.suppress(_Done), process_pool(1, _give_way, (begin,)) as pool:
        if begin is None:
            yield Background(pool, processes - 1)
        else:
            pool.submit(os.getpid)
            yield Background(pool, processes)
        raise _Done  # what has been begun is not waited for


def _give_way(begin: Callable[[], None] | None) -> None:
    if hasattr(os, "nice"):  # two of them weigh as much as this process; more, and a busy machine would starve them
        os.nice(3)
    if begin is not None:
        begin()


class _Done(Exception):
    """Ends a pool as a failure does."""


def _work_all(sent: bytes, items: Sequence[Any], processes: int) -> list[Any]:
    """`work(given, item)` of every item; other processes begin after the first: what that imports and loads is then
    theirs, too."""
    work, given = pickle.loads(sent)
    _LAST.clear()
    made = [work(given, item) for item in items[:1]]
    if processes < 2:
        made += [work(given, item) for item in items[1:]]
    else:
        with process_pool(processes, _share, (given,)) as pool:
            made += pool.map(partial(_work_item, work), items[1:])
    _LAST.append((given, items, made))
    return made


def _follow_up(then: Callable[[Any, Sequence[Any], list[Any]], None]) -> None:
    then(*_LAST[0])


def shared_work(work: Callable[[Shared, Item], Result], given: Shared, items: Sequence[Item]) -> Iterator[Result]:
    """`work(given, item)` of every item, in their order, by as many processes as there are processors; here if there is
    one, or if this is such a process itself. Raises as what `shared_pool` yields."""
    processes = min(os.cpu_count() or 1, len(items), MOST)
    with shared_pool(1 if multiprocessing.parent_process() is not None else processes, given) as each:
        yield from each(work, items)


@contextlib.contextmanager
def shared_pool(processes: int, given: Any) -> Iterator[Each]:
    """`work(given, item)` of every item, in their order, by processes that `given` is sent to once; here if it is one,
    or one item. It raises what `work` raises, and MimdsimError if a process is killed."""
    with contextlib.nullcontext() if processes < 2 else process_pool(processes, _share, (given,)) as pool:

        def each(work: Callable[[Any, Any], Any], items: Sequence[Any]) -> Iterator[Any]:
            if pool is None or len(items) < 2:
                yield from (work(given, item) for item in items)
                return
            try:
                yield from pool.map(partial(_work_item, work), items)
            except BrokenProcessPool:
                raise MimdsimError(ENDED) from None

        yield each


def _share(given: Any) -> None:
    _SHARED[:] = [given]


def _work_item(work: Callable[[Any, Any], Any], item: Any) -> Any:
    return work(_SHARED[0], item)


def _end_with_parent(
    line: Connection, other: Connection, begin: Callable[..., None] | None, given: tuple[Any, ...]
) -> None:
    """In a worker process: end with the parent, which also handles the Ctrl-C that a terminal sends to all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for each in {other, *_OURS}:  # a forked process has those of other pools as well
        each.close()
    try:
        threading.Thread(target=_watch_parent, args=(line,), daemon=True).start()
    except RuntimeError:  # no memory for one: the others do its work, or the first process does
        os._exit(1)
    if begin is not None:
        begin(*given)


def _watch_parent(line: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        line.recv()
    os._exit(1)
