"""The phases of a training step in order, and the order of the names that other programs give their parts."""

from __future__ import annotations

from collections.abc import Iterable

PHASES = ("input", "forward", "loss", "backward", "update")
LONGEST = 40


def in_order(names: Iterable[str], known: tuple[str, ...] = PHASES) -> tuple[str, ...]:
    """The different `names`: in the order of `known` where it has them all, else as they first appear."""
    found = tuple(dict.fromkeys(names))
    return tuple(name for name in known if name in found) if set(found) <= set(known) else found


def refused(name: str) -> str:
    """Why `name` cannot be the name of a phase or category, '' where it can."""
    if 0 < len(name) <= LONGEST and name.isprintable() and name == name.strip():
        return ""
    return f"must be a name of 1 to {LONGEST} printable characters"
