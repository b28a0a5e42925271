"""Strict descriptions: TOML in, frozen records out.

Rules: an unknown key is refused with a suggestion; a number may carry a unit; every figure of a `SourcedSection` has an
entry in that section's `sources`; all problems of a file are reported at once, with the line where the key stands.
"""

from __future__ import annotations

import re
import tomllib
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from mimdsim.base.errors import AS_CHANGED, MOST_PROBLEMS, DescriptionError, shortened, suggest
from mimdsim.base.files import read_bounded_text
from mimdsim.base.search_path import NAMES_FILES
from mimdsim.base.shown import Sheet, Shown, brief
from mimdsim.base.units import HOW, is_source, parse_quantity

MAX_DESCRIPTION_BYTES = 1 << 20
MAX_DEPTH = 16  # nesting of tables and lists; ours are 4 deep
MOST_WHOLE = 2**63 - 1  # what TOML guarantees and columns of ids hold
MOST_DOTTED = 32  # parts of a key, checked before parsing, which takes time quadratic in their number
_PART = r"""\.[ \t]*+(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_DEEP_KEY = re.compile(f"(?:{_PART}){{{MOST_DOTTED}}}")
QUOTES = "\"'"
_ONE, _SEVERAL = "<one>", "<several>"  # forms of a value; no part of a key
T = TypeVar("T")
OneOrMore = Annotated[
    Annotated[T, Tag(_ONE)] | Annotated[tuple[T, ...], Tag(_SEVERAL)],
    Discriminator(lambda value: _SEVERAL if isinstance(value, (list, tuple)) else _ONE),
]
"""One value for all, or a list with one for each; what is wrong with a value is said of the form that was given."""


class Hint(NamedTuple):
    """Mark of a field: what is said where it is missing."""

    text: str


class Section(Shown, BaseModel):
    """A table of a description: frozen, no unknown keys, units in strings understood."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def _sheet(self) -> Sheet:
        """What was given; of a table of tables, that of each."""
        own = {key: getattr(self, key) for key in type(self).model_fields if key in self.model_fields_set}
        known = {key: own.pop(key) for key in ("kind", "name", "title", "question", "sources") if key in own}
        sources = known.pop("sources", {})
        rows = [(key, _in_short(value, key), *filter(None, [sources.get(key)])) for key, value in own.items()]
        said = [f"'{known['name']}'"] if "name" in known else []
        said += filter(None, [known.get("title") or known.get("question")])
        left = len(type(self).model_fields) - len(self.model_fields_set)
        default = [(f"{left:,} more at their defaults",)] if left else []
        return Sheet(f"{type(self).__name__} {': '.join(said)}".rstrip(), [*rows, *default])

    @field_validator("*", mode="before")
    @classmethod
    def _unit_to_base(cls, value: Any, about: ValidationInfo) -> Any:
        key = about.field_name
        if key is None:
            return value
        taken = _taken(cls, key)
        if isinstance(value, str) and taken.number:
            number = parse_quantity(value, key)
            value = int(number) if number.is_integer() else number
        if isinstance(value, bool) and taken.number:
            raise ValueError("is a boolean; a number is needed")
        if taken.numbers and isinstance(value, (list, tuple, dict)) and _holds_boolean(value):
            raise ValueError("holds a boolean; numbers are needed")
        if taken.whole and isinstance(value, (int, float)) and not -MOST_WHOLE <= value <= MOST_WHOLE:
            raise ValueError("is no number" if value != value else "must be less than 2^63, like all whole numbers")
        return value


def files_named(section: BaseModel, above: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, path as given) of every field of a section, and of those in it, that names files (`PathText`)."""
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(value, BaseModel):
            yield from files_named(value, f"{above}{key}.")
        elif NAMES_FILES in field.metadata and value:
            yield f"{above}{key}", value


def _in_short(value: Any, key: str) -> str:
    """A value of a key; of a table what was given in it, in a line."""
    if not isinstance(value, Section):
        return brief(value, key)
    return ", ".join(f"{row[0]} {row[1]}" for row in value._sheet().rows if len(row) > 1)


class SourcedSection(Section):
    """A section in which every given number names its source, as "kind: where" (`base/units.py`)."""

    sources: dict[str, str] = {}
    """Where each number is from, by its key, as "kind: where"."""

    @model_validator(mode="after")
    def _every_number_has_a_source(self) -> SourcedSection:
        problems = []
        for key in (key for key in type(self).model_fields if key in self.model_fields_set and key != "sources"):
            if _taken(type(self), key).number and getattr(self, key) is not None and key not in self.sources:
                problems.append(f"'{key}' has no entry in 'sources'")
        for key, text in self.sources.items():
            if key not in type(self).model_fields:
                problems.append(f"sources: no field '{key}'{suggest(key, type(self).model_fields)}")
            if not is_source(text):
                problems.append(f"sources.{key}: {HOW}")
        if problems:
            more = f"; and {len(problems) - MOST_PROBLEMS:,} more" if len(problems) > MOST_PROBLEMS else ""
            raise ValueError("; ".join(problems[:MOST_PROBLEMS]) + more)
        return self


def sourced_numbers(described: object, sections: Iterable[str]) -> Iterator[tuple[str, str, Any, str, str]]:
    """(section, field, value, kind of source, source) of all that sections of a description name a source for; fields
    of a section within another as 'core.load_cycles'."""
    for name in sections:
        if (section := getattr(described, name)) is not None:
            yield from _sourced_fields(name, "", section)


def _sourced_fields(name: str, before: str, section: SourcedSection) -> Iterator[tuple[str, str, Any, str, str]]:
    for field, text in section.sources.items():
        kind, _, source = text.partition(":")
        yield name, f"{before}{field}", getattr(section, field), kind, source.strip()
    for field in type(section).model_fields:
        if isinstance(within := getattr(section, field), SourcedSection):
            yield from _sourced_fields(name, f"{before}{field}.", within)


class _Taken(NamedTuple):
    """What a field takes: a number, alone or in a union; numbers, even in lists, but no truth value; a whole number."""

    number: bool
    numbers: bool
    whole: bool


@lru_cache(maxsize=4096)
def _taken(section: type[Section], key: str) -> _Taken:
    annotation = section.model_fields[key].annotation
    numbers = _mentions(annotation, (int, float)) and not _mentions(annotation, (bool, BaseModel))
    return _Taken(_is_number(annotation), numbers, annotation is int)


def _is_number(annotation: Any) -> bool:
    """Whether a field takes a number, alone or in a union; a tuple of numbers does not count."""
    options = (annotation,) if typing.get_origin(annotation) is tuple else typing.get_args(annotation) or (annotation,)
    return any(getattr(option, "__origin__", option) in (int, float) for option in options)


def _holds_boolean(value: Any) -> bool:
    if isinstance(value, (list, tuple, dict)):
        return any(_holds_boolean(each) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, bool)


def _mentions(annotation: Any, kinds: tuple[type, ...]) -> bool:
    """Whether an annotation is of one of `kinds`, or holds one or anything somewhere."""
    if annotation is Any:
        return True
    kind = typing.get_origin(annotation) or annotation
    if isinstance(kind, type) and issubclass(kind, kinds):
        return True
    return any(_mentions(each, kinds) for each in typing.get_args(annotation))


S = TypeVar("S", bound=Section)


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """The table and the text of a TOML file; raises DescriptionError that names file and line."""
    try:
        text = read_bounded_text(path, MAX_DESCRIPTION_BYTES)
    except FileNotFoundError:
        raise DescriptionError(str(path), ["no such file"]) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise DescriptionError(str(path), [f"cannot be read as text: {problem}"]) from None
    except ValueError:
        raise DescriptionError(str(path), [f"a description has at most {MAX_DESCRIPTION_BYTES} bytes"]) from None
    return parse_toml(text, where=str(path)), text


def parse_toml(text: str, *, where: str) -> dict[str, Any]:
    """The table of a TOML text; raises DescriptionError, also for deep nesting or a number that TOML does not allow."""
    try:
        return deepcopy(_parsed(text))
    except RecursionError:
        raise DescriptionError(where, [f"is not a valid description: nested over {MAX_DEPTH} deep"]) from None
    except ValueError as problem:  # of tomllib, and of Python for numbers of thousands of digits
        raise DescriptionError(where, [f"is not TOML: {shortened(str(problem), 300)}"]) from None


@lru_cache(maxsize=16)
def _parsed(text: str) -> dict[str, Any]:
    """The table, to be copied: a study reads the same files at every point, and parsing takes longer than the rest."""
    if _DEEP_KEY.search(text):
        raise ValueError(f"a key has over {MOST_DOTTED} parts")
    table = tomllib.loads(text)
    _check_values(table)
    return table


def _check_values(table: dict[str, Any]) -> None:
    """Raises ValueError for a value nested too deep, or a whole number beyond TOML's 64 bits."""
    level: list[Any] = [table]
    for _ in range(MAX_DEPTH):
        wrong = next((value for value in level if isinstance(value, int) and abs(value) > MOST_WHOLE), None)
        if wrong is not None:
            raise ValueError(f"a whole number of {wrong.bit_length()} bits; at most 63 and the sign are allowed")
        level = [inner for value in level for inner in _inner(value)]
        if not level:
            return
    raise ValueError(f"nested over {MAX_DEPTH} deep")


def _inner(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def build(
    model: type[S], table: dict[str, Any], *, where: str, text: str = "", changed: Collection[str] = frozenset()
) -> S:
    """A checked record of `model`; raises DescriptionError with every problem and its line in `text`.

    changed: dotted keys whose values are not those of `text` (`--set`).
    """
    try:
        return model.model_validate(table)
    except ValidationError as failure:
        every = failure.errors()
        # too few: of a list in which others are wrong, only the good ones are counted
        inner = {error["loc"][:place] for error in every for place in range(len(error["loc"]))}
        found = [error for error in every if error["type"] != "too_short" or error["loc"] not in inner]
        problems = [_explain(model, error, text, changed) for error in found[:MOST_PROBLEMS]]
        raise DescriptionError(where, problems, more=len(found) - len(problems)) from None


def given_keys(record: BaseModel) -> dict[str, Any]:
    """The table that a record was built from, without the defaults of keys that were not given: `build` makes the same
    record of it again, where a table with the defaults would give keys that others exclude."""
    return record.model_dump(exclude_unset=True)


def has_default(record: BaseModel, key: str) -> bool:
    """Whether a field is as it is by default, given or not."""
    return bool(getattr(record, key) == type(record).model_fields[key].get_default(call_default_factory=True))


def is_given(described: BaseModel, dotted: str) -> bool:
    """Whether a key of a section is given, with another value than by default."""
    name, key = dotted.split(".")
    section = getattr(described, name)
    return section is not None and key in section.model_fields_set and not has_default(section, key)


def dotted_changes(changes: Mapping[str, Any] | None, where: str = "changes") -> dict[str, Any]:
    """Changes by dotted key, of those too that are given as tables of sections: {"tile": {"worker_contexts": 12}} is
    {"tile.worker_contexts": 12}. Raises DescriptionError for a key that is given twice."""
    found: dict[str, Any] = {}
    if changes is not None and not isinstance(changes, Mapping):
        raise DescriptionError(where, [f"are {type(changes).__name__}; give values by dotted key, as a dictionary"])
    for key, value in (changes or {}).items():
        within = isinstance(value, Mapping) and "." not in key
        given = {f"{key}.{inner}": each for inner, each in value.items()} if within else {key: value}
        for dotted, each in given.items():
            if dotted in found:
                raise DescriptionError(where, [f"{dotted} given twice; give each key one value"])
            found[dotted] = each
    return found


def changed_table(table: dict[str, Any], changes: Mapping[str, Any], *, where: str, example: str) -> None:
    """Write values of dotted keys into a table of sections, which are made where missing; raises DescriptionError.

    example: a key of the description, for the message.
    """
    for dotted, value in changes.items():
        *sections, key = dotted.split(".")
        target: Any = table
        for place, section in enumerate(sections):
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                whole = ".".join(sections[: place + 1])
                problem = f"unknown field '{dotted}'; write section.key, e.g. {example}: '{whole}' has no such field"
                if isinstance(target, (list, tuple)):
                    problem = f"'{dotted}': {whole} is a list with a value for every layer; give '{whole}' as a whole"
                raise DescriptionError(where, [problem])
        target[key] = value


def whence(path: tuple[Any, ...], text: str, changed: Collection[str]) -> str:
    """Where the value at `path` was given, for error messages: ' (as changed)', ' (line 7)' or ''; commands have the
    first in words of their own."""
    named = [part for part in path if isinstance(part, str)]
    if any(".".join(named[: place + 1]) in changed for place in range(len(named))):
        return AS_CHANGED
    line = _line_of(path, text)
    return f" (line {line})" if line else ""


def _explain(model: type[BaseModel], error: Any, text: str, changed: Collection[str]) -> str:
    path = _keys_of(model, error["loc"])
    dotted = shortened(".".join(str(part) for part in path))
    at = whence(path, text, changed)
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be", 1)
    if error["type"] == "extra_forbidden":
        hint = _elsewhere(model, path) or suggest(str(path[-1]), _fields_at(model, path[:-1]))
        return f"unknown key '{dotted}'{at}{hint}"
    if error["type"] == "missing" and isinstance(path[-1], int):
        return f"'{shortened('.'.join(map(str, path[:-1])))}'{at} has {path[-1]} values; more are needed"
    if error["type"] == "missing":
        about = _model_at(model, path[:-1]).model_fields[str(path[-1])].metadata
        return "; ".join([f"missing key '{dotted}'", *(each.text for each in about if isinstance(each, Hint))])
    given = error.get("input")
    if error["type"] == "tuple_type":
        one = type(given) in (int, float) or (isinstance(given, str) and not given.startswith("["))
        each = re.split(r"[\s;,]+", str(given).strip())  # '256;128' and '256 128' mean a list
        listed = shortened(", ".join(word if re.match(r"[\d.+-]", word) else f'"{word}"' for word in each))
        message = f"must be a list; write [{listed}]" if one else "must be a list"
    if error["type"] == "string_type":
        message = "must be text"
    if error["type"] in ("dict_type", "model_type"):
        message = "must have keys, with a value each: a dict in Python, { key = value } in a file or by --set"
    if error["type"] == "too_short":
        message = f"has {error['ctx']['actual_length']} values; give {error['ctx']['min_length']} or more"
    shown = f" (given: {shortened(repr(given))})" if isinstance(given, (int, float, str, bool)) else ""
    return f"'{dotted}'{at}: {message}{shown}" if dotted else f"{message}{shown}"


def _keys_of(model: type[BaseModel], place: tuple[Any, ...]) -> tuple[Any, ...]:
    """Keys and indices that lead to a value, without pydantic's names for the forms that it may have."""
    path: tuple[Any, ...] = ()
    within = True  # a table, whose keys follow
    for part in place:
        if isinstance(part, int):
            path = (*path, part)
        elif within and part not in (_ONE, _SEVERAL):
            field = getattr(_model_at(model, path), "model_fields", {}).get(part)
            within = field is None or _mentions(field.annotation, (dict, BaseModel))
            path = (*path, part)
    return path


def _elsewhere(model: type[BaseModel], path: tuple[Any, ...]) -> str:
    """A hint at another section that has the key which `path` lacks; '' if there is none."""
    sections = {name: _fields_at(model, (name,)) for name in model.model_fields if len(path) == 2}
    homes = [name for name, fields in sections.items() if path[-1] in fields and fields != list(model.model_fields)]
    return f"; it is in another section: '{homes[0]}.{path[-1]}'" if homes else ""


def _fields_at(model: Any, path: tuple[Any, ...]) -> list[str]:
    """The field names of the section that `path` leads to."""
    return list(getattr(_model_at(model, path), "model_fields", {}))


def _model_at(model: Any, path: tuple[Any, ...]) -> Any:
    """The section that `path` leads to."""
    for part in path:
        if isinstance(part, int):
            continue
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            continue
        candidates = [field.annotation, *typing.get_args(field.annotation)]
        nested = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if nested:
            model = nested[0]
    return model


def _line_of(path: tuple[Any, ...], text: str) -> int | None:
    """The line on which the last named key of `path` is set within its section, for error messages only."""
    names = [str(part) for part in path if isinstance(part, str)]
    if not names or not text:
        return None
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith("["):
            current = line.strip("[").partition("]")[0].strip()
            if current == ".".join(names):
                return number
        elif "=" in line and f"{current}.{line.partition('=')[0].strip().strip(QUOTES)}".strip(".") == ".".join(names):
            return number
    return None


_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(table: dict[str, Any], comment: str = "") -> str:
    """A table as TOML: its values, then its tables, each under its own heading."""
    head = [f"# {line}" for line in comment.splitlines()]
    return "\n".join([*head, *_lines(table, ())]).strip() + "\n"


def _lines(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None and not _is_table(value, path):
            yield f"{toml_key(key)} = {toml_value(value)}"
    for key, value in table.items():
        if _is_table(value, path):
            yield ""
            yield f"[{'.'.join(map(toml_key, (*path, key)))}]"
            yield from _lines(value, (*path, key))


def _is_table(value: Any, path: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and (not path or any(isinstance(each, dict) for each in value.values()))


def toml_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else toml_value(key)


def toml_value(value: object) -> str:
    """A number, text, list or table of them as TOML."""
    if isinstance(value, dict):
        inner = (f"{toml_key(key)} = {toml_value(each)}" for key, each in value.items() if each is not None)
        return f"{{ {', '.join(inner)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return str(value).lower() if isinstance(value, bool) else str(value)
