"""Writes a profile as a folder: one self-contained page, its figures as PNG, and CSV files; the page of a study, which
leads with the answer in words and ends with what would change it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mimdsim.base.atomic_folder import replace_files
from mimdsim.base.files import write_atomically
from mimdsim.base.processes import Background, shared_work
from mimdsim.profile import Activity, RunProfile
from mimdsim.report.explorer_data import walk_of
from mimdsim.report.formatting import changed_fields, layer_colours, plain
from mimdsim.report.headline import Verdict, verdicts
from mimdsim.report.sections import Section, sections
from mimdsim.report.tables import CSV_FILES, Table, csv_files

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from mimdsim.profile.detail import Detail


@dataclass(frozen=True, kw_only=True)
class FigurePlan:
    """A figure of the page: section, file stem, caption for all readers; home: the module that draws it, imported then,
    as it imports matplotlib."""

    section: str
    home: str
    name: str
    caption: str

    def draw(self, profile: RunProfile) -> Figure | None:
        """The figure; None if the profile lacks its data."""
        module = import_module(f"mimdsim.report.{self.home}")
        drawn: Figure | None = getattr(module, f"draw_{self.name}")(profile)
        return drawn


LAYERS_DRAWN = 12  # of a network
PLANS: dict[tuple[str, str], dict[str, str]] = {  # captions by name, by section and module
    ("time", "figures_time"): {
        "time_by_phase": "Time by phase: compute (slowest tile), internal exchange, sync and host, if any.",
        "longest_supersteps": "The longest supersteps; at the bar's end: total, number of executions, slowest tile.",
    },
    ("tiles", "figures_tiles"): {
        "tile_map": "Busy cycles on the tile grid, and layers if any (grey: none); numbers go row by row on each chip.",
        "tile_balance": (
            "Busy cycles of all tiles, sorted, and their histogram; dashed: the mean of the tiles that have work."
        ),
    },
    ("memory", "figures_tiles"): {
        "memory_by_tile": "Memory of every tile by category; the dashed line, if any, is the memory a tile has.",
    },
    ("liveness", "figures_tiles"): {
        "liveness": "Memory in use over the program's supersteps, on the fullest tile and on all tiles.",
    },
    ("training", "figures_learning"): {
        "training": "Loss of every training step with its running mean, and test accuracy by epoch.",
    },
    ("spikes", "figures_learning"): {
        "activity": "Spikes and list entries per timestep, mean over the batch, with each layer's spike capacity.",
        "raster": "Spike raster of one sample: a mark for every spike.",
    },
    ("comparison", "figures_time"): {
        "comparison": "Milliseconds per training step on every machine and strategy, with interval and ratio.",
    },
}
FIGURES = tuple(
    FigurePlan(section=section, home=home, name=name, caption=caption)
    for (section, home), captions in PLANS.items()
    for name, caption in captions.items()
)
HERE = Path(__file__).parent
SCRIPTS = (  # of the section "Walk through", in one scope
    "state", "data", "measures", "paint", "floor", "timeline_rows", "timeline", "picture", "lists", "tile", "superstep",
    "curves", "run_charts", "memory", "traffic", "tree", "controls", "links", "routers", "start",
)  # fmt: skip
DRAWS_LINKS = ("links", "routers")  # of a network of routers, on pages that have some
# figures that scripts draw instead on a page with the section "Walk through", there or as charts in their own section
DRAWN_BY_SCRIPTS = ("longest_supersteps", "tile_map", "tile_balance", "liveness", "training", "activity")


def write_report(
    profile: RunProfile,
    folder: Path,
    progress: Callable[[str, int, int], None] | None = None,
    detail: Detail | None = None,
    other: tuple[RunProfile, Detail | None] | None = None,
    drawn: Callable[[], dict[str, bytes | None]] | None = None,
) -> list[Path]:
    """Write `report.html`, `figures/*.png` and CSV files into `folder`; returns the paths written, the page first.

    detail: with it, the page has a section to walk through tiles and supersteps, and its scripts draw some of the
    figures instead. other: a run whose differences to this one are shown too, and its detail; raises MimdsimError if
    the two cannot be compared. drawn: what `begin_figures` has begun.

    The same profile gives the same bytes. They replace an earlier report in `folder` as a whole. Raises MimdsimError if
    the folder cannot be written; it is then unchanged.
    """
    found = sections(profile, detail, other)
    walked = any(section.key == "walk" and not section.missing for section in found)
    # while figures are drawn
    walk = walk_of(profile, detail, other) if detail is not None and walked else ""
    links = bool(walk) and detail is not None and detail.has_links
    columns = {} if profile.tiled is None else {name: text.encode() for name, text in csv_files(profile.tiled).items()}
    page = template("page.html")
    plans = _figures_to_draw(walked)
    pngs = {} if drawn is None else drawn()
    left = [plan for plan in plans if plan.name not in pngs]
    pngs |= zip([plan.name for plan in left], shared_work(_draw_png, profile, left), strict=True)
    pictures: list[tuple[FigurePlan, str]] = []
    files: dict[str, tuple[str, bytes]] = {}  # what they hold, and that
    for number, plan in enumerate(plans):
        if (png := pngs[plan.name]) is None:
            continue
        if progress is not None:
            progress("drawing figures", number, len(plans))
        files[f"figures/{plan.name}.png"] = plan.caption, png
        pictures.append((plan, data_uri(png)))
    files |= {name: (CSV_FILES[name], content) for name, content in columns.items()}
    content = page.render(
        profile=profile,
        changed=changed_fields(profile),
        verdicts=verdicts(profile),
        there={*(f"table-{each.name}" for one in found for each in one.tables), *(one.key for one in found)}
        - ({"walk"} if not walk else set()),
        sections=found,
        pictures=pictures,
        walk=walk,
        links=links,
        colours=layer_colours(profile),
        layers=profile.activity[:LAYERS_DRAWN],
        chained=_chained(profile.activity),
        arcs=_arcs(profile.activity[:LAYERS_DRAWN]),
        scripts=[name for name in SCRIPTS if links or name not in DRAWS_LINKS],
        files=[(name, holds, len(data)) for name, (holds, data) in files.items()],
    )
    with replace_files(folder, report_files()) as draft:
        write_atomically(draft / "report.html", content)
        for name, (_, data) in files.items():
            write_atomically(draft / name, data)
    return [folder / "report.html", *(folder / name for name in files)]


def _chained(activity: Sequence[Activity]) -> list[int]:
    """The places of layers that the next one reads; of runs in which that is not said, all."""
    said = any(one.reads for one in activity)
    return [at for at, (one, after) in enumerate(pairwise(activity)) if not said or one.layer in after.reads]


def _arcs(activity: Sequence[Activity]) -> list[tuple[int, int, int]]:
    """(place of a layer, of one that reads it and does not come next, how far they are apart)."""
    places = {one.layer: at for at, one in enumerate(activity)}
    every = ((places[name], at) for at, one in enumerate(activity) for name in one.reads if name in places)
    return [(begin, end, max(1, abs(end - begin))) for begin, end in every if end != begin + 1]


def _figures_to_draw(walked: bool) -> list[FigurePlan]:
    """The figures of a page, which has the section "Walk through" or not."""
    return [plan for plan in FIGURES if not (walked and plan.name in DRAWN_BY_SCRIPTS)]


def prepare_figures() -> None:
    """Import what draws."""
    for _, home in PLANS:
        import_module(f"mimdsim.report.{home}")


def begin_figures(profile: RunProfile, background: Background, walked: bool) -> Callable[[], dict[str, bytes | None]]:
    """Begin to draw the figures of a page with or without the section "Walk through"; what is returned waits for them,
    by name."""
    plans = _figures_to_draw(walked)
    drawn = background.begin(_draw_png, profile, plans)
    return lambda: dict(zip([plan.name for plan in plans], drawn(), strict=True))


def _draw_png(profile: RunProfile, plan: FigurePlan) -> bytes | None:
    """A figure as PNG; None: the profile lacks its data."""
    from mimdsim.report.style import picture

    figure = plan.draw(profile)
    return None if figure is None else picture(figure)


def data_uri(png: bytes) -> str:
    """A picture as a page embeds it."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def report_files() -> tuple[str, ...]:
    """The names of all files that a report may have, the page first."""
    return ("report.html", *(f"figures/{plan.name}.png" for plan in FIGURES), *CSV_FILES)


def template(name: str) -> jinja2.Template:
    """A page of this folder, with everything escaped that is not marked as safe."""
    import jinja2
    from markupsafe import Markup

    from mimdsim.base.units import show_bytes

    def harmless(value: Any) -> Any:
        """Text from the profile without control characters; escaping follows, as autoescape is on."""
        return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=harmless,
    )
    environment.filters["show_bytes"] = show_bytes
    environment.filters["linked"] = linked
    environment.globals["file"] = lambda name: Markup((HERE / name).read_text(encoding="utf-8"))
    return environment.get_template(name)


def linked(verdict: Verdict, there: Collection[str]) -> Markup:
    """The sentence of a verdict with links to its evidence, as far as the page has it. there: what can be linked to;
    'walk' for all selections."""
    from markupsafe import Markup, escape

    sentence = plain(verdict.text)
    found = Markup()
    for words, address in verdict.links:
        before, linking, after = sentence.partition(plain(words))
        if linking and ("walk" if "=" in address else address) in there:
            found += Markup('{}<a href="#{}">{}</a>').format(before, address, linking)
            sentence = after
    return found + escape(sentence)


PIXELS_PER_INCH = 92
ROWS_AT_ONCE = 100  # of the table of all points


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyColumn:
    """A column of the table of all points: numbers in one unit, or texts; None where there is none."""

    name: str
    unit: str
    values: Sequence[float | str | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyPage:
    """What the page shows, in its order: title and facts, the answer, sections, all points, provenance, and what would
    change the answer. facts: below the title; provenance: name and text; source: the study file; doubted: why the
    answer does not hold for a network that works, said before it."""

    title: str
    facts: Sequence[str]
    answer: Sequence[str]
    sections: Sequence[Section]
    columns: Sequence[StudyColumn]
    provenance: Sequence[tuple[str, str]]
    provenance_tables: Sequence[Table]
    source: str
    change: Sequence[str]
    doubted: Sequence[str] = ()


def study_page(page: StudyPage) -> str:
    """The page as text; the same study gives the same bytes."""
    from mimdsim.report.style import picture

    drawn = {  # figures with their captions, and their widths in pixels
        section.key: [
            (data_uri(picture(figure)), said, round(PIXELS_PER_INCH * figure.get_figwidth()))
            for figure, said in section.figures
        ]
        for section in page.sections
    }
    return template("study.html").render(
        page=page,
        pictures=drawn,
        points=max((len(column.values) for column in page.columns), default=0),
        rows_at_once=ROWS_AT_ONCE,
        data=packed_columns(page.columns),
    )


def packed_columns(columns: Sequence[StudyColumn]) -> str:
    """The columns as JSON in which no text can end the element that holds it."""
    table: list[dict[str, Any]] = [
        {
            "name": plain(column.name),
            "unit": column.unit,
            "number": any(isinstance(value, (int, float)) for value in column.values),
            "values": [_cell(value) for value in column.values],
        }
        for column in columns
    ]
    return script_json(table)


def script_json(value: Any) -> str:
    """JSON in which no text can end the element that holds it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _cell(value: float | str | None) -> float | str | None:
    """A finite number in seven digits, or a text without control characters."""
    if isinstance(value, str):
        return plain(value)
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{value:.7g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short
