"""Dense products on tiles: values against numpy, plan against program, laws, errors, and the published figures."""

from __future__ import annotations

import csv
import re
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from padded_products import arranged, product_program, result_of
from reference_rows import given

from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError, MimdsimError
from mimdsim.codelets.products import partial_product_cycles
from mimdsim.compiler import measure_memory
from mimdsim.compiler.place.product_plan import ProductPlan, plan_product, split_choices
from mimdsim.costs.library.dense import amp_1x1_cycles
from mimdsim.execution import Executor
from mimdsim.execution.strict import execute_strictly
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import memory_profile
from mimdsim.profile import TiledProfile
from mimdsim.program import Program, RecordedActivity, verify
from mimdsim.timing import time_program
from mimdsim.validation.dense_plan import plan_dense_product
from mimdsim.validation.products import (
    TILED_PRODUCTS,
    matrix_vector_program,
    predict_tiled_product,
    tiled_product,
    tutorial_segments,
)
from mimdsim.validation.reference_table import Asked
from mimdsim.validation.tables import check_files

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "references" / "tiled_products.csv"
GEMM = ROOT.parent / "shared" / "references" / "gemm_measurements.csv"
# m, k, n, dtype, partials, share of the memory (a small one forces serial steps)
SMALL = [
    (1, 1, 1, "f32", "f32", 0.6),
    (5, 7, 3, "f32", "f32", 0.6),
    (64, 48, 40, "f16", "f16", 0.6),
    (100, 16, 64, "f16", "f32", 0.6),
    (33, 100, 1, "f16", "f32", 0.6),
    (16, 512, 2, "f16", "f16", 0.6),
    (300, 200, 100, "f32", "f32", 0.05),
]


def tiled(name: str, **changes: Any) -> MimdMachine:
    machine = load_machine(name, {key.replace("__", "."): value for key, value in changes.items()})
    assert isinstance(machine, MimdMachine)
    return machine


def timed(program: Program, machine: MimdMachine) -> TiledProfile:
    memory = memory_profile(program, measure_memory(program, machine), machine)
    return time_program(program, machine, RecordedActivity(ids={}, counts={}, dropped={}), memory)


def multiplied(plan: ProductPlan, machine: MimdMachine, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    executor = Executor(product_program(plan, machine))
    executor.write(arranged(plan, a, b))
    executor.run()
    return result_of(plan, executor.read("c"))


# ---- values


@pytest.mark.parametrize(("m", "k", "n", "dtype", "partials", "share"), SMALL)
def test_the_program_multiplies(m: int, k: int, n: int, dtype: str, partials: str, share: float) -> None:
    machine = tiled("tiny")
    plan = plan_product(machine, m, k, n, dtype, partials, share)
    assert not verify(product_program(plan, machine), machine.chip.tiles)
    random = np.random.default_rng(m + k + n)
    whole_a, whole_b = random.integers(-1, 2, (m, k)), random.integers(-1, 2, (k, n))
    np.testing.assert_array_equal(multiplied(plan, machine, whole_a, whole_b), whole_a @ whole_b)
    a, b = random.normal(size=(m, k)), random.normal(size=(k, n))
    digits = 2e-2 if "f16" in (dtype, partials) else 1e-5
    np.testing.assert_allclose(multiplied(plan, machine, a, b), a @ b, rtol=digits, atol=digits * np.sqrt(k) * 2)


@pytest.mark.parametrize(("partials", "stored"), [("f16", "float16"), ("f32", "float32")])
def test_partial_products_keep_the_format_asked_for(partials: str, stored: str) -> None:
    machine = tiled("tiny")
    plan = plan_product(machine, 16, 512, 2, "f16", partials)
    assert plan.inner_splits > 1
    program = product_program(plan, machine)
    assert (program.variables["sums"].dtype, program.variables["c"].dtype) == (stored, "float16")


@pytest.mark.parametrize(("m", "k", "n", "dtype", "partials", "share"), SMALL[1:6])
def test_every_vertex_stays_in_its_slices(m: int, k: int, n: int, dtype: str, partials: str, share: float) -> None:
    machine = tiled("tiny")
    plan = plan_product(machine, m, k, n, dtype, partials, share)
    program = product_program(plan, machine)
    for codelet in {table.codelet for superstep, _, _ in program.supersteps() for table in superstep.tables}:
        program = program.with_codelet(codelet.name, replace(codelet, scratch_bytes=1 << 16))  # operands as floats
    executor = Executor(program)
    random = np.random.default_rng(m)
    a, b = random.integers(-1, 2, (m, k)), random.integers(-1, 2, (k, n))
    executor.write(arranged(plan, a, b))
    execute_strictly(executor)
    np.testing.assert_array_equal(result_of(plan, executor.read("c")), a @ b)


@pytest.mark.parametrize(("rows", "columns"), [(40, 30), (3, 100), (100, 1), (1, 1), (7, 513)])
@pytest.mark.parametrize("variant", ["c++", "assembler"])
def test_the_tutorial_multiplies(rows: int, columns: int, variant: str) -> None:
    program = matrix_vector_program(tiled("tiny"), rows, columns, variant)
    assert not verify(program, 16)
    random = np.random.default_rng(rows)
    a, x = random.integers(-3, 4, (rows, columns)), random.integers(-3, 4, columns)
    executor = Executor(program)
    executor.write({"a": a, "x": x})
    executor.run()
    np.testing.assert_array_equal(executor.read("y"), a @ x)


# ---- one formula for planner and profiler


@pytest.mark.parametrize(("m", "k", "n", "dtype", "partials", "share"), SMALL)
def test_plan_and_program_cost_the_same(m: int, k: int, n: int, dtype: str, partials: str, share: float) -> None:
    for per_bus in (1, 2):
        machine = tiled("tiny", exchange__tiles_per_bus=per_bus)
        plan = plan_product(machine, m, k, n, dtype, partials, share)
        profile = timed(product_program(plan, machine), machine)
        assert sum(span.compute_cycles for span in profile.spans) == plan.compute_cycles
        assert sum(span.exchange_cycles for span in profile.spans) == plan.exchange_cycles
        assert sum(span.sync_cycles for span in profile.spans) == plan.sync_cycles
        assert profile.memory.peak_bytes <= plan.tile_bytes <= machine.tile.sram_bytes


def test_plan_and_program_agree_on_a_whole_chip() -> None:
    machine = tiled("bow", exchange__tiles_per_bus=1)
    plan = plan_product(machine, 4096, 4096, 64, "f16")
    profile = timed(product_program(plan, machine), machine)
    assert sum(span.cycles for span in profile.spans) == plan.cycles
    assert profile.memory.peak_bytes <= plan.tile_bytes
    flops = sum(span.flops for span in profile.spans if span.name.startswith("multiply"))
    assert flops == 2 * 4096 * 4096 * 64


def test_planner_and_profiler_agree_with_fewer_contexts() -> None:
    machine = tiled("tiny", tile__worker_contexts=3, exchange__tiles_per_bus=1)
    plan = plan_product(machine, 64, 64, 30, "f32")
    profile = timed(product_program(plan, machine), machine)
    assert sum(span.cycles for span in profile.spans) == plan.cycles
    assert (
        plan.compute_cycles > plan_product(tiled("tiny", exchange__tiles_per_bus=1), 64, 64, 30, "f32").compute_cycles
    )


@pytest.mark.parametrize("assembler", [False, True])
@pytest.mark.parametrize(("dtype", "partials", "units"), [("f16", "f16", 16), ("f16", "f32", 8), ("f32", "f32", 16)])
def test_bilinear_is_the_vendors_formula(dtype: str, partials: str, units: int, assembler: bool) -> None:
    channels = 16 if dtype == "f16" else 8
    for positions, outs, ins in ((1, 3, 5), (4, 1, 9), (77, 7, 1), (500, 6, 11)):
        expected = amp_1x1_cycles(
            positions,
            in_groups=ins,
            out_groups=outs,
            out_channels_per_group=units,
            in_channels_per_group=channels,
            dtype=dtype,
            partials_dtype=partials,
            conv_units=units,
            assembler=assembler,
        )
        shared = (dtype, partials, units, channels, 8)
        formats: dict[str, Any] = {"shared": shared, "worker_contexts": 6, "assembler": assembler}
        found = partial_product_cycles(np.array([positions]), np.array([outs]), ins, **formats)
        assert found.tolist() == [expected]


# ---- laws of the planner


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("extent", ["m", "k", "n"])
def test_more_work_never_costs_less(dtype: str, extent: str) -> None:
    machine = tiled("bow")
    cycles = []
    for size in (32, 100, 512, 1500, 4096):
        given: dict[str, Any] = {"m": 512, "k": 512, "n": 96, extent: size}
        cycles.append(plan_product(machine, dtype=dtype, **given).cycles)
    assert cycles == sorted(cycles)
    assert cycles[-1] > cycles[0]


def test_more_tiles_never_cost_more() -> None:
    cycles = [plan_product(tiled("bow", chip__tiles=tiles), 1024, 1024, 256, "f16").cycles for tiles in (92, 368, 1472)]
    assert cycles == sorted(cycles, reverse=True)


def test_neighbours_on_one_bus_make_operands_arrive_faster() -> None:
    apart = plan_product(tiled("bow", exchange__tiles_per_bus=1), 2048, 2048, 2048, "f16")
    together = plan_product(tiled("bow", exchange__tiles_per_bus=2), 2048, 2048, 2048, "f16")
    assert together.cycles < apart.cycles


def test_serial_steps_only_when_memory_is_short() -> None:
    assert plan_product(tiled("bow"), 1024, 1024, 256, "f16").steps == 1
    assert plan_product(tiled("bow"), 4096, 4096, 4096, "f32").steps > 1


def test_a_plan_takes_under_a_second() -> None:
    begun = time.process_time()
    plan_product(tiled("bow"), 4096, 4096, 4096, "f16")
    assert time.process_time() - begun < 1


def test_split_choices_reach_every_share() -> None:
    chosen = split_choices(256, 1472)
    assert {int(-(-256 // s)) for s in chosen} == {int(-(-256 // s)) for s in range(1, 257)}
    assert {1, 2, 256} <= set(chosen.tolist())


@pytest.mark.parametrize(
    ("name", "halves", "floats"),
    [("mk1", 124.5, 31.1), ("mk2", 250, 62.6), ("bow", 348.6, 87.1), ("c600", 282.6, 70.7)],
)
def test_matrix_units_make_the_published_peaks(name: str, halves: float, floats: float) -> None:
    """TFLOP/s as Graphcore quotes them: a pass takes 4 cycles of a context, its inputs times units are products."""
    machine = tiled(name)
    unit = machine.matrix
    assert unit is not None
    per_second = 2e-12 * machine.chip.tiles * machine.chip.clock_hz
    assert per_second * unit.units("f16", "f16") * unit.channels("f16") / 4 == pytest.approx(halves, rel=0.01)
    # 16 units need 8 cycles to store their 16 sums at 64 bits a cycle, 4 units only the 4 that 8 inputs take to load
    cycles = max(4, unit.units("f32", "f32") // 2)
    assert per_second * unit.units("f32", "f32") * unit.channels("f32") / cycles == pytest.approx(floats, rel=0.01)


# ---- errors


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"m": 0}, "'m' is 0; a whole number from 1"),
        ({"k": 2.5}, "'k' is 2.5; a whole number"),
        ({"n": True}, "'n' is True"),
        ({"n": 1 << 30}, "to 16777216"),
        ({"dtype": "fp8"}, "'dtype' is 'fp8'; write f16 or f32"),
        ({"dtype": "f32", "partials_dtype": "f16"}, "sums are never narrower than the data, write f32"),
        ({"memory_share": 0}, "'memory_share' is 0; it must be above 0"),
    ],
)
def test_bad_products_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        plan_product(tiled("tiny"), **{"m": 8, "k": 8, "n": 8, "dtype": "f16", **given})


def test_all_problems_at_once() -> None:
    with pytest.raises(DescriptionError) as caught:
        plan_product(tiled("tiny"), 0, -1, 8, "int8")
    assert len(caught.value.problems) == 4  # m, k, dtype and the partials that follow it


def test_a_machine_without_matrix_units_is_refused() -> None:
    bare = tiled("tiny").model_copy(update={"matrix": None})
    with pytest.raises(DescriptionError, match=r"has no matrix unit; add a \[matrix\] section"):
        plan_product(bare, 8, 8, 8, "f16")
    with pytest.raises(DescriptionError, match=r"has no matrix unit"):
        product_program(plan_product(tiled("tiny"), 8, 8, 8, "f16"), bare)


def test_what_does_not_fit_is_refused_with_numbers() -> None:
    with pytest.raises(DoesNotFit, match=r"no split over 16 tiles of tiny fits; of the 624.0 KiB of a tile"):
        plan_product(tiled("tiny"), 8192, 8192, 8, "f32")


def test_a_plan_for_another_machine_is_refused() -> None:
    plan = plan_product(tiled("tiny"), 256, 256, 64, "f16")
    with pytest.raises(DescriptionError, match=f"takes {plan.tiles} tiles, tiny has 1: plan it anew"):
        product_program(plan, tiled("tiny", chip__tiles=1))
    with pytest.raises(DescriptionError, match="other matrix units than those of tiny"):
        product_program(plan, tiled("tiny", matrix__half_half_units=8))


def test_matrices_of_another_shape_are_refused() -> None:
    plan = plan_product(tiled("tiny"), 4, 5, 6, "f32")
    with pytest.raises(MappingError, match=r"B has shape \(4, 6\), the plan multiplies \(5, 6\)"):
        arranged(plan, np.ones((4, 5)), np.ones((4, 6)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": 0}, "'rows' is 0; a whole number of at least 1"),
        ({"columns": -3}, "'columns' is -3"),
        ({"variant": "rust"}, "'variant' is 'rust'; write one of c\\+\\+, assembler"),
        ({"rows": 1 << 20, "columns": 1 << 20}, "at most 268435456"),
    ],
)
def test_bad_matrix_vector_products_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        matrix_vector_program(tiled("tiny"), **{"rows": 4, "columns": 8, **given})


# ---- published figures


def test_the_tutorial_splits_rows_as_published() -> None:
    """'Best split chosen: colsAxisSplit=7' (graphcore/examples tut6 README)."""
    assert tutorial_segments(tiled("mk2"), 10000, 1000) == 7


@pytest.mark.slow
def test_published_figures() -> None:
    rows = check_files((TABLE,), None, lambda *_: None)
    known = [row for row in rows if row.predicted is not None]
    assert len(known) == len(rows) - 1  # the product of another stack is named, not predicted
    assert all(row.within for row in known), [(row.name, row.ratio) for row in known if not row.within]
    assert all(row.low <= row.predicted <= row.high for row in known)  # type: ignore[operator]
    assert median(abs(row.ratio - 1) for row in known if row.name.startswith("matmul")) < 0.15  # type: ignore[operator]
    assert next(row for row in rows if row.predicted is None).note.startswith(
        "'hand-written' is another software stack"
    )


def test_the_streams_decide_the_exchange_of_the_tutorial() -> None:
    """Nearly all of the published 8,743 cycles move A from row-major order into segments, hardly any move x."""
    profile = timed(matrix_vector_program(tiled("mk2"), 10000, 1000, "assembler"), tiled("mk2"))
    moved = {span.name: span.exchange_cycles for span in profile.spans}
    assert 0.75 < moved["place A"] / 8743.1 < 0.85
    assert sum(moved.values()) == pytest.approx(8743.1, rel=0.05)
    assert moved["multiply"] + moved["add"] < 1000


def measured_product(row: dict[str, str]) -> float:
    """Predicted microseconds."""
    machine, _, microseconds = tiled_product(row)
    return microseconds(tiled(machine))


@pytest.mark.slow
@pytest.mark.skipif(not GEMM.exists(), reason="the shared table of measurements is not here")
def test_measured_products_of_the_tiled_machine() -> None:
    with GEMM.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"].startswith("IPU")]
    assert rows
    errors = []
    for row in rows:
        errors.append(abs(measured_product(row) / float(row["time_us"]) - 1))
    assert median(errors) < 0.15


def test_rows_of_one_table_are_predicted_by_the_machine_they_name(tmp_path: Path) -> None:
    path = tmp_path / "gemm.csv"
    rows = ("one,IPU(GC200),FP16,1,4096,1024,1024,49", "one,Tesla V100-PCIE-32GB,fp32 SIMT,1,1024,2560,2560,1114")
    path.write_text("\n".join(("source,gpu,dtype,batch,M,N,K,time_us", *rows)))
    found = check_files((path,), None, lambda *_: None)
    assert [row.predicted for row in found] == [pytest.approx(row.published, rel=0.3) for row in found]


ROW = {
    **{"operation": "matmul", "machine": "bow", "m": "512", "k": "512", "n": "64", "dtype": "f16"},
    **{"variant": "poplibs", "metric": "tflops", "value": "1", "unit": "TFLOP/s"},
}


def test_a_table_may_have_microseconds() -> None:
    figures = (("microseconds", "us"), ("cycles", "cycles"), ("microseconds", "ms"))
    rows = given(*({**ROW, "metric": metric, "unit": unit} for metric, unit in figures))
    microseconds, cycles, other = TILED_PRODUCTS.rows(rows, Asked())
    assert cycles.predicted is not None
    assert microseconds.predicted == pytest.approx(cycles.predicted / 1850)  # MHz
    assert other.note == "microseconds is in us, not in 'ms'"


def test_a_doubled_clock_halves_the_time() -> None:
    slow = predict_tiled_product({**ROW, "metric": "microseconds", "clock_hz": "1e9"})[0]
    fast = predict_tiled_product({**ROW, "metric": "microseconds", "clock_hz": "2e9"})[0]
    assert slow == pytest.approx(2 * fast)
    row = {"gpu": "IPU(GC200)", "dtype": "FP16", "batch": "1", "M": "64", "K": "512", "N": "512"}
    assert measured_product(row) == pytest.approx(slow / 1.85)


def test_intervals_of_a_row_lie_around_what_is_predicted() -> None:
    """Compute cycles of a known formula are off by a tenth, exchange and syncs by three tenths, the assumed copy by a
    half; doubts add up."""
    found = {metric: predict_tiled_product({**ROW, "metric": metric}) for metric in METRICS}
    compute, low, high = found["compute_cycles"]
    copied = plan_dense_product(tiled("bow"), 512, 512, 64, "f16").copy_cycles
    assert 49 * 6 < copied < 0.3 * compute
    compute_off = 0.1 * compute + 0.4 * copied
    assert (low, high) == (pytest.approx(compute - compute_off), pytest.approx(compute + compute_off))
    exchange, low, high = found["exchange_cycles"]
    assert (low, high) == (pytest.approx(0.7 * exchange), pytest.approx(1.3 * exchange))
    off = compute_off + 0.3 * exchange
    cycles, low, high = found["cycles"]
    assert (cycles, low, high) == (compute + exchange, pytest.approx(cycles - off), pytest.approx(cycles + off))
    total, low, high = found["total_cycles"]
    off += 0.3 * (total - cycles)
    assert (low, high) == (pytest.approx(total - off), pytest.approx(total + off))
    rate, low, high = found["tflops"]
    assert low < rate < high


METRICS = ("compute_cycles", "exchange_cycles", "cycles", "total_cycles", "tflops")


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"m": "many"}, "not numbers"),
        ({"m": "0"}, "'m' is 0"),
        ({"operation": "matmull"}, "did you mean 'matmul'"),
        ({"machine": "bowl"}, "did you mean 'bow'"),
        ({"machine": "a100"}, "is not a tiled machine"),
        ({"metric": "tflop"}, "did you mean 'tflops'"),
        ({"variant": "cutlass"}, "another software stack"),
        ({"operation": "matvec"}, "the tutorial has f32 and n = 1"),
    ],
)
def test_rows_that_cannot_be_computed_say_why(changes: dict[str, str], note: str) -> None:
    with pytest.raises(MimdsimError, match=re.escape(note)):
        predict_tiled_product({**ROW, **changes})


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"gpu": "IPU(GC300)"}, "no description of device 'IPU\\(GC300\\)'"),
        ({"dtype": "FP8"}, "no tiled product for dtype 'FP8'"),
        ({"batch": "2"}, "batch = 2"),
        ({"M": "x"}, "must be whole numbers"),
        ({"M": "-1"}, "'n' is -1"),
    ],
)
def test_measured_rows_that_cannot_be_computed_say_why(changes: dict[str, str], note: str) -> None:
    row = {"gpu": "IPU(GC200)", "dtype": "FP16", "batch": "1", "M": "64", "N": "64", "K": "64"}
    with pytest.raises(MimdsimError, match=note):
        measured_product({**row, **changes})
