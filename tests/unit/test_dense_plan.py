"""Dense products as PopLibs plans and runs them: stages of a reduction, phases by hand, published rates."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from mimdsim.base.errors import DescriptionError, DoesNotFit
from mimdsim.costs.library.dense import amp_1x1_cycles
from mimdsim.costs.library.elementwise import cast_1d_cycles
from mimdsim.costs.library.reductions import dynamic_slice_1d_cycles, reduce_add_cycles
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.validation.dense_plan import plan_dense_product, stages
from mimdsim.validation.tables import validate

LAUNCH, COPY = 29, 49 * 6
F32: dict[str, Any] = {"dtype": "f32", "partials_dtype": "f32", "in_channels_per_group": 8, "assembler": True}


def machine(name: str, **changes: Any) -> MimdMachine:
    found = load_machine(name, {key.replace("__", "."): value for key, value in changes.items()})
    assert isinstance(found, MimdMachine)
    return found


def test_a_reduction_has_more_stages_where_more_partial_sums_meet() -> None:
    assert [stages(depth) for depth in (1, 2, 15)] == [(), (1,), (1,)]
    # 22 messages in one stage; by 5 that are left 5 + 4.4, by 4 4 + 5.5
    assert stages(22) == (5, 1)
    assert stages(125)[-1] == 1
    assert len(stages(125)) == 3


def test_a_product_on_one_tile_is_its_vertex_and_a_launch() -> None:
    plan = plan_dense_product(machine("tiny", chip__tiles=1), 16, 8, 5, "f32")
    assert plan.exchange_cycles == plan.sync_cycles == 0
    assert plan.compute_cycles == amp_1x1_cycles(5, **F32) + LAUNCH


def test_partial_sums_of_one_tile_are_converted() -> None:
    plan = plan_dense_product(machine("tiny", chip__tiles=1), 16, 16, 5, "f16", "f32")
    multiply = amp_1x1_cycles(
        5, out_groups=2, out_channels_per_group=8, conv_units=8, partials_dtype="f32", assembler=True
    )
    assert plan.compute_cycles == multiply + cast_1d_cycles(80, source="f32", target="f16") + 2 * LAUNCH


def test_phases_of_a_split_inner_dimension_by_hand() -> None:
    plan = plan_dense_product(machine("tiny", chip__tiles=2, exchange__tiles_per_bus=1), 16, 512, 24, "f32")
    assert (plan.row_splits, plan.inner_splits, plan.column_splits, plan.steps) == (1, 2, 1, 1)
    # each of two tiles adds half of 16 x 24 sums, its own and those of the other; nothing else moves
    multiply, add = amp_1x1_cycles(24, in_groups=32, **F32), reduce_add_cycles(192, 1, single_input=True)
    assert plan.compute_cycles == multiply + add + 2 * LAUNCH
    fixed = machine("tiny").exchange.fixed_cycles + machine("tiny").exchange.route_cycles
    assert plan.exchange_cycles == fixed + 192 * 4 // 4


def test_phases_of_split_rows_by_hand() -> None:
    for per_bus in (1, 2):
        on = machine("tiny", chip__tiles=2, exchange__tiles_per_bus=per_bus)
        plan = plan_dense_product(on, 512, 8, 48, "f32")
        assert (plan.row_splits, plan.inner_splits, plan.column_splits) == (2, 1, 1)
        # half of the 48 x 8 elements of B lie on each tile: copied to the others, which arrive on one bus or on both
        own = 48 * 8 * 4 // 2
        assert plan.copy_cycles == COPY + own // 8
        assert plan.compute_cycles == plan.copy_cycles + amp_1x1_cycles(48, out_groups=16, **F32) + LAUNCH
        assert plan.exchange_cycles == on.exchange.fixed_cycles + on.exchange.route_cycles + own // 4


def test_steps_slice_their_rows_and_move_b_once() -> None:
    # operands and sums of all rows at once are 42 KiB of a tile, more than 0.6 of 64
    memory = {"tile__sram_bytes": "64 KiB", "tile__executable_bytes": "32 KiB", "tile__code_bytes": "1 KiB"}
    plan = plan_dense_product(machine("tiny", chip__tiles=2, **memory), 512, 16, 24, "f32")
    assert (plan.steps, plan.row_splits) == (2, 2)
    assert plan.early
    shares = dynamic_slice_1d_cycles(512 * 16 // 2 // 2, 1), dynamic_slice_1d_cycles(8 * 16 * 24, 1)
    each = amp_1x1_cycles(24, out_groups=8, in_groups=2, **F32) + sum(shares) + 3 * LAUNCH
    assert plan.compute_cycles == COPY + 24 * 16 * 4 // 2 // 8 + 2 * each


@pytest.mark.slow
def test_the_published_rates_of_poplibs_come_out() -> None:
    for table, most in (("bow_dense_products.csv", 27), ("tiled_products.csv", 9)):
        rows = [row for row in validate(table) if "poplibs" in row.name]
        assert len(rows) == most
        errors = []
        for row in rows:
            assert row.predicted is not None
            assert row.published is not None
            assert row.score is not None
            assert row.score <= 1, row.name  # within what its own sources leave open
            errors.append(abs(row.predicted / row.published - 1))
        assert sum(errors) / len(errors) < 0.03
        assert max(errors) < 0.13


@pytest.mark.parametrize("name", ["bow", "mk2", "mk1", "c600"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_every_machine_with_a_matrix_unit_gets_a_plan(name: str, dtype: str) -> None:
    on = machine(name)
    least = math.inf
    for n in (4096, 512, 64, 1):
        plan = plan_dense_product(on, 1000, 700, n, dtype)
        assert plan.compute_cycles < least
        least = plan.compute_cycles
        assert plan.row_splits * plan.inner_splits * plan.column_splits <= on.chip.tiles


def test_a_plan_takes_under_two_seconds() -> None:
    begun = time.process_time()
    plan_dense_product(machine("bow"), 8192, 8192, 1024, "f32")
    assert time.process_time() - begun < 2


def test_what_does_not_fit_or_makes_no_sense_is_refused() -> None:
    with pytest.raises(DoesNotFit, match=r"product 8192 x 8192 x 8 \(f32\): no split over 16 tiles of tiny fits"):
        plan_dense_product(machine("tiny"), 8192, 8192, 8, "f32")
    with pytest.raises(DescriptionError, match="'m' is 0"):
        plan_dense_product(machine("tiny"), 0, 8, 8, "f32")
