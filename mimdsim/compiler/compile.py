"""The walk of a compilation: pass by pass, each watched by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from mimdsim.base.errors import MappingError, MimdsimError
from mimdsim.base.files import write_atomically
from mimdsim.base.out_of_memory import keep_freed_memory
from mimdsim.base.shown import Shown
from mimdsim.compiler.elimination import drop_dead_code, stash_in_place
from mimdsim.compiler.liveness import Memory, measure_memory, memory_of, variables_behind
from mimdsim.compiler.lower import lower
from mimdsim.compiler.memory_report import check_fits, refuse_hopeless
from mimdsim.compiler.merge import merge_levels, merge_supersteps
from mimdsim.compiler.place.layer_partition import Placement
from mimdsim.compiler.place.placement import place, place_arrays
from mimdsim.costs.isa_costs import with_machine_costs
from mimdsim.costs.memory_behind_tiles import refuse_behind_tiles
from mimdsim.graph import Graph, SpikingNetwork, inference_graph, training_graph
from mimdsim.graph.names import LOSS
from mimdsim.machine import MimdMachine, Reads
from mimdsim.program import Program, verify
from mimdsim.program.exchanges import plan_exchanges
from mimdsim.program.printer import listing
from mimdsim.workload.description.mapping import MappingOptions

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class Compiled(Shown):
    """A program with its placement and its memory.

    reads: what the compiler asked the machine for; every machine with these values gets this program. memory_reads: the
    same of its memory.
    """

    graph: Graph
    network: SpikingNetwork
    program: Program
    placement: Placement
    memory: Memory
    reads: Reads
    memory_reads: Reads

    def on(self, machine: MimdMachine) -> Compiled | None:
        """What compiling for `machine` gives, whether it fits or not: the same program, its memory measured anew where
        that depends on the machine; None if the compiler would make another program for it."""
        if not self.reads.same_on(machine):
            return None
        return self if self.memory_reads.same_on(machine) else self.measured(machine)

    def measured(self, machine: MimdMachine) -> Compiled:
        """The same program with its memory on `machine`, which must have as many tiles."""
        reads = Reads()
        return replace(self, memory=memory_of(self.program, reads.watch(machine)), memory_reads=reads)


class Watch:
    """Runs passes: counts them, names them in an error, and writes what they made, at a machine's costs, in `dump`."""

    def __init__(self, machine: MimdMachine, dump: Path | None = None):
        self.machine, self.dump = machine, dump
        self.passes = 0

    def __call__(self, name: str, run: Callable[..., T], *given: Any) -> T:
        try:
            made = run(*given)
        except MimdsimError:
            raise
        except Exception as failure:
            failure.add_note(f"in compiler pass '{name}'")
            raise
        self.passes += 1
        if self.dump is not None and isinstance(made, Program):
            text = listing(with_machine_costs(made, self.machine))
            write_atomically(self.dump / f"{self.passes:02d}_{name.replace(' ', '_')}.txt", text)
        return made


def compile_graph(
    graph: Graph,
    network: SpikingNetwork,
    machine: MimdMachine,
    options: MappingOptions,
    *,
    dump: Path | None = None,
    must_fit: bool = True,
) -> Compiled:
    """The program of a graph of training or inference on `machine`.

    Raises DoesNotFit when tiles or memory are too few, MappingError when an operation has no lowering or the result
    breaks a rule of the machine (which would be a bug of the compiler).
    """
    keep_freed_memory()
    refuse_hopeless(network, machine, options, must_fit)
    watch = Watch(machine, dump)
    reads, memory_reads = Reads(), Reads()
    placement, program = merged_program(graph, network, reads.watch(machine), options, watch)
    program = watch("plan exchanges", plan_exchanges, program)
    tiles = reads.watch(machine)
    problems = watch("verify", verify, program, tiles.chip.tiles * tiles.links.chips)
    if problems:
        raise MappingError("\n".join(problem.message for problem in problems))
    memory = watch("measure memory", measure_memory, program, memory_reads.watch(machine))
    if must_fit:

        def peak_of(changed: SpikingNetwork, other: MappingOptions) -> int:
            graph_of = training_graph if graph.producer(LOSS) else inference_graph
            return compile_graph(graph_of(changed), changed, machine, other, must_fit=False).memory.peak_bytes

        check_fits(program, memory, machine, network, options, peak_of)
    return Compiled(
        graph=graph,
        network=network,
        program=program,
        placement=placement,
        memory=memory,
        reads=Reads(values=dict(reads.values)),  # the placement keeps the watched machine
        memory_reads=memory_reads,
    )


def merged_program(
    graph: Graph, network: SpikingNetwork, machine: MimdMachine, options: MappingOptions, watch: Watch
) -> tuple[Placement, Program]:
    """The placement and the program before its exchanges are planned; raises as `compile_graph`."""
    contexts = machine.tile.working_contexts
    if network.spikes == "dense":
        placement = watch("place", place_arrays, network, machine, options)
    else:
        placement = watch("place", place, network, machine.chip.tiles, contexts, options, machine.links.chips)
    program = watch("lower", lower, graph, network, placement, options, machine)
    if "stash_in_place" in options.rules:
        program = watch("stash in place", stash_in_place, program)
    if "dead_code" in options.rules:
        program = watch("drop dead code", drop_dead_code, program)
    merge = merge_levels if "merge" in options.rules else merge_supersteps
    program = watch("merge supersteps", merge, program)
    behind = variables_behind(program, options.behind_tiles)
    program = replace(program, strip_columns=options.strip_columns, behind_tiles=behind)
    refuse_behind_tiles(program, machine)
    return placement, program
