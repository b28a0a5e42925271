"""Small valid files of every format, for tests that read, break or mutate them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

AEDAT_HEADER = b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DVS128\r\n#!END-HEADER\r\n"


def pixel_arrays(**changes: Any) -> dict[str, Any]:
    """Four samples (one without events) of a 6 x 4 sensor, two classes, split three to one; None leaves one out."""
    arrays = {
        "offsets": np.array([0, 3, 3, 5, 9]),
        "t_microseconds": np.array([0, 1500, 2999, 10, 20, 5, 5, 2000, 2500], dtype=np.uint32),
        "x": np.array([0, 5, 3, 1, 2, 0, 5, 4, 3], dtype=np.uint8),
        "y": np.array([0, 3, 1, 2, 2, 3, 0, 1, 1], dtype=np.uint16),
        "p": np.array([0, 1, 1, 0, 1, 1, 0, 1, 0], dtype=bool),
        "labels": np.array([0, 1, 1, 0], dtype=np.int8),
        "split": np.array([0, 0, 0, 1], dtype=np.uint8),
        **changes,
    }
    return {name: values for name, values in arrays.items() if values is not None}


def unit_arrays(**changes: Any) -> dict[str, Any]:
    """Three samples of 7 units, times in seconds."""
    arrays = {
        "offsets": np.array([0, 2, 3, 6], dtype=np.int32),
        "t_seconds": np.array([0.0, 0.0025, 0.001, 0.0, 0.001, 0.002], dtype=np.float32),
        "unit": np.array([0, 6, 3, 1, 2, 1], dtype=np.uint16),
        "labels": np.array([0, 1, 0]),
        **changes,
    }
    return {name: values for name, values in arrays.items() if values is not None}


def write_events(path: Path, arrays: dict[str, Any], **options: Any) -> Path:
    """`arrays` as NPZ or, by the suffix, HDF5; `options` go to every h5py data set (packed=True packs an NPZ)."""
    if path.suffix == ".npz":
        (np.savez_compressed if options else np.savez)(path, **arrays)
        return path
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, **options)
    return path


def nmnist_bytes(rows: list[tuple[int, int, int, int]]) -> bytes:
    return b"".join(bytes([x, y]) + (polarity << 23 | t).to_bytes(3, "big") for x, y, polarity, t in rows)


def aedat_packet(rows: list[tuple[int, int, int, int]]) -> bytes:
    header = struct.pack("<HHIIIIII", 1, 1, 8, 4, 0, len(rows), len(rows), len(rows))
    return header + b"".join(struct.pack("<II", x << 17 | y << 2 | p << 1 | 1, t) for x, y, p, t in rows)


def write_gestures(folder: Path) -> Path:
    recording = folder / "user01_led.aedat"
    packets = aedat_packet([(1, 2, 1, 100), (127, 0, 0, 150)]) + aedat_packet([(3, 127, 1, 1200), (5, 6, 0, 2500)])
    recording.write_bytes(AEDAT_HEADER + packets)
    (folder / "user01_led_labels.csv").write_text("class,startTime_usec,endTime_usec\n1,100,2000\n11,2400,9000\n")
    (folder / "trials_to_train.txt").write_text("user01_led.aedat\n")
    return recording


def write_shd(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, kind, rows in (("times", "f2", ([0.1, 0.2, 0.3], [0.5])), ("units", "u2", ([1, 2, 699], [4]))):
            column = file.create_dataset(f"spikes/{name}", (2,), dtype=h5py.vlen_dtype(np.dtype(kind)))
            for sample, row in enumerate(rows):
                column[sample] = np.array(row, dtype=kind)
        file["labels"] = np.array([0, 19], dtype="u2")
    return path


def braille_arrays(**changes: Any) -> dict[str, Any]:
    """Ten samples of two letters, 6 rows each; taxel 3 rises with the letter and falls back."""
    press = np.full((10, 6, 12), 200)
    labels = np.arange(10) % 2
    press[:, 2, 3] += 10 * (labels + 1)
    press[:, 4, 5] -= 5
    arrays = {
        "taxel": press.reshape(-1, 12).astype(np.uint8),
        "offset": np.arange(0, 61, 6),
        "label": labels.astype(np.uint8),
        **changes,
    }
    return {name: values for name, values in arrays.items() if values is not None}
