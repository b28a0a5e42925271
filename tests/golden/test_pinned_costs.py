"""Cycles of every function of the vendor's formulas at drawn arguments, as they are: `pinned_costs.csv`; as with
figures, `python tests/golden/test_pinned_costs.py` writes it anew.

`test_cost_golden.py` holds them against the vendor's own figures where there are some; here stand those between. The
arguments follow from the names alone, so that a function more or less changes no other line; "-" was refused.
"""

from __future__ import annotations

import csv
import importlib
import inspect
import pkgutil
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pins import assert_as_pinned

import mimdsim.costs.library as library
from mimdsim import validation
from mimdsim.base.errors import MimdsimError
from mimdsim.validation import sparse

TABLE = Path(__file__).resolve().parent / "pinned_costs.csv"
COLUMNS = ("module", "function", "cycles")
DRAWS = 80
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 31, 32, 64, 100, 257)
FORMATS = ("f32", "f16", "f32", "f16", "f32", "f16", "i32", "u8", "bool", "u32", "i16", "u16")
# parameters that take some words or numbers only
CHOICES: dict[str | tuple[str, str], tuple[Any, ...]] = {
    "worker_contexts": (6, 6, 6, 4),
    "contexts": (6, 6, 6, 4),
    "vector_bytes": (8, 8, 8, 16),
    "load_bytes_per_cycle": (8, 16),
    "conv_units": (16, 8, 16),
    "block": (1, 2, 4, 8, 16),
    "op": (
        "ADD", "SUBTRACT", "MULTIPLY", "DIVIDE", "MAXIMUM", "MAX", "MIN", "GREATER_THAN", "EXPONENT", "SQUARE",
        "INVERSE", "ABSOLUTE", "SQRT", "TANH", "SIGMOID", "POWER", "RELU", "LOGICAL_AND", "MUL", "SQUARE_ADD",
    ),
    "kind": ("RELU", "TANH", "SIGMOID", "GELU"),
    "rows_by_worker": ([[4, 4], [3]], [[9]], [[2, 1], [1], [1, 7], [], [12]]),
    ("nonlinearity_gradient_1d_cycles", "op"): ("RELU", "TANH", "SIGMOID", "GELU"),
}  # fmt: skip


def functions() -> dict[str, list[tuple[str, Callable[..., Any]]]]:
    """The public ones by module, in the order of their names."""
    found: dict[str, list[tuple[str, Callable[..., Any]]]] = {}
    places = {one.name: of for of in (validation, sparse, library) for one in pkgutil.iter_modules(of.__path__)}
    for module, of in sorted(places.items(), key=lambda place: place[0]):
        held = importlib.import_module(f"{of.__name__}.{module}")
        own = inspect.getmembers(held, inspect.isfunction)
        cycles: list[tuple[str, Callable[..., Any]]] = [
            (name, one)
            for name, one in own
            if one.__module__ == held.__name__ and name.endswith("_cycles") and name[0] != "_"
        ]
        if cycles:
            found[module] = cycles
    return found


def drawn(function: str, parameter: inspect.Parameter, draw: int) -> Any:
    """The argument of one draw; every third is the default where there is one."""
    chance = zlib.crc32(f"{function} {parameter.name} {draw}".encode())
    annotation, default = str(parameter.annotation), parameter.default
    if default is not inspect.Parameter.empty and chance % 3 == 0:
        return default
    chance //= 3
    given = CHOICES.get((function, parameter.name)) or CHOICES.get(parameter.name)
    if given and "bool" not in annotation:
        return given[chance % len(given)]
    if "bool" in annotation:
        return bool(chance % 2)
    if "str" in annotation:
        return FORMATS[chance % len(FORMATS)]
    if "Iterable" in annotation or "Sequence" in annotation or "list" in annotation:
        return [NUMBERS[(chance >> shift) % len(NUMBERS)] for shift in (0, 5, 9)][: 1 + chance % 3]
    return NUMBERS[chance % len(NUMBERS)]


def figures(module: str) -> Iterator[tuple[str, str, str]]:
    for name, function in functions()[module]:
        found = []
        for draw in range(DRAWS):
            given = {each.name: drawn(name, each, draw) for each in inspect.signature(function).parameters.values()}
            places = [each for each in inspect.signature(function).parameters.values() if each.kind < each.KEYWORD_ONLY]
            first = [given.pop(each.name) for each in places]
            try:
                cycles = np.asarray(function(*first, **given)).ravel()
                found.append("|".join(f"{number:.10g}" for number in cycles.tolist()))
            except (MimdsimError, ValueError, TypeError, KeyError, IndexError, AttributeError, ZeroDivisionError):
                found.append("-")
        yield module, name, " ".join(found)


@cache
def pinned() -> dict[str, list[tuple[str, ...]]]:
    table: dict[str, list[tuple[str, ...]]] = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            table.setdefault(row["module"], []).append(tuple(row.values()))
    return table


@pytest.mark.parametrize("module", functions())
def test_cycles_are_as_pinned(module: str) -> None:
    assert_as_pinned(list(figures(module)), pinned().get(module, []), __file__)


def main() -> None:
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for module in functions():
            writer.writerows(figures(module))


if __name__ == "__main__":
    main()
