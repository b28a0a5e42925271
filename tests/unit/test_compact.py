"""Columns in few bytes: they hold the same numbers, and nothing that computes with them notices."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from networks import ADAM, assert_same_bits, compiled, executed, given_values, machine, small_network
from numba.core.dispatcher import Dispatcher

from mimdsim.base import compressed_columns as module
from mimdsim.base.compressed_columns import LONG, compact, numbers, single, uniform, wide
from mimdsim.codelets.spikes import REDUCE_PARTS
from mimdsim.pipeline import retime
from mimdsim.program import Term, VertexTable, Within
from mimdsim.timing.recording import data_dependent_term
from mimdsim.workload import filled_activity

COLUMNS = {
    "int8": np.arange(LONG) % 128,
    "int16": np.arange(LONG) - 200,
    "int32": np.arange(LONG) + 32768,
    "int64": np.arange(LONG) + 2**31,
    "whole": np.arange(LONG) / 2 * 2 + 1e5,
}

EXTENT = Within(layer="a", shift=0)
TERM = Term(bundles=1, extents=("entries",))


@pytest.mark.parametrize("name", COLUMNS)
def test_the_smallest_type_that_holds_the_numbers(name: str) -> None:
    column = COLUMNS[name]
    made = compact(column)
    assert made.dtype == {"whole": "int32"}.get(name, name)
    assert np.array_equal(made, column)
    assert np.array_equal(wide(made), column)
    assert compact(column[:-1]) is not made
    assert compact(column + 0) is made or name == "int64"  # equal columns are one array
    assert compact(made) is made


def test_what_stays_as_it_is() -> None:
    for column in (np.arange(LONG - 1), np.linspace(0, 1, LONG), np.full(LONG, 2.0**40) + np.arange(LONG)):
        assert compact(column) is column
    assert compact(np.zeros(0, np.int64)).size == 0


def test_one_number_for_all_takes_no_memory() -> None:
    for column in (np.full(LONG, 7), np.full((LONG, 2), 0.3)):
        made = uniform(column)
        assert not any(made.strides)
        assert (made == column).all()
    assert single(uniform(np.full(LONG, 0.3))) == 0.3
    few = np.full(3, 7)
    assert uniform(few) is few is single(few)


def reduction(rows: int, kind: type, **columns: np.ndarray) -> VertexTable:
    given = {name: np.zeros(rows, kind) for name in REDUCE_PARTS.columns} | columns
    operands = {field.name: "v" for field in REDUCE_PARTS.fields}
    return VertexTable(codelet=REDUCE_PARTS, tiles=np.arange(rows), operands=operands, columns=given)


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64])
def test_unsigned_columns_are_counted_as_signed_ones(kind: type) -> None:
    given = np.array([0, 0, 1], kind), np.array([0, 2, 1], kind)
    one, other = (
        data_dependent_term(table, TERM, np.ones(3), EXTENT)
        for each in (kind, np.int64)
        for table in [reduction(3, each, sample=given[0].astype(each), slot=given[1].astype(each))]
    )
    np.testing.assert_array_equal(one.summed, other.summed)
    assert one.samples == other.samples == 2


def test_no_table_changes_with_another_one() -> None:
    """What is one array of two tables cannot be changed through either."""
    one, other = (reduction(LONG, int, slot=np.arange(LONG) % 3) for _ in range(2))
    assert one.columns["slot"] is other.columns["slot"]
    with pytest.raises(ValueError, match="read-only"):
        one.columns["slot"][0] = 7


def test_vertices_are_chosen_by_number_or_by_truth() -> None:
    table, chosen = reduction(LONG, int, slot=np.arange(LONG) % 3), np.arange(LONG) % 5000 == 0
    by_truth, by_number = table.some(chosen), table.some(np.flatnonzero(chosen))
    for name, column in by_number.columns.items():
        np.testing.assert_array_equal(by_truth.columns[name], column)
    assert by_truth.vertices == np.count_nonzero(chosen)


def test_equal_numbers_of_a_tuple_are_one_object() -> None:
    column = np.arange(3 * LONG) % 1000 + 10**9
    made = numbers(column)
    assert made == tuple(column.tolist())
    assert len({id(number) for number in made}) == 1000


def kernels() -> Iterator[tuple[str, int]]:
    """Kernels of the package, and for how many types of arguments each was compiled or loaded."""
    for name, one in list(sys.modules.items()):
        if name.startswith("mimdsim.numerics"):
            yield from (
                (f"{name}.{key}", len(k.signatures)) for key, k in vars(one).items() if isinstance(k, Dispatcher)
            )


@pytest.mark.parametrize("case", ["sparse", "sparse, on two chips", "dense"])
def test_programs_of_compact_columns(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """A program of which nearly all columns are compact trains and takes as long as before, by the same kernels."""
    how = {"spikes": "dense"} if case == "dense" else {"capacities": (6, 5, 3), "optimiser": ADAM}
    network = small_network((9, 14, 12, 3), timesteps=4, batch=4, **how)
    values = given_values(network, 1)
    chips = 2 if "chips" in case else 1
    seen = []
    for long in (LONG, 2):
        monkeypatch.setattr(module, "LONG", long)
        made = compiled(network, tiles=60, chips=chips)
        outcomes = [executed(made, values, strict=strict) for strict in (False, True)]
        profile = retime(made, machine(60, chips=chips), filled_activity(network, 0.6))
        seen.append((outcomes, profile, Counter(dict(kernels()))))
    (plain, profile, before), (narrow, same, after) = seen
    for one, other in zip(plain, narrow, strict=True):
        assert_same_bits(one, other)
    assert same == profile
    assert set((after - before).elements()) == set()
