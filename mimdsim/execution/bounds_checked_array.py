"""What a hand-written vertex sees of its slices: arrays that refuse indices beyond them, and count what is touched.

numpy cuts a slice that ends beyond an array and counts negative indices from the end; on a tile both are other memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.lib.stride_tricks import as_strided

from mimdsim.program.codelet import Field

INDEXING = (np.take, np.put, np.take_along_axis, np.put_along_axis)
# functions that write into their first argument -> which argument holds the values, and its name
WRITING = {
    np.copyto: (1, "src"),
    np.place: (2, "vals"),
    np.putmask: (2, "values"),
    np.put: (2, "v"),
    np.put_along_axis: (2, "values"),
    np.fill_diagonal: (1, "val"),
}
SHAPES = (
    np.shape, np.ndim, np.size, np.empty_like, np.zeros_like, np.ones_like, np.full_like, np.result_type, np.can_cast,
    np.may_share_memory, np.shares_memory, np.iscomplexobj, np.isrealobj,
)  # fmt: skip  # read no element
# functions that do not touch all of their first argument -> of (its elements, those of the result), how many they read
TOUCHED: dict[Any, Callable[[int, int], int]] = {
    np.take: lambda _, made: made,
    np.take_along_axis: lambda _, made: made,
    np.searchsorted: lambda size, made: made * size.bit_length(),
    np.trace: lambda size, _: math.isqrt(size),
    **{function: lambda _, __: 0 for function in WRITING},
}
BY_NAME = {"take": np.take, "put": np.put, "searchsorted": np.searchsorted, "trace": np.trace}  # methods that are these
WIDE = (np.float64, np.int64, np.uint64)
# what may be seen to be computed in 64 bits; numpy before 2 does so with every scalar of 32 that meets one of Python's
MADE_WIDE = np.ndarray if np.lib.NumpyVersion(np.__version__) < "2.0.0" else (np.ndarray, np.generic)
WHOLE_NUMBERS = {int, *(np.dtype(code).type for code in np.typecodes["AllInteger"])}
AROUND = ("base", "data", "ctypes", "setflags", "setfield", "resize")  # ways to the memory, of which nothing is seen


class GuardError(IndexError):
    """A vertex left its slice, or wrote what it may only read; the message names field and index."""


def written_though_read(field: Field) -> str:
    """What is wrong when a vertex writes a field that it may only read, and what to declare."""
    return f'writes its field \'{field.name}\', declared access="read"; declare "write", or "update" for both'


class Work:
    """Elements that a vertex read and wrote, by field; wide: of what it wrote in 64 bits to a field of fewer, both
    formats."""

    def __init__(self) -> None:
        self.read, self.written = defaultdict[str, int](int), defaultdict[str, int](int)
        self.wide = dict[str, tuple[np.dtype, np.dtype]]()


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """The part of a whole array that a vertex may write: `own`, bool of its shape; place: in words."""

    whole: np.ndarray
    own: np.ndarray
    place: str

    def of(self, view: np.ndarray) -> np.ndarray | None:
        """bool, of the view's shape: which of its elements may be written; None if it is no view of the array."""
        size = self.whole.itemsize
        away = view.__array_interface__["data"][0] - self.whole.__array_interface__["data"][0]
        if not view.size or view.itemsize != size or not 0 <= away < self.whole.nbytes:
            return None
        steps = tuple(step // size for step in view.strides)
        return as_strided(self.own.reshape(-1)[away // size :], view.shape, steps, writeable=False)


class Bounded(np.ndarray):
    """A view whose indices are looked at and nothing else, for codelets of the library: compiled kernels take it."""

    _field: Field | None = None

    @classmethod
    def of(cls, array: np.ndarray, field: Field) -> Bounded:
        view = array.view(cls)
        view._field = field
        return view

    def __array_finalize__(self, origin: Any) -> None:
        self._field = origin._field if isinstance(origin, Bounded) and self.base is not None else None

    def __getitem__(self, key: Any) -> Any:
        if self._field is not None and not _is_an_element(self.shape, key):
            _refuse(self.shape, key, self._field)
        return np.ndarray.__getitem__(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._field is not None and not _is_an_element(self.shape, key):
            _refuse(self.shape, key, self._field)
        np.ndarray.__setitem__(self, key, value)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "at" and isinstance(target := inputs[0], Bounded) and target._field is not None:
            _refuse(target.shape, inputs[1], target._field)
        return getattr(ufunc, method)(*_bare(inputs), **_bare(options))


class Guarded(NDArrayOperatorsMixin):
    """A slice, or a whole array in a part of which a vertex may write (`region`): `Guarded.of(array, field)`.

    It is no array, so that whoever wants its elements must ask for them here: numpy through its protocols, Python one
    by one. Views of it are guarded too; what is computed from it is not.
    """

    __slots__ = ("_array", "_field", "_region", "_work")

    def __init__(self, array: np.ndarray, field: Field, work: Work | None, region: Region | None):
        self._array, self._field, self._work, self._region = array, field, work, region

    @classmethod
    def of(cls, array: np.ndarray, field: Field, work: Work | None = None, region: Region | None = None) -> Guarded:
        view = array.view()
        view.setflags(write=field.writes)  # whatever way round the guards numpy takes
        return cls(view, field, work, region)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # numpy asks for ways to the memory itself
            raise AttributeError(name)
        if name in AROUND:
            raise GuardError(f"takes .{name} of field '{self._field.name}', a way around its slice: take its elements")
        found = getattr(self._array, name)
        if isinstance(found, np.ndarray):
            return self._view(found)
        return partial(self._apply, BY_NAME.get(name, getattr(np.ndarray, name))) if callable(found) else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._count("read", self.size)
        if copy or (dtype is not None and dtype != self.dtype):
            return self._array.astype(dtype or self.dtype)
        view = self._array.view()
        view.setflags(write=False)  # what is written there would not be counted
        return view

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, key: Any) -> Any:
        if not _is_an_element(self.shape, key):
            key = self._index(key)
        found = self._array[key]
        if isinstance(found, np.ndarray) and _is_basic(key):
            return self._view(found)
        self._count("read", np.size(found))
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        if not _is_an_element(self.shape, key):
            key = self._index(key)
        self._refuse_writing(key)
        if isinstance(value, Guarded) and value._is(self._array[key]):
            return  # what an operation in place has written and counted
        self._count("written", np.size(self._array[key]))
        self._note_width(value)
        self._array[key] = _read(value)

    def __iter__(self) -> Any:
        return (self[index] for index in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool(np.any(self == value))

    def __bool__(self) -> bool:
        return bool(self.__array__())

    def __int__(self) -> int:
        return int(self.__array__())

    def __float__(self) -> float:
        return float(self.__array__())

    def __index__(self) -> int:
        return index(self.__array__())

    def __repr__(self) -> str:
        return repr(self.__array__())

    def __copy__(self) -> np.ndarray:
        return self.__array__(copy=True)

    def __deepcopy__(self, _: Any) -> np.ndarray:
        return self.__array__(copy=True)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        if method == "at" and isinstance(target := inputs[0], Guarded):
            key = target._index(inputs[1])
            target._refuse_writing(key)
            touched = np.size(target._array[key])
            target._count("read", touched)
            target._count("written", touched)
            for value in inputs[2:]:
                target._note_width(value)
            inputs = (target._array, key, *inputs[2:])
        for each in _leaves(out):
            each._refuse_writing(..., options.get("where", True))
            each._count("written", each.size)
            for value in inputs:
                each._note_width(value)
        given = {**_read(options), "out": _bare(out)} if out else _read(options)
        made = getattr(ufunc, method)(*_read(inputs), **given)
        if not out:
            return made
        results = made if isinstance(made, tuple) else (made,)
        whole = tuple(new if into is None else into for into, new in zip(out, results, strict=True))
        return whole if isinstance(made, tuple) else whole[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _call(function, args, kwargs)

    @property
    def flat(self) -> Any:  # numpy's own hands out a plain iterator
        rows = self._array.reshape(-1)
        if np.may_share_memory(rows, self._array):
            return self._view(rows)
        self._count("read", self.size)
        rows.setflags(write=False)
        return rows

    def fill(self, value: Any) -> None:
        self[...] = value

    def sort(self, *args: Any, **options: Any) -> None:
        self[...] = np.sort(self, *args, **options)

    def partition(self, *args: Any, **options: Any) -> None:
        self[...] = np.partition(self, *args, **options)

    def item(self, *args: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], int | np.integer):
            _refuse_part((self.size,), 0, args[0], args[0], self._field)
            args = np.unravel_index(args[0], self.shape)
        return self[args[0] if len(args) == 1 else args].item() if args else self.__array__().item()

    def bounded(self) -> Bounded:
        """An array whose indices are looked at, protected as its field is; what is read is not counted."""
        return Bounded.of(self._array, self._field)

    def _apply(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return _call(function, (self, *args), kwargs)

    def _view(self, array: np.ndarray) -> Guarded:
        return Guarded(array, self._field, self._work, self._region)

    def _is(self, array: Any) -> bool:
        """Whether it is a view of the same elements in the same order."""
        mine = self._array
        return isinstance(array, np.ndarray) and (mine.ctypes.data, mine.shape, mine.strides) == (
            array.ctypes.data, array.shape, array.strides,
        )  # fmt: skip

    def _index(self, key: Any) -> Any:
        """An index with plain arrays in it; raises GuardError where it leaves the slice."""
        key = _read(key)
        _refuse(self.shape, key, self._field)
        return key

    def _refuse_writing(self, key: Any, where: Any = True) -> None:
        """Raise GuardError where elements that `key` names, and of them those of `where`, may not be written."""
        if not self._field.writes:
            raise GuardError(f"it {written_though_read(self._field)} (index {_shown(key)})")
        own = None if self._region is None else self._region.of(self._array)
        if own is None or self._region is None:
            return
        taken = own[_bare(key)]
        if not np.all(taken, where=np.broadcast_to(_bare(where), np.shape(taken))):
            of = f" of field '{self._field.name}' {list(self.shape)}"
            raise GuardError(f"it writes {_shown(key)}{of}, outside its slice {self._region.place}")

    def _count(self, what: str, elements: int) -> None:
        if self._work is not None:
            getattr(self._work, what)[self._field.name] += int(elements)

    def _note_width(self, value: Any) -> None:
        """Keep that `value`, which is written or what is written is computed from, has more bits than the field."""
        if self._work is None or not isinstance(value, MADE_WIDE):
            return
        if value.dtype.type in WIDE and self._array.itemsize < value.itemsize:
            self._work.wide.setdefault(self._field.name, (value.dtype, self._array.dtype))


def _call(function: Any, args: Any, kwargs: Any) -> Any:
    """What a function of numpy's gives: of a slice that it gives a view of a guarded one; of others it has read all."""
    given = {name: each for name, each in kwargs.items() if name != "out"}
    slices, into, target = list(_leaves((args, given))), list(_leaves(kwargs.get("out"))), args[0] if args else None
    if function in SHAPES:
        return function(*_bare(args), **_bare(kwargs))
    if isinstance(target, Guarded) and function in INDEXING:
        indices = args[1] if len(args) > 1 else kwargs.get("indices", kwargs.get("ind"))
        axis = args[2] if len(args) > 2 and function is np.take else kwargs.get("axis")
        shape = (target.size,) if axis is None else (target.shape[axis],)
        _refuse_part(shape, 0, _bare(indices), _bare(indices), target._field)
    if isinstance(target, Guarded) and function in WRITING:
        flags = _elements_written(function, args, kwargs)
        target._refuse_writing(..., flags)
        target._count("written", int(np.count_nonzero(flags)))
        place, name = WRITING[function]
        target._note_width(args[place] if place < len(args) else kwargs.get(name))
    for each in into:
        each._refuse_writing(..., kwargs.get("where", True))
        each._count("written", each.size)
    made = function(*_bare(args), **_bare(kwargs))
    viewed: list[Guarded] = []
    shown = into[0] if into else _views(made, slices, viewed)
    if isinstance(target, Guarded) and function in TOUCHED:
        target._count("read", min(target.size, TOUCHED[function](target.size, np.size(made))))
        viewed.append(target)
    for each in slices:
        if not any(each is one for one in viewed):
            each._count("read", each.size)
    return shown


def _views(made: Any, slices: list[Guarded], viewed: list[Guarded]) -> Any:
    """What a function gave, views of `slices` in it guarded; these are added to `viewed`."""
    if type(made) in (list, tuple):
        return type(made)(_views(each, slices, viewed) for each in made)
    for each in slices if isinstance(made, np.ndarray) else ():
        if np.may_share_memory(made, each._array):
            viewed.append(each)
            return each._view(made)
    return made


def _elements_written(function: Any, args: Any, kwargs: Any) -> np.ndarray:
    """bool: the elements of its first argument that a function writes, by what it does to an array of flags."""
    place, name = WRITING[function]
    flags, others, named = np.zeros(np.shape(args[0]), bool), list(_bare(args[1:])), _bare(kwargs)
    if place <= len(others):
        others[place - 1] = [True]
    else:
        named[name] = [True]
    function(flags, *others, **named)
    return flags


def _bare(each: Any) -> Any:
    """The same with plain arrays in the place of guarded ones."""
    if isinstance(each, tuple | list):
        return type(each)(_bare(part) for part in each)
    if isinstance(each, dict):
        return {key: _bare(part) for key, part in each.items()}
    if isinstance(each, Bounded):
        return each.view(np.ndarray)
    return each._array if isinstance(each, Guarded) else each


def _read(each: Any) -> Any:
    """The same with plain arrays, all elements of which are read."""
    for one in _leaves(each):
        one._count("read", one.size)
    return _bare(each)


def _leaves(each: Any) -> Any:
    if isinstance(each, Guarded):
        yield each
    elif isinstance(each, tuple | list):
        for part in each:
            yield from _leaves(part)
    elif isinstance(each, dict):
        yield from _leaves(list(each.values()))


def _is_an_element(shape: tuple[int, ...], key: Any) -> bool:
    """Whether whole numbers name one element of an array of this shape; what most loops of codelets ask for."""
    parts = key if type(key) is tuple else (key,)
    if len(parts) != len(shape):
        return False
    for part, extent in zip(parts, shape, strict=True):
        if type(part) not in WHOLE_NUMBERS or not 0 <= part < extent:
            return False
    return True


def _is_basic(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return all(part is None or part is Ellipsis or isinstance(part, int | np.integer | slice) for part in parts)


def _shown(key: Any) -> str:
    parts = key if isinstance(key, tuple) else (key,)
    shown = []
    for part in parts:
        if isinstance(part, slice):
            text = ":".join("" if end is None else str(end) for end in (part.start, part.stop))
            shown.append(text + (f":{part.step}" if part.step is not None else ""))
        else:
            text = np.array2string(np.asarray(part), threshold=6, edgeitems=2).replace("\n", "")
            shown.append("..." if part is Ellipsis else text)
    return f"[{', '.join(shown)}]"


def _refuse(shape: tuple[int, ...], key: Any, field: Field) -> None:
    """Raise GuardError for an index or slice that leaves `shape`."""
    parts = list(key) if isinstance(key, tuple) else [key]
    taken = sum(part is not None and part is not Ellipsis and not _is_mask(part) for part in parts)
    taken += sum(np.ndim(part) for part in parts if _is_mask(part))
    axis = 0
    for part in parts:
        if part is None:
            continue
        if part is Ellipsis:
            axis += len(shape) - taken
            continue
        if _is_mask(part):
            axis += np.ndim(part)
            continue
        if axis >= len(shape):
            raise GuardError(f"takes {_shown(key)} of field '{field.name}' with {len(shape)} axes")
        _refuse_part(shape, axis, part, key, field)
        axis += 1


def _is_mask(part: Any) -> bool:
    return isinstance(part, bool | np.bool_) or (hasattr(part, "dtype") and part.dtype == bool)


def _refuse_part(shape: tuple[int, ...], axis: int, part: Any, key: Any, field: Field) -> None:
    extent = shape[axis]

    def where() -> str:
        return f"takes {_shown(key)} of field '{field.name}' {list(shape)}"

    if isinstance(part, slice):
        forwards = part.step is None or part.step > 0
        start, stop = part.start, part.stop
        if start is not None and start < 0:
            raise GuardError(f"{where()}: a slice that starts at {start}; what lies before 0 is other memory")
        most = extent if forwards else max(extent - 1, 0)
        if (stop is not None and stop > extent) or (start is not None and start > most):
            raise GuardError(f"{where()}: axis {axis} has {extent}; what lies beyond is other memory")
        if stop is not None and -stop > extent:
            raise GuardError(f"{where()}: axis {axis} has {extent}; what lies before 0 is other memory")
        return
    indices = np.asarray(part)
    if indices.dtype.kind not in "iub" and indices.size:
        raise GuardError(f"{where()}: an index must be a whole number, not {indices.dtype}")
    if indices.size and indices.dtype.kind != "b" and (indices.min() < 0 or indices.max() >= extent):
        wrong = int(indices.min()) if indices.min() < 0 else int(indices.max())
        raise GuardError(f"{where()}: index {wrong}, axis {axis} has 0 to {extent - 1}")
