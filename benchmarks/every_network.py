"""Every network through every command: which work, and with which sentence the others are refused.

Subjects are all shipped workloads, all neurons, neurons and constants by layer, dense, recurrent and delayed networks,
and imported models, each shrunk to a few neurons, samples and timesteps; machines are all that are shipped, with fewer
tiles. A command that neither works nor refuses (exit code 2 and a sentence) is a bug. Results are kept in a CSV file;
`--page` writes the table of docs/every-network.md from it.
Usage: python benchmarks/every_network.py [--once] [--subject NAME ...] [--machine NAME ...] [--command NAME ...]
       [--kept FILE] [--page FILE.md]
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.base.schema import toml_text
from mimdsim.cli import main
from mimdsim.graph.convolution import Planes, Window
from mimdsim.graph.neuron_models import MODELS
from mimdsim.machine import GpuMachine, MimdMachine, list_machines, load_machine
from mimdsim.workload import Workload, list_workloads, load_workload, network_of
from mimdsim.workload.interchange.nir_nodes import NirGraph, NirNode
from mimdsim.workload.interchange.nir_writing import write_nir

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs" / "every-network.csv"
COLUMNS = ("subject", "machine", "gpu", "command", "result", "sentence")
TILES = 64  # of a shrunk chip
WIDTH, TIMESTEPS, BATCH, SAMPLES = 10, 4, 4, 8
GENERATED = ("digits", "mnist5k", "randman", "random")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A network: a workload with changes; `source` says how its file is made."""

    name: str
    workload: str = "digits"
    changes: tuple[tuple[str, Any], ...] = ()
    source: str = "workload"


@dataclass(frozen=True)
class Result:
    """Of a command: 'works', 'refused' with the sentence, or 'crash' with what was said."""

    result: str
    sentence: str = ""


def subjects() -> dict[str, Subject]:
    found = [Subject(name=name, workload=name) for name in list_workloads()]
    for name, model in MODELS.items():
        if model.spiking:
            found.append(Subject(name=f"neuron {name}", changes=(("network.neuron", name),)))
            parameter = model.parameters[-1]  # digits gives others of lif by keys of their own
            given = {f"network.neuron_parameters.{parameter.name}": parameter.default, "network.neuron": name}
            found.append(Subject(name=f"neuron {name}, parameter", changes=tuple(given.items())))
        else:
            by_layer = {"network.neuron": ["lif", "lif", name], "network.output": "membrane"}
            found.append(Subject(name=f"read-out {name}", changes=tuple(by_layer.items())))
    several: dict[str, dict[str, Any]] = {
        "neurons by layer": {
            "network.neuron": ["adaptive", "lif", "synaptic"],
            "network.neuron_parameters": [{"rho": 0.9}, {}, {"alpha": 0.7}],
        },
        "decays by layer": {"network.decay": [0.8, 0.9, 0.95], "network.threshold": [1.0, 0.9, 1.1]},
        "recurrent": {"network.recurrence": "all_to_all", "network.bias": True},
        "recurrent one to one, no delay": {"network.recurrence": "one_to_one", "network.delay": 0},
        "dense": {"network.spikes": "dense"},
        "dense leaky": {"network.spikes": "dense", "network.neuron": "leaky"},
        "potentials": {"network.output": "membrane", "training.reading": "max"},
        "squares": {"training.loss": "mean_squared_error", "training.correct_rate": 0.8},
        "population": {"network.neurons_per_class": 2},
        "capacity by activity": {"network.capacity": [], "network.activity": 0.3, "network.neuron": "if"},
        "stash": {"mapping.stash": "every:2"},
        "halves": {"mapping.value_bytes": 2},
        "all rules": {"mapping.program": "best", "mapping.split": {"hidden0": {"batch": 2}}},
        "keep best": {
            "training.keep_best": True, "training.validation_share": 0.5, "training.evaluate": "each epoch",
            "training.schedule": "cosine",
        },
    }  # fmt: skip
    found += [Subject(name=name, changes=tuple(changes.items())) for name, changes in several.items()]
    found += [Subject(name=f"imported {name}", source=f"nir {name}") for name in ("lif", "cuba_lif", "if", "read-out")]
    found += [Subject(name="imported recurrent", source="nir recurrent")]
    found += [
        Subject(name="state dict", source="state dict"),
        Subject(name="state dict, leaky", changes=(("network.neuron", "leaky"),), source="state dict"),
        Subject(name="exported and imported", changes=(("network.neuron", "synaptic"),), source="exported"),
    ]
    return {subject.name: subject for subject in found}


def shrunk(subject: Subject) -> Workload:
    """A workload of the same kind that trains in no time."""
    changes = dict(subject.changes)
    whole = load_workload(subject.workload, changes)
    small: dict[str, Any] = {
        "data.timesteps": min(TIMESTEPS, whole.data.timesteps),
        "data.train_samples": SAMPLES,
        "data.test_samples": SAMPLES,
        "training.batch": min(BATCH, whole.training.batch),
        "training.epochs": 1,
        "training.max_training_steps": 2,
        "network.hidden": [min(WIDTH, width) for width in whole.network.hidden],
    }
    if whole.network.capacity:
        widths = [*small["network.hidden"], whole.network.capacity[-1]]
        small["network.capacity"] = [min(*pair) for pair in zip(whole.network.capacity, widths, strict=True)]
    if whole.network.convolutions:
        small |= _few_windows(whole)
    elif whole.data.source not in GENERATED:
        small |= {"data.source": "random", "data.inputs": 20, "data.input_capacity": 10, "data.activity": 0.2}
        small["data.classes"] = 4
    return load_workload(subject.workload, changes | small)


def _few_windows(whole: Workload) -> dict[str, Any]:
    """Small windows over small planes; the last convolution covers what is left."""
    planes, small = Planes(channels=2, height=12, width=12), {"data.source": "random", "data.classes": 4}
    small |= {"data.inputs": planes.neurons, "data.input_capacity": 40, "data.activity": 0.2}
    small["network.convolutions.hidden0.planes"] = [planes.channels, planes.height, planes.width]
    widths = [WIDTH] * len(whole.network.hidden)
    for index, layer in enumerate(whole.network.layers):
        if layer not in whole.network.convolutions:
            continue
        convolution = network_of(whole).layers[index].convolution
        assert convolution is not None
        planes = convolution.before.over(planes) if convolution.before else planes
        side = planes.height if convolution.result.positions == 1 else 2
        channels = 4 if layer == "output" else 3
        planes = Window(kernel=(side, side)).over(planes, channels)
        keys = {"channels": channels, "kernel": side, "padding": 0}
        small |= {f"network.convolutions.{layer}.{key}": value for key, value in keys.items()}
        if index < len(widths):
            widths[index] = planes.neurons
    return small | {"network.hidden": widths}


def written(subject: Subject, folder: Path) -> Path:
    """The file of a subject's workload; what it names lies beside it."""
    if subject.source == "workload":
        return _as_file(shrunk(subject), folder / "network.toml")
    if subject.source.startswith("nir "):
        write_nir(folder / "model.nir", _nir(subject.source.removeprefix("nir ")))
        path = _imported(folder, folder / "model.nir")
        return _as_file(_short(path), folder / "model" / "model.toml")
    base = _as_file(shrunk(subject), folder / "base.toml")
    if subject.source == "state dict":
        made = mimdsim.run(base, "tiny", gpus=())
        arrays = {
            f"{place}.weight": made.weights[name].T for place, name in enumerate(("hidden0", "hidden1", "output"))
        }
        np.savez(folder / "model.npz", **arrays)  # type: ignore[arg-type]
        return _imported(folder, folder / "model.npz", "--workload", str(base))
    mimdsim.run(base, "tiny", gpus=(), report=folder / "trained")
    _typed("export", base, "--weights", folder / "trained" / "weights.safetensors", "--out", folder / "model.nir")
    return _imported(folder, folder / "model.nir", "--workload", str(base))


def _as_file(workload: Workload, path: Path) -> Path:
    path.write_text(toml_text(workload.model_dump(mode="json", exclude_unset=True)), encoding="utf-8")
    assert load_workload(path) == workload
    return path


def _short(path: Path) -> Workload:
    return load_workload(path, {"training.max_training_steps": 2, "data.timesteps": 6, "data.train_samples": 32})


def _imported(folder: Path, model: Path, *more: object) -> Path:
    _typed("import", model, "--out", folder / "model", *more)
    return folder / "model" / "model.toml"


def _typed(*words: object) -> None:
    found = typed(*words)
    if found.result != "works":
        raise RuntimeError(f"{words}: {found}")


def _nir(kind: str) -> NirGraph:
    """A model of two layers as frameworks write it."""
    rng, dt = np.random.default_rng(0), 1e-4

    def node(kind: str, **arrays: Any) -> NirNode:
        return NirNode(
            kind=kind, arrays={name: np.asarray(each, np.float64) for name, each in arrays.items()}, metadata={}
        )

    def neurons(count: int, last: bool = False) -> NirNode:
        wide = np.ones(count)
        given = {"r": 10 * wide, "v_leak": 0 * wide, "v_threshold": wide, "v_reset": 0 * wide}
        if kind == "if":
            return node("IF", r=wide, v_threshold=wide, v_reset=0 * wide)
        if kind == "cuba_lif":
            return node("CubaLIF", tau_syn=3 * dt * wide, tau_mem=10 * dt * wide, w_in=3 * wide, **given)
        if kind == "read-out" and last:
            return node("LI", tau=10 * dt * wide, r=10 * wide, v_leak=0 * wide)
        return node("LIF", tau=10 * dt * wide, **given)

    whole: dict[str, NirNode | NirGraph] = {
        "input": node("Input", shape=[6]),
        "w0": node("Affine", weight=rng.normal(0.2, 1, (5, 6)), bias=np.zeros(5)),
        "n0": neurons(5),
        "w1": node("Linear", weight=rng.normal(0.2, 1, (3, 5))),
        "n1": neurons(3, last=True),
        "output": node("Output", shape=[3]),
    }
    edges = list(itertools.pairwise(whole))
    if kind == "recurrent":
        whole["w2"] = node("Linear", weight=rng.normal(0, 0.5, (5, 5)))
        edges += [("n0", "w2"), ("w2", "n0")]
    return NirGraph(nodes=whole, edges=tuple(edges))


def machines() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(tiled machines, GPUs)"""
    loaded = {name: load_machine(name) for name in list_machines()}
    tiled = tuple(name for name, one in loaded.items() if isinstance(one, MimdMachine))
    return tiled, tuple(name for name, one in loaded.items() if isinstance(one, GpuMachine))


def small_machine(name: str, folder: Path) -> Path:
    """The file of a machine with fewer tiles."""
    whole = load_machine(name)
    assert isinstance(whole, MimdMachine)
    small = load_machine(name, {"chip.tiles": min(TILES, whole.chip.tiles)})
    path = folder / f"{name}.toml"
    path.write_text(toml_text(small.model_dump(mode="json", exclude_unset=True)), encoding="utf-8")
    return path


def typed(*words: object) -> Result:
    """What a command says."""
    found = CliRunner().invoke(main, [str(word) for word in words])
    if found.exit_code == 0:
        return Result("works")
    failed = [line for line in found.output.splitlines() if line.startswith("FAIL")]
    if found.exit_code == 1 and failed and all("memory:" in line for line in failed):
        return Result("refused", failed[0])  # a check that finds a network too large for its machine
    said = " ".join(found.output.split())
    refused = found.exit_code == 2 and "Traceback" not in said and "a bug in mimdsim" not in said
    trace = "" if found.exception is None or refused else repr(found.exception)
    return Result("refused" if refused else "crash", f"{said[-300:]} {trace}".strip())


def called(function: Callable[..., Any], *given: Any, **named: Any) -> Result:
    """What a function of the API does."""
    try:
        function(*given, **named)
    except MimdsimError as refusal:
        return Result("refused", " ".join(str(refusal).split())[-300:])
    except Exception as failure:
        return Result("crash", repr(failure)[:300])
    return Result("works")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network on a machine, in a folder of its own."""

    folder: Path
    workload: Path
    machine: Path
    gpu: str

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def done(self, command: str, file: Path) -> None:
        """Do what a command needs first."""
        if not file.exists():
            COMMANDS[command](self)


def _run(case: Case) -> Result:
    return typed("run", case.workload, case.machine, "--gpu", case.gpu, "--out", case.run)


def _report(case: Case) -> Result:
    case.done("run", case.run)
    return typed("report", case.run / "profile.json", "--out", case.folder / "report")


def _explain(case: Case) -> Result:
    return typed("explain", case.workload, case.machine, "0", "--timesteps", "2", "--batch", "2")


def _compare(case: Case) -> Result:
    return typed("compare", case.workload, case.machine, case.gpu, "--out", case.folder / "compared")


def _sweep(case: Case) -> Result:
    words = ("--training-steps", 1, "--processes", 1, "--gpu", case.gpu, "--out", case.folder / "sweep")
    return typed("sweep", case.workload, case.machine, "--set", "tile.worker_contexts=2,4", *words)


def _sweep_network(case: Case) -> Result:
    words = ("--fill", 0.5, "--processes", 1, "--out", case.folder / "sweep2", "--save", case.folder / "study.toml")
    return typed("sweep", case.workload, case.machine, "--set", "network.surrogate_slope=5.0,10.0", *words)


def _study(case: Case) -> Result:
    case.done("sweep of the network", case.folder / "study.toml")
    return typed("study", case.folder / "study.toml", "--processes", 1, "--out", case.folder / "study")


def _place(case: Case) -> Result:
    file = case.folder / "mapping.toml"
    return typed("place", case.workload, case.machine, "--candidates", 4, "--processes", 1, "--out", file)


def _mapped(case: Case) -> Result:
    case.done("place", case.folder / "mapping.toml")
    if not (case.folder / "mapping.toml").exists():
        return Result("refused", "nothing was placed")
    words = (
        "--mapping",
        case.folder / "mapping.toml",
        "--fill",
        0.5,
        "--processes",
        1,
        "--out",
        case.folder / "mapped",
    )
    return typed("sweep", case.workload, case.machine, "--set", "tile.worker_contexts=2,4", *words)


def _check(case: Case) -> Result:
    return typed("check", case.workload, case.machine, "--timesteps", 2, "--batch", 2)


def _check_strict(case: Case) -> Result:
    return typed("check", case.workload, case.machine, "--timesteps", 2, "--batch", 2, "--strict")


def _export(case: Case) -> Result:
    case.done("run", case.run)
    weights = case.run / "weights.safetensors"
    return typed("export", case.workload, "--weights", weights, "--out", case.folder / "exported.nir")


def _import(case: Case) -> Result:
    case.done("export", case.folder / "exported.nir")
    if not (case.folder / "exported.nir").exists():
        return Result("refused", "nothing was exported")
    out = case.folder / "imported"
    found = typed("import", case.folder / "exported.nir", "--out", out, "--workload", case.workload)
    if found.result != "works":
        return found
    return typed("check", out / "exported.toml", case.machine, "--timesteps", 2, "--batch", 2)


def _api_run(case: Case) -> Result:
    def whole() -> None:
        made = mimdsim.run(case.workload, case.machine, gpus=case.gpu)
        made.retime(made.machine)
        made.what_if({"mapping.program": "best"})
        mimdsim.explain(made.compiled.program, case.machine, 0, activity=made.log.activity)

    return called(whole)


def _api_study(case: Case) -> Result:
    def whole() -> None:
        mimdsim.sweep(
            case.workload, case.machine, {"training.learning_rate": [0.1, 0.2]}, training_steps=1, processes=1
        )
        mimdsim.place(case.workload, case.machine, candidates=4, processes=1)
        mimdsim.check(case.workload, case.machine, timesteps=2, batch=2)

    return called(whole)


COMMANDS: dict[str, Callable[[Case], Result]] = {
    "run": _run,
    "report": _report,
    "explain": _explain,
    "compare": _compare,
    "sweep": _sweep,
    "sweep of the network": _sweep_network,
    "study": _study,
    "place": _place,
    "sweep --mapping": _mapped,
    "check": _check,
    "check --strict": _check_strict,
    "export": _export,
    "import": _import,
    "api run": _api_run,
    "api sweep, place, check": _api_study,
}


def pairwise(*factors: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Rows in which every two values of two factors meet: greedy, the same every time."""
    places = list(itertools.combinations(range(len(factors)), 2))
    missing = {(a, b, x, y) for a, b in places for x in factors[a] for y in factors[b]}
    turn = itertools.count()
    while missing:
        a, b, x, y = min(missing)
        row: list[str | None] = [None] * len(factors)
        row[a], row[b] = x, y
        for place, values in enumerate(factors):
            if row[place] is None:
                start = next(turn) % len(values)
                row[place] = max(
                    (*values[start:], *values[:start]), key=lambda value: _gains(missing, row, place, value)
                )
        done = [str(value) for value in row]
        missing -= {(a, b, done[a], done[b]) for a, b in places}
        yield tuple(done)


def _gains(missing: set[tuple[int, int, str, str]], row: list[str | None], place: int, value: str) -> int:
    """How many of the missing pairs a value at a place of the row brings."""
    known = [(at, given) for at, given in enumerate(row) if given is not None]
    pairs = ((at, place, given, value) if at < place else (place, at, value, given) for at, given in known)
    return sum(pair in missing for pair in pairs)


class Bench:
    """Cases in a folder, made when they are first needed."""

    def __init__(self, folder: Path):
        self.folder, self.subjects = folder, subjects()
        self._files: dict[str, Path] = {}
        self._machines: dict[str, Path] = {}

    def case(self, subject: str, machine: str, gpu: str) -> Case:
        if machine not in self._machines:
            self._machines[machine] = small_machine(machine, self.folder)
        if subject not in self._files:
            place = self.folder / f"subject{len(self._files)}"
            place.mkdir()
            self._files[subject] = written(self.subjects[subject], place)
        folder = self._files[subject].parent / f"on-{machine}"
        folder.mkdir(exist_ok=True)
        return Case(folder=folder, workload=self._files[subject], machine=self._machines[machine], gpu=gpu)

    def result(self, subject: str, machine: str, gpu: str, command: str) -> Result:
        return COMMANDS[command](self.case(subject, machine, gpu))


def page(rows: list[dict[str, str]]) -> str:
    """The table: a row for every subject, a column for every command, and the sentences."""
    sentences: dict[str, list[str]] = {}
    subjects_of = list(dict.fromkeys(row["subject"] for row in rows))
    commands = [name for name in COMMANDS if any(row["command"] == name for row in rows)]
    by_cell: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        by_cell.setdefault((row["subject"], row["command"]), []).append(row)
    lines = [f"| network | {' | '.join(commands)} |", f"|---|{'---|' * len(commands)}"]
    for subject in subjects_of:
        cells = []
        for command in commands:
            found = by_cell.get((subject, command), [])
            works = sum(row["result"] == "works" for row in found)
            notes = sorted({_general(row["sentence"]) for row in found if row["result"] != "works"})
            for note in notes:
                sentences.setdefault(note, []).append(subject)
            numbers = " ".join(f"[{1 + list(sentences).index(note)}]" for note in notes)
            whole = f"{works}/{len(found)} {numbers}" if notes else str(works)
            cells.append(whole if found else "")
        lines.append(f"| {subject} | {' | '.join(cells)} |")
    lines.append("")
    lines += [f"{number}. {sentence}" for number, sentence in enumerate(sentences, start=1)]
    return "\n".join(lines) + "\n"


def _general(sentence: str) -> str:
    """A sentence without the paths of temporary files."""
    words = (
        word if "/" not in word or not word.strip("'(:").startswith("/") else Path(word).name
        for word in sentence.split()
    )
    return " ".join(words)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def run_all(chosen: list[str], on: list[str], commands: list[str], kept: Path, *, once: bool) -> None:
    tiled, gpus = machines()
    with tempfile.TemporaryDirectory() as folder, kept.open("w", encoding="utf-8", newline="") as file:
        bench, out = Bench(Path(folder)), csv.DictWriter(file, COLUMNS, lineterminator="\n")
        out.writeheader()
        names = chosen or list(bench.subjects)
        cases = list(itertools.product(names, on or tiled))
        if once:
            cases = list(zip(names, itertools.cycle(on or tiled), strict=False))
        for number, (subject, machine) in enumerate(cases):
            gpu, begun = gpus[number % len(gpus)], time.monotonic()
            for command in commands or COMMANDS:
                found = bench.result(subject, machine, gpu, command)
                where = {"subject": subject, "machine": machine, "gpu": gpu, "command": command}
                said = found.sentence.replace(folder, "")
                out.writerow(where | {"result": found.result, "sentence": said})
                if found.result != "works":
                    print(subject, machine, command, found, flush=True)
            file.flush()
            print(f"{subject} on {machine}: {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)


def main_of_script() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", action="append", default=[])
    parser.add_argument("--machine", action="append", default=[])
    parser.add_argument("--command", action="append", default=[], choices=list(COMMANDS))
    parser.add_argument("--once", action="store_true", help="every network on one machine only, one after the other")
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    if given.page is None:
        run_all(given.subject, given.machine, given.command, given.kept, once=given.once)
        return
    text = given.page.read_text(encoding="utf-8")
    before = text.partition("| network |")[0]
    given.page.write_text(before + page(read(given.kept)), encoding="utf-8")


if __name__ == "__main__":
    main_of_script()
