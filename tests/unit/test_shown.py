"""Whatever a public function returns, and all that it holds, prints on one screen, and as a table in notebooks."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from html.parser import HTMLParser
from typing import Any

import pytest
from pydantic import BaseModel
from test_api import SMALL, made

import mimdsim
from mimdsim.base.shown import COLUMNS, LINES, Listed, Sheet, Shown, brief
from mimdsim.report.plots import OpenedRun

MOST_OF_A_KIND = 6  # objects whose members are looked at
MOST_ITEMS = 40  # of a list or table


def members(one: Any) -> Iterator[tuple[str, Any]]:
    """Public fields and properties; those that raise (of another kind of machine) are none."""
    if isinstance(one, (list, tuple, set, frozenset)):
        yield from ((f"[{at}]", each) for at, each in zip(range(MOST_ITEMS), one, strict=False))
    if isinstance(one, Mapping):
        yield from ((f"[{key!r}]", each) for _, (key, each) in zip(range(MOST_ITEMS), one.items(), strict=False))
    kind = type(one)
    names = {field.name for field in dataclasses.fields(one)} if dataclasses.is_dataclass(one) else {*vars(one)}
    names |= {*kind.model_fields} if isinstance(one, BaseModel) else set()
    names |= {name for name in dir(kind) if isinstance(getattr(kind, name, None), (property, cached_property))}
    for name in sorted(names):
        if not name.startswith(("_", "model_")):
            try:
                yield f".{name}", getattr(one, name)
            except Exception:  # it is not for objects such as this
                continue


def held(name: str, root: Any) -> Iterator[tuple[str, Any]]:
    """Every object of a class of ours that hangs on `root`, with the path to it."""
    seen: dict[int, Any] = {}
    kinds: Counter[type] = Counter()
    waiting = [(name, root)]
    while waiting:
        path, one = waiting.pop()
        ours = type(one).__module__.partition(".")[0] == "mimdsim"
        if id(one) in seen or not (ours or isinstance(one, (list, tuple, set, frozenset, dict))):
            continue
        seen[id(one)] = one
        kinds[type(one)] += 1
        if ours:
            yield path, one
        if not ours or kinds[type(one)] <= MOST_OF_A_KIND:
            waiting += [(path + step, each) for step, each in (members(one) if ours else items(one))]


def items(one: Any) -> Iterator[tuple[str, Any]]:
    every = one.items() if isinstance(one, dict) else enumerate(one)
    yield from ((f"[{key!r}]", each) for _, (key, each) in zip(range(MOST_ITEMS), every, strict=False))


def lines_of(text: str) -> int:
    """On a console of COLUMNS."""
    return sum(-(-max(len(line), 1) // COLUMNS) for line in text.split("\n"))


def too_long(name: str, root: Any) -> list[str]:
    found = []
    for path, one in held(name, root):
        if (lines := lines_of(repr(one))) > LINES or (isinstance(one, Shown) and lines_of(str(one)) > 400):
            found.append(f"{path} ({type(one).__qualname__}): {lines} lines")
    return found


def of_a_kernel() -> Any:
    kernel = mimdsim.Kernel("filled", "tiny")
    kernel.fill(kernel.output(kernel.variable("x", 64)), 1.0)
    return kernel


ROOTS = {
    "run": made,
    "machine": lambda: mimdsim.load_machine("bow"),
    "gpu": lambda: mimdsim.load_machine("a100"),
    "workload": lambda: mimdsim.load_workload("nmnist-2-random"),
    "study": lambda: mimdsim.studies.read_study("sram-per-tile"),
    "studied": lambda: mimdsim.study("ids-or-dense", as_is=True),
    "swept": lambda: mimdsim.sweep("digits", "tiny", {"tile.worker_contexts": (3, 6)}, fill=0.5, processes=1),
    "validated": lambda: mimdsim.validate("tile_mapping_golden.json"),
    "checked": lambda: mimdsim.check("digits", "tiny", changes=SMALL),
    "kernel": of_a_kernel,
    "program": lambda: of_a_kernel().program(),
    "explained": lambda: mimdsim.explain(of_a_kernel().program(), "tiny", 0),
    "placed": lambda: mimdsim.place("digits", "bow", changes=SMALL, candidates=2, processes=1),
    "executor": lambda: mimdsim.Executor(made().compiled.program),
}
SLOW = ("placed", "swept", "checked", "run")


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in ROOTS])
def test_all_that_hangs_on_a_result_prints_on_one_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = ROOTS[name]()
    assert too_long(name, root) == []
    assert "object at 0x" not in repr(root)
    if isinstance(root, Shown):
        assert repr(root).splitlines()[0]
        assert "<table>" in root._repr_html_()


@dataclasses.dataclass(frozen=True)
class Long(Shown):
    title: str
    numbers: tuple[int, ...]
    table: dict[str, int]
    nothing: str = ""


def test_long_values_are_said_in_short_and_empty_ones_are_not() -> None:
    one = Long("a" * 5000, tuple(range(10_000)), {f"key{at}": at for at in range(5000)})
    assert lines_of(repr(one)) <= 8
    assert "10,000 ints" in repr(one)
    assert "5,000: key0, key1" in repr(one)
    assert "nothing" not in repr(one)
    assert brief([type("Liveness", (), {})()] * 2) == "2 Liveness"
    assert (brief(2048, "peak_bytes"), brief(0.002, "host_seconds"), brief(7)) == ("2 KiB", "2 ms", "7")


@dataclasses.dataclass(frozen=True)
class Many(Shown):
    rows: int
    head: tuple[str, ...] = ()

    def _sheet(self) -> Sheet:
        return Sheet("<Many> & \x1b[2J", (("<b>", "long " * 100) for _ in range(self.rows)), self.head)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found[tag] += 1

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("head", [(), ("what", "how")])
@pytest.mark.parametrize("rows", [0, 1, 7, 23, 24, 1000])
def test_no_more_than_a_screen_whatever_there_is(rows: int, head: tuple[str, ...]) -> None:
    text = repr(Many(rows, head))
    assert lines_of(text) <= LINES
    assert max(map(len, text.split("\n"))) <= COLUMNS
    assert "\x1b" not in text
    tags = Tags()
    tags.feed(Many(rows, head)._repr_html_())
    assert tags.found.keys() <= {"table", "caption", "b", "tr", "td", "th", "p"}  # what names hold is text
    assert tags.found["b"] == 1
    said = [line for line in text.split("\n") if line.startswith("  ... and ")]
    shown = text.count("<b>")
    assert said == ([f"  ... and {rows - shown} more"] if rows > shown else [])


def test_lists_that_print_as_tables_are_lists() -> None:
    rows = Listed([{"a": 1}, {"a": 2}], lambda rows: Sheet("two", [(str(row),) for row in rows]))
    assert rows == [{"a": 1}, {"a": 2}] == pickle.loads(pickle.dumps(rows))
    assert repr(rows) == "two\n  {'a': 1}\n  {'a': 2}"


def test_saved_runs_print_as_those_in_memory() -> None:
    assert repr(OpenedRun(made().profile, made().detail)) == repr(made())
    tiled = made().tiled
    small = dataclasses.replace(tiled, memory=dataclasses.replace(tiled.memory, limit_bytes=1))
    assert "does not fit" in repr(small)
    assert "does not fit" not in repr(tiled)


def test_advice_prints_as_it_is_said_with_its_command() -> None:
    one = made().what_if({"exchange.bytes_per_cycle": 8.0})
    said = f"{one} {one.command}".split()
    assert one.command.startswith("mimdsim run digits tiny")
    assert repr(one).split()[: len(said) - 4] == said[:-4]  # folded, and cut where it is longer than a few lines
    assert lines_of(repr((one,) * 5)) <= LINES


def test_frames_print_as_tables_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    tiles = made().tiles
    assert isinstance(tiles, dict)
    assert repr(tiles).startswith("16 rows\n  tile  chip  layer")
    assert too_long("supersteps", made().supersteps) == []
