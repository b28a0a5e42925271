"""What PyTorch does with lists of spikes, for `training_speed.py`: the mathematics of mimdsim by sparse operators.

No autograd: gradients are written out, since a sparse operator's own gradient is dense. What `whole` computes
is computed here too, with the same two thresholds, masked reset and gradients (to float32 rounding; checked by
`training_speed.py`). NumPy makes the lists, being faster at it than PyTorch. A way is named by one of each of

    sums of rows        csr: torch.sparse.mm; bag: embedding_bag, whose kernel is generated for the processor (FBGEMM)
    loops over time     eager: in place, two operators a timestep; compiled: torch.compile, CHUNK timesteps at a time
    weights             uncut, or cut in blocks of columns that fit in a second-level cache

Products of listed rows are torch.sparse.sampled_addmm in all of them: no other operator computes only what is listed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn import functional

CHUNK = 10  # timesteps compiled together; more are slower
CUT = 256  # columns of a block of weights: about 1.5 MB of 1,472 rows
warnings.filterwarnings("ignore", "Sparse (CSR|invariant)")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Ids of every place (timestep * batch + sample), ascending: ids[starts[place]:starts[place + 1]]."""

    starts: torch.Tensor
    ids: torch.Tensor

    @classmethod
    def of(cls, place: np.ndarray, ids: np.ndarray, places: int) -> Listed:
        starts = np.zeros(places + 1, np.int64)
        np.cumsum(np.bincount(place, minlength=places), out=starts[1:])
        return cls(starts=torch.from_numpy(starts.astype(np.int32)), ids=torch.from_numpy(ids.astype(np.int32)))

    def later(self, places: int) -> Listed:
        """As the next layer reads them: `places` later, the last ones not at all."""
        if not places:
            return self
        starts = self.starts[: len(self.starts) - places]
        return Listed(starts=functional.pad(starts, (places, 0)), ids=self.ids[: int(starts[-1])])

    def by_id(self, neurons: int) -> Listed:
        """Places by id."""
        ids = self.ids.numpy()
        place = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts.numpy()))
        order = np.argsort(ids.astype(np.uint16) if neurons < 1 << 16 else ids, kind="stable")
        return Listed.of(ids[order], place[order], neurons)

    def sums(self, rows: torch.Tensor, kind: str) -> torch.Tensor:
        """[places, columns]: the listed rows added up."""
        if kind == "bag":
            return functional.embedding_bag(self.ids, rows, self.starts, mode="sum", include_last_offset=True)
        return torch.sparse.mm(self.matrix(torch.ones(len(self.ids)), len(rows)), rows)

    def matrix(self, values: torch.Tensor, columns: int) -> torch.Tensor:
        return torch.sparse_csr_tensor(self.starts, self.ids, values, (len(self.starts) - 1, columns))

    def products(self, q: list[torch.Tensor], weights: list[torch.Tensor]) -> torch.Tensor:
        """For everything listed, its row of weights times that of q at its place."""
        made = self.matrix(torch.zeros(len(self.ids)), len(weights[0]))
        for each, w in zip(q, weights, strict=True):
            made = torch.sparse.sampled_addmm(made, each, w.t())
        return made.values()


def advance(v: torch.Tensor, currents: torch.Tensor, decay: float) -> torch.Tensor:
    """Potentials of some timesteps."""
    made = []
    for current in currents:
        v = torch.where(v <= 1.0, v * decay, 0.0) + current
        made.append(v)
    return torch.stack(made)


def go_back(q: torch.Tensor, given: torch.Tensor, potentials: torch.Tensor, decay: float) -> torch.Tensor:
    """Adjoints of some timesteps, from the last to the first, from the one after and what is listed."""
    made = []
    for t in range(len(given) - 1, -1, -1):
        q = torch.where(potentials[t] <= 1.0, q * decay, 0.0) + given[t]
        made.append(q)
    return torch.stack(made[::-1])


class Loops:
    """The recursions over time, in place over [timesteps, batch, columns]."""

    def __init__(self, decay: float, compiled: bool):
        self.decay, self.compiled = decay, compiled
        self.ahead, self.back = (torch.compile(each, dynamic=False) for each in (advance, go_back))

    def forward(self, currents: torch.Tensor) -> torch.Tensor:
        before = torch.zeros_like(currents[0])
        if self.compiled:
            made = []
            for chunk in currents.split(CHUNK):
                made.append(self.ahead(before, chunk, self.decay))
                before = made[-1][-1]
            return torch.cat(made)
        for last, current in pairwise(currents):
            current.addcmul_(last, torch.le(last, 1.0, out=before), value=self.decay)
        return currents

    def backward(self, q: torch.Tensor, potentials: torch.Tensor) -> torch.Tensor:
        kept = torch.zeros_like(q[0])
        if self.compiled:
            made = []
            for given, at in zip(reversed(q.split(CHUNK)), reversed(potentials.split(CHUNK)), strict=True):
                made.append(self.back(kept, given, at, self.decay))
                kept = made[-1][0]
            return torch.cat(made[::-1])
        for t in range(len(q) - 2, -1, -1):
            q[t].addcmul_(q[t + 1], torch.le(potentials[t], 1.0, out=kept), value=self.decay)
        return q


class SparseLayer:
    """Weights [inputs, neurons] in blocks of columns, and what its last forward pass left."""

    def __init__(self, weights: np.ndarray, lag: int, sums: str, loops: Loops, width: int, problem: Any):
        self.neurons, self.lag, self.kind, self.loops = weights.shape[1], lag, sums, loops
        self.second, self.slope = float(problem["second_threshold"]), float(problem["slope"])
        scale = np.float32((1 - problem["decay"]) * problem["gain"])
        self.edges = list(range(0, self.neurons, width))
        blocks = (np.ascontiguousarray(weights[:, at : at + width] * scale) for at in self.edges)
        self.weights = [torch.nn.Parameter(torch.from_numpy(block)) for block in blocks]

    def forward(self, source: Listed, batch: int) -> Listed:
        """True spikes; what is listed and its surrogate is kept."""
        self.source = source.later(self.lag)
        places = len(source.starts) - 1
        self.potentials = [
            self.loops.forward(self.source.sums(w, self.kind).view(-1, batch, w.shape[1])) for w in self.weights
        ]
        keys, values = [], []
        for at, potentials in zip(self.edges, self.potentials, strict=True):
            flat = potentials.numpy().reshape(-1)
            found = np.flatnonzero(flat > self.second)
            width = potentials.shape[2]
            keys.append(found // width * self.neurons + found % width + at)
            values.append(flat[found])
        key, value = np.concatenate(keys), np.concatenate(values)
        if len(keys) > 1:
            order = np.argsort(key)
            key, value = key[order], value[order]
        place, ids = np.divmod(key, self.neurons)
        self.listed, fired = Listed.of(place, ids, places), value > 1.0
        self.surrogate = torch.from_numpy((np.float32(self.slope) * np.abs(value - 1) + 1) ** -2)
        self.at = torch.from_numpy(place), torch.from_numpy(ids)
        return Listed.of(place[fired], ids[fired], places)

    def backward(self, g: torch.Tensor, before: SparseLayer | None) -> torch.Tensor | None:
        """Sets the gradients of the weights; returns those of what the layer before lists."""
        place, ids = self.at
        adjoints, by_id = [], self.source.by_id(len(self.weights[0]))
        for begin, w, potentials in zip(self.edges, self.weights, self.potentials, strict=True):
            q, given = torch.zeros(potentials.shape), g * self.surrogate
            here, to, what = place, ids, given
            if len(self.edges) > 1:
                inside = (ids >= begin) & (ids < begin + w.shape[1])
                here, to, what = place[inside], ids[inside] - begin, given[inside]
            q.view(-1, w.shape[1]).index_put_((here, to), what)
            q = self.loops.backward(q, potentials).view(-1, w.shape[1])
            w.grad = by_id.sums(q, self.kind)
            adjoints.append(q)
        if before is None:
            return None
        listed = before.listed.later(self.lag)
        found = listed.products(adjoints, list(self.weights))
        return functional.pad(found, (0, len(before.listed.ids) - len(found)))


def training_step(problem: Any, way: str, threads: int) -> Callable[[], float]:
    """A function that does one training step and returns its loss; its `gradients()` are [inputs, neurons]."""
    torch.set_num_threads(threads)
    sums, loop, cut = way.split("_")
    loops = Loops(float(problem["decay"]), loop == "compiled")
    batch, count = problem["ids"].shape[1], len(problem["widths"]) - 1
    layers = [
        SparseLayer(problem[f"w{index}"], batch * bool(index), sums, loops, CUT if cut == "cut" else 1 << 30, problem)
        for index in range(count)
    ]
    given = np.arange(problem["ids"].shape[2]) < problem["counts"][..., :1]
    t, b, _ = np.nonzero(given)
    source = Listed.of(t * batch + b, problem["ids"][given], given.shape[0] * batch)
    labels, scale = torch.tensor(problem["labels"], dtype=torch.long), float(problem["logit_scale"])
    parameters = [w for layer in layers for w in layer.weights]
    optimiser: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=0.0)
    if str(problem["optimiser"]) == "adam":
        optimiser = torch.optim.Adam(parameters, lr=0.0, eps=1e-7)

    @torch.no_grad()
    def step() -> float:
        spikes = source
        for layer in layers:
            spikes = layer.forward(spikes, batch)
        place = np.repeat(np.arange(len(spikes.starts) - 1), np.diff(spikes.starts.numpy()))
        where = place % batch * layers[-1].neurons + spikes.ids.numpy()
        totals = np.bincount(where, minlength=batch * layers[-1].neurons).reshape(batch, -1)
        logits = scale * torch.from_numpy(totals.astype(np.float32))
        loss = functional.cross_entropy(logits, labels)
        judged = torch.softmax(logits, 1)
        judged[torch.arange(batch), labels] -= 1
        place_of, ids = layers[-1].at
        g: Any = (judged * (scale / batch))[place_of % batch, ids]
        for layer, before in zip(reversed(layers), [*reversed(layers[:-1]), None], strict=True):
            g = layer.backward(g, before)
        optimiser.step()
        return float(loss)

    def gradients() -> list[np.ndarray]:
        gain = np.float32((1 - problem["decay"]) * problem["gain"])  # of the weights, which it is multiplied into
        return [np.concatenate([w.grad.numpy() for w in layer.weights], axis=1) * gain for layer in layers]

    step.gradients = gradients  # type: ignore[attr-defined]
    return step
