"""The program of a planned product: serial steps of operand exchange, partial product, sum exchange and sum.

Operands and result are stored as the plan wants them, a piece a row of a two-dimensional variable; `arranged` and
`result_of` convert. Tiles are numbered rows first, then columns, then the inner dimension: neighbours on one bus want
the same block of B.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.codelets.products import product_formula, sum_formula
from mimdsim.compiler.place.product_plan import ProductPlan
from mimdsim.costs.library.elementwise import cast_1d_cycles
from mimdsim.machine import MimdMachine
from mimdsim.program import (
    Codelet,
    Column,
    Field,
    Length,
    Program,
    Size,
    Superstep,
    TileFormula,
    TileMapping,
    Variable,
    VertexTable,
    fields_of,
    terms_of,
)
from mimdsim.program.exchanges import plan_exchanges

NUMPY = {"f16": "float16", "f32": "float32"}


def _cast(sums: np.ndarray, total: np.ndarray) -> None:
    total.reshape(-1)[:] = sums.reshape(-1)


@lru_cache(maxsize=16)
def cast_codelet(dtype: str, partials_dtype: str) -> Codelet:
    """Conversion of sums that needed no reduction."""

    def cycles(extents: dict[str, Any], worker_contexts: int, vector_bytes: int) -> Any:
        return cast_1d_cycles(
            extents["outputs"],
            source=partials_dtype,
            target=dtype,
            worker_contexts=worker_contexts,
            vector_bytes=vector_bytes,
        )

    return Codelet(
        name=f"Cast<{partials_dtype},{dtype}>",
        fields=(
            Field(name="sums", access="read", box=("sums", ":")),
            Field(name="total", access="write", box=("place", ":")),
        ),
        compute=_cast,
        form="vertex",
        cost=TileFormula(
            cycles=cycles, kind="published", source="Cast1D, PopLibs lib/popops/PerformanceEstimation.cpp (7eac0f2)"
        ),
        code_bytes=256,
        extents={"outputs": Size("total")},
    )


def _multiply(left: np.ndarray, right: np.ndarray, partial: np.ndarray, rows: int, inner: int, columns: int) -> None:
    """left [pieces, n] holds rows x inner, right inner x columns, partial [1, n] rows x columns, all in C order."""
    a = left.reshape(-1)[: rows * inner].reshape(rows, inner).astype(np.float32)
    b = right.reshape(-1)[: inner * columns].reshape(inner, columns).astype(np.float32)
    flat = partial.reshape(-1)
    flat[: rows * columns] = (a @ b).reshape(-1)
    flat[rows * columns :] = 0


@lru_cache(maxsize=64)
def product_codelet(dtype: str, partials_dtype: str, units: int, channels: int, load_bytes: int) -> Codelet:
    """Partial product of one tile on the matrix unit; the sums start at zero. Boxes: pieces of the operands."""
    return Codelet(
        name=f"PartialProduct<{dtype},{partials_dtype}>",
        fields=fields_of(
            "read left[left_start:left_stop, :]; read right[right_start:right_stop, :]; write partial[sums, :]"
        ),
        columns=("rows", "inner", "positions"),
        compute=_multiply,
        form="vertex",
        cost=product_formula(dtype, partials_dtype, units, channels, load_bytes),
        flops=terms_of({"products": 2}),
        code_bytes=1024,
        extents={
            "positions": Column("positions"),
            "out_groups": Column("rows", per=units),
            "in_groups": Column("inner", per=channels),
        },
    )


def _add(partials: np.ndarray, total: np.ndarray) -> None:
    total.reshape(-1)[:] = partials.astype(np.float32).sum(axis=0)


@lru_cache(maxsize=16)
def sum_codelet(dtype: str, partials_dtype: str) -> Codelet:
    """Sum of one share of the partial products of several tiles, cast to `dtype` as it is stored."""
    return Codelet(
        name=f"ReduceAdd<{partials_dtype},{dtype}>",
        fields=fields_of("read partials[sums_start:sums_stop, share_start:share_stop]; write total[place, :]"),
        compute=_add,
        form="vertex",
        cost=sum_formula("outputs", dtype, partials_dtype),
        flops=terms_of({"outputs partials": 1}),
        code_bytes=512,
        extents={"outputs": Length("partials", 1), "partials": Length("partials", 0)},
    )


def product_program(plan: ProductPlan, machine: MimdMachine) -> Program:
    """The program of `plan` on `machine`, exchanges planned; inputs "a" and "b", output "c", all arranged.

    Raises DescriptionError when the machine is not the one of the plan: too few tiles, other matrix units.
    """
    load_bytes = _check(plan, machine)
    row, column, inner = _places(plan)
    tile = np.arange(plan.tiles)
    size = plan.tiles * plan.steps
    out_place = _block(plan, row, column) * plan.inner_splits + inner
    sums_apart = plan.inner_splits > 1 or plan.dtype != plan.partials_dtype
    left_place = _left_block(plan, row, inner) * plan.column_splits + column
    right_place = _right_block(plan, column, inner) * plan.row_splits + row
    variables = {
        "a": _variable("a", (size, plan.left_piece), plan.dtype, "weights", _steps(plan, left_place)),
        "b": _variable("b", (plan.tiles, plan.right_piece), plan.dtype, "neuron states", _inverse(right_place)),
        "c": _variable("c", (size, plan.share), plan.dtype, "neuron states", _steps(plan, out_place)),
    }
    if sums_apart:
        shape = (plan.tiles, plan.share * plan.inner_splits)
        variables["sums"] = _variable("sums", shape, plan.partials_dtype, "exchange buffers", _inverse(out_place))
    multiply = product_codelet(plan.dtype, plan.partials_dtype, plan.units, plan.channels, load_bytes)
    body: list[Superstep] = []
    whole = np.full(plan.tiles, 1)
    for number in range(plan.steps):
        base = number * plan.tiles
        left_start = base + _left_block(plan, row, inner) * plan.column_splits
        right_start = _right_block(plan, column, inner) * plan.row_splits
        table = VertexTable(
            codelet=multiply,
            layer="",
            tiles=tile,
            operands={"left": "a", "right": "b", "partial": "sums" if sums_apart else "c"},
            columns={
                "left_start": left_start,
                "left_stop": left_start + plan.column_splits,
                "right_start": right_start,
                "right_stop": right_start + plan.row_splits,
                "sums": out_place if sums_apart else base + out_place,
                "rows": whole * plan.rows,
                "inner": whole * plan.inner,
                "positions": whole * plan.columns,
            },
            extents={"products": _true_products(plan, number, row, column, inner)},
        )
        body.append(_superstep(f"multiply {number}", "multiply", table))
        if sums_apart:
            body.append(_superstep(f"add {number}", "add", _finish(plan, base, out_place, inner)))
    program = Program(
        tiles=plan.tiles,
        variables=variables,
        body=tuple(body),
        layers=(),
        inputs={"a": "a", "b": "b"},
        outputs={"c": "c"},
    )
    return plan_exchanges(program)


def arranged(plan: ProductPlan, a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """The inputs of the program from A [m, k] and B [k, n]; what the plan pads is zero.

    Raises MappingError for matrices of another shape than the plan's.
    """
    for name, given, wanted in (("A", np.shape(a), (plan.m, plan.k)), ("B", np.shape(b), (plan.k, plan.n))):
        if given != wanted:
            raise MappingError(f"{name} has shape {given}, the plan multiplies {wanted}")
    blocks = plan.steps * plan.row_splits
    left: np.ndarray = np.zeros((blocks * plan.rows, plan.inner_splits * plan.inner), NUMPY[plan.dtype])
    left[: plan.m, : plan.k] = a
    left = left.reshape(plan.steps, plan.row_splits, plan.rows, plan.inner_splits, plan.inner)
    left = left.transpose(0, 3, 1, 2, 4).reshape(plan.steps * plan.inner_splits * plan.row_splits, -1)
    right: np.ndarray = np.zeros((plan.inner_splits * plan.inner, plan.column_splits * plan.columns), NUMPY[plan.dtype])
    right[: plan.k, : plan.n] = b
    right = right.reshape(plan.inner_splits, plan.inner, plan.column_splits, plan.columns)
    right = right.transpose(0, 2, 1, 3).reshape(plan.inner_splits * plan.column_splits, -1)
    return {
        "a": _pieces(left, plan.column_splits, plan.left_piece),
        "b": _pieces(right, plan.row_splits, plan.right_piece),
    }


def result_of(plan: ProductPlan, c: np.ndarray) -> np.ndarray:
    """C [m, n] from the output of the program."""
    blocks = c.reshape(plan.steps, plan.column_splits, plan.row_splits, plan.inner_splits * plan.share)
    blocks = blocks[..., : plan.rows * plan.columns].reshape(*blocks.shape[:3], plan.rows, plan.columns)
    whole = blocks.transpose(0, 2, 3, 1, 4).reshape(
        plan.steps * plan.row_splits * plan.rows, plan.column_splits * plan.columns
    )
    return np.ascontiguousarray(whole[: plan.m, : plan.n])


def _check(plan: ProductPlan, machine: MimdMachine) -> int:
    problems = []
    if plan.tiles > machine.chip.tiles:
        problems.append(f"the plan takes {plan.tiles} tiles, {machine.name} has {machine.chip.tiles}: plan it anew")
    unit = machine.matrix
    if unit is None:
        problems.append(f"machine '{machine.name}' has no matrix unit; add a [matrix] section to its description")
    elif (plan.units, plan.channels) != (
        unit.units(plan.dtype, plan.partials_dtype),
        unit.channels(plan.dtype),
    ):
        problems.append(f"the plan is for other matrix units than those of {machine.name}: plan it anew")
    if problems:
        raise DescriptionError("product of matrices", problems)
    assert unit is not None
    return unit.coefficient_load_bytes_per_cycle


def _places(plan: ProductPlan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, column, inner split) of every tile."""
    tile = np.arange(plan.tiles)
    rest = tile // plan.row_splits
    return tile % plan.row_splits, rest % plan.column_splits, rest // plan.column_splits


def _left_block(plan: ProductPlan, row: np.ndarray, inner: np.ndarray) -> np.ndarray:
    return inner * plan.row_splits + row


def _right_block(plan: ProductPlan, column: np.ndarray, inner: np.ndarray) -> np.ndarray:
    return inner * plan.column_splits + column


def _block(plan: ProductPlan, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    return column * plan.row_splits + row


def _inverse(place: np.ndarray) -> np.ndarray:
    """The tile of every place."""
    tiles = np.empty_like(place)
    tiles[place] = np.arange(len(place))
    return tiles


def _steps(plan: ProductPlan, place: np.ndarray) -> np.ndarray:
    return np.tile(_inverse(place), plan.steps)


def _variable(name: str, shape: tuple[int, int], dtype: str, category: str, tiles: np.ndarray) -> Variable:
    starts = np.arange(shape[0])
    mapping = TileMapping(axis=0, tiles=tiles, starts=starts, stops=starts + 1)
    return Variable(name=name, shape=shape, dtype=NUMPY[dtype], mapping=mapping, category=category)


def _pieces(blocks: np.ndarray, readers: int, piece: int) -> np.ndarray:
    """Every block cut into one piece for each of its readers."""
    padded = np.zeros((len(blocks), readers * piece), blocks.dtype)
    padded[:, : blocks.shape[1]] = blocks
    return padded.reshape(-1, piece)


def _true_products(
    plan: ProductPlan, number: int, row: np.ndarray, column: np.ndarray, inner: np.ndarray
) -> np.ndarray:
    """int64[tiles]: multiply-adds without those of the padding."""
    first = (number * plan.row_splits + row) * plan.rows
    rows = np.clip(plan.m - first, 0, plan.rows)
    columns = np.clip(plan.n - column * plan.columns, 0, plan.columns)
    return rows * columns * np.clip(plan.k - inner * plan.inner, 0, plan.inner)


def _finish(plan: ProductPlan, base: int, place: np.ndarray, inner: np.ndarray) -> VertexTable:
    """Add the sums of the tiles that share a block, or only cast them."""
    tile = np.arange(plan.tiles)
    if plan.inner_splits == 1:
        return VertexTable(
            codelet=cast_codelet(plan.dtype, plan.partials_dtype),
            layer="",
            tiles=tile,
            operands={"sums": "sums", "total": "c"},
            columns={"sums": place, "place": base + place},
        )
    return VertexTable(
        codelet=sum_codelet(plan.dtype, plan.partials_dtype),
        layer="",
        tiles=tile,
        operands={"partials": "sums", "total": "c"},
        columns={
            "sums_start": place - inner,
            "sums_stop": place - inner + plan.inner_splits,
            "share_start": inner * plan.share,
            "share_stop": (inner + 1) * plan.share,
            "place": base + place,
        },
    )


def _superstep(name: str, stage: str, table: VertexTable) -> Superstep:
    return Superstep(name=name, op="product", phase="forward", stage=stage, tables=(table,), mergeable=False)
