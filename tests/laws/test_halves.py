"""Half precision: rounding is IEEE's, everything a program keeps in halves is one, and moments may stay floats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import ADAM, SMALL, compiled, given_values, machine, small_network
from pydantic import ValidationError

from mimdsim.compiler import Compiled
from mimdsim.execution import Executor
from mimdsim.execution.execute import halves_of
from mimdsim.graph.operations import OPERATIONS
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.pipeline import retime
from mimdsim.program import Superstep
from mimdsim.workload import MappingOptions

HALVES = MappingOptions(value_bytes=2, neurons_per_tile=4)
NETWORK = small_network((9, 20, 12, 4), timesteps=6, batch=4, optimiser=ADAM, second_threshold=-100.0)


def rounded(values: np.ndarray) -> np.ndarray:
    made = values.astype(np.float32)
    FORMATS["half"].round(made.reshape(-1), made.reshape(-1).view(np.uint32))
    return made


def as_numpy(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float16).astype(np.float32)


def every_half() -> np.ndarray:
    """All finite halves, ascending, in float32."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    return np.unique(halves[np.isfinite(halves)])


@SMALL
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=200))
def test_rounding_is_that_of_numpy(bits: list[int]) -> None:
    values = np.array(bits, np.uint32).view(np.float32)
    np.testing.assert_array_equal(rounded(values), as_numpy(values))


def test_rounding_of_halves_of_what_is_between_them_and_of_what_is_beyond() -> None:
    halves = every_half()
    np.testing.assert_array_equal(rounded(halves), halves)
    middle = ((halves[1:].astype(np.float64) + halves[:-1]) / 2).astype(np.float32)
    around = [middle, np.nextafter(middle, np.float32(1e9)), np.nextafter(middle, np.float32(-1e9))]
    beyond = np.array([65519.996, 65520, -65520, 1e38, np.inf, -np.inf, np.nan], np.float32)
    for values in (*around, beyond):
        np.testing.assert_array_equal(rounded(values), as_numpy(values))


def one_step(made: Compiled, executor: Executor) -> Executor:
    values = given_values(made.network, 3, dyadic=False)
    executor.write(values.for_program(made.network))
    executor.run()
    return executor


def test_all_that_is_kept_in_halves_is_one() -> None:
    made = compiled(NETWORK, options=HALVES)
    assert halves_of(made.program)
    executor = one_step(made, Executor(made.program, rounded=True))
    halves = [name for name, held in made.program.variables.items() if held.item_bytes == 2]
    assert {"w.hidden0", "moment2.output", "v.hidden1", "dw.hidden0", "v.hidden0.sequence"} <= set(halves)
    plain = one_step(made, Executor(made.program))
    changed = 0
    for name in halves:
        array = executor.arrays[name]
        np.testing.assert_array_equal(array, as_numpy(array), err_msg=name)
        changed += not np.array_equal(array, plain.arrays[name])
    assert changed > len(halves) // 2


def test_a_watched_run_is_rounded_before_it_is_seen() -> None:
    made = compiled(NETWORK, options=HALVES)

    def watch(superstep: Superstep, t: int, executor: Executor) -> None:
        for table in superstep.tables:
            for item in table.codelet.fields:
                name = table.operands[item.name]
                if item.writes and made.program.variables[name].item_bytes == 2:
                    np.testing.assert_array_equal(executor.arrays[name], as_numpy(executor.arrays[name]))

    executor = Executor(made.program, rounded=True)
    executor.write(given_values(NETWORK, 3, dyadic=False).for_program(NETWORK))
    executor.run(observe=watch)


def test_potentials_are_rounded_once_a_timestep() -> None:
    """The first layer by hand: its potential of the timestep before, a half, and the exact current make the next."""
    made = compiled(NETWORK, options=HALVES)
    values = given_values(NETWORK, 5, dyadic=False)
    executor = Executor(made.program, rounded=True)
    executor.write(values.for_program(NETWORK))
    executor.run(phases=("forward",))
    lif = NETWORK.layers[0].neuron
    weights = as_numpy(values.arrays["w.hidden0"]).astype(np.float64)
    v = np.zeros((NETWORK.batch, 20), np.float32)
    for t in range(NETWORK.timesteps):
        current = (values.dense[t] @ weights).astype(np.float32)
        (reached,) = OPERATIONS["lif"].evaluate(lif, v, current)
        v = as_numpy(reached)
        found = executor.arrays["v.hidden0.sequence"][t]
        # a sum in another order may end on the other side of the middle between two halves: one half further
        np.testing.assert_allclose(found, v, rtol=2.0**-10)
        assert (found == v).mean() > 0.95
        v = found.copy()


def test_programs_of_floats_are_run_as_they_were() -> None:
    made = compiled(NETWORK)
    assert not halves_of(made.program)


def test_moments_may_stay_floats() -> None:
    """Squares of small gradients are nothing in halves, and Adam divides by their root."""
    options = HALVES.model_copy(update={"moment_bytes": 4})
    held = compiled(NETWORK, options=options).program.variables
    assert {held[f"moment{n}.{layer.name}"].item_bytes for n in (1, 2) for layer in NETWORK.layers} == {4}
    assert held["w.hidden0"].item_bytes == held["dw.hidden0"].item_bytes == 2
    seconds = []
    for each in (HALVES, options):
        made = compiled(NETWORK, options=each)
        values = given_values(NETWORK, 3, dyadic=False).for_program(NETWORK)
        for name in values:
            if name.startswith("moment"):
                values[name] = np.zeros_like(values[name])
        executor = Executor(made.program, rounded=True)
        executor.write(values)
        executor.run()
        gradient = np.concatenate([executor.arrays[f"gradient.{layer.name}"].ravel() for layer in NETWORK.layers])
        second = np.concatenate([executor.arrays[f"moment2.{layer.name}"].ravel() for layer in NETWORK.layers])
        small = (gradient != 0) & (np.abs(gradient) < 2e-3)  # 0.001 of its square is below the smallest half
        assert small.any()
        seconds.append(second[small])
    assert not seconds[0].any()
    assert seconds[1].all()


@pytest.mark.slow
def test_floats_as_moments_cost_bytes_and_cycles() -> None:
    def update_cycles(options: MappingOptions) -> int:
        made = compiled(NETWORK, options=options)
        activity = one_step(made, Executor(made.program)).activity()
        profile = retime(made, machine(), activity)
        return sum(span.compute_cycles for span in profile.spans if span.phase == "update")

    mixed = HALVES.model_copy(update={"moment_bytes": 4})
    floats = HALVES.model_copy(update={"value_bytes": 4})
    assert update_cycles(HALVES) < update_cycles(mixed)
    assert update_cycles(floats) < update_cycles(mixed)
    program = compiled(NETWORK, options=mixed).program
    sources = {
        table.codelet.cost.source
        for step, _, _ in program.supersteps()
        for table in step.tables
        if table.codelet.name.startswith("Adam")
    }
    assert all("3 conversions per pair" in source for source in sources)


def test_other_moments_are_refused() -> None:
    with pytest.raises(ValidationError, match="moment_bytes"):
        MappingOptions(moment_bytes=2)
