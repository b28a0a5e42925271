"""What a wrong codelet or program does to memory is named, with vertex, tile, field and index: nothing wrong agrees."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mimdsim.base.errors import MappingError
from mimdsim.compiler import plan_exchanges
from mimdsim.execution import Executor, execute_strictly
from mimdsim.execution.bounds_checked_array import Bounded, Guarded, GuardError, Work
from mimdsim.execution.execute import VertexFailure
from mimdsim.program import (
    Codelet,
    Field,
    Program,
    Repeat,
    Superstep,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
    verify,
)

TILES, EACH = 3, 4
CELLS = TILES * EACH
STARTS = np.arange(TILES) * EACH
COST = WorkerBundles(fixed=100, terms=(), kind="assumed", source="a test")


def spread(name: str, dtype: str = "float32", **changes: Any) -> Variable:
    mapping = TileMapping.split(0, np.arange(TILES), STARTS, STARTS + EACH)
    return Variable(name=name, shape=(CELLS,), dtype=dtype, mapping=mapping, **changes)


def step(name: str, compute: Callable[..., None], form: str = "vertex", **access: str) -> Superstep:
    """One vertex a tile on its own cells of the variables named; `access` by variable, which names the field too."""
    codelet = Codelet(
        name=name.capitalize(),
        fields=tuple(Field(name=variable, access=how, box=("start:stop",)) for variable, how in access.items()),
        columns=() if form == "vertex" else ("start", "stop"),
        compute=compute,
        form=form,
        cost=COST,
    )
    columns = {"start": STARTS, "stop": STARTS + EACH}
    table = VertexTable(
        codelet=codelet, tiles=np.arange(TILES), operands={variable: variable for variable in access}, columns=columns
    )
    return Superstep(name=name, tables=(table,))


def program(*body: Superstep | Repeat, dtype: str = "float32", **changes: Any) -> Program:
    held = {name: spread(name, "int32" if name == "ids" else dtype) for name in ("x", "acc", "out", "ids")}
    given: dict[str, Any] = {"inputs": {"x": "x", "ids": "ids"}, "outputs": {"out": "out"}}
    return plan_exchanges(Program(tiles=TILES, variables=held, body=body, **(given | changes)))


def run(made: Program, *, strict: bool, times: int = 1) -> np.ndarray:
    executor = Executor(made)
    for _ in range(times):
        values = {"x": np.arange(CELLS), "ids": np.tile([0, 3, 1, 2], TILES)}
        executor.write({name: value for name, value in values.items() if name in made.inputs})
        execute_strictly(executor) if strict else executor.run()
    return executor.read("out")


def failure(made: Program) -> str:
    with pytest.raises(MappingError) as refused:
        run(made, strict=True)
    return str(refused.value)


WHERE = "superstep 'sum', timestep 0: vertex 0 of Sum on tile 0 "


def rest(out: np.ndarray, acc: np.ndarray) -> None:
    out[:] = acc


# ---- a field that is declared `write` holds nothing to read


def add_up(acc: np.ndarray, x: np.ndarray) -> None:
    acc[:] += x + 1


def add_up_rows(acc: np.ndarray, x: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
    for first, last in zip(start, stop, strict=True):
        acc[first:last] += x[first:last] + 1


@pytest.mark.parametrize(("form", "compute"), [("vertex", add_up), ("table", add_up_rows)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_a_sum_in_a_field_declared_write_is_told(form: str, compute: Callable[..., None], dtype: str) -> None:
    wrong = program(step("sum", compute, form, acc="write", x="read"), step("rest", rest, out="write", acc="read"),
                    dtype=dtype)  # fmt: skip
    assert failure(wrong).startswith(f"{WHERE}reads acc[0] through its field 'acc', declared access=\"write\"")


def write_half(acc: np.ndarray, x: np.ndarray) -> None:
    acc[::2] = x[::2]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_what_a_vertex_leaves_out_is_what_it_was_for_nobody(dtype: str) -> None:
    """Even cells are written, odd ones poison: legal as long as nobody makes anything of them."""
    made = program(step("sum", write_half, acc="write", x="read"), step("rest", rest, out="write", acc="read"),
                   dtype=dtype)  # fmt: skip
    assert verify(made, TILES) == ()
    out = run(made, strict=True)
    np.testing.assert_array_equal(out[::2], np.arange(CELLS)[::2])
    assert (np.isnan(out[1::2]) if dtype == "float32" else out[1::2] == -(2**30)).all()


# ---- a vertex that leaves its slice


def writing(change: Callable[[np.ndarray], None]) -> Callable[..., None]:
    def compute(out: np.ndarray, x: np.ndarray, ids: np.ndarray) -> None:
        out[:] = x
        change(out)

    return compute


def reading(take: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[..., None]:
    def compute(out: np.ndarray, x: np.ndarray, ids: np.ndarray) -> None:
        out[:] = np.sum(take(x, ids))

    return compute


def assign(key: Any) -> Callable[[np.ndarray], None]:
    return lambda out: out.__setitem__(key, 1.0)


@pytest.mark.parametrize(
    ("compute", "said"),
    [
        (reading(lambda x, _: x[2:6]), "takes [2:6] of field 'x' [4]: axis 0 has 4"),
        (reading(lambda x, _: x[:5]), "takes [:5] of field 'x' [4]: axis 0 has 4"),
        (reading(lambda x, _: x[-1]), "takes [-1] of field 'x' [4]: index -1, axis 0 has 0 to 3"),
        (reading(lambda x, _: x[-2:]), "takes [-2:] of field 'x' [4]: a slice that starts at -2"),
        (reading(lambda x, _: x[4]), "takes [4] of field 'x' [4]: index 4, axis 0 has 0 to 3"),
        (reading(lambda x, ids: x[ids - 1]), "of field 'x' [4]: index -1, axis 0 has 0 to 3"),
        (reading(lambda x, ids: x[ids + 1]), "of field 'x' [4]: index 4, axis 0 has 0 to 3"),
        (reading(lambda x, ids: np.take(x, ids - 1)), "takes [[-1  2  0  1]] of field 'x' [4]: index -1"),
        (reading(lambda x, ids: np.take(x, ids + 1, mode="clip")), "of field 'x' [4]: index 4"),
        (reading(lambda x, ids: x.take(ids + 1, mode="wrap")), "of field 'x' [4]: index 4"),
        (reading(lambda x, _: x.reshape(2, 2)[-1]), "takes [-1] of field 'x' [2, 2]: index -1"),
        (reading(lambda x, _: x[1:3][:3]), "takes [:3] of field 'x' [2]: axis 0 has 2"),
        (reading(lambda x, _: x.ravel()[3:9]), "takes [3:9] of field 'x' [4]: axis 0 has 4"),
        (reading(lambda x, _: [x[k] for k in range(5)]), "takes [4] of field 'x' [4]"),
        (writing(assign(slice(3, 5))), "takes [3:5] of field 'out' [4]: axis 0 has 4"),
        (writing(assign(-1)), "takes [-1] of field 'out' [4]: index -1"),
        (writing(lambda out: np.add.at(out, [0, -4], 1)), "takes [[ 0 -4]] of field 'out' [4]: index -4"),
        (writing(lambda out: np.put(out, [5], 1, mode="wrap")), "takes [[5]] of field 'out' [4]: index 5"),
    ],
)
def test_an_index_beyond_the_slice_is_named(compute: Callable[..., None], said: str) -> None:
    made = program(step("sum", compute, out="write", x="read", ids="read"))
    message = failure(made)
    assert message.startswith(f"{WHERE}left its slices: ")
    assert said in message


def scale(x: np.ndarray) -> None:
    x *= 2


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.__setitem__(1, 7),
        lambda x: x.__setitem__(slice(None), 7),
        scale,
        lambda x: scale(x[1:3]),
        lambda x: np.add.at(x, [1], 1),
        lambda x: np.add(x, 1, out=x),
        lambda x: np.cumsum(x, out=x),
        lambda x: np.take(np.arange(9, dtype=np.float32), [1, 2, 3, 4], out=x),
        lambda x: np.copyto(x, 7),
        lambda x: np.put(x, [1], 7),
        lambda x: x.fill(7),
        lambda x: x.sort(),
        lambda x: x.reshape(2, 2).__setitem__((0, 1), 7),
        lambda x: x.ravel().__setitem__(1, 7),
        lambda x: np.asarray(x).__setitem__(1, 7),
        lambda x: [row.__setitem__(0, 7) for row in x.reshape(2, 2)],
    ],
)
def test_what_may_only_be_read_is_not_written(change: Callable[[np.ndarray], None]) -> None:
    def compute(out: np.ndarray, x: np.ndarray) -> None:
        out[:] = x
        change(x)

    message = failure(program(step("sum", compute, out="write", x="read")))
    assert message.startswith(f"{WHERE}left its slices: it writes its field 'x', declared access=\"read\"; declare")


def test_a_field_that_is_read_is_not_written_beside_one_that_is_written() -> None:
    """Both fields of one variable: what the second writes is no excuse for the first."""

    def compute(acc: np.ndarray, x: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
        for first, last in zip(start, stop, strict=True):
            acc[first:last] = 1
            x[first + 1] = 2

    made = program(step("sum", compute, "table", acc="write", x="read"))
    (table,) = made.body[0].tables  # type: ignore[union-attr]
    fields = (replace(table.codelet.fields[0], box=("start:mid",)), replace(table.codelet.fields[1], box=("mid:stop",)))
    columns = {"start": STARTS, "mid": STARTS + 1, "stop": STARTS + EACH}
    codelet = replace(table.codelet, fields=fields, columns=("start", "mid"))
    both = replace(table, codelet=codelet, columns=columns, operands={"acc": "x", "x": "x"})
    wrong = program(replace(made.body[0], tables=(both,)), outputs={"out": "x"})  # type: ignore[arg-type]
    executor = Executor(wrong)
    executor.write({"x": np.arange(CELLS), "ids": np.zeros(CELLS)})
    with pytest.raises(MappingError, match=re.escape(f"{WHERE}writes its field 'x', declared access=\"read\"")):
        execute_strictly(executor)


def test_any_mistake_in_a_codelet_names_the_vertex() -> None:
    def compute(out: np.ndarray, x: np.ndarray) -> None:
        out[:] = x[:3]

    message = failure(program(step("sum", compute, out="write", x="read")))
    assert message.startswith(f"{WHERE}does not fit its slices: could not broadcast")


def test_sound_codelets_are_left_alone() -> None:
    """Idioms that stay inside: a stop from the end, steps, masks, lists, values of one's own, iteration."""

    def compute(out: np.ndarray, x: np.ndarray, ids: np.ndarray) -> None:
        own = x.copy()
        own[-1] = own[-1]
        total = np.zeros_like(x)
        for index, value in enumerate(x):
            total[index] += value
        out[:-1], out[3:] = x[:-1], x[3:4]
        out[x > 1] = x[x > 1] * 1
        out[ids] = x[ids]
        out[[]] = 0
        np.add(total, 0, out=out, where=x >= 0)
        np.add.at(out, [0, 1], 0)
        out[::-1] += 0 * own[::-1] + 0 * x.reshape(2, 2).T.sum() + 0 * x[np.argsort(x)] + 0 * np.take(x, ids)
        out += np.where(np.isin(x, own), 0, 1)

    made = program(step("sum", compute, out="write", x="read", ids="read"))
    plain = run(made, strict=False)
    np.testing.assert_array_equal(plain, np.arange(CELLS))
    np.testing.assert_array_equal(run(made, strict=True), plain)


def test_work_is_what_was_touched() -> None:
    work = Work()
    x, y = (Guarded.of(np.ones((2, 3)), Field(name=name, access="update", box=(":", ":")), work) for name in "xy")
    _ = np.zeros_like(x)
    assert (work.read, work.written) == ({}, {})
    y[0] = x[1, :2].sum()
    np.add.at(x, (0, 1), 2)
    assert (work.read, work.written) == ({"x": 3}, {"y": 3, "x": 1})


OWN = np.zeros(16)
READ: dict[Callable[[Any], Any], int] = {  # of 16 elements, so many
    **dict.fromkeys(
        (
            lambda x: x.astype(np.float32),
            lambda x: x.copy(),
            lambda x: x.flatten(),
            lambda x: x.tolist(),
            lambda x: x.tobytes(),
            lambda x: x.sum(),
            lambda x: x.max(),
            lambda x: x.mean(),
            lambda x: x.cumsum(),
            lambda x: x.argsort(),
            lambda x: x.argmax(),
            lambda x: x.nonzero(),
            lambda x: x.any(),
            lambda x: x.dot(OWN),
            lambda x: OWN @ x,
            lambda x: OWN.copy().__setitem__(slice(None), x),
            lambda x: np.where(OWN > 0, x, OWN),
            lambda x: np.asarray(x),
            lambda x: np.array(x),
            lambda x: np.ascontiguousarray(x),
            lambda x: np.fromiter(x, float),
            lambda x: np.sort(x),
            lambda x: np.einsum("i->", x),
            lambda x: np.convolve(x, [1, 2]),
            lambda x: np.concatenate([x, OWN]),
            lambda x: np.copyto(OWN.copy(), x),
            lambda x: x.reshape(4, 4).T.sum(),
            lambda x: x.reshape(4, 4).T.ravel(),
            lambda x: x.reshape(4, 4).T.flat,
            lambda x: x.view(np.ndarray).sum(),
            lambda x: list(x.flat),
            lambda x: list(x),
            lambda x: sum(x),
            lambda x: max(x),
            lambda x: -1.0 in x,
            lambda x: copy.deepcopy(x),
            lambda x: repr(x),
        ),
        16,
    ),
    lambda x: np.reshape(x, (4, 4))[0].sum(): 4,
    lambda x: np.split(x, 4)[1] + 1: 4,
    lambda x: np.lib.stride_tricks.sliding_window_view(x, 3)[0].sum(): 3,
    lambda x: x.take([1, 2]): 2,
    lambda x: np.take(x, [1, 2]): 2,
    lambda x: x.item(3): 1,
    lambda x: x.flat[3]: 1,
    lambda x: float(x[3:4].sum()): 1,
    lambda x: OWN[x[2:4].astype(int)]: 2,
    lambda x: x.searchsorted(3.0): 5,  # halves, halves again
    lambda x: (x.shape, len(x), x.dtype, x.T, x.real, np.zeros_like(x), x.reshape(4, 4), np.flip(x)): 0,
}


@pytest.mark.parametrize("way", READ)
def test_every_way_to_read_is_counted(way: Callable[[Any], Any]) -> None:
    work = Work()
    way(Guarded.of(np.arange(16.0), Field(name="x", access="read", box=(":",)), work))
    assert work.read["x"] == READ[way]


def test_what_an_operation_in_place_does_is_counted_once() -> None:
    work = Work()
    x = Guarded.of(np.arange(16.0), Field(name="x", access="update", box=(":",)), work)
    x[2:4] += 1
    x[8] *= 2
    x[:3].sort()
    np.copyto(x, 1.0, where=np.zeros(16, bool))
    assert (work.read["x"], work.written["x"]) == (6, 6)


@pytest.mark.parametrize(
    "way",
    [
        lambda x: x.base,
        lambda x: x.data,
        lambda x: x.ctypes,
        lambda x: x.setflags(write=True),
        lambda x: memoryview(x),
        lambda x: np.frombuffer(x),
        lambda x: x.__array_interface__,
        lambda x: np.asarray(x).__setitem__(0, 1),
        lambda x: x.view(np.ndarray)[-1],
        lambda x: np.reshape(x, (4, 4))[-1],
        lambda x: np.flip(x)[16],
    ],
)
def test_ways_around_a_slice_are_refused(way: Callable[[Any], Any]) -> None:
    with pytest.raises((GuardError, TypeError, AttributeError, ValueError)):
        way(Guarded.of(np.arange(16.0), Field(name="x", access="update", box=(":",)), Work()))


def test_indices_of_the_library_are_looked_at_too() -> None:
    x = Bounded.of(np.arange(16.0), Field(name="x", access="update", box=(":",)))
    ways: tuple[Callable[[], Any], ...] = (
        lambda: x[14:17], lambda: x[-1], lambda: x[2:4][2], lambda: x.__setitem__(-1, 0), lambda: np.add.at(x, [-1], 1),
    )  # fmt: skip
    for way in ways:
        with pytest.raises(GuardError, match="of field 'x'"):
            way()
    np.add.at(x, [1, 1], 1)
    assert (x[1], (x[2:4] + 1).sum()) == (3, 7)


def test_what_leaves_a_slice_is_shown_as_it_was_written() -> None:
    x = Guarded.of(np.arange(6.0).reshape(2, 3), Field(name="x", access="read", box=(":", ":")))
    for key, shown in ((np.s_[0, 0:4], "0, 0:4"), (np.s_[0, 0:4:2], "0, 0:4:2"), (np.s_[..., 3], "..., 3")):
        with pytest.raises(GuardError, match=rf"takes \[{re.escape(shown)}\] of field 'x' \[2, 3\]"):
            _ = x[key]
    assert (x.item(4), x.item(1, 2), x[0, :1].item()) == (4.0, 5.0, 0.0)
    with pytest.raises(GuardError, match="index 6"):
        x.item(6)


# ---- memory that nobody wrote


def test_a_sum_that_is_never_zeroed_is_told_before_and_when_it_runs() -> None:
    def zero(acc: np.ndarray) -> None:
        acc[:] = 0

    sums = step("sum", add_up, acc="update", x="read"), step("rest", rest, out="write", acc="read")
    wrong = program(Repeat(times=2, body=sums))
    (problem,) = verify(wrong, TILES)
    assert (problem.rule, problem.vertex, problem.tile) == ("what is read was written", 0, 0)
    assert problem.message == (
        "superstep 'sum': vertex 0 of Sum on tile 0 reads acc[0] in timestep 0, which nothing has written before; "
        "write it in an earlier superstep, let the host give it (inputs) or load it (values)"
    )
    twice = 2 * (np.arange(CELLS) + 1)
    np.testing.assert_array_equal(run(wrong, strict=False), twice)  # the first run looks right,
    np.testing.assert_array_equal(run(wrong, strict=False, times=2), 2 * twice)  # the second is doubled
    assert np.isnan(run(wrong, strict=True)).all()
    right = program(step("zero", zero, acc="write"), Repeat(times=2, body=sums))
    assert verify(right, TILES) == ()
    for strict in (False, True):
        np.testing.assert_array_equal(run(right, strict=strict, times=2), twice)


def test_a_sum_that_starts_from_what_is_loaded_is_doubled_in_the_second_run() -> None:
    made = program(step("sum", add_up, acc="update", x="read"), step("rest", rest, out="write", acc="read"))
    zeros = np.zeros(CELLS, np.float32)
    loaded = replace(made, variables=made.variables | {"acc": spread("acc", values=zeros)})
    (problem,) = verify(loaded, TILES)
    assert problem.rule == "loaded values stay"
    assert (
        "changes 'acc', which is loaded with values once and has been read: a second run would begin with"
        in problem.message
    )
    kept = replace(made, variables=made.variables | {"acc": spread("acc", values=zeros, persistent=True)})
    assert verify(kept, TILES) == ()


@pytest.mark.parametrize("declared", [False, True])
def test_an_input_that_nobody_gives_is_told(declared: bool) -> None:
    """Undeclared, the rules find it; declared and never written, a strict run."""

    def take(out: np.ndarray, x: np.ndarray, ids: np.ndarray) -> None:
        out[:] = x[ids]

    made = program(step("sum", take, out="write", x="read", ids="read"), inputs={"x": "x", "ids": "ids"})
    assert verify(made, TILES) == ()
    if not declared:
        (problem,) = verify(replace(made, inputs={"x": "x"}), TILES)
        assert (
            "vertex 0 of Sum on tile 0 reads ids[0] in timestep 0, which nothing has written before" in problem.message
        )
        return
    executor = Executor(made)
    executor.write({"x": np.arange(CELLS)})
    with pytest.raises(VertexFailure) as refused:
        execute_strictly(executor)
    assert str(refused.value).startswith(f"{WHERE}left its slices: takes ")
    assert "of field 'x' [4]: index -1073741824" in str(refused.value)
    assert "(ids[0] holds nothing that was written)" in str(refused.value)
    executor = Executor(made)
    executor.write({"ids": np.zeros(CELLS)})
    execute_strictly(executor)
    assert np.isnan(executor.read("out")).all()
