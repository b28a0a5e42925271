"""The matrix product and streaming models: laws, hand-worked values, and measured matrix products."""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.base.errors import MimdsimError
from mimdsim.gpu.elementwise import elementwise_seconds, reduction_seconds
from mimdsim.gpu.gemm import gemm_seconds
from mimdsim.machine import GpuMachine, load_machine
from mimdsim.machine.gpu import Precision
from mimdsim.validation.gpus.products import predict_gemm_row, product_flops

MEASURED = Path(__file__).resolve().parents[3] / "shared" / "references" / "gemm_measurements.csv"
SECOND = MEASURED.with_name("gemm_measurements_2.csv")  # no parameter was calibrated on it
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
    more = gemm_seconds(machine, m, n, k, precision=precision, batch=batch + 1)
    assert more.seconds >= plain.seconds * (1 - 1e-12)  # sums in another order
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
    # efficiency 16 / 20, latency hiding 0.8 + 0.2 / 16; one wave of 2 us
    by_hand = 65536 / (128 * 1.41e9 * (16 / 20) * (0.8 + 0.2 / 16)) + 2e-6
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
    one, other = (
        gemm_seconds(machine, 8192, 8192, 8192, precision="fp16", power_limited=False) for machine in (free, held)
    )
    assert one == other  # done before it acts
    # 60 rows of a 128 x 128 tile are less than 0.87 of it: zeros, which leave power for the full clock
    tall = [gemm_seconds(machine, 60, 3072, 3072, batch=20, precision="fp32") for machine in (free, held)]
    assert tall[0] == tall[1]
    full = [gemm_seconds(machine, 128, 3072, 3072, batch=20, precision="fp32").seconds for machine in (free, held)]
    assert full[0] < full[1]


def test_large_fp16_products_reach_published_rates() -> None:
    # cuBLAS, 8192 x 8192 x 8192: 295 TFLOP/s on an A100 before the power limit acts (thonking.ai), 101 on a V100
    # PCIe (forums.developer.nvidia.com/t/79781)
    for machine, rate in ((A100, 295e12), (gpu("v100-pcie"), 101e12)):
        estimate = gemm_seconds(machine, 8192, 8192, 8192, precision="fp16", power_limited=False)
        assert estimate.flops / estimate.seconds == pytest.approx(rate, rel=0.04)


def test_a_batch_is_a_dimension_of_the_grid() -> None:
    # 20 x (64 x 3072) on 108 multiprocessors: 480 tiles of 128 x 128, half of each padding, the busiest multiprocessor
    # has 5: two at a time, then one
    estimate = gemm_seconds(A100, 64, 3072, 3072, batch=20, precision="fp32")
    assert (estimate.candidate.tile_m, estimate.candidate.tile_n, estimate.candidate.split) == (128, 128, 1)
    tile = 2 * 128 * 128 * 3072 / (128 * 1.41e9 * 64 / 68)
    assert estimate.seconds == pytest.approx(5 * (tile + 2e-6), rel=1e-9)
    # a batch that does not fill the device has the choice, but no split reduction
    few_tiles = gemm_seconds(A100, 64, 64, 100_000, batch=4, precision="fp32")
    assert few_tiles.candidate.split == 1
    assert gemm_seconds(A100, 64, 64, 100_000, precision="fp32").candidate.split > 1


def test_multiprocessors_of_a_cluster_read_an_operand_once() -> None:
    lone = H100.model_copy(update={"chip": H100.chip.model_copy(update={"cluster_multiprocessors": 1})})
    together, apart = (gemm_seconds(gpu, 8192, 8192, 8192, precision="fp16").seconds for gpu in (H100, lone))
    assert apart / together == pytest.approx((256 + 128) / (128 + 128), rel=0.02)  # L2 bound; the long edge is shared
    assert gemm_seconds(H100, 999, 999, 999, precision="fp32") == gemm_seconds(lone, 999, 999, 999, precision="fp32")


def test_tensor_units_take_no_tile_below_the_library_s_shortest_edge() -> None:
    free = V100.model_copy(update={"chip": V100.chip.model_copy(update={"tensor_tile_edge": 32})})
    for precision, changes in (("fp16", True), ("fp32", False)):
        held, open_to_all = (
            gemm_seconds(machine, 16, 5861, 1901, precision=precision, l2_resident=True)  # type: ignore[arg-type]
            for machine in (V100, free)
        )
        assert (held.seconds > open_to_all.seconds) == changes
        assert (min(held.candidate.tile_m, held.candidate.tile_n) >= 64) == changes


def test_without_asynchronous_copies_every_slice_of_k_waits_for_the_memory() -> None:
    # 28 tiles of 64 x 64 on a V100: 434 cycles at 1.53 GHz for every 32 of 1760, and a wave of 2 us; DeepBench's fp16
    # product of that shape takes 20 us, some 3 of them the host's
    by_hand = 1760 / 32 * 434 / 1.53e9 + 2e-6
    assert gemm_seconds(V100, 1760, 16, 1760, precision="fp16").seconds == pytest.approx(by_hand, rel=1e-12)
    resident = gemm_seconds(V100, 1760, 16, 1760, precision="fp16", l2_resident=True)
    assert resident.seconds < by_hand
    assert gemm_seconds(A100, 1760, 16, 1760, precision="fp16").seconds < by_hand / 2


def test_parts_of_a_split_reduction_run_at_once() -> None:
    for machine, precision in ((V100, "fp32"), (A100, "fp16"), (H100, "fp32")):
        for m, n, k in ((512, 768, 50272), (2048, 2560, 7680), (64, 64, 100_000), (1536, 1024, 30522)):
            found = gemm_seconds(machine, m, n, k, precision=precision).candidate  # type: ignore[arg-type]
            tiles = -(-m // found.tile_m) * -(-n // found.tile_n) * found.split
            sums = tiles * found.tile_m * found.tile_n
            assert found.split == 1 or sums <= machine.chip.streaming_multiprocessors * 2 * 128 * 128


def test_a_library_with_wide_tiles_takes_them_where_their_waves_are_full() -> None:
    # 4 x 197 tiles of 128 x 256 on 132 multiprocessors: 6 waves
    wide = gemm_seconds(H100, 512, 50272, 960, precision="fp32")
    assert {wide.candidate.tile_m, wide.candidate.tile_n} == {128, 256}
    rate = 256 * 1.98e9 * 0.84 * (256 / 3) / (256 / 3 + 4)
    assert wide.seconds == pytest.approx(6 * (2 * 128 * 256 * 960 / rate + 2e-6), rel=1e-9)
    without = H100.model_copy(update={"compute": H100.compute.model_copy(update={"fp32_wide_share": None})})
    assert gemm_seconds(without, 512, 50272, 960, precision="fp32").seconds > 1.2 * wide.seconds


def test_a_transposed_weight_slows_a_skinny_product_only() -> None:
    for rows, slower in ((16, True), (4096, False)):
        plain = gemm_seconds(V100, 8192, rows, 8192, precision="fp32").seconds
        turned = gemm_seconds(V100, 8192, rows, 8192, precision="fp32", transposed_weight=True).seconds
        assert (turned > 1.1 * plain) == slower


def test_a_reduction_to_few_results_takes_a_second_kernel() -> None:
    one = reduction_seconds(A100, 1 << 20, 1 << 10)
    assert one.seconds == elementwise_seconds(A100, ((1 << 20) + (1 << 10)) * 4, launching="stream").seconds
    two = reduction_seconds(A100, 1 << 20, 1)
    assert two.seconds > one.seconds + 2e-6
    cut = reduction_seconds(A100, 1 << 20, 10, element_bytes=8)  # 108 // 10 parts
    assert cut.bytes_moved == 8 * ((1 << 20) + 10 * 10) + 8 * 10 * (10 + 1)
    kernels = [8 * ((1 << 20) + 100), 8 * 10 * 11]
    assert cut.seconds == sum(elementwise_seconds(A100, moved, launching="stream").seconds for moved in kernels)
    with pytest.raises(ValueError, match="reduction of 3 elements to 4: needs"):
        reduction_seconds(A100, 3, 4)


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
        ({"K": "9" * 400}, "is over 1,000,000,000"),
        ({"includes_host_overhead_us": "some"}, "'some' is not a number of microseconds"),
    ):
        with pytest.raises(MimdsimError, match=re.escape(message)):
            predict_gemm_row({**row, **change})


def test_what_a_row_s_time_contains_is_read_from_its_columns() -> None:
    row = {"gpu": "A100-SXM-80", "dtype": "fp16", "batch": "1", "M": "8192", "N": "4096", "K": "4096"}
    machine = gpu("a100-80")
    alone, _ = predict_gemm_row({**row, "includes_host_overhead_us": "~20 (time.time + cuda sync)"})
    burst = gemm_seconds(machine, 8192, 4096, 4096, precision="fp16", power_limited=False).seconds
    assert alone == pytest.approx(20e-6 + machine.launch.stream_period_seconds + burst)
    eager = {"includes_host_overhead_us": "~20 (event pair around eager op)"}
    layer, _ = predict_gemm_row({**row, **eager})
    assert layer == pytest.approx(40e-6 + gemm_seconds(machine, 8192, 4096, 4096, precision="fp16").seconds)
    many, _ = predict_gemm_row({**row, **eager, "batch": "2"})  # no layer
    assert many == pytest.approx(20e-6 + gemm_seconds(machine, 8192, 4096, 4096, batch=2, precision="fp16").seconds)


def test_the_size_of_a_product_is_its_operations() -> None:
    row = {"M": "3", "N": "4", "K": "5", "batch": "2"}
    assert product_flops(row) == 2 * 3 * 4 * 5 * 2
    assert product_flops({**row, "batch": ""}) == 2 * 3 * 4 * 5
    assert [product_flops({**row, "M": text}) for text in ("many", "0", "9" * 400)] == [None] * 3


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
        seconds, _ = predict_gemm_row(row)
        ratios.append(seconds * 1e6 / float(row["time_us"]))
    mean = statistics.fmean(abs(ratio - 1) for ratio in ratios)
    assert mean < mean_bound, f"{name}: mean deviation {mean:.1%}"
    assert abs(statistics.median(ratios) - 1) < 0.06


@pytest.mark.skipif(not SECOND.exists(), reason="measurements are not beside this checkout")
@pytest.mark.parametrize(
    ("source", "mean_bound"), [("NeuSight linear", 0.11), ("NeuSight bmm", 0.09), ("LLMCompass", 0.09), ("", 0.09)]
)
def test_measured_products_that_nothing_was_calibrated_on(source: str, mean_bound: float) -> None:
    with SECOND.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if source in row["source"]]
    off = [abs(predict_gemm_row(row)[0] * 1e6 / float(row["time_us"]) - 1) for row in rows]
    assert len(off) >= 7
    assert statistics.fmean(off) < mean_bound


@pytest.mark.skipif(not MEASURED.exists(), reason="measurements are not beside this checkout")
def test_every_measured_row_is_computed_or_explained() -> None:
    with MEASURED.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["gpu"].startswith("IPU"):
                with pytest.raises(MimdsimError, match="is a tiled machine"):
                    predict_gemm_row(row)
            else:
                assert predict_gemm_row(row)[0] > 0
