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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run, and the folder of its report."""
    folder = tmp_path_factory.mktemp("short") / "run"
    return mimdsim.run("digits", "tiny", gpus=(), changes=SHORT, report=folder), folder


def holds_dense_accuracy(made: Run) -> None:
    training = made.profile.training
    assert training is not None
    assert training.test_accuracy_all_spikes == pytest.approx(
        by_interpreter(made.workload, made.log.weights), abs=0.006
    )
    assert training.test_accuracy_all_spikes != training.test_accuracy


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
def test_it_is_the_accuracy_of_dense_spikes(made: tuple[Run, Path]) -> None:
    holds_dense_accuracy(made[0])


@pytest.mark.slow
@pytest.mark.parametrize("changes", [FEEDBACK, {"data.input_capacity": 12}], ids=["feedback", "input"])
def test_it_is_that_of_feedback_and_short_lists_of_inputs_too(changes: dict[str, Any]) -> None:
    holds_dense_accuracy(mimdsim.run("digits", "tiny", gpus=(), changes=SHORT | changes))


@pytest.mark.slow
def test_it_is_left_out_where_nothing_can_be_dropped() -> None:
    few = {"training.max_training_steps": 2}
    for more in ({}, {"training.evaluate": "never"}, {"network.spikes": "dense"}):
        made = mimdsim.run("digits", "tiny", gpus=(), changes=SHORT | WIDE | few | more)
        assert made.profile.training is not None
        assert made.profile.training.test_accuracy_all_spikes is None


def said(profile: RunProfile) -> tuple[int, str, str]:
    """Place, mood and text of the verdict on the accuracy."""
    every = verdicts(profile)
    (place,) = (index for index, one in enumerate(every) if one.subject == "accuracy")
    return place, every[place].mood, every[place].text


@pytest.mark.slow
def test_the_verdict_leads_with_it_where_it_differs(made: tuple[Run, Path]) -> None:
    profile = made[0].profile
    assert profile.training is not None
    for listed, every, mood in ((0.94, 0.42, "bad"), (0.94, 0.935, "note")):
        training = replace(profile.training, test_accuracy=listed, test_accuracy_all_spikes=every)
        place, found, text = said(replace(profile, training=training))
        assert (place == 0, found) == (mood == "bad", mood)
        assert f"{100 * every:.1f} % where no list drops a spike" in text
        assert ("raise the capacity of 'hidden0'" in text) == (mood == "bad")


@pytest.mark.slow
def test_weights_that_rest_on_lists_say_so_when_they_leave(made: tuple[Run, Path], tmp_path: Path) -> None:
    run, folder = made
    training = run.profile.training
    assert training is not None
    assert training.lists_matter
    workload = load_workload("digits", SHORT)
    lines = export_nir(workload, folder / "weights.safetensors", tmp_path / "net.nir")
    assert f"note: these weights are right about {training.said_of_lists}, as in the written file" in lines
