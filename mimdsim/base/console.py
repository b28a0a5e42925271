"""Terminal output: messages without control characters, and internal errors with how to report them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator

import click

from mimdsim.base.errors import shortened

RAISE = "MIMDSIM_TRACEBACK"  # if set: internal errors keep their traceback, for debugging


def printable(text: str) -> str:
    r"""`text` with control, bidirectional and unpaired surrogate characters as \x1b, \u202e and so on, lines kept.

    Names come from files that other people write; a terminal must not interpret what they hide.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()


def say(text: str, *, nl: bool = True, err: bool = False, bad: bool = False) -> None:
    """Print to the console; all that the commands print goes through here. bad: in red, where a terminal shows it
    (and NO_COLOR is not set)."""
    text = printable(text)
    click.echo(click.style(text, fg="red") if bad and not os.environ.get("NO_COLOR") else text, nl=nl, err=err)


@contextlib.contextmanager
def says_how_to_go_on(told: Callable[[], str]) -> Iterator[None]:
    """What a user who interrupts is told: what was saved, and how to continue from it."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"mimdsim: interrupted; {told()}", err=True)
        raise


def told_as_ours(failure: Exception) -> str:
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
