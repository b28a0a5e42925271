"""What advice says and what carrying it out brings: the best pieces for each workload, run by their own commands.

    python benchmarks/advice.py [--workload digits ...] [--machine bow] [--pieces 3] [--training-steps 20]

shd-3 runs on random input about as dense as its recordings, which do not come with mimdsim.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any

import mimdsim
from mimdsim.pipeline.overrides import parse_changes

RANDOM = {"data.source": "random", "data.path": "", "data.train_samples": 480, "data.test_samples": 48}
INPUT: dict[str, dict[str, Any]] = {"shd-3": RANDOM | {"data.inputs": 700, "data.classes": 20, "data.activity": 0.02}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", nargs="+", default=["digits", "nmnist-2-random", "shd-3"])
    parser.add_argument("--machine", default="bow")
    parser.add_argument("--pieces", type=int, default=3)
    parser.add_argument("--training-steps", type=int, default=20)
    given = parser.parse_args()
    print(f"{'workload':<16} {'less time, as predicted':<26} {'obtained':>9}  inside  change")
    for name in given.workload:
        length = {"training.max_training_steps": given.training_steps, "training.evaluate": "never"}
        before = mimdsim.run(name, given.machine, changes=INPUT.get(name, {}) | length, gpus=())
        for piece in before.advice[: given.pieces]:
            words = shlex.split(piece.command)
            workload, machine = parse_changes(tuple(words[at + 1] for at, word in enumerate(words) if word == "--set"))
            after = mimdsim.run(name, given.machine, changes=workload | machine, gpus=())
            gain = 1 - after.tiled.seconds_per_training_step / before.tiled.seconds_per_training_step
            inside = "yes" if piece.gain_low <= gain <= piece.gain_high else "NO"
            predicted = f"{piece.gain:.1%} ({piece.gain_low:.1%} to {piece.gain_high:.1%})"
            print(f"{name:<16} {predicted:<26} {gain:>9.1%}  {inside:<6}  {piece.what}", flush=True)


if __name__ == "__main__":
    main()
