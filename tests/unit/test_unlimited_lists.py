"""The accuracy of trained weights where no list drops a spike: worked out anew, said, passed on with the weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mimdsim
from mimdsim.execution.trainer import to_dense
from mimdsim.graph.network_graphs import forward_graph
from mimdsim.graph.operations import interpret
from mimdsim.pipeline.pipeline import open_data
from mimdsim.pipeline.result import Run
from mimdsim.profile import RunProfile
from mimdsim.report.headline import verdicts
from mimdsim.workload import Workload, load_workload, network_of
from mimdsim.workload.interchange.nir_writing import export_nir

SHORT = {"network.hidden": (24,), "network.capacity": (2, 10), "training.max_training_steps": 60}
WIDE = {"network.hidden": (24,), "network.capacity": (24, 10), "data.input_capacity": 512}
FEEDBACK = {"network.sources": {"hidden0": ["input", "output"]}, "network.capacity": (3, 3)}


def trained(**changes: Any) -> Run:
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return mimdsim.run("digits", "tiny", gpus=(), changes=SHORT | given)


def by_interpreter(workload: Workload, weights: dict[str, np.ndarray]) -> float:
    """Of the test samples with dense spikes, which nothing drops, by the graph's meaning."""
    network = network_of(workload)
    dense = replace(network, spikes="dense", input_capacity=network.inputs, threshold_schedule=None)
    wide = workload.data.model_copy(update={"input_capacity": network.inputs})
    test = open_data(workload.model_copy(update={"data": wide}))[1]
    graph, right = forward_graph(dense), 0
    for first in range(0, test.samples, network.batch):
        indices = np.arange(first, min(first + network.batch, test.samples))
        ids, counts, labels = test.batch(np.resize(indices, network.batch))
        values = {"input": to_dense(ids, counts, network.inputs), "labels": labels, **weights}
        scores = interpret(graph, values)["counts"]
        right += int((scores.argmax(axis=1) == labels)[: len(indices)].sum())
    return right / test.samples


@pytest.mark.slow
@pytest.mark.first(1)
@pytest.mark.parametrize("changes", [{}, FEEDBACK, {"data.input_capacity": 12}], ids=["lists", "feedback", "input"])
def test_it_is_the_accuracy_of_dense_spikes(changes: dict[str, Any]) -> None:
    made = mimdsim.run("digits", "tiny", gpus=(), changes=SHORT | changes)
    training = made.profile.training
    assert training is not None
    assert training.test_accuracy_all_spikes == pytest.approx(
        by_interpreter(made.workload, made.log.weights), abs=0.006
    )
    assert training.test_accuracy_all_spikes != training.test_accuracy


@pytest.mark.slow
def test_it_is_left_out_where_nothing_can_be_dropped() -> None:
    for more in ({}, {"training.evaluate": "never"}, {"network.spikes": "dense"}):
        made = mimdsim.run("digits", "tiny", gpus=(), changes=SHORT | WIDE | more)
        assert made.profile.training is not None
        assert made.profile.training.test_accuracy_all_spikes is None


def said(profile: RunProfile) -> tuple[int, str, str]:
    """Place, mood and text of the verdict on the accuracy."""
    every = verdicts(profile)
    (place,) = (index for index, one in enumerate(every) if one.subject == "accuracy")
    return place, every[place].mood, every[place].text


@pytest.mark.slow
def test_the_verdict_leads_with_it_where_it_differs(tmp_path: Path) -> None:
    made = trained()
    profile = made.profile
    assert profile.training is not None
    for listed, every, mood in ((0.94, 0.42, "bad"), (0.94, 0.935, "note")):
        training = replace(profile.training, test_accuracy=listed, test_accuracy_all_spikes=every)
        place, found, text = said(replace(profile, training=training))
        assert (place == 0, found) == (mood == "bad", mood)
        assert f"{100 * every:.1f} % where no list drops a spike" in text
        assert ("raise the capacity of 'hidden0'" in text) == (mood == "bad")


@pytest.mark.slow
def test_weights_that_rest_on_lists_say_so_when_they_leave(tmp_path: Path) -> None:
    made = mimdsim.run("digits", "tiny", gpus=(), changes=SHORT, report=tmp_path / "run")
    training = made.profile.training
    assert training is not None
    assert training.lists_matter
    workload = load_workload("digits", SHORT)
    lines = export_nir(workload, tmp_path / "run" / "weights.safetensors", tmp_path / "net.nir")
    assert f"note: these weights are right about {training.said_of_lists}, as in the written file" in lines
