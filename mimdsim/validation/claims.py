"""Claims of publications beside what is computed for them: `references/claims.toml`, verdicts, and how they are told.

A verdict is of intervals alone: confirmed where every value of ours is one that was claimed, contradicted where none
is, undecided where our interval holds both.
"""

from __future__ import annotations

import json
import math
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any, Literal

from pydantic import Field

from mimdsim import api
from mimdsim.base import __version__
from mimdsim.base.console import Progress, silent
from mimdsim.base.errors import DataFileError, DescriptionError, MimdsimError, suggest
from mimdsim.base.residuals import LEVEL, combined, interval
from mimdsim.base.schema import Section, build, read_toml
from mimdsim.base.search_path import files_of, several
from mimdsim.compiler import Compiled
from mimdsim.gpu import time_on_gpu
from mimdsim.graph import training_graph
from mimdsim.machine import tiled_machine
from mimdsim.machine.gpu import Precision
from mimdsim.pipeline import compile_workload, retime, time_on_gpus, train_workload
from mimdsim.pipeline.overrides import load_gpu, load_tiled, split_changes
from mimdsim.profile import TiledProfile
from mimdsim.profile.ratios import Ratio, independent_ratio, ratio, ratio_of, ratio_to_gpu
from mimdsim.program.records import NO_SPIKES
from mimdsim.search import Aims, Case, search
from mimdsim.validation.framework_steps import Call, loop_seconds, planned_product_cycles
from mimdsim.validation.markdown_page import apart, cell, heads, line
from mimdsim.workload import Workload, filled_activity, load_workload, network_of, open_dataset

# ---- what the claims of publications are compared with: a few kinds of figures, each from settings in `claims.toml`


FILL = 0.3  # natural lists of N-MNIST recordings are 30 to 60 % full
DEVIATIONS = 1.645  # of a normal distribution: LEVEL of it lies within so many on either side
EVERYTHING = {"network.second_threshold": -100.0, "network.activity": 1.0}  # lists that hold every neuron
assert LEVEL == 0.9

TILED = "claims are about tiled machines"
Changes = Mapping[str, Any]


class LacksData(DataFileError):
    """Recordings that a claim needs and that are not there."""


def tiled_step(workload: Workload, machine: Any, candidates: int = 0) -> TiledProfile:
    """A training step with lists filled to FILL; candidates: at the best mapping of so many."""
    network = network_of(workload)
    activity = filled_activity(network, FILL)
    if candidates:
        case = Case.of(network, machine, activity, workload.mapping)
        processes = os.cpu_count() or 1
        found = search(case, Aims.of(machine), candidates=candidates, processes=processes, explained=False)
        workload = workload.model_copy(update={"mapping": found.best.options})
    return retime(compile_workload(workload, machine), machine, activity)


def gpu_over_tiles(
    *,
    cases: Sequence[Mapping[str, Any]],
    machine: str = "bow",
    gpu: str = "a100",
    strategy: str = "as_published",
    precision: Precision = "tf32",
    candidates: int = 0,
) -> Ratio:
    """The largest of the cases; strategy: 'strongest' takes the fastest that could be built, in any precision."""
    chip, beside = tiled_machine(machine, TILED), load_gpu(gpu)

    def compared(case: Mapping[str, Any]) -> Ratio:
        workload = load_workload(case["workload"], case.get("changes", {}))
        graph = training_graph(network_of(workload))
        if strategy == "strongest":
            lineup, _ = time_on_gpus(graph, (beside,), filled_activity(network_of(workload), FILL))
            timed = min((one for one in lineup if not one.never_built), key=lambda one: one.seconds_per_training_step)
        else:
            timed = time_on_gpu(graph, beside, strategy=strategy, precision=precision, input_encoding="dense")
        return ratio_to_gpu(timed, tiled_step(workload, chip, candidates))

    return max(map(compared, cases), key=lambda found: found.middle)


def step_over_step(
    *,
    workload: str,
    other_workload: str = "",
    one: Changes | None = None,
    other: Changes | None = None,
    by_weights: bool = False,
    machine: str = "bow",
) -> Ratio:
    """Time of one training step over that of another; by_weights: of a weight."""

    def timed(name: str, changes: Changes) -> tuple[TiledProfile, int]:
        for_workload, for_machine = split_changes(dict(changes))
        loaded = load_workload(name, for_workload)
        weights = sum(layer.neurons * layer.inputs for layer in network_of(loaded).layers)
        return tiled_step(loaded, load_tiled(machine, for_machine)), weights

    (ours, few), (theirs, many) = timed(workload, one or {}), timed(other_workload or workload, other or {})
    found, scale = ratio_of(ours, theirs), many / few if by_weights else 1.0
    return Ratio(low=scale * found.low, middle=scale * found.middle, high=scale * found.high)


def loop_over_framework(*, machine: str = "mk2", changes: Changes | None = None) -> Ratio:
    """snnTorch's loop on a GPU, bound by its host, over the same network through PopTorch."""
    return independent_ratio(loop_seconds(changes or {}), Call(machine, changes or {}).ends)


def framework_over_framework(*, other: Changes, one: Changes | None = None, machine: str = "mk2") -> Ratio:
    """Two networks through PopTorch."""
    return ratio(Call(machine, one or {}).parts, Call(machine, other).parts)


def halves_over_floats(*, machine: str = "mk2") -> Ratio:
    """From a step through PopTorch in which products alone gain to the products alone; the middle of their ratios."""
    whole = Call(machine, {}).timed.cycles
    full, half = (planned_product_cycles(machine, dtype) for dtype in ("f32", "f16"))
    low, high = whole / (whole - full + half), full / half
    return Ratio(low=low, middle=math.sqrt(low * high), high=high)


def values_program(workload: Workload) -> Compiled:
    """The training step compiled for few wide tiles, whatever their memory: quicker to run, the same values."""
    widest = max(layer.neurons for layer in network_of(workload).layers)
    changed = {"neurons_per_tile": widest + widest % 2, "weight_gradient_replicas": 1}
    wide = workload.model_copy(update={"mapping": workload.mapping.model_copy(update=changed)})
    return compile_workload(wide, tiled_machine("bow", TILED), must_fit=False)


def sparse_over_dense(
    *,
    data: Path,
    workload: str,
    changes: Changes,
    sparse: Changes | None = None,
    dense: Changes | None = None,
    seeds: int = 2,
    epochs: str = "last",
) -> Ratio:
    """Test accuracy with lists of 10 % over that with lists of every neuron; epochs: 'last' or the mean of 'all'.

    The interval takes the test samples as draws, and the seeds too where there are several.
    """
    path = _recordings(load_workload(workload, dict(changes)), data)

    def accuracy(variant: Changes) -> tuple[float, float]:
        """Mean over seeds, and its standard error as a share of it."""
        found, samples = [], 1
        for seed in range(1, seeds + 1):
            reached, samples = _accuracies(workload, json.dumps({**changes, **variant, **path, "seed": seed}))
            found.append(fmean(reached) if epochs == "all" else reached[-1])
        middle = fmean(found)
        certain = (middle * samples + 1) / (samples + 2)  # all right of few samples is not sure to be all right
        of_seeds = pvariance(found) / max(seeds - 1, 1)
        return middle, math.sqrt(certain * (1 - certain) / samples + of_seeds) / middle

    (ours, off), (theirs, theirs_off) = accuracy(sparse or {"network.activity": 0.1}), accuracy(dense or EVERYTHING)
    low, high = interval(ours / theirs, DEVIATIONS * combined((off, theirs_off)))
    return Ratio(low=low, middle=ours / theirs, high=high)


@lru_cache(maxsize=64)  # claims on accuracy and on convergence are about the same training
def _accuracies(workload: str, changes: str) -> tuple[tuple[float, ...], int]:
    """Test accuracy after every epoch, and of how many samples; changes: as JSON."""
    loaded = load_workload(workload, json.loads(changes))
    log = train_workload(loaded, values_program(loaded), open_dataset(loaded.data, loaded.seed))
    return log.test_accuracy_by_epoch, log.test_samples


def _recordings(workload: Workload, folder: Path) -> dict[str, str]:
    """Where the recordings of a workload are, as one of its changes; raises LacksData."""
    usual = workload.data.path
    if not usual:
        return {}
    place = folder / Path(usual).name
    if not place.exists():
        raise LacksData(place, f"no recordings '{place.name}': give the folder that holds them by  --data DIR")
    return {"data.path": str(place)}


def neurons_that_train(*, workload: str, models: Sequence[Changes], changes: Changes) -> Ratio:
    """How many of the models pass `check`: rules, memory and every value of a training step."""
    each = ({f"network.{key}": value for key, value in model.items()} for model in models)
    passed = sum(api.check(workload, changes={**changes, **one}).passed for one in each)
    return Ratio(low=passed, middle=passed, high=passed)


def memory_growth(*, workload: str, timesteps: tuple[int, int, int], machine: str = "mk2") -> Ratio:
    """Bytes of the fullest tile that the later timesteps add over those that as many earlier ones add."""
    chip = tiled_machine(machine, TILED)
    first, second, third = (
        retime(
            compile_workload(load_workload(workload, {"data.timesteps": count}), chip, must_fit=False), chip, NO_SPIKES
        ).memory.peak_bytes
        for count in timesteps
    )
    found = (third - second) / (second - first)
    return Ratio(low=found, middle=found, high=found)


PREDICTORS: dict[str, Callable[..., Ratio]] = {
    one.__name__: one
    for one in (
        gpu_over_tiles, step_over_step, loop_over_framework, framework_over_framework, halves_over_floats,
        sparse_over_dense, neurons_that_train, memory_growth,
    )
}  # fmt: skip


FILE = "claims.toml"
DATA = Path("data")  # where workloads look for recordings
COLUMNS = 80
Verdict = Literal["confirmed", "contradicted", "cannot be said", "needs data that is not here", "failed"]


class Claim(Section):
    """One claim; low and high bound what is claimed, None: no bound. small, full: settings of its predictor `kind`."""

    name: str
    topic: str
    paper: str
    where: str
    claim: str
    quantity: str
    low: float | None = None
    high: float | None = None
    reading: str
    kind: Literal[tuple(PREDICTORS)]  # type: ignore[valid-type]
    small: dict[str, Any] = Field({})
    full: dict[str, Any] = Field({})

    @property
    def claimed(self) -> str:
        """'5 to 10', 'at least 37.5'."""
        low, high = (None if end is None else f"{end:g}" for end in (self.low, self.high))
        if low is None or high is None:
            return f"at least {low}" if high is None else f"at most {high}"
        return low if low == high else f"{low} to {high}"

    def verdict(self, found: Ratio) -> Verdict:
        """What the interval of our figure says of the claim."""
        low = float("-inf") if self.low is None else self.low
        high = float("inf") if self.high is None else self.high
        if low <= found.low and found.high <= high:
            return "confirmed"
        return "contradicted" if found.high < low or found.low > high else "cannot be said"


class _Claims(Section):
    claim: tuple[Claim, ...]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A claim and what was found; found: None if nothing could be computed; note: why."""

    claim: Claim
    found: Ratio | None
    verdict: Verdict
    note: str = ""

    @property
    def figure(self) -> str:
        """'4.52 (2.64-7.8)'; without an interval where there is none."""
        if self.found is None:
            return "–"
        middle = f"{self.found.middle:.3g}"
        same = self.found.low == self.found.high
        return middle if same else f"{middle} ({self.found.low:.3g}-{self.found.high:.3g})"

    @property
    def record(self) -> dict[str, Any]:
        """As JSON."""
        about = self.claim.model_dump(mode="json", include={"name", "topic", "paper", "where", "claim", "quantity"})
        found = {end: None if self.found is None else getattr(self.found, end) for end in ("low", "middle", "high")}
        claimed = {"low": self.claim.low, "high": self.claim.high, "reading": self.claim.reading}
        return about | {"claimed": claimed, "found": found, "verdict": self.verdict, "note": self.note}


def claims() -> tuple[Claim, ...]:
    """All claims; raises DescriptionError with every problem of the table."""
    path = files_of("references")[FILE]
    given, text = read_toml(path)
    return build(_Claims, given, where=path.name, text=text).claim


def reproduce(
    names: str | Sequence[str] = (),
    *,
    full: bool = False,
    data: str | Path | None = None,
    progress: Progress = silent,
) -> list[Reproduction]:
    """Compute what claims of the two papers say, and compare.

    names: of claims (default: all). full: with the sizes, seeds and searches of the docs instead of the quick ones.
    data: a folder that holds recordings by the names that workloads have for them, nmnist, shd and dvs-gesture
    (default: data). Raises DescriptionError for a name that is no claim's.
    """
    known = {claim.name: claim for claim in claims()}
    wanted = several(names) or tuple(known)
    if unknown := [name for name in wanted if name not in known]:
        raise DescriptionError("reproduce", [f"no claim '{name}'{suggest(name, tuple(known))}" for name in unknown])
    found = []
    for number, name in enumerate(wanted):
        progress(f"reproducing {name}", number, len(wanted))
        found.append(_computed(known[name], full, DATA if data is None else Path(data)))
    return found


def _computed(claim: Claim, full: bool, data: Path) -> Reproduction:
    settings = {**claim.small, **(claim.full if full else {})}
    if claim.kind == "sparse_over_dense":
        settings["data"] = data
    try:
        found = PREDICTORS[claim.kind](**settings)
    except LacksData as lacking:
        return Reproduction(claim=claim, found=None, verdict="needs data that is not here", note=lacking.reason)
    except MimdsimError as problem:
        return Reproduction(claim=claim, found=None, verdict="failed", note=str(problem))
    return Reproduction(claim=claim, found=found, verdict=claim.verdict(found))


def list_lines(known: Iterable[Claim]) -> Iterator[str]:
    """Names and claims, by paper."""
    for paper, of_paper in groupby(known, key=lambda claim: claim.paper):
        yield f"arXiv {paper}"
        for claim in of_paper:
            yield from _wrapped(f"  {claim.name:<23} ", claim.claim)


def said_lines(made: Reproduction) -> Iterator[str]:
    """One claim and its verdict, for a console of COLUMNS."""
    claim = made.claim
    yield from _wrapped("", f"{claim.name}: {made.verdict}")
    for head, text in (
        ("claim", f"{claim.claim} [arXiv {claim.paper}, {claim.where}]"),
        ("figure", claim.quantity),
        ("claimed", claim.claimed),
        ("found", made.note if made.found is None else made.figure),
        ("reading", claim.reading),
    ):
        yield from _wrapped(f"  {head:<8} ", text)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, initial_indent=head, subsequent_indent=" " * len(head))


def page_text(made: Sequence[Reproduction], command: str) -> str:
    """A page of Markdown: a table, and what was made of every claim."""
    lines = [*apart("# Claims of the two papers", *HEAD, f"Made by mimdsim {__version__}: `{command}`.")]
    counts = [
        (verdict, sum(one.verdict == verdict for one in made)) for verdict in dict.fromkeys(x.verdict for x in made)
    ]
    lines += apart("Of " + f"{len(made)} claims: " + ", ".join(f"{count} {verdict}" for verdict, count in counts) + ".")
    lines += heads("claim", "about", "figure", "*claimed", "*found (interval)", "verdict")
    for one in made:
        claim = one.claim
        lines.append(line(f"`{claim.name}`", claim.topic, cell(claim.quantity), claim.claimed, one.figure, one.verdict))
    lines += ["", *apart("## What was claimed, and how it was read")]
    for one in made:
        claim = one.claim
        lines.append(f"- `{claim.name}` (arXiv {claim.paper}, {claim.where}): {claim.claim} {claim.reading}")
        lines += [f"  {one.verdict.capitalize()}: {cell(one.note)}."] if one.note else []
    return "\n".join(lines) + "\n"


HEAD = (
    "What the abstracts of the two papers say that this project begins from, and what mimdsim computes for it: "
    "*Harnessing Manycore Processors with Distributed Memory for Accelerated Training of Sparse and Recurrent Models* "
    "([arXiv 2311.04386](https://arxiv.org/abs/2311.04386)) and *Intelligence Processing Units Accelerate Neuromorphic "
    "Learning* ([arXiv 2211.10725](https://arxiv.org/abs/2211.10725)).",
    "Their tables and figures were not available, only abstracts, quotations and the code of their authors: where a "
    "claim has no number, or a network is not named, its reading is ours and stands below. Measured times of the first "
    "paper's code are in [predicted-and-measured.md](predicted-and-measured.md).",
    "`mimdsim reproduce NAME` computes one, in less than two minutes; `--full` takes more networks, seeds and "
    "searches.",
    "*Confirmed*: all of our interval lies within what was claimed. *Contradicted*: none of it. *Cannot be said*: some "
    "of it does. No verdict is typed.",
)
