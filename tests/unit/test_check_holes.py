"""Wrong programs that once passed: found by trying, each kept small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numba import njit
from own_codelets import checked, codelet, machine

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.checking import check_kernel
from mimdsim.checking.comparison import interface_problems
from mimdsim.checking.program import check_program
from mimdsim.kernels import Kernel, KernelError
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload
from mimdsim.program import Field, Program, TileFormula, TileMapping, Variable, WorkerBundles
from mimdsim.program.codelet import Term
from mimdsim.program.loops import Size
from mimdsim.workload import load_workload

SMALL: dict[str, Any] = {"data.timesteps": 3, "training.batch": 4, "network.hidden": (12,), "network.capacity": (6, 4)}


def whole(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.integers(0, 1_000_000, 16)}


def test_the_kernel_that_is_changed_is_right() -> None:
    def copied(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = x

    assert checked(copied).passed
    assert checked(copied, dtype="int32", inputs=whole).passed


def test_training_that_begins_anew_with_every_step_is_found() -> None:
    on = load_machine("tiny")
    assert isinstance(on, MimdMachine)
    program = compile_workload(load_workload("digits", SMALL), on, must_fit=False).program
    assert not list(interface_problems(replace(program), program))
    new = replace(program.variables["w.hidden0"], name="new")
    outputs = {name: "new" if held == "w.hidden0" else held for name, held in program.outputs.items()}
    anew = replace(program, variables={**program.variables, "new": new}, outputs=outputs)
    (problem,) = interface_problems(anew, program)
    assert "is left in 'new', but the next training step begins with what 'w.hidden0' holds" in problem


def test_rules_are_held_in_full_length_and_batch() -> None:
    small, full, on = load_workload("digits", SMALL), load_workload("digits", SMALL | {"training.batch": 8}), machine()

    def build(subject: Any) -> Program:
        program: Program = subject.program
        if subject.network.batch == 4:
            return program
        return program.map_supersteps(lambda step: replace(step, copies=()) if step.name == "hand on spikes" else step)

    on = load_machine("tiny")  # type: ignore[assignment]
    findings = {finding.name: finding for finding in check_program(small, full, on, build)}
    assert not findings["rules"].passed
    assert findings["rules"].text.startswith("in full length and batch: ")


def test_a_constant_is_not_written() -> None:
    def add(acc: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        acc += x

    k = Kernel("own", machine())
    x, acc = k.input(k.variable("x", 16)), k.constant("acc", np.zeros(16, np.float32))
    columns = {"start": np.arange(4) * 4, "stop": np.arange(4) * 4 + 4}
    own = codelet(add, ("acc", "update"), ("x", "read"))
    with pytest.raises(KernelError, match=r"line \d+: codelet 'Own' writes 'acc', which is a constant: declare a var"):
        k.vertices(own, tiles=np.arange(4), operands={"acc": acc, "x": x}, columns=columns)
    with pytest.raises(KernelError, match=r"line \d+: .*writes 'acc', which is a constant"):
        k.copy(x, to=acc)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_undefined_memory_that_loses_no_comparison_is_found(dtype: str) -> None:
    """A frame that is left unwritten, and a maximum over it: NaN and small integers would lose."""

    def framed(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[1:-1] = x[1:-1]

    def highest(z: np.ndarray, y: np.ndarray, _start: int, _stop: int) -> None:
        best = 0
        for value in y:
            if value > best:
                best = value
        z[:] = best

    def build(on: MimdMachine) -> Program:
        k = Kernel("own", on)
        x, y, z = k.input(k.variable("x", 16, dtype)), k.variable("y", 16, dtype), k.variable("z", 16, dtype)
        k.output(z)
        columns = {"start": np.arange(4) * 4, "stop": np.arange(4) * 4 + 4}
        first = codelet(framed, ("y", "write"), ("x", "read"))
        k.vertices(first, tiles=np.arange(4), operands={"y": y, "x": x}, columns=columns)
        second = replace(codelet(highest, ("z", "write"), ("y", "read")), name="Highest")
        k.vertices(second, tiles=np.arange(4), operands={"z": z, "y": y}, columns=columns)
        return k.program()

    def reference(x: np.ndarray) -> np.ndarray:
        return np.repeat(np.maximum(x.reshape(4, 4)[:, 1:-1].max(axis=1), 0), 4)

    inputs = (lambda rng: {"x": rng.integers(0, 100, 16)}) if dtype == "int32" else None
    found = check_kernel(build, machine(), reference=reference, inputs=inputs)
    assert not found.passed
    assert "Highest" in str(found)


def test_turns_that_are_counted_too_few_do_not_cover_the_work() -> None:
    def copied(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = x

    cost = WorkerBundles(fixed=1, terms=(Term(extents=("turns",), bundles=1.0),), kind="assumed", source="a test")
    right = checked(copied, cost=cost, length=4096, count=lambda y, *_: {"turns": y.size})
    assert right.passed, right
    wrong = checked(copied, cost=cost, length=4096, count=lambda *_: {"turns": 0})
    assert "loads 4,096 and stores 4,096 bytes for a cost of 1 bundles" in str(wrong)


def test_a_cost_that_charges_nothing_per_element_is_noted() -> None:
    def copied(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = x

    def first(y: np.ndarray, x: np.ndarray, start: int, _stop: int) -> None:
        y[start % 1] = x[start % 1]

    cost = WorkerBundles(fixed=24, terms=(Term(extents=("turns",), bundles=1.0),), kind="assumed", source="a test")
    none = checked(copied, cost=cost, count=lambda *_: {"turns": 0})
    assert none.passed
    assert (
        "note  cost: vertex 0 of Own on tile 0 touches 4 elements of a field for the fixed 24 bundles of its cost, and "
        "no turn of a loop, which is right only if it does so whatever the length of its slices; else" in str(none)
    )
    assert "note  cost: " in str(checked(copied))  # a fixed cost alone
    assert "note  cost: " not in str(checked(copied, cost=cost, count=lambda y, *_: {"turns": y.size}))
    some = checked(copied, cost=cost, count=lambda _y, _x, start, _stop: {"turns": start})  # by one vertex at least
    assert "note  cost: " not in str(some)
    assert "note  cost: " not in str(checked(first, length=4))
    few = checked(copied, cost=cost, length=1024, count=lambda y, *_: {"turns": y.size // 2})
    assert (
        "note  cost: vertex 0 of Own on tile 0 loads and stores 512 elements for 152 bundles, which is right only if "
        "its instructions move several at once; else" in str(few)
    )


def wide_int(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
    y[:] = x + np.full(4, 0 * x.sum())


def wide_float(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
    y[:] = x + np.zeros(4)


def wide_in_place(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
    y[:] = x
    y += np.zeros(4)


def wide_copy(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
    np.copyto(y, x + np.zeros(4))


def wide_at(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
    y[:] = x
    np.add.at(y, [0, 1], np.zeros(2))


@pytest.mark.parametrize("compute", [wide_int, wide_float, wide_in_place, wide_copy, wide_at])
def test_what_is_computed_in_64_bits_is_noted(compute: Any) -> None:
    """A tile has 32: its sums wrap and round where those on the host do not."""
    dtype, given = ("int32", "int64") if compute is wide_int else ("float32", "float64")
    found = checked(compute, dtype=dtype, inputs=whole if compute is wide_int else None)
    assert found.passed, found
    assert (
        f"note  precision: vertex 0 of Own on tile 0 computes in {given} what it writes to its field 'y' of {dtype}; "
        f"a tile computes in 32 bits: write .astype(np.{dtype}) or dtype=np.{dtype} where it becomes {given}"
    ) in str(found)
    assert ("numpy sums whole numbers in 64 bits" in str(found)) == (compute is wide_int)


def test_what_is_computed_in_32_bits_is_not_noted() -> None:
    def literals(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = 0
        np.add.at(y, np.arange(4), 0.5 * x)
        np.copyto(y, (y + x / 2 + np.zeros(4)).astype(y.dtype))
        y[0] = float(x[0]) * 1.0

    def total(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = x + 0 * x.sum(dtype=np.int32) + len(x) - 4

    for found in (checked(literals), checked(total, dtype="int32", inputs=whole)):
        assert found.passed, found
        assert "precision" not in str(found)


@pytest.mark.parametrize(
    ("read", "write", "noted"), [((0, 16), (1, 17), True), ((0, 16), (0, 16), False), ((0, 8), (8, 16), False)]
)
@pytest.mark.parametrize("strict", [False, True])
def test_slices_that_overlap_within_a_vertex_are_noted(
    read: tuple[int, int], write: tuple[int, int], noted: bool, strict: bool
) -> None:
    """numpy reads all before it writes; a loop in place leaves something else."""

    def build(on: MimdMachine) -> Program:
        k = Kernel("shift", on)
        v = k.output(k.input(k.variable("v", 17, tiles=0)))
        boxes = ("new", "write", "from:to"), ("old", "read", "start:stop")
        fields = tuple(Field(name=name, access=access, box=(box,)) for name, access, box in boxes)
        own = replace(codelet(shifted), fields=fields, columns=())
        columns = dict(zip(("start", "stop", "from", "to"), (*read, *write), strict=True))
        k.vertices(own, tiles=0, operands={"new": v, "old": v}, columns=columns)
        return k.program()

    def shifted(new: np.ndarray, old: np.ndarray) -> None:
        new[:] = old

    def reference(v: np.ndarray) -> np.ndarray:
        made = v.copy()
        made[slice(*write)] = v[slice(*read)]
        return made

    found = check_kernel(build, machine(), reference=reference, strict=strict)
    assert found.passed, found
    text = "note  overlap: vertex 0 of Own on tile 0 reads v[0:16] by 'old' and writes v[1:17] by 'new', which "
    assert (text in str(found)) == noted
    assert ("note  overlap" in str(found)) == noted


@pytest.mark.parametrize(
    ("dtype", "edges", "noted"),
    [
        ("uint8", (0, 3, 5, 9, 16), "0 of Own on tile 0 (y[0:3]) and vertex 1 of Own on tile 0 (y[3:5])"),
        ("float16", (0, 4, 5, 8, 16), "2 of Own on tile 1 (y[5:8]) and vertex 3 of Own on tile 1 (y[8:16])"),
        ("uint8", (0, 4, 5, 9, 16), ""),  # the second tile holds elements from 5 on
        ("float32", (0, 3, 5, 8, 16), ""),
    ],
)
def test_words_that_several_vertices_write_in_part_are_noted(dtype: str, edges: tuple[int, ...], noted: str) -> None:
    def build(on: MimdMachine) -> Program:
        k = Kernel("parts", on)
        mapping = TileMapping.split(0, *np.array([[0, 1], [0, 5], [5, 16]]))
        x, y = (k.variable(name, 16, dtype, mapping=mapping) for name in "xy")
        own = replace(codelet(copied, ("y", "write"), ("x", "read")), columns=())
        columns = {"start": np.array(edges[:-1]), "stop": np.array(edges[1:])}
        k.vertices(own, tiles=[0, 0, 1, 1], operands={"y": k.output(y), "x": k.input(x)}, columns=columns)
        return k.program()

    def copied(y: np.ndarray, x: np.ndarray) -> None:
        y[:] = x

    found = check_kernel(build, machine(), reference=lambda x: x, inputs=lambda rng: {"x": rng.integers(0, 99, 16)})
    assert found.passed, found
    assert ("note  words" in str(found)) == bool(noted)
    assert f"note  words: one word of 32 bits is written in part by vertex {noted}" in str(found) or not noted


def test_what_np_asarray_gives_is_not_written() -> None:
    def copied(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        np.asarray(y)[:] = x

    assert "np.asarray and its like give a field for reading; write to the field itself" in str(checked(copied))


@njit
def doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x[: len(x)]


def test_compiled_functions_of_users_get_slices_too() -> None:
    def copied(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = doubled(x)

    cost = WorkerBundles(fixed=1, terms=(), kind="assumed", source="a test")
    assert checked(copied, lambda x: 2 * x).passed
    assert "loads 512 and stores 512 bytes" in str(checked(copied, lambda x: 2 * x, length=512, cost=cost))

    def by_hand(x: np.ndarray) -> np.ndarray:
        made: np.ndarray = doubled(x)
        return made

    def copied_by_hand(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = 1
        y *= by_hand(x)

    assert checked(copied_by_hand, lambda x: 2 * x).passed  # what is not called by name gets arrays


def test_vertices_have_no_memory_beside_their_fields() -> None:
    def summed(y: np.ndarray, x: np.ndarray, _start: int, _stop: int, held: np.ndarray) -> None:
        held += x.sum()
        y[:] = held

    def reference(x: np.ndarray) -> np.ndarray:
        return np.repeat(np.cumsum(x.reshape(4, 4).sum(axis=1)), 4)

    found = checked(summed, reference, constants={"held": np.zeros(1, np.float32)})
    assert not found.passed
    state = [0.0]

    def hidden(y: np.ndarray, x: np.ndarray, start: int, _stop: int) -> None:
        state[0] = state[0] * (start > 0) + float(x.sum())
        y[:] = state[0]

    assert not checked(hidden, reference).passed  # vertices run in another order too
    with pytest.raises(DescriptionError, match="constant 'held' is a ndarray; constants are numbers or small arrays"):
        checked(summed, reference, constants={"held": np.zeros(1000, np.float32)})


def test_draws_are_large_negative_and_unequal_too() -> None:
    def six(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = np.maximum(x, 0)

    def highest(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = max(-1.0, float(x.max()))

    assert not checked(six, lambda x: np.clip(x, 0, 6)).passed
    assert not checked(highest, lambda x: np.repeat(x.reshape(4, 4).max(axis=1), 4)).passed


def test_inputs_that_never_change_are_said() -> None:
    def copied(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = x

    found = checked(copied, inputs=lambda _: {"x": np.ones(16, np.float32)})
    assert "inputs(rng) gives the same every time" in str(found)


@pytest.mark.parametrize("size", [1, 2])
def test_numbers_that_their_bytes_cannot_hold_are_found(size: int) -> None:
    def build(on: MimdMachine) -> Program:
        k = Kernel("own", on)
        x, y = k.input(k.variable("x", 16, "int32")), k.output(k.variable("y", 16, "int32"))
        k.copy(x, to=y)
        program = k.program()
        short = {name: replace(held, stored_bytes=size) for name, held in program.variables.items()}
        return replace(program, variables=short)

    found = check_kernel(build, machine(), reference=lambda x: x, inputs=whole)
    assert f"which the {size} bytes it is stored in cannot" in str(found)


def test_sizes_that_cannot_be_are_refused() -> None:
    k = Kernel("own", machine())
    held: Variable = k.variable("x", 16)
    with pytest.raises(ValueError, match="stored_bytes 1 for float32; a half takes 2"):
        replace(held, stored_bytes=1)
    with pytest.raises(MappingError, match="code_bytes -5 must not be negative"):
        codelet(lambda *_: None, ("x", "read"), code_bytes=-5)


@pytest.mark.parametrize("cycles", [np.nan, np.inf, -5.0])
def test_formulas_that_give_no_cycles_are_refused(cycles: float) -> None:
    def copied(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = x

    def formula(extents: dict[str, np.ndarray], *_: int) -> np.ndarray:
        return 0 * extents["n"] + cycles

    cost = TileFormula(cycles=formula, kind="assumed", source="a test")
    found = checked(copied, cost=cost, extents={"n": Size("x")})
    assert "codelet 'Own': its cost formula gives" in str(found)


def test_a_tolerance_that_allows_everything_is_refused() -> None:
    with pytest.raises(DescriptionError, match="tolerance = inf must be a number from 0 to below 1"):
        check_kernel(lambda on: Kernel("own", on).program(), machine(), reference=lambda: 0, tolerance=np.inf)


def test_copies_within_a_tile_are_named() -> None:
    def build(on: MimdMachine) -> Program:
        k = Kernel("own", on)
        x, y = k.input(k.variable("x", 4096)), k.output(k.variable("y", 4096))
        k.move("move", x, y)
        return k.program()

    found = check_kernel(build, machine(), reference=lambda x: x)
    assert "copies of 16.0 KiB within tiles are assumed to cost nothing" in str(found)
