"""How much a check looks at, pinned: vertices and supersteps run, variables compared, draws, elements of kernels.

A check that compares fewer says "ok" as before. `python tests/golden/test_pinned_checks.py` prints the tables anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pins import assert_as_pinned

from mimdsim.checking.kernel import load_kernel
from mimdsim.checking.program import check_program
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline.overrides import split_changes
from mimdsim.workload import load_workload

KERNELS = Path(__file__).resolve().parents[2] / "examples"
SMALL: dict[str, Any] = {
    "data.timesteps": 4, "training.batch": 3, "network.hidden": (8,), "network.capacity": (4, 4),
    "mapping.neurons_per_tile": 2,
}  # fmt: skip
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "published": {},
    "dense": {"network.spikes": "dense"},
    "recurrent": {"network.recurrence": "all_to_all", "network.bias": True},
    "segments": {"mapping.stash": "every:2"},
    "carry": {"mapping.stash": "carry", "network.recurrence": "all_to_all"},
    "best": {"mapping.program": "best"},
    "plain": {"training.optimiser": "sgd"},
    "adaptive": {"network.neuron": "adaptive"},
    "two chips": {"chip.tiles": 8, "links.chips": 2},
}
# (vertices, supersteps, variables compared, draws)
PINNED: dict[str, tuple[str, str, str, str]] = {
    "published": ("655", "54", "2,324", "7"),
    "dense": ("271", "42", "1,729", "7"),
    "recurrent": ("869", "59", "3,199", "7"),
    "segments": ("934", "71", "2,821", "7"),
    "carry": ("791", "58", "2,821", "7"),
    "best": ("486", "22", "2,128", "7"),
    "plain": ("655", "54", "2,268", "7"),
    "adaptive": ("687", "49", "2,478", "7"),
    "two chips": ("596", "54", "2,324", "7"),
}
# (elements, draws)
OF_KERNELS: dict[str, tuple[str, str]] = {
    "hand_written": ("32", "5"),
    "kernels/all_reduce": ("64", "5"),
    "kernels/histogram": ("32", "5"),
}


def tiny(changes: dict[str, Any] | None = None) -> MimdMachine:
    found = load_machine("tiny", changes or {})
    assert isinstance(found, MimdMachine)
    return found


def counted(name: str, *, strict: bool = False) -> tuple[str, str, str, str]:
    """What the findings say of a small training step."""
    changes, of_machine = split_changes(SMALL | CONFIGURATIONS[name])
    workload, machine = load_workload("digits", changes), tiny(of_machine)
    said = {finding.name: finding.text for finding in check_program(workload, workload, machine, strict=strict)}
    rules = re.match(r"([\d,]+) vertices in ([\d,]+) supersteps", said["rules"])
    values = re.match(r"([\d,]+) variables agree in (\d+) draws", said["values"])
    assert rules, said
    assert values, said
    return rules[1], rules[2], values[1], values[2]


def counted_of_kernel(name: str) -> tuple[str, str]:
    """What the findings say of a kernel of examples."""
    found = load_kernel(KERNELS / f"{name}.py").check(tiny(), strict=False).findings
    text = next(finding.text for finding in found if finding.name == "values")
    said = re.search(r"([\d,]+) elements match .* for (\d+) draws", text)
    assert said, text
    return said[1], said[2]


@pytest.mark.first(3)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_check_compares_as_much_as_ever(name: str) -> None:
    assert_as_pinned(counted(name), PINNED[name], __file__)


@pytest.mark.first(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["published", "dense"])
def test_a_strict_check_compares_as_much(name: str) -> None:
    assert_as_pinned(counted(name, strict=True), PINNED[name], __file__)


@pytest.mark.parametrize("name", ["hand_written", "kernels/all_reduce", "kernels/histogram"])
def test_a_check_of_a_kernel_compares_as_much_as_ever(name: str) -> None:
    assert_as_pinned(counted_of_kernel(name), OF_KERNELS[name], __file__)


if __name__ == "__main__":
    for each in CONFIGURATIONS:
        print(f'    "{each}": {counted(each)},')
    for each in ("hand_written", "kernels/all_reduce", "kernels/histogram"):
        print(f'    "{each}": {counted_of_kernel(each)},')
