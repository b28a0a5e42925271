"""Check a program: the rules of the machine, memory, and every value against an interpreter of the graph.

Values are compared after each superstep, so that the first wrong one names its vertex: with the compiled program run
in lockstep if both have the same superstep and variable, and with the interpreter if a superstep says which graph value
it has completed. The results of a training step, including weights and moments, are compared with the interpreter at
its end. How inputs are drawn: `draws`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, MappingError
from mimdsim.base.schema import build as build_section
from mimdsim.base.schema import given_keys
from mimdsim.base.units import bytes_of, counted, show_bytes
from mimdsim.base.user_code import call_users, function_in, load_file
from mimdsim.checking.comparison import LEAST, RELATIVE_TOLERANCE, interface_problems, misfit, no_terms, wrong_output
from mimdsim.checking.coverage import Operands
from mimdsim.checking.lockstep import Trace, compare, gradients_at_ids, rounded_potentials, terms_of_sums
from mimdsim.checking.test_inputs import DRAWS, UNKNOWN, Draw, drawn_inputs, graph_inputs
from mimdsim.compiler import Compiled, fits_executable, measure_memory, plan_exchanges
from mimdsim.costs.isa_costs import with_machine_cost
from mimdsim.execution import Executor
from mimdsim.execution.cost_lower_bound import declared_bundles, excess_flops
from mimdsim.execution.scratch import KINDS, undefine
from mimdsim.execution.strict import strict_steps
from mimdsim.graph import Graph, SpikingNetwork, interpret
from mimdsim.graph.losses import softmax
from mimdsim.graph.names import LABELS, spikes_of
from mimdsim.machine import MimdMachine
from mimdsim.pipeline import compile_workload, retime
from mimdsim.profile import Finding, ratio_of
from mimdsim.program import Program, RecordedActivity, VertexTable, WorkerBundles, verify
from mimdsim.program.checks.exchange import overlapping_fields, shared_words
from mimdsim.program.checks.scope import Scope
from mimdsim.program.codelet_closure import is_library
from mimdsim.program.exchanges import bytes_within_tiles
from mimdsim.program.records import vertex_name
from mimdsim.timing.analytic import refuse_other_machine
from mimdsim.workload import Workload, network_of

NEAR = 2e-5  # of the threshold: float32 sums in another order may fall on either side
CERTAIN = 1e-3  # assumed; a probability this near to 1 leaves little but rounding of p - 1, its sample's gradient
LARGEST_SCORE = 16.0  # assumed; float32 tells numbers of this size apart to about 1e-6, a tenth of what is compared
MOST_SHARED = 256  # samples that are checked, so that some tile has two
MOST_SAID = 3
MOST_DRAWN = 20  # times, until no potential is as near as that
FEWEST_NORMALISED = (
    4  # samples of a timestep: of two, the gradients through their norm are what rounding leaves of them
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What a user's `build(subject)` gets: the compiled program to change, and everything it was made from."""

    program: Program
    compiled: Compiled
    network: SpikingNetwork
    machine: MimdMachine


def shrunk(workload: Workload, timesteps: int, batch: int, machine: MimdMachine) -> Workload:
    """The workload with at most `timesteps` and `batch`, or as many as it takes to read the oldest spikes, and to share
    tiles where the whole batch does, so that the interpreter can follow; 0 keeps them."""
    table, network = given_keys(workload), network_of(workload)
    if timesteps:
        oldest = network.oldest_age  # what is that old is read a few times too
        table["data"]["timesteps"] = min(max(timesteps, oldest + 3), workload.data.timesteps)
    if batch:
        shared = machine.chip.tiles * machine.links.chips - workload.mapping.reserved_tiles + 1
        normalised = any(layer.norm and layer.norm.per in ("timestep", "each_timestep") for layer in network.layers)
        least = max(shared if shared <= MOST_SHARED else 0, FEWEST_NORMALISED if normalised else 0)
        table["training"]["batch"] = min(max(batch, least), workload.training.batch)
    return build_section(Workload, table, where=f"workload '{workload.name}'")


def check_program(
    workload: Workload,
    whole: Workload,
    machine: MimdMachine,
    build: Callable[[Subject], Program] | None = None,
    *,
    strict: bool = False,
) -> list[Finding]:
    """All findings for the compiled program of `workload`, or for the one that `build` makes.

    `whole` is the same workload with full length and batch, whose memory must fit.
    """
    compiled, program = _built(workload, machine, build)
    full = _built(whole, machine, build)[1]
    rules = rules_finding(program, machine)
    if rules.passed and build is not None and not (broken := rules_finding(full, machine)).passed:
        rules = replace(broken, text=f"in full length and batch: {broken.text}")
    findings = [rules, memory_finding(full, machine)]
    if not findings[0].passed:
        skipped = "not run: fix what breaks the rules first"
        return [*findings, Finding(name="values", passed=False, text=skipped)]
    findings += [] if build is None else rules_notes(program, machine)
    return findings + check_values(program, compiled, machine, strict=strict)


def _built(
    workload: Workload, machine: MimdMachine, build: Callable[[Subject], Program] | None
) -> tuple[Compiled, Program]:
    """The compiled workload, and its program or the one the user makes of it."""
    compiled = compile_workload(workload, machine, must_fit=False)
    if build is None:
        return compiled, compiled.program
    subject = Subject(program=compiled.program, compiled=compiled, network=compiled.network, machine=machine)
    program = call_users("build(subject)", build, subject)
    if not isinstance(program, Program):
        raise DescriptionError("build(subject)", [f"must return a Program, returned {type(program).__name__}"])
    return compiled, with_missing_exchanges(program)


def with_missing_exchanges(program: Program) -> Program:
    """Exchanges planned only for supersteps that come without one; raises MappingError if they cannot be."""
    if all(step.exchange is not None for step, _, _ in program.supersteps()):
        return program
    planned = plan_exchanges(program)
    new = {id(old): step for (old, _, _), (step, _, _) in zip(program.supersteps(), planned.supersteps(), strict=True)}
    return program.map_supersteps(lambda step: step if step.exchange is not None else new[id(step)])


def rules_finding(program: Program, machine: MimdMachine) -> Finding:
    """Whether the program keeps the rules of the machine; if not, the first problems."""
    try:
        refuse_other_machine(program, machine, "build it for this machine")
    except MappingError as refused:
        return Finding(name="rules", passed=False, text=str(refused))
    problems = verify(program, machine.chip.tiles if program.chips == 1 else program.tiles)
    vertices = sum(table.vertices for step, _, _ in program.supersteps() for table in step.tables)
    if problems:
        return Finding(name="rules", passed=False, text="\n".join(problem.message for problem in problems[:5]))
    steps = sum(1 for _ in program.supersteps())
    if claimed := excess_flops(program, machine):
        return Finding(name="rules", passed=False, text=claimed)
    size = f"{counted(vertices, 'vertex', 'vertices')} in {counted(steps, 'superstep')}"
    text = f"{size}: reads local or delivered, writes local and once"
    return Finding(name="rules", passed=True, text=text)


def rules_notes(program: Program, machine: MimdMachine) -> Iterator[Finding]:
    """What keeps the rules and is right only on some tiles, once for each codelet by hand."""
    kinds: dict[str, Callable[[Scope], Iterator[tuple[VertexTable, str]]]] = {
        "overlap": overlapping_fields,
        "words": shared_words,
        "priced": partial(_priced_anew, machine),
    }
    said: dict[str, dict[str, str]] = {name: {} for name in kinds}
    for superstep, _, _ in program.supersteps():
        scope = Scope(program=program, superstep=superstep, tiles=machine.chip.tiles)
        for name, found in kinds.items():
            for table, text in found(scope):
                said[name].setdefault(table.codelet.name, text)
    for name, texts in said.items():
        if texts:
            yield Finding(name=name, passed=True, warning=True, text="; ".join([*texts.values()][:MOST_SAID]))


def _priced_anew(machine: MimdMachine, scope: Scope) -> Iterator[tuple[VertexTable, str]]:
    """Costs by hand that were measured, in whose place the machine's own prices are timed."""
    costs = machine.costs
    if costs is None or (costs.core is None and costs.bundles_per_operation is None):
        return
    for table in scope.superstep.tables:
        codelet = table.codelet
        measured = isinstance(codelet.cost, WorkerBundles) and codelet.cost.kind.startswith("measured")
        if not measured or is_library(codelet.compute) or codelet.name in costs.codelets or not table.vertices:
            continue
        priced = table.with_codelet(with_machine_cost(codelet, machine))
        both = [None if codelet.count else declared_bundles(scope.program, each) for each in (table, priced)]
        was, now = ("" if each is None else f" of {each[0]:,.0f} bundles" for each in both)
        where = "[costs.core]" if costs.core else "[costs]"
        yield (
            table,
            f"{vertex_name(table, 0)} is timed at the price{now} that {where} of {machine.name} gives its "
            f"instructions, not at the cost{was} that was measured: [costs.codelets.{codelet.name}] in the machine's "
            "file keeps it",
        )


def memory_finding(program: Program, machine: MimdMachine) -> Finding:
    """Whether the program fits the tiles, and its code their executable region."""
    memory = measure_memory(program, machine)
    limit, peak = machine.tile.sram_bytes, memory.peak_bytes
    text = f"fullest tile {memory.peak_tile} needs {bytes_of(peak, limit)}"
    if peak > limit:
        text += f"; over by {show_bytes(peak - limit)}"
        for name, size in memory.largest(memory.peak_tile, 1):  # none where it only receives
            text += f", largest: {name} with {show_bytes(size)}"
    code = memory.code + memory.vertices
    fullest, region = int(code.argmax()), machine.tile.executable_bytes
    if not fits_executable(memory, machine):
        most = int(code[fullest])
        text += (
            f"; code and vertex state of tile {fullest} take {show_bytes(most, region)}, the executable region has "
            f"{show_bytes(region, most)}"
        )
    return Finding(name="memory", passed=peak <= limit and fits_executable(memory, machine), text=text)


def check_values(program: Program, compiled: Compiled, machine: MimdMachine, *, strict: bool = False) -> list[Finding]:
    """Run the program, the compiled one and the interpreter on the same values; compare spikes, states, outputs.

    One draw after another on the same memory, so that the next run sees what a run leaves behind; `strict` runs the
    program strictly in every draw.
    """
    other = next(interface_problems(program, compiled.program), None)
    if other is not None:
        return [Finding(name="values", passed=False, text=other)]
    subject, reference = Executor(program), Executor(compiled.program)
    undefine(subject, "f")
    undefine(reference, "f")
    wanted = {value for step, _, _ in program.supersteps() for _, value in step.defines}
    compared, gradients, operands = 0, _Gradients(compiled), Operands()
    spikes: Counter[str] = Counter()
    first: RecordedActivity | None = None
    for draw in DRAWS:
        inputs, meaning, trace = _drawn(compiled, draw, wanted, gradients.sizes)
        spikes.update(trace.spikes)
        for executor in (subject, reference):
            executor.write({name: value for name, value in inputs.items() if name in executor.program.inputs})
        try:
            poison = KINDS[draw.number % len(KINDS)] if strict else None
            vector = machine.tile.vector_bytes
            steps = subject.steps() if poison is None else strict_steps(subject, poison=poison, vector_bytes=vector)
            found = compare(subject, steps, reference, trace, meaning, poison=poison, observe=operands.for_next_run())
            outputs, wrong = (
                (0, None) if found.decided else wrong_output(subject, compiled, meaning, inputs, trace.largest_term)
            )
        except MappingError as failure:
            return [_values_failed(f"{failure}", draw.number)]
        compared += found.compared + outputs
        wrong = wrong or misfit(subject) or None
        if wrong is not None:
            found.decided = wrong
        if found.text is not None:
            return [_values_failed(found.text, draw.number)]
        if not compared:
            text = "nothing was compared: no superstep has a name or a `defines` entry that the compiled program knows"
            return [Finding(name="values", passed=False, text=text)]
        gradients.add(subject, meaning, trace.largest_term)
        first = first or reference.activity()
    agreed = (
        f"{compared:,} variables agree in {len(DRAWS)} draws, superstep by superstep, with the interpreter and the "
        "compiled program" + (", each vertex run alone on memory that holds only its slices" if strict else "")
    )
    values = Finding(name="values", passed=True, text=agreed)
    costs = [] if program is compiled.program else [_costs(program, compiled.program)]
    noted = [*_crossings(compiled.network, spikes, len(DRAWS)), *operands.findings()]
    assert first is not None
    return [values, gradients.finding(), *noted, *costs, _time(program, compiled, machine, first)]


def _drawn(
    compiled: Compiled, draw: Draw, wanted: set[str], sizes: dict[str, float]
) -> tuple[dict[str, np.ndarray], dict[str, Any], Trace]:
    """Inputs, and what the interpreter makes of them; drawn again where rounding could decide who fires, of which those
    are taken whose potentials stay furthest from their thresholds. No label is one that the network is certain of."""
    graph, network = compiled.graph, compiled.network
    partial, terms, thresholds = gradients_at_ids(graph), terms_of_sums(graph), rounded_potentials(network, graph)
    best: tuple[dict[str, np.ndarray], dict[str, Any], Trace] | None = None
    for again in range(MOST_DRAWN):
        inputs = drawn_inputs(network, replace(draw, again=again), sizes)
        for _ in range(3):
            spikes = Counter(dict.fromkeys((spikes_of(layer.name) for layer in network.layers), 0))
            trace = Trace(wanted, partial, terms, spikes, thresholds=thresholds)
            meaning = interpret(graph, graph_inputs(graph, inputs), trace)
            labels, share = _uncertain(graph, meaning, inputs[LABELS]), _share_of_scores(network, graph, meaning)
            if share == 1 and np.array_equal(labels, inputs[LABELS]):
                break
            inputs[LABELS] = labels
            for each in network.layers[-1].parameters:
                if each.role == "weights":
                    inputs[each.name] = inputs[each.name] * np.float32(share)
        if best is None or trace.closest > best[2].closest:
            best = inputs, meaning, trace
        if trace.closest > NEAR:
            break
    assert best is not None
    for name, value in best[1].items():
        best[2].note(name, value)
    return best


def _uncertain(graph: Graph, meaning: dict[str, Any], labels: np.ndarray) -> np.ndarray:
    """The labels, and the least likely class where the network is certain of one, in any timestep that is judged."""
    loss = next((op for op in graph.operations if op.kind == "cross_entropy"), None)
    if loss is None:
        return labels
    likely = softmax(np.float64(meaning[loss.inputs[0]]) * loss.attributes.scale)
    most = likely.reshape(-1, *likely.shape[-2:]).max(axis=0)
    certain = most[np.arange(labels.size), labels] > 1 - CERTAIN
    return np.where(certain, most.argmin(axis=-1), labels).astype(labels.dtype)


def _share_of_scores(network: SpikingNetwork, graph: Graph, meaning: dict[str, Any]) -> float:
    """The power of 2 by which scores are multiplied so that a softmax does not make the rounding of large ones larger
    than what is compared; 1 where sums of weights and spikes do not round."""
    loss = next((op for op in graph.operations if op.kind == "cross_entropy"), None)
    numbers = any(layer.norm or layer.sends_numbers for layer in network.layers)
    if loss is None or not numbers:
        return 1.0
    largest = float(np.abs(np.float64(meaning[loss.inputs[0]]) * loss.attributes.scale).max())
    return float(0.5 ** max(0, np.ceil(np.log2(max(largest, 1.0) / LARGEST_SCORE))))


def _values_failed(text: str, draw: int) -> Finding:
    return Finding(name="values", passed=False, text=text + (f" (in draw {draw + 1} of {len(DRAWS)})" if draw else ""))


class _Gradients:
    """Gradients against the interpreter's over all draws: largest relative error, least cosine, per parameter."""

    def __init__(self, compiled: Compiled):
        self.names = compiled.program.observables.gradients
        self.parameters = compiled.network.parameters
        self.errors: dict[str, float] = {}
        self.cosines: dict[str, float] = {}
        self.sizes: dict[str, float] = {}  # of the largest element, where there is one

    def add(self, subject: Executor, meaning: dict[str, Any], term_of: Callable[[str], float] = no_terms) -> None:
        """One more draw."""
        for parameter, name in self.names.items():
            held, expected = subject.read(name).astype(np.float64), np.asarray(meaning[name], np.float64)
            largest = float(np.abs(expected).max())
            self.sizes[parameter] = max(largest, self.sizes.get(parameter, 0.0)) or UNKNOWN
            error = float(np.abs(held - expected).max() / max(largest, term_of(name), LEAST))
            self.errors[parameter] = max(error, self.errors.get(parameter, 0.0))
            norm = float(np.linalg.norm(held) * np.linalg.norm(expected))
            if norm:
                cosine = float((held * expected).sum() / norm)
                self.cosines[parameter] = min(cosine, self.cosines.get(parameter, 1.0))

    def finding(self) -> Finding:
        """In words."""
        parts = []
        for parameter, error in self.errors.items():
            cosine = self.cosines.get(parameter)
            shown = "undefined (a gradient is all zero)" if cosine is None else f"{cosine:.7f}"
            parts.append(f"{self.parameters[parameter].short}: relative error {error:.1e}, cosine {shown}")
        return Finding(name="gradients", passed=max(self.errors.values()) <= RELATIVE_TOLERANCE, text="; ".join(parts))


def _crossings(network: SpikingNetwork, spikes: Counter[str], draws: int) -> list[Finding]:
    """A warning for layers of whose potentials none crossed the threshold in all draws, or all; nothing where some did
    of every layer."""
    said, turns = [], draws * network.timesteps * network.batch
    for layer in network.layers:
        crossed, every = spikes[spikes_of(layer.name)], turns * layer.neurons
        if layer.spiking and not layer.sends_numbers and crossed in (0, every):
            said.append(f"{crossed:,} of {every:,} potentials of '{layer.name}' crossed its threshold")
    if not said:
        return []
    text = f"{', '.join(said)}: what the program does in the other case was not met"
    return [Finding(name="draws", passed=True, warning=True, text=text)]


def _costs(program: Program, compiled: Program) -> Finding:
    """Codelets that both programs have, by name, with another cost, other loops, flops or code; and new ones.

    Reported, but never a reason to fail: the author decides what another implementation costs.
    """

    def costs(of: Program) -> dict[str, list[tuple[str, object]]]:
        found: dict[str, list[tuple[str, object]]] = {}
        for step, _, _ in of.supersteps():
            for codelet in (table.codelet for table in step.tables):
                cost = (codelet.cost, dict(codelet.extents), codelet.flops, codelet.code_bytes)
                found.setdefault(codelet.name, []).append((step.name, cost))
        return found

    ours, theirs = costs(program), costs(compiled)
    other = []
    for name, places in ours.items():
        known = [cost for _, cost in theirs.get(name, [])]
        steps = list(dict.fromkeys(step for step, cost in places if known and cost not in known))
        more = f" and {len(steps) - 1} more" if len(steps) > 1 else ""
        other += [f"'{name}' in superstep '{steps[0]}'{more}"] if steps else []
    new = [f"'{name}'" for name in ours if name not in theirs]
    within = bytes_within_tiles(program) - bytes_within_tiles(compiled)
    text = "those of the compiled program"
    if other or new or within > 0:
        said = [f"other than the compiled program's: {', '.join(other)}"] if other else []
        said += [f"of codelets that it does not have: {', '.join(new)}"] if new else []
        text = "; ".join(said) + ": taken as declared" if said else text
        text += f"; copies move {show_bytes(within)} more within tiles, which is not charged" if within > 0 else ""
    return Finding(name="costs", passed=True, text=text)


def _time(program: Program, compiled: Compiled, machine: MimdMachine, activity: RecordedActivity) -> Finding:
    """Cycles of the program compared with the compiled one, with the spikes of this check; never a reason to fail."""
    ours = retime(replace(compiled, program=program), machine, activity)
    text = (
        f"{ours.cycles:,} cycles ({1e3 * ours.seconds_per_training_step:.3g} ms) a training step of "
        f"{compiled.network.timesteps} timesteps and batch {compiled.network.batch}"
    )
    text += f"; unknown: {ours.unknown}" if ours.unknown else ""
    if program is not compiled.program and not ours.unknown:
        theirs = retime(compiled, machine, activity)
        times = ratio_of(ours, theirs)
        change, low, high = (f"{end - 1:+.2%}" for end in (times.middle, times.low, times.high))
        text += f", the compiled program takes {theirs.cycles:,} ({change}, interval {low} to {high})"
    return Finding(name="time", passed=True, text=text)


def load_build(path: Path) -> Callable[[Subject], Program]:
    """`build` from a user's Python file. The file is run: check only files you trust."""
    module = load_file(path, "defines build(subject), as --program takes it")
    return function_in(module, path, "build", "build(subject) that returns a Program")
