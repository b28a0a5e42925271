"""Affine maps of the states of neurons, and their transpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Affine:
    """x -> A x + B I + c: matrix [states, states, width], drive and constant [states, width]; a width of 1 holds for
    all neurons of the layer, otherwise there is one column per neuron."""

    matrix: np.ndarray
    drive: np.ndarray
    constant: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.matrix, self.drive, self.constant


def in_dtype(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Coefficients [..., width] in `dtype`."""
    return array.astype(dtype)


def advance(affine: Affine, x: np.ndarray, current: np.ndarray) -> np.ndarray:
    """A x + B I + c, added in the order states, current, constant; terms that are zero for all neurons are left out."""
    made = np.zeros_like(x)
    matrix, drive, constant = (in_dtype(array, x.dtype) for array in affine.arrays)
    for row in range(len(x)):
        for column in range(len(x)):
            if matrix[row, column].any():
                made[row] += matrix[row, column] * x[column]
        if drive[row].any():
            made[row] += drive[row] * current
        if constant[row].any():
            made[row] += constant[row]
    return made


def pull_back(affine: Affine, dx: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A^T dx and B^T dx."""
    matrix, drive, _ = (in_dtype(array, dx.dtype) for array in affine.arrays)
    previous, q = np.zeros_like(dx), np.zeros_like(dx[0])
    for row in range(len(dx)):
        for column in range(len(dx)):
            if matrix[row, column].any():
                previous[column] += matrix[row, column] * dx[row]
        if drive[row].any():
            q += drive[row] * dx[row]
    return previous, q


def terms_of(*arrays: np.ndarray) -> int:
    """How many coefficients are nonzero for some neuron in at least one of the arrays, which have the same shape."""
    return int(np.any([array.any(axis=-1) for array in arrays], axis=0).sum())
