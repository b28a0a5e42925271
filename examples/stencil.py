"""The published stencil on Mk1 chips: checked rules, real values, and its phases next to the published ones.

A small blur is executed on the tiny machine and compared with numpy; then the image of 2200 x 1122 pixels is timed.
The program itself is mimdsim/validation/stencil/blur.py. Run it:
python examples/stencil.py [--chips 16] [--type half4] [--rows 1024 --columns 768]
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.execution import Executor
from mimdsim.machine import load_machine
from mimdsim.program import verify
from mimdsim.validation.stencil.blur import (
    PHASES,
    PUBLISHED_COLUMNS,
    PUBLISHED_ROWS,
    VARIANTS,
    make_program,
    published_phases,
)

REFERENCES = Path(__file__).resolve().parents[1] / "references" / "stencil_phases.csv"


def plain_blur(image: np.ndarray, times: int) -> np.ndarray:
    """The same blur of [rows, columns, 4] in float64, pixels outside the image zero."""
    for _ in range(times):
        framed = np.pad(image, ((1, 1), (1, 1), (0, 0)))
        weights = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
        rows, columns = image.shape[:2]
        image = sum(weights[i, j] * framed[i : i + rows, j : j + columns] for i in range(3) for j in range(3))
    return image


def small_blur(variant: str, rows: int = 23, columns: int = 37, chips: int = 1) -> tuple[bool, float]:
    """(whether the rules are kept, largest error) of two blurs on the tiny machine."""
    machine = load_machine("tiny", {"links.chips": chips})
    program = make_program(machine, variant, rows, columns, chips)
    executor = Executor(program)
    image = np.random.default_rng(0).random((rows, columns, 4))
    executor.write({"image": np.pad(image, ((1, 1), (1, 1), (0, 0))).astype(VARIANTS[variant][0])})
    executor.run()
    error = np.abs(executor.read("blurred")[1:-1, 1:-1] - plain_blur(image, 2)).max()
    return not verify(program, program.tiles), float(error)


def published(variant: str, chips: int) -> dict[str, float]:
    """Published cycles of one step by phase; empty when that run was not published."""
    with REFERENCES.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row["phase"]: float(row["cycles"]) for row in rows if (row["type"], row["chips"]) == (variant, str(chips))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chips", type=int, default=1)
    parser.add_argument("--type", choices=sorted(VARIANTS), default="half4")
    parser.add_argument("--rows", type=int, default=PUBLISHED_ROWS)
    parser.add_argument("--columns", type=int, default=PUBLISHED_COLUMNS)
    chosen = parser.parse_args()
    try:
        predicted = published_phases(chosen.type, chosen.chips, chosen.rows, chosen.columns)
        kept, error = small_blur(chosen.type)
    except MimdsimError as refusal:
        parser.error(f"{refusal} (--chips 1 to 256, --rows and --columns at least 1, and one of them at least --chips)")
    print("rules:", "kept" if kept else "broken")
    print(f"largest error: {error:.1e}")
    as_published = (chosen.rows, chosen.columns) == (PUBLISHED_ROWS, PUBLISHED_COLUMNS)
    figures = published(chosen.type, chosen.chips) if as_published else {}
    print(f"{'cycles a step':<16} {'predicted':>10} {'published':>10}")
    for phase in PHASES:
        known = figures.get(phase)
        ratio = f"{predicted[phase] / known:6.3f}" if known else ""
        print(f"{phase:<16} {predicted[phase]:>10,.0f} {'-' if known is None else format(known, ',.0f'):>10} {ratio}")
    iteration = 2 * predicted["sum"] / load_machine("mk1").chip.clock_hz
    print(f"an iteration, two steps: {1e6 * iteration:.2f} us; the wall times of the repository are of 100 iterations")


if __name__ == "__main__":
    main()
