"""What each change from one mapping to another saved, made one after the other, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mimdsim.search.evaluate import Evaluator
from mimdsim.search.objective import TimedMapping
from mimdsim.workload.description.mapping import MappingOptions, Split

Spans = Iterable[tuple[str, int]]


@dataclass(frozen=True, kw_only=True)
class Saving:
    """A change, the cycles that it saved after those before it (negative: it cost some), the bytes that it saved on the
    fullest tile, and the superstep that got shorter by most (its cycles before and after; 0: no longer there)."""

    change: str
    cycles: int
    bytes: int
    superstep: str
    before: int
    after: int


def savings(evaluate: Evaluator, first: TimedMapping, last: TimedMapping) -> tuple[Saving, ...]:
    """One for each change that makes a difference; changes that cannot be placed on their own go with the next."""
    steps = list(changes(first.options, last.options, [name for name, *_ in last.shares]))
    timed = evaluate.timings([options for _, options in steps[:-1]])
    found, before, named = [], first, list[str]()
    for (change, _), after in zip(steps, [*timed, last] if steps else [], strict=True):
        named.append(change)
        if after is None:
            continue
        superstep, one, two = most_shortened(before.spans, after.spans)
        saved = before.figures.cycles - after.figures.cycles
        less = before.figures.peak_bytes - after.figures.peak_bytes
        if saved or less:
            found.append(
                Saving(change=", ".join(named), cycles=saved, bytes=less, superstep=superstep, before=one, after=two)
            )
        before, named = after, []
    return tuple(found)


def changes(first: MappingOptions, last: MappingOptions, layers: list[str]) -> Iterator[tuple[str, MappingOptions]]:
    """(what is changed, the options after it and those before it): rules of the program, then options, then splits."""
    now = first
    for rule in sorted(last.rules - first.rules):
        now = now.model_copy(update={"program": tuple(sorted((*now.rules, rule)))})
        yield f'program rule "{rule}"', now
    now = now.model_copy(update={"program": last.program})
    for key in type(first).model_fields:
        if key not in ("split", "program") and getattr(first, key) != getattr(last, key):
            yield f"{key} = {getattr(last, key)}", (now := now.model_copy(update={key: getattr(last, key)}))
    for field in Split.model_fields:  # in the order in which a grid is cut
        split = {name: now.split.get(name, Split()) for name in layers}
        wanted = {name: getattr(last.split.get(name, Split()), field) for name in layers}
        if any(getattr(split[name], field) != wanted[name] for name in layers):
            split = {name: one.model_copy(update={field: wanted[name]}) for name, one in split.items()}
            now = now.model_copy(update={"split": split})
            yield f"{field} {', '.join(f'{name} {each}' for name, each in wanted.items())}", now


def most_shortened(before: Spans, after: Spans) -> tuple[str, int, int]:
    """The superstep that got shorter by most, with its cycles before and after (0: it is gone); those of one name are
    added up."""
    one, two = Counter[str](), Counter[str]()
    for spans, found in ((before, one), (after, two)):
        for name, cycles in spans:
            found[name] += cycles
    name = max(one, key=lambda each: one[each] - two[each], default="")
    return name, one[name], two[name]
