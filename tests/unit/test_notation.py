"""Networks with convolutions as the literature writes them."""

from __future__ import annotations

import pytest

from mimdsim.base.errors import MappingError
from mimdsim.graph.convolution import convolutions_of


def test_slayers_network_is_read() -> None:
    first, second, last = convolutions_of("2x34x34-12c5-sum2-64c5-sum2-10")
    assert first.planes.shape == (2, 34, 34)
    assert first.result.shape == (12, 30, 30)
    assert second.before is not None
    assert second.before.kind == "sum"
    assert (second.read.shape, second.result.shape) == ((12, 15, 15), (64, 11, 11))
    assert (last.read.shape, last.result.shape, last.fan_in) == ((64, 5, 5), (10, 1, 1), 1600)


def test_strides_edges_and_pools_of_currents() -> None:
    first, second, last = convolutions_of("1x28x28-8c5p2s2:max2-avg2-16c3-10")
    assert first.after is not None
    assert (first.made.shape, first.result.shape) == ((8, 14, 14), (8, 7, 7))
    assert second.before is not None
    assert second.before.kind == "average"
    assert (second.read.shape, second.result.shape, last.planes.shape) == ((8, 3, 3), (16, 1, 1), (16, 1, 1))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("34x34-10", "34x34"), ("2x34x34", "2x34x34"), ("2x34x34-", ""), ("2x34x34-0", "0"), ("2x34x34-3d5-10", "3d5"),
        ("2x34x34-max2", "max2"), ("2x34x34-max2-max2-10", "max2"), ("2x34x34-3c5:min2-10", "min2"),
    ],
)  # fmt: skip
def test_what_it_is_not_is_named(text: str, part: str) -> None:
    with pytest.raises(MappingError, match=f"'{part}' is not expected there; an example is"):
        convolutions_of(text)


def test_a_window_larger_than_its_planes_is_refused() -> None:
    with pytest.raises(MappingError, match="is larger than planes of 2 x 2"):
        convolutions_of("1x2x2-3c5-10")
