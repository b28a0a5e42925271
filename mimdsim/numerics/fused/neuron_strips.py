"""Linear neurons, WIDTH of them at a time: their equations as sums of weighted strips.

A map is (sums, sources, coefficients). A row of sums int64[n, 3] is a strip that is made and its terms, from the first
up to the last; sources int64[terms] names the strip that each term weighs; coefficients float32[blocks, terms, 2,
WIDTH] are those of neurons that have not fired and those of neurons that have. Strips are numbered as follows.

    forward     states, current, ones | states made, potential
    backward    adjoints of states | adjoints of states made, gradient of the current
"""

from __future__ import annotations

import numba
import numpy as np

from mimdsim.numerics.fused.vectors import WIDTH, weigh_strips


@numba.njit(cache=True, nogil=True)
def change_strip(block, change, strips, dx, at, states, made):  # type: ignore[no-untyped-def]
    """made <- the change of states that firing makes, by a map of its own on strips as before `forward`, times dx."""
    sums, sources, coefficients = change
    weigh_strips(strips, sums, sources, coefficients.reshape(-1), block * coefficients[0].size, np.uint64(0))
    made[:] = 0
    for state in range(states):
        changes = strips[(states + 2 + state) * WIDTH : (states + 3 + state) * WIDTH]
        adjoints = dx[at + state * WIDTH : at + (state + 1) * WIDTH]
        for n in range(len(made)):
            made[n] += adjoints[n] * changes[n]
