"""The worked kernels: rules kept, values as their references say, cycles explained, published figures beside two."""

from __future__ import annotations

import csv
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from by_hand import outcome, timed, tiny
from scripts import script

from mimdsim.checking.kernel import load_kernel
from mimdsim.compiler.place.product_plan import plan_product
from mimdsim.costs.library.dense import amp_1x1_cycles
from mimdsim.execution import Executor
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.program import Program, verify

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ("matrix_product", "stencil_halo", "csr_product", "all_reduce", "histogram", "fft")


def load(name: str) -> ModuleType:
    return script(f"examples/kernels/{name}.py")


def machine_of(name: str) -> MimdMachine:
    machine = load_machine(name)
    assert isinstance(machine, MimdMachine)
    return machine


def given(module: ModuleType, program: Program) -> dict[str, np.ndarray]:
    """The kernel's own inputs, and numbers at random for the others."""
    random = np.random.default_rng(1)
    held = {name: program.variables[variable] for name, variable in program.inputs.items()}
    drawn = {name: random.normal(size=each.shape).astype(each.dtype) for name, each in held.items()}
    return drawn | (module.inputs(random) if hasattr(module, "inputs") else {})


@pytest.mark.first(2)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("machine", ["tiny", "bow"])
def test_a_kernel_keeps_the_rules_and_computes_what_its_reference_says(name: str, machine: str) -> None:
    module = load(name)
    program = module.build(machine_of(machine))
    inputs = given(module, program)
    (found,) = outcome(program, inputs, strictly=machine == "tiny").values()
    expected = module.reference(**inputs)
    tolerance = 0 if found.dtype.kind == "i" else getattr(module, "TOLERANCE", 1e-6)
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_one_short_file(name: str) -> None:
    assert len((ROOT / "examples" / "kernels" / f"{name}.py").read_text().splitlines()) <= 150


def test_all_reduce_goes_over_chips() -> None:
    module, machine = load("all_reduce"), tiny(links_chips=4)
    program = module.build(machine)
    inputs = given(module, program)
    (found,) = outcome(program, inputs).values()
    np.testing.assert_allclose(found, module.reference(**inputs), rtol=1e-5, atol=1e-5)
    links = [step.exchange.link_bytes for step, _, _ in program.supersteps() if step.exchange is not None]
    summed, sent = (each for each in links if each is not None)
    # a quarter of the columns of a chip's partial row goes to each other chip, then the sums of them
    assert (summed + np.diag([64] * 4) == 64).all()
    assert (sent + np.diag([64] * 4) == 64).all()


# ---- cycles of every superstep, on the tiny machine: 16 tiles, six contexts that take turns

FIXED, SYNC = 100, 126  # of an exchange


def cycles(name: str) -> list[tuple[int, int, int]]:
    """(compute, exchange, sync) of every superstep."""
    machine = tiny()
    spans = timed(load(name).build(machine), machine).spans
    return [(span.compute_cycles, span.exchange_cycles, span.sync_cycles) for span in spans]


def test_cycles_of_the_matrix_product() -> None:
    module = load("matrix_product")
    plan = plan_product(tiny(), module.M, module.K, module.N, "f32")
    groups: dict[str, Any] = {"in_groups": plan.inner_groups, "out_groups": plan.row_groups}
    formats: dict[str, Any] = {"dtype": "f32", "partials_dtype": "f32", "in_channels_per_group": 8, "assembler": True}
    ((compute, exchange, sync),) = cycles("matrix_product")
    assert compute == amp_1x1_cycles(plan.columns, **groups, **formats) == plan.multiply_cycles
    assert sync == SYNC
    # four bytes a cycle of what a tile lacks of its blocks of both operands, or half of that where its neighbour on the
    # bus hears it too
    lacking = (plan.column_splits - 1) * plan.left_piece + (plan.row_splits - 1) * plan.right_piece
    assert lacking / 2 <= exchange - FIXED <= lacking


def test_cycles_of_the_stencil() -> None:
    # 48 x 64 pixels in three by five blocks of 16 x 13 at most, six slices of 16 x 3 at most: 26 bundles a pixel, 6 a
    # row, 62 around
    ((compute, exchange, sync),) = cycles("stencil_halo")
    assert compute == 6 * (62 + 26 * 16 * 3 + 6 * 16)
    assert sync == SYNC
    # the block in the middle hears 2 (16 + 13) + 4 pixels of 8 bytes, some of them alike with its neighbour on the bus
    heard = (2 * (16 + 13) + 4) * 8
    assert heard / 4 / 2 <= exchange - FIXED <= 2 * heard / 4


def test_cycles_of_the_sparse_product_are_counted_as_it_runs() -> None:
    module, machine = load("csr_product"), tiny()
    program = module.build(machine)
    inputs = given(module, program)
    executor = Executor(program)
    executor.write(inputs)
    executor.run()
    lengths = np.diff(inputs["ends"], axis=1).ravel()
    assert lengths.max() > 3 * lengths.mean() / 2  # skewed
    bundles = (34 + 6 * lengths).reshape(16, 8, 6)  # 48 rows a tile, dealt to six contexts in turn
    (span,) = timed(program, machine, executor.activity()).spans
    assert span.compute_cycles == 6 * bundles.sum(axis=1).max()  # the longest context of any tile decides
    assert span.exchange_cycles == FIXED + _half_shared(4 * (module.WIDTH - module.WIDTH // 16))


def _half_shared(received: int) -> int:
    """Cycles on the wire of bytes that both tiles of a bus receive, but for what either of them has."""
    own = received // 15
    return -(-(received - (received - own) // 2) // 4)


def test_cycles_of_the_all_reduce() -> None:
    # four columns of sixteen rows on every tile, a context for each: one row is its own, fifteen come
    (total, brought, _), (nothing, sent, _) = cycles("all_reduce")
    assert total == 6 * (17 + 2 * 16 // 4)  # four numbers an accumulation, in two loads
    assert brought == FIXED + 15 * 4
    assert nothing == 0
    assert sent == FIXED + _half_shared(4 * (64 - 4))


def test_cycles_of_the_histogram() -> None:
    count, rows, tiles = cycles("histogram")
    assert count == (6 * (24 + 32 + 5 * 125), 0, 0)  # 12,000 numbers over 96 contexts
    assert rows == (6 * (16 + 6 * (3 + 5 + 3 + 5)), 0, 0)  # six rows on a tile; six of 32 counts a context
    assert tiles[0] == 6 * (17 + 6 + 5) + 6 * (17 + 3 + 5)  # two counts a tile, of 16: three contexts each, then one


def test_cycles_of_the_transform() -> None:
    found = cycles("fft")
    assert [compute for compute, _, _ in found] == 6 * [6 * (26 + 9 * 16)] + [6 * (26 + 11 * 8 * 4)]
    assert all(sync == SYNC for _, _, sync in found[:-1])
    assert found[-1][1:] == (0, 0)  # all within runs


# ---- published figures


def published(file: str, **wanted: str) -> list[dict[str, str]]:
    with (ROOT / "references" / file).open(encoding="utf-8") as rows:
        return [row for row in csv.DictReader(rows) if all(row[name] == value for name, value in wanted.items())]


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_matrix_products_take_what_was_published(dtype: str) -> None:
    build = load("matrix_product").build
    rows = published("tiled_products.csv", operation="matmul", machine="bow", dtype=dtype, variant="poplibs")
    rows = [row for row in rows if int(row["n"]) in (64, 256)]
    assert rows
    for row in rows:
        machine = machine_of("bow")
        m, k, n = (int(row[name]) for name in ("m", "k", "n"))
        program = build(machine, m, k, n, {"f16": "float16", "f32": "float32"}[dtype])
        assert not verify(program, program.tiles)
        spans = timed(program, machine).spans
        taken = sum(span.compute_cycles + span.exchange_cycles for span in spans)  # as published: syncs left out
        rate = 2e-12 * m * k * n * machine.chip.clock_hz / taken
        assert rate == pytest.approx(float(row["value"]), rel=float(row["tolerance"]))


@pytest.mark.slow
def test_the_stencil_takes_what_was_published() -> None:
    machine = machine_of("mk1")
    program = load("stencil_halo").build(machine, 1122, 2200)
    (span,) = timed(program, machine).spans
    found = {"compute": span.compute_cycles, "exchange": span.exchange_cycles, "sync": span.sync_cycles}
    for phase, taken in found.items():
        (row,) = published("stencil_phases.csv", chips="1", type="half4", phase=phase)
        assert taken == pytest.approx(float(row["cycles"]), rel=float(row["tolerance"]))


# ---- as a user checks them


@pytest.mark.first(2)
@pytest.mark.parametrize("name", KERNELS)
def test_check_passes_a_kernel(name: str) -> None:
    kernel = load_kernel(ROOT / "examples" / "kernels" / f"{name}.py")
    result = kernel.check(tiny(), strict=True)
    assert result.passed, result
