"""Mutations of small valid files of every format: each is loaded or refused; none crashes, hangs or takes over 1 GB."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from event_file_writing import braille_arrays, nmnist_bytes, pixel_arrays, write_events, write_gestures, write_shd

from mimdsim.base.errors import MimdsimError
from mimdsim.base.rng import stream
from mimdsim.workload import braille, dvs_gesture, nmnist, shd
from mimdsim.workload.event_file import EventFile, Sensor
from mimdsim.workload.event_filters import centre_cropped, denoised
from mimdsim.workload.event_hdf5 import Hdf5Store, reading_process
from mimdsim.workload.events import Events, bin_events

FEW, MANY = 200, 10_000
LIMIT_SECONDS = 10.0
LIMIT_BYTES = 10**9
PIXELS = Sensor(width=6, height=4, polarities=2, by_unit=False)

Load = Callable[[Path], None]


def binned(events: Events) -> None:
    """All that an opened recording goes through."""
    crop = min(events.width, events.height) // 2
    if events.height > 1:
        events = centre_cropped(denoised(events, 1e-3), crop)
    bin_events(events, timesteps=50, bin_seconds=1e-3, grid=0, capacity=2, rng=stream(0))


def load_event_file(path: Path) -> None:
    with EventFile(path, sensor=PIXELS, classes=2) as file:
        for events in file.samples(range(file.labels.size)):
            binned(events)


def load_braille(path: Path) -> None:
    with braille.BrailleFile(path) as file:
        for pressures in file.samples(range(file.labels.size)):
            braille.crossings(pressures, levels=63, timesteps=50, capacity=2, rng=stream(0))


def load_gestures(recording: Path) -> None:
    gestures = dvs_gesture.list_gestures(recording.parent, "train")
    for events in dvs_gesture.read_gestures(gestures, duration_microseconds=10_000):
        binned(events)


@contextlib.contextmanager
def subject(form: str, folder: Path) -> Iterator[tuple[Path, Path, Load]]:
    """(a valid file, the one that mutations are written to, how that is loaded) for one format."""
    if form == "nmnist":
        (folder / "good.bin").write_bytes(nmnist_bytes([(x, 33 - x, x % 2, 900 * x) for x in range(34)]))
        yield folder / "good.bin", folder / "a.bin", lambda path: binned(nmnist.read_recording(path))
    elif form in ("aedat", "csv", "trials"):
        recording = write_gestures(folder)
        names = {"aedat": recording.name, "csv": f"{recording.stem}_labels.csv", "trials": "trials_to_train.txt"}
        yield folder / names[form], folder / names[form], lambda path: load_gestures(recording)
    elif form in ("npz", "npz packed", "npz members"):
        options = {"packed": True} if form == "npz packed" else {}
        yield write_events(folder / "good.npz", pixel_arrays(), **options), folder / "a.npz", load_event_file
    elif form.startswith("braille"):
        options = {"packed": True} if form == "braille packed" else {}
        yield write_events(folder / "good.npz", braille_arrays(), **options), folder / "a.npz", load_braille
    elif form == "shd":
        with shd.ShdReader(frame_seconds=LIMIT_SECONDS) as reader:

            def load_shd(path: Path) -> None:
                labels = reader.labels(path)
                for events in reader.samples(path, range(labels.size)):
                    binned(events)

            yield write_shd(folder / "good.h5"), folder / "a.h5", load_shd
    else:
        packed = {"compression": "gzip", "shuffle": True, "chunks": True} if form == "hdf5 packed" else {}
        with reading_process(LIMIT_SECONDS) as process:

            def load_hdf5(path: Path) -> None:
                with EventFile(path, sensor=PIXELS, classes=2, store=Hdf5Store(path, process)) as file:
                    for events in file.samples(range(file.labels.size)):
                        binned(events)

            yield write_events(folder / "good.h5", pixel_arrays(), **packed), folder / "a.h5", load_hdf5


EXTREMES = (0, 1, 2, 127, 128, 255, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
FIELDS = (("<B", 1), ("<H", 2), (">H", 2), ("<I", 4), (">I", 4), ("<Q", 8))


def fields_of(form: str, content: bytes) -> list[int]:
    """Where numbers stand that say how long or how many something is, as far as a format has fixed places for them."""
    if form == "aedat":
        start = content.index(b"END-HEADER\r\n") + 12
        packets = [start, start + 28 + 16]
        return [packet + field for packet in packets for field in (0, 2, 4, 8, 12, 16, 20, 24)]
    if form.startswith(("npz", "braille")):
        places = [
            found.start() + field for found in re.finditer(b"PK\x03\x04", content) for field in (6, 8, 18, 22, 26, 28)
        ]
        places += [
            found.start() + field
            for found in re.finditer(b"PK\x01\x02", content)
            for field in (8, 10, 20, 24, 28, 30, 32, 42)
        ]
        places += [content.rindex(b"PK\x05\x06") + field for field in (4, 8, 10, 12, 16, 20)]
        return places + [
            found.start() + 6 + field for found in re.finditer(b"\x93NUMPY", content) for field in (0, 1, 2)
        ]
    return list(range(0, len(content) - 8, 4 if form in ("shd", "hdf5", "hdf5 packed") else 5))


def mutated(form: str, content: bytes, fields: list[int], rng: np.random.Generator) -> bytes:
    """A mutation of a file; of "... members", one array is changed and the archive made anew, with right sums."""
    if not form.endswith("members"):
        return changed(content, fields, rng, text=form in ("csv", "trials"))
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        names = old.namelist()
        place = int(rng.integers(0, len(names)))
        for number, name in enumerate(names):
            member = old.read(name)
            # Half of the changes are to the values, where all of the header's 128 bytes stay.
            kept = 128 * int(rng.integers(0, 2)) if number == place else len(member)
            rest = changed(member[kept:], [0, 1, 2, 6, 7, 8, 9, 60], rng, text=False) if number == place else b""
            new.writestr(name, member[:kept] + rest)
    return made.getvalue()


def changed(content: bytes, fields: list[int], rng: np.random.Generator, *, text: bool) -> bytes:
    """One to three changes: bits flipped, cut off, put in, taken out, a byte of the head or a length field replaced."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(data))) if data else 0
        change = int(rng.integers(0, 7))
        if change == 0:
            for place in rng.integers(0, max(len(data), 1), int(rng.integers(1, 9))) if data else ():
                data[place] ^= 1 << int(rng.integers(0, 8))
        elif change == 1:
            del data[at:]
        elif change == 2:
            data[at:at] = rng.bytes(int(rng.integers(1, 33)))
        elif change == 3:
            data[at:at] = data[at : at + int(rng.integers(1, 65))]
        elif change == 4:
            del data[at : at + int(rng.integers(1, 65))]
        elif change == 5 and data:
            data[int(rng.integers(0, min(len(data), 128)))] = int(rng.integers(0, 256))
        elif text:
            numbers = list(re.finditer(rb"[0-9]+", data))
            if numbers:
                found = numbers[int(rng.integers(0, len(numbers)))]
                data[found.start() : found.end()] = b"%d" % EXTREMES[int(rng.integers(0, len(EXTREMES)))]
        else:
            layout, width = FIELDS[int(rng.integers(0, len(FIELDS)))]
            place = fields[int(rng.integers(0, len(fields)))]
            if place + width <= len(data):
                (now,) = struct.unpack_from(layout, data, place)
                chance = int(rng.integers(0, len(EXTREMES) + 4))
                new = EXTREMES[chance] if chance < len(EXTREMES) else now + (-1, 1, 8, now)[chance - len(EXTREMES)]
                struct.pack_into(layout, data, place, new & ((1 << 8 * width) - 1))
    return bytes(data)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the code under it, where the platform can."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still loading after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def peak_bytes(*, again: bool = False) -> int:
    """The most memory this process has held since the last call with `again`; 0 where Linux does not tell."""
    try:
        if again:
            Path("/proc/self/clear_refs").write_text("5")
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def outcomes(form: str, folder: Path, count: int) -> dict[str, int]:
    """How many of `count` mutations were loaded, refused, and refused because HDF5 died on them."""
    seen = {"loaded": 0, "refused": 0, "died": 0, "slowest_ms": 0}
    rng = stream(0, "fuzzing", form)
    with subject(form, folder) as (good, target, load):
        content = good.read_bytes()
        load(good)
        fields = fields_of(form, content)
        start_bytes = peak_bytes(again=True)
        for number in range(count):
            # A new name each time for HDF5, which may hold a damaged file open under its old one.
            path = target.with_stem(f"{target.stem}{number}") if target.suffix == ".h5" else target
            path.write_bytes(mutated(form, content, fields, rng))
            began = time.monotonic()
            try:
                with time_limit(3 * LIMIT_SECONDS):
                    load(path)
                seen["loaded"] += 1
            except MimdsimError as problem:
                seen["died" if "crashed or hung" in str(problem) else "refused"] += 1
            except BaseException:
                print(f"{form}, mutation {number}: {path.read_bytes().hex()}")  # what to write down as a test
                raise
            seen["slowest_ms"] = max(seen["slowest_ms"], round((time.monotonic() - began) * 1000))
            if path != good:
                path.unlink()
        assert peak_bytes() - start_bytes < LIMIT_BYTES
        good.write_bytes(content)
        load(good)  # whatever came before, a good file is still read
    print(form, seen)
    return seen


FORMS = ["nmnist", "shd", "aedat", "csv", "trials", "npz", "npz packed", "npz members", "hdf5", "hdf5 packed"]
FORMS += ["braille", "braille packed", "braille members"]


@pytest.mark.parametrize("form", FORMS)
def test_a_few_mutations(tmp_path: Path, form: str) -> None:
    seen = outcomes(form, tmp_path, FEW)
    assert seen["refused"] > FEW // 10


@pytest.mark.slow
@pytest.mark.parametrize("form", [form for form in FORMS if form != "trials"])
def test_many_mutations(tmp_path: Path, form: str) -> None:
    seen = outcomes(form, tmp_path, MANY)
    assert seen["refused"] > MANY // 10
    assert seen["slowest_ms"] < 3 * LIMIT_SECONDS * 1000
