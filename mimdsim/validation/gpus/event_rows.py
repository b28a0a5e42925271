"""Predictions for measured EventProp training (GeNN) and for Spyx on the same networks: a table's rows in microseconds.

Kernels are given per launch, sums and whole trainings per batch. Spikes are not recorded, but the training drives every
hidden neuron to a number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.gpu import time_on_gpu
from mimdsim.graph import training_graph
from mimdsim.machine.gpu import GpuMachine
from mimdsim.validation.gpus.devices import described, find_device
from mimdsim.validation.gpus.event_driven import (
    EventDrivenNetwork,
    batch_sum_seconds,
    count_sum_seconds,
    neuron_update_seconds,
    optimiser_seconds,
    reset_seconds,
    small_kernel_seconds,
    synapse_seconds,
)
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable
from mimdsim.workload import load_workload, network_of

COLUMNS = {
    "what", "device", "dataset", "inputs", "hidden_recurrent", "outputs", "timesteps", "batch", "epochs",
    "batches_per_epoch", "quantity", "value",
}  # fmt: skip
# Rows name no device. The optimiser's kernel reads and writes 50 MB in 76 us, 660 GB/s, which is 0.86 of the DRAM of a
# card with 768 GB/s; no other card that is described here is near.
UNNAMED, UNNAMED_IS = ("gpu not named", "not stated"), "rtx-a5000"
# Of a sample of SHD. Kind: derived. reg_nu_upper = 14 in neworderofjamie/ml_genn_netx_paper, classifier.py, drives
# hidden neurons to 14 spikes a sample; input spikes are what the two sums of synaptic operations in the table (2,264
# samples, 256 and 1024 neurons) leave with it: 8,480 and 8,420.
HIDDEN_SPIKES, INPUT_SPIKES, DATASET = 14.0, 8450.0, "shd"
OTHER_SPIKES = (0.5, 1.5)  # how far a run may be from them: bounds of the interval
UNROLLED = 32  # timesteps that one turn of Spyx's loop holds: hk.dynamic_unroll(..., unroll=32) in its documentation
WORKLOAD = "shd-2"
LARGEST = 1 << 20  # of any extent in a row
Seconds = Callable[[GpuMachine, EventDrivenNetwork], float]
SMALL = (*(f"custom_update_batch_softmax_{part}" for part in (1, 2, 3)), "custom_update_zero_out_post")
EACH_TIMESTEP: dict[str, tuple[Seconds, str]] = {
    "neuron_update": (neuron_update_seconds, "neuron update"),
    "presynaptic_update": (synapse_seconds, "synapses"),
}
EACH_BATCH: dict[str, tuple[Seconds, str]] = {
    "custom_update_gradient_learn": (optimiser_seconds, "optimiser"),
    "custom_update_gradient_batch_reduce": (batch_sum_seconds, "gradients summed over the batch"),
    "custom_update_reset": (reset_seconds, "small kernels"),
    "custom_update_spike_count_reduce": (count_sum_seconds, "small kernels"),
} | dict.fromkeys(SMALL, (small_kernel_seconds, "small kernels"))
TOLERANCE = {"synapses": 0.35}
NOT_MODELLED = {
    "wall": "the host's part (callbacks, spikes that are recorded and copied) is not modelled",
    "memory": "memory is not modelled",
    "synaptic_operations": "a count, from which input spikes were inferred",
    "build_and_load": "compilation is not modelled",
}


def event_row(row: Cells, _asked: Asked) -> Fields:
    """Fields of a measured quantity."""
    quantity, what = row["quantity"], row["what"]
    published = row.number("value")
    if published < 0:
        raise MimdsimError(f"column 'value': '{shortened(row['value'])}' is not a number from 0")
    fields: Fields = {
        "name": f"{shortened(row['hidden_recurrent'])} x {shortened(row['timesteps'])} {shortened(row['dataset'])} "
        f"{shortened(row.get('augmentation', ''))}, {shortened(what.removesuffix('_train'))} "
        + shortened(quantity.removeprefix("custom_update_")),
        "unit": "us",
        "published": published,
        "tolerance": 0.25,
        "source": row.get("source_path", ""),
    }
    try:
        whole = what == "spyx_train" and quantity == "wall_training"
        if not whole:
            _check_modelled(what, quantity)
        gpu, network, batches = _read(row)
        if whole:
            seconds, low, high, kind = *_spyx(gpu.name, network), "Spyx, a training step"
        else:
            seconds, low, high, kind = _kernel(quantity, row["dataset"], gpu, network)
    except MimdsimError as refusal:
        return {**fields, "unit": "as given", "note": str(refusal)}
    launches = batches * (network.timesteps if quantity in EACH_TIMESTEP else 1)
    return {
        **fields,
        "published": 1e6 * fields["published"] / launches,
        "predicted": 1e6 * seconds,
        "low": 1e6 * low,
        "high": 1e6 * high,
        "tolerance": TOLERANCE.get(kind, 0.25),
        "kind": kind,
        "note": f"on {gpu.title}",
    }


def _check_modelled(what: str, quantity: str) -> None:
    for word, why in NOT_MODELLED.items():
        if word in quantity:
            raise MimdsimError(why)
    if what != "genn_eventprop_train":
        raise MimdsimError(f"no program '{shortened(what)}' was counted; known: genn_eventprop_train, spyx_train")


def _kernel(
    quantity: str, dataset: str, gpu: GpuMachine, network: EventDrivenNetwork
) -> tuple[float, float, float, str]:
    """Seconds of a launch, or of all kernels of a batch; their bounds and kind."""
    if dataset != DATASET:
        raise MimdsimError(f"the spikes of dataset '{shortened(dataset)}' are unknown; known: {DATASET}")
    less, more = (
        replace(network, input_spikes=network.input_spikes * share, hidden_spikes=network.hidden_spikes * share)
        for share in OTHER_SPIKES
    )
    if quantity == "sum_of_kernels":
        middle, low, high = (_all_kernels(gpu, one) for one in (network, less, more))
        return middle, 0.75 * low, high / 0.75, "all kernels of a batch"
    known = EACH_TIMESTEP | EACH_BATCH
    if quantity not in known:
        raise MimdsimError(f"no kernel '{shortened(quantity)}' was counted; known: {', '.join(known)}")
    seconds_of, kind = known[quantity]
    middle, low, high = (seconds_of(gpu, one) for one in (network, less, more))
    return middle, 0.75 * low, high / 0.75, kind


def _all_kernels(gpu: GpuMachine, network: EventDrivenNetwork) -> float:
    looped = sum(seconds_of(gpu, network) for seconds_of, _ in EACH_TIMESTEP.values())
    return network.timesteps * looped + sum(seconds_of(gpu, network) for seconds_of, _ in EACH_BATCH.values())


@lru_cache(maxsize=32)
def _spyx(gpu: str, network: EventDrivenNetwork) -> tuple[float, float, float]:
    """Seconds of a training step: predicted, low, high.

    Predicted: the XLA loop of the GPU model, products in TF32 as JAX takes them, bookkeeping once a turn. Low: one
    graph with neurons fused. High: the host waits for every timestep, products in fp32, and every timestep passes over
    the input of all timesteps once; runs of 1,000 timesteps show such a cost, those of 200 do not.
    """
    machine = described(gpu)
    changes = {
        "data.source": "random",
        "data.inputs": network.inputs,
        "data.classes": network.outputs,
        "data.timesteps": network.timesteps,
        "data.train_samples": network.batch,
        "data.test_samples": 1,
        "network.hidden": [network.hidden],
        "network.recurrence": "all_to_all",
        "training.batch": network.batch,
    }
    graph = training_graph(network_of(load_workload(WORKLOAD, changes)))
    looped = time_on_gpu(graph, machine, strategy="as_published", precision="tf32")
    fused = time_on_gpu(graph, machine, strategy="graph_replay", precision="tf32")
    slowest = time_on_gpu(graph, machine, strategy="as_published_synchronised", precision="fp32")
    bookkeeping = sum(span.seconds for span in looped.spans if span.op in ("slice", "loop"))
    rate = machine.memory.dram_bytes_per_second * machine.memory.streaming_share
    passes = network.timesteps * 4 * network.batch * network.timesteps * network.inputs / rate
    return (
        looped.seconds_per_training_step - bookkeeping * (1 - 1 / UNROLLED),
        fused.seconds_low,
        slowest.seconds_per_training_step + passes,
    )


def _read(row: dict[str, str]) -> tuple[GpuMachine, EventDrivenNetwork, int]:
    """Device, network and batches of a row; MimdsimError where they cannot be read."""
    label = row["device"].strip().lower()
    device = UNNAMED_IS if label.startswith(UNNAMED) else next(iter(find_device(label) or ()), None)
    if device is None:
        raise MimdsimError(f"no description of device '{shortened(row['device'])}'")
    names = ("inputs", "hidden_recurrent", "outputs", "timesteps", "batch", "epochs", "batches_per_epoch")
    try:
        extents = [int(row[name]) for name in names]
    except ValueError:
        texts = ", ".join(f"{name} '{shortened(row[name])}'" for name in names)
        raise MimdsimError(f"{texts}: must be whole numbers") from None
    if not all(1 <= extent <= LARGEST for extent in extents):
        raise MimdsimError(f"extents of a network must be 1 to {LARGEST:,}")
    inputs, hidden, outputs, timesteps, batch, epochs, batches = extents
    network = EventDrivenNetwork(
        inputs=inputs,
        hidden=hidden,
        outputs=outputs,
        batch=batch,
        timesteps=timesteps,
        input_spikes=INPUT_SPIKES / timesteps,
        hidden_spikes=HIDDEN_SPIKES * hidden / timesteps,
    )
    return described(device), network, epochs * batches


EVENT_DRIVEN = ReferenceTable(
    needed=COLUMNS,
    also={"source_path"},
    ignored={"augmentation", "dt_ms", "optimiser", "examples", "us_per_timestep_of_a_batch"},
    predict_row=event_row,
    on="",
)
