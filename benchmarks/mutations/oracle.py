"""What a mutant changes, decided without the checker.

A value is changed when an output, or a variable that is written and kept, differs after any of several runs (training
steps) carried on from several draws, on tiles with memories of their own (`tiles`): garbage, and the order of the
vertices, differ from draw to draw, so that what depends on either differs too. What no machine does counts as a changed
value.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.program import Program
from mutations.operators import steps_of, written_by
from mutations.subjects import Subject, subject
from mutations.tiles import Tiles, Wrong


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is changed, in words (empty: nothing). cycles: in all and by superstep, of what changes no value; None: it
    cannot be timed."""

    values: str
    cycles: tuple[int, ...] | None


def judged(name: str, mutant: Program) -> Verdict:
    """The verdict on a mutant of the subject `name`."""
    given = subject(name)
    values = _changed_values(given, mutant)
    return Verdict(values=values, cycles=None if values else _cycles(given, mutant))


def refused(name: str, mutant: Program) -> str:
    """What is said when it is timed as it is; empty when it is timed without a word."""
    try:
        subject(name).cycles(mutant, guarded=True)
    except MimdsimError as why:
        return str(why)
    return ""


@cache
def right_cycles(name: str) -> tuple[int, ...]:
    """Of the program as it is."""
    return subject(name).cycles(subject(name).program)


def unsound(name: str) -> str:
    """Why the right program itself depends on garbage or on the order of its vertices; empty when it does not."""
    return _changed_values(subject(name), subject(name).program, garbage=99)


def _cycles(given: Subject, mutant: Program) -> tuple[int, ...] | None:
    try:
        return given.cycles(mutant)
    except (MimdsimError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _changed_values(given: Subject, mutant: Program, garbage: int = 0) -> str:
    for number in range(len(given.draws)):
        try:
            outcome = _outcome(given, mutant, number, np.random.default_rng([garbage, number]), bool(number % 2))
        except TimeoutError:
            raise
        except Wrong as wrong:
            return f"draw {number}: {wrong}"
        except Exception as failure:  # whatever a wrong codelet raises
            return f"draw {number}: {type(failure).__name__}: {failure}"
        for (run, what, right), (_, _, found) in zip(_right(given.name, number), outcome, strict=True):
            if differs(right, found, given.tolerance):
                return f"draw {number}, run {run}: {what} differs"
    return ""


def differs(right: np.ndarray, found: np.ndarray, tolerance: float) -> bool:
    """Beyond rounding, or in shape."""
    if right.shape != found.shape:
        return True
    if right.dtype.kind != "f":
        return not np.array_equal(right, found)
    scale = float(np.abs(right).max(initial=0.0)) or 1.0
    return not bool((np.abs(right.astype(np.float64) - found) <= tolerance * scale).all())


@cache
def _right(name: str, number: int) -> list[tuple[int, str, np.ndarray]]:
    given = subject(name)
    return _outcome(given, given.program, number, np.random.default_rng([1, number]), False)


def _outcome(
    given: Subject, program: Program, number: int, draw: np.random.Generator, reverse: bool
) -> list[tuple[int, str, np.ndarray]]:
    """(run, what, value) of all outputs and of what the right program keeps, after every run."""
    tiles = Tiles(program, draw, reverse)
    written = {name for step in steps_of(given.program) for name in written_by(step)}
    kept = [name for name in written if given.program.variables[name].persistent]
    found = []
    with np.errstate(all="ignore"):
        for run, values in enumerate(given.draws[number]):
            if run:
                tiles.forget()
            tiles.write(values)
            tiles.run()
            found += [(run, f"output '{name}'", tiles.read(name)) for name in given.program.outputs]
            found += [(run, f"'{name}'", tiles.whole(name)) for name in kept]
    return found


class limited:
    """Raises TimeoutError in what takes longer than some seconds."""

    def __init__(self, seconds: int):
        self.seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._over)
        signal.alarm(self.seconds)

    def __exit__(self, *_: Any) -> None:
        signal.alarm(0)

    def _over(self, _: int, __: FrameType | None) -> None:
        raise TimeoutError(f"not done in {self.seconds} seconds")
