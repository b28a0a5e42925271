"""Library vertices in programs by hand: values against numpy, the rules kept, cycles as the vendor's formulas say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from by_hand import compute_cycles, outcome, timed, tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.costs.library.dense import amp_1x1_cycles
from mimdsim.kernels import Kernel, KernelError, reductions
from mimdsim.kernels.elementwise import BINARY, TRUTHS, UNARY
from mimdsim.machine import load_machine

TINY = tiny()


def numbers(*shape: int, dtype: str = "float32", seed: int = 3) -> np.ndarray:
    random = np.random.default_rng(seed)
    found = random.uniform(0.5, 3, shape) if np.dtype(dtype).kind == "f" else random.integers(1, 9, shape)
    return found.astype(dtype)


def declare(k: Kernel, name: str, shape: tuple[int, ...], spread: int, tiles: int, dtype: str = "float32") -> Any:
    return k.variable(name, shape, dtype, spread=spread, tiles=np.arange(tiles))


shapes = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)
some_tiles = st.integers(1, 16)


# ---- values, wherever variables lie


@settings(max_examples=25, deadline=None)
@given(shape=shapes, lies=st.tuples(st.integers(0, 2), st.integers(0, 2)), tiles=st.tuples(some_tiles, some_tiles))
def test_what_works_element_by_element_is_right_wherever_it_lies(
    shape: tuple[int, ...], lies: tuple[int, int], tiles: tuple[int, int]
) -> None:
    k = Kernel("elements", TINY)
    here, there = (min(axis, len(shape) - 1) for axis in lies)
    x = k.input(declare(k, "x", shape, here, tiles[0]))
    y = k.output(declare(k, "y", shape, there, tiles[1]))
    half = k.output(declare(k, "half", shape, there, tiles[1], "float16"))
    z = k.output(declare(k, "z", shape, here, tiles[1]))
    k.copy(x, to=y)
    k.cast(x, to=half)
    k.fill(z, 0.5)
    k.elementwise("add", z, y, out=z)
    k.elementwise("multiply", z, x, out=z)
    values = numbers(*shape)
    found = outcome(k.program(), {"x": values})
    np.testing.assert_array_equal(found["y"], values)
    np.testing.assert_array_equal(found["half"], values.astype(np.float16))
    np.testing.assert_array_equal(found["z"], (np.float32(0.5) + values) * values)


@pytest.mark.parametrize("op", sorted(BINARY))
@pytest.mark.parametrize("form", ["two variables", "a number", "in place"])
def test_every_binary_operation_computes_what_numpy_does(op: str, form: str) -> None:
    dtype = "bool" if op.startswith("logical") else "int32" if op.startswith(("bit", "shift")) else "float32"
    if form == "in place" and op in TRUTHS and dtype != "bool":
        return  # leaves another format than it reads
    k = Kernel("binary", TINY)
    whole = {name: numbers(7, 5, dtype="int32", seed=seed) for seed, name in enumerate(("one", "other"))}
    values = {name: each.astype(dtype) for name, each in whole.items()}
    one, other = (k.input(k.variable(name, (7, 5), dtype)) for name in values)
    out = k.output(one if form == "in place" else k.variable("out", (7, 5), "bool" if op in TRUTHS else dtype))
    second = values["other"] if form != "a number" else values["other"][0, 0]
    k.elementwise(op, one, other if form != "a number" else second.item(), out=out)
    (found,) = outcome(k.program(), values).values()
    np.testing.assert_allclose(found, BINARY[op](values["one"], second), rtol=1e-6)


@pytest.mark.parametrize("op", sorted(UNARY))
def test_every_unary_operation_computes_what_numpy_does(op: str) -> None:
    dtype = {"logical_not": "bool", "bitwise_not": "int32"}.get(op, "float32")
    k = Kernel("unary", TINY)
    x = k.input(k.variable("x", (6, 7), dtype))
    out = k.output(k.variable("out", (6, 7), "bool" if op in TRUTHS else dtype))
    k.elementwise(op, x, out=out)
    values = numbers(6, 7).astype(dtype) / (4 if op == "asin" else 1)
    values = values.astype(dtype)
    (found,) = outcome(k.program(), {"x": values}).values()
    np.testing.assert_allclose(found, UNARY[op](values), rtol=1e-6)


def test_whole_numbers_divide_towards_zero() -> None:
    k = Kernel("divide", TINY)
    one, other = (k.input(k.variable(name, (4,), "int32")) for name in ("one", "other"))
    k.elementwise("divide", one, other, out=k.output(k.variable("quotient", (4,), "int32")))
    k.elementwise("remainder", one, other, out=k.output(k.variable("rest", (4,), "int32")))
    found = outcome(
        k.program(), {"one": np.array([7, -7, 7, -7], np.int32), "other": np.array([2, 2, -2, -2], np.int32)}
    )
    assert found["quotient"].tolist() == [3, -3, -3, 3]
    assert found["rest"].tolist() == [1, -1, 1, -1]


@settings(max_examples=40, deadline=None)
@given(
    shape=shapes,
    axis=st.one_of(st.none(), st.integers(0, 2)),
    lies=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    tiles=st.tuples(some_tiles, some_tiles),
    op=st.sampled_from(["add", "max", "min"]),
    dtype=st.sampled_from(["float32", "float16", "int32"]),
)
def test_reductions_are_right_wherever_they_lie(
    shape: tuple[int, ...], axis: int | None, lies: tuple[int, int], tiles: tuple[int, int], op: str, dtype: str
) -> None:
    axis = None if axis is None or len(shape) == 1 else min(axis, len(shape) - 1)
    rest = (1,) if axis is None else tuple(np.delete(shape, axis).tolist())
    k = Kernel("reduction", TINY)
    x = k.input(declare(k, "x", shape, min(lies[0], len(shape) - 1), tiles[0], dtype))
    out = k.output(declare(k, "out", rest, min(lies[1], len(rest) - 1), tiles[1], dtype))
    k.reduce(x, axis, out=out, op=op)
    values = numbers(*shape, dtype=dtype)
    (found,) = outcome(k.program(), {"x": values}).values()
    ufunc = {"add": np.add, "max": np.maximum, "min": np.minimum}[op]
    expected = ufunc.reduce(values.astype(np.float64), axis=axis).reshape(rest)
    np.testing.assert_allclose(found, expected, rtol=2e-2 if dtype == "float16" else 1e-5)


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 12), width=st.integers(1, 6), n=st.integers(1, 9), lies=st.tuples(*3 * [st.integers(0, 1)]))
def test_gather_and_scatter_add_are_right_wherever_they_lie(
    rows: int, width: int, n: int, lies: tuple[int, int, int]
) -> None:
    k = Kernel("rows", TINY)
    table = k.input(k.variable("table", (rows, width), spread=lies[0]))
    sums = k.input(k.variable("sums", (rows, width), spread=lies[2]))
    indices = k.input(k.variable("indices", (n,), "int32"))
    out = k.output(k.variable("out", (n, width), spread=lies[1]))
    k.gather(table, indices, out=out)
    k.scatter_add(sums, indices, out)
    k.output(sums, "added")
    values = {"table": numbers(rows, width), "sums": numbers(rows, width, seed=4)}
    chosen = np.random.default_rng(rows + n).integers(-1, rows + 1, n)  # some are no rows
    found = outcome(k.program(), {**values, "indices": chosen.astype(np.int32)})
    inside = (chosen >= 0) & (chosen < rows)
    expected = np.where(inside[:, None], values["table"][np.clip(chosen, 0, rows - 1)], 0)
    np.testing.assert_array_equal(found["out"], expected)
    added = values["sums"].copy()
    np.add.at(added, chosen[inside], expected[inside])
    np.testing.assert_allclose(found["added"], added, rtol=1e-5)


@settings(max_examples=12, deadline=None)
@given(
    extents=st.tuples(*3 * [st.integers(1, 70)]),
    planned=st.booleans(),
    dtype=st.sampled_from(["float32", "float16"]),
)
def test_products_are_right_planned_or_arranged(extents: tuple[int, int, int], planned: bool, dtype: str) -> None:
    m, inner, n = extents
    k = Kernel("product", TINY)
    plan = k.plan_matmul(m, inner, n, dtype)
    lies = (plan.left, plan.right, plan.result) if planned else (None, None, None)
    a = k.input(k.variable("a", (m, inner), dtype, mapping=lies[0]))
    b = k.input(k.variable("b", (inner, n), dtype, mapping=lies[1]))
    c = k.output(k.variable("c", (m, n), dtype, mapping=lies[2]))
    k.matmul(a, b, out=c)
    values = {"a": numbers(m, inner, dtype=dtype), "b": numbers(inner, n, dtype=dtype)}
    (found,) = outcome(k.program(), values).values()
    expected = values["a"].astype(np.float64) @ values["b"].astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-2 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("chips", [1, 3])
@pytest.mark.parametrize("width", [1, 5, 40])
@pytest.mark.parametrize("op", ["add", "max"])
def test_all_reduce_leaves_the_same_on_every_tile_of_every_chip(chips: int, width: int, op: str) -> None:
    machine = tiny(links_chips=chips)
    k = Kernel("all", machine)
    x = k.input(k.variable("x", (3 * k.tiles, width)))
    out = k.output(k.variable("out", (width,), mapping=k.everywhere))
    k.all_reduce(x, out=out, op=op)
    values = numbers(3 * k.tiles, width)
    program = k.program()
    (found,) = outcome(program, {"x": values}).values()
    np.testing.assert_allclose(found, {"add": values.sum(0), "max": values.max(0)}[op], rtol=1e-5)
    if chips > 1:  # over links goes one partial row a chip, and the result to all chips
        linked = [step.exchange.link_bytes for step, _, _ in program.supersteps() if step.exchange is not None]
        assert sum(int(each.sum()) for each in linked if each is not None) <= 4 * width * (chips - 1 + chips**2)


def test_rows_are_sorted_on_their_tiles() -> None:
    k = Kernel("sort", TINY)
    x = k.input(k.variable("x", (20, 9)))
    k.sort(x)
    k.output(x)
    values = numbers(20, 9)
    (found,) = outcome(k.program(), {"x": values}).values()
    np.testing.assert_array_equal(found, np.sort(values, axis=1))


def test_rows_cut_between_tiles_are_not_sorted() -> None:
    k = Kernel("sort", TINY)
    with pytest.raises(KernelError, match="sort: rows of 'x' are split between tiles"):
        k.sort(k.variable("x", (2, 32), spread=1))


# ---- cycles, by hand: ten elements a tile, six contexts


def one(write: Any, **machine: object) -> int:
    """Cycles of the only superstep that `write(kernel)` makes."""
    chip = tiny(**machine)
    k = Kernel("cycles", chip)
    write(k)
    (cycles,) = compute_cycles(k.program(), chip)
    return cycles


def x(k: Kernel, name: str = "x", dtype: str = "float32") -> Any:
    return k.input(k.variable(name, (160,), dtype))


@pytest.mark.parametrize(
    ("write", "cycles"),
    [
        (lambda k: k.fill(x(k), 1), 6 * (23 + 1)),  # two elements a context: one store of 8 bytes
        (lambda k: k.copy(x(k), to=x(k, "y")), 288 + 40 // 8),
        (lambda k: k.cast(x(k), to=x(k, "y", "float16")), 12 + 6 * (18 + 19 + 1 + 1 + 2)),  # two of four at a time
        (lambda k: k.elementwise("add", x(k), x(k, "y"), out=x(k, "z")), 11 + 6 * (29 + 3)),  # a vector: 2 loads, add
        (lambda k: k.elementwise("add", x(k), x(k, "y"), out="x"), 11 + 6 * (58 + 3)),
        (lambda k: k.elementwise("multiply", x(k), 2.0, out=x(k, "z")), 11 + 6 * (20 + 2)),
        (lambda k: k.elementwise("exponent", x(k), out=x(k, "z")), 11 + 9 + 6 * (33 + 6)),
        (lambda k: k.sort(k.input(k.variable("x", (16, 8)))), 6 * 8 * (19 * 8 * 3 + 6 * 8 + 2)),
        (lambda k: k.broadcast(x(k), to=k.variable("y", (160,), mapping=k.everywhere)), 0),
    ],
    ids=["fill", "copy", "cast", "add", "add in place", "times a number", "exponent", "sort", "broadcast"],
)  # fmt: skip
def test_cycles_are_those_of_the_formula(write: Any, cycles: int) -> None:
    assert one(write) == cycles


def test_cycles_of_rows_by_number() -> None:
    def rows(k: Kernel) -> tuple[Any, Any, Any]:
        indices = k.constant("indices", np.arange(5))
        return (
            k.input(k.variable("table", (16, 8), spread=1)),
            indices,
            k.input(k.variable("out", (5, 8), spread=1)),
        )

    # five numbers, all found by one context (the vendor's worst case), one element each
    assert one(lambda k: k.gather(*rows(k)[:2], out="out")) == 6 * (30 + 5 * (19 + 2))
    assert one(lambda k: k.scatter_add(*rows(k))) == 6 * (3 + 29 + 5 * 11)


def test_cycles_of_a_reduction_to_where_its_result_lies() -> None:
    def write(k: Kernel) -> None:
        k.reduce(k.input(k.variable("x", (16, 8))), axis=0, out=k.variable("out", (8,)))

    # one result a tile of sixteen numbers: six contexts add three each, then one the six
    assert one(write) == 6 * (17 + 2 * 3 // 4 + 3) + 6 * (17 + 2 * 6 // 4 + 2)


def test_many_partial_results_are_reduced_in_stages() -> None:
    bow = load_machine("bow")
    k = Kernel("stages", bow)
    k.reduce(k.input(k.variable("x", (1472,))), out=k.output(k.variable("sum", (1,), tiles=0)))
    program = k.program()
    received = [int(step.exchange.bytes_received.max()) for step, _, _ in program.supersteps() if step.exchange]
    assert received == [4 * 64, 4 * 22]  # 1472 numbers are more than 64: 23 groups first, then their sums
    values = numbers(1472)
    (found,) = outcome(program, {"x": values}, strictly=False).values()
    np.testing.assert_allclose(found, [values.sum()], rtol=1e-5)


@pytest.mark.parametrize(
    ("machine", "pieces", "holders", "results", "op", "dtype", "expected"),
    [
        # of tiny, 16 tiles: 64 partial results go straight to the result, more are cut into pieces of 64 and more
        ({}, [64], 16, 1, "add", "f32", None),
        ({}, [65], 16, 1, "add", "f32", ([0], [65], 1)),
        ({}, [130], 16, 1, "add", "f32", ([0, 65], [65, 130], 1)),
        # 40 results in pieces of two vectors to add, 4 floats or 8 halves; 3, one a tile, for the largest
        ({}, [100], 16, 40, "add", "f32", ([0], [100], 10)),
        ({}, [100], 16, 40, "max", "f32", ([0], [100], 14)),
        ({}, [100], 16, 40, "add", "f16", ([0, 34, 68], [34, 68, 100], 5)),
        # over links goes one partial result a chip, unless every chip has only one
        ({"links_chips": 2}, [3, 2], 5, 1, "add", "f32", ([0, 3], [3, 5], 1)),
        ({"links_chips": 3}, [1, 3, 1], 5, 1, "add", "f32", ([0, 1, 4], [1, 4, 5], 1)),
        ({"links_chips": 2}, [1, 1], 2, 1, "add", "f32", None),
        ({"links_chips": 2}, [0, 3], 3, 1, "add", "f32", None),
        # of 1600 tiles: fewer than twice the root of the tiles, 80, go at once where three of four tiles hold some
        ({"chip_tiles": 1600}, [79], 1201, 1, "add", "f32", None),
        ({"chip_tiles": 1600}, [79], 1200, 1, "add", "f32", ([0], [79], 1)),
        ({"chip_tiles": 1600}, [80], 1201, 1, "add", "f32", ([0], [80], 1)),
    ],
)
def test_which_partial_results_another_stage_takes_together(
    machine: dict[str, int], pieces: list[int], holders: int, results: int, op: str, dtype: str, expected: Any
) -> None:
    k = Kernel("stages", tiny(**machine))
    chip_of = np.repeat(np.arange(len(pieces)), pieces)
    found = reductions._groups(k, chip_of, holders, (results,), op, dtype)
    assert (None if found is None else (found[0].tolist(), found[1].tolist(), found[2])) == expected


def test_groups_are_cut_along_their_longest_axis_and_take_tiles_in_turn() -> None:
    parts, group = reductions._spread(np.array([0, 0, 1]), (2, 5), 2, 3)
    assert group.tolist() == [0, 0, 1, 1, 2, 2]
    assert parts.tiles.tolist() == [0, 1, 2, 0, 3, 4]  # chip 0 has tiles 0 to 2
    assert parts.bounds.tolist() == [
        [[number, number + 1], [0, 2], cut] for number in range(3) for cut in ([0, 2], [2, 5])
    ]


def test_cycles_of_a_product_are_those_of_its_blocks() -> None:
    k = Kernel("product", TINY)
    plan = k.plan_matmul(64, 32, 24)
    a = k.variable("a", (64, 32), mapping=plan.left)
    b = k.variable("b", (32, 24), mapping=plan.right)
    c = k.variable("c", (64, 24), mapping=plan.result)
    for each in (a, b):
        k.input(each)
    found = k.matmul(k.variables["a"], "b", out=c).plan
    span = timed(k.program(), TINY).spans[0]
    expected = amp_1x1_cycles(
        found.columns,
        in_groups=found.inner_groups,
        out_groups=found.row_groups,
        out_channels_per_group=16,
        in_channels_per_group=8,
        dtype="f32",
        partials_dtype="f32",
        conv_units=16,
        load_bytes_per_cycle=8,
        assembler=True,
    )
    assert span.compute_cycles == expected


# ---- refusals


def table(k: Kernel) -> tuple[Any, Any]:
    return k.input(k.variable("table", (16, 8))), k.constant("indices", np.arange(5))


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda k: k.fill(x(k, dtype="int32"), 0.5), "fill: 'x' of int32 cannot hold 0.5"),
        (lambda k: k.fill(x(k, dtype="int32"), 2**40), "fill: 'x' of int32 cannot hold 1099511627776"),
        (lambda k: k.fill(x(k, dtype="float16"), 1e6), "fill: 'x' of float16 cannot hold 1000000.0"),
        (lambda k: k.fill(x(k), "a"), "fill: 'x' cannot hold 'a'; give numbers"),
        (lambda k: k.elementwise("add", x(k, dtype="int32"), 0.5, out="x"), "'x' of int32 cannot hold 0.5"),
        (lambda k: k.constant("c", [2**40]), "'c' of int32 cannot hold 1099511627776"),
        (lambda k: k.constant("c", ["a"]), "'c' cannot hold .*; give numbers"),
        (lambda k: k.variable("c", 4, "float8"), "'c': format 'float8' is not one that tiles have"),
        (lambda k: k.copy(x(k), to=k.variable("y", (80,))), r"copy: 'x' has shape \[160\], 'y' \[80\]"),
        (lambda k: k.copy(x(k), to=x(k, "y", "float16")), "copy: 'x' is float32, 'y' float16; cast one"),
        (lambda k: k.elementwise("ad", x(k), 1, out="x"), "no operation 'ad'; did you mean 'add'"),
        (lambda k: k.elementwise("exponent", x(k), 1, out="x"), "'exponent' takes one operand"),
        (lambda k: k.elementwise("equal", x(k), 1, out="x"), "'equal' of float32 gives bool, 'x' is float32"),
        (lambda k: k.elementwise("cbrt", x(k, dtype="int32"), out="x"), "no cycle formula for 'i32'"),
        (lambda k: k.reduce(x(k), out=k.variable("y", (2,))), r"gives float32\[1\]; 'y' is float32\[2\]"),
        (lambda k: k.reduce(x(k), 1, out="x"), r"'x' of shape \[160\] has no axis 1"),
        (lambda k: k.reduce(x(k), out="x", op="mean"), "no operation 'mean'"),
        (lambda k: k.broadcast(x(k), to=x(k, "y")), "'y' is spread over tiles; declare it with mapping=k.everywhere"),
        (lambda k: k.fill(k.variable("y", (3,), mapping=k.everywhere), 0), "'y' is a copy on 16 tiles"),
        (lambda k: k.matmul(x(k), "x", out="x"), r"'x' \[160\] times 'x' \[160\] does not make 'x'"),
        (lambda k: k.gather(*table(k), out=k.variable("out", (5, 7))), r"'out' must be float32\[5, 8\], it is .*5, 7"),
        (lambda k: k.gather(*table(k), out=k.variable("out", (5, 8), "int32")), r"it is int32\[5, 8\]"),
        (lambda k: k.gather(x(k, "t"), x(k), out="t"), r"gather: a table"),
        (lambda k: k.gather(table(k)[0], k.variable("two", (5, 1), "int32"), out="table"), r"'two' \[5, 1\]"),
        (
            lambda k: k.scatter_add(table(k)[0], x(k), "table"),
            "scatter_add: 'x' must hold whole numbers, it is float32",
        ),
        (lambda k: k.gather(x(k), "x", out="x"), r"gather: a table \[rows, width\] and numbers \[n\] are needed"),
    ],
)
def test_what_cannot_be_is_refused_at_the_callers_line(write: Any, text: str) -> None:
    with pytest.raises(KernelError, match=rf"^test_kernels_library\.py, line \d+: .*{text}"):
        write(Kernel("refused", TINY))


FORMULAS: dict[str, Any] = {
    "inverse": lambda x: 1.0 / x, "relu": lambda x: x if x > 0 else 0.0, "rsqrt": lambda x: x**-0.5,
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)), "signum": lambda x: (x > 0) - (x < 0),
    "round": lambda x: float(round(x)), "square": lambda x: x * x, "negate": lambda x: -x,
}  # fmt: skip


@pytest.mark.parametrize("op", FORMULAS)
def test_functions_of_one_number_are_what_they_are_called(op: str) -> None:
    given = [x for x in (-2.5, -1.0, -0.25, 0.0, 0.25, 0.5, 1.5, 3.0) if x > 0 or op not in ("inverse", "rsqrt")]
    found = UNARY[op](np.array(given))
    assert found.tolist() == pytest.approx([FORMULAS[op](x) for x in given])
