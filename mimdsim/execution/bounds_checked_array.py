"""What a hand-written vertex sees of its slices: arrays that refuse indices beyond them, and count what is touched.

numpy cuts a slice that ends beyond an array and counts negative indices from the end; on a tile both are other memory.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
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
SHAPES = (np.shape, np.ndim, np.size, np.empty_like, np.zeros_like, np.ones_like, np.full_like)  # read no element


class GuardError(IndexError):
    """A vertex left its slice, or wrote what it may only read; the message names field and index."""


def written_though_read(field: Field) -> str:
    """What is wrong when a vertex writes a field that it may only read, and what to declare."""
    return f'writes its field \'{field.name}\', declared access="read"; declare "write", or "update" for both'


class Work:
    """Elements that a vertex read and wrote, by field."""

    def __init__(self) -> None:
        self.read, self.written = defaultdict[str, int](int), defaultdict[str, int](int)


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


class Guarded(np.ndarray):
    """A view of a slice, or of a whole array in a part of which a vertex may write (`region`): `Guarded.of(array,
    field)`. Views of it are guarded too; what is computed from it is not."""

    _field: Field | None = None
    _work: Work | None = None
    _region: Region | None = None

    @classmethod
    def of(cls, array: np.ndarray, field: Field, work: Work | None = None, region: Region | None = None) -> Guarded:
        view = array.view(cls)
        view._field, view._work, view._region = field, work, region
        view.setflags(write=field.writes)  # whatever way round the guards numpy takes
        return view

    def __array_finalize__(self, origin: Any) -> None:
        is_view = isinstance(origin, Guarded) and self.base is not None
        self._field = origin._field if is_view else None
        self._work = origin._work if is_view else None
        self._region = origin._region if is_view else None

    def __getitem__(self, key: Any) -> Any:
        if self._field is None:
            return super().__getitem__(_bare(key))
        if _is_an_element(self.shape, key):
            self._count("read", 1)
            return super().__getitem__(key)
        _refuse(self.shape, key, self._field)
        found = super().__getitem__(_bare(key))
        if isinstance(found, Guarded) and _is_basic(key):
            return found
        self._count("read", np.size(found))
        return np.asarray(found) if isinstance(found, np.ndarray) else found

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._field is not None and self._field.writes and _is_an_element(self.shape, key) and np.isscalar(value):
            self._count("written", 1)
            self._refuse_outside(key)
            super().__setitem__(key, value)
            return
        if self._field is not None:
            _refuse(self.shape, key, self._field)
            self._refuse_writing(key)
            self._refuse_outside(key)
            self._count("written", self.view(np.ndarray)[_bare(key)].size)
        for each in _leaves(value):
            each._count("read", each.size)
        super().__setitem__(_bare(key), _bare(value))

    def __iter__(self) -> Any:
        return (self[index] for index in range(len(self)))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        target = inputs[0]
        if method == "at" and isinstance(target, Guarded):
            if target._field is not None:
                _refuse(target.shape, inputs[1], target._field)
                target._refuse_writing(inputs[1])
                target._refuse_outside(inputs[1])
            touched = target.view(np.ndarray)[_bare(inputs[1])].size
            target._count("read", touched)
            target._count("written", touched)
        for each in _leaves((inputs[1:] if method == "at" else inputs, options)):
            each._count("read", each.size)
        for each in _leaves(out):
            each._refuse_writing(...)
            each._refuse_outside(..., options.get("where", True))
            each._count("written", each.size)
        given = {**options, "out": out} if out else options
        made = getattr(ufunc, method)(*_bare(inputs), **_bare(given))
        if not out:
            return made
        results = made if isinstance(made, tuple) else (made,)
        whole = tuple(new if into is None else into for into, new in zip(out, results, strict=True))
        return whole if isinstance(made, tuple) else whole[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        target = args[0] if args else None
        if function in INDEXING and isinstance(target, Guarded) and target._field is not None:
            indices = args[1] if len(args) > 1 else kwargs.get("indices", kwargs.get("ind"))
            axis = args[2] if len(args) > 2 and function is np.take else kwargs.get("axis")
            _refuse_part((target.size,) if axis is None else (target.shape[axis],), 0, indices, indices, target._field)
        if function in WRITING and isinstance(target, Guarded):
            target._refuse_outside(..., _elements_written(function, args, kwargs))
        for each in _leaves(kwargs.get("out")):
            each._refuse_outside(..., kwargs.get("where", True))
        for each in _leaves((args, kwargs)) if function not in SHAPES else ():
            each._count("read", each.size)
        return function(*_bare(args), **_bare(kwargs))

    def item(self, *args: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], int | np.integer):
            return self.ravel()[args[0]].item()
        return self[args[0] if len(args) == 1 else args].item() if args else super().item()

    def fill(self, value: Any) -> None:
        self[...] = value

    @property
    def flat(self) -> Any:  # numpy's own hands out a plain iterator
        return self.reshape(-1) if self.flags.c_contiguous else super().flat

    def take(self, *args: Any, **options: Any) -> Any:
        return np.take(self, *args, **options)

    def put(self, *args: Any, **options: Any) -> None:
        np.put(self, *args, **options)

    def _refuse_writing(self, key: Any) -> None:
        if self._field is not None and not self._field.writes:
            raise GuardError(f"it {written_though_read(self._field)} (index {_shown(key)})")

    def _refuse_outside(self, key: Any, where: Any = True) -> None:
        """Raise GuardError where elements that `key` names, and of them those of `where`, may not be written."""
        own = None if self._region is None else self._region.of(self)
        if own is None or self._region is None:
            return
        taken = own[_bare(key)]
        if not np.all(taken, where=np.broadcast_to(_bare(where), np.shape(taken))):
            field = "" if self._field is None else f" of field '{self._field.name}' {list(self.shape)}"
            raise GuardError(f"it writes {_shown(key)}{field}, outside its slice {self._region.place}")

    def _count(self, what: str, elements: int) -> None:
        if self._work is not None and self._field is not None:
            getattr(self._work, what)[self._field.name] += int(elements)


def _elements_written(function: Any, args: Any, kwargs: Any) -> np.ndarray:
    """bool: the elements of its first argument that a function writes, by what it does to an array of flags."""
    place, name = WRITING[function]
    flags = np.zeros(np.shape(args[0]), bool)
    others, named = list(_bare(args[1:])), _bare(kwargs)
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
    return each.view(np.ndarray) if isinstance(each, Guarded) else each


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
        if not (type(part) is int or isinstance(part, np.integer)) or not 0 <= part < extent:
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
            array = np.asarray(part)  # a guarded index would refuse to be shown
            text = np.array2string(array, threshold=6, edgeitems=2).replace("\n", "")
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
