"""The matrix product and streaming models: laws, hand-worked values, and measured matrix products."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.check.published.gpus.products import predict_gemm_row
from mimdsim.gpu.elementwise import elementwise_seconds, reduction_seconds
from mimdsim.gpu.gemm import gemm_seconds
from mimdsim.machine import GpuMachine, load_machine
from mimdsim.machine.gpu import Precision

MEASURED = Path(__file__).resolve().parents[2] / "shared" / "references" / "gemm_measurements.csv"
extents = st.integers(1, 6000)
precisions: st.SearchStrategy[Precision] = st.sampled_from(("fp32", "tf32", "fp16"))


def gpu(name: str) -> GpuMachine:
    machine = load_machine(name)
    assert isinstance(machine, GpuMachine)
    return machine


A100, H100, V100, T4, TPU = gpu("a100"), gpu("h100"), gpu("v100"), gpu("t4"), gpu("tpu-v4")
machines = st.sampled_from((A100, H100, V100, T4, TPU))
few = settings(max_examples=60, deadline=None)


@few
@given(
    machine=machines, shape=st.tuples(extents, extents, extents), axis=st.integers(0, 2), grow=st.integers(1, 2000),
    precision=precisions, transposed=st.booleans(), resident=st.booleans(),
)  # fmt: skip
def test_a_larger_product_is_never_faster(
    machine: GpuMachine,
    shape: tuple[int, int, int],
    axis: int,
    grow: int,
    precision: Precision,
    transposed: bool,
    resident: bool,
) -> None:
    larger = [extent + grow * (index == axis) for index, extent in enumerate(shape)]
    few_seconds, more_seconds = (
        gemm_seconds(machine, *extents, precision=precision, transposed_weight=transposed, l2_resident=resident).seconds
        for extents in (shape, larger)
    )
    assert more_seconds >= few_seconds * (1 - 1e-12)  # sums in another order


@few
@given(machine=machines, m=extents, n=extents, k=extents, batch=st.integers(1, 8), precision=precisions)
def test_more_bytes_are_never_faster(
    machine: GpuMachine, m: int, n: int, k: int, batch: int, precision: Precision
) -> None:
    plain = gemm_seconds(machine, m, n, k, precision=precision, batch=batch)
    assert gemm_seconds(machine, m, n, k, precision=precision, batch=batch, accumulate=True).seconds >= plain.seconds
    assert gemm_seconds(machine, m, n, k, precision=precision, batch=batch + 1).seconds >= plain.seconds
    resident = gemm_seconds(machine, m, n, k, precision=precision, batch=batch, l2_resident=True)
    assert resident.seconds <= plain.seconds


@few
@given(
    machine=machines, m=extents, n=extents, k=extents, batch=st.integers(1, 8), precision=precisions,
    l2_resident=st.booleans(),
)  # fmt: skip
def test_no_product_beats_the_roofline(
    machine: GpuMachine, m: int, n: int, k: int, batch: int, precision: Precision, l2_resident: bool
) -> None:
    estimate = gemm_seconds(machine, m, n, k, precision=precision, batch=batch, l2_resident=l2_resident)
    assert estimate.flops == 2 * m * n * k * batch
    assert estimate.seconds >= estimate.flops / machine.peak_flops_per_second(precision)
    memory = machine.memory
    feed = memory.l2_bytes_per_second if l2_resident else memory.dram_bytes_per_second
    assert estimate.seconds >= estimate.bytes_moved / feed


def test_one_tile_by_hand() -> None:
    # 32 x 32 x 32 fp32 on an A100: one 32 x 32 tile on one multiprocessor; 65536 flops at 128 flops x 1.41 GHz,
    # efficiency 16 / 23, latency hiding 0.85 + 0.15 / 16; one wave of 1 us
    by_hand = 65536 / (128 * 1.41e9 * (16 / 23) * (0.85 + 0.15 / 16)) + 1e-6
    estimate = gemm_seconds(A100, 32, 32, 32, precision="fp32")
    assert estimate.seconds == pytest.approx(by_hand, rel=1e-12)
    assert (estimate.candidate.tile_m, estimate.candidate.tile_n, estimate.candidate.split) == (32, 32, 1)
    assert estimate.bound == "compute"
    assert estimate.bytes_moved == 3 * 32 * 32 * 4


def test_tf32_without_a_tensor_unit_is_fp32() -> None:
    assert gemm_seconds(V100, 512, 512, 512, precision="tf32") == gemm_seconds(V100, 512, 512, 512, precision="fp32")
    assert gemm_seconds(A100, 512, 512, 512, precision="tf32").seconds < (
        gemm_seconds(A100, 512, 512, 512, precision="fp32").seconds
    )


def test_a_power_limit_slows_long_products_only_where_it_holds() -> None:
    free, held = gpu("a100"), gpu("a100-pcie")
    seconds = [gemm_seconds(machine, 8192, 8192, 8192, precision="fp32").seconds for machine in (free, held)]
    assert seconds[0] / seconds[1] == pytest.approx(0.87, rel=0.01)
    assert gemm_seconds(free, 512, 512, 512, precision="fp16") == gemm_seconds(held, 512, 512, 512, precision="fp16")


def test_tensor_units_take_no_tile_below_the_library_s_shortest_edge() -> None:
    free = V100.model_copy(update={"chip": V100.chip.model_copy(update={"tensor_tile_edge": 32})})
    for precision, changes in (("fp16", True), ("fp32", False)):
        held, open_to_all = (gemm_seconds(gpu, 1760, 16, 1760, precision=precision) for gpu in (V100, free))  # type: ignore[arg-type]
        assert (held.seconds > 1.5 * open_to_all.seconds) == changes
        assert (min(held.candidate.tile_m, held.candidate.tile_n) >= 64) == changes
    # DeepBench's fp16 product of that shape takes 20 us, some 3 of them the host's
    assert 15e-6 < gemm_seconds(V100, 1760, 16, 1760, precision="fp16").seconds < 22e-6


def test_a_transposed_weight_slows_a_skinny_product_only() -> None:
    for rows, slower in ((16, True), (4096, False)):
        plain = gemm_seconds(V100, 8192, rows, 8192, precision="fp32").seconds
        turned = gemm_seconds(V100, 8192, rows, 8192, precision="fp32", transposed_weight=True).seconds
        assert (turned > 1.1 * plain) == slower


def test_a_reduction_to_few_results_takes_a_second_kernel() -> None:
    one = reduction_seconds(A100, 1 << 20, 1 << 10, launching="stream")
    assert one.seconds == elementwise_seconds(A100, ((1 << 20) + (1 << 10)) * 4, launching="stream").seconds
    two = reduction_seconds(A100, 1 << 20, 1, launching="stream")
    assert two.seconds > one.seconds + 2e-6
    cut = reduction_seconds(A100, 1 << 20, 10, launching="stream", element_bytes=8)  # 108 // 10 parts
    assert cut.bytes_moved == 8 * ((1 << 20) + 10 * 10) + 8 * 10 * (10 + 1)
    kernels = [8 * ((1 << 20) + 100), 8 * 10 * 11]
    assert cut.seconds == sum(elementwise_seconds(A100, moved, launching="stream").seconds for moved in kernels)
    with pytest.raises(ValueError, match="reduction of 3 elements to 4: needs"):
        reduction_seconds(A100, 3, 4, launching="stream")


def test_a_product_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(0 x 3\) x \(3 x 2\): every dimension must be at least 1"):
        gemm_seconds(A100, 0, 2, 3, precision="fp32")


def test_streaming_by_hand() -> None:
    small = elementwise_seconds(A100, 1_000_000, launching="graph")
    assert small.seconds == pytest.approx(1.3e-6 + 1e6 / 3.9e12)
    assert small.bound == "launch"
    large = elementwise_seconds(A100, 1_000_000_000, launching="stream")
    assert large.seconds == pytest.approx(2.6e-6 + 1e9 / (0.88 * 1555e9))
    assert large.bound == "memory"
    in_place = elementwise_seconds(A100, 40_000_000, launching="stream", footprint_bytes=10_000_000)
    assert in_place.seconds == pytest.approx(2.6e-6 + 4e7 / 3.9e12)
    waiting = elementwise_seconds(gpu("h200"), 0, launching="grid")
    assert waiting.seconds == pytest.approx(1.13e-6)
    with pytest.raises(ValueError, match="must not be negative"):
        elementwise_seconds(A100, -1, launching="stream")


def test_rows_that_cannot_be_computed_say_why() -> None:
    row = {"gpu": "V100-SXM2", "dtype": "fp32", "batch": "1", "M": "16", "N": "16", "K": "16"}
    seconds, reason = predict_gemm_row({**row, "includes_host_overhead_us": "~3"})
    assert seconds == pytest.approx(3e-6 + gemm_seconds(V100, 16, 16, 16, precision="fp32").seconds)
    assert reason == "v100, compute bound, with 3 us of host overhead"
    for change, message in (
        ({"gpu": "IPU(GC200)"}, "is a tiled machine"),
        ({"gpu": "MI300X"}, "no description of device 'MI300X'"),
        ({"dtype": "int8"}, "no model for dtype 'int8'"),
        ({"M": ""}, "row has no M"),
        ({"M": "many"}, "must be whole numbers"),
        ({"K": "-1"}, "must be at least 1"),
        ({"includes_host_overhead_us": "some"}, "'some' is not a number of microseconds"),
    ):
        seconds, reason = predict_gemm_row({**row, **change})
        assert seconds is None
        assert message in reason


# name, which rows, least rows, largest mean deviation allowed; all rows of a set count, the long ones too
SETS: tuple[tuple[str, Callable[[dict[str, str]], bool], int, float], ...] = (
    ("NeuSight V100", lambda r: "V100-PCIE" in r["gpu"], 200, 0.05),
    ("NeuSight A100", lambda r: "A100-PCIE" in r["gpu"], 200, 0.07),
    ("DeepBench V100", lambda r: r["source"] == "DeepBench", 100, 0.09),
    ("PopSparse A100", lambda r: r["source"].startswith("PopSparse") and "A100" in r["gpu"], 20, 0.08),
    ("NeuSight V100, short", lambda r: "V100-PCIE" in r["gpu"] and float(r["time_us"]) < 500, 50, 0.06),
    ("NeuSight A100, short", lambda r: "A100-PCIE" in r["gpu"] and float(r["time_us"]) < 500, 50, 0.07),
    ("DeepBench V100, short", lambda r: r["source"] == "DeepBench" and float(r["time_us"]) < 500, 50, 0.10),
)


@pytest.mark.skipif(not MEASURED.exists(), reason="measurements are not beside this checkout")
@pytest.mark.parametrize(("name", "belongs", "least", "mean_bound"), SETS, ids=[s[0] for s in SETS])
def test_measured_products(name: str, belongs: Callable[[dict[str, str]], bool], least: int, mean_bound: float) -> None:
    with MEASURED.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if belongs(row)]
    assert len(rows) >= least
    ratios = []
    for row in rows:
        seconds, reason = predict_gemm_row(row)
        assert seconds is not None, reason
        ratios.append(seconds * 1e6 / float(row["time_us"]))
    mean = statistics.fmean(abs(ratio - 1) for ratio in ratios)
    assert mean < mean_bound, f"{name}: mean deviation {mean:.1%}"
    assert abs(statistics.median(ratios) - 1) < 0.06


@pytest.mark.skipif(not MEASURED.exists(), reason="measurements are not beside this checkout")
def test_every_measured_row_is_computed_or_explained() -> None:
    with MEASURED.open(newline="") as file:
        for row in csv.DictReader(file):
            seconds, reason = predict_gemm_row(row)
            assert (seconds is None) == row["gpu"].startswith("IPU"), reason
