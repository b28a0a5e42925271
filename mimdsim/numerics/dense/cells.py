"""Arithmetic of cells element by element on boxes of [samples, neurons] matrices: graph/elementwise.py in float32."""

from __future__ import annotations

import math

import numpy as np

from mimdsim.numerics.compiled import compiled

SIGMOID, TANH, EXPONENTIAL, RELU, RECIPROCAL = range(5)
KINDS = {"sigmoid": SIGMOID, "tanh": TANH, "exponential": EXPONENTIAL, "relu": RELU, "reciprocal": RECIPROCAL}


@compiled
def _value(kind, x, like):  # type: ignore[no-untyped-def]
    real, exact = like.dtype.type, np.float64(x)
    if kind == SIGMOID:
        small = math.exp(-abs(exact))
        return real((small if x < 0 else 1.0) / (1.0 + small))
    if kind == TANH:
        return real(math.tanh(exact))
    if kind == EXPONENTIAL:
        return real(math.exp(exact))
    if kind == RECIPROCAL:
        return real(1.0 / exact)
    return max(x, real(0))


@compiled
def _derivative(kind, y, like):  # type: ignore[no-untyped-def]
    one = like.dtype.type(1)
    if kind == SIGMOID:
        return y * (one - y)
    if kind == TANH:
        return one - y * y
    if kind == EXPONENTIAL:
        return y
    if kind == RECIPROCAL:
        return -y * y
    return one if y > 0 else like.dtype.type(0)


@compiled
def function_boxes(source, target, row_start, row_stop, start, stop, kind):  # type: ignore[no-untyped-def]
    """target = the function of source."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = _value(kind, source[b, n], target)


@compiled
def function_gradient_boxes(g, value, target, row_start, row_stop, start, stop, kind):  # type: ignore[no-untyped-def]
    """target = g * the derivative of the function where it had this value."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = g[b, n] * _derivative(kind, value[b, n], target)


@compiled
def subtract_boxes(one, other, target, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target = one - other."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = one[b, n] - other[b, n]


@compiled
def affine_boxes(source, target, row_start, row_stop, start, stop, scale, shift):  # type: ignore[no-untyped-def]
    """target = scale * source + shift."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = scale * source[b, n] + shift


@compiled
def shifted_columns(source, target, source_start, source_stop, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target[box] = source of the same rows and of columns from `source_start` on."""
    for i in range(len(start)):
        moved = source_start[i] - start[i]
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = source[b, n + moved]


@compiled
def repeat_row(row, target, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target = row[0], for every sample."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = row[0, n]
