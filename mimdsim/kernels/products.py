"""Matrix products planned as the library plans them, on operands that keep the shape of the values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets.elementwise import transpose_of
from mimdsim.codelets.products import SUM_PARTS, block_product, product_formula, sum_formula
from mimdsim.compiler.place.product_plan import ProductPlan
from mimdsim.compiler.place.products import Blocks, ProductPlace
from mimdsim.kernels.builder import Builder, Operand, at_users_line
from mimdsim.kernels.elementwise import copy_codelet
from mimdsim.kernels.parts import FORMATS, Parts, format_of, parts_of
from mimdsim.machine import MimdMachine
from mimdsim.program import Codelet, Size, TileMapping, Variable


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedProduct:
    """C[m, n] = A[m, k] B[k, n] as the library's planner splits it. Operands declared with mapping=`left` and `right`
    and a result with `result` are placed as the matrix units need them; all others are arranged by extra copies."""

    place: ProductPlace

    @property
    def plan(self) -> ProductPlan:
        return self.place.plan

    @property
    def left(self) -> TileMapping:
        return self.place.left.mapping((self.plan.m, self.plan.k))

    @property
    def right(self) -> TileMapping:
        return self.place.right.mapping((self.plan.k, self.plan.n))

    @property
    def result(self) -> TileMapping:
        return self.place.result.mapping((self.plan.m, self.plan.n))


@at_users_line()
def plan_matmul(kernel: Builder, m: int, k: int, n: int, dtype: str = "float32") -> PlannedProduct:
    """How `matmul` will split [m, k] times [k, n], of "float32" or "float16": declare operands with its mappings to
    place them accordingly."""
    if dtype not in ("float32", "float16"):
        raise MappingError(f"matmul: the matrix units multiply float32 or float16, not {dtype}")
    return _planned(kernel.machine, m, k, n, FORMATS[dtype])


@lru_cache(maxsize=16)
def _planned(machine: MimdMachine, m: int, k: int, n: int, dtype: str) -> PlannedProduct:
    return PlannedProduct(place=ProductPlace.planned(machine, m, k, n, dtype))


@at_users_line()
def matmul(k: Builder, a: Operand, b: Operand, *, out: Operand) -> PlannedProduct:
    """out [m, n] <- a [m, k] b [k, n] on the matrix units of the first chip, planned as the library plans it; operands
    not placed as planned are arranged first, and so is the result. Returns the plan."""
    a, b, out = k.resolve(a), k.resolve(b), k.resolve(out)
    shapes = [len(each.shape) == 2 for each in (a, b, out)]
    if not all(shapes) or a.shape[1] != b.shape[0] or out.shape != (a.shape[0], b.shape[1]):
        raise MappingError(
            f"matmul: '{a.name}' {list(a.shape)} times '{b.name}' {list(b.shape)} does not make '{out.name}' "
            f"{list(out.shape)}; shapes [m, k], [k, n] and [m, n] are needed"
        )
    if not a.dtype == b.dtype == out.dtype:
        raise MappingError(
            f"matmul: '{a.name}' is {a.dtype}, '{b.name}' {b.dtype}, '{out.name}' {out.dtype}; cast them"
        )
    k.require_between_supersteps("matmul")
    found = plan_matmul(k, a.shape[0], a.shape[1], b.shape[1], a.dtype)
    place, unit = found.place, k.machine.product_unit
    assert unit is not None  # the plan refused a machine without
    left, right = _arrange_operand(k, a, place.left, found.left), _arrange_operand(k, b, place.right, found.right)
    total = out if same_mapping(out.mapping, found.result) else _declare_like(k, out, found.result)
    direct = place.parts == 1
    partial = total if direct else _declare_like(k, out, place.partials, place.parts)
    dtype, plan = format_of(a), place.plan
    multiply, add = _codelets(dtype, direct, plan.units, plan.channels, unit.coefficient_load_bytes_per_cycle)
    operands = {"left": left, "right": right, "partial": partial, "total": total}
    for name, codelet, tiles, columns in place.supersteps(multiply, add):
        used = {item.name: operands[item.name] for item in codelet.fields}
        k.place(f"{name} {out.name}", codelet, tiles, used, columns)
    if total is not out:
        _move(k, f"arrange {out.name}", total, out, parts_of(out), transposed=place.result.fastest == 0)
    return found


def same_mapping(one: TileMapping, other: TileMapping) -> bool:
    return one.axis == other.axis and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("tiles", "starts", "stops")
    )


def _declare_like(k: Builder, out: Variable, mapping: TileMapping, parts: int = 0) -> Variable:
    shape = (parts, *out.shape) if parts else out.shape
    return k.variable(
        k.unused_name(f"{out.name} {'partial' if parts else 'planned'}"), shape, out.dtype, mapping=mapping
    )


def _arrange_operand(k: Builder, held: Variable, blocks: Blocks, mapping: TileMapping) -> Variable:
    """The operand as planned: itself, or a copy. Operands not declared that way are stored row by row."""
    if same_mapping(held.mapping, mapping):
        return held
    arranged = _declare_like(k, held, mapping)
    bounds = [(blocks.row_start, blocks.row_stop), (blocks.start, blocks.stop)]
    parts = Parts(tiles=blocks.tiles, bounds=np.stack([np.stack(pair, axis=1) for pair in bounds], axis=1))
    _move(k, f"arrange {held.name}", held, arranged, parts, transposed=blocks.fastest == 0)
    return arranged


def _move(k: Builder, step: str, source: Variable, target: Variable, parts: Parts, *, transposed: bool) -> None:
    """Boxes of `source` into `target`, transposed on the tile if a different axis is contiguous there."""
    unit = k.machine.product_unit
    assert unit is not None
    dtype = format_of(source)
    channels = unit.channels(dtype)
    codelet = _transpose(dtype, channels) if transposed else copy_codelet(dtype, 2)
    k.place(step, codelet, parts.tiles, {"out": target, "source": source}, parts.columns())


@lru_cache(maxsize=8)
def _transpose(dtype: str, channels: int) -> Codelet:
    return transpose_of(copy_codelet(dtype, 2), f"Transpose<{dtype}>", dtype, channels, "out")


@lru_cache(maxsize=16)
def _codelets(dtype: str, direct: bool, units: int, channels: int, load_bytes: int) -> tuple[Codelet, Codelet]:
    """(partial product, sum of partial products) of boxes in a format."""

    def multiply(left: np.ndarray, right: np.ndarray, partial: np.ndarray) -> None:
        partial[...] = left.astype(np.float32) @ right.astype(np.float32)

    def add(partial: np.ndarray, total: np.ndarray) -> None:
        total[...] = partial.sum(axis=0, dtype=np.float32)

    block = block_product("forward", direct, units, channels, load_bytes)
    cost = product_formula(dtype, dtype, units, channels, load_bytes)
    parts = {**SUM_PARTS.extents, "outputs": Size("total")}  # names used by the formula of the sum
    # one by one, so that the bits do not depend on the order of vertices
    alone: dict[str, Any] = {"form": "vertex", "columns": ()}
    add_cost = sum_formula("outputs", dtype, dtype)
    return (
        replace(block, name=f"BlockProduct<{dtype}>", compute=multiply, cost=cost, **alone),
        replace(SUM_PARTS, name=f"SumParts<{dtype}>", compute=add, cost=add_cost, extents=parts, **alone),
    )
