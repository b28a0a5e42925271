"""docs/reference-*.md hold every key and every function, as the code has them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import mimdsim
from mimdsim.base.schema import Section
from mimdsim.machine.numbers import described_values

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import reference_pages  # noqa: E402
from reference_pages import Row, meaning_of, pages, tables_of  # noqa: E402


class Undescribed(Section):
    told: int = 1
    """What it is."""
    untold: int = 2


def rows(described: type[Section]) -> dict[str, Row]:
    """By dotted key."""
    tables = tables_of(described).values()
    return {f"{path}.{row.key}".removeprefix("."): row for places in tables for path in places for row in places[path]}


def test_pages_are_what_the_code_says() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("reference-*.md")}
    stale = [name for name, text in pages().items() if written.get(name) != text]
    assert not stale, f"run  python benchmarks/reference_pages.py  ({', '.join(stale)})"
    assert written.keys() == pages().keys()


def test_a_key_without_a_meaning_is_refused() -> None:
    assert meaning_of(Undescribed, "told") == "What it is."
    with pytest.raises(LookupError, match=r"test_reference_pages.Undescribed.untold: write what it means"):
        tables_of(Undescribed)


def test_a_parameter_without_a_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(known: int, unknown: int) -> None:
        """Nothing. known: how many."""

    monkeypatch.setattr(mimdsim, "run", made)
    with pytest.raises(LookupError, match=r"made: write what unknown means"):
        reference_pages.api_page()


def test_choices_units_bounds_and_defaults() -> None:
    workload, machine = rows(mimdsim.workload.Workload), rows(mimdsim.machine.MimdMachine)
    assert workload["training.batch"][1:3] == ("whole number, more than 0, at most 65,536", "required")
    assert workload["network.delay"][1:3] == ("`0` or `1`", "1")
    assert workload["network.surrogate_slope"].takes == "number, more than 0, or a list of them"
    assert (
        workload["network.convolutions.NAME.kernel"].takes == "list of 2, each whole number, at least 0, at most 65,536"
    )
    assert "list of 2: whole number, at least 0; number, at least 0" in workload["training.rate_table"].takes
    assert workload["data.path"][1:3] == ("path", '`""`')
    assert workload["data.bin_seconds"][1:3] == ("number (s, ms, us, ns), more than 0", "1 ms")
    assert workload["network.delays"].takes == "table by name, each table, at most 256 of them"
    assert workload["network.delays.NAME.ages"].takes == "whole number, more than 1, at most 1,024"
    assert machine["tile.sram_bytes"].takes.endswith("plausible: 1 KiB to 16384 GiB")
    assert machine["costs.core.vectors.load_cycles"].meaning == "Of a load."


@pytest.mark.parametrize("name", ["bow", "a100", "wse2"])
def test_sums_are_those_that_the_list_of_a_machine_names(name: str) -> None:
    machine = mimdsim.load_machine(name)
    keys = rows(type(machine))
    shown = [each for each in described_values(machine) if not each.key.startswith(("codelets.", "scaled."))]
    assert len(shown) > 20
    for each in shown:
        assert keys[f"{each.section}.{each.key}"].enters == each.enters
