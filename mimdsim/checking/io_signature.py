"""Whether a program has the inputs and outputs of the compiled one, in the same formats."""

from __future__ import annotations

from collections.abc import Iterator

from mimdsim.base.errors import near
from mimdsim.program import Program


def interface_problems(program: Program, compiled: Program) -> Iterator[str]:
    """Inputs and outputs of the compiled program that are missing or have another format, in words."""
    if program is compiled:
        return
    for kind, ours, theirs in (
        ("input", program.inputs, compiled.inputs),
        ("output", program.outputs, compiled.outputs),
    ):
        for value, name in theirs.items():
            if value not in ours:
                yield f"{kind} '{value}' of the compiled program is missing{near(value, ours)}; add it to the {kind}s"
                continue
            held, known = program.variables[ours[value]], compiled.variables[name]
            what = f"{kind} '{value}', held in '{held.name}',"
            if held.shape != known.shape:
                yield f"{what} has shape {list(held.shape)}, the compiled program's has {list(known.shape)}"
            elif known.persistent and not held.persistent:
                yield f"{what} does not persist: the next training step would find other values; make it persistent"
    read_by = {name: value for value, name in compiled.inputs.items()}
    for value, name in compiled.outputs.items():
        given = read_by.get(name)
        if given in program.inputs and program.outputs.get(value, program.inputs[given]) != program.inputs[given]:
            yield (
                f"output '{value}' is left in '{program.outputs[value]}', but the next training step begins with what "
                f"'{program.inputs[given]}' holds (input '{given}'): leave it there, as the compiled program does"
            )
    for name, known in compiled.variables.items():
        held = program.variables.get(name, known)
        if (held.dtype, held.item_bytes) != (known.dtype, known.item_bytes):
            yield (
                f"variable '{name}' is {held.dtype} in {held.item_bytes} bytes, the compiled program's is "
                f"{known.dtype} in {known.item_bytes}, for which its codelets and costs are made: give a variable of "
                "another format another name"
            )
