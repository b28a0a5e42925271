"""What published solvers on several chips took to cross links, beside the prediction (docs/several-chips.md).

The error of a codelet is that of the same program, author and SDK on one chip; it is taken off the cycles of the same
codelet on several chips, global exchange and sync aside, and what the measurement has more is left for the links.
Usage: python benchmarks/links_of_solvers.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from mimdsim.machine import MimdMachine, load_machine
from mimdsim.validation.stencil.solver_steps import Case, carried_cases

FEWEST_ITERATIONS = 1000  # times of fewer are too coarse


@dataclass(frozen=True, kw_only=True)
class Left:
    """One program on several chips: cycles of its global exchange as predicted, and left by each one-chip program."""

    name: str
    predicted: float
    left: tuple[float, ...]


def left_for_links() -> Iterator[Left]:
    """One for every measurement on several chips that has one on one chip beside it."""
    machine = load_machine("mk2")
    assert isinstance(machine, MimdMachine)
    barrier = machine.sync.external_cycles
    cases = [case for case in carried_cases() if case.seconds and (case.iterations or 0) >= FEWEST_ITERATIONS]
    for case in (case for case in cases if case.chips > 1):
        timed = case.timed(machine)
        own = timed.cycles - timed.link_cycles - barrier
        alike = [(one, one.timed(machine)) for one in cases if _same_codelet(one, case)]
        errors = [on_one.cycles / _measured(one, machine) for one, on_one in alike]
        if errors:
            left = tuple(_measured(case, machine) - barrier - own / error for error in sorted(errors))
            yield Left(name=case.name, predicted=timed.link_cycles, left=left)


def _same_codelet(one: Case, case: Case) -> bool:
    return one.chips == 1 and all(
        getattr(one, name) == getattr(case, name) for name in ("problem", "order", "vertex", "author", "sdk")
    )


def _measured(case: Case, machine: MimdMachine) -> float:
    """Cycles of an iteration without its share of the host's request."""
    assert case.seconds is not None
    assert case.iterations is not None
    return (case.seconds - case.launch_seconds(machine.host.request_seconds)) * machine.chip.clock_hz


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    print(f"{'program':<58} {'predicted':>10}   left by the measurement, cycles")
    for found in left_for_links():
        left = " to ".join(f"{cycles:,.0f}" for cycles in sorted({min(found.left), max(found.left)}))
        print(f"{found.name:<58} {found.predicted:>10,.0f}   {left}")


if __name__ == "__main__":
    main()
