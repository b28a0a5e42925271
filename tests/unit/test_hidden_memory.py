"""A vertex has its fields, what it declares as scratch, and small constants: whatever else it keeps is found."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from by_hand import tiny
from own_codelets import COST, checked

from mimdsim.base.errors import MappingError
from mimdsim.compiler import measure_memory
from mimdsim.kernels import Kernel
from mimdsim.program import Codelet, Field, Program, TileFormula
from mimdsim.program.codelet_closure import closure_of, size_of
from mimdsim.program.records import MOST_CONSTANT_BYTES

LONG = 600
LIST, ARRAY, TABLE = [0.0] * LONG, np.zeros(LONG), dict.fromkeys(range(LONG), 0.0)
TUPLE, SET, BYTES, NESTED = (0.0,) * LONG, set(range(LONG)), bytes(4 * LONG), [[0.0] * 20 for _ in range(30)]
VALUES = {
    "list": LIST, "array": ARRAY, "dict": TABLE, "tuple": TUPLE, "set": SET, "bytes": BYTES, "nested": NESTED,
    "view": np.zeros(LONG)[:2], "frozenset": frozenset(SET), "objects": np.array(LIST, object),
}  # fmt: skip
Compute = Callable[..., None]


def in_closure(value: Any) -> Compute:
    def compute(y: Any, x: Any, *_: Any) -> None:
        y[:] = x + (0 if len(value) else 1)

    return compute


def in_default(value: Any) -> Compute:
    def compute(y: Any, x: Any, _start: int, _stop: int, held: Any = value) -> None:
        y[:] = x + (0 if len(held) else 1)

    return compute


def in_keyword_default(value: Any) -> Compute:
    def compute(y: Any, x: Any, *_: Any, held: Any = value) -> None:
        y[:] = x + (0 if len(held) else 1)

    return compute


def in_attribute(value: Any) -> Compute:
    def compute(y: Any, x: Any, *_: Any) -> None:
        y[:] = x

    compute.held = value  # type: ignore[attr-defined]
    return compute


def in_partial(value: Any) -> Compute:
    def compute(held: Any, y: Any, x: Any, *_: Any) -> None:
        y[:] = x + (0 if len(held) else 1)

    return functools.partial(compute, value)


def in_object(value: Any) -> Compute:
    class Own:
        def __init__(self) -> None:
            self.held = value

        def __call__(self, y: Any, x: Any, *_: Any) -> None:
            y[:] = x + (0 if len(self.held) else 1)

    return Own()


def in_class(value: Any) -> Compute:
    class Own:
        held = value

        def compute(self, y: Any, x: Any, *_: Any) -> None:
            y[:] = x + (0 if len(self.held) else 1)

    return Own().compute


def in_nested_function(value: Any) -> Compute:
    def lookup() -> int:
        return len(value)

    def helper() -> int:
        return lookup()

    def compute(y: Any, x: Any, *_: Any) -> None:
        y[:] = x + (0 if helper() else 1)

    return compute


HIDING = (in_closure, in_default, in_keyword_default, in_attribute, in_partial, in_object, in_class,
          in_nested_function)  # fmt: skip


@pytest.mark.parametrize("hide", HIDING, ids=lambda hide: hide.__name__)
def test_what_lies_around_a_function_is_on_no_tile(hide: Callable[[Any], Compute]) -> None:
    for name, value in VALUES.items():
        found = checked(hide(value))
        assert "that lie on no tile" in str(found), (hide.__name__, name)
    assert checked(hide((1.0, 2.0))).passed


@pytest.mark.parametrize("name", ["LIST", "ARRAY", "TABLE", "TUPLE", "SET", "BYTES", "NESTED"])
def test_globals_of_any_kind_are_on_no_tile(name: str) -> None:
    space: dict[str, Any] = {"np": np, "__name__": "own", name: globals()[name]}
    exec(f"def compute(y, x, *_):\n    y[:] = [x[k] + 0 * len({name}) for k in range(len(x))]", space)
    assert f"reads '{name}'" in str(checked(space["compute"]))


def test_parts_that_are_small_each_are_counted_together() -> None:
    parts = [[0.0] * 60 for _ in range(8)]
    a, b, c, d, e, f = parts[:6]

    def compute(y: Any, x: Any, *_: Any) -> None:
        y[:] = x + (0 if a and b and c and d and e and f else 1)

    assert sum(size_of(each) for each in (a, b, c, d, e, f)) > MOST_CONSTANT_BYTES
    assert "that lie on no tile, beside 5 more" in str(checked(compute))
    assert set(closure_of(compute)) == set("abcdef")


# ---- scratch while a vertex runs

ALLOCATIONS = (
    "np.zeros(N)", "np.empty(N)", "np.ones(N)", "np.full(N, 2.0)", "np.arange(N)", "[0.0] * N", "list(range(N))",
    "{k: 0.0 for k in range(N)}", "bytearray(4 * N)", "tuple(range(N))", "set(range(N))", "[[0.0] * N]",
    "np.zeros(N, np.int32)", "np.repeat(x, N)", "np.tile(x, N)", "np.outer(np.ones(N), x)", "np.zeros(4 * N, np.uint8)",
)  # fmt: skip
WAYS = (
    "held = {0}\n    y[:] = x",
    "y[:] = x\n    held = {0}",
    "held = {0}\n    held = None\n    y[:] = x",
    "for k in range(2):\n        held = {0}\n    y[:] = x",
    "y[:] = x\n    def inner():\n        held = {0}\n        return 1\n    inner()",
    "first = {0}\n    second = first\n    y[:] = x",
)


def allocating(way: str, what: str, elements: int) -> Compute:
    space: dict[str, Any] = {"np": np, "__name__": "own", "N": elements}
    exec(f"def compute(y, x, *_):\n    {way.format(what)}", space)
    made: Compute = space["compute"]
    return made


@pytest.mark.first(3)
@pytest.mark.parametrize("way", WAYS)
def test_scratch_beyond_what_is_declared_is_found(way: str) -> None:
    """17 kinds of memory in 6 ways: 102 mutants; each passes once it declares what it needs."""
    for what in ALLOCATIONS:
        said = str(checked(allocating(way, what, 100)))
        assert "vertex 0 of Own on tile 0 keeps" in said or "vertex 3 of Own on tile 3 keeps" in said, what
        assert "its codelet declares scratch_bytes=0" in said
    assert checked(allocating(way, "np.zeros(100)", 100), scratch_bytes=400).passed
    assert not checked(allocating(way, "np.zeros(101)", 100), scratch_bytes=400).passed
    assert checked(allocating(way, "np.zeros(64)", 64)).passed  # in the stack
    assert checked(allocating(way, "x[1:3]", 0), length=4096).passed  # a view


def test_what_an_expression_makes_is_the_hosts() -> None:
    def compute(y: Any, x: Any, *_: Any) -> None:
        y[:] = (x + 1) * 2 - x - 2

    assert checked(compute, length=4096).passed


def test_scratch_is_counted_in_the_memory_of_its_tile() -> None:
    def program(scratch: int, per_tile: int, cost: Any = COST) -> Program:
        k = Kernel("own", tiny(chip_tiles=4))
        x = k.input(k.variable("x", 64))
        own = Codelet(name="Own", fields=(Field(name="x", access="update", box=("a:b",)),), compute=lambda *_: None,
                      cost=cost, scratch_bytes=scratch)  # fmt: skip
        edges = np.arange(4 * per_tile + 1) * 64 // (4 * per_tile)
        columns = {"a": edges[:-1], "b": edges[1:]}
        k.vertices(own, tiles=np.arange(4 * per_tile) // per_tile, operands={"x": x}, columns=columns)
        k.vertices(replace(own, scratch_bytes=8), tiles=np.arange(4), operands={"x": x},
                   columns={"a": np.arange(4) * 16, "b": np.arange(4) * 16 + 16})  # fmt: skip
        return k.program()

    machine = tiny(chip_tiles=4)
    library = TileFormula(cycles=lambda *_: 9, kind="assumed", source="a test")
    for per_tile, cost, at_once in ((1, COST, 1), (4, COST, 4), (16, COST, 6), (16, library, 1)):
        with_, without = (measure_memory(program(size, per_tile, cost), machine) for size in (1000, 0))
        assert (with_.peak_by_tile - without.peak_by_tile == 1000 * at_once - 8).all()
    with pytest.raises(MappingError, match="scratch_bytes -1 must not be negative"):
        program(-1, 1)


# ---- what outlives a vertex


def test_what_is_kept_from_vertex_to_vertex_is_found() -> None:
    counts, generator, last = [0], np.random.default_rng(0), 0.0

    def counting(y: Any, x: Any, *_: Any) -> None:
        counts[0] += 1
        y[:] = x

    def drawing(y: Any, x: Any, *_: Any) -> None:
        generator.random()
        y[:] = x

    def rebinding(y: Any, x: Any, *_: Any) -> None:
        nonlocal last
        last = last + 1
        y[:] = x

    def on_itself(y: Any, x: Any, *_: Any) -> None:
        on_itself.calls += 1  # type: ignore[attr-defined]
        y[:] = x

    on_itself.calls = 0  # type: ignore[attr-defined]

    @functools.cache
    def cached(number: int) -> int:
        return number

    def remembering(y: Any, x: Any, start: int, _stop: int) -> None:
        y[:] = x + 0 * cached(start)

    for compute, name in ((counting, "counts"), (drawing, "generator"), (rebinding, "last"), (on_itself, "calls"),
                          (remembering, "cached")):  # fmt: skip
        assert f"Own changes '{name}', which is around its function" in str(checked(compute)), name


def test_what_runs_at_garbage_collections_is_not_the_codelets() -> None:
    """Libraries register functions that run whenever Python collects, also in the middle of a vertex."""
    space: dict[str, Any] = {"__name__": "other"}
    exec("def at_collection(phase, info):\n    held = [0.0] * 1000\n    return held", space)
    gc.callbacks.append(space["at_collection"])
    before = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        assert checked(allocating(WAYS[0], "np.zeros(100)", 100), scratch_bytes=400).passed
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(space["at_collection"])
