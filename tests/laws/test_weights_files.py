"""Weights from safetensors and NPZ files, PyTorch's names among them; damaged files, pickles and misfits refused."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile.changes import changed
from hostile.limits import peak_bytes, time_limit
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import SMALL

from mimdsim.base.errors import DataFileError, DescriptionError, MimdsimError
from mimdsim.base.rng import stream
from mimdsim.workload.interchange.weights_file import (
    chain_of,
    check_weights,
    parse_map,
    read_arrays,
    read_safetensors,
    weights_of_state_dict,
    write_safetensors,
)

FEW, MANY = 400, 10_000
LIMIT_BYTES = 10**9
ARRAYS = {"w.hidden0": np.arange(12, dtype=np.float32).reshape(4, 3), "b.output": np.float32([0.5, -1])}


def tensors(header: Any, values: bytes = b"", *, header_bytes: int | None = None) -> bytes:
    """A safetensors file of any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if header_bytes is None else header_bytes) + text + values


def about(dtype: Any = "F32", shape: Any = (2,), place: Any = (0, 8)) -> dict[str, Any]:
    """A tensor's entry in the header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": place}


@pytest.mark.parametrize("examples", [10, 40])
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, examples: int) -> None:
    @settings(SMALL, max_examples=examples)
    @given(
        shapes=st.dictionaries(st.text(min_size=1, max_size=9), st.lists(st.integers(0, 4), max_size=3), max_size=5),
        seed=st.integers(0, 99),
    )
    def law(shapes: Any, seed: int) -> None:
        path = tmp_path_factory.mktemp("a") / "a.safetensors"
        shapes = {name: shape for name, shape in shapes.items() if name != "__metadata__"}
        rng = np.random.default_rng(seed)
        arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        write_safetensors(path, arrays)
        found = read_safetensors(path)
        assert list(found) == sorted(arrays)
        for name, array in arrays.items():
            assert found[name].dtype == np.float32
            np.testing.assert_array_equal(found[name], array)

    law()


def test_other_widths_of_floats(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    values = np.float32([1.5, -2.25])
    header = {
        "__metadata__": {"format": "pt"},
        "a": about("F64", [2], [0, 16]),
        "b": about("F16", [2, 1], [16, 20]),
        "c": about("BF16", [], [20, 22]),
        "steps": about("I64", [1], [22, 30]),
    }
    content = values.astype("<f8").tobytes() + values.astype("<f2").tobytes() + b"\x10\xc0" + bytes(8)
    path.write_bytes(tensors(header, content))
    found = read_safetensors(path)
    assert {name: (array.dtype.name, array.shape) for name, array in found.items()} == {
        "a": ("float64", (2,)),
        "b": ("float32", (2, 1)),
        "c": ("float32", ()),
    }
    assert found["a"].tolist() == found["b"][:, 0].tolist() == values.tolist()
    assert found["c"] == -2.25


def test_the_package_of_the_format_agrees(tmp_path: Path) -> None:
    package = pytest.importorskip("safetensors.numpy")
    package.save_file(ARRAYS, tmp_path / "a.safetensors")
    found = read_safetensors(tmp_path / "a.safetensors")
    write_safetensors(tmp_path / "b.safetensors", ARRAYS)
    again = package.load_file(tmp_path / "b.safetensors")
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        np.testing.assert_array_equal(again[name], array)


DAMAGED: list[tuple[bytes, str]] = [
    (b"abc", "is 3 bytes long"),
    (tensors({}, header_bytes=1 << 60), "says its header has 1152921504606846976 bytes, the file has 10"),
    (tensors(b" " * (5 << 20)), "says its header has 5242880 bytes.*at most 4194304 are allowed"),
    (tensors(b"{"), "a header that is not JSON"),
    (tensors(b"[" * 200_000), "a header that is not JSON"),
    (tensors(b'{"a": 1' + b"0" * 5000 + b"}"), "a header that is not JSON"),
    (tensors([1]), "a header that does not name at most 16384 tensors"),
    (tensors(b'{"a": {"dtype": "F32", "dtype": "F32"}}'), "'dtype' appears twice"),
    (tensors(b'{"a": 1, "a": 2}'), "'a' appears twice"),
    (tensors(b"{" + b",".join(b'"%d": 1' % (number // 2) for number in range(40_000)) + b"}"), "'0' appears twice"),
    (tensors({"a": 1}), "is not safetensors, or damaged: .*invalid type"),
    (tensors({"a": about("Q8")}, bytes(8)), "unknown variant `Q8`"),
    (tensors({"a": about(shape=[-2])}, bytes(8)), "invalid value: integer `-2`"),
    (tensors({"a": about(shape=[2.0])}, bytes(8)), "invalid type: floating point"),
    (tensors({"a": about(shape=[1 << 64])}, bytes(8)), "is not safetensors, or damaged"),
    (tensors({"a": about(shape=[1] * 8 + [2])}, bytes(8)), "which no network has"),
    (
        tensors({"a": about(shape=[0, 1 << 61], place=[0, 0])}),
        r"the shape \[0, 2305843009213693952\], which no network",
    ),
    (tensors({"a": about(place=[8, 0])}, bytes(8)), "invalid offset for tensor `a`"),
    (tensors({"a": about(place=[0, 4])}, bytes(8)), "is not safetensors, or damaged"),
    (tensors({"a": about(place=[4, 12])}, bytes(12)), "invalid offset for tensor `a`"),
    (tensors({"a": about(), "b": about(place=[4, 12])}, bytes(12)), "invalid offset for tensor `b`"),
    (tensors({"a": about()}, bytes(9)), "file not fully covered"),
    (tensors({"a": about()}, bytes(7)), "is not safetensors, or damaged"),
    (tensors({"a": about(shape=[1 << 30], place=[0, 1 << 32])}, bytes(8)), "is not safetensors, or damaged"),
]


@pytest.mark.parametrize(("content", "words"), DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_safetensors_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=words):
        read_arrays(path)


def zipped(members: dict[str, bytes], **how: Any) -> bytes:
    """An archive of these members."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", **how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def npy(array: Any) -> bytes:
    """An array as numpy writes it."""
    made = io.BytesIO()
    np.save(made, array, allow_pickle=True)
    return made.getvalue()


def with_shape(shape: str) -> bytes:
    """A NPY array whose header says `shape`, without values."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def test_npz_of_numpy_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for save in (np.savez, np.savez_compressed):
        save(path, **ARRAYS, column=np.asfortranarray(ARRAYS["w.hidden0"].astype(np.float64)), steps=np.arange(3))
        found = read_arrays(path)
        assert list(found) == ["b.output", "column", "w.hidden0"]
        np.testing.assert_array_equal(found["column"], ARRAYS["w.hidden0"])
        np.testing.assert_array_equal(found["w.hidden0"], ARRAYS["w.hidden0"])
        assert found["column"].dtype == np.float64


NPZ_DAMAGED: list[tuple[bytes, str]] = [
    (b"PK", "is not an NPZ file, or damaged"),
    (zipped({"a.npy": npy(np.array([{}]))}), "'a' holds Python objects, which are not unpickled"),
    (zipped({"a.npy": npy(np.ones(3))[:-4]}), "'a' needs 24 bytes for its 3 entries, the archive has 20"),
    (zipped({"a.npy": npy(np.ones(3)) + b"x"}), "'a' needs 24 bytes for its 3 entries, the archive has 25"),
    (zipped({"a.npy": with_shape("(1 << 40,)")}), "'a' has a header that numpy does not write"),
    (
        zipped({"a.npy": with_shape("(1099511627776,)")}),
        r"'a' has the shape \(1099511627776,\); with it there are over 33554432 values",
    ),
    (zipped({"a.npy": with_shape("(-1,)")}), "'a' has a header that numpy does not write"),
    (zipped({"a.npy": with_shape("(0, 99999999999999999999)")}), "with it there are over 33554432 values"),
    (zipped({"a.npy": with_shape("(" + "1, " * 9 + ")")}), "'a' has the shape"),
    (zipped({"a.npy": b"x"}), "'a' is not an NPY array of version 1 to 3"),
    (zipped({"a.txt": b"x"}), "member 'a.txt' is not an array"),
    (zipped({"a.npy": npy(np.ones(3))}, compression=zipfile.ZIP_BZIP2), "packed by method 12"),
    (zipped({f"{number}.npy": b"" for number in range(20_000)}), "bytes of directory, over 1048576"),
]


@pytest.mark.parametrize(("content", "words"), NPZ_DAMAGED, ids=range(len(NPZ_DAMAGED)))
def test_damaged_npz_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=words):
        read_arrays(path)


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.ckpt", "model"])
def test_pickles_are_refused_with_what_to_type(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(DataFileError, match=r"is a pickle, which runs code.*save_file\(torch.load\('model"):
        read_arrays(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="no such file"):
        read_arrays(tmp_path / "none.npz")
    (tmp_path / "a.csv").write_text("1,2\n")
    with pytest.raises(DataFileError, match=r"ends in '.csv'; weights are read from .safetensors and .npz files"):
        read_arrays(tmp_path / "a.csv")


def test_weights_are_held_against_the_network(tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {"w.hidden0": (4, 3), "b.output": (1, 2)}
    found = check_weights(tmp_path / "x", ARRAYS, shapes)
    assert {name: array.shape for name, array in found.items()} == shapes
    with pytest.raises(DataFileError) as caught:
        check_weights(tmp_path / "x", {"w.hidden": np.ones(3), "b.output": np.ones(3), "r.a": np.ones(1)}, shapes)
    text = str(caught.value)
    assert "'w.hidden0' [4, 3] is missing; did you mean 'w.hidden'?" in text
    assert "'b.output' has the shape [3], the network's is [1, 2]" in text
    assert "'r.a' belongs to no layer" in text
    for bad in (np.nan, np.inf, 1e60):
        with pytest.raises(DataFileError, match=r"'b\.output' holds values that are not finite in float32"):
            check_weights(tmp_path / "x", {**ARRAYS, "b.output": np.array([bad, 0.0])}, shapes)


def state_dict(**shapes: tuple[int, ...]) -> dict[str, Any]:
    """Tensors of distinct values, dots for double underscores in names."""
    return {
        name.replace("__", "."): np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + index
        for index, (name, shape) in enumerate(shapes.items())
    }


PATH = Path("model.safetensors")


def test_linear_layers_are_guessed_in_their_order() -> None:
    given = state_dict(fc10__weight=(2, 3), fc10__bias=(2,), fc2__weight=(3, 5), fc2__bias=(3,), fc0__weight=(5, 7))
    weights, assigned, unused = weights_of_state_dict(PATH, given)
    assert {each.tensor: each.target for each in assigned} == {
        "fc0.weight": "w.hidden0",
        "fc2.weight": "w.hidden1",
        "fc10.weight": "w.output",
        "fc2.bias": "b.hidden1",
        "fc10.bias": "b.output",
    }
    assert not unused
    np.testing.assert_array_equal(weights["w.hidden1"], given["fc2.weight"].T)
    assert chain_of(PATH, weights) == (("hidden0", "hidden1", "output"), (7, 5, 3, 2))


@pytest.mark.parametrize(
    ("name", "shape"), [("lif1__beta", ()), ("conv__weight", (4, 1, 3, 3)), ("norm__running_mean", (5,))]
)
def test_what_is_no_weight_of_a_layer_is_never_left_out_in_silence(name: str, shape: tuple[int, ...]) -> None:
    layers = {"fc0__weight": (5, 7), "fc2__weight": (3, 5)}
    with pytest.raises(DataFileError, match=rf"also holds '{name.replace('__', '.')}' .*import the module itself"):
        weights_of_state_dict(PATH, state_dict(**layers, **{name: shape}))


def test_recurrent_weights_are_guessed_by_size_and_biases_add_up() -> None:
    given = state_dict(
        rnn__weight_ih_l0=(4, 6),
        rnn__weight_hh_l0=(4, 4),
        rnn__bias_ih_l0=(4,),
        rnn__bias_hh_l0=(4,),
        out__weight=(3, 4),
    )
    given = {name: given[name] for name in ("rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0")}
    given["s.weight"] = np.ones((3, 4), np.float32)
    weights, _, unused = weights_of_state_dict(PATH, given)
    np.testing.assert_array_equal(weights["r.hidden0"], given["rnn.weight_hh_l0"].T)
    np.testing.assert_array_equal(weights["b.hidden0"], given["rnn.bias_ih_l0"] + given["rnn.bias_hh_l0"])
    assert not unused
    assert chain_of(PATH, weights)[1] == (6, 4, 3)


def test_one_to_one_recurrence_is_a_vector() -> None:
    given = state_dict(fc1__weight=(4, 6), fc2__weight=(3, 4), lif1__recurrent__V=(4,))
    weights, _, _ = weights_of_state_dict(PATH, given)
    np.testing.assert_array_equal(weights["r.hidden0"], given["lif1.recurrent.V"])


def test_said_names_win_over_guesses() -> None:
    given = state_dict(a=(4, 6), z=(3, 4))
    said = parse_map(["a=w.hidden0", "z = w.output"])
    weights, _, _ = weights_of_state_dict(PATH, given, said)
    assert chain_of(PATH, weights)[1] == (6, 4, 3)


MISFITS: list[tuple[Callable[[], Any], type[MimdsimError], str]] = [
    (
        lambda: weights_of_state_dict(PATH, {}),
        DataFileError,
        "has no matrix that could be a layer's weights; it has nothing",
    ),
    (lambda: weights_of_state_dict(PATH, ARRAYS), DataFileError, "set training.initial_weights to it"),
    (
        lambda: weights_of_state_dict(PATH, state_dict(fc1__weight=(4, 6), fc2__weight=(3, 5))),
        DataFileError,
        r"do not form a chain of layers \(fc1.weight \[4, 6\], fc2.weight \[3, 5\]\).*--map fc1.weight=w.hidden0",
    ),
    (
        lambda: weights_of_state_dict(
            PATH, state_dict(a__weight=(4, 4), b__weight=(4, 4), l__recurrent__weight=(4, 4))
        ),
        DataFileError,
        r"'l.recurrent.weight' \[4, 4\] fits hidden0 and output; give all tensors, --map l.recurrent.weight=r.hidden0",
    ),
    (
        lambda: weights_of_state_dict(PATH, state_dict(a__weight=(4, 4), l__recurrent__weight=(5, 5))),
        DataFileError,
        "fits no layer",
    ),
    (
        lambda: weights_of_state_dict(PATH, state_dict(ab=(4, 4)), parse_map(["a=w.output"])),
        DataFileError,
        "did you mean 'ab'",
    ),
    (
        lambda: weights_of_state_dict(PATH, state_dict(a=(4,)), parse_map(["a=w.output"])),
        DataFileError,
        "has 1 dimensions",
    ),
    (
        lambda: weights_of_state_dict(PATH, state_dict(a=(4, 4), b=(4, 4)), parse_map(["a=w.output", "b=w.output"])),
        DataFileError,
        "'w.output' is given twice",
    ),
    (lambda: parse_map(["a"]), DescriptionError, "write  --map TENSOR=w.LAYER"),
    (lambda: parse_map(["a=x.y"]), DescriptionError, "write  --map TENSOR=w.LAYER"),
    (
        lambda: chain_of(PATH, {"w.hidden1": np.ones((2, 2))}),
        DataFileError,
        "has weights for layers hidden1; needed are",
    ),
    (
        lambda: chain_of(PATH, {"w.hidden0": np.ones((2, 3)), "w.output": np.ones((2, 2))}),
        DataFileError,
        "w.output takes 2 inputs, the layer before it has 3 neurons",
    ),
    (
        lambda: chain_of(PATH, {"w.output": np.ones((2, 2)), "b.output": np.ones(3)}),
        DataFileError,
        r"b.output has the shape \[3\] for 2 neurons",
    ),
    (
        lambda: chain_of(PATH, {"w.output": np.ones((2, 2)), "b.hidden0": np.ones(3)}),
        DataFileError,
        "b.hidden0 belong to no",
    ),
]


@pytest.mark.parametrize(("do", "kind", "words"), MISFITS, ids=range(len(MISFITS)))
def test_misfits_are_refused(do: Callable[[], Any], kind: type[MimdsimError], words: str) -> None:
    with pytest.raises(kind, match=words):
        do()


def outcomes(form: str, folder: Path, count: int) -> dict[str, int]:
    """How many of `count` mutations of a good file were loaded and refused."""
    path = folder / f"a.{form}"
    if form == "npz":
        np.savez_compressed(path, **ARRAYS)
    else:
        write_safetensors(path, ARRAYS)
    content = path.read_bytes()
    seen = {"loaded": 0, "refused": 0}
    rng = stream(0, "fuzzing", form)
    start_bytes = peak_bytes(again=True)
    for number in range(count):
        path.write_bytes(changed(content, list(range(max(1, len(content) - 8))), rng, text=False))
        try:
            with time_limit(10.0):
                arrays = read_arrays(path)
                weights_of_state_dict(path, arrays, parse_map(["w.hidden0=w.output"]))
            seen["loaded"] += 1
        except MimdsimError:
            seen["refused"] += 1
        except BaseException:
            print(f"{form}, mutation {number}: {path.read_bytes().hex()}")
            raise
    assert peak_bytes() - start_bytes < LIMIT_BYTES
    print(form, seen)
    return seen


@pytest.mark.parametrize("form", ["safetensors", "npz"])
def test_a_few_mutations(tmp_path: Path, form: str) -> None:
    seen = outcomes(form, tmp_path, FEW)
    assert min(seen.values()) > FEW // 100


@pytest.mark.slow
@pytest.mark.parametrize("form", ["safetensors", "npz"])
def test_many_mutations(tmp_path: Path, form: str) -> None:
    seen = outcomes(form, tmp_path, MANY)
    assert min(seen.values()) > MANY // 100
