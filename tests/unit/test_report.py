"""The report: one self-contained, deterministic page with all figures and tables, and a console summary that fits."""

from __future__ import annotations

import base64
import csv
import dataclasses
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from random_profile import LIMIT, TILES, Reader, make_gpu, make_profile

import mimdsim
from mimdsim.profile import (
    Change,
    MemoryProfile,
    RunProfile,
    TileColumns,
)
from mimdsim.report import console, summary_lines, write_report
from mimdsim.report.figures_learning import draw_activity
from mimdsim.report.formatting import clipped, interval, plain, share, significant, thousands
from mimdsim.report.headline import verdicts
from mimdsim.report.machine_comparison import contenders, strongest_gpu
from mimdsim.report.tables import Cell, Table
from mimdsim.report.tables_run import activity_table

FIGURES = {
    "time_by_phase", "longest_supersteps", "tile_map", "tile_balance", "memory_by_tile", "liveness", "training",
    "activity", "raster", "comparison",
}  # fmt: skip
HOSTILE = "<script>alert('x')</script> & $\\frac{1}$ \x1b[31mred\u202e"


@pytest.fixture(scope="module")
def profile() -> RunProfile:
    return make_profile()


@pytest.fixture(scope="module")
def small(profile: RunProfile) -> RunProfile:
    """No tiles, no training: cheap to draw; its names are hostile."""
    gpu = dataclasses.replace(profile.gpus[0], title=HOSTILE, strategy="=1+1")
    layer = dataclasses.replace(profile.activity[2], layer=HOSTILE)
    return dataclasses.replace(
        profile,
        tiled=None,
        training=None,
        gpus=(gpu,),
        activity=(layer,),
        workload_title=HOSTILE,
        warnings=(HOSTILE,),
        changes=(Change(key=HOSTILE, value=HOSTILE),),
    )


@pytest.fixture(scope="module")
def folder(profile: RunProfile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("report")
    write_report(profile, found)
    return found


@pytest.fixture(scope="module", params=["small", pytest.param("whole", marks=pytest.mark.slow)])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "whole":
        folder: Path = request.getfixturevalue("folder")
        return folder / "report.html"
    made = tmp_path_factory.mktemp("small")
    write_report(request.getfixturevalue("small"), made)
    return made / "report.html"


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    assert not reader.open
    return reader


def test_page_is_whole_and_loads_nothing(page: Path) -> None:
    content = page.read_text(encoding="utf-8")
    assert page.stat().st_size < 5_000_000
    assert "http://" not in content
    assert "https://" not in content
    assert "@import" not in content
    assert "url(" not in content
    reader = read(page)
    assert reader.tags.count("script") == 1
    assert "link" not in reader.tags
    assert len(reader.ids) == len(set(reader.ids))
    for target in reader.loads:
        if target.startswith("#"):
            assert target[1:] in reader.ids
        elif not target.startswith("data:image/"):
            assert (page.parent / target).is_file()


def test_sections_stand_in_order(page: Path) -> None:
    content = page.read_text(encoding="utf-8")
    titles = re.findall(r'<h2 id="\w+">(\d+) ([^<]+)</h2>', content)
    assert titles == [
        ("1", "Summary"), ("2", "Where the time goes"), ("3", "Tiles"), ("4", "Memory"), ("5", "Liveness"),
        ("6", "Training"), ("7", "Spikes"), ("8", "Comparison with GPUs"), ("9", "What is modelled"), ("10", "Files"),
    ]  # fmt: skip


@pytest.mark.slow
def test_every_figure_is_embedded_and_beside_the_page(folder: Path) -> None:
    content = (folder / "report.html").read_text(encoding="utf-8")
    assert {path.stem for path in (folder / "figures").glob("*.png")} == FIGURES
    assert set(re.findall(r'id="figure-(\w+)"', content)) == FIGURES
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', content)
    assert len(pictures) == len(FIGURES)
    assert all(base64.b64decode(data).startswith(b"\x89PNG\r") for data in pictures)


@pytest.mark.slow
def test_csv_files_hold_every_row_with_units(folder: Path, profile: RunProfile) -> None:
    tiled = profile.tiled
    assert tiled is not None

    def rows(name: str) -> list[dict[str, str]]:
        return list(csv.DictReader((folder / name).read_text(encoding="utf-8").splitlines()))

    tiles = rows("tiles.csv")
    assert len(tiles) == TILES
    assert [int(row["busy_cycles"]) for row in tiles] == list(tiled.tile_columns.busy_cycles)
    assert (tiles[47]["grid_column"], tiles[47]["grid_row"]) == ("1", "1")
    assert int(tiles[3]["weights_bytes"]) == tiled.memory.bytes_by_category_and_tile[0][3]
    supersteps = rows("supersteps.csv")
    assert sum(int(row["total_cycles"]) for row in supersteps) == tiled.cycles
    assert {float(row["clock_hz"]) for row in supersteps} == {1.33e9}
    assert max(int(row["fullest_tile_bytes"]) for row in rows("liveness.csv")) == tiled.memory.peak_bytes


@pytest.mark.slow
def test_same_profile_same_bytes_in_another_process(folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import matplotlib; matplotlib.rcParams.update({'font.size': 30, 'axes.facecolor': 'pink'})\n"
        "from pathlib import Path; from random_profile import make_profile; from mimdsim.report import write_report\n"
        "write_report(make_profile(), Path(sys.argv[2]))"
    )
    here = str(Path(__file__).parents[1] / "support")
    subprocess.run([sys.executable, "-c", program, here, str(tmp_path)], check=True, timeout=120)
    first = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    second = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert first == second


def test_hostile_names_are_shown_and_not_obeyed(small: RunProfile, tmp_path: Path) -> None:
    paths = write_report(small, tmp_path)
    content = paths[0].read_text(encoding="utf-8")
    assert read(paths[0]).tags.count("script") == 1
    assert "&lt;script&gt;alert(" in content
    assert "\x1b" not in content
    assert "\u202e" not in content
    assert all(plain(line) == line for line in summary_lines(small))


def test_absent_data_is_said_and_old_files_go(small: RunProfile, tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for stale in ("tiles.csv", "figures/tile_map.png"):
        (tmp_path / stale).write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    paths = write_report(small, tmp_path)
    content = paths[0].read_text(encoding="utf-8")
    assert content.count("No tiled machine was profiled") == 4
    assert "Nothing was trained" in content
    assert {path.name for path in paths} == {"report.html", "activity.png", "raster.png", "comparison.png"}
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {*paths, tmp_path / "notes.txt"}


def test_console_is_narrow_aligned_and_in_page_order(profile: RunProfile) -> None:
    lines = summary_lines(profile)
    assert max(map(len, lines)) <= 110
    assert all(line == line.rstrip() and line.isascii() for line in lines)
    wanted = ["Verdict", "Where the time goes", "The 5 longest", "Tiles", "Memory", "Liveness", "Spikes", "Comparison",
              "What is modelled"]  # fmt: skip
    places = [next(at for at, line in enumerate(lines) if line.startswith(title)) for title in wanted]
    assert places == sorted(places)
    start = lines.index("Where the time goes") + 1
    block = lines[start : lines.index("", start)]
    assert len({len(line) for line in block}) == 1


def test_the_network_is_drawn_as_its_layers_read_each_other(profile: RunProfile, tmp_path: Path) -> None:
    """Straight arrows to the next layer, arcs to others, dashed ones back; of runs that do not say it a chain."""
    reads = {"hidden0": ("input", "hidden0"), "hidden1": ("input",), "output": ("hidden1", "hidden0")}
    assert [one.layer for one in profile.activity] == [*reads]
    known = tuple(dataclasses.replace(one, reads=reads.get(one.layer, ())) for one in profile.activity)
    drawn = []
    for activity in (profile.activity, known):
        write_report(dataclasses.replace(profile, activity=activity, tiled=None, gpus=()), tmp_path)
        page = (tmp_path / "report.html").read_text()
        figure = page.partition('<figure class="network">')[2].partition("</figure>")[0]
        drawn.append((figure.count("34h58"), figure.count("-7l4 7l4 -7"), figure.count("stroke-dasharray")))
    assert drawn == [(2, 0, 0), (1, 2, 1)]
    assert "dashed: a timestep later" in figure


def test_console_of_long_names_stays_narrow(profile: RunProfile) -> None:
    long = dataclasses.replace(
        profile,
        workload_title="word " * 60,
        network="-".join(["1466"] * 60),
        warnings=("x" * 400,),
        gpus=tuple(
            dataclasses.replace(gpu, title="G" * 90, strategy="s" * 90, precision="p" * 40) for gpu in profile.gpus
        ),
    )
    assert max(map(len, summary_lines(long))) <= 110
    assert "Comparison, ms per training step" in summary_lines(long)


def test_verdicts_start_with_machines_if_several_then_memory_and_time(profile: RunProfile) -> None:
    order, *found = verdicts(profile)
    assert order.text.startswith("Fastest first: ")
    times = [float(each) for each in re.findall(r"([0-9.]+) ms", order.text)]
    assert len(times) > 2
    assert times == sorted(times)
    assert verdicts(dataclasses.replace(profile, gpus=profile.gpus[:1]))[0].subject == "memory"
    assert [one.subject for one in found[:3]] == ["memory", "time", "GPU"]
    assert found[0].text.startswith("Fits: peak ")
    assert "interval" in found[1].text
    assert any(one.subject == "spikes" and "12,345 spikes dropped" in one.text for one in found)


def test_machines_that_cannot_be_ranked_are_named_with_the_order(profile: RunProfile) -> None:
    assert profile.tiled is not None
    small = dataclasses.replace(profile.tiled.memory, limit_bytes=1)
    other = dataclasses.replace(profile.tiled, title="Too small", memory=small)
    order = verdicts(dataclasses.replace(profile, tiled_beside=(*profile.tiled_beside, other)))[0]
    assert order.text.endswith(" ms. Does not fit: Too small.")


def test_too_full_a_tile_is_named_with_bytes_over(profile: RunProfile) -> None:
    assert profile.tiled is not None
    memory = dataclasses.replace(profile.tiled.memory, peak_bytes=LIMIT + 2_048, peak_tile=1_203)
    full = dataclasses.replace(profile, tiled=dataclasses.replace(profile.tiled, memory=memory))
    verdict = verdicts(full)[0]
    assert verdict.mood == "bad"
    assert "tile 1,203 needs 626.0 KiB of 624.0 KiB, 2.0 KiB too much" in verdict.text
    assert "hidden1/weights (weights)" in verdict.text


def test_strongest_strategy_must_fit_and_both_directions_are_told(profile: RunProfile) -> None:
    found = contenders(profile)
    assert found[0].tiled
    assert [(one.title, one.strategy) for one in found if one.strongest] == [
        ("NVIDIA H100 SXM", "fused"),
        ("NVIDIA A100 SXM 40 GB", "fused"),
    ]
    assert len(found) == 1 + len(profile.gpus)
    rival = strongest_gpu(found)
    assert rival is not None
    tiled_seconds = found[0].seconds
    slow, fast, same = (
        dataclasses.replace(
            profile,
            gpus=(make_gpu("X", "fused", "fp32", tiled_seconds * factor),),
        )
        for factor in (4.0, 0.1, 1.0)
    )
    assert contenders(slow)[1].ratio_words.startswith("tiled 4.0× faster (3.0–5.4)")
    assert contenders(fast)[1].ratio_words.startswith("GPU 10× faster (7.4–13)")
    assert contenders(same)[1].ratio_words.startswith("undecided")
    told = [verdicts(one)[2].text for one in (slow, fast, same)]
    assert told[0].startswith("The tiled machine is 4.0× faster")
    assert told[1].startswith("The strongest GPU strategy, X, fused, fp32")
    assert told[1].endswith("faster (7.4–13) than the tiled machine.")
    assert told[2].startswith("Undecided")


def test_gpu_that_lacks_memory_is_never_the_strongest(profile: RunProfile) -> None:
    only = dataclasses.replace(profile, gpus=(make_gpu("X", "fused", "fp32", 0.001, needed_gib=50),))
    assert strongest_gpu(contenders(only)) is None
    assert any(one.subject == "GPU memory" and "50.0 GiB of 40.0 GiB" in one.text for one in verdicts(only))


def test_infinite_loss_is_named(profile: RunProfile) -> None:
    assert profile.training is not None
    broken = dataclasses.replace(profile.training, loss=(2.3, 2.1, math.nan, math.inf))
    text = next(
        one.text for one in verdicts(dataclasses.replace(profile, training=broken)) if one.subject == "training"
    )
    assert "not finite from training step 3" in text


def test_empty_machine_is_drawn_without_division_by_zero(profile: RunProfile, tmp_path: Path) -> None:
    assert profile.tiled is not None
    columns = TileColumns(grid_columns=2, busy_cycles=(0, 0), bytes_sent=(0, 0), bytes_received=(0, 0),
                          peak_bytes=(0, 0), always_live_bytes=(0, 0), layer=("", ""))  # fmt: skip
    memory = MemoryProfile(limit_bytes=LIMIT, peak_tile=0, peak_bytes=0, categories=("weights",),
                           bytes_by_category_and_tile=((0, 0),), peak_bytes_by_tile=(0, 0),
                           always_live_bytes_by_tile=(0, 0), largest_on_peak_tile=(), liveness=())  # fmt: skip
    tiled = dataclasses.replace(
        profile.tiled, tiles=2, tiles_used=0, spans=(), tile_columns=columns, memory=memory, host_exposed_seconds=0.0,
        seconds_low=0.0, seconds_high=0.0,
    )  # fmt: skip
    empty = dataclasses.replace(profile, tiled=tiled, gpus=profile.gpus[:1], training=None, activity=())
    paths = write_report(empty, tmp_path)
    assert [path.name for path in paths if path.suffix == ".png"] == ["comparison.png"]
    assert max(map(len, summary_lines(empty))) <= 110


def test_what_cells_and_dense_layers_send_is_not_said_to_be_listed(profile: RunProfile) -> None:
    one, other = (dataclasses.replace(profile.activity[-1], sends=sends, raster=()) for sends in ("numbers", "dense"))
    table = activity_table((one, other))
    assert [cell.text for row in table.rows for cell in row[-5:]] == ["–"] * 10
    assert table.note.endswith("Of cells that send numbers: those that are not zero.")
    figure = draw_activity(dataclasses.replace(profile, activity=(one, other)))
    assert figure is not None
    first, second = (panel.get_title(loc="left") for panel in figure.axes)
    assert first.endswith("numbers that are not zero per timestep")
    assert second.endswith("spikes per timestep")
    changes = {"network.neuron": ["gru", "leaky"], "network.hidden": [8], "network.capacity": [], "data.timesteps": 4}
    changes |= {"network.spikes": "dense", "training.max_training_steps": 1, "training.evaluate": "never"}
    made = mimdsim.run("digits", "bow", gpus=(), changes=changes).profile.activity
    assert [(each.sends, bool(each.raster)) for each in made[:2]] == [("dense", True), ("numbers", False)]
    assert made[2].sends == "dense"


def test_importing_the_report_imports_no_drawing() -> None:
    program = "import sys, mimdsim.report; print([m for m in ('matplotlib', 'jinja2', 'numpy') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (significant(0.0123456), "0.0123"),
        (significant(1_234.5), "1,234"),
        (significant(6.756), "6.76"),
        (significant(9.996), "10.0"),
        (significant(-0.5), "-0.500"),
        (significant(0.0), "0"),
        (thousands(-0.2), "0"),
        (significant(math.inf), "inf"),
        (share(1, 3), "33.3 %"),
        (share(1, 1e6), "<0.1 %"),
        (share(1, 0), "–"),
        (interval(0.0059, 0.0081), "5.90–8.10"),
        (clipped("superstep", 6), "supe.."),
        (plain("a\nb\x07\ud800"), "a b"),
    ],
)
def test_numbers_and_names_for_people(said: str, wanted: str) -> None:
    assert said == wanted


def test_the_console_cuts_names_and_never_numbers() -> None:
    headers = ("name", "first", "second", "verdict")
    texts = {"a name " * 30: None, "123,456,789": 123456789.0, "0.25": 0.25, "fits " * 8: None}
    cells = tuple(Cell(text=text, value=value) for text, value in texts.items())
    table = Table(name="one", caption="", headers=headers, rows=(cells,), title="Title")
    lines = list(console._table_lines(table))
    assert max(map(len, lines)) <= console.WIDTH
    assert "  123,456,789    0.25  " in lines[-1]
