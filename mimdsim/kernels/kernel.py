"""The builder with the library's vertices, for programs written by hand."""

from __future__ import annotations

from mimdsim.kernels.builder import Builder
from mimdsim.kernels.elementwise import broadcast, cast, copy, elementwise, fill, sort
from mimdsim.kernels.products import matmul, plan_matmul
from mimdsim.kernels.reductions import all_reduce, reduce
from mimdsim.kernels.slices import gather, scatter_add


class Kernel(Builder):
    """A program written by hand for `machine`, a tiled one, given itself or by name, for example:

        k = Kernel("mean", "bow")
        x = k.input(k.variable("x", (1024,)))
        total = k.output(k.variable("total", (1,), tiles=0))
        k.reduce(x, out=total)
        k.elementwise("multiply", total, 1 / 1024, out=total)
        program = k.program()

    Library vertices cost what the vendor's formulas say. `fill` to `sort` take one superstep, or join the one that is
    open; the others take several. Every mistake raises a KernelError that names the caller's line.
    """

    fill = fill
    copy = copy
    cast = cast
    elementwise = elementwise
    broadcast = broadcast
    sort = sort
    scatter_add = scatter_add
    gather = gather
    reduce = reduce
    all_reduce = all_reduce
    plan_matmul = plan_matmul
    matmul = matmul
