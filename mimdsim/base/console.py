"""What commands print (messages without control characters, progress bars, internal errors with how to report them),
and the paths that they take: refused where no file could have that name, before any work is done."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from mimdsim.base.errors import shortened
from mimdsim.base.files import other_kind, path_problem

if TYPE_CHECKING:
    _ParamType = click.ParamType[Path]  # generic from click 8.2 on
else:
    _ParamType = click.ParamType

RAISE = "MIMDSIM_TRACEBACK"  # if set: internal errors keep their traceback, for debugging
Progress = Callable[[str, int, int], None]  # what, and after a comma how it stands; how much is done, of how much


def silent(_what: str, _done: int, _total: int) -> None:
    """Progress that is not shown."""


def printable(text: str) -> str:
    r"""`text` with control, bidirectional and unpaired surrogate characters as \x1b, \u202e and so on, lines kept.

    Names come from files that other people write; a terminal must not interpret what they hide.
    """
    if text.isprintable():
        return text
    escaped = (letter.encode("unicode_escape", "surrogatepass").decode() for letter in text)
    return "".join(one if one.isprintable() or one == "\n" else code for one, code in zip(text, escaped, strict=True))


def say(text: str, *, nl: bool = True, err: bool = False, bad: bool = False) -> None:
    """Print to the console; all that the commands print goes through here. bad: in red, where a terminal shows it
    (and NO_COLOR is not set)."""
    text = printable(text)
    Bars.give_way()
    click.echo(click.style(text, fg="red") if bad and not os.environ.get("NO_COLOR") else text, nl=nl, err=err)


@contextlib.contextmanager
def explain_interrupt(told: Callable[[], str]) -> Iterator[None]:
    """What a user who interrupts is told: what was saved, and how to continue from it."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"mimdsim: interrupted; {told()}", err=True)
        raise


def internal_error_text(failure: Exception) -> str:
    """One sentence on an unexpected exception, and where its traceback is: in a file, if one can be written, else after
    the sentence."""
    trace = "".join(traceback.format_exception(failure))
    what = shortened(f"{type(failure).__name__}: {failure}".splitlines()[0], 200)
    said = f"this is a bug in mimdsim, unless a file was damaged ({what})"
    ask = "please report it with the command and the files that it read"
    try:
        handle, name = tempfile.mkstemp(prefix="mimdsim-traceback-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(trace)
    except OSError:
        return f"{said}; {ask}\n{trace}"
    return f"{said}; {ask}, and with {name}"


SILENT_SECONDS = 4.0  # after which work says that it goes on: nobody waits for five without a sign
SHOWN_AFTER = 2.0  # seconds before work has a bar on a terminal
NEWS_BAR = "{desc} |{bar}| {n_fmt}/{total_fmt}, {remaining} left{postfix}"  # 80 columns suffice
NAMED = "{desc}, {elapsed}"  # of work that is not counted


class Bars:
    """Progress on stderr: bars with time left on a terminal, elsewhere a line every few seconds; also of work that says
    nothing for so long. silent: nothing at all. One that is entered within another takes its place."""

    _shown: ClassVar[Bars | None] = None

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, silent: bool = False) -> None:
        self._bars: dict[str, Any] = {}
        self._clock, self._silent = clock, silent
        self._begun: dict[str, tuple[float, int]] = {}  # when each was first shown, and how much was done then
        self._said = self._since = clock()  # when a line was printed, and the work last said how it stands
        self._doing = self._standing = "working"
        self._before: Bars | None = None
        self._ended = threading.Event()
        self._lock = threading.RLock()

    def __enter__(self) -> Bars:
        self._before, Bars._shown = Bars._shown, self
        if self._before is not None:
            self._before._stop()
            self._said = self._before._said
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        Bars._shown = self._before
        if self._before is not None:
            self._before._said = self._said
            self._before._start()

    def _start(self) -> None:
        self._ended = threading.Event()
        if not self._silent:
            threading.Thread(target=self._watch, args=(self._ended,), daemon=True).start()

    def _stop(self) -> None:
        self._ended.set()
        with self._lock:
            for name in list(self._bars):
                self._close(name)

    @staticmethod
    def give_way() -> None:
        """Leave the line to what is printed next."""
        if Bars._shown is not None:
            with Bars._shown._lock:
                for bar in filter(_is_shown, Bars._shown._bars.values()):
                    bar.clear()

    def show(self, what: str, done: int, total: int) -> None:
        """what: the work, and after a comma, if it wants, how it stands: "training, epoch 2 of 6, loss 0.412"; 0 of 1
        done: it is not counted."""
        if not total or self._silent:
            return
        what, _, stands = what.partition(", ")
        with self._lock:
            if what != self._doing:
                self._doing = what
                for name in [name for name, bar in self._bars.items() if bar.total == 1]:
                    self._close(name)
            stands_at = f"{what}: {done:,} of {total:,}{stands and f', {stands}'}" if total > 1 else what
            self._standing, self._since = "working" if done >= total else stands_at, self._clock()
            if sys.stderr.isatty():
                self._draw(what, stands, done, total)
            else:
                self._say(what, done, total)

    def _draw(self, what: str, stands: str, done: int, total: int) -> None:
        from tqdm import tqdm

        if what not in self._bars:
            form = NAMED if total == 1 else NEWS_BAR if stands else None
            self._bars[what] = tqdm(
                total=total, desc=what, delay=SHOWN_AFTER, leave=False, file=sys.stderr, bar_format=form
            )
        bar = self._bars[what]
        bar.set_postfix_str(stands, refresh=False)
        bar.update(done - bar.n)
        if done >= total:  # the next bar reuses its line
            self._close(what)

    def _close(self, what: str) -> None:
        if what in self._bars:
            bar = self._bars.pop(what)
            if _is_shown(bar):
                bar.clear()
            bar.close()

    def _say(self, what: str, done: int, total: int) -> None:
        now = self._clock()
        since, before = self._begun.setdefault(what, (now, done))
        if now - self._said < SILENT_SECONDS or done >= total:
            return
        left = f", about {(now - since) / (done - before) * (total - done):,.0f} s left" if done > before else ""
        self._print(self._standing + left)

    def _print(self, text: str) -> None:
        self._said = self._clock()
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            print(text, file=sys.stderr, flush=True)

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(0.5):
            self.go_on()

    def go_on(self) -> None:
        """Say that work goes on, if it has said nothing for a while."""
        with self._lock:
            if self._silent or self._ended.is_set():
                return
            if sys.stderr.isatty():
                if not self._bars:
                    self._draw("working", "", 0, 1)
                for bar in filter(_is_shown, self._bars.values()):
                    bar.refresh()
            elif self._clock() - self._said >= SILENT_SECONDS:
                so_far = round(self._clock() - self._since)
                self._print(self._standing + (f", for {so_far:,} s" if so_far else ""))


def _is_shown(bar: Any) -> bool:
    return bool(bar.format_dict["elapsed"] > SHOWN_AFTER)


class GivenPath(_ParamType):
    """A path that is given on the command line; `written`: a file to write, so no folder."""

    name = "path"

    def __init__(self, *, written: bool = False):
        self.written = written

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Path:
        text = os.fspath(value)
        if problem := path_problem(text):
            self.fail(f"the path {shortened(ascii(text))} {problem}.", param, context)
        path = Path(text)
        kind = "a folder" if text.endswith(os.sep) or os.path.isdir(path) else other_kind(path)
        if self.written and kind:
            self.fail(f"{shortened(text)} is {kind}; give a file.", param, context)
        return path


PATH, FILE_TO_WRITE = GivenPath(), GivenPath(written=True)
