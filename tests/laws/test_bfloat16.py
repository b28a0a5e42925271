"""bfloat16: rounding is PyTorch's, all that a program keeps in it is one, and cores without it pay for converting."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from codelet_families import CODELETS
from networks import ADAM, compiled, given_values, machine, small_network
from pydantic import ValidationError

from mimdsim.codelets.formats import HALF, in_format
from mimdsim.codelets.vertex_costs import FORMULAS
from mimdsim.compiler import Compiled
from mimdsim.costs.core_costs import on_core
from mimdsim.execution import Executor
from mimdsim.execution.execute import halves_of
from mimdsim.machine.codelet_costs import Core, InstructionCycles
from mimdsim.numerics.number_formats import FORMATS
from mimdsim.pipeline import retime
from mimdsim.pipeline.warnings import half_warning
from mimdsim.profile import TiledProfile
from mimdsim.program import Codelet, TileFormula
from mimdsim.program.printer import listing
from mimdsim.workload import MappingOptions, filled_activity, load_workload

BFLOAT = MappingOptions(value_bytes="bfloat16", neurons_per_tile=4)
HALVES = MappingOptions(value_bytes=2, neurons_per_tile=4)
FLOATS = MappingOptions(neurons_per_tile=4)
NETWORK = small_network((9, 20, 12, 4), timesteps=6, batch=4, optimiser=ADAM, second_threshold=-100.0)


def rounded(bits: np.ndarray) -> np.ndarray:
    """The bits of what float32 of these bits are rounded to."""
    values = bits.ravel().astype(np.uint32).view(np.float32)
    FORMATS["bfloat16"].round(values, values.view(np.uint32))
    return values.view(np.uint32).reshape(bits.shape)


def assert_as_torch(bits: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    values = torch.from_numpy(bits.astype(np.uint32).view(np.float32).copy())
    expected = values.to(torch.bfloat16).to(torch.float32).numpy()
    found = rounded(bits).view(np.float32)
    none = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), none)
    np.testing.assert_array_equal(found.view(np.uint32)[~none], expected.view(np.uint32)[~none])


def test_rounding_is_that_of_pytorch() -> None:
    """Of every bfloat16, and of what is just beside it, beside the middle to the next one, and in the middle."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        assert_as_torch(upper | np.uint32(lower))


def deciding_bits() -> Iterator[np.ndarray]:
    """Of every upper half of a float32 all lower halves with up to three bits set or not set. What rounding depends on,
    wherever a format cuts: the last bit that is kept, the first that is not, and whether any after it is set."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    for places in (each for many in range(4) for each in itertools.combinations(range(16), many)):
        lower = sum(1 << place for place in places)
        for half in (lower, 0xFFFF - lower):
            yield upper | np.uint32(half)


@pytest.mark.slow
def test_rounding_is_that_of_pytorch_wherever_bits_decide() -> None:
    for bits in deciding_bits():
        assert_as_torch(bits)


def one_step(made: Compiled) -> Executor:
    executor = Executor(made.program, rounded=True)
    executor.write(given_values(made.network, 3, dyadic=False).for_program(made.network))
    executor.run()
    return executor


def test_all_that_is_kept_in_bfloat16_is_one() -> None:
    made = compiled(NETWORK, options=BFLOAT)
    kept = [name for name, held in made.program.variables.items() if held.number_format]
    assert set(kept) == set(halves_of(made.program))
    assert {"w.hidden0", "moment2.output", "v.hidden1", "dw.hidden0", "v.hidden0.sequence"} <= set(kept)
    executor, plain = one_step(made), one_step(compiled(NETWORK, options=FLOATS))
    changed = 0
    for name in kept:
        array = executor.arrays[name]
        np.testing.assert_array_equal(rounded(array.view(np.uint32)).view(np.float32), array, err_msg=name)
        changed += name in plain.arrays and not np.array_equal(array, plain.arrays[name])
    assert changed > len(kept) // 2
    assert "float32[9x20] as bfloat16" in listing(made.program)


def test_moments_may_stay_floats() -> None:
    held = compiled(NETWORK, options=BFLOAT.model_copy(update={"moment_bytes": 4})).program.variables
    moments = [held[f"moment{n}.{layer.name}"] for n in (1, 2) for layer in NETWORK.layers]
    assert {(each.item_bytes, each.number_format) for each in moments} == {(4, "")}
    assert held["w.hidden0"].number_format == "bfloat16"


def timed(options: MappingOptions) -> tuple[Compiled, TiledProfile]:
    made = compiled(NETWORK, options=options)
    return made, retime(made, machine(), filled_activity(NETWORK, 0.5))


@pytest.mark.slow
def test_it_takes_the_bytes_of_halves_and_the_cycles_of_floats_and_conversions() -> None:
    (half, of_halves), (wide, of_floats), (bfloat, of_bfloat) = (timed(one) for one in (HALVES, FLOATS, BFLOAT))
    assert bfloat.memory.peak_bytes == half.memory.peak_bytes < wide.memory.peak_bytes
    assert of_bfloat.exchange_cycles == of_halves.exchange_cycles < of_floats.exchange_cycles
    assert of_bfloat.compute_cycles > of_floats.compute_cycles
    mixed = BFLOAT.model_copy(update={"moment_bytes": 4})
    assert of_bfloat.compute_cycles > timed(mixed)[1].compute_cycles  # fewer numbers are converted


@pytest.mark.slow
def test_a_run_says_what_is_converted() -> None:
    made, profile = timed(BFLOAT)
    (said,) = half_warning(load_workload("digits", {"mapping.value_bytes": "bfloat16"}))
    assert "cores without arithmetic in it (costs.core.bfloat16) convert" in said
    assert any(one.name == "float32 as bfloat16" for one in profile.assumptions)
    sources = [table.codelet.cost.source for step, _, _ in made.program.supersteps() for table in step.tables]
    assert any("9 that round and pack it" in source for source in sources)


def formats_of(name: str) -> tuple[Codelet, Codelet, Codelet] | None:
    """(floats, halves, bfloat16) of a codelet; None where nothing changes."""
    codelet = CODELETS[name]
    if isinstance(codelet.cost, TileFormula) and codelet.cost not in FORMULAS:
        return None
    half, bfloat = (
        in_format(codelet, id_bytes=4, value_bytes=2, moved_bytes=2, number_format=one) for one in ("", "bfloat16")
    )
    return (codelet, half, bfloat) if bfloat.number_format else None


CHANGED = {name: found for name in CODELETS if (found := formats_of(name))}
SOURCES = {"add_cycles": "derived: a test"}


def core(**more: InstructionCycles) -> Core:
    keys = [key for key in InstructionCycles.model_fields if key.endswith("_cycles") and key != "multiply_add_cycles"]
    keys += ["vertex_cycles"]
    return Core(**dict.fromkeys(keys, 1.0), sources=dict.fromkeys(keys, "derived: a test"), **more)


def test_codelets_that_move_alone_are_those_of_halves() -> None:
    assert set(HALF) <= set(CHANGED)
    for name, codelet in CODELETS.items():
        if (
            not codelet.flops
            and name not in HALF
            and isinstance(codelet.cost, TileFormula)
            and codelet.cost in FORMULAS
        ):
            made = in_format(codelet, id_bytes=4, value_bytes=2, moved_bytes=2, number_format="bfloat16")
            assert made is in_format(codelet, id_bytes=4, value_bytes=2, moved_bytes=2) or made == in_format(
                codelet, id_bytes=4, value_bytes=2, moved_bytes=2
            )


@pytest.mark.parametrize("name", CHANGED)
def test_a_core_with_bfloat16_takes_as_long_as_for_halves(name: str) -> None:
    """And one without converts: longer than for floats or halves, on such a core and on "colossus"."""
    wide, half, bfloat = CHANGED[name]
    native = InstructionCycles(add_cycles=1.0, sources=SOURCES)
    with_it, without = core(halves=native, bfloat16=native), core(halves=native)
    if isinstance(bfloat.cost, TileFormula):
        shape = {name: np.array([64, 640]) for name in (*bfloat.extents, *on_core(bfloat, with_it, 8).extents)}
        of_halves, native_, converted, floats = (
            on_core(one, on, 8).cost.cycles(shape, 1, 8)
            for one, on in ((half, with_it), (bfloat, with_it), (bfloat, without), (wide, without))
        )
        np.testing.assert_array_equal(native_, of_halves)
        assert (converted > floats).all()
        assert (bfloat.cost.cycles(shape, 6, 8) > wide.cost.cycles(shape, 6, 8)).all()
        return
    if name in HALF:
        made, expected = (on_core(one, with_it, 8).cost.terms for one in (bfloat, half))
        assert made == expected
    more = [term for term in bfloat.cost.terms if term.converts]
    assert more
    assert all(term.bundles > 0 for term in more)
    assert len(on_core(bfloat, without, 8).cost.terms) == len(on_core(bfloat, with_it, 8).cost.terms) + len(more)


def test_other_formats_are_refused() -> None:
    with pytest.raises(ValidationError, match="value_bytes"):
        MappingOptions(value_bytes="float8")
    with pytest.raises(ValidationError, match=r"must be a multiple of 4 with value_bytes = bfloat16"):
        MappingOptions(value_bytes="bfloat16", neurons_per_tile=2)
