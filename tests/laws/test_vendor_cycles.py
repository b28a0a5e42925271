"""Cycle formulas of the vendor's library codelets: reference figures, points by hand, and laws."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.base.errors import MimdsimError
from mimdsim.costs.library import dense, elementwise, network, reductions, sparse
from mimdsim.costs.library.arithmetic import Elements, NoCycleFormula
from mimdsim.validation import vendor as formulas
from mimdsim.validation.vendor import vendor_cycles

REFERENCE = Path(__file__).resolve().parents[2] / "references" / "vendor_cycle_estimates.csv"
FEW = settings(max_examples=25, deadline=None)
COUNTS = st.integers(1, 20_000)


def test_every_vendor_figure_is_reproduced() -> None:
    with REFERENCE.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 168
    for row in rows:
        params = dict(pair.split("=", 1) for pair in row["params"].split(";"))
        assert vendor_cycles(row["codelet"], row["dtype"], params) == int(row["cycles"]), row


@pytest.mark.parametrize(
    ("cycles", "by_hand"),
    [
        # 48 halves: 8 a context, two vectors of three bundles
        (elementwise.binary_1d_cycles(48, dtype="f16"), 11 + 6 * (26 + 2 * 3)),
        (elementwise.binary_1d_cycles(48, dtype="f16", in_place=True, interleaved=True), 11 + 6 * (58 + 2 * 2)),
        (elementwise.binary_2d_cycles([7, 9, 33]), 5 + 3 * (4 + 5 + 17)),
        (elementwise.unary_1d_cycles(12, op="EXPONENT"), 20 + 6 * (33 + 6)),
        (elementwise.unary_1d_cycles(1536, op="SIGNUM"), 20 + 6 * (17 + 9 * 257 // 2)),
        (elementwise.broadcast_scalar_1d_cycles(48, dtype="f16", in_place=True), 11 + 6 * (20 + 2 * 2)),
        (elementwise.select_cycles([128, 64]), 5 + 6 + 640 + 6 + 320),
        (elementwise.clamp_cycles([9], dtype="f16"), 5 + 6 + 2 * 12 // 4),
        (elementwise.broadcast_outer_by_row_cycles(48, 64, dtype="f16"), 11 + 6 * (15 + 8 * (7 + 33))),
        (elementwise.bias_add_cycles(12, 10), 13 + 6 + 18 + 6 * (17 + 7 + 10 * 12)),
        (formulas.scaled_add_1d_cycles(24, dtype="f16"), 57 + 6 * (15 + 6 + 2 + 1 + 1)),
        (elementwise.cast_1d_cycles(48, source="f16", target="f32"), 12 + 6 * (19 + 4 + 1 + 18)),
        (elementwise.fill_cycles(17), 23 + 8 + 1),
        (reductions.dynamic_slice_1d_cycles(64, 1), 25 + 6 * (39 + 24 + 2 * 5)),
        (reductions.multi_slice_cycles(16, 24), 6 * (30 + 24 * (19 + 16))),
        (reductions.multi_slice_cycles(16, 24, in_range=4), 6 * (30 + 4 * 35 + 20 * 8)),
        (reductions.scatter_add_cycles(2, 24, scaled=True), 6 * (37 + 24 * 8)),
        (reductions.scatter_add_cycles(64, 24, in_range=4, dtype="f32"), 6 * (32 + 4 * (11 + 189) + 100)),
        (reductions.reduce_strided_cycles(16, 64, stride=16), 16 + 8 * (3 + 5 + 3 + 63)),
        (reductions.reduce_contiguous_cycles(17, 128, dtype="f16"), 17 * (32 + 12) + 17),
        (reductions.reduce_add_cycles(96, 8), 6 * (32 + (3 * 8 + 7) * 4)),
        (dense.amp_1x1_cycles(6), 369),
        (dense.outer_product_cycles(64, 16, 16), 25 + 11 + 64 * (6 + 5)),
        (formulas.dot_product_cycles(256, dtype="f32", partials_dtype="f32"), 7 + 128),
        (sparse.sparse_dense_elementwise_cycles(4, 8, 20), 6 * (28 + 4 * (15 + 60)) + 30 + 47 + 46),
        (sparse.sparse_gather_cycles(64), 18 + 6 * (23 + 8 + 5 * 2)),
        (sparse.transpose_cycles(12, 16, 16), 7 + 6 * (29 + 2 * (18 + 4 * (12 + 8)))),
        (network.normal_cycles(96, dtype="f16"), 4 + 4 * 99 // 4 + 144),
        (network.heap_sort_cycles(256), 8 * (19 * 256 * 8 + 6 * 256 + 2)),
        (network.arg_max_cycles(96, 16), 9 + 6 * (30 + 3 * 15)),
        (network.one_hot_cycles(10), 11 + 740),
    ],
)
def test_points_by_hand(cycles: Elements, by_hand: int) -> None:
    # An amp_1x1 position of each context: 50 + 42 + 13 + 11 + 18 + (7 + 64 + 6 * 25 + 14) = 369.
    assert cycles == by_hand


def test_vendor_slips_only_when_asked_for() -> None:
    right, slip = (network.uniform_cycles(96, as_vendor=vendor) for vendor in (False, True))
    assert (right, slip) == (4 + 4 * 97 // 2 + 132, 151)
    # Seven vectors: one context has two, which the vendor forgets.
    right, slip = (formulas.scaled_add_1d_cycles(14, as_vendor=vendor) for vendor in (False, True))
    assert right - slip == 6 * (3 - 1)
    assert sparse.zero_partials_cycles(100) == 6 * (5 + 10 + 50)
    assert sparse.zero_partials_cycles(100, as_vendor=True) == 600


def test_unknown_codelet_or_operation_has_no_formula() -> None:
    assert vendor_cycles("popops::NoSuchCodelet", "f32", {"n": "4"}) is None
    assert vendor_cycles("popops::BinaryOp1D<NO_SUCH_OP>", "f32", {"n": "4"}) is None
    assert vendor_cycles("popops::BinaryOp1D<LOGICAL_AND>", "f32", {"n": "4"}) is None


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(MimdsimError, match=r"BinaryOp1D<ADD>: parameter 'n' is missing; given: m"):
        vendor_cycles("popops::BinaryOp1D<ADD>", "f32", {"m": "4"})
    with pytest.raises(MimdsimError, match=r"Fill: parameter 'n' must be an integer, not 'many'"):
        vendor_cycles("popops::Fill", "f32", {"n": "many"})
    with pytest.raises(
        NoCycleFormula, match=r"binary operation: no cycle formula for 'MULTIPLI'; did you mean 'MULTIPLY'"
    ):
        elementwise.binary_1d_cycles(4, op="MULTIPLI")
    with pytest.raises(NoCycleFormula, match="number format"):
        elementwise.fill_cycles(4, dtype="f17")


# Functions of one element count, and the supervisor's part of their tile cycles (None: worker cycles).
SMOOTH: list[tuple[Callable[..., Elements], int]] = [
    (lambda n, **k: elementwise.binary_1d_cycles(n, dtype="f16", **k), 11),
    (lambda n, **k: elementwise.binary_1d_cycles(n, op="DIVIDE", in_place=True, **k), 11),
    (lambda n, **k: elementwise.unary_1d_cycles(n, op="TANH", dtype="f16", **k), 20),
    (lambda n, **k: elementwise.unary_1d_cycles(n, op="SIGNUM", **k), 20),
    (lambda n, **k: elementwise.broadcast_scalar_1d_cycles(n, dtype="f16", **k), 11),
    (lambda n, **k: elementwise.broadcast_outer_by_row_cycles(n, 64, **k), 11),
    (lambda n, **k: elementwise.bias_add_cycles(n, 64, dtype="f16", **k), 19),
    (lambda n, **k: reductions.dynamic_slice_1d_cycles(n, 4, dtype="f16", **k), 25),
    (lambda n, **k: reductions.multi_slice_cycles(n, 24, split_single_region=True, **k), 0),
    (lambda n, **k: sparse.sparse_dense_transposed_cycles(2, 8, n, **k), 142),
]
# Their remainder can cost more than the vector it is short of, so they grow from one whole round to the next.
RAGGED: list[tuple[Callable[..., Elements], int]] = [
    (lambda n, **k: formulas.scaled_add_1d_cycles(n, dtype="f16", **k), 57),
    (lambda n, **k: elementwise.cast_1d_cycles(n, source="f32", target="f16", **k), 12),
    (lambda n, **k: network.nonlinearity_gradient_1d_cycles(n, op="TANH", dtype="f16", **k), 9),
]
SINGLE: list[Callable[[Elements], Elements]] = [
    lambda n: elementwise.fill_cycles(n, dtype="f16"),
    lambda n: elementwise.fill_cycles(n),
    lambda n: elementwise.fill_cycles(n, dtype="u8"),
    lambda n: elementwise.select_cycles([n, n]),
    lambda n: elementwise.broadcast_select_cycles([n]),
    lambda n: elementwise.clamp_cycles([n], dtype="f16"),
    lambda n: elementwise.binary_2d_cycles([n, n], op="MAXIMUM"),
    lambda n: elementwise.unary_2d_cycles([n], op="SIGMOID"),
    lambda n: elementwise.broadcast_scalar_2d_cycles([n]),
    lambda n: reductions.dynamic_slice_2d_cycles([n], 3, dtype="f16"),
    lambda n: reductions.multi_slice_cycles(64, 20_000, in_range=n),
    lambda n: reductions.scatter_add_cycles(64, 20_000, in_range=n, scaled=True),
    lambda n: reductions.reduce_contiguous_cycles(n, 32),
    lambda n: reductions.reduce_strided_cycles(n, 32, stride=8),
    lambda n: network.arg_max_cycles(20_000, n),
    lambda n: network.one_hot_cycles(n),
]
VECTORISED = [function for function, _ in SMOOTH + RAGGED if function is not SMOOTH[-1][0]] + [
    *SINGLE,
    lambda n: elementwise.cast_1d_cycles(n, source="u8", target="f16"),
    lambda n: elementwise.cast_2d_cycles([n], source="f16", target="u8"),
    lambda n: formulas.scaled_add_1d_cycles(n, memory_constrained=True),
    lambda n: formulas.scaled_add_1d_cycles(n, op="AXPLUSBY"),
    lambda n: elementwise.broadcast_outer_by_column_cycles(n, n),
    lambda n: elementwise.bias_add_cycles(n, 12, dtype="f16"),
    lambda n: reductions.scatter_add_cycles(n, 24, scaled=True),
    lambda n: reductions.scatter_add_cycles(n, 24, dtype="f16", subword_writes=True),
    lambda n: reductions.reduce_to_scalar_cycles(n),
    lambda n: network.uniform_cycles(n, dtype="f16"),
    lambda n: network.bernoulli_cycles(n),
    lambda n: network.dropout_cycles(n, dtype="f16"),
    lambda n: network.nan_check_1d_cycles(n, rest=1, infinities=True, dtype="f16"),
]


@FEW
@given(COUNTS, st.integers(0, 5_000))
def test_more_elements_never_cost_less(n: int, more: int) -> None:
    for function in [*SINGLE, *(function for function, _ in SMOOTH)]:
        assert function(n) <= function(n + more)
    for function, _ in RAGGED:
        assert function(24 * n) <= function(24 * (n + more))


@FEW
@given(COUNTS, st.integers(1, 12), st.integers(0, 12))
def test_more_worker_contexts_never_lengthen_a_workers_part(n: int, contexts: int, more: int) -> None:
    # Tile cycles are contexts x worker cycles, so it is the worker's own count that sharing must not raise.
    for function, supervisor in SMOOTH:
        few, many = (
            (function(n, worker_contexts=count) - supervisor) // count for count in (contexts, contexts + more)
        )
        assert many <= few


@FEW
@given(st.lists(COUNTS, min_size=1, max_size=20))
def test_arrays_are_priced_as_their_elements(counts: list[int]) -> None:
    extents = np.array(counts, dtype=np.int64)
    for function in VECTORISED:
        together = function(extents)
        assert isinstance(together, np.ndarray)
        assert np.issubdtype(together.dtype, np.integer)
        one_by_one = [function(count) for count in counts]
        assert all(type(cycles) is int for cycles in one_by_one)
        assert together.tolist() == one_by_one
