"""The spikes that a run was timed with and what it was made of, beside its report: enough to compile and time it again
(`mimdsim explain FOLDER`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mimdsim.base.checksummed import read_sealed_arrays, write_sealed_arrays
from mimdsim.base.errors import DataFileError
from mimdsim.base.schema import MAX_DESCRIPTION_BYTES
from mimdsim.machine import MimdMachine
from mimdsim.pipeline.pipeline import compile_workload
from mimdsim.pipeline.result import Run
from mimdsim.profile import RunProfile
from mimdsim.profile.detail import REDO
from mimdsim.program import Program, RecordedActivity
from mimdsim.workload import Workload

SPIKES_FILE = "spikes.npz"
MAX_BYTES = 256 << 20
MAX_ENTRIES = 1 << 28
KINDS = ("ids.", "counts.", "dropped.")


def activity_arrays(activity: RecordedActivity) -> dict[str, np.ndarray]:
    """Recorded spikes as arrays, for a file or a network."""
    arrays = {f"ids.{layer}": ids for layer, ids in activity.ids.items()}
    arrays |= {f"counts.{layer}": counts for layer, counts in activity.counts.items()}
    return arrays | {f"dropped.{layer}": np.array([dropped]) for layer, dropped in activity.dropped.items()}


def activity_of(arrays: Mapping[str, np.ndarray]) -> RecordedActivity:
    """What `activity_arrays` was given; raises ValueError for anything else."""
    ids, counts, dropped = (
        {name.removeprefix(kind): array for name, array in arrays.items() if name.startswith(kind)} for kind in KINDS
    )
    sound = ids.keys() == counts.keys() and all(name.startswith(KINDS) for name in arrays)
    sound &= all(array.shape == (1,) and array.dtype.kind in "iu" and array[0] >= 0 for array in dropped.values())
    if not sound:
        raise ValueError("holds no recorded spikes")
    return RecordedActivity(ids=ids, counts=counts, dropped={name: int(array[0]) for name, array in dropped.items()})


def save_recorded(path: Path, run: Run) -> None:
    """Write the spikes of a run with its descriptions; nothing where they take more than MAX_BYTES."""
    arrays = activity_arrays(run.log.activity)
    described = {"run": run.profile.config_sha256} | {
        name: one.model_dump(mode="json", exclude_defaults=True)
        for name, one in (("workload", run.workload), ("machine", run.machine))
    }
    if sum(array.nbytes for array in arrays.values()) < MAX_BYTES:
        write_sealed_arrays(path, {**arrays, "described": np.frombuffer(json.dumps(described).encode(), np.uint8)})


def compile_again(folder: Path, profile: RunProfile) -> tuple[Program, MimdMachine, RecordedActivity]:
    """The program, the machine and the spikes of a saved run; raises DataFileError where they cannot be had, and
    MimdsimError where the workload can no longer be compiled."""
    path = folder / SPIKES_FILE
    if not path.exists():
        raise DataFileError(path, f"no such file, which has the spikes of the run; {REDO}")
    arrays = read_sealed_arrays(path, MAX_BYTES, REDO, MAX_ENTRIES)
    try:
        text = arrays.pop("described", np.zeros(0, np.uint8)).tobytes()
        if len(text) > MAX_DESCRIPTION_BYTES:
            raise ValueError(f"descriptions of {len(text):,} bytes")
        described = json.loads(text)
        workload, machine = Workload.model_validate(described["workload"]), described["machine"]
        machine, activity = MimdMachine.model_validate(machine), activity_of(arrays)
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        why = str(problem).splitlines()[0]
        raise DataFileError(path, f"is not what this mimdsim writes ({why}); {REDO}") from None
    if described.get("run") != profile.config_sha256:
        raise DataFileError(path, f"belongs to another run than profile.json; {REDO}")
    return compile_workload(workload, machine, must_fit=False).program, machine, activity
