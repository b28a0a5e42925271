"""Recordings of events in every format, as `changes` mutates them."""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import event_lists
import numpy as np
from event_file_writing import braille_arrays, nmnist_bytes, pixel_arrays, write_events, write_gestures, write_shd

from hostile.changes import changed
from hostile.limits import one_process
from mimdsim.base.rng import stream
from mimdsim.workload.data import braille, dvs_gesture, nmnist, shd
from mimdsim.workload.data.event_file import EventFile, Sensor
from mimdsim.workload.data.events import Events, crop_centre, denoise

PIXELS = Sensor(width=6, height=4, polarities=2, by_unit=False)

Load = Callable[[Path], None]


def binned(events: Events) -> None:
    """All that an opened recording goes through."""
    crop = min(events.width, events.height) // 2
    if events.height > 1:
        events = crop_centre(denoise(events, 1e-3), crop)
    event_lists.binned(events, timesteps=50, capacity=2, rng=stream(0))


def load_event_file(path: Path) -> None:
    with EventFile(path, sensor=PIXELS, classes=2) as file:
        for events in file.samples(range(file.labels.size)):
            binned(events)


def load_braille(path: Path) -> None:
    with braille.BrailleFile(path) as file:
        for pressures in file.samples(range(file.labels.size)):
            braille.crossings(pressures, levels=63)


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
        with one_process():

            def load_shd(path: Path) -> None:
                labels = shd.read_labels(path)
                for events in shd.read_samples(path, range(labels.size)):
                    binned(events)

            yield write_shd(folder / "good.h5"), folder / "a.h5", load_shd
    else:
        packed = {"compression": "gzip", "shuffle": True, "chunks": True} if form == "hdf5 packed" else {}
        with one_process():
            yield write_events(folder / "good.h5", pixel_arrays(), **packed), folder / "a.h5", load_event_file


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
