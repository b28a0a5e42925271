"""What the result of a run belongs to: descriptions, the contents of the files that they name, and code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mimdsim.base.errors import MimdsimError
from mimdsim.base.files import digest_of, with_home
from mimdsim.base.identity import Input, by_file, changed_files, file_digest, input_of
from mimdsim.base.schema import has_default
from mimdsim.base.search_path import own_folder
from mimdsim.execution import UNKNOWN_CODE, TrainingLog
from mimdsim.machine import GpuMachine, MimdMachine, description_files
from mimdsim.machine.mimd import MODELS, SECTIONS_SINCE, SINCE
from mimdsim.profile import NamedFile
from mimdsim.workload import Workload, find_workload, inputs_of

Machine = MimdMachine | GpuMachine


KEYS_SINCE: dict[str, tuple[str, ...]] = {
    "mapping": ("strip_columns", "behind_tiles"),
    "training": ("over_timesteps", "burn_in", "rate_factor", "rate_epochs", "rate_table", "frozen", "pruned"),
    "network": (
        *("sources", "unweighted", "convolutions", "delays", "weight_functions", "weight_format"),
        *("dropout", "dropout_per", "dropout_of", "learned", "cells", "models"),
        *("batch_norm", "batch_norm_epsilon", "batch_norm_momentum", "batch_norm_groups"),
    ),
}  # that 0.1.0 did not have, by section, all with defaults
# of parts of `network` that came later themselves
PARTS_SINCE = (
    ("convolutions", "groups", 1),
    ("convolutions", "own_kernel", None),
    ("weight_functions", "factor", 1),
    ("cells", "recurrent_of", "output"),
)


def config_digest(workload: Workload, *machines: Machine) -> str:
    """sha256 of everything that determines a result but the code: the resolved descriptions, and the contents of the
    files that they name."""
    named = [(each.key, each.sha256) for each in inputs_of(workload)]
    for machine in machines:
        if isinstance(machine, MimdMachine) and machine.exchange.model not in MODELS:
            file = with_home(machine.exchange.model.rpartition(":")[0])
            named.append(("exchange.model", file_digest(file)))
    together = [
        astuple(machine.correlation)
        for machine in machines
        if isinstance(machine, MimdMachine) and machine.correlation is not None
    ]
    if not named and not together:
        return descriptions_digest(workload, *machines)
    return digest_of([descriptions_digest(workload, *machines), named, together])


def course_digest(workload: Workload, machine: MimdMachine) -> str:
    """sha256 of the descriptions that determine how a training continues: all but its engine, which a checkpoint names,
    and its length, if no training step depends on it. A checkpoint keeps inputs and code apart, to say which of them
    are others."""
    changes: dict[str, Any] = {"engine": "program"}
    if workload.training.schedule == "constant":
        changes |= {"epochs": 1, "max_training_steps": 0}
    return _digest_with(changes, workload, machine)


def earlier_digests(workload: Workload, machine: MimdMachine) -> dict[str, str]:
    """What `course_digest` was in 0.1.0 where whole tensors trained, with the engine."""
    return {_digest_with({"engine": "whole_tensors"}, workload, machine): "whole_tensors"}


def _digest_with(changes: dict[str, Any], workload: Workload, machine: MimdMachine) -> str:
    recipe = workload.training.model_copy(update=changes)
    return descriptions_digest(workload.model_copy(update={"training": recipe}), machine)


def descriptions_digest(workload: Workload, *machines: Machine) -> str:
    """sha256 of resolved descriptions, those of before a key was there where it has its default."""
    described = workload.model_dump(mode="json")
    for part, key, without in PARTS_SINCE:
        for keys in described["network"][part].values():
            if keys[key] == without:
                del keys[key]
    _drop_defaults(workload, described, KEYS_SINCE)
    resolved = [described, *(machine.model_dump(mode="json") for machine in machines)]
    for machine, table in zip(machines, resolved[1:], strict=True):
        if not isinstance(machine, MimdMachine):
            continue
        for section in SECTIONS_SINCE:
            if table[section] is None:
                del table[section]
        _drop_defaults(machine, table, SINCE)
    return digest_of(resolved)


def _drop_defaults(described: BaseModel, table: dict[str, Any], since: Mapping[str, Iterable[str]]) -> None:
    """Leave out of the table of a description those keys of its sections that have their defaults."""
    for section, keys in since.items():
        part = getattr(described, section)
        for key in keys if part is not None else ():
            if has_default(part, key):
                del table[section][key]


def descriptions_of(workload: Any, machines: Iterable[Any], mapping: str | Path | None = None) -> tuple[Input, ...]:
    """The files of descriptions that are given by name or path, not those of the package.

    Their values are part of every digest; a file is kept to be named where they are others. What cannot be read is
    refused where it is loaded.
    """
    found: list[Input] = []
    for key, given in (("workload", workload), *(("machine", machine) for machine in machines)):
        if not isinstance(given, (str, Path)):
            continue
        try:
            paths: Sequence[Path] = description_files(str(given)) if key == "machine" else (find_workload(str(given)),)
        except MimdsimError:
            continue
        own = own_folder("models" if key == "machine" else "workloads")
        found += [input_of(key, str(path), [("", path)]) for path in paths if path.parent != own]
    if mapping is not None and file_digest(Path(mapping)):
        found.append(input_of("mapping", str(mapping), [("", Path(mapping))]))
    return tuple(found)


def named_files(inputs: Iterable[Input]) -> tuple[NamedFile, ...]:
    """Inputs as a profile keeps them."""
    return tuple(NamedFile(key=each.key, path=each.path, sha256=each.sha256) for each in inputs)


def changed_inputs_warning(workload: Workload, before: Sequence[Input]) -> Iterator[str]:
    """Said where inputs are no longer what they were when the run began."""
    if changed := changed_files(by_file(before), by_file(inputs_of(workload))):
        again = "it is not known which contents it read: run it again"
        yield f"while this run was under way: {'; '.join(changed)}; {again}"


def earlier_code_warning(log: TrainingLog) -> Iterator[str]:
    """Said where sources other than the present ones computed training steps."""
    if UNKNOWN_CODE in log.earlier_code:
        yield (
            "the checkpoint that this training was resumed from was written before inputs and code were recorded: "
            "whether its training steps are of these inputs and of these sources of mimdsim is unknown"
        )
    if known := [digest[:12] for digest in log.earlier_code if digest != UNKNOWN_CODE]:
        yield (
            f"training steps before the last --resume were computed by other sources of mimdsim (code "
            f"{', '.join(known)}), which --accept-other-code accepted"
        )
