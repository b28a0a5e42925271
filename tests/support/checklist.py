"""What users hold on to, listed: commands and options, keys of files, public names, tested messages, predicted figures.

A change that is meant to change nothing leaves these lists as they are; `python tests/support/checklist.py
[--figures]` writes them anew, and git shows what became of them. Values that are pinned elsewhere
(`tests/golden/pinned_*`) are not repeated.
"""

from __future__ import annotations

import ast
import sys
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

TESTS = Path(__file__).resolve().parents[1]
LISTS = TESTS / "golden" / "checklist"


def commands() -> list[str]:
    """Every command with its arguments and options, defaults included."""
    from mimdsim.cli import main

    return sorted(_parameters(main, "mimdsim"))


def _parameters(command: click.Command, path: str) -> Iterator[str]:
    for parameter in command.params:
        names = "/".join(sorted([*parameter.opts, *parameter.secondary_opts]))
        default = parameter.default if isinstance(parameter.default, (str, int, float, bool)) else None
        several = " ..." if parameter.multiple or parameter.nargs == -1 else ""
        yield f"{path} {names}{several}" + (f" = {default!r}" if default not in (None, False, "") else "")
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield f"{path} {name}"
            yield from _parameters(child, f"{path} {name}")


def keys() -> list[str]:
    """Every key of files that people write, and of those that results are written to, with defaults of keys."""
    from mimdsim.machine.gpu import GpuMachine
    from mimdsim.machine.mimd import MimdMachine
    from mimdsim.profile import RunProfile
    from mimdsim.studies.description import Study
    from mimdsim.workload import Workload
    from mimdsim.workload.description.mapping import MappingFile

    roots = {
        "workload": Workload, "machine": MimdMachine, "gpu": GpuMachine, "study": Study, "mapping file": MappingFile,
        "profile": RunProfile,
    }  # fmt: skip
    return sorted({line for name, kind in roots.items() for line in _keys(kind, f"{name}: ", ())})


def _keys(kind: Any, path: str, above: tuple[Any, ...]) -> Iterator[str]:
    if isinstance(kind, type) and kind not in above and (is_dataclass(kind) or issubclass(kind, BaseModel)):
        hints = typing.get_type_hints(kind)
        if issubclass(kind, BaseModel):
            named = {name: about.default for name, about in kind.model_fields.items()}
        else:
            named = {about.name: about.default for about in fields(kind)}
        for name, default in named.items():
            plain = isinstance(default, (str, int, float, bool, tuple)) and default not in ("", ())
            yield f"{path}{name}" + (f" = {default!r}" if plain and len(repr(default)) < 60 else "")
            yield from _keys(hints[name], f"{path}{name}.", (*above, kind))
    for part in typing.get_args(kind):
        yield from _keys(part, path, above)


def names() -> list[str]:
    """The public names."""
    import mimdsim

    return sorted(mimdsim.__all__)


def messages() -> list[str]:
    """The patterns by which tests know messages of what is refused."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for word in node.keywords if isinstance(node, ast.Call) else ():
                if word.arg == "match" and isinstance(word.value, ast.Constant) and isinstance(word.value.value, str):
                    found.add(" ".join(word.value.value.split()))
    return sorted(found)


def figures() -> list[str]:
    """What is predicted for every row of the published tables that needs no recordings."""
    from reference_rows import published_rows

    return sorted({f"{row.file} {row.name} [{row.unit}]: {_number(row.predicted)}" for row in published_rows()})


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


LISTED = {"commands": commands, "keys": keys, "names": names, "messages": messages, "figures": figures}


def gone(name: str) -> list[str]:
    """Lines of the list of before that are neither in that of now nor in `renamed.toml`, which says what they are now
    ('': nothing is); and what it says of lines that never were."""
    renamed: dict[str, str] = tomllib.loads((LISTS / "renamed.toml").read_text(encoding="utf-8")).get(name, {})
    before, now = (LISTS / f"{name}.txt").read_text(encoding="utf-8").splitlines(), set(LISTED[name]())
    found = [line for line in before if line not in now and line not in renamed]
    found += [each for each in renamed.values() if each and each not in now]
    return found + [line for line in renamed if line not in before]


if __name__ == "__main__":
    LISTS.mkdir(exist_ok=True)
    for name, listed in LISTED.items():
        if name != "figures" or "--figures" in sys.argv:
            (LISTS / f"{name}.txt").write_text("\n".join(listed()) + "\n", encoding="utf-8")
