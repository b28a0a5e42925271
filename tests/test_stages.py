"""Repeats in stages: the same values as timestep by timestep, whatever reads what when, and calls for many turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mimdsim.functional import stages
from mimdsim.functional.calls import Call
from mimdsim.functional.stages import Part, staged

TURNS = 7


@dataclass(eq=False)
class Sum:
    """state <- state / 2 + read, for many turns."""

    arrays: dict[str, np.ndarray]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    at_once: bool = False
    turns: list[int] = field(default_factory=list)

    def before(self, t: int) -> None:
        pass

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        (given,), (name,) = read.values(), self.writes
        self.turns.append(len(given))
        for each, into in zip(given, made[name], strict=True):
            self.arrays[name][:] = self.arrays[name] / 2 + each
            into[:] = self.arrays[name]


def chain(*, back: bool) -> tuple[list[Part], dict[str, np.ndarray], list[Sum]]:
    """Two layers, each of a state and what it hands on; b reads what a handed on before. back: a reads b too."""
    names = ("x", "now", "a", "hand", "in", "b", "out")
    arrays = {name: np.ones(2) for name in names} | {"x": np.arange(TURNS * 2.0).reshape(TURNS, 2)}

    def part(reads: str, writes: str, work: Any, heavy: Sum | None = None) -> Part:
        call = Call(run=work, names=(writes, *reads.split()))
        return Part(call=call, reads=frozenset(reads.split()), writes=frozenset([writes]), heavy=heavy)

    def move(source: str, target: str) -> Part:
        return part(source, target, lambda _t, into, given: into.__setitem__(slice(None), given * 1.5))

    def state(name: str, read: str) -> tuple[Part, Sum]:
        def work(_t: int, into: np.ndarray, before: np.ndarray, given: np.ndarray) -> None:
            into[:] = before / 2 + given

        heavy = Sum(arrays, (read,), (name,))
        return part(f"{name} {read}", name, work, heavy), heavy

    (a, one), (b, other) = state("a", "now"), state("b", "in")
    taken = part(
        "x out" if back else "x",
        "now",
        lambda t, into, x, *out: into.__setitem__(slice(None), x[t] + (out[0] if out else 0)),
    )
    return [taken, move("hand", "in"), a, b, move("a", "hand"), move("b", "out")], arrays, [one, other]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("most", [1, 40, 1 << 20])
def test_stages_leave_what_timesteps_leave(reverse: bool, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "BLOCK_BYTES", most)
    order = list(range(TURNS))[:: -1 if reverse else 1]
    parts, expected, _ = chain(back=False)
    for t in order:
        for part in parts:
            part.call.on(expected)(t)
    parts, arrays, heavy = chain(back=False)
    made = staged(parts, arrays, frozenset({"x"}), lambda _first: order)
    assert made is not None
    made(0)
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)
    block = max(1, min(TURNS, most // 16))
    blocks = [min(block, TURNS - begin) for begin in range(0, TURNS, block)]
    assert [each.turns for each in heavy] == [blocks, blocks]


def test_a_call_that_needs_all_turns_at_once_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "BLOCK_BYTES", 1)
    parts, arrays, heavy = chain(back=False)
    heavy[1].at_once = True
    made = staged(parts, arrays, frozenset({"x"}), lambda _first: list(range(TURNS)))
    assert made is not None
    made(0)
    assert [each.turns for each in heavy] == [[TURNS], [TURNS]]


@pytest.mark.parametrize("changes", [{}, {"reads": frozenset({"b"})}, {"writes": frozenset({"out"})}])
def test_what_is_the_same_in_every_turn_runs_once_a_block(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where it reads what the repeat writes, or another call writes the same."""
    monkeypatch.setattr(stages, "BLOCK_BYTES", 40)
    parts, arrays, _ = chain(back=False)
    arrays |= {"c": np.ones(2), "d": np.ones(2)}
    turns: list[int] = []
    own = Call(run=lambda t, *_: turns.append(t), names=("d", "c"))
    given: dict[str, Any] = {"reads": frozenset({"c"}), "writes": frozenset({"d"}), "fixed": True} | changes
    parts.insert(0, Part(call=own, **given))
    made = staged(parts, arrays, frozenset({"x"}), lambda _first: list(range(TURNS)))
    assert made is not None
    made(0)
    assert turns == (list(range(TURNS)) if changes else list(range(0, TURNS, 2)))


def test_calls_that_need_each_other_stay_together() -> None:
    """a reads what b made a timestep ago, and b what a did: nothing is left for many turns."""
    parts, arrays, _ = chain(back=True)
    assert staged(parts, arrays, frozenset({"x"}), lambda _first: list(range(TURNS))) is None


def test_nothing_heavy_needs_no_stages() -> None:
    parts, arrays, _ = chain(back=False)
    for part in parts:
        part.heavy = None
    assert staged(parts, arrays, frozenset(), lambda _first: [0]) is None
