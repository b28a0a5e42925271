"""The package as others get it: source archive and wheel, bounded dependencies, their lock, what names the version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from mimdsim import __version__

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def done(*command: object, folder: Path) -> str:
    """What a command prints, run where nothing points to the checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MIMDSIM_HOME")}
    finished = subprocess.run(
        [str(part) for part in command], cwd=folder, env=kept, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(source archive, the wheel built from it)."""
    folder = tmp_path_factory.mktemp("dist")
    done(sys.executable, "-m", "build", "--outdir", folder, ROOT, folder=folder)
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_folder(built: tuple[Path, Path], tmp_path: Path) -> None:
    """In an environment of its own, in which only the packages it depends on are those that run this test."""
    empty, environment = tmp_path / "empty", tmp_path / "environment"
    empty.mkdir()
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    done(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", built[1], folder=empty)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert done(python, "-c", "import mimdsim; print(mimdsim.__file__)", folder=empty).startswith(str(packages))

    mimdsim = environment / "bin" / "mimdsim"
    listed = [line.split()[0] for line in done(mimdsim, "list", folder=empty).splitlines()]
    kinds = {"models": "machines", "workloads": "workloads", "studies": "studies"}  # with their headings
    shipped = {path.stem for kind in kinds for path in (ROOT / kind).glob("*.toml")}
    assert sorted(listed) == sorted({*shipped, *kinds.values()})
    assert done(mimdsim, "--version", folder=empty).split()[-1] == __version__
    assert "64 of 64 within tolerance" in done(mimdsim, "validate", "tile_mapping_golden.json", folder=empty)
    assert "half-precision: confirmed" in done(mimdsim, "reproduce", "half-precision", folder=empty)
    found = done(mimdsim, "check", "digits", "tiny", "--set", "network.hidden=[16,16]", folder=empty)
    assert [line.split(":")[0] for line in found.splitlines()[1:]] == [
        f"ok    {name}" for name in ("rules", "memory", "values", "gradients", "time")
    ]
    assert not list(empty.iterdir())


@pytest.mark.slow
def test_the_source_archive_is_the_project(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        files = {name.split("/", 1)[1] for name in archive.getnames()}
    for wanted in (
        *("LICENSE", "README.md", "CITATION.cff", "CONTRIBUTING.md", "pyproject.toml", "requirements-dev.txt"),
        *("mimdsim/py.typed", "models/bow.toml", "workloads/digits.toml", "references/disagreements.toml"),
        *("tests/unit/test_package.py", "docs/README.md", "examples/hand_written.py", ".ci/run"),
    ):
        assert wanted in files
    assert not any(".venv" in name or name.startswith("dist/") for name in files)
    assert {name for name in files if name.startswith("reports/")} <= {
        *("reports/example", "reports/example/report.html")  # what is run stays out
    }


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    for text in (*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra)):
        bounds = {part.operator for part in Requirement(text).specifier}
        assert bounds == {">=", "<"}, text


def test_the_lock_holds_every_dependency_within_its_bounds() -> None:
    text = (ROOT / "requirements-dev.txt").read_text()
    locked: dict[str, list[Version]] = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, flags=re.MULTILINE):
        locked.setdefault(name, []).append(Version(version))
    assert len(re.findall(r"^[\w.-]+==.*\\\n +--hash=sha256:", text, flags=re.MULTILINE)) == sum(
        map(len, locked.values())
    )
    for wanted in map(Requirement, (*PROJECT["dependencies"], *EXTRAS["data"], *EXTRAS["test"])):
        assert locked.get(wanted.name), f"{wanted} is not in requirements-dev.txt; CONTRIBUTING.md says how it is made"
        assert all(version in wanted.specifier for version in locked[wanted.name]), wanted


def test_all_say_the_same_version_and_licence() -> None:
    citation = dict(re.findall(r"^([\w-]+): (\S+)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE))
    assert citation["version"] == PROJECT["version"] == __version__
    assert citation["license"] == PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
