"""Machines and workloads as commands name them: with changed fields by dotted key, tiled machines and GPUs apart."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mimdsim.base.errors import AS_CHANGED, DescriptionError, shortened, suggest
from mimdsim.base.schema import dotted_changes, parse_toml
from mimdsim.machine import Given, GpuMachine, MimdMachine, given_machine, load_machine, tiled_machine

WORKLOAD_SECTIONS = ("data", "network", "training", "mapping", "seed")
MACHINE_SECTIONS = (
    "chip", "tile", "exchange", "sync", "host", "links", "matrix", "energy", "costs", "area", "power", "memory",
)  # fmt: skip


def parse_value(text: str) -> Any:
    """A TOML value ('6', '1e9', '[64, 64]', 'true'), or the text itself ('624 KiB', 'adam')."""
    if len(text.strip().splitlines()) > 1:
        raise DescriptionError("--set", [f"{shortened(text)!r} has several lines; give each key its own --set"])
    try:
        return parse_toml(f"value = {text}", where="--set")["value"]
    except DescriptionError:
        return text.strip().strip("'\"")


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


def is_of_machine(key: str) -> bool:
    """Whether a dotted key is one of machines."""
    return key.split(".")[0] in MACHINE_SECTIONS


def split_changes(changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Changes of the workload and of the machine, by dotted key; raises DescriptionError for a key of neither."""
    workload: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    for key, given in dotted_changes(changes).items():
        value = os.fspath(given) if isinstance(given, os.PathLike) else given
        section = key.split(".")[0]
        if section in WORKLOAD_SECTIONS:
            workload[key] = value
        elif section in MACHINE_SECTIONS:
            machine[key] = value
        else:
            known = [*WORKLOAD_SECTIONS, *MACHINE_SECTIONS]
            problem = f"no section '{shortened(section)}'{suggest(section, known)}"
            raise DescriptionError("changes", [f"'{shortened(key)}'{AS_CHANGED}: {problem}"])
    return workload, machine


def load_tiled(machine: Given, changes: dict[str, Any] | None = None) -> MimdMachine:
    """A tiled machine by its name with `changes`, or one already loaded; raises DescriptionError for a GPU."""
    advice = "give a tiled machine here (GPUs: run --gpu, compare)"
    loaded = tiled_machine(machine, advice)
    if not changes:
        return loaded
    if isinstance(machine, (MimdMachine, GpuMachine)):
        problems = [
            f"{key}: '{loaded.name}' is already loaded; pass this to load_machine, or Machine" for key in changes
        ]
        raise DescriptionError("changes", problems)
    return tiled_machine(load_machine(machine, changes), advice)


def load_gpu(machine: Given) -> GpuMachine:
    """A GPU by its name, or one already loaded; raises DescriptionError for a tiled machine."""
    loaded = given_machine(machine)
    if not isinstance(loaded, GpuMachine):
        raise DescriptionError(
            f"machine '{loaded.name}'", ["is a tiled machine; give a GPU to --gpu (see mimdsim list)"]
        )
    return loaded


def load_line_up(
    machines: Sequence[Given], changes: dict[str, Any]
) -> tuple[tuple[MimdMachine, ...], tuple[GpuMachine, ...]]:
    """Tiled machines and GPUs in order; those given by name are loaded, with `changes` for tiled ones. Titles that are
    the same are told apart by name. Raises DescriptionError if there is no tiled one."""
    names = [one.name if isinstance(one, (MimdMachine, GpuMachine)) else os.fspath(one) for one in machines]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DescriptionError("compare", [f"{', '.join(twice)} given twice"])
    found = [given_machine(one) for one in machines]
    pairs = zip(machines, found, strict=True)
    found = [load_tiled(given, changes) if isinstance(one, MimdMachine) else one for given, one in pairs]
    titles = Counter(one.title for one in found)
    loaded = [
        one.model_copy(update={"title": f"{one.title} ({name})"}) if titles[one.title] > 1 else one
        for name, one in zip(names, found, strict=True)
    ]
    tiled = tuple(one for one in loaded if isinstance(one, MimdMachine))
    if not tiled:
        problem = f"no tiled machine among {', '.join(names)}; begin with one, e.g.  compare digits bow {names[0]}"
        raise DescriptionError("compare", [problem])
    return tiled, tuple(one for one in loaded if isinstance(one, GpuMachine))
