"""Weights in files: NPZ, which is read, and safetensors, read and written: eight bytes of length, a JSON header, then
the values of all tensors. Pickles are refused, names and shapes are checked; those of PyTorch turned
into those of a network.

Tensors are read with the package of that name, which executes nothing from a file. This module adds bounds, refuses
repeated names (the package takes the last), and reads bfloat16, which the package's numpy interface lacks.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, deserialize

from mimdsim.base.errors import DataFileError, DescriptionError, shortened, suggest
from mimdsim.base.files import open_data, parse_json, write_atomically
from mimdsim.base.npz_reader import NpzFile
from mimdsim.graph.names import INPUT, ROLES
from mimdsim.workload.interchange.nir_nodes import MAX_VALUES

MAX_HEADER_BYTES = 4 << 20  # assumed: a tensor takes about 100 bytes of it; the format allows 100 MB
MAX_FILE_BYTES = MAX_HEADER_BYTES + 8 * MAX_VALUES
MAX_TENSORS = 16_384
MAX_DIMENSIONS = 8
_LENGTH = struct.Struct("<Q")
# How values are stored; BF16 is the upper half of a float32. Whole numbers and booleans are ignored.
_STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

Array = npt.NDArray[Any]
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin")
_PICKLE = b"\x80"
_INSTEAD = (
    'is a pickle, which runs code when it is read; if you trust it, type  python -c "import torch; from '
    "safetensors.torch import save_file; save_file(torch.load('{name}', weights_only=True), '{stem}.safetensors')\""
)


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of floats in a .safetensors or .npz file.

    Raises DataFileError; for pickles it says what to type instead.
    """
    with open_data(path) as file:
        start = file.read(8)
    suffix = path.suffix.lower()
    if suffix in _PICKLES or (start[:1] == _PICKLE and start[1:2] in b"\x02\x03\x04\x05" and suffix != ".safetensors"):
        raise DataFileError(path, _INSTEAD.format(name=path.name, stem=path.stem))
    if suffix == ".npz":
        return _read_npz(path)
    if suffix == ".safetensors":
        return read_safetensors(path)
    raise DataFileError(path, f"ends in '{suffix}'; weights are read from .safetensors and .npz files")


def _read_npz(path: Path) -> dict[str, Array]:
    """The arrays of floats in an NPZ file (numpy.savez, numpy.savez_compressed), float32 (float64 if stored so), in the
    order of their names.

    Raises DataFileError for files that numpy would not write, objects, damage, or sizes over a bound.
    """
    arrays: dict[str, Array] = {}
    values = 0
    with NpzFile(path) as file:
        for info in sorted(file.infos, key=lambda info: info.filename):
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in arrays:
                what = "given twice" if name in arrays else "not an array"
                raise DataFileError(path, f"member '{name[:80]}' is {what}")
            member = file.member(info)
            values += member.entries
            if max(values, *member.shape, 0) > MAX_VALUES:
                raise member.refused(f"has the shape {member.shape}; with it there are over {MAX_VALUES} values")
            arrays[name] = file.whole(member)
    floats = {name: array for name, array in arrays.items() if array.dtype.kind == "f"}
    with np.errstate(invalid="ignore"):  # widening some NaNs raises warnings
        return {
            name: array.astype(np.float64 if array.dtype.itemsize == 8 else np.float32, order="C")
            for name, array in floats.items()
        }


def check_weights(
    path: Path, arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, npt.NDArray[np.float32]]:
    """float32 arrays for every name of `shapes`; others in the file are ignored unless they are named like weights.

    Raises DataFileError that lists everything that is missing, has another shape or is not finite.
    """
    problems = []
    for name, shape in shapes.items():
        if name not in arrays:
            problems.append(f"'{name}' {list(shape)} is missing{suggest(name, arrays)}")
        elif not _same(arrays[name].shape, shape):
            problems.append(f"'{name}' has the shape {list(arrays[name].shape)}, the network's is {list(shape)}")
        elif not np.all(np.abs(arrays[name]) <= np.finfo(np.float32).max):
            problems.append(f"'{name}' holds values that are not finite in float32")
    unused = [name for name in arrays if name not in shapes and name.partition(".")[0] in ROLES.values()]
    problems += [f"'{name}' belongs to no layer of the network{suggest(name, shapes)}" for name in unused]
    if problems:
        raise DataFileError(path, "; ".join(problems[:20]))
    return {name: np.ascontiguousarray(arrays[name], dtype=np.float32).reshape(shape) for name, shape in shapes.items()}


def _same(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Equal, or a row [1, neurons] given as [neurons]."""
    return given == wanted or (len(wanted) == 2 and wanted[0] == 1 and given == wanted[1:])


def read_safetensors(path: Path) -> dict[str, Array]:
    """The tensors of floats in a file, float32 (float64 if stored so), in the order of their names.

    Raises DataFileError for anything that the format does not allow or that is over a bound.
    """
    with open_data(path) as file:
        _header(path, file)
        file.seek(0)
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise DataFileError(path, f"is over {MAX_FILE_BYTES:,} bytes long")
    try:
        tensors = deserialize(content)
    except SafetensorError as problem:
        raise DataFileError(path, f"is not safetensors, or damaged: {shortened(str(problem), 200)}") from None
    del content
    floats = sorted((each for each in tensors if each[1]["dtype"] in _STORED), key=lambda each: each[0])
    for name, about in floats:
        if len(about["shape"]) > MAX_DIMENSIONS or max(about["shape"], default=0) > MAX_VALUES:
            shape = shortened(str(about["shape"]))
            raise DataFileError(path, f"tensor '{shortened(name)}' has the shape {shape}, which no network has")
    if sum(math.prod(about["shape"]) for _, about in floats) > MAX_VALUES:
        raise DataFileError(path, f"has over {MAX_VALUES} values")
    return {name: _values(**about) for name, about in floats}


def read_notes(path: Path, missing: str = "no such file") -> dict[str, str]:
    """The notes in the header of a file; raises DataFileError for an invalid header, for notes that are not text, and
    with `missing` if there is no file."""
    with open_data(path, missing) as file:
        notes = _header(path, file).get("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise DataFileError(path, "has notes (__metadata__) that are not text", byte_offset=_LENGTH.size)
    return notes


def write_safetensors(path: Path, arrays: Mapping[str, Array], notes: Mapping[str, str] | None = None) -> None:
    """Write float32 tensors and notes atomically; equal arrays and notes give equal bytes."""
    about: dict[str, Any] = {"__metadata__": dict(sorted(notes.items()))} if notes else {}
    content = bytearray()
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name], dtype="<f4").tobytes()
        place = [len(content), len(content) + len(values)]
        about[name] = {"dtype": "F32", "shape": list(arrays[name].shape), "data_offsets": place}
        content += values
    header = json.dumps(about, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # so that values are aligned
    write_atomically(path, _LENGTH.pack(len(header)) + header + bytes(content))


def _header(path: Path, file: BinaryIO) -> dict[str, Any]:
    """The parsed header, without repeated names."""
    length = file.seek(0, 2)
    file.seek(0)
    start = file.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
        raise DataFileError(path, f"is {length} bytes long; a safetensors file begins with 8 bytes of length")
    (header_bytes,) = _LENGTH.unpack(start)
    if header_bytes > min(MAX_HEADER_BYTES, length - _LENGTH.size):
        limit = f"the file has {length} and at most {MAX_HEADER_BYTES} are allowed"
        raise DataFileError(path, f"says its header has {header_bytes} bytes, {limit}; not safetensors, or cut off")
    try:
        header = parse_json(file.read(header_bytes).decode())
    except (ValueError, RecursionError) as problem:
        said = shortened(str(problem), 200)
        raise DataFileError(path, f"has a header that is not JSON: {said}", byte_offset=_LENGTH.size) from None
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        what = f"has a header that does not name at most {MAX_TENSORS} tensors"
        raise DataFileError(path, what, byte_offset=_LENGTH.size)
    return header


def _values(dtype: str, shape: list[int], data: bytes) -> Array:
    values = np.frombuffer(data, _STORED[dtype])
    if dtype == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):  # widening some NaNs raises warnings
        return values.reshape(shape).astype(np.float64 if dtype == "F64" else np.float32, copy=False)


# ---- PyTorch's names and layouts of weights turned into those of a network: w.<layer>, r.<layer>, b.<layer>.
#
# PyTorch keeps a Linear layer as [outputs, inputs] and a network here has weights [inputs, neurons], so that matrices
# are transposed. Which tensor is which is guessed from names and shapes if only one assignment fits; otherwise it must
# be given.


# snnTorch: lif1.recurrent.weight, lif1.recurrent.V; torch.nn.RNN: weight_hh_l0; norse: recurrent_weights.
_RECURRENT = re.compile(r"recurrent|_hh|w_rec")
_OWN_NAME = re.compile(r"([wrb])\.([A-Za-z0-9_]+)")
FROM = ".from."  # in names of weights for a second source


def layer_names(count: int) -> tuple[str, ...]:
    """'hidden0', 'hidden1', ..., 'output'"""
    return (*(f"hidden{index}" for index in range(count - 1)), "output")


class Assignment(NamedTuple):
    """Where a tensor goes: `tensor` of the file to `target` of the network ('w.hidden0')."""

    tensor: str
    target: str


def parse_map(texts: Iterable[str]) -> tuple[Assignment, ...]:
    """Assignments written as fc1.weight=w.hidden0; raises DescriptionError."""
    made = []
    for text in texts:
        tensor, equals, target = text.partition("=")
        if not equals or not _OWN_NAME.fullmatch(target.strip()):
            raise DescriptionError(
                f"--map {text}", ["write  --map TENSOR=w.LAYER  (r.LAYER recurrent, b.LAYER bias), e.g. w.hidden0"]
            )
        made.append(Assignment(tensor.strip(), target.strip()))
    return tuple(made)


def weights_of_state_dict(
    path: Path, tensors: Mapping[str, Array], given: tuple[Assignment, ...] = ()
) -> tuple[dict[str, Array], tuple[Assignment, ...], tuple[str, ...]]:
    """(weights by our names and in our layout; which tensor went where; tensors not used).

    Layers are named hidden0, hidden1, ..., output in their order. Raises DataFileError if the tensors form no
    chain of layers, or more than one, and for tensors that are not used unless assignments are given.
    """
    assigned = given or _guess(path, tensors)
    weights: dict[str, Array] = {}
    for each in assigned:
        if each.tensor not in tensors:
            raise DataFileError(path, f"has no tensor '{each.tensor}'{suggest(each.tensor, tensors)}")
        with np.errstate(invalid="ignore"):  # widening some NaNs raises warnings
            values = np.asarray(tensors[each.tensor], np.float64)
        if not np.all(np.abs(values) <= np.finfo(np.float32).max):
            raise DataFileError(
                path, f"'{each.tensor}' holds values that are not finite in float32; nothing starts there"
            )
        kind = each.target[0]
        wanted = {"w": (2,), "r": (1, 2), "b": (1,)}[kind]
        if values.ndim not in wanted:
            raise DataFileError(
                path,
                f"'{each.tensor}' has {values.ndim} dimensions; {each.target} takes {' or '.join(map(str, wanted))}; "
                "convolutions come with their module,  mimdsim import net.py:build  (docs/pytorch.md)",
            )
        values = values.T if values.ndim == 2 else values
        if each.target in weights:
            if kind != "b":
                raise DataFileError(path, f"'{each.target}' is given twice; each layer has one")
            values = values + weights[each.target]  # PyTorch keeps a bias for input and recurrence; they add up
        weights[each.target] = values
    used = {each.tensor for each in assigned}
    unused = tuple(name for name in tensors if name not in used)
    if unused and not given:
        listed = ", ".join(f"'{name}' {list(tensors[name].shape)}" for name in unused[:6])
        raise DataFileError(
            path,
            f"also holds {listed}{' and more' if len(unused) > 6 else ''}, which no layer of weights has (constants of "
            "neurons, norms, convolutions): import the module itself,  mimdsim import net.py:build  (docs/pytorch.md), "
            f"or say what is used, --map {assigned[0].tensor}={assigned[0].target} ...",
        )
    return weights, assigned, unused


def chain_of(
    path: Path,
    weights: Mapping[str, Array],
    sizes: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    reads: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """(layers in order, widths from the input to the output); raises DataFileError if they do not fit together. sizes:
    inputs and neurons of those with a convolution, whose weights have other extents. reads: of layers that do not read
    the one before them alone, the names of their weights, and what each is for."""
    found = sorted((name[2:] for name in weights if name.startswith("w.") and FROM not in name), key=natural)
    layers = layer_names(len(found))
    if not found or set(found) != set(layers):
        raise DataFileError(
            path, f"has weights for layers {', '.join(found) or '(none)'}; needed are hidden0, hidden1, ..., output"
        )
    flat = [name for name, values in weights.items() if name.startswith("w.") and values.ndim != 2]
    if flat:
        raise DataFileError(path, f"{flat[0]} has {weights[flat[0]].ndim} dimensions, not [inputs, neurons]")
    extents = {layer: sizes.get(layer, weights[f"w.{layer}"].shape) for layer in layers}
    widths = {INPUT: extents[layers[0]][0]} | {layer: int(wide) for layer, (_, wide) in extents.items()}
    known = set()
    for before, layer in zip(widths, layers, strict=False):
        neurons = weights[f"w.{layer}"].shape[1]
        for name, source in reads.get(layer, {f"w.{layer}": before}).items():
            if name not in weights:
                raise DataFileError(path, f"says that '{layer}' reads '{source}' also; '{name}' is missing")
            inputs, made = extents[layer] if name == f"w.{layer}" else weights[name].shape
            if inputs != widths[source]:
                what = "the layer before it" if source == before else f"'{source}'"
                raise DataFileError(path, f"{name} takes {inputs} inputs, {what} has {widths[source]} neurons")
            if made != widths[layer]:
                raise DataFileError(path, f"{name} has columns for {made} neurons, '{layer}' has {widths[layer]}")
            known.add(name)
        for kind, shapes in (("r", ((neurons, neurons), (neurons,))), ("b", ((neurons,),))):
            other = weights.get(f"{kind}.{layer}")
            if other is not None and other.shape not in shapes:
                raise DataFileError(path, f"{kind}.{layer} has the shape {list(other.shape)} for {neurons} neurons")
        known |= {f"r.{layer}", f"b.{layer}"}
    strays = [name for name in weights if name not in known]
    if strays:
        raise DataFileError(path, f"{', '.join(strays)} belong to no layer; layers are {', '.join(layers)}")
    return layers, tuple(widths.values())


def _guess(path: Path, tensors: Mapping[str, Array]) -> tuple[Assignment, ...]:
    """Matrices in the natural order of their names as layers, each with its bias and recurrence."""
    if all(_OWN_NAME.fullmatch(name) for name in tensors) and tensors:
        raise DataFileError(
            path, "already has weights under the names of a network: set training.initial_weights to it"
        )
    matrices = [
        name for name in sorted(tensors, key=natural) if tensors[name].ndim == 2 and not _RECURRENT.search(name)
    ]
    if not matrices:
        found = ", ".join(f"{name} {list(array.shape)}" for name, array in list(tensors.items())[:12])
        raise DataFileError(path, f"has no matrix that could be a layer's weights; it has {found or 'nothing'}")
    for first, second in itertools.pairwise(matrices):
        if tensors[first].shape[0] != tensors[second].shape[1]:
            listed = ", ".join(f"{name} {list(tensors[name].shape)}" for name in matrices)
            raise DataFileError(
                path,
                f"its matrices in the order of their names do not form a chain of layers ({listed}); say which is "
                f"which, --map {matrices[0]}=w.hidden0 ...",
            )
    layers = layer_names(len(matrices))
    made = [Assignment(name, f"w.{layer}") for name, layer in zip(matrices, layers, strict=True)]
    widths = {layer: tensors[name].shape[0] for name, layer in zip(matrices, layers, strict=True)}
    for name, layer in zip(matrices, layers, strict=True):
        bias = re.sub("weight(?=[^.]*$)", "bias", name)
        if bias != name and bias in tensors and tensors[bias].ndim == 1:
            made.append(Assignment(bias, f"b.{layer}"))
    for name in sorted(tensors, key=natural):
        if _RECURRENT.search(name) and tensors[name].ndim in (1, 2):
            layer = _recurrent_layer(path, name, tensors[name], widths)
            kind = "b" if "bias" in name else "r"
            made.append(Assignment(name, f"{kind}.{layer}"))
    return tuple(made)


def _recurrent_layer(path: Path, name: str, values: Array, widths: Mapping[str, int]) -> str:
    """The layer that a recurrent tensor belongs to, determined by its size."""
    fitting = [layer for layer, width in widths.items() if values.shape in ((width, width), (width,))]
    if len(fitting) != 1:
        which = f"fits {' and '.join(fitting)}" if fitting else "fits no layer"
        raise DataFileError(
            path, f"'{name}' {list(values.shape)} {which}; give all tensors, --map {name}=r.hidden0 and so on"
        )
    return fitting[0]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts fc2 before fc10."""
    return [
        (1, int(part), "") if part.isdecimal() and len(part) < 9 else (0, 0, part)
        for part in re.split("([0-9]+)", name)
    ]
