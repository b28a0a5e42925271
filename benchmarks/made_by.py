"""Which command makes which figure and number of the docs, and whether it has to run again: docs/made_by.csv.

    python benchmarks/made_by.py                 which files are stale, and why
    python benchmarks/made_by.py --run FILE...   run their commands, keep the minutes and today's digests
    python benchmarks/made_by.py --keep FILE...  keep today's digests of files that were just made by hand

A row of the table: file; the command that makes it ({out}: where it writes); how it is `checked` (all: the command
runs in the slow tests and must write the same file; tables: the rows of tables that it prints must stand in the file; a
test: that one compares; digest: it takes too long or needs data, see below); what the figures are `made_of`; the digest
of that when the command last ran, empty where that is before this table began and a page says so; minutes that it took;
and `numbers`, the digest of the file's own tables where nothing compares all of these, so that none is changed by hand.

The digest is neither that of all sources, which every edit changes, nor of small programs that the tests pin, which do
not say what a page's networks take. It is of what enters the page's figures, computed anew: the time of a training step
of a workload on a machine with both ends of its interval (`step:nmnist-2@bow`, `step:random-4@bow*4` on four chips;
lists are half full), all GPU strategies (`gpu:nmnist-2@a100`), the losses of the first training steps
(`training:digits`), each to three digits; and the contents of files, of Python without comments and docstrings, of
notebooks without outputs, of TOML the values. So renaming a function leaves it, and a cost, a factor of intervals or a
machine number that changes a figure in its third digit changes it. What it cannot see is a figure that no `made_of`
stands for: name one where a page has a figure of another kind.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shlex
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from mimdsim.base.files import digest_of, write_atomically
from mimdsim.base.identity import meaning
from mimdsim.graph import training_graph
from mimdsim.pipeline import compile_workload, open_data, retime, time_on_gpus, train_workload
from mimdsim.pipeline.overrides import load_gpu, load_tiled
from mimdsim.report.formatting import significant
from mimdsim.workload import filled_activity, load_workload, network_of

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "made_by.csv"
FILL = 0.5
DIGITS = 16  # of a digest
OUT = "{out}"


@dataclass(frozen=True, kw_only=True)
class Made:
    """A row of the table."""

    file: str
    command: str
    checked: str
    made_of: str
    digest: str
    minutes: str
    numbers: str


def table() -> list[Made]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [Made(**row) for row in csv.DictReader(file)]


def write_table(rows: list[Made]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Made)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(asdict, rows))
    write_atomically(TABLE, text.getvalue())


@cache
def content(thing: str) -> Any:
    """What one entry of `made_of` is, comparable and small; raises ValueError for an unknown kind."""
    kind, _, rest = thing.rpartition(":")
    if not kind:
        return content_of_file(ROOT / rest)
    name, _, on = rest.partition("@")
    workload = load_workload(name)
    if kind == "training":
        short = {"training.max_training_steps": 3, "training.evaluate": "never"}
        workload = load_workload(name, short)
        log = train_workload(workload, compile_workload(workload, load_tiled("bow")), open_data(workload))
        return [significant(loss) for loss in log.loss]
    if kind == "gpu":
        network = network_of(workload)
        timed, _ = time_on_gpus(training_graph(network), (load_gpu(on),), filled_activity(network, FILL))
    elif kind == "step":
        machine, _, chips = on.partition("*")
        tiled = load_tiled(machine, {"links.chips": int(chips)} if chips else {})
        compiled = compile_workload(workload, tiled, must_fit=False)
        timed = (retime(compiled, tiled, filled_activity(compiled.network, FILL)),)
    else:
        raise ValueError(f"'{thing}': no such kind of content; known: step, gpu, training, or a file")
    ends = [(one.seconds_per_training_step, one.seconds_low, one.seconds_high) for one in timed]
    return [[significant(seconds) for seconds in three] for three in ends]


def content_of_file(path: Path) -> Any:
    """What a file says, without what changes no figure."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    return tomllib.loads(text) if path.suffix == ".toml" else meaning(text) if path.suffix == ".py" else text


def numbers(file: str) -> str:
    """The digest of the rows of tables of a page, or of a whole table; '' of pictures and notebooks."""
    if not file.endswith((".md", ".csv")):
        return ""
    text = (ROOT / file).read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|") or file.endswith(".csv")]
    return digest_of(rows)[:DIGITS]


def digest(made: Made) -> str:
    """Of what the figures of a file are made of today."""
    return digest_of([content(thing) for thing in made.made_of.split()])[:DIGITS]


def printed(made: Made, out: Path) -> str:
    """Run the command that makes a file, with `out` in the place of what it writes; what it prints."""
    command = [sys.executable if word == "python" else str(out) if word == OUT else word
               for word in shlex.split(made.command)]  # fmt: skip
    if command[0] == "mimdsim":
        command[:1] = [sys.executable, "-m", "mimdsim"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def difference(made: Made, out: Path) -> str:
    """What the command makes otherwise today than the file has; '' for nothing."""
    text, now = (ROOT / made.file).read_text(encoding="utf-8"), printed(made, out)
    if made.checked == "all":
        return "" if out.read_text(encoding="utf-8") == text else f"{out} differs from {made.file}"
    rows = [line for line in now.splitlines() if line.startswith("|")]
    missing = [line for line in rows if line not in text] if rows else ["no table is printed"]
    return "\n".join(missing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--keep", nargs="+", default=[], metavar="FILE")
    given = parser.parse_args()
    rows, commands = table(), set[str]()
    if unknown := {*given.run, *given.keep} - {made.file for made in rows}:
        raise SystemExit(f"not in {TABLE.name}: {', '.join(sorted(unknown))}")
    for number, made in enumerate(rows):
        if made.file in given.keep and made.numbers:
            rows[number] = made = replace(made, numbers=numbers(made.file))
        if made.numbers not in ("", numbers(made.file)) and made.file not in given.run:
            print(f"{made.file} has other numbers in its tables than were made: {made.command}, then --keep it")
        if made.checked != "digest":
            continue
        if made.file in given.run and made.command not in commands:  # several files may be of one command
            begun = time.perf_counter()
            print(printed(made, ROOT / made.file))
            made = replace(made, minutes=f"{(time.perf_counter() - begun) / 60:.2g}")
            commands.add(made.command)
        if made.file in given.run or made.file in given.keep:
            rows[number] = replace(made, digest=digest(made), numbers=numbers(made.file))
        elif made.digest != digest(made):
            print(f"{made.file} is stale: {made.command}  ({made.minutes} minutes)")
    if given.run or given.keep:
        write_table(rows)


if __name__ == "__main__":
    main()
