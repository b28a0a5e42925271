"""Would a test notice? Random one-place changes of the package's source, each run on the tests that reach it.

A mutant is one changed constant, operator, bound, condition, pair of arguments, min for max or dropped statement
(`source_mutants/mutants.py`). It is applied in a copy of the checkout, never in the checkout; the tests that reach its
block, as recorded once (`source_mutants/reached.py`), run until one fails: tables of pinned figures first, then the
quickest. Kernels (`numerics`) run as plain Python, for which other tests are recorded. Prints a table by package and
the survivors; those that were looked at and change nothing are named in `source_mutants/equivalent.txt` and counted
apart.
Usage: python benchmarks/source_mutations.py [--count 200] [--seed 1] [--package costs] [--processes 2]
       [--only mimdsim/compiler/merge.py:50] [--seconds 40] [--folder FOLDER] [--record [FILE ...]]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from source_mutants.mutants import Mutant, mutants_of, users
from source_mutants.running import Reached, Result, record, refreshed, results

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = ROOT / "benchmarks" / "source_mutants" / "equivalent.txt"
# linters and type checkers notice a mutant as a mistake of style, not as a wrong number
NO_TESTS_OF_VALUES = ("test_clean",)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--package", action="append", help="costs, timing, ...; more than once for several")
    parser.add_argument("--only", action="append", help="all mutants of a file, or of a line: PATH:LINE; repeatable")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40.0, help="most recorded seconds of tests run for a mutant")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "source-mutants")
    parser.add_argument("--record", nargs="*", help="record again which tests reach what: of these test files, or all")
    given = parser.parse_args()
    began = time.perf_counter()
    copies = [refreshed(ROOT, given.folder / f"copy-{number}") for number in range(given.processes)]
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    files = [name for name in files if Path(name).stem not in NO_TESTS_OF_VALUES]
    chosen = sample(given)
    for interpreted in (False, True):
        some = [mutant for mutant in chosen if (mutant.package == "numerics") == interpreted]
        folder = given.folder / ("interpreted" if interpreted else "compiled")
        if some and (given.record is not None or not any(folder.glob("test_*.json"))):
            record(copies, folder, given.record or files, interpreted)
    found: list[Result] = []
    for interpreted in (False, True):
        some = [mutant for mutant in chosen if (mutant.package == "numerics") == interpreted]
        if not some:
            continue
        reached = Reached(given.folder / ("interpreted" if interpreted else "compiled"))
        plans = [reached.tests(places(mutant), given.seconds, "" if mutant.block else mutant.path) for mutant in some]
        for result in results(some, plans, reached, copies, interpreted):
            found.append(result)
            print(f"{result.outcome:9} {result.seconds:5} s {shown(result.mutant)}  {result.told[:150]}", flush=True)
    print_table(found)
    print(f"{time.perf_counter() - began:.0f} s, seed {given.seed}")


def sample(given: argparse.Namespace) -> list[Mutant]:
    """The mutants asked for: a random place each, and one of the changes that it allows."""
    places: dict[tuple[str, int, str], list[Mutant]] = {}
    for path in sorted((ROOT / "mimdsim").rglob("*.py")):
        for mutant in mutants_of(path, ROOT):
            places.setdefault((mutant.path, mutant.start, mutant.operator), []).append(mutant)
    if given.only:
        asked = {*given.only}
        return [one for group in places.values() for one in group if asked & {one.path, f"{one.path}:{one.line}"}]
    groups = [group for group in places.values() if not given.package or group[0].package in given.package]
    draw = random.Random(given.seed)
    return [draw.choice(group) for group in draw.sample(groups, min(given.count, len(groups)))]


def places(mutant: Mutant) -> list[str]:
    """Where a test must come by to notice: the mutant's block; of what a module defines, all blocks of the functions
    that name it, or that name what is defined with it."""
    if mutant.block:
        return [f"{mutant.path}:{mutant.block}"]
    return sorted(users(mutant.names, ROOT))


def shown(mutant: Mutant) -> str:
    before, after = (" ".join(text.split()) for text in (mutant.before, mutant.after))
    return f"{mutant.path}:{mutant.line} {mutant.operator}: {before} -> {after}"


def print_table(found: list[Result]) -> None:
    """A line per package, then those no test noticed."""
    known = EQUIVALENT.read_text(encoding="utf-8") if EQUIVALENT.exists() else ""
    print("\n| package | mutants | equivalent | killed | time-out | survived | score |\n|---|---|---|---|---|---|---|")
    for package in [*sorted({result.mutant.package for result in found}), ""]:
        here = [result for result in found if package in ("", result.mutant.package)]
        same = [one for one in here if one.outcome in ("survived", "unreached") and shown(one.mutant) in known]
        kinds = Counter(result.outcome for result in here)
        noticed = kinds["killed"] + kinds["time-out"]
        score = noticed / max(len(here) - len(same), 1)
        left = len(here) - len(same) - noticed
        print(
            f"| {package or 'all'} | {len(here)} | {len(same)} | {kinds['killed']} | {kinds['time-out']} | {left} "
            f"| {score:.0%} |"
        )
    print("\nsurvived:")
    for result in found:
        if result.outcome in ("survived", "unreached") and shown(result.mutant) not in known:
            print(f"  {result.outcome} ({result.tests} tests) {shown(result.mutant)}")


if __name__ == "__main__":
    main()
