"""Every key of a workload has an effect, or is refused, or told: none is accepted without a word."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

import mimdsim
from mimdsim.base.errors import MimdsimError
from mimdsim.base.shown import brief
from mimdsim.workload import find_workload, load_workload, unread_keys
from mimdsim.workload.description.mapping import MappingOptions
from mimdsim.workload.description.sections import Data, Network, TrainingRecipe

SECTIONS = {"data": Data, "network": Network, "training": TrainingRecipe, "mapping": MappingOptions}
SMALL: dict[str, Any] = {
    "data.timesteps": 8,
    "data.train_samples": 40,
    "data.test_samples": 20,
    "network.hidden": [16, 12],
    "training.batch": 8,
    "training.epochs": 1,
    "training.evaluate": "never",
    "training.max_training_steps": 3,
}
SPIKES: dict[str, dict[str, Any]] = {"sparse": {"network.capacity": [8, 8, 8]}, "dense": {"network.spikes": "dense"}}
OTHER: dict[str, dict[str, Any]] = {  # another value than by default and than in `digits`
    "data": {
        "encoding": "image", "denoise_seconds": 0.1, "crop": 4, "grid": 4, "shift_pixels": 1, "sensor": [8, 8, 2],
        "levels": 3, "classes": 4, "inputs": 20, "manifold_dimensions": 2, "smoothness": 1.0, "activity": 0.3,
        "input_capacity": 4, "timesteps": 6, "source": "mnist5k", "train_samples": 12, "path": "elsewhere.h5",
    },
    "network": {
        "hidden": [16, 10], "activity": 0.5, "output_capacity": 4, "capacity": [2, 2, 2], "second_threshold": 0.3,
        "output_second_threshold": 0.3, "truncation": "random", "batch_norm": "timestep", "batch_norm_epsilon": 1e-3,
        "batch_norm_momentum": 0.3, "batch_norm_groups": 2, "dropout": 0.3, "dropout_per": "sequence",
        "dropout_of": "plane", "decay": 0.8, "current_gain": 5.0, "threshold": 0.7,
        "surrogate": "rectangular", "surrogate_slope": 3.0, "reset": "subtract",
        "reset_by": "emission", "reset_gradient": "full", "delay": 0, "bias": True, "recurrence": "one_to_one",
        "output": "membrane", "spikes": "dense", "neuron": "leaky", "imported": "elsewhere.nir",
        "learned": {"hidden0": ["threshold"]}, "sources": {"output": ["hidden0", "hidden1"]},
        "delays": {"hidden0": {"ages": 2}}, "weight_functions": {"hidden0": {"function": "abs"}},
        "weight_format": "e4m3", "unweighted": ["output"],
    },
    "training": {
        "batch": 4, "loss": "mean_squared_error", "reading": "mean", "over_timesteps": "mean", "correct_rate": 0.7,
        "burn_in": 3,
        "incorrect_rate": 0.1, "firing_target": 0.1, "firing_strength": 0.1, "optimiser": "sgd",
        "optimiser_parameters": {"beta1": 0.5}, "learning_rate": 0.1, "momentum": 0.5, "weight_decay": 0.1,
        "schedule": "one_cycle", "warm_up_training_steps": 1, "final_rate_share": 0.1, "rate_factor": 0.5,
        "rate_epochs": 2, "rate_table": [[0, 0.5]], "largest_gradient_norm": 0.01, "second_threshold_share": 0.1,
        "second_threshold_start": -5.0, "second_threshold_output": True, "initial_weights": "elsewhere.npz",
        "frozen": ["hidden0"], "pruned": {"hidden0": 0.5}, "weight_scale": 1.0, "weight_offset": 0.1,
        "recurrent_scale": 0.5, "initial_activity": 0.2, "initial_activity_tolerance": 0.5, "logit_scale": 0.5,
        "max_training_steps": 1, "evaluate": "end", "validation_share": 0.2, "keep_best": True, "engine": "program",
    },
    "mapping": {
        "neurons_per_tile": 4, "neurons_unit": 4, "reserved_tiles": 2, "tiles": 100, "weight_gradient_replicas": 3,
        "reduce_exponent": 0.3, "reduce_group": 2, "state_gradient": "per_batch", "id_bytes": 2, "value_bytes": 2,
        "spike_exchange": "dense", "selection_tiles": "last", "dense_neurons": "traced", "reduce_rule": "even",
        "strip_columns": 4, "stash": "every:4", "split": {"hidden0": {"batch": 2}}, "program": "best",
        "behind_tiles": ["stash"],
    },
}  # fmt: skip
ELSEWHERE = {  # keys that are tried in other tests, or of which one value cannot be another's here
    "data.bin_seconds": "the timestep of what export writes, and of recordings",
    "data.test_samples": "what an evaluation takes; there is none here",
    "network.cells": "names models; network.neuron chooses one",
    "network.models": "names a file of models; network.neuron chooses one",
    "network.convolutions": "of planes",
    "network.neuron_parameters": "of other neurons",
    "network.neurons_per_class": "changes the width of the output",
    "training.epochs": "max_training_steps ends this training",
    "mapping.moment_bytes": "4 is what values have",
    "mapping.states_per_worker": "too few states here for a second worker",
}
KEYS = [f"{section}.{key}" for section, model in SECTIONS.items() for key in model.model_fields]


def _computed(changes: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """What depends on what is computed and timed in a run, and its warnings."""
    profile = mimdsim.run("digits", "bow", changes=changes, gpus=()).profile
    records = (profile.training, *profile.activity)
    told = (brief(profile.tiled), *(repr(one and asdict(one)) for one in records))
    return told, " ".join(profile.warnings)


@pytest.fixture(scope="module", params=SPIKES)
def base(request: pytest.FixtureRequest) -> tuple[dict[str, Any], tuple[str, ...]]:
    changes = SMALL | SPIKES[request.param]
    return changes, _computed(changes)[0]


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in KEYS if key not in ELSEWHERE])
def test_a_key_has_an_effect_or_is_named(key: str, base: tuple[dict[str, Any], tuple[str, ...]]) -> None:
    changes, computed = base
    section, name = key.split(".")
    value = OTHER[section][name]
    if key == "network.spikes" and changes.get(key) == value:
        return  # tried from the other side
    if changes.get(key, SECTIONS[section].model_fields[name].default) in (value, PydanticUndefined, None):
        changes = {other: given for other, given in changes.items() if other != key}
    try:
        other, warnings = _computed(changes | {key: value})
    except MimdsimError:
        return
    told = f"{key}: has no effect" in warnings
    assert told == (other == computed), f"{key} = {value!r} changes {'nothing' if other == computed else 'something'}"


@pytest.mark.parametrize(
    ("changes", "key", "why"),
    [
        ({"network.batch_norm_momentum": 0.3}, "network.batch_norm_momentum", "no layer has a batch norm"),
        ({"network.dropout_per": "sequence"}, "network.dropout_per", "nothing is dropped"),
        ({"training.incorrect_rate": 0.1}, "training.incorrect_rate", '"cross_entropy" has no rates'),
        ({"training.recurrent_scale": 0.5}, "training.recurrent_scale", "no layer has synapses onto itself"),
        ({"mapping.dense_neurons": "fused"}, "mapping.dense_neurons", "for dense spikes"),
        ({"data.smoothness": 1.0}, "data.smoothness", "is for source 'randman'"),
    ],
)
def test_a_key_without_effect_is_named(changes: dict[str, Any], key: str, why: str) -> None:
    with pytest.raises(MimdsimError) as refused:
        mimdsim.run("digits", "bow", changes=SMALL | SPIKES["sparse"] | changes)
    assert key in str(refused.value)
    assert why in str(refused.value)


def test_lists_of_a_description_serve_comparisons_with_dense_spikes() -> None:
    dense: dict[str, Any] = {"network.spikes": "dense"}
    assert not [*unread_keys(load_workload("digits", dense), dense)]
    assert {each.key for each in unread_keys(load_workload("digits", dense))} >= {"network.capacity"}
    both = dense | {"network.activity": 0.1, "network.capacity": []}
    (told,) = unread_keys(load_workload("digits", both), both)
    assert told.why == "network.activity: has no effect, because it is for lists of spikes, not for dense spikes"


@pytest.mark.parametrize("name", mimdsim.list_workloads())
def test_no_workload_has_a_key_without_effect(name: str) -> None:
    assert not [*unread_keys(load_workload(name))]


def test_a_run_says_which_keys_have_no_effect(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    text = find_workload("digits").read_text(encoding="utf-8")
    own.write_text(text.replace("capacity = [24, 12, 10]", 'spikes = "dense"\nactivity = 0.1'), encoding="utf-8")
    warnings = mimdsim.run(own, "bow", changes={**SMALL}, gpus=()).profile.warnings
    assert "network.activity: has no effect, because it is for lists of spikes, not for dense spikes" in warnings
