"""What the processes that open HDF5 files read and refuse, called here without a process: exact frames and bounds."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nir_models import graph, leaky, node, weights
from test_readers import write_shd

from mimdsim.base.errors import DataFileError
from mimdsim.workload.data import event_columns, hdf5, shd
from mimdsim.workload.data.hdf5 import FRAME, plain_dataset, serve
from mimdsim.workload.interchange import nir_reading
from mimdsim.workload.interchange.nir_writing import write_nir

h5py = pytest.importorskip("h5py")


def refused(read: Callable[[], object], text: str) -> None:
    with pytest.raises(DataFileError, match=re.escape(text)):
        read()


def file_of(path: Path, **columns: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file[name] = values
    return path


# speech


def shd_values(path: Path, classes: int, chosen: list[int] | None) -> list[list[float]]:
    values = list(shd.read(path, (classes, chosen)))
    assert [each.dtype for each in values] == [np.int64, *([np.float64, np.int64] * (len(values) // 2))]
    return [each.tolist() for each in values]


def test_spikes_of_speech_in_the_order_asked_for(tmp_path: Path) -> None:
    path = write_shd(tmp_path / "a.h5", [[0.0, 60.0], [], [1.5]], [[0, 699], [], [7]], [0, 19, 4])
    assert shd_values(path, 20, None) == [[0, 19, 4]]
    assert shd_values(path, 20, [2, 0, 1]) == [[0, 19, 4], [1.5], [7], [0.0, 60.0], [0, 699], [], []]
    refused(lambda: shd_values(path, 19, None), "/labels, sample 1: class 19 is outside 0 to 18")


@pytest.mark.parametrize(
    ("times", "units", "labels", "text"),
    [
        ([[0.5], [0.25, 60.03]], [[1], [2, 3]], [0, 1], "sample 1: 60.03125 s is outside 0 to 60 seconds"),
        ([[0.5], [0.25, -0.25]], [[1], [2, 3]], [0, 1], "sample 1: -0.25 s is outside"),
        ([[0.5], [0.25, 0.5]], [[1], [2, 700]], [0, 1], "sample 1: channel 700 is outside 0 to 699"),
        ([[0.5], [0.25, 0.5]], [[1], [2]], [0, 1], "sample 1: /spikes/times has 2 entries, /spikes/units has 1"),
        ([[0.5], [0.5]], [[1], [2]], [0], "/spikes/times has shape [2], /labels has 1 samples"),
        ([[0.5], [0.5]], [[1]], [0, 1], "/spikes/units has shape [1], /labels has 2 samples"),
        ([], [], [], "/labels has shape [0]"),
    ],
)
def test_spikes_that_cannot_be_are_refused(
    tmp_path: Path, times: list[Any], units: list[Any], labels: list[int], text: str
) -> None:
    path = write_shd(tmp_path / "a.h5", times, units, labels)
    refused(lambda: shd_values(path, 20, [1]), text)


def test_kinds_and_lengths_of_speech(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.h5"
    refused(lambda: shd_values(file_of(path, labels=[[1]]), 20, None), "/labels has shape [1, 1]")
    refused(lambda: shd_values(file_of(path, labels=[0.5]), 20, None), "/labels does not hold integers")
    refused(lambda: shd_values(file_of(path, labels=["a"]), 20, None), "/labels does not hold integers")
    refused(lambda: shd_values(file_of(path, labels=[-1]), 20, None), "class -1 is outside 0 to 19")
    given = {"labels": [0], "spikes/times": [0.5], "spikes/units": [1]}
    refused(lambda: shd_values(file_of(path, **given), 20, [0]), "/spikes/times does not hold lists of real numbers")
    monkeypatch.setattr(shd, "MAX_SAMPLES", 2)
    assert shd_values(file_of(path, labels=[1, 2]), 20, None) == [[1, 2]]
    refused(lambda: shd_values(file_of(path, labels=[1, 2, 3]), 20, None), "/labels has shape [3]")
    seconds, channels = np.array([[0.5]]), np.array([[1]])
    refused(lambda: shd._check_sample(path, seconds, channels, 3), "sample 3: /spikes/times has 1 entries")
    refused(lambda: shd._check_sample(path, seconds[0], -channels[0], 3), "channel -1 is outside 0 to 699")
    assert (shd.CHANNELS, shd.MAX_SAMPLE_SECONDS) == (700, 60.0)


# columns of events


def test_columns_of_events_by_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of(
        tmp_path / "a.h5",
        x=np.arange(5, dtype="u1"), t_seconds=np.linspace(0, 1, 5, dtype="f4"), labels=[True, False], other=[[1]],
    )  # fmt: skip
    (about,) = event_columns.read(path, None)
    assert about == {"labels": ("i", 2), "t_seconds": ("f", 5), "x": ("i", 5)}
    found = list(event_columns.read(path, (["x", "t_seconds"], [[1, 3], [4, 5]])))
    assert [values.dtype for values in found] == [np.int64, np.float64, np.int64, np.float64]
    assert [values.tolist() for values in found] == [[1, 2], [0.25, 0.5], [4], [1.0]]
    refused(lambda: list(event_columns.read(path, (["other"], []))), "/other has the shape [1, 1]")
    monkeypatch.setattr(event_columns, "MAX_EVENTS", 5)
    assert list(event_columns.read(path, (["x"], []))) == []
    monkeypatch.setattr(event_columns, "MAX_EVENTS", 4)
    refused(lambda: list(event_columns.read(path, (["x"], []))), "/x has 5 entries, over 4")


# NIR


def nir_values(path: Path) -> tuple[Any, list[list[float]]]:
    about, *arrays = nir_reading.read(path, None)
    assert {values.dtype for values in arrays} <= {np.dtype(np.float64)}
    return json.loads(json.dumps(about)), [values.ravel().tolist() for values in arrays]


def small_model(path: Path) -> Path:
    nodes = {"w": node("Linear", weight=weights(3, 6)), "lif": leaky(3)}
    write_nir(path, graph(nodes))
    return path


def test_a_graph_with_its_arrays_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_model(tmp_path / "a.nir")
    about, arrays = nir_values(path)
    nodes = about["nodes"]
    assert {name: each["kind"] for name, each in nodes.items()} == {
        "input": "Input", "lif": "LIF", "output": "Output", "w": "Linear",
    }  # fmt: skip
    assert nodes["w"]["arrays"] == {"weight": [3, 6]}
    assert sorted(about["edges"]) == [["input", "w"], ["lif", "output"], ["w", "lif"]]
    assert [values for values in arrays if len(values) == 18] == [weights(3, 6).ravel().tolist()]
    monkeypatch.setattr(nir_reading, "PIECE_VALUES", 12)  # two rows of the weights at once
    pieces = [len(values) for values in nir_values(path)[1]]
    assert pieces[-2:] == [12, 6]
    monkeypatch.setattr(nir_reading, "PIECE_VALUES", 6)
    assert [len(values) for values in nir_values(path)[1]][-3:] == [6, 6, 6]
    monkeypatch.setattr(nir_reading, "PIECE_VALUES", 5)
    refused(lambda: nir_values(path), "/node/nodes/w/weight has rows of 6 values, over 5")


VALUES = 1 + 1 + 3 * 5 + 18  # shapes of input and output, five arrays of the neurons, weights


@pytest.mark.parametrize(
    ("bound", "enough", "text"),
    [
        ("MAX_NODES", 4, "has 4 entries, over 3"),
        ("MAX_EDGES", 3, "/node/edges has 3 edges, over 2"),
        ("MAX_VALUES", VALUES, f"has over {VALUES - 1} values up to /node/nodes/w/weight of shape [3, 6]"),
        ("MAX_DIMENSIONS", 2, "/node/nodes/w/weight has 2 dimensions, over 1"),
        ("MAX_NAME", 8, "has a text of 8 bytes, over 7"),
    ],
)
def test_bounds_of_a_graph_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, enough: int, text: str
) -> None:
    path = small_model(tmp_path / "a.nir")
    monkeypatch.setattr(nir_reading, bound, enough)
    nir_values(path)
    monkeypatch.setattr(nir_reading, bound, enough - 1)
    refused(lambda: nir_values(path), text)


def test_nodes_are_counted_over_all_graphs_and_their_depth_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = graph({"lif": leaky(3)}, inputs=3)
    path = tmp_path / "a.nir"
    write_nir(path, graph({"inner": inner}, inputs=3))
    assert nir_values(path)[0]["nodes"]["inner"]["nodes"].keys() == {"input", "lif", "output"}
    monkeypatch.setattr(nir_reading, "MAX_NODES", 6)
    nir_values(path)
    monkeypatch.setattr(nir_reading, "MAX_NODES", 5)
    refused(lambda: nir_values(path), "has over 5 nodes")
    monkeypatch.setattr(nir_reading, "MAX_NODES", 6)
    monkeypatch.setattr(nir_reading, "MAX_DEPTH", 1)
    nir_values(path)
    monkeypatch.setattr(nir_reading, "MAX_DEPTH", 0)
    refused(lambda: nir_values(path), "nests graphs deeper than 0")


def changed_model(path: Path, **changes: Any) -> Path:
    """The small model with data sets replaced, or dropped where None is given."""
    small_model(path)
    with h5py.File(path, "r+") as file:
        for name, values in changes.items():
            place = name.replace("__", "/")
            if place in file:
                del file[place]
            if values is not None:
                file[place] = values
    return path


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"node__type": "LIF"}, "/node/type is 'LIF', not NIRGraph"),
        ({"node__nodes__w__weight": None}, "/node/nodes/w is a Linear without 'weight'; it has type"),
        ({"node__nodes__w__weight": np.array(["a"], "S1")}, "/node/nodes/w/weight holds |S1, not numbers"),
        ({"node__nodes__w__weight": np.zeros((0, 3))}, "/node/nodes/w/weight is empty, its shape is [0, 3]"),
        ({"node__edges": [["a"]]}, "/node/edges has the shape [1, 1]; edges are pairs of names"),
        ({"node__edges": ["a", "b"]}, "/node/edges has the shape [2]; edges are pairs of names"),
        ({"node__edges": [[1, 2]]}, "not names of nodes"),
        ({"node__nodes__w__type": ["Linear"]}, "not a text"),
        ({"node__nodes__w__type": 3}, "not a text"),
        ({"node__nodes__w__type": b"\xff"}, "/node/nodes/w/type is not UTF-8"),
        ({"node__nodes__w__type": "a\x07"}, "has unprintable characters"),
        ({"node__nodes": 3}, "/node/nodes is not a group"),
        ({"node__nodes": None}, "has no group /node/nodes"),
    ],
)
def test_a_graph_that_is_none_is_refused(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    refused(lambda: nir_values(changed_model(tmp_path / "a.nir", **changes)), text)


def test_what_a_graph_may_lack(tmp_path: Path) -> None:
    """Edges, a version, and what is not text among the metadata; a number alone is one value."""
    path = changed_model(
        tmp_path / "a.nir", version=None, node__edges=np.zeros((0, 2)), node__nodes__w__weight=2.5,
        node__nodes__w__metadata__said="so", node__nodes__w__metadata__number=3, node__nodes__w__metadata__many=["a"],
    )  # fmt: skip
    about, arrays = nir_values(path)
    assert about["edges"] == []
    expected = {"kind": "Linear", "arrays": {"weight": []}, "metadata": {"said": "so"}, "words": {}}
    assert about["nodes"]["w"] == expected
    assert arrays[-1] == [2.5]


# what they share


def test_chunks_and_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {1, 2, 3, 4, 5, 6} == hdf5.BUILT_IN_FILTERS
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(24).reshape(4, 6), chunks=(2, 6), compression="gzip", shuffle=True)
        file.create_dataset("empty", data=h5py.Empty("i4"))
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((4,))
        properties.set_shuffle()
        properties.set_shuffle()
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"twice", h5py.h5t.NATIVE_INT32, space, properties)

        def plain(name: str) -> Any:
            return plain_dataset(path, file, name, expected="x")

        monkeypatch.setattr(hdf5, "MAX_CHUNK_VALUES", 12)
        assert plain("x").shape == (4, 6)
        monkeypatch.setattr(hdf5, "MAX_CHUNK_VALUES", 11)
        refused(lambda: plain("x"), "/x is stored in chunks of 12, over 11")
        refused(lambda: plain("empty"), "/empty is empty")
        refused(lambda: plain("twice"), "/twice is packed 2 times over with the same filter")
        refused(lambda: plain("x/y"), "has no data set /x/y; expected are x")
        monkeypatch.setattr(hdf5, "BUILT_IN_FILTERS", frozenset({1}))
        refused(lambda: plain("x"), "/x is packed with filter 2, a plug-in")


def test_every_request_has_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames as they come, then the end; of a refusal the reason; of anything else what a damaged file is."""
    monkeypatch.setattr(hdf5, "_limit", lambda *_: None)  # of a process of its own, which this is not

    def read(path: Path, wanted: Any) -> Iterator[Any]:
        yield f"{path.name} {wanted}"
        if wanted == 1:
            raise DataFileError(path, "is refused")
        if wanted == 2:
            raise OSError("broken")
        yield np.arange(2)
        yield np.array([0.5])

    monkeypatch.setattr(nir_reading, "read", read)
    answers = io.BytesIO()
    requests = [json.dumps([nir_reading.__name__, "read", "a/b", number]) for number in range(3)]
    serve(io.BytesIO("\n".join(requests).encode()), answers)
    content, found = answers.getvalue(), []
    while content:
        kind, length = FRAME.unpack(content[: FRAME.size])
        found.append((kind, content[FRAME.size : FRAME.size + length]))
        content = content[FRAME.size + length :]
    assert found == [
        (b"J", b'"b 0"'), (b"I", np.arange(2).tobytes()), (b"F", np.array([0.5]).tobytes()), (b"Z", b""),
        (b"J", b'"b 1"'), (b"E", b"is refused"),
        (b"J", b'"b 2"'), (b"E", b"is damaged or not HDF5: broken; fetch it again"),
    ]  # fmt: skip
