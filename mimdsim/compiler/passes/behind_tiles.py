"""Which variables of a compiled program lie behind the tiles (`mapping.behind_tiles`)."""

from __future__ import annotations

from collections.abc import Collection

from mimdsim.program import Program

OF_CATEGORY = {"optimiser": "optimiser", "weights": "weights"}
STASHED = ("neuron states", "spike ids")  # categories of what is kept for the backward pass


def variables_behind(program: Program, kinds: Collection[str]) -> tuple[str, ...]:
    """Names of the variables of some kinds, in the order of the program. "stash": sequences, an entry for each
    timestep, of spikes and states."""
    categories = {OF_CATEGORY[kind] for kind in kinds if kind != "stash"}
    sequences = _sequences(program) if "stash" in kinds else frozenset()
    return tuple(
        name
        for name, variable in program.variables.items()
        if variable.category in categories or (name in sequences and variable.category in STASHED)
    )


def _sequences(program: Program) -> frozenset[str]:
    """Variables of which a superstep takes the entry of a timestep."""
    found = set()
    for superstep, _, _ in program.supersteps():
        for copy in superstep.copies:
            found |= {copy.source} if copy.source_shift is not None else set()
            found |= {copy.target} if copy.target_shift is not None else set()
        for table in superstep.tables:
            found |= {table.operands[field.name] for field in table.codelet.fields if field.shift is not None}
    return frozenset(found)
