"""What stands in the place of a file: a pipe, socket, device, folder or broken link is refused at once, by name and
kind, by everything that reads; and paths that no file can have are refused before any work."""

from __future__ import annotations

import ast
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hostile.limits import time_limit

from mimdsim.base.console import silent
from mimdsim.base.errors import MimdsimError, NotAFile
from mimdsim.base.files import open_data, open_regular, read_bounded, read_whole, write_atomically
from mimdsim.base.npz_reader import NpzFile
from mimdsim.checking.kernel import load_kernel
from mimdsim.checking.program import load_build
from mimdsim.cli import main
from mimdsim.machine import load_machine
from mimdsim.machine.calibrated import read_calibration
from mimdsim.profile import load_profile
from mimdsim.profile.detail import load_detail
from mimdsim.studies import read_study
from mimdsim.studies.store import load_activity, load_mapping, load_rows
from mimdsim.validation.tables import check_files
from mimdsim.workload import from_events, load_workload
from mimdsim.workload.data import braille, dvs_gesture, nmnist, shd
from mimdsim.workload.data.event_file import EventFile, Sensor
from mimdsim.workload.description.mapping import read_mapping_file
from mimdsim.workload.interchange.model_file import read_model
from mimdsim.workload.interchange.nir_reading import read_nir
from mimdsim.workload.interchange.weights_file import read_arrays

SENSOR = Sensor(width=6, height=4, polarities=2, by_unit=False)


def events(path: Path) -> None:
    with EventFile(path, sensor=SENSOR, classes=2):
        pass


READERS: dict[str, Callable[[Path], Any]] = {
    "weights.safetensors": read_arrays,
    "weights.npz": read_arrays,
    "model.safetensors": read_model,
    "model.nir": read_nir,
    "profile.json": load_profile,
    "detail.npz": load_detail,
    "rows.json": load_rows,
    "mapping.json": load_mapping,
    "activity.npz": load_activity,
    "workload.toml": lambda path: load_workload(str(path)),
    "machine.toml": lambda path: load_machine(str(path)),
    "narrowed.toml": read_calibration,
    "study.toml": read_study,
    "mapping.toml": read_mapping_file,
    "table.csv": lambda path: check_files((path,), None, silent),
    "table.json": lambda path: check_files((path,), None, silent),
    "kernel.py": load_kernel,
    "program.py": load_build,
    "recording.bin": nmnist.read_recording,
    "user01_led.aedat": lambda path: list(dvs_gesture.read_packets(path)),
    "user01_led_labels.csv": lambda path: dvs_gesture.read_labels(path.with_name("user01_led.aedat")),
    "trials_to_train.txt": lambda path: dvs_gesture.list_gestures(path.parent, "train"),
    "shd_train.h5": shd.read_labels,
    "events.npz": events,
    "events.h5": events,
    "events.csv": from_events,
    "braille.npz": braille.BrailleFile,
}
KINDS = {
    "pipe": ("a named pipe", os.mkfifo),
    "socket": ("a socket", lambda path: socket.socket(socket.AF_UNIX).bind(path.name)),
    "device": ("a device", lambda path: path.symlink_to("/dev/zero")),
    "folder": ("a folder", lambda path: path.mkdir()),
    "dangling link": ("which does not exist", lambda path: path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", list(READERS))
def test_what_is_no_file_is_refused_by_name_and_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's whole path has at most 107 bytes
    said, make = KINDS[kind]
    make(tmp_path / name)
    with time_limit(10), pytest.raises(MimdsimError) as refusal:
        READERS[name](tmp_path / name)
    assert name in str(refusal.value)
    assert said in str(refusal.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", list(READERS))
def test_a_file_that_may_not_be_read_is_refused_by_name_and_reason(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch(mode=0)
    with pytest.raises(MimdsimError, match="ermission denied"):
        READERS[name](tmp_path / name)


def test_links_to_files_are_followed_and_what_is_swapped_for_a_pipe_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_whole(tmp_path / "link") == read_bounded(tmp_path / "file", 7) == b"content"
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(os, "stat", lambda path: os.lstat(tmp_path / "file"))  # as it was a moment ago
    with time_limit(5), pytest.raises(NotAFile, match="pipe is not a regular file but a named pipe"):
        open_regular(tmp_path / "pipe")


def test_a_file_that_cannot_be_read_to_its_end_is_refused() -> None:
    with (
        pytest.raises(MimdsimError, match="/proc/self/mem: cannot be read: Input/output error"),
        open_data(Path("/proc/self/mem")) as file,
    ):
        file.read(1)
    with pytest.raises(MimdsimError, match="/proc/self/mem: "):
        NpzFile(Path("/proc/self/mem"))


OURS = {
    "base/files.py",
    "studies/points.py",
    "numerics/compiled.py",
    "report/page.py",
}
READ = {"read_bytes", "read_text", "fromfile", "memmap", "read_csv", "read_table"}


def test_every_file_of_others_is_opened_by_one_function() -> None:
    package = Path(main.callback.__code__.co_filename).parent  # type: ignore[union-attr]
    strays = []
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or where in OURS:
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            opens = name == "open" and any(isinstance(one, ast.Constant) and "r" in str(one.value) for one in node.args)
            if name in READ or opens:
                strays.append(f"{where}, line {node.lineno}: {name}")
    # identity.py reads mimdsim's sources; HDF5 opens files by name, after `values_of` looked at them
    known = {"identity.py", "event_columns.py", "nir_reading.py", "shd.py"}
    assert [stray for stray in strays if stray.split(",")[0].split("/")[-1] not in known] == []


PATHS = [
    ("run", "--out"), ("run", "--dump"), ("run", "--checkpoint"), ("run", "--mapping"), ("compare", "--out"),
    ("sweep", "--out"), ("sweep", "--save"), ("study", "--out"), ("place", "--out"), ("report", "--out"),
    ("report", "--trace"), ("check", "--program"), ("check", "--out"), ("check", "--data"), ("check", "--page"),
    ("explain", "--dump"), ("calibrate", "--out"), ("calibrate", "--data"), ("import", "--out"), ("export", "--out"),
    ("export", "--weights"),
]  # fmt: skip
STRANGE = {
    "": "is empty",
    " \t": "is empty",
    "a\0b": "zero byte",
    "x" * 300: "too long",
    "a/" * 2100 + "b": "too long",
    "\udcff": "not UTF-8",
}


@pytest.mark.parametrize("given", list(STRANGE), ids=list(STRANGE.values()))
def test_paths_that_no_file_can_have_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, option in PATHS:
        result = CliRunner().invoke(main, [command, option, given])
        assert result.exit_code == 2
        assert STRANGE[given] in result.output, (command, option, result.output)
        assert option in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *(("run", "--checkpoint"), ("sweep", "--save"), ("place", "--out"), ("report", "--trace"), ("check", "--page")),
        *(("explain", "--dump"), ("calibrate", "--out"), ("export", "--out")),
    ],
)
def test_a_file_to_write_takes_the_place_of_no_folder_or_device(tmp_path: Path, command: str, option: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, said in ((tmp_path, "a folder"), (tmp_path / "pipe", "a named pipe"), (Path("/dev/null"), "a device")):
        result = CliRunner().invoke(main, [command, option, str(place)])
        assert (result.exit_code, f"is {said}; give a file" in result.output) == (2, True), result.output
    with pytest.raises(MimdsimError, match="is not a regular file but a named pipe"):
        write_atomically(tmp_path / "pipe", "text")
