"""Mutants of every format of file: refused with a reason, or read as what they say; and what holds them to it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("h5py")

from hostile.descriptions import MachineFile, WorkloadFile
from hostile.formats import FORMATS
from hostile.running import Format, outcome_of, same

FEW, MANY = 5, 100  # of each format; more by hand: benchmarks/hostile_files.py


def run(name: str, folder: Path, count: int, seed: int) -> None:
    form = FORMATS[name](folder)
    try:
        found = outcome_of(form, count, seed)
    finally:
        form.close()
    print(name, found)
    assert not found.failures, found.failures[:3]
    if count == MANY and not form.only_writes:
        assert found.refused > count // 10
        assert found.as_it_says + found.untold > 0


@pytest.mark.first(3)
@pytest.mark.parametrize("name", list(FORMATS))
def test_a_few_mutants(tmp_path: Path, name: str) -> None:
    run(name, tmp_path, FEW, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FORMATS))
def test_many_mutants(tmp_path: Path, name: str) -> None:
    run(name, tmp_path, MANY, 1)


class Careless(Format):
    """A reader with every fault that the mill must find: it crashes, doubles, dawdles, or takes all memory."""

    name = "careless"

    def good(self) -> Path:
        path = self.folder / "good.json"
        path.write_text('{"value": 1}')
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        path = self.folder / "mutant.json"
        path.write_text(json.dumps({"value": number}))
        return path

    def read(self, path: Path) -> Any:
        value = json.loads(path.read_text())["value"]
        if value == 2:
            raise KeyError("a traceback")
        if value == 3:
            return {"value": 4}
        if value == 4:
            np.ones(2**27).sum()
        if value == 5:
            time.sleep(20)
        return {"value": value}

    def says(self, path: Path) -> Any:
        return json.loads(path.read_text())


@pytest.mark.slow
def test_the_mill_finds_what_a_careless_reader_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostile.running.LIMIT_SECONDS", 5.0)  # a loaded machine takes some for a gigabyte
    # half of what reader 4 takes: meanwhile the process may give back what earlier tests left, or pages of libraries
    monkeypatch.setattr("hostile.running.LIMIT_BYTES", 2**29)
    found = outcome_of(Careless(tmp_path), 6, 0, tmp_path / "kept")
    assert [number for number, _ in found.failures] == [2, 3, 4, 5]
    assert [found.as_it_says, found.refused] == [2, 0]
    for (_, said), words in zip(
        found.failures, ("KeyError", "something else than it says", " MB", "Timeout"), strict=True
    ):
        assert words in said
    assert (tmp_path / "kept" / "careless-3.json").exists()


def test_what_a_description_says_is_told_by_another_parser(tmp_path: Path) -> None:
    for form in (WorkloadFile(tmp_path), MachineFile(tmp_path)):
        path = form.good()
        assert same(form.read(path), form.says(path))
        other = form.says(path)
        section = next(name for name, value in other.items() if isinstance(value, dict) and name != "sources")
        other[section] = {**other[section], next(iter(other[section])): "else"}
        assert not same(form.read(path), other)
