"""What the operations on lists of spikes mean on dense arrays, as kernels without lists compute them.

A list becomes two arrays of 0 and 1 over all neurons: which fired, and which are listed (those, and gradient entries).
The gradient of a list becomes an array over all neurons; what is not listed is masked where the surrogate is applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.graph.operations import OPERATIONS
from mimdsim.graph.records import Operation, SparseSpikes
from mimdsim.graph.spikes import Selection, surrogate
from mimdsim.graph.synapses import BySample, Zeros, by_sample


@dataclass(frozen=True, kw_only=True)
class DenseSpikes:
    """Spikes as arrays [..., batch, neurons] of 0 and 1: `fired`, and `listed`, which holds gradient entries too."""

    fired: np.ndarray
    listed: np.ndarray

    def at(self, index: Any) -> DenseSpikes:
        return DenseSpikes(fired=self.fired[index], listed=self.listed[index])


def densify(spikes: SparseSpikes, neurons: int, dtype: Any) -> DenseSpikes:
    """The arrays of `spikes` over `neurons` neurons."""
    slot = np.arange(spikes.ids.shape[-1])
    arrays = []
    for column in (0, spikes.counts.shape[-1] - 1):
        real = slot < spikes.counts[..., column : column + 1]
        dense = np.zeros((*spikes.ids.shape[:-1], neurons), dtype)
        where = np.nonzero(real)
        dense[(*where[:-1], spikes.ids[real])] = 1
        arrays.append(dense)
    return DenseSpikes(fired=arrays[0], listed=arrays[1])


def _zeros(zeros: Zeros, reference: np.ndarray) -> tuple[Any]:
    dense = np.zeros(zeros.shape, reference.dtype)
    return (DenseSpikes(fired=dense, listed=dense) if zeros.form == "sparse" else dense,)


def _select(selection: Selection, v: np.ndarray, *given: Any) -> tuple[DenseSpikes]:
    (spikes,) = OPERATIONS["select_spikes"].evaluate(selection, v, *given)
    return (densify(spikes, v.shape[-1], v.dtype),)


def _select_gradient(selection: Selection, gradient: np.ndarray, spikes: DenseSpikes, v: np.ndarray) -> Any:
    return (gradient * spikes.listed * surrogate(selection, v),)


def _fired_only(kind: str) -> Callable[..., tuple[Any, ...]]:
    """The operation's own meaning on dense spikes, of those that fired."""
    return lambda attributes, spikes: OPERATIONS[kind].evaluate(attributes, _fired(spikes).astype(np.float64))


def _listed_only(kind: str) -> Callable[..., tuple[Any, ...]]:
    """The gradient that the operation gives dense spikes, at what is listed."""

    def meaning(attributes: Any, gradient: np.ndarray, spikes: Any) -> tuple[np.ndarray]:
        (made,) = OPERATIONS[kind].evaluate(attributes, gradient, _fired(spikes))
        return ((made * spikes.listed).astype(gradient.dtype) if isinstance(spikes, DenseSpikes) else made,)

    return meaning


def _fired(value: Any) -> np.ndarray:
    found: np.ndarray = value.fired if isinstance(value, DenseSpikes) else value
    return found


def _on_fired(kind: str) -> Callable[..., tuple[Any, ...]]:
    """The operation on arrays, with what has fired in the place of lists."""

    def evaluate_dense(attributes: Any, *given: Any) -> tuple[Any, ...]:
        found: tuple[Any, ...] = OPERATIONS[kind].evaluate(attributes, *(_fired(value) for value in given))
        return found

    return evaluate_dense


MEANINGS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "zeros": _zeros,
    "select_spikes": _select,
    "select_gradient": _select_gradient,
    "emitted": lambda _, spikes: (spikes.fired.astype(bool),),
    "emitted_gradient": lambda _, gradient, spikes: (gradient * spikes.listed,),
    **{
        kind: _on_fired(kind)
        for kind in ("self_synapse", "self_synapse_weight_gradient", "self_synapse_spike_gradient")
    },
    **{kind: _fired_only(kind) for kind in ("spike_counts", "spikes_by_timestep", "firing_penalty")},
    "firing_penalty_gradient": _fired_only("firing_penalty_gradient"),
    **{kind: _listed_only(kind) for kind in ("spike_counts_gradient", "listed_of")},
}


def evaluate(op: Operation, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Outputs of an operation that is no matrix product; raises MappingError where lists have no dense meaning here."""
    if op.kind in MEANINGS:
        return MEANINGS[op.kind](op.attributes, *given)
    if any(isinstance(value, DenseSpikes) for value in given):
        raise MappingError(
            f"operation '{op.name}' of kind '{op.kind}' reads spikes and has no dense meaning; "
            f"known: {sorted(MEANINGS)} and matrix products: add it to tests/support/gpu_dense_meaning.py"
        )
    return OPERATIONS[op.kind].evaluate(op.attributes, *given)


def _rows(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, array.shape[-1])


# kind -> (left operand, right operand), both with rows and columns as they are multiplied
OPERANDS: dict[str, Callable[[tuple[Any, ...]], tuple[np.ndarray, np.ndarray]]] = {
    "matmul": lambda given: (_fired(given[0]), given[1]),
    "synapse": lambda given: (_fired(given[0]), given[1]),
    "matmul_input_gradient": lambda given: (given[0], given[1].T),
    "synapse_spike_gradient": lambda given: (given[0], given[2].T),
    "matmul_weight_gradient": lambda given: (_rows(_fired(given[1])).T, _rows(given[0])),
    "synapse_weight_gradient": lambda given: (_rows(_fired(given[1])).T, _rows(given[0])),
}


def product(kind: str, given: tuple[Any, ...], groups: Any = None) -> np.ndarray:
    """One matrix product, or one of each of so many groups of columns side by side (of dense spikes); operands with a
    leading axis of timesteps are taken as that many more rows.

    A weight gradient sums over all rows, those of all timesteps included.
    """
    if isinstance(groups, BySample):  # timesteps are that many more samples
        timesteps = given[0].shape[:-2]
        (made,) = by_sample(replace(groups, samples=groups.samples * math.prod(timesteps)), *map(_rows, given))
        return made.reshape(*timesteps, -1, made.shape[-1])
    if kind.startswith("matmul") and (groups or 1) > 1:
        parts = zip(*(np.split(each, groups, axis=-1) for each in given), strict=True)
        return np.concatenate([product(kind, part) for part in parts], axis=-1)
    left, right = OPERANDS[kind](given)
    found: np.ndarray = (_rows(left) @ right).reshape(*left.shape[:-1], right.shape[-1])
    return found
