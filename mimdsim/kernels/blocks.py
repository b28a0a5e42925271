"""What `with k.superstep(...)` and `with k.repeat(...)` open and close."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Protocol, TypeVar

import numpy as np

from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.program import Copy, Repeat, Superstep, VertexTable

PACKAGE = str(Path(__file__).resolve().parents[1])
Given = ParamSpec("Given")
Made = TypeVar("Made")


class KernelError(MimdsimError):
    """A mistake in a program written by hand; its message begins with the file and the line where it was made."""


def users_line() -> str:
    """'file.py, line 12': the innermost caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"


def at_users_line(method: Callable[Given, Made]) -> Callable[Given, Made]:
    """A method whose errors name the line of its caller outside the package."""

    @wraps(method)
    def call(*given: Given.args, **named: Given.kwargs) -> Made:
        try:
            return method(*given, **named)
        except KernelError:
            raise
        except (MimdsimError, ValueError) as refusal:
            raise KernelError(f"{users_line()}: {refusal}") from refusal

    return call


@dataclass(kw_only=True)
class Opened:
    """A superstep that vertices are added to."""

    name: str
    phase: str
    tables: list[VertexTable] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)


class Building(Protocol):
    """A program that is being written: bodies, the program's own and those of open repeats, and the open superstep."""

    blocks: list[list[Superstep | Repeat]]
    opened: Opened | None

    def append(self, name: str, phase: str, tables: tuple[VertexTable, ...], copies: tuple[Copy, ...]) -> None: ...

    def closed(self, what: str) -> None: ...


class OpenSuperstep:
    """What `Builder.superstep` returns, for `with`."""

    def __init__(self, kernel: Building, name: str, phase: str):
        self._kernel, self._opened = kernel, Opened(name=name, phase=phase)

    @at_users_line
    def __enter__(self) -> None:
        if self._kernel.opened is not None:
            raise MappingError(f"superstep '{self._kernel.opened.name}' is still open; supersteps do not nest")
        Superstep(name=self._opened.name, phase=self._opened.phase)  # its names can be
        self._kernel.opened = self._opened

    @at_users_line
    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kernel.opened = None
        opened = self._opened
        if kind is not None:
            return
        if not opened.tables and not opened.copies:
            raise MappingError(f"superstep '{opened.name}' has no vertices; add some within it, or leave it out")
        self._kernel.append(opened.name, opened.phase, tuple(opened.tables), tuple(opened.copies))


class OpenRepeat:
    """What `Builder.repeat` returns, for `with`."""

    def __init__(self, kernel: Building, times: int, reverse: bool):
        self._kernel, self._times, self._reverse = kernel, times, reverse

    @at_users_line
    def __enter__(self) -> None:
        if isinstance(self._times, bool) or not isinstance(self._times, int | np.integer) or self._times < 1:
            raise MappingError(f"a repeat of {self._times!r} turns; a whole number of at least 1 is needed")
        self._kernel.closed("a repeat")
        self._kernel.blocks.append([])

    @at_users_line
    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        body = self._kernel.blocks.pop()
        if kind is None:
            repeat = Repeat(times=int(self._times), body=tuple(body), reverse=self._reverse)
            self._kernel.blocks[-1].append(repeat)
