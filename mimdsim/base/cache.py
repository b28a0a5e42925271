"""Results that are kept for as long as the object that they were computed from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

Value = TypeVar("Value")
MOST = 8


class PerObject(Generic[Value]):
    """Values by object and key: of every object that is referenced elsewhere, the MOST that were used last."""

    def __init__(self) -> None:
        self._values: WeakKeyDictionary[Any, list[tuple[object, Value]]] = WeakKeyDictionary()

    def get(self, owner: object, key: object, compute: Callable[[], Value]) -> Value:
        """The value of `owner` for a key; keys are compared by `==`."""
        values = self._values.setdefault(owner, [])
        for at, (known, value) in enumerate(values):
            if known == key:
                values.append(values.pop(at))
                return value
        value = compute()
        values[:] = [*values[1 - MOST :], (key, value)]
        return value
