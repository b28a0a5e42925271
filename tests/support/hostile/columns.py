"""The columns of single tiles beside a profile, as changes mutate them: forged, with digests that match."""

from __future__ import annotations

import json
import zipfile
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np

from hostile.changes import EXTREMES, changed
from hostile.running import UNTOLD, Format
from mimdsim.base.checksummed import DIGITS, read_sealed_arrays, sealed, write_sealed_arrays
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, detail_of
from mimdsim.profile.detail import Detail, load_detail, save_detail
from mimdsim.workload import filled_activity, load_workload

SMALL = {"data.timesteps": 3, "training.batch": 4, "network.hidden": (12,), "network.capacity": (6, 4)}


class DetailFile(Format):
    name = "detail"

    def good(self) -> Path:
        path = self.folder / "detail.npz"
        if not path.exists():
            machine = load_machine("tiny")
            assert isinstance(machine, MimdMachine)
            made = compile_workload(load_workload("digits", SMALL), machine, must_fit=False)
            activity = filled_activity(made.network, 0.5)
            save_detail(path, detail_of(made.program, machine, activity, made.memory, "a run", range(2)))
            self.arrays = read_sealed_arrays(path, 1 << 24, "")
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        head = self.good().read_bytes()[:-DIGITS]
        path = self.folder / "mutant.npz"
        kind = int(rng.integers(0, 4))
        if kind == 0:  # not sealed anew
            path.write_bytes(changed(self.good().read_bytes(), [0], rng, text=False))
        elif kind == 1:
            path.write_bytes(sealed(path, changed(head, [0, len(head) - 22], rng, text=False), b""))
        else:
            write_sealed_arrays(path, self._changed(rng))
        return path

    def _changed(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """One column of other numbers, another shape or format, missing, or one more."""
        arrays = dict(self.arrays)
        name = str(rng.choice(sorted(arrays)))
        column = arrays[name].astype(np.int64) if name != "texts" else arrays[name].copy()
        kind = int(rng.integers(0, 6))
        if name == "texts" or kind == 0:
            text = changed(arrays["texts"].tobytes(), [0], rng, text=True)
            arrays["texts"] = np.frombuffer(text, np.uint8)
        elif kind == 1 and column.size:
            extreme = min(EXTREMES[int(rng.integers(0, len(EXTREMES)))], (1 << 63) - 1)
            column.reshape(-1)[rng.integers(0, column.size)] = extreme * int(rng.choice([-1, 1]))
            arrays[name] = column
        elif kind == 2:
            arrays[name] = column[: len(column) // 2]
        elif kind == 3:
            arrays[name] = column.astype(rng.choice(["float64", "uint64", "int8", "bool"]))
        elif kind == 4:
            arrays[name] = column.reshape(-1) if rng.integers(0, 2) else column[..., None]
        else:
            arrays[str(rng.choice(["more", name]))] = arrays.pop(name)
        return arrays

    def read(self, path: Path) -> Any:
        detail = load_detail(path)
        for superstep in range(len(detail.supersteps)):
            detail.on_tile(0, superstep)
        assert detail.memory.shape == detail.busy.shape
        return {one.name: plain(getattr(detail, one.name)) for one in fields(Detail)}

    def says(self, path: Path) -> Any:
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except (ValueError, OSError, EOFError, zipfile.BadZipFile):
            return UNTOLD
        texts = json.loads(arrays.pop("texts").tobytes())
        texts.pop("version")
        found = {one.name: one.default_factory() for one in fields(Detail) if one.default_factory is not MISSING}
        found |= arrays | texts  # columns of links are only of machines that have links
        return {one.name: plain(found[one.name]) for one in fields(Detail)}


def plain(column: Any) -> Any:
    """As plain lists."""
    return column.tolist() if isinstance(column, np.ndarray) else column
