"""The weak-scaling sweep: sizes of the published networks, spikes that nobody recorded, and the figure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scripts import script

from mimdsim.base.errors import MappingError
from mimdsim.compiler import place
from mimdsim.report.style import picture
from mimdsim.workload import MappingOptions, filled_activity, load_workload, network_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from benchmark_figures import draw_over_chips, draw_scaling  # noqa: E402

# chips, neurons per tile: weights in millions (SHD, N-MNIST), layers, neurons with SHD's 20 classes. Computed from the
# size rules of jrfinkbeiner/graphcore_snn, benchmarking_script.py (commit 0d81a25).
SIZES: dict[tuple[int, int], tuple[float, float, int, int]] = {
    (1, 2): (2.60, 3.05, 4, 2_942),
    (2, 2): (5.48, 5.93, 7, 5_884),
    (4, 2): (11.25, 11.70, 13, 11_768),
    (8, 2): (22.79, 23.24, 25, 23_536),
    (16, 2): (45.87, 46.32, 49, 47_072),
    (1, 4): (5.48, 5.93, 7, 5_884),
    (2, 4): (11.25, 11.70, 13, 11_768),
    (4, 4): (22.79, 23.24, 25, 23_536),
    (8, 4): (45.87, 46.32, 49, 47_072),
    (16, 4): (92.03, 92.48, 97, 94_144),
    (1, 8): (11.24, 11.69, 13, 11_764),
    (2, 8): (22.78, 23.23, 25, 23_532),
    (4, 8): (45.86, 46.31, 49, 47_068),
    (8, 8): (92.03, 92.48, 97, 94_140),
    (16, 8): (184.35, 184.80, 193, 188_284),
}
# width and capacity of the first layer on one chip, 5 % activity
FIRST_HIDDEN = {"nmnist": {2: (978, 48), 4: (980, 48), 8: (984, 48)}, "shd": {2: (974, 48), 4: (980, 48), 8: (984, 48)}}


def sweep() -> ModuleType:
    return script("benchmarks/weak_scaling.py")


@pytest.mark.parametrize("data", ["shd", "nmnist"])
def test_sizes_are_those_of_the_published_rules(data: str) -> None:
    module = sweep()
    assert {(chips, per_tile) for chips in module.CHIPS for per_tile in module.NEURONS_PER_TILE} == set(SIZES)
    for (chips, per_tile), (shd, nmnist, layers, neurons) in SIZES.items():
        network = network_of(module.published_workload(chips, per_tile, data))
        weights = sum(layer.neurons * layer.inputs for layer in network.layers)
        assert round(weights / 1e6, 2) == (shd if data == "shd" else nmnist), (chips, per_tile)
        assert len(network.layers) == layers == chips * per_tile // 2 * 3 + 1
        total = sum(layer.neurons for layer in network.layers)
        unfilled = -network.classes % per_tile  # of the last tile of the output layer
        assert total == chips * 1471 * per_tile - unfilled
        if data == "shd":
            assert total == neurons
        assert all(layer.neurons % per_tile == 0 for layer in network.layers[:-1])
        if chips == 1:
            assert (network.layers[0].neurons, network.layers[0].capacity) == FIRST_HIDDEN[data][per_tile]
        assert network.layers[-1].capacity == 2
        placement = place(network, 1472, 6, MappingOptions(neurons_per_tile=per_tile), chips)
        assert placement.chips == chips
        for chip in range(chips):
            held = [layer for layer in placement.layers if layer.chips[0] == chip]
            assert len(held) == per_tile // 2 * 3 + (chip == chips - 1)
            assert sum(layer.tiles.size for layer in held) == 1471


@pytest.mark.slow
def test_a_sweep_runs_and_draws(tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    command = [sys.executable, "benchmarks/weak_scaling.py", "--chips", "1", "2", "--neurons-per-tile", "2"]
    done = subprocess.run(
        [*command, "--processes", "1", "--figure", str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    one, two = (line.split() for line in done.stdout.splitlines()[2:4])
    assert one[:6] == ["1", "2", "4", "2,942", "3.05", "M"]
    assert two[:6] == ["2", "2", "7", "5,884", "5.93", "M"]
    assert 0 < float(one[6]) < float(two[6])  # milliseconds: links come on top
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_best_mappings_of_one_and_two_chips_are_timed_and_drawn(tmp_path: Path) -> None:
    """Strong and weak scaling: one chip is the same in both, and more samples take no less."""
    path = tmp_path / "figure.png"
    command = [sys.executable, "benchmarks/scaling_over_chips.py", "--workload", "digits", "--chips", "1", "2"]
    done = subprocess.run(
        [*command, "--candidates", "16", "--figure", str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    one, two, same, more = (line for line in lines if line and line[0] in ("1", "2"))
    assert same[:6] == one[:6]
    assert [line[1] for line in (one, two, more)] == ["48", "48", "96"]
    assert float(more[2]) > float(two[2]) > 0
    assert path.read_bytes().startswith(b"\x89PNG")


# ---- spikes that nobody recorded


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_lists_are_filled_to_their_share(share: float) -> None:
    network = network_of(load_workload("nmnist-2-random", {"network.capacity": [14, 15, 2]}))
    activity = filled_activity(network, share)
    assert list(activity.ids) == ["input", "hidden0", "hidden1", "output"]
    listed = {name: set(counts.ravel().tolist()) for name, counts in activity.counts.items()}
    filled = {0: (0, 0, 0, 0), 0.5: (16, 7, 8, 1), 1: (32, 14, 15, 2)}[share]
    assert listed == {name: {count} for name, count in zip(activity.ids, filled, strict=True)}
    for name, ids in activity.ids.items():
        neurons = network.inputs if name == "input" else 1466 if name != "output" else 10
        assert ids.shape[:2] == activity.counts[name].shape[:2] == (100, 48)
        assert (np.diff(ids, axis=2) > 0).all()  # ascending, none twice
        assert ids.min() == 0
        assert neurons * 0.5 <= ids.max() < neurons  # over the whole layer


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_another_share_is_refused(share: float) -> None:
    network = network_of(load_workload("nmnist-2-random"))
    with pytest.raises(MappingError, match=f"lists filled to {share} of their capacity: give a share from 0 to 1"):
        filled_activity(network, share)


# ---- the figure


def rows(**changes: Any) -> list[dict[str, Any]]:
    made = []
    for per_tile, first in ((2, 0.4), (4, 0.6)):
        for number, chips in enumerate((1, 2, 4, 16)):
            ms = first * (1 + 0.1 * number)
            row = {"chips": chips, "neurons_per_tile": per_tile, "ms": ms, "ms_low": 0.8 * ms, "ms_high": 1.2 * ms}
            made.append({**row, "fits": True, **changes})
    return made


@pytest.mark.slow
def test_the_figure_shows_time_and_efficiency() -> None:
    figure = draw_scaling(rows(), title="Weak scaling")
    speed, efficiency = figure.axes
    assert list(np.asarray(speed.lines[0].get_ydata())) == pytest.approx([0.4, 0.44, 0.48, 0.52])
    assert list(np.asarray(efficiency.lines[0].get_ydata())) == pytest.approx([100, 100 / 1.1, 100 / 1.2, 100 / 1.3])
    assert [label.get_text() for label in speed.get_xticklabels()] == ["1", "2", "4", "16"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["2 neurons per tile", "4 neurons per tile"]
    assert picture(draw_scaling(rows(), title="Weak scaling")) == picture(figure)
    assert picture(draw_scaling(rows(fits=False), title="Weak scaling")) != picture(figure)


@pytest.mark.slow
def test_the_figure_over_chips_shows_both_answers_and_their_intervals() -> None:
    strong = [
        {"chips": chips, "chip": (ms, 0.8 * ms, 1.2 * ms), "all": (2 * ms, 1.6 * ms, 2.4 * ms), "host_ms": 0.1}
        for chips, ms in ((1, 2.0), (2, 1.5), (4, 1.8))
    ]
    figure = draw_over_chips(strong, strong[:2], samples=48, title="Two")
    panel, weak = figure.axes
    drawn = {str(line.get_label()): list(np.asarray(line.get_ydata())) for line in panel.lines}
    assert drawn["an exchange stops its own chip only"] == [2.0, 1.5, 1.8]
    assert drawn["an exchange stops all chips"] == [4.0, 3.0, 3.6]
    assert drawn["if several chips cost nothing"] == [2.0, 1.0, 0.5]
    assert drawn["the host sends the batch"] == [0.1, 0.1, 0.1]
    assert [label.get_text() for label in weak.get_xticklabels()] == ["1", "2"]
    assert list(np.asarray(weak.lines[-2].get_ydata())) == [2.0, 2.0]
    assert panel.get_ylim()[1] > 2.4 * 2.0
