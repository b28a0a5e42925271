"""Training steps of a dense spiking network through a framework: rows of `references/framework_training_steps.csv`.

The publication's own code times one call of the model by the host's clock (`train_fcn.py`): the batch, made float16
before, goes to the chip when it is asked for, nothing is fetched ahead, and the spikes of the output and the loss come
back. The chip runs the network as `mapping.dense_neurons = "traced"` compiles it. Starting the engine takes what other
programs say of it, which is not much. What PopTorch's Python does before and after is left out. Nothing is fitted to a
row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.base.residuals import combined, interval, residuals_of
from mimdsim.base.units import kind_of, uncertainty
from mimdsim.compiler.place.product_plan import plan_product
from mimdsim.machine import MimdMachine, tiled_machine
from mimdsim.pipeline import compile_workload, retime
from mimdsim.profile.ratios import Ends, UncertainSeconds
from mimdsim.program.records import NO_SPIKES
from mimdsim.validation.gpus.networks import BACKWARD_CALL_SHARE, FRAMEWORKS
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, codelet_parts, within_bounds
from mimdsim.workload import load_workload, network_of

COLUMNS = {"framework", "machine", "dense", "batch", "T", "beta", "dtype", "optimiser", "images_per_s"}
WORKLOAD = "snntorch-mnist"
FIGURES = "step of a framework"
TOLERANCE = 0.25
ITEM_BYTES = 4
IMAGE_BYTES = 2  # of a number of the batch: the program calls data.half()
REQUESTS = 4  # images, labels, spikes, loss; each its own: SessionOptions::groupHostSync is false in PopART 2.3
# Starting the engine once. The heat equation on 403^3 cells and two Mk2 chips took 227.66 us an iteration in a run of
# 1,000 (2.30 TFLOPS, three digits) and 227.2 in one of 100,000 (22.72 s; both SDK 3.2, references/devito_ipu.csv): the
# difference times 1,000, of which the rounding leaves nothing to twice as much (derived)
START_SECONDS = 0.46e-3
START_DOUBT_SECONDS = 0.46e-3
KNOWN = {"framework": "snntorch-ipu", "dtype": "f32", "optimiser": "adam"}
MACHINE_ADVICE = "this program is for tiled machines such as mk2"
CALL_SECONDS = (10e-6, 22e-6)  # a Python call that launches a kernel: a fast computer (assumed), and an A100 box
# beyond snn.Leaky, forward and backward; derived: one-to-one synapses multiply and add, and their gradient is two
# products, a sum over samples and its addition
ONE_TO_ONE_CALLS = (2, 4)
PRODUCT_CALLS = (1, 2)


def framework_step_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    """Fields of a published figure, in milliseconds."""
    widths, batch, timesteps = _widths(row), row.whole("batch"), row.whole("T")
    images = row.number("images_per_s", above=0)
    beta = row.number("beta")
    measured = 1e3 * batch / images
    name = f"{row['framework']} {row['dense']} batch {batch} T={timesteps} on {row['machine']}, {images:,.0f} images/s"
    yield row.figure(name, "ms", measured, TOLERANCE, f"as if on {row['machine']}")
    for column, known in KNOWN.items():
        if row[column] != known:
            raise MimdsimError(f"{column} '{shortened(row[column])}' has no program here; known: {known}")
    changes = {
        "data.timesteps": timesteps,
        "network.hidden": list(widths[1:-1]),
        "network.neuron_parameters": {"beta": beta, "threshold": 1.0},
        "training.batch": batch,
    }
    call = Call(row["machine"], changes)
    has = call.network.inputs, call.network.classes
    if has != (widths[0], widths[-1]):
        raise MimdsimError(
            f"{widths[0]} inputs and {widths[-1]} outputs; workload {WORKLOAD} has {has[0]} and {has[1]}"
        )
    parts = codelet_parts(call.timed.doubts, 1e3 / call.timed.clock_hz)
    bearing = row.bearing(row["machine"], measured, lambda machine: 1e3 * call.again(machine), parts=parts)
    yield within_bounds(1e3 * call.seconds, 1e3 * call.low, 1e3 * call.high) | {"bearing": bearing}


def _widths(row: Cells) -> tuple[int, ...]:
    try:
        widths = tuple(int(width) for width in row["dense"].split("-"))
    except ValueError:
        widths = ()
    if len(widths) < 2 or min(widths) < 1:
        raise MimdsimError(f"column 'dense': '{shortened(row['dense'])}' is not two or more widths, such as 784-100-10")
    return widths


class Call:
    """One call of the model: batch in, a training step of the changed workload as the framework makes it, spikes and
    loss back. Seconds and how far their sources leave them off (low, high), network and timed training step."""

    def __init__(self, machine: str, changes: Mapping[str, Any]):
        chip = tiled_machine(machine, MACHINE_ADVICE)
        workload = load_workload(WORKLOAD, {"mapping.dense_neurons": "traced", **changes})
        self.compiled = compile_workload(workload, chip)
        self.network = network = self.compiled.network
        self.timed = retime(self.compiled, chip, NO_SPIKES)  # no cost of dense spikes depends on them
        labels = network.batch * ITEM_BYTES
        images = (sum(self.compiled.program.streamed.values()) - labels) * IMAGE_BYTES // ITEM_BYTES
        returned = (network.timesteps * network.batch * network.classes + 1) * ITEM_BYTES
        self.moved_bytes = images + labels + returned
        moving, on_chip = self._moving(chip), self.timed.cycles / self.timed.clock_hz
        of_host = (uncertainty(kind_of(chip.host.sources[name])) * seconds for name, seconds in moving.items())
        off = combined((self.timed.propagated * on_chip, *of_host, START_DOUBT_SECONDS))
        self.seconds = on_chip + (sum(moving.values()) + START_SECONDS)
        self.low, self.high = interval(self.seconds, off / self.seconds)

    def _moving(self, described: MimdMachine) -> dict[str, float]:
        """Seconds of the host by the number of the machine that they come from."""
        copied = self.moved_bytes / described.host.bytes_per_second
        return {"bytes_per_second": copied, "request_seconds": REQUESTS * described.host.request_seconds}

    def again(self, described: MimdMachine) -> float:
        """Seconds of the same program on another description of the machine."""
        once_more = retime(self.compiled, described, NO_SPIKES)
        return once_more.cycles / once_more.clock_hz + sum(self._moving(described).values()) + START_SECONDS

    @property
    def parts(self) -> tuple[UncertainSeconds, ...]:
        """Seconds by source at the level of intervals; host and engine start are one."""
        scale = residuals_of(FIGURES).factor
        on_chip = [
            UncertainSeconds(
                source=doubt.source,
                seconds=self.timed.seconds(doubt.cycles),
                half_width=scale * doubt.half_width_cycles / self.timed.clock_hz,
            )
            for doubt in self.timed.doubts
        ]
        whole = scale * self.seconds * math.log(self.high / self.seconds)
        left = max(whole**2 - combined(part.half_width for part in on_chip) ** 2, 0.0)
        seconds = self.seconds - sum(part.seconds for part in on_chip)
        return (*on_chip, UncertainSeconds(source="host of a framework", seconds=seconds, half_width=math.sqrt(left)))

    @property
    def ends(self) -> Ends:
        """Seconds with their interval."""
        reach = combined(part.half_width for part in self.parts) / self.seconds
        return (self.seconds, *interval(self.seconds, reach))


def loop_seconds(changes: Mapping[str, Any]) -> Ends:
    """snnTorch's loop over timesteps on a GPU: the host's calls, which take longer than what they launch."""
    network, step = network_of(load_workload(WORKLOAD, dict(changes))), FRAMEWORKS["snnTorch"]
    more = ONE_TO_ONE_CALLS if changes.get("network.recurrence") == "one_to_one" else (0, 0)
    forward = step.forward.calls + PRODUCT_CALLS[0] + more[0]
    backward = step.backward.calls + PRODUCT_CALLS[1] + more[1]
    calls = network.timesteps * len(network.layers) * (forward + BACKWARD_CALL_SHARE * backward)
    low, high = (calls * period for period in CALL_SECONDS)
    return math.sqrt(low * high), low, high


def planned_product_cycles(machine: str, dtype: str) -> int:
    """Of all products of a training step, as planned; dtype: f32 or f16."""
    network = network_of(load_workload(WORKLOAD))
    chip, batch = tiled_machine(machine, MACHINE_ADVICE), network.batch
    cycles = 0
    for number, layer in enumerate(network.layers):
        forward, weights = (batch, layer.inputs, layer.neurons), (layer.inputs, batch, layer.neurons)
        inputs = [(batch, layer.neurons, layer.inputs)] if number else []
        cycles += sum(plan_product(chip, *shape, dtype).cycles for shape in (forward, weights, *inputs))
    return network.timesteps * cycles


FRAMEWORK_STEPS = ReferenceTable(needed=COLUMNS, also={"source"}, read_row=framework_step_row, figures=FIGURES)
