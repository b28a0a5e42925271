"""Where a timestep of dense spikes goes on tiles: planned products, neurons, arranging, sequences, exchange and sync.

    python benchmarks/dense_break_down.py [--workload snntorch-mnist] [--page docs/dense-spikes.md]

Compiles and times one training step on a Mk2 and a Bow; with --page writes the page, whose words are here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from framework_claims import MEASURED_MS

from mimdsim.base.files import write_atomically
from mimdsim.compiler import Compiled
from mimdsim.gpu import time_on_gpu
from mimdsim.gpu.engine import AUTO
from mimdsim.graph import training_graph
from mimdsim.machine import GpuMachine, MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, retime
from mimdsim.profile import Span, TiledProfile
from mimdsim.program import RecordedActivity
from mimdsim.validation.framework_steps import START_DOUBT_SECONDS, START_SECONDS, WORKLOAD, Call
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
  What follows a product is not in its plan: its neurons, biases and the next product's operands take the layout that it
  leaves. A change of the machine that makes every product faster can so make a whole step slower. With shared buses
  (`exchange.tiles_per_bus = 2` instead of 1) the five shipped workloads become 0 to 3 % faster, and of 60 random
  networks 8 slower, 10-19-21 on 736 tiles by 11 %, the next by 4 %; one program on both
  machines is never slower with shared buses.
- **Layout**: a layer's states have the layout in which the product that makes its currents leaves them; its weights
  (and their moments) have the layout which that product needs. An operand that another product needs in a different
  layout is arranged first, by an exchange and a copy on the tile, or by a transposition if a different axis must be
  contiguous. The transposed weights are arranged once per training step, everything else in every timestep.
- **Neurons** run as calls of the element-wise library, one per operation, with nothing fused
  (`codelets/library_linear_neurons.py`), as in a framework that maps each operation separately.
  `mapping.dense_neurons = "fused"` uses one hand-written vertex instead.
- **Timesteps** are a loop on the device: every tile counts them for itself, so slices and updates of stashed sequences
  exchange nothing. An input that is the same in every timestep is stored and sent once; its product is computed again
  in every timestep, as in the framework, both on tiles and in the GPU's kernels.

## Convolutions and pools
```toml
[network.convolutions.hidden1]
channels = 64
kernel = 5                                   # or [height, width]; also stride, padding, dilation, as Conv2d of PyTorch
groups = 4                                   # 1 unless given; channels made read those of their own group alone
pool_before = {{ kind = "sum", size = 2 }}     # of the spikes that it reads: "max", "average", "sum"
pool = {{ kind = "max", size = 2 }}            # of its currents
own_kernel = 3                               # odd; weights over what its neurons sent a timestep before
```
`workloads/nmnist-conv.toml` and `dvs-gesture-conv.toml` are complete examples. A width in `network.hidden` is channels
x height x width of what comes out; neurons are numbered with channels outermost, as PyTorch's `Flatten` orders them.
One dimension is a height of 1. The layer after a pool of planes is a convolution whose kernel is all of them.
Convolutions have dense spikes and no synapses onto themselves but those of `own_kernel` (`hidden1.recurrent`), which
are added behind the pool; constants of neurons are one for the layer or one for each channel. Cells with several gates
(`I1` to `I4` of a convolutional LSTM) have as many channels of weights for each of theirs, gate after gate, here and in
`own_kernel`; with groups, a pool of currents or sums apart (`R1`) they are refused.

They may read a [sum](neurons.md#what-a-layer-reads) of layers with the same planes, and, without groups, several
sources whose planes are as large, of any number: `network.sources.hidden2 = ["hidden0", "hidden1"]`. Each has weights
of its own; together they are the convolution of all planes side by side, and batch norm is of their sum.

- **As a product**: a convolution is [samples x places, channels x kernel] x [channels x kernel, channels made], planned
  like every other product. The first operand, the patches, is made anew in every timestep where the product wants it
  (`unfold`), forward and for the gradient of the weights; the gradient of the planes is the product with the transposed
  weights, added up where the planes lie (`fold`). PopLibs' planner also has vertices that walk a kernel without making
  patches; they are not modelled, so small kernels may be faster than here.
- **Groups** (depthwise where there is one for each channel read) are a product for each, [samples x places, channels of
  a group x kernel] x [that, channels made of it], each on an equal share of the tiles (in turns where there are more
  groups than tiles): a tile gets patches, and planes, of its own groups alone. The matrix units hold weights or patches
  of a group, whichever takes fewer cycles; with one output a group 15 of 16 units idle. A depthwise layer of 64
  channels, 3 x 3, on 4,096 places of Bow takes 5,500 cycles forward, 3,700 and 10,200 for the gradients; with one
  group, 64 times the arithmetic, 18,000, 15,300 and 16,800. PopLibs also has vertices of its own for such layers (SLIC,
  vertical multiply-accumulate), which are not modelled. Whole tensors write the weights out with zeros and take as long
  as with one group.
- **Halos**: a vertex gets, for the channels that it needs, the run of pixels from the first to the last that its places
  cover: its receptive field and the ends of the lines in between. Bytes that lie on its own tile are not sent.
- **Neurons** of planes lie where their product leaves them; after a pool they are spread evenly over the tiles.
- **On GPUs** a convolution is one product that gathers its patches while it runs (implicit GEMM): planes are read once,
  no patches are stored, and the gradient of the planes is a product over the pixels. Compared with cuDNN on an H100 in
  [gpu-model.md](gpu-model.md#convolutions-measured-on-an-h100). Groups there are a guess: the faster of a product for
  each and a kernel without tensor units that moves every value once.
- Costs of `unfold`, `fold` and the pools are instruction counts of our own (`codelets/planes.py`); nothing measured
  them. Shares of their bounds and addresses that a compiler hoists are not taken off.

{convolved}

## Through a framework
`mapping.dense_neurons = "traced"` compiles the program that PopTorch makes of snnTorch's loop (arXiv 2211.10725;
sources: github.com/vinniesun/snntorch-ipu; github.com/graphcore/poptorch and popart, SDK 2.3). Timesteps are unrolled
when the loop is traced; PopART then finds what repeats and makes a function of it (outlining, on by default for what
holds a product or a custom operation; that it takes whole timesteps is assumed). Without that, by the rules used here,
the {looped:,} bytes of code and vertex state of the fullest tile would become {unrolled:,}; the executable region has
{region:,}. A timestep is hence a call, forward and backward:

- every matrix of parameters, the input, the states and what was stashed are copied to the function's own variables, and
  states, stash and weight gradients from there (`CallOpx`: every input and output that is not aliased);
- addresses are known when the program is compiled: no counter of timesteps, no dynamic slice;
- transposed weights are arranged in every timestep, because each backward call has its own;
- operations are calls of the element-wise library, each on its own, in the layouts that products leave;
- calling costs what the control of a loop does (half a percent; assumed).

Everything else is as above, and all costs are those of the loop's program. The publication's program times one call of
the model on the host's clock. In that call

- images (as float16: the program converts the batch before), labels, spikes and loss cross the link as four streams, of
  which none is fetched ahead (PopTorch's `deviceIterations` is 1, PopART's `groupHostSync` is off);
- the engine is started once: {start:.2f} ms, 0 to {start_high:.2f} (derived: the heat equation on 403^3 cells took
  227.66 us an iteration in a run of 1,000 and 227.2 in one of 100,000, `references/devito_ipu.csv`; the three digits of
  the first allow that range). Two runs of 40 iterations of a diffusion program took 3.5 ms more than its runs of 1,000
  say; so much would show in the difference above, so they contain something else, such as loading the program.

{forms}

Measured: 2.10 to 2.24 ms in eight runs on one chip (`references/framework_training_steps.csv`). Its generation is not
stated, but was very likely a Mk2: the debug information of the compiled operations in the repository names Poplar SDK
2.3 (October 2021; the Bow followed in March 2022), and the commits were made on an OpenStack machine in the vendor's
network, as its pods of IPU-Machines are served and the cards of a Mk1 were not. As a Mk2 the prediction is within 5 %;
without the start of the engine it would be 20 to 25 % low. Terms that the sources suggest and that are left out:

{missing}

Four requests of 70 us (within 100 %) may hold other host work: PopTorch's Python checks two arguments and makes one
call into C++, which allocates two outputs and converts the labels (`PoplarExecutor.__call__`, `PoplarExecutable::run`);
PopART connects the streams anew in every call. No public figure says how long that takes. What the sources rule out:
batches fetched ahead, an optimiser that is sent again (its dictionary is compared and found unchanged), and products
computed once for all timesteps (neither eliminates common subexpressions). The planned products, 60 % of the step, are
within 4 % of three float32 products measured on a GC200 (9 to 137 GFLOP), and 13 % too fast for a narrow one on a Bow
(4096 x 4096 x 64).

A constant image's product with the first weights, and the weight gradients, could each be one product for all
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
    for (m, k, n, *_), place in compiled.placement.arrays.known.items():
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


def forms(workload: str) -> list[str]:
    """Lines of the table of programs by machine: the loop, the calls, and a call of the model."""
    lines = [
        "| machine | loop on the device, ms | calls, ms | one call of the model, ms | interval |",
        "|---" * 5 + "|",
    ]
    for name in ("mk1", "mk2", "bow"):
        machine = load_machine(name)
        assert isinstance(machine, MimdMachine)
        made = compile_workload(load_workload(workload), machine)
        looped = retime(made, machine, NOTHING)
        call = Call(name, {})
        lines.append(
            f"| {machine.title} | {1e3 * looped.cycles / looped.clock_hz:.2f} | "
            f"{1e3 * call.timed.cycles / looped.clock_hz:.2f} | {1e3 * call.seconds:.2f} | "
            f"{1e3 * call.low:.2f} to {1e3 * call.high:.2f} |"
        )
    return lines


def missing(compiled: Compiled, machine: MimdMachine) -> list[str]:
    """Lines of the table of terms that the sources suggest and the program leaves out, sized from its own spans."""
    changed = load_workload(WORKLOAD, {"mapping.dense_neurons": "traced"})
    traced = {span.name: span for span in retime(compile_workload(changed, machine), machine, NOTHING).spans}
    turns, layers = compiled.network.timesteps, len(compiled.network.layers)
    word = round(machine.exchange.fixed_cycles + machine.exchange.receive_fragment_cycles)
    word += machine.sync.internal_cycles  # one word from a tile to every other
    copies = sum(traced[f"stash u.{layer.name}"].compute_cycles for layer in compiled.network.layers)
    rows = (
        ("5 scalar operands of a neuron (threshold, decay), if each is sent from one tile", 5 * layers * turns * word),
        ("threshold and spike of the reset and of the output as one function: 3 copies, twice", 6 * copies),
        ("the shifted potential stashed besides the potential: out and in", 2 * copies),
    )
    milliseconds = 1e3 / machine.chip.clock_hz
    lines = ["| left out | cycles | ms |", "|---|---|---|"]
    lines += [f"| {what} | {cycles:,} | {cycles * milliseconds:.3f} |" for what, cycles in rows]
    left_out = sum(cycles for _, cycles in rows) * milliseconds
    call = 1e3 * Call("mk2", {}).seconds
    low, high = (figure - call - left_out for figure in MEASURED_MS)
    lines.append(f"| together | {sum(cycles for _, cycles in rows):,} | {left_out:.2f} |")
    lines.append(f"| measured beyond the prediction and these | | {low:.2f} to {high:.2f} |")
    return lines


CONVOLUTIONAL = ("nmnist-conv", "dvs-gesture-conv")


def convolved() -> list[str]:
    """A training step of every convolutional workload on the Bow, and on an A100 at its fastest."""
    lines = ["| workload | batch, timesteps | Bow, ms | interval | fullest tile, KiB | A100, fp16, ms | how |"]
    lines.append("|---|---|---|---|---|---|---|")
    bow, gpu = load_machine("bow"), load_machine("a100")
    assert isinstance(bow, MimdMachine)
    assert isinstance(gpu, GpuMachine)
    for name in CONVOLUTIONAL:
        compiled = compile_workload(load_workload(name), bow)
        tiled, network = retime(compiled, bow, NOTHING), compiled.network
        best = time_on_gpu(training_graph(network), gpu, strategy=AUTO, precision="fp16")
        ends = f"{1e3 * tiled.seconds_low:.2f} to {1e3 * tiled.seconds_high:.2f}"
        lines.append(
            f"| `{name}` | {network.batch}, {network.timesteps} | {1e3 * tiled.cycles / tiled.clock_hz:.2f} | {ends} | "
            f"{compiled.memory.peak_bytes / 1024:.0f} | {1e3 * best.seconds_per_training_step:.3f} | {best.strategy} |"
        )
    return lines


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
    tail = TAIL.format(
        looped=looped,
        unrolled=unrolled,
        region=mk2.tile.executable_bytes,
        start=1e3 * START_SECONDS,
        start_high=1e3 * (START_SECONDS + START_DOUBT_SECONDS),
        forms="\n".join(forms(name)),
        missing="\n".join(missing(compiled, mk2)),
        convolved="\n".join(convolved()),
    )
    return "\n".join(lines) + "\n" + tail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default=WORKLOAD)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    text = page(given.workload)
    print(text)
    if given.page:
        write_atomically(given.page, text)


if __name__ == "__main__":
    main()
