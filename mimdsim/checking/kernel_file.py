"""A kernel given as a file: what it defines, and the profile for its report."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

from mimdsim.base import __version__
from mimdsim.base.errors import DescriptionError, MimdsimError
from mimdsim.base.files import read_whole
from mimdsim.base.identity import code_digest, file_digest
from mimdsim.base.user_code import function_in, load_file
from mimdsim.checking.comparison import RELATIVE_TOLERANCE
from mimdsim.checking.coverage import more_vertices
from mimdsim.checking.kernel import Build, Inputs, KernelResult, Reference, check_kernel
from mimdsim.machine import MimdMachine, changed_machine
from mimdsim.pipeline.what_if import Request, difference, largest_gains_first, machine_levers
from mimdsim.profile import NamedFile, RunProfile, WhatIf
from mimdsim.profile.records import SCHEMA_VERSION

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
