"""Paths as commands take them: refused where no file could have that name, before any work is done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mimdsim.base.errors import shortened
from mimdsim.base.files import other_kind

if TYPE_CHECKING:
    _ParamType = click.ParamType[Path]  # generic from click 8.2 on
else:
    _ParamType = click.ParamType

LONGEST_NAME = 255  # bytes of one part; the limit of Linux's file systems (limits.h, NAME_MAX)
LONGEST_PATH = 4095  # PATH_MAX, without the zero byte at its end


class GivenPath(_ParamType):
    """A path that is given on the command line; `written`: a file to write, so no folder."""

    name = "path"

    def __init__(self, *, written: bool = False):
        self.written = written

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Path:
        text = os.fspath(value)
        if problem := _problem(text):
            self.fail(problem, param, context)
        path = Path(text)
        kind = "a folder" if text.endswith(os.sep) or _is_folder(path) else other_kind(path)
        if self.written and kind:
            self.fail(f"{shortened(text)} is {kind}; give a file.", param, context)
        return path


def _problem(text: str) -> str:
    """Why no file can have this path; '' if one can."""
    if not text.strip():
        return "the path is empty; give a name."
    try:
        parts = text.encode().split(b"/")
    except UnicodeEncodeError:
        return f"{shortened(ascii(text))} is not UTF-8; give another name."
    longest = max(map(len, parts))
    if b"\0" in text.encode():
        return f"{shortened(ascii(text))} holds a zero byte; give another name."
    if longest > LONGEST_NAME or len(text.encode()) > LONGEST_PATH:
        return f"{shortened(text)} is too long for a file; give a shorter name."
    return ""


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # it may not be looked at
        return False


PATH, FILE_TO_WRITE = GivenPath(), GivenPath(written=True)
