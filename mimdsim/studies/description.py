"""Study files: what is varied, how it is sampled, what is asked, as strict TOML.

    question = "How much SRAM does a tile need?"
    machine = "bow"
    workloads = ["digits", "nmnist-2-random"]
    fill = 0.5
    metrics = ["time", "area"]
    constraints = ["max area 826 mm2"]

    [axes]
    "chip.tiles" = [368, 736, 1472]
    "chip.clock_hz" = { from = "1 GHz", to = "2 GHz", points = 3 }

    [coupled]
    "tile.sram_bytes" = "900 MB / chip.tiles"

    [sampling]
    kind = "grid"

docs/studies.md explains them, docs/reference-study.md lists every key.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, field_validator, model_validator

from mimdsim.base.errors import DescriptionError, MimdsimError, near, shortened
from mimdsim.base.files import write_atomically
from mimdsim.base.schema import Section, build, given_keys, parse_toml, read_toml, toml_text
from mimdsim.base.search_path import find_description, names_of, several
from mimdsim.machine import MimdMachine
from mimdsim.studies.expressions import names_in
from mimdsim.studies.metrics import INFERENCE, METRICS, Constraint, parse_constraint

Kind = Literal["grid", "random", "latin-hypercube", "sobol", "sensitivity", "search"]
LISTS = {"workloads", "gpus", "metrics", "constraints"}
MAX_POINTS = 100_000
MAX_AXES = 64
MOST_WEIGHT = 1_000_000


_FORMS = "give a list of values, a range by 'from' and 'to', or a share by 'within'"


class Axis(Section):
    """The values of a field: a list (in a file: just the list), a range by step or number of points, or a share of the
    base value up and down."""

    values: tuple[Any, ...] = ()
    """The values, as a list."""
    start: Any = Field(None, alias="from")
    """First value of a range: a number, or a text with the unit of the field."""
    to: Any = None
    """Last value of a range."""
    step: Any = None
    """Distance of two values of a range."""
    points: int | None = Field(None, ge=2, le=MAX_POINTS)
    """Values of a range, or of a share."""
    log: bool = False
    """Whether the points are at equal ratios instead of equal distances."""
    within: float | None = Field(None, gt=0, lt=1)
    """A share of the machine's value: points lie from so much less to so much more."""

    @model_validator(mode="before")
    @classmethod
    def _list(cls, given: Any) -> Any:
        if not isinstance(given, (list, tuple, dict, cls)):
            raise ValueError(_FORMS)
        return {"values": given} if isinstance(given, (list, tuple)) else given

    @model_validator(mode="after")
    def _one_form(self) -> Axis:
        ends = (self.start is not None) + (self.to is not None)
        forms = ("values" in self.model_fields_set) + (ends > 0) + (self.within is not None)
        if forms != 1 or ends == 1:
            raise ValueError(_FORMS)
        if "values" in self.model_fields_set and not self.values:
            raise ValueError("has no values")
        if self.within is not None and self.step is not None:
            raise ValueError("give a number of points with within, no step")
        if self.values and (self.step is not None or self.points is not None or self.log):
            raise ValueError("step, points and log belong to a range (from, to)")
        if self.step is not None and (self.points is not None or self.log):
            raise ValueError("give either a step, or a number of points (log: at equal ratios)")
        return self


_AXIS_KEYS = {field.alias or name for name, field in Axis.model_fields.items()}


class Sampling(Section):
    """Which points of the axes are looked at."""

    kind: Kind = "grid"
    """'grid' (every combination), 'random', 'latin-hypercube', 'sobol' (points that fill the space evenly),
    'sensitivity' (Morris screening, then Sobol indices of the strongest numbers), 'search' (for the best of `metrics`
    within `constraints`)."""
    points: int = Field(0, ge=0, le=MAX_POINTS)
    """How many points; for 'sensitivity', in each of its two stages."""
    seed: int = Field(0, ge=0, lt=2**32)
    """The seed of what is drawn."""
    strongest: int = Field(4, ge=0, le=MAX_AXES)
    """Of 'sensitivity': numbers that the second stage looks at."""

    @model_validator(mode="after")
    def _points_given(self) -> Sampling:
        if self.kind == "grid" and self.points:
            raise ValueError("a grid has as many points as its axes give; leave out points, or choose another kind")
        if self.kind != "grid" and not self.points:
            raise ValueError(f'kind = "{self.kind}" needs a number of points')
        return self


def _named_or_whole(given: Any) -> str | MimdMachine:
    if isinstance(given, dict):  # as `write_study` has it
        return build(MimdMachine, given, where="machine of a study")
    if not isinstance(given, str | MimdMachine):
        raise ValueError("must be text: the name of a machine or its file; or a tiled machine that is loaded")
    return given if isinstance(given, str) else given.with_outdated(())  # which its file does not hold


class Study(Section):
    """A question, and the points that answer it."""

    question: str = Field("", max_length=1000)
    """The question, in words."""
    question_kind: str = ""
    """How it is answered (`studies/questions/`); '': by what is best, or what matters most in a sensitivity."""
    practical_difference: float = Field(0.02, ge=0, lt=1)
    """Shares of a metric below it make no point better than another."""
    workloads: dict[str, float] = Field(min_length=1, max_length=100)
    """Names or files with their weights; a list: all weigh the same."""
    machine: Annotated[str | MimdMachine, PlainValidator(_named_or_whole)] = "bow"
    """The machine that is changed, by name or file, or whole."""
    changes: dict[str, Any] = Field(default_factory=dict)
    """Fields changed in every point, as those of `--set`, in quotes."""
    mapping: str = "published"
    """'published', 'best' (a search for every point, among `candidates`) or a mapping file."""
    candidates: int = Field(120, ge=1, le=100_000)
    """Mappings that a search for the best one lowers for every point."""
    fill: float | None = Field(None, ge=0, le=1)
    """The share that lists of spikes hold; left out: spikes are recorded after `training_steps`."""
    training_steps: int = Field(20, ge=0)
    """Training steps before spikes are recorded; 0: the whole training. Of no effect beside `fill`."""
    gpus: tuple[str, ...] = ()
    """GPUs that are timed beside every point."""
    reference: str = ""
    """The machine that ratios are to; '': the first point."""
    metrics: tuple[str, ...] = ("time",)
    """What is asked of every point; the first metric ranks."""
    constraints: tuple[str, ...] = ()
    """Limits: 'max' or 'min', a metric, a value with its unit."""
    axes: dict[str, Axis] = Field(default_factory=dict, max_length=MAX_AXES)
    """Fields that are varied, in quotes, and their values."""
    coupled: dict[str, str] = Field(default_factory=dict, max_length=MAX_AXES)
    """Fields that are expressions of other fields, in quotes."""
    sampling: Sampling = Sampling()
    """Which points of the axes are looked at."""

    @property
    def infers(self) -> bool:
        """Whether a metric, or a limit, is of inference."""
        limits = (parse_constraint(text).metric.name for text in self.constraints)
        return any(name in INFERENCE for name in (*self.metrics, *limits))

    @field_validator("workloads", mode="before")
    @classmethod
    def _equal_weights(cls, given: Any) -> Any:
        given = [given] if isinstance(given, str) else given
        if isinstance(given, (list, tuple)):
            if not all(isinstance(name, str) for name in given):
                raise ValueError("must be names or files of workloads, as texts")
            return dict.fromkeys(given, 1.0)
        return given

    @field_validator("gpus", "metrics", "constraints", mode="before")
    @classmethod
    def _one_alone(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @field_validator("changes", "axes", "coupled", mode="before")
    @classmethod
    def _quoted(cls, given: Any) -> Any:
        """TOML reads  chip.tiles = 3  without quotes as a table `chip`."""
        for section, inner in given.items() if isinstance(given, dict) else ():
            if "." not in section and isinstance(inner, dict) and not {*inner} & _AXIS_KEYS:
                field = f"{section}.{next(iter(inner), 'key')}"
                raise ValueError(f'write the field as one key, in quotes: "{shortened(field)}"')
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> Study:
        if any(not 0 < weight <= MOST_WEIGHT for weight in self.workloads.values()):
            raise ValueError(
                f"workloads: a weight must be more than 0, at most {MOST_WEIGHT:,}; leave out what does not count"
            )
        for names, what in ((self.metrics, "metrics"), ([Path(name).stem for name in self.gpus], "gpus")):
            again = sorted({name for name in names if names.count(name) > 1})
            if again:
                raise ValueError(f"{what}: {', '.join(again)} given twice")
        for given, where in ((self.coupled, "axes"), (self.changes, "axes"), (self.changes, "coupled")):
            twice = sorted(set(given) & set(getattr(self, where)))
            if twice:
                raise ValueError(f"{', '.join(twice)} given twice: once in {where}")
        if not self.metrics:
            raise ValueError(f"metrics: none; known: {', '.join(METRICS)}")
        known = f"; known: {', '.join(METRICS)}"
        if unknown := [name for name in self.metrics if name not in METRICS]:
            raise ValueError(f"metrics: {', '.join(unknown)}{near(unknown[0], METRICS) or known}")
        for text in self.constraints:
            parse_constraint(text)
        for key, text in self.coupled.items():
            try:
                names_in(text)
            except ValueError as problem:
                raise ValueError(f"coupled.{key}: {problem}") from None
        if self.question_kind:
            from mimdsim.studies.questions import KINDS  # which read studies

            if self.question_kind not in KINDS:
                known = f"{near(self.question_kind, KINDS)}; known: {', '.join(KINDS)}"
                raise ValueError(f"question_kind: no kind '{shortened(self.question_kind)}'{known}")
            if lacks := KINDS[self.question_kind].lacks(self):
                raise ValueError(f'question_kind = "{self.question_kind}" needs {lacks}')
        if self.sampling.kind in ("sensitivity", "search") and not self.axes:
            raise ValueError(f'sampling.kind = "{self.sampling.kind}" needs axes to vary')
        return self

    @property
    def title(self) -> str:
        return self.question

    @property
    def machine_name(self) -> str:
        """The machine as it was named."""
        return self.machine if isinstance(self.machine, str) else self.machine.name

    @property
    def limits(self) -> tuple[Constraint, ...]:
        return tuple(map(parse_constraint, self.constraints))

    @property
    def varied(self) -> tuple[str, ...]:
        """Fields that differ from point to point: columns of every table."""
        return (*self.axes, *self.coupled)


def list_studies() -> tuple[str, ...]:
    """The names of all studies, sorted: of the package, of MIMDSIM_HOME and of the working folder."""
    return names_of("studies")


def read_study(name: str | Path) -> Study:
    """A study by its name or file; raises DescriptionError that names file and line."""
    path = find_description("studies", "study", str(name))
    table, text = read_toml(path)
    return build(Study, table, where=str(path), text=text)


def make_study(where: str, **given: Any) -> Study:
    """A study of what a command or a call gives, where one name may stand for a list of them, and paths may be
    `pathlib.Path`; raises DescriptionError."""
    table = {name: _as_text(value) for name, value in given.items() if value is not None}
    for name in LISTS & set(table):
        table[name] = table[name] if isinstance(table[name], dict) else several(table[name])
    return build(Study, table, where=where)


def _as_text(value: Any) -> Any:
    """`value` with its paths as texts."""
    if isinstance(value, dict):
        return {_as_text(key): _as_text(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_as_text(each) for each in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def write_study(study: Study, path: Path, command: str = "") -> None:
    """Write a study as a file, as a whole or not at all; the same study is read back."""
    whole = {} if isinstance(study.machine, str) else {"machine": given_keys(study.machine)}
    table = study.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={*whole}) | whole
    for key, axis in study.axes.items():
        if axis.values:
            table["axes"][key] = list(axis.values)
    text = toml_text(table, comment=command)
    refused = f"{path}: this study cannot be written as a file"
    try:
        parsed = parse_toml(text, where=str(path))
    except DescriptionError as problem:
        raise MimdsimError(f"{refused}: {problem}") from None
    if build(Study, parsed, where=str(path), text=text) != study:
        raise MimdsimError(f"{refused}; values must be numbers, texts and lists")
    write_atomically(path, text)
