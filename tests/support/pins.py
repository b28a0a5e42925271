"""Pinned tables: figures as they are, each written anew by its test file, run as a program."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any


def assert_as_pinned(found: Sequence[Any], known: Sequence[Any], test: str) -> None:
    """Raise AssertionError with the lines that differ and the command of the test file that writes the table anew."""
    if list(found) == list(known):
        return
    lines = ([one if isinstance(one, str) else str(one) for one in each] for each in (known, found))
    told = "\n".join(unified_diff(*lines, "pinned", "now", lineterm="", n=0))
    run = f"PYTHONPATH=$(echo tests/*/ | tr ' ' :) python tests/golden/{Path(test).name}"
    raise AssertionError(f"{told}\nif this change is meant, run  {run}  and say so")
