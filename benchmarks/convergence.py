"""Does sparse training converge? Accuracy by epoch of networks trained as compiled programs, over several seeds.

Sparse with two thresholds at 10 % and 2 % capacity, with spikes dropped by id or at random, with the second threshold
on the output layer too, and dense: lists that hold every neuron, which give the gradients of dense spikes. Each run
adds its epochs to docs/convergence.csv; the figure and the table of docs/convergence.md are drawn from that file.

Rates, widths and thresholds were taken from other work and from a validation part of the training samples, never from
test accuracies; all seeds that were run are in the file. Runs already in the file are skipped.
Usage: python benchmarks/convergence.py [--only nmnist ...] [--seeds N] [--nmnist FOLDER] [--braille FILE] [--draw]
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.files import write_atomically
from mimdsim.execution import TrainingLog
from mimdsim.graph import SpikingNetwork
from mimdsim.pipeline import train_workload
from mimdsim.validation.claims import values_program
from mimdsim.workload import load_workload, open_dataset

DOCS = Path(__file__).resolve().parents[1] / "docs"
TABLE = DOCS / "convergence.csv"
MARKS = ("<!-- table -->", "<!-- end of table -->")
COLUMNS = (
    "data", "variant", "seed", "epoch", "loss", "test_accuracy", "test_samples",
    "hidden_spike_share", "hidden_listed_share", "dropped_share",
)  # fmt: skip
EVERYTHING = {"network.second_threshold": -100.0, "network.activity": 1.0}
ON_OUTPUT = {"network.output_second_threshold": 0.9}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A workload, the changes that all its runs have, and what tells its variants apart."""

    workload: str
    title: str
    needed: float  # test accuracy that sparse training at 10 % is meant to reach in the end
    common: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)


TEN, TWO = {"network.activity": 0.1}, {"network.activity": 0.02}
THRESHOLDS = {
    "10 %": TEN,
    "dense": EVERYTHING,
    "10 %, second threshold on the output": TEN | ON_OUTPUT,
}
MOVED = {"training.second_threshold_output": True, "training.second_threshold_start": -100.0}
ON_RECORDINGS = {
    **THRESHOLDS,
    "10 %, moved to the output by halves": TEN | ON_OUTPUT | MOVED | {"training.second_threshold_share": 0.5},
    "10 %, moved to the output slowly": TEN | ON_OUTPUT | MOVED | {"training.second_threshold_share": 0.01},
    "2 %": TWO,
    "2 %, dropped at random": TWO | {"network.truncation": "random"},
}
SUBJECTS = {
    "digits": Subject(
        workload="digits",
        title="digits, 512-256-128-10",
        needed=0.95,
        common={"training.epochs": 24, "training.schedule": "cosine", "network.reset_gradient": "mask"},
        variants={
            "10 %": {"network.capacity": (24, 12, 10)},
            "dense": {"network.capacity": (256, 128, 10), "network.second_threshold": -100.0},
        },
    ),
    "nmnist": Subject(
        workload="nmnist-256", title="N-MNIST recordings, 2312-256-10", needed=0.92, variants=ON_RECORDINGS
    ),
    "nmnist-not-shifted": Subject(  # the recipe until training samples could be shifted
        workload="nmnist-256",
        title="N-MNIST recordings, not shifted",
        needed=0.9,
        common={"data.shift_pixels": 0, "training.schedule": "cosine"},
        variants=ON_RECORDINGS,
    ),
    "randman-1d": Subject(workload="randman-1d", title="Randman, one dimension", needed=0.99, variants=THRESHOLDS),
    "randman-2d": Subject(workload="randman-2d", title="Randman, two dimensions", needed=0.97, variants=THRESHOLDS),
    "braille": Subject(
        workload="braille",
        title="Braille letters, recurrent",
        needed=0.9,
        variants={"10 %": TEN, "2 %": TWO, "dense": EVERYTHING},
    ),
}


def shares(network: SpikingNetwork, log: TrainingLog) -> tuple[float, float, float]:
    """Of the first hidden layer in the last training step: share emitted, share listed, share of spikes dropped."""
    layer = network.layers[0]
    counts = log.activity.counts[layer.name]
    spikes = int(counts[..., 0].sum())
    dropped = log.activity.dropped.get(layer.name, 0)
    fired = spikes + dropped
    return (
        float(counts[..., 0].mean() / layer.neurons),
        float(counts[..., 1].mean() / layer.neurons),
        dropped / fired if fired else 0.0,
    )


def run_one(name: str, variant: str, seed: int, paths: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of one training run, one an epoch."""
    subject = SUBJECTS[name]
    path = {"data.path": paths[name]} if name in paths else {}
    workload = load_workload(subject.workload, {**subject.common, **path, **subject.variants[variant], "seed": seed})
    compiled = values_program(workload)
    log = train_workload(workload, compiled, open_dataset(workload.data, workload.seed))
    losses = np.array(log.loss).reshape(workload.training.epochs, -1).mean(axis=1)
    fired, listed, dropped = shares(compiled.network, log)
    rows = []
    for epoch, (loss, accuracy) in enumerate(zip(losses, log.test_accuracy_by_epoch, strict=True), start=1):
        rows.append(
            {
                "data": name, "variant": variant, "seed": seed, "epoch": epoch, "loss": f"{loss:.4f}",
                "test_accuracy": f"{accuracy:.4f}", "test_samples": log.test_samples,
                "hidden_spike_share": f"{fired:.4f}", "hidden_listed_share": f"{listed:.4f}",
                "dropped_share": f"{dropped:.4f}",
            }
        )  # fmt: skip
    return rows


def read_rows() -> list[dict[str, Any]]:
    """What has been run so far."""
    if not TABLE.is_file():
        return []
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(rows: list[dict[str, Any]]) -> None:
    """All rows in a fixed order."""
    order = {
        (name, variant): (a, b)
        for a, (name, of) in enumerate(SUBJECTS.items())
        for b, variant in enumerate(of.variants)
    }
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(
        sorted(rows, key=lambda row: (*order[row["data"], row["variant"]], int(row["seed"]), int(row["epoch"])))
    )
    write_atomically(TABLE, text.getvalue())


def wanted_runs(only: list[str], variants: list[str], seeds: int, paths: dict[str, str]) -> Iterator[Any]:
    """(data, variant, seed) of what is asked for and not in the file; recordings that are not there are left out."""
    done = {(row["data"], row["variant"], int(row["seed"])) for row in read_rows()}
    for seed in range(1, seeds + 1):
        for name, subject in SUBJECTS.items():
            if (only and name not in only) or not Path(paths.get(name, ".")).exists():
                continue
            for variant in subject.variants:
                if (not variants or variant in variants) and (name, variant, seed) not in done:
                    yield name, variant, seed


def by_variant(rows: list[dict[str, Any]], name: str, variant: str) -> list[list[dict[str, Any]]]:
    """The runs of a variant, one list of epochs each."""
    runs: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if (row["data"], row["variant"]) == (name, variant):
            runs.setdefault(int(row["seed"]), []).append(row)
    return [runs[seed] for seed in sorted(runs)]


def table_lines(rows: list[dict[str, Any]]) -> list[str]:
    """The table of the page: accuracies in percent, the mean over seeds and in brackets the worst and the best one."""
    lines = [
        "| data | variant | seeds | epochs | after 10 epochs | in the end | emitted | listed | dropped |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, subject in SUBJECTS.items():
        for variant in subject.variants:
            runs = by_variant(rows, name, variant)
            if not runs:
                continue
            tenth, last = (
                [100 * float(run[min(at, len(run) - 1)]["test_accuracy"]) for run in runs] for at in (9, 999)
            )
            shares = [
                f"{100 * np.mean([float(run[-1][column]) for run in runs]):.1f} %"
                for column in ("hidden_spike_share", "hidden_listed_share", "dropped_share")
            ]
            accuracies = [f"{np.mean(some):.1f} ({min(some):.1f} to {max(some):.1f})" for some in (tenth, last)]
            cells = [subject.title, variant, str(len(runs)), str(len(runs[0])), *accuracies, *shares]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def draw(rows: list[dict[str, Any]]) -> None:
    """docs/convergence.png, and the table between the marks of docs/convergence.md."""
    from benchmark_figures import draw_convergence

    from mimdsim.report.style import picture

    curves: dict[str, dict[str, list[list[float]]]] = {}
    for name, subject in SUBJECTS.items():
        for variant in subject.variants:
            runs = by_variant(rows, name, variant)
            if runs:
                accuracies = [[float(row["test_accuracy"]) for row in run] for run in runs]
                curves.setdefault(subject.title, {})[variant] = accuracies
    write_atomically(DOCS / "convergence.png", picture(draw_convergence(curves)))
    page = (DOCS / "convergence.md").read_text(encoding="utf-8")
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    table = "\n".join(table_lines(rows))
    write_atomically(DOCS / "convergence.md", f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(SUBJECTS))
    parser.add_argument("--variants", nargs="*", default=[], help="e.g. '10 %%' dense")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nmnist", default="data/nmnist")
    parser.add_argument("--braille", default="data/braille.npz")
    parser.add_argument("--draw", action="store_true", help="no runs: draw the page from what is there")
    given = parser.parse_args()
    paths = {"nmnist": given.nmnist, "nmnist-not-shifted": given.nmnist, "braille": given.braille}
    if not given.draw:
        for name, variant, seed in wanted_runs(given.only, given.variants, given.seeds, paths):
            rows = run_one(name, variant, seed, paths)
            curve = " ".join(row["test_accuracy"] for row in rows[:: max(1, len(rows) // 6)])
            print(f"{name}, {variant}, seed {seed}: {curve} ... {rows[-1]['test_accuracy']}", flush=True)
            write_rows([*read_rows(), *rows])  # other runs may have added theirs meanwhile
    draw(read_rows())


if __name__ == "__main__":
    main()
