"""Neuron operations element by element on boxes of [batch, neurons] matrices, and dense products in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.dense.dense import in_time
from mimdsim.numerics.equations import integrated, surrogate, unless_spiked


@compiled
def lif_boxes(v, current, row_start, row_stop, start, stop, decay, scale, threshold):  # type: ignore[no-untyped-def]
    """v <- (0 if v > threshold else decay*v) + scale * current."""
    zero = v.dtype.type(0)
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                v[b, n] = integrated(v[b, n], current[b, n], decay, scale, threshold, zero)


@compiled
def spike_boxes(v, spikes, row_start, row_stop, start, stop, threshold):  # type: ignore[no-untyped-def]
    """spikes = 1 where v > threshold, else 0."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                spikes[b, n] = 1 if v[b, n] > threshold else 0


@compiled
def add_surrogate(dv, g, v, row_start, row_stop, start, stop, threshold, slope, kind):  # type: ignore[no-untyped-def]
    """dv += g * the surrogate of v - threshold."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                dv[b, n] += g[b, n] * surrogate(kind, v[b, n] - threshold, slope, dv)


@compiled
def surrogate_boxes(target, g, v, row_start, row_stop, start, stop, threshold, slope, kind):  # type: ignore[no-untyped-def]
    """target = g * the surrogate of v - threshold."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = g[b, n] * surrogate(kind, v[b, n] - threshold, slope, target)


@compiled
def scale_boxes(source, target, row_start, row_stop, start, stop, factor):  # type: ignore[no-untyped-def]
    """target = factor * source."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = factor * source[b, n]


@compiled
def decay_boxes(dv, row_start, row_stop, start, stop, factor):  # type: ignore[no-untyped-def]
    """dv <- factor * dv."""
    scale_boxes(dv, dv, row_start, row_stop, start, stop, factor)


@compiled
def masked_decay_boxes(dv, v_previous, row_start, row_stop, start, stop, factor, threshold):  # type: ignore[no-untyped-def]
    """dv <- factor * dv, or 0 where v_previous > threshold."""
    zero = dv.dtype.type(0)
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                dv[b, n] = unless_spiked(factor * dv[b, n], v_previous[b, n], threshold, zero)


@compiled
def count_rows(spikes, totals, sample, first=0):  # type: ignore[no-untyped-def]
    """totals[sample] = sum over timesteps from `first` on of spikes[:, sample], whole numbers."""
    for i in range(len(sample)):
        for n in range(totals.shape[1]):
            count = 0
            for t in range(first, spikes.shape[0]):
                count += int(spikes[t, sample[i], n])
            totals[sample[i], n] = count


@compiled
def count_boxes(spikes, counts, row_start, row_stop, start, stop, part):  # type: ignore[no-untyped-def]
    """counts[part] = spikes of the box in all timesteps."""
    for i in range(len(start)):
        count = 0
        for t in range(spikes.shape[0]):
            for b in range(row_start[i], row_stop[i]):
                for n in range(start[i], stop[i]):
                    count += int(spikes[t, b, n])
        counts[part[i]] = count


@compiled
def add_even_boxes(g, even, total, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """total[box] = g[box] + even[0]."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                total[b, n] = g[b, n] + even[0]


@compiled
def mixed(word):  # type: ignore[no-untyped-def]
    """graph/dropout.py"""
    word = word ^ (word >> np.uint64(16))
    word = word * np.uint64(0x85EBCA6B) & np.uint64(0xFFFFFFFF)
    word = word ^ (word >> np.uint64(13))
    word = word * np.uint64(0xC2B2AE35) & np.uint64(0xFFFFFFFF)
    return word ^ (word >> np.uint64(16))


@compiled
def dropout_masks(states, keep, masks, first, last, row_start, row_stop, start, stop, positions, source, pixels=0):  # type: ignore[no-untyped-def]
    """masks[t, box] = 1 / keep where the number of (state of the sample, neuron, t) is below keep, else 0; or of one
    mask. pixels: of planes instead of neurons, which have so many side by side."""
    every, one, columns = in_time(masks), keep.dtype.type(1), masks.shape[-1]
    below, each = np.uint64(np.float64(keep[0]) * 4294967296.0), one / keep[0]
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                place = n // pixels if pixels else b % positions * columns + n
                number = np.uint64(place) * np.uint64(0x9E3779B1)
                word = np.uint64(states[b // positions]) + number + np.uint64(source) * np.uint64(0xC2B2AE3D)
                for t in range(len(every)):
                    at = (word + np.uint64(t) * np.uint64(0x85EBCA77)) & np.uint64(0xFFFFFFFF)
                    every[t, b, n] = each if mixed(at) < below else 0


@compiled
def multiply_boxes(values, mask, target, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target[box] = values[box] * mask[box]."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = values[b, n] * mask[b, n]


@compiled
def add_row(source, row, target, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target = source + row[0], the row for every sample."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = source[b, n] + row[0, n]


@compiled
def multiply_row(source, row, target, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target = source * row[0], the row for every sample."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[b, n] = source[b, n] * row[0, n]


@compiled
def sum_products(one, other, pieces, row_start, row_stop, start, stop, piece):  # type: ignore[no-untyped-def]
    """pieces[piece, n] = sum of one[:, n] * other[:, n] over the samples of the box."""
    for i in range(len(start)):
        for n in range(start[i], stop[i]):
            total = one.dtype.type(0)
            for b in range(row_start[i], row_stop[i]):
                total += one[b, n] * other[b, n]
            pieces[piece[i], n] = total


@compiled
def add_pieces(total, pieces, start, stop):  # type: ignore[no-untyped-def]
    """total[0, n] += sum over the first axis of pieces[:, n]."""
    for i in range(len(start)):
        for n in range(start[i], stop[i]):
            value = pieces[0, n]
            for p in range(1, pieces.shape[0]):
                value += pieces[p, n]
            total[0, n] += value


@compiled
def average_pieces(average, pieces, start, stop, values):  # type: ignore[no-untyped-def]
    """average[0, n] = sum over the first axis of pieces[:, n], divided by the number of values."""
    for i in range(len(start)):
        for n in range(start[i], stop[i]):
            total = pieces[0, n]
            for p in range(1, pieces.shape[0]):
                total += pieces[p, n]
            average[0, n] = total / values


# Rows of statistics have a number for each column: of a matrix, or of all timesteps of a sequence; or one number after
# the other for each of its timesteps (`turn_rows`).


@compiled
def sum_rows(source, pieces, row_start, row_stop, start, stop, piece):  # type: ignore[no-untyped-def]
    """pieces[piece, n] = sum of source[..., n] over the rows of the box."""
    every = in_time(source)
    each = pieces.shape[1] // every.shape[2]
    for i in range(len(start)):
        for k in range(start[i] * each, stop[i] * each):
            total = every.dtype.type(0)
            for t in range(k % each, every.shape[0], each):
                now = every.dtype.type(0)
                for b in range(row_start[i], row_stop[i]):
                    now += every[t, b, k // each]
                total += now
            pieces[piece[i], k] = total


@compiled
def sum_squares_apart(source, mean, pieces, row_start, row_stop, start, stop, piece):  # type: ignore[no-untyped-def]
    """pieces[piece, n] = sum of (source[..., n] - mean[0, n])^2 likewise."""
    every = in_time(source)
    each = pieces.shape[1] // every.shape[2]
    for i in range(len(start)):
        for k in range(start[i] * each, stop[i] * each):
            total = every.dtype.type(0)
            for t in range(k % each, every.shape[0], each):
                now = every.dtype.type(0)
                for b in range(row_start[i], row_stop[i]):
                    apart = every[t, b, k // each] - mean[0, k]
                    now += apart * apart
                total += now
            pieces[piece[i], k] = total


@compiled
def normalise_boxes(source, mean, variance, gain, bias, target, row_start, row_stop, start, stop, epsilon):  # type: ignore[no-untyped-def]
    """target = gain * (source - mean) / sqrt(variance + epsilon) + bias, rows for every sample."""
    every, made = in_time(source), in_time(target)
    each = mean.shape[1] // every.shape[2]
    for i in range(len(start)):
        for k in range(start[i] * each, stop[i] * each):
            n, scale = k // each, gain[0, k] / np.sqrt(variance[0, k] + epsilon)
            for t in range(k % each, every.shape[0], each):
                for b in range(row_start[i], row_stop[i]):
                    made[t, b, n] = (every[t, b, n] - mean[0, k]) * scale + bias[0, k]


@compiled
def sum_normalised(q, x, mean, variance, gains, biases, row_start, row_stop, start, stop, piece, epsilon):  # type: ignore[no-untyped-def]
    """biases[piece, n] = sum of q[..., n] over the rows of the box, gains of q times what the norm makes of x."""
    every, of = in_time(q), in_time(x)
    each = mean.shape[1] // every.shape[2]
    for i in range(len(start)):
        for k in range(start[i] * each, stop[i] * each):
            gained = total = every.dtype.type(0)
            for t in range(k % each, every.shape[0], each):
                gained_now = now = every.dtype.type(0)
                for b in range(row_start[i], row_stop[i]):
                    gained_now += every[t, b, k // each] * (of[t, b, k // each] - mean[0, k])
                    now += every[t, b, k // each]
                gained += gained_now
                total += now
            gains[piece[i], k] = gained / np.sqrt(variance[0, k] + epsilon)
            biases[piece[i], k] = total


@compiled
def norm_gradient(  # type: ignore[no-untyped-def]
    q, x, mean, variance, gain, d_gain, d_bias, target, row_start, row_stop, start, stop, epsilon, values
):
    """target = the gradient of x, of which `values` in every column have the mean and the variance."""
    every, of, made = in_time(q), in_time(x), in_time(target)
    each = mean.shape[1] // every.shape[2]
    for i in range(len(start)):
        for k in range(start[i] * each, stop[i] * each):
            n, inverse = k // each, every.dtype.type(1) / np.sqrt(variance[0, k] + epsilon)
            scale, shift, slope = gain[0, k] * inverse, d_bias[0, k] / values, d_gain[0, k] * inverse / values
            for t in range(k % each, every.shape[0], each):
                for b in range(row_start[i], row_stop[i]):
                    made[t, b, n] = scale * (every[t, b, n] - shift - slope * (of[t, b, n] - mean[0, k]))


@compiled
def turn_rows(rows, row, start, stop, begin, end):  # type: ignore[no-untyped-def]
    """row[0, begin:end] = columns start to stop of `rows` one after the other."""
    for i in range(len(start)):
        for n in range(start[i], stop[i]):
            for t in range(len(rows)):
                row[0, begin[i] + (n - start[i]) * len(rows) + t] = rows[t, n]


@compiled
def turn_row(row, rows, start, stop, begin, end):  # type: ignore[no-untyped-def]
    """The reverse."""
    for i in range(len(start)):
        for n in range(start[i], stop[i]):
            for t in range(len(rows)):
                rows[t, n] = row[0, begin[i] + (n - start[i]) * len(rows) + t]


@compiled
def average_boxes(held, now, row_start, row_stop, start, stop, kept, share):  # type: ignore[no-untyped-def]
    """held = kept * held + share * now."""
    for i in range(len(start)):
        for b in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                held[b, n] = kept * held[b, n] + share * now[b, n]


def multiply_blocks(left_transposed: bool, right_transposed: bool) -> Callable[..., None]:
    """The partial products of a table: partial[part, rows, columns] = left[rows, inner] @ right[inner, columns].

    Either operand may be stored transposed; partial may lack its first axis. Blocks of one part that together fill a
    rectangle take one call of the matrix library, which touches exactly their boxes. of_weights: of groups, bounds in
    the weights (the right operand; the partial sums, where the left is transposed) along the axis that they count
    otherwise there.
    """

    def compute(  # type: ignore[no-untyped-def]
        left, right, partial, row_start, row_stop, inner_start, inner_stop, start, stop, part, *of_weights
    ):
        a, b = left.T if left_transposed else left, right.T if right_transposed else right
        whole = partial if partial.ndim == 3 else partial[None]
        rows = of_weights if of_weights and left_transposed else (row_start, row_stop)  # of what is made
        apart = row_start - rows[0], np.zeros_like(start), np.zeros_like(start)  # of the left, of the right
        if of_weights and right_transposed:
            apart = apart[0], of_weights[0] - start, apart[2]
        elif of_weights and not left_transposed:
            apart = apart[0], apart[1], of_weights[0] - inner_start
        every = _numbered(part, inner_start, *apart) if of_weights else part
        for one in np.unique(every):
            chosen = np.flatnonzero(every == one)
            k = chosen[0]
            down, across, along = (int(each[k]) for each in apart)
            low, high = int(inner_start[k]), int(inner_stop[k])
            for box in _rectangles(rows[0][chosen], rows[1][chosen], start[chosen], stop[chosen]):
                top, bottom, first, last = box
                read = b[low + along : high + along, first + across : last + across]
                whole[part[k], top:bottom, first:last] = a[top + down : bottom + down, low:high] @ read

    return compute


def _numbered(*columns: np.ndarray) -> np.ndarray:
    """One number for every combination of values."""
    number = np.zeros_like(columns[0])
    for each in columns:
        number = number * (each.max() - each.min() + 1) + each - each.min()
    return number


def _rectangles(
    row_start: np.ndarray, row_stop: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> list[tuple[int, int, int, int]]:
    """The rectangle that the boxes fill, or the boxes themselves if they leave gaps."""
    top, bottom, first, last = int(row_start.min()), int(row_stop.max()), int(start.min()), int(stop.max())
    if int(((row_stop - row_start) * (stop - start)).sum()) == (bottom - top) * (last - first):
        return [(top, bottom, first, last)]
    return list(zip(row_start.tolist(), row_stop.tolist(), start.tolist(), stop.tolist(), strict=True))


@compiled
def sum_parts(partial, total, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """total[box] = sum over the first axis of partial[:, box]."""
    for i in range(len(start)):
        for r in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                value = partial[0, r, n]
                for p in range(1, partial.shape[0]):
                    value += partial[p, r, n]
                total[r, n] = value


@compiled
def add_boxes(target, more, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target[box] += more[box]."""
    sum_boxes(target, more, target, row_start, row_stop, start, stop)


@compiled
def sum_boxes(one, other, target, row_start, row_stop, start, stop):  # type: ignore[no-untyped-def]
    """target[box] = one[box] + other[box]."""
    for i in range(len(start)):
        for r in range(row_start[i], row_stop[i]):
            for n in range(start[i], stop[i]):
                target[r, n] = one[r, n] + other[r, n]


# ---- arithmetic of cells element by element on boxes of [samples, neurons] matrices: graph/elementwise.py in float32


SIGMOID, TANH, EXPONENTIAL, RELU, RECIPROCAL, SQRT, LOGARITHM = range(7)
KINDS = {
    "sigmoid": SIGMOID, "tanh": TANH, "exponential": EXPONENTIAL, "relu": RELU, "reciprocal": RECIPROCAL, "sqrt": SQRT,
    "log": LOGARITHM,
}  # fmt: skip


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
    if kind == SQRT:
        return real(math.sqrt(exact)) if exact >= 0 else real(np.nan)
    if kind == LOGARITHM:
        return real(math.log(exact)) if exact > 0 else real(-np.inf) if exact == 0 else real(np.nan)
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
    if kind == SQRT:
        return like.dtype.type(0.5) / y if y != 0 else like.dtype.type(np.inf)
    if kind == LOGARITHM:
        return like.dtype.type(math.exp(-np.float64(y)))
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
