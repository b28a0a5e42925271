"""Optimisers, one file each: constants, meaning, kernels, cost. Subclasses of `Optimiser` in this folder are found."""

from __future__ import annotations

import importlib
import pkgutil

from mimdsim.numerics.optimisers.record import LEARNING_RATE, TRAINING_STEP, Form, Optimiser, check_records


def _all(of: type[Optimiser]) -> list[type[Optimiser]]:
    return [each for one in of.__subclasses__() for each in (one, *_all(one))]


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
check_records(_all(Optimiser))
OPTIMISERS: dict[str, type[Optimiser]] = {name: one for one in _all(Optimiser) for name in one.names}
FORMS: dict[str, Form] = {form.kind: form for one in _all(Optimiser) for form in one.forms}

__all__ = ["FORMS", "LEARNING_RATE", "OPTIMISERS", "TRAINING_STEP", "Form", "Optimiser"]
