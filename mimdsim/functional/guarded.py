"""What a hand-written vertex sees of its slices: arrays that refuse indices beyond them, and count what is touched.

numpy cuts a slice that ends beyond an array and counts negative indices from the end; on a tile both are other memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.program.codelet import Field


class GuardError(Exception):
    """A vertex left its slice, or wrote what it may only read; the message names field and index."""


class Work:
    """Elements that a vertex read and wrote, by field."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self.written: dict[str, int] = {}


class Guarded(np.ndarray):
    """A view of a slice: `Guarded.of(array, field)`. What is taken of it is guarded too; what is computed is not."""

    _field: Field | None = None
    _work: Work | None = None

    @classmethod
    def of(cls, array: np.ndarray, field: Field, work: Work | None = None) -> Guarded:
        view = array.view(cls)
        view._field, view._work = field, work
        return view

    def __array_finalize__(self, origin: Any) -> None:
        # views made by indexing get their field in __getitem__; anything else is a value like others
        self._field = None
        self._work = None

    def __getitem__(self, key: Any) -> Any:
        if self._field is not None:
            _refuse(self.shape, key, self._field)
        found = super().__getitem__(_plain(key))
        if self._field is None:
            return found
        if isinstance(found, Guarded) and _is_basic(key):
            found._field, found._work = self._field, self._work
            return found
        self._count("read", 1 if np.isscalar(found) or not isinstance(found, np.ndarray) else found.size)
        return np.asarray(found) if isinstance(found, np.ndarray) else found

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._field is not None:
            _refuse(self.shape, key, self._field)
            if not self._field.writes:
                raise GuardError(f"writes field '{self._field.name}' at {_shown(key)}, declared access=\"read\"")
            self._count("written", np.asarray(self).view(np.ndarray)[_plain(key)].size)
        if isinstance(value, Guarded):
            value._count("read", value.size)
            value = np.asarray(value)
        super().__setitem__(_plain(key), value)

    def __iter__(self) -> Any:
        return (self[index] for index in range(len(self)))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if method == "at":
            target = inputs[0]
            if isinstance(target, Guarded) and target._field is not None:
                _refuse(target.shape, inputs[1], target._field)
                if not target._field.writes:
                    raise GuardError(
                        f"writes field '{target._field.name}' at {_shown(inputs[1])}, declared access=\"read\""
                    )
                touched = target.view(np.ndarray)[_plain(inputs[1])].size
                target._count("read", touched)
                target._count("written", touched)
            return getattr(ufunc, method)(*(_bare(each) for each in inputs), **options)
        for each in inputs:
            if isinstance(each, Guarded):
                each._count("read", each.size)
        if out is not None:
            for each in out:
                if isinstance(each, Guarded) and each._field is not None:
                    if not each._field.writes:
                        raise GuardError(f"writes field '{each._field.name}', declared access=\"read\"")
                    each._count("written", each.size)
            options["out"] = tuple(_bare(each) for each in out)
            getattr(ufunc, method)(*(_bare(each) for each in inputs), **options)
            return out[0] if len(out) == 1 else out
        return getattr(ufunc, method)(*(_bare(each) for each in inputs), **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in (np.take, np.put, np.put_along_axis, np.take_along_axis, np.add.at):
            indices = kwargs.get("indices", args[1] if len(args) > 1 else None)
            if self._field is not None and indices is not None and np.asarray(indices).dtype.kind in "iu":
                low = np.asarray(indices).min(initial=0)
                if low < 0:
                    raise GuardError(f"takes index {int(low)} of field '{self._field.name}' {list(self.shape)}")
        for each in _leaves((args, kwargs)):
            each._count("read", each.size)
        if function in (np.put, np.copyto, np.put_along_axis, np.fill_diagonal, np.place, np.putmask):
            target = args[0]
            if isinstance(target, Guarded) and target._field is not None and not target._field.writes:
                raise GuardError(f"writes field '{target._field.name}', declared access=\"read\"")
            if isinstance(target, Guarded):
                target._count("written", target.size)
        return function(*_stripped(args), **_stripped(kwargs))

    def fill(self, value: Any) -> None:
        self[...] = value

    def _count(self, what: str, elements: int) -> None:
        if self._work is not None and self._field is not None:
            counts = getattr(self._work, what)
            counts[self._field.name] = counts.get(self._field.name, 0) + int(elements)


def _bare(each: Any) -> Any:
    return each.view(np.ndarray) if isinstance(each, Guarded) else each


def _stripped(each: Any) -> Any:
    if isinstance(each, tuple | list):
        return type(each)(_stripped(part) for part in each)
    if isinstance(each, dict):
        return {key: _stripped(part) for key, part in each.items()}
    return _bare(each)


def _leaves(each: Any) -> Any:
    if isinstance(each, Guarded):
        yield each
    elif isinstance(each, tuple | list):
        for part in each:
            yield from _leaves(part)
    elif isinstance(each, dict):
        yield from _leaves(list(each.values()))


def _plain(key: Any) -> Any:
    """A key without guarded arrays in it: an index is a value."""
    return _stripped(key) if isinstance(key, tuple | list | Guarded) else key


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
            shown.append(
                "..." if part is Ellipsis else str(np.asarray(part))
            )  # a guarded index would refuse to be shown
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
        if forwards and start is not None and start < 0:
            raise GuardError(f"{where()}: a slice that starts at {start}; what lies before 0 is other memory")
        if (stop is not None and stop > extent) or (start is not None and start > extent):
            raise GuardError(f"{where()}: axis {axis} has {extent}; what lies beyond is other memory")
        if stop is not None and -stop > extent:
            raise GuardError(f"{where()}: axis {axis} has {extent}; what lies before 0 is other memory")
        return
    indices = np.asarray(part)
    if indices.dtype.kind not in "iu":
        raise GuardError(f"{where()}: an index must be a whole number, not {indices.dtype}")
    if indices.size and (indices.min() < 0 or indices.max() >= extent):
        wrong = int(indices.min()) if indices.min() < 0 else int(indices.max())
        raise GuardError(f"{where()}: index {wrong}, axis {axis} has 0 to {extent - 1}")
