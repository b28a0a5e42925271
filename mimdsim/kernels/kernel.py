"""The builder with the library's vertices, for programs written by hand."""

from __future__ import annotations

from mimdsim.kernels import elementwise, products, reductions, slices
from mimdsim.kernels.builder import Builder, at_users_line
from mimdsim.kernels.products import PlannedProduct
from mimdsim.program import Variable

Given = Variable | str


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

    @at_users_line()
    def fill(self, x: Given, value: float) -> None:
        """Every element of x <- value."""
        elementwise.fill(self, self.known(x), value)

    @at_users_line()
    def copy(self, source: Given, *, to: Given) -> None:
        """to <- source, of the same shape and format, with vertices on the tiles of `to`."""
        elementwise.copy(self, self.known(source), self.known(to))

    @at_users_line()
    def cast(self, source: Given, *, to: Given) -> None:
        """to <- source in the number format of `to`."""
        elementwise.cast(self, self.known(source), self.known(to))

    @at_users_line()
    def elementwise(self, op: str, x: Given, other: Given | float | None = None, *, out: Given) -> None:
        """out <- x op other (a variable of the same shape or a number), or op(x); in place if `out` is x.

        op: an operation of the vendor's tables in lower case, such as "add", "divide", "greater_than", "exponent".
        """
        operand = self.known(other) if isinstance(other, Variable | str) else other
        elementwise.elementwise(self, op, self.known(x), operand, self.known(out))

    @at_users_line()
    def broadcast(self, x: Given, *, to: Given) -> None:
        """A copy of x on every tile of `to`, declared with mapping=k.everywhere or another replicated one: an exchange
        that sends every element once."""
        elementwise.broadcast(self, self.known(x), self.known(to))

    @at_users_line()
    def sort(self, x: Given) -> None:
        """Sort every row of x along its last axis in place; each row is entirely on one tile and sorted by one
        context."""
        elementwise.sort(self, self.known(x))

    @at_users_line()
    def scatter_add(self, table: Given, indices: Given, rows: Given) -> None:
        """table[indices[i]] += rows[i] for every i, on the tiles of the table [rows, width]."""
        slices.scatter_add(self, self.known(table), self.known(indices), self.known(rows))

    @at_users_line()
    def gather(self, table: Given, indices: Given, *, out: Given) -> None:
        """out[i] <- table[indices[i]] of a table [rows, width]; an index outside the table gives zeros."""
        slices.gather(self, self.known(table), self.known(indices), self.known(out))

    @at_users_line()
    def reduce(self, x: Given, axis: int | None = None, *, out: Given, op: str = "add") -> None:
        """out <- x reduced along `axis` (None: to one number, of shape (1,)) by "add", "max" or "min", in stages."""
        reductions.reduce(self, self.known(x), axis, self.known(out), op)

    @at_users_line()
    def all_reduce(self, x: Given, *, out: Given, op: str = "add") -> None:
        """x reduced along its first axis, as `reduce`, and a copy of the result on every tile of `out`: summed in
        shares by all tiles, chip by chip first, then sent to all."""
        given, target = self.known(x), self.known(out)
        longest = max(range(len(target.shape)), key=lambda axis: target.shape[axis])
        shares = self.variable(self.unused_name(f"{given.name} reduced"), target.shape, target.dtype, spread=longest)
        reductions.reduce(self, given, 0, shares, op)
        elementwise.broadcast(self, shares, target)

    @at_users_line()
    def plan_matmul(self, m: int, k: int, n: int, dtype: str = "float32") -> PlannedProduct:
        """How `matmul` will split [m, k] times [k, n]: declare operands with its mappings to place them accordingly."""
        return products.plan_product(self, m, k, n, dtype)

    @at_users_line()
    def matmul(self, a: Given, b: Given, *, out: Given) -> PlannedProduct:
        """out [m, n] <- a [m, k] b [k, n] on the matrix units of the first chip, planned as the library plans it;
        operands not placed as planned are arranged first, and so is the result."""
        return products.matmul(self, self.known(a), self.known(b), self.known(out))
