"""Least squares in a box, and which measurements cannot be met together inside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

MET = 2.0  # spreads by which a measurement may be missed
MISSED = 1e-3  # spreads beyond that count as a miss: the accuracy of the search
MOST_STEPS, MOST_HALVINGS = 200, 60
RIDGE = 1e-9
Derivatives = tuple[float, np.ndarray, np.ndarray]  # value, gradient [n] and matrix of second derivatives [n, n]
Function = Callable[[np.ndarray], Derivatives]


def least_in_box(function: Function, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Where a convex function is least among low <= z <= high, float64[n]; second derivatives may jump.

    Projected Newton: a step of the numbers that are free to move, shortened until the function falls (Bertsekas 1982).
    """

    def moved(direction: np.ndarray) -> tuple[np.ndarray, Derivatives] | None:
        """The first of ever shorter steps that lowers the function enough; None if none does."""
        for halvings in range(MOST_HALVINGS):
            tried = np.clip(z + direction / 2.0**halvings, low, high)
            found = function(tried)
            if found[0] < value and found[0] <= value + 1e-4 * float(gradient @ (tried - z)):
                return tried, found
        return None

    z = np.clip(np.zeros_like(low), low, high)
    value, gradient, curvature = function(z)
    for _ in range(MOST_STEPS):
        held = ((z <= low) & (gradient > 0)) | ((z >= high) & (gradient < 0))
        free = np.flatnonzero(~held)
        if not len(free) or np.abs(gradient[free]).max() < 1e-10 * (1 + abs(value)):
            break
        step = np.zeros_like(z)
        step[free] = -np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        descent = np.where(held, 0.0, -gradient / max(np.trace(curvature), 1.0))
        lower = moved(step) or moved(descent)
        if lower is None:
            break
        z, (value, gradient, curvature) = lower
    return np.asarray(z)


def closest(effects: np.ndarray, distances: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """float64[n]: the z in the box with the least |z|^2 + |effects z - distances|^2; effects float64[rows, n]."""
    curvature = np.eye(len(low)) + effects.T @ effects
    towards = effects.T @ distances

    def squares(z: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        slope = curvature @ z - towards
        return float(z @ (slope - towards)) / 2, slope, curvature

    return least_in_box(squares, low, high)


def misses(effects: np.ndarray, distances: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """float64[rows]: by how many spreads rows are missed beyond MET, where the sum of their squares is least."""
    ridge = RIDGE * np.eye(len(low))

    def beyond(z: np.ndarray) -> np.ndarray:
        off = effects @ z - distances
        return np.asarray(off - np.clip(off, -MET, MET))

    def squares(z: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        off = beyond(z)
        of_missed = effects[off != 0]
        value = (float(off @ off) + RIDGE * float(z @ z)) / 2
        return value, effects.T @ off + RIDGE * z, of_missed.T @ of_missed + ridge

    return np.asarray(np.abs(beyond(least_in_box(squares, low, high))))


def contradictions(
    effects: np.ndarray, distances: np.ndarray, low: np.ndarray, high: np.ndarray
) -> list[tuple[int, ...]]:
    """Sets of rows that no z in the box meets together, though it meets all of a set but any one; disjoint, so that
    all rows outside of them can be met together. A set of one row cannot be met at all."""

    def missed(rows: Sequence[int]) -> np.ndarray:
        chosen = list(rows)
        return misses(effects[chosen], distances[chosen], low, high)

    left, found = list(range(len(distances))), []
    while left:
        off = missed(left)
        if off.max() <= MISSED:
            break
        # those that are missed at the least sum of squares contradict each other alone: its slope is theirs
        order = np.argsort(off, kind="stable")
        core = [left[at] for at in order if off[at] > 0]
        if missed(core).max() <= MISSED:
            core = [left[at] for at in order]
        for row in list(core):
            others = [each for each in core if each != row]
            if others and missed(others).max() > MISSED:
                core = others
        found.append(tuple(sorted(core)))
        left = [row for row in left if row not in core]
    return found
