"""Questions that the authors of the sparse layer on tiles left open, answered with figures from the simulator.

    python benchmarks/open_questions.py [--data N-MNIST] [--page docs/open-questions.md] [--only 1 4] [--processes 2]

Spikes are recorded in one training step per network and capacity; every variant is compiled and timed with them. The
questions paraphrase questions.md, notes.md and TODO.md of github.com/jrfinkbeiner/graphcore_snn. The sentences were
written for the figures of the committed page: reread them when figures change.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from textwrap import fill

import questions_exchange as exchange
import questions_mapping as mapping
from questions_bench import Bench

from mimdsim.base.files import write_atomically

SECTIONS: dict[int, Callable[[Bench], list[str]]] = {
    1: exchange.bandwidth_or_latency,
    2: exchange.dense_or_ids,
    3: exchange.short_formats,
    4: exchange.copies_and_slices,
    5: exchange.vertices,
    6: mapping.where_to_select,
    7: mapping.state_gradient,
    8: mapping.replicas,
    9: mapping.tiles_and_contexts,
    10: mapping.memory,
    11: mapping.chips,
}
# sections that share points go to one process
GROUPS = ((2, 7), (1, 4, 5, 3), (6, 8, 9), (10, 11))
HEAD = """# Open questions, answered with figures

Made by `python benchmarks/open_questions.py --page docs/open-questions.md` (a few minutes). The authors of the sparse
layer (github.com/jrfinkbeiner/graphcore_snn: questions.md, notes.md, TODO.md) left these questions open: each attempt
took a compilation of 8 to 20 minutes and a profiler. The questions are in our words.

Unless stated otherwise: the published two- and four-layer N-MNIST networks (`nmnist-2`: 2312-1466-1466-10,
`nmnist-4`: 2312-734-734-732-732-10), batch 48, 100 timesteps, on a Bow with 1,472 tiles, tile-wise state gradient,
{data}.
S is the spike capacity of the hidden layers. Milliseconds are per training step; brackets give the interval, or the
change from the first variant in per cent and its interval.
Cycles are for one timestep, forward and backward together.

How certain is this? Every cost has a kind of source that widens the interval: published ±10 %, derived ±30 %, assumed
±50 %; sources are independent, and the residuals of published figures scale what they make together (intervals.md). Two
variants share nearly all their numbers, so their
difference is more certain than the times themselves: in the interval of a change, a cost that both variants share is
off by the same factor in both, and different costs are off independently. What a variant
changes is taken as exact (a machine with 8 bytes a cycle has 8). Where a change depends on a single number, the text
says which.
"""
RANDOM = "random input at the mean rate of N-MNIST (12.7 ids in 1 ms)"


@lru_cache(maxsize=1)
def bench_of(data: str) -> Bench:
    """One per process, so that its sections share recorded spikes and timed points."""
    return Bench(data)


def section(number: int, bench: Bench) -> str:
    """One section in Markdown."""
    return "\n".join([f"## {SECTIONS[number].__doc__}", *SECTIONS[number](bench), ""])


def sections(numbers: Iterable[int], data: str) -> dict[int, str]:
    return {number: section(number, bench_of(data)) for number in numbers}


def tidy(text: str) -> str:
    """Sentences in lines of at most 120 characters, one empty line between paragraphs."""
    lines = [line if line.startswith("|") else fill(line, 120, break_on_hyphens=False) for line in text.split("\n")]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines))


def page(data: str, only: Iterable[int], processes: int) -> str:
    """The page in Markdown, all sections or some by number."""
    wanted = set(only) or set(SECTIONS)
    groups = [[number for number in group if number in wanted] for group in GROUPS]
    made: dict[int, str] = {}
    with ProcessPoolExecutor(max_workers=processes) as pool:
        for some in pool.map(sections, groups, repeat(data)):
            made |= some
    head = HEAD.format(data="N-MNIST recordings" if data else RANDOM)
    return tidy("\n".join([head, *(made[number] for number in sorted(made))]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="", help="folder of N-MNIST recordings; without it random input")
    parser.add_argument("--page", type=Path, help="write the page there")
    parser.add_argument("--only", type=int, nargs="*", default=(), choices=SECTIONS, help="numbers of sections")
    parser.add_argument("--processes", type=int, default=2, help="processes on this machine (2)")
    given = parser.parse_args()
    text = page(given.data, given.only, given.processes)
    print(text)
    if given.page:
        write_atomically(given.page, text)


if __name__ == "__main__":
    main()
