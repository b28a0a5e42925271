"""Arrays in files: weights (safetensors, NPZ), checkpoints, what a sweep keeps, and NIR graphs."""

from __future__ import annotations

import io
import json
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import nir_models as nm
import numpy as np
from networks import compiled
from test_training_course import NETWORK, trained

import mimdsim
from hostile.changes import changed
from hostile.limits import one_process
from hostile.recordings import fields_of, mutated
from hostile.running import UNTOLD, Format
from hostile.trees import as_json, changed_tree, pick
from mimdsim.execution import Executor
from mimdsim.execution.checkpoint import Checkpoints, read_checkpoint
from mimdsim.studies.points import parse_axes
from mimdsim.studies.store import load_activity, load_rows
from mimdsim.workload.interchange.nir_neurons import Discretisation
from mimdsim.workload.interchange.nir_nodes import NirGraph, NirNode
from mimdsim.workload.interchange.nir_reading import read_nir
from mimdsim.workload.interchange.nir_walk import network_of_nir
from mimdsim.workload.interchange.weights_file import read_arrays, read_safetensors, write_safetensors

ARRAYS = {
    "w.hidden0": np.arange(12, dtype=np.float32).reshape(4, 3),
    "b.output": np.float32([0.5, -1]),
    "w.output": np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2),
}
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


class Safetensors(Format):
    name = "safetensors"

    def good(self) -> Path:
        path = self.folder / "good.safetensors"
        if not path.exists():
            write_safetensors(path, ARRAYS, {"note": "text"})
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        content = self.good().read_bytes()
        length = 8 + struct.unpack("<Q", content[:8])[0]
        path = self.folder / "mutant.safetensors"
        if rng.integers(0, 3) == 0:
            path.write_bytes(changed(content, [0, *range(8, length)], rng, text=False))
            return path
        header = json.loads(content[8:length])
        if rng.integers(0, 3) == 0:
            for number in range(6_000):
                header[f"t{number // 2}"] = header["b.output"]
            text = json.dumps(header).encode()
            text = text.replace(b'"t1', b'"t2') if rng.integers(0, 2) else text
        else:
            text = as_json(changed_tree(header, rng), rng)
        text += b" " * int(rng.integers(0, 9))
        path.write_bytes(struct.pack("<Q", len(text)) + text + content[length:])
        return path

    def read(self, path: Path) -> Any:
        return read_safetensors(path)

    def says(self, path: Path) -> Any:
        content = path.read_bytes()
        start = 8 + struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:start])
        header.pop("__metadata__", None)
        found = {}
        for name, about in header.items():
            first, stop = about["data_offsets"]
            if about["dtype"] in DTYPES:
                values = np.frombuffer(content[start + first : start + stop], DTYPES[about["dtype"]])
                kept = np.float64 if about["dtype"] == "F64" else np.float32
                found[name] = values.reshape(about["shape"]).astype(kept)
            elif about["dtype"] == "BF16":
                return UNTOLD
        return found


class NpzWeights(Format):
    name = "npz"

    def good(self) -> Path:
        path = self.folder / "good.npz"
        if not path.exists():
            np.savez_compressed(path, **ARRAYS)  # type: ignore[arg-type]
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        path = self.folder / "mutant.npz"
        content = self.good().read_bytes()
        form = pick(("npz", "npz members"), rng)
        path.write_bytes(mutated(form, content, fields_of(form, content), rng))
        return path

    def read(self, path: Path) -> Any:
        return read_arrays(path)

    def says(self, path: Path) -> Any:
        with zipfile.ZipFile(path) as archive, np.errstate(invalid="ignore"):
            names = sorted(archive.namelist())
            arrays = {name: np.lib.format.read_array(io.BytesIO(archive.read(name))) for name in names}
            return {
                name.removesuffix(".npy"): np.ascontiguousarray(
                    array, np.float64 if array.dtype.itemsize == 8 else np.float32
                ).reshape(array.shape)
                for name, array in arrays.items()
                if array.dtype.kind == "f"
            }


def as_tree(text: bytes) -> Any:
    """What JSON says; None where an earlier change has broken it."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def changed_archive(content: bytes, rng: np.random.Generator) -> bytes:
    """A zip archive with members changed, swapped, left out, doubled, renamed or packed otherwise, sums right."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        members = [(info.filename, old.read(info)) for info in old.infolist()]
    for _ in range(int(rng.integers(1, 3))):
        at, other = (int(rng.integers(0, len(members))) for _ in range(2))
        name, held = members[at]
        change = int(rng.integers(0, 6))
        if change <= 1:
            head = int(rng.integers(0, 2)) * 128
            tree = as_tree(held[128:]) if name == "about.npy" and rng.integers(0, 2) else None
            if tree is not None:
                text = np.frombuffer(as_json(changed_tree(tree, rng), rng), np.uint8)
                made = io.BytesIO()
                np.lib.format.write_array(made, text)
                members[at] = name, made.getvalue()
            else:
                members[at] = name, held[:head] + changed(held[head:], [0, 6, 8, 9, 60], rng, text=False)
        elif change == 2:
            members[at] = name, members[other][1]
        elif change == 3 and len(members) > 1:
            del members[at]
        elif change == 4:
            members.append((name, members[other][1]))
        else:
            members[at] = pick((name[:-5] + ".npy", "x" + name, "../" + name), rng), held
    made = io.BytesIO()
    how = pick((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2), rng)
    with zipfile.ZipFile(made, "w", compression=how) as new, warnings.catch_warnings(action="ignore"):  # doubled names
        for name, held in members:
            new.writestr(zipfile.ZipInfo(name), held, compress_type=how)
    result = made.getvalue()
    return changed(result, [0], rng, text=False) if rng.integers(0, 4) == 0 else result


class CheckpointFile(Format):
    """A checkpoint carries a digest of all that it keeps: what is read is what was written."""

    name = "checkpoint"

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._program = compiled(NETWORK).program

    def good(self) -> Path:
        path = self.folder / "good.npz"
        if not path.exists():
            trained(Checkpoints(path=path, digest="a"), epochs=1)
        return path

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        path = self.folder / "mutant.npz"
        content = self.good().read_bytes()
        whole = rng.integers(0, 3) == 0
        path.write_bytes(changed(content, [0], rng, text=False) if whole else changed_archive(content, rng))
        return path

    def read(self, path: Path) -> Any:
        executor = Executor(self._program)
        names = tuple(name for name in self._program.inputs if name.startswith(("w.", "b.", "r.")))
        course = read_checkpoint(Checkpoints(path=path, digest="a", resume=True), executor, names)
        kept = {name: executor.arrays[name] for name, made in self._program.variables.items() if made.persistent}
        activity = course.activity
        spikes = [] if activity is None else [activity.ids, activity.counts, activity.dropped]
        return [kept, course.done, course.right, course.loss, course.scheduled, course.curves, course.best, spikes]

    def says(self, path: Path) -> Any:
        return self.read(self.good())


class SweepFiles(Format):
    """The points and recorded spikes of a sweep; both carry digests, so what is read is what was written."""

    name = "sweep"

    def __init__(self, folder: Path):
        super().__init__(folder)
        axes = parse_axes(("exchange.bytes_per_cycle=2,4", "data.timesteps=4", "training.batch=4", *SMALL))
        mimdsim.sweep("digits", "tiny", axes, training_steps=1, processes=1, folder=folder / "sweep")
        self._good = sorted((folder / "sweep").glob("*/*"))
        self._written = {path: path.read_bytes() for path in self._good}

    def good(self) -> Path:
        return self._good[0]

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        path = pick(self._good, rng)
        content = self._written[path]
        self._place = path
        made = self.folder / path.relative_to(self.folder / "sweep").parent.name / path.name
        made.parent.mkdir(exist_ok=True)
        change = int(rng.integers(0, 4))
        if change == 3:
            made.write_bytes(content)  # which must be read
        elif change == 0:
            made.write_bytes(changed(content, [0], rng, text=path.suffix == ".json"))
        elif change == 1:
            others = [other for other in self._good if other != path and other.suffix == path.suffix]
            made.write_bytes(self._written[pick(others, rng)] if others else b"")
        elif path.suffix == ".json":
            made.write_bytes(as_json(changed_tree(json.loads(content), rng), rng))
        else:
            made.write_bytes(changed_archive(content, rng))
        return made

    def read(self, path: Path) -> Any:
        if path.suffix == ".json":
            return load_rows(path)
        activity, *_ = load_activity(path)
        return [activity.ids, activity.counts]

    def says(self, path: Path) -> Any:
        return self.read(next(good for good in self._good if good.name == path.name))


SMALL = (
    "network.hidden=[16]", "network.capacity=[4, 10]", "data.train_samples=32", "data.test_samples=16", "data.grid=8"
)  # fmt: skip


class NirFile(Format):
    """A NIR graph; what it says is told by h5py where the file was edited, not where its bytes were damaged."""

    name = "nir"

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.opened.enter_context(one_process())
        self._edited = True

    def good(self) -> Path:
        path = self.folder / "model.nir"
        if not path.exists():
            nm.written(self.folder, self.graph())
        return path

    def graph(self) -> NirGraph:
        nodes: dict[str, nm.Node] = {
            "w": nm.node("Affine", weight=nm.weights(4, 6), bias=[0.1, 0.2, 0.3, 0.4]),
            "r": nm.nested(nm.node("Linear", weight=nm.weights(4, 4, 3, 0.3)), nm.synaptic(4), 4),
            "s": nm.node("Scale", scale=[1.5]),
            "w2": nm.node("Linear", weight=nm.weights(3, 4, 2)),
            "n": nm.leaky(3, metadata={"reset": "subtract"}),
        }
        return nm.graph(nodes)

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        path = self.folder / f"mutant{number}.nir"
        content = self.good().read_bytes()
        self._edited = bool(rng.integers(0, 2))
        if not self._edited:
            path.write_bytes(changed(content, list(range(0, len(content) - 8, 4)), rng, text=False))
            return path
        path.write_bytes(content)
        edit_hdf5(path, rng)
        return path

    def read(self, path: Path) -> Any:
        file = read_nir(path)
        network_of_nir(path, file, Discretisation())
        return _of_graph(file)

    def says(self, path: Path) -> Any:
        if path != self.good() and not self._edited:
            return UNTOLD
        import h5py

        with h5py.File(path, "r") as file:
            return _of_group(file["node"])


class NirPlanesFile(NirFile):
    """A NIR graph with convolutions and pools."""

    name = "nir of planes"

    def graph(self) -> NirGraph:
        nodes: dict[str, nm.Node] = {
            "c": nm.conv(3, 2, (3, 3), stride=[2, 1], input_shape=[6, 6], padding=[1, 1]),
            "a": nm.over((3, 3, 6)),
            "p": nm.pool("Sum", [1, 2], [1, 2]),
            "c2": nm.conv(2, 3, (3, 3), padding="same"),
            "q": nm.pool("Avg", [1, 1], [1, 1]),
            "b": nm.over((2, 3, 3)),
            "w": nm.node("Linear", weight=nm.weights(3, 18, 2)),
            "n": nm.leaky(3),
        }
        return nm.graph(nodes, inputs=(2, 6, 6))


def _of_graph(graph: NirGraph) -> Any:
    return {
        name: {key: np.asarray(values, np.float64) for key, values in node.arrays.items()}
        if isinstance(node, NirNode)
        else _of_graph(node)
        for name, node in graph.nodes.items()
    }


def _of_group(group: Any) -> Any:
    """The arrays of a graph's nodes as h5py reads them, by the names that its type knows."""
    from mimdsim.workload.interchange.nir_nodes import NODE_TYPES

    found = {}
    for name, node in group["nodes"].items():
        kind = node["type"][()]
        kind = kind.decode() if isinstance(kind, bytes) else kind
        if kind == "NIRGraph":
            found[name] = _of_group(node)
            continue
        known = NODE_TYPES.get(kind, ())
        found[name] = {
            key: np.asarray(node[key][()], np.float64) for key in known if key in node and not _is_word(node[key])
        }
    return found


def _is_word(held: Any) -> bool:
    return held.dtype.kind in "OS"


def edit_hdf5(path: Path, rng: np.random.Generator) -> None:
    """One to three data sets replaced, cut, moved or left out, by the library that wrote the file."""
    import h5py

    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visit(lambda name: names.append(name))
        for _ in range(int(rng.integers(1, 4))):
            name = pick(names, rng)
            if name not in file:
                continue
            held, change = file[name], int(rng.integers(0, 7))
            if change == 0:
                del file[name]
            elif change == 1:
                file.move(name, name + "x")
            elif change == 2:
                other = pick(names, rng)
                if other in file and not name.startswith(other) and not other.startswith(name):
                    del file[name]
                    file[name] = file[other]
            elif isinstance(held, h5py.Dataset):
                _edit_values(file, name, held[()], rng)


def _edit_values(file: Any, name: str, values: Any, rng: np.random.Generator) -> None:
    array = np.asarray(values)
    if array.dtype.kind in "fiub" and array.size and rng.integers(0, 2):
        array = array.astype(np.float64) if array.dtype.kind == "f" else array.copy()
        with np.errstate(all="ignore"):
            array.flat[int(rng.integers(0, array.size))] = np.asarray(
                pick((0, 1, 5, 127, 2, np.nan, np.inf, 1e308, -1, 1e-300), rng)
            ).astype(array.dtype)
    elif array.dtype.kind in "fiub" and array.ndim:
        array = pick((array[:-1], array.T, array[None], array.reshape(-1), np.repeat(array, 2, axis=0)), rng)
    else:
        array = np.asarray(pick((b"LIF", b"Linear", b"x" * 300, b"\x1b[2J", 3.5, [1, 2], -1), rng))
    del file[name]
    file.create_dataset(name, data=array)


TENSORS = (Safetensors, NpzWeights, CheckpointFile, SweepFiles, NirFile, NirPlanesFile)
