"""Neurons as workloads name them: keys, refusals, the docs page, and a run from description to profile."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import machine

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.graph import neurons_snntorch
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.neuron_models import MODELS, by_name
from mimdsim.graph.neuron_parts import compose
from mimdsim.graph.neurons import Lif
from mimdsim.graph.surrogates import SURROGATES
from mimdsim.run import simulate
from mimdsim.workload import load_workload, network_of

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "neurons.md").read_text()


def test_a_workload_without_the_keys_has_the_published_neuron() -> None:
    neuron = network_of(load_workload("digits")).layers[0].neuron
    assert neuron == Lif(decay=0.9, gain=10.0, threshold=1.0, reset_gradient="pass")


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


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"neuron": "leeky"}, r"network\.neuron = 'leeky' is not known; did you mean 'leaky'"),
    ({"neuron": "leaky", "neuron_parameters.bta": 0.5}, r"model 'leaky' has no such parameter; did you mean 'beta'"),
    (
        {"neuron": "leaky", "decay": 0.5},
        r'network\.decay is for neuron = "lif"; leave it out and write .* beta, thresh',
    ),
    ({"neuron": "li"}, r'network\.neuron = "li" never fires; hidden layers need one of leaky'),
    ({"neuron": "leaky", "second_threshold": 1.5}, r"second_threshold: 1\.5 must be below the threshold of 'leaky'"),
    ({"neuron_parameters.beta": 0.5}, r'neuron_parameters is for models; neuron = "lif" takes network\.decay'),
    ({"reset": "subtract"}, r'network\.neuron = "lif" resets to zero by state.* write network\.neuron = one of'),
    ({"reset_by": "emission"}, r'network\.neuron = "lif" resets to zero by state'),
    ({"reset_gradient": "full"}, r'network\.neuron = "lif" resets to zero by state'),
    ({"surrogate": "atan"}, r"network\.surrogate = 'atan' is not known; did you mean 'arctan'"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_refusals_say_what_to_type(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        load_workload("digits", {f"network.{key}": value for key, value in changes.items()})


def test_the_docs_page_is_the_table_of_models_and_surrogates() -> None:
    for model in MODELS.values():
        parameters = ", ".join(f"{item.name} {item.default:g} {item.unit}" for item in model.parameters)
        row = f"| `{model.name}` | {model.equation} | {model.source} | {', '.join(model.resets)} | {parameters} |"
        assert row in PAGE
    for record in SURROGATES.values():
        assert f"| `{record.name}` | {record.source} |".replace("|x|", r"\|x\|") in PAGE


def test_the_model_of_the_docs_page_works() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    names = vars(neurons_snntorch) | {"MODELS": MODELS}
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
    record = dataclasses.replace(MODELS["leaky"], name=name)
    with pytest.raises(MappingError, match=f"two neuron models are called '{name}'"):
        by_name([*MODELS.values(), record])


def test_a_model_offers_resets_that_there_are() -> None:
    with pytest.raises(MappingError, match="reset 'subtact' is not one of zero, subtract, none"):
        by_name([dataclasses.replace(MODELS["leaky"], resets=("zero", "subtact"))])
