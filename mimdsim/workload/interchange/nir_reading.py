"""NIR files read into records.

The walk over a file, in the process that opens it, has bounds on depth, nodes, edges, names and values, so that it ends
even if groups contain themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.workload.data.hdf5 import follow_links, plain_dataset, values_of
from mimdsim.workload.interchange.nir_nodes import (
    GRAPH,
    MAX_DEPTH,
    MAX_EDGES,
    MAX_NAME,
    MAX_NODES,
    MAX_VALUES,
    NODE_TYPES,
    OPTIONAL,
    WORDS,
    NirGraph,
    NirNode,
    Reals,
)

PIECE_VALUES = 1 << 20  # 8 MiB of float64 at once
MAX_DIMENSIONS = 8


def read_nir(path: Path) -> NirGraph:
    """The graph in a NIR file.

    Raises DataFileError for a file that is missing, damaged, over a bound or not NIR; MissingExtra without h5py.
    Unsupported node types are kept by name, without arrays: `network_of_nir` says what they would need.
    """
    values = values_of(read, path, None, purpose="reading NIR files")
    graph = _graph(path, next(values), values)
    for _ in values:  # the process is asked again only when its answer has been read to its end
        raise DataFileError(path, "was changed while it was read")
    return graph


def _graph(path: Path, described: dict[str, Any], pieces: Iterator[Reals]) -> NirGraph:
    nodes: dict[str, NirNode | NirGraph] = {}
    for name, node in described["nodes"].items():
        if "edges" in node:
            nodes[name] = _graph(path, node, pieces)
            continue
        arrays = {array: _array(path, shape, pieces) for array, shape in node["arrays"].items()}
        nodes[name] = NirNode(kind=node["kind"], arrays=arrays, metadata=node["metadata"], words=node["words"])
    return NirGraph(nodes=nodes, edges=tuple((start, end) for start, end in described["edges"]))


def _array(path: Path, shape: list[int], pieces: Iterator[Reals]) -> Reals:
    values = np.empty(math.prod(shape))
    at = 0
    while at < values.size:
        piece = next(pieces, np.empty(0))
        if not piece.size or at + piece.size > values.size:
            raise DataFileError(path, f"gave {at + piece.size} values for an array of {values.size}")
        values[at : at + piece.size] = piece
        at += piece.size
    return values.reshape(shape)


def read(path: Path, _wanted: None) -> Iterator[Any]:
    """In the process that opens the file: the whole graph, with the name and shape of every array, then the values of
    these arrays in that order, float64, in pieces."""
    import h5py

    with h5py.File(path, "r") as file:
        walk = _Walk(path, file)
        if walk.text("node/type") != GRAPH:
            raise DataFileError(path, f"/node/type is '{walk.text('node/type')}', not {GRAPH}")
        yield walk.graph("node", 0)
        for dataset in walk.pending:
            yield from _pieces(dataset)


def _pieces(dataset: Any) -> Iterator[Reals]:
    """Values of a data set in their order, PIECE_VALUES at most at once."""
    if dataset.shape == ():
        yield np.array([dataset[()]], np.float64)
        return
    rows = max(1, PIECE_VALUES // max(1, math.prod(dataset.shape[1:])))
    for first in range(0, dataset.shape[0], rows):
        yield np.ascontiguousarray(dataset[first : first + rows], dtype=np.float64)


class _Walk:
    """One pass over a file: its graph as plain values, and the data sets still to be sent."""

    def __init__(self, path: Path, file: Any):
        self._path, self._file = path, file
        self._nodes = self._values = 0
        self.pending: list[Any] = []

    def graph(self, place: str, depth: int) -> dict[str, Any]:
        """The graph in group `place`: {"nodes": {name: node}, "edges": [[from, to]]}."""
        if depth > MAX_DEPTH:
            raise DataFileError(self._path, f"/{place[:80]}... nests graphs deeper than {MAX_DEPTH}")
        nodes = {}
        for name in self._names(f"{place}/nodes"):
            self._nodes += 1
            if self._nodes > MAX_NODES:
                raise DataFileError(self._path, f"has over {MAX_NODES} nodes")
            nodes[name] = self._node(f"{place}/nodes/{name}", depth)
        return {"nodes": nodes, "edges": self._edges(f"{place}/edges")}

    def _node(self, place: str, depth: int) -> dict[str, Any]:
        kind = self.text(f"{place}/type")
        if kind == GRAPH:
            return self.graph(place, depth + 1)
        arrays: dict[str, Any] = {}
        known, group = kind in NODE_TYPES, self._group(place)
        words: dict[str, str] = {}
        for name in NODE_TYPES.get(kind, ()):
            if name in group:
                found = plain_dataset(self._path, self._file, f"{place}/{name}", expected="the arrays of its type")
                if name in WORDS and _holds_texts(found):
                    words[name] = self.text(f"{place}/{name}")
                else:
                    arrays[name] = self._array(f"{place}/{name}", found)
            elif name not in OPTIONAL:
                has = ", ".join(self._names(place)[:20])
                raise DataFileError(self._path, f"/{place} is a {kind} without '{name}'; it has {has}")
        noted = self._metadata(f"{place}/metadata") if known and "metadata" in group else {}
        return {"kind": kind, "arrays": arrays, "metadata": noted, "words": words}

    def _array(self, place: str, found: Any) -> list[int]:
        if found.dtype.kind not in "fiu" or found.dtype.itemsize > 8:
            raise DataFileError(self._path, f"/{place} holds {found.dtype}, not numbers of at most 8 bytes")
        shape = [int(extent) for extent in found.shape]
        if len(shape) > MAX_DIMENSIONS:
            raise DataFileError(self._path, f"/{place} has {len(shape)} dimensions, over {MAX_DIMENSIONS}")
        if 0 in shape:
            raise DataFileError(self._path, f"/{place} is empty, its shape is {shape}")
        self._values += math.prod(shape)
        if self._values > MAX_VALUES:
            raise DataFileError(self._path, f"has over {MAX_VALUES} values up to /{place} of shape {shape}")
        if math.prod(shape[1:]) > PIECE_VALUES:
            raise DataFileError(self._path, f"/{place} has rows of {math.prod(shape[1:])} values, over {PIECE_VALUES}")
        self.pending.append(found)
        return shape

    def _edges(self, place: str) -> list[list[str]]:
        found = plain_dataset(self._path, self._file, place, expected="/node/nodes and /node/edges")
        if 0 in found.shape:
            return []
        if len(found.shape) != 2 or found.shape[1] != 2:
            raise DataFileError(self._path, f"/{place} has the shape {list(found.shape)}; edges are pairs of names")
        if found.shape[0] > MAX_EDGES:
            raise DataFileError(self._path, f"/{place} has {found.shape[0]} edges, over {MAX_EDGES}")
        if not _holds_texts(found):
            raise DataFileError(self._path, f"/{place} holds {found.dtype}, not names of nodes")
        return [[self._decoded(place, end) for end in pair] for pair in found[()]]

    def text(self, place: str) -> str:
        """The text in data set `place`."""
        found = plain_dataset(self._path, self._file, place, expected="/version and /node as NIR writes them")
        if not _holds_texts(found) or found.shape != ():
            raise DataFileError(self._path, f"/{place} holds {found.dtype} of shape {list(found.shape)}, not a text")
        return self._decoded(place, found[()])

    def _metadata(self, place: str) -> dict[str, str]:
        """The entries of group `place` that are short texts; a file may contain anything there."""
        import h5py

        group, texts = self._group(place), {}
        for name in self._names(place):
            found = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
            if isinstance(found, h5py.Dataset) and _holds_texts(found) and found.shape == ():
                texts[name] = self.text(f"{place}/{name}")
        return texts

    def _decoded(self, place: str, content: Any) -> str:
        if isinstance(content, bytes) and len(content) > MAX_NAME:
            raise DataFileError(self._path, f"/{place} has a text of {len(content)} bytes, over {MAX_NAME}")
        try:
            text = content.decode() if isinstance(content, bytes) else str(content)
        except UnicodeDecodeError:
            raise DataFileError(self._path, f"/{place} is not UTF-8: {content[:40]!r}") from None
        if not text.isprintable():
            raise DataFileError(self._path, f"/{place} has unprintable characters: {text[:40]!r}")
        return text

    def _group(self, place: str) -> Any:
        import h5py

        missing = f"has no group /{place}; a NIR file has /node/nodes and /node/edges"
        group = follow_links(self._path, self._file, place, missing)
        if not isinstance(group, h5py.Group):
            raise DataFileError(self._path, f"/{place} is not a group")
        return group

    def _names(self, place: str) -> list[str]:
        group = self._group(place)
        if len(group) > MAX_NODES:
            raise DataFileError(self._path, f"/{place} has {len(group)} entries, over {MAX_NODES}")
        return [self._decoded(place, name.encode(errors="surrogateescape")) for name in group]


def _holds_texts(dataset: Any) -> bool:
    import h5py

    return h5py.check_string_dtype(dataset.dtype) is not None
