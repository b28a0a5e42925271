"""How good is the checker? Random wrong programs and wrong codelets, an oracle of its own, and what `check` says.

At least 500 random mutations of compiled training steps and of hand-written kernels (`mutations/operators.py`,
`declarations.py`) and some 200 wrong codelets (`mutations/wrong_codelets.py`). What a mutation changes is decided by
running it on tiles with memories of their own, on other values than the checker's (`mutations/oracle.py`). A mutation
that changes neither a value nor a cycle is equivalent and counted apart; so is one that is another sound program, whose
other cycles are told as they are. Costs of a training step's codelets count as found where they are named as other than
the compiled program's; what a kernel says its own codelets cost (claims) has no second source, and is counted apart:
only what is below the bytes it moves can be found. Ends with status 1 unless all mutations that change values are
found, 95 % of those that have cycles told wrongly, and 95 % of those found are told of the superstep that was mutated.
Usage: python benchmarks/check_mutations.py [--count 640] [--seed 1] [--processes 2] [--only NUMBER]
                                            [--operators "counter dropped,..."] [--subjects "best,two chips,..."]
With operators or subjects given, only programs are mutated.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from mutations.declarations import OPERATORS
from mutations.running import Result, Source, numbers, results
from mutations.subjects import subject_names

BOUNDS = {"value": 1.0, "cycles": 0.95, "located": 0.95}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=640, help="random mutations of programs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", help="one mutant by its number or family/codelet/defect, told in full")
    parser.add_argument("--operators", default="", help=f"some of {', '.join(OPERATORS)}")
    parser.add_argument("--subjects", default="", help=f"some of {', '.join(subject_names())}")
    given = parser.parse_args()
    began = time.perf_counter()
    source = Source(
        seed=given.seed,
        operators=_some(parser, given.operators, list(OPERATORS)),
        subjects=_some(parser, given.subjects, subject_names()),
    )
    if given.only is not None:
        for result in results(source, [given.only], 1):
            print("\n".join(f"{name}: {value}" for name, value in vars(result).items()))
        return
    found = []
    chosen = numbers(given.count, codelets=not given.operators and not given.subjects)
    for result in results(source, chosen, given.processes):
        found.append(result)
        if result.kind in ("value", "cycles") and not result.found:
            print(f"{len(found)}: not found [{result.group}] --only '{result.number}'", file=sys.stderr, flush=True)
    found.sort(key=_order)
    print_table(found)
    print_survivors(found, given.seed)
    passed = print_scores(found)
    print(f"{time.perf_counter() - began:.0f} s, {given.processes} processes on {processor()}")
    sys.exit(0 if passed else 1)


def _some(parser: argparse.ArgumentParser, text: str, known: list[str]) -> tuple[str, ...]:
    """The names in a text with commas; all of them for none."""
    names = [name.strip() for name in text.split(",")] if text else known
    if strange := [name for name in names if name not in known]:
        parser.error(f"no {strange}; there are {', '.join(known)}")
    return tuple(names)


def print_table(found: list[Result]) -> None:
    """A line per operator and per family of codelets."""
    print("| changed | mutants | equivalent | other | values found | without strict | cycles | claims | located | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for group in [*dict.fromkeys(result.group for result in found), ""]:
        here = [result for result in found if group in ("", result.group)]
        kinds = Counter(result.kind for result in here)
        hits = Counter(result.kind for result in here if result.found)
        plain = sum(result.found == "plain" for result in here if result.kind == "value")
        told = [result for result in here if result.kind in ("value", "cycles") and result.found]
        seconds = sum(result.seconds for result in here) / max(len(here), 1)
        print(
            f"| {group or 'all'} | {len(here)} | {kinds['equivalent']} | {kinds['other']} "
            f"| {hits['value']}/{kinds['value']} | {plain} | {hits['cycles']}/{kinds['cycles']} "
            f"| {hits['claim']}/{kinds['claim']} | {sum(result.located for result in told)}/{len(told)} "
            f"| {seconds:.2f} |"
        )


def _order(result: Result) -> tuple[int, str]:
    """Mutants by number, then codelets by name."""
    return (int(result.number), "") if result.number.isdigit() else (sys.maxsize, result.number)


def print_survivors(found: list[Result], seed: int) -> None:
    """What was not found, and what was found but told elsewhere; each with how to see it again."""
    for title, wanted in (
        ("Survivors", lambda result: result.kind in ("value", "cycles") and not result.found),
        ("Found, but told of another place", lambda r: r.kind in ("value", "cycles") and r.found and not r.located),
        ("Raw errors", lambda result: result.said.startswith("raw ")),
    ):
        here = [result for result in found if wanted(result)]
        print(f"\n{title}: {len(here)}")
        for result in here:
            print(
                f"- [{result.group}] {result.subject}: {result.text}: {result.why} "
                f"(--seed {seed} --only '{result.number}')"
            )
            if result.said:
                print(f"    said: {result.said[:300]}")


def print_scores(found: list[Result]) -> bool:
    """The scores beside their bounds; whether all hold."""
    print()
    passed = True
    told = [result for result in found if result.kind in ("value", "cycles") and result.found]
    scores = {"located": (sum(result.located for result in told), len(told))}
    for kind in ("value", "cycles"):
        here = [result for result in found if result.kind == kind]
        scores[kind] = (sum(bool(result.found) for result in here), len(here))
    for kind, bound in BOUNDS.items():
        hits, total = scores[kind]
        holds = hits >= bound * total
        passed &= holds
        print(f"{kind}: {hits} of {total} ({hits / max(total, 1):.1%}, bound {bound:.0%}){'' if holds else ': MISSED'}")
    return passed


def processor() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
