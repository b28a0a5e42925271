"""Python modules: whose they are; and packages by their names of 0.1, for one release: public names are found there,
and a warning says where they are."""

from __future__ import annotations

import importlib
import sys
import warnings
from types import ModuleType
from typing import Any

PACKAGE = __name__.partition(".")[0]
NOT_USERS = frozenset({*sys.stdlib_module_names, "numpy", "numba", "scipy", PACKAGE}) - {"__main__"}


def is_users(module: object) -> bool:
    """Whether a module, by its name, is a user's."""
    return str(module).partition(".")[0] not in NOT_USERS


NOW = {"check": "checking", "functional": "execution", "run": "pipeline", "study": "studies"}


class _Renamed(ModuleType):
    """What `from mimdsim.<old> import name` looks into."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        now = f"mimdsim.{NOW[self.__name__.partition('.')[2]]}"
        found = getattr(importlib.import_module(now), name)
        warnings.warn(f"{self.__name__} is {now} from 0.2 on; write: from {now} import {name}", FutureWarning, 2)
        return found


def register_old_names() -> None:
    """Let the old names be imported from; `mimdsim.run` and the like stay the functions of these names."""
    for old in NOW:
        sys.modules.setdefault(f"mimdsim.{old}", _Renamed(f"mimdsim.{old}"))
