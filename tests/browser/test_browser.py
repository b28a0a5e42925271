"""The page in a browser: opened from a file, without network, by mouse and by keyboard."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_profile import make_profile
from small_detail import SMALL

from mimdsim.base.units import counted, show_bytes
from mimdsim.machine import load_machine
from mimdsim.pipeline import compile_workload, detail_of, retime
from mimdsim.profile import RunProfile, save_profile
from mimdsim.profile.detail import Detail
from mimdsim.profile.operations import longest_superstep
from mimdsim.profile.records import SCHEMA_VERSION
from mimdsim.report import write_report
from mimdsim.report.formatting import share
from mimdsim.report.headline import waiting_cycles
from mimdsim.report.index_page import index_page
from mimdsim.report.trace import critical_path
from mimdsim.workload import filled_activity, load_workload

pytestmark = pytest.mark.slow

Run = tuple[RunProfile, Detail]
HOSTILE = "<img src=x onerror=alert(1)>"


def run_of(tiles: int = 48, chips: int = 1, fill: float = 0.5) -> Run:
    machine = load_machine("bow", {"chip.tiles": tiles, "links.chips": chips})
    compiled = compile_workload(load_workload("digits", SMALL), machine, must_fit=False)
    activity = filled_activity(compiled.network, fill)
    detail = detail_of(compiled.program, machine, activity, compiled.memory, "a run", range(6))
    return dataclasses.replace(make_profile(), tiled=retime(compiled, machine, activity)), detail


@pytest.fixture(scope="module")
def run() -> Run:
    return run_of()


@pytest.fixture(scope="module")
def page_file(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("page"), *run)


def written(folder: Path, profile: RunProfile, detail: Detail, other: tuple[RunProfile, Detail] | None = None) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mimdsim.report.page.FIGURES", ())  # neither figures nor CSV files are looked at
        patch.setattr("mimdsim.report.page.csv_files", lambda _: {})
        return write_report(profile, folder, None, detail, other)[0]


class Opened:
    """A page that was opened, and what went wrong in it."""

    def __init__(self, browser: Any, file: Path, address: str = "", **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", lambda message: message.type == "error" and self.wrong.append(message.text))
        self.page.on("pageerror", lambda problem: self.wrong.append(str(problem)))
        self.page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or self.wrong.append(asked.url))
        self.page.goto(file.as_uri() + address)
        self.page.wait_for_selector("html[data-walk]", state="attached", timeout=60_000)

    def drawn(self) -> None:
        """Wait until what is selected is drawn, with the frame after the one in which an address is read."""
        for _ in range(2):
            self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")

    def text(self, place: str) -> str:
        self.drawn()
        return str(self.page.inner_text(place))

    @property
    def address(self) -> str:
        self.drawn()
        return str(self.page.url.partition("#")[2])

    def dots(self, canvas: str) -> str:
        self.drawn()
        return str(self.page.evaluate(f"document.getElementById('{canvas}').toDataURL()"))

    def column(self, table: str, column: int) -> list[str]:
        rows = self.page.query_selector_all(f"#{table} tbody tr")
        return [row.query_selector_all("td")[column].inner_text() for row in rows]

    def done(self) -> None:
        assert self.wrong == []
        self.context.close()


@pytest.fixture
def opened(browser: Any, page_file: Path) -> Iterator[Opened]:
    made = Opened(browser, page_file)
    yield made
    made.done()


def busiest_of(detail: Detail) -> int:
    return int(detail.busy.sum(axis=0).argmax())


def test_three_questions_take_one_click(opened: Opened, run: Run) -> None:
    """Which superstep makes the busiest tile busy, who sends it most, what lies in its memory at the peak."""
    _, detail = run
    tile = busiest_of(detail)
    opened.page.click("#walk-busiest")
    assert opened.text("#walk-tile h3").startswith(f"Tile {tile}, ")
    order = np.argsort(-detail.busy[:, tile], kind="stable")
    assert opened.column("walk-tile-supersteps", 0)[0] == detail.supersteps[order[0]]
    assert opened.column("walk-tile-supersteps", 1)[0] == f"{detail.busy[order[0], tile]:,}"
    assert opened.column("walk-partners", 0)[0] == f"tile {detail.senders[tile, 0]}"
    peak = int(detail.memory[:, tile].argmax())
    lying = detail.on_tile(tile, peak)
    shown = opened.column("walk-lying", 0)
    assert sorted(shown) == sorted(name or "–" for name, *_ in lying)
    values = [float(each) for each in opened.page.eval_on_selector_all(
        "#walk-lying tbody td:nth-child(3)", "cells => cells.map(cell => cell.dataset.value)"
    )]  # fmt: skip
    assert values == [size for *_, size in lying]
    assert sum(values) == detail.memory[peak, tile]


def test_perfect_balance_saves_what_the_summary_says(opened: Opened, run: Run) -> None:
    profile, detail = run
    assert profile.tiled is not None
    saved = waiting_cycles(profile.tiled)
    told = f"over these tiles would save at most {saved:,.0f} cycles, {share(saved, profile.tiled.cycles)} of the"
    assert told in opened.text("#walk-superstep")
    assert f"of {np.count_nonzero(detail.busy.sum(axis=0))} tiles with work" in opened.text("#walk-superstep")


def test_links_select_and_the_address_keeps_it(opened: Opened, browser: Any, page_file: Path, run: Run) -> None:
    _, detail = run
    opened.page.click("#walk-busiest")
    opened.page.click("#walk-tile-supersteps tbody tr:first-child button")
    superstep = int(detail.busy[:, busiest_of(detail)].argmax())
    assert opened.address == f"tile={busiest_of(detail)}&superstep={superstep}"
    name = detail.supersteps[superstep]
    assert opened.text("#walk-superstep h3") == f"Superstep {superstep}, {name}"
    assert opened.page.query_selector(f'[data-superstep="{superstep}"][aria-current]') is not None
    opened.page.click("#walk-partners tbody tr:first-child button")
    assert opened.address.startswith(f"tile={detail.senders[busiest_of(detail), 0]}&")
    again = Opened(browser, page_file, f"#{opened.address}&measure=memory")
    assert again.text("#walk-selected") == opened.text("#walk-selected")
    assert again.page.input_value("#walk-measure") == "memory"
    for wrong in ("#tile=999999&superstep=-1", "#tile=%3Cimg%3E&superstep=1e9", "#summary"):
        other = Opened(browser, page_file, wrong)
        assert "no tile · all supersteps" in other.text("#walk-selected")
        other.done()
    again.done()


def test_sliders_and_play(opened: Opened, run: Run) -> None:
    _, detail = run
    before = opened.dots("walk-floor")
    opened.page.fill("#walk-superstep-slider", "20")
    assert opened.address == "superstep=20"
    assert detail.supersteps[20] in opened.text("#walk-superstep-words")
    assert opened.dots("walk-floor") != before
    superstep = int(detail.window_supersteps[0])
    opened.page.fill("#walk-superstep-slider", str(superstep))
    assert opened.page.is_visible("#walk-timestep-slider")
    opened.page.fill("#walk-timestep-slider", "2")
    assert f"timestep {detail.window_timesteps[2]}" in opened.text("#walk-floor-title")
    opened.page.click("#walk-every")
    assert opened.address in ("", "walk")
    assert not opened.page.is_visible("#walk-timestep-slider")
    opened.page.click("#walk-play")
    opened.page.wait_for_url(re.compile("#superstep="))
    assert opened.text("#walk-play") == "Stop"
    opened.page.click("#walk-play")
    stopped = opened.address
    opened.page.wait_for_timeout(900)
    assert opened.address == stopped


def test_an_address_that_is_not_read_yet_is_not_written_over(opened: Opened) -> None:
    """A measure is chosen and a link followed within one frame."""
    opened.page.evaluate("""() => {
        const measure = document.getElementById("walk-measure");
        requestAnimationFrame(() => { location.hash = "tile=3&superstep=5"; });
        measure.value = "memory";
        measure.dispatchEvent(new Event("change"));
    }""")
    assert opened.address == "tile=3&superstep=5"
    assert "Tile 3" in opened.text("#walk-tile")


def test_every_measure_is_drawn_and_told(opened: Opened) -> None:
    names = opened.page.eval_on_selector_all("#walk-measure option", "all => all.map(one => one.value)")
    assert {"busy", "idle", "memory", "received", "sent", "contexts", "layer", "exchange"} == set(names)
    opened.page.fill("#walk-superstep-slider", "7")
    pictures = set()
    for name in names:
        opened.page.select_option("#walk-measure", name)
        pictures.add(opened.dots("walk-floor"))
        assert opened.text("#walk-floor-scale")
        opened.page.hover("#walk-floor", position={"x": 5, "y": 5})
        assert opened.text("#walk-tip").startswith("tile 0, ")
    assert len(pictures) >= 6


def test_the_page_computes_the_memory_of_the_profile(opened: Opened, run: Run) -> None:
    """The bytes in use are not packed: they follow from variables, code, vertices and exchange buffers."""
    _, detail = run
    opened.page.select_option("#walk-measure", "memory")
    for superstep, tile in ((0, 0), (30, 12), (len(detail.supersteps) - 1, 47)):
        opened.page.evaluate(f"location.hash = 'tile={tile}&superstep={superstep}'")
        opened.drawn()
        if opened.page.is_enabled("#walk-lying >> xpath=../..//button[text()='in the selected superstep']"):
            opened.page.click("text=in the selected superstep")
        opened.drawn()
        values = opened.page.eval_on_selector_all("#walk-lying tbody td:nth-child(3)",
                                                  "cells => cells.map(cell => Number(cell.dataset.value))")  # fmt: skip
        assert sum(values) == detail.memory[superstep, tile]
    fullest = np.unravel_index(detail.memory.argmax(), detail.memory.shape)
    assert f"fullest tile of the run is tile {fullest[1]} " in opened.text("#walk-memory-peak")


def test_filters_and_zoom_of_the_picture(opened: Opened, run: Run) -> None:
    _, detail = run
    steps = len(detail.supersteps)
    whole = f"{steps} of {steps} supersteps"
    assert whole in opened.text("#walk-picture-title")
    shown = opened.dots("walk-picture")
    opened.page.check("#walk-own")
    assert opened.dots("walk-picture") != shown
    assert "share of the largest" in opened.text("#walk-picture-scale")
    opened.page.uncheck("#walk-own")
    assert opened.dots("walk-picture") == shown
    opened.page.fill("#walk-text", "stash")
    wanted = sum("stash" in name.lower() for name in detail.supersteps.tolist())
    assert f"{wanted} of {steps} supersteps" in opened.text("#walk-picture-title")
    opened.page.fill("#walk-text", "nothing is called so")
    opened.page.wait_for_selector("#walk-picture-none", state="visible")
    opened.page.fill("#walk-text", "")
    opened.page.select_option("#walk-phase", "backward")
    assert whole not in opened.text("#walk-picture-title")
    opened.page.select_option("#walk-phase", "")
    canvas = opened.page.locator("#walk-picture")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    opened.page.mouse.move(box["x"] + 200, box["y"] + 60)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 400, box["y"] + 200)
    opened.page.mouse.up()
    zoomed = opened.text("#walk-picture-title")
    assert whole not in zoomed
    assert not re.search(r"tiles 0 to 47", zoomed)
    canvas.dblclick(position={"x": 300, "y": 100})
    assert whole in opened.text("#walk-picture-title")
    assert re.match(r"tile=\d+&superstep=\d+", opened.address)
    opened.page.mouse.wheel(0, -300)
    opened.page.wait_for_timeout(400)
    assert whole not in opened.text("#walk-picture-title")


def test_keys(opened: Opened, run: Run) -> None:
    _, detail = run
    opened.page.keyboard.press("/")
    opened.page.keyboard.press("ArrowRight")
    assert opened.address == ""  # keys belong to the page until the walk is used
    opened.page.click("#walk-help")
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("tile 7")
    opened.page.keyboard.press("Enter")
    assert opened.address == "tile=7"
    opened.page.fill("#walk-search", "output")
    opened.page.keyboard.press("Enter")
    layer = [at for at, name in enumerate(run[0].tiled.tile_columns.layer) if "output" in name]  # type: ignore[union-attr]
    busiest = max(layer, key=lambda tile: detail.busy[:, tile].sum())
    assert opened.address == f"tile={busiest}"
    opened.page.fill("#walk-search", "no such layer")
    opened.page.keyboard.press("Enter")
    assert "No tile and no layer" in opened.text("#walk-search-words")
    opened.page.evaluate("document.activeElement.blur()")
    opened.page.keyboard.press("ArrowRight")
    assert opened.address == f"tile={busiest}"
    opened.page.click("#walk-help")
    for key, wanted in (("ArrowRight", "superstep=0"), ("ArrowRight", "superstep=1"), ("ArrowLeft", "superstep=0")):
        opened.page.keyboard.press(key)
        assert opened.address == f"tile={busiest}&{wanted}"
    opened.page.keyboard.press("ArrowUp")
    assert opened.address == f"tile={busiest - 1}&superstep=0"
    opened.page.keyboard.press("Escape")
    assert "no tile · all supersteps" in opened.text("#walk-selected")


def test_every_table_is_copied_as_csv(opened: Opened) -> None:
    opened.page.click("#walk-busiest")
    opened.drawn()
    tables, buttons = (len(opened.page.query_selector_all(each)) for each in ("table:not(.u-legend)", "button.csv"))
    assert tables == buttons > 10
    opened.page.evaluate(
        "() => { window.taken = '';"
        "document.execCommand = () => { window.taken = document.activeElement.value; return true; };"
        "navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }"
    )
    opened.page.click("#walk-tile-supersteps >> xpath=../../button[contains(@class, 'csv')]")
    opened.page.wait_for_selector("button:text('Copied')")
    lines = opened.page.evaluate("window.taken").splitlines()
    assert lines[0] == "superstep,busy cycles,share,busiest tile,others' mean,slack"
    assert len(lines) == 1 + len(opened.column("walk-tile-supersteps", 0))
    assert re.fullmatch(r"[^,]+,\d+,0\.\d+,\d+,\d+,\d+", lines[1])
    assert opened.page.evaluate("window.mimdsimTables.csv(document.getElementById('data-supersteps'))").count("\n") > 60


def test_charts_of_the_run_stand_in_their_sections(opened: Opened, run: Run) -> None:
    """They have the titles of the figures that a page without scripts shows."""
    tiled, training, layers = run[0].tiled, run[0].training, run[0].activity
    assert tiled is not None
    assert training is not None
    sections = ("liveness", "training", "spikes")
    titles = {name: opened.page.locator(f"#walk-of-{name} figcaption").all_inner_texts() for name in sections}
    assert opened.page.locator(".walk-charts canvas").count() == sum(map(len, titles.values()))
    peak = show_bytes(tiled.memory.peak_bytes)
    assert titles["liveness"][0].startswith(
        f"Memory in use on the fullest tile, superstep by superstep: at most {peak}"
    )
    assert titles["liveness"][1:] == ["Memory in use on all tiles together"]
    loss = f"Loss over {counted(len(training.loss), 'training step')} of batch {training.batch}"
    assert [title.partition(", per")[0] for title in titles["training"]] == [
        loss,
        f"Accuracy on {counted(training.test_samples, 'test sample')}",
    ]
    assert [title.partition(":")[0] for title in titles["spikes"]] == [one.layer for one in layers if one.raster]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_never_scrolls_sideways(browser: Any, page_file: Path, scheme: str) -> None:
    options = {"viewport": {"width": 390, "height": 844}, "color_scheme": scheme}
    opened = Opened(browser, page_file, "#tile=3&superstep=7", **options)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.page.evaluate("document.body.scrollWidth") <= 390
    opened.done()


def test_dark_and_printed_pictures_follow_the_page(browser: Any, page_file: Path) -> None:
    light = Opened(browser, page_file, "#superstep=7")
    dark = Opened(browser, page_file, "#superstep=7", color_scheme="dark")
    corner = "() => Array.from(document.getElementById('walk-picture').getContext('2d').getImageData(0, 0, 1, 1).data)"
    assert light.page.evaluate(corner) == [255, 255, 255, 255]
    assert max(dark.page.evaluate(corner)[:3]) < 64
    before = dark.dots("walk-picture")
    dark.page.evaluate("() => { window.dispatchEvent(new Event('beforeprint')); }")
    assert dark.page.evaluate(corner) == [255, 255, 255, 255]
    dark.page.evaluate("() => { window.dispatchEvent(new Event('afterprint')); }")
    assert dark.dots("walk-picture") == before
    assert len(light.page.pdf()) > 50_000
    light.done()
    dark.done()


def test_two_runs(browser: Any, run: Run, tmp_path: Path) -> None:
    other = run_of(fill=0.9)
    opened = Opened(browser, written(tmp_path, *run, other), "#superstep=7&measure=busy_change")
    assert "B − A" in opened.text("#walk-floor-title")
    change = int((other[1].busy[7] - run[1].busy[7]).sum())
    assert f"{change:+,}" in opened.text("#walk-superstep")
    assert "Totals of one training step" in opened.text("#table-totals-compared")
    opened.page.hover("#walk-floor", position={"x": 5, "y": 5})
    told = int(other[1].busy[7, 0] - run[1].busy[7, 0])
    assert f"{told:,} cycles" in opened.text("#walk-tip")
    opened.done()


def test_hostile_names_are_texts(browser: Any, run: Run, tmp_path: Path) -> None:
    profile, detail = run
    names = {name: np.full(len(getattr(detail, name)), HOSTILE) for name in ("supersteps", "codelets", "variables")}
    assert profile.tiled is not None
    spans = tuple(dataclasses.replace(span, name=HOSTILE, phase=HOSTILE, op=HOSTILE) for span in profile.tiled.spans)
    columns = dataclasses.replace(profile.tiled.tile_columns, layer=(HOSTILE,) * profile.tiled.tiles)
    tiled = dataclasses.replace(profile.tiled, spans=spans, tile_columns=columns)
    file = written(tmp_path, dataclasses.replace(profile, tiled=tiled), dataclasses.replace(detail, **names))
    opened = Opened(browser, file, "#tile=1&superstep=3")
    opened.page.hover("#walk-floor", position={"x": 5, "y": 5})
    assert HOSTILE in opened.text("#walk-tip")
    assert opened.page.query_selector("#walk-root img") is None
    opened.done()


def test_sixteen_whole_chips_open(browser: Any, run: Run, tmp_path: Path) -> None:
    """23,552 tiles: those of the small run, over and over."""
    profile, detail = run
    assert profile.tiled is not None
    tiles, chips = 1_472 * 16, 16
    over = np.arange(tiles) % detail.tiles
    by_tile = {name: getattr(detail, name)[..., over] for name in ("busy", "exchange", "sent", "received", "contexts",
               "buffers", "window", "vertices", "code")}  # fmt: skip
    partners = {
        name: getattr(detail, name)[over] for name in ("senders", "sender_bytes", "receivers", "receiver_bytes")
    }
    large = dataclasses.replace(
        detail,
        **by_tile,
        **partners,
        group_of=np.arange(tiles) * 4 // 1_472,
        traffic=detail.traffic[:0],
        links=np.arange(chips * chips).reshape(chips, chips),
    )
    columns = {
        field.name: tuple(np.array(getattr(profile.tiled.tile_columns, field.name))[over].tolist())
        for field in dataclasses.fields(profile.tiled.tile_columns)
        if field.name != "grid_columns"
    }
    tile_columns = dataclasses.replace(profile.tiled.tile_columns, grid_columns=64, **columns)
    tiled = dataclasses.replace(profile.tiled, tiles=tiles, chips=chips, tile_columns=tile_columns)
    file = written(tmp_path, dataclasses.replace(profile, tiled=tiled), large)
    assert file.stat().st_size < 6_000_000
    opened = Opened(browser, file, "#tile=23551&superstep=7")
    assert "tile 23551" in opened.text("#walk-selected")
    assert ", chip 15" in opened.text("#walk-selected")
    opened.page.keyboard.press("ArrowUp")
    assert opened.address.startswith("tile=23550")
    opened.done()


def linked_run(machine: str, changes: dict[str, Any]) -> Run:
    found = load_machine(machine, changes)
    compiled = compile_workload(load_workload("digits", SMALL), found, must_fit=False)
    activity = filled_activity(compiled.network, 0.5)
    detail = detail_of(compiled.program, found, activity, compiled.memory, "a run", range(2))
    return dataclasses.replace(make_profile(), tiled=retime(compiled, found, activity)), detail


MESH = {"chip.tiles": 48, "chip.grid_columns": 8}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "mesh": ("bow-mesh", MESH),
    "two chips": ("bow-mesh", MESH | {"links.chips": 2}),
    "crossbar": ("bow-mesh", MESH | {"chip.grid": "crossbar", "exchange.tiles_per_router": 4}),
    "opposed rings": ("wormhole", {}),
}


@pytest.mark.parametrize("network", NETWORKS)
def test_links_are_drawn_and_named(network: str, browser: Any, tmp_path: Path) -> None:
    profile, detail = linked_run(*NETWORKS[network])
    superstep = int(detail.link_bytes.sum(axis=1).argmax())
    file = written(tmp_path, profile, detail)
    opened = Opened(browser, file, f"#superstep={superstep}")
    load = detail.link_bytes[superstep], detail.link_cycles[superstep]
    fullest = int(load[1].argmax())
    told = f"{load[0][fullest]:,} bytes, in use for {load[1][fullest]:,} cycles"
    assert opened.text("#walk-routers-words").startswith("Fullest link: column ")
    assert told in opened.text("#walk-routers-words")
    half = np.count_nonzero(2 * load[1] >= load[1][fullest])
    assert f"{half:,} of {counted(np.count_nonzero(load[1]), 'link')} that carry" in opened.text("#walk-routers-table")
    before = opened.dots("walk-routers")
    opened.page.focus("#walk-fullest-links tbody tr:nth-child(3) button")
    third = int(np.argsort(-load[1], kind="stable")[2])
    assert f"Link: column {link_words(detail, third)}" in opened.text("#walk-routers-words")
    assert opened.dots("walk-routers") != before
    # every link that is drawn is found under the pointer where its arrow lies
    x, y = opened.page.evaluate(f"""() => {{
        const box = document.getElementById("walk-routers").getBoundingClientRect();
        const width = box.width / {width_of(detail)}, dx = {PLACES[way_of(detail, fullest)][0]};
        const dy = {PLACES[way_of(detail, fullest)][1]}, at = {router_of(detail, fullest)};
        return [(at[0] + 0.5 + dx) * Math.min(64, width), (at[1] + 0.5 + dy) * Math.min(64, width)];
    }}""")
    opened.page.hover("#walk-routers", position={"x": x, "y": y})
    assert opened.text("#walk-tip").splitlines()[1] == told
    opened.page.hover("#walk-routers-title")
    assert opened.text("#walk-routers-words").startswith("Fullest link: ")
    opened.page.fill("#walk-superstep-slider", str(int((detail.link_bytes.sum(axis=1) == 0).argmax())))
    assert opened.text("#walk-routers-words") == "No link carries anything in this superstep."
    opened.page.click("#walk-every")
    assert f"{detail.link_bytes.sum(axis=0)[detail.link_cycles.sum(axis=0).argmax()]:,} bytes" in opened.text(
        "#walk-routers-words"
    )
    opened.done()
    narrow = Opened(browser, file, viewport={"width": 390, "height": 844})
    assert narrow.page.evaluate("document.documentElement.scrollWidth") <= 390
    narrow.done()


# where the arrow of a direction lies, from the middle of its router; of one that leaves the plan before it ends, too
PLACES = ((0.4, 0.08), (-0.4, -0.08), (-0.08, 0.4), (0.08, -0.4))


def _parts(detail: Detail, link: int) -> tuple[int, int, int, int]:
    """Direction, chip, row and column."""
    rows, columns, _ = detail.router_grid.tolist()
    way, router = divmod(int(detail.link_number[link]), len(detail.links) * rows * columns)
    return way, router // (rows * columns), router // columns % rows, router % columns


def way_of(detail: Detail, link: int) -> int:
    return _parts(detail, link)[0]


def router_of(detail: Detail, link: int) -> list[int]:
    """Column and row on the plan; of two chips the second stands beside or below the first."""
    _, chip, row, column = _parts(detail, link)
    rows, columns, _ = detail.router_grid.tolist()
    beside = width_of(detail) > columns
    return [column + chip * beside * (columns + 1), row + chip * (not beside) * (rows + 1)]


def width_of(detail: Detail) -> int:
    rows, columns, _ = detail.router_grid.tolist()
    chips = len(detail.links)
    return columns if chips == 1 or 2 * columns > 2.2 * rows else 2 * columns + 1


def link_words(detail: Detail, link: int) -> str:
    _, _, row, column = _parts(detail, link)
    return f"{column}, row {row} ("


def test_the_timeline_selects_and_zooms(opened: Opened, run: Run) -> None:
    profile, detail = run
    assert profile.tiled is not None
    assert f"one {profile.tiled.run_name}" in opened.text("#walk-time-title")
    placed = max(critical_path(profile.tiled, len(detail.supersteps)), key=lambda one: one.end - one.compute)
    opened.page.locator("#walk-time").scroll_into_view_if_needed()
    box = opened.page.locator("#walk-time").bounding_box()
    middle = (placed.compute + placed.end) / 2 / profile.tiled.cycles
    place = {"x": 74 + middle * (box["width"] - 82), "y": 34}
    opened.page.hover("#walk-time", position=place)
    assert f"{placed.end - placed.compute:,} cycles" in opened.text("#walk-tip")
    assert f"as long as tile {placed.span.slowest_tile}" in opened.text("#walk-tip")
    opened.page.click("#walk-time", position=place)
    assert opened.address == f"superstep={placed.superstep}"
    before = opened.dots("walk-time")
    opened.page.keyboard.press("+")
    assert opened.dots("walk-time") != before
    assert " µs of it" in opened.text("#walk-time-title")
    opened.page.dblclick("#walk-time", position=place)
    assert " µs of it" not in opened.text("#walk-time-title")


def test_the_timeline_shows_timesteps_as_they_run(opened: Opened, run: Run) -> None:
    profile, detail = run
    tiled, kept = profile.tiled, len(detail.window_timesteps)
    assert tiled is not None
    opened.page.check("#walk-in-order")
    whole, between = 0, np.zeros((kept, detail.tiles), np.int64)  # barriers: what tiles have to do in each timestep
    for placed in critical_path(tiled, len(detail.supersteps)):
        span, rows = placed.span, np.flatnonzero(detail.window_supersteps == placed.superstep)
        if placed.barrier:
            whole, between = whole + int(between.max(axis=1).sum()), np.zeros_like(between)
        if not len(rows) and span.op != "repeat":
            whole += span.cycles
            continue
        means = [span.sync_cycles, span.exchange_cycles] + ([] if len(rows) else [span.compute_cycles])
        whole += kept * sum(math.floor(cycles / span.times + 0.5) for cycles in means)
        between += detail.window[rows].sum(axis=0)
    whole += int(between.max(axis=1).sum())
    first, last = detail.window_timesteps.min(), detail.window_timesteps.max()
    said = re.search(f"timesteps {first} to {last} alone, (.+) µs to scale", opened.text("#walk-time-title"))
    assert said is not None
    assert float(said[1].replace(",", "")) == pytest.approx(whole / tiled.clock_hz * 1e6, rel=0.005)
    opened.page.locator("#walk-time").scroll_into_view_if_needed()
    box = opened.page.locator("#walk-time").bounding_box()
    chosen = set()
    for share_of_it in np.linspace(0.1, 0.9, 9):
        opened.page.click("#walk-time", position={"x": 74 + share_of_it * (box["width"] - 82), "y": 34})
        chosen.add(opened.text("#walk-timestep-words"))
    assert "superstep=" in opened.address
    assert len(chosen - {"all timesteps together"}) > 1  # of what runs once
    opened.page.uncheck("#walk-in-order")
    assert f"{tiled.cycles / tiled.clock_hz * 1e6:,.0f}" in opened.text("#walk-time-title")


def test_headlines_lead_into_the_walk_and_sections_keep_what_is_selected(opened: Opened, run: Run) -> None:
    opened.page.click(".verdicts a[href^='#superstep=']")
    tiled = run[0].tiled
    assert tiled is not None
    longest = max(tiled.spans, key=lambda span: span.cycles)
    assert f"superstep={tiled.spans.index(longest)}" in opened.address
    assert longest.name in opened.text("#walk-selected")
    chosen = opened.text("#walk-selected")
    opened.page.click("nav a[href='#memory']")
    assert opened.page.evaluate("document.activeElement.id") == "memory"
    assert opened.text("#walk-selected") == chosen
    assert "superstep=" in opened.address


def test_a_timestep_changes_the_panels(opened: Opened, run: Run) -> None:
    _, detail = run
    superstep = int(detail.window_supersteps[0])
    tile = int(detail.window[0, 2].argmax())
    opened.page.evaluate(f"location.hash = 'tile={tile}&superstep={superstep}'")
    opened.drawn()
    before = opened.text("#walk-superstep"), opened.dots("walk-picture"), opened.text("#walk-tile")
    opened.page.fill("#walk-timestep-slider", "2")
    after = opened.text("#walk-superstep"), opened.dots("walk-picture"), opened.text("#walk-tile")
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert f"{detail.window[0, 2, tile]:,} busy cycles" in after[2]


def test_a_logarithmic_scale_and_names_of_supersteps(opened: Opened, run: Run) -> None:
    profile, detail = run
    before = opened.dots("walk-floor")
    opened.page.check("#walk-log")
    assert opened.dots("walk-floor") != before
    name = str(detail.supersteps[5])
    opened.page.fill("#walk-search", name)
    opened.page.keyboard.press("Enter")
    assert name in opened.text("#walk-selected")
    assert profile.tiled is not None
    for text in ("update of the LIF, hidden", "selection of hidden"):
        opened.page.fill("#walk-search", text)
        opened.page.keyboard.press("Enter")
        assert profile.tiled.spans[longest_superstep(profile.tiled.spans, text)].name in opened.text("#walk-selected")


RECORDED = """() => {
  window.labels = [];
  const numbers = new Map(), draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
    const at = this.getTransform(), wide = this.measureText(text).width;
    if (!numbers.has(this.canvas)) numbers.set(this.canvas, numbers.size);
    const left = x - ({ right: 1, end: 1, center: 0.5 }[this.textAlign] ?? 0) * wide;
    window.labels.push({ text, canvas: numbers.get(this.canvas), turned: Math.abs(at.b) > 1e-6,
      left: at.e + at.a * left, right: at.e + at.a * (left + wide), y: at.f + at.d * y, high: 8 * at.d });
    return draw.call(this, text, x, y, ...rest);
  };
  window.dispatchEvent(new Event("beforeprint"));
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_are_words_and_none_covers_another(browser: Any, page_file: Path, width: int) -> None:
    opened = Opened(browser, page_file, "#tile=3&superstep=7", viewport={"width": width, "height": 900})
    opened.page.evaluate(RECORDED)
    opened.drawn()
    labels = opened.page.evaluate("window.labels")
    assert len(labels) > 30
    assert [one["text"] for one in labels if re.search(r"_|`|\*\*|<|&\w+;", one["text"])] == []
    level = [one for one in labels if not one["turned"] and one["text"].strip()]
    covered = [
        (one["text"], other["text"])
        for at, one in enumerate(level)
        for other in level[at + 1 :]
        if one["canvas"] == other["canvas"]
        and min(one["right"], other["right"]) - max(one["left"], other["left"]) > 1
        and abs(one["y"] - other["y"]) < one["high"]
    ]
    assert covered == []
    opened.done()


def test_two_runs_of_the_index_stand_side_by_side(browser: Any, run: Run, tmp_path: Path) -> None:
    profile = dataclasses.replace(run[0], gpus=(), warnings=(), workload_title=HOSTILE, schema_version=SCHEMA_VERSION)
    for name in ("one", HOSTILE.replace("/", "")):
        (tmp_path / name).mkdir()
        save_profile(tmp_path / name / "profile.json", profile)
    (tmp_path / "index.html").write_text(index_page(tmp_path), encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 800})
    wrong: list[str] = []
    page.on("pageerror", lambda problem: wrong.append(str(problem)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.goto((tmp_path / "index.html").as_uri())
    assert page.inner_text("#data-two tbody tr:first-child td:last-child") == "1.00"
    assert HOSTILE in page.inner_text("#data-runs")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert wrong == []
    page.close()
