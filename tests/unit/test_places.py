"""Machines, workloads and tables are found in the working folder, then MIMDSIM_HOME, then the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import mimdsim

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.base.search_path import files_of, own_folder, places
from mimdsim.machine import find_machine, list_machines, load_machine
from mimdsim.validation.markdown_page import load_notes
from mimdsim.validation.tables import default_files, find_table
from mimdsim.workload import find_workload, list_workloads, load_workload

TINY, DIGITS = find_machine("tiny").read_text(), find_workload("digits").read_text()
STENCIL = (own_folder("references") / "stencil_phases.csv").read_text()


def titled(text: str, title: str) -> str:
    """`text` of a description with another title."""
    (line,) = (line for line in text.splitlines() if line.startswith("title = "))
    return text.replace(line, f'title = "{title}"')


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """(working folder, MIMDSIM_HOME), both with empty folders of every kind."""
    here, home = tmp_path / "here", tmp_path / "home"
    for folder in (here, home):
        for kind in ("models", "workloads", "studies", "references"):
            (folder / kind).mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("MIMDSIM_HOME", str(home))
    return here, home


def test_the_nearest_file_of_a_name_wins(folders: tuple[Path, Path]) -> None:
    here, home = folders
    shipped = load_machine("tiny").title
    for folder, title in ((home, "of home"), (here, "of here")):
        assert load_machine("tiny").title != title
        (folder / "models" / "tiny.toml").write_text(titled(TINY, title))
        (folder / "workloads" / "digits.toml").write_text(titled(DIGITS, title))
        (folder / "references" / "stencil_phases.csv").write_text(STENCIL)
        assert (load_machine("tiny").title, load_workload("digits").title) == (title, title)
        found = find_table("stencil_phases.csv")
        assert found.resolve() == folder / "references" / "stencil_phases.csv"
        assert found in default_files()
    (here / "models" / "tiny.toml").unlink()
    assert load_machine("tiny").title == "of home"
    (home / "models" / "tiny.toml").unlink()
    assert load_machine("tiny").title == shipped


def test_what_is_added_is_listed_with_its_file_and_runs_by_name(folders: tuple[Path, Path]) -> None:
    here, home = folders
    (here / "models" / "mine.toml").write_text(titled(TINY, "My chip"))
    (home / "workloads" / "ours.toml").write_text(titled(DIGITS, "Our digits"))
    assert "mine" in list_machines()
    assert "ours" in list_workloads()
    lines = mimdsim("list").splitlines()
    assert f"  {'mine':<22} My chip  [models/mine.toml]" in lines
    assert f"  {'ours':<22} Our digits  [{home}/workloads/ours.toml]" in lines
    assert [line for line in lines if line.endswith("]")] == [
        line for line in lines if "mine" in line or "ours" in line
    ]
    assert "ok    rules" in mimdsim("check", "ours", "mine", "--set", "network.hidden=[16,16]")


def test_a_file_that_is_no_machine_hides_no_other(folders: tuple[Path, Path]) -> None:
    (folders[0] / "models" / "resnet.toml").write_text("layers = 50\n")
    (folders[0] / "models" / "folder.toml").mkdir()
    lines = mimdsim("list").splitlines()
    (line,) = (line for line in lines if line.startswith("  resnet "))
    assert "cannot be read: models/resnet.toml: 1 problem - there is neither base nor kind; begin with" in line
    assert any(line.startswith("  bow ") for line in lines)
    assert not any("folder" in line for line in lines)


def test_a_missing_name_names_all_places(folders: tuple[Path, Path]) -> None:
    for find, kind, name, near in (
        (find_machine, "models", "bov", "bow"),
        (find_workload, "workloads", "digitz", "digits"),
        (find_table, "references", "stencil_phase.csv", "stencil_phases.csv"),
    ):
        with pytest.raises((DescriptionError, DataFileError)) as refused:
            find(name)
        told = str(refused.value)
        at = [
            told.index(f"{kind}/ (working folder)"),
            told.index(f"{folders[1]}/{kind}/ (MIMDSIM_HOME)"),
            told.index(f"{own_folder(kind)}/ (package)"),  # type: ignore[arg-type]
            told.index(f"; did you mean '{near}'?"),
        ]
        assert at == sorted(at)


def test_the_checkout_as_working_folder_or_home_is_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own_folder("models").parent)
    monkeypatch.setenv("MIMDSIM_HOME", str(own_folder("models").parent))
    assert list(places("models")) == [own_folder("models")]
    assert not any(line.endswith("]") for line in mimdsim("list").splitlines())


def test_a_home_that_is_not_there_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIMDSIM_HOME", str(tmp_path / "none"))
    with pytest.raises(DescriptionError, match=r"MIMDSIM_HOME.*\n.*no such folder.*or unset it"):
        load_machine("bow")
    monkeypatch.setenv("MIMDSIM_HOME", "")
    assert load_machine("bow").name == "bow"


def test_a_path_is_a_path_and_tables_go_by_both(folders: tuple[Path, Path]) -> None:
    here, _ = folders
    (here / "models" / "tiny.toml").write_text(titled(TINY, "by name"))
    (here / "tiny.toml").write_text(titled(TINY, "by path"))
    assert [load_machine(name).title for name in ("tiny", "tiny.toml", "models/tiny.toml")] == [
        "by name",
        "by path",
        "by name",
    ]
    (here / "references" / "notes.csv").write_text("of,something,else\n1,2,3\n")
    assert Path("references/notes.csv") not in default_files()
    assert find_table("notes.csv") == Path("references/notes.csv")
    (here / "notes.csv").write_text("nearer\n")
    assert find_table("notes.csv") == Path("notes.csv")
    (here / "references" / "disagreements.toml").write_text("")
    assert load_notes().table == ()
    assert "README.md" in files_of("references", "")
