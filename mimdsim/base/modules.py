"""Whose a Python module is: a user's, or one that comes with Python, mimdsim or what it depends on."""

from __future__ import annotations

import sys

PACKAGE = __name__.partition(".")[0]
NOT_USERS = frozenset({*sys.stdlib_module_names, "numpy", "numba", "scipy", PACKAGE}) - {"__main__"}


def is_users(module: object) -> bool:
    """Whether a module, by its name, is a user's."""
    return str(module).partition(".")[0] not in NOT_USERS
