"""Neuron models and cells of a user's own, from the Python file that `network.models` names.

A description may come from anywhere, so the file is run only in a process in which running code is allowed: by
`mimdsim --allow-code`, or by `allow_code`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mimdsim.base.errors import DescriptionError
from mimdsim.base.files import with_home
from mimdsim.base.user_code import call_users, load_file
from mimdsim.graph.cell_catalogue import CELL_MODELS
from mimdsim.graph.cells import CellModel
from mimdsim.graph.neuron_models import MODELS
from mimdsim.graph.neuron_parts import RESETS, Model, Parts

ALLOWED = "MIMDSIM_ALLOW_CODE"  # which processes started from here have too
Models = Mapping[str, Model | CellModel]


def allow_code() -> None:
    """From now on, in this process and those that it starts, run the Python files that workloads name
    (`network.models`): allow only workloads that you trust."""
    os.environ[ALLOWED] = "1"


def models_with(path: str) -> Models:
    """All models and cells by name: those that come with mimdsim, and those of the file, if one is named.

    Raises DescriptionError where code is not allowed, where the file cannot be run or has none, and for names that are
    taken.
    """
    shipped: Models = {**MODELS, **CELL_MODELS}
    if not path:
        return shipped
    if os.environ.get(ALLOWED) != "1":
        raise DescriptionError(
            f"network.models = '{path}'",
            [
                "is a Python file, which is run only if you say so: type  mimdsim --allow-code COMMAND ...  , or call "
                "mimdsim.allow_code(), for workloads that you trust"
            ],
        )
    file = with_home(path)
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        changed = 0  # loading says what is wrong
    return {**shipped, **_of_file(file, changed)}


def _told(path: Path, record: Model | CellModel) -> Model | CellModel:
    """The record, of which a mistake is told with the user's line."""
    what = f"{path}, model '{record.name}'"
    try:
        record = TypeAdapter(type(record)).validate_python(vars(record))
    except ValidationError as wrong:
        found = [(".".join(map(str, each["loc"])), each["msg"]) for each in wrong.errors()]
        problems = [
            f"'{key}': {said.replace('Input should be', 'must be').replace(' valid', '')}" for key, said in found
        ]
        raise DescriptionError(what, problems) from None
    if isinstance(record, Model):
        unknown = [reset for reset in record.resets if reset not in RESETS]
        if unknown or not record.resets:
            said = f"reset '{unknown[0]}' is not one of" if unknown else "'resets' is empty; give one or more of"
            raise DescriptionError(what, [f"{said} {', '.join(RESETS)}"])
        return replace(record, parts=partial(_result, what, record.parts, Parts, "'parts'"))
    if record.gates < 1:
        raise DescriptionError(what, [f"'gates' is {record.gates}; give 1 or more"])
    return replace(record, equations=partial(_result, what, record.equations, dict, "'equations'"))


def _result(what: str, function: Callable[..., Any], wanted: type, field: str, *given: Any) -> Any:
    """What the user's function returns, which must be of this type."""
    found = call_users(what, function, *given)
    if not isinstance(found, wanted):
        raise DescriptionError(what, [f"{field} returns {type(found).__name__}; it must return {wanted.__name__}(..)"])
    return found


@lru_cache(maxsize=16)
def _of_file(path: Path, _changed: int) -> dict[str, Model | CellModel]:
    found: dict[str, Model | CellModel] = {}
    module = load_file(path, "defines neuron models (Model) or cells (CellModel)")
    for record in vars(module).values():
        if not isinstance(record, (Model, CellModel)) or record in (*MODELS.values(), *CELL_MODELS.values()):
            continue
        if record.name in {*MODELS, *CELL_MODELS, *found}:
            raise DescriptionError(str(path), [f"a model '{record.name}' is there already: give it another name"])
        found[record.name] = _told(path, record)
    if not found:
        raise DescriptionError(str(path), ["defines no neuron model: a Model or CellModel, see docs/neurons.md"])
    return found
