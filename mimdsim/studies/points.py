"""The points of a study: designs of varied fields as resolved descriptions, checked before anything runs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mimdsim.base.errors import DescriptionError, MimdsimError, shortened
from mimdsim.base.files import digest_of
from mimdsim.base.identity import Input, by_file, changed_files, code_digest
from mimdsim.base.units import counted
from mimdsim.machine import GpuMachine, MimdMachine, changed_machine
from mimdsim.machine.calibrated import machine_digest
from mimdsim.pipeline import config_digest, descriptions_of
from mimdsim.pipeline.overrides import load_gpu, load_tiled, parse_value, split_changes
from mimdsim.studies.description import Study
from mimdsim.studies.results import INFERENCE_RESULTS, gpu_columns
from mimdsim.studies.sampling import Design, DesignSpace, field_of, sample_unit_cube
from mimdsim.workload import Workload, inputs_of, load_workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """A workload on a machine with the changes of one design.

    changes: what a table shows of it. fill: lists filled to this share of their capacity; None: spikes of a run.
    best_mapping: candidates of a search for its best mapping; 0: the workload's. infers: single samples are timed too.
    inputs: the files that it was made
    from with the sha256 of their contents; code: digest of the sources that make its results. asked: digest of what
    was asked for, whatever the files and the code.
    """

    changes: tuple[tuple[str, Any], ...]
    workload: Workload
    machine: MimdMachine
    activity_key: str
    gpus: tuple[GpuMachine, ...] = ()
    fill: float | None = None
    best_mapping: int = 0
    infers: bool = False
    inputs: Mapping[str, str]
    code: str
    asked: str

    @cached_property
    def key(self) -> str:
        decides = f"{config_digest(self.workload, self.machine, *self.gpus)}{self.activity_key}{self.code}"
        decides += f"best of {self.best_mapping}" if self.best_mapping else ""
        decides += "inference" if self.infers else ""
        return hashlib.sha256(decides.encode()).hexdigest()

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of its row beside what all rows have."""
        return (
            *(name for gpu in self.gpus for name in gpu_columns(gpu.name)),
            *(INFERENCE_RESULTS if self.infers else ()),
        )

    @property
    def origin(self) -> dict[str, Any]:
        """What a folder keeps of a point with its row, to say why it is computed again."""
        return {"asked": self.asked, "inputs": dict(self.inputs), "code": self.code}

    def check(self) -> None:
        """Raise MimdsimError if what the workload reads here, or the sources here, are not what the point was made of.
        Spikes that are at hand need no recordings, which another computer may lack."""
        now = by_file(each for each in inputs_of(self.workload) if each.files)
        changed = changed_files({name: self.inputs.get(name, "") for name in now}, now)
        if code_digest() != self.code:
            changed.append("the sources of mimdsim have changed")
        if changed:
            raise MimdsimError(f"{'; '.join(changed)} since the point was made; the same command computes it again")


class Points:
    """Makes the points of a study; a workload or machine with the same changes is loaded once."""

    def __init__(self, study: Study):
        self.study = study
        self.gpus = tuple(load_gpu(name) for name in study.gpus)
        self.machine = load_tiled(study.machine)  # reports a GPU before its fields are looked up
        self.workloads: dict[tuple[str, str], tuple[Workload, str, tuple[Input, ...]]] = {}
        self.machines: dict[str, MimdMachine] = {}
        machines: tuple[str | MimdMachine, ...] = tuple(filter(None, (study.machine, study.reference)))
        self.described = {name: descriptions_of(None, (name, *study.gpus)) for name in machines}
        first = next(iter(study.workloads))
        self.base = {**self._workload(first, {})[0].model_dump(), **self.machine.model_dump()}
        self.varied = DesignSpace(study=study, base=lambda key: field_of(key, self.base))

    def designs(self) -> list[Design]:
        """Those of a study that needs no results to choose them."""
        sampling = self.study.sampling
        if sampling.kind == "grid":
            return self.varied.grid()
        return self.varied.at(sample_unit_cube(sampling.kind, sampling.points, len(self.study.axes), sampling.seed))

    def of(self, designs: Sequence[Design]) -> list[Point]:
        """Every design with every workload, in order; raises DescriptionError for the first that cannot be."""
        return [self._point(name, design, self.study.machine) for design in designs for name in self.study.workloads]

    def of_reference(self) -> list[Point]:
        """Every workload on the reference machine, nothing varied; none without one."""
        if not self.study.reference:
            return []
        return [self._point(name, {}, self.study.reference) for name in self.study.workloads]

    def _point(self, name: str, design: Design, machine: str | MimdMachine) -> Point:
        for_workload, for_machine = split_changes({**self.study.changes, **design})
        workload, activity, inputs = self._workload(name, for_workload)
        given = self.study
        best = given.candidates if given.mapping == "best" else 0
        settings = [list(given.gpus), given.mapping, best, given.fill, given.training_steps]
        settings += ["inference"] if given.infers else []
        named = machine if isinstance(machine, str) else machine_digest(machine)
        return Point(
            changes=tuple(design.items()),
            workload=workload,
            machine=self._machine(for_machine) if machine == given.machine else load_tiled(machine),
            activity_key=activity,
            gpus=self.gpus,
            fill=given.fill,
            best_mapping=best,
            infers=given.infers,
            inputs=by_file((*self.described[machine], *inputs)),
            code=code_digest(),
            asked=digest_of([name, named, _said({**given.changes, **design}), settings]),
        )

    def _workload(self, name: str, changes: dict[str, Any]) -> tuple[Workload, str, tuple[Input, ...]]:
        named = name, _said(changes)
        if named not in self.workloads:
            of_file = None if self.study.mapping in ("published", "best") else self.study.mapping
            if of_file is not None and not os.path.isfile(of_file):
                raise DescriptionError("mapping", [f"'{of_file}' is no file; write one, 'published' or 'best'"])
            steps = self.study.training_steps
            shorter = {"training.max_training_steps": steps} if steps else {}
            loaded = load_workload(name, changes | shorter, of_file)
            fill = self.study.fill
            inputs = (*descriptions_of(name, (), of_file), *inputs_of(loaded))
            self.workloads[named] = loaded, activity_key(loaded) if fill is None else f"filled {fill!r}", inputs
        return self.workloads[named]

    def _machine(self, changes: dict[str, Any]) -> MimdMachine:
        named = _said(changes)
        if named not in self.machines:
            self.machines[named] = changed_machine(self.machine, changes)
        return self.machines[named]


def _said(changes: dict[str, Any]) -> str:
    return json.dumps(changes, sort_keys=True, default=str)


def activity_key(workload: Workload) -> str:
    """Digest of everything that determines the spikes: sources, the contents of all that the workload reads, and all of
    the workload except mapping and titles (mapping only affects rounding)."""
    table = workload.model_dump(mode="json", exclude={"mapping", "title", "name"})
    read = [(each.key, each.sha256) for each in inputs_of(workload)]
    return digest_of([table, read, code_digest()])[:24]


def recomputed_points(points: Iterable[Point], rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Why points that a folder has rows of are computed again, in words; `rows`: by key."""
    by_asked: dict[str, Mapping[str, Any]] = {row["asked"]: row for row in rows.values() if "asked" in row}
    reasons: dict[str, int] = {}
    again = {point.key: point for point in points if point.key not in rows}
    for point in again.values():
        before = by_asked.get(point.asked)
        if before is None:
            continue
        why = changed_files(before["inputs"], point.inputs)
        if before["code"] != point.code:
            why.append("the sources of mimdsim are others")
        reason = "; ".join(why or ["the machine or workload is described otherwise"])
        reasons[reason] = reasons.get(reason, 0) + 1
    said = [f"{counted(count, 'point')} computed again: {reason}" for reason, count in reasons.items()]
    unknown = sum("asked" not in row for row in rows.values())
    if again and unknown:
        said.append(
            f"this folder holds {counted(unknown, 'row')} from before inputs were recorded; what they belong "
            "to is unknown, and they are not used"
        )
    return said


def parse_axis(text: str) -> tuple[str, tuple[Any, ...]]:
    """'tile.sram_bytes=256 KiB,624 KiB' -> the key and its values; commas in brackets or braces do not separate."""
    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise DescriptionError(f"--set {shortened(text)}", ["write  --set section.key=value,value,..."])
    parts, depth = [""], 0
    for character in values:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    found = tuple(parse_value(part.strip()) for part in parts if part.strip())
    if not found:
        raise DescriptionError(f"--set {shortened(text)}", ["no value given; write  --set section.key=value,value,..."])
    return key.strip(), found


def parse_axes(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """The axes of a command; raises DescriptionError for a field given twice."""
    parsed = [parse_axis(text) for text in texts]
    names = [name for name, _ in parsed]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DescriptionError("sweep", [f"{', '.join(repeated)} given twice; write all its values in one --set"])
    return dict(parsed)
