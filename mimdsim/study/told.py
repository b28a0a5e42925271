"""A study's answer as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from mimdsim.study.results import table_lines
from mimdsim.study.studied import Studied

MOST_ROWS = 40


def answer_lines(studied: Studied) -> Iterator[str]:
    """The question, then the rows."""
    rows = list(studied.rows)
    if studied.study.question:
        yield studied.study.question
    yield from table_lines(rows[:MOST_ROWS], list(studied.study.varied), studied.study.gpus)
