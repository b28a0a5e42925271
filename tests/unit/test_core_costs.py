"""Codelets on cores described by what their instructions take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codelet_families import CODELETS
from own_codelets import checked
from own_codelets import machine as of_four_tiles

from mimdsim.base.errors import DescriptionError
from mimdsim.base.schema import sourced_numbers
from mimdsim.base.units import uncertainty
from mimdsim.codelets.formats import HALF, in_format
from mimdsim.codelets.training import SGD
from mimdsim.costs.core_costs import on_core, price
from mimdsim.machine import MimdMachine, find_machine, load_machine
from mimdsim.machine.codelet_costs import NATIVE_VECTOR_BYTES, NATIVE_VERTEX_BUNDLES, Core, InstructionCycles
from mimdsim.pipeline.overrides import split_changes
from mimdsim.program import Codelet, Length, Term, TileFormula, Vectors, WorkerBundles
from mimdsim.program.loops import CLASSES, NATIVE_SLOTS, Mix

FOREIGN = ("spinnaker2", "wormhole", "wse2")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "other-machines.md"
EVERY = {**CODELETS, **{name: in_format(CODELETS[name], id_bytes=4, value_bytes=2, moved_bytes=2) for name in HALF}}
RULED = 0.06  # share of loops whose instructions follow by rule


def core(source: str = "published: a test", **changes: Any) -> Core:
    """As "colossus" issues instructions, one after the other."""
    numbers = {f"{name}_cycles": NATIVE_SLOTS.get(name, 1) for name in CLASSES}
    numbers |= {"vertex_cycles": NATIVE_VERTEX_BUNDLES} | changes
    given = {key: value for key, value in numbers.items() if isinstance(value, int | float)}
    return Core(**numbers, sources=dict.fromkeys(given, source))


def core_of(name: str) -> tuple[Core, MimdMachine]:
    machine = load_machine(name)
    assert isinstance(machine, MimdMachine)
    assert machine.costs is not None
    assert machine.costs.core is not None
    return machine.costs.core, machine


def cycles_of(codelet: Codelet, size: int = 64) -> float:
    """Of a vertex whose extents are all `size`."""
    if isinstance(codelet.cost, TileFormula):
        extents = {name: np.full(1, size) for name in codelet.extents}
        return float(np.asarray(codelet.cost.cycles(extents, 1, 8)).sum())
    return codelet.cost.fixed + sum(term.bundles * size ** len(term.extents) for term in codelet.cost.terms)


def loops() -> list[Term]:
    costs = [codelet.cost for codelet in EVERY.values()]
    return [term for cost in costs if isinstance(cost, WorkerBundles) for term in cost.terms]


def test_mixes_make_the_bundles_that_are_counted() -> None:
    """Of nearly all loops; the rest have a number without one."""
    known = [term for term in loops() if term.mix is not None]
    assert len(known) >= (1 - RULED) * len(loops())
    for term in known:
        assert term.mix is not None
        assert term.mix.bundles == pytest.approx(term.bundles)
        assert min(number for _, number in term.mix.items()) >= 0


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_core_that_issues_as_the_counts_assume_takes_their_bundles(name: str) -> None:
    before = EVERY[name]
    after = on_core(before, core(), NATIVE_VECTOR_BYTES)
    if isinstance(before.cost, WorkerBundles):
        assert isinstance(after.cost, WorkerBundles)
        assert after.cost.fixed == pytest.approx(before.cost.fixed)
        assert [term.extents for term in after.cost.terms] == [term.extents for term in before.cost.terms]
        bundles = [term.bundles for term in before.cost.terms]
        assert [term.bundles for term in after.cost.terms] == pytest.approx(bundles)


def doubled(section: InstructionCycles) -> dict[str, Any]:
    """A section whose cycles are twice as many."""
    factors = {"matrix_flops_per_cycle": 0.5, "issue_width": 1.0}
    made: dict[str, Any] = {"sources": section.sources}
    for key in section.model_fields_set - {"sources"}:
        value = getattr(section, key)
        made[key] = doubled(value) if isinstance(value, InstructionCycles) else value * factors.get(key, 2.0)
    return made


@pytest.mark.parametrize("machine", FOREIGN)
def test_twice_the_cycles_of_every_instruction_are_twice_the_cycles_of_every_codelet(machine: str) -> None:
    on, described = core_of(machine)
    slow = Core(**doubled(on))
    for name, codelet in EVERY.items():
        one, two = (cycles_of(on_core(codelet, each, described.tile.vector_bytes)) for each in (on, slow))
        assert two == pytest.approx(2 * one), name
        assert one > 0, name


@pytest.mark.parametrize("machine", FOREIGN)
def test_no_codelet_is_doubted_by_more_than_a_factor_of_three(machine: str) -> None:
    """From a half to one and a half; and none without a cost of the machine's."""
    on, described = core_of(machine)
    for name, codelet in EVERY.items():
        made = on_core(codelet, on, described.tile.vector_bytes)
        assert 0.3 <= uncertainty(made.cost.kind) <= 0.5, name
        assert made.cost.source.startswith("the machine's core")


def test_the_neuron_update_on_a_cortex_m4_by_hand() -> None:
    """A spike and neuron: two loads of 2, an add of 1, a loop of 4. A neuron: 3 loads and a store of 2, 2 comparisons
    of 2, 2 multiplies, an add, 5 integer instructions, a loop. Outside: 30, and 20 of the counted 32 bundles, loads and
    integer instructions in equal parts. Published numbers make a derived cost."""
    on, described = core_of("spinnaker2")
    cost = on_core(CODELETS["LifUpdate"], on, described.tile.vector_bytes).cost
    assert isinstance(cost, WorkerBundles)
    by_spike, by_neuron = cost.terms
    assert by_spike.bundles == 2 * 2 + 1 + 4
    assert by_neuron.bundles == 3 * 2 + 1 * 2 + 2 * 2 + 2 * 1 + 1 + 5 * 1 + 4
    assert cost.fixed == 30 + 20 * (2 + 1) / 2
    assert cost.kind == "derived"


def test_an_update_of_weights_on_a_cortex_m4_by_hand() -> None:
    """Of a weight: two loads and a store of 2, a multiply and an add of 1, a step of the address and a loop of 4."""
    on, described = core_of("spinnaker2")
    assert cycles_of(on_core(SGD, on, described.tile.vector_bytes), 100) == 30 + 100 * (2 * 2 + 2 + 1 + 1 + 1 + 4)


def test_the_numbers_of_a_core_are_assumptions_of_a_run() -> None:
    _, machine = core_of("wse2")
    said = {f"{section}.{field}": value for section, field, value, *_ in sourced_numbers(machine, ("costs",))}
    assert said["costs.core.divide_cycles"] == 50
    assert said["costs.core.vectors.load_cycles"] == 0


def test_fused_wide_and_stalling_cores() -> None:
    mix = Mix(load=2, add=3, multiply=1)
    assert price(mix, core()).cycles == 6
    assert price(mix, core(multiply_add_cycles=1)).cycles == 5
    assert price(mix, core(load_use_cycles=2)).cycles == 10
    assert price(mix, core(issue_width=2)).cycles == 3
    # a tenth of 4 published cycles, a half of 2 assumed ones
    assumed = core(load_cycles=1)
    assumed.sources["load_cycles"] = "assumed: a test"
    assert price(mix, assumed).off == pytest.approx(0.1 * 4 + 0.5 * 2)


def test_loops_without_branches_run_on_vectors_where_a_core_has_them() -> None:
    """The end of the neuron update on vectors of 128 bytes takes every 32nd turn; what follows listed ids does not."""
    vectors = InstructionCycles(loop_cycles=0, sources={"loop_cycles": "derived: a test"})
    made = on_core(CODELETS["LifUpdate"], core(vectors=vectors), 128)
    assert isinstance(made.cost, WorkerBundles)
    (name,) = made.cost.terms[1].extents
    assert made.extents[name].per == 32  # type: ignore[union-attr]
    assert made.cost.terms[1].bundles == 14
    of_ids = on_core(CODELETS["StateGradient"], core(vectors=vectors), 128)
    assert isinstance(of_ids.cost, WorkerBundles)
    assert [term.extents for term in of_ids.cost.terms] == [("listed",), ("hits",)]


def test_halves_take_what_a_core_says_of_them_in_vectors() -> None:
    halves = InstructionCycles(add_cycles=7, sources={"add_cycles": "derived: a test"})
    for name, each in (("LifUpdate", 3 + 7), ("LifUpdate", 4)):
        codelet = EVERY[name] if each == 10 else CODELETS[name]
        made = on_core(codelet, core(halves=halves), NATIVE_VECTOR_BYTES)
        assert isinstance(made.cost, WorkerBundles)
        assert made.cost.terms[0].bundles == each
        assert any(isinstance(made.extents[one], Vectors) for one in made.cost.terms[0].extents)


CORE = '\n[costs.core]\n{}vertex_cycles = 12\n[costs.core.sources]\n{}vertex_cycles = "assumed: a test"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CORE.format("", ""), "lacks load_cycles, store_cycles"),
        (CORE.format("load_cycle = 1\n", ""), "unknown key 'costs.core.load_cycle'"),
        (CORE.format("load_cycles = 1\n", ""), "'load_cycles' has no entry in 'sources'"),
        (CORE.format("load_cycles = -1\n", 'load_cycles = "assumed: a test"\n'), "greater than or equal to 0"),
    ],
)
def test_cores_that_cannot_be_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(find_machine("tiny").read_text() + text)
    with pytest.raises(DescriptionError) as caught:
        load_machine(str(path))
    assert said in str(caught.value)


def test_a_rate_and_a_core_contradict_each_other(tmp_path: Path) -> None:
    given = find_machine("spinnaker2").read_text()
    rate = 'bundles_per_operation = 1\nvertex_bundles = 1\n[costs.sources]\nbundles_per_operation = "assumed: x"\n'
    path = tmp_path / "mine.toml"
    path.write_text(given.replace("[costs.core]", f'[costs]\n{rate}vertex_bundles = "assumed: x"\n[costs.core]', 1))
    with pytest.raises(DescriptionError, match="holds a rate and a core: give one of them"):
        load_machine(str(path))


def test_the_core_of_the_documentation(tmp_path: Path) -> None:
    """An in-order RISC-V core."""
    (text,) = (each for each in DOCS.read_text(encoding="utf-8").split("```toml\n") if each.startswith("[costs.core]"))
    path = tmp_path / "mine.toml"
    path.write_text(find_machine("tiny").read_text() + "\n" + text.split("```")[0])
    machine = load_machine(str(path))
    assert isinstance(machine, MimdMachine)
    assert machine.costs is not None
    assert machine.costs.core is not None
    made = on_core(CODELETS["LifUpdate"], machine.costs.core, 4)
    assert isinstance(made.cost, WorkerBundles)
    assert made.cost.terms[0].bundles == pytest.approx(2 * 1.5 + 1.5 + 4)


def test_numbers_of_a_core_can_be_changed() -> None:
    machine = load_machine("spinnaker2", {"costs.core.load_cycles": 1})
    assert isinstance(machine, MimdMachine)
    assert machine.costs is not None
    assert machine.costs.core is not None
    assert machine.costs.core.load_cycles == 1
    assert machine.costs.core.sources["load_cycles"].startswith("assumed: what-if value")


def test_instructions_of_a_core_are_set_as_other_numbers_are() -> None:
    _, changes = split_changes({"costs.core.load_cycles": 3.0})  # of --set, sweeps and studies
    machine = load_machine("wormhole", changes)
    assert isinstance(machine, MimdMachine)
    assert machine.costs is not None
    assert machine.costs.core is not None
    assert machine.costs.core.load_cycles == 3


def test_a_measured_cost_in_whose_place_the_core_is_priced_is_noted() -> None:
    """Nothing in the file says that the count is of this core."""

    def copied(y: np.ndarray, x: np.ndarray, _start: int, _stop: int) -> None:
        y[:] = x

    own = {"fixed": 40, "terms": [{"bundles": 3, "extents": ["n"]}], "source": "measured: a test"}
    measured = WorkerBundles(fixed=40, terms=(Term(bundles=3, extents=("n",)),), kind="measured", source="a test")
    given: dict[str, Any] = {"extents": {"n": Length("x", 0)}, "on": of_four_tiles("wormhole"), "cost": measured}
    found = checked(copied, **given)
    assert found.passed, found
    assert (
        "note  priced: vertex 0 of Own on tile 0 is timed at the price of 191 bundles that [costs.core] of wormhole "
        "gives its instructions, not at the cost of 52 bundles that was measured: [costs.codelets.Own] in the "
        "machine's file keeps it" in str(found)
    )
    kept = of_four_tiles("wormhole", **{"costs.codelets.Own": own})
    for other in ({"on": kept}, {"on": of_four_tiles()}, {"cost": replace(measured, kind="assumed")}):
        assert "note  priced" not in str(checked(copied, **(given | other)))
    counted = checked(copied, **given, count=lambda y, *_: {"turns": y.size})
    assert "at the price that [costs.core] of wormhole" in str(counted)
