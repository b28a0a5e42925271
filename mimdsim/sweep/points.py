"""The points of a sweep: every combination of field values, as resolved descriptions checked before anything runs."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, shortened, suggest
from mimdsim.base.schema import build, parse_toml
from mimdsim.machine import GpuMachine, MimdMachine, load_machine, tiled_machine
from mimdsim.run import config_digest
from mimdsim.workload import Workload, load_workload

WORKLOAD_SECTIONS = ("data", "network", "training", "mapping", "seed")
MACHINE_SECTIONS = ("chip", "tile", "exchange", "sync", "host", "links", "matrix", "energy", "area", "power")
MAX_POINTS = 10_000


@dataclass(frozen=True, kw_only=True)
class Point:
    """One combination: what was changed, and the resolved descriptions."""

    changes: tuple[tuple[str, Any], ...]
    workload: Workload
    machine: MimdMachine
    activity_key: str
    gpus: tuple[GpuMachine, ...] = ()
    fill: float | None = None  # lists filled to this share of their capacity; None: spikes of a run
    best_mapping: int = 0  # candidates of a search for its best mapping; 0: the workload's

    @property
    def key(self) -> str:
        decides = f"{config_digest(self.workload, self.machine, *self.gpus)}{self.activity_key}{code_digest()}"
        decides += f"best of {self.best_mapping}" if self.best_mapping else ""
        return hashlib.sha256(decides.encode()).hexdigest()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Digest of this package's sources, so that points of another version are not mistaken for this one's."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def data_digest(path: str) -> str:
    """Digest of names, sizes and times of the files under `path`; '' without a path."""
    if not path:
        return ""
    digest = hashlib.sha256()
    root = Path(path)
    for file in sorted([root, *root.rglob("*")] if root.exists() else []):
        about = file.stat()
        digest.update(f"{file}{about.st_size}{about.st_mtime_ns}".encode())
    return digest.hexdigest()


def parse_value(text: str) -> Any:
    """A TOML value ('6', '1e9', '[64, 64]', 'true'), or the text itself ('624 KiB', 'adam')."""
    if len(text.strip().splitlines()) > 1:
        raise DescriptionError("--set", [f"{shortened(text)!r} has several lines; give each key its own --set"])
    try:
        return parse_toml(f"value = {text}", where="--set")["value"]
    except DescriptionError:
        return text.strip().strip("'\"")


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


def parse_changes(texts: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """KEY=VALUE texts as changes of workload and machine; raises DescriptionError for a key of neither."""
    changes: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise DescriptionError(f"--set {shortened(text)}", ["write  --set section.key=value"])
        if key.strip() in changes:
            raise DescriptionError(f"--set {key.strip()}", ["given twice; give each key one value"])
        changes[key.strip()] = parse_value(value)
    return split_changes(changes)


def split_changes(changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Changes of the workload and of the machine; raises DescriptionError for a key of neither."""
    workload: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    for key, value in changes.items():
        section = key.split(".")[0]
        if section in WORKLOAD_SECTIONS:
            workload[key] = value
        elif section in MACHINE_SECTIONS:
            machine[key] = value
        else:
            known = [*WORKLOAD_SECTIONS, *MACHINE_SECTIONS]
            raise DescriptionError(
                f"--set {shortened(key)}", [f"no section '{shortened(section)}'{suggest(section, known)}"]
            )
    return workload, machine


def points_of(
    workload: str,
    machine: str,
    axes: list[tuple[str, tuple[Any, ...]]],
    training_steps: int,
    gpus: tuple[str, ...] = (),
    fill: float | None = None,
    mapping: str | Path | None = None,
    best_mapping: int = 0,
) -> list[Point]:
    """Every combination of the axes' values, checked before anything runs; every point is timed on `gpus` too."""
    beside = tuple(load_gpu(name) for name in gpus)
    names = [name for name, _ in axes]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DescriptionError("sweep", [f"{', '.join(repeated)} given twice; write all its values in one --set"])
    load_tiled(machine)  # reports a GPU before its fields are looked up
    total = int(np.prod([len(values) for _, values in axes], dtype=np.int64)) if axes else 1
    if total > MAX_POINTS:
        raise DescriptionError("sweep", [f"{total} points; at most {MAX_POINTS}: give fewer values"])
    points = []
    for values in itertools.product(*(values for _, values in axes)):
        changes = dict(zip((key for key, _ in axes), values, strict=True))
        for_workload, for_machine = split_changes(changes)
        resolved = load_workload(workload, for_workload, mapping)
        chosen = load_tiled(machine, for_machine)
        if training_steps:
            table = resolved.model_dump(mode="json")
            table["training"] |= {"max_training_steps": training_steps}
            resolved = build(Workload, table, where=workload)
        points.append(
            Point(
                changes=tuple(changes.items()),
                workload=resolved,
                machine=chosen,
                activity_key=activity_key(resolved) if fill is None else f"filled {fill!r}",
                gpus=beside,
                fill=fill,
                best_mapping=best_mapping,
            )
        )
    return points


def load_tiled(machine: str | MimdMachine | GpuMachine, changes: dict[str, Any] | None = None) -> MimdMachine:
    """A tiled machine by its name with `changes`, or one already loaded; raises DescriptionError for a GPU."""
    loaded = tiled_machine(machine, "give a tiled machine here (GPUs: run --gpu, compare)")
    if changes and not isinstance(machine, str):
        problems = [f"{key}: '{loaded.name}' is already loaded; pass this to load_machine" for key in changes]
        raise DescriptionError("changes", problems)
    changed = load_machine(machine, changes) if changes and isinstance(machine, str) else loaded
    assert isinstance(changed, MimdMachine)
    return changed


def load_gpu(machine: str | MimdMachine | GpuMachine) -> GpuMachine:
    """A GPU by its name, or one already loaded; raises DescriptionError for a tiled machine."""
    loaded = load_machine(machine) if isinstance(machine, str) else machine
    if not isinstance(loaded, GpuMachine):
        raise DescriptionError(
            f"machine '{loaded.name}'", ["is a tiled machine; give a GPU to --gpu (see mimdsim list)"]
        )
    return loaded


def load_line_up(
    machines: Sequence[str | MimdMachine | GpuMachine], changes: dict[str, Any]
) -> tuple[tuple[MimdMachine, ...], tuple[GpuMachine, ...]]:
    """Tiled machines and GPUs in order; those given by name are loaded, with `changes` for tiled ones. Raises
    DescriptionError if there is no tiled one."""
    names = [one if isinstance(one, str) else one.name for one in machines]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DescriptionError("compare", [f"{', '.join(twice)} given twice"])
    loaded = [load_machine(one) if isinstance(one, str) else one for one in machines]
    pairs = list(zip(machines, loaded, strict=True))
    tiled = tuple(load_tiled(given, changes) for given, one in pairs if isinstance(one, MimdMachine))
    if not tiled:
        problem = f"no tiled machine among {', '.join(names)}; begin with one, e.g.  compare digits bow {names[0]}"
        raise DescriptionError("compare", [problem])
    return tiled, tuple(one for one in loaded if isinstance(one, GpuMachine))


def activity_key(workload: Workload) -> str:
    """Digest of everything that determines the spikes: sources, data files, and all of the workload except mapping and
    titles (mapping only affects rounding)."""
    table = workload.model_dump(mode="json", exclude={"mapping", "title", "name"})
    decides = json.dumps(table, sort_keys=True) + data_digest(workload.data.path) + code_digest()
    return hashlib.sha256(decides.encode()).hexdigest()[:24]
