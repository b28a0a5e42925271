"""Repeats, nested at most two deep, and the ways to traverse a program: by stretches, or turn by turn as it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, Union

from mimdsim.program.records import Superstep, Variable

Body: TypeAlias = tuple[Union["Superstep", "Repeat"], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Repeat:
    """`body` once per turn, from the first to the last, or from the last to the first when `reverse`.

    A turn is one timestep or, if the body holds repeats (all with equally many turns, none with repeats in it), a
    segment of timesteps; supersteps next to these repeats belong to its first timestep. Raises ValueError otherwise.
    """

    times: int
    body: Body
    reverse: bool = False

    def __post_init__(self) -> None:
        inner = [item for item in self.body if isinstance(item, Repeat)]
        if any(item.times != inner[0].times for item in inner):
            raise ValueError(f"repeats within one repeat differ in their turns: {[item.times for item in inner]}")
        if any(isinstance(part, Repeat) for item in inner for part in item.body):
            raise ValueError("a repeat within a repeat within a repeat: a program may have at most two levels")

    @property
    def segment(self) -> int:
        """Timesteps of a turn."""
        return next((item.times for item in self.body if isinstance(item, Repeat)), 1)

    @property
    def timesteps(self) -> int:
        """Timesteps of all turns."""
        return self.times * self.segment


@dataclass(frozen=True, kw_only=True, eq=False)
class Stretch:
    """Consecutive supersteps: how often they run in all, whether time runs backwards for them, and the repeats that
    enclose them, outermost first."""

    body: tuple[Superstep, ...]
    times: int = 1
    reverse: bool = False
    repeats: tuple[Repeat, ...] = ()

    @cached_property
    def timesteps(self) -> range:
        """The timesteps in which it runs, ascending: next to an inner repeat, the first one of every segment."""
        if not self.repeats:
            return range(1)
        every = self.repeats[0].segment if len(self.repeats) == 1 else 1
        return range(0, max(self.repeats[0].timesteps, 1), max(every, 1))


def stretches(body: Body, around: tuple[Repeat, ...] = ()) -> Iterator[Stretch]:
    """All supersteps in program order, in runs that no repeat begins or ends within."""
    times = 1
    for repeat in around:
        times *= repeat.times
    reverse = all(repeat.reverse for repeat in around) and bool(around)
    run: list[Superstep] = []
    for item in body:
        if not isinstance(item, Repeat):
            run.append(item)
            continue
        if run:
            yield Stretch(body=tuple(run), times=times, reverse=reverse, repeats=around)
            run = []
        yield from stretches(item.body, (*around, item))
    if run:
        yield Stretch(body=tuple(run), times=times, reverse=reverse, repeats=around)


def turns(body: Body, t: int, phases: Collection[str] | None) -> Iterator[tuple[Superstep, int]]:
    """The supersteps of `phases` (None: all) in the order in which they run, each with its timestep; `t` is the first.

    Repeats without supersteps of these phases are skipped.
    """
    for item in body:
        if not isinstance(item, Repeat):
            if phases is None or item.phase in phases:
                yield item, t
        elif any(phases is None or step.phase in phases for part in stretches(item.body) for step in part.body):
            order = range(item.times)
            for turn in reversed(order) if item.reverse else order:
                yield from turns(item.body, t + turn * item.segment, phases)


def changed(body: Body, change: Callable[[Superstep], Superstep]) -> Body:
    """The body with `change(superstep)` in place of every superstep."""
    return tuple(
        replace(item, body=changed(item.body, change)) if isinstance(item, Repeat) else change(item) for item in body
    )


def joined(body: Body, change: Callable[[list[Superstep]], list[Superstep]]) -> Body:
    """The body with `change(stretch)` in place of every run of supersteps that no repeat begins or ends within."""
    made: list[Superstep | Repeat] = []
    run: list[Superstep] = []
    for item in body:
        if isinstance(item, Repeat):
            made += [*change(run), replace(item, body=joined(item.body, change))]
            run = []
        else:
            run.append(item)
    return (*made, *change(run))


IN_REPEAT = "timestep in repeat"


def entries_taken(variable: Variable, shift: int, timesteps: range) -> tuple[int, int]:
    """(least, most) index on the first axis that "@t" and a shift name in these timesteps."""
    # all segments are alike; all other entries ascend with time
    some = timesteps[: variable.segment] if variable.entries == "segment" else (timesteps[0], timesteps[-1])
    entries = [variable.entry(t, shift) for t in some]
    return min(entries), max(entries)


def unfit_entries(variable: Variable, shift: int, stretch: Stretch, *, writes: bool) -> str:
    """What is wrong with taking "@t" and a shift of a variable in a stretch, or ''.

    Reading before the first timestep is legal and gives zero; no such entry exists to be written, nor does one before
    the first segment.
    """
    name, held = f"'{variable.name}'", variable.shape[0] if variable.shape else 0
    if not stretch.repeats and held != 1:
        return f"takes the timestep of {name} outside a repeat; it has {held}; put the superstep into a Repeat"
    least, most = entries_taken(variable, shift, stretch.timesteps)
    if most >= held:
        last = f"the last is {held - 1}" if held else "it has none"
        return f"takes entry {most} of {name} within its repeat, {last}; let it run less often or give {name} more"
    if least < 0 and (writes or variable.entries != "timesteps"):
        verb = "writes" if writes else "reads"
        return f"{verb} entry {least} of {name}, which has none before 0; take '@t' without that shift, or later"
    return ""
