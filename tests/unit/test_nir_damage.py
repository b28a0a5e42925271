"""NIR files that are damaged or hostile: each is loaded or refused with a reason; none hangs or takes over 1 GB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nir_models as nm
import numpy as np
import pytest

from mimdsim.base.errors import DataFileError, MissingExtra
from mimdsim.workload.data import hdf5
from mimdsim.workload.interchange import nir_nodes
from mimdsim.workload.interchange.nir_reading import read_nir

h5py = pytest.importorskip("h5py")
LIMIT_SECONDS = 10.0
LIMIT_BYTES = 10**9

GOOD = nm.graph(
    {
        "w": nm.node("Affine", weight=nm.weights(4, 6), bias=[0.1, 0.2, 0.3, 0.4]),
        "r": nm.nested(nm.node("Linear", weight=nm.weights(4, 4, 3, 0.3)), nm.synaptic(4), 4),
        "s": nm.node("Scale", scale=[1.5]),
        "w2": nm.node("Linear", weight=nm.weights(3, 4, 2)),
        "n": nm.leaky(3, metadata={"reset": "subtract"}),
    }
)


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    with patch.object(hdf5, "FRAME_SECONDS", LIMIT_SECONDS), hdf5.shared_process():
        yield


def edited(folder: Path, edit: Callable[[Any], None]) -> Path:
    """A good file after `edit` of the opened HDF5 file."""
    path = nm.written(folder, GOOD)
    with h5py.File(path, "r+") as file:
        edit(file)
    return path


def replaced(name: str, **how: Any) -> Callable[[Any], None]:
    """An edit that puts another data set in the place of `name`."""

    def edit(file: Any) -> None:
        if name in file:
            del file[name]
        file.create_dataset(name, **how)

    return edit


def without(name: str) -> Callable[[Any], None]:
    def edit(file: Any) -> None:
        del file[name]

    return edit


def linked(name: str, link: Any) -> Callable[[Any], None]:
    def edit(file: Any) -> None:
        del file[name]
        file[name] = link

    return edit


def contains_itself(file: Any) -> None:
    file["node/nodes/r/nodes/again"] = file["node/nodes/r"]


def packed_by_plug_in(file: Any) -> None:
    del file["node/nodes/w/weight"]
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((4, 6))
    settings.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    space = h5py.h5s.create_simple((4, 6))
    h5py.h5d.create(file["node/nodes/w"].id, b"weight", h5py.h5t.IEEE_F32LE, space, settings)


def many_nodes(file: Any) -> None:
    for number in range(nir_nodes.MAX_NODES + 1):
        file["node/nodes"][f"n{number}"] = file["node/nodes/s"]


TEXT = h5py.string_dtype()
HOSTILE: dict[str, tuple[Callable[[Any], None], str]] = {
    "no graph": (without("node"), "/node/type; expected are /version and /node"),
    "no nodes": (without("node/nodes"), "has no group /node/nodes; a NIR file has /node/nodes and /node/edges"),
    "no edges": (without("node/edges"), "has no data set /node/edges"),
    "no type": (without("node/nodes/w/type"), "has no data set /node/nodes/w/type"),
    "no weight": (without("node/nodes/w/weight"), "/node/nodes/w is a Affine without 'weight'; it has bias, type"),
    "not a graph": (replaced("node/type", data="LIF", dtype=TEXT), "/node/type is 'LIF', not NIRGraph"),
    "type a number": (replaced("node/nodes/w/type", data=3), "/node/nodes/w/type holds int64 of shape .., not a text"),
    "long name": (replaced("node/nodes/w/type", data="x" * 300, dtype=TEXT), "has a text of 300 bytes, over 200"),
    "bell": (replaced("node/nodes/w/type", data="\a", dtype=TEXT), "has unprintable characters"),
    "not utf-8": (replaced("node/nodes/w/type", data=np.bytes_(b"\xff\xfe")), "/node/nodes/w/type is not UTF-8"),
    "text as weight": (
        replaced("node/nodes/w/weight", data="much", dtype=TEXT),
        "/node/nodes/w/weight holds object, not",
    ),
    "complex": (replaced("node/nodes/w/weight", data=np.ones(3) * 1j), "/node/nodes/w/weight holds complex128, not"),
    "empty": (replaced("node/nodes/w/weight", shape=(0, 6), dtype="f4"), r"weight is empty, its shape is \[0, 6\]"),
    "too large": (replaced("node/nodes/w/weight", shape=(1 << 20, 64), dtype="f4"), "has over 33554432 values"),
    "long rows": (replaced("node/nodes/w/weight", shape=(2, 1 << 21), dtype="f4"), "rows of 2097152 values"),
    "many dimensions": (replaced("node/nodes/w/weight", shape=(1,) * 9, dtype="f4"), "has 9 dimensions, over 8"),
    "edges of three": (
        replaced("node/edges", data=np.array([["a"] * 3], object), dtype=TEXT),
        "edges are pairs of names",
    ),
    "edges of numbers": (replaced("node/edges", data=np.ones((3, 2))), "/node/edges holds float64, not names"),
    "many edges": (replaced("node/edges", shape=(20_000, 2), dtype=TEXT), "has 20000 edges, over 16384"),
    "soft link": (linked("node/nodes/w/weight", h5py.SoftLink("/node/nodes/w2/weight")), "is a link to somewhere else"),
    "soft group": (linked("node/nodes/w", h5py.SoftLink("/node/nodes/w2")), "is a link to somewhere else"),
    "external link": (linked("node/nodes/w", h5py.ExternalLink("other.h5", "/")), "is a link to somewhere else"),
    "contains itself": (contains_itself, "nests graphs deeper than 8"),
    "many nodes": (many_nodes, "entries, over 4096"),
    "plug-in": (packed_by_plug_in, "is packed with filter 32015, a plug-in"),
}


@pytest.mark.first(6)
@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    edit, words = HOSTILE[name]
    path = edited(tmp_path, edit)
    with pytest.raises(DataFileError, match=words) as caught:
        read_nir(path)
    assert str(path) in str(caught.value)


def test_missing_foreign_and_truncated_files(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="no such file"):
        read_nir(tmp_path / "none.nir")
    (tmp_path / "text.nir").write_text("node: LIF\n")
    with pytest.raises(DataFileError, match="is damaged or not HDF5"):
        read_nir(tmp_path / "text.nir")
    whole = nm.written(tmp_path, GOOD).read_bytes()
    for share in (0.2, 0.5, 0.9):
        (tmp_path / "cut.nir").write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(DataFileError, match="is damaged or not HDF5"):
            read_nir(tmp_path / "cut.nir")


def test_reading_without_h5py_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = nm.written(tmp_path, GOOD)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"reading NIR files needs the package 'h5py': type  pip install 'mimdsim\[data\]'"
    ):
        read_nir(path)


def test_fixed_length_text_packed_arrays_and_other_metadata_are_read(tmp_path: Path) -> None:
    def edit(file: Any) -> None:
        replaced("node/nodes/w/type", data=np.bytes_("Affine"))(file)
        replaced("node/nodes/w/weight", data=np.ones((4, 6), ">f2"), chunks=(2, 3), compression="gzip", shuffle=True)(
            file
        )
        file["node/nodes/n/metadata"].create_group("more")
        file["node/nodes/n/metadata/dt"] = 1e-3
        file["node/nodes/s/metadata"] = file["node/nodes/n/metadata"]

    file = read_nir(edited(tmp_path, edit))
    first, last = file.nodes["w"], file.nodes["n"]
    assert isinstance(first, nir_nodes.NirNode)
    assert isinstance(last, nir_nodes.NirNode)
    np.testing.assert_array_equal(first.arrays["weight"], np.ones((4, 6)))
    assert last.metadata == {"reset": "subtract"}


@pytest.mark.slow
def test_large_arrays_come_in_pieces(tmp_path: Path) -> None:
    weight = np.arange(1500 * 2000, dtype=np.float32).reshape(1500, 2000)
    file = read_nir(nm.written(tmp_path, nm.graph({"w": nm.node("Linear", weight=weight)}, inputs=2000, outputs=1500)))
    node = file.nodes["w"]
    assert isinstance(node, nir_nodes.NirNode)
    np.testing.assert_array_equal(node.arrays["weight"], weight)
