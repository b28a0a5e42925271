"""What training hands to an engine and reads from it, with an engine that only remembers: values by hand."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from networks import SGD, small_network

import mimdsim
from mimdsim.base.errors import DescriptionError
from mimdsim.execution import Executor
from mimdsim.execution.engines import RateSchedule
from mimdsim.execution.trainer import evaluate, initial_weights, load_batch, predictions, split, to_dense, total_loss
from mimdsim.graph.losses import Loss
from mimdsim.workload import load_workload

IDS = np.array([[[4, 1, 9], [0, 9, 9]], [[2, 9, 9], [3, 0, 1]]], np.int32)  # [timesteps, batch, capacity]
COUNTS = np.array([[2, 1], [0, 3]], np.int32)


class Data:
    """Four samples with one label each; a batch lists the samples asked for as its ids."""

    labels = np.array([1, 0, 2, 1], np.int32)

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return IDS, COUNTS, self.labels[indices]


class Augmented(Data):
    def training_batch(self, indices: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return IDS + epoch, COUNTS, self.labels[indices]


class Remembering:
    """A runner whose output scores are the labels it was given, but for the samples it gets wrong."""

    inputs = ("input.ids", "input.counts", "labels")
    generators: ClassVar[dict[str, int]] = {}

    def __init__(self, wrong_label: int = -1) -> None:
        self.written: list[dict[str, np.ndarray]] = []
        self.phases: list[Any] = []
        self.wrong_label = wrong_label

    def write(self, values: dict[str, np.ndarray]) -> None:
        self.written.append(values)

    def run(self, phases: Any = None) -> None:
        self.phases.append(phases)

    def read(self, name: str) -> np.ndarray:
        labels = self.written[-1]["labels"]
        answers = np.where(labels == self.wrong_label, (labels + 1) % 3, labels)
        return {"counts": np.eye(3)[answers], "loss": np.array([1.0, 3.0]), "penalty.hidden0": np.array([0.5, 0.25])}[
            name
        ]


def test_lists_become_rows_of_ones() -> None:
    """Beyond its count a list holds anything; an entry is one spike, whatever the engine."""
    rows = to_dense(IDS, COUNTS, 5)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[[0, 1, 0, 0, 1], [1, 0, 0, 0, 0]], [[0, 0, 0, 0, 0], [1, 1, 0, 1, 0]]]


def test_lists_are_written_with_both_counts_alike() -> None:
    runner: Any = Remembering()
    assert load_batch(runner, Data(), np.array([2, 0])).tolist() == [2, 1]
    (written,) = runner.written
    assert written["input.counts"].tolist() == [[[2, 2], [1, 1]], [[0, 0], [3, 3]]]
    assert written["input.ids"].tolist() == IDS.tolist()
    assert written["labels"].tolist() == [2, 1]


def test_only_training_batches_are_augmented() -> None:
    runner: Any = Remembering()
    load_batch(runner, Augmented(), np.array([0, 1]))
    load_batch(runner, Augmented(), np.array([0, 1]), epoch=3)
    load_batch(runner, Data(), np.array([0, 1]), epoch=3)
    assert [int(written["input.ids"][0, 0, 0]) for written in runner.written] == [4, 7, 4]


def test_images_are_written_as_they_are() -> None:
    data: Any = Data()
    data.values = np.arange(8.0).reshape(4, 2)
    runner: Any = Remembering()
    load_batch(runner, data, np.array([3, 1]))
    (written,) = runner.written
    assert sorted(written) == ["input", "labels"]
    assert written["input"].tolist() == [[6, 7], [2, 3]]


def test_dense_inputs_of_a_compiled_program_are_rows_of_ones() -> None:
    from networks import compiled

    executor = Executor(compiled(small_network((5, 4, 3), timesteps=2, batch=2, spikes="dense")).program)
    load_batch(executor, Data(), np.array([2, 0]))
    assert (
        executor.arrays[executor.program.inputs["input"]].reshape(2, 2, 5).tolist() == to_dense(IDS, COUNTS, 5).tolist()
    )


def test_accuracy_counts_every_sample_once() -> None:
    """Five samples in batches of two: the last batch is filled up, and what fills it does not count."""
    network = small_network((5, 4, 3), batch=2)
    runner: Any = Remembering(wrong_label=1)
    chosen = np.array([0, 1, 2, 1, 3])  # labels 1, 0, 2, 0, 1
    assert evaluate(runner, network, Data(), chosen) == 3 / 5
    assert [written["labels"].tolist() for written in runner.written] == [[1, 0], [2, 0], [1, 1]]
    assert runner.phases == [("forward", "loss")] * 3
    assert evaluate(Remembering(), network, Data()) == 1.0  # type: ignore[arg-type]
    assert evaluate(runner, network, Data(), np.zeros(0, np.int64)) == 0.0


def test_the_lowest_of_equal_scores_is_the_guess() -> None:
    runner: Any = Remembering()
    runner.read = lambda _: np.array([[1, 3, 3], [2, 2, 2], [0, 1, 2]])
    assert predictions(runner).tolist() == [1, 0, 2]


def test_the_loss_is_a_mean_and_penalties_are_added() -> None:
    runner: Any = Remembering()
    runner.write({"labels": np.zeros(2, np.int64)})
    assert total_loss(runner, small_network((5, 4, 3))) == 2.0
    penalised = small_network((5, 4, 3), loss=Loss(firing_strength=1.0))
    assert penalised.penalties == ("penalty.hidden0",)
    assert total_loss(runner, penalised) == 2.75


@pytest.mark.parametrize(("samples", "share", "held"), [(10, 0.3, 3), (7, 0.5, 4), (5, 0.0, 0), (9, 1.0, 9)])
def test_a_split_takes_every_sample_once(samples: int, share: float, held: int) -> None:
    kept, aside = split(samples, share, 5)
    assert len(aside) == held
    assert sorted([*kept, *aside]) == list(range(samples))
    assert (np.diff(kept) > 0).all()
    assert (np.diff(aside) > 0).all()
    assert [part.tolist() for part in split(samples, share, 5)] == [kept.tolist(), aside.tolist()]


def test_first_weights_are_uniform_within_the_rule_s_limits() -> None:
    """24 inputs: scale x sqrt(6 / 24) = half the scale; 6 neurons of their own: 0.2 x 1. The offset moves 'w' only."""
    network = small_network((24, 6, 600), recurrence="all_to_all", bias=True)
    plain, moved = (initial_weights(network, 7, 1.5, offset) for offset in (0.0, 2.0))
    for weights, offset in ((plain, 0.0), (moved, 2.0)):
        first = weights["w.hidden0"] - offset
        assert 0.7 < np.abs(first).max() <= 0.75
        assert 1.4 < np.abs(weights["w.output"] - offset).max() <= 1.5  # 6 inputs: the scale itself
        assert 0.15 < np.abs(weights["r.hidden0"]).max() <= 0.2
        assert 0.019 < np.abs(weights["r.output"]).max() <= 0.02
        assert not weights["b.hidden0"].any()
        assert weights["w.hidden0"].dtype == np.float32
    np.testing.assert_allclose(moved["w.hidden0"], plain["w.hidden0"] + 2, rtol=1e-6)
    assert abs(plain["w.output"].mean()) < 0.1
    doubled = initial_weights(network, 7, 3.0, 0.0, recurrent_scale=0.4)
    for name in ("w.hidden0", "r.output"):
        np.testing.assert_allclose(doubled[name], 2 * plain[name], rtol=1e-6)
    alone = initial_weights(small_network((24, 6, 3), recurrence="one_to_one", optimiser=SGD), 7, 1.0, 0.0)
    assert alone["r.hidden0"].shape == (1, 6)


def test_a_rate_rises_in_a_line_and_falls_along_half_a_cosine() -> None:
    rate = RateSchedule(warm_up_training_steps=4, final_share=0.2)
    assert [rate.at(step, 12, 8.0) for step in range(4)] == [2.0, 4.0, 6.0, 8.0]
    assert rate.at(4, 12, 8.0) == 8.0
    assert rate.at(8, 12, 8.0) == pytest.approx(8 * 0.6)  # half way: the mean of 1 and 0.2
    assert rate.at(6, 12, 8.0) == pytest.approx(8 * (0.2 + 0.8 * (0.5 + math.sqrt(0.125))))
    assert rate.at(12, 12, 8.0) == pytest.approx(8 * 0.2)
    assert rate.at(40, 12, 8.0) == pytest.approx(8 * 0.2)
    assert RateSchedule().at(5, 10, 1.0) == pytest.approx(0.5)
    assert RateSchedule(warm_up_training_steps=3).at(3, 3, 1.0) == 1.0


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"schedule": "constant", "final_rate_share": 0.5}, 'training.final_rate_share: is for schedule = "cosine"'),
        ({"schedule": "cosine", "rate_factor": 0.5}, 'training.rate_factor: is for schedule = "step", not "cosine"'),
        ({"schedule": "step"}, 'training.schedule: "step" needs training.rate_factor'),
        ({"schedule": "table"}, 'training.schedule: "table" needs training.rate_table'),
        ({"schedule": "table", "rate_table": [[5, 1.0], [5, 0.1]]}, "training.rate_table: training steps must ascend"),
        (
            {"schedule": "one_cycle", "warm_up_training_steps": 3},
            'is for schedule = "cosine" or "step", not',
        ),
        ({"schedule": "linear"}, "training.schedule"),
    ],
)
def test_schedules_that_do_not_fit_their_keys_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        load_workload("digits", {f"training.{key}": value for key, value in keys.items()})
    assert said in str(refused.value)


def test_a_table_of_rates_is_what_a_training_takes() -> None:
    changes = {"training.schedule": "table", "training.rate_table": [[2, 0.5]], "training.max_training_steps": 4}
    changes |= {"network.hidden": [16], "network.capacity": [4, 10]}
    made = mimdsim.run("digits", "tiny", gpus=(), changes=changes)
    assert made.profile.training is not None
    rate = load_workload("digits").training.learning_rate
    taken = dict(made.profile.training.scheduled)["learning_rate"]
    assert taken == pytest.approx([rate, rate, rate / 2, rate / 2])
