"""The command line: quick help, and a message with a way out for every mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import mimdsim

from mimdsim.base.files import folders_to_write

FAST = ("--set", "training.max_training_steps=1", "--set", "data.train_samples=48", "--set", "data.test_samples=1")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from mimdsim.cli import main; "
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0; "
        "print([name for name in ('numpy', 'numba', 'matplotlib', 'pydantic', 'networkx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_says_what_every_command_does_in_whole_sentences() -> None:
    lines = mimdsim("-h").split("Commands:\n")[1].splitlines()
    assert len(lines) == 14
    assert all(line.endswith(".") and not line.endswith("..") for line in lines)


def test_list_names_workloads_and_machines() -> None:
    output = mimdsim("list")
    assert "digits" in output
    assert "bow" in output
    assert "a100" in output


@pytest.mark.first(6)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "digitz"), "did you mean 'digits'?"),
        (("run", "/dev/zero"), "/dev/zero is not a regular file"),
        (("validate", "/dev/zero"), "/dev/zero is not a regular file"),
        (
            ("run", "digits", "--set", "network.activity=0.3"),
            "has no effect, because network.capacity = [24, 12, 10] gives",
        ),
        (("run", "digits", "--set", "seed=99999999999999999999"), "'seed' (by --set): must be less than"),
        (("run", "digits", "bov"), "did you mean 'bow'?"),
        (("run", "digits", "bow", "--set", "training.batchs=3"), "did you mean 'batch'?"),
        (("run", "digits", "bow", "--set", "tile.sram_byte=3"), "did you mean 'sram_bytes'?"),
        (("run", "digits", "bow", "--set", "tiles.sram_bytes=3"), "did you mean 'tile'?"),
        (("run", "digits", "bow", "--set", "training.batch"), "--set section.key=value"),
        (("run", "digits", "bow", "--set", "tile.sram_bytes=624 KB"), "ambiguous (1000 or 1024?)"),
        (("run", "digits", "bow", "--set", "training.batch=0"), "greater than 0"),
        (("run", "digits", "bow", "--set", "chip.clock_hz=inf"), "finite number"),
        (("run", "digits", "bow", "--set", "seed.x=1"), "write section.key"),
        (("run", "digits", "bow", "--set", "tile.vector_bytes=3"), "multiple of 4"),
        (("run", "digits", "bow", "--set", "tile.worker_contexts=true"), "is a boolean"),
        (("run", "digits", "bow", "--set", "network.second_threshold=2"), "must be below the threshold"),
        (("run", "digits", "bow", "--set", "data.path=x"), "reads no files"),
        (("run", "digits", "bow", "--set", "mapping.hidden=3"), "it is in another section: 'network.hidden'"),
        (("run", "digits", "bow", "--set", "network.spike_exchange=dense"), "section: 'mapping.spike_exchange'"),
        (("run", "digits", "bow", "--set", "tile.clock_hz=1 GHz"), "it is in another section: 'chip.clock_hz'"),
        (("run", "digits", "bow", "--set", "tile.links=1"), "unknown key 'tile.links' (by --set); known: code_bytes"),
        (("run", "bow", "digits"), "is a machine; the workload comes first: digits bow"),
        (("run", "braille", "--set", "data.path=/none.npz"), "/none.npz: no such file; 'data.path' must name an .npz"),
        (("check", "digits", "bow", "extra"), "unexpected arguments"),
        (("explain", "reports/none", "state gradient"), "reports/none: 1 problem\n  - no such file"),
        (("compare", "digits", "h100", "a100", "--set", "tile.worker_contexts=3"), "no tiled machine among h100, a100"),
        (("compare", "digits", "bow", "bow"), "bow given twice"),
        (("run", "digits", "a100"), "'a100': 1 problem\n  - is a GPU; give a tiled machine"),
        (("run", "digits", "bow", "--gpu", "mk2"), "'mk2': 1 problem\n  - is a tiled machine; give a GPU to --gpu"),
        (("run", "digits", "bow", "--set", "tile.sram_bytes=32 KiB"), "three things to change"),
        (("run", "digits", "bow", "--set", "chip.tiles=3"), "tiles are usable"),
        (
            ("run", "digits", "bow", "--set", "network.spikes=dense", "--set", "mapping.value_bytes=2"),
            "dense spikes on tiles are float32",
        ),
        (("run", "nmnist-2", "bow", "--set", "data.path=/nonexistent"), "/nonexistent"),
        (("run", "nmnist-2", "bow", "--set", "data.path=/nonexistent"), "you do not have"),
        (("check", "digits", "--timesteps", "-1"), "Invalid value for '--timesteps': -1 is not in the range"),
        (("check", "digits", "--batch", "-1"), "Invalid value for '--batch': -1 is not in the range"),
        (("run", "digits", "bow", "--set", "tile.executable_bytes=700 KiB"), "more than 'tile.sram_bytes' (line"),
        (("sweep", "digits", "bow", "--set", "tile=3"), "section.key"),
        (("sweep", "digits", "a100", "--set", "chip.clock_hz=1"), "is a GPU"),
        (("sweep", "digits", "bow", "--set", "tile.sram_bytes="), "write  --set"),
        (("check", "digits", "a100"), "is a GPU"),
        (("check", "digits", "bow", "--program", "none.py"), "no such Python file"),
        (("validate", "none.csv"), "no such file"),
        (("run", "digits", "bow", "tile.sram_bytes=1 MiB"), "A field is changed by  --set tile.sram_bytes=1"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_explained(arguments: tuple[str, ...], message: str) -> None:
    output = mimdsim(*arguments, *(FAST if arguments[0] == "run" else ()), code=2)
    assert message in output
    assert "Traceback" not in output


def test_what_does_not_fit_is_refused_with_tile_variable_bytes_and_savings() -> None:
    output = mimdsim("run", "digits", "bow", "--set", "tile.sram_bytes=64 KiB", *FAST, code=2)
    assert "needs" in output
    assert "and has 65,536 (64.0 KiB)" in output
    assert "largest there: " in output
    assert output.count("saves") == 3


def test_every_problem_of_a_description_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "x"\n[data]\nsource = "digits"\ntimesteps = -1\ninput_capacity = 4\n'
        '[network]\nhiden = [3]\nhidden = [3]\nactivity = 0.1\n[training]\nbatch = 2\nlearning_rate = "fast"\n'
    )
    output = mimdsim("run", str(path), code=2)
    assert "3 problems" in output
    assert "'data.timesteps' (line 4)" in output
    assert "unknown key 'network.hiden' (line 7); did you mean 'hidden'?" in output
    assert "learning_rate" in output


@pytest.mark.slow
def test_dump_writes_the_program_after_every_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.report.page.FIGURES", ())  # not looked at here
    mimdsim("run", "digits", "bow", "--out", str(tmp_path / "out"), "--dump", str(tmp_path / "dump"), *FAST)
    names = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert names == ["02_lower.txt", "03_merge_supersteps.txt", "04_plan_exchanges.txt"]
    assert "LIF update" in (tmp_path / "dump" / "04_plan_exchanges.txt").read_text()


@pytest.mark.parametrize("folder", ["new", "deep/down/new"])
def test_a_refused_run_leaves_no_folder_that_it_made(tmp_path: Path, folder: str) -> None:
    missing = ("--set", f"data.path={tmp_path / 'none'}")
    made = (
        "--out",
        str(tmp_path / folder),
        "--dump",
        str(tmp_path / "dump"),
        "--checkpoint",
        str(tmp_path / "c" / "d"),
    )
    (tmp_path / "dump").mkdir()  # not ours to remove
    output = mimdsim("run", "nmnist-256", "bow", "--gpu", "none", *made, *missing, code=2)
    assert f"{tmp_path / 'none' / 'Train'}: no such folder; 'data.path' must name a folder with Train/" in output
    assert "--set training.weight_scale=8 --set training.max_training_steps=20 substitutes random spikes" in output
    assert {path.name for path in tmp_path.iterdir()} == {"dump"}


def _fails_after_writing(file: Path) -> None:
    file.write_text("kept")
    raise ZeroDivisionError


def test_failed_work_keeps_folders_that_were_there_and_those_that_hold_files(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(ZeroDivisionError), folders_to_write(tmp_path / "old", tmp_path / "new" / "inner"):
        _fails_after_writing(tmp_path / "new" / "file")
    assert {path.name for path in tmp_path.rglob("*")} == {"old", "new", "file"}


def test_folders_stay_where_the_work_was_done(tmp_path: Path) -> None:
    with folders_to_write(tmp_path / "new"):
        pass
    assert (tmp_path / "new").is_dir()


@pytest.mark.parametrize("written", [True, False])
def test_an_interrupted_training_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    file = tmp_path / "training.npz"

    def interrupted(*_: object, **__: object) -> None:
        if written:
            file.write_bytes(b"an epoch")
        raise KeyboardInterrupt

    monkeypatch.setattr("mimdsim.api.simulate", interrupted)
    output = mimdsim("run", "digits", "bow", "--out", str(tmp_path / "out"), "--checkpoint", str(file), code=1)
    assert "Aborted!" in output
    assert (f"interrupted; the same command with --resume continues from {file}" in output) is written
    assert not (tmp_path / "out").exists()


def test_a_package_that_is_not_installed_is_named() -> None:
    code = "import sys; sys.modules['numba'] = None; from mimdsim.cli import main; main(['run', 'digits', 'bow'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs the package 'numba'" in done.stderr
    assert "-m pip install mimdsim" in done.stderr


def test_windows_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert mimdsim("list", code=2) == "mimdsim: runs on Linux; on Windows, use it in WSL\n"
