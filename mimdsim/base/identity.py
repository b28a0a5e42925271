"""What a result belongs to: the contents of the files that it was made from, and the sources that decide its values.

Both are sha256 digests, made here and nowhere else. Of sources, comments, docstrings and empty lines are left out; the
versions of Python, numpy, numba and llvmlite, which decide values too, are part of their digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import cache_from_source
from pathlib import Path

from mimdsim.base.checksummed import read_sealed_json, write_sealed_json
from mimdsim.base.errors import PACKAGE, DataFileError, MimdsimError
from mimdsim.base.files import digest_of, open_regular

SAYS = ("cli", "report", "checking", "validation")  # packages that no result comes from
DECIDE_TOO = ("numpy", "numba", "llvmlite")
MOST_FILES = 64  # of an input that are kept one by one; of more, their sum
KNOWN = "sources.json"  # digests of sources by their bytes, beside what Python has compiled
MAX_KNOWN_BYTES = 1 << 16

_hashed: dict[tuple[object, ...], str] = {}


@dataclass(frozen=True, kw_only=True)
class Input:
    """Files that a description names in one key: `path` as it is given there, `files` by their name below it ('' for
    the path itself) with the sha256 of their contents; none where nothing is there."""

    key: str
    path: str
    files: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.key}: {self.path}"

    @cached_property
    def sha256(self) -> str:
        """Of a file its own, of several files that of names and contents; '' where nothing is there."""
        if list(self.files) == [""]:
            return self.files[""]
        return digest_of(sorted(self.files.items())) if self.files else ""

    @cached_property
    def by_file(self) -> dict[str, str]:
        """sha256 by what a person calls a file; of very many files, their sum."""
        if len(self.files) > MOST_FILES or not self.files:
            return {self.name: self.sha256}
        return {f"{self.name}/{name}" if name else self.name: known for name, known in self.files.items()}


def input_of(key: str, path: str, files: Iterable[tuple[str, Path]]) -> Input:
    """The contents of (name, file) as an input. Raises DataFileError for what is no file, or cannot be read."""
    return Input(key=key, path=path, files={name: known for name, file in files if (known := file_digest(file))})


def files_below(folder: Path, suffixes: tuple[str, ...] = ("",)) -> Iterator[tuple[str, Path]]:
    """(name, path) of every file in a folder and in the folders of it, links followed, that ends in one of `suffixes`,
    in order; nothing where there is no folder. Raises DataFileError for a folder that cannot be read."""

    def refused(problem: OSError) -> None:
        raise DataFileError(problem.filename, f"cannot be read ({problem.strerror})")

    seen: set[tuple[int, int]] = set()
    for above, folders, names in os.walk(folder, followlinks=True, onerror=refused) if folder.is_dir() else ():
        about = os.stat(above)
        if (about.st_dev, about.st_ino) in seen:  # a link back
            folders.clear()
            continue
        seen.add((about.st_dev, about.st_ino))
        folders.sort()
        for name in sorted(names):
            if name.endswith(suffixes):
                path = Path(above) / name
                yield path.relative_to(folder).as_posix(), path


def file_digest(path: Path) -> str:
    """sha256 of a file's content, read once in a process as long as the file stays as it is; '' where there is none.

    Raises DataFileError, and opens nothing, for what is neither file nor link to one.
    """
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            what = "is a folder" if stat.S_ISDIR(about.st_mode) else "is not a regular file"
            raise DataFileError(path, f"{what}; name a file")
        at = (path.absolute(), about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        if at not in _hashed:
            with open_regular(path) as file:
                _hashed[at] = hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as problem:
        raise DataFileError(path, f"cannot be read ({problem.strerror})") from None
    return _hashed[at]


def by_file(inputs: Iterable[Input]) -> dict[str, str]:
    """sha256 by what a person calls a file, of all inputs."""
    return {name: known for each in inputs for name, known in each.by_file.items()}


def changed_files(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Which files are others than before, in words, given what `by_file` said of them."""
    said = [f"{name} has changed" for name in after if name in before and before[name] != after[name]]
    said += [f"{name} is gone" for name in before if name not in after]
    return said + [f"{name} is new" for name in after if name not in before]


@cache
def code_digest(*packages: str) -> str:
    """sha256 of the sources of all packages that results come from, or of those of `packages`.

    What the digest leaves out takes a while to find, so it is kept with the digest of the bytes it was found for.
    """
    among = packages or tuple(sorted(each.name for each in PACKAGE.iterdir() if each.name not in SAYS))
    sources = {
        f"{package}/{name}": path.read_bytes()
        for package in among
        for name, path in files_below(PACKAGE / package, (".py",))
    }
    exact = hashlib.sha256(digest_of([*_versions(), *sources]).encode() + b"".join(sources.values())).hexdigest()
    scope, file, known = " ".join(packages) or "all", _known_file(), dict[str, object]()
    with contextlib.suppress(MimdsimError):  # not there, or damaged: made again
        known = read_sealed_json(file, MAX_KNOWN_BYTES, "")
    if (kept := str(known.get(scope))).startswith(f"{exact} "):
        return kept.removeprefix(f"{exact} ")
    found = digest_of([_versions(), {name: meaning(content.decode()) for name, content in sources.items()}])
    with contextlib.suppress(MimdsimError):  # an installation that cannot be written: found again by every process
        write_sealed_json(file, known | {scope: f"{exact} {found}"})
    return found


def _versions() -> list[str]:
    said = [f"python {sys.version_info[0]}.{sys.version_info[1]}"]
    for name in DECIDE_TOO:
        try:
            said.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            said.append(f"{name} unknown")
    return said


def _known_file() -> Path:
    return Path(cache_from_source(str(PACKAGE / "__init__.py"))).with_name(KNOWN)


_LONG, _SHORT = r"""\"{3}(?:[^"\\]|\\.|"(?!""))*+\"{3}""", r""""(?:[^"\\\n]|\\.)*+" """
_STRING = (
    rf"""[rRbBuUfF]{{0,2}}(?: {_LONG} | '{{3}}(?:[^'\\]|\\.|'(?!''))*+'{{3}} | {_SHORT} | '(?:[^'\\\n]|\\.)*+' )"""
)
LEFT_OUT = re.compile(
    rf"""(?P<head>\A | ^[ \t]*(?:(?:async[ ])?def[ ] | class[ ] | \))(?:[^\n\#"'] | {_SHORT})*:[ \t]*\n)
    (?:[ \t]*(?:\#[^\n]*)?\n)*+ (?P<indent>[ \t]*) [rR]?(?: {_LONG} | {_SHORT} ) [ \t]*(?:\#[^\n]*)?\n  # its docstring
    | (?P<text>{_STRING})  # any other stays
    | ^[ \t]*(?:\#[^\n]*)?\n | [ \t]*\#[^\n]* | [ \t]+(?=\n)""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)


def meaning(source: str) -> str:
    """The text of Python without comments, docstrings and empty lines. What looks unusual stays, which makes a digest
    differ where it need not, never the reverse."""
    return LEFT_OUT.sub(r"\g<head>\g<text>", f"{source}\n")
