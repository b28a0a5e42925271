"""Formats of a byte: rounding is PyTorch's, weights are stored and priced in them, and a copy in float32 is trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from networks import compiled, given_values, machine
from test_bfloat16 import core, deciding_bits
from test_weight_functions import functional

import mimdsim
from mimdsim.base.errors import MappingError
from mimdsim.costs.core_costs import on_core
from mimdsim.execution import Executor
from mimdsim.gpu import time_on_gpu
from mimdsim.graph import training_graph
from mimdsim.machine import GpuMachine, load_machine
from mimdsim.machine.codelet_costs import InstructionCycles
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.pipeline import retime
from mimdsim.workload import filled_activity

BYTES = [name for name, each in FORMATS.items() if each.bytes == 1]
NATIVE = InstructionCycles(add_cycles=1.0, sources={"add_cycles": "derived: a test"})


def assert_as_torch(name: str, bits: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    kind = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "half": torch.float16}[name]
    values = bits.astype(np.uint32).view(np.float32)
    expected = torch.from_numpy(values.copy()).to(kind).to(torch.float32).numpy()
    found = values.copy()
    FORMATS[name].round(found, found.view(np.uint32))
    beyond = np.isnan(expected) & ~np.isnan(values) & (name == "e4m3")  # older PyTorch: not a number, here the largest
    np.testing.assert_array_equal(np.abs(found[beyond]), FORMATS[name].largest)
    none = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found[~beyond]), none[~beyond])
    np.testing.assert_array_equal(found.view(np.uint32)[~none], expected.view(np.uint32)[~none])


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "half"])
def test_rounding_is_that_of_pytorch(name: str) -> None:
    """Of every upper half of a float32, and of what is beside it, in the middle to the next one and beside that."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        assert_as_torch(name, upper | np.uint32(lower))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "half"])
def test_rounding_is_that_of_pytorch_wherever_bits_decide(name: str) -> None:
    for bits in deciding_bits():
        assert_as_torch(name, bits)


def test_whole_numbers_have_the_scale_of_the_largest() -> None:
    w = np.array([[-254.0, 1.0, 0.9], [3.0, 5.0, 100.1]])
    np.testing.assert_array_equal(FORMATS["int8"].rounded(w), [[-254, 0, 0], [4, 4, 100]])
    np.testing.assert_array_equal(FORMATS["int8"].rounded(w[1:], 254.0), [[4, 4, 100]])
    np.testing.assert_array_equal(FORMATS["int8"].rounded(np.zeros(3)), np.zeros(3))


@pytest.mark.first(2)
@pytest.mark.parametrize("more", [{}, {"spikes": "dense", "capacities": None}], ids=["lists", "dense"])
@pytest.mark.parametrize("name", BYTES)
def test_weights_act_in_the_format_and_are_trained_in_float32(name: str, more: dict[str, object]) -> None:
    network = functional(name, **more)
    made, plain = (compiled(one) for one in (network, functional("identity", **more)))
    held = {key: each for key, each in made.program.variables.items() if each.number_format}
    assert {each.number_format for each in held.values()} == {name}
    assert {each.item_bytes for each in held.values()} == {1}
    assert all(made.program.variables[each.name].item_bytes == 4 for each in network.trained.values())
    executor = Executor(made.program, rounded=True)
    executor.write(given_values(network, 3, dyadic=False).for_program(network))
    executor.run()
    for key in held:
        acts = executor.arrays[key].astype(np.float64)
        np.testing.assert_array_equal(FORMATS[name].rounded(acts).astype(np.float32), acts, err_msg=key)
    activity = filled_activity(network, 0.5)
    ours, theirs = (retime(one, machine(), activity) for one in (made, plain))
    more_scales = name == "int8"  # what finds the largest
    assert more_scales or ours.memory.peak_bytes < theirs.memory.peak_bytes
    assert ours.compute_cycles > theirs.compute_cycles  # "colossus" converts
    assert ours.exchange_cycles <= theirs.exchange_cycles + 600 * more_scales


@pytest.mark.parametrize("more", [{}, {"spikes": "dense", "capacities": None}], ids=["lists", "dense"])
def test_a_core_that_computes_with_it_does_not_convert(more: dict[str, object]) -> None:
    program = compiled(functional("e4m3", **more)).program
    codelets = {table.codelet for step, _, _ in program.supersteps() for table in step.tables if table.codelet.narrow}
    assert codelets
    for codelet in codelets:
        with_it, without, of_floats = (
            on_core(each, on, 8).cost
            for each, on in (
                (codelet, core(fp8=NATIVE)), (codelet, core()), (replace(codelet, narrow=()), core(fp8=NATIVE)),
            )
        )  # fmt: skip
        if hasattr(with_it, "terms"):
            assert len(with_it.terms) == len(without.terms) - 1
        else:
            names = [*codelet.extents, *(f"vectors of {field.name}" for field in codelet.fields)]
            shape = {key: np.array([64, 640]) for key in names}
            least, most, floats = (each.cycles(shape, 1, 8) for each in (with_it, without, of_floats))
            assert (least == floats).all()
            assert (most > least).all()


@pytest.mark.parametrize("more", [{}, {"spikes": "dense", "capacities": None}], ids=["lists", "dense"])
def test_an_array_of_whole_numbers_takes_products_with_spikes_alone(more: dict[str, object]) -> None:
    program, phases = compiled(functional("int8", **more)).program, set()
    fast = InstructionCycles(matrix_flops_per_cycle=1e6, sources={"matrix_flops_per_cycle": "derived: a test"})
    for step, table in [(one, table) for one, *_ in program.supersteps() for table in one.tables]:
        if table.codelet.narrow:
            with_it, without = (on_core(table.codelet, on, 8).cost for on in (core(int8=fast), core()))
            phases.add(step.phase)
            assert table.codelet.of_spikes == (step.phase == "forward")
            if hasattr(with_it, "terms"):
                assert len(with_it.terms) == len(without.terms) - table.codelet.of_spikes
            else:
                names = [*table.codelet.extents, *(f"vectors of {field.name}" for field in table.codelet.fields)]
                shape = {key: np.array([64, 640]) for key in names}
                ours, theirs = (each.cycles(shape, 1, 8) for each in (with_it, without))
                assert (ours < theirs / 4 if table.codelet.of_spikes else ours == theirs).all()
    assert phases == {"forward", "backward"}


@pytest.mark.parametrize("encoding", ["image", "values"])
def test_inputs_of_numbers_are_no_spikes(encoding: str) -> None:
    network = replace(functional("int8", spikes="dense", capacities=None), encoding=encoding)
    codelets = {
        table.operands["left"]: table.codelet
        for step, _, _ in compiled(network).program.supersteps()
        for table in step.tables
        if table.codelet.narrow and step.phase == "forward"
    }
    assert {each.of_spikes for each in codelets.values()} == {True, False}


def test_gpus_multiply_spikes_at_the_rate_of_a_byte() -> None:
    graph = training_graph(functional("e4m3", spikes="dense", capacities=None, recurrence="none"))
    h100, a100, v100 = (load_machine(name) for name in ("h100", "a100", "v100"))
    assert isinstance(h100, GpuMachine)
    assert isinstance(a100, GpuMachine)
    assert isinstance(v100, GpuMachine)
    assert h100.compute.fp8_flops_per_cycle == 2 * h100.compute.fp16_flops_per_cycle
    half, byte = (time_on_gpu(graph, h100, strategy="auto", precision=each) for each in ("fp16", "fp8"))
    assert byte.seconds_per_training_step <= half.seconds_per_training_step
    assert byte.assumptions[0].name == byte.precision == "fp8"
    slow = h100.model_copy(update={"compute": h100.compute.model_copy(update={"fp8_flops_per_cycle": 0.01})})
    slower = time_on_gpu(graph, slow, strategy="auto", precision="fp8")
    assert slower.seconds_per_training_step > 2 * half.seconds_per_training_step
    assert time_on_gpu(graph, a100, strategy="auto", precision="int8").precision == "int8"
    for gpu, name in ((a100, "fp8"), (v100, "int8")):
        with pytest.raises(MappingError, match=rf"{gpu.name} gives no rate of products in {name}"):
            time_on_gpu(graph, gpu, strategy="auto", precision=name)


def test_a_workload_names_the_format_of_its_weights() -> None:
    keys = {"training.max_training_steps": 2, "data.timesteps": 10, "training.batch": 8}
    made = mimdsim.run("digits", "bow", changes=keys | {"network.weight_format": "e4m3"})
    assert any("network.weight_format = e4m3: weights act as such" in each for each in made.warnings)
    kept = made.weights["hidden0"].astype(np.float64)
    assert (FORMATS["e4m3"].rounded(kept) != kept).any()
