"""Every public name says what its parameters are and shows an example, which runs if it is cheap."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_api import made

import mimdsim
from mimdsim.checking.kernel import CheckResult, KernelResult
from mimdsim.pipeline import Run
from mimdsim.report.plots import OpenedRun, RunPlots
from mimdsim.search import SearchResult
from mimdsim.studies import StudyResult
from mimdsim.studies.page_data import StudyPlots, SweptRows
from mimdsim.timing import Explanation
from mimdsim.validation.calibration.fit import Narrowed
from mimdsim.workload import Workload

RESULTS = (
    *(Run, OpenedRun, RunPlots, StudyResult, SweptRows, StudyPlots, CheckResult, KernelResult, SearchResult),
    *(Explanation, Narrowed, Workload),
)


def public() -> Iterator[tuple[str, Any]]:
    """(name, function or class) of the package, and methods of what it returns."""
    for name in mimdsim.__all__:
        if callable(made := getattr(mimdsim, name)):
            yield name, made
    for kind in RESULTS:
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and method.__module__.startswith("mimdsim") and not inspected(kind, name):
                yield f"{kind.__name__}.{name}", method


def inspected(kind: type, name: str) -> bool:
    """Whether a base among RESULTS has it too."""
    return any(name in vars(base) for base in kind.__mro__[1:] if base in RESULTS)


PUBLIC = dict(public())


def parameters(of: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(of).parameters if name != "self"]


@pytest.mark.parametrize("name", PUBLIC)
def test_parameters_are_named_and_an_example_is_shown(name: str) -> None:
    of = PUBLIC[name]
    text = inspect.getdoc(of) or ""
    names = [] if isinstance(of, type) and issubclass(of, Exception) else parameters(of)
    said = " ".join(text.split())
    lacks = [one for one in names if not re.search(rf"(?:^|\s){one}(?:,\s\w+)*:\s", said)]
    assert not lacks, f"{name}: write what {', '.join(lacks)} means, as 'name: ...'"
    assert ">>> " in text, f"{name}: show an example"


def test_properties_of_results_are_described() -> None:
    bare = [
        f"{kind.__name__}.{name}"
        for kind in RESULTS
        for name, made in inspect.getmembers(kind, lambda one: isinstance(one, property))
        if not name.startswith(("_", "model_")) and not inspect.getdoc(made)
    ]
    assert bare == []


@cache
def swept() -> SweptRows:
    return mimdsim.sweep("digits", "bow", {"tile.worker_contexts": (3, 6)}, fill=0.5, processes=1)


MADE: dict[str, Callable[[], Any]] = {"made": made, "swept": swept}


def examples() -> Iterator[Any]:
    finder = doctest.DocTestFinder(recurse=False)
    for name, of in PUBLIC.items():
        for found in finder.find(of, name):
            needed = {word for each in found.examples for word in re.findall(r"\w+", each.source)}
            marks = [pytest.mark.slow] * bool(needed & {"swept"})
            if any(not each.options.get(doctest.SKIP) for each in found.examples):
                yield pytest.param(found, id=name, marks=marks)


@pytest.mark.first(3)
@pytest.mark.parametrize("example", [*examples()])
def test_examples_run(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    words = {word for each in example.examples for word in re.findall(r"\w+", each.source)}
    example.globs = {"mimdsim": mimdsim} | {name: make() for name, make in MADE.items() if name in words}
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(example, out=said.append)
    assert not said, "".join(said)
