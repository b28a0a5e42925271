"""Input gradients in one pass have the bits of products, sums over a group's parts and sums over groups in turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mimdsim.functional.input_gradients import InputGradient, Spread
from mimdsim.functional.lists import Padded
from mimdsim.functional.shares import Shares, aligned
from mimdsim.numerics.fused import gradients as fused
from mimdsim.numerics.fused.nested import EIGHT
from mimdsim.numerics.fused.vectors import WIDTH
from mimdsim.numerics.lists import spikes


@pytest.mark.parametrize(
    "sizes", [[1] * 70, [2] * 40, [2] * 9, [3] * 21 + [1], [4] * 50, [5, 3] * 7, [9], [1, 4, 2] * 11]
)
@pytest.mark.parametrize("group", [1, 3, 8, 100])
def test_nested_sums_have_the_bits_of_sums_in_turn(sizes: list[int], group: int) -> None:
    draw = np.random.default_rng(len(sizes) + group)
    inputs, batch, capacity, parts = 40, 5, 21, len(sizes)
    stops = np.cumsum(sizes)
    starts, groups = stops - sizes, max(1, parts // group)
    group_of = np.minimum(np.arange(parts) // group, groups - 1)
    w, q = (draw.normal(size=(rows, stops[-1])).astype(np.float32) for rows in (inputs, batch))
    q[1] *= np.float32(-0.0)
    counts = np.stack([np.zeros(batch, int), [0, 1, 8, 13, 21]], axis=1).astype(np.int32)
    ids = draw.integers(0, inputs, (batch, capacity)).astype(np.int32)

    each = np.arange(batch).repeat(parts), np.tile(starts, batch), np.tile(stops, batch)
    partial, stage = np.zeros((parts, batch, capacity), np.float32), np.zeros((groups, batch, capacity), np.float32)
    spikes.input_gradient(partial, w, q, ids, counts, np.tile(np.arange(parts), batch), *each)
    number, sample, slot = np.unravel_index(np.arange(stage.size), stage.shape)
    edges = np.append(np.searchsorted(group_of, np.arange(groups)), parts)
    spikes.reduce_parts(partial, counts, stage, edges[number], edges[number + 1], number, sample, slot)
    wanted, made = np.zeros((2, batch, capacity), np.float32)
    spikes.reduce_groups(stage, wanted, np.arange(batch), np.zeros(batch, int), counts[:, 1].astype(int))

    spread = Spread.of(starts, stops, group_of)
    blocks, width = spread.taken.shape
    weights, begins = aligned((blocks, inputs, width)), np.zeros(batch + 1, np.int64)
    order = spread.order(spread.taken)
    assert order[-1][0] == (len(sizes) > 20 and sizes[0] == sizes[1])  # dealt as vectors
    for block in range(blocks):
        fused.spread(w, order, spread.form[1], weights, block, block + 1)
    starts_of, listed = capacity * np.arange(batch), counts[:, 1].copy()
    lists: tuple[Any, ...] = starts_of, counts[:, 0].copy(), listed, ids.reshape(-1)
    room = fused.in_eights(lists, width, begins, np.zeros(0, np.int64))
    rows, sums = np.zeros(room + EIGHT, np.int64), np.zeros(2 * room, np.float32)
    assert fused.in_eights(lists, width, begins, rows) == room == EIGHT * begins[-1]
    adjoints: tuple[Any, ...] = q.reshape(-1), q.shape[1], order
    given = sums, weights, *adjoints, rows, begins, spread.ends, spread.form
    for some in ((0, 1), (1, blocks)):
        fused.input_gradient(some, *given, 0, 2)
        fused.input_gradient(some, *given, 2, batch)
    fused.listed_gradients(made, sums, listed, begins, 0, batch)
    assert made.tobytes() == wanted.tobytes()

    memory: Any = SimpleNamespace(arrays={"w": w, "g": np.zeros_like(made)}, share=Shares(2))
    follower, strips = InputGradient(memory, spread, ("w", "q", "ids", "counts"), "g"), int(-(-stops[-1] // WIDTH))
    for at_once in (1, 3):
        followed = np.zeros_like(made)
        ring = aligned((min(strips, at_once + follower.span - 1), batch, WIDTH))
        follower.spread_weights(0)
        follower.begin(Padded.of(ids[None], counts[None], 1), ring)
        for first in range(0, strips, at_once):
            last = min(strips, first + at_once)
            for strip in range(first, last):
                own = q[:, strip * WIDTH : (strip + 1) * WIDTH]
                ring[strip % len(ring)] = np.nan
                ring[strip % len(ring), :, : own.shape[1]] = own
            follower.take(first, last)
        follower({}, {"g": followed[None]})
        assert followed.tobytes() == wanted.tobytes()


def test_sums_have_room_however_slowly_lists_grow() -> None:
    neurons, batch = 6, 1
    spread = Spread.of(np.arange(neurons), np.arange(neurons) + 1, np.zeros(neurons, int))
    memory: Any = SimpleNamespace(arrays={"w": np.ones((4, neurons), np.float32)}, share=Shares(1))
    made = InputGradient(memory, spread, ("w", "q", "ids", "counts"), "g")
    for listed in range(90):
        counts = np.full((1, batch, 2), listed, np.int32)
        made._begin(Padded.of(np.zeros((1, batch, 90), np.int32), counts, 1))
        eights = batch * -(-listed // EIGHT)
        assert len(made._sums) >= 2 * EIGHT * eights
        assert len(made._rows) >= EIGHT * (eights + 1)  # the rows of the next eight are fetched ahead
