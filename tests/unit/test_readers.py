"""Readers of published formats: exact on good files, a DataFileError that says where on bad ones."""

from __future__ import annotations

import re
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from event_lists import binned

from mimdsim.base.errors import DataFileError, MissingExtra
from mimdsim.base.rng import stream
from mimdsim.workload.data import dvs_gesture, hdf5, nmnist, shd
from mimdsim.workload.data.events import Events

REAL_NMNIST = Path(__file__).resolve().parents[3] / "shared" / "data" / "nmnist"


def nmnist_bytes(rows: list[tuple[int, int, int, int]]) -> bytes:
    return b"".join(bytes([x, y]) + (polarity << 23 | t).to_bytes(3, "big") for x, y, polarity, t in rows)


def aedat_packet(rows: list[tuple[int, int, int, int]], *, kind: int = 1, overflow: int = 0, valid: int = 1) -> bytes:
    header = struct.pack("<HHIIIIII", kind, 1, 8, 4, overflow, len(rows), len(rows), len(rows))
    return header + b"".join(struct.pack("<II", x << 17 | y << 2 | p << 1 | valid, t) for x, y, p, t in rows)


AEDAT_HEADER = b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DVS128\r\n#!END-HEADER\r\n"
GESTURE_ROWS = [(1, 2, 1, 100), (127, 0, 0, 150), (3, 127, 1, 1200), (5, 6, 0, 2500)]


def write_gestures(folder: Path, labels: str = "1,100,2000\n11,2400,9000\n", packets: bytes | None = None) -> Path:
    recording = folder / "user01_fluorescent.aedat"
    recording.write_bytes(AEDAT_HEADER + (aedat_packet(GESTURE_ROWS) if packets is None else packets))
    (folder / "user01_fluorescent_labels.csv").write_text("class,startTime_usec,endTime_usec\n" + labels)
    for split in ("train", "test"):
        (folder / f"trials_to_{split}.txt").write_text("user01_fluorescent.aedat\n\n")
    return recording


def write_shd(
    path: Path, times: list[list[float]], units: list[list[int]], labels: list[int], dtype: str = "f2"
) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, kind, rows in (("times", dtype, times), ("units", "u2", units)):
            column = file.create_dataset(f"spikes/{name}", (len(rows),), dtype=h5py.vlen_dtype(np.dtype(kind)))
            for sample, row in enumerate(rows):
                column[sample] = np.array(row, dtype=kind)
        file["labels"] = np.array(labels, dtype="u2")
    return path


def columns(events: Events) -> list[list[int]]:
    return [column.tolist() for column in (events.x, events.y, events.polarity, events.t_microseconds)]


def refused(action: Callable[[], object], text: str, byte_offset: int | None = None) -> None:
    with pytest.raises(DataFileError, match=re.escape(text)) as caught:
        action()
    assert caught.value.byte_offset == byte_offset


# N-MNIST


def test_nmnist_decodes_exactly(tmp_path: Path) -> None:
    path = tmp_path / "00001.bin"
    path.write_bytes(nmnist_bytes([(0, 33, 1, 0), (33, 0, 0, (1 << 23) - 1), (0, 240, 0, 0), (7, 8, 1, 5)]))
    events = nmnist.read_recording(path)
    assert columns(events) == [[0, 33, 7], [33, 0, 8], [1, 0, 1], [0, (1 << 23) - 1, 5 + (1 << 13)]]
    assert (events.width, events.height) == (34, 34)


def test_nmnist_refuses_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "bad.bin"
    good = nmnist_bytes([(1, 2, 1, 3), (4, 5, 0, 6)])
    refused(lambda: nmnist.read_recording(path), "bad.bin: cannot be read: No such file")
    for content, text, offset in (
        (b"", "is empty", 0),
        (good[:-2], "ends in the middle of an event (3 of 5 bytes)", 5),
        (good + nmnist_bytes([(34, 0, 0, 9)]), "event 2 is at x 34, y 0, outside the 34 x 34 sensor", 10),
        (good + nmnist_bytes([(0, 239, 0, 9)]), "event 2 is at x 0, y 239", 10),
        (nmnist_bytes([(0, 240, 0, 9)]), "holds no event, only 1 overflow marks", 0),
    ):
        path.write_bytes(content)
        refused(lambda: nmnist.read_recording(path), text, offset)
    path.write_bytes(bytes(nmnist.MAX_RECORDING_BYTES + 1))
    refused(lambda: nmnist.read_recording(path), f"is over {nmnist.MAX_RECORDING_BYTES} bytes")


def test_nmnist_says_which_folder_is_missing(tmp_path: Path) -> None:
    refused(lambda: nmnist.list_recordings(tmp_path, "Train"), "Train: no such folder; 'data.path' must hold Train/")
    for digit in range(9):
        (tmp_path / "Train" / str(digit)).mkdir(parents=True)
        (tmp_path / "Train" / str(digit) / "00001.bin").write_bytes(b"12345")
    refused(lambda: nmnist.list_recordings(tmp_path, "Train"), "9: no such folder")
    (tmp_path / "Train" / "9").mkdir()
    refused(lambda: nmnist.list_recordings(tmp_path, "Train"), "holds no .bin file")


@pytest.mark.skipif(not REAL_NMNIST.is_dir(), reason="the real recordings are not here")
def test_real_nmnist() -> None:
    files = nmnist.list_recordings(REAL_NMNIST, "Train")
    recordings = [nmnist.read_recording(path) for path, _ in files[::5]]
    assert np.mean([events.count for events in recordings]) == pytest.approx(4133, rel=0.05)
    assert max(int(events.x.max()) for events in recordings) <= 33
    assert 250_000 < np.mean([events.t_microseconds.max() for events in recordings]) < 340_000
    counts = [binned(events, timesteps=100, capacity=400, rng=stream(0))[1].mean() for events in recordings]
    assert np.mean(counts) / (34 * 34 * 2) == pytest.approx(0.0063, rel=0.1)


# SHD


@pytest.mark.slow
def test_shd_decodes_exactly(tmp_path: Path) -> None:
    path = write_shd(tmp_path / "shd_train.h5", [[0.0, 0.5, 1.25], [], [0.125]], [[0, 699, 3], [], [7]], [0, 19, 4])
    assert shd.read_labels(path).tolist() == [0, 19, 4]
    samples = list(shd.read_samples(path, [2, 0]))
    assert columns(samples[0]) == [[7], [0], [0], [125_000]]
    assert columns(samples[1]) == [[0, 699, 3], [0] * 3, [0] * 3, [0, 500_000, 1_250_000]]
    assert (samples[0].width, samples[0].height) == (700, 1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_shd_reads_any_precision(tmp_path: Path, dtype: str) -> None:
    path = write_shd(tmp_path / "a.h5", [[1.375]], [[5]], [1], dtype)
    assert next(shd.read_samples(path, [0])).t_microseconds.tolist() == [1_375_000]


@pytest.mark.slow
def test_shd_refuses_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"

    def read() -> None:
        list(shd.read_samples(path, [0, 1]))

    refused(read, "a.h5: no such file; 'data.path' must be a folder with shd_train.h5 and shd_test.h5")
    for times, units, labels, text in (
        ([[0.1], [0.2, 0.3]], [[1], [2]], [0, 1], "sample 1: /spikes/times has 2 entries, /spikes/units has 1"),
        ([[0.1], [0.2]], [[1], [700]], [0, 1], "/spikes/units, sample 1: channel 700 is outside 0 to 699"),
        ([[0.1], [np.nan]], [[1], [2]], [0, 1], "/spikes/times, sample 1: nan s is outside 0 to 60 seconds"),
        ([[0.1], [-0.5]], [[1], [2]], [0, 1], "/spikes/times, sample 1: -0.5 s is outside"),
        ([[0.1], [0.2]], [[1], [2]], [0, 20], "/labels, sample 1: class 20 is outside 0 to 19"),
        ([[0.1], [0.2]], [[1], [2]], [0, 1, 2], "/spikes/times has shape [2], /labels has 3 samples"),
        ([], [], [], "/labels has shape [0]"),
    ):
        write_shd(path, times, units, labels)
        refused(read, text)
    write_shd(path, [[0.1], [0.2]], [[1], [2]], [0, 1])
    path.write_bytes(path.read_bytes()[:-200])
    refused(read, "is damaged or not HDF5")
    path.write_bytes(b"not HDF5 at all")
    refused(read, "is damaged or not HDF5")


@pytest.mark.slow
def test_shd_opens_no_other_file(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    other = write_shd(tmp_path / "other.h5", [[0.1]], [[1]], [0])
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["labels"] = h5py.ExternalLink(other.name, "/labels")
    refused(lambda: shd.read_labels(path), "/labels is a link to somewhere else, which is not followed")
    (tmp_path / "raw").write_bytes(bytes(8))
    with h5py.File(path, "w") as file:
        file.create_dataset("labels", (4,), dtype="u2", external=[(str(tmp_path / "raw"), 0, 8)])
    refused(lambda: shd.read_labels(path), "/labels keeps its values in other files, which are not opened")
    with h5py.File(path, "w") as file:
        file["labels"] = np.array([0.5])
    refused(lambda: shd.read_labels(path), "/labels does not hold integers")
    with h5py.File(path, "w") as file:
        file["something"] = 1
    refused(lambda: shd.read_labels(path), "has no data set /labels")


def test_shd_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtra, match="reading SHD files needs the package 'h5py'"):
        shd.read_labels(tmp_path / "a.h5")


# DVS-Gesture


def read_all(folder: Path, duration_microseconds: int = 10_000) -> list[Events]:
    gestures = dvs_gesture.list_gestures(folder, "train")
    return list(dvs_gesture.read_gestures(gestures, duration_microseconds=duration_microseconds))


def test_dvs_gesture_decodes_exactly(tmp_path: Path) -> None:
    special = aedat_packet([(0, 0, 0, 0)], kind=0)
    unmarked = aedat_packet([(90, 90, 1, 160)], valid=0)
    first_half, second_half = aedat_packet(GESTURE_ROWS[:2]), aedat_packet(GESTURE_ROWS[2:])
    write_gestures(tmp_path, packets=special + first_half + unmarked + second_half)
    assert [gesture.label for gesture in dvs_gesture.list_gestures(tmp_path, "test")] == [0, 10]
    first, second = read_all(tmp_path)
    assert columns(first) == [[1, 127, 3], [2, 0, 127], [1, 0, 1], [0, 50, 1100]]
    assert columns(second) == [[5], [6], [0], [100]]
    assert columns(read_all(tmp_path, 51)[0])[3] == [0, 50]


def test_dvs_gesture_timestamps_overflow_and_old_headers(tmp_path: Path) -> None:
    late = 1 << 31
    packets = aedat_packet([(1, 1, 1, 7)], overflow=1)
    recording = write_gestures(tmp_path, labels=f"2,{late},{late + 50}\n", packets=packets)
    assert columns(read_all(tmp_path)[0])[3] == [7]
    recording.write_bytes(recording.read_bytes().replace(b"#!END-HEADER\r\n", b""))
    assert columns(read_all(tmp_path)[0])[3] == [7]


def test_dvs_gesture_refuses_bad_recordings(tmp_path: Path) -> None:
    start = len(AEDAT_HEADER)
    good = aedat_packet(GESTURE_ROWS)
    size = len(good)
    for packets, text, offset in (
        (good + good[:20], "ends inside a packet header (20 of 28 bytes)", start + size),
        (good + good[:-3], "packet needs 32 bytes, the file has 29 more", start + size),
        (good + aedat_packet([(0, 0, 0, 1), (128, 0, 0, 1)]), "event at x 128, y 0 is outside", start + size + 28 + 8),
        (struct.pack("<HHIIIIII", 1, 1, 8, 4, 0, 1 << 30, 0, 0), "packet claims 8589934592 bytes", start),
        (struct.pack("<HHIIIIII", 1, 1, 8, 4, 0, 0, 3, 0), "packet of capacity 0 claims 3 events", start),
        (struct.pack("<HHIIIIII", 1, 1, 4, 4, 0, 1, 1, 1) + bytes(4), "polarity packet with events of 4 bytes", start),
        (aedat_packet([(0, 0, 0, 1 << 31)]), "event with a negative timestamp", start + 28),
        (b"", "has no event in 100 to 2000 us, where the labels put class 1", None),
    ):
        write_gestures(tmp_path, packets=packets)
        refused(lambda: read_all(tmp_path), text, offset)
    recording = write_gestures(tmp_path)
    for content, text, offset in (
        (b"", "does not begin with '#!AER-DAT3.1'", 0),
        (b"#!AER-DAT2.0\r\n", "does not begin with '#!AER-DAT3.1'", 0),
        (b"#!AER-DAT3.1", "the header line has no end", 0),
        (b"#!AER-DAT3.1\r\n" * 5000, "header is over 65536 bytes", 0),
    ):
        recording.write_bytes(content)
        refused(lambda: read_all(tmp_path), text, offset)


def test_dvs_gesture_bounds_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that overlap could hold every event many times over."""
    packet = aedat_packet([(x, 1, 1, 100) for x in range(100)])
    write_gestures(tmp_path, labels="1,100,2000\n" * 64, packets=packet * 3)
    assert [events.count for events in read_all(tmp_path)] == [300] * 64
    monkeypatch.setattr(dvs_gesture, "MAX_HELD_EVENTS", 64 * 300 - 1)
    refused(lambda: read_all(tmp_path), "has over 19199 events in the windows of its labels, which may overlap")
    monkeypatch.setattr(dvs_gesture, "MAX_GESTURE_EVENTS", 299)
    refused(lambda: read_all(tmp_path), "has over 299 events in 100 to 2000 us; lower 'data.timesteps'")


def test_dvs_gesture_of_tiny_packets_is_read_in_time(tmp_path: Path) -> None:
    """Empty packets and packets of one event, with as many windows as there may be: windows are not compared anew."""
    tiny = aedat_packet([]) + aedat_packet([(1, 1, 1, 100)])
    write_gestures(tmp_path, labels="1,100,2000\n" * 64, packets=tiny * 5000)
    began = time.process_time()
    assert [events.count for events in read_all(tmp_path)] == [5000] * 64
    assert time.process_time() - began < 5  # 3 million comparisons of windows took over 10 s


def test_dvs_gesture_refuses_bad_lists(tmp_path: Path) -> None:
    missing = tmp_path / "x"
    refused(lambda: dvs_gesture.list_gestures(missing, "train"), "x: no such folder; 'data.path' must be a folder")
    refused(lambda: dvs_gesture.list_gestures(tmp_path, "train"), "trials_to_train.txt: no such file")
    for labels, text, offset in (
        ("12,1,2\n", "class 12 is outside 1 to 11", 34),
        ("1,1,2\n0,1,2\n", "class 0 is outside 1 to 11", 40),
        ("1,5,5\n", "gesture starts at 5 us and ends at 5 us", 34),
        ("1,2\n", "row '1,2' is not the numbers class,startTime_usec,endTime_usec", 34),
        ("1,-2,3\n", "row '1,-2,3' is not the numbers", 34),
        ("", "has 0 gestures, not 1 to 64", 0),
        ("1,1,2\n" * 65, "has 65 gestures", 0),
    ):
        write_gestures(tmp_path, labels=labels)
        refused(lambda: read_all(tmp_path), text, offset)
    write_gestures(tmp_path)
    (tmp_path / "user01_fluorescent_labels.csv").write_text("1,1,2\n")
    refused(lambda: read_all(tmp_path), "does not begin with the row 'class,startTime_usec,endTime_usec'", 0)
    for trials, text, offset in (
        ("user01_fluorescent.aedat\n../secret.aedat\n", "'../secret.aedat' is not the name of an .aedat file", 25),
        ("\n\n", "names no recording", 0),
        ("x" * 70_000, "is over 65536 bytes", None),
    ):
        write_gestures(tmp_path)
        (tmp_path / "trials_to_train.txt").write_text(trials)
        refused(lambda: read_all(tmp_path), text, offset)
    (tmp_path / "trials_to_train.txt").write_text("user02_led.aedat\n")
    refused(lambda: read_all(tmp_path), "user02_led.aedat: no such file, though trials_to_train.txt names it")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("os.kill(os.getpid(), 11)", "is damaged: the HDF5 library crashed on it (status -11); fetch it again"),
        (
            "time.sleep(60)",
            "is not read within 1 s: it is damaged and the HDF5 library hangs on it, or this machine is",
        ),
    ],
)
def test_shd_survives_a_crash_or_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, said: str) -> None:
    """A stand-in for h5py that does what HDF5 was seen to do on damaged files."""
    good = write_shd(tmp_path / "good.h5", [[0.1]], [[1]], [0])
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "h5py.py").write_text(f"import os, time\n{fault}\n")
    with monkeypatch.context() as patch, hdf5.shared_process():
        if "sleep" in fault:
            patch.setattr(hdf5, "FRAME_SECONDS", 1.0)
        patch.setenv("PYTHONPATH", str(broken))
        refused(lambda: shd.read_labels(good), said)
        patch.undo()
        assert shd.read_labels(good).tolist() == [0]
