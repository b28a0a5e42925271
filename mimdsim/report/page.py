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
from mimdsim.report.explorer_data import HERE, walk_of
from mimdsim.report.figures import FIGURES
from mimdsim.report.formatting import changed_fields, plain
from mimdsim.report.headline import verdicts
from mimdsim.report.sections import sections
from mimdsim.report.tables import CSV_FILES, csv_files

if TYPE_CHECKING:
    import jinja2

    from mimdsim.profile.detail import Detail


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure as the page embeds it."""

    name: str
    section: str
    caption: str
    data_uri: str


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
