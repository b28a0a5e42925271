"""mimdsim: what-if laboratory for processors of many independent tiles.

    import mimdsim
    made = mimdsim.run("digits", "bow")

The names below are imported on first use, so importing this module and `mimdsim --help` are fast.
docs/api.md shows them; everything else is in its package (`mimdsim.kernels`, `mimdsim.program`, ...), which is imported
on first use too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mimdsim.base.version import __version__

if TYPE_CHECKING:
    from mimdsim.api import check, compare, narrow, place, run, study, sweep
    from mimdsim.base.errors import MimdsimError
    from mimdsim.check import check_kernel
    from mimdsim.functional import Executor
    from mimdsim.kernels import Kernel
    from mimdsim.machine import list_machines, load_machine
    from mimdsim.profile import load_profile
    from mimdsim.profile.questions import open_report
    from mimdsim.timing import explain
    from mimdsim.workload import list_workloads, load_workload

__all__ = [
    "Executor",
    "Kernel",
    "MimdsimError",
    "__version__",
    "check",
    "check_kernel",
    "compare",
    "explain",
    "list_machines",
    "list_workloads",
    "load_machine",
    "load_profile",
    "load_workload",
    "narrow",
    "open_report",
    "place",
    "run",
    "study",
    "sweep",
]

_CALLED = ("check", "run", "study")  # packages that are functions too
_HOMES = {
    **dict.fromkeys(("list_machines", "load_machine"), "machine"),
    **dict.fromkeys(("list_workloads", "load_workload"), "workload"),
    "Executor": "functional",
    "Kernel": "kernels",
    "MimdsimError": "base.errors",
    "check_kernel": "check",
    "compare": "api",
    "explain": "timing",
    "load_profile": "profile",
    "narrow": "api",
    "open_report": "profile.questions",
    "place": "api",
    "sweep": "api",
}


def __getattr__(name: str) -> Any:
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


def called_as(package: str) -> Any:
    """The function that the call of a package in `_CALLED` is."""
    return getattr(importlib.import_module("mimdsim.api"), package)


def __dir__() -> list[str]:
    return __all__
