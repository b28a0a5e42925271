"""Folders of recordings (N-MNIST, SHD, DVS-Gesture) with files damaged, swapped, renamed, left out, or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from event_file_writing import AEDAT_HEADER, aedat_packet, nmnist_bytes, write_shd

from hostile.changes import changed
from hostile.limits import one_process
from hostile.recordings import fields_of
from hostile.running import Format
from hostile.trees import pick
from mimdsim.workload.data.dataset import open_dataset
from mimdsim.workload.description.sections import Data


def write_nmnist(folder: Path) -> None:
    for split in ("Train", "Test"):
        for digit in range(10):
            place = folder / split / str(digit)
            place.mkdir(parents=True)
            for name in ("1.bin", "2.bin")[: 1 + (digit == 3)]:
                rows = [(x, 33 - x, x % 2, 900 * x + digit) for x in range(20)]
                (place / name).write_bytes(nmnist_bytes(rows))


def write_dvs(folder: Path) -> None:
    for split, users in (("train", ("01", "02")), ("test", ("24",))):
        names = []
        for user in users:
            name = f"user{user}_led"
            packets = aedat_packet([(1, 2, 1, 100), (127, 0, 0, 150)])
            packets += aedat_packet([(3, 127, 1, 1200), (5, 6, 0, 2500)])
            (folder / f"{name}.aedat").write_bytes(AEDAT_HEADER + packets)
            rows = "class,startTime_usec,endTime_usec\n1,100,2000\n11,2400,9000\n"
            (folder / f"{name}_labels.csv").write_text(rows)
            names.append(f"{name}.aedat\n")
        (folder / f"trials_to_{split}.txt").write_text("".join(names))


def write_both_shd(folder: Path) -> None:
    write_shd(folder / "shd_train.h5")
    write_shd(folder / "shd_test.h5")


class Folder(Format):
    """A folder of a published data set, opened as a workload opens it."""

    source = ""
    bin_seconds = 0.001
    write: Callable[[Path], None]

    def good(self) -> Path:
        path = self.folder / "good"
        if not path.exists():
            path.mkdir()
            type(self).write(path)
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        path = self.folder / f"mutant{number}"
        shutil.copytree(self.good(), path)
        for _ in range(int(rng.integers(1, 3))):
            files = sorted(each for each in path.rglob("*") if each.is_file())
            if files:
                self._change(pick(files, rng), pick(files, rng), path, rng)
        return path

    def _change(self, file: Path, other: Path, root: Path, rng: np.random.Generator) -> None:
        change = int(rng.integers(0, 11))
        if change <= 3:
            content = file.read_bytes()
            form = {".aedat": "aedat"}.get(file.suffix, "nmnist")
            text = file.suffix in (".csv", ".txt")
            whole = content and not text and (form != "aedat" or content.startswith(AEDAT_HEADER))
            fields = fields_of(form, content) if whole else []
            file.write_bytes(changed(content, fields or [0], rng, text=text))
            return
        if change == 4:
            file.write_bytes(other.read_bytes())
            return
        if change == 5:
            other.rename(other.with_name(pick((f"x{other.name}", other.name.upper(), f"{other.stem}.bak"), rng)))
            return
        if change == 6:
            shutil.rmtree(file.parent) if file.parent != root and rng.integers(0, 2) else file.unlink()
            return
        file.unlink()
        if change == 7:
            file.mkdir()
        elif change == 8:
            os.mkfifo(file)
        elif change == 9:
            file.symlink_to(pick(("/dev/zero", "nowhere", file.name, str(root), "/dev/null"), rng))
        else:
            file.write_bytes(b"")

    def read(self, path: Path) -> Any:
        given = {"timesteps": 20, "input_capacity": 4, "bin_seconds": self.bin_seconds}
        data = Data(source=self.source, path=str(path), **given)  # type: ignore[arg-type]
        for lists in open_dataset(data, 1):
            assert (lists.counts >= 0).all()
            assert (lists.counts <= lists.ids.shape[2]).all()
        return []


class NmnistFolder(Folder):
    name = "nmnist folder"
    source = "nmnist"
    write = staticmethod(write_nmnist)


class ShdFolder(Folder):
    """With one reading process for all, as the start of one takes longer than the rest."""

    name = "shd folder"
    source = "shd"
    bin_seconds = 0.05  # its events spread over half a second
    write = staticmethod(write_both_shd)

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.opened.enter_context(one_process())


class DvsFolder(Folder):
    name = "dvs folder"
    source = "dvs_gesture"
    write = staticmethod(write_dvs)


FOLDERS = (NmnistFolder, ShdFolder, DvsFolder)
