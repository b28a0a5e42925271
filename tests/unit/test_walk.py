"""The packed columns that the page's section "Walk through" reads, and the tables of differences between two runs."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import mimdsim
from matplotlib.colors import to_hex
from random_profile import Reader, make_profile
from small_detail import made

from mimdsim.base.errors import MimdsimError
from mimdsim.profile import RunProfile, save_profile
from mimdsim.profile.detail import DETAIL_FILE, Detail, save_detail
from mimdsim.profile.operations import cycles_by_operation
from mimdsim.profile.records import SCHEMA_VERSION, Change
from mimdsim.report import difference_lines, write_report
from mimdsim.report import explorer_data as walking
from mimdsim.report.explorer_data import (
    LARGEST,
    LEFT_OUT,
    LINKS_LEFT_OUT,
    OF_LINKS,
    ROWS,
    match_names,
    pack,
    too_large,
    walk_of,
)
from mimdsim.report.figures_tiles import draw_memory_by_tile
from mimdsim.report.index_page import index_page
from mimdsim.report.machine_comparison import by_operation
from mimdsim.report.page import DRAWN_BY_SCRIPTS, FIGURES, HERE, SCRIPTS
from mimdsim.report.sections import sections
from mimdsim.report.tables_difference import difference_tables
from mimdsim.report.tables_run import balance_table, layers_table

BREAKS_OUT = "</script><script>alert(1)</script><!--"
Found = tuple[RunProfile, Detail]


def run_of(chips: int = 1) -> Found:
    tiled, detail = made(chips)
    return dataclasses.replace(make_profile(), tiled=tiled, config_sha256=detail.run), detail


@pytest.fixture(scope="module")
def run() -> Found:
    return run_of()


def unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and columns, those by tile with all their zeros, as scripts/data.js reads them."""
    whole = gzip.decompress(data)
    length = int.from_bytes(whole[:4], "little")
    header = json.loads(whole[4 : 4 + length])
    columns = {}
    for name, told in header["columns"].items():
        begin = 4 + length + told["at"]
        assert begin % np.dtype(told["kind"]).itemsize == 0
        count = int(np.prod(told["shape"]))
        columns[name] = np.frombuffer(whole, told["kind"], count, begin).reshape(told["shape"])
    for name in header["rows"]:
        first, begins, values = columns.pop(f"{name}_first"), columns.pop(f"{name}_begins"), columns[name]
        across = len(columns["link_number"]) if name in OF_LINKS else header["tiles"]
        columns[name] = np.zeros((len(first), across), np.int64)
        for row, at in enumerate(first):
            some = values[begins[row] : begins[row + 1]]
            columns[name][row, at : at + len(some)] = some
    return header, columns


@pytest.mark.parametrize("chips", [1, 2])
def test_packed_numbers_are_those_of_profile_and_detail(chips: int) -> None:
    profile, detail = run_of(chips)
    header, columns = unpacked(pack(profile, detail))
    assert profile.tiled is not None
    for name, column in columns.items():
        assert (column.ravel() == getattr(detail, name).ravel()).all(), name
    assert columns.keys() == set(walking.COLUMNS)
    assert columns["busy"].sum(axis=0).tolist() == list(profile.tiled.tile_columns.busy_cycles)
    assert header["supersteps"] == detail.supersteps.tolist()
    assert [span["compute_cycles"] for span in header["spans"]] == [s.compute_cycles for s in profile.tiled.spans]
    assert [header["layers"][at] for at in header["layer_of"]] == list(profile.tiled.tile_columns.layer)
    assert (header["chips"], header["cycles"], header["left_out"]) == (chips, profile.tiled.cycles, [])


def test_links_between_routers_are_packed_where_there_are_any(run: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    profile, detail = run
    assert not set(OF_LINKS) & unpacked(pack(profile, detail))[1].keys()
    draw, steps = np.random.default_rng(0), len(detail.supersteps)
    loads = {name: draw.integers(0, 4000, (steps, 50)) for name in ("link_bytes", "link_cycles")}
    of_grid = {"router_of": np.arange(detail.tiles), "link_number": np.arange(50) * 3}
    linked = dataclasses.replace(detail, router_grid=np.array([6, 8, 0]), **of_grid, **loads)
    header, columns = unpacked(pack(profile, linked))
    assert columns.keys() == {*walking.COLUMNS, *OF_LINKS}
    assert all((columns[name] == getattr(linked, name)).all() for name in OF_LINKS)
    monkeypatch.setattr(walking, "LARGEST", 0)
    header, columns = unpacked(pack(profile, linked))
    assert header["left_out"] == [words for _, words in (*LEFT_OUT, *LINKS_LEFT_OUT)]
    assert columns["link_cycles"].tolist() == [linked.link_cycles.sum(axis=0).tolist()]


@pytest.mark.slow
def test_only_pages_with_links_have_what_draws_them(run: Found, tmp_path: Path) -> None:
    profile, detail = run
    loads = np.ones((len(detail.supersteps), 1), np.int64)
    of_grid = {"router_of": np.arange(detail.tiles), "link_number": np.arange(1)}
    grid = np.array([6, 8, 0])
    linked = dataclasses.replace(detail, router_grid=grid, **of_grid, link_bytes=loads, link_cycles=loads)
    for name, one in (("with", linked), ("without", detail)):
        text = write_report(profile, tmp_path / name, None, one)[0].read_text(encoding="utf-8")
        assert ("walk-routers" in text, "Links between routers" in text) == ((name == "with",) * 2)


def test_a_category_has_the_same_colour_in_the_section_and_in_the_figure(run: Found) -> None:
    profile, detail = run
    assert profile.tiled is not None
    header, _ = unpacked(pack(profile, detail))
    assert set(header["category_colours"]) >= {*detail.categories.tolist(), "code", "vertices", "exchange buffers"}
    figure = draw_memory_by_tile(profile)
    assert figure is not None
    handles, labels = figure.axes[0].get_legend_handles_labels()
    shown = {label: to_hex(handle.get_facecolor()[0]) for handle, label in zip(handles, labels, strict=True)
             if label in profile.tiled.memory.categories}  # fmt: skip
    assert len(shown) > 3
    assert shown == {label: header["category_colours"][label].lower() for label in shown}


def test_the_same_run_is_packed_into_the_same_bytes(run: Found) -> None:
    assert pack(*run) == pack(*run)
    assert walk_of(*run) == walk_of(*run)


def test_what_is_too_large_is_summed_and_named(run: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    profile, detail = run
    whole = len(pack(profile, detail)) * 4 // 3
    assert whole < LARGEST
    monkeypatch.setattr(walking, "LARGEST", whole - 1)
    header, columns = unpacked(pack(profile, detail))
    assert header["left_out"] == [LEFT_OUT[0][1]]
    assert (columns["window"].size, columns["window_supersteps"].size) == (0, 0)
    monkeypatch.setattr(walking, "LARGEST", 0)
    header, columns = unpacked(pack(profile, detail))
    assert header["left_out"] == [words for _, words in LEFT_OUT]
    assert columns["received"].tolist() == [detail.received.sum(axis=0).tolist()]
    assert (columns["busy"] == detail.busy).all()


def test_a_full_chip_fits_into_the_page_whatever_its_numbers(run: Found) -> None:
    """1,472 tiles, 66 supersteps, every number different: the worst that compression can meet."""
    profile, detail = run
    random, shape = np.random.default_rng(3), (66, 1_472)
    assert profile.tiled is not None
    columns = {name: random.integers(1, 1 << 20, shape) for name in ("busy", "exchange", "sent", "received", "buffers")}
    zeros = {name: np.zeros(1_472, np.int64) for name in ("vertices", "code", "group_of")}
    large = dataclasses.replace(
        detail,
        **columns,
        **zeros,
        contexts=random.integers(0, 7, shape),
        window=random.integers(1, 1 << 16, (*detail.window.shape[:2], 1_472)),
    )
    assert 4 * len(pack(profile, large)) / 3 < LARGEST
    assert not too_large(large)
    endless = dataclasses.replace(detail, busy=np.broadcast_to(np.int64(0), (10_000, 23_552)))
    assert "more than a page can hold" in too_large(endless)
    (missing,) = (one.missing for one in sections(profile, endless) if one.key == "walk")
    assert missing == too_large(endless)


def test_supersteps_of_other_runs_are_matched_by_name() -> None:
    assert match_names(["a", "b", "a", "c"], ["c", "a", "d", "a"]) == [1, -1, 3, 0]
    assert match_names([], ["a"]) == []


def test_differences_are_the_other_run_minus_this_one(run: Found) -> None:
    profile, detail = run
    busy = detail.busy.copy()
    busy[3] += 7
    names = detail.supersteps.copy()
    names[5] = "new"
    other = dataclasses.replace(detail, busy=busy, supersteps=names, code=detail.code + 2)
    _, columns = unpacked(pack(profile, detail, (profile, other)))
    assert columns["matched_superstep"].tolist() == [-1 if at == 5 else at for at in range(len(names))]
    change = columns["busy_change"]
    assert (change[3] == 7).all()
    assert (change[5] == -detail.busy[5]).all()
    assert columns["busy_change_all"].tolist() == [7] * detail.tiles
    assert columns["memory_change_all"].tolist() == [2] * detail.tiles
    assert (columns["memory_change"][5] == 0).all()
    fewer = dataclasses.replace(detail, busy=detail.busy[:, :40])
    assert "busy_change" not in unpacked(pack(profile, detail, (profile, fewer)))[1]


def test_tables_of_differences(run: Found) -> None:
    profile, _ = run
    tiled = profile.tiled
    assert tiled is not None
    first, second, *rest = tiled.spans
    (part, *others), (known,) = first.parts, second.parts
    longer = dataclasses.replace(part, compute_cycles=part.compute_cycles + 12_345_678)
    slower = dataclasses.replace(first, compute_cycles=first.compute_cycles + 12_345_678, parts=(longer, *others))
    renamed = dataclasses.replace(second, parts=(dataclasses.replace(known, operation="renamed"),))
    other = dataclasses.replace(profile, tiled=dataclasses.replace(tiled, spans=(slower, renamed, *rest)))
    other = dataclasses.replace(other, changes=(*profile.changes, Change(key="tile.worker_contexts", value="7")))
    totals, operations = difference_tables(profile, other)
    assert totals.note.endswith("Changed in B only: tile.worker_contexts = 7.")
    assert "Changed" not in difference_tables(other, other)[0].note
    told = "\n".join(difference_lines(profile, other))
    assert len(told.splitlines()) <= 23  # two more say where the page is
    assert max(map(len, told.splitlines())) <= 80
    assert "+12,345,678" in told
    assert "renamed" in told
    assert rest[0].name not in told  # nothing of what does not differ
    cells = {row[0].text: row for row in totals.rows}
    assert [cell.value for cell in cells["cycles"][1:4]] == [tiled.cycles, tiled.cycles + 12_345_678, 12_345_678]
    assert cells["cycles"][3].text == "+12,345,678"
    assert cells["peak memory of the fullest tile"][4].value == 1.0
    assert operations.rows[0][0].text == part.operation
    assert len(operations.rows) == len(cycles_by_operation(tiled)) + 1
    assert sum(row[5].value or 0 for row in operations.rows) == 12_345_678
    assert "1 are only in A, 1 only in B" in operations.note
    same = difference_tables(profile, profile)
    assert all(row[5].value == 0 for row in same[1].rows)
    with pytest.raises(MimdsimError, match=r"run B .* has no tiled machine"):
        difference_tables(profile, dataclasses.replace(profile, tiled=None))


def test_names_cannot_break_out_of_the_page(run: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.report.page.FIGURES", ())
    profile, detail = run
    tiled = profile.tiled
    assert tiled is not None
    names = [np.full(len(column), BREAKS_OUT) for column in (detail.supersteps, detail.variables)]
    hostile = dataclasses.replace(
        detail, supersteps=names[0], codelets=names[0], explained=names[0], variables=names[1]
    )
    columns = dataclasses.replace(tiled.tile_columns, layer=(BREAKS_OUT,) * tiled.tiles)
    spans = tuple(dataclasses.replace(span, name=BREAKS_OUT, phase=BREAKS_OUT) for span in tiled.spans)
    profile = dataclasses.replace(profile, tiled=dataclasses.replace(tiled, tile_columns=columns, spans=spans))
    (page,) = (path for path in write_report(profile, tmp_path, None, hostile) if path.suffix == ".html")
    content = page.read_text(encoding="utf-8")
    assert "<script>alert(" not in content
    reader = Reader()
    reader.feed(content)
    assert reader.tags.count("script") == 3  # columns, tables, the section's own
    header, _ = unpacked(pack(profile, hostile))
    assert header["supersteps"][0] == BREAKS_OUT


def test_the_page_with_a_section_to_walk_through(run: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.report.page.FIGURES", ())
    profile, detail = run
    page = write_report(profile, tmp_path, None, detail, (profile, detail))[0]
    content = page.read_text(encoding="utf-8")
    assert page.stat().st_size < 6_000_000
    assert [title in content for title in ("2 Differences</h2>", "3 Walk through</h2>")] == [True, True]
    for wrong in ("http://", "https://", "@import", "url(", "<link", "src=\"", "{{", "{%"):  # fmt: skip
        assert wrong not in content, wrong
    assert "Permission is hereby granted" in content  # the library's licence goes with it
    reader = Reader()
    reader.feed(content)
    assert not reader.open
    assert len(reader.ids) == len(set(reader.ids))
    selections = {target for target in reader.loads if target.startswith("#") and "=" in target}
    assert all(target[1:] in reader.ids for target in reader.loads if target.startswith("#") and "=" not in target)
    tile = f"tile={int(detail.busy.sum(axis=0).argmax())}"
    assert f"#{tile}" in selections


def test_what_its_scripts_draw_is_no_picture_too(run: Found, tmp_path: Path) -> None:
    names = [plan.name for plan in FIGURES]
    for detail, drawn in ((run[1], set(names) - set(DRAWN_BY_SCRIPTS)), (None, set(names))):
        paths = write_report(run[0], tmp_path, None, detail, drawn=lambda: dict.fromkeys(names, b"a picture"))
        assert {path.stem for path in paths if path.suffix == ".png"} == drawn
        content = paths[0].read_text(encoding="utf-8")
        assert {name for name in names if f'id="figure-{name}"' in content} == drawn
        assert ("tiles on their grid (Floor plan)" in content) == (detail is not None)


def test_every_script_is_part_of_the_page_and_short() -> None:
    folder = HERE / "scripts"
    assert {path.stem for path in folder.glob("*.js")} == {*SCRIPTS, "tables", "study_table", "index"}
    for path in folder.glob("*.js"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 250, path.name
        assert max(map(len, lines)) <= 120, path.name
    assert set(ROWS) - {"busy_change", "memory_change"} <= {*walking.COLUMNS, *OF_LINKS}


def test_balance_layers_and_path_add_up_to_the_run(run: Found) -> None:
    profile, detail = run
    tiled = profile.tiled
    assert tiled is not None
    every = balance_table(tiled, detail).rows[-1]
    busy = detail.busy.sum(axis=0)
    assert every[4].value == busy.max()
    assert every[6].value == pytest.approx(busy.max() / busy.mean())
    assert every[7].value == pytest.approx(busy.std() / busy.mean())
    sums = [sum(row[at].value or 0 for row in layers_table(tiled).rows) for at in range(3, 8)]
    parts = [tiled.compute_cycles, tiled.exchange_cycles, tiled.sync_cycles]
    assert sums == [tiled.cycles, pytest.approx(1), *parts]
    path = unpacked(pack(profile, detail))[0]["path"]
    assert path[-1][5] == tiled.cycles
    assert [one[2] for one in path[1:]] == [one[5] for one in path[:-1]]


def test_operations_of_both_machines_add_up(run: Found) -> None:
    profile, _ = run
    assert profile.tiled is not None
    spans = profile.gpus[0].spans
    fused = dataclasses.replace(spans[0], op="+".join(dict.fromkeys([spans[0].op, profile.tiled.spans[0].op])))
    gpu = dataclasses.replace(profile.gpus[0], spans=(fused, *spans[1:]))
    rows = by_operation(profile.tiled, gpu)
    assert sum(row.gpu_seconds for row in rows) == pytest.approx(sum(span.seconds for span in gpu.spans))
    assert sum(row.tiled_seconds for row in rows) == pytest.approx(profile.tiled.seconds(profile.tiled.cycles))
    assert any(set(fused.op.split("+")) <= set(row.ops) for row in rows)


@pytest.mark.slow
def test_the_index_names_what_it_cannot_read(run: Found, tmp_path: Path) -> None:
    profile, detail = run
    profile = dataclasses.replace(profile, schema_version=SCHEMA_VERSION, gpus=(), warnings=())
    profile = dataclasses.replace(profile, changes=(Change(key="tile.worker_contexts", value="12"),))
    with pytest.raises(MimdsimError, match=r"holds no profile\.json"):
        index_page(tmp_path)
    saved(tmp_path / "good", dataclasses.replace(profile, workload_title=BREAKS_OUT), detail)
    for name, text in (("cut", "{"), ("deep", "[" * 100_000), ("number", '{"schema_version": 1e999}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "profile.json").write_text(text)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.toml").write_text('question = "Is <b> bold?"')
    text = index_page(tmp_path)
    assert text.count(">unreadable<") == 3
    assert "Is &lt;b&gt; bold?" in text
    assert BREAKS_OUT not in text
    assert '"tile.worker_contexts, changed":[0,"12",false]' in text
    assert mimdsim("report", "--index", str(tmp_path)).startswith("Index: ")
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == text


def saved(folder: Path, profile: RunProfile, detail: Detail) -> str:
    folder.mkdir()
    save_profile(folder / "profile.json", profile)
    save_detail(folder / DETAIL_FILE, detail)
    return str(folder / "profile.json")


@pytest.mark.slow
def test_the_command_compares_two_profiles(run: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mimdsim.report.page.FIGURES", ())
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: not shown.append(address))
    profile, detail = run
    profile = dataclasses.replace(profile, schema_version=SCHEMA_VERSION, gpus=(), warnings=())
    one, two = (saved(tmp_path / name, profile, detail) for name in ("a", "b"))
    output = mimdsim("report", one, two, "--open")
    page = tmp_path / "a" / "report-compared" / "report.html"
    assert str(page) in output
    assert "Totals of one training step" in output
    assert shown == [page.as_uri()]
    assert "Totals of one training step" in page.read_text(encoding="utf-8")
    assert not (tmp_path / "a" / "report.html").exists()
    kernel = saved(tmp_path / "c", dataclasses.replace(profile, tiled=None), detail)
    (tmp_path / "c" / DETAIL_FILE).unlink()
    assert "has no tiled machine" in mimdsim("report", one, kernel, code=2)
    mimdsim("report", str(tmp_path / "a"), "--out", str(tmp_path / "alone"))
    assert len(shown) == 1
    assert "Differences</h2>" not in (tmp_path / "alone" / "report.html").read_text(encoding="utf-8")
