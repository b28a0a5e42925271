"""mimdsim: what-if laboratory for processors of many independent tiles.

    import mimdsim
    result = mimdsim.run("digits", "bow")

The names below are imported on first use, so importing this module and `mimdsim --help` are fast.
docs/api.md shows them; everything else is in its package (`mimdsim.kernels`, `mimdsim.program`, ...), which is imported
on first use too.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mimdsim.base import __version__

if TYPE_CHECKING:
    from mimdsim.api import Study, check, compare, place, run, study, sweep
    from mimdsim.base.errors import MimdsimError
    from mimdsim.checking import check_kernel
    from mimdsim.execution import Executor
    from mimdsim.frameworks import from_torch, to_torch, torch_function
    from mimdsim.kernels import Kernel
    from mimdsim.machine import Machine, list_machines, load_machine
    from mimdsim.profile import load_profile
    from mimdsim.report.plots import open_report
    from mimdsim.timing import explain
    from mimdsim.validation import calibrate, validate
    from mimdsim.workload import Network, allow_code, from_events, from_values, list_workloads, load_workload

__all__ = [
    "Executor",
    "Kernel",
    "Machine",
    "MimdsimError",
    "Network",
    "Study",
    "__version__",
    "allow_code",
    "calibrate",
    "check",
    "check_kernel",
    "compare",
    "explain",
    "from_events",
    "from_torch",
    "from_values",
    "list_machines",
    "list_workloads",
    "load_machine",
    "load_profile",
    "load_workload",
    "open_report",
    "place",
    "run",
    "study",
    "sweep",
    "to_torch",
    "torch_function",
    "validate",
]

_HOMES = {
    **dict.fromkeys(("Study", "check", "compare", "place", "run", "study", "sweep"), "api"),
    **dict.fromkeys(("Machine", "list_machines", "load_machine"), "machine"),
    **dict.fromkeys(
        ("Network", "allow_code", "from_events", "from_values", "list_workloads", "load_workload"), "workload"
    ),
    **dict.fromkeys(("calibrate", "validate"), "validation"),
    "Executor": "execution",
    "Kernel": "kernels",
    "MimdsimError": "base.errors",
    "check_kernel": "checking",
    **dict.fromkeys(("from_torch", "to_torch", "torch_function"), "frameworks"),
    "explain": "timing",
    "load_profile": "profile",
    "open_report": "report.plots",
}
# names of 0.1, for one release
_RENAMED = {"narrow": "calibrate"}
_PACKAGES_NOW = {"check": "checking", "functional": "execution", "run": "pipeline", "study": "studies"}


class _OldPackage(ModuleType):
    """What `from mimdsim.<old> import name` looks into."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        now = f"mimdsim.{_PACKAGES_NOW[self.__name__.partition('.')[2]]}"
        found = getattr(importlib.import_module(now), name)
        warnings.warn(f"{self.__name__} is {now} from 0.2 on; write: from {now} import {name}", FutureWarning, 2)
        return found


for _old in _PACKAGES_NOW:  # `mimdsim.run` and the like stay the functions of these names
    sys.modules.setdefault(f"mimdsim.{_old}", _OldPackage(f"mimdsim.{_old}"))


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warnings.warn(f"mimdsim.{name} is mimdsim.{_RENAMED[name]} from 0.2 on", FutureWarning, 2)
        name = _RENAMED[name]
    if name not in _HOMES:
        try:
            return importlib.import_module(f"mimdsim.{name}")
        except ModuleNotFoundError as missing:
            if missing.name != f"mimdsim.{name}":
                raise
        raise AttributeError(f"module 'mimdsim' has no attribute '{name}'; it has {', '.join(__all__)}")
    found = getattr(importlib.import_module(f"mimdsim.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
