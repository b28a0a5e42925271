"""Linear neurons on tiles: the compiled program against the interpreter, strictly too, in every wiring; its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from float64_programs import in_float64
from linear_networks import CASES, GRADIENTS, linear_network
from networks import (
    ADAM,
    assert_same_bits,
    assert_same_spikes,
    compiled,
    executed,
    given_values,
    gradient_names,
    interpreted,
    left_in,
    relative_error,
    small_network,
)

from mimdsim.base.errors import MappingError
from mimdsim.codelets import linear_terms, surrogates
from mimdsim.execution import Executor
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.losses import Loss
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.surrogates import SURROGATES
from mimdsim.numerics import equations as arithmetic
from mimdsim.workload import MappingOptions

TOLERANCE = 5e-6


def assert_lowered(network: SpikingNetwork, options: MappingOptions | None = None, *, strict: bool = False) -> None:
    """Spikes and potentials bit for bit, gradients within float32."""
    given = given_values(network, 4)
    expected, made = interpreted(network, given), compiled(network, options=options)
    found = executed(made, given)
    assert expected.counts.sum() > 0
    assert_same_spikes(found, expected)
    for name, potential in expected.potentials.items():
        np.testing.assert_array_equal(found.potentials[name], potential)
    for name, gradient in expected.gradients.items():
        assert np.abs(gradient).max() > 0
        assert relative_error(found.gradients[name], gradient) < TOLERANCE
    if strict:
        assert_same_bits(executed(made, given, strict=True), found)


FAST = [
    ("leaky", "subtract", "mask", "state"),
    ("leaky", "zero", "full", "state"),
    ("rleaky", "zero", "full", "emission"),
    ("synaptic", "zero", "mask", "emission"),
    ("alpha", "subtract", "full", "state"),
    ("alpha", "zero", "pass", "state"),
    ("adaptive", "subtract", "full", "emission"),
    ("norse_lsnn", "zero", "full", "state"),
    ("if", "none", "mask", "state"),
]


@pytest.mark.parametrize(("model", "reset", "reset_gradient", "reset_by"), FAST)
def test_execution_is_interpretation(model: str, reset: str, reset_gradient: str, reset_by: str) -> None:
    capacities = (6, 3) if reset_by == "emission" else None
    assert_lowered(
        linear_network(model, reset, reset_gradient=reset_gradient, reset_by=reset_by, capacities=capacities)
    )


@pytest.mark.slow
@pytest.mark.parametrize("reset_by", ["state", "emission"])
@pytest.mark.parametrize("reset_gradient", GRADIENTS)
@pytest.mark.parametrize(("model", "reset"), CASES)
def test_execution_is_interpretation_of_every_neuron(
    model: str, reset: str, reset_gradient: str, reset_by: str
) -> None:
    assert_lowered(linear_network(model, reset, reset_gradient=reset_gradient, reset_by=reset_by))


def float64_error(network: SpikingNetwork) -> float:
    """Largest relative difference of a gradient between the program in float64 and the interpreter."""
    given = given_values(network, 4, dyadic=False, dtype=np.float64)
    made, expected = compiled(network), interpreted(network, given)
    executor = Executor(in_float64(made.program))
    executor.write(given.for_program(network))
    executor.run(observe=lambda *_: None)
    found = left_in(executor, made)
    assert_same_spikes(found, expected)
    assert all(np.abs(gradient).max() > 0 for gradient in expected.gradients.values())
    return max(relative_error(found.gradients[name], gradient) for name, gradient in expected.gradients.items())


@pytest.mark.slow
@pytest.mark.parametrize(("model", "reset", "reset_gradient", "reset_by"), FAST)
def test_execution_is_interpretation_in_float64(model: str, reset: str, reset_gradient: str, reset_by: str) -> None:
    assert float64_error(linear_network(model, reset, reset_gradient=reset_gradient, reset_by=reset_by)) < 1e-12


@pytest.mark.slow
def test_execution_of_the_published_neuron_is_interpretation_in_float64() -> None:
    """Its constants are rounded to float32 in the program: these are not changed by that."""
    assert float64_error(small_network(decay=0.9375, gain=8.0)) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("reset_by", ["state", "emission"])
@pytest.mark.parametrize("reset_gradient", GRADIENTS)
@pytest.mark.parametrize(("model", "reset"), CASES)
def test_execution_is_interpretation_in_float64_for_every_neuron(
    model: str, reset: str, reset_gradient: str, reset_by: str
) -> None:
    assert float64_error(linear_network(model, reset, reset_gradient=reset_gradient, reset_by=reset_by)) < 1e-12


def test_float64_changes_neither_bytes_nor_cycles() -> None:
    program = compiled(linear_network("leaky", "zero")).program
    wider = in_float64(program)
    assert {name: held.item_bytes for name, held in wider.variables.items()} == {
        name: held.item_bytes for name, held in program.variables.items()
    }
    pairs = zip(wider.supersteps(), program.supersteps(), strict=True)
    assert all(
        one.codelet is other.codelet
        for (a, *_), (b, *_) in pairs
        for one, other in zip(a.tables, b.tables, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("reset_by", ["state", "emission"])
@pytest.mark.parametrize("reset_gradient", ["mask", "full"])
def test_strict_execution_gives_the_same_bits(reset_gradient: str, reset_by: str) -> None:
    network = linear_network(
        "synaptic", "zero", reset_gradient=reset_gradient, reset_by=reset_by, widths=(5, 4, 3), timesteps=3, batch=3,
        capacities=(3, 2),
    )  # fmt: skip
    assert_lowered(network, MappingOptions(neurons_per_tile=2, weight_gradient_replicas=2), strict=True)


WIRINGS: list[dict[str, Any]] = [
    {"delay": 0}, {"recurrence": "all_to_all"}, {"recurrence": "one_to_one", "bias": True}, {"optimiser": ADAM},
    {"delay": 0, "recurrence": "all_to_all", "bias": True}, {"batch": 2}, {"widths": (9, 30, 20, 5)},
]  # fmt: skip


@pytest.mark.first(4)
@pytest.mark.parametrize("wiring", WIRINGS, ids=str)
@pytest.mark.parametrize("reset_by", ["state", "emission"])
def test_every_wiring(wiring: dict[str, Any], reset_by: str) -> None:
    assert_lowered(linear_network("leaky", "zero", reset_gradient="full", reset_by=reset_by, **wiring))


@pytest.mark.slow  # the only ones of their kernels
@pytest.mark.parametrize("reset_gradient", ["mask", "full"])
def test_reset_by_emission_when_spikes_travel_as_rows(reset_gradient: str) -> None:
    network = linear_network("leaky", "zero", reset_gradient=reset_gradient, reset_by="emission", capacities=(6, 2))
    assert_lowered(network, MappingOptions(spike_exchange="dense"))


@pytest.mark.newest  # before NumPy 2 a float32 scalar times a Python float is a float64: strict runs round otherwise
@pytest.mark.parametrize("reset_gradient", GRADIENTS)
def test_constants_of_every_neuron_its_own(reset_gradient: str) -> None:
    """Decays, thresholds and what is lost with a reset, all different."""
    draw = np.random.default_rng(3)
    network = linear_network("synaptic", "zero", reset_gradient=reset_gradient)
    layers = []
    for layer in network.layers:
        given = {
            "alpha": draw.uniform(0.5, 0.9, layer.neurons),
            "beta": draw.uniform(0.5, 0.9, layer.neurons),
            "threshold": draw.uniform(0.8, 1.5, layer.neurons),
        }
        neuron = neuron_of("synaptic", given, reset="zero", reset_gradient=reset_gradient)
        selection = replace(layer.selection, threshold=neuron.threshold)
        layers.append(replace(layer, neuron=neuron, selection=selection))
    assert_lowered(replace(network, layers=tuple(layers)), MappingOptions(neurons_per_tile=4), strict=True)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_a_surrogate_is_the_slope_of_its_smooth_step(surrogate: str) -> None:
    record = SURROGATES[surrogate]
    x = np.linspace(-1.03, 1.02, 42)  # beside the corners, at 0, 1/3 and 1/6 of a slope of 3
    for k in (1.0, 3.0):
        slope = (record.smooth(x + 1e-6, k) - record.smooth(x - 1e-6, k)) / 2e-6
        np.testing.assert_allclose(slope, record.derivative(x, k), rtol=1e-4, atol=1e-8)


@pytest.mark.first(3)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("mapping", ["tilewise", "per_batch"])
def test_every_surrogate_of_the_published_neuron(surrogate: str, mapping: str) -> None:
    network = small_network()
    slope = {"triangular": 1.0, "boxcar": 1.0}.get(surrogate, 4.0)
    selections = [replace(layer.selection, surrogate=surrogate, slope=slope) for layer in network.layers]
    layers = [replace(layer, selection=chosen) for layer, chosen in zip(network.layers, selections, strict=True)]
    assert_lowered(replace(network, layers=tuple(layers)), MappingOptions(state_gradient=mapping))


@pytest.mark.first(2)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_every_surrogate_of_linear_neurons(surrogate: str) -> None:
    slope = {"triangular": 1.0, "boxcar": 1.0}.get(surrogate, 4.0)
    for gradient in ("mask", "full"):
        assert_lowered(linear_network("leaky", "zero", reset_gradient=gradient, surrogate=surrogate, slope=slope))


def test_surrogates_have_arithmetic_and_a_cost() -> None:
    assert tuple(SURROGATES) == arithmetic.KINDS == tuple(surrogates.COSTS)
    for name, record in SURROGATES.items():
        for x in np.linspace(-2, 2, 41):
            expected = record.derivative(np.array([x]), np.float64(1.5))[0]
            assert arithmetic.surrogate(surrogates.kind_of(name), x, 1.5, np.zeros(1)) == pytest.approx(
                expected, rel=1e-12
            )
    assert surrogates.at_an_id("superspike")[0].bundles == 17
    assert surrogates.at_an_id("straight_through")[0].bundles == 9


def structure(model: str, reset: str, **given: Any) -> linear_terms.Structure:
    return linear_terms.pack_terms(neuron_of(model, given, reset=reset), 4, switched=reset != "none").structure


def test_bundles_are_those_of_the_coefficients_that_are_there() -> None:
    plain = structure("leaky", "none")  # v = beta v + I
    assert plain.load_mix().bundles == 2
    assert plain.apply_mix().bundles == 2  # a multiply, an add
    assert plain.readout_mix().bundles == 0
    assert structure("leaky", "zero").apply_mix().bundles == 2 + linear_terms.SELECT.bundles
    assert structure("synaptic", "none").apply_mix().bundles == 3 + 3  # three multiplies; two adds and one
    own = structure("leaky", "none", beta=np.array([0.5, 0.6, 0.7, 0.8]))
    assert own.apply_mix().bundles == 3
    assert own.own == 1
    assert structure("adaptive", "none").readout_mix().bundles == 2
    costs = [
        structure(*case).apply_mix().bundles
        for case in (("leaky", "zero"), ("synaptic", "zero"), ("alpha", "subtract"))
    ]
    assert costs == sorted(costs)


def test_the_published_state_gradient_of_rows_is_refused() -> None:
    with pytest.raises(MappingError, match=r'mapping\.state_gradient = "per_batch" is for neuron = "lif" only: write'):
        compiled(linear_network("leaky", "zero"), options=MappingOptions(state_gradient="per_batch"))


@pytest.mark.parametrize("neuron", ["li", "cuba_li", "leaky"])
def test_a_read_out_of_linear_neurons(neuron: str) -> None:
    """The last layer integrates and is read by its membrane potential; no reset is left of one that had one."""
    network = linear_network("leaky", "zero", reset_by="emission")
    parameters = {} if neuron == "leaky" else {"r": 5.0, "dt": 2e-3}
    output = replace(network.layers[-1], neuron=neuron_of(neuron, parameters, reset_by="emission"), spiking=False)
    network = replace(network, layers=(*network.layers[:-1], output), loss=Loss(kind="cross_entropy", reading="last"))
    given = given_values(network, 4)
    graph = training_graph(network)
    expected = interpret(graph, given.for_graph(network))
    made = compiled(network)
    executor = Executor(made.program)
    executor.write(given.for_program(network))
    executor.run()
    for name in gradient_names(network).values():
        gradient = expected[name]
        assert np.abs(gradient).max() > 0
        assert relative_error(executor.read(name), gradient) < TOLERANCE


DENSE: list[tuple[str, str, dict[str, Any]]] = [
    ("leaky", "subtract", {}),
    ("leaky", "subtract", {"reset_gradient": "full"}),
    ("rleaky", "zero", {"recurrence": "all_to_all", "bias": True}),
    ("synaptic", "zero", {"delay": 0}),
    ("alpha", "subtract", {"reset_gradient": "pass"}),
    ("adaptive", "subtract", {"reset_by": "emission", "reset_gradient": "full"}),
    ("norse_lsnn", "zero", {"surrogate": "arctan", "slope": 2.0}),
    ("leaky", "zero", {"reset_gradient": "full"}),  # stashes the states
    ("leaky", "zero", {"parameters": {"beta": [0.5, 0.6, 0.7, 0.8]}, "widths": (12, 4, 4)}),
]


@pytest.mark.newest  # bits of strict runs: see above; older libraries also add products up in another order
@pytest.mark.parametrize("vertices", ["calls", "fused"])
@pytest.mark.parametrize(("model", "reset", "options"), DENSE)
def test_dense_spikes_on_tiles(model: str, reset: str, options: dict[str, Any], vertices: str) -> None:
    network = linear_network(model, reset, spikes="dense", **options)
    given = given_values(network, 4)
    expected, made = interpreted(network, given), compiled(network, options=MappingOptions(dense_neurons=vertices))
    found = executed(made, given)
    assert expected.counts.sum() > 0
    np.testing.assert_array_equal(found.counts, expected.counts)
    for name, gradient in expected.gradients.items():
        assert np.abs(gradient).max() > 0
        assert relative_error(found.gradients[name], gradient) < TOLERANCE
    assert_same_bits(executed(made, given, strict=True), found)


@pytest.mark.first(2)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_every_surrogate_of_dense_spikes(surrogate: str) -> None:
    slope = {"triangular": 1.0, "boxcar": 1.0}.get(surrogate, 4.0)
    network = small_network(spikes="dense")
    layers = [
        replace(layer, selection=replace(layer.selection, surrogate=surrogate, slope=slope)) for layer in network.layers
    ]
    network = replace(network, layers=tuple(layers))
    given = given_values(network, 4)
    expected, found = interpreted(network, given), executed(compiled(network), given)
    for name, gradient in expected.gradients.items():
        assert np.abs(gradient).max() > 0
        assert relative_error(found.gradients[name], gradient) < TOLERANCE
