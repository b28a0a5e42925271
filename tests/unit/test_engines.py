"""Training as whole tensors: the program's losses within rounding, its spikes at the end, checkpoints that go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from linear_networks import linear_network
from networks import compiled, every_optimiser, given_values, small_network

from mimdsim.base.errors import DataFileError, DescriptionError, MappingError
from mimdsim.execution import (
    Checkpoints,
    Evaluation,
    Executor,
    RateSchedule,
    TrainingLog,
    TrainingPlan,
    WholeTensors,
    initial_weights,
    train,
)
from mimdsim.graph import Adam, Sgd, SpikingNetwork
from mimdsim.graph.layer import Source
from mimdsim.graph.losses import Loss
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.norms import BatchNorm
from mimdsim.graph.spikes import ThresholdSchedule
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, simulate
from mimdsim.pipeline.warnings import engine_note
from mimdsim.workload import MappingOptions, load_workload

NETWORK = small_network((20, 70, 12, 4), timesteps=6, batch=4, optimiser=Adam(learning_rate=0.01))
DENSE = replace(NETWORK, spikes="dense")
DROPPED = replace(DENSE, layers=(replace(DENSE.layers[0], dropout=0.5), *DENSE.layers[1:]))
BOTH = tuple(Source(name=each.name, neurons=each.neurons) for each in DENSE.layers[1::-1])
FROZEN = replace(
    DENSE, layers=(*DENSE.layers[:2], replace(DENSE.layers[2], sources=BOTH)), frozen=("w.output.from.hidden0",)
)
OPTIMISERS = {
    f"{name}{' scheduled' if scheduled else ''}": replace(made, scheduled=scheduled)
    for scheduled in (True, False)
    for name, made in every_optimiser().items()
}
JUDGED = Evaluation(validation_share=0.2, keep_best=True)
RATE = RateSchedule(warm_up_training_steps=3, final_share=0.1)


class Samples:
    """Random input spikes whose number of events tells the class."""

    def __init__(self, network: SpikingNetwork, samples: int):
        many = given_values(replace(network, batch=samples), 8)
        self.spikes, self.labels = many.spikes, many.labels

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.spikes.ids[:, indices], self.spikes.counts[:, indices, 0], self.labels[indices]


class Stopped(Exception):
    """The process ended here."""


DATA = Samples(NETWORK, 25)


def trained(engine: Any, network: SpikingNetwork = NETWORK, stop_after: int = 0, **more: Any) -> TrainingLog:
    def progress(_what: str, done: int, _total: int) -> None:
        if done == stop_after:
            raise Stopped

    checkpoints = more.pop("checkpoints", None)
    given: dict[str, Any] = {"epochs": 4, "evaluation": JUDGED, "rate": RATE} | more
    plan = TrainingPlan(seed=5, engine=engine, **given)
    weights = initial_weights(network, seed=3, scale=2.0, offset=0.05)
    program = compiled(network).program
    return train(program, network, DATA, DATA, plan, weights=weights, checkpoints=checkpoints, progress=progress)


@pytest.mark.parametrize("reset_gradient", ["full", "mask"])
@pytest.mark.parametrize("model", ["synaptic", "adaptive", "lif"])
def test_a_recurrent_network_is_trained_as_the_program_trains_it(model: str, reset_gradient: str) -> None:
    made = linear_network(
        model, "zero", reset_gradient=reset_gradient, widths=(20, 30, 4), timesteps=6, batch=4, capacities=(12, 4),
        optimiser=Sgd(learning_rate=0.02, momentum=0.9, weight_decay=0.01, scheduled=True), bias=True,
        recurrence="all_to_all", largest_gradient_norm=0.5, threshold_schedule=ThresholdSchedule(),
        loss=Loss(firing_target=0.1, firing_strength=2.0),
    )  # fmt: skip
    layers = (replace(each, selection=replace(each.selection, truncation="random")) for each in made.layers)
    network = replace(made, layers=tuple(layers))
    program, whole = (trained(engine, network, epochs=2) for engine in ("program", "whole_tensors"))
    assert len(set(whole.loss)) == len(whole.loss) == 10
    np.testing.assert_allclose(whole.loss, program.loss, rtol=1e-4)
    assert whole.scheduled == program.scheduled
    assert whole.activity.dropped["hidden0"] == program.activity.dropped["hidden0"] > 0
    for name, weight in program.weights.items():
        np.testing.assert_allclose(whole.weights[name], weight, rtol=1e-3, atol=1e-5)


def assert_same_bits(one: TrainingLog, other: TrainingLog) -> None:
    for name in ("loss", "test_accuracy_by_epoch", "validation_accuracy_by_epoch", "train_accuracy", "best_epoch"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.activity.dropped == other.activity.dropped
    for mine, theirs in ((one.weights, other.weights), (one.activity.ids, other.activity.ids)):
        assert mine.keys() == theirs.keys()
        assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)


@pytest.mark.parametrize("optimiser", list(OPTIMISERS.values()), ids=list(OPTIMISERS))
def test_losses_accuracies_and_spikes_are_the_program_s(optimiser: Any) -> None:
    network = replace(NETWORK, optimiser=optimiser)
    program, whole = trained("program", network), trained("whole_tensors", network)
    assert len(whole.loss) == 20
    assert len(set(whole.loss)) > 10
    np.testing.assert_allclose(whole.loss, program.loss, rtol=1e-5)
    assert whole.scheduled == program.scheduled
    assert whole.test_accuracy_by_epoch == program.test_accuracy_by_epoch
    assert whole.train_accuracy_by_epoch == program.train_accuracy_by_epoch
    assert whole.best_epoch == program.best_epoch
    for name, weight in program.weights.items():
        np.testing.assert_allclose(whole.weights[name], weight, rtol=1e-3, atol=1e-5)
    for name, counts in program.activity.counts.items():
        np.testing.assert_array_equal(whole.activity.counts[name], counts)


def test_the_last_training_step_runs_as_the_compiled_program(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = {"Executor": 0, "WholeTensors": 0}
    for kind in (Executor, WholeTensors):
        plain = kind.run

        def counted(self: Any, *args: Any, _plain: Any = plain, _kind: str = kind.__name__, **more: Any) -> None:
            ran[_kind] += 1
            _plain(self, *args, **more)

        monkeypatch.setattr(kind, "run", counted)
    never = Evaluation(when="never")
    trained("whole_tensors", evaluation=never, max_training_steps=7)
    assert ran == {"Executor": 1, "WholeTensors": 7}
    # alone, what is recorded of the last training step is the program's bit for bit
    program, whole = (trained(name, evaluation=never, max_training_steps=1) for name in ("program", "whole_tensors"))
    assert program.activity.dropped == whole.activity.dropped
    for one, other in ((program.activity.ids, whole.activity.ids), (program.gradients, whole.gradients)):
        assert one.keys() == other.keys()
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.mark.parametrize("engine", ["whole_tensors", "program"])
def test_an_epoch_and_a_resumed_second_are_two_epochs(tmp_path: Path, engine: str) -> None:
    """What is recorded at the end of the first leaves no trace."""
    file = Checkpoints(path=tmp_path / "training.npz", digest="one")
    steady: dict[str, Any] = {"rate": None, "network": replace(NETWORK, optimiser=Adam(learning_rate=0.01))}
    trained(engine, epochs=1, checkpoints=file, **steady)
    resumed = trained(engine, epochs=2, checkpoints=replace(file, resume=True), **steady)
    assert_same_bits(resumed, trained(engine, epochs=2, **steady))


@pytest.mark.parametrize("engine", ["whole_tensors", "program"])
def test_auto_goes_on_with_the_engine_that_wrote_a_checkpoint(tmp_path: Path, engine: str) -> None:
    file = Checkpoints(path=tmp_path / "training.npz", digest="one")
    steady: dict[str, Any] = {"rate": None, "network": replace(NETWORK, optimiser=Adam(learning_rate=0.01))}
    trained(engine, epochs=1, checkpoints=file, **steady)
    resumed = trained("auto", epochs=2, checkpoints=replace(file, resume=True), **steady)
    assert resumed.engine == engine
    assert_same_bits(resumed, trained(engine, epochs=2, **steady))
    other = {"program": "whole_tensors", "whole_tensors": "program"}[engine]
    with pytest.raises(DataFileError, match=f'was written by training.engine = "{engine}"'):
        trained(other, epochs=2, checkpoints=replace(file, resume=True), **steady)


def test_auto_trains_by_whole_tensors_or_says_why_not() -> None:
    never: dict[str, Any] = {"evaluation": Evaluation(when="never"), "max_training_steps": 2}
    chosen, whole = trained("auto", **never), trained("whole_tensors", **never)
    assert (chosen.engine, chosen.engine_reasons) == ("whole_tensors", ())
    assert_same_bits(chosen, whole)
    assert trained("auto", DENSE, **never).engine == "whole_tensors"
    assert trained("auto", DROPPED, **never).engine == "whole_tensors"
    assert trained("auto", normed("timestep"), **never).engine == "whole_tensors"
    frozen = trained("auto", FROZEN, **never)
    assert frozen.engine == "program"
    assert "layer 'output': some of its weights are frozen" in frozen.engine_reasons[0]
    (said,) = engine_note(frozen)
    assert said.endswith("exact and slower: some of its weights are frozen, others are trained (output)")
    instead = "; use the compiled program"
    several = tuple(f"layer '{name}': cells do not run as whole tensors{instead}" for name in ("hidden0", "output"))
    (said,) = engine_note(replace(frozen, engine_reasons=(*several, f"sparse cells{instead}")))
    assert said.endswith("slower: cells do not run as whole tensors (hidden0, output); sparse cells")


def normed(per: str, **how: Any) -> SpikingNetwork:
    """With norms and dropout."""
    network = replace(DENSE, delay=0, **how)
    norm = BatchNorm(per=per, momentum=0.5, rows=network.timesteps if per == "each_timestep" else 1)
    return replace(network, layers=tuple(replace(each, norm=norm, dropout=0.25) for each in network.layers))


@pytest.mark.parametrize("per", ["timestep", "sequence", "each_timestep"])
def test_norms_are_trained_evaluated_and_resumed_as_the_program_trains_them(per: str, tmp_path: Path) -> None:
    network = normed(per, optimiser=Adam(learning_rate=0.002))
    steady: dict[str, Any] = {"rate": None, "epochs": 2}
    program, whole = (trained(engine, network, **steady) for engine in ("program", "whole_tensors"))
    assert len(set(whole.loss)) > 5
    np.testing.assert_allclose(whole.loss, program.loss, rtol=1e-4)
    assert whole.test_accuracy_by_epoch == program.test_accuracy_by_epoch
    assert whole.best_epoch == program.best_epoch
    for name, weight in program.weights.items():
        np.testing.assert_allclose(whole.weights[name], weight, rtol=1e-3, atol=1e-4, err_msg=name)
    moved = [np.abs(whole.weights[name] - (name[0] == "v")).max(axis=0).min() for name in network.averages]
    assert min(moved) > 0
    file = Checkpoints(path=tmp_path / "training.npz", digest="one")
    trained("whole_tensors", network, checkpoints=file, rate=None, epochs=1)
    assert_same_bits(trained("auto", network, checkpoints=replace(file, resume=True), **steady), whole)


@pytest.mark.parametrize("spikes", ["sparse", "dense"])
def test_constants_are_learned_as_the_program_learns_them(spikes: str) -> None:
    learned = neuron_of("leaky", {"beta": 0.75}, reset="subtract", learned=("beta", "threshold"))
    layers = tuple(replace(each, neuron=learned) for each in NETWORK.layers)
    network = replace(NETWORK, layers=layers, spikes=spikes, optimiser=Adam(learning_rate=0.002))
    program, whole = (trained(engine, network, rate=None, epochs=2) for engine in ("program", "whole_tensors"))
    np.testing.assert_allclose(whole.loss, program.loss, rtol=1e-4)
    assert whole.test_accuracy_by_epoch == program.test_accuracy_by_epoch
    for name, weight in program.weights.items():
        np.testing.assert_allclose(whole.weights[name], weight, rtol=1e-3, atol=1e-4, err_msg=name)
    assert all(abs(whole.weights[f"c.{each.name}.beta"] - 0.75) > 1e-3 for each in layers)


@pytest.mark.parametrize("per", ["timestep", "sequence"])
def test_dropout_is_drawn_alike_by_both_engines(per: str) -> None:
    layers = tuple(replace(layer, dropout=0.25, dropout_per=per) for layer in DENSE.layers)
    never: dict[str, Any] = {"evaluation": Evaluation(when="end"), "max_training_steps": 5}
    names = "program", "whole_tensors"
    program, whole = (trained(name, replace(DENSE, layers=layers), **never) for name in names)
    assert whole.loss == pytest.approx(program.loss, rel=1e-4)
    assert whole.loss != pytest.approx(trained("program", DENSE, **never).loss, rel=1e-2)
    for name, weights in program.weights.items():
        np.testing.assert_allclose(whole.weights[name], weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", [{"recurrence": "all_to_all"}, {"reset_gradient": "mask", "delay": 0}], ids=str)
def test_dense_spikes_are_trained_as_the_program_trains_them(how: dict[str, Any]) -> None:
    adam = Adam(learning_rate=0.01)
    network = small_network((20, 70, 12, 4), timesteps=6, batch=4, optimiser=adam, bias=True, spikes="dense", **how)
    program, whole = (trained(engine, network, rate=None) for engine in ("program", "whole_tensors"))
    assert len(set(whole.loss)) > 10
    np.testing.assert_allclose(whole.loss, program.loss, rtol=1e-4)
    assert whole.test_accuracy_by_epoch == program.test_accuracy_by_epoch
    for name, weight in program.weights.items():
        np.testing.assert_allclose(whole.weights[name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("stop_after", [5, 7, 10, 19])
@pytest.mark.parametrize("optimiser", [Adam(learning_rate=0.01), Sgd(learning_rate=0.02, scheduled=True)], ids=str)
def test_a_resumed_training_is_an_unbroken_one(tmp_path: Path, optimiser: Any, stop_after: int) -> None:
    network = replace(NETWORK, optimiser=optimiser)
    whole = trained("whole_tensors", network)
    file = Checkpoints(path=tmp_path / "training.npz", digest="one")
    with pytest.raises(Stopped):
        trained("whole_tensors", network, stop_after, checkpoints=file)
    assert_same_bits(trained("whole_tensors", network, checkpoints=replace(file, resume=True)), whole)
    # what is finished is read, not trained again
    assert_same_bits(trained("whole_tensors", network, 20, checkpoints=replace(file, resume=True)), whole)


def test_engines_that_cannot_train_a_network_say_why() -> None:
    with pytest.raises(MappingError, match=r"no such engine 'whole_tensor'.*whole_tensors"):
        trained("whole_tensor")
    with pytest.raises(
        MappingError, match="layer 'output': some of its weights are frozen, others are trained; use the"
    ):
        trained("whole_tensors", FROZEN)
    halves = compiled(NETWORK, options=MappingOptions(value_bytes=2, neurons_per_tile=4)).program
    weights = initial_weights(NETWORK, seed=3, scale=2.0, offset=0.05)
    plan = TrainingPlan(epochs=1, seed=5, engine="whole_tensors")
    with pytest.raises(MappingError, match=r"half precision .* whole tensors hold float32; use training\.engine"):
        train(halves, NETWORK, DATA, DATA, plan, weights=weights)


@pytest.mark.slow
def test_a_workload_that_whole_tensors_cannot_train_is_refused_before_its_data_are_read() -> None:
    changes = {"training.engine": "whole_tensors", "mapping.value_bytes": 2, "data.path": "nowhere"}
    machine = load_machine("bow")
    assert isinstance(machine, MimdMachine)
    message = r'(?s)training.engine = "whole_tensors": .* half precision .* whole tensors hold float32'
    with pytest.raises(DescriptionError, match=message):
        simulate(load_workload("nmnist-256", changes), machine)
    # what does not train compiles all the same
    assert compile_workload(load_workload("nmnist-256", changes), machine).program


@pytest.mark.slow
def test_a_run_says_which_engine_trained_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    changes = {"data.train_samples": 96, "data.test_samples": 48, "training.epochs": 2}
    workload, machine = load_workload("digits", changes | {"training.engine": "whole_tensors"}), load_machine("bow")
    assert isinstance(machine, MimdMachine)
    one = simulate(workload, machine, checkpoints=Checkpoints(path=tmp_path / "training.npz")).profile
    other = simulate(workload, machine, checkpoints=Checkpoints(path=tmp_path / "training.npz", resume=True)).profile
    assert one == other
    assert one.tiled.cycles == other.tiled.cycles
    assert one.training is not None
    assert one.training.engine == "whole_tensors"
    assert "trained by the compiled program" not in " ".join(one.warnings)
