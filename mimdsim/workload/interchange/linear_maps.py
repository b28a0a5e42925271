"""Linear maps between two populations: products, scalings and delays, composed to one matrix per source and delay."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mimdsim.workload.interchange.nir_nodes import MAX_VALUES, Reals


class MapProblem(Exception):
    """Two parts do not fit together; the caller says where."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearMap:
    """y = x @ matrix, with matrix [inputs, outputs]; or, without a matrix, y = x * factor, [n] or [1] for any n."""

    matrix: Reals | None = None
    factor: Reals = field(default_factory=lambda: np.ones(1))

    @property
    def inputs(self) -> int | None:
        """How many values it takes; None for any."""
        if self.matrix is not None:
            return int(self.matrix.shape[0])
        return self.factor.size if self.factor.size > 1 else None

    @property
    def outputs(self) -> int | None:
        """How many values it gives; None for as many as it takes."""
        return int(self.matrix.shape[1]) if self.matrix is not None else self.inputs

    @property
    def plain(self) -> bool:
        """Whether it is the identity for any size."""
        return self.matrix is None and self.factor.size == 1 and bool(self.factor[0] == 1)

    def then(self, other: LinearMap) -> LinearMap:
        """This map and then the other."""
        _agree(self.outputs, other.inputs, "gives", "takes")
        if self.plain or other.plain:
            return other if self.plain else self
        if other.matrix is None:
            if self.matrix is None:
                return LinearMap(factor=self.factor * other.factor)
            return LinearMap(matrix=self.matrix * other.factor)
        if self.matrix is None:
            return LinearMap(matrix=self.factor.reshape(-1, 1) * other.matrix)
        _bounded(self.matrix.shape[0], other.matrix.shape[1])
        return LinearMap(matrix=self.matrix @ other.matrix)

    def plus(self, other: LinearMap) -> LinearMap:
        """The sum of both maps of the same input."""
        _agree(self.inputs, other.inputs, "takes", "takes")
        _agree(self.outputs, other.outputs, "gives", "gives")
        if self.matrix is None and other.matrix is None:
            return LinearMap(factor=self.factor + other.factor)
        size = self.inputs or other.inputs
        assert size is not None
        return LinearMap(matrix=self.dense(size) + other.dense(size))

    def dense(self, size: int) -> Reals:
        """The matrix, of a map whose input has `size` values."""
        if self.matrix is not None:
            return self.matrix
        _bounded(size, size)
        return np.diag(np.broadcast_to(self.factor, (size,)))

    def apply(self, values: Reals) -> Reals:
        """The map of one row of values."""
        _agree(values.size if values.size > 1 else None, self.inputs, "gives", "takes")
        if self.matrix is not None:
            return np.broadcast_to(values, (self.matrix.shape[0],)) @ self.matrix
        return values * self.factor


IDENTITY = LinearMap()


@dataclass(frozen=True, kw_only=True, eq=False)
class Combination:
    """A sum of linear maps of sources, each after a delay in timesteps, and a constant ([n], or [1] for any n)."""

    terms: dict[tuple[str, int], LinearMap]
    constant: Reals

    def then(self, linear: LinearMap, bias: Reals | None) -> Combination:
        """Every term and the constant through `linear`, and then `bias` added."""
        constant = np.zeros(1) if not self.constant.any() else linear.apply(self.constant)
        if bias is not None:
            constant = constant + bias
        return Combination(terms={key: term.then(linear) for key, term in self.terms.items()}, constant=constant)

    def delayed(self, timesteps: int) -> Combination:
        """Every term later by `timesteps`; the constant has always been there."""
        moved = {(source, delay + timesteps): term for (source, delay), term in self.terms.items()}
        return Combination(terms=moved, constant=self.constant)


def total(parts: list[Combination]) -> Combination:
    """The sum of everything that arrives at one node."""
    terms: dict[tuple[str, int], LinearMap] = {}
    constant = np.zeros(1)
    for part in parts:
        for key, term in part.terms.items():
            terms[key] = terms[key].plus(term) if key in terms else term
        if part.constant.size > 1 and constant.size > 1:
            _agree(constant.size, part.constant.size, "gives", "gives")
        constant = constant + part.constant
    return Combination(terms=terms, constant=constant)


def _bounded(rows: int, columns: int) -> None:
    if rows * columns > MAX_VALUES:
        raise MapProblem(f"{rows} x {columns} weights, written out, are over {MAX_VALUES}")


def _agree(first: int | None, second: int | None, one: str, other: str) -> None:
    if first is not None and second is not None and first != second:
        raise MapProblem(f"one part {one} {first} values, the next {other} {second}")
