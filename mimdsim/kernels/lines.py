"""The line of the user's file where a mistake was made: errors in a kernel name that line, not one of this package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from mimdsim.base.errors import MimdsimError

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
