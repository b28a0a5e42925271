"""Kernels that other tests reach only through whole networks, on small arrays worked out here."""

from __future__ import annotations

import os
import subprocess
import sys

import numba
import numpy as np
import pytest

from mimdsim.execution.execute import LINE, OWN_PAGES, zeros
from mimdsim.execution.whole_tensor_layers import room_for_entries
from mimdsim.numerics.columns import worker_load
from mimdsim.numerics.fused import whole_linear, whole_tensors
from mimdsim.numerics.fused.vectors import WIDTH, weigh_strips
from mimdsim.numerics.sparse import recurrence_and_bias
from mimdsim.program import Exchange
from mimdsim.program.checks.exchange import _first_other_count
from mimdsim.program.records import EXCHANGE_COLUMNS

BEGINNING = """
import sys
import numba, numpy as np
import mimdsim.numerics
numba.njit(lambda x: x + 1)(1)
before = "scipy.linalg" in sys.modules
print(before, numba.njit(lambda a: a @ a)(np.full((2, 2), 2.0)).tolist())
"""


@pytest.mark.slow
def test_numba_begins_without_scipy_and_still_multiplies_matrices() -> None:
    pytest.importorskip("scipy")
    done = subprocess.run([sys.executable, "-c", BEGINNING], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "False [[8.0, 8.0], [8.0, 8.0]]"


def test_currents_of_a_row_replace_what_was_there() -> None:
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    current = np.full((2, 3), 99, np.float32)
    row = np.array([[1, 0, 0, 1], [0, 0, 1, 0]], np.uint8)
    recurrence_and_bias.synapse_current_dense(
        current, weights, row, np.array([0, 1]), np.array([0, 1]), np.array([3, 3])
    )
    assert current.tolist() == [[9, 11, 13], [99, 7, 8]]


def test_places_are_dealt_to_contexts_in_turn() -> None:
    place, row = np.array([0, 5, 7, -1, 12], np.int32), np.array([2, 0, 1, 0, 3], np.int32)
    found = worker_load.cells_on(place, row, 4, 6)  # rows, contexts
    assert found.tolist() == [2, 20, 5, -1, 3]


def test_joined_lists_are_as_long_as_their_capacity_allows() -> None:
    """Two blocks, three timesteps of one sample: 3, 1 and 1 spike, and 1, 2 and 3 near the threshold; room for 2."""
    entries = places, lanes, values, slots, ends = room_for_entries(2, 3, 8)
    near, fired = 0, int(whole_linear.FIRED)
    first = [(0, fired), (0, fired), (0, near), (1, fired), (2, near), (2, near), (2, near)]
    second = [(0, fired), (1, near), (1, near), (2, fired)]
    for block, listed in enumerate((first, second)):
        places[block, : len(listed)], kinds = np.array(listed).T
        lanes[block, : len(listed)] = kinds + np.arange(len(listed))
        values[block, : len(listed)] = 1
        ends[block] = np.cumsum(np.bincount(np.array(listed)[:, 0], minlength=3))
    starts, trues, over = np.zeros(4, np.int64), np.zeros(3, np.int32), np.zeros(4, np.int64)
    whole_linear.count_listed(2, entries, starts, trues, over)
    assert trues.tolist() == [2, 1, 1]
    assert starts.tolist() == [0, 2, 4, 6]
    assert over.tolist() == [0, 1, 1, 1]
    ids, shape, begins = np.zeros(6, np.int32), (0, np.float32(10)), np.zeros((3, 1), np.int64)
    for first_t, last_t in ((2, 3), (0, 2)):  # in any order
        of = first_t, last_t, 1, begins, np.float32(1), shape, entries
        whole_linear.join(*of, (starts, trues, ids))
    assert ids.tolist() == [0, 1, 3, WIDTH + 1, WIDTH + 3, 4]
    assert slots[0, :7].tolist() == [0, 1, -1, 2, 5, -1, -1]
    assert slots[1, :4].tolist() == [-1, 3, -1, 4]
    begins[:, 0] = [1, WIDTH + 2, 6]  # scans begin there and go once round
    whole_linear.join(0, 3, 1, begins, np.float32(1), shape, entries, (starts, trues, ids))
    assert ids.tolist() == [1, WIDTH, 3, WIDTH + 2, WIDTH + 3, 6]
    assert slots[0, :7].tolist() == [-1, 0, -1, 2, -1, -1, 5]
    assert slots[1, :4].tolist() == [1, -1, 3, 4]


def test_strips_are_weighed_by_their_other_coefficients_where_a_bit_is_set() -> None:
    """Strip 3 = 2 * strip 0 + strip 1, where a bit is set 3 * strip 0 and nothing of strip 1; strip 2 = -strip 3."""
    strips, coefficients = np.zeros((4, WIDTH), np.float32), np.zeros((2, 3, 2, WIDTH), np.float32)
    strips[0], strips[1] = np.arange(WIDTH), 1
    coefficients[1] = np.array([[2, 3], [1, 0], [-1, -1]])[:, :, None]
    sums, sources, fired = np.array([[3, 0, 2], [2, 2, 3]]), np.array([0, 1, 3]), np.zeros(WIDTH, bool)
    fired[[0, 17, 63]] = True
    strips[1, fired] = np.inf

    @numba.njit
    def weigh(strips, bits):  # type: ignore[no-untyped-def]
        flat = coefficients.reshape(-1)
        weigh_strips(strips, sums, len(sums), sources, flat, coefficients[0].size, bits)

    weigh(strips.reshape(-1), np.uint64(sum(1 << int(n) for n in np.flatnonzero(fired))))
    expected = np.where(fired, 3, 2) * np.arange(WIDTH) + ~fired
    assert strips[3].tolist() == (-strips[2]).tolist() == expected.tolist()
    strips[1] = 1
    weigh(strips.reshape(-1), np.uint64(0))
    assert strips[3].tolist() == (2 * np.arange(WIDTH) + 1).tolist()


def test_input_gradients_are_added_for_places_with_an_input() -> None:
    """Inputs 2 and 0 are listed at place 0, input 1 at place 1; a lag of one place."""
    weights, adjoint = np.zeros((1, 3, WIDTH), np.float32), np.zeros((1, 3, WIDTH), np.float32)
    weights[0, :, :2] = [[1, 2], [3, 4], [5, 6]]
    adjoint[0, :, :2] = [[1, 1], [10, 1], [100, 1]]
    found = np.array([1, 0, 0, 7], np.float32)
    ids, starts = np.array([2, 0, 1, 1], np.int32), np.array([0, 2, 3, 4])
    whole_tensors.input_gradient_places(0, 3, 1, 0, weights, ids, starts, adjoint, found)
    assert found.tolist() == [57, 12, 304, 7]


def test_a_tile_that_only_one_of_two_exchanges_counts_is_named() -> None:
    def exchange(tiles: list[int]) -> Exchange:
        columns = np.zeros((len(EXCHANGE_COLUMNS), len(tiles)), np.int64)
        columns[0] = 8
        return Exchange(deliveries=(), total_tiles=9, tiles=np.array(tiles), columns=columns)

    first = EXCHANGE_COLUMNS[0].replace("_", " ")
    assert _first_other_count(exchange([3, 5]), exchange([3, 5])) == ""
    assert f"counts 0 {first} on tile 4, what it delivers amounts to 8" in _first_other_count(
        exchange([5]), exchange([4, 5])
    )


@pytest.mark.parametrize("size", [100, OWN_PAGES])
@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8])
def test_arrays_begin_at_a_cache_line_with_zeros(size: int, kind: type) -> None:
    made = zeros((size // np.dtype(kind).itemsize, 1), kind)
    assert made.ctypes.data % LINE == 0
    assert made.flags.writeable
    assert not made.any()


FORKED = """
import os
from mimdsim.execution.execute import OWN_PAGES, zeros
made = zeros((OWN_PAGES,), "u1")
child = os.fork()
if not child:
    made[:] = 1
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert not made.any()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_large_arrays_are_not_shared_with_a_process_that_is_forked() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True)
