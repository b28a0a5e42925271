"""What mimdsim writes for itself, changed and sealed anew, so that no digest tells: checkpoints, and rows, recorded
spikes and mappings of studies. What is not refused goes through all that is made of it."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from test_training_course import trained

import mimdsim
from hostile.changes import EXTREMES
from hostile.running import Format
from hostile.tensors import SMALL
from hostile.trees import VALUES, as_json, changed_tree, pick
from mimdsim.base.checksummed import JSON_END, read_sealed_arrays, sealed, write_sealed_arrays
from mimdsim.execution.checkpoint import Checkpoints, _content_digest
from mimdsim.studies import make_study
from mimdsim.studies.answer_text import answer_lines
from mimdsim.studies.files import write_tables
from mimdsim.studies.metrics import Row
from mimdsim.studies.points import Points, parse_axes
from mimdsim.studies.results import note_lines, table_lines, table_value, with_ratios
from mimdsim.studies.store import load_activity, load_mapping, load_rows
from mimdsim.studies.worker import time_points
from mimdsim.workload.interchange.importing import import_state_dict
from mimdsim.workload.interchange.weights_file import write_safetensors


def changed_array(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An array with values, shape or type changed."""
    change = int(rng.integers(0, 6))
    if change <= 2 and values.size and values.dtype.kind in "iuf":
        made = values.copy()
        extremes = [*EXTREMES, -1, np.nan, np.inf, 1e30] if made.dtype.kind == "f" else [*EXTREMES, -1]
        with np.errstate(all="ignore"):
            new = np.array(pick(extremes, rng), np.float64 if made.dtype.kind == "f" else object)
            low = int(new) & 0xFFFF if made.dtype.kind in "iu" and rng.integers(0, 2) else new
            info = np.iinfo(made.dtype) if made.dtype.kind in "iu" else None
            made.reshape(-1)[rng.integers(0, made.size, int(rng.integers(1, 4)))] = (
                np.float64(new).astype(made.dtype) if info is None else min(max(int(low), info.min), info.max)
            )
        return made
    if change == 3:
        shapes = (values[: len(values) // 2], values.reshape(-1), values[..., None]) if values.ndim else (values[None],)
        return pick(shapes, rng)
    if change == 4:
        return values.astype(pick((np.float64, np.float32, np.uint8, np.int64, bool, ">i4"), rng))
    return values[::-1].copy() if values.ndim else values


class ForgedCheckpoint(Format):
    """A checkpoint whose members or description were changed, with a right digest; it is trained on to its end."""

    name = "checkpoint forged"

    def good(self) -> Path:
        path = self.folder / "good.npz"
        if not path.exists():
            trained(Checkpoints(path=path, digest="a"), epochs=1)
            with zipfile.ZipFile(path) as archive:
                self._members = {
                    name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(archive.read(name)))
                    for name in archive.namelist()
                }
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        self.good()
        members = dict(self._members)
        about = json.loads(members.pop("about").tobytes())
        if rng.integers(0, 2):
            name = pick(sorted(members), rng)
            change = int(rng.integers(0, 6))
            if change <= 3:
                members[name] = changed_array(members[name], rng)
            elif change == 4:
                del members[name]
            else:
                members[pick((name + "x", "best/x", "memory/" + "y" * 300), rng)] = members[name]
        else:
            about = changed_tree(about, rng)
            if isinstance(about, dict) and rng.integers(0, 2):
                about["digest"] = "a"
        path = self.folder / "mutant.npz"
        if isinstance(about, dict):
            about["content"] = _content_digest(about, members)
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        np.savez(path, about=text, **members)
        return path

    def read(self, path: Path) -> Any:
        more = 1 + path.stat().st_size % 2  # trained to its end, or for an epoch more
        log = trained(Checkpoints(path=path, digest="a", resume=True), epochs=more)
        assert all(0 <= value <= 1 for value in log.train_accuracy_by_epoch)
        return []


class Study(Format):
    """A small study, and what its folder holds."""

    suffix = ".json"

    def __init__(self, folder: Path):
        super().__init__(folder)
        axes = parse_axes(("exchange.bytes_per_cycle=2,4", "data.timesteps=4", "training.batch=4", *SMALL))
        self.study = make_study(
            "sweep", workloads=["digits"], machine="tiny", axes=axes, training_steps=1, gpus=("a100",),
            metrics=("time", "memory"), constraints=("max memory 624 KiB",),
        )  # fmt: skip
        self.place = folder / "study"
        mimdsim.study(self.study, self.place, processes=1)
        self.points = Points(self.study).of(Points(self.study).designs())

    def good(self) -> Path:
        return next((self.place / self.kind).glob("*"))

    @property
    def kind(self) -> str:
        return self.name.split()[-1]

    def forged(self, text: bytes) -> Path:
        path = self.folder / self.good().name
        path.write_bytes(sealed(path, text, JSON_END))
        return path


class ForgedRows(Study):
    name = "study points"

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        table = json.loads(self.good().read_text())
        del table["sha256"]
        key = pick(sorted(table["rows"]), rng)
        row = table["rows"][key]
        for _ in range(int(rng.integers(1, 3))):
            name = pick(sorted(row), rng)
            now, change = row[name], int(rng.integers(0, 8))
            if change <= 2:
                row[name] = pick(VALUES, rng)
            elif change == 3 and isinstance(now, (int, float)):
                row[name] = pick((now + 1, -now, now * 2, float(now), str(now), now / 3, 0), rng)
            elif change == 4:
                del row[name]
                break
            elif change == 5:
                row[name] = row[pick(sorted(row), rng)]
            elif change == 6:
                row[name] = None
            else:
                table = changed_tree(table, rng)
                break
        text = as_json(table, rng) if rng.integers(0, 3) == 0 else json.dumps(table).encode()
        return self.forged(text.rstrip().removesuffix(b"}") + b',\n "sha256": "')

    def read(self, path: Path) -> Any:
        rows = load_rows(path)
        folder = self.folder / "taken"
        shutil.copytree(self.place, folder, dirs_exist_ok=True)
        shutil.copy(path, folder / "points" / path.name)
        studied = mimdsim.study(self.study, folder, as_is=True)
        for line in (*answer_lines(studied), *table_lines(list(studied.rows), list(self.study.axes), ("a100",))):
            assert "nan" not in line.split()
        note_lines(list(studied.rows), list(self.study.axes))
        del rows
        return []


class ForgedSpikes(Study):
    name = "study activity"

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        arrays = read_sealed_arrays(self.good(), 1 << 30, "")
        name = pick(sorted(arrays), rng)
        change = int(rng.integers(0, 6))
        if change <= 3:
            arrays[name] = changed_array(arrays[name], rng)
        elif change == 4:
            del arrays[name]
        else:
            arrays[pick((name + "x", "accuracy", "ids.output"), rng)] = arrays[pick(sorted(arrays), rng)]
        path = self.folder / self.good().name
        write_sealed_arrays(path, arrays)
        return path

    def read(self, path: Path) -> Any:
        load_activity(path)
        (row,) = time_points(self.points[:1], {self.points[0].activity_key: path})
        if isinstance(row, Exception):
            raise row
        return []


class ForgedMapping(Study):
    name = "study mappings"

    def good(self) -> Path:
        path = self.place / "mappings" / f"{'a' * 64}.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            found = self.points[0].workload.mapping.model_dump(mode="json")
            path.write_bytes(sealed(path, json.dumps({"mapping": found}).encode()[:-1] + b',\n "sha256": "', JSON_END))
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        table = json.loads(self.good().read_text())
        del table["sha256"]
        text = as_json(changed_tree(table, rng), rng)
        return self.forged(text.rstrip().removesuffix(b"}") + b',\n "sha256": "')

    def read(self, path: Path) -> Any:
        options = load_mapping(path)
        if options is None:
            return []
        point = self.points[0]
        activity = next((self.place / "activity").glob("*"))
        from dataclasses import replace

        (row,) = time_points([replace(point, best_mapping=1)], {point.activity_key: activity}, [options])
        if isinstance(row, Exception):
            raise row
        return []


class ParquetTable(Study):
    """Rows as Parquet and CSV, with strange values in the columns of axes: pyarrow reads what the rows hold."""

    name = "parquet points"
    only_writes = True  # rows of any content become a file that is read as they are

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        rows = list(load_rows(self.good()).values())
        for row in rows:
            row["workload"] = "digits"
            for key in self.study.varied:
                row[key] = pick((*VALUES, 2, 4, 0.5, "a", [1, "a"], [1, 2.5], True), rng)
        path = self.folder / "rows.json"
        path.write_text(json.dumps(rows))
        return path

    def read(self, path: Path) -> Any:
        rows: list[Row] = json.loads(path.read_text()) if path != self.good() else []
        if not rows:
            return []
        rows = [row | {key: table_value(row[key]) for key in self.study.varied} for row in with_ratios(rows)]
        written = write_tables(rows, self.study, self.folder)
        found = next((file for file in written if file.suffix == ".parquet"), None)
        if found is not None:
            from pyarrow import parquet

            kept = parquet.read_table(found).column("ms_per_training_step").to_pylist()
            assert set(kept) == {row["ms_per_training_step"] for row in rows}
        return []


class StateDict(Format):
    """A PyTorch state dict whose names, shapes and kinds were changed; it is imported."""

    name = "state dict"
    tensors: ClassVar = {
        "fc1.weight": np.ones((5, 4), np.float32), "fc1.bias": np.ones(5, np.float32),
        "lif1.recurrent.weight": np.ones((5, 5), np.float32), "fc2.weight": np.ones((3, 5), np.float32),
        "fc2.bias": np.zeros(3, np.float32),
    }  # fmt: skip

    def good(self) -> Path:
        path = self.folder / "good.safetensors"
        if not path.exists():
            write_safetensors(path, self.tensors)
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        tensors = dict(self.tensors)
        for _ in range(int(rng.integers(1, 4))):
            name = pick(sorted(tensors), rng) if tensors else "x"
            held = tensors.get(name, np.ones(2, np.float32))
            change = int(rng.integers(0, 6))
            if change <= 1:
                tensors.pop(name, None)
                tensors[pick(NAMES, rng).replace("NAME", name)] = held
            elif change == 2:
                tensors[pick(NAMES, rng).replace("NAME", name)] = held
            elif change == 3:
                tensors.pop(name, None)
            elif change == 4:
                shapes = (held.T, held[None], held.reshape(-1), np.zeros((0, 4)), np.zeros((3, 0)), held[..., None])
                tensors[name] = pick(shapes, rng).astype(np.float32)
            else:
                tensors[name] = np.full(held.shape, pick((np.nan, np.inf, 1e30, 0), rng), np.float32)
        path = self.folder / "mutant.safetensors"
        if rng.integers(0, 4) == 0:
            path = path.with_suffix(".npz")
            usable = {name: each for name, each in tensors.items() if name and "/" not in name and "\0" not in name}
            np.savez(path, **{name: each for name, each in usable.items() if name != "file"})
        else:
            write_safetensors(path, tensors)
        return path

    def read(self, path: Path) -> Any:
        folder = self.folder / "imported"
        try:
            written, _ = import_state_dict(path, folder, "random-4")
            mimdsim.load_workload(str(written))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return []


NAMES = (
    *("NAME.weight", "module.NAME", "fc10.weight", "fc2.weight.weight", "w.hidden0", "r.hidden0", "b.output"),
    *("w.output", "w.NAME", "", " ", "weight", "bias", "recurrent", "NAME_hh", "rnn.weight_hh_l0", "rnn.bias_hh_l0"),
    *("rnn.weight_ih_l0", "lif.recurrent.V", "../NAME", "/etc/x", "a" * 5000, "9" * 40, "fc\u0661.weight"),
    *("fc\u00b2.weight", "\u202eNAME", "\x1b[2J", "a\0b", "__metadata__", "NAME\n", "=1+1", "w.hidden99"),
    *("w.hidden-1", "w.", "decay.hidden0"),
)
FORGED = (ForgedCheckpoint, ForgedRows, ForgedSpikes, ForgedMapping, ParquetTable, StateDict)
