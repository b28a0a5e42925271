"""The report: one self-contained, deterministic page with all figures and tables, and a console summary that fits."""

from __future__ import annotations

import base64
import csv
import dataclasses
import html.parser
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mimdsim.profile import (
    Activity,
    Assumption,
    Change,
    GpuProfile,
    KernelSpan,
    Liveness,
    MemoryProfile,
    RunProfile,
    Span,
    TileColumns,
    TiledProfile,
    Training,
)
from mimdsim.report import console, summary_lines, write_report
from mimdsim.report.formatting import clipped, interval, plain, share, significant, thousands
from mimdsim.report.headline import verdicts
from mimdsim.report.machine_comparison import contenders, strongest_gpu
from mimdsim.report.tables import Cell, Table

TILES, LIMIT = 1_472, 624 * 1024
LAYERS = (("hidden0", 1_466, 640), ("hidden1", 1_466, 640), ("output", 10, 16))
CATEGORIES = (
    "weights", "neuron state", "stored activations", "gradients", "optimiser", "spike lists", "exchange buffers",
    "vertex code", "control code", "input", "stack",
)  # fmt: skip
FIGURES = {
    "time_by_phase", "longest_supersteps", "tile_map", "tile_balance", "memory_by_tile", "liveness", "training",
    "activity", "raster", "comparison",
}  # fmt: skip
KINDS = ("measured", "published", "derived", "assumed")
HOSTILE = "<script>alert('x')</script> & $\\frac{1}$ \x1b[31mred\u202e"


def make_spans(random: np.random.Generator) -> tuple[Span, ...]:
    """40 supersteps: the same thirteen operations forward and backward, per layer, then loss and update."""
    parts = [("input", "stream events in", 1)]
    for layer, _, _ in LAYERS:
        parts += [
            ("forward", f"{layer}/{op}", 100)
            for op in ("spread spikes", "gather weights", "leak and fire", "list spikes")
        ]
        parts += [("forward", f"{layer}/stash state", 100)]
    parts += [("loss", "softmax", 1), ("loss", "sum over samples", 1)]
    for layer, _, _ in reversed(LAYERS):
        parts += [("backward", f"{layer}/{op}", 100) for op in ("spread gradients", "surrogate", "transposed product")]
        parts += [("backward", f"{layer}/outer product", 100)]
    parts += [
        ("update", f"{layer}/{op}", 1) for layer, _, _ in LAYERS for op in ("reduce gradients", "Adam", "check norm")
    ]
    spans = []
    for phase, name, times in parts:
        compute = int(times * random.integers(300, 9_000) * (0.06 if "output" in name else 1.0))
        spans.append(
            Span(
                name=name,
                op=name.split("/")[-1],
                phase=phase,
                times=times,
                compute_cycles=compute,
                exchange_cycles=int(times * random.integers(100, 4_000)),
                sync_cycles=times * 172,
                busy_cycles=int(compute * TILES * random.uniform(0.3, 0.95)),
                bytes_received=int(times * random.integers(10_000, 4_000_000)),
                flops=int(compute * 900),
                slowest_tile=int(random.integers(TILES)),
            )
        )
    return tuple(spans)


def make_memory(random: np.random.Generator) -> MemoryProfile:
    base = 1_024 * np.array([[92], [14], [120], [61], [47], [22], [35], [28], [12], [9], [4]])
    table = (base * random.uniform(0.96, 1.04, size=(len(CATEGORIES), TILES))).astype(int)
    table[:4, 730:1_460] = (table[:4, 730:1_460] * 1.3).astype(int)
    table[:6, 1_460:] //= 6
    totals = table.sum(axis=0)
    peak = int(totals.argmax())
    phases = ["input"] + ["forward"] * 15 + ["loss"] * 2 + ["backward"] * 12 + ["update"] * 9
    top = int(totals[peak])
    shape = [0.5 + 0.5 * math.exp(-(((index - 18) / 9.0) ** 2)) for index in range(len(phases))]
    return MemoryProfile(
        limit_bytes=LIMIT,
        peak_tile=peak,
        peak_bytes=top,
        categories=CATEGORIES,
        bytes_by_category_and_tile=tuple(tuple(row) for row in table.tolist()),
        peak_bytes_by_tile=tuple(table.sum(axis=0).tolist()),
        always_live_bytes_by_tile=tuple(table[0].tolist()),
        largest_on_peak_tile=(
            ("hidden1/weights", "weights", int(table[0, peak])),
            ("hidden1/stash", "stored activations", 31_000),
        ),
        liveness=tuple(
            Liveness(
                superstep=f"superstep {index}",
                phase=phase,
                fullest_tile=peak if index == 18 else int(random.integers(TILES)),
                fullest_tile_bytes=int(top * shape[index]),
                total_bytes=int(totals.sum() * shape[index]),
            )
            for index, phase in enumerate(phases)
        ),
    )


def make_assumptions(count: int, machine: str) -> tuple[Assumption, ...]:
    return tuple(
        Assumption(
            name=f"{machine}.exchange.number_{index}",
            value=f"{4 + index} bytes/cycle",
            kind=KINDS[index % 4],
            source="invented for this test; long enough that the cell of the table has to be folded in two",
        )
        for index in range(count)
    )


def make_tiled(random: np.random.Generator) -> TiledProfile:
    spans = make_spans(random)
    total = sum(span.cycles for span in spans)
    layer = ["hidden0"] * 730 + ["hidden1"] * 730 + ["output"] * 10 + [""] * 2
    mean = np.where(np.arange(TILES) < 730, 0.28, 0.42) * total
    busy = (mean * random.normal(1.0, 0.07, TILES)).astype(int)
    busy[1_460:1_470] //= 5
    busy[1_470:] = 0
    memory = make_memory(random)
    totals = np.asarray(memory.bytes_by_category_and_tile).sum(axis=0)
    seconds = total / 1.33e9 + 0.0002
    return TiledProfile(
        machine="ipu-mk2",
        title="Graphcore IPU Mk2 (GC200)",
        clock_hz=1.33e9,
        tiles=TILES,
        tiles_used=1_470,
        worker_contexts=6,
        spans=spans,
        tile_columns=TileColumns(
            grid_columns=46,
            busy_cycles=tuple(busy.tolist()),
            bytes_sent=tuple(random.integers(1_000, 900_000, TILES).tolist()),
            bytes_received=tuple(random.integers(1_000, 4_000_000, TILES).tolist()),
            peak_bytes=tuple(totals.tolist()),
            always_live_bytes=tuple((totals * 0.45).astype(int).tolist()),
            layer=tuple(layer),
        ),
        memory=memory,
        host_seconds=0.0011,
        host_exposed_seconds=0.0002,
        seconds_low=seconds * 0.87,
        seconds_high=seconds * 1.22,
        assumptions=make_assumptions(24, "ipu"),
    )


def make_gpu(
    title: str, strategy: str, precision: str, seconds: float, *, needed_gib: float = 3.2, gib: int = 40
) -> GpuProfile:
    parts = (("forward", "spike product", "memory", 0.3), ("forward", "neuron update", "launch", 0.15),
             ("loss", "softmax", "launch", 0.01), ("backward", "weight gradient", "compute", 0.4),
             ("update", "Adam", "memory", 0.1), ("input", "wait for batch", "host", 0.02))  # fmt: skip
    return GpuProfile(
        machine=title.lower().replace(" ", "-"),
        title=title,
        strategy=strategy,
        precision=precision,
        description=f"{strategy} kernels, one launch a timestep, replayed as a graph",
        spans=tuple(
            KernelSpan(
                name=f"{name} kernel",
                op=name,
                phase=phase,
                times=100,
                seconds=seconds * part,
                flops=10**9,
                bytes_moved=10**8,
                bound=bound,
            )
            for phase, name, bound, part in parts
        ),
        host_seconds=seconds * 0.05,
        host_exposed_seconds=seconds * 0.02,
        seconds_low=seconds * 0.8,
        seconds_high=seconds * 1.3,
        bytes_needed=int(needed_gib * 2**30),
        memory_bytes=gib * 2**30,
        assumptions=make_assumptions(10, title),
    )


def make_activity(random: np.random.Generator) -> tuple[Activity, ...]:
    found = []
    for layer, neurons, capacity in LAYERS:
        rates = neurons * (0.06 + 0.05 * np.sin(np.arange(100) / 12)) * random.uniform(0.9, 1.1, 100)
        pairs = [(t, int(n)) for t in range(100) for n in np.sort(random.choice(neurons, int(rates[t]), replace=False))]
        found.append(
            Activity(
                layer=layer,
                neurons=neurons,
                capacity=capacity,
                spikes_by_timestep=tuple(rates.tolist()),
                listed_by_timestep=tuple((rates * 2.1).tolist()),
                full_lists=0.031 if layer == "hidden0" else 0.0,
                dropped=12_345 if layer == "hidden0" else 0,
                raster=tuple(pairs),
            )
        )
    return tuple(found)


def make_profile() -> RunProfile:
    """A plausible run. Every number is invented: nothing here says how fast any real machine is."""
    random = np.random.default_rng(7)
    loss = 0.25 + 2.05 * np.exp(-np.arange(1_200) / 260) * random.uniform(0.8, 1.2, 1_200)
    return RunProfile(
        schema_version=1,
        tool_version="0.1.0",
        config_sha256="ab" * 32,
        seed=42,
        workload="nmnist",
        workload_title="N-MNIST, two hidden layers, surrogate gradients through 100 timesteps",
        network="2312-1466-1466-10",
        timesteps=100,
        batch=48,
        tiled=make_tiled(random),
        gpus=(
            make_gpu("NVIDIA A100 SXM 40 GB", "fused", "tf32", 0.021),
            make_gpu("NVIDIA A100 SXM 40 GB", "sparse gather", "fp32", 0.034),
            make_gpu("NVIDIA A100 SXM 40 GB", "dense per timestep", "fp32", 0.058),
            make_gpu("NVIDIA H100 SXM", "fused", "tf32", 0.0082, gib=80),
            make_gpu("NVIDIA H100 SXM", "dense per timestep", "fp32", 0.031, needed_gib=96, gib=80),
        ),
        training=Training(
            training_steps=1_200,
            samples=57_600,
            batch=48,
            loss=tuple(loss.tolist()),
            train_accuracy=0.971,
            test_accuracy=0.953,
            test_samples=10_000,
            test_accuracy_by_epoch=(0.81, 0.90, 0.93, 0.944, 0.953),
        ),
        activity=make_activity(random),
        warnings=("tile 12 sends 3.2 times the mean; the exchange waits for it",),
    )


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


class Reader(html.parser.HTMLParser):
    """Collects tags and what they load, and checks that tags close in order."""

    VOID = frozenset({"meta", "img", "br", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "data", "poster", "action"):
                self.loads.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


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
        "import sys; sys.path[:0] = sys.argv[1].split(':')\n"
        "import matplotlib; matplotlib.rcParams.update({'font.size': 30, 'axes.facecolor': 'pink'})\n"
        "from pathlib import Path; from test_report import make_profile, write_report\n"
        "write_report(make_profile(), Path(sys.argv[2]))"
    )
    here = f"{Path(__file__).parent}:{Path(__file__).parents[1] / 'support'}"
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


def test_verdicts_start_with_memory_then_time(profile: RunProfile) -> None:
    found = verdicts(profile)
    assert [one.subject for one in found[:3]] == ["memory", "time", "GPU"]
    assert found[0].text.startswith("Fits: peak ")
    assert "interval" in found[1].text
    assert any(one.subject == "spikes" and "12,345 spikes dropped" in one.text for one in found)


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
    assert contenders(slow)[1].ratio_words.startswith("tiled 4.0× faster (2.6–6.0)")
    assert contenders(fast)[1].ratio_words.startswith("GPU 10× faster (6.7–15)")
    assert contenders(same)[1].ratio_words.startswith("undecided")
    told = [verdicts(one)[2].text for one in (slow, fast, same)]
    assert told[0].startswith("The tiled machine is 4.0× faster")
    assert told[1].startswith("The strongest GPU strategy, X, fused, fp32")
    assert told[1].endswith("faster (6.7–15) than the tiled machine.")
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
