"""GPU strategies that follow lists of spikes: what they cost, how that grows, and what `auto` chooses."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mimdsim.base.errors import MappingError
from mimdsim.gpu.elementwise import RecurrentLayer
from mimdsim.gpu.engine import list_walk_seconds, time_on_gpu
from mimdsim.gpu.kernels import list_lengths
from mimdsim.graph import Layer, Sgd, SpikingNetwork, training_graph
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.spikes import Selection
from mimdsim.machine import GpuMachine, load_machine
from mimdsim.pipeline.overrides import load_gpu
from mimdsim.pipeline.retiming import time_on_gpus
from mimdsim.profile import GpuProfile
from mimdsim.program import RecordedActivity
from mimdsim.workload import filled_activity

WIDTHS = (2312, 1466, 1466, 10)


def network(share: float = 0.1, spikes: str = "sparse") -> SpikingNetwork:
    layers = []
    for index, (fan_in, neurons) in enumerate(pairwise(WIDTHS)):
        selection = Selection(threshold=1.0, second_threshold=0.9, capacity=max(2, int(share * neurons)), slope=10.0)
        name = "output" if index == len(WIDTHS) - 2 else f"hidden{index}"
        lif = neuron_of("lif")
        layers.append(Layer(name=name, inputs=fan_in, neurons=neurons, neuron=lif, selection=selection))
    return SpikingNetwork(
        layers=tuple(layers), timesteps=100, batch=48, input_capacity=32, spikes=spikes, logit_scale=1.0,
        optimiser=Sgd(learning_rate=0.1),
    )  # fmt: skip


def timed(strategy: str, fill: float = 1.0, share: float = 0.1, precision: str = "fp32") -> GpuProfile:
    found = load_machine("a100")
    assert isinstance(found, GpuMachine)
    made = network(share)
    return time_on_gpu(
        training_graph(made),
        found,
        strategy=strategy,
        precision=precision,
        activity=filled_activity(made, fill),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("strategy", ["lists_as_written", "lists_hoisted"])
def test_time_grows_with_the_lists(strategy: str) -> None:
    seconds = [timed(strategy, fill).seconds_per_training_step for fill in (0.0, 0.25, 0.5, 1.0)]
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[-1]


def test_as_written_is_near_the_estimate_at_two_per_cent() -> None:
    """16 to 26 ms were estimated for this network on an A100 (the dense loop takes 9 to 17)."""
    assert 0.012 < timed("lists_as_written", share=0.02).seconds_per_training_step < 0.030


def test_the_old_name_of_the_bound_is_the_strategy_that_was_built() -> None:
    with pytest.warns(DeprecationWarning, match="'lists_ideal' is now 'lists_hoisted'"):
        assert timed("lists_ideal").strategy == "lists_hoisted"


def test_hoisted_lists_launch_a_product_once() -> None:
    profile = timed("lists_hoisted")
    spans = [span for span in profile.spans if span.op.startswith("synapse")]
    assert spans
    assert {span.times for span in spans} <= {1, 2}  # the second zeroes what lists fill here and there
    assert sum(span.op == "lists" for span in profile.spans) == len(WIDTHS) - 1


def test_a_recurrent_layer_is_walked_by_one_block_a_sample() -> None:
    """More samples than multiprocessors take a second round."""
    gpu = load_machine("h100")
    assert isinstance(gpu, GpuMachine)

    def seconds(batch: int, entries: float) -> float:
        layer = RecurrentLayer(neurons=1464, gates=1, batch=batch, timesteps=100)
        return list_walk_seconds(gpu, layer, entries=entries, forward=True)

    assert seconds(132, 14.6) == seconds(1, 14.6) == seconds(133, 14.6) / 2
    assert seconds(48, 14.64) == pytest.approx(501e-6, rel=0.1)  # measured: recur_forward, references/README.md
    assert seconds(48, 73.24) == pytest.approx(1574e-6, rel=0.1)


def test_hoisted_lists_are_below_what_is_written() -> None:
    for fill in (0.1, 1.0):
        assert timed("lists_hoisted", fill).seconds_per_training_step < (
            timed("lists_as_written", fill).seconds_per_training_step
        )


def test_weight_gradients_stream_all_weights_four_times_as_written() -> None:
    profile = timed("lists_as_written", fill=0.0)
    spans = [span for span in profile.spans if span.op == "synapse_weight_gradient"]
    weights = sum(fan_in * neurons for fan_in, neurons in pairwise(WIDTHS))
    assert sum(span.bytes_moved for span in spans) == 100 * 4 * 4 * weights


def test_without_recorded_spikes_it_is_refused() -> None:
    gpu = load_machine("a100")
    assert isinstance(gpu, GpuMachine)
    with pytest.raises(MappingError, match=r"needs the spikes of .* give the activity of a run"):
        time_on_gpu(training_graph(network()), gpu, strategy="lists_hoisted", precision="fp32")
    with pytest.raises(MappingError, match=r"dense product; only networks with network.spikes"):
        time_on_gpu(
            training_graph(network(spikes="dense")), gpu, strategy="lists_hoisted", precision="fp32",
            activity=RecordedActivity(ids={}, counts={}, dropped={}),
        )  # fmt: skip


def test_auto_is_the_fastest_program_that_could_be_built() -> None:
    chosen = timed("auto", precision="tf32")
    for strategy in ("as_published", "graph_replay", "hoisted", "lists_as_written", "lists_hoisted"):
        assert chosen.seconds_per_training_step <= timed(strategy, precision="tf32").seconds_per_training_step
    assert not chosen.never_built
    assert timed("scan", precision="tf32").never_built


@pytest.mark.parametrize(
    ("strategy", "needs"),
    [
        ("as_published_synchronised", "a host that runs the loop"),
        ("persistent", "blocks of threads that keep weights in registers"),
        ("lists_as_written", "CUDA threads that follow ids and atomics"),
        ("lists_hoisted", "CUDA threads that follow ids and atomics"),
    ],
)
def test_what_is_made_of_gpu_threads_is_refused_on_systolic_arrays(strategy: str, needs: str) -> None:
    tpu = load_machine("tpu-v4")
    assert isinstance(tpu, GpuMachine)
    activity = filled_activity(network(), 0.02)
    with pytest.raises(
        MappingError, match=f"strategy '{strategy}' needs {needs}.*tpu-v4 multiplies on systolic arrays"
    ):
        time_on_gpu(training_graph(network()), tpu, strategy=strategy, precision="tf32", activity=activity)
    chosen = time_on_gpu(training_graph(network()), tpu, strategy="auto", precision="tf32", activity=activity)
    assert chosen.strategy == "hoisted"
    refused = {one.name for one in chosen.assumptions}
    assert f"not '{strategy}'" in refused


def test_lengths_are_means_over_samples_and_of_the_longest() -> None:
    counts = np.array([[[1, 2], [3, 4]], [[5, 6], [1, 2]]], np.int32)  # two timesteps, two samples
    assert list_lengths(counts, listed=False) == (2.5, 4.0)
    assert list_lengths(counts, listed=True) == (3.5, 5.0)


@pytest.mark.parametrize(("spikes", "follow"), [("sparse", 2), ("dense", 0)])
def test_strategies_that_follow_lists_are_named_only_where_there_are_some(spikes: str, follow: int) -> None:
    of_either = network(spikes=spikes)
    profiles, warnings = time_on_gpus(training_graph(of_either), (load_gpu("a100"),), filled_activity(network(), 0.5))
    assert not warnings
    assert sum(profile.strategy.startswith("lists") for profile in profiles) == follow
