"""The maps of linear neurons as the kernels of `numerics.fused.whole_linear` take them: sums of weighted strips."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimdsim.codelets.linear_terms import packed
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.numerics.fused.vectors import WIDTH

Sums = tuple[np.ndarray, np.ndarray, np.ndarray]
Term = tuple[int, int, np.ndarray]  # the strip it adds to, the strip it weighs, its coefficients [2, neurons]


class Maps:
    """ahead: a timestep; back: its transpose; change: what firing changes in the states; readout: of potentials, by
    state: (states int64[rows], weights float32[blocks, rows, WIDTH]). Numbering of strips as in the kernels."""

    def __init__(self, neuron: LinearNeuron, neurons: int):
        """The neuron resets if it has a map for that; its gradient follows `reset_gradient`."""
        made, states = packed(neuron, neurons, switched=neuron.resets), len(neuron.states)
        ones, after, count = states + 1, states + 2, -(-neurons // WIDTH)

        def pair(places: Sequence[int], uniform: np.ndarray) -> np.ndarray:
            pairs = zip(places, uniform, strict=True)
            rows = [np.full(neurons, number) if at < 0 or made.own is None else made.own[at] for at, number in pairs]
            return np.array(rows, np.float32)

        def sums(terms: list[Term], first: int, last: int) -> Sums:
            """Strips first..last-1 from their terms, in the order given."""
            ordered = sorted(terms, key=lambda term: term[0])
            ends = np.searchsorted([into for into, _, _ in ordered], np.arange(first, last + 1))
            rows = np.stack([np.arange(first, last), ends[:-1], ends[1:]], axis=1)
            weights = np.array([weights for _, _, weights in ordered], np.float32).reshape(-1, neurons)
            sources = np.array([source for _, source, _ in ordered], np.int64)
            return rows, sources, _in_blocks(weights).reshape(count, len(ordered), 2, WIDTH)

        terms = [
            (int(row), int(column), pair(places, uniform))
            for (row, column, *places), uniform in zip(made.terms, made.uniform, strict=True)
        ]
        reading = [
            (int(row), pair((place, place), weights))
            for (row, place), weights in zip(made.readout, made.weights, strict=True)
        ]
        potential = [(after + states, after + row if row < states else ones, weights) for row, weights in reading]
        own = [(after + row, column, weights) for row, column, weights in terms]
        self.ahead = sums([*own, *potential], after, after + states + 1)
        applied = [0, 0] if neuron.reset_gradient == "pass" else [0, 1]
        transposed = [(states + column, row, weights[applied]) for row, column, weights in terms if column <= states]
        self.back = sums(transposed, states, 2 * states + 1)
        changes = [(into, column, weights[[1, 1]] - weights[[0, 0]]) for into, column, weights in own]
        self.change = sums([each for each in changes if each[2].any()], after, after + states)
        read = [(row, weights[0]) for row, weights in reading if row < states]
        each = np.array([weights for _, weights in read], np.float32).reshape(-1, neurons)
        self.readout = np.array([row for row, _ in read], np.int64), _in_blocks(each)


def _in_blocks(rows: np.ndarray) -> np.ndarray:
    """[blocks, rows, WIDTH] from [rows, neurons], zeros beyond the last neuron."""
    count, neurons = rows.shape
    blocks = -(-neurons // WIDTH)
    wide = np.zeros((count, blocks * WIDTH), np.float32)
    wide[:, :neurons] = rows
    return np.ascontiguousarray(wide.reshape(count, blocks, WIDTH).transpose(1, 0, 2))
