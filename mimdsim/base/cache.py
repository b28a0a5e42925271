"""Results kept for the next caller, a bounded number of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def kept(known: dict[K, V], key: K, make: Callable[[], V], most: int) -> V:
    """`known[key]`, made if it is not there; the least recently used of more than `most` is dropped."""
    value = known.pop(key) if key in known else make()
    while len(known) >= most:
        del known[next(iter(known))]
    known[key] = value
    return value
