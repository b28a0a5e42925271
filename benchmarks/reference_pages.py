"""The reference pages: every key of workload, machine, GPU and study files, and every name of `mimdsim.__all__`.

Writes docs/reference-*.md. Keys come from the classes of the descriptions: what a key means is the text below its field
there, and what a machine's number enters is the description of that field, as in `mimdsim list --machine`. Parameters
and what they mean come from signatures and docstrings ("name: meaning."), examples from docs/api.md.

    python benchmarks/reference_pages.py
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import mimdsim
from mimdsim.base.schema import Section, SourcedSection, toml_value
from mimdsim.base.search_path import NAMES_FILES
from mimdsim.base.units import UNITS, dimension, show_quantity
from mimdsim.machine import calibrated, load
from mimdsim.machine.gpu import GpuMachine
from mimdsim.machine.mimd import MimdMachine
from mimdsim.machine.notes import NotedMachine
from mimdsim.studies.description import Study
from mimdsim.workload.description.mapping import MappingFile
from mimdsim.workload.description.workload import Workload

DOCS = Path(__file__).resolve().parents[1] / "docs"
MADE = "Made by `benchmarks/reference_pages.py` from the code; do not edit it by hand."
SOURCES = """Numbers may carry a unit (`"624 KiB"`). Every number of a section names its source in
`[SECTION.sources]`, by its key, as `"kind: where"`. A number outside its plausible bounds is refused as a mistake (0
never is, where the key allows it); one without a unit is at most {count:,.0f}. *Enters*: the sums that the number goes
into; `mimdsim list --machine NAME` prints them with the values of a machine."""
BASES = """
A file may also be another machine but for what it says
([a machine in ten lines](other-machines.md#a-machine-in-ten-lines)):

- `{base}`: {base_means}
- `{without}`: {without_means}
"""
NARROWED = """- `{kind}`: {kind_means} ([your own measurements](own-measurements.md)).
"""
FILES = {
    Workload: "At the top of a workload",
    MappingFile: "At the top of a mapping file",
    MimdMachine: "At the top of a machine",
    GpuMachine: "At the top of a GPU",
    Study: "At the top of a study",
}
LIMITS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most", "multiple_of": "a multiple of"}
COUNTS = {"min_length": "at least", "max_length": "at most"}
WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", Any: "number, text or list"}


class Row(NamedTuple):
    """A key as it stands in a page; enters: '' but for machines."""

    key: str
    takes: str
    default: str
    enters: str
    meaning: str


@cache
def _field_texts(module: str) -> dict[str, dict[str, str]]:
    """By class ('': the module itself), the text below each field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    bodies = {"": tree.body} | {each.name: each.body for each in tree.body if isinstance(each, ast.ClassDef)}
    found: dict[str, dict[str, str]] = {}
    for name, body in bodies.items():
        for field, below in itertools.pairwise(body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)) | ast.Assign(targets=[ast.Name(id=key)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found.setdefault(name, {})[key] = " ".join(text.split())
    return found


def meaning_of(section: type[BaseModel], key: str) -> str:
    """The text below a field, here or where it is inherited from; of a table without one, how its section begins.

    Raises LookupError where there is neither.
    """
    for of in section.__mro__:
        if of.__module__ != "builtins" and (text := _field_texts(of.__module__).get(of.__name__, {}).get(key)):
            return text
    for inner, _ in sections_in(section.model_fields[key].annotation, key):
        return (inspect.getdoc(inner) or "").partition("\n\n")[0].replace("\n", " ")
    raise LookupError(f"{section.__module__}.{section.__name__}.{key}: write what it means as a text below the field")


def sections_in(annotation: Any, path: str) -> Iterator[tuple[type[Section], str]]:
    """Sections that a field holds, and where: 'network.delays.NAME'."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation, path
    path = f"{path}.NAME" if typing.get_origin(annotation) is dict else path
    for each in typing.get_args(annotation):
        yield from sections_in(each, path)


def takes(annotation: Any, key: str, marks: tuple[Any, ...] = ()) -> str:
    """What a field takes: choices, or a type with its units, and bounds."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        own = (mark.metadata if isinstance(mark, FieldInfo) else [mark] for mark in inside[1:])
        return takes(inside[0], key, (*(mark for each in own for mark in each), *marks))
    if origin is Literal:
        return " or ".join(f"`{toml_value(choice)}`" for choice in inside)
    if origin in (typing.Union, types.UnionType):
        one, *others = dict.fromkeys(takes(each, key, marks) for each in inside if each is not type(None))
        return one + "".join(", or a list of them" if each == f"list, each {one}" else f" or {each}" for each in others)
    if origin is dict:
        return ", ".join((f"table by name, each {takes(inside[1], key)}", *_bounds(marks, COUNTS, key)))
    if origin is tuple:
        each = dict.fromkeys(takes(one, key) for one in inside if one is not ...)
        what = "list" if inside[-1] is ... else f"list of {len(inside)}"
        whole = f"{what}, each {next(iter(each))}" if len(each) == 1 else f"{what}: {'; '.join(each)}"
        return ", ".join((whole, *_bounds(marks, COUNTS, key)))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    units = [each for each in UNITS.get(dimension(key) or "", ()) if annotation in (int, float) and each != "cycle"]
    word = "path" if NAMES_FILES in marks else WORDS[annotation]
    word += f" ({', '.join(units)})" if units else ""
    return ", ".join((word, *_bounds(marks, LIMITS if annotation in (int, float) else {}, key)))


def _bounds(marks: tuple[Any, ...], texts: dict[str, str], key: str) -> Iterator[str]:
    for mark in marks:
        for name, text in texts.items():
            if (bound := getattr(mark, name, None)) is not None:
                yield f"{text} {_number(bound, key)}" if texts is LIMITS else f"{text} {bound:,} of them"


def _number(value: float, key: str) -> str:
    if dimension(key) and value:
        return show_quantity(value, key)
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def _default(field: FieldInfo, key: str) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "its defaults"
    if value is None or value == {}:
        return "none"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value, key)
    return f"`{toml_value(value)}`"


def _plausible(path: str, key: str, annotation: Any) -> str:
    """Bounds beyond which a machine's number is refused as a mistake."""
    number = {int, float} & {annotation, *typing.get_args(annotation)}
    bounds = load.NARROWER.get(f"{path}.{key}") or load.BOUNDS.get(dimension(key) or "")
    return "; plausible: {} to {}".format(*(show_quantity(each, key) for each in bounds)) if number and bounds else ""


def tables_of(described: type[Section]) -> dict[type[Section], dict[str, list[Row]]]:
    """Of a file: by section, in order, the places where it stands ('': the top) and its rows there."""
    found: dict[type[Section], dict[str, list[Row]]] = {}
    waiting: list[tuple[type[Section], str, str]] = [(described, "", "")]
    while waiting:
        section, path, above = waiting.pop(0)
        rows, inner = [], []
        for key, field in section.model_fields.items():
            if (key == "name" and not path) or (key == "sources" and issubclass(section, SourcedSection)):
                continue  # a file's stem; what the page says once
            enters = (field.description or above) if issubclass(described, NotedMachine) else ""
            below = f"{path}.{key}".removeprefix(".")
            inner += [
                (each, where, enters)
                for each, where in sections_in(field.annotation, below)
                if not issubclass(each, NotedMachine)  # a file of its own
            ]
            what = takes(field.annotation, key, tuple(field.metadata))
            if issubclass(described, NotedMachine) and path.count(".") == 0:
                what += _plausible(path, key, field.annotation)
            rows.append(Row(field.alias or key, what, _default(field, key), enters, meaning_of(section, key)))
        found.setdefault(section, {})[path] = rows
        waiting[:0] = inner
    return found


def _escaped(text: str) -> str:
    """Text as Markdown: what would be marks stays as it is, outside of code; pages of docs/ are links."""
    parts = text.split("`")
    parts[::2] = [
        re.sub(r"docs/([\w-]+\.md)(#[\w-]+)?", r"[\1](\1\2)", re.sub(r"([*<])", r"\\\1", part)) for part in parts[::2]
    ]
    return "`".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Lines of a table; columns that are empty in all rows are left out."""
    rows = [*rows]
    full = [place for place in range(len(head)) if any(row[place] for row in rows)]
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(row[place].replace('|', chr(92) + '|') for place in full)} |"


def keys_page(title: str, intro: str, *files: type[Section]) -> str:
    """A page with every key of some files; sections that several of them have stand there once."""
    lines, done = [f"# {title}", MADE, "", intro], set()
    for described in files:
        for section, places in tables_of(described).items():
            if section in done:
                continue
            done.add(section)
            where = ", ".join(f"`[{place}]`" for place in places if place) or FILES[described]
            lines += ["", f"## {where}", "", _escaped(inspect.getdoc(section) or "")]
            head = ("key", "takes", "default", "enters", "meaning")
            rows = next(iter(places.values()))
            cells = [(f"`{row.key}`", row.takes, row.default, row.enters, _escaped(row.meaning)) for row in rows]
            lines += ["", *_table(head, cells)]
    return "\n".join(lines) + "\n"


# ---- functions and classes

AS_IN_RUN = "as in `run`"


def _parameters(of: Any) -> tuple[str, dict[str, str]]:
    """The docstring of a function without what it says of its parameters as "name: meaning", and that by name; for what
    is "as in `run`" that of `mimdsim.run`."""
    names = [name for name in inspect.signature(of).parameters if name != "self"]
    text, said = _taken(inspect.getdoc(of) or "", names)
    if absent := [name for name in names if name not in said]:
        raise LookupError(f"{of.__module__}.{of.__qualname__}: write what {', '.join(absent)} means, as 'name: ...'")
    _, common = _taken(inspect.getdoc(mimdsim.api.run) or "", inspect.signature(mimdsim.api.run).parameters)
    return text, {name: common[name] if said[name] == AS_IN_RUN else said[name] for name in names}


def _taken(text: str, names: Iterable[str] = (r"\w+",)) -> tuple[str, dict[str, str]]:
    """A docstring without what it says of `names` (regular expressions), and that."""
    one = f"(?:{'|'.join(names) or '(?!)'})"
    head = re.compile(rf"(?:^|(?<=[.;)]\s))({one}(?:,\s{one})*):\s")
    rest: list[str] = []
    said: dict[str, str] = {}
    for paragraph in re.split(r"\n\n", text):
        places = [*head.finditer(paragraph)]
        if not places or paragraph.startswith(" "):
            rest.append(paragraph)
            continue
        ends = [each.start() for each in places[1:]] + [len(paragraph)]
        before = [paragraph[: places[0].start()]]
        for place, end in zip(places, ends, strict=True):
            meaning, stop, after = paragraph[place.end() : end].partition(" Raises ")
            said |= dict.fromkeys(re.split(r",\s", place[1]), " ".join(meaning.split()).rstrip(";."))
            before += [stop.lstrip() + after] if stop else []
        rest.append(" ".join(" ".join(before).split()))
    return "\n\n".join(filter(None, rest)), said


def _signature(name: str, of: Any, method: bool = False) -> str:
    """A call with its types; that of a function with a line for each parameter unless it is short."""
    signature = inspect.signature(of)
    parts, star = [], False
    for part in list(signature.parameters.values())[method:]:
        if part.kind is part.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        stars = "*" * (part.kind is part.VAR_POSITIONAL) + "**" * (part.kind is part.VAR_KEYWORD)
        shown = f"{stars}{part.name}: {part.annotation}"
        parts.append(shown if part.default is part.empty else f"{shown} = {_shown(part.default)}")
    returns = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(parts)}){returns}"
    return (
        line
        if method or len(line) <= 110
        else "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returns}"])
    )


def _shown(default: Any) -> str:
    return getattr(default, "__name__", None) or repr(default).replace("'", '"')


def _function(name: str, of: Any) -> Iterator[str]:
    text, parameters = _parameters(of)
    yield from ("", f"## {name}", "")
    yield from ("```python", _signature(name, of), "```", "", _prose(text))
    if parameters:
        cells = [(f"`{each}`", _escaped(meaning)) for each, meaning in parameters.items()]
        yield from ("", *_table(("parameter", "meaning"), cells))


def _prose(text: str) -> str:
    """A docstring as Markdown: what is indented is code already, an example becomes some."""
    paragraphs = [textwrap.indent(each, "    ") if each.startswith(">>> ") else each for each in text.split("\n\n")]
    return "\n\n".join(each if each.startswith("    ") else _escaped(each) for each in paragraphs)


def _line_of(made: Any) -> str:
    """A docstring in one line; raises LookupError without one."""
    if not (text := inspect.getdoc(made)):
        raise LookupError(f"{made.__module__}.{made.__qualname__}: write a docstring")
    return " ".join(re.split(r"\n\n\s*>>> ", text)[0].split())


def api_page() -> str:
    """A page with every name of the package: how it is called, what its parameters mean, what it raises, an example."""
    lines = ["# Python API", MADE, "", _prose(inspect.getdoc(mimdsim.api) or "")]
    for name in mimdsim.__all__:
        of = getattr(mimdsim, name)
        if not callable(of):
            continue  # a constant
        if isinstance(of, type) and issubclass(of, Exception):
            lines += ["", f"## {name}", "", _prose(inspect.getdoc(of) or "")]
            continue
        lines += _function(name, of)
        methods = [
            (f"`{_signature(method, made, method=True)}`", _escaped(_line_of(made)))
            for method, made in (inspect.getmembers(of, inspect.isfunction) if isinstance(of, type) else ())
            if not method.startswith("_")
        ]
        lines += ["", *_table(("method", "what it does"), methods)] if methods else []
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Every page by its name."""
    bases = {"base": load.BASE, "without": load.WITHOUT}
    texts = _field_texts(load.__name__)[""]
    given = BASES.format(**bases, base_means=texts["BASE"], without_means=texts["WITHOUT"])
    kind_means = _field_texts(calibrated.__name__)[""]["KIND"]
    narrowed = NARROWED.format(kind=calibrated.KIND, kind_means=kind_means.rstrip("."))
    numbers = SOURCES.format(count=load.COUNT[1]) + "\n" + given
    return {
        "reference-workload.md": keys_page(
            "Every key of a workload",
            "Files in `workloads/`, and of mappings. NAME stands for a name: of a layer, a parameter, a cell.",
            *(Workload, MappingFile),
        ),
        "reference-machine.md": keys_page("Every key of a tiled machine", (numbers + narrowed).rstrip(), MimdMachine),
        "reference-gpu.md": keys_page("Every key of a GPU", numbers.rstrip(), GpuMachine),
        "reference-study.md": keys_page(
            "Every key of a study", "Files in `studies/`; how they are used: [studies.md](studies.md).", Study
        ),
        "reference-api.md": api_page(),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
