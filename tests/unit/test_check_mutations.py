"""The benchmark that measures the checker: its oracle, its operators, and a dozen mutants of distinct operators."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True, scope="module")
def _benchmarks_on_path() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.parametrize("name", ["dense", "hand_written", "blur", "product"])
def test_right_programs_depend_on_no_garbage_and_no_order(name: str) -> None:
    from mutations.oracle import unsound

    assert not unsound(name)


@pytest.mark.parametrize("name", ["dense", "blur"])
def test_right_programs_pass(name: str) -> None:
    from mutations.subjects import subject

    given = subject(name)
    assert not given.check(given.program, True)


@pytest.mark.slow
def test_outputs_that_are_swapped_are_found_also_where_the_graph_has_none_of_them() -> None:
    from mutations.subjects import subject

    given = subject("delays")
    outputs, variables = given.program.outputs, given.program.variables
    pairs = [
        (one, other)
        for one, other in itertools.combinations(outputs, 2)
        if variables[outputs[one]].shape == variables[outputs[other]].shape
    ]
    assert any("sum" in one and "sum" in other for one, other in pairs)
    for one, other in pairs:
        swapped = outputs | {one: outputs[other], other: outputs[one]}
        assert given.check(replace(given.program, outputs=swapped), False), (one, other)


@pytest.mark.slow
def test_every_wrong_codelet_can_be_made_and_every_family_has_twenty() -> None:
    from mutations.wrong_codelets import DEFECTS, WRONG, wrong_program

    for name in WRONG:
        wrong_program(name)
    for family, codelets in DEFECTS.items():
        assert sum(len(defects) for defects in codelets.values()) >= 20, family


# (operator, subject): mutants that change values, found and told of the superstep
DOZEN = (
    ("moved vertex", "dense"),
    ("swapped boxes", "dense"),
    ("box off by one", "dense"),
    ("field mode", "dense"),
    ("timestep shift", "dense"),
    ("other operand", "dense"),
    ("constant", "dense"),
    ("delivery", "dense"),
    ("mapping", "product"),
    ("repeat", "dense"),
    ("supersteps swapped", "dense"),
    ("vertices dropped", "dense"),
    ("counter dropped", "dense"),
    ("counter moved", "segments"),
    ("counter swapped", "segments"),
    ("counter changed", "dense"),
    ("input or output names", "delays"),
)


@pytest.mark.first(2)
@pytest.mark.parametrize(("operator", "name"), DOZEN)
def test_a_mutant_that_changes_values_is_found(operator: str, name: str) -> None:
    from mutations.declarations import OPERATORS
    from mutations.oracle import judged
    from mutations.running import located
    from mutations.subjects import subject

    given = subject(name)
    for number in range(20):
        mutant = OPERATORS[operator](given.program, np.random.default_rng(number))
        if mutant is not None and judged(name, mutant.program).values:
            said = given.check(mutant.program, True)
            assert said, mutant.text
            assert located(mutant.places, said), (mutant.text, said)
            return
    pytest.fail(f"no mutant of '{operator}' changed a value")


def test_the_oracle_sees_what_one_array_per_variable_hides() -> None:
    """A delivery that is missing, and a sum that nobody clears."""
    from mutations.declarations import changed_delivery
    from mutations.operators import missing_zero
    from mutations.oracle import judged
    from mutations.subjects import subject

    program = subject("dense").program
    for operator in (changed_delivery, missing_zero):
        made = [operator(program, np.random.default_rng(number)) for number in range(6)]
        assert any(mutant and judged("dense", mutant.program).values for mutant in made)
