"""A cost that no tile could issue, or a formula that gives none, is the author's mistake and is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from own_codelets import checked, machine

from mimdsim.machine import MimdMachine
from mimdsim.program import Program, TileFormula, WorkerBundles
from mimdsim.program.codelet import Term
from mimdsim.program.loops import Size


def copied(y: np.ndarray, x: np.ndarray, *_: Any) -> None:
    y[:] = x


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (lambda n: np.array([50, 50, 50]), "returned 3 numbers for 1 vertex"),
        (lambda n: [], "returned 0 numbers for 1 vertex"),
        (lambda n: np.array([50]), "returned 1 number for 4 vertices"),
        (lambda n: np.full((len(n), 1), 50), "returned numbers of shape [1, 1] for 1 vertex"),
        (lambda n: None, "returned None, a NoneType"),
        (lambda n: "fifty", "returned 'fifty', a str"),
        (lambda n: n > 0, "a ndarray; it must return one number of tile cycles for every vertex"),
        (lambda n: {"cycles": 50}, "a dict; it must"),
        (lambda n: 50j, "a complex; it must"),
        (lambda n: undefined(n), "raised NameError: name 'undefined' is not defined (called with the extents n)"),  # noqa: F821
        (lambda n: np.nan, "gives nan cycles; correct the formula"),
        (lambda n: -n, "cycles; correct the formula"),
    ],
)  # fmt: skip
def test_a_formula_that_gives_no_cycles_for_each_vertex_is_named(gives: Any, said: str) -> None:
    cost = TileFormula(cycles=lambda extents, *_: gives(extents["n"]), kind="assumed", source="a test")
    found = checked(copied, cost=cost, extents={"n": Size("x")})
    assert not found.passed
    assert "codelet 'Own': its cost formula" in str(found)
    assert said in str(found)


@pytest.mark.parametrize("cycles", [50, 50.5, np.int32(50)])
def test_one_number_for_all_vertices_will_do(cycles: float) -> None:
    cost = TileFormula(cycles=lambda *_: cycles, kind="assumed", source="a test")
    assert checked(copied, cost=cost).passed


def worker(bundles: float) -> WorkerBundles:
    return WorkerBundles(fixed=0, terms=(Term(bundles=bundles, extents=("n",)),), kind="assumed", source="a test")


@pytest.mark.parametrize(("dtype", "most"), [("float32", 4), ("float16", 8)])
def test_flops_are_bounded_by_what_a_bundle_issues(dtype: str, most: int) -> None:
    extents = {"n": Size("x")}
    for flops, passes in ((most, True), (most + 1, False)):
        terms = (Term(bundles=flops, extents=("n",)),)
        found = checked(copied, dtype=dtype, length=64, cost=worker(1), flops=terms, extents=extents)
        assert found.passed == passes, found
    assert "vertex 0 of Own on tile 0 declares" in str(found)
    assert f"at most {most} are issued in one on tiny" in str(found)


def test_a_library_vertex_may_use_the_matrix_unit_and_no_more() -> None:
    for flops, passes in ((60, True), (600, False)):
        cost = TileFormula(cycles=lambda extents, *_: extents["n"], kind="assumed", source="a test")
        terms = (Term(bundles=flops, extents=("n",)),)
        found = checked(copied, length=64, cost=cost, flops=terms, extents={"n": Size("x")})
        assert found.passed == passes, found


@pytest.mark.parametrize("form", ["vertex", "table"])
def test_bytes_are_bounded_by_what_a_bundle_loads(form: str) -> None:
    def summed(y: np.ndarray, x: np.ndarray, start: Any, stop: Any) -> None:
        if form == "vertex":
            y[0] = x.sum()
            y[1:] = 0
            return
        for first, last in zip(start, stop, strict=True):
            y[first:last] = 0
            y[first] = x[first:last].sum()

    def reference(x: np.ndarray) -> np.ndarray:
        out = np.zeros((4, 1024))
        out[:, 0] = x.reshape(4, 1024).sum(axis=1)
        return out.reshape(-1)

    inputs = lambda rng: {"x": rng.integers(-4, 5, 4096)}  # noqa: E731
    found = checked(
        summed, reference, form=form, length=4096, inputs=inputs, cost=worker(0.125), extents={"n": Size("x")}
    )
    assert "loads 4,096 and stores 4,096 bytes for a cost of 128 bundles" in str(found), found


@pytest.mark.parametrize("vector", [4, 8, 32])
def test_bytes_and_flops_are_bounded_by_the_vectors_of_the_machine(vector: int) -> None:
    """4,096 bytes a vertex in 128 bundles, 32 in each; none is held to vectors of less than 8."""
    terms = (Term(bundles=16, extents=("n",)),)
    wide = machine(**{"tile.vector_bytes": vector})
    given: dict[str, Any] = {"length": 4096, "extents": {"n": Size("x")}, "on": wide}
    found = checked(copied, cost=worker(1 / 8), **given)
    assert found.passed == (vector == 32), found
    assert found.passed or "(16 bytes loaded and 8 stored in a bundle at most)" in str(found)
    assert checked(copied, cost=worker(1), flops=terms, **given).passed == (vector == 32)


def test_advice_for_a_kernel_includes_more_vertices() -> None:
    from mimdsim.checking.coverage import more_vertices
    from mimdsim.report.headline import _balance

    found = checked(copied, length=64)
    assert found.tiled is not None
    assert found.program is not None
    advice = more_vertices(found.program, found.machine, found.tiled)
    assert advice is not None
    assert "('Own' uses 4 of 4 tiles and 1 of 6 contexts), at most" in advice.what
    assert advice.cycles == found.cycles - int(found.tiled.compute_cycles * (1 - 1 / 6))
    assert "are idle" not in _balance(found.tiled)


def test_advice_for_a_kernel_that_repeats_leaves_out_the_loop() -> None:
    from mimdsim.checking import check_kernel
    from mimdsim.checking.coverage import more_vertices
    from mimdsim.kernels import Kernel

    def build(on: MimdMachine) -> Program:
        k = Kernel("repeated", on)
        y = k.output(k.input(k.variable("y", 64)))
        with k.repeat(3):
            k.elementwise("multiply", y, 0.5, out=y)
            k.elementwise("add", y, 1.0, out=y)
        return k.program()

    found = check_kernel(build, "tiny", reference=lambda y: y / 8 + 1.75)
    assert found.tiled is not None
    assert found.program is not None
    assert len(found.tiled.spans) == 3
    advice = more_vertices(found.program, found.machine, found.tiled)
    assert advice is None or advice.superstep == found.tiled.spans[0].name
