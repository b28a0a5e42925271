"""Check a kernel, a program of any kind, before it meets hardware: rules, memory, values against a reference, time.

Three lines put a kernel under pytest:

    from mimdsim.checking import check_kernel
    result = check_kernel(build, machine="bow", reference=reference)
    assert result.passed, result
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base import __version__
from mimdsim.base.errors import DescriptionError, MimdsimError
from mimdsim.base.files import read_whole
from mimdsim.base.identity import code_digest, file_digest
from mimdsim.base.rng import stream
from mimdsim.base.shown import Sheet, Shown
from mimdsim.base.units import show_bytes
from mimdsim.base.user_code import call_users, function_in, load_file
from mimdsim.checking.comparison import RELATIVE_TOLERANCE, misfit
from mimdsim.checking.coverage import Coverage, Operands, more_vertices
from mimdsim.checking.kernel_values import (
    KINDS_OF_DRAWS,
    draw_inputs,
    expected_outputs,
    first_wrong,
    floor_of,
)
from mimdsim.checking.program import MOST_SAID, memory_finding, rules_finding, rules_notes, with_missing_exchanges
from mimdsim.compiler import measure_memory
from mimdsim.execution import Executor, execute_strictly
from mimdsim.execution.execute import HALF_BYTES, Observer, halves_of
from mimdsim.execution.scratch import KINDS, Poison, undefine
from mimdsim.execution.strict import Doubts
from mimdsim.machine import Given, MimdMachine, changed_machine, tiled_machine
from mimdsim.pipeline import detail_of, time_by_hand
from mimdsim.pipeline.detail import is_kept
from mimdsim.pipeline.what_if import Request, difference, largest_gains_first, machine_levers
from mimdsim.profile import Finding, NamedFile, RunProfile, TiledProfile, WhatIf
from mimdsim.profile.detail import Detail
from mimdsim.profile.records import SCHEMA_VERSION
from mimdsim.program import Program, RecordedActivity
from mimdsim.program.exchanges import bytes_within_tiles

# ---- what a check of a program or kernel returns


LABELS = {"good": "ok  ", "note": "note", "bad": "FAIL"}


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckResult(Shown):
    """The findings of a check; str() is one line each. heading: what was checked."""

    machine: MimdMachine
    findings: tuple[Finding, ...]
    heading: str = ""

    @property
    def passed(self) -> bool:
        """Whether every finding passed."""
        return all(finding.passed for finding in self.findings)

    def __str__(self) -> str:
        lines = [f"{LABELS[finding.mood]}  {finding.name}: {finding.text}" for finding in self.findings]
        return "\n".join([self.heading, *lines] if self.heading else lines)

    def _sheet(self) -> Sheet:
        head = f"check {'passed' if self.passed else 'FAILED'} on {self.machine.name}"
        by_mood = sorted(self.findings, key=lambda one: list(LABELS)[::-1].index(one.mood))
        rows = [(LABELS[one.mood].strip(), one.name, one.text) for one in by_mood]
        return Sheet(f"{head}, {self.heading}" if self.heading else head, rows)


Build = Callable[[MimdMachine], Program]
Reference = Callable[..., Any]
Inputs = Callable[[np.random.Generator], dict[str, Any]]
READS_EARLIER = "a run reads what an earlier run has left; write it before it is read"
AT_LEAST, MORE = 3, 15  # further draws, of values alone: at least, and where something is not exercised
OF_ITS_OWN = "runs on fresh memory differ too: a codelet draws random numbers, or keeps something outside its slices"


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelResult(CheckResult):
    """The result of checking a kernel. program, activity: None if there is none to time; tiled: the profile of one
    run, None where the program breaks a rule or could not be run."""

    program: Program | None = None
    activity: RecordedActivity | None = None
    tiled: TiledProfile | None = None

    @property
    def cycles(self) -> int:
        """Of one run; raises MimdsimError if the kernel could not be timed."""
        if self.tiled is None:
            raise MimdsimError(f"the kernel was not timed:\n{self}")
        return self.tiled.cycles

    def detail(self, run: str) -> Detail | None:
        """Every tile in every superstep; None if there is no program to time, or too large a one.

        run: the config_sha256 of its profile.

            >>> result.detail(profile.config_sha256)  # doctest: +SKIP
        """
        if self.tiled is None or self.program is None or self.activity is None or not is_kept(self.program):
            return None
        memory = measure_memory(self.program, self.machine)
        return detail_of(self.program, self.machine, self.activity, memory, run)


def check_kernel(
    build: Build,
    machine: Given = "bow",
    *,
    reference: Reference,
    inputs: Inputs | None = None,
    strict: bool = True,
    draws: int = 5,
    tolerance: float = RELATIVE_TOLERANCE,
) -> KernelResult:
    """Check the program that `build(machine)` returns: the rules of the machine, its memory, and values against
    `reference`.

    build: makes the program for a machine. machine: a tiled one, itself or by name. reference: called with the
    program's inputs by parameter name, as arrays; returns the output as an array, or several in a dict by name. inputs:
    called with a random generator for each draw; returns arrays by input name, for those that should not be random.
    draws: how many draws of inputs are run. strict: also run vertex by vertex on poisoned memory. tolerance: of floats,
    relative to the largest value of an output; whole numbers must be equal. Raises DescriptionError, with the user's
    own line, for functions that fail or do not fit the program.

        >>> def doubled(machine):
        ...     k = mimdsim.Kernel("doubled", machine)
        ...     x = k.input(k.variable("x", (64,)))
        ...     k.elementwise("multiply", x, 2.0, out=k.output(k.variable("y", (64,))))
        ...     return k.program()
        >>> mimdsim.check_kernel(doubled, "tiny", reference=lambda x: 2 * x).passed
        True
    """
    if draws < 1:
        raise DescriptionError("check_kernel", [f"draws = {draws}: values need at least one"])
    if not 0 <= tolerance < 1:
        raise DescriptionError("check_kernel", [f"tolerance = {tolerance!r} must be a number from 0 to below 1"])
    on = tiled_machine(machine, "a kernel runs on a tiled machine")
    program = call_users("build(machine)", build, on)
    if not isinstance(program, Program):
        raise DescriptionError("build(machine)", [f"must return a Program, returned {type(program).__name__}"])
    if not program.outputs:
        raise DescriptionError("build(machine)", ["returns a program without outputs; name one with Kernel.output"])
    try:
        program = with_missing_exchanges(program)
    except MimdsimError as broken:
        return KernelResult(machine=on, findings=(Finding(name="rules", passed=False, text=str(broken)),))
    findings = [rules_finding(program, on), memory_finding(program, on)]
    if not findings[0].passed:
        findings.append(Finding(name="values", passed=False, text="not run: fix what breaks the rules first"))
        return KernelResult(machine=on, findings=tuple(findings), program=program)
    findings += rules_notes(program, on)
    drawn = [draw_inputs(program, inputs, stream(number, "kernel"), number) for number in range(draws)]
    given = inputs is not None
    compared, activity = _values(program, on, drawn, reference, tolerance, strict=strict, given=given)
    if all(finding.passed for finding in compared):
        further = (
            draw_inputs(program, inputs, stream(draws + more, "kernel"), KINDS_OF_DRAWS + more) for more in range(MORE)
        )
        compared[0] = _exercised(program, drawn, further, reference, tolerance, compared[0])
    findings += compared
    tiled = None
    if activity is not None:
        time, tiled = _time(program, on, activity)
        findings.append(time)
    return KernelResult(machine=on, findings=tuple(findings), program=program, activity=activity, tiled=tiled)


def _values(
    program: Program,
    machine: MimdMachine,
    drawn: list[dict[str, np.ndarray]],
    reference: Reference,
    tolerance: float,
    *,
    strict: bool,
    given: bool,
) -> tuple[list[Finding], RecordedActivity | None]:
    """Findings of the runs with each of the drawn inputs, up to the first that fails, and what the first one recorded.

    All runs share one memory, as on a device; the results must equal those with fresh memory.
    """
    used = Executor(program, rounded=True)
    undefine(used, "f", KINDS[1])  # fresh memory holds zeros here, but arbitrary data on a device
    start = {name: used.arrays[name].copy() for name, held in program.variables.items() if held.persistent}
    activity: RecordedActivity | None = None
    elements, largest_floor, operands, doubts = 0, 0.0, Operands(), Doubts()
    try:
        _outputs_of(used, drawn[-1], {})
        for number, values in enumerate(drawn):
            fresh = Executor(program, rounded=True)
            fresh.write(values)
            held = {name: fresh.arrays[program.inputs[name]].copy() for name in values}
            wanted = expected_outputs(program, reference, held)
            outputs = _outputs_of(fresh, values, {}, operands.for_next_run())
            activity = activity or fresh.activity()
            if wrong := misfit(fresh):
                return [Finding(name="values", passed=False, text=wrong)], activity
            said = f"inputs {number + 1} of {len(drawn)}"
            floor = floor_of(program, held)
            largest_floor = max(floor, largest_floor)
            if wrong := first_wrong(program, outputs, wanted, tolerance, "the reference gives", floor):
                cause = _left_slices(program, machine, values) if strict else ""
                return [Finding(name="values", passed=False, text=f"{wrong} ({said}){cause}")], activity
            if wrong := first_wrong(program, _outputs_of(used, values, start), outputs, 0.0, "the first run leaves"):
                fresh = Executor(program, rounded=True)
                alike = not first_wrong(program, _outputs_of(fresh, values, {}), outputs, 0.0, "")
                text = f"{wrong} ({said}): {READS_EARLIER if alike else OF_ITS_OWN}"
                return [Finding(name="again", passed=False, text=text)], activity
            if strict:
                left = _vertex_by_vertex(program, machine, values, KINDS[number % len(KINDS)], doubts)
                if wrong := first_wrong(program, left, wanted, tolerance, "the reference gives", floor):
                    text = f"vertex by vertex, {wrong} ({said})"
                    return [Finding(name="strict", passed=False, text=text)], activity
            elements = sum(array.size for array in outputs.values())
    except DescriptionError:
        raise
    except MimdsimError as failure:
        return [Finding(name="values", passed=False, text=str(failure))], activity
    said = f"{elements:,} elements match the reference, for {len(drawn)} draws of inputs"
    said += _compared_how(program, tolerance, largest_floor)
    if given and len(drawn) > 1 and all(_same(drawn[0], other) for other in drawn[1:]):
        said += "; inputs(rng) gives the same every time: draw from rng"
    findings = [Finding(name="values", passed=True, text=f"{', '.join(program.outputs)}: {said}")]
    return [*findings, *_passed(operands, doubts, strict=strict)], activity


def _vertex_by_vertex(
    program: Program, machine: MimdMachine, values: dict[str, np.ndarray], poison: Poison, doubts: Doubts
) -> dict[str, np.ndarray]:
    """The outputs of a strict run; adds what is doubtful of its costs."""
    alone = Executor(program, rounded=True)
    alone.write(values)
    doubts.add(execute_strictly(alone, poison=poison, vector_bytes=machine.tile.vector_bytes))
    return {name: alone.read(name) for name in program.outputs}


def _left_slices(program: Program, machine: MimdMachine, values: dict[str, np.ndarray]) -> str:
    """What a strict run refuses, which may be why values are wrong; nothing where it runs."""
    try:
        _vertex_by_vertex(program, machine, values, KINDS[0], Doubts())
    except MimdsimError as refused:
        return f"; and vertex by vertex: {refused}"
    return ""


def _passed(operands: Operands, doubts: Doubts, *, strict: bool) -> Iterator[Finding]:
    """What all runs showed beside their values."""
    yield Finding(name="again", passed=True, text="consecutive runs on the same memory give the same")
    yield from operands.findings()
    if strict:
        text = "every vertex alone, on poisoned memory, gives the same; none leaves its slices"
        yield Finding(name="strict", passed=True, text=text)
    if doubtful := doubts.texts():
        text = f"{'; '.join(doubtful[:MOST_SAID])}; else correct its cost, extents or count"
        yield Finding(name="cost", passed=True, warning=True, text=text)
    if doubts.wide:
        text = "; ".join([*doubts.wide.values()][:MOST_SAID])
        yield Finding(name="precision", passed=True, warning=True, text=text)


def _compared_how(program: Program, tolerance: float, floor: float) -> str:
    """How near outputs are to those of the reference. floor: of outputs that are zeros alone."""
    text = ""
    if any(program.variables[name].dtype.startswith("f") for name in program.outputs.values()):
        text += f", to {tolerance:g} of the largest (of zeros alone: to {floor:.1e})"
    if halves_of(program):
        text += "; halves are rounded when they are written, sums within a vertex are wider"
    return text


def _exercised(
    program: Program,
    drawn: list[dict[str, np.ndarray]],
    further: Iterator[dict[str, np.ndarray]],
    reference: Reference,
    tolerance: float,
    found: Finding,
) -> Finding:
    """The finding of the drawn values, with what of users' codelets they do not exercise: further inputs are drawn, the
    first AT_LEAST in any case, until all is met. Those for which the reference gives no number are passed over."""
    seen = Coverage(program)
    for values in drawn if seen else ():
        _outputs_of(Executor(seen.program, rounded=True), values, {})
    number, overflow = 0, ""
    halves = any(held.item_bytes == HALF_BYTES for held in program.variables.values())
    for number, values in enumerate(further, 1):
        if number > AT_LEAST and not (seen.not_exercised()):
            number -= 1
            break
        fresh = Executor(seen.program, rounded=True)
        fresh.write(values)
        held = {name: fresh.arrays[program.inputs[name]].copy() for name in values}
        try:
            with np.errstate(all="ignore"):
                wanted = expected_outputs(program, reference, held)
        except DescriptionError:  # too large for the reference or its format
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            outputs = _outputs_of(fresh, values, {})
        floats = [each for each in outputs.values() if each.dtype.kind == "f"]
        if halves and not all(np.isfinite(each).all() for each in floats):
            largest = max(float(np.abs(each).max(initial=0.0)) for each in held.values() if each.dtype.kind == "f")
            overflow = f"; halves overflow with inputs up to {largest:,.0f}, where the reference does not"
            continue
        if wrong := first_wrong(program, outputs, wanted, tolerance, "the reference gives", floor_of(program, held)):
            return replace(found, passed=False, text=f"{wrong} (further inputs {number})")
    missed = seen.not_exercised()
    drawn_text = f"for {len(drawn)} draws of inputs"
    text = found.text.replace(drawn_text, f"{drawn_text} and {number} further ones") + overflow
    if missed:
        text += f"; never exercised: {'; '.join(missed[:MOST_SAID])}"
        text += f" and {len(missed) - MOST_SAID} more" if len(missed) > MOST_SAID else ""
    return replace(found, text=text)


def _same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(value, other[name]) for name, value in one.items())


def _outputs_of(
    executor: Executor,
    given: dict[str, np.ndarray],
    persistent: dict[str, np.ndarray],
    observe: Observer | None = None,
) -> dict[str, np.ndarray]:
    """Outputs by name; persistent variables, which may keep counts, begin as given. observe: superstep by superstep."""
    for name, value in persistent.items():
        executor.arrays[name][...] = value
    executor.write(given)
    executor.run(observe=observe)
    return {name: executor.read(name) for name in executor.program.outputs}


def _time(program: Program, machine: MimdMachine, activity: RecordedActivity) -> tuple[Finding, TiledProfile | None]:
    try:
        tiled = time_by_hand(program, machine, activity)
    except MimdsimError as refused:
        return Finding(name="time", passed=False, text=str(refused)), None
    seconds = tiled.seconds_per_training_step
    time = f"{1e6 * seconds:.3g} us" if seconds < 1e-3 else f"{1e3 * seconds:,.4g} ms"
    parts = f"compute {tiled.compute_cycles:,}, exchange {tiled.exchange_cycles:,}, sync {tiled.sync_cycles:,}"
    text = f"{tiled.cycles:,} cycles ({time}) a run on {machine.name}: {parts}"
    text += f"; unknown: {tiled.unknown}" if tiled.unknown else ""
    if tiled.spans:
        span = max(tiled.spans, key=lambda one: one.cycles)
        text += f"; longest superstep '{span.name}' with {span.cycles:,}"
    if within := bytes_within_tiles(program):
        text += f"; copies of {show_bytes(within)} within tiles are assumed to cost nothing: Kernel.copy has a cost"
    return Finding(name="time", passed=True, text=text), tiled


# ---- a kernel given as a file: what it defines, and the profile for its report


HOLDS = "defines build(machine) -> Program and a numpy function reference(...)"


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelFile:
    """What a file defines: build(machine), a reference, and if given inputs(rng) and TOLERANCE. title: the first line
    of its docstring."""

    path: Path
    title: str
    build: Build
    reference: Reference
    inputs: Inputs | None
    tolerance: float

    def check(self, machine: MimdMachine, *, strict: bool) -> KernelResult:
        """As `check_kernel`."""
        return check_kernel(
            self.build, machine, reference=self.reference, inputs=self.inputs, strict=strict, tolerance=self.tolerance
        )

    def advice(self, result: KernelResult, asked: Request | None) -> tuple[WhatIf, ...]:
        """What a machine that has more of something would save, most first: the kernel is built for it, checked and
        timed again; and what more vertices would. asked: for the commands."""
        found = []
        for lever in machine_levers(result.machine) if result.tiled is not None else ():
            with contextlib.suppress(MimdsimError):  # it is no machine, or the kernel is not for it
                after = self.check(changed_machine(result.machine, lever.changes), strict=False).tiled
                command = "" if asked is None else asked.command(lever.changes)
                if after is not None and result.tiled is not None:
                    found.append(difference(result.tiled, after, lever, command))
        if result.tiled is not None and result.program is not None and result.tiled.spans:
            spread = more_vertices(result.program, result.machine, result.tiled)
            found += [] if spread is None else [spread]
        return largest_gains_first(found)


def load_kernel(path: Path, reference: str = "reference") -> KernelFile:
    """The kernel of a file, which is run; raises DescriptionError for what is missing.

    reference: the name of the function that says what the outputs must be.
    """
    module = load_file(path, HOLDS)
    build = function_in(module, path, "build", "build(machine) that returns a Program")
    named = function_in(module, path, reference, f"{reference}(...) that takes the inputs and returns the outputs")
    inputs = getattr(module, "inputs", None)
    tolerance = getattr(module, "TOLERANCE", RELATIVE_TOLERANCE)
    if not isinstance(tolerance, float | int) or not 0 <= tolerance < 1:
        raise DescriptionError(str(path), [f"TOLERANCE = {tolerance!r} must be a number from 0 to below 1"])
    title = (module.__doc__ or "").strip().partition("\n")[0].rstrip(".") or path.stem
    return KernelFile(
        path=path,
        title=title,
        build=build,
        reference=named,
        inputs=inputs if callable(inputs) else None,
        tolerance=float(tolerance),
    )


def profile_of(kernel: KernelFile, result: KernelResult, asked: Request | None = None) -> RunProfile:
    """The profile for the report of a checked kernel; asked: for the commands of its advice."""
    said = read_whole(kernel.path) + result.machine.model_dump_json().encode()
    return RunProfile(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        config_sha256=hashlib.sha256(said).hexdigest(),
        inputs=(NamedFile(key="kernel", path=str(kernel.path), sha256=file_digest(kernel.path)),),
        code_sha256=code_digest(),
        seed=0,
        workload=kernel.path.stem,
        workload_title=kernel.title,
        network="",
        timesteps=1,
        batch=1,
        tiled=result.tiled,
        gpus=(),
        training=None,
        activity=(),
        warnings=(),
        advice=kernel.advice(result, asked),
        findings=tuple(finding for finding in result.findings if finding.name != "time"),  # the profile shows it better
    )
