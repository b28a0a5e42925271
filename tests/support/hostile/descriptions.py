"""Workloads, machines, profiles and tables of figures, mutated, and read by the standard parsers beside ours."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from hostile.changes import changed
from hostile.running import UNTOLD, Format
from hostile.trees import as_json, changed_lines, changed_tree, pick
from mimdsim.base.schema import Section
from mimdsim.base.search_path import find_description
from mimdsim.base.units import UNITS
from mimdsim.machine import find_machine, load_machine
from mimdsim.machine.calibrated import (
    KIND,
    CalibrationFile,
    Number,
    Table,
    machine_digest,
    read_calibration,
    uncertain_numbers,
    write_calibration,
)
from mimdsim.pipeline import simulate
from mimdsim.profile import load_profile, save_profile
from mimdsim.studies import read_study
from mimdsim.studies.points import Points
from mimdsim.validation.reference_table import NOT_COMPUTED
from mimdsim.validation.tables import check_files
from mimdsim.workload import find_workload, load_workload, network_of, write_mapping_file

SMALL = {
    **{"data.train_samples": 32, "data.test_samples": 16, "data.timesteps": 4, "data.grid": 8},
    **{"training.batch": 4, "training.epochs": 1, "training.max_training_steps": 2, "network.hidden": [16]},
    **{"network.capacity": [4, 10], "training.schedule": "cosine"},
}
CELLS = ("", "nan", "1e400", "-1", "0", "9" * 5000, "x" * 200_000, "=1", "\u202e", '"', "a\rb")
FACTORS = {unit: factor for units in UNITS.values() for unit, factor in units.items()}


def given_of(record: Section) -> dict[str, Any]:
    """What a record holds of the keys that its description gave."""
    found = {}
    for key in record.model_fields_set:
        value = getattr(record, key)
        found[key] = given_of(value) if isinstance(value, Section) else plain(value)
    return found


def plain(value: Any) -> Any:
    """Lists for tuples."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


def meant(said: Any, read: Any) -> Any:
    """`said`, with texts that hold a number and a unit worked out where a number was read."""
    if isinstance(said, dict) and isinstance(read, dict):
        return {key: meant(value, read.get(key)) for key, value in said.items()}
    if isinstance(said, list) and isinstance(read, list) and len(said) == len(read):
        return [meant(one, other) for one, other in zip(said, read, strict=True)]
    if isinstance(said, (str, int, float)) and isinstance(read, list) and len(read) == 2:
        return [meant(said, each) for each in read]  # one voltage stands for the lowest and the highest
    if isinstance(read, bool) or not isinstance(read, (int, float)) or isinstance(said, bool):
        return plain(said)
    if isinstance(said, str):
        number, unit = re.fullmatch(r"\s*([-+0-9._eE]*[0-9.])\s*([A-Za-z/]*2?)\s*", said).groups()  # type: ignore[union-attr]
        said = float(number) * (FACTORS[unit] if unit else 1.0)
    return float(said) if isinstance(read, float) else said


class Described(Format):
    """A TOML file; what it says is every key that it gives, and defaults for those that it does not."""

    source = Path()

    def good(self) -> Path:
        path = self.folder / self.source.name
        if not path.exists():
            path.write_text(self.source.read_text())
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        path = self.folder / f"mutant{number}.toml"
        path.write_bytes(changed_lines(self.source.read_text(), rng))
        return path

    def says(self, path: Path) -> Any:
        said = {"name": path.stem} | tomllib.loads(path.read_text())
        return meant(said, self.read(path))


class WorkloadFile(Described):
    name = "workload"
    source = find_workload("digits")

    def read(self, path: Path) -> Any:
        workload = load_workload(str(path))
        network_of(workload)
        return given_of(workload)


class MachineFile(Described):
    name = "machine"
    source = find_machine("bow")

    def read(self, path: Path) -> Any:
        return given_of(load_machine(str(path)))


class NarrowedFile(Described):
    """Numbers of a machine that measurements narrowed."""

    name = "narrowed"

    def good(self) -> Path:
        self.source = self.folder / "narrowed.toml"
        if not self.source.exists():
            machine: Any = load_machine("tiny")
            known = uncertain_numbers(machine)
            sync = known["sync.internal_cycles"].interval
            numbers = (
                Number(
                    name="sync.internal_cycles", sourced=sync, narrowed=(100.0, 120.0, 140.0), rows=("mine line 2",)
                ),
                Number(
                    name="codelet LifUpdate", sourced=(0.7, 1.0, 1.3), narrowed=(0.9, 1.1, 1.2), rows=("mine line 2",)
                ),
            )
            given = {"kind": KIND, "machine": "tiny", "machine_sha256": machine_digest(machine), "spread": "2 %"}
            tables = (Table(file="mine.csv", sha256="0" * 64),)
            left_out = (("mine line 3", "mine line 4"),)
            write_calibration(
                self.source, CalibrationFile(**given, table=tables, number=numbers, left_out=left_out), ()
            )
        return self.source

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        self.good()
        return super().mutant(number, rng)

    def read(self, path: Path) -> Any:
        load_machine(str(path))
        return read_calibration(path).model_dump(exclude_unset=True, mode="json")

    def says(self, path: Path) -> Any:
        return meant(tomllib.loads(path.read_text()), self.read(path))


class StudyToml(Described):
    """A study; it is read, and its points are chosen."""

    name = "study"
    source = find_description("studies", "study", "exchange-or-compute")

    def read(self, path: Path) -> Any:
        study = read_study(path)
        Points(study)
        return []

    def says(self, path: Path) -> Any:
        return UNTOLD


class MappingToml(Described):
    """A mapping as `place` writes it; it is applied to its workload."""

    name = "mapping"

    def good(self) -> Path:
        self.source = self.folder / "mapping.toml"
        if not self.source.exists():
            workload = load_workload("digits")
            about = {"title": "good", "workload": "digits", "machine": "bow"}
            write_mapping_file(self.source, workload.mapping, network_of(workload), **about)
        return self.source

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        self.good()
        return super().mutant(number, rng)

    def read(self, path: Path) -> Any:
        load_workload("digits", mapping=path)
        return []

    def says(self, path: Path) -> Any:
        return UNTOLD


class ProfileFile(Format):
    name = "profile"

    def good(self) -> Path:
        path = self.folder / "profile.json"
        if not path.exists():
            machine: Any = load_machine("tiny")
            gpu: Any = load_machine("a100")
            save_profile(path, simulate(load_workload("digits", SMALL), machine, (gpu,)).profile)
            self.table = json.loads(path.read_text())
            del self.table["sha256"]  # which would refuse every mutant
            path.write_text(json.dumps(self.table, indent=1))
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        content = self.good().read_bytes()
        path = self.folder / "mutant.json"
        if rng.integers(0, 4) == 0:
            path.write_bytes(changed(content, [0], rng, text=True))
        else:
            path.write_bytes(as_json(changed_tree(self.table, rng), rng))
        return path

    def read(self, path: Path) -> Any:
        return json.loads(json.dumps(dataclasses.asdict(load_profile(path))))

    def says(self, path: Path) -> Any:
        return json.loads(path.read_text(), object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> Any:
    """A key that is there twice says two things, which nothing that is read can be equal to."""
    return dict(pairs) if len(dict(pairs)) == len(pairs) else pairs


class FiguresFile(Format):
    """A table of the vendor's cycle counts."""

    name = "csv"
    source = Path(__file__).resolve().parents[3] / "references"

    def good(self) -> Path:
        path = self.folder / "good.csv"
        if not path.exists():
            table = next(
                file for file in sorted(self.source.glob("*.csv")) if "codelet,scope" in file.read_text()[:200]
            )
            path.write_text("".join(table.read_text().splitlines(keepends=True)[:12]))
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        path = self.folder / "mutant.csv"
        rows = list(csv.reader(io.StringIO(self.good().read_text())))
        if rng.integers(0, 3) == 0:
            path.write_bytes(changed(self.good().read_bytes(), [0], rng, text=True))
            return path
        for _ in range(int(rng.integers(1, 4))):
            row = pick(rows, rng)
            change = int(rng.integers(0, 6))
            at = int(rng.integers(0, len(row))) if row else 0
            if change <= 2 and row:
                row[at] = pick(
                    ("", "nan", "1e400", "-1", "0", "9" * 5000, "x" * 200_000, "=1", "\u202e", '"', "a\rb"), rng
                )
            elif change == 3 and row:
                del row[at]
            elif change == 4:
                row.insert(at, row[at] if row else "x")
            else:
                rows.insert(int(rng.integers(0, len(rows))), list(row))
        text = io.StringIO()
        csv.writer(text, lineterminator=pick(("\n", "\r\n", "\r"), rng)).writerows(rows)
        path.write_text(text.getvalue(), newline="")
        return path

    def read(self, path: Path) -> Any:
        rows = check_files((path,), None, lambda *_: None)
        return [[row.published, row.name] for row in rows if row.kind != NOT_COMPUTED]

    def says(self, path: Path) -> Any:
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        heads = {name: at for at, name in enumerate(rows[0])}
        cells = [{name: row[at] for name, at in heads.items()} for row in rows[1:] if row]
        named = [(row["cycles"], f"{row['codelet']} {row['dtype']} {row['params']}") for row in cells]
        return [[float(cycles), name] for cycles, name in named if _is_number(cycles)]  # others are refused by line


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


DESCRIPTIONS = (WorkloadFile, MachineFile, NarrowedFile, StudyToml, MappingToml, ProfileFile, FiguresFile)
