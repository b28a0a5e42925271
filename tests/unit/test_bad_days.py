"""Names that are paths, two runs into one folder, killed processes, full and read-only disks: a sentence, never half a
result."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from commands import mimdsim

from mimdsim.base.atomic_folder import LOCK, replace_files
from mimdsim.base.errors import DRAFT, DescriptionError, MimdsimError
from mimdsim.base.files import write_atomically
from mimdsim.cli import main
from mimdsim.machine import find_machine, load_machine
from mimdsim.pipeline import Run, simulate
from mimdsim.pipeline.overrides import load_tiled
from mimdsim.studies import Local, make_study
from mimdsim.studies.executors import Batch
from mimdsim.studies.points import Points
from mimdsim.studies.store import count_rows
from mimdsim.workload import find_workload, load_workload

ROOT = Path(__file__).resolve().parents[2]
NO_NAMES = ["", " ", "/abs", "../x", "..", ".hidden", "a/b", "a\\\\b", "a\\nb", "a\\u202eb", "a\\u0000b", "é" * 51]
FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_are_names(tmp_path: Path, name: str) -> None:
    for find, load, known in ((find_workload, load_workload, "digits"), (find_machine, load_machine, "bow")):
        described = tmp_path / "mine.toml"
        text = find(known).read_text()
        assert "\nname" not in text
        described.write_text(f'name = "{name}"\n{text}')
        with pytest.raises(DescriptionError, match=r"'name' \(line 1\): must be a (plain )?name") as refused:
            load(str(described))
        assert str(refused.value).isascii() or "é" in name
        described.write_text(f'name = "my chip, 2 ü"\n{text}')
        assert load(str(described)).name == "my chip, 2 ü"


def test_an_imported_model_stays_below_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Path] = []
    monkeypatch.setattr(
        "mimdsim.workload.interchange.importing.import_nir",
        lambda model, folder, *_: (taken.append(folder), (folder, []))[1],
    )
    mimdsim("import", str(tmp_path / "...nir"))
    assert taken == [Path("imported/model")]


def look(folder: Path) -> set[str]:
    """What stands in the known files that are there, the contents being the names of runs."""
    found = set()
    for name in KNOWN:
        try:
            found.add((folder / name).read_text())
        except FileNotFoundError:
            continue
    return found


KNOWN = ("profile.json", "report.html", "figures/a.png", "old.csv")


def write_run(folder: Path, run: str, names: tuple[str, ...] = KNOWN[:3]) -> None:
    with replace_files(folder, KNOWN) as draft:
        for name in names:
            write_atomically(draft / name, run)


def test_what_replaces_is_whole_and_what_is_not_known_stays(tmp_path: Path) -> None:
    write_run(tmp_path, "one", KNOWN)
    (tmp_path / "figures" / "mine.png").write_text("kept")
    (tmp_path / "checkpoint.npz").write_text("kept")
    write_run(tmp_path, "two")
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {*KNOWN[:3], "figures/mine.png", "checkpoint.npz"}
    assert look(tmp_path) == {"two"}


def fail_in(draft: Path) -> None:
    (draft / "profile.json").write_text("two")
    raise ZeroDivisionError


def test_failed_work_leaves_what_was_there(tmp_path: Path) -> None:
    write_run(tmp_path, "one", KNOWN)
    with pytest.raises(ZeroDivisionError), replace_files(tmp_path, KNOWN) as draft:
        fail_in(draft)
    (tmp_path / "old.csv").unlink()
    (tmp_path / "old.csv").mkdir()
    with pytest.raises(MimdsimError, match=r"cannot be written \(old.csv is a folder there\)"):
        write_run(tmp_path, "two")
    assert {path.name for path in tmp_path.iterdir()} == {"profile.json", "report.html", "figures", "old.csv"}
    assert [(tmp_path / name).read_text() for name in KNOWN[:3]] == ["one"] * 3


@pytest.mark.parametrize("stop", range(7))
def test_interrupted_renames_are_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    write_run(tmp_path, "one", KNOWN)
    rename, left = Path.replace, [stop]

    def interrupted(self: Path, target: Path) -> Path:
        if target.name in {Path(name).name for name in KNOWN} and self.suffix != ".tmp":
            left[0] -= 1
            if left[0] == -1:
                raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_run(tmp_path, "two")
    assert [(tmp_path / name).read_text() for name in KNOWN] == ["one"] * 4


def test_two_that_write_never_leave_a_mixture(tmp_path: Path) -> None:
    """Two processes replace the files again and again; the last one's are there, and nothing of the other's."""
    script = (
        "import sys; from pathlib import Path; from mimdsim.base.files import write_atomically\n"
        "from mimdsim.base.atomic_folder import replace_files\n"
        "for _ in range(40):\n"
        f"    with replace_files(Path(sys.argv[1]), {KNOWN}) as draft:\n"
        f"        for name in {KNOWN[:3]}: write_atomically(draft / name, sys.argv[2])"
    )
    runs = [subprocess.Popen([sys.executable, "-c", script, tmp_path, name], cwd=ROOT) for name in ("one", "two")]
    assert [run.wait(120) for run in runs] == [0, 0]
    assert look(tmp_path) in ({"one"}, {"two"})
    assert {path.name for path in tmp_path.iterdir()} == {"profile.json", "report.html", "figures"}


def test_a_killed_writer_blocks_nobody(tmp_path: Path) -> None:
    write_run(tmp_path, "one", KNOWN)
    script = (
        "import sys, time; from pathlib import Path; from mimdsim.base.atomic_folder import replace_files\n"
        f"with replace_files(Path(sys.argv[1]), {KNOWN}) as draft:\n"
        "    (draft / 'profile.json').write_text('half')\n    print('there', flush=True)\n    time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], cwd=ROOT, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"there\n"
        run.kill()
    assert sorted(path.name[: len(DRAFT)] for path in tmp_path.glob(".*")) == sorted((DRAFT, LOCK))
    assert look(tmp_path) == {"one"}
    write_run(tmp_path, "two")
    assert look(tmp_path) == {"two"}
    assert not list(tmp_path.glob(".*"))


def test_who_waits_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.base.atomic_folder.LONGEST_WAIT_SECONDS", 0.1)
    with (
        replace_files(tmp_path, KNOWN),
        pytest.raises(MimdsimError, match="another mimdsim has been writing there"),
        replace_files(tmp_path, KNOWN),
    ):
        pass


@pytest.fixture(scope="module")
def runs() -> dict[int, Run]:
    """Two short runs, by seed."""
    found = {}
    for seed in (1, 5):
        changes = {"seed": seed, "training.max_training_steps": 1, "data.train_samples": 48, "data.test_samples": 48}
        found[seed] = simulate(load_workload("digits", changes), load_tiled("bow"), changes=changes)
    return found


@pytest.fixture
def simulated(runs: dict[int, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` takes one of these, and draws no figures."""
    monkeypatch.setattr("mimdsim.report.page.FIGURES", ())
    monkeypatch.setattr("mimdsim.api.simulate", lambda workload, *_, **__: runs[workload.seed])


def run(out: Path, seed: int, code: int = 0) -> str:
    return mimdsim("run", "digits", "bow", "--gpu", "none", "--out", str(out), "--set", f"seed={seed}", code=code)


@pytest.mark.slow
@pytest.mark.usefixtures("simulated")
def test_a_report_is_not_put_beside_another_profile(tmp_path: Path) -> None:
    run(tmp_path / "a", 1)
    run(tmp_path / "b", 5)
    before = (tmp_path / "b" / "report.html").read_bytes()
    output = mimdsim("report", str(tmp_path / "a" / "profile.json"), "--out", str(tmp_path / "b"), code=2)
    assert "holds the profile of another run; choose another folder with --out" in output
    assert (tmp_path / "b" / "report.html").read_bytes() == before
    mimdsim("report", str(tmp_path / "b" / "profile.json"))
    mimdsim("report", str(tmp_path / "b" / "profile.json"), "--out", str(tmp_path / "c"))
    assert {path.name for path in (tmp_path / "a").iterdir()} == {
        *("profile.json", "detail.npz", "spikes.npz", "weights.safetensors"),
        *("report.html", "tiles.csv", "supersteps.csv", "liveness.csv"),
    }
    (tmp_path / "kernel.py").write_text("")
    kernel = ("check", str(tmp_path / "kernel.py"), "bow", "--out", str(tmp_path / "a"))
    assert "holds the weights and report of a run" in mimdsim(*kernel, code=2)


@pytest.mark.slow
@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("failing", ["profile.json", "weights.safetensors", "report.html", "tiles.csv"])
def test_a_full_disk_leaves_the_run_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    run(tmp_path / "old", 1)
    before = {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()}
    rename = Path.replace

    def full(self: Path, target: Path) -> Path:
        if Path(target).name == failing:
            raise FULL
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", full)
    for name in ("old", "new"):
        output = run(tmp_path / name, 5, code=2)
        assert f"{name}/{failing}: cannot be written (No space left on device); free some space and try again" in output
    assert before == {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()}
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_output_that_nobody_takes_is_said(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no such device here")
    for arguments in (("list",), ("--help",), ("--version",)):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "mimdsim", *arguments],
                stdout=full,
                stderr=subprocess.PIPE,
                cwd=ROOT,
                check=False,
            )
        assert done.returncode == 2
        *waited, said = done.stderr.decode().splitlines()
        assert all(line.startswith("working, for ") for line in waited), waited
        assert said == (
            "mimdsim: what is printed here: cannot be written (No space left on device); free some space and try again"
        )


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_the_command() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "mimdsim", "list"], stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, check=False
    )
    os.close(writing)
    said = [line for line in done.stderr.splitlines() if not line.startswith(b"working, for ")]  # on a loaded machine
    assert (done.returncode, said) == (1, [])


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["0", "2", "12", "012"])
def test_a_command_works_with_closed_streams(closed: str) -> None:
    """As of `mimdsim ... 2>&-`: Python then has no sys.stderr."""
    before = f"import os; [os.close(number) for number in {[int(one) for one in closed]}]; "
    script = f"import sys; os.execv(sys.executable, [sys.executable, '-m', 'mimdsim', *{['check', 'digits', 'bow']}])"
    done = subprocess.run([sys.executable, "-c", before + script], cwd=ROOT, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 0
    assert (b"a training step" in done.stdout) == ("1" not in closed)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (OSError(errno.EFBIG, "File too large", "a"), "a: cannot be written (File too large); choose another place"),
        (
            FileNotFoundError(errno.ENOENT, "No usable temporary directory found"),
            "found; free some space, or set TMPDIR",
        ),
        (
            OSError(errno.EMFILE, "Too many open files"),
            "mimdsim: Too many open files; allow more in the shell with  ulimit -n 1024",
        ),
    ],
)
def test_a_file_that_may_grow_no_more_and_no_place_for_temporary_ones_are_said(
    monkeypatch: pytest.MonkeyPatch, failure: OSError, said: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("mimdsim.api.place", full)
    assert said in mimdsim("place", "digits", "tiny", code=2)


def test_a_working_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    script = f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); os.rmdir(os.getcwd()); from mimdsim.cli import main; "
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", f"{script}main(['check', 'digits', 'bow'])"],
        cwd=tmp_path / "gone", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "mimdsim: the working folder is gone; change to one that is there\n")


def test_kernels_that_can_be_kept_nowhere_are_said(tmp_path: Path) -> None:
    """Numba finds no folder: not the package's, which is read-only (here: made to look so), nor one of the user."""
    nowhere = (
        "import sys; from numba.core import caching; from mimdsim.cli import main\n"
        "def refuse(self): raise OSError(30, 'Read-only file system')\n"
        "caching._CacheLocator.ensure_cache_path = refuse\n"
        "main(['check', 'digits', 'bow'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", nowhere], cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 2
    assert "set NUMBA_CACHE_DIR to a writable folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "commands", "said"),
    [
        (
            {"NUMBA_NUM_THREADS": "0"},
            "main(['check', 'digits', 'tiny'])",
            r"mimdsim: numba refuses the environment \(.* must be > 0\.\); correct or unset .*NUMBA_NUM_THREADS\n",
        ),
        (
            {"MPLBACKEND": "broken"},  # and is the caller's again after the command
            "main(['report', PROFILE, '--out', FOLDER], standalone_mode=False); assert environ == before",
            "",
        ),
    ],
)
def test_an_environment_that_other_packages_refuse(
    variable: dict[str, str], commands: str, said: str, tmp_path: Path
) -> None:
    profile = ROOT / "tests" / "golden" / "data" / "0.1.0" / "run" / "profile.json"
    before = "from os import environ; before = dict(environ)"
    given = f"PROFILE, FOLDER = {str(profile)!r}, {str(tmp_path)!r}; {before}"
    script = f"from mimdsim.cli import main; {given}; {commands}"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | variable
    )
    waited = ("working, for ", "drawing figures: ")  # if it is slow
    told = "".join(line for line in done.stderr.splitlines(True) if not line.startswith(waited))
    assert (done.returncode, bool(re.fullmatch(said, told))) == (2 if said else 0, True), done.stderr


@pytest.mark.usefixtures("simulated")
def test_a_report_into_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, 1)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    def refused(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", refused)
    output = mimdsim("report", str(tmp_path / "profile.json"), code=2)
    assert output.count("\n") == 1
    assert "cannot be written as a folder (Read-only file system); choose another" in output
    assert {path: path.stat().st_mtime_ns for path in before} == before


def started(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """A sweep over many seeds by two processes, in a group of its own."""
    seeds = ",".join(str(seed) for seed in range(1, 21))
    command = ("sweep", "digits", "bow", "--set", f"seed={seeds}", "--processes", "2", "--out", str(tmp_path))
    return subprocess.Popen(
        [sys.executable, "-m", "mimdsim", *command, *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )  # fmt: skip


def children(parent: int) -> list[int]:
    """Processes whose parent is this one."""
    found = []
    for about in Path("/proc").glob("[0-9]*/stat"):
        try:
            name_and_rest = about.read_text().rpartition(")")
        except OSError:
            continue
        if int(name_and_rest[2].split()[1]) == parent:
            found.append(int(about.parent.name))
    return found


def within(seconds: float, holds: Any) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kept(folder: Path) -> int:
    """Points that are done."""
    return count_rows(folder)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize(
    "how",
    [signal.SIGTERM, *(pytest.param(how, marks=pytest.mark.slow) for how in (signal.SIGKILL, signal.SIGINT))],
)
def test_workers_end_with_their_sweep(tmp_path: Path, how: signal.Signals) -> None:
    sweep = started(tmp_path, "--fill", "1")
    try:
        assert within(120, lambda: kept(tmp_path) > 0)
        workers = children(sweep.pid)
        assert len(workers) == 2
        sweep.send_signal(how)
        output, _ = sweep.communicate(timeout=30)
    finally:
        sweep.kill()
    assert within(20, lambda: not any(alive(worker) for worker in workers))
    assert "Traceback" not in output
    if how == signal.SIGINT:
        assert f"points are saved in {tmp_path}; the same command continues from there" in output


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_a_killed_worker_is_made_up_for(tmp_path: Path) -> None:
    sweep = started(tmp_path, "--fill", "1")
    try:
        assert within(120, lambda: kept(tmp_path) > 0)
        os.kill(children(sweep.pid)[0], signal.SIGKILL)
        output, _ = sweep.communicate(timeout=300)
    finally:
        sweep.kill()
    assert sweep.returncode == 0, output
    assert kept(tmp_path) == 20
    assert "Traceback" not in output


def _dies_on_three(points: Any, _: Any, folder: Path) -> list[int | Exception]:
    found: list[int | Exception] = []
    for point in points:
        seed = dict(point.changes)["seed"]
        if seed == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if seed != 5:
            (folder / str(seed)).write_text("")
        found.append(MimdsimError("five is no number") if seed == 5 else seed)
    return found


@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="kills itself by SIGKILL")
def test_a_point_whose_process_dies_again_and_again_is_named(tmp_path: Path) -> None:
    study = make_study("test", workloads=["digits"], axes={"seed": list(range(1, 9))}, fill=1.0)
    points = Points(study)
    made = points.of(points.designs())
    batches = [Batch(points=tuple(made[at : at + 3]), spikes={}) for at in (0, 3, 6)]
    failed = {}
    with contextlib.closing(Local(2)) as engine:
        for done in engine.each(_dies_on_three, batches, tmp_path):
            found = done.found or [done.problem] * len(done.batch.points)
            for point, one in zip(done.batch.points, found, strict=True):
                if isinstance(one, Exception):
                    failed[dict(point.changes)["seed"]] = str(one)
    assert sorted(failed) == [3, 5]
    assert "was killed" in failed[3]
    assert failed[5] == "five is no number"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "4", "6", "7", "8"]


def test_an_interrupted_sweep_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mimdsim.studies.runner.time_points", interrupted)
    arguments = ["sweep", "digits", "bow", "--set", "seed=1,2", "--fill", "1", "--processes", "1", "--out"]
    result = CliRunner().invoke(main, [*arguments, str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "interrupted; 0 points are saved" in result.output
