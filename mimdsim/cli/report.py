"""The command `report`: the page of a saved run drawn again, its differences to another run, and its trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mimdsim.base.console import FILE_TO_WRITE, PATH, say
from mimdsim.base.errors import MimdsimError
from mimdsim.cli.options import Output, output

if TYPE_CHECKING:
    from mimdsim.profile import RunProfile
    from mimdsim.profile.detail import Detail


@click.command("report", short_help="Redraw the report of a saved profile, or compare two.")
@click.argument("profile", type=PATH, required=False)
@click.argument("other", type=PATH, required=False)
@click.option(
    "--out",
    type=PATH,
    help="Output folder (default: that of PROFILE; with OTHER, the folder report-compared in it).",
)
@click.option(
    "--index", type=PATH, metavar="DIR", help="Instead, write DIR/index.html: all runs and studies in it, to compare."
)
@click.option("--open", "opened", is_flag=True, help="Show the page in the browser.")
@click.option(
    "--trace",
    type=FILE_TO_WRITE,
    metavar="FILE",
    help="Also write a trace for ui.perfetto.dev (Chrome's JSON; compressed if it ends in .gz).",
)
@click.option("--trace-tiles", default="", metavar="0,7,40-47", help="Tiles of the trace beside the busiest; or: all.")
@click.option("--trace-timesteps", is_flag=True, help="Also trace the timesteps of the run's window one by one.")
@output
def report_command(
    profile: Path | None,
    other: Path | None,
    out: Path | None,
    index: Path | None,
    opened: bool,
    shown: Output,
    **traced: Any,
) -> None:
    """Redraw the report of a saved profile.json. With the profile.json of another run, OTHER, the page also shows the
    differences of that run (B) to PROFILE (A): totals, supersteps by name, and single tiles if both have as many."""
    if index is not None:
        if profile is not None or out is not None or any(traced.values()):
            raise MimdsimError("--index DIR writes the page of all runs; leave out PROFILE, --out and --trace")
        return _show(_write_index(index, shown), opened)
    if profile is None:
        raise click.UsageError("Missing argument 'PROFILE'.")
    from mimdsim.base.atomic_folder import KERNEL, RUN, refuse_other, replace_files
    from mimdsim.base.files import folders_to_write, read_whole
    from mimdsim.profile import load_profile
    from mimdsim.profile.detail import load_beside
    from mimdsim.report import headline_record, report_files, short_lines, summary_lines, write_report
    from mimdsim.report.console import difference_lines, difference_record

    profile, other = (one / "profile.json" if one is not None and one.is_dir() else one for one in (profile, other))
    assert profile is not None
    folder = out or (profile.parent if other is None else profile.parent / "report-compared")
    refuse_other(folder, RUN, KERNEL)
    with folders_to_write(folder), replace_files(folder, report_files()) as draft, shown.bars() as bars:
        loaded = load_profile(profile)  # while no other process writes there
        beside = folder / "profile.json"
        if beside.is_file() and not beside.samefile(profile) and read_whole(beside) != read_whole(profile):
            raise MimdsimError(f"{folder}: holds the profile of another run; choose another folder with --out")
        detail = load_beside(profile, loaded)
        trace_line = _write_trace(loaded, detail, **traced)
        compared = None
        if other is not None:
            against = load_profile(other)
            compared = (against, load_beside(other, against))
        write_report(loaded, draft, bars.show, detail, compared)
    page = folder / "report.html"
    written = ["", f"Report: {page}", *trace_line]
    if compared is None:
        shown.show(
            folder,
            short=lambda: [*short_lines(loaded, page), *trace_line],
            everything=lambda: [*summary_lines(loaded), *written],
            record=lambda: headline_record(loaded),
        )
    else:
        against = compared[0]
        shown.show(
            folder,
            short=lambda: [*difference_lines(loaded, against), *written],
            everything=lambda: [*difference_lines(loaded, against, every=True), *written],
            record=lambda: difference_record(loaded, against),
        )
    _show(page, opened)


def _write_index(folder: Path, shown: Output) -> Path:
    """Write the page of all runs in a folder; its path."""
    from mimdsim.base.files import write_atomically
    from mimdsim.report.index_page import index_page

    with shown.bars() as bars:
        text = index_page(folder, bars.show)
    page = folder / "index.html"
    write_atomically(page, text)
    shown.show(page, short=lambda: [f"Index: {page}"], everything=lambda: [f"Index: {page}"], record=dict)
    return page


def _show(page: Path, opened: bool) -> None:
    """Open a page in the browser, if asked to."""
    if opened:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            say("No browser could be started; open the file by hand.", err=True)


def _write_trace(
    profile: RunProfile, detail: Detail | None, trace: Path | None, trace_tiles: str, trace_timesteps: bool
) -> list[str]:
    """Write the trace that is asked for; what is said of it."""
    if trace is None:
        if trace_tiles or trace_timesteps:
            raise MimdsimError("--trace-tiles and --trace-timesteps are for --trace FILE, which is missing")
        return []
    from mimdsim.base.units import parse_numbers
    from mimdsim.report.trace import write_trace

    chosen = parse_numbers(trace_tiles, detail.tiles, "--trace-tiles") if detail else ()
    return [f"Trace: {write_trace(trace, profile, detail, tiles=tuple(chosen), timesteps=trace_timesteps)}"]
