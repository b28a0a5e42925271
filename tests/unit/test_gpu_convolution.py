"""Times of convolutions on a GPU, and rows of measured ones."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimdsim.base.search_path import files_of
from mimdsim.gpu.convolution import ConvolutionPass, Pass, convolution_seconds
from mimdsim.graph.convolution import Patches, Planes, Window
from mimdsim.machine.gpu import Precision
from mimdsim.validation import validate
from mimdsim.validation.gpus.products import described

H100 = described("h100")
TABLE = files_of("references", "")["gpu_convolutions.csv"]
PASSES, PRECISIONS = get_args(Pass), get_args(Precision)


def of(what: Pass, channels: int, made: int, size: int, samples: int, stride: int = 1) -> ConvolutionPass:
    window = Window(kernel=(3, 3), stride=(stride, stride), padding=(1, 1))
    planes = Planes(channels=channels, height=size, width=size)
    return ConvolutionPass(what=what, patches=Patches(planes=planes, window=window), channels=made, samples=samples)


@given(
    st.sampled_from(PASSES), st.sampled_from(PRECISIONS), st.integers(1, 40), st.integers(1, 40), st.integers(3, 20),
    st.integers(1, 200), st.integers(1, 2),
)  # fmt: skip
def test_more_samples_take_no_less_and_no_roofline_is_beaten(
    what: Pass, precision: Precision, channels: int, made: int, size: int, samples: int, stride: int
) -> None:
    each = of(what, channels, made, size, samples, stride)
    time = convolution_seconds(H100, each, precision=precision)
    more = convolution_seconds(H100, replace(each, samples=2 * samples), precision=precision)
    assert more.seconds >= time.seconds
    # the taps beyond the edges, which flops has, are left out of an input gradient in fp32
    share = 4 / 9 if what == "input gradient" else 1.0
    assert time.seconds > share * time.flops / H100.peak_flops_per_second(precision)
    assert time.seconds > time.bytes_moved / H100.memory.dram_bytes_per_second


@pytest.mark.parametrize("what", PASSES)
def test_wide_layers_reach_the_rate_of_products_and_narrow_ones_do_not(what: Pass) -> None:
    share = [
        time.flops / time.seconds / H100.peak_flops_per_second("fp16")
        for time in (
            convolution_seconds(H100, of(what, *size), precision="fp16")
            for size in ((128, 128, 64, 64), (2, 16, 64, 64))
        )
    ]
    assert 0.55 < share[0] < 0.87
    assert share[1] < 0.05


def test_channels_are_padded_on_tensor_units_only() -> None:
    def seconds(channels: int, precision: Precision) -> float:
        return convolution_seconds(H100, of("forward", channels, 64, 32, 320), precision=precision).seconds

    assert seconds(33, "fp16") > 1.3 * seconds(32, "fp16")
    assert seconds(33, "fp32") < 1.2 * seconds(32, "fp32")


def test_gradients_in_tf32_are_slower_than_the_forward_pass() -> None:
    forward, *gradients = (
        convolution_seconds(H100, of(what, 128, 128, 32, 64), precision="tf32").seconds for what in PASSES
    )
    assert min(gradients) > 1.2 * forward


@pytest.mark.parametrize("what", PASSES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_groups_beat_no_roofline_and_depthwise_layers_are_bound_by_memory(what: Pass, precision: Precision) -> None:
    one = of(what, 64, 64, 32, 200)
    for groups in (2, 64):
        found = convolution_seconds(H100, replace(one, groups=groups), precision=precision)
        assert found.flops == 2 * 200 * 32 * 32 * 9 * 64 * 64 // groups
        assert found.seconds > found.bytes_moved / H100.memory.dram_bytes_per_second
        assert found.seconds > 4 / 9 * found.flops / H100.peak_flops_per_second(precision)
    assert found.bound == "memory"
    assert found.seconds < convolution_seconds(H100, one, precision="fp32").seconds


def written(folder: Path, **changes: str) -> Path:
    """The first row, changed."""
    with TABLE.open() as file:
        first = next(csv.DictReader(file))
    path = folder / "mine.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(first))
        writer.writeheader()
        writer.writerow(first | changes)
    return path


def test_a_measured_row_is_microseconds_of_what_the_model_says(tmp_path: Path) -> None:
    size = {"samples": "64", "channels": "128", "height": "64", "width": "64", "channels_made": "128", "kernel": "3"}
    for what in PASSES:
        row = {"dtype": "fp16", "pass": what, "stride": "1", "padding": "1", **size}
        (found,) = validate(written(tmp_path, **row))
        assert found.unit == "us"
        seconds = convolution_seconds(H100, of(what, 128, 128, 64, 64), precision="fp16").seconds
        assert found.predicted == pytest.approx(1e6 * seconds)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pass": "backward"}, "column 'pass': 'backward' is none of forward, input gradient, weight gradient"),
        ({"samples": "0"}, "must be at least 1"),
        ({"height": "5000"}, "planes of over 4,096 pixels a side"),
        ({"kernel": "x"}, "must be whole numbers"),
        ({"kernel": "90"}, "is larger than planes"),
        ({"gpu": "B100"}, "no description of device 'B100'"),
        ({"dtype": "fp4"}, "no model for dtype 'fp4'"),
        ({"time_us": "-1"}, "column 'time_us': '-1' is not a number above 0"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    (row,) = validate(written(tmp_path, **changes))
    assert row.predicted is None
    assert said in row.note
