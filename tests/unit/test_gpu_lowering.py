"""The training graph on a GPU: which kernels it becomes, what they cost on an A100, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError
from mimdsim.base.residuals import RESIDUALS
from mimdsim.base.units import SOURCE_KINDS
from mimdsim.gpu.dependence import product_levels
from mimdsim.gpu.engine import WALK_SECONDS, time_on_gpu
from mimdsim.gpu.kernels import HostWait, Kernel, Product, Stream
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.gpu.strategies import STRATEGIES
from mimdsim.graph import Adam, Graph, Layer, Scan, Sgd, SpikingNetwork, Value, training_graph
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.operations import builder
from mimdsim.graph.records import Carry, Slice
from mimdsim.graph.spikes import Selection
from mimdsim.machine import GpuMachine, load_machine
from mimdsim.machine.gpu import Precision
from mimdsim.numerics.optimisers import Optimiser

LIF = neuron_of("lif")
INPUT_CAPACITY = 40
DENSE = tuple(name for name, how in STRATEGIES.items() if how.lists is None and not how.persistent)


def a100(changes: dict[str, object] | None = None) -> GpuMachine:
    machine = load_machine("a100", changes)
    assert isinstance(machine, GpuMachine)
    return machine


def network(
    widths: tuple[int, ...], timesteps: int, batch: int, *, spikes: str = "sparse", optimiser: Optimiser | None = None
) -> Graph:
    layers = []
    for index, (fan_in, neurons) in enumerate(pairwise(widths)):
        name = "output" if index == len(widths) - 2 else f"hidden{index}"
        selection = Selection(threshold=1.0, second_threshold=0.9, capacity=max(2, neurons // 50), slope=10.0)
        layers.append(Layer(name=name, inputs=fan_in, neurons=neurons, neuron=LIF, selection=selection))
    return training_graph(
        SpikingNetwork(
            layers=tuple(layers), timesteps=timesteps, batch=batch, input_capacity=INPUT_CAPACITY, spikes=spikes,
            logit_scale=1.0, optimiser=optimiser or Adam(learning_rate=1e-3),
        )
    )  # fmt: skip


def small(**changes: str) -> Graph:
    return network((30, 20, 16, 4), 7, 5, **changes)  # type: ignore[arg-type]


def products(graph: Graph, strategy: str) -> list[Product]:
    lowered = lower_to_kernels(graph, STRATEGIES[strategy], precision="tf32")
    return [kernel for kernel in lowered.kernels if isinstance(kernel, Product)]


@pytest.mark.parametrize("layers", [2, 3, 5])
@pytest.mark.parametrize("spikes", ["sparse", "dense"])
def test_kernels_of_a_timestep_as_published(layers: int, spikes: str) -> None:
    timesteps = 9
    graph = network((30, *(20,) * (layers - 1), 4), timesteps, 5, spikes=spikes)
    lowered = lower_to_kernels(graph, STRATEGIES["as_published"], precision="tf32")
    per_timestep = {"forward": 0, "backward": 0}
    for kernel in lowered.kernels:
        if not isinstance(kernel, HostWait) and kernel.times > 1:
            assert kernel.times % timesteps == 0
            per_timestep[kernel.phase] += kernel.times // timesteps
    # baseline A: 3 bookkeeping + (product + 2 fusions) a layer; 3 + (dW + 3 fusions) a layer + dX but for the first
    assert per_timestep["forward"] == 3 + 3 * layers <= 4 * layers + 6
    assert per_timestep["backward"] == 3 + 4 * layers + (layers - 1) <= 6 * layers + 6


def test_as_published_adds_up_weight_gradients_every_timestep() -> None:
    by_kind: dict[str, list[Product]] = {}
    for product in products(small(), "as_published"):
        by_kind.setdefault(product.op, []).append(product)
    assert [(p.m, p.n, p.k) for p in by_kind["synapse"]] == [(5, 20, 30), (5, 16, 20), (5, 4, 16)]
    assert [(p.m, p.n, p.k) for p in by_kind["synapse_weight_gradient"]] == [(16, 4, 5), (20, 16, 5), (30, 20, 5)]
    assert [(p.m, p.n, p.k) for p in by_kind["synapse_spike_gradient"]] == [(5, 16, 4), (5, 20, 16)]
    assert all(p.accumulate and p.times == 7 for p in by_kind["synapse_weight_gradient"])
    assert not any(p.accumulate for p in by_kind["synapse"] + by_kind["synapse_spike_gradient"])


def test_hoisted_products_cover_all_timesteps() -> None:
    shapes = {(p.op, p.m, p.n, p.k) for p in products(small(), "hoisted")}
    assert ("synapse", 35, 20, 30) in shapes
    assert ("synapse_spike_gradient", 35, 20, 16) in shapes
    assert ("synapse_weight_gradient", 30, 20, 35) in shapes
    assert all(p.times == 1 and p.batch == 1 and not p.accumulate for p in products(small(), "hoisted"))


@pytest.mark.parametrize("spikes", ["sparse", "dense"])
@pytest.mark.parametrize("strategy", DENSE)
def test_every_strategy_does_the_same_products(strategy: str, spikes: str) -> None:
    total = sum(2 * p.m * p.n * p.k * p.batch * p.times for p in products(small(spikes=spikes), strategy))
    forward = 2 * 5 * (30 * 20 + 20 * 16 + 16 * 4)
    assert total == 7 * (forward + forward + forward - 2 * 5 * 30 * 20)


def test_fused_kernels_move_what_crosses_them() -> None:
    # hidden layer of 16 neurons, batch 5, 7 timesteps, fp32; hoisted: v and dv stay in registers
    lowered = lower_to_kernels(small(), STRATEGIES["hoisted"], precision="fp32")
    walking = {k.name: k for k in lowered.kernels if isinstance(k, Stream) and k.walks_timesteps}
    one_pass = 5 * 16 * 7 * 4
    forward = walking["time.v.hidden1+spikes.hidden1"]
    assert forward.bytes_moved == 3 * one_pass  # current in; membrane and spikes out
    backward = next(k for name, k in walking.items() if "hidden1.q" in name)
    assert backward.bytes_moved == 4 * one_pass  # spike gradient, spikes, membrane in; q out
    assert len(walking) == 2 * 3
    looped = lower_to_kernels(small(), STRATEGIES["graph_replay"], precision="fp32")
    fused = next(k for k in looped.kernels if k.name == "time.v.hidden1+spikes.hidden1")
    assert isinstance(fused, Stream)
    # current, membrane in; membrane and spikes out, and both once more into the stash
    assert fused.bytes_moved == 6 * 5 * 16 * 4


def test_a_scan_moves_what_a_walk_moves_and_starts_sooner() -> None:
    walked, scanned = (lower_to_kernels(small(), STRATEGIES[name], precision="fp32") for name in ("hoisted", "scan"))
    for before, after in zip(walked.kernels, scanned.kernels, strict=True):
        assert after == (replace(before, walks_timesteps=False) if _gradient_of_neurons(before) else before)
    gpu = a100()
    slow, fast = (time_on_gpu(small(), gpu, strategy=name, precision="fp32") for name in ("hoisted", "scan"))
    saved = WALK_SECONDS - gpu.launch.stream_period_seconds
    assert slow.seconds_per_training_step - fast.seconds_per_training_step == pytest.approx(3 * saved)
    assert fast.never_built
    assert not slow.never_built


def _gradient_of_neurons(kernel: Kernel) -> bool:
    return isinstance(kernel, Stream) and kernel.walks_timesteps and kernel.phase == "backward"


def test_update_reads_and_writes_each_weight() -> None:
    for optimiser, passes, scalars in ((Adam(learning_rate=0.1), 7, 1), (Sgd(learning_rate=0.1), 3, 0)):
        graph = network((30, 20, 4), 7, 5, optimiser=optimiser)
        lowered = lower_to_kernels(graph, STRATEGIES["hoisted"], precision="fp16")
        update = [k for k in lowered.kernels if k.phase == "update"]
        assert all(isinstance(k, Stream) for k in update)
        moved = sum(k.bytes_moved for k in update if isinstance(k, Stream))
        assert moved == passes * 4 * (30 * 20 + 20 * 4) + 2 * 4 * scalars  # fp32 weights in every precision


# milliseconds of arXiv 2311.04386's networks on an A100 40 GB, worked out by hand (baselines A with and without host
# wait and in fp32, B, C in TF32 and fp16) with other parameters, 3 us a wave of tiles and 150 ns for every 32 of k,
# which make the small products of a timestep slower than ours; inputs and copies not included
NMNIST, SHD = network((2312, 1466, 1466, 10), 100, 48), network((700, 1461, 1461, 20), 100, 48)
DVS, SHD_WIDE = network((4608, 1466, 1465, 11), 50, 48), network((700, 5874, 5870, 20), 10, 24)
HAND: tuple[tuple[str, Graph, str, Precision, float], ...] = (
    ("nmnist", NMNIST, "as_published", "tf32", 14.7),
    ("nmnist", NMNIST, "as_published_synchronised", "tf32", 17.1),
    ("nmnist", NMNIST, "as_published", "fp32", 24.6),
    ("nmnist", NMNIST, "graph_replay", "tf32", 9.2),
    ("nmnist", NMNIST, "hoisted", "tf32", 1.87),
    ("nmnist", NMNIST, "hoisted", "fp16", 1.07),
    ("shd", SHD, "as_published", "tf32", 11.4),
    ("shd", SHD, "as_published_synchronised", "tf32", 13.8),
    ("shd", SHD, "as_published", "fp32", 20.9),
    ("shd", SHD, "graph_replay", "tf32", 5.9),
    ("shd", SHD, "hoisted", "tf32", 1.41),
    ("shd", SHD, "hoisted", "fp16", 0.80),
    ("dvs", DVS, "as_published", "tf32", 9.1),
    ("dvs", DVS, "as_published_synchronised", "tf32", 10.3),
    ("dvs", DVS, "as_published", "fp32", 14.7),
    ("dvs", DVS, "graph_replay", "tf32", 6.2),
    ("dvs", DVS, "hoisted", "tf32", 1.35),
    ("dvs", DVS, "hoisted", "fp16", 0.83),
    ("shd wide", SHD_WIDE, "as_published", "tf32", 6.7),
    ("shd wide", SHD_WIDE, "as_published_synchronised", "tf32", 6.9),
    ("shd wide", SHD_WIDE, "as_published", "fp32", 8.1),
    ("shd wide", SHD_WIDE, "hoisted", "tf32", 1.48),
    ("shd wide", SHD_WIDE, "hoisted", "fp16", 1.20),
)


@pytest.mark.parametrize(
    ("graph", "strategy", "precision", "milliseconds"),
    [row[1:] for row in HAND],
    ids=[f"{row[0]}-{row[2]}-{row[3]}" for row in HAND],
)
def test_published_networks_on_an_a100(graph: Graph, strategy: str, precision: Precision, milliseconds: float) -> None:
    profile = time_on_gpu(graph, a100(), strategy=strategy, precision=precision)
    assert sum(span.seconds for span in profile.spans) * 1e3 == pytest.approx(milliseconds, rel=0.25)


def test_waiting_host_costs_its_wait_every_timestep() -> None:
    plain, waiting = (
        time_on_gpu(NMNIST, a100(), strategy=name, precision="tf32").seconds_per_training_step
        for name in ("as_published", "as_published_synchronised")
    )
    assert waiting - plain == pytest.approx(2 * 100 * 12e-6)


def test_a_larger_cache_keeps_weights_between_timesteps() -> None:
    graph = NMNIST
    small_cache = time_on_gpu(graph, a100(), strategy="graph_replay", precision="tf32")
    large_cache = time_on_gpu(graph, a100({"memory.l2_bytes": "80 MiB"}), strategy="graph_replay", precision="tf32")
    assert large_cache.seconds_per_training_step < small_cache.seconds_per_training_step
    value = {a.name: a.value for a in large_cache.assumptions}["weights and their gradients"]
    assert "in the L2" in value


@pytest.mark.parametrize("strategy", DENSE)
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_profiles_are_complete(strategy: str, precision: Precision) -> None:
    profile = time_on_gpu(small(), a100(), strategy=strategy, precision=precision)
    assert profile.seconds_low <= profile.seconds_per_training_step <= profile.seconds_high
    if strategy == "hoisted":
        factor = RESIDUALS["GPU training step"].factor
        low, high = (end**factor for end in STRATEGIES[strategy].band[precision])
        assert profile.seconds_low == pytest.approx(low * profile.seconds_per_training_step)
        assert profile.seconds_high == pytest.approx(high * profile.seconds_per_training_step)
    assert profile.bytes_needed < profile.memory_bytes == 40 * 2**30
    assert {span.phase for span in profile.spans} == {"input", "forward", "loss", "backward", "update"}
    assert {span.bound for span in profile.spans} <= {"compute", "memory", "launch", "host"}
    assert all(span.seconds > 0 and span.times > 0 for span in profile.spans)
    assert all(a.kind in SOURCE_KINDS and a.source and a.value for a in profile.assumptions)
    assert any(a.name == "a100.chip.clock_hz" for a in profile.assumptions)


def test_inputs_are_copied_in_the_encoding_of_the_graph_or_dense() -> None:
    machine = a100()
    rates = {"as_published": 12e9, "hoisted": 25e9}
    lists, labels = 7 * 5, 5 * 4
    for strategy, rate in rates.items():
        events = time_on_gpu(small(), machine, strategy=strategy, precision="tf32")
        assert events.host_seconds == pytest.approx((lists * (INPUT_CAPACITY + 1) * 4 + labels) / rate)
        dense = time_on_gpu(small(), machine, strategy=strategy, precision="tf32", input_encoding="dense")
        assert dense.host_seconds == pytest.approx((lists * 30 * 4 + labels) / rate)
        assert "unfold_events" in {span.op for span in events.spans}
        assert "unfold_events" not in {span.op for span in dense.spans}
    plain = small(spikes="dense")
    assert time_on_gpu(plain, machine, strategy="hoisted", precision="tf32").host_seconds == pytest.approx(
        (lists * 30 * 4 + labels) / 25e9
    )
    with pytest.raises(
        MappingError, match=r"input 'input' \[7, 5, 30\] of the graph is dense .*input_encoding 'bits' or 'dense'"
    ):
        time_on_gpu(plain, machine, strategy="hoisted", precision="tf32", input_encoding="events")


@pytest.mark.parametrize("spikes", ["sparse", "dense"])
def test_spikes_can_be_sent_as_bits(spikes: str) -> None:
    """30 neurons are 4 bytes in 7 timesteps of 5 samples; labels are sent as they are."""
    graph = small(spikes=spikes)
    lowered = lower_to_kernels(graph, STRATEGIES["hoisted"], precision="fp32", input_encoding="bits")
    assert lowered.input_bytes == 7 * 5 * 4 + 5 * 4
    unfold = next(kernel for kernel in lowered.kernels if isinstance(kernel, Stream) and kernel.phase == "input")
    assert (unfold.op, unfold.bytes_moved) == ("unfold_bits", 7 * 5 * 4 + 7 * 5 * 30 * 4)
    dense = lower_to_kernels(graph, STRATEGIES["hoisted"], precision="fp32", input_encoding="dense")
    assert lowered.input_bytes < dense.input_bytes


def test_a_copy_longer_than_the_kernels_shows() -> None:
    slow = a100({"host.bytes_per_second": 1e6})
    profile = time_on_gpu(small(), slow, strategy="hoisted", precision="tf32")
    assert profile.seconds_per_training_step == pytest.approx(profile.host_seconds)
    assert profile.seconds_low == pytest.approx(profile.host_seconds)
    assert 0 < profile.host_exposed_seconds < profile.host_seconds


def recurrent() -> Graph:
    """One layer of 6 neurons that reads its own spikes of the timestep before; 4 timesteps, batch 3, 5 inputs."""
    body = builder("forward")
    for name, shape in (("input.now", (3, 5)), ("v.previous", (3, 6)), ("spikes.previous", (3, 6)),
                        ("w.in", (5, 6)), ("w.own", (6, 6))):  # fmt: skip
        body.declare(Value(name=name, shape=shape))
    from_input = body.one("matmul", ("input.now", "w.in"), "current.in", layer="hidden")
    from_self = body.one("matmul", ("spikes.previous", "w.own"), "current.own", layer="hidden")
    current = body.one("add", (from_input, from_self), "current", layer="hidden")
    v = body.one("lif", ("v.previous", current), "v", layer="hidden", attributes=LIF)
    selection = Selection(threshold=1.0, second_threshold=0.9, capacity=6, slope=10.0)
    spikes = body.one("spike", (v,), "spikes", layer="hidden", attributes=selection)
    scan = Scan(
        body=body.graph((v, spikes)), timesteps=4, reverse=False,
        carries=(Carry(enters="v.previous", leaves=v), Carry(enters="spikes.previous", leaves=spikes)),
        slices=(Slice(inside="input.now"),), constants=("w.in", "w.own"), stacked=(spikes,),
    )  # fmt: skip
    outer = builder("forward")
    outer.declare(Value(name="v.start", shape=(3, 6)))
    outer.declare(Value(name="spikes.start", shape=(3, 6)))
    outer.declare(Value(name="input", shape=(4, 3, 5)))
    outer.declare(Value(name="w.in", shape=(5, 6)))
    outer.declare(Value(name="w.own", shape=(6, 6)))
    made = outer.add("scan", ("v.start", "spikes.start", "input", "w.in", "w.own"), "time", attributes=scan)
    return outer.graph(made)


def test_a_recurrence_is_not_hoisted() -> None:
    with pytest.raises(MappingError) as caught:
        time_on_gpu(recurrent(), a100(), strategy="hoisted", precision="tf32")
    message = str(caught.value)
    assert "the matrix product 'current.own' (matmul) of scan 'time' depends on itself" in message
    assert "current.own -> current -> v -> spikes -> spikes.previous -> current.own" in message
    assert "use the strategy 'persistent' or 'graph_replay'" in message
    replayed = time_on_gpu(recurrent(), a100(), strategy="graph_replay", precision="tf32")
    assert [span.op for span in replayed.spans] == ["matmul", "matmul", "add+lif+spike"]
    assert [span.times for span in replayed.spans] == [4, 4, 4]


def test_a_recurrence_stays_in_a_persistent_kernel_and_the_rest_is_hoisted() -> None:
    timed = time_on_gpu(recurrent(), a100(), strategy="persistent", precision="tf32")
    assert [span.op for span in timed.spans] == ["matmul", "matmul+add+lif+spike"]
    assert [span.times for span in timed.spans] == [1, 1]
    assert [(p.m, p.k) for p in products(recurrent(), "persistent")] == [(12, 5)]
    walk = timed.spans[1].seconds
    assert walk > 4 * a100().launch.grid_period_seconds
    replayed = time_on_gpu(recurrent(), a100(), strategy="graph_replay", precision="tf32")
    assert timed.seconds_per_training_step < replayed.seconds_per_training_step


def test_persistent_is_refused_where_nothing_recurs_or_the_weights_do_not_fit() -> None:
    with pytest.raises(MappingError, match=r"no matrix product of scan 'time' depends on itself .* use .* 'hoisted'"):
        time_on_gpu(small(), a100(), strategy="persistent", precision="tf32")
    small_chip = {"chip.streaming_multiprocessors": 10, "chip.shared_memory_bytes": 1, "chip.register_bytes": 1}
    cramped = a100(small_chip)
    with pytest.raises(MappingError, match=r"36 recurrent weights take 144 B and a100 keeps at most 15 B"):
        time_on_gpu(recurrent(), cramped, strategy="persistent", precision="tf32")


def test_without_the_loop_through_itself_the_same_layer_is_hoisted() -> None:
    graph = recurrent()
    op = graph.operations[0]
    scan = op.attributes
    cut = replace(
        scan, carries=scan.carries[:1], slices=(Slice(inside="spikes.previous"), *scan.slices)
    )  # spikes of another layer, read as a sequence
    graph = replace(graph, operations=(replace(op, attributes=cut, outputs=op.outputs[1:]),))
    assert [(p.m, p.k) for p in products(graph, "hoisted")] == [(12, 5), (12, 6)]


def test_levels_count_products_also_across_timesteps() -> None:
    scan = small().scan("forward").attributes
    within = product_levels(scan, across_timesteps=False)
    across = product_levels(scan, across_timesteps=True)
    assert [within[f"v.{layer}"] for layer in ("hidden0", "hidden1", "output")] == [1, 1, 1]
    assert [across[f"v.{layer}"] for layer in ("hidden0", "hidden1", "output")] == [1, 2, 3]


def test_wrong_choices_are_named() -> None:
    with pytest.raises(DescriptionError, match="no such strategy; did you mean 'hoisted'"):
        time_on_gpu(small(), a100(), strategy="hoistd", precision="tf32")
    with pytest.raises(DescriptionError, match="no such precision; did you mean 'fp16'"):
        time_on_gpu(small(), a100(), strategy="hoisted", precision="fp61")  # type: ignore[arg-type]
    with pytest.raises(DescriptionError, match="no such input encoding; did you mean 'dense'"):
        time_on_gpu(small(), a100(), strategy="hoisted", precision="tf32", input_encoding="dens")  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    tiny = a100({"memory.capacity_bytes": "32 KiB"})
    with pytest.raises(
        DoesNotFit, match=r"a100, strategy 'hoisted', tf32: .* needs .* KiB and the device has 32.0 KiB"
    ):
        time_on_gpu(small(), tiny, strategy="hoisted", precision="tf32")


def test_bfloat16_is_timed_as_halves_where_there_is_any() -> None:
    half, bfloat = (time_on_gpu(small(), a100(), strategy="hoisted", precision=one) for one in ("fp16", "bf16"))
    assert replace(bfloat, precision="fp16", assumptions=bfloat.assumptions[1:]) == half
    assert bfloat.precision == "bf16"
    assert bfloat.assumptions[0].name == "bf16"
    tpu, volta = (load_machine(name) for name in ("tpu-v4", "v100"))
    assert isinstance(tpu, GpuMachine)
    assert isinstance(volta, GpuMachine)
    assert time_on_gpu(small(), tpu, strategy="auto", precision="bf16").precision == "bf16"
    with pytest.raises(MappingError, match=r"v100 does not multiply bf16, which came with TF32: use 'fp16'"):
        time_on_gpu(small(), volta, strategy="auto", precision="bf16")
