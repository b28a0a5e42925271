"""Machines compared at the best mapping of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from random_profile import make_profile

import mimdsim
from mimdsim.base.errors import DescriptionError
from mimdsim.report.headline import _why, verdicts
from mimdsim.report.machine_comparison import contenders

SMALL: dict[str, Any] = {
    "data.inputs": 60, "data.classes": 3, "data.timesteps": 4, "data.input_capacity": 20, "data.train_samples": 16,
    "data.test_samples": 4, "network.hidden": [48, 24], "network.capacity": [16, 8, 3], "training.batch": 4,
    "training.max_training_steps": 1,
}  # fmt: skip


@pytest.mark.slow
def test_every_machine_has_the_best_mapping_that_is_found_for_it() -> None:
    size = {"chip.tiles": 64, "chip.grid_columns": 8}
    crossbar = mimdsim.Machine("bow", size, name="crossbar")
    narrow = mimdsim.Machine("bow-mesh", size | {"exchange.link_bytes_per_cycle": 0.02}, name="narrow")
    run = mimdsim.compare("nmnist-2-random", [crossbar, narrow], changes=SMALL, best_mapping=24)
    plain = mimdsim.compare("nmnist-2-random", [crossbar, narrow], changes=SMALL)
    assert run.tiled.cycles < plain.tiled.cycles
    (beside,), (before,) = run.profile.tiled_beside, plain.profile.tiled_beside
    assert beside.cycles < before.cycles
    alone = mimdsim.place("nmnist-2-random", narrow, changes=SMALL, candidates=24, training_steps=20)
    assert beside.cycles == pytest.approx(alone.best.figures.cycles, rel=0.02)  # spikes are others
    assert run.workload.mapping.split
    assert run.profile.config_sha256 != plain.profile.config_sha256
    (said,) = (one.text for one in verdicts(run.profile) if one.subject == "machine")
    assert "mostly by exchange" in said


def test_what_the_faster_machine_has_none_of_is_not_called_0() -> None:
    gpu = next(one for one in contenders(make_profile()) if not one.tiled)
    slower = replace(gpu, seconds=3e-5, parts=(2.63e-5, 3e-6, 0.0, 0.0)[: len(gpu.parts)])
    faster = replace(gpu, seconds=1e-5, parts=(0.0, 1e-5, 0.0, 0.0)[: len(gpu.parts)])
    assert _why(slower, faster).endswith("-bound kernels (0.0263 ms; the faster has none)")
    assert _why(faster, slower) == _why(slower, faster)


def test_a_mapping_of_ones_own_excludes_the_search(tmp_path: Any) -> None:
    with pytest.raises(DescriptionError, match="best_mapping finds one for every machine: leave out mapping"):
        mimdsim.compare(mapping=tmp_path / "mine.toml", best_mapping=10)


@pytest.mark.slow
def test_dense_spikes_have_the_better_form_of_their_program() -> None:
    dense = SMALL | {"network.spikes": "dense", "network.capacity": []}
    run, plain = (mimdsim.compare("nmnist-2-random", "tiny", changes=dense, best_mapping=each) for each in (9, 0))
    assert run.tiled.cycles < plain.tiled.cycles
    assert run.workload.mapping.model_copy(update={"program": "published"}) == plain.workload.mapping


@pytest.mark.slow
def test_dense_spikes_stand_beside_the_best_mapping_of_lists(tmp_path: Any) -> None:
    given = {"fill": 0.5, "changes": SMALL, "axes": {"network.spikes": ("sparse", "dense")}}
    found = {
        how: mimdsim.study(mimdsim.Study(machine="tiny", workloads="nmnist-2-random", **given, **keys), tmp_path / how)
        for how, keys in (("best", {"mapping": "best", "candidates": 9}), ("published", {}))
    }
    best, published = ([row["ms_per_training_step"] for row in each.rows] for each in found.values())
    assert best[1] < published[1]
    assert best[0] <= published[0]
