"""Programs of frameworks and recurrent kernels: laws, hand-worked values, rows that say why, and measured networks."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import re
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.gpu.elementwise import (
    ALTERNATING,
    CUDNN_LOOP,
    CUDNN_PERSISTENT,
    TILED_PERSISTENT,
    Direction,
    RecurrentLayer,
    library_loop_seconds,
    on_chip_bytes,
    persistent_seconds,
    reduction_seconds,
)
from mimdsim.gpu.gemm import gemm_seconds
from mimdsim.validation.gpus.networks import (
    FRAMEWORKS,
    FUSED,
    QUEUED_LAUNCHES,
    EagerEstimate,
    Framework,
    Pass,
    fused_seconds,
    predict_snn_row,
)
from mimdsim.validation.gpus.products import KNOWN, described, device_of, find_precision

MEASURED = Path(__file__).resolve().parents[3] / "shared" / "references" / "gpu_snn_measurements.csv"
RTX3090, H100, V100 = described("rtx3090"), described("h100"), described("v100")
frameworks = st.sampled_from(sorted(FRAMEWORKS))
directions: st.SearchStrategy[Literal["forward", "backward"]] = st.sampled_from(("forward", "backward"))


@settings(max_examples=60, deadline=None)
@given(
    name=frameworks, direction=directions, neurons=st.integers(1, 8192), batch=st.integers(1, 64),
    timesteps=st.integers(1, 600), axis=st.integers(0, 3),
)  # fmt: skip
def test_more_work_or_a_slower_host_is_never_faster(
    name: str, direction: Literal["forward", "backward"], neurons: int, batch: int, timesteps: int, axis: int
) -> None:
    def seconds(*, more: int) -> float:
        grow = [2 if more and index == axis else 1 for index in range(4)]
        return EagerEstimate(
            RTX3090,
            FRAMEWORKS[name],
            neurons=neurons * grow[0],
            batch=batch * grow[1],
            timesteps=timesteps * grow[2],
            call_seconds=20e-6 * grow[3],
            direction=direction,
        ).seconds

    assert seconds(more=1) >= seconds(more=0) * (1 - 1e-12)


def test_host_and_device_by_hand() -> None:
    plain = Framework(
        products="none",
        forward=Pass(calls=10, array_passes=30),
        backward=Pass(calls=10, array_passes=30, sequence_passes=4, indexing_calls=2),
        source="assumed: for this test",
    )
    kwargs = {"neurons": 1000, "batch": 10, "timesteps": 100}
    host = EagerEstimate(RTX3090, plain, call_seconds=30e-6, direction="forward", **kwargs)  # type: ignore[arg-type]
    assert (host.seconds, host.bound) == (pytest.approx(100 * 10 * 30e-6), "host")
    # 8 small kernels of 30 / 8 arrays of 40 kB from the L2, 2 of 2 sequences of 4 MB each (8 MB do not stay in 6 MiB)
    device = EagerEstimate(RTX3090, plain, call_seconds=1e-6, direction="backward", **kwargs)  # type: ignore[arg-type]
    small = 8 * (2.05e-6 + 30 / 8 * 40_000 / 1.8e12)
    large = 2 * (2.05e-6 + 2 * 4_000_000 / (0.88 * 936e9))
    assert (device.seconds, device.bound) == (pytest.approx(100 * (small + large)), "device")
    with pytest.raises(ValueError, match="0 timesteps, batch 1, 1 neurons: each must be at least 1"):
        EagerEstimate(RTX3090, plain, neurons=1, batch=1, timesteps=0, call_seconds=1.0, direction="forward")


def test_the_host_stalls_when_the_queue_behind_a_long_product_is_full() -> None:
    timesteps, period = 500, 30e-6
    sinabs = FRAMEWORKS["Sinabs"]
    told = EagerEstimate(
        RTX3090, sinabs, neurons=16384, batch=16, timesteps=timesteps, call_seconds=period, direction="forward"
    )
    rest = (timesteps * sinabs.forward.calls - QUEUED_LAUNCHES) * period
    assert told.seconds > max(told.host_seconds, told.device_seconds)
    assert told.seconds - rest < told.device_seconds


def test_counts_are_of_something() -> None:
    for framework in FRAMEWORKS.values():
        for one in (framework.forward, framework.backward):
            assert one.calls > one.indexing_calls >= 0
            assert (one.sequence_passes > 0) == (one.indexing_calls > 0)
        assert framework.source.split(":")[0] == "derived"


DIRECTIONS: tuple[Direction, ...] = ("forward", "backward_inputs", "backward_weights")


@settings(max_examples=40, deadline=None)
@given(
    neurons=st.integers(16, 700), batch=st.integers(1, 128), timesteps=st.integers(1, 500),
    direction=st.sampled_from(DIRECTIONS),
)  # fmt: skip
def test_a_persistent_kernel_never_beats_what_it_must_do(
    neurons: int, batch: int, timesteps: int, direction: Direction
) -> None:
    layer = RecurrentLayer(neurons=neurons, gates=4, batch=batch, timesteps=timesteps)
    one, two = (
        persistent_seconds(H100, layer, kernel, precision="fp16", direction=direction)
        for kernel in (CUDNN_PERSISTENT, TILED_PERSISTENT)
    )
    assert two >= one
    flops = 2 * layer.weights * batch * timesteps
    assert one >= flops / H100.peak_flops_per_second("fp16")
    if direction != "backward_weights":
        assert one >= timesteps * H100.launch.grid_period_seconds
    wider = dataclasses.replace(layer, batch=2 * batch)
    assert persistent_seconds(H100, wider, CUDNN_PERSISTENT, precision="fp16", direction=direction) >= one
    loop = library_loop_seconds(V100, layer, CUDNN_LOOP, precision="fp32", direction=direction)
    assert loop >= flops / V100.peak_flops_per_second("fp32")


def test_a_weight_gradient_that_is_added_to_by_hand() -> None:
    # LSTM of 1024 neurons, 24 timesteps of 16: the initial state's 16 rows, then 368; the first product is bound by
    # writing its result, which is read and written only once more; 16 MiB at 0.88 of 900 GB/s, two waits each
    layer = RecurrentLayer(neurons=1024, gates=4, batch=16, timesteps=24)
    products = [gemm_seconds(V100, 4096, 1024, rows, precision="fp32") for rows in (16, 368)]
    assert [product.bound for product in products] == ["memory", "compute"]
    written = 4 * 1024**2 * 4 / (0.88 * 900e9)
    bias = reduction_seconds(V100, 24 * 16 * 4096, 4096).seconds
    by_hand = sum(product.seconds for product in products) + 3 * written + 4 * 22e-6 + 2 * bias
    told = library_loop_seconds(V100, layer, CUDNN_LOOP, precision="fp32", direction="backward_weights")
    assert told == pytest.approx(by_hand, rel=1e-12)
    alone = library_loop_seconds(V100, layer, ALTERNATING, precision="fp32", direction="backward_weights")
    rows = gemm_seconds(V100, 4096, 1024, 384, precision="fp32").seconds
    assert alone == pytest.approx(rows + 2 * written + bias, rel=1e-12)


def test_weights_that_do_not_fit_on_the_chip_are_refused() -> None:
    assert on_chip_bytes(described("a100")) == 108 * (164 + 128) * 1024  # 31 MB
    layer = RecurrentLayer(neurons=4096, gates=4, batch=1, timesteps=1)
    with pytest.raises(MappingError, match=r"take 128.0 MiB and h100 keeps at most 45.9 MiB on the chip"):
        persistent_seconds(H100, layer, CUDNN_PERSISTENT, precision="fp16", direction="forward")


def test_names_of_devices_in_tables() -> None:
    for label, name in (
        ("NVIDIA A100-PCIE-40GB", "a100-pcie"), ("NVIDIA A100 80GB PCIe", "a100-80-pcie"), ("A100 40 GB", "a100"),
        ("A100-SXM4-80GB", "a100-80"), ("Tesla V100-PCIE-32GB", "v100-pcie"), ("V100 (DGX-1)", "v100"),
        ("NVIDIA H100 80GB HBM3", "h100"), ("H100 SXM", "h100"), ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("RTX 2080 Ti", "rtx2080ti"), ("Tesla T4", "t4"), ("TPUv3", "tpu-v3"), ("A100(DGX)", "a100"),
    ):  # fmt: skip
        assert device_of(label)[0].name == name, label
    for label in (
        "MI300X", "RTX 2070 SUPER", "H100 PCIe", "H200 NVL", "NVIDIA GH200 480GB", "Tesla V100S-PCIE-32GB", "GTX 1080",
        "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "RTX 2070 with Max-Q Design", "unstated",
    ):  # fmt: skip
        with pytest.raises(MimdsimError, match="no description of device"):
            device_of(label)
    assert all(described(name).name == name for name in KNOWN)


def test_names_of_number_formats_in_tables() -> None:
    for label, precision in (
        ("fp32 SIMT", "fp32"), ("float32", "fp32"), ("FP16", "fp16"), ("fp16/fp32acc", "fp16"), ("bf16", "fp16"),
        ("TF32", "tf32"), ("fp32 (TF32 off = PyTorch default)", "fp32"), ("fp32, TF32 on", "tf32"), ("fp64", None),
        ("int8", None), ("fp320", None),
    ):  # fmt: skip
        assert find_precision(label) == precision, label


ROW = {
    "gpu": "RTX 3090 24GB", "framework": "snnTorch v0.7.0", "exec_style": "GEMM INSIDE python time loop",
    "task": "1x Linear(N,N) + 1x LIF", "batch_B": "16", "steps_T": "500", "neurons_or_layers": "4096", "dtype": "fp32",
    "metric": "forward", "timing_valid": "ok",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu": "MI300X"}, "no description of device 'MI300X'; known: v100-pcie"),
        ({"gpu": ""}, "row has no gpu"),
        ({"framework": "Spyx"}, "no count of the operations of framework 'spyx'"),
        ({"framework": "Sinabs EXODUS"}, "no count of the operations of framework 'sinabs exodus'"),
        ({"framework": "Norse", "exec_style": "once"}, "'norse' as 'once' has no loop over timesteps"),
        ({"framework": "Norse", "task": "LIF only (no linear)"}, "operations of 'norse' without a linear layer"),
        ({"metric": "compile"}, "no model for metric 'compile'; known: forward"),
        ({"timing_valid": "no: not synchronised"}, "its time cannot be trusted: no: not synchronised"),
        ({"steps_T": "~500"}, "must be whole numbers"),
        ({"batch_B": "0"}, "must be at least 1"),
        ({"batch_B": "9" * 400}, "are over 1,000,000,000"),
        ({"dtype": "fp64"}, "no model for dtype 'fp64'; known: fp32, tf32, fp16, bf16"),
        ({"dtype": "bf16"}, "eager frameworks are described in fp32 only, not fp16"),
        ({"task": ""}, "row has no task"),
        ({"task": "2x Linear(N,N) + 2x LIF"}, "no model for task '2x Linear(N,N) + 2x LIF'; known: 1x Linear(N,N)"),
        ({"task": "conv SNN, 3 layers"}, "no model for task 'conv SNN, 3 layers'"),
        ({"metric": "backward wrt weights"}, "'backward wrt weights' of linear layer and neurons; known: the backward"),
        ({"task": "LIF only", "framework": "snnTorch"}, "operations of 'snntorch' without a linear layer"),
        ({"framework": "SpikingJelly CuPy", "dtype": "tf32"}, "no count of what fused neurons of 'spikingjelly cupy'"),
        ({"task": "LSTM", "framework": "keras"}, "no description of 'keras' as a program for recurrent layers"),
        ({"task": "LSTM", "framework": "cuDNN persistent", "neurons_or_layers": "8192"}, "on the chip"),
    ],
)
def test_a_row_that_cannot_be_computed_says_why(change: dict[str, str], message: str) -> None:
    assert predict_snn_row(ROW).seconds > 0
    with pytest.raises(MimdsimError, match=re.escape(message)):
        predict_snn_row({**ROW, **change})


def test_neurons_alone_take_no_product() -> None:
    # 4 timesteps x 64 samples x 65536 neurons of 2 bytes: 9 passes forward and 9 backward at the DRAM's rate
    row = {
        **ROW, "gpu": "RTX 4090", "framework": "SpikingJelly cupy", "exec_style": "fused multi-step CuPy kernel",
        "task": "LIF only, N=64 x C=65536, fwd + sum + bwd", "batch_B": "64", "steps_T": "4",
        "neurons_or_layers": "65536", "dtype": "fp16", "metric": "forward+backward",
    }  # fmt: skip
    by_hand = 2 * (1.64e-6 + 9 * 4 * 64 * 65536 * 2 / (0.88 * 1008e9))
    assert predict_snn_row(row).seconds == pytest.approx(by_hand)  # published: 0.668 ms
    triton = predict_snn_row({**row, "framework": "SpikingJelly triton"})
    assert triton.seconds < by_hand / 2  # 8 passes
    assert triton.spread == (0.8, 1.25 * 11 / 8)  # an earlier version has 11
    layer = predict_snn_row({**row, "task": "1x Linear(N,N) + 1x LIF"}).seconds
    assert layer > 40 * by_hand
    with pytest.raises(ValueError, match="over 0 values: must be at least 1"):
        fused_seconds(described("rtx4090"), FUSED[0], values=0, precision="fp32", direction="forward")


def test_an_unknown_computer_widens_the_interval() -> None:
    small = {**ROW, "neurons_or_layers": "512"}
    known, unknown = predict_snn_row(small), predict_snn_row({**small, "gpu": "NVIDIA H200"})
    assert known.spread == (0.8, 1.25)
    assert unknown.spread == (0.5, 2.0)
    assert "this computer is unknown" in unknown.note


def measured_rows() -> list[dict[str, str]]:
    with MEASURED.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.skipif(not MEASURED.exists(), reason="measurements are not beside this checkout")
@pytest.mark.parametrize("framework", ["snnTorch", "Norse", "SpikingJelly PyTorch", "SpikingJelly torch", "Sinabs"])
def test_eager_frameworks_are_predicted(framework: str) -> None:
    rows = [row for row in measured_rows() if row["framework"].startswith(framework)]
    assert len(rows) >= 6
    for row in rows:
        told = predict_snn_row(row)
        bound = 0.10 if "backward" in row["metric"] else 0.25
        assert abs(told.seconds / float(row["value_s"]) - 1) <= bound, row


@pytest.mark.skipif(not MEASURED.exists(), reason="measurements are not beside this checkout")
@pytest.mark.parametrize(
    ("framework", "bound"), [("SpikingJelly CuPy", 0.10), ("FlashRNN", 0.25), ("cuDNN nn.LSTM", 0.25)]
)
def test_fused_and_persistent_kernels_are_predicted(framework: str, bound: float) -> None:
    rows = [row for row in measured_rows() if row["framework"].startswith(framework)]
    assert len(rows) >= 2
    for row in rows:
        told = predict_snn_row(row)
        assert abs(told.seconds / float(row["value_s"]) - 1) <= bound, row


@pytest.mark.skipif(not MEASURED.exists(), reason="measurements are not beside this checkout")
@pytest.mark.parametrize(("dtype", "within"), [("fp32", 98), ("fp16", 95)])
def test_most_rows_of_cudnn_s_standard_loop_are_within_a_quarter(dtype: str, within: int) -> None:
    rows = [row for row in measured_rows() if row["framework"] == "cuDNN 7.6.2" and row["dtype"].startswith(dtype)]
    ratios = [predict_snn_row(row).seconds / float(row["value_s"]) for row in rows]
    assert len(ratios) == 102
    assert sum(abs(ratio - 1) <= 0.25 for ratio in ratios) >= within


@pytest.mark.skipif(not MEASURED.exists(), reason="measurements are not beside this checkout")
def test_the_table_of_networks_is_predicted_within_9_percent() -> None:
    errors = []
    for row in measured_rows():
        with contextlib.suppress(MimdsimError):
            errors.append(abs(predict_snn_row(row).seconds / float(row["value_s"]) - 1))
    assert len(errors) >= 286
    assert sum(errors) / len(errors) <= 0.09
