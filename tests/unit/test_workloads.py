"""The workloads that ship: they load, their sizes follow the published rules, and mistakes are named with line."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

import mimdsim
from mimdsim.base.errors import DescriptionError
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload
from mimdsim.workload import capacities_of, find_workload, input_shape, list_workloads, load_workload, network_of
from mimdsim.workload.description.sections import FILE_SOURCES

TILES = 1471  # of a chip of 1,472, tile 0 reserved (github.com/jrfinkbeiner/graphcore_snn, benchmarking_script.py)
SIZED_BY_RULE = {  # name -> (hidden layers, neurons per tile, activity)
    **{f"nmnist-{layers}": (layers, 2, 0.01) for layers in (2, 3, 4, 5)},
    "nmnist-2-random": (2, 2, 0.01),
    **{f"shd-{layers}": (layers, 2, 0.01) for layers in (2, 3, 4, 5)},
    **{f"dvs-gesture-{layers}": (layers, 2, 0.01) for layers in (2, 3, 4, 5)},
    "dvs-gesture-64": (2, 2, 0.01),
    **{f"multi-neuron-{unit}": (unit // 2 * 3, unit, 0.05) for unit in (2, 4, 8, 16)},
    **{f"multi-neuron-{unit}-base2": (unit, unit, 0.05) for unit in (2, 4, 8)},  # 16 does not fit
    **{f"multi-neuron-{unit}-base4": (unit * 2, unit, 0.05) for unit in (2, 4, 8, 16)},
}
SIZED_BY_HAND = {  # the authors' training scripts: widths and capacities, input first
    "nmnist-train": ((2312, 1470, 1460, 10), (64, 64, 64, 10)),
    "dvs-gesture-train": ((4608, 1470, 1076, 384, 11), (96, 64, 64, 64, 10)),
    "random-4": ((2312, 1024, 1024, 512, 128, 8), (32, 32, 32, 16, 8, 4)),
    "randman": ((128, 256, 256, 256, 64, 10), (64, 16, 16, 16, 8, 10)),
}
WEIGHTS = {  # totals worked out by hand from the published sizes; the multi-neuron ones in millions to two places
    "nmnist-2": 5_553_208,
    "nmnist-3": 4_181_908,
    "nmnist-4": 3_316_196,
    "nmnist-5": 2_740_072,
    "nmnist-2-random": 5_553_208,
}
MILLIONS = {
    "multi-neuron-2": 2.60,
    "multi-neuron-4": 5.48,
    "multi-neuron-8": 11.24,
    "multi-neuron-16": 22.76,
    "multi-neuron-2-base2": 3.19,
    "multi-neuron-4-base2": 7.50,
    "multi-neuron-8-base2": 16.14,
    "multi-neuron-2-base4": 2.13,
    "multi-neuron-4-base4": 4.29,
    "multi-neuron-8-base4": 8.61,
    "multi-neuron-16-base4": 17.26,
}
RECIPES = {  # name -> timesteps, batch, input capacity, optimiser, learning rate
    **{f"nmnist-{layers}": (100, 48, 32, "adam", 1e-3) for layers in (2, 3, 4, 5)},
    **{f"shd-{layers}": (100, 48, 48, "adam", 1e-3) for layers in (2, 3)},
    "dvs-gesture-2": (50, 48, 96, "adam", 1e-3),
    "dvs-gesture-64": (50, 48, 96, "adam", 1e-3),
    **{f"multi-neuron-{unit}": (10, 24, 48, "sgd", 3e-3) for unit in (2, 4, 8, 16)},
}

TO_LEARN_WITH = {  # name -> whose data; networks of our own
    "nmnist-256": "Orchard et al. 2015",
    "randman-1d": "Zenke and Vogels 2021",
    "randman-2d": "Zenke and Vogels 2021",
    "braille": "Müller-Cleve et al. 2022",
    "mnist5k": "MNIST",
}
OF_OTHERS = {
    "snntorch-mnist": "arXiv 2211.10725",
    "nmnist-conv": "Shrestha and Orchard 2018",
    "dvs-gesture-conv": "Shrestha and Orchard 2018",
}  # name -> where its network is from


def published_widths(layers: int, unit: int, classes: int) -> tuple[int, ...]:
    """What the tiles that the output layer leaves can hold, in multiples of `unit`, first layers larger."""
    left = TILES - math.ceil(classes / unit)
    return tuple((left // layers + (layer < left % layers)) * unit for layer in range(layers))


def weights_of(name: str) -> int:
    return sum(layer.inputs * layer.neurons for layer in network_of(load_workload(name)).layers)


def test_what_ships() -> None:
    assert set(list_workloads()) == {*SIZED_BY_RULE, *SIZED_BY_HAND, *TO_LEARN_WITH, *OF_OTHERS, "digits"}


@pytest.mark.parametrize("name", SIZED_BY_HAND)
def test_sizes_of_the_training_scripts(name: str) -> None:
    workload = load_workload(name)
    network = network_of(workload)
    widths, capacities = SIZED_BY_HAND[name]
    assert (network.inputs, *(layer.neurons for layer in network.layers)) == widths
    assert (workload.data.input_capacity, *capacities_of(workload)) == capacities


MADE = [name for name in list_workloads() if load_workload(name).data.source not in FILE_SOURCES]


@pytest.mark.slow  # those of recordings are compiled in test_firing
@pytest.mark.parametrize("name", MADE)
def test_every_workload_of_made_data_fits(name: str) -> None:
    machine = load_machine("bow")
    assert isinstance(machine, MimdMachine)
    compile_workload(load_workload(name), machine)


@pytest.mark.parametrize("name", list_workloads())
def test_every_workload_loads(name: str) -> None:
    workload = load_workload(name)
    assert workload.name == name
    network = network_of(workload)
    inputs, classes = input_shape(workload.data)
    assert network.layers[0].inputs == inputs
    assert network.layers[-1].neurons == classes
    assert [layer.capacity for layer in network.layers] == list(capacities_of(workload))


@pytest.mark.parametrize("name", [name for name in list_workloads() if name != "digits"])
def test_every_workload_says_where_it_is_from(name: str) -> None:
    comments = [line for line in find_workload(name).read_text(encoding="utf-8").splitlines() if "#" in line]
    source = (TO_LEARN_WITH | OF_OTHERS).get(name, "github.com/jrfinkbeiner/graphcore_snn")
    assert any(source in line for line in comments)


@pytest.mark.parametrize("name", SIZED_BY_RULE)
def test_sizes_follow_the_published_rules(name: str) -> None:
    layers, unit, activity = SIZED_BY_RULE[name]
    workload = load_workload(name)
    _, classes = input_shape(workload.data)
    assert workload.network.hidden == published_widths(layers, unit, classes)
    hidden = [2 * math.floor(activity * width / 2) for width in workload.network.hidden]
    assert capacities_of(workload) == (*hidden, max(2 * math.floor(activity * classes / 2), 2))
    assert workload.mapping.neurons_per_tile == (unit if name.startswith("multi-neuron") else 0)
    assert workload.mapping.weight_gradient_replicas == 6


@pytest.mark.parametrize(
    ("name", "widths", "capacities"),
    [  # printed by the authors' program, or in their tables
        ("nmnist-2", (1466, 1466), (14, 14, 2)),
        ("nmnist-3", (978, 978, 976), (8, 8, 8, 2)),
        ("nmnist-4", (734, 734, 732, 732), (6, 6, 6, 6, 2)),
        ("nmnist-5", (588, 586, 586, 586, 586), (4, 4, 4, 4, 4, 2)),
        ("multi-neuron-2", (974, 974, 974), (48, 48, 48, 2)),
        ("randman", (256, 256, 256, 64), (16, 16, 16, 8, 10)),
    ],
)
def test_sizes_in_figures(name: str, widths: tuple[int, ...], capacities: tuple[int, ...]) -> None:
    workload = load_workload(name)
    assert workload.network.hidden == widths
    assert capacities_of(workload) == capacities


@pytest.mark.parametrize("name", WEIGHTS)
def test_weight_totals(name: str) -> None:
    assert weights_of(name) == WEIGHTS[name]


@pytest.mark.parametrize("name", MILLIONS)
def test_weight_totals_in_millions(name: str) -> None:
    assert weights_of(name) / 1e6 == pytest.approx(MILLIONS[name], abs=0.005)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes(name: str) -> None:
    workload = load_workload(name)
    timesteps, batch, input_capacity, optimiser, rate = RECIPES[name]
    assert (workload.data.timesteps, workload.training.batch) == (timesteps, batch)
    assert workload.data.input_capacity == input_capacity
    assert (workload.training.optimiser, workload.training.learning_rate) == (optimiser, rate)
    assert (workload.network.second_threshold, workload.network.decay) == (0.9, 0.95)
    assert workload.data.bin_seconds == pytest.approx(1e-3)


def test_inputs() -> None:
    inputs = {name: input_shape(load_workload(name).data)[0] for name in list_workloads()}
    assert {inputs[name] for name in inputs if name.startswith(("nmnist", "mnist"))} == {34 * 34 * 2}
    assert {inputs[name] for name in inputs if name.startswith(("shd", "multi-neuron"))} == {700}
    assert inputs["dvs-gesture-2"] == 48 * 48 * 2
    assert inputs["dvs-gesture-64"] == 64 * 64 * 2
    assert inputs["randman"] == 128


def test_data_paths_are_relative_to_where_the_user_runs() -> None:
    paths = {load_workload(name).data.path for name in list_workloads()}
    assert paths == {"", "data/nmnist", "data/shd", "data/dvs-gesture", "data/braille.npz"}


def test_titles_tell_workloads_apart() -> None:
    titles = {load_workload(name).title for name in list_workloads()}
    assert len(titles) == len(list_workloads())
    assert "34x34x2" in load_workload("nmnist-3").title
    assert "refused" in load_workload("dvs-gesture-64").title


def test_random_input_is_as_sparse_as_the_recordings() -> None:
    data = load_workload("nmnist-2-random").data
    assert data.activity * data.inputs == pytest.approx(12.7, rel=1e-3)  # ids per 1 ms bin, see the file
    plain, random = (load_workload(name) for name in ("nmnist-2", "nmnist-2-random"))
    assert network_of(plain) == network_of(random)


# ---- mistakes


def complaint(tmp_path: Path, *changes: tuple[str, str], base: str = "digits") -> tuple[str, str]:
    """(what loading a changed description says, its text)."""
    text = find_workload(base).read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(DescriptionError) as caught:
        load_workload(str(path))
    assert str(path) in str(caught.value)
    return str(caught.value), text


def line_of(text: str, start: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if line.startswith(start))


def test_a_misspelt_key_is_refused_with_suggestion_and_line(tmp_path: Path) -> None:
    message, text = complaint(tmp_path, ("epochs = 12", "epoch = 12"))
    assert f"unknown key 'training.epoch' (line {line_of(text, 'epoch =')}); did you mean 'epochs'?" in message
    message, text = complaint(tmp_path, ("[training]", "[trainig]"))
    assert "unknown key 'trainig'" in message
    assert "did you mean 'training'?" in message
    assert "missing key 'training'" in message


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    message, _ = complaint(tmp_path, ("epochs = 12", "epochs = 0"), ("decay = 0.9", "decay = 1.5"), ("batch", "bach"))
    assert "4 problems" in message  # 'bach' is unknown and 'batch' is missing
    for part in ("'training.epochs'", "'network.decay'", "did you mean 'batch'?", "missing key 'training.batch'"):
        assert part in message


@pytest.mark.parametrize("capacity", ["[24, 12]", "[24, 12, 10, 10]"])
def test_a_wrong_number_of_capacities_is_refused(tmp_path: Path, capacity: str) -> None:
    message, _ = complaint(tmp_path, ("capacity = [24, 12, 10]", f"capacity = {capacity}"))
    given = capacity.count(",") + 1
    assert f"network.capacity: {given} values given for 3 layers (2 hidden and the output layer)" in message


def test_widths_and_capacities_must_be_positive(tmp_path: Path) -> None:
    assert "every width must be 1 to" in complaint(tmp_path, ("hidden = [256, 128]", "hidden = [256, 0]"))[0]
    zero = complaint(tmp_path, ("capacity = [24, 12, 10]", "capacity = [24, 0, 10]"))[0]
    assert "every capacity must be at least 1" in zero
    neither = complaint(tmp_path, ("capacity = [24, 12, 10]\n", ""))[0]
    assert "give either 'capacity' (one per layer) or 'activity' (share of neurons)" in neither


def with_line(tmp_path: Path, line: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(find_workload("digits").read_text().replace("timesteps = 30", f"timesteps = 30\n{line}"))
    return path


@pytest.mark.parametrize(
    ("given", "seconds"),
    [('"1 ms"', 1e-3), ('"250 us"', 250e-6), ("0.002", 2e-3), ('"0.002"', 2e-3), ('"1e6 ns"', 1e-3)],
)
def test_a_number_may_carry_its_unit(tmp_path: Path, given: str, seconds: float) -> None:
    workload = load_workload(str(with_line(tmp_path, f"bin_seconds = {given}")))
    assert workload.data.bin_seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('bin_seconds = "1 KiB"', "unit 'KiB' does not fit bin_seconds; use one of s, ms, us, ns"),
        ('train_samples = "5 ms"', "train_samples is a plain count and takes no unit"),
        ('bin_seconds = "soon"', "'soon' is not a number with a unit"),
    ],
)
def test_a_wrong_unit_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        load_workload(str(with_line(tmp_path, line)))
    assert problem in str(caught.value)


def test_an_unknown_workload_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"workload 'nmnist2'.*\n.*did you mean 'nmnist-2'\?"):
        load_workload("nmnist2")
    with pytest.raises(DescriptionError, match="no such file"):
        load_workload(str(tmp_path / "absent.toml"))


def test_changes_are_laid_over_a_description() -> None:
    changes: dict[str, Any] = {"training.batch": 12, "mapping.weight_gradient_replicas": 2}
    changed = load_workload("nmnist-2", changes)
    assert (changed.training.batch, changed.mapping.weight_gradient_replicas) == (12, 2)
    assert load_workload("nmnist-2").training.batch == 48
    with pytest.raises(DescriptionError, match=r"unknown key 'training.bach'.*did you mean 'batch'\?"):
        load_workload("nmnist-2", {"training.bach": 12})


@pytest.mark.parametrize("name", ["nmnist-2", "dvs-gesture-2", "braille", "digits", "snntorch-mnist"])
def test_random_spikes_take_the_place_of_a_source_without_its_keys(name: str) -> None:
    usual, random = load_workload(name), load_workload(name, {"data.source": "random"})
    assert (random.data.inputs, random.data.classes) == input_shape(usual.data)
    assert (random.data.path, random.data.timesteps) == ("", usual.data.timesteps)
    given = load_workload(name, {"data.source": "random", "data.inputs": 99})
    assert given.data.inputs == 99
    with pytest.raises(DescriptionError, match="reads no files"):
        load_workload(name, {"data.source": "random", "data.path": "x"})


def test_recorded_samples_take_the_place_of_random_ones() -> None:
    assert input_shape(load_workload("random-4", {"data.source": "digits"}).data) == (512, 10)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (256, "'network.hidden' (as changed): must be a list; write [256]"),
        ("64,32", "must be a list; write [64, 32]"),
        ("64;32", "must be a list; write [64, 32]"),
        ("[a]", "must be a list (given: '[a]')"),
        ("wide", 'must be a list; write ["wide"]'),
    ],
)
def test_a_list_is_asked_for_where_one_is_needed(value: object, said: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        load_workload("digits", {"network.hidden": value})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"hidden0": []}, "'network.learned.hidden0' (as changed): has 0 values; give 1 or more"),
        ({"hidden0": [1]}, "1 problem\n  - 'network.learned.hidden0.0' (as changed): must be text"),
        ({"hidden0": True}, "'network.learned.hidden0' (as changed): must be a list (given: True)"),
        ("beta", "'network.learned' (as changed): must have keys, with a value each"),
        ({"hidden0": ["tau"]}, "layer 'hidden0': network.learned: model 'lif' has no parameter 'tau'; it has"),
        ({"input": ["decay"]}, "network.learned.input: no such layer; the layers are"),
    ],
)
def test_what_is_wrong_with_names_in_a_table_is_said_once(value: object, said: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        load_workload("digits", {"network.learned": value})
    assert said in str(caught.value)


def test_a_module_is_no_workload_yet() -> None:
    with pytest.raises(DescriptionError, match=r"is object; give a name or a path, or what mimdsim\.from_torch makes"):
        mimdsim.run(object(), "bow")  # type: ignore[arg-type]


def test_files_hold_no_key_that_the_record_lacks() -> None:
    for name in list_workloads():
        table = tomllib.loads(find_workload(name).read_text())
        assert set(table) <= {"title", "seed", "data", "network", "training", "mapping"}, name
