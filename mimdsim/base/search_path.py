"""Where machines, workloads, studies and tables of published figures are found: one order for all.

A file in the working folder's `models/`, `workloads/`, `studies/` or `references/` comes first, then one of the same
folders in MIMDSIM_HOME, then the package's own: the top-level folders of the checkout, which the build puts into the
wheel.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from mimdsim.base.errors import PACKAGE, DescriptionError, shortened, suggest
from mimdsim.base.files import path_problem

LONGEST_BYTES = 100  # a folder is named after a workload and a machine; names of files end at 255 bytes


def checked_name(name: str) -> str:
    """`name` unchanged; raises a ValueError that says what it must be."""
    if not name or name != name.strip():
        raise ValueError("must be a name, neither empty nor with spaces around it")
    if not name.isprintable():  # control, bidirectional and other invisible characters, lone surrogates
        raise ValueError("must be a plain name: it contains characters that cannot be shown")
    if "/" in name or "\\" in name or name.startswith("."):
        raise ValueError("must be a name, not a path: without / and \\, and not beginning with a dot")
    if len(name.encode()) > LONGEST_BYTES:
        raise ValueError(f"must be a name of at most {LONGEST_BYTES} bytes, has {len(name.encode()):,}")
    return name


Name = Annotated[str, AfterValidator(checked_name)]


def possible_path(text: str) -> str:
    """`text`, if a file can have that name; else raises ValueError."""
    if text and (problem := path_problem(text)):
        raise ValueError(problem)
    return text


NAMES_FILES = "names files"  # mark of fields whose files a result belongs to (`base/identity.py`)
PathText = Annotated[str, AfterValidator(possible_path), NAMES_FILES]  # the path of a file or folder, in a description


Named = str | os.PathLike[str]  # a description: its name, or the path of its file

Kind = Literal["models", "workloads", "studies", "references"]
HOME = "MIMDSIM_HOME"
IN_WHEEL = PACKAGE / "shipped"  # only there; an editable installation reads the checkout


def own_folder(kind: Kind) -> Path:
    """The folder of `kind` that comes with the package."""
    return (IN_WHEEL if IN_WHEEL.is_dir() else PACKAGE.parent) / kind


def places(kind: Kind) -> dict[Path, str]:
    """The folders searched for `kind`, first match wins, each with a description; the package's own is last.

    Raises DescriptionError if MIMDSIM_HOME is not a folder, which would otherwise be ignored silently.
    """
    own = own_folder(kind)
    given = {Path(kind): "working folder"}
    if home := os.environ.get(HOME):
        if not Path(home).is_dir():
            raise DescriptionError(HOME, [f"no such folder: {home}; set it to one that holds models/, or unset it"])
        given[Path(home) / kind] = HOME
    others = {folder: what for folder, what in given.items() if not (folder.is_dir() and folder.samefile(own))}
    return others | {own: "package"}


def files_of(kind: Kind, suffix: str = ".toml") -> dict[str, Path]:
    """Every file of `kind` by its name, sorted; of several with the same name, the one found first."""
    found: dict[str, Path] = {}
    for folder in reversed(places(kind)):
        found |= {path.name: path for path in folder.glob(f"*{suffix}") if not path.is_dir()}
    return dict(sorted(found.items()))


def names_of(kind: Kind) -> tuple[str, ...]:
    """The names of all descriptions of `kind`, sorted: of their files, without .toml."""
    return tuple(sorted(file.removesuffix(".toml") for file in files_of(kind)))


def find_description(kind: Kind, what: str, name: Named) -> Path:
    """The file of a description given by name ('bow') or by path ('mine/chip.toml').

    what: 'machine', 'workload' or 'study', for the DescriptionError that names all places where a name was looked for.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise DescriptionError(what, [f"is {type(name).__name__}; give a name or a path"])
    name = os.fspath(name)
    if is_path(name):
        return Path(name)
    found = files_of(kind).get(f"{name}.toml")
    if found is None:
        problem = f"no such {what} in {looked_in(kind)}{suggest(name, names_of(kind))}"
        raise DescriptionError(f"{what} '{shortened(name)}'", [problem])
    return found


def is_path(name: str) -> bool:
    """Whether what is given for a description is the path of its file, not a name."""
    return name.endswith(".toml") or "/" in name


def beside(description: Path, named: str) -> str:
    """The path of a file or folder that a description names: in the description's folder where it exists there, else
    as it is, in the working folder."""
    with contextlib.suppress(ValueError, OSError):  # an impossible path is reported when the description is checked
        found = description.parent / possible_path(named)
        return str(found) if found.exists() else named
    return named


def several(given: Any) -> tuple[Any, ...]:
    """What is given for a list of names, paths or objects: the list, or the only one by itself."""
    alone = isinstance(given, (str, bytes, os.PathLike)) or not isinstance(given, (Collection, Iterator))
    return (given,) if alone else tuple(given)


def looked_in(kind: Kind) -> str:
    """'models/ (working folder) or /usr/.../models/ (package)': all places, for a message."""
    *others, last = (f"{folder}/ ({what})" for folder, what in places(kind).items())
    return f"{', '.join(others)} or {last}" if others else last


def where_from(kind: Kind, path: Path) -> str:
    """The path if a file is not the package's own, else nothing."""
    return "" if path.parent == own_folder(kind) else str(path)
