"""Training steps of spiking networks on a GPU: rows of `references/gpu_training_steps.csv`, time and energy.

benchmarks/gpu/measure_steps.py, and measure_convolutions.py for networks with convolutions ('2x34x34-12c5-...' in the
column `widths`), timed a program for each strategy of the GPU model; a row says how many neurons fired. The strategy
`as_published` is what XLA makes of a loop over timesteps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.base.residuals import interval
from mimdsim.gpu import find_strategy, time_on_gpu
from mimdsim.gpu.kernels import InputEncoding
from mimdsim.graph import Adam, Graph, Layer, SpikingNetwork, training_graph
from mimdsim.graph.convolution import Convolution, convolutions_of
from mimdsim.graph.neuron_models import neuron_of
from mimdsim.graph.spikes import Selection
from mimdsim.program import RecordedActivity
from mimdsim.validation.gpus.products import LARGEST_EXTENT, TOLERANCE, device_of, find_precision, origin_of
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, within_bounds

COLUMNS = {"gpu", "strategy", "precision", "widths", "recurrent", "batch", "timesteps", "spikes", "listed", "ms", "mJ"}
MOST_LAYERS = 64
RECURRENT = {"none": "none", "hidden layers": "all_to_all"}


def training_step_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    """Fields of the milliseconds and, where the row has them, millijoules of one step."""
    planes = "x" in row["widths"].split("-")[0]
    batch, timesteps, spikes = row.whole("batch"), row.whole("timesteps"), _numbers(row, "spikes", " ")
    if row["recurrent"] not in RECURRENT:
        raise MimdsimError(f"column 'recurrent': '{shortened(row['recurrent'])}' is none of {', '.join(RECURRENT)}")
    (gpu, remark), precision = device_of(row["gpu"]), find_precision(row["precision"])
    if precision is None:
        raise MimdsimError(f"column 'precision': '{shortened(row['precision'])}' has no model")
    strategy = find_strategy(row["strategy"])
    activity = None
    # the programs unfold lists; a graph with dense spikes takes bits, of about as many bytes
    encoding: InputEncoding = "dense" if strategy.copies_dense_input else "bits" if planes else "as_graph"
    longest = 0.0
    if not planes:
        strategy = replace(strategy, pads_widths=False)  # the widths are those of the program
        activity, longest = _recorded(row, batch, timesteps, spikes)
    graph = _graph(row["widths"], RECURRENT[row["recurrent"]], batch, timesteps, longest)
    profile = time_on_gpu(
        graph, gpu, strategy=strategy, precision=precision, input_encoding=encoding, activity=activity
    )
    low, high = strategy.interval(precision, convolutions=planes)
    milliseconds = 1e3 * sum(span.seconds for span in profile.spans)
    name = f"{row['gpu']} {row['widths']}{', recurrent' * (row['recurrent'] != 'none')} B={batch} T={timesteps} "
    name += f"{spikes[1]:g} spikes, {row['strategy']} {row['precision']}"
    of_planes = ", convolutions" * planes
    kind = f"{row['strategy']} {row['precision']}{of_planes}"
    figures = [("ms", name, kind, "GPU training step", (milliseconds, low * milliseconds, high * milliseconds))]
    energy = profile.energy
    if row["mJ"] and energy is not None:
        ends = (1e3 * energy.joules, *interval(1e3 * energy.joules, energy.propagated))
        figures.append(("mJ", f"{name}, energy", f"energy{of_planes}", "energy of a GPU", ends))
    published = {unit: row.number(unit, above=0) for unit, *_ in figures}
    for unit, name, kind, of, ends in figures:
        about = {"note": remark, "figures": of, "origin": origin_of(row.get("source", ""))}
        yield row.figure(name, unit, published[unit], TOLERANCE, kind, **about) | within_bounds(*ends)


def _recorded(row: Cells, batch: int, timesteps: int, spikes: list[float]) -> tuple[RecordedActivity, float]:
    """The spikes of a fully connected network, and the most that a list holds."""
    widths, listed = _numbers(row, "widths", "-", whole=True), _numbers(row, "listed", " ")
    if not 2 <= len(widths) <= MOST_LAYERS or len(spikes) != len(widths) or len(listed) != len(widths) - 1:
        raise MimdsimError("column 'spikes' needs a number for each of 'widths', and 'listed' for all but the last")
    layers = ["input", *_names(len(widths) - 1)]
    entries = zip(layers, spikes, [*listed, spikes[-1]], strict=True)
    counts = {name: np.full((timesteps, batch, 2), (fired, near)) for name, fired, near in entries}
    return RecordedActivity(ids={}, counts=counts, dropped={}), max(listed)


def _names(layers: int) -> list[str]:
    return [*(f"hidden{index}" for index in range(layers - 1)), "output"]


def _numbers(row: Cells, column: str, between: str, *, whole: bool = False) -> list[float]:
    try:
        found = [float(text) for text in row[column].split(between)]
    except ValueError:
        found = [-1.0]
    least, most = (1, LARGEST_EXTENT) if whole else (0, LARGEST_EXTENT)
    if not all(least <= each <= most and (not whole or each == int(each)) for each in found):
        what = "whole numbers from 1" if whole else "numbers from 0"
        raise MimdsimError(f"column '{column}': '{shortened(row[column])}' is not {what}, between them '{between}'")
    return found


@lru_cache(maxsize=32)
def _graph(text: str, recurrence: str, batch: int, timesteps: int, longest: float) -> Graph:
    """The training graph of the column `widths`; fully connected, the lists of the network's input are as long as its
    rows need; of planes, spikes are dense."""
    planes = "x" in text.split("-")[0]
    shapes: list[tuple[int, int, Convolution | None]]
    if planes:
        shapes = [(each.planes.neurons, each.result.neurons, each) for each in convolutions_of(text)]
    else:
        shapes = [
            (inputs, neurons, None) for inputs, neurons in pairwise(int(float(width)) for width in text.split("-"))
        ]
    layers = tuple(
        Layer(
            name=name,
            inputs=inputs,
            neurons=neurons,
            neuron=neuron_of("lif"),
            selection=Selection(
                threshold=1.0,
                second_threshold=-100.0 if planes else 0.9,
                capacity=1 if planes else neurons,
                slope=10.0,
            ),
            recurrence="none" if planes or name == "output" else recurrence,
            bias=planes,
            convolution=convolution,
        )
        for name, (inputs, neurons, convolution) in zip(_names(len(shapes)), shapes, strict=True)
    )
    most = layers[0].inputs
    network = SpikingNetwork(
        layers=layers, timesteps=timesteps, batch=batch, delay=0 if planes else 1,
        input_capacity=most if planes else max(1, min(round(2 * longest), most)),
        spikes="dense" if planes else "sparse", logit_scale=1.0, optimiser=Adam(learning_rate=0.001),
    )  # fmt: skip
    return training_graph(network)


GPU_STEPS = ReferenceTable(
    needed=COLUMNS,
    also={"source"},
    ignored={"program", "longest", "ms_low", "ms_high"},
    read_row=training_step_row,
    on="",
)
