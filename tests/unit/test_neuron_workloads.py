"""Neurons as workloads name them: keys, refusals, the docs page, and a run from description to profile.

`python tests/unit/test_neuron_workloads.py` writes the table of models of the docs page from the records.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import (
    assert_same_spikes,
    compiled,
    executed,
    given_values,
    interpreted,
    machine,
    relative_error,
    small_network,
)

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.graph import neuron_catalogue
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.neuron_models import MODELS, by_name, neuron_of
from mimdsim.graph.neuron_parts import Parts, compose, parts_of
from mimdsim.graph.surrogates import SURROGATES
from mimdsim.pipeline import simulate
from mimdsim.workload import load_workload, network_of

PATH = Path(__file__).resolve().parents[2] / "docs" / "neurons.md"
PAGE = PATH.read_text(encoding="utf-8")
MODEL_ROWS = re.compile(r"(?<=\|---\|---\|---\|---\|---\|\n)(\|.*\n)*")


def test_a_workload_without_the_keys_has_the_published_neuron() -> None:
    neuron = network_of(load_workload("digits")).layers[0].neuron
    assert neuron == neuron_of("lif", {"decay": 0.9}, reset_gradient="pass")
    assert neuron.fused


@pytest.mark.parametrize(
    "changes",
    [{"reset": "subtract"}, {"reset_by": "emission"}, {"reset_gradient": "full"}],
    ids=str,
)
def test_the_published_neuron_with_another_reset_is_not_fused(changes: dict[str, str]) -> None:
    neuron = (
        network_of(load_workload("digits", {f"network.{key}": value for key, value in changes.items()}))
        .layers[0]
        .neuron
    )
    assert neuron.model == "lif"
    assert not neuron.fused
    assert neuron.quiet.drive.item() == (1 - 0.9) * 10


def test_constants_of_the_published_neuron_may_differ_in_a_layer() -> None:
    """One number for all neurons is what the published code knows."""
    assert neuron_of("lif").fused
    assert neuron_of("lif", reset="none").fused
    assert not neuron_of("lif", {"decay": [0.5, 0.6]}).fused
    assert neuron_of("lif") != neuron_of("lif", {"decay": 0.5})


def test_a_model_with_its_parameters_and_reset() -> None:
    changes: dict[str, Any] = {
        "network.neuron": "synaptic", "network.neuron_parameters.alpha": 0.5, "network.neuron_parameters.threshold": 2,
        "network.reset": "none", "network.surrogate": "arctan", "network.surrogate_slope": 2.0,
    }  # fmt: skip
    layer = network_of(load_workload("digits", changes)).layers[1]
    neuron = layer.neuron
    assert isinstance(neuron, LinearNeuron)
    assert (neuron.model, neuron.reset_gradient, neuron.fired) == ("synaptic", "mask", None)
    np.testing.assert_array_equal(neuron.quiet.matrix[..., 0], [[0.8, 0.5], [0.0, 0.5]])
    assert (layer.selection.threshold, layer.selection.surrogate, layer.selection.slope) == (2.0, "arctan", 2.0)


def test_a_constant_per_neuron_is_for_layers_of_that_width() -> None:
    changes: dict[str, Any] = {"network.neuron": "leaky", "network.neuron_parameters.beta": [0.5, 0.6]}
    neuron = network_of(load_workload("digits", changes)).layers[0].neuron
    assert isinstance(neuron, LinearNeuron)
    assert neuron.neurons == 2


def test_neurons_and_their_constants_per_layer() -> None:
    """As spike capacities: a list of one per layer, output layer last; one value is for all layers."""
    layers = network_of(
        load_workload("digits", {"network.decay": [0.5, 0.6, 0.7], "network.threshold": [1, 2, 3]})
    ).layers
    assert [layer.neuron.quiet.matrix.item() for layer in layers] == [0.5, 0.6, 0.7]
    assert [layer.selection.threshold for layer in layers] == [1, 2, 3]
    assert all(layer.neuron.fused for layer in layers)
    changes: dict[str, Any] = {
        "network.neuron": ["lif", "synaptic", "li"],
        "network.neuron_parameters": [{}, {"alpha": 0.5, "threshold": 2}, {"tau": 0.02}],
        "network.output": "membrane", "training.reading": "mean",
    }  # fmt: skip
    first, second, last = network_of(load_workload("digits", changes)).layers
    assert first.neuron == neuron_of("lif", {"decay": 0.9})  # which the description gives
    assert second.neuron == neuron_of("synaptic", {"alpha": 0.5, "threshold": 2})
    assert last.neuron == neuron_of("li", {"tau": 0.02})
    assert (first.selection.threshold, second.selection.threshold) == (1, 2)


@pytest.mark.slow
def test_layers_of_different_neurons_run_as_they_mean() -> None:
    network = small_network((12, 10, 8, 4), timesteps=8, batch=4)
    neurons = [
        neuron_of("lif"),
        neuron_of("synaptic", reset="zero"),
        neuron_of("lif", {"decay": 0.5}, reset="subtract"),
    ]
    mixed = replace(
        network,
        layers=tuple(replace(layer, neuron=neuron) for layer, neuron in zip(network.layers, neurons, strict=True)),
    )
    given = given_values(mixed, 4)
    found, expected = executed(compiled(mixed), given), interpreted(mixed, given)
    assert_same_spikes(found, expected)
    for name, gradient in expected.gradients.items():
        assert np.abs(gradient).max() > 0
        assert relative_error(found.gradients[name], gradient) < 1e-4


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"neuron": "leeky"}, r"network\.neuron = 'leeky' is not known; did you mean 'leaky'"),
    ({"neuron": "leaky", "neuron_parameters.bta": 0.5}, r"model 'leaky' has no such parameter; did you mean 'beta'"),
    (
        {"neuron": "leaky", "decay": 0.5},
        r'network\.decay is for neuron = "lif"; leave it out and write .* beta, thresh',
    ),
    ({"neuron": "li"}, r'network\.neuron = "li" never fires; hidden layers need one of lif, leaky'),
    ({"neuron": "leaky", "second_threshold": 1.5}, r"second_threshold: 1\.5 must be below the threshold of 'leaky'"),
    (
        {"neuron": "leaky", "neuron_parameters.beta": [0.5, 1.5, 0.5]},
        r"network\.neuron_parameters\.beta.*1\.5",
    ),
    ({"neuron_parameters.beta": 0.5}, r"model 'lif' has no such parameter; .*it has decay, current_gain"),
    ({"neuron_parameters.decay": 0.5}, r"network\.decay is given in network\.neuron_parameters too; leave one of them"),
    ({"threshold": 0}, r"network\.threshold.* must be greater than 0"),
    ({"decay": [0.5, 0.6]}, r"network\.decay: 2 values given for 3 layers \(2 hidden and the output layer\)"),
    ({"neuron": []}, r"network\.neuron: 0 values given for 3 layers"),
    ({"decay": [0.5, 1.5, 0.5]}, r"'network\.decay\.1'.*: must be less than 1 \(given: 1\.5\)"),
    ({"decay": "much"}, r"network\.decay'.*much"),
    ({"threshold": True}, r"'network\.threshold'.*: is a boolean; a number is needed"),
    ({"neuron": ["lif", "leeky", "lif"]}, r"layer 'hidden1': network\.neuron = 'leeky' is not known; did you mean"),
    ({"neuron": ["lif", "leaky", "li"]}, r"layer 'output': network\.neuron = \"li\" never fires"),
    (
        {"threshold": [1, 0.5, 1]},
        r"layer 'hidden1': network\.second_threshold: 0\.5 must be below the threshold of 'lif'",
    ),
    (
        {"neuron": ["lif", "leaky", "lif"], "decay": [0.5, 0.6, 0.7]},
        r"layer 'hidden1': network\.decay is for neuron = \"lif\"; leave it out and write .* beta, thresh",
    ),
    (
        {"neuron": ["lif", "leaky", "lif"], "neuron_parameters": {"beta": 0.5}},
        r"layer 'hidden0': network\.neuron_parameters\.beta: model 'lif' has no such parameter",
    ),
    (
        {"neuron_parameters": [{}, {"beta": "x"}, {}]},
        r"'network\.neuron_parameters\.1\.beta' \(as changed\): must be a valid number",
    ),
    ({"surrogate": "atan"}, r"network\.surrogate = 'atan' is not known; did you mean 'arctan'"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_refusals_say_what_to_type(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        load_workload("digits", {f"network.{key}": value for key, value in changes.items()})


def model_rows() -> str:
    rows = []
    for model in MODELS.values():
        parameters = ", ".join(f"{item.name} {item.default:g} {item.unit}" for item in model.parameters)
        rows.append(
            f"| `{model.name}` | {model.equation} | {model.source} | {', '.join(model.resets)} | {parameters} |"
        )
    return "\n".join(rows) + "\n"


def test_the_docs_page_is_the_table_of_models_and_surrogates() -> None:
    (rows,) = MODEL_ROWS.finditer(PAGE)
    assert rows.group() == model_rows()
    for record in SURROGATES.values():
        assert f"| `{record.name}` | {record.source} |".replace("|x|", r"\|x\|") in PAGE


def test_the_model_of_the_docs_page_works() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.partition("## Add a model")[2], re.DOTALL)
    assert code is not None
    names = vars(neuron_catalogue) | {"MODELS": MODELS}
    exec(code.group(1).replace("\nModel(", "\nmade = Model("), names)
    model = names["made"]
    neuron = compose(
        model, model.parts({"beta": 0.5, "threshold": 1.0}), reset="subtract", reset_by="state", reset_gradient="mask"
    )
    assert neuron.fired is not None
    np.testing.assert_allclose(neuron.fired.matrix[0, 0], [0.05])
    np.testing.assert_allclose(neuron.quiet.matrix[0, 0], [0.5])


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"network.neuron": "synaptic", "network.reset": "zero"},
        {"network.neuron": "leaky", "network.reset_by": "emission", "network.reset_gradient": "full"},
        {"network.surrogate": "sigmoid"},
    ],
    ids=str,
)
def test_a_run_from_description_to_profile(changes: dict[str, Any]) -> None:
    small = {"network.hidden": [16], "network.capacity": [8, 6], "training.batch": 4, "training.max_training_steps": 2}
    run = simulate(load_workload("digits", small | changes), machine(tiles=64))
    assert run.profile.tiled.seconds_per_training_step > 0
    assert not run.profile.tiled.seconds_per_training_step > 1


@pytest.mark.parametrize("name", ["leaky", "lif"])
def test_models_are_named_once(name: str) -> None:
    record = replace(MODELS["leaky"], name=name)
    with pytest.raises(MappingError, match=f"two neuron models are called '{name}'"):
        by_name([*MODELS.values(), record])


def test_a_model_offers_resets_that_there_are() -> None:
    with pytest.raises(MappingError, match="reset 'subtact' is not one of zero, subtract, none"):
        by_name([replace(MODELS["leaky"], resets=("zero", "subtact"))])


PAIR = Parts(matrix=[[0.9, 1.0], [0.0, 0.5]], drive=[0.0, 1.0])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (replace(PAIR, drive=[1.0]), "drive has 1 entries; give one per state"),
        (replace(PAIR, matrix=[[0.9, 1.0]]), "matrix has 1 rows of 2; give 2 rows of 2"),
        (replace(PAIR, matrix=[[0.9, 1.0], [0.5]]), "matrix has 2 rows of 2, 1; give 2 rows of 2"),
        (replace(PAIR, constant=[0.0, 0.0, 1.0]), "constant has 3 entries; give one per state"),
        (replace(PAIR, readout=[1.0]), "readout has 1 entries; give one per state, or none"),
        (replace(PAIR, jumps=[1.0]), "jumps has 1 entries; give one per state, or none"),
        (replace(PAIR, zero_when="befor"), "zero_when is 'befor'; did you mean 'before'?"),
        (replace(PAIR, zeroed=(0, 2)), "zeroed has 2; give numbers of states, 0 to 1"),
        (replace(PAIR, zeroed=(-1,)), "zeroed has -1; give numbers of states, 0 to 1"),
        (replace(PAIR, subtracted=([[1.0]], [1.0])), "subtracted has 2 entries; give matrix, drive, constant"),
        (replace(PAIR, subtracted=([[1.0]], [1.0], [0.0])), "subtracted: matrix has 1 rows of 1; give 2 rows of 2"),
    ],
)
def test_parts_that_do_not_fit_their_states_are_refused(parts: Parts, message: str) -> None:
    model = replace(MODELS["synaptic"], parts=lambda _: parts)
    with pytest.raises(MappingError) as raised:
        compose(model, parts_of(model, {}), reset="zero", reset_by="state", reset_gradient="mask")
    assert str(raised.value) == f"neuron model 'synaptic' ({', '.join(model.states)}): {message}"


def test_parts_use_only_parameters_of_their_model() -> None:
    model = replace(MODELS["leaky"], parts=lambda p: Parts(matrix=[[p["betta"]]], drive=[1.0]))
    with pytest.raises(MappingError, match=r"model 'leaky': parts use a parameter 'betta', .*; did you mean 'beta'"):
        parts_of(model, {"beta": 0.5, "threshold": 1.0})


if __name__ == "__main__":
    PATH.write_text(MODEL_ROWS.sub(lambda _: model_rows(), PAGE), encoding="utf-8")
