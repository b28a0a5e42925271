"""NIR files read into records, through a separate process because the HDF5 library can crash on a damaged file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.workload.data.files.hdf5_reading import FRAME_SECONDS, Hdf5Process
from mimdsim.workload.interchange.nir_nodes import NirFile, NirGraph, NirNode, Reals

_MODULE, _PURPOSE = "mimdsim.workload.interchange.nir_process", "reading NIR files"


def reading_process(frame_seconds: float = FRAME_SECONDS) -> Hdf5Process:
    """A process that can read any number of NIR files, one after the other."""
    return Hdf5Process(_MODULE, _PURPOSE, frame_seconds)


def read_nir(path: Path, process: Hdf5Process | None = None) -> NirFile:
    """The graph in a NIR file; `process` may be one that has read other files.

    Raises DataFileError for a file that is missing, damaged, over a bound or not NIR; MissingExtra without h5py.
    Unsupported node types are kept by name, without arrays: `network_of_nir` says what they would need.
    """
    if process is None:
        with reading_process() as started:
            return read_nir(path, started)
    frames = process.answers(path, None, missing="no such file")
    kind, content = next(frames, (b"", b""))
    if kind != b"J":
        raise DataFileError(path, "gave no graph")
    described = json.loads(content)
    graph = _graph(path, described["graph"], frames)
    for _ in frames:  # the process starts the next request only when this one has been read to its end
        raise DataFileError(path, "was changed while it was read")
    return NirFile(version=described["version"], graph=graph)


def _graph(path: Path, described: dict[str, Any], frames: Iterator[tuple[bytes, bytes]]) -> NirGraph:
    nodes: dict[str, NirNode | NirGraph] = {}
    for name, node in described["nodes"].items():
        if "edges" in node:
            nodes[name] = _graph(path, node, frames)
            continue
        arrays = {array: _array(path, shape, frames) for array, shape in node["arrays"].items()}
        nodes[name] = NirNode(kind=node["kind"], arrays=arrays, metadata=node["metadata"])
    return NirGraph(nodes=nodes, edges=tuple((start, end) for start, end in described["edges"]))


def _array(path: Path, shape: list[int], frames: Iterator[tuple[bytes, bytes]]) -> Reals:
    values = np.empty(math.prod(shape))
    at = 0
    while at < values.size:
        _, content = next(frames, (b"", b""))
        piece = np.frombuffer(content, np.float64)
        if not piece.size or at + piece.size > values.size:
            raise DataFileError(path, f"gave {at + piece.size} values for an array of {values.size}")
        values[at : at + piece.size] = piece
        at += piece.size
    return values.reshape(shape)
