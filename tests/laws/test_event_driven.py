"""Event-driven training on a GPU: laws, values by hand, the table carried, the crossover with dense training."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.machine.gpu import GpuMachine
from mimdsim.validation.gpus import event_driven as model
from mimdsim.validation.gpus.event_driven import EACH_BATCH, EACH_TIMESTEP
from mimdsim.validation.gpus.products import described
from mimdsim.validation.reference_table import Row
from mimdsim.validation.tables import check_files, find_table

SHARED = Path(__file__).resolve().parents[3] / "shared" / "references" / "silicon" / "genn_eventprop.csv"
HEAD = (
    "what,device,dataset,augmentation,inputs,hidden_recurrent,outputs,timesteps,batch,epochs,batches_per_epoch,"
    "quantity,value\n"
)
A5000, A100 = described("rtx-a5000"), described("a100")
SHD = model.EventDrivenNetwork(
    inputs=700, hidden=256, outputs=20, batch=32, timesteps=1000, input_spikes=8.45, hidden_spikes=3.584
)


def rows_of(path: Path) -> list[Row]:
    return check_files((path,), None, lambda *_: None)


def rows_of_text(folder: Path, text: str) -> list[Row]:
    path = folder / "mine.csv"
    path.write_text(HEAD + text, encoding="utf-8")
    return rows_of(path)


@settings(max_examples=60, deadline=None)
@given(
    gpu=st.sampled_from((A5000, A100)), hidden=st.integers(1, 4096), batch=st.integers(1, 256),
    spikes=st.floats(0, 50), more=st.sampled_from(("hidden", "inputs", "batch", "input_spikes", "hidden_spikes")),
)  # fmt: skip
def test_more_is_never_faster(gpu: GpuMachine, hidden: int, batch: int, spikes: float, more: str) -> None:
    network = dataclasses.replace(SHD, hidden=hidden, batch=batch, input_spikes=spikes, hidden_spikes=spikes)
    larger = dataclasses.replace(network, **{more: getattr(network, more) * 2 + 1})
    for seconds_of, _ in (EACH_TIMESTEP | EACH_BATCH).values():
        assert seconds_of(gpu, larger) >= seconds_of(gpu, network) * (1 - 1e-12) > 0


def test_bytes_by_hand() -> None:
    weights = 700 * 256 + 256 * 256 + 256 * 20
    assert SHD.weights == weights
    launch = 3.5e-6 + 2.05e-6
    assert model.optimiser_seconds(A5000, SHD) == pytest.approx(launch + 28 * weights / (0.88 * 768e9))
    scattered = 32 * 8 * weights / (0.29 * 768e9)
    assert model.batch_sum_seconds(A5000, SHD) == pytest.approx(launch + scattered + 4 * weights / (0.88 * 768e9))
    # a hidden neuron: 8 + 4 words read and written, one read, a flag read and written, one spike time
    state = 32 * (256 * (96 + 4 + 2 + 32) + 700 * (40 + 4 + 2 + 64))
    assert model.neuron_update_seconds(A100, SHD) == pytest.approx(3.5e-6 + 2.6e-6 + state / 3.9e12)  # 40 MB of L2


def test_what_exceeds_the_cache_displaces_as_much_again() -> None:
    cache = A5000.memory.l2_bytes
    shares = [model.kept_share(A5000, share * cache) for share in (0, 1, 1.25, 2, 9)]
    assert shares == [1, 1, 0.75, 0, 0]


def test_synapses_wait_for_the_sample_with_most_spikes() -> None:
    still = dataclasses.replace(SHD, input_spikes=0.0, hidden_spikes=0.0)
    assert model.synapse_seconds(A5000, still) == pytest.approx(5.55e-6)
    alone = dataclasses.replace(SHD, batch=1, hidden_spikes=0.0, input_spikes=10.0)
    chain = 10 * (557 + 250 / 4) / 1.695e9
    bytes_seconds = 8 * 2560 / (0.29 * 768e9) + 4 * 2560 / 1.8e12
    assert model.synapse_seconds(A5000, alone) == pytest.approx(5.55e-6 + chain + bytes_seconds)
    assert SHD.busiest(8.0) > 14 > alone.busiest(8.0) == 8


# ---- the table carried


@pytest.mark.parametrize(
    ("kind", "rows", "mean", "worst"),
    [
        ("neuron update", 4, 0.10, 0.25),
        ("optimiser", 4, 0.04, 0.05),
        ("gradients summed over the batch", 4, 0.03, 0.04),
        ("synapses", 4, 0.18, 0.25),
        ("small kernels", 24, 0.12, 0.25),
        ("all kernels of a batch", 4, 0.16, 0.22),
        ("Spyx, a training step", 4, 0.31, 0.61),
    ],
)
def test_groups_come_out_as_near_as_the_page_says(kind: str, rows: int, mean: float, worst: float) -> None:
    chosen = [row for row in rows_of(find_table("genn_eventprop.csv")) if row.kind == kind]
    errors = [row.error for row in chosen if row.ratio is not None]
    assert len(errors) == rows
    assert sum(errors) / rows < mean
    assert max(errors) < worst
    assert all((row.low or 0) <= (row.published or 0) <= (row.high or 0) for row in chosen)


def test_sparse_training_wins_at_1000_timesteps_and_loses_at_200() -> None:
    rows = {row.name: row for row in rows_of(find_table("genn_eventprop.csv")) if row.predicted is not None}
    for hidden in (256, 1024):
        for timesteps, sparse_wins in ((1000, True), (200, False)):
            start = f"{hidden} x {timesteps} shd plain, "
            sparse, dense = rows[f"{start}genn_eventprop sum_of_kernels"], rows[f"{start}spyx wall_training"]
            for figure in ("published", "predicted"):
                assert (getattr(sparse, figure) < getattr(dense, figure)) == sparse_wins, (start, figure)


@pytest.mark.skipif(not SHARED.exists(), reason="needs the folder of outside references")
def test_the_table_as_it_was_collected_is_recognised() -> None:
    mine = {row.name: row.predicted for row in rows_of(find_table("genn_eventprop.csv"))}
    assert {row.name: row.predicted for row in rows_of(SHARED)} == mine


# ---- other rows of the same columns


def test_rows_that_cannot_be_computed_say_why(tmp_path: Path) -> None:
    good = "genn_eventprop_train,NVIDIA A100 40GB,shd,plain,700,512,20,500,32,1,10,"
    for text, message in (
        (good.replace("A100", "X1") + "neuron_update,1", "no description of device 'NVIDIA X1 40GB'"),
        (good + "wall_all_epochs,1", "the host's part"),
        (good + "peak_gpu_memory_mb,1", "memory is not modelled"),
        (good + "my_kernel,1", "no kernel 'my_kernel' was counted; known: neuron_update"),
        (good.replace("shd", "ssc") + "neuron_update,1", "the spikes of dataset 'ssc' are unknown"),
        (good.replace("eventprop", "older") + "neuron_update,1", "no program 'genn_older_train' was counted"),
        (good.replace("512", "many") + "neuron_update,1", "hidden_recurrent 'many'"),
        (good.replace("512", "0") + "neuron_update,1", "must be 1 to 1,048,576"),
    ):
        (row,) = rows_of_text(tmp_path, text + "\n")
        assert row.predicted is None
        assert message in row.note
    (known,) = rows_of_text(tmp_path, good + "neuron_update,0.05\n")
    assert known.published == pytest.approx(10)  # 0.05 s over 10 batches of 500 timesteps, in us
    assert known.predicted is not None
    assert known.note == "on NVIDIA A100 SXM 40 GB"
    for value, said in (("nan", "'nan' is not a number"), ("-1", "'-1' is not a number from 0")):
        again = good.splitlines()[-1]
        refused, other = rows_of_text(tmp_path, f"{good}neuron_update,{value}\n{again}neuron_update,1\n")
        assert (refused.name, refused.note) == ("line 2", f"column 'value': {said}")
        assert other.predicted is not None
