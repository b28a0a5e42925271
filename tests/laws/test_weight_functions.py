"""Weights that are functions of parameters: PyTorch's functions, on tiles as they are meant, refused where they cannot
be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from networks import ADAM, Given, assert_same_bits, compiled, executed, given_values, interpreted, relative_error
from test_array_lowering import assert_agree as assert_dense_agree
from test_gpu_execution import assert_same_training_step
from test_sources import POPULATIONS, SKIP, network_reading
from test_whole_tensors import run_whole
from test_wiring import assert_agrees, assert_copies_agree

import mimdsim
from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.graph import SpikingNetwork
from mimdsim.graph.derived import (
    FUNCTIONS,
    WeightFunction,
    run_lengths,
    weight_function_gradient,
    weights_of_function,
)
from mimdsim.graph.names import gradient_of
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.workload import MappingOptions, load_workload, network_of
from mimdsim.workload.interchange.layers import network_of_layers

DENSE: dict[str, Any] = {"spikes": "dense", "capacities": None}
RUNS = {9: (6, -3), 8: (1, -1, 5, -1), 6: (5, -1), 1: ()}


def functional(function: str, **changes: Any) -> SpikingNetwork:
    """Excitatory and inhibitory populations: all weights, and recurrences, are functions of parameters."""
    network = network_reading(POPULATIONS, **({"optimiser": ADAM, "recurrence": "all_to_all", "gain": 8.0} | changes))
    factor = 4.0 if function == "tanh" else 1.0  # of what is at most 1
    layers = []
    for layer in network.layers:
        named = [each for each in layer.parameters if each.role in ("weights", "recurrent")]
        about = tuple(
            (each.public, WeightFunction(function=function, signs=RUNS.get(each.shape[0], ()), factor=factor))
            for each in named
        )
        layers.append(replace(layer, weight_functions=about))
    return replace(network, layers=tuple(layers))


def values_of(network: SpikingNetwork, seed: int = 3) -> Given:
    """What weights are made of: as drawn where functions round nothing, else what makes nearly that."""
    values = given_values(network, seed)
    for layer in network.layers:
        for each in layer.derived:
            own = each.of[0]
            if each.kind == "weight_function" and not (about := each.about.about).keeps_zeros:
                drawn = np.abs(values.arrays[own.name].astype(np.float64)) + 2.0**-10
                values.arrays[own.name] = about.inverse(drawn).astype(np.float32)
    return values


def of_pytorch(function: str) -> Any:
    """PyTorch's function, of formats straight through."""
    torch = pytest.importorskip("torch")
    types = {"half": torch.float16, "bfloat16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    if function in types:
        return lambda w: w + (w.float().to(types[function]).double() - w).detach()
    if function == "int8":
        return lambda w: w + (torch.round(w * (127 / w.abs().max())) * w.abs().max() / 127 - w).detach()
    return {"identity": lambda w: w, "softplus": torch.nn.functional.softplus}.get(function) or getattr(torch, function)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_and_gradients_are_those_of_pytorch(function: str) -> None:
    torch, theirs = pytest.importorskip("torch"), of_pytorch(function)
    about, draw = WeightFunction(function=function, signs=(2, -3), factor=-0.5), np.random.default_rng(1)
    w = np.concatenate([draw.normal(0, 3, (4, 7)), np.array([[0.0, -0.0, 19.0, 30.0, -30.0, 1e-9, -1e-9]])])
    sign, g = np.array([1, 1, -1, -1, -1])[:, None], draw.normal(0, 1, w.shape)
    for kind in (np.float64, np.float32):
        given = torch.tensor(w.astype(kind).astype(np.float64), requires_grad=True)
        made = theirs(given) * torch.tensor(-0.5 * sign)
        made.backward(torch.tensor(g.astype(kind).astype(np.float64)))
        least = 1e-12 if kind is np.float64 else 1.2e-7
        for ours, meant in (
            (weights_of_function(about, w.astype(kind)), made.detach().numpy()),
            (weight_function_gradient(about, g.astype(kind), w.astype(kind)), given.grad.numpy()),
        ):
            assert ours.dtype == kind
            # beyond 20 PyTorch leaves the logarithm out
            np.testing.assert_allclose(ours, meant, rtol=3e-9 if "soft" in function else least, atol=least)
    for rows in (slice(0, 2), slice(1, 5)):  # a part of the rows, as copies of a layer work on
        np.testing.assert_array_equal(
            weights_of_function(about, w[rows], rows.start, *([30.0] if function in FORMATS else [])),
            weights_of_function(about, w)[rows],
        )
    made_of = FUNCTIONS[function]
    if made_of.format:
        return
    some = np.array([0.0, 2.0**-14, 0.25, 1.0, 9.0])
    some = some[some < made_of.of(np.array(20.0))]  # what it may make
    np.testing.assert_allclose(made_of.of(made_of.inverse(some)), some, rtol=1e-12, atol=1e-80)


def test_signs_are_runs_of_rows() -> None:
    assert run_lengths(np.array([1, 1, -1, 1, -1, -1])) == (2, -1, 1, -2)
    assert run_lengths(np.ones(5)) == ()
    assert run_lengths(-np.ones(3)) == (-3,)
    found = WeightFunction(function="abs", signs=(2, -1, 1)).sign(1, 4)
    np.testing.assert_array_equal(found[:, 0], [1, -1, 1])
    scaled = WeightFunction(function="abs", signs=(2, -1), factor=-0.5)
    assert scaled.of_rows(1, 3, negative=True) == WeightFunction(function="abs", signs=(-1, 1), factor=-0.5)
    np.testing.assert_array_equal(scaled.sign(1, 3)[:, 0], [-0.5, 0.5])
    plain = WeightFunction(function="identity", factor=0.5)
    assert plain.of_rows(0, 3, negative=True) == WeightFunction(function="identity", factor=-0.5)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_lists_run_on_tiles_as_meant(function: str) -> None:
    network = functional(function)
    values = values_of(network)
    expected = interpreted(network, values)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-7
    made = compiled(network)
    found = executed(made, values)
    assert_agrees(found, expected)
    assert_same_bits(executed(made, values, strict=True), found)


@pytest.mark.first(2)
@pytest.mark.parametrize("form", ["calls", "fused", "traced"])
@pytest.mark.parametrize("function", ["abs", "softplus", "e4m3", "int8"])
def test_dense_spikes_run_on_tiles_as_meant(function: str, form: str) -> None:
    network = functional(function, bias=True, **DENSE)
    values = values_of(network)
    made = compiled(network, options=MappingOptions(dense_neurons=form))
    found = executed(made, values)
    assert_dense_agree(found, interpreted(network, values))
    assert_same_bits(executed(made, values, strict=True), found)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["abs", "e4m3", "int8"])
def test_copies_of_a_layer_make_their_share_of_the_weights(function: str) -> None:
    network = functional(function, recurrence="one_to_one")
    values = values_of(network)
    for name in [each.of[0].name for layer in network.layers for each in layer.derived if function == "int8"]:
        of = values.arrays[name]  # steps of a power of two, with which sums in any order are exact
        of.flat[np.abs(of).argmax()] = 127 * 2.0 ** np.ceil(np.log2(np.abs(of).max() / 127))
    assert_copies_agree(network, values)


@pytest.mark.parametrize("recurrence", ["all_to_all", "one_to_one", "none"])
@pytest.mark.parametrize("more", [{}, DENSE], ids=["lists", "dense"])
def test_whole_tensors_make_what_the_program_makes(more: dict[str, Any], recurrence: str) -> None:
    network = biased(functional("softplus", recurrence=recurrence, largest_gradient_norm=0.05, **more))
    first = network.layers[0]
    some = tuple(each for each in first.weight_functions if each[0] != "hidden0")  # some weights are read as they are
    network = replace(network, layers=(replace(first, weight_functions=some), *network.layers[1:]))
    values = values_of(network)
    whole, meant = run_whole(network, values), interpreted(network, values)
    kept = {parameter.kept(slot) for parameter in network.trained.values() for slot in network.optimiser.state}
    assert set(whole.memory) == {*network.parameters, *kept}
    for name, parameter in network.trained.items():
        for found, expected in (
            (whole.read(gradient_of(name)), meant.gradients[parameter.short]),
            (whole.read(f"next.{name}"), meant.updated[parameter.short]),
        ):
            assert np.abs(expected).max() > 0
            assert relative_error(found, expected) < 1e-5, name


def biased(network: SpikingNetwork, count: int = 2) -> SpikingNetwork:
    return replace(network, layers=tuple(replace(layer, bias=count) for layer in network.layers))


@pytest.mark.slow
@pytest.mark.parametrize("recurrence", ["all_to_all", "none"])
@pytest.mark.parametrize("more", [{}, DENSE], ids=["lists", "dense"])
def test_biases_that_add_up_are_trained_each(more: dict[str, Any], recurrence: str) -> None:
    network = biased(
        network_reading(SKIP, recurrence=recurrence, optimiser=ADAM, largest_gradient_norm=0.05, **more), 3
    )
    values = given_values(network, 3)
    made, expected = compiled(network), interpreted(network, values)
    found = executed(made, values)
    (assert_dense_agree if more else assert_agrees)(found, expected)
    assert_same_bits(executed(made, values, strict=True), found)
    for layer in network.layers:
        same = [found.gradients[f"{role}.{layer.name}"] for role in ("b", "bias2", "bias3")]
        np.testing.assert_array_equal(same[0], same[1])
        np.testing.assert_array_equal(same[0], same[2])
    one = biased(network, 1)
    summed = {f"b.{each.name}": sum(values.arrays[f"{role}.{each.name}"] for role in ("b", "bias2", "bias3"))
              for each in network.layers}  # fmt: skip
    alone = interpreted(one, replace(values, arrays=values.arrays | summed))
    assert alone.loss == expected.loss
    if not more:
        assert_copies_agree(network, values)


@pytest.mark.parametrize("strategy", ["as_published", "hoisted", "persistent"])
def test_gpus_run_functions_as_meant(strategy: str) -> None:
    recurrence = "none" if strategy == "hoisted" else "all_to_all"
    sources = {} if strategy == "hoisted" else POPULATIONS
    network = network_reading(sources, recurrence=recurrence, optimiser=ADAM, **DENSE)
    about = ("hidden0", WeightFunction(function="abs", signs=(5, -4)))
    first = replace(network.layers[0], weight_functions=(about,))
    assert_same_training_step(replace(network, layers=(first, *network.layers[1:])), strategy, 3)


ABS = {"function": "abs", "signs": [400, -112]}
KEYS: dict[str, Any] = {
    "network.hidden": (16, 12),
    "network.capacity": (16, 12, 10),
    "network.recurrence": "all_to_all",
    "network.weight_functions": {"hidden0": ABS, "hidden1.recurrent": {"function": "relu", "signs": [8, -4]}},
}
DENSE_KEYS = {**KEYS, "network.spikes": "dense", "network.capacity": ()}


def test_a_workload_says_functions() -> None:
    network = network_of(load_workload("digits", KEYS))
    assert network.layers[0].weight_functions == (("hidden0", WeightFunction(function="abs", signs=(400, -112))),)
    assert [each.name for each in network.layers[0].matrices] == ["w.hidden0.from.abs"]
    assert "functions of weights" in network.summary


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"hiden0": ABS}, r"network\.weight_functions: no weights 'hiden0'.*did you mean 'hidden0'"),
        ({"hidden0.bias": ABS}, r"no weights 'hidden0\.bias'.*there are hidden0, hidden0\.recurrent"),
        ({"hidden0": ABS | {"function": "abz"}}, "function 'abz' is not known.*did you mean 'abs'"),
        ({"hidden0": ABS | {"signs": [400, -100]}}, "signs are of 500 rows, the weights have 512"),
        ({"hidden0": ABS | {"signs": [512, 0]}}, "a run of 0 rows"),
        ({"hidden0": ABS | {"factor": 0.0}}, "factor is 0; give a number other than 0"),
    ],
)
def test_what_is_no_function_of_weights_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(MimdsimError, match=message):
        network_of(load_workload("digits", {**KEYS, "network.weight_functions": keys}))


def test_what_cannot_be_with_functions_is_refused() -> None:
    exp = {"hidden0": {"function": "exp"}}
    for more, message in (
        ({"training.pruned": {"hidden0": 0.5}}, "which makes others of zeros"),
        ({"network.delays": {"hidden0": {"ages": 3}}}, "weights with delays that are learned have none"),
        ({**DENSE_KEYS, "network.batch_norm": "timestep"}, "batch norm is folded into weights"),
    ):
        with pytest.raises(MappingError, match=message):
            network_of(load_workload("digits", {**KEYS, **more, "network.weight_functions": exp}))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(FUNCTIONS), 3))
@pytest.mark.parametrize("keys", [KEYS, DENSE_KEYS], ids=["lists", "dense"])
def test_the_checker_passes_functions_of_weights(keys: dict[str, Any], start: int) -> None:
    """Three functions in a network, each in another place."""
    on, several = "bow" if keys is DENSE_KEYS else "tiny", (*FUNCTIONS, *FUNCTIONS)[start : start + 3]
    first, own, last = several
    given = KEYS["network.weight_functions"]
    about = {name: given[name] | {"function": each} for name, each in zip(given, (first, own), strict=True)}
    about |= {"output.bias": {"function": "identity", "factor": 0.75}, "output": {"function": last, "factor": 0.75}}
    about["hidden0"] |= {"signs": [100, -28]}
    keys = {**keys, "network.bias": [False, False, True], "data.grid": 8}  # a quarter of the pixels
    changes = {**keys, "network.weight_functions": about}
    few = {"timesteps": 3, "batch": 4}  # weights are made before
    found = mimdsim.check("digits", on, changes=changes, strict=True, **few).findings
    assert all(each.passed for each in found), [each.text for each in found if not each.passed]


def test_a_network_trains_what_its_weights_are_made_of() -> None:
    keys = KEYS | {"training.max_training_steps": 3, "data.timesteps": 10, "training.batch": 8}
    made = mimdsim.run("digits", "bow", changes=keys)
    assert made.weights["hidden0"].min() < 0 < made.weights["hidden0"].max()
    network = network_of(made.workload)
    weights = {each.name: made.weights[each.public] for each in network.parameters.values()}
    written, _ = network_of_layers(network, weights, 1e-3)
    first, second = written.populations[:2]
    ((_, values),) = first.reads
    assert (values[:400] >= 0).all()
    assert (values[400:] <= 0).all()
    np.testing.assert_array_equal(np.abs(values), np.abs(made.weights["hidden0"]).astype(np.float64))
    assert (second.recurrent[:8] >= 0).all()
    assert (second.recurrent[8:] <= 0).all()


def test_one_weight_of_a_layer_is_no_function() -> None:
    with pytest.raises(MappingError, match='"one_weight" goes with no function or format of weights'):
        functional("abs", recurrence="one_weight")


@pytest.mark.slow
def test_copies_of_a_layer_share_its_one_weight() -> None:
    network = network_reading(POPULATIONS, optimiser=ADAM, recurrence="one_weight", gain=8.0)
    values = given_values(network, 3)
    assert_copies_agree(network, values)
