"""Layers of planes: on tiles as the interpreter means them, their patches and halos, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_execution import execute
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from networks import ADAM, SEEDS, SMALL, compiled, executed, given_values, interpreted, relative_error, small_network
from test_array_lowering import assert_agree

import mimdsim
from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.execution import Executor, initial_weights
from mimdsim.execution.whole_tensors import refusals
from mimdsim.gpu import STRATEGIES, time_on_gpu
from mimdsim.gpu.kernels import Product
from mimdsim.gpu.lower import lower_to_kernels
from mimdsim.graph import SpikingNetwork, inference_graph, interpret, training_graph
from mimdsim.graph.convolution import POOLS, Convolution, Planes, Pool, Window
from mimdsim.graph.layer import Source
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.machine import GpuMachine, load_machine
from mimdsim.workload import MappingOptions, load_workload, network_of
from mimdsim.workload.interchange.layers import network_of_layers

INPUT = Planes(channels=2, height=6, width=6)
PLAIN = Convolution(planes=INPUT, window=Window(kernel=(3, 3)), channels=3)


def after(convolution: Convolution, kernel: int, channels: int, **more: Any) -> Convolution:
    """One that reads what another makes."""
    return Convolution(
        planes=convolution.result,
        window=Window(kernel=(kernel, kernel), **more.pop("window", {})),
        channels=channels,
        **more,
    )


def network_of_planes(*convolutions: Convolution, classes: int = 3, **changes: Any) -> SpikingNetwork:
    """The convolutions in a row, and a layer that reads all of what they make."""
    widths = (convolutions[0].planes.neurons, *(each.result.neurons for each in convolutions), classes)
    shape = {"timesteps": 4, "batch": 3, "spikes": "dense", "gain": 6.0} | changes
    network = small_network(widths, **shape)
    layers = [replace(layer, convolution=each) for layer, each in zip(network.layers, convolutions, strict=False)]
    return replace(network, layers=(*layers, *network.layers[len(layers) :]))


def pooled(kind: str, size: int = 2, **more: Any) -> Pool:
    return Pool(kind=kind, window=Window(kernel=(size, size), **{"stride": (size, size)} | more))


OWN = Window(kernel=(3, 3), padding=(1, 1))
CHAINS = {
    "plain": (PLAIN,),
    "two": (PLAIN, after(PLAIN, 2, 4)),
    "strided": (replace(PLAIN, window=Window(kernel=(3, 2), stride=(2, 1), padding=(1, 1))),),
    "dilated": (replace(PLAIN, window=Window(kernel=(2, 3), dilation=(2, 2), padding=(0, 2))),),
    "taps of padding alone": (replace(PLAIN, window=Window(kernel=(5, 5), stride=(2, 2), padding=(4, 4))),),
    **{f"{kind} after": (replace(PLAIN, after=pooled(kind)),) for kind in POOLS},
    **{f"{kind} before": (PLAIN, after(PLAIN, 2, 4, before=pooled(kind))) for kind in POOLS},
    "of the input": (replace(PLAIN, before=pooled("max"), window=Window(kernel=(2, 2))),),
    "overlapping": (replace(PLAIN, after=pooled("max", 3, stride=(1, 1), padding=(1, 1))),),
    "whole": (PLAIN, after(PLAIN, 3, 5, before=pooled("sum", 2, stride=(1, 1)))),
    "depthwise": (PLAIN, after(PLAIN, 3, 6, groups=3)),
    "two groups": (replace(PLAIN, channels=6, groups=2),),
    "groups, pool before": (PLAIN, after(PLAIN, 2, 6, groups=3, before=pooled("average"))),
    "groups, pool after": (replace(PLAIN, channels=4, groups=2, after=pooled("max")),),
    "groups of one tap": (PLAIN, after(PLAIN, 1, 3, groups=3)),
    "of itself": (replace(PLAIN, own=OWN),),
    "of itself, two": (replace(PLAIN, own=OWN), after(PLAIN, 2, 4)),
    "of itself, max after": (replace(PLAIN, after=pooled("max"), own=OWN),),
    "groups of all places": (PLAIN, after(PLAIN, 4, 6, groups=3)),
}
AS_WHOLE_TENSORS = {name: chain for name, chain in CHAINS.items() if not any(each.own for each in chain)}


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_convolutions_run_on_tiles_as_they_are_meant(chain: tuple[Convolution, ...], delay: int) -> None:
    network = network_of_planes(*chain, delay=delay, optimiser=ADAM, bias=True)
    values = given_values(network, 3)
    expected = interpreted(network, values)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-5
    assert len(np.unique(expected.counts)) > 1
    made = compiled(network)
    found = executed(made, values)
    assert_agree(found, expected)
    if not delay:
        assert_agree(executed(made, values, strict=True), expected)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["traced", "fused"])
def test_every_form_of_dense_timesteps_has_convolutions(form: str) -> None:
    for name in ("two", "max after", "max before"):
        network = network_of_planes(*CHAINS[name], bias=True)
        values = given_values(network, 4)
        found = executed(compiled(network, options=MappingOptions(dense_neurons=form)), values)
        assert_agree(found, interpreted(network, values))


NEURONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "synaptic": ("synaptic", {}, {"reset": "subtract"}),
    "gradients of resets": ("synaptic", {}, {"reset": "subtract", "reset_gradient": "full"}),
    "by emission": ("synaptic", {}, {"reset": "zero", "reset_by": "emission"}),
    "a decay for each channel": ("lif", {"decay": (0.9, 0.8, 0.7)}, {"reset": "subtract"}),
}


@pytest.mark.parametrize("case", NEURONS.values(), ids=NEURONS)
@pytest.mark.parametrize("chain", ["plain", "average after"])
def test_neurons_of_planes(chain: str, case: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    model, constants, how = case
    network = network_of_planes(*CHAINS[chain], bias=True)
    first, *others = network.layers
    neuron = neuron_of(model, constants, **how)
    selection = replace(first.selection, threshold=neuron.threshold)
    network = replace(network, layers=(replace(first, neuron=neuron, selection=selection), *others))
    values = given_values(network, 5)
    expected = interpreted(network, values)
    assert np.abs(expected.gradients["hidden0"]).max() > 1e-6
    assert_agree(executed(compiled(network), values), expected)


def test_layers_without_convolutions_read_planes_side_by_side() -> None:
    """One reads two layers of planes and the input, each with weights of its own."""
    second = after(PLAIN, 2, 4)
    network = network_of_planes(PLAIN, second)
    *hidden, output = network.layers
    names = {"hidden1": second.result.neurons, "hidden0": PLAIN.result.neurons, "input": INPUT.neurons}
    sources = tuple(Source(name=name, neurons=neurons) for name, neurons in names.items())
    network = replace(network, layers=(*hidden, replace(output, sources=sources)))
    values = given_values(network, 6)
    assert_agree(executed(compiled(network), values), interpreted(network, values))


@st.composite
def chains(draw: st.DrawFn, most_groups: int = 1) -> tuple[Convolution, ...]:
    """One or two convolutions of any window that fits, with or without pools."""

    def window(planes: Planes, *, of_pool: bool = False) -> Window:
        kernel = tuple(draw(st.integers(1, min(3, size))) for size in (planes.height, planes.width))
        stride = tuple(draw(st.integers(1, 3)) for _ in kernel)
        padding = tuple(draw(st.integers(0, size // 2 if of_pool else 1)) for size in kernel)
        return Window(kernel=kernel, stride=stride, padding=padding)  # type: ignore[arg-type]

    def pool(planes: Planes) -> Pool | None:
        kind = draw(st.sampled_from(["", "", *POOLS]))
        return Pool(kind=kind, window=window(planes, of_pool=True)) if kind else None

    found: list[Convolution] = []
    planes = Planes(
        channels=draw(st.integers(1, max(3, most_groups))),
        height=draw(st.integers(1, 7)),
        width=draw(st.integers(1, 7)),
    )
    for _ in range(draw(st.integers(1, 2))):
        before = pool(planes)
        read = before.over(planes) if before else planes
        divisors = [each for each in range(most_groups, 0, -1) if planes.channels % each == 0]
        groups = draw(st.sampled_from(divisors)) if most_groups > 1 else 1
        over, made = window(read), groups * draw(st.integers(1, max(1, 4 // groups)))
        plain = Convolution(planes=planes, window=over, channels=made, before=before, groups=groups)
        found.append(replace(plain, after=pool(plain.made)))
        planes = found[-1].result
    return tuple(found)


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_any_convolutions_run_as_they_are_meant(examples: int) -> None:
    @settings(SMALL, max_examples=examples)
    @given(chain=chains(), seed=SEEDS, batch=st.integers(1, 9), tiles=st.integers(3, 30))
    def holds(chain: tuple[Convolution, ...], seed: int, batch: int, tiles: int) -> None:
        network = network_of_planes(*chain, batch=batch, timesteps=3, bias=True)
        values = given_values(network, seed)
        made, expected = compiled(network, tiles=tiles), interpreted(network, values)
        assert_agree(executed(made, values), expected)

    holds()


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_any_groups_run_as_they_are_meant(examples: int) -> None:
    """Also on fewer tiles than there are groups."""

    @settings(SMALL, max_examples=examples)
    @given(chain=chains(most_groups=4), seed=SEEDS, batch=st.integers(1, 9), tiles=st.integers(1, 30))
    def holds(chain: tuple[Convolution, ...], seed: int, batch: int, tiles: int) -> None:
        network = network_of_planes(*chain, batch=batch, timesteps=3, bias=True)
        values = given_values(network, seed)
        expected = interpreted(network, values)
        # where hardly anything fires, errors of samples and timesteps cancel: much of what is left is rounding
        assume(all(not gradient.any() or np.abs(gradient).max() > 1e-6 for gradient in expected.gradients.values()))
        assert_agree(executed(compiled(network, tiles=tiles), values), expected)

    holds()


def test_spikes_are_numbered_with_channels_outermost() -> None:
    """As PyTorch's Flatten orders them."""
    network = network_of_planes(PLAIN, delay=0)
    values, made = given_values(network, 7), compiled(network)
    executor = Executor(made.program)
    executor.write(values.for_program(network))
    executor.run()
    activity = executor.activity(dict.fromkeys(()))
    result = PLAIN.result
    spikes = executor.arrays["spikes.hidden0.sequence"].reshape(4, 3, result.positions, result.channels)
    for t, sample in np.ndindex(4, 3):
        count = activity.counts["hidden0"][t, sample, 0]
        expected = np.flatnonzero(spikes[t, sample].T)
        np.testing.assert_array_equal(activity.ids["hidden0"][t, sample, :count], expected)
        assert count == len(expected)


def test_inference_and_frozen_convolutions() -> None:
    network = network_of_planes(*CHAINS["max before"], bias=True)
    values = given_values(network, 8)
    scores = interpret(inference_graph(network), values.for_graph(network))["counts"]
    np.testing.assert_array_equal(scores, interpreted(network, values).counts)
    frozen = replace(network, frozen=("w.hidden0", "b.hidden0"))
    found, expected = executed(compiled(frozen), values).gradients, interpreted(network, values).gradients
    assert found.keys() == {"hidden1", "b.hidden1", "output", "b.output"}
    for name, gradient in found.items():
        assert relative_error(gradient, expected[name]) < 1e-5


REFUSED: dict[str, tuple[Any, str]] = {
    "lists": (lambda: compiled(network_of_planes(PLAIN, spikes="sparse")), 'set network.spikes = "dense"'),
    "last": (
        lambda: replace(network_of_planes(PLAIN), layers=network_of_planes(PLAIN).layers[:1]),
        "let a layer without a convolution read them",
    ),
    "window": (lambda: after(PLAIN, 5, 2), "a window of 5 x 5 .* is larger than planes of 4 x 4"),
    "kind": (lambda: pooled("median"), "pool 'median' is not a valid choice"),
    "padding": (lambda: pooled("max", 2, padding=(2, 2)), "at most half of it is padding"),
    "dilation": (lambda: pooled("max", 2, dilation=(2, 2)), "neighbours in a pool are next to each other"),
    "groups read": (lambda: replace(PLAIN, channels=6, groups=3), "groups = 3 do not divide the 2 channels .* reads"),
    "groups made": (lambda: replace(PLAIN, groups=2), "groups = 2 do not divide the 3 channels .* makes evenly"),
    "no groups": (lambda: replace(PLAIN, groups=0), "groups = 0 do not divide"),
    "zero": (lambda: Window(kernel=(0, 1)), "kernel .* at least 1 is needed"),
    "recurrence": (lambda: network_of_planes(PLAIN, recurrence="all_to_all"), "has no such synapses onto itself"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_what_no_convolution_can_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(MappingError, match=message):
        make()


def test_planes_must_be_those_that_are_read() -> None:
    other = Convolution(planes=Planes(channels=3, height=2, width=8), window=Window(kernel=(1, 1)), channels=2)
    with pytest.raises(MappingError, match="reads planes of 3 x 2 x 8 from 'hidden0', which has 3 x 4 x 4"):
        network_of_planes(PLAIN, other)
    with pytest.raises(MappingError, match=r"layer 'hidden0' has 7 neurons; planes of 3 x 4 x 4 are 48"):
        replace(network_of_planes(PLAIN).layers[0], neurons=7)


@pytest.mark.first(2)
@pytest.mark.parametrize("strategy", sorted(name for name, each in STRATEGIES.items() if not each.lists))
@pytest.mark.parametrize(
    "chain", ["two", "strided", "max after", "sum before", "depthwise", "two groups", "of itself, max after"]
)
def test_every_gpu_strategy_does_what_convolutions_mean(chain: str, strategy: str) -> None:
    network = network_of_planes(*CHAINS[chain])
    own, at_once = chain == "of itself, max after", ("hoisted", "scan")
    if strategy == "persistent" or (own and strategy in at_once):
        why = "nothing to keep on the chip" if not own else "depends on itself through the timesteps"
        with pytest.raises(MappingError, match=why):
            lower_to_kernels(training_graph(network), STRATEGIES[strategy], precision="fp32")
        return
    graph, inputs = training_graph(network), given_values(network, 4, dtype=np.float64).for_graph(network)
    meant, made = interpret(graph, inputs), execute(graph, inputs, strategy=strategy)
    for value in graph.outputs:
        assert relative_error(np.asarray(made[value]), np.asarray(meant[value])) < 1e-12, value


def test_a_convolution_on_a_gpu_is_one_product_that_gathers_its_patches() -> None:
    """Implicit GEMM: nothing is unfolded in memory, and the gradient of the planes is a product over the places."""
    second = after(PLAIN, 2, 4)
    network = network_of_planes(PLAIN, second, timesteps=5, batch=3)
    program = lower_to_kernels(training_graph(network), STRATEGIES["hoisted"], precision="fp32")
    products = {kernel.name.split(".", 1)[1]: kernel for kernel in program.kernels if isinstance(kernel, Product)}
    forward, weights, planes, last = (
        products[name]
        for name in ("current.hidden1", "backward.hidden1.dw_now", "backward.hidden1.d_input", "current.output")
    )
    assert (forward.m, forward.n, forward.k) == (5 * 3 * 3 * 3, 4, 3 * 2 * 2)  # 3 x 3 places, windows of 2 x 2
    assert (weights.m, weights.n, weights.k) == (12, 4, 5 * 3 * 9)
    for product, what in ((forward, "forward"), (weights, "weight gradient"), (planes, "input gradient")):
        found = product.convolution
        assert found is not None
        assert (found.what, found.samples, found.channels) == (what, 5 * 3, 4)
        assert (found.patches.planes, found.patches.window) == (second.planes, second.window)
    assert last.convolution is None  # reads all there is
    kinds = {kind for kernel in program.kernels for kind in kernel.op.split("+")}
    assert not kinds & {"unfold", "fold"}


def test_kernels_over_own_spikes_run_as_programs_and_stay_out_of_files() -> None:
    network = network_of_planes(*CHAINS["of itself"])
    assert "a kernel over its own spikes does not run as whole tensors" in refusals(network)[0]
    weights = initial_weights(network, 1, 1.0, 0.0)
    assert 0.5 * 0.2 * (6 / 27) ** 0.5 < np.abs(weights["r.hidden0"]).max() <= 0.2 * (6 / 27) ** 0.5
    with pytest.raises(MimdsimError, match="a kernel over a layer's own spikes is not written to files"):
        network_of_layers(network, weights, 1e-3)


def test_groups_on_a_gpu_are_called_a_guess() -> None:
    gpu = load_machine("a100")
    assert isinstance(gpu, GpuMachine)
    for chain, said in (("two", False), ("depthwise", True)):
        graph = training_graph(network_of_planes(*CHAINS[chain]))
        profile = time_on_gpu(graph, gpu, strategy="hoisted", precision="fp16")
        assert said == any("guess" in each.source for each in profile.assumptions if "groups" in each.name)


DESCRIBED = """
title = "planes"
[data]
source = "random"
inputs = 72
classes = 3
timesteps = 4
input_capacity = 40
activity = 0.3
train_samples = 4
test_samples = 4
[network]
hidden = [12, 8]
spikes = "dense"
bias = true
[network.convolutions.hidden0]
channels = 3
kernel = 3
planes = [2, 6, 6]
pool = { kind = "average", size = 2 }
[network.convolutions.hidden1]
channels = 8
kernel = [2, 2]
[training]
batch = 2
learning_rate = 0.01
max_training_steps = 2
"""


@pytest.fixture
def described(tmp_path: Path) -> Path:
    path = tmp_path / "planes.toml"
    path.write_text(DESCRIBED)
    return path


@pytest.mark.slow
def test_a_description_of_convolutions_runs(described: Path) -> None:
    workload = load_workload(described)
    first, second, output = network_of(workload).layers
    assert first.convolution == Convolution(
        planes=INPUT,
        window=Window(kernel=(3, 3)),
        channels=3,
        after=Pool(kind="average", window=Window(kernel=(2, 2), stride=(2, 2))),
    )
    assert second.positions == 1
    assert second.parameters[0].shape == (12, 8)
    assert output.convolution is None
    run = mimdsim.run(workload.with_({"network.convolutions.hidden0.own_kernel": [1, 3]}), "mk2")
    assert run.gradients["hidden0"].shape == (18, 3)
    assert run.gradients["hidden0.recurrent"].shape == (9, 3)
    assert run.gradients["hidden0.bias"].shape == (1, 3)
    assert run.cycles > 0


BAD_KEYS = {
    "network.convolutions.hidden1.groups": (2, "network.convolutions.hidden1: groups = 2 do not divide the 3 channels"),
    "network.hidden": ([13, 8], r"its convolution makes planes of 3 x 2 x 2, 12 neurons; network.hidden\[0\] must be"),
    "network.convolutions.hidden0.planes": ([2, 6, 5], "planes of 2 x 6 x 5 are 60 inputs, the data have 72"),
    "network.convolutions.hidden1.planes": ([3, 2, 2], "planes are those of the layer that it reads; leave them out"),
    "network.convolutions.hidden1.kernel": (3, "network.convolutions.hidden1: a window of 3 x 3"),
    "network.convolutions.hidden0.kernel": (0, "at least 1 is needed"),
    "network.convolutions.hidden7.kernel": (2, "hidden7"),
    "network.convolutions.hidden0.pool.kind": ("median", "network.convolutions.hidden0.pool.kind"),
    "network.convolutions.hidden0.stride": ([1, 2, 3], "network.convolutions.hidden0.stride"),
    "network.spikes": ("sparse", 'set network.spikes = "dense"'),
    "network.recurrence": ("all_to_all", "has no such synapses onto itself: .*nearest: own_kernel"),
    "network.convolutions.hidden0.own_kernel": (
        [3, 2],
        "its own spikes makes planes of 3 x 2 x 3, and it has 3 x 2 x 2",
    ),
}


@pytest.mark.parametrize(("key", "value", "message"), [(key, *each) for key, each in BAD_KEYS.items()], ids=BAD_KEYS)
def test_descriptions_of_what_no_convolution_can_be_are_refused(
    described: Path, key: str, value: Any, message: str
) -> None:
    changes = {key: value} | ({"network.activity": 0.5} if key == "network.spikes" else {})
    with pytest.raises(MimdsimError, match=message):
        network_of(load_workload(described, changes))


def test_planes_of_the_input_are_those_of_the_sensor(described: Path) -> None:
    """Of a source without pixels they have to be said."""
    text = DESCRIBED.replace("planes = [2, 6, 6]\n", "")
    described.write_text(text)
    with pytest.raises(MappingError, match=r"source 'random' has no pixels; give planes = \[channels, height, width\]"):
        network_of(load_workload(described))
    pixels = text.replace('source = "random"\ninputs = 72\nclasses = 3\n', 'source = "nmnist"\ngrid = 6\n')
    described.write_text(pixels.replace("activity = 0.3\n", ""))
    convolution = network_of(load_workload(described)).layers[0].convolution
    assert convolution is not None
    assert convolution.planes == INPUT


@pytest.mark.slow
def test_a_mapping_of_convolutions_is_checked(described: Path) -> None:
    """In every draw, strictly; sums whose terms cancel are held against these terms."""
    pools = {
        "network.convolutions.hidden0.pool": {"kind": "max", "size": 2},
        "network.convolutions.hidden1.pool_before": {"kind": "sum", "size": 2, "stride": 1},
        "network.convolutions.hidden1.kernel": 1,
    }
    groups = {
        "network.hidden": [16, 8],
        "network.convolutions.hidden0.channels": 4,
        "network.convolutions.hidden0.groups": 2,
        "network.convolutions.hidden1.groups": 4,
    }
    own = {"network.convolutions.hidden0.own_kernel": 3, "network.convolutions.hidden1.own_kernel": 1}
    for changes in (own, pools, groups, {"network.dropout": 0.5, "network.dropout_per": "sequence"}):
        workload = load_workload(described, changes)
        machine = load_machine("tiny", {"chip.tiles": 16})
        found = mimdsim.check(workload, machine, strict=True).findings
        assert all(each.passed and not each.warning for each in found), [each.text for each in found]
        assert "7 draws" in next(each.text for each in found if each.name == "values")


def test_spikes_that_are_passed_on_are_counted_too(described: Path) -> None:
    """Nothing of hidden0 is kept for the backward pass but what the pool makes of its spikes."""
    pool = {"kind": "sum", "size": 2, "stride": 1}
    changes: dict[str, Any] = {"network.convolutions.hidden1.pool_before": pool, "data.timesteps": 12}
    changes |= {"network.convolutions.hidden1.kernel": 1}
    workload = load_workload(
        described,
        changes
        | {"training.initial_activity": 0.1, "training.initial_activity_tolerance": 0.9, "training.weight_offset": 0.2},
    )
    run = mimdsim.run(workload, "tiny", gpus=())
    assert "hidden0" in {each.layer for each in run.profile.activity}
    shares = {each.layer: np.mean(each.spikes_by_timestep) / each.neurons for each in run.profile.activity}
    assert shares["hidden0"] > 0.02
