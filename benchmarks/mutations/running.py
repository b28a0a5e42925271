"""One mutant judged and checked; many of them over processes that may die of what they run."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from mimdsim.base.errors import MimdsimError
from mutations.declarations import OPERATORS
from mutations.operators import Mutant, any_of
from mutations.oracle import judged, limited, refused, right_cycles
from mutations.subjects import WORKLOADS, subject, subject_names
from mutations.wrong_codelets import WRONG, wrong_program

ATTEMPTS = 40  # at a mutant of an operator: not every one applies to every subject
SECONDS = 240  # for one mutant
DECLARED = (
    "extent",
    "recorded extent",
    "declared extent",
    "one row",
    "delivery",
    "exchange tallies",
    "exchange taken away",
    "cost",
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a mutant. kind: 'equivalent', 'value', 'cycles' (told wrongly), 'claim' (what a kernel says its
    own codelet costs) or 'other' (another program that computes the same, and whose cycles are told as they are).
    found: without `--strict`, or only with it."""

    number: str
    group: str
    subject: str
    text: str
    kind: str
    why: str
    found: str
    located: bool
    said: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where random mutants come from: one of the `operators` after another, on any of the `subjects`."""

    seed: int
    operators: tuple[str, ...] = tuple(OPERATORS)
    subjects: tuple[str, ...] = field(default_factory=lambda: tuple(subject_names()))


def mutant_of(source: Source, number: int) -> tuple[str, str, Mutant] | None:
    """(operator, subject, mutant) of a number; None where the operator applies nowhere."""
    operator = source.operators[number % len(source.operators)]
    for attempt in range(ATTEMPTS):
        draw = np.random.default_rng([source.seed, number, attempt])
        name = any_of(draw, source.subjects)
        try:
            made = OPERATORS[operator](subject(name).program, draw)
        except (ValueError, MimdsimError):  # refused as it is made
            continue
        if made is not None:
            return operator, name, made
    return None


def result_of(source: Source, number: str) -> Result | None:
    """The result of a mutant: a number, or family/codelet/defect."""
    made = mutant_of(source, int(number)) if number.isdigit() else wrong_program(number)
    if made is None:
        return None
    group, name, mutant = made
    with limited(SECONDS):
        try:
            return _result(number, group, name, mutant)
        except TimeoutError as over:
            return Result(number=number, group=group, subject=name, text=mutant.text, kind="value", why=str(over),
                          found="", located=False, said="", seconds=SECONDS)  # fmt: skip


def _result(number: str, group: str, name: str, mutant: Mutant) -> Result:
    given = subject(name)
    began = time.perf_counter()
    if group == "exchange taken away":  # not wrong, only not planned yet: whoever times it must say so
        said = [words for words in [refused(name, mutant.program)] if words]
        kind, why, found = "cycles", "not planned", "plain" if said else ""
    else:
        kind, why = _kind(group, name, mutant)
        began = time.perf_counter()
        found, said = _found(given.check, mutant) if kind in ("value", "cycles", "claim") else ("", [])
    seconds = time.perf_counter() - began
    return Result(
        number=number, group=group, subject=name, text=mutant.text, kind=kind, why=why, found=found,
        located=located(mutant.places, said), said="; ".join(said)[:600], seconds=seconds,
    )  # fmt: skip


def _kind(group: str, name: str, mutant: Mutant) -> tuple[str, str]:
    """(kind, why) by the oracle."""
    verdict = judged(name, mutant.program)
    right = right_cycles(name)
    if verdict.values:
        return "value", verdict.values
    if verdict.cycles == right:
        return "equivalent", ""
    if name not in WORKLOADS and (group == "declared extent" or group.endswith("cost")):
        return "claim", _slower(verdict.cycles, right)
    declared = group in DECLARED or group.endswith("cost")
    return "cycles" if declared or verdict.cycles is None else "other", _slower(verdict.cycles, right)


def _slower(cycles: tuple[int, ...] | None, right: tuple[int, ...]) -> str:
    if cycles is None:
        return "cannot be timed"
    return f"{cycles[0]} cycles, {right[0]} before" if cycles[0] != right[0] else "cycles of a superstep's tiles"


def _found(check: Callable[[Any, bool], list[str]], mutant: Mutant) -> tuple[str, list[str]]:
    for strict in (False, True):
        try:
            said = check(mutant.program, strict)
        except TimeoutError:
            raise
        except Exception as failure:  # not refused in words, but not passed either
            said = [f"raw {type(failure).__name__}: {failure}"]
        if said:
            return ("strict" if strict else "plain"), said
    return "", []


def located(places: tuple[str, ...], said: list[str]) -> bool:
    """Whether a finding names one of the places, in quotes or as part of a box."""
    text = " ".join(said)
    return any(f"'{place}'" in text or re.search(rf"(?<![\w.]){re.escape(place)}\[", text) for place in places)


# ---- many


def numbers(count: int, *, codelets: bool) -> list[str]:
    """Random program mutants, then all wrong codelets."""
    return [str(number) for number in range(count)] + (sorted(WRONG) if codelets else [])


def results(source: Source, given: list[str], processes: int) -> Iterator[Result]:
    """Of all numbers, as they come; a process that dies of a mutant is replaced."""
    if processes == 1:
        yield from (found for number in given if (found := result_of(source, number)) is not None)
        return
    context, todo = multiprocessing.get_context("fork"), list(reversed(given))
    running: dict[Connection, tuple[Any, str]] = {}

    def begin() -> None:
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, [*running, here], source), daemon=True)
        process.start()
        there.close()
        running[here] = (process, todo.pop())
        here.send(running[here][1])

    while todo and len(running) < processes:
        begin()
    while running:
        for ready in wait(list(running)):
            assert isinstance(ready, Connection)
            process, number = running.pop(ready)
            try:
                found = ready.recv()
            except EOFError:
                process.join()
                text = f"died (exit status {process.exitcode})"
                yield Result(number=number, group="died", subject="", text=text, kind="value", why=text, found="",
                             located=False, said="", seconds=0.0)  # fmt: skip
                if todo:
                    begin()
                continue
            if todo:
                running[ready] = (process, todo.pop())
                ready.send(running[ready][1])
            else:
                process.terminate()
            if found is not None:
                yield found


def _work(there: Connection, others: list[Connection], source: Source) -> None:
    for other in others:  # or nobody would see that the first process has ended
        other.close()
    with suppress(EOFError):
        while True:
            there.send(result_of(source, there.recv()))
