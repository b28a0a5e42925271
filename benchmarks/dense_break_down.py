"""Where a timestep of dense spikes goes on tiles: planned products, neurons, arranging, sequences, exchange and sync.

    python benchmarks/dense_break_down.py [--workload snntorch-mnist] [--page docs/dense-spikes.md]

Compiles and times one training step on a Mk2 and a Bow; with --page writes the page, whose words are here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mimdsim.base.files import write_atomically
from mimdsim.compiler import Compiled
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.profile import Span, TiledProfile
from mimdsim.program import RecordedActivity
from mimdsim.run import compile_workload, retime
from mimdsim.workload import load_workload

NOTHING = RecordedActivity(ids={}, counts={}, dropped={})  # no cost of dense spikes depends on them
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("products: partial products", ("multiply",)),
    ("products: sums over the split inner dimension", ("sum current", "sum recurrent", "sum hidden", "sum output")),
    ("products: operands arranged as they want them", ("arrange",)),
    ("sum of weight gradients over time", ("add gradient",)),
    ("neurons and spikes, forward", ("neuron update", "LIF update", "spikes")),
    ("neurons and spikes, backward", ("spike gradient", "read-out", "neuron gradient", "state", "scale", "decay")),
    ("biases", ("bias", "sum samples", "add pieces")),
    ("slices and updates of sequences", ("slice", "stash")),
    ("counting timesteps, loop control", ("count timestep", "previous timestep", "loop control")),
)
ONCE = "once per training step: zeros, loss, update"
HEAD = """# Dense spikes on tiles: where the time goes

Made by `benchmarks/dense_break_down.py`; nothing here was tuned to a measured figure. Workload: `{name}`
({network}, {timesteps} timesteps, batch {batch}).

With `network.spikes = "dense"` the same compiler lowers the array form of the graph. In every layer and timestep it has
a product [batch, inputs] x [inputs, neurons], an element-wise neuron and an element-wise spike; the backward pass adds
the product with the transposed weights, the product of transposed spikes and gradients, and its sum over time. The
program is executed: with dyadic weights its spikes equal those of the interpreter bit for bit, its gradients to 1e-5.
"""
TAIL = """
## How it is lowered
- **Products** are planned one by one as PopLibs would plan them (`compiler/place/product_plan.py`; compared with the
  vendor's measured GEMM rates in [predicted-and-measured.md](predicted-and-measured.md)): rows, inner dimension and
  columns are split over all tiles, the matrix units multiply, and the partial results of the split inner dimension are
  summed. The matrix units always hold the first operand; swapping operands, which PopLibs may do, is not tried.
- **Layout**: a layer's states have the layout in which the product that makes its currents leaves them; its weights
  (and their moments) have the layout which that product needs. An operand that another product needs in a different
  layout is arranged first, by an exchange and a copy on the tile, or by a transposition if a different axis must be
  contiguous. The transposed weights are arranged once per training step, everything else in every timestep.
- **Neurons** run as calls of the element-wise library, one per operation, with nothing fused
  (`codelets/linear_calls.py`), as in a framework that maps each operation separately.
  `mapping.dense_neurons = "fused"` uses one hand-written vertex instead.
- **Timesteps** are a loop on the device: slices and updates of stashed sequences send their offset to all tiles. An
  input that is the same in every timestep is stored and sent once; its product is computed again in every timestep, as
  in the framework, both on tiles and in the GPU's kernels.

## How the snnTorch system differs
- Its loop over timesteps is unrolled when it is traced: no slices, no counting, no loop control, but separate code for
  every timestep.
{unrolled}
- One optimiser step per call of the host: the host's round trip (assumed {request} us, hidden by prefetch here) and
  whatever PopTorch does per call are added. No public figure says how much that is.
- A constant image's product with the first weights, and the weight gradients, could each be one product for all
  timesteps. Neither the tiles here nor traced framework code does that; the GPU's `hoisted` strategy does the second.
"""


def group_of(span: Span) -> str:
    """The group of a superstep by the beginning of its name."""
    for group, starts in GROUPS:
        if span.name.startswith(starts) and span.times > 1:
            return group
    return ONCE


def break_down(tiled: TiledProfile) -> list[str]:
    """Lines of the table: cycles per training step by group."""
    rows: dict[str, list[int]] = {group: [0, 0, 0] for group in (*(name for name, _ in GROUPS), ONCE)}
    for span in tiled.spans:
        row = rows[group_of(span)]
        for index, cycles in enumerate((span.compute_cycles, span.exchange_cycles, span.sync_cycles)):
            row[index] += cycles
    whole = sum(sum(row) for row in rows.values())
    lines = ["| part | compute cycles | exchange | sync | share |", "|---|---|---|---|---|"]
    for name, (compute, exchange, sync) in rows.items():
        if compute + exchange + sync:
            share = (compute + exchange + sync) / whole
            lines.append(f"| {name} | {compute:,} | {exchange:,} | {sync:,} | {share:.1%} |")
    totals = [sum(row[index] for row in rows.values()) for index in range(3)]
    lines.append(f"| all | {totals[0]:,} | {totals[1]:,} | {totals[2]:,} | 100 % |")
    return lines


def plans(compiled: Compiled, machine: MimdMachine) -> list[str]:
    """Lines of the table of planned products."""
    assert compiled.placement.arrays is not None
    lines = [
        "| product m x k x n | tiles | rows x inner x columns | multiply | operands | sum | sums' exchange | of peak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (m, k, n), place in compiled.placement.arrays.known.items():
        plan = place.plan
        ideal = m * k * n / (machine.chip.tiles * plan.units)  # one product per unit and cycle in float32
        lines.append(
            f"| {m} x {k} x {n} | {plan.tiles:,} | {plan.row_splits} x {plan.inner_splits} x {plan.column_splits} | "
            f"{plan.multiply_cycles:,} | {plan.operand_exchange_cycles:,} | {plan.sum_cycles:,} | "
            f"{plan.sum_exchange_cycles:,} | {ideal / plan.cycles:.0%} |"
        )
    return lines


def unrolled_bytes(compiled: Compiled, machine: MimdMachine) -> tuple[int, int]:
    """Code and vertex state of the fullest tile: as compiled, and with exchanges and vertices of every timestep."""
    looped = compiled.memory.code + compiled.memory.vertices
    more = looped.copy()
    for superstep, times, _ in compiled.program.supersteps():
        for table in superstep.tables:
            for tile in table.tiles.tolist():
                more[tile] += (times - 1) * table.codelet.vertex_state_bytes
        if superstep.exchange is not None:
            exchange = superstep.exchange
            fragments = exchange.column("fragments_sent") + exchange.column("fragments_received")
            more[exchange.tiles] += (times - 1) * fragments * machine.exchange.fragment_code_bytes
    return int(looped.max()), int(more.max())


def page(name: str) -> str:
    """The whole page."""
    workload = load_workload(name)
    mk2, bow = (load_machine(machine) for machine in ("mk2", "bow"))
    assert isinstance(mk2, MimdMachine)
    assert isinstance(bow, MimdMachine)
    compiled = compile_workload(workload, mk2)
    network = compiled.network
    timed = {machine.title: retime(compiled, machine, NOTHING) for machine in (mk2, bow)}
    looped, unrolled = unrolled_bytes(compiled, mk2)
    fits = "not fit" if unrolled > mk2.tile.executable_bytes else "fit"
    words = (
        f"  Counted by the rules used here, the {looped:,} bytes of code and vertex state of the fullest tile\n"
        f"  would become {unrolled:,}; the executable region has {mk2.tile.executable_bytes:,}. Without outlining of "
        f"repeated\n  parts it would {fits}."
    )
    head = HEAD.format(name=name, network=network.title, timesteps=network.timesteps, batch=network.batch)
    lines = [head, "| machine | cycles a training step | ms | interval |", "|---|---|---|---|"]
    for title, tiled in timed.items():
        low, high = 1e3 * tiled.seconds_low, 1e3 * tiled.seconds_high
        seconds = tiled.cycles / tiled.clock_hz
        lines.append(f"| {title} | {tiled.cycles:,} | {1e3 * seconds:.2f} | {low:.2f} to {high:.2f} |")
    lines += [
        "",
        f"The fullest tile holds {compiled.memory.peak_bytes:,} bytes. Cycles of a training step on the {mk2.title}:",
        "",
        *break_down(timed[mk2.title]),
        "",
        "Products as planned, cycles of one timestep (share of peak with exchange and sync):",
        "",
        *plans(compiled, mk2),
    ]
    tail = TAIL.format(unrolled=words, request=round(1e6 * mk2.host.request_seconds))
    return "\n".join(lines) + "\n" + tail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="snntorch-mnist")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    text = page(given.workload)
    print(text)
    if given.page:
        write_atomically(given.page, text)


if __name__ == "__main__":
    main()
