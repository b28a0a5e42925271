"""Every neuron, shipped workload, imported model and machine through every command and function of the API, shrunk.

The full product is `benchmarks/every_network.py`, its result docs/every-network.md; here pairs of it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mimdsim
from mimdsim.base.errors import DescriptionError
from mimdsim.base.schema import build, changed_table, given_keys
from mimdsim.graph.neuron_models import MODELS
from mimdsim.machine import MimdMachine, changed_machine, list_machines, load_machine, tiled_machine
from mimdsim.pipeline import config_digest
from mimdsim.studies import make_study
from mimdsim.studies.points import Points
from mimdsim.workload import Workload, list_workloads, load_workload, network_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from every_network import COMMANDS, Bench, Case, Result, machines, pairwise, shrunk, subjects

SUBJECTS = subjects()
BY_WORKLOAD = sorted(
    (name for name, subject in SUBJECTS.items() if subject.source == "workload"),
    key=lambda name: name in list_workloads() and name != "snntorch-mnist",
)
TILED, GPUS = machines()[0], ("a100", "h100", "rtx2070", "tpu-v4", "v100")  # other GPUs differ in numbers alone
FIRST = ("run", "sweep of the network", "place", "export")  # which others do before: what these say is looked at, too
# dense ones need a matrix unit; what others say of a network is among the pairs
TRAINING = tuple(name for name in TILED if tiled_machine(name, "").matrix is not None)
KINDS = (
    "neuron norse_lsnn, parameter", "read-out cuba_li", "neurons by layer", "dense leaky", "recurrent",
    "snntorch-mnist", "imported cuba_lif", "state dict, leaky",
)  # fmt: skip
LIKE_OTHERS = ("blackhole", "c600", "mk2")  # wormhole and bow in other numbers
SHARDS = 8


def keys_given(record: Any) -> Any:
    """Which keys were given, section by section."""
    sections = {name: getattr(record, name) for name in record.model_fields_set}
    return {name: keys_given(each) if hasattr(each, "model_fields_set") else None for name, each in sections.items()}


def test_every_two_values_meet_in_some_row() -> None:
    factors = ("abc", "de", "fghi", "jklmnop")
    rows = list(pairwise(*(tuple(each) for each in factors)))
    assert rows == list(pairwise(*(tuple(each) for each in factors)))
    for a, b in itertools.combinations(range(len(factors)), 2):
        assert {(row[a], row[b]) for row in rows} == set(itertools.product(factors[a], factors[b]))
    assert len(rows) <= 40  # 28 at least, 168 in all


@pytest.mark.parametrize("name", BY_WORKLOAD)
def test_a_workload_built_again_is_the_same(name: str) -> None:
    made = shrunk(SUBJECTS[name])
    again = build(Workload, given_keys(made), where="again")
    assert again == made
    assert keys_given(again) == keys_given(made)
    assert config_digest(again) == config_digest(made)


@pytest.mark.first(52)
@pytest.mark.parametrize("name", BY_WORKLOAD)
def test_points_of_a_study_have_the_workload_that_run_has(name: str) -> None:
    subject = SUBJECTS[name]
    changes = dict(subject.changes)
    axes: dict[str, Any] = {"network.surrogate_slope": [5.0, 6.0], "tile.worker_contexts": [3]}
    study = make_study("sweep", workloads=[subject.workload], changes=changes, axes=axes, training_steps=3)
    points = Points(study)
    for point, slope in zip(points.of(points.designs()), (5.0, 6.0), strict=True):
        given = changes | {"network.surrogate_slope": slope, "training.max_training_steps": 3}
        run = load_workload(subject.workload, given)
        assert point.workload == run
        assert keys_given(point.workload) == keys_given(run)
        assert point.machine == load_machine("bow", {"tile.worker_contexts": 3})


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "name", ["digits", "snntorch-mnist", *(sorted({*list_workloads()} - {"digits", "snntorch-mnist"}))]
)
def test_every_neuron_can_be_swept_on_every_workload(name: str) -> None:
    """Or is refused by what it says of a run."""
    for neuron, model in MODELS.items():
        changes = {"network.neuron": neuron}
        study = make_study("sweep", workloads=[name], axes={"network.neuron": [neuron]}, training_steps=2)
        points = Points(study)
        try:
            run = load_workload(name, changes | {"training.max_training_steps": 2})
        except DescriptionError:
            refused = "never fires" if not model.spiking else f"model '{neuron}' "
            with pytest.raises(DescriptionError, match=refused):
                points.of(points.designs())
        else:
            (point,) = points.of(points.designs())
            assert point.workload == run
            assert network_of(run).layers[0].neuron.model == neuron


@pytest.mark.parametrize(
    ("key", "value"),
    [("tile.worker_contexts", 3), ("tile.sram_bytes", "300 KiB"), ("chip.clock_hz", "1 GHz"), ("links.chips", 2)],
)
@pytest.mark.parametrize("name", TILED)
def test_a_changed_machine_is_the_one_loaded_with_the_change(name: str, key: str, value: Any) -> None:
    loaded = load_machine(name, {key: value})
    base = load_machine(name)
    assert isinstance(base, MimdMachine)
    made = changed_machine(base, {key: value})
    assert made == loaded
    assert keys_given(made) == keys_given(loaded)
    assert changed_machine(made, {key: value}).tile == loaded.tile


@pytest.mark.parametrize("name", list_machines())
def test_a_machine_built_again_is_the_same(name: str) -> None:
    made = load_machine(name)
    again = build(type(made), given_keys(made), where="again")
    assert again == made
    assert keys_given(again) == keys_given(made)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("network.bias", [False, True]),
        ("network.neuron", ["lif", ["lif", "leaky", "lif"]]),
        ("network.decay", [0.9, [0.8, 0.9, 0.95]]),
        ("network.neuron_parameters", [{}, {"threshold": 0.9}]),
        ("mapping.split", [{}, {"hidden0": {"batch": 2}}]),
        ("training.optimiser", ["adam", "sgd"]),
    ],
)
def test_every_kind_of_field_can_be_an_axis(key: str, values: list[Any]) -> None:
    study = make_study("sweep", workloads="digits", axes={key: values}, training_steps=2)
    points = Points(study)
    for point, value in zip(points.of(points.designs()), values, strict=True):
        assert point.workload == load_workload("digits", {key: value, "training.max_training_steps": 2})


def test_constants_that_another_neuron_lacks_are_dropped_and_others_kept() -> None:
    made = load_workload("snntorch-mnist", {"network.neuron": "lif"})
    assert made.network.neuron_parameters == {"threshold": 1.0}
    assert load_workload("snntorch-mnist", {"network.neuron": "synaptic"}).network.neuron_parameters == {
        "beta": 0.9,
        "threshold": 1.0,
    }
    by_layer = {"network.neuron": "lif", "network.neuron_parameters": [{"decay": 0.8}, {"decay": 0.9}]}
    neurons = [layer.neuron for layer in network_of(load_workload("snntorch-mnist", by_layer)).layers]
    assert neurons[0] != neurons[1]


def test_a_key_within_a_list_by_layer_is_refused_with_what_to_do() -> None:
    table = {"network": {"neuron_parameters": [{"beta": 0.9}, {}]}}
    with pytest.raises(DescriptionError, match=r"is a list with a value for every layer; give 'network\.neuron"):
        changed_table(table, {"network.neuron_parameters.beta": 0.8}, where="here", example="training.batch")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("every_network"))


def without_crash(command: Callable[[Case], Result], case: Case) -> Result:
    found = command(case)
    assert found.result != "crash", (case, found.sentence)
    return found


def rows() -> Iterator[tuple[str, ...]]:
    """All networks on all machines, each with the next GPU and command."""
    machines_apart = tuple(name for name in TILED if name not in LIKE_OTHERS)
    commands = tuple(name for name in COMMANDS if name not in FIRST)
    several = itertools.product(KINDS, machines_apart)
    yield from (
        (*pair, *next_ones) for pair, *next_ones in zip(several, itertools.cycle(GPUS), itertools.cycle(commands))
    )


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_kind_of_network_goes_through_every_command(
    bench: Bench, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of networks and machines, each with another command."""
    for name in FIRST:
        monkeypatch.setitem(COMMANDS, name, partial(without_crash, COMMANDS[name]))
    for subject, machine, gpu, command in itertools.islice(rows(), shard, None, SHARDS):
        found = bench.result(subject, machine, gpu, command)
        assert found.result != "crash", (subject, machine, gpu, command, found.sentence)
        assert found.result == "works" or found.sentence, (subject, machine, command)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_network_trains(bench: Bench, shard: int) -> None:
    for number, name in enumerate(itertools.islice(SUBJECTS, shard, None, SHARDS)):
        case = bench.case(name, TRAINING[number % len(TRAINING)], "a100")
        made = mimdsim.run(case.workload, case.machine, gpus=())
        assert len(made.log.loss) in (1, 2)
