"""Every data source opens into the same kind of dataset; what cannot be opened is refused with the reason."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.base.rng import stream
from mimdsim.workload.data import sources
from mimdsim.workload.data.dataset import SOURCES, SpikeDataset, input_shape, open_dataset
from mimdsim.workload.data.sources import bernoulli_places, seeded_order
from mimdsim.workload.description.sections import Data


def data(source: str, **changes: Any) -> Data:
    return Data(**{"source": source, "timesteps": 10, "input_capacity": 16, **changes})


RANDOM = data("random", inputs=200, classes=3, activity=0.02, train_samples=50, test_samples=20)


def write_nmnist(folder: Path, samples: int = 3) -> None:
    rng = stream(0, "nmnist")
    for split in ("Train", "Test"):
        for digit in range(10):
            place = folder / split / str(digit)
            place.mkdir(parents=True)
            for number in range(samples):
                rows = [(digit, number, 1, t) for t in (0, 1000, 5000)] + [(int(rng.integers(34)), 33, 0, 2000)]
                content = b"".join(bytes([x, y]) + (p << 23 | t).to_bytes(3, "big") for x, y, p, t in rows)
                (place / f"{number:05}.bin").write_bytes(content)


def test_every_source_can_be_opened() -> None:
    assert set(SOURCES) == set(Data.model_fields["source"].annotation.__args__)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("description", "shape"),
    [
        (data("nmnist"), (2312, 10)),
        (data("nmnist", grid=17), (578, 10)),
        (data("shd"), (700, 20)),
        (data("ssc"), (700, 35)),
        (data("dvs_gesture"), (32768, 11)),
        (data("dvs_gesture", grid=48), (4608, 11)),
        (data("digits"), (512, 10)),
        (data("mnist5k"), (2312, 10)),
        (data("digits", grid=8), (128, 10)),
        (data("randman", inputs=128, classes=4), (128, 4)),
        (data("random", inputs=1472, classes=2), (1472, 2)),
    ],
)
def test_input_shape(description: Data, shape: tuple[int, int]) -> None:
    assert input_shape(description) == shape


@pytest.mark.parametrize(
    ("description", "text"),
    [
        (data("randman"), "'data.inputs' must be given for source 'randman'"),
        (data("random", inputs=5), "'data.classes' must be given for source 'random'"),
        (data("digits", inputs=5), "'data.inputs' is fixed by source 'digits'; leave it out"),
        (data("shd", grid=8), "'data.grid' is 8, but SHD has channels"),
        (data("nmnist", grid=35), "'data.grid' is 35, but the sensor has 34 x 34 pixels"),
        (data("nmnist"), "'data.path' must name a folder with Train/"),
        (data("shd"), "'data.path' must name a folder with shd_train.h5"),
        (data("dvs_gesture"), "'data.path' must name a folder with trials_to_train.txt"),
        (data("digits", bin_seconds=1e-12), "'data.bin_seconds' is 1e-12"),
    ],
)
def test_impossible_descriptions_are_refused(description: Data, text: str) -> None:
    with pytest.raises(DescriptionError, match=text.replace(".", r"\.")):
        open_dataset(description, 0)


def test_missing_folders_are_named(tmp_path: Path) -> None:
    for source, missing in (("nmnist", "Train"), ("shd", r"shd_train\.h5"), ("dvs_gesture", "nowhere")):
        if source == "shd":
            pytest.importorskip("h5py")
        with pytest.raises(DataFileError, match=f"{missing}: no such.*--set data.source=random"):
            open_dataset(data(source, path=str(tmp_path / "nowhere")), 0)


def test_too_many_samples_for_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_LIST_BYTES", 10_000)
    with pytest.raises(DescriptionError, match="50 samples x 10 timesteps x 16 input ids are 32000 bytes, over 10000"):
        open_dataset(RANDOM, 0)


def test_batch_layout() -> None:
    train, _ = open_dataset(RANDOM, 0)
    assert train.ids.dtype == np.uint16
    ids, counts, labels = train.batch([4, 0, 4])
    assert (ids.shape, counts.shape, labels.shape) == ((10, 3, 16), (10, 3), (3,))
    assert ids.dtype == counts.dtype == labels.dtype == np.int32
    assert ids.flags.c_contiguous
    assert counts.flags.c_contiguous
    assert np.array_equal(ids[:, 0], train.ids[4])
    assert np.array_equal(counts[:, 1], train.counts[0])
    for outside in ([50], [-1]):
        with pytest.raises(IndexError, match="there are 0 to 49"):
            train.batch(outside)


def test_a_dataset_that_disagrees_is_refused() -> None:
    train, _ = open_dataset(RANDOM, 0)
    with pytest.raises(ValueError, match="disagree"):
        SpikeDataset(
            ids=train.ids, counts=train.counts, labels=train.labels[1:], inputs=200, classes=3, surplus_events=0
        )


def test_random_activity_is_binomial() -> None:
    roomy = RANDOM.model_copy(update={"input_capacity": 200, "train_samples": 400})
    train, test = open_dataset(roomy, 5)
    assert (train.samples, test.samples, train.surplus_events) == (400, 20, 0)
    # 4,000 rows of 200 flips of chance 0.02: mean 4, variance 3.92; five standard errors
    assert train.counts.mean() == pytest.approx(4, abs=5 * np.sqrt(3.92 / 4000))
    assert train.counts.var() == pytest.approx(3.92, rel=0.15)
    for row, count in zip(train.ids[0], train.counts[0], strict=True):
        assert (np.diff(row[:count].astype(int)) > 0).all()
        assert not row[count:].any()
    assert set(train.labels.tolist()) == {0, 1, 2}
    tight, _ = open_dataset(roomy.model_copy(update={"input_capacity": 2}), 5)
    assert tight.counts.max() == 2
    assert tight.surplus_events > 0


def test_extreme_chances() -> None:
    assert bernoulli_places(100, 0.0, stream(0)).size == 0
    assert bernoulli_places(100, 1e-300, stream(0)).size == 0
    assert bernoulli_places(100, 1.0, stream(0)).tolist() == list(range(100))


def test_wide_inputs_need_int32() -> None:
    train, _ = open_dataset(RANDOM.model_copy(update={"inputs": 70_000, "activity": 1e-4}), 0)
    assert train.ids.dtype == np.int32
    assert train.ids.max() > 1 << 16


@pytest.mark.parametrize("source", ["random", "randman"])
def test_same_seed_same_bytes(source: str) -> None:
    description = RANDOM.model_copy(update={"source": source})
    first, again, other = (open_dataset(description, seed) for seed in (1, 1, 2))
    for left, right in zip(first, again, strict=True):
        assert left.ids.tobytes() == right.ids.tobytes()
        assert left.labels.tobytes() == right.labels.tobytes()
    assert first[0].ids.tobytes() != other[0].ids.tobytes()


def test_every_prefix_of_an_order_is_balanced() -> None:
    labels = np.repeat([0, 1, 2], [40, 20, 20])
    order = seeded_order(labels, 3, "x")
    assert sorted(order.tolist()) == list(range(80))
    assert np.bincount(labels[order[:8]]).tolist() == [4, 2, 2]
    assert np.bincount(labels[order[:40]]).tolist() == [20, 10, 10]
    assert order.tolist() != seeded_order(labels, 4, "x").tolist()
    assert seeded_order(np.arange(12) % 3, 0, "golden").tolist() == GOLDEN_ORDER


GOLDEN_ORDER = [6, 4, 5, 3, 1, 11, 0, 10, 2, 9, 7, 8]  # recorded: guards the order against platform and numpy


def test_nmnist_folder(tmp_path: Path) -> None:
    write_nmnist(tmp_path)
    seen: list[tuple[int, int]] = []
    train, test = open_dataset(
        data("nmnist", path=str(tmp_path), train_samples=20), 0, lambda done, total: seen.append((done, total))
    )
    assert (train.samples, test.samples) == (20, 30)
    assert np.bincount(train.labels).tolist() == [2] * 10
    assert seen == [(n, 20) for n in range(1, 21)] + [(n, 30) for n in range(1, 31)]
    for ids, counts, label in zip(train.ids, train.counts, train.labels, strict=True):
        assert counts.tolist() == [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
        assert ids[0, 0] % 34 == label  # x of the first event
        assert ids[0, 0] >= 34 * 34  # an ON event


def test_nmnist_reads_only_what_is_asked_for(tmp_path: Path) -> None:
    write_nmnist(tmp_path, samples=1)
    (tmp_path / "Train" / "9" / "00000.bin").write_bytes(b"bad")
    open_dataset(data("nmnist", path=str(tmp_path), train_samples=9), 0)
    with pytest.raises(DataFileError, match=r"00000\.bin at byte 0: ends in the middle of an event"):
        open_dataset(data("nmnist", path=str(tmp_path)), 0)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "classes"), [("shd", 20), ("ssc", 35)])
def test_shd_and_ssc_folders(tmp_path: Path, source: str, classes: int) -> None:
    h5py = pytest.importorskip("h5py")
    samples = 2 * classes
    for name in (f"{source}_train.h5", f"{source}_test.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            for column, kind in (("times", "f2"), ("units", "u2")):
                rows = file.create_dataset(f"spikes/{column}", (samples,), dtype=h5py.vlen_dtype(np.dtype(kind)))
                for sample in range(samples):
                    values = [0.0, 0.005] if column == "times" else [sample % classes, 699]
                    rows[sample] = np.array(values, dtype=kind)
            file["labels"] = np.arange(samples) % classes
    train, test = open_dataset(data(source, path=str(tmp_path), train_samples=20), 0)
    assert (train.samples, test.samples, train.inputs, train.classes) == (20, samples, 700, classes)
    assert train.ids[:, 0, 0].tolist() == train.labels.tolist()  # each sample kept its own label
    assert (train.ids[:, 5, 0] == 699).sum() + (train.ids[:, 4, 0] == 699).sum() == 20  # 0.005 s in half precision
    if source == "ssc":
        for name in ("train", "test"):
            (tmp_path / f"ssc_{name}.h5").rename(tmp_path / f"shd_{name}.h5")
        with pytest.raises(DataFileError, match="/labels, sample 20: class 20 is outside 0 to 19"):
            open_dataset(data("shd", path=str(tmp_path)), 0)


def test_dvs_gesture_folder(tmp_path: Path) -> None:
    for user in ("user01_led", "user02_lab"):
        events = [(label, 5, 1, 1000 * label + 10) for label in range(1, 12)]
        packet = struct.pack("<HHIIIIII", 1, 1, 8, 4, 0, 11, 11, 11)
        packet += b"".join(struct.pack("<II", x << 17 | y << 2 | p << 1 | 1, t) for x, y, p, t in events)
        (tmp_path / f"{user}.aedat").write_bytes(b"#!AER-DAT3.1\r\n#!END-HEADER\r\n" + packet)
        rows = "".join(f"{label},{1000 * label},{1000 * label + 900}\n" for label in range(1, 12))
        (tmp_path / f"{user}_labels.csv").write_text("class,startTime_usec,endTime_usec\n" + rows)
    (tmp_path / "trials_to_train.txt").write_text("user01_led.aedat\nuser02_lab.aedat\n")
    (tmp_path / "trials_to_test.txt").write_text("user02_lab.aedat\n")
    train, test = open_dataset(data("dvs_gesture", path=str(tmp_path), bin_seconds=1e-5), 0)
    assert (train.samples, test.samples) == (22, 11)
    assert train.counts[:, 1].tolist() == [1] * 22
    assert (train.ids[:, 1, 0] % 128 - 1).tolist() == train.labels.tolist()
