"""Writes a profile as a folder: one self-contained page, its figures as PNG, and CSV files."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mimdsim.base.atomic_folder import replace_files
from mimdsim.base.files import write_atomically
from mimdsim.base.processes import Background, shared_work
from mimdsim.profile import RunProfile
from mimdsim.report.explorer_data import HERE, too_large, walk_of
from mimdsim.report.figures import FIGURES
from mimdsim.report.formatting import changed_fields, plain
from mimdsim.report.headline import verdicts
from mimdsim.report.tables import CSV_FILES, Table, csv_files
from mimdsim.report.tables_comparison import (
    advice_table,
    assumptions_table,
    comparison_table,
    kernels_table,
    phase_comparison_table,
)
from mimdsim.report.tables_cost import doubts_table, phases_table, supersteps_table, tiles_table, utilisation_table
from mimdsim.report.tables_difference import difference_tables
from mimdsim.report.tables_energy import energy_parts_table, energy_table, silicon_parts_table, silicon_table
from mimdsim.report.tables_learning import activity_table, sparsity_table, training_table
from mimdsim.report.tables_memory import categories_table, liveness_table, variables_table

if TYPE_CHECKING:
    import jinja2

    from mimdsim.profile.detail import Detail

PAGE_ROWS = 400  # supersteps and kernels on the page; the CSV files have all
BUSIEST = 5
OF_TRAINING = ("training", "spikes", "comparison")


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure as the page embeds it."""

    name: str
    section: str
    caption: str
    data_uri: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """A numbered part of the page. missing: the sentence shown if the profile has no data for it.

    folded: tables that are closed until the reader opens them.
    """

    key: str
    title: str
    tables: tuple[Table, ...] = ()
    folded: tuple[Table, ...] = ()
    missing: str = ""


def write_report(
    profile: RunProfile,
    folder: Path,
    progress: Callable[[str, int, int], None] | None = None,
    detail: Detail | None = None,
    other: tuple[RunProfile, Detail | None] | None = None,
    drawn: Callable[[], Sequence[bytes | None]] | None = None,
) -> list[Path]:
    """Write `report.html`, `figures/*.png` and CSV files into `folder`; returns the paths written, the page first.

    detail: with it, the page has a section to walk through tiles and supersteps. other: a run whose differences to this
    one are shown too, and its detail; raises MimdsimError if the two cannot be compared. drawn: what `begin_figures`
    has begun.

    The same profile gives the same bytes. They replace an earlier report in `folder` as a whole. Raises MimdsimError if
    the folder cannot be written; it is then unchanged.
    """
    found = sections(profile, detail, other)
    walked = any(section.key == "walk" and not section.missing for section in found)
    # while figures are drawn
    walk = walk_of(profile, detail, other) if detail is not None and walked else None
    columns = {} if profile.tiled is None else {name: text.encode() for name, text in csv_files(profile.tiled).items()}
    page = template("page.html")
    contents: dict[str, bytes] = {}
    pictures: list[Picture] = []
    numbers = range(len(FIGURES))
    for number, png in enumerate(shared_work(_drawn, profile, numbers) if drawn is None else drawn()):
        if png is None:
            continue
        if progress is not None:
            progress("drawing figures", number, len(FIGURES))
        plan = FIGURES[number]
        contents[f"figures/{plan.name}.png"] = png
        pictures.append(Picture(name=plan.name, section=plan.section, caption=plan.caption, data_uri=data_uri(png)))
    contents |= columns
    content = page.render(
        profile=profile,
        changed=changed_fields(profile),
        verdicts=verdicts(profile),
        sections=found,
        pictures=pictures,
        walk=walk,
        tables_script=(HERE / "scripts" / "tables.js").read_text(encoding="utf-8"),
        files=_file_rows(contents, pictures),
    )
    with replace_files(folder, report_files()) as draft:
        write_atomically(draft / "report.html", content)
        for name, data in contents.items():
            write_atomically(draft / name, data)
    return [folder / "report.html", *(folder / name for name in contents)]


def prepare_figures() -> None:
    """Import what draws."""
    for plan in FIGURES:
        import_module(f"mimdsim.report.{plan.home}")


def begin_figures(profile: RunProfile, background: Background) -> Callable[[], Sequence[bytes | None]]:
    """Begin to draw all figures of a page; what is returned waits for them."""
    return background.begin(_drawn, profile, range(len(FIGURES)))


def _drawn(profile: RunProfile, number: int) -> bytes | None:
    """A figure as PNG; None: the profile lacks its data."""
    from mimdsim.report.style import picture

    figure = FIGURES[number].draw(profile)
    return None if figure is None else picture(figure)


def data_uri(png: bytes) -> str:
    """A picture as a page embeds it."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def report_files() -> tuple[str, ...]:
    """The names of all files that a report may have, the page first."""
    return ("report.html", *(f"figures/{plan.name}.png" for plan in FIGURES), *CSV_FILES)


def sections(
    profile: RunProfile, detail: Detail | None = None, other: tuple[RunProfile, Detail | None] | None = None
) -> tuple[Section, ...]:
    """The sections between the summary and the list of files, always in the same order; three only appear for
    training, one with a detail, and one with another run."""
    tiled, training = profile.tiled, profile.training
    untimed = "No tiled machine was profiled in this run." if profile.network else "The kernel was not timed."
    no_tiles = "" if tiled else untimed
    memory = tiled.memory if tiled else None
    by_phase, kernels = phase_comparison_table(profile), kernels_table(profile, PAGE_ROWS)
    silicon = silicon_table(profile)
    first = []
    if other is not None:
        first.append(Section(key="differences", title="Differences", tables=difference_tables(profile, other[0])))
    if detail is not None and tiled is not None:
        first.append(Section(key="walk", title="Walk through", missing=too_large(detail)))
    found = (
        *first,
        Section(
            key="time",
            title="Where the time goes",
            tables=(
                *([advice_table(profile)] if profile.advice else []),
                *(phases_table(tiled), supersteps_table(tiled, PAGE_ROWS), doubts_table(tiled, PAGE_ROWS)),
            )
            if tiled
            else (),
            folded=tuple(found for found in ((energy_parts_table(tiled),) if tiled else ()) if found),
            missing=no_tiles,
        ),
        Section(
            key="tiles",
            title="Tiles",
            tables=(utilisation_table(tiled), tiles_table(tiled, BUSIEST), silicon) if tiled and silicon else (),
            folded=tuple(found for found in ((silicon_parts_table(tiled),) if tiled else ()) if found),
            missing=no_tiles,
        ),
        Section(
            key="memory",
            title="Memory",
            tables=(categories_table(memory), variables_table(memory)) if memory else (),
            missing=no_tiles,
        ),
        Section(
            key="liveness",
            title="Liveness",
            tables=(liveness_table(memory),) if memory else (),
            missing=no_tiles,
        ),
        Section(
            key="training",
            title="Training",
            tables=(training_table(training),) if training else (),
            missing="" if training else "Nothing was trained in this run.",
        ),
        Section(
            key="spikes",
            title="Spikes",
            tables=_of_spikes(profile),
            missing="" if profile.activity else "No activity was recorded in this run.",
        ),
        Section(
            key="comparison",
            title="Comparison with tiled machines and GPUs" if profile.tiled_beside else "Comparison with GPUs",
            tables=tuple(found for found in (comparison_table(profile), by_phase, energy_table(profile)) if found)
            if profile.gpus or profile.tiled_beside
            else (),
            folded=(kernels,) if kernels else (),
            missing="" if profile.gpus or profile.tiled_beside else "No GPU was compared in this run.",
        ),
        Section(key="modelled", title="What is modelled", tables=(assumptions_table(profile),)),
    )
    return tuple(section for section in found if profile.network or section.key not in OF_TRAINING)


def _of_spikes(profile: RunProfile) -> tuple[Table, ...]:
    found = (activity_table(profile.activity), sparsity_table(profile.activity)) if profile.activity else ()
    return tuple(each for each in found if each is not None)


def _file_rows(contents: dict[str, bytes], pictures: list[Picture]) -> list[tuple[str, str, int]]:
    """Name, content and bytes of every file next to the page."""
    captions = {f"figures/{picture.name}.png": picture.caption for picture in pictures}
    return [(name, captions.get(name) or CSV_FILES[name], len(data)) for name, data in contents.items()]


def template(name: str) -> jinja2.Template:
    """A page of this folder, with everything escaped that is not marked as safe."""
    import jinja2
    from markupsafe import Markup

    from mimdsim.base.units import show_bytes

    def harmless(value: Any) -> Any:
        """Text from the profile without control characters; escaping follows, as autoescape is on."""
        return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=harmless,
    )
    environment.filters["show_bytes"] = show_bytes
    return environment.get_template(name)
