"""Neuron models and cells from a user's file, which is run only where that is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mimdsim
from mimdsim.base.errors import DescriptionError, MimdsimError
from mimdsim.base.user_code import ALLOWED
from mimdsim.cli import main
from mimdsim.graph.cells import Cell
from mimdsim.workload import inputs_of, load_workload, network_of

LINEAR = """
from mimdsim.graph.neuron_parts import Model, Parts, decay, positive

THRESHOLD = positive("threshold", 1.0, "of the potential", "a spike where the potential is above it")
forgetful = Model(
    name="forgetful",
    states=("potential",),
    parameters=(decay("beta", 0.5, "what a timestep keeps"), THRESHOLD),
    resets=("subtract",),
    parts=lambda p: Parts(
        matrix=[[p["beta"]]], drive=[1.0], threshold=p["threshold"], subtracted=([[0.1 * p["beta"]]], [1.0], [0.0])
    ),
    equation="v = beta v + I; after a spike a tenth of v",
    source="ours",
)
"""
CELL = """
from mimdsim.graph.cells import OUTPUT, CellModel
from mimdsim.graph.neuron_parts import positive

def quadratic(cell):
    (current,) = cell.from_inputs()
    v = cell.state("v")
    risen = 0.9 * v + 0.05 * (v * v) + current
    spike = cell.spike(risen - cell.p["threshold"])
    return {OUTPUT: spike, "v": risen - spike * risen}

model = CellModel(
    name="quadratic", gates=1, states=("v",), equations=quadratic, spiking=True, equation="v = 0.9 v + 0.05 v^2 + I",
    parameters=(positive("threshold", 1.0, "of the potential", "a spike above it"),), source="ours",
)
"""
ROOT = Path(__file__).resolve().parents[2]
SHORT: dict[str, Any] = {"training.max_training_steps": 3, "training.evaluate": "never"}


@pytest.fixture(autouse=True)
def not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test allows ends with it."""
    monkeypatch.setenv(ALLOWED, "")


def written(folder: Path, text: str, name: str = "own.py") -> dict[str, Any]:
    (folder / name).write_text(text)
    return {"network.models": str(folder / name)}


def test_nothing_is_run_that_is_not_allowed(tmp_path: Path) -> None:
    changes = written(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n{LINEAR}") | {"network.neuron": "forgetful"}
    with pytest.raises(DescriptionError, match=r"type {2}mimdsim --allow-code COMMAND"):
        load_workload("digits", changes)
    assert not (tmp_path / "ran").exists()
    mimdsim.allow_code()
    assert network_of(load_workload("digits", changes)).layers[0].neuron.model == "forgetful"
    assert (tmp_path / "ran").exists()


def test_a_neuron_of_ones_own_is_one_of_the_linear_family(tmp_path: Path) -> None:
    """It runs from lists, learns its constants, and its file belongs to the results."""
    mimdsim.allow_code()
    changes = written(tmp_path, LINEAR) | {"network.neuron": ["forgetful", "leaky", "forgetful"], **SHORT}
    workload = load_workload("digits", changes | {"network.learned": {"hidden0": ["beta"]}})
    assert "network.models" in [each.key for each in inputs_of(workload)]
    first, second, _ = network_of(workload).layers
    assert (first.neuron.model, second.neuron.model) == ("forgetful", "leaky")
    result = mimdsim.run(workload, "bow", gpus=())
    assert result.cycles > 0
    assert result.weights["hidden0.beta"] != pytest.approx(0.5, abs=1e-6)


@pytest.mark.slow
def test_a_cell_of_ones_own_is_checked_and_run(tmp_path: Path) -> None:
    mimdsim.allow_code()
    changes = written(tmp_path, CELL) | {"network.neuron": "quadratic", "network.spikes": "dense", **SHORT}
    workload = load_workload("digits", changes | {"network.hidden": [16, 12]})
    assert isinstance(network_of(workload).layers[0].neuron, Cell)
    assert mimdsim.check(workload, "bow").passed
    assert mimdsim.run(workload, "bow", gpus=()).cycles > 0


@pytest.mark.slow
def test_the_command_line_allows_it_for_one_command(tmp_path: Path) -> None:
    file = written(tmp_path, LINEAR)["network.models"]
    command = ["check", "digits", "bow", "--set", f"network.models={file}", "--set", "network.neuron=forgetful"]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "for workloads that you trust" in refused.output
    assert CliRunner().invoke(main, ["--allow-code", *command]).exit_code == 0


WRONG = {
    "a model 'leaky' is there already": LINEAR.replace('"forgetful"', '"leaky"'),
    "defines no neuron model": "x = 1\n",
    "'states': must be a tuple": LINEAR.replace('("potential",)', '"potential"'),
    "'parameters.0': must be a dictionary or an instance of Parameter": LINEAR.replace(
        'decay("beta", 0.5, ', '("beta"'
    ),
    "'resets' is empty; give one or more of": LINEAR.replace('("subtract",)', "()"),
    "'parts' returns dict; it must return Parts(..)": LINEAR.replace("lambda p: Parts(", "lambda p: dict("),
    "drive must be a list, with one entry per state": LINEAR.replace("drive=[1.0]", "drive=1.0"),
    "every row of matrix must be a list": LINEAR.replace('[[p["beta"]]]', '[p["beta"]]'),
    "is not known; did you mean 'Forgetful'?": LINEAR.replace('"forgetful"', '"Forgetful"'),
    "'gates' is 0; give 1 or more": CELL.replace("gates=1", "gates=0"),
    "reset 'sideways' is not one of": LINEAR.replace('"subtract"', '"sideways"'),
    "ZeroDivisionError: division by zero\n    (own.py, line 1: 1 / 0)": "1 / 0\n",
    "SyntaxError": "def f(:\n",
    "model 'forgetful': 1 problem\n  - KeyError: 'bta'": LINEAR.replace('[[p["beta"]]]', '[[p["bta"]]]'),
}


@pytest.mark.parametrize("said", WRONG)
def test_a_file_that_is_wrong_is_explained(tmp_path: Path, said: str) -> None:
    mimdsim.allow_code()
    with pytest.raises(DescriptionError) as wrong:
        load_workload("digits", written(tmp_path, WRONG[said]) | {"network.neuron": "forgetful"})
    assert said in str(wrong.value)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("spike", "'equations' returns Term; it must return dict(..)"),
        ('{OUTPUT: 1.0, "v": risen}', "give v ('output' is 1.0); they must give terms for output, v"),
    ],
)
def test_equations_of_a_wrong_kind_are_explained(tmp_path: Path, returned: str, said: str) -> None:
    mimdsim.allow_code()
    changes = written(tmp_path, CELL.replace('{OUTPUT: spike, "v": risen - spike * risen}', returned))
    with pytest.raises(MimdsimError, match=re.escape(said)):
        mimdsim.run("digits", "bow", changes={**changes, "network.neuron": "quadratic", "network.spikes": "dense"})


def test_a_file_is_found_beside_the_description(tmp_path: Path) -> None:
    mimdsim.allow_code()
    written(tmp_path, LINEAR)
    (tmp_path / "mine.toml").write_text(
        'title = "t"\n[data]\nsource = "random"\ninputs = 4\nclasses = 2\ntimesteps = 2\ninput_capacity = 4\n'
        '[network]\nhidden = [4]\ncapacity = [4, 2]\nmodels = "own.py"\nneuron = "forgetful"\n'
        "[training]\nbatch = 2\nlearning_rate = 0.1\n"
    )
    assert network_of(load_workload(tmp_path / "mine.toml")).layers[0].neuron.model == "forgetful"


@pytest.mark.slow
def test_the_models_of_the_docs_page_run(tmp_path: Path) -> None:
    mimdsim.allow_code()
    page = (ROOT / "docs" / "neurons.md").read_text().partition("## A model of your own")[2].partition("\n## ")[0]
    first, second = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for text, spikes in ((first, "sparse"), (second, "dense")):
        changes = written(tmp_path, text, f"{spikes}.py") | {"network.spikes": spikes, "network.hidden": [16, 12]}
        name = "forgetful" if spikes == "sparse" else "quadratic"
        assert mimdsim.check(load_workload("digits", changes | {"network.neuron": name}), "bow").passed


def test_a_changed_file_is_run_again(tmp_path: Path) -> None:
    mimdsim.allow_code()
    workload = load_workload("digits", written(tmp_path, LINEAR) | {"network.neuron": "forgetful"})
    before = network_of(workload).layers[0].linear.quiet.matrix.item()
    written(tmp_path, LINEAR.replace("0.5", "0.75"))
    assert (before, network_of(workload).layers[0].linear.quiet.matrix.item()) == (0.5, 0.75)
