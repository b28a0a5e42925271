"""Where the values of a swept field stand in its figures."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from mimdsim.report.figures_sweep import swept_axis
from mimdsim.studies.points import parse_axis


def rows(key: str, *values: object) -> list[dict[str, object]]:
    return [{key: value} for value in values]


def test_lines_never_go_back_whatever_the_order_of_the_values() -> None:
    given = rows("tile.worker_contexts", 12, 1, 6, 3)
    axis = swept_axis("tile.worker_contexts", given)
    assert [row["tile.worker_contexts"] for row in axis.ascending(given)] == [1, 3, 6, 12]


@pytest.mark.parametrize(
    ("key", "values", "places"),
    [
        ("chip.clock_hz", ("1.85 GHz", "500 MHz", 2e9), [1.85e9, 5e8, 2e9]),
        ("tile.sram_bytes", ("624 KiB", "1 MiB"), [638_976, 1_048_576]),
        ("network.neuron", ("lif", "leaky"), [0, 1]),
        ("network.hidden", ("[64]", "[128]"), [0, 1]),
        ("network.bias", (True, False), [0, 1]),
        ("data.source", ("3 ms", "digits"), [0, 1]),
        ("seed", (2**62, 1), [2.0**62, 1]),
    ],
)
def test_numbers_stand_at_their_value_and_names_side_by_side(
    key: str, values: tuple[object, ...], places: list[float]
) -> None:
    axis = swept_axis(key, rows(key, *values))
    assert [axis.at({key: value}) for value in values] == places


@pytest.mark.parametrize(
    ("values", "scale", "labels"),
    [
        ((0.25, 400, 1e6), "log", ["0.25 B/cycle", "400 B/cycle", "1000000 B/cycle"]),
        ((0.25, 0.5, 400, 1e6), "log", ["0.25 B/cycle", "400 B/cycle", "1000000 B/cycle"]),  # those that have room
        (tuple(range(1, 13)), "log", ["1 B/cycle", "2 B/cycle", "4 B/cycle", "7 B/cycle", "12 B/cycle"]),
        ((1, 2, 3), "linear", None),
        ((0, 4, 1e6), "linear", None),
        (("1 B/cycle", "4 B/cycle"), "linear", ["1 B/cycle", "4 B/cycle"]),
    ],
)
def test_wide_ranges_are_logarithmic_and_units_stay(
    values: tuple[object, ...], scale: str, labels: list[str] | None
) -> None:
    panel = Figure().add_subplot()
    swept_axis("exchange.bytes_per_cycle", rows("exchange.bytes_per_cycle", *values)).draw(panel)
    assert panel.get_xscale() == scale
    if labels:
        assert [label.get_text() for label in panel.get_xticklabels()] == labels


def test_commas_in_brackets_and_braces_separate_no_values() -> None:
    key, values = parse_axis("network.neuron_parameters={alpha=0.9,beta=0.8},{alpha=0.8,beta=0.8}")
    assert key == "network.neuron_parameters"
    assert values == ({"alpha": 0.9, "beta": 0.8}, {"alpha": 0.8, "beta": 0.8})
    assert parse_axis("network.hidden=[64,64],[32]")[1] == ([64, 64], [32])
