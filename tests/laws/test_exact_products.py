"""Whole numbers made of products of what users write."""

from __future__ import annotations

import ast
import math
import re
from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from networks import small_network

import mimdsim
from mimdsim.base.units import exact_product, within
from mimdsim.graph import training_graph
from mimdsim.graph.losses import Loss
from mimdsim.workload import filled_activity
from mimdsim.workload.description.workload import capacity_by_activity

HUNDREDTHS = st.integers(0, 100)
# float products of which a whole number may be made: nothing that a user writes as a share or a ratio is in them
ALLOWED = {
    "mimdsim/validation/sparse/dynamic.py": "room of a bucket, as the vendor's planner counts it",
    "mimdsim/validation/sparse/static.py": "depths between which cycles are interpolated",
    "mimdsim/compiler/place/placement.py": "work as the authors' program counts it",
    "mimdsim/functional/input_gradients.py": "whole numbers only",
    "mimdsim/functional/neurons.py": "turns worth a thread",
    "mimdsim/execution/whole_tensor_layers.py": "room for lists, which grows",
    "mimdsim/gpu/elementwise.py": "halves of whole numbers",
    "mimdsim/pipeline/findings.py": "digits of a number that is shown",
    "mimdsim/report/formatting.py": "digits of a number that is shown",
    "mimdsim/search/combined.py": "shares that the search tries",
    "mimdsim/search/neighbours.py": "shares that the search tries",
    "mimdsim/search/splits.py": "shares that the search tries",
    "mimdsim/search/search_loop.py": "shares of candidates that the search tries first",
    "mimdsim/studies/sampling.py": "places in the unit cube",
    "mimdsim/workload/data/events.py": "drawn places",
    "mimdsim/workload/data/sources.py": "events drawn at once",
    "mimdsim/workload/data/randman.py": "bins of drawn times",
}


@given(hundredths=HUNDREDTHS, count=st.integers(1, 4000))
def test_products_are_those_of_the_decimals_that_were_written(hundredths: int, count: int) -> None:
    assert exact_product(hundredths / 100, count) == Fraction(hundredths * count, 100)


@given(hundredths=HUNDREDTHS, timesteps=st.integers(1, 120))
def test_targets_of_spike_counts(hundredths: int, timesteps: int) -> None:
    """0.29 of 100 timesteps are 29 spikes, and what is no whole number is rounded down, as snnTorch does."""
    rates = {"correct_rate": hundredths / 100, "incorrect_rate": (100 - hundredths) / 100}
    loss = Loss(kind="mean_squared_error", neurons_per_class=2, **rates)
    graph = training_graph(small_network((3, 4), timesteps=timesteps, loss=loss))
    (targets,) = (op.attributes for op in graph.operations if op.kind == "mean_squared_error")
    assert targets.correct == hundredths * timesteps * 2 // 100
    assert targets.incorrect == (100 - hundredths) * timesteps * 2 // 100


@given(thousandths=st.integers(0, 1000), neurons=st.integers(1, 5000))
def test_capacities_by_activity(thousandths: int, neurons: int) -> None:
    assert capacity_by_activity(thousandths / 1000, neurons) == max(2 * (thousandths * neurons // 2000), 2)


def test_lists_filled_to_a_share() -> None:
    network = small_network((100, 100, 50))
    for hundredths in range(101):
        counts = filled_activity(network, hundredths / 100).counts
        for name, capacity in [
            ("input", network.input_capacity),
            *((one.name, one.capacity) for one in network.layers),
        ]:
            assert counts[name].max() == math.floor(Fraction(hundredths * capacity, 100) + Fraction(1, 2))


def test_an_uncertainty_is_rounded_up_no_further_than_it_must_be() -> None:
    assert [within("measured", hundredths / 1e4) for hundredths in (29, 57, 58)] == [
        f"measured within {hundredths / 100:g} %" for hundredths in (29, 57, 58)
    ]


def test_no_other_whole_number_is_cut_from_a_product_of_floats() -> None:
    """int() and floor() of a product or quotient appear only where none is what a user wrote as a share."""
    root = Path(mimdsim.__file__).parents[2]
    found = set()
    for path in (root / "mimdsim").rglob("*.py"):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        if name.startswith("mimdsim/numerics/") or not re.search(r"\b(int|floor|trunc)\(", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and _cuts(node) and "exact_product" not in ast.unparse(node):
                found.add(name)
    assert found <= set(ALLOWED)


def _cuts(node: ast.Call) -> bool:
    called = ast.unparse(node.func)
    if called in ("int", "math.floor", "math.trunc", "np.floor", "np.trunc") and node.args:
        of: ast.expr = node.args[0]
    elif called.endswith(".astype") and node.args and "int" in ast.unparse(node.args[0]):
        assert isinstance(node.func, ast.Attribute)
        of = node.func.value
    else:
        return False
    if any(word in ast.unparse(of) for word in ("rint", "ceil", "round", "//", ".sum()", "choice")):
        return False
    return any(isinstance(each, ast.BinOp) and isinstance(each.op, (ast.Mult, ast.Div)) for each in ast.walk(of))
