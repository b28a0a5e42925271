"""Layers that read several others, the input, or a layer after them: on tiles and as whole tensors as it is meant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_execution import execute as execute_on_gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import (
    ADAM,
    MAPPINGS,
    SEEDS,
    SMALL,
    assert_same_bits,
    central_difference,
    compiled,
    executed,
    given_values,
    interpreted,
    networks,
    relative_error,
    small_network,
)
from nir_models import DT, NodeByNode
from test_array_lowering import assert_agree as assert_dense_agree
from test_batch_norm import drawn
from test_batch_norm import on_tiles as sequences_on_tiles
from test_chips import compiled as compiled_on_chips
from test_convolutions import network_of_planes
from test_gpu_execution import assert_same_training_step
from test_stash import assert_policy
from test_timing import ISSUE, slow_cycles
from test_whole_tensors import assert_as_meant
from test_whole_tensors_dense import assert_as_meant as assert_dense_as_meant
from test_wiring import assert_agrees

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.compiler.memory_report import remedies
from mimdsim.execution import initial_weights
from mimdsim.execution.whole_tensors import WholeTensors
from mimdsim.graph import SpikingNetwork, interpret, training_graph
from mimdsim.graph.convolution import Convolution, Planes, Pool, Window
from mimdsim.graph.names import aged, random_name
from mimdsim.graph.network import INPUT
from mimdsim.graph.norms import BatchNorm
from mimdsim.graph.sources import ADD, Source, source_of
from mimdsim.pipeline.findings import input_distances
from mimdsim.timing.worker_cycles import program_loads
from mimdsim.workload import MappingOptions, filled_activity, load_workload, network_of
from mimdsim.workload.interchange.layers import network_of_layers
from mimdsim.workload.interchange.nir_writing import nir_of_network

SKIP = {"hidden1": ("hidden0", "input"), "output": ("hidden1", "hidden0")}
FEEDBACK = {"hidden0": ("input", "hidden1"), "hidden1": ("hidden0", "output")}
POPULATIONS = {"hidden0": ("input", "hidden1"), "hidden1": ("hidden0", "input"), "output": ("hidden0",)}  # E and I
PARALLEL = {"hidden1": ("input",), "output": ("hidden0", "hidden1")}
AGES = {"hidden1": ("hidden0@t-1", "input"), "output": ("hidden1@t", "hidden0@t-1")}
GRAPHS = {"skip": SKIP, "feedback": FEEDBACK, "populations": POPULATIONS, "parallel": PARALLEL, "ages": AGES}


def reading(
    network: SpikingNetwork, sources: dict[str, tuple[str, ...]], **convolutions: Convolution
) -> SpikingNetwork:
    """The network with layers that read `sources`, as written in a workload, some by other convolutions."""
    widths = {INPUT: network.inputs} | {layer.name: layer.neurons for layer in network.layers}
    layers = tuple(
        replace(
            layer,
            inputs=source_of(sources[layer.name][0]).sized(widths, network.planes_of).neurons,
            sources=tuple(source_of(each).sized(widths, network.planes_of) for each in sources[layer.name]),
            convolution=convolutions.get(layer.name, layer.convolution),
        )
        if layer.name in sources
        else layer
        for layer in network.layers
    )
    return replace(network, layers=layers)


def network_reading(sources: dict[str, tuple[str, ...]], **changes: object) -> SpikingNetwork:
    """Three layers that all fire; capacities below the widths so that spikes are dropped."""
    shape = {"timesteps": 5, "batch": 3, "gain": 20.0, "capacities": (6, 4, 3), "reset_gradient": "mask"} | changes
    widths = shape.pop("widths", (9, 8, 6, 4))
    return reading(small_network(widths, **shape), sources)  # type: ignore[arg-type]


@pytest.mark.first(2)
@pytest.mark.parametrize("exchange", ["ids", "dense"])
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_every_graph_of_layers_runs_on_tiles_as_it_is_meant(
    sources: dict[str, tuple[str, ...]], delay: int, exchange: str
) -> None:
    network = network_reading(sources, delay=delay, optimiser=ADAM)
    values = given_values(network, 3)
    expected = interpreted(network, values)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-6
    made = compiled(network, options=MappingOptions(spike_exchange=exchange))
    found = executed(made, values)
    assert_agrees(found, expected)
    if exchange == "ids" and delay == 0:
        assert_same_bits(executed(made, values, strict=True), found)


def test_more_samples_than_tiles() -> None:
    """Gradients of the loss lie by samples, several on a tile, where those of layers that read the output are added."""
    network = network_reading(FEEDBACK, optimiser=ADAM, batch=20)
    values = given_values(network, 3)
    assert_agrees(executed(compiled(network, tiles=8), values), interpreted(network, values))


@st.composite
def any_graph(draw: st.DrawFn) -> SpikingNetwork:
    """Every layer reads what it likes, itself too; one that nobody reads is read by the output layer."""
    network = draw(networks())
    names = [layer.name for layer in network.layers]
    sources = {}
    for index, name in enumerate(names):
        before = (INPUT, *names)[index]
        others = [one for one in (INPUT, *names) if one not in (name, before)]
        sources[name] = (before, *draw(st.lists(st.sampled_from(others), unique=True, max_size=2)))
    network = reading(network, sources)
    recurrence = st.sampled_from(["none", "none", "one_to_one", "all_to_all"])
    layers = tuple(replace(layer, recurrence=draw(recurrence), bias=draw(st.booleans())) for layer in network.layers)
    return replace(network, layers=layers, delay=draw(st.sampled_from([0, 1])))


@st.composite
def any_ages(draw: st.DrawFn) -> SpikingNetwork:
    """A graph of layers as `any_graph` draws it, of which each reads its sources at one age or two."""
    network = replace(draw(any_graph()), timesteps=5)
    layers, names = [], [layer.name for layer in network.layers]
    for index, layer in enumerate(network.layers):
        sources: list[Source] = []
        for each in network.sources(layer):
            later = int(each.name in names[index:])
            ages = draw(st.lists(st.integers(later, 4), unique=True, min_size=1, max_size=2))
            sources += (replace(each, lag=age) for age in ages)
        layers.append(replace(layer, sources=tuple(sources)))
    return replace(network, layers=tuple(layers))


@pytest.mark.slow
@settings(SMALL, max_examples=50)
@given(network=st.one_of(any_graph(), any_ages()), options=MAPPINGS, seed=SEEDS)
def test_whatever_a_layer_reads_execution_is_interpretation(
    network: SpikingNetwork, options: MappingOptions, seed: int
) -> None:
    values, made = given_values(network, seed), compiled(network, options=options)
    assert_agrees(executed(made, values), interpreted(network, values))


@pytest.mark.parametrize("stash", ["carry", "every:2"])
@pytest.mark.parametrize("delay", [0, 1])
def test_what_is_made_anew_reads_all_sources(delay: int, stash: str) -> None:
    for sources in (SKIP, POPULATIONS):
        assert_policy(network_reading(sources, timesteps=6, delay=delay), stash)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("delay", [0, 1])
def test_copies_and_parts_of_layers_with_several_sources(delay: int, inputs: int) -> None:
    network = network_reading(SKIP, delay=delay)
    split = {layer.name: {"batch": 3, "neurons": 2, "inputs": inputs} for layer in network.layers}
    values = given_values(network, 3)
    found = executed(compiled(network, tiles=48, options=MappingOptions(split=split)), values)
    assert_agrees(found, interpreted(network, values))


@pytest.mark.first(2)
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_layers_with_several_sources_on_two_chips(sources: dict[str, tuple[str, ...]]) -> None:
    network = network_reading(sources, widths=(12, 10, 8, 4))
    made = compiled_on_chips(network, 3, 6, neurons_per_tile=2)
    assert made.placement.chips == 2
    values = given_values(network, 3)
    assert_agrees(executed(made, values), interpreted(network, values))


@pytest.mark.slow
def test_cycles_of_all_sources_are_counted_as_recorded() -> None:
    network = network_reading(POPULATIONS)
    program, activity = compiled(network).program, filled_activity(network, 0.5)
    loads = program_loads(program, activity, ISSUE)
    assert [load.cycles_by_execution[:, 0].tolist() for load in loads] == slow_cycles(program, activity, ISSUE)


@pytest.mark.slow
@pytest.mark.first(2)
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_dense_spikes_of_several_sources(sources: dict[str, tuple[str, ...]], delay: int) -> None:
    network = network_reading(sources, spikes="dense", capacities=None, delay=delay)
    values = given_values(network, 3)
    assert_dense_agree(executed(compiled(network), values), interpreted(network, values))


@pytest.mark.parametrize("strategy", ["as_published", "hoisted", "persistent"])
def test_gpu_kernels_take_all_sources(strategy: str) -> None:
    network = network_reading(SKIP, spikes="dense", capacities=None, delay=0)
    assert_same_training_step(network, strategy, 3)


@pytest.mark.slow
@pytest.mark.first(2)
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_whole_tensors_take_all_sources(sources: dict[str, tuple[str, ...]], delay: int) -> None:
    network = network_reading(sources, delay=delay, optimiser=ADAM)
    assert_as_meant(network)
    assert_dense_as_meant(replace(network, spikes="dense"))


SUMS = {
    "residual stream": {"hidden2": ("hidden0 + hidden1",), "output": ("hidden0 + hidden1 + hidden2",)},
    "and more": {"hidden1": ("hidden0 + input",), "output": ("hidden1 + hidden2", "hidden2 + hidden0", "hidden0")},
    "ages": {"hidden1": ("hidden0@t-1 + hidden0@t-3", "input"), "output": ("hidden2@t + hidden1@t-1",)},
    "feedback": {"hidden0": ("input", "hidden1 + hidden2"), "output": ("hidden2 + hidden0",)},
    "AND, IAND": {"hidden2": ("hidden0 * hidden1",), "output": ("hidden2 * (1 - hidden0 * hidden1) + hidden1@t-1",)},
    "a product of a sum": {"hidden2": ("hidden1", "(hidden0 + hidden1) * (1 - input)")},
    "side by side": {"hidden1": ("concat(hidden0, input)",), "output": ("concat(hidden2, hidden0 + hidden1@t-1)",)},
}


def network_of_sums(sources: dict[str, tuple[str, ...]], **changes: object) -> SpikingNetwork:
    shape = {"widths": (8, 8, 8, 8, 4), "spikes": "dense", "capacities": None} | changes
    return network_reading(sources, **shape)


@pytest.mark.parametrize("recurrence", ["none", "all_to_all"])
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("sources", SUMS.values(), ids=SUMS)
def test_sums_of_spikes_run_on_tiles_as_they_are_meant(
    sources: dict[str, tuple[str, ...]], delay: int, recurrence: str
) -> None:
    network = network_of_sums(sources, delay=delay, recurrence=recurrence, reset_gradient="full")
    values = given_values(network, 7)
    expected = interpreted(network, values)
    assert min(np.abs(gradient).max() for gradient in expected.gradients.values()) > 1e-6
    for form in ("calls", "fused", "traced"):
        if form == "traced" and network.oldest_age > 1:
            continue
        found = executed(compiled(network, options=MappingOptions(dense_neurons=form)), values)
        assert_dense_agree(found, expected)
    assert_dense_agree(executed(compiled(network), values, strict=True), expected)


def combined(sign: str, terms: list[str]) -> str:
    if sign == "concat":
        return f"concat({', '.join(terms)})"
    text = sign.join(terms)
    return text + ")" * (text.count("(") - text.count(")"))


@st.composite
def any_sums(draw: st.DrawFn) -> SpikingNetwork:
    """Every layer reads one or two sums, products or concatenations of what it likes."""
    network, dropout = network_of_sums({}, delay=draw(st.sampled_from([0, 1]))), draw(st.sampled_from([0.0, 0.4]))
    names, sources = [layer.name for layer in network.layers], {}
    for index, name in enumerate(names):
        known = [*((one, 0) for one in (INPUT, *names[:index])), *((one, 1) for one in names[:-1] if one != name)]
        terms = [f"{one}@t-{age}" if age else f"{one}@t" for one, age in known]
        signs = st.sampled_from([" + ", " * ", " * (1 - ", " + 1 - ", "concat"])
        several = st.lists(st.sampled_from(terms), unique=True, min_size=1, max_size=3).map(sorted)
        every = st.tuples(signs, several).map(lambda drawn: combined(*drawn))
        before = f"{(INPUT, *names)[index]}@t"
        sources[name] = tuple(dict.fromkeys([before, *draw(st.lists(every, max_size=2))]))
    network = replace(network, layers=tuple(replace(layer, dropout=dropout) for layer in network.layers))
    return reading(network, sources)


@pytest.mark.parametrize("examples", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_any_sums_run_as_they_are_meant(examples: int) -> None:
    @settings(SMALL, max_examples=examples)
    @given(network=any_sums(), seed=SEEDS)
    def holds(network: SpikingNetwork, seed: int) -> None:
        values = given_values(network, seed)
        for layer in network.layers if network.layers[0].dropout else ():
            values.arrays[random_name(layer.name)] = np.random.default_rng(seed).integers(0, 1 << 32, network.batch)
        assert_dense_agree(executed(compiled(network), values), interpreted(network, values))

    holds()


def test_planes_of_one_pixel_beside_neurons_are_neurons() -> None:
    """Dropout of planes would take them for wider ones."""
    known = {"hidden0": Planes(channels=8, height=1, width=1), "hidden1": Planes(channels=3, height=1, width=1)}
    assert source_of("concat(hidden0, hidden1)").planes(known.get) == Planes(channels=11, height=1, width=1)
    assert source_of("concat(hidden0, hidden2)").planes(known.get) is None
    assert source_of("concat(hidden2, hidden0)").planes(known.get) is None


@pytest.mark.parametrize("delay", [0, 1])
def test_a_sum_is_read_as_its_terms_with_the_same_weights(delay: int) -> None:
    """The same spikes; the gradient is the sum of those of the terms."""
    together, apart = {"output": ("hidden2 + hidden0@t-1",)}, {"output": ("hidden2", "hidden0@t-1")}
    one, other = (network_of_sums(each, delay=delay) for each in (together, apart))
    values = given_values(one, 3, dtype=np.float64)
    arrays = values.arrays | {"w.output.from.hidden0": values.arrays["w.output"]}
    found, expected = interpreted(one, values), interpreted(other, replace(values, arrays=arrays))
    np.testing.assert_array_equal(found.counts, expected.counts)
    gradients = expected.gradients
    gradients["output"] = gradients["output"] + gradients.pop("output.from.hidden0")
    for name, gradient in gradients.items():
        np.testing.assert_allclose(found.gradients[name], gradient, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("norm", [None, BatchNorm(per="sequence", epsilon=2.0**-10)])
@pytest.mark.parametrize("sources", [SUMS["residual stream"], SUMS["and more"]], ids=["residual stream", "and more"])
def test_gradients_through_sums_are_those_of_finite_differences(
    sources: dict[str, tuple[str, ...]], norm: BatchNorm | None
) -> None:
    network = network_of_sums(sources, smooth=True, gain=0.3, delay=0)
    network = replace(network, layers=tuple(replace(layer, norm=norm) for layer in network.layers))
    graph, inputs = training_graph(network), given_values(network, 3, dyadic=False, dtype=np.float64).for_graph(network)
    found = interpret(graph, inputs)
    for name, parameter in network.trained.items():
        place = (1 % parameter.shape[0], 2)
        expected = central_difference(graph, inputs, name, place)
        assert found[f"gradient.{name}"][place] == pytest.approx(expected, rel=1e-4, abs=1e-9), name


@pytest.mark.parametrize("strategy", ["as_published", "hoisted", "persistent"])
@pytest.mark.parametrize("sources", SUMS.values(), ids=SUMS)
def test_gpu_kernels_add_spikes(sources: dict[str, tuple[str, ...]], strategy: str) -> None:
    if strategy != "hoisted" or sources is not SUMS["feedback"]:
        assert_same_training_step(network_of_sums(sources, delay=0), strategy, 3)


PLANES = Convolution(
    planes=Planes(channels=2, height=4, width=4), window=Window(kernel=(3, 3), padding=(1, 1)), channels=2
)
POOL = Pool(kind="max", window=Window(kernel=(2, 2), stride=(2, 2)))


RESIDUAL = {  # how blocks are connected, and the last of them is pooled
    "ADD": (("hidden0 + hidden1", "hidden0 + hidden1 + hidden2", "hidden0 + hidden2"), POOL),
    "AND": (("hidden0 + hidden0 * hidden1", "hidden0 * (hidden1 + hidden2)", "hidden0 + hidden0 * hidden2"), POOL),
    "IAND": (("hidden0 * (1 - hidden1)", "hidden0 * (1 - hidden1) * (1 - hidden2)", "1 - hidden2"), POOL),
    "pools": (
        ("hidden0 * (1 - max_pool(hidden1, 3, 1, 1))", "max_pool(hidden0, 2) + average_pool(hidden1 * hidden2, 2x2)",
         "max_pool(hidden0 + hidden2, 1x2, 2, 0x1)"), None,
    ),
    "by head": (
        ("matmul_nn(matmul_nt(hidden0, hidden1, 2), hidden0, 2)",
         "0.5 * matmul_nn(hidden0, matmul_tn(hidden1, hidden2, 1), 1)",
         "0.25 * matmul_nn(matmul_nt(hidden0 + hidden2, hidden1, 1), 1 - hidden2, 1)"), POOL,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("connected", RESIDUAL.values(), ids=RESIDUAL)
@pytest.mark.parametrize("per", ["", "timestep", "sequence"])
def test_sums_and_products_of_planes(per: str, connected: tuple[tuple[str, str, str], Pool | None]) -> None:
    """Two residual blocks, pooled before the last convolution, or in what it reads; the read-out flattens both."""
    (two, three, output), pool = connected
    last = replace(PLANES, channels=3, before=POOL)
    network = network_of_planes(PLANES, PLANES, PLANES, last, delay=0)
    if pool is None:
        last = replace(last, before=None, planes=last.read)
    sources = {"hidden2": (two,), "hidden3": (three,), "output": ("hidden3", output)}
    network = reading(network, sources, hidden3=last)
    norm = BatchNorm(per=per, epsilon=2.0**-10) if per else None
    network = replace(network, layers=tuple(replace(layer, norm=norm) for layer in network.layers))
    values = drawn(network, 7)
    graph, inputs = training_graph(network), values.for_graph(network)
    expected = interpret(graph, inputs)
    assert min(np.abs(expected[f"gradient.{name}"]).max() for name in network.trained) > 1e-6
    found = execute_on_gpu(graph, inputs, strategy="hoisted")
    for name in graph.outputs:
        assert relative_error(np.asarray(found[name]), np.asarray(expected[name])) < 1e-12, name
    if per:
        on_tiles = sequences_on_tiles(network, values)
        assert {f"gradient.{name}" for name in network.trained} <= on_tiles.keys()
        for name in on_tiles.keys() & expected.keys() - {"loss"}:
            assert relative_error(on_tiles[name], np.asarray(expected[name])) < 1e-5, name
    else:
        values = given_values(network, 7)
        assert_dense_agree(executed(compiled(network), values), interpreted(network, values))


@pytest.mark.parametrize(("tiles", "of_products"), [(4, 2), (64, 6)])
def test_each_head_of_a_sample_gets_its_rows_of_both(tiles: int, of_products: int) -> None:
    """Three samples of 16 pixels and two heads of one channel each: scores of 16 x 16, on tiles of their own if there
    are enough."""
    network = network_of_planes(PLANES, PLANES, PLANES, delay=0)
    scores = replace(PLANES, planes=Planes(channels=32, height=4, width=4))
    network = reading(network, {"hidden2": ("matmul_nt(hidden0, hidden1, 2)",)}, hidden2=scores)
    supersteps = (each for each, *_ in compiled(network, tiles=tiles).program.supersteps())
    (table,) = next(each for each in supersteps if each.name.startswith("multiply matmul_nt")).tables
    assert len(np.unique(table.tiles)) == of_products
    names = ("row_start", "weight_start", "start", "inner_start")
    every = zip(*(table.columns[name].tolist() for name in names), strict=True)
    assert sorted(every) == [(16 * b, 16 * b, 16 * h, h) for b in range(3) for h in range(2)]
    assert set(table.columns["row_stop"] - table.columns["row_start"]) == {16}


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ({"output": ("hidden2 + hidden2",)}, "layer 'output' reads 'hidden2@t-1' twice"),
        ({"output": ("hidden2 + hidden1", "hidden2 + hidden1")}, "reads 'hidden2@t-1.hidden1@t-1' twice; name each"),
        ({"output": ("hidden2 + output",)}, "layer 'output' cannot read 'output'"),
        ({"output": ("hidden2 + hidden3",)}, "layer 'output' has 8 inputs from 'hidden3', which has 6"),
    ],
)
def test_sums_of_no_spikes_are_refused(sources: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(MappingError, match=said):
        network_of_sums(sources, widths=(8, 8, 8, 8, 6, 4))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1-a*b", "1 - a * b"),
        ("(1-a)*b@t-2", "(1 - a) * b@t-2"),
        ("a + (b*(c+input@t))", "a + b * (c + input@t)"),
        ("max_pool(a+b, 3, 2, 1)*c", "max_pool(a + b, 3, 2, 1) * c"),
        ("average_pool( a,1x3 )", "average_pool(a, 1x3, 1x3, 0)"),
        ("0.5*(a + b) + c", "(0.5 * (a + b)) + c"),
        ("0.125*matmul_nn(matmul_nt(q, k, 2), 1-v, 2)", "0.125 * matmul_nn(matmul_nt(q, k, 2), 1 - v, 2)"),
    ],
)
def test_combinations_are_written_as_they_are_read(text: str, written: str) -> None:
    source = source_of(text)
    assert source.text(lambda each: each.name if each.lag is None else aged(each.name, each.lag)) == written
    assert source_of(written) == source


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a +", "'' is no source in 'a .'"),
        ("a b", "'b' is no source in 'a b'"),
        ("2 - a", "'-' is no source"),
        ("max_pool(a)", "'[)]' is no source"),
        ("max_pool(a, 2, 2, 0, 1)", "'[)]' is no source"),
        ("max_pool(a, b)", "'b' is no source"),
        ("max_pool(a, 0)", "a window with kernel"),
        ("matmul_nn(a, 2)", "'[)]' is no source"),
        ("matmul_nt(a, b)", "'[)]' is no source"),
        ("matmul_nt(a, b, 2x3)", "'2x3' is no source"),
        ("0 * a", "'0' is no source"),
        ("1e999 * a", "'1e999' is no source"),
        ("a@t+2", "'2' is no source|no layer"),
        ("a@now", "'a@now' is no source; write 'a', 'a@t' or, of spikes 3 timesteps old, 'a@t-3'"),
        ("(" * 99 + "a", "has more than 50 brackets in each other"),
        ("1 - " * 5000 + "a", "has more than 50 brackets in each other"),
    ],
)
def test_text_that_is_no_source_is_refused(text: str, said: str) -> None:
    with pytest.raises(MappingError, match=said):
        raise MappingError(f"no layer '{source_of(text).names}'")


def test_lists_planes_and_whole_tensors_refuse_sums() -> None:
    sums = {"hidden1": ("hidden0",), "output": ("hidden1 + hidden0",)}
    with pytest.raises(MappingError, match=r"reads the sum hidden1 . hidden0, which lists of spikes do not hold: set"):
        network_reading(sums, widths=(8, 8, 8, 4), capacities=None)
    with pytest.raises(MappingError, match="a sum of spikes does not run as whole tensors; use the compiled program"):
        WholeTensors(network_of_sums(SUMS["ages"]))
    with pytest.raises(MappingError, match="layer 'hidden2': a product of spikes does not run as whole tensors"):
        WholeTensors(network_of_sums(SUMS["AND, IAND"]))
    network = network_of_planes(PLANES, delay=0)
    terms = tuple(Source(name=name, neurons=32) for name in ("hidden0", "flat"))
    both = Source(neurons=32, by=ADD, of=terms)
    flat = replace(network.layers[0], name="flat", convolution=None, sources=(Source(name=INPUT, neurons=32),))
    with pytest.raises(
        MappingError, match=r"hidden0 . flat of other planes each: 'hidden0' has 2 x 4 x 4, 'flat' has none"
    ):
        replace(network, layers=(network.layers[0], flat, replace(network.layers[1], sources=(both,))))


def test_advice_on_memory_leaves_widths_that_planes_and_sums_do_not_allow() -> None:
    for network in (network_of_planes(PLANES, delay=0), network_of_sums({"hidden1": ("hidden0 + input",)})):
        advice = [said for said, *_ in remedies(network, MappingOptions())]
        assert not any("inputs instead of" in said for said in advice)
        assert any("data.timesteps = " in said for said in advice)


def test_a_file_of_nir_has_the_weights_of_a_sum_for_each_term() -> None:
    network = network_of_sums(SUMS["residual stream"], delay=0)
    values = given_values(network, 3, dtype=np.float64)
    weights = {name: values.arrays[name] for name in network.parameters}
    file = nir_of_network(*network_of_layers(network, weights, DT))
    expected = interpreted(network, values).counts
    for sample, counts in enumerate(expected):
        sent = NodeByNode(file, DT).run(values.dense[:, sample].astype(np.float64))
        np.testing.assert_array_equal(sent.sum(axis=0), counts)
    product = network_of_sums({"output": ("hidden1 * hidden2",)}, delay=0)
    with pytest.raises(DescriptionError, match=r"(?s)layer 'output'.*a product of spikes has no counterpart in NIR"):
        network_of_layers(product, given_values(product, 3).arrays, DT)
    planes = reading(network_of_planes(PLANES, PLANES, PLANES, delay=0), {"hidden2": ("hidden0 + hidden1",)})
    with pytest.raises(DescriptionError, match="a convolution of a sum of spikes is not written to files"):
        network_of_layers(planes, given_values(planes, 3).arrays, DT)


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ({"hidden0": ("hidden1",)}, "layer 'hidden0', the first, must read 'input' first"),
        ({"hidden1": ("input",), "output": ("hidden1",)}, "no layer that leads to the output reads 'hidden0'"),
        ({"output": ("hidden1", "hidden1")}, "layer 'output' reads 'hidden1@t-1' twice; name each once"),
        ({"output": ("hidden1", "output")}, "layer 'output' cannot read 'output'"),
        ({"hidden0": ("input", "hidden1@t")}, "layer 'hidden0' cannot read 'hidden1' 0 timesteps old"),
        ({"output": ("hidden1", "input@t-5")}, "layer 'output' cannot read 'input' 5 timesteps old: of 5 timesteps"),
        (
            {"output": ("hidden1", "hidden1@t-1")},
            "layer 'output' reads 'hidden1@t-1' twice; name each once, or with other",
        ),
        ({"output": ("hidden1@t-2", "hidden1")}, "layer 'output' reads 'hidden1' at several ages; write that of the"),
    ],
)
def test_sources_that_make_no_network_are_refused(sources: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(MappingError, match=said):
        network_reading(sources)


def test_weights_of_every_source_have_a_name_of_their_own() -> None:
    network = network_reading(SKIP)
    assert [parameter.public for parameter in network.parameters.values()] == [
        "hidden0", "hidden1", "hidden1.from.input", "output", "output.from.hidden0",
    ]  # fmt: skip
    assert network.parameters["w.hidden1.from.input"].shape == (9, 6)
    assert "gradient.w.hidden1.from.input" in training_graph(network).outputs


@pytest.mark.parametrize("sources", GRAPHS.values(), ids=GRAPHS)
def test_a_nir_file_has_all_sources(sources: dict[str, tuple[str, ...]]) -> None:
    assert_nir_has(network_reading(sources, delay=0, capacities=None))


def assert_nir_has(network: SpikingNetwork) -> None:
    """A file of the network, run node by node, sends what the network sends."""
    values = given_values(network, 3)
    weights = {name: values.arrays[name] for name in network.parameters}
    file = nir_of_network(*network_of_layers(network, weights, DT))
    expected, sent = interpreted(network, values), 0
    for sample in range(network.batch):
        found = NodeByNode(file, DT).run(values.dense[:, sample].astype(np.float64))
        spikes = np.zeros_like(found)
        for t, (ids, counts) in enumerate(zip(expected.ids["output"], expected.listed["output"], strict=True)):
            spikes[t, ids[sample, : counts[sample, 0]]] = 1
        np.testing.assert_array_equal(found, spikes)
        sent += int(found.sum())
    assert sent


KEYS = {"network.hidden": (24, 16), "network.capacity": (24, 16, 10)}


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ({"hiden1": ["input"]}, "network.sources.hiden1: no such layer; did you mean 'hidden1'"),
        ({"output": ["hidden2"]}, "network.sources.output: no layer 'hidden2'; did you mean"),
        ({"hidden1": ["hidden1"]}, "network.sources.hidden1: write network.recurrence"),
        ({"output": ["hidden1@t-0"]}, "'hidden1@t-0' is no source; write 'hidden1', 'hidden1@t' or, of spikes 3"),
        ({"output": []}, "network.sources.output"),
    ],
)
def test_a_workload_that_names_no_source_is_refused(sources: dict[str, list[str]], said: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        load_workload("digits", KEYS | {"network.sources": sources})
    assert said in str(refused.value)


def test_a_workload_names_what_its_layers_read() -> None:
    sources = {"hidden1": ["hidden0@t", "input"], "output": ["hidden1", "hidden0"]}
    network = network_of(load_workload("digits", KEYS | {"network.sources": sources}))
    read = {layer.name: [(each.name, each.lag) for each in network.sources(layer)] for layer in network.layers}
    assert read["hidden0"] == [("input", 0)]
    assert read["hidden1"] == [("hidden0", 0), ("input", 0)]
    assert read["output"] == [("hidden1", 1), ("hidden0", 1)]
    assert [layer.fan_in for layer in network.layers] == [512, 24 + 512, 16 + 24]
    weights = initial_weights(network, 3, 1.0, 0.0)
    assert not np.array_equal(weights["w.output"][:16], weights["w.output.from.hidden0"][:16])


def test_a_workload_names_sums() -> None:
    sources = {"hidden1": ["hidden0 + input@t-2"], "output": ["hidden1", "hidden0@t+hidden1@t-1"]}
    keys = {"network.hidden": (512, 512), "network.spikes": "dense", "network.sources": sources}
    network = network_of(load_workload("digits", keys))
    assert [(each.name, each.lag) for each in network.terms(network.layers[1])] == [("hidden0", 1), ("input", 2)]
    assert [each.public for each in network.parameters.values()][2:] == ["output", "output.from.hidden0+hidden1"]
    assert [layer.fan_in for layer in network.layers] == [512, 512, 1024]
    with pytest.raises(DescriptionError, match=r"network.sources.output: no layer 'hidden2'; did you mean"):
        load_workload("digits", keys | {"network.sources": {"output": ["hidden1 + hidden2"]}})
    with pytest.raises(DescriptionError, match=r"'' is no source|no layer ''"):
        load_workload("digits", keys | {"network.sources": {"output": ["hidden1 +"]}})


def test_distances_from_the_input_are_those_of_the_shortest_way() -> None:
    assert input_distances(network_reading(SKIP)) == {"hidden0": 0, "hidden1": 0, "output": 1}
    assert input_distances(network_reading(POPULATIONS, delay=0)) == {"hidden0": 0, "hidden1": 0, "output": 0}
