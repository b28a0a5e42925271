"""What README and docs/ quote from a command is what it prints."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest
from commands import mimdsim

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
QUOTED = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"mimdsim (?:run|compare|check|validate|explain|calibrate|place|sweep|study|list)\b[^`\n#]*")


def quoted() -> list[tuple[str, str, str]]:
    """(page and number, command, lines) of every block of text: of the command named last before it."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for number, block in enumerate(QUOTED.finditer(text)):
            before = COMMAND.findall(text[: block.start()].rpartition("\n#")[2])
            found.append((f"{page.name}-{number}", before[-1].strip() if before else "", block[1]))
    return found


Printed = Callable[[str], str]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """What a command prints, run once for all tests."""
    folder = tmp_path_factory.mktemp("commands")

    @cache
    def run(command: str) -> str:
        arguments = shlex.split(command)[1:]
        if arguments[0] == "calibrate":
            arguments = [str(path) if (path := ROOT / "references" / each).is_file() else each for each in arguments]
        here = Path.cwd()
        os.chdir(folder)
        try:
            return mimdsim(*arguments)
        finally:
            os.chdir(here)

    return run


def test_blocks_of_text_name_their_command() -> None:
    assert {name.partition(".")[0] for name, _, _ in quoted()} >= {"README", "other-machines", "own-measurements"}
    assert not [name for name, command, _ in quoted() if not command]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "lines"), [pytest.param(*rest, id=name) for name, *rest in quoted()])
def test_commands_print_what_is_quoted(command: str, lines: str, printed: Printed) -> None:
    """Every line, in order, however it is wrapped; '...' stands for some that are left out."""
    found = " ".join(printed(command).split())
    for part in re.split(r"^\s*\.\.\.\s*$", lines, flags=re.MULTILINE):
        for sentence in re.split(r"\n(?= {0,4}\S)", part.strip("\n")):
            wanted = " ".join(sentence.split())
            assert wanted in found, f"{command} no longer prints: {wanted}"


@pytest.mark.slow
def test_syncs_of_a_published_stencil_are_predicted_from_its_other_rows(printed: Printed) -> None:
    """The errors of the six before and from the others; that their numbers are narrowed is quoted beside it."""
    (command,) = (command for _, command, _ in quoted() if "stencil_phases.csv" in command)
    syncs = [line.split() for line in printed(command).splitlines() if ": sync" in line]
    assert len(syncs) == 6
    before, others = (fmean(float(row[at].strip("(%)")) for row in syncs) for at in (-5, -1))
    assert others < 0.5 * before


def test_every_file_that_the_architecture_names_is_there() -> None:
    package = ROOT / "mimdsim"
    files = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    names = re.findall(r"`([\w/.-]+\.(?:py|js|css|html|txt|toml))`", text)
    assert len(names) > 200
    missing = [
        name
        for name in names
        if not (ROOT / name).exists() and not any(f"/{file}".endswith(f"/{name}") for file in files)
    ]
    assert missing == []


def test_paragraphs_are_short() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "GLOSSARY"))]
    long = [
        f"{page.name}, line {number}: {len(line)} characters"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 400 and not line.startswith("|")
    ]
    assert long == []
