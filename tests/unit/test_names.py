"""Names say nothing: what a value is, and whose, stands in fields; names are put together and never taken apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from networks import SGD, compiled, given_values, small_network

import mimdsim
from mimdsim.execution import Executor
from mimdsim.execution.activity import run_recorded
from mimdsim.graph import Scan, SpikingNetwork, training_graph
from mimdsim.graph.names import Parameter
from mimdsim.graph.stash import stash_policy
from mimdsim.workload import MappingOptions

PACKAGE = Path(mimdsim.__file__).parent
ROOMS = ("graph", "compiler", "program", "execution", "timing", "profile", "gpu", "pipeline", "checking")
APART = {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix", "removesuffix"}
OPTIONS = [MappingOptions(neurons_per_tile=2, stash=stash) for stash in ("everything", "carry", "every:2")]
RENAMED = {"hidden0": "previous.a", "hidden1": "a", "output": "sum.w.a"}


def taken_apart(source: str) -> Iterator[int]:
    """Lines that cut or test text at a dotted piece."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in APART:
            pieces = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            if any(isinstance(piece, str) and "." in piece for piece in pieces):
                yield node.lineno


def test_no_name_of_a_value_is_taken_apart() -> None:
    assert list(taken_apart("x.split('.')\nx.startswith(f'w.{y}')\nx.split(':')\nx.removesuffix('.ids')")) == [1, 2, 4]
    # a sentence, keys of descriptions
    others = {"checking/kernel.py", "pipeline/what_if.py", "pipeline/warnings.py", "pipeline/overrides.py"}
    for room in ROOMS:
        files = [*PACKAGE.glob(room if "*" in room else f"{room}/**/*.py")]
        assert files
        for file in files:
            where = file.relative_to(PACKAGE).as_posix()
            assert where in others or not list(taken_apart(file.read_text())), where


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("weights", ("w.a", "a", "a", "moment1.a")),
        ("recurrent", ("r.a", "r.a", "a.recurrent", "moment1.r.a")),
        ("bias", ("b.a", "b.a", "a.bias", "moment1.b.a")),
        ("recurrent_bias", ("rb.a", "rb.a", "a.recurrent_bias", "moment1.rb.a")),
        ("threshold", ("threshold.a", "threshold.a", "a.threshold", "moment1.threshold.a")),
    ],
)
def test_names_of_a_parameter(role: str, names: tuple[str, ...]) -> None:
    made = Parameter(layer="a", role=role, shape=(2, 3))
    assert (made.name, made.short, made.public, made.kept("moment1")) == names
    assert (made.value.role, made.value.layer, made.value.shape) == (role, "a", (2, 3))


def wired(**more: object) -> SpikingNetwork:
    return small_network(
        (7, 6, 5, 3), timesteps=4, capacities=(4, 3, 3), recurrence="all_to_all", bias=True, optimiser=SGD, **more
    )  # type: ignore[arg-type]


def renamed(network: SpikingNetwork) -> SpikingNetwork:
    return replace(network, layers=tuple(replace(each, name=RENAMED[each.name]) for each in network.layers))


def test_values_know_whose_they_are_and_when() -> None:
    graph = training_graph(renamed(wired(truncation="random")))
    forward: Scan = graph.scan("forward").attributes
    backward: Scan = graph.scan("backward").attributes
    for carry in forward.carries:
        enters, leaves = forward.body.value(carry.enters), forward.body.value(carry.leaves)
        assert (enters.layer, enters.role, enters.shift) == (leaves.layer, leaves.role, -1)
        assert leaves.layer in RENAMED.values()
        assert leaves.shift == 0
    for item in backward.slices:
        saved = backward.body.value(item.inside)
        if saved.role == "saved":
            assert replace(saved, name=saved.of, role="", of="") == replace(forward.body.value(saved.of), role="")
            assert saved.shift == item.shift
    sums = [backward.body.value(carry.enters) for carry in backward.carries]
    gradients = {value.of: value.layer for value in sums if value.role == "gradient"}
    assert gradients == {name: parameter.layer for name, parameter in renamed(wired()).parameters.items()}
    assert {value.of for value in sums if value.role == "adjoint"} <= {carry.leaves for carry in forward.carries}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.stash)
@pytest.mark.parametrize("delay", [0, 1])
def test_layers_may_be_called_anything(options: MappingOptions, delay: int) -> None:
    """The same numbers whatever the layers are called, even as parts of other names."""
    plain = wired(delay=delay)
    other = renamed(plain)
    values = given_values(plain, 5)
    arrays = {name: values.arrays[mine] for mine, name in zip(plain.parameters, other.parameters, strict=True)}
    expected = Executor(compiled(plain, options=options).program, rounded=True)
    found = Executor(compiled(other, options=options).program, rounded=True)
    expected.write(values.for_program(plain))
    found.write(replace(values, arrays=arrays).for_program(other))
    expected_spikes, spikes = run_recorded(expected, plain), run_recorded(found, other)
    assert {RENAMED[name]: count for name, count in expected_spikes.dropped.items()} == spikes.dropped
    assert sum(spikes.dropped.values()) > 0
    for name, ids in expected_spikes.ids.items():
        np.testing.assert_array_equal(spikes.ids[RENAMED.get(name, name)], ids)
    mine, theirs = (executor.program.observables.gradients.values() for executor in (expected, found))
    for one, two in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(expected.read(one), found.read(two))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.stash)
def test_a_program_says_where_its_potentials_are(options: MappingOptions) -> None:
    network = wired(truncation="random")
    program = compiled(network, options=options).program
    kept = stash_policy(options.stash).name != "every"
    for layer in network.layers:
        potential = program.observables.potentials[layer.name]
        assert potential.value == f"v.{layer.name}"
        assert potential.sequence == (f"v.{layer.name}.sequence" if kept else "")
    assert program.observables.generators == tuple(f"random.{layer.name}" for layer in network.layers)
    assert program.observables.gradients.keys() == network.parameters.keys()
    assert {*program.observables.gradients.values()} <= program.outputs.keys()
