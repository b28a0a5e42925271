"""Packages that are called: `mimdsim.run` is a package, and `mimdsim.run(...)` the function `run` of `mimdsim.api`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class CalledPackage(ModuleType):
    """A package whose call is a function of its name, which the package around it knows by `called_as`."""

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """What is called, where signatures are looked up."""
        around, _, name = self.__name__.rpartition(".")
        found: Callable[..., Any] = sys.modules[around].called_as(name)
        return found

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.__wrapped__(*given, **named)


def make_called(package: str) -> None:
    """Let a package, by its full name, be called."""
    sys.modules[package].__class__ = CalledPackage
