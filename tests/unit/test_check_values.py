"""Wrong training steps that agree with the right one in a first step, or on most inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from networks import ADAM, compiled, machine, small_network

from mimdsim.checking.comparison import wrong_elements, wrong_output
from mimdsim.checking.lockstep import terms_of_sums
from mimdsim.checking.program import Finding, _uncertain, check_values
from mimdsim.checking.test_inputs import DRAWS, drawn_inputs
from mimdsim.compiler import Compiled
from mimdsim.execution import Executor
from mimdsim.graph import training_graph
from mimdsim.program import Program, Superstep, VertexTable, verify


@cache
def made() -> Compiled:
    network = small_network((7, 6, 3), optimiser=ADAM, second_threshold=0.5)
    return compiled(network, tiles=16)


def failing(program: Program, *, strict: bool = False) -> Finding:
    """The finding that fails, of which there must be one."""
    findings = check_values(program, made(), machine(16), strict=strict)
    return next(finding for finding in findings if not finding.passed)


def test_the_compiled_program_agrees_plainly_and_strictly() -> None:
    for strict in (False, True):
        findings = check_values(made().program, made(), machine(16), strict=strict)
        assert all(finding.passed for finding in findings), findings


def _adam(change: Callable[..., tuple[Any, Any, Any]]) -> Callable[..., None]:
    """An optimiser's compute; change(w, g, m, v, number, rate, beta1, beta2, epsilon) gives new w, m and v."""

    def compute(w, g, m, v, progress, start, stop, *constants):  # type: ignore[no-untyped-def]
        for first, last in zip(start, stop, strict=True):
            at = np.s_[:, first:last]
            w[at], m[at], v[at] = change(w[at], g[at], m[at], v[at], int(progress[0]), *constants)

    return compute


def _step(
    w: Any, g: Any, m: Any, v: Any, number: int, rate: float, beta1: float, beta2: float, epsilon: float, **wrong: Any
) -> tuple[Any, Any, Any]:
    m = wrong.get("keep1", beta1) * m + (1 - beta1) * g
    v = wrong.get("keep2", beta2) * v + (1 - beta2) * g * g
    powers = wrong.get("power", number)
    corrected = rate * np.sqrt(1 - beta2**powers) / (1 - beta1**powers)
    return w - corrected * m / (np.sqrt(v) + wrong.get("small", epsilon)), m, v


def test_an_output_that_is_no_number_by_the_interpreter_is_told() -> None:
    meaning = {name: np.full(1, np.nan) for name in made().graph.outputs}
    _, said = wrong_output(Executor(made().program), made(), meaning, {})
    assert said is not None
    assert said.startswith("the interpreter's output 'counts' is NaN in 1 of 1 elements: correct its equation")


@pytest.mark.parametrize(
    "wrong", [{"keep1": 0.0}, {"keep2": 0.0}, {"power": 1}, {"small": 0.0}], ids=lambda wrong: next(iter(wrong))
)
def test_an_optimiser_that_is_right_from_zero_moments_only_is_found(wrong: dict[str, float]) -> None:
    """From zero moments, in training step 1, all but the last give what the right one gives."""
    right = next(
        table.codelet
        for step, _, _ in made().program.supersteps()
        for table in step.tables
        if table.codelet.name == "Adam"
    )
    same = replace(right, compute=_adam(_step))
    assert all(f.passed for f in check_values(made().program.with_codelet("Adam", same), made(), machine(16)))
    other = replace(right, compute=_adam(lambda *given: _step(*given, **wrong)))
    found = failing(made().program.with_codelet("Adam", other))
    assert "superstep 'update weights'" in found.text
    assert "of Adam" in found.text


def test_ties_at_both_thresholds_are_drawn() -> None:
    """`>=` for `>` lists a neuron that lies on a threshold; in draws without ties nothing lies there."""

    def flags(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., None]:
        def compute(v, flags, sample, neuron, threshold, second_threshold):  # type: ignore[no-untyped-def]
            u = v[sample, neuron]
            fires = first(u, threshold)
            flags[0, sample, neuron] = fires
            flags[1, sample, neuron] = ~fires & second(u, second_threshold)

        return compute

    right = next(
        table.codelet
        for step, _, _ in made().program.supersteps()
        for table in step.tables
        if table.codelet.name == "FlagSpikes"
    )
    same = replace(right, compute=flags(np.greater, np.greater))
    assert all(f.passed for f in check_values(made().program.with_codelet("FlagSpikes", same), made(), machine(16)))
    for wrong in (flags(np.greater_equal, np.greater), flags(np.greater, np.greater_equal)):
        other = replace(right, compute=wrong)
        assert "'flag spikes'" in failing(made().program.with_codelet("FlagSpikes", other)).text


def test_every_draw_has_its_own_inputs() -> None:
    network = made().network
    drawn = [drawn_inputs(network, draw) for draw in DRAWS]
    assert len({int(values["training_step"][0]) for values in drawn}) == len(DRAWS)
    for name in ("w.hidden0", "moment1.hidden0", "moment2.hidden0", "input.ids"):
        assert not any(np.array_equal(drawn[0][name], other[name]) for other in drawn[1:]), name
        assert any(values[name].any() for values in drawn), name
    assert all(len(np.unique(values["labels"])) == network.classes for values in drawn)


def test_outputs_and_inputs_that_change_places_are_found() -> None:
    program = made().program
    swapped = dict(program.outputs)
    m, v = "next.w.output.m", "next.w.output.v"
    swapped[m], swapped[v] = swapped[v], swapped[m]
    said = (
        f"output '{m}' is left in 'moment2.output', but the next training step begins with what 'moment1.output' holds"
    )
    assert said in failing(replace(program, outputs=swapped)).text
    left_out = {name: held for name, held in program.outputs.items() if name != m}
    assert f"output '{m}' of the compiled program is missing" in failing(replace(program, outputs=left_out)).text
    inputs = {name: held for name, held in program.inputs.items() if name != "training_step"}
    assert "input 'training_step' of the compiled program is missing" in failing(replace(program, inputs=inputs)).text
    weights = replace(program.variables["w.hidden0"], persistent=False)
    changed = replace(program, variables={**program.variables, "w.hidden0": weights})
    assert "does not persist" in failing(changed).text


def _accumulating(table: VertexTable, field: str) -> VertexTable:
    """The table with a codelet that adds to what its field, which it only writes, held before."""

    def compute(*given: Any) -> None:
        place = [item.name for item in table.codelet.fields].index(field)
        before = given[place].copy()
        codelet = table.codelet
        getattr(codelet.compute, "py_func", codelet.compute)(*given)
        given[place][...] += 0 * before  # nothing as long as memory holds numbers

    return table.with_codelet(replace(table.codelet, compute=compute))


def test_what_a_write_field_held_before_is_poison_in_strict_runs() -> None:
    def change(step: Superstep) -> Superstep:
        tables = [
            _accumulating(table, "losses") if table.codelet.name.startswith("CrossEntropy") else table
            for table in step.tables
        ]
        return replace(step, tables=tuple(tables))

    names = {table.codelet.name for step, _, _ in made().program.supersteps() for table in step.tables}
    assert any(name.startswith("CrossEntropy") for name in names), names
    changed = made().program.map_supersteps(change)
    assert "losses" in failing(changed, strict=True).text


def _without_a_vertex(program: Program, wanted: VertexTable, vertex: int) -> Program:
    """The program with one vertex left out."""

    def less(table: VertexTable) -> VertexTable:
        if table is not wanted:
            return table
        kept = np.arange(table.vertices) != vertex
        return replace(
            table,
            tiles=table.tiles[kept],
            columns={name: column[kept] for name, column in table.columns.items()},
            extents={
                name: each[kept] if isinstance(each, np.ndarray) else each for name, each in table.extents.items()
            },
        )

    return program.map_supersteps(lambda step: replace(step, tables=tuple(less(table) for table in step.tables)))


@pytest.mark.slow
def test_a_vertex_that_is_missing_is_found_wherever_it_is() -> None:
    """The first and last vertex of every table; what exchanges bring for them is planned anew."""
    from mimdsim.compiler import plan_exchanges

    program = made().program
    missed = []
    for step, _, _ in program.supersteps():
        for table in step.tables:
            if table.codelet.name in ("RandomOffsets", "CountTimestep"):  # of values that nothing of the program reads
                continue
            for vertex in {0, table.vertices - 1}:
                less = plan_exchanges(_without_a_vertex(program, table, vertex))
                if verify(less, less.tiles):
                    continue
                if all(finding.passed for finding in check_values(less, made(), machine(16))):
                    missed.append((step.name, table.codelet.name, vertex))
    assert not missed


def test_sums_that_cancel_are_held_against_their_terms() -> None:
    """A dense layer with biases, where the gradients of a batch cancel to a ten-thousandth of each."""
    terms = terms_of_sums(training_graph(small_network((4, 3, 2), spikes="dense", bias=True)))
    assert terms["gradient.b.hidden0"] == terms["sum.w.hidden0.next"] == terms["hidden0.dw_now"] == "hidden0.q"
    expected = np.full(4, 1e-6, np.float32)
    off = expected + np.float32(1e-10)
    assert wrong_elements(off, expected).all()
    assert not wrong_elements(off, expected, term=1e-3).any()
    assert wrong_elements(off, expected, term=1e-6).all()


def test_no_sample_has_a_label_that_the_network_is_certain_of() -> None:
    """Its gradient would be what rounding leaves of a probability less 1."""
    graph = made().graph
    (loss,) = (op for op in graph.operations if op.kind == "cross_entropy")
    scores = np.array([[90.0, 2.0, 1.0], [0.2, 0.1, 0.3], [1.0, 90.0, 0.0]]) / loss.attributes.scale
    labels = np.array([0, 0, 2], np.int32)
    for shape in ((3, 3), (1, 3, 3)):  # of a reading, and timestep by timestep
        found = _uncertain(graph, {loss.inputs[0]: scores.reshape(shape)}, labels)
        np.testing.assert_array_equal(found, [2, 0, 2])
        assert found.dtype == labels.dtype
