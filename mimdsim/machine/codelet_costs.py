"""Codelet costs that a machine brings: a table of its core's instructions, a rate per operation, or counted one by one.

[costs.core]                # cycles that an instruction keeps the core from issuing the next one
vertex_cycles = 40          # a vertex outside its code
load_cycles = 1             # and store, add, multiply, compare, divide, function, integer, branch, loop
...
[costs.core.sources]
...
[costs.core.halves]         # of numbers of two bytes, where they differ; [costs.core.bfloat16], fp8, int8: of
                            # these, if it computes with them; [costs.core.vectors]: of a vector unit
add_cycles = 3
[costs.core.halves.sources]
...
[costs]                     # instead of a core
vertex_bundles = 30         # a vertex outside its loops
bundles_per_operation = 1.5 # every instruction of the codelets that are not counted one by one
[costs.sources]
...
[costs.codelets.LifUpdate]
fixed = 40
terms = [{ bundles = 5, extents = ["spikes", "vectors"] }, { bundles = 18, extents = ["neurons"] }]
source = "derived: counted in the assembly of ..."
[costs.scaled.LifUpdate]    # what it costs here, times a factor
factor = 1.08
source = "measured within 3 %: ..."
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from mimdsim.base.schema import Section, SourcedSection
from mimdsim.base.search_path import Name
from mimdsim.base.units import HOW, is_source, kind_of, less_certain

NATIVE = "colossus"  # the instruction set that the costs of codelets and library vertices are counted for
NATIVE_VERTEX_BUNDLES = 12  # of its vertices: launch and return
NATIVE_VECTOR_BYTES = 8  # and the width of its loads, stores and arithmetic
MOST_BUNDLES = 1e6  # a turn, or outside all loops; more is a mistake


def _check_source(text: str) -> str:
    if not is_source(text):
        raise ValueError(HOW)
    return text


class CountedTerm(Section):
    """Bundles for every turn of a loop nest."""

    bundles: float = Field(ge=0, le=MOST_BUNDLES)
    """Bundles of a turn."""
    extents: tuple[str, ...] = Field(min_length=1, max_length=8)
    """The loops whose extents are multiplied, as the codelet names them (`mimdsim explain`); 'vectors' are those of the
    machine's width."""


class CountedCodelet(Section):
    """What a vertex costs one worker context."""

    fixed: float = Field(ge=0, le=MOST_BUNDLES)
    """Bundles outside all loops."""
    terms: tuple[CountedTerm, ...] = Field(max_length=64)
    """Bundles of its loop levels."""
    source: Annotated[str, AfterValidator(_check_source)]
    """Where the count is from, as 'kind: where'."""


class ScaledCodelet(Section):
    """What a codelet's bundles or cycles are multiplied by, after all else."""

    factor: float = Field(gt=0, le=100)
    """The factor."""
    source: Annotated[str, AfterValidator(_check_source)]
    """Where the factor is from, as 'kind: where'."""


Cycles = Annotated[float, Field(ge=0, le=1e4)]


class InstructionCycles(SourcedSection):
    """Issue cycles of an instruction by class (`program/loops.py`). Within a core, what halves, bfloat16 and
    vectors leave out is as the core has it. In loops over vectors an instruction is of `tile.vector_bytes`."""

    load_cycles: Cycles | None = None
    """Of a load."""
    store_cycles: Cycles | None = None
    """Of a store."""
    add_cycles: Cycles | None = None
    """Of an addition or subtraction."""
    multiply_cycles: Cycles | None = None
    """Of a multiplication."""
    multiply_add_cycles: Cycles | None = None
    """Of a multiplication fused with an addition, taken wherever a turn has both."""
    compare_cycles: Cycles | None = None
    """Of a comparison."""
    divide_cycles: Cycles | None = None
    """Of a division."""
    function_cycles: Cycles | None = None
    """Of a function such as a root or an exponential."""
    integer_cycles: Cycles | None = None
    """Of an operation on whole numbers or addresses."""
    branch_cycles: Cycles | None = None
    """Of a branch."""
    loop_cycles: Cycles | None = None
    """Of what closes a turn of a loop; 0 with loops in hardware."""
    matrix_flops_per_cycle: float | None = Field(gt=0, le=1e6, default=None)
    """Rate of a unit for products of matrices."""


OPTIONAL = ("multiply_add_cycles", "matrix_flops_per_cycle")


class Core(InstructionCycles):
    """What the instructions of a core take, so that every codelet has a cost. All but multiply_add_cycles and
    matrix_flops_per_cycle are needed."""

    vertex_cycles: float = Field(ge=0, le=MOST_BUNDLES)
    """A vertex outside its code: launch and return."""
    load_use_cycles: Cycles = 0
    """Added to every load, where the core stalls until its value is there."""
    issue_width: float = Field(ge=1, le=16, default=1)
    """Instructions issued in a cycle at most."""
    halves: InstructionCycles | None = None
    """What differs for halves."""
    bfloat16: InstructionCycles | None = None
    """What differs for bfloat16, with which the core then computes; else it converts them to float32 and back."""
    fp8: InstructionCycles | None = None
    """What differs where weights are E4M3 or E5M2, with which the core then computes; else it converts them."""
    int8: InstructionCycles | None = None
    """What differs where weights are whole numbers of a byte and multiply spikes; else it converts them."""
    vectors: InstructionCycles | None = None
    """What differs on vectors, on which loops over elements without branches run then, too."""

    @model_validator(mode="after")
    def _every_class(self) -> Core:
        every = [key for key in InstructionCycles.model_fields if key not in (*OPTIONAL, "sources")]
        if absent := [key for key in every if getattr(self, key) is None]:
            raise ValueError(f"lacks {', '.join(absent)}")
        return self

    def cycles_of(self, *, narrow: str = "", vectors: bool = False) -> dict[str, tuple[float, str]]:
        """(cycles, kind of source) by the name of what takes them, such as 'load_cycles'; narrow: 'halves', 'bfloat16',
        'fp8', 'int8' or '', for float32."""
        tables = (self, self.vectors if vectors else None, getattr(self, narrow) if narrow else None)
        return {
            key: (getattr(table, key), kind_of(source))
            for table in tables
            if table is not None
            for key, source in table.sources.items()
        }


class CodeletCosts(SourcedSection):
    """Codelets by name, each counted; and for all others, if given, a core or a rate; and codelets whose costs are
    scaled."""

    bundles_per_operation: float | None = Field(gt=0, le=1e4, default=None)
    """The rate: bundles for each instruction of a codelet that this project has counted one by one; in a library
    vertex, whose instructions are those of another library, for each vector (of 4-byte elements) loaded, computed or
    stored."""
    vertex_bundles: float | None = Field(ge=0, le=MOST_BUNDLES, default=None)
    """With the rate: launch, frame and fields of a vertex, outside its loops."""
    core: Core | None = None
    """Cycles of a core's instructions, from which every codelet is counted."""
    codelets: dict[Name, CountedCodelet] = Field(default_factory=dict)
    """Codelets by name, each counted one by one."""
    scaled: dict[Name, ScaledCodelet] = Field(default_factory=dict)
    """Codelets by name whose costs are multiplied by a factor."""

    @model_validator(mode="after")
    def _whole(self) -> CodeletCosts:
        if (self.bundles_per_operation is None) != (self.vertex_bundles is None):
            raise ValueError("a rate needs both bundles_per_operation and vertex_bundles")
        if self.bundles_per_operation is not None and self.core is not None:
            raise ValueError("holds a rate and a core: give one of them")
        if self.bundles_per_operation is None and not (self.core or self.codelets or self.scaled):
            raise ValueError(
                "holds no costs: give a core, a rate (bundles_per_operation, vertex_bundles), codelets or scaled"
            )
        return self

    @property
    def rate_kind(self) -> str:
        """The less certain kind of source of the two numbers of the rate."""
        return less_certain(*(kind_of(self.sources[key]) for key in ("bundles_per_operation", "vertex_bundles")))
