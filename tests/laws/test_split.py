"""Layers in parts of the batch, the fan-in and the neurons, and forms of the program: the same training step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from linear_networks import linear_network
from networks import (
    ADAM,
    SEEDS,
    SGD,
    SMALL,
    Given,
    assert_same_bits,
    compiled,
    executed,
    given_values,
    left_in,
    machine,
    small_network,
)

from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.compiler import Compiled
from mimdsim.execution import Executor
from mimdsim.graph import SpikingNetwork
from mimdsim.pipeline import memory_profile
from mimdsim.timing import time_program
from mimdsim.workload import MappingOptions
from mimdsim.workload.description.mapping import Rule, Split

TOLERANCE = 1e-5  # relative to the largest gradient: sums in another order
RULES = st.sets(st.sampled_from(get_args(Rule))).map(sorted).map(tuple)


@st.composite
def splits(draw: Any, network: SpikingNetwork, chips: int = 1) -> dict[str, Split]:
    """Of some layers, parts as many as there is to share at the most, over some of the chips."""
    found = {}
    for layer in network.layers:
        if draw(st.integers(0, 3)):
            found[layer.name] = Split(
                batch=draw(st.integers(1, network.batch)),
                inputs=draw(st.integers(1, min(3, layer.inputs))),
                neurons=draw(st.integers(0, min(5, layer.neurons))),
                replicas=draw(st.integers(0, 7)),
                chips=draw(st.integers(1, chips)),
            )
    return found


@st.composite
def cases(draw: Any, chips: int = 1) -> tuple[SpikingNetwork, MappingOptions]:
    widths = tuple(draw(st.lists(st.integers(1, 12), min_size=3, max_size=4)))
    network = small_network(
        widths, timesteps=draw(st.integers(1, 4)), batch=draw(st.integers(2, 9)),
        capacities=tuple(draw(st.integers(1, width)) for width in widths[1:]),
        reset_gradient=draw(st.sampled_from(["pass", "mask"])), optimiser=draw(st.sampled_from([SGD, ADAM])),
        recurrence=draw(st.sampled_from(["none", "one_to_one", "all_to_all", "one_weight"])), bias=draw(st.booleans()),
        delay=draw(st.integers(0, 1)),
    )  # fmt: skip
    options = MappingOptions(
        split=draw(splits(network, chips)), program=draw(RULES), weight_gradient_replicas=draw(st.integers(1, 6)),
        states_per_worker=draw(st.sampled_from([2, 64])),
        stash=draw(st.sampled_from(["everything", "carry"])),
    )  # fmt: skip
    return network, options


def assert_same_step(made: Compiled, values: Given) -> None:
    """Gradients of the published mapping but for the order of sums, and the same bits with and without shortcuts."""
    plain = executed(compiled(made.network, tiles=400), values)
    found = executed(made, values)
    assert found.loss == pytest.approx(plain.loss, rel=1e-6)
    for name, gradient in plain.gradients.items():
        largest = max(float(np.abs(gradient).max()), 1e-9)
        np.testing.assert_allclose(found.gradients[name], gradient, rtol=0, atol=TOLERANCE * largest, err_msg=name)
    watched = Executor(made.program)
    watched.write(values.for_program(made.network))
    watched.run(observe=lambda *_: None)
    assert_same_bits(left_in(watched, made), found)


def assert_bytes_conserved(made: Compiled) -> None:
    """What is received was sent, and what is sent is received by someone."""
    for superstep, _, _ in made.program.supersteps():
        if superstep.exchange is not None:
            sent, received = superstep.exchange.column("bytes_sent"), superstep.exchange.column("bytes_received")
            assert (int(sent.sum()) > 0) == (int(received.sum()) > 0)
            assert int(sent.sum()) <= int(received.sum())


def over_chips(case: tuple[SpikingNetwork, MappingOptions], seed: int, chips: int) -> None:
    network, options = case
    try:
        made = compiled(network, tiles=120, options=options, chips=chips, slow_links=seed % 2 == 1)
    except DoesNotFit:  # layers over several chips leave too few for the next one
        assume(False)
    assert_same_step(made, given_values(network, seed, activity=0.4))
    assert_bytes_conserved(made)


@pytest.mark.slow
@settings(SMALL, max_examples=50)
@given(case=st.integers(2, 8).flatmap(lambda chips: st.tuples(cases(chips), st.just(chips))), seed=SEEDS)
def test_fifty_splits_over_chips_leave_the_same_gradients(
    case: tuple[tuple[SpikingNetwork, MappingOptions], int], seed: int
) -> None:
    over_chips(case[0], seed, case[1])


@pytest.mark.slow
@settings(SMALL, max_examples=80)
@given(case=cases(), seed=SEEDS)
def test_eighty_splits_leave_the_same_gradients(case: tuple[SpikingNetwork, MappingOptions], seed: int) -> None:
    network, options = case
    made = compiled(network, tiles=400, options=options)
    assert_same_step(made, given_values(network, seed, activity=0.4))
    assert_bytes_conserved(made)


@pytest.mark.slow
def test_each_tile_does_with_what_it_has() -> None:
    """Vertex by vertex with only what lies on its tile, or was delivered."""
    network = small_network((9, 8, 6, 4), timesteps=3, batch=5, recurrence="all_to_all", bias=True)
    split = {
        "hidden0": Split(batch=3, inputs=2, neurons=3, replicas=1),
        "hidden1": Split(batch=2, neurons=2, replicas=2),
        "output": Split(batch=5, neurons=1),
    }
    values = given_values(network, 3, activity=0.5)
    for chips, parts in ((1, split), (2, {name: one.model_copy(update={"chips": 2}) for name, one in split.items()})):
        made = compiled(network, tiles=100, options=MappingOptions(split=parts, program="best"), chips=chips)
        assert made.placement.chips == chips
        assert_same_bits(executed(made, values, strict=True), executed(made, values))
        assert_same_step(made, values)


@pytest.mark.first(2)
@pytest.mark.parametrize("model", ["leaky", "synaptic", "adaptive"])
def test_linear_neurons_are_split_too(model: str) -> None:
    network = linear_network(model, "subtract")
    split = {layer.name: Split(batch=2, inputs=2, neurons=2, replicas=1) for layer in network.layers}
    made = compiled(network, tiles=200, options=MappingOptions(split=split, program="best"))
    assert_same_step(made, given_values(network, 5, activity=0.4))


def test_gradients_of_states_by_sample_take_parts_of_the_fan_in() -> None:
    network = small_network((7, 6, 5, 4), gain=20.0)
    options = MappingOptions(state_gradient="per_batch", split={"hidden1": Split(inputs=2, neurons=2)})
    assert_same_step(compiled(network, options=options), given_values(network, 3))


def test_copies_bring_fewer_cycles_and_the_profile_shows_where() -> None:
    network = small_network((40, 32, 16, 4), timesteps=4, batch=24, capacities=(10, 8, 4))
    device = machine(400)
    cycles = []
    for split in ({}, {"hidden0": Split(batch=8, neurons=16), "hidden1": Split(batch=8, neurons=8)}):
        made = compiled(network, tiles=400, options=MappingOptions(split=split))
        values = given_values(network, 1, activity=0.3)
        executor = Executor(made.program)
        executor.write(values.for_program(network))
        executor.run()
        memory = memory_profile(made.program, made.memory, device)
        profile = time_program(made.program, device, executor.activity(), memory)
        cycles.append(profile.cycles)
        assert any(span.name.startswith("share weights") for span in profile.spans) == bool(split)
    assert cycles[1] < 0.9 * cycles[0]


def test_without_a_split_the_published_rule_stands() -> None:
    network = small_network((9, 8, 6, 4), timesteps=2, batch=3)
    plain = compiled(network, tiles=60)
    for split in ({}, {layer.name: Split() for layer in network.layers}):
        made = compiled(network, tiles=60, options=MappingOptions(split=split))
        for one, other in zip(plain.placement.layers, made.placement.layers, strict=True):
            np.testing.assert_array_equal(one.grid, other.grid)
            np.testing.assert_array_equal(one.starts, other.starts)


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ({"hiden0": Split()}, r"mapping.split.hiden0: no such layer; did you mean 'hidden0'"),
        (
            {"hidden0": Split(batch=9)},
            r"mapping.split.hidden0.batch: 9 parts of 3 samples of the batch; take at most 3",
        ),
        ({"hidden0": Split(inputs=8)}, r"mapping.split.hidden0.inputs: 8 parts of 7 inputs of 'hidden0'"),
        ({"output": Split(neurons=4)}, r"mapping.split.output.neurons: 4 parts of 3 neurons of 'output'"),
    ],
)
def test_splits_that_cannot_be_are_refused(split: dict[str, Split], said: str) -> None:
    with pytest.raises(MappingError, match=said):
        compiled(small_network(), options=MappingOptions(split=split))


def test_a_split_that_is_too_large_says_so() -> None:
    split = {"hidden0": Split(batch=3, inputs=3, neurons=5)}
    with pytest.raises(DoesNotFit, match=r"mapping.split: its parts need at least 47 tiles"):
        compiled(small_network(), tiles=40, options=MappingOptions(split=split))
    for chips in (2, 2**62):
        with pytest.raises(DoesNotFit, match=rf"split.hidden0.chips = {chips} and the machine has 1 chip: lower it"):
            compiled(small_network(), options=MappingOptions(split={"hidden0": Split(chips=chips)}))
    network = small_network()
    with pytest.raises(MappingError, match="takes no parts of the weights of a neuron"):
        compiled(network, options=MappingOptions(split=split, spike_exchange="dense"))
    with pytest.raises(MappingError, match="takes no copies of a layer"):
        compiled(network, options=MappingOptions(split={"hidden0": Split(batch=2)}, state_gradient="per_batch"))


def test_dead_code_goes_and_nothing_else() -> None:
    network = small_network((9, 8, 6, 4), timesteps=2, batch=3)
    plain, made = (compiled(network, options=MappingOptions(program=rules)) for rules in ((), ("dead_code",)))
    gone = plain.program.variables.keys() - made.program.variables.keys()
    assert gone == {f"offsets.{layer.name}" for layer in network.layers}  # drawn, and ignored by the published scan
    values = given_values(network, 2)
    assert_same_bits(executed(made, values), replace(executed(plain, values)))
