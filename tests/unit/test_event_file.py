"""Event files that users bring: exact on good ones, refused by name, entry and reason on bad ones."""

from __future__ import annotations

import io
import re
import signal
import struct
import subprocess
import sys
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_file_writing import pixel_arrays, unit_arrays, write_events

from mimdsim.base import npz_reader
from mimdsim.base.errors import DataFileError, DescriptionError, MissingExtra
from mimdsim.workload import load_workload
from mimdsim.workload.data import event_columns, hdf5
from mimdsim.workload.data.dataset import input_shape, open_dataset
from mimdsim.workload.data.event_file import MAX_CLASSES, MAX_UNITS, EventFile, Sensor
from mimdsim.workload.data.hdf5 import MAX_CHUNK_VALUES, MAX_MEMORY_BYTES, shared_process
from mimdsim.workload.description.sections import Data

PIXELS = Sensor(width=6, height=4, polarities=2, by_unit=False)
UNITS = Sensor(width=7, height=1, polarities=1, by_unit=True)
KINDS = [".npz", ".h5"]


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    """One reading process for all HDF5 files of these tests."""
    with shared_process():
        yield


def read(path: Path, sensor: Sensor, classes: int = 2) -> list[list[list[int]]]:
    """x, y, polarity, microseconds of every sample."""
    with EventFile(path, sensor=sensor, classes=classes) as file:
        return [
            [column.tolist() for column in (events.x, events.y, events.polarity, events.t_microseconds)]
            for events in file.samples(range(file.labels.size))
        ]


def refused(action: Callable[[], object], text: str) -> None:
    with pytest.raises(DataFileError, match=re.escape(text)):
        action()


@pytest.mark.parametrize("name", ["a.npz", "a.h5"])
@pytest.mark.parametrize("packed", [False, True])
def test_files_decode_exactly(tmp_path: Path, name: str, packed: bool) -> None:
    options: dict[str, Any] = {"compression": "gzip", "shuffle": True, "fletcher32": True} if packed else {}
    path = write_events(tmp_path / name, pixel_arrays(), **options)
    assert read(path, PIXELS) == [
        [[0, 5, 3], [0, 3, 1], [0, 1, 1], [0, 1500, 2999]],
        [[], [], [], []],
        [[1, 2], [2, 2], [0, 1], [10, 20]],
        [[0, 5, 4, 3], [3, 0, 1, 1], [1, 0, 1, 0], [5, 5, 2000, 2500]],
    ]
    units = write_events(tmp_path / name, unit_arrays(), **options)
    assert read(units, UNITS)[0] == [[0, 6], [0, 0], [0, 0], [0, 2500]]
    with EventFile(units, sensor=UNITS, classes=2) as file:
        assert file.labels.tolist() == [0, 1, 0]
        assert file.split is None
        assert [events.x.tolist() for events in file.samples([1, 2])] == [[3], [1, 2, 1]]


@pytest.mark.first(24)
@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"labels": None}, "has no array 'labels', only 'offsets', "),
        ({"offsets": None}, "has no array 'offsets'"),
        ({"t_microseconds": None}, "has no times; give either 't_microseconds' or 't_seconds'"),
        ({"t_seconds": np.zeros(9)}, "has t_microseconds and t_seconds; give either"),
        ({"y": None}, "has no array 'y'; the description gives 'data.sensor'"),
        ({"unit": np.zeros(9, "u1")}, "has an array 'unit' too; the description gives 'data.sensor'"),
        ({"labels": np.zeros(0, "i4")}, "'labels' has 0 entries, not one for each of 1 to"),
        ({"offsets": np.array([0, 3, 9])}, "'offsets' has 3 entries; 4 samples need 5"),
        ({"offsets": np.array([1, 3, 3, 5, 9])}, "'offsets', entry 0: 1, but the first sample begins at event 0"),
        ({"offsets": np.array([0, 3, 2, 5, 9])}, "'offsets', entry 2: 2 follows 3; not sorted"),
        ({"offsets": np.array([0, 3, -2, 5, 9])}, "'offsets', entry 2: -2 is outside 0 to 9"),
        ({"offsets": np.array([0, 3, 3, 5, 10])}, "'offsets', entry 4: 10 is outside 0 to 9"),
        ({"offsets": np.array([0, 3, 3, 5, 8])}, "'offsets' ends at event 8, but there are 9 events"),
        ({"offsets": np.array([0, 3, 3, 5, (1 << 64) - 1], dtype="u8")}, "'offsets', entry 4: 9223372036854775807 is"),
        ({"offsets": np.array([0.0, 3, 3, 5, 9])}, "'offsets' holds real numbers; give integers"),
        ({"labels": np.array([0, 1, 2, 0])}, "'labels', entry 2: 2 is outside 0 to 1"),
        ({"labels": np.array([0, 1, -1, 0])}, "'labels', entry 2: -1 is outside 0 to 1"),
        ({"split": np.array([0, 1, 2, 0])}, "'split', entry 2: 2 is outside 0 to 1"),
        ({"split": np.zeros(4, "u1")}, "'split' has no 1, so there is no test sample"),
        ({"split": np.zeros(3, "u1")}, "'split' has 3 entries; 4 samples need 4"),
        ({"x": np.zeros(8, "u1")}, "'x' has 8 entries, 't_microseconds' has 9"),
        ({"x": np.array([0, 0, 0, 0, 6, 0, 0, 0, 0])}, "'x', entry 4 (sample 2): 6 is outside 0 to 5"),
        ({"p": np.array([0, 0, 0, 0, 0, 0, 0, 2, 0])}, "'p', entry 7 (sample 3): 2 is outside 0 to 1"),
        ({"y": np.zeros((3, 3), "u1")}, "give one dimension"),
        ({"y": np.zeros(9, "c8")}, "give integers, booleans or floats"),
        ({"t_microseconds": np.array([0, 1, -2, 0, 0, 0, 0, 0, 0])}, "'t_microseconds', entry 2 (sample 0): -2 is"),
        ({"t_microseconds": np.full(9, 1e3)}, "'t_microseconds' holds real numbers; give integers"),
        ({"t_microseconds": None, "t_seconds": np.array([0, 0, 0, np.nan] + [0.0] * 5)}, "'t_seconds', entry 3 (sam"),
        (
            {"t_microseconds": None, "t_seconds": np.array([np.inf] + [0.0] * 8)},
            "(sample 0): inf is outside 0 to 10000",
        ),
        ({"t_microseconds": None, "t_seconds": np.array([-0.5] + [0.0] * 8)}, "(sample 0): -0.5 is outside 0 to 10000"),
        (
            {name: np.zeros(0, "u1") for name in ("t_microseconds", "x", "y", "p")} | {"offsets": np.zeros(5, "i8")},
            "'t_microseconds' has 0 entries, not 1 to",
        ),
    ],
)
def test_rules_of_the_format(tmp_path: Path, suffix: str, changes: dict[str, Any], text: str) -> None:
    path = write_events(tmp_path / f"bad{suffix}", pixel_arrays(**changes))
    refused(lambda: read(path, PIXELS), text)
    with pytest.raises(DataFileError, match="bad"):
        read(path, PIXELS)


@pytest.mark.parametrize("suffix", KINDS)
def test_limits_on_samples_and_events(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_events(tmp_path / f"a{suffix}", pixel_arrays())
    for limit, value, text in (
        ("MAX_SAMPLES", 3, "'labels' has 4 entries, not one for each of 1 to 3 samples"),
        ("MAX_EVENTS", 8, "'t_microseconds' has 9 entries, "),
        ("MAX_SAMPLE_EVENTS", 3, "sample 3 has 4 events, over 3"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(event_columns, limit, value)
            refused(lambda: read(path, PIXELS), text)


def test_sensor_and_units_must_agree_with_the_file(tmp_path: Path) -> None:
    path = write_events(tmp_path / "a.npz", pixel_arrays())
    refused(lambda: read(path, UNITS), "has no array 'unit'; the description gives 'data.inputs'")
    one = Sensor(width=6, height=4, polarities=1, by_unit=False)
    refused(lambda: read(path, one), "'p', entry 1 (sample 0): 1 is outside 0 to 0")
    without = write_events(tmp_path / "b.npz", pixel_arrays(p=None))
    assert read(without, one)[2] == [[1, 2], [2, 2], [0, 0], [10, 20]]


# NPZ


def rewritten(content: bytes, changes: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """The archive with members replaced or added, sums and lengths right."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w", method) as new:
        for name in old.namelist():
            if name not in changes:
                new.writestr(name, old.read(name))
        for name, member in changes.items():
            new.writestr(name, member)
    return made.getvalue()


def npy(descr: str, shape: str, content: bytes, version: int = 1) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return (
        b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + content
    )


@pytest.mark.parametrize(
    ("member", "text"),
    [
        (npy("'|O'", "(9,)", bytes(72)), "'x' holds Python objects, which are not unpickled"),
        (npy("'<U3'", "(9,)", bytes(108)), "'x' holds '<U3'; give integers, booleans or floats"),
        (npy("[('a', '|O')]", "(9,)", bytes(72)), "'x' holds Python objects"),
        (npy("'<i3'", "(9,)", bytes(27)), "'x' has a header that numpy does not write"),
        (npy("'|u1'", "(10,)", bytes(9)), "'x' needs 10 bytes for its 10 entries, the archive has 9"),
        (npy("'|u1'", "(8,)", bytes(9)), "'x' needs 8 bytes for its 8 entries, the archive has 9"),
        (npy("'<u8'", f"({1 << 60},)", bytes(9)), f"'x' has {1 << 60} entries, over {event_columns.MAX_EVENTS}"),
        (npy("'|u1'", "()", bytes(1)), "'x' has the shape (); give one dimension"),
        (npy("'|u1'", "(3, 3)", bytes(9)), "'x' has the shape (3, 3); give one dimension"),
        (npy("__import__('os')", "(9,)", bytes(9)), "'x' has a header that numpy does not write"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31) + bytes(50), "'x' has a header that numpy does not write"),
        (b"\x93NUMPY\x01\x00" + struct.pack("<H", 500) + bytes(50), "'x' has a header that numpy does not write: EOF"),
        (b"\x93NUMPY\x04\x00" + bytes(90), "'x' is not an NPY array of version 1 to 3"),
        (b"(" * 9000, "'x' is not an NPY array of version 1 to 3"),
        (b"", "'x' is not an NPY array of version 1 to 3"),
        (npy("'|u1'", "(9,)" + "(" * 200, bytes(9)), "'x' has a header that numpy does not write"),
    ],
)
def test_bad_members(tmp_path: Path, member: bytes, text: str) -> None:
    path = write_events(tmp_path / "a.npz", pixel_arrays())
    path.write_bytes(rewritten(path.read_bytes(), {"x.npy": member}))
    refused(lambda: read(path, PIXELS), text)
    with pytest.raises(DataFileError, match=r"a\.npz at byte \d+: 'x'"):
        read(path, PIXELS)


def test_other_members_are_not_read(tmp_path: Path) -> None:
    path = write_events(tmp_path / "a.npz", pixel_arrays())
    path.write_bytes(rewritten(path.read_bytes(), {"notes.npy": npy("'|O'", "(1,)", b"pickle"), "x": b"", "a/b": b""}))
    assert len(read(path, PIXELS)) == 4
    big_endian = npy("'>u2'", "(9,)", np.zeros(9, ">u2").tobytes(), version=2)
    path.write_bytes(rewritten(path.read_bytes(), {"x.npy": big_endian}))
    assert read(path, PIXELS)[0][0] == [0, 0, 0]


def test_damaged_archives(tmp_path: Path) -> None:
    path = write_events(tmp_path / "a.npz", pixel_arrays())
    content = path.read_bytes()
    place = content.index(b"\x93NUMPY", content.index(b"x.npy")) + 128  # the first value of x, which may be 0 to 5
    flipped = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    locked = bytearray(content)
    first = content.index(b"PK\x01\x02")
    locked[first + 8] |= 1
    for bad, text in (
        (b"", "is not an NPZ file, or damaged: File is not a zip file"),
        (b"PK\x05\x06" + bytes(18), "has no times"),
        (content[:-30], "is not an NPZ file, or damaged"),
        (content[: len(content) // 2], "is not an NPZ file, or damaged"),
        (flipped, "'x' is damaged: Bad CRC-32 for file 'x.npy'"),
        (bytes(locked), "'offsets' is encrypted"),
        (rewritten(content, {}, zipfile.ZIP_LZMA), "is packed by method 14; write it with numpy.savez_compressed"),
    ):
        path.write_bytes(bad)
        refused(lambda: read(path, PIXELS), text)
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as file:
        file.writestr("x.npy", b"")
    refused(lambda: read(path, PIXELS), "has 'x' twice")


def test_a_huge_directory_is_not_read(tmp_path: Path) -> None:
    entry = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    count = npz_reader.READ_BYTES // len(entry) + 10
    directory = entry * count
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 65535, 65535, len(directory), 0, 0)
    path = tmp_path / "a.npz"
    path.write_bytes(directory + end)
    refused(lambda: read(path, PIXELS), f"{len(directory)} bytes of directory, over {npz_reader.READ_BYTES}")


def test_a_zip_bomb_is_refused_by_its_sizes(tmp_path: Path) -> None:
    """A member that unpacks to 64 MB where its array has 9 entries, declared truly and falsely."""
    path = write_events(tmp_path / "a.npz", pixel_arrays())
    bomb = npy("'|u1'", "(9,)", bytes(64 << 20))
    content = rewritten(path.read_bytes(), {"x.npy": bomb}, zipfile.ZIP_DEFLATED)
    path.write_bytes(content)
    refused(lambda: read(path, PIXELS), f"'x' needs 9 bytes for its 9 entries, the archive has {64 << 20}")
    true, false = struct.pack("<I", len(bomb)), struct.pack("<I", len(bomb) - (64 << 20) + 9)
    path.write_bytes(content.replace(true, false))
    refused(lambda: read(path, PIXELS), "'x' is damaged: Bad CRC-32")


# HDF5


def test_hdf5_opens_no_other_file_and_no_plug_in(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    other = write_events(tmp_path / "other.h5", pixel_arrays())
    (tmp_path / "raw").write_bytes(bytes(9))
    path = tmp_path / "a.h5"
    layout = h5py.VirtualLayout(shape=(9,), dtype="u1")
    layout[:] = h5py.VirtualSource(str(other), "x", shape=(9,))
    for make, text in (
        (lambda file: file.__setitem__("x", h5py.ExternalLink(other.name, "/x")), "/x is a link to somewhere else"),
        (lambda file: file.__setitem__("x", h5py.SoftLink("/y")), "/x is a link to somewhere else"),
        (lambda file: file.create_virtual_dataset("x", layout), "/x keeps its values in other files"),
        (
            lambda file: file.create_dataset("x", (9,), dtype="u1", external=[(str(tmp_path / "raw"), 0, 9)]),
            "/x keeps its values in other files",
        ),
        (lambda file: file.create_group("x"), "/x is not a data set"),
        (lambda file: file.create_dataset("x", data=h5py.Empty("u1")), "/x is empty"),
        (lambda file: file.create_dataset("x", data=np.uint8(3)), "/x has the shape []; give one dimension"),
        (lambda file: file.create_dataset("x", data=["a"] * 9), "'x' has the dtype object"),
        (
            lambda file: file.create_dataset("x", (9,), dtype="u1", chunks=(1 << 21,), maxshape=(None,)),
            "/x is stored in chunks of 2097152, over 1048576",
        ),
        (lambda file: file.create_dataset("x", (1 << 40,), dtype="u1"), f"/x has {1 << 40} entries, over"),
    ):
        write_events(path, pixel_arrays(x=None))
        with h5py.File(path, "a") as file:
            make(file)
        refused(lambda: read(path, PIXELS), text)


def twice_packed(path: Path, chunk: bytes, filters: int) -> None:
    """An event file whose x is one chunk of 9 entries, stored as the bytes `chunk`."""
    h5py = pytest.importorskip("h5py")
    write_events(path, pixel_arrays(x=None))
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((9,))
    for _ in range(filters):
        settings.set_deflate(9)
    with h5py.File(path, "a") as file:
        space = h5py.h5s.create_simple((9,))
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_UINT8, space, settings)
        made.write_direct_chunk((0,), chunk)


@pytest.mark.slow
@pytest.mark.newest  # the HDF5 library of the oldest packages cannot write such a chunk
def test_hdf5_that_unpacks_to_too_much(tmp_path: Path) -> None:
    """4 GiB of zeros behind 9 entries: once packed, the process's memory limit stops it; twice, it is not tried."""
    packer = zlib.compressobj(9)
    start = packer.compress(b"0") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)  # after a full flush blocks may repeat
    bomb = start + 256 * block
    path = tmp_path / "a.h5"
    twice_packed(path, bomb, 1)
    refused(lambda: read(path, PIXELS), "is damaged")
    twice_packed(path, zlib.compress(bomb), 2)
    refused(lambda: read(path, PIXELS), "/x is packed 2 times over with the same filter")
    assert len(read(write_events(path, pixel_arrays()), PIXELS)) == 4


def test_damaged_hdf5(tmp_path: Path) -> None:
    path = write_events(tmp_path / "a.h5", pixel_arrays())
    content = path.read_bytes()
    for bad in (b"", b"not HDF5", content[:500], content[:-100]):
        path.write_bytes(bad)
        refused(lambda: read(path, PIXELS), "is damaged or not HDF5")


@pytest.mark.slow
def test_an_answer_that_is_too_long_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_events(tmp_path / "a.h5", pixel_arrays(offsets=np.array([0, 9, 9, 9, 9])))
    monkeypatch.setattr(hdf5, "MAX_FRAME_BYTES", 9 * 8 - 1)
    refused(lambda: read(path, PIXELS), "a.h5: has a list of ")
    monkeypatch.setattr(hdf5, "MAX_FRAME_BYTES", 1 << 20)
    assert len(read(path, PIXELS)) == 4


def test_hdf5_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.h5").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtra, match="reading event files in HDF5 needs the package 'h5py'"):
        EventFile(tmp_path / "a.h5", sensor=PIXELS, classes=2)


# As a data source


def data(path: Path | str = "", **changes: Any) -> Data:
    given = {"source": "events", "path": str(path), "timesteps": 3, "input_capacity": 8, "classes": 2, **changes}
    return Data(**given)


@pytest.mark.parametrize("suffix", KINDS)
def test_a_split_array_decides(tmp_path: Path, suffix: str) -> None:
    path = write_events(tmp_path / f"a{suffix}", pixel_arrays())
    train, test = open_dataset(data(path, sensor=[6, 4, 2]), 0)
    assert (train.samples, test.samples, train.inputs, train.classes) == (3, 1, 48, 2)
    assert sorted(train.labels.tolist()) == [0, 1, 1]
    assert test.counts.tolist() == [[1 + 1, 0, 2]]
    assert test.ids[0, 0, :2].tolist() == [5, 6 * 3 + 24]
    again, _ = open_dataset(data(path, sensor=[6, 4, 2]), 0)
    assert again.ids.tobytes() == train.ids.tobytes()
    fewer, _ = open_dataset(data(path, sensor=[6, 4, 2], train_samples=2), 0)
    assert sorted(fewer.labels.tolist()) == [0, 1]


def test_two_files_or_a_fifth_held_out(tmp_path: Path) -> None:
    write_events(tmp_path / "train.npz", unit_arrays())
    write_events(tmp_path / "test.h5", unit_arrays(labels=np.array([1, 1, 1])))
    train, test = open_dataset(data(tmp_path, inputs=7), 0)
    assert (sorted(train.labels.tolist()), test.labels.tolist(), train.inputs) == ([0, 0, 1], [1, 1, 1], 7)
    only, rest = open_dataset(data(tmp_path / "train.npz", inputs=7), 0)
    assert (only.samples, rest.samples) == (2, 1)
    assert sorted([*only.labels.tolist(), *rest.labels.tolist()]) == [0, 0, 1]
    write_events(tmp_path / "test.npz", unit_arrays())
    refused(lambda: open_dataset(data(tmp_path, inputs=7), 0), "has test.npz and test.h5; a folder holds one file")
    (tmp_path / "test.h5").unlink()
    write_events(tmp_path / "test.npz", unit_arrays(split=np.array([0, 1, 0])))
    refused(lambda: open_dataset(data(tmp_path, inputs=7), 0), "test.npz: has 'split', but is one of two files")
    (tmp_path / "test.npz").unlink()
    refused(lambda: open_dataset(data(tmp_path, inputs=7), 0), "has no test.npz or test.h5; a folder holds one file")
    refused(lambda: open_dataset(data(tmp_path / "b.npz", inputs=7), 0), "b.npz: no such file or folder")
    (tmp_path / "b.csv").write_text("")
    refused(lambda: open_dataset(data(tmp_path / "b.csv", inputs=7), 0), "b.csv: is not an event file (.npz, .h5")


def test_only_what_is_read_is_checked(tmp_path: Path) -> None:
    arrays = pixel_arrays(x=np.array([0, 0, 0, 0, 0, 0, 0, 0, 6], dtype=np.uint8))
    path = write_events(tmp_path / "a.npz", arrays)
    with EventFile(path, sensor=PIXELS, classes=2) as file:
        assert [events.count for events in file.samples([0, 2])] == [3, 2]
        refused(lambda: list(file.samples([0, 3])), "'x', entry 8 (sample 3): 6 is outside 0 to 5")


def test_noise_and_rim_are_left_out(tmp_path: Path) -> None:
    path = write_events(tmp_path / "a.npz", pixel_arrays())
    whole = data(path, sensor=[6, 4, 2])
    cropped = data(path, sensor=[6, 4, 2], crop=2)
    assert (input_shape(whole), input_shape(cropped)) == ((48, 2), (8, 2))
    assert input_shape(data(path, sensor=[6, 4, 1], crop=4, grid=2)) == (4, 2)
    _, test = open_dataset(cropped, 0)
    assert test.counts.tolist() == [[0, 0, 1]]  # (3, 1) at 2500 us is the middle's (1, 0); (4, 1) lies outside
    assert test.ids[0, 2, 0] == 1
    _, test = open_dataset(data(path, sensor=[6, 4, 2], denoise_seconds=600e-6), 0)
    assert test.counts.tolist() == [[2, 0, 1]]  # (4, 1) at 2000 us is alone, but supports (3, 1) at 2500 us


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "needs 'data.sensor' = [width, height, polarities] or 'data.inputs' = number of units"),
        ({"inputs": 5, "sensor": [2, 2, 1]}, "needs 'data.sensor' = [width, height, polarities] or 'data.inputs'"),
        ({"inputs": 5, "classes": 0}, "'data.classes' is 0; source 'events' needs 1 to 65536"),
        ({"sensor": [2, 2]}, "'data.sensor' is [2, 2]; give [width, height, polarities]"),
        ({"sensor": [2, 2, 3]}, "'data.sensor' is [2, 2, 3]; give"),
        ({"sensor": [4096, 4096, 2]}, "'data.sensor' is [4096, 4096, 2]; give"),
        ({"sensor": [0, 2, 1]}, "'data.sensor' is [0, 2, 1]; give"),
        ({"sensor": [6, 4, 2], "grid": 5}, "'data.grid' is 5, but the sensor has 6 x 4 pixels"),
        ({"sensor": [6, 4, 2], "crop": 2, "grid": 3}, "'data.grid' is 3, but the sensor has 2 x 2 pixels"),
        ({"sensor": [6, 4, 2], "crop": 5}, "'data.crop' is 5, but the sensor has 6 x 4 pixels"),
        ({"inputs": 5, "crop": 2}, "'data.crop' needs recordings with pixels; leave it out"),
        ({"inputs": 5, "denoise_seconds": 0.1}, "'data.denoise_seconds' needs recordings with pixels"),
        ({"inputs": 5, "grid": 2}, "'data.grid' is 2, but 'data.inputs' gives units, not pixels"),
        ({"inputs": 5}, "'data.path' must name an event file (.npz, .h5 or .hdf5), or a folder with two"),
        ({"source": "digits", "classes": 0, "sensor": [6, 4, 2]}, "'data.sensor' is for source 'events', not for 'dig"),
        ({"source": "shd", "classes": 0, "crop": 2}, "'data.crop' needs recordings with pixels"),
    ],
)
def test_impossible_descriptions(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(DescriptionError, match=re.escape(text)):
        open_dataset(data(**changes), 0)


def test_more_units_than_a_layer_may_have_neurons_are_refused() -> None:
    with pytest.raises(DescriptionError, match=r"'data.inputs' .*less than or equal to 16777216 \(given: 33554432\)"):
        load_workload("randman-1d", {"data.inputs": 1 << 25})


def test_crop_of_published_recordings() -> None:
    camera = data(source="nmnist", classes=0, crop=32, denoise_seconds=0.01)
    assert input_shape(camera) == (32 * 32 * 2, 10)
    assert input_shape(data(source="dvs_gesture", classes=0, crop=96, grid=48)) == (48 * 48 * 2, 11)


# The page


@pytest.mark.slow
def test_examples_of_the_page_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "event-format.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    examples = [example for example in found if "import tonic" not in example]  # which is not installed here
    assert len(examples) == 3
    for example in examples:
        exec(example, {})
    train, test = open_dataset(data("recordings.npz", sensor=[34, 34, 2]), 0)
    assert (train.samples, test.samples) == (2, 1)
    assert test.ids[0, 0, 0] == 2 + 34 * 2
    train, test = open_dataset(data("recordings.h5", inputs=700, timesteps=100), 0)
    assert sorted([*train.labels.tolist(), *test.labels.tolist()]) == [0, 1]
    table, values = (tomllib.loads(each) for each in re.findall(r"```toml\n(.*?)```", page, re.DOTALL))
    assert input_shape(Data(**table["data"])) == (2312, 10)
    train, test = open_dataset(Data(**values["data"]), 0)  # of the file that the example wrote
    assert train.values is not None
    assert (train.values.shape, test.samples) == ((16, 100, 40), 4)
    limits = [event_columns.MAX_SAMPLES, event_columns.MAX_SAMPLE_EVENTS, event_columns.MAX_EVENTS]
    for limit in (*limits, npz_reader.MAX_HEADER_BYTES, MAX_CHUNK_VALUES, MAX_UNITS, MAX_CLASSES):
        assert f"{limit:,}" in page
    assert f"{MAX_MEMORY_BYTES >> 20} MiB" in page


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_search_without_end_is_ended_by_the_system() -> None:
    """Also when nobody waits for the answer any more."""
    code = (
        "import io, mimdsim.workload.data.hdf5 as hdf5\n"
        "hdf5.MAX_CPU_SECONDS = 1\n"
        "def read(path, wanted):\n"
        "    while True:\n"
        "        pass\n"
        'hdf5.serve(io.BytesIO(b\'["__main__", "read", "x", 0]\\n\'), io.BytesIO())\n'
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGXCPU
