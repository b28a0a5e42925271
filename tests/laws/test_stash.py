"""Stash policies: the same gradients bit for bit, less memory, and about a forward pass more."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_networks import linear_network
from memory_bytes import bytes_of
from networks import ADAM, SEEDS, SMALL, Given, compiled, given_values, gradient_names, machine, parameter_keys
from networks import small_network as network_of_lif
from test_timing import ISSUE, tile_cycles

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.checking.lockstep import Trace, compare, gradients_at_ids
from mimdsim.compiler import Compiled, compile_graph
from mimdsim.compiler.memory_report import remedies
from mimdsim.execution import Executor, TrainingPlan, execute_strictly, initial_weights, train
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.spikes import ThresholdSchedule
from mimdsim.graph.stash import stash_policy
from mimdsim.machine import GpuMachine, MimdMachine, load_machine
from mimdsim.pipeline import memory_profile
from mimdsim.pipeline.warnings import stash_note
from mimdsim.program import Program, Repeat, Superstep, verify
from mimdsim.program.codelet import now_shift
from mimdsim.program.printer import listing
from mimdsim.program.program import stretches
from mimdsim.timing import time_program
from mimdsim.timing.worker_cycles import program_loads
from mimdsim.workload import MappingOptions, load_workload

POLICIES = ["carry", "every:1", "every:2", "every:3", "every:6"]  # of six timesteps
OPTIONS = MappingOptions(neurons_per_tile=2)


def stashed(policy: str, options: MappingOptions = OPTIONS) -> MappingOptions:
    return options.model_copy(update={"stash": policy})


def left(made: Compiled, values: Given, *, strict: bool = False, watched: bool = False) -> dict[str, np.ndarray]:
    """Everything a training step makes: loss, spikes, gradients, updates."""
    executor = Executor(made.program, rounded=True)
    executor.write(values.for_program(made.network))
    if strict:
        execute_strictly(executor)
    else:
        executor.run(observe=(lambda *_: None) if watched else None)
    found = {f"d {key}": executor.read(name) for key, name in gradient_names(made.network).items()}
    found |= {f"next {key}": executor.read(f"next.{name}") for key, name in parameter_keys(made.network).items()}
    activity = executor.activity()
    found |= {f"ids {name}": ids for name, ids in activity.ids.items()}
    found |= {f"counts {name}": counts for name, counts in activity.counts.items()}
    return found | {"loss": executor.read("loss"), "counts": executor.read("counts")}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def assert_policy(
    network: SpikingNetwork, policy: str, options: MappingOptions = OPTIONS, *, seed: int = 2, strict: bool = False
) -> Compiled:
    """Bits as with everything kept, unwatched, watched and perhaps strictly; weights are not dyadic."""
    values = given_values(network, seed, dyadic=False)
    expected = left(compiled(network, options=options), values)
    made = compiled(network, options=stashed(policy, options))
    assert_same(left(made, values), expected)
    assert_same(left(made, values, watched=True), expected)
    if strict:
        assert_same(left(made, values, strict=True), expected)
    return made


WIRINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "delay 0": {"delay": 0},
    "recurrent": {"recurrence": "all_to_all"},
    "recurrent, delay 0, bias": {"recurrence": "all_to_all", "delay": 0, "bias": True},
    "own, bias": {"recurrence": "one_to_one", "bias": True},
    "masked": {"reset_gradient": "mask", "capacities": (3, 2, 2)},
    "random": {"truncation": "random", "capacities": (3, 2, 2), "optimiser": ADAM},
    "scheduled": {"threshold_schedule": ThresholdSchedule(start=-2.0), "optimiser": ADAM},
}


@pytest.mark.parametrize("policy", ["every:1", "every:2", "every:6"])
@pytest.mark.parametrize("wiring", WIRINGS)
def test_gradients_of_lif_do_not_change(wiring: str, policy: str) -> None:
    network = network_of_lif((7, 6, 5, 3), timesteps=6, **WIRINGS[wiring])
    made = assert_policy(network, policy)
    assert not any(name.startswith("v.") and name.endswith(".sequence") for name in made.program.variables)


@pytest.mark.parametrize("policy", ["carry", "every:3"])
@pytest.mark.parametrize(
    ("model", "reset", "gradient", "reset_by"),
    [
        ("leaky", "zero", "full", "state"),
        pytest.param("leaky", "zero", "full", "emission", marks=pytest.mark.slow),
        ("leaky", "subtract", "mask", "state"),
        pytest.param("synaptic", "zero", "pass", "emission", marks=pytest.mark.slow),
        pytest.param("adaptive", "subtract", "full", "emission", marks=pytest.mark.slow),
        pytest.param("rleaky", "zero", "full", "state", marks=pytest.mark.slow),
        pytest.param("synaptic", "subtract", "full", "state", marks=pytest.mark.slow),
    ],
)
def test_gradients_of_linear_neurons_do_not_change(
    model: str, reset: str, gradient: str, reset_by: str, policy: str
) -> None:
    network = linear_network(
        model, reset, reset_gradient=gradient, reset_by=reset_by, timesteps=6, batch=3, capacities=(6, 3)
    )
    assert_policy(network, policy)


@pytest.mark.slow
@settings(SMALL, max_examples=6)
@given(data=st.data(), seed=SEEDS)
def test_any_small_network(data: st.DataObject, seed: int) -> None:
    wiring = {
        "timesteps": 6,
        "batch": data.draw(st.integers(2, 4)),
        "delay": data.draw(st.sampled_from([0, 1])),
        "recurrence": data.draw(st.sampled_from(["none", "one_to_one", "all_to_all", "one_weight"])),
        "bias": data.draw(st.booleans()),
        "widths": tuple(data.draw(st.lists(st.integers(2, 6), min_size=3, max_size=4))),
    }
    if data.draw(st.booleans()):
        by = data.draw(st.sampled_from(["state", "emission"]))
        gradient = data.draw(st.sampled_from(["pass", "mask", "full"]))
        network = linear_network("leaky", "zero", reset_by=by, reset_gradient=gradient, **wiring)
    else:
        network = network_of_lif(**wiring, reset_gradient=data.draw(st.sampled_from(["pass", "mask"])))
    options = MappingOptions(
        neurons_per_tile=data.draw(st.sampled_from([2, 0])), spike_exchange=data.draw(st.sampled_from(["ids", "dense"]))
    )
    assert_policy(network, data.draw(st.sampled_from(POLICIES)), options, seed=seed)


@pytest.mark.parametrize("policy", ["carry", "every:2"])
def test_strict_execution_gives_the_same_bits(policy: str) -> None:
    wiring: dict[str, Any] = {"timesteps": 4, "batch": 2, "widths": (5, 4, 3), "capacities": (3, 2)}
    assert_policy(network_of_lif(**wiring, reset_gradient="mask", recurrence="all_to_all"), policy, strict=True)
    assert_policy(linear_network("leaky", "zero", reset_gradient="full", **wiring), policy, strict=True)


def test_halves_are_rounded_alike() -> None:
    options = MappingOptions(value_bytes=2, neurons_per_tile=4)
    assert_policy(network_of_lif((7, 8, 5, 3), timesteps=6), "every:3", options)


@pytest.mark.parametrize("policy", ["every:2", "carry"])
def test_what_is_made_anew_is_what_the_interpreter_says(policy: str) -> None:
    """Superstep by superstep, the recomputed potentials included."""
    network = linear_network("leaky", "zero", reset_by="emission", timesteps=6, batch=3)
    values, made = given_values(network, 4), compiled(network, options=stashed(policy))
    steps = [step for step, _, _ in made.program.supersteps() if step.name.startswith("again: ")]
    assert {value for step in steps for _, value in step.defines} >= {"u.hidden0", "x.hidden0"}
    wanted = {value for step, _, _ in made.program.supersteps() for _, value in step.defines}
    trace = Trace(wanted, gradients_at_ids(made.graph))
    meaning = interpret(made.graph, values.for_graph(network), trace)
    subject, reference = Executor(made.program), Executor(made.program)
    for executor in (subject, reference):
        executor.write(values.for_program(network))
    found = compare(subject, subject.steps(), reference, trace, meaning)
    assert found.text is None
    assert found.compared


def test_carry_keeps_for_lif_what_everything_keeps() -> None:
    """All that its gradients read is a state or spikes: the program is the same."""
    network = network_of_lif((7, 6, 3), timesteps=6, reset_gradient="mask")
    one, other = (listing(compiled(network, options=stashed(p)).program) for p in ("everything", "carry"))
    assert one == other


def test_the_graph_does_not_know_of_policies() -> None:
    network = network_of_lif((7, 6, 3), timesteps=6)
    assert compiled(network, options=stashed("every:2")).graph.outputs == training_graph(network).outputs


@lru_cache(maxsize=8)
def long_run(policy: str) -> tuple[Compiled, Any]:
    """Wide enough that potentials are most of a tile, and 24 timesteps of it."""
    network = network_of_lif((16, 64, 64, 4), timesteps=24, batch=16, capacities=(8, 8, 4))
    made = compiled(network, tiles=40, options=MappingOptions(neurons_per_tile=8, stash=policy))
    executor = Executor(made.program)
    executor.write(given_values(network, 1).for_program(network))
    executor.run()
    activity = executor.activity()
    on = machine(40)
    return made, time_program(made.program, on, activity, memory_profile(made.program, made.memory, on))


def test_memory_is_that_of_states_between_segments_and_one_segment() -> None:
    neurons, batch, word = 8, 16, 4
    row = neurons * batch * word  # potentials of a tile in one timestep
    whole, _ = long_run("everything")
    assert whole.program.variables["v.hidden0.sequence"].shape[0] == 24
    for segment, segments in ((4, 6), (6, 4), (2, 12)):
        made, _ = long_run(f"every:{segment}")
        tile = int(made.placement.layers[1].tiles[0])
        held = {name: int(bytes_of(made.memory, name)[tile]) for name in made.memory.spans}
        assert held["v.hidden1.kept"] == segments * row
        assert held["v.hidden1.segment"] == (segment + 1) * row
        saved = int(whole.memory.peak_by_tile[tile]) - int(made.memory.peak_by_tile[tile])
        rows = 24 - segments - (segment + 1)
        code = made.memory.code + made.memory.vertices - whole.memory.code - whole.memory.vertices
        # the live potential stays for the segment that runs again; code for that is added
        assert saved == pytest.approx(rows * row - int(code[tile]), abs=2 * row)
        assert made.memory.peak_bytes < whole.memory.peak_bytes


def test_cycles_grow_by_about_the_neurons_of_a_forward_pass() -> None:
    _, whole = long_run("everything")
    for policy in ("every:4", "every:6"):
        made, timed = long_run(policy)
        assert not verify(made.program, 40)
        of_name = {span.name: span.cycles for span in timed.spans}
        assert of_name["again: LIF update"] == of_name["LIF update"]  # all of them, and no selection
        assert not any(name.startswith(("again: flag", "again: scan", "again: combine")) for name in of_name)
        forward = sum(span.cycles for span in whole.spans if span.phase == "forward")
        assert of_name["LIF update"] < timed.cycles - whole.cycles < forward
        runs = {span.times for span in timed.spans if span.name.startswith("again: ")}
        assert runs == {24}
        loops = sorted(span.times for span in timed.spans if span.op == "repeat")
        segments = 24 // int(policy.split(":")[1])
        assert loops == [segments, segments, 24, 24, 24]


def test_cycles_of_segments_are_those_of_their_turns() -> None:
    """Each superstep of every turn counted on its own, in the order in which they run."""
    network = network_of_lif((5, 4, 3), timesteps=4, batch=2, recurrence="all_to_all", reset_gradient="mask")
    program = compiled(network, options=stashed("every:2")).program
    executor = Executor(program)
    executor.write(given_values(network, 5).for_program(network))
    executor.run()
    activity = executor.activity()
    loads = {
        id(step): load
        for (step, *_), load in zip(program.supersteps(), program_loads(program, activity, ISSUE), strict=True)
    }
    turn_of = {id(step): stretch for stretch in program.stretches() for step in stretch.body}
    since, before, current = [0.0] * program.tiles, 0, None
    seen = 0
    for superstep, t in program.turns():
        stretch = turn_of[id(superstep)]
        if superstep is stretch.body[0] or superstep.exchange is not None or stretch is not current:
            since, before, current = [0.0] * program.tiles, 0, stretch
        own = tile_cycles(program, superstep, t, activity, ISSUE)
        since = [done + more for done, more in zip(since, own, strict=True)]
        after = round(max(since))
        found = loads[id(superstep)].cycles_by_execution
        assert len(found) == stretch.times
        assert int(found[t if len(found) == 4 else t // 2 if len(found) == 2 else 0, 0]) == after - before
        before, seen = after, seen + 1
    assert seen > 4 * 40


@pytest.mark.parametrize("policy", ["everything", "carry", "every:1", "every:2", "every:6"])
def test_offsets_on_tiles_are_the_entries_that_are_taken(policy: str) -> None:
    """What counters hold when a slice reads them, with the executor's own index beside it."""
    network = linear_network("leaky", "zero", reset_gradient="full", timesteps=6, batch=2, widths=(5, 4, 3))
    made = compiled(network, options=stashed(policy))
    executor = Executor(made.program)
    executor.write(given_values(network, 5).for_program(network))
    kinds = set()
    for superstep, t in executor.steps():
        for table in superstep.tables:
            fields = {item.name: item for item in table.codelet.fields}
            if "sequence" not in fields:
                continue
            sequence = made.program.variables[table.operands["sequence"]]
            entry = sequence.entry(t, now_shift(fields["sequence"].box[0]) or 0)
            counters = executor.arrays[table.operands["timestep"]][table.columns["tile"]]
            np.testing.assert_array_equal(counters, entry, err_msg=superstep.name)
            kinds.add(sequence.entries)
    assert kinds == ({"timesteps", "segments", "segment"} if policy.startswith("every:") else {"timesteps"})


def test_every_tile_that_slices_counts_for_itself() -> None:
    made = compiled(network_of_lif((7, 6, 5, 3), timesteps=6), options=stashed("everything"))
    counting: dict[str, set[int]] = {"count timestep": set(), "previous timestep": set()}
    reading: set[int] = set()
    for superstep, _, _ in made.program.supersteps():
        if any("Slice" in table.codelet.name for table in superstep.tables):
            assert superstep.exchange is None, superstep.name
        for table in superstep.tables:
            if "timestep" in table.operands and superstep.name in counting:
                counting[superstep.name] |= set(table.tiles.tolist())
            elif "timestep" in table.operands:
                reading |= set(table.tiles.tolist())
    assert counting["count timestep"] == counting["previous timestep"] == reading != set(range(made.program.tiles))


def test_several_chips_make_the_same_bits() -> None:
    network = network_of_lif((7, 6, 5, 3), timesteps=6, recurrence="all_to_all", reset_gradient="mask")
    on = load_machine("tiny", {"chip.tiles": 6, "links.chips": 2})
    assert isinstance(on, MimdMachine)
    found = []
    for policy in ("everything", "every:3"):
        made = compile_graph(training_graph(network), network, on, stashed(policy))
        assert made.placement.chips == 2
        found.append(left(made, given_values(network, 2, dyadic=False)))
        program = replace(made.program)
        time_program(program, on, Executor(program).activity(), memory_profile(program, made.memory, on))
    assert_same(*found)


def test_a_program_that_does_not_fit_is_told_of_segments() -> None:
    network = network_of_lif((16, 64, 64, 4), timesteps=24, batch=16, capacities=(8, 8, 4))
    tried = {advice: options for advice, _, options in remedies(network, OPTIONS)}
    (advice,) = [advice for advice in tried if advice.startswith("mapping.stash")]
    assert 'mapping.stash = "every:4" instead of "everything"' in advice
    assert tried[advice].stash == "every:4"
    segmented = stashed("every:8")
    shorter = [other.timesteps for text, other, _ in remedies(network, segmented) if "timesteps" in text]
    assert shorter == [8]  # half of 24 is no whole number of segments of 8
    assert not any("stash" in text for text, _, _ in remedies(network, segmented))


def test_a_comparison_says_that_gpus_keep_everything() -> None:
    gpu = load_machine("h200")
    assert isinstance(gpu, GpuMachine)
    workload = load_workload("digits", {"mapping.stash": "every:5"})
    (said,) = stash_note(workload, (gpu,))
    assert 'mapping.stash = "every:5" applies to tiles only: GPU strategies keep every value' in said
    assert not [*stash_note(workload, ())]
    assert not [*stash_note(load_workload("digits"), (gpu,))]


def test_a_repeat_holds_repeats_of_equal_turns_and_no_deeper_ones() -> None:
    inner = Repeat(times=3, body=())
    assert Repeat(times=2, body=(inner, inner)).timesteps == 6
    with pytest.raises(ValueError, match=r"differ in their turns: \[3, 4\]"):
        Repeat(times=2, body=(inner, Repeat(times=4, body=())))
    with pytest.raises(ValueError, match="two levels"):
        Repeat(times=2, body=(Repeat(times=3, body=(inner,)),))


def test_turns_of_segments_run_as_they_should() -> None:
    program: Program = compiled(network_of_lif((4, 3, 2), timesteps=6), options=stashed("every:2")).program
    order: dict[str, list[int]] = {}
    for superstep, t in program.turns():
        order.setdefault(f"{superstep.phase} {superstep.name}", []).append(t)
    assert order["forward LIF update"] == [0, 1, 2, 3, 4, 5]
    assert order["backward again: LIF update"] == [4, 5, 2, 3, 0, 1]
    assert order["backward weight gradient"] == [5, 4, 3, 2, 1, 0]
    assert order["forward stash v.hidden0"] == [0, 2, 4]
    assert "repeat 3 segments of 2 timesteps backwards" in listing(program)


class Samples:
    """Some random samples of a network's input."""

    def __init__(self, network: SpikingNetwork):
        values = given_values(replace(network, batch=8), 3)
        self.spikes, self.labels = values.spikes, values.labels

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.spikes.ids[:, indices], self.spikes.counts[:, indices, 0], self.labels[indices]


@pytest.mark.parametrize("truncation", ["lowest", "random"])
def test_training_is_the_same_and_counts_dropped_spikes_alike(truncation: str) -> None:
    """Also where the generators of truncation go on from step to step."""
    network = network_of_lif((8, 20, 4), timesteps=6, batch=4, capacities=(5, 2), optimiser=ADAM, truncation=truncation)
    data, logs = Samples(network), []
    for policy in ("everything", "every:2"):
        made = compiled(network, options=stashed(policy))
        weights = initial_weights(network, seed=3, scale=2.0, offset=0.3)
        logs.append(train(made.program, network, data, data, TrainingPlan(epochs=2, seed=3), weights=weights))
    one, other = logs
    assert one.loss == other.loss
    assert one.test_accuracy_by_epoch == other.test_accuracy_by_epoch
    for name, weights in one.weights.items():
        np.testing.assert_array_equal(weights, other.weights[name])
    assert one.activity.dropped == other.activity.dropped
    assert one.activity.dropped["hidden0"] > 0


@pytest.mark.parametrize(
    ("stash", "message"),
    [
        ("evry:5", r'mapping.stash = .evry:5. is not a stash policy: write "everything", "carry" or "every:K"'),
        ("every:0", "is not a stash policy"),
        ("every:7", r"100 timesteps .* not a whole number of segments of 7: write \"every:5\" or \"every:10\""),
        ("every:200", r'segments of 200: write "every:100"'),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_type(stash: str, message: str) -> None:
    with pytest.raises(MappingError, match=message):
        stash_policy(stash, 100)
    with pytest.raises(DescriptionError, match=message):
        load_workload("nmnist-2", {"mapping.stash": stash, "data.timesteps": 100})


def test_dense_spikes_and_rows_in_another_order_are_refused() -> None:
    with pytest.raises(MappingError, match=r'lists of spikes: with network.spikes = "dense" write mapping.stash'):
        compiled(network_of_lif((7, 6, 3), timesteps=4, spikes="dense"), options=MappingOptions(stash="every:2"))
    network = network_of_lif((7, 6, 3), timesteps=4, truncation="random")
    with pytest.raises(MappingError, match=r'write mapping.spike_exchange = "ids"'):
        compiled(network, options=stashed("every:2", OPTIONS.model_copy(update={"spike_exchange": "dense"})))


@pytest.mark.parametrize(
    ("around", "reverse"), [((), False), ((True,), True), ((True, True), True), ((True, False), False)]
)
def test_a_stretch_runs_in_reverse_where_all_repeats_around_it_do(around: tuple[bool, ...], reverse: bool) -> None:
    body: Any = (Superstep(name="one"), Superstep(name="other"))
    for number, each in enumerate(reversed(around)):
        body = (Repeat(times=3 + number, body=body, reverse=each),)
    (stretch,) = stretches(body)
    assert (stretch.reverse, stretch.times, len(stretch.body)) == (reverse, {0: 1, 1: 3, 2: 12}[len(around)], 2)
