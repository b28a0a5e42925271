"""DVS-Gesture: `userNN_<light>.aedat` (AEDAT 3.1) with `userNN_<light>_labels.csv`, cut into one sample per gesture.

Data set: Amir et al. 2017, "A low power, fully event-based gesture recognition system", CVPR. File format: iniVation,
"AEDAT 3.1" (28-byte little-endian packet headers; polarity events of 8 bytes: address word, then microseconds).
"""

from __future__ import annotations

import codecs
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.base.files import open_data
from mimdsim.workload.data.events import Events, Ints

PIXELS = 128
CLASSES = 11
MAGIC = b"#!AER-DAT3.1"
END_OF_HEADER = b"#!END-HEADER"
MAX_HEADER_BYTES = 1 << 16  # assumed: headers are a few hundred bytes
PACKET = struct.Struct("<HHIIIIII")  # type, source, size, timestamp offset, overflow, capacity, number, valid
POLARITY_EVENT = 1
POLARITY_BYTES = 8
POLARITY_TIME_OFFSET = 4
MAX_PACKET_BYTES = 64 << 20  # assumed: published packets are far smaller; bounds what one header can ask for
MAX_TEXT_BYTES = 1 << 16  # assumed: label and trial lists are a few kB
MAX_GESTURES = 64  # assumed: the published recordings have 11 or 12 rows each
MAX_GESTURE_EVENTS = 1 << 22  # assumed: some ten times a published gesture; bounds the memory of one
MAX_HELD_EVENTS = 1 << 25  # assumed: windows of a bad label file may overlap, and hold every event many times
_EVENTS_AT_ONCE = 1 << 16  # of packets that are combined, so that windows are compared once for all of them
CSV_HEADER = "class,startTime_usec,endTime_usec"
LAYOUT = "trials_to_train.txt, trials_to_test.txt, userNN_<light>.aedat and userNN_<light>_labels.csv, as published"
_RECORDING_NAME = re.compile(r"[A-Za-z0-9_]+\.aedat")  # a bare name: a list must not lead out of its folder


@dataclass(frozen=True, kw_only=True)
class Gesture:
    """One row of a label file: the window of `recording` in which a person made gesture `label` (0 to 10)."""

    recording: Path
    label: int
    start_microseconds: int
    end_microseconds: int

    @property
    def window(self) -> str:
        return f"{self.start_microseconds} to {self.end_microseconds} us"


def list_gestures(folder: Path, split: Literal["train", "test"]) -> tuple[Gesture, ...]:
    """Every gesture of the recordings in `trials_to_<split>.txt`, in file order.

    Raises DataFileError for a missing folder, list, recording or label file, and for bad lines with their byte.
    """
    if not folder.is_dir():
        raise DataFileError(folder, f"no such folder; 'data.path' must be a folder with {LAYOUT}")
    trials = folder / f"trials_to_{split}.txt"
    gestures: list[Gesture] = []
    for offset, line in _lines(trials):
        if not _RECORDING_NAME.fullmatch(line):
            raise DataFileError(trials, f"'{line[:60]}' is not the name of an .aedat file", byte_offset=offset)
        recording = folder / line
        with open_data(recording, f"no such file, though {trials.name} names it; needed are {LAYOUT}"):
            pass
        gestures += read_labels(recording)
    if not gestures:
        raise DataFileError(trials, "names no recording", byte_offset=0)
    return tuple(gestures)


def read_labels(recording: Path) -> tuple[Gesture, ...]:
    """The rows of the label file of `recording`; raises DataFileError with the byte of a bad row."""
    path = recording.with_name(f"{recording.stem}_labels.csv")
    lines = list(_lines(path))
    if not lines or lines[0][1].replace(" ", "").casefold() != CSV_HEADER.casefold():
        raise DataFileError(path, f"does not begin with the row '{CSV_HEADER}'", byte_offset=0)
    if not 1 < len(lines) <= MAX_GESTURES + 1:
        raise DataFileError(path, f"has {len(lines) - 1} gestures, not 1 to {MAX_GESTURES}", byte_offset=0)
    gestures = []
    for offset, line in lines[1:]:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 3 or not all(re.fullmatch(r"[0-9]{1,13}", field) for field in fields):
            raise DataFileError(path, f"row '{line[:60]}' is not the numbers {CSV_HEADER}", byte_offset=offset)
        label, start, end = (int(field) for field in fields)
        if not 1 <= label <= CLASSES:
            raise DataFileError(path, f"class {label} is outside 1 to {CLASSES}", byte_offset=offset)
        if start >= end:
            raise DataFileError(path, f"gesture starts at {start} us and ends at {end} us", byte_offset=offset)
        gestures.append(Gesture(recording=recording, label=label - 1, start_microseconds=start, end_microseconds=end))
    return tuple(gestures)


def read_gestures(gestures: Sequence[Gesture], *, duration_microseconds: int) -> Iterator[Events]:
    """The events of `gestures`, all of one recording, in order; only the first `duration_microseconds` of each.

    Times count from the start of the gesture; later events are counted. The file is read packet by packet, once; held
    are 8 bytes per event of the requested windows. Raises DataFileError for a damaged file, a gesture during which
    nothing was recorded, one of over MAX_GESTURE_EVENTS, or over MAX_HELD_EVENTS in all.
    """
    path = gestures[0].recording
    words: list[list[Ints]] = [[np.zeros(0, np.int64)] for _ in gestures]
    held, unread = [0] * len(gestures), [0] * len(gestures)
    unread_from = [sys.maxsize] * len(gestures)
    for data, t in read_packets(path):
        for place, gesture in enumerate(gestures):
            since = t - gesture.start_microseconds
            during = (since >= 0) & (t < gesture.end_microseconds)
            late = since[during & (since >= duration_microseconds)]
            unread_from[place] = min(unread_from[place], int(late.min(initial=sys.maxsize)))
            unread[place] += late.size
            during &= since < duration_microseconds
            if during.any():
                # time, y (7 bits), x (7 bits), polarity (1 bit) in one int64: a fourth of the memory of four columns
                its = data[during]
                its = since[during] << 15 | (its >> 2 & 127) << 8 | (its >> 17 & 127) << 1 | its >> 1 & 1
                words[place].append(its)
                held[place] += words[place][-1].size
                if held[place] > MAX_GESTURE_EVENTS:
                    many = f"{MAX_GESTURE_EVENTS} events in {gesture.window}; lower 'data.timesteps'"
                    raise DataFileError(path, f"has over {many}")
                if sum(held) > MAX_HELD_EVENTS:
                    many = f"{MAX_HELD_EVENTS} events in the windows of its labels, which may overlap"
                    raise DataFileError(path, f"has over {many}")
    for place, gesture in enumerate(gestures):
        if not held[place] and not unread[place]:
            where = f"{gesture.window}, where the labels put class {gesture.label + 1}"
            raise DataFileError(path, f"has no event in {where}")
        kept = np.concatenate(words[place])
        words[place] = []
        yield Events(
            x=kept >> 1 & 127,
            y=kept >> 8 & 127,
            polarity=kept & 1,
            t_microseconds=kept >> 15,
            width=PIXELS,
            height=PIXELS,
            unread=unread[place],
            unread_from_microseconds=unread_from[place],
        )


def read_packets(path: Path) -> Iterator[tuple[Ints, Ints]]:
    """Valid polarity events, some packets at once: (address words, microseconds), int64 columns.

    An address word holds x in bits 17 to 31, y in bits 2 to 16, polarity in bit 1 and validity in bit 0. Packets of
    other kinds (special events, inertial sensor) are skipped. Raises DataFileError with the byte of the mistake.
    """
    with open_data(path) as file:
        length = file.seek(0, 2)
        file.seek(0)
        offset = _skip_header(path, file)
        packets: list[tuple[Ints, Ints]] = []
        waiting = 0
        while offset < length:
            packet = _packet(path, file, offset, length)
            packets += [packet] if packet[1].size else []
            waiting += packet[1].size
            offset = file.tell()
            if waiting >= _EVENTS_AT_ONCE or (packets and offset >= length):
                words, times = (np.concatenate(columns) for columns in zip(*packets, strict=True))
                yield words, times
                packets, waiting = [], 0


def _packet(path: Path, file: BinaryIO, offset: int, length: int) -> tuple[Ints, Ints]:
    header = file.read(PACKET.size)
    if len(header) < PACKET.size:
        raise DataFileError(
            path, f"ends inside a packet header ({len(header)} of {PACKET.size} bytes)", byte_offset=offset
        )
    kind, _source, event_bytes, time_offset, overflow, capacity, number, _valid = PACKET.unpack(header)
    payload = event_bytes * capacity
    if payload > MAX_PACKET_BYTES:
        raise DataFileError(path, f"packet claims {payload} bytes, over {MAX_PACKET_BYTES}", byte_offset=offset)
    if offset + PACKET.size + payload > length:
        there = length - offset - PACKET.size
        raise DataFileError(path, f"packet needs {payload} bytes, the file has {there} more", byte_offset=offset)
    if number > capacity:
        raise DataFileError(path, f"packet of capacity {capacity} claims {number} events", byte_offset=offset)
    if kind != POLARITY_EVENT:
        file.seek(payload, 1)
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if event_bytes != POLARITY_BYTES or time_offset != POLARITY_TIME_OFFSET or overflow >> 31:
        raise DataFileError(
            path,
            f"polarity packet with events of {event_bytes} bytes, times at byte {time_offset}, overflow {overflow}; "
            f"expected {POLARITY_BYTES}, {POLARITY_TIME_OFFSET} and less than 2^31",
            byte_offset=offset,
        )
    table = np.frombuffer(file.read(payload), dtype="<u4").reshape(-1, 2)[:number].astype(np.int64)
    data = table[:, 0]
    valid = (data & 1) == 1
    outside = np.flatnonzero(valid & ((data >> 17 >= PIXELS) | ((data >> 2 & 0x7FFF) >= PIXELS)))
    if outside.size:
        first = int(outside[0])
        x, y = data[first] >> 17, data[first] >> 2 & 0x7FFF
        raise DataFileError(
            path,
            f"event at x {x}, y {y} is outside the {PIXELS} x {PIXELS} sensor",
            byte_offset=offset + PACKET.size + POLARITY_BYTES * first,
        )
    if (table[:, 1] >> 31).any():
        first = int(np.argmax(table[:, 1] >> 31))
        raise DataFileError(
            path, "event with a negative timestamp", byte_offset=offset + PACKET.size + POLARITY_BYTES * first
        )
    return data[valid], table[valid, 1] + (overflow << 31)


def _skip_header(path: Path, file: BinaryIO) -> int:
    """Go to the first packet: after `#!END-HEADER`, or else after the last line that begins with '#'."""
    if file.read(len(MAGIC)) != MAGIC:
        raise DataFileError(path, f"does not begin with '{MAGIC.decode()}'; not AEDAT 3.1", byte_offset=0)
    file.seek(0)
    while file.tell() < MAX_HEADER_BYTES:
        before = file.tell()
        if file.read(1) != b"#":
            file.seek(before)
            return before
        file.seek(before)
        line = file.readline(MAX_HEADER_BYTES)
        if not line.endswith(b"\n"):
            raise DataFileError(path, "the header line has no end", byte_offset=before)
        if line.startswith(END_OF_HEADER):
            return file.tell()
    raise DataFileError(path, f"header is over {MAX_HEADER_BYTES} bytes", byte_offset=0)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(byte offset, stripped text) of every line that is not blank."""
    with open_data(path, f"no such file; 'data.path' must be a folder with {LAYOUT}") as file:
        content = file.read(MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise DataFileError(path, f"is over {MAX_TEXT_BYTES} bytes, not a list of trials or labels")
    offset = len(content) - len(content.removeprefix(codecs.BOM_UTF8))
    for line in content[offset:].splitlines(keepends=True):
        text = line.decode("ascii", errors="replace").strip()
        if text:
            yield offset, text
        offset += len(line)
